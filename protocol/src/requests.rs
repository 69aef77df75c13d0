//! What clients can ask for, and how a job is to be treated: parts of the messages of clients.

use crate::capabilities::{FILTERS, FIND, LOGS, PAUSES};
#[cfg(doc)]
use crate::messages::PARTS;
use crate::nouns::{Labels, Lane, Metadata};
use serde::{Deserialize, Serialize};

/// What a client can ask to see. The answer is the JSON document that the verb of that name prints with `--json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum View {
    /// The supervisor as a whole.
    Status,
    /// One entry for each slot.
    Workers,
    /// Recent jobs, the newest first.
    Jobs,
    /// The tasks that can be submitted.
    Tasks,
    /// The dead letters, the newest first.
    Dead,
}

/// What can be done with a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeadLetterAction {
    /// Show all attempts.
    Show,
    /// Submit it again as a new job, and delete the dead letter.
    Retry,
    /// Delete it.
    Drop,
}

/// What somebody who operates a supervisor can ask for. New ones go last: the position of a variant is its number on the
/// wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Say which jobs a shortened id can stand for ([`FIND`]). Answered with an `Answer` of the form
    /// `{"jobs": [...], "more": false}`: the youngest [`CANDIDATES_MAX`](crate::limits::CANDIDATES_MAX) as in the view `Jobs`, and
    /// whether there may be others.
    Find {
        /// The first characters of the id, or at least [`ID_END_MIN`](crate::limits::ID_END_MIN) of its last ones.
        text: String,
    },
    /// As `Page` for the view `Jobs`, for those that pass a filter ([`FILTERS`]).
    Jobs {
        /// The `next` of the page before; empty for the first page.
        after: String,
        /// Most rows.
        limit: u32,
        /// Which jobs. A page with few rows, or none, may be followed by others.
        filter: JobFilter,
    },
    /// Show lines that workers have printed and that are still kept ([`LOGS`]), the oldest first. Answered with an `Answer` of the
    /// form `{"lines": [...], "next": 17, "lost": 0, "more": false, "ended": false}`. Whoever follows them asks again, with `next`.
    Logs {
        /// The `next` of the answer before; 0 for all that are kept.
        after: u64,
        /// Of this slot only.
        slot: Option<u32>,
        /// Of this job only: its public id; empty for all.
        job: String,
    },
    /// Start nothing new of a task ([`PAUSES`]): what runs goes on, and jobs are accepted and wait. Answered with an `Answer` of the
    /// form `{"paused": {"all": false, "tasks": ["thumb"]}}`: what is paused now.
    Pause {
        /// The task, which a worker offers or has offered; empty for all.
        task: String,
    },
    /// End the pause of a task ([`PAUSES`]). Answered in the same way.
    Resume {
        /// The task; empty for all. While all are paused, one alone cannot be resumed.
        task: String,
    },
}

/// Which jobs a list is to have: those of which all of this is true.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFilter {
    /// `queued`, `paused`, `running` or an outcome; empty for any.
    pub state: String,
    /// The name of the task; empty for any.
    pub task: String,
    /// The client, as the list has it; any if there is none.
    pub client: Option<String>,
    /// A label that the job has; empty for any.
    pub label: String,
    /// The job was accepted at most so many milliseconds ago; any if there is none.
    pub since_ms: Option<u64>,
}

impl Operation {
    /// The capability that both ends have if this is asked for.
    pub fn capability(&self) -> u64 {
        match self {
            Operation::Find { .. } => FIND,
            Operation::Jobs { .. } => FILTERS,
            Operation::Logs { .. } => LOGS,
            Operation::Pause { .. } | Operation::Resume { .. } => PAUSES,
        }
    }

    /// What it is, for people: `a ...`.
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Find { .. } => "a shortened id",
            Operation::Jobs { .. } => "a filter",
            Operation::Logs { .. } => "what workers printed",
            Operation::Pause { .. } | Operation::Resume { .. } => "a pause",
        }
    }
}

/// A name for a job by which it is recognized when it is submitted again. A second submission gives the same job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdempotencyKey {
    /// The name: 1 to [`crate::limits::NAME_MAX`] bytes.
    pub key: String,
    /// A digest of the input, made by the client. The same key with another digest is a conflict.
    pub digest: u128,
}

/// How a job is to be treated. Times are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitOptions {
    /// Longest run of one attempt; by default as the supervisor is configured.
    pub timeout_ms: Option<u64>,
    /// Longest time from acceptance to the result, waiting in the queue included; by default there is no limit.
    pub deadline_ms: Option<u64>,
    /// Most attempts, 1 to 100; by default 1, or as the supervisor is configured if the task is idempotent.
    pub attempts: Option<u32>,
    /// The lane that the task must be in; by default any.
    pub lane: Option<Lane>,
    /// -10 to 10. Jobs with a higher priority start sooner.
    pub priority: i8,
    /// Submitting again under the same key gives the same job.
    pub idempotency: Option<IdempotencyKey>,
    /// What goes with the job to its task.
    pub metadata: Metadata,
    /// Words by which the job can be found.
    pub labels: Labels,
    /// Send the parts of the output as they come, as `Part`, and then `Finished` with the rest ([`PARTS`]). Such a job can
    /// neither be detached nor have an idempotency key, because nothing of its output is kept.
    pub stream: bool,
}
