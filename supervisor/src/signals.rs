//! Signals that end a process which does nothing about them. Whoever has started processes, or has a job with a
//! supervisor, catches all of them, puts things in order, and then ends.
//!
//! ```text
//!   ignored when this process was started (nohup; INT in the background of a script) ---> stays ignored
//!   faults of this program (SEGV, BUS, ILL, FPE, ABRT, SYS, TRAP) --------------------> end it at once
//!   PIPE, XFSZ ----------------------------------------------------------------------> a write fails, which is told
//!   all others whose default action is to end the process ----------------------------> caught here
//! ```

use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU,
};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// The signals with a name. SIGPWR and SIGSTKFLT are Linux's own.
const NAMED: [i32; 13] = [
    SIGHUP,
    SIGINT,
    SIGQUIT,
    SIGTERM,
    SIGUSR1,
    SIGUSR2,
    SIGALRM,
    SIGVTALRM,
    SIGPROF,
    SIGXCPU,
    SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
];

/// Signals that this process has caught: readable when one has come. Dropping it ends the catching.
pub struct EndingSignals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
}

impl EndingSignals {
    /// Catches all signals that would end this process, but for those that are ignored.
    ///
    /// # Errors
    /// Without descriptors for a pair of sockets.
    pub fn catch() -> io::Result<EndingSignals> {
        let (ours, of_handlers) = UnixStream::pair()?;
        let ignored = ignored_signals();
        let wanted = ending_signals().filter(|signal| ignored >> (signal - 1) & 1 == 0);
        let delivery = SignalDelivery::with_pipe(ours, of_handlers, SignalOnly, wanted)?;
        Ok(EndingSignals { delivery })
    }

    /// Those that have come since it was last asked, each once. Does not wait.
    pub fn pending(&mut self) -> Vec<i32> {
        self.delivery.pending().collect()
    }

    /// Another descriptor that is readable when a signal has come.
    ///
    /// # Errors
    /// Without a free descriptor.
    pub fn descriptor(&self) -> io::Result<impl AsFd + use<>> {
        self.delivery.get_read().try_clone()
    }
}

impl AsFd for EndingSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }
}

fn ending_signals() -> impl Iterator<Item = i32> {
    NAMED.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
}

/// A bit for each signal, the lowest for the first; none where it cannot be known.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    field.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that are standard and not here are named in the documentation, or do not end a process, or cannot be caught.
    #[test]
    fn every_signal_that_ends_a_process_is_caught_or_accounted_for() {
        use libc::*;
        let faults = [SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP];
        let failing_writes = [SIGPIPE, SIGXFSZ];
        let harmless = [SIGCHLD, SIGCONT, SIGURG, SIGWINCH];
        let stopping = [SIGTSTP, SIGTTIN, SIGTTOU];
        let beyond_us = [SIGKILL, SIGSTOP];
        let others = [&faults[..], &failing_writes, &harmless, &stopping, &beyond_us].concat();
        for signal in 1..32 {
            assert_ne!(NAMED.contains(&signal), others.contains(&signal), "{signal}");
        }
    }
}
