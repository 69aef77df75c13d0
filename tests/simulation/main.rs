//! Runs the core of the supervisor in random simulated worlds, without processes, clock or I/O.
//!
//! ```text
//!   seed ---> knobs (CoreConfig) --------------------------.
//!        ---> wishes (submit, cancel, drain ...) ---.      v
//!        ---> faults (which, how often) ---.        '--> agenda --- event, now ---> Core::handle ---> check()
//!                                          v               ^                             |
//!                                    fake processes -------'<--- Spawn, Run, Kill -------+ actions
//!                                          |                                             v
//!                                          '---- what they really did --------------> oracle: O1 ... O25
//! ```
//!
//! A run has three parts. First, wishes come and faults strike. Then no more faults strike, and within 60 virtual seconds
//! each job must have ended and each worker must be ready. At last the core is drained, and nothing may be left.
//!
//! - `OFFLOAD_SIM_SEEDS=20000 cargo test --release -p simulation many_seeds` runs more seeds;
//! - `OFFLOAD_SIM_SEED=7 cargo test -p simulation one_seed -- --nocapture` runs one and prints each event;
//! - `OFFLOAD_SIM_DEEPER=1 cargo test --release -p simulation exhaustive` searches one event deeper;
//! - `cargo run -p simulation look 1000` runs one seed after the other until one breaks a rule;
//! - `cargo run -p simulation story 7` prints the events of a seed that breaks a rule, shortened;
//! - `cargo run -p simulation digest 1000` prints a digest of all that so many seeds did: it is the same before and after
//!   a change that was not meant to change any decision.
//!
//! To add an event or an action: what fake workers send is in `process`, what clients and operators request in `script`,
//! what the shell does in `world` (`apply`), how it is checked in `oracle` (`take_note`, `judge`), and its name in
//! `coverage`.
//!
//! Each seed is also a small world of jobs that run together (`batches.rs`, `oracle/batches.rs`).
//!
//! A seed that fails is made smaller and printed as a list of events (`shrink`). The same seed gives the same run for
//! as long as neither the core nor the simulator is changed.

mod batches;
mod behind;
mod choices;
mod coverage;
#[cfg(test)]
mod exhaustive;
mod faults;
mod ghost;
#[cfg(test)]
mod many;
mod oracle;
mod parts;
mod process;
mod running;
mod script;
mod seeds;
mod shrink;
mod unwritten;
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["look", number] => with_number(number, look),
        ["digest", number] => with_number(number, digest),
        ["story", number] => with_number(number, tell_story),
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("simulation look SEEDS      runs so many seeds, until one breaks a rule");
    eprintln!("simulation digest SEEDS    prints a digest of all events and actions of so many seeds");
    eprintln!("simulation story SEED      prints the events of a seed that breaks a rule, made short");
    ExitCode::from(2)
}

fn with_number(text: &str, answer: fn(u64) -> ExitCode) -> ExitCode {
    match text.parse() {
        Ok(number) => answer(number),
        Err(_) => usage(),
    }
}

/// Exit code 1 if a rule was broken.
fn look(seeds: u64) -> ExitCode {
    let Some((seed, failure)) = seeds::first_broken(seeds) else {
        println!("no rule broken by {seeds} seeds");
        return ExitCode::SUCCESS;
    };
    println!("seed {seed} breaks {}", failure.rule);
    ExitCode::from(1)
}

fn digest(seeds: u64) -> ExitCode {
    println!("{:016x}", seeds::digest(seeds));
    ExitCode::SUCCESS
}

fn tell_story(seed: u64) -> ExitCode {
    println!("{}", seeds::story(seed, &seeds::run));
    ExitCode::SUCCESS
}
