//! The access log: a line for each request, when its answer has been taken or its client is gone. The lines go through a
//! [`Printer`](offload_supervisor::printer::Printer), so nothing here waits for a disk.
//!
//! ```text
//!   203.0.113.9 - - [23/Nov/2026:12:00:00 +0000] "POST /v1/tasks/primes HTTP/1.1" 200 27 "-" "curl/8.5.0"      (combined)
//!   {"time":"2026-11-23T12:00:00.000Z","client":"203.0.113.9","method":"POST",...}                            (json)
//! ```
//!
//! Of a request that was not understood there are the words of its first line that have come, or `-`. The status of a request whose
//! client went away before there was an answer is 499. A request over HTTP/2 that breaks its rules ends with its stream, and has no line.

use crate::offload::JOB;
use crate::refused::{Refused, cut};
use crate::respond::Response;
use crate::tls::TlsVersion;
use http::header::{HeaderMap, HeaderName, REFERER, USER_AGENT};
use http::request::Parts;
use offload_supervisor::calendar::{combined_time, utc};
use offload_supervisor::printer::PrinterHandle;
use serde_json::json;
use std::fmt::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The status of a request whose client went away.
const CLIENT_GONE: u16 = 499;

/// How a line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// The common log format of web servers.
    Common,
    /// The same with the page that the client comes from, and the name of its program.
    #[default]
    Combined,
    /// A JSON document, which also has the duration, the id of the job and the version of TLS.
    Json,
}

impl AccessLogFormat {
    /// The line that says how many lines were lost because nobody wrote them in time.
    pub fn lost(self, lines: u64) -> String {
        match self {
            AccessLogFormat::Json => json!({ "lost_lines": lines }).to_string(),
            AccessLogFormat::Common | AccessLogFormat::Combined => format!("# {lines} lines were lost here"),
        }
    }
}

/// Where lines about requests go. Texts of clients are cut at [`LOGGED_FIELD_MAX`](crate::limits::LOGGED_FIELD_MAX) bytes and escaped.
#[derive(Clone)]
pub struct AccessLog {
    lines: PrinterHandle,
    format: AccessLogFormat,
}

impl AccessLog {
    /// Lines of this format, for this printer. Those for which it has no room are lost; the printer counts them.
    pub fn new(lines: PrinterHandle, format: AccessLogFormat) -> AccessLog {
        AccessLog { lines, format }
    }

    /// A request that was understood. Its line is written when what is returned is dropped.
    pub(crate) fn begin(&self, head: &Parts, client: String) -> Logged {
        let request = Line {
            client,
            method: head.method.to_string(),
            target: cut(head.uri.path_and_query().map_or("/", |target| target.as_str()).as_bytes()),
            version: format!("{:?}", head.version),
            referer: field(&head.headers, &REFERER),
            agent: field(&head.headers, &USER_AGENT),
            tls: head.extensions.get().copied(),
            ..Line::now()
        };
        Logged { log: self.clone(), line: request, since: Instant::now() }
    }

    /// A request that was refused before it was understood.
    pub(crate) fn refused(&self, client: String, refused: Refused) {
        let Refused { status, bytes, first_line, tls } = refused;
        let (method, target, version) = (first_line.method, first_line.target, first_line.version);
        self.write(&Line {
            client,
            method,
            target,
            version,
            status,
            bytes: bytes as u64,
            tls,
            ..Line::now()
        });
    }

    fn write(&self, line: &Line) {
        let text = match self.format {
            AccessLogFormat::Common => line.common(),
            AccessLogFormat::Combined => line.combined(),
            AccessLogFormat::Json => line.json(),
        };
        // If there is no room, the line is lost, and the printer says so.
        let _ = self.lines.print(text);
    }
}

/// A request that is under way.
pub(crate) struct Logged {
    log: AccessLog,
    line: Line,
    since: Instant,
}

impl Logged {
    /// What the answer will be.
    pub(crate) fn answered(&mut self, response: &Response) {
        self.line.status = response.status().as_u16();
        let job = response.headers().get(JOB).and_then(|job| job.to_str().ok());
        self.line.job = job.map(str::to_owned);
    }

    /// So many bytes more of the body are about to be written.
    pub(crate) fn count(&mut self, bytes: usize) {
        self.line.bytes += bytes as u64;
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        self.line.took = self.since.elapsed();
        self.log.write(&self.line);
    }
}

/// What is known of a request.
struct Line {
    time: Duration,
    client: String,
    method: String,
    target: Vec<u8>,
    version: String,
    status: u16,
    bytes: u64,
    referer: Vec<u8>,
    agent: Vec<u8>,
    took: Duration,
    job: Option<String>,
    tls: Option<TlsVersion>,
}

impl Line {
    fn now() -> Line {
        Line {
            time: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            client: String::new(),
            method: String::new(),
            target: Vec::new(),
            version: String::new(),
            status: CLIENT_GONE,
            bytes: 0,
            referer: Vec::new(),
            agent: Vec::new(),
            took: Duration::ZERO,
            job: None,
            tls: None,
        }
    }

    fn common(&self) -> String {
        let words = [self.method.as_bytes(), &self.target, self.version.as_bytes()];
        let known: Vec<&[u8]> = words.into_iter().filter(|word| !word.is_empty()).collect();
        format!(
            "{} - - [{}] \"{}\" {} {}",
            self.client,
            combined_time(self.time),
            or_dash(&known.join(&b' ')),
            self.status,
            self.bytes,
        )
    }

    fn combined(&self) -> String {
        format!("{} \"{}\" \"{}\"", self.common(), or_dash(&self.referer), or_dash(&self.agent))
    }

    fn json(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let document = json!({
            "time": utc(self.time), "client": self.client, "method": self.method, "target": text(&self.target),
            "version": self.version, "status": self.status, "bytes": self.bytes, "referer": text(&self.referer),
            "agent": text(&self.agent), "took_us": u64::try_from(self.took.as_micros()).unwrap_or(u64::MAX), "job": self.job,
            "tls": self.tls.map(TlsVersion::as_str),
        });
        in_ascii(&document.to_string())
    }
}

/// The same JSON without anything that a terminal or a reader of lines could take for something else.
fn in_ascii(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            ' '..='~' => safe.push(character),
            _ => {
                let mut units = [0; 2];
                for unit in character.encode_utf16(&mut units) {
                    _ = write!(safe, "\\u{unit:04x}");
                }
            }
        }
    }
    safe
}

fn field(headers: &HeaderMap, name: &HeaderName) -> Vec<u8> {
    headers.get(name).map_or_else(Vec::new, |value| cut(value.as_bytes()))
}

fn or_dash(text: &[u8]) -> String {
    if text.is_empty() { "-".to_owned() } else { escaped(text) }
}

/// What could end a line or a quoted text, or is no visible ASCII, as `\xHH`.
fn escaped(text: &[u8]) -> String {
    let mut safe = String::with_capacity(text.len());
    for byte in text {
        match byte {
            b'"' | b'\\' => _ = write!(safe, "\\{}", char::from(*byte)),
            b' '..=b'~' => safe.push(char::from(*byte)),
            _ => _ = write!(safe, "\\x{byte:02x}"),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        Line {
            time: Duration::from_secs(951_782_400),
            client: "203.0.113.9".to_owned(),
            method: "GET".to_owned(),
            target: b"/a?b=\"\\".to_vec(),
            version: "HTTP/1.1".to_owned(),
            status: 200,
            bytes: 7,
            agent: b"evil\"\n\x1b[31m\xff\xc2\x9b31m\xe2\x80\xa8\xe2\x80\xae\xf0\x9f\x98\x80\x7f".to_vec(),
            ..Line::now()
        }
    }

    #[test]
    fn nothing_that_a_client_sends_can_forge_a_line() {
        assert_eq!(
            line().combined(),
            "203.0.113.9 - - [29/Feb/2000:00:00:00 +0000] \"GET /a?b=\\\"\\\\ HTTP/1.1\" 200 7 \"-\" \
             \"evil\\\"\\x0a\\x1b[31m\\xff\\xc2\\x9b31m\\xe2\\x80\\xa8\\xe2\\x80\\xae\\xf0\\x9f\\x98\\x80\\x7f\""
        );
        let document = line().json();
        assert!(document.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{document}");
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        assert_eq!(
            (&document["target"], &document["time"]),
            (&"/a?b=\"\\".into(), &"2000-02-29T00:00:00.000Z".into())
        );
        let agent = "evil\"\n\u{1b}[31m\u{fffd}\u{9b}31m\u{2028}\u{202e}\u{1f600}\u{7f}";
        assert_eq!(document["agent"], agent, "nothing of it is lost");
    }

    #[test]
    fn what_is_not_known_is_a_dash_or_left_out() {
        let unknown = Line { client: "::1".to_owned(), status: 400, ..Line::now() }.combined();
        assert!(
            unknown.starts_with("::1 - - [") && unknown.ends_with("] \"-\" 400 0 \"-\" \"-\""),
            "{unknown}"
        );
        let half = Line { version: String::new(), status: 431, ..line() }.common();
        assert!(half.ends_with("\"GET /a?b=\\\"\\\\\" 431 7"), "{half}");
    }
}
