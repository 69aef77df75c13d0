//! Idempotency keys: names under which a job is submitted at most once (as in the IETF draft "The Idempotency-Key
//! HTTP Header Field"). A key is known while its job lives and for a promised time after the job's end; `promises`
//! decides when that time is over. The keys that expired last ([`EXPIRED_KEYS_MAX`]) are remembered for longer, so
//! that a client which uses one again can be told that the key has stood for another job before.

use super::event::Key;
use super::ids::JobId;
use super::kept::Owner;
use crate::limits::EXPIRED_KEYS_MAX;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A key together with its owner. They stay a pair and are never joined into one text: the client `team` with the key
/// `bill/17` is not the client `team/bill` with the key `17`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct KeyName {
    owner: Owner,
    key: Arc<str>,
}

/// All keys that are known, and those that expired last.
#[derive(Debug, Default)]
pub(super) struct Keys {
    uses: BTreeMap<KeyName, Use>,
    /// Expired keys with the jobs that they stood for. `expired_first` has the same keys, the one that expired first
    /// in front.
    expired: BTreeMap<KeyName, JobId>,
    expired_first: VecDeque<KeyName>,
}

#[derive(Debug)]
struct Use {
    task: Arc<str>,
    digest: u128,
    job: JobId,
}

/// What a key stands for already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// For this job: same task, same input.
    Same(JobId),
    /// For a job with another task or another input.
    Other,
}

impl KeyName {
    pub(super) fn new(owner: &Owner, key: &Key) -> KeyName {
        KeyName { owner: owner.clone(), key: Arc::from(&*key.name) }
    }
}

impl Keys {
    pub(super) fn find(&self, owner: &Owner, key: &Key, task: &str) -> Option<Known> {
        let known = self.uses.get(&KeyName::new(owner, key))?;
        let is_same = known.digest == key.digest && *known.task == *task;
        Some(if is_same { Known::Same(known.job) } else { Known::Other })
    }

    /// Makes the key stand for this job. Returns the key's name and, if the key has expired before and is still
    /// remembered, the job that it stood for then.
    pub(super) fn insert(
        &mut self,
        owner: &Owner,
        key: &Key,
        task: &str,
        job: JobId,
    ) -> (KeyName, Option<JobId>) {
        let name = KeyName::new(owner, key);
        let before = self.expired.get(&name).copied();
        self.uses.insert(name.clone(), Use { task: Arc::from(task), digest: key.digest, job });
        (name, before)
    }

    /// The key's time is over: it expires.
    pub(super) fn expire(&mut self, name: &KeyName) {
        let Some(known) = self.uses.remove(name) else { return };
        if self.expired.insert(name.clone(), known.job).is_none() {
            self.expired_first.push_back(name.clone());
        }
        while self.expired.len() > EXPIRED_KEYS_MAX {
            let Some(oldest) = self.expired_first.pop_front() else { return };
            self.expired.remove(&oldest);
        }
    }

    /// How many keys are known, without the expired ones.
    pub(super) fn len(&self) -> usize {
        self.uses.len()
    }

    /// Forgets all keys, the expired ones too.
    pub(super) fn clear(&mut self) {
        *self = Keys::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, digest: u128) -> Key {
        Key { name: name.to_owned(), digest }
    }

    #[test]
    fn the_same_name_with_another_input_or_task_is_another_job() {
        let (mut keys, mine) = (Keys::default(), Owner::of("me"));
        assert_eq!(keys.find(&mine, &key("a", 1), "sum"), None);
        keys.insert(&mine, &key("a", 1), "sum", JobId(7));
        assert_eq!(keys.find(&mine, &key("a", 1), "sum"), Some(Known::Same(JobId(7))));
        assert_eq!(keys.find(&mine, &key("a", 2), "sum"), Some(Known::Other));
        assert_eq!(keys.find(&mine, &key("a", 1), "sort"), Some(Known::Other));
        assert_eq!(keys.find(&Owner::Nameless, &key("a", 1), "sum"), None);
    }

    #[test]
    fn no_client_and_key_can_be_taken_for_another_client_and_key() {
        let mut keys = Keys::default();
        keys.insert(&Owner::of("team"), &key("bill/17", 1), "sum", JobId(1));
        assert_eq!(keys.find(&Owner::of("team/bill"), &key("17", 1), "sum"), None);
        assert_eq!(keys.find(&Owner::Nameless, &key("team/bill/17", 1), "sum"), None);
    }

    #[test]
    fn of_expired_keys_the_last_ones_are_remembered_and_no_more() {
        let (mut keys, mine) = (Keys::default(), Owner::of("me"));
        for job in 1..=EXPIRED_KEYS_MAX as u64 + 1 {
            let (name, _) = keys.insert(&mine, &key(&job.to_string(), 1), "sum", JobId(job));
            keys.expire(&name);
        }
        assert_eq!((keys.len(), keys.expired.len()), (0, EXPIRED_KEYS_MAX));
        let mut before = |name: &str| keys.insert(&mine, &key(name, 1), "sum", JobId(9000)).1;
        assert_eq!((before("1"), before("2")), (None, Some(JobId(2))));
    }
}
