//! A connected socket as a task on the loop uses it: it remembers what is ready, so that waiting needs no system call.
//!
//! ```text
//!   ready (at first) --- a read or write would block ---> waiting, with a waker
//!      ^                                                     |
//!      '--- an event (edge-triggered: once for each change) -'
//! ```
//!
//! A connection that reads or writes much lets others have their turn: after [`TURN_BYTES`] the socket acts as if it were not ready, until
//! the loop has handled everything else.

use crate::limits::TURN_BYTES;
use offload_event_loop::{HandleId, Interest, LoopError, LoopHandle, Readiness};
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// See the module's documentation. Dropping it closes the socket.
pub(crate) struct Socket {
    descriptor: Rc<OwnedFd>,
    handle: LoopHandle,
    watcher: HandleId,
    sides: Rc<Sides>,
}

#[derive(Default)]
struct Sides {
    reading: Side,
    writing: Side,
    /// Reading and writing fail from now on, though the socket may be in order.
    cut: Cell<bool>,
    /// What is sent reaches nobody any more.
    broken: Cell<bool>,
    /// Something was read at all, and since the last thing was written.
    has_ever_read: Cell<bool>,
    has_read_since_write: Cell<bool>,
}

/// One direction.
struct Side {
    is_ready: Cell<bool>,
    /// The other end is done in this direction: it stays ready, because no event will come.
    is_over: Cell<bool>,
    /// Bytes since others had their turn.
    spent: Cell<usize>,
    /// It goes on in the next turn. There is one such appointment at a time, or each would be a turn of its own.
    goes_on: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Default for Side {
    fn default() -> Side {
        Side {
            is_ready: Cell::new(true),
            is_over: Cell::new(false),
            spent: Cell::new(0),
            goes_on: Cell::new(false),
            waker: RefCell::new(None),
        }
    }
}

impl Side {
    fn happen(&self, is_over: bool) {
        self.is_ready.set(true);
        self.is_over.set(self.is_over.get() || is_over);
        self.spent.set(0);
        self.wake();
    }

    fn wake(&self) {
        let waker = self.waker.take();
        waker.into_iter().for_each(Waker::wake);
    }

    fn wait(&self, context: &Context<'_>) {
        let before = self.waker.replace(Some(context.waker().clone()));
        drop(before);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Socket {
    /// A connected, non-blocking socket.
    ///
    /// # Errors
    /// What the loop says, if it cannot watch the socket.
    #[track_caller]
    pub(crate) fn new(handle: &LoopHandle, descriptor: OwnedFd) -> Result<Socket, LoopError> {
        let descriptor = Rc::new(descriptor);
        let sides = Rc::new(Sides::default());
        let told = Rc::clone(&sides);
        let interest = (Interest::READ | Interest::WRITE).on_edge();
        let watcher = handle.watch(Shared(Rc::clone(&descriptor)), interest, move |_, readiness| {
            told.happen(readiness);
        })?;
        Ok(Socket { descriptor, handle: handle.clone(), watcher, sides })
    }

    /// From now on reading and writing fail, and whoever waits for them is told.
    pub(crate) fn cut(&self) {
        self.sides.cut.set(true);
        self.sides.reading.wake();
        self.sides.writing.wake();
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.sides.cut.get()
    }

    /// Whoever waits for something to read has to look again.
    pub(crate) fn wake_reader(&self) {
        self.sides.reading.wake();
    }

    /// Reads with `read`, which says how many bytes came; 0 is the end.
    pub(crate) fn poll_read(
        &self,
        context: &Context<'_>,
        room: usize,
        read: impl FnOnce(BorrowedFd<'_>) -> Result<usize, Errno>,
    ) -> Poll<io::Result<usize>> {
        let polled = self.poll(Direction::Read, context, room, read);
        if matches!(polled, Poll::Ready(Ok(1..))) {
            self.sides.has_ever_read.set(true);
            self.sides.has_read_since_write.set(true);
        }
        polled
    }

    /// Whether something has come of which nothing was read: the first thing that comes, or one that comes after something was
    /// written.
    pub(crate) fn has_news(&self, is_first: bool) -> bool {
        let sides = &self.sides;
        let has_read = if is_first { &sides.has_ever_read } else { &sides.has_read_since_write };
        !has_read.get() && rustix::io::ioctl_fionread(self.as_fd()).is_ok_and(|bytes| bytes > 0)
    }

    /// The task is woken when there is something to read, or when it has to look whether it still should.
    #[cfg(feature = "tls")]
    pub(crate) fn wait_to_read(&self, context: &Context<'_>) {
        self.sides.reading.wait(context);
    }

    /// Whether this connection still has its turn, for something that costs as much as reading so many bytes. If not, the task is
    /// woken when the others have had theirs.
    pub(crate) fn poll_turn(&self, context: &Context<'_>, cost: usize) -> Poll<()> {
        let side = &self.sides.reading;
        if side.spent.get() >= TURN_BYTES {
            side.wait(context);
            self.go_on_later(Direction::Read);
            return Poll::Pending;
        }
        self.pay(cost);
        Poll::Ready(())
    }

    /// Something has cost as much of this turn as reading so many bytes.
    pub(crate) fn pay(&self, cost: usize) {
        let spent = &self.sides.reading.spent;
        spent.set(spent.get() + cost);
    }

    /// Waits until the client ends or is gone, as far as that shows while nothing is read.
    pub(crate) fn poll_hang_up(&self, context: &Context<'_>) -> Poll<()> {
        let side = &self.sides.reading;
        if side.is_over.get() || self.sides.cut.get() {
            return Poll::Ready(());
        }
        side.wait(context);
        Poll::Pending
    }

    /// Waits until it shows that nothing that is sent reaches the client.
    pub(crate) fn poll_broken(&self, context: &Context<'_>) -> Poll<()> {
        if self.sides.broken.get() || self.sides.cut.get() {
            return Poll::Ready(());
        }
        self.sides.reading.wait(context);
        Poll::Pending
    }

    /// From now on the system itself looks now and then whether the other end is there. Over TCP only.
    pub(crate) fn keep_asking(&self, every: Duration) {
        use rustix::net::sockopt::{
            set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
        };
        let socket = self.as_fd();
        // A Unix socket does not have all of this, and needs none of it.
        let _ = set_socket_keepalive(socket, true)
            .and_then(|()| set_tcp_keepidle(socket, every))
            .and_then(|()| set_tcp_keepintvl(socket, every))
            .and_then(|()| set_tcp_keepcnt(socket, 3));
    }

    /// Writes the pieces as far as the socket takes them, and says how many bytes those were.
    pub(crate) fn poll_write(
        &self,
        context: &Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        let polled = self.poll(Direction::Write, context, length, |socket| send(socket, pieces));
        if matches!(polled, Poll::Ready(Ok(1..))) {
            self.sides.has_read_since_write.set(false);
        }
        polled
    }

    /// Writes what the socket takes without waiting. Whether that was all.
    pub(crate) fn write_at_once(&self, bytes: &[u8]) -> bool {
        send(self.as_fd(), &[IoSlice::new(bytes)]) == Ok(bytes.len())
    }

    /// Ends the writing side.
    pub(crate) fn shut_down(&self) {
        // It fails if the other end is gone, and then there is nothing to end.
        let _ = rustix::net::shutdown(&*self.descriptor, Shutdown::Write);
    }

    fn poll(
        &self,
        direction: Direction,
        context: &Context<'_>,
        length: usize,
        act: impl FnOnce(BorrowedFd<'_>) -> Result<usize, Errno>,
    ) -> Poll<io::Result<usize>> {
        let side = self.sides.of(direction);
        if self.sides.cut.get() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if side.spent.get() >= TURN_BYTES {
            side.wait(context);
            self.go_on_later(direction);
            return Poll::Pending;
        }
        if !side.is_ready.get() {
            side.wait(context);
            return Poll::Pending;
        }
        match act(self.as_fd()) {
            Ok(count) => {
                // Less than there was room for: the kernel has no more, and will tell when that changes.
                side.is_ready.set(count == length || count == 0 || side.is_over.get());
                side.spent.set(side.spent.get() + count);
                Poll::Ready(Ok(count))
            }
            Err(Errno::AGAIN) => {
                side.is_ready.set(side.is_over.get());
                side.wait(context);
                Poll::Pending
            }
            Err(Errno::INTR) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }

    /// Lets the loop handle everything that is ready now.
    fn go_on_later(&self, direction: Direction) {
        if self.sides.of(direction).goes_on.replace(true) {
            return;
        }
        let sides = Rc::clone(&self.sides);
        self.handle.set_immediate(move |_| {
            let side = sides.of(direction);
            side.goes_on.set(false);
            side.spent.set(0);
            side.wake();
        });
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

impl Sides {
    fn of(&self, direction: Direction) -> &Side {
        match direction {
            Direction::Read => &self.reading,
            Direction::Write => &self.writing,
        }
    }

    fn happen(&self, readiness: Readiness) {
        if readiness.is_closed() || readiness.is_error() {
            self.broken.set(true);
        }
        if readiness.is_readable() {
            self.reading.happen(readiness.is_hang_up() || readiness.is_error());
        }
        if readiness.is_writable() {
            self.writing.happen(readiness.is_error());
        }
    }
}

/// Pieces of so few bytes together are copied into one, which the kernel takes faster than several.
const JOINED_MAX: usize = 1 << 10;

/// Without a signal if nobody reads any more.
fn send(socket: BorrowedFd<'_>, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
    use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    match pieces {
        [piece] => send(socket, piece, SendFlags::NOSIGNAL),
        _ if length <= JOINED_MAX => {
            let (mut joined, mut end) = ([0; JOINED_MAX], 0);
            for piece in pieces {
                joined[end..end + piece.len()].copy_from_slice(piece);
                end += piece.len();
            }
            send(socket, &joined[..end], SendFlags::NOSIGNAL)
        }
        _ => sendmsg(socket, pieces, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL),
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // It is open, because nobody else closes it.
        let _ = self.handle.close(self.watcher, |_| ());
    }
}

/// The loop keeps the descriptor open while it watches it.
struct Shared(Rc<OwnedFd>);

impl AsFd for Shared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
