//! Waits for one descriptor, always with a time limit. The hub never waits like this. It is used to kill a child at
//! the end, and in tests.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Waits for one of `events`. Returns false if none comes within `limit`. A hang-up of the other end always counts.
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
