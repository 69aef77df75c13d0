//! What a handle does on the loop: gives jobs to the pool, and tells how they ended.

use super::super::ComputePool;
use super::door::{Door, Order};
use super::end::Teller;
use crate::hub::Subscriber;
use crate::job::Job;
use offload_event_loop::Hold;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;

/// The doors of one pool. They are closed when the pool has ended, so that whoever has a handle does not keep the loop alive for
/// nothing.
#[derive(Default)]
pub(in super::super) struct Doors(RefCell<Vec<std::sync::Weak<Door>>>);

impl Doors {
    pub(super) fn add(&self, door: &Arc<Door>) {
        let mut doors = self.0.borrow_mut();
        doors.retain(|door| door.strong_count() > 0);
        doors.push(Arc::downgrade(door));
    }

    pub(in super::super) fn close(&self) {
        let doors = self.0.take();
        doors.iter().filter_map(std::sync::Weak::upgrade).for_each(|door| door.close());
    }
}

/// A future of the loop. When it ends, however it does, each job has its end.
pub(super) struct LoopSide {
    pool: ComputePool,
    door: Arc<Door>,
    live: Rc<RefCell<LiveJobs>>,
    _hold: Hold,
}

/// The jobs that the pool has. They are not in the hands of the pool, which may outlive its loop.
#[derive(Default)]
struct LiveJobs {
    last: u64,
    tellers: BTreeMap<u64, Teller>,
}

impl LoopSide {
    #[track_caller]
    pub(super) fn new(pool: &ComputePool, door: &Arc<Door>) -> LoopSide {
        let (pool, door, hold) = (pool.clone(), Arc::clone(door), pool.handle.hold());
        LoopSide { pool, door, live: Rc::default(), _hold: hold }
    }

    pub(super) async fn run(self) {
        while let Some(orders) = poll_fn(|context| self.door.poll_orders(context)).await {
            orders.into_iter().for_each(|order| self.carry_out(order));
            // Everything else on the loop has its turn.
            self.pool.handle.next_iteration().await;
        }
    }

    fn carry_out(&self, order: Order) {
        match order {
            Order::Run { job, teller, submitted } => self.submit(charge_wait(*job, submitted), teller),
            Order::GiveUp(claim) => self.pool.give_up(claim),
        }
    }

    fn submit(&self, job: Job, teller: Teller) {
        if !teller.end().is_wanted() {
            return;
        }
        let end = Arc::clone(teller.end());
        let number = self.live.borrow_mut().add(teller);
        let live = LiveJob { all: Rc::downgrade(&self.live), number };
        let subscriber = Subscriber::new(move |finished, _| {
            if let Some(teller) = live.take() {
                teller.tell(finished);
            }
        });
        let claim = self.pool.start_job(job, subscriber);
        if !end.is_submitted(claim) {
            claim.into_iter().for_each(|claim| self.pool.give_up(claim));
        }
    }
}

impl LiveJobs {
    fn add(&mut self, teller: Teller) -> u64 {
        self.last += 1;
        self.tellers.insert(self.last, teller);
        self.last
    }
}

/// One of them, as its subscriber has it. If the subscriber is dropped because it has left the job, the place is free.
struct LiveJob {
    all: Weak<RefCell<LiveJobs>>,
    number: u64,
}

impl LiveJob {
    fn take(&self) -> Option<Teller> {
        self.all.upgrade()?.borrow_mut().tellers.remove(&self.number)
    }
}

impl Drop for LiveJob {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl Drop for LoopSide {
    fn drop(&mut self) {
        self.door.close();
        // Who is told may come back here.
        let live = std::mem::take(&mut *self.live.borrow_mut());
        drop(live);
    }
}

/// A deadline counts from when the job was submitted, also while the loop had no time for it.
fn charge_wait(mut job: Job, submitted: Instant) -> Job {
    if let Some(deadline) = &mut job.options.deadline_ms {
        let waited = u64::try_from(submitted.elapsed().as_millis()).unwrap_or(u64::MAX);
        *deadline = deadline.saturating_sub(waited);
    }
    job
}
