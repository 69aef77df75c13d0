//! The end of a turn of the event loop. Requests and the answers of workers are told to the core as they come. Which jobs then go
//! to which workers is decided here, once for all of them: for ten answers and ten requests the core looks at the queues and
//! the workers once, and not twenty times. No worker hears of its job later, because all that is sent to workers is written here.
//!
//! ```text
//!   requests, starts, ends ---> core, unsettled --.
//!                                                 |--> settle --> EndOfTurn (trays) --> outboxes are written --> timer
//!   other events: settle, ----> core, settled ----'
//! ```

use super::{Hub, Payload};
use offload_core::event::Event;
use offload_protocol::limits::LINGER;
use std::time::Duration;

impl Hub {
    /// Has outboxes written and the timer set once at the end of this turn, however often this is called.
    pub(super) fn schedule_end_of_turn(&mut self) {
        self.schedule_checks();
        let me = self.me.clone();
        self.turn.ask(&self.handle, move || Hub::with(&me, Hub::end_turn));
    }

    /// Has the core decide what follows from all that it was told until now. Called at the end of the turn, and earlier if
    /// somebody looks at the jobs.
    pub(crate) fn settle(&mut self) {
        if self.core.is_settled() {
            return;
        }
        self.settle_now();
        self.tell_of_room();
        if !self.inbox.is_empty() {
            self.drain_inbox();
        }
    }

    /// The same, without what follows from it: that stays in the inbox.
    pub(super) fn settle_now(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        self.core.settle(self.time.advance(), &mut actions);
        self.perform_all(actions, Payload::default());
    }

    fn end_turn(&mut self) {
        self.turn.begin();
        if self.checks.take_woken() {
            // While nothing was under way, nobody looked.
            self.report_stops();
        }
        if self.records.has_ended_charges() {
            self.drain_inbox();
        }
        self.read_waiting();
        self.settle();
        if self.core.has_untaken() {
            self.handle_event(Event::EndOfTurn);
        }
        self.flush_processes();
        self.work_on_segments();
        self.fill_trays();
        self.linger();
        self.set_timer();
    }

    /// Lets the event loop look for answers before it sleeps, if any are to come and no worker needs its core.
    fn linger(&self) {
        let busy =
            self.core.slots().iter().filter(|slot| slot.load().is_some()).take(self.linger_cores).count();
        let pays = (1..self.linger_cores).contains(&busy);
        self.lingerer.set(if pays { LINGER } else { Duration::ZERO });
    }
}
