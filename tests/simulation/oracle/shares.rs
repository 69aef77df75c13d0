//! Records of worker time: while two clients both have jobs that wait, neither gets much more than the other (O9).

use super::{Failure, Oracle, demand};
use offload_core::ids::Mono;
use offload_core::limits::WORKER_COST_MIN;
use std::collections::BTreeMap;
use std::time::Duration;

/// What clients have used, where all of them have jobs that wait from the beginning.
#[derive(Debug, Default)]
pub(super) struct ShareBook {
    /// What one may be ahead by priority; nothing if nobody looks.
    head_start: Option<Duration>,
    used: BTreeMap<String, Duration>,
    longest: Duration,
    /// A client had nothing to wait for.
    is_over: bool,
    /// The jobs of "bob" end their workers: what they cost at least counts against it.
    is_bob_guilty: bool,
}

impl ShareBook {
    pub(super) fn watched(head_start: Duration) -> ShareBook {
        ShareBook { head_start: Some(head_start), ..ShareBook::default() }
    }

    pub(super) fn bob_is_guilty(&mut self) {
        self.is_bob_guilty = true;
    }

    /// A job has run for so long and ended its worker.
    pub(super) fn cost_a_worker(&mut self, client: &str, run: Duration) {
        if self.head_start.is_some() {
            *self.used.entry(client.to_owned()).or_default() += run + WORKER_COST_MIN;
            self.longest = self.longest.max(run + WORKER_COST_MIN);
        }
    }

    pub(super) fn used(&mut self, client: &str, run: Duration) {
        if self.head_start.is_some() {
            *self.used.entry(client.to_owned()).or_default() += run;
            self.longest = self.longest.max(run);
        }
    }
}

impl Oracle {
    pub(super) fn compare_shares(&mut self, now: Mono) -> Result<(), Failure> {
        let Some(head_start) =
            self.shares.head_start.filter(|_| !self.shares.is_over && now > Mono::default())
        else {
            return Ok(());
        };
        let waits = |client: &&str| self.waiting_of(client) > 0;
        if !["ann", "bob"].iter().all(waits) {
            self.shares.is_over = true;
            return Ok(());
        }
        let running = self.live.iter().map(|id| self.jobs[id].ran(now)).max().unwrap_or_default();
        let longest = self.shares.longest.max(running);
        let share = |client: &str| {
            self.shares.used.get(client).copied().unwrap_or_default() / self.config.weight_of(client)
        };
        let (ann, bob) = (share("ann"), share("bob"));
        let most = longest * (self.config.workers as u32 + 1) + head_start;
        // What a worker costs beyond the least is more for others.
        let apart = if self.shares.is_bob_guilty { bob.saturating_sub(ann) } else { ann.abs_diff(bob) };
        demand(apart <= most, "O9", || format!("ann has used {ann:?}, bob {bob:?}, over {most:?}"))
    }
}
