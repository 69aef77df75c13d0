//! Arithmetic that takes a given time, and the tasks of the benchmark's own worker that do it.
//!
//! The built-in task `spin` reads the clock as it goes; here a job is a number of rounds that was found before, so that
//! it costs the same in a worker, in a child without a pool, and in the programs of others.

use offload_worker::{Task, TaskError};
use std::convert::Infallible;
use std::hint::black_box;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Rounds of the probe that finds out how fast this machine is.
const PROBE: u64 = 400_000;

/// How often something is tried, of which the fastest time counts: whatever disturbs it makes it slower.
const TRIES: u32 = 60;

/// Computes for so many rounds.
pub(super) fn spin(rounds: u64) {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..black_box(rounds) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

/// The time of so many rounds if nothing disturbs them.
pub(super) fn fastest(rounds: u64, tries: u32) -> Duration {
    let time = || {
        let start = Instant::now();
        spin(rounds);
        start.elapsed()
    };
    (0..tries.max(1)).map(|_| time()).min().unwrap_or_default()
}

/// How many rounds take so many microseconds.
pub(super) fn rounds_for(microseconds: u64) -> u64 {
    // The clock of the processor may be low at first.
    fastest(PROBE, TRIES);
    let per_microsecond = PROBE as f64 / (fastest(PROBE, TRIES).as_secs_f64() * 1e6);
    (per_microsecond * microseconds as f64).round() as u64
}

/// How often a job of so many microseconds is tried to find what it costs: for at most a tenth of a second.
pub(super) fn tries_for(microseconds: u64) -> u32 {
    u32::try_from(100_000 / microseconds.max(1)).unwrap_or(u32::MAX).clamp(5, TRIES)
}

/// Milliseconds since 1970, by a clock that all processes share.
pub(super) fn unix_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3
}

/// The tasks, all with JSON in and out.
pub(super) fn tasks() -> Vec<Task> {
    vec![
        Task::json("rounds", |microseconds: u64, _| never_fails(rounds_for(microseconds))).idempotent(),
        Task::json("cost", |(rounds, tries): (u64, u32), _| {
            u64::try_from(fastest(rounds, tries).as_nanos()).map_err(|_| "longer than 500 years")
        })
        .idempotent(),
        Task::json("burn", |rounds: u64, _| {
            spin(rounds);
            never_fails(())
        })
        .idempotent(),
        Task::json("burn_and_tell", |rounds: u64, _| {
            spin(rounds);
            never_fails((std::process::id(), unix_ms()))
        })
        .idempotent(),
        Task::json("hold", |ms: u64, _| {
            std::thread::sleep(Duration::from_millis(ms));
            never_fails(())
        }),
        Task::json("die_at", |moment: f64, _| die_at(moment)),
    ]
}

/// What cannot fail is still a result for the worker.
fn never_fails<T>(value: T) -> Result<T, Infallible> {
    Ok(value)
}

/// Ends this worker by SIGKILL at this moment.
fn die_at(moment: f64) -> Result<(), TaskError> {
    let left = Duration::try_from_secs_f64((moment - unix_ms()) / 1e3).unwrap_or_default();
    std::thread::sleep(left);
    let ourselves = rustix::process::getpid();
    rustix::process::kill_process(ourselves, rustix::process::Signal::KILL)?;
    Err(TaskError::new("this process outlived SIGKILL"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_work_has_more_rounds_and_fewer_tries() {
        assert!(rounds_for(100) < rounds_for(10_000));
        assert_eq!([1, 1_000, 10_000, 1_000_000].map(tries_for), [60, 60, 10, 5]);
    }

    #[test]
    fn more_rounds_take_more_time() {
        // A factor of a thousand, so that no noise can hide it.
        assert!(fastest(1_000_000, 3) > fastest(1_000, 3));
    }

    #[test]
    fn what_must_not_be_done_twice_is_not_promised_to_be_idempotent() {
        let tasks = tasks();
        let offers: Vec<String> = tasks.iter().map(|task| format!("{task:?}")).collect();
        let idempotent = |name: &str| {
            offers.iter().any(|offer| offer.contains(name) && offer.contains("idempotent: true"))
        };
        assert!(idempotent("\"burn\"") && !idempotent("\"die_at\"") && !idempotent("\"hold\""), "{offers:?}");
    }
}
