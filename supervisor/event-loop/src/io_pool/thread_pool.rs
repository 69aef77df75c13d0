//! The threads of a pool and the queue that they serve.
//!
//! ```text
//!   idle <--> busy --(deadline)--> stuck --(its task returns after all)--> gone, or idle if too few threads are running
//! ```

use std::any::Any;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use super::lanes::Lanes;
use super::work::{QueuedTask, drop_quietly};
use super::{CancelOutcome, IoError, IoPoolConfig, IoPoolStats, Lane, StuckTask, TaskId};
use crate::Remote;
use crate::callback::Site;
use crate::origin::Origin;

/// Why a task was not queued. It comes back, because only its submitter may drop it.
pub(super) enum RefusedTask {
    QueueIsFull(QueuedTask),
    PoolIsShut(QueuedTask),
}

/// The state of a task whose deadline has passed.
pub(super) enum WriteOff {
    WasQueued(QueuedTask),
    ThreadIsStuck(StuckTask),
    IsDone,
}

#[derive(Clone, Copy)]
enum Activity {
    Idle,
    Busy(RunningTask),
    Stuck(StuckTask),
}

#[derive(Clone, Copy)]
struct RunningTask {
    task: TaskId,
    site: Site,
    submitted: Instant,
    has_parts: bool,
    /// It has to end after the part that runs.
    is_cancelled: bool,
}

impl RunningTask {
    fn new(job: &QueuedTask) -> RunningTask {
        let &QueuedTask { task, site, submitted, has_parts, .. } = job;
        RunningTask { task, site, submitted, has_parts, is_cancelled: false }
    }
}

/// How far the pool is open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Intake {
    Open,
    /// Queued tasks are run, and no others are accepted.
    Finishing,
    /// The threads end.
    Closed,
}

struct PoolState {
    lanes: Lanes,
    intake: Intake,
    /// By number; `None` is the number of a thread that has ended.
    threads: Vec<Option<Activity>>,
    serving: usize,
    /// How many threads run a slow task, not counting the stuck ones.
    busy_slow: usize,
    sleeping: usize,
    /// A sleeping thread was woken and has not taken a task yet.
    is_calling: bool,
}

impl PoolState {
    /// At most half of the threads, rounded up, are for slow tasks.
    fn slow_may_run(&self) -> bool {
        self.busy_slow < self.serving.div_ceil(2)
    }

    /// Whether a sleeping thread should be woken now. Threads are woken one at a time, each by the one before it: short
    /// tasks are done before a second thread is awake, and waking a thread costs more than such a task.
    fn should_call(&mut self) -> bool {
        let should_call = self.sleeping > 0 && !self.is_calling && self.lanes.has_next(self.slow_may_run());
        self.is_calling |= should_call;
        should_call
    }

    /// The thread is done with its task. Returns what it was doing.
    fn end_activity(&mut self, number: usize) -> Option<Activity> {
        let activity = self.threads.get_mut(number)?.replace(Activity::Idle);
        if let Some(Activity::Busy(running)) = activity {
            self.busy_slow -= usize::from(running.task.lane == Lane::Slow);
        }
        activity
    }

    fn take_next(&mut self, number: usize) -> Option<QueuedTask> {
        let job = self.lanes.pop(self.slow_may_run())?;
        self.busy_slow += usize::from(job.task.lane == Lane::Slow);
        self.threads[number] = Some(Activity::Busy(RunningTask::new(&job)));
        Some(job)
    }

    fn running(&mut self, task: TaskId) -> Option<(usize, &mut Activity, RunningTask)> {
        let mut threads = self.threads.iter_mut().enumerate();
        threads.find_map(|(number, activity)| match activity {
            Some(activity @ Activity::Busy(_)) => {
                let Activity::Busy(running) = *activity else { return None };
                (running.task == task).then_some((number, activity, running))
            }
            _ => None,
        })
    }

    fn write_off_running(&mut self, task: TaskId, pool: &'static str, now: Instant) -> WriteOff {
        let Some((thread, activity, running)) = self.running(task) else { return WriteOff::IsDone };
        let RunningTask { site, submitted, .. } = running;
        let stuck = StuckTask { pool, thread, site, lane: task.lane, submitted, since: now };
        *activity = Activity::Stuck(stuck);
        self.serving -= 1;
        self.busy_slow -= usize::from(task.lane == Lane::Slow);
        WriteOff::ThreadIsStuck(stuck)
    }

    fn stuck(&self) -> impl Iterator<Item = StuckTask> {
        self.threads.iter().filter_map(|activity| match activity {
            Some(Activity::Stuck(stuck)) => Some(*stuck),
            _ => None,
        })
    }

    fn existing(&self) -> usize {
        self.threads.iter().flatten().count()
    }
}

pub(super) struct ThreadPool {
    config: IoPoolConfig,
    remote: Remote,
    origin: Origin,
    state: Mutex<PoolState>,
    work: Condvar,
}

/// The loop's side.
impl ThreadPool {
    pub(super) fn start(config: IoPoolConfig, remote: Remote) -> io::Result<Arc<ThreadPool>> {
        let state = PoolState {
            lanes: Lanes::default(),
            intake: Intake::Open,
            threads: Vec::new(),
            serving: 0,
            busy_slow: 0,
            sleeping: 0,
            is_calling: false,
        };
        let thread_pool = Arc::new(ThreadPool {
            config,
            remote,
            origin: Origin::here(),
            state: Mutex::new(state),
            work: Condvar::new(),
        });
        for _ in 0..config.threads {
            if let Err(error) = thread_pool.add_thread() {
                thread_pool.close();
                return Err(error);
            }
        }
        Ok(thread_pool)
    }

    pub(super) fn accept(&self, job: QueuedTask) -> Result<(), RefusedTask> {
        let mut state = self.lock();
        if state.intake != Intake::Open {
            return Err(RefusedTask::PoolIsShut(job));
        }
        if state.lanes.len(job.task.lane) >= self.config.queue_max {
            return Err(RefusedTask::QueueIsFull(job));
        }
        state.lanes.push(job);
        self.call_if_useful(state);
        Ok(())
    }

    /// Takes a waiting task out, or marks a running one if it can be stopped at the end of its part.
    pub(super) fn cancel(&self, task: TaskId) -> Result<QueuedTask, CancelOutcome> {
        let mut state = self.lock();
        if let Some(job) = state.lanes.take(task) {
            return Ok(job);
        }
        match state.running(task) {
            Some((_, Activity::Busy(running), _)) if running.has_parts => {
                running.is_cancelled = true;
                Err(CancelOutcome::AfterThisPart)
            }
            Some(_) => Err(CancelOutcome::Running),
            // It is done, and its answer is on the way.
            None => Err(CancelOutcome::NotFound),
        }
    }

    /// Gives up tasks whose deadline has passed. Returns the state of each, in the same order.
    pub(super) fn write_off(&self, tasks: &[TaskId], now: Instant) -> Vec<(TaskId, WriteOff)> {
        let mut state = self.lock();
        let mut queued = state.lanes.take_each(tasks);
        let mut write_off = |&task: &TaskId| match queued.remove(&task) {
            Some(job) => (task, WriteOff::WasQueued(job)),
            None => (task, state.write_off_running(task, self.config.name, now)),
        };
        let written_off = tasks.iter().map(&mut write_off).collect();
        // The slow lane may use a thread again, and a stuck thread may not be replaced.
        self.call_if_useful(state);
        written_off
    }

    /// Adds a thread in place of a stuck one, if the limit allows it.
    pub(super) fn replace_stuck(self: &Arc<ThreadPool>) -> io::Result<()> {
        let state = self.lock();
        let may_grow = state.existing() < self.config.threads_max
            && state.serving < self.config.threads
            && state.intake != Intake::Closed;
        drop(state);
        if may_grow { self.add_thread() } else { Ok(()) }
    }

    /// Takes no more tasks, and serves those that wait.
    pub(super) fn finish(&self) {
        let mut state = self.lock();
        if state.intake == Intake::Open {
            state.intake = Intake::Finishing;
        }
    }

    /// Whether the threads are those of this process.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.origin.is_here()
    }

    #[cfg(test)]
    pub(super) fn lock_for_ever(&self) {
        std::mem::forget(self.lock());
    }

    /// Lets the threads go when they are done with what they do. What still waited is handed back. A forked child has no such
    /// threads, and one of them may have had the lock.
    pub(super) fn close(&self) -> Vec<QueuedTask> {
        if !self.is_of_this_process() {
            return Vec::new();
        }
        let mut state = self.lock();
        state.intake = Intake::Closed;
        let left_over = state.lanes.take_all();
        drop(state);
        self.work.notify_all();
        left_over
    }

    /// The present numbers. The loop counts the finished tasks.
    pub(super) fn stats(&self, finished: u64) -> IoPoolStats {
        let state = self.lock();
        let is_busy = |activity: &&Activity| matches!(activity, Activity::Busy(_));
        let queued_slow = state.lanes.len(Lane::Slow);
        IoPoolStats {
            name: self.config.name,
            threads: state.serving,
            busy: state.threads.iter().flatten().filter(is_busy).count(),
            busy_slow: state.busy_slow,
            queued: state.lanes.len(Lane::Fast) + queued_slow,
            queued_slow,
            stuck: state.stuck().count(),
            finished,
        }
    }

    pub(super) fn stuck(&self) -> Vec<StuckTask> {
        self.lock().stuck().collect()
    }

    fn add_thread(self: &Arc<ThreadPool>) -> io::Result<()> {
        let mut state = self.lock();
        let free = state.threads.iter().position(Option::is_none);
        let number = free.unwrap_or(state.threads.len());
        if free.is_none() {
            state.threads.push(None);
        }
        state.threads[number] = Some(Activity::Idle);
        state.serving += 1;
        drop(state);
        let thread_pool = Arc::clone(self);
        let name = format!("{}-{number}", self.config.name);
        let started = thread::Builder::new().name(name).spawn(move || thread_pool.serve(number));
        if started.is_err() {
            self.lock().remove_thread(number);
        }
        started.map(drop)
    }

    /// Wakes a thread for what was queued, without keeping it from the lock.
    fn call_if_useful(&self, mut state: MutexGuard<'_, PoolState>) {
        let should_call = state.should_call();
        drop(state);
        if should_call {
            self.work.notify_one();
        }
    }

    /// No code of others runs under this lock, so a poisoned one guards nothing broken.
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolState {
    /// A serving thread goes.
    fn remove_thread(&mut self, number: usize) {
        self.threads[number] = None;
        self.serving -= 1;
    }

    /// A stuck thread has returned. False if it is not needed any more.
    fn keep_returned_thread(&mut self, number: usize, wanted: usize) -> bool {
        let is_needed = self.serving < wanted;
        self.threads[number] = is_needed.then_some(Activity::Idle);
        self.serving += usize::from(is_needed);
        is_needed
    }
}

/// A thread's side.
impl ThreadPool {
    fn serve(&self, number: usize) {
        let mut next = self.wait_for_job(number);
        while let Some(mut job) = next {
            next = match job.work.run_part() {
                ControlFlow::Continue(()) => self.put_back(number, job),
                ControlFlow::Break(()) => self.answer_and_take_next(number, job.task, job.work),
            };
        }
    }

    /// Ends a task and takes the next one. The answer comes second, so that whoever gets it finds this thread no
    /// longer busy with the task.
    fn answer_and_take_next(
        &self,
        number: usize,
        task: TaskId,
        answer: Box<dyn Any + Send>,
    ) -> Option<QueuedTask> {
        let mut state = self.lock();
        let is_surplus = matches!(state.end_activity(number), Some(Activity::Stuck(_)))
            && !state.keep_returned_thread(number, self.config.threads);
        let next = if is_surplus { None } else { state.take_next(number) };
        self.call_if_useful(state);
        self.answer(task, answer);
        if next.is_some() || is_surplus { next } else { self.wait_for_job(number) }
    }

    /// Waits for a job. `None` means that the thread ends.
    fn wait_for_job(&self, number: usize) -> Option<QueuedTask> {
        self.take_or_wait(number, self.lock())
    }

    fn take_or_wait(&self, number: usize, mut state: MutexGuard<'_, PoolState>) -> Option<QueuedTask> {
        loop {
            if let Some(job) = state.take_next(number) {
                self.call_if_useful(state);
                return Some(job);
            }
            if state.intake == Intake::Closed {
                state.remove_thread(number);
                return None;
            }
            state.sleeping += 1;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.sleeping -= 1;
            state.is_calling = false;
        }
    }

    /// Queues the next part of a job behind the others, unless the job was cancelled or given up, and takes the next job.
    fn put_back(&self, number: usize, job: QueuedTask) -> Option<QueuedTask> {
        let mut state = self.lock();
        let refusal = match (state.threads[number], state.intake) {
            (Some(Activity::Busy(RunningTask { is_cancelled: true, .. })), _) => IoError::Cancelled,
            (Some(Activity::Busy(_)), Intake::Open | Intake::Finishing) => {
                state.end_activity(number);
                state.lanes.push(job);
                return self.take_or_wait(number, state);
            }
            // If its thread was written off, the task was answered then, and this answer is dropped.
            _ => IoError::ShutDown { pool: self.config.name },
        };
        drop(state);
        let task = job.task;
        drop_quietly(job);
        self.answer_and_take_next(number, task, Box::new(refusal))
    }

    /// Hands an answer to the loop. If the loop is gone, the answer is dropped.
    fn answer(&self, task: TaskId, answer: Box<dyn Any + Send>) {
        if let Err(unwanted) = self.remote.answer(task.request, answer) {
            drop_quietly(unwanted);
        }
    }
}
