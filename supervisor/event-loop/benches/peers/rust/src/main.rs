//! The shapes of the benchmarks in tokio and other crates. Usage: `event-loop-peers NAME N`
//!
//! Prints one line of JSON, as all programs that are compared do.

mod meter;
mod others;
mod with_tokio;

use std::process::ExitCode;

use meter::{Meter, same, spread};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let count = arguments.get(2).and_then(|count| count.parse().ok());
    let (Some(name), Some(count)) = (arguments.get(1), count) else { return usage() };
    let Some(bench) = bench(name) else { return usage() };
    bench(count).report(name, count);
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: event-loop-peers NAME N");
    ExitCode::from(2)
}

fn bench(name: &str) -> Option<fn(u64) -> Meter> {
    Some(match name {
        "tokio_yield" => with_tokio::yields,
        "tokio_spawn_local" => with_tokio::tasks,
        "tokio_timers_same" => |n| with_tokio::timers(n, same),
        "tokio_timers_spread" => |n| with_tokio::timers(n, spread),
        "tokio_blocking_64" => |n| with_tokio::stats(n, 64),
        "tokio_blocking_1" => |n| with_tokio::stats(n, 1),
        "tokio_xthread" => with_tokio::pingpong_of_threads,
        "tokio_tcp" => with_tokio::tcp,
        "tokio_spawn_true" => with_tokio::children,
        "std_spawn_true" => others::children,
        "smol_local" => others::smol_tasks,
        "calloop_idle" => others::calloop_iterations,
        "calloop_timers_same" => |n| others::calloop_timers(n, same),
        "calloop_timers_spread" => |n| others::calloop_timers(n, spread),
        "calloop_ping" => others::calloop_ping,
        "mio_wake" => others::mio_wake,
        "mio_tcp" => others::mio_tcp,
        "xthread_eventfd" => others::pingpong_of_eventfds,
        "flood" => others::flood,
        "flood_capturing" => others::flood_capturing,
        _ => return None,
    })
}
