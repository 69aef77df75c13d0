//! The place of one worker. It outlives the processes that fill it.
//!
//! ```text
//!            start                 hello                    given a job
//!  Vacant ----------> Starting -------------> Idle ---------------------------> Busy
//!    ^                   |                     ^ |                               | |
//!    |                   |                     | |     its last job ended        | |
//!    |                   |                     '-|-------------------------------' |
//!    |                   | start fails, late     | dismissed                       | job timed out or was cancelled,
//!    |                   v                       v                                 v channel ended, rule broken
//!    '--- exited --- Leaving: SIGTERM or SIGKILL is sent, SIGKILL follows at kill_at; its jobs are decided at the exit
//!
//!  A process may end by itself in any state: exited ---> Vacant.
//! ```
//!
//! The spare is a slot like the others that is never given a job. When a slot has lost its worker, or is still waiting
//! for one, and the spare is Idle, the two exchange their states: the job queue goes on at once and the loss is made
//! good in the spare's place. There are never more processes than slots and spare together, because each place holds
//! at most one, and gives it up only when it is reaped.
//!
//! All times that belong to a process are in its slot's state, so the time limit of one job can never hit the next.

use super::ids::{JobId, Mono, Place, ProgramIndex, WorkerId};
use std::collections::VecDeque;

/// One place for a worker, with what is remembered of its past.
#[derive(Debug)]
pub struct Slot {
    /// What it runs.
    pub program: ProgramIndex,
    /// Where it stands.
    pub state: SlotState,
    /// How many processes this place has had.
    pub incarnation: u64,
    /// Jobs that ended `ok` or with a failure of their own here.
    pub jobs_done: u64,
    /// Processes that have ended here.
    pub ended: u64,
    /// How the previous process ended, for people.
    pub last_exit: Option<String>,
    /// The number of jobs under which it is listed among the slots that can take one.
    pub(super) listed: Option<usize>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub enum SlotState {
    /// No process.
    #[default]
    Vacant,
    /// A process that has not said hello.
    Starting {
        /// Which.
        worker: WorkerId,
        /// When patience ends.
        ready_by: Mono,
    },
    /// A worker without a job.
    Idle {
        /// Which.
        worker: Worker,
    },
    /// A worker with jobs.
    Busy {
        /// Which.
        worker: Worker,
        /// The jobs.
        load: Load,
        /// When patience with a worker that has a job and does not start it ends; unused while one runs.
        start_by: Mono,
    },
    /// A process that has to end.
    Leaving {
        /// Which, and where it worked: by now it may be in the spare's place.
        place: Place,
        /// What it was, if it had said hello.
        was: Option<Worker>,
        /// Its jobs that are not decided yet.
        load: Load,
        /// Why.
        cause: Cause,
        /// When SIGKILL is sent, unless it was.
        kill_at: Option<Mono>,
    },
}

/// A worker that has said hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its name.
    pub id: WorkerId,
    /// When it said hello.
    pub ready_at: Mono,
    /// Jobs that it has done.
    pub jobs_done: u64,
}

/// The jobs that one worker has, in the order in which it runs them.
#[derive(Debug, Default)]
pub struct Load {
    /// The first one is the one that runs, if one does.
    pub assigned: VecDeque<JobId>,
    /// Since when and for how long the first one runs.
    pub running: Option<Running>,
}

/// The attempt that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its number.
    pub attempt: u32,
    /// When it started.
    pub started_at: Mono,
    /// When its time is up.
    pub finish_by: Mono,
}

impl Load {
    /// The job that runs.
    pub fn running_job(&self) -> Option<JobId> {
        self.running.and_then(|_| self.assigned.front().copied())
    }

    /// The job that has to be started next.
    pub fn next_to_start(&self) -> Option<JobId> {
        match self.running {
            Some(_) => None,
            None => self.assigned.front().copied(),
        }
    }

    /// Takes the running job out.
    pub fn take_running(&mut self) -> Option<(JobId, Running)> {
        let running = self.running.take()?;
        self.assigned.pop_front().map(|job| (job, running))
    }
}

/// Why a worker has to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It is not needed any more.
    Dismissed,
    /// Its job timed out or was cancelled, which is decided already.
    JobEnded,
    /// It did not say hello in time.
    Silent,
    /// It had a job and did not start it.
    Stuck,
    /// Its channel ended; so has the process, usually, and its exit is about to be known.
    Closed,
    /// Its channel ended, but the process lived on and was killed.
    ClosedAndLivedOn,
    /// It broke the protocol.
    Violation(String),
    /// It is not a worker that this supervisor can talk to.
    Unfit(String),
}

impl Slot {
    /// An empty place.
    pub fn new(program: ProgramIndex) -> Slot {
        Slot {
            program,
            state: SlotState::Vacant,
            incarnation: 0,
            jobs_done: 0,
            ended: 0,
            last_exit: None,
            listed: None,
        }
    }

    /// The process that is here.
    pub fn worker(&self) -> Option<WorkerId> {
        match &self.state {
            SlotState::Vacant => None,
            SlotState::Starting { worker, .. } => Some(*worker),
            SlotState::Leaving { place, .. } => Some(place.worker),
            SlotState::Idle { worker } | SlotState::Busy { worker, .. } => Some(worker.id),
        }
    }

    /// Whether the worker here can take jobs or does.
    pub fn is_ready(&self) -> bool {
        matches!(self.state, SlotState::Idle { .. } | SlotState::Busy { .. })
    }

    /// The jobs here.
    pub fn load(&self) -> Option<&Load> {
        match &self.state {
            SlotState::Busy { load, .. } | SlotState::Leaving { load, .. } => Some(load),
            _ => None,
        }
    }

    /// The jobs here.
    pub fn load_mut(&mut self) -> Option<&mut Load> {
        match &mut self.state {
            SlotState::Busy { load, .. } | SlotState::Leaving { load, .. } => Some(load),
            _ => None,
        }
    }

    /// When something has to be done about this slot if nothing happens before.
    pub fn deadline(&self) -> Option<Mono> {
        match &self.state {
            SlotState::Vacant | SlotState::Idle { .. } => None,
            SlotState::Starting { ready_by, .. } => Some(*ready_by),
            SlotState::Busy { load, start_by, .. } => {
                Some(load.running.map_or(*start_by, |running| running.finish_by))
            }
            SlotState::Leaving { kill_at, .. } => *kill_at,
        }
    }

    /// The worker here that takes jobs or runs one.
    pub fn ready_worker(&self) -> Option<Worker> {
        match &self.state {
            SlotState::Idle { worker } | SlotState::Busy { worker, .. } => Some(*worker),
            _ => None,
        }
    }

    /// Whether what the worker here says counts. One that broke a rule is not listened to any more.
    pub fn is_trusted(&self) -> bool {
        !matches!(&self.state, SlotState::Leaving { cause: Cause::Violation(_) | Cause::Unfit(_), .. })
    }

    /// One word for tables.
    pub fn word(&self) -> &'static str {
        match self.state {
            SlotState::Vacant => "empty",
            SlotState::Starting { .. } => "starting",
            SlotState::Idle { .. } => "idle",
            SlotState::Busy { .. } => "busy",
            SlotState::Leaving { .. } => "stopping",
        }
    }
}
