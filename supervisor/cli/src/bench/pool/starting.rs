//! P7: from nothing to the first result. The event loop, the pool and its workers are made anew each time; the workers
//! of one size are started together. Beside it, as `run_ms`, a whole `offload run` from its start to its end.
//!
//! The limit is as many children of this executable started at once, until the first of them has sent a byte.

use super::super::super::embedded::{new_event_loop, not_started};
use super::super::super::failure::Failure;
use super::super::strategy::broken;
use super::children::{Child, time_to_start};
use super::helper::OWN_EXECUTABLE;
use super::rig::{config, echo_64, expect_ok};
use super::sample::{Sample, SamplePlan, Times};
use offload_supervisor::{ComputePool, Program};
use rustix::event::{PollFd, PollFlags, poll};
use std::cell::RefCell;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// P7, ours.
pub(super) fn pool(plan: &SamplePlan) -> Result<Sample, Failure> {
    let workers = usize::try_from(plan.size).unwrap_or(1);
    let repetitions = plan.pick(2, 9);
    let pools: Result<Vec<Duration>, Failure> = (0..repetitions).map(|_| first_result(workers)).collect();
    let runs: Result<Vec<Duration>, Failure> = (0..repetitions).map(|_| whole_run(workers)).collect();
    let (pools, runs) = (Times::of(pools?), Times::of(runs?));
    Ok(Sample::of(pools.ms(0.5))
        .with("max_ms", pools.ms(1.0))
        .with("run_ms", runs.ms(0.5))
        .with("jobs", pools.count()))
}

/// From the construction of a pool to its first result.
pub(super) fn first_result(workers: usize) -> Result<Duration, Failure> {
    let start = Instant::now();
    let mut event_loop = new_event_loop()?;
    let pool =
        ComputePool::start(config(Program::builtin(false), workers), &event_loop).map_err(not_started)?;
    let end = Rc::new(RefCell::new(None));
    let note = Rc::clone(&end);
    pool.submit(echo_64(), move |finished, _cx| {
        note.replace(Some(expect_ok(&finished).map(|()| start.elapsed())));
    });
    event_loop.run().map_err(broken)?;
    end.take().unwrap_or_else(|| Err(Failure::Internal("the first job has no end".to_owned())))
}

/// A whole `offload run`.
fn whole_run(workers: usize) -> Result<Duration, Failure> {
    let start = Instant::now();
    let mut command = Command::new(OWN_EXECUTABLE);
    command.args(["run", "echo", "x", "--workers", &workers.to_string()]);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::internal("cannot start a run", error))?;
    let took = start.elapsed();
    match output.status.success() && output.stdout == b"x\n" {
        true => Ok(took),
        false => Err(Failure::Internal(format!("a run failed: {}", String::from_utf8_lossy(&output.stderr)))),
    }
}

/// P7, limit.
pub(super) fn pool_limit(plan: &SamplePlan) -> Result<Sample, Failure> {
    let times: Result<Vec<Duration>, Failure> =
        (0..plan.pick(2, 9)).map(|_| first_of_many(plan.size)).collect();
    Ok(Sample::of(Times::of(times?).ms(0.5)))
}

fn first_of_many(count: u64) -> Result<Duration, Failure> {
    let start = Instant::now();
    let children: Result<Vec<Child>, Failure> = (0..count).map(|_| Child::start(&["start"])).collect();
    let mut children = children?;
    let mut watched: Vec<PollFd> =
        children.iter().map(|child| PollFd::new(&child.socket, PollFlags::IN)).collect();
    poll(&mut watched, None).map_err(|error| Failure::internal("cannot wait for children", error))?;
    let took = start.elapsed();
    children.iter_mut().try_for_each(Child::wait_for_a_byte)?;
    Ok(took)
}

/// The limit of P6, and a part of that of P12: starting one child.
pub(super) fn child_limit(plan: &SamplePlan) -> Result<Sample, Failure> {
    Ok(Sample::of(usual_time_to_start(plan)?.as_secs_f64() * 1e3))
}

/// How long it usually takes to start a child.
///
/// # Errors
/// If none can be started.
pub(super) fn usual_time_to_start(plan: &SamplePlan) -> Result<Duration, Failure> {
    let times: Result<Vec<Duration>, Failure> = (0..plan.pick(3, 20)).map(|_| time_to_start()).collect();
    Ok(Times::of(times?).at(0.5))
}
