//! A worker whose task `tile` takes up to eight jobs at once, written with the SDK. What a job does is its input:
//!
//! | input | what happens |
//! |---|---|
//! | `crash` | the process aborts |
//! | `panic` | the function panics |
//! | `lose` | the function returns one result less |
//! | `hang` | the function never returns |
//! | `bad` | this job fails by itself |
//! | `wait` | the function waits until its process is ended, but only in a batch of several |
//! | `burn FILE` | the function burns CPU until there is such a file |
//! | anything else | the job returns with how many it ran |
//!
//! The task `lone` waits for so many milliseconds, and keeps the worker from the others. With the argument `burn` the process burns
//! a second of CPU before it says hello.

use offload_worker::{Member, Output, Task, TaskError, Worker};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tests::chaos::process::cpu_time;

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|argument| argument == "burn") {
        while cpu_time(std::process::id()) < Duration::from_secs(1) {}
    }
    let tile = Task::batch("tile", 8, Duration::from_millis(20), tiles);
    let lone = Task::json("lone", |ms: u64, _| {
        std::thread::sleep(Duration::from_millis(ms));
        Ok::<_, TaskError>(())
    });
    Worker::new().with(tile).with(lone.idempotent()).serve()
}

fn tiles(jobs: &[Member]) -> Vec<Result<Output, TaskError>> {
    let asks = |what: &str| jobs.iter().any(|job| job.input.bytes == what);
    if asks("crash") {
        std::process::abort();
    }
    if asks("hang") || (asks("wait") && jobs.len() > 1) {
        loop {
            std::thread::park();
        }
    }
    assert!(!asks("panic"), "as it was told");
    let inputs = jobs.iter().filter_map(|job| std::str::from_utf8(&job.input.bytes).ok());
    for file in inputs.filter_map(|input| input.strip_prefix("burn ")) {
        while !Path::new(file).exists() {}
    }
    let lost = usize::from(asks("lose"));
    let one = |job: &Member| match job.input.bytes == "bad" {
        true => Err(TaskError::new("bad")),
        false => Ok(Output::text(jobs.len().to_string())),
    };
    jobs.iter().skip(lost).map(one).collect()
}
