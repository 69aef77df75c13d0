//! Memory accounting: how many bytes are held for each client, and how much each client may hold.
//!
//! ```text
//!   input comes in ----> accepted ------> given to a worker -----> done -------> written to the socket, or dropped
//!   Arriving             Inputs           Inputs, Expected         Outgoing      (nothing)
//!   (as it arrives)      (and             (the likely length
//!                        checkpoints)     of the output)
//! ```
//!
//! The core itself counts `Inputs` and `Expected`, and charges an output to its client's account when the output
//! arrives. Everything else that the shell holds, and all that it lets go, it reports with [`Held`] and [`Released`].
//!
//! *Shares.* A client may hold as much as it leaves free for the others: n clients that take all they can get hold
//! `max_bytes / (n + 1)` each, and the same amount stays free for a new client. A client alone may hold half. These are
//! the dynamic thresholds of A. Choudhury and E. Hahne ("Dynamic queue length thresholds for shared-memory packet
//! switches", 1998). They work without knowing the number of clients, and memory is never full.
//!
//! Shares are checked at two doors:
//!
//! - *An input may come in* if all that its client holds, with this input, is within the share. Otherwise it is
//!   refused, or waits.
//! - *A job may start* if its client's outputs, with the one that the job is expected to return, are within the share.
//!   Inputs do not count here.
//!
//! So neither door can wait for itself: inputs go away because jobs are done, and outputs go away because they are
//! read; a client that does not read is disconnected.
//!
//! There are three exceptions:
//!
//! - If almost nothing else is held (one sixteenth of the limit at most, and nothing for the same client), one payload or one output
//!   of any size passes. Otherwise a client alone could never use a payload of more than half the limit.
//! - If almost nothing is held for a client ([`little`]), its input is never turned away. And if it has no output
//!   at all, a job of it may start that has a little one, as far as is known. So a client that does not read holds up only those
//!   that need much. For outputs that are longer than was expected, each worker may exceed the limit by one, as at any other
//!   time ([`Ledger::may_exceed`]); while memory is full, no worker gets a second job.
//! - The client without a name is the program that embeds the pool. It has no share: only the total is limited.
//!
//! Kept results and dead letters are not counted here. They have limits of their own.
//!
//! [`Held`]: super::event::Event::Held
//! [`Released`]: super::event::Event::Released

use crate::limits::{IDLE_SHARE, little};
use crate::lookup::Lookup;
use std::sync::Arc;

/// Why bytes are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holding {
    /// Part of an input that is still arriving. Counted by the shell.
    Arriving,
    /// Input or checkpoint of a job that has not ended. Counted by the core.
    Inputs,
    /// The likely output of a job that a worker has, judged by earlier outputs of its task. This is a reservation and
    /// no memory yet. An output that is arriving from a worker is covered by it. Counted by the core.
    Expected,
    /// Output that its client has not taken yet. The core charges it when it arrives. The shell releases it, and
    /// reports separately what it still has to write.
    Outgoing,
}

/// What is held on one account, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    bytes: [u64; 4],
}

impl Holdings {
    /// Bytes held for this reason.
    pub fn of(&self, what: Holding) -> u64 {
        self.bytes[what as usize]
    }

    /// Bytes held for any reason, reservations included.
    pub fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Bytes held for any reason, without reservations.
    pub fn in_memory(&self) -> u64 {
        self.total() - self.of(Holding::Expected)
    }

    /// Bytes of outputs, expected ones included.
    pub fn outputs(&self) -> u64 {
        self.of(Holding::Expected) + self.of(Holding::Outgoing)
    }

    fn add(&mut self, what: Holding, bytes: u64) {
        let held = &mut self.bytes[what as usize];
        *held = held.saturating_add(bytes);
    }

    /// Takes off as much as is there, at most `bytes`. Returns how much that was.
    fn take(&mut self, what: Holding, bytes: u64) -> u64 {
        let held = &mut self.bytes[what as usize];
        let taken = bytes.min(*held);
        *held -= taken;
        taken
    }
}

/// How many bytes of outputs a client holds, rounded up by one eighth at most, so that clients which hold about the
/// same are treated alike. The program that embeds the pool has no share and no level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(Option<u64>);

impl Level {
    /// The level of this many bytes.
    pub fn of(bytes: u64) -> Level {
        let digits = u64::BITS - bytes.leading_zeros();
        let step = 1_u64 << digits.saturating_sub(4);
        Level(Some(bytes.checked_next_multiple_of(step).unwrap_or(u64::MAX)))
    }
}

/// What there is too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Short {
    /// There is no room for anybody.
    OfRoom,
    /// The client's share is used up, though there is room for others.
    OfItsShare,
}

/// By how much outputs may exceed the limit that were not expected.
#[derive(Clone, Copy, Debug)]
pub struct Exceeding {
    /// The longest output that there can be, in bytes.
    pub longest: u64,
    /// How many workers may exceed the limit by one such output.
    pub workers: u64,
    /// How many workers have a job.
    pub busy: u64,
}

/// All accounts and their total.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The accounts on which anything is held.
    accounts: Lookup<Arc<str>, Holdings>,
    all: Holdings,
    /// How often room became free, for one client or for all.
    releases: u64,
}

impl Ledger {
    /// Charges bytes to a client's account. Returns whether that changed the level of its outputs.
    pub(super) fn hold(&mut self, client: &str, what: Holding, bytes: u64) -> bool {
        if bytes == 0 {
            return false;
        }
        self.all.add(what, bytes);
        let Some(account) = self.accounts.get_mut(client) else {
            let mut account = Holdings::default();
            account.add(what, bytes);
            self.accounts.insert(Arc::from(client), account);
            return !client.is_empty() && account.outputs() > 0;
        };
        let before = account.outputs();
        account.add(what, bytes);
        !client.is_empty() && is_another_level(before, account.outputs())
    }

    /// Takes bytes off a client's account. What was never held is not released. Returns whether that changed the level
    /// of its outputs.
    pub(super) fn release(&mut self, client: &str, what: Holding, bytes: u64) -> bool {
        let Some(account) = self.accounts.get_mut(client) else { return false };
        let before = account.outputs();
        let taken = account.take(what, bytes);
        let after = account.outputs();
        self.releases += u64::from(taken > 0);
        if account.total() == 0 {
            self.accounts.remove(client);
        }
        self.all.take(what, taken);
        !client.is_empty() && is_another_level(before, after)
    }

    /// The limit was raised.
    pub(super) fn has_more_room(&mut self) {
        self.releases += 1;
    }

    /// A counter that changes whenever room may have become free, for one client or for all. If it has changed, it is
    /// worth asking again.
    pub fn releases(&self) -> u64 {
        self.releases
    }

    /// What is held for one client.
    pub fn of(&self, client: &str) -> Holdings {
        self.accounts.get(client).copied().unwrap_or_default()
    }

    /// What is held for all clients together.
    pub fn all(&self) -> Holdings {
        self.all
    }

    /// Each client for which anything is held.
    pub fn accounts(&self) -> impl Iterator<Item = (&Arc<str>, &Holdings)> {
        self.accounts.iter()
    }

    /// Whether further outputs have to wait in the sockets of their workers: the limit is reached, and waiting will make
    /// room. It will if a considerable part of what is held (more than 1 / [`IDLE_SHARE`] of the limit) is output that
    /// clients have to read. Inputs alone are no reason to wait: they go away only when their jobs return.
    pub fn is_over(&self, limit: u64) -> bool {
        self.all.in_memory() >= limit && self.all.of(Holding::Outgoing) > limit / IDLE_SHARE
    }

    /// Whether an input of this many bytes may come in, or so many more of one of which `came` bytes are held already. `limit` is the
    /// limit for all clients together.
    ///
    /// # Errors
    /// Whether room is short for everybody or only within the client's share.
    pub fn has_room(&self, limit: u64, client: &str, bytes: u64, came: u64) -> Result<(), Short> {
        let all = self.all.total();
        let own = self.of(client).total();
        if !client.is_empty() && own.saturating_add(bytes) <= little(limit) {
            return Ok(());
        }
        let Some(free) = limit.checked_sub(all).and_then(|free| free.checked_sub(bytes)) else {
            return Err(Short::OfRoom);
        };
        let is_idle = own == came && all.saturating_sub(came) <= limit / IDLE_SHARE;
        if client.is_empty() || is_idle || own.saturating_add(bytes) <= free {
            return Ok(());
        }
        // If the input alone exceeds what is free, it would be refused even if its client held nothing.
        Err(if bytes > free { Short::OfRoom } else { Short::OfItsShare })
    }

    /// The level of the outputs that this client holds, expected ones included.
    pub fn level_of(&self, client: &str) -> Level {
        if client.is_empty() { Level(None) } else { Level::of(self.of(client).outputs()) }
    }

    /// Whether a job may start that is expected to return this many bytes, when its client's outputs are at `level`.
    ///
    /// The expected output counts twice, as an input does in [`Ledger::has_room`]: it adds to what the client holds, and it
    /// takes away from what is free. So with it, the client holds less than the others find free.
    pub fn may_start(&self, limit: u64, level: Level, expected: u64) -> bool {
        let Level(Some(own)) = level else { return true };
        let free = limit.saturating_sub(self.all.total());
        let is_idle = own == 0 && self.all.outputs() <= limit / IDLE_SHARE;
        is_idle || own.saturating_add(expected.saturating_mul(2)) < free
    }

    /// Whether a job may start although memory is full: its client has no output, and the job has a little one, as far as is
    /// known. Any output may be longer than was expected, and each worker may exceed the limit by one output. The last
    /// worker that may do so is left to jobs of which something is known.
    pub fn may_exceed(
        &self,
        limit: u64,
        level: Level,
        known: Option<u64>,
        exceeding: impl FnOnce() -> Exceeding,
    ) -> bool {
        if level != Level::of(0) || known.unwrap_or(0) > little(limit) {
            return false;
        }
        let Exceeding { longest, workers, busy } = exceeding();
        let wanted = busy + if known.is_some() { 1 } else { 2 };
        let exceeded = self.all.in_memory().saturating_sub(limit);
        exceeded.saturating_add(longest.saturating_mul(wanted)) <= longest.saturating_mul(workers)
    }
}

fn is_another_level(before: u64, after: u64) -> bool {
    before != after && Level::of(before) != Level::of(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1600;

    /// Takes pieces of one byte for as long as that is allowed, and returns how many the client holds then.
    fn fill(ledger: &mut Ledger, client: &str) -> u64 {
        while ledger.has_room(LIMIT, client, 1, 0).is_ok() {
            ledger.hold(client, Holding::Inputs, 1);
        }
        ledger.of(client).total()
    }

    #[test]
    fn one_client_alone_has_half_and_each_one_more_leaves_as_much_as_it_takes() {
        let mut ledger = Ledger::default();
        assert_eq!(fill(&mut ledger, "first"), 800);
        assert_eq!(fill(&mut ledger, "second"), 400);
        assert_eq!(fill(&mut ledger, "third"), 200);
        assert_eq!(ledger.has_room(LIMIT, "first", 1, 0), Err(Short::OfItsShare));
        assert_eq!(ledger.has_room(LIMIT, "fourth", 101, 0), Err(Short::OfRoom));
        assert_eq!(ledger.has_room(LIMIT, "fourth", 100, 0), Ok(()));
    }

    #[test]
    fn a_payload_as_large_as_the_limit_passes_when_nothing_else_is_held() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.has_room(LIMIT, "first", LIMIT, 0), Ok(()));
        ledger.hold("other", Holding::Outgoing, 1);
        assert_eq!(ledger.has_room(LIMIT, "first", LIMIT, 0), Err(Short::OfRoom));
        assert_eq!(ledger.has_room(LIMIT, "first", LIMIT - 1, 0), Ok(()));
        ledger.hold("other", Holding::Outgoing, LIMIT / IDLE_SHARE);
        assert_eq!(ledger.has_room(LIMIT, "first", LIMIT - 200, 0), Err(Short::OfRoom));
    }

    #[test]
    fn of_several_payloads_of_a_client_that_arrive_together_only_the_first_may_be_larger_than_its_share() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.has_room(LIMIT, "first", 1200, 0), Ok(()));
        ledger.hold("first", Holding::Arriving, 1000);
        assert_eq!(ledger.has_room(LIMIT, "first", 200, 1000), Ok(()), "the rest of it");
        assert_eq!(ledger.has_room(LIMIT, "first", 200, 0), Err(Short::OfItsShare), "another one");
        ledger.release("first", Holding::Arriving, 600);
        assert_eq!(ledger.has_room(LIMIT, "first", 400, 0), Ok(()));
        ledger.hold("first", Holding::Arriving, 400);
        assert_eq!(ledger.has_room(LIMIT, "first", 1, 0), Err(Short::OfItsShare));
        assert_eq!(ledger.has_room(LIMIT, "neighbour", 400, 0), Ok(()));
    }

    #[test]
    fn inputs_do_not_keep_jobs_from_being_started_and_outputs_do() {
        let mut ledger = Ledger::default();
        fill(&mut ledger, "full");
        assert!(ledger.may_start(LIMIT, ledger.level_of("full"), 400));
        ledger.hold("full", Holding::Outgoing, 401);
        assert!(!ledger.may_start(LIMIT, ledger.level_of("full"), 0));
        assert!(ledger.may_start(LIMIT, ledger.level_of("other"), 199), "others go on");
        assert!(!ledger.may_start(LIMIT, ledger.level_of("other"), 200));
    }

    #[test]
    fn where_nobody_has_an_output_any_job_may_start() {
        let mut ledger = Ledger::default();
        fill(&mut ledger, "full");
        assert!(ledger.may_start(LIMIT, ledger.level_of("full"), 10 * LIMIT));
        ledger.hold("full", Holding::Expected, 10 * LIMIT);
        assert!(!ledger.may_start(LIMIT, ledger.level_of("other"), 0), "an expected output reserves room");
    }

    #[test]
    fn a_client_without_outputs_may_start_one_job_with_a_little_one_as_long_as_workers_may_exceed_the_limit()
    {
        let (mut ledger, limit, longest) = (Ledger::default(), 16 << 20, 4 << 20);
        ledger.hold("unread", Holding::Outgoing, limit + 2 * longest);
        let may_start = |ledger: &Ledger, client: &str, expected, busy| {
            let exceeding = Exceeding { longest, workers: 4, busy };
            ledger.may_exceed(limit, ledger.level_of(client), expected, || exceeding)
        };
        assert!(may_start(&ledger, "other", Some(little(limit)), 1));
        assert!(
            !may_start(&ledger, "other", Some(little(limit)), 2),
            "as much may yet come of those that run"
        );
        assert!(!may_start(&ledger, "other", Some(little(limit) + 1), 0));
        assert!(
            may_start(&ledger, "other", None, 0) && !may_start(&ledger, "other", None, 1),
            "nothing is known of it"
        );
        assert!(!may_start(&ledger, "unread", Some(0), 0));
        ledger.hold("other", Holding::Expected, 1);
        assert!(!may_start(&ledger, "other", Some(0), 0), "one at a time");
    }

    #[test]
    fn what_was_never_held_is_not_released_and_an_empty_account_is_forgotten() {
        let mut ledger = Ledger::default();
        ledger.hold("a", Holding::Arriving, 5);
        ledger.hold("b", Holding::Arriving, 3);
        ledger.release("a", Holding::Outgoing, 5);
        ledger.release("a", Holding::Arriving, 50);
        ledger.release("nobody", Holding::Arriving, 1);
        assert_eq!((ledger.all().total(), ledger.accounts().count()), (3, 1));
    }

    #[test]
    fn releases_counts_room_that_became_free_for_one_client_even_if_less_is_free_for_all() {
        let mut ledger = Ledger::default();
        ledger.hold("me", Holding::Inputs, 10);
        let before = ledger.releases();
        ledger.hold("other", Holding::Inputs, 100);
        assert_eq!(ledger.releases(), before);
        ledger.release("me", Holding::Inputs, 10);
        assert_ne!(ledger.releases(), before);
        let before = ledger.releases();
        ledger.release("me", Holding::Inputs, 10);
        assert_eq!(ledger.releases(), before, "nothing was left to release");
    }

    #[test]
    fn the_program_itself_may_use_all_there_is() {
        let mut ledger = Ledger::default();
        ledger.hold("", Holding::Inputs, LIMIT - 1);
        assert_eq!(ledger.has_room(LIMIT, "", 1, 0), Ok(()));
        assert_eq!(ledger.has_room(LIMIT, "", 2, 0), Err(Short::OfRoom));
        ledger.hold("", Holding::Outgoing, LIMIT);
        assert!(ledger.may_start(LIMIT, ledger.level_of(""), LIMIT));
    }

    #[test]
    fn a_client_that_holds_almost_nothing_may_send_a_small_input_and_no_large_one_when_memory_is_full() {
        let (limit, small) = (64 << 20, little(64 << 20));
        let mut ledger = Ledger::default();
        ledger.hold("greedy", Holding::Outgoing, limit + 1);
        assert_eq!(small, 4 << 10);
        assert_eq!(ledger.has_room(limit, "polite", small, 0), Ok(()));
        assert_eq!(ledger.has_room(limit, "polite", small + 1, 0), Err(Short::OfRoom));
        ledger.hold("polite", Holding::Inputs, small);
        assert_eq!(ledger.has_room(limit, "polite", 1, 0), Err(Short::OfRoom));
        assert_eq!(little(1 << 20), 256, "a small limit makes it smaller");
    }

    #[test]
    fn a_level_is_what_is_held_or_an_eighth_more_at_most() {
        assert_eq!(Level::default(), Level(None), "without a name there is no level");
        for bytes in [0, 1, 15, 16, 17, 63, 401, 1 << 20, (60 << 20) + 1, u64::MAX - 1] {
            let Level(level) = Level::of(bytes);
            assert!(
                level.is_some_and(|level| level >= bytes && level - bytes <= bytes / 8),
                "{bytes}: {level:?}"
            );
        }
        assert_eq!(Level::of(61 << 20), Level::of((60 << 20) + 1));
    }
}
