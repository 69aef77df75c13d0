//! What happens to a job, as it happens: server-sent events.
//!
//! ```text
//!   GET /v1/jobs/{id}/events ---> state, progress, progress, ... end
//! ```
//!
//! Each event has an id. A client that lost the connection sends the last one that it got (`Last-Event-ID`), and is not told the
//! same again; if that was the end, the answer is 204, after which a browser does not come back.

use super::jobs::{document, is_awaited};
use crate::body::{Body, BrokenOff, Produce};
use crate::ended::Failure;
use crate::offload::{Answers, RequestContext};
use crate::request::Request;
use crate::respond::{IntoResponse, Response};
use crate::server::Server;
use crate::turns::Place;
use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use offload_supervisor::service::Session;
use offload_supervisor::views::{GlanceView, OpenState};
use serde::Serialize;
use serde_json::json;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

pub(super) const EVENT_STREAM: &str = "text/event-stream";

/// How often the progress of a job is looked at while somebody follows it.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// After so many looks without news a comment is sent, so that nothing between here and there takes the connection for dead.
const QUIET_LOOKS_MAX: u32 = 60;

pub(super) fn mount(server: &Server) {
    server.get("/v1/jobs/{id}/events", |request, context| async move { follow(&request, &context) });
}

/// One event as it is sent.
pub(super) fn event(name: &str, id: Option<&str>, data: &impl Serialize) -> Bytes {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    let data = serde_json::to_string(data).expect("the keys of what is sent are strings");
    Bytes::from(format!("{id}event: {name}\ndata: {data}\n\n"))
}

/// A response whose body is a stream of events.
pub(super) fn events_response(produce: impl Produce + 'static) -> Response {
    let mut response = Response::new(Body::stream(produce));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    response
}

/// Follows a job to its end.
fn follow(request: &Request, context: &RequestContext) -> Result<Response, Failure> {
    let job = request.parameter("id").unwrap_or("").to_owned();
    let told = request.header("last-event-id").unwrap_or("").to_owned();
    let (session, answers) = context.open();
    if !is_awaited(&session, &job)? {
        match context.service().glance(&job) {
            // Whoever comes back with that would otherwise do so for ever.
            Some(glance) if event_id(&glance) == told => return Ok(StatusCode::NO_CONTENT.into_response()),
            Some(_) => {}
            // This says why.
            None => drop(document(&job, context)?),
        }
    }
    let looks = Looks::new(context.clone());
    let place = Place::of(context.asker.account());
    Ok(events_response(Following {
        job,
        looks,
        request: context.clone(),
        _session: session,
        answers,
        told,
        is_due: false,
        has_ended: false,
        place,
    }))
}

/// It changes with the state, and with the progress.
fn event_id(glance: &GlanceView) -> String {
    let GlanceView { state: word, attempts, progress } = glance;
    match progress {
        Some((done, total)) => format!("{word}-{attempts}-{done}-{total}"),
        None => format!("{word}-{attempts}"),
    }
}

/// Looks at a job, at once and then every quarter of a second, for a stream of events.
pub(super) struct Looks {
    context: RequestContext,
    next: Pin<Box<dyn Future<Output = ()>>>,
    /// How many looks have shown nothing new since something was sent.
    quiet: u32,
}

impl Looks {
    pub(super) fn new(context: RequestContext) -> Looks {
        let next = Box::pin(context.event_loop().sleep(Duration::ZERO));
        Looks { context, next, quiet: 0 }
    }

    /// Ready when it is time to look.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        ready!(self.next.as_mut().poll(context));
        self.next = Box::pin(self.context.event_loop().sleep(LOOK_EVERY));
        Poll::Ready(())
    }

    pub(super) fn glance(&self, job: &str) -> Option<GlanceView> {
        self.context.service().glance(job)
    }

    /// What is sent after a look that has shown this: the news, or now and then a comment.
    pub(super) fn told(&mut self, news: Option<Bytes>) -> Option<Bytes> {
        self.quiet = if news.is_some() { 0 } else { self.quiet + 1 };
        if self.quiet < QUIET_LOOKS_MAX {
            return news;
        }
        self.quiet = 0;
        Some(Bytes::from_static(b": still there\n\n"))
    }
}

struct Following {
    job: String,
    looks: Looks,
    request: RequestContext,
    _session: Session,
    answers: Rc<Answers>,
    /// The id of what the client knows.
    told: String,
    /// It is time to look, and the event that may come of it is still to be written.
    is_due: bool,
    has_ended: bool,
    /// Among those who wait to write a document: an event is one.
    place: Rc<Place>,
}

impl Following {
    /// Looks at the job. Returns whether there is something to tell.
    fn has_news(&mut self) -> bool {
        let glance = self.looks.glance(&self.job);
        self.has_ended = glance.as_ref().is_none_or(|glance| OpenState::of_word(glance.state).is_none());
        glance.is_none_or(|glance| event_id(&glance) != self.told)
    }

    /// The state as an event, with an id that changes with it.
    fn state(&mut self) -> Bytes {
        let Some(glance) = self.looks.glance(&self.job) else { return self.forgotten() };
        let Ok(document) = document(&self.job, &self.request) else { return self.forgotten() };
        self.told = event_id(&glance);
        let name = match (self.has_ended, glance.progress.is_some()) {
            (true, _) => "end",
            (false, true) => "progress",
            (false, false) => "state",
        };
        event(name, Some(&self.told), &document)
    }

    fn forgotten(&mut self) -> Bytes {
        self.has_ended = true;
        event("end", None, &json!({"job": self.job, "state": "forgotten"}))
    }
}

impl Produce for Following {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenOff>>> {
        loop {
            if self.has_ended && !self.is_due {
                return Poll::Ready(None);
            }
            if self.answers.poll_next(context).is_ready() {
                // It has ended: one event says so, even if the client knew the state.
                self.told.clear();
            } else if !self.is_due {
                ready!(self.looks.poll(context));
            }
            self.is_due = true;
            let mut news = None;
            if self.has_news() {
                ready!(self.request.poll_turn(&self.place, context));
                let request = self.request.clone();
                news = Some(request.write_document(|| self.state()));
            }
            self.is_due = false;
            if let Some(event) = self.looks.told(news) {
                return Poll::Ready(Some(Ok(self.request.documented_piece(event))));
            }
        }
    }
}
