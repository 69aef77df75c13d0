//! The names of outputs that are not complete, until they get their own.
//!
//! ```text
//!   .offload-unfinished-INDEX-MAP-CHECK      MAP: a number by chance, one for each map
//!                                            CHECK: 64 bits of the SHA-256 of all before it
//! ```
//!
//! Nobody but a `map` gives such a name to a file, because of the check. And whoever has the lock of the folder knows that the map
//! which gave it has ended. So exactly these are removed, and no file of somebody else that begins the same.

use super::output_folder::half_digest;
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::process;

/// How they begin, and all names that no output gets.
pub(super) const RESERVED: &str = ".offload-";

/// The names of one map.
#[derive(Debug)]
pub(super) struct UnfinishedNames {
    map: u64,
}

impl UnfinishedNames {
    pub(super) fn new() -> UnfinishedNames {
        UnfinishedNames { map: RandomState::new().hash_one(process::id()) }
    }

    /// The name for the output of this job.
    pub(super) fn name(&self, index: u64) -> String {
        checked(&format!("{RESERVED}unfinished-{index}-{:016x}", self.map))
    }
}

/// Whether a map has given this name.
pub(super) fn is_unfinished(name: &OsStr) -> bool {
    let begun = name.to_str().and_then(|name| name.rsplit_once('-'));
    begun.is_some_and(|(begun, _)| begun.starts_with(RESERVED) && *checked(begun) == *name)
}

fn checked(begun: &str) -> String {
    format!("{begun}-{:016x}", half_digest(OsStr::new(begun)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_a_map_has_given_are_known_as_such() {
        let (one, other) = (UnfinishedNames::new(), UnfinishedNames::new());
        assert_ne!(one.name(7), other.name(7));
        let name = one.name(u64::MAX);
        assert!(is_unfinished(OsStr::new(&name)) && name.len() < 100, "{name}");
        let changed = name.replace("unfinished-1", "unfinished-2");
        let longer = format!("{name}0");
        for other in
            [&changed, &longer, &name[1..], ".offload-7", ".offload-", ".offload-unfinished-7-0-0", "", "7"]
        {
            assert!(!is_unfinished(OsStr::new(other)), "{other}");
        }
    }
}
