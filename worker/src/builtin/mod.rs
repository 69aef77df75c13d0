//! The built-in tasks. All are idempotent and run in the CPU lane. All parameters are bounded, and a value over its bound is
//! refused with a message that names the bound. `primes` and `average` are done in steps: they report progress, let short
//! jobs run between their steps, and can go on from a checkpoint.
//!
//! | task | input | output | bound | cost of n |
//! |---|---|---|---|---|
//! | `echo` | any bytes | the same, with their media type | | O(1), nothing is copied |
//! | `primes` | n | `{"count","largest"}` of the primes up to n | n <= 10^9 | O(n log log n) |
//! | `primes.batch` | n, of several jobs at once | the same | n <= 10^7 | O(n log log n) of the largest n |
//! | `average` | n | the average of 1..n, by adding them up | 1 <= n <= 10^10 | O(n) |
//! | `json` | a JSON document | `{"bytes","values","depth","minified_bytes","largest_array"}` | depth <= 127 | O(bytes) |
//! | `wordcount` | UTF-8 text | `{"lines","words","bytes","top"}` | | O(bytes) |
//! | `sha256` | any bytes | hexadecimal text | | O(bytes) |
//! | `pbkdf2` | `{"password","salt","iterations","length"}` | hexadecimal text | iterations <= 10^7, length <= 1024 | O(iterations x length) |
//! | `regex` | `{"pattern","text","engine"}` | `{"matched"}` | pattern <= 4096 bytes | linear: O(bytes); backtracking: exponential |
//! | `gzip` | any bytes | bytes | | O(bytes) |
//! | `gunzip` | a gzip file | bytes | 64 MiB and 1000 times the input | O(bytes of output) |
//! | `thumbnail` | a PNG or JPEG file | a PNG file, longest side 256 | 2^26 pixels | O(pixels) |
//! | `mandelbrot` | `{"x","y","scale","width","height","iterations"}` | a PNG file | sides <= 4096, iterations <= 10^4 | O(width x height x iterations) |
//! | `sort` | an array of numbers or of strings | the same, sorted | | O(n log n) |
//! | `count` | n, or `{"to","every_ms"}` | the numbers 1..n, a line each, in parts | n <= 10^10 | O(n) |
//! | `sleep` | ms | null | ms <= 3,600,000 | O(1): occupies its worker, uses no CPU time |
//! | `spin` | ms | rounds done in that much CPU time | ms <= 3,600,000 | O(n) |
//! | `fault` | `{"act","on_attempt","code"}` | `ok`, or none | only where faults are allowed | |
//!
//! JSON inputs are read as JSON whatever their media type says. Whole numbers may be written as `382.0`. Outputs are JSON unless
//! stated otherwise.

pub mod average;
mod compress;
mod count;
mod descriptions;
mod digest;
mod fault;
pub mod json;
mod mandelbrot;
mod pattern;
mod pixels;
pub mod primes;
mod primes_batch;
mod schemas;
mod sort;
mod thumbnail;
mod time;
mod whole;
mod words;

use crate::task::{Input, Output, Task, TaskError};
use crate::worker::Worker;
use std::process::ExitCode;

/// All built-in tasks; `fault`, which misbehaves as it is told, only if `faults` are allowed.
pub fn tasks(faults: bool) -> Vec<Task> {
    let mut tasks = vec![
        echo(),
        primes::task(),
        primes_batch::task(),
        average::task(),
        json::task(),
        words::task(),
        digest::sha256_task(),
        digest::pbkdf2_task(),
        pattern::task(),
        compress::gzip_task(),
        compress::gunzip_task(),
        thumbnail::task(),
        mandelbrot::task(),
        sort::task(),
        count::task(),
        time::sleep_task(),
        time::spin_task(),
    ];
    if faults {
        tasks.push(fault::task());
    }
    tasks.into_iter().map(|task| descriptions::described(task.idempotent())).collect()
}

/// What `pbkdf2`, `regex` and `thumbnail` compute, in this process and in one piece: for programs that compare that with a worker.
/// None for any other name.
///
/// # Errors
/// Those of the task; the inner result has them.
pub fn in_one_piece(task: &str, input: &Input) -> Option<Result<Output, TaskError>> {
    match task {
        "pbkdf2" => Some(digest::derive(input)),
        "regex" => Some(pattern::find(input)),
        "thumbnail" => Some(thumbnail::shrink(input)),
        _ => None,
    }
}

/// The built-in worker: [`Worker::serve`] with [`tasks`].
pub fn serve(faults: bool) -> ExitCode {
    tasks(faults).into_iter().fold(Worker::new(), Worker::with).serve()
}

fn echo() -> Task {
    Task::raw("echo", |input, _| Ok(Output { bytes: input.bytes, media_type: input.media_type }))
}
