//! From a request to a job: its body becomes the input, and the end of the job becomes the response.
//!
//! ```text
//!   Offload ---- its end is the answer: Run (`run.rs`) ---------------------------> Report --> Output or Failure
//!      |                       '-- with a key, or outlives its client --.             ^
//!      '------- in parts, or answered before its end ----------> submit: Accepted, with a session
//!   dropped at any time (the client is gone): the job is cancelled
//! ```

use crate::body::{RequestBody, holding};
use crate::collect::collect;
use crate::ended::{Failure, Output, finished};
use crate::patience::{GoesOn, Patience, RequestMark};
use crate::request::Remote;
use crate::respond::Response;
use crate::rooms::Rooms;
use crate::run::Run;
use crate::turns::{Place, Turns};
use bytes::Bytes;
use http::header::HeaderName;
use offload_event_loop::LoopHandle;
use offload_protocol::nouns::MediaType;
use offload_supervisor::Job;
use offload_supervisor::pauses::RunningClock;
use offload_supervisor::service::{
    Asker, Collection, Document, OnReply, Pass, Reply, Report, Service, Session, Submission, Ticket,
};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

/// The id of the job, in a response.
pub(crate) const JOB: HeaderName = HeaderName::from_static("offload-job");

/// The one ticket of a session for one request.
pub(crate) const TICKET: u64 = 1;

/// What a handler gets beside the request: a way to everything that the supervisor offers. Cheap to clone.
#[derive(Clone)]
pub struct RequestContext {
    pub(crate) service: Service,
    pub(crate) handle: LoopHandle,
    pub(crate) clock: RunningClock,
    pub(crate) remote: Remote,
    pub(crate) asker: Rc<Asker>,
    pub(crate) cancels_on_disconnect: bool,
    pub(crate) rooms: Rc<Rooms>,
    pub(crate) documents: Rc<Turns>,
    /// Of the connection.
    pub(crate) patience: Rc<Patience>,
    /// Of the request.
    pub(crate) pass: Pass,
    /// The request itself, while it is under way.
    pub(crate) request: Weak<RequestMark>,
}

/// The input of a job: bytes, or the body of a request.
pub enum Input {
    /// Bytes that are there.
    Bytes(Bytes, MediaType),
    /// The body of a request, read as there is room for it.
    Body(Box<RequestBody>),
}

impl From<RequestBody> for Input {
    fn from(body: RequestBody) -> Input {
        Input::Body(Box::new(body))
    }
}

impl From<Bytes> for Input {
    fn from(bytes: Bytes) -> Input {
        Input::Bytes(bytes, MediaType::OCTET_STREAM)
    }
}

impl From<String> for Input {
    fn from(text: String) -> Input {
        Input::Bytes(text.into(), MediaType::TEXT)
    }
}

impl From<&'static str> for Input {
    fn from(text: &'static str) -> Input {
        Input::Bytes(text.into(), MediaType::TEXT)
    }
}

impl From<Vec<u8>> for Input {
    fn from(bytes: Vec<u8>) -> Input {
        Input::from(Bytes::from(bytes))
    }
}

impl RequestContext {
    /// Runs a task on an input in a worker process: await it. Dropping the future, as it happens when the client is gone, cancels
    /// the job, unless it has an idempotency key.
    ///
    /// The job is charged to the request's client. The body of a request is read when there is room for it, which is awaited for a
    /// limited time; it may have as many bytes as the supervisor allows for an input ([`RequestBody::set_max`] lowers that).
    ///
    /// # Errors
    /// Awaiting it gives a [`Failure`]: the job was refused, its input did not come, or it did not end well. Returned by a handler,
    /// it is the response that its client should get.
    pub fn offload(&self, task: impl Into<String>, input: impl Into<Input>) -> Offload {
        let is_cancelled = self.cancels_on_disconnect;
        let (job, input) = (Job::new(task), input.into());
        Offload { context: self.clone(), job, input, is_cancelled, is_the_answer: false }
    }

    /// The loop on which the handler runs, for timers and other futures.
    pub fn event_loop(&self) -> &LoopHandle {
        &self.handle
    }

    /// The supervisor, for everything else: its state, its tasks, other jobs.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Writes a document when it is its turn: however many are asked for, the loop does other things between them. While
    /// its connection has too many that its client does not read, it is not written.
    ///
    /// # Errors
    /// What `write` says.
    pub(crate) async fn in_turn(
        &self,
        write: impl FnOnce() -> Result<Response, Failure>,
    ) -> Result<Response, Failure> {
        let place = Place::of(self.asker.account());
        poll_fn(|context| self.poll_turn(&place, context)).await;
        let mut written = self.write_document(write);
        if let Ok(response) = &mut written {
            response.body_mut().count_document(&self.patience);
        }
        written
    }

    /// Whether a document may be written now, with [`RequestContext::write_document`]. If not, the task is woken when it may. `place` is
    /// that of whoever waits.
    pub(crate) fn poll_turn(&self, place: &Rc<Place>, context: &Context<'_>) -> Poll<()> {
        loop {
            ready!(self.patience.poll_room_for_documents(context));
            ready!(self.documents.poll(place, context));
            if self.patience.has_room_for_documents() {
                return Poll::Ready(());
            }
            // Others of this connection had their turn meanwhile.
            self.documents.spend(Duration::ZERO);
        }
    }

    /// What `write` returns; the time that it took is counted.
    pub(crate) fn write_document<T>(&self, write: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let written = write();
        self.documents.spend(begun.elapsed());
        written
    }

    /// A part of an answer that the supervisor has written: its connection counts it until it is handed to the system.
    pub(crate) fn documented_piece(&self, bytes: Bytes) -> Bytes {
        let counted = self.patience.document(bytes.len());
        holding(bytes, Rc::new(counted))
    }

    /// This job goes on without its client, which would be told this place of it.
    pub(crate) fn job_goes_on(&self, job: &str, place: Option<String>) {
        if let Some(request) = self.request.upgrade() {
            request.has_job_that_goes_on(GoesOn { job: job.to_owned(), place });
        }
    }

    /// A session of this request's client, and where its later answers arrive.
    pub(crate) fn open(&self) -> (Session, Rc<Answers>) {
        let answers = Rc::new(Answers::default());
        let told = Rc::clone(&answers);
        let on_reply: OnReply = Rc::new(move |_: Ticket, reply| told.put(reply));
        let session = self.service.open(self.remote.process(), on_reply);
        session.introduce_as(&self.asker);
        (session, answers)
    }
}

/// A job that is about to be submitted. See [`RequestContext::offload`].
#[must_use = "a job is submitted when it is awaited"]
pub struct Offload {
    pub(crate) context: RequestContext,
    pub(crate) job: Job,
    pub(crate) input: Input,
    /// If the client goes away.
    pub(crate) is_cancelled: bool,
    /// Its output is the answer to the client as it is: if the job goes on without its client, the output stays until the client has
    /// it.
    pub(crate) is_the_answer: bool,
}

/// A job that was accepted, and where its answers arrive. Dropping it gives the job up: it is cancelled, unless it was detached or
/// has an idempotency key.
pub(crate) struct Accepted {
    pub(crate) job: String,
    pub(crate) session: Session,
    pub(crate) answers: Rc<Answers>,
    /// Present while the job would be cancelled.
    cancels: Option<Service>,
    request: Weak<RequestMark>,
}

impl Offload {
    /// Sets what else there is to a job: its time limits, its priority, its metadata. The input and its media type are those
    /// that were given to [`RequestContext::offload`].
    pub fn with(self, set: impl FnOnce(Job) -> Job) -> Offload {
        Offload { job: set(self.job), ..self }
    }

    /// Sets a key of 1 to 64 bytes under which the client submits the job at most once: see [`Job::idempotency_key`].
    pub fn key(self, key: impl Into<String>) -> Offload {
        self.with(|job| job.idempotency_key(key))
    }

    /// Sets whether the job is cancelled if the client goes away before its end. If not, it goes on like a detached one. The default
    /// is the server's ([`Server::set_cancel_on_disconnect`](crate::Server::set_cancel_on_disconnect)).
    pub fn cancel_on_disconnect(self, is_cancelled: bool) -> Offload {
        Offload { is_cancelled, ..self }
    }

    /// Reads the input and submits the job.
    ///
    /// # Errors
    /// The job was refused, or its input did not arrive.
    pub(crate) fn submit(self, detach: bool) -> impl Future<Output = Result<Accepted, Failure>> {
        let Offload { context, job, input, .. } = self;
        let job = job.within(context.pass);
        async move {
            let (session, answers) = context.open();
            let (input, media_type, is_let_in) = match input {
                Input::Bytes(bytes, media_type) => (bytes, media_type, false),
                Input::Body(body) => {
                    let media_type = body.media_type().clone();
                    let keyless = (!job.has_key()).then_some(&job);
                    let collected = Box::pin(collect(&context, session.account(), keyless, *body)).await?;
                    (collected, media_type, true)
                }
            };
            // From here on the input is the job's.
            session.account().set_arriving(0);
            let job = job.input(input).media_type(media_type);
            let cancels = (!detach && !job.has_key()).then(|| context.service.clone());
            match session.submit(TICKET, Submission { job, detach, is_let_in }) {
                Reply::Accepted { job } => {
                    if cancels.is_none() {
                        context.job_goes_on(&job, None);
                    }
                    Ok(Accepted { job, session, answers, cancels, request: Weak::clone(&context.request) })
                }
                other => Err(Failure::unexpected(&other)),
            }
        }
    }

    /// Runs the job, and gives it up when this is dropped.
    pub(crate) fn run(self) -> Run {
        Run::new(self)
    }

    /// Runs the job under its key: it goes on for whoever comes with the same key, if its client is gone.
    pub(crate) async fn run_under_its_key(self) -> Result<Output, Failure> {
        let mut accepted = self.submit(false).await?;
        loop {
            if let Reply::Report(report) = accepted.answers.next().await {
                return accepted.finished(*report);
            }
        }
    }

    /// Runs the job even if nobody waits for it any more.
    pub(crate) async fn run_to_its_end(self) -> Result<Output, Failure> {
        let is_the_answer = self.is_the_answer;
        let mut accepted = self.submit(true).await?;
        // Nobody is told of the end of a detached job without asking for it.
        let mut reply = accepted.session.wait(TICKET, &accepted.job);
        loop {
            match reply {
                Some(Reply::Report(mut report)) => {
                    // Nobody has asked for it to be kept: if the client does not read it, it must not take the room of those
                    // that have.
                    let has_output = is_the_answer && report.finished.report.error.is_none();
                    let gone = report.collection.take_if(|it| !(has_output && it.is_within_its_share()));
                    gone.into_iter().for_each(Collection::complete);
                    return accepted.finished(*report);
                }
                Some(Reply::Refusal(error)) => return Err(Failure::refused(&error)),
                _ => reply = Some(accepted.answers.next().await),
            }
        }
    }
}

impl Accepted {
    /// The job has ended, and there is nothing to give up any more.
    ///
    /// # Errors
    /// It failed.
    pub(crate) fn finished(&mut self, report: Report) -> Result<Output, Failure> {
        self.cancels = None;
        self.request.upgrade().iter().for_each(|request| request.job_has_ended(&self.job));
        finished(report)
    }
}

impl Drop for Accepted {
    /// A job that nobody waits for any more is cancelled, even if it runs.
    fn drop(&mut self) {
        if let Some(service) = &self.cancels {
            service.client_is_gone(&self.job);
        }
    }
}

impl IntoFuture for Offload {
    type Output = Result<Output, Failure>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Output, Failure>>>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// The document of an answer.
///
/// # Errors
/// It is a refusal.
pub(crate) fn documented(reply: Reply) -> Result<Box<Document>, Failure> {
    match reply {
        Reply::Document(document) => Ok(document),
        other => Err(Failure::unexpected(&other)),
    }
}

/// The answers of the service that come later.
#[derive(Default)]
pub(crate) struct Answers {
    waiting: RefCell<VecDeque<Reply>>,
    waker: RefCell<Option<Waker>>,
}

impl Answers {
    fn put(&self, reply: Reply) {
        self.waiting.borrow_mut().push_back(reply);
        let waker = self.waker.take();
        waker.into_iter().for_each(Waker::wake);
    }

    pub(crate) async fn next(&self) -> Reply {
        poll_fn(|context| self.poll_next(context)).await
    }

    pub(crate) fn poll_next(&self, context: &Context<'_>) -> Poll<Reply> {
        let next = self.waiting.borrow_mut().pop_front();
        match next {
            Some(reply) => Poll::Ready(reply),
            None => {
                self.waker.replace(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }

    /// The next answer, if it comes in this time.
    pub(crate) async fn next_within(&self, clock: &RunningClock, time: Duration) -> Option<Reply> {
        let (mut next, mut late) = (pin!(self.next()), pin!(clock.sleep(time)));
        poll_fn(|context| match next.as_mut().poll(context) {
            Poll::Ready(reply) => Poll::Ready(Some(reply)),
            Poll::Pending => late.as_mut().poll(context).map(|()| None),
        })
        .await
    }
}
