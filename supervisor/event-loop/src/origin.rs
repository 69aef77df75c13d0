//! Which process has made something. A forked child has copies of its parent's loops and pools, and must leave them alone.
//!
//! The other threads of the parent do not exist in the child: a lock that one of them had during the fork is never free there,
//! and none of them can be waited for. What both processes share, such as the kernel's counter by which a loop is woken, is the
//! parent's. So what is dropped in a child locks nothing, waits for nobody and wakes nobody: whatever does one of these when it
//! is dropped asks its origin first. What only lies in memory is dropped as ever.

/// The process that has made something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin(u32);

impl Origin {
    /// This process.
    pub(crate) fn here() -> Origin {
        #[cfg(test)]
        if elsewhere::is_made_there() {
            return Origin(0);
        }
        Origin(std::process::id())
    }

    /// Whether it was this process, and not one that has forked this one. It costs a system call, but for each drop and each
    /// signal, not for each post. It may be asked in a handler of signals.
    pub(crate) fn is_here(self) -> bool {
        self.0 == std::process::id()
    }
}

/// Tests take the place of a forked child: what they make here is seen as a child sees what its parent has made.
#[cfg(test)]
pub(crate) mod elsewhere {
    use std::cell::Cell;

    thread_local! {
        static IS_MADE_THERE: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn is_made_there() -> bool {
        IS_MADE_THERE.get()
    }

    pub(crate) fn made<T>(make: impl FnOnce() -> T) -> T {
        IS_MADE_THERE.set(true);
        let made = make();
        IS_MADE_THERE.set(false);
        made
    }
}
