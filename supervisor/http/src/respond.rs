//! What a handler may return.

use crate::body::Body;
use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde::Serialize;

/// A response: status, header fields and body.
pub type Response = http::Response<Body>;

/// What can be sent as a response.
///
/// | value | response |
/// |---|---|
/// | `&'static str`, `String` | 200, `text/plain; charset=utf-8` |
/// | [`Bytes`] | 200, `application/octet-stream` |
/// | [`Json`] | 200, `application/json` |
/// | [`Output`](crate::Output) | 200, the media type of the output, the id and the times of its job |
/// | [`Problem`](crate::Problem), [`Failure`](crate::Failure), [`BodyError`](crate::BodyError) | its status, `application/problem+json` |
/// | [`StatusCode`], `(StatusCode, value)` | this status, without a body or with that of the value |
/// | [`Response`] | as it is |
/// | `Result` of two of these | the one that it has |
pub trait IntoResponse {
    /// The response.
    fn into_response(self) -> Response;
}

/// A value that is sent as JSON.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(
    /// The value. If it cannot be written as JSON, because a map of it has keys that are no strings, the response is a problem.
    pub T,
);

fn with_type(body: Body, media_type: &'static str) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// The body is JSON.
pub(crate) fn json_response(body: Body) -> Response {
    with_type(body, "application/json")
}

impl IntoResponse for Response {
    fn into_response(self) -> Response {
        self
    }
}

impl IntoResponse for &'static str {
    fn into_response(self) -> Response {
        with_type(Body::from(self), "text/plain; charset=utf-8")
    }
}

impl IntoResponse for String {
    fn into_response(self) -> Response {
        with_type(Body::from(self), "text/plain; charset=utf-8")
    }
}

impl IntoResponse for Bytes {
    fn into_response(self) -> Response {
        with_type(Body::from(self), "application/octet-stream")
    }
}

impl IntoResponse for StatusCode {
    fn into_response(self) -> Response {
        let mut response = Response::default();
        *response.status_mut() = self;
        response
    }
}

impl<T: IntoResponse> IntoResponse for (StatusCode, T) {
    fn into_response(self) -> Response {
        let mut response = self.1.into_response();
        *response.status_mut() = self.0;
        response
    }
}

impl<T: IntoResponse, E: IntoResponse> IntoResponse for Result<T, E> {
    fn into_response(self) -> Response {
        match self {
            Ok(value) => value.into_response(),
            Err(error) => error.into_response(),
        }
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(json) => json_response(Body::from(json)),
            Err(error) => {
                let detail = format!("the answer cannot be written as JSON: {error}");
                crate::problem::Problem::new(offload_protocol::nouns::OutcomeCode::Panic, detail)
                    .into_response()
            }
        }
    }
}
