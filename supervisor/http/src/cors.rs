//! Which pages may read the answers of a server (CORS, as the Fetch standard has it).
//!
//! ```text
//!   browser: may I?   OPTIONS, Origin, Access-Control-Request-Method   ---> 204 with what is allowed; no token is needed for this
//!   browser: the request itself, with Origin and the token             ---> the answer, with Access-Control-Allow-Origin
//! ```
//!
//! Pages are let in by the list of their origins. `*` stands for any page, and only for routes that need no token. No answer allows
//! credentials: cookies are not used, and a page that knows the token sends it itself.

use crate::api::NeedsNoToken;
use crate::limits::FIELDS_MAX;
use crate::respond::{IntoResponse, Response};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderValue, ORIGIN, VARY,
};
use http::request::Parts;
use http::{Method, StatusCode};

/// Stands for all origins.
const ANY: &str = "*";

/// Fields of requests that pages may set, beside those that begin with [`OWN_PREFIX`].
const REQUEST_FIELDS: [&str; 9] = [
    "accept",
    "authorization",
    "content-type",
    "idempotency-key",
    "last-event-id",
    "prefer",
    "range",
    "traceparent",
    "tracestate",
];

/// See [`REQUEST_FIELDS`].
const OWN_PREFIX: &str = "offload-";

/// Fields of answers that pages may read, beside those that they always may.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "allow, location, offload-job, offload-retry-after-ms, preference-applied, retry-after, server-timing, traceparent",
);

/// For so many seconds a browser need not ask again.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// What an answer depends on beside its path.
const VARIES: HeaderValue = HeaderValue::from_static("Origin");
const PREFLIGHT_VARIES: HeaderValue =
    HeaderValue::from_static("Origin, Access-Control-Request-Method, Access-Control-Request-Headers");

/// The pages that may read the answers of a server. With none, only its own may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cors {
    origins: Vec<String>,
}

/// A request asks whether another one, with this method, would be answered. It is among the extensions of the request's head.
#[derive(Clone, Debug)]
pub(crate) struct Preflight(pub(crate) Method);

/// What an answer says to a browser.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    /// The origin whose page may read it.
    origin: Option<HeaderValue>,
}

impl Cors {
    /// Pages of these origins, as browsers name them (`https://app.example`); `*` stands for any page, and only for routes that
    /// need no token.
    pub fn new(origins: Vec<String>) -> Cors {
        Cors { origins }
    }

    /// Whether a page of this origin may read the answer to this request.
    pub(crate) fn allows(&self, origin: &str, head: &Parts) -> bool {
        let is_any = || self.has_any() && head.extensions.get::<NeedsNoToken>().is_some();
        self.origins.iter().any(|ours| ours == origin && origin != ANY) || is_any()
    }

    /// Whether any page, also one that does not say where it is from, may use routes that need no token.
    pub(crate) fn has_any(&self) -> bool {
        self.origins.iter().any(|ours| ours == ANY)
    }

    /// None if no answer of this server says anything.
    pub(crate) fn grant(&self, head: &Parts) -> Option<Grant> {
        if self.origins.is_empty() {
            return None;
        }
        let mut origins = head.headers.get_all(ORIGIN).iter();
        let origin = origins.next().filter(|_| origins.next().is_none());
        let is_allowed = |origin: &&HeaderValue| origin.to_str().is_ok_and(|text| self.allows(text, head));
        Some(Grant { origin: origin.filter(is_allowed).cloned() })
    }
}

/// Marks the head of a request that is a preflight.
pub(crate) fn mark_preflight(head: &mut Parts) {
    if head.method != Method::OPTIONS || !head.headers.contains_key(ORIGIN) {
        return;
    }
    let method = head.headers.get(ACCESS_CONTROL_REQUEST_METHOD);
    if let Some(method) = method.and_then(|method| Method::from_bytes(method.as_bytes()).ok()) {
        head.extensions.insert(Preflight(method));
    }
}

/// The answer to a preflight for a request that has a handler.
pub(crate) fn preflight_response(head: &Parts, method: &Method) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    let text = |text: &str| HeaderValue::from_str(text).ok();
    headers.extend(text(method.as_str()).map(|method| (ACCESS_CONTROL_ALLOW_METHODS, method)));
    let wanted = head.headers.get(ACCESS_CONTROL_REQUEST_HEADERS).and_then(|wanted| wanted.to_str().ok());
    // Who asks has shown no token, so not more is looked at than a request may have fields.
    let wanted =
        wanted.unwrap_or("").split(',').take(FIELDS_MAX).map(|name| name.trim().to_ascii_lowercase());
    let allowed: Vec<String> = wanted
        .filter(|name| REQUEST_FIELDS.contains(&name.as_str()) || name.starts_with(OWN_PREFIX))
        .collect();
    headers.extend(
        text(&allowed.join(", "))
            .filter(|allowed| !allowed.is_empty())
            .map(|allowed| (ACCESS_CONTROL_ALLOW_HEADERS, allowed)),
    );
    headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    response
}

impl Grant {
    /// Adds what a browser wants to see.
    pub(crate) fn add_to(self, response: &mut Response, is_preflight: bool) {
        let headers = response.headers_mut();
        headers.append(VARY, if is_preflight { PREFLIGHT_VARIES } else { VARIES });
        match self.origin {
            Some(origin) => {
                headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
                if !is_preflight {
                    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
                }
            }
            // Without the origin these allow nothing, and say more than they need to.
            None => {
                for name in
                    [ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_MAX_AGE]
                {
                    headers.remove(name);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(is_open: bool) -> Parts {
        let (mut head, ()) = http::Request::new(()).into_parts();
        if is_open {
            head.extensions.insert(NeedsNoToken);
        }
        head
    }

    #[test]
    fn of_more_fields_than_there_may_be_none_is_looked_at() {
        let (mut head, ()) = http::Request::new(()).into_parts();
        let wanted = vec!["Offload-Label"; 1000].join(", ");
        head.headers.insert(ACCESS_CONTROL_REQUEST_HEADERS, HeaderValue::from_str(&wanted).unwrap());
        let response = preflight_response(&head, &Method::POST);
        let allowed = response.headers()[ACCESS_CONTROL_ALLOW_HEADERS].to_str().unwrap();
        assert_eq!(allowed.split(", ").count(), FIELDS_MAX);
    }

    #[test]
    fn the_star_is_for_routes_without_a_token_and_no_origin_of_its_own() {
        let cors = Cors::new(vec!["https://a.example".to_owned(), ANY.to_owned()]);
        for (origin, is_open, expected) in [
            ("https://a.example", false, true),
            ("https://a.example", true, true),
            ("https://b.example", true, true),
            ("https://b.example", false, false),
            ("null", false, false),
            (ANY, false, false),
        ] {
            assert_eq!(cors.allows(origin, &head(is_open)), expected, "{origin} {is_open}");
        }
        assert!(Cors::default().grant(&head(true)).is_none());
    }
}
