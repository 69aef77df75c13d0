//! What the core tells the shell to do. The shell carries actions out in their order and decides nothing itself.

use super::ids::{JobId, Mono, ProgramIndex, SlotIndex, Version, WorkerId, WorkerInSlot};
use crate::exit::{Exit, ExitUsage};
use offload_protocol::nouns::{ErrorDetail, OutcomeCode, Usage};
use std::sync::Arc;
use std::time::Duration;

/// The actions of one event, in order.
pub type Actions = Vec<Action>;

/// The answer to a request that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The new job's number, or the number of the job that was submitted before under the same key.
    pub job: JobId,
    /// The job was there before, and may have ended already.
    pub is_known: bool,
}

/// How a reload ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReloadEnd {
    /// All workers are of the new version.
    Done,
    /// The old workers stay, because the new version of this program does not work.
    TakenBack {
        /// The program. The old workers of all others stay, too.
        program: ProgramIndex,
        /// Why, in words for people.
        why: String,
    },
    /// The old workers stay, because the reload came to no end. Why, in words for people.
    OldStay(String),
    /// The new version is good, but not all old workers were replaced. Why, in words for people.
    SomeStay(String),
}

/// One thing that the shell has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start a process. The answer is `Launched`, then `Hello`, `Exited`..., or else `SpawnFailed`. If the process is
    /// killed before it is there, the answer is `Exited` or `SpawnFailed` alone.
    Spawn {
        /// The number of the new worker.
        worker: WorkerId,
        /// The program to run.
        program: ProgramIndex,
        /// The version of this program.
        version: Version,
        /// The slot that the worker starts in; a spare moves later.
        slot: SlotIndex,
    },
    /// Send a job with its input to a worker.
    Run {
        /// The worker that gets it.
        worker: WorkerId,
        /// The job.
        job: JobId,
        /// The number that this attempt will have if it starts.
        attempt: u32,
        /// The job goes on from the checkpoint that is kept for it.
        resume: bool,
    },
    /// Do a job here, on a thread. The answer is `RanHere`, in any case and at the latest when this time is over: a thread that is
    /// not done by then is left to itself.
    RunHere {
        /// The job.
        job: JobId,
        /// The time.
        within: Duration,
    },
    /// A job that is done here is no longer wanted. `RanHere` says when the shell is done with it.
    StopHere {
        /// The job.
        job: JobId,
    },
    /// The next runs of this worker, as many as this, go together: they are sent as one batch. They come right behind this
    /// action.
    Batch {
        /// The worker.
        worker: WorkerId,
        /// How many; at least 2.
        jobs: u32,
    },
    /// Put a job with its input into the tray of a worker that has one, while it works. If that fails, the answer is
    /// `TrayFailed` and `TakenBack`.
    Prefetch {
        /// The worker.
        worker: WorkerId,
        /// The job.
        job: JobId,
        /// The number that this attempt will have if it starts.
        attempt: u32,
    },
    /// Take a job out of a worker's tray. The answer is `TakenBack` or `NotInTray`.
    TakeBack {
        /// The worker.
        worker: WorkerId,
        /// The job.
        job: JobId,
    },
    /// Ask a worker to give a job back at the end of its step. The answer is `Yielded`; it may never come.
    Yield {
        /// The worker.
        worker: WorkerId,
        /// The job.
        job: JobId,
    },
    /// Keep the state that came with the event in hand, in place of an older one: the job will go on from there.
    Keep {
        /// The job.
        job: JobId,
    },
    /// Add the part that came with the event in hand to those that were collected of this output.
    Collect {
        /// The job.
        job: JobId,
    },
    /// Pass the part that came with the event in hand on to the reader of the stream. `Delivered` says when the reader has
    /// taken it.
    PassOn {
        /// The job.
        job: JobId,
    },
    /// Drop the parts of the output that were collected, or that wait for their reader: the job is run again.
    DropParts {
        /// The job.
        job: JobId,
    },
    /// Tell a worker that it may send more of the output.
    Credit {
        /// The worker.
        worker: WorkerId,
        /// The job.
        job: JobId,
        /// How many bytes more.
        bytes: u64,
    },
    /// Tell a worker that a job is no longer wanted. The worker may not have started it yet.
    CancelRun {
        /// The worker that gets it.
        worker: WorkerId,
        /// The job.
        job: JobId,
    },
    /// Ask a worker without jobs to end itself.
    Dismiss {
        /// The worker.
        worker: WorkerId,
    },
    /// Send a signal to a worker's process group.
    Kill {
        /// The worker.
        worker: WorkerId,
        /// Which signal.
        how: Kill,
    },
    /// A worker has said hello. Nothing is to be done to it; whoever waits for a worker can be told.
    Ready {
        /// The worker.
        worker: WorkerId,
        /// The worker's slot.
        slot: SlotIndex,
    },
    /// A job has ended. This comes exactly once for each accepted job.
    Finish(Box<Ended>),
    /// A promise about a job that has ended is over.
    Release {
        /// The job.
        job: JobId,
        /// The reason.
        why: Released,
    },
    /// The time of a dead letter is over: forget it.
    ForgetLetter {
        /// The job of the dead letter.
        job: JobId,
    },
    /// News for the log.
    Log(Notice),
    /// The answer to `Reload`.
    Reloaded {
        /// The version that was asked for.
        version: Version,
        /// How it ended.
        end: ReloadEnd,
    },
    /// The supervisor is drained or stopped: there is no job and no worker any more.
    Over,
}

/// How a worker is made to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    /// SIGTERM.
    Term,
    /// SIGKILL.
    Kill,
}

/// Why a promise is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The promised time is over: the output is forgotten.
    TimeIsOver,
    /// The output was collected. From now on it is kept as best effort: while there is room, and no longer than was promised.
    Collected {
        /// When the promised time would have been over.
        until: Mono,
    },
}

/// What the shell keeps of a job that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing was promised: the report, for as long as there is room.
    AsCourtesy,
    /// The report and the output, until the shell is told to release them.
    Promised,
    /// The report, until the shell is told to release it; there is no room for the output. This happens while the supervisor ends,
    /// when jobs are no longer held back, and of what a thread has read (`here.rs`).
    WithoutOutput,
}

/// What is kept of a job that became a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterKept {
    /// Everything.
    Whole,
    /// All but the input, for which there is no room: people can look at it, but it cannot be tried again.
    WithoutInput,
    /// Nothing: there is no room for another dead letter.
    Not,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The job.
    pub job: JobId,
    /// The name of its task.
    pub task: Arc<str>,
    /// The name of the account that its bytes were charged to: that of its client.
    pub account: Arc<str>,
    /// Its outcome.
    pub outcome: OutcomeCode,
    /// What went wrong; `None` if the outcome is `ok`.
    pub error: Option<ErrorDetail>,
    /// How often it was started, without the attempts that were lost together with other jobs: these cost none. At least 1 if it
    /// was started.
    pub attempts: u32,
    /// From acceptance to the last start, or to the end if the job never started. Time in earlier attempts that were
    /// given back is not counted.
    pub queued: Duration,
    /// How long the task itself ran, by the worker's clock.
    pub run: Duration,
    /// How many jobs its last attempt was given together with, itself included; 0 if it was alone.
    pub together: u32,
    /// The number of the attempt that it ended, if its worker cannot have run anything else since that started.
    pub alone: Option<u32>,
    /// From the end of the task to now.
    pub returned: Duration,
    /// Where it ran last.
    pub place: Option<WorkerInSlot>,
    /// What the last attempt used.
    pub usage: Usage,
    /// The attempts that were lost, the first one first.
    pub lost: Vec<LostAttempt>,
    /// Bytes of its metadata and labels, which are kept with its report.
    pub tag_bytes: u64,
    /// What is kept of its report and output.
    pub keep: Keep,
    /// What is kept of it as a dead letter, if it is one.
    pub letter: Option<LetterKept>,
}

/// An attempt that was lost: it ended its worker, or ended together with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LostAttempt {
    /// The attempt's number; 0 if the job had been dispatched but not started.
    pub attempt: u32,
    /// The place of its worker.
    pub place: Option<WorkerInSlot>,
    /// How long it ran.
    pub ran: Duration,
    /// How it was lost, as an outcome code.
    pub code: OutcomeCode,
    /// What the worker did, as the predicate of a sentence.
    pub what: String,
    /// How the process ended.
    pub exit: Exit,
    /// The last lines that the process printed.
    pub last_lines: Vec<String>,
    /// What the process used in its life, as the kernel counts it.
    pub usage: Option<ExitUsage>,
    /// The jobs that the process had done before, the last one first.
    pub previous: Vec<JobId>,
    /// The job is to blame: it was the one that ran.
    pub is_blamed: bool,
}

/// News for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A worker has ended, for whatever reason. If that is bad news, another notice says so, too.
    WorkerEnded {
        /// The worker.
        worker: WorkerId,
        /// The worker's slot.
        slot: SlotIndex,
        /// Its program.
        program: ProgramIndex,
        /// How it ended, in words for people.
        how: String,
        /// Why it had to, in words for people, if it had to and that is news.
        why: Option<String>,
        /// The job that it was running, or those that ran together.
        jobs: Vec<JobId>,
    },
    /// A worker ended without having been told to.
    WorkerDied {
        /// The worker.
        worker: WorkerId,
        /// The worker's slot.
        slot: SlotIndex,
        /// How it ended, in words for people.
        how: String,
        /// The job that it was running, or those that ran together.
        jobs: Vec<JobId>,
    },
    /// A worker is being ended.
    WorkerKilled {
        /// The worker.
        worker: WorkerId,
        /// The worker's slot.
        slot: SlotIndex,
        /// Why, in words for people.
        why: String,
    },
    /// A program cannot be started.
    StartFailed {
        /// The program.
        program: ProgramIndex,
        /// How many starts in a row have failed.
        failures: u32,
        /// Why, in words for people.
        why: String,
        /// The pause before the next start; `None` if there will be none.
        again_in: Option<Duration>,
    },
    /// A program cannot be started, and its jobs are refused from now on.
    Degraded {
        /// The program.
        program: ProgramIndex,
        /// How many starts in a row have failed.
        failures: u32,
        /// Why, in words for people.
        why: String,
        /// The pause before the next start; `None` if there will be none.
        again_in: Option<Duration>,
    },
    /// A healthy worker is replaced.
    WorkerRetires {
        /// The worker.
        worker: WorkerId,
        /// The worker's slot.
        slot: SlotIndex,
        /// Why, in words for people.
        why: String,
    },
    /// A process was killed and is not gone: it hangs in the kernel. Another process fills its place.
    WorkerHangs {
        /// The worker.
        worker: WorkerId,
        /// The worker's slot.
        slot: SlotIndex,
    },
    /// The new version of a program has shown that it works. Its other workers are replaced next.
    TrialPassed {
        /// The program.
        program: ProgramIndex,
    },
    /// A job has ended the worker of a new version, and that may have been its own doing: the version is tried with another worker.
    TrialGoesOn {
        /// The program.
        program: ProgramIndex,
        /// The job.
        job: JobId,
        /// The job has ended a worker that had proved itself as well. If not, it has ended before it had shown anything.
        is_guilty: bool,
    },
    /// The new version of a program failed: all programs keep their old one.
    RolledBack {
        /// The program.
        program: ProgramIndex,
        /// Why, in words for people.
        why: String,
    },
    /// A job came with an expired key: it is another job than the one that the key stood for before.
    KeyUsedAgain {
        /// The new job.
        job: JobId,
        /// The job that the key stood for before.
        before: JobId,
    },
    /// A job became a dead letter, and there was no room for another one.
    LetterNotKept {
        /// The job.
        job: JobId,
    },
    /// A program whose jobs were refused works again.
    Recovered {
        /// The program.
        program: ProgramIndex,
    },
}

impl Ended {
    /// How many bytes the texts in the job's report take: its error, metadata and labels, and what is kept of lost attempts.
    pub fn text_bytes(&self) -> u64 {
        let error = self.error.as_ref().map_or(0, |error| error.message.len());
        let of_one = |lost: &LostAttempt| {
            let lines: usize = lost.last_lines.iter().map(|line| LINE_BYTES + line.len()).sum();
            LOST_BYTES + lost.what.len() + lines
        };
        (error + self.lost.iter().map(of_one).sum::<usize>()) as u64 + self.tag_bytes
    }
}

/// Bytes that one lost attempt takes beside its texts.
const LOST_BYTES: usize = 256;

/// Bytes that one line takes beside its text.
const LINE_BYTES: usize = 24;
