//! Signals: their handler writes a byte into a pipe, which the poll phase watches.
//!
//! A handler that was registered once stays: without anybody to tell, it ignores the signal, and the process no longer ends by
//! SIGTERM. So handlers are registered when nothing else can be refused any more.
//!
//! ```text
//!   open --> watched by the poller --> caught: the handler is registered
//! ```

use std::cell::OnceCell;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::SigId;
use signal_hook::low_level::unregister;

use super::Context;
use super::error::LoopError;
use super::origin::Origin;
use super::sys;

pub(super) type SignalCallback = Box<dyn FnMut(&mut Context, i32)>;

/// One signal, and the pipe that becomes readable when it comes. Dropping it unregisters the handler.
pub(super) struct SignalPipe {
    signal: i32,
    arrivals: UnixStream,
    origin: Origin,
    /// Missing until the signal is caught.
    registration: OnceCell<SigId>,
}

/// The end of a pipe that the handler writes to.
pub(super) struct HandlerEnd(UnixStream);

impl SignalPipe {
    pub(super) fn open(signal: i32) -> Result<(SignalPipe, HandlerEnd), LoopError> {
        if signal_hook::consts::FORBIDDEN.contains(&signal) || !sys::signal_exists(signal) {
            return Err(LoopError::UnusableSignal { signal });
        }
        let (arrivals, handler) = UnixStream::pair()?;
        arrivals.set_nonblocking(true)?;
        let (origin, registration) = (Origin::here(), OnceCell::new());
        Ok((SignalPipe { signal, arrivals, origin, registration }, HandlerEnd(handler)))
    }

    /// Registers the handler, which stays for as long as the process.
    ///
    /// # Errors
    /// [`LoopError::UnusableSignal`] if somebody has reserved a signal that exists, as valgrind does.
    pub(super) fn catch(&self, handler: HandlerEnd) -> Result<(), LoopError> {
        let registered = sys::write_at_signal(self.signal, handler.0, self.origin);
        let registration = registered.map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => LoopError::UnusableSignal { signal: self.signal },
            _ => error.into(),
        })?;
        let earlier = self.registration.set(registration);
        assert!(earlier.is_ok(), "a signal is caught once");
        Ok(())
    }

    pub(super) fn signal(&self) -> i32 {
        self.signal
    }

    /// Reads everything; true if the signal came at least once. Like the kernel's own, equal signals coalesce.
    pub(super) fn drain(&self) -> bool {
        let mut bytes = [0; 64];
        let mut arrived = false;
        while (&self.arrivals).read(&mut bytes).is_ok_and(|count| count > 0) {
            arrived = true;
        }
        arrived
    }
}

impl AsFd for SignalPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrivals.as_fd()
    }
}

impl Drop for SignalPipe {
    fn drop(&mut self) {
        // That takes a lock. In a forked child the handler writes nothing anyhow.
        if let Some(registration) = self.registration.get()
            && self.origin.is_here()
        {
            unregister(*registration);
        }
    }
}
