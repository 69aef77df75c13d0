//! `offload bench-helper` (hidden): every process that `bench pool` starts, in one of several roles. They are this same
//! executable, so the benchmark needs no other program and measures the build that it belongs to.
//!
//! ```text
//!   bench pool --> sample: measures one thing and prints one line
//!                    |--> worker: tasks that compute for a given time, in a pool
//!                    `--> echo, burn, start, clients: children without a pool, which speak on descriptor 0
//! ```

use super::super::super::failure::{Failure, OK, VerbResult};
use super::super::super::output::{print_line, say};
use super::burn;
use super::catalogue::{Workload, WorkloadName};
use super::children::{self, EchoMode};
use super::idling;
use super::sample::{Effort, SamplePlan};
use clap::{Args, Subcommand, ValueEnum};
use offload_worker::Worker;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The running executable, even if the file on disk was replaced.
pub(super) const OWN_EXECUTABLE: &str = "/proc/self/exe";

/// The name of this verb.
pub(super) const VERB: &str = "bench-helper";

/// Longest time of one sample beside what it lasts on purpose. A sample that takes longer hangs, and is given up.
const SAMPLE_TIME_MAX: Duration = Duration::from_secs(120);

/// Play a part in `bench pool`; started by it, never by hand
#[derive(Args, Debug)]
#[command(hide = true)]
pub(crate) struct BenchHelper {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Measure one thing and print it
    Sample(SampleRole),
    /// Run jobs that compute for a given time
    Worker,
    /// Send back what comes
    Echo {
        /// Bytes of a message, or most bytes of one read
        size: usize,
        /// How it is read and written
        #[arg(value_enum)]
        mode: EchoMode,
        /// The core to run on
        #[arg(long)]
        core: Option<usize>,
    },
    /// Compute when told, and say when done
    Burn,
    /// Say that it has started, and end
    Start,
    /// Be idle clients of a supervisor
    Clients {
        /// The path of its socket
        path: PathBuf,
        /// How many
        count: u32,
    },
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Side {
    /// What the machine allows
    Limit,
    /// What the pool reaches
    Ours,
}

#[derive(Args, Debug)]
struct SampleRole {
    /// The workload
    #[arg(value_enum)]
    workload: WorkloadName,
    /// The limit or ours
    #[arg(value_enum)]
    side: Side,
    /// How much is done
    #[arg(value_enum)]
    effort: Effort,
    /// The size
    size: u64,
    /// Worker processes
    workers: usize,
    /// In how many rounds it is measured
    rounds: u32,
}

impl BenchHelper {
    /// Plays the part.
    pub(crate) fn run(self) -> VerbResult {
        match self.role {
            Role::Sample(sample) => sample.run(),
            Role::Worker => Ok(burn::tasks().into_iter().fold(Worker::new(), Worker::with).serve()),
            Role::Echo { size, mode, core } => children::echo(size, mode, core),
            Role::Burn => children::burn(),
            Role::Start => children::say_started(),
            Role::Clients { path, count } => idling::be_clients(&path, count),
        }
    }
}

impl SampleRole {
    fn run(self) -> VerbResult {
        let SampleRole { workload, side, effort, size, workers, rounds } = self;
        let plan = SamplePlan { size, workers, effort, rounds };
        give_up_later();
        let workload = Workload::find(workload);
        let measure = match side {
            Side::Limit => workload.limit,
            Side::Ours => workload.ours,
        };
        print_line(measure(&plan)?.to_json())?;
        Ok(OK)
    }
}

/// Ends this process if it takes far too long, so that a job which is never answered is a failure and no silence.
fn give_up_later() {
    std::thread::spawn(|| {
        std::thread::sleep(SAMPLE_TIME_MAX);
        say(&format!("nothing was measured within {} s", SAMPLE_TIME_MAX.as_secs()));
        std::process::exit(Failure::Internal(String::new()).exit_code().into());
    });
}

/// A command that measures one thing.
pub(super) fn sample_command(workload: WorkloadName, side: Side, plan: &SamplePlan) -> Command {
    let word = |value: Option<clap::builder::PossibleValue>| {
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    };
    let mut command = Command::new(OWN_EXECUTABLE);
    command.args([VERB, "sample", &workload.text()]);
    command.args([word(side.to_possible_value()), word(plan.effort.to_possible_value())]);
    command.args([plan.size.to_string(), plan.workers.to_string(), plan.rounds.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}
