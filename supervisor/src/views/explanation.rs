//! Why a job is where it is.

use super::AttemptView;
use offload_protocol::nouns::Labels;
use serde::{Deserialize, Serialize};

/// What changes of a job as it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlanceView {
    /// Its state, or how it ended, in the words of [`ExplanationView::state`].
    pub state: &'static str,
    /// Number of attempts that were started, without those that were lost together with other jobs: these cost none.
    pub attempts: u32,
    /// What the latest attempt has reported: units of work that are done, and all of them; 0 if that is not known.
    pub progress: Option<(u64, u64)>,
}

/// The state of a job and the reasons for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplanationView {
    /// The job's public id.
    pub job: String,
    /// The job's task.
    pub task: String,
    /// The client that submitted the job.
    pub client: String,
    /// `parked` (no worker is known to offer the task yet), `queued`, `paused`, `held` (there is no room to keep its output),
    /// `assigned`, `running`, or the outcome.
    pub state: String,
    /// The words by which the job can be found; absent if there are none.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The reasons as sentences for a user, the most important first.
    pub reasons: Vec<String>,
    /// Time since the job was accepted, or from acceptance to the end, in microseconds.
    pub age_us: u64,
    /// Number of attempts that were started, without those that were lost together with other jobs: these cost none.
    pub attempts: u32,
    /// How many attempts may end their worker.
    pub attempts_allowed: Option<u32>,
    /// How long a waiting job is expected to wait, in microseconds. None if the job does not wait, or if no similar
    /// job has ever run.
    pub expected_wait_us: Option<u64>,
    /// Number of jobs of the same client that come before a waiting job.
    pub ahead: Option<usize>,
    /// `short` or `long`: the class of the job, which decides which slots it may use.
    pub class: Option<String>,
    /// The slot that runs the job or ran it last.
    pub slot: Option<usize>,
    /// The process that runs the job or ran it last.
    pub worker_pid: Option<u32>,
    /// Units of work done, and the total (0 if unknown).
    pub progress: Option<(u64, u64)>,
    /// Length of the checkpoint from which the next attempt resumes, in bytes; 0 if there is none.
    pub checkpoint_bytes: u64,
    /// The attempts that were lost, the first one first.
    pub lost: Vec<AttemptView>,
}
