//! A kernel timer: one thread sleeps until it expires, another one sets when that is.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::{Errno, read};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// See the module's documentation.
pub(super) struct Alarm(OwnedFd);

impl Alarm {
    /// One that is not set.
    pub(super) fn new() -> io::Result<Alarm> {
        Ok(Alarm(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?))
    }

    /// It expires once, `delay` from now, whatever it was set to before. Costs one system call and wakes nobody.
    pub(super) fn set(&self, delay: Duration) {
        let delay = delay.max(Duration::from_nanos(1));
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value =
            Timespec::try_from(delay).unwrap_or(Timespec { tv_sec: i64::from(i32::MAX), tv_nsec: 0 });
        let once = Itimerspec { it_interval: never, it_value };
        // It can fail only for a time that makes no sense.
        let set = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once);
        debug_assert!(set.is_ok(), "{set:?}");
    }

    /// Sleeps until it goes off.
    pub(super) fn wait(&self) {
        let mut count = [0; 8];
        while read(&self.0, &mut count) == Err(Errno::INTR) {}
    }
}
