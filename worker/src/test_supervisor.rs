//! The other end of a session, for tests: a supervisor that says what it is told to say, by the protocol crate alone.
//! Whatever it waits for has to come within a deadline.

use crate::builtin;
use crate::session_error::SessionError;
use crate::worker::Worker;
use bytes::Bytes;
use offload_protocol::codec;
use offload_protocol::frame::FrameDecoder;
use offload_protocol::limits::PAYLOAD_MAX_DEFAULT;
use offload_protocol::messages::{FromWorker, ToWorker, VERSION_MAJOR, VERSION_MINOR};
use offload_protocol::nouns::{Batching, DescribedTask, FailureKind, MediaType, Metadata, TaskOffer, Usage};
use offload_protocol::outbox::Outbox;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(30);

/// What a worker said, independent of any buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Hello,
    Offer(TaskOffer<'static>, DescribedTask),
    OfferBatch(Batching),
    Ready,
    Started {
        job: u64,
        attempt: u32,
    },
    Finished {
        job: u64,
        attempt: u32,
        media_type: MediaType,
        output: Vec<u8>,
    },
    Failed {
        job: u64,
        attempt: u32,
        kind: FailureKind,
        message: String,
    },
    Skipped {
        job: u64,
    },
    Progress {
        job: u64,
        done: u64,
        total: u64,
    },
    Checkpoint {
        job: u64,
        state: Vec<u8>,
    },
    Yielded {
        job: u64,
        state: Vec<u8>,
    },
    Part {
        job: u64,
        part: Vec<u8>,
    },
    SegmentReady(u32),
    SegmentLeft(u32),
    OutputIn {
        job: u64,
        segment: u32,
        offset: u64,
        length: u64,
    },
    /// Bytes that begin no frame.
    Garbage,
    /// The stream has ended.
    Nothing,
    /// Something of the program that the worker stands in front of.
    Program,
}

fn run(job: u64, task: &str) -> ToWorker<'_> {
    ToWorker::Run {
        job,
        attempt: 1,
        task,
        media_type: MediaType::TEXT,
        timeout_ms: 0,
        deadline_ms: 0,
        metadata: Metadata::default(),
    }
}

pub(crate) struct TestSupervisor {
    stream: UnixStream,
    decoder: FrameDecoder,
    /// What is said with the next [`TestSupervisor::send`].
    outbox: Outbox,
    /// What the job that ended last has used.
    pub(crate) usage: Usage,
    /// What the worker offered, if it was heard.
    pub(crate) offers: Vec<(TaskOffer<'static>, DescribedTask)>,
}

impl TestSupervisor {
    pub(crate) fn new(stream: UnixStream) -> TestSupervisor {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        let decoder = FrameDecoder::new(PAYLOAD_MAX_DEFAULT);
        TestSupervisor { stream, decoder, outbox: Outbox::new(), usage: Usage::default(), offers: Vec::new() }
    }

    /// With a worker on a thread, which has said Hello.
    pub(crate) fn of(worker: impl FnOnce() -> Worker + Send + 'static) -> (TestSupervisor, Serving) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let serving = thread::spawn(move || worker().serve_on(theirs));
        let mut supervisor = TestSupervisor::new(ours);
        supervisor.offers = supervisor.hear_offers();
        (supervisor, Serving(serving))
    }

    /// The same with a worker that waits for Welcome before it offers its tasks.
    pub(crate) fn welcoming(
        capabilities: u64,
        worker: impl FnOnce() -> Worker + Send + 'static,
    ) -> (TestSupervisor, Serving) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let serving = thread::spawn(move || worker().serve_on(theirs));
        let mut supervisor = TestSupervisor::new(ours);
        supervisor.welcome(capabilities, &[]);
        supervisor.offers = supervisor.hear_offers();
        (supervisor, Serving(serving))
    }

    /// With the built-in worker, and no capabilities.
    pub(crate) fn of_builtin() -> (TestSupervisor, Serving) {
        TestSupervisor::welcoming(0, || builtin::tasks(true).into_iter().fold(Worker::new(), Worker::with))
    }

    pub(crate) fn add(&mut self, message: &ToWorker<'_>, payload: impl Into<Bytes>) -> &mut TestSupervisor {
        self.outbox.push(message, &payload.into()).unwrap();
        self
    }

    pub(crate) fn add_run(&mut self, job: u64, task: &str, input: impl Into<Bytes>) -> &mut TestSupervisor {
        self.add(&run(job, task), input)
    }

    /// A run as one packet for a tray.
    pub(crate) fn run_packet(job: u64, task: &str, input: &str) -> Vec<u8> {
        let mut packet = Vec::new();
        codec::encode(&run(job, task), input.len(), &mut packet).unwrap();
        packet.extend_from_slice(input.as_bytes());
        packet
    }

    /// Answers the hello at once, with these descriptors.
    pub(crate) fn welcome(&mut self, capabilities: u64, descriptors: &[&OwnedFd]) {
        let (major, minor, payload_max) = (VERSION_MAJOR, VERSION_MINOR, 64 << 20);
        let welcome = ToWorker::Welcome { major, minor, capabilities, payload_max };
        let mut bytes = Vec::new();
        codec::encode(&welcome, 0, &mut bytes).unwrap();
        let descriptors: Vec<_> = descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let sent = sendmsg(&self.stream, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL);
        assert_eq!(sent, Ok(bytes.len()));
    }

    /// Reads one byte that nobody looks at.
    pub(crate) fn read_some(&mut self) -> usize {
        self.stream.read(&mut [0]).unwrap()
    }

    /// Sends in one batch what was added.
    pub(crate) fn send(&mut self) {
        while !self.outbox.is_empty() {
            let count = self.stream.write(self.outbox.front()).unwrap();
            self.outbox.written(count);
        }
    }

    /// Sends what was added, and a descriptor with its first byte.
    pub(crate) fn send_with(&mut self, descriptor: BorrowedFd<'_>) {
        let descriptors = [descriptor];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let bytes = [IoSlice::new(self.outbox.front())];
        let count = sendmsg(&self.stream, &bytes, &mut ancillary, SendFlags::NOSIGNAL).unwrap();
        self.outbox.written(count);
        self.send();
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn say_no_more(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    pub(crate) fn hear(&mut self) -> Said {
        loop {
            match self.decoder.next() {
                Ok(Some(frame)) => {
                    let message = codec::decode(&frame.header).unwrap();
                    self.usage = usage(&message).unwrap_or(self.usage);
                    return said(message, frame.payload.into_owned());
                }
                Ok(None) => {}
                Err(_) => return Said::Garbage,
            }
            if self.decoder.announced().is_some() {
                continue;
            }
            match self.stream.read(self.decoder.space()).unwrap() {
                0 => return Said::Nothing,
                count => self.decoder.filled(count),
            }
        }
    }

    /// What the worker offers, from its hello until it is ready.
    pub(crate) fn hear_offers(&mut self) -> Vec<(TaskOffer<'static>, DescribedTask)> {
        assert_eq!(self.hear(), Said::Hello);
        let mut offers = Vec::new();
        loop {
            match self.hear() {
                Said::Offer(offer, described) => offers.push((offer, described)),
                Said::OfferBatch(batching) => {
                    offers.last_mut().expect("it is about an offer").0.batching = Some(batching);
                }
                Said::Ready => return offers,
                other => panic!("not an offer: {other:?}"),
            }
        }
    }

    /// How far a job is matters in few tests, and how often it is said depends on the machine.
    pub(crate) fn hear_more_than_progress(&mut self) -> Said {
        loop {
            match self.hear() {
                Said::Progress { .. } => {}
                other => return other,
            }
        }
    }
}

impl TestSupervisor {
    /// The answer of a job. Parts that came before, and to which credit is given, are at the front of its output.
    pub(crate) fn hear_the_end(&mut self) -> Said {
        let mut parts = Vec::new();
        loop {
            match self.hear_more_than_progress() {
                Said::Part { job, part } => {
                    self.add(&ToWorker::Credit { job, bytes: part.len() as u64 }, "").send();
                    parts.extend(part);
                }
                Said::Finished { job, attempt, media_type, output } => {
                    parts.extend(output);
                    return Said::Finished { job, attempt, media_type, output: parts };
                }
                other => return other,
            }
        }
    }
}

fn said(message: FromWorker<'_>, output: Vec<u8>) -> Said {
    match message {
        FromWorker::Hello { .. } => Said::Hello,
        FromWorker::Offer { task, about, example_length, schema_length } => {
            let described = DescribedTask::new(about, &output, example_length, schema_length).unwrap();
            Said::Offer(task.into_owned(), described)
        }
        FromWorker::OfferBatch { batching } => Said::OfferBatch(batching),
        FromWorker::Ready => Said::Ready,
        FromWorker::Started { job, attempt } => Said::Started { job, attempt },
        FromWorker::Finished { job, attempt, media_type, .. } => {
            Said::Finished { job, attempt, media_type, output }
        }
        FromWorker::Skipped { job } => Said::Skipped { job },
        FromWorker::Failed { job, attempt, kind, message, .. } => {
            Said::Failed { job, attempt, kind, message: message.into_owned() }
        }
        FromWorker::Progress { job, done, total, .. } => Said::Progress { job, done, total },
        FromWorker::Checkpoint { job, .. } => Said::Checkpoint { job, state: output },
        FromWorker::Yielded { job, .. } => Said::Yielded { job, state: output },
        FromWorker::Part { job, .. } => Said::Part { job, part: output },
        FromWorker::Program { .. } => Said::Program,
        FromWorker::SegmentReady { segment } => Said::SegmentReady(segment),
        FromWorker::SegmentLeft { segment } => Said::SegmentLeft(segment),
        FromWorker::OutputIn { job, segment, offset, length } => {
            Said::OutputIn { job, segment, offset, length }
        }
    }
}

fn usage(message: &FromWorker<'_>) -> Option<Usage> {
    match message {
        FromWorker::Finished { usage, .. }
        | FromWorker::Failed { usage, .. }
        | FromWorker::Yielded { usage, .. } => Some(*usage),
        _ => None,
    }
}

/// A worker on a thread.
pub(crate) struct Serving(JoinHandle<Result<(), SessionError>>);

impl Serving {
    pub(crate) fn end(self) -> Result<(), SessionError> {
        self.0.join().unwrap()
    }
}

/// What a built-in task answers, or the message of its error.
pub(crate) fn answer_bytes(task: &str, input: impl Into<Bytes>) -> Result<Vec<u8>, String> {
    let (mut supervisor, serving) = TestSupervisor::of_builtin();
    supervisor.add_run(1, task, input).send();
    assert_eq!(supervisor.hear(), Said::Started { job: 1, attempt: 1 });
    let answer = match supervisor.hear_the_end() {
        Said::Finished { output, .. } => Ok(output),
        Said::Failed { message, kind: FailureKind::AppError, .. } => Err(message),
        other => panic!("not an answer: {other:?}"),
    };
    // A stepped task that is told earlier gives its job back.
    supervisor.add(&ToWorker::Drain, "").send();
    serving.end().unwrap();
    answer
}

pub(crate) fn answer_text(task: &str, input: impl Into<Bytes>) -> Result<String, String> {
    answer_bytes(task, input).map(|output| String::from_utf8(output).unwrap())
}

pub(crate) fn answer(task: &str, input: impl Into<Bytes>) -> Result<serde_json::Value, String> {
    answer_bytes(task, input).map(|output| serde_json::from_slice(&output).unwrap())
}
