//! The lines, and what they say.

use super::readable::check_readable;
use crate::limits::JSONL_BEGINNING_MAX;
use crate::task::{NO_INPUT, Output, Task, TaskError};
use crate::{Bytes, Input, MediaType, TaskContext};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use offload_protocol::limits::TASKS_OFFERED_MAX;
use offload_protocol::nouns::{TASK_NAMES, is_task_name};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeSet;

#[derive(Deserialize)]
struct Hello {
    hello: Tasks,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with the list of its tasks, such as {\"tasks\":[{\"name\":\"t\"}]}")]
struct Tasks {
    tasks: Vec<OfferedTask>,
}

/// What the program says of one task.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "an object for each task, such as {\"name\":\"t\"}")]
pub(super) struct OfferedTask {
    pub(super) name: String,
    #[serde(default)]
    idempotent: bool,
    #[serde(default)]
    description: String,
    #[serde(default = "json_alone", deserialize_with = "one_or_more")]
    pub(super) accepts: Vec<MediaType>,
    #[serde(default = "json", deserialize_with = "exactly_one")]
    pub(super) produces: MediaType,
    example: Option<Box<RawValue>>,
    schema: Option<Box<RawValue>>,
}

/// A media type by itself is a list of one.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a media type such as \"image/png\", or a list of them")]
enum OneOrMore {
    One(MediaType),
    More(Vec<MediaType>),
}

fn one_or_more<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<MediaType>, D::Error> {
    Ok(match OneOrMore::deserialize(source)? {
        OneOrMore::One(media_type) => vec![media_type],
        OneOrMore::More(media_types) => media_types,
    })
}

fn exactly_one<'de, D: Deserializer<'de>>(source: D) -> Result<MediaType, D::Error> {
    let media_types = one_or_more(source)?;
    let [media_type] = <[MediaType; 1]>::try_from(media_types).map_err(|all| {
        D::Error::custom(format_args!("`produces` is one media type, and has {}", all.len()))
    })?;
    Ok(media_type)
}

fn json() -> MediaType {
    MediaType::JSON
}

fn json_alone() -> Vec<MediaType> {
    vec![MediaType::JSON]
}

impl OfferedTask {
    /// The task that the worker offers.
    pub(super) fn task<F>(&self, run: F) -> Task
    where
        F: FnMut(Input, &mut TaskContext<'_>) -> Result<Output, TaskError> + 'static,
    {
        let OfferedTask { name, idempotent, description, accepts, produces, example, schema } = self.clone();
        let mut task =
            Task::raw(name, run).description(description).accepts(accepts.clone()).produces(produces);
        if idempotent {
            task = task.idempotent();
        }
        if let Some(example) = example {
            task = task.example(if accepts.iter().any(MediaType::is_json) {
                plain(&example)
            } else {
                text_in(&example)
            });
        }
        match schema {
            Some(schema) => task.schema(schema.get()),
            None => task,
        }
    }

    fn check(&self) -> Result<(), String> {
        let name = &self.name;
        if !is_task_name(name) {
            return Err(format!("{name:?} cannot name a task: {TASK_NAMES}"));
        }
        let task = self.task(|_, _| Ok(Output::text("")));
        task.described().check().map_err(|wrong| format!("its task {name}: {wrong}"))
    }
}

fn plain(value: &RawValue) -> Vec<u8> {
    value.get().as_bytes().to_vec()
}

/// The text of a JSON text; any other value as it is.
fn text_in(value: &RawValue) -> Vec<u8> {
    serde_json::from_str::<String>(value.get()).map_or_else(|_| plain(value), String::into_bytes)
}

/// The tasks of the first line.
///
/// # Errors
/// What is wrong with it.
pub(super) fn hello(line: &[u8]) -> Result<Vec<OfferedTask>, String> {
    let Hello { hello: Tasks { tasks } } = serde_json::from_slice(line).map_err(|error| {
        let expected = r#"{"hello":{"tasks":[{"name":"..."}]}}"#;
        format!("its first line has to be as {expected}, and begins with {} ({error})", beginning(line))
    })?;
    let names: BTreeSet<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
    match tasks.len() {
        0 => return Err("it has no task".to_owned()),
        count if count > TASKS_OFFERED_MAX => {
            return Err(format!("it has {count} tasks, {TASKS_OFFERED_MAX} are allowed"));
        }
        count if count > names.len() => return Err("it has two tasks of one name".to_owned()),
        _ => {}
    }
    tasks.iter().try_for_each(OfferedTask::check)?;
    Ok(tasks)
}

#[derive(Serialize)]
struct Job<'a> {
    job: &'a str,
    attempt: u32,
    task: &'a str,
    content_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Value<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_base64: Option<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Value<'a> {
    Json(&'a RawValue),
    Text(&'a str),
}

/// The line of a job, with its end.
///
/// # Errors
/// The input is not what it is said to be.
pub(super) fn job(
    job: &str,
    attempt: u32,
    task: &str,
    input: Input,
    accepts: &[MediaType],
) -> Result<Vec<u8>, String> {
    let Input { bytes, media_type } = input;
    // Clients that know no better call everything text or bytes.
    let is_unsaid = media_type.is_text() || media_type == MediaType::OCTET_STREAM;
    let takes_json = accepts.iter().any(MediaType::is_json);
    let is_after_all =
        takes_json && (is_unsaid || is_called_a_form(&media_type, accepts) && is_sound_json(&bytes));
    let is_json = media_type.is_json() || is_after_all;
    let content_type = if is_after_all { "application/json" } else { media_type.as_str() };
    let mut line = Job { job, attempt, task, content_type, input: None, input_base64: None };
    let document = if is_json { without_breaks(&bytes) } else { Cow::Borrowed(&bytes[..]) };
    match std::str::from_utf8(&document) {
        _ if is_json => line.input = Some(Value::Json(json_in(&document)?)),
        Ok(text) if media_type.is_text() => line.input = Some(Value::Text(text)),
        _ => line.input_base64 = Some(STANDARD.encode(&document)),
    }
    let mut line = serde_json::to_vec(&line).map_err(|error| error.to_string())?;
    line.push(b'\n');
    Ok(line)
}

/// Whether it may be something else: curl calls everything a form, unless it is told what it sends.
fn is_called_a_form(media_type: &MediaType, accepts: &[MediaType]) -> bool {
    let is_form = media_type.essence().eq_ignore_ascii_case("application/x-www-form-urlencoded");
    is_form && !accepts.iter().any(|accepted| media_type.matches(accepted))
}

fn is_sound_json(bytes: &[u8]) -> bool {
    json_in(&without_breaks(bytes)).is_ok()
}

fn json_in(document: &[u8]) -> Result<&RawValue, String> {
    if document.is_empty() {
        return Err(NO_INPUT.to_owned());
    }
    let value =
        serde_json::from_slice(document).map_err(|error| format!("the input is not JSON: {error}"))?;
    check_readable(value).map_err(|why| format!("the input {why}"))?;
    Ok(value)
}

/// The same document in one line: between its values, where alone they may be, breaks of lines mean nothing.
fn without_breaks(document: &[u8]) -> Cow<'_, [u8]> {
    match document.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        false => Cow::Borrowed(document),
        true => {
            let blank = |byte: &u8| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte };
            Cow::Owned(document.iter().map(blank).collect())
        }
    }
}

/// A line about a job.
#[derive(Deserialize)]
struct Said<'a> {
    job: String,
    #[serde(borrow, default, deserialize_with = "present")]
    output: Option<&'a RawValue>,
    output_base64: Option<String>,
    content_type: Option<MediaType>,
    error: Option<String>,
    progress: Option<(u64, u64)>,
}

/// `null` is an output, too.
fn present<'de, D: Deserializer<'de>>(source: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(source).map(Some)
}

/// What a line says of the job that runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Progress(u64, u64),
    /// Progress of a job that has been answered.
    OfAnother,
    Finished(Output),
    /// With what the program says.
    Failed(String),
    /// Its output cannot be passed on.
    Unreadable(String),
}

/// What to do about what Python and others write in place of a number.
const NO_NUMBER: &str =
    "; NaN and Infinity are not JSON: in Python, json.dumps(..., allow_nan=False) refuses them";

/// Whether one of the words is around this column that stand for no number.
fn has_no_number_at(line: &[u8], column: usize) -> bool {
    let from = column.saturating_sub(2).min(line.len());
    let around = &line[from..line.len().min(column + 8)];
    [&b"NaN"[..], b"Infinity"].iter().any(|word| around.windows(word.len()).any(|part| part == *word))
}

/// What a line says while this job runs, whose output has this type unless the line says otherwise.
///
/// # Errors
/// What is wrong with it.
pub(super) fn answer(line: &[u8], job: &str, produces: &MediaType) -> Result<Answer, String> {
    let said: Said<'_> = serde_json::from_slice(line).map_err(|error| {
        let hint = if has_no_number_at(line, error.column()) { NO_NUMBER } else { "" };
        format!("it sent a line that is no answer ({error}{hint}): {}", beginning(line))
    })?;
    let is_other = said.job != job;
    let media_type = said.content_type.unwrap_or_else(|| produces.clone());
    match (said.output, said.output_base64, said.error, said.progress) {
        (None, None, None, Some(_)) if is_other => Ok(Answer::OfAnother),
        _ if is_other => Err(format!("while job {job} ran it sent {}", beginning(line))),
        (None, None, None, Some((done, total))) => Ok(Answer::Progress(done, total)),
        (None, None, Some(why), None) => Ok(Answer::Failed(why)),
        (Some(value), None, None, None) => {
            if let Err(why) = check_readable(value) {
                return Ok(Answer::Unreadable(format!("its output {why}")));
            }
            let is_text = !media_type.is_json() && !media_type.as_str().contains('*');
            let bytes = if is_text { text_in(value) } else { plain(value) };
            Ok(Answer::Finished(Output { bytes: Bytes::from(bytes), media_type }))
        }
        (None, Some(text), None, None) => match STANDARD.decode(&text) {
            Ok(bytes) => Ok(Answer::Finished(Output { bytes: Bytes::from(bytes), media_type })),
            Err(error) => Err(format!("its output_base64 is not base64: {error}")),
        },
        _ => Err(format!(
            "a line has to have one of output, output_base64, error and progress, and this has not: {}",
            beginning(line)
        )),
    }
}

/// The job that a line is about, if it says so.
pub(super) fn job_of(line: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct About {
        job: String,
    }
    serde_json::from_slice(line).ok().map(|About { job }| job)
}

/// How a line begins, for people.
pub(super) fn beginning(line: &[u8]) -> String {
    let shown = &line[..line.len().min(JSONL_BEGINNING_MAX)];
    let more = if shown.len() < line.len() { "..." } else { "" };
    format!("{:?}{more}", String::from_utf8_lossy(shown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::JSONL_DEPTH_MAX;

    fn line_of(bytes: &str, media_type: &str, accepts: &str) -> Result<String, String> {
        let input = Input {
            bytes: Bytes::copy_from_slice(bytes.as_bytes()),
            media_type: media_type.parse().unwrap(),
        };
        let line = job("7", 2, "t", input, &[accepts.parse().unwrap()])?;
        Ok(String::from_utf8(line).unwrap())
    }

    fn input_of(bytes: &str, media_type: &str, accepts: &str) -> String {
        let line = line_of(bytes, media_type, accepts).unwrap();
        let (_, input) = line.split_once(r#""task":"t","#).unwrap();
        input.to_owned()
    }

    #[test]
    fn an_input_is_json_if_its_client_or_its_task_says_so() {
        let json = "\"content_type\":\"application/json\",\"input\":{\"a\":  1.10 }}\n";
        for media_type in ["application/json", "text/plain; charset=utf-8", "application/octet-stream"] {
            assert_eq!(input_of("{\"a\":\r\n1.10\n}", media_type, "application/json"), json);
        }
        assert_eq!(input_of("{}", "a/b+json", "*/*"), "\"content_type\":\"a/b+json\",\"input\":{}}\n");
        assert_eq!(input_of("a\nb", "text/x", "*/*"), "\"content_type\":\"text/x\",\"input\":\"a\\nb\"}\n");
        assert_eq!(
            input_of("ab", "image/png", "application/json"),
            "\"content_type\":\"image/png\",\"input_base64\":\"YWI=\"}\n"
        );
        let form = "application/x-www-form-urlencoded";
        assert_eq!(input_of("{\"a\":\r\n1.10\n}", form, "application/json"), json);
        let deep = "[".repeat(200) + &"]".repeat(200);
        let kept =
            [("a=1&b=2", "application/json"), (&*deep, "application/json"), ("{}", form), ("{}", "*/*")];
        for (input, accepts) in kept {
            let line = input_of(input, form, accepts);
            assert!(line.contains(form) && line.contains("input_base64"), "{line}");
        }
        assert_eq!(line_of("", "text/plain", "application/json").unwrap_err(), NO_INPUT);
        for broken in [" ", "{", "1 2", "\"a\nb", "{\"a\":1}}"] {
            assert!(line_of(broken, "application/json", "*/*").unwrap_err().contains("not JSON"), "{broken}");
        }
    }

    /// The program parses the line, which is one object deeper than the input in it.
    #[test]
    fn the_line_of_the_deepest_input_is_read_by_serde_json() {
        let deep = |levels| ["[".repeat(levels), "]".repeat(levels)].concat();
        let line = line_of(&deep(JSONL_DEPTH_MAX), "application/json", "*/*").unwrap();
        serde_json::from_slice::<serde_json::Value>(line.as_bytes()).unwrap();
        let why = line_of(&deep(JSONL_DEPTH_MAX + 1), "application/json", "*/*").unwrap_err();
        assert_eq!(why, "the input is nested deeper than 126");
    }

    #[test]
    fn an_answer_has_one_meaning_or_is_refused() {
        let answered = |line: &str, produces: &str| answer(line.as_bytes(), "7", &produces.parse().unwrap());
        let bytes = |line: &str, produces: &str| match answered(line, produces) {
            Ok(Answer::Finished(output)) => {
                (String::from_utf8(output.bytes.to_vec()).unwrap(), output.media_type.to_string())
            }
            other => panic!("{line}: {other:?}"),
        };
        let said = |bytes: &str, media_type: &str| (bytes.to_owned(), media_type.to_owned());
        assert_eq!(
            bytes(r#"{"job":"7","output":null}"#, "application/json"),
            said("null", "application/json")
        );
        assert_eq!(
            bytes(r#"{"job":"7","output":"a\u0062"}"#, "application/json"),
            said(r#""a\u0062""#, "application/json")
        );
        assert_eq!(bytes(r#"{"job":"7","output":"a\u0062"}"#, "text/x"), said("ab", "text/x"));
        assert_eq!(
            bytes(r#"{"job":"7","output_base64":"YWI=","content_type":"a/b"}"#, "text/x"),
            said("ab", "a/b")
        );
        assert_eq!(answered(r#"{"job":"7","error":"no"}"#, "a/b"), Ok(Answer::Failed("no".to_owned())));
        assert_eq!(answered(r#"{"job":"7","progress":[3,10]}"#, "a/b"), Ok(Answer::Progress(3, 10)));
        assert_eq!(answered(r#"{"job":"6","progress":[3,10]}"#, "a/b"), Ok(Answer::OfAnother));
        for wrong in [
            r#"{"job":"6","output":1}"#,
            r#"{"job":7,"output":1}"#,
            r#"{"output":1}"#,
            r#"{"job":"7"}"#,
            r#"{"job":"7","output":1,"error":"x"}"#,
            r#"{"job":"7","output":1,"progress":[1,2]}"#,
            r#"{"job":"7","output_base64":"?"}"#,
            r#"{"job":"7","output":1,"content_type":"?"}"#,
            r#"{"job":"7","progress":[-1,2]}"#,
            "[]",
            "",
        ] {
            assert!(answered(wrong, "a/b").is_err(), "{wrong}");
        }
        for no_number in ["NaN", "[1,-Infinity]", "{\"a\":[Infinity]}"] {
            let why = answered(&format!(r#"{{"job":"7","output":{no_number}}}"#), "a/b").unwrap_err();
            assert!(why.contains("allow_nan=False"), "{why}");
        }
        assert!(!answered(r#"{"job":"7","output":"NaN",}"#, "a/b").unwrap_err().contains("allow_nan"));
        let long = beginning(&[b'x'; 1000]);
        assert!(long.ends_with("x\"...") && long.len() < 200, "{long}");
    }

    #[test]
    fn the_first_line_offers_at_least_one_task_and_each_once() {
        let offered = |tasks: &str| hello(format!(r#"{{"hello":{{"tasks":{tasks}}}}}"#).as_bytes());
        assert_eq!(offered(r#"[{"name":"a"},{"name":"b","idempotent":true,"later":1}]"#).unwrap().len(), 2);
        let single = offered(r#"[{"name":"a","accepts":"image/png","produces":["image/png"]}]"#).unwrap();
        assert_eq!((&single[0].accepts, &single[0].produces), (&vec![MediaType::PNG], &MediaType::PNG));
        for (tasks, expected) in [
            ("[]", "no task"),
            (r#"["a"]"#, r#"an object for each task, such as {"name":"t"}"#),
            (r#"[{"name":"2a"}]"#, "cannot name"),
            (r#"[{"name":"a"},{"name":"a"}]"#, "of one name"),
            (r#"[{}]"#, "its first line"),
            (r#"[{"name":"a","accepts":["?"]}]"#, "or a list of them"),
            (r#"[{"name":"a","produces":["a/b","c/d"]}]"#, "one media type, and has 2"),
        ] {
            assert!(offered(tasks).unwrap_err().contains(expected), "{tasks}");
        }
        assert!(hello(b"Serving HTTP on 0.0.0.0").unwrap_err().contains("Serving HTTP"));
    }
}
