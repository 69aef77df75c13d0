//! The threads of a pool and the queue that they serve.
//!
//! ```text
//!   idle <--> busy --(deadline)--> stuck --(its task returns after all)--> gone, or idle if hands are missing
//! ```

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::{IoPoolStats, TaskId};

type Site = &'static Location<'static>;

/// A task, as the threads see it.
pub(super) struct Job {
    pub(super) task: TaskId,
    pub(super) site: Site,
    /// Runs one part, and never panics.
    pub(super) part: Box<dyn FnMut() -> ControlFlow<()> + Send>,
}

/// What became of a task whose time is up.
pub(super) enum WriteOff {
    WasQueued(Job),
    ThreadIsStuck,
    IsDone,
}

#[derive(Clone, Copy)]
enum Activity {
    Idle,
    Busy { task: TaskId, site: Site },
    Stuck { site: Site },
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: HashMap<usize, Activity>,
    /// How many threads should serve.
    wanted: usize,
    next_thread: usize,
    sleeping: usize,
    /// A sleeping thread was called and has not come yet.
    is_calling: bool,
    is_closing: bool,
}

impl State {
    fn stuck(&self) -> usize {
        self.threads.values().filter(|activity| matches!(activity, Activity::Stuck { .. })).count()
    }

    fn serving(&self) -> usize {
        self.threads.len() - self.stuck()
    }

    /// True if a sleeping thread should be called now. They are called one at a time, each by the one before it:
    /// short tasks are done before a second thread is awake, and waking one costs more than such a task.
    fn should_call(&mut self) -> bool {
        let should_call = !self.queue.is_empty() && self.sleeping > 0 && !self.is_calling;
        self.is_calling |= should_call;
        should_call
    }
}

#[derive(Default)]
pub(super) struct Crew {
    state: Mutex<State>,
    work: Condvar,
}

/// The loop's side.
impl Crew {
    pub(super) fn start(threads: usize) -> io::Result<Arc<Crew>> {
        let crew = Arc::new(Crew::default());
        crew.lock().wanted = threads;
        for _ in 0..threads {
            if let Err(error) = crew.add_thread() {
                crew.close();
                return Err(error);
            }
        }
        Ok(crew)
    }

    /// Queues a job; gives it back if `queue_max` of them wait already.
    pub(super) fn accept(&self, job: Job, queue_max: usize) -> Result<(), Job> {
        let mut state = self.lock();
        if state.queue.len() >= queue_max {
            return Err(job);
        }
        state.queue.push_back(job);
        let should_call = state.should_call();
        drop(state);
        if should_call {
            self.work.notify_one();
        }
        Ok(())
    }

    pub(super) fn take_queued(&self, task: TaskId) -> Option<Job> {
        let mut state = self.lock();
        let place = state.queue.iter().position(|job| job.task == task)?;
        state.queue.remove(place)
    }

    pub(super) fn write_off(&self, task: TaskId) -> WriteOff {
        if let Some(job) = self.take_queued(task) {
            return WriteOff::WasQueued(job);
        }
        for activity in self.lock().threads.values_mut() {
            match *activity {
                Activity::Busy { task: running, site } if running == task => {
                    *activity = Activity::Stuck { site };
                    return WriteOff::ThreadIsStuck;
                }
                _ => {}
            }
        }
        WriteOff::IsDone
    }

    /// Adds a thread for one that is stuck, if there may be another one.
    pub(super) fn replace_stuck(self: &Arc<Crew>, threads: usize, threads_max: usize) -> io::Result<()> {
        let state = self.lock();
        let may_grow = state.threads.len() < threads_max && state.serving() < threads;
        drop(state);
        if may_grow { self.add_thread() } else { Ok(()) }
    }

    /// Lets the threads go when they are done with what they do. What still waited is handed back.
    pub(super) fn close(&self) -> VecDeque<Job> {
        let mut state = self.lock();
        state.is_closing = true;
        let left_over = std::mem::take(&mut state.queue);
        drop(state);
        self.work.notify_all();
        left_over
    }

    pub(super) fn stats(&self) -> IoPoolStats {
        let state = self.lock();
        let busy =
            state.threads.values().filter(|activity| matches!(activity, Activity::Busy { .. })).count();
        IoPoolStats { threads: state.serving(), busy, queued: state.queue.len(), stuck: state.stuck() }
    }

    pub(super) fn stuck_sites(&self) -> Vec<Site> {
        let site_of = |activity: &Activity| match activity {
            Activity::Stuck { site } => Some(*site),
            _ => None,
        };
        self.lock().threads.values().filter_map(site_of).collect()
    }

    fn add_thread(self: &Arc<Crew>) -> io::Result<()> {
        let mut state = self.lock();
        let number = state.next_thread;
        state.next_thread += 1;
        state.threads.insert(number, Activity::Idle);
        drop(state);
        let crew = Arc::clone(self);
        let started =
            thread::Builder::new().name(format!("offload-io-{number}")).spawn(move || crew.serve(number));
        if started.is_err() {
            self.lock().threads.remove(&number);
        }
        started.map(drop)
    }

    /// No code of others runs under this lock, so a poisoned one guards nothing broken.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread's side.
impl Crew {
    fn serve(&self, number: usize) {
        while let Some(mut job) = self.next_job(number) {
            match (job.part)() {
                ControlFlow::Continue(()) => self.put_back(number, job),
                ControlFlow::Break(()) => drop_quietly(job),
            }
        }
    }

    /// Waits for a job. `None` sends the thread home.
    fn next_job(&self, number: usize) -> Option<Job> {
        let mut state = self.lock();
        let was_stuck = matches!(state.threads.get(&number), Some(Activity::Stuck { .. }));
        if was_stuck && state.serving() >= state.wanted {
            state.threads.remove(&number);
            return None;
        }
        loop {
            if let Some(job) = state.queue.pop_front() {
                state.threads.insert(number, Activity::Busy { task: job.task, site: job.site });
                if state.should_call() {
                    self.work.notify_one();
                }
                return Some(job);
            }
            if state.is_closing {
                state.threads.remove(&number);
                return None;
            }
            state.threads.insert(number, Activity::Idle);
            state.sleeping += 1;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.sleeping -= 1;
            state.is_calling = false;
        }
    }

    /// Queues the next part of a job behind the others, unless nobody waits for it any more.
    fn put_back(&self, number: usize, job: Job) {
        let mut state = self.lock();
        let is_wanted = matches!(state.threads.get(&number), Some(Activity::Busy { .. }));
        if is_wanted && !state.is_closing {
            state.threads.insert(number, Activity::Idle);
            state.queue.push_back(job);
        } else {
            drop(state);
            drop_quietly(job);
        }
    }
}

/// What a task owns may panic when dropped, and that must not cost the pool a thread.
fn drop_quietly(job: Job) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(job)));
}
