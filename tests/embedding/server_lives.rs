//! How long a server lives whose handlers own it: until it was closed, and never longer than its loop.

use super::config;
use offload_http::{Address, Method, Problem, Replier, Request, RequestContext, Server};
use offload_supervisor::EventLoop;
use offload_supervisor::event_loop::Context;
use offload_supervisor::protocol::nouns::OutcomeCode;
use offload_supervisor::service::{LastAnswers, Service, ServiceConfig};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::rc::{Rc, Weak};
use tests::harness::PATIENCE;

/// What a handler may own: the server, its service, and a sign that shows whether all handlers were dropped.
#[derive(Clone)]
struct Owned {
    server: Server,
    service: Service,
    _sign: Rc<()>,
}

impl Owned {
    /// Closures that call this own all of it.
    fn server(&self) -> &Server {
        &self.server
    }
}

fn start(event_loop: &mut EventLoop) -> (Owned, Weak<()>) {
    let service = Service::start(ServiceConfig::with(config(1)), event_loop).unwrap();
    let (server, sign) = (Server::new(&service, event_loop), Rc::new(()));
    let lives = Rc::downgrade(&sign);
    (Owned { server, service, _sign: sign }, lives)
}

/// One of each thing that can be registered with a server, and each owns it.
fn register(owned: &Owned) {
    let (handler, callback, check) = (owned.clone(), owned.clone(), owned.clone());
    owned.server.get("/handler", move |_: Request, _: RequestContext| {
        let connections = handler.server().connections();
        async move { connections.to_string() }
    });
    owned.server.on(Method::GET, "/callback", move |_, replier: Replier, _: &mut Context| {
        replier.send(callback.server().connections().to_string());
    });
    owned.server.check(move |_, _| match check.server().connections() {
        0 => Err(Problem::new(OutcomeCode::Forbidden, "no")),
        _ => Ok(()),
    });
}

fn listen(server: &Server) -> std::io::Result<String> {
    Ok(server.listen(&Address::Tcp(([127, 0, 0, 1], 0).into()))?.to_string())
}

#[test]
fn handlers_that_own_their_server_go_with_the_loop() {
    for listens in [true, false] {
        let mut event_loop = EventLoop::new().unwrap();
        let (owned, lives) = start(&mut event_loop);
        register(&owned);
        if listens {
            listen(&owned.server).unwrap();
        }
        let last = owned.clone();
        owned.service.on_end(move |_: LastAnswers| drop(last));
        drop(owned);
        assert!(lives.strong_count() > 0, "they may be needed");
        drop(event_loop);
        assert_eq!(lives.strong_count(), 0);
    }
}

#[test]
fn without_a_loop_handlers_are_dropped_at_once() {
    let mut event_loop = EventLoop::new().unwrap();
    let (owned, lives) = start(&mut event_loop);
    drop(event_loop);
    register(&owned);
    let last = owned.clone();
    owned.service.on_end(move |_: LastAnswers| drop(last));
    let closing = owned.clone();
    owned.server.close(move |_| drop(closing));
    drop(owned);
    assert_eq!(lives.strong_count(), 0);
}

#[test]
fn a_server_that_is_closed_drops_its_handlers_says_so_each_time_and_listens_no_more() {
    let mut event_loop = EventLoop::new().unwrap();
    let (owned, lives) = start(&mut event_loop);
    register(&owned);
    let done = Rc::new(Cell::new(0));
    let (closing, told) = (owned.clone(), Rc::clone(&done));
    owned.server.get("/close", move |_: Request, _: RequestContext| {
        for _ in 0..2 {
            let told = Rc::clone(&told);
            closing.server().close(move |cx| {
                told.set(told.get() + 1);
                if told.get() == 2 {
                    cx.stop();
                }
            });
        }
        async { "closing" }
    });
    let address = listen(&owned.server).unwrap();
    let client = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /close HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    event_loop.run().unwrap();
    assert!(client.join().unwrap().ends_with("closing"), "it was answered, and its connection ended");
    assert_eq!(done.get(), 2);
    assert_eq!(listen(&owned.server).unwrap_err().to_string(), "the server was closed");
    drop(owned);
    assert_eq!(lives.strong_count(), 0, "no request can come any more");
}
