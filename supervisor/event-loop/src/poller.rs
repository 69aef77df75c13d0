//! The kernel's side of the poll phase: a set of descriptors, and waiting for one of them to be ready.

use std::cell::Cell;
use std::io;
use std::ops::BitOr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::clock::Nanos;
use super::error::LoopError;
use super::origin::Origin;
use super::sys::look_for_events;

/// The loop may wait longer, but not in one go: a day.
const TIMEOUT_MAX: Nanos = 86_400 * 1_000_000_000;

/// In which directions a descriptor is watched. Combine with `|`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(epoll::EventFlags);

impl Interest {
    /// Neither direction: the watcher rests and does not keep the loop alive.
    pub const NONE: Interest = Interest(epoll::EventFlags::empty());
    /// Data to read, a connection to accept, or the peer's end of writing.
    pub const READ: Interest = Interest(epoll::EventFlags::IN.union(epoll::EventFlags::RDHUP));
    /// Room to write, or the end of connecting.
    pub const WRITE: Interest = Interest(epoll::EventFlags::OUT);

    /// The same, told once for each time that something new happens (edge triggered), and not for as long as it lasts. This is for
    /// a watcher that remembers what is ready until a read or a write would block; it never has to change its interest.
    ///
    /// What was ready before it was watched is told once, too.
    #[must_use]
    pub fn on_edge(self) -> Interest {
        Interest(self.0 | epoll::EventFlags::ET)
    }

    /// Neither direction.
    pub fn is_none(self) -> bool {
        self == Interest::NONE
    }

    /// The same for a single event, after which the descriptor rests until it is armed again.
    pub(super) fn once(self) -> Interest {
        Interest(self.0 | epoll::EventFlags::ONESHOT)
    }
}

impl BitOr for Interest {
    type Output = Interest;

    fn bitor(self, other: Interest) -> Interest {
        Interest(self.0 | other.0)
    }
}

/// For what a watched descriptor is ready. An error or a hang-up makes it ready for both directions: the next
/// read or write tells which it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness(pub(super) epoll::EventFlags);

impl Readiness {
    /// The part of it that concerns this interest. Errors and hang-ups concern every interest but none.
    pub(super) fn within(self, interest: Interest) -> Option<Readiness> {
        let everybodys = epoll::EventFlags::ERR | epoll::EventFlags::HUP;
        let heard = self.0 & (interest.0 | everybodys);
        (!interest.is_none() && !heard.is_empty()).then_some(Readiness(heard))
    }

    /// A read will not block.
    pub fn is_readable(self) -> bool {
        use epoll::EventFlags as Flags;
        self.0.intersects(Flags::IN | Flags::RDHUP | Flags::HUP | Flags::ERR)
    }

    /// A write will not block.
    pub fn is_writable(self) -> bool {
        use epoll::EventFlags as Flags;
        self.0.intersects(Flags::OUT | Flags::HUP | Flags::ERR)
    }

    /// The peer has closed at least its writing side.
    pub fn is_hang_up(self) -> bool {
        self.0.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP)
    }

    /// Both directions are closed: what is sent reaches nobody.
    pub fn is_closed(self) -> bool {
        self.0.contains(epoll::EventFlags::HUP)
    }

    /// The descriptor has an error to tell, e.g. a refused connection.
    pub fn is_error(self) -> bool {
        self.0.contains(epoll::EventFlags::ERR)
    }
}

/// A level triggered epoll set. Each member carries a token by which its events are told apart.
#[derive(Debug)]
pub(super) struct Poller {
    epoll: OwnedFd,
    /// How many members the set has at most: one that was closed behind the poller's back still counts.
    members: Cell<usize>,
    /// A child that is forked has the same set, not a copy.
    origin: Origin,
}

impl Poller {
    pub(super) fn new() -> Result<Poller, LoopError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Poller { epoll, members: Cell::new(0), origin: Origin::here() })
    }

    pub(super) fn members(&self) -> usize {
        self.members.get()
    }

    pub(super) fn add(
        &self,
        source: BorrowedFd<'_>,
        token: u64,
        interest: Interest,
    ) -> Result<(), LoopError> {
        epoll::add(&self.epoll, source, epoll::EventData::new_u64(token), interest.0)?;
        self.members.set(self.members.get() + 1);
        Ok(())
    }

    pub(super) fn modify(
        &self,
        source: BorrowedFd<'_>,
        token: u64,
        interest: Interest,
    ) -> Result<(), LoopError> {
        Ok(epoll::modify(&self.epoll, source, epoll::EventData::new_u64(token), interest.0)?)
    }

    /// Lets a descriptor be watched for `interest` from here on, `current` being what it was watched for.
    pub(super) fn change(
        &self,
        source: BorrowedFd<'_>,
        token: u64,
        current: Interest,
        interest: Interest,
    ) -> Result<(), LoopError> {
        match (current.is_none(), interest.is_none()) {
            (true, true) => Ok(()),
            (true, false) => self.add(source, token, interest),
            (false, false) => self.modify(source, token, interest),
            // A descriptor in the set reports hang-ups even to who wants nothing, so it has to leave the set.
            (false, true) => {
                self.remove(source);
                Ok(())
            }
        }
    }

    /// Ends the watching of a descriptor. It cannot fail in a way that anybody could act on: the descriptor is
    /// open, because the loop owns it until now. A forked child that drops its copy of the loop ends no watching of its parent.
    pub(super) fn remove(&self, source: BorrowedFd<'_>) {
        if self.origin.is_here() && epoll::delete(&self.epoll, source).is_ok() {
            self.members.set(self.members.get() - 1);
        }
    }

    /// Waits until something is ready and appends it to `events`, at most for `timeout` (`None` is for ever). A signal
    /// or a very long timeout may make it return early and without events.
    pub(super) fn wait(
        &self,
        events: &mut Vec<epoll::Event>,
        timeout: Option<Nanos>,
    ) -> Result<(), LoopError> {
        if timeout == Some(0) {
            return match look_for_events(self.epoll.as_fd(), events) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(LoopError::from(error)),
                _ => Ok(()),
            };
        }
        let timeout = timeout.map(|timeout| timespec(timeout.min(TIMEOUT_MAX)));
        // Since Linux 5.11 epoll counts in nanoseconds.
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn timespec(nanos: Nanos) -> Timespec {
    let duration = Duration::from_nanos(nanos);
    Timespec::try_from(duration).expect("a day of seconds fits into any kernel's type")
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::elsewhere;
    use std::io::Write;

    #[test]
    fn a_forked_child_ends_no_watching_of_its_parent() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut poller = elsewhere::made(|| Poller::new().unwrap());
        poller.add(reader.as_fd(), 7, Interest::READ).unwrap();
        poller.remove(reader.as_fd());
        poller.origin = Origin::here();
        writer.write_all(b"x").unwrap();
        let mut events = Vec::with_capacity(1);
        poller.wait(&mut events, Some(0)).unwrap();
        assert_eq!(events.first().map(|event| event.data.u64()), Some(7));
        poller.remove(reader.as_fd());
        events.clear();
        poller.wait(&mut events, Some(0)).unwrap();
        assert!(events.is_empty() && poller.members() == 0);
    }
}
