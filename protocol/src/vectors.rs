//! The golden vectors, `protocol/vectors.json`: frames as bytes with what they mean, and frames that have to be refused. The
//! tests check this crate by them, and a library in another language can do the same.
//!
//! The file is generated: `OFFLOAD_WRITE_VECTORS=1 cargo test -p offload-protocol vectors` writes it. A change of it is a
//! change of the wire.

mod refused;

use crate::codec::{self, DecodeError};
use crate::frame::{FrameDecoder, FrameError};
use crate::limits::PREFIX_BYTES;
use crate::messages::*;
use crate::nouns::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Once;

/// The largest payload in the vectors, in bytes. One is longer, on purpose.
const PAYLOAD_MAX: usize = 1024;

const USAGE: Usage = Usage { cpu_user_us: 1, cpu_system_us: 2, peak_rss_bytes: 3 };

/// One frame. Exactly one of `meaning` and `error` is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Vector {
    /// To whom the frame is sent.
    direction: Direction,
    /// What it shows.
    about: String,
    /// All bytes of the frame, in hexadecimal.
    frame: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meaning: Option<Meaning>,
    /// What is wrong with it: `header_length`, `payload_length`, `malformed` or `trailing_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Direction {
    ToWorker,
    FromWorker,
    ToSupervisor,
    ToClient,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Meaning {
    /// The name of the message.
    message: String,
    /// Its number.
    number: u32,
    /// Its fields by name.
    fields: Value,
    /// Its payload, in hexadecimal.
    payload: String,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().map(|digit| digit.to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// A message as its name and its fields.
fn meaning_of(message: &impl Serialize, number: u32, payload: &[u8]) -> Meaning {
    let (message, mut fields) = match serde_json::to_value(message).unwrap() {
        Value::String(name) => (name, json!({})),
        Value::Object(tagged) => tagged.into_iter().next().unwrap(),
        other => panic!("not a message: {other}"),
    };
    if let Some(magic) = fields.get_mut("magic") {
        let ascii: Vec<u8> = serde_json::from_value(magic.clone()).unwrap();
        *magic = String::from_utf8(ascii).unwrap().into();
    }
    Meaning { message, number, fields, payload: hex(payload) }
}

fn good(direction: Direction, about: &str, message: &impl Serialize, payload: &[u8]) -> Vector {
    let mut frame = Vec::new();
    codec::encode(message, payload.len(), &mut frame).unwrap();
    let number = u32::from_le_bytes(*frame[PREFIX_BYTES..].first_chunk().unwrap());
    frame.extend_from_slice(payload);
    let meaning = Some(meaning_of(message, number, payload));
    Vector { direction, about: about.to_owned(), frame: hex(&frame), meaning, error: None }
}

/// A frame that is refused, and a part of the reason that is given for it.
fn bad(direction: Direction, about: &str, reason: &str, frame: &[u8]) -> Vector {
    let (error, given) = read(direction, frame).unwrap_err();
    assert!(given.contains(reason), "{about}: {given}");
    Vector {
        direction,
        about: about.to_owned(),
        frame: hex(frame),
        meaning: None,
        error: Some(error.to_owned()),
    }
}

/// The kind of the error, and the reason for people.
type Refusal = (&'static str, String);

fn frame_refusal(error: &FrameError) -> Refusal {
    let kind = match error {
        FrameError::HeaderLength { .. } => "header_length",
        FrameError::PayloadLength { .. } => "payload_length",
    };
    (kind, error.to_string())
}

fn header_refusal(error: &DecodeError) -> Refusal {
    let kind = match error {
        DecodeError::Malformed(_) => "malformed",
        DecodeError::TrailingBytes { .. } => "trailing_bytes",
    };
    (kind, error.to_string())
}

fn headed(header: &[u8]) -> Vec<u8> {
    [&(header.len() as u32).to_le_bytes(), &[0; 4], header].concat()
}

/// Reads a frame as the other end does: its meaning, or why it is refused.
fn read(direction: Direction, bytes: &[u8]) -> Result<Meaning, Refusal> {
    let mut decoder = FrameDecoder::new(PAYLOAD_MAX);
    decoder.space()[..bytes.len()].copy_from_slice(bytes);
    decoder.filled(bytes.len());
    let frame = decoder.next().map_err(|error| frame_refusal(&error))?.expect("a whole frame");
    fn meaning<'a, M: Deserialize<'a> + Serialize>(
        header: &'a [u8],
        payload: &[u8],
    ) -> Result<Meaning, Refusal> {
        let message: M = codec::decode(header).map_err(|error| header_refusal(&error))?;
        Ok(meaning_of(&message, u32::from_le_bytes(*header.first_chunk().unwrap()), payload))
    }
    let (header, payload) = (&*frame.header, &*frame.payload);
    match direction {
        Direction::ToWorker => meaning::<ToWorker<'_>>(header, payload),
        Direction::FromWorker => meaning::<FromWorker<'_>>(header, payload),
        Direction::ToSupervisor => meaning::<ToSupervisor<'_>>(header, payload),
        Direction::ToClient => meaning::<ToClient<'_>>(header, payload),
    }
}

fn metadata() -> Metadata {
    Metadata::new(&[
        ("tenant", "blue"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ])
    .unwrap()
}

fn to_worker() -> Vec<Vector> {
    let vector =
        |about, message: ToWorker<'_>, payload: &[u8]| good(Direction::ToWorker, about, &message, payload);
    let run = |media_type, [timeout_ms, deadline_ms]: [u64; 2], metadata| ToWorker::Run {
        job: 7,
        attempt: 2,
        task: "primes",
        media_type,
        timeout_ms,
        deadline_ms,
        metadata,
    };
    vec![
        vector(
            "the answer to Hello",
            ToWorker::Welcome { major: 3, minor: 0, capabilities: PARTS, payload_max: 64 << 20 },
            b"",
        ),
        vector(
            "unknown bits among the capabilities are ignored",
            ToWorker::Welcome { major: 3, minor: 9, capabilities: 1 << 63, payload_max: 1 },
            b"",
        ),
        vector("a job without a time limit", run(MediaType::TEXT, [0, 0], Metadata::default()), b"1000"),
        vector(
            "a job with everything",
            run("image/jpeg; q=\"0.9\"".parse().unwrap(), [300_000, 2500], metadata()),
            b"\x00\xff",
        ),
        vector("nobody wants the answer", ToWorker::Cancel { job: 258 }, b""),
        vector("finish, then exit", ToWorker::Drain, b""),
        vector("the state of an earlier attempt", ToWorker::Resume { job: 9 }, b"state"),
        vector("another job needs the worker", ToWorker::Yield { job: 9 }, b""),
        vector("credit for parts", ToWorker::Credit { job: 9, bytes: 1 << 17 }, b""),
        vector(
            "shared memory; a descriptor comes with it",
            ToWorker::Segment { segment: 3, bytes: 4096 + (1 << 20), holds: SegmentUse::Inputs },
            b"",
        ),
        vector("the segment is not used any more", ToWorker::SegmentGone { segment: 3 }, b""),
        vector(
            "where the input of the next Run is",
            ToWorker::InputIn { job: 7, segment: 3, offset: 64, length: 1 << 20 },
            b"",
        ),
        vector("the output has been read", ToWorker::OutputRead { segment: 4 }, b""),
        vector(
            "the input of the next Run is a file; a descriptor comes with it",
            ToWorker::InputFile { job: 7, bytes: 1 << 20 },
            b"",
        ),
        vector("the next 3 Run go together", ToWorker::Batch { jobs: 3 }, b""),
    ]
}

fn from_worker() -> Vec<Vector> {
    let vector = |about, message: FromWorker<'_>, payload: &[u8]| {
        good(Direction::FromWorker, about, &message, payload)
    };
    let (job, attempt, run_ns, usage) = (7, 1, 1000, USAGE);
    let (magic, sdk) = (WORKER_MAGIC, "offload-worker 0.4.0");
    let plain = FromWorker::Offer {
        task: TaskOffer::new("echo"),
        about: TaskDescription::default(),
        example_length: 0,
        schema_length: 0,
    };
    let full = FromWorker::Offer {
        task: TaskOffer {
            idempotent: true,
            stepped: true,
            checkpoints: true,
            progress_ms: 258,
            ..TaskOffer::new("primes")
        },
        about: TaskDescription {
            description: "counts primes".to_owned(),
            accepts: vec![MediaType::JSON, "text/*".parse().unwrap()],
            produces: MediaType::JSON,
            streams: true,
            memory_bytes: 1 << 20,
            exclusive: true,
        },
        example_length: 4,
        schema_length: 18,
    };
    let failed = |kind| FromWorker::Failed { job, attempt, run_ns, kind, message: "why".into(), usage };
    vec![
        vector(
            "the first message",
            FromWorker::Hello { magic, major: 3, minor: 0, capabilities: 0, sdk },
            b"",
        ),
        vector(
            "the same, of a worker that can send parts",
            FromWorker::Hello { magic, major: 3, minor: 0, capabilities: PARTS, sdk },
            b"",
        ),
        vector("a task that says nothing of itself", plain, b""),
        vector("a task that says everything: example, then schema", full, br#"1000{"type":"integer"}"#),
        vector("ready for jobs", FromWorker::Ready, b""),
        vector("the task begins", FromWorker::Started { job, attempt }, b""),
        vector(
            "the task returned",
            FromWorker::Finished { job, attempt, run_ns, media_type: MediaType::JSON, usage },
            b"[1]",
        ),
        vector(
            "the task returned an error",
            FromWorker::Failed {
                job,
                attempt,
                run_ns,
                kind: FailureKind::AppError,
                message: "häuser".into(),
                usage,
            },
            b"",
        ),
        vector(
            "the task panicked",
            FromWorker::Failed { job, attempt, run_ns, kind: FailureKind::Panic, message: "".into(), usage },
            b"",
        ),
        vector("the program exited with code 3", failed(FailureKind::Exited { code: 3 }), b""),
        vector("the program was ended by signal 11", failed(FailureKind::Signalled { signal: 11 }), b""),
        vector("the program ran too long", failed(FailureKind::TimedOut), b""),
        vector("the program used too much memory", failed(FailureKind::OutOfMemory), b""),
        vector(
            "the task returned an error that it wrote for its callers",
            failed(FailureKind::Deliberate),
            b"",
        ),
        vector("a cancelled job is not run", FromWorker::Skipped { job: 9 }, b""),
        vector("how far it is", FromWorker::Progress { job, attempt, done: 3, total: 4 }, b""),
        vector("a state to go on from", FromWorker::Checkpoint { job, attempt }, b"state"),
        vector("given back", FromWorker::Yielded { job, attempt, run_ns, usage }, b"state"),
        vector("a part of the output", FromWorker::Part { job, attempt }, b"part"),
        vector("the segment is mapped", FromWorker::SegmentReady { segment: 3 }, b""),
        vector("the segment is left alone from now on", FromWorker::SegmentLeft { segment: 3 }, b""),
        vector(
            "where the output of the next Finished is",
            FromWorker::OutputIn { job, segment: 4, offset: 64, length: 1 << 20 },
            b"",
        ),
        vector(
            "the task that was offered last takes several jobs at once",
            FromWorker::OfferBatch { batching: Batching { max: 32, wait_us: 2000 } },
            b"",
        ),
        vector("its program was stopped", FromWorker::Program { news: ProgramNews::Stopped }, b""),
        vector("its program goes on", FromWorker::Program { news: ProgramNews::Continued }, b""),
        vector(
            "its program has not begun the job",
            FromWorker::Program { news: ProgramNews::NotBegun { job, attempt } },
            b"",
        ),
        vector(
            "its program broke its rules",
            FromWorker::Program {
                news: ProgramNews::BrokeRules { of_another: false, how: "a line that is no answer".into() },
            },
            b"",
        ),
    ]
}

fn to_supervisor() -> Vec<Vector> {
    let vector = |about, message: ToSupervisor<'_>, payload: &[u8]| {
        good(Direction::ToSupervisor, about, &message, payload)
    };
    let (ticket, job) = (1, "01J");
    let options = SubmitOptions {
        timeout_ms: Some(300),
        lane: Some(Lane::Io),
        priority: -2,
        idempotency: Some(IdempotencyKey { key: "k".into(), digest: 258 }),
        metadata: metadata(),
        labels: Labels::new(&["nightly", "batch=7"]).unwrap(),
        ..SubmitOptions::default()
    };
    let stream = SubmitOptions { stream: true, ..SubmitOptions::default() };
    let submit = |detach, options| ToSupervisor::Submit {
        ticket,
        task: "echo",
        media_type: MediaType::OCTET_STREAM,
        detach,
        options,
    };
    let hello =
        ToSupervisor::Hello { magic: CLIENT_MAGIC, major: 3, minor: 0, capabilities: 0, client: "me" };
    let failed = JobFilter {
        state: "app_error".to_owned(),
        client: Some(String::new()),
        since_ms: Some(1000),
        ..JobFilter::default()
    };
    let operate = |about, operation| vector(about, ToSupervisor::Operate { ticket, operation }, b"");
    let page = ToSupervisor::Page { ticket, view: View::Jobs, after: "x", limit: 258, label: "nightly" };
    vec![
        vector("the first message", hello, b""),
        vector("a job", submit(false, SubmitOptions::default()), b"input"),
        vector("a job with options", submit(true, options), b""),
        vector("a job whose output is read in parts", submit(false, stream), b"input"),
        vector("wait for its end", ToSupervisor::Wait { ticket, job }, b""),
        vector("its result, if there is one", ToSupervisor::Result { ticket, job }, b""),
        vector("cancel it", ToSupervisor::Cancel { ticket, job }, b""),
        vector("show something", ToSupervisor::Show { ticket, view: View::Workers }, b""),
        vector("end after the jobs", ToSupervisor::Drain { ticket }, b""),
        vector("end now", ToSupervisor::Stop { ticket }, b""),
        vector("why a job waits", ToSupervisor::Explain { ticket, job }, b""),
        vector("a dead letter", ToSupervisor::Dead { ticket, action: DeadLetterAction::Drop, job }, b""),
        vector("replace the workers", ToSupervisor::Reload { ticket }, b""),
        vector("part of a list", page, b""),
        vector("end after the jobs, within a time", ToSupervisor::DrainWithin { ticket, limit_ms: 258 }, b""),
        vector(
            "the input of the next Submit is a file; a descriptor comes with it",
            ToSupervisor::InputFile { ticket, bytes: 1 << 20 },
            b"",
        ),
        operate("what a shortened id stands for", Operation::Find { text: "01J".to_owned() }),
        operate(
            "the failed jobs of the last second",
            Operation::Jobs { after: "x".to_owned(), limit: 258, filter: failed },
        ),
        operate(
            "what slot 2 printed since",
            Operation::Logs { after: 258, slot: Some(2), job: String::new() },
        ),
        operate("start nothing new of a task", Operation::Pause { task: "echo".to_owned() }),
        operate("everything may start", Operation::Resume { task: String::new() }),
    ]
}

fn to_client() -> Vec<Vector> {
    let vector =
        |about, message: ToClient<'_>, payload: &[u8]| good(Direction::ToClient, about, &message, payload);
    let ticket = 3;
    let report = |error: Option<ErrorDetail>| Report {
        job: "01J".to_owned(),
        task: "echo".to_owned(),
        outcome: error.as_ref().map_or(OutcomeCode::Ok, |error| error.code),
        error,
        attempts: 1,
        receipt: Receipt { queued_us: 41, slot: 1, usage: USAGE, ..Receipt::default() },
        media_type: MediaType::PNG,
        metadata: metadata(),
        labels: Labels::new(&["nightly"]).unwrap(),
    };
    let crash = ErrorDetail { signal: Some(-1), ..ErrorDetail::new(OutcomeCode::WorkerCrashed, "gone") };
    vec![
        vector(
            "the answer to Hello",
            ToClient::Welcome {
                magic: CLIENT_MAGIC,
                major: 3,
                minor: 0,
                capabilities: 0,
                payload_max: 64 << 20,
            },
            b"",
        ),
        vector("in the queue", ToClient::Accepted { ticket, job: "01J".into() }, b""),
        vector(
            "not accepted",
            ToClient::Rejected {
                ticket,
                code: OutcomeCode::TooLarge,
                message: "no".into(),
                retry_after_ms: Some(258),
            },
            b"",
        ),
        vector("ended well", ToClient::Finished { ticket, report: report(None) }, b"output"),
        vector("ended badly", ToClient::Finished { ticket, report: report(Some(crash)) }, b""),
        vector("the answer to a request", ToClient::Answer { ticket }, b"{}"),
        vector("the last message", ToClient::Goodbye { reason: "it is over".into() }, b"overloaded"),
        vector("a part of the output", ToClient::Part { ticket }, b"part"),
        vector("the file cannot be used: send its bytes", ToClient::SendInput { ticket }, b""),
    ]
}

fn all() -> Vec<Vector> {
    [to_worker(), from_worker(), to_supervisor(), to_client(), refused::frames()].concat()
}

/// One vector a line, so that a change of one is a change of one line.
fn document() -> String {
    let lines: Vec<String> = all().iter().map(|vector| serde_json::to_string(vector).unwrap()).collect();
    format!("{{\"protocol\":\"{VERSION_MAJOR}.{VERSION_MINOR}\",\"vectors\":[\n{}\n]}}\n", lines.join(",\n"))
}

fn path() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors.json")
}

fn in_the_file() -> Vec<Vector> {
    // The tests run at the same time.
    static WRITTEN: Once = Once::new();
    WRITTEN.call_once(|| {
        if std::env::var_os("OFFLOAD_WRITE_VECTORS").is_some() {
            std::fs::write(path(), document()).unwrap();
        }
    });
    let mut document: Value = serde_json::from_slice(&std::fs::read(path()).unwrap()).unwrap();
    serde_json::from_value(document["vectors"].take()).unwrap()
}

#[test]
fn each_message_encodes_to_the_bytes_in_the_file() {
    for (vector, golden) in all().iter().zip(&in_the_file()) {
        assert_eq!(vector, golden, "the wire has changed");
    }
    assert_eq!(all().len(), in_the_file().len());
}

#[test]
fn each_frame_in_the_file_means_what_it_says_or_is_refused_as_it_says() {
    for vector in in_the_file() {
        match (read(vector.direction, &bytes(&vector.frame)), vector.meaning, vector.error) {
            (Ok(read), Some(meaning), None) => assert_eq!(read, meaning, "{}", vector.about),
            (Err((kind, _)), None, Some(error)) => assert_eq!(kind, error, "{}", vector.about),
            (read, ..) => panic!("{}: {read:?}", vector.about),
        }
    }
}

#[test]
fn every_message_is_in_the_file() {
    let mut numbers: BTreeMap<Direction, Vec<u32>> = BTreeMap::new();
    for vector in in_the_file() {
        numbers.entry(vector.direction).or_default().extend(vector.meaning.map(|meaning| meaning.number));
    }
    for (direction, mut numbers) in numbers {
        numbers.sort_unstable();
        numbers.dedup();
        let count = numbers.len() as u32;
        assert_eq!(numbers, Vec::from_iter(0..count), "{direction:?}");
        assert!(read(direction, &headed(&count.to_le_bytes())).is_err(), "{direction:?}: {count} is missing");
    }
}
