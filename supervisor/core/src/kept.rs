//! Owners of idempotency keys, and how many bytes are kept after jobs have ended: by account and in total.
//!
//! A client that comes back over another connection must find its key again. So a key belongs to the name that the
//! client gave itself; all clients without a name are one owner. What is kept (keys and results) is charged to the
//! account of the client that asked for it, like the bytes in the [`ledger`](super::ledger). Two clients without a
//! name have two accounts; otherwise one of them could use up the room of all of them.
//!
//! Shares follow the rule of the ledger: a client may keep as much as it leaves free for the others; a client alone
//! may keep half. So a new client finds room, however much the others keep.
//!
//! How long an output is, is known only at its end. So a client may come to have more than its share, by the jobs that it had
//! in flight. That takes no room from the others: of what it has, no more counts than it may have ([`Kept::within_shares`]).

use super::ledger::Short;
use crate::limits::ACCOUNTS_CAPPED;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The owner of a key. [`Owner::Nameless`] is a variant of its own, so no name can be mistaken for "no name".
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// All clients that gave no name.
    #[default]
    Nameless,
    /// All that have shown a token over HTTP, and gave no name.
    Token,
    /// All clients of this name.
    Named(Arc<str>),
}

impl Owner {
    /// The owner of the keys of the client of this name. The empty name means no name.
    pub fn of(client: &str) -> Owner {
        if client.is_empty() { Owner::Nameless } else { Owner::Named(Arc::from(client)) }
    }
}

/// An account as messages name it.
pub fn whose(account: &str) -> String {
    match account {
        "" => "the program itself".to_owned(),
        _ => format!("client {}", account.escape_debug()),
    }
}

/// Whether `more` fits when all accounts together may have `limit`. It fits if the account then has no more than is
/// left free, or if nothing is kept yet and `more` is within the limit.
pub(super) fn share(own: u64, all: u64, more: u64, limit: u64) -> Result<(), Short> {
    let Some(free) = limit.checked_sub(all).and_then(|free| free.checked_sub(more)) else {
        return Err(Short::OfRoom);
    };
    if all == 0 || own.saturating_add(more) <= free {
        return Ok(());
    }
    // If `more` alone exceeds what is free, the account would be refused even with nothing of its own.
    Err(if more > free { Short::OfRoom } else { Short::OfItsShare })
}

/// A number of things and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many things are kept.
    pub count: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// What is kept, by account and in total. An account with nothing on it takes no memory.
#[derive(Debug, Default)]
pub struct Kept {
    by_account: BTreeMap<Arc<str>, Sum>,
    /// The same accounts by their bytes.
    by_size: BTreeSet<(u64, Arc<str>)>,
    all: Sum,
}

impl Kept {
    /// One more thing is kept on this account.
    pub(super) fn hold(&mut self, account: &Arc<str>, bytes: u64) {
        let own = self.by_account.entry(account.clone()).or_default();
        let before = own.bytes;
        for sum in [own, &mut self.all] {
            sum.count += 1;
            sum.bytes += bytes;
        }
        self.resize(account, before);
    }

    /// One thing on this account is no longer kept.
    pub(super) fn release(&mut self, account: &str, bytes: u64) {
        let Some((account, own)) = self.by_account.get_key_value(account) else { return };
        let (account, before) = (account.clone(), own.bytes);
        let is_last = own.count == 1;
        for sum in self.by_account.get_mut(&account).into_iter().chain([&mut self.all]) {
            sum.count -= 1;
            sum.bytes -= bytes;
        }
        if is_last {
            self.by_account.remove(&account);
        }
        self.resize(&account, before);
    }

    /// An account had so many bytes before.
    fn resize(&mut self, account: &Arc<str>, before: u64) {
        self.by_size.remove(&(before, account.clone()));
        if let Some(own) = self.by_account.get(account) {
            self.by_size.insert((own.bytes, account.clone()));
        }
    }

    /// What is kept on this account.
    pub fn of(&self, account: &str) -> Sum {
        self.by_account.get(account).copied().unwrap_or_default()
    }

    /// The accounts on which something is kept.
    pub(super) fn accounts(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_account.keys()
    }

    /// What is kept on all accounts together.
    pub fn all(&self) -> Sum {
        self.all
    }

    /// How many bytes of this account are beyond its share, and take no room from others.
    pub fn beyond(&self, account: &str, limit: u64) -> u64 {
        let mut counted = 0;
        for (bytes, whose) in self.by_size.iter().rev().take(ACCOUNTS_CAPPED) {
            let may_have = limit.saturating_sub(counted) / 2;
            if **whose == *account {
                return bytes.saturating_sub(may_have);
            }
            counted += (*bytes).min(may_have);
        }
        0
    }

    /// How many bytes of all that count, when room for more is looked for: of each of the [`ACCOUNTS_CAPPED`] accounts, from the largest
    /// on, no more than it leaves free beside those before it.
    pub fn within_shares(&self, limit: u64) -> u64 {
        let largest = self.by_size.iter().rev().take(ACCOUNTS_CAPPED).map(|(bytes, _)| *bytes);
        let count = |(counted, rest): (u64, u64), bytes: u64| {
            let may_have = limit.saturating_sub(counted) / 2;
            (counted + bytes.min(may_have), rest - bytes)
        };
        let (counted, rest) = largest.fold((0, self.all.bytes), count);
        counted + rest
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
    fn what_an_account_has_beyond_its_share_takes_no_room_from_the_others() {
        let mut kept = Kept::default();
        let [large, larger, small] = ["large", "larger", "small"].map(Arc::from);
        kept.hold(&large, 600);
        assert_eq!(kept.within_shares(1024), 512);
        kept.hold(&larger, 900);
        assert_eq!(kept.within_shares(1024), 512 + 256);
        kept.hold(&small, 20);
        assert_eq!(kept.within_shares(1024), 512 + 256 + 20);
        kept.release("larger", 900);
        assert_eq!((kept.within_shares(1024), kept.all().bytes), (512 + 20, 620));
        kept.release("large", 600);
        kept.release("small", 20);
        assert_eq!((kept.within_shares(1024), kept.by_size.len()), (0, 0));
    }

    #[test]
    fn so_many_accounts_may_have_much_more_and_the_next_one_finds_room() {
        let mut kept = Kept::default();
        let accounts = (0..ACCOUNTS_CAPPED + 1).map(|number| Arc::from(number.to_string()));
        accounts.for_each(|account| kept.hold(&account, 1 << 30));
        assert_eq!(
            kept.within_shares(1 << 20),
            (1 << 20) - (1 << 12) + (1 << 30),
            "only the last one counts in full"
        );
        kept.release("0", 1 << 30);
        assert_eq!(kept.within_shares(1 << 20), (1 << 20) - (1 << 12));
    }

    #[test]
    fn one_client_alone_may_keep_half_and_however_many_come_the_next_one_finds_room() {
        let (mut all, mut most) = (0, Vec::new());
        for _ in 0..5 {
            let own = (0..).take_while(|own| share(*own, all + own, 1, 1024).is_ok()).count() as u64;
            (all, most) = (all + own, [most, vec![own]].concat());
        }
        assert_eq!(most, [512, 256, 128, 64, 32]);
        assert_eq!(share(512, all, 1, 1024), Err(Short::OfItsShare));
        assert_eq!(share(0, 1023, 1, 1024), Err(Short::OfRoom));
        assert_eq!(share(0, 0, 1024, 1024), Ok(()), "if nothing is kept, any size up to the limit fits");
    }
}
