//! Requests: what an application is asked.

use crate::{Bytes, Input, MediaType, TaskContext};
use serde::de::IgnoredAny;
use ureq_proto::Error;
use ureq_proto::client::state::{RecvResponse, SendRequest};
use ureq_proto::client::{Call, SendRequestResult};
use ureq_proto::http::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use ureq_proto::http::request::Builder;
use ureq_proto::http::{HeaderName, HeaderValue, Method, Request as Head};

/// Keys of metadata that are fields of their own (W3C Trace Context).
const TRACES: [&str; 2] = ["traceparent", "tracestate"];

/// Room for the longest line of a head.
const LINE_MAX: usize = 8 << 10;

/// A request as bytes, and what reads its answer.
pub(super) struct Request {
    pub(super) head: Bytes,
    pub(super) body: Bytes,
    pub(super) answer: Call<RecvResponse>,
}

impl Request {
    /// A job.
    ///
    /// # Errors
    /// It cannot be said in HTTP.
    pub(super) fn of_job(task: &str, input: &Input, context: &TaskContext<'_>) -> Result<Request, Error> {
        let mut head = begun(Method::POST, &format!("/{task}"))
            .header(CONTENT_TYPE, media_type(input).as_str())
            .header(CONTENT_LENGTH, input.bytes.len())
            .header(ACCEPT_ENCODING, "identity")
            .header("offload-job", context.job())
            .header("offload-attempt", context.attempt());
        if let Some(left) = context.remaining() {
            head = head.header("offload-remaining-ms", u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        }
        for (key, value) in context.metadata().iter() {
            // A value that no field can have is left out.
            if let (Some(name), Ok(value)) = (field(key), HeaderValue::from_bytes(value.as_bytes())) {
                head = head.header(name, value);
            }
        }
        Request::new(head, input.bytes.clone())
    }

    /// A question that any application has an answer to, and that changes nothing in it.
    ///
    /// # Errors
    /// Never.
    pub(super) fn to_find_out_whether_it_answers() -> Result<Request, Error> {
        Request::new(begun(Method::OPTIONS, "/"), Bytes::new())
    }

    fn new(head: Builder, body: Bytes) -> Result<Request, Error> {
        let head = head.body(()).map_err(|error| Error::BadHeader(error.to_string()))?;
        let mut call = Call::new(head)?.proceed();
        let head = written(&mut call)?;
        let answer = match call.proceed()? {
            Some(SendRequestResult::RecvResponse(call)) => Some(call),
            Some(SendRequestResult::SendBody(mut call)) => {
                // What is sent of it, and when, is not decided here: an answer may come before that.
                call.consume_direct_write(body.len())?;
                call.proceed()
            }
            _ => None,
        };
        Ok(Request { head, body, answer: answer.ok_or(Error::OutputOverflow)? })
    }
}

fn begun(method: Method, path: &str) -> Builder {
    Head::builder().method(method).uri(path).header(HOST, "localhost").header(CONNECTION, "close")
}

fn written(call: &mut Call<SendRequest>) -> Result<Bytes, Error> {
    let (mut head, mut some) = (Vec::new(), [0; LINE_MAX]);
    while !call.can_proceed() {
        let count = call.write(&mut some)?;
        head.extend_from_slice(&some[..count]);
    }
    Ok(head.into())
}

fn field(key: &str) -> Option<HeaderName> {
    match TRACES.contains(&key) {
        true => HeaderName::from_bytes(key.as_bytes()).ok(),
        false => HeaderName::from_bytes(format!("offload-meta-{key}").as_bytes()).ok(),
    }
}

/// Clients that know no better call everything text or bytes, and applications that take JSON want to be told of it.
fn media_type(input: &Input) -> &MediaType {
    let is_unsaid = [MediaType::TEXT, MediaType::OCTET_STREAM].contains(&input.media_type);
    match is_unsaid && serde_json::from_slice::<IgnoredAny>(&input.bytes).is_ok() {
        true => &MediaType::JSON,
        false => &input.media_type,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_of_which_nothing_is_said_is_json_if_it_can_be() {
        let called = |bytes: &'static str, said: &str| {
            media_type(&Input { bytes: bytes.into(), media_type: said.parse().unwrap() }).to_string()
        };
        assert_eq!(called("[1]", "text/plain; charset=utf-8"), "application/json");
        assert_eq!(called("{}", "application/octet-stream"), "application/json");
        assert_eq!(called("[1", "application/octet-stream"), "application/octet-stream");
        assert_eq!(called("[1]", "text/plain"), "text/plain");
        assert_eq!(called("[1]", "image/png"), "image/png");
    }

    #[test]
    fn the_question_of_the_start_is_one_without_a_body() {
        let request = Request::to_find_out_whether_it_answers().unwrap();
        let head = String::from_utf8(request.head.to_vec()).unwrap();
        assert_eq!(head, "OPTIONS / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        assert!(request.body.is_empty());
    }
}
