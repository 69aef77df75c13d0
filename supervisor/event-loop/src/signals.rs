//! Signals: their handler writes a byte into a pipe, which the poll phase watches.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::SigId;
use signal_hook::low_level::{pipe, unregister};

use super::Context;
use super::error::LoopError;

pub(super) type SignalCallback = Box<dyn FnMut(&mut Context, i32)>;

/// One signal, and the pipe that becomes readable when it comes. Dropping it unregisters the handler.
pub(super) struct SignalPipe {
    signal: i32,
    arrivals: UnixStream,
    registration: SigId,
}

impl SignalPipe {
    pub(super) fn open(signal: i32) -> Result<SignalPipe, LoopError> {
        if signal_hook::consts::FORBIDDEN.contains(&signal) {
            return Err(LoopError::UnusableSignal { signal });
        }
        let (arrivals, handler) = UnixStream::pair()?;
        arrivals.set_nonblocking(true)?;
        let registration = pipe::register(signal, handler).map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => LoopError::UnusableSignal { signal },
            _ => error.into(),
        })?;
        Ok(SignalPipe { signal, arrivals, registration })
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
        unregister(self.registration);
    }
}
