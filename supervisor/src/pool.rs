//! The pool of worker processes for programs that embed this library.

mod auto;
mod call;
mod claim;
mod handle;
mod stream;
#[cfg(feature = "tower")]
mod tower;

pub use auto::{Place, Policy, TaskPolicy};
pub use call::Call;
pub use handle::{HandleLimits, PendingJob, PoolEnded, PoolHandle, Reservation, Reserved, WaitError};
pub use stream::OutputStream;
#[cfg(feature = "tower")]
pub use tower::{PoolService, ServiceCall, ServiceError};

use crate::hub::{Hub, HubRef, OutputCharge, PoolConfig, StartError, Subscriber, Then};
use crate::job::{Finished, Job};
use crate::log::Log;
use crate::origin::Origin;
use crate::views::{IoPoolView, Status, TaskView, WorkerView};
use crate::workers::orphans::new_generation;
use call::CallTeller;
use claim::{Callers, Claim};
use handle::Doors;
use offload_event_loop::io_pool::{IoPool, IoPoolConfig};
use offload_event_loop::{Context, LoopHandle};
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// A bounded set of worker processes that run jobs, supervised on an event loop. Cheap to clone. Dropping the last
/// clone kills the workers, and awaited jobs end as cancelled, unless the pool is being [drained](ComputePool::drain). When the
/// loop is dropped, all callbacks that wait in the pool are dropped, with the clones that they own.
///
/// A pool must be created and used on the event loop's thread; other threads have a [handle](ComputePool::handle). The event loop stays alive while a job is awaited; idle
/// workers do not keep it alive.
#[must_use = "dropping the last clone kills the workers"]
#[derive(Clone)]
pub struct ComputePool {
    hub: HubRef,
    handle: LoopHandle,
    doors: Rc<Doors>,
    callers: Rc<Callers>,
    origin: Origin,
}

impl fmt::Debug for ComputePool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ComputePool").finish_non_exhaustive()
    }
}

impl ComputePool {
    /// Starts the workers. Jobs may be submitted at once; they wait for the first worker to be ready.
    ///
    /// # Errors
    /// A [`StartError`]. A program that cannot be started is no error here; the outcomes of the jobs tell it.
    pub fn start(config: PoolConfig, handle: &LoopHandle) -> Result<ComputePool, StartError> {
        config.check_process()?;
        let log = Rc::new(Log::new(config.log, config.log_format));
        let mut core = config.core();
        // Each file is open twice, here and in the program that gave it, which needs descriptors for other things too.
        core.max_files = core.max_files.min(open_files_max() / 4);
        let io_pool =
            || IoPool::new(handle, IoPoolConfig::default()).map(Rc::new).map_err(StartError::Threads);
        let hub = Hub::start(core, config.into_hub(new_generation(), io_pool)?, log, handle.clone())?;
        let doors = Rc::new(Doors::default());
        let all = Rc::clone(&doors);
        hub.borrow_mut().when_over(Box::new(move |_| all.close()));
        Ok(ComputePool { hub, handle: handle.clone(), doors, callers: Rc::default(), origin: Origin::here() })
    }

    /// Submits a job, and never blocks. `done` is called on the event loop, later, exactly once: with the result, with what went
    /// wrong, or with the reason why the job was refused, such as `overloaded`. How many jobs may wait, and how many bytes they may
    /// hold, is in the field `core` of [`PoolConfig`]. If the loop is dropped first, `done` is dropped without a call.
    #[track_caller]
    pub fn submit(&self, job: Job, done: impl FnOnce(Finished, &mut Context) + 'static) {
        self.start_job(job, Subscriber::new(done));
    }

    /// Submits a job and awaits its end, on the event loop. The job is submitted now, not when the future is polled first. Dropping
    /// the future cancels the job, queued or running; but a job with an [idempotency key](Job::idempotency_key) goes on, for
    /// whoever submits it again. A refusal is an end as any other: see [`Finished::into_output`]. So is the end of the loop, if that
    /// is dropped first: then the job ends as [`Unavailable`](crate::protocol::nouns::OutcomeCode::Unavailable).
    #[track_caller]
    pub fn call(&self, job: Job) -> Call {
        let teller = CallTeller::new(&job.task, self.origin);
        let mut call = Call::waiting(self, &teller);
        call.claim = self.start_job(job, Subscriber::new(move |finished, _| teller.tell(finished)));
        call
    }

    /// Returns what the caller gives up if it leaves before the end. A job that was refused leaves nothing to give up.
    fn start_job(&self, job: Job, subscriber: Subscriber) -> Option<Claim> {
        if self.handle.is_gone() {
            return None;
        }
        let caller = job.has_key().then(|| self.callers.next());
        let subscriber = match caller {
            Some(caller) => subscriber.reporting_to(caller),
            None => subscriber,
        };
        let submitted = self.hub.borrow_mut().submit(job, false, Some(subscriber));
        match submitted {
            Ok(submitted) => Some(Claim::new(submitted.job, caller)),
            Err(refused) => {
                let finished = Box::new(Hub::refusal(&refused.task, refused.error));
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
        if !self.handle.is_gone() {
            self.hub.borrow_mut().when_ready(Box::new(ready));
        }
    }

    /// Graceful shutdown: refuses new jobs as `unavailable`, finishes the accepted ones for at most
    /// [`CoreConfig::drain_timeout`](crate::CoreConfig::drain_timeout), cancels what has not ended by then, ends the workers, then
    /// calls `done`. If the pool has ended already, `done` is called soon. The event loop stays alive until then, and so does the
    /// pool, also if all its clones are dropped. If the loop is dropped first, `done` is dropped without a call.
    pub fn drain(&self, done: impl FnOnce(&mut Context) + 'static) {
        let limit = self.hub.borrow().config().drain_timeout;
        self.end(done, |hub, then| hub.drain(Some(limit), then));
    }

    /// Immediate shutdown: cancels all jobs, ends the workers, then calls `done`, as [`ComputePool::drain`] does.
    pub fn shutdown(&self, done: impl FnOnce(&mut Context) + 'static) {
        self.end(done, Hub::stop);
    }

    fn end(&self, done: impl FnOnce(&mut Context) + 'static, begin: impl FnOnce(&mut Hub, Then)) {
        if self.handle.is_gone() {
            return;
        }
        // Whoever asks for the end may drop the pool at once. The hub drops this when it calls it, or with the loop.
        let hub = Rc::clone(&self.hub);
        let then = move |cx: &mut Context| {
            done(cx);
            drop(hub);
        };
        begin(&mut self.hub.borrow_mut(), Box::new(then));
    }

    /// The state of the pool and its event loop.
    pub fn status(&self) -> Status {
        self.hub.borrow().status(IoPoolView::default())
    }

    /// The tasks that the workers offer, by name. Empty until the first worker is ready.
    pub fn tasks(&self) -> Vec<TaskView> {
        self.hub.borrow().tasks()
    }

    /// The state of each slot that exists, by number.
    pub fn workers(&self) -> Vec<WorkerView> {
        let mut hub = self.hub.borrow_mut();
        hub.report_stops();
        hub.workers()
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

/// How many files this process may have open.
fn open_files_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}
