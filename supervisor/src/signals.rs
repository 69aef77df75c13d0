//! Catches signals that would otherwise end the process. A process that has started others, or waits for a job of a
//! supervisor, catches all of them, cleans up, and then ends.
//!
//! ```text
//!   ignored when this process was started (nohup; INT in the background of a script) ---> stays ignored
//!   faults of this program (SEGV, BUS, ILL, FPE, ABRT, SYS, TRAP) --------------------> end the process at once
//!   PIPE, XFSZ ----------------------------------------------------------------------> a write fails with an error
//!   what this machine lets nobody catch (valgrind keeps the last real-time signal) ---> left
//!   all others whose default action is to end the process ----------------------------> caught here
//! ```

use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU,
};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// The signals with a name. SIGPWR and SIGSTKFLT exist only on Linux.
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

/// The caught signals. The descriptor is readable when a signal has arrived. Dropping this value stops catching them.
#[must_use = "dropping it stops catching the signals"]
pub struct EndingSignals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
}

impl fmt::Debug for EndingSignals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("EndingSignals").finish_non_exhaustive()
    }
}

impl EndingSignals {
    /// Catches all signals that would end this process, except those that are ignored.
    ///
    /// # Errors
    /// If there are no descriptors for a pair of sockets.
    pub fn catch() -> io::Result<EndingSignals> {
        let (ours, of_handlers) = UnixStream::pair()?;
        let ignored = ignored_signals();
        let wanted = ending_signals().filter(|signal| ignored >> (signal - 1) & 1 == 0);
        let mut caught = EndingSignals {
            delivery: SignalDelivery::with_pipe(ours, of_handlers, SignalOnly, [] as [i32; 0])?,
        };
        for signal in wanted {
            caught.also_catch(signal)?;
        }
        Ok(caught)
    }

    fn also_catch(&mut self, signal: i32) -> io::Result<()> {
        match self.delivery.handle().add_signal(signal) {
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
            done => done,
        }
    }

    /// The signals that have arrived since the last call, each once. Does not wait.
    pub fn pending(&mut self) -> Vec<i32> {
        self.delivery.pending().collect()
    }

    /// A duplicate of the descriptor that is readable when a signal has arrived.
    ///
    /// # Errors
    /// If no descriptor is free.
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

/// The set of ignored signals: one bit for each signal, the lowest bit for signal 1. Empty if it cannot be determined.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    field.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_nobody_can_catch_is_left_and_the_others_are_caught() {
        let mut caught = EndingSignals::catch().expect("descriptors");
        let nobodys = libc::SIGRTMAX() + 1;
        caught.also_catch(nobodys).expect("left");
        signal_hook::low_level::raise(SIGUSR2).expect("raised");
        assert_eq!(caught.pending(), [SIGUSR2]);
    }

    /// Every standard signal that is missing here is named in the module's header, does not end a process, or cannot be
    /// caught.
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
