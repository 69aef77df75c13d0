//! What a request says about the job that it submits, in its header fields.
//!
//! | field | meaning |
//! |---|---|
//! | `Idempotency-Key` | submitting again under the same key gives the same job |
//! | `Offload-Timeout`, `Offload-Deadline` | longest run of an attempt, longest time until the result: `250ms`, `10s`, `5m`, `1h` |
//! | `Offload-Priority` | -10 to 10 |
//! | `Offload-Attempts` | 1 to 100 |
//! | `Offload-Label` | words by which the job can be found, separated by commas |
//! | `Offload-Meta-NAME`, `traceparent`, `tracestate` | go with the job to its task |
//! | `Offload-Client` | the name of the client |
//! | `Prefer: respond-async`, `Prefer: wait=N` | do not wait for the end, or at most N seconds |
//! | `Accept: text/event-stream`, `Offload-Stream: true` | the output in parts, as it comes |

use crate::problem::Problem;
use crate::request::Request;
use offload_protocol::nouns::{Labels, Metadata, OutcomeCode};
use offload_supervisor::Job;
use offload_supervisor::units::parse_duration;
use std::time::Duration;

const META: &str = "offload-meta-";
/// Fields of a trace, which go to the task under their own names.
const TRACE: [&str; 2] = ["traceparent", "tracestate"];

fn bad(detail: String) -> Problem {
    Problem::new(OutcomeCode::BadRequest, detail)
}

/// How the client wants to be answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Preference {
    /// Not at the end of the job, but at once.
    pub(super) is_async: bool,
    /// At the end of the job, if that comes so soon.
    pub(super) wait: Option<Duration>,
}

/// The longest time that a client can be kept waiting.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Reads a number of seconds.
///
/// # Errors
/// What the client is told.
pub(super) fn seconds(text: &str, what: &str) -> Result<Duration, Problem> {
    let seconds =
        text.parse::<u64>().map_err(|_| bad(format!("{what} is a whole number of seconds, not {text:?}")))?;
    Ok(Duration::from_secs(seconds).min(WAIT_MAX))
}

/// The preferences that are known here (RFC 7240); others are ignored.
///
/// # Errors
/// What the client is told.
pub(super) fn preference(request: &Request) -> Result<Preference, Problem> {
    let mut preference = Preference::default();
    let values = request.headers().get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    for word in values.flat_map(|value| value.split(',')) {
        let word = word.split(';').next().unwrap_or("").trim();
        match word.split_once('=').map_or((word, ""), |(name, value)| (name.trim(), value.trim())) {
            (name, _) if name.eq_ignore_ascii_case("respond-async") => preference.is_async = true,
            (name, value) if name.eq_ignore_ascii_case("wait") => {
                preference.wait = Some(seconds(value.trim_matches('"'), "wait")?);
            }
            _ => {}
        }
    }
    Ok(preference)
}

/// The key of the job: a structured string, as the draft of the IETF wants it, or the bare word.
pub(super) fn key(request: &Request) -> Result<Option<String>, Problem> {
    if !request.headers().contains_key("idempotency-key") {
        return Ok(None);
    }
    let value = request.header("idempotency-key").unwrap_or("");
    let key = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    match key.is_empty() || key.contains('"') {
        true => Err(bad("Idempotency-Key is one visible word".to_owned())),
        false => Ok(Some(key.to_owned())),
    }
}

/// The job as the fields describe it.
///
/// # Errors
/// What the client is told.
pub(super) fn describe(request: &Request, mut job: Job) -> Result<Job, Problem> {
    if let Some(text) = request.header("offload-timeout") {
        job = job.timeout(parse_duration(text).map_err(bad)?);
    }
    if let Some(text) = request.header("offload-deadline") {
        job = job.deadline(parse_duration(text).map_err(bad)?);
    }
    if let Some(text) = request.header("offload-priority") {
        let priority =
            text.parse().map_err(|_| bad(format!("Offload-Priority is -10 to 10, not {text:?}")))?;
        job = job.priority(priority);
    }
    if let Some(text) = request.header("offload-attempts") {
        let attempts =
            text.parse().map_err(|_| bad(format!("Offload-Attempts is 1 to 100, not {text:?}")))?;
        job = job.attempts(attempts);
    }
    Ok(job.metadata(metadata(request)?).labels(labels(request)?))
}

fn metadata(request: &Request) -> Result<Metadata, Problem> {
    let fields = request.headers().iter().filter_map(|(name, value)| {
        let name = name.as_str();
        let key = name.strip_prefix(META).or_else(|| TRACE.contains(&name).then_some(name))?;
        Some((key, value.to_str().ok()?))
    });
    Metadata::new(&fields.collect::<Vec<_>>()).map_err(|error| bad(error.to_string()))
}

fn labels(request: &Request) -> Result<Labels, Problem> {
    let values = request.headers().get_all("offload-label").iter().filter_map(|value| value.to_str().ok());
    let labels = values.flat_map(|value| value.split(',')).map(str::trim).filter(|label| !label.is_empty());
    Labels::new(&labels.collect::<Vec<_>>()).map_err(|error| bad(error.to_string()))
}
