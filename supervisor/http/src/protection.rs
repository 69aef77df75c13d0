//! What every answer says to browsers and caches, so that none of them makes of it what it is not.
//!
//! | field | meaning |
//! |---|---|
//! | `X-Content-Type-Options: nosniff` | it is what its media type says, whatever it looks like |
//! | `Cross-Origin-Resource-Policy: same-origin` | pages of other sites cannot embed it. They read it by the rules of `cors.rs` |
//! | `Cache-Control: no-store` | it was for this client at this time |
//!
//! A handler, or the fields of a route, may say otherwise of its own answers: then that stands.

use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};

/// The fields with what they say unless they are there already.
pub(crate) const FIELDS: [(HeaderName, &str); 3] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (CACHE_CONTROL, "no-store"),
];

/// Adds the fields that are not there.
pub(crate) fn protect(headers: &mut HeaderMap) {
    for (name, value) in FIELDS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_handler_says_stands() {
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=60"));
        protect(&mut headers);
        assert_eq!((&headers[CACHE_CONTROL], headers.len()), (&HeaderValue::from_static("max-age=60"), 3));
    }
}
