//! The report of a comparison, as a table and as JSON. The field names of the JSON are a contract with users.

use super::super::table::Table;
use super::super::text;
use super::comparison::Comparison;
use super::conditions::Conditions;
use super::machine::{Machine, MachineId};
use super::page::{self, Page};
use super::rows::{NoiseRow, ProberRow, Row, SLOWER};
use super::workload::{Inputs, Workload};
use serde::{Deserialize, Serialize};

const READING_HELP: &str = "\
A probe asks the loop for a reply each millisecond: its p99 and max are what clients wait while jobs/s are done.
BESIDE is jobs/s beside the first line, with the interval that holds 95 times of 100; ON THE WAY is the share of a job's
time in which no worker computed.";

/// See the module's documentation.
#[derive(Debug, Serialize)]
pub(super) struct BenchReport {
    #[serde(flatten)]
    pub(super) subject: Subject,
    /// How long each strategy was measured, all rounds together.
    pub(super) seconds: f64,
    /// In how many rounds.
    pub(super) rounds: u32,
    /// One row each.
    pub(super) strategies: Vec<Row>,
    /// Strategies that are not possible.
    pub(super) left_out: Vec<&'static str>,
    /// Why they are not; none if there is none.
    pub(super) left_out_because: Option<String>,
    /// Strategies of other runtimes that were asked for, and are not there.
    pub(super) missing: Vec<Missing>,
    /// What the measurement itself costs.
    pub(super) prober: ProberRow,
    /// The shares of the machine that other processes, and other machines on the same host, had meanwhile.
    pub(super) noise: NoiseRow,
    pub(super) conditions: Conditions,
    /// What makes the figures worth less, in sentences.
    pub(super) warnings: Vec<String>,
}

/// What was measured, and where: figures can be compared with those of another run only if all of this is the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Subject {
    /// What a job computed.
    pub(super) task: String,
    /// The size of a job; none for somebody's own work.
    pub(super) size: Option<u64>,
    /// What the jobs were given in turn.
    pub(super) inputs: Inputs,
    /// By which inputs of somebody's own are recognized; otherwise none.
    pub(super) inputs_digest: Option<String>,
    /// Worker processes of the offloading strategy, and as many threads.
    pub(super) workers: usize,
    pub(super) machine: MachineId,
}

impl Subject {
    /// This work, here.
    pub(super) fn new(workload: &impl Workload, workers: usize) -> Subject {
        Subject {
            task: workload.task().to_owned(),
            size: workload.size(),
            inputs: workload.inputs(),
            inputs_digest: workload.inputs_digest(),
            workers,
            machine: Machine::id(),
        }
    }

    /// The work, for people.
    pub(super) fn work(&self) -> String {
        let Subject { task, size, inputs, .. } = self;
        match size {
            Some(size) => format!("{task} {size}"),
            None => {
                let count = text::count(inputs.count as u64, "input");
                format!("{task}, {count} ({})", text::bytes(inputs.bytes))
            }
        }
    }
}

/// How it was measured.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) subject: Subject,
    pub(super) seconds: f64,
    pub(super) rounds: u32,
    /// Strategies that are not possible, and why.
    pub(super) left_out: (Vec<&'static str>, String),
    pub(super) missing: Vec<Missing>,
    pub(super) warnings: Vec<String>,
}

/// A strategy that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Missing {
    pub(super) strategy: &'static str,
    /// Why, and what to do.
    pub(super) because: String,
}

/// The page with these reports.
pub(super) fn page(reports: &[BenchReport]) -> String {
    #[derive(Serialize)]
    struct Content<'a> {
        reports: &'a [BenchReport],
    }
    let mut warnings: Vec<String> = reports.iter().flat_map(|report| report.warnings.clone()).collect();
    warnings.dedup();
    let work = reports.iter().map(|report| report.subject.work()).collect::<Vec<_>>().join("; ");
    let how = reports.first().map_or_else(String::new, BenchReport::how);
    let page = Page {
        title: format!("Partition or offload? {work}"),
        about: format!("{how}. {}.", page::measured_with(&Machine::describe().line())),
        warnings: &warnings,
        content: Content { reports },
        text: reports.iter().map(BenchReport::text).collect::<Vec<_>>().join("\n"),
    };
    page.html()
}

impl BenchReport {
    /// The report on a comparison.
    pub(super) fn new(measured: Measured, found: &Comparison) -> BenchReport {
        let first = found.rows.first().map_or("", |row| row.strategy);
        let (left_out, why) = measured.left_out;
        BenchReport {
            subject: measured.subject,
            seconds: measured.seconds,
            rounds: measured.rounds,
            strategies: found.rows.iter().map(|summary| Row::new(summary, first)).collect(),
            left_out_because: (!left_out.is_empty()).then_some(why),
            left_out,
            missing: measured.missing,
            prober: ProberRow { probe_latency_us: found.prober.probed.latency_us(), cpu: found.prober.cpu },
            noise: NoiseRow { foreign: found.noise.foreign(), stolen: found.noise.stolen() },
            conditions: found.conditions.clone(),
            warnings: measured.warnings,
        }
    }

    /// Whether a strategy became slower than it was in the earlier run.
    pub(super) fn is_slower(&self) -> bool {
        self.complaint().is_some()
    }

    /// Which strategies became slower, and by how much.
    pub(super) fn complaint(&self) -> Option<String> {
        let slower = self.strategies.iter().filter_map(|row| {
            let beside = row.baseline.as_ref().filter(|beside| beside.verdict == SLOWER)?;
            Some(format!("{} {}", row.strategy, beside.sentence()))
        });
        let slower: Vec<_> = slower.collect();
        let work = self.subject.work();
        (!slower.is_empty()).then(|| format!("{work}: jobs/s beside the baseline: {}", slower.join("; ")))
    }

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
            "",
            "BESIDE",
            "#PROBE P50",
            "#PROBE P99",
            "#PROBE MAX",
            "#LAG P99",
            "#CPU",
            "#SERIALIZED",
            "#ON THE WAY",
        ]);
        let fastest = self.strategies.iter().map(|row| row.jobs_per_s).fold(0.0, f64::max);
        self.strategies.iter().for_each(|row| table.row(row.cells(fastest)));
        let alone = format!(
            "The prober alone: p99 {}, {:.0} % of a core.",
            text::time(self.prober.probe_latency_us.p99),
            self.prober.cpu * 100.0
        );
        let (title, table) = (self.title(), table.render());
        let (left_out, differing) = (self.what_is_left_out(), self.what_differs());
        let baseline = self.beside_baseline();
        format!("{title}\n\n{table}\n{baseline}{left_out}{differing}{READING_HELP}\n{alone}\n")
    }

    fn title(&self) -> String {
        format!("{}, {}", self.subject.work(), self.how())
    }

    fn how(&self) -> String {
        let BenchReport { subject, seconds, rounds, .. } = self;
        let (rounds, workers) =
            (text::count(u64::from(*rounds), "round"), text::count(subject.workers as u64, "worker"));
        format!("{seconds} s each in {rounds}, {workers}")
    }

    fn what_is_left_out(&self) -> String {
        let (names, because) = (self.left_out.join(", "), self.left_out_because.as_ref());
        let left_out = because.map(|because| format!("Not possible, because {because}: {names}.\n"));
        let missing = self
            .missing
            .iter()
            .map(|Missing { strategy, because }| format!("Not measured: {strategy}, because {because}.\n"));
        left_out.into_iter().chain(missing).collect()
    }

    fn beside_baseline(&self) -> String {
        let rows = self.strategies.iter().filter_map(|row| Some((row.strategy, row.baseline.as_ref()?)));
        let cells: Vec<_> =
            rows.map(|(strategy, beside)| format!("{strategy} {}", beside.sentence())).collect();
        if cells.is_empty() { String::new() } else { format!("Beside the baseline: {}.\n", cells.join("; ")) }
    }

    fn what_differs(&self) -> String {
        let differing = self.strategies.iter().filter(|row| row.outputs_differ > 0);
        let line = |row: &Row| {
            let (differing, jobs) = (row.outputs_differ, text::count(row.jobs, "job"));
            format!(
                "Outputs differ: {differing} of {jobs} of {} gave another one than the input gave first.\n",
                row.strategy
            )
        };
        differing.map(line).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::rows::Beside;
    use super::super::statistics::Ratio;
    use super::*;
    use offload_supervisor::views::Percentiles;
    use serde_json::{Value, json};

    pub(in super::super) fn report() -> BenchReport {
        let row = |strategy, beside, on_the_way| Row {
            strategy,
            jobs: 7,
            jobs_per_s: if strategy == "inline" { 11.625 } else { 23.25 },
            jobs_per_s_interval: Some((23.0, 24.0)),
            jobs_per_s_of_rounds: vec![23.25],
            spread: 0.125,
            beside,
            baseline: None,
            probes: 300,
            probe_latency_us: Percentiles { p50: 80, p99: 5210, max: 1_300_000 },
            probe_latency_distribution_us: vec![(0.0, 40), (1.0, 1_300_000)],
            timer_lag_us: Percentiles { p50: 2, p99: 700, max: 1100 },
            timer_lag_over_time_us: vec![9, 1100],
            loop_lag_us: Some(Percentiles { p50: 1, p99: 900, max: 1000 }),
            cpu_s: 0.5,
            bytes_serialized: 0,
            on_the_way,
            outputs_differ: 0,
        };
        let ratio = Ratio { ratio: 2.0, interval: Some((1.75, 2.25)) };
        BenchReport {
            subject: Subject {
                task: "average".to_owned(),
                size: Some(20_000),
                inputs: Inputs { count: 1, bytes: 5 },
                inputs_digest: None,
                workers: 2,
                machine: MachineId { model: "M".to_owned(), cores: 4 },
            },
            seconds: 0.3,
            rounds: 10,
            strategies: vec![
                row("inline", None, None),
                row("offloaded", Some(Beside::new("inline", ratio)), Some(0.25)),
            ],
            left_out: vec!["partitioned_step"],
            left_out_because: Some("average computes in one piece".to_owned()),
            missing: vec![Missing { strategy: "node_piscina", because: "it is not there".to_owned() }],
            prober: ProberRow { probe_latency_us: Percentiles { p50: 50, p99: 90, max: 100 }, cpu: 0.03125 },
            noise: NoiseRow { foreign: 0.0, stolen: 0.5 },
            conditions: Conditions { load: 0.5, cores: 4, ..Conditions::default() },
            warnings: vec!["the machine was busy".to_owned()],
        }
    }

    #[test]
    fn the_document_has_the_fields_that_users_rely_on() {
        let document: Value = serde_json::from_str(&report().json()).unwrap();
        let row = json!({
            "strategy": "offloaded", "jobs": 7, "jobs_per_s": 23.25,
            "jobs_per_s_interval": [23.0, 24.0], "jobs_per_s_of_rounds": [23.25], "spread": 0.125, "probes": 300,
            "beside": {"strategy": "inline", "ratio": 2.0, "low": 1.75, "high": 2.25, "verdict": "more"},
            "baseline": null,
            "probe_latency_us": {"p50": 80, "p99": 5210, "max": 1_300_000},
            "probe_latency_distribution_us": [[0.0, 40], [1.0, 1_300_000]],
            "timer_lag_us": {"p50": 2, "p99": 700, "max": 1100}, "timer_lag_over_time_us": [9, 1100],
            "loop_lag_us": {"p50": 1, "p99": 900, "max": 1000},
            "cpu_s": 0.5, "bytes_serialized": 0, "on_the_way": 0.25, "outputs_differ": 0,
        });
        assert_eq!(document["strategies"][1], row);
        assert_eq!(document["strategies"][0]["beside"], Value::Null);
        let mut rest = document;
        rest.as_object_mut().unwrap().remove("strategies");
        let expected = json!({
            "task": "average", "size": 20_000, "seconds": 0.3, "rounds": 10, "workers": 2,
            "inputs": {"count": 1, "bytes": 5}, "inputs_digest": null, "machine": {"model": "M", "cores": 4},
            "left_out": ["partitioned_step"], "left_out_because": "average computes in one piece",
            "missing": [{"strategy": "node_piscina", "because": "it is not there"}],
            "prober": {"probe_latency_us": {"p50": 50, "p99": 90, "max": 100}, "cpu": 0.03125},
            "noise": {"foreign": 0.0, "stolen": 0.5},
            "conditions": {"load": 0.5, "cores": 4, "throttled": null, "overheated": null, "frequency": null},
            "warnings": ["the machine was busy"],
        });
        assert_eq!(rest, expected);
    }

    #[test]
    fn people_get_a_table_with_what_was_compared_above_and_how_to_read_it_below() {
        let text = report().text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "average 20000, 0.3 s each in 10 rounds, 2 workers");
        assert!(lines[2].starts_with("STRATEGY") && lines[3].contains("5.2 ms"), "{text}");
        assert!(lines[4].contains("2.00 (1.75 to 2.25)") && lines[4].ends_with("25 %"), "{text}");
        assert!(text.ends_with("The prober alone: p99 90 us, 3 % of a core.\n"), "{text}");
    }

    #[test]
    fn of_somebodys_own_work_the_inputs_are_told_and_that_outputs_differ() {
        let mut report = report();
        (report.subject.size, report.subject.inputs) = (None, Inputs { count: 2, bytes: 1536 });
        report.strategies[1].outputs_differ = 3;
        let text = report.text();
        assert!(text.starts_with("average, 2 inputs (1.5 KiB), 0.3 s"), "{text}");
        assert!(text.contains("Outputs differ: 3 of 7 jobs of offloaded gave"), "{text}");
    }
}
