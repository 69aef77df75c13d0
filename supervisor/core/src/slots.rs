//! Slots: each is the place of one worker, and outlives the processes that fill it.
//!
//! ```text
//!            start                 hello                    given a job
//!  Vacant ----------> Starting -------------> Idle ---------------------------> Busy
//!    ^                   |                     ^ |                               | |
//!    |                   |                     | |     its last job ended        | |
//!    |                   |                     '-|-------------------------------' |
//!    |                   | start fails, late     | dismissed, stopped            | job timed out or was cancelled,
//!    |                   v                       v                               v channel ended, rule broken, hung
//!    |-- exited --- Leaving: asked (SIGTERM, Drain or nothing), SIGKILL at kill_at; killed: gone by reap_by,
//!    |                 |     its jobs are decided at the exit
//!    '-----------------'  not gone by then (it hangs in the kernel): the place is given up for it, and it is only
//!                         remembered until it is reaped
//!
//!  A process may end by itself in any state: exited ---> Vacant.
//! ```
//!
//! The spare is a started worker that is given no jobs, ready to replace another. Its place is a slot with the role
//! `Spare`, beside the slots for work. When it is `Idle` and a slot has lost its worker, still waits for one, or has one
//! that is to be replaced and has no job, the two slots exchange their states. So the job
//! queue goes on at once, and the new process starts in the spare's place. There are never more processes than slots
//! and spare together (and a few that hang in the kernel), because each place holds at most one process and gives it
//! up only when the process is reaped or hangs. During a reload there is one more for each program, with the role `Trial`:
//! a worker of the new version, which proves itself there beside the others (`trial.rs`).
//!
//! All times that belong to a process are in its slot's state, together with the attempt that they belong to. So the
//! time limit of one job can never hit the next.

use super::ids::{JobId, Mono, ProgramIndex, Version, WorkerId, WorkerInSlot};
pub use super::load::{InTray, Load, Running};
use super::trays::TrayState;
use crate::limits::RECENT_JOBS;
use std::time::Duration;

/// A place for one worker, with its history.
#[derive(Debug)]
pub struct Slot {
    /// The program that it runs.
    pub program: ProgramIndex,
    /// What the place is for.
    pub role: Role,
    /// Reserved for short work while there is some.
    pub is_reserved: bool,
    /// What the place holds now.
    pub state: SlotState,
    /// How many processes this place has had.
    pub incarnation: u64,
    /// How many jobs ended here, `ok` or with a failure of their own.
    pub jobs_done: u64,
    /// How many processes have ended here.
    pub ended: u64,
    /// How the previous process ended, in words for people.
    pub last_exit: Option<String>,
    /// Whether its worker stays.
    pub tenure: Tenure,
    /// Under what it is listed in the core's lists of slots.
    pub(super) listed: Listed,
}

/// What a place is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// For running jobs.
    Work,
    /// For a worker that waits to replace another.
    Spare,
    /// For a worker of a new version while that is on trial. It runs jobs.
    Trial,
    /// For nothing: there are more places than configured. Its worker goes when its jobs have ended, and is not
    /// replaced.
    Surplus,
}

/// Whether the worker in a place stays, or is to be replaced although it is healthy. The picture is in `renew.rs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tenure {
    /// It stays.
    #[default]
    Stays,
    /// It is to be replaced, but is given jobs until its replacement is ready.
    Retiring(Retire),
    /// Its replacement is ready: it is given no more jobs, and goes when it has none.
    Closing(Retire),
}

impl Tenure {
    /// Why the worker is to be replaced, if it is.
    pub fn retire(self) -> Option<Retire> {
        match self {
            Tenure::Stays => None,
            Tenure::Retiring(why) | Tenure::Closing(why) => Some(why),
        }
    }

    /// Whether the worker is given no more jobs because it is about to be replaced.
    pub fn is_closing(self) -> bool {
        matches!(self, Tenure::Closing(_))
    }
}

/// Why a worker is replaced although it is healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retire {
    /// It has done as many jobs as it may.
    Jobs,
    /// It has reached its maximum age.
    Age,
    /// It uses more memory than it may.
    Memory,
    /// Another version of its program is to run.
    Reload,
}

/// The entries of a slot in the core's lists, so that it can be taken out of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) open: Option<(usize, Opening)>,
    pub(super) between_steps: bool,
    pub(super) due: Option<Mono>,
    pub(super) tray: TrayState,
}

/// In which of its program's lists a slot is that can take a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// For any job.
    Free,
    /// For short jobs.
    Reserved,
    /// Its worker has to prove itself (`trial.rs`).
    Unproven,
}

/// What a place holds; see the picture at the top of this file.
#[derive(Debug, Default)]
pub enum SlotState {
    /// No process.
    #[default]
    Vacant,
    /// A process that has not said hello.
    Starting {
        /// The worker.
        worker: WorkerId,
        /// The version of its program.
        version: Version,
        /// When its start was ordered; once the process is there, when that was.
        since: Mono,
        /// When it must have said hello.
        ready_by: Mono,
    },
    /// A worker without a job.
    Idle {
        /// The worker.
        worker: Worker,
    },
    /// A worker with jobs.
    Busy {
        /// The worker.
        worker: Worker,
        /// The jobs.
        load: Load,
        /// When the worker must have started its next job; unused while a job runs.
        start_by: Mono,
    },
    /// A process that has to end.
    Leaving {
        /// The process, and where it worked: by now it may be in the spare's place.
        place: WorkerInSlot,
        /// The version of its program.
        version: Version,
        /// The worker, if it had said hello.
        was: Option<Worker>,
        /// Its jobs that are not decided yet.
        load: Load,
        /// Why it has to end: the first reason, whatever it does afterwards.
        cause: Cause,
        /// How hard it was told to end.
        going: Going,
        /// What it says still counts. False for one that broke the protocol.
        is_heard: bool,
    },
}

/// How hard a process was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Going {
    /// Not at all, or in a way that it may ignore.
    Asked {
        /// When SIGKILL will be sent.
        kill_at: Mono,
    },
    /// SIGKILL was sent.
    Killed {
        /// When it counts as hanging in the kernel.
        reap_by: Mono,
    },
}

/// A worker that has said hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its number.
    pub id: WorkerId,
    /// The version of its program.
    pub version: Version,
    /// When it said hello.
    pub ready_at: Mono,
    /// How many jobs it has done.
    pub jobs_done: u64,
    /// It is given no more jobs than these, and then replaced.
    pub retire_after: Option<u64>,
    /// At this time it is replaced.
    pub retire_at: Option<Mono>,
    /// It looks for its next job in a tray.
    pub has_tray: bool,
    /// Since when it is stopped, for example by SIGSTOP.
    pub stopped_at: Option<Mono>,
    /// The jobs that it did last, the newest first.
    pub recent: [Option<JobId>; RECENT_JOBS],
}

impl Worker {
    /// Whether it has done as many jobs as it may.
    pub(super) fn is_worn_out(&self) -> bool {
        self.retire_after.is_some_and(|most| self.jobs_done >= most)
    }

    /// It has done this job.
    pub(super) fn did(&mut self, job: JobId) {
        self.jobs_done += 1;
        self.recent.rotate_right(1);
        self.recent[0] = Some(job);
    }
}

/// Why a worker has to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It is not needed any more.
    Dismissed,
    /// Its job timed out or was cancelled. The outcome of that job is decided already.
    JobEnded,
    /// It did not say hello in time.
    Silent,
    /// It had a job and did not start it.
    Stuck,
    /// It was stopped, and nobody let it go on.
    Stopped,
    /// It promised to report progress and did not.
    Hung,
    /// Its jobs, which ran together, took longer than one of them may. Whose fault that is, is not known.
    TogetherTooLong,
    /// Its channel ended. Usually the process has ended too, and its exit will be known soon.
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
    pub fn new(program: ProgramIndex, role: Role) -> Slot {
        Slot {
            program,
            role,
            is_reserved: false,
            state: SlotState::Vacant,
            incarnation: 0,
            jobs_done: 0,
            ended: 0,
            last_exit: None,
            tenure: Tenure::Stays,
            listed: Listed::default(),
        }
    }

    /// The process in this place.
    pub fn worker(&self) -> Option<WorkerId> {
        match &self.state {
            SlotState::Vacant => None,
            SlotState::Starting { worker, .. } => Some(*worker),
            SlotState::Leaving { place, .. } => Some(place.worker),
            SlotState::Idle { worker } | SlotState::Busy { worker, .. } => Some(worker.id),
        }
    }

    /// The version of its program that the process in this place runs.
    pub fn version(&self) -> Option<Version> {
        match &self.state {
            SlotState::Vacant => None,
            SlotState::Starting { version, .. } | SlotState::Leaving { version, .. } => Some(*version),
            SlotState::Idle { worker } | SlotState::Busy { worker, .. } => Some(worker.version),
        }
    }

    /// Whether its process has not said hello yet. It may never do so.
    pub fn is_starting(&self) -> bool {
        matches!(self.state, SlotState::Starting { .. } | SlotState::Leaving { was: None, .. })
    }

    /// Whether the place still counts: all do, except surplus places without a process.
    pub fn is_there(&self) -> bool {
        self.role != Role::Surplus || !matches!(self.state, SlotState::Vacant)
    }

    /// Whether the place is surplus and still has a process.
    pub fn is_leftover(&self) -> bool {
        self.role == Role::Surplus && self.is_there()
    }

    /// Whether the worker here has said hello, is not stopped, and does not have to end.
    pub fn is_ready(&self) -> bool {
        self.ready_worker().is_some_and(|worker| worker.stopped_at.is_none())
    }

    /// How many more jobs the worker here may be given, beside those that it has. One that has done all that it may is only
    /// here because no other can replace it (`renew.rs`): until one can, nothing limits it.
    pub(super) fn left_to_give(&self) -> u64 {
        let Some(worker) = self.ready_worker() else { return 0 };
        let Some(most) = worker.retire_after.filter(|_| !worker.is_worn_out()) else { return u64::MAX };
        let has = self.load().map_or(0, Load::len) as u64;
        most.saturating_sub(worker.jobs_done.saturating_add(has))
    }

    /// The jobs of the worker here.
    pub fn load(&self) -> Option<&Load> {
        match &self.state {
            SlotState::Busy { load, .. } | SlotState::Leaving { load, .. } => Some(load),
            _ => None,
        }
    }

    /// The jobs of the worker here.
    pub fn load_mut(&mut self) -> Option<&mut Load> {
        match &mut self.state {
            SlotState::Busy { load, .. } | SlotState::Leaving { load, .. } => Some(load),
            _ => None,
        }
    }

    /// When something has to be done about this slot if nothing happens before.
    pub fn deadline(&self, hang_timeout: Duration) -> Option<Mono> {
        let of_worker = |worker: &Worker| {
            let retire_at = worker.retire_at.filter(|_| self.tenure == Tenure::Stays);
            retire_at.into_iter().chain(worker.stopped_at.map(|since| since + hang_timeout)).min()
        };
        match &self.state {
            SlotState::Vacant => None,
            SlotState::Idle { worker } => of_worker(worker),
            SlotState::Starting { ready_by, .. } => Some(*ready_by),
            SlotState::Busy { worker, load, start_by } => {
                let of_job = match load.running {
                    Some(running) => {
                        let reports = running.progress_by.filter(|_| !running.credit.is_short());
                        let progress_by = reports.map(|(by, promise)| by + promise + hang_timeout);
                        let answer_by = Some(*start_by).filter(|_| load.is_answer_due);
                        let ends = [progress_by, answer_by, load.return_by];
                        ends.into_iter().flatten().fold(running.finish_by, Mono::min)
                    }
                    None => *start_by,
                };
                Some(of_worker(worker).map_or(of_job, |of_worker| of_worker.min(of_job)))
            }
            SlotState::Leaving { going: Going::Asked { kill_at }, .. } => Some(*kill_at),
            SlotState::Leaving { going: Going::Killed { reap_by }, .. } => Some(*reap_by),
        }
    }

    /// The worker here, if it has said hello and does not have to end. It may be stopped.
    pub fn ready_worker(&self) -> Option<&Worker> {
        match &self.state {
            SlotState::Idle { worker } | SlotState::Busy { worker, .. } => Some(worker),
            _ => None,
        }
    }

    pub(super) fn worker_mut(&mut self) -> Option<&mut Worker> {
        match &mut self.state {
            SlotState::Idle { worker } | SlotState::Busy { worker, .. } => Some(worker),
            SlotState::Leaving { was, .. } => was.as_mut(),
            SlotState::Vacant | SlotState::Starting { .. } => None,
        }
    }

    /// A busy worker whose last job has ended becomes idle.
    pub(super) fn rest_if_done(&mut self) {
        if let SlotState::Busy { worker, load, .. } = &self.state
            && load.is_empty()
        {
            self.state = SlotState::Idle { worker: *worker };
        }
    }

    /// Whether the messages of the worker here still count.
    pub fn is_trusted(&self) -> bool {
        !matches!(&self.state, SlotState::Leaving { is_heard: false, .. })
    }

    /// The state in one word, for tables.
    pub fn word(&self) -> &'static str {
        match &self.state {
            SlotState::Vacant => "empty",
            SlotState::Starting { .. } => "starting",
            SlotState::Idle { worker } | SlotState::Busy { worker, .. } if worker.stopped_at.is_some() => {
                "stopped"
            }
            SlotState::Idle { .. } => "idle",
            SlotState::Busy { .. } => "busy",
            SlotState::Leaving { .. } => "stopping",
        }
    }
}
