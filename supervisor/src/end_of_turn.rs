//! The end of a turn of the event loop, for the connections of workers and those of clients: every connection with
//! unsent bytes is written to once, and the event loop then watches for whatever has to happen next.
//!
//! ```text
//!   marked: has unsent bytes ---> the turn ends: write_and_watch ---> at most FLUSH_MAX bytes are written
//!     ^                                                                  |
//!     '------------------------------------------------------ More ------|
//!                 the loop watches for room to write, or for input ------|-- Watching
//!                                            the owner handles the error '-- Failed
//! ```
//!
//! All messages of a turn are written together, which saves system calls.

use crate::wire::Flushed;
use offload_event_loop::{HandleId, Interest, LoopError, LoopHandle};
use std::io;

/// Whether a callback at the end of this turn has been requested. Several requests in one turn have the effect of one.
#[derive(Debug, Default)]
pub(crate) struct EndOfTurn {
    is_due: bool,
}

impl EndOfTurn {
    /// Has the event loop call `end` at the end of this turn, unless that has been requested already. `end` must begin
    /// with [`EndOfTurn::begin`].
    pub(crate) fn ask(&mut self, handle: &LoopHandle, end: impl FnOnce() + 'static) {
        if !std::mem::replace(&mut self.is_due, true) {
            handle.set_immediate(move |_| end());
        }
    }

    /// The end of the turn has begun: requests from now on are for the next turn.
    pub(crate) fn begin(&mut self) {
        self.is_due = false;
    }
}

/// A socket that the event loop watches, and for what.
#[derive(Debug)]
pub(crate) struct Watched {
    watcher: HandleId,
    interest: Interest,
}

impl Watched {
    /// A socket that is watched for input.
    pub(crate) fn for_input(watcher: HandleId) -> Watched {
        Watched { watcher, interest: Interest::READ }
    }

    /// Has the event loop watch for input, for room to write, for both or for neither. Returns whether it watches for
    /// input now and did not before.
    ///
    /// # Errors
    /// The event loop cannot watch the socket. Nothing has changed.
    pub(crate) fn look_for(
        &mut self,
        handle: &LoopHandle,
        input: bool,
        room: bool,
    ) -> Result<bool, LoopError> {
        let interest = match (input, room) {
            (true, true) => Interest::READ | Interest::WRITE,
            (true, false) => Interest::READ,
            (false, true) => Interest::WRITE,
            (false, false) => Interest::NONE,
        };
        if interest == self.interest {
            return Ok(false);
        }
        handle.set_interest(self.watcher, interest)?;
        let read_before =
            self.interest == Interest::READ || self.interest == Interest::READ | Interest::WRITE;
        self.interest = interest;
        Ok(input && !read_before)
    }

    /// Stops watching. Closing a watcher fails only if it is closed already.
    pub(crate) fn unwatch(self, handle: &LoopHandle) {
        let _ = handle.close(self.watcher, |_| ());
    }
}

/// A connection that can be written to.
pub(crate) trait Writable {
    /// Writes unsent bytes, at most [`FLUSH_MAX`](crate::limits::FLUSH_MAX).
    fn write_once(&mut self) -> io::Result<Flushed>;
    /// Whether unsent bytes are left.
    fn has_unsent(&self) -> bool;
    /// Whether its input is wanted now.
    fn wants_input(&self) -> bool;
    /// The watched socket. None if the event loop does not watch it any more.
    fn watched(&mut self) -> Option<&mut Watched>;
    /// Called when the event loop begins to watch for input again.
    fn is_heard_again(&mut self);
}

/// The result of writing to a connection at the end of a turn.
#[derive(Debug)]
pub(crate) enum Written {
    /// There is more to write and the socket takes it: write again in the next turn.
    More,
    /// There is more to write, which the kernel cannot take now: write again a little later.
    Refused,
    /// The event loop watches for whatever has to happen next.
    Watching,
    /// The connection failed. The sentence says how.
    Failed(String),
}

/// Writes once, and has the event loop watch for whatever has to happen next.
pub(crate) fn write_and_watch(connection: &mut impl Writable, handle: &LoopHandle) -> Written {
    let flushed = connection.write_once();
    // A socket that has room is always writable, so nothing is gained by watching one that was refused.
    let is_refused = matches!(flushed, Ok(Flushed::Refused));
    let (input, room) = (connection.wants_input(), connection.has_unsent() && !is_refused);
    if let Err(error) = &flushed {
        return Written::Failed(format!("cannot write to it: {error}"));
    }
    let watched = connection.watched().map(|watched| watched.look_for(handle, input, room));
    match watched {
        Some(Err(error)) => return Written::Failed(format!("cannot watch its socket: {error}")),
        Some(Ok(true)) => connection.is_heard_again(),
        Some(Ok(false)) | None => {}
    }
    match flushed {
        Ok(Flushed::More) => Written::More,
        Ok(Flushed::Refused) => Written::Refused,
        _ => Written::Watching,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_event_loop::EventLoop;
    use std::cell::Cell;
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;

    #[test]
    fn a_turn_ends_once_however_often_that_is_asked_for() {
        let mut event_loop = EventLoop::new().unwrap();
        let (mut turn, ends) = (EndOfTurn::default(), Rc::new(Cell::new(0)));
        for _ in 0..3 {
            let ends = Rc::clone(&ends);
            turn.ask(&event_loop.handle(), move || ends.set(ends.get() + 1));
        }
        event_loop.run().unwrap();
        assert_eq!(ends.get(), 1);
        turn.begin();
        let again = Rc::clone(&ends);
        turn.ask(&event_loop.handle(), move || again.set(again.get() + 1));
        event_loop.run().unwrap();
        assert_eq!(ends.get(), 2);
    }

    #[test]
    fn it_is_known_when_the_loop_begins_to_look_for_input() {
        let event_loop = EventLoop::new().unwrap();
        let (socket, _other) = UnixStream::pair().unwrap();
        let handle = event_loop.handle();
        let watcher = handle.watch(socket, Interest::READ, |_, _| ()).unwrap();
        let mut watched = Watched::for_input(watcher);
        for (input, room, is_news) in [
            (true, false, false),
            (true, true, false),
            (false, true, false),
            (false, false, false),
            (true, true, true),
        ] {
            assert_eq!(watched.look_for(&handle, input, room).unwrap(), is_news, "{input} {room}");
        }
        watched.unwatch(&handle);
    }
}
