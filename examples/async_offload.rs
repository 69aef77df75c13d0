//! The same with futures: they run on the loop, on one thread, while the work is done in other processes.
//!
//! `cargo run --release -p examples --bin async_offload`

use offload_supervisor::{ComputePool, EventLoop, Job, PoolConfig, Program};
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

/// Two jobs at the same time; the second one depends on nothing but its own input.
async fn average_of_two(pool: ComputePool) -> Result<f64, String> {
    let first = pool.call(Job::new("average").input("1000000"));
    let second = pool.call(Job::new("average").input("3000000"));
    Ok((number(first.await.into_output()?)? + number(second.await.into_output()?)?) / 2.0)
}

fn number(output: impl AsRef<[u8]>) -> Result<f64, String> {
    serde_json::from_slice(output.as_ref()).map_err(|error| error.to_string())
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("worker") {
        return Ok(offload_worker::builtin::serve(false));
    }

    let mut event_loop = EventLoop::new()?;
    let pool = ComputePool::start(PoolConfig::with(Program::builtin(false)), &event_loop)?;

    let ticking = event_loop.set_interval(Duration::from_millis(1), |_cx| ());
    event_loop.unref(ticking); // the loop keeps ticking while it waits, and does not wait for the ticking

    let answer = event_loop.spawn(average_of_two(pool.clone()));
    let handle = event_loop.handle();
    event_loop.spawn(async move {
        match answer.await {
            Ok(Ok(average)) => println!("average: {average}"),
            Ok(Err(error)) => println!("a job failed: {error}"),
            Err(error) => println!("the future failed: {error}"),
        }
        handle.stop();
    });

    event_loop.run()?;
    Ok(ExitCode::SUCCESS)
}
