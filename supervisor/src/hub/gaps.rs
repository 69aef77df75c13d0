//! The clock by which the core applies time limits. Before a limit is applied, everything that has already arrived from
//! its worker is read. Time in which this process did not run (because it was stopped, or its machine was) is charged to nobody.
//! `pauses.rs` says how such a gap is recognized, and when it is a short or a long one.
//!
//! ```text
//!              due, and not late                  what has arrived from who is due goes to the core
//!   Waiting -----------------------------------------------> Reading ----------------------------------> Tick
//!     |  ^                                                      ^
//!     |  '-- one part of a long wait is over                    | catching up is over
//!     |                                                         |
//!     '--- late by LATE_MIN or more -----------------------> CatchingUp: for as long as it was late, a second at most
//!          by GAP_MIN or more: the gap is also taken out of the core's time
//! ```
//!
//! Catching up is limited; otherwise a machine that is always late would never apply any limit. All gaps shorter than
//! GAP_MIN together put off a limit by at most CATCH_UP_MAX. Each longer gap puts it off once more, all of these together
//! by at most CATCH_UP_IN_ALL of the core's time.
//!
//! With or without a gap, everything that has arrived is read before a limit is applied. So an answer that arrived in time
//! counts, however late this process reads it, even if its output has still to be copied out of shared memory.
//! Catching up is for transfers that need both sides: an output that has arrived in part, an input that was sent in
//! part, a worker that was stopped together with this process.
//!
//! The length of a gap is how late the timer is. After one long wait, only the part of a gap behind the end of that wait
//! would be measured. So while jobs or starts are under way, a wait is cut into parts of at most WAIT_PART.

use super::Hub;
use crate::limits::{BYTES_PER_TURN, CATCH_UP_IN_ALL, CATCH_UP_MAX, WAIT_PART};
use crate::pauses::Pause;
use crate::workers::Allowance;
use offload_core::event::Event;
use offload_core::ids::{Mono, WorkerId};
use offload_event_loop::TimerId;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Limits that pass so soon are as good as due: the core hears of a later moment than the one in which it was looked.
const DUE_SOON: Duration = Duration::from_millis(1);

/// The core's time: the machine's time without the gaps.
pub(super) struct CoreClock {
    started: Instant,
    /// The total time in which this process should have run but did not.
    gaps: Duration,
    /// The ends of the time to catch up: after gaps shorter than [`GAP_MIN`](crate::limits::GAP_MIN), and after longer ones.
    after_short: Mono,
    after_long: Mono,
    /// When the hub's timer is due.
    due: Option<Mono>,
    /// The time that the core was told last.
    last_told: Mono,
    /// The timer, and the core's deadline for which it was set.
    wake: Option<(Mono, TimerId)>,
}

impl CoreClock {
    pub(super) fn new() -> CoreClock {
        CoreClock {
            started: Instant::now(),
            gaps: Duration::ZERO,
            after_short: Mono::default(),
            after_long: Mono::default(),
            due: None,
            last_told: Mono::default(),
            wake: None,
        }
    }

    /// How long this process has been running, gaps included.
    pub(super) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// The core's time. Only reads the clock.
    pub(super) fn now(&self) -> Mono {
        self.without_gaps(self.started.elapsed())
    }

    /// The time that the core was told last: that of what it has just decided.
    pub(super) fn last_told(&self) -> Mono {
        self.last_told
    }

    /// The core's time, to be passed to the core: it never goes back. First a gap is noticed, by comparing the clock
    /// with the time at which the timer was due, so that nothing is decided by a time that includes the gap.
    pub(super) fn advance(&mut self) -> Mono {
        self.advance_to(self.started.elapsed())
    }

    fn advance_to(&mut self, elapsed: Duration) -> Mono {
        self.notice_gap(elapsed);
        let now = self.without_gaps(elapsed);
        debug_assert!(self.last_told <= now, "time goes back");
        self.last_told = now;
        now
    }

    fn notice_gap(&mut self, elapsed: Duration) {
        let now = self.with_unnoticed_gap(elapsed);
        let late = self.due.map_or(Duration::ZERO, |due| now - due);
        match Pause::behind(late) {
            Pause::None => return,
            // Everybody else gets as long to catch up.
            Pause::Short => self.after_short = now + late,
            // The gap is taken out of the core's time, so no time limit and no receipt includes it.
            Pause::Long => {
                let stood_still_at = self.without_gaps(elapsed);
                self.gaps += now - stood_still_at;
                self.after_long = stood_still_at + CATCH_UP_MAX;
            }
        }
        // A gap is noticed once.
        self.due = None;
    }

    /// The core's time, including a gap that has not been noticed yet.
    fn with_unnoticed_gap(&self, elapsed: Duration) -> Mono {
        Mono::default() + elapsed.saturating_sub(self.gaps)
    }

    fn without_gaps(&self, elapsed: Duration) -> Mono {
        let now = self.with_unnoticed_gap(elapsed);
        match self.due {
            // The core may have been told a slightly later time already, and its time never goes back.
            Some(due) if Pause::behind(now - due) == Pause::Long => due.max(self.last_told),
            _ => now,
        }
    }

    /// When a limit that is due at `due` may be applied.
    fn applies_at(&self, due: Mono) -> Mono {
        let after_short = self.after_short.min(due + CATCH_UP_MAX);
        let after_long = self.after_long.min(due + CATCH_UP_IN_ALL);
        due.max(after_short).max(after_long)
    }
}

impl Hub {
    /// The core's time. Only reads the clock.
    pub(super) fn now(&self) -> Mono {
        self.time.now()
    }

    /// Sets the timer for the core's next deadline.
    pub(super) fn set_timer(&mut self) {
        let deadline = self.core.next_deadline();
        if self.time.wake.map(|(when, _)| when) == deadline {
            return;
        }
        let now = self.time.advance();
        if let Some((_, timer)) = self.time.wake.take() {
            self.handle.clear(timer);
        }
        // No timer is set now, so nothing can be late.
        self.time.due = None;
        self.time.wake = deadline.map(|deadline| {
            let at = self.time.applies_at(deadline);
            let is_busy = self.records.has_live() || self.launches.is_any_under_way();
            let due = if is_busy { at.min(now + WAIT_PART) } else { at };
            self.time.due = Some(due);
            let me = self.me.clone();
            let timer = self.handle.set_timeout(due - now, move |_| Hub::with(&me, Hub::on_time));
            self.handle.unref(timer);
            (deadline, timer)
        });
    }

    fn on_time(&mut self) {
        // A gap is noticed by when the timer was due, so the clock is read before `due` is cleared.
        let now = self.time.advance();
        self.time.due = None;
        let Some((deadline, _)) = self.time.wake.take() else { return };
        if now < self.time.applies_at(deadline) {
            return self.set_timer();
        }
        self.read_all();
        self.handle_event(Event::Tick);
    }

    /// Passes what has arrived from workers and their processes to the core: all of it from those whose time limits are due.
    fn read_all(&mut self) {
        self.take_launcher_events();
        self.report_stops();
        for (worker, has_ended) in self.processes.readable_or_ended() {
            match has_ended {
                true => self.on_process_end(worker),
                false if self.processes.must_wait() => self.processes.wait_for_turn(worker),
                false => self.receive_share(worker),
            }
        }
        self.drain_inbox();
        self.read_due();
    }

    /// Reads all from those whose time limits are due, also from those whose limits pass while others are read.
    fn read_due(&mut self) {
        let mut done = BTreeSet::new();
        loop {
            let soon = self.time.advance() + DUE_SOON;
            let is_new = |worker: &WorkerId| !done.contains(worker) && self.is_due(*worker, soon);
            let due: Vec<WorkerId> = self.processes.ids().filter(is_new).collect();
            if due.is_empty() {
                return;
            }
            for worker in due {
                done.insert(worker);
                self.read_all_that_came(worker);
            }
        }
    }

    /// Reads as much as the kernel holds, however many messages that are, with the output that is among them.
    fn read_all_that_came(&mut self, worker: WorkerId) {
        // The second time for an output that was found behind other messages, and what came behind that.
        for _ in 0..2 {
            let bytes = self.processes.uncopied(worker) + BYTES_PER_TURN;
            let may_be_more = self.read_all_from(worker, &mut Allowance::of_bytes(bytes));
            if !may_be_more && !self.processes.has_rest(worker) {
                return;
            }
        }
    }

    /// Whether a time limit of this worker, of one of its jobs or of all is due.
    fn is_due(&self, worker: WorkerId, now: Mono) -> bool {
        if self.core.drain_ends_at().is_some_and(|end| end <= now) {
            return true;
        }
        let Some(slot) = self.core.slot_of(worker).map(|slot| &self.core.slots()[slot]) else { return false };
        let of_slot = slot.deadline(self.core.config().hang_timeout);
        let jobs = slot.load().into_iter().flat_map(|load| load.jobs());
        let of_jobs = jobs.filter_map(|job| self.core.jobs().get(job)?.deadline.moment());
        of_jobs.chain(of_slot).any(|due| due <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(millis: u32) -> Mono {
        Mono::default() + millis * MS
    }

    fn time_with_a_wait_until(due: Mono) -> CoreClock {
        CoreClock { due: Some(due), ..CoreClock::new() }
    }

    #[test]
    fn what_is_a_little_late_is_charged() {
        let mut time = time_with_a_wait_until(at(1000));
        assert_eq!(time.advance_to(900 * MS), at(900));
        assert_eq!(time.advance_to(1099 * MS), at(1099));
        assert_eq!(time.applies_at(at(1000)), at(1000));
    }

    #[test]
    fn after_a_short_gap_others_may_catch_up_for_as_long_as_it_was() {
        let mut time = time_with_a_wait_until(at(1000));
        assert_eq!(time.advance_to(1300 * MS), at(1300));
        assert_eq!(time.applies_at(at(1000)), at(1600));
        assert_eq!(time.applies_at(at(1700)), at(1700), "that is not due before they have caught up");
    }

    #[test]
    fn a_long_gap_takes_no_time() {
        let mut time = time_with_a_wait_until(at(1000));
        assert_eq!(time.advance_to(3000 * MS), at(1000));
        assert_eq!(time.advance_to(3150 * MS), at(1150), "from then on time goes on");
    }

    #[test]
    fn to_look_at_the_time_changes_nothing() {
        let mut time = time_with_a_wait_until(at(1000));
        for millis in [1300, 3000, 900, 1300, 1300] {
            let looked_at = time.without_gaps(millis * MS);
            assert_eq!(looked_at, at(if millis == 3000 { 1000 } else { millis }));
        }
        assert_eq!(time.applies_at(at(1000)), at(1000), "nobody has noticed a gap");
        assert_eq!(time.advance_to(1300 * MS), at(1300));
        assert_eq!(time.applies_at(at(1000)), at(1600));
    }

    #[test]
    fn nobody_needs_an_hour_to_catch_up() {
        let mut time = time_with_a_wait_until(at(1000));
        assert_eq!(time.advance_to(3_600_000 * MS), at(1000));
        assert_eq!(time.applies_at(at(1000)), at(2000));
    }

    #[test]
    fn time_does_not_go_back_when_a_gap_is_noticed_late() {
        let mut time = time_with_a_wait_until(at(1000));
        assert_eq!(time.advance_to(1099 * MS), at(1099), "it may be work that holds the timer up");
        assert_eq!(time.advance_to(4000 * MS), at(1099), "and then it was a gap");
        assert_eq!(time.advance_to(4001 * MS), at(1100));
    }

    /// Waits as the hub does while a job runs, on a machine where each wait takes longer than it should by the same
    /// time. Returns the core's time at which a limit that is due at `limit` is applied.
    fn applied_at(limit: Mono, late: Duration) -> Option<Mono> {
        let mut time = CoreClock::new();
        let mut elapsed = Duration::ZERO;
        (0..1000).find_map(|_| {
            let now = time.advance_to(elapsed);
            time.due = None;
            if now >= time.applies_at(limit) {
                return Some(now);
            }
            let due = time.applies_at(limit).min(now + WAIT_PART);
            time.due = Some(due);
            elapsed += (due - now) + late;
            None
        })
    }

    #[test]
    fn a_limit_is_applied_however_late_this_process_always_is() {
        for late in [0, 99, 100, 101, 300, 500, 900, 999] {
            let applied = applied_at(at(1000), late * MS).expect("it is applied");
            let most = at(1000) + CATCH_UP_MAX + late * MS;
            assert!(at(1000) <= applied && applied <= most, "late by {late} ms: {applied:?}");
        }
        for late in [1000, 1500, 60_000] {
            let applied = applied_at(at(1000), late * MS).expect("it is applied");
            assert!(applied <= at(1000) + CATCH_UP_IN_ALL, "late by {late} ms: {applied:?}");
        }
    }
}
