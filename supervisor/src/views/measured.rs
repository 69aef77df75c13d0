//! What is measured of jobs, for monitoring: counts that only grow, so that whoever looks twice sees what lies between.

use crate::limits::TIME_BOUNDS;
use offload_protocol::nouns::OutcomeCode;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// How often something took how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// One count for each of [`TIME_BOUNDS`], of the times that are not longer and longer than the bound before; the last count
    /// is of all longer times.
    pub counts: [u64; TIME_BOUNDS.len() + 1],
    /// The sum of all times.
    pub sum: Duration,
}

impl Times {
    /// Counts one more.
    pub fn add(&mut self, time: Duration) {
        self.counts[TIME_BOUNDS.partition_point(|bound| *bound < time)] += 1;
        self.sum = self.sum.saturating_add(time);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// What was measured of the jobs of one task that have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskMeter {
    /// The name of the task. Jobs of tasks beyond [`TASKS_MEASURED_MAX`](crate::limits::TASKS_MEASURED_MAX), and of tasks that no
    /// worker has ever offered, are counted together under [`TaskMeter::OTHER`].
    pub task: Arc<str>,
    /// How many ended with each outcome, in the order of [`OutcomeCode::ALL`].
    pub ended: Vec<u64>,
    /// From acceptance to the last start, of jobs that were started.
    pub queued: Times,
    /// The runs of the same jobs, by the clocks of their workers.
    pub run: Times,
    /// From acceptance to the end, of all jobs.
    pub total: Times,
    /// Bytes of inputs.
    pub input_bytes: u64,
    /// Bytes of outputs.
    pub output_bytes: u64,
}

impl TaskMeter {
    /// No worker can offer a task of this name.
    pub const OTHER: &str = "(other)";

    /// A meter that has measured nothing.
    pub fn new(task: Arc<str>) -> TaskMeter {
        TaskMeter {
            task,
            ended: vec![0; OutcomeCode::ALL.len()],
            queued: Times::default(),
            run: Times::default(),
            total: Times::default(),
            input_bytes: 0,
            output_bytes: 0,
        }
    }

    /// How many jobs ended with this outcome.
    pub fn ended(&self, outcome: OutcomeCode) -> u64 {
        self.ended[outcome as usize]
    }
}

/// How many jobs of a task have not ended, or have died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskLoad {
    /// The name of the task, or [`TaskMeter::OTHER`] for jobs of tasks that no worker has offered yet.
    pub task: Arc<str>,
    /// Jobs that wait.
    pub waiting: usize,
    /// Jobs that workers have.
    pub running: usize,
    /// Dead letters.
    pub dead: usize,
}

/// A worker that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EndedWorker {
    /// How many have ended until then, with this one.
    pub number: u64,
    /// The slot that it was in.
    pub slot: usize,
    /// The program that it ran.
    pub program: String,
    /// Its process id.
    pub pid: Option<u32>,
    /// How long ago it ended, in microseconds.
    pub ago_us: u64,
    /// The signal or exit code that it ended with.
    pub how: String,
    /// Why the supervisor has ended it, if it has, and there was something wrong.
    pub why: Option<String>,
    /// The job that it was running; nothing if these were several.
    pub job: Option<String>,
    /// How many jobs it was running together, if these were several. Nobody knows which one was to blame.
    pub batch: Option<u32>,
    /// These jobs; none if it was at most one.
    pub batch_jobs: Vec<String>,
}

/// What is measured of all jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meters {
    /// The tasks in the order in which they first had a job that ended; the last one is [`TaskMeter::OTHER`].
    pub tasks: Vec<TaskMeter>,
    /// How many jobs were refused, by the reason; only reasons that came up.
    pub rejected: Vec<(OutcomeCode, u64)>,
    /// How many worker processes were started.
    pub starts: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_under_the_first_bound_that_it_does_not_exceed() {
        let mut times = Times::default();
        let nanosecond = Duration::from_nanos(1);
        for time in [Duration::ZERO, TIME_BOUNDS[0], TIME_BOUNDS[0] + nanosecond, TIME_BOUNDS[1]] {
            times.add(time);
        }
        times.add(Duration::MAX);
        assert_eq!((times.counts[0], times.counts[1], times.counts[TIME_BOUNDS.len()]), (2, 2, 1));
        assert_eq!((times.count(), times.sum), (5, Duration::MAX));
    }

    #[test]
    fn no_task_can_be_called_like_the_rest() {
        assert!(!offload_protocol::nouns::is_task_name(TaskMeter::OTHER));
    }
}
