//! A worker is killed in the middle of its job. The job is tried again by another one, and nobody else notices.
//!
//! `cargo run --release -p examples --bin survive_a_crash`

use offload_supervisor::{ComputePool, EventLoop, Job, PoolConfig, Program};
use rustix::process::{Pid, Signal, kill_process};
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("worker") {
        return Ok(offload_worker::builtin::serve(false));
    }

    let mut event_loop = EventLoop::new()?;
    let pool = ComputePool::start(PoolConfig::with(Program::builtin(false)), &event_loop)?;

    pool.submit(Job::new("sleep").input("200"), |finished, _cx| {
        println!("the victim's job: {} after {} attempts", finished.report.outcome, finished.report.attempts);
    });
    pool.submit(Job::new("primes").input("1000000"), |finished, _cx| {
        println!("another job: {} after {} attempt", finished.report.outcome, finished.report.attempts);
    });
    kill_whoever_sleeps(&pool, &event_loop);

    event_loop.run()?;
    Ok(ExitCode::SUCCESS)
}

/// Looks every millisecond, until the job runs, and then kills the process that runs it.
fn kill_whoever_sleeps(pool: &ComputePool, handle: &offload_event_loop::LoopHandle) {
    let pool = pool.clone();
    handle.set_timeout(Duration::from_millis(1), move |cx| {
        let workers = pool.workers();
        let sleeper = workers.iter().find(|worker| worker.task.as_deref() == Some("sleep"));
        match sleeper.and_then(|worker| Pid::from_raw(worker.pid?.try_into().ok()?)) {
            Some(pid) => {
                println!("killing worker process {}", pid.as_raw_nonzero());
                let _ = kill_process(pid, Signal::KILL);
            }
            None => kill_whoever_sleeps(&pool, cx),
        }
    });
}
