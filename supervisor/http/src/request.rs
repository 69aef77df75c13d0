//! A request as a handler sees it.

use crate::body::RequestBody;
use crate::router::Parameters;
use crate::tls::TlsVersion;
use http::header::{GetAll, HeaderName};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Uri};
use percent_encoding::percent_decode_str;
use std::fmt;
use std::iter;
use std::net::{IpAddr, SocketAddr};

/// Who is at the other end of a connection, as far as the system can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// A connection over TCP from this address.
    Address(SocketAddr),
    /// A process of the same user over a Unix socket; None if it cannot be told which.
    Process(Option<u32>),
    /// A process of another user, or of nobody knows whom, over a Unix socket.
    Stranger(Option<u32>),
}

impl Remote {
    /// The process at the other end, if it is known.
    pub(crate) fn process(self) -> Option<u32> {
        match self {
            Remote::Address(_) => None,
            Remote::Process(process) | Remote::Stranger(process) => process,
        }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remote::Address(address) => write!(formatter, "{}", address.ip()),
            Remote::Process(Some(process)) => write!(formatter, "process {process}"),
            Remote::Process(None) => formatter.write_str("a process"),
            Remote::Stranger(Some(process)) => write!(formatter, "process {process} of another user"),
            Remote::Stranger(None) => formatter.write_str("a process of another user"),
        }
    }
}

/// The value of the one field of this name; None if there is none.
///
/// # Errors
/// A sentence: there are several, or it is no visible ASCII.
pub(crate) fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, String> {
    only(&headers.get_all(name), name.as_str())
}

fn only<'a>(values: &GetAll<'a, HeaderValue>, name: &str) -> Result<Option<&'a str>, String> {
    let mut values = values.iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => visible(name, value).map(Some),
        (Some(_), Some(_)) => Err(several(name)),
    }
}

/// What is wrong with a field that may come once, and came more often.
pub(crate) fn several(name: &str) -> String {
    format!("there is more than one field {name}")
}

/// Longest part of what a client sent that an error repeats, in characters.
const SHOWN_MAX: usize = 100;

/// What a client sent, as an error repeats it: in quotes, and not all of it if it is long.
pub(crate) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_MAX).collect();
    if shown.len() < text.len() {
        shown += "...";
    }
    format!("'{shown}'")
}

/// The text of a field.
///
/// # Errors
/// A sentence: it has other characters than visible ASCII.
pub(crate) fn visible<'a>(name: &str, value: &'a HeaderValue) -> Result<&'a str, String> {
    value.to_str().map_err(|_| format!("the field {name} has other characters than visible ASCII"))
}

/// Whether this part of a query is that text, when it is decoded. There may be a thousand parts in a query, and a route may look for many
/// names, so nothing is copied.
fn stands_for(encoded: &str, text: &str) -> bool {
    // A `+` stands for a space; one that is encoded stands for itself.
    let mut parts = encoded.split('+').map(percent_decode_str);
    let first = parts.next().into_iter().flatten();
    first.chain(parts.flat_map(|part| iter::once(b' ').chain(part))).eq(text.bytes())
}

/// A request. Its head has at most [`HEAD_MAX`](crate::limits::HEAD_MAX) bytes and [`FIELDS_MAX`](crate::limits::FIELDS_MAX)
/// fields; its body has not been read yet.
pub struct Request {
    pub(crate) head: Parts,
    pub(crate) parameters: Parameters,
    pub(crate) body: RequestBody,
    pub(crate) remote: Remote,
    pub(crate) client: Option<IpAddr>,
}

impl Request {
    /// The method.
    pub fn method(&self) -> &Method {
        &self.head.method
    }

    /// The target: path and query.
    pub fn uri(&self) -> &Uri {
        &self.head.uri
    }

    /// The header fields.
    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// The value of a header field, if there is exactly one of this name and it is visible ASCII.
    pub fn header(&self, name: &str) -> Option<&str> {
        only(&self.head.headers.get_all(name), name).ok().flatten()
    }

    /// A parameter of the path, decoded: of `/v1/jobs/{id}`, what stands for `id`. None if the route has no such name.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name)
    }

    /// A parameter of the query, decoded: of `?wait=30`, what stands for `wait`. The first one of this name; empty if it has no value.
    /// `+` is a space, and bytes that are no UTF-8 are replaced.
    pub fn query(&self, name: &str) -> Option<String> {
        let mut pairs =
            self.head.uri.query()?.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let (_, value) = pairs.find(|(known, _)| stands_for(known, name))?;
        let value = value.replace('+', " ");
        Some(percent_decode_str(&value).decode_utf8_lossy().into_owned())
    }

    /// Who is at the other end of the connection: a proxy, if one has passed the request on.
    pub fn remote(&self) -> Remote {
        self.remote
    }

    /// The address of the client: as a trusted proxy tells it, or else where the connection comes from. None over a Unix socket.
    pub fn client(&self) -> Option<IpAddr> {
        self.client
    }

    /// The version of TLS that it came over; None if it came in plain text. What a proxy says of its own clients is not asked.
    pub fn tls(&self) -> Option<TlsVersion> {
        self.head.extensions.get().copied()
    }

    /// The body, to be read or handed on to [`RequestContext::offload`](crate::RequestContext::offload), with the media type that the
    /// client has stated.
    pub fn body(self) -> RequestBody {
        self.body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_query_stands_for_what_it_is_when_it_is_decoded() {
        for (encoded, text) in [
            ("width", "width"),
            ("wid%74h", "width"),
            ("%77%69%64%74%68", "width"),
            ("a+b+", "a b "),
            ("+", " "),
            ("a%2Bb", "a+b"),
            ("caf%C3%A9", "caf\u{e9}"),
            ("%zz", "%zz"),
            ("", ""),
        ] {
            assert!(stands_for(encoded, text), "{encoded}");
        }
        for (encoded, text) in
            [("width2", "width"), ("widt", "width"), ("a+b", "a+b"), ("%FF", "y"), ("x", "")]
        {
            assert!(!stands_for(encoded, text), "{encoded}");
        }
    }
}
