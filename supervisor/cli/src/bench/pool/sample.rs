//! One sample: what a process of its own measured, and how it tells the process that asked. The two share nothing but
//! a line of JSON, so that a sample cannot be disturbed by the memory or the threads of the one before it.

use super::super::super::failure::Failure;
use serde_json::{Map, Value};
use std::time::Duration;

/// The field of the figure itself.
const VALUE: &str = "value";

/// How much is done for one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Effort {
    /// Just enough to see that it works
    Quick,
    /// Enough for figures that can be compared
    Normal,
    /// Longer where the length is the point
    Long,
}

/// What one process is to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct SamplePlan {
    /// One of the sizes of the workload.
    pub(super) size: u64,
    /// Worker processes, where the size is not their number.
    pub(super) workers: usize,
    /// How much is done.
    pub(super) effort: Effort,
    /// In how many rounds it is measured. What lasts a given time is divided by them.
    pub(super) rounds: u32,
}

impl SamplePlan {
    /// The first with `--quick`, otherwise the second.
    pub(super) fn pick<T>(&self, quick: T, normal: T) -> T {
        if self.effort == Effort::Quick { quick } else { normal }
    }

    /// The share of one round in a measurement that lasts so long in total.
    pub(super) fn share_of_round(&self, quick: Duration, normal: Duration, long: Duration) -> Duration {
        let total = match self.effort {
            Effort::Quick => quick,
            Effort::Normal => normal,
            Effort::Long => long,
        };
        total / self.rounds.max(1)
    }
}

/// The figure that was measured, and further figures beside it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sample(Vec<(String, f64)>);

impl Sample {
    /// A sample with this figure.
    pub(super) fn of(value: f64) -> Sample {
        Sample::default().with(VALUE, value)
    }

    /// Adds a further figure. Its name ends with its unit.
    pub(super) fn with(mut self, name: &str, value: f64) -> Sample {
        self.0.push((name.to_owned(), value));
        self
    }

    /// Adds a further figure, if there is one.
    pub(super) fn with_some(self, name: &str, value: Option<f64>) -> Sample {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The figure itself; not a number if it was not measured.
    pub(super) fn value(&self) -> f64 {
        self.figure(VALUE).unwrap_or(f64::NAN)
    }

    /// A further figure.
    pub(super) fn figure(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| *value)
    }

    /// The names of the further figures, in their order.
    pub(super) fn further(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str()).filter(|name| *name != VALUE)
    }

    /// As one line.
    pub(super) fn to_json(&self) -> String {
        let fields = self.0.iter().map(|(name, value)| (name.clone(), Value::from(*value)));
        Value::Object(fields.collect()).to_string()
    }

    /// From such a line.
    ///
    /// # Errors
    /// If it is none.
    pub(super) fn parse(line: &str) -> Result<Sample, Failure> {
        let fields: Map<String, Value> = serde_json::from_str(line)
            .map_err(|error| Failure::Internal(format!("a sample that cannot be read: {error}: {line}")))?;
        let number = |(name, value): (String, Value)| Some((name, value.as_f64()?));
        let sample = Sample(fields.into_iter().filter_map(number).collect());
        match sample.value().is_nan() {
            true => Err(Failure::Internal(format!("a sample without a figure: {line}"))),
            false => Ok(sample),
        }
    }
}

/// Times of repeated operations, in order of their length.
#[derive(Clone, Debug, Default)]
pub(super) struct Times(Vec<Duration>);

impl Times {
    /// Of these operations.
    pub(super) fn of(mut times: Vec<Duration>) -> Times {
        times.sort_unstable();
        Times(times)
    }

    /// How many there are.
    pub(super) fn count(&self) -> f64 {
        self.0.len() as f64
    }

    /// The time that this share of them does not exceed: 0.5 for the median, 1.0 for the longest. Zero if there is none.
    pub(super) fn at(&self, share: f64) -> Duration {
        let last = self.0.len().saturating_sub(1) as f64;
        // A share of a length is a length.
        self.0.get((last * share).round() as usize).copied().unwrap_or_default()
    }

    /// The same in microseconds.
    pub(super) fn us(&self, share: f64) -> f64 {
        self.at(share).as_secs_f64() * 1e6
    }

    /// The same in milliseconds.
    pub(super) fn ms(&self, share: f64) -> f64 {
        self.at(share).as_secs_f64() * 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_survives_the_way_to_another_process() {
        let sample = Sample::of(10.5).with("p99_us", 20.0).with_some("never_ms", None);
        assert_eq!(Sample::parse(&sample.to_json()).unwrap(), sample);
        assert_eq!((sample.value(), sample.figure("p99_us"), sample.figure("p1")), (10.5, Some(20.0), None));
        assert_eq!(sample.further().collect::<Vec<_>>(), ["p99_us"]);
    }

    #[test]
    fn what_is_no_sample_is_an_error() {
        for line in ["", "7", "[]", "{}", "{\"value\":null}", "{\"value\":\"7\"}"] {
            assert_eq!(Sample::parse(line).unwrap_err().exit_code(), 70, "{line}");
        }
        // What cannot be written as a number was not measured.
        assert!(Sample::parse(&Sample::of(f64::NAN).to_json()).is_err());
    }

    #[test]
    fn shares_of_times_are_the_median_and_the_ends() {
        let times = Times::of((1..=5).rev().map(Duration::from_millis).collect());
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| times.ms(share)), [1.0, 3.0, 5.0, 5.0]);
        assert_eq!((Times::default().at(0.5), Times::default().count()), (Duration::ZERO, 0.0));
    }
}
