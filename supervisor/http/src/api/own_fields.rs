//! Header fields that begin with `Offload-`: what they are called. One that there is not is probably misspelt, and whoever sent it counts
//! on it; so it is refused, like an unknown key of the configuration.

use crate::problem::Problem;
use crate::request::quoted;
use http::request::Parts;
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
pub(super) fn check(head: &Parts) -> Result<(), Problem> {
    match head.headers.keys().find(|name| !is_known(name.as_str())) {
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

fn unknown_field(name: &str) -> String {
    let known = || OF_REQUESTS.into_iter().chain([META]);
    let own = |name: &str| name[PREFIX.len()..].trim_end_matches("-NAME").to_ascii_lowercase();
    let distance = |known: &str| strsim::damerau_levenshtein(&own(name), &own(known));
    let nearest = known().min_by_key(|known| distance(known));
    let shown = quoted(name);
    match nearest.filter(|nearest| distance(nearest) <= 1 + own(nearest).len() / 3) {
        Some(nearest) => format!("there is no field {shown}; did you mean {nearest}?"),
        None => format!("there is no field {shown}; there are {}", known().collect::<Vec<_>>().join(", ")),
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

    #[test]
    fn every_field_that_there_is_is_known_in_requests_and_answers_alike() {
        let all = OF_REQUESTS.into_iter().chain(OF_OTHERS).chain(["offload-meta-tenant", "x-offload-timout"]);
        for name in all {
            assert!(is_known(&name.to_ascii_lowercase()), "{name}");
        }
    }
}
