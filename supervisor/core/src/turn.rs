//! One event that is being handled: when it happened, and what the shell has to do about it.

use super::action::{Action, Actions};
use super::ids::Mono;

/// Handed from function to function while one event is handled.
pub(super) struct Turn<'a> {
    /// The time of the event. All that follows from it happens at this time.
    pub(super) now: Mono,
    actions: &'a mut Actions,
}

impl Turn<'_> {
    pub(super) fn new(now: Mono, actions: &mut Actions) -> Turn<'_> {
        Turn { now, actions }
    }

    /// The shell has to do this too, after all that it was told before.
    pub(super) fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// The same for several actions, or for one that may be missing.
    pub(super) fn extend(&mut self, actions: impl IntoIterator<Item = Action>) {
        self.actions.extend(actions);
    }
}
