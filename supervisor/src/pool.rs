//! The pool of worker processes for programs that embed this library.

use crate::hub::{Hub, HubConfig, HubRef, OutputCharge, Subscriber};
use crate::job::{Finished, Job};
use crate::log::{Level, Log, LogFormat};
use crate::views::{IoPoolView, Status, WorkerView};
use crate::workers::orphans::new_generation;
use crate::workers::{Launcher, Program};
use offload_core::config::CoreConfig;
use offload_event_loop::{Context, LoopHandle};
use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hasher};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// The number of CPU cores that this process may use, at least 1. CPU affinity and cgroup quota are respected.
pub fn default_workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(offload_core::limits::WORKERS_MAX)
}

/// How a pool is set up. The defaults are those of the command line.
///
/// ```
/// use offload_supervisor::PoolConfig;
/// use std::time::Duration;
///
/// let mut config = PoolConfig::default();
/// config.core.run_timeout = Duration::from_secs(10);
/// ```
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Everything by which the core decides: numbers of workers and jobs, bytes, times. Unlike in
    /// [`CoreConfig::default`], `workers` is [`default_workers`] and `seed` is a random number, so change fields
    /// instead of replacing the whole. Its field `programs` is overwritten at the start with the number of
    /// [`PoolConfig::programs`].
    pub core: CoreConfig,
    /// The programs that the workers run: slot `i` runs program `i` modulo their number. There is no default.
    pub programs: Vec<Program>,
    /// Whether each worker is bound to one CPU core: of the n cores that this process may use, a worker that is started
    /// in slot `i` is bound to core `i` modulo n. A spare has the number after the last slot, and keeps its core when it
    /// takes the place of another worker.
    pub affinity: bool,
    /// Whether processes that workers left behind, and that are children of this process now, are killed: when a
    /// worker has ended those with its mark (see [`crate::workers::marks`]), and all of them when the pool ends. Only
    /// for a program that has called [`crate::workers::sweep::become_subreaper`] and has no children but workers.
    pub sweep: bool,
    /// How much is logged to standard error.
    pub log: Level,
    /// The format of the log.
    pub log_format: LogFormat,
}

impl Default for PoolConfig {
    fn default() -> PoolConfig {
        PoolConfig {
            core: CoreConfig { workers: default_workers(), seed: seed(), ..CoreConfig::default() },
            programs: Vec::new(),
            affinity: false,
            sweep: false,
            log: Level::Normal,
            log_format: LogFormat::Text,
        }
    }
}

impl PoolConfig {
    /// The defaults with this one program.
    pub fn with(program: Program) -> PoolConfig {
        PoolConfig { programs: vec![program], ..PoolConfig::default() }
    }

    /// What the hub needs beside the core's configuration. `generation` is how processes that workers leave behind are
    /// recognized.
    ///
    /// # Errors
    /// [`StartError::Launcher`].
    pub(crate) fn into_hub(self, generation: Option<String>) -> Result<HubConfig, StartError> {
        let PoolConfig { programs, affinity, sweep, .. } = self;
        let launcher = Launcher::start(generation).map_err(StartError::Launcher)?;
        Ok(HubConfig { programs, affinity, sweep, launcher })
    }

    /// The configuration of the core, with the number of programs filled in.
    pub(crate) fn core(&self) -> CoreConfig {
        CoreConfig { programs: self.programs.len(), ..self.core.clone() }
    }
}

/// A random seed for jitter: two supervisors that start at the same moment must not do everything at the same time.
fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Why a pool or a server did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is invalid.
    Config(String),
    /// The local socket cannot be created.
    Bind(crate::front::BindError),
    /// The event loop refused to watch something.
    Loop(offload_event_loop::LoopError),
    /// The limit of open files leaves no room for a client. The sentence states the limit that is needed.
    Descriptors(String),
    /// The thread that starts workers could not be started.
    Launcher(std::io::Error),
    /// The threads for blocking work could not be started.
    Threads(offload_event_loop::io_pool::IoError),
}

impl fmt::Display for StartError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Config(sentence) | StartError::Descriptors(sentence) => formatter.write_str(sentence),
            StartError::Bind(error) => write!(formatter, "{error}"),
            StartError::Loop(error) => write!(formatter, "{error}"),
            StartError::Launcher(error) => {
                write!(formatter, "cannot start the thread that starts workers: {error}")
            }
            StartError::Threads(error) => write!(formatter, "cannot start threads: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<crate::front::BindError> for StartError {
    fn from(error: crate::front::BindError) -> StartError {
        StartError::Bind(error)
    }
}

impl From<offload_event_loop::LoopError> for StartError {
    fn from(error: offload_event_loop::LoopError) -> StartError {
        StartError::Loop(error)
    }
}

/// A bounded set of worker processes that run jobs, supervised on an event loop. Cheap to clone. Dropping the last
/// clone kills the workers, and awaited jobs end as cancelled.
///
/// A pool must be created and used on the event loop's thread. The event loop stays alive while a job is awaited; idle
/// workers do not keep it alive.
#[derive(Clone)]
pub struct ComputePool {
    hub: HubRef,
    handle: LoopHandle,
}

impl ComputePool {
    /// Starts the workers. Jobs may be submitted at once; they wait for the first worker to be ready.
    ///
    /// # Errors
    /// [`StartError::Config`], [`StartError::Launcher`] and [`StartError::Loop`]. A program that cannot be started is
    /// no error here; the outcomes of the jobs tell it.
    pub fn start(config: PoolConfig, handle: &LoopHandle) -> Result<ComputePool, StartError> {
        let log = Rc::new(Log::to_stderr(config.log, config.log_format));
        let core = config.core();
        let hub = Hub::start(core, config.into_hub(new_generation())?, log, handle.clone())?;
        Ok(ComputePool { hub, handle: handle.clone() })
    }

    /// Submits a job. `done` is called on the event loop, later, exactly once: with the result, with what went wrong,
    /// or with the reason why the job was refused.
    #[track_caller]
    pub fn submit(&self, job: Job, done: impl FnOnce(Finished, &mut Context) + 'static) {
        self.start_job(job, Subscriber::new(done));
    }

    /// Submits a job and awaits its end. Dropping the future cancels the job.
    #[track_caller]
    pub fn call(&self, job: Job) -> Call {
        let state = Rc::new(RefCell::new(CallState::default()));
        let caller = Rc::clone(&state);
        let subscriber = Subscriber::new(move |finished, _cx| {
            let mut state = caller.borrow_mut();
            state.finished = Some(finished);
            let waker = state.waker.take();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        });
        let job = self.start_job(job, subscriber);
        Call { pool: self.clone(), job, state }
    }

    fn start_job(&self, job: Job, subscriber: Subscriber) -> Option<offload_core::ids::JobId> {
        let task = job.task.clone();
        let submitted = self.hub.borrow_mut().submit(job, false, Some(subscriber));
        match submitted {
            Ok(submitted) if submitted.is_known => None,
            Ok(submitted) => Some(submitted.job),
            Err(refused) => {
                let finished = Hub::refusal(&task, refused.error);
                if let Some(subscriber) = refused.subscriber {
                    let held = OutputCharge::none();
                    self.handle
                        .set_pending_at(subscriber.site(), move |cx| subscriber.call(finished, held, cx));
                }
                None
            }
        }
    }

    /// Calls `ready` once a worker is ready for jobs. If no worker ever is, `ready` is never called. This wait does
    /// not keep the event loop alive; a job or a [`hold`](LoopHandle::hold) does.
    pub fn when_ready(&self, ready: impl FnOnce(&mut Context) + 'static) {
        self.hub.borrow_mut().when_ready(Box::new(ready));
    }

    /// Graceful shutdown: refuses new jobs, finishes the accepted ones for at most the drain timeout, ends the
    /// workers, then calls `done`.
    pub fn drain(&self, done: impl FnOnce(&mut Context) + 'static) {
        let limit = self.hub.borrow().config().drain_timeout;
        self.hub.borrow_mut().drain(Some(limit), Box::new(done));
    }

    /// Immediate shutdown: cancels all jobs, ends the workers, then calls `done`.
    pub fn shutdown(&self, done: impl FnOnce(&mut Context) + 'static) {
        self.hub.borrow_mut().stop(Box::new(done));
    }

    /// The state of the pool and its event loop.
    pub fn status(&self) -> Status {
        self.hub.borrow().status(IoPoolView::default())
    }

    /// The state of each slot that exists.
    pub fn workers(&self) -> Vec<WorkerView> {
        self.hub.borrow().workers()
    }

    /// The configured number of worker processes.
    pub fn worker_count(&self) -> usize {
        self.hub.borrow().config().workers
    }

    /// CPU time of all workers of the pool so far, dead and living, in steps of usually 10 ms.
    pub fn cpu_time(&self) -> Duration {
        self.hub.borrow().cpu_time()
    }
}

/// A future that ends when its job does. See [`ComputePool::call`].
pub struct Call {
    pool: ComputePool,
    job: Option<offload_core::ids::JobId>,
    state: Rc<RefCell<CallState>>,
}

#[derive(Default)]
struct CallState {
    finished: Option<Finished>,
    waker: Option<Waker>,
}

impl Future for Call {
    type Output = Finished;

    fn poll(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Finished> {
        let this = self.get_mut();
        let mut state = this.state.borrow_mut();
        match state.finished.take() {
            Some(finished) => {
                this.job = None;
                Poll::Ready(finished)
            }
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(job) = self.job {
            self.pool.hub.borrow_mut().cancel(job);
        }
    }
}
