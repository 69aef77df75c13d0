//! The average of 1 to n in four ways: in one go, in one step an immediate, in as many steps as fit into a millisecond,
//! and by another process. The last column is what any other client has to wait for the loop at most.
//!
//! `cargo run --release -p examples --bin async_average [n]`

use offload_event_loop::Context;
use offload_supervisor::{ComputePool, EventLoop, Job, PoolConfig, Program};
use offload_worker::builtin::average::Average;
use std::cell::Cell;
use std::error::Error;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

type Done = Box<dyn FnOnce(f64)>;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some("worker") {
        return Ok(offload_worker::builtin::serve(false));
    }
    let n: u64 = argument.map_or(Ok(1_000_000), |n| n.parse())?;
    let average = Average::new(n).map_err(|error| error.to_string())?;

    let mut event_loop = EventLoop::new()?;
    let pool = ComputePool::start(PoolConfig::with(Program::builtin(false)), &event_loop)?;
    pool.submit(Job::new("average").input("1"), |_finished, _cx| ()); // its end means that a worker is ready
    event_loop.run()?;

    println!("{:<26} {:>15} {:>14} {:>20}", "the average, computed", "is", "after", "with callbacks up to");
    let again = average.clone();
    time("in one go", &mut event_loop, |_cx, done| done(again.finish()))?;
    let again = average.clone();
    time("in one step an immediate", &mut event_loop, |cx, done| {
        cx.partition(again, Average::step, |_cx, average| done(average));
    })?;
    time("within a budget of 1 ms", &mut event_loop, |cx, done| {
        cx.partition_within(Duration::from_millis(1), average, Average::step, |_cx, average| done(average));
    })?;
    let workers = pool.clone();
    time("by a worker process", &mut event_loop, move |_cx, done| {
        workers.submit(Job::new("average").input(n.to_string()), |finished, _cx| match number(finished) {
            Ok(average) => done(average),
            Err(error) => eprintln!("{error}"),
        });
    })?;
    Ok(ExitCode::SUCCESS)
}

fn number(finished: offload_supervisor::Finished) -> Result<f64, String> {
    serde_json::from_slice(&finished.into_output()?).map_err(|error| error.to_string())
}

/// Lets `compute` find the average on the loop, and prints it with its times.
fn time(
    how: &str,
    event_loop: &mut EventLoop,
    compute: impl FnOnce(&mut Context, Done) + 'static,
) -> Result<(), Box<dyn Error>> {
    let (answer, start) = (Rc::new(Cell::new(None)), Instant::now());
    let result = Rc::clone(&answer);
    let done = Box::new(move |average| result.set(Some((average, start.elapsed()))));
    event_loop.reset_metrics();
    event_loop.set_immediate(|cx| compute(cx, done));
    event_loop.run()?;
    let (average, took) = answer.get().ok_or("there is no result")?;
    let longest = event_loop.metrics().slowest_callback.map_or(Duration::ZERO, |slowest| slowest.duration);
    println!("{how:<26} {average:>15} {:>11.3} ms {:>17.3} ms", milliseconds(took), milliseconds(longest));
    Ok(())
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
