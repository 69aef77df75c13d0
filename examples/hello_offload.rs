//! The smallest use of the library: three jobs, three callbacks, on one loop that never blocks.
//!
//! `cargo run --release -p examples --bin hello_offload`

use offload_supervisor::{ComputePool, EventLoop, Job, PoolConfig, Program};
use std::error::Error;
use std::process::ExitCode;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    // The pool starts this same program again, as `PROGRAM worker`: then it is one of the workers.
    if std::env::args().nth(1).as_deref() == Some("worker") {
        return Ok(offload_worker::builtin::serve(false));
    }

    let mut event_loop = EventLoop::new()?;
    let pool = ComputePool::start(PoolConfig::with(Program::builtin(false)), &event_loop)?;

    for n in ["1000000", "2000000", "3000000"] {
        pool.submit(Job::new("primes").input(n), move |finished, _cx| match finished.into_output() {
            Ok(output) => println!("primes up to {n}: {}", String::from_utf8_lossy(&output)),
            Err(error) => println!("primes up to {n}: {error}"),
        });
    }
    println!("three jobs are submitted, and the loop is free for other things");

    event_loop.run()?; // returns when no job is awaited any more
    Ok(ExitCode::SUCCESS)
}
