//! What a client is told when there is no result: a problem document (RFC 9457), whose `code` is the outcome of the job, or why
//! it was rejected.

use crate::body::Body;
use crate::guard::Violation;
use crate::protection::FIELDS;
use crate::respond::{IntoResponse, Response};
use http::StatusCode;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use serde::Serialize;
use std::fmt;
use std::time::SystemTime;

/// The media type of a problem document.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// The `code` of a request for a path at which there is nothing. No job ends so, so it is no [`OutcomeCode`].
pub const NOT_FOUND: &str = "not_found";

/// The `code` of a request whose path has other methods than its own.
pub const METHOD_NOT_ALLOWED: &str = "method_not_allowed";

/// When to come back if nothing is known of when it will be better.
const RETRY_MS: u64 = 1000;

/// `Retry-After` in milliseconds.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("offload-retry-after-ms");

/// An answer that says what went wrong. It becomes a response with its status, `Retry-After` where that is known, and a body of
/// `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What the status means, in words.
    pub title: &'static str,
    /// The status of the response.
    pub status: u16,
    /// What happened, in one line.
    pub detail: String,
    /// The outcome of the job, or why the request was refused: the word of an [`OutcomeCode`], [`NOT_FOUND`] or
    /// [`METHOD_NOT_ALLOWED`].
    pub code: &'static str,
    /// What ended the last attempt, if the job had several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<&'static str>,
    /// The id of the job, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// How many attempts were started, if there is a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The signal that ended the worker, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The exit code of the worker, if it exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The detail may be told to anybody: see [`Problem::without_cause`].
    #[serde(skip)]
    pub(crate) is_for_anybody: bool,
    /// The body was refused for how it is packed: another media type would not help.
    #[serde(skip)]
    pub(crate) is_about_coding: bool,
    /// After how many milliseconds it may be worth trying again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl Problem {
    /// A problem with the status that belongs to this code. The detail is for whoever sent the request.
    pub fn new(code: OutcomeCode, detail: impl Into<String>) -> Problem {
        Problem::of(&ErrorDetail::for_anybody(code, detail))
    }

    /// A problem with a status of its own, such as 405.
    pub fn with_status(status: StatusCode, code: OutcomeCode, detail: impl Into<String>) -> Problem {
        Problem { status: status.as_u16(), title: title(status), ..Problem::new(code, detail) }
    }

    /// The end of a job with this outcome, because of this error.
    pub fn of_job(outcome: OutcomeCode, error: &ErrorDetail) -> Problem {
        let status = status_of(outcome);
        Problem {
            title: title(status),
            status: status.as_u16(),
            code: outcome.as_str(),
            cause: (outcome != error.code).then(|| error.code.as_str()),
            ..Problem::of(error)
        }
    }

    /// The same for somebody who has shown no token. They are told what a task wrote for its callers, and what the supervisor says of
    /// nothing but numbers and their own request. Everything else may have come from a process of this machine (the last lines of
    /// its standard error, the path of a file, the tasks that there are): of that, they are told only what kind of failure it was.
    pub(crate) fn without_cause(mut self) -> Problem {
        if !self.is_for_anybody {
            let is_of_a_process = self.signal.is_some() || self.exit_code.is_some();
            let code = OutcomeCode::of_word(self.code.as_bytes()).unwrap_or(OutcomeCode::Panic);
            self.detail = kind_of_failure(code, is_of_a_process).to_owned();
        }
        self
    }

    /// The same as this error.
    pub fn of(error: &ErrorDetail) -> Problem {
        let status = status_of(error.code);
        Problem {
            title: title(status),
            status: status.as_u16(),
            detail: error.message.clone(),
            code: error.code.as_str(),
            cause: None,
            job: None,
            attempts: None,
            signal: error.signal,
            exit_code: error.exit_code,
            is_for_anybody: error.is_for_anybody,
            is_about_coding: false,
            retry_after_ms: error
                .retry_after_ms
                .or((status == StatusCode::SERVICE_UNAVAILABLE).then_some(RETRY_MS)),
        }
    }
}

/// One line: the code and the detail.
impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code, self.detail)
    }
}

impl std::error::Error for Problem {}

/// The status of a response for a job that ended so, or a request that was refused so: 200 for `ok`, 422 for `app_error`, 502 if the
/// worker is to blame, 504 for `timeout`, 503 for `overloaded` and `unavailable`, 429 for `quota`, and so on.
pub fn status_of(code: OutcomeCode) -> StatusCode {
    use OutcomeCode::*;
    match code {
        Ok => StatusCode::OK,
        AppError => StatusCode::UNPROCESSABLE_ENTITY,
        Panic | IoPanic => StatusCode::INTERNAL_SERVER_ERROR,
        WorkerCrashed | WorkerOom | WorkerProtocol | Confinement | Poison | Indeterminate | IoError => {
            StatusCode::BAD_GATEWAY
        }
        Timeout => StatusCode::GATEWAY_TIMEOUT,
        // No standard name: the client closed the request, or somebody cancelled it.
        Cancelled => StatusCode::from_u16(499).expect("a number of three digits"),
        Overloaded | Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Quota => StatusCode::TOO_MANY_REQUESTS,
        TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        BadRequest => StatusCode::BAD_REQUEST,
        Unauthenticated => StatusCode::UNAUTHORIZED,
        Forbidden => StatusCode::FORBIDDEN,
        Conflict => StatusCode::CONFLICT,
        StorageFull => StatusCode::INSUFFICIENT_STORAGE,
        Unsupported => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        UnknownTask | NoSuchJob => StatusCode::NOT_FOUND,
    }
}

/// What anybody may know of such an end: one sentence for each kind.
fn kind_of_failure(code: OutcomeCode, is_of_a_process: bool) -> &'static str {
    use OutcomeCode::*;
    match code {
        AppError if is_of_a_process => "the program of the task has failed",
        Ok | AppError => "the task has failed",
        Panic | WorkerCrashed | WorkerOom | WorkerProtocol | Confinement | Poison | Indeterminate => {
            "the worker of the task has failed"
        }
        Timeout => "the job took longer than it may",
        Cancelled => "the job was cancelled",
        IoError | IoPanic => "the task could not read or write what it needs",
        Overloaded | Quota | StorageFull => "there is no room for the job at the moment",
        TooLarge => "the input is too large",
        Unavailable | UnknownTask => "the task cannot be run at the moment",
        BadRequest | Unauthenticated | Forbidden | Conflict | Unsupported | NoSuchJob => {
            "the job cannot be done in this way"
        }
    }
}

/// What a status means, in words: those that are registered, or those that are used for it.
pub(crate) fn title(status: StatusCode) -> &'static str {
    let unregistered = if status.as_u16() == 499 { "Client Closed Request" } else { "Unregistered" };
    status.canonical_reason().unwrap_or(unregistered)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let json = serde_json::to_vec(&self).expect("a problem has string keys and no numbers out of range");
        let mut response = Response::new(Body::from(json));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if self.status == 401 {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.is_about_coding {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        if let Some(millis) = self.retry_after_ms {
            headers.insert(RETRY_AFTER, HeaderValue::from(millis.div_ceil(1000)));
            headers.insert(RETRY_AFTER_MS, HeaderValue::from(millis));
        }
        response
    }
}

/// The whole answer to a request that was not passed on, after which the connection ends, and the length of its content. The answer to a
/// HEAD has none, and says how long that of a GET would be.
pub(crate) fn raw(violation: Violation, is_head: bool) -> (Vec<u8>, usize) {
    let code = match violation.status {
        408 => OutcomeCode::Timeout,
        414 | 431 => OutcomeCode::TooLarge,
        501 | 505 => OutcomeCode::Unsupported,
        503 => OutcomeCode::Overloaded,
        _ => OutcomeCode::BadRequest,
    };
    let status = StatusCode::from_u16(violation.status).unwrap_or(StatusCode::BAD_REQUEST);
    let problem = Problem::with_status(status, code, violation.reason);
    let json = serde_json::to_string(&problem).expect("a problem has string keys");
    let (title, length) = (problem.title, json.len());
    let retry_after = problem.retry_after_ms.map_or(String::new(), |millis| {
        format!("retry-after: {}\r\n{RETRY_AFTER_MS}: {millis}\r\n", millis.div_ceil(1000))
    });
    let protection: String = FIELDS.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let date = httpdate::fmt_http_date(SystemTime::now());
    let mut answer = format!(
        "HTTP/1.1 {} {title}\r\ndate: {date}\r\ncontent-type: {PROBLEM_JSON}\r\ncontent-length: {length}\r\n{protection}\
         {retry_after}connection: close\r\n\r\n",
        problem.status
    );
    let content = if is_head { "" } else { &json };
    answer.push_str(content);
    (answer.into_bytes(), content.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The map of the interface. A client acts on these numbers, so none of them changes by accident.
    const STATUSES: [(OutcomeCode, u16); 25] = [
        (OutcomeCode::Ok, 200),
        (OutcomeCode::AppError, 422),
        (OutcomeCode::Panic, 500),
        (OutcomeCode::WorkerCrashed, 502),
        (OutcomeCode::WorkerOom, 502),
        (OutcomeCode::WorkerProtocol, 502),
        (OutcomeCode::Confinement, 502),
        (OutcomeCode::Timeout, 504),
        (OutcomeCode::Cancelled, 499),
        (OutcomeCode::Poison, 502),
        (OutcomeCode::Indeterminate, 502),
        (OutcomeCode::IoError, 502),
        (OutcomeCode::IoPanic, 500),
        (OutcomeCode::Overloaded, 503),
        (OutcomeCode::Quota, 429),
        (OutcomeCode::TooLarge, 413),
        (OutcomeCode::BadRequest, 400),
        (OutcomeCode::Unauthenticated, 401),
        (OutcomeCode::Forbidden, 403),
        (OutcomeCode::Conflict, 409),
        (OutcomeCode::Unavailable, 503),
        (OutcomeCode::StorageFull, 507),
        (OutcomeCode::Unsupported, 415),
        (OutcomeCode::UnknownTask, 404),
        (OutcomeCode::NoSuchJob, 404),
    ];

    #[test]
    fn every_code_has_a_status_that_fits_its_kind() {
        let statuses: Vec<_> =
            OutcomeCode::ALL.iter().map(|code| (*code, status_of(*code).as_u16())).collect();
        assert_eq!(statuses, STATUSES);
    }

    const NO: Violation = Violation { status: 400, reason: "no" };

    #[test]
    fn whoever_has_shown_no_token_is_told_what_is_meant_for_anybody_and_of_everything_else_the_kind() {
        const SECRET: &str = "KEY=hunter2 at /srv/private";
        let told = |problem: Problem| {
            let neutral = problem.clone().without_cause();
            assert_eq!(
                Problem { detail: problem.detail.clone(), ..neutral.clone() },
                problem,
                "all else stays"
            );
            neutral.detail
        };
        for code in OutcomeCode::ALL {
            for (signal, exit_code) in [(None, None), (None, Some(3)), (Some(9), None)] {
                let said = ErrorDetail { signal, exit_code, ..ErrorDetail::new(*code, SECRET) };
                for problem in [Problem::of(&said), Problem::of_job(OutcomeCode::Timeout, &said)] {
                    let detail = told(problem);
                    assert!(!detail.contains("hunter2") && !detail.is_empty(), "{code:?}: {detail}");
                }
            }
            assert_eq!(told(Problem::of(&ErrorDetail::for_anybody(*code, "no such album"))), "no such album");
            assert_eq!(told(Problem::new(*code, "no such album")), "no such album");
        }
    }

    #[test]
    fn an_answer_to_a_head_that_is_written_here_is_that_to_a_get_without_its_content() {
        let ((to_get, length), (to_head, none)) = (raw(NO, false), raw(NO, true));
        assert_eq!((to_head.len(), none), (to_get.len() - length, 0));
        assert!(to_head.ends_with(b"\r\n\r\n"));
    }

    #[test]
    fn an_answer_that_is_written_here_has_a_date_and_its_length() {
        let (raw, length) = raw(NO, false);
        let raw = String::from_utf8(raw).unwrap();
        let (head, content) = raw.split_once("\r\n\r\n").unwrap();
        assert!(content.len() == length && head.contains(&format!("content-length: {length}\r\n")), "{raw}");
        let date = raw.lines().find_map(|line| line.strip_prefix("date: ")).expect("a date");
        assert!(httpdate::parse_http_date(date).is_ok(), "{date}");
    }

    #[test]
    fn a_time_to_wait_is_told_in_both_units_and_rounded_up() {
        let error = ErrorDetail {
            retry_after_ms: Some(1200),
            ..ErrorDetail::new(OutcomeCode::Overloaded, "the queue is full")
        };
        let response = Problem::of(&error).into_response();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "2");
        assert_eq!(response.headers()["offload-retry-after-ms"], "1200");
    }
}
