//! Runs the samples: everything once, then everything once more, each in a process of its own.
//!
//! ```text
//!   sample: order on the command line -> a child measures -> a line of JSON -> kept
//!           the child fails, or takes longer than its time limit           -> this size is not measured again
//! ```
//!
//! The limit and our figure follow each other directly, because only figures of the same seconds can be compared.

use super::super::super::failure::Failure;
use super::super::super::output::say;
use super::super::machine::{Noise, NoiseMeter};
use super::super::statistics::Spread;
use super::catalogue::{RATIO, Workload};
use super::helper::{Side, sample_command};
use super::sample::{Effort, Sample, SamplePlan};
use std::collections::BTreeMap;
use std::io::{IsTerminal, stderr};

/// What is to be measured.
pub(super) struct Plan {
    /// The workloads, in their order.
    pub(super) workloads: Vec<&'static Workload>,
    /// How often.
    pub(super) rounds: u32,
    /// How much each time.
    pub(super) effort: Effort,
    /// With how many workers.
    pub(super) workers: u32,
    /// Whether nothing is said while it is measured.
    pub(super) is_quiet: bool,
}

/// The result of one workload at one size.
pub(super) struct Measured {
    /// The workload.
    pub(super) workload: &'static Workload,
    /// The size.
    pub(super) size: u64,
    /// What the machine allows.
    pub(super) limit: Option<Spread>,
    /// What we reach.
    pub(super) ours: Option<Spread>,
    /// Further figures by their names: ours, and those of the limit with `limit_` in front. Medians.
    pub(super) further: BTreeMap<String, f64>,
    /// What else used the machine meanwhile.
    pub(super) noise: Noise,
    /// How many samples of ours there are.
    pub(super) rounds: usize,
    /// Why there are no more.
    pub(super) failure: Option<String>,
}

impl Measured {
    /// Our figure divided by the limit, if there is a limit to divide by.
    pub(super) fn ratio(&self) -> Option<f64> {
        let limit = self.limit.map(|limit| limit.median).filter(|limit| *limit != 0.0)?;
        Some(self.ours?.median / limit)
    }
}

/// Measures everything. A workload that fails does not keep the others from being measured.
///
/// # Errors
/// If there are no processes to be had.
pub(super) fn measure(plan: &Plan) -> Result<Vec<Measured>, Failure> {
    let mut collected: Vec<Collected> =
        plan.workloads.iter().flat_map(|workload| all_sizes(workload, plan)).collect();
    for round in 1..=plan.rounds {
        for collected in &mut collected {
            collected.tell(round, plan);
            for side in [Side::Limit, Side::Ours] {
                collected.measure(side, plan)?;
            }
        }
    }
    let mut results: Vec<Measured> = collected.into_iter().map(Collected::finish).collect();
    add_growth(&mut results);
    Ok(results)
}

fn all_sizes(workload: &'static Workload, plan: &Plan) -> Vec<Collected> {
    let sizes = match plan.effort {
        Effort::Quick => workload.quick_sizes,
        Effort::Normal | Effort::Long => workload.sizes,
    };
    sizes.into_iter().map(|size| Collected::new(workload, size)).collect()
}

/// The samples of one workload at one size so far.
struct Collected {
    workload: &'static Workload,
    size: u64,
    limits: Vec<Sample>,
    ours: Vec<Sample>,
    noise: Noise,
    failure: Option<String>,
}

impl Collected {
    fn new(workload: &'static Workload, size: u64) -> Collected {
        Collected {
            workload,
            size,
            limits: Vec::new(),
            ours: Vec::new(),
            noise: Noise::default(),
            failure: None,
        }
    }

    /// Says what happens next, because nothing else is printed until all is measured, which takes minutes.
    fn tell(&self, round: u32, plan: &Plan) {
        if !plan.is_quiet && stderr().is_terminal() {
            let (name, size) = (self.workload.name.text(), self.size);
            say(&format!("round {round} of {}: {name} with {size} {}", plan.rounds, self.workload.size_is));
        }
    }

    fn measure(&mut self, side: Side, plan: &Plan) -> Result<(), Failure> {
        if self.failure.is_some() {
            return Ok(());
        }
        let meter = NoiseMeter::start();
        let sample = run_sample(self.workload, side, &self.sample_plan(plan))?;
        self.noise = Noise::total([self.noise, meter.stop()].into_iter());
        match (sample, side) {
            (Ok(sample), Side::Limit) => self.limits.push(sample),
            (Ok(sample), Side::Ours) => self.ours.push(sample),
            (Err(reason), _) => self.failure = Some(reason),
        }
        Ok(())
    }

    fn sample_plan(&self, plan: &Plan) -> SamplePlan {
        let Plan { effort, rounds, workers, .. } = *plan;
        SamplePlan { size: self.size, workers: workers as usize, effort, rounds }
    }

    fn finish(self) -> Measured {
        let mut further = medians(&self.limits, "limit_");
        further.extend(medians(&self.ours, ""));
        let spread = |samples: &[Sample]| Spread::of(samples.iter().map(Sample::value).collect());
        Measured {
            workload: self.workload,
            size: self.size,
            limit: spread(&self.limits),
            ours: spread(&self.ours),
            further,
            noise: self.noise,
            rounds: self.ours.len(),
            failure: self.failure,
        }
    }
}

/// Runs one sample. The inner error is its own: why this workload cannot be measured.
fn run_sample(workload: &Workload, side: Side, plan: &SamplePlan) -> Result<Result<Sample, String>, Failure> {
    let output = sample_command(workload.name, side, plan)
        .output()
        .map_err(|error| Failure::internal("cannot start a process for a sample", error))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    match (output.status.success(), printed.lines().last()) {
        (true, Some(line)) => Ok(Ok(Sample::parse(line)?)),
        (true, None) => Ok(Err("a sample printed nothing".to_owned())),
        (false, _) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let reason = said.lines().last().unwrap_or("it said nothing").trim_start_matches("offload: ");
            Ok(Err(format!("{reason} ({})", output.status)))
        }
    }
}

fn medians(samples: &[Sample], prefix: &str) -> BTreeMap<String, f64> {
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for sample in samples {
        for name in sample.further() {
            values.entry(format!("{prefix}{name}")).or_default().extend(sample.figure(name));
        }
    }
    values.into_iter().filter_map(|(name, values)| Some((name, Spread::of(values)?.median))).collect()
}

/// Adds, where the catalogue says so, how much a figure has grown since the smallest size.
fn add_growth(results: &mut [Measured]) {
    let mut smallest: Vec<(String, f64)> = Vec::new();
    for result in results {
        let Some(grown) = result.workload.grows.and_then(|figure| result.further.get(figure).copied()) else {
            continue;
        };
        let name = result.workload.name.text();
        match smallest.iter().find(|(other, _)| *other == name) {
            Some((_, first)) => {
                result.further.insert("growth".to_owned(), grown / first);
            }
            None => smallest.push((name, grown)),
        }
    }
}

/// A figure of a result by the name that the catalogue gives it.
pub(super) fn figure_of(result: &Measured, name: &str) -> Option<f64> {
    match name {
        super::catalogue::OURS => result.ours.map(|ours| ours.median),
        RATIO => result.ratio(),
        further => result.further.get(further).copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::{CATALOGUE, OURS, WorkloadName};
    use super::*;

    fn collected(size: u64, limit: f64, ours: &[f64]) -> Measured {
        let mut collected = Collected::new(Workload::find(WorkloadName::P10), size);
        collected.limits.push(Sample::of(limit).with("core", 1.0));
        collected.ours = ours.iter().map(|value| Sample::of(*value).with("us_per_job", *value)).collect();
        collected.finish()
    }

    #[test]
    fn figures_of_all_rounds_come_together_as_medians() {
        let result = collected(1000, 2.0, &[1.0, 9.0, 4.0]);
        assert_eq!(result.rounds, 3);
        assert_eq!((figure_of(&result, OURS), figure_of(&result, RATIO)), (Some(4.0), Some(2.0)));
        assert_eq!(
            (figure_of(&result, "us_per_job"), figure_of(&result, "limit_core")),
            (Some(4.0), Some(1.0))
        );
        assert_eq!(collected(0, 0.0, &[1.0]).ratio(), None);
    }

    #[test]
    fn growth_is_relative_to_the_smallest_size() {
        let mut results = vec![collected(1, 1.0, &[2.0]), collected(2, 1.0, &[3.0])];
        add_growth(&mut results);
        assert_eq!(figure_of(&results[0], "growth"), None);
        assert_eq!(figure_of(&results[1], "growth"), Some(1.5));
    }

    #[test]
    fn every_workload_has_three_sizes_in_each_effort() {
        for effort in [Effort::Quick, Effort::Normal, Effort::Long] {
            let plan = Plan { workloads: Vec::new(), rounds: 1, effort, workers: 2, is_quiet: true };
            assert!(CATALOGUE.iter().all(|workload| all_sizes(workload, &plan).len() == 3));
        }
    }
}
