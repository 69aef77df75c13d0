//! Header fields that begin with `Offload-`: what they are called. One that there is not is probably misspelt, and whoever sent it counts
//! on it; so it is refused, like an unknown key of the configuration.
//!
//! Names are looked at where values are read: when a request describes a job. Elsewhere both are ignored. So a probe does not fail for a
//! field that a proxy adds, and nobody without a token is told which fields there are.
//!
//! A client chooses the length of a name, and comparing two names takes a time that grows with both lengths. So a name that is too long to
//! be a slip is compared with none.

use crate::problem::Problem;
use crate::request::quoted;
use http::header::HeaderMap;
use offload_protocol::nouns::OutcomeCode;

/// What all of them begin with.
const PREFIX: &str = "offload-";

/// What a request may say. Behind this prefix [`META`] has any name.
const OF_REQUESTS: [&str; 7] = [
    "Offload-Attempts",
    "Offload-Client",
    "Offload-Deadline",
    "Offload-Label",
    "Offload-Priority",
    "Offload-Stream",
    "Offload-Timeout",
];

/// As it is shown.
const META: &str = "Offload-Meta-NAME";
const META_PREFIX: &str = "offload-meta-";

/// What answers have, and requests to HTTP applications. Whoever passes on all fields that it got sends these, too; they say nothing.
const OF_OTHERS: [&str; 4] =
    ["Offload-Attempt", "Offload-Job", "Offload-Remaining-Ms", "Offload-Retry-After-Ms"];

/// # Errors
/// What the client is told: a field that there is not, and the one that may be meant.
pub(super) fn check(headers: &HeaderMap) -> Result<(), Problem> {
    match headers.keys().find(|name| !is_known(name.as_str())) {
        Some(name) => Err(Problem::new(OutcomeCode::BadRequest, unknown_field(name.as_str()))),
        None => Ok(()),
    }
}

/// Whether there is such a field, or it is none of ours. Names come here in small letters.
fn is_known(name: &str) -> bool {
    !name.starts_with(PREFIX)
        || name.starts_with(META_PREFIX)
        || OF_REQUESTS.iter().chain(&OF_OTHERS).any(|known| known.eq_ignore_ascii_case(name))
}

/// Those that a request may mean.
fn all() -> impl Iterator<Item = &'static str> {
    OF_REQUESTS.into_iter().chain([META])
}

/// What tells this field from the others, as it is compared.
fn own_part(known: &str) -> String {
    known[PREFIX.len()..].trim_end_matches("-NAME").to_ascii_lowercase()
}

/// So many wrong letters may be a slip in this part of a name.
fn slips(own: &str) -> usize {
    1 + own.len() / 3
}

/// The field that is meant, perhaps, and how many letters are wrong.
fn nearest(name: &str) -> Option<(usize, &'static str)> {
    let name = name.strip_prefix(PREFIX)?;
    let distance = |known: &'static str| {
        let own = own_part(known);
        // So many letters are wrong at least.
        if name.len().abs_diff(own.len()) > slips(&own) {
            return None;
        }
        let distance = strsim::damerau_levenshtein(name, &own);
        (distance <= slips(&own)).then_some((distance, known))
    };
    all().filter_map(distance).min_by_key(|(distance, _)| *distance)
}

fn unknown_field(name: &str) -> String {
    let shown = quoted(name);
    match nearest(name) {
        Some((_, nearest)) => format!("there is no field {shown}; did you mean {nearest}?"),
        None => format!("there is no field {shown}; there are {}", all().collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_there_is_not_is_told_with_the_nearest() {
        for (name, nearest) in [
            ("offload-timout", "Offload-Timeout"),
            ("offload-dead-line", "Offload-Deadline"),
            ("offload-cleint", "Offload-Client"),
            ("offload-labels", "Offload-Label"),
            ("offload-meta", "Offload-Meta-NAME"),
        ] {
            assert!(!is_known(name), "{name}");
            let told = unknown_field(name);
            assert!(told.ends_with(&format!("did you mean {nearest}?")), "{told}");
        }
        let told = unknown_field("offload-something-else");
        assert!(told.contains("there are Offload-Attempts, Offload-Client"), "{told}");
    }

    /// Otherwise anybody could keep the loop busy with the names of fields.
    #[test]
    fn a_name_that_is_too_long_to_be_a_slip_is_compared_with_none() {
        let far_too_long = format!("{PREFIX}{}", "x".repeat(1 << 24));
        assert_eq!(nearest(&far_too_long), None, "comparing it would take seconds, and many gigabytes");
        let told = unknown_field(&far_too_long);
        assert!(told.len() < 400 && told.contains("there are Offload-Attempts"), "{}", told.len());
    }

    #[test]
    fn every_field_that_there_is_is_known_in_requests_and_answers_alike() {
        let all = OF_REQUESTS.into_iter().chain(OF_OTHERS).chain(["offload-meta-tenant", "x-offload-timout"]);
        for name in all {
            assert!(is_known(&name.to_ascii_lowercase()), "{name}");
        }
    }
}
