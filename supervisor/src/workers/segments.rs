//! The segments of one worker, one for inputs and one for outputs, and the output that is being copied out of one.
//!
//! ```text
//!          asked for         made          SegmentReady           an input is in it, or an output
//!   Empty ---------> Awaited ----> Offered ------------> Free <-------------------------------------> InUse
//!     ^                               |                   |    the job is answered; the output is read
//!     |<------------------------------|                   |
//!     |    SegmentLeft                '-------------------+--- not used for a while, or too short: SegmentGone ---> Leaving
//!     |                                                   |                                                          |
//!     |<--------- SegmentLeft, unasked: the worker -------'                                             SegmentLeft  |
//!     |           keeps it, and it counts until the worker has ended                                                 |
//!     '--------------------------------------------------------------------------------------------------------------'
//! ```
//!
//! A segment that is in use, too short or not there delays nothing: the payload goes behind its header. That this happened
//! twice in a short time is why a segment is made.
//!
//! A worker that has not heard yet that its segment is gone may have put one output into it, and no more than one. However
//! many outputs a worker announces at a time, no more bytes of them are copied in one turn than its [`Allowance`] has.

use super::allowance::Allowance;
use super::buffers::{Buffer, Buffers};
use super::segment::{CountedBytes, Segment};
use crate::limits::{COPY_PIECE, SEGMENT_IDLE, SEGMENTS_LEFT_MAX};
use crate::sys::SharedMapping;
use bytes::Bytes;
use offload_protocol::limits::{SEGMENT_PAYLOAD_MIN, SEGMENT_START};
use offload_protocol::messages::SegmentUse;
use std::sync::Arc;
use std::time::Instant;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct WorkerSegments {
    buffers: Buffers,
    inputs: Direction,
    outputs: Direction,
    arriving: Option<Arriving>,
    /// The last job whose input was large and went behind its header.
    inline_input: Option<u64>,
    news: News,
    /// What the worker keeps for itself.
    kept: Vec<CountedBytes>,
    /// How many segments the worker has left unasked.
    left_unasked: usize,
    is_used: bool,
}

/// What the owner of all segments has to do for this worker.
#[derive(Debug, Default)]
pub struct News {
    /// Segments of these uses are to be made, for payloads of so many bytes. At most one of each use.
    pub wanted: Vec<(SegmentUse, usize)>,
    /// Segments that nobody uses any more here.
    pub left: Vec<Segment>,
}

/// The segment for all inputs of the worker, or the one for all its outputs, if there is one.
#[derive(Debug, Default)]
struct Direction {
    state: State,
    /// When a large payload last went behind its header.
    missed_at: Option<Instant>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Empty,
    Awaited,
    Given(Segment, Stage),
}

/// How far a segment is that the worker was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Offered,
    Free,
    /// Of inputs, with the job. Of outputs, until the worker is told that its output was read, with the job that gave it.
    InUse {
        job: u64,
    },
    /// The worker was told that it is gone. One output in it may be on its way.
    Leaving {
        output_may_come: bool,
    },
}

impl State {
    fn segment(&self) -> Option<&Segment> {
        match self {
            State::Given(segment, _) => Some(segment),
            State::Empty | State::Awaited => None,
        }
    }

    fn stage(&self) -> Option<Stage> {
        match self {
            State::Given(_, stage) => Some(*stage),
            State::Empty | State::Awaited => None,
        }
    }

    fn is(&self, id: u32) -> bool {
        self.segment().is_some_and(|segment| segment.id() == id)
    }

    /// Goes from one stage to another. Returns the segment; `None` if it is not at the first one.
    fn advance(&mut self, from: Stage, to: Stage) -> Option<&Segment> {
        match self {
            State::Given(segment, stage) if *stage == from => {
                *stage = to;
                Some(segment)
            }
            _ => None,
        }
    }

    fn take(&mut self) -> Option<(Segment, Stage)> {
        match std::mem::take(self) {
            State::Given(segment, stage) => Some((segment, stage)),
            State::Empty | State::Awaited => None,
        }
    }
}

/// An input that goes into a segment.
pub(super) struct PlacedInput {
    pub(super) segment: u32,
    pub(super) offset: usize,
    pub(super) mapping: Arc<SharedMapping>,
}

/// Where a worker says that its output is.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutputPlace {
    pub(super) job: u64,
    pub(super) segment: u32,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// An output that is copied out of a segment. Its Finished comes next.
#[derive(Debug)]
struct Arriving {
    job: u64,
    mapping: Arc<SharedMapping>,
    offset: usize,
    length: usize,
    buffer: Buffer,
    copied: usize,
}

/// What is wrong with a message about a segment.
type Wrong = String;

impl WorkerSegments {
    pub(super) fn new(buffers: Buffers) -> WorkerSegments {
        WorkerSegments {
            buffers,
            inputs: Direction::default(),
            outputs: Direction::default(),
            arriving: None,
            inline_input: None,
            news: News::default(),
            kept: Vec::new(),
            left_unasked: 0,
            is_used: false,
        }
    }

    /// The bytes that the worker may have mapped.
    pub(super) fn mapped(&self) -> u64 {
        let lengths =
            [&self.inputs, &self.outputs].map(|place| place.state.segment().map_or(0, Segment::length));
        lengths.iter().sum::<usize>() as u64 + self.kept.iter().map(CountedBytes::bytes).sum::<u64>()
    }

    /// What is to be done for this worker, if anything is.
    pub(super) fn take_news(&mut self) -> Option<News> {
        let is_news = !self.news.wanted.is_empty() || !self.news.left.is_empty();
        is_news.then(|| std::mem::take(&mut self.news))
    }

    /// A segment that was wanted is not made now.
    pub(super) fn not_made(&mut self, holds: SegmentUse) {
        let place = self.direction(holds);
        if matches!(place.state, State::Awaited) {
            place.state = State::Empty;
        }
    }

    /// A segment that was wanted is there.
    ///
    /// # Errors
    /// It is not wanted any more.
    pub(super) fn offer(&mut self, holds: SegmentUse, segment: Segment) -> Result<(), Segment> {
        let place = self.direction(holds);
        if !matches!(place.state, State::Awaited) {
            return Err(segment);
        }
        place.state = State::Given(segment, Stage::Offered);
        Ok(())
    }

    /// Tells which segments are gone because none was used since the last call. True if others are left.
    pub(super) fn rest(&mut self) -> (Vec<u32>, bool) {
        let mut gone = Vec::new();
        if !std::mem::take(&mut self.is_used) {
            // That its last output was read need not be said: the worker hears that the segment is gone.
            let _ = self.take_read();
            gone = [SegmentUse::Inputs, SegmentUse::Outputs]
                .into_iter()
                .filter_map(|holds| self.dismiss(holds))
                .collect();
        }
        let stays = |stage: Stage| !matches!(stage, Stage::Leaving { .. });
        (gone, self.stages().any(stays))
    }

    /// Whether the worker has to say that it has mapped a segment, or left one. One that runs no job does so at once.
    pub(super) fn owes_answer(&self) -> bool {
        self.stages().any(|stage| matches!(stage, Stage::Offered | Stage::Leaving { .. }))
    }

    fn stages(&self) -> impl Iterator<Item = Stage> {
        [self.inputs.state.stage(), self.outputs.state.stage()].into_iter().flatten()
    }

    /// Has a segment leave if it is free. Returns its number, of which the worker has to be told.
    fn dismiss(&mut self, holds: SegmentUse) -> Option<u32> {
        let leaving = Stage::Leaving { output_may_come: holds == SegmentUse::Outputs };
        self.direction(holds).state.advance(Stage::Free, leaving).map(Segment::id)
    }

    /// All segments, because the worker has ended.
    pub(super) fn take_all(&mut self) -> Vec<Segment> {
        let places = [self.inputs.state.take(), self.outputs.state.take()];
        let mut all: Vec<Segment> = places.into_iter().flatten().map(|(segment, _)| segment).collect();
        all.append(&mut self.news.left);
        all
    }

    fn direction(&mut self, holds: SegmentUse) -> &mut Direction {
        match holds {
            SegmentUse::Inputs => &mut self.inputs,
            SegmentUse::Outputs => &mut self.outputs,
        }
    }

    /// A large payload went behind its header. Wants a segment if that happened before in a short time. Returns the segment
    /// that has to make room for a larger one.
    fn miss(&mut self, holds: SegmentUse, length: usize) -> Option<u32> {
        let now = Instant::now();
        let may_have_more = self.left_unasked < SEGMENTS_LEFT_MAX;
        let place = self.direction(holds);
        let before = place.missed_at.replace(now);
        if before.is_none_or(|before| now.saturating_duration_since(before) > SEGMENT_IDLE) {
            return None;
        }
        match &place.state {
            State::Empty if may_have_more => {
                place.state = State::Awaited;
                self.news.wanted.push((holds, length));
                None
            }
            State::Given(segment, Stage::Free) if segment.length() < SEGMENT_START + length => {
                self.dismiss(holds)
            }
            _ => None,
        }
    }
}

/// Inputs.
impl WorkerSegments {
    /// The segment for outputs whose output was read, once. The worker has to be told of it before its next job.
    pub(super) fn take_read(&mut self) -> Option<u32> {
        match &mut self.outputs.state {
            State::Given(segment, stage @ Stage::InUse { .. }) if self.arriving.is_none() => {
                *stage = Stage::Free;
                Some(segment.id())
            }
            _ => None,
        }
    }

    /// Where to put the input of this job, or else which segment has to make room for a larger one.
    pub(super) fn place_input(&mut self, job: u64, length: usize) -> Result<PlacedInput, Option<u32>> {
        if length < SEGMENT_PAYLOAD_MIN {
            return Err(None);
        }
        match &mut self.inputs.state {
            State::Given(segment, stage @ Stage::Free) if SEGMENT_START + length <= segment.length() => {
                *stage = Stage::InUse { job };
                self.is_used = true;
                Ok(PlacedInput { segment: segment.id(), offset: SEGMENT_START, mapping: segment.mapping() })
            }
            _ => {
                self.inline_input = Some(job);
                Err(self.miss(SegmentUse::Inputs, length))
            }
        }
    }

    /// The worker has answered this job, with an output of this length behind the header. Returns the segment that has to
    /// make room for a larger one.
    pub(super) fn answered(&mut self, job: u64, inline_output: usize) -> Option<u32> {
        self.inputs.state.advance(Stage::InUse { job }, Stage::Free);
        let had_input_inline = self.inline_input == Some(job);
        if had_input_inline {
            self.inline_input = None;
        }
        // The output may have been a part of the input: then a segment for inputs is enough, and it is on its way.
        if inline_output < SEGMENT_PAYLOAD_MIN || had_input_inline {
            return None;
        }
        self.miss(SegmentUse::Outputs, inline_output)
    }
}

/// What the worker says.
impl WorkerSegments {
    /// The worker has mapped a segment.
    pub(super) fn ready(&mut self, id: u32) -> Result<(), Wrong> {
        for place in [&mut self.inputs, &mut self.outputs] {
            if place.state.is(id) && place.state.advance(Stage::Offered, Stage::Free).is_some() {
                self.is_used = true;
                return Ok(());
            }
        }
        Err(format!("segment {id} is ready, which was not offered"))
    }

    /// The worker does not use a segment any more.
    pub(super) fn left(&mut self, id: u32) -> Result<(), Wrong> {
        let mut places = [&mut self.inputs, &mut self.outputs];
        let place = places.iter_mut().find(|place| place.state.is(id));
        let Some((mut segment, stage)) = place.and_then(|place| place.state.take()) else {
            return Err(format!("it has left segment {id}, which it does not have"));
        };
        match stage {
            Stage::Leaving { .. } => {}
            Stage::Offered => self.left_unasked += 1,
            Stage::Free | Stage::InUse { .. } => {
                self.left_unasked += 1;
                self.kept.extend(segment.give_away());
            }
        }
        self.news.left.push(segment);
        Ok(())
    }

    /// The worker says where its output is: it is copied from there.
    pub(super) fn begin_output(&mut self, place: OutputPlace, output_max: usize) -> Result<(), Wrong> {
        let OutputPlace { job, segment: id, offset, length } = place;
        let whole = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let (offset, length) = (whole(offset), whole(length));
        if length > output_max {
            return Err(format!("an output of {length} bytes in segment {id}, {output_max} are allowed"));
        }
        let segment = self.output_segment(job, id)?;
        if offset.checked_add(length).is_none_or(|end| end > segment.length()) {
            let has = segment.length();
            return Err(format!("{length} bytes at {offset} of segment {id}, which has {has}"));
        }
        let mapping = segment.mapping();
        let buffer = self.buffers.take(length);
        self.is_used = true;
        self.arriving = Some(Arriving { job, mapping, offset, length, buffer, copied: 0 });
        Ok(())
    }

    /// The segment in which an output of this job may be. If it is the one for outputs, it is in use from now on.
    fn output_segment(&mut self, job: u64, id: u32) -> Result<&Segment, Wrong> {
        let wrong = || format!("an output in segment {id}, where it cannot be");
        match &self.inputs.state {
            State::Given(segment, Stage::InUse { job: user }) if segment.id() == id && *user == job => {
                return Ok(segment);
            }
            _ => {}
        }
        match &mut self.outputs.state {
            State::Given(segment, stage) if segment.id() == id => {
                *stage = match *stage {
                    Stage::Free => Stage::InUse { job },
                    // The worker had not heard that the segment is gone.
                    Stage::Leaving { output_may_come: true } => Stage::Leaving { output_may_come: false },
                    Stage::Leaving { output_may_come: false } | Stage::InUse { .. } | Stage::Offered => {
                        return Err(wrong());
                    }
                };
                Ok(segment)
            }
            _ => Err(wrong()),
        }
    }

    /// How many bytes of the output that is being copied are still to be copied.
    pub(super) fn uncopied(&self) -> usize {
        self.arriving.as_ref().map_or(0, |arriving| arriving.length - arriving.copied)
    }

    /// Whether an output is being copied. Nothing that came behind it may be looked at.
    pub(super) fn is_copying(&self) -> bool {
        self.uncopied() > 0
    }

    /// Copies as much as is allowed.
    pub(super) fn copy_some(&mut self, allowance: &mut Allowance) {
        let Some(Arriving { mapping, offset, length, buffer, copied, .. }) = &mut self.arriving else {
            return;
        };
        loop {
            let piece = allowance.take_bytes((*length - *copied).min(COPY_PIECE));
            if piece == 0 {
                return;
            }
            let began = Instant::now();
            mapping.read(*offset + *copied, buffer.space(*copied..*copied + piece));
            allowance.spend_time(began.elapsed());
            *copied += piece;
        }
    }

    /// Whether Finished has to come next.
    pub(super) fn has_output(&self) -> bool {
        self.arriving.is_some()
    }

    /// The output of this job, whose Finished has come.
    pub(super) fn take_output(&mut self, job: u64) -> Result<Bytes, Wrong> {
        match self.arriving.take() {
            Some(arriving) if arriving.job == job => Ok(arriving.buffer.lend()),
            _ => Err(format!("an output in a segment, and no answer to job {job}")),
        }
    }
}

#[cfg(test)]
mod tests;
