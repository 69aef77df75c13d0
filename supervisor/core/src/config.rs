//! The configuration of the core, with the defaults that users are told.

use crate::batches::BatchLimits;
use crate::here::TasksHere;
use crate::limits::{
    ATTEMPTS_MAX, DEAD_BYTES_MAX, DEAD_LETTERS_MAX, FILES_OPEN, HANGING_MAX, JOBS_QUEUED_MAX_DEFAULT,
    KEEP_DEAD_LETTERS_DEFAULT, KEEP_KEYS_DEFAULT, KEEP_RESULTS_DEFAULT, KEPT_BYTES_MAX_DEFAULT, LAST_JOBS,
    PROMISE_BYTES, QUEUED_BYTES_MAX_DEFAULT, RESTING_CLIENTS_MAX, WEIGHT_MAX, WORKERS_MAX,
};
use offload_protocol::limits::{PAYLOAD_MAX_CEILING, PAYLOAD_MAX_DEFAULT};
use std::collections::BTreeMap;
use std::time::Duration;

/// The configuration of the core. The defaults are those of the command line: `offload config reference` prints each setting with its
/// default and its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreConfig {
    /// Number of slots: worker processes that run jobs. 1 to [`WORKERS_MAX`].
    pub workers: usize,
    /// Number of different worker programs; slot `i` runs program `i` modulo this number. At least 1, at most
    /// `workers`.
    pub programs: usize,
    /// Tasks that need no worker. They stay the same, as the programs do.
    pub here: TasksHere,
    /// Started workers that wait to replace one that dies: 0 or 1.
    pub spares: usize,
    /// Most jobs that may wait.
    pub max_jobs: usize,
    /// Most jobs of one client that may wait; `None`: nine tenths of `max_jobs`, so that there is room for others.
    pub max_jobs_per_client: Option<usize>,
    /// Weights of clients, by name; 1 for all others. A client with weight 2 gets twice the worker time. 1 to
    /// [`WEIGHT_MAX`].
    pub weights: BTreeMap<String, u32>,
    /// Most clients without jobs that are remembered: how much worker time they used ahead of the others, and how long
    /// their outputs were. The one that used least is forgotten first.
    pub max_resting: usize,
    /// How many slots of each program are reserved for short work; `None`: a quarter of them, and at least one if
    /// there are two.
    pub short_slots: Option<usize>,
    /// Most bytes that are held for clients: inputs, checkpoints and outputs.
    pub max_bytes: u64,
    /// Longest input of one job, in bytes.
    pub max_payload: u64,
    /// Most files that jobs hold open as their inputs. One client may have as many as it leaves free, half if it is alone.
    pub max_files: usize,
    /// How long the result of a detached job is kept after the job's end, unless it is collected.
    pub keep_results: Duration,
    /// How long an idempotency key is known, and the result of its job kept, after the job's end.
    pub keep_keys: Duration,
    /// Most bytes of results and keys that are kept. One client may have as much as it leaves free, half if it is
    /// alone.
    pub max_kept_bytes: u64,
    /// How long a dead letter is kept.
    pub keep_dead_letters: Duration,
    /// Most dead letters. One client may have as many as it leaves free, half if it is alone.
    pub max_dead_letters: usize,
    /// Most bytes that dead letters hold. One client may have as much as it leaves free.
    pub max_dead_bytes: u64,
    /// Longest run of one attempt, unless the job says otherwise.
    pub run_timeout: Duration,
    /// Most attempts at a job that may be tried again. At most [`ATTEMPTS_MAX`].
    pub max_attempts: u32,
    /// Longest time from the start of a worker to its hello.
    pub hello_timeout: Duration,
    /// Longest time from giving a job to an idle worker until the worker reports that it has started.
    pub start_timeout: Duration,
    /// Time from telling a running job that nobody wants it any more, because it is cancelled or its time is over, to SIGTERM.
    pub cancel_grace: Duration,
    /// Time from SIGTERM to SIGKILL.
    pub kill_grace: Duration,
    /// Time from the end of a worker's channel to SIGKILL, if the process itself does not end.
    pub closed_grace: Duration,
    /// Time to SIGKILL for a worker that was stopped, or has not reported what it promised to report.
    pub hang_timeout: Duration,
    /// Time from SIGKILL to the conclusion that a process hangs in the kernel.
    pub reap_timeout: Duration,
    /// A worker is replaced after this many jobs, or up to a quarter more.
    pub max_jobs_per_worker: Option<u64>,
    /// A worker is replaced at this age, or up to a quarter later.
    pub max_age: Option<Duration>,
    /// A worker is replaced if its resident memory is larger than this, in bytes.
    pub max_rss: Option<u64>,
    /// A new version of a program has shown that it works when its worker has done this many jobs ...
    pub trial_jobs: u32,
    /// ... or has lived for this long.
    pub trial_time: Duration,
    /// The seed of the random numbers for jitter.
    pub seed: u64,
    /// Pause after the first failed start. Each further failure doubles it.
    pub backoff_min: Duration,
    /// Longest pause between two starts.
    pub backoff_max: Duration,
    /// After this many failed starts in a row, jobs are refused until a worker says hello.
    pub max_restarts: u32,
    /// The same limit for a program that is most likely no worker: none of its workers ever said hello, and one sent
    /// nothing until `hello_timeout` or before it exited with code 0, or sent nothing that makes sense.
    pub max_silent_starts: u32,
    /// A worker that dies idle within this time after its hello, without having finished a job, counts as a failed
    /// start. At least `backoff_min` is used: otherwise nothing would keep such a worker from being started again and
    /// again.
    pub window: Duration,
    /// How long jobs have to finish after a signal that ends the process, or in `ComputePool::drain`; then they are
    /// cancelled.
    pub drain_timeout: Duration,
    /// Most short jobs given to one worker at a time; 1 gives each job only to an idle worker.
    pub window_max: usize,
    /// Lower limits for the batches of tasks than those that their workers offer, by the task's name.
    pub batches: BTreeMap<String, BatchLimits>,
}

impl Default for CoreConfig {
    fn default() -> CoreConfig {
        CoreConfig {
            workers: 1,
            programs: 1,
            here: TasksHere::default(),
            spares: 1,
            max_jobs: JOBS_QUEUED_MAX_DEFAULT,
            max_jobs_per_client: None,
            weights: BTreeMap::new(),
            max_resting: RESTING_CLIENTS_MAX,
            short_slots: None,
            max_bytes: QUEUED_BYTES_MAX_DEFAULT,
            max_payload: PAYLOAD_MAX_DEFAULT as u64,
            max_files: FILES_OPEN,
            keep_results: KEEP_RESULTS_DEFAULT,
            keep_keys: KEEP_KEYS_DEFAULT,
            max_kept_bytes: KEPT_BYTES_MAX_DEFAULT,
            keep_dead_letters: KEEP_DEAD_LETTERS_DEFAULT,
            max_dead_letters: DEAD_LETTERS_MAX,
            max_dead_bytes: DEAD_BYTES_MAX,
            run_timeout: Duration::from_secs(300),
            max_attempts: 3,
            hello_timeout: Duration::from_secs(10),
            start_timeout: Duration::from_secs(10),
            cancel_grace: Duration::from_millis(100),
            kill_grace: Duration::from_millis(500),
            closed_grace: Duration::from_millis(500),
            hang_timeout: Duration::from_secs(1),
            reap_timeout: Duration::from_secs(2),
            max_jobs_per_worker: None,
            max_age: None,
            max_rss: None,
            trial_jobs: 3,
            trial_time: Duration::from_secs(2),
            seed: 0,
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(5),
            max_restarts: 5,
            max_silent_starts: 5,
            window: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(10),
            window_max: crate::limits::WINDOW_MAX,
            batches: BTreeMap::new(),
        }
    }
}

/// Limits of what is kept of ended jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptLimits {
    /// What all clients together may have, each no more than its share.
    pub shares: u64,
    /// What all clients together may have, also beyond their shares: the longest output of each worker more.
    pub all: u64,
}

impl CoreConfig {
    /// Most processes at a time: the workers, the spares, during a reload one more for each program, and those that
    /// hang in the kernel.
    pub fn processes_max(&self) -> usize {
        self.workers + self.spares + self.programs + HANGING_MAX
    }

    /// A worker that dies idle within this time after its hello, without having finished a job, counts as a failed
    /// start.
    pub fn failed_start_window(&self) -> Duration {
        self.window.max(self.backoff_min)
    }

    /// The reason for rejecting an input of this many bytes, which is over `max_payload`. It names the settings that
    /// have to be raised.
    pub fn too_large(&self, bytes: u64) -> String {
        let limit = self.max_payload;
        let setting =
            if limit < self.max_bytes { "max_payload" } else { "max_payload, which is never over max_bytes" };
        format!("input of {bytes} bytes, the limit is {limit} bytes ({setting})")
    }

    /// Most jobs of one client that may wait.
    pub fn max_jobs_of_one(&self) -> usize {
        self.max_jobs_per_client.unwrap_or(self.max_jobs - self.max_jobs / LAST_JOBS)
    }

    /// Most bytes of results and keys that are kept for one client, if no other client has any.
    pub fn kept_bytes_of_one(&self) -> u64 {
        self.max_kept_bytes / 2
    }

    /// When more is kept of ended jobs, no other job starts whose output is to be kept.
    pub fn kept_limits(&self) -> KeptLimits {
        let in_flight = self.max_payload.saturating_mul(self.workers as u64);
        let shares = self.max_kept_bytes;
        KeptLimits { shares, all: shares.saturating_add(in_flight) }
    }

    /// The weight of the client of this name.
    pub fn weight_of(&self, client: &str) -> u32 {
        self.weights.get(client).copied().unwrap_or(1)
    }

    /// How many of `slots` slots of one program are reserved for short work.
    pub fn reserved_of(&self, slots: usize) -> usize {
        let unasked = if slots >= 2 { (slots / 4).max(1) } else { 0 };
        self.short_slots.unwrap_or(unasked).min(slots.saturating_sub(1))
    }

    /// Checks all values.
    ///
    /// # Errors
    /// One sentence, for people, about the first value that is out of its bounds.
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
            (
                self.here.places >= 1 || self.here.offers.is_empty(),
                "no place for the tasks that need no worker".to_owned(),
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
            (
                self.kept_bytes_of_one() >= PROMISE_BYTES,
                format!("max_kept_bytes = {}: at least {}", self.max_kept_bytes, 2 * PROMISE_BYTES),
            ),
            (self.max_restarts >= 1, "max_restarts = 0: at least 1".to_owned()),
            (self.max_silent_starts >= 1, "max_silent_starts = 0: at least 1".to_owned()),
            (self.backoff_min <= self.backoff_max, "backoff_min is over backoff_max".to_owned()),
            (!self.backoff_min.is_zero(), "backoff_min = 0: starts would never pause".to_owned()),
            (!self.run_timeout.is_zero(), "run_timeout = 0: every job would time out".to_owned()),
            (
                self.max_jobs_per_client != Some(0),
                "max_jobs_per_client = 0: nobody could ever wait".to_owned(),
            ),
            (
                self.weights.values().all(|weight| (1..=WEIGHT_MAX).contains(weight)),
                format!("a weight is out of bounds: 1 to {WEIGHT_MAX}"),
            ),
            (
                self.short_slots.is_none_or(|slots| slots < self.workers),
                "short_slots: nothing would be left for long jobs".to_owned(),
            ),
            (self.max_jobs_per_worker != Some(0), "max_jobs_per_worker = 0: at least 1".to_owned()),
            (self.max_age != Some(Duration::ZERO), "max_age = 0: no worker could live".to_owned()),
            (self.trial_jobs >= 1, "trial_jobs = 0: at least 1".to_owned()),
            (
                self.window_max <= crate::limits::WINDOW_MAX,
                format!("window_max = {}: at most {}", self.window_max, crate::limits::WINDOW_MAX),
            ),
            (self.window_max >= 1, "window_max = 0: no job could be given".to_owned()),
        ];
        match checks.into_iter().find(|(holds, _)| !holds) {
            Some((_, sentence)) => Err(sentence),
            None => Ok(()),
        }
    }
}
