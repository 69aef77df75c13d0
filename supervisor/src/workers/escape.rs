//! Makes worker output safe to show. The output is untrusted data. Before it reaches a log or a terminal, each line
//! becomes harmless text that cannot begin a new record, move the cursor, or change the direction of reading.

use crate::limits::WORKER_LINE_MAX;

/// The end of a line that was cut.
const ELLIPSIS: &str = "…";

/// Escapes one line of output, given without its newline. The result has at most [`WORKER_LINE_MAX`] bytes and no control
/// characters.
///
/// A line that is too long when escaped is cut before the first character that does not fit, and ends in `…`. Bytes
/// that are not UTF-8 become U+FFFD. The result never has fewer bytes than `raw` unless it was cut.
pub fn escape_line(raw: &[u8]) -> String {
    let mut line = String::with_capacity(raw.len().min(WORKER_LINE_MAX));
    let mut cut_at = 0;
    for character in String::from_utf8_lossy(raw).chars() {
        push_escaped(&mut line, character);
        if line.len() > WORKER_LINE_MAX {
            line.truncate(cut_at);
            line.push_str(ELLIPSIS);
            return line;
        }
        if line.len() <= WORKER_LINE_MAX - ELLIPSIS.len() {
            cut_at = line.len();
        }
    }
    line
}

fn push_escaped(line: &mut String, character: char) {
    match character {
        '\t' => line.push_str("\\t"),
        '\n' => line.push_str("\\n"),
        '\r' => line.push_str("\\r"),
        harmful if is_harmful(harmful) => line.extend(harmful.escape_unicode()),
        harmless => line.push(harmless),
    }
}

/// Whether a character is harmful: C0, DEL and C1 control characters, the two Unicode line separators, and the
/// controls of writing direction, which can make a line read differently from what it says.
fn is_harmful(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_are_escaped_and_text_is_left_alone() {
        for (raw, expected) in [
            (&b""[..], ""),
            (b"plain", "plain"),
            ("häuser, 東京 \u{1f600}".as_bytes(), "häuser, 東京 \u{1f600}"),
            (br#"{"level":"error"} \n"#, r#"{"level":"error"} \n"#),
            (b"a\tb\rc\nd", r"a\tb\rc\nd"),
            (b"\x1b[31mred\x1b[0m", r"\u{1b}[31mred\u{1b}[0m"),
            (b"\0\x07\x08\x1f", r"\u{0}\u{7}\u{8}\u{1f}"),
            (b"\x7f", r"\u{7f}"),
            ("\u{80}\u{85}\u{9b}\u{9f}".as_bytes(), r"\u{80}\u{85}\u{9b}\u{9f}"),
            ("\u{a0}".as_bytes(), "\u{a0}"),
            ("\u{2028}\u{2029}".as_bytes(), r"\u{2028}\u{2029}"),
            ("\u{202e}\u{2066}".as_bytes(), r"\u{202e}\u{2066}"),
            (b"bad \xff\xfe utf8 \xe2\x82", "bad \u{fffd}\u{fffd} utf8 \u{fffd}"),
        ] {
            assert_eq!(escape_line(raw), expected, "{raw:?}");
        }
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_whole_and_one_byte_more_is_cut() {
        let whole = "x".repeat(WORKER_LINE_MAX);
        assert_eq!(escape_line(whole.as_bytes()), whole);
        let cut = escape_line("x".repeat(WORKER_LINE_MAX + 1).as_bytes());
        assert_eq!(cut, "x".repeat(WORKER_LINE_MAX - 3) + "…");
    }

    #[test]
    fn a_line_is_never_cut_within_a_character_or_an_escape() {
        for offset in 0..8 {
            let start = "x".repeat(offset);
            let escapes = escape_line((start.clone() + &"\x1b".repeat(WORKER_LINE_MAX)).as_bytes());
            let letters = escape_line((start + &"東".repeat(WORKER_LINE_MAX)).as_bytes());
            assert!(escapes.len() <= WORKER_LINE_MAX && escapes.ends_with("}…"), "{escapes}");
            assert!(letters.len() <= WORKER_LINE_MAX && letters.ends_with("東…"), "{letters}");
        }
    }
}
