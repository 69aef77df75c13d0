//! Starts: a process that is there, one that cannot be had, and workers that are as bad as never started.
//!
//! ```text
//!   ordered --- Launched ---> there --- Hello ---> ready
//!      |                        |                    |
//!      '- SpawnFailed           '- its end           '- its end, young and without a job done
//!               '------------------------'------------------'---> blamed on the program, or on nobody
//! ```

use super::action::{Action, Notice};
use super::ids::{Mono, ProgramIndex, TaskIndex, Version, WorkerId};
use super::outcome::{self, human};
use super::restarts::{Failure, Suspects};
use super::slots::{Cause, SlotState, Worker};
use super::supervise::KILLED;
use super::turn::Turn;
use super::{Core, Program};
use crate::exit::Exit;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};

/// The exit code with which a worker says that starting it again is pointless.
const EXIT_DO_NOT_RESTART: i32 = 64;

impl Core {
    /// Patience begins anew: the start itself may have had to wait.
    pub(super) fn on_launched(&mut self, now: Mono, worker: WorkerId) {
        let ready_until = now + self.config.hello_timeout;
        let Some(&slot) = self.places.get(&worker) else { return };
        if let SlotState::Starting { since, ready_by, .. } = &mut self.slot_mut(slot).state {
            (*since, *ready_by) = (now, ready_until);
        }
    }

    /// It may come late, when patience with the start has ended.
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
            let outlook = if fatal { Outlook::None } else { Outlook::Fair };
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
        let from_outside = exit == KILLED && matches!(cause, None | Some(Cause::Closed));
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
            None | Some(Cause::Closed | Cause::Stuck | Cause::Stopped | Cause::Hung | Cause::JobEnded) => {
                let outlook = match exit {
                    Exit::Code(EXIT_DO_NOT_RESTART) => Outlook::None,
                    // It has done what it is for, and that was not to say hello.
                    Exit::Code(0) => if_ever,
                    _ => Outlook::Fair,
                };
                (outlook, format!("a worker ended at start-up with {exit}{words}"))
            }
        };
        self.start_failed(turn, start, outlook, &Suspects::Program, &message);
    }

    /// A worker that dies of itself, young and without having done anything, is as bad as one that never started. A
    /// SIGKILL that is not ours comes from outside: the start was good. So it was if the worker had been given a job,
    /// and others have done jobs: then it may be that job's doing. It is not any more when workers end like this again
    /// and again and no job is done, unless it is always the jobs on probation that they have.
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

    /// A version that is only tried is taken back; otherwise the program waits before it is started again.
    fn start_failed(
        &mut self,
        turn: &mut Turn<'_>,
        FailedStart { worker, program, version }: FailedStart,
        outlook: Outlook,
        suspects: &Suspects,
        why: &str,
    ) {
        if self.take_back_trial(turn, program, version, why) {
            return;
        }
        // What no retry mends in one version is no reason not to try another one.
        let is_mended_by_none = outlook == Outlook::None && !self.has_trial(program);
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

/// Who is refused because no worker can be had.
impl Core {
    /// Why jobs of this program cannot be done for now, if they cannot.
    pub(super) fn unavailable(&self, program: ProgramIndex) -> Option<ErrorDetail> {
        let is_refusing = self.programs[program].restarts.is_refusing();
        self.unavailable_unless(program, is_refusing, |_| true)
    }

    /// Why jobs of this task cannot be done for now for this client: no worker can be had, and none of those that there
    /// are offers it.
    pub(super) fn unavailable_task(&self, task: TaskIndex, client: &str) -> Option<ErrorDetail> {
        let task = self.registry.task(task);
        let is_refusing = self.programs[task.program].restarts.is_refusing_for(client);
        let offers = |worker| self.promise_of(worker, &task.name).is_some();
        self.unavailable_unless(task.program, is_refusing, offers)
    }

    /// Why no worker can be had for now, unless there is one that will do.
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

/// What a failed start says of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outlook {
    /// It may go well.
    Fair,
    /// The program had all its time, or ended content, and said nothing, or nothing that makes sense, and no worker of it
    /// ever said hello: most likely it is no worker.
    Poor,
    /// It would be the same.
    None,
}

/// What the shell has to know.
impl Core {
    /// Starts of a program that have failed in a row.
    pub fn failed_starts(&self, program: ProgramIndex) -> u32 {
        self.programs[program].restarts.failures()
    }

    /// Whether the tasks of all programs are known.
    pub fn knows_all_tasks(&self) -> bool {
        self.programs.iter().all(|program| program.has_said_hello())
    }

    /// Why a program has no worker that is ready, if starting one has failed.
    pub fn trouble(&self, program: ProgramIndex) -> Option<&str> {
        let restarts = &self.programs.get(program)?.restarts;
        let has_worker = || self.slots.iter().any(|slot| slot.program == program && slot.is_ready());
        (restarts.failures() > 0 && !has_worker()).then(|| restarts.why())
    }

    /// Whether a worker of this program has ever said hello, as far as that still counts.
    pub fn has_had_worker(&self, program: ProgramIndex) -> bool {
        self.programs.get(program).is_some_and(Program::has_said_hello)
    }

    /// Whether the jobs of a program are refused because no worker can be had.
    pub fn refuses(&self, program: ProgramIndex) -> bool {
        self.unavailable(program).is_some()
    }
}

/// A worker that never was ready, or was of no use from then on.
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
    /// Whose doing it may be: that of the clients whose jobs it had been given, if there were any.
    pub(super) suspects: Suspects,
    /// It had been given a job of which it was to be seen whether a worker lives to start it.
    pub(super) was_test: bool,
    /// What it said, as the end of a sentence.
    pub(super) words: &'a str,
}

impl Death<'_> {
    /// Whether it had been given jobs.
    fn had_jobs(&self) -> bool {
        self.suspects != Suspects::Program
    }
}
