//! The report of a comparison, as a table and as JSON. The field names of the JSON are a contract with users.

use super::super::table::Table;
use super::super::text;
use offload_supervisor::views::Percentiles;
use serde::Serialize;

const READING_HELP: &str = "\
A probe asks the loop for a reply each millisecond: its p99 and max are what clients wait while jobs/s are done.";

/// See the module's documentation.
#[derive(Debug, Serialize)]
pub(super) struct BenchReport {
    /// What a job computed.
    pub(super) task: &'static str,
    /// The size of a job.
    pub(super) size: u64,
    /// How long each strategy was measured.
    pub(super) seconds: f64,
    /// Worker processes of the offloading strategy.
    pub(super) workers: usize,
    /// One row each.
    pub(super) strategies: Vec<Row>,
}

/// What was measured of one strategy.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// Its name.
    pub(super) strategy: &'static str,
    /// Jobs that were done.
    pub(super) jobs: u64,
    /// Finished jobs per second.
    pub(super) jobs_per_s: f64,
    /// Probes that were answered.
    pub(super) probes: u64,
    /// Time from when a probe was due to its reply.
    pub(super) probe_latency_us: Percentiles,
    /// How long the loop was busy without a break.
    pub(super) loop_lag_us: Percentiles,
    /// CPU time of this process and of the workers.
    pub(super) cpu_s: f64,
    /// Bytes of inputs and outputs that went to another process and back.
    pub(super) bytes_serialized: u64,
}

impl BenchReport {
    /// The report as one JSON document on one line.
    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and names can always be written")
    }

    /// The report as a table for people.
    pub(super) fn text(&self) -> String {
        let mut table = Table::new(&[
            "STRATEGY",
            "#JOBS",
            "#JOBS/S",
            "#PROBE P50",
            "#PROBE P99",
            "#PROBE MAX",
            "#LAG P99",
            "#CPU",
            "#SERIALIZED",
        ]);
        self.strategies.iter().for_each(|row| table.row(row.cells()));
        let BenchReport { task, size, seconds, workers, .. } = self;
        let workers = text::count(*workers as u64, "worker");
        format!("{task} {size}, {seconds} s each, {workers}\n\n{}\n{READING_HELP}\n", table.render())
    }
}

impl Row {
    fn cells(&self) -> [String; 9] {
        [
            self.strategy.to_owned(),
            self.jobs.to_string(),
            format!("{:.1}", self.jobs_per_s),
            text::time(self.probe_latency_us.p50),
            text::time(self.probe_latency_us.p99),
            text::time(self.probe_latency_us.max),
            text::time(self.loop_lag_us.p99),
            format!("{:.2} s", self.cpu_s),
            text::bytes(self.bytes_serialized),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn report() -> BenchReport {
        let row = Row {
            strategy: "inline",
            jobs: 7,
            jobs_per_s: 23.25,
            probes: 300,
            probe_latency_us: Percentiles { p50: 80, p99: 5210, max: 1_300_000 },
            loop_lag_us: Percentiles { p50: 1, p99: 900, max: 1000 },
            cpu_s: 0.5,
            bytes_serialized: 0,
        };
        BenchReport { task: "average", size: 20_000, seconds: 0.3, workers: 2, strategies: vec![row] }
    }

    #[test]
    fn the_document_has_the_fields_that_users_rely_on() {
        let document: Value = serde_json::from_str(&report().json()).unwrap();
        let row = json!({
            "strategy": "inline", "jobs": 7, "jobs_per_s": 23.25, "probes": 300,
            "probe_latency_us": {"p50": 80, "p99": 5210, "max": 1_300_000},
            "loop_lag_us": {"p50": 1, "p99": 900, "max": 1000},
            "cpu_s": 0.5, "bytes_serialized": 0,
        });
        let expected =
            json!({"task": "average", "size": 20_000, "seconds": 0.3, "workers": 2, "strategies": [row]});
        assert_eq!(document, expected);
    }

    #[test]
    fn people_get_a_table_with_what_was_compared_above_and_how_to_read_it_below() {
        let text = report().text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "average 20000, 0.3 s each, 2 workers");
        assert!(lines[2].starts_with("STRATEGY") && lines[3].contains("5.2 ms"), "{text}");
        assert_eq!(lines.last(), Some(&READING_HELP));
    }
}
