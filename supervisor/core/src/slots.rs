//! The place of one worker. It outlives the processes that fill it.
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
//! What a worker that is Busy has:
//!
//! ```text
//!   waiting (given, not started) ---> running ---> answered
//!                                       |  ^
//!                another one is started |  | that one has ended
//!                between two steps      v  |
//!                                     suspended: its clocks stand still
//! ```
//!
//! The spare is a slot like the others that is never given a job. When a slot has lost its worker, or is still waiting
//! for one, or has one that is to be replaced and has no job, and the spare is Idle, the two exchange their states: the
//! job queue goes on at once and the loss is made good in the spare's place. There are never more processes than slots
//! and spare together (and a few that hang in the kernel), because each place holds at most one, and gives it up only
//! when it is reaped.
//!
//! All times that belong to a process are in its slot's state, with the attempt that they belong to, so the time limit
//! of one job can never hit the next.

use super::clients::ClientId;
use super::ids::{JobId, Mono, Place, ProgramIndex, Version, WorkerId};
use crate::limits::RECENT_JOBS;
use std::collections::VecDeque;
use std::time::Duration;

/// One place for a worker, with what is remembered of its past.
#[derive(Debug)]
pub struct Slot {
    /// What it runs.
    pub program: ProgramIndex,
    /// What it is for.
    pub role: Role,
    /// Kept free for short work while there is some.
    pub is_reserved: bool,
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
    /// Its worker is to be replaced for this reason, once that hurts nobody.
    pub retire: Option<Retire>,
    /// Its replacement is ready: it is given nothing any more.
    pub is_closing: bool,
    /// Under what it is listed.
    pub(super) listed: Listed,
}

/// What a place is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs jobs.
    Work,
    /// Holds a worker that waits to replace another.
    Spare,
    /// One too many since the number of workers was lowered: it ends when its jobs have, and nothing follows.
    Surplus,
}

/// Why a worker is replaced although it is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retire {
    /// It has done as many jobs as it may.
    Jobs,
    /// It is as old as it may get.
    Age,
    /// It has grown larger than it may.
    Memory,
    /// Another version of its program is to run.
    Reload,
}

/// The lists in which a slot is found, so that it can be taken out of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) open: Option<(usize, bool)>,
    pub(super) between_steps: bool,
    pub(super) due: Option<Mono>,
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
        /// Of its program.
        version: Version,
        /// Since when it is being started.
        since: Mono,
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
        /// Of its program.
        version: Version,
        /// What it was, if it had said hello.
        was: Option<Worker>,
        /// Its jobs that are not decided yet.
        load: Load,
        /// Why: the first reason that there was, whatever it does afterwards.
        cause: Cause,
        /// How far.
        going: Going,
        /// What it says counts. One that broke a rule is not listened to any more.
        is_heard: bool,
    },
}

/// How hard a process was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Going {
    /// Not at all, or in a way that it may ignore.
    Asked {
        /// When SIGKILL is sent.
        kill_at: Mono,
    },
    /// SIGKILL is sent.
    Killed {
        /// When it counts as hanging in the kernel.
        reap_by: Mono,
    },
}

/// A worker that has said hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its name.
    pub id: WorkerId,
    /// Of its program.
    pub version: Version,
    /// When it said hello.
    pub ready_at: Mono,
    /// Jobs that it has done.
    pub jobs_done: u64,
    /// With so many jobs done it is replaced.
    pub retire_after: Option<u64>,
    /// At this time it is replaced.
    pub retire_at: Option<Mono>,
    /// Since when it is stopped, by SIGSTOP for example.
    pub stopped_at: Option<Mono>,
    /// The jobs that it has done, the last one first.
    pub recent: [Option<JobId>; RECENT_JOBS],
}

impl Worker {
    /// It has done a job.
    pub(super) fn did(&mut self, job: JobId) {
        self.jobs_done += 1;
        self.recent.rotate_right(1);
        self.recent[0] = Some(job);
    }
}

/// The jobs that one worker has.
#[derive(Debug, Default)]
pub struct Load {
    /// The attempt that is under way.
    pub running: Option<Running>,
    /// The stepped attempt that goes on when `running` has ended.
    pub suspended: Option<Running>,
    /// Given and not started, in the order in which they are to be.
    pub waiting: VecDeque<JobId>,
    /// So many of these, the first ones, may have been begun all the same, by a worker that has to end.
    pub doubtful: usize,
}

/// One attempt that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Of which job.
    pub job: JobId,
    /// Its number.
    pub attempt: u32,
    /// When it started.
    pub started_at: Mono,
    /// When its time is up.
    pub finish_by: Mono,
    /// When it should have said how far it is, and how often it promised to.
    pub progress_by: Option<(Mono, Duration)>,
    /// Others may be started between its steps.
    pub lets_others_in: bool,
    /// It can be asked to give its place up.
    pub yields: bool,
    /// It was cancelled, and this client has paid for its worker in advance. It gets that back if the worker lives.
    pub paid: Option<(ClientId, Duration)>,
    /// It was asked to give its place up.
    pub asked_to_yield: bool,
    /// Since when it is suspended.
    pub suspended_at: Option<Mono>,
    /// How long it was suspended in all.
    pub stood_still: Duration,
    /// When it began, its worker had been told to end: that was not because of this one.
    pub is_bystander: bool,
}

impl Running {
    /// How long it ran, without the time in which others did.
    pub fn ran(&self, now: Mono) -> Duration {
        let until = self.suspended_at.unwrap_or(now);
        (until - self.started_at).saturating_sub(self.stood_still)
    }

    fn suspend(mut self, now: Mono) -> Running {
        self.suspended_at = Some(now);
        self
    }

    fn resume(mut self, now: Mono) -> Running {
        let stood_still = self.suspended_at.take().map_or(Duration::ZERO, |since| now - since);
        self.stood_still += stood_still;
        self.finish_by = self.finish_by + stood_still;
        self.progress_by = self.progress_by.map(|(by, promise)| (by + stood_still, promise));
        self
    }
}

impl Load {
    /// With one job, not started.
    pub fn of(job: JobId) -> Load {
        Load { waiting: [job].into(), ..Load::default() }
    }

    /// How many jobs there are.
    pub fn len(&self) -> usize {
        usize::from(self.running.is_some()) + usize::from(self.suspended.is_some()) + self.waiting.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The job that runs.
    pub fn running_job(&self) -> Option<JobId> {
        self.running.map(|running| running.job)
    }

    /// All of them, started or not.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        let started = self.running.iter().chain(&self.suspended).map(|running| running.job);
        started.chain(self.waiting.iter().copied())
    }

    /// The job that may be started now.
    pub fn next_to_start(&self) -> Option<JobId> {
        let may_start = match (&self.running, &self.suspended) {
            (None, _) => true,
            (Some(running), None) => running.lets_others_in,
            (Some(_), Some(_)) => false,
        };
        self.waiting.front().copied().filter(|_| may_start)
    }

    /// The next job was started; the one that ran, if one did, is suspended.
    pub(super) fn start(&mut self, now: Mono, started: Running) {
        self.pop_waiting();
        let before = self.running.replace(started);
        self.suspended = self.suspended.or(before.map(|running| running.suspend(now)));
    }

    /// Takes the running one out; the suspended one, if there is one, goes on.
    pub(super) fn take_running(&mut self, now: Mono) -> Option<Running> {
        let ended = self.running.take()?;
        self.running = self.suspended.take().map(|suspended| suspended.resume(now));
        Some(ended)
    }

    /// The attempt at a job that has been started.
    pub(super) fn started(&self, job: JobId) -> Option<&Running> {
        self.running.iter().chain(&self.suspended).find(|running| running.job == job)
    }

    /// The same.
    pub(super) fn started_mut(&mut self, job: JobId) -> Option<&mut Running> {
        self.running.iter_mut().chain(&mut self.suspended).find(|running| running.job == job)
    }

    /// Takes a job out that has been started.
    pub(super) fn take_started(&mut self, now: Mono, job: JobId) -> Option<Running> {
        if self.running_job() == Some(job) {
            return self.take_running(now);
        }
        self.suspended.take_if(|suspended| suspended.job == job)
    }

    /// Whether the job has been started.
    pub fn is_started(&self, job: JobId) -> bool {
        self.started(job).is_some()
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
    /// It was stopped, and nobody let it go on.
    Stopped,
    /// It did not say how far its job was, which it had promised.
    Hung,
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
            retire: None,
            is_closing: false,
            listed: Listed::default(),
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

    /// The version of the program that the process here runs.
    pub fn version(&self) -> Option<Version> {
        match &self.state {
            SlotState::Vacant => None,
            SlotState::Starting { version, .. } | SlotState::Leaving { version, .. } => Some(*version),
            SlotState::Idle { worker } | SlotState::Busy { worker, .. } => Some(worker.version),
        }
    }

    /// Whether its process has not said hello, and perhaps never will.
    pub fn is_starting(&self) -> bool {
        matches!(self.state, SlotState::Starting { .. } | SlotState::Leaving { was: None, .. })
    }

    /// Whether it is there for work, or waits to be.
    pub fn is_there(&self) -> bool {
        self.role != Role::Surplus || !matches!(self.state, SlotState::Vacant)
    }

    /// Whether the worker here can take jobs or does.
    pub fn is_ready(&self) -> bool {
        self.ready_worker().is_some_and(|worker| worker.stopped_at.is_none())
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
    pub fn deadline(&self, hang_timeout: Duration) -> Option<Mono> {
        let of_worker = |worker: &Worker| {
            let retire_at = worker.retire_at.filter(|_| self.retire.is_none());
            retire_at.into_iter().chain(worker.stopped_at.map(|since| since + hang_timeout)).min()
        };
        match &self.state {
            SlotState::Vacant => None,
            SlotState::Idle { worker } => of_worker(worker),
            SlotState::Starting { ready_by, .. } => Some(*ready_by),
            SlotState::Busy { worker, load, start_by } => {
                let of_job = match load.running {
                    Some(running) => {
                        let progress_by =
                            running.progress_by.map(|(by, promise)| by + promise + hang_timeout);
                        progress_by.map_or(running.finish_by, |by| by.min(running.finish_by))
                    }
                    None => *start_by,
                };
                Some(of_worker(worker).map_or(of_job, |of_worker| of_worker.min(of_job)))
            }
            SlotState::Leaving { going: Going::Asked { kill_at }, .. } => Some(*kill_at),
            SlotState::Leaving { going: Going::Killed { reap_by }, .. } => Some(*reap_by),
        }
    }

    /// The worker here that takes jobs or runs one.
    pub fn ready_worker(&self) -> Option<Worker> {
        match &self.state {
            SlotState::Idle { worker } | SlotState::Busy { worker, .. } => Some(*worker),
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

    /// A worker whose last job has ended is idle.
    pub(super) fn rest_if_done(&mut self) {
        if let SlotState::Busy { worker, load, .. } = &self.state
            && load.is_empty()
        {
            self.state = SlotState::Idle { worker: *worker };
        }
    }

    /// Whether what the worker here says counts.
    pub fn is_trusted(&self) -> bool {
        !matches!(&self.state, SlotState::Leaving { is_heard: false, .. })
    }

    /// One word for tables.
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
