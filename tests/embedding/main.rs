//! A pool in programs that have threads and runtimes of their own: `PoolHandle`.

mod auto;
mod axum_service;
mod drains;
mod ends;
mod keys;
mod lives;
mod must_use;
mod own_program;
mod readiness;
mod runtimes;
mod server;
mod server_lives;
mod signals;
mod threads;
mod tracing_log;

use offload_supervisor::event_loop::Remote;
use offload_supervisor::protocol::nouns::OutcomeCode;
use offload_supervisor::{
    ComputePool, EventLoop, Finished, HandleLimits, Job, Level, PendingJob, PoolConfig, PoolHandle, Program,
};
use std::sync::mpsc;
use std::thread::JoinHandle;
use tests::harness::{PATIENCE, program};

fn config(workers: usize) -> PoolConfig {
    let words = ["worker", "--allow-faults"].map(str::to_owned);
    let program = std::iter::once(program("offload").display().to_string()).chain(words).collect();
    let mut config = PoolConfig { log: Level::Quiet, ..PoolConfig::with(Program::command(program)) };
    config.core.workers = workers;
    config
}

/// A pool with its loop, on a thread of its own.
struct Running {
    handle: PoolHandle,
    remote: Remote,
    thread: JoinHandle<()>,
}

impl Running {
    fn with(config: PoolConfig, limits: Option<HandleLimits>) -> Running {
        let (send, receive) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut event_loop = EventLoop::new().unwrap();
            let pool = ComputePool::start(config, &event_loop).unwrap();
            let handle = limits.map_or_else(|| pool.handle(), |limits| pool.handle_with(limits));
            send.send((handle, event_loop.remote())).unwrap();
            drop(pool);
            event_loop.run().unwrap();
        });
        let (handle, remote) = receive.recv_timeout(PATIENCE).expect("the pool starts");
        Running { handle, remote, thread }
    }

    fn with_workers(workers: usize) -> Running {
        Running::with(config(workers), None)
    }

    /// Room for so many jobs of a client that is alone.
    fn with_places(workers: usize, places: usize) -> Running {
        Running::with(config(workers), Some(HandleLimits { jobs: 2 * places, bytes: 1 << 20 }))
    }

    /// The loop ends because nobody has a handle or a job any more.
    fn ends_by_itself(self) {
        drop(self.handle);
        self.thread.join().expect("the loop ends with the last handle");
    }
}

fn echo(text: &str) -> Job {
    Job::new("echo").input(text.to_owned())
}

/// One that ends only if it is cancelled.
fn endless() -> Job {
    Job::new("sleep").input("3600000")
}

fn fault(act: &str) -> Job {
    Job::new("fault").input(format!(r#"{{"act":"{act}"}}"#)).attempts(1)
}

/// A job that its worker does not survive the first time.
fn fault_once(act: &str) -> Job {
    Job::new("fault").input(format!(r#"{{"act":"{act}","on_attempt":1}}"#)).attempts(2)
}

fn end_of(job: PendingJob) -> Finished {
    job.wait(PATIENCE).expect("it ends in time")
}

fn outcome_of(job: PendingJob) -> OutcomeCode {
    end_of(job).report.outcome
}
