//! When a program may be started again after it failed to start.
//!
//! ```text
//!   good --- a start fails ---> failing: one start at a time, the wait doubles (and up to a quarter more, by chance)
//!    ^                             |
//!    | a worker that was started   | max_restarts failures in a row
//!    | since has done a job        v    (or max_silent_starts, of a program that never said hello)
//!    '------------------------- open: jobs are refused; one probe every backoff_max; a hello closes it
//!
//!   any --- a failure that no retry can mend ---> broken: jobs are refused, no more starts
//! ```
//!
//! If all that failed in a row are workers that ended with jobs which they had not started, it may be the doing of these
//! jobs. Then only the jobs of their clients are refused; if those of others are done, the program is good.
//!
//! SIGKILL from outside is not the program's doing, and is excused a number of times.
//!
//! The scheme is that of a circuit breaker with exponential backoff (M. Nygard, "Release It!"); unlike a restart
//! intensity as in OTP it never gives a slot up.

use super::config::CoreConfig;
use super::ids::{Mono, WorkerId};
use super::rng::Rng;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// So many clients are remembered whose jobs may be the reason of failures.
const SUSPECTS_MAX: usize = 64;

/// So many workers in a row may end for no reason of their own before that counts as failing.
const DEATHS_EXCUSED: u32 = 20;

/// See the module's documentation. One for each program.
#[derive(Clone, Debug, Default)]
pub struct Restarts {
    failures: u32,
    failed_at: Mono,
    /// The newest worker at the last failure that was counted.
    counted_up_to: Option<WorkerId>,
    not_before: Mono,
    open: bool,
    broken: bool,
    has_said_hello: bool,
    has_proved_good: bool,
    /// Whose doing the failures in this row may be.
    suspects: Suspects,
    /// Workers that ended for no reason of their own since a job was done.
    excused: u32,
    why: String,
}

/// Whose doing it may be that workers end before they have done anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Suspects {
    /// That of these clients, whose jobs they had.
    Clients(BTreeSet<Arc<str>>),
    /// The program's.
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
        // However many they are, nobody else is to be refused because of them: who does not fit in is still tried.
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

impl Restarts {
    /// The start of a worker failed, when `newest` was the last one that had been ordered; the next one may be tried
    /// after the duration that is returned. Jobs are refused once so many in a row have failed.
    pub(super) fn failed(
        &mut self,
        (why, suspects): (&str, &Suspects),
        failures_max: u32,
        (worker, newest): (WorkerId, WorkerId),
        now: Mono,
        config: &CoreConfig,
        rng: &mut Rng,
    ) -> Duration {
        self.why = why.to_owned();
        self.failed_at = now;
        self.suspects.add(suspects);
        // What a worker does that was ordered before the last failure that was counted says nothing new: usually they
        // were ordered together, and fail together.
        if self.failures > 0 && self.counted_up_to.is_some_and(|counted| worker <= counted) {
            self.open |= self.failures >= failures_max;
            return self.not_before - now;
        }
        self.counted_up_to = Some(newest);
        self.failures = self.failures.saturating_add(1);
        self.open |= self.failures >= failures_max;
        let wait = if self.open { config.backoff_max } else { backoff(self.failures, config) };
        let wait = rng.stretched_time(wait);
        self.not_before = now + wait;
        wait
    }

    /// A start failed in a way that no retry can mend.
    pub fn broke(&mut self, why: &str) {
        self.failures = self.failures.saturating_add(1);
        self.why = why.to_owned();
        self.broken = true;
    }

    /// A worker said hello. True if that ends a time of refusal.
    pub fn said_hello(&mut self) -> bool {
        let was_refusing = self.is_refusing();
        self.has_said_hello = true;
        self.open = false;
        self.broken = false;
        was_refusing
    }

    /// Another version of the program is there: what is known of the old one is of no use.
    pub fn forget(&mut self) {
        *self = Restarts::default();
    }

    /// A worker that was ready at that moment has done a job. If it came after the last failure, the past is forgotten;
    /// that an older one is well says nothing about whether others can be started.
    pub fn proved_good(&mut self, ready_at: Mono) {
        self.has_proved_good = true;
        self.excused = 0;
        if ready_at < self.failed_at {
            return;
        }
        self.failures = 0;
        self.suspects = Suspects::default();
        self.open = false;
        self.not_before = Mono::default();
    }

    /// A worker that was starting, or had done nothing yet, was ended with SIGKILL from outside, by a person or by the
    /// kernel for want of memory; or it ended when it was given a job, which may be that job's doing. True if that is
    /// excused. It is not when it goes on like this without a job done.
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

    /// Failed starts in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether no worker can be had for now.
    pub fn is_refusing(&self) -> bool {
        self.open || self.broken
    }

    /// The same for the jobs of this client.
    pub fn is_refusing_for(&self, client: &str) -> bool {
        self.broken || (self.open && self.suspects.has(client))
    }

    /// Why, for people.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Whether a start may be tried now, with `starting` of them under way.
    pub fn may_start(&self, now: Mono, starting: usize) -> bool {
        !self.broken && (self.failures == 0 || (starting == 0 && now >= self.not_before))
    }

    /// When the next start may be tried; none if that does not depend on time.
    pub fn next_start(&self) -> Option<Mono> {
        (self.failures > 0 && !self.broken).then_some(self.not_before)
    }
}

/// The pause after so many failures in a row.
pub(super) fn backoff(failures: u32, config: &CoreConfig) -> Duration {
    let doublings = failures.saturating_sub(1).min(30);
    config.backoff_min.saturating_mul(1 << doublings).min(config.backoff_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many failures, each as soon as it may come. Returns the waits in milliseconds.
    fn fail(restarts: &mut Restarts, times: usize, config: &CoreConfig) -> Vec<u128> {
        let mut fail = || {
            let worker = WorkerId(restarts.counted_up_to.map_or(0, |worker| worker.0) + 1);
            let (most, now) = (config.max_restarts, restarts.not_before);
            restarts
                .failed(("x", &Suspects::Program), most, (worker, worker), now, config, &mut Rng::new(1))
                .as_millis()
        };
        (0..times).map(|_| fail()).collect()
    }

    /// Each wait is the one that is expected, or up to a quarter more.
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
            restarts.failed(
                ("x", &Suspects::Program),
                5,
                (WorkerId(worker), WorkerId(8)),
                now,
                &config,
                &mut Rng::new(1),
            );
        }
        assert_eq!(restarts.failures(), 1);
    }

    #[test]
    fn it_opens_after_so_many_failures_and_a_hello_closes_it_but_forgets_nothing() {
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
        restarts.proved_good(restarts.not_before);
        assert!(restarts.may_start(Mono::default(), 5));
    }

    #[test]
    fn however_many_clients_have_jobs_that_end_workers_no_other_one_is_refused() {
        let config = CoreConfig::default();
        let mut restarts = Restarts::default();
        for number in 1..=200 {
            let suspects = Suspects::Clients(BTreeSet::from([Arc::from(format!("guilty {number}"))]));
            let (worker, now) = (WorkerId(number), restarts.not_before);
            restarts.failed(("x", &suspects), 5, (worker, worker), now, &config, &mut Rng::new(1));
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
