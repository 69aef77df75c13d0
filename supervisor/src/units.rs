//! Parses and prints durations and amounts of memory: `250ms`, `10s`, `64MiB`.

use std::time::Duration;

/// The units of time and how many milliseconds each has, the smallest first.
const TIMES: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

/// The units of memory and how many bytes each has, the smallest first.
const SIZES: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// Reads a length of time such as `250ms`, `10s`, `5m` or `1h`.
///
/// # Errors
/// A sentence for the person who wrote it.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split_unit(text);
    let factor = TIMES.iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor);
    factor
        .and_then(|factor| number.parse::<u64>().ok()?.checked_mul(*factor))
        .map(Duration::from_millis)
        .ok_or_else(|| {
            format!("{text:?} is not a duration: write a whole number and ms, s, m or h, as in 250ms")
        })
}

/// Like [`parse_duration`], for time limits: zero is an error.
///
/// # Errors
/// A sentence for the person who wrote it.
pub fn parse_time_limit(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err(format!("{text:?} leaves no time at all")),
        limit => Ok(limit),
    }
}

/// Reads an amount of memory such as `64MiB`; a number without a unit is bytes.
///
/// # Errors
/// A sentence for the person who wrote it.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split_unit(text);
    let unit = if unit.is_empty() { "B" } else { unit };
    let factor = SIZES.iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor);
    factor.and_then(|factor| number.parse::<u64>().ok()?.checked_mul(*factor)).ok_or_else(|| {
        format!("{text:?} is not a size: write a whole number and B, KiB, MiB or GiB, as in 64MiB")
    })
}

/// Writes a length of time so that [`parse_duration`] reads it, in the largest unit that is exact.
pub fn show_duration(duration: Duration) -> String {
    let milliseconds = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    show(milliseconds, &TIMES)
}

/// Writes an amount of memory so that [`parse_size`] reads it, in the largest unit that is exact.
pub fn show_size(bytes: u64) -> String {
    show(bytes, &SIZES)
}

fn show(amount: u64, units: &[(&str, u64)]) -> String {
    let exact = |(_, factor): &&(&str, u64)| amount >= *factor && amount.is_multiple_of(*factor);
    match units.iter().rev().find(exact) {
        Some((unit, factor)) => format!("{}{unit}", amount / factor),
        None => format!("0{}", units[0].0),
    }
}

fn split_unit(text: &str) -> (&str, &str) {
    text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_every_unit() {
        for (text, milliseconds) in
            [("250ms", 250), ("10s", 10_000), ("5m", 300_000), ("1h", 3_600_000), ("0s", 0)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_an_example() {
        for text in [
            "",
            "10",
            "s",
            "1.5s",
            "-1s",
            "10 s",
            "10S",
            "1d",
            "99999999999999999999ms",
            "18446744073709551615h",
        ] {
            let refusal = parse_duration(text).unwrap_err();
            assert!(refusal.contains(&format!("{text:?}")) && refusal.contains("250ms"), "{refusal}");
        }
    }

    #[test]
    fn a_time_limit_of_zero_is_refused() {
        assert!(parse_time_limit("0ms").is_err());
        assert_eq!(parse_time_limit("1ms"), Ok(Duration::from_millis(1)));
    }

    #[test]
    fn sizes_are_read_in_every_unit_and_a_bare_number_is_bytes() {
        for (text, bytes) in [("17", 17), ("17B", 17), ("2KiB", 2048), ("64MiB", 64 << 20), ("3GiB", 3 << 30)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "64MB", "64M", "1.5GiB", "-1", "99999999999GiB"] {
            assert!(parse_size(text).unwrap_err().contains("64MiB"), "{text}");
        }
    }

    #[test]
    fn what_is_shown_can_be_read_back() {
        for milliseconds in [0, 1, 999, 1000, 1500, 60_000, 90_000, 3_600_000, 5_400_000] {
            let duration = Duration::from_millis(milliseconds);
            assert_eq!(parse_duration(&show_duration(duration)), Ok(duration));
        }
        for bytes in [0, 1, 1023, 1024, 1025, 64 << 20, 3 << 30, u64::MAX] {
            assert_eq!(parse_size(&show_size(bytes)), Ok(bytes));
        }
        assert_eq!(show_duration(Duration::from_secs(90)), "90s");
        assert_eq!(show_size(64 << 20), "64MiB");
    }
}
