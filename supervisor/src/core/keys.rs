//! Names under which jobs were submitted at most once (idempotency keys, as in the IETF draft "The Idempotency-Key HTTP
//! Header Field"). A name is known for as long as its job is remembered: while it lives, and until as many others have
//! ended as the supervisor remembers.

use super::event::Key;
use super::ids::JobId;
use crate::limits::FINISHED_JOBS_MAX;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Keys {
    uses: BTreeMap<Arc<str>, Use>,
    /// Those whose jobs have ended, with the number of the end.
    ended: VecDeque<(u64, Arc<str>)>,
    ends: u64,
}

#[derive(Debug)]
struct Use {
    task: Arc<str>,
    digest: u128,
    job: JobId,
}

/// What a name stands for already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// This job, which is the same.
    Same(JobId),
    /// Another one.
    Other(JobId),
}

impl Keys {
    pub(super) fn find(&self, key: &Key, task: &str) -> Option<Known> {
        let known = self.uses.get(&*key.name)?;
        let is_same = known.digest == key.digest && *known.task == *task;
        Some(if is_same { Known::Same(known.job) } else { Known::Other(known.job) })
    }

    pub(super) fn insert(&mut self, key: &Key, task: &str, job: JobId) -> Arc<str> {
        let name: Arc<str> = Arc::from(&*key.name);
        self.uses.insert(name.clone(), Use { task: Arc::from(task), digest: key.digest, job });
        name
    }

    /// A job has ended; each one counts, with a key or without.
    pub(super) fn ended(&mut self, key: Option<Arc<str>>) {
        self.ends += 1;
        self.ended.extend(key.map(|key| (self.ends, key)));
        while self.ended.front().is_some_and(|(end, _)| self.ends - end >= FINISHED_JOBS_MAX as u64) {
            if let Some((_, key)) = self.ended.pop_front() {
                self.uses.remove(&key);
            }
        }
    }

    /// How many are known.
    pub(super) fn len(&self) -> usize {
        self.uses.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(digest: u128) -> Key {
        Key { name: "mine".to_owned(), digest }
    }

    #[test]
    fn the_same_name_with_another_input_or_task_is_another_job() {
        let mut keys = Keys::default();
        assert_eq!(keys.find(&key(1), "sum"), None);
        keys.insert(&key(1), "sum", JobId(7));
        assert_eq!(keys.find(&key(1), "sum"), Some(Known::Same(JobId(7))));
        assert_eq!(keys.find(&key(2), "sum"), Some(Known::Other(JobId(7))));
        assert_eq!(keys.find(&key(1), "sort"), Some(Known::Other(JobId(7))));
    }

    #[test]
    fn a_name_is_forgotten_with_its_job_and_not_before() {
        let mut keys = Keys::default();
        let name = keys.insert(&key(1), "sum", JobId(7));
        keys.ended(Some(name));
        (0..FINISHED_JOBS_MAX - 1).for_each(|_| keys.ended(None));
        assert_eq!(keys.len(), 1);
        keys.ended(None);
        assert_eq!((keys.len(), keys.find(&key(2), "sum")), (0, None));
    }
}
