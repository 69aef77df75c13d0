//! How a process ended: with an exit code, or by a signal. The shell reports this, and the core decides what follows.

use std::fmt;
use std::time::Duration;

/// How a process ended, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// The process exited with this code, 0 to 255.
    Code(i32),
    /// The process was ended by this signal.
    Signal(i32),
    /// The process has ended, but other code in this program has collected its exit status.
    Unknown,
}

/// What a process used in its life, as the kernel counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExitUsage {
    /// CPU time in user mode.
    pub cpu_user: Duration,
    /// CPU time in the kernel.
    pub cpu_system: Duration,
    /// The most resident memory that was seen, in bytes; 0 if it was never measured.
    pub peak_rss_bytes: u64,
}

impl Exit {
    /// The exit code, if the process exited.
    pub fn code(self) -> Option<i32> {
        match self {
            Exit::Code(code) => Some(code),
            Exit::Signal(_) | Exit::Unknown => None,
        }
    }

    /// The signal, if one ended the process.
    pub fn signal(self) -> Option<i32> {
        match self {
            Exit::Signal(signal) => Some(signal),
            Exit::Code(_) | Exit::Unknown => None,
        }
    }

    /// Whether the kernel ended it for a system call that is forbidden to it (seccomp(2)).
    pub fn is_forbidden_call(self) -> bool {
        self.signal().and_then(signal_name) == Some("SIGSYS")
    }
}

/// "exit code 3", "signal 11 (SIGSEGV)", "unknown exit".
impl fmt::Display for Exit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(formatter, "exit code {code}"),
            Exit::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(formatter, "signal {signal} ({name})"),
                None => write!(formatter, "signal {signal}"),
            },
            Exit::Unknown => formatter.write_str("unknown exit"),
        }
    }
}

/// The signals from 1 on, by the numbers of Linux on every architecture but Alpha, MIPS, PA-RISC and SPARC (signal(7)).
#[rustfmt::skip]
const SIGNAL_NAMES: [&str; 31] = [
    "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1",
    "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT", "SIGCHLD", "SIGCONT", "SIGSTOP",
    "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGXCPU", "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH",
    "SIGIO", "SIGPWR", "SIGSYS",
];

/// The name of a signal as `kill -l` prints it, with SIG in front. Real-time signals have no names of their own.
fn signal_name(number: i32) -> Option<&'static str> {
    let index = usize::try_from(number).ok()?.checked_sub(1)?;
    SIGNAL_NAMES.get(index).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_reads_as_people_say_it() {
        assert_eq!(Exit::Code(3).to_string(), "exit code 3");
        assert_eq!(Exit::Signal(11).to_string(), "signal 11 (SIGSEGV)");
        assert_eq!(Exit::Signal(9).to_string(), "signal 9 (SIGKILL)");
        assert_eq!(Exit::Signal(40).to_string(), "signal 40");
        assert_eq!(Exit::Unknown.to_string(), "unknown exit");
    }

    #[test]
    fn every_standard_signal_has_a_name() {
        for number in 1..=31 {
            assert!(signal_name(number).is_some(), "{number}");
        }
    }

    #[test]
    fn an_exit_has_a_code_or_a_signal_or_neither() {
        assert_eq!((Exit::Code(3).code(), Exit::Code(3).signal()), (Some(3), None));
        assert_eq!((Exit::Signal(6).code(), Exit::Signal(6).signal()), (None, Some(6)));
        assert_eq!((Exit::Unknown.code(), Exit::Unknown.signal()), (None, None));
    }
}
