//! Rows for the matrix that the supervisor does not stand yet. Not compiled: they move into the table one by one.

/// Grandchildren that left the process group and the session keep the socket open; they have to be gone with their
/// worker. And a worker that is stopped has to be noticed, not waited for: its job is somebody else's within 5 s.
pub(crate) const COMING: &[Case] = &[
    crashes("run:daemonize", "signal 9 (SIGKILL)"),
    crashes("run:escape3", "signal 9 (SIGKILL)"),
    unharmed("recv:daemonize once"),
    crashes("reply:daemonize", "signal 9 (SIGKILL)"),
    unharmed("after:daemonize"),
    unharmed("recv:stop once"),
    unharmed("after:stop"),
];

/// A job whose every worker dies before it has started it makes the supervisor refuse everybody's jobs if the workers
/// are young, instead of being given up itself.
pub(crate) const NEVER_STARTED: &[Case] = &[
    never_started("recv:exit7"),
    never_started("recv:segv"),
];
