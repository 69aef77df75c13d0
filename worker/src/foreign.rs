//! A program that knows nothing of the protocol and runs as long as its worker, an adapter, which stands between it and the supervisor.
//!
//! The adapter ends as its program did, and the program with the adapter: so a supervisor needs to know nothing of either.

use crate::limits::FOREIGN_GRACE;
use crate::sys;
use crate::task::complain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
#[cfg(feature = "http-app")]
use rustix::process::{Signal, pidfd_send_signal};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Variables of a worker that are not for the program behind it.
const OWN_VARIABLES: &str = "OFFLOAD_";

/// The exit code of an adapter whose program broke its promises (`EX_PROTOCOL` of sysexits.h).
const EXIT_BROKEN_PROMISE: i32 = 76;

/// What shells make of a signal, if it cannot be repeated.
const EXIT_BY_SIGNAL: i32 = 128;

/// Says in the log why a command was not started, and how the adapter ends.
pub type Refuse = fn(&[OsString], &io::Error) -> ExitCode;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Foreign {
    child: Child,
    process: OwnedFd,
}

impl Foreign {
    /// Starts a program; its standard output and standard error are those of this process.
    ///
    /// # Errors
    /// It could not be started.
    pub(crate) fn start(
        words: &[OsString],
        prepare: impl FnOnce(&mut Command) -> io::Result<()>,
    ) -> io::Result<Foreign> {
        let (program, arguments) = words.split_first().ok_or(ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        let own = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with(OWN_VARIABLES));
        for (name, _) in own {
            command.env_remove(name);
        }
        command.args(arguments).stdin(Stdio::null());
        prepare(&mut command)?;
        sys::end_with_this_thread(&mut command);
        sys::without_a_shell(&mut command)?;
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(ErrorKind::InvalidData)?;
        Ok(Foreign { process: pidfd_open(pid, PidfdFlags::empty())?, child })
    }

    /// Is readable once the program has ended.
    pub(crate) fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// As [`Foreign::process`], for the session. Without it, an end between two jobs is found out by the next one.
    pub(crate) fn life(&self) -> Option<OwnedFd> {
        self.process.try_clone().ok()
    }

    /// Waits for its end, at most so long.
    pub(crate) fn ends_within(&self, longest: Duration) -> bool {
        let until = Instant::now() + longest;
        loop {
            let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
            let mut polled = [PollFd::new(&self.process, PollFlags::IN)];
            match poll(&mut polled, left.as_ref()) {
                Ok(count) => return count > 0,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// There is nothing left to do for it, and it was told so by the end of its input. If it has not ended by itself, this process ends well.
    #[cfg(feature = "jsonl")]
    pub(crate) fn finish(&mut self) {
        match self.ends_within(FOREIGN_GRACE) {
            true => self.repeat_failure(),
            false => {
                complain(format_args!("the program goes on although there are no more jobs, and is killed"));
                self.kill();
            }
        }
    }

    /// There is nothing left to do for it: it is asked to end (SIGTERM). However it does so, this process ends well, unless it
    /// has ended before.
    #[cfg(feature = "http-app")]
    pub(crate) fn ask_to_end(&mut self) {
        if self.ends_within(Duration::ZERO) {
            return self.repeat_failure();
        }
        // It cannot be gone: it is collected below.
        let _ = pidfd_send_signal(&self.process, Signal::TERM);
        if !self.ends_within(FOREIGN_GRACE) {
            complain(format_args!("the program goes on although it was asked to end, and is killed"));
        }
        self.kill();
    }

    /// Kills the program, because nobody wants what it is doing, and ends this process.
    #[cfg(feature = "http-app")]
    pub(crate) fn end_unwanted(&mut self) -> ! {
        self.kill();
        std::process::exit(0);
    }

    fn repeat_failure(&mut self) {
        match self.child.wait() {
            Ok(status) if status.success() => {}
            Ok(status) => repeat(status),
            Err(error) => complain(format_args!("cannot see how the program ended: {error}")),
        }
    }

    /// Ends this process as the program has ended, which is about to happen if it has not.
    pub(crate) fn end_as_it_did(&mut self) -> ! {
        match self.child.wait() {
            Ok(status) => repeat(status),
            Err(error) => {
                complain(format_args!("cannot see how the program ended: {error}"));
                std::process::exit(EXIT_BROKEN_PROMISE);
            }
        }
    }

    /// Kills the program, which has broken its promises, and ends this process.
    pub(crate) fn end_broken(&mut self, why: &str) -> ! {
        self.kill();
        complain(format_args!("the program broke its promises: {why}"));
        std::process::exit(EXIT_BROKEN_PROMISE);
    }

    fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn repeat(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal() {
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        // For real-time signals, of which nobody knows what they stand for.
        std::process::exit(EXIT_BY_SIGNAL + signal);
    }
    std::process::exit(status.code().unwrap_or(EXIT_BROKEN_PROMISE));
}
