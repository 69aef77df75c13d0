//! Which jobs are better done on the loop, in steps, and which by workers: as `offload bench advise --write FILE` found out.

use super::ComputePool;
use crate::job::Job;
use bytes::Bytes;
use offload_event_loop::Context;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

/// The longest policy file that is read, in bytes.
const POLICY_BYTES_MAX: u64 = 1 << 20;

/// From which size on the jobs of each task go to workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// By the name of the task.
    pub tasks: BTreeMap<String, TaskPolicy>,
}

/// What is known of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskPolicy {
    /// Jobs of this size and larger ones are for workers; none: no job is.
    pub offload_from: Option<u64>,
    /// How long a smaller job may compute on the loop before that goes on with other things, in microseconds.
    pub slice_us: u64,
}

/// Where a job is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the loop, in steps, for at most this long in each iteration.
    OnTheLoop(Duration),
    /// By a worker.
    Offloaded,
}

impl Policy {
    /// Reads the file that `offload bench advise --write FILE` has written. This may block.
    ///
    /// # Errors
    /// The file cannot be read, is longer than 1 MiB, or is no policy ([`io::ErrorKind::InvalidData`]).
    pub fn read(file: &Path) -> io::Result<Policy> {
        let mut text = String::new();
        File::open(file)?.take(POLICY_BYTES_MAX + 1).read_to_string(&mut text)?;
        if text.len() as u64 > POLICY_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a policy has at most 1 MiB"));
        }
        serde_json::from_str(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Where a job of this task and size is done. What nothing is known of is for workers: there it can do no harm.
    pub fn place(&self, task: &str, size: u64) -> Place {
        match self.tasks.get(task) {
            Some(known) if known.offload_from.is_none_or(|from| size < from) => {
                Place::OnTheLoop(Duration::from_micros(known.slice_us))
            }
            _ => Place::Offloaded,
        }
    }
}

impl ComputePool {
    /// Does a job of this size where the policy says: on the loop, as `step` after `step` of `begin()` until that breaks with the
    /// output; or by a worker, which is given `job`. Both must come to the same. `done` is called on the loop, later, exactly once,
    /// as by [`ComputePool::submit`]; an error is a sentence for people.
    ///
    /// The loop and the workers are not told apart by anything else, so a size is whatever the policy was measured for: `n` of `average`.
    /// A job on the loop cannot be cancelled.
    #[track_caller]
    pub fn auto<State: 'static>(
        &self,
        policy: &Policy,
        size: u64,
        job: Job,
        begin: impl FnOnce() -> State,
        step: impl FnMut(&mut State) -> ControlFlow<Result<Bytes, String>> + 'static,
        done: impl FnOnce(Result<Bytes, String>, &mut Context) + 'static,
    ) {
        match policy.place(job.task(), size) {
            Place::OnTheLoop(slice) => {
                self.handle.partition_within(slice, begin(), step, |cx, output| done(output, cx));
            }
            Place::Offloaded => self.submit(job, |finished, cx| done(finished.into_output(), cx)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_placed_by_its_size_and_what_is_unknown_is_for_workers() {
        let text = r#"{"tasks": {"average": {"offload_from": 100, "slice_us": 500},
            "tiny": {"offload_from": null, "slice_us": 1000}}}"#;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policy.json");
        std::fs::write(&file, text).unwrap();
        let policy = Policy::read(&file).unwrap();
        let here = |microseconds| Place::OnTheLoop(Duration::from_micros(microseconds));
        assert_eq!(policy.place("average", 99), here(500));
        assert_eq!(policy.place("average", 100), Place::Offloaded);
        assert_eq!(policy.place("tiny", u64::MAX), here(1000));
        assert_eq!(policy.place("other", 0), Place::Offloaded);
    }

    #[test]
    fn what_is_no_policy_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policy.json");
        assert_eq!(Policy::read(&file).unwrap_err().kind(), io::ErrorKind::NotFound);
        let long = " ".repeat(1 << 20) + "{}";
        for text in ["", "{}", "[]", r#"{"tasks": {"t": {}}}"#, r#"{"tasks": {}, "x": 1}"#, &long] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(Policy::read(&file).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
