//! The hub connects the core with the outside world. It turns what happens (a message, a request) into events for the core,
//! and carries out the actions that the core returns. The core decides everything about jobs, and what becomes of workers. The
//! hub decides whose messages are read when, who has stalled, and what is remembered of ended jobs beyond what was promised.
//!
//! ```text
//!   worker socket readable ---> links: messages --.                           .--> Spawn:  a request to the launcher
//!   worker process ended   ---> links: exit ------|                           |--> Run:    into the worker's outbox
//!   launcher has a process ---> Launched ---------|                           |
//!   a deadline passed      ---> Tick -------------|---> inbox ---> core ------|--> Kill:   a signal
//!   submit, cancel, drain  -----------------------'                           '--> Finish: the subscribers are called
//!
//!   at the end of the turn (an immediate): the core dispatches what has come in this turn, every outbox that is not empty
//!   is written once, the timer is set
//! ```
//!
//! The state of the hub is split into parts. Each part owns its fields and can be read alone:
//!
//! | part | what it knows | file |
//! |---|---|---|
//! | `processes` | the living worker processes, and what is being sent to each | `processes.rs` |
//! | `launches` | processes that are being started, and the programs that they run | `launches.rs` |
//! | `introductions` | workers that say what they offer, and what tasks say of themselves | `introductions.rs` |
//! | `segments` | shared memory that is being made for large payloads, and returned | `segments.rs` |
//! | `trays` | the jobs that lie ready for workers while these are busy | `trays.rs` |
//! | `here` | the jobs that threads of this process do | `here.rs` |
//! | `records` | what the core does not know of jobs: bytes, subscribers, reports, dead letters | `records.rs` |
//! | `checks` | when the periodic checks are due: stalls, memory, sweeps | `check_schedule.rs` |
//! | `meters` | what is measured of jobs that have ended, by task | `meters.rs` |
//! | `callbacks` | who is called when something has happened | `callbacks.rs` |
//! | `time` | the core's time, without the gaps in which this process did not run | `gaps.rs` |
//! | `baselines` | what workers had used when their jobs began | `usage.rs` |
//! | `authors` | which jobs ended lately, and may have printed a line that is read now | `authors.rs` |
//! | `printed` | the last lines that workers have printed | `printed.rs` |
//! | `start_failures` | which failed starts the log has reported | `notices.rs` |
//!
//! The event loop calls subscribers, the hub never does. So a subscriber may do anything, such as submit more jobs.

mod ask;
mod authors;
mod callbacks;
mod check_schedule;
mod config;
mod dead;
mod ending;
mod explain;
mod filter;
mod find;
mod finished;
mod gaps;
mod here;
mod holding;
mod introductions;
mod launches;
mod links;
mod live_jobs;
mod meters;
mod notices;
mod pages;
mod parts;
mod pauses;
mod printed;
mod processes;
mod reading;
mod records;
mod segments;
mod silent_starts;
mod stalls;
mod strays;
#[cfg(test)]
mod tests;
mod trays;
mod turns;
mod unserved;
mod usage;
mod view;

use crate::end_of_turn::EndOfTurn;
use crate::job::{Input, Job};
use crate::log::Log;
use authors::Authors;
use bytes::Bytes;
use callbacks::Callbacks;
use check_schedule::CheckSchedule;
use gaps::CoreClock;
use here::JobsHere;
use introductions::Introductions;
use launches::{Launches, Start};
use live_jobs::LiveJob;
use meters::TaskMeters;
use notices::StartFailures;
use offload_core::Core;
use offload_core::action::{Accepted, Action, Actions, Kill};
use offload_core::config::CoreConfig;
use offload_core::event::Event;
use offload_core::ids::{JobId, Mono, WorkerId};
use offload_event_loop::{Context, Lingerer, LoopHandle, OnGone};
use offload_protocol::messages::ToWorker;
use offload_protocol::nouns::{ErrorDetail, MediaType, OutcomeCode};
use printed::Printed;
use processes::WorkerProcesses;
use records::Records;
use rustix::process::Signal;
use segments::Segments;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::Duration;
use trays::Trays;
use usage::Baselines;

pub(crate) use config::HubConfig;
pub use config::{PoolConfig, StartError, default_workers};
pub(crate) use here::IoTools;
pub(crate) use holding::OutputCharge;
pub(crate) use live_jobs::Subscriber;
pub(crate) use parts::{StreamItem, StreamReader};
pub(crate) use printed::WhichLines;

/// A shared reference to the hub.
pub(crate) type HubRef = Rc<RefCell<Hub>>;

/// The hub. See the module's documentation.
pub(crate) struct Hub {
    me: Weak<RefCell<Hub>>,
    handle: LoopHandle,
    core: Core,
    inbox: VecDeque<PendingEvent>,
    /// Empty between events. It is kept so that its memory is used again.
    actions: Actions,
    turn: EndOfTurn,
    log: Rc<Log>,
    time: CoreClock,
    processes: WorkerProcesses,
    launches: Launches,
    introductions: Introductions,
    segments: Segments,
    trays: Trays,
    here: JobsHere,
    linger_cores: usize,
    lingerer: Lingerer,
    records: Records,
    checks: CheckSchedule,
    callbacks: Callbacks,
    start_failures: StartFailures,
    authors: Authors,
    baselines: Baselines,
    printed: Printed,
    meters: TaskMeters,
    _on_loop_gone: OnGone,
}

/// Called when a reload has ended: with nothing if it succeeded, or with the reason why it was rolled back.
type OnReloaded = Box<dyn FnOnce(Result<(), String>, &mut Context)>;

/// Called with the reason when the first worker of a program cannot be started.
pub(crate) type OnNoWorker = Box<dyn FnOnce(String, &mut Context)>;

/// A callback without arguments, called when something has happened.
pub(crate) type Then = Box<dyn FnOnce(&mut Context)>;

/// A job that was refused.
pub(crate) struct RefusedJob {
    /// Why the job was refused.
    pub(crate) error: ErrorDetail,
    /// The task that it asked for.
    pub(crate) task: String,
    /// The subscriber that was to be called when the job ends.
    pub(crate) subscriber: Option<Subscriber>,
}

/// An event on its way to the core, with the output or the checkpoint that it announces.
struct PendingEvent {
    event: Event,
    payload: Payload,
}

/// What came with an event; usually nothing.
#[derive(Default)]
struct Payload {
    media_type: MediaType,
    bytes: Bytes,
}

impl From<Event> for PendingEvent {
    fn from(event: Event) -> PendingEvent {
        PendingEvent { event, payload: Payload::default() }
    }
}

impl Hub {
    /// Starts the hub and requests the workers.
    ///
    /// # Errors
    /// [`StartError::Config`] and [`StartError::Loop`].
    pub(crate) fn start(
        config: CoreConfig,
        hub: HubConfig,
        log: Rc<Log>,
        handle: LoopHandle,
    ) -> Result<HubRef, StartError> {
        let HubConfig { programs, affinity, linger_cores, sweep, launcher, io_tools } = hub;
        let here = io_tools.as_ref().map(IoTools::tasks).unwrap_or_default();
        let core = Core::new(CoreConfig { here, ..config }).map_err(StartError::Config)?;
        let segments = Segments::new(core.config().max_bytes);
        let hub = Rc::new_cyclic(|me| {
            RefCell::new(Hub {
                me: me.clone(),
                lingerer: handle.lingerer(),
                records: Records::new(Hub::asker(me.clone(), handle.clone())),
                _on_loop_gone: Hub::drop_unserved_with_loop(me, &handle),
                handle,
                core,
                inbox: VecDeque::new(),
                actions: Actions::new(),
                turn: EndOfTurn::default(),
                log,
                time: CoreClock::new(),
                processes: WorkerProcesses::default(),
                launches: Launches::new(launcher, programs, affinity),
                introductions: Introductions::default(),
                segments,
                trays: Trays::default(),
                here: JobsHere::with(io_tools),
                linger_cores,
                checks: CheckSchedule::new(sweep),
                callbacks: Callbacks::default(),
                start_failures: StartFailures::default(),
                authors: Authors::default(),
                baselines: Baselines::default(),
                printed: Printed::default(),
                meters: TaskMeters::default(),
            })
        });
        hub.borrow_mut().describe_here();
        hub.borrow_mut().watch_launcher()?;
        hub.borrow_mut().handle_event(Event::Tick);
        Ok(hub)
    }

    /// Calls a function with the hub if it still exists. Callbacks of the event loop use this.
    fn with(hub: &Weak<RefCell<Hub>>, action: impl FnOnce(&mut Hub)) {
        if let Some(hub) = hub.upgrade() {
            action(&mut hub.borrow_mut());
        }
    }

    /// Submits a job whose output is wanted as a whole. If the job is accepted, the subscriber is called when it ends.
    ///
    /// # Errors
    /// Why the job is refused, and the subscriber.
    pub(crate) fn submit(
        &mut self,
        mut job: Job,
        keep_output: bool,
        subscriber: Option<Subscriber>,
    ) -> Result<Accepted, RefusedJob> {
        job.options.stream = false;
        self.admit(job, keep_output, subscriber)
    }

    fn admit(
        &mut self,
        mut job: Job,
        keep_output: bool,
        subscriber: Option<Subscriber>,
    ) -> Result<Accepted, RefusedJob> {
        let request = job.take_request(keep_output);
        // Events that came earlier are handled earlier: they may make room.
        if !self.inbox.is_empty() || self.records.has_ended_charges() {
            self.drain_inbox();
        }
        let mut actions = std::mem::take(&mut self.actions);
        let verdict = self.core.submit_unsettled(self.time.advance(), &request, &mut actions);
        let result = match verdict {
            Ok(accepted) if accepted.is_known => Ok((accepted, subscriber)),
            Ok(accepted) => {
                let live_job = LiveJob::new(job, subscriber);
                self.records.open(accepted.job, live_job, &self.handle);
                Ok((accepted, None))
            }
            Err(error) => Err((error, subscriber)),
        };
        self.perform_all(actions, Payload::default());
        self.drain_inbox();
        let (accepted, subscriber) = match result {
            Ok(accepted) => accepted,
            Err((error, subscriber)) => return Err(RefusedJob { error, task: request.task, subscriber }),
        };
        match subscriber.map_or(Ok(()), |subscriber| self.subscribe(accepted.job, subscriber)) {
            Ok(()) => Ok(accepted),
            Err(subscriber) => {
                let error = self.why_not_told(accepted.job);
                Err(RefusedJob { error, task: request.task, subscriber: Some(subscriber) })
            }
        }
    }

    /// Why a subscriber cannot be told how the job of a known key ends or ended.
    fn why_not_told(&self, job: JobId) -> ErrorDetail {
        match self.records.finished().record(job) {
            Some(record) => record.no_output(),
            None => ErrorDetail::new(OutcomeCode::Overloaded, "too many wait for the job of this key"),
        }
    }

    /// Refuses a job before its input of `input_bytes` has come, if it would be refused now. Room for the input is not looked at.
    ///
    /// # Errors
    /// Why; it is counted like any refusal.
    pub(crate) fn refuse_early(&mut self, mut job: Job, input_bytes: u64) -> Result<(), ErrorDetail> {
        if !self.inbox.is_empty() || self.records.has_ended_charges() {
            self.drain_inbox();
        }
        self.settle();
        job.has_room = true;
        let mut request = job.take_request(false);
        request.input_bytes = input_bytes;
        let verdict = self.core.why_refused(self.time.advance(), &request).map_or(Ok(()), Err);
        verdict.inspect_err(|error| self.refused(error.code))
    }

    /// Counts a job that was refused before it reached the hub.
    pub(crate) fn refused(&mut self, code: OutcomeCode) {
        self.handle_event(Event::Refused { code });
    }

    /// Cancels a job. Its subscribers are called.
    pub(crate) fn cancel(&mut self, job: JobId) {
        self.handle_event(Event::Cancel { job });
    }

    /// Cancels a job because its client is gone. In a forked child it is not: it waits in the parent.
    pub(crate) fn client_is_gone(&mut self, job: JobId) {
        if self.launches.are_of_parent() {
            return;
        }
        self.handle_event(Event::ClientGone { job });
    }

    /// Applies other limits and times.
    pub(crate) fn configure(&mut self, config: CoreConfig) {
        self.handle_event(Event::Configure(Box::new(config)));
        self.configure_segments();
    }

    /// Passes an event to the core, and all events that follow from it.
    fn handle_event(&mut self, event: Event) {
        self.inbox.push_back(event.into());
        self.drain_inbox();
    }

    fn drain_inbox(&mut self) {
        self.release_ended_charges();
        while let Some(PendingEvent { event, payload }) = self.inbox.pop_front() {
            let instead = self.reject_if_unsent(&event).or_else(|| self.check_tray(&event));
            let event = instead.unwrap_or(event);
            if !self.core.is_settled() && !event.may_be_settled_later() {
                // What follows from earlier events is carried out, and told, before this one.
                self.inbox.push_front(PendingEvent { event, payload });
                self.settle_now();
                continue;
            }
            let mut actions = std::mem::take(&mut self.actions);
            let now = self.time.advance();
            self.authors.enter(self.handle.polls(), now);
            if let Some((worker, job)) = self.job_that_ends(&event) {
                self.authors.ended(worker, job);
            }
            if matches!(event, Event::Started { .. }) {
                self.schedule_baselines();
            }
            self.core.handle_unsettled(now, event, &mut actions);
            self.perform_all(actions, payload);
        }
        self.tell_of_room();
        self.schedule_end_of_turn();
    }

    /// Carries out the actions that the core returned for one event or one request.
    fn perform_all(&mut self, mut actions: Actions, mut payload: Payload) {
        actions.drain(..).for_each(|action| self.perform(action, &mut payload));
        self.actions = actions;
    }

    fn perform(&mut self, action: Action, payload: &mut Payload) {
        match action {
            Action::Spawn { worker, program, version, slot } => {
                self.spawn(Start { worker, program, version, slot });
            }
            Action::Run { worker, job, attempt, resume } => self.run(worker, job, attempt, resume),
            Action::RunHere { job, within } => self.run_here(job, within),
            Action::StopHere { job } => self.stop_here(job),
            Action::Batch { worker, jobs } => self.send(worker, &ToWorker::Batch { jobs }),
            Action::Prefetch { worker, job, attempt } => self.prefetch(worker, job, attempt),
            Action::TakeBack { worker, job } => self.take_back(worker, job),
            Action::Yield { worker, job } => self.send(worker, &ToWorker::Yield { job: job.0 }),
            Action::Keep { job } => self.records.keep_checkpoint(job, std::mem::take(payload).bytes),
            Action::Collect { job } => self.collect(job, &payload.bytes),
            Action::PassOn { job } => self.pass_on(job, std::mem::take(payload).bytes),
            Action::DropParts { job } => self.drop_parts(job),
            Action::Credit { worker, job, bytes } => {
                self.send(worker, &ToWorker::Credit { job: job.0, bytes });
            }
            Action::CancelRun { worker, job } => self.send(worker, &ToWorker::Cancel { job: job.0 }),
            Action::Dismiss { worker } => self.send(worker, &ToWorker::Drain),
            Action::Kill { worker, how } => self.kill(worker, how),
            Action::Ready { worker, slot } => self.ready(worker, slot),
            Action::Finish(ended) if ended.error.is_none() => self.finish(&ended, std::mem::take(payload)),
            Action::Finish(ended) => self.finish(&ended, Payload::default()),
            Action::Release { job, why } => self.end_promise(job, why),
            Action::ForgetLetter { job } => drop(self.records.dead_mut().forget(job)),
            Action::Reloaded { version, end } => self.reloaded(version, end),
            Action::Log(notice) => self.log_notice(&notice),
            Action::Over => {
                self.launches.give_up_all();
                let told = self.callbacks.take_ended();
                self.call_soon(told);
            }
        }
    }

    fn run(&mut self, worker: WorkerId, job: JobId, attempt: u32, resume: bool) {
        let Some(live_job) = self.records.live(job) else { return };
        if let Some(state) = live_job.checkpoint().filter(|_| resume) {
            self.processes.send(worker, &ToWorker::Resume { job: job.0 }, state);
        }
        let message = run_message(&self.core, self.time.last_told(), live_job, (job, attempt));
        match &live_job.input {
            Input::Bytes(input) => {
                self.processes.send(worker, &message, input);
                self.heed_segments(worker);
            }
            Input::File(file) => {
                let input_file = ToWorker::InputFile { job: job.0, bytes: file.bytes() };
                self.processes.send_with(worker, &input_file, file.clone());
                self.processes.send(worker, &message, &Bytes::new());
            }
        }
    }

    fn send(&mut self, worker: WorkerId, message: &ToWorker<'_>) {
        self.processes.send(worker, message, &Bytes::new());
    }

    fn kill(&mut self, worker: WorkerId, how: Kill) {
        if self.give_up_launch(worker) {
            return;
        }
        let signal = match how {
            Kill::Term => Signal::TERM,
            Kill::Kill => Signal::KILL,
        };
        let Some((unsent, signalled)) = self.processes.terminate(worker, signal) else { return };
        if let Err(error) = signalled {
            let pid = self.processes.pid(worker).unwrap_or(0);
            self.log.error(format_args!("cannot signal worker process {pid}: {error}"));
        }
        if !unsent.is_empty() {
            self.inbox.push_front(Event::Unsent { worker, jobs: unsent }.into());
        }
        if how == Kill::Kill {
            self.condemn(worker);
        }
    }
}

/// The message that gives a job to a worker. `now` is the time at which the core has decided it.
fn run_message<'a>(
    core: &'a Core,
    now: Mono,
    live_job: &LiveJob,
    (job, attempt): (JobId, u32),
) -> ToWorker<'a> {
    let limits = core.time_limits(now, job);
    ToWorker::Run {
        job: job.0,
        attempt,
        task: core.jobs().get(job).map_or("", |job| core.task_name(job)),
        media_type: live_job.media_type.clone(),
        timeout_ms: limit_millis(limits.run),
        deadline_ms: limit_millis(limits.to_deadline),
        metadata: live_job.metadata(),
    }
}

/// A limit as it is sent: 0 is no limit, so a time that is over is one millisecond.
fn limit_millis(limit: Option<Duration>) -> u64 {
    limit.map_or(0, |limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1))
}
