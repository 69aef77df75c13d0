//! What the test suites of libuv and Node check, as far as it applies here. `tests/README.md` lists which of these tests covers
//! which of theirs.

mod children;
mod closing;
mod current;
mod datagrams;
mod embedding;
mod futures;
mod hooks;
mod immediates;
mod life;
mod listeners;
mod microtasks;
mod misuse;
mod panics;
mod pool;
mod posts;
mod references;
mod run_modes;
mod signals;
mod streams;
mod ticks;
mod timer_order;
mod timers;
mod watchers;

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use offload_event_loop::{
    Address, Context, EventLoop, Incoming, Listener, LoopConfig, LoopHandle, RunMode, SourceError, Stream,
    Time,
};
use rustix::net::{AddressFamily, SocketType};

use crate::stage::Order;

/// The name of a timer or handle, for its own callback, which is made before it has one.
type OwnName<T> = Rc<Cell<Option<T>>>;

/// The same name twice: one for who gives it, one for the callback.
fn own_name<T>() -> (OwnName<T>, OwnName<T>) {
    let name = Rc::new(Cell::new(None));
    (Rc::clone(&name), name)
}

/// A loop whose time jumps to the next timer, so that a test of an order takes no time.
fn virtual_loop() -> EventLoop {
    EventLoop::with(LoopConfig { time: Time::Virtual, ..LoopConfig::default() }).unwrap()
}

fn real_loop() -> EventLoop {
    EventLoop::new().unwrap()
}

/// As [`real_loop`], for sources: a test fails when the loop waits for something that does not come.
fn source_loop() -> EventLoop {
    let event_loop = real_loop();
    let deadline = event_loop.set_timeout(Duration::from_secs(60), |_| panic!("nothing happens any more"));
    event_loop.unref(deadline);
    event_loop
}

/// Turns the loop once for something that has to come.
fn turn(event_loop: &mut EventLoop) {
    assert!(event_loop.is_alive(), "nothing more can happen");
    event_loop.run_mode(RunMode::Once).unwrap();
}

fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Keeps the thread busy, as a callback does that computes for too long.
fn compute_for(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
}

/// Two ends of a connection that never block.
fn connection() -> (Rc<UnixStream>, Rc<UnixStream>) {
    let (one, other) = UnixStream::pair().unwrap();
    one.set_nonblocking(true).unwrap();
    other.set_nonblocking(true).unwrap();
    (Rc::new(one), Rc::new(other))
}

/// As [`connection`], with a byte to be read at the second end.
fn connection_with_a_byte() -> (Rc<UnixStream>, Rc<UnixStream>) {
    let (writer, reader) = connection();
    send_a_byte(&writer);
    (writer, reader)
}

fn send_a_byte(mut stream: &UnixStream) {
    stream.write_all(b"x").unwrap();
}

/// The bytes that are there now.
fn receive(mut stream: &UnixStream) -> usize {
    stream.read(&mut [0; 64]).unwrap()
}

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A stream of the loop and a peer that blocks, connected over TCP.
fn stream_and_peer(event_loop: &LoopHandle) -> (Stream, TcpStream) {
    let listener = TcpListener::bind(LOCAL).unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    (Stream::from_descriptor(event_loop, stream.into()).unwrap(), peer)
}

/// Where a TCP listener listens.
fn port_of(listener: &Listener) -> SocketAddr {
    match listener.local_address().unwrap() {
        Address::Tcp(address) => address,
        other => panic!("{other:?}"),
    }
}

/// Ends the connection so that the other end is told of a reset.
fn reset(peer: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
    drop(peer);
}

/// A socket that has a port and does not listen: who connects to it is refused, as long as it is there.
fn deaf_socket() -> (std::os::fd::OwnedFd, SocketAddr) {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &LOCAL).unwrap();
    let address = rustix::net::getsockname(&socket).unwrap();
    (socket, address.try_into().unwrap())
}

/// How something ended, in a word.
fn outcome<T>(result: Result<T, SourceError>) -> String {
    match result {
        Ok(_) => "done".to_owned(),
        Err(SourceError::Io(error)) => format!("{:?}", error.kind()),
        Err(error) => format!("{error:?}"),
    }
}

/// A callback for the end of a write or a shutdown, which writes it down.
fn told(
    order: &Order<String>,
    name: &'static str,
) -> impl FnOnce(&mut Context, Result<(), SourceError>) + 'static {
    let order = order.clone();
    move |_, result| order.push(format!("{name}: {}", outcome(result)))
}

/// As [`told`], for connects.
fn connect_told(
    order: &Order<String>,
    name: &'static str,
) -> impl FnOnce(&mut Context, &Stream, Result<(), SourceError>) + 'static {
    let told = told(order, name);
    move |context, _, result| told(context, result)
}

/// A callback for what comes in, which writes it down: the bytes as they come, the end, or the failure.
fn incoming_told(order: &Order<String>) -> impl FnMut(&mut Context, &Stream, Incoming<'_>) + 'static {
    let order = order.clone();
    move |_, _, incoming| {
        order.push(match incoming {
            Incoming::Data(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            Incoming::End => "end".to_owned(),
            Incoming::Failed(error) => outcome::<()>(Err(error)),
        });
    }
}

/// Collects everything up to the end.
fn collect(stream: &Stream) -> Order<u8> {
    let bytes = Order::new();
    let collected = bytes.clone();
    stream
        .read_start(move |_, _, incoming| match incoming {
            Incoming::Data(bytes) => bytes.iter().for_each(|byte| collected.push(*byte)),
            Incoming::End => {}
            Incoming::Failed(error) => panic!("{error}"),
        })
        .unwrap();
    bytes
}

/// The file that has a test which the tables name: `file::test` is one of these, `event_loop::tests::file::test` and
/// `io_pool::tests::file::test` are the crate's own.
fn file_of(name: &[&str]) -> String {
    match name {
        [file] => format!("spec/event_loop/conformance/{file}.rs"),
        ["event_loop", "tests"] => "../supervisor/event-loop/src/tests/mod.rs".to_owned(),
        ["event_loop", "tests", file] => format!("../supervisor/event-loop/src/tests/{file}.rs"),
        ["io_pool", "tests"] => "../supervisor/event-loop/src/io_pool/tests/mod.rs".to_owned(),
        ["io_pool", "tests", file] => format!("../supervisor/event-loop/src/io_pool/tests/{file}.rs"),
        other => panic!("what file is meant by {other:?}?"),
    }
}

/// The tables are long, and tests get new names.
#[test]
fn every_test_that_the_readme_names_exists() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let (_, tables) = readme.split_once("## Conformance").unwrap();
    let words = tables.split("\n## ").next().unwrap().split('`');
    let names: Vec<Vec<_>> = words.map(|word| word.split("::").collect()).collect();
    let names: Vec<_> = names.iter().filter_map(|name| name.split_last()).collect();
    let names = names.into_iter().filter(|(_, path)| !path.is_empty() && *path != ["conformance"]);
    let mut count = 0;
    for (test, path) in names.filter(|(test, _)| !test.is_empty()) {
        let source = std::fs::read_to_string(folder.join(file_of(path))).unwrap();
        assert!(source.contains(&format!("fn {test}()")), "{path:?} has no {test}");
        count += 1;
    }
    assert!(count > 200, "the tables are not where they are looked for");
}
