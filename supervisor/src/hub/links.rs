//! Watches the living worker processes on the event loop: their sockets, their output and their ends become events for
//! the core.

use super::processes::{EndedProcess, Watchers};
use super::{Hub, Payload, PendingEvent};
use crate::end_of_turn::{Watched, Written};
use crate::limits::{LAST_LINES_BYTES_MAX, SEND_PAUSE, TIME_PER_TURN};
use crate::workers::{Allowance, CaptureState, OutputStream, Process, SpawnError, escape_line};
use bytes::Bytes;
use offload_core::event::Event;
use offload_core::ids::{JobId, WorkerId};
use offload_event_loop::{HandleId, Interest, LoopError, LoopHandle, Readiness};
use offload_protocol::limits::MESSAGE_MAX;
use offload_protocol::messages::FromWorker;
use offload_protocol::nouns::{MediaType, ProgramNews, cut};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

impl Hub {
    /// Adds a new process and watches it. Returns its process id.
    pub(super) fn add_process(&mut self, worker: WorkerId, process: Box<Process>) -> Result<u32, SpawnError> {
        let pid = process.pid();
        match self.watch_process(worker, &process) {
            Ok(watchers) => {
                self.processes.add(worker, *process, watchers);
                Ok(pid)
            }
            Err(error) => {
                self.launches.kill_and_reap(process);
                let message = format!("cannot watch a new worker process: {error}");
                Err(SpawnError { fatal: false, message })
            }
        }
    }

    /// Watches the socket, the pidfd and the two output streams of a process.
    fn watch_process(&self, worker: WorkerId, process: &Process) -> Result<Watchers, LoopError> {
        let mut made = NewWatchers { handle: &self.handle, watchers: Vec::new() };
        let link = made.add(self.watch(process.socket(), move |hub, ready| hub.on_link(worker, ready)))?;
        let pidfd = made.add(self.watch(process.pidfd(), move |hub, _| hub.on_process_end(worker)))?;
        let stdout = made
            .add(self.watch(process.stdout(), move |hub, _| hub.on_output(worker, OutputStream::Stdout)))?;
        let stderr = made
            .add(self.watch(process.stderr(), move |hub, _| hub.on_output(worker, OutputStream::Stderr)))?;
        made.watchers.clear();
        Ok(Watchers { link: Watched::for_input(link), pidfd, stdout, stderr })
    }

    /// Watches a descriptor. The watcher is unreferenced, because an idle worker must not keep the event loop alive.
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

    pub(super) fn on_process_end(&mut self, worker: WorkerId) {
        let may_be_more = self.read_all_from(worker, &mut Allowance::of_a_turn());
        if self.processes.is_copying(worker) || (may_be_more && self.processes.may_read_on(worker)) {
            // The end is told again in the next turn, until the last output is complete and everything is read.
            return;
        }
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            let captured = self.processes.capture_rest(worker, stream);
            captured.into_iter().for_each(|captured| self.log_output(worker, stream, &captured));
        }
        // From now on no job is given to it, even if another process has its channel open. It cannot know of those whose messages
        // have not left this process.
        self.handle_event(Event::Closed { worker });
        let jobs = self.processes.stop_writing(worker);
        if !jobs.is_empty() {
            self.handle_event(Event::Unsent { worker, jobs });
        }
        self.settle();
        self.report_left_in_tray(worker);
        self.drain_inbox();
        self.reap(worker);
    }

    fn reap(&mut self, worker: WorkerId) {
        let Some(EndedProcess { exit, last_lines, usage }) = self.processes.reap(worker) else { return };
        let last_lines = last_lines_within(last_lines, LAST_LINES_BYTES_MAX);
        self.handle_event(Event::Exited { worker, exit, last_lines, usage });
        self.return_segments(worker);
        // The thread that waits for its end does not hold up the loop.
        let ended = self.processes.remove(worker, &self.handle);
        ended.into_iter().for_each(|process| self.launches.kill_and_reap(Box::new(process)));
        self.forget_launch(worker);
        self.introductions.forget(worker);
        self.trays.forget(worker);
        self.authors.forget(worker);
        self.baselines.forget(worker);
    }

    fn on_output(&mut self, worker: WorkerId, stream: OutputStream) {
        let Some((captured, watcher)) = self.processes.capture(worker, stream) else { return };
        match captured.state {
            CaptureState::Open | CaptureState::Empty => {}
            CaptureState::Ended => stop_reading(&self.handle, watcher),
            CaptureState::Throttled { until } => self.pause(watcher, until),
        }
        self.log_output(worker, stream, &captured);
    }

    /// Stops reading a stream until `until`. A worker that prints without end fills its pipe and blocks; nobody else
    /// does.
    fn pause(&self, watcher: HandleId, until: Instant) {
        stop_reading(&self.handle, watcher);
        let handle = self.handle.clone();
        let timer = self.handle.set_timeout(until.saturating_duration_since(Instant::now()), move |_| {
            // The watcher has been closed by now if the worker has ended.
            let _ = handle.set_interest(watcher, Interest::READ);
        });
        self.handle.unref(timer);
    }

    /// Writes every outbox that is not empty, once. When the time of this turn is used up, the others come first in the next one.
    pub(super) fn flush_processes(&mut self) {
        let began = Instant::now();
        let mut marked = self.processes.take_marked().into_iter();
        for worker in marked.by_ref() {
            self.flush(worker);
            if began.elapsed() >= TIME_PER_TURN {
                break;
            }
        }
        if self.processes.mark_first(marked) {
            self.schedule_end_of_turn();
        }
        if !self.inbox.is_empty() {
            self.drain_inbox();
        }
    }

    fn flush(&mut self, worker: WorkerId) {
        match self.processes.flush(worker, &self.handle) {
            None | Some(Written::Watching) => {}
            Some(Written::More) => self.schedule_end_of_turn(),
            Some(Written::Refused) => self.write_later(worker),
            Some(Written::Failed(message)) => {
                self.inbox.push_back(Event::Violation { worker, message }.into());
            }
        }
    }

    fn write_later(&self, worker: WorkerId) {
        let me = self.me.clone();
        let again = move |hub: &mut Hub| {
            hub.processes.write_again(worker);
            hub.schedule_end_of_turn();
        };
        let timer = self.handle.set_timeout(SEND_PAUSE, move |_| Hub::with(&me, again));
        self.handle.unref(timer);
    }

    /// A violation in place of the event, if that names a job of which the worker has not been sent one byte: a worker cannot
    /// have begun a job that it does not know.
    pub(super) fn reject_if_unsent(&self, event: &Event) -> Option<Event> {
        let (Event::Started { worker, job, .. }
        | Event::Finished { worker, job, .. }
        | Event::Failed { worker, job, .. }
        | Event::Progress { worker, job, .. }
        | Event::Checkpoint { worker, job, .. }
        | Event::Part { worker, job, .. }
        | Event::NotBegun { worker, job, .. }
        | Event::Yielded { worker, job, .. }) = *event
        else {
            return None;
        };
        let message = "it speaks of a job that was not sent to it";
        let is_unwritten = self.processes.is_unwritten(worker, job);
        is_unwritten.then(|| Event::Violation { worker, message: message.to_owned() })
    }
}

/// Watchers of one process while they are being created: if one fails, all are closed.
struct NewWatchers<'a> {
    handle: &'a LoopHandle,
    watchers: Vec<HandleId>,
}

impl NewWatchers<'_> {
    fn add(&mut self, watcher: Result<HandleId, LoopError>) -> Result<HandleId, LoopError> {
        self.watchers.extend(watcher.as_ref().ok());
        watcher
    }
}

impl Drop for NewWatchers<'_> {
    fn drop(&mut self) {
        for watcher in self.watchers.drain(..) {
            // Closing fails only if the watcher is closed already.
            let _ = self.handle.close(watcher, |_| ());
        }
    }
}

impl Drop for Hub {
    /// Kills all worker processes. Subscribers that wait for a job are told. A forked child leaves all of it to its parent.
    fn drop(&mut self) {
        if self.launches.are_of_parent() {
            return;
        }
        self.cancel_live_jobs();
        self.launches.give_up_all();
        if let Some(bell) = self.launches.take_bell() {
            let _ = self.handle.close(bell, |_| ());
        }
        let mut processes = self.launches.take_started_processes();
        processes.extend(self.processes.take_all(&self.handle));
        Process::kill_and_reap_all(processes);
        if self.checks.may_sweep() {
            self.launches.sweep_at_the_end();
        }
    }
}

/// The last lines that together have at most `bytes_max` bytes. The very last line is kept in any case.
fn last_lines_within(mut lines: Vec<String>, bytes_max: usize) -> Vec<String> {
    let mut bytes = 0;
    let fits = |line: &&String| {
        bytes += line.len();
        bytes <= bytes_max
    };
    let kept = lines.iter().rev().take_while(fits).count().max(1);
    lines.split_off(lines.len().saturating_sub(kept))
}

fn stop_reading(handle: &LoopHandle, watcher: HandleId) {
    // Taking a descriptor out of the epoll set cannot fail, and a closed watcher needs no change.
    let _ = handle.set_interest(watcher, Interest::NONE);
}

/// The event that follows from a message. None for those of an introduction, which come here only if they carry a payload.
pub(super) fn event_from(worker: WorkerId, message: FromWorker<'_>, payload: Bytes) -> Option<PendingEvent> {
    let wants_payload = matches!(
        message,
        FromWorker::Finished { .. }
            | FromWorker::Checkpoint { .. }
            | FromWorker::Yielded { .. }
            | FromWorker::Part { .. }
    );
    if !wants_payload && !payload.is_empty() {
        let message = "a payload with a message that has none".to_owned();
        return Some(Event::Violation { worker, message }.into());
    }
    if let FromWorker::Failed { message, .. } = &message
        && message.len() > MESSAGE_MAX
    {
        let message = format!("an error of {} bytes, {MESSAGE_MAX} are allowed", message.len());
        return Some(Event::Violation { worker, message }.into());
    }
    Some(match message {
        FromWorker::Hello { .. }
        | FromWorker::Offer { .. }
        | FromWorker::OfferBatch { .. }
        | FromWorker::Ready => return None,
        // The link does not pass these on.
        FromWorker::SegmentReady { .. } | FromWorker::SegmentLeft { .. } | FromWorker::OutputIn { .. } => {
            return None;
        }
        FromWorker::Started { job, attempt } => Event::Started { worker, job: JobId(job), attempt }.into(),
        FromWorker::Finished { job, attempt, run_ns, media_type, usage } => PendingEvent {
            event: Event::Finished {
                worker,
                job: JobId(job),
                attempt,
                run: Duration::from_nanos(run_ns),
                usage,
                output_bytes: payload.len() as u64,
            },
            payload: Payload { media_type, bytes: payload },
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
        FromWorker::Checkpoint { job, attempt } => PendingEvent {
            event: Event::Checkpoint { worker, job: JobId(job), attempt, bytes: payload.len() as u64 },
            payload: Payload { media_type: MediaType::OCTET_STREAM, bytes: payload },
        },
        FromWorker::Part { job, attempt } => PendingEvent {
            event: Event::Part { worker, job: JobId(job), attempt, bytes: payload.len() as u64 },
            payload: Payload { media_type: MediaType::OCTET_STREAM, bytes: payload },
        },
        FromWorker::Yielded { job, attempt, run_ns, .. } => PendingEvent {
            event: Event::Yielded {
                worker,
                job: JobId(job),
                attempt,
                run: Duration::from_nanos(run_ns),
                bytes: payload.len() as u64,
            },
            payload: Payload { media_type: MediaType::OCTET_STREAM, bytes: payload },
        },
        FromWorker::Skipped { job } => Event::Skipped { worker, job: JobId(job) }.into(),
        FromWorker::Program { news } => program_event(worker, news).into(),
    })
}

fn program_event(worker: WorkerId, news: ProgramNews<'_>) -> Event {
    match news {
        ProgramNews::Stopped => Event::Stopped { worker },
        ProgramNews::Continued => Event::Continued { worker },
        ProgramNews::NotBegun { job, attempt } => Event::NotBegun { worker, job: JobId(job), attempt },
        ProgramNews::BrokeRules { of_another, how } => {
            Event::BrokeRules { worker, of_another, how: escape_line(cut(&how, MESSAGE_MAX).as_bytes()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_job_has_a_bound() {
        let event = |length| {
            let (kind, usage) = (offload_protocol::nouns::FailureKind::AppError, Default::default());
            let message = "x".repeat(length).into();
            let failed = FromWorker::Failed { job: 1, attempt: 1, run_ns: 0, kind, message, usage };
            event_from(WorkerId(1), failed, Bytes::new()).unwrap().event
        };
        assert!(matches!(event(MESSAGE_MAX), Event::Failed { .. }));
        assert!(matches!(event(MESSAGE_MAX + 1), Event::Violation { .. }));
    }
}
