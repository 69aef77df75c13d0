//! Requests whose bodies wait for memory. One of them asks the supervisor for all, so that a client that comes and goes while nothing
//! is released leaves nothing behind.
//!
//! ```text
//!   wait ---> listed, with a waker ---- memory is released: all are woken, some in each turn, and look again
//!                 '---- dropped: not listed any more
//! ```
//!
//! Each client may have thousands here, and memory is released with each job that ends. So all are woken once, some in each turn. If
//! memory was released meanwhile, however often, all are woken once more.

use crate::body::RequestBody;
use crate::ended::Failure;
use crate::limits::WAKES_PER_TURN;
use crate::problem::Problem;
use offload_event_loop::LoopHandle;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::service::Service;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::collections::btree_map::OccupiedEntry;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// See the module's documentation.
pub(crate) struct Rooms {
    handle: LoopHandle,
    waiting: RefCell<BTreeMap<u64, Waker>>,
    last: Cell<u64>,
    /// The supervisor has been asked, and has not answered yet.
    is_asked: Cell<bool>,
    round: Cell<Round>,
}

/// The way through those who wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Round {
    #[default]
    None,
    /// Those up to this number are still to be woken, and then, if memory was released meanwhile, all.
    UpTo(u64, IsReleasedAgain),
}

type IsReleasedAgain = bool;

impl Rooms {
    pub(crate) fn new(handle: &LoopHandle) -> Rc<Rooms> {
        Rc::new(Rooms {
            handle: handle.clone(),
            waiting: RefCell::default(),
            last: Cell::new(0),
            is_asked: Cell::new(false),
            round: Cell::default(),
        })
    }

    /// Ends when memory of any client has been released since it was first polled.
    pub(crate) fn released(self: &Rc<Rooms>, service: &Service) -> Released {
        Released { rooms: Rc::clone(self), service: service.clone(), number: None }
    }

    fn ask(self: &Rc<Rooms>, service: &Service) {
        if self.is_asked.replace(true) {
            return;
        }
        let rooms = Rc::clone(self);
        service.when_room(move |_| {
            rooms.is_asked.set(false);
            match rooms.round.get() {
                Round::None => rooms.begin_round(),
                Round::UpTo(last, _) => rooms.round.set(Round::UpTo(last, true)),
            }
        });
    }

    /// Those who find no room and are listed again are not of this round.
    fn begin_round(self: &Rc<Rooms>) {
        self.round.set(Round::UpTo(self.last.get(), false));
        self.wake_some();
    }

    fn wake_some(self: &Rc<Rooms>) {
        let Round::UpTo(last, is_released_again) = self.round.get() else { return };
        let some: Vec<Waker> = {
            let mut waiting = self.waiting.borrow_mut();
            let next =
                || waiting.first_entry().filter(|entry| *entry.key() <= last).map(OccupiedEntry::remove);
            std::iter::from_fn(next).take(WAKES_PER_TURN).collect()
        };
        let is_over = some.len() < WAKES_PER_TURN;
        some.into_iter().for_each(Waker::wake);
        if is_over && !is_released_again {
            return self.round.set(Round::None);
        }
        let rooms = Rc::clone(self);
        self.handle.set_immediate(move |_| if is_over { rooms.begin_round() } else { rooms.wake_some() });
    }
}

/// See [`Rooms::released`].
pub(crate) struct Released {
    rooms: Rc<Rooms>,
    service: Service,
    number: Option<u64>,
}

impl Future for Released {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let rooms = Rc::clone(&self.rooms);
        if self.number.is_some_and(|number| !rooms.waiting.borrow().contains_key(&number)) {
            return Poll::Ready(());
        }
        let number = *self.number.get_or_insert_with(|| {
            rooms.last.set(rooms.last.get() + 1);
            rooms.last.get()
        });
        let before = rooms.waiting.borrow_mut().insert(number, context.waker().clone());
        drop(before);
        rooms.ask(&self.service);
        Poll::Pending
    }
}

impl Drop for Released {
    fn drop(&mut self) {
        let waker = self.number.and_then(|number| self.rooms.waiting.borrow_mut().remove(&number));
        drop(waker);
    }
}

/// Only a body that comes as it is becomes an input: what is packed could be any size.
///
/// # Errors
/// What the client is told.
pub(crate) fn check_coding(body: &RequestBody, service: &Service) -> Result<(), Failure> {
    if !body.is_encoded() {
        return Ok(());
    }
    service.count_refused(OutcomeCode::Unsupported);
    let detail =
        "a body is taken as it is: send it without Content-Encoding, or call the task `gunzip` with it";
    Err(Problem { is_about_coding: true, ..Problem::new(OutcomeCode::Unsupported, detail) }.into())
}

/// How long a body may be.
pub(crate) struct Allowed {
    by_supervisor: usize,
    by_route: Option<u64>,
}

impl Allowed {
    pub(crate) fn to(body: &RequestBody, service: &Service) -> Allowed {
        Allowed { by_supervisor: service.max_payload(), by_route: body.max() }
    }

    /// How many bytes more a body of this length may have.
    pub(crate) fn left(&self, length: usize) -> usize {
        let by_route = self.by_route.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        self.by_supervisor.min(by_route).saturating_sub(length)
    }

    pub(crate) fn check(&self, length: usize, service: &Service) -> Result<(), Failure> {
        if length > self.by_supervisor {
            return Err(Failure::unexpected(&service.refuse_too_large(length)));
        }
        match self.by_route.filter(|most| length as u64 > *most) {
            Some(most) => {
                service.count_refused(OutcomeCode::TooLarge);
                let detail = format!("{length} bytes, at most {most} are accepted here");
                Err(Problem::new(OutcomeCode::TooLarge, detail).into())
            }
            None => Ok(()),
        }
    }
}
