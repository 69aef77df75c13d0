//! The pool of worker processes for programs that embed this library.

use crate::hub::{Hub, HubConfig, HubRef, Listener, Undelivered};
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

/// Logical cores that this process may use: affinity and cgroup quota are respected. At least 1.
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
    /// Everything that the core decides by: numbers of workers and jobs, bytes, times. Unlike in
    /// [`CoreConfig::default`], `workers` is [`default_workers`] and `seed` is a random number; change fields of it, rather
    /// than to make a new one. How many `programs` there are is set at the start: as many as the field beside it has.
    pub core: CoreConfig,
    /// What the workers run: slot `i` runs program `i` modulo their number. There is no default.
    pub programs: Vec<Program>,
    /// Whether each worker is bound to one core, that of slot i being the i-th of those that this process may use.
    pub affinity: bool,
    /// Whether processes that a worker left behind, and that are children of this one now, are killed: when it has ended
    /// those that bear its mark (see [`crate::workers::marks`]), and all of them with the pool. Only for a
    /// program that has called [`crate::workers::sweep::become_subreaper`] and has no other children than workers.
    pub sweep: bool,
    /// What is written to standard error.
    pub log: Level,
    /// How that is written.
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
    /// Defaults with this one program.
    pub fn with(program: Program) -> PoolConfig {
        PoolConfig { programs: vec![program], ..PoolConfig::default() }
    }

    /// What the hub needs beside the core's part. What its workers leave behind is known by `generation`.
    ///
    /// # Errors
    /// [`StartError::Launcher`].
    pub(crate) fn into_hub(self, generation: Option<String>) -> Result<HubConfig, StartError> {
        let PoolConfig { programs, affinity, sweep, .. } = self;
        let launcher = Launcher::start(generation).map_err(StartError::Launcher)?;
        Ok(HubConfig { programs, affinity, sweep, launcher })
    }

    /// The core's part, as it is at the start.
    pub(crate) fn core(&self) -> CoreConfig {
        CoreConfig { programs: self.programs.len(), ..self.core.clone() }
    }
}

/// For jitter: two supervisors that start at one moment must not do everything at the same time.
fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Why a pool or a server did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration makes no sense.
    Config(String),
    /// The local socket cannot be had.
    Bind(crate::front::BindError),
    /// The loop refused to watch something.
    Loop(offload_event_loop::LoopError),
    /// The limit of descriptors leaves no room for a client, as the sentence says.
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

/// A bounded set of worker processes that run jobs, supervised on an event loop. Cheap to clone; dropping the last
/// clone kills the workers and ends the jobs that are awaited as cancelled.
///
/// Must be made and used on the loop's thread. As long as a job is awaited the loop stays alive; idle workers do not
/// keep it.
#[derive(Clone)]
pub struct ComputePool {
    hub: HubRef,
    handle: LoopHandle,
}

impl ComputePool {
    /// Starts the workers. Jobs may be submitted at once; they wait for the first worker to be ready.
    ///
    /// # Errors
    /// [`StartError::Config`], [`StartError::Launcher`] and [`StartError::Loop`]. That a program cannot be started is
    /// told by the jobs' outcomes.
    pub fn start(config: PoolConfig, handle: &LoopHandle) -> Result<ComputePool, StartError> {
        let log = Rc::new(Log::to_stderr(config.log, config.log_format));
        let core = config.core();
        let hub = Hub::start(core, config.into_hub(new_generation())?, log, handle.clone())?;
        Ok(ComputePool { hub, handle: handle.clone() })
    }

    /// Submits a job. `done` is called on the loop, later, exactly once: with the result, with what went wrong, or
    /// with why the job was refused.
    #[track_caller]
    pub fn submit(&self, job: Job, done: impl FnOnce(Finished, &mut Context) + 'static) {
        self.start_job(job, Listener::new(done));
    }

    /// Submits a job and awaits its end. Dropping the future cancels the job.
    #[track_caller]
    pub fn call(&self, job: Job) -> Call {
        let state = Rc::new(RefCell::new(CallState::default()));
        let caller = Rc::clone(&state);
        let listener = Listener::new(move |finished, _cx| {
            let mut state = caller.borrow_mut();
            state.finished = Some(finished);
            let waker = state.waker.take();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        });
        let job = self.start_job(job, listener);
        Call { pool: self.clone(), job, state }
    }

    fn start_job(&self, job: Job, listener: Listener) -> Option<offload_core::ids::JobId> {
        let task = job.task.clone();
        let submitted = self.hub.borrow_mut().submit(job, false, Some(listener));
        match submitted {
            Ok(submitted) if submitted.is_known => None,
            Ok(submitted) => Some(submitted.job),
            Err(refused) => {
                let finished = Hub::refusal(&task, refused.error);
                if let Some(listener) = refused.listener {
                    let held = Undelivered::nothing();
                    self.handle.set_pending_at(listener.site(), move |cx| listener.call(finished, held, cx));
                }
                None
            }
        }
    }

    /// Calls `ready` once a worker is ready for jobs; never if none ever is. To wait for that does not keep the loop
    /// alive; a job or a [`hold`](LoopHandle::hold) does.
    pub fn when_ready(&self, ready: impl FnOnce(&mut Context) + 'static) {
        self.hub.borrow_mut().when_ready(Box::new(ready));
    }

    /// Finishes the jobs that are there, for at most the drain timeout, refuses others, ends the workers, then calls
    /// `done`.
    pub fn drain(&self, done: impl FnOnce(&mut Context) + 'static) {
        let limit = self.hub.borrow().config().drain_timeout;
        self.hub.borrow_mut().drain(Some(limit), Box::new(done));
    }

    /// Cancels the jobs that are there, ends the workers, then calls `done`.
    pub fn shutdown(&self, done: impl FnOnce(&mut Context) + 'static) {
        self.hub.borrow_mut().stop(Box::new(done));
    }

    /// What there is to know about the pool and its loop.
    pub fn status(&self) -> Status {
        self.hub.borrow().status(IoPoolView::default())
    }

    /// What there is to know about each slot.
    pub fn workers(&self) -> Vec<WorkerView> {
        self.hub.borrow().workers()
    }

    /// Worker processes that the pool is set up for.
    pub fn worker_count(&self) -> usize {
        self.hub.borrow().config().workers
    }

    /// CPU time of all its workers so far, dead and living, in steps of usually 10 ms.
    pub fn cpu_time(&self) -> Duration {
        self.hub.borrow().cpu_time()
    }
}

/// A job that is awaited. See [`ComputePool::call`].
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
