//! Calling a task whose output is sent in parts, as they come.
//!
//! ```text
//!   POST /v1/tasks/{task}
//!      Accept: text/event-stream     job, progress, part, part, ... end    (server-sent events; a part is base64)
//!      Offload-Stream: true          the bytes, as a chunked body    (broken off if the job fails midway)
//!
//!   Parts --> Rest: what the task returned behind them, in pieces --> Last: the event `end` --> Over
//! ```
//!
//! What is handed to hyper keeps its charge until it is written, so a client that does not read pays for what waits for it.

use super::events::{EVENT_STREAM, Looks, event, events_response};
use super::headers::{field, list, weight};
use crate::body::{Body, BrokenOff, Produce, holding};
use crate::ended::{Failure, Output, header};
use crate::limits::PIECE;
use crate::offload::{Accepted, JOB, RequestContext, TICKET};
use crate::problem::Problem;
use crate::request::{Request, quoted};
use crate::respond::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use offload_protocol::nouns::{MediaType, OutcomeCode};
use offload_supervisor::Job;
use offload_supervisor::service::{Report, StreamPart};
use serde_json::json;
use std::any::Any;
use std::future::poll_fn;
use std::mem;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

static OFFLOAD_STREAM: HeaderName = HeaderName::from_static("offload-stream");

/// In which form the parts of an output are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Events,
    Bytes,
}

/// Whether the client wants the output in parts, and how.
///
/// # Errors
/// What the client is told: `Offload-Stream` says neither yes nor no.
pub(super) fn wanted(request: &Request) -> Result<Option<Form>, Problem> {
    let accepted = accepted(request);
    let wants_bytes = match field(request, &OFFLOAD_STREAM)? {
        None | Some("false" | "?0") => false,
        Some("true" | "?1") => true,
        Some(text) => {
            let detail = format!("Offload-Stream is true or false, not {}", quoted(text));
            return Err(Problem::new(OutcomeCode::BadRequest, detail));
        }
    };
    Ok(accepted.or(wants_bytes.then_some(Form::Bytes)))
}

/// What `Accept` alone asks for: events, if there is nothing that the client would rather have. Of what else it names, anything may be
/// the output, whose media type is known when it is there. One that is no visible ASCII asks for nothing.
pub(super) fn accepted(request: &Request) -> Option<Form> {
    let ranges = list(request, &ACCEPT).unwrap_or_default();
    prefers_events(&ranges).then_some(Form::Events)
}

fn prefers_events(ranges: &[&str]) -> bool {
    let (mut events, mut others) = (0.0_f32, 0.0_f32);
    for range in ranges {
        let mut parts = range.split(';').map(str::trim);
        let is_events = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(EVENT_STREAM));
        let weighed = if is_events { &mut events } else { &mut others };
        *weighed = weighed.max(weight(parts));
    }
    events > 0.0 && events >= others
}

/// Calls a task whose output is sent in parts. The status is known when the first part has come, or the end.
pub(super) async fn stream(
    (form, hides_causes): (Form, bool),
    job: Job,
    request: Request,
    context: RequestContext,
) -> Result<Response, Failure> {
    if job.has_key() {
        let detail = "nothing of a stream is kept, so it cannot have an idempotency key";
        return Err(Failure::from(Problem::new(OutcomeCode::BadRequest, detail)));
    }
    let task = job.task().to_owned();
    let offload = context.offload("", request.body()).with(|_| job.stream());
    let accepted = offload.submit(false).await?;
    let job = accepted.job.clone();
    let progress =
        (form == Form::Events).then(|| Progress { looks: Looks::new(context.clone()), told: None });
    let mut parts = Parts { accepted, form, hides_causes, progress, first: None, left: Left::Parts };
    let mut response = match form {
        Form::Events => {
            parts.first = Some(event("job", None, &json!({"job": job})));
            events_response(parts)
        }
        Form::Bytes => {
            // What comes first decides on the status.
            let media_type = match poll_fn(|context| parts.poll_part(context)).await {
                Taken::Part(part) => {
                    parts.first = Some(part);
                    produced(&task, &context)
                }
                Taken::End(report) => parts.end(*report)?,
            };
            let mut response = Response::new(Body::stream(parts));
            response.headers_mut().insert(CONTENT_TYPE, header(media_type.as_str()));
            response
        }
    };
    response.headers_mut().insert(JOB, header(&job));
    Ok(response)
}

/// What the task says that its output is. Its parts come before it could say so of this one.
fn produced(task: &str, context: &RequestContext) -> MediaType {
    let stated = context.service().task(task).map(|task| task.produces);
    stated.filter(|stated| !stated.as_str().contains('*')).unwrap_or(MediaType::OCTET_STREAM)
}

enum Taken {
    Part(Bytes),
    End(Box<Report>),
}

struct Parts {
    accepted: Accepted,
    form: Form,
    /// Whoever receives it has shown no token.
    hides_causes: bool,
    /// Told between the parts, if there is a way to tell it.
    progress: Option<Progress>,
    /// What is sent before anything else.
    first: Option<Bytes>,
    left: Left,
}

/// What is still to be sent.
enum Left {
    /// Parts, as they come.
    Parts,
    /// What the task returned behind them, from here on.
    Rest(Rc<Output>, Bytes),
    /// The last event.
    Last(Bytes),
    Over,
}

impl Parts {
    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Taken> {
        loop {
            match self.accepted.session.next_part(TICKET) {
                StreamPart::Part(part) => {
                    let bytes = self.form.write(&part.bytes);
                    return Poll::Ready(Taken::Part(holding(bytes, Rc::new(part))));
                }
                StreamPart::End(report) => return Poll::Ready(Taken::End(report)),
                StreamPart::Nothing if self.accepted.answers.poll_next(context).is_ready() => {}
                StreamPart::Nothing => return self.poll_progress(context).map(Taken::Part),
            }
        }
    }

    fn poll_progress(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
        match &mut self.progress {
            Some(progress) => progress.poll_news(&self.accepted.job, context),
            None => Poll::Pending,
        }
    }

    /// Goes on to what the task returned, and says what that is.
    ///
    /// # Errors
    /// The job failed; nothing more comes.
    fn end(&mut self, report: Report) -> Result<MediaType, Failure> {
        self.left = Left::Over;
        let output = self.accepted.finished(report)?;
        let media_type = output.media_type().clone();
        self.left = Left::Rest(Rc::new(output.clone()), output.bytes().clone());
        Ok(media_type)
    }

    /// The same for a stream of which the client has seen something: that it failed is told in its own way.
    fn end_midway(&mut self, report: Report) -> Result<(), BrokenOff> {
        match (self.end(report), self.form) {
            (Ok(_), _) => Ok(()),
            (Err(_), Form::Bytes) => Err(BrokenOff),
            (Err(failure), Form::Events) => {
                let failure = if self.hides_causes { failure.without_cause() } else { failure };
                let problem = serde_json::to_value(failure.problem()).unwrap_or_default();
                let document = json!({"outcome": failure.problem().code, "error": problem});
                self.left = Left::Last(event("end", None, &document));
                Ok(())
            }
        }
    }

    /// A piece of what the task returned, or the end if nothing is left of that.
    fn next_piece(&mut self, output: Rc<Output>, mut rest: Bytes) -> Option<Bytes> {
        if rest.is_empty() {
            self.left = match self.form {
                Form::Bytes => Left::Over,
                Form::Events => Left::Last(ended(&output)),
            };
            return None;
        }
        let piece = rest.split_to(rest.len().min(PIECE));
        let held: Rc<dyn Any> = Rc::clone(&output) as Rc<dyn Any>;
        self.left = Left::Rest(output, rest);
        Some(holding(self.form.write(&piece), held))
    }
}

/// How far the job says that it is.
struct Progress {
    looks: Looks,
    told: Option<(u64, u64)>,
}

impl Progress {
    fn poll_news(&mut self, job: &str, context: &mut Context<'_>) -> Poll<Bytes> {
        loop {
            ready!(self.looks.poll(context));
            let now = self.looks.glance(job).and_then(|glance| glance.progress);
            let news = now.filter(|now| self.told != Some(*now));
            self.told = news.or(self.told);
            let event = news.map(|now| event("progress", None, &json!({"job": job, "progress": now})));
            if let Some(bytes) = self.looks.told(event) {
                return Poll::Ready(bytes);
            }
        }
    }
}

impl Form {
    /// Bytes of an output, as they are sent.
    fn write(self, bytes: &Bytes) -> Bytes {
        match self {
            Form::Bytes => bytes.clone(),
            Form::Events => event("part", None, &json!({"base64": STANDARD.encode(bytes)})),
        }
    }
}

fn ended(output: &Output) -> Bytes {
    let report = output.report();
    event("end", None, &json!({"job": report.job, "outcome": "ok", "receipt": report.receipt}))
}

impl Produce for Parts {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenOff>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        loop {
            match mem::replace(&mut self.left, Left::Over) {
                Left::Parts => {
                    self.left = Left::Parts;
                    match ready!(self.poll_part(context)) {
                        Taken::Part(bytes) => return Poll::Ready(Some(Ok(bytes))),
                        Taken::End(report) => {
                            if let Err(broken) = self.end_midway(*report) {
                                return Poll::Ready(Some(Err(broken)));
                            }
                        }
                    }
                }
                Left::Rest(output, rest) => {
                    if let Some(piece) = self.next_piece(output, rest) {
                        return Poll::Ready(Some(Ok(piece)));
                    }
                }
                Left::Last(event) => return Poll::Ready(Some(Ok(event))),
                Left::Over => return Poll::Ready(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_sent_to_whoever_would_rather_have_nothing_else() {
        let prefers = |accept: &str| prefers_events(&accept.split(',').collect::<Vec<_>>());
        for accept in [
            "text/event-stream",
            "TEXT/Event-Stream; charset=utf-8",
            "*/*, text/event-stream",
            "application/json, text/event-stream",
            "text/event-stream;q=0.2, */*;q=0.1",
            "text/event-stream;q=0.1, text/event-stream;q=0.5, text/plain;q=0.5",
        ] {
            assert!(prefers(accept), "{accept}");
        }
        for accept in [
            "text/html, text/event-stream;q=0.001",
            "*/*, text/event-stream;q=0.1",
            "text/event-stream;q=0.4, application/json;q=0.5",
            "text/event-stream;q=0",
            "text/event-stream;q=0, */*;q=0",
            "*/*",
            "text/*",
        ] {
            assert!(!prefers(accept), "{accept}");
        }
    }
}
