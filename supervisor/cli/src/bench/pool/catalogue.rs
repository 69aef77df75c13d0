//! Every workload in one table: what it is called, in which sizes it is measured, what we want to reach, and the two
//! functions that measure it. Everything else (help, rounds, table, JSON) is made from this table.
//!
//! The names P1 to P14 are those of the list of performance goals; P8, P9 and P11 are measured elsewhere, because they
//! are not about the pool.

use super::super::super::failure::Failure;
use super::sample::{Sample, SamplePlan};
use super::{compute, faults, idling, many_jobs, programs, round_trips, starting};
use clap::ValueEnum;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The name of a workload on the command line and in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in super::super) enum WorkloadName {
    /// Echo, one job at a time: time of a round trip
    P1,
    /// Echo of 64 B, many jobs in flight: jobs per second
    P2,
    /// Echo of a large payload, one at a time: time of a round trip
    P3,
    /// Jobs of equal length submitted at once: share of the workers' time that they compute
    P4,
    /// Lateness of a 1 ms interval on the event loop while it does p4
    P5,
    /// A worker is killed while jobs are queued: time until its job is told, and until a new worker runs a job
    P6,
    /// From making a pool to its first result
    P7,
    /// Memory of the supervisor per queued job of 64 B, and time per job
    P10,
    /// A worker is killed every 50 ms: throughput beside that without kills
    P12,
    /// Wake-ups per second of an idle supervisor
    P13,
    /// A program for each job, one at a time: time of a round trip
    P14,
}

impl WorkloadName {
    /// As it is typed.
    pub(super) fn text(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// What is measured in one process: the figure, and others beside it.
pub(super) type Measure = fn(&SamplePlan) -> Result<Sample, Failure>;

/// One workload.
pub(super) struct Workload {
    /// Its name.
    pub(super) name: WorkloadName,
    /// What is done, for the table.
    pub(super) title: &'static str,
    /// What the size counts.
    pub(super) size_is: &'static str,
    /// The unit of the limit and of our figure.
    pub(super) unit: &'static str,
    /// The three sizes.
    pub(super) sizes: [u64; 3],
    /// The same with `--quick`.
    pub(super) quick_sizes: [u64; 3],
    /// What we want to reach.
    pub(super) goals: &'static [Goal],
    /// The further figure whose growth from the smallest size is shown, as `growth`.
    pub(super) grows: Option<&'static str>,
    /// Measures what the machine allows.
    pub(super) limit: Measure,
    /// Measures the pool.
    pub(super) ours: Measure,
}

/// Something that we want to reach.
pub(super) struct Goal {
    /// The figure: [`OURS`], [`RATIO`], or a further figure of ours.
    pub(super) figure: &'static str,
    /// The bound.
    pub(super) bound: Bound,
    /// For these sizes; for all if there are none.
    pub(super) sizes: &'static [u64],
}

/// Our figure itself.
pub(super) const OURS: &str = "ours";

/// Our figure divided by the limit.
pub(super) const RATIO: &str = "ratio";

/// A bound of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    /// Less is better.
    AtMost(f64),
    /// More is better.
    AtLeast(f64),
}

impl Bound {
    /// Whether a figure keeps it.
    pub(super) fn holds(self, figure: f64) -> bool {
        match self {
            Bound::AtMost(most) => figure <= most,
            Bound::AtLeast(least) => figure >= least,
        }
    }
}

const fn at_most(figure: &'static str, most: f64, sizes: &'static [u64]) -> Goal {
    Goal { figure, bound: Bound::AtMost(most), sizes }
}

const fn at_least(figure: &'static str, least: f64, sizes: &'static [u64]) -> Goal {
    Goal { figure, bound: Bound::AtLeast(least), sizes }
}

/// All workloads, in the order in which a round measures them.
pub(super) static CATALOGUE: [Workload; 11] = [
    Workload {
        name: WorkloadName::P1,
        title: "echo, one at a time, p50",
        size_is: "bytes",
        unit: "us",
        sizes: [64, 4 * KIB, 64 * KIB],
        quick_sizes: [64, 4 * KIB, 64 * KIB],
        goals: &[at_most(OURS, 12.0, &[64]), at_most(RATIO, 1.25, &[64])],
        grows: None,
        limit: round_trips::small_limit,
        ours: round_trips::small,
    },
    Workload {
        name: WorkloadName::P2,
        title: "echo of 64 B, many in flight",
        size_is: "jobs in flight",
        unit: "jobs/s",
        sizes: [1_000, 10_000, 100_000],
        quick_sizes: [1_000, 10_000, 100_000],
        goals: &[at_least(OURS, 2e6, &[10_000])],
        grows: None,
        limit: many_jobs::throughput_limit,
        ours: many_jobs::throughput,
    },
    Workload {
        name: WorkloadName::P3,
        title: "echo of a large payload",
        size_is: "bytes",
        unit: "ms",
        sizes: [64 * KIB, MIB, 64 * MIB],
        quick_sizes: [64 * KIB, MIB, 64 * MIB],
        goals: &[at_most(RATIO, 0.7, &[MIB, 64 * MIB])],
        grows: None,
        limit: round_trips::large_limit,
        ours: round_trips::large,
    },
    Workload {
        name: WorkloadName::P4,
        title: "computing jobs at once, efficiency",
        size_is: "us a job",
        unit: "ratio",
        sizes: [100, 1_000, 10_000],
        quick_sizes: [100, 1_000, 10_000],
        goals: &[at_least(OURS, 0.97, &[1_000])],
        grows: None,
        limit: compute::efficiency_limit,
        ours: compute::efficiency,
    },
    Workload {
        name: WorkloadName::P5,
        title: "lag of a 1 ms interval during p4, p99",
        size_is: "us a job",
        unit: "ms",
        sizes: [100, 1_000, 10_000],
        quick_sizes: [100, 1_000, 10_000],
        goals: &[at_most(OURS, 0.5, &[1_000]), at_most("max_ms", 2.0, &[1_000])],
        grows: None,
        limit: compute::lag_limit,
        ours: compute::lag,
    },
    Workload {
        name: WorkloadName::P6,
        title: "a worker is killed, its job is told",
        size_is: "jobs queued",
        unit: "ms",
        sizes: [10, 100, 1_000],
        quick_sizes: [10, 100, 1_000],
        goals: &[
            at_most(OURS, 2.0, &[]),
            at_most("serves_ms", 2.0, &[]),
            at_most("all_done_of_ideal", 1.1, &[100]),
        ],
        grows: None,
        limit: starting::child_limit,
        ours: faults::one_death,
    },
    Workload {
        name: WorkloadName::P7,
        title: "new pool to first result",
        size_is: "workers",
        unit: "ms",
        sizes: [1, 2, 4],
        quick_sizes: [1, 2, 4],
        goals: &[at_most(OURS, 2.5, &[2]), at_most("run_ms", 10.0, &[])],
        grows: None,
        limit: starting::pool_limit,
        ours: starting::pool,
    },
    Workload {
        name: WorkloadName::P10,
        title: "memory per queued job of 64 B",
        size_is: "jobs queued",
        unit: "bytes",
        sizes: [1_000, 32_000, 1_000_000],
        quick_sizes: [1_000, 8_000, 32_000],
        goals: &[at_most(OURS, 400.0, &[32_000, 1_000_000]), at_most("growth", 1.3, &[1_000_000])],
        grows: Some("us_per_job"),
        limit: many_jobs::memory_limit,
        ours: many_jobs::memory,
    },
    Workload {
        name: WorkloadName::P12,
        title: "a worker killed every 50 ms, throughput",
        size_is: "us a job",
        unit: "ratio",
        sizes: [1_000, 3_000, 10_000],
        quick_sizes: [1_000, 3_000, 10_000],
        goals: &[at_least(RATIO, 0.95, &[])],
        grows: None,
        limit: faults::many_deaths_limit,
        ours: faults::many_deaths,
    },
    Workload {
        name: WorkloadName::P13,
        title: "wake-ups of an idle supervisor",
        size_is: "idle clients",
        unit: "1/s",
        sizes: [0, 100, 1_000],
        quick_sizes: [0, 100, 1_000],
        goals: &[at_most(OURS, 2.0, &[])],
        grows: None,
        limit: idling::sleeper_limit,
        ours: idling::supervisor,
    },
    Workload {
        name: WorkloadName::P14,
        title: "a program for each job, p50",
        size_is: "bytes",
        unit: "us",
        sizes: [64, 4 * KIB, 64 * KIB],
        quick_sizes: [64, 4 * KIB, 64 * KIB],
        goals: &[at_most(RATIO, 1.3, &[])],
        grows: None,
        limit: programs::programs_limit,
        ours: programs::programs,
    },
];

impl Workload {
    /// The workload of this name.
    pub(super) fn find(name: WorkloadName) -> &'static Workload {
        CATALOGUE.iter().find(|workload| workload.name == name).expect("each name is in the table")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_in_the_table_once() {
        for name in WorkloadName::value_variants() {
            assert_eq!(CATALOGUE.iter().filter(|workload| workload.name == *name).count(), 1, "{name:?}");
        }
    }

    #[test]
    fn sizes_grow_and_goals_are_for_sizes_that_are_measured() {
        for workload in &CATALOGUE {
            for sizes in [workload.sizes, workload.quick_sizes] {
                assert!(sizes.is_sorted_by(|one, next| one < next), "{:?}", workload.name);
            }
            let wanted = workload.goals.iter().flat_map(|goal| goal.sizes);
            wanted.for_each(|size| assert!(workload.sizes.contains(size), "{:?} {size}", workload.name));
        }
    }
}
