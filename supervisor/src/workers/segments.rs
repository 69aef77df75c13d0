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

use super::buffers::{Buffer, Buffers};
use super::segment::{Segment, Taken};
use crate::limits::{COPY_MAX, SEGMENT_IDLE, SEGMENTS_LEFT_MAX};
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
    inputs: Place,
    outputs: Place,
    arriving: Option<Arriving>,
    /// The last job whose input was large and went behind its header.
    inline_input: Option<u64>,
    news: News,
    /// What the worker keeps for itself.
    kept: Vec<Taken>,
    /// How many segments the worker has left unasked.
    left_unasked: usize,
    is_used: bool,
}

/// What the owner of all segments has to do for this worker.
#[derive(Debug, Default)]
pub struct News {
    /// A segment of this use is to be made, for payloads of so many bytes.
    pub wanted: Option<(SegmentUse, usize)>,
    /// Segments that nobody uses any more.
    pub left: Vec<Segment>,
}

#[derive(Debug, Default)]
struct Place {
    state: State,
    /// When a large payload last went behind its header.
    missed_at: Option<Instant>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Empty,
    Awaited,
    Offered(Segment),
    Free(Segment),
    /// Of inputs, with the job. Of outputs, until the worker is told that its output was read, with the job that gave it.
    InUse(Segment, u64),
    /// The worker was told that it is gone. An output in it may be on its way.
    Leaving(Segment),
}

impl State {
    fn segment(&self) -> Option<&Segment> {
        match self {
            State::Empty | State::Awaited => None,
            State::Offered(segment)
            | State::Free(segment)
            | State::InUse(segment, _)
            | State::Leaving(segment) => Some(segment),
        }
    }

    fn is(&self, id: u32) -> bool {
        self.segment().is_some_and(|segment| segment.id() == id)
    }

    fn into_segment(self) -> Option<Segment> {
        match self {
            State::Empty | State::Awaited => None,
            State::Offered(segment)
            | State::Free(segment)
            | State::InUse(segment, _)
            | State::Leaving(segment) => Some(segment),
        }
    }

    fn take(&mut self) -> State {
        std::mem::take(self)
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
            inputs: Place::default(),
            outputs: Place::default(),
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
        lengths.iter().sum::<usize>() as u64 + self.kept.iter().map(Taken::bytes).sum::<u64>()
    }

    /// What is to be done for this worker, if anything is.
    pub(super) fn take_news(&mut self) -> Option<News> {
        let is_news = self.news.wanted.is_some() || !self.news.left.is_empty();
        is_news.then(|| std::mem::take(&mut self.news))
    }

    /// A segment that was wanted is not made now.
    pub(super) fn not_made(&mut self, holds: SegmentUse) {
        let place = self.place(holds);
        if matches!(place.state, State::Awaited) {
            place.state = State::Empty;
        }
    }

    /// A segment that was wanted is there.
    ///
    /// # Errors
    /// It is not wanted any more.
    pub(super) fn offer(&mut self, holds: SegmentUse, segment: Segment) -> Result<(), Segment> {
        let place = self.place(holds);
        if !matches!(place.state, State::Awaited) {
            return Err(segment);
        }
        place.state = State::Offered(segment);
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
        let is_held =
            |place: &Place| matches!(place.state, State::Offered(_) | State::Free(_) | State::InUse(..));
        (gone, is_held(&self.inputs) || is_held(&self.outputs))
    }

    /// Has a segment leave if it is free. Returns its number, of which the worker has to be told.
    fn dismiss(&mut self, holds: SegmentUse) -> Option<u32> {
        let state = &mut self.place(holds).state;
        match state.take() {
            State::Free(segment) => {
                let id = segment.id();
                *state = State::Leaving(segment);
                Some(id)
            }
            other => {
                *state = other;
                None
            }
        }
    }

    /// All segments, because the worker has ended.
    pub(super) fn take_all(&mut self) -> Vec<Segment> {
        let places = [self.inputs.state.take(), self.outputs.state.take()];
        let mut all: Vec<Segment> = places.into_iter().filter_map(State::into_segment).collect();
        all.append(&mut self.news.left);
        all
    }

    fn place(&mut self, holds: SegmentUse) -> &mut Place {
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
        let place = self.place(holds);
        let before = place.missed_at.replace(now);
        if before.is_none_or(|before| now.saturating_duration_since(before) > SEGMENT_IDLE) {
            return None;
        }
        match &place.state {
            State::Empty if may_have_more => {
                place.state = State::Awaited;
                self.news.wanted = Some((holds, length));
                None
            }
            State::Free(segment) if segment.length() < SEGMENT_START + length => self.dismiss(holds),
            _ => None,
        }
    }
}

/// Inputs.
impl WorkerSegments {
    /// The segment for outputs whose output was read, once. The worker has to be told of it before its next job.
    pub(super) fn take_read(&mut self) -> Option<u32> {
        match self.outputs.state.take() {
            State::InUse(segment, _) if self.arriving.is_none() => {
                let id = segment.id();
                self.outputs.state = State::Free(segment);
                Some(id)
            }
            other => {
                self.outputs.state = other;
                None
            }
        }
    }

    /// Where to put the input of this job, or else which segment has to make room for a larger one.
    pub(super) fn place_input(&mut self, job: u64, length: usize) -> Result<PlacedInput, Option<u32>> {
        if length < SEGMENT_PAYLOAD_MIN {
            return Err(None);
        }
        match self.inputs.state.take() {
            State::Free(segment) if SEGMENT_START + length <= segment.length() => {
                let (id, mapping) = (segment.id(), segment.mapping());
                self.inputs.state = State::InUse(segment, job);
                self.is_used = true;
                Ok(PlacedInput { segment: id, offset: SEGMENT_START, mapping })
            }
            other => {
                self.inputs.state = other;
                self.inline_input = Some(job);
                Err(self.miss(SegmentUse::Inputs, length))
            }
        }
    }

    /// The worker has answered this job, with an output of this length behind the header. Returns the segment that has to
    /// make room for a larger one.
    pub(super) fn answered(&mut self, job: u64, inline_output: usize) -> Option<u32> {
        match self.inputs.state.take() {
            State::InUse(segment, user) if user == job => self.inputs.state = State::Free(segment),
            other => self.inputs.state = other,
        }
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
            match place.state.take() {
                State::Offered(segment) if segment.id() == id => {
                    place.state = State::Free(segment);
                    self.is_used = true;
                    return Ok(());
                }
                other => place.state = other,
            }
        }
        Err(format!("segment {id} is ready, which was not offered"))
    }

    /// The worker does not use a segment any more.
    pub(super) fn left(&mut self, id: u32) -> Result<(), Wrong> {
        let mut places = [&mut self.inputs, &mut self.outputs];
        let Some(place) = places.iter_mut().find(|place| place.state.is(id)) else {
            return Err(format!("it has left segment {id}, which it does not have"));
        };
        match place.state.take() {
            State::Leaving(segment) => self.news.left.push(segment),
            State::Offered(segment) => {
                self.left_unasked += 1;
                self.news.left.push(segment);
            }
            other => {
                self.left_unasked += 1;
                self.kept.extend(other.into_segment().map(Segment::into_taken));
            }
        }
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
        if let State::InUse(segment, user) = &self.inputs.state
            && segment.id() == id
            && *user == job
        {
            return Ok(segment);
        }
        if !self.outputs.state.is(id) {
            return Err(wrong());
        }
        match self.outputs.state.take() {
            State::Free(segment) => self.outputs.state = State::InUse(segment, job),
            // One output may still come: the worker had not heard that the segment is gone.
            leaving @ State::Leaving(_) => self.outputs.state = leaving,
            other => {
                self.outputs.state = other;
                return Err(wrong());
            }
        }
        self.outputs.state.segment().ok_or_else(wrong)
    }

    /// Whether an output is being copied. Nothing that came behind it may be looked at.
    pub(super) fn is_copying(&self) -> bool {
        self.arriving.as_ref().is_some_and(|arriving| arriving.copied < arriving.length)
    }

    /// Copies the next piece, at most [`COPY_MAX`] bytes.
    pub(super) fn copy_some(&mut self) {
        let Some(Arriving { mapping, offset, length, buffer, copied, .. }) = &mut self.arriving else {
            return;
        };
        let end = (*copied + COPY_MAX).min(*length);
        mapping.read(*offset + *copied, &mut buffer.space()[*copied..end]);
        *copied = end;
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
