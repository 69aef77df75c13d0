//! What becomes of the jobs of a worker that has ended. The job that ran is tried again or ends; the others never began
//! and go back to their queue.
//!
//! Blame is exact, because the worker sends Started before a task sees its first byte: the job that ran is blamed. Two
//! kinds of started jobs are innocent: one that was suspended while another ran between its steps, and one whose worker
//! was ended because of another job.
//!
//! ```text
//!   the job ...
//!   ran                             blamed: tried again if it may be, otherwise ended; its client pays for the worker
//!   ran together with others        nobody knows: all are tried again, in halves (`batches.rs`)
//!   ran, but is innocent            tried again; if it must not run twice it ends, because its effects are unknown
//!   was not started                 innocent: given back to its queue, however often that happens
//!   its start was taken back        as one that was not started (`behind.rs`)
//!   was not started, may have begun innocent: given back; if it must not run twice it ends in doubt (`doubt.rs`)
//!   was not started, was alone      innocent: given back; if that happens again, its client pays and the pauses grow
//!                                   (`probation.rs`); if that goes on, it ends as unavailable. A worker that had done other
//!                                   jobs does not count, up to EXCUSED_MAX times
//! ```
//!
//! From then on all these jobs are suspects: each is dispatched only to a worker without any other job (`settle.rs`).
//! So if one of them ends a worker again, no other job is lost with it.

use super::action::LostAttempt;
use super::ids::{JobId, Mono, SlotIndex, WorkerInSlot};
use super::jobs::Job;
use super::outcome::{self, human};
use super::slots::{Cause, Load, Running, SlotState, Worker};
use super::turn::Turn;
use super::{Charge, Core, Ending, Phase};
use crate::exit::{Exit, ExitUsage};
use crate::limits::{EXCUSED_MAX, LAST_LINES_KEPT, LATE_TESTS_MAX, LOST_ATTEMPTS_KEPT, UNSTARTED_MAX};
use offload_protocol::limits::MESSAGE_MAX;
use offload_protocol::nouns::{BROKEN_PROMISE, EXIT_BROKEN_PROMISE, ErrorDetail, OutcomeCode, Usage, cut};
use std::time::Duration;

/// What is known of the end of a worker.
pub(super) struct End {
    pub(super) cause: Option<Cause>,
    pub(super) exit: Exit,
    pub(super) place: Option<WorkerInSlot>,
    pub(super) was: Option<Worker>,
    pub(super) last_lines: Vec<String>,
    pub(super) usage: Option<ExitUsage>,
}

impl End {
    /// The outcome for the job that is to blame, and what the worker did as the predicate of a sentence.
    pub(super) fn describe(&self, hang_timeout: Duration) -> (OutcomeCode, String) {
        match &self.cause {
            Some(Cause::Violation(what)) => {
                (OutcomeCode::WorkerProtocol, format!("broke the protocol ({what})"))
            }
            Some(Cause::ClosedAndLivedOn) => {
                (OutcomeCode::WorkerCrashed, format!("closed its channel and was ended, {},", self.exit))
            }
            Some(Cause::Stopped) => {
                (OutcomeCode::Timeout, format!("was stopped for {} and was ended", human(hang_timeout)))
            }
            Some(Cause::TogetherTooLong) => {
                (OutcomeCode::Timeout, "ran longer with several jobs than one of them may".to_owned())
            }
            Some(Cause::Hung) => {
                (OutcomeCode::Timeout, "did not say how far it was, as it promised,".to_owned())
            }
            _ if self.exit.is_forbidden_call() => {
                (OutcomeCode::Confinement, format!("{} for a forbidden system call", self.exit))
            }
            _ => (OutcomeCode::WorkerCrashed, self.exit.to_string()),
        }
    }

    fn attempt(
        &self,
        code: OutcomeCode,
        what: String,
        attempt: u32,
        ran: Duration,
        is_blamed: bool,
    ) -> LostAttempt {
        let recent = self.was.map_or([None; _], |was| was.recent);
        LostAttempt {
            attempt,
            place: self.place,
            ran,
            code,
            what,
            exit: self.exit,
            last_lines: self.last_lines.clone(),
            usage: self.usage,
            previous: recent.into_iter().flatten().collect(),
            is_blamed,
        }
    }
}

impl Core {
    pub(super) fn lose(&mut self, turn: &mut Turn<'_>, load: Load, end: &End) {
        // If a cancelled or timed-out job was the reason, that job has ended already; the jobs that are left did
        // nothing wrong.
        let is_job_ended = end.cause == Some(Cause::JobEnded);
        let was_alone = load.len() == 1 && !is_job_ended;
        for job in load.jobs() {
            if let Some(job) = self.jobs.get_mut(job) {
                job.is_suspect = true;
            }
        }
        self.halve(&load);
        let was_batch = !load.batch.is_empty();
        if let Some(not_begun) = load.not_begun {
            self.lose_not_begun(turn, not_begun, was_alone, end);
        }
        if let Some(running) = load.running {
            self.lose_started(turn, running, end, !is_job_ended && !running.is_bystander && !was_batch);
        }
        for running in load.together {
            self.lose_started(turn, running, end, false);
        }
        if let Some(suspended) = load.suspended {
            self.lose_started(turn, suspended, end, false);
        }
        for (place, job) in load.waiting.into_iter().enumerate() {
            match place < load.doubtful {
                true => self.lose_in_doubt(turn, job, was_alone, end),
                false => self.give_back(turn, job, was_alone, end),
            }
        }
    }

    fn lose_started(&mut self, turn: &mut Turn<'_>, running: Running, end: &End, is_blamed: bool) {
        let id = running.job;
        let (code, what) = end.describe(self.config.hang_timeout);
        let lost = end.attempt(code, what, running.attempt, running.ran(turn.now), is_blamed);
        // An innocent job pays nothing for the lost run, whether it is tried again or ends.
        let charge = if is_blamed { Charge::ForTheRun } else { Charge::Nothing };
        self.charge(id, if is_blamed { running.ran(turn.now) } else { Duration::ZERO });
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.past.crashes += u32::from(is_blamed);
        job.past.progress = None;
        if job.past.was_together {
            job.past.lost_together += 1;
        }
        remember_lost(job, lost.clone());
        let crashes = job.past.crashes;
        if is_blamed {
            self.charge_worker(id);
            self.note_blame(turn, id, end);
        }
        let Some(job) = self.jobs.get(id) else { return };
        let allowed = self.attempts_allowed(job);
        let may_run_again = match is_blamed {
            true => crashes < allowed,
            false => allowed > 1 || self.is_lost_with_its_batch(job),
        };
        if may_run_again {
            self.drop_parts(turn, id);
            return self.try_again(id);
        }
        let mut error = match is_blamed {
            true => blame_error(&lost, crashes, allowed),
            false => lost_with_another(&lost),
        };
        // How many attempts there would be if nothing had been delivered.
        let otherwise = self.attempts_under(job, job.ran_under);
        if job.has_delivered() && otherwise > 1 && crashes < otherwise {
            error.message += "; it is not run again, because parts of its output were delivered";
        }
        let outcome = if allowed > 1 && is_blamed { OutcomeCode::Poison } else { error.code };
        let ending = Ending {
            outcome,
            error: Some(error),
            run: Some(running.ran(turn.now)),
            place: end.place,
            usage: used(end.usage),
            output_bytes: 0,
            charge,
        };
        self.finish(turn, id, ending);
    }

    /// Gives a job that was not started back to its queue. It is not to blame for the end of its worker.
    pub(super) fn give_back(&mut self, turn: &mut Turn<'_>, id: JobId, was_alone: bool, end: &End) {
        self.note_unstarted(id, end);
        let was_alone = was_alone && !self.excuse(id, end);
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.past.unstarted += u32::from(was_alone);
        let unstarted = job.past.unstarted;
        if was_alone && unstarted >= UNSTARTED_MAX {
            self.put_on_probation(turn.now, id, end);
        }
        if self.is_hopeless(id) {
            let message = format!(
                "{unstarted} workers in a row ended before they had started it, the last one with {}",
                end.exit
            );
            let error = outcome::error(OutcomeCode::Unavailable, message);
            return self.finish(turn, id, Ending::of(error));
        }
        self.try_again(id);
    }

    /// Whether the end of its worker says nothing of a job that was alone: the worker had done others, and there are some that end
    /// after each job, and take with them what they were given meanwhile. That is believed a few times, and not of a job on
    /// probation.
    fn excuse(&mut self, id: JobId, end: &End) -> bool {
        let has_done_others = end.was.is_some_and(|worker| worker.jobs_done > 0);
        let Some(job) = self.jobs.get_mut(id).filter(|_| has_done_others) else { return false };
        let is_excused = job.past.unstarted < UNSTARTED_MAX && job.past.excused < EXCUSED_MAX;
        if is_excused {
            job.past.excused += 1;
        }
        is_excused
    }

    /// Whether to give up, because no worker lives long enough to start this job.
    fn is_hopeless(&self, id: JobId) -> bool {
        let is_ending = matches!(self.phase, Phase::Draining { .. });
        let most = if is_ending { 1 } else { LATE_TESTS_MAX };
        self.jobs.get(id).is_some_and(|job| job.past.late_tests >= most)
    }

    /// Notes the lost attempt of a job that was never started, or may have been without its worker saying so. Its
    /// client pays nothing.
    pub(super) fn note_unstarted(&mut self, id: JobId, end: &End) {
        let lost = end.attempt(OutcomeCode::WorkerCrashed, end.exit.to_string(), 0, Duration::ZERO, false);
        self.charge(id, Duration::ZERO);
        if let Some(job) = self.jobs.get_mut(id) {
            remember_lost(job, lost);
        }
    }

    /// Puts a job on probation because no worker has lived to start it. That may be chance, but each attempt costs a
    /// worker that others could use. So the job goes behind all that was there before this attempt; otherwise it
    /// would be first for each new worker and nothing else would be done. And its client pays for the worker, whoever
    /// is to blame; otherwise it would stay the first client.
    fn put_on_probation(&mut self, now: Mono, id: JobId, end: &End) {
        self.charge_worker(id);
        if let Some(job) = self.jobs.get_mut(id) {
            job.past.put_back_at = Some(now);
        }
        // Probation belongs to the program of that worker. The worker's end may have made the program cease to offer
        // the task.
        if let Some(place) = end.place {
            let program = self.slots[place.slot].program;
            let probation = &mut self.programs[program].probation;
            probation.failed(now, id, &self.config, &mut self.rng);
            let is_late = probation.is_slowest(&self.config);
            if let Some(job) = self.jobs.get_mut(id) {
                job.past.late_tests += u32::from(is_late);
            }
        }
    }

    /// The job waits again, in its old place. What its client was charged for the lost attempt stays charged.
    pub(super) fn try_again(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.charged = 0;
        }
        self.enqueue(id);
    }

    /// The time limit of an attempt has passed: the attempt is lost. Its job is blamed if it was the one that ran.
    pub(super) fn lose_to_time(&mut self, now: Mono, slot: SlotIndex, id: JobId, what: String) {
        let Some(load) = self.slots[slot].load() else { return };
        let Some(&started) = load.started(id) else { return };
        let is_for_another =
            matches!(self.slots[slot].state, SlotState::Leaving { cause: Cause::JobEnded, .. });
        let is_blamed = load.answerable(id).is_some() && !is_for_another && !started.is_bystander;
        let was = self.slots[slot].worker_mut().copied();
        let place = was.and_then(|worker| self.place(worker.id));
        // How the process will end is not known yet, and will say nothing about the job.
        let end = End { cause: None, exit: Exit::Unknown, place, was, last_lines: Vec::new(), usage: None };
        let lost = end.attempt(OutcomeCode::Timeout, what, started.attempt, started.ran(now), is_blamed);
        if let Some(job) = self.jobs.get_mut(id) {
            remember_lost(job, lost);
        }
    }
}

/// Remembers a lost attempt: the first one and the last ones are kept ([`LOST_ATTEMPTS_KEPT`]), with all their last
/// lines only for the latest ([`LAST_LINES_KEPT`]). A job may have a hundred attempts, and there may be many such
/// jobs.
fn remember_lost(job: &mut Job, lost: LostAttempt) {
    if job.past.lost.len() >= LOST_ATTEMPTS_KEPT {
        job.past.lost.remove(1);
    }
    job.past.lost.push(lost);
    let old = job.past.lost.len().saturating_sub(LAST_LINES_KEPT);
    job.past.lost.iter_mut().take(old).for_each(|lost| lost.last_lines.truncate(1));
}

/// The error of a job that is given up after this many attempts that ended their workers.
fn blame_error(lost: &LostAttempt, attempts: u32, allowed: u32) -> ErrorDetail {
    let mut message = format!("{} in attempt {attempts} of {}", lost.what, allowed.max(attempts));
    if let Some(how) = broken_promise(lost) {
        message = format!("{message}; its worker printed: {BROKEN_PROMISE}{how}");
    }
    let (signal, exit_code) = (lost.exit.signal(), lost.exit.code());
    ErrorDetail { signal, exit_code, ..outcome::error(lost.code, cut(&message, MESSAGE_MAX)) }
}

/// How the program broke its promises, if the worker that stood in front of it ended for that and said so. The exit code alone
/// tells nobody, and a program may have the same one.
fn broken_promise(lost: &LostAttempt) -> Option<&str> {
    let is_why = lost.code == OutcomeCode::WorkerCrashed && lost.exit == Exit::Code(EXIT_BROKEN_PROMISE);
    let mut said = lost.last_lines.iter().rev().filter(|_| is_why);
    said.find_map(|line| line.split_once(BROKEN_PROMISE)).map(|(_, how)| how)
}

/// The error of a job that ran, is innocent, and must not run again.
fn lost_with_another(lost: &LostAttempt) -> ErrorDetail {
    let why = "its worker ended while the job ran; the job is not blamed for that, and must not be run twice";
    outcome::error(OutcomeCode::Indeterminate, format!("{why}; {}", lost.what))
}

fn used(usage: Option<ExitUsage>) -> Usage {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    usage.map_or(Usage::default(), |usage| Usage {
        cpu_user_us: micros(usage.cpu_user),
        cpu_system_us: micros(usage.cpu_system),
        peak_rss_bytes: usage.peak_rss_bytes,
    })
}
