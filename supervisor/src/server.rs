//! The main process: a pool, the local socket in front of it, and the signals that end it.
//!
//! ```text
//!            a signal, `offload drain`                 jobs and workers are gone, or the time for them is up
//!  Serving -----------------------------> Draining ------------------------------> Parting: last answers are
//!     |                                      | another signal, `offload stop`           written, for a second at most
//!     |                                      v                                            |
//!     '--- `offload stop` ---------------> Stopping ------------------------------->      '--> the loop is let go
//! ```
//!
//! `server/clients.rs` carries requests to the hub and answers back, `server/client.rs` is one connection on the loop; who is
//! let in says `server/accept.rs`, who is heard and answered next `server/turns.rs`, who is let go `server/patience.rs`.

mod accept;
mod address;
mod admin;
mod client;
mod clients;
mod descriptors;
mod holdings;
mod pace;
mod patience;
mod processes;
mod reload;
mod turns;
mod waits;

use crate::front::Listener;
use crate::hub::{Hub, HubRef};
use crate::log::Log;
use crate::pool::{PoolConfig, StartError};
use crate::signals::EndingSignals;
use crate::views::IoPoolView;
use crate::workers::Program;
use crate::workers::orphans::{self, Killed};
use client::Client;
use descriptors::Descriptors;
use holdings::RoomLine;
use offload_core::outcome::human;
use offload_event_loop::io_pool::{IoPool, IoPoolConfig};
use offload_event_loop::{
    Context, HandleId, Hold, Interest, LoopError, LoopHandle, WATCHDOG_THRESHOLD, Watchdog,
};
use patience::Patience;
use processes::Processes;
use reload::{Asker, Reloads};
pub use reload::{Configuration, FixedSetting, Ignored, Reload};
use rustix::process::geteuid;
use signal_hook::consts::SIGHUP;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::time::Duration;
use turns::Line;
use waits::AllWaits;

/// How long the last answers may take.
const PARTING_MAX: Duration = Duration::from_secs(1);

/// How a server is set up.
#[derive(Clone)]
pub struct ServerConfig {
    /// The workers and their limits.
    pub pool: PoolConfig,
    /// Path of the local socket: at most 107 bytes, in a directory of mode 0700 that belongs to the user; it is made
    /// if it is not there.
    pub socket: PathBuf,
    /// Threads for blocking work.
    pub io_threads: usize,
    /// Called at SIGHUP and at `offload reload`: limits, times and the number of workers of what it returns apply from
    /// then on, and the workers are replaced by ones of its programs. Without it the same programs are started anew.
    pub reload: Option<Reload>,
    /// Settings that apply only from a start on: a reload tells which of them were changed in vain.
    pub fixed: Vec<FixedSetting>,
    /// A program whose first worker cannot be started ends the server, instead of being tried again.
    pub fail_fast: bool,
}

/// How a server ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEnd {
    /// All jobs were done.
    Done,
    /// It was told to end at once, and so many jobs were cancelled.
    Stopped {
        /// How many.
        cancelled: u64,
    },
    /// It was to finish the jobs that were there, and the time for that was up.
    CutShort {
        /// How many were cancelled.
        cancelled: u64,
    },
    /// Another supervisor owns the socket now.
    Replaced {
        /// For people.
        reason: String,
    },
    /// A program cannot be started, and [`ServerConfig::fail_fast`] was set.
    Unavailable {
        /// For people.
        reason: String,
    },
}

/// What is known when the first worker is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Path of the local socket.
    pub socket: PathBuf,
    /// Worker processes that it is set up for.
    pub workers: usize,
    /// This process.
    pub pid: u32,
}

/// The main process. It keeps the loop alive until it is drained or stopped.
pub struct Server {
    front: FrontRef,
}

type FrontRef = Rc<RefCell<Front>>;

/// Everything that has to do with clients.
struct Front {
    me: Weak<RefCell<Front>>,
    /// Before the hub, whose log waits for what the watchdog may still have to say.
    _watchdog: Option<Watchdog>,
    hub: HubRef,
    io_pool: IoPool,
    handle: LoopHandle,
    listener: Option<(Listener, HandleId)>,
    signals: Option<HandleId>,
    reload: Option<Reload>,
    reloads: Reloads,
    /// Settings that cannot be changed any more.
    fixed: Vec<FixedSetting>,
    /// Tells of changes in the directory of the socket.
    address_watcher: Option<HandleId>,
    will_look_at_address: bool,
    /// What the workers run.
    programs: Vec<Program>,
    clients: BTreeMap<u64, Client>,
    last_client: u64,
    processes: Processes,
    /// Clients with something to write, or that have to be looked after otherwise.
    to_serve: Line,
    /// Clients that have something to say, or whose next answer may be made.
    line: Line,
    patience: Patience,
    descriptors: Descriptors,
    turn_ends: bool,
    /// The payloads that were let in are counted, so that it is known which came first.
    last_payload: u64,
    /// Clients that wait for room.
    room_line: RoomLine,
    /// In a second it is looked whether clients keep up.
    looks_at_paces: bool,
    is_draining: bool,
    is_stopping: bool,
    /// A signal has asked for the end.
    is_signalled: bool,
    /// Why it ends, where that is not somebody's wish.
    end: Option<ServerEnd>,
    /// Who waits for the end, and under which ticket.
    farewells: BTreeSet<(u64, u64)>,
    waits: AllWaits,
    hold: Option<Hold>,
}

impl Server {
    /// Listens and starts the workers; `on_ready` is called once one of them is ready.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left behind.
    pub fn start(
        config: ServerConfig,
        cx: &mut Context,
        on_ready: impl FnOnce(&Ready, &mut Context) + 'static,
    ) -> Result<Server, StartError> {
        let handle = cx.handle();
        let descriptors = Descriptors::raise(config.io_threads);
        descriptors.check(config.pool.core().processes_max()).map_err(StartError::Descriptors)?;
        let mut listener = Listener::bind(&config.socket)?;
        let log = Log::to_stderr(config.pool.log, config.pool.log_format);
        let generation = found_generation(&mut listener, &log);
        let io_config = IoPoolConfig { threads: config.io_threads, ..IoPoolConfig::default() };
        let io_pool = IoPool::new(cx, io_config).map_err(StartError::Threads)?;
        let ready =
            Ready { socket: config.socket, workers: config.pool.core.workers, pid: std::process::id() };
        let mut warn = log.warner();
        // Without a thread for it the loop is as good as it was, and only unwatched.
        let watchdog =
            handle.watchdog(WATCHDOG_THRESHOLD, move |blocked| warn(format_args!("{blocked}"))).ok();
        let programs = config.pool.programs.clone();
        let hub = Hub::start(config.pool.core(), config.pool.into_hub(generation)?, log, handle.clone())?;
        hub.borrow_mut().when_ready(Box::new(move |cx| on_ready(&ready, cx)));
        let front = Rc::new_cyclic(|me| {
            RefCell::new(Front {
                me: me.clone(),
                _watchdog: watchdog,
                hub,
                io_pool,
                hold: Some(handle.hold()),
                handle,
                listener: None,
                signals: None,
                reload: config.reload,
                reloads: Reloads::default(),
                fixed: config.fixed,
                address_watcher: None,
                will_look_at_address: false,
                programs,
                clients: BTreeMap::new(),
                last_client: 0,
                processes: Processes::default(),
                to_serve: Line::default(),
                line: Line::default(),
                patience: Patience::default(),
                descriptors,
                turn_ends: false,
                last_payload: 0,
                room_line: RoomLine::default(),
                looks_at_paces: false,
                is_draining: false,
                is_stopping: false,
                is_signalled: false,
                end: None,
                farewells: BTreeSet::new(),
                waits: AllWaits::default(),
            })
        });
        front.borrow_mut().listen(listener)?;
        front.borrow_mut().watch_signals()?;
        front.borrow().warn_of_little_room();
        front.borrow().warn_of_privileges();
        front.borrow_mut().watch_address();
        if config.fail_fast {
            front.borrow_mut().end_if_a_start_fails();
        }
        Ok(Server { front })
    }

    /// Finishes the jobs that are there, refuses others, then lets the loop go. What is not done within the limit is
    /// cancelled.
    pub fn drain(&self, limit: Option<Duration>) {
        self.front.borrow_mut().drain(limit);
    }

    /// A way to have a line written into the log from any thread, without waiting for whoever reads it.
    pub fn warner(&self) -> impl FnMut(fmt::Arguments<'_>) + Send + 'static + use<> {
        self.front.borrow().hub.borrow().log().warner()
    }

    /// How it ended, if it has.
    pub fn end(&self) -> ServerEnd {
        self.front.borrow().how_it_ended()
    }

    /// Cancels the jobs that are there, then lets the loop go.
    pub fn stop(&self) {
        self.front.borrow_mut().stop();
    }
}

/// Gives this supervisor's processes a name by which the next one finds those that outlived it, and ends those that
/// outlived the ones before. Both names are written down until none of the old ones is left: whatever becomes of this
/// start, the next one knows them. None without random numbers: then nothing can be known again.
fn found_generation(listener: &mut Listener, log: &Log) -> Option<String> {
    let generation = orphans::new_generation()?;
    let before = listener.generations().to_vec();
    let mut known = before.clone();
    known.push(generation.clone());
    write_generations(listener, known, log);
    let mut killed = 0;
    let mut left: Vec<String> = Vec::new();
    for previous in before {
        let Killed { count, is_all } = orphans::kill_generation(&previous);
        killed += count;
        left.extend((!is_all).then_some(previous));
    }
    if killed > 0 {
        let processes = if killed == 1 { "process" } else { "processes" };
        log.warn(format_args!("ended {killed} {processes} that a killed supervisor had left behind"));
    }
    left.push(generation.clone());
    write_generations(listener, left, log);
    Some(generation)
}

fn write_generations(listener: &mut Listener, generations: Vec<String>, log: &Log) {
    if let Err(error) = listener.set_generations(generations) {
        log.warn(format_args!("what outlives this process if it is killed will not be found: {error}"));
    }
}

impl Front {
    /// Does something with the front if it is still there: how callbacks of the loop come in.
    fn with(front: &Weak<RefCell<Front>>, deed: impl FnOnce(&mut Front)) {
        if let Some(front) = front.upgrade() {
            deed(&mut front.borrow_mut());
        }
    }

    fn listen(&mut self, listener: Listener) -> Result<(), StartError> {
        let me = self.me.clone();
        let watcher = self.handle.watch(listener.socket(), Interest::READ, move |_, _| {
            Front::with(&me, Front::accept);
        })?;
        self.listener = Some((listener, watcher));
        Ok(())
    }

    /// Of a process of the same user only such a one is held off by being hidden that has no privileges.
    fn warn_of_privileges(&self) {
        if !geteuid().is_root() {
            return;
        }
        let hub = Rc::downgrade(&self.hub);
        self.hub.borrow_mut().when_ready(Box::new(move |_| {
            let Some(hub) = hub.upgrade() else { return };
            if hub.borrow().has_worker_that_can_trace() {
                hub.borrow().log().warn(format_args!(
                    "running as root: workers keep CAP_SYS_PTRACE, so their programs can read and change everything of this \
                     process; run it as an ordinary user"
                ));
            }
        }));
    }

    fn watch_signals(&mut self) -> Result<(), StartError> {
        let me = self.me.clone();
        let mut signals = EndingSignals::catch().map_err(LoopError::from)?;
        let readable = signals.descriptor().map_err(LoopError::from)?;
        let watcher = self.handle.watch(readable, Interest::READ, move |_, _| {
            for signal in signals.pending() {
                Front::with(&me, |front| front.on_signal(signal));
            }
        })?;
        self.signals = Some(watcher);
        Ok(())
    }

    /// One reloads. All others that would end this process ask it to end, as SIGTERM does.
    fn on_signal(&mut self, signal: i32) {
        let limit = self.hub.borrow().config().drain_timeout;
        match signal {
            SIGHUP => self.reload(Asker::Signal),
            _ if std::mem::replace(&mut self.is_signalled, true) => {
                self.hub.borrow().log().warn(format_args!("second signal: ending now"));
                self.stop();
            }
            _ => {
                let most = human(limit);
                self.hub
                    .borrow()
                    .log()
                    .tell(format_args!("draining for at most {most}; another signal ends at once"));
                self.drain(Some(limit));
            }
        }
    }

    /// Asked for several times, the earliest end counts.
    fn drain(&mut self, limit: Option<Duration>) {
        if std::mem::replace(&mut self.is_draining, true) {
            limit.into_iter().for_each(|limit| self.hub.borrow_mut().limit_drain(limit));
            return;
        }
        let me = self.me.clone();
        self.hub.borrow_mut().drain(limit, Box::new(move |_| Front::with(&me, Front::part)));
    }

    fn stop(&mut self) {
        self.is_draining = true;
        if std::mem::replace(&mut self.is_stopping, true) {
            return;
        }
        let me = self.me.clone();
        self.hub.borrow_mut().stop(Box::new(move |_| Front::with(&me, Front::part)));
    }

    /// Jobs and workers are gone: give the last answers, then let the loop go. May be called more than once.
    fn part(&mut self) {
        self.send_farewells();
        self.unwatch_address();
        if let Some((listener, watcher)) = self.listener.take() {
            self.log_the_end();
            let _ = self.handle.close(watcher, |_| ());
            drop(listener);
            let me = self.me.clone();
            self.handle.set_timeout(PARTING_MAX, move |_| Front::with(&me, Front::let_go));
            self.clients.values_mut().for_each(Client::close_after_flush);
            let all: Vec<u64> = self.clients.keys().copied().collect();
            all.into_iter().for_each(|client| self.mark(client));
        }
        self.let_go_if_all_are_gone();
    }

    fn how_it_ended(&self) -> ServerEnd {
        let cancelled = self.hub.borrow().cut_short();
        match &self.end {
            Some(end) => end.clone(),
            None if cancelled == 0 => ServerEnd::Done,
            None if self.is_stopping => ServerEnd::Stopped { cancelled },
            None => ServerEnd::CutShort { cancelled },
        }
    }

    fn log_the_end(&self) {
        let hub = self.hub.borrow();
        match hub.uncollected() {
            0 => {}
            kept => hub.log().warn(format_args!("kept results lost that nobody had collected: {kept}")),
        }
        match (self.is_stopping, hub.cut_short()) {
            (_, 0) => hub.log().info(format_args!("ended: no job was cancelled")),
            (true, jobs) => {
                hub.log().warn(format_args!("ended: jobs cancelled because it was to end at once: {jobs}"));
            }
            (false, jobs) => {
                let why = "jobs cancelled because they were not done in time";
                hub.log().error(format_args!("ended: {why}: {jobs}"));
            }
        }
    }

    fn end_if_a_start_fails(&mut self) {
        let me = self.me.clone();
        self.hub.borrow_mut().when_no_worker_starts(Box::new(move |reason, _| {
            Front::with(&me, |front| {
                front.hub.borrow().log().error(format_args!("{reason}; ending, because of --fail-fast"));
                front.end = Some(ServerEnd::Unavailable { reason });
                front.stop();
            });
        }));
    }

    fn let_go_if_all_are_gone(&mut self) {
        if self.listener.is_none() && self.clients.is_empty() {
            self.let_go();
        }
    }

    fn let_go(&mut self) {
        self.unwatch();
        if self.hold.take().is_some() {
            self.handle.stop();
        }
    }

    fn unwatch(&mut self) {
        self.unwatch_address();
        if let Some((listener, watcher)) = self.listener.take() {
            let _ = self.handle.close(watcher, |_| ());
            drop(listener);
        }
        for (_, client) in std::mem::take(&mut self.clients) {
            client.unwatch(&self.handle);
        }
        if let Some(signals) = self.signals.take() {
            let _ = self.handle.close(signals, |_| ());
        }
    }

    fn io_pool_view(&self) -> IoPoolView {
        let stats = self.io_pool.stats();
        IoPoolView { threads: stats.threads, busy: stats.busy, queued: stats.queued, stuck: stats.stuck }
    }
}

impl Drop for Front {
    /// A socket that nobody serves any more must not be watched.
    fn drop(&mut self) {
        self.unwatch();
    }
}
