//! Which process has started something. What a forked child has of it is a copy, and the child must leave it alone.

/// The process that has started something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin(u32);

impl Origin {
    /// This process.
    pub(super) fn here() -> Origin {
        Origin(std::process::id())
    }

    /// Whether it was this process, and not one that has forked this one.
    pub(super) fn is_here(self) -> bool {
        self.0 == std::process::id()
    }

    /// As a forked child sees what its parent has started.
    #[cfg(test)]
    pub(super) fn elsewhere() -> Origin {
        Origin(0)
    }
}
