//! Waits for one descriptor, always with a time limit. The hub never waits like this; killing a child at the end does,
//! and so do tests.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Whether one of `events` comes within `limit`. That the other end has hung up always counts.
pub(super) fn wait_for(descriptor: &impl AsFd, events: PollFlags, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(timeout) = Timespec::try_from(left) else { return false };
        match poll(&mut [PollFd::new(descriptor, events)], Some(&timeout)) {
            Ok(ready) => return ready > 0,
            Err(Errno::INTR) if !left.is_zero() => {}
            Err(_) => return false,
        }
    }
}
