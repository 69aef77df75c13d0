//! Lets writes fail in tests as if the kernel were short of something, which a test cannot bring about.

use std::cell::Cell;

thread_local! {
    static REFUSED_WRITES: Cell<u32> = const { Cell::new(0) };
}

/// So many of the next writes of this thread fail.
pub(crate) fn refuse_writes(count: u32) {
    REFUSED_WRITES.set(count);
}

/// How many of these are still to come.
pub(crate) fn refused_writes_left() -> u32 {
    REFUSED_WRITES.get()
}

pub(super) fn is_next_write_refused() -> bool {
    let left = REFUSED_WRITES.get();
    REFUSED_WRITES.set(left.saturating_sub(1));
    left > 0
}
