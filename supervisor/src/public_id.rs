//! Public job ids. They are ULIDs that contain the number of the job in the core, so no table is needed to translate
//! them.
//!
//! ```text
//!   48 bits  start of the supervisor, in milliseconds since 1970
//!   16 bits  random, so that two supervisors started together differ
//!   64 bits  number of the job
//! ```
//!
//! The ids of one supervisor sort by age. An id that another supervisor has given is recognized as unknown.

use offload_core::ids::JobId;
use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};
use ulid::{ULID_LEN, Ulid};

/// Creates and parses the public ids of one supervisor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PublicIds {
    prefix: u64,
}

impl PublicIds {
    /// The ids of a supervisor that starts now.
    pub(crate) fn new() -> PublicIds {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = u64::try_from(since_1970.as_millis()).unwrap_or_default();
        let chance = RandomState::new().hash_one(std::process::id()) & 0xffff;
        PublicIds { prefix: millis << 16 | chance }
    }

    /// The public id of a job.
    pub(crate) fn id(self, job: JobId) -> PublicId {
        PublicId(Ulid(u128::from(self.prefix) << 64 | u128::from(job.0)))
    }

    /// The public id of a job as a text.
    pub(crate) fn name(self, job: JobId) -> String {
        self.id(job).to_text()
    }

    /// The job with this public id. None if it cannot be an id of this supervisor. There need not be such a job.
    pub(crate) fn find(self, name: &str) -> Option<JobId> {
        match self.classify(name) {
            Named::Job(job) => Some(job),
            Named::OfOtherSupervisor | Named::NotAnId => None,
        }
    }

    /// What can be told from a public id alone.
    pub(crate) fn classify(self, name: &str) -> Named {
        let Ok(ulid) = Ulid::from_string(name) else { return Named::NotAnId };
        let number = ulid.0 as u64;
        match (ulid.0 >> 64) == u128::from(self.prefix) && number > 0 {
            true => Named::Job(JobId(number)),
            false => Named::OfOtherSupervisor,
        }
    }
}

/// The public id of a job: 16 bytes, until somebody wants to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PublicId(Ulid);

impl PublicId {
    /// The same as a text. Every job that ends needs one.
    pub(crate) fn to_text(self) -> String {
        self.0.array_to_str(&mut [0; ULID_LEN]).to_owned()
    }
}

/// What a text that should be a public id stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// The id of a job of this supervisor, whether or not there is such a job.
    Job(JobId),
    /// An id from another supervisor, or from this one before it was restarted.
    OfOtherSupervisor,
    /// Not an id.
    NotAnId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_back_to_its_job_and_no_other_text_does() {
        let ids = PublicIds::new();
        let name = ids.name(JobId(258));
        assert_eq!(name.len(), 26);
        assert!(name.starts_with('0'), "a ULID of this century: {name}");
        assert_eq!(ids.find(&name), Some(JobId(258)));
        assert_eq!(ids.find(&name.to_lowercase()), Some(JobId(258)));
        let other = PublicIds { prefix: ids.prefix ^ 1 };
        for text in
            [other.name(JobId(258)).as_str(), "", "x", &name[1..], "../../etc/passwd", &ids.name(JobId(0))]
        {
            assert_eq!(ids.find(text), None, "{text}");
        }
    }

    #[test]
    fn younger_jobs_have_greater_ids() {
        let ids = PublicIds::new();
        assert!(ids.name(JobId(9)) < ids.name(JobId(10)));
    }
}
