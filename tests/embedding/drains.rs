//! What was let in before a drain is answered, whatever it takes.

use super::config;
use super::server::{Served, answer};
use offload_http::{Address, Body, BrokenOff, Produce, Request, RequestContext, Response, Server};
use offload_supervisor::EventLoop;
use offload_supervisor::event_loop::LoopHandle;
use offload_supervisor::service::{Service, ServiceConfig, Stage};
use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::sync::mpsc::{self, Receiver, Sender};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tests::harness::PATIENCE;

const TICK: Duration = Duration::from_millis(5);

/// Longer than what comes after the last job had for its end once.
const AFTERWARDS: Duration = Duration::from_millis(1500);

const LIMIT: Duration = Duration::from_secs(60);

async fn until_it_drains(cx: &RequestContext) {
    while cx.service().stage() == Stage::Serving {
        cx.event_loop().sleep(TICK).await;
    }
}

/// Ten pieces, in more time than [`AFTERWARDS`] after the drain has begun.
struct Slowly {
    handle: LoopHandle,
    service: Service,
    next: Pin<Box<dyn Future<Output = ()>>>,
    left: usize,
}

impl Produce for Slowly {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<bytes::Bytes, BrokenOff>>> {
        loop {
            ready!(self.next.as_mut().poll(context));
            let time = if self.service.stage() == Stage::Serving { TICK } else { AFTERWARDS / 10 };
            self.next = Box::pin(self.handle.sleep(time));
            if self.service.stage() != Stage::Serving {
                break;
            }
        }
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        Poll::Ready(Some(Ok("x".into())))
    }
}

fn add_routes(server: &Server, begun: &Sender<()>) {
    let said = begun.clone();
    server.post("/jobs", move |request: Request, cx| {
        said.send(()).unwrap();
        async move {
            let first = cx.offload("echo", request.body()).await?;
            until_it_drains(&cx).await;
            let (body, media_type) = (first.bytes().clone(), first.media_type().clone());
            let second = cx.offload("echo", offload_http::Input::Bytes(body, media_type)).await;
            cx.event_loop().sleep(AFTERWARDS).await;
            second
        }
    });
    let said = begun.clone();
    server.get("/no-job", move |_, cx: RequestContext| {
        said.send(()).unwrap();
        async move {
            until_it_drains(&cx).await;
            cx.event_loop().sleep(AFTERWARDS).await;
            "no job"
        }
    });
    let said = begun.clone();
    server.get("/stream", move |_, cx: RequestContext| {
        said.send(()).unwrap();
        let handle = cx.event_loop().clone();
        let next = Box::pin(handle.sleep(TICK));
        let slowly = Slowly { handle, service: cx.service().clone(), next, left: 10 };
        async move { Response::new(Body::stream(slowly)) }
    });
    let said = begun.clone();
    server.post("/body", move |request: Request, cx| {
        said.send(()).unwrap();
        async move { cx.offload("echo", request.body()).await }
    });
}

/// A server, what tells that a handler was called, and what begins the drain.
fn start() -> (Served, Receiver<()>, Sender<()>) {
    let (send, receive) = mpsc::channel();
    let (begun, has_begun) = mpsc::channel();
    let (drain, to_drain) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let mut event_loop = EventLoop::new().unwrap();
        let service = Service::start(ServiceConfig::with(config(1)), &mut event_loop).unwrap();
        let server = Server::new(&service, &event_loop);
        add_routes(&server, &begun);
        let draining = service.clone();
        let looks = event_loop.set_interval(TICK, move |_| {
            if to_drain.try_recv().is_ok() {
                draining.drain(Some(LIMIT));
            }
        });
        event_loop.unref(looks);
        let address = server.listen(&Address::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
        send.send((address.to_string(), event_loop.remote())).unwrap();
        event_loop.run().unwrap();
    });
    let (address, remote) = receive.recv_timeout(PATIENCE).expect("it listens");
    (Served { address, remote, thread }, has_begun, drain)
}

#[test]
fn requests_that_were_let_in_are_answered_with_all_the_jobs_that_they_need() {
    let (served, has_begun, drain) = start();
    let jobs = served.send("POST", "/jobs", "", "both");
    let no_job = served.send("GET", "/no-job", "", "");
    let stream = served.send("GET", "/stream", "", "");
    let mut body = std::net::TcpStream::connect(&served.address).unwrap();
    body.set_read_timeout(Some(PATIENCE)).unwrap();
    body.write_all(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nConnection: close\r\n\r\n")
        .unwrap();
    for _ in 0..4 {
        has_begun.recv_timeout(PATIENCE).expect("each handler is called");
    }
    drain.send(()).unwrap();
    // It listens as long as there are requests to answer, so that whoever asks is told that it ends.
    tests::harness::until("jobs of later requests are refused", || {
        let (status, text) = served.ask("POST", "/body", "", "late");
        assert!(status == 200 || status == 503 && text.contains("unavailable"), "{status} {text}");
        (status == 503).then_some(())
    });
    body.write_all(b"body").unwrap();
    assert_eq!(answer(body), (200, "body".to_owned()));
    assert_eq!(answer(jobs), (200, "both".to_owned()));
    assert_eq!(answer(no_job), (200, "no job".to_owned()));
    let (status, pieces) = answer(stream);
    assert_eq!((status, pieces.matches('x').count()), (200, 10), "{pieces}");
    served.thread.join().expect("the loop has ended by itself");
}
