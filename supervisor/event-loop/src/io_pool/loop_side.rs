//! The loop's side of a pool: which tasks are not answered yet, and when their deadlines are.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::deadlines::Deadlines;
use super::on_stuck::{OnStuck, StuckCallback};
use super::thread_pool::{RefusedTask, ThreadPool, WriteOff};
use super::work::{QueuedTask, drop_quietly};
use super::{CancelOutcome, IoError, IoPoolConfig, StuckTask, TaskId};
use crate::callback::Site;
use crate::{Context, LoopHandle, OnGone, TimerId};

type ShutDownCallback = Box<dyn FnOnce(&mut Context)>;

pub(super) struct LoopSide {
    pub(super) event_loop: LoopHandle,
    pub(super) config: IoPoolConfig,
    pub(super) thread_pool: Arc<ThreadPool>,
    /// The number of this pool, by which its tasks are told from those of other pools.
    pub(super) number: u64,
    /// How many tasks wait for their answer.
    awaited: Cell<usize>,
    finished: Cell<u64>,
    deadlines: RefCell<Deadlines>,
    deadline_timer: Cell<Option<DeadlineTimer>>,
    /// The callbacks that wait for the end of the pool.
    on_shut_down: RefCell<Vec<(Site, ShutDownCallback)>>,
    on_stuck: RefCell<OnStuck>,
    _on_loop_gone: OnGone,
}

/// The timer of the earliest deadline.
#[derive(Clone, Copy)]
struct DeadlineTimer {
    timer: TimerId,
    due: Instant,
}

/// Tasks and their answers.
impl LoopSide {
    pub(super) fn new(
        event_loop: LoopHandle,
        config: IoPoolConfig,
        thread_pool: Arc<ThreadPool>,
        number: u64,
    ) -> Rc<LoopSide> {
        let loop_side = Rc::new_cyclic(|me: &Weak<LoopSide>| LoopSide {
            _on_loop_gone: LoopSide::hear_of_loop_gone(me, &event_loop),
            event_loop,
            config,
            thread_pool,
            number,
            awaited: Cell::new(0),
            finished: Cell::new(0),
            deadlines: RefCell::default(),
            deadline_timer: Cell::new(None),
            on_shut_down: RefCell::default(),
            on_stuck: RefCell::default(),
        });
        if loop_side.event_loop.is_gone() {
            loop_side.on_loop_gone();
        }
        loop_side
    }

    fn hear_of_loop_gone(me: &Weak<LoopSide>, event_loop: &LoopHandle) -> OnGone {
        let me = Weak::clone(me);
        event_loop.on_gone(move || me.upgrade().iter().for_each(|loop_side| loop_side.on_loop_gone()))
    }

    /// No callback that waits here will ever be called, and none that comes from here on.
    fn on_loop_gone(&self) {
        let never_called = self.on_shut_down.take();
        drop(never_called);
        self.forget_on_stuck();
    }

    pub(super) fn enqueue(&self, job: QueuedTask) {
        let (refused, error) = match self.thread_pool.accept(job) {
            Ok(()) => return,
            Err(RefusedTask::QueueIsFull(job)) => (job, IoError::Overloaded { pool: self.config.name }),
            Err(RefusedTask::PoolIsShut(job)) => (job, self.is_shut()),
        };
        self.fail(refused.task, error);
        drop(refused);
    }

    /// The answer of a task has arrived and will be delivered next.
    pub(super) fn on_answer(&self, answer: &dyn Any) {
        self.awaited.set(self.awaited.get() - 1);
        self.finished.set(self.finished.get() + u64::from(!answer.is::<IoError>()));
        if self.awaited.get() == 0 && !self.on_shut_down.borrow().is_empty() {
            self.answer_shut_down();
        }
    }

    /// Answers a task in its place.
    fn fail(&self, task: TaskId, error: IoError) {
        self.event_loop.answer(task.request, Box::new(error));
    }

    fn is_awaited(&self, task: TaskId) -> bool {
        task.pool == self.number && self.event_loop.is_awaited(task.request)
    }

    pub(super) fn cancel(&self, task: TaskId) -> CancelOutcome {
        if !self.is_awaited(task) {
            return CancelOutcome::NotFound;
        }
        match self.thread_pool.cancel(task) {
            Ok(job) => {
                self.fail(task, IoError::Cancelled);
                drop(job);
                CancelOutcome::Cancelled
            }
            Err(outcome) => outcome,
        }
    }

    pub(super) fn finished(&self) -> u64 {
        self.finished.get()
    }

    fn is_shut(&self) -> IoError {
        IoError::ShutDown { pool: self.config.name }
    }
}

/// Deadlines.
impl LoopSide {
    /// Counts a task that was submitted at `now`, and sets its deadline.
    pub(super) fn expect(self: &Rc<LoopSide>, task: TaskId, now: Instant, deadline: Duration) {
        self.awaited.set(self.awaited.get() + 1);
        // A deadline that the clock cannot represent is none.
        let Some(due) = now.checked_add(deadline) else { return };
        let mut deadlines = self.deadlines.borrow_mut();
        deadlines.push(due, task);
        if deadlines.need_sweep(self.awaited.get()) {
            deadlines.sweep(|task| self.is_awaited(task));
        }
        drop(deadlines);
        if self.deadline_timer.get().is_none_or(|deadline_timer| due < deadline_timer.due) {
            self.set_deadline_timer(due, now);
        }
    }

    fn set_deadline_timer(self: &Rc<LoopSide>, due: Instant, now: Instant) {
        let loop_side = Rc::downgrade(self);
        let ring = move |_: &mut Context| {
            if let Some(loop_side) = loop_side.upgrade() {
                loop_side.on_deadline();
            }
        };
        let timer = self.event_loop.set_timeout(due.saturating_duration_since(now), ring);
        // The awaited answers keep the loop alive, not the timer of their deadlines.
        self.event_loop.unref(timer);
        if let Some(previous) = self.deadline_timer.replace(Some(DeadlineTimer { timer, due })) {
            self.event_loop.clear(previous.timer);
        }
    }

    fn on_deadline(self: &Rc<LoopSide>) {
        self.deadline_timer.set(None);
        let now = self.event_loop.clock_reading();
        let mut due = self.deadlines.borrow_mut().take_due(now);
        due.retain(|&task| self.is_awaited(task));
        for (task, written_off) in self.thread_pool.write_off(&due, now) {
            self.time_out(task, written_off);
        }
        self.deadlines.borrow_mut().sweep(|task| self.is_awaited(task));
        let next = self.deadlines.borrow().next_due();
        if let Some(due) = next {
            self.set_deadline_timer(due, now);
        }
    }

    fn time_out(self: &Rc<LoopSide>, task: TaskId, written_off: WriteOff) {
        match written_off {
            WriteOff::WasQueued(job) => drop_quietly(job),
            WriteOff::ThreadIsStuck(stuck) => {
                // If the system has no more threads, the pool goes on with fewer.
                let _ = self.thread_pool.replace_stuck();
                self.report(stuck);
            }
            // It is done, and its answer is on the way.
            WriteOff::IsDone => return,
        }
        self.fail(task, IoError::TimedOut { pool: self.config.name });
    }

    /// The report is a callback of its own, so that its panic harms no other task.
    fn report(self: &Rc<LoopSide>, stuck: StuckTask) {
        if !self.on_stuck.borrow().is_set() {
            return;
        }
        let loop_side = Rc::clone(self);
        self.event_loop.set_pending_at(stuck.site, move |context| loop_side.call_on_stuck(context, stuck));
    }

    fn call_on_stuck(&self, context: &mut Context, stuck: StuckTask) {
        let taken = self.on_stuck.borrow_mut().take();
        let Some(mut on_stuck) = taken else { return };
        let result = catch_unwind(AssertUnwindSafe(|| on_stuck(context, stuck)));
        let leftover = self.on_stuck.borrow_mut().put_back(on_stuck);
        match result {
            Ok(()) => drop(leftover),
            Err(panic) => {
                drop_quietly(leftover);
                // The loop treats it as the panic of any callback.
                resume_unwind(panic);
            }
        }
    }

    pub(super) fn set_on_stuck(&self, callback: StuckCallback) {
        let leftover = self.on_stuck.borrow_mut().set(callback);
        drop(leftover);
    }

    pub(super) fn forget_on_stuck(&self) {
        let leftover = self.on_stuck.borrow_mut().close();
        drop(leftover);
    }
}

/// The end.
impl LoopSide {
    pub(super) fn shut_down(&self, site: Site, callback: ShutDownCallback) {
        self.thread_pool.finish();
        if self.event_loop.is_gone() {
            return;
        }
        self.on_shut_down.borrow_mut().push((site, callback));
        if self.awaited.get() == 0 {
            self.answer_shut_down();
        }
    }

    fn answer_shut_down(&self) {
        self.close();
        for (site, callback) in self.on_shut_down.take() {
            self.event_loop.set_pending_at(site, callback);
        }
    }

    pub(super) fn close(&self) {
        for job in self.thread_pool.close() {
            self.fail(job.task, self.is_shut());
            drop_quietly(job);
        }
    }
}
