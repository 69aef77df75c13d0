//! P2 and P10: many small jobs at once. How many a second, how much memory a waiting one takes, and whether a job costs
//! more when many wait.
//!
//! The limit of P2: messages of 64 bytes through socket pairs to as many children as there are workers, and back,
//! [`MESSAGES_AT_ONCE`] of them for each system call, without any bookkeeping. Beside it (`limit_one_by_one_per_s`) the same
//! where the children send each message by itself: a worker says that it has started a job before the task gets its input,
//! so it writes once for each job.
//!
//! P10 counts resident anonymous memory (`Anonymous` of `/proc/self/smaps_rollup`, exact to a page) right before and
//! right after the jobs are submitted, while the loop does not run, so all of them wait. Payload and callback of each
//! job are included. Memory that the pool already had free is not counted again, which makes small numbers of jobs look
//! cheaper by some pages. The limit is what a vector of payloads and callbacks takes, counted in the same way.

use super::super::super::failure::Failure;
use super::super::machine::cpu_time_of;
use super::children::{Child, EchoMode, PIECES, lost};
use super::rig::{Rig, echo_64, is_64_bytes};
use super::sample::{Sample, SamplePlan, Times};
use nix::sys::resource::UsageWho;
use rustix::event::{PollFd, PollFlags, poll};
use std::hint::black_box;
use std::io::{ErrorKind, Read, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Bytes of a message.
const MESSAGE: usize = 64;

/// Messages for each system call in the limit.
const MESSAGES_AT_ONCE: usize = PIECES;

/// Bytes on their way to one child and back, at most.
const WINDOW: usize = 4 * MESSAGES_AT_ONCE * MESSAGE;

/// Jobs that are done in total, so that a short burst is repeated and a long one is not.
const JOBS_IN_TOTAL: u64 = 100_000;

/// A pool that takes so many jobs at once.
fn roomy_rig(plan: &SamplePlan) -> Result<Rig, Failure> {
    let jobs = usize::try_from(plan.size).unwrap_or(usize::MAX);
    Rig::echo(plan.workers, |core| {
        core.max_jobs = core.max_jobs.max(jobs);
        core.max_jobs_per_client = Some(core.max_jobs);
        core.max_bytes = core.max_bytes.max(4 * MESSAGE as u64 * plan.size);
    })
}

/// P2, ours: bursts, of which the median counts.
pub(super) fn throughput(plan: &SamplePlan) -> Result<Sample, Failure> {
    let mut rig = roomy_rig(plan)?;
    let bursts = bursts(plan);
    let before = cpu_time_of(UsageWho::RUSAGE_SELF);
    let times: Result<Vec<Duration>, Failure> =
        (0..bursts).map(|_| rig.burst(plan.size, |_| echo_64(), is_64_bytes)).collect();
    let cpu_time = cpu_time_of(UsageWho::RUSAGE_SELF).saturating_sub(before);
    let (times, jobs) = (Times::of(times?), (bursts * plan.size) as f64);
    let rate = plan.size as f64 / times.at(0.5).as_secs_f64();
    let best = plan.size as f64 / times.at(0.0).as_secs_f64();
    let cpu_us = cpu_time.as_secs_f64() * 1e6 / jobs;
    Ok(Sample::of(rate).with("best_jobs_per_s", best).with("supervisor_cpu_us", cpu_us).with("jobs", jobs))
}

fn bursts(plan: &SamplePlan) -> u64 {
    plan.pick(1, (JOBS_IN_TOTAL / plan.size.max(1)).clamp(3, 50))
}

/// P2, limit.
pub(super) fn throughput_limit(plan: &SamplePlan) -> Result<Sample, Failure> {
    let together = messages_per_second(plan, EchoMode::Stream)?;
    let one_by_one = messages_per_second(plan, EchoMode::Pieces)?;
    Ok(Sample::of(together).with("one_by_one_per_s", one_by_one))
}

fn messages_per_second(plan: &SamplePlan, mode: EchoMode) -> Result<f64, Failure> {
    let size = MESSAGES_AT_ONCE * MESSAGE;
    let pipes: Result<Vec<Pipe>, Failure> = (0..plan.workers).map(|_| Pipe::start(size, mode)).collect();
    let mut pipes = pipes?;
    let window = Duration::from_millis(plan.pick(100, 300));
    // The first part is not counted.
    messages_within(&mut pipes, window / 4)?;
    let (messages, took) = messages_within(&mut pipes, window)?;
    Ok(messages as f64 / took.as_secs_f64())
}

fn messages_within(pipes: &mut [Pipe], window: Duration) -> Result<(usize, Duration), Failure> {
    let start = Instant::now();
    let mut received = 0;
    while start.elapsed() < window {
        for pipe in &mut *pipes {
            pipe.fill()?;
        }
        wait_for_any(pipes)?;
        for pipe in &mut *pipes {
            received += pipe.take()?;
        }
    }
    Ok((received / MESSAGE, start.elapsed()))
}

fn wait_for_any(pipes: &[Pipe]) -> Result<(), Failure> {
    let mut watched: Vec<PollFd> =
        pipes.iter().map(|pipe| PollFd::new(&pipe.child.socket, PollFlags::IN)).collect();
    poll(&mut watched, None).map_err(|error| lost(error.into()))?;
    Ok(())
}

/// A child that sends messages back, and how much is on its way.
struct Pipe {
    child: Child,
    buffer: Vec<u8>,
    in_flight: usize,
}

impl Pipe {
    fn start(size: usize, mode: EchoMode) -> Result<Pipe, Failure> {
        let child = Child::echo(size, mode, None)?;
        child.socket.set_nonblocking(true).map_err(lost)?;
        Ok(Pipe { child, buffer: vec![7; size], in_flight: 0 })
    }

    /// Writes until the window is full.
    fn fill(&mut self) -> Result<(), Failure> {
        while self.in_flight + self.buffer.len() <= WINDOW {
            match self.child.socket.write(&self.buffer) {
                Ok(count) => self.in_flight += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(lost(error)),
            }
        }
        Ok(())
    }

    /// Reads until nothing is there or half of the window is free. Returns the bytes.
    fn take(&mut self) -> Result<usize, Failure> {
        let mut received = 0;
        while self.in_flight > WINDOW / 2 {
            match self.child.socket.read(&mut self.buffer) {
                Ok(0) => return Err(lost(ErrorKind::UnexpectedEof.into())),
                Ok(count) => {
                    self.in_flight -= count;
                    received += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(lost(error)),
            }
        }
        Ok(received)
    }
}

/// P10, ours: the memory of one burst, and the median time of several.
pub(super) fn memory(plan: &SamplePlan) -> Result<Sample, Failure> {
    let mut rig = roomy_rig(plan)?;
    let before = resident_bytes()?;
    let start = Instant::now();
    let batch = rig.submit(plan.size, |_| echo_64(), is_64_bytes);
    let submitting = start.elapsed();
    let grown = resident_bytes()?.saturating_sub(before);
    let mut times = vec![rig.finish(&batch)?];
    for _ in 1..bursts_for_time(plan) {
        times.push(rig.burst(plan.size, |_| echo_64(), is_64_bytes)?);
    }
    let jobs = plan.size as f64;
    let per_job = |time: Duration| time.as_secs_f64() * 1e6 / jobs;
    let median = Times::of(times).at(0.5);
    Ok(Sample::of(grown as f64 / jobs)
        .with("us_per_job", per_job(median))
        .with("submit_us", per_job(submitting))
        .with("jobs", jobs))
}

/// A burst of many jobs is long enough by itself.
fn bursts_for_time(plan: &SamplePlan) -> u64 {
    plan.pick(1, (JOBS_IN_TOTAL / plan.size.max(1)).clamp(1, 50))
}

/// The smallest callback that has something of its own.
type Callback = Box<dyn FnOnce() -> usize>;

/// P10, limit: payloads and callbacks alone.
pub(super) fn memory_limit(plan: &SamplePlan) -> Result<Sample, Failure> {
    use_up_free_memory()?;
    let shared = Rc::new(());
    let before = resident_bytes()?;
    let mut kept: Vec<(Vec<u8>, Callback)> = Vec::with_capacity(usize::try_from(plan.size).unwrap_or(0));
    for _ in 0..plan.size {
        let shared = Rc::clone(&shared);
        kept.push((vec![b'x'; MESSAGE], Box::new(move || Rc::strong_count(&shared))));
    }
    let grown = resident_bytes()?.saturating_sub(before);
    black_box(kept);
    Ok(Sample::of(grown as f64 / plan.size as f64))
}

/// Allocates small pieces, which are never freed, until the allocator has to ask the kernel for more. What comes after
/// is not hidden by memory that was left from before.
fn use_up_free_memory() -> Result<(), Failure> {
    const MUCH: u64 = 256 << 10;
    let before = resident_bytes()?;
    while resident_bytes()? < before + MUCH {
        (0..1_000).for_each(|_| {
            black_box(Box::leak(Box::new([7_u8; MESSAGE])));
        });
    }
    Ok(())
}

/// The anonymous memory of this process that is resident.
fn resident_bytes() -> Result<u64, Failure> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")
        .map_err(|error| Failure::internal("cannot read how much memory this process has", error))?;
    anonymous_bytes(&text).ok_or_else(|| {
        Failure::Internal("the kernel does not say how much memory this process has".to_owned())
    })
}

fn anonymous_bytes(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::super::sample::Effort;
    use super::*;

    #[test]
    fn the_memory_of_this_process_is_known_and_grows_with_what_is_kept() {
        assert_eq!(anonymous_bytes("Rss:  7 kB\nAnonymous:      12 kB\n"), Some(12 * 1024));
        assert_eq!(anonymous_bytes("Rss: 7 kB\n"), None);
        let before = resident_bytes().unwrap();
        let kept = std::hint::black_box(vec![7_u8; 64 << 20]);
        assert!(resident_bytes().unwrap() > before + (32 << 20), "{}", kept.len());
    }

    #[test]
    fn a_short_burst_is_repeated_and_a_long_one_is_not() {
        let plan = |size| SamplePlan { size, workers: 2, effort: Effort::Normal, rounds: 1 };
        assert_eq!([1_000, 32_000, 1_000_000].map(|size| bursts_for_time(&plan(size))), [50, 3, 1]);
        assert_eq!([1_000, 10_000, 100_000].map(|size| bursts(&plan(size))), [50, 10, 3]);
    }
}
