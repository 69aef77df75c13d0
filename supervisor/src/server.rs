//! The main process: a pool, the local socket in front of it, and the signals that end it.
//!
//! ```text
//!            TERM, INT, `offload drain`                jobs and workers are gone
//!  Serving -----------------------------> Draining ------------------------------> Parting: last answers are
//!     |                                      | TERM, INT again, `offload stop`         written, for a second at most
//!     |                                      v                                            |
//!     '--- `offload stop` ---------------> Stopping ------------------------------->      '--> the loop is let go
//! ```
//!
//! `server/clients.rs` carries requests to the hub and answers back, `server/client.rs` is one connection on the loop;
//! who is let in says `server/accept.rs`, who is answered next `server/turns.rs`, who is let go `server/patience.rs`.

mod accept;
mod admin;
mod client;
mod clients;
mod descriptors;
mod holdings;
mod pace;
mod patience;
mod turns;

use crate::event_loop::{Context, HandleId, Hold, Interest, LoopHandle, WATCHDOG_THRESHOLD, Watchdog};
use crate::front::Listener;
use crate::io_pool::{IoPool, IoPoolConfig};
use crate::log::Log;
use crate::pool::{PoolConfig, StartError};
use crate::supervisor::{Hub, HubRef};
use crate::views::IoPoolView;
use crate::workers::Program;
use crate::workers::orphans::{self, Killed};
use client::Client;
use descriptors::Descriptors;
use patience::Patience;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

/// How long the last answers may take.
const PARTING_MAX: Duration = Duration::from_secs(1);

/// Reads the configuration again, on a thread.
pub type Reload = Arc<dyn Fn() -> Result<PoolConfig, String> + Send + Sync>;

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
    /// Called at SIGHUP: limits, times and the number of workers of what it returns apply from then on. Called at
    /// `offload reload` as well, which also replaces the workers by ones of its programs.
    pub reload: Option<Reload>,
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
    /// What the workers run.
    programs: Vec<Program>,
    clients: BTreeMap<u64, Client>,
    last_client: u64,
    /// Clients with something to write, or with requests that are read and not handled.
    to_serve: Vec<u64>,
    /// Clients whose next answer may be made.
    turns: VecDeque<u64>,
    patience: Patience,
    descriptors: Descriptors,
    turn_ends: bool,
    /// The payloads that were let in are counted, so that it is known which came first.
    last_payload: u64,
    /// The hub will say when bytes are released.
    awaits_room: bool,
    /// In a second it is looked whether clients keep up.
    looks_at_paces: bool,
    is_draining: bool,
    is_stopping: bool,
    /// Who waits for the end.
    farewells: Vec<(u64, u64)>,
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
        let mut listener = Listener::bind(&config.socket)?;
        let log = Log::to_stderr(config.pool.log);
        let generation = found_generation(&mut listener, &log);
        let io_config = IoPoolConfig { threads: config.io_threads, ..IoPoolConfig::default() };
        let io_pool = IoPool::new(cx, io_config).map_err(StartError::Threads)?;
        let ready = Ready { socket: config.socket, workers: config.pool.workers, pid: std::process::id() };
        let warn = log.warner();
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
                programs,
                clients: BTreeMap::new(),
                last_client: 0,
                to_serve: Vec::new(),
                turns: VecDeque::new(),
                patience: Patience::default(),
                descriptors,
                turn_ends: false,
                last_payload: 0,
                awaits_room: false,
                looks_at_paces: false,
                is_draining: false,
                is_stopping: false,
                farewells: Vec::new(),
            })
        });
        front.borrow_mut().listen(listener)?;
        front.borrow_mut().watch_signals()?;
        front.borrow().warn_of_little_room();
        Ok(Server { front })
    }

    /// Finishes the jobs that are there, refuses others, then lets the loop go.
    pub fn drain(&self) {
        self.front.borrow_mut().drain();
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
        log.warn(format_args!("{killed} processes that a killed supervisor left behind are ended"));
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

    fn watch_signals(&mut self) -> Result<(), StartError> {
        let me = self.me.clone();
        let watcher = self.handle.on_signal(&[SIGTERM, SIGINT, SIGHUP], move |_, signal| {
            Front::with(&me, |front| front.on_signal(signal));
        })?;
        self.signals = Some(watcher);
        Ok(())
    }

    fn on_signal(&mut self, signal: i32) {
        match signal {
            SIGHUP => self.reload(),
            _ if self.is_draining => {
                self.hub.borrow().log().warn(format_args!("second signal: ending now"));
                self.stop();
            }
            _ => {
                self.hub.borrow().log().warn(format_args!("draining; another signal ends at once"));
                self.drain();
            }
        }
    }

    fn reload(&mut self) {
        let Some(reload) = self.reload.clone() else {
            return self
                .hub
                .borrow()
                .log()
                .warn(format_args!("SIGHUP: there is no configuration file to read"));
        };
        let hub = Rc::clone(&self.hub);
        self.io_pool.submit(
            move || reload(),
            move |_, read| {
                let mut hub = hub.borrow_mut();
                let config = match read {
                    Ok(Ok(config)) => config.core(),
                    Ok(Err(error)) => {
                        return hub.log().error(format_args!("the old configuration stays: {error}"));
                    }
                    Err(error) => {
                        return hub.log().error(format_args!("the old configuration stays: {error}"));
                    }
                };
                match config.validate() {
                    Ok(()) => {
                        hub.configure(config);
                        hub.log()
                            .warn(format_args!("limits, times and the number of workers are read again"));
                    }
                    Err(error) => hub.log().error(format_args!("the old configuration stays: {error}")),
                }
            },
        );
    }

    fn drain(&mut self) {
        if std::mem::replace(&mut self.is_draining, true) {
            return;
        }
        let me = self.me.clone();
        self.hub.borrow_mut().drain(Box::new(move |_| Front::with(&me, Front::part)));
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
        if let Some((listener, watcher)) = self.listener.take() {
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
