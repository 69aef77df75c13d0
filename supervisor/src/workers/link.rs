//! The socket between supervisor and worker: frames in, frames out, and nothing about what they mean.
//!
//! The worker is not trusted. Whatever it sends, one call reads a bounded amount. Bytes that are not a message are an
//! error after which the link must not be used any more, because there is no way to find the next message in such a
//! stream.
//!
//! A worker with segments has its large payloads there (`segments.rs`). Whoever uses the link does not see the difference: an
//! input goes into a segment where there would be a long message, and an output comes out of one.

use super::allowance::Allowance;
use super::buffers::Buffers;
use super::segment::Segment;
use super::segments::{News, OutputPlace, WorkerSegments};
use crate::wire::{Arrived, Descriptor, Flushed, SharedCopy, Wire};
use bytes::Bytes;
use offload_protocol::codec::{self, DecodeError, EncodeError};
use offload_protocol::frame::{Frame, FrameError, owned_payload};
use offload_protocol::greeting::Greeting;
use offload_protocol::limits::{CHECKPOINT_MAX, OFFER_TEXTS_MAX};
use offload_protocol::messages::{FromWorker, SegmentUse, ToWorker, WORKER_MAGIC};
use rustix::io::Errno;
use std::borrow::Cow;
use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// The result of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Bytes were read, and the messages that they complete (perhaps none) were passed on as far as is allowed. There may be
    /// more.
    Messages,
    /// Nothing more is allowed. There may be more.
    Enough,
    /// There is nothing to read now.
    WouldBlock,
    /// The worker has closed its end, and so has every process that inherited it.
    Closed,
}

/// Why the link to a worker is broken.
#[derive(Debug)]
#[non_exhaustive]
pub enum LinkError {
    /// The worker sent bytes that are not a frame.
    Frame(FrameError),
    /// The worker sent a frame that is not a message.
    Decode(DecodeError),
    /// The worker sent the hello of another version.
    Foreign(Greeting),
    /// The worker sent a message about a segment that is wrong.
    Segment(String),
    /// The socket failed, which is not the worker's fault.
    Io(io::Error),
}

impl fmt::Display for LinkError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkError::Frame(error) => write!(formatter, "not a frame: {error}"),
            LinkError::Decode(error) => write!(formatter, "not a message: {error}"),
            LinkError::Foreign(greeting) => formatter.write_str(&greeting.foreign_worker()),
            LinkError::Segment(what) => write!(formatter, "not true: {what}"),
            LinkError::Io(error) => write!(formatter, "worker socket: {error}"),
        }
    }
}

impl std::error::Error for LinkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LinkError::Frame(error) => Some(error),
            LinkError::Decode(error) => Some(error),
            LinkError::Io(error) => Some(error),
            LinkError::Foreign(_) | LinkError::Segment(_) => None,
        }
    }
}

/// What a header that is no message is: the hello of another version, or nothing at all.
fn refusal(header: &[u8], error: DecodeError) -> LinkError {
    match Greeting::of(header) {
        Some(greeting) if greeting.magic == WORKER_MAGIC && greeting.is_foreign() => {
            LinkError::Foreign(greeting)
        }
        _ => LinkError::Decode(error),
    }
}

/// The socket to one worker. See the module's documentation.
#[derive(Debug)]
pub(super) struct Link {
    wire: Wire,
    /// The longest output, in bytes.
    output_max: usize,
    /// None if the worker cannot use them.
    segments: Option<WorkerSegments>,
    /// Messages that have been read may be left in the decoder: passing on more was not allowed.
    has_rest: bool,
}

impl Link {
    /// Takes over our end of the socket pair and makes it non-blocking; the worker's end is not affected. An output may
    /// have at most `payload_max` bytes. What else a worker sends has bounds of its own, however small that is.
    pub(super) fn new(socket: UnixStream, payload_max: usize) -> io::Result<Link> {
        socket.set_nonblocking(true)?;
        let longest = payload_max.max(OFFER_TEXTS_MAX).max(CHECKPOINT_MAX);
        Ok(Link {
            wire: Wire::new(socket, longest),
            output_max: payload_max,
            segments: None,
            has_rest: false,
        })
    }

    pub(super) fn socket(&self) -> Arc<UnixStream> {
        self.wire.socket()
    }

    pub(super) fn send(&mut self, message: &ToWorker<'_>, payload: &Bytes) -> Result<(), EncodeError> {
        match message {
            ToWorker::Run { job, .. } if self.segments.is_some() => self.send_run(*job, message, payload),
            _ => self.wire.push(message, payload),
        }
    }

    fn send_run(&mut self, job: u64, message: &ToWorker<'_>, input: &Bytes) -> Result<(), EncodeError> {
        self.say_read();
        let Some(segments) = &mut self.segments else { return self.wire.push(message, input) };
        match segments.place_input(job, input.len()) {
            Ok(place) => {
                let (segment, offset, length) = (place.segment, place.offset as u64, input.len() as u64);
                let copy = SharedCopy::new(input.clone(), place.mapping, place.offset);
                let input_in = ToWorker::InputIn { job, segment, offset, length };
                self.wire.push_after(copy, &input_in, &Bytes::new())?;
                self.wire.push(message, &Bytes::new())
            }
            Err(gone) => {
                self.wire.push(message, input)?;
                gone.map_or(Ok(()), |segment| {
                    self.wire.push(&ToWorker::SegmentGone { segment }, &Bytes::new())
                })
            }
        }
    }

    /// Tells the worker that its last output was read, if it was not told yet. It has to hear of it before its next job.
    pub(super) fn say_read(&mut self) {
        if let Some(segment) = self.segments.as_mut().and_then(WorkerSegments::take_read) {
            self.wire.push(&ToWorker::OutputRead { segment }, &Bytes::new()).expect("it is short");
        }
    }

    /// Like `send`, with a descriptor for the worker.
    pub(super) fn send_with(
        &mut self,
        message: &ToWorker<'_>,
        descriptor: Descriptor,
    ) -> Result<(), EncodeError> {
        self.wire.push_with(message, &Bytes::new(), descriptor)
    }

    pub(super) fn unsent(&self) -> usize {
        self.wire.unsent()
    }

    pub(super) fn written(&self) -> u64 {
        self.wire.written()
    }

    pub(super) fn discard_unsent(&mut self) {
        self.wire.discard_unsent();
    }

    pub(super) fn flush(&mut self) -> io::Result<Flushed> {
        Ok(self.wire.flush()?)
    }

    /// Goes on with what has been read, or else reads once.
    pub(super) fn receive(
        &mut self,
        allowance: &mut Allowance,
        sink: &mut dyn FnMut(FromWorker<'_>, Bytes),
    ) -> Result<Received, LinkError> {
        if allowance.is_used_up() {
            return Ok(Received::Enough);
        }
        if let Some(segments) = self.segments.as_mut().filter(|segments| segments.is_copying()) {
            segments.copy_some(allowance);
            if !segments.is_copying() {
                self.hand_over(allowance, sink)?;
            }
            return Ok(Received::Messages);
        }
        if self.has_rest {
            self.hand_over(allowance, sink)?;
            return Ok(Received::Messages);
        }
        let before = self.wire.received();
        let read = self.wire.read();
        allowance.spend_read((self.wire.received() - before) as usize);
        match read {
            // A reset means that the worker died before it read all of our messages. What it had sent was read before.
            Ok(Arrived::End) | Err(Errno::CONNRESET) => Ok(Received::Closed),
            Ok(Arrived::Bytes) => {
                self.hand_over(allowance, sink)?;
                Ok(Received::Messages)
            }
            Ok(Arrived::Nothing) => Ok(Received::WouldBlock),
            Err(error) => Err(LinkError::Io(error.into())),
        }
    }

    pub(super) fn is_mid_frame(&self) -> bool {
        self.wire.is_mid_frame()
    }

    /// Whether [`Link::receive`] has something to do although nothing more comes.
    pub(super) fn has_rest(&self) -> bool {
        self.has_rest || self.is_copying()
    }

    /// Closes both directions, also for every process that inherited the other end. Closing twice has no effect.
    pub(super) fn close(&mut self) {
        self.wire.close();
    }

    /// Passes on what has been read, as far as is allowed.
    fn hand_over(
        &mut self,
        allowance: &mut Allowance,
        sink: &mut dyn FnMut(FromWorker<'_>, Bytes),
    ) -> Result<(), LinkError> {
        loop {
            self.has_rest = !allowance.has_messages();
            if self.has_rest {
                return Ok(());
            }
            let Some(Frame { header, payload }) = self.wire.decoder().next().map_err(LinkError::Frame)?
            else {
                // Large outputs are always accepted: asking for the next frame accepts the announced payload, which may be
                // complete already.
                if self.wire.announced().is_none() {
                    return Ok(());
                }
                continue;
            };
            allowance.spend_message();
            let message = codec::decode(&header).map_err(|error| refusal(&header, error))?;
            let (length, max) = (payload.len(), self.output_max);
            if matches!(message, FromWorker::Finished { .. }) && length > max {
                return Err(LinkError::Frame(FrameError::PayloadLength { length, max }));
            }
            let (payload, gone) = match &mut self.segments {
                None if is_about_segments(&message) => return Err(no_segments()),
                None => (owned_payload(payload), None),
                Some(segments) => match apply_to_segments(segments, &message, payload, max, allowance)? {
                    AfterSegments::Payload(payload) => (payload, None),
                    AfterSegments::Answer(payload, gone) => (payload, gone),
                    AfterSegments::Whole => continue,
                    AfterSegments::Copying => return Ok(()),
                },
            };
            sink(message, payload);
            drop(header);
            if let Some(segment) = gone {
                let told = self.wire.push(&ToWorker::SegmentGone { segment }, &Bytes::new());
                told.expect("it is short");
            }
        }
    }
}

/// Segments: what the owner of all segments says, and asks.
impl Link {
    /// The worker can use segments.
    pub(super) fn allow_segments(&mut self, buffers: Buffers) {
        self.segments.get_or_insert_with(|| WorkerSegments::new(buffers));
    }

    pub(super) fn segments(&mut self) -> Option<&mut WorkerSegments> {
        self.segments.as_mut()
    }

    /// What is to be done for the segments of this worker, if anything is.
    pub(super) fn take_segment_news(&mut self) -> Option<News> {
        self.segments.as_mut()?.take_news()
    }

    /// Sends the worker a segment that was wanted.
    ///
    /// # Errors
    /// It is not wanted any more.
    pub(super) fn offer_segment(&mut self, holds: SegmentUse, mut segment: Segment) -> Result<(), Segment> {
        let Some(segments) = &mut self.segments else { return Err(segment) };
        let Some(file) = segment.take_file() else { return Err(segment) };
        let message = ToWorker::Segment { segment: segment.id(), bytes: segment.length() as u64, holds };
        segments.offer(holds, segment)?;
        self.send_with(&message, Arc::new(file)).expect("it is short");
        Ok(())
    }

    /// Gives up what was not used since the last call. True if the worker has other segments.
    pub(super) fn rest_segments(&mut self) -> bool {
        let Some(segments) = &mut self.segments else { return false };
        let (gone, has_others) = segments.rest();
        for segment in gone {
            let told = self.wire.push(&ToWorker::SegmentGone { segment }, &Bytes::new());
            told.expect("it is short");
        }
        has_others
    }

    /// Whether an output is being copied, so that [`Link::receive`] does not read.
    pub(super) fn is_copying(&self) -> bool {
        self.segments.as_ref().is_some_and(WorkerSegments::is_copying)
    }

    /// Whether the worker has to say that it has mapped a segment, or left one.
    pub(super) fn owes_answer(&self) -> bool {
        self.segments.as_ref().is_some_and(WorkerSegments::owes_answer)
    }

    /// How many bytes are still to be copied of the output that is being copied.
    pub(super) fn uncopied(&self) -> usize {
        self.segments.as_ref().map_or(0, WorkerSegments::uncopied)
    }

    /// The bytes of segments that the worker may have mapped.
    pub(super) fn mapped(&self) -> u64 {
        self.segments.as_ref().map_or(0, WorkerSegments::mapped)
    }
}

/// What became of a message of a worker with segments.
enum AfterSegments {
    /// It is to be passed on, with this payload.
    Payload(Bytes),
    /// It is to be passed on, with this payload, and the worker is to be told that a segment is gone.
    Answer(Bytes, Option<u32>),
    /// It was about a segment, and nothing is left to do.
    Whole,
    /// It was about an output that is being copied. Nothing else is taken until that is complete.
    Copying,
}

fn apply_to_segments(
    segments: &mut WorkerSegments,
    message: &FromWorker<'_>,
    payload: Cow<'_, [u8]>,
    output_max: usize,
    allowance: &mut Allowance,
) -> Result<AfterSegments, LinkError> {
    let is_empty = payload.is_empty();
    if is_about_segments(message) && !is_empty {
        return Err(LinkError::Segment("a payload with a message that has none".to_owned()));
    }
    let taken = match *message {
        FromWorker::Finished { job, .. } if segments.has_output() && is_empty => {
            let output = segments.take_output(job).map_err(LinkError::Segment)?;
            segments.answered(job, 0);
            return Ok(AfterSegments::Payload(output));
        }
        _ if segments.has_output() => Err("an output in a segment, and no Finished after it".to_owned()),
        FromWorker::SegmentReady { segment } => segments.ready(segment).map(|()| AfterSegments::Whole),
        FromWorker::SegmentLeft { segment } => segments.left(segment).map(|()| AfterSegments::Whole),
        FromWorker::OutputIn { job, segment, offset, length } => {
            segments.begin_output(OutputPlace { job, segment, offset, length }, output_max).map(|()| {
                segments.copy_some(allowance);
                if segments.is_copying() { AfterSegments::Copying } else { AfterSegments::Whole }
            })
        }
        FromWorker::Finished { job, .. }
        | FromWorker::Failed { job, .. }
        | FromWorker::Yielded { job, .. }
        | FromWorker::Skipped { job } => {
            let gone = segments.answered(job, payload.len());
            return Ok(AfterSegments::Answer(owned_payload(payload), gone));
        }
        _ => return Ok(AfterSegments::Payload(owned_payload(payload))),
    };
    taken.map_err(LinkError::Segment)
}

fn is_about_segments(message: &FromWorker<'_>) -> bool {
    matches!(
        message,
        FromWorker::SegmentReady { .. } | FromWorker::SegmentLeft { .. } | FromWorker::OutputIn { .. }
    )
}

fn no_segments() -> LinkError {
    LinkError::Segment("a message about a segment, and it has none".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::wait::wait_for;
    use super::*;
    use crate::limits::{FLUSH_MAX, MESSAGES_AT_A_TIME};
    use offload_protocol::limits::{INLINE_PAYLOAD_MAX, READ_CHUNK};
    use offload_protocol::nouns::{MediaType, TaskDescription, TaskOffer, Usage};
    use rustix::event::PollFlags;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::io::{IoSlice, Read, Write};
    use std::os::fd::AsFd;
    use std::time::Duration;

    const PAYLOAD_MAX: usize = 8 << 20;

    /// A link and the worker's end of it.
    fn link_and_worker() -> (Link, UnixStream) {
        let (ours, worker) = UnixStream::pair().unwrap();
        worker.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        (Link::new(ours, PAYLOAD_MAX).unwrap(), worker)
    }

    fn finished(job: u64, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let message = FromWorker::Finished {
            job,
            attempt: 1,
            run_ns: 5,
            media_type: MediaType::OCTET_STREAM,
            usage: Usage::default(),
        };
        codec::encode(&message, payload.len(), &mut bytes).unwrap();
        bytes.extend_from_slice(payload);
        bytes
    }

    /// Job and payload of each message that one read brings.
    fn receive(link: &mut Link) -> (Result<Received, LinkError>, Vec<(u64, Bytes)>) {
        let mut arrived = Vec::new();
        let received = link.receive(&mut Allowance::of_a_turn(), &mut |message, payload| match message {
            FromWorker::Finished { job, .. } => arrived.push((job, payload)),
            other => panic!("{other:?}"),
        });
        (received, arrived)
    }

    #[test]
    fn the_source_of_an_error_is_the_one_that_it_adds_words_to() {
        use std::error::Error;
        let failed = LinkError::Io(io::ErrorKind::ConnectionReset.into());
        assert!(failed.source().is_some_and(|source| source.is::<io::Error>()));
        assert!(LinkError::Frame(FrameError::HeaderLength { length: 0 }).source().is_some());
        assert!(LinkError::Segment("of another".to_owned()).source().is_none());
    }

    #[test]
    fn the_longest_output_may_be_shorter_than_the_texts_of_an_offer() {
        let (ours, mut worker) = UnixStream::pair().unwrap();
        let mut link = Link::new(ours, 4).unwrap();
        let offer = FromWorker::Offer {
            task: TaskOffer::new("sum"),
            about: TaskDescription::default(),
            example_length: 7,
            schema_length: 0,
        };
        let mut bytes = Vec::new();
        codec::encode(&offer, 7, &mut bytes).unwrap();
        bytes.extend_from_slice(b"example");
        worker.write_all(&[bytes, finished(1, b"four")].concat()).unwrap();
        let mut lengths = Vec::new();
        assert!(
            link.receive(&mut Allowance::of_a_turn(), &mut |_, payload| lengths.push(payload.len())).is_ok()
        );
        assert_eq!(lengths, [7, 4]);
        worker.write_all(&finished(2, b"five!")).unwrap();
        let error = receive(&mut link).0.unwrap_err();
        assert_eq!(error.to_string(), "not a frame: payload of 5 bytes, 4 are allowed");
    }

    #[test]
    fn a_message_that_comes_byte_by_byte_is_handed_over_when_it_is_complete() {
        let (mut link, mut worker) = link_and_worker();
        let bytes = finished(7, b"output");
        let (last, start) = bytes.split_last().unwrap();
        for byte in start {
            worker.write_all(&[*byte]).unwrap();
            let (received, arrived) = receive(&mut link);
            assert!(matches!(received, Ok(Received::Messages)) && arrived.is_empty());
            assert!(link.is_mid_frame());
        }
        assert!(matches!(receive(&mut link).0, Ok(Received::WouldBlock)));
        worker.write_all(&[*last]).unwrap();
        assert_eq!(receive(&mut link).1, [(7, Bytes::from_static(b"output"))]);
        assert!(!link.is_mid_frame());
    }

    #[test]
    fn one_read_brings_small_and_large_messages_in_their_order() {
        let (mut link, mut worker) = link_and_worker();
        let large = vec![1; INLINE_PAYLOAD_MAX + 1];
        worker.write_all(&[finished(1, b"a"), finished(2, &large), finished(3, b"c")].concat()).unwrap();
        let (_, arrived) = receive(&mut link);
        assert_eq!(
            arrived,
            [(1, Bytes::from_static(b"a")), (2, Bytes::from(large)), (3, Bytes::from_static(b"c"))]
        );
    }

    #[test]
    fn one_read_takes_no_more_than_its_share_of_a_large_output() {
        let (mut link, mut worker) = link_and_worker();
        let output: Vec<u8> = (0..1_000_000u32).map(|index| index as u8).collect();
        let bytes = finished(1, &output);
        std::thread::scope(|scope| {
            scope.spawn(|| worker.write_all(&bytes).unwrap());
            link.socket().set_nonblocking(false).unwrap();
            let mut reads = 1;
            let arrived = loop {
                let (_, arrived) = receive(&mut link);
                if !arrived.is_empty() {
                    break arrived;
                }
                reads += 1;
            };
            assert!(reads >= output.len() / READ_CHUNK, "{reads} reads");
            assert_eq!(arrived, [(1, Bytes::from(output))]);
        });
    }

    #[test]
    fn of_many_small_messages_no_more_are_taken_at_a_time_than_is_allowed_and_the_rest_comes_next() {
        let (mut link, mut worker) = link_and_worker();
        let messages = 2 * MESSAGES_AT_A_TIME as u64 + 1;
        let bytes: Vec<u8> = (0..messages).flat_map(|job| finished(job, b"1")).collect();
        worker.write_all(&bytes).unwrap();
        drop(worker);
        let (mut arrived, mut turn) = (Vec::new(), Allowance::of_a_turn());
        for expected in [MESSAGES_AT_A_TIME, 2 * MESSAGES_AT_A_TIME, messages as usize] {
            let received = link.receive(&mut turn.take_share(), &mut |message, _| match message {
                FromWorker::Finished { job, .. } => arrived.push(job),
                other => panic!("{other:?}"),
            });
            assert!(matches!(received, Ok(Received::Messages)));
            assert_eq!((arrived.len(), link.has_rest()), (expected, expected < messages as usize));
        }
        assert!(arrived.into_iter().eq(0..messages), "in their order");
        assert!(matches!(receive(&mut link).0, Ok(Received::Closed)));
    }

    #[test]
    fn bytes_that_are_no_message_are_an_error() {
        for (bytes, is_expected) in [
            (
                &b"GET / HTTP/1.1\r\n"[..],
                (|error| matches!(error, LinkError::Frame(_))) as fn(&LinkError) -> bool,
            ),
            (b"\0\0\0\0\0\0\0\0", |error| {
                matches!(error, LinkError::Frame(FrameError::HeaderLength { length: 0 }))
            }),
            (b"\x04\0\0\0\xff\xff\xff\xff", |error| {
                matches!(error, LinkError::Frame(FrameError::PayloadLength { max: PAYLOAD_MAX, .. }))
            }),
            (b"\x04\0\0\0\0\0\0\0\x63\0\0\0", |error| matches!(error, LinkError::Decode(_))),
            (b"\x01\0\0\0\0\0\0\0\x01", |error| matches!(error, LinkError::Decode(_))),
        ] {
            let (mut link, mut worker) = link_and_worker();
            worker.write_all(&[&finished(1, b"good"), bytes].concat()).unwrap();
            let (received, arrived) = receive(&mut link);
            assert_eq!(arrived.len(), 1, "what came before stands");
            assert!(is_expected(&received.unwrap_err()), "{bytes:?}");
        }
    }

    #[test]
    fn a_worker_that_does_not_read_blocks_nobody_and_gets_everything_later() {
        let (mut link, mut worker) = link_and_worker();
        let input = Bytes::from(vec![7; 3 * FLUSH_MAX]);
        link.send(&ToWorker::Cancel { job: 1 }, &input).unwrap();
        let total = link.unsent();
        assert_eq!(link.flush().unwrap(), Flushed::Blocked);
        assert!(link.unsent() > 0 && link.unsent() < total);
        let mut chunk = vec![0; READ_CHUNK];
        let mut read = 0;
        while read < total {
            read += worker.read(&mut chunk).unwrap();
            let _ = link.flush().unwrap();
        }
        assert_eq!((read, link.unsent()), (total, 0));
        assert_eq!(link.flush().unwrap(), Flushed::Done);
    }

    #[test]
    fn what_a_worker_sent_before_it_died_is_received() {
        let (mut link, mut worker) = link_and_worker();
        link.send(&ToWorker::Drain, &Bytes::new()).unwrap();
        assert_eq!(link.flush().unwrap(), Flushed::Done);
        worker.write_all(&finished(1, b"last")).unwrap();
        drop(worker); // with Drain unread, so that the socket is reset
        assert!(wait_for(&*link.socket(), PollFlags::empty(), Duration::from_secs(10)), "no end is told");
        link.send(&ToWorker::Drain, &Bytes::new()).unwrap();
        assert_eq!(link.flush().unwrap(), Flushed::Closed);
        assert_eq!(link.unsent(), 0);
        assert_eq!(receive(&mut link).1, [(1, Bytes::from_static(b"last"))]);
        assert!(matches!(receive(&mut link).0, Ok(Received::Closed)));
    }

    #[test]
    fn a_closed_link_is_closed_for_both_ends() {
        let (mut link, mut worker) = link_and_worker();
        link.close();
        link.close();
        assert_eq!(worker.read(&mut [0; 1]).unwrap(), 0);
        assert!(matches!(receive(&mut link).0, Ok(Received::Closed)));
    }

    #[test]
    fn descriptors_that_a_worker_sends_are_discarded() {
        let (mut link, worker) = link_and_worker();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let descriptors = [writer.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let bytes = finished(1, b"");
        sendmsg(&worker, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::empty()).unwrap();
        drop(writer);
        assert_eq!(receive(&mut link).1.len(), 1);
        assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0, "nobody holds the other end of the pipe");
    }
}
