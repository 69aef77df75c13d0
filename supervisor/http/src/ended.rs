//! How a job ended, as a response.

use crate::body::{Body, BodyError};
use crate::offload::JOB;
use crate::problem::Problem;
use crate::respond::{IntoResponse, Response};
use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use offload_protocol::nouns::{ErrorDetail, MediaType, OutcomeCode, Receipt};
use offload_supervisor::service::{Reply, Report};
use std::fmt::Write;
use std::rc::Rc;

/// Where the time of the job went, in a response.
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// What the client of a job is told.
///
/// # Errors
/// It failed.
pub(crate) fn finished(report: Report, job: String) -> Result<Output, Failure> {
    match &report.finished.report.error {
        None => Ok(Output { report: Rc::new(report) }),
        Some(error) => {
            let attempts = Some(report.finished.report.attempts);
            let timing = timing(&report.finished.report.receipt);
            let problem = Problem::of_job(report.finished.report.outcome, error);
            Err(Failure { problem: Problem { job: Some(job), attempts, ..problem }, timing: Some(timing) })
        }
    }
}

/// How a job ended well: its output, and what is known about the run. Until this and the response are dropped, the output is
/// counted in the memory of its client.
///
/// An output that is kept, because its client has asked for that with `Prefer: wait`, is kept until the last byte of the response was
/// handed to the system.
#[derive(Clone, Debug)]
pub struct Output {
    report: Rc<Report>,
}

impl Output {
    /// The bytes that the task returned.
    pub fn bytes(&self) -> &Bytes {
        &self.report.finished.output
    }

    /// What they are.
    pub fn media_type(&self) -> &MediaType {
        &self.report().media_type
    }

    /// Everything else about the job.
    pub fn report(&self) -> &offload_protocol::nouns::Report {
        &self.report.finished.report
    }
}

impl IntoResponse for Output {
    fn into_response(self) -> Response {
        let report = self.report();
        let (media_type, timing) = (header(report.media_type.as_str()), timing(&report.receipt));
        let job = header(&report.job);
        let mut body = Body::holding(self.bytes().clone(), Rc::clone(&self.report));
        body.collects(self.report.collection.clone());
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, media_type);
        headers.insert(JOB, job);
        headers.insert(SERVER_TIMING, header(&timing));
        response
    }
}

/// Why there is no output: the job was refused, or it failed.
#[derive(Clone, Debug)]
pub struct Failure {
    problem: Problem,
    timing: Option<String>,
}

impl Failure {
    /// The same as this error.
    pub fn refused(error: &ErrorDetail) -> Failure {
        Failure { problem: Problem::of(error), timing: None }
    }

    /// An answer that is not the one that was asked for: a refusal, or a mistake of the supervisor.
    pub(crate) fn unexpected(reply: &Reply) -> Failure {
        match reply {
            Reply::Refusal(error) => Failure::refused(error),
            other => Failure::refused(&ErrorDetail::new(
                OutcomeCode::Panic,
                format!("the supervisor gave an answer that nobody asked for: {other:?}"),
            )),
        }
    }

    /// What the client is told.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        Failure { problem, timing: None }
    }
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Failure {
        let (status, code) = match error {
            BodyError::Late => (StatusCode::REQUEST_TIMEOUT, OutcomeCode::Timeout),
            BodyError::Broken => (StatusCode::BAD_REQUEST, OutcomeCode::BadRequest),
        };
        Failure::from(Problem::with_status(status, code, error.to_string()))
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let job = self.problem.job.as_deref().map(header);
        let mut response = self.problem.into_response();
        response.headers_mut().extend(job.map(|job| (JOB, job)));
        response.headers_mut().extend(self.timing.map(|timing| (SERVER_TIMING, header(&timing))));
        response
    }
}

/// Times in milliseconds, as the header wants them.
pub(crate) fn timing(receipt: &Receipt) -> String {
    let Receipt { queued_us, run_us, returned_us, .. } = receipt;
    let mut text = String::with_capacity(64);
    for (place, (name, micros)) in
        [("queue", queued_us), ("run", run_us), ("return", returned_us)].into_iter().enumerate()
    {
        let separator = if place == 0 { "" } else { ", " };
        let _ = write!(text, "{separator}{name};dur={}.{:03}", micros / 1000, micros % 1000);
    }
    text
}

/// The texts that come here are visible ASCII.
pub(crate) fn header(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}
