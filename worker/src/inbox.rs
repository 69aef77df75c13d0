//! What has arrived from the supervisor and was not handled yet: jobs in their order, what is said of them before their turn
//! comes, and of those that run.
//!
//! ```text
//!   Run ---> waiting ---> its turn: running ---> popped when it is answered
//!              | Cancel      | Cancel, Yield, Drain, Credit: noted, and seen by whoever asks
//!              '--> skipped when its turn comes
//! ```

use crate::file::{FileInput, Source};
use crate::limits::{LOOK_AHEAD_BYTES_MAX, LOOK_AHEAD_JOBS_MAX};
use crate::link::Stop;
use crate::segments::Segments;
use crate::session_error::SessionError;
use crate::task::Input;
use bytes::Bytes;
use offload_protocol::codec;
use offload_protocol::frame::{Frame, FrameDecoder, owned_payload};
use offload_protocol::limits::{BATCH_JOBS_MAX, PARTS_CREDIT, PAYLOAD_MAX_CEILING};
use offload_protocol::messages::{FILES, FromWorker, PREFETCH, SEGMENTS, ToWorker, VERSION_MAJOR};
use offload_protocol::nouns::Metadata;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// One `Run` of the supervisor.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) attempt: u32,
    pub(crate) task: String,
    pub(crate) input: Source,
    /// The checkpoint of an earlier attempt.
    pub(crate) checkpoint: Option<Bytes>,
    /// How long it may run, if that is limited.
    pub(crate) timeout: Option<Duration>,
    /// When its deadline is, if it has one.
    pub(crate) deadline: Option<Instant>,
    pub(crate) metadata: Metadata,
}

impl Job {
    fn bytes(&self) -> usize {
        self.input.bytes_here() + self.checkpoint.as_ref().map_or(0, Bytes::len)
    }
}

/// What has arrived from the supervisor and was not handled yet.
#[derive(Default)]
pub(crate) struct Inbox {
    pub(crate) turns: VecDeque<Turn>,
    /// Bytes of the inputs and checkpoints in `turns`.
    bytes: usize,
    /// A checkpoint and its job, whose Run comes next.
    resume: Option<(u64, Bytes)>,
    /// The jobs that have begun, at most [`RUNNING_MAX`]. All but the last one wait for the last one to end.
    pub(crate) running: Vec<Running>,
    pub(crate) draining: bool,
    /// What both ends have, once the supervisor has said so.
    pub(crate) capabilities: Option<u64>,
    /// Descriptors that have come, in the order of the messages that they belong to.
    pub(crate) descriptors: VecDeque<OwnedFd>,
    /// What has come for the tray.
    pub(crate) tray_end: Option<OwnedFd>,
    pub(crate) segments: Segments,
    /// The file that is the input of a job, whose Run comes next.
    file: Option<(u64, FileInput)>,
    /// Jobs of a batch whose other jobs come next, and how many these are.
    batch: Option<(Vec<Job>, usize)>,
    /// What is to be said because of messages about segments.
    pub(crate) answers: Vec<FromWorker<'static>>,
    /// The longest payload that the supervisor takes, once it has said so.
    pub(crate) payload_max: Option<usize>,
}

/// What to do with a job when its turn comes.
pub(crate) enum Turn {
    Run(Due),
    /// It was cancelled, and its input is already dropped.
    Skip {
        id: u64,
    },
}

/// What is to be run next.
pub(crate) enum Due {
    One(Job),
    /// A batch: at least two. Whichever is cancelled, the others are wanted: nothing is done about it.
    Together(Vec<Job>),
}

/// In place of the number of a job, where a batch runs. No job has it.
const NO_JOB: u64 = u64::MAX;

pub(crate) struct Running {
    id: u64,
    pub(crate) cancelled: bool,
    pub(crate) wanted_back: bool,
    /// How many bytes of parts may be sent.
    credit: u64,
}

/// A time limit as it is sent: 0 is none.
fn limit(millis: u64) -> Option<Duration> {
    (millis > 0).then(|| Duration::from_millis(millis))
}

impl Inbox {
    /// Takes all frames that are complete.
    pub(crate) fn take_all(&mut self, decoder: &mut FrameDecoder) -> Result<(), Stop> {
        loop {
            while let Some(frame) = decoder.next()? {
                self.take(frame)?;
            }
            // A large payload was announced. Asking again accepts it, and it may be complete already.
            if decoder.announced().is_none() {
                return Ok(());
            }
        }
    }

    fn take(&mut self, frame: Frame<'_>) -> Result<(), Stop> {
        match codec::decode(&frame.header)? {
            ToWorker::Welcome { major, minor, capabilities, payload_max } => {
                if major != VERSION_MAJOR {
                    return Err(Stop::Error(SessionError::Version { major, minor }));
                }
                self.capabilities = Some(capabilities);
                if capabilities & PREFETCH != 0 {
                    self.tray_end = self.descriptors.pop_front();
                }
                if capabilities & (SEGMENTS | FILES) == 0 {
                    // No other message brings one.
                    self.descriptors.clear();
                }
                let payload_max = usize::try_from(payload_max).unwrap_or(usize::MAX);
                self.payload_max = Some(payload_max.min(PAYLOAD_MAX_CEILING));
            }
            ToWorker::Run { job: id, attempt, task, media_type, timeout_ms, deadline_ms, metadata } => {
                let file = self.file.take_if(|(announced, _)| *announced == id);
                let input = match file {
                    Some((_, file)) => Source::File(file, media_type),
                    None => {
                        let in_segment = self.segments.take_input(id);
                        let bytes = in_segment.unwrap_or_else(|| owned_payload(frame.payload));
                        Source::Here(Input { bytes, media_type })
                    }
                };
                let resume = self.resume.take().filter(|(resumed, _)| *resumed == id);
                let checkpoint = resume.map(|(_, bytes)| bytes);
                let timeout = limit(timeout_ms);
                let deadline = limit(deadline_ms).and_then(|left| Instant::now().checked_add(left));
                let task = task.to_owned();
                let job = Job { id, attempt, task, input, checkpoint, timeout, deadline, metadata };
                self.bytes += job.bytes();
                self.add_turn(job);
            }
            ToWorker::Cancel { job } => self.cancel(job),
            ToWorker::Drain => self.drain(),
            ToWorker::Resume { job } => self.resume = Some((job, owned_payload(frame.payload))),
            ToWorker::Yield { job } => self.want_back(job),
            ToWorker::Credit { job, bytes } => self.give_credit(job, bytes),
            ToWorker::Segment { segment, bytes, holds } => {
                let descriptor = self.descriptors.pop_front();
                self.answers.push(self.segments.add((segment, bytes), holds, descriptor));
            }
            ToWorker::SegmentGone { segment } => self.answers.extend(self.segments.remove(segment)),
            ToWorker::InputIn { job, segment, offset, length } => {
                if !self.segments.announce(job, segment, offset, length) {
                    return Err(Stop::Error(SessionError::Segment(segment)));
                }
            }
            ToWorker::OutputRead { segment } => self.segments.output_read(segment),
            ToWorker::InputFile { job, bytes } => {
                self.file = Some((job, FileInput { file: self.descriptors.pop_front(), bytes }));
            }
            ToWorker::Batch { jobs } => {
                if self.batch.is_some() || !(2..=BATCH_JOBS_MAX).contains(&jobs) {
                    return Err(Stop::Error(SessionError::Batch(jobs)));
                }
                self.batch = Some((Vec::new(), jobs as usize));
            }
        }
        Ok(())
    }

    /// A job has come: by itself, or as one of a batch, whose turn comes when it is complete.
    fn add_turn(&mut self, job: Job) {
        let Some((mut jobs, all)) = self.batch.take() else {
            return self.turns.push_back(Turn::Run(Due::One(job)));
        };
        jobs.push(job);
        match jobs.len() == all {
            true => self.turns.push_back(Turn::Run(Due::Together(jobs))),
            false => self.batch = Some((jobs, all)),
        }
    }

    /// While a worker is drained, a long job had better go on elsewhere. So the drain also asks for the running job back.
    fn drain(&mut self) {
        self.draining = true;
        self.running.iter_mut().for_each(|running| running.wanted_back = true);
    }

    /// If the job is not running, it is answered already, or has not started and can run here: nothing is done.
    fn want_back(&mut self, id: u64) {
        if let Some(running) = self.running.iter_mut().find(|running| running.id == id) {
            running.wanted_back = true;
        }
    }

    /// If the job is not running, it is answered already: the answer and the Credit crossed on their way.
    fn give_credit(&mut self, id: u64, bytes: u64) {
        if let Some(running) = self.running.iter_mut().find(|running| running.id == id) {
            running.credit = running.credit.saturating_add(bytes);
        }
    }

    pub(crate) fn credit(&self) -> u64 {
        self.running.last().map_or(0, |running| running.credit)
    }

    pub(crate) fn spend_credit(&mut self, bytes: u64) {
        if let Some(running) = self.running.last_mut() {
            running.credit = running.credit.saturating_sub(bytes);
        }
    }

    /// If the job is not here, it is answered already: the answer and the Cancel crossed on their way.
    fn cancel(&mut self, id: u64) {
        if let Some(running) = self.running.iter_mut().find(|running| running.id == id) {
            running.cancelled = true;
        }
        for turn in &mut self.turns {
            if let Turn::Run(Due::One(job)) = turn
                && job.id == id
            {
                self.bytes -= job.bytes();
                *turn = Turn::Skip { id };
            }
        }
    }

    pub(crate) fn next_turn(&mut self) -> Option<Turn> {
        let turn = self.turns.pop_front()?;
        let (jobs, id) = match &turn {
            Turn::Run(Due::One(job)) => (std::slice::from_ref(job), job.id),
            Turn::Run(Due::Together(jobs)) => (&jobs[..], NO_JOB),
            Turn::Skip { .. } => return Some(turn),
        };
        self.bytes -= jobs.iter().map(Job::bytes).sum::<usize>();
        let (cancelled, wanted_back) = (false, self.draining);
        self.running.push(Running { id, cancelled, wanted_back, credit: PARTS_CREDIT });
        Some(turn)
    }

    /// Whether a batch is next.
    pub(crate) fn is_batch_next(&self) -> bool {
        matches!(self.turns.front(), Some(Turn::Run(Due::Together(_))))
    }

    pub(crate) fn has_room(&self) -> bool {
        self.turns.len() < LOOK_AHEAD_JOBS_MAX && self.bytes < LOOK_AHEAD_BYTES_MAX
    }
}
