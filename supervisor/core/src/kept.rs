//! Whose keys are whose, and how much is kept beyond the end of jobs, by account and in all.
//!
//! A key has to be found again by whoever comes back, over another connection: it belongs to the name that a client gave
//! itself, and all clients without a name are one owner. What is kept, keys and their results too, is on the account of
//! the client that asked for it, as its bytes are ([`ledger`](super::ledger)), and two clients without a name have two
//! accounts: or one of them could have all there is for both.
//!
//! The rule is that of the ledger: a client may have as much kept as it leaves free to the others, half if it is alone.
//! However much others have kept, one that comes new finds room.

use super::ledger::Short;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whose a key is. A name and the lack of one are two things, so no name can be taken for another.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// All clients that gave no name.
    #[default]
    Nameless,
    /// The clients of this name.
    Named(Arc<str>),
}

impl Owner {
    /// The owner of the keys of a client of this name; the empty name is none.
    pub fn of(client: &str) -> Owner {
        if client.is_empty() { Owner::Nameless } else { Owner::Named(Arc::from(client)) }
    }
}

/// An account, as people are told of it.
pub fn whose(account: &str) -> String {
    match account {
        "" => "the program itself".to_owned(),
        _ => format!("client {}", account.escape_debug()),
    }
}

/// Whether there is room for so much more where all may have `limit`: if the account has as much as it leaves free, or
/// nothing is kept yet.
pub(super) fn share(own: u64, all: u64, more: u64, limit: u64) -> Result<(), Short> {
    let Some(free) = limit.checked_sub(all).and_then(|free| free.checked_sub(more)) else {
        return Err(Short::OfRoom);
    };
    if all == 0 || own.saturating_add(more) <= free {
        return Ok(());
    }
    // With nothing of its own it would not have room either.
    Err(if more > free { Short::OfRoom } else { Short::OfItsShare })
}

/// How much is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Things.
    pub count: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// The sums. Accounts with nothing on them take no memory.
#[derive(Debug, Default)]
pub struct Kept {
    by_account: BTreeMap<Arc<str>, Sum>,
    all: Sum,
}

impl Kept {
    /// One thing more is kept on this account.
    pub(super) fn hold(&mut self, account: &Arc<str>, bytes: u64) {
        let own = self.by_account.entry(account.clone()).or_default();
        for sum in [own, &mut self.all] {
            sum.count += 1;
            sum.bytes += bytes;
        }
    }

    /// One thing less is kept on this account.
    pub(super) fn release(&mut self, account: &str, bytes: u64) {
        let Some(own) = self.by_account.get_mut(account) else { return };
        for sum in [&mut *own, &mut self.all] {
            sum.count -= 1;
            sum.bytes -= bytes;
        }
        if own.count == 0 {
            self.by_account.remove(account);
        }
    }

    /// What is kept on this account.
    pub fn of(&self, account: &str) -> Sum {
        self.by_account.get(account).copied().unwrap_or_default()
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
    fn each_account_has_its_own_sum() {
        let mut kept = Kept::default();
        let [team, first, second] = ["team", "connection 1", "connection 2"].map(Arc::from);
        kept.hold(&team, 10);
        kept.hold(&first, 1);
        kept.hold(&second, 2);
        assert_eq!(kept.of("team"), Sum { count: 1, bytes: 10 });
        assert_eq!(kept.of("connection 2"), Sum { count: 1, bytes: 2 });
        kept.release("team", 10);
        assert_eq!(kept.all(), Sum { count: 2, bytes: 3 });
        assert_eq!(kept.by_account.len(), 2);
    }

    #[test]
    fn one_alone_has_half_and_however_many_come_the_next_one_finds_room() {
        let (mut all, mut most) = (0, Vec::new());
        for _ in 0..5 {
            let own = (0..).take_while(|own| share(*own, all + own, 1, 1024).is_ok()).count() as u64;
            (all, most) = (all + own, [most, vec![own]].concat());
        }
        assert_eq!(most, [512, 256, 128, 64, 32]);
        assert_eq!(share(512, all, 1, 1024), Err(Short::OfItsShare));
        assert_eq!(share(0, 1023, 1, 1024), Err(Short::OfRoom));
        assert_eq!(share(0, 0, 1024, 1024), Ok(()), "something of any size where there is nothing");
    }
}
