//! A job whose output is read in parts, as a program that embeds the pool sees it.

use super::ComputePool;
use super::handle::gone;
use crate::hub::{Hub, StreamItem, StreamReader};
use crate::job::{Finished, Job};
use bytes::Bytes;
use offload_core::ids::JobId;
use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The output of one job in parts, in the order in which its task sends them. See [`ComputePool::stream`].
///
/// Whoever takes a part slowly stops the task, and nothing else: at most
/// [`PARTS_CREDIT`](offload_protocol::limits::PARTS_CREDIT) bytes wait here. The run timeout goes on meanwhile. Dropping the
/// stream before its end cancels the job. If the loop is dropped before that, the stream ends as
/// [`Unavailable`](crate::protocol::nouns::OutcomeCode::Unavailable).
#[must_use = "dropping it cancels the job"]
pub struct OutputStream {
    pool: ComputePool,
    task: String,
    state: State,
    waker: Rc<RefCell<Option<Waker>>>,
}

/// ```text
///   Reading ---- the end was taken, or there is no loop any more ----> Ended ---- collect ----> Over
///      '-------- dropped: the job is cancelled
/// ```
enum State {
    Reading { reader: StreamReader, job: JobId },
    Ended(Box<Finished>),
    Over,
}

impl ComputePool {
    /// Submits a job and reads its output in parts, as they come. A task that sends no parts gives one, when it returns.
    ///
    /// Once a part was taken, the job is not run again, even if its task is idempotent: [`OutputStream::finished`] says that
    /// the attempt was lost. An idempotency key is refused, because nothing of the output is kept.
    #[track_caller]
    pub fn stream(&self, job: Job) -> OutputStream {
        let waker: Rc<RefCell<Option<Waker>>> = Rc::default();
        let sleeper = Rc::clone(&waker);
        let on_news = Box::new(move || {
            let waker = sleeper.borrow_mut().take();
            waker.into_iter().for_each(Waker::wake);
        });
        let task = job.task.clone();
        let refused = |error| State::Ended(Box::new(Hub::refusal(&task, error)));
        let state = if self.handle.is_gone() {
            refused(gone())
        } else {
            let submitted = self.hub.borrow_mut().submit_stream(job, None, on_news);
            match submitted {
                Ok((accepted, reader)) => State::Reading { reader, job: accepted.job },
                Err(why) => refused(why.error),
            }
        };
        OutputStream { pool: self.clone(), task, state, waker }
    }
}

impl OutputStream {
    /// The next part, which is not empty. `None` when the job has ended, well or not: then [`OutputStream::finished`] says how.
    pub async fn next(&mut self) -> Option<Bytes> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`OutputStream::next`], for futures that are written by hand.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let State::Reading { reader, .. } = &self.state else { return Poll::Ready(None) };
        // The hub may call the reader at once, so the waker is there before.
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        let item = self.pool.hub.borrow_mut().next_part(reader);
        match item {
            StreamItem::Nothing if self.pool.handle.is_gone() => {
                self.state = State::Ended(Box::new(Hub::refusal(&self.task, gone())));
                Poll::Ready(None)
            }
            StreamItem::Nothing => Poll::Pending,
            StreamItem::Part(part, _) => Poll::Ready(Some(part)),
            StreamItem::End(mut finished, _) => {
                let rest = std::mem::take(&mut finished.output);
                self.state = State::Ended(finished);
                Poll::Ready(Some(rest).filter(|rest| !rest.is_empty()))
            }
        }
    }

    /// Cancels the job. What it has sent can still be read, up to the end.
    pub fn cancel(&self) {
        if let State::Reading { job, .. } = self.state {
            self.pool.hub.borrow_mut().cancel(job);
        }
    }

    /// How the job ended, once [`OutputStream::next`] has returned `None`. Its output is empty, because all parts were taken;
    /// their length is in the receipt.
    pub fn finished(&self) -> Option<&Finished> {
        match &self.state {
            State::Ended(finished) => Some(finished),
            State::Reading { .. } | State::Over => None,
        }
    }

    /// Takes all parts that are left, and returns how the job ended, with these parts as its output.
    ///
    /// The parts are not limited in length: this is for outputs that are known to be short.
    pub async fn collect(mut self) -> Finished {
        let mut output = Vec::new();
        while let Some(part) = self.next().await {
            output.extend_from_slice(&part);
        }
        match std::mem::replace(&mut self.state, State::Over) {
            State::Ended(finished) => Finished { output: output.into(), ..*finished },
            State::Reading { .. } | State::Over => unreachable!("there is no next part only at the end"),
        }
    }
}

impl fmt::Debug for OutputStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OutputStream").field("task", &self.task).finish_non_exhaustive()
    }
}

impl Drop for OutputStream {
    fn drop(&mut self) {
        // What is read in the parent of a forked child goes on there.
        if self.pool.origin.is_here() {
            self.cancel();
        }
    }
}
