//! The end of one job: the loop puts it there, and whoever has submitted the job waits for it.
//!
//! ```text
//!   Waiting --> Submitted --> Ended --> Over      Waiting: for the loop to take the job
//!      |            |           ^         ^       Over: the end was taken, or nobody wants it any more
//!      |            '- the pool or its loop has ended
//!      '- refused --------------'
//!      '-- at any time: given up -------'
//! ```

use super::super::claim::Claim;
use super::door::{Place, gone};
use crate::hub::Hub;
use crate::job::Finished;
use crate::origin::Origin;
use offload_protocol::nouns::ErrorDetail;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// See the module's documentation. The place is free when neither side needs this any more.
pub(super) struct JobEnd {
    /// As of the door: a forked child neither locks this nor drops what waits here.
    origin: Origin,
    state: Mutex<EndState>,
    told: Condvar,
    pub(super) task: String,
    place: Option<Place>,
}

struct EndState {
    stage: Stage,
    waker: Option<Waker>,
}

enum Stage {
    Waiting,
    /// The pool has it. Of a job that was refused, nothing is to be given up.
    Submitted(Option<Claim>),
    Ended(Box<Finished>),
    Over,
}

impl JobEnd {
    pub(super) fn new(task: &str, place: Option<Place>, origin: Origin) -> JobEnd {
        let state = Mutex::new(EndState { stage: Stage::Waiting, waker: None });
        JobEnd { origin, state, told: Condvar::new(), task: task.to_owned(), place }
    }

    fn state(&self) -> MutexGuard<'_, EndState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For whatever is being dropped: none in a forked child, where nothing of this is ever dropped.
    fn state_to_leave(self: &Arc<JobEnd>) -> Option<MutexGuard<'_, EndState>> {
        if self.origin.is_here() {
            return Some(self.state());
        }
        std::mem::forget(Arc::clone(self));
        None
    }

    /// The pool has the job. False if nobody wants it any more.
    pub(super) fn is_submitted(&self, claim: Option<Claim>) -> bool {
        let stage = &mut self.state().stage;
        if let Stage::Waiting = stage {
            *stage = Stage::Submitted(claim);
        }
        !matches!(stage, Stage::Over)
    }

    /// Whether somebody waits for the end.
    pub(super) fn is_wanted(&self) -> bool {
        !matches!(self.state().stage, Stage::Over)
    }

    fn tell(&self, finished: Finished) {
        self.hold(finished.output.len() as u64);
        let mut state = self.state();
        if let Stage::Waiting | Stage::Submitted(_) = state.stage {
            state.stage = Stage::Ended(Box::new(finished));
        }
        let waker = state.waker.take();
        drop(state);
        self.told.notify_all();
        waker.into_iter().for_each(Waker::wake);
    }

    fn hold(&self, bytes: u64) {
        self.place.iter().for_each(|place| place.hold(bytes));
    }

    /// # Panics
    /// It was taken before.
    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<Finished> {
        // Before the look: an end that comes in between wakes it.
        let waker_before = self.state().waker.replace(context.waker().clone());
        drop(waker_before);
        match self.take() {
            Some(finished) => Poll::Ready(finished),
            None => {
                self.must_be_wanted();
                Poll::Pending
            }
        }
    }

    /// # Panics
    /// The end was taken, so nobody will ever be told again.
    pub(super) fn must_be_wanted(&self) {
        assert!(self.is_wanted(), "a job was awaited again after its end");
    }

    /// The end, if it has come.
    pub(super) fn take(&self) -> Option<Finished> {
        let mut state = self.state();
        let Stage::Ended(_) = state.stage else { return None };
        let Stage::Ended(finished) = std::mem::replace(&mut state.stage, Stage::Over) else { return None };
        drop(state);
        // What has the output now is no concern of the handle.
        self.hold(0);
        Some(*finished)
    }

    /// Blocks this thread until the end has come. None if it has not come by then; without a time, it waits for as long as it
    /// takes.
    pub(super) fn wait_until(&self, latest: Option<Instant>) -> Option<Finished> {
        let mut state = self.state();
        while !matches!(state.stage, Stage::Ended(_)) {
            state = match latest.map(|latest| latest.saturating_duration_since(Instant::now())) {
                None => self.told.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return None,
                Some(left) => self.told.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        drop(state);
        self.take()
    }

    /// Nobody wants the end any more. Returns what the pool is to be told.
    pub(super) fn give_up(self: &Arc<JobEnd>) -> Option<Claim> {
        let mut state = self.state_to_leave()?;
        let stage = std::mem::replace(&mut state.stage, Stage::Over);
        drop(state);
        match stage {
            Stage::Submitted(claim) => claim,
            Stage::Waiting | Stage::Ended(_) | Stage::Over => None,
        }
    }
}

/// Tells the end of a job, at the latest when it is dropped: with the pool, or with its loop.
pub(super) struct Teller(Arc<JobEnd>);

impl Teller {
    pub(super) fn of(end: &Arc<JobEnd>) -> Teller {
        Teller(Arc::clone(end))
    }

    pub(super) fn end(&self) -> &Arc<JobEnd> {
        &self.0
    }

    pub(super) fn tell(self, finished: Finished) {
        self.0.tell(finished);
    }

    pub(super) fn refuse(self, error: ErrorDetail) {
        self.0.tell(Hub::refusal(&self.0.task, error));
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        let Some(state) = self.0.state_to_leave() else { return };
        let is_told = matches!(state.stage, Stage::Ended(_) | Stage::Over);
        drop(state);
        if !is_told {
            self.0.tell(Hub::refusal(&self.0.task, gone()));
        }
    }
}
