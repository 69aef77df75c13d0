//! `offload bench pool`: how close the pool of worker processes comes to what this machine allows.
//!
//! A figure alone says little: it is another one on another machine, and on the same machine while something else runs.
//! So every figure of ours stands beside a limit that the same machine shows in the same minutes, for the same work done
//! without a pool.
//!
//! ```text
//!   round 1   p1 64 B: limit, ours | p1 4 KiB: limit, ours | ... | p14: limit, ours    a process for each sample,
//!   round 2   the same once more, so that a noisy minute meets all workloads alike     so that none inherits a heap
//!   ...
//!   the end   the median of each figure and how far its samples lie apart, as a table or as JSON Lines
//! ```
//!
//! | read | for |
//! |---|---|
//! | `pool/catalogue.rs` | **start here**: every workload with its sizes, its goals and what measures it |
//! | `pool/rounds.rs` | runs the samples, each in a process of its own, and puts them together |
//! | `pool/sample.rs` | what one process measured, on its way to the one that asked |
//! | `pool/report.rs` | the result, as a table and as JSON Lines |
//! | `pool/rig.rs` | a pool with its event loop, as any program would use it |
//! | `pool/children.rs` | children without a pool: the limits are measured with them |
//! | `pool/round_trips.rs`, `many_jobs.rs`, `compute.rs`, `faults.rs`, `starting.rs`, `idling.rs`, `programs.rs` | the workloads |
//! | `pool/burn.rs` | arithmetic that takes a given time |
//! | `pool/peer_protocol.rs`, `peer_crash.rs` | the same work as programs that compare pools ask for it |
//! | `pool/helper.rs` | the hidden verb behind all processes that are started here |

mod burn;
mod catalogue;
mod children;
mod compute;
mod faults;
pub(crate) mod helper;
mod idling;
mod many_jobs;
mod peer_crash;
mod peer_protocol;
mod programs;
mod report;
mod rig;
mod round_trips;
mod rounds;
mod sample;
mod starting;

use super::super::failure::{Failure, OK, VerbResult};
use super::super::flags::Globals;
use super::super::output::{print, print_line, say};
use super::machine::{Machine, Noise};
use catalogue::{CATALOGUE, Workload, WorkloadName};
use clap::Args;
use rounds::Plan;
use sample::Effort;

/// Rounds unless told otherwise: the fewest that have a median that one bad sample does not move.
const ROUNDS_DEFAULT: u32 = 3;

const EXAMPLES: &str = "\
Examples:
  offload bench pool                             all workloads in three rounds; takes some minutes
  offload bench pool --only p1,p4 --rounds 5     two of them
  offload bench pool --quick --json              does everything still work?

LIMIT is what this machine does in the same minutes without a pool, RATIO is OURS / LIMIT. Times and ratios of
different runs cannot be compared if the machine was busy in one of them.";

/// Measure the pool beside what this machine allows: latency, throughput, memory, crashes, idling
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct PoolBench {
    /// Only these workloads [default: all]
    #[arg(long, value_name = "P1,P2", value_enum, value_delimiter = ',')]
    only: Vec<WorkloadName>,

    /// Measure everything so often, and take the medians [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,

    /// Only so little of each workload that it is seen to work; the figures are rough
    #[arg(long)]
    quick: bool,

    /// Kill workers for 60 s instead of 10 s (p12), and watch idle supervisors for 60 s instead of 9 s (p13); all rounds
    /// together
    #[arg(long, conflicts_with = "quick")]
    long: bool,

    /// Number of worker processes
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,

    /// Speak the protocol of programs that compare pools: PEER_WORKERS, PEER_WORKLOADS (w1 to w7) and PEER_QUICK in
    /// the environment, a JSON object per workload on standard output
    #[arg(long, conflicts_with_all = ["only", "rounds", "quick", "long", "workers"])]
    as_peer: bool,
}

impl PoolBench {
    /// Runs the verb.
    pub(super) fn run(&self, globals: &Globals) -> VerbResult {
        if self.as_peer {
            return peer_protocol::run();
        }
        let machine = Machine::describe();
        self.warn_before(&machine, globals);
        let results = rounds::measure(&self.plan(globals))?;
        match globals.json {
            true => results.iter().try_for_each(|result| print_line(report::json(result)))?,
            false => print(report::text(&machine, &results).as_bytes())?,
        }
        warn_after(&results, globals);
        match results.iter().find_map(|result| result.failure.as_ref().map(|why| (result.workload, why))) {
            None => Ok(OK),
            Some((workload, why)) => Err(Failure::Internal(format!("{}: {why}", workload.name.text()))),
        }
    }

    fn plan(&self, globals: &Globals) -> Plan {
        let effort = match (self.quick, self.long) {
            (true, _) => Effort::Quick,
            (false, true) => Effort::Long,
            (false, false) => Effort::Normal,
        };
        let rounds = self.rounds.unwrap_or(if self.quick { 1 } else { ROUNDS_DEFAULT });
        let is_wanted = |workload: &&Workload| self.only.is_empty() || self.only.contains(&workload.name);
        let workloads = CATALOGUE.iter().filter(is_wanted).collect();
        Plan { workloads, rounds, effort, workers: self.workers, is_quiet: globals.quiet }
    }

    fn warn_before(&self, machine: &Machine, globals: &Globals) {
        if globals.quiet {
            return;
        }
        machine.warnings().iter().for_each(|warning| say(warning));
        if self.quick {
            say("--quick measures too little to compare figures; it shows that every workload works");
        }
        if cfg!(debug_assertions) {
            say("this is a debug build: figures of ours are slower than those of a release build");
        }
    }
}

/// Says what kept the machine busy beside the measurement, if it was much.
fn warn_after(results: &[rounds::Measured], globals: &Globals) {
    let noise = Noise::total(results.iter().map(|result| result.noise));
    if let Some(warning) = noise.warning().filter(|_| !globals.quiet) {
        say(&warning);
    }
}
