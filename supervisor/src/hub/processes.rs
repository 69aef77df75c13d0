//! The living worker processes: what is being sent to each, and whether its messages are read. Watching their sockets
//! is in `links.rs`; what they are sent is decided by the core.
//!
//! ```text
//!   send ---> outbox, marked ---> flush: once a turn ---> the kernel has it: from here on the worker may know of it
//!                |
//!                '--- terminated: the outbox is discarded; returns the jobs of which not one byte was written
//! ```

mod endings;
mod reading;
mod segments;
mod silence;
mod stops;

use crate::end_of_turn::{Watched, Writable, Written, write_and_watch};
use crate::limits::PAST_PIDS_MAX;
use crate::workers::{Allowance, Captured, Confinement, CpuTime, Descriptor, Flushed, OutputStream, Process};
use bytes::Bytes;
use offload_core::event::Event;
use offload_core::exit::{Exit, ExitUsage};
use offload_core::ids::{JobId, WorkerId};
use offload_event_loop::{HandleId, LoopHandle};
use offload_protocol::messages::ToWorker;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

/// All living worker processes. See the module's documentation.
#[derive(Default)]
pub(super) struct WorkerProcesses {
    living: BTreeMap<WorkerId, LivingProcess>,
    /// Workers with unsent bytes.
    to_flush: Vec<WorkerId>,
    /// What may still be taken from workers in this turn of the event loop.
    pub(super) allowance: Allowance,
    /// Workers that are read from when it is their turn, each once.
    waiting: VecDeque<WorkerId>,
    ended_cpu_time: Duration,
    past: PastPids,
}

/// Process ids of the workers that ended last, so that reports about their ends can name them.
#[derive(Default)]
struct PastPids(BTreeMap<WorkerId, u32>);

impl PastPids {
    fn add(&mut self, worker: WorkerId, pid: u32) {
        self.0.insert(worker, pid);
        while self.0.len() > PAST_PIDS_MAX {
            self.0.pop_first();
        }
    }
}

/// One living process.
struct LivingProcess {
    process: Process,
    watchers: Watchers,
    reading: Reading,
    is_marked: bool,
    /// Something is to be written a little later.
    is_refused: bool,
    /// It is among those that wait for their turn to be read from.
    is_waiting: bool,
    /// In how many turns its last messages were read since its end.
    last_turns: u32,
    /// When bytes last went in or out, while some are expected.
    progress_at: Instant,
    /// Number of checks in a row that found bytes expected and no progress.
    silent_checks: u32,
    /// It was stopped when it was looked at last.
    is_stopped: bool,
    /// What the process had given up when it said hello.
    confinement: Option<Confinement>,
    /// The process was sent a signal to end, or has ended. Nothing is sent to it any more. Its messages are still read, so this is
    /// no variant of `reading`.
    is_terminated: bool,
    /// The jobs of which not one byte has been written to the process. Each has the count of written bytes at which it
    /// begins.
    unwritten: VecDeque<(JobId, u64)>,
    /// No job with a smaller number is among these.
    unwritten_from: JobId,
}

/// Whether the messages of a process are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// Messages are read as they arrive.
    Reads,
    /// Messages stay in the socket for now, because memory is full.
    Waits,
    /// Messages are not read any more: the socket has ended, or what came was no valid message.
    Over,
}

/// The watchers of one process on the event loop.
pub(super) struct Watchers {
    pub(super) link: Watched,
    pub(super) pidfd: HandleId,
    pub(super) stdout: HandleId,
    pub(super) stderr: HandleId,
}

/// The result of reading once.
pub(super) enum ReadResult {
    /// Messages were read. There may be more.
    Messages,
    /// Nothing can be read now.
    Nothing,
    /// The last event from this socket: it is not read any more.
    Last(Event),
}

/// What is known of a process that has ended.
pub(super) struct EndedProcess {
    pub(super) exit: Exit,
    /// The last lines that the process printed.
    pub(super) last_lines: Vec<String>,
    pub(super) usage: Option<ExitUsage>,
}

impl WorkerProcesses {
    pub(super) fn add(&mut self, worker: WorkerId, process: Process, watchers: Watchers) {
        self.living.insert(worker, LivingProcess::new(process, watchers));
    }

    /// The process id of a worker that is alive or has ended recently.
    pub(super) fn pid(&self, worker: WorkerId) -> Option<u32> {
        let living = self.living.get(&worker).map(|living| living.process.pid());
        living.or_else(|| self.past.0.get(&worker).copied())
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = WorkerId> {
        self.living.keys().copied()
    }

    pub(super) fn resident_bytes(&self, worker: WorkerId) -> Option<u64> {
        self.living.get(&worker)?.process.resident_bytes()
    }

    /// CPU time of all workers, dead and living.
    pub(super) fn cpu_time(&self) -> Duration {
        let living_cpu_time: Duration =
            self.living.values().filter_map(|living| living.process.cpu_time()).sum();
        self.ended_cpu_time + living_cpu_time
    }

    /// CPU time of one living worker, without the programs that it has started.
    pub(super) fn own_cpu_time(&self, worker: WorkerId) -> Option<CpuTime> {
        self.living.get(&worker)?.process.own_cpu_time()
    }

    /// The highest resident memory of a living worker that is known.
    pub(super) fn peak_rss(&self, worker: WorkerId) -> Option<u64> {
        Some(self.living.get(&worker)?.process.usage()?.peak_rss.unwrap_or(0))
    }

    /// Asks the kernel what a worker gave up before its hello.
    pub(super) fn read_confinement(&mut self, worker: WorkerId) {
        if let Some(living) = self.living.get_mut(&worker) {
            living.confinement = living.process.confinement();
        }
    }

    pub(super) fn confinement(&self, worker: WorkerId) -> Option<Confinement> {
        self.living.get(&worker)?.confinement.clone()
    }

    /// Whether a worker has the privilege to look into any process. Known of workers that have said hello.
    pub(super) fn any_can_trace(&self) -> bool {
        self.living.values().any(|living| living.confinement.as_ref().is_some_and(|seen| seen.can_trace))
    }

    /// The workers whose socket is readable or whose process has ended. The flag says that the process has ended.
    pub(super) fn readable_or_ended(&self) -> Vec<(WorkerId, bool)> {
        let watched: Vec<_> = self
            .living
            .iter()
            .map(|(worker, living)| (worker, living.process.socket(), living.process.pidfd()))
            .collect();
        let mut sources: Vec<PollFd<'_>> = watched
            .iter()
            .flat_map(|(_, socket, pidfd)| {
                [PollFd::new(socket, PollFlags::IN), PollFd::new(pidfd, PollFlags::IN)]
            })
            .collect();
        // If `poll` fails, all workers are returned. Reading from one that has nothing to read does no harm.
        let is_known = poll(&mut sources, Some(&Timespec::default())).is_ok();
        let has_news = |source: &PollFd<'_>| !source.revents().is_empty();
        watched
            .iter()
            .zip(sources.chunks(2))
            .filter(|(_, pair)| !is_known || pair.iter().any(has_news))
            .map(|((worker, ..), pair)| (**worker, pair.last().is_some_and(has_news)))
            .collect()
    }
}

/// Sending messages to workers.
impl WorkerProcesses {
    /// Puts a message into the outbox of a worker, unless the worker is terminated.
    pub(super) fn send(&mut self, worker: WorkerId, message: &ToWorker<'_>, payload: &Bytes) {
        let Some(living) = self.living.get_mut(&worker) else { return };
        living.send(message, payload);
        self.mark(worker);
    }

    /// Like [`WorkerProcesses::send`], with a descriptor for the worker.
    pub(super) fn send_with(&mut self, worker: WorkerId, message: &ToWorker<'_>, descriptor: Descriptor) {
        let Some(living) = self.living.get_mut(&worker).filter(|living| !living.is_terminated) else {
            return;
        };
        living.note_send();
        let sent = living.process.send_with(message, descriptor);
        sent.expect("what is sent to workers fits on the wire");
        self.mark(worker);
    }

    /// Remembers that this worker has unsent bytes.
    pub(super) fn mark(&mut self, worker: WorkerId) {
        let Some(living) = self.living.get_mut(&worker) else { return };
        if !std::mem::replace(&mut living.is_marked, true) {
            self.to_flush.push(worker);
        }
    }

    /// Takes out the workers with unsent bytes.
    pub(super) fn take_marked(&mut self) -> Vec<WorkerId> {
        let marked = std::mem::take(&mut self.to_flush);
        for worker in &marked {
            self.living.entry(*worker).and_modify(|living| living.is_marked = false);
        }
        marked
    }

    /// Puts workers in front of those that are marked. False if there are none.
    pub(super) fn mark_first(&mut self, workers: impl Iterator<Item = WorkerId>) -> bool {
        let marked = std::mem::take(&mut self.to_flush);
        workers.for_each(|worker| self.mark(worker));
        let is_any = !self.to_flush.is_empty();
        // One that is here already has its place.
        self.to_flush.extend(marked);
        is_any
    }

    /// Writes once, and watches the socket for whatever has to happen next.
    pub(super) fn flush(&mut self, worker: WorkerId, handle: &LoopHandle) -> Option<Written> {
        let written = write_and_watch(self.living.get_mut(&worker)?, handle);
        match written {
            Written::More => self.mark(worker),
            Written::Refused => {
                let living = self.living.get_mut(&worker)?;
                if std::mem::replace(&mut living.is_refused, true) {
                    // It is written again soon anyway.
                    return Some(Written::Watching);
                }
            }
            Written::Watching | Written::Failed(_) => {}
        }
        Some(written)
    }

    /// Writes once more what the kernel has refused.
    pub(super) fn write_again(&mut self, worker: WorkerId) {
        if let Some(living) = self.living.get_mut(&worker) {
            living.is_refused = false;
            self.mark(worker);
        }
    }

    /// How many bytes are in the outbox of a worker.
    #[cfg(test)]
    pub(super) fn unsent(&self, worker: WorkerId) -> usize {
        self.living.get(&worker).map_or(0, |living| living.process.unsent())
    }
}

/// Reading what workers print.
impl WorkerProcesses {
    /// Reads what the worker has printed. Also returns the watcher of that stream.
    pub(super) fn capture(&mut self, worker: WorkerId, stream: OutputStream) -> Option<(Captured, HandleId)> {
        let living = self.living.get_mut(&worker)?;
        Some((living.process.capture(stream, Instant::now()), living.watchers.of(stream)))
    }

    /// Reads the rest of what the worker has printed. Called when its process has ended.
    pub(super) fn capture_rest(&mut self, worker: WorkerId, stream: OutputStream) -> Option<Captured> {
        Some(self.living.get_mut(&worker)?.process.capture_rest(stream, Instant::now()))
    }
}

/// How processes end.
impl WorkerProcesses {
    /// How a process has ended. None if it has not ended. The process id can be looked up until the process
    /// is [removed](Self::remove), because the report of its job needs the id.
    pub(super) fn reap(&mut self, worker: WorkerId) -> Option<EndedProcess> {
        let living = self.living.get_mut(&worker)?;
        // An error means that nobody can collect the process. It counts as gone.
        let exit = living.process.try_wait().unwrap_or(Some(Exit::Unknown))?;
        self.ended_cpu_time += living.process.cpu_time().unwrap_or_default();
        Some(EndedProcess { exit, last_lines: living.process.last_lines(), usage: living.exit_usage() })
    }

    /// Forgets a process, except its id. The process is to be dropped elsewhere.
    #[must_use]
    pub(super) fn remove(&mut self, worker: WorkerId, handle: &LoopHandle) -> Option<Process> {
        let living = self.living.remove(&worker)?;
        self.past.add(worker, living.process.pid());
        Some(living.unwatch(handle))
    }

    /// Takes out all living processes. Called when the hub itself ends.
    pub(super) fn take_all(&mut self, handle: &LoopHandle) -> Vec<Process> {
        let living = std::mem::take(&mut self.living);
        living.into_values().map(|living| living.unwatch(handle)).collect()
    }
}

impl Watchers {
    fn of(&self, stream: OutputStream) -> HandleId {
        match stream {
            OutputStream::Stdout => self.stdout,
            OutputStream::Stderr => self.stderr,
        }
    }
}

impl LivingProcess {
    fn new(process: Process, watchers: Watchers) -> LivingProcess {
        LivingProcess {
            process,
            watchers,
            reading: Reading::Reads,
            is_marked: false,
            is_refused: false,
            is_waiting: false,
            last_turns: 0,
            progress_at: Instant::now(),
            silent_checks: 0,
            is_stopped: false,
            confinement: None,
            is_terminated: false,
            unwritten: VecDeque::new(),
            unwritten_from: JobId(0),
        }
    }

    fn send(&mut self, message: &ToWorker<'_>, payload: &Bytes) {
        self.note_send();
        if self.is_terminated {
            return;
        }
        if let ToWorker::Run { job, .. } = message {
            // What is not about the job comes first: the job begins behind it.
            self.process.say_read();
            let start = self.process.written() + self.process.unsent() as u64;
            let from = if self.unwritten.is_empty() { *job } else { self.unwritten_from.0.min(*job) };
            self.unwritten_from = JobId(from);
            self.unwritten.push_back((JobId(*job), start));
        }
        let sent = self.process.send(message, payload);
        sent.expect("what is sent to workers fits on the wire");
    }

    /// If nothing was unsent before, the time without progress begins now.
    fn note_send(&mut self) {
        if self.process.unsent() == 0 {
            self.progress_at = Instant::now();
        }
    }

    /// What the process has used: so far, or in total once it is reaped.
    fn exit_usage(&self) -> Option<ExitUsage> {
        let usage = self.process.usage()?;
        let peak_rss_bytes = usage.peak_rss.unwrap_or(0);
        Some(ExitUsage { cpu_user: usage.cpu_user, cpu_system: usage.cpu_system, peak_rss_bytes })
    }

    fn unwatch(self, handle: &LoopHandle) -> Process {
        let Watchers { link, pidfd, stdout, stderr } = self.watchers;
        link.unwatch(handle);
        for watcher in [pidfd, stdout, stderr] {
            // Closing fails only if the watcher is closed already.
            let _ = handle.close(watcher, |_| ());
        }
        self.process
    }
}

impl Writable for LivingProcess {
    fn write_once(&mut self) -> io::Result<Flushed> {
        let before = self.process.unsent();
        let flushed = self.process.flush();
        let written = self.process.written();
        while self.unwritten.pop_front_if(|(_, start)| *start < written).is_some() {}
        if self.process.unsent() != before || matches!(flushed, Ok(Flushed::More)) {
            self.progress_at = Instant::now();
        }
        if matches!(flushed, Ok(Flushed::Closed)) && self.reading == Reading::Waits {
            // What the process had sent before is still to be read, and then the end of the socket.
            self.reading = Reading::Reads;
        }
        flushed
    }

    fn has_unsent(&self) -> bool {
        self.process.unsent() > 0
    }

    fn wants_input(&self) -> bool {
        self.reading == Reading::Reads
    }

    fn watched(&mut self) -> Option<&mut Watched> {
        (self.reading != Reading::Over).then_some(&mut self.watchers.link)
    }

    fn is_heard_again(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_event_loop::EventLoop;
    use rustix::process::Signal;

    #[test]
    fn the_last_process_ids_are_remembered_and_no_others() {
        let mut past = PastPids::default();
        (0..3000).for_each(|number| past.add(WorkerId(number), 1));
        assert_eq!(past.0.len(), PAST_PIDS_MAX);
        assert!(past.0.contains_key(&WorkerId(2999)) && !past.0.contains_key(&WorkerId(0)));
    }

    #[test]
    fn of_a_worker_that_is_not_there_nothing_is_known_and_nothing_can_be_said_to_it() {
        let event_loop = EventLoop::new().unwrap();
        let handle = event_loop.handle();
        let (mut processes, worker) = (WorkerProcesses::default(), WorkerId(1));
        processes.send(worker, &ToWorker::Drain, &Bytes::new());
        assert!(processes.take_marked().is_empty() && processes.flush(worker, &handle).is_none());
        assert!(processes.terminate(worker, Signal::TERM).is_none() && processes.reap(worker).is_none());
        assert!(processes.leave_unread(worker).is_none() && !processes.read_again(worker));
        assert!(matches!(
            processes.receive(worker, &handle, &mut Allowance::of_a_turn(), &mut |_, _| ()),
            ReadResult::Nothing
        ));
    }
}
