//! In whose name something is kept beyond the end of a job, and how many bytes that is, by owner and in all.
//!
//! What is kept outlives the connection that asked for it, so its owner is not a connection: it is the name that a
//! client gave itself, and all clients without a name are one owner.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Who something is kept for. A name and the lack of one are two things, so no name can be taken for another.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// All clients that gave no name.
    #[default]
    Nameless,
    /// The clients of this name.
    Named(Arc<str>),
}

impl Owner {
    /// The owner of what a client of this name has kept; the empty name is none.
    pub fn of(client: &str) -> Owner {
        if client.is_empty() { Owner::Nameless } else { Owner::Named(Arc::from(client)) }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Nameless => formatter.write_str("clients without a name"),
            Owner::Named(name) => write!(formatter, "client {}", name.escape_debug()),
        }
    }
}

/// How much is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Things.
    pub count: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// The sums. Owners of nothing take no memory.
#[derive(Debug, Default)]
pub struct Kept {
    by_owner: BTreeMap<Owner, Sum>,
    all: Sum,
}

impl Kept {
    /// One thing more is kept for this owner.
    pub(super) fn hold(&mut self, owner: &Owner, bytes: u64) {
        let own = self.by_owner.entry(owner.clone()).or_default();
        for sum in [own, &mut self.all] {
            sum.count += 1;
            sum.bytes += bytes;
        }
    }

    /// One thing less is kept for this owner.
    pub(super) fn release(&mut self, owner: &Owner, bytes: u64) {
        let Some(own) = self.by_owner.get_mut(owner) else { return };
        for sum in [&mut *own, &mut self.all] {
            sum.count -= 1;
            sum.bytes -= bytes;
        }
        if own.count == 0 {
            self.by_owner.remove(owner);
        }
    }

    /// What is kept for this owner.
    pub fn of(&self, owner: &Owner) -> Sum {
        self.by_owner.get(owner).copied().unwrap_or_default()
    }

    /// What is kept in all.
    pub fn all(&self) -> Sum {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_has_its_own_sum_and_those_without_a_name_share_one() {
        let mut kept = Kept::default();
        let (team, nobody) = (Owner::of("team"), Owner::of(""));
        kept.hold(&team, 10);
        kept.hold(&nobody, 1);
        kept.hold(&Owner::Nameless, 2);
        assert_eq!(kept.of(&team), Sum { count: 1, bytes: 10 });
        assert_eq!(kept.of(&nobody), Sum { count: 2, bytes: 3 });
        kept.release(&team, 10);
        kept.release(&Owner::of("team"), 10);
        assert_eq!(kept.all(), Sum { count: 2, bytes: 3 });
        assert_eq!(kept.by_owner.len(), 1);
    }
}
