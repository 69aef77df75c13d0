//! `/openapi.json`: this interface as OpenAPI 3.1. What is always the same is in `openapi/base.json`; the tasks come from what
//! workers offer at this moment, each with its media types, its schema and its example.

use crate::body::Body;
use crate::offload::RequestContext;
use crate::problem::{METHOD_NOT_ALLOWED, NOT_FOUND, Problem, status_of};
use crate::respond::json_response;
use crate::server::Server;
use bytes::Bytes;
use http::StatusCode;
use offload_protocol::nouns::{MediaType, OutcomeCode};
use offload_supervisor::service::{Document, Reply, Service};
use offload_supervisor::views::TaskView;
use serde_json::{Map, Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

const BASE: &str = include_str!("openapi/base.json");

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

pub(super) fn mount(server: &Server) {
    let writer = Rc::new(Writer::default());
    server.get("/openapi.json", move |_, context| {
        let writer = Rc::clone(&writer);
        async move { writer.document(&context).await.map(|document| json_response(Body::from(document))) }
    });
}

/// Writes the document once for the tasks that are offered, on a thread: of thousands of tasks it is megabytes.
#[derive(Default)]
struct Writer {
    /// The last one, and the tasks that it describes.
    last: RefCell<Option<(Vec<TaskView>, Bytes)>>,
    is_writing: Rc<Cell<bool>>,
}

/// Whoever asks while it is written looks again after this.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl Writer {
    async fn document(&self, context: &RequestContext) -> Result<Bytes, Problem> {
        while self.is_writing.get() {
            context.clock.sleep(LOOK_AGAIN).await;
        }
        let tasks = offered(context.service());
        if let Some((_, document)) = self.last.borrow().as_ref().filter(|(known, _)| *known == tasks) {
            return Ok(document.clone());
        }
        let _writing = Writing::begin(&self.is_writing);
        let write = move || (describe(&tasks).to_string(), tasks);
        let (text, tasks) = context.service().on_thread(write).await.map_err(|error| {
            Problem::new(OutcomeCode::Overloaded, format!("the document was not written: {error}"))
        })?;
        let document = Bytes::from(text);
        self.last.replace(Some((tasks, document.clone())));
        Ok(document)
    }
}

/// Until this is dropped, also because its client is gone.
struct Writing(Rc<Cell<bool>>);

impl Writing {
    fn begin(is_writing: &Rc<Cell<bool>>) -> Writing {
        is_writing.set(true);
        Writing(Rc::clone(is_writing))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

fn offered(service: &Service) -> Vec<TaskView> {
    let Reply::Document(document) = service.tasks() else { return Vec::new() };
    if let Document::Tasks(tasks) = *document { tasks } else { Vec::new() }
}

fn describe(tasks: &[TaskView]) -> Value {
    let mut document: Value = serde_json::from_str(BASE).expect("a file of this crate");
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    document["components"]["schemas"]["Code"] = codes();
    let paths = document["paths"].as_object_mut().expect("the file has paths");
    paths["/v1/tasks/{task}"]["post"] = any_task();
    paths["/v1/jobs/{id}/output"]["get"]["responses"] = responses(json!({
        "200": {"description": "The output", "content": {"*/*": {}}},
    }));
    for task in tasks {
        let show = show_task(task, &paths["/v1/tasks/{task}"]["get"]);
        let operations = json!({ "post": one_task(task), "get": show });
        paths.insert(format!("/v1/tasks/{}", task.name), operations);
    }
    paths.values_mut().for_each(add_answers_of_any_request);
    document
}

/// All words that say how a job ended, or why it was refused.
fn codes() -> Value {
    let own = [NOT_FOUND, METHOD_NOT_ALLOWED];
    json!({ "enum": OutcomeCode::ALL.iter().map(|code| code.as_str()).chain(own).collect::<Vec<_>>() })
}

/// A problem for each status that the end of a job, or its refusal, can have.
fn responses(others: Value) -> Value {
    let mut by_status: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for code in OutcomeCode::ALL {
        by_status.entry(status_of(*code).as_u16()).or_default().push(code.as_str());
    }
    let mut responses = match others {
        Value::Object(responses) => responses,
        _ => Map::new(),
    };
    for (status, codes) in by_status {
        let key = status.to_string();
        if StatusCode::OK.as_u16() != status && !responses.contains_key(&key) {
            responses.insert(key, problem(&codes.join(", ")));
        }
    }
    Value::Object(responses)
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

/// What any request may be answered is said of each operation that does not say it itself.
fn add_answers_of_any_request(path: &mut Value) {
    let operations = path.as_object_mut().into_iter().flat_map(|path| path.values_mut());
    for responses in operations.filter_map(|operation| operation["responses"].as_object_mut()) {
        for status in ANYWHERE {
            let title = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
            responses.entry(status.to_string()).or_insert_with(|| problem(title.unwrap_or_default()));
        }
    }
}

fn parameters(others: &[&str]) -> Value {
    let all = others.iter().chain(&JOB_FIELDS);
    all.map(|name| json!({ "$ref": format!("#/components/parameters/{name}") })).collect()
}

fn call_responses(content: &Value) -> Value {
    let reference = |name: &str| json!({ "$ref": format!("#/components/headers/{name}") });
    responses(json!({
        "200": {
            "description": "The output",
            "headers": {"Offload-Job": reference("Offload-Job"), "Server-Timing": reference("Server-Timing")},
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

/// The same as for any task, but for its name.
fn show_task(task: &TaskView, any: &Value) -> Value {
    let mut operation = any.clone();
    operation["operationId"] = json!(format!("show_task_{}", task.name));
    operation["parameters"] = json!([]);
    operation
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
    }
}
