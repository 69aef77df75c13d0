//! Parses scheduling weights of clients: `nightly=1,web=10`.

use offload_core::limits::WEIGHT_MAX;
use offload_protocol::limits::NAME_MAX;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Reads `NAME=N`. The name may contain `=`, the number is behind the last one.
///
/// # Errors
/// A sentence for the person who wrote it.
pub(crate) fn parse_weight(text: &str) -> Result<(String, u32), String> {
    let read = text.rsplit_once('=').and_then(|(name, number)| Some((name, number.trim().parse().ok()?)));
    match read {
        Some((name, weight)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), weight)),
        _ => Err(format!("{text:?} is no share: write NAME=N, as in web=10")),
    }
}

/// Reads `NAME=N,NAME=N`. A name that comes twice is a mistake.
///
/// # Errors
/// A sentence for the person who wrote it.
pub(crate) fn parse_weights(text: &str) -> Result<BTreeMap<String, u32>, String> {
    let mut weights = BTreeMap::new();
    for part in text.split(',') {
        let (name, weight) = parse_weight(part)?;
        add(&mut weights, name, weight)?;
    }
    Ok(weights)
}

/// Adds the share of one more client.
///
/// # Errors
/// A sentence for the person who wrote it: the client has a share already.
pub(super) fn add(weights: &mut BTreeMap<String, u32>, name: String, weight: u32) -> Result<(), String> {
    match weights.entry(name) {
        Entry::Occupied(known) => Err(format!("{:?} is given two shares", known.key())),
        Entry::Vacant(new) => {
            new.insert(weight);
            Ok(())
        }
    }
}

pub(super) fn show_weights(weights: &BTreeMap<String, u32>) -> String {
    let parts: Vec<String> = weights.iter().map(|(name, weight)| format!("{name}={weight}")).collect();
    parts.join(",")
}

/// Checks client names and the bounds of their weights.
///
/// # Errors
/// A sentence for the person who wrote them.
pub(super) fn check(weights: &BTreeMap<String, u32>) -> Result<(), String> {
    for (name, weight) in weights {
        if !(1..=NAME_MAX).contains(&name.len()) {
            let length = name.len();
            return Err(format!("the name of a client has 1 to {NAME_MAX} bytes, not {length}: {name:?}"));
        }
        if !(1..=WEIGHT_MAX).contains(weight) {
            return Err(format!("the share of client {name:?} must be from 1 to {WEIGHT_MAX}, not {weight}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_and_shown_alike() {
        let weights = parse_weights("web=10, nightly=1,a=b=3").unwrap();
        assert_eq!(show_weights(&weights), "a=b=3,nightly=1,web=10");
    }

    #[test]
    fn what_is_no_share_is_refused_with_an_example() {
        for text in ["", "web", "web=", "=3", "web=-1", "web=1.5", "web=1,,a=2", "web=99999999999"] {
            assert!(parse_weights(text).unwrap_err().contains("web=10"), "{text}");
        }
        assert!(parse_weights("a=1,a=2").unwrap_err().contains("two shares"));
    }
}
