//! The file descriptor of a source, for what this crate has no method for.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// The file descriptor of a stream, a listener, a UDP socket or a child process: for a socket option, or another call that
/// this crate does not make itself.
///
/// The file stays open while a `Descriptor` exists, also when the source is closed meanwhile, so its number cannot come to
/// mean another file. Keep it only for as long as it takes: the peer of a closed stream learns of the end when the last
/// `Descriptor` is dropped. Sources cannot be [`AsFd`] themselves: what [`AsFd::as_fd`] lends must stay
/// open for as long as the source is borrowed, but any clone of the source may close it meanwhile, and so may the loop (a
/// connect fails, a child exits). A `Descriptor` is a share in the open file, so it can lend it. [`BoundTcp`](super::BoundTcp),
/// which has one owner and no loop, is [`AsFd`] itself.
///
/// The source does not know of what is read or written through it. The descriptor is non-blocking and should stay so.
///
/// ```
/// use offload_event_loop::{EventLoop, Stream};
/// use std::os::fd::AsFd;
///
/// let event_loop = EventLoop::new()?;
/// let (stream, _peer) = Stream::pair(&event_loop)?;
/// let size = rustix::net::sockopt::socket_send_buffer_size(stream.descriptor()?.as_fd())?;
/// assert!(size > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Descriptor(Rc<OwnedFd>);

impl Descriptor {
    pub(super) fn new(file: Rc<OwnedFd>) -> Descriptor {
        Descriptor(file)
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
