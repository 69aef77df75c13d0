//! `offload bench pool --as-peer`: the workloads as programs that compare pools ask for them, so that ours can be one of
//! many in the same rounds.
//!
//! ```text
//!   in    PEER_WORKERS (2), PEER_WORKLOADS (w1,w2,w3,w4,w5,w7), PEER_QUICK (1: small counts)
//!   out   a JSON object a line: {"peer":"offload","w":"w1","p50_us":10.7,"p99_us":31.2,"jobs":3000}
//! ```
//!
//! | workload | is | fields |
//! |---|---|---|
//! | `w1` | echo of 64 B, one at a time | `p50_us` `p99_us` `jobs` |
//! | `w2` | echo of 64 B, 10,000 at once, the better of two | `jobs_per_s` `jobs` |
//! | `w3_1MiB`, `w3_64MiB` | echo of one payload, median | `ms` `MB_per_s` `intact` |
//! | `w4` | 1,000 jobs of 1 ms at once | `jobs` `job_ms` `wall_ms` `efficiency` |
//! | `w5` | a job kills its worker, 100 jobs are queued: `peer_crash.rs` | |
//! | `w6` | the lag of a 1 ms interval on the loop during `w4` | `lag_p50_ms` `lag_p99_ms` `lag_max_ms` `ticks` |
//! | `w7` | a new pool to its first result, median of three | `first_result_ms` `load_ms` |
//!
//! There is no batched call, so there is no `w2_map64`. All workloads run in this one process, as those of the others do.

use super::super::super::failure::{Failure, OK, VerbResult};
use super::super::super::output::print_line;
use super::compute::{burst_beside_an_interval, share_of_workers};
use super::peer_crash;
use super::rig::{Rig, any, echo_64, is_64_bytes};
use super::round_trips::echoes;
use super::sample::Times;
use super::starting::first_result;
use serde_json::{Value, json};
use std::time::Duration;

/// The name of the pool in tables.
const PEER: &str = "offload";

/// See the module's documentation.
pub(super) fn run() -> VerbResult {
    let order = PeerOrder::from_environment(|name| std::env::var(name).ok())?;
    if order.wants("w7") {
        print_all(&start(&order)?)?;
    }
    if ["w1", "w2", "w3"].into_iter().any(|name| order.wants(name)) {
        echo_workloads(&order)?;
    }
    if order.wants("w4") {
        print_all(&compute(&order)?)?;
    }
    if order.wants("w5") {
        print_all(&[("w5".to_owned(), peer_crash::measure(order.workers)?)])?;
    }
    Ok(OK)
}

fn echo_workloads(order: &PeerOrder) -> Result<(), Failure> {
    let mut rig = Rig::echo(order.workers, |_| {})?;
    for (name, measure) in [("w1", latency as PeerMeasure), ("w2", throughput), ("w3", payloads)] {
        if order.wants(name) {
            print_all(&measure(&mut rig, order)?)?;
        }
    }
    Ok(())
}

type PeerMeasure = fn(&mut Rig, &PeerOrder) -> Result<Vec<PeerLine>, Failure>;

/// The workload, and its fields.
type PeerLine = (String, Value);

fn print_all(lines: &[PeerLine]) -> Result<(), Failure> {
    lines.iter().try_for_each(|(name, fields)| print_line(line(name, fields)))
}

fn line(name: &str, fields: &Value) -> String {
    let mut object = json!({ "peer": PEER, "w": name });
    if let (Some(object), Some(fields)) = (object.as_object_mut(), fields.as_object()) {
        object.extend(fields.clone());
    }
    object.to_string()
}

/// What the environment asks for.
#[derive(Debug, PartialEq, Eq)]
struct PeerOrder {
    workers: usize,
    workloads: Vec<String>,
    is_quick: bool,
}

impl PeerOrder {
    fn from_environment(value: impl Fn(&str) -> Option<String>) -> Result<PeerOrder, Failure> {
        let workers = value("PEER_WORKERS").unwrap_or_else(|| "2".to_owned());
        let count = workers.parse().ok().filter(|count| (1..=64).contains(count));
        let workers =
            count.ok_or_else(|| Failure::Usage(format!("PEER_WORKERS={workers}: it must be 1 to 64")))?;
        let workloads = value("PEER_WORKLOADS").unwrap_or_else(|| "w1,w2,w3,w4,w5,w7".to_owned());
        let workloads = workloads.split(',').map(|name| name.trim().to_owned()).collect();
        Ok(PeerOrder { workers, workloads, is_quick: value("PEER_QUICK").as_deref() == Some("1") })
    }

    fn wants(&self, name: &str) -> bool {
        self.workloads.iter().any(|wanted| wanted == name)
    }

    fn pick<T>(&self, quick: T, normal: T) -> T {
        if self.is_quick { quick } else { normal }
    }
}

fn start(order: &PeerOrder) -> Result<Vec<PeerLine>, Failure> {
    let times: Result<Vec<Duration>, Failure> =
        (0..order.pick(1, 3)).map(|_| first_result(order.workers)).collect();
    let fields = json!({ "first_result_ms": Times::of(times?).ms(0.5), "load_ms": 0 });
    Ok(vec![("w7".to_owned(), fields)])
}

fn latency(rig: &mut Rig, order: &PeerOrder) -> Result<Vec<PeerLine>, Failure> {
    let jobs = order.pick(300, 3_000);
    let times = echoes(rig, 64, jobs / 10, jobs)?;
    let fields = json!({ "p50_us": times.us(0.5), "p99_us": times.us(0.99), "jobs": jobs });
    Ok(vec![("w1".to_owned(), fields)])
}

fn throughput(rig: &mut Rig, order: &PeerOrder) -> Result<Vec<PeerLine>, Failure> {
    let jobs = order.pick(2_000, 10_000);
    let mut best = 0.0_f64;
    for _ in 0..2 {
        let took = rig.burst(jobs, |_| echo_64(), is_64_bytes)?;
        best = best.max(jobs as f64 / took.as_secs_f64());
    }
    Ok(vec![("w2".to_owned(), json!({ "jobs_per_s": best, "jobs": jobs }))])
}

fn payloads(rig: &mut Rig, order: &PeerOrder) -> Result<Vec<PeerLine>, Failure> {
    let mut lines = Vec::new();
    for (name, size, times) in [("w3_1MiB", 1_u64 << 20, 15), ("w3_64MiB", 64 << 20, 3)] {
        let ms = echoes(rig, size, 1, order.pick(2, times))?.ms(0.5);
        let rate = size as f64 / 1e6 / (ms / 1e3);
        // An echo that is not the input would have been a failure.
        lines.push((name.to_owned(), json!({ "ms": ms, "MB_per_s": rate, "intact": true })));
    }
    Ok(lines)
}

fn compute(order: &PeerOrder) -> Result<Vec<PeerLine>, Failure> {
    let mut rig = Rig::burning(order.workers)?;
    let jobs = order.pick(200, 1_000);
    let exercise = rig.calibrate(1_000)?;
    rig.burst(60, |_| exercise.job(), any)?;
    let (took, lag) = burst_beside_an_interval(&mut rig, exercise, jobs)?;
    let efficiency = share_of_workers(jobs, exercise.cost, order.workers, took);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let (cost, wall) = (ms(exercise.cost), ms(took));
    let w4 = json!({ "jobs": jobs, "job_ms": cost, "wall_ms": wall, "efficiency": efficiency });
    let (p50, p99, max) = (lag.ms(0.5), lag.ms(0.99), lag.ms(1.0));
    let w6 = json!({ "lag_p50_ms": p50, "lag_p99_ms": p99, "lag_max_ms": max, "ticks": lag.count() });
    Ok(vec![("w4".to_owned(), w4), ("w6".to_owned(), w6)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_word_in_the_environment_it_is_the_protocols_defaults() {
        let order = PeerOrder::from_environment(|_| None).unwrap();
        assert_eq!(
            (order.workers, order.is_quick, order.wants("w5"), order.wants("w6")),
            (2, false, true, false)
        );
    }

    #[test]
    fn the_environment_chooses_and_a_number_of_workers_that_cannot_be_is_refused() {
        let order = |workers: &str| {
            PeerOrder::from_environment(|name| {
                let value = match name {
                    "PEER_WORKERS" => workers,
                    "PEER_WORKLOADS" => "w1,w7",
                    _ => "1",
                };
                Some(value.to_owned())
            })
        };
        let given = order("3").unwrap();
        assert_eq!((given.workers, given.is_quick), (3, true));
        assert_eq!(["w1", "w2", "w7"].map(|name| given.wants(name)), [true, false, true]);
        for refused in ["0", "65", "two"] {
            assert_eq!(order(refused).unwrap_err().exit_code(), 2, "{refused}");
        }
    }

    #[test]
    fn a_line_begins_with_who_and_what() {
        assert_eq!(line("w1", &json!({"p50_us": 1.5})), r#"{"peer":"offload","w":"w1","p50_us":1.5}"#);
    }
}
