//! A way to a pool for other threads and other runtimes.
//!
//! ```text
//!   any thread                                                                   the loop's thread
//!   PoolHandle::submit ---> places.rs: no room ---> the job ends as refused
//!          '--------------> door.rs: an order ----------------------------------> loop_side.rs ---> ComputePool
//!   PendingJob: awaited, or waited for <------------ end.rs <---------------------------'
//!          '--- dropped: an order to give the job up ----------------------------------->
//! ```

mod door;
mod end;
mod loop_side;
mod places;

pub use places::HandleLimits;

pub(super) use door::gone;
pub(super) use loop_side::Doors;

use super::ComputePool;
use crate::job::{Finished, Job};
use crate::limits::{HANDLE_BYTES_MAX, HANDLE_JOBS_MAX};
use door::{Door, Order, Place};
use end::{JobEnd, Teller};
use loop_side::LoopSide;
use offload_protocol::limits::NAME_MAX;
use offload_protocol::nouns::{ErrorDetail, cut};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// Submits jobs to a [`ComputePool`] from any thread, in any async runtime or none. Cheap to clone. See [`ComputePool::handle`].
///
/// While a handle or a job of one exists, the event loop stays alive, unless the pool was
/// [drained](ComputePool::drain) or [shut down](ComputePool::shutdown).
///
/// ```no_run
/// use offload_supervisor::{ComputePool, EventLoop, Job, PoolConfig, Program};
/// use std::time::Duration;
///
/// let mut event_loop = EventLoop::new()?;
/// let program = Program::command(vec!["my-worker".to_owned()]);
/// let pool = ComputePool::start(PoolConfig::with(program), &event_loop)?;
/// let handle = pool.handle();
/// let thread = std::thread::spawn(move || {
///     let job = handle.client("reports").submit(Job::new("primes").input("1000000"));
///     job.wait(Duration::from_secs(10)).map(|finished| finished.into_output())
/// });
/// event_loop.run()?; // returns when the thread has dropped its handle and its job
/// println!("{:?}", thread.join());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Bounds
/// A job has a place from when it is submitted until it has ended and its end was taken, or its [`PendingJob`] was dropped. How
/// many places there are, and how many bytes, say the [`HandleLimits`]. Whoever can wait for a place
/// [reserves](PoolHandle::reserve) one.
///
/// # Forks
/// A child that was made by `fork`, without `exec`, has no event loop: there, a handle and its jobs must not be used. They may be
/// dropped there, and so may a pool and its loop: that waits for no thread of the parent, wakes nobody and changes nothing for the
/// parent. No other pool may be started there.
#[derive(Clone)]
pub struct PoolHandle {
    owner: Arc<Owner>,
    client: Arc<str>,
}

/// Held by everything that still needs the loop.
struct Owner {
    door: Arc<Door>,
    loop_thread: ThreadId,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.door.leave();
    }
}

impl ComputePool {
    /// A handle for other threads and other runtimes, with as much room as the limits of the pool suggest: at most
    /// [`HANDLE_JOBS_MAX`] jobs, and no more than a client may have waiting; at most [`HANDLE_BYTES_MAX`] bytes, and no more
    /// than a quarter of what the pool may hold.
    ///
    /// Each call makes a handle with limits of its own. The clones of a handle share them.
    #[track_caller]
    pub fn handle(&self) -> PoolHandle {
        let (jobs, bytes) = {
            let hub = self.hub.borrow();
            (hub.config().max_jobs_of_one(), hub.config().max_bytes / 4)
        };
        self.handle_with(HandleLimits { jobs: jobs.min(HANDLE_JOBS_MAX), bytes: bytes.min(HANDLE_BYTES_MAX) })
    }

    /// As [`ComputePool::handle`], with other limits. What the pool itself refuses, it still refuses.
    #[track_caller]
    pub fn handle_with(&self, limits: HandleLimits) -> PoolHandle {
        let door = Arc::new(Door::new(limits));
        self.doors.add(&door);
        match self.hub.borrow().is_over() {
            true => door.close(),
            false => drop(self.handle.spawn(LoopSide::new(self, &door).run())),
        }
        let owner = Owner { door, loop_thread: std::thread::current().id() };
        PoolHandle { owner: Arc::new(owner), client: Arc::from("") }
    }
}

impl PoolHandle {
    /// The same handle for a client of this name, of which at most 64 bytes are used: its jobs, unless they name a client
    /// themselves, have the share of this client, here and in the pool. Jobs without a name are those of one more client.
    #[must_use]
    pub fn client(&self, name: &str) -> PoolHandle {
        PoolHandle { owner: Arc::clone(&self.owner), client: Arc::from(cut(name, NAME_MAX)) }
    }

    /// Submits a job, and never blocks. If there is no room for it, it ends as
    /// [`Overloaded`](crate::protocol::nouns::OutcomeCode::Overloaded), or as
    /// [`Quota`](crate::protocol::nouns::OutcomeCode::Quota) if only its client has no room; if the pool or its loop has ended,
    /// as [`Unavailable`](crate::protocol::nouns::OutcomeCode::Unavailable). The pool may refuse it, too, for any of its
    /// reasons.
    pub fn submit(&self, job: Job) -> PendingJob {
        let job = self.named(job);
        let own_name = cut(&job.client, NAME_MAX);
        let client = if own_name == &*self.client { Arc::clone(&self.client) } else { Arc::from(own_name) };
        let place = self.owner.door.take_place(&client, job.input.bytes().len() as u64);
        match place {
            Ok(place) => self.send(job, place),
            Err(error) => self.refuse(&job, error),
        }
    }

    /// Waits until there is a place for a job, in any runtime. Of those that wait, the client with the fewest jobs is next.
    /// Dropping the future gives up the wait.
    ///
    /// How many bytes the job will bring is not known yet. Nobody is given a place while its client has all its share of the
    /// bytes; but of those that have one at the same time, not all may have room for large inputs: see [`Reserved::submit`].
    pub fn reserve(&self) -> Reservation {
        Reservation { handle: self.clone(), ticket: None }
    }

    fn named(&self, job: Job) -> Job {
        if job.client.is_empty() { job.client(&*self.client) } else { job }
    }

    fn refuse(&self, job: &Job, error: ErrorDetail) -> PendingJob {
        let end = Arc::new(JobEnd::new(&job.task, None, self.owner.door.origin()));
        Teller::of(&end).refuse(error);
        PendingJob { end, owner: Arc::clone(&self.owner) }
    }

    fn send(&self, mut job: Job, place: Place) -> PendingJob {
        // Here, because the loop has no time for it.
        job.digest_input();
        let end = Arc::new(JobEnd::new(&job.task, Some(place), self.owner.door.origin()));
        let teller = Teller::of(&end);
        self.owner.door.put(Order::Run { job: Box::new(job), teller, submitted: Instant::now() });
        PendingJob { end, owner: Arc::clone(&self.owner) }
    }
}

impl fmt::Debug for PoolHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PoolHandle").field("client", &self.client).finish_non_exhaustive()
    }
}

/// A wait for a place. See [`PoolHandle::reserve`].
#[must_use = "a future does nothing until it is awaited"]
#[derive(Debug)]
pub struct Reservation {
    handle: PoolHandle,
    ticket: Option<u64>,
}

impl Future for Reservation {
    type Output = Result<Reserved, PoolEnded>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Reservation { handle, ticket } = self.get_mut();
        let place = handle.owner.door.poll_place(&handle.client, ticket, context);
        place.map(|place| place.map(|place| Reserved { handle: handle.clone(), place }).ok_or(PoolEnded))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.handle.owner.door.drop_ticket(&self.handle.client, ticket);
        }
    }
}

/// A place for one job. Dropping it gives the place to others.
#[must_use = "dropping it gives the place to others"]
pub struct Reserved {
    handle: PoolHandle,
    place: Place,
}

impl Reserved {
    /// As [`PoolHandle::submit`], but there is room for one job more. Only if there is no room for the bytes of its input, it ends
    /// as [`Overloaded`](crate::protocol::nouns::OutcomeCode::Overloaded) or
    /// [`Quota`](crate::protocol::nouns::OutcomeCode::Quota), and the place is free again. So whoever wants to wait, and never to
    /// be refused, sets [`HandleLimits::bytes`] to twice what all its jobs may bring. The place is that of the handle's client,
    /// whatever client the job names.
    pub fn submit(self, job: Job) -> PendingJob {
        let Reserved { handle, mut place } = self;
        let job = handle.named(job);
        match place.bring(job.input.bytes().len() as u64) {
            Ok(()) => handle.send(job, place),
            Err(error) => handle.refuse(&job, error),
        }
    }
}

impl fmt::Debug for Reserved {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Reserved").field("handle", &self.handle).finish_non_exhaustive()
    }
}

/// The pool or its event loop has ended, so there will be no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolEnded;

impl fmt::Display for PoolEnded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&door::gone().message)
    }
}

impl std::error::Error for PoolEnded {}

/// A job that was submitted by a [`PoolHandle`]: await it in any runtime, or [wait](PendingJob::wait) for it. It always ends: if
/// the pool or its loop ends first, as cancelled or [`Unavailable`](crate::protocol::nouns::OutcomeCode::Unavailable).
///
/// Dropping it cancels the job, queued or running, also when a thread drops it because it panics. A job with an [idempotency
/// key](Job::idempotency_key) goes on, for whoever submits it again.
///
/// # Panics
/// When it is awaited, or waited for, again after its end.
#[must_use = "dropping it cancels the job"]
pub struct PendingJob {
    end: Arc<JobEnd>,
    owner: Arc<Owner>,
}

impl PendingJob {
    /// Blocks this thread until the job has ended, but for no longer than this. In an async runtime, await the job instead: a
    /// blocked thread runs no other task.
    ///
    /// # Errors
    /// [`WaitError`], with the job, which goes on: to drop the error is to drop the job, which cancels it if it has no key.
    ///
    /// # Panics
    /// If it was awaited to its end before.
    pub fn wait(self, longest: Duration) -> Result<Finished, WaitError> {
        if let Some(finished) = self.end.take() {
            return Ok(finished);
        }
        self.end.must_be_wanted();
        if std::thread::current().id() == self.owner.loop_thread {
            return Err(WaitError::OnLoopThread(self));
        }
        let finished = self.end.wait_until(Instant::now().checked_add(longest));
        finished.ok_or(WaitError::TimedOut(self))
    }
}

impl Future for PendingJob {
    type Output = Finished;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Finished> {
        self.end.poll(context)
    }
}

impl Drop for PendingJob {
    fn drop(&mut self) {
        if let Some(claim) = self.end.give_up() {
            self.owner.door.put(Order::GiveUp(claim));
        }
    }
}

impl fmt::Debug for PendingJob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PendingJob").field("task", &self.end.task).finish_non_exhaustive()
    }
}

/// Why a wait has ended before its job. The job goes on. To drop this is to drop the [`PendingJob`].
#[derive(Debug)]
pub enum WaitError {
    /// The time is up.
    TimedOut(PendingJob),
    /// A wait on the event loop's own thread would keep the loop from running, and never end. Await the job there.
    OnLoopThread(PendingJob),
}

impl WaitError {
    /// The job, to wait for it again.
    pub fn into_job(self) -> PendingJob {
        match self {
            WaitError::TimedOut(job) | WaitError::OnLoopThread(job) => job,
        }
    }
}

impl fmt::Display for WaitError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            WaitError::TimedOut(_) => "the job has not ended in time",
            WaitError::OnLoopThread(_) => {
                "a wait on the event loop's own thread would never end: await the job there"
            }
        })
    }
}

impl std::error::Error for WaitError {}
