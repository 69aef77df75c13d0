//! Calling a task: the body of the request is the input.
//!
//! ```text
//!   POST ----------------------------------> waits for the end: 200 with the output, or a problem
//!     |-- Prefer: respond-async -----------> 202, and the job's address
//!     |-- Prefer: wait=N ------------------> the same as the first if it ends so soon, otherwise as the second
//!     '-- Accept: text/event-stream, or Offload-Stream: true: the parts of the output as they come (`parts.rs`)
//! ```

use super::headers::{Preference, describe, preference, says_anything};
use super::{own_fields, parts};
use crate::ended::{Failure, header};
use crate::offload::{Accepted, Input, JOB, Offload, RequestContext};
use crate::problem::Problem;
use crate::request::Request;
use crate::respond::{IntoResponse, Json, Response};
use crate::run::Run;
use crate::server::{Handler, Server};
use http::header::{HeaderName, HeaderValue, LOCATION};
use http::{Method, StatusCode};
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::Job;
use offload_supervisor::service::Reply;
use serde_json::json;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

pub(super) fn mount(server: &Server) {
    let handler: Handler = Rc::new(|request, context| Box::pin(answer(request, context)));
    server.add(Method::POST, "/v1/tasks/{task}", handler).expect("the path of a route");
}

/// An answer that repeats the trace of its request.
struct Traced(Option<HeaderValue>, Answer);

impl Future for Traced {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response> {
        let answer = ready!(Pin::new(&mut self.1).poll(context));
        Poll::Ready(traced(self.0.take(), answer))
    }
}

/// The trace that the request belongs to. What its job is not given, because it is no text, is not repeated either.
pub(super) fn trace_of(request: &Request) -> Option<HeaderValue> {
    request.header(TRACEPARENT.as_str()).map(header)
}

/// The answer; it repeats the trace.
pub(super) fn traced(trace: Option<HeaderValue>, answer: Result<Response, Failure>) -> Response {
    let mut response = answer.into_response();
    response.headers_mut().extend(trace.map(|trace| (TRACEPARENT, trace)));
    response
}

/// What a request asks for.
pub(super) struct Order {
    pub(super) job: Job,
    pub(super) preference: Preference,
    /// The output is sent in parts, in this form.
    pub(super) stream: Option<parts::Form>,
    /// If the client goes away; None leaves it to the server.
    pub(super) is_cancelled: Option<bool>,
    /// The client has shown no token. What is known before a stream begins is not hidden here.
    pub(super) hides_causes: bool,
}

impl Order {
    /// Nothing is said of how the job is to be done.
    fn of(job: Job) -> Order {
        Order {
            job,
            preference: Preference::default(),
            stream: None,
            is_cancelled: None,
            hides_causes: false,
        }
    }
}

/// What is answered, later.
pub(super) enum Answer {
    /// The output of a job. Nearly all are this.
    Run(Run),
    Other(Pin<Box<dyn Future<Output = Result<Response, Failure>>>>),
}

impl Answer {
    pub(super) fn of(future: impl Future<Output = Result<Response, Failure>> + 'static) -> Answer {
        Answer::Other(Box::pin(future))
    }
}

impl Future for Answer {
    type Output = Result<Response, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Answer::Run(run) => Pin::new(run).poll(context).map_ok(IntoResponse::into_response),
            Answer::Other(future) => future.as_mut().poll(context),
        }
    }
}

/// Calls the task that the path names with a request.
fn answer(request: Request, context: RequestContext) -> Traced {
    let job = Job::new(request.parameter("task").unwrap_or(""));
    let (trace, order) = match says_anything(request.headers()) {
        true => (trace_of(&request), order(&request, job)),
        false => (None, Ok(Order { stream: parts::accepted(&request), ..Order::of(job) })),
    };
    let answer = match order {
        Ok(order) => carry_out(order, request, context),
        Err(problem) => Answer::of(std::future::ready(Err(problem.into()))),
    };
    Traced(trace, answer)
}

fn order(request: &Request, job: Job) -> Result<Order, Problem> {
    own_fields::check(request.headers())?;
    Ok(Order {
        preference: preference(request.headers()),
        job: describe(request, job)?,
        stream: parts::wanted(request)?,
        is_cancelled: None,
        hides_causes: false,
    })
}

/// Runs the job on the body of the request.
pub(super) fn carry_out(order: Order, request: Request, context: RequestContext) -> Answer {
    let Order { job, preference, stream, is_cancelled, hides_causes } = order;
    if let Some(form) = stream {
        return Answer::of(parts::stream((form, hides_causes), job, request, context));
    }
    let is_cancelled = is_cancelled.unwrap_or(context.cancels_on_disconnect);
    let input = Input::from(request.body());
    match preference {
        Preference { is_async: false, wait: None } => {
            Answer::Run(Run::new(Offload { context, job, input, is_cancelled, is_the_answer: true }))
        }
        Preference { wait, .. } => {
            let its = context.clone();
            let offload = Offload { context, job, input, is_cancelled, is_the_answer: false };
            Answer::of(later(offload, wait.unwrap_or_default(), its))
        }
    }
}

/// The job goes on whether its client waits or not.
async fn later(offload: Offload, wait: Duration, context: RequestContext) -> Result<Response, Failure> {
    let mut accepted = offload.submit(true).await?;
    context.job_goes_on(&accepted.job, Some(address_of(&accepted.job)));
    let waited = wait_for_end(&mut accepted, wait, &context).await;
    let applied = match waited {
        Waited::Not => "respond-async".to_owned(),
        Waited::InVain | Waited::Ended(_) => format!("wait={}", wait.as_secs()),
    };
    let mut response = match waited {
        Waited::Ended(ended) => ended?.into_response(),
        Waited::Not | Waited::InVain => accepted_response(&accepted.job),
    };
    response.headers_mut().insert(PREFERENCE_APPLIED, header(&applied));
    Ok(response)
}

/// What came of waiting for a job.
enum Waited {
    /// Nobody has.
    Not,
    /// It has not ended in time.
    InVain,
    /// It has ended.
    Ended(Result<crate::ended::Output, Failure>),
}

async fn wait_for_end(accepted: &mut Accepted, wait: Duration, context: &RequestContext) -> Waited {
    if wait.is_zero() {
        return Waited::Not;
    }
    let reply = match accepted.session.wait(crate::offload::TICKET, &accepted.job) {
        Some(reply) => Some(reply),
        None => accepted.answers.next_within(&context.clock, wait).await,
    };
    match reply {
        Some(Reply::Report(report)) => Waited::Ended(accepted.finished(*report)),
        // So many wait for this job already that this client may not: it is told where the job is.
        Some(Reply::Refusal(error)) if error.code == OutcomeCode::Overloaded => Waited::Not,
        Some(Reply::Refusal(error)) => Waited::Ended(Err(Failure::refused(&error))),
        Some(_) | None => Waited::InVain,
    }
}

/// Where the job is.
fn address_of(job: &str) -> String {
    format!("/v1/jobs/{job}")
}

fn accepted_response(job: &str) -> Response {
    let address = address_of(job);
    let document = json!({"job": job, "location": address, "events": format!("{address}/events")});
    let mut response = (StatusCode::ACCEPTED, Json(document)).into_response();
    response.headers_mut().insert(LOCATION, header(&address));
    response.headers_mut().insert(JOB, header(job));
    response
}
