//! Formats amounts of time and memory, and text from other processes, for people.

use std::borrow::Cow;

/// `text` with control characters shown as escapes, so that a terminal does not obey them.
///
/// Messages come from workers and names from other clients, so neither can be trusted.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let obeyed = |letter: char| letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}');
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let escape = |letter: char| match obeyed(letter) {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    };
    text.chars().map(escape).collect()
}

/// `41 us`, `5.2 ms`, `1.3 s`, `2 min 5 s`, `3 h 10 min`.
pub(crate) fn time(microseconds: u64) -> String {
    let seconds = microseconds / 1_000_000;
    match microseconds {
        0..1_000 => format!("{microseconds} us"),
        1_000..1_000_000 => format!("{:.1} ms", microseconds as f64 / 1e3),
        1_000_000..60_000_000 => format!("{:.1} s", microseconds as f64 / 1e6),
        60_000_000..3_600_000_000 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// The name of a client, or a placeholder if it has none.
pub(crate) fn client(name: &str) -> &str {
    if name.is_empty() { "-" } else { name }
}

/// `33 B`, `1.5 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 3] = ["KiB", "MiB", "GiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// `1 job`, `3 jobs`.
pub(crate) fn count(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A share of 0 to 1 as a bar of at most so many columns, exact to an eighth of one.
pub(crate) fn bar(share: f64, columns: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * columns as f64 * 8.0).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_printed() {
        assert_eq!(printable("\x1b[31mred\u{9b}2J\nnext\u{7f}"), r"\u{1b}[31mred\u{9b}2J\nnext\u{7f}");
        assert_eq!(printable("häuser — \"ok\""), "häuser — \"ok\"");
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        for (microseconds, text) in [
            (0, "0 us"),
            (999, "999 us"),
            (5210, "5.2 ms"),
            (1_300_000, "1.3 s"),
            (125_000_000, "2 min 5 s"),
            (11_400_000_000, "3 h 10 min"),
        ] {
            assert_eq!(time(microseconds), text);
        }
    }

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        assert_eq!(
            [0.0, 0.5, 0.55, 1.0, 7.0, f64::NAN].map(|share| bar(share, 2)),
            ["", "█", "█▏", "██", "██", ""]
        );
    }

    #[test]
    fn amounts_have_the_unit_that_suits_them() {
        for (amount, text) in
            [(33, "33 B"), (1536, "1.5 KiB"), (64 << 20, "64.0 MiB"), (5 << 40, "5120.0 GiB")]
        {
            assert_eq!(bytes(amount), text);
        }
        assert_eq!((count(1, "job"), count(0, "job")), ("1 job".to_owned(), "0 jobs".to_owned()));
    }
}
