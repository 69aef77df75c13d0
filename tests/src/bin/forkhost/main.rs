//! A program with a pool that forks. The child drops its copies of the pool and of the loop, and the parent goes on.
//!
//! ```text
//! forkhost WORKER...           its workers are this command
//! ```

mod storm;
mod sys;

use offload_supervisor::{ComputePool, Context, EventLoop, Job, PoolConfig, Program};
use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;

/// Has a worker do a job, and returns which process that was.
fn worker_of_a_job(pool: &ComputePool, event_loop: &mut Context) -> Result<u32, Box<dyn Error>> {
    let worker = Rc::new(Cell::new(0));
    let told = Rc::clone(&worker);
    pool.submit(Job::new("echo").input("hello"), move |finished, _| {
        assert_eq!(finished.output, "hello", "{finished:?}");
        told.set(finished.report.receipt.worker_pid);
    });
    event_loop.run()?;
    Ok(worker.get())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut config = PoolConfig::with(Program::command(std::env::args().skip(1).collect()));
    (config.core.workers, config.core.spares) = (1, 0);
    let mut event_loop = EventLoop::new()?;
    let pool = ComputePool::start(config, &event_loop)?;
    let before = worker_of_a_job(&pool, &mut event_loop)?;
    for is_pool_first in [true, false] {
        if !sys::fork_and_wait()? {
            if is_pool_first {
                drop(pool);
                drop(event_loop);
            } else {
                drop(event_loop);
                drop(pool);
            }
            std::process::exit(0);
        }
        let after = worker_of_a_job(&pool, &mut event_loop)?;
        println!("{}", if after == before { "the same worker" } else { "another worker" });
    }
    storm::fork_in_a_storm(pool, event_loop)
}
