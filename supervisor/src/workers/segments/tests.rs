//! A link whose worker has segments, and the worker's end of it.

use super::super::link::{Link, LinkError, Received};
use super::super::segment::SegmentBytes;
use super::*;
use crate::limits::{BYTES_PER_TURN, FLUSH_MAX};
use crate::wire::Flushed;
use offload_protocol::codec;
use offload_protocol::frame::FrameDecoder;
use offload_protocol::messages::{FromWorker, ToWorker};
use offload_protocol::nouns::{FailureKind, MediaType, Metadata, Usage};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

const MIB: usize = 1 << 20;
const PAYLOAD_MAX: usize = 8 * MIB;
const IN: u32 = 1;
const OUT: u32 = 2;

struct Scene {
    link: Link,
    worker: UnixStream,
    decoder: FrameDecoder,
    /// As the worker has them.
    files: BTreeMap<u32, File>,
    descriptors: Vec<OwnedFd>,
    bytes: SegmentBytes,
}

/// A message to the worker, as far as it matters here.
#[derive(Debug, PartialEq)]
enum Heard {
    Segment(u32),
    Gone(u32),
    InputIn { job: u64, offset: u64, length: u64 },
    Run { job: u64, payload: usize },
    OutputRead(u32),
}

/// What may be copied in a turn of the loop, however busy the machine is.
fn of_a_turn() -> Allowance {
    Allowance::of_bytes(BYTES_PER_TURN)
}

impl Scene {
    /// A worker that can use segments and has none yet.
    fn new() -> Scene {
        let (ours, worker) = UnixStream::pair().unwrap();
        worker.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut link = Link::new(ours, PAYLOAD_MAX).unwrap();
        link.allow_segments(Buffers::new(PAYLOAD_MAX));
        let decoder = FrameDecoder::new(PAYLOAD_MAX);
        let (files, descriptors) = (BTreeMap::new(), Vec::new());
        Scene { link, worker, decoder, files, descriptors, bytes: SegmentBytes::default() }
    }

    /// A worker that has mapped a segment for inputs and one for outputs, each for payloads of so many bytes.
    fn with_segments(payload: usize) -> Scene {
        let mut scene = Scene::new();
        for job in [1, 2] {
            scene.run_inline(job, payload);
            scene.says(&failed(job));
        }
        scene.gets(IN, payload);
        for job in [3, 4] {
            scene.answers_inline(job, payload);
        }
        scene.gets(OUT, payload);
        scene
    }

    fn run_inline(&mut self, job: u64, length: usize) {
        assert_eq!(self.run(job, &Bytes::from(vec![1; length])), [Heard::Run { job, payload: length }]);
    }

    fn answers_inline(&mut self, job: u64, length: usize) {
        self.says_with(&finished(job), &vec![2; length]);
    }

    /// The segment that is wanted now is made and offered, and the worker maps it.
    fn gets(&mut self, id: u32, payload: usize) {
        let news = self.link.take_segment_news().expect("a segment is wanted");
        let [(holds, wanted)] = news.wanted[..] else { panic!("{:?}", news.wanted) };
        assert_eq!(wanted, payload);
        let mut segment = Segment::new(id, payload, &self.bytes, u64::MAX).unwrap().unwrap();
        while !segment.prepare(MIB).unwrap() {}
        self.link.offer_segment(holds, segment).unwrap();
        assert_eq!(self.hears(), [Heard::Segment(id)]);
        self.files.insert(id, self.descriptors.pop().expect("it comes with the message").into());
        self.says(&FromWorker::SegmentReady { segment: id });
    }

    fn run(&mut self, job: u64, input: &Bytes) -> Vec<Heard> {
        let run = ToWorker::Run {
            job,
            attempt: 1,
            task: "echo",
            media_type: MediaType::OCTET_STREAM,
            timeout_ms: 0,
            deadline_ms: 0,
            metadata: Metadata::default(),
        };
        self.link.send(&run, input).unwrap();
        self.hears()
    }

    /// As the hub does in each turn.
    fn receive(&mut self, passed_on: &mut Vec<Bytes>) -> Result<bool, LinkError> {
        let received = self.link.receive(&mut of_a_turn(), &mut |_, payload| passed_on.push(payload))?;
        Ok(received == Received::Messages || self.link.is_copying())
    }

    /// All that is to be written is written, and read by the worker.
    fn hears(&mut self) -> Vec<Heard> {
        let mut heard = Vec::new();
        loop {
            let flushed = self.link.flush().unwrap();
            self.read(&mut heard);
            if flushed == Flushed::Done {
                self.read(&mut heard);
                return heard;
            }
        }
    }

    fn read(&mut self, heard: &mut Vec<Heard>) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        loop {
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut bytes = [IoSliceMut::new(self.decoder.space())];
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let Ok(received) = recvmsg(&self.worker, &mut bytes, &mut ancillary, flags) else { return };
            self.decoder.filled(received.bytes);
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    self.descriptors.extend(descriptors);
                }
            }
            loop {
                while let Some(frame) = self.decoder.next().unwrap() {
                    heard.push(match codec::decode(&frame.header).unwrap() {
                        ToWorker::Segment { segment, .. } => Heard::Segment(segment),
                        ToWorker::SegmentGone { segment } => Heard::Gone(segment),
                        ToWorker::InputIn { job, offset, length, .. } => {
                            Heard::InputIn { job, offset, length }
                        }
                        ToWorker::Run { job, .. } => Heard::Run { job, payload: frame.payload.len() },
                        ToWorker::OutputRead { segment } => Heard::OutputRead(segment),
                        other => panic!("{other:?}"),
                    });
                }
                if self.decoder.announced().is_none() {
                    break;
                }
            }
        }
    }

    fn tries_to_say(&mut self, message: &FromWorker<'_>, payload: &[u8]) -> Result<Vec<Bytes>, LinkError> {
        let mut frame = Vec::new();
        codec::encode(message, payload.len(), &mut frame).unwrap();
        frame.extend_from_slice(payload);
        let mut passed_on = Vec::new();
        let mut rest = &frame[..];
        self.worker.set_nonblocking(true).unwrap();
        while !rest.is_empty() {
            rest = &rest[self.worker.write(rest).unwrap()..];
            while self.receive(&mut passed_on)? {}
        }
        Ok(passed_on)
    }

    #[track_caller]
    fn says(&mut self, message: &FromWorker<'_>) -> Vec<Bytes> {
        self.tries_to_say(message, b"").unwrap()
    }

    fn says_with(&mut self, message: &FromWorker<'_>, payload: &[u8]) -> Vec<Bytes> {
        self.tries_to_say(message, payload).unwrap()
    }

    #[track_caller]
    fn may_not_say(&mut self, message: &FromWorker<'_>, part: &str) {
        let error = self.tries_to_say(message, b"").unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

fn finished(job: u64) -> FromWorker<'static> {
    let (media_type, usage) = (MediaType::OCTET_STREAM, Usage::default());
    FromWorker::Finished { job, attempt: 1, run_ns: 1, media_type, usage }
}

fn failed(job: u64) -> FromWorker<'static> {
    let (kind, usage) = (FailureKind::AppError, Usage::default());
    FromWorker::Failed { job, attempt: 1, run_ns: 1, kind, message: "no".into(), usage }
}

fn output_in(job: u64, segment: u32, offset: u64, length: usize) -> FromWorker<'static> {
    FromWorker::OutputIn { job, segment, offset, length: length as u64 }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 253) as u8).collect()
}

#[test]
fn a_segment_is_wanted_when_a_large_payload_has_missed_it_twice() {
    let mut scene = Scene::new();
    scene.run_inline(1, SEGMENT_PAYLOAD_MIN - 1);
    scene.run_inline(2, SEGMENT_PAYLOAD_MIN - 1);
    scene.run_inline(3, MIB);
    assert!(scene.link.take_segment_news().is_none());
    scene.run_inline(4, MIB);
    scene.answers_inline(4, MIB);
    scene.gets(IN, MIB);
    let longer = Bytes::from(vec![1; 2 * MIB]);
    assert_eq!(scene.run(5, &longer), [Heard::Run { job: 5, payload: 2 * MIB }, Heard::Gone(IN)]);
    scene.says(&FromWorker::SegmentLeft { segment: IN });
    assert!(scene.link.take_segment_news().unwrap().wanted.is_empty());
    scene.run_inline(6, 2 * MIB);
    scene.gets(IN + 2, 2 * MIB);
}

#[test]
fn an_input_is_in_the_segment_before_its_run_is_sent_and_until_the_job_is_answered() {
    let mut scene = Scene::with_segments(4 * MIB);
    let input = Bytes::from(pattern(3 * MIB));
    let length = input.len() as u64;
    let heard = scene.run(5, &input);
    assert_eq!(heard, [Heard::InputIn { job: 5, offset: 64, length }, Heard::Run { job: 5, payload: 0 }]);
    let mut there = vec![0; input.len()];
    scene.files[&IN].read_exact_at(&mut there, 64).unwrap();
    assert!(there == input);
    scene.run_inline(6, MIB);
    scene.says(&failed(6));
    scene.run_inline(7, MIB);
    scene.says(&failed(5));
    assert_eq!(scene.run(8, &input).len(), 2);
    const _: () = assert!(3 * MIB > FLUSH_MAX, "it was copied in pieces");
}

#[test]
fn an_output_is_taken_from_where_the_worker_says_and_only_once_it_is_read_may_the_next_one_come() {
    let mut scene = Scene::with_segments(4 * MIB);
    let output = pattern(3 * MIB);
    scene.files[&OUT].write_all_at(&output, 100).unwrap();
    assert!(scene.says(&output_in(5, OUT, 100, output.len())).is_empty());
    assert!(!scene.link.is_copying());
    let passed_on = scene.says(&finished(5));
    scene.files[&OUT].write_all_at(&[0; 1000], 100).unwrap();
    assert!(passed_on == [output], "a copy, which the worker cannot change");
    assert_eq!(scene.run(6, &Bytes::new()), [Heard::OutputRead(OUT), Heard::Run { job: 6, payload: 0 }]);
    scene.says(&output_in(6, OUT, 0, 10));
    assert_eq!(scene.says(&finished(6)), [Bytes::from_static(&[0; 10])]);
    scene.may_not_say(&output_in(7, OUT, 0, 10), "where it cannot be");
}

#[test]
fn an_output_may_be_a_part_of_the_input_of_its_own_job() {
    let mut scene = Scene::with_segments(MIB);
    let input = Bytes::from(pattern(MIB));
    assert_eq!(scene.run(5, &input).len(), 2);
    scene.says(&output_in(5, IN, 64 + 10, 100_000));
    assert_eq!(scene.says(&finished(5)), [input.slice(10..100_010)]);
    scene.may_not_say(&output_in(5, IN, 64, 10), "where it cannot be");
}

#[test]
fn nothing_is_taken_from_behind_an_output_before_that_is_copied_and_its_finished_has_to_come_next() {
    let mut scene = Scene::with_segments(4 * MIB);
    let mut frames = Vec::new();
    for message in [output_in(5, OUT, 0, 3 * MIB), finished(5), FromWorker::Started { job: 6, attempt: 1 }] {
        codec::encode(&message, 0, &mut frames).unwrap();
    }
    scene.worker.write_all(&frames).unwrap();
    let mut passed_on = 0;
    // What was read of the socket counts, too.
    for (expected, is_copying) in [(0, true), (0, true), (0, true), (2, false)] {
        assert!(scene.link.receive(&mut of_a_turn(), &mut |_, _| passed_on += 1).is_ok());
        assert_eq!((passed_on, scene.link.is_copying()), (expected, is_copying));
    }
    for wrong in [failed(7), finished(8), FromWorker::Started { job: 7, attempt: 1 }] {
        let mut scene = Scene::with_segments(MIB);
        scene.says(&output_in(7, OUT, 0, 10));
        assert!(matches!(scene.tries_to_say(&wrong, b""), Err(LinkError::Segment(_))), "{wrong:?}");
    }
}

#[test]
fn a_place_outside_of_a_segment_and_a_segment_that_is_not_there_are_violations() {
    let length = (MIB + rustix::param::page_size()) as u64;
    for (message, part) in [
        (output_in(9, OUT, length - 9, 10), &*format!("of segment 2, which has {length}")),
        (output_in(9, OUT, u64::MAX, 10), "of segment 2"),
        (output_in(9, OUT, 0, PAYLOAD_MAX + 1), "8388608 are allowed"),
        (output_in(9, IN, 0, 10), "where it cannot be"),
        (output_in(9, 99, 0, 10), "where it cannot be"),
        (FromWorker::SegmentReady { segment: OUT }, "was not offered"),
        (FromWorker::SegmentReady { segment: 99 }, "was not offered"),
        (FromWorker::SegmentLeft { segment: 99 }, "which it does not have"),
    ] {
        Scene::with_segments(MIB).may_not_say(&message, part);
    }
    let mut plain = Scene::new();
    let (ours, worker) = UnixStream::pair().unwrap();
    (plain.link, plain.worker) = (Link::new(ours, PAYLOAD_MAX).unwrap(), worker);
    plain.may_not_say(&FromWorker::SegmentLeft { segment: 1 }, "it has none");
}

#[test]
fn what_a_worker_keeps_counts_until_it_has_ended_and_it_may_not_keep_many() {
    let mut scene = Scene::with_segments(MIB);
    let inputs = MIB as u64;
    assert_eq!(scene.bytes.taken(), 2 * inputs);
    for kept in 1..=SEGMENTS_LEFT_MAX as u64 {
        let id = *scene.files.iter().rfind(|(id, _)| **id != OUT).unwrap().0;
        scene.says(&FromWorker::SegmentLeft { segment: id });
        assert_eq!(scene.bytes.taken(), (1 + kept) * inputs);
        for job in [10, 11] {
            scene.run_inline(job, MIB);
            scene.says(&failed(job));
        }
        if kept < SEGMENTS_LEFT_MAX as u64 {
            scene.gets(100 + kept as u32, MIB);
        }
    }
    let news = scene.link.take_segment_news().unwrap();
    assert_eq!((news.wanted.len(), news.left.len()), (0, 1), "it gets no more");
    scene.may_not_say(&FromWorker::SegmentLeft { segment: IN }, "which it does not have");
    let bytes = scene.bytes.clone();
    drop(scene);
    assert_eq!(bytes.taken(), 0);
}

#[test]
fn a_segment_that_is_not_used_is_given_up_once_the_worker_agrees() {
    let mut scene = Scene::with_segments(MIB);
    scene.run_inline(4, 100);
    scene.says(&output_in(4, OUT, 0, 100));
    scene.says(&finished(4));
    assert!(scene.link.rest_segments(), "they have just been used");
    assert!(!scene.link.rest_segments());
    assert_eq!(scene.hears(), [Heard::Gone(IN), Heard::Gone(OUT)]);
    scene.run_inline(5, MIB);
    scene.says(&output_in(5, OUT, 0, 100)); // it had not heard of it yet
    assert_eq!(scene.says(&finished(5)), [Bytes::from(vec![0; 100])]);
    assert!(scene.link.owes_answer());
    for segment in [IN, OUT] {
        scene.says(&FromWorker::SegmentLeft { segment });
    }
    let news = scene.link.take_segment_news().unwrap();
    assert_eq!(news.left.iter().map(Segment::id).collect::<Vec<_>>(), [IN, OUT]);
    assert!(news.wanted.is_empty() && scene.link.mapped() == 0);
}

#[test]
fn a_segment_that_cannot_be_mapped_goes_back_and_one_for_a_worker_that_does_not_want_it_too() {
    let mut scene = Scene::new();
    scene.run_inline(1, MIB);
    scene.run_inline(2, MIB);
    let (holds, _) = scene.link.take_segment_news().unwrap().wanted[0];
    let make = |id| Segment::new(id, MIB, &SegmentBytes::default(), u64::MAX).unwrap().unwrap();
    scene.link.offer_segment(holds, make(1)).unwrap();
    assert!(scene.link.offer_segment(holds, make(2)).is_err());
    scene.says(&FromWorker::SegmentLeft { segment: 1 });
    assert_eq!(scene.link.take_segment_news().unwrap().left.len(), 1);
}

#[test]
fn only_one_output_may_come_from_a_segment_that_is_gone() {
    let mut scene = Scene::with_segments(MIB);
    assert!(!scene.link.owes_answer() && scene.link.rest_segments());
    assert!(!scene.link.rest_segments() && scene.link.owes_answer());
    scene.says(&output_in(5, OUT, 0, 100));
    scene.says(&finished(5));
    scene.may_not_say(&output_in(6, OUT, 0, 100), "where it cannot be");
}

#[test]
fn however_many_outputs_come_at_a_time_no_more_is_copied_in_one_turn() {
    let mut scene = Scene::with_segments(MIB);
    assert_eq!(scene.run(5, &Bytes::from(vec![1; MIB])).len(), 2);
    let mut frames = Vec::new();
    const LENGTH: usize = MIB / 4 * 3;
    for message in [output_in(5, IN, 64, LENGTH), finished(5), output_in(6, OUT, 0, LENGTH), finished(6)] {
        codec::encode(&message, 0, &mut frames).unwrap();
    }
    scene.worker.write_all(&frames).unwrap();
    let (mut passed_on, mut turn) = (Vec::new(), of_a_turn());
    for received in [Received::Messages, Received::Enough] {
        assert_eq!(
            scene.link.receive(&mut turn, &mut |_, payload| passed_on.push(payload)).unwrap(),
            received
        );
        assert_eq!((passed_on.len(), scene.link.is_copying()), (1, true));
    }
    scene.receive(&mut passed_on).unwrap();
    assert_eq!((passed_on.len(), scene.link.is_copying()), (2, false));
    const _: () = assert!(2 * LENGTH > BYTES_PER_TURN && BYTES_PER_TURN > LENGTH);
}

#[test]
fn an_output_whose_time_is_over_is_copied_as_a_whole() {
    let mut scene = Scene::with_segments(4 * MIB);
    let mut frames = Vec::new();
    codec::encode(&output_in(5, OUT, 0, 4 * MIB), 0, &mut frames).unwrap();
    codec::encode(&finished(5), 0, &mut frames).unwrap();
    scene.worker.write_all(&frames).unwrap();
    let mut passed_on = Vec::new();
    assert!(scene.receive(&mut passed_on).unwrap() && passed_on.is_empty());
    let mut whole = Allowance::of_bytes(scene.link.uncopied());
    scene.link.receive(&mut whole, &mut |_, payload| passed_on.push(payload)).unwrap();
    assert!(whole.is_used_up(), "nothing after it is copied");
    assert_eq!(passed_on, [vec![0; 4 * MIB]]);
}

#[test]
fn a_worker_hears_that_its_output_was_read_before_anything_that_is_about_its_next_job() {
    let mut scene = Scene::with_segments(MIB);
    scene.says(&output_in(5, OUT, 0, 100));
    scene.link.say_read();
    assert_eq!(scene.hears(), [], "it is not read yet");
    scene.says(&finished(5));
    scene.link.say_read();
    assert_eq!(scene.hears(), [Heard::OutputRead(OUT)]);
    assert_eq!(scene.run(6, &Bytes::new()), [Heard::Run { job: 6, payload: 0 }], "it is told once");
}

#[test]
fn segments_for_inputs_and_for_outputs_can_be_wanted_at_the_same_time() {
    let mut scene = Scene::new();
    for job in [1, 2] {
        scene.run_inline(job, MIB);
        scene.says(&failed(job));
    }
    for job in [3, 4] {
        scene.answers_inline(job, 2 * MIB);
    }
    let wanted = scene.link.take_segment_news().unwrap().wanted;
    assert_eq!(wanted, [(SegmentUse::Inputs, MIB), (SegmentUse::Outputs, 2 * MIB)]);
}

#[test]
fn a_worker_is_told_that_a_segment_is_gone_although_an_output_is_being_copied() {
    let mut scene = Scene::with_segments(4 * MIB);
    let mut frames = Vec::new();
    let input = Bytes::from(vec![1; 4 * MIB]);
    assert_eq!(scene.run(7, &input).len(), 2);
    // A longer output makes the segment for outputs leave, and right behind it one comes in the segment for inputs.
    codec::encode(&finished(8), 5 * MIB, &mut frames).unwrap();
    frames.resize(frames.len() + 5 * MIB, 2);
    codec::encode(&output_in(7, IN, 64, 4 * MIB), 0, &mut frames).unwrap();
    let mut rest = &frames[..];
    scene.worker.set_nonblocking(true).unwrap();
    while !rest.is_empty() {
        rest = &rest[scene.worker.write(rest).unwrap()..];
        let mut turn = of_a_turn();
        while scene.link.receive(&mut turn, &mut |_, _| ()).unwrap() == Received::Messages
            && !scene.link.is_copying()
        {}
    }
    assert!(scene.link.is_copying());
    assert_eq!(scene.hears(), [Heard::Gone(OUT)]);
}
