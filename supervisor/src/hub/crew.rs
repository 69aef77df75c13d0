//! The living processes, each with its watchers on the loop. What they do becomes events for the core.

use super::{Hub, Incoming};
use crate::limits::LAST_LINES_BYTES_MAX;
use crate::workers::{Confinement, Flushed, Process, Received, SpawnError, Stream, StreamState, escape_line};
use bytes::Bytes;
use offload_core::event::Event;
use offload_core::exit::{Exit, ExitUsage};
use offload_core::ids::{JobId, WorkerId};
use offload_event_loop::{HandleId, Interest, LoopError, LoopHandle, Readiness};
use offload_protocol::messages::{FromWorker, VERSION_MAJOR, WORKER_MAGIC};
use offload_protocol::nouns::{ContentType, TaskOffer};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How often a socket is read if all that is there is wanted: what the kernel can hold of it is less.
const LAST_READS: usize = 16;

/// Process ids of ended workers that are remembered.
const PAST_PIDS_MAX: usize = 1024;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Crew {
    members: BTreeMap<WorkerId, Member>,
    /// Those with something to write.
    to_flush: Vec<WorkerId>,
    cpu_time_of_the_dead: Duration,
    /// Process ids of those that have ended last, for whoever reads what they died of.
    past_pids: BTreeMap<WorkerId, u32>,
}

/// One living process.
pub(super) struct Member {
    pub(super) process: Process,
    link: HandleId,
    pidfd: HandleId,
    stdout: HandleId,
    stderr: HandleId,
    /// Its socket has ended or spoken nonsense: it is not looked at any more.
    is_deaf: bool,
    /// Nothing is read of it for now, for want of room.
    pub(super) is_unread: bool,
    is_marked: bool,
    /// When bytes last went in or out, for as long as some are due.
    pub(super) progress_at: Instant,
    /// Looks in a row that found bytes due and no progress.
    pub(super) silent_looks: u32,
    /// What it had given up when it said hello.
    pub(super) confinement: Option<Confinement>,
    /// It was sent a signal to end: nothing is sent to it any more.
    pub(super) is_condemned: bool,
    /// Its jobs of which not one byte is written to it, each with the count of written bytes that it is beyond.
    pub(super) unwritten: VecDeque<(JobId, u64)>,
}

impl Crew {
    pub(super) fn get_mut(&mut self, worker: WorkerId) -> Option<&mut Member> {
        self.members.get_mut(&worker)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (WorkerId, &Member)> {
        self.members.iter().map(|(worker, member)| (*worker, member))
    }

    pub(super) fn pid(&self, worker: WorkerId) -> Option<u32> {
        let living = self.members.get(&worker).map(|member| member.process.pid());
        living.or_else(|| self.past_pids.get(&worker).copied())
    }

    pub(super) fn resident_bytes(&self, worker: WorkerId) -> Option<u64> {
        self.members.get(&worker)?.process.resident_bytes()
    }

    /// Asks the kernel what a worker gave up before its hello.
    pub(super) fn look_at_confinement(&mut self, worker: WorkerId) {
        if let Some(member) = self.members.get_mut(&worker) {
            member.confinement = member.process.confinement();
        }
    }

    /// Whether one of those that are ready has the privilege to look into any process.
    pub(super) fn has_one_that_can_trace(&self) -> bool {
        self.members.values().any(|member| member.confinement.as_ref().is_some_and(|seen| seen.can_trace))
    }

    pub(super) fn confinement(&self, worker: WorkerId) -> Option<Confinement> {
        self.members.get(&worker)?.confinement.clone()
    }

    /// Remembers that there is something to write for this worker.
    pub(super) fn mark(&mut self, worker: WorkerId) {
        let Some(member) = self.members.get_mut(&worker) else { return };
        if !std::mem::replace(&mut member.is_marked, true) {
            self.to_flush.push(worker);
        }
    }

    /// Another look was had: these are silent.
    pub(super) fn count_looks(&mut self, silent: &[WorkerId]) {
        for (worker, member) in &mut self.members {
            member.silent_looks = if silent.contains(worker) { member.silent_looks + 1 } else { 0 };
        }
    }

    /// Whether it was given this job, and cannot know of it.
    pub(super) fn has_not_seen(&self, worker: WorkerId, job: JobId) -> bool {
        self.members.get(&worker).is_some_and(|member| member.has_not_seen(job))
    }

    pub(super) fn cpu_time(&self) -> Duration {
        let of_the_living: Duration =
            self.members.values().filter_map(|member| member.process.cpu_time()).sum();
        self.cpu_time_of_the_dead + of_the_living
    }
}

impl Hub {
    /// Watches a new process. Returns its process id.
    pub(super) fn enlist(&mut self, worker: WorkerId, process: Box<Process>) -> Result<u32, SpawnError> {
        let pid = process.pid();
        match self.watch_process(worker, &process) {
            Ok(watchers) => {
                self.crew.members.insert(worker, Member::new(*process, watchers));
                Ok(pid)
            }
            Err(error) => {
                self.launcher.bury(process);
                let message = format!("cannot watch a new worker process: {error}");
                Err(SpawnError { fatal: false, message })
            }
        }
    }

    /// Of its socket, its end and its two streams.
    fn watch_process(&self, worker: WorkerId, process: &Process) -> Result<[HandleId; 4], LoopError> {
        let mut watchers = Watchers { handle: &self.handle, made: Vec::new() };
        let link =
            watchers.add(self.watch(process.socket(), move |hub, ready| hub.on_link(worker, ready)))?;
        let pidfd = watchers.add(self.watch(process.pidfd(), move |hub, _| hub.on_process_end(worker)))?;
        let stdout = watchers
            .add(self.watch(process.stdout(), move |hub, _| hub.on_output(worker, Stream::Stdout)))?;
        let stderr = watchers
            .add(self.watch(process.stderr(), move |hub, _| hub.on_output(worker, Stream::Stderr)))?;
        watchers.made.clear();
        Ok([link, pidfd, stdout, stderr])
    }

    /// An idle worker does not keep the loop alive, hence unreferenced.
    #[track_caller]
    fn watch(
        &self,
        source: impl AsFd + 'static,
        mut call: impl FnMut(&mut Hub, Readiness) + 'static,
    ) -> Result<HandleId, LoopError> {
        let me = self.me.clone();
        let watched = self.handle.watch(source, Interest::READ, move |_, readiness| {
            Hub::with(&me, |hub| call(hub, readiness));
        })?;
        self.handle.unref(watched);
        Ok(watched)
    }

    fn on_link(&mut self, worker: WorkerId, readiness: Readiness) {
        if readiness.is_writable() {
            self.crew.mark(worker);
        }
        if readiness.is_readable() && !self.leave_unread(worker) {
            self.receive(worker);
        }
        self.work_off_inbox();
    }

    /// Reads once. True if there may be more to read.
    fn receive(&mut self, worker: WorkerId) -> bool {
        let Some(member) = self.crew.get_mut(worker).filter(|member| !member.is_deaf) else { return false };
        let inbox = &mut self.inbox;
        let received = member.process.receive(&mut |message, payload| {
            inbox.push_back(incoming(worker, message, payload));
        });
        let last = match received {
            Ok(Received::Messages) => {
                member.progress_at = Instant::now();
                return true;
            }
            Ok(Received::WouldBlock) => return false,
            Ok(Received::Closed) => Event::Closed { worker },
            Err(error) => Event::Garbled { worker, message: error.to_string() },
        };
        member.is_deaf = true;
        rest(&self.handle, member.link);
        self.inbox.push_back(last.into());
        false
    }

    /// Reads all that the kernel holds of what this worker sent, and tells it.
    pub(super) fn read_what_is_there(&mut self, worker: WorkerId) {
        for _ in 0..LAST_READS {
            if !self.receive(worker) {
                break;
            }
        }
        self.work_off_inbox();
    }

    pub(super) fn on_process_end(&mut self, worker: WorkerId) {
        self.read_what_is_there(worker);
        for stream in [Stream::Stdout, Stream::Stderr] {
            let captured =
                self.crew.get_mut(worker).map(|member| member.process.capture_rest(stream, Instant::now()));
            captured.into_iter().for_each(|captured| self.log_output(worker, &captured));
        }
        self.work_off_inbox();
        self.bury(worker);
    }

    fn bury(&mut self, worker: WorkerId) {
        let Some(member) = self.crew.get_mut(worker) else { return };
        // An error means that nobody can collect it: it is gone for us.
        let Some(exit) = member.process.try_reap().unwrap_or(Some(Exit::Unknown)) else { return };
        let last_lines = last_of(member.process.last_lines(), LAST_LINES_BYTES_MAX);
        let usage = member.exit_usage();
        let cpu_time = member.process.cpu_time().unwrap_or_default();
        self.crew.cpu_time_of_the_dead += cpu_time;
        // Told before the process is forgotten: the report of its job wants to name it.
        self.tell(Event::Exited { worker, exit, last_lines, usage });
        if let Some(member) = self.crew.members.remove(&worker) {
            self.crew.past_pids.insert(worker, member.process.pid());
            drop(member.unwatch(&self.handle));
        }
        self.launcher.forget(worker.0);
        self.sweep();
        while self.crew.past_pids.len() > PAST_PIDS_MAX {
            self.crew.past_pids.pop_first();
        }
    }

    fn on_output(&mut self, worker: WorkerId, stream: Stream) {
        let Some(member) = self.crew.get_mut(worker) else { return };
        let captured = member.process.capture(stream, Instant::now());
        let watcher = member.watcher_of(stream);
        match captured.state {
            StreamState::Open | StreamState::Empty => {}
            StreamState::Ended => rest(&self.handle, watcher),
            StreamState::Throttled { until } => self.pause(watcher, until),
        }
        self.log_output(worker, &captured);
    }

    /// Looks away until then; a worker that prints without end fills its pipe and waits, and only it.
    fn pause(&self, watcher: HandleId, until: Instant) {
        rest(&self.handle, watcher);
        let handle = self.handle.clone();
        let timer = self.handle.set_timeout(until.saturating_duration_since(Instant::now()), move |_| {
            // It is closed by now if the worker has ended.
            let _ = handle.set_interest(watcher, Interest::READ);
        });
        self.handle.unref(timer);
    }

    /// Writes every outbox that has something in it, once.
    pub(super) fn flush_crew(&mut self) {
        for worker in std::mem::take(&mut self.crew.to_flush) {
            self.flush(worker);
        }
        if !self.inbox.is_empty() {
            self.work_off_inbox();
        }
    }

    fn flush(&mut self, worker: WorkerId) {
        let Some(member) = self.crew.get_mut(worker) else { return };
        member.is_marked = false;
        let before = member.process.unsent();
        let flushed = member.flush();
        if member.process.unsent() != before {
            member.progress_at = Instant::now();
        }
        let link = member.link;
        let is_deaf = member.is_deaf;
        let is_unread = member.is_unread;
        let interest = match flushed {
            Ok(Flushed::Done) if is_unread => Interest::NONE,
            Ok(Flushed::Blocked) if is_unread => Interest::WRITE,
            Ok(Flushed::Done) => Interest::READ,
            Ok(Flushed::Blocked) => Interest::READ | Interest::WRITE,
            Ok(Flushed::More) => {
                self.crew.mark(worker);
                return self.at_the_end_of_the_turn();
            }
            // What it had sent before is still to be read, and then the end of it.
            Ok(Flushed::Closed) => Interest::READ,
            Err(error) => {
                let message = format!("cannot write to it: {error}");
                return self.inbox.push_back(Event::Violation { worker, message }.into());
            }
        };
        if !is_deaf && let Err(error) = self.handle.set_interest(link, interest) {
            let message = format!("cannot watch its socket: {error}");
            self.inbox.push_back(Event::Violation { worker, message }.into());
        }
    }
}

impl Member {
    fn new(process: Process, [link, pidfd, stdout, stderr]: [HandleId; 4]) -> Member {
        Member {
            process,
            link,
            pidfd,
            stdout,
            stderr,
            is_deaf: false,
            is_unread: false,
            is_marked: false,
            progress_at: Instant::now(),
            silent_looks: 0,
            confinement: None,
            is_condemned: false,
            unwritten: VecDeque::new(),
        }
    }

    /// Something is about to be written: if nothing was due before, patience begins now.
    pub(super) fn expect_progress(&mut self) {
        if self.process.unsent() == 0 {
            self.progress_at = Instant::now();
        }
    }

    /// What the process, which is reaped, has used.
    fn exit_usage(&self) -> Option<ExitUsage> {
        let usage = self.process.usage()?;
        let peak_rss_bytes = usage.peak_rss.unwrap_or(0);
        Some(ExitUsage { cpu_user: usage.cpu_user, cpu_system: usage.cpu_system, peak_rss_bytes })
    }

    fn watcher_of(&self, stream: Stream) -> HandleId {
        match stream {
            Stream::Stdout => self.stdout,
            Stream::Stderr => self.stderr,
        }
    }

    fn unwatch(self, handle: &LoopHandle) -> Process {
        for watcher in [self.link, self.pidfd, self.stdout, self.stderr] {
            // Closing a watcher fails only if it is closed.
            let _ = handle.close(watcher, |_| ());
        }
        self.process
    }
}

/// Watchers in the making: all of them or none.
struct Watchers<'a> {
    handle: &'a LoopHandle,
    made: Vec<HandleId>,
}

impl Watchers<'_> {
    fn add(&mut self, watcher: Result<HandleId, LoopError>) -> Result<HandleId, LoopError> {
        self.made.extend(watcher.as_ref().ok());
        watcher
    }
}

impl Drop for Watchers<'_> {
    fn drop(&mut self) {
        for watcher in self.made.drain(..) {
            // Closing a watcher fails only if it is closed.
            let _ = self.handle.close(watcher, |_| ());
        }
    }
}

impl Drop for Hub {
    /// The processes are killed with their owner. Who awaits a job is told.
    fn drop(&mut self) {
        self.give_up_orders();
        self.launches.clear();
        for watcher in [self.child_signals.take(), self.bell.take()].into_iter().flatten() {
            let _ = self.handle.close(watcher, |_| ());
        }
        let members = std::mem::take(&mut self.crew.members);
        let mut processes = self.arrivals();
        processes.extend(members.into_values().map(|member| member.unwatch(&self.handle)));
        Process::bury_all(processes);
        self.sweep_at_the_end();
    }
}

/// The last lines that have so many bytes together; the last one in any case.
fn last_of(mut lines: Vec<String>, bytes_max: usize) -> Vec<String> {
    let mut bytes = 0;
    let fits = |line: &&String| {
        bytes += line.len();
        bytes <= bytes_max
    };
    let kept = lines.iter().rev().take_while(fits).count().max(1);
    lines.split_off(lines.len().saturating_sub(kept))
}

fn rest(handle: &LoopHandle, watcher: HandleId) {
    // Taking a descriptor out of the set cannot fail, and a closed watcher rests already.
    let _ = handle.set_interest(watcher, Interest::NONE);
}

fn incoming(worker: WorkerId, message: FromWorker<'_>, payload: Bytes) -> Incoming {
    let wants_payload = matches!(
        message,
        FromWorker::Finished { .. } | FromWorker::Checkpoint { .. } | FromWorker::Yielded { .. }
    );
    if !wants_payload && !payload.is_empty() {
        let message = "a payload with a message that has none".to_owned();
        return Event::Violation { worker, message }.into();
    }
    match message {
        FromWorker::Hello { magic, major, tasks, .. } => hello(worker, magic, major, tasks).into(),
        FromWorker::Started { job, attempt } => Event::Started { worker, job: JobId(job), attempt }.into(),
        FromWorker::Finished { job, attempt, run_ns, content, usage } => Incoming {
            event: Event::Finished {
                worker,
                job: JobId(job),
                attempt,
                run: Duration::from_nanos(run_ns),
                usage,
                output_bytes: payload.len() as u64,
            },
            payload: Some((content, payload)),
        },
        FromWorker::Failed { job, attempt, run_ns, kind, message, usage } => Event::Failed {
            worker,
            job: JobId(job),
            attempt,
            run: Duration::from_nanos(run_ns),
            kind,
            message: escape_line(message.as_bytes()),
            usage,
        }
        .into(),
        FromWorker::Progress { job, attempt, done, total } => {
            Event::Progress { worker, job: JobId(job), attempt, done, total }.into()
        }
        FromWorker::Checkpoint { job, attempt } => Incoming {
            event: Event::Checkpoint { worker, job: JobId(job), attempt, bytes: payload.len() as u64 },
            payload: Some((ContentType::Bytes, payload)),
        },
        FromWorker::Yielded { job, attempt, run_ns, .. } => Incoming {
            event: Event::Yielded {
                worker,
                job: JobId(job),
                attempt,
                run: Duration::from_nanos(run_ns),
                bytes: payload.len() as u64,
            },
            payload: Some((ContentType::Bytes, payload)),
        },
        FromWorker::Skipped { job } => Event::Skipped { worker, job: JobId(job) }.into(),
    }
}

fn hello(worker: WorkerId, magic: [u8; 8], major: u16, tasks: Vec<TaskOffer<'_>>) -> Event {
    if magic != WORKER_MAGIC {
        return Event::Unfit { worker, message: "its hello has the wrong magic".to_owned() };
    }
    if major != VERSION_MAJOR {
        let message =
            format!("it speaks version {major} of the protocol, this supervisor version {VERSION_MAJOR}");
        return Event::Unfit { worker, message };
    }
    Event::Hello { worker, tasks: tasks.into_iter().map(TaskOffer::into_owned).collect() }
}
