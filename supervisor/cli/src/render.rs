//! A finished job as text for people and as JSON for programs. The JSON is a contract with users.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use offload_protocol::nouns::{ErrorDetail, Labels, MediaType, Metadata, OutcomeCode, Receipt, Report};
use offload_supervisor::{Finished, JsonOutput};
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::batch::{Notes, NumberedResult};
use super::text;

/// A finished job as one JSON document on one line, without a line end.
pub(crate) fn json(finished: &Finished) -> String {
    json_after(&[], finished)
}

/// The same for a job that was tried again after these attempts.
pub(crate) fn json_after(earlier: &[Report], finished: &Finished) -> String {
    json_document(finished, None, earlier, json_said(finished))
}

/// The same for a job of a batch, with its number and what else is known of it.
pub(crate) fn numbered_json(result: &NumberedResult) -> String {
    let NumberedResult { index, finished, notes } = result;
    let said = match &notes.output_file {
        Some(_) => JsonSaid { content_type: Some(&finished.report.media_type), ..JsonSaid::default() },
        None => json_said(finished),
    };
    json_document(finished, Some((*index, notes)), &notes.earlier, said)
}

fn json_said(finished: &Finished) -> JsonSaid<'_> {
    let Report { outcome, media_type, .. } = &finished.report;
    match outcome {
        OutcomeCode::Ok => {
            JsonSaid { output: JsonOutput::of(media_type, &finished.output), content_type: Some(media_type) }
        }
        _ => JsonSaid::default(),
    }
}

/// The same for a job whose output somebody else reads: `output` is null, and there is no `content_type`.
pub(crate) fn json_outcome(finished: &Finished) -> String {
    let output = serde_json::value::to_raw_value(&()).ok();
    let output = JsonOutput { output, output_base64: None };
    json_document(finished, None, &[], JsonSaid { output, content_type: None })
}

/// Whether the output of a job that was waited for went to whoever submitted it, as a stream. An empty stream cannot be
/// told from an empty output, and need not be.
pub(crate) fn is_read_elsewhere(finished: &Finished) -> bool {
    let report = &finished.report;
    report.outcome == OutcomeCode::Ok && finished.output.is_empty() && report.receipt.output_bytes > 0
}

/// What a document says of the output.
#[derive(Default)]
struct JsonSaid<'a> {
    output: JsonOutput,
    content_type: Option<&'a MediaType>,
}

fn json_document(
    finished: &Finished,
    of_batch: Option<(u64, &Notes)>,
    earlier: &[Report],
    said: JsonSaid<'_>,
) -> String {
    let Report { job, task, outcome, error, attempts, receipt, metadata, labels, .. } = &finished.report;
    let JsonSaid { output, content_type } = said;
    let content_type = content_type.map(MediaType::as_str);
    let error = error.as_ref().map(JsonError::from);
    let outcome = outcome.as_str();
    let [(file, file_base64), (output_file, output_file_base64)] = of_batch
        .map_or_else(Default::default, |(_, notes)| [json_path(&notes.file), json_path(&notes.output_file)]);
    let document = JsonJob {
        index: of_batch.map(|(index, _)| index),
        file,
        file_base64,
        output_file,
        output_file_base64,
        job,
        task,
        outcome,
        output,
        content_type,
        error,
        attempts: *attempts,
        earlier_attempts: earlier.iter().map(JsonAttempt::from).collect(),
        receipt,
        metadata,
        labels,
    };
    serde_json::to_string(&document).expect("texts, numbers and checked JSON are always written")
}

/// The output, with a line end added to text and JSON that lack it.
pub(crate) fn plain(finished: &Finished) -> Bytes {
    let output = &finished.output;
    if is_binary(&finished.report.media_type) || output.ends_with(b"\n") {
        return output.clone();
    }
    [output, &b"\n"[..]].concat().into()
}

/// Whether the output is binary and should not be printed on a terminal.
pub(crate) fn is_binary(media_type: &MediaType) -> bool {
    !media_type.is_text() && !media_type.is_json()
}

/// The sentence that says what went wrong. It also names the cause, if that differs from the outcome.
pub(crate) fn message(report: &Report) -> String {
    match &report.error {
        None => "no reason was given".to_owned(),
        Some(error) if error.code == report.outcome => error.message.clone(),
        Some(error) => error.to_string(),
    }
}

/// The receipt in one line for people.
pub(crate) fn receipt(report: &Report) -> String {
    let Receipt {
        queued_us,
        run_us,
        returned_us,
        worker_pid,
        slot,
        incarnation,
        input_bytes,
        output_bytes,
        usage,
    } = report.receipt;
    let place = match worker_pid {
        0 => "no worker".to_owned(),
        pid => format!("worker {pid} (slot {slot}, incarnation {incarnation})"),
    };
    format!(
        "job {}: queued {}, ran {}, returned in {}; {place}, {}; CPU {} user, {} system, peak memory {}; {} in, {} out",
        report.job,
        text::time(queued_us),
        text::time(run_us),
        text::time(returned_us),
        text::count(report.attempts.into(), "attempt"),
        text::time(usage.cpu_user_us),
        text::time(usage.cpu_system_us),
        text::bytes(usage.peak_rss_bytes),
        text::bytes(input_bytes),
        text::bytes(output_bytes),
    )
}

/// The result of a job that never reached a supervisor, in the same form as other results.
pub(crate) fn refused(task: &str, code: OutcomeCode, message: String) -> Finished {
    let error = Some(ErrorDetail::new(code, message));
    let report = Report {
        job: String::new(),
        task: task.to_owned(),
        outcome: code,
        error,
        attempts: 0,
        receipt: Receipt::default(),
        media_type: MediaType::OCTET_STREAM,
        metadata: Metadata::default(),
        labels: Labels::default(),
    };
    Finished { report, output: Bytes::new() }
}

/// The result of a job that a supervisor rejected, with the time after which to try again if it gave one.
pub(crate) fn rejected(
    task: &str,
    code: OutcomeCode,
    message: String,
    retry_after_ms: Option<u64>,
) -> Finished {
    let mut finished = refused(task, code, String::new());
    finished.report.error = Some(ErrorDetail { retry_after_ms, ..ErrorDetail::new(code, message) });
    finished
}

#[derive(Serialize)]
struct JsonJob<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
    /// The name of the input.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    /// The same, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    file_base64: Option<String>,
    /// Where the output is, if it is in a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    output_file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_file_base64: Option<String>,
    job: &'a str,
    task: &'a str,
    outcome: &'static str,
    #[serde(flatten)]
    output: JsonOutput,
    /// The media type of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<JsonError<'a>>,
    attempts: u32,
    /// The attempts before the last one that returned an error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    earlier_attempts: Vec<JsonAttempt<'a>>,
    receipt: &'a Receipt,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    metadata: &'a Metadata,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    labels: &'a Labels,
}

#[derive(Serialize)]
struct JsonAttempt<'a> {
    job: &'a str,
    outcome: &'static str,
    error: Option<JsonError<'a>>,
    run_us: u64,
}

impl<'a> From<&'a Report> for JsonAttempt<'a> {
    fn from(report: &'a Report) -> JsonAttempt<'a> {
        JsonAttempt {
            job: &report.job,
            outcome: report.outcome.as_str(),
            error: report.error.as_ref().map(JsonError::from),
            run_us: report.receipt.run_us,
        }
    }
}

#[derive(Serialize)]
struct JsonError<'a> {
    code: &'static str,
    message: &'a str,
    signal: Option<i32>,
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl<'a> From<&'a ErrorDetail> for JsonError<'a> {
    fn from(error: &'a ErrorDetail) -> JsonError<'a> {
        let ErrorDetail { code, message, signal, exit_code, retry_after_ms, is_for_anybody: _ } = error;
        JsonError {
            code: code.as_str(),
            message,
            signal: *signal,
            exit_code: *exit_code,
            retry_after_ms: *retry_after_ms,
        }
    }
}

/// A path as text, or as base64 if it is not UTF-8.
fn json_path(path: &Option<PathBuf>) -> (Option<&str>, Option<String>) {
    let Some(path) = path else { return (None, None) };
    match path.to_str() {
        Some(text) => (Some(text), None),
        None => (None, Some(STANDARD.encode(path.as_os_str().as_bytes()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_protocol::nouns::Usage;

    fn finished(media_type: MediaType, output: impl Into<Bytes>) -> Finished {
        let receipt = Receipt {
            queued_us: 41,
            run_us: 5210,
            returned_us: 35,
            worker_pid: 4242,
            slot: 0,
            incarnation: 1,
            input_bytes: 7,
            output_bytes: 33,
            usage: Usage { cpu_user_us: 5000, cpu_system_us: 200, peak_rss_bytes: 2048 },
        };
        let report = Report {
            job: "01J".to_owned(),
            task: "primes".to_owned(),
            outcome: OutcomeCode::Ok,
            error: None,
            attempts: 1,
            receipt,
            media_type,
            metadata: Metadata::default(),
            labels: Labels::default(),
        };
        Finished { report, output: output.into() }
    }

    const RECEIPT: &str = r#""receipt":{"queued_us":41,"run_us":5210,"returned_us":35,"worker_pid":4242,"slot":0,"incarnation":1,"input_bytes":7,"output_bytes":33,"usage":{"cpu_user_us":5000,"cpu_system_us":200,"peak_rss_bytes":2048}}"#;

    #[test]
    fn an_output_that_somebody_else_reads_is_null() {
        let mut finished = refused("echo", OutcomeCode::Ok, String::new());
        assert!(!is_read_elsewhere(&finished), "it may be empty");
        finished.report.receipt.output_bytes = 5;
        assert!(is_read_elsewhere(&finished));
        assert!(
            json_outcome(&finished).contains(r#""outcome":"ok","output":null"#),
            "{}",
            json_outcome(&finished)
        );
        finished.output = Bytes::from_static(b"whole");
        assert!(!is_read_elsewhere(&finished));
    }

    #[test]
    fn a_json_output_is_the_value_itself() {
        let job = finished(MediaType::JSON, r#"{"count":78498,"largest":999983}"#);
        assert_eq!(
            json(&job),
            format!(
                r#"{{"job":"01J","task":"primes","outcome":"ok","output":{{"count":78498,"largest":999983}},"content_type":"application/json","attempts":1,{RECEIPT}}}"#
            )
        );
    }

    fn output_part(media_type: MediaType, output: &'static [u8]) -> String {
        let result =
            NumberedResult { index: 3, finished: finished(media_type, output), notes: Notes::default() };
        let line = numbered_json(&result);
        assert!(!line.contains('\n'));
        let start = r#"{"index":3,"job":"01J","task":"primes","outcome":"ok","#;
        line.strip_prefix(start).unwrap().split(r#","content_type""#).next().unwrap().to_owned()
    }

    #[test]
    fn text_is_a_string_and_other_bytes_are_base64() {
        assert_eq!(output_part(MediaType::TEXT, b"a \"b\"\n"), r#""output":"a \"b\"\n""#);
        assert_eq!(output_part(MediaType::OCTET_STREAM, b"\x00\xff"), r#""output_base64":"AP8=""#);
        assert_eq!(output_part(MediaType::OCTET_STREAM, b"text"), r#""output_base64":"dGV4dA==""#);
        assert_eq!(output_part(MediaType::PNG, b""), r#""output_base64":"""#);
    }

    #[test]
    fn a_file_has_its_name_in_the_line_of_its_job() {
        let line = |name: &[u8]| {
            let notes = Notes { file: Some(std::ffi::OsStr::from_bytes(name).into()), ..Notes::default() };
            numbered_json(&NumberedResult { index: 0, finished: finished(MediaType::TEXT, ""), notes })
        };
        assert!(line(b"a \"b\"").starts_with(r#"{"index":0,"file":"a \"b\"","job""#));
        assert!(line(b"\xff").starts_with(r#"{"index":0,"file_base64":"/w==","job""#), "it is not UTF-8");
    }

    #[test]
    fn json_keeps_every_digit_and_fits_on_one_line() {
        let written = b"{\n  \"n\": 123456789012345678901234567890.10,\r\n  \"s\": \"a\\nb\"\n}\n";
        let expected = r#""output":{   "n": 123456789012345678901234567890.10,    "s": "a\nb" }"#;
        assert_eq!(output_part(MediaType::JSON, written), expected);
        assert_eq!(output_part(MediaType::JSON, b"null"), r#""output":null"#);
    }

    #[test]
    fn a_false_label_does_not_make_false_json() {
        assert_eq!(output_part(MediaType::JSON, b"{oops"), r#""output_base64":"e29vcHM=""#);
        assert_eq!(output_part(MediaType::JSON, b"1}, {\"x\": 1"), r#""output_base64":"MX0sIHsieCI6IDE=""#);
        assert_eq!(output_part(MediaType::TEXT, b"\xff"), r#""output_base64":"/w==""#);
    }

    #[test]
    fn a_failure_has_an_error_in_place_of_the_output() {
        let mut job = finished(MediaType::OCTET_STREAM, "");
        job.report.outcome = OutcomeCode::WorkerCrashed;
        let message = "signal 11 (SIGSEGV) in attempt 3 of 3".to_owned();
        job.report.error =
            Some(ErrorDetail { signal: Some(11), ..ErrorDetail::new(OutcomeCode::WorkerCrashed, message) });
        let expected = r#"{"job":"01J","task":"primes","outcome":"worker_crashed","error":{"code":"worker_crashed","message":"signal 11 (SIGSEGV) in attempt 3 of 3","signal":11,"exit_code":null},"attempts":1,"#;
        assert_eq!(json(&job), format!("{expected}{RECEIPT}}}"));
    }

    #[test]
    fn a_rejection_says_when_to_try_again_if_that_is_known() {
        let rejected = |after| {
            json(&rejected("echo", OutcomeCode::Overloaded, "full; try again in about 2 s".to_owned(), after))
        };
        assert!(rejected(Some(1900)).contains(r#""retry_after_ms":1900}"#), "{}", rejected(Some(1900)));
        assert!(!rejected(None).contains("retry_after_ms"));
    }

    #[test]
    fn what_was_attached_to_a_job_is_shown_and_nothing_if_nothing_was() {
        let mut job = finished(MediaType::JSON, "1");
        assert!(json(&job).ends_with("}}"), "{}", json(&job));
        job.report.metadata = Metadata::new(&[("tenant", "blue")]).unwrap();
        job.report.labels = Labels::new(&["nightly"]).unwrap();
        let expected = r#","metadata":{"tenant":"blue"},"labels":["nightly"]}"#;
        assert!(json(&job).ends_with(expected), "{}", json(&job));
    }

    #[test]
    fn a_cause_is_named_where_it_is_not_the_outcome() {
        let mut job = refused("task", OutcomeCode::WorkerCrashed, "signal 9 (SIGKILL)".to_owned());
        assert_eq!(message(&job.report), "signal 9 (SIGKILL)");
        job.report.outcome = OutcomeCode::Poison;
        assert_eq!(message(&job.report), "worker_crashed: signal 9 (SIGKILL)");
    }

    #[test]
    fn only_text_and_json_get_the_end_of_line_that_they_lack() {
        for (media_type, output, expected) in [
            (MediaType::TEXT, "a", "a\n"),
            (MediaType::TEXT, "a\n", "a\n"),
            (MediaType::TEXT, "", "\n"),
            (MediaType::JSON, "{}", "{}\n"),
            (MediaType::OCTET_STREAM, "a", "a"),
            (MediaType::PNG, "", ""),
        ] {
            assert_eq!(plain(&finished(media_type.clone(), output)), expected, "{media_type:?} {output:?}");
        }
    }

    #[test]
    fn the_receipt_reads_as_a_sentence() {
        assert_eq!(
            receipt(&finished(MediaType::TEXT, "").report),
            "job 01J: queued 41 us, ran 5.2 ms, returned in 35 us; worker 4242 (slot 0, incarnation 1), \
             1 attempt; CPU 5.0 ms user, 200 us system, peak memory 2.0 KiB; 7 B in, 33 B out"
        );
    }
}
