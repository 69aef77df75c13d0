//! A worker that dies at every start: what does it cost to try again and again?

use super::process::cpu_time;
use crate::harness::{Daemon, private_folder, program};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// The first part of a storm, in which a start may be tried soon after the one before.
const FIRST: Duration = Duration::from_secs(10);
/// Starts beyond one a slot that are fine in the first part.
const EXTRA: f64 = 5.0;
/// Starts a second and slot that are fine after it.
const RATE: f64 = 0.2;
/// Lines of the log that are fine.
const LINES_PER_SECOND: f64 = 1.0;
/// The share of one core that it may take.
const CPU_SHARE: f64 = 0.05;

/// What a storm was like.
#[derive(Clone, Debug)]
pub struct Storm {
    workers: usize,
    length: Duration,
    /// Starts in the first ten seconds, and in all.
    starts: [usize; 2],
    /// CPU time of the supervisor.
    cpu: Duration,
    /// Lines of its log.
    lines: usize,
}

impl Storm {
    /// Lets it rage for so long, which should be more than ten seconds.
    ///
    /// # Panics
    /// If no supervisor can be started.
    pub fn rage(workers: usize, length: Duration) -> Storm {
        let folder = private_folder();
        let count = folder.path().join("starts");
        let worker = format!("{} counted:{} boot:segv", program("faultworker").display(), count.display());
        let began = Instant::now();
        let daemon = Daemon::launch(&["--workers", &workers.to_string(), "--worker", &worker]);
        sleep_until(began + FIRST.min(length));
        let first = starts(&count);
        sleep_until(began + length);
        let (cpu, lines) = (cpu_time(daemon.pid()), daemon.stderr.all().len());
        Storm { workers, length, starts: [first, starts(&count)], cpu, lines }
    }

    /// What was too much.
    pub fn violations(&self) -> Vec<String> {
        let [first, all] = self.starts;
        let later = (all - first) as f64;
        let seconds_later = self.length.saturating_sub(FIRST).as_secs_f64();
        let starts_max = self.workers as f64 + EXTRA;
        // One may fall on either side of the border.
        let later_max = RATE * seconds_later * self.workers as f64 + 1.0;
        let lines_max = LINES_PER_SECOND * self.length.as_secs_f64();
        let checks = [
            (first > 0, "nothing was ever started".to_owned()),
            (first as f64 <= starts_max, format!("{first} starts in the first 10 s, at most {starts_max}")),
            (later <= later_max, format!("{later} starts after 10 s, at most {later_max:.1}")),
            (self.cpu_share() < CPU_SHARE, format!("{:.1} % of a core", 100.0 * self.cpu_share())),
            (self.lines as f64 <= lines_max, format!("{} lines of log, at most {lines_max}", self.lines)),
        ];
        checks.into_iter().filter(|(holds, _)| !holds).map(|(_, sentence)| sentence).collect()
    }

    fn cpu_share(&self) -> f64 {
        self.cpu.as_secs_f64() / self.length.as_secs_f64()
    }

    /// For people.
    pub fn summary(&self) -> String {
        let [first, all] = self.starts;
        format!(
            "restart storm: {} workers, {:.0} s: {first} starts in the first 10 s (target {}), {all} in all; \
             {:.2} % of a core (target 5), {} lines of log",
            self.workers,
            self.length.as_secs_f64(),
            self.workers as f64 + EXTRA,
            100.0 * self.cpu_share(),
            self.lines
        )
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "workers": self.workers, "seconds": self.length.as_secs_f64(),
            "starts_first": self.starts[0], "starts": self.starts[1], "cpu_us": self.cpu.as_micros() as u64,
            "lines": self.lines, "violations": self.violations(),
        })
    }
}

fn starts(count: &Path) -> usize {
    std::fs::read_to_string(count).unwrap_or_default().lines().count()
}

/// Here the time itself is what is waited for.
fn sleep_until(moment: Instant) {
    while let Some(left) = moment.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}
