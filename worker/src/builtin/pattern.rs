//! `regex`: whether a pattern matches a text, by one of two engines. The linear one takes time proportional to the
//! text whatever the pattern. The backtracking one knows look-around and back-references, and pays for them: with
//! `(\/.+)+$`, a hundred slashes and a line feed, it practically never ends. It is here to show time limits.

use crate::limits::PATTERN_MAX;
use crate::task::{Input, Output, Task, TaskError};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Search {
    pattern: String,
    text: String,
    #[serde(default)]
    engine: Engine,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Engine {
    #[default]
    Linear,
    Backtracking,
}

#[derive(Serialize)]
struct Found {
    matched: bool,
}

pub(super) fn task() -> Task {
    Task::raw("regex", |input, _| find(&input))
}

pub(super) fn find(input: &Input) -> Result<Output, TaskError> {
    let search: Search = input.json()?;
    Output::json(&Found { matched: search.matched()? })
}

impl Search {
    fn matched(&self) -> Result<bool, TaskError> {
        if self.pattern.len() > PATTERN_MAX {
            let length = self.pattern.len();
            return Err(TaskError::new(format_args!(
                "the pattern has {length} bytes, at most {PATTERN_MAX} are taken"
            )));
        }
        match self.engine {
            Engine::Linear => Ok(regex::Regex::new(&self.pattern)?.is_match(&self.text)),
            Engine::Backtracking => Ok(backtracking(&self.pattern)?.is_match(&self.text)?),
        }
    }
}

/// The library hands everything that needs no backtracking to a linear engine. An empty look-behind at the end, which
/// always holds, keeps it from doing so. A pattern that cannot be wrapped, such as one that ends in a comment, is
/// taken as it is.
fn backtracking(pattern: &str) -> Result<fancy_regex::Regex, fancy_regex::Error> {
    let plain = without_limit(pattern)?;
    Ok(without_limit(&format!("(?:{pattern})(?<=)")).unwrap_or(plain))
}

fn without_limit(pattern: &str) -> Result<fancy_regex::Regex, fancy_regex::Error> {
    fancy_regex::RegexBuilder::new(pattern).backtrack_limit(usize::MAX).build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_supervisor::answer;
    use serde_json::json;

    fn search(engine: &str, pattern: &str, text: &str) -> Result<serde_json::Value, String> {
        answer("regex", json!({"engine": engine, "pattern": pattern, "text": text}).to_string())
    }

    #[test]
    fn both_engines_agree_on_a_plain_pattern_and_linear_is_the_default() {
        for engine in ["linear", "backtracking"] {
            assert_eq!(search(engine, "^a+b$", "aaab"), Ok(json!({"matched": true})));
            assert_eq!(search(engine, "^a+b$", "aaac"), Ok(json!({"matched": false})));
        }
        assert_eq!(answer("regex", r#"{"pattern":"b","text":"abc"}"#), Ok(json!({"matched": true})));
    }

    #[test]
    fn only_the_backtracking_engine_knows_back_references() {
        assert_eq!(search("backtracking", r"^(a+)-\1$", "aa-aa"), Ok(json!({"matched": true})));
        assert_eq!(search("backtracking", r"^(a+)-\1$", "aa-a"), Ok(json!({"matched": false})));
        assert!(search("linear", r"(a)\1", "aa").unwrap_err().contains("backreferences are not supported"));
    }

    #[test]
    fn the_linear_engine_answers_where_a_backtracking_one_never_would() {
        let text = "/".repeat(100) + "\n";
        assert_eq!(search("linear", r"(\/.+)+$", &text), Ok(json!({"matched": false})));
    }

    /// The number of steps, not the time: with four more slashes, more than four times as many are needed.
    #[test]
    fn the_backtracking_engine_does_take_exponential_time() {
        let steps_for = |slashes| {
            let text = "/".repeat(slashes) + "\n";
            let fails_within = |limit: &usize| {
                let wrapped = backtracking(r"(\/.+)+$").unwrap();
                let limited =
                    fancy_regex::RegexBuilder::new(wrapped.as_str()).backtrack_limit(*limit).build();
                limited.unwrap().is_match(&text).is_ok()
            };
            (0..30).map(|exponent| 1 << exponent).find(fails_within).unwrap()
        };
        assert!(steps_for(16) >= 4 * steps_for(12));
        assert!(steps_for(20) >= 4 * steps_for(16));
    }

    #[test]
    fn a_pattern_that_cannot_be_wrapped_is_taken_as_it_is() {
        assert_eq!(search("backtracking", "(?x) a b # a comment", "ab"), Ok(json!({"matched": true})));
    }

    #[test]
    fn a_broken_pattern_or_engine_is_told() {
        assert!(search("linear", "(", "").unwrap_err().contains("unclosed group"));
        assert!(search("backtracking", "a)|(b", "").is_err());
        assert!(search("magic", "a", "").unwrap_err().contains("unknown variant `magic`"));
        assert!(search("linear", &"a".repeat(4097), "").unwrap_err().contains("at most 4096"));
    }
}
