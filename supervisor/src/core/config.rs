//! What can be configured of the core, with the defaults that users are told.

use crate::limits::{ATTEMPTS_MAX, JOBS_QUEUED_MAX_DEFAULT, QUEUED_BYTES_MAX_DEFAULT, WORKERS_MAX};
use offload_protocol::limits::{PAYLOAD_MAX_CEILING, PAYLOAD_MAX_DEFAULT};
use std::time::Duration;

/// See the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreConfig {
    /// Slots: worker processes that run jobs. 1 to [`WORKERS_MAX`].
    pub workers: usize,
    /// Different worker programs; slot `i` runs program `i` modulo their number. At least 1, at most `workers`.
    pub programs: usize,
    /// Started workers that wait to replace one that dies: 0 or 1.
    pub spares: usize,
    /// Most jobs that may wait.
    pub max_jobs: usize,
    /// Most bytes of input held for jobs that wait or run.
    pub max_bytes: u64,
    /// Longest input of one job, in bytes.
    pub max_payload: u64,
    /// Longest run of one attempt, unless the job says otherwise.
    pub run_timeout: Duration,
    /// Most attempts at a job that may be tried again. At most [`ATTEMPTS_MAX`].
    pub max_attempts: u32,
    /// From the start of a worker to its hello.
    pub hello_timeout: Duration,
    /// From giving a job to an idle worker to its word that it has started.
    pub start_timeout: Duration,
    /// From SIGTERM to SIGKILL.
    pub kill_grace: Duration,
    /// From the end of a worker's channel to SIGKILL, if the process itself does not end.
    pub closed_grace: Duration,
    /// Wait after the first failed start; doubled by each one after it.
    pub backoff_min: Duration,
    /// Longest wait between two starts.
    pub backoff_max: Duration,
    /// After so many failed starts in a row jobs are refused until a start succeeds.
    pub max_restarts: u32,
    /// A worker that dies idle before this time, without having finished a job, counts as a failed start.
    pub window: Duration,
    /// From a request to drain to the end of whatever is still there.
    pub drain_timeout: Duration,
    /// Most short jobs given to one worker at a time; 1 gives each job only to an idle worker.
    pub window_max: usize,
}

impl Default for CoreConfig {
    fn default() -> CoreConfig {
        CoreConfig {
            workers: 1,
            programs: 1,
            spares: 1,
            max_jobs: JOBS_QUEUED_MAX_DEFAULT,
            max_bytes: QUEUED_BYTES_MAX_DEFAULT,
            max_payload: PAYLOAD_MAX_DEFAULT as u64,
            run_timeout: Duration::from_secs(300),
            max_attempts: 3,
            hello_timeout: Duration::from_secs(10),
            start_timeout: Duration::from_secs(10),
            kill_grace: Duration::from_millis(500),
            closed_grace: Duration::from_millis(50),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(5),
            max_restarts: 5,
            window: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(10),
            window_max: crate::limits::WINDOW_MAX,
        }
    }
}

impl CoreConfig {
    /// What is wrong with it, for people.
    ///
    /// # Errors
    /// One sentence about the first value that is out of its bounds.
    pub fn validate(&self) -> Result<(), String> {
        let checks = [
            (self.workers >= 1, format!("workers = {}: at least 1 is needed", self.workers)),
            (self.workers <= WORKERS_MAX, format!("workers = {}: at most {WORKERS_MAX}", self.workers)),
            (self.programs >= 1, "no worker program".to_owned()),
            (
                self.programs <= self.workers,
                format!(
                    "{} worker programs need at least as many workers, not {}",
                    self.programs, self.workers
                ),
            ),
            (self.spares <= 1, format!("spares = {}: 0 or 1", self.spares)),
            (self.max_jobs >= 1, "max_jobs = 0: nothing could ever wait".to_owned()),
            (
                self.max_payload <= self.max_bytes,
                format!("max_payload = {} is over max_bytes = {}", self.max_payload, self.max_bytes),
            ),
            (
                self.max_payload <= PAYLOAD_MAX_CEILING as u64,
                format!("max_payload = {} is over the ceiling of {PAYLOAD_MAX_CEILING}", self.max_payload),
            ),
            (
                (1..=ATTEMPTS_MAX).contains(&self.max_attempts),
                format!("max_attempts = {}: 1 to {ATTEMPTS_MAX}", self.max_attempts),
            ),
            (self.max_restarts >= 1, "max_restarts = 0: at least 1".to_owned()),
            (self.backoff_min <= self.backoff_max, "backoff_min is over backoff_max".to_owned()),
            (!self.backoff_min.is_zero(), "backoff_min = 0: starts would never pause".to_owned()),
            (!self.run_timeout.is_zero(), "run_timeout = 0: every job would time out".to_owned()),
            (self.window_max >= 1, "window_max = 0: no job could be given".to_owned()),
        ];
        match checks.into_iter().find(|(holds, _)| !holds) {
            Some((_, sentence)) => Err(sentence),
            None => Ok(()),
        }
    }
}
