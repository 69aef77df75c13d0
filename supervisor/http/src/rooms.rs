//! Requests whose bodies wait for memory. One of them asks the supervisor for all, so that a client that comes and goes while nothing
//! is released leaves nothing behind.
//!
//! ```text
//!   wait ---> listed, with a waker ---- memory is released: all are woken, and look again
//!                 '---- dropped: not listed any more
//! ```

use crate::body::RequestBody;
use crate::ended::Failure;
use crate::problem::Problem;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::service::Service;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Rooms {
    waiting: RefCell<BTreeMap<u64, Waker>>,
    last: Cell<u64>,
    /// The supervisor has been asked, and has not answered yet.
    is_asked: Cell<bool>,
}

impl Rooms {
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
            let all = rooms.waiting.take();
            all.into_values().for_each(Waker::wake);
        });
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
