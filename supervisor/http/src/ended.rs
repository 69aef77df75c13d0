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
use send_wrapper::SendWrapper;
use std::fmt;
use std::rc::Rc;

/// Where the time of the job went, in a response.
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// What the client of a job is told.
///
/// # Errors
/// It failed.
pub(crate) fn finished(report: Report) -> Result<Output, Failure> {
    match &report.finished.report.error {
        None => Ok(Output { report: Rc::new(report) }),
        Some(error) => {
            let attempts = Some(report.finished.report.attempts);
            let timing = timing(&report.finished.report.receipt);
            let problem = Problem::of_job(report.finished.report.outcome, error);
            let job = Some(report.finished.report.job.clone());
            Err(Failure { problem: Problem { job, attempts, ..problem }, timing: Some(timing) })
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

/// An output as the body of a response: its report goes when the last byte of it was handed to the system, and with the report the
/// charge for it. All of that stays on the thread of the loop; only the type of [`Bytes`] does not know that.
struct HeldOutput(SendWrapper<Rc<Report>>);

impl AsRef<[u8]> for HeldOutput {
    fn as_ref(&self) -> &[u8] {
        &self.0.finished.output
    }
}

impl IntoResponse for Output {
    fn into_response(self) -> Response {
        let report = self.report();
        let (media_type, timing) = (header(report.media_type.as_str()), timing(&report.receipt));
        let job = header(&report.job);
        let collection = self.report.collection.clone();
        let mut body = Body::from(Bytes::from_owner(HeldOutput(SendWrapper::new(self.report))));
        body.collects(collection);
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, media_type);
        headers.insert(JOB, job);
        headers.insert(SERVER_TIMING, timing);
        response
    }
}

/// Why there is no output: the job was refused, or it failed.
#[derive(Clone, Debug)]
pub struct Failure {
    problem: Problem,
    timing: Option<HeaderValue>,
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

    /// The same for somebody who has shown no token: see [`Problem::without_cause`].
    pub(crate) fn without_cause(self) -> Failure {
        Failure { problem: self.problem.without_cause(), ..self }
    }

    /// What the client is told.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }
}

/// The line of its [problem](Failure::problem).
impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(formatter)
    }
}

/// It says all that its problem says, so it has no source.
impl std::error::Error for Failure {}

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
        response.headers_mut().extend(self.timing.map(|timing| (SERVER_TIMING, timing)));
        response
    }
}

/// Times in milliseconds, as the header wants them. Each output has them, and `format!` would take longer than all other fields.
pub(crate) fn timing(receipt: &Receipt) -> HeaderValue {
    let Receipt { queued_us, run_us, returned_us, .. } = receipt;
    let mut text = Vec::with_capacity(64);
    let times = [("queue;dur=", queued_us), (", run;dur=", run_us), (", return;dur=", returned_us)];
    for (name, micros) in times {
        text.extend_from_slice(name.as_bytes());
        push_decimal(&mut text, micros / 1000);
        text.push(b'.');
        text.extend([100, 10, 1].map(|place| b'0' + (micros / place % 10) as u8));
    }
    HeaderValue::from_maybe_shared(Bytes::from(text)).unwrap_or(HeaderValue::from_static(""))
}

fn push_decimal(text: &mut Vec<u8>, number: u64) {
    if number >= 10 {
        push_decimal(text, number / 10);
    }
    text.push(b'0' + (number % 10) as u8);
}

/// The texts that come here are visible ASCII.
pub(crate) fn header(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_milliseconds_with_three_places() {
        let receipt = Receipt { queued_us: 0, run_us: 1_234_567, returned_us: 45, ..Receipt::default() };
        assert_eq!(timing(&receipt), "queue;dur=0.000, run;dur=1234.567, return;dur=0.045");
    }
}
