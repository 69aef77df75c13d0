//! The other books: what was asked, what the fake workers really did, and whether what the core does about it is right.
//! Nothing in here looks at how the core decides. It sees events and actions, and compares the few figures that the
//! core makes public with its own.
//!
//! | rule | it says |
//! |---|---|
//! | O1 | one outcome for each accepted job, never two, and in the end not none |
//! | O2 | the outcome is one that what really happened allows; the time of what a worker has is up at a tick, not before |
//! | O3 | a job is not started more often than it may be, by what the very processes promised that ran it |
//! | O5 | no more processes than slots and spare; work only for those who are well and have room |
//! | O6 | starts that fail are not repeated without pause, nor is a job that no worker lives to start |
//! | O7 | the bytes that are held are those of the jobs that live |
//! | O8 | at the end nothing is left |
//! | O9 | no worker is idle while there is work for it |
//! | O10 | each request is answered once, at once |
//! | O11 | one event causes a bounded number of actions, one moment a bounded number of events |
//! | O12 | a refusal has a reason and no effect; a program that says nothing is refused when it should be |
//! | O13 | the tally is right |
//! | O16 | what is held is on the account of whoever it is held for; nobody is let in or started beyond his share |
//! | O17 | a key, a result that nobody has taken and a dead letter are there until their time is over, and no longer |
//! | O18 | each reload is answered once, when all have the version that they should; nobody is harmed by it |
//! | O19 | what nobody wants does not wait; what no worker lives to start is given up after so many tests, or by a drain |
//! | O15 | nobody is accused of what he has not done, and who has done it is ended: an outcome that blames names an attempt |
//! |     | of that very job, which ran on that worker when it ended; of the attempts that were lost those are blamed that |
//! |     | ran, and not those that were suspended, whatever the outcome; after a death its jobs are with no others |

mod compare;
mod doubt;
mod jobs;
mod memory;
mod orders;
mod promises;
mod reloads;
mod shares;
mod starts;
mod workers;

pub(crate) use jobs::Ran;

use jobs::JobBook;
use memory::MemoryBook;
use offload_core::Core;
use offload_core::action::{Action, Notice};
use offload_core::config::CoreConfig;
use offload_core::event::{Event, JobRequest};
use offload_core::ids::{JobId, Mono, Ticket, WorkerId};
use offload_protocol::nouns::OutcomeCode;
use promises::PromiseBooks;
use reloads::ReloadBook;
use shares::ShareBook;
use starts::StartBook;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use workers::{ProgramBook, WorkerBook};

/// A rule that was broken.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// Which.
    pub(crate) rule: &'static str,
    /// How, for people.
    pub(crate) what: String,
}

/// Fails unless it holds.
pub(crate) fn demand(holds: bool, rule: &'static str, what: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure { rule, what: what() }) }
}

/// See the module's documentation.
pub(crate) struct Oracle {
    config: CoreConfig,
    jobs: BTreeMap<JobId, JobBook>,
    live: BTreeSet<JobId>,
    workers: BTreeMap<WorkerId, WorkerBook>,
    programs: Vec<ProgramBook>,
    starts: StartBook,
    accepted: u64,
    rejected: u64,
    ended: BTreeMap<OutcomeCode, u64>,
    /// The request that waits for its answer.
    asked: Option<(Ticket, JobRequest)>,
    /// When a drain that was asked for becomes a stop.
    drain_ends: Option<Mono>,
    is_draining: bool,
    /// Jobs that had not ended when it was told to stop, or the time to drain was up.
    cut_short: u64,
    is_stopping: bool,
    is_over: bool,
    /// Ticks in a row after which another one was due at once.
    ticks_in_vain: u32,
    /// Those that ended, or turned out to hang in the kernel, by this event.
    gone: BTreeSet<WorkerId>,
    /// The most workers that were ever configured.
    most_workers: usize,
    /// The number of workers, or of spares, was changed.
    is_resized: bool,
    /// The least `window` that was ever configured.
    least_window: Duration,
    reloads: ReloadBook,
    shares: ShareBook,
    memory: MemoryBook,
    promises: PromiseBooks,
    /// The least `max_restarts` that was ever configured.
    least_restarts: u32,
    /// It was ever configured that one start in silence is enough to refuse jobs.
    silence_may_be_final: bool,
    /// The least first pause and the least longest pause that were ever configured.
    least_backoff: (Duration, Duration),
    /// The longest pause that was ever configured.
    longest_backoff: Duration,
    /// The least time that was ever configured for a hello and for a start.
    least_patience: (Duration, Duration),
    /// Where only jobs do wrong, and nobody cancels these: the ones that have to end well.
    innocents: Option<BTreeSet<Ticket>>,
}

impl Oracle {
    /// Books without an entry.
    pub(crate) fn new(config: &CoreConfig) -> Oracle {
        Oracle {
            config: config.clone(),
            jobs: BTreeMap::new(),
            live: BTreeSet::new(),
            workers: BTreeMap::new(),
            programs: (0..config.programs).map(|_| ProgramBook::default()).collect(),
            starts: StartBook::default(),
            accepted: 0,
            rejected: 0,
            ended: BTreeMap::new(),
            asked: None,
            drain_ends: None,
            is_draining: false,
            cut_short: 0,
            is_stopping: false,
            is_over: false,
            ticks_in_vain: 0,
            gone: BTreeSet::new(),
            most_workers: config.workers,
            is_resized: false,
            least_window: config.window,
            reloads: ReloadBook::new(config.programs),
            shares: ShareBook::default(),
            memory: MemoryBook::default(),
            promises: PromiseBooks::default(),
            least_restarts: config.max_restarts,
            silence_may_be_final: config.max_silent_starts == 1,
            least_backoff: (config.backoff_min, config.backoff_max),
            longest_backoff: config.backoff_max,
            least_patience: (config.hello_timeout, config.start_timeout),
            innocents: None,
        }
    }

    /// From now on clients must get their shares, but for so much that priorities are worth.
    pub(crate) fn watch_shares(&mut self, head_start: Duration) {
        self.shares = ShareBook::watched(head_start);
    }

    /// The jobs of one of the two clients end their workers: it gets no more than it pays for.
    pub(crate) fn bob_is_guilty(&mut self) {
        self.shares.bob_is_guilty();
    }

    /// From now on these have to end well, whatever happens to others.
    pub(crate) fn watch_innocents(&mut self, innocents: BTreeSet<Ticket>) {
        self.innocents = Some(innocents);
    }

    /// Looks at one event and at what the core made of it.
    ///
    /// # Errors
    /// The first rule that was broken.
    pub(crate) fn see(
        &mut self,
        now: Mono,
        event: &Event,
        is_honest: bool,
        actions: &[Action],
        core: &Core,
    ) -> Result<(), Failure> {
        let most = self.actions_max();
        demand(actions.len() <= most, "O11", || format!("{} actions, more than {most}", actions.len()))?;
        if let Event::Exited { worker, .. } | Event::SpawnFailed { worker, .. } = event {
            self.gone.insert(*worker);
        }
        self.memory.note(event);
        let must = self.take_note(now, event, is_honest);
        self.note_promises(now, event);
        self.begin_reload(event);
        for action in actions {
            // What was lost with a worker is decided before anything is given out or started again.
            if matches!(action, Action::Spawn { .. } | Action::Run { .. }) {
                self.forget_the_dead(now);
            }
            self.judge(now, event, action)?;
            self.judge_promise_action(now, event, action)?;
        }
        demand(self.asked.is_none(), "O10", || "a request was not answered".to_owned())?;
        self.demand_duty(&must, actions)?;
        self.forget_the_dead(now);
        self.gone.clear();
        if let Event::Exited { worker, .. } | Event::SpawnFailed { worker, .. } = event {
            self.workers.remove(worker);
        }
        self.compare(now, event, actions, core)
    }

    /// K: each job can be ended and its worker be told; what is kept can be released; each place can be left, killed, filled and logged.
    fn actions_max(&self) -> usize {
        3 * (self.live.len() + 1) + 8 * (self.most_workers + 1) + 4 + self.promises.count()
    }

    fn judge(&mut self, now: Mono, event: &Event, action: &Action) -> Result<(), Failure> {
        match action {
            Action::Accepted { ticket, job, is_known } => {
                self.judge_acceptance(now, *ticket, *job, *is_known)
            }
            Action::Rejected { ticket, error } => self.judge_refusal(*ticket, error.code),
            Action::Finish(ended) => self.judge_outcome(now, event, ended),
            Action::Spawn { worker, program, version, .. } => {
                self.judge_spawn(now, *worker, *program, *version)
            }
            Action::Run { worker, job, attempt, resume } => {
                self.judge_run(now, *worker, *job, (*attempt, *resume))
            }
            Action::CancelRun { worker, job } => self.judge_cancel_run(*worker, *job),
            Action::Dismiss { worker } => self.judge_end_of_worker(*worker),
            Action::Kill { worker, .. } => self.judge_end_of_worker(*worker),
            Action::Log(notice) => self.judge_notice(now, notice),
            Action::Keep { job } => self.keep(*job, event),
            Action::Yield { worker, job } => self.judge_yield(*worker, *job),
            Action::Reloaded { version, rolled_back } => {
                self.judge_reloaded(event, *version, rolled_back.is_none())
            }
            Action::Release { .. } | Action::ForgetLetter { .. } => Ok(()),
            Action::Over => self.judge_over(),
        }
    }

    fn judge_notice(&mut self, now: Mono, notice: &Notice) -> Result<(), Failure> {
        if let Notice::WorkerHangs { worker, .. } = notice {
            self.gone.insert(*worker);
            self.hangs(now, *worker);
        }
        if let Notice::TrialPassed { program } | Notice::RolledBack { program, .. } = notice {
            return self.judge_trial(*program, matches!(notice, Notice::TrialPassed { .. }));
        }
        if let Notice::Degraded { program, .. } | Notice::Recovered { program } = notice {
            self.programs[*program].is_refusing = matches!(notice, Notice::Degraded { .. });
        }
        let Notice::WorkerKilled { worker, why, .. } = notice else { return Ok(()) };
        let is_accusation = why.starts_with("it broke") || why.starts_with("it is not a worker");
        let Some(book) = self.workers.get_mut(worker) else { return Ok(()) };
        let silence = now - book.heard_at;
        let running = book.started.last().and_then(|job| self.jobs.get(job));
        let hangs = running.is_some_and(|job| job.is_silent(now, self.config.hang_timeout));
        book.is_accused = true;
        book.is_ended_for_a_job |= why == "its job timed out or was cancelled";
        let is_right = match why.as_str() {
            "it did not say hello in time" => {
                book.is_silent = true;
                silence >= self.least_patience.0
            }
            "it had a job and did not start it" => book.is_liar || silence >= self.least_patience.1,
            "it did not say how far its job was, as it had promised" => {
                book.has_hung = true;
                book.is_liar || hangs
            }
            _ => book.is_liar || !is_accusation,
        };
        demand(is_right, "O15", || format!("{worker} is accused: {why}"))
    }

    fn judge_over(&mut self) -> Result<(), Failure> {
        let is_right = !self.is_over && self.live.is_empty() && self.is_ending();
        self.is_over = true;
        demand(is_right, "O8", || "it is over too early, or again".to_owned())
    }

    fn stop(&mut self, is_cut_short: impl Fn(&JobBook) -> bool) {
        if !std::mem::replace(&mut self.is_stopping, true) && !self.is_over {
            self.cut_short = self.live.iter().filter(|id| is_cut_short(&self.jobs[id])).count() as u64;
        }
    }

    fn is_ending(&self) -> bool {
        self.is_stopping || self.is_draining
    }
}
