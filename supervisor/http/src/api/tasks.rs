//! Calling a task: the body of the request is the input.
//!
//! ```text
//!   POST ----------------------------------> waits for the end: 200 with the output, or a problem
//!     |-- Prefer: respond-async -----------> 202, and the job's address
//!     |-- Prefer: wait=N ------------------> the same as the first if it ends so soon, otherwise as the second
//!     '-- Accept: text/event-stream, or Offload-Stream: true: the parts of the output as they come (`parts.rs`)
//! ```

use super::headers::{Preference, describe, key, preference};
use super::parts;
use crate::ended::{Failure, header};
use crate::offload::{Accepted, JOB, Offload, RequestContext};
use crate::problem::Problem;
use crate::request::Request;
use crate::respond::{IntoResponse, Json, Response};
use crate::server::Server;
use http::StatusCode;
use http::header::{HeaderName, HeaderValue, LOCATION};
use offload_supervisor::Job;
use offload_supervisor::service::Reply;
use serde_json::json;
use std::future::{Future, IntoFuture, ready};
use std::pin::Pin;
use std::time::Duration;

const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

pub(super) fn mount(server: &Server) {
    server.post("/v1/tasks/{task}", |request, context| {
        let (trace, answer) = (trace_of(&request), answer(request, context));
        async move { traced(trace, answer.await) }
    });
}

/// The trace that the request belongs to.
pub(super) fn trace_of(request: &Request) -> Option<HeaderValue> {
    request.headers().get(TRACEPARENT).cloned()
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
    pub(super) key: Option<String>,
    pub(super) preference: Preference,
    /// The output is sent in parts, in this form.
    pub(super) stream: Option<parts::Form>,
    /// If the client goes away; None leaves it to the server.
    pub(super) is_cancelled: Option<bool>,
}

/// What is answered, later.
pub(super) type Answer = Pin<Box<dyn Future<Output = Result<Response, Failure>>>>;

/// Calls the task that the path names with a request.
fn answer(request: Request, context: RequestContext) -> Answer {
    match order(&request) {
        Ok(order) => carry_out(order, request, context),
        Err(problem) => Box::pin(ready(Err(problem.into()))),
    }
}

fn order(request: &Request) -> Result<Order, Problem> {
    let task = request.parameter("task").unwrap_or("");
    Ok(Order {
        preference: preference(request)?,
        job: describe(request, Job::new(task))?,
        key: key(request)?,
        stream: parts::wanted(request)?,
        is_cancelled: None,
    })
}

/// Runs the job on the body of the request.
pub(super) fn carry_out(order: Order, request: Request, context: RequestContext) -> Answer {
    let Order { job, key, preference, stream, is_cancelled } = order;
    if let Some(form) = stream {
        return Box::pin(parts::stream(form, job, key, request, context));
    }
    let offload = context.offload("", request.body()).with(|_| job);
    let offload = if let Some(key) = key { offload.key(key) } else { offload };
    let offload = if let Some(is) = is_cancelled { offload.cancel_on_disconnect(is) } else { offload };
    match preference {
        Preference { is_async: false, wait: None } => {
            let output = offload.for_its_client().into_future();
            Box::pin(async move { Ok(output.await?.into_response()) })
        }
        Preference { wait, .. } => Box::pin(later(offload, wait.unwrap_or_default(), context)),
    }
}

/// The job goes on whether its client waits or not.
async fn later(offload: Offload, wait: Duration, context: RequestContext) -> Result<Response, Failure> {
    let mut accepted = offload.submit(true).await?;
    let applied = match wait {
        Duration::ZERO => "respond-async".to_owned(),
        wait => format!("wait={}", wait.as_secs()),
    };
    let mut response = match end_within(&mut accepted, wait, &context).await {
        Some(ended) => ended?.into_response(),
        None => accepted_response(&accepted.job),
    };
    response.headers_mut().insert(PREFERENCE_APPLIED, header(&applied));
    Ok(response)
}

async fn end_within(
    accepted: &mut Accepted,
    wait: Duration,
    context: &RequestContext,
) -> Option<Result<crate::ended::Output, Failure>> {
    if wait.is_zero() {
        return None;
    }
    let now = accepted.session.wait(crate::offload::TICKET, &accepted.job);
    let reply = match now {
        Some(reply) => reply,
        None => accepted.answers.next_within(&context.clock, wait).await?,
    };
    match reply {
        Reply::Report(report) => Some(accepted.finished(*report)),
        Reply::Refusal(error) => Some(Err(Failure::refused(&error))),
        _ => None,
    }
}

fn accepted_response(job: &str) -> Response {
    let address = format!("/v1/jobs/{job}");
    let document = json!({"job": job, "location": address, "events": format!("{address}/events")});
    let mut response = (StatusCode::ACCEPTED, Json(document)).into_response();
    response.headers_mut().insert(LOCATION, header(&address));
    response.headers_mut().insert(JOB, header(job));
    response
}
