//! One child process, from its start to its burial.
//!
//! ```text
//!             spawn                        the kernel: pidfd readable
//!   Program ---------> living, group leader -------------------------> zombie
//!      `-> SpawnError     |                                              |  try_reap: kill what is left of
//!                         |  signal(TERM), later signal(KILL)            |  its group, collect its exit with
//!                         v                                              v  the CPU time that it used
//!                      (as above, sooner)                              ended: the number may be anybody's now,
//!                                                                      nothing is sent to it any more
//! ```
//!
//! The end of a worker is told by its pidfd. The end of its socket tells less: a grandchild that inherited it can
//! keep it open for ever, and a worker that closes it may live on.

use super::capture::{Capture, Captured, Stream};
use super::confinement::Confinement;
use super::executable::{is_pointless, why_not_executed};
use super::link::{Flushed, Link, LinkError, Received};
use super::program::Program;
use super::usage::{self, ProcessUsage};
use super::wait::wait_for;
use crate::sys::{self, CpuTime};
use bytes::Bytes;
use offload_core::exit::Exit;
use offload_protocol::codec::EncodeError;
use offload_protocol::limits::PAYLOAD_MAX_VARIABLE;
use offload_protocol::messages::{FromWorker, ToWorker};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, getpgid, kill_process_group, pidfd_open,
    pidfd_send_signal, waitid,
};
use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The kernel counts pages for each core apart and adds them up now and then: two of its sums that should be the same
/// can differ by so much, in bytes.
const NOISE_OF_RSS: u64 = 4 << 20;

/// How long dropping a process waits for it to be gone after SIGKILL.
const BURIAL_MAX: Duration = Duration::from_secs(1);

/// Why no process was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnError {
    /// Whether trying again is pointless until somebody changes something: there is no such program, or it may not
    /// be executed. Otherwise (out of processes, memory or descriptors; the file is being written) it may pass.
    pub fatal: bool,
    /// Why, for people, in one line.
    pub message: String,
}

impl fmt::Display for SpawnError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for SpawnError {}

impl SpawnError {
    fn new(program: &Program, error: &io::Error) -> SpawnError {
        SpawnError::because(program, error, &error.to_string())
    }

    fn because(program: &Program, error: &io::Error, why: &str) -> SpawnError {
        let message = format!("cannot start `{}`: {why}", program.name());
        SpawnError { fatal: is_pointless(error), message }
    }
}

/// One worker process. Dropping it kills it with its group and waits for its end, for at most one second; a hub that
/// must not wait drops it only after [`Process::try_reap`] has told the exit, and many at once by [`Process::bury_all`].
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    pidfd: Arc<OwnedFd>,
    link: Link,
    capture: Capture,
    life: Life,
    /// The most resident memory that is known, in bytes.
    peak_rss: Cell<Option<u64>>,
    /// The most that this process had had when it started that one. The kernel counts it as that one's.
    own_peak_rss: u64,
    /// How long dropping it waits for its end.
    burial_max: Duration,
}

/// What has happened to a process since it was last asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopState {
    /// This signal stopped it, and it runs no more until SIGCONT.
    Stopped(i32),
    /// It was stopped, and runs again.
    Continued,
}

#[derive(Debug)]
enum Life {
    /// Living or a zombie: the number is this process's own, and the pidfd tells when it ends.
    Unreaped,
    Reaped {
        exit: Exit,
        cpu_time: Option<CpuTime>,
    },
}

impl Process {
    /// Starts `program` with one end of a socket pair as descriptor 0, pipes as 1 and 2, as the leader of a process
    /// group of its own. Payloads of more than `payload_max` bytes are not taken from it.
    ///
    /// Nothing else that is opened here reaches it. What this process was itself given without close-on-exec does;
    /// to close that is up to `main`, the shim or the worker.
    ///
    /// The calling thread waits until the program is loaded. It has to live as long as the worker may: the
    /// parent-death signal that workers ask for is bound to the thread that started them. [`super::Launcher`] is such
    /// a thread.
    ///
    /// # Errors
    /// [`SpawnError`], which says whether trying again can help.
    pub fn spawn(program: &Program, payload_max: usize) -> Result<Process, SpawnError> {
        let (mut command, link) =
            Process::prepare(program, payload_max).map_err(|error| SpawnError::new(program, &error))?;
        let mut child = command.spawn().map_err(|error| {
            let why = why_not_executed(Path::new(command.get_program()), &error);
            SpawnError::because(program, &error, &why)
        })?;
        Process::adopt(&mut child, link).map_err(|error| {
            abandon(&mut child);
            SpawnError::new(program, &error)
        })
    }

    fn prepare(program: &Program, payload_max: usize) -> io::Result<(Command, Link)> {
        let mut command = program.to_command()?;
        command.env(PAYLOAD_MAX_VARIABLE, payload_max.to_string());
        let (ours, theirs) = UnixStream::pair()?;
        let link = Link::new(ours, payload_max)?;
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        Ok((command, link))
    }

    fn adopt(child: &mut Child, link: Link) -> io::Result<Process> {
        let pid = Pid::from_child(child);
        let pidfd = Arc::new(pidfd_open(pid, PidfdFlags::empty())?);
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(io::Error::other("the child has no pipes"));
        };
        let capture = Capture::new(stdout.into(), stderr.into())?;
        Ok(Process {
            pid,
            pidfd,
            link,
            capture,
            life: Life::Unreaped,
            peak_rss: Cell::new(None),
            own_peak_rss: usage::own_peak_rss(),
            burial_max: BURIAL_MAX,
        })
    }

    /// Kills all of them and waits until they are gone, for at most one second in all: some may hang in the kernel.
    pub fn bury_all(processes: Vec<Process>) {
        for process in &processes {
            let _ = process.signal(Signal::KILL);
        }
        let deadline = Instant::now() + BURIAL_MAX;
        for mut process in processes {
            process.burial_max = deadline.saturating_duration_since(Instant::now());
            drop(process);
        }
    }

    /// Its process id, which is also that of its group.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// Our end of the socket: readable for [`Process::receive`], writable for [`Process::flush`].
    pub fn socket(&self) -> Arc<UnixStream> {
        self.link.socket()
    }

    /// Readable once the process has ended: call [`Process::try_reap`].
    pub fn pidfd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.pidfd)
    }

    /// Readable for [`Process::capture`] of [`Stream::Stdout`].
    pub fn stdout(&self) -> Arc<OwnedFd> {
        self.capture.source(Stream::Stdout)
    }

    /// Readable for [`Process::capture`] of [`Stream::Stderr`].
    pub fn stderr(&self) -> Arc<OwnedFd> {
        self.capture.source(Stream::Stderr)
    }

    /// Appends a message to what [`Process::flush`] will write.
    ///
    /// # Errors
    /// [`EncodeError`] if the message is longer than the wire allows; nothing was appended.
    pub fn send(&mut self, message: &ToWorker<'_>, payload: &Bytes) -> Result<(), EncodeError> {
        self.link.send(message, payload)
    }

    /// Writes what was sent, until all is written, the socket is full or [`super::FLUSH_MAX`] bytes are gone.
    ///
    /// # Errors
    /// What the socket reports, but not that the worker has closed it, which is [`Flushed::Closed`].
    pub fn flush(&mut self) -> io::Result<Flushed> {
        self.link.flush()
    }

    /// Throws away what was sent and is not written; nothing can be sent after it.
    pub fn discard_unsent(&mut self) {
        self.link.discard_unsent();
    }

    /// Bytes written to it in all.
    pub fn written(&self) -> u64 {
        self.link.written()
    }

    /// Bytes sent but not written yet.
    pub fn unsent(&self) -> usize {
        self.link.unsent()
    }

    /// Reads once, at most [`offload_protocol::limits::READ_CHUNK`] bytes, and hands over every message that is
    /// complete, with its payload. Whether a message is in order is not looked at.
    ///
    /// # Errors
    /// [`LinkError`] if the bytes are no messages, or the socket fails; do not read on.
    pub fn receive(&mut self, sink: &mut dyn FnMut(FromWorker<'_>, Bytes)) -> Result<Received, LinkError> {
        self.link.receive(sink)
    }

    /// Whether a message has begun and is not complete: a worker that stops now is stuck or gone.
    pub fn is_mid_frame(&self) -> bool {
        self.link.is_mid_frame()
    }

    /// Ends the socket for the worker and for everybody who inherited it; what was unsent is dropped.
    pub fn close_link(&mut self) {
        self.link.close();
    }

    /// Reads once from one of its output streams, at most [`super::CAPTURE_CHUNK`] bytes.
    pub fn capture(&mut self, stream: Stream, now: Instant) -> Captured {
        self.capture.read(stream, now)
    }

    /// Reads what is left in one of its output streams once the process has ended, at most 80 KiB; what it had begun
    /// to print counts as a line.
    pub fn capture_rest(&mut self, stream: Stream, now: Instant) -> Captured {
        self.capture.read_rest(stream, now)
    }

    /// The last lines that it printed on either stream, escaped, the oldest first: at most
    /// [`super::TAIL_LINES`], and those that it had only begun.
    pub fn last_lines(&self) -> Vec<String> {
        self.capture.last_lines()
    }

    /// Sends `signal` to the process and its group. To a process that has ended nothing is sent, and that is fine.
    ///
    /// # Errors
    /// If the kernel does not allow it: everybody in the group has taken on another user id.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        if matches!(self.life, Life::Reaped { .. }) {
            return Ok(());
        }
        if signal == Signal::KILL {
            // The last time that its memory can be seen.
            self.look_at_memory();
        }
        let to_group = kill_process_group(self.pid, signal);
        // A process that moved to another group is still ours. Others do not get the signal twice, because to many
        // programs a second SIGTERM means to drop everything; a second SIGKILL means nothing.
        let has_moved = getpgid(Some(self.pid)) != Ok(self.pid);
        let to_process =
            if has_moved || signal == Signal::KILL { pidfd_send_signal(&self.pidfd, signal) } else { Ok(()) };
        none_such_is_fine(to_process).and(none_such_is_fine(to_group))
    }

    /// If the process has ended: collects it, kills what is left of its group, and tells how it ended. Afterwards
    /// always the same.
    ///
    /// # Errors
    /// What `waitid` or `wait4` report, which does not happen in practice.
    pub fn try_reap(&mut self) -> io::Result<Option<Exit>> {
        if let Life::Reaped { exit, .. } = self.life {
            return Ok(Some(exit));
        }
        match self.wait(WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT) {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(None),
            // Somebody in this process waits for any child, or ignores SIGCHLD. The number may be reused: hands off.
            Err(Errno::CHILD) => return Ok(Some(self.bury(Exit::Unknown, None))),
            Err(error) => return Err(error.into()),
        }
        // As long as the zombie is there, nobody else can have its number: kill before it is collected.
        let _ = kill_process_group(self.pid, Signal::KILL);
        Ok(Some(match sys::collect(self.pid)? {
            Some(collected) => {
                self.saw_memory(
                    Some(collected.peak_rss)
                        .filter(|peak| *peak > self.own_peak_rss.saturating_add(NOISE_OF_RSS)),
                );
                self.bury(exit_of(collected.status), Some(collected.cpu_time))
            }
            None => self.bury(Exit::Unknown, None),
        }))
    }

    /// Whether it was stopped or continued since this was last asked for: only the latest change is told, and told
    /// once. To be asked of every process at a SIGCHLD, whose handler must not have SA_NOCLDSTOP. Does not wait.
    pub fn stop_state(&self) -> Option<StopState> {
        if matches!(self.life, Life::Reaped { .. }) {
            return None;
        }
        // An ended process is no news here, and is left for try_reap.
        let changes = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
        let status = self.wait(changes).ok().flatten()?;
        match status.stopping_signal() {
            Some(signal) => Some(StopState::Stopped(signal)),
            None => status.continued().then_some(StopState::Continued),
        }
    }

    /// User and system time that it has used, with the children that it has waited for: of a living process in steps
    /// of usually 10 ms, of a reaped one exactly.
    pub fn cpu_time(&self) -> Option<Duration> {
        self.cpu().map(CpuTime::total)
    }

    /// What it has used so far, or in all once it is reaped. If it had less memory than this process, the peak of that
    /// is known only as far as somebody has looked: this does, [`Process::resident_bytes`] does, and
    /// [`Process::signal`] does before it kills.
    pub fn usage(&self) -> Option<ProcessUsage> {
        self.look_at_memory();
        let cpu = self.cpu()?;
        Some(ProcessUsage { cpu_user: cpu.user, cpu_system: cpu.system, peak_rss: self.peak_rss.get() })
    }

    /// Resident memory in bytes; none of a reaped process.
    pub fn resident_bytes(&self) -> Option<u64> {
        match self.life {
            Life::Unreaped => {
                let usage = usage::read(self.pid())?;
                self.saw_memory(Some(usage.resident_bytes).filter(|bytes| *bytes > 0));
                Some(usage.resident_bytes)
            }
            Life::Reaped { .. } => None,
        }
    }

    /// How many descriptors it has open; none of a reaped process, or before Linux 6.2 of one that hides them.
    pub fn open_descriptors(&self) -> Option<u64> {
        match self.life {
            Life::Unreaped => usage::open_descriptors(self.pid()),
            Life::Reaped { .. } => None,
        }
    }

    /// How it is confined; none of a reaped process. What it was given up to now counts: before its Hello that may
    /// be nothing yet.
    pub fn confinement(&self) -> Option<Confinement> {
        match self.life {
            Life::Unreaped => Confinement::read(self.pid()),
            Life::Reaped { .. } => None,
        }
    }

    fn cpu(&self) -> Option<CpuTime> {
        match self.life {
            Life::Unreaped => usage::read(self.pid()).map(|usage| usage.cpu_time),
            Life::Reaped { cpu_time, .. } => cpu_time,
        }
    }

    fn look_at_memory(&self) {
        if matches!(self.life, Life::Unreaped) {
            self.saw_memory(usage::peak_rss(self.pid()));
        }
    }

    fn saw_memory(&self, bytes: Option<u64>) {
        self.peak_rss.set(self.peak_rss.get().max(bytes));
    }

    fn wait(&self, options: WaitIdOptions) -> rustix::io::Result<Option<WaitIdStatus>> {
        waitid(WaitId::PidFd(self.pidfd.as_fd()), options)
    }

    fn bury(&mut self, exit: Exit, cpu_time: Option<CpuTime>) -> Exit {
        self.life = Life::Reaped { exit, cpu_time };
        exit
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.life, Life::Unreaped) {
            let _ = self.signal(Signal::KILL);
            wait_for(&self.pidfd, PollFlags::IN, self.burial_max);
            let _ = self.try_reap();
        }
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Unknown,
    }
}

fn none_such_is_fine(sent: rustix::io::Result<()>) -> io::Result<()> {
    match sent {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Kills a child that could not be taken over, for want of descriptors, and collects it if that is quick.
fn abandon(child: &mut Child) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let deadline = Instant::now() + BURIAL_MAX;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests;
