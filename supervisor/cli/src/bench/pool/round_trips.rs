//! P1 and P3: how long one echo takes when nothing else is going on, for small and for large payloads.
//!
//! The limit is an echo between two processes over a socket pair with blocking reads and writes: for P1 bound to two
//! different cores, where each hop wakes a sleeping core; beside it (`limit_same_core_us`) both on one core, and
//! (`limit_polling_us`) with two ends that never sleep. The pool is bound to nothing.
//!
//! In the limit the receiver has the whole message before it sends it back, as a worker has.

use super::super::super::failure::Failure;
use super::super::machine::{bind_to, cores};
use super::children::Buffer;
use super::children::{Child, EchoMode, lost, read_whole};
use super::rig::Rig;
use super::sample::{Sample, SamplePlan, Times};
use bytes::Bytes;
use std::io::Write;
use std::time::Instant;

/// Round trips that are not counted.
const WARM_UP: u64 = 50;

/// Large round trips that are not counted. After a few of them each worker has its segments.
const WARM_UP_LARGE: u64 = 8;

/// P1, ours.
pub(super) fn small(plan: &SamplePlan) -> Result<Sample, Failure> {
    let mut rig = Rig::echo(plan.workers, |_| {})?;
    let times = echoes(&mut rig, plan.size, WARM_UP, plan.pick(300, 3_000))?;
    Ok(Sample::of(times.us(0.5)).with("p99_us", times.us(0.99)).with("jobs", times.count()))
}

/// P3, ours.
pub(super) fn large(plan: &SamplePlan) -> Result<Sample, Failure> {
    let size = plan.size;
    let mut rig = Rig::echo(plan.workers, |core| {
        core.max_payload = core.max_payload.max(size);
        core.max_bytes = core.max_bytes.max(4 * size);
    })?;
    let times = echoes(&mut rig, size, WARM_UP_LARGE, repetitions(plan))?;
    Ok(Sample::of(times.ms(0.5)).with("max_ms", times.ms(1.0)).with("jobs", times.count()))
}

/// Echoes of one payload; the first ones are not counted.
pub(super) fn echoes(rig: &mut Rig, size: u64, warm_up: u64, times: u64) -> Result<Times, Failure> {
    let input = Bytes::from(vec![7_u8; usize::try_from(size).unwrap_or(usize::MAX)]);
    rig.one_after_another(warm_up, &input)?;
    rig.one_after_another(times, &input)
}

/// The larger the payload, the fewer echoes.
fn repetitions(plan: &SamplePlan) -> u64 {
    let (least, most) = plan.pick((2, 30), (5, 300));
    ((64 << 20) / plan.size.max(1)).clamp(least, most)
}

/// P1, limit.
pub(super) fn small_limit(plan: &SamplePlan) -> Result<Sample, Failure> {
    let cores = cores();
    let (here, there) = (cores[0], cores.get(1).copied());
    bind_to(here)?;
    let times = plan.pick(300, 3_000);
    let same = ping_pong(plan.size, EchoMode::Whole, Some(here), times)?.us(0.5);
    let Some(there) = there else {
        return Ok(Sample::of(same).with("same_core_us", same));
    };
    let across = ping_pong(plan.size, EchoMode::Whole, Some(there), times)?.us(0.5);
    let polling = ping_pong(plan.size, EchoMode::Polling, Some(there), times)?.us(0.5);
    Ok(Sample::of(across).with("same_core_us", same).with("polling_us", polling))
}

/// P3, limit.
pub(super) fn large_limit(plan: &SamplePlan) -> Result<Sample, Failure> {
    let times = ping_pong(plan.size, EchoMode::Whole, None, repetitions(plan))?;
    Ok(Sample::of(times.ms(0.5)).with("max_ms", times.ms(1.0)))
}

/// Echoes of a child on this core, or on any.
fn ping_pong(size: u64, mode: EchoMode, core: Option<usize>, times: u64) -> Result<Times, Failure> {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let mut child = Child::echo(size, mode, core)?;
    let (mut message, mut answer) = (Buffer::new(size), Buffer::new(size));
    let warm_up = WARM_UP.min(times);
    child.socket.set_nonblocking(false).map_err(lost)?;
    let mut round_trips = Vec::new();
    for number in 0..warm_up + times {
        // A message of any length can be written only if the socket may block.
        let start = Instant::now();
        child.socket.write_all(message.bytes()).map_err(lost)?;
        if mode == EchoMode::Polling {
            poll_whole(&mut child, answer.bytes())?;
        } else {
            read_whole(&mut child.socket, answer.bytes()).map_err(lost)?;
        }
        if number >= warm_up {
            round_trips.push(start.elapsed());
        }
    }
    Ok(Times::of(round_trips))
}

/// Reads without ever sleeping.
fn poll_whole(child: &mut Child, answer: &mut [u8]) -> Result<(), Failure> {
    use rustix::net::{RecvFlags, recv};
    let mut filled = 0;
    while filled < answer.len() {
        match recv(&child.socket, &mut answer[filled..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(lost(std::io::ErrorKind::UnexpectedEof.into())),
            Ok((count, _)) => filled += count,
            Err(rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(lost(error.into())),
        }
    }
    Ok(())
}
