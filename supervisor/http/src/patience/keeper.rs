//! What the limits of all connections of a server share: the clock, and whose turn it is to be ended.

use crate::limits::LATE_SPACING;
use offload_event_loop::LoopHandle;
use offload_supervisor::pauses::RunningClock;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// See the module's documentation.
pub(crate) struct Timekeeper {
    pub(crate) handle: LoopHandle,
    pub(crate) clock: RunningClock,
    /// The turn of the next connection that is late.
    next_turn: Cell<Instant>,
}

impl Timekeeper {
    pub(crate) fn new(handle: &LoopHandle, clock: &RunningClock) -> Rc<Timekeeper> {
        let next_turn = Cell::new(clock.now());
        Rc::new(Timekeeper { handle: handle.clone(), clock: clock.clone(), next_turn })
    }

    /// When one more connection that is late may be ended: not before the next millisecond, because what came is read first.
    pub(super) fn turn(&self) -> Instant {
        let turn = self.next_turn.get().max(self.clock.now() + Duration::from_millis(1));
        self.next_turn.set(turn + LATE_SPACING);
        turn
    }
}
