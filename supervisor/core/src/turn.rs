//! The handling of one event, or one settling: when it happens, and what the shell has to do about it.

use super::action::{Action, Actions};
use super::ids::Mono;

/// Passed from function to function while one event is handled, or all that came together is settled.
pub(super) struct Turn<'a> {
    /// Everything happens at this time.
    pub(super) now: Mono,
    actions: &'a mut Actions,
}

impl Turn<'_> {
    pub(super) fn new(now: Mono, actions: &mut Actions) -> Turn<'_> {
        Turn { now, actions }
    }

    /// Adds an action that the shell has to carry out after all earlier ones.
    pub(super) fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// How many actions there are.
    pub(super) fn action_count(&self) -> usize {
        self.actions.len()
    }

    /// Adds several actions, or one that may be missing.
    pub(super) fn extend(&mut self, actions: impl IntoIterator<Item = Action>) {
        self.actions.extend(actions);
    }
}
