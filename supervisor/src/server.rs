//! The main process: a [`Service`], the front for the local socket, and the signals that end the process.
//!
//! ```text
//!   clients ---> Front ---> Service ---> hub ---> workers
//!   signals -------------------'
//! ```
//!
//! The front's state is in this file; what the front does is in the files below. The front reaches jobs, workers and
//! limits through the service only (`service.rs`), and the sockets through `front/`.
//!
//! | file | what it decides |
//! |---|---|
//! | `accept.rs`, `processes.rs` | which clients are accepted |
//! | `clients.rs`, `client.rs` | turn requests into calls of the service, and replies into messages |
//! | `turns.rs` | which client is read and answered next |
//! | `back_pressure.rs`, `pace.rs` | memory held for a client; how fast it must read and write |
//! | `patience.rs` | when a silent client is disconnected |
//! | `address.rs` | what happens if the socket's file is removed |

mod accept;
mod address;
mod back_pressure;
mod client;
mod clients;
mod error;
mod intake;
mod operate;
mod pace;
mod patience;
mod processes;
mod turns;

use crate::end_of_turn::EndOfTurn;
use crate::front::{FilePlaces, Listener};
use crate::limits::LAST_ANSWERS_TIMEOUT;
use crate::service::{
    FixedSetting, Generations, LastAnswers, OnReply, PoolConfig, Prerequisites, Reload, ServerEnd, Service,
    ServiceConfig,
};
use crate::signals::EndingSignals;
use address::AddressWatch;
use back_pressure::RoomQueue;
use client::ConnectedClient;
use offload_event_loop::{Context, HandleId, Interest, LoopError, LoopHandle};
use patience::Patience;
use processes::ClientProcesses;
use signal_hook::consts::SIGHUP;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::time::Duration;
use turns::TurnQueue;

pub use error::ServerStartError;

/// How a server is set up.
#[derive(Clone)]
pub struct ServerConfig {
    /// The workers and their limits.
    pub pool: PoolConfig,
    /// Path of the local socket, at most 107 bytes. Its directory must have mode 0700 and belong to the user. The
    /// directory is created if it does not exist.
    pub socket: PathBuf,
    /// Number of threads for blocking work.
    pub io_threads: usize,
    /// Called at SIGHUP and at `offload reload`. The limits, times and number of workers in the configuration that it
    /// returns apply from then on, and the workers are replaced by workers of its programs. Without this function, a
    /// reload restarts the same programs.
    pub reload: Option<Reload>,
    /// Settings that apply only from the next start on. A reload reports which of them were changed without effect.
    pub fixed: Vec<FixedSetting>,
    /// Descriptors to set aside for connections of fronts that have places of their own, such as HTTP.
    pub other_connections: usize,
    /// If true, the server ends when the first worker of a program cannot be started, instead of trying again.
    pub fail_fast: bool,
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServerConfig { pool, socket, io_threads, reload: _, fixed, other_connections, fail_fast } = self;
        let mut config = formatter.debug_struct("ServerConfig");
        config.field("pool", pool).field("socket", socket).field("io_threads", io_threads);
        config.field("fixed", fixed).field("other_connections", other_connections);
        config.field("fail_fast", fail_fast).finish_non_exhaustive()
    }
}

/// What [`Server::start`] reports when the first worker is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Path of the local socket.
    pub socket: PathBuf,
    /// The configured number of worker processes.
    pub workers: usize,
    /// The process id of this process.
    pub pid: u32,
}

/// The main process. It keeps the event loop alive until it has drained or stopped.
#[must_use = "dropping it closes the socket"]
pub struct Server {
    front: FrontRef,
}

type FrontRef = Rc<RefCell<Front>>;

/// The front for the local socket: its clients and what they wait for.
struct Front {
    me: Weak<RefCell<Front>>,
    service: Service,
    handle: LoopHandle,
    /// For the files that clients send as inputs.
    files: FilePlaces,
    listener: Option<(Listener, HandleId)>,
    signals: Option<HandleId>,
    address_watch: AddressWatch,
    /// The service calls this with answers that were not available at once.
    on_reply: OnReply,
    clients: BTreeMap<u64, ConnectedClient>,
    processes: ClientProcesses,
    /// Clients with unsent bytes, or that need other attention at the end of the turn.
    serve_queue: TurnQueue,
    /// Clients whose requests can be read, or whose next long answer can be made.
    turn_queue: TurnQueue,
    patience: Patience,
    turn: EndOfTurn,
    /// Number of the newest accepted payload. Payloads are numbered, so that it is known which of two was accepted
    /// first.
    last_payload: u64,
    /// Clients that wait for free memory.
    room_queue: RoomQueue,
    /// A timer is set that checks in a second whether clients keep up. One timer serves all clients, so no state of a
    /// single client says this.
    is_pace_check_scheduled: bool,
    /// Set after jobs and workers are gone, until the last answers are written.
    last_answers: Option<LastAnswers>,
}

impl Server {
    /// Listens on the socket and starts the workers. `on_ready` is called once, when the first worker is ready.
    ///
    /// # Errors
    /// A [`ServerStartError`]. Nothing is left behind.
    pub fn start(
        config: ServerConfig,
        cx: &mut Context,
        on_ready: impl FnOnce(&Ready, &mut Context) + 'static,
    ) -> Result<Server, ServerStartError> {
        let ServerConfig { pool, socket, io_threads, reload, fixed, other_connections, fail_fast } = config;
        let workers = pool.core.workers;
        let prerequisites =
            Prerequisites::prepare(ServiceConfig { pool, io_threads, reload, fixed, other_connections })?;
        let mut listener = Listener::bind(&socket)?;
        prerequisites.take_over(&mut listener);
        let service = Service::start_with(prerequisites, cx)?;
        let ready = Ready { socket, workers, pid: std::process::id() };
        service.when_ready(move |cx| on_ready(&ready, cx));
        let front = Front::new(service.clone(), cx.handle());
        front.borrow_mut().listen(listener)?;
        front.borrow_mut().watch_signals()?;
        front.borrow().warn_of_few_places();
        front.borrow_mut().watch_address();
        let me = Rc::downgrade(&front);
        service.on_end(move |last_answers| Front::with(&me, |front| front.begin_closing(last_answers)));
        if fail_fast {
            service.stop_if_no_worker_starts();
        }
        Ok(Server { front })
    }

    /// The service of this server, for another front. It ends with this server.
    pub fn service(&self) -> Service {
        self.front.borrow().service.clone()
    }

    /// Graceful shutdown: finishes the accepted jobs and refuses new ones, then releases the event loop. Jobs that
    /// have not ended within the limit are cancelled.
    pub fn drain(&self, limit: Option<Duration>) {
        self.service().drain(limit);
    }

    /// Returns a function that writes a line to the log from any thread, without waiting for the reader of the log.
    pub fn warner(&self) -> impl FnMut(fmt::Arguments<'_>) + Send + 'static + use<> {
        self.service().warner()
    }

    /// How the server ended, if it has ended.
    pub fn end(&self) -> ServerEnd {
        self.service().end()
    }

    /// Cancels all jobs, then releases the event loop.
    pub fn stop(&self) {
        self.service().stop();
    }
}

/// The generations are written to the lock file of the socket.
impl Generations for Listener {
    fn written(&self) -> Vec<String> {
        self.generations().to_vec()
    }

    fn write(&mut self, generations: Vec<String>) -> io::Result<()> {
        self.set_generations(generations)
    }
}

impl Front {
    fn new(service: Service, handle: LoopHandle) -> FrontRef {
        Rc::new_cyclic(|me: &Weak<RefCell<Front>>| {
            let front = me.clone();
            RefCell::new(Front {
                me: me.clone(),
                files: FilePlaces::new(service.files_max()),
                service,
                handle,
                listener: None,
                signals: None,
                address_watch: AddressWatch::Off,
                on_reply: Rc::new(move |ticket, reply| {
                    Front::with(&front, |front| front.reply(ticket.session, ticket.number, reply));
                }),
                clients: BTreeMap::new(),
                processes: ClientProcesses::default(),
                serve_queue: TurnQueue::default(),
                turn_queue: TurnQueue::default(),
                patience: Patience::default(),
                turn: EndOfTurn::default(),
                last_payload: 0,
                room_queue: RoomQueue::default(),
                is_pace_check_scheduled: false,
                last_answers: None,
            })
        })
    }

    /// Calls a function with the front if it still exists. Callbacks of the event loop use this.
    fn with(front: &Weak<RefCell<Front>>, action: impl FnOnce(&mut Front)) {
        if let Some(front) = front.upgrade() {
            action(&mut front.borrow_mut());
        }
    }

    fn listen(&mut self, listener: Listener) -> Result<(), LoopError> {
        let me = self.me.clone();
        let watcher = self.handle.watch(listener.socket(), Interest::READ, move |_, _| {
            Front::with(&me, Front::accept);
        })?;
        self.listener = Some((listener, watcher));
        Ok(())
    }

    fn watch_signals(&mut self) -> Result<(), LoopError> {
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

    fn on_signal(&mut self, signal: i32) {
        match signal {
            SIGHUP => self.service.reload(),
            // Every other signal that would end this process starts a shutdown, as SIGTERM does.
            _ => self.service.on_ending_signal(),
        }
    }

    /// Jobs and workers are gone. No more clients are accepted; each client is closed when its last answers are
    /// written.
    fn begin_closing(&mut self, last_answers: LastAnswers) {
        self.last_answers = Some(last_answers);
        self.unwatch_address();
        self.stop_listening();
        self.clients.values_mut().for_each(ConnectedClient::close_after_flush);
        let all: Vec<u64> = self.clients.keys().copied().collect();
        all.into_iter().for_each(|client| self.mark(client));
        let me = self.me.clone();
        self.handle.set_timeout(LAST_ANSWERS_TIMEOUT, move |_| Front::with(&me, Front::give_up_last_answers));
        self.finish_closing();
    }

    /// Whoever has not read his last answer is not waited for any longer, even if another front still waits for clients of its own.
    fn give_up_last_answers(&mut self) {
        self.unwatch();
        self.last_answers = None;
    }

    fn finish_closing(&mut self) {
        if self.clients.is_empty() && self.last_answers.is_some() {
            self.unwatch();
            self.last_answers = None;
        }
    }

    fn stop_listening(&mut self) {
        if let Some((listener, watcher)) = self.listener.take() {
            let _ = self.handle.close(watcher, |_| ());
            drop(listener);
        }
    }

    fn unwatch(&mut self) {
        self.unwatch_address();
        self.stop_listening();
        for (_, client) in std::mem::take(&mut self.clients) {
            client.unwatch(&self.handle);
        }
        if let Some(signals) = self.signals.take() {
            let _ = self.handle.close(signals, |_| ());
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Drop for Front {
    /// Nothing serves the socket any more, so the event loop must not watch it.
    fn drop(&mut self) {
        self.unwatch();
    }
}
