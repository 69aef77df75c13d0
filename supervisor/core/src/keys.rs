//! Names under which jobs were submitted at most once (idempotency keys, as in the IETF draft "The Idempotency-Key HTTP
//! Header Field"). A key is known while its job lives and for the time that is promised after its end: `promises` says
//! when that is over. Of the keys whose time is over the last ones are remembered a while longer, so that the job that
//! comes with such a key can be told that it is not the first one.

use super::event::Key;
use super::ids::JobId;
use super::kept::Owner;
use crate::limits::EXPIRED_KEYS_MAX;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A key and whose it is. It is a pair and never one text: a client `team` with the key `bill/17` is not the client
/// `team/bill` with the key `17`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct KeyName {
    owner: Owner,
    key: Arc<str>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Keys {
    uses: BTreeMap<KeyName, Use>,
    /// Those whose time is over, with the jobs that they stood for, and the same in the order of time.
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
    /// This job, which is the same.
    Same(JobId),
    /// Another one.
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

    /// From now on the key stands for this job. Its name is returned, and the job that it stood for until its time was
    /// over, if that is remembered.
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

    /// The key's time is over.
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

    /// How many are known.
    pub(super) fn len(&self) -> usize {
        self.uses.len()
    }

    /// All are forgotten.
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
