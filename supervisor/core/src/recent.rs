//! What was found last, because the next question is most often about the same. It is no part of the state, so it is not
//! printed: two states that differ only in what was asked for are equal.

use std::cell::Cell;
use std::fmt;

/// The answer to the last question, or nothing.
pub(crate) struct Recent<T>(Cell<Option<T>>);

impl<T: Copy> Recent<T> {
    #[inline]
    pub(crate) fn get(&self) -> Option<T> {
        self.0.get()
    }

    #[inline]
    pub(crate) fn set(&self, found: T) {
        self.0.set(Some(found));
    }

    /// What was found may be wrong from now on.
    #[inline]
    pub(crate) fn forget(&self) {
        self.0.set(None);
    }
}

impl<T> Default for Recent<T> {
    fn default() -> Recent<T> {
        Recent(Cell::new(None))
    }
}

impl<T> fmt::Debug for Recent<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Recent")
    }
}
