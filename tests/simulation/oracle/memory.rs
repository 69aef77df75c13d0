//! Records of memory: how many bytes are held for each client, and whether each client stays within its share (O16).
//!
//! The expected length of an output is the only figure that is taken from the core, which has learned it. A wrong
//! expectation can only make the core more careful. So it is considered where the core refuses, and not where it accepts.

use super::{Failure, Oracle, demand};
use offload_core::Core;
use offload_core::event::Event;
use offload_core::ids::JobId;
use offload_core::ledger::Holding;
use offload_core::limits::{IDLE_SHARE, little};
use std::collections::BTreeMap;

/// What clients hold beside the inputs of their jobs.
#[derive(Debug, Default)]
pub(super) struct MemoryBook {
    arriving: BTreeMap<String, u64>,
    outgoing: BTreeMap<String, u64>,
    /// What the core expected after the event before, or, where it has settled before a refusal, after that.
    expected: BTreeMap<String, u64>,
    /// The longest output that ever came.
    pub(super) longest: u64,
}

fn sum(of: &BTreeMap<String, u64>) -> u64 {
    of.values().sum()
}

fn of(books: &BTreeMap<String, u64>, client: &str) -> u64 {
    books.get(client).copied().unwrap_or(0)
}

impl MemoryBook {
    fn books(&mut self, what: Holding) -> Option<&mut BTreeMap<String, u64>> {
        match what {
            Holding::Arriving => Some(&mut self.arriving),
            Holding::Outgoing => Some(&mut self.outgoing),
            Holding::Inputs | Holding::Expected => None,
        }
    }

    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::Held { client, what, bytes } => {
                if let Some(books) = self.books(*what) {
                    *books.entry(client.to_string()).or_default() += bytes;
                }
            }
            Event::Released { client, what, bytes } => {
                let held = self.books(*what).and_then(|books| books.get_mut(&**client));
                if let Some(held) = held {
                    *held = held.saturating_sub(*bytes);
                }
            }
            _ => {}
        }
    }

    /// A part of the output of a job of this client is here.
    pub(super) fn part_came(&mut self, client: &str, bytes: u64) {
        *self.outgoing.entry(client.to_owned()).or_default() += bytes;
    }

    /// An output is so long with all its parts.
    pub(super) fn was_long(&mut self, bytes: u64) {
        self.longest = self.longest.max(bytes);
    }

    /// The output of a job of this client is here.
    pub(super) fn returned(&mut self, client: &str, bytes: u64) {
        self.longest = self.longest.max(bytes);
        *self.outgoing.entry(client.to_owned()).or_default() += bytes;
    }
}

impl Oracle {
    fn inputs_of(&self, client: &str) -> u64 {
        let jobs = self.live.iter().map(|id| &self.jobs[id]).filter(|job| job.client == client);
        jobs.map(|job| job.bytes + job.checkpoint).sum()
    }

    /// What is in memory in all.
    fn in_memory(&self) -> u64 {
        self.live_bytes() + sum(&self.memory.arriving) + sum(&self.memory.outgoing)
    }

    /// Whether an input of so many bytes may be taken, if so much is expected for the client and in all.
    pub(super) fn has_room(&self, client: &str, bytes: u64, is_for_refusal: bool) -> bool {
        let (expected, all_expected) = match is_for_refusal {
            true => (of(&self.memory.expected, client), sum(&self.memory.expected)),
            false => (0, 0),
        };
        let own = self.inputs_of(client)
            + of(&self.memory.arriving, client)
            + of(&self.memory.outgoing, client)
            + expected;
        let all = self.in_memory() + all_expected;
        let limit = self.config.max_bytes;
        if !client.is_empty() && own + bytes <= little(limit) {
            return true;
        }
        let Some(free) = limit.checked_sub(all + bytes) else { return false };
        let is_idle = own == 0 && all <= limit / IDLE_SHARE;
        client.is_empty() || is_idle || own + bytes <= free
    }

    /// Whether a job of this client may be started, as far as its outputs go, if so much is expected.
    fn may_start(&self, client: &str, expected: &BTreeMap<String, u64>, output: u64) -> bool {
        let own = of(&self.memory.outgoing, client) + of(expected, client);
        let outputs = sum(&self.memory.outgoing) + sum(expected);
        let limit = self.config.max_bytes;
        let free = limit.saturating_sub(self.in_memory() + sum(expected));
        let is_idle = own == 0 && outputs <= limit / IDLE_SHARE;
        client.is_empty() || is_idle || own + 2 * output < free
    }

    /// Whether nothing in the ledger, and no pause, keeps this job from being started. What a client holds is rounded up there.
    pub(super) fn must_start(&self, id: JobId) -> bool {
        if self.is_paused(id) {
            return false;
        }
        let client = &self.jobs[&id].client;
        let own = of(&self.memory.outgoing, client) + of(&self.memory.expected, client);
        self.may_start(client, &self.memory.expected, self.memory.longest + own.div_ceil(16))
    }

    pub(super) fn judge_start(&self, id: JobId) -> Result<(), Failure> {
        self.judge_pause(id)?;
        let client = &self.jobs[&id].client;
        // One job of a client without outputs may start as long as a worker is left that may exceed the limit.
        let longest = self.config.max_payload;
        let exceeded = self.in_memory().saturating_sub(self.config.max_bytes);
        let may_exceed = exceeded + longest <= longest * self.config.workers as u64;
        let may_start_one = of(&self.memory.outgoing, client) == 0 && may_exceed;
        demand(may_start_one || self.may_start(client, &BTreeMap::new(), 0), "O16", || {
            format!("{id} is started, and {client} has not taken its outputs: {:?}", self.memory)
        })
    }

    pub(super) fn compare_memory(&mut self, core: &Core) -> Result<(), Failure> {
        let clients = core.ledger().accounts().map(|(client, _)| client.to_string());
        let known = self.memory.outgoing.keys().chain(self.memory.arriving.keys()).cloned();
        for client in clients.chain(known) {
            let account = core.ledger().of(&client);
            let figures = [
                (Holding::Inputs, self.inputs_of(&client)),
                (Holding::Arriving, of(&self.memory.arriving, &client)),
                (Holding::Outgoing, of(&self.memory.outgoing, &client)),
            ];
            for (what, here) in figures {
                let there = account.of(what);
                demand(here == there, "O16", || format!("{client} has {what:?} {here} here, {there} there"))?;
            }
        }
        self.note_expected(core);
        let with_workers = self.live.iter().filter(|id| self.jobs[id].is_out()).count() as u64;
        let most = with_workers * self.memory.longest;
        demand(sum(&self.memory.expected) <= most, "O16", || "more is expected than ever came".to_owned())
    }

    pub(super) fn note_expected(&mut self, core: &Core) {
        let expected = |account: &offload_core::ledger::Holdings| account.of(Holding::Expected);
        self.memory.expected =
            core.ledger().accounts().map(|(client, held)| (client.to_string(), expected(held))).collect();
    }
}
