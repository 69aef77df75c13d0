//! One connection, from its first byte to its last.
//!
//! ```text
//!   greet --+-- HTTP/1: hyper's connection --+--> end: answer a violation, wait for the client to close
//!           '-- HTTP/2: hyper's connection --'
//! ```

use crate::body::{Body, RequestBody};
use crate::limits::{FIELDS_MAX, HEAD_MAX, STREAM_WINDOW, STREAMS_MAX, WRITE_BUFFER};
use crate::line::{Line, Protocol, Wire};
use crate::panics::Contained;
use crate::patience::{GivenUp, Left, RequestMark};
use crate::refused::Refused;
use crate::request::Remote;
use crate::server::Answering;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderValue};
use http::{Method, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::Service as HyperService;
use offload_event_loop::LoopHandle;
use offload_supervisor::service::{InFlight, Service};
use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

/// Answers requests.
pub(crate) trait Answer {
    /// The response to one request. Dropping the future means that the client is gone.
    fn answer(&self, head: http::request::Parts, body: RequestBody, remote: Remote) -> Answering;

    /// A request is complete but for its body.
    fn begin(&self) -> InFlight;

    /// A request, or a whole connection, was refused before it was understood.
    fn refused(&self, refused: Refused, remote: Remote);

    /// Whether connections are to end when their requests are answered.
    fn is_draining(&self) -> bool;

    /// The task of the connection, which is to be woken when the server begins to drain.
    fn wakes(&self, connection: u64, waker: &Waker);
}

/// Serves one connection until it ends.
pub(crate) async fn serve(
    line: Rc<Line>,
    answer: Rc<dyn Answer>,
    (number, remote): (u64, Remote),
    executor: OnLoop,
) {
    let polled = Rc::clone(&executor.polled);
    let requests = Requests { line: Rc::clone(&line), answer: Rc::clone(&answer), remote, polled };
    let wire = Wire(Rc::clone(&line));
    // How a connection ends is seen by its requests: their futures are dropped.
    match line.greet().await {
        Some(Protocol::Http1) => {
            let connection = pin!(http1().serve_connection(wire, requests));
            let _end = Ending(&line);
            let quiet = |task: &Waker| line.patience().quiet.over(task);
            until_drained(connection, |it| it.graceful_shutdown(), (&*answer, number), &line, quiet).await;
        }
        Some(Protocol::Http2) => {
            let connection = pin!(http2(executor).serve_connection(wire, requests));
            let _end = Ending(&line);
            until_drained(connection, |it| it.graceful_shutdown(), (&*answer, number), &line, Waker::clone)
                .await;
        }
        None => {}
    }
    let farewell = line.farewell().map(|(farewell, refused)| {
        answer.refused(refused, remote);
        farewell
    });
    line.end(farewell).await;
}

/// Is dropped before hyper's connection is, and says so to what that has not written.
struct Ending<'a>(&'a Line);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.patience().connection_ends();
    }
}

/// Drives a connection of hyper to its end, which `shut_down` begins when it is to end, or until the client is gone. `waker` makes what
/// hyper wakes the task with.
async fn until_drained<C: Future>(
    mut connection: Pin<&mut C>,
    shut_down: impl Fn(Pin<&mut C>),
    (answer, number): (&dyn Answer, u64),
    line: &Line,
    waker: impl Fn(&Waker) -> Waker,
) {
    let (mut is_told, mut known) = (false, None::<(Waker, Waker)>);
    poll_fn(|context| {
        let task = context.waker();
        let (_, its) = match &known {
            Some(known) if known.0.will_wake(task) => known,
            _ => {
                answer.wakes(number, task);
                known.insert((task.clone(), waker(task)))
            }
        };
        let context = &mut Context::from_waker(its);
        let is_to_end = || answer.is_draining() || line.is_ending();
        loop {
            if !is_told && is_to_end() {
                is_told = true;
                shut_down(connection.as_mut());
            }
            match connection.as_mut().poll(context) {
                // A request of this very poll can be the reason to end, and then nothing wakes this task again.
                Poll::Pending if !is_told && is_to_end() => {}
                Poll::Pending => return line.poll_gone(context),
                Poll::Ready(_) => return Poll::Ready(()),
            }
        }
    })
    .await;
}

fn http1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    // Otherwise hyper would look for the end of a client that waits by a read of its own, with new memory for each request: the line
    // looks for it.
    builder.keep_alive(true).half_close(true).max_headers(FIELDS_MAX).max_buf_size(WRITE_BUFFER);
    builder
}

fn http2(executor: OnLoop) -> http2::Builder<OnLoop> {
    let mut builder = http2::Builder::new(executor);
    builder
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(HEAD_MAX).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(STREAM_WINDOW)
        .max_send_buf_size(WRITE_BUFFER);
    builder
}

/// hyper's connections over HTTP/2 run each request in a task of its own, up to the end of its answer. When the task is dropped, hyper
/// resets the stream.
pub(crate) struct OnLoop {
    handle: LoopHandle,
    service: Service,
    /// The stream whose task is being polled.
    polled: Rc<RefCell<Option<Rc<GivenUp>>>>,
}

impl OnLoop {
    /// For one connection.
    pub(crate) fn new(handle: &LoopHandle, service: &Service) -> OnLoop {
        OnLoop { handle: handle.clone(), service: service.clone(), polled: Rc::default() }
    }
}

impl Clone for OnLoop {
    fn clone(&self) -> OnLoop {
        OnLoop { polled: Rc::clone(&self.polled), ..OnLoop::new(&self.handle, &self.service) }
    }
}

impl<F> Executor<F> for OnLoop
where
    F: Future + 'static,
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        let (stream, polled) = (Rc::<GivenUp>::default(), Rc::clone(&self.polled));
        // The task runs to its end by itself; its connection ends it by what it waits for.
        let future = async move {
            let mut future = pin!(future);
            poll_fn(|context| {
                if stream.is_it() {
                    return Poll::Ready(());
                }
                stream.wait(context);
                polled.replace(Some(Rc::clone(&stream)));
                let is_done = future.as_mut().poll(context).map(drop);
                polled.take();
                is_done
            })
            .await;
        };
        drop(self.handle.spawn(Contained::new(&self.service, "what answers an HTTP request", future)));
    }
}

/// The requests of one connection.
struct Requests {
    line: Rc<Line>,
    answer: Rc<dyn Answer>,
    remote: Remote,
    /// See [`OnLoop`].
    polled: Rc<RefCell<Option<Rc<GivenUp>>>>,
}

impl HyperService<http::Request<Incoming>> for Requests {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = UnderWay;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        let mark = Rc::new(self.line.patience().request_begins(self.answer.begin()));
        let (mut head, incoming) = request.into_parts();
        let is_head = head.method == Method::HEAD;
        self.line.request_begins(head.version);
        if let Some(version) = self.line.tls_version() {
            head.extensions.insert(version);
        }
        let body = RequestBody::new(&head, incoming, Rc::clone(&mark));
        let answering = self.answer.answer(head, body, self.remote);
        let (line, polled) = (Rc::clone(&self.line), Rc::clone(&self.polled));
        UnderWay { answering, is_head, polled, line, mark }
    }
}

/// Whether the connection ends behind this answer, because something of the body was not read. The client is told, as RFC 9112, 9.6
/// says. A body that was late does not come now either; and if nobody knows how much is left of one that was too large, it is taken for much.
fn ends_connection(left: Left, status: StatusCode, is_to_end: bool) -> bool {
    let (was_late, was_too_large) =
        (status == StatusCode::REQUEST_TIMEOUT, status == StatusCode::PAYLOAD_TOO_LARGE);
    match left {
        Left::Nothing => false,
        Left::Little => is_to_end || was_late,
        Left::Unstated => is_to_end || was_late || was_too_large,
        Left::Much => true,
    }
}

/// Over HTTP/2 hyper would send it.
fn leave_out_content(response: &mut http::Response<Body>) {
    let length = response.body_mut().leave_out_content();
    // RFC 9110, 8.6: a 204 says no length.
    let says_length =
        response.status() != StatusCode::NO_CONTENT && !response.headers().contains_key(CONTENT_LENGTH);
    if let Some(length) = length.filter(|_| says_length) {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
}

/// A request until its response begins.
struct UnderWay {
    answering: Answering,
    is_head: bool,
    polled: Rc<RefCell<Option<Rc<GivenUp>>>>,
    line: Rc<Line>,
    mark: Rc<RequestMark>,
}

impl Future for UnderWay {
    type Output = Result<http::Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut response = ready!(Pin::new(&mut self.answering).poll(context));
        if self.is_head {
            leave_out_content(&mut response);
        }
        self.line.traffic().answer(response.status());
        self.line.answer_begins(response.body());
        if response.body().size_hint().exact().is_none() {
            self.mark.is_answered_by_a_stream();
        }
        let stream = self.polled.borrow().clone();
        response.body_mut().mark(Rc::clone(&self.mark), stream);
        let is_to_end = self.mark.patience().is_to_end() || self.line.is_ending();
        if ends_connection(self.mark.left(), response.status(), is_to_end) {
            self.mark.reads_no_rest();
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Poll::Ready(Ok(response))
    }
}
