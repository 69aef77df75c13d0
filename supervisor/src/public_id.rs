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
use offload_protocol::limits::ID_END_MIN;
use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
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

    /// The numbers of the jobs whose ids begin with this text. None if no id of this supervisor does.
    pub(crate) fn beginning_with(self, text: &str) -> Option<RangeInclusive<u64>> {
        let rest = ULID_LEN.checked_sub(text.len()).filter(|rest| *rest < ULID_LEN)?;
        // A ULID has 128 bits, and 26 characters could have 130.
        if text >= "8" {
            return None;
        }
        let least = Ulid::from_string(&(text.to_owned() + &"0".repeat(rest))).ok()?.0;
        let most = Ulid::from_string(&(text.to_owned() + &"Z".repeat(rest))).ok()?.0;
        let first = u128::from(self.prefix) << 64 | 1;
        let last = u128::from(self.prefix) << 64 | u128::from(u64::MAX);
        (least <= last && most >= first).then(|| least.max(first) as u64..=most.min(last) as u64)
    }

    /// The numbers, up to `last`, of the jobs whose ids end with this text, the greatest first. None if the text is too short, or
    /// cannot be the end of an id.
    pub(crate) fn ending_with(self, text: &str, last: JobId) -> Option<impl Iterator<Item = u64> + use<>> {
        let rest = ULID_LEN.checked_sub(text.len()).filter(|_| text.len() >= ID_END_MIN)?;
        let end = Ulid::from_string(&("0".repeat(rest) + text)).ok()?.0;
        let bits = BITS_OF_A_CHARACTER * text.len() as u32;
        let distance = 1_u128.checked_shl(bits).unwrap_or(0);
        let is_one = move |number: &u64| {
            let id = self.id(JobId(*number)).0.0;
            *number > 0 && (id ^ end) & distance.wrapping_sub(1) == 0
        };
        let least = end as u64;
        // From here on, numbers that are this far apart end in the same way; further ones do not fit into 64 bits.
        let distance = u64::try_from(distance).unwrap_or(0);
        let most = match last.0.checked_sub(least) {
            Some(above) if distance > 0 => Some(least + above / distance * distance),
            Some(_) => Some(least),
            None => None,
        };
        let next =
            move |number: &u64| number.checked_sub(distance).filter(|next| *next >= least && distance > 0);
        Some(std::iter::successors(most, next).filter(is_one))
    }
}

/// Bits that one character of an id has.
const BITS_OF_A_CHARACTER: u32 = 5;

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

    fn ending(ids: PublicIds, text: &str, last: u64) -> Option<Vec<u64>> {
        Some(ids.ending_with(text, JobId(last))?.collect())
    }

    #[test]
    fn what_an_id_begins_with_stands_for_all_that_begin_with_it() {
        let ids = PublicIds::new();
        let name = ids.name(JobId(0x4321));
        for length in 1..=26 {
            let found = ids.beginning_with(&name[..length]).unwrap();
            assert!(found.contains(&0x4321) && !found.contains(&0), "{length}: {found:?}");
        }
        assert_eq!(ids.beginning_with(&name), Some(0x4321..=0x4321));
        assert_eq!(ids.beginning_with(&name[..25]), Some(0x4320..=0x433f));
        assert_eq!(ids.beginning_with(&name[..1]), Some(1..=u64::MAX));
        let other = PublicIds { prefix: ids.prefix ^ 1 };
        let zero = ids.name(JobId(0));
        for text in ["", "Z", "é", "8", "u", &other.name(JobId(1)), &zero, &format!("{name}0")] {
            assert_eq!(ids.beginning_with(text), None, "{text}");
        }
    }

    #[test]
    fn what_an_id_ends_with_stands_for_every_number_that_is_so_far_apart() {
        let ids = PublicIds::new();
        let name = ids.name(JobId(0x4321));
        let end = |length: usize| &name[26 - length..];
        let far = 1 << 20;
        assert_eq!(ending(ids, end(4), 2 * far + 0x4321), Some(vec![2 * far + 0x4321, far + 0x4321, 0x4321]));
        assert_eq!(ending(ids, end(4), 0x4320), Some(vec![]));
        assert_eq!(ending(ids, end(12), u64::MAX).map(|all| all.len()), Some(16));
        for length in 13..=26 {
            assert_eq!(ending(ids, end(length), u64::MAX), Some(vec![0x4321]), "{length}");
        }
        let other = PublicIds { prefix: ids.prefix ^ 1 };
        assert_eq!(ending(other, &name, u64::MAX), Some(vec![]), "the id of another supervisor");
        assert_eq!(ending(ids, "0000", 5), Some(vec![]), "no job has the number 0");
        assert_eq!(ending(ids, end(3), u64::MAX), None, "too short");
        assert_eq!(ending(ids, "uuuu", u64::MAX), None, "no end of an id");
    }

    #[test]
    fn younger_jobs_have_greater_ids() {
        let ids = PublicIds::new();
        assert!(ids.name(JobId(9)) < ids.name(JobId(10)));
    }
}
