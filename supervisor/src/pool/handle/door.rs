//! What the threads that have a handle share with the loop: the places, and what the loop has to do next. Wakers are called,
//! and jobs dropped, when nothing is locked any more, because both may come back here.
//!
//! A forked child may drop whatever it has of this, but it has none of the threads. One of them may have had the lock, so the
//! child does not take it; and it leaves alone who waits, because that waits in the parent.

use super::super::claim::Claim;
use super::end::Teller;
use super::places::{Full, HandleLimits, Places, Woken};
use crate::job::Job;
use crate::limits::HANDLE_ORDERS_PER_TURN;
use crate::origin::Origin;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// See the module's documentation.
pub(super) struct Door {
    origin: Origin,
    state: Mutex<DoorState>,
}

struct DoorState {
    places: Places,
    /// A job has a place, and a job is given up once, so there are never more than twice as many as places.
    orders: VecDeque<Order>,
    /// Of the loop's side, while it waits for orders.
    waker: Option<Waker>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// No handle and no job of one is left, so nothing more will come.
    Left,
    /// The pool or its loop is gone: nobody takes what comes.
    Gone,
}

/// Something for the loop to do.
pub(super) enum Order {
    Run { job: Box<Job>, teller: Teller, submitted: Instant },
    GiveUp(Claim),
}

impl Door {
    pub(super) fn new(limits: HandleLimits) -> Door {
        let places = Places::new(limits);
        let state = DoorState { places, orders: VecDeque::new(), waker: None, stage: Stage::Open };
        Door { origin: Origin::here(), state: Mutex::new(state) }
    }

    /// A panic under this lock would be a mistake of ours, and each job has its end all the same.
    fn state(&self) -> MutexGuard<'_, DoorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Door::state`], for whatever is being dropped. In a forked child there is none: nothing here is ever dropped there.
    fn state_to_leave(self: &Arc<Door>) -> Option<MutexGuard<'_, DoorState>> {
        if self.origin.is_here() {
            return Some(self.state());
        }
        std::mem::forget(Arc::clone(self));
        None
    }

    pub(super) fn origin(&self) -> Origin {
        self.origin
    }

    /// Takes a place for a job.
    ///
    /// # Errors
    /// There is no room, or nobody would take the job.
    pub(super) fn take_place(self: &Arc<Door>, client: &Arc<str>, bytes: u64) -> Result<Place, ErrorDetail> {
        let mut state = self.state();
        if state.stage == Stage::Gone {
            return Err(gone());
        }
        state.places.take(client, bytes).map_err(no_room)?;
        drop(state);
        Ok(Place::new(self, client, bytes))
    }

    /// Waits for a place: the ticket is what it waits with. None if nobody would take a job.
    pub(super) fn poll_place(
        self: &Arc<Door>,
        client: &Arc<str>,
        ticket: &mut Option<u64>,
        context: &Context<'_>,
    ) -> Poll<Option<Place>> {
        let mut state = self.state();
        if state.stage == Stage::Gone {
            return Poll::Ready(None);
        }
        let waker = context.waker();
        let (has_place, waker_before) = match *ticket {
            Some(number) if state.places.is_granted(client, number) => (true, None),
            Some(number) => (false, state.places.replace_waker(client, number, waker)),
            None => match state.places.reserve(client, waker) {
                Ok(()) => (true, None),
                Err(number) => {
                    *ticket = Some(number);
                    (false, None)
                }
            },
        };
        drop(state);
        drop(waker_before);
        if !has_place {
            return Poll::Pending;
        }
        *ticket = None;
        Poll::Ready(Some(Place::new(self, client, 0)))
    }

    pub(super) fn drop_ticket(self: &Arc<Door>, client: &str, ticket: u64) {
        let Some(mut state) = self.state_to_leave() else { return };
        let woken = state.places.drop_ticket(client, ticket);
        drop(state);
        wake(woken);
    }

    /// Leaves something for the loop to do, and wakes it if it waits. If it is gone, the order is dropped, which ends its job.
    pub(super) fn put(&self, order: Order) {
        let mut state = self.state();
        if state.stage == Stage::Gone {
            drop(state);
            return drop(order);
        }
        state.orders.push_back(order);
        let waker = state.waker.take();
        drop(state);
        wake(waker);
    }

    /// The next orders. None if nothing more is to be done.
    pub(super) fn poll_orders(&self, context: &Context<'_>) -> Poll<Option<Vec<Order>>> {
        let mut state = self.state();
        let count = state.orders.len().min(HANDLE_ORDERS_PER_TURN);
        match (count, state.stage) {
            (_, Stage::Gone) | (0, Stage::Left) => Poll::Ready(None),
            (0, Stage::Open) => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
            (_, Stage::Open | Stage::Left) => Poll::Ready(Some(state.orders.drain(..count).collect())),
        }
    }

    /// No handle and no job of one is left.
    pub(super) fn leave(self: &Arc<Door>) {
        let Some(mut state) = self.state_to_leave() else { return };
        if state.stage == Stage::Open {
            state.stage = Stage::Left;
        }
        let waker = state.waker.take();
        drop(state);
        wake(waker);
    }

    /// From here on nobody takes what comes. What is there ends, and whoever waits for a place is told.
    pub(super) fn close(self: &Arc<Door>) {
        let Some(mut state) = self.state_to_leave() else { return };
        state.stage = Stage::Gone;
        let orders = std::mem::take(&mut state.orders);
        let mut woken = state.places.take_waiting();
        woken.extend(state.waker.take());
        drop(state);
        drop(orders);
        wake(woken);
    }
}

fn wake(woken: impl IntoIterator<Item = Waker>) {
    woken.into_iter().for_each(Waker::wake);
}

/// The place of one job, with the bytes that are held for it. It is free again when this is dropped.
pub(super) struct Place {
    door: Arc<Door>,
    client: Arc<str>,
    bytes: AtomicU64,
}

impl Place {
    /// The job of a place that was reserved has an input of this many bytes.
    ///
    /// # Errors
    /// There is no room for them, or nobody would take the job.
    pub(super) fn bring(&mut self, bytes: u64) -> Result<(), ErrorDetail> {
        let mut state = self.door.state();
        if state.stage == Stage::Gone {
            return Err(gone());
        }
        state.places.bring(&self.client, bytes).map_err(no_room)?;
        drop(state);
        *self.bytes.get_mut() += bytes;
        Ok(())
    }

    fn new(door: &Arc<Door>, client: &Arc<str>, bytes: u64) -> Place {
        Place { door: Arc::clone(door), client: Arc::clone(client), bytes: AtomicU64::new(bytes) }
    }

    /// So many bytes are held from now on.
    pub(super) fn hold(&self, bytes: u64) {
        let woken: Woken = {
            let mut state = self.door.state();
            let before = self.bytes.swap(bytes, Ordering::Relaxed);
            state.places.hold(&self.client, before, bytes)
        };
        wake(woken);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(mut state) = self.door.state_to_leave() else { return };
        let woken = state.places.release(&self.client, *self.bytes.get_mut());
        drop(state);
        wake(woken);
    }
}

pub(in super::super) fn gone() -> ErrorDetail {
    ErrorDetail::new(OutcomeCode::Unavailable, "the pool or its event loop has ended")
}

fn no_room(full: Full) -> ErrorDetail {
    match full {
        Full::Everything => {
            ErrorDetail::new(OutcomeCode::Overloaded, "the handle of the pool has no room for another job")
        }
        Full::ShareOfClient => {
            ErrorDetail::new(OutcomeCode::Quota, "this client has its share of the jobs of the handle")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::end::JobEnd;
    use super::*;
    use offload_core::ids::JobId;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn give_up(number: u64) -> Order {
        Order::GiveUp(Claim::new(JobId(number), None))
    }

    #[test]
    fn the_loop_is_woken_once_for_a_burst_and_takes_it_in_pieces() {
        let door = Door::new(HandleLimits { jobs: 10, bytes: 10 });
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let context = Context::from_waker(&waker);
        assert!(door.poll_orders(&context).is_pending());
        (0..100).for_each(|number| door.put(give_up(number)));
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        let taken = |expected: usize| match door.poll_orders(&context) {
            Poll::Ready(Some(orders)) => assert_eq!(orders.len(), expected),
            _ => panic!("there are orders"),
        };
        taken(HANDLE_ORDERS_PER_TURN);
        taken(100 - HANDLE_ORDERS_PER_TURN);
        assert!(door.poll_orders(&context).is_pending());
        door.put(give_up(100));
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn what_was_put_before_the_last_handle_was_dropped_is_still_done() {
        let door = Arc::new(Door::new(HandleLimits { jobs: 10, bytes: 10 }));
        let context = Context::from_waker(Waker::noop());
        door.put(give_up(1));
        door.leave();
        assert!(matches!(door.poll_orders(&context), Poll::Ready(Some(_))));
        assert!(matches!(door.poll_orders(&context), Poll::Ready(None)));
    }

    /// The test has the lock all the time, as a thread of the parent may have it for ever.
    #[test]
    fn a_forked_child_leaves_everything_without_the_lock_and_wakes_nobody() {
        let mut door = Door::new(HandleLimits { jobs: 2, bytes: 10 });
        door.origin = Origin::elsewhere();
        let (door, client) = (Arc::new(door), Arc::from("client"));
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let place = door.take_place(&client, 0).expect("there is room");
        let mut ticket = None;
        assert!(door.poll_place(&client, &mut ticket, &Context::from_waker(&waker)).is_pending());
        assert!(door.poll_orders(&Context::from_waker(&waker)).is_pending());
        let end = Arc::new(JobEnd::new("any", Some(place), door.origin()));
        assert!(end.poll(&Context::from_waker(&waker)).is_pending());
        let locked = door.state();
        door.drop_ticket(&client, ticket.expect("it waits"));
        drop(Teller::of(&end));
        assert!(end.give_up().is_none());
        drop(end);
        door.leave();
        door.close();
        drop(locked);
        drop((door, waker));
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        assert_eq!(Arc::strong_count(&count), 4, "what waits is neither woken nor dropped");
    }
}
