//! What the tests with the real binary do not reach.

use super::*;
use crate::limits::READ_TIME;
use offload_event_loop::{EventLoop, Interest, LoopConfig, Time};
use offload_supervisor::pauses::RunningClock;
use std::future::Future;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A line on a loop whose time passes at once, and its client, which never blocks.
fn line() -> (EventLoop, Rc<Line>, UnixStream) {
    let config = LoopConfig { time: Time::Virtual, ..LoopConfig::default() };
    let event_loop = EventLoop::with(config).unwrap();
    let handle = event_loop.handle().clone();
    let (client, server) = UnixStream::pair().unwrap();
    client.set_nonblocking(true).unwrap();
    let line = Line::new(
        &Timekeeper::new(&handle, &RunningClock::new(&handle)),
        server.into(),
        None,
        (&Rc::default(), &Rc::new(Departures::new(&handle))),
    );
    (event_loop, line.unwrap(), client)
}

/// Fills what lies between the line and its client, and says with how many bytes.
fn fill(line: &Line) -> usize {
    let mut full = UnixStream::from(line.transport.socket().as_fd().try_clone_to_owned().unwrap());
    full.set_nonblocking(true).unwrap();
    std::iter::from_fn(|| full.write(&[b'-'; 4096]).ok()).sum()
}

/// What the client can read now.
fn read(client: &mut UnixStream) -> Vec<u8> {
    let mut all = Vec::new();
    let error = client.read_to_end(&mut all).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    all
}

fn write<'a>(line: &'a Rc<Line>, bytes: &'a [u8]) -> impl Future<Output = io::Result<usize>> {
    poll_fn(|context| Pin::new(&mut Wire(Rc::clone(line))).poll_write(context, bytes))
}

fn flush(line: &Rc<Line>) -> impl Future<Output = io::Result<()>> {
    poll_fn(|context| Pin::new(&mut Wire(Rc::clone(line))).poll_flush(context))
}

#[test]
fn an_answer_to_a_violation_is_not_offered_for_ever_to_a_client_that_reads_nothing() {
    let (mut event_loop, line, mut client) = line();
    fill(&line);
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").unwrap();
    let has_ended = Rc::new(Cell::new(false));
    let ended = Rc::clone(&has_ended);
    drop(event_loop.handle().spawn(async move {
        assert!(line.greet().await.is_none(), "there is nothing to be served");
        line.end().await;
        ended.set(true);
    }));
    event_loop.set_timeout(Duration::from_secs(60), |cx| cx.stop());
    event_loop.run().unwrap();
    assert!(has_ended.get());
    drop(client);
}

#[test]
fn a_small_answer_leaves_at_the_end_of_its_turn_and_what_comes_after_it_stays_behind_it() {
    let (mut event_loop, line, mut client) = line();
    let large = vec![b'b'; 2 * crate::limits::DEPARTING_MAX];
    let (its, own, seen) = (Rc::clone(&line), large.clone(), client.try_clone().unwrap());
    drop(event_loop.handle().spawn(async move {
        let mut seen = seen;
        assert_eq!(write(&its, b"one").await.unwrap(), 3);
        assert_eq!(write(&its, b"two").await.unwrap(), 3);
        flush(&its).await.unwrap();
        assert_eq!(read(&mut seen), b"", "the turn goes on");
        assert_eq!(write(&its, &own).await.unwrap(), own.len());
    }));
    event_loop.set_timeout(Duration::from_secs(1), |cx| cx.stop());
    event_loop.run().unwrap();
    assert_eq!(read(&mut client), [b"onetwo".as_slice(), &large].concat());
    drop(line);
}

/// The loop has sent what was there at the end of this turn, and would sleep before the end of the next one.
#[test]
fn an_answer_from_the_end_of_a_turn_waits_for_nothing_else() {
    let (mut event_loop, line, client) = line();
    let its = Rc::clone(&line);
    event_loop.set_immediate(move |cx| {
        drop(cx.handle().spawn(async move { assert_eq!(write(&its, b"late").await.unwrap(), 4) }));
    });
    let began = event_loop.handle().now();
    let mut reader = client.try_clone().unwrap();
    let watched = event_loop.handle().watch(client, Interest::READ, move |cx, _| {
        assert_eq!(
            (read(&mut reader).as_slice(), cx.handle().now() - began),
            (b"late".as_slice(), Duration::ZERO)
        );
        cx.stop();
    });
    watched.unwrap();
    event_loop.set_timeout(Duration::from_secs(1), |_| ());
    event_loop.run().unwrap();
    drop(line);
}

#[test]
fn a_small_answer_that_its_client_does_not_take_is_kept_and_has_its_time() {
    for reads in [true, false] {
        let (mut event_loop, line, mut client) = line();
        let filled = fill(&line);
        line.patience().head_is_there();
        let result = Rc::new(Cell::new(None));
        let (its, told) = (Rc::clone(&line), Rc::clone(&result));
        drop(event_loop.handle().spawn(async move {
            assert_eq!(write(&its, b"answer").await.unwrap(), 6);
            flush(&its).await.unwrap();
            its.handle.clone().set_timeout(Duration::from_secs(1), move |cx| {
                drop(cx.handle().spawn(async move { told.set(Some(flush(&its).await.is_ok())) }));
            });
        }));
        let mut taken = client.try_clone().unwrap();
        event_loop.set_timeout(READ_TIME / 2, move |_| {
            if reads {
                read(&mut taken);
            }
        });
        event_loop.set_timeout(3 * READ_TIME, |cx| cx.stop());
        event_loop.run().unwrap();
        assert_eq!((reads, line.is_cut()), (reads, !reads));
        assert_eq!(result.take(), Some(reads));
        let rest = read(&mut client);
        match reads {
            true => assert_eq!(rest, b"answer"),
            false => assert_eq!(rest.len(), filled),
        }
    }
}

#[test]
fn a_kept_output_is_taken_over_only_as_far_as_the_system_takes_it() {
    let (mut event_loop, line, client) = line();
    fill(&line);
    line.write_at_once();
    let is_taken = Rc::new(Cell::new(false));
    let (its, told) = (Rc::clone(&line), Rc::clone(&is_taken));
    drop(event_loop.handle().spawn(async move {
        write(&its, b"output").await.unwrap();
        told.set(true);
    }));
    let (taken, mut reader) = (Rc::clone(&is_taken), client.try_clone().unwrap());
    event_loop.set_timeout(Duration::from_secs(1), move |_| {
        assert!(!taken.get());
        read(&mut reader);
    });
    event_loop.set_timeout(Duration::from_secs(2), |cx| cx.stop());
    event_loop.run().unwrap();
    assert!(is_taken.get());
    drop(client);
}
