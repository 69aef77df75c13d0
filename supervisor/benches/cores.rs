//! Seed claim S57: workers beyond the number of cores gain nothing. Runs the same jobs on a pool with as many workers
//! as cores, with twice as many and with one more than that, and prints what each reached.
//!
//! `cargo bench -p offload-supervisor --bench cores -- [--quick]`

use std::cell::Cell;
use std::error::Error;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use offload_supervisor::{
    ComputePool, Context, EventLoop, Finished, Job, PoolConfig, Program, default_workers,
};

/// Jobs that only compute, of about so many numbers each.
struct Load {
    numbers: [&'static str; 3],
    jobs: u32,
    rounds: usize,
}

const FULL: Load = Load { numbers: ["1000000", "3000000", "10000000"], jobs: 64, rounds: 3 };
const QUICK: Load = Load { numbers: ["1000", "3000", "10000"], jobs: 4, rounds: 1 };

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    // The pool starts this same program again as its worker.
    if has("worker") {
        return Ok(offload_worker::builtin::serve(false));
    }
    // `cargo test` asks for a list, or with a filter that is meant for others.
    let is_bench = has("--bench");
    if has("--list") || (!is_bench && arguments.iter().any(|argument| !argument.starts_with('-'))) {
        return Ok(ExitCode::SUCCESS);
    }
    compare(if is_bench && !has("--quick") { &FULL } else { &QUICK })?;
    Ok(ExitCode::SUCCESS)
}

fn compare(load: &Load) -> Result<(), Box<dyn Error>> {
    let cores = default_workers();
    let busy = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let busy = busy.split(' ').next().unwrap_or_default();
    println!("primes up to n, {} jobs at once, median of {} rounds", load.jobs, load.rounds);
    println!("{cores} cores; load before the run {busy}, and above 0.5 this says nothing (README.md)");
    println!("| n | workers | jobs/s | beside as many workers as cores |\n|--:|--:|--:|--:|");
    for numbers in load.numbers {
        let counts = [cores, 2 * cores, 2 * cores + 1];
        let mut reached = [const { Vec::new() }; 3];
        for _ in 0..load.rounds {
            for (workers, times) in counts.into_iter().zip(&mut reached) {
                times.push(time_to_do(workers, numbers, load.jobs)?);
            }
        }
        print_rows(numbers, load.jobs, counts.into_iter().zip(reached));
    }
    Ok(())
}

fn print_rows(numbers: &str, jobs: u32, reached: impl Iterator<Item = (usize, Vec<Duration>)>) {
    let mut first = None;
    for (workers, mut times) in reached {
        times.sort_unstable();
        let rate = f64::from(jobs) / times[times.len() / 2].as_secs_f64();
        let first = *first.get_or_insert(rate);
        println!("| {numbers} | {workers} | {rate:.1} | {:.2}x |", rate / first);
    }
}

/// From the first submission to the last result, on workers that have all done a job before.
fn time_to_do(workers: usize, numbers: &'static str, jobs: u32) -> Result<Duration, Box<dyn Error>> {
    let mut event_loop = EventLoop::new()?;
    let mut config = PoolConfig::with(Program::builtin(false));
    config.core.workers = workers;
    let pool = ComputePool::start(config, &event_loop)?;
    do_jobs(&mut event_loop, &pool, "1000", u32::try_from(workers)? * 4)?;
    let begun = Instant::now();
    do_jobs(&mut event_loop, &pool, numbers, jobs)?;
    Ok(begun.elapsed())
}

fn do_jobs(
    event_loop: &mut EventLoop,
    pool: &ComputePool,
    numbers: &'static str,
    jobs: u32,
) -> Result<(), Box<dyn Error>> {
    let done = Rc::new(Cell::new(0));
    for _ in 0..jobs {
        let counter = Rc::clone(&done);
        pool.submit(Job::new("primes").input(numbers), move |finished: Finished, _: &mut Context| {
            finished.into_output().expect("the worker can count");
            counter.set(counter.get() + 1);
        });
    }
    event_loop.run()?;
    assert_eq!(done.get(), jobs, "every job is done");
    Ok(())
}
