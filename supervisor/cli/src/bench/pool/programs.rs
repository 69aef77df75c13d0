//! P14: a program for each job (`--exec`), which sends its input back, one job at a time.
//!
//! The limit is the same program, started by posix_spawn with the same pipes by a process that does nothing else. It is as nice as
//! a worker, so that others on the machine cost both the same.

use super::super::super::exec::{adapter, exec_task};
use super::super::super::failure::Failure;
use super::rig::Rig;
use super::round_trips::echoes;
use super::sample::{Sample, SamplePlan, Times};
use crate::configuration::TaskProgram;
use offload_worker::confine::{Limits, confine};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What sends its input back.
const PROGRAM: &str = "cat";

/// What [`Rig`] calls a task that does so.
const TASK: &str = "echo";

const WARM_UP: u64 = 10;

/// P14, ours.
pub(super) fn programs(plan: &SamplePlan) -> Result<Sample, Failure> {
    let said = TaskProgram { words: vec![PROGRAM.to_owned()], ..TaskProgram::default() };
    let task = exec_task(TASK, &said).map_err(Failure::Usage)?;
    let mut rig = Rig::with(adapter(&[task]), 1)?;
    let times = echoes(&mut rig, plan.size, WARM_UP, repetitions(plan))?;
    Ok(Sample::of(times.us(0.5)).with("p99_us", times.us(0.99)).with("jobs", times.count()))
}

/// P14, limit.
pub(super) fn programs_limit(plan: &SamplePlan) -> Result<Sample, Failure> {
    let internal = |what| move |error| Failure::internal(what, error);
    confine(&Limits::from_environment())
        .map_err(|error| Failure::internal("cannot be like a worker", error))?;
    let said = TaskProgram { words: vec![PROGRAM.to_owned()], ..TaskProgram::default() };
    let program = exec_task(TASK, &said).map_err(Failure::Usage)?.program;
    let input = vec![b'x'; usize::try_from(plan.size).unwrap_or(0)];
    let times: Result<Vec<Duration>, Failure> = (0..WARM_UP + repetitions(plan))
        .map(|_| round_trip(&program, &input).map_err(internal("cannot run a program")))
        .collect();
    let times = Times::of(times?.split_off(WARM_UP as usize));
    Ok(Sample::of(times.us(0.5)).with("p99_us", times.us(0.99)))
}

fn repetitions(plan: &SamplePlan) -> u64 {
    plan.pick(20, 500)
}

/// The input fits into a pipe, so nothing waits for anything that waits for this process.
fn round_trip(program: &PathBuf, input: &[u8]) -> std::io::Result<Duration> {
    let start = Instant::now();
    let mut command = Command::new(program);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input)?;
    }
    let mut output = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_end(&mut output)?;
    }
    let ended = child.wait()?;
    match ended.success() && output == input {
        true => Ok(start.elapsed()),
        false => Err(std::io::Error::other("it did not send its input back")),
    }
}
