//! Chaos itself: clients who know every right answer, somebody who ends workers at random, and the books in the end.
//!
//! ```text
//!   ready -> warm: what is held now -> [ faults -> whole again -> calm ] -> ... -> [ faults -> whole again -> calm ]
//!                                  -> no more faults, no more jobs: everything that is due has to come
//!                                       -> the books of the clients, of the supervisor and of the kernel are compared
//! ```
//!
//! What can be done without faults is measured between them, again and again, because a machine is not equally fast
//! from one minute to the next.

use super::client::{self, Ledger, Work};
use super::killer::{Deeds, HELD_UP, Habits, Killer};
use super::prober::{Prober, percentile};
use super::process::{Cores, Holdings, is_stopped};
use super::seed::Seed;
use super::sleeper::Sleeper;
use crate::harness::{Daemon, children_of, signal};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long everything may take to be as it was, once the faults are over.
const CONVERGENCE_MAX: Duration = Duration::from_secs(60);
/// Resident memory may be more by so much: the allocator does not give everything back at once.
const MEMORY_NOISE: u64 = 4 << 20;
/// How often the loop is asked something.
const PROBE_EVERY: Duration = Duration::from_millis(1);
/// How long jobs are done before anything is measured.
const WARMING_UP: Duration = Duration::from_secs(1);
/// So long there are faults at a stretch, and then a quarter as long there are none.
const ROUND: Duration = Duration::from_secs(4);
/// How long a round waits until all workers are there again.
const WHOLE_MAX: Duration = Duration::from_secs(5);
/// After this time a stopped worker is taken for dead: `hang_timeout` of the configuration.
const STOPPED_MAX: Duration = Duration::from_secs(1);
/// Workers that are killed one by one to see how soon they are replaced.
const SAMPLES_OF_RESPAWN: u32 = 5;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Chaos {
    /// Of everything that is chosen.
    pub seed: u64,
    /// How long workers are ended.
    pub length: Duration,
    /// How.
    pub habits: Habits,
    /// Connections, each with a thread.
    pub clients: usize,
    /// Jobs that each of them has under way.
    pub in_flight: usize,
    /// Slots.
    pub workers: usize,
    /// So many of a thousand jobs do wrong.
    pub guilty_per_mille: usize,
    /// Whether the supervisor never takes killed starts for a reason to refuse jobs.
    pub never_refuse: bool,
}

impl Chaos {
    /// As much as a machine with two cores takes, for so long.
    pub fn lasting(length: Duration) -> Chaos {
        let habits = Habits { every: Duration::from_millis(50), stops: 1, pauses: 5 };
        Chaos {
            seed: 1,
            length,
            habits,
            clients: 16,
            in_flight: 16,
            workers: 2,
            guilty_per_mille: 2,
            never_refuse: false,
        }
    }

    /// Does it.
    ///
    /// # Panics
    /// If no supervisor can be started.
    pub fn run(self) -> Told {
        let workers = self.workers.to_string();
        let mut flags = vec!["--quiet", "--allow-faults", "--workers", &workers];
        if self.never_refuse {
            flags.extend(["--max-restarts", "1000000", "--backoff-min", "10ms"]);
        }
        let daemon = Daemon::start(&flags);
        daemon.wait_until_whole();
        let (warm, _) = client::warm_up(&daemon, !self.seed, self.clients, self.in_flight);
        let prober = Prober::start(&daemon.socket, PROBE_EVERY);
        let sleeper = Sleeper::start(PROBE_EVERY);
        let cores = Cores::now();
        let before = client::settled(&daemon);
        let work = Work::endless(self.guilty_per_mille);
        let (calm, deeds, faulted, ledger) = self.clients_and_killer(&daemon, &work);
        let ledger = ledger.and(warm);
        let converged = converge(&daemon, &before);
        // Before anybody asks for the status, which takes a connection.
        let after = Holdings::of(daemon.pid());
        let status = daemon.status();
        let lag = prober.finish().map(|samples| sorted(samples.into_iter().map(|sample| sample.took)));
        let stolen = Cores::now().stolen_since(cores);
        let lateness = sorted(sleeper.finish().into_iter());
        Told {
            chaos: self,
            calm,
            deeds,
            faulted,
            ledger,
            converged,
            status,
            before,
            after,
            lag,
            lateness,
            stolen,
        }
    }

    fn clients_and_killer(&self, daemon: &Daemon, work: &Work) -> (Calm, Deeds, Measured, Ledger) {
        std::thread::scope(|scope| {
            let Chaos { seed, clients, in_flight, .. } = *self;
            let clients = scope.spawn(move || {
                client::serve_all(&daemon.socket, seed.wrapping_add(1), clients, in_flight, work)
            });
            Measured::over(WARMING_UP, work);
            let respawn = usual_respawn(daemon);
            let mut killer = Killer::new(daemon.pid(), Seed::new(self.seed), self.habits);
            let (mut calm, mut faulted) = (Measured::default(), Measured::default());
            while faulted.took < self.length {
                let round = ROUND.min(self.length - faulted.took);
                let is_over = AtomicBool::new(false);
                faulted += std::thread::scope(|scope| {
                    scope.spawn(|| killer.kill_until(&is_over));
                    let measured = Measured::over(round, work);
                    is_over.store(true, Ordering::Relaxed);
                    measured
                });
                until_whole(daemon);
                calm += Measured::over(round / 4, work);
            }
            work.is_over.store(true, Ordering::Relaxed);
            let ledger = clients.join().expect("clients do not panic");
            (Calm { measured: calm, respawn }, killer.deeds(), faulted, ledger)
        })
    }
}

/// How long it usually takes until a worker that was killed is replaced.
fn usual_respawn(daemon: &Daemon) -> Duration {
    let mut times: Vec<_> = (0..SAMPLES_OF_RESPAWN).map(|_| respawn(daemon)).collect();
    times.sort_unstable();
    percentile(&times, 0.5)
}

/// Waits until every slot has a worker that is awake, and the spare is there. That it never comes is found out later.
fn until_whole(daemon: &Daemon) {
    let moment = Instant::now() + WHOLE_MAX;
    while Instant::now() < moment {
        let status = daemon.status();
        let workers = children_of(daemon.pid());
        let is_whole = status["workers"]["ready"] == status["workers"]["configured"]
            && workers.len() as u64 > status["workers"]["configured"].as_u64().unwrap_or(u64::MAX);
        if is_whole && !workers.into_iter().any(is_stopped) {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// From the death of one worker to the moment when all are ready again.
fn respawn(daemon: &Daemon) -> Duration {
    let restarts = daemon.status()["workers"]["restarts"].as_u64();
    let began = Instant::now();
    children_of(daemon.pid()).first().into_iter().for_each(|worker| signal(*worker, Signal::KILL));
    while daemon.status()["workers"]["restarts"].as_u64() <= restarts {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    daemon.wait_until_whole();
    began.elapsed()
}

/// Waits until nothing waits, everybody is ready and awake, and nothing more is held than before. How long that took, if it came.
fn converge(daemon: &Daemon, before: &Holdings) -> Option<Duration> {
    let began = Instant::now();
    while began.elapsed() < CONVERGENCE_MAX {
        let status = daemon.status();
        let is_idle = status["queue"]["jobs"] == 0 && status["queue"]["bytes"] == 0;
        let is_whole = status["workers"]["ready"] == status["workers"]["configured"];
        let is_awake = !children_of(daemon.pid()).into_iter().any(is_stopped);
        if is_idle && is_whole && is_awake && comes_to(daemon, before) {
            return Some(began.elapsed());
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    None
}

/// Whether as much is held as before, once the connection that asked for the status is forgotten.
fn comes_to(daemon: &Daemon, before: &Holdings) -> bool {
    let moment = Instant::now() + Duration::from_millis(100);
    std::iter::from_fn(|| (Instant::now() < moment).then(|| Holdings::of(daemon.pid())))
        .any(|now| now.has_no_more_than(before))
}

fn sorted(durations: impl Iterator<Item = Duration>) -> Vec<Duration> {
    let mut durations: Vec<Duration> = durations.collect();
    durations.sort_unstable();
    durations
}

/// What is possible without faults.
#[derive(Clone, Copy, Debug)]
pub struct Calm {
    measured: Measured,
    respawn: Duration,
}

/// What was done in some time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    jobs: u64,
    took: Duration,
}

impl Measured {
    fn over(length: Duration, work: &Work) -> Measured {
        let (began, jobs) = (Instant::now(), work.answered.load(Ordering::Relaxed));
        while let Some(left) = length.checked_sub(began.elapsed()) {
            std::thread::park_timeout(left);
        }
        Measured { jobs: work.answered.load(Ordering::Relaxed) - jobs, took: began.elapsed() }
    }

    fn jobs_per_second(&self) -> f64 {
        self.jobs as f64 / self.took.as_secs_f64()
    }
}

impl AddAssign for Measured {
    fn add_assign(&mut self, other: Measured) {
        self.jobs += other.jobs;
        self.took += other.took;
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Told {
    chaos: Chaos,
    calm: Calm,
    deeds: Deeds,
    faulted: Measured,
    ledger: Ledger,
    converged: Option<Duration>,
    status: Value,
    before: Holdings,
    after: Holdings,
    lag: Result<Vec<Duration>, String>,
    /// Of a thread that had nothing to do.
    lateness: Vec<Duration>,
    /// The share of the cores' time that others on the same host had.
    stolen: f64,
}

impl Told {
    /// What must not be, as far as it was. Times are not looked at.
    pub fn violations(&self) -> Vec<String> {
        let ledger = &self.ledger;
        let counts = &self.status["jobs"];
        let checks = [
            (ledger.is_clean(), format!("the clients' books: {ledger:?}")),
            (self.status["ledger"]["balanced"] == true, format!("the supervisor's books: {counts}")),
            (counts["accepted"] == ledger.submitted, format!("{} submitted, {counts}", ledger.submitted)),
            (counts["ok"] == ledger.right, format!("{} were right, {counts}", ledger.right)),
            (self.converged.is_some(), format!("not as before: {:?}, {:?}", self.before, self.after)),
            (self.lag.is_ok(), format!("the prober: {:?}", self.lag.as_ref().err())),
            (self.deeds.kills > 0, "nobody was killed".to_owned()),
        ];
        checks.into_iter().filter(|(holds, _)| !holds).map(|(_, sentence)| sentence).collect()
    }

    /// Times that are not what a machine that does nothing else is expected to show.
    pub fn missed_targets(&self) -> Vec<String> {
        let (p99, max) = (self.lag_at(0.99), self.lag_at(1.0));
        let checks = [
            (self.share() >= 0.9 * self.predicted(), "throughput under faults below 90 % of the prediction"),
            (p99 < Duration::from_millis(2), "99th percentile of the lag over 2 ms"),
            (max < Duration::from_millis(50), "longest lag over 50 ms"),
            (self.after.resident <= self.before.resident + MEMORY_NOISE, "more memory than before"),
        ];
        checks.into_iter().filter(|(holds, _)| !holds).map(|(_, sentence)| sentence.to_owned()).collect()
    }

    /// Throughput under faults, as a share of that without.
    fn share(&self) -> f64 {
        self.faulted.jobs_per_second() / self.calm.measured.jobs_per_second()
    }

    /// That share as it should be: each death costs a slot the time until it is filled and half a job. A worker that
    /// is stopped costs its slot the time until that is taken for its end as well, one that is held up the time until
    /// it goes on, or either until somebody kills it.
    fn predicted(&self) -> f64 {
        let Deeds { kills, stops, pauses } = self.deeds;
        let Habits { every, .. } = self.chaos.habits;
        let slots = self.chaos.workers as f64;
        // All slots and the spare are killed equally often.
        let until_killed = every.as_secs_f64() * (slots + 1.0);
        let lost_in = |time: Duration| until_killed * (1.0 - (-time.as_secs_f64() / until_killed).exp());
        let job = self.ledger.run_us as f64 / 1e6 / (self.ledger.right.max(1)) as f64;
        let lost = (kills + stops) as f64 * (self.calm.respawn.as_secs_f64() + job / 2.0)
            + stops as f64 * lost_in(STOPPED_MAX)
            + pauses as f64 * lost_in(HELD_UP);
        (1.0 - lost / self.faulted.took.as_secs_f64() / slots).max(0.0)
    }

    fn lag_at(&self, share: f64) -> Duration {
        self.lag.as_ref().map_or(Duration::ZERO, |lag| percentile(lag, share))
    }

    /// For people.
    pub fn summary(&self) -> String {
        let Ledger { submitted, lost, doubled, wrong, stuck, attempts, longest, .. } = &self.ledger;
        let Ledger { guilty, blamed_unstarted, .. } = &self.ledger;
        let Deeds { kills, stops, pauses } = self.deeds;
        let Calm { measured, respawn } = self.calm;
        let samples = self.lag.as_ref().map_or(0, Vec::len);
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| self.lag_at(share).as_secs_f64() * 1e3);
        let idle = [0.5, 0.99, 1.0].map(|share| percentile(&self.lateness, share).as_secs_f64() * 1e3);
        format!(
            "chaos: {submitted} jobs, {} of them under faults, {attempts} attempts, {kills} killed, {stops} stopped, {pauses} held up in {:.1} s (seed {})\n\
             {guilty} guilty ones crashed, timed out or were cancelled; blamed without having run: {blamed_unstarted}\n\
             lost {lost}, doubled {doubled}, wrong {wrong}, stuck {stuck} (0 of n says: less than 3/n = {:.1e})\n\
             throughput: {:.0} jobs/s without faults, {:.0} with: {:.1} % (target: 90 % of the {:.1} % predicted)\n\
             a worker is replaced in {respawn:.1?}, the longest job took {longest:.1?}, converged in {:.1?}\n\
             lag of {samples} probes: p50 {p50:.2} ms, p99 {p99:.2} ms (target 2), max {max:.2} ms (target 50)\n\
             a thread that only slept was late by: p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms; the host gave {:.1} % of the cores to others\n\
             the loop's own lag: {} us, slowest callback {}\n\
             before {:?}\nafter  {:?}",
            self.faulted.jobs,
            self.faulted.took.as_secs_f64(),
            self.chaos.seed,
            3.0 / (*submitted).max(1) as f64,
            measured.jobs_per_second(),
            self.faulted.jobs_per_second(),
            100.0 * self.share(),
            100.0 * self.predicted(),
            self.converged.unwrap_or(CONVERGENCE_MAX),
            idle[0],
            idle[1],
            idle[2],
            100.0 * self.stolen,
            self.status["event_loop"]["lag_us"],
            self.status["event_loop"]["slowest_callback"],
            self.before,
            self.after,
        )
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let ledger = &self.ledger;
        let micros = |time: Duration| time.as_micros() as u64;
        json!({
            "seed": self.chaos.seed, "clients": self.chaos.clients, "workers": self.chaos.workers,
            "seconds": self.faulted.took.as_secs_f64(),
            "kills": self.deeds.kills, "stops": self.deeds.stops, "pauses": self.deeds.pauses,
            "jobs": ledger.submitted, "jobs_under_faults": self.faulted.jobs, "attempts": ledger.attempts, "lost": ledger.lost,
            "guilty": ledger.guilty, "blamed_without_having_run": ledger.blamed_unstarted,
            "doubled": ledger.doubled, "wrong": ledger.wrong, "stuck": ledger.stuck,
            "jobs_per_second": { "calm": self.calm.measured.jobs_per_second(), "faulted": self.faulted.jobs_per_second() },
            "share": self.share(), "share_predicted": self.predicted(),
            "respawn_us": micros(self.calm.respawn), "longest_us": micros(ledger.longest),
            "converged_us": self.converged.map(micros),
            "lag_us": { "p50": micros(self.lag_at(0.5)), "p99": micros(self.lag_at(0.99)),
                "max": micros(self.lag_at(1.0)), "probes": self.lag.as_ref().map_or(0, Vec::len) },
            "lateness_us": { "p50": micros(percentile(&self.lateness, 0.5)),
                "p99": micros(percentile(&self.lateness, 0.99)), "max": micros(percentile(&self.lateness, 1.0)) },
            "stolen": self.stolen,
            "event_loop": self.status["event_loop"],
            "before": self.before.json(), "after": self.after.json(),
            "violations": self.violations(), "missed_targets": self.missed_targets(),
        })
    }
}
