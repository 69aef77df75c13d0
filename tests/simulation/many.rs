//! Runs many seeds, on as many threads as there are processors, and checks that they have reached enough.

use crate::coverage::Coverage;
use crate::oracle::Failure;
use crate::seeds::{run, story, together};
use crate::world::{Plan, Verdict};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// As many as take a few seconds in a build for development.
const SEEDS: u64 = 6000;

/// As many as `./tests/all` runs. They reach every pair of `reachable.txt`; the rarest come once in ten thousand worlds.
const SEEDS_THAT_REACH_ALL: u64 = 20_000;

/// One seed of so many is run twice, and must be the same.
const TWICE: u64 = 16;

/// What many seeds have shown.
#[derive(Default)]
struct Total {
    seeds: u64,
    events: u64,
    time: Duration,
    coverage: Coverage,
    /// The first seed that failed.
    failed: Option<u64>,
}

fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

fn run_seed(seed: u64) -> Verdict {
    let with_digest = seed.is_multiple_of(TWICE);
    let plan = Plan { seed, with_digest, ..Plan::default() };
    let mut verdict = run(plan.clone());
    if with_digest && verdict.failure.is_none() {
        let again = run(plan);
        if (again.digest, again.core_digest) != (verdict.digest, verdict.core_digest) {
            verdict.failure = Some(Failure { rule: "O14", what: "two runs of one seed differ".to_owned() });
        }
    }
    verdict.failure = verdict.failure.or_else(|| together(seed).err());
    verdict
}

fn run_many(seeds: u64) -> Total {
    let next = AtomicU64::new(0);
    let total = Mutex::new(Total::default());
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let work = || {
        let mut own = Total::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                break;
            }
            let verdict = run_seed(seed);
            own.seeds += 1;
            own.events += verdict.events;
            own.time += Duration::from_nanos(verdict.time.as_nanos());
            own.coverage.add(&verdict.coverage);
            if verdict.failure.is_some() {
                own.failed = Some(seed);
                next.store(seeds, Ordering::Relaxed);
            }
        }
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        total.seeds += own.seeds;
        total.events += own.events;
        total.time += own.time;
        total.coverage.add(&own.coverage);
        total.failed = total.failed.into_iter().chain(own.failed).min();
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn many_seeds() {
    let wanted = number_from("OFFLOAD_SIM_SEEDS");
    let began = Instant::now();
    let total = run_many(wanted.unwrap_or(SEEDS));
    let took = began.elapsed();
    if let Some(seed) = total.failed {
        panic!("{}", story(seed, &run));
    }
    println!(
        "{} seeds, {} events, {:.1} h of virtual time, {} pairs of state and event, in {:.1} s: {:.0} seeds/s",
        total.seeds,
        total.events,
        total.time.as_secs_f64() / 3600.0,
        total.coverage.len(),
        took.as_secs_f64(),
        total.seeds as f64 / took.as_secs_f64(),
    );
    println!("{}", total.coverage.table());
    let (missing, new) = total.coverage.differences();
    assert!(new.is_empty(), "reached and not listed in reachable.txt:\n{}", new.join("\n"));
    let is_enough = total.seeds >= SEEDS_THAT_REACH_ALL;
    assert!(!is_enough || missing.is_empty(), "listed in reachable.txt and not reached: {missing:#?}");
}

#[test]
fn one_seed() {
    let seed = number_from("OFFLOAD_SIM_SEED");
    let verdict = run(Plan { seed: seed.unwrap_or(0), with_trace: true, ..Plan::default() });
    if seed.is_some() {
        println!("{}", verdict.trace.join("\n"));
    }
    assert!(verdict.failure.is_none(), "{}", story(seed.unwrap_or(0), &run));
    assert!(verdict.events > 0 && verdict.trace.len() as u64 >= verdict.events);
}
