//! The task `shared`: what a worker may do to its segments, and what it may not. The segments are not mapped but read and
//! written as files, which are the same memory.
//!
//! The input is `ACT` and a space, then any bytes. The answer is those bytes, each turned by [`turned`], in the segment for
//! outputs if there is one. The acts:
//!
//! | act | what it does |
//! |---|---|
//! | `turn` | nothing wrong |
//! | `slice` | answers with a part of its input, where that is: all but the act |
//! | `outside`, `unknown`, `unfinished` | names a place outside of the segment, or another segment, or says Failed after it |
//! | `again` | puts another output into the segment after its answer, before the first one was read |
//! | `late` | goes on writing into both segments after its answer, for ever |
//! | `truncate` | tries to change their size and seals, punches out what is in them, then answers as ever |
//! | `holes` | punches out both segments before it says where its output is, so that what is read there are zeros |
//! | `keep`, `keeptwice`, `keepunknown` | leaves the segment with its input, twice, or one that it does not have |
//! | `mute` | from now on, never leaves a segment that is gone |
//! | `die`, `bus`, `dielater` | dies before its answer, of SIGKILL or SIGBUS, or right after it |

use crate::acts::die_of;
use crate::wire::{self, Job};
use offload_protocol::messages::{FromWorker, SegmentUse};
use offload_protocol::nouns::{FailureKind, MediaType};
use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate};
use rustix::process::Signal;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tests::canary::turned;

/// A segment that nobody has.
const NOBODYS: u32 = u32::MAX;

/// Where outputs begin.
const START: u64 = 64;

/// The segments of this process.
#[derive(Default)]
pub(crate) struct Shared {
    inputs: Option<Segment>,
    outputs: Option<Segment>,
    announced: Option<(u64, Vec<u8>)>,
    pub(crate) is_unread: bool,
    /// Nothing is said any more when a segment is gone.
    pub(crate) is_mute: bool,
}

struct Segment {
    id: u32,
    file: Arc<File>,
}

impl Shared {
    pub(crate) fn add(&mut self, id: u32, holds: SegmentUse, descriptor: Option<OwnedFd>) {
        let file = Arc::new(File::from(descriptor.expect("a descriptor comes with a segment")));
        match holds {
            SegmentUse::Inputs => self.inputs = Some(Segment { id, file }),
            SegmentUse::Outputs => self.outputs = Some(Segment { id, file }),
        }
    }

    pub(crate) fn remove(&mut self, id: u32) {
        self.inputs.take_if(|segment| segment.id == id);
        self.outputs.take_if(|segment| segment.id == id);
    }

    pub(crate) fn announce(&mut self, job: u64, offset: u64, length: u64) {
        let file = &self.inputs.as_ref().expect("a segment for inputs").file;
        let mut input = vec![0; usize::try_from(length).expect("it fits into memory")];
        file.read_exact_at(&mut input, offset).expect("the input is inside of the segment");
        self.announced = Some((job, input));
    }

    pub(crate) fn take_input(&mut self, job: u64) -> Option<Vec<u8>> {
        self.announced.take_if(|(announced, _)| *announced == job).map(|(_, input)| input)
    }

    pub(crate) fn run(&mut self, job: &Job) {
        let space = job.input.iter().position(|byte| *byte == b' ').unwrap_or(job.input.len());
        let (act, rest) = job.input.split_at(space);
        let (act, rest) = (String::from_utf8_lossy(act), rest.get(1..).unwrap_or_default());
        wire::send(&wire::started(job.id, job.attempt));
        match &*act {
            "mute" => self.is_mute = true,
            "truncate" => self.all().for_each(|segment| truncate(&segment.file)),
            "keep" => self.leave(1),
            "keeptwice" => self.leave(2),
            "keepunknown" => wire::send(&left(NOBODYS)),
            "die" => die_of(Signal::KILL),
            "bus" => die_of(Signal::BUS),
            _ => {}
        }
        let bytes = self.answer(job, &act, rest);
        wire::send(&bytes);
        match &*act {
            "again" => wire::send(&output_in(job, self.outputs_id(), START, 1)),
            "late" => self.write_for_ever(),
            "dielater" => die_of(Signal::KILL),
            _ => {}
        }
    }

    fn answer(&mut self, job: &Job, act: &str, rest: &[u8]) -> Vec<u8> {
        let (id, length) = (self.outputs_id(), rest.len() as u64);
        let finished = wire::finished(job.id, job.attempt, MediaType::OCTET_STREAM, b"");
        match act {
            "outside" => [output_in(job, id, 1 << 40, length), finished].concat(),
            "unknown" => [output_in(job, NOBODYS, START, length), finished].concat(),
            "unfinished" => {
                [output_in(job, id, START, length), wire::failed(job, FailureKind::AppError, "no")].concat()
            }
            "slice" if job.is_shared => {
                let id = self.inputs.as_ref().map_or(NOBODYS, |segment| segment.id);
                [output_in(job, id, START + act.len() as u64 + 1, length), finished].concat()
            }
            "slice" => wire::finished(job.id, job.attempt, MediaType::OCTET_STREAM, rest),
            "holes" => {
                let answer = self.turn(job, rest, finished);
                self.all().for_each(|segment| punch(&segment.file));
                answer
            }
            _ => self.turn(job, rest, finished),
        }
    }

    fn turn(&mut self, job: &Job, rest: &[u8], finished: Vec<u8>) -> Vec<u8> {
        let output = turned(rest);
        if let Some(segment) = self.outputs.as_ref().filter(|_| !self.is_unread)
            && segment.file.metadata().is_ok_and(|about| about.len() >= START + output.len() as u64)
        {
            segment.file.write_all_at(&output, START).expect("there is room");
            self.is_unread = true;
            return [output_in(job, segment.id, START, output.len() as u64), finished].concat();
        }
        wire::finished(job.id, job.attempt, MediaType::OCTET_STREAM, &output)
    }

    fn outputs_id(&self) -> u32 {
        self.outputs.as_ref().map_or(NOBODYS, |segment| segment.id)
    }

    fn all(&self) -> impl Iterator<Item = &Segment> {
        self.inputs.iter().chain(&self.outputs)
    }

    fn leave(&mut self, times: usize) {
        let id = self.inputs.take().map_or(NOBODYS, |segment| segment.id);
        (0..times).for_each(|_| wire::send(&left(id)));
    }

    fn write_for_ever(&self) {
        for segment in self.all() {
            let file = Arc::clone(&segment.file);
            std::thread::spawn(move || {
                let length = file.metadata().map_or(0, |about| about.len());
                loop {
                    for offset in (0..length).step_by(4096) {
                        file.write_all_at(&[0xee; 4096], offset).expect("nobody can shrink it");
                    }
                }
            });
        }
    }
}

/// What can be tried; the seals forbid the rest.
fn truncate(file: &File) {
    let length = file.metadata().expect("it is a file").len();
    assert!(ftruncate(file, 0).is_err() && ftruncate(file, 2 * length).is_err(), "its size is sealed");
    assert!(fcntl_add_seals(file, SealFlags::WRITE).is_err(), "so are its seals");
    punch(file);
}

/// Gives all memory of a segment back. Whoever accesses it next gets new memory for each page, which takes the kernel its time.
fn punch(file: &File) {
    let length = file.metadata().expect("it is a file").len();
    fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, length)
        .expect("nobody forbids it");
}

fn output_in(job: &Job, segment: u32, offset: u64, length: u64) -> Vec<u8> {
    wire::frame(&FromWorker::OutputIn { job: job.id, segment, offset, length }, b"")
}

fn left(segment: u32) -> Vec<u8> {
    wire::frame(&FromWorker::SegmentLeft { segment }, b"")
}
