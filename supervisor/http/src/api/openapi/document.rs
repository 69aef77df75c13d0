//! What `/openapi.json` says, written in parts: of thousands of tasks with their schemas it is megabytes.
//!
//! ```text
//!   base.json, components  -->  {"openapi": ..., "components": ..., "paths": {"/v1/tasks": ...,
//!   TaskPaths              -->    "/v1/tasks/sort": ..., "/v1/tasks/sum": ...      appended as text, one task after the other
//!                                }}
//! ```
//!
//! What is the same for all tasks is said once, in the components; each task refers to it.

use crate::limits::{TASKS_DESCRIBED_BYTES_MAX, TASKS_DESCRIBED_MAX};
use crate::problem::{METHOD_NOT_ALLOWED, NOT_FOUND, status_of};
use http::StatusCode;
use offload_protocol::nouns::{MediaType, OutcomeCode};
use offload_supervisor::views::TaskView;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const BASE: &str = include_str!("base.json");

/// What a request may say about its job.
const JOB_FIELDS: [&str; 9] = [
    "Prefer",
    "Idempotency-Key",
    "Offload-Timeout",
    "Offload-Deadline",
    "Offload-Priority",
    "Offload-Attempts",
    "Offload-Client",
    "Offload-Label",
    "traceparent",
];

/// Any request may be answered so, whatever it asks for: not understood, no token, foreign, too slow, too long, no room.
const ANYWHERE: [u16; 9] = [400, 401, 403, 405, 408, 414, 431, 500, 503];

/// The paths of tasks, as text. They are added in the order of their names, until there is no more room.
#[derive(Default)]
pub(super) struct TaskPaths {
    text: Vec<u8>,
    count: usize,
    is_full: bool,
}

impl TaskPaths {
    /// Describes one more task, if there is room for it and was room for all before it.
    pub(super) fn add(&mut self, task: &TaskView) {
        let length = self.text.len();
        self.is_full = self.is_full || self.count == TASKS_DESCRIBED_MAX;
        if self.is_full {
            return;
        }
        let operations = json!({ "post": one_task(task), "get": show_task(task) });
        write_field(
            &mut self.text,
            &format!("/v1/tasks/{}", task.name),
            &with_answers_of_any_request(operations),
        );
        if self.text.len() > TASKS_DESCRIBED_BYTES_MAX {
            self.text.truncate(length);
            self.is_full = true;
        } else {
            self.count += 1;
        }
    }

    /// Whether no further task will be described.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }
}

/// The whole document, with these paths of `offered` tasks.
pub(super) fn document(tasks: &TaskPaths, offered: usize) -> Vec<u8> {
    let mut document: Value = serde_json::from_str(BASE).expect("a file of this crate");
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    if tasks.count < offered {
        let about = document["info"]["description"].as_str().unwrap_or_default();
        let (described, left_out) = (tasks.count, offered - tasks.count);
        document["info"]["description"] = json!(format!(
            "{about} This document is limited: of {offered} tasks the first {described} by name are described, \
             and {left_out} are left out. They can be called like the others; /v1/tasks lists all."
        ));
    }
    document["components"]["schemas"]["Code"] = codes();
    let answers = document["components"]["responses"].as_object_mut().expect("the file has answers");
    answers.extend(answers_by_status());
    let paths = document["paths"].as_object_mut().expect("the file has paths");
    paths["/v1/tasks/{task}"]["post"] = any_task();
    paths["/v1/jobs/{id}/output"]["get"]["responses"] = responses(json!({
        "200": {"description": "The output", "content": {"*/*": {}}},
    }));
    let mut written = Vec::new();
    for (path, operations) in std::mem::take(paths) {
        write_field(&mut written, &path, &with_answers_of_any_request(operations));
    }
    let (before, behind) = around_the_paths(&mut document);
    let parts: [&[u8]; 5] =
        [&before, &written, if tasks.count > 0 { b"," } else { b"" }, &tasks.text, behind];
    parts.concat()
}

/// The text of the document before and behind its paths, which are the last of its fields.
fn around_the_paths(document: &mut Value) -> (Vec<u8>, &'static [u8]) {
    if let Some(fields) = document.as_object_mut() {
        fields.shift_remove("paths");
    }
    let mut before = document.to_string().into_bytes();
    // Its closing bracket comes behind the paths.
    before.pop();
    before.extend_from_slice(br#","paths":{"#);
    (before, b"}}")
}

/// Appends a field to the text of an object, behind those that are there.
fn write_field(text: &mut Vec<u8>, name: &str, value: &Value) {
    if !text.is_empty() {
        text.push(b',');
    }
    write(text, name);
    text.push(b':');
    write(text, value);
}

fn write(text: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(text, value).expect("memory takes any JSON");
}

/// All words that say how a job ended, or why it was refused.
fn codes() -> Value {
    let own = [NOT_FOUND, METHOD_NOT_ALLOWED];
    json!({ "enum": OutcomeCode::ALL.iter().map(|code| code.as_str()).chain(own).collect::<Vec<_>>() })
}

/// The statuses that the end of a job, or its refusal, can have, and the words that lead to each.
fn statuses_of_jobs() -> BTreeMap<u16, Vec<&'static str>> {
    let mut by_status: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for code in OutcomeCode::ALL {
        by_status.entry(status_of(*code).as_u16()).or_default().push(code.as_str());
    }
    by_status.remove(&StatusCode::OK.as_u16());
    by_status
}

/// A problem for each status that an answer can have: the components to which operations refer by the status.
fn answers_by_status() -> Map<String, Value> {
    let mut by_status = statuses_of_jobs();
    for status in ANYWHERE {
        by_status.entry(status).or_default();
    }
    let described = |(status, codes): (u16, Vec<&str>)| {
        let title = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        let words: Vec<&str> = title.into_iter().chain(codes).collect();
        (status.to_string(), problem(&words.join(", ")))
    };
    by_status.into_iter().map(described).collect()
}

fn problem(description: &str) -> Value {
    let schema = json!({"$ref": "#/components/schemas/Problem"});
    let retry_after = json!({"$ref": "#/components/headers/Retry-After"});
    json!({
        "description": description,
        "headers": {"Retry-After": retry_after},
        "content": {"application/problem+json": {"schema": schema}},
    })
}

/// These responses, and the problem for each status that the end of a job, or its refusal, can have.
fn responses(mut responses: Value) -> Value {
    add_problems(&mut responses, statuses_of_jobs().into_keys());
    responses
}

/// What any request may be answered is said of each operation that does not say it itself.
fn with_answers_of_any_request(mut path: Value) -> Value {
    let operations = path.as_object_mut().into_iter().flat_map(|path| path.values_mut());
    operations.for_each(|operation| add_problems(&mut operation["responses"], ANYWHERE));
    path
}

fn add_problems(responses: &mut Value, statuses: impl IntoIterator<Item = u16>) {
    let Some(responses) = responses.as_object_mut() else { return };
    for status in statuses {
        let component = json!({ "$ref": format!("#/components/responses/{status}") });
        responses.entry(status.to_string()).or_insert(component);
    }
}

fn parameters(others: &[&str]) -> Value {
    let all = others.iter().chain(&JOB_FIELDS);
    all.map(|name| json!({ "$ref": format!("#/components/parameters/{name}") })).collect()
}

fn call_responses(content: &Value) -> Value {
    let header = |name: &str| json!({ "$ref": format!("#/components/headers/{name}") });
    let link = |name: &str| json!({ "$ref": format!("#/components/links/{name}") });
    responses(json!({
        "200": {
            "description": "The output",
            "headers": {"Offload-Job": header("Offload-Job"), "Server-Timing": header("Server-Timing")},
            "links": {"job": link("job"), "events": link("events")},
            "content": content,
        },
        "202": {"$ref": "#/components/responses/Accepted"},
    }))
}

fn any_task() -> Value {
    json!({
        "tags": ["tasks"],
        "operationId": "call_task",
        "summary": "Call a task: the body is its input, and the answer its output",
        "parameters": parameters(&["task"]),
        "requestBody": {"content": {"*/*": {}}},
        "responses": call_responses(&json!({"*/*": {}})),
    })
}

fn one_task(task: &TaskView) -> Value {
    json!({
        "tags": ["tasks"],
        "operationId": format!("call_task_{}", task.name),
        "summary": task.description,
        "parameters": parameters(if task.streams { &["Offload-Stream"] } else { &[] }),
        "requestBody": {"required": true, "content": input(task)},
        "responses": call_responses(&output(task)),
    })
}

fn show_task(task: &TaskView) -> Value {
    json!({
        "tags": ["tasks"],
        "operationId": format!("show_task_{}", task.name),
        "summary": "One task",
        "responses": {
            "200": {"$ref": "#/components/responses/Task"},
            "404": {"$ref": "#/components/responses/Problem"},
        },
    })
}

fn output(task: &TaskView) -> Value {
    let mut content = Map::new();
    content.insert(task.produces.to_string(), json!({}));
    if task.streams {
        content.insert("text/event-stream".to_owned(), json!({}));
        content.insert(MediaType::OCTET_STREAM.to_string(), json!({}));
    }
    Value::Object(content)
}

/// The media types that the task takes, with what is known of them. A task that does not say takes anything.
fn input(task: &TaskView) -> Value {
    let mut content = Map::new();
    for media_type in &task.accepts {
        content.insert(media_type.to_string(), media(task, media_type));
    }
    if content.is_empty() {
        content.insert(MediaType::ANY.to_string(), media(task, &MediaType::ANY));
    }
    Value::Object(content)
}

fn media(task: &TaskView, media_type: &MediaType) -> Value {
    let mut media = Map::new();
    let parsed = task.example.as_deref().filter(|_| media_type.is_json()).map(serde_json::from_str::<Value>);
    match (parsed, &task.example) {
        (Some(Ok(value)), _) => drop(media.insert("example".to_owned(), value)),
        (None, Some(text)) => drop(media.insert("example".to_owned(), json!(text))),
        _ => {}
    }
    if media_type.is_json()
        && let Some(schema) = &task.schema
    {
        media.insert("schema".to_owned(), rooted(&task.name, schema.clone()));
    }
    Value::Object(media)
}

/// A schema may refer to its own parts (`#/$defs/...`). So that these are not looked for in the document around it, it gets a name.
fn rooted(task: &str, mut schema: Value) -> Value {
    let refers_to_itself = schema.to_string().contains("\"$ref\":\"#");
    if let Some(fields) = schema.as_object_mut().filter(|_| refers_to_itself) {
        fields.entry("$id").or_insert_with(|| json!(format!("urn:offload:task:{task}")));
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_protocol::nouns::{DescribedTask, TaskOffer};

    fn task(name: &'static str, media_type: MediaType, example: &str, schema: &str) -> TaskView {
        let mut described = DescribedTask::default();
        described.about.accepts = vec![media_type];
        described.example = example.as_bytes().to_vec().into();
        described.schema = schema.into();
        TaskView::new(&TaskOffer::new(name), &described, "program")
    }

    /// Every `$ref` of a document.
    fn references(value: &Value) -> Vec<String> {
        match value {
            Value::Object(fields) => {
                let own = fields.get("$ref").and_then(Value::as_str).map(str::to_owned);
                own.into_iter().chain(fields.values().flat_map(references)).collect()
            }
            Value::Array(items) => items.iter().flat_map(references).collect(),
            _ => Vec::new(),
        }
    }

    fn describe(tasks: &[TaskView]) -> Value {
        let mut paths = TaskPaths::default();
        tasks.iter().for_each(|task| paths.add(task));
        serde_json::from_slice(&document(&paths, tasks.len())).expect("JSON")
    }

    fn described(document: &Value) -> usize {
        let paths = document["paths"].as_object().expect("paths");
        paths.keys().filter(|path| path.starts_with("/v1/tasks/") && !path.contains('{')).count()
    }

    fn about(document: &Value) -> &str {
        document["info"]["description"].as_str().expect("a text")
    }

    /// A task of a name that comes after those of smaller numbers.
    fn numbered(number: usize, schema: &str) -> TaskView {
        task(format!("task{number:05}").leak(), MediaType::JSON, "", schema)
    }

    #[test]
    fn a_task_takes_little_beside_its_own_texts_and_the_first_thousand_are_described() {
        let tasks: Vec<TaskView> = (0..4000).map(|number| numbered(number, "")).collect();
        let length = |tasks: &[TaskView]| describe(tasks).to_string().len();
        let of_one = (length(&tasks[..101]) - length(&tasks[..1])) / 100;
        assert!(of_one < 2500, "{of_one}");
        let all = describe(&tasks);
        assert_eq!(described(&all), TASKS_DESCRIBED_MAX);
        assert!(about(&all).contains("of 4000 tasks the first 1000 by name"), "{}", about(&all));
        assert!(about(&all).contains("3000 are left out"), "{}", about(&all));
        let few = describe(&tasks[..TASKS_DESCRIBED_MAX]);
        assert_eq!(described(&few), TASKS_DESCRIBED_MAX);
        assert!(!about(&few).contains("left out"));
    }

    #[test]
    fn what_is_said_of_tasks_has_a_bound_in_bytes_and_none_is_described_in_part() {
        let schema = format!(r#"{{"const":"{}"}}"#, "x".repeat(100_000));
        let tasks: Vec<TaskView> = (0..100).map(|number| numbered(number, &schema)).collect();
        let document = describe(&tasks);
        let count = described(&document);
        assert!((70..84).contains(&count), "{count}");
        assert!(about(&document).contains(&format!("{} are left out", 100 - count)), "{}", about(&document));
        let last = &document["paths"][format!("/v1/tasks/task{:05}", count - 1)];
        assert!(last["get"].is_object() && last["post"].is_object());
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = describe(&[task("a", MediaType::JSON, "1", r#"{"type":"integer"}"#)]);
        let references = references(&document);
        assert!(references.len() > 50);
        for reference in references {
            let pointer = reference.strip_prefix('#').expect("a part of this document");
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    /// Each operation, by its id.
    fn operations(document: &Value) -> BTreeMap<&str, &Value> {
        let paths = document["paths"].as_object().expect("paths").values();
        let all = paths.flat_map(|path| path.as_object().expect("operations").values());
        all.map(|operation| (operation["operationId"].as_str().expect("its id"), operation)).collect()
    }

    #[test]
    fn the_answers_to_a_call_link_to_what_can_be_asked_of_its_job() {
        let document = describe(&[task("a", MediaType::JSON, "1", "")]);
        let operations = operations(&document);
        let linked = |links: &Value| -> Vec<String> {
            let names = links.as_object().expect("links").iter().map(|(name, link)| {
                assert_eq!(link["$ref"], format!("#/components/links/{name}"));
                let link = &document["components"]["links"][name];
                let operation = link["operationId"].as_str().expect("an operation");
                assert_eq!(operations[operation]["parameters"][0]["$ref"], "#/components/parameters/id");
                assert_eq!(link["parameters"], json!({"id": "$response.header.Offload-Job"}));
                operation.to_owned()
            });
            names.collect()
        };
        let accepted = &document["components"]["responses"]["Accepted"];
        assert_eq!(linked(&accepted["links"]), ["show_job", "job_events", "job_output", "cancel_job"]);
        for operation in ["call_task", "call_task_a"] {
            let responses = &operations[operation]["responses"];
            assert_eq!(responses["202"]["$ref"], "#/components/responses/Accepted");
            assert_eq!(linked(&responses["200"]["links"]), ["show_job", "job_events"], "{operation}");
            assert!(responses["200"]["headers"]["Offload-Job"].is_object());
        }
    }

    #[test]
    fn a_task_is_described_by_its_schema_and_an_example_in_its_own_media_type() {
        let document = describe(&[
            task(
                "numbers",
                MediaType::JSON,
                "[1]",
                r##"{"$ref":"#/$defs/x","$defs":{"x":{"type":"array"}}}"##,
            ),
            task("words", MediaType::TEXT, "to be", ""),
        ]);
        let input = |name: &str| &document["paths"][format!("/v1/tasks/{name}")]["post"]["requestBody"];
        let numbers = &input("numbers")["content"]["application/json"];
        assert_eq!(
            (&numbers["example"], &numbers["schema"]["$id"]),
            (&json!([1]), &json!("urn:offload:task:numbers"))
        );
        assert_eq!(input("words")["content"][MediaType::TEXT.as_str()], json!({"example": "to be"}));
    }

    #[test]
    fn each_end_of_a_job_has_its_status_and_the_same_tasks_give_the_same_document() {
        let tasks = [task("b", MediaType::TEXT, "", ""), task("a", MediaType::TEXT, "", "")];
        let document = describe(&tasks);
        let responses = document["paths"]["/v1/tasks/b"]["post"]["responses"].as_object().expect("responses");
        for code in OutcomeCode::ALL {
            assert!(responses.contains_key(status_of(*code).as_str()), "{code}");
        }
        assert_eq!(document.to_string(), describe(&tasks).to_string());
        assert!(!describe(&[])["paths"]["/v1/tasks"].is_null(), "it is JSON without tasks, too");
    }
}
