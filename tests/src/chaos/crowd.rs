//! A supervisor among neighbours of every kind, all at once: polite clients, clients whose jobs crash, hang and are
//! cancelled, clients that read slowly, say nothing, send half a message or hang up, and somebody who stops the
//! supervisor itself for moments.
//!
//! ```text
//!   polite     known jobs, of tiny tasks mostly  --->  each ends ok, right, once
//!   guilty     jobs that end their worker        --->  each has the outcome that it asked for, and an attempt
//!   slow       large outputs, read at a drip     --->  disconnected with a reason, or everything right
//!   rude       half messages, half-closed, gone  --->  nobody else notices
//!   flood      refused requests over many connections of a process of its own  --->  nobody else notices
//!   stopper    SIGSTOP, a moment, SIGCONT        --->  nobody is late or dropped because of it
//! ```
//!
//! No worker is killed from outside here, so every death has a guilty job, and an innocent job that is blamed, refused or
//! (unless it lets others in between its steps) tried again is a violation. [`super::run`] kills from outside.

use super::client::{self, Ledger, Work};
use super::flood::Flood;
use super::guilty::{self, Judgement};
use super::process::{Holdings, peak_resident_bytes};
use super::rude::{self, RudeDeeds};
use super::seed::Seed;
use super::slow::{self, SlowReading};
use crate::harness::{Daemon, signal, until};
use offload_core::limits::DEAD_LETTERS_MAX;
use offload_supervisor::limits::Memory;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// The longest time for which the supervisor is stopped.
const STOP_MAX: Duration = Duration::from_millis(1500);
/// How long the flood lasts: it costs the machine a core.
const FLOOD_LENGTH: Duration = Duration::from_secs(10);
/// From one stop to the next, on average.
const STOP_EVERY: Duration = Duration::from_secs(3);

/// Who is there.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// Of everything that is chosen.
    pub seed: u64,
    /// Jobs of the polite clients, in all.
    pub jobs: u64,
    /// Slots.
    pub workers: usize,
    /// Clients that only want their jobs done.
    pub polite: usize,
    /// Clients of which many jobs end their worker.
    pub guilty: usize,
    /// Clients that read slowly.
    pub slow: usize,
    /// Clients that behave badly in other ways.
    pub rude: usize,
    /// Connections of one process that is refused whatever it says, as fast as it can ask.
    pub flood: usize,
    /// Whether the supervisor itself is stopped now and then.
    pub stops: bool,
}

impl Crowd {
    /// A crowd that a machine with two cores can hold, with so many jobs for the polite ones.
    pub fn of(jobs: u64) -> Crowd {
        Crowd { seed: 1, jobs, workers: 2, polite: 8, guilty: 4, slow: 3, rude: 3, flood: 150, stops: true }
    }

    /// Lets them in, until the polite clients have all their answers.
    ///
    /// # Panics
    /// If no supervisor can be started.
    pub fn gather(self) -> Told {
        let daemon = Daemon::start(&[
            "--quiet",
            "--allow-faults",
            "--workers",
            &self.workers.to_string(),
            "--max-bytes",
            &MAX_BYTES.to_string(),
            "--max-payload",
            &MAX_PAYLOAD.to_string(),
        ]);
        daemon.wait_until_whole();
        let before = client::settled(&daemon);
        let began = Instant::now();
        let met = self.all_at_once(&daemon);
        let took = began.elapsed();
        let status = until("nothing to wait or run", || idle(&daemon));
        until("descriptors and children as before", || {
            client::settled(&daemon).has_no_more_than(&before).then_some(())
        });
        let after = Holdings::of(daemon.pid());
        Told { crowd: self, met, took, before, after, peak: peak_resident_bytes(daemon.pid()), status }
    }

    fn all_at_once(&self, daemon: &Daemon) -> Met {
        let (socket, seed) = (&daemon.socket, self.seed);
        let (is_over, work) = (AtomicBool::new(false), Work::of(self.jobs));
        std::thread::scope(|scope| {
            let is_over = &is_over;
            let flood =
                (self.flood > 0).then(|| scope.spawn(|| flood_for_a_while(socket, self.flood, is_over)));
            let stopper = self.stops.then(|| scope.spawn(|| stop_now_and_then(daemon, seed, is_over)));
            let guilty =
                spawn(scope, self.guilty, move |number| guilty::serve(socket, number, seed, is_over));
            let slow =
                spawn(scope, self.slow, move |number| slow::read(socket, 1000 + number, seed, is_over));
            let rude =
                spawn(scope, self.rude, move |number| rude::behave(socket, 2000 + number, seed, is_over));
            let polite = client::serve_all(socket, seed.wrapping_add(1), self.polite, IN_FLIGHT, &work);
            is_over.store(true, Ordering::Relaxed);
            Met {
                polite,
                guilty: join(guilty).fold(Judgement::default(), Judgement::and),
                slow: join(slow).fold(SlowReading::default(), SlowReading::and),
                rude: join(rude).fold(RudeDeeds::default(), RudeDeeds::and),
                refused: join(flood).sum(),
                stops: join(stopper).sum(),
            }
        })
    }
}

/// Returns how many requests were refused.
fn flood_for_a_while(socket: &Path, connections: usize, is_over: &AtomicBool) -> u64 {
    let flood = Flood::start(socket, connections, None);
    wait(FLOOD_LENGTH, is_over);
    flood.end()
}

/// One thread for each of so many clients of a kind.
fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    count: usize,
    client: impl Fn(u64) -> T + Copy + Send + 'scope,
) -> Vec<ScopedJoinHandle<'scope, T>> {
    (0..count as u64).map(|number| scope.spawn(move || client(number))).collect()
}

fn join<'scope, T>(
    threads: impl IntoIterator<Item = ScopedJoinHandle<'scope, T>>,
) -> impl Iterator<Item = T> {
    threads.into_iter().map(|thread| thread.join().expect("a client does not panic"))
}

/// What everybody met.
#[derive(Debug)]
struct Met {
    polite: Ledger,
    guilty: Judgement,
    slow: SlowReading,
    rude: RudeDeeds,
    /// Requests of the flood.
    refused: u64,
    /// How often the supervisor was stopped.
    stops: u64,
}

/// Jobs that each polite client has under way: enough that workers are given windows of them.
const IN_FLIGHT: usize = 32;
/// Tight, so that bounds are met.
const MAX_BYTES: u64 = 64 << 20;
const MAX_PAYLOAD: u64 = 8 << 20;

/// The status, once no job is left.
fn idle(daemon: &Daemon) -> Option<Value> {
    let status = daemon.status();
    let jobs = &status["jobs"];
    let is_idle = jobs["queued"] == 0 && jobs["running"] == 0;
    let is_whole = status["workers"]["ready"] == status["workers"]["configured"];
    (is_idle && is_whole).then_some(status)
}

/// Stops the supervisor for random moments until it is over; returns how often.
fn stop_now_and_then(daemon: &Daemon, seed: u64, is_over: &AtomicBool) -> u64 {
    let mut seed = Seed::new(seed.wrapping_add(77));
    let mut stops = 0;
    while !is_over.load(Ordering::Relaxed) {
        wait(seed.pause(STOP_EVERY).min(2 * STOP_EVERY), is_over);
        signal(daemon.pid(), Signal::STOP);
        // How long it stays stopped is chosen, so this wait is the deed itself and waits for nothing.
        std::thread::sleep(STOP_MAX.mul_f64(seed.below(1000) as f64 / 1000.0));
        signal(daemon.pid(), Signal::CONT);
        stops += 1;
    }
    stops
}

/// Waits for so long, or until it is over.
pub(super) fn wait(length: Duration, is_over: &AtomicBool) {
    let end = Instant::now() + length;
    while !is_over.load(Ordering::Relaxed)
        && let Some(left) = end.checked_duration_since(Instant::now())
    {
        std::thread::park_timeout(left.min(Duration::from_millis(20)));
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Told {
    crowd: Crowd,
    met: Met,
    took: Duration,
    before: Holdings,
    after: Holdings,
    /// The most memory that the supervisor ever had.
    peak: u64,
    status: Value,
}

impl Told {
    /// What must not be, as far as it was.
    pub fn violations(&self) -> Vec<String> {
        let counts = &self.status["jobs"];
        let checks = [
            (self.met.polite.is_clean(), format!("the polite clients' books: {:?}", self.met.polite)),
            (self.met.guilty.is_just(), format!("the guilty clients' books: {:?}", self.met.guilty)),
            (self.met.guilty.asked > 0, "nobody was guilty".to_owned()),
            (self.crowd.flood == 0 || self.met.refused > 0, "the flood was not answered at all".to_owned()),
            (self.met.slow.wrong == 0, format!("slow readers: {:?}", self.met.slow)),
            (self.status["ledger"]["balanced"] == true, format!("the supervisor's books: {counts}")),
            (
                self.peak <= memory_bound(&self.crowd),
                format!("{} of {} bytes", self.peak, memory_bound(&self.crowd)),
            ),
        ];
        checks.into_iter().filter(|(holds, _)| !holds).map(|(_, sentence)| sentence).collect()
    }

    /// For people.
    pub fn summary(&self) -> String {
        let Ledger { submitted, lost, doubled, wrong, stuck, attempts, longest, .. } = &self.met.polite;
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        format!(
            "crowd: {submitted} innocent jobs in {:.1} s (seed {}), {attempts} attempts, longest {longest:.1?}\n\
             lost {lost}, doubled {doubled}, wrong {wrong}, stuck {stuck}, tried again {}\n\
             guilty: {:?}\nslow: {:?}\nrude: {:?}\nrefused: {} requests of a flood\nthe supervisor was stopped {} times\n\
             memory: {:.1} MiB at its peak, bound {:.1} MiB\nbefore {:?}\nafter  {:?}",
            self.took.as_secs_f64(),
            self.crowd.seed,
            attempts.saturating_sub(*submitted),
            self.met.guilty,
            self.met.slow,
            self.met.rude,
            self.met.refused,
            self.met.stops,
            mebibytes(self.peak),
            mebibytes(memory_bound(&self.crowd)),
            self.before,
            self.after,
        )
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let ledger = &self.met.polite;
        json!({
            "seed": self.crowd.seed, "jobs": ledger.submitted, "attempts": ledger.attempts, "lost": ledger.lost,
            "doubled": ledger.doubled, "wrong": ledger.wrong, "stuck": ledger.stuck,
            "guilty": self.met.guilty.asked, "unjust": self.met.guilty.unjust, "slow": self.met.slow.jobs,
            "slow_disconnected": self.met.slow.goodbyes, "refused": self.met.refused, "stops": self.met.stops, "peak_bytes": self.peak,
            "bound_bytes": memory_bound(&self.crowd), "seconds": self.took.as_secs_f64(),
            "violations": self.violations(),
        })
    }
}

/// The most that the whole process may take, with the limits that it is started with here.
fn memory_bound(crowd: &Crowd) -> u64 {
    let Crowd { workers, polite, guilty, slow, rude, flood, .. } = *crowd;
    let clients = polite + guilty + slow + rude;
    // Each has at most so many jobs under way.
    let jobs = clients * 40 + DEAD_LETTERS_MAX;
    let defaults = Memory::of_defaults(workers as u64 + 1, (clients + flood) as u64 + 2, jobs as u64);
    Memory { max_bytes: MAX_BYTES, max_payload: MAX_PAYLOAD, ..defaults }.most()
}
