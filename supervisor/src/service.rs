//! The service: everything that a front may ask of the supervisor. A front is the code that talks to clients over one
//! kind of connection: `server.rs` is the front for the local socket; one for HTTP would be another. A front knows its
//! sockets and its bytes, and reaches jobs, workers and limits through the service only. To write a front it is enough
//! to read this file, the types in its signatures, and `tests/spec/second_front.rs`, which is a small complete one.
//!
//! ```text
//!   client ==bytes==> front --- requests --> Session --.                    .--> hub --> core (decides)
//!                       |                    Account --+---> Service -------|     '----> worker processes
//!   client <==bytes==== front <-- Reply ---------------'                    '--> I/O threads (reload)
//!                               now, or later through
//!                               the callback `on_reply`
//! ```
//!
//! # What a front does
//!
//! When the front starts, it calls [`Service::on_end`].
//!
//! For each connection:
//!
//! - A client connects, and there are fewer than [`Service::connections`] allow, over all fronts that share these places, or fewer
//!   than [`Service::other_connections`]: [`Service::open`]. The front keeps the [`Session`] as long as the connection.
//! - The client states its name: [`Session::introduce`].
//! - A request body is announced: if it is longer than [`Service::max_payload`], [`Service::refuse_too_large`];
//!   otherwise [`Account::has_room`]. If there is no room: [`Service::when_room`], or [`Session::refuse_input`]. A front
//!   that rejects a job by itself calls [`Service::count_refused`].
//! - Bytes of the body have arrived: [`Account::set_arriving`].
//! - A request body has arrived completely: [`Session::submit`].
//! - A request that is one job, and is answered at its end, needs no session: [`Service::asker`], [`Service::account`],
//!   [`Service::run`].
//! - The client asks how a job ended: [`Session::wait`], [`Service::result`].
//! - The client asks for anything else: [`Service::cancel`], [`explain`](Service::explain),
//!   [`status`](Service::status), [`tasks`](Service::tasks), [`Session::dead_letter`].
//! - The client asks for a list: [`Service::page`], [`Service::jobs_page`]. The front gets the rows as values,
//!   one by one, and ends the page when its bytes are enough. It makes the next page when the client has taken this one.
//! - The client looks after the supervisor: [`Session::drain`], [`Session::stop`], [`Session::reload`].
//! - Answers are queued for writing: [`Account::set_outgoing`].
//! - The client has received a whole output: [`Collection::complete`].
//! - The connection is gone: the front drops the [`Session`].
//!
//! When the callback of [`Service::on_end`] is called, the front writes its last answers and drops the
//! [`LastAnswers`].
//!
//! # Rules
//!
//! - Every request has a number that the front chooses (a ticket), and one final answer. A method that returns a
//!   [`Reply`] or a [`Page`](crate::views::Page) has answered. A method that returns `None` answers later: the session's
//!   callback gets the ticket and the reply. The callback is never called from inside a method of the service, so a front
//!   may hold a borrow of itself while it calls one. A job has two answers: [`Reply::Accepted`] at once and
//!   [`Reply::Report`] at its end.
//! - Everything held for a client belongs to its [`Session`]: the jobs that it waits for, the answers that it is owed,
//!   the bytes on its [`Account`]. Dropping the session gives all of it up. A job that nobody waits for any more is
//!   cancelled if it has not started, unless it was submitted as detached or with an idempotency key.
//! - The front applies back-pressure: it does not read from a client for whom there is no room.
//! - Nothing here blocks, and everything happens on the event loop's thread.
//!
//! Jobs are named by their public ids, as clients know them.
//!
//! # What belongs to the process
//!
//! All fronts of a process share one service. Whichever of them starts it does so once, and gives the others a clone:
//!
//! - [`Service::start`]; or, if the front has a place that outlives the process, such as a socket with a lock file:
//!   [`Prerequisites::prepare`], then it takes the place, then [`Prerequisites::take_over`] and [`Service::start_with`]. In this order a
//!   supervisor that cannot serve takes no place from another one, and nothing is killed by a supervisor that does not own
//!   the place.
//! - [`Service::stop_if_no_worker_starts`], if the program is to end rather than to try again.
//! - It catches the signals of the process: [`Service::reload`], [`Service::on_ending_signal`].
//!
//! Every front may write to [`Service::log`], and may end the supervisor when it can serve nobody any more:
//! [`Service::drain_because`].

mod account;
mod asker;
mod debug;
mod descriptors;
mod ended;
mod error;
mod in_flight;
mod lists;
mod prerequisites;
mod reload;
mod reply;
mod session;
mod shutdown;
mod stage;
mod streams;
mod waits;

use crate::hub::{Hub, HubRef, WhichLines};
use crate::limits::CONNECTIONS_MAX;
use crate::views::{EndedWorker, GlanceView, IoPoolView, Meters, TaskLoad, TaskView, TasksSummary};
use descriptors::Descriptors;
use in_flight::Requests;
use offload_core::ids::JobId;
use offload_event_loop::io_pool::{IoFuture, IoPool, IoPoolConfig, IoPoolStats};
use offload_event_loop::{Context, LoopHandle, OnGone, WATCHDOG_THRESHOLD, Watchdog};
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use reload::Reloads;
use rustix::process::geteuid;
use session::Sessions;

use shutdown::Shutdown;
use std::cell::RefCell;
use std::fmt;
use std::rc::{Rc, Weak};

pub use crate::hub::PoolConfig;
pub use crate::log::Log;
pub use crate::peer::{Peer, is_client_name};
pub use account::Account;
pub use asker::{Asker, RunningJob};
pub use descriptors::Connections;
pub use error::ServiceStartError;
pub use in_flight::{InFlight, Pass};
pub use prerequisites::{Generations, Prerequisites};
pub use reload::{Configuration, Exchange, FixedSetting, Ignored, Reload};
pub use reply::{Collection, Document, HeldPart, Reply, Report, StreamPart};
pub use session::{OnReply, Session, Submission, Ticket};
pub use shutdown::{LastAnswers, ServerEnd};
pub use stage::Stage;

/// The service. See the module's documentation. Cheap to clone. The event loop runs until the service has drained or
/// was stopped.
#[derive(Clone)]
pub struct Service(Rc<Inner>);

/// The state that all clones share. Each part has a cell of its own, which is not borrowed while foreign code is
/// called.
struct Inner {
    me: Weak<Inner>,
    /// Dropped before the log, because the watchdog may still write to the log.
    _watchdog: Option<Watchdog>,
    hub: HubRef,
    log: Rc<Log>,
    io_pool: Rc<IoPool>,
    handle: LoopHandle,
    descriptors: Descriptors,
    shutdown: RefCell<Shutdown>,
    _on_loop_gone: OnGone,
    requests: Requests,
    reloads: RefCell<Reloads>,
    sessions: RefCell<Sessions>,
}

/// How a service is set up.
#[derive(Clone)]
pub struct ServiceConfig {
    /// The workers and their limits.
    pub pool: PoolConfig,
    /// Threads for blocking work, such as reading the configuration.
    pub io_threads: usize,
    /// Reads the configuration again for a reload. Without this function, a reload restarts the same programs.
    pub reload: Option<Reload>,
    /// Settings that a reload cannot change. A reload reports which of them were changed without effect.
    pub fixed: Vec<FixedSetting>,
    /// Descriptors to set aside for connections of fronts that have places of their own, such as HTTP.
    pub other_connections: usize,
}

impl ServiceConfig {
    /// A service with this pool: four threads for blocking work, and a reload restarts the same programs. Descriptors are set aside for
    /// as many connections of other fronts as the local socket may have; there are fewer if they are scarce.
    pub fn with(pool: PoolConfig) -> ServiceConfig {
        ServiceConfig {
            pool,
            io_threads: IoPoolConfig::default().threads,
            reload: None,
            fixed: Vec::new(),
            other_connections: CONNECTIONS_MAX,
        }
    }
}

/// A job that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// The job has not ended.
    Live(JobId),
    /// The job has ended and is remembered.
    Ended(JobId),
}

impl Service {
    /// Starts the workers. Jobs may be submitted at once; they wait until a worker is ready.
    ///
    /// # Errors
    /// A [`ServiceStartError`]. Nothing is left behind.
    pub fn start(config: ServiceConfig, cx: &mut Context) -> Result<Service, ServiceStartError> {
        Service::start_with(Prerequisites::prepare(config)?, cx)
    }

    /// Starts the workers, for a front that does something between [`Prerequisites::prepare`] and this.
    ///
    /// # Errors
    /// The same as for [`Service::start`], except [`ServiceStartError::Descriptors`].
    pub fn start_with(prerequisites: Prerequisites, cx: &mut Context) -> Result<Service, ServiceStartError> {
        let Prerequisites { config, descriptors, generation, log } = prerequisites;
        let handle = cx.handle();
        let io_config = IoPoolConfig { threads: config.io_threads, ..IoPoolConfig::default() };
        let io_pool = Rc::new(IoPool::new(cx, io_config).map_err(ServiceStartError::Threads)?);
        let mut warn = log.warner();
        // If the watchdog's thread cannot be created, the event loop runs without being watched.
        let watchdog =
            handle.watchdog(WATCHDOG_THRESHOLD, move |blocked| warn(format_args!("{blocked}"))).ok();
        let reloads = Reloads::new(config.reload, config.fixed, config.pool.programs.clone());
        let (core, own) = (config.pool.core(), config.pool.into_hub(generation, || Ok(Rc::clone(&io_pool)))?);
        let hub = Hub::start(core, own, Rc::clone(&log), handle.clone())?;
        let service = Service(Rc::new_cyclic(|me| Inner {
            me: me.clone(),
            _watchdog: watchdog,
            hub,
            log,
            io_pool,
            shutdown: RefCell::new(Shutdown::new(handle.hold())),
            _on_loop_gone: Service::drop_fronts_with_loop(me, &handle),
            requests: Requests::default(),
            handle,
            descriptors,
            reloads: RefCell::new(reloads),
            sessions: RefCell::default(),
        }));
        service.warn_of_privileges();
        Ok(service)
    }

    /// Calls `then` on the event loop once a worker is ready. If no worker ever is, `then` is never called.
    pub fn when_ready(&self, then: impl FnOnce(&mut Context) + 'static) {
        self.hub().borrow_mut().when_ready(Box::new(then));
    }

    /// How a job ended, with its output, which is charged to this client until the report is dropped. A refusal if the job has not
    /// ended.
    pub fn result(&self, name: &str, account: &Account) -> Reply {
        match self.find(name) {
            Ok(Found::Ended(job)) => self.result_of(job, account),
            Ok(Found::Live(_)) => Reply::refusal(
                OutcomeCode::Unavailable,
                format!("the job has not ended; `offload wait {name}` waits for it"),
            ),
            Err(error) => Reply::Refusal(error),
        }
    }

    /// Cancels a job. Clients that wait for it are told that it has ended.
    pub fn cancel(&self, name: &str) -> Reply {
        let (job, was_live) = match self.find(name) {
            Ok(Found::Live(job)) => (job, true),
            Ok(Found::Ended(job)) => (job, false),
            Err(error) => return Reply::Refusal(error),
        };
        self.hub().borrow_mut().cancel(job);
        let state = self.hub().borrow().look_up(job).map(|record| record.report.outcome.as_str());
        Reply::document(Document::Cancelled { job: name.to_owned(), cancelled: was_live, state })
    }

    /// Cancels a job that lives, because its client is gone.
    pub fn client_is_gone(&self, name: &str) {
        if let Ok(Found::Live(job)) = self.find(name) {
            self.hub().borrow_mut().client_is_gone(job);
        }
    }

    /// Lines that workers have printed and that are kept, after the line of this number: [`Document::Printed`]. Of one slot or of
    /// one job only, if they are named.
    pub fn printed(&self, after: u64, slot: Option<u32>, job: &str) -> Reply {
        let hub = self.hub().borrow();
        let found = hub.find(job).filter(|job| hub.is_known_or_has_printed(*job));
        if found.is_none() && !job.is_empty() {
            return Reply::refusal(OutcomeCode::NoSuchJob, hub.why_unknown(job));
        }
        let slot = slot.map(|slot| slot as usize);
        if let Some(unknown) = slot.filter(|slot| !hub.has_slot(*slot)) {
            return Reply::refusal(
                OutcomeCode::BadRequest,
                format!("there is no slot {unknown}; `offload workers` shows those that there are"),
            );
        }
        Reply::document(Document::Printed(hub.printed(after, WhichLines { slot, job: found })))
    }

    /// Starts nothing new of this task, or of any if the name is empty: jobs are accepted and wait. The answer is
    /// [`Document::Paused`], or a refusal if no worker has offered such a task.
    pub fn pause(&self, task: &str) -> Reply {
        let paused = self.hub().borrow_mut().pause_task(task);
        self.what_is_paused(paused)
    }

    /// Ends the pause of this task, or all pauses if the name is empty. The answer is that of [`Service::pause`].
    pub fn resume(&self, task: &str) -> Reply {
        let resumed = self.hub().borrow_mut().resume_task(task);
        self.what_is_paused(resumed)
    }

    fn what_is_paused(&self, done: Result<(), ErrorDetail>) -> Reply {
        match done {
            Ok(()) => Reply::document(Document::Paused { paused: self.hub().borrow().paused() }),
            Err(error) => Reply::Refusal(error),
        }
    }

    /// The jobs that a shortened id can stand for, the youngest first: [`Document::Candidates`]. The text is the first
    /// characters of the id, or at least [`ID_END_MIN`](offload_protocol::limits::ID_END_MIN) of its last ones.
    pub fn find_jobs(&self, text: &str) -> Reply {
        Reply::document(Document::Candidates(self.settled_hub().jobs_like(text)))
    }

    /// The state of a job and the reasons for it, such as why it has not started.
    pub fn explain(&self, name: &str) -> Reply {
        let hub = self.settled_hub();
        match hub.find(name).and_then(|job| hub.explain(job)) {
            Some(explanation) => Reply::document(Document::Explanation(explanation)),
            None => Reply::refusal(OutcomeCode::NoSuchJob, hub.why_unknown(name)),
        }
    }

    /// What changes of a job as it goes on, for whoever looks often. None if no such job is known.
    pub fn glance(&self, name: &str) -> Option<GlanceView> {
        let hub = self.settled_hub();
        hub.find(name).and_then(|job| hub.glance(job))
    }

    /// The state of the supervisor: [`Document::Status`].
    pub fn status(&self) -> Reply {
        self.look_at_workers();
        Reply::document(Document::Status(Box::new(self.settled_hub().status(self.io_pool_view()))))
    }

    /// The state of the supervisor in one word, as in [`Document::Status`]. Cheap: no document is built.
    pub fn state(&self) -> &'static str {
        self.settled_hub().state()
    }

    /// What is measured of jobs, for monitoring.
    pub fn meters(&self) -> Meters {
        self.settled_hub().meters()
    }

    /// The last [`ENDED_WORKERS_MAX`](crate::limits::ENDED_WORKERS_MAX) workers that have ended, the newest one first.
    pub fn ended_workers(&self) -> Vec<EndedWorker> {
        self.settled_hub().ended_workers()
    }

    /// How many jobs of each task wait and run, of the oldest [`LOADS_JOBS_MAX`](crate::limits::LOADS_JOBS_MAX) jobs that have
    /// not ended, and how many have died.
    pub fn loads(&self) -> Vec<TaskLoad> {
        self.settled_hub().loads()
    }

    /// The threads for blocking work.
    pub fn io_pool_stats(&self) -> IoPoolStats {
        self.0.io_pool.stats()
    }

    /// Computes something that would take long on the loop, on one of these threads.
    #[track_caller]
    pub fn on_thread<T: Send + 'static>(&self, compute: impl FnOnce() -> T + Send + 'static) -> IoFuture<T> {
        self.0.io_pool.run(compute)
    }

    /// The tasks that workers offer: [`Document::Tasks`].
    pub fn tasks(&self) -> Reply {
        Reply::document(Document::Tasks(self.settled_hub().tasks()))
    }

    /// How many tasks workers offer, and whether something has changed since somebody looked.
    pub fn tasks_summary(&self) -> TasksSummary {
        self.settled_hub().tasks_summary()
    }

    /// One of them; None if no worker offers it.
    pub fn task(&self, name: &str) -> Option<TaskView> {
        self.settled_hub().task(name)
    }

    /// Calls `then` once, when memory of any client is released after this call. A front then asks
    /// [`Account::has_room`] again.
    pub fn when_room(&self, then: impl FnOnce(&mut Context) + 'static) {
        self.hub().borrow_mut().when_room(Box::new(then));
    }

    /// Whether the memory limit for all clients together is reached, so that there is room for no client.
    pub fn is_full(&self) -> bool {
        self.hub().borrow().is_full()
    }

    /// Number of bytes that are free for all clients together.
    pub fn free_bytes(&self) -> u64 {
        self.hub().borrow().free_bytes()
    }

    /// The largest accepted request body, in bytes. A front refuses a larger one with [`Service::refuse_too_large`].
    pub fn max_payload(&self) -> usize {
        usize::try_from(self.hub().borrow().config().max_payload).unwrap_or(usize::MAX)
    }

    /// How many files of clients may be open at a time: those of jobs, and those that are on their way.
    pub fn files_max(&self) -> usize {
        self.0.descriptors.files()
    }

    /// Counts a job as refused because its body of `length` bytes is too large, and returns the answer.
    pub fn refuse_too_large(&self, length: usize) -> Reply {
        self.count_refused(OutcomeCode::TooLarge);
        let message = self.hub().borrow().config().too_large(length as u64);
        Reply::Refusal(ErrorDetail::for_anybody(OutcomeCode::TooLarge, message))
    }

    /// Counts a job that the front refuses for a reason of its own; the code is what it tells the client.
    pub fn count_refused(&self, code: OutcomeCode) {
        self.hub().borrow_mut().refused(code);
    }

    /// How many connections there may be, given the limit of open files and the number of them that workers need.
    pub fn connections(&self) -> Connections {
        self.0.descriptors.connections_beside(self.hub().borrow().processes_max())
    }

    /// How many connections fronts may have that do not share the places of the local socket. At most
    /// [`ServiceConfig::other_connections`].
    pub fn other_connections(&self) -> usize {
        self.0.descriptors.others()
    }

    /// Returns a function that writes a warning to the log from any thread, without waiting for the reader of the log.
    #[track_caller]
    pub fn warner(&self) -> impl FnMut(fmt::Arguments<'_>) + Send + 'static + use<> {
        self.0.log.warner()
    }

    /// The log of this process. Fronts write to it, so that the lines of all of them are limited together.
    pub fn log(&self) -> &Log {
        &self.0.log
    }

    fn hub(&self) -> &HubRef {
        &self.0.hub
    }

    /// A reference for callbacks of the event loop. It does not keep the service alive.
    fn weak(&self) -> Weak<Inner> {
        self.0.me.clone()
    }

    /// Calls a function with the service if it still exists. Callbacks of the event loop use this.
    fn with(service: &Weak<Inner>, action: impl FnOnce(&Service)) {
        if let Some(inner) = service.upgrade() {
            action(&Service(inner));
        }
    }

    fn find(&self, name: &str) -> Result<Found, ErrorDetail> {
        let hub = self.hub().borrow();
        match hub.find(name) {
            Some(job) if hub.is_live(job) => Ok(Found::Live(job)),
            Some(job) if hub.look_up(job).is_some() => Ok(Found::Ended(job)),
            _ => Err(ErrorDetail::new(OutcomeCode::NoSuchJob, hub.why_unknown(name))),
        }
    }

    fn io_pool_view(&self) -> IoPoolView {
        let stats = self.0.io_pool.stats();
        IoPoolView { threads: stats.threads, busy: stats.busy, queued: stats.queued, stuck: stats.stuck }
    }

    /// Warns if workers can read this process. A supervisor hides itself from other processes of its user, but that
    /// does not stop a worker with privileges.
    fn warn_of_privileges(&self) {
        if !geteuid().is_root() {
            return;
        }
        let me = self.weak();
        self.when_ready(move |_| {
            Service::with(&me, |service| {
                if service.hub().borrow().has_worker_that_can_trace() {
                    service.log().warn(format_args!(
                        "running as root: workers keep CAP_SYS_PTRACE, so their programs can read and change everything of \
                         this process; run it as an ordinary user"
                    ));
                }
            });
        });
    }
}
