//! What the loop promises, claim by claim. Where a claim of the seed documents is meant, its number comes first.

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType};

use super::*;

mod child;
mod closing;
mod corners;
mod datagrams;
mod exhaustion;
pub(crate) mod forks;
mod futures;
mod handles;
mod health;
mod inspect;
mod life;
mod lingering;
mod model;
mod on_gone;
mod order;
mod pausing;
mod remote;
mod source_futures;
mod source_life;
mod streams;
mod tcp_options;

/// What has happened so far, in order.
#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<String>>>);

impl Log {
    fn add(&self, what: impl Into<String>) {
        self.0.borrow_mut().push(what.into());
    }

    /// A callback that does nothing but be seen.
    fn entry(&self, what: &'static str) -> impl FnOnce(&mut Context) + 'static {
        let log = self.clone();
        move |_| log.add(what)
    }

    #[track_caller]
    fn expect(&self, expected: &[&str]) {
        assert_eq!(*self.0.borrow(), expected);
    }
}

fn virtual_loop() -> EventLoop {
    EventLoop::with(LoopConfig { time: Time::Virtual, ..LoopConfig::default() }).expect("two descriptors")
}

fn real_loop() -> EventLoop {
    EventLoop::new().expect("two descriptors")
}

fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A pair whose second end has a byte to read.
fn readable_pair() -> (UnixStream, UnixStream) {
    let (mut writer, reader) = UnixStream::pair().expect("a socket pair");
    writer.write_all(b"x").expect("room for a byte");
    reader.set_nonblocking(true).expect("a live socket");
    (writer, reader)
}

/// A socket that has a port and does not listen: who connects to it is refused, as long as it is there.
fn deaf_socket() -> (OwnedFd, SocketAddr) {
    let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &address).unwrap();
    let address = rustix::net::getsockname(&socket).unwrap();
    (socket, address.try_into().unwrap())
}

fn tcp_listener(event_loop: &LoopHandle) -> (Listener, std::net::SocketAddr) {
    let listener = Listener::tcp(event_loop, "127.0.0.1:0".parse().unwrap()).expect("a free port");
    let Ok(Address::Tcp(address)) = listener.local_address() else { panic!("it listens over TCP") };
    (listener, address)
}
