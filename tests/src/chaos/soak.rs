//! Very many jobs, and nothing else: what is left of them?

use super::client::{self, Ledger, Work};
use super::process::Holdings;
use crate::harness::{Daemon, until};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Connections, each with a thread.
const CLIENTS: usize = 4;
/// Jobs that each of them has under way.
const IN_FLIGHT: usize = 64;
/// How often is looked on the way.
const POINTS: u64 = 10;

/// One look on the way.
#[derive(Clone, Copy, Debug)]
struct Point {
    jobs: u64,
    after: Duration,
    holdings: Holdings,
}

/// What a soak came to.
#[derive(Clone, Debug)]
pub struct Soak {
    ledger: Ledger,
    before: Holdings,
    after: Holdings,
    points: Vec<Point>,
    status: Value,
}

impl Soak {
    /// Lets so many jobs through.
    ///
    /// # Panics
    /// If no supervisor can be started, or jobs get stuck.
    pub fn of(jobs: u64, seed: u64, workers: usize) -> Soak {
        let daemon = Daemon::start(&["--quiet", "--workers", &workers.to_string()]);
        daemon.wait_until_whole();
        let (warm, before) = client::warm_up(&daemon, !seed, CLIENTS, IN_FLIGHT);
        let work = Work::of(jobs);
        let (points, ledger) = std::thread::scope(|scope| {
            let clients = scope.spawn(|| client::serve_all(&daemon.socket, seed, CLIENTS, IN_FLIGHT, &work));
            let points = look_on(&daemon, &work, jobs);
            (points, clients.join().expect("clients do not panic").and(warm))
        });
        let after = until("descriptors and children as before", || {
            Some(client::settled(&daemon)).filter(|now| now.has_no_more_than(&before))
        });
        Soak { ledger, before, after, points, status: daemon.status() }
    }

    /// What must not be.
    pub fn violations(&self) -> Vec<String> {
        let counts = &self.status["jobs"];
        let checks = [
            (self.ledger.is_clean(), format!("the clients' books: {:?}", self.ledger)),
            (self.status["ledger"]["balanced"] == true, format!("the supervisor's books: {counts}")),
            (counts["ok"] == self.ledger.submitted, format!("{} submitted, {counts}", self.ledger.submitted)),
            (self.after.has_no_more_than(&self.before), format!("{:?}, {:?}", self.before, self.after)),
            (self.status["queue"]["bytes"] == 0, format!("bytes are held: {}", self.status["queue"])),
        ];
        checks.into_iter().filter(|(holds, _)| !holds).map(|(_, sentence)| sentence).collect()
    }

    /// Bytes of resident memory that a million jobs add, by the line of best fit through the second half of the points:
    /// the first half fills what is bounded.
    fn slope(&self) -> f64 {
        let points = &self.points[self.points.len() / 2..];
        let count = points.len().max(1) as f64;
        let mean = |of: fn(&Point) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (jobs, bytes) = (mean(|point| point.jobs as f64), mean(|point| point.holdings.resident as f64));
        let (mut along, mut squares) = (0.0, 0.0);
        for point in points {
            let distance = point.jobs as f64 - jobs;
            along += distance * (point.holdings.resident as f64 - bytes);
            squares += distance * distance;
        }
        1e6 * along / f64::max(squares, 1.0)
    }

    /// For people.
    pub fn summary(&self) -> String {
        let line = |point: &Point| {
            let Point { jobs, after, holdings } = point;
            let mebibytes = holdings.resident as f64 / f64::from(1 << 20);
            format!(
                "{jobs:>10} jobs {:>7.1} s {mebibytes:>8.2} MiB {:>4} descriptors\n",
                after.as_secs_f64(),
                holdings.descriptors
            )
        };
        let lines: String = self.points.iter().map(line).collect();
        format!(
            "soak: {} jobs, {} right\n{lines}before {:?}\nafter  {:?}\nslope {:+.2} MiB a million jobs in the second half",
            self.ledger.submitted,
            self.ledger.right,
            self.before,
            self.after,
            self.slope() / f64::from(1 << 20)
        )
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let point = |point: &Point| json!({ "jobs": point.jobs, "seconds": point.after.as_secs_f64(), "resident_bytes": point.holdings.resident });
        json!({
            "jobs": self.ledger.submitted, "right": self.ledger.right,
            "points": self.points.iter().map(point).collect::<Vec<_>>(),
            "bytes_per_million_jobs": self.slope(),
            "before": self.before.json(), "after": self.after.json(), "violations": self.violations(),
        })
    }
}

/// Looks at the supervisor each time that another tenth of the jobs is done; ends with them, or when nothing moves.
fn look_on(daemon: &Daemon, work: &Work, jobs: u64) -> Vec<Point> {
    let began = Instant::now();
    let mut points = Vec::new();
    for number in 1..=POINTS {
        let goal = jobs * number / POINTS;
        until("another tenth of the jobs", || (work.answered.load(Ordering::Relaxed) >= goal).then_some(()));
        let holdings = Holdings::of(daemon.pid());
        points.push(Point { jobs: goal, after: began.elapsed(), holdings });
    }
    points
}
