//! One child process, from its start until it is reaped.
//!
//! ```text
//!             spawn                        the kernel: pidfd readable
//!   Program ---------> living, group leader -------------------------> zombie
//!      `-> SpawnError     |                                              |  try_wait: kills what is left of
//!                         |  signal(TERM), later signal(KILL)            |  its group, collects its exit and the
//!                         v                                              v  CPU time that it used
//!                      (as above, sooner)                              reaped: its process id may be reused now,
//!                                                                      so no signal is sent any more
//! ```
//!
//! The pidfd tells that a worker has ended. The end of its socket says less: a descendant that inherited the socket
//! can keep it open forever, and a worker that closes it may live on. `waitid` says less too: of a process that is traced, by
//! one of its descendants for example, it tells only the tracer how it ended.

mod reading;
mod segments;

use super::capture::{Capture, Captured, OutputStream};
use super::children::{Known, Start};
use super::confinement::Confinement;
use super::executable::{is_pointless, why_not_executed};
use super::link::Link;
use super::program::Program;
use super::usage::{self, ProcessUsage};
use super::wait::wait_for;
use crate::limits::KILLED_WORKER_TIMEOUT;
use crate::origin::Origin;
use crate::sys::{self, CpuTime};
use crate::wire::Flushed;
use bytes::Bytes;
use offload_core::exit::Exit;
use offload_protocol::codec::EncodeError;
use offload_protocol::limits::PAYLOAD_MAX_VARIABLE;
use offload_protocol::messages::ToWorker;
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
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The kernel counts pages per CPU core and adds them up now and then. Two of its sums that should be equal can differ
/// by this many bytes.
const RSS_NOISE: u64 = 4 << 20;

/// Why no process was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnError {
    /// Whether trying again is pointless until somebody changes something: the program does not exist, or it may not
    /// be executed. Other failures (out of processes, memory or descriptors; the file is being written) may pass.
    pub fatal: bool,
    /// The reason for a user, in one line.
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

/// One worker process. Dropping it kills the process with its group and waits for its end, for at most one second. A
/// hub, which must not wait, drops it only after [`Process::try_wait`] has returned the exit.
/// [`Process::kill_and_reap_all`] drops many at once. A forked child of this process neither signals nor waits for it.
#[must_use = "dropping it kills the process"]
#[derive(Debug)]
pub struct Process {
    origin: Origin,
    pid: Pid,
    pidfd: Arc<OwnedFd>,
    link: Link,
    capture: Capture,
    life: Life,
    /// The highest resident memory that has been seen, in bytes.
    peak_rss: Cell<Option<u64>>,
    /// The highest resident memory of the supervisor when it started this process, in bytes. The kernel counts it as
    /// the child's.
    own_peak_rss: u64,
    /// How long dropping this value waits for the end of the process.
    reap_wait_max: Duration,
    /// While this is here, no sweep takes the process.
    known: Option<Known>,
}

#[derive(Debug)]
enum Life {
    /// As far as anybody has looked. The process id is not reused, and the pidfd tells when the process ends.
    Living,
    Ended {
        exit: Exit,
        cpu_time: Option<CpuTime>,
        /// Somebody has to wait for it.
        is_zombie: bool,
    },
}

impl Process {
    /// Starts `program` as the leader of a new process group, with one end of a socket pair as descriptor 0 and pipes
    /// as 1 and 2. Payloads from it may have at most `payload_max` bytes.
    ///
    /// It inherits no other descriptor that is opened here. It does inherit descriptors that this process itself was
    /// given without close-on-exec; closing those is up to `main`, `worker-exec` or the worker.
    ///
    /// The calling thread waits until the program is loaded. The thread must live as long as the worker may, because
    /// the parent-death signal that workers ask for is bound to the thread that started them. [`super::Launcher`] has
    /// such threads.
    ///
    /// # Errors
    /// [`SpawnError`], which says whether trying again can help.
    pub fn spawn(program: &Program, payload_max: usize) -> Result<Process, SpawnError> {
        let (mut command, link) =
            Process::prepare(program, payload_max).map_err(|error| SpawnError::new(program, &error))?;
        let start = Start::begin();
        let mut child = command.spawn().map_err(|error| {
            let why = why_not_executed(Path::new(command.get_program()), &error);
            SpawnError::because(program, &error, &why)
        })?;
        let known = start.became(Pid::from_child(&child));
        let mut process = Process::adopt(&mut child, link).map_err(|error| {
            kill_unadopted(&mut child);
            SpawnError::new(program, &error)
        })?;
        process.known = Some(known);
        Ok(process)
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
        let pidfd = Arc::new(pidfd_open(pid, PidfdFlags::empty()).map_err(lost_or)?);
        // If it has ended, and nobody has to collect it, its number may be that of another process by now.
        look(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED).map_err(lost_or)?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(io::Error::other("the child has no pipes"));
        };
        let capture = Capture::new(stdout.into(), stderr.into())?;
        Ok(Process {
            origin: Origin::here(),
            pid,
            pidfd,
            link,
            capture,
            life: Life::Living,
            peak_rss: Cell::new(None),
            own_peak_rss: usage::own_peak_rss(),
            reap_wait_max: KILLED_WORKER_TIMEOUT,
            known: None,
        })
    }

    /// Kills all these processes and waits until they are gone, for at most one second in all, because some may hang
    /// in the kernel.
    pub fn kill_and_reap_all(processes: Vec<Process>) {
        for process in &processes {
            let _ = process.signal(Signal::KILL);
        }
        let deadline = Instant::now() + KILLED_WORKER_TIMEOUT;
        for mut process in processes {
            process.reap_wait_max = deadline.saturating_duration_since(Instant::now());
            drop(process);
        }
    }

    /// The process id, which is also the id of the process group.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// Our end of the socket. When it is readable, call [`Process::receive`]; when writable, [`Process::flush`].
    pub fn socket(&self) -> Arc<UnixStream> {
        self.link.socket()
    }

    /// Readable once the process has ended. Then call [`Process::try_wait`].
    pub fn pidfd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.pidfd)
    }

    /// When this is readable, call [`Process::capture`] with [`OutputStream::Stdout`].
    pub fn stdout(&self) -> Arc<OwnedFd> {
        self.capture.source(OutputStream::Stdout)
    }

    /// When this is readable, call [`Process::capture`] with [`OutputStream::Stderr`].
    pub fn stderr(&self) -> Arc<OwnedFd> {
        self.capture.source(OutputStream::Stderr)
    }

    /// Appends a message to the outbox, which [`Process::flush`] writes.
    ///
    /// # Errors
    /// [`EncodeError`] if the message is longer than the protocol allows. Nothing was appended.
    pub fn send(&mut self, message: &ToWorker<'_>, payload: &Bytes) -> Result<(), EncodeError> {
        self.link.send(message, payload)
    }

    /// Tells the worker that its last output in a segment was read, if it was not told yet. It has to hear of it before its
    /// next job, however that reaches it.
    pub fn say_read(&mut self) {
        self.link.say_read();
    }

    /// Appends a message, which brings the worker a descriptor.
    ///
    /// # Errors
    /// As for [`Process::send`].
    pub fn send_with(
        &mut self,
        message: &ToWorker<'_>,
        descriptor: Arc<dyn AsFd + Send + Sync>,
    ) -> Result<(), EncodeError> {
        self.link.send_with(message, descriptor)
    }

    /// Writes from the outbox until it is empty, the socket is full or [`FLUSH_MAX`](crate::limits::FLUSH_MAX) bytes are written.
    ///
    /// # Errors
    /// What the socket reports. If the worker has closed it, that is [`Flushed::Closed`] and no error.
    pub fn flush(&mut self) -> io::Result<Flushed> {
        self.link.flush()
    }

    /// Discards what has not been written. Nothing can be sent afterwards.
    pub fn discard_unsent(&mut self) {
        self.link.discard_unsent();
    }

    /// Total number of bytes written to the process.
    pub fn written(&self) -> u64 {
        self.link.written()
    }

    /// Number of bytes in the outbox.
    pub fn unsent(&self) -> usize {
        self.link.unsent()
    }

    /// Closes the socket for the worker and for every process that inherited it. The outbox is dropped.
    pub fn close_link(&mut self) {
        self.link.close();
    }

    /// Reads once from one of the output streams, at most [`CAPTURE_CHUNK`](crate::limits::CAPTURE_CHUNK) bytes.
    pub fn capture(&mut self, stream: OutputStream, now: Instant) -> Captured {
        self.capture.read(stream, now)
    }

    /// Reads the rest of one of the output streams once the process has ended, at most 80 KiB. An unfinished line
    /// counts as a line.
    pub fn capture_rest(&mut self, stream: OutputStream, now: Instant) -> Captured {
        self.capture.read_rest(stream, now)
    }

    /// The first byte that the process printed to its standard output, if it has printed any.
    pub fn first_printed(&self) -> Option<u8> {
        self.capture.first_printed()
    }

    /// The last lines that the process printed on either stream, escaped, the oldest first: at most
    /// [`TAIL_LINES`](crate::limits::TAIL_LINES), and the unfinished lines.
    pub fn last_lines(&self) -> Vec<String> {
        self.capture.last_lines()
    }

    /// Sends `signal` to the process and its group. If the process has ended, nothing is sent, and that is no error.
    ///
    /// # Errors
    /// If the kernel does not allow it, because every process of the group has changed its user id.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        if matches!(self.life, Life::Ended { .. }) || self.is_lost() || !self.origin.is_here() {
            return Ok(());
        }
        if signal == Signal::KILL {
            // After SIGKILL the memory of the process cannot be seen any more.
            self.measure_peak_rss();
        }
        let to_group = kill_process_group(self.pid, signal);
        // A process that moved to another group is still ours, so it gets the signal by its pidfd. Other processes do
        // not get the signal twice: many programs drop everything at a second SIGTERM. A second SIGKILL does no harm.
        let has_moved = getpgid(Some(self.pid)) != Ok(self.pid);
        let to_process =
            if has_moved || signal == Signal::KILL { pidfd_send_signal(&self.pidfd, signal) } else { Ok(()) };
        ignore_no_such_process(to_process).and(ignore_no_such_process(to_group))
    }

    /// If the process has ended, kills what is left of its group, and returns how it ended. Later calls return the same. The
    /// process stays a zombie until this value is dropped: on a busy machine the kernel may take half a second to take it out of
    /// /proc, for which the event loop must not wait.
    ///
    /// # Errors
    /// What `waitid` reports, which does not happen in practice.
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        if let Life::Ended { exit, .. } = self.life {
            return Ok(Some(exit));
        }
        let has_ended = wait_for(&self.pidfd, PollFlags::IN, Duration::ZERO);
        let ended = match sys::look_at_end(self.pidfd.as_fd()) {
            Ok(Some(ended)) => ended,
            // Its end is told to nobody but the process that traces it.
            Ok(None) if has_ended => usage::end_of_traced(self.pid()),
            Ok(None) => return Ok(None),
            // Other code of this process waits for any child, or ignores SIGCHLD. The process id may be reused, so no
            // signal may be sent to it. The pidfd means the group that has had it, and no other.
            Err(error) if error.raw_os_error() == Some(Errno::CHILD.raw_os_error()) => {
                sys::kill_group(self.pidfd.as_fd());
                self.life = Life::Ended { exit: Exit::Unknown, cpu_time: None, is_zombie: false };
                return Ok(Some(Exit::Unknown));
            }
            Err(error) => return Err(error),
        };
        // While the zombie exists its process id cannot be reused.
        let _ = kill_process_group(self.pid, Signal::KILL);
        self.note_rss(
            Some(ended.peak_rss).filter(|peak| *peak > self.own_peak_rss.saturating_add(RSS_NOISE)),
        );
        self.life = Life::Ended { exit: ended.exit, cpu_time: Some(ended.cpu_time), is_zombie: true };
        Ok(Some(ended.exit))
    }

    /// Whether the process is stopped (SIGSTOP), and runs again only after SIGCONT. Does not wait, and leaves the news to others.
    /// Others can take it away: `waitpid(-1, .., WUNTRACED)` of this process does.
    pub fn is_stopped(&self) -> bool {
        let stop = look(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::STOPPED);
        matches!(self.life, Life::Living) && matches!(stop, Ok(Some(_)))
    }

    /// Whether it has ended and was collected by others, or by the kernel because this process ignores SIGCHLD.
    fn is_lost(&self) -> bool {
        matches!(look(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED), Err(Errno::CHILD))
    }

    /// User and system time of the process and of the children that it has waited for. Of a living process it is known
    /// in steps of usually 10 ms, of a reaped one exactly.
    pub fn cpu_time(&self) -> Option<Duration> {
        self.cpu().map(CpuTime::total)
    }

    /// What the process has used: so far, or in total once it is reaped. If the process had less memory than the
    /// supervisor, its peak is known only as far as it was measured, which is done here, by
    /// [`Process::resident_bytes`], and by [`Process::signal`] before it kills.
    pub fn usage(&self) -> Option<ProcessUsage> {
        self.measure_peak_rss();
        let cpu = self.cpu()?;
        Some(ProcessUsage { cpu_user: cpu.user, cpu_system: cpu.system, peak_rss: self.peak_rss.get() })
    }

    /// Resident memory in bytes, without the segments that it was given, and with that of all that it has started: the program
    /// behind an adapter, for example. None if the process is reaped.
    pub fn resident_bytes(&self) -> Option<u64> {
        match self.life {
            Life::Living => {
                let usage = usage::read(self.pid())?;
                let of_others = usage::bytes_of_descendants(self.pid());
                let resident = usage.resident_bytes.saturating_add(of_others);
                self.note_rss(Some(resident).filter(|bytes| *bytes > 0));
                // What it has not accessed is not resident, and cannot make up for other memory.
                let mapped = self.link.mapped();
                let shared = if mapped > 0 { usage::shared_bytes(self.pid()).unwrap_or(0) } else { 0 };
                Some(resident.saturating_sub(mapped.min(shared)))
            }
            Life::Ended { .. } => None,
        }
    }

    /// Number of open descriptors. None if the process is reaped, or if it hides them and Linux is older than 6.2.
    pub fn open_descriptors(&self) -> Option<u64> {
        match self.life {
            Life::Living => usage::open_descriptors(self.pid()),
            Life::Ended { .. } => None,
        }
    }

    /// How the process is confined. None if it is reaped. Before its hello the process may not have confined itself
    /// yet.
    pub fn confinement(&self) -> Option<Confinement> {
        match self.life {
            Life::Living => Confinement::read(self.pid()),
            Life::Ended { .. } => None,
        }
    }

    /// User and system time of the process alone, in steps of [`CpuTime::step`]. None if it is reaped.
    pub(crate) fn own_cpu_time(&self) -> Option<CpuTime> {
        match self.life {
            Life::Living => usage::own_cpu_time(self.pid()),
            Life::Ended { .. } => None,
        }
    }

    fn cpu(&self) -> Option<CpuTime> {
        match self.life {
            Life::Living => usage::read(self.pid()).map(|usage| usage.cpu_time),
            Life::Ended { cpu_time, .. } => cpu_time,
        }
    }

    fn measure_peak_rss(&self) {
        if matches!(self.life, Life::Living) {
            self.note_rss(usage::peak_rss(self.pid()));
        }
    }

    fn note_rss(&self, bytes: Option<u64>) {
        self.peak_rss.set(self.peak_rss.get().max(bytes));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            // A lock that another thread had during the fork is never free again here.
            std::mem::forget(self.known.take());
            return;
        }
        if matches!(self.life, Life::Living) {
            let _ = self.signal(Signal::KILL);
            wait_for(&self.pidfd, PollFlags::IN, self.reap_wait_max);
            let _ = self.try_wait();
        }
        if matches!(self.life, Life::Ended { is_zombie: true, .. }) {
            let pidfd = self.pidfd();
            self.known.take().into_iter().for_each(|known| known.collect(Arc::clone(&pidfd)));
        }
    }
}

fn ignore_no_such_process(sent: rustix::io::Result<()>) -> io::Result<()> {
    match sent {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What `waitid` says of a child, without waiting, and without taking the news away.
fn look(child: WaitId<'_>, at: WaitIdOptions) -> rustix::io::Result<Option<WaitIdStatus>> {
    waitid(child, at | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT)
}

/// What an error of a new child means if the kernel does not know the child any more.
fn lost_or(error: Errno) -> io::Error {
    match error {
        Errno::SRCH | Errno::CHILD => io::Error::other(
            "it ended at once, and how is not known, because this process ignores SIGCHLD or waits for any child",
        ),
        other => other.into(),
    }
}

/// Kills a child that could not be taken over because descriptors ran out, and collects it if it ends soon.
fn kill_unadopted(child: &mut Child) {
    if look(WaitId::Pid(Pid::from_child(child)), WaitIdOptions::EXITED).is_err() {
        return;
    }
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let deadline = Instant::now() + KILLED_WORKER_TIMEOUT;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests;
