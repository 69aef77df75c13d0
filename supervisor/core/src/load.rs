//! The jobs that one worker has.
//!
//! ```text
//!   waiting (given, not started) ---> running ---> answered
//!                                    |  |  ^
//!      not begun <--- taken back ----'  |  |
//!                another one is started |  | that one has ended
//!                between two steps      v  |
//!                                     suspended: its clocks stand still
//! ```
//!
//! How long a job ran is what its worker says, as far as that is possible. The start and the end of a short job are often
//! heard of together, so the time between the two says nothing. What is known is when a job was given, and that a worker
//! runs one job after another: a job cannot have begun before the one before it had ended. So what a worker says of all
//! its jobs is never more than the time that has passed, and an honest worker is never corrected.

use super::ids::{JobId, Mono};
use super::jobs::RanUnder;
use super::parts::Credit;
pub use super::trays::InTray;
use super::waiting::PaidWorker;
use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

/// The jobs that one worker has.
#[derive(Debug, Default)]
pub struct Load {
    /// The attempt that runs.
    pub running: Option<Running>,
    /// The other attempts that run together with it (`batches.rs`), in the order in which they were given.
    pub together: Vec<Running>,
    /// The jobs that were given together, with the numbers of their attempts; none if they were not. Some may have ended.
    pub batch: Vec<(JobId, u32)>,
    /// By when the worker must have answered those of the batch that nobody wants any more, because they were cancelled or late.
    pub return_by: Option<Mono>,
    /// The attempt in steps that is suspended, and goes on when `running` has ended.
    pub suspended: Option<Running>,
    /// Jobs that were given to the worker and not started, in the order in which it has to start them.
    pub waiting: VecDeque<JobId>,
    /// The only one of them, while it may lie in the worker's tray (`trays.rs`).
    pub tray: Option<InTray>,
    /// The worker has taken its next job out of the tray, which it does between two jobs. So the answer to the one that runs is
    /// on its way, or the worker does what it must not.
    pub is_answer_due: bool,
    /// The job that ran, if the worker has taken back that it started it (`behind.rs`).
    pub not_begun: Option<NotBegun>,
    /// How many of the waiting ones, counted from the first, are in doubt: a worker that has to end may have begun them
    /// (`doubt.rs`).
    pub doubtful: usize,
    /// The worker cannot have begun its next job before this.
    pub free_since: Mono,
    /// When the last answer was heard.
    pub(super) answered_at: Mono,
    /// The job because of which the worker has to end. It is not among these any more, and its answer may be on the way.
    pub ended: Option<JobId>,
    /// The number of `Core::tiny_changes` at which all of these jobs were found to be tiny; 0 if they were not.
    pub(super) tiny_as_of: Cell<u64>,
}

/// One attempt that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// The job.
    pub job: JobId,
    /// The number of the attempt.
    pub attempt: u32,
    /// When it started, as far as it was heard of.
    pub started_at: Mono,
    /// It cannot have begun before this.
    pub earliest_start: Mono,
    /// When its time limit is reached.
    pub finish_by: Mono,
    /// When it last reported progress (or started), and how often it promised to report; `None` if it made no
    /// promise.
    pub progress_by: Option<(Mono, Duration)>,
    /// Other jobs may be started between its steps.
    pub lets_others_in: bool,
    /// Another job may lie in the worker's tray while this one runs.
    pub may_be_followed: bool,
    /// How many jobs were taken back from the worker's tray while it ran.
    pub taken_back: u32,
    /// It can be asked to yield.
    pub yields: bool,
    /// It was cancelled, and this client was charged for the worker in advance. The charge is given back if the
    /// worker lives.
    pub paid: Option<PaidWorker>,
    /// It was asked to yield.
    pub asked_to_yield: bool,
    /// Since when it is suspended.
    pub suspended_at: Option<Mono>,
    /// How long it was suspended in total.
    pub stood_still: Duration,
    /// How many bytes of parts of its output may come.
    pub credit: Credit,
    /// Its worker had been told to end before this attempt began, or ends because of another job: the reason is not this attempt.
    pub is_bystander: bool,
    /// Its worker has begun another job while it had this one, or had one that it had begun.
    pub had_company: bool,
    /// Its worker has spoken of it since it started it: it has begun.
    pub has_begun: bool,
    /// What was known of the job before this start, in case that is taken back.
    pub(super) before: Starts,
}

/// A job whose worker has taken back that it started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotBegun {
    /// The job.
    pub job: JobId,
    /// The worker has spoken of it since, so it may have begun it after all.
    pub is_doubtful: bool,
    pub(super) before: Starts,
}

/// What was known of a job before it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Starts {
    pub(super) ran_under: RanUnder,
    pub(super) unstarted: u32,
    pub(super) late_tests: u32,
    /// It was under test, after so many tests of its program that failed.
    pub(super) test: Option<u32>,
}

impl Running {
    /// How long it ran, without the time for which it was suspended.
    pub fn ran(&self, now: Mono) -> Duration {
        let until = self.suspended_at.unwrap_or(now);
        (until - self.started_at).saturating_sub(self.stood_still)
    }

    /// How long it ran, if its worker says `run`: that, but no longer than it can have been.
    pub fn counted(&self, now: Mono, run: Duration) -> Duration {
        run.min(now - self.earliest_start)
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
    /// A load of one job that was not started.
    pub fn of(job: JobId) -> Load {
        Load { waiting: [job].into(), ..Load::default() }
    }

    /// How many jobs there are.
    pub fn len(&self) -> usize {
        let started = usize::from(self.running.is_some()) + usize::from(self.suspended.is_some());
        started + usize::from(self.not_begun.is_some()) + self.together.len() + self.waiting.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The job that runs.
    pub fn running_job(&self) -> Option<JobId> {
        self.running.map(|running| running.job)
    }

    /// The job that runs, or those that run together.
    pub(super) fn running_jobs(&self) -> Vec<JobId> {
        self.running.iter().chain(&self.together).map(|running| running.job).collect()
    }

    /// All jobs, started or not.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        let started = self.running.iter().chain(&self.together).chain(&self.suspended);
        let started = started.map(|running| running.job);
        started.chain(self.not_begun.map(|taken_back| taken_back.job)).chain(self.waiting.iter().copied())
    }

    /// The job that the worker may start now.
    pub fn next_to_start(&self) -> Option<JobId> {
        let may_start = match (&self.running, &self.suspended) {
            (None, _) => self.not_begun.is_none(),
            (Some(running), None) => running.lets_others_in,
            (Some(_), Some(_)) => false,
        };
        self.waiting.front().copied().filter(|_| may_start)
    }

    /// The worker has started the next job. The job that ran, if one did, is suspended.
    pub(super) fn start(&mut self, now: Mono, mut started: Running) {
        self.pop_waiting();
        started.had_company = self.running.is_some() || !self.batch.is_empty();
        if let Some(running) = &mut self.running {
            running.had_company = true;
        }
        if self.running.is_some() && !self.batch.is_empty() {
            started.earliest_start = started.earliest_start.max(self.free_since);
            return self.together.push(started);
        }
        let free_since = self.running.map_or(self.free_since, |running| running.earliest_start);
        started.earliest_start = started.earliest_start.max(free_since);
        let before = self.running.replace(started);
        self.suspended = self.suspended.or(before.map(|running| running.suspend(now)));
    }

    /// The running attempt, or one of those that run together, took this long.
    pub(super) fn note_run(&mut self, counted: Duration) {
        let Some(running) = self.running else { return };
        self.free_since = self.free_since.max(running.earliest_start + counted);
        if !self.batch.is_empty() {
            let rest = self.running.iter_mut().chain(&mut self.together);
            rest.for_each(|running| running.earliest_start = running.earliest_start + counted);
        }
        if let Some(suspended) = &mut self.suspended {
            suspended.earliest_start = suspended.earliest_start + counted;
        }
    }

    /// The running attempt was answered. Returns for how long it occupied the worker, since it was given or the last answer was heard.
    pub(super) fn note_answer(&mut self, now: Mono) -> Option<Duration> {
        let since = self.running?.earliest_start.max(self.answered_at);
        self.answered_at = now;
        Some(now - since)
    }

    /// Takes the running attempt out. The suspended one, if there is one, goes on.
    pub(super) fn take_running(&mut self, now: Mono) -> Option<Running> {
        let ended = self.running.take()?;
        self.is_answer_due = false;
        self.running = match self.together.is_empty() {
            true => self.suspended.take().map(|suspended| suspended.resume(now)),
            false => Some(self.together.remove(0)),
        };
        Some(ended)
    }

    /// The attempt at this job that may be answered now: the one that runs, or one of those that run together.
    pub(super) fn answerable(&self, job: JobId) -> Option<&Running> {
        self.running.iter().chain(&self.together).find(|running| running.job == job)
    }

    /// The attempt at this job, if it was started.
    pub(super) fn started(&self, job: JobId) -> Option<&Running> {
        self.running.iter().chain(&self.together).chain(&self.suspended).find(|running| running.job == job)
    }

    /// The attempt at this job, if it was started.
    pub(super) fn started_mut(&mut self, job: JobId) -> Option<&mut Running> {
        let mut started = self.running.iter_mut().chain(&mut self.together).chain(&mut self.suspended);
        started.find(|running| running.job == job)
    }

    /// The number of the attempt at this job, if it runs, and its worker cannot have run anything else since it started. A job that
    /// waits may have begun, unheard.
    pub fn attempt_alone(&self, job: JobId) -> Option<u32> {
        let running = self.running.filter(|running| running.job == job && !running.had_company)?;
        (self.len() == 1).then_some(running.attempt)
    }

    /// Takes the attempt at this job out, if it was started.
    pub(super) fn take_started(&mut self, now: Mono, job: JobId) -> Option<Running> {
        if self.running_job() == Some(job) {
            return self.take_running(now);
        }
        if let Some(place) = self.together.iter().position(|running| running.job == job) {
            return Some(self.together.remove(place));
        }
        self.suspended.take_if(|suspended| suspended.job == job)
    }

    /// The worker has to end because of this job, which is over.
    pub(super) fn end(&mut self, now: Mono, job: JobId) {
        self.take_started(now, job);
        self.ended = Some(job);
    }

    /// Whether the job was started.
    pub fn is_started(&self, job: JobId) -> bool {
        self.started(job).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    fn at(micros: u32) -> Mono {
        Mono::default() + US * micros
    }

    fn given_at(micros: u32, job: u64) -> Running {
        Running {
            job: JobId(job),
            attempt: 1,
            started_at: at(micros),
            earliest_start: at(micros),
            finish_by: at(u32::MAX),
            progress_by: None,
            lets_others_in: true,
            may_be_followed: false,
            taken_back: 0,
            yields: false,
            paid: None,
            asked_to_yield: false,
            suspended_at: None,
            stood_still: Duration::ZERO,
            credit: Credit::default(),
            is_bystander: false,
            had_company: false,
            has_begun: false,
            before: Starts::default(),
        }
    }

    /// Starts a job, has the worker say at `now` that it took `run`, and returns how long it counts.
    fn counted(load: &mut Load, now: Mono, started: Running, run: Duration) -> Duration {
        load.start(now, started);
        end(load, now, run)
    }

    fn end(load: &mut Load, now: Mono, run: Duration) -> Duration {
        let counted = load.running.map_or(Duration::MAX, |running| running.counted(now, run));
        load.note_run(counted);
        load.take_running(now);
        counted
    }

    #[test]
    fn what_an_honest_worker_says_counts_however_late_it_is_heard() {
        let mut load = Load::default();
        for job in 1..=4 {
            assert_eq!(counted(&mut load, at(100), given_at(0, job), 25 * US), 25 * US, "job {job}");
        }
        assert_eq!(counted(&mut load, at(200), given_at(100, 5), 90 * US), 90 * US);
    }

    #[test]
    fn all_jobs_of_a_worker_together_took_no_longer_than_the_time_that_has_passed() {
        let mut load = Load::default();
        assert_eq!(counted(&mut load, at(100), given_at(10, 1), 60 * US), 60 * US);
        assert_eq!(counted(&mut load, at(100), given_at(10, 2), 60 * US), 30 * US);
        assert_eq!(counted(&mut load, at(100), given_at(10, 3), 60 * US), Duration::ZERO);
    }

    #[test]
    fn a_job_is_alone_if_no_other_has_run_or_may_run_since_its_start() {
        let mut load = Load::of(JobId(1));
        assert_eq!(load.attempt_alone(JobId(1)), None, "it has not started");
        load.start(at(10), given_at(0, 1));
        assert_eq!((load.attempt_alone(JobId(1)), load.attempt_alone(JobId(2))), (Some(1), None));
        load.waiting.push_back(JobId(2));
        assert_eq!(load.attempt_alone(JobId(1)), None, "the other one may have begun");
        load.start(at(20), given_at(10, 2));
        assert_eq!(load.attempt_alone(JobId(2)), None, "the first one is suspended");
        load.take_running(at(20));
        assert_eq!(load.attempt_alone(JobId(1)), None, "the other one has run");
        load.take_running(at(30));
        load.start(at(30), given_at(30, 3));
        assert_eq!(load.attempt_alone(JobId(3)), Some(1));
    }

    #[test]
    fn the_last_job_of_a_batch_was_not_alone() {
        let mut load = Load { batch: vec![(JobId(1), 1), (JobId(2), 1)], ..Load::default() };
        load.start(at(10), given_at(0, 1));
        load.start(at(10), given_at(0, 2));
        assert_eq!((load.attempt_alone(JobId(1)), load.attempt_alone(JobId(2))), (None, None));
        load.take_running(at(20));
        assert_eq!((load.running_job(), load.attempt_alone(JobId(2))), (Some(JobId(2)), None));
    }

    #[test]
    fn a_job_does_not_count_the_time_of_those_between_its_steps() {
        let mut load = Load::default();
        load.start(at(10), given_at(0, 1));
        assert_eq!(counted(&mut load, at(100), given_at(20, 2), 70 * US), 70 * US);
        assert_eq!(end(&mut load, at(100), 90 * US), 30 * US);
    }
}
