//! What a worker says, without what borrows from a buffer, and with the checks that belong to single messages.

use offload_protocol::limits::{CHECKPOINT_MAX, MESSAGE_MAX, PART_MAX, SDK_NAME_MAX};
use offload_protocol::messages::{ENDS, FromWorker, REASONS, WORKER_MAGIC};
use offload_protocol::nouns::{Batching, DescribedTask, FailureKind, TASK_NAMES, TaskOffer, is_task_name};
use std::fmt;

/// A message.
#[derive(Debug)]
pub(super) enum Said {
    Hello {
        major: u16,
        capabilities: u64,
    },
    Offer(Box<TaskOffer<'static>>, Box<DescribedTask>),
    OfferBatch(Batching),
    Ready,
    Started {
        job: u64,
        attempt: u32,
    },
    Ended(End),
    Skipped {
        job: u64,
    },
    Progress {
        job: u64,
        attempt: u32,
    },
    Checkpoint {
        job: u64,
        attempt: u32,
    },
    Yielded {
        job: u64,
        attempt: u32,
        state: Vec<u8>,
    },
    Part {
        job: u64,
        attempt: u32,
        bytes: usize,
    },
    /// A message of a capability that was not granted.
    Ungranted(&'static str),
}

/// How an attempt ended.
#[derive(Debug)]
pub(super) struct End {
    pub(super) job: u64,
    pub(super) attempt: u32,
    /// Why, if the task failed.
    pub(super) failed: Option<String>,
    /// The capability that it takes to say so; 0 if none.
    pub(super) takes: u64,
    /// Length of the output.
    pub(super) bytes: usize,
}

impl Said {
    /// The job and the attempt that it is about, if both are in it.
    pub(super) fn about(&self) -> Option<(u64, u32)> {
        match self {
            Said::Ended(End { job, attempt, .. })
            | Said::Started { job, attempt }
            | Said::Progress { job, attempt }
            | Said::Checkpoint { job, attempt }
            | Said::Yielded { job, attempt, .. }
            | Said::Part { job, attempt, .. } => Some((*job, *attempt)),
            _ => None,
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, about) = match self {
            Said::Hello { .. } => ("Hello", None),
            Said::Offer(..) => ("Offer", None),
            Said::OfferBatch(_) => ("OfferBatch", None),
            Said::Ready => ("Ready", None),
            Said::Started { .. } => ("Started", self.about()),
            Said::Ended(End { failed: None, .. }) => ("Finished", self.about()),
            Said::Ended(_) => ("Failed", self.about()),
            Said::Skipped { job } => return write!(formatter, "Skipped of job {job}"),
            Said::Progress { .. } => ("Progress", self.about()),
            Said::Checkpoint { .. } => ("Checkpoint", self.about()),
            Said::Yielded { .. } => ("Yielded", self.about()),
            Said::Part { .. } => ("Part", self.about()),
            Said::Ungranted(name) => return write!(formatter, "{name}, for which it has no capability"),
        };
        match about {
            Some((job, attempt)) => write!(formatter, "{name} of job {job}, attempt {attempt}"),
            None => formatter.write_str(name),
        }
    }
}

/// # Errors
/// A sentence that says which bound the message exceeds.
pub(super) fn said(message: FromWorker<'_>, payload: &[u8]) -> Result<Said, String> {
    let has_none = |said: Said| match payload.is_empty() {
        true => Ok(said),
        false => Err(format!("{said} came with a payload, and has none")),
    };
    match message {
        FromWorker::Hello { magic, .. } if magic != WORKER_MAGIC => {
            Err("its Hello does not begin with OFFLOADW".to_owned())
        }
        FromWorker::Hello { sdk, .. } if sdk.len() > SDK_NAME_MAX => {
            Err(format!("the name of its library has {} bytes, and may have {SDK_NAME_MAX}", sdk.len()))
        }
        FromWorker::Hello { major, capabilities, .. } => has_none(Said::Hello { major, capabilities }),
        FromWorker::Offer { task, about, example_length, schema_length } => {
            if !is_task_name(&task.name) {
                return Err(format!("{:?} is no name for a task: {TASK_NAMES}", task.name));
            }
            let described = DescribedTask::new(about, payload, example_length, schema_length)
                .map_err(|problem| format!("the offer of {}: {problem}", task.name))?;
            Ok(Said::Offer(Box::new(task.into_owned()), Box::new(described)))
        }
        FromWorker::OfferBatch { batching } => has_none(Said::OfferBatch(batching)),
        FromWorker::Ready => has_none(Said::Ready),
        FromWorker::Started { job, attempt } => has_none(Said::Started { job, attempt }),
        FromWorker::Finished { job, attempt, .. } => {
            Ok(Said::Ended(End { job, attempt, failed: None, takes: 0, bytes: payload.len() }))
        }
        FromWorker::Failed { message, .. } if message.len() > MESSAGE_MAX => {
            Err(format!("the message of Failed has {} bytes, and may have {MESSAGE_MAX}", message.len()))
        }
        FromWorker::Failed { job, attempt, kind, message, .. } => {
            let takes = match kind {
                FailureKind::AppError | FailureKind::Panic => 0,
                FailureKind::Deliberate => REASONS,
                FailureKind::Exited { .. }
                | FailureKind::Signalled { .. }
                | FailureKind::TimedOut
                | FailureKind::OutOfMemory => ENDS,
            };
            let failed = Some(message.into_owned());
            has_none(Said::Ended(End { job, attempt, failed, takes, bytes: 0 }))
        }
        FromWorker::Skipped { job } => has_none(Said::Skipped { job }),
        FromWorker::Progress { job, attempt, .. } => has_none(Said::Progress { job, attempt }),
        FromWorker::Checkpoint { .. } | FromWorker::Yielded { .. } if payload.len() > CHECKPOINT_MAX => {
            Err(format!("a state has {} bytes, and may have {CHECKPOINT_MAX}", payload.len()))
        }
        FromWorker::Checkpoint { job, attempt } => Ok(Said::Checkpoint { job, attempt }),
        FromWorker::Yielded { job, attempt, .. } => {
            Ok(Said::Yielded { job, attempt, state: payload.to_vec() })
        }
        FromWorker::Part { .. } if payload.is_empty() || payload.len() > PART_MAX => {
            Err(format!("a part has {} bytes, and has 1 to {PART_MAX}", payload.len()))
        }
        FromWorker::Part { job, attempt } => Ok(Said::Part { job, attempt, bytes: payload.len() }),
        FromWorker::SegmentReady { .. } => Ok(Said::Ungranted("SegmentReady")),
        FromWorker::SegmentLeft { .. } => Ok(Said::Ungranted("SegmentLeft")),
        FromWorker::OutputIn { .. } => Ok(Said::Ungranted("OutputIn")),
        FromWorker::Program { .. } => Ok(Said::Ungranted("Program")),
    }
}
