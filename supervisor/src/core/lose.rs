//! The jobs of a worker that has ended: whoever ran dies with it or is tried again, the others never began.
//!
//! Blame is exact, because Started comes before a task sees its first byte: it is the job that ran. One that was
//! suspended while another ran between its steps, and one whose worker was ended because of another job, is innocent.

use super::action::{Actions, LostAttempt};
use super::ids::{JobId, Mono, Place};
use super::jobs::Job;
use super::outcome::{self, human};
use super::sabotage::Bug;
use super::slots::{Cause, Load, Running, Worker};
use super::{Core, Ending};
use crate::exit::{Exit, ExitUsage};
use crate::limits::{LAST_LINES_KEPT, LOST_ATTEMPTS_KEPT, RETURNS_MAX};
use offload_protocol::nouns::{ErrorDetail, OutcomeCode, Usage};
use std::time::Duration;

/// What is known of the end of a worker.
pub(super) struct End {
    pub(super) cause: Option<Cause>,
    pub(super) exit: Exit,
    pub(super) place: Option<Place>,
    pub(super) was: Option<Worker>,
    pub(super) last_lines: Vec<String>,
    pub(super) usage: Option<ExitUsage>,
}

impl End {
    /// In one word and in a sentence.
    fn told(&self, hang_timeout: Duration) -> (OutcomeCode, String) {
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
            Some(Cause::Hung) => {
                (OutcomeCode::Timeout, "did not say how far it was, as it promised,".to_owned())
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
    pub(super) fn lose(&mut self, now: Mono, load: Load, end: &End, actions: &mut Actions) {
        // The job that somebody wanted ended is gone already; what is left did nothing wrong.
        let is_job_ended = end.cause == Some(Cause::JobEnded);
        if let Some(running) = load.running {
            self.lose_started(now, running, end, !is_job_ended, actions);
        }
        if let Some(suspended) = load.suspended {
            self.lose_started(now, suspended, end, self.sabotage.is(Bug::SuspendedBlamed), actions);
        }
        for job in load.waiting {
            self.give_back(now, job, end, actions);
        }
    }

    fn lose_started(
        &mut self,
        now: Mono,
        running: Running,
        end: &End,
        is_blamed: bool,
        actions: &mut Actions,
    ) {
        let id = running.job;
        let (code, what) = end.told(self.config.hang_timeout);
        let lost = end.attempt(code, what, running.attempt, running.ran(now), is_blamed);
        self.charge(id, running.ran(now));
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.crashes += u32::from(is_blamed);
        job.returns += u32::from(!is_blamed);
        job.progress = None;
        remember(job, lost.clone());
        let (crashes, returns) = (job.crashes, job.returns);
        let Some(job) = self.jobs.get(id) else { return };
        let allowed = self.attempts_allowed(job);
        let may_run_again = if is_blamed {
            crashes < allowed + u32::from(self.sabotage.is(Bug::AttemptTooMany))
        } else {
            allowed > 1 && returns < RETURNS_MAX
        };
        if may_run_again {
            return self.try_again(id);
        }
        let error = error_of(&lost, crashes, allowed, is_blamed);
        let outcome = if allowed > 1 && is_blamed { OutcomeCode::Poison } else { code };
        let ending = Ending {
            outcome,
            error: Some(error),
            run: Some(running.ran(now)),
            place: end.place,
            usage: used(end.usage),
        };
        self.finish(now, id, ending, actions);
    }

    fn give_back(&mut self, now: Mono, id: JobId, end: &End, actions: &mut Actions) {
        let lost = end.attempt(OutcomeCode::WorkerCrashed, end.exit.to_string(), 0, Duration::ZERO, false);
        // It never began: its client pays nothing.
        self.charge(id, Duration::ZERO);
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.returns += u32::from(!self.sabotage.is(Bug::ReturnsNotCounted));
        remember(job, lost);
        let returns = job.returns;
        if returns < RETURNS_MAX {
            return self.try_again(id);
        }
        let message =
            format!("{RETURNS_MAX} workers ended before they started it, the last with {}", end.exit);
        self.finish(now, id, Ending::of(outcome::error(OutcomeCode::WorkerCrashed, message)), actions);
    }

    /// The job waits again, in its old place. What its client paid for the attempt stays paid.
    fn try_again(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.charged = 0;
        }
        if !self.sabotage.is(Bug::RequeueLost) {
            self.enqueue(id);
        }
    }
}

/// Keeps the first lost attempt and the last ones, and what the process printed only of the last ones: a job may have a
/// hundred attempts, and there may be many such jobs.
fn remember(job: &mut Job, lost: LostAttempt) {
    if job.lost.len() >= LOST_ATTEMPTS_KEPT {
        job.lost.remove(1);
    }
    job.lost.push(lost);
    let old = job.lost.len().saturating_sub(LAST_LINES_KEPT);
    job.lost.iter_mut().take(old).for_each(|lost| lost.last_lines.truncate(1));
}

/// The error of a job that is given up.
fn error_of(lost: &LostAttempt, attempts: u32, allowed: u32, is_blamed: bool) -> ErrorDetail {
    let message = match is_blamed {
        true => format!("{} in attempt {attempts} of {allowed}", lost.what),
        false => format!("{} because of another job of that worker", lost.what),
    };
    let (signal, exit_code) = (lost.exit.signal(), lost.exit.code());
    ErrorDetail { signal, exit_code, ..outcome::error(lost.code, message) }
}

fn used(usage: Option<ExitUsage>) -> Usage {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    usage.map_or(Usage::default(), |usage| Usage {
        cpu_user_us: micros(usage.cpu_user),
        cpu_system_us: micros(usage.cpu_system),
        peak_rss_bytes: usage.peak_rss_bytes,
    })
}
