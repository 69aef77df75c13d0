//! A circuit breaker for each program: it decides when the program may be started again after a failed start, and
//! whether its jobs are refused until then.
//!
//! ```text
//!               a start fails                 max_restarts failures in a row
//!   Closed ----------------------> BackingOff ------------------------------> Open
//!     ^                             |      ^   (or max_silent_starts, of a     | |
//!     |   a worker that was started |      |    program that never said hello) | |
//!     |   since has done a job      |      '-------- a worker says hello ------' |
//!     '-----------------------------'--------------------------------------------'
//!
//!   any state --- a failure that no retry can mend ---> Broken --- a worker says hello ---> BackingOff,
//!                                                         or Closed if a job has been done since the last failure
//!
//!   Closed       jobs are accepted     any number of starts at a time
//!   BackingOff   jobs are accepted     one start at a time; each pause is twice as long as the one before, and up to a
//!                                      quarter longer at random
//!   Open         jobs are refused      one start at a time, after a pause of backoff_max
//!   Broken       jobs are refused      no more starts
//! ```
//!
//! While a start is tried in `Open`, the breaker is what others call half-open. A hello closes it for jobs, but the
//! failures stay counted until a job is done. So one more failure opens it again.
//!
//! If every failure in a row is a worker that ended with jobs which it had not started, these jobs may be the reason.
//! Then only the jobs of their clients are refused while the breaker is open. What closes it is the same: a hello lets
//! these clients' jobs in again, and a job that a worker started since has done, whoever's it is, forgets the failures.
//!
//! SIGKILL from outside is not the program's fault, and is excused up to `DEATHS_EXCUSED` times in a row.
//!
//! For the scheme see M. Nygard, "Release It!". Unlike OTP's restart intensity, it never gives a slot up for good.

use super::config::CoreConfig;
use super::ids::{Mono, WorkerId};
use super::rng::Rng;
use crate::limits::{DEATHS_EXCUSED, SUSPECTS_MAX};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The circuit breaker of one program.
#[derive(Clone, Debug, Default)]
pub struct Restarts {
    breaker: Breaker,
    /// When a start last failed in a way that a retry may mend.
    failed_at: Mono,
    has_said_hello: bool,
    has_proved_good: bool,
    /// Workers whose end was excused since a job was last done.
    excused: u32,
}

/// The states in the picture at the top of this file.
#[derive(Clone, Debug, Default)]
enum Breaker {
    #[default]
    Closed,
    BackingOff(Failures),
    Open(Failures),
    Broken(Failures),
}

/// Failed starts in a row. The count is 0 only if a worker has done a job after the program became `Broken`.
#[derive(Clone, Debug, Default)]
struct Failures {
    count: u32,
    /// The newest worker that had been ordered when a failure was last counted.
    counted_up_to: Option<WorkerId>,
    /// When the next start may be tried.
    not_before: Mono,
    /// Who may be the reason.
    suspects: Suspects,
    /// Why the last start failed, in words for people.
    why: String,
}

/// One start that failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure<'a> {
    /// Why it failed, in words for people.
    pub(super) why: &'a str,
    /// Who may be the reason.
    pub(super) suspects: &'a Suspects,
    /// The worker that failed.
    pub(super) worker: WorkerId,
    /// The newest worker that had been ordered when this one failed.
    pub(super) newest: WorkerId,
}

/// Who may be the reason that workers end before they have done anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Suspects {
    /// These clients: the workers had their jobs.
    Clients(BTreeSet<Arc<str>>),
    /// The program.
    Program,
}

impl Default for Suspects {
    fn default() -> Suspects {
        Suspects::Clients(BTreeSet::new())
    }
}

impl Suspects {
    fn add(&mut self, others: &Suspects) {
        let (Suspects::Clients(clients), Suspects::Clients(more)) = (&mut *self, others) else {
            return *self = Suspects::Program;
        };
        // The list is bounded, and a client that does not fit in is not refused: nobody may be refused because of
        // others.
        let room = SUSPECTS_MAX.saturating_sub(clients.len());
        let new: Vec<_> = more.difference(clients).take(room).cloned().collect();
        clients.extend(new);
    }

    fn has(&self, client: &str) -> bool {
        match self {
            Suspects::Clients(clients) => clients.contains(client),
            Suspects::Program => true,
        }
    }
}

impl Breaker {
    fn failures(&self) -> Option<&Failures> {
        match self {
            Breaker::Closed => None,
            Breaker::BackingOff(failures) | Breaker::Open(failures) | Breaker::Broken(failures) => {
                Some(failures)
            }
        }
    }

    fn into_failures(self) -> Failures {
        match self {
            Breaker::Closed => Failures::default(),
            Breaker::BackingOff(failures) | Breaker::Open(failures) | Breaker::Broken(failures) => failures,
        }
    }
}

impl Failures {
    /// Notes a failure. False if it is not counted: a worker that was ordered before the last counted failure says
    /// nothing new. Usually such workers were ordered together, and fail together.
    fn add(&mut self, failure: Failure<'_>) -> bool {
        failure.why.clone_into(&mut self.why);
        self.suspects.add(failure.suspects);
        let is_new = self.counted_up_to.is_none_or(|counted| failure.worker > counted);
        if is_new {
            self.counted_up_to = Some(failure.newest);
            self.count = self.count.saturating_add(1);
        }
        is_new
    }
}

impl Restarts {
    /// The start of a worker failed. Returns the pause before the next one. After `failures_max` failures in a row,
    /// jobs are refused.
    pub(super) fn failed(
        &mut self,
        now: Mono,
        failure: Failure<'_>,
        failures_max: u32,
        config: &CoreConfig,
        rng: &mut Rng,
    ) -> Duration {
        self.failed_at = now;
        let was_broken = matches!(self.breaker, Breaker::Broken(_));
        let was_open = matches!(self.breaker, Breaker::Open(_));
        let mut failures = std::mem::take(&mut self.breaker).into_failures();
        let is_counted = failures.add(failure);
        let is_open = was_open || failures.count >= failures_max;
        if is_counted {
            let pause = if is_open { config.backoff_max } else { backoff(failures.count, config) };
            failures.not_before = now + rng.stretched_time(pause);
        }
        let again_in = failures.not_before - now;
        self.breaker = match (was_broken, is_open) {
            (true, _) => Breaker::Broken(failures),
            (false, true) => Breaker::Open(failures),
            (false, false) => Breaker::BackingOff(failures),
        };
        again_in
    }

    /// A start failed in a way that no retry can mend.
    pub fn broke(&mut self, why: &str) {
        let mut failures = std::mem::take(&mut self.breaker).into_failures();
        failures.count = failures.count.saturating_add(1);
        why.clone_into(&mut failures.why);
        self.breaker = Breaker::Broken(failures);
    }

    /// A worker said hello. True if that ends a time in which jobs were refused.
    pub fn said_hello(&mut self) -> bool {
        let was_refusing = self.is_refusing();
        self.has_said_hello = true;
        self.breaker = match std::mem::take(&mut self.breaker) {
            Breaker::Broken(failures) if failures.count == 0 => Breaker::Closed,
            Breaker::Open(failures) | Breaker::Broken(failures) => Breaker::BackingOff(failures),
            breaker @ (Breaker::Closed | Breaker::BackingOff(_)) => breaker,
        };
        was_refusing
    }

    /// Another version of the program is there: what is known of the old one is of no use.
    pub fn forget(&mut self) {
        *self = Restarts::default();
    }

    /// A new version of the program has proved itself: what failed before was the old one.
    pub(super) fn passed_trial(&mut self) {
        self.breaker = Breaker::Closed;
        self.excused = 0;
    }

    /// A worker has done a job; `ready_at` is when it said hello. If it came after the last failure, the failures are
    /// forgotten. An older worker says nothing about whether new ones can be started.
    pub fn proved_good(&mut self, ready_at: Mono) {
        self.has_proved_good = true;
        self.excused = 0;
        if ready_at < self.failed_at {
            return;
        }
        self.breaker = match std::mem::take(&mut self.breaker) {
            // Only a hello mends a broken program.
            Breaker::Broken(failures) => {
                Breaker::Broken(Failures { why: failures.why, ..Failures::default() })
            }
            Breaker::Closed | Breaker::BackingOff(_) | Breaker::Open(_) => Breaker::Closed,
        };
    }

    /// Whether the end of a worker is excused. Called for a worker that had done nothing yet and was ended with
    /// SIGKILL from outside (by a person, or by the kernel for lack of memory), or that ended after it was given a
    /// job, which may be that job's doing. After [`DEATHS_EXCUSED`] excuses without a job done, false.
    pub(super) fn excuses_death(&mut self) -> bool {
        self.excused = self.excused.saturating_add(1);
        self.excused <= DEATHS_EXCUSED
    }

    /// Whether any worker of this program has ever said hello.
    pub(super) fn has_said_hello(&self) -> bool {
        self.has_said_hello
    }

    /// Whether any worker of this program has ever done a job.
    pub fn has_proved_good(&self) -> bool {
        self.has_proved_good
    }

    /// How many starts have failed in a row.
    pub fn failures(&self) -> u32 {
        self.breaker.failures().map_or(0, |failures| failures.count)
    }

    /// Whether jobs are refused, at least those of some clients, because no worker can be had.
    pub fn is_refusing(&self) -> bool {
        matches!(self.breaker, Breaker::Open(_) | Breaker::Broken(_))
    }

    /// Whether the jobs of this client are refused because no worker can be had.
    pub fn is_refusing_for(&self, client: &str) -> bool {
        match &self.breaker {
            Breaker::Closed | Breaker::BackingOff(_) => false,
            Breaker::Open(failures) => failures.suspects.has(client),
            Breaker::Broken(_) => true,
        }
    }

    /// Why the last start failed, in words for people; empty if the breaker is closed.
    pub fn why(&self) -> &str {
        self.breaker.failures().map_or("", |failures| &failures.why)
    }

    /// Whether a start may be tried now, while `starting` others are under way.
    pub fn may_start(&self, now: Mono, starting: usize) -> bool {
        match &self.breaker {
            Breaker::Closed => true,
            Breaker::BackingOff(failures) | Breaker::Open(failures) => {
                starting == 0 && now >= failures.not_before
            }
            Breaker::Broken(_) => false,
        }
    }

    /// When the next start may be tried; `None` if that does not depend on time.
    pub fn next_start(&self) -> Option<Mono> {
        match &self.breaker {
            Breaker::BackingOff(failures) | Breaker::Open(failures) => Some(failures.not_before),
            Breaker::Closed | Breaker::Broken(_) => None,
        }
    }
}

/// The pause after this many failures in a row, without jitter.
pub(super) fn backoff(failures: u32, config: &CoreConfig) -> Duration {
    let doublings = failures.saturating_sub(1).min(30);
    config.backoff_min.saturating_mul(1 << doublings).min(config.backoff_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(worker: WorkerId, newest: WorkerId, suspects: &Suspects) -> Failure<'_> {
        Failure { why: "x", suspects, worker, newest }
    }

    /// Fails this many times, each time as soon as the next start is allowed. Returns the pauses in milliseconds.
    fn fail(restarts: &mut Restarts, times: usize, config: &CoreConfig) -> Vec<u128> {
        let mut fail = || {
            let now = restarts.next_start().unwrap_or_default();
            let worker = WorkerId(u64::from(restarts.failures()) + 1);
            let failure = failure(worker, worker, &Suspects::Program);
            restarts.failed(now, failure, config.max_restarts, config, &mut Rng::new(1)).as_millis()
        };
        (0..times).map(|_| fail()).collect()
    }

    /// Asserts that each pause is the expected one, or up to a quarter more.
    fn assert_waits(waits: &[u128], expected: &[u128]) {
        let fits = |(wait, expected): (&u128, &u128)| (*expected..=*expected * 5 / 4).contains(wait);
        assert!(waits.len() == expected.len() && waits.iter().zip(expected).all(fits), "{waits:?}");
    }

    #[test]
    fn the_wait_doubles_up_to_its_limit() {
        let config = CoreConfig::default();
        let config = CoreConfig { max_restarts: 8, ..config };
        let waits = fail(&mut Restarts::default(), 9, &config);
        assert_waits(&waits, &[100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
    }

    #[test]
    fn once_it_is_open_it_waits_as_long_as_it_may() {
        let waits = fail(&mut Restarts::default(), 6, &CoreConfig::default());
        assert_waits(&waits, &[100, 200, 400, 800, 5000, 5000]);
    }

    #[test]
    fn workers_that_were_ordered_together_are_one_failure() {
        let config = CoreConfig::default();
        let mut restarts = Restarts::default();
        for worker in 1..=8 {
            let now = Mono::default() + Duration::from_secs(worker);
            let failure = failure(WorkerId(worker), WorkerId(8), &Suspects::Program);
            restarts.failed(now, failure, 5, &config, &mut Rng::new(1));
        }
        assert_eq!(restarts.failures(), 1);
    }

    #[test]
    fn the_breaker_opens_after_max_restarts_failures_and_a_hello_closes_it_but_does_not_forget_them() {
        let config = CoreConfig::default();
        let mut restarts = Restarts::default();
        fail(&mut restarts, 4, &config);
        assert!(!restarts.is_refusing());
        fail(&mut restarts, 1, &config);
        assert!(restarts.is_refusing());
        assert!(restarts.said_hello());
        assert!(!restarts.is_refusing());
        fail(&mut restarts, 1, &config);
        assert!(restarts.is_refusing(), "one more failure opens it again");
        restarts.proved_good(Mono::default());
        assert!(!restarts.may_start(Mono::default(), 5), "that worker is older than the failures");
        restarts.proved_good(restarts.next_start().unwrap_or_default());
        assert!(restarts.may_start(Mono::default(), 5));
    }

    #[test]
    fn a_job_done_forgets_the_failures_but_only_a_hello_mends_a_broken_program() {
        let config = CoreConfig::default();
        let mut restarts = Restarts::default();
        restarts.broke("no such file");
        restarts.proved_good(Mono::default());
        assert!(restarts.is_refusing() && restarts.is_refusing_for("anybody"));
        assert_eq!((restarts.failures(), restarts.why()), (0, "no such file"));
        fail(&mut restarts, 1, &config);
        assert!(!restarts.may_start(Mono::default() + config.backoff_max, 0), "no pause is long enough");
        assert!(restarts.said_hello());
        assert!(!restarts.may_start(Mono::default(), 0), "the failure since then still counts");
    }

    #[test]
    fn however_many_clients_have_jobs_that_end_workers_no_other_one_is_refused() {
        let config = CoreConfig::default();
        let mut restarts = Restarts::default();
        for number in 1..=200 {
            let suspects = Suspects::Clients(BTreeSet::from([Arc::from(format!("guilty {number}"))]));
            let (worker, now) = (WorkerId(number), restarts.next_start().unwrap_or_default());
            let failure = failure(worker, worker, &suspects);
            restarts.failed(now, failure, 5, &config, &mut Rng::new(1));
        }
        assert!(restarts.is_refusing() && restarts.is_refusing_for("guilty 1"));
        assert!(!restarts.is_refusing_for("innocent"));
    }

    #[test]
    fn a_failing_program_is_started_one_at_a_time() {
        let config = CoreConfig::default();
        let mut restarts = Restarts::default();
        fail(&mut restarts, 1, &config);
        let later = Mono::default() + config.backoff_min * 2;
        assert!(!restarts.may_start(Mono::default(), 0));
        assert!(restarts.may_start(later, 0));
        assert!(!restarts.may_start(later, 1));
    }
}
