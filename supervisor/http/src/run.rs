//! One job whose end is the answer to a request. Nearly all requests go the upper way, which needs no session and no boxed future.
//!
//! ```text
//!   Begin ---- the body is here, and there is room ----> Waiting --- the report ---> Output or Failure
//!     '------- the body has to be awaited, the job has a key, or it outlives its client: Boxed --^
//! ```

use crate::collect::collect;
use crate::ended::{Failure, Output, finished};
use crate::offload::{Input, Offload, RequestContext};
use crate::rooms::{Allowed, check_coding};
use bytes::Bytes;
use offload_protocol::nouns::MediaType;
use offload_supervisor::Job;
use offload_supervisor::service::{Report, RunningJob};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// See the module's documentation. Dropping it gives the job up.
pub(crate) struct Run(Stage);

enum Stage {
    /// In a box, because it is large and short-lived: a request that waits for its job takes little memory.
    Begin(Option<Box<Offload>>),
    Waiting(Waiting),
    Boxed(Pin<Box<dyn Future<Output = Result<Output, Failure>>>>),
}

impl Run {
    pub(crate) fn new(offload: Offload) -> Run {
        Run(Stage::Begin(Some(Box::new(offload))))
    }
}

impl Future for Run {
    type Output = Result<Output, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut self.0 {
                Stage::Begin(offload) => {
                    match begin(offload.take().expect("not polled again after its end"), context) {
                        Ok(next) => self.0 = next,
                        Err(failure) => return Poll::Ready(Err(failure)),
                    }
                }
                Stage::Waiting(waiting) => return waiting.poll(context),
                Stage::Boxed(future) => return future.as_mut().poll(context),
            }
        }
    }
}

/// Submits the job, if that can be done at once.
///
/// # Errors
/// The job was refused.
fn begin(offload: Box<Offload>, cx: &mut Context<'_>) -> Result<Stage, Failure> {
    if offload.job.has_key() {
        return Ok(Stage::Boxed(Box::pin(offload.run_under_its_key())));
    }
    if !offload.is_cancelled {
        return Ok(Stage::Boxed(Box::pin(offload.run_to_its_end())));
    }
    let Offload { context, job, input, .. } = *offload;
    let job = job.within(context.pass);
    let mut body = match input {
        Input::Bytes(bytes, media_type) => {
            return submit(&context, job, (bytes, media_type), false).map(Stage::Waiting);
        }
        Input::Body(body) => body,
    };
    check_coding(&body, &context.service)?;
    let length = body.length().map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX));
    Allowed::to(&body, &context.service).check(length, &context.service)?;
    let account = context.service.account(&context.asker);
    let has_room = account.has_room(length as u64);
    if let Some(bytes) = has_room.then(|| body.whole_now(cx)).flatten() {
        let input = (bytes, body.media_type().clone());
        return submit(&context, job, input, true).map(Stage::Waiting);
    }
    Ok(Stage::Boxed(Box::pin(async move {
        let media_type = body.media_type().clone();
        // In a box of its own, which is gone while the job runs.
        let bytes = Box::pin(collect(&context, &account, Some(&job), *body)).await?;
        // From here on the input is the job's.
        account.set_arriving(0);
        let mut waiting = submit(&context, job, (bytes, media_type), true)?;
        drop((context, account));
        poll_fn(|cx| waiting.poll(cx)).await
    })))
}

fn submit(
    context: &RequestContext,
    job: Job,
    (input, media_type): (Bytes, MediaType),
    is_let_in: bool,
) -> Result<Waiting, Failure> {
    let told = Rc::new(Told::default());
    let teller = Rc::clone(&told);
    let job = job.input(input).media_type(media_type);
    let running = context.service.run(&context.asker, job, is_let_in, move |report| teller.put(report));
    Ok(Waiting { running: running.map_err(|error| Failure::refused(&error))?, told })
}

/// Waits for the report.
struct Waiting {
    running: RunningJob,
    told: Rc<Told>,
}

/// Where the report is put.
#[derive(Default)]
struct Told {
    report: RefCell<Option<Report>>,
    waker: RefCell<Option<Waker>>,
}

impl Told {
    fn put(&self, report: Report) {
        self.report.replace(Some(report));
        let waker = self.waker.take();
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Waiting {
    fn poll(&mut self, context: &Context<'_>) -> Poll<Result<Output, Failure>> {
        let report = self.told.report.take();
        if let Some(report) = report {
            self.running.ended();
            return Poll::Ready(finished(report));
        }
        let before = self.told.waker.replace(Some(context.waker().clone()));
        drop(before);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There is one for each request whose job has not ended.
    #[test]
    fn what_waits_takes_little() {
        assert!(size_of::<Run>() <= 40, "{}", size_of::<Run>());
    }
}
