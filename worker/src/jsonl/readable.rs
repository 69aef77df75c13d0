//! JSON that many parsers refuse. The format has no bound on nesting or digits, but most parsers have one: serde_json reads 127
//! levels, Python's parser about a thousand, and numbers of up to 4,300 digits. Others have none, and run out of stack. A number beyond
//! all doubles is read as infinite by many, which JSON has no word for.

use crate::limits::{JSONL_DEPTH_MAX, JSONL_DIGITS_MAX};
use serde_json::value::RawValue;

const LONE: &str = "has half of a surrogate pair, which is no character";

const ENDLESS: &str = "has a number that is too large for a double";

/// Whether this is within the bounds of serde_json and of Python's parser, as a part of a line.
///
/// # Errors
/// A sentence without its subject.
pub(super) fn check_readable(document: &RawValue) -> Result<(), String> {
    let (mut depth, mut digits, mut is_text, mut is_escaped, mut second_half) = (0, 0, false, false, None);
    let text = document.get();
    for (index, byte) in text.bytes().enumerate() {
        if is_text {
            is_text = is_escaped || byte != b'"';
            if is_escaped && byte == b'u' {
                second_half = check_unit(text, index, second_half)?;
            }
            is_escaped = byte == b'\\' && !is_escaped;
            continue;
        }
        let digits_before = std::mem::take(&mut digits);
        if byte.is_ascii_digit() {
            digits = digits_before + 1;
        }
        match byte {
            b'"' => is_text = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            // Only an exponent or very many digits make a number so large. An integer has no bound of its own.
            b'e' | b'E' if digits_before > 0 && is_endless(text, index) => return Err(ENDLESS.to_owned()),
            b'.' if digits_before > f64::MAX_10_EXP as usize && is_endless(text, index) => {
                return Err(ENDLESS.to_owned());
            }
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

/// Checks the escape whose `u` is here. If it is the first half of a pair, returns where the `u` of the second one is. `second_half` is
/// where that of the pair before is.
fn check_unit(text: &str, place: usize, second_half: Option<usize>) -> Result<Option<usize>, String> {
    let unit = |place: usize| u16::from_str_radix(text.get(place + 1..place + 5)?, 16).ok();
    let is_second = |place: usize| unit(place).is_some_and(|unit| (0xdc00..=0xdfff).contains(&unit));
    match unit(place) {
        Some(0xd800..=0xdbff) if text.get(place + 5..place + 7) == Some("\\u") && is_second(place + 6) => {
            Ok(Some(place + 6))
        }
        Some(0xd800..=0xdbff) => Err(LONE.to_owned()),
        Some(0xdc00..=0xdfff) if second_half != Some(place) => Err(LONE.to_owned()),
        _ => Ok(None),
    }
}

/// Whether the number around this place is infinite as a double: many parsers read it as that, and cannot write it again.
fn is_endless(text: &str, place: usize) -> bool {
    let is_of_number = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    let (before, behind) = text.as_bytes().split_at(place);
    let from = place - before.iter().rev().take_while(|byte| is_of_number(byte)).count();
    let to = place + behind.iter().take_while(|byte| is_of_number(byte)).count();
    text.get(from..to).and_then(|number| number.parse().ok()).is_some_and(f64::is_infinite)
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
        let sound = [
            deep(126),
            many,
            ["[", &text, "]"].concat(),
            "7".repeat(4300),
            "[1e308,-1.5E-999,0.1]".to_owned(),
            r#"["\ud83d\ude00\uD83D\uDE00", "\\ud800", "\ud7ff\ue000\n"]"#.to_owned(),
        ];
        for document in sound {
            verdict(&document).unwrap();
        }
        assert_eq!(verdict(&deep(127)).unwrap_err(), "is nested deeper than 126");
        assert!(verdict(&deep(100_000)).is_err());
        let digits = ["[-1.5,", &"7".repeat(4301), "]"].concat();
        assert_eq!(verdict(&digits).unwrap_err(), "has a number of more than 4300 digits");
        for lone in [
            r#""\ud800""#,
            r#"{"\uDfff":1}"#,
            r#""\ud800\ud800""#,
            r#""\ud83d\ude00\ude00""#,
            r#""\ud800x\udc00""#,
            r#""\ud800\\udc00""#,
        ] {
            assert_eq!(
                verdict(lone).unwrap_err(),
                "has half of a surrogate pair, which is no character",
                "{lone}"
            );
        }
        let whole = "7".repeat(4300);
        for endless in
            ["1e400", "-1E+309", "[1,{\"a\":12.5e999}]", &format!("{whole}.5"), &format!("[1.{whole}e309]")]
        {
            assert_eq!(
                verdict(endless).unwrap_err(),
                "has a number that is too large for a double",
                "{endless}"
            );
        }
    }
}
