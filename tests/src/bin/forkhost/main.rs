//! A program with a pool that forks. The child drops its copies of the pool and of the loop, and the parent goes on.
//!
//! ```text
//! forkhost WORKER...           its workers are this command
//! ```

mod storm;
mod sys;

use offload_supervisor::io_pool::{IoHandle, IoPool, IoPoolConfig};
use offload_supervisor::{ComputePool, Context, EventLoop, Job, PoolConfig, Program};
use std::cell::Cell;
use std::error::Error;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::thread::JoinHandle;

/// How often it forks while its threads are at work. The lock of one of them is hardly ever free at all of these moments.
const BUSY_FORKS: usize = 20;
/// How many posts and parts of tasks there are meanwhile: some milliseconds of work.
const POSTS: usize = 50_000;

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

/// Threads begin to post to the loop and to take parts of tasks, and have one lock or another nearly all the time.
fn begin_to_work(event_loop: &EventLoop, threads: &IoHandle) -> JoinHandle<()> {
    for _ in 0..4 {
        let mut left = POSTS;
        let part = move || {
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        threads.submit_parts(part, |_, _| ());
    }
    let (remote, (say_begun, begun)) = (event_loop.remote(), std::sync::mpsc::channel());
    let posting = std::thread::spawn(move || {
        for _ in 0..POSTS {
            remote.post(|_| ()).expect("the loop of the parent is there");
            // Whoever waits for the first one hears no other.
            let _ = say_begun.send(());
        }
    });
    begun.recv().expect("it posts");
    posting
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
    let threads = IoPool::new(&event_loop, IoPoolConfig::default())?;
    for _ in 0..BUSY_FORKS {
        let posting = begin_to_work(&event_loop, &threads);
        if !sys::fork_and_wait()? {
            drop(threads);
            drop(event_loop);
            std::process::exit(0);
        }
        posting.join().map_err(|_| "posting has failed")?;
        event_loop.run()?;
    }
    println!("{BUSY_FORKS} children have dropped what was in use");
    storm::fork_in_a_storm(pool, event_loop)
}
