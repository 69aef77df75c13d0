//! Starts of workers: a process is there, cannot be had, or ends so early that its start counts as failed.
//!
//! ```text
//!   ordered --- Launched ---> there --- Hello ---> ready
//!      |                        |                    |
//!      '- SpawnFailed           '- its end           '- its end, young and without a job done
//!               '------------------------'------------------'---> blamed on the program, or on nobody
//! ```

use super::action::{Action, Notice};
use super::ids::{JobId, Mono, ProgramIndex, SlotIndex, TaskIndex, Version, WorkerId};
use super::outcome::{self, human};
use super::restarts::{Failure, Suspects};
use super::slots::{Cause, Slot, SlotState, Worker};
use super::supervise::KILLED;
use super::turn::Turn;
use super::{Core, Ending, Program};
use crate::exit::Exit;
use crate::limits::MOVED_MAX;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};

/// The exit code with which a worker says that starting it again is pointless.
const EXIT_DO_NOT_RESTART: i32 = 64;

impl Core {
    /// Ends jobs that wait for a program whose workers cannot be started, unless a ready worker can do them. In the
    /// middle of a reload, the ready workers may lack a task.
    pub(super) fn refuse_hopeless(&mut self, turn: &mut Turn<'_>) {
        for program in 0..self.programs.len() {
            let restarts = &self.programs[program].restarts;
            if !restarts.is_refusing() {
                continue;
            }
            let error = outcome::error(OutcomeCode::Unavailable, restarts.why());
            let is_ready = |slot: &Slot| slot.program == program && slot.is_ready();
            let ready: Vec<SlotIndex> =
                (0..self.slots.len()).filter(|&slot| is_ready(&self.slots[slot])).collect();
            let can_be_done = |job| ready.iter().any(|&slot| self.promise_to(slot, job).is_some());
            let waiting = self.programs[program].queues().flat_map(|queue| queue.jobs());
            let is_refused = |id: JobId| {
                self.jobs
                    .get(id)
                    .is_some_and(|job| self.programs[program].restarts.is_refusing_for(self.account_of(job)))
            };
            let hopeless = waiting.filter(|&job| is_refused(job) && !can_be_done(job));
            let hopeless: Vec<JobId> = hopeless.take(MOVED_MAX + 1).collect();
            if hopeless.len() > MOVED_MAX {
                self.move_more_later();
            }
            for job in hopeless.into_iter().take(MOVED_MAX) {
                self.finish(turn, job, Ending::of(error.clone()));
            }
        }
    }

    /// Orders a process for this empty place.
    pub(super) fn spawn(&mut self, turn: &mut Turn<'_>, slot: SlotIndex) {
        self.last_worker += 1;
        let worker = WorkerId(self.last_worker);
        self.tally.start(self.slots[slot].incarnation > 0);
        let program = self.slots[slot].program;
        let version = self.version_to_start(slot);
        let ready_by = turn.now + self.config.hello_timeout;
        let place = self.slot_mut(slot);
        place.incarnation += 1;
        place.state = SlotState::Starting { worker, version, since: turn.now, ready_by };
        self.places.insert(worker, slot);
        turn.push(Action::Spawn { worker, program, version, slot });
    }

    /// The time to say hello begins only now: the start itself may have had to wait.
    pub(super) fn on_launched(&mut self, now: Mono, worker: WorkerId) {
        let ready_until = now + self.config.hello_timeout;
        let Some(&slot) = self.places.get(&worker) else { return };
        if let SlotState::Starting { since, ready_by, .. } = &mut self.slot_mut(slot).state {
            (*since, *ready_by) = (now, ready_until);
        }
    }

    /// The report may come late, when the core has already given the start up.
    pub(super) fn on_spawn_failed(
        &mut self,
        turn: &mut Turn<'_>,
        worker: WorkerId,
        fatal: bool,
        message: &str,
    ) {
        if self.hanging.remove(&worker).is_some() {
            self.places_changed = true;
            return;
        }
        let Some(&slot) = self.places.get(&worker) else { return };
        let (version, is_dismissed) = match &self.slots[slot].state {
            SlotState::Starting { version, .. } => (*version, false),
            SlotState::Leaving { version, was: None, cause, .. } => {
                (*version, matches!(cause, Cause::Dismissed))
            }
            _ => return,
        };
        self.places.remove(&worker);
        self.vacate(slot);
        if !is_dismissed {
            let start = FailedStart { worker, program: self.slots[slot].program, version };
            // What is not there at this moment comes back, if its file is only being replaced. So it is given up only if it never worked.
            let has_worked = self.programs[start.program].restarts.has_said_hello();
            let outlook = if fatal && !has_worked { Outlook::None } else { Outlook::Fair };
            self.start_failed(turn, start, outlook, &Suspects::Program, message);
        }
    }

    /// A worker ended before it said hello.
    pub(super) fn blame_start(
        &mut self,
        turn: &mut Turn<'_>,
        start: FailedStart,
        cause: Option<&Cause>,
        exit: Exit,
        words: &str,
    ) {
        let is_tried = self.tried_version() == Some(start.version);
        let from_outside = exit == KILLED && matches!(cause, None | Some(Cause::Closed)) && !is_tried;
        let restarts = &mut self.programs[start.program].restarts;
        if from_outside && restarts.has_proved_good() && restarts.excuses_death() {
            return;
        }
        let if_ever = if restarts.has_said_hello() { Outlook::Fair } else { Outlook::Poor };
        let (outlook, message) = match cause {
            Some(Cause::Dismissed) => return,
            Some(Cause::Unfit(what)) => {
                (Outlook::None, format!("not a worker for this supervisor: {what}{words}"))
            }
            Some(Cause::Silent) => {
                let patience = human(self.config.hello_timeout);
                (if_ever, format!("a worker did not say hello within {patience}{words}"))
            }
            Some(Cause::Violation(what)) => {
                (if_ever, format!("a worker broke the protocol at start-up: {what}{words}"))
            }
            Some(Cause::ClosedAndLivedOn) => {
                (Outlook::Fair, format!("a worker closed its channel before its hello and was ended{words}"))
            }
            None
            | Some(
                Cause::Closed
                | Cause::Stuck
                | Cause::Stopped
                | Cause::Hung
                | Cause::TogetherTooLong
                | Cause::JobEnded,
            ) => {
                let outlook = match exit {
                    Exit::Code(EXIT_DO_NOT_RESTART) => Outlook::None,
                    // The program did its work and ended, without ever saying hello: most likely it is no worker.
                    Exit::Code(0) => if_ever,
                    _ => Outlook::Fair,
                };
                (outlook, format!("a worker ended at start-up with {exit}{words}"))
            }
        };
        self.start_failed(turn, start, outlook, &Suspects::Program, &message);
    }

    /// A worker ended by itself without having done a job. If it was young, that counts as a failed start. There are
    /// two excuses:
    ///
    /// - SIGKILL from outside: the start was good.
    /// - The worker had been given a job, and other workers have done jobs: the end may be that job's doing.
    ///
    /// An excuse no longer holds when workers end like this again and again and no job is done. Workers that only had
    /// a job on probation are always excused if others have done jobs.
    pub(super) fn on_idle_death(
        &mut self,
        turn: &mut Turn<'_>,
        program: ProgramIndex,
        worker: Worker,
        death: &Death<'_>,
    ) {
        let is_ours =
            matches!(death.cause, Some(Cause::Violation(_) | Cause::Stuck | Cause::ClosedAndLivedOn));
        let from_outside = death.exit == KILLED && !is_ours;
        let others_work = self.programs[program].restarts.has_proved_good();
        let is_excused = match from_outside {
            true => self.programs[program].restarts.excuses_death(),
            false if death.was_test => others_work,
            false => death.had_jobs() && others_work && self.programs[program].restarts.excuses_death(),
        };
        if !is_excused
            && worker.jobs_done == 0
            && turn.now - worker.ready_at < self.config.failed_start_window()
        {
            let what = match death.cause {
                Some(Cause::Violation(what)) => format!("broke the protocol ({what})"),
                Some(Cause::Stuck) => "did not start the job that it was given".to_owned(),
                Some(Cause::ClosedAndLivedOn) => "closed its channel".to_owned(),
                _ => format!("ended with {}", death.exit),
            };
            let message = format!("a worker {what} before it had done a job{}", death.words);
            let start = FailedStart { worker: worker.id, program, version: worker.version };
            self.start_failed(turn, start, Outlook::Fair, &death.suspects, &message);
        }
    }

    /// A version on trial is taken back. Otherwise the program pauses before its next start.
    pub(super) fn start_failed(
        &mut self,
        turn: &mut Turn<'_>,
        FailedStart { worker, program, version }: FailedStart,
        outlook: Outlook,
        suspects: &Suspects,
        why: &str,
    ) {
        if self.tried_version() == Some(version) {
            return self.take_back(turn, program, why);
        }
        // If no retry can mend one version, another version may still be tried.
        let is_mended_by_none = outlook == Outlook::None && self.tried_version().is_none();
        let restarts = &mut self.programs[program].restarts;
        let was_refusing = restarts.is_refusing();
        let again_in = match is_mended_by_none {
            true => {
                restarts.broke(why);
                None
            }
            false => {
                let silent_most = match outlook {
                    Outlook::Poor => self.config.max_silent_starts,
                    Outlook::Fair | Outlook::None => u32::MAX,
                };
                let most = self.config.max_restarts.min(silent_most);
                let failure = Failure { why, suspects, worker, newest: WorkerId(self.last_worker) };
                Some(restarts.failed(turn.now, failure, most, &self.config, &mut self.rng))
            }
        };
        let failures = restarts.failures();
        let is_refusing = restarts.is_refusing();
        let why = why.to_owned();
        turn.push(Action::Log(match is_refusing && !was_refusing {
            true => Notice::Degraded { program, failures, why, again_in },
            false => Notice::StartFailed { program, failures, why, again_in },
        }));
    }
}

/// Refusals because no worker can be had.
impl Core {
    /// Why no job of this program can be done for now, if so.
    pub(super) fn unavailable(&self, program: ProgramIndex) -> Option<ErrorDetail> {
        let is_refusing = self.programs[program].restarts.is_refusing();
        self.unavailable_unless(program, is_refusing, |_| true)
    }

    /// Why this client's jobs of this task cannot be done for now, if so: no worker can be started, and no ready one
    /// offers the task.
    pub(super) fn unavailable_task(&self, task: TaskIndex, client: &str) -> Option<ErrorDetail> {
        let task = self.registry.task(task);
        let is_refusing = self.programs[task.program].restarts.is_refusing_for(client);
        let offers = |worker| self.promise_of(worker, &task.name).is_some();
        self.unavailable_unless(task.program, is_refusing, offers)
    }

    /// Why no worker can be had for now, unless a ready one will do.
    fn unavailable_unless(
        &self,
        program: ProgramIndex,
        is_refusing: bool,
        will_do: impl Fn(WorkerId) -> bool,
    ) -> Option<ErrorDetail> {
        let mut of_program = self.slots.iter().filter(|slot| slot.program == program && slot.is_ready());
        let refuse = is_refusing && !of_program.any(|slot| slot.worker().is_some_and(&will_do));
        refuse.then(|| outcome::error(OutcomeCode::Unavailable, self.programs[program].restarts.why()))
    }
}

/// What a failed start says about the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    /// The next one may go well.
    Fair,
    /// The program had its full time, or exited with code 0, and said nothing, or nothing that makes sense; and no
    /// worker of it has ever said hello. Most likely it is no worker.
    Poor,
    /// The next one would fail in the same way.
    None,
}

/// Read access for the shell.
impl Core {
    /// How many starts of a program have failed in a row.
    pub fn failed_starts(&self, program: ProgramIndex) -> u32 {
        self.programs[program].restarts.failures()
    }

    /// Whether the tasks of all programs are known.
    pub fn knows_all_tasks(&self) -> bool {
        self.programs_of_workers().all(|program| self.programs[program].has_said_hello())
    }

    /// Why a program has no worker that can be relied on, if starting one has failed. One of a version that was taken
    /// back, and that has not done a job well since, cannot.
    pub fn trouble(&self, program: ProgramIndex) -> Option<&str> {
        let restarts = &self.programs.get(program)?.restarts;
        let is_good = |slot: SlotIndex| self.slots[slot].is_ready() && !self.is_unproven(slot);
        let has_worker =
            || (0..self.slots.len()).any(|slot| self.slots[slot].program == program && is_good(slot));
        (restarts.failures() > 0 && !has_worker()).then(|| restarts.why())
    }

    /// Whether a worker of this program has ever said hello; false again if the only ones that did were of a version
    /// that was taken back.
    pub fn has_had_worker(&self, program: ProgramIndex) -> bool {
        self.programs.get(program).is_some_and(Program::has_said_hello)
    }

    /// Whether the jobs of a program are refused because no worker can be had.
    pub fn refuses(&self, program: ProgramIndex) -> bool {
        self.unavailable(program).is_some()
    }
}

/// A worker that never was ready, or ended before it had done anything.
#[derive(Clone, Copy)]
pub(super) struct FailedStart {
    pub(super) worker: WorkerId,
    pub(super) program: ProgramIndex,
    pub(super) version: Version,
}

/// How a worker ended that ran no job.
pub(super) struct Death<'a> {
    pub(super) cause: Option<&'a Cause>,
    pub(super) exit: Exit,
    /// Who may be the reason: the clients whose jobs the worker had been given, or the program if it had none.
    pub(super) suspects: Suspects,
    /// It had been given a job on probation, to see whether a worker lives to start it.
    pub(super) was_test: bool,
    /// What the worker printed last, as the end of a sentence.
    pub(super) words: &'a str,
}

impl Death<'_> {
    /// Whether the worker had been given jobs.
    fn had_jobs(&self) -> bool {
        self.suspects != Suspects::Program
    }
}
