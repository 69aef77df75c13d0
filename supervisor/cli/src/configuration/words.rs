//! Splits a command line into words as a shell does: blanks separate, quotes and `\` protect. Nothing is expanded, and
//! no shell is started.

/// Cuts `text` into words.
///
/// # Errors
/// A sentence for the person who wrote it: a quote is not closed, or there is no word at all.
pub(crate) fn split_words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut letters = text.chars().peekable();
    loop {
        while letters.next_if(|letter| letter.is_whitespace()).is_some() {}
        if letters.peek().is_none() {
            break;
        }
        words.push(next_word(&mut letters).ok_or_else(|| format!("{text:?}: a quote is not closed"))?);
    }
    if words.is_empty() { Err("an empty command".to_owned()) } else { Ok(words) }
}

/// Writes words so that [`split_words`] reads them.
pub(crate) fn join_words(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
    quoted.join(" ")
}

/// The word that begins here, or `None` if the text ends inside a quote.
fn next_word(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<String> {
    let mut word = String::new();
    while let Some(letter) = letters.next_if(|letter| !letter.is_whitespace()) {
        match letter {
            '\\' => word.push(letters.next()?),
            '\'' => loop {
                match letters.next()? {
                    '\'' => break,
                    inside => word.push(inside),
                }
            },
            '"' => loop {
                match letters.next()? {
                    '"' => break,
                    '\\' => word.push(letters.next()?),
                    inside => word.push(inside),
                }
            },
            plain => word.push(plain),
        }
    }
    Some(word)
}

fn quote(word: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "-_./=:,+@%".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_cut_as_a_shell_cuts_them() {
        for (text, words) in [
            ("python3 worker.py", &["python3", "worker.py"][..]),
            ("  a\t b  ", &["a", "b"]),
            (r#"a 'b c' "d \" e" f\ g"#, &["a", "b c", "d \" e", "f g"]),
            (r#"--name="x y"z '' "#, &["--name=x yz", ""]),
        ] {
            assert_eq!(split_words(text).unwrap(), words, "{text}");
        }
    }

    #[test]
    fn an_open_quote_and_an_empty_command_are_refused() {
        for text in ["a 'b", "a \"b", "a\\", "", "  "] {
            assert!(split_words(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_joined_is_cut_into_the_same_words(words in proptest::collection::vec(".{0,12}", 1..5)) {
            prop_assert_eq!(split_words(&join_words(&words)).unwrap(), words);
        }
    }
}
