//! Commands with places for the input: `{}` in a word of a command is the input itself, `{.}` the input without its extension,
//! `{/}` what stands behind its last `/`, `{#}` the number of the job. As in GNU parallel, an input is usually a path. No shell sees
//! any of them: whatever an input is, it stays a part of one word.

use crate::limits::EXEC_WORD_MAX;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// What stands for the input.
const INPUT: &str = "{}";
const WITHOUT_EXTENSION: &str = "{.}";
const NAME: &str = "{/}";
/// What stands for the number of the job.
const NUMBER: &str = "{#}";

/// Whether an argument of this command has a place for the input. Then the input is not standard input.
pub fn has_place_for_input(words: &[String]) -> bool {
    let has_place = |word: &String| [INPUT, WITHOUT_EXTENSION, NAME].iter().any(|place| word.contains(place));
    words.iter().skip(1).any(has_place)
}

/// The arguments of a command, with the input and the number in their places. If `guards`, an input may not be taken for an option.
///
/// # Errors
/// A sentence that says why the input cannot be a part of a command.
pub(super) fn arguments(
    words: &[String],
    input: &[u8],
    number: u64,
    guards: bool,
) -> Result<Vec<OsString>, String> {
    let arguments = words.get(1..).unwrap_or_default();
    if has_place_for_input(words) {
        check(input)?;
    }
    let mut may_be_option = guards;
    let mut filled = Vec::with_capacity(arguments.len());
    for word in arguments {
        let value = fill(word, input, number);
        // What counts is what the word becomes: the name of `x/-v` begins with `-`, and that of `-x/v` does not.
        if may_be_option && value.starts_with(b"-") && begins_with_input(word) {
            return Err(
                "the input makes a word that begins with `-`, so the program could take it for an option"
                    .to_owned(),
            );
        }
        // Behind this word, by convention, there are no options.
        may_be_option &= word != "--";
        filled.push(OsString::from_vec(value));
    }
    Ok(filled)
}

fn check(input: &[u8]) -> Result<(), String> {
    if input.contains(&0) {
        return Err("the input has a zero byte, so it cannot be a part of a command".to_owned());
    }
    match input.len() {
        0..=EXEC_WORD_MAX => Ok(()),
        length => {
            Err(format!("the input has {length} bytes, at most {EXEC_WORD_MAX} can be a part of a command"))
        }
    }
}

fn begins_with_input(word: &str) -> bool {
    [INPUT, WITHOUT_EXTENSION, NAME].iter().any(|place| word.starts_with(place))
}

fn fill(word: &str, input: &[u8], number: u64) -> Vec<u8> {
    let (mut filled, mut rest) = (Vec::new(), word);
    while let Some(at) = rest.find('{') {
        filled.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at..];
        let number = number.to_string();
        let places = [
            (INPUT, input),
            (WITHOUT_EXTENSION, without_extension(input)),
            (NAME, name(input)),
            (NUMBER, number.as_bytes()),
        ];
        let (place, value) =
            places.into_iter().find(|(place, _)| rest.starts_with(place)).unwrap_or(("{", b"{"));
        filled.extend_from_slice(value);
        rest = &rest[place.len()..];
    }
    filled.extend_from_slice(rest.as_bytes());
    filled
}

/// What stands behind the last `/`.
fn name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// A name that begins with its only dot has no extension.
fn without_extension(path: &[u8]) -> &[u8] {
    match name(path).iter().rposition(|byte| *byte == b'.') {
        Some(0) | None => path,
        Some(dot) => &path[..path.len() - name(path).len() + dot],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(command: &[&str], input: &str, guards: bool) -> Result<Vec<String>, String> {
        let words: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        let arguments = arguments(&words, input.as_bytes(), 7, guards)?;
        Ok(arguments.into_iter().map(|word| word.into_string().unwrap()).collect())
    }

    #[test]
    fn each_place_is_filled_within_its_word() {
        let command = ["convert", "{}", "{.}.png", "x{/}{/}y", "{#}", "{", "{?}{}", "plain"];
        let said =
            ["a b/c.tar.gz", "a b/c.tar.png", "xc.tar.gzc.tar.gzy", "7", "{", "{?}a b/c.tar.gz", "plain"];
        assert_eq!(filled(&command, "a b/c.tar.gz", false).unwrap(), said);
        assert_eq!(filled(&["x", "{}"], "$(rm -rf /) `x` {.}", false).unwrap(), ["$(rm -rf /) `x` {.}"]);
    }

    #[test]
    fn an_extension_is_that_of_the_name_and_not_of_a_folder() {
        for (path, stem) in [
            ("a.b/c", "a.b/c"),
            ("a/.hidden", "a/.hidden"),
            ("a/b.", "a/b"),
            ("", ""),
            (".a.b", ".a"),
            ("a.b/", "a.b/"),
        ] {
            assert_eq!(filled(&["x", "{.}"], path, false).unwrap(), [stem]);
        }
    }

    #[test]
    fn only_arguments_have_places_and_a_number_is_no_input() {
        let has = |words: &[&str]| {
            has_place_for_input(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
        };
        assert!(
            has(&["a", "x{.}"])
                && has(&["a", "b", "{/}"])
                && !has(&["{}", "b"])
                && !has(&["a", "{#}", "{ }"])
        );
    }

    #[test]
    fn what_cannot_be_a_part_of_a_command_is_refused() {
        assert!(filled(&["x", "{}"], "a\0b", false).unwrap_err().contains("zero byte"));
        assert!(filled(&["x", "{}"], &"a".repeat(EXEC_WORD_MAX + 1), false).unwrap_err().contains("at most"));
        assert!(filled(&["x", "{#}"], "a\0b", false).is_ok(), "it is not in the command");
    }

    #[test]
    fn an_input_of_somebody_else_is_no_option() {
        assert!(filled(&["x", "{}"], "-o/etc/passwd", true).unwrap_err().contains("option"));
        assert!(filled(&["x", "{}"], "-o", false).is_ok());
        assert!(filled(&["x", "--", "{}"], "-o", true).is_ok());
        assert!(filled(&["x", "--file={}"], "-o", true).is_ok());
    }

    /// The first of these words are where a place was empty, or cut off what stood before the `-`.
    #[test]
    fn whether_a_word_is_an_option_is_seen_when_it_is_filled() {
        for (word, input) in [
            ("{/}", "x/--version"),
            ("{/}.png", "x/-o"),
            ("{/}{}", "x/-o"),
            ("{/}{}", "-o/"),
            ("{/}-o", "x/"),
            ("{}-o", ""),
            ("{.}", "-o.png"),
            ("{.}{/}", "-o"),
        ] {
            let refused = filled(&["x", word], input, true);
            assert!(refused.is_err_and(|why| why.contains("option")), "{word} {input}");
            assert!(filled(&["x", "--", word], input, true).is_ok(), "{word} {input}");
            assert!(filled(&["x", word], input, false).is_ok(), "{word} {input}");
        }
        for (word, input) in [("{/}", "-x/o"), ("-{/}", "x/o"), ("./{/}", "x/-o"), ("{#}{}", "-o")] {
            assert!(filled(&["x", word], input, true).is_ok(), "{word} {input}");
        }
    }
}
