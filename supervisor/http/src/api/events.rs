//! What happens to a job, as it happens.
//!
//! ```text
//!   GET /v1/jobs/{id}/events      state, progress, ... end           (server-sent events)
//!   POST /v1/tasks/{task}         the parts of the output:
//!      Accept: text/event-stream     job, part, part, ... end        (server-sent events; a part is base64)
//!      Offload-Stream: true          the bytes, as a chunked body    (broken off if the job fails midway)
//! ```
//!
//! Each event of the first kind has an id. A client that lost the connection sends the last one that it got (`Last-Event-ID`), and is
//! not told the same again.

use crate::body::{Body, BrokenOff, Produce};
use crate::offload::{Accepted, Answers, Failure, JOB, RequestContext, TICKET, header};
use crate::problem::Problem;
use crate::request::Request;
use crate::respond::Response;
use crate::server::Server;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use offload_event_loop::LoopHandle;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::Job;
use offload_supervisor::service::{Reply, Session, StreamPart};
use serde_json::{Value, json};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

const EVENT_STREAM: &str = "text/event-stream";

/// How often the progress of a job is looked at while somebody follows it.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// After so many looks without news a comment is sent, so that nothing between here and there takes the connection for dead.
const QUIET_LOOKS_MAX: u32 = 60;

pub(super) fn mount(server: &Server) {
    server.get("/v1/jobs/{id}/events", |request, context| async move { follow(&request, &context) });
}

/// In which form the parts of an output are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Events,
    Bytes,
}

pub(super) fn wanted(request: &Request) -> Option<Form> {
    let accepts_events = request.header("accept").is_some_and(|accept| {
        accept
            .split(',')
            .any(|kind| kind.split(';').next().unwrap_or("").trim().eq_ignore_ascii_case(EVENT_STREAM))
    });
    let is_on = |text: &str| text.eq_ignore_ascii_case("true") || text == "?1";
    match (accepts_events, request.header("offload-stream").is_some_and(is_on)) {
        (true, _) => Some(Form::Events),
        (false, true) => Some(Form::Bytes),
        (false, false) => None,
    }
}

fn event(name: &str, id: Option<&str>, data: &Value) -> Bytes {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    Bytes::from(format!("{id}event: {name}\ndata: {data}\n\n"))
}

fn events_response(produce: impl Produce + 'static) -> Response {
    let mut response = Response::new(Body::stream(produce));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Follows a job to its end.
fn follow(request: &Request, context: &RequestContext) -> Result<Response, Failure> {
    let job = request.parameter("id").unwrap_or("").to_owned();
    let (session, answers) = context.open();
    if let Some(Reply::Refusal(error)) = session.wait(TICKET, &job) {
        return Err(Failure::refused(&error));
    }
    let told = request.header("last-event-id").unwrap_or("").to_owned();
    let look = Box::pin(context.event_loop().sleep(Duration::ZERO));
    Ok(events_response(Following {
        job,
        context: context.clone(),
        _session: session,
        answers,
        told,
        look,
        quiet: 0,
        has_ended: false,
    }))
}

struct Following {
    job: String,
    context: RequestContext,
    _session: Session,
    answers: Rc<Answers>,
    /// The id of what the client knows.
    told: String,
    look: Pin<Box<dyn Future<Output = ()>>>,
    quiet: u32,
    has_ended: bool,
}

impl Following {
    /// The state as an event, with an id that changes with it.
    fn state(&mut self) -> Option<Bytes> {
        let Ok(mut document) = super::jobs::document(&self.job, &self.context) else {
            self.has_ended = true;
            return Some(event("end", None, &json!({"job": self.job, "state": "forgotten"})));
        };
        let word = document["state"].as_str().unwrap_or("").to_owned();
        let progress = &document["progress"];
        let id = match progress.as_array() {
            Some(_) => format!("{word}-{}-{}-{}", document["attempts"], progress[0], progress[1]),
            None => format!("{word}-{}", document["attempts"]),
        };
        self.has_ended = !matches!(word.as_str(), "parked" | "queued" | "held" | "assigned" | "running");
        if id == self.told {
            return None;
        }
        let name = match (self.has_ended, progress.is_array()) {
            (true, _) => "end",
            (false, true) => "progress",
            (false, false) => "state",
        };
        self.told.clone_from(&id);
        let document = document.as_object_mut().map(std::mem::take).unwrap_or_default();
        Some(event(name, Some(&id), &Value::Object(document)))
    }
}

impl Produce for Following {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenOff>>> {
        loop {
            if self.has_ended {
                return Poll::Ready(None);
            }
            if self.answers.poll_next(context).is_ready() {
                // It has ended: one event says so, even if the client knew the state.
                self.told.clear();
            } else {
                ready!(self.look.as_mut().poll(context));
                self.look = Box::pin(self.context.event_loop().sleep(LOOK_EVERY));
            }
            if let Some(event) = self.state() {
                self.quiet = 0;
                return Poll::Ready(Some(Ok(event)));
            }
            self.quiet += 1;
            if self.quiet >= QUIET_LOOKS_MAX {
                self.quiet = 0;
                return Poll::Ready(Some(Ok(Bytes::from_static(b": still there\n\n"))));
            }
        }
    }
}

/// Calls a task whose output is sent in parts. The status is known when the first part has come, or the end.
pub(super) async fn stream(
    form: Form,
    job: Job,
    key: Option<String>,
    request: Request,
    context: RequestContext,
) -> Result<Response, Failure> {
    if key.is_some() {
        let detail = "nothing of a stream is kept, so it cannot have an idempotency key";
        return Err(Failure::from(Problem::new(OutcomeCode::BadRequest, detail)));
    }
    let offload = context.offload("", request.body()).with(|_| job.stream());
    let accepted = offload.submit(false).await?;
    let (job, handle) = (accepted.job.clone(), context.event_loop().clone());
    let mut parts = Parts { accepted, form, next: None, is_over: false, _handle: handle };
    if form == Form::Events {
        parts.next = Some(event("job", None, &json!({"job": job})));
        let mut response = events_response(parts);
        response.headers_mut().insert(JOB, header(&job));
        return Ok(response);
    }
    // What comes first decides on the status.
    let first = std::future::poll_fn(|context| parts.poll_part(context)).await;
    let media_type = match first {
        Taken::Part(bytes) => {
            parts.next = Some(bytes);
            None
        }
        Taken::End(report) => {
            parts.is_over = true;
            let output = parts.accepted.finished(*report)?;
            parts.next = Some(output.bytes().clone()).filter(|bytes| !bytes.is_empty());
            Some(output.media_type().clone())
        }
    };
    let mut response = Response::new(Body::stream(parts));
    let media_type = media_type.unwrap_or_default();
    response.headers_mut().insert(CONTENT_TYPE, header(media_type.as_str()));
    response.headers_mut().insert(JOB, header(&job));
    Ok(response)
}

enum Taken {
    Part(Bytes),
    End(Box<offload_supervisor::service::Report>),
}

struct Parts {
    accepted: Accepted,
    form: Form,
    /// What is sent before anything else is taken.
    next: Option<Bytes>,
    is_over: bool,
    _handle: LoopHandle,
}

impl Parts {
    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Taken> {
        loop {
            match self.accepted.session.next_part(TICKET) {
                StreamPart::Part(part) => return Poll::Ready(Taken::Part(part.bytes.clone())),
                StreamPart::End(report) => return Poll::Ready(Taken::End(report)),
                StreamPart::Nothing => drop(ready!(self.accepted.answers.poll_next(context))),
            }
        }
    }

    fn end(&mut self, report: offload_supervisor::service::Report) -> Option<Result<Bytes, BrokenOff>> {
        self.is_over = true;
        let ended = self.accepted.finished(report);
        match (self.form, ended) {
            (Form::Bytes, Ok(output)) => {
                Some(Ok(output.bytes().clone())).filter(|_| !output.bytes().is_empty())
            }
            (Form::Bytes, Err(_)) => Some(Err(BrokenOff)),
            (Form::Events, Ok(output)) => {
                let last = part_event(output.bytes());
                let report = output.report();
                let end = event(
                    "end",
                    None,
                    &json!({"job": report.job, "outcome": "ok", "receipt": report.receipt}),
                );
                Some(Ok([last, end].concat().into()))
            }
            (Form::Events, Err(failure)) => {
                let problem = serde_json::to_value(failure.problem()).unwrap_or_default();
                Some(Ok(event("end", None, &json!({"outcome": failure.problem().code, "error": problem}))))
            }
        }
    }
}

/// Nothing for an empty part.
fn part_event(bytes: &Bytes) -> Bytes {
    match bytes.is_empty() {
        true => Bytes::new(),
        false => event("part", None, &json!({"base64": STANDARD.encode(bytes)})),
    }
}

impl Produce for Parts {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenOff>>> {
        if let Some(next) = self.next.take() {
            return Poll::Ready(Some(Ok(next)));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        match ready!(self.poll_part(context)) {
            Taken::Part(bytes) if self.form == Form::Events => Poll::Ready(Some(Ok(part_event(&bytes)))),
            Taken::Part(bytes) => Poll::Ready(Some(Ok(bytes))),
            Taken::End(report) => Poll::Ready(self.end(*report)),
        }
    }
}
