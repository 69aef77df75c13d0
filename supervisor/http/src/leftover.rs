//! The body of a request as hyper has it; and what becomes of the rest of it, if nobody wants that.
//!
//! ```text
//!   much is announced, its client waits to be asked for it, or --> the answer says that the connection ends; it lingers (line.rs)
//!   the connection ends anyway, or the body was not sound (HTTP/1)
//!   otherwise: the rest is read and dropped --+--> it has come to its end, and the connection goes on
//!                                             '--> it was too much, or it took too long: the connection ends, over HTTP/2 the stream
//! ```
//!
//! Once the answer is written, reading and lingering have one time together ([`LINGER_TIME`]): a client holds its place no longer.
//!
//! Over HTTP/1 a client can only go on over its connection if the body is read, whoever wanted it. One that was told to come back later, or
//! that named a task that is not there, has to do that.
//!
//! Over HTTP/2 hyper ends a stream with RST_STREAM, if it was answered and its body has not come to its end. There are clients, among
//! them curl 7.88, that take this for the failure of the request, and never look at the answer before it. So a body is not given up
//! while it is probably about to end, or the client still has to read the answer.

use crate::limits::{LINGER_TIME, STREAM_WINDOW};
use crate::patience::{Left, RequestMark};
use bytes::Bytes;
use http::Version;
use http::header::{CONNECTION, EXPECT};
use http::request::Parts;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

/// See the module's documentation.
pub(crate) struct Arriving {
    /// Until nobody wants it.
    incoming: Option<Incoming>,
    is_http2: bool,
    /// The client has said that its connection ends with this request.
    is_last: bool,
    /// What has come of it breaks the rules, or it broke off. Over HTTP/1 nobody knows where the next request would begin.
    is_broken: bool,
    /// Its client waits for `100 Continue`, and nothing of the body has come. hyper would send that if the rest was read.
    is_held_back: bool,
}

impl Arriving {
    pub(crate) fn new(incoming: Incoming, head: &Parts) -> Arriving {
        let is_http2 = head.version == Version::HTTP_2;
        let is_held_back = !is_http2 && head.headers.contains_key(EXPECT);
        let is_last = !is_http2 && is_last(head);
        Arriving { incoming: Some(incoming), is_http2, is_last, is_broken: false, is_held_back }
    }

    /// How much is still to come.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or(SizeHint::with_exact(0), Incoming::size_hint)
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }

    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        // When the answer was written before the last bytes came, hyper (1.12) looks for the next head, and tells the end of this body
        // no more. Over HTTP/1 nothing comes behind a length that was stated.
        if !self.is_http2 && self.is_end_stream() {
            return Poll::Ready(None);
        }
        let next = self
            .incoming
            .as_mut()
            .map_or(Poll::Ready(None), |incoming| Pin::new(incoming).poll_frame(context));
        self.is_held_back &= next.is_pending();
        self.is_broken |= matches!(next, Poll::Ready(Some(Err(_))));
        next
    }

    /// Nobody wants the rest of the body of this request.
    pub(crate) fn leave(&mut self, mark: &Rc<RequestMark>) {
        let Some(incoming) = self.incoming.take().filter(|incoming| !incoming.is_end_stream()) else {
            return;
        };
        let patience = mark.patience();
        if !self.is_http2 {
            let left = match self.is_last || self.is_broken || self.is_held_back || patience.is_to_end() {
                true => Left::Much,
                false => left_of(&incoming.size_hint()),
            };
            mark.leave(left);
            if left == Left::Much {
                return;
            }
        }
        let (keeper, number) = (&patience.keeper, patience.last_request());
        let (clock, its, connection) = (keeper.clock.clone(), Rc::downgrade(mark), Rc::downgrade(patience));
        // The task ends with the connection, if not before.
        let reading = keeper.handle.spawn(async move {
            let has_ended = read_and_drop(incoming, clock.sleep(LINGER_TIME)).await;
            if let Some(mark) = its.upgrade() {
                mark.leave(if has_ended { Left::Nothing } else { Left::Much });
            } else if let Some(connection) = connection.upgrade().filter(|_| has_ended) {
                connection.rest_was_read(number);
            }
        });
        // Over HTTP/2 it is not known how the rest is framed, and others may be under way.
        if !self.is_http2 {
            patience.reads_rest(reading);
        }
    }
}

/// Whether a client over HTTP/1 has said that its connection ends with this request (RFC 9112, 9.3).
fn is_last(head: &Parts) -> bool {
    let values = head.headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let mut options = values.flat_map(|value| value.split(',')).map(str::trim);
    let is_old = head.version < Version::HTTP_11;
    let wanted = if is_old { "keep-alive" } else { "close" };
    options.any(|option| option.eq_ignore_ascii_case(wanted)) != is_old
}

/// How much is left of a body over HTTP/1.
fn left_of(length: &SizeHint) -> Left {
    match length.exact() {
        Some(length) if length > u64::from(STREAM_WINDOW) => Left::Much,
        Some(_) => Left::Little,
        None => Left::Unstated,
    }
}

/// Reads as much as a client may have sent before it got the answer: what comes behind that is of one that sends on. Returns whether that
/// was all.
async fn read_and_drop(mut incoming: Incoming, time: impl Future<Output = ()>) -> bool {
    let (mut time, mut left) = (pin!(time), STREAM_WINDOW as usize);
    poll_fn(|context| {
        loop {
            match Pin::new(&mut incoming).poll_frame(context) {
                Poll::Pending => return time.as_mut().poll(context).map(|()| false),
                Poll::Ready(Some(Ok(frame))) => {
                    let length = frame.data_ref().map_or(0, Bytes::len);
                    if length > left {
                        return Poll::Ready(false);
                    }
                    left -= length;
                }
                Poll::Ready(None) => return Poll::Ready(true),
                Poll::Ready(Some(Err(_))) => return Poll::Ready(false),
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use crate::{Address, Request, RequestContext, Server};
    use offload_supervisor::service::{Service, ServiceConfig};
    use offload_supervisor::{EventLoop, Level, PoolConfig, Program};
    use std::cell::RefCell;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::rc::Rc;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Sends the second half of a body when its answer is there, and the next request behind it. Returns the answer to that.
    fn ask(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\nhalf").unwrap();
        let (mut answer, mut piece) = (Vec::new(), [0; 1024]);
        while !answer.ends_with(b"later") {
            let count = stream.read(&mut piece).unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&piece[..count]);
        }
        stream.write_all(b"halfGET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut next = String::new();
        stream.read_to_string(&mut next).unwrap();
        next
    }

    #[test]
    fn a_body_that_is_read_behind_its_answer_has_an_end_and_the_next_request_its_turn() {
        let mut event_loop = EventLoop::new().unwrap();
        let program = Program::command(vec!["true".to_owned()]);
        let pool = PoolConfig { log: Level::Quiet, ..PoolConfig::with(program) };
        let service = Service::start(ServiceConfig::with(pool), &mut event_loop).unwrap();
        let server = Server::new(&service, &event_loop);
        let read = Rc::new(RefCell::new(String::new()));
        let reads = Rc::clone(&read);
        server.post("/", move |request: Request, cx: RequestContext| {
            let (mut body, read) = (request.body(), Rc::clone(&reads));
            drop(cx.event_loop().spawn(async move {
                let mut length = 0;
                let end = loop {
                    match body.next().await {
                        Some(Ok(bytes)) => length += bytes.len(),
                        Some(Err(error)) => break error.to_string(),
                        None => break "no more".to_owned(),
                    }
                };
                read.replace(format!("{length} bytes, {end}"));
            }));
            async { "later" }
        });
        let ending = service.clone();
        server.get("/", move |_, _| {
            let read = read.take();
            ending.drain(Some(PATIENCE));
            async move { read }
        });
        let Address::Tcp(address) = server.listen(&Address::Tcp(([127, 0, 0, 1], 0).into())).unwrap() else {
            unreachable!("it listens over TCP")
        };
        let client = std::thread::spawn(move || ask(address));
        event_loop.run().unwrap();
        let answer = client.join().unwrap();
        assert!(answer.ends_with("\r\n\r\n8 bytes, no more"), "{answer}");
    }
}
