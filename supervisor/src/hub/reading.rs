//! Reading the messages of workers, a bounded part of them in each turn of the event loop. What a turn may take, all workers share: a
//! worker that has sent more than its part waits for its next one, behind the others that wait.
//!
//! ```text
//!   socket readable ---> nobody waits: a share is read ---> there is more of it ---.
//!                   '--> somebody waits, or the turn is used up -------------------|--> waiting, in their order
//!                                                                                  |        |
//!   end of the turn: those that wait, one share each, until the turn is used up <--'--------'
//! ```
//!
//! In between, the loop serves clients and timers. What a worker sent before it ended, or before a time limit of its own is
//! applied, is not left waiting: for that there is an allowance of its own.

use super::Hub;
use super::introductions::{AfterIntroduction, take_introduction};
use super::links::event_from;
use super::processes::ReadResult;
use crate::workers::Allowance;
use offload_core::event::Event;
use offload_core::ids::WorkerId;
use offload_event_loop::Readiness;

impl Hub {
    pub(super) fn on_link(&mut self, worker: WorkerId, readiness: Readiness) {
        if readiness.is_writable() {
            self.processes.mark(worker);
        }
        if readiness.is_readable() && !self.leave_unread(worker) {
            match self.processes.must_wait() {
                true => self.processes.wait_for_turn(worker),
                false => self.receive_share(worker),
            }
        }
        self.drain_inbox();
    }

    /// Reads from those that wait, until the turn is used up. Then the next turn begins.
    pub(super) fn read_waiting(&mut self) {
        while let Some(worker) = self.processes.next_waiting() {
            if self.processes.reads(worker) && !self.leave_unread(worker) {
                self.receive_share(worker);
                self.drain_inbox();
            }
        }
        self.processes.begin_turn();
        if self.processes.must_wait() {
            self.schedule_end_of_turn();
        }
    }

    /// Reads once, and takes no more than one worker may before the next one has its turn.
    pub(super) fn receive_share(&mut self, worker: WorkerId) {
        let mut share = self.processes.allowance.take_share();
        self.receive(worker, &mut share);
        self.processes.allowance.give_back(share);
    }

    /// Reads once. Returns true if there may be more to read.
    fn receive(&mut self, worker: WorkerId, allowance: &mut Allowance) -> bool {
        let (inbox, introductions) = (&mut self.inbox, &mut self.introductions);
        let read = self.processes.receive(worker, &self.handle, allowance, &mut |message, payload| {
            match take_introduction(introductions, worker, message, &payload) {
                AfterIntroduction::Event(event) => inbox.extend(event),
                AfterIntroduction::Other(message) => inbox.extend(event_from(worker, message, payload)),
            }
        });
        self.welcome_workers();
        self.heed_segments(worker);
        if self.trays.job(worker).is_some() {
            // Its next job does not come by the socket, so nothing else tells it that its last output was read.
            self.processes.say_read(worker);
        }
        if let ReadResult::Last(event) = read {
            self.inbox.push_back(self.only_as_the_first_message(event).into());
            return false;
        }
        if self.processes.has_rest(worker) {
            self.processes.wait_for_turn(worker);
        }
        matches!(read, ReadResult::Messages)
    }

    /// Only the first message of a worker can be the hello of another version. Later, the same bytes are garbage.
    fn only_as_the_first_message(&self, event: Event) -> Event {
        match event {
            Event::Unfit { worker, message } if self.introductions.has_begun(worker) => {
                Event::Garbled { worker, message: format!("not a message: {message}") }
            }
            other => other,
        }
    }

    /// Reads what this worker has sent and the kernel still holds, as far as is allowed, and passes it to the core. Returns
    /// true if there may be more.
    pub(super) fn read_all_from(&mut self, worker: WorkerId, allowance: &mut Allowance) -> bool {
        let mut may_be_more = true;
        while may_be_more && !allowance.is_used_up() {
            may_be_more = self.receive(worker, allowance);
        }
        self.drain_inbox();
        may_be_more
    }
}
