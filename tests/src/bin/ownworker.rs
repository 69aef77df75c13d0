//! A program whose `main` starts a pool whatever its arguments are: it has no branch for its workers.
//!
//! ```text
//! ownworker                    its workers are this same program
//! ownworker WORD...            its workers are this command
//! ```

use offload_supervisor::{ComputePool, EventLoop, Job, PoolConfig, Program};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let is_own = words.is_empty() || words == ["own"];
    let workers = if is_own { Program::own("own", &["own"]) } else { Program::command(words) };
    let mut config = PoolConfig::with(workers);
    config.core.workers = 2;
    config.core.max_silent_starts = 1;
    let mut event_loop = EventLoop::new()?;
    let pool = ComputePool::start(config, &event_loop)?;
    pool.submit(Job::new("echo").input("hello"), |finished, _| match finished.into_output() {
        Ok(output) => println!("{}", String::from_utf8_lossy(&output)),
        Err(error) => println!("{error}"),
    });
    event_loop.run()?;
    Ok(())
}
