//! What a report says of each strategy. The field names are a contract with users.

use super::super::text;
use super::comparison::Summary;
use super::statistics::{Ratio, Spread, Verdict};
use offload_supervisor::views::Percentiles;
use serde::Serialize;

/// The verdict on a strategy that does fewer jobs a second than it did in an earlier run.
pub(super) const SLOWER: &str = "slower";

/// What was measured of one strategy.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// Its name.
    pub(super) strategy: &'static str,
    /// Jobs that were done.
    pub(super) jobs: u64,
    /// Finished jobs per second: the median of the rounds.
    pub(super) jobs_per_s: f64,
    /// With 95 % certainty it lies between these two; none if there were too few rounds.
    pub(super) jobs_per_s_interval: Option<(f64, f64)>,
    /// The same of each round.
    pub(super) jobs_per_s_of_rounds: Vec<f64>,
    /// How far the rounds lie apart, as a share of the median.
    pub(super) spread: f64,
    /// Beside the first strategy; none for that one, and if one of them finished nothing.
    pub(super) beside: Option<Beside>,
    /// Beside an earlier run; none if it was not asked for, or that run knows nothing of this strategy.
    pub(super) baseline: Option<BesideBaseline>,
    /// Probes that were answered.
    pub(super) probes: u64,
    /// Time from when a probe was due to its reply.
    pub(super) probe_latency_us: Percentiles,
    /// Shares of the probes, each with the time within which so many were answered.
    pub(super) probe_latency_distribution_us: Vec<(f64, u64)>,
    /// How late an interval timer of 1 ms was on the loop.
    pub(super) timer_lag_us: Percentiles,
    /// The largest of that in each stretch of the measured time, one after another.
    pub(super) timer_lag_over_time_us: Vec<u64>,
    /// How long the loop was busy without a break; none if it is not ours.
    pub(super) loop_lag_us: Option<Percentiles>,
    /// CPU time of this process and of the workers.
    pub(super) cpu_s: f64,
    /// Bytes of inputs and outputs that went to another process and back.
    pub(super) bytes_serialized: u64,
    /// The share of the jobs' time in which no worker computed; none for what does not go to workers.
    pub(super) on_the_way: Option<f64>,
    /// Jobs whose output was another one than the first with the same input.
    pub(super) outputs_differ: u64,
}

/// Jobs per second beside those of the first strategy.
#[derive(Debug, Serialize)]
pub(super) struct Beside {
    pub(super) strategy: &'static str,
    pub(super) ratio: f64,
    /// With 95 % certainty it lies between these two; none if there were too few rounds.
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
    /// `more`, `less`, `no_difference`, `unclear`, or `too_few_rounds`.
    pub(super) verdict: &'static str,
}

/// Jobs per second beside those of an earlier run.
#[derive(Debug, Serialize)]
pub(super) struct BesideBaseline {
    /// Those of the earlier run.
    pub(super) jobs_per_s: f64,
    pub(super) ratio: f64,
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
    /// How much less counts as no difference.
    pub(super) allowed: f64,
    /// `faster`, `slower`, `no_difference`, `unclear`, or `too_few_rounds`.
    pub(super) verdict: &'static str,
}

/// The prober on a loop that has nothing else to do.
#[derive(Debug, Serialize)]
pub(super) struct ProberRow {
    pub(super) probe_latency_us: Percentiles,
    /// Share of a core.
    pub(super) cpu: f64,
}

/// What else the machine did meanwhile: the member `noise` of a report.
#[derive(Debug, Serialize)]
pub(super) struct NoiseRow {
    pub(super) foreign: f64,
    pub(super) stolen: f64,
}

impl Beside {
    /// With this verdict.
    pub(super) fn new(strategy: &'static str, ratio: Ratio) -> Beside {
        let verdict = match ratio.verdict() {
            Verdict::More => "more",
            Verdict::Less => "less",
            Verdict::NoDifference => "no_difference",
            Verdict::Unclear => "unclear",
            Verdict::TooFewRounds => "too_few_rounds",
        };
        let (low, high) = ratio.interval.unzip();
        Beside { strategy, ratio: ratio.ratio, low, high, verdict }
    }

    fn cell(&self) -> String {
        match (self.verdict, self.low, self.high) {
            ("no_difference", ..) => "the same".to_owned(),
            (_, Some(low), Some(high)) => format!("{:.2} ({low:.2} to {high:.2})", self.ratio),
            _ => format!("{:.2} (?)", self.ratio),
        }
    }
}

impl BesideBaseline {
    /// For people.
    pub(super) fn sentence(&self) -> String {
        let verdict = self.verdict.replace('_', " ");
        match (self.low, self.high) {
            (Some(low), Some(high)) => format!("{:.2} ({low:.2} to {high:.2}), {verdict}", self.ratio),
            _ => format!("{:.2}, {verdict}", self.ratio),
        }
    }
}

/// Columns of the bar that shows jobs per second.
const BAR: usize = 8;

impl Row {
    /// Of a strategy; `first` is the one with which the others are compared.
    pub(super) fn new(summary: &Summary, first: &'static str) -> Row {
        Row {
            strategy: summary.strategy,
            jobs: summary.jobs,
            jobs_per_s: summary.jobs_per_s.median,
            jobs_per_s_interval: summary.interval,
            jobs_per_s_of_rounds: summary.rates.clone(),
            spread: Spread::width(summary.jobs_per_s),
            beside: summary.beside_first.map(|ratio| Beside::new(first, ratio)),
            baseline: None,
            probes: summary.probed.count(),
            probe_latency_us: summary.probed.latency_us(),
            probe_latency_distribution_us: summary.probed.distribution_us(),
            timer_lag_us: summary.timer_lag_us.clone(),
            timer_lag_over_time_us: summary.timer_lag_over_time_us.clone(),
            loop_lag_us: summary.loop_lag_us.clone(),
            cpu_s: summary.cpu_s,
            bytes_serialized: summary.bytes,
            on_the_way: summary.on_the_way,
            outputs_differ: summary.differing,
        }
    }

    /// The row of the table; `fastest` is the rate of the fastest strategy.
    pub(super) fn cells(&self, fastest: f64) -> [String; 12] {
        let share = |share: f64| format!("{:.0} %", share * 100.0);
        [
            self.strategy.to_owned(),
            self.jobs.to_string(),
            format!("{:.1}", self.jobs_per_s),
            text::bar(self.jobs_per_s / fastest, BAR),
            self.beside.as_ref().map_or_else(|| "-".to_owned(), Beside::cell),
            text::time(self.probe_latency_us.p50),
            text::time(self.probe_latency_us.p99),
            text::time(self.probe_latency_us.max),
            text::time(self.timer_lag_us.p99),
            format!("{:.2} s", self.cpu_s),
            text::bytes(self.bytes_serialized),
            self.on_the_way.map_or_else(|| "-".to_owned(), share),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_that_nobody_can_be_sure_of_is_not_told_as_one() {
        let cell = |interval| Beside::new("inline", Ratio { ratio: 1.01, interval }).cell();
        assert_eq!(cell(Some((0.99, 1.03))), "the same");
        assert_eq!(cell(Some((0.7, 1.4))), "1.01 (0.70 to 1.40)");
        assert_eq!(cell(None), "1.01 (?)");
    }
}
