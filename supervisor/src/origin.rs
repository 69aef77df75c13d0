//! Which process has started something. What a forked child has of it is a copy, and the child must leave it alone.

/// The process that has started something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin(u32);

impl Origin {
    /// This process.
    pub(crate) fn here() -> Origin {
        Origin(std::process::id())
    }

    /// Whether it was this process, and not one that has forked this one.
    pub(crate) fn is_here(self) -> bool {
        self.0 == std::process::id()
    }

    /// As a forked child sees what its parent has started.
    #[cfg(test)]
    pub(crate) fn elsewhere() -> Origin {
        Origin(0)
    }
}
