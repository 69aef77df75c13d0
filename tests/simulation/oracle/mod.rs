//! The oracle: its own records of what was requested and what the fake workers really did, and checks of what the core does
//! about it. It does not look at how the core decides. It sees only events and actions, and compares the figures that the
//! core publishes with its own.
//!
//! | rule | meaning |
//! |---|---|
//! | O1 | each accepted job has exactly one outcome in the end |
//! | O2 | what really happened allows the outcome; a time limit of a worker's job is applied at a tick, and not too early |
//! | O3 | a job is not started more often than allowed by what the processes that ran it promised |
//! | O5 | there are no more processes than slots and spare; jobs go only to healthy workers that have room |
//! | O6 | there are pauses between failed starts, and between tries of a job that no worker lives to start |
//! | O7 | the bytes that are held are those of the jobs that have not ended |
//! | O8 | nothing is left at the end |
//! | O9 | no worker is idle while there is a job for it |
//! | O11 | one event causes a bounded number of actions, and one moment a bounded number of events |
//! | O12 | a refusal has a reason and no effect; jobs are refused when a program has been silent for too long |
//! | O13 | the counts of jobs and starts are right |
//! | O15 | only the guilty are blamed: an outcome that blames names an attempt of that very job, which ran on that worker |
//! |     | when it ended. Of the lost attempts, those that ran are blamed, and not those that were suspended. A job whose |
//! |     | worker ended does not share a worker with others after that. A worker that breaks a rule is ended |
//! | O26 | a job whose start its worker took back was never started: it is given back, costs no attempt and is not blamed. One whose |
//! |     | worker's program broke its rules is blamed for that; if it had to do with another job it is not, a number of times |
//! | O16 | what is held is charged to the client that it is held for; no client gets in, or starts a job, beyond its share |
//! | O17 | a key, an uncollected result and a dead letter are kept until their time is over, and no longer |
//! | O18 | each reload is answered once and truly, when all workers have the right version; it harms no job |
//! | O27 | a version whose worker ends in a job is not taken back before that job has shown what it does to another worker |
//! | O19 | a job that nobody wants does not wait; a job that no worker lives to start ends after a number of tests, or in a drain |
//! | O20 | no worker is replaced by what nobody has seen working: not while a version is on trial, and not after it failed. |
//! |     | Workers that are started then have to prove themselves: one at a time, one job at a time, with pauses; they get |
//! |     | no job that another idle worker could do |
//! | O21 | a job of which a part was delivered is not run again; parts go where they are wanted; credit comes back |
//! | O22 | a tray has one job at most, behind one that runs on a worker that is well; both are beyond suspicion. It is not left |
//! |     | there while an idle worker could do it, or a more urgent one of its client waits. Who was only in a tray was never |
//! |     | near that worker |
//! | O24 | no more jobs are done by the shell itself than there are places, and none of these waits while a place is free; the shell is told |
//! |     | of each that it need not go on with |
//! | O25 | nothing of a paused task is given to a worker, done by the shell, or left in a tray |
//! | O28 | a worker is given no more jobs than it may do before it is replaced, if another one can be had |
//! | O23 | a job whose input is a file goes to workers that take files, and shares none with tiny jobs; as many files are open |
//! |     | as there are such jobs; no client has more than its share |

mod batches;
mod behind;
mod blame;
mod compare;
mod dead;
mod doubt;
mod duties;
mod files;
mod here;
mod jobs;
mod memory;
mod offers;
mod orders;
mod parts;
mod pauses;
mod promises;
mod reloads;
mod shares;
mod starts;
mod trays;
mod whose_fault;
mod workers;

pub(crate) use batches::BatchBooks;
pub(crate) use jobs::Ran;

use duties::Duty;
use here::HereBook;
use jobs::JobBook;
use memory::MemoryBook;
use offload_core::Core;
use offload_core::action::{Accepted, Action, Notice};
use offload_core::config::CoreConfig;
use offload_core::event::{Event, JobRequest};
use offload_core::ids::{JobId, Mono, WorkerId};
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use pauses::PauseBook;
use promises::PromiseBooks;
use reloads::ReloadBook;
use shares::ShareBook;
use starts::StartBook;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use whose_fault::QuestionBook;
use workers::{ProgramBook, WorkerBook};

/// A rule that was broken.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The rule, such as `O1`.
    pub(crate) rule: &'static str,
    /// How it was broken, for people.
    pub(crate) what: String,
}

/// Fails unless it holds.
pub(crate) fn demand(holds: bool, rule: &'static str, what: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure { rule, what: what() }) }
}

/// A request, by the number of the wish, and how the core answered it.
pub(crate) struct Submission {
    pub(crate) wish: usize,
    pub(crate) request: JobRequest,
    pub(crate) verdict: Result<Accepted, ErrorDetail>,
    /// Whether everything before it was settled.
    pub(crate) was_settled: bool,
    /// Whether it was settled itself.
    pub(crate) is_settled: bool,
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
    /// When the time for a requested drain is up.
    drain_ends: Option<Mono>,
    is_draining: bool,
    /// Requests are in flight, for which a drain waits.
    has_requests: bool,
    /// Jobs that had not ended when the core was told to stop, or when the time to drain was up.
    cut_short: u64,
    is_stopping: bool,
    is_over: bool,
    /// Ticks in a row after which another one was due at once.
    ticks_in_vain: u32,
    /// Workers that ended, or turned out to hang in the kernel, by this event.
    gone: BTreeSet<WorkerId>,
    /// The most workers that were ever configured.
    most_workers: usize,
    /// Whether the number of workers or of spares was changed.
    is_resized: bool,
    /// The least `window` that was ever configured.
    least_window: Duration,
    reloads: ReloadBook,
    questions: QuestionBook,
    here: HereBook,
    shares: ShareBook,
    memory: MemoryBook,
    promises: PromiseBooks,
    pauses: PauseBook,
    /// The least `max_restarts` that was ever configured.
    least_restarts: u32,
    /// Whether it was ever configured that one silent start is enough to refuse jobs.
    silence_may_be_final: bool,
    /// The least first pause and the least longest pause that were ever configured.
    least_backoff: (Duration, Duration),
    /// The longest pause that was ever configured.
    longest_backoff: Duration,
    /// The least time that was ever configured for a hello and for a start.
    least_patience: (Duration, Duration),
    /// Jobs that have to end well: only other jobs cause faults, and nobody cancels these.
    innocents: Option<BTreeSet<usize>>,
}

impl Oracle {
    /// An oracle that has seen nothing yet.
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
            drain_ends: None,
            is_draining: false,
            has_requests: false,
            cut_short: 0,
            is_stopping: false,
            is_over: false,
            ticks_in_vain: 0,
            gone: BTreeSet::new(),
            most_workers: config.workers,
            is_resized: false,
            least_window: config.window,
            reloads: ReloadBook::new(config.programs),
            questions: QuestionBook::default(),
            here: HereBook::new(config.here.places),
            shares: ShareBook::default(),
            memory: MemoryBook::default(),
            promises: PromiseBooks::default(),
            pauses: PauseBook::default(),
            least_restarts: config.max_restarts,
            silence_may_be_final: config.max_silent_starts == 1,
            least_backoff: (config.backoff_min, config.backoff_max),
            longest_backoff: config.backoff_max,
            least_patience: (config.hello_timeout, config.start_timeout),
            innocents: None,
        }
    }

    /// From now on clients must get their shares of worker time, apart from what priorities are worth.
    pub(crate) fn watch_shares(&mut self, head_start: Duration) {
        self.shares = ShareBook::watched(head_start);
    }

    /// The jobs of one of the two clients end their workers: that client must get no more than it pays for.
    pub(crate) fn bob_is_guilty(&mut self) {
        self.shares.bob_is_guilty();
    }

    /// From now on these jobs have to end well, whatever happens to others.
    pub(crate) fn watch_innocents(&mut self, innocents: BTreeSet<usize>) {
        self.innocents = Some(innocents);
    }

    /// Checks what the core did because of one event.
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
        self.demand_few(actions)?;
        if let Event::Exited { worker, .. } | Event::SpawnFailed { worker, .. } = event {
            self.gone.insert(*worker);
        }
        self.memory.note(event);
        self.note_pauses(event, core);
        let must = self.take_note(now, event, is_honest);
        self.note_promises(now, Some(event), actions, core);
        self.begin_reload(event);
        self.judge_all(now, Some(event), actions)?;
        self.demand_duty(&must, actions)?;
        if let Duty::Judge(end) | Duty::MayJudge(end) = must {
            self.note_question(now, end, actions);
        }
        self.forget_the_dead(now);
        self.gone.clear();
        if let Event::Exited { worker, .. } | Event::SpawnFailed { worker, .. } = event {
            self.workers.remove(worker);
        }
        self.compare(now, Some(event), actions, core)
    }

    /// Checks how the core answered one request, and what else it did because of it.
    ///
    /// # Errors
    /// The first rule that was broken.
    pub(crate) fn see_submission(
        &mut self,
        now: Mono,
        submission: &Submission,
        actions: &[Action],
        core: &Core,
    ) -> Result<(), Failure> {
        self.demand_few(actions)?;
        self.note_promises(now, None, actions, core);
        // What had expired by then was released before the request was handled.
        let is_over =
            |action: &Action| matches!(action, Action::Release { .. } | Action::ForgetLetter { .. });
        let is_told = |action: &Action| matches!(action, Action::Log(Notice::KeyUsedAgain { .. }));
        let first = match submission.was_settled {
            true => actions.iter().take_while(|action| is_over(action)).count(),
            // So was, before a refusal, everything that came before.
            false => actions.iter().take_while(|action| !is_told(action)).count(),
        };
        let (before, after) = actions.split_at(first);
        self.judge_all(now, None, before)?;
        // Before a refusal, what came earlier is settled.
        let is_refused = submission.verdict.is_err() && !submission.was_settled;
        if is_refused {
            self.note_expected(core);
        }
        match &submission.verdict {
            Ok(accepted) => self.judge_acceptance(now, submission, *accepted)?,
            Err(error) => self.judge_refusal(&submission.request, error.code)?,
        }
        self.judge_all(now, None, after)?;
        self.forget_the_dead(now);
        self.gone.clear();
        let is_new = submission.verdict.as_ref().is_ok_and(|accepted| !accepted.is_known);
        demand(!is_new || submission.is_settled == core.is_settled(), "O9", || {
            format!("{:?}, and nothing more is to be decided", submission.verdict)
        })?;
        match submission.is_settled || is_refused {
            true => self.compare_settled(now, None, actions, core),
            false => self.compare_unsettled(None, actions, core),
        }
    }

    /// Checks what the core decided for all that it was told since it settled last.
    ///
    /// # Errors
    /// The first rule that was broken.
    pub(crate) fn see_settled(&mut self, now: Mono, actions: &[Action], core: &Core) -> Result<(), Failure> {
        self.demand_few(actions)?;
        self.note_promises(now, None, actions, core);
        self.judge_all(now, None, actions)?;
        self.forget_the_dead(now);
        self.gone.clear();
        self.compare(now, None, actions, core)
    }

    fn demand_few(&self, actions: &[Action]) -> Result<(), Failure> {
        let most = self.actions_max();
        demand(actions.len() <= most, "O11", || format!("{} actions, more than {most}", actions.len()))
    }

    /// Checks the actions that an event caused, or, without an event, a request.
    fn judge_all(&mut self, now: Mono, event: Option<&Event>, actions: &[Action]) -> Result<(), Failure> {
        for action in actions {
            // The core decides about the jobs of a lost worker before it dispatches or starts anything.
            if matches!(action, Action::Spawn { .. } | Action::Run { .. } | Action::Prefetch { .. }) {
                self.forget_the_dead(now);
            }
            self.judge(now, event, action)?;
            self.judge_promise_action(now, event, action)?;
        }
        Ok(())
    }

    /// Most actions of one event: each job can end and its worker be told, each promise can be released, and each place
    /// can lose its worker, have it killed, be filled and be logged.
    fn actions_max(&self) -> usize {
        let places = self.most_workers + 1 + self.reloads.places_for_trials();
        3 * (self.live.len() + 1) + 8 * places + 4 + self.promises.count()
    }

    fn judge(&mut self, now: Mono, event: Option<&Event>, action: &Action) -> Result<(), Failure> {
        match action {
            Action::Finish(ended) => self.judge_outcome(now, event, ended),
            Action::Spawn { worker, program, version, .. } => {
                self.judge_spawn(now, *worker, *program, *version)
            }
            Action::Run { worker, job, attempt, resume } => {
                self.judge_run(now, *worker, *job, (*attempt, *resume))
            }
            Action::Prefetch { worker, job, attempt } => self.judge_prefetch(now, *worker, *job, *attempt),
            Action::RunHere { job, within } => self.judge_run_here(now, *job, *within),
            Action::StopHere { job } => self.judge_stop_here(*job),
            Action::TakeBack { worker, job } => self.judge_take_back(*worker, *job),
            Action::CancelRun { worker, job } => self.judge_cancel_run(*worker, *job),
            Action::Dismiss { worker } => self.judge_end_of_worker(now, *worker),
            Action::Kill { worker, .. } => self.judge_end_of_worker(now, *worker),
            Action::Log(notice) => self.judge_notice(now, event, notice),
            Action::Keep { job } => self.keep(*job, event),
            Action::Yield { worker, job } => self.judge_yield(*worker, *job),
            Action::Collect { job } => self.judge_part(*job, event, false),
            Action::PassOn { job } => self.judge_part(*job, event, true),
            Action::DropParts { job } => self.judge_drop(*job),
            Action::Credit { worker, job, bytes } => self.judge_credit(*worker, *job, *bytes),
            Action::Reloaded { version, end } => self.judge_reloaded(event, *version, end),
            Action::Release { .. } | Action::ForgetLetter { .. } | Action::Ready { .. } => Ok(()),
            Action::Batch { worker, .. } => {
                // Batches have worlds of their own (`batches.rs`).
                Err(Failure { rule: "O5", what: format!("{worker} offers no batches") })
            }
            Action::Over => self.judge_over(),
        }
    }

    fn judge_notice(&mut self, now: Mono, event: Option<&Event>, notice: &Notice) -> Result<(), Failure> {
        if let Notice::WorkerHangs { worker, .. } = notice {
            self.gone.insert(*worker);
            self.hangs(now, *worker);
        }
        self.judge_verdict(now, event, notice)?;
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
            _ => book.is_liar || book.has_broken_program || !is_accusation,
        };
        demand(is_right, "O15", || format!("{worker} is accused: {why}"))
    }

    fn judge_over(&mut self) -> Result<(), Failure> {
        let is_drained = self.is_draining && !self.has_requests;
        let is_right = !self.is_over && self.live.is_empty() && (self.is_stopping || is_drained);
        self.is_over = true;
        demand(is_right, "O8", || "it is over too early, or again".to_owned())
    }

    fn stop(&mut self, is_cut_short: impl Fn(&JobBook) -> bool) {
        if !std::mem::replace(&mut self.is_stopping, true) && !self.is_over {
            self.cut_short = self.live.iter().filter(|id| is_cut_short(&self.jobs[id])).count() as u64;
        }
    }

    /// Whether a job is not refused because of the end.
    fn lets_in(&self, request: &JobRequest) -> bool {
        !self.is_stopping && (!self.is_draining || request.of_request && self.has_requests)
    }

    fn is_ending(&self) -> bool {
        self.is_stopping || self.is_draining
    }
}
