//! The hub: it carries what happened to the core, and carries out what the core wants. It decides nothing.
//!
//! ```text
//!   worker socket readable ---> crew: messages --.                           .--> Spawn:  an order to the launcher
//!   worker process ended   ---> crew: exit ------|                           |--> Run:    into the worker's outbox
//!   launcher has a process ---> Launched --------|                           |
//!   time is up             ---> Tick ------------|---> inbox ---> core ------|--> Kill:   a signal
//!   submit, cancel, drain  ----------------------'                           '--> Finish: the listeners are called
//!
//!   at the end of the turn (an immediate): every outbox with something in it is written once, the timer is set
//! ```
//!
//! Listeners are called by the loop, never from in here, so they may do anything, such as submit more.

mod ask;
mod crew;
mod dead;
mod ending;
mod explain;
mod finished;
mod gaps;
mod holding;
mod launches;
mod notices;
mod orders;
mod pages;
mod stalls;
mod strays;
mod unwritten;
mod view;

use crate::job::Job;
use crate::log::Log;
use crate::pool::StartError;
use crate::public_id::PublicIds;
use crate::workers::{Launcher, Program};
use bytes::Bytes;
use crew::Crew;
use dead::DeadLetters;
use finished::FinishedJobs;
use gaps::OwnTime;
use launches::Launch;
use notices::Rows;
use offload_core::Core;
use offload_core::action::{Action, Actions, Kill};
use offload_core::config::CoreConfig;
use offload_core::event::Event;
use offload_core::ids::{JobId, Mono, Ticket, Version, WorkerId};
use offload_event_loop::{Context, HandleId, LoopHandle, TimerId};
use offload_protocol::messages::ToWorker;
use offload_protocol::nouns::{ContentType, ErrorDetail, OutcomeCode};
use orders::Order;
use rustix::process::Signal;
use stalls::NextLook;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};
use std::time::Instant;
use strays::Sweeps;

pub(crate) use holding::Undelivered;
pub(crate) use orders::Listener;

/// The hub as its owners hold it.
pub(crate) type HubRef = Rc<RefCell<Hub>>;

/// See the module's documentation.
pub(crate) struct Hub {
    me: Weak<RefCell<Hub>>,
    handle: LoopHandle,
    log: Log,
    time: OwnTime,
    ids: PublicIds,
    core: Core,
    programs: Vec<Versions>,
    last_version: Version,
    /// The cores that workers are bound to; none if they are not.
    cores: Vec<usize>,
    crew: Crew,
    orders: BTreeMap<JobId, Order>,
    finished: FinishedJobs,
    inbox: VecDeque<Incoming>,
    actions: Actions,
    /// The order that the core is deciding on.
    staged: Option<Order>,
    /// What it decided.
    answer: Option<Result<Submitted, ErrorDetail>>,
    /// Outputs that were delivered, or dropped, and are on their clients' accounts still.
    delivered: holding::Delivered,
    /// Who wants to know when bytes were released.
    on_room: Vec<Then>,
    /// The output or the checkpoint that came with the event that the core is deciding on.
    payload: Option<(ContentType, Bytes)>,
    wake: Option<(Mono, TimerId)>,
    turn_ends: bool,
    on_ready: Vec<Then>,
    on_over: Vec<Then>,
    /// Who is told when the first worker of a program cannot be started.
    on_no_worker: Option<OnNoWorker>,
    on_reloaded: BTreeMap<Version, OnReloaded>,
    dead: DeadLetters,
    /// What the log was told of failed starts.
    rows: Rows,
    launcher: Launcher,
    /// Processes that are being started.
    launches: BTreeMap<WorkerId, Launch>,
    bell: Option<HandleId>,
    sweeps: Sweeps,
    last_measured: Option<WorkerId>,
    /// When stalled workers were last looked for.
    looked_at: Instant,
    next_look: NextLook,
    child_signals: Option<HandleId>,
}

/// What the hub is told beside the core's part.
pub(crate) struct HubConfig {
    /// What the workers run.
    pub(crate) programs: Vec<Program>,
    /// Each worker is bound to one core.
    pub(crate) affinity: bool,
    /// Starts them.
    pub(crate) launcher: Launcher,
    /// All children of this process that are no workers have escaped from one, and are to be killed.
    pub(crate) sweep: bool,
}

/// The versions of one program that may still be started.
type Versions = BTreeMap<Version, Program>;

/// Who is told what became of a reload: none if it is done, or why it was taken back.
type OnReloaded = Box<dyn FnOnce(Option<String>, &mut Context)>;

/// Who is told why a program cannot be started.
pub(crate) type OnNoWorker = Box<dyn FnOnce(String, &mut Context)>;

/// What to do when something has come about.
pub(crate) type Then = Box<dyn FnOnce(&mut Context)>;

/// A job that was refused.
pub(crate) struct Refused {
    /// Why.
    pub(crate) error: ErrorDetail,
    /// Who wanted to be told how it ends.
    pub(crate) listener: Option<Listener>,
}

/// A job that was taken.
pub(crate) struct Submitted {
    /// Its number.
    pub(crate) job: JobId,
    /// It was there already, under the same key.
    pub(crate) is_known: bool,
}

/// An event on its way to the core, with the output or the checkpoint that it announces.
struct Incoming {
    event: Event,
    payload: Option<(ContentType, Bytes)>,
}

impl From<Event> for Incoming {
    fn from(event: Event) -> Incoming {
        Incoming { event, payload: None }
    }
}

impl Hub {
    /// Starts the workers.
    ///
    /// # Errors
    /// [`StartError::Config`] and [`StartError::Loop`].
    pub(crate) fn start(
        config: CoreConfig,
        hub: HubConfig,
        log: Log,
        handle: LoopHandle,
    ) -> Result<HubRef, StartError> {
        let core = Core::new(config).map_err(StartError::Config)?;
        let HubConfig { programs, affinity, sweep, launcher } = hub;
        let cores = if affinity { usable_cores() } else { Vec::new() };
        let hub = Rc::new_cyclic(|me| {
            RefCell::new(Hub {
                me: me.clone(),
                crew: Crew::default(),
                handle,
                log,
                time: OwnTime::new(),
                ids: PublicIds::new(),
                core,
                programs: programs.into_iter().map(|program| Versions::from([(0, program)])).collect(),
                last_version: 0,
                cores,
                orders: BTreeMap::new(),
                finished: FinishedJobs::default(),
                inbox: VecDeque::new(),
                actions: Actions::new(),
                staged: None,
                answer: None,
                delivered: holding::Delivered::default(),
                on_room: Vec::new(),
                payload: None,
                wake: None,
                turn_ends: false,
                on_ready: Vec::new(),
                on_over: Vec::new(),
                on_no_worker: None,
                on_reloaded: BTreeMap::new(),
                dead: DeadLetters::default(),
                rows: Rows::default(),
                launcher,
                launches: BTreeMap::new(),
                bell: None,
                sweeps: Sweeps::new(sweep),
                last_measured: None,
                looked_at: Instant::now(),
                next_look: NextLook::Never,
                child_signals: None,
            })
        });
        hub.borrow_mut().listen_to_the_launcher()?;
        hub.borrow_mut().tell(Event::Tick);
        hub.borrow_mut().watch_for_stops();
        Ok(hub)
    }

    /// Does something with the hub if it is still there: how callbacks of the loop come in.
    fn with(hub: &Weak<RefCell<Hub>>, deed: impl FnOnce(&mut Hub)) {
        if let Some(hub) = hub.upgrade() {
            deed(&mut hub.borrow_mut());
        }
    }

    /// Submits a job. The listener is told how it ends, unless it is refused.
    ///
    /// # Errors
    /// Why it is refused, and the listener back.
    pub(crate) fn submit(
        &mut self,
        job: Job,
        keep_output: bool,
        listener: Option<Listener>,
    ) -> Result<Submitted, Refused> {
        let request = job.to_request(keep_output);
        self.staged = Some(Order::new(job, &request.client, listener, self.handle.hold()));
        self.tell(Event::Submit { ticket: Ticket(0), request });
        let answer = self.answer.take().expect("the core answers a submission before it does anything else");
        let listener = self.staged.take().and_then(Order::into_listener);
        match (answer, listener) {
            (Ok(submitted), Some(listener)) => match self.listen(submitted.job, listener) {
                Ok(()) => Ok(submitted),
                Err(listener) => {
                    let error = self.why_not_told(submitted.job);
                    Err(Refused { error, listener: Some(listener) })
                }
            },
            (Ok(submitted), None) => Ok(submitted),
            (Err(error), listener) => Err(Refused { error, listener }),
        }
    }

    /// Why nobody can be told how the job of a known key ends, or ended.
    fn why_not_told(&self, job: JobId) -> ErrorDetail {
        match self.finished.record(job) {
            Some(record) => ErrorDetail::new(OutcomeCode::StorageFull, record.why_no_output()),
            None => ErrorDetail::new(OutcomeCode::Overloaded, "too many wait for the job of this key"),
        }
    }

    /// Takes note of a job that was refused before it came here.
    pub(crate) fn refused(&mut self) {
        self.tell(Event::Refused);
    }

    /// Ends a job; its listeners are told.
    pub(crate) fn cancel(&mut self, job: JobId) {
        self.tell(Event::Cancel { job });
    }

    /// Calls `then` once a worker is ready; at once if one is.
    pub(crate) fn when_ready(&mut self, then: Then) {
        if self.core.slots().iter().any(offload_core::slots::Slot::is_ready) {
            return self.handle.set_pending(then);
        }
        self.on_ready.push(then);
    }

    /// Calls `then` with the reason if a start fails of a program that has had no worker yet.
    pub(crate) fn when_no_worker_starts(&mut self, then: OnNoWorker) {
        self.on_no_worker = Some(then);
    }

    /// Replaces the workers one by one by ones of these programs, as many as there were before; `then` is called with
    /// nothing when that is done, or with why it was taken back.
    pub(crate) fn reload(&mut self, programs: Vec<Program>, then: OnReloaded) {
        self.last_version += 1;
        let version = self.last_version;
        for (versions, program) in self.programs.iter_mut().zip(programs) {
            versions.insert(version, program);
        }
        self.on_reloaded.insert(version, then);
        self.tell(Event::Reload { version });
    }

    fn reloaded(&mut self, version: Version, rolled_back: Option<String>) {
        if let Some(then) = self.on_reloaded.remove(&version) {
            self.handle.set_pending(move |cx| then(rolled_back, cx));
        }
        let core = &self.core;
        for (program, versions) in self.programs.iter_mut().enumerate() {
            versions.retain(|&version, _| core.may_start_version(program, version));
        }
    }

    /// Other limits and times.
    pub(crate) fn configure(&mut self, config: CoreConfig) {
        self.tell(Event::Configure(Box::new(config)));
    }

    /// Tells the core what happened, and whatever happens because of that.
    fn tell(&mut self, event: Event) {
        self.inbox.push_back(event.into());
        self.work_off_inbox();
    }

    fn work_off_inbox(&mut self) {
        self.release_delivered();
        let releases = self.core.ledger().releases();
        while let Some(Incoming { event, payload }) = self.inbox.pop_front() {
            self.payload = payload;
            let mut actions = std::mem::take(&mut self.actions);
            self.core.handle(self.now(), self.if_it_can_be(event), &mut actions);
            actions.drain(..).for_each(|action| self.perform(action));
            self.actions = actions;
        }
        self.payload = None;
        if self.core.ledger().releases() != releases {
            self.on_room.drain(..).for_each(|then| self.handle.set_pending(then));
        }
        self.at_the_end_of_the_turn();
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Spawn { worker, program, version, slot } => self.spawn(worker, program, version, slot),
            Action::Run { worker, job, attempt, resume } => self.run(worker, job, attempt, resume),
            Action::Yield { worker, job } => self.send(worker, &ToWorker::Yield { job: job.0 }),
            Action::Keep { job } => self.keep(job),
            Action::CancelRun { worker, job } => self.send(worker, &ToWorker::Cancel { job: job.0 }),
            Action::Dismiss { worker } => self.send(worker, &ToWorker::Drain),
            Action::Kill { worker, how } => self.kill(worker, how),
            Action::Accepted { job, is_known, .. } => self.accept(job, is_known),
            Action::Rejected { error, .. } => self.answer = Some(Err(error)),
            Action::Finish(ended) => self.finish(&ended),
            Action::Release { job, why } => self.end_promise(job, why),
            Action::ForgetLetter { job } => self.dead.forget(job),
            Action::Reloaded { version, rolled_back } => self.reloaded(version, rolled_back),
            Action::Log(notice) => self.note(&notice),
            Action::Over => {
                // Nobody waits any more for those that have not come.
                self.launches.clear();
                self.on_over.drain(..).for_each(|then| self.handle.set_pending(then));
            }
        }
    }

    fn run(&mut self, worker: WorkerId, job: JobId, attempt: u32, resume: bool) {
        let (Some(order), Some(member)) = (self.orders.get(&job), self.crew.get_mut(worker)) else { return };
        member.expect_progress();
        if let Some(state) = order.checkpoint.as_ref().filter(|_| resume) {
            member.send(&ToWorker::Resume { job: job.0 }, state);
        }
        let message = ToWorker::Run { job: job.0, attempt, task: &order.task, content: order.content };
        member.send(&message, &order.input);
        self.crew.mark(worker);
    }

    fn send(&mut self, worker: WorkerId, message: &ToWorker<'_>) {
        let Some(member) = self.crew.get_mut(worker) else { return };
        member.expect_progress();
        member.send(message, &Bytes::new());
        self.crew.mark(worker);
    }

    fn kill(&mut self, worker: WorkerId, how: Kill) {
        if self.give_up_launch(worker) {
            return;
        }
        let Some(member) = self.crew.get_mut(worker) else { return };
        let signal = match how {
            Kill::Term => Signal::TERM,
            Kill::Kill => Signal::KILL,
        };
        if let Err(error) = member.process.signal(signal) {
            self.log.error(format_args!("cannot signal worker process {}: {error}", member.process.pid()));
        }
        let unsent = member.condemn();
        if !unsent.is_empty() {
            self.inbox.push_front(Event::Unsent { worker, jobs: unsent }.into());
        }
    }

    fn accept(&mut self, job: JobId, is_known: bool) {
        if !is_known {
            let order = self.staged.take().expect("only a staged order can be accepted");
            self.orders.insert(job, order);
        }
        self.answer = Some(Ok(Submitted { job, is_known }));
    }

    /// The state that came with the event in hand is what the job goes on from.
    fn keep(&mut self, job: JobId) {
        if let (Some(order), Some((_, state))) = (self.orders.get_mut(&job), self.payload.take()) {
            order.checkpoint = Some(state);
        }
    }

    /// Once a turn: outboxes are written and the timer is set. All that happens in a turn shares these.
    fn at_the_end_of_the_turn(&mut self) {
        self.watch_for_stalls();
        if !std::mem::replace(&mut self.turn_ends, true) {
            let me = self.me.clone();
            self.handle.set_immediate(move |_| Hub::with(&me, Hub::end_turn));
        }
    }

    fn end_turn(&mut self) {
        self.turn_ends = false;
        if !self.delivered.is_empty() {
            self.work_off_inbox();
        }
        self.flush_crew();
        self.set_timer();
    }
}

/// The cores that this process may run on, by number.
fn usable_cores() -> Vec<usize> {
    let may_use = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0));
    let is_usable = |core: &usize| may_use.as_ref().is_ok_and(|cores| cores.is_set(*core).unwrap_or(false));
    (0..nix::sched::CpuSet::count()).filter(is_usable).collect()
}
