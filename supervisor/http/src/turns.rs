//! How much of each turn of the loop costly work of one kind may have, all connections of a server together: handshakes, and long
//! documents.
//!
//! ```text
//!   a step of such work ----- nobody waits, and there is time left ---> it is computed, and what it took is spent
//!      |                                                                     |
//!      '--- otherwise ---> waits; clients take turns, and each has its own   <' the next one, while there is time left
//!                          in the order of asking
//!                             ^
//!                             '--- the next turn of the loop: nothing is spent yet
//! ```

use offload_event_loop::LoopHandle;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What one turn of the loop may have; a step that has begun is finished.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    pub(crate) steps: usize,
    pub(crate) time: Duration,
}

/// See the module's documentation.
pub(crate) struct Turns {
    handle: LoopHandle,
    most: Most,
    /// In this turn of the loop.
    steps: Cell<usize>,
    time: Cell<Duration>,
    waiting: RefCell<Waiting>,
    is_renewed_later: Cell<bool>,
}

/// At most one place for each connection (handshakes) or each request (documents), and some of those that are gone.
#[derive(Default)]
struct Waiting {
    /// None of these is empty.
    of_each: BTreeMap<Arc<str>, VecDeque<Weak<Place>>>,
    /// The clients that have a place, in the order of their turns.
    clients: VecDeque<Arc<str>>,
}

impl Waiting {
    fn push(&mut self, place: &Rc<Place>) {
        let of_client = self.of_each.entry(Arc::clone(&place.client)).or_default();
        if of_client.is_empty() {
            self.clients.push_back(Arc::clone(&place.client));
        }
        of_client.push_back(Rc::downgrade(place));
    }

    /// The first of the client whose turn it is. The client's next one comes after those of all others.
    fn pop(&mut self) -> Option<Weak<Place>> {
        let client = self.clients.pop_front()?;
        let of_client = self.of_each.get_mut(&client)?;
        let first = of_client.pop_front();
        match of_client.is_empty() {
            true => drop(self.of_each.remove(&client)),
            false => self.clients.push_back(client),
        }
        first
    }
}

/// Of one connection, or request, among those that wait.
pub(crate) struct Place {
    /// Whose it is. Handshakes are all of one, without a name, because nothing is known of those that ask for them.
    client: Arc<str>,
    /// While it waits.
    waker: RefCell<Option<Waker>>,
    /// It need not wait any longer.
    is_called: Cell<bool>,
}

impl Place {
    pub(crate) fn of(client: &Arc<str>) -> Rc<Place> {
        let (waker, is_called) = (RefCell::new(None), Cell::new(false));
        Rc::new(Place { client: Arc::clone(client), waker, is_called })
    }
}

impl Turns {
    pub(crate) fn new(handle: &LoopHandle, most: Most) -> Rc<Turns> {
        Rc::new(Turns {
            handle: handle.clone(),
            most,
            steps: Cell::new(0),
            time: Cell::new(Duration::ZERO),
            waiting: RefCell::default(),
            is_renewed_later: Cell::new(false),
        })
    }

    /// Whether this connection may compute one step now; then [`Turns::spend`] is told what it took. If not, its task is woken when it
    /// may.
    pub(crate) fn poll(self: &Rc<Turns>, place: &Rc<Place>, context: &Context<'_>) -> Poll<()> {
        if place.is_called.take() {
            return Poll::Ready(());
        }
        let is_waiting = place.waker.replace(Some(context.waker().clone())).is_some();
        if is_waiting {
            return Poll::Pending;
        }
        if self.waiting.borrow().clients.is_empty() && self.has_time() {
            place.waker.take();
            return Poll::Ready(());
        }
        self.waiting.borrow_mut().push(place);
        self.renew_later();
        Poll::Pending
    }

    /// A step took so long.
    pub(crate) fn spend(self: &Rc<Turns>, time: Duration) {
        self.steps.set(self.steps.get() + 1);
        self.time.set(self.time.get() + time);
        self.renew_later();
        if self.has_time() {
            self.call_next();
        }
    }

    fn has_time(&self) -> bool {
        self.steps.get() < self.most.steps && self.time.get() < self.most.time
    }

    /// Calls the one whose turn it is.
    fn call_next(&self) {
        let next = {
            let mut waiting = self.waiting.borrow_mut();
            std::iter::from_fn(|| waiting.pop()).find_map(|place| place.upgrade())
        };
        if let Some(place) = next {
            place.is_called.set(true);
            let waker = place.waker.take();
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// A connection that was called and is gone before it computes anything costs the others one turn, because each turn calls one.
    fn renew_later(self: &Rc<Turns>) {
        if self.is_renewed_later.replace(true) {
            return;
        }
        let turns = Rc::clone(self);
        self.handle.set_immediate(move |_| {
            turns.is_renewed_later.set(false);
            turns.steps.set(0);
            turns.time.set(Duration::ZERO);
            turns.call_next();
            if !turns.waiting.borrow().clients.is_empty() {
                turns.renew_later();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_event_loop::EventLoop;
    use std::future::poll_fn;

    const MOST: Most = Most { steps: 8, time: Duration::from_millis(1) };

    /// So many connections ask for one step each, which takes `time`. Returns in which turn of the loop each of them had it, in the
    /// order in which they asked; those that `leave` says are gone before.
    fn turns_of(count: usize, time: Duration, leave: impl Fn(usize) -> bool) -> Vec<Option<u64>> {
        let mut event_loop = EventLoop::new().unwrap();
        let handle = event_loop.handle().clone();
        let turns = Turns::new(&handle, MOST);
        let had = Rc::new(RefCell::new(vec![None; count]));
        let mut leaving = Vec::new();
        for number in 0..count {
            let (turns, had, clock) = (Rc::clone(&turns), Rc::clone(&had), handle.clone());
            let task = handle.spawn(async move {
                let place = Place::of(&Arc::default());
                poll_fn(|context| turns.poll(&place, context)).await;
                had.borrow_mut()[number] = Some(clock.metrics().iterations);
                turns.spend(time);
            });
            match leave(number) {
                true => leaving.push(task),
                false => drop(task),
            }
        }
        handle.set_immediate(move |_| leaving.iter().for_each(|task| task.cancel()));
        event_loop.run().unwrap();
        had.take()
    }

    fn most_in_one_turn(turns: &[Option<u64>]) -> usize {
        let count = |turn: &Option<u64>| turns.iter().filter(|other| *other == turn).count();
        turns.iter().filter(|turn| turn.is_some()).map(count).max().unwrap_or(0)
    }

    #[test]
    fn cheap_steps_are_counted_and_expensive_ones_come_one_by_one() {
        assert_eq!(most_in_one_turn(&turns_of(100, Duration::ZERO, |_| false)), MOST.steps);
        assert_eq!(most_in_one_turn(&turns_of(20, MOST.time, |_| false)), 1);
        assert_eq!(most_in_one_turn(&turns_of(20, MOST.time / 2, |_| false)), 2);
    }

    /// Between two steps of one client, every other client that waits has one, however many the first has asked for.
    #[test]
    fn clients_take_turns() {
        let mut event_loop = EventLoop::new().unwrap();
        let turns = Turns::new(&event_loop, Most { steps: 1, ..MOST });
        let order = Rc::new(RefCell::new(Vec::new()));
        for client in ["many"; 50].into_iter().chain(["one", "another", "one"]) {
            let (turns, order) = (Rc::clone(&turns), Rc::clone(&order));
            drop(event_loop.spawn(async move {
                let place = Place::of(&client.into());
                poll_fn(|context| turns.poll(&place, context)).await;
                order.borrow_mut().push(client);
                turns.spend(Duration::ZERO);
            }));
        }
        event_loop.run().unwrap();
        let order = order.take();
        // The first asked before anybody else was there.
        assert_eq!(order[..8], ["many", "many", "one", "another", "many", "one", "many", "many"]);
        assert_eq!(order.len(), 53);
    }

    #[test]
    fn each_has_its_step_in_the_order_of_asking_and_those_that_left_hold_nobody_up() {
        let had = turns_of(60, MOST.time, |number| number % 3 == 2);
        let stayed: Vec<_> = had.iter().enumerate().filter(|(number, _)| number % 3 != 2).collect();
        assert!(stayed.iter().all(|(_, turn)| turn.is_some()), "{had:?}");
        assert!(stayed.is_sorted_by_key(|(_, turn)| **turn), "{had:?}");
        assert!(had.iter().filter(|turn| turn.is_none()).count() > 10, "some have left: {had:?}");
    }
}
