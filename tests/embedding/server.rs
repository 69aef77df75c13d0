//! A server of one's own on the loop: handlers, callbacks, and what becomes of those that fail.

use super::config;
use offload_http::api::{Access, SharedTokens, Tokens};
use offload_http::{
    Address, Body, BrokenOff, Method, Problem, Produce, Replier, Request, RequestContext, Response, Server,
};
use offload_supervisor::event_loop::{Blocked, Context, Remote};
use offload_supervisor::protocol::nouns::OutcomeCode;
use offload_supervisor::service::{Service, ServiceConfig};
use offload_supervisor::{EventLoop, Job};
use rustix::process::{Signal, getpid, kill_process};
use std::cell::RefCell;
use std::future::{IntoFuture, poll_fn};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{self, Poll};
use std::thread::JoinHandle;
use std::time::Duration;
use tests::harness::PATIENCE;
use tests::http::stream_from;

thread_local! {
    /// Of callbacks that have not replied yet.
    static KEPT: RefCell<Vec<Replier>> = const { RefCell::new(Vec::new()) };
}

fn add_routes(server: &Server) {
    server.get("/hello/{name}", |request, _| async move {
        format!("hello {}", request.parameter("name").unwrap_or_default())
    });
    server.post("/hash", |request, cx| async move { cx.offload("sha256", request.body()).await });
    // What is said of the job itself counts, too.
    server.post("/once", |request, cx| async move {
        cx.offload("echo", request.body()).with(|job| job.idempotency_key("once")).await
    });
    server.post(
        "/whole",
        |request, cx| async move { cx.offload("echo", request.body()).with(Job::stream).await },
    );
    server.get("/later", |_: Request, cx: RequestContext| async move {
        cx.event_loop().sleep(Duration::from_millis(5)).await;
        "later"
    });
    server.get("/panic", |request, _| async move {
        assert!(request.query("calm").is_some(), "not calm");
        "calm"
    });
    server.get("/panic/at-once", |request: Request, _| {
        assert!(request.query("calm").is_some(), "not calm");
        async { "calm" }
    });
    let callback = |path: &str, callback: fn(Request, Replier, &mut Context)| {
        server.on(Method::GET, path, callback);
    };
    callback("/callback", |_, replier, cx| {
        cx.set_timeout(Duration::from_millis(5), |_| replier.send("called back"));
    });
    callback("/callback/panic", |request, _, _| assert!(request.query("calm").is_some(), "not calm"));
    server.get("/panic/body", |_, _| async { Response::new(Body::stream(Bomb)) });
    server.get("/empty-pieces", |_, _| async { Response::new(Body::stream(EmptyPieces)) });
    server.get("/panic/drop", |_, _| async {
        let _bomb = BombDropped;
        std::future::pending::<&str>().await
    });
    callback("/callback/nothing", |_, replier, _| drop(replier));
    callback("/callback/never", |_, replier, _| KEPT.with_borrow_mut(|kept| kept.push(replier)));
    callback("/callback/all", |_, replier, _| {
        KEPT.take().into_iter().for_each(|kept| kept.send("at last"));
        replier.send("all of them");
    });
}

/// A body that panics.
struct Bomb;

impl Produce for Bomb {
    fn poll_next(&mut self, _: &mut task::Context<'_>) -> Poll<Option<Result<bytes::Bytes, BrokenOff>>> {
        panic!("not calm")
    }
}

/// A body that goes on for ever and has no byte.
struct EmptyPieces;

impl Produce for EmptyPieces {
    fn poll_next(&mut self, _: &mut task::Context<'_>) -> Poll<Option<Result<bytes::Bytes, BrokenOff>>> {
        Poll::Ready(Some(Ok(bytes::Bytes::new())))
    }
}

/// It panics when its request is given up.
struct BombDropped;

impl Drop for BombDropped {
    fn drop(&mut self) {
        panic!("not calm");
    }
}

pub(super) struct Served {
    pub(super) address: String,
    pub(super) remote: Remote,
    pub(super) thread: JoinHandle<()>,
}

impl Served {
    fn start() -> Served {
        let (send, receive) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut event_loop = EventLoop::new().unwrap();
            let service = Service::start(ServiceConfig::with(config(1)), &mut event_loop).unwrap();
            let server = Server::new(&service, &event_loop);
            add_routes(&server);
            server.check(|head, _| match head.headers.contains_key("x-banned") {
                true => Err(Problem::new(OutcomeCode::Forbidden, "no")),
                false if head.headers.contains_key("x-bomb") => panic!("not calm"),
                false => Ok(()),
            });
            let address = server.listen(&Address::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
            send.send((address.to_string(), event_loop.remote())).unwrap();
            event_loop.run().unwrap();
        });
        let (address, remote) = receive.recv_timeout(PATIENCE).expect("it listens");
        Served { address, remote, thread }
    }

    pub(super) fn send(&self, method: &str, path: &str, more: &str, body: &str) -> TcpStream {
        Served::send_over(TcpStream::connect(&self.address).unwrap(), (method, path), more, body)
    }

    fn send_over(mut stream: TcpStream, (method, path): (&str, &str), more: &str, body: &str) -> TcpStream {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let fields = format!("Host: x\r\nContent-Length: {length}\r\nConnection: close\r\n{more}");
        write!(stream, "{method} {path} HTTP/1.1\r\n{fields}\r\n{body}").unwrap();
        stream
    }

    pub(super) fn ask(&self, method: &str, path: &str, more: &str, body: &str) -> (u16, String) {
        answer(self.send(method, path, more, body))
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.ask("GET", path, "", "")
    }
}

pub(super) fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn an_address_that_is_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(taken.local_addr().unwrap());
    let mut event_loop = EventLoop::new().unwrap();
    let service = Service::start(ServiceConfig::with(config(1)), &mut event_loop).unwrap();
    let error = Server::new(&service, &event_loop).listen(&address).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert!(format!("{error:?}").contains(&format!("cannot listen at {address}: ")), "{error:?}");
    service.stop();
    event_loop.run().unwrap();
}

/// Of all that a process does with signals only this one is of use here: nobody minds it by default.
const SIGNAL: Signal = Signal::URG;

#[test]
fn a_signal_ends_a_service_of_ones_own_after_what_it_has_accepted() {
    let (send, receive) = mpsc::channel();
    let (begun, has_begun) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut event_loop = EventLoop::new().unwrap();
        let service = Service::start(ServiceConfig::with(config(1)), &mut event_loop).unwrap();
        let server = Server::new(&service, &event_loop);
        server.post("/slow", move |request, cx| {
            begun.send(()).unwrap();
            async move { cx.offload("sleep", request.body()).await }
        });
        let ending = service.clone();
        let signals =
            event_loop.on_signal(&[SIGNAL.as_raw()], move |_, _| ending.on_ending_signal()).unwrap();
        event_loop.unref(signals);
        let address = server.listen(&Address::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
        send.send((address.to_string(), event_loop.remote())).unwrap();
        event_loop.run().unwrap();
    });
    let (address, remote) = receive.recv_timeout(PATIENCE).expect("it listens");
    let served = Served { address, remote, thread };
    let stream = served.send("POST", "/slow", "", "300");
    has_begun.recv_timeout(PATIENCE).expect("it is called");
    kill_process(getpid(), SIGNAL).unwrap();
    assert_eq!(answer(stream), (200, "null".to_owned()));
    served.thread.join().expect("the loop has ended by itself");
}

#[test]
fn handlers_and_callbacks_answer_at_once_and_later_and_a_failing_one_costs_its_own_request() {
    let served = Served::start();
    let ok = |text: &str| (200, text.to_owned());
    assert_eq!(served.get("/hello/world"), ok("hello world"));
    assert_eq!(served.ask("POST", "/once", "", "first"), ok("first"));
    assert_eq!(served.ask("POST", "/once", "", "first"), ok("first"), "it is the same job");
    let (status, other) = served.ask("POST", "/once", "", "other");
    assert!(status == 409 && other.contains("\"code\":\"conflict\""), "{status} {other}");
    // Nobody has to show a token here, so who comes from another address is somebody else.
    let elsewhere = stream_from([127, 0, 0, 2], &served.address);
    assert_eq!(answer(Served::send_over(elsewhere, ("POST", "/once"), "", "other")), ok("other"));
    assert_eq!(served.ask("POST", "/whole", "", "not in parts"), ok("not in parts"));
    assert_eq!(served.get("/later"), ok("later"));
    assert_eq!(served.get("/callback"), ok("called back"));
    let (status, hash) = served.ask("POST", "/hash", "", "abc");
    assert!(status == 200 && hash.contains("ba7816bf"), "{status} {hash}");
    let waiting = served.send("GET", "/callback/never", "", "");
    for path in ["/panic", "/panic/at-once", "/callback/nothing", "/callback/panic", "/hello/world"] {
        let more = if path == "/hello/world" { "X-Bomb: yes\r\n" } else { "" };
        let (status, problem) = served.ask("GET", path, more, "");
        assert!(status == 500 && problem.contains("\"code\":\"panic\""), "{path}: {status} {problem}");
    }
    assert_eq!(served.get("/panic?calm"), ok("calm"));
    let mut cut = served.send("GET", "/panic/body", "", "");
    let mut came = Vec::new();
    let _ = cut.read_to_end(&mut came);
    assert!(!came.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&came));
    drop(served.send("GET", "/panic/drop", "", ""));
    assert_eq!(served.get("/later"), ok("later"), "others do not notice");
    for (method, path, more, status) in [
        ("GET", "/nowhere", "", 404),
        ("DELETE", "/hash", "", 405),
        ("GET", "/hello/world", "X-Banned: yes\r\n", 403),
        ("GET", "/nowhere", "X-Banned: yes\r\n", 403),
    ] {
        assert_eq!(served.ask(method, path, more, "").0, status, "{method} {path} {more}");
    }
    // Its connection was accepted before those that came later, and its callback is a tick.
    assert_eq!(served.get("/callback/all"), ok("all of them"));
    assert_eq!(answer(waiting), ok("at last"));
    served.remote.stop();
    served.thread.join().expect("the loop ends");
}

/// However the handler says that the job has a key.
#[test]
fn a_job_with_a_key_goes_on_for_others_when_one_of_its_clients_is_gone() {
    let (send, receive) = mpsc::channel();
    let (begun, has_begun) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut event_loop = EventLoop::new().unwrap();
        let service = Service::start(ServiceConfig::with(config(1)), &mut event_loop).unwrap();
        let server = Server::new(&service, &event_loop);
        server.post("/slow", move |request, cx| {
            let begun = begun.clone();
            async move {
                let key = request.query("key").unwrap_or_default();
                let job = cx.offload("sleep", request.body());
                let mut job = match &*key {
                    "with" => job.with(|job| job.idempotency_key("with")),
                    _ => job.key(key),
                }
                .into_future();
                let mut is_new = true;
                poll_fn(|cx| {
                    let polled = job.as_mut().poll(cx);
                    if std::mem::take(&mut is_new) {
                        begun.send(()).unwrap();
                    }
                    polled
                })
                .await
            }
        });
        let address = server.listen(&Address::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
        send.send((address.to_string(), event_loop.remote())).unwrap();
        event_loop.run().unwrap();
    });
    let (address, remote) = receive.recv_timeout(PATIENCE).expect("it listens");
    let served = Served { address, remote, thread };
    for path in ["/slow?key=with", "/slow?key=key"] {
        let first = served.send("POST", path, "", "300");
        has_begun.recv_timeout(PATIENCE).expect("it is called");
        drop(first);
        assert_eq!(served.ask("POST", path, "", "300"), (200, "null".to_owned()), "{path}");
        has_begun.recv_timeout(PATIENCE).expect("it was called again");
    }
    served.remote.stop();
    served.thread.join().expect("the loop ends");
}

#[test]
fn a_body_of_empty_pieces_keeps_nobody_else_waiting() {
    let served = Served::start();
    let endless = served.send("GET", "/empty-pieces", "", "");
    for _ in 0..3 {
        assert_eq!(served.get("/hello/others"), (200, "hello others".to_owned()));
    }
    drop(endless);
    served.remote.stop();
    served.thread.join().expect("the loop ends");
}

/// The handler, the callback and the check each block until the watchdog has named who blocks.
#[test]
fn a_watchdog_names_the_line_of_the_route_whose_handler_blocks_the_loop() {
    let (send, receive) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut event_loop = EventLoop::new().unwrap();
        let (report, reports) = mpsc::channel();
        let report =
            move |blocked: &Blocked| report.send((blocked.site.file(), blocked.site.line())).unwrap();
        let _watchdog = event_loop.watchdog(Duration::from_millis(20), report).unwrap();
        let service = Service::start(ServiceConfig::with(config(1)), &mut event_loop).unwrap();
        let server = Server::new(&service, &event_loop);
        let reports = Rc::new(reports);
        let blocks = move || {
            // On a machine that is busy, others may have been named before, and still be now.
            reports.try_iter().for_each(drop);
            loop {
                let (file, line) = reports.recv_timeout(PATIENCE).expect("it is named");
                if file == file!() {
                    return format!("{}:{line}", file.rsplit('/').next().unwrap_or_default());
                }
            }
        };
        let (handler, callback, check) = (blocks.clone(), blocks.clone(), blocks);
        let first = line!() + 1;
        server.get("/handler", move |_, _| std::future::ready(handler()));
        server.on(Method::GET, "/callback", move |_, replier, _| replier.send(callback()));
        server.check(move |head, _| match head.uri.path() {
            "/check" => Err(Problem::new(OutcomeCode::Forbidden, check())),
            _ => Ok(()),
        });
        let address = server.listen(&Address::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
        send.send((address.to_string(), event_loop.remote(), first)).unwrap();
        event_loop.run().unwrap();
    });
    let (address, remote, first) = receive.recv_timeout(PATIENCE).expect("it listens");
    let served = Served { address, remote, thread };
    for (path, line) in [("/handler", first), ("/callback", first + 1), ("/check", first + 2)] {
        let (_, text) = served.get(path);
        assert!(text.contains(&format!("server.rs:{line}")), "{path}, {line}: {text}");
    }
    served.remote.stop();
    served.thread.join().expect("the loop ends");
}

/// A server that asks for the token `first-token-0123`, and the tokens that it takes.
fn serve_with_tokens(add: impl FnOnce(&Server) + Send + 'static) -> (Served, SharedTokens) {
    let (send, receive) = mpsc::channel();
    let tokens = SharedTokens::new(Tokens::parse("first-token-0123").unwrap());
    let shared = tokens.clone();
    let thread = std::thread::spawn(move || {
        let mut event_loop = EventLoop::new().unwrap();
        let service = Service::start(ServiceConfig::with(config(1)), &mut event_loop).unwrap();
        let server = Server::new(&service, &event_loop);
        server.check_access(Access { tokens: Some(shared), ..Access::default() });
        add(&server);
        let address = server.listen(&Address::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
        send.send((address.to_string(), event_loop.remote())).unwrap();
        event_loop.run().unwrap();
    });
    let (address, remote) = receive.recv_timeout(PATIENCE).expect("it listens");
    (Served { address, remote, thread }, tokens)
}

/// A request for `/wait` that shows this token.
fn ask_with(served: &Served, token: &str) -> TcpStream {
    let mut stream = TcpStream::connect(&served.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let fields = "Host: localhost\r\nConnection: close";
    write!(stream, "GET /wait HTTP/1.1\r\n{fields}\r\nAuthorization: Bearer {token}\r\n\r\n").unwrap();
    stream
}

#[test]
fn a_program_that_has_tokens_ends_what_waits_by_one_that_is_taken_away() {
    let (waits, waiting) = mpsc::channel();
    let (served, tokens) = serve_with_tokens(|server| {
        server.get("/wait", move |_, _| {
            waits.send(()).unwrap();
            std::future::pending::<&str>()
        });
    });
    assert_eq!(answer(ask_with(&served, "third-token-0123")).0, 401);
    let ends = ask_with(&served, "first-token-0123");
    waiting.recv_timeout(PATIENCE).expect("it waits");
    tokens.replace(Tokens::parse("second-token-012").unwrap());
    assert_eq!(answer(ends).0, 401);
    served.remote.stop();
    served.thread.join().expect("the loop ends");
}

#[test]
fn a_job_that_has_ended_does_not_go_on_without_the_token_of_its_request() {
    let (waits, waiting) = mpsc::channel();
    let (served, tokens) = serve_with_tokens(|server| {
        server.get("/wait", move |_, cx| {
            let waits = waits.clone();
            async move {
                let keyed = cx.offload("echo", "x").key("k").await;
                let left_alone = cx.offload("echo", "x").cancel_on_disconnect(false).await;
                waits.send(keyed.is_ok() && left_alone.is_ok()).unwrap();
                std::future::pending::<&str>().await
            }
        });
    });
    let ends = ask_with(&served, "first-token-0123");
    assert!(waiting.recv_timeout(PATIENCE).expect("it waits"), "both jobs went well");
    tokens.replace(Tokens::parse("second-token-012").unwrap());
    let (status, text) = answer(ends);
    assert!(status == 401 && !text.contains("goes on") && !text.contains("\"job\""), "{text}");
    served.remote.stop();
    served.thread.join().expect("the loop ends");
}
