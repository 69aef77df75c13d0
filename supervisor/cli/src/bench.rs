//! `offload bench`: `compare` shows offloading beside the ways to do the same work on the event loop; `pool` shows the
//! pool beside what the machine allows (see `bench/pool.rs`). This file is about `compare`.
//!
//! ```text
//!   prober, a thread               event loop                        threads, or workers, for some of the strategies
//!   one probe per millisecond  --> reply; its delay is recorded
//!                                  jobs, one after another  <-- or -->  jobs, one in each worker
//! ```
//!
//! | read | for |
//! |---|---|
//! | `bench/compare.rs` | the verb: what is compared |
//! | `bench/comparison.rs` | **start here**: the rounds, and how their samples come together |
//! | `bench/strategy.rs` | the strategies, and how a sample of one is taken |
//! | `bench/statistics.rs` | what several samples say, and when a difference is one |
//! | `bench/jobs.rs` | runs one job after another until the time is up, and checks each answer |
//! | `bench/bench_task.rs` | the built-in tasks |
//! | `bench/workload.rs`, `bench/array.rs` | what a job computes: at once, in steps, or by a worker |
//! | `bench/own_work.rs` | jobs of which only somebody's own workers know what they are |
//! | `bench/peers.rs`, `bench/peers/` | the same jobs in Node.js and Python |
//! | `bench/prober.rs` | measures how long other users of the loop wait meanwhile |
//! | `bench/lag.rs` | how late a timer of the loop is meanwhile, and when |
//! | `bench/machine.rs` | the cores, and what else they do meanwhile |
//! | `bench/conditions.rs` | what held the cores back meanwhile |
//! | `bench/baseline.rs` | the result beside that of an earlier run |
//! | `bench/advise.rs`, `bench/advice.rs` | from which size on to offload: the verb, and the model behind it |
//! | `bench/report.rs`, `bench/rows.rs` | the result, as a table and as a JSON document |
//! | `bench/page.rs`, `bench/page/` | the result as a page with plots |

mod advice;
mod advise;
mod array;
mod baseline;
mod bench_task;
mod compare;
mod comparison;
mod conditions;
mod folder;
mod jobs;
mod lag;
mod machine;
mod memory;
mod own_work;
mod page;
mod peers;
pub(crate) mod pool;
mod prober;
mod report;
mod rows;
mod seeds;
mod statistics;
mod strategy;
mod synthetic;
mod workload;

use super::failure::VerbResult;
use super::flags::Globals;
use clap::{Args, Subcommand};

/// Compare offloading with doing the work on the event loop, or the pool with the limits of the machine
#[derive(Args, Debug)]
pub(crate) struct Bench {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Compare(Box<compare::Compare>),
    Advise(advise::Advise),
    Pool(pool::PoolBench),
    Seeds(seeds::Seeds),
}

impl Bench {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        match self.verb {
            Verb::Compare(compare) => compare.run(globals),
            Verb::Advise(advise) => advise.run(globals),
            Verb::Pool(pool) => pool.run(globals),
            Verb::Seeds(seeds) => seeds.run(globals),
        }
    }
}
