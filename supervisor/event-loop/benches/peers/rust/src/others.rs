//! The shapes in smol, calloop, mio, the standard library, and with epoll by hand.

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use calloop::timer::{TimeoutAction, Timer};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};
use rustix::event::{EventfdFlags, epoll, eventfd};

use crate::meter::Meter;

pub(crate) fn children(n: u64) -> Meter {
    let meter = Meter::start();
    for _ in 0..n {
        assert!(Command::new("/bin/true").status().expect("it is there").success());
    }
    meter
}

pub(crate) fn smol_tasks(n: u64) -> Meter {
    let (executor, count) = (async_executor::LocalExecutor::new(), Rc::new(Cell::new(0)));
    let meter = Meter::start();
    futures_lite::future::block_on(executor.run(async {
        for _ in 0..n {
            let count = Rc::clone(&count);
            executor.spawn(async move { count.set(count.get() + 1) }).detach();
        }
        while count.get() < n {
            futures_lite::future::yield_now().await;
        }
    }));
    meter
}

fn calloop() -> calloop::EventLoop<'static, u64> {
    calloop::EventLoop::try_new().expect("the system has descriptors")
}

pub(crate) fn calloop_iterations(n: u64) -> Meter {
    let (mut event_loop, mut count) = (calloop(), 0);
    let (handle, meter) = (event_loop.handle(), Meter::start());
    for _ in 0..n {
        handle.insert_idle(|count| *count += 1);
        event_loop.dispatch(Some(Duration::ZERO), &mut count).expect("it polls");
    }
    assert_eq!(count, n);
    meter
}

pub(crate) fn calloop_timers(n: u64, delay: fn(u64) -> Duration) -> Meter {
    let (mut event_loop, mut count) = (calloop(), 0);
    let (handle, meter) = (event_loop.handle(), Meter::start());
    for number in 0..n {
        let on_due = |_, _: &mut (), count: &mut u64| {
            *count += 1;
            TimeoutAction::Drop
        };
        handle.insert_source(Timer::from_duration(delay(number)), on_due).expect("a timer can be added");
    }
    while count < n {
        event_loop.dispatch(None, &mut count).expect("it polls");
    }
    meter
}

pub(crate) fn calloop_ping(n: u64) -> Meter {
    let (mut event_loop, mut count) = (calloop(), 0);
    let (ping, source) = calloop::ping::make_ping().expect("the system has descriptors");
    event_loop.handle().insert_source(source, |(), (), count| *count += 1).expect("it can be added");
    let meter = Meter::start();
    for _ in 0..n {
        ping.ping();
        event_loop.dispatch(None, &mut count).expect("it polls");
    }
    assert_eq!(count, n);
    meter
}

pub(crate) fn mio_wake(n: u64) -> Meter {
    let mut poll = Poll::new().expect("the system has descriptors");
    let waker = Waker::new(poll.registry(), Token(0)).expect("the system has descriptors");
    let (mut events, meter) = (Events::with_capacity(1_024), Meter::start());
    for _ in 0..n {
        waker.wake().expect("it can be woken");
        poll.poll(&mut events, None).expect("it polls");
    }
    meter
}

fn connected_pair() -> std::io::Result<[TcpStream; 2]> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let client = std::net::TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    for stream in [&client, &server] {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
    }
    Ok([client, server].map(TcpStream::from_std))
}

/// Sends back what has come, until nothing more is there. How many bytes there were.
fn answer(stream: &mut TcpStream) -> u64 {
    let (mut buffer, mut bytes) = ([0; 64], 0);
    loop {
        match stream.read(&mut buffer) {
            Ok(length) => {
                stream.write_all(&buffer[..length]).expect("there is room for a byte");
                bytes += length as u64;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return bytes,
            Err(error) => panic!("{error}"),
        }
    }
}

pub(crate) fn mio_tcp(n: u64) -> Meter {
    let mut streams = connected_pair().expect("loopback works");
    let mut poll = Poll::new().expect("the system has descriptors");
    for (number, stream) in streams.iter_mut().enumerate() {
        poll.registry().register(stream, Token(number), Interest::READABLE).expect("it can be watched");
    }
    let (mut events, mut received, meter) = (Events::with_capacity(1_024), 0, Meter::start());
    streams[0].write_all(b"x").expect("there is room for a byte");
    while received < n {
        poll.poll(&mut events, None).expect("it polls");
        for event in &events {
            let bytes = answer(&mut streams[event.token().0]);
            received += if event.token() == Token(0) { bytes } else { 0 };
        }
    }
    meter
}

/// An eventfd and an epoll that watches it: the least by which a thread can be woken.
struct Bell {
    epoll: OwnedFd,
    eventfd: OwnedFd,
}

impl Bell {
    fn new() -> rustix::io::Result<Arc<Bell>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // Edge triggered, so that it need not be read.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &eventfd, epoll::EventData::new_u64(0), flags)?;
        Ok(Arc::new(Bell { epoll, eventfd }))
    }

    fn ring(&self) {
        rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes()).expect("the counter has room");
    }

    fn wait(&self, events: &mut Vec<epoll::Event>) {
        events.clear();
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), None).expect("it polls");
    }
}

pub(crate) fn pingpong_of_eventfds(n: u64) -> Meter {
    let there = Bell::new().expect("the system has descriptors");
    let back = Bell::new().expect("the system has descriptors");
    let (heard, answer) = (Arc::clone(&there), Arc::clone(&back));
    let other = std::thread::spawn(move || {
        let mut events = Vec::with_capacity(4);
        for _ in 0..n {
            heard.wait(&mut events);
            answer.ring();
        }
    });
    let (mut events, meter) = (Vec::with_capacity(4), Meter::start());
    for _ in 0..n {
        there.ring();
        back.wait(&mut events);
    }
    other.join().expect("it does not panic");
    meter
}

type Post = Box<dyn FnOnce(&mut u64) + Send>;
type Posts = Mutex<Vec<Post>>;

pub(crate) fn flood(n: u64) -> Meter {
    flood_of(n, |_| Box::new(|count| *count += 1))
}

/// The callbacks own two numbers, and so an allocation each.
pub(crate) fn flood_capturing(n: u64) -> Meter {
    flood_of(n, |number| {
        let twice = 2 * number;
        Box::new(move |count| {
            assert_eq!(number * 2, twice, "the capture arrives");
            *count += 1;
        })
    })
}

/// Another thread posts callbacks, and rings only when the loop was not rung for yet.
fn flood_of(n: u64, post: impl Fn(u64) -> Post + Send + 'static) -> Meter {
    let (posts, is_rung) = (Arc::new(Posts::default()), Arc::new(AtomicBool::new(false)));
    let bell = Bell::new().expect("the system has descriptors");
    let (to, was_rung, rung) = (Arc::clone(&posts), Arc::clone(&is_rung), Arc::clone(&bell));
    let meter = Meter::start();
    let poster = std::thread::spawn(move || {
        for number in 0..n {
            let post = post(number);
            to.lock().unwrap_or_else(PoisonError::into_inner).push(post);
            if !was_rung.swap(true, Ordering::AcqRel) {
                rung.ring();
            }
        }
    });
    let (mut count, mut batch, mut events) = (0, Vec::new(), Vec::with_capacity(4));
    while count < n {
        bell.wait(&mut events);
        is_rung.store(false, Ordering::Release);
        std::mem::swap(&mut batch, &mut posts.lock().unwrap_or_else(PoisonError::into_inner));
        batch.drain(..).for_each(|callback| callback(&mut count));
    }
    poster.join().expect("it does not panic");
    meter
}
