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
//!
//! A field that is read here is refused if it comes twice, unless it is a list, or has other characters than visible ASCII. Only
//! these are ignored then: the fields of a trace, as their standard wants it (W3C Trace Context, 3.3), and what is no more than a wish. Of
//! `Prefer` that is the preference that has such characters, because no request fails for a preference (RFC 7240, 2); `Accept` counts as
//! absent (RFC 9110, 12.5.1, lets a server disregard it).

use crate::problem::Problem;
use crate::request::{Request, one, quoted, visible};
use http::header::{HeaderMap, HeaderName};
use offload_protocol::nouns::{Labels, Metadata, OutcomeCode};
use offload_supervisor::Job;
use offload_supervisor::units::parse_duration;
use std::time::Duration;

static PREFER: HeaderName = HeaderName::from_static("prefer");
static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
static TIMEOUT: HeaderName = HeaderName::from_static("offload-timeout");
static DEADLINE: HeaderName = HeaderName::from_static("offload-deadline");
static PRIORITY: HeaderName = HeaderName::from_static("offload-priority");
static ATTEMPTS: HeaderName = HeaderName::from_static("offload-attempts");
static LABEL: HeaderName = HeaderName::from_static("offload-label");
const META: &str = "offload-meta-";
/// Fields of a trace, which go to the task under their own names.
const TRACE: [&str; 2] = ["traceparent", "tracestate"];

/// Whether a request says anything in the fields of the table but `Accept`. Most say nothing, and then one look at the names of their
/// fields takes the place of a search for each name in the table.
pub(super) fn says_anything(headers: &HeaderMap) -> bool {
    let names = [&PREFER, &IDEMPOTENCY_KEY].map(HeaderName::as_str);
    let is_one = |name: &str| name.starts_with("offload-") || TRACE.contains(&name) || names.contains(&name);
    headers.keys().any(|name| is_one(name.as_str()))
}

fn bad(detail: String) -> Problem {
    Problem::new(OutcomeCode::BadRequest, detail)
}

/// The value of a field that may come once.
///
/// # Errors
/// What the client is told: it came twice, or is no visible ASCII.
pub(super) fn field<'a>(request: &'a Request, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    one(request.headers(), name).map_err(bad)
}

/// The words of a field that is a list.
///
/// # Errors
/// What the client is told: it is no visible ASCII.
pub(super) fn list<'a>(request: &'a Request, name: &HeaderName) -> Result<Vec<&'a str>, Problem> {
    let mut words = Vec::new();
    for value in request.headers().get_all(name) {
        let text = visible(name.as_str(), value).map_err(bad)?;
        words.extend(text.split(outside_of_quotes(',')).map(str::trim).filter(|word| !word.is_empty()));
    }
    Ok(words)
}

/// This character, where it does not stand in a quoted text.
fn outside_of_quotes(wanted: char) -> impl FnMut(char) -> bool {
    let mut is_separator = separates(u8::try_from(wanted).unwrap_or(b','));
    move |character| u8::try_from(character).is_ok_and(&mut is_separator)
}

/// The same for bytes.
fn separates(wanted: u8) -> impl FnMut(u8) -> bool {
    let (mut is_quoted, mut is_escaped) = (false, false);
    move |byte| {
        let is_literal = is_escaped;
        is_escaped = is_quoted && !is_literal && byte == b'\\';
        is_quoted ^= byte == b'"' && !is_literal;
        byte == wanted && !is_quoted
    }
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

/// A whole number. One that is too large for its type is as large as that can be; None if it is none.
pub(super) fn whole_number(text: &str) -> Option<u64> {
    let is_one = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_one.then(|| text.parse().unwrap_or(u64::MAX))
}

/// How long a client waits that says so with this number of seconds; None if it is none.
pub(super) fn wait_of(text: &str) -> Option<Duration> {
    Some(Duration::from_secs(whole_number(text)?).min(WAIT_MAX))
}

/// The preferences that are known here and make sense. Others are ignored: no request fails for a preference (RFC 7240, 2).
pub(super) fn preference(headers: &HeaderMap) -> Preference {
    let mut preference = Preference::default();
    let mut has_wait = false;
    for value in headers.get_all(&PREFER) {
        let mut is_separator = separates(b',');
        // What is no text is no preference that is known here.
        let words =
            value.as_bytes().split(|byte| is_separator(*byte)).filter_map(|word| str::from_utf8(word).ok());
        for word in words {
            let word = word.split(outside_of_quotes(';')).next().unwrap_or("").trim();
            match word.split_once('=').map_or((word, ""), |(name, value)| (name.trim(), value.trim())) {
                (name, _) if name.eq_ignore_ascii_case("respond-async") => preference.is_async = true,
                // Of several the first one counts, whether it makes sense or not.
                (name, value) if name.eq_ignore_ascii_case("wait") && !has_wait => {
                    has_wait = true;
                    preference.wait = wait_of(value.trim_matches('"'));
                }
                _ => {}
            }
        }
    }
    preference
}

/// The key of the job: a structured string, as the draft of the IETF wants it, or the bare word.
fn key(request: &Request) -> Result<Option<String>, Problem> {
    let Some(value) = field(request, &IDEMPOTENCY_KEY)? else { return Ok(None) };
    let key = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    match key.is_empty() || key.contains('"') {
        true => Err(bad("Idempotency-Key is 1 to 64 characters, of which none is a quote".to_owned())),
        false => Ok(Some(key.to_owned())),
    }
}

/// The job as the fields describe it.
///
/// # Errors
/// What the client is told.
pub(super) fn describe(request: &Request, mut job: Job) -> Result<Job, Problem> {
    if let Some(text) = field(request, &TIMEOUT)? {
        job = job.timeout(parse_duration(text).map_err(bad)?);
    }
    if let Some(text) = field(request, &DEADLINE)? {
        job = job.deadline(parse_duration(text).map_err(bad)?);
    }
    if let Some(text) = field(request, &PRIORITY)? {
        let priority =
            text.parse().map_err(|_| bad(format!("Offload-Priority is -10 to 10, not {}", quoted(text))))?;
        job = job.priority(priority);
    }
    if let Some(text) = field(request, &ATTEMPTS)? {
        let attempts =
            text.parse().map_err(|_| bad(format!("Offload-Attempts is 1 to 100, not {}", quoted(text))))?;
        job = job.attempts(attempts);
    }
    if let Some(key) = key(request)? {
        job = job.idempotency_key(key);
    }
    Ok(job.metadata(with_trace(metadata(request)?, request)).labels(labels(request)?))
}

/// What goes with the job to its task, beside its trace.
///
/// # Errors
/// What the client is told.
pub(super) fn metadata(request: &Request) -> Result<Metadata, Problem> {
    let mut texts = Vec::new();
    for name in request.headers().keys() {
        if let Some(key) = name.as_str().strip_prefix(META) {
            texts.extend(field(request, name)?.map(|text| (key, text)));
        }
    }
    Metadata::new(&texts).map_err(|error| bad(error.to_string()))
}

/// The same with the trace that the request belongs to. What metadata has no room for is left out: a proxy may have added it.
pub(super) fn with_trace(mut metadata: Metadata, request: &Request) -> Metadata {
    for name in TRACE {
        let Some(text) = request.header(name) else { continue };
        let pairs: Vec<_> = metadata.iter().chain([(name, text)]).collect();
        if let Ok(traced) = Metadata::new(&pairs) {
            metadata = traced;
        }
    }
    metadata
}

fn labels(request: &Request) -> Result<Labels, Problem> {
    Labels::new(&list(request, &LABEL)?).map_err(|error| bad(error.to_string()))
}

/// The weight of a media type in `Accept`, from the parameters behind its name (RFC 9110, 12.4.2): 1 if there is none that makes sense.
pub(super) fn weight<'a>(mut parameters: impl Iterator<Item = &'a str>) -> f32 {
    let weight = parameters.find_map(|parameter| {
        let (name, weight) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then_some(weight)
    });
    let weight = weight.and_then(|weight| weight.trim().parse().ok());
    weight.filter(|weight| (0.0..=1.0).contains(weight)).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_weight_of_nothing_is_a_refusal() {
        let weighs_nothing = |parameter| weight([parameter].into_iter()) == 0.0;
        assert!(["q=0", "Q = 0.000", "q=0."].into_iter().all(weighs_nothing));
        assert!(!["q=0.001", "q=1", "q", "x=0", "q=no"].into_iter().any(weighs_nothing));
    }

    #[test]
    fn a_weight_that_is_none_counts_as_none() {
        for parameter in ["q=", "q=no", "q=NaN", "q=inf", "q=-1", "q=2"] {
            assert_eq!(weight([parameter].into_iter()), 1.0, "{parameter}");
        }
    }

    #[test]
    fn a_number_that_is_too_large_is_still_a_number() {
        assert_eq!(wait_of("99999999999999999999"), wait_of("3601"));
        assert_eq!((wait_of("3601"), wait_of("007")), (Some(WAIT_MAX), Some(Duration::from_secs(7))));
        for text in ["", "-1", "+1", "1.5", "1s", " 1", "\u{661}"] {
            assert_eq!(wait_of(text), None, "{text}");
        }
    }

    #[test]
    fn of_several_preferences_of_a_name_the_first_counts_and_what_is_no_text_is_ignored() {
        let seconds = |values: &[&[u8]]| {
            let value = |value: &&[u8]| (PREFER.clone(), HeaderValue::from_bytes(value).unwrap());
            let preference = preference(&values.iter().map(value).collect());
            assert!(!preference.is_async);
            preference.wait.map(|wait| wait.as_secs())
        };
        for nothing in [&b"wait=x, wait=5"[..], b"wait, wait=5", b"wait=5\xe9", b"caf\xe9=\"a, wait=5\""] {
            assert_eq!(seconds(&[nothing]), None, "{}", nothing.escape_ascii());
        }
        assert_eq!(seconds(&[b"wait=x", b"wait=5"]), None, "several lines are one list");
        assert_eq!(seconds(&[b"caf\xe9, wait=5, wait=6"]), Some(5));
        assert_eq!(seconds(&[b"caf\xe9", b"Wait = \"5\"; x=y"]), Some(5));
    }

    #[test]
    fn a_comma_in_a_quoted_text_separates_nothing() {
        let pieces = |text: &'static str| text.split(outside_of_quotes(',')).collect::<Vec<_>>();
        assert_eq!(pieces(r#"a="b, wait=1",c"#), [r#"a="b, wait=1""#, "c"]);
        assert_eq!(pieces(r#"a="\",",b"#), [r#"a="\",""#, "b"]);
        assert_eq!(pieces(r"a\,b"), [r"a\", "b"]);
        assert_eq!(pieces(r#"a,"b"#), ["a", r#""b"#]);
    }

    #[test]
    fn each_field_of_the_table_is_seen_when_it_comes_alone() {
        let says =
            |name: HeaderName| says_anything(&HeaderMap::from_iter([(name, HeaderValue::from_static("x"))]));
        let own = [&PREFER, &IDEMPOTENCY_KEY, &TIMEOUT, &DEADLINE, &PRIORITY, &ATTEMPTS, &LABEL];
        assert!(own.into_iter().all(|name| says(name.clone())));
        for name in ["offload-meta-tenant", "offload-client", "offload-stream", "traceparent", "tracestate"] {
            assert!(says(HeaderName::from_static(name)), "{name}");
        }
        assert!(!says(http::header::CONTENT_TYPE) && !says(http::header::ACCEPT));
    }
}
