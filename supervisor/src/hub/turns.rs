//! The end of a turn of the event loop. Whatever workers and clients have sent in the turn is told to the core at once, but what
//! follows from it is decided here, once for all of it: which jobs go to which workers. Ten answers and ten requests then take
//! one look at the queue and the workers, and not twenty; and nothing is later for it, because what workers are sent is
//! written here, too.
//!
//! ```text
//!   requests, answers --> core, unsettled --.
//!                                           |--> settle --> EndOfTurn (trays) --> outboxes are written --> the timer is set
//!   other events ------> core, settled -----'
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

    /// Has the core dispatch all that has come until now. Once in a turn is enough: what follows is sent at its end.
    pub(super) fn settle(&mut self) {
        if self.core.is_settled() {
            return;
        }
        let mut actions = std::mem::take(&mut self.actions);
        self.core.settle(self.time.advance(), &mut actions);
        self.perform_all(actions, Payload::default());
        self.tell_of_room();
        if !self.inbox.is_empty() {
            self.drain_inbox();
        }
    }

    fn end_turn(&mut self) {
        self.turn.begin();
        if self.records.has_ended_charges() {
            self.drain_inbox();
        }
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
