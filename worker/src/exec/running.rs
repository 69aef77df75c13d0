//! A program that runs: its pipes, its end, and whoever wants it to end.
//!
//! ```text
//!            cancelled, a limit, SIGTERM                  the grace is over
//!   alive ─────────────────────────────────────► asked ─────────────────────► killed
//!     │ it has ended                               │                             │
//!     ▼                                            │                             │
//!   ended: what it left behind may write on        │                             │
//!     │ all pipes are closed, or a moment later    │                             │
//!     ▼                                            ▼                             ▼
//!   what it left behind is killed; what is in the pipes is read; the answer
//! ```

use super::lines::Said;
use super::memory::Memory;
use super::program::ExecTask;
use crate::TaskContext;
use crate::limits::{EXEC_GRACE, EXEC_LEFT_OPEN, EXEC_LOG_TIME, EXEC_READ_MAX};
use crate::strays;
use crate::task::TaskError;
use bytes::{Buf, Bytes};
use nix::sys::signal::Signal as SignalName;
use offload_protocol::nouns::FailureKind;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use signal_hook::consts::SIGTERM;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// SIGTERM, which comes from the supervisor, or from the kernel when the supervisor is gone. Without a program it ends this
/// process at once; with one, the program goes first.
#[derive(Debug)]
pub(super) struct Requests {
    has_no_program: Arc<AtomicBool>,
    came: UnixStream,
}

impl Requests {
    pub(super) fn catch() -> io::Result<Requests> {
        let has_no_program = Arc::new(AtomicBool::new(true));
        signal_hook::flag::register_conditional_default(SIGTERM, Arc::clone(&has_no_program))?;
        let (came, noted) = UnixStream::pair()?;
        came.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGTERM, noted)?;
        Ok(Requests { has_no_program, came })
    }

    /// A program is about to be started.
    pub(super) fn begin(&self) {
        self.has_no_program.store(false, Ordering::SeqCst);
    }

    /// No program is left. If this process was asked to end meanwhile, it ends now.
    pub(super) fn end(&mut self) {
        self.has_no_program.store(true, Ordering::SeqCst);
        if matches!(self.came.read(&mut [0]), Ok(1)) {
            let _ = signal_hook::low_level::emulate_default_handler(SIGTERM);
        }
    }
}

/// How a job ended.
pub(super) struct End {
    /// What the program printed.
    pub(super) output: Vec<u8>,
    /// Why the job failed, if it did.
    pub(super) failure: Option<TaskError>,
}

/// Why a program was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Cancelled,
    TooMuchOutput,
    TooLong,
    TooMuchMemory,
    Asked,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Alive {
        kill_at: Option<Instant>,
    },
    /// The process has ended. Its pipes are read until they are closed or this moment.
    Ended {
        status: ExitStatus,
        until: Instant,
    },
}

/// What there is to wait for.
#[derive(Clone, Copy, Debug)]
enum Source {
    End,
    Input,
    Output,
    Errors,
    Log,
    Supervisor,
    Request,
}

/// See the module's documentation.
pub(super) struct Running<'a> {
    task: &'a ExecTask,
    pid: Pid,
    process: OwnedFd,
    stdin: Option<ChildStdin>,
    input: Bytes,
    stdout: Option<ChildStdout>,
    output: Vec<u8>,
    output_max: usize,
    stderr: Option<ChildStderr>,
    said: Said,
    phase: Phase,
    /// When its task's own time is over.
    over_at: Option<Instant>,
    /// If that is limited.
    memory: Option<Memory>,
    why: Option<Why>,
}

impl<'a> Running<'a> {
    /// A process that was just started.
    pub(super) fn new(
        task: &'a ExecTask,
        mut child: Child,
        input: Bytes,
        output_max: usize,
    ) -> io::Result<Running<'a>> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(ErrorKind::InvalidData)?;
        // Its process id is not reused before it is collected.
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        stdin.iter().try_for_each(does_not_wait)?;
        stdout.iter().try_for_each(does_not_wait)?;
        stderr.iter().try_for_each(does_not_wait)?;
        let now = Instant::now();
        Ok(Running {
            task,
            pid,
            process,
            stdin,
            input,
            stdout,
            output: Vec::new(),
            output_max,
            stderr,
            said: Said::default(),
            phase: Phase::Alive { kill_at: None },
            over_at: task.timeout.and_then(|longest| now.checked_add(longest)),
            memory: task.memory.map(|most| Memory::at_most(most, now)),
            why: None,
        })
    }

    /// Waits for its end, and ends what it has left behind.
    pub(super) fn finish(mut self, context: &mut TaskContext<'_>, requests: &Requests) -> io::Result<End> {
        let status = loop {
            if let Phase::Ended { status, until } = self.phase
                && (self.is_silent() || until <= Instant::now())
            {
                break status;
            }
            for source in self.wait(context, requests)? {
                self.on_ready(source, context)?;
            }
            self.on_time();
        };
        if !strays::end_all() {
            self.said.add(b"offload worker: processes of this job could not be ended\n");
        }
        self.read_output();
        self.read_errors();
        self.said.finish(EXEC_LOG_TIME);
        let failure = self.failure(status);
        Ok(End { output: self.output, failure })
    }

    /// Nobody has its output open any more.
    fn is_silent(&self) -> bool {
        self.stdout.is_none() && self.stderr.is_none()
    }

    fn wait(&self, context: &TaskContext<'_>, requests: &Requests) -> io::Result<Vec<Source>> {
        let (mut sources, mut polled) = (Vec::with_capacity(7), Vec::with_capacity(7));
        let mut watch = |source, descriptor, flags| {
            sources.push(source);
            polled.push(PollFd::from_borrowed_fd(descriptor, flags));
        };
        if matches!(self.phase, Phase::Alive { .. }) {
            watch(Source::End, self.process.as_fd(), PollFlags::IN);
        }
        self.stdin.iter().for_each(|stdin| watch(Source::Input, stdin.as_fd(), PollFlags::OUT));
        self.stdout.iter().for_each(|stdout| watch(Source::Output, stdout.as_fd(), PollFlags::IN));
        if self.said.has_room() {
            self.stderr.iter().for_each(|stderr| watch(Source::Errors, stderr.as_fd(), PollFlags::IN));
        }
        if self.said.is_waiting() {
            watch(Source::Log, rustix::stdio::stderr(), PollFlags::OUT);
        }
        if self.why.is_none() {
            context.news().into_iter().for_each(|socket| watch(Source::Supervisor, socket, PollFlags::IN));
            watch(Source::Request, requests.came.as_fd(), PollFlags::IN);
        }
        let left = self.next_time().map(|when| when.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| left.try_into().ok());
        match poll(&mut polled, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = polled.iter().zip(sources).filter(|(polled, _)| !polled.revents().is_empty());
        Ok(ready.map(|(_, source)| source).collect())
    }

    fn next_time(&self) -> Option<Instant> {
        match self.phase {
            Phase::Alive { kill_at } if self.why.is_some() => kill_at,
            Phase::Alive { .. } => {
                self.over_at.into_iter().chain(self.memory.as_ref().map(Memory::next_look)).min()
            }
            Phase::Ended { until, .. } => Some(until),
        }
    }

    fn on_ready(&mut self, source: Source, context: &mut TaskContext<'_>) -> io::Result<()> {
        match source {
            Source::End => self.collect()?,
            Source::Input => self.write_input(),
            Source::Output => self.read_output(),
            Source::Errors => self.read_errors(),
            Source::Log => self.said.write(),
            Source::Supervisor if context.is_cancelled() => self.ask_to_end(Why::Cancelled),
            Source::Supervisor => {}
            Source::Request => self.ask_to_end(Why::Asked),
        }
        Ok(())
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        let is_due = |when: Option<Instant>| when.is_some_and(|when| when <= now);
        let is_alive = matches!(self.phase, Phase::Alive { .. });
        if is_due(self.over_at) && is_alive {
            self.ask_to_end(Why::TooLong);
        }
        if is_alive
            && self.why.is_none()
            && let Some(memory) = self.memory.as_mut().filter(|memory| memory.next_look() <= now)
            && memory.is_exceeded()
        {
            self.ask_to_end(Why::TooMuchMemory);
            // There may be no memory left for a farewell.
            self.signal(Signal::KILL);
        }
        if let Phase::Alive { kill_at: Some(kill_at) } = self.phase
            && kill_at <= now
        {
            self.signal(Signal::KILL);
            // What it has started may trace it, and so keep it from ending.
            strays::end_others(self.pid);
            self.phase = Phase::Alive { kill_at: None };
        }
    }

    /// Asks it to end; after [`EXEC_GRACE`] it is killed.
    fn ask_to_end(&mut self, why: Why) {
        if self.why.is_some() {
            return;
        }
        self.why = Some(why);
        match &mut self.phase {
            Phase::Alive { kill_at } => {
                *kill_at = Some(Instant::now() + EXEC_GRACE);
                self.signal(Signal::TERM);
            }
            Phase::Ended { until, .. } => *until = Instant::now(),
        }
    }

    /// The process is not collected, so its id and that of its group are its own. It may have left its group.
    fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.pid, signal);
        let _ = pidfd_send_signal(&self.process, signal);
    }

    fn collect(&mut self) -> io::Result<()> {
        let status = strays::collect(self.pid)?;
        let patience = if self.why.is_none() { EXEC_LEFT_OPEN } else { Duration::ZERO };
        self.phase = Phase::Ended { status, until: Instant::now() + patience };
        self.stdin = None;
        Ok(())
    }

    /// A program need not read its input.
    fn write_input(&mut self) {
        let Some(stdin) = &mut self.stdin else { return };
        match stdin.write(&self.input) {
            Ok(count) => self.input.advance(count),
            Err(error) if may_go_on(&error) => return,
            Err(_) => self.input.clear(),
        }
        if self.input.is_empty() {
            self.stdin = None;
        }
    }

    fn read_output(&mut self) {
        if read_some(&mut self.stdout, &mut self.output, EXEC_READ_MAX) && self.output.len() > self.output_max
        {
            self.stdout = None;
            self.ask_to_end(Why::TooMuchOutput);
        }
    }

    fn read_errors(&mut self) {
        let mut bytes = Vec::new();
        read_some(&mut self.stderr, &mut bytes, EXEC_READ_MAX);
        self.said.add(&bytes);
        self.said.write();
    }

    fn failure(&self, status: ExitStatus) -> Option<TaskError> {
        let last_lines = match self.said.last_lines() {
            lines if lines.is_empty() => lines,
            lines => format!(": {lines}"),
        };
        let told = |kind, what: fmt::Arguments<'_>| {
            Some(TaskError::of_kind(kind, format_args!("{what}{last_lines}")))
        };
        match (self.why, status.code(), status.signal()) {
            (Some(Why::Cancelled | Why::Asked), ..) => told(FailureKind::AppError, format_args!("cancelled")),
            (Some(Why::TooLong), ..) => {
                let longest = self.task.timeout.unwrap_or_default().as_millis();
                told(
                    FailureKind::TimedOut,
                    format_args!("ran longer than {longest} ms, the limit of its task"),
                )
            }
            (Some(Why::TooMuchMemory), ..) => {
                let most = self.task.memory.unwrap_or_default();
                told(
                    FailureKind::OutOfMemory,
                    format_args!("it used more than {most} bytes of memory, the limit of its task"),
                )
            }
            (Some(Why::TooMuchOutput), ..) => told(
                FailureKind::AppError,
                format_args!(
                    "it printed more than {} bytes, the most that an output may have",
                    self.output_max
                ),
            ),
            (None, Some(code), _) if self.task.is_success(code) => None,
            (None, Some(code), _) => told(FailureKind::Exited { code }, format_args!("exit code {code}")),
            (None, None, Some(signal)) => {
                told(FailureKind::Signalled { signal }, format_args!("signal {signal} ({})", name_of(signal)))
            }
            (None, None, None) => told(FailureKind::AppError, format_args!("it ended in an unknown way")),
        }
    }
}

fn name_of(signal: i32) -> &'static str {
    SignalName::try_from(signal).map_or("unknown", SignalName::as_str)
}

fn does_not_wait(descriptor: &impl AsFd) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(descriptor, true)?)
}

fn may_go_on(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Reads what is in a pipe, at most `most` bytes, and closes it at its end. True if something came.
fn read_some(pipe: &mut Option<impl Read>, bytes: &mut Vec<u8>, most: u64) -> bool {
    let Some(source) = pipe else { return false };
    let before = bytes.len();
    match source.take(most).read_to_end(bytes) {
        Ok(count) if count as u64 == most => {}
        Err(error) if may_go_on(&error) => {}
        Ok(_) | Err(_) => *pipe = None,
    }
    bytes.len() > before
}
