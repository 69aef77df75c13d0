//! JSON that many parsers refuse. The format has no bound on nesting or digits, but most parsers have one: serde_json reads 127
//! levels, Python's parser about a thousand, and numbers of up to 4,300 digits. Others have none, and run out of stack.

use crate::limits::{JSONL_DEPTH_MAX, JSONL_DIGITS_MAX};
use serde_json::value::RawValue;

/// Whether this is within the bounds of serde_json and of Python's parser, as a part of a line.
///
/// # Errors
/// A sentence without its subject.
pub(super) fn check_readable(document: &RawValue) -> Result<(), String> {
    let (mut depth, mut digits, mut is_text, mut is_escaped) = (0, 0, false, false);
    for byte in document.get().bytes() {
        if is_text {
            is_text = is_escaped || byte != b'"';
            is_escaped = byte == b'\\' && !is_escaped;
            continue;
        }
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        match byte {
            b'"' => is_text = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            _ => {}
        }
        if depth > JSONL_DEPTH_MAX {
            return Err(format!("is nested deeper than {JSONL_DEPTH_MAX}"));
        }
        if digits > JSONL_DIGITS_MAX {
            return Err(format!("has a number of more than {JSONL_DIGITS_MAX} digits"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(document: &str) -> Result<(), String> {
        check_readable(serde_json::from_str(document).unwrap())
    }

    #[test]
    fn what_many_parsers_refuse_is_named_and_nothing_else_is_refused() {
        let deep = |levels| ["[".repeat(levels), "]".repeat(levels)].concat();
        let many = ["[", &"{\"a\":[]},".repeat(1000), "1]"].concat();
        let text = ["\"", &"[".repeat(999), "\\\"\\\\\",7"].concat();
        let sound = [deep(126), many, ["[", &text, "]"].concat(), "7".repeat(4300), "1e400".to_owned()];
        for document in sound {
            verdict(&document).unwrap();
        }
        assert_eq!(verdict(&deep(127)).unwrap_err(), "is nested deeper than 126");
        assert!(verdict(&deep(100_000)).is_err());
        let digits = ["[-1.5,", &"7".repeat(4301), "]"].concat();
        assert_eq!(verdict(&digits).unwrap_err(), "has a number of more than 4300 digits");
    }
}
