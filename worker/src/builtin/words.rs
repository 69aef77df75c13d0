//! `wordcount`: lines, words and bytes of a text, and its most frequent words.

use crate::task::{Output, Task};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;

/// How many of the most frequent words are told.
const TOP: usize = 10;

#[derive(Debug, PartialEq, Eq, Serialize)]
struct WordCount {
    lines: u64,
    words: u64,
    bytes: usize,
    top: Vec<(String, u64)>,
}

pub(super) fn task() -> Task {
    Task::raw("wordcount", |input, _| Output::json(&count(input.text()?)))
}

/// A word is a run of letters and digits in the sense of Unicode, in lower case. A last line without an end counts.
fn count(text: &str) -> WordCount {
    let mut words = 0;
    let mut frequencies = HashMap::new();
    let mut lower_case = String::new();
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        words += 1;
        lower_case.clear();
        push_lower_case(word, &mut lower_case);
        match frequencies.get_mut(lower_case.as_str()) {
            Some(frequency) => *frequency += 1,
            None => _ = frequencies.insert(lower_case.clone(), 1),
        }
    }
    WordCount { lines: text.lines().count() as u64, words, bytes: text.len(), top: top(frequencies) }
}

/// Most words are ASCII and need no allocation.
fn push_lower_case(word: &str, out: &mut String) {
    if word.is_ascii() {
        out.push_str(word);
        out.make_ascii_lowercase();
    } else {
        out.push_str(&word.to_lowercase());
    }
}

fn top(frequencies: HashMap<String, u64>) -> Vec<(String, u64)> {
    let mut top: Vec<_> = frequencies.into_iter().collect();
    top.sort_unstable_by(|(word, frequency), (other, others)| {
        (Reverse(frequency), word).cmp(&(Reverse(others), other))
    });
    top.truncate(TOP);
    top
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_supervisor::answer;
    use serde_json::json;

    #[test]
    fn words_are_letters_and_digits_in_lower_case() {
        assert_eq!(
            answer("wordcount", "The cat, the DOG;\nüber Über 42x don't"),
            Ok(json!({"lines": 2, "words": 9, "bytes": 39, "top": [
                ["the", 2], ["über", 2], ["42x", 1], ["cat", 1], ["dog", 1], ["don", 1], ["t", 1]
            ]}))
        );
    }

    #[test]
    fn ties_are_alphabetical_and_ten_words_are_told() {
        let text = "m l k j i h g f e d c b a z z";
        let words: Vec<_> = count(text).top.into_iter().map(|(word, _)| word).collect();
        assert_eq!(words, ["z", "a", "b", "c", "d", "e", "f", "g", "h", "i"]);
    }

    #[test]
    fn a_text_without_words_has_none() {
        assert_eq!(count(""), WordCount { lines: 0, words: 0, bytes: 0, top: Vec::new() });
        assert_eq!(count("\n--\n"), WordCount { lines: 2, words: 0, bytes: 4, top: Vec::new() });
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_with_the_place() {
        let error = answer("wordcount", &b"ab\xff"[..]).unwrap_err();
        assert!(error.contains("not UTF-8") && error.contains("index 2"), "{error}");
    }
}
