//! A job as a future of the loop's own thread: see [`ComputePool::call`].
//!
//! ```text
//!   Waiting ---- told; or the teller was dropped, with the loop ----> Ended ---- polled ----> Over
//!      '-------- dropped: the job is given up -------------------------------------------------^
//! ```

use super::ComputePool;
use super::claim::Claim;
use super::handle::gone;
use crate::hub::Hub;
use crate::job::Finished;
use crate::origin::Origin;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A future that ends when its job does, or as [`Unavailable`](crate::protocol::nouns::OutcomeCode::Unavailable) when there is no
/// loop any more. See [`ComputePool::call`].
///
/// # Panics
/// When it is awaited again after its end.
#[must_use = "dropping it cancels the job"]
pub struct Call {
    pool: ComputePool,
    pub(super) claim: Option<Claim>,
    stage: Rc<RefCell<Stage>>,
}

enum Stage {
    Waiting(Option<Waker>),
    Ended(Box<Finished>),
    Over,
}

impl Call {
    /// Waits for what the teller tells. There is nothing to give up yet.
    pub(super) fn waiting(pool: &ComputePool, teller: &CallTeller) -> Call {
        Call { pool: pool.clone(), claim: None, stage: Rc::clone(&teller.stage) }
    }
}

impl Future for Call {
    type Output = Finished;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Finished> {
        let this = self.get_mut();
        let before = this.stage.replace(Stage::Over);
        match before {
            Stage::Ended(finished) => {
                this.claim = None;
                Poll::Ready(*finished)
            }
            Stage::Waiting(_) => {
                this.stage.replace(Stage::Waiting(Some(context.waker().clone())));
                Poll::Pending
            }
            Stage::Over => panic!("a call was awaited again after its end"),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        drop(self.stage.replace(Stage::Over));
        if let Some(claim) = self.claim {
            self.pool.give_up(claim);
        }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Call").field("claim", &self.claim).finish_non_exhaustive()
    }
}

/// Tells the end of a call, at the latest when it is dropped: with the loop.
pub(super) struct CallTeller {
    stage: Rc<RefCell<Stage>>,
    task: String,
    origin: Origin,
}

impl CallTeller {
    pub(super) fn new(task: &str, origin: Origin) -> CallTeller {
        CallTeller { stage: Rc::new(RefCell::new(Stage::Waiting(None))), task: task.to_owned(), origin }
    }

    /// Nothing is borrowed when the waker is called, because it may come back here.
    pub(super) fn tell(&self, finished: Finished) {
        let before = self.stage.replace(Stage::Over);
        match before {
            Stage::Waiting(waker) => {
                self.stage.replace(Stage::Ended(Box::new(finished)));
                waker.into_iter().for_each(Waker::wake);
            }
            before => drop(self.stage.replace(before)),
        }
    }
}

impl Drop for CallTeller {
    fn drop(&mut self) {
        let waits = matches!(*self.stage.borrow(), Stage::Waiting(_));
        // Who waits in the parent of a forked child is not to be woken there.
        if waits && self.origin.is_here() {
            self.tell(Hub::refusal(&self.task, gone()));
        }
    }
}
