//! The built-in tasks that are measured: their names, their sizes, and how they can be cut.

use super::super::failure::Failure;
use super::workload::{Cut, Documents, Numbers, OnePiece, PrimesUpTo, Workload};
use crate::limits::{BENCH_ELEMENTS_MAX, BENCH_SIDE_MAX, BENCH_TEXT_MAX};
use clap::ValueEnum;

/// A built-in task that can be done in this process, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum BenchTask {
    /// Add up the numbers 1 to N: a step is one addition
    Average,
    /// Measure a JSON document, an array of N elements: a step is one element
    Json,
    /// Count the primes up to N: a step is 65,536 numbers
    Primes,
    /// Derive a key with N iterations, in one piece
    Pbkdf2,
    /// Look for a pattern in a text of N bytes, in one piece
    Regex,
    /// Shrink a picture of N x N pixels, in one piece
    Thumbnail,
}

impl BenchTask {
    /// The one of this name.
    ///
    /// # Errors
    /// A usage error that names those that there are.
    pub(super) fn named(name: &str) -> Result<BenchTask, Failure> {
        let unknown = |_| {
            let names: Vec<_> =
                BenchTask::value_variants().iter().filter_map(ValueEnum::to_possible_value).collect();
            let names: Vec<_> = names.iter().map(|name| name.get_name()).collect();
            Failure::Usage(format!(
                "--task: this process cannot do {name:?} itself, only {}; for any other task of workers say --input, and \
                 --worker, --worker-jsonl or --worker-http if they are yours",
                names.join(", ")
            ))
        };
        BenchTask::from_str(name, false).map_err(unknown)
    }

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            BenchTask::Average => "average",
            BenchTask::Json => "json",
            BenchTask::Primes => "primes",
            BenchTask::Pbkdf2 => "pbkdf2",
            BenchTask::Regex => "regex",
            BenchTask::Thumbnail => "thumbnail",
        }
    }

    /// The smallest and the largest size that say something, and how it can be cut.
    pub(super) fn sizes(self) -> (u64, u64, Cut) {
        match self {
            BenchTask::Average => (1000, 1_000_000_000, Numbers::CUT),
            BenchTask::Json => (8, BENCH_ELEMENTS_MAX, Documents::CUT),
            BenchTask::Primes => (1000, 1_000_000_000, PrimesUpTo::CUT),
            BenchTask::Pbkdf2 => (4, 1_000_000, OnePiece::CUT),
            BenchTask::Regex => (128, BENCH_TEXT_MAX, OnePiece::CUT),
            BenchTask::Thumbnail => (8, BENCH_SIDE_MAX, OnePiece::CUT),
        }
    }

    /// The size that `compare` takes if nobody names one.
    pub(super) fn usual_size(self) -> u64 {
        match self {
            BenchTask::Average | BenchTask::Primes => 1_000_000,
            BenchTask::Json => 20_000,
            BenchTask::Pbkdf2 => 2_000,
            BenchTask::Regex => 100_000,
            BenchTask::Thumbnail => 256,
        }
    }
}
