//! A program that knows nothing of the protocol and runs as long as its worker, an adapter, which stands between it and the supervisor.
//!
//! The adapter ends as its program did, and the program with the adapter: so a supervisor needs to know little of either. What
//! it cannot see by itself the adapter says, between two messages of the session (`ProgramNews`).
//!
//! ```text
//!   supervisor ends, or SIGTERM ──► the adapter kills the program and all that descends from it, then ends
//!   the program ends            ──► the adapter kills what descends from it, then ends in the same way
//!   the program is stopped      ──► the supervisor is told: the worker counts as stopped
//! ```
//!
//! The adapter is the reaper of all that descends from it (`strays.rs`), so it finds also what has left its session or its parent.

use crate::limits::FOREIGN_GRACE;
use crate::strays;
use crate::sys;
use crate::task::complain;
use bytes::Bytes;
use nix::sys::prctl;
use nix::sys::signal::Signal as SignalName;
use offload_protocol::limits::MESSAGE_MAX;
use offload_protocol::messages::FromWorker;
use offload_protocol::nouns::{BROKEN_PROMISE, EXIT_BROKEN_PROMISE, ProgramNews, cut};
use offload_protocol::outbox::Outbox;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
#[cfg(feature = "http-app")]
use rustix::process::{Signal, pidfd_send_signal};
use signal_hook::consts::{SIGCHLD, SIGTERM};
use std::cell::Cell;
use std::ffi::OsString;
#[cfg(feature = "http-app")]
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Variables of a worker that are not for the program behind it.
const OWN_VARIABLES: &str = "OFFLOAD_";

/// What shells make of a signal, if it cannot be repeated.
const EXIT_BY_SIGNAL: i32 = 128;

/// The mark of a thread that is ending, of the kernel's `linux/sched.h`.
#[cfg(feature = "http-app")]
const PF_EXITING: u64 = 4;

/// Says in the log why a command was not started, and how the adapter ends.
pub type Refuse = fn(&[OsString], &io::Error) -> ExitCode;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Foreign {
    child: Child,
    pid: Pid,
    process: OwnedFd,
    signals: Signals,
    supervisor: UnixStream,
    /// The supervisor understands what becomes of programs.
    can_tell: Cell<bool>,
    is_stopped: Cell<bool>,
    is_told_to_be_stopped: Cell<bool>,
    /// It has taken nothing of the job that runs, which is not to blame if it is stopped now.
    has_not_begun: Cell<bool>,
}

/// SIGCHLD and SIGTERM.
#[derive(Debug)]
struct Signals {
    came: UnixStream,
    is_asked_to_end: Arc<AtomicBool>,
}

impl Signals {
    fn catch() -> io::Result<Signals> {
        let is_asked_to_end = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGTERM, Arc::clone(&is_asked_to_end))?;
        let (came, noted) = UnixStream::pair()?;
        came.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGTERM, noted.try_clone()?)?;
        signal_hook::low_level::pipe::register(SIGCHLD, noted)?;
        Ok(Signals { came, is_asked_to_end })
    }

    fn forget(&self) {
        while matches!((&self.came).read(&mut [0; 64]), Ok(count) if count > 0) {}
    }
}

impl Foreign {
    /// Starts a program; its standard output and standard error are those of this process. `supervisor` is the socket of the session.
    ///
    /// # Errors
    /// It could not be started.
    pub(crate) fn start(
        words: &[OsString],
        supervisor: &UnixStream,
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
        let signals = Signals::catch()?;
        prctl::set_child_subreaper(true)?;
        prctl::set_pdeathsig(SignalName::SIGTERM)?;
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(ErrorKind::InvalidData)?;
        Ok(Foreign {
            process: pidfd_open(pid, PidfdFlags::empty())?,
            child,
            pid,
            signals,
            supervisor: supervisor.try_clone()?,
            can_tell: Cell::new(false),
            is_stopped: Cell::new(false),
            is_told_to_be_stopped: Cell::new(false),
            has_not_begun: Cell::new(false),
        })
    }

    /// Is readable once the program has ended.
    pub(crate) fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// Is readable when [`Foreign::heed_signals`] has something to do.
    pub(crate) fn signals(&self) -> BorrowedFd<'_> {
        self.signals.came.as_fd()
    }

    /// Both of them, for the session.
    pub(crate) fn watched(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(vec![self.process.try_clone()?, self.signals.came.try_clone()?.into()])
    }

    /// Whether the supervisor understands what becomes of programs.
    pub(crate) fn may_tell(&self, can_tell: bool) {
        self.can_tell.set(can_tell);
        self.tell_whether_it_is_stopped();
    }

    /// Does what signals have asked for since the last call.
    pub(crate) fn heed_signals(&self) {
        self.signals.forget();
        if self.signals.is_asked_to_end.load(Ordering::SeqCst) {
            strays::end_all();
            repeat_signal(SIGTERM);
        }
        self.collect_others();
        let changes = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
        if let Ok(Some(status)) = waitid(WaitId::PidFd(self.process.as_fd()), changes) {
            self.is_stopped.set(status.stopping_signal().is_some());
        }
        self.tell_whether_it_is_stopped();
    }

    /// What has left the program became a child of this process. The end of the program itself is left to others.
    fn collect_others(&self) {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        for child in strays::children_of("self").into_iter().filter(|child| *child != self.pid) {
            let _ = waitid(WaitId::Pid(child), ended);
        }
    }

    fn tell_whether_it_is_stopped(&self) {
        let is_stopped = self.is_stopped.get() && !self.has_not_begun.get();
        if self.can_tell.get() && self.is_told_to_be_stopped.replace(is_stopped) != is_stopped {
            self.tell(if is_stopped { ProgramNews::Stopped } else { ProgramNews::Continued });
        }
    }

    /// Whether it has taken nothing of the job that runs. Until it has, the supervisor is not told that it is stopped: that would count
    /// against the job.
    #[cfg(feature = "jsonl")]
    pub(crate) fn note_not_begun(&self, has_not_begun: bool) {
        if self.has_not_begun.replace(has_not_begun) && !has_not_begun {
            self.tell_whether_it_is_stopped();
        }
    }

    /// It was stopped, as far as signals have been heeded.
    #[cfg(feature = "jsonl")]
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.get()
    }

    /// It has taken nothing of this job, whose start the supervisor was told, and will not.
    pub(crate) fn tell_not_begun(&self, (job, attempt): (u64, u32)) {
        self.tell(ProgramNews::NotBegun { job, attempt });
    }

    /// It broke its rules while a job ran, and, if this is about another job, not by what it did for that one.
    pub(crate) fn tell_broken(&self, how: &str, of_another: bool) {
        let how = format!("its program broke its promises: {how}");
        self.tell(ProgramNews::BrokeRules { of_another, how: cut(&how, MESSAGE_MAX).into() });
    }

    /// While the session waits for the program it has sent its own messages as a whole. If this one cannot be sent, the supervisor
    /// is gone.
    fn tell(&self, news: ProgramNews<'_>) {
        let mut outbox = Outbox::new();
        if self.can_tell.get() && outbox.push(&FromWorker::Program { news }, &Bytes::new()).is_ok() {
            let _ = (&self.supervisor).write_all(outbox.front());
        }
    }

    /// Waits for its end, at most so long.
    pub(crate) fn ends_within(&self, longest: Duration) -> bool {
        let until = Instant::now() + longest;
        loop {
            let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
            let mut polled = [PollFd::new(&self.process, PollFlags::IN)];
            match poll(&mut polled, left.as_ref()) {
                Ok(count) => return count > 0,
                Err(rustix::io::Errno::INTR) => self.heed_signals(),
                Err(_) => return false,
            }
        }
    }

    /// Whether it has ended, or is about to, and not with exit code 0. If it goes on, this is known at once; if not, it is waited for so
    /// long, and what has not ended by then counts as failed.
    ///
    /// The kernel marks all threads of a process before it closes what they have open. So this sees each end by a signal or by exit(2)
    /// that has closed a connection. It does not see that a program will fail that closed the connection itself, nor the end of another
    /// process that had the connection, as behind a shell that waits for it.
    #[cfg(feature = "http-app")]
    pub(crate) fn fails_within(&self, longest: Duration) -> bool {
        let is_ending = self.is_marked_as_ending() || self.ends_within(Duration::ZERO);
        let succeeds = || self.ends_within(longest) && self.has_succeeded();
        is_ending && !succeeds()
    }

    /// As [`Foreign::fails_within`] says. False if the system does not tell. A thread alone may end and the others go on, the first one
    /// as well.
    #[cfg(feature = "http-app")]
    fn is_marked_as_ending(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid.as_raw_nonzero()));
        let stats = threads.into_iter().flatten().flatten();
        let mut marks = stats
            .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
            .map(|stat| is_marked_as_ending(&stat))
            .peekable();
        marks.peek().is_some() && marks.all(|is_marked| is_marked)
    }

    /// Whether it has ended with exit code 0. It stays to be collected.
    pub(crate) fn has_succeeded(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::PidFd(self.process.as_fd()), look);
        matches!(status, Ok(Some(status)) if status.exit_status() == Some(0))
    }

    /// There is nothing left to do for it, and it was told so by the end of its input. If it does not end by itself, the exit code of
    /// this process says so to whoever asks for it. A supervisor does not, of a worker that it has told to end.
    #[cfg(feature = "jsonl")]
    pub(crate) fn finish(&mut self) {
        match self.ends_within(FOREIGN_GRACE) {
            true => self.repeat_failure(),
            false => {
                complain(format_args!(
                    "the program goes on although there are no more jobs (descriptor 3 has ended), and is killed"
                ));
                self.kill();
                std::process::exit(EXIT_BROKEN_PROMISE);
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
        match self.status() {
            Ok(status) if status.success() => drop(strays::end_all()),
            Ok(status) => repeat(status),
            Err(error) => complain(format_args!("cannot see how the program ended: {error}")),
        }
    }

    /// How the program has ended, which is about to happen if it has not.
    fn status(&self) -> io::Result<ExitStatus> {
        while !self.ends_within(FOREIGN_GRACE) {
            // A process that it has started and that traces it can keep it from ending.
            strays::end_others(self.pid);
        }
        strays::collect(self.pid)
    }

    /// Ends this process as the program has ended, which is about to happen if it has not.
    pub(crate) fn end_as_it_did(&mut self) -> ! {
        match self.status() {
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
        complain(format_args!("{BROKEN_PROMISE}{why}"));
        std::process::exit(EXIT_BROKEN_PROMISE);
    }

    fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        strays::end_all();
    }
}

/// Whether a thread is ending or has ended: the field `flags` of proc_pid_stat(5). Only the name before it may have spaces.
#[cfg(feature = "http-app")]
fn is_marked_as_ending(stat: &str) -> bool {
    let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
    let flags = fields.split_whitespace().nth(6).and_then(|flags| flags.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_EXITING != 0)
}

fn repeat(status: ExitStatus) -> ! {
    strays::end_all();
    match status.signal() {
        Some(signal) => repeat_signal(signal),
        None => std::process::exit(status.code().unwrap_or(EXIT_BROKEN_PROMISE)),
    }
}

fn repeat_signal(signal: i32) -> ! {
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    // For real-time signals, of which nobody knows what they stand for.
    std::process::exit(EXIT_BY_SIGNAL + signal)
}
