//! Requests: a callback on the loop's thread waits for an answer from another thread.
//!
//! ```text
//!   request() -> waiting --complete(value)--> answered: the callback runs in the poll phase
//!                   |
//!                   +--withdraw(), or the request is dropped--> gone: the callback is dropped
//! ```

use std::any::Any;
use std::marker::PhantomData;
use std::panic::Location;
use std::time::Instant;

use super::callback::Site;
use super::error::LoopGone;
use super::remote::{Post, Remote};
use super::slab::{Slab, SlabKey};
use super::{Context, LoopHandle};

type AnswerCallback = Box<dyn FnOnce(&mut Context, Box<dyn Any + Send>)>;

pub(super) struct WaitingRequest {
    pub(super) site: Site,
    pub(super) answer: AnswerCallback,
}

pub(super) type Requests = Slab<WaitingRequest>;

/// Names a request of one loop, for [`LoopHandle::withdraw`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(SlabKey);

/// The other end of a request, for the thread that has the answer. Dropping it ends the request without an answer.
#[must_use = "dropping it ends the request without an answer"]
pub struct Request<T> {
    remote: Remote,
    id: RequestId,
    is_completed: bool,
    answer: PhantomData<fn(T)>,
}

impl<T: Send + 'static> Request<T> {
    /// Runs the callback on the loop with `value`, unless the request was withdrawn.
    ///
    /// # Errors
    /// [`LoopGone`] when the loop was dropped.
    pub fn complete(mut self, value: T) -> Result<(), LoopGone> {
        self.is_completed = true;
        self.remote.push(Post::Answer { request: self.id.0, value: Box::new(value) })
    }
}

impl<T> Request<T> {
    /// The name by which the loop's side can withdraw it.
    pub fn id(&self) -> RequestId {
        self.id
    }
}

impl<T> Drop for Request<T> {
    fn drop(&mut self) {
        if !self.is_completed && self.remote.is_of_this_process() {
            // If the loop is gone, so is the request.
            let _ = self.remote.push(Post::Abandon { request: self.id.0 });
        }
    }
}

impl Remote {
    /// Answers a request from another thread; see [`LoopHandle::request_any`]. Without a loop the answer comes back.
    pub(crate) fn answer(
        &self,
        id: RequestId,
        value: Box<dyn Any + Send>,
    ) -> Result<(), Box<dyn Any + Send>> {
        self.try_push(Post::Answer { request: id.0, value }).map_err(|refused| match refused {
            Post::Answer { value, .. } => value,
            _ => Box::new(()),
        })
    }
}

impl LoopHandle {
    /// Keeps the loop alive until the returned [`Request`] is completed; then `answer` runs with the value.
    ///
    /// ```
    /// use offload_event_loop::EventLoop;
    ///
    /// let mut event_loop = EventLoop::new()?;
    /// let request = event_loop.request(|_, sum: u64| assert_eq!(sum, 5_050));
    /// let thread = std::thread::spawn(move || request.complete((1..=100).sum()));
    /// event_loop.run()?; // It waits for the answer.
    /// thread.join().expect("it did not panic")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn request<T: Send + 'static>(&self, answer: impl FnOnce(&mut Context, T) + 'static) -> Request<T> {
        let id = self.request_any(Location::caller(), move |context, value: Box<dyn Any + Send>| {
            // Only Request<T> makes answers to this request, so it is a T.
            if let Ok(value) = value.downcast() {
                answer(context, *value);
            }
        });
        Request { remote: self.remote(), id, is_completed: false, answer: PhantomData }
    }

    /// As [`LoopHandle::request`], for layers above the loop that have an answer in a box already: they complete the
    /// request with [`Remote::answer`] or [`LoopHandle::answer`], or withdraw it.
    pub(crate) fn request_any(
        &self,
        site: Site,
        answer: impl FnOnce(&mut Context, Box<dyn Any + Send>) + 'static,
    ) -> RequestId {
        let waiting = WaitingRequest { site, answer: Box::new(answer) };
        let id = RequestId(self.shared.requests.borrow_mut().insert(waiting));
        self.shared.drop_if_gone();
        id
    }

    /// True until the answer is handed to the callback, or the request is withdrawn.
    pub(crate) fn is_awaited(&self, id: RequestId) -> bool {
        self.shared.requests.borrow().get(id.0).is_some()
    }

    /// What the clock of this loop says at this very moment, unlike [`LoopHandle::now`].
    pub(crate) fn clock_reading(&self) -> Instant {
        self.shared.clock.instant(self.shared.clock.read())
    }

    /// Ends a request whose answer is no longer awaited. False if it was answered or withdrawn before.
    pub fn withdraw(&self, id: RequestId) -> bool {
        let withdrawn = self.shared.requests.borrow_mut().remove(id.0);
        withdrawn.is_some()
    }

    /// Answers a request from the loop's own side. A value of another type than the request's ends it without an answer.
    pub(crate) fn answer(&self, id: RequestId, value: Box<dyn Any + Send>) {
        self.shared.posts.borrow_mut().push(Post::Answer { request: id.0, value });
        self.shared.drop_if_gone();
    }
}
