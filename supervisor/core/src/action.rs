//! What the core tells the shell to do. The shell carries actions out in their order and decides nothing itself.

use super::ids::{JobId, Place, ProgramIndex, SlotIndex, Version, WorkerId};
use crate::exit::{Exit, ExitUsage};
use offload_protocol::nouns::{ErrorDetail, OutcomeCode, Usage};
use std::time::Duration;

/// The actions of one event, in order.
pub type Actions = Vec<Action>;

/// The verdict on a request that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The job's name from now on, or that of the job that was submitted under the same key before.
    pub job: JobId,
    /// That is a job which was there already, or has ended.
    pub is_known: bool,
}

/// One deed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start a process. Answered by `Launched`, then `Hello`, `Exited`..., or by `SpawnFailed`; if it is
    /// killed before it is there, by `Exited` or `SpawnFailed` alone.
    Spawn {
        /// Its name from now on.
        worker: WorkerId,
        /// What it runs.
        program: ProgramIndex,
        /// Which version of that.
        version: Version,
        /// Where it starts out; a spare moves later.
        slot: SlotIndex,
    },
    /// Send a job with its input.
    Run {
        /// To whom.
        worker: WorkerId,
        /// Which.
        job: JobId,
        /// The attempt that this will be if it starts.
        attempt: u32,
        /// It goes on from the checkpoint that is kept for it.
        resume: bool,
    },
    /// Ask a worker to give a job back at the end of its step. Answered by `Yielded`, or never.
    Yield {
        /// Whom.
        worker: WorkerId,
        /// Which.
        job: JobId,
    },
    /// Keep the state that came with the event in hand, in place of an older one: the job goes on from there.
    Keep {
        /// Whose.
        job: JobId,
    },
    /// Tell a worker that a job which it may not have started is not wanted.
    CancelRun {
        /// To whom.
        worker: WorkerId,
        /// Which.
        job: JobId,
    },
    /// Ask a worker without jobs to end itself.
    Dismiss {
        /// Whom.
        worker: WorkerId,
    },
    /// Send a signal to a worker's process group.
    Kill {
        /// Whom.
        worker: WorkerId,
        /// Which signal.
        how: Kill,
    },
    /// Nothing is to be done to the worker, which has said hello: whoever waits for one is told.
    Ready {
        /// Which.
        worker: WorkerId,
        /// Where.
        slot: SlotIndex,
    },
    /// A job has ended. Said exactly once for each accepted job.
    Finish(Box<Ended>),
    /// What was promised of a job that has ended is over.
    Release {
        /// Which.
        job: JobId,
        /// Why.
        why: Released,
    },
    /// The time of a dead letter is over.
    ForgetLetter {
        /// The job that died.
        job: JobId,
    },
    /// Something that the people who run this want to know.
    Log(Notice),
    /// Answer to `Reload`.
    Reloaded {
        /// As asked.
        version: Version,
        /// Why the old version of some program stays, if it does.
        rolled_back: Option<String>,
    },
    /// Drained or stopped: there is no job and no worker any more.
    Over,
}

/// How hard a worker is told to go.
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
    /// Its time is: the output is forgotten.
    TimeIsOver,
    /// The output was taken: from now on it is remembered as a courtesy, while there is room.
    Collected,
}

/// What is remembered of a job that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing was promised: its report, as long as there is room.
    AsCourtesy,
    /// Its report and its output, until it is released.
    Promised,
    /// Its report, until it is released; for the output there is no room. Only at the end of the supervisor, when jobs are
    /// not held back any more.
    WithoutOutput,
}

/// What is kept of a job that is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterKept {
    /// All.
    Whole,
    /// There is no room for its input: it can be looked at and not be tried again.
    WithoutInput,
    /// Nothing: there is no room for another letter.
    Not,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub job: JobId,
    /// The one word.
    pub outcome: OutcomeCode,
    /// What went wrong, unless it is `ok`.
    pub error: Option<ErrorDetail>,
    /// How often it was started.
    pub attempts: u32,
    /// From acceptance to the last start, or to the end if it never started.
    pub queued: Duration,
    /// The task itself, by the worker's clock.
    pub run: Duration,
    /// From the task's end to now.
    pub returned: Duration,
    /// Where it ran last.
    pub place: Option<Place>,
    /// What the last attempt used.
    pub usage: Usage,
    /// The attempts that were lost, the first one first.
    pub lost: Vec<LostAttempt>,
    /// What is remembered of it.
    pub keep: Keep,
    /// What is kept of it as a dead letter, if it is one.
    pub letter: Option<LetterKept>,
}

/// An attempt that ended its worker, or ended with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LostAttempt {
    /// Its number; 0 if the job had been given to the worker and not been started.
    pub attempt: u32,
    /// Where it was.
    pub place: Option<Place>,
    /// How long it ran.
    pub ran: Duration,
    /// In one word.
    pub code: OutcomeCode,
    /// In a sentence.
    pub what: String,
    /// How the process ended.
    pub exit: Exit,
    /// What the process printed last.
    pub last_lines: Vec<String>,
    /// What the process used in its life, by the kernel.
    pub usage: Option<ExitUsage>,
    /// The jobs that the process had done before, the last one first.
    pub previous: Vec<JobId>,
    /// The job is to blame: it was the one that ran.
    pub is_blamed: bool,
}

/// News for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A worker ended that was not told to.
    WorkerDied {
        /// Which.
        worker: WorkerId,
        /// Where.
        slot: SlotIndex,
        /// How, for people.
        how: String,
        /// The job that it ran.
        job: Option<JobId>,
    },
    /// A worker is being ended for this reason.
    WorkerKilled {
        /// Which.
        worker: WorkerId,
        /// Where.
        slot: SlotIndex,
        /// Why, for people.
        why: String,
    },
    /// A program cannot be started.
    StartFailed {
        /// Which.
        program: ProgramIndex,
        /// Failures in a row.
        failures: u32,
        /// Why, for people.
        why: String,
        /// When it is tried again; never if absent.
        again_in: Option<Duration>,
    },
    /// A program cannot be started, and its jobs are refused from now on.
    Degraded {
        /// Which.
        program: ProgramIndex,
        /// Failures in a row.
        failures: u32,
        /// Why, for people.
        why: String,
        /// When it is tried again; never if absent.
        again_in: Option<Duration>,
    },
    /// A worker is to be replaced, though it is well.
    WorkerRetires {
        /// Which.
        worker: WorkerId,
        /// Where.
        slot: SlotIndex,
        /// Why, for people.
        why: String,
    },
    /// A process was killed and is not gone: it hangs in the kernel. Its place is filled by another.
    WorkerHangs {
        /// Which.
        worker: WorkerId,
        /// Where.
        slot: SlotIndex,
    },
    /// The new version of a program has shown that it works: the other workers follow.
    TrialPassed {
        /// Which.
        program: ProgramIndex,
    },
    /// The new version of a program failed: the old one stays.
    RolledBack {
        /// Which.
        program: ProgramIndex,
        /// Why, for people.
        why: String,
    },
    /// A job came with a key whose time was over: it is another job than the one that the key stood for.
    KeyUsedAgain {
        /// The job that came.
        job: JobId,
        /// The one before.
        before: JobId,
    },
    /// A job died, and there was no room for another dead letter.
    LetterNotKept {
        /// Which.
        job: JobId,
    },
    /// A degraded program works again.
    Recovered {
        /// Which.
        program: ProgramIndex,
    },
}
