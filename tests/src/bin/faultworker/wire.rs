//! The protocol by hand: what the library for workers does, without its manners.

use crate::batches;
use crate::shared::Shared;
use offload_protocol::codec::{self, DecodeError};
use offload_protocol::frame::{FrameDecoder, FrameError};
use offload_protocol::limits::PAYLOAD_MAX_CEILING;
use offload_protocol::messages::{
    BATCHES, FromWorker, PARTS, PREFETCH, ToWorker, VERSION_MAJOR, VERSION_MINOR, WORKER_MAGIC,
};
use offload_protocol::nouns::{FailureKind, MediaType, TaskDescription, TaskOffer, Usage};
use rustix::io::{Errno, retry_on_intr, write};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recv, recvmsg, sendmsg,
};
use rustix::stdio::stdin;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A job as it came.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) attempt: u32,
    pub(crate) task: String,
    pub(crate) input: Vec<u8>,
    /// Whether the input was in a segment.
    pub(crate) is_shared: bool,
}

impl Job {
    /// For acts outside of any job.
    pub(crate) fn none() -> Job {
        Job { id: 1, attempt: 1, task: String::new(), input: Vec::new(), is_shared: false }
    }
}

/// What the supervisor wants next.
pub(crate) enum Told {
    Run(Job),
    /// The next jobs, so many, run together.
    Batch(u32),
    Drain,
    /// So many more bytes of parts may be sent.
    Credit(u64),
    /// It is gone, or speaks nonsense.
    Gone,
}

/// The socket, which is descriptor 0 and nothing else: a child that inherits it keeps it open.
pub(crate) struct Wire {
    decoder: FrameDecoder,
    inbox: VecDeque<Told>,
    pub(crate) given: Given,
}

/// What the supervisor has given beside jobs.
#[derive(Default)]
pub(crate) struct Given {
    /// Those whose messages have not come yet.
    descriptors: VecDeque<OwnedFd>,
    pub(crate) shared: Shared,
    /// The content of the file that is the input of the next job.
    file: Option<Vec<u8>>,
    /// It has come, if one was asked for.
    pub(crate) tray: Option<OwnedFd>,
}

/// Nanoseconds that every job is said to have taken. With a microsecond, several jobs are given at a time; with a
/// millisecond, one is, and another one lies in the tray.
static RUN_NS: AtomicU64 = AtomicU64::new(1000);

/// From now on jobs are said to take a millisecond.
pub(crate) fn be_slow() {
    RUN_NS.store(1_000_000, Ordering::Relaxed);
}

impl Wire {
    pub(crate) fn new() -> Wire {
        let (inbox, given) = (VecDeque::new(), Given::default());
        Wire { decoder: FrameDecoder::new(PAYLOAD_MAX_CEILING), inbox, given }
    }

    /// The next thing to do. `deaf` is asked about the task of a job whose long input has not been read yet, and does
    /// not return if it is not to be read.
    pub(crate) fn next(&mut self, deaf: impl Fn(&str)) -> Told {
        loop {
            if let Some(told) = self.inbox.pop_front() {
                return told;
            }
            match self.receive() {
                Ok(0) | Err(_) => return Told::Gone,
                Ok(count) => self.decoder.filled(count),
            }
            if self.sort(&deaf).is_err() {
                return Told::Gone;
            }
        }
    }

    fn receive(&mut self) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [IoSliceMut::new(self.decoder.space())];
        let received =
            retry_on_intr(|| recvmsg(stdin(), &mut bytes, &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.given.descriptors.extend(descriptors);
            }
        }
        Ok(received.bytes)
    }

    /// Whether anything has come that was not looked at.
    pub(crate) fn has_more(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// The job in the tray, if one lies there. Who peeks leaves it there.
    pub(crate) fn take_from_tray(&mut self, peeks: bool) -> Option<Job> {
        let flags = if peeks { RecvFlags::DONTWAIT | RecvFlags::PEEK } else { RecvFlags::DONTWAIT };
        let mut decoder = FrameDecoder::new(PAYLOAD_MAX_CEILING);
        let (count, _) = recv(self.given.tray.as_ref()?, decoder.space(), flags).ok()?;
        decoder.filled(count);
        let frame = decoder.next().ok()??;
        match self.given.told(&frame.header, frame.payload.into_owned()) {
            Ok(Some(Told::Run(job))) => Some(job),
            _ => None,
        }
    }

    /// Waits for credit for more parts, and leaves the rest for later. 0 if the supervisor is gone.
    pub(crate) fn wait_for_credit(&mut self) -> u64 {
        let (mut left, mut credit) = (VecDeque::new(), None);
        while credit.is_none() {
            match self.next(|_| ()) {
                Told::Credit(bytes) => credit = Some(bytes),
                Told::Gone => credit = Some(0),
                other => left.push_back(other),
            }
        }
        left.append(&mut self.inbox);
        self.inbox = left;
        credit.unwrap_or(0)
    }

    fn sort(&mut self, deaf: &impl Fn(&str)) -> Result<(), FrameError> {
        loop {
            while let Some(frame) = self.decoder.next()? {
                let told = self.given.told(&frame.header, frame.payload.into_owned());
                self.inbox.extend(told.unwrap_or(Some(Told::Gone)));
            }
            let Some(announced) = self.decoder.announced() else { return Ok(()) };
            if let Ok(ToWorker::Run { task, .. }) = codec::decode(announced.header) {
                deaf(task);
            }
        }
    }
}

impl Given {
    fn told(&mut self, header: &[u8], input: Vec<u8>) -> Result<Option<Told>, DecodeError> {
        Ok(match codec::decode(header)? {
            ToWorker::Run { job, attempt, task, .. } => {
                let announced = self.shared.take_input(job);
                let is_shared = announced.is_some();
                let input = self.file.take().or(announced).unwrap_or(input);
                Some(Told::Run(Job { id: job, attempt, task: task.to_owned(), input, is_shared }))
            }
            ToWorker::Segment { segment, holds, .. } => {
                self.shared.add(segment, holds, self.descriptors.pop_front());
                send(&frame(&FromWorker::SegmentReady { segment }, b""));
                None
            }
            ToWorker::SegmentGone { .. } if self.shared.is_mute => None,
            ToWorker::SegmentGone { segment } => {
                self.shared.remove(segment);
                send(&frame(&FromWorker::SegmentLeft { segment }, b""));
                None
            }
            ToWorker::InputIn { job, offset, length, .. } => {
                self.shared.announce(job, offset, length);
                None
            }
            ToWorker::OutputRead { .. } => {
                self.shared.is_unread = false;
                None
            }
            ToWorker::InputFile { bytes, .. } => {
                let length = usize::try_from(bytes).unwrap_or(usize::MAX);
                self.file = self.descriptors.pop_front().map(|file| read(&file.into(), length));
                None
            }
            ToWorker::Drain => Some(Told::Drain),
            ToWorker::Credit { bytes, .. } => Some(Told::Credit(bytes)),
            ToWorker::Welcome { capabilities, .. } => {
                if capabilities & PREFETCH != 0 {
                    self.tray = self.descriptors.pop_front();
                }
                None
            }
            // A job that was cancelled may as well be run.
            ToWorker::Cancel { .. } | ToWorker::Resume { .. } | ToWorker::Yield { .. } => None,
            ToWorker::Batch { jobs } => Some(Told::Batch(jobs)),
        })
    }
}

/// The first bytes of a file, as many as there are.
fn read(file: &File, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let count = file.read_at(&mut bytes, 0).unwrap_or(0);
    bytes.truncate(count);
    bytes
}

/// Writes everything, or as much as somebody reads.
pub(crate) fn send(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match retry_on_intr(|| write(stdin(), bytes)) {
            Ok(count) => bytes = &bytes[count..],
            Err(_) => return,
        }
    }
}

/// As [`send`], one byte at a time.
pub(crate) fn drip(bytes: &[u8]) {
    bytes.chunks(1).for_each(send);
}

/// Writes the bytes with as many copies of a descriptor attached to them as one message carries.
pub(crate) fn send_with_descriptors(bytes: &[u8]) {
    const MOST: usize = 250;
    let socket = stdin();
    let descriptors = [socket.as_fd(); MOST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)), "the space is for so many");
    let _ = sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::empty());
}

/// The bytes of a message and its payload.
pub(crate) fn frame(message: &FromWorker<'_>, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::encode(message, payload.len(), &mut bytes).expect("what is said here fits on the wire");
    bytes.extend_from_slice(payload);
    bytes
}

/// The first message of a good worker.
pub(crate) const HELLO: FromWorker<'static> = FromWorker::Hello {
    magic: WORKER_MAGIC,
    major: VERSION_MAJOR,
    minor: VERSION_MINOR,
    capabilities: PARTS,
    sdk: "faultworker",
};

/// An introduction of this version with these tasks: name, and whether it is idempotent.
pub(crate) fn introduction(tasks: &[(&str, bool)], capabilities: u64) -> Vec<u8> {
    let (magic, major, minor, sdk) = (WORKER_MAGIC, VERSION_MAJOR, VERSION_MINOR, "faultworker");
    let mut bytes = frame(&FromWorker::Hello { magic, major, minor, capabilities, sdk }, b"");
    for (name, idempotent) in tasks {
        let task = TaskOffer { idempotent: *idempotent, ..TaskOffer::new(*name) };
        let (example_length, schema_length) = (0, 0);
        let about = TaskDescription::default();
        bytes.extend(frame(&FromWorker::Offer { task, about, example_length, schema_length }, b""));
        if *name == batches::MEMBER && capabilities & BATCHES != 0 {
            bytes.extend(frame(&FromWorker::OfferBatch { batching: batches::OFFER }, b""));
        }
    }
    bytes.extend(frame(&FromWorker::Ready, b""));
    bytes
}

pub(crate) fn started(job: u64, attempt: u32) -> Vec<u8> {
    frame(&FromWorker::Started { job, attempt }, b"")
}

pub(crate) fn part(job: u64, attempt: u32, part: &[u8]) -> Vec<u8> {
    frame(&FromWorker::Part { job, attempt }, part)
}

pub(crate) fn finished(job: u64, attempt: u32, media_type: MediaType, output: &[u8]) -> Vec<u8> {
    let usage = Usage::default();
    let run_ns = RUN_NS.load(Ordering::Relaxed);
    frame(&FromWorker::Finished { job, attempt, run_ns, media_type, usage }, output)
}

pub(crate) fn failed(job: &Job, kind: FailureKind, message: &str) -> Vec<u8> {
    let usage = Usage::default();
    let message = message.into();
    let failed = FromWorker::Failed { job: job.id, attempt: job.attempt, run_ns: 1000, kind, message, usage };
    frame(&failed, b"")
}
