//! Parses limits of batches of tasks: `thumbnail=8/2ms,score=/500us`.

use offload_core::batches::BatchLimits;
use offload_protocol::limits::{BATCH_JOBS_MAX, BATCH_WAIT_MAX};
use offload_protocol::nouns::{TASK_NAMES, is_task_name};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

/// Reads `TASK=MAX/WAIT`, `TASK=MAX` or `TASK=/WAIT`.
///
/// # Errors
/// A sentence for the person who wrote it.
pub(super) fn parse_batch(text: &str) -> Result<(String, BatchLimits), String> {
    let wrong = || format!("{text:?} is no limit of batches: write TASK=MAX/WAIT, as in thumbnail=8/2ms");
    let (name, limits) = text.split_once('=').ok_or_else(wrong)?;
    let (max, wait) = limits.split_once('/').map_or((limits, None), |(max, wait)| (max, Some(wait)));
    let max = match max.trim() {
        "" if wait.is_some() => None,
        max => Some(max.parse().map_err(|_| wrong())?),
    };
    let wait = wait.map(parse_wait).transpose()?;
    Ok((name.trim().to_owned(), BatchLimits { max, wait }))
}

/// Reads a short duration: `2ms`, `500us`, `0`, `1s`.
///
/// # Errors
/// A sentence for the person who wrote it.
pub(super) fn parse_wait(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let micros = match (number.parse::<u64>(), unit.trim()) {
        (Ok(0), "") => Some(0),
        (Ok(number), "us") => Some(number),
        (Ok(number), "ms") => number.checked_mul(1000),
        (Ok(number), "s") => number.checked_mul(1_000_000),
        _ => None,
    };
    micros
        .map(Duration::from_micros)
        .ok_or_else(|| format!("{text:?} is no such time: write it as in 2ms, 500us or 1s"))
}

/// Reads limits with commas between them. A name that comes twice is a mistake.
///
/// # Errors
/// A sentence for the person who wrote it.
pub(super) fn parse_batches(text: &str) -> Result<BTreeMap<String, BatchLimits>, String> {
    let mut batches = BTreeMap::new();
    for part in text.split(',') {
        let (name, limits) = parse_batch(part)?;
        add(&mut batches, name, limits)?;
    }
    Ok(batches)
}

/// Adds the limits of one more task.
///
/// # Errors
/// A sentence for the person who wrote it: the task has limits already.
pub(super) fn add(
    batches: &mut BTreeMap<String, BatchLimits>,
    name: String,
    limits: BatchLimits,
) -> Result<(), String> {
    match batches.entry(name) {
        Entry::Occupied(known) => Err(format!("task {:?} is given two limits of batches", known.key())),
        Entry::Vacant(new) => {
            new.insert(limits);
            Ok(())
        }
    }
}

pub(super) fn show_batches(batches: &BTreeMap<String, BatchLimits>) -> String {
    let parts: Vec<String> =
        batches.iter().map(|(name, limits)| format!("{name}={}", show(limits))).collect();
    parts.join(",")
}

fn show(limits: &BatchLimits) -> String {
    let max = limits.max.map_or(String::new(), |max| max.to_string());
    let wait = limits.wait.map_or(String::new(), |wait| match wait.as_micros() {
        micros if micros.is_multiple_of(1_000_000) && micros > 0 => format!("/{}s", micros / 1_000_000),
        micros if micros.is_multiple_of(1000) => format!("/{}ms", micros / 1000),
        micros => format!("/{micros}us"),
    });
    format!("{max}{wait}")
}

/// Checks names and bounds.
///
/// # Errors
/// A sentence for the person who wrote them.
pub(super) fn check(batches: &BTreeMap<String, BatchLimits>) -> Result<(), String> {
    for (name, limits) in batches {
        if !is_task_name(name) {
            return Err(format!("{name:?} cannot be the name of a task: {TASK_NAMES}"));
        }
        if let Some(max) = limits.max.filter(|max| !(1..=BATCH_JOBS_MAX).contains(max)) {
            return Err(format!("a batch of {name} must have from 1 to {BATCH_JOBS_MAX} jobs, not {max}"));
        }
        if limits.wait.is_some_and(|wait| wait > BATCH_WAIT_MAX) {
            return Err(format!(
                "jobs of {name} must wait for others for at most {} s",
                BATCH_WAIT_MAX.as_secs()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_shown_alike() {
        for text in ["a=8/2ms", "a=1", "a=/500us,b.c=32/1s", "a=2/0ms"] {
            let read = parse_batches(text).unwrap();
            assert_eq!((show_batches(&read), check(&read)), (text.to_owned(), Ok(())));
        }
        assert_eq!(parse_wait("0"), Ok(Duration::ZERO));
    }

    #[test]
    fn what_is_no_limit_is_refused_with_an_example_and_what_is_out_of_bounds_with_the_bounds() {
        for text in
            ["", "a", "a=", "a=x", "a=-1", "a=1/2", "a=1/2min", "a=1/99999999999999999999s", "a=1,a=2"]
        {
            assert!(parse_batches(text).is_err(), "{text}");
        }
        for (text, why) in [
            ("a=0", "from 1 to 32"),
            ("a=33", "from 1 to 32"),
            ("a=2/1001ms", "at most 1 s"),
            ("no name=2", "cannot be the name of a task"),
        ] {
            let error = check(&parse_batches(text).unwrap()).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
