//! A job from its request to what its answer says of it.

use super::answer::Head;
use super::application::Application;
use super::exchange::{Begun, Broken, Exchange};
use super::request::Request;
use crate::limits::HTTP_APP_WHOLE_MAX;
use crate::parts::PartError;
use crate::task::{Output, TaskError};
use crate::{Bytes, Input, MediaType, TaskContext};
use offload_protocol::limits::MESSAGE_MAX;
use ureq_proto::http::header::{CONTENT_ENCODING, CONTENT_TYPE, LOCATION};
use ureq_proto::http::{HeaderName, Response, StatusCode};

/// What became of the job. If the application ends, or breaks the connection, so does this process.
pub(super) fn run(
    application: &mut Application,
    task: &str,
    input: &Input,
    context: &mut TaskContext<'_>,
) -> Result<Output, TaskError> {
    let mut begun = Begun::No;
    match answer(application, Request::of_job(task, input, context)?, context, &mut begun) {
        Ok(outcome) => outcome,
        Err(Broken::Wrong(why)) => Err(TaskError::met(format_args!("the application {why}"))),
        Err(broken) => application.end_during(broken, (context.job(), context.attempt()), begun),
    }
}

/// The outcome that the application decided on.
type Answered = Result<Output, TaskError>;

fn answer(
    application: &mut Application,
    request: Request,
    context: &mut TaskContext<'_>,
    begun: &mut Begun,
) -> Result<Answered, Broken> {
    let mut exchange = application.ask(request)?;
    let answered = answer_on(&mut exchange, context);
    *begun = exchange.begun();
    answered
}

fn answer_on(exchange: &mut Exchange<'_>, context: &mut TaskContext<'_>) -> Result<Answered, Broken> {
    let Head { response, length } = exchange.head()?;
    match response.status().is_success() {
        false => failure(&response, exchange).map(Err),
        // What is packed is not what its media type says, and an output has no other word for that.
        true if coding(&response).is_some() => {
            let coding = coding(&response).unwrap_or_default().to_owned();
            while exchange.piece()?.is_some() {}
            Ok(Err(TaskError::met(format_args!(
                "the application answered with Content-Encoding: {coding}, and an output is passed on as it is"
            ))))
        }
        true => {
            let media_type = text_of(&response, &CONTENT_TYPE).and_then(|text| text.parse().ok());
            let media_type = media_type.unwrap_or(MediaType::OCTET_STREAM);
            match length.is_some_and(|length| length <= HTTP_APP_WHOLE_MAX) {
                true => whole(exchange, media_type),
                false => in_parts(exchange, media_type, context),
            }
        }
    }
}

fn whole(exchange: &mut Exchange<'_>, media_type: MediaType) -> Result<Answered, Broken> {
    let mut bytes = Vec::new();
    while let Some(piece) = exchange.piece()? {
        bytes.extend_from_slice(&piece);
    }
    Ok(Ok(Output { bytes: bytes.into(), media_type }))
}

fn in_parts(
    exchange: &mut Exchange<'_>,
    media_type: MediaType,
    context: &mut TaskContext<'_>,
) -> Result<Answered, Broken> {
    while let Some(piece) = exchange.piece()? {
        match context.send_part(piece) {
            Ok(()) => {}
            // What it is doing could only be stopped with it.
            Err(PartError::Cancelled) => return Err(Broken::Unwanted),
            Err(error) => return Ok(Err(TaskError::met(error))),
        }
    }
    Ok(Ok(Output { bytes: Bytes::new(), media_type }))
}

/// Reads all of the body, although only its beginning fits into a message, because the application has not finished the job before.
fn failure(response: &Response<()>, exchange: &mut Exchange<'_>) -> Result<TaskError, Broken> {
    let mut body = Vec::new();
    while let Some(piece) = exchange.piece()? {
        let room = MESSAGE_MAX.saturating_sub(body.len());
        body.extend_from_slice(&piece[..piece.len().min(room)]);
    }
    let message = message(response, String::from_utf8_lossy(&body).trim());
    // An answer of 4xx is for whoever sent the request. One of 5xx may be the traceback of the application.
    let is_for_callers = response.status().is_client_error();
    Ok(if is_for_callers { TaskError::new(message) } else { TaskError::met(message) })
}

fn message(response: &Response<()>, body: &str) -> String {
    let status = response.status();
    match (said(status), text_of(response, &LOCATION)) {
        (status_text, Some(place)) if status.is_redirection() => {
            format!("{status_text}: it sends on to {place}, and a job is sent to /TASK alone")
        }
        (_, _) if status.is_client_error() && !body.is_empty() => body.to_owned(),
        (status_text, _) if body.is_empty() => status_text,
        (status_text, _) => format!("{status_text}: {body}"),
    }
}

fn said(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => format!("status {}", status.as_u16()),
    }
}

/// How the body is packed, if it is.
fn coding(response: &Response<()>) -> Option<&str> {
    text_of(response, &CONTENT_ENCODING).filter(|coding| !coding.trim().eq_ignore_ascii_case("identity"))
}

fn text_of<'a>(response: &'a Response<()>, name: &HeaderName) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message_of(status: u16, body: &str) -> String {
        let response = Response::builder().status(status).header(LOCATION, "/there").body(()).unwrap();
        message(&response, body)
    }

    #[test]
    fn a_message_is_what_the_application_says_of_it() {
        assert_eq!(message_of(422, "no number"), "no number");
        assert_eq!(message_of(404, ""), "404 Not Found");
        assert_eq!(message_of(500, "oh"), "500 Internal Server Error: oh");
        assert_eq!(message_of(599, ""), "status 599");
        assert!(message_of(307, "moved").starts_with("307 Temporary Redirect: it sends on to /there"));
        assert_eq!(message_of(101, ""), "101 Switching Protocols");
    }
}
