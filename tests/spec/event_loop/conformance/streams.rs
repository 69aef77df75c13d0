//! Streams: reading and writing, how they are shut down, and what a hostile peer does to them.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::rc::Rc;
use std::time::Instant;

use offload_event_loop::{Context, EventLoop, Incoming, Listener, LoopHandle, RunMode, SourceError, Stream};

use super::{
    LOCAL, collect, compute_for, incoming_told, milliseconds, outcome, port_of, reset, source_loop,
    stream_and_peer, told, turn,
};
use crate::stage::Order;

/// More than the kernel takes for a peer that does not read.
const MUCH: usize = 16 * 1_024 * 1_024;

/// Writes so much that the most of it has to wait in the queue.
fn write_much(stream: &Stream, answer: impl FnOnce(&mut Context, Result<(), SourceError>) + 'static) {
    stream.set_write_limit(2 * MUCH);
    stream.write(vec![b'm'; MUCH], answer).unwrap();
    assert!(stream.queued_bytes() > 0, "the kernel has taken everything");
}

/// Answers each byte with its successor, up to the given one, and then the end with the end.
fn play(stream: &Stream, last: u8) {
    let next = move |stream: &Stream, byte: u8| match byte == last {
        true => stream.shutdown(|_, shut| shut.unwrap()).unwrap(),
        false => stream.write([byte + 1], |_, written| written.unwrap()).unwrap(),
    };
    stream
        .read_start(move |_, stream, incoming| match incoming {
            Incoming::Data(bytes) => bytes.iter().for_each(|byte| next(stream, *byte)),
            Incoming::End => stream.close(|_| ()).unwrap(),
            Incoming::Failed(error) => panic!("{error}"),
        })
        .unwrap();
}

/// Accepts one connection, plays with it, and says the first word from the other end.
fn play_over(event_loop: &mut EventLoop, listener: &Listener, connect: impl FnOnce(&LoopHandle) -> Stream) {
    listener
        .accept_start(|_, listener, stream| {
            play(&stream.unwrap(), 200);
            listener.close(|_| ()).unwrap();
        })
        .unwrap();
    let first = connect(event_loop);
    first.write([0], |_, written| written.unwrap()).unwrap();
    event_loop.run().unwrap();
    assert!(first.is_closed(), "it has seen the end of the other");
}

fn begin_to_play(_: &mut Context, stream: &Stream, connected: Result<(), SourceError>) {
    connected.unwrap();
    play(stream, 201);
}

#[test]
fn two_ends_answer_each_other_two_hundred_times_over_every_kind_of_socket() {
    let mut event_loop = source_loop();
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = Listener::tcp(&event_loop, address.parse().unwrap()).unwrap();
        let address = port_of(&listener);
        play_over(&mut event_loop, &listener, |event_loop| {
            Stream::connect_tcp(event_loop, address, begin_to_play)
        });
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = Listener::unix(&event_loop, &path).unwrap();
    play_over(&mut event_loop, &listener, |event_loop| {
        Stream::connect_unix(event_loop, &path, begin_to_play)
    });
}

#[test]
fn ten_thousand_writes_in_a_row_arrive_and_are_answered_in_their_order() {
    let mut event_loop = source_loop();
    let (reader, writer) = Stream::pair(&event_loop).unwrap();
    let (received, answers) = (collect(&reader), Order::new());
    for number in 0..10_000_u32 {
        let answers = answers.clone();
        let answer = move |_: &mut Context, written: Result<(), SourceError>| {
            written.unwrap();
            answers.push(number);
        };
        writer.write(number.to_be_bytes(), answer).unwrap();
    }
    writer.shutdown(|_, shut| shut.unwrap()).unwrap();
    event_loop.run().unwrap();
    let expected: Vec<u8> = (0..10_000_u32).flat_map(u32::to_be_bytes).collect();
    assert!(received.so_far() == expected);
    assert_eq!(answers.so_far(), (0..10_000).collect::<Vec<_>>());
}

#[test]
fn writing_at_once_takes_what_there_is_room_for_and_then_says_that_there_is_none() {
    let event_loop = source_loop();
    let (stream, mut peer) = stream_and_peer(&event_loop);
    let mut taken = 0;
    let full = loop {
        match stream.try_write(&[b'x'; 100_000]) {
            Ok(count) => taken += count,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, SourceError::WouldBlock), "{full}");
    drop(stream);
    assert_eq!(peer.read_to_end(&mut Vec::new()).unwrap(), taken, "nothing is lost and nothing comes twice");
}

#[test]
fn writing_at_once_does_not_overtake_what_waits() {
    let event_loop = source_loop();
    let (stream, _peer) = stream_and_peer(&event_loop);
    write_much(&stream, |_, _| ());
    assert!(matches!(stream.try_write(b"x"), Err(SourceError::WouldBlock)));
}

#[test]
fn a_peer_that_is_gone_is_told_to_the_write_that_comes_too_late() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (stream, peer) = stream_and_peer(&event_loop);
    reset(peer);
    stream.read_start(incoming_told(&order)).unwrap();
    event_loop.run().unwrap();
    assert_eq!(outcome(stream.try_write(b"x")), "BrokenPipe");
    stream.write("x", told(&order, "write")).unwrap();
    assert_eq!(order.so_far(), ["ConnectionReset"], "the write is never answered from within the call");
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["ConnectionReset", "write: BrokenPipe"]);
    assert!(!stream.is_closed(), "that is left to its owner");
}

#[test]
fn a_connection_whose_other_half_is_closed_takes_a_write_and_tells_of_the_reset() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (stream, peer) = stream_and_peer(&event_loop);
    drop(peer);
    stream.write("x", told(&order, "write")).unwrap();
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["write: done"], "the peer could read still, for all we know");
    // It answers with a reset, which may take a moment.
    let begin = Instant::now();
    let failed = loop {
        match stream.try_write(b"x") {
            Ok(_) => assert!(begin.elapsed() < milliseconds(10_000), "no reset has come"),
            failed => break outcome(failed),
        }
    };
    assert!(["BrokenPipe", "ConnectionReset"].contains(&&*failed), "{failed}");
}

#[test]
fn a_reset_ends_reading_with_an_error_and_every_write_that_waits_is_answered_once() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (stream, mut peer) = stream_and_peer(&event_loop);
    write_much(&stream, told(&order, "much"));
    stream.write("", told(&order, "nothing")).unwrap();
    stream.shutdown(told(&order, "shutdown")).unwrap();
    peer.read_exact(&mut [0; 100_000]).unwrap();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    stream.read_start(incoming_told(&order)).unwrap();
    reset(peer);
    assert!(!event_loop.run().unwrap());
    let expected = ["ConnectionReset", "much: BrokenPipe", "nothing: BrokenPipe", "shutdown: BrokenPipe"];
    assert_eq!(order.so_far(), expected);
    assert_eq!(stream.queued_bytes(), 0);
}

#[test]
fn a_reset_is_told_to_the_writes_if_nobody_reads() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (stream, peer) = stream_and_peer(&event_loop);
    write_much(&stream, told(&order, "much"));
    stream.write("more", told(&order, "more")).unwrap();
    reset(peer);
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["much: ConnectionReset", "more: ConnectionReset"]);
}

#[test]
fn a_shutdown_comes_after_the_writes_before_it_and_the_peer_gets_them_all() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (stream, mut peer) = stream_and_peer(&event_loop);
    write_much(&stream, told(&order, "much"));
    stream.shutdown(told(&order, "shutdown")).unwrap();
    assert!(matches!(stream.write("x", |_, _| ()), Err(SourceError::AlreadyShutDown)));
    let reader = std::thread::spawn(move || peer.read_to_end(&mut Vec::new()).unwrap());
    assert!(!event_loop.run().unwrap());
    assert_eq!(reader.join().unwrap(), MUCH);
    assert_eq!(order.so_far(), ["much: done", "shutdown: done"]);
}

#[test]
fn after_a_shutdown_nothing_can_be_written_and_what_comes_in_is_still_read() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (stream, mut peer) = stream_and_peer(&event_loop);
    stream.shutdown(told(&order, "shutdown")).unwrap();
    for refused in [
        stream.write("x", |_, _| panic!("it was refused")),
        stream.try_write(b"x").map(drop),
        stream.shutdown(|_, _| panic!("it was refused")),
    ] {
        assert!(matches!(refused, Err(SourceError::AlreadyShutDown)), "{refused:?}");
    }
    event_loop.run().unwrap();
    assert_eq!(peer.read(&mut [0]).unwrap(), 0, "the peer sees the end");
    peer.write_all(b"late").unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    stream.read_start(incoming_told(&order)).unwrap();
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["shutdown: done", "late", "end"]);
}

#[test]
fn two_ends_that_shut_down_at_the_same_time_see_each_others_end() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (one, other) = Stream::pair(&event_loop).unwrap();
    for stream in [&one, &other] {
        stream.write("bye", |_, written| written.unwrap()).unwrap();
        stream.shutdown(told(&order, "shutdown")).unwrap();
        stream.read_start(incoming_told(&order)).unwrap();
    }
    assert!(!event_loop.run().unwrap(), "two ends are the end");
    let mut order = order.so_far();
    order.sort();
    assert_eq!(order, ["bye", "bye", "end", "end", "shutdown: done", "shutdown: done"]);
}

#[test]
fn closing_right_after_a_shutdown_answers_it_first() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (stream, mut peer) = stream_and_peer(&event_loop);
    stream.write("last words", told(&order, "write")).unwrap();
    stream.shutdown(told(&order, "shutdown")).unwrap();
    stream.close(order.add("closed".to_owned())).unwrap();
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["write: done", "shutdown: done", "closed"]);
    let mut heard = String::new();
    peer.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "last words", "what the kernel had is delivered");
}

#[test]
fn closing_in_the_read_callback_cancels_what_waits_and_reads_no_more() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (stream, mut peer) = stream_and_peer(&event_loop);
    write_much(&stream, told(&order, "much"));
    stream.shutdown(told(&order, "shutdown")).unwrap();
    let inner = order.clone();
    stream
        .read_start(move |_, stream, incoming| {
            assert!(matches!(incoming, Incoming::Data(_)));
            inner.push("read".to_owned());
            stream.close(inner.add("closed".to_owned())).unwrap();
            assert!(matches!(stream.write("x", |_, _| ()), Err(SourceError::Closed)));
            assert!(matches!(stream.read_start(|_, _, _| ()), Err(SourceError::Closed)));
        })
        .unwrap();
    peer.write_all(&[b'x'; 100_000]).unwrap();
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["read", "much: Cancelled", "shutdown: Cancelled", "closed"]);
}

#[test]
fn the_end_is_told_once_and_again_to_who_asks_again() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (stream, peer) = stream_and_peer(&event_loop);
    drop(peer);
    for _ in 0..2 {
        stream.read_start(incoming_told(&order)).unwrap();
        assert!(!event_loop.run().unwrap(), "after the end nobody reads");
    }
    assert_eq!(order.so_far(), ["end", "end"]);
}

#[test]
fn what_comes_while_reading_is_stopped_is_read_when_it_is_started_again() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (stream, mut peer) = stream_and_peer(&event_loop);
    stream.read_start(|_, _, _| panic!("it is stopped before anything comes")).unwrap();
    assert!(matches!(stream.read_start(|_, _, _| ()), Err(SourceError::AlreadyReading)));
    let (stopped, again) = (stream.clone(), order.clone());
    event_loop.set_timeout(milliseconds(1), move |context| {
        stopped.read_stop();
        stopped.read_stop();
        peer.write_all(b"meanwhile").unwrap();
        drop(peer);
        context.set_timeout(milliseconds(1), move |_| {
            again.push("started".to_owned());
            stopped.read_start(incoming_told(&again)).unwrap();
        });
    });
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["started", "meanwhile", "end"]);
}

#[test]
fn bytes_that_nobody_reads_neither_wake_the_loop_nor_keep_it() {
    let mut event_loop = source_loop();
    let (stream, mut peer) = stream_and_peer(&event_loop);
    stream.read_start(|_, _, _| panic!("it is stopped")).unwrap();
    stream.read_stop();
    peer.write_all(b"unexpected").unwrap();
    let turns = Rc::new(Cell::new(0));
    let counted = Rc::clone(&turns);
    let hook = event_loop.prepare(move |_| counted.set(counted.get() + 1));
    event_loop.unref(hook);
    event_loop.set_timeout(milliseconds(20), |_| ());
    assert!(!event_loop.run().unwrap());
    assert!(turns.get() <= 5, "{} iterations for one timer", turns.get());
}

#[test]
fn a_write_under_way_keeps_the_loop_alive_though_its_stream_is_unreferenced() {
    let mut event_loop = source_loop();
    let (stream, mut peer) = stream_and_peer(&event_loop);
    stream.read_start(|_, _, _| ()).unwrap();
    stream.unref();
    assert!(!event_loop.is_alive());
    write_much(&stream, |_, written| written.unwrap());
    assert!(event_loop.is_alive());
    let reader = std::thread::spawn(move || peer.read_exact(&mut vec![0; MUCH]).map(|()| peer));
    assert!(!event_loop.run().unwrap());
    assert_eq!(stream.queued_bytes(), 0);
    reader.join().unwrap().unwrap();
}

#[test]
fn a_copy_of_a_descriptor_is_a_stream_of_its_own() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (one, mut peer) = super::connection();
    let copies = [one.try_clone().unwrap(), one.try_clone().unwrap()];
    let [first, second] = copies.map(|copy| Stream::from_descriptor(&event_loop, copy.into()).unwrap());
    first.close(order.add("closed".to_owned())).unwrap();
    second.read_start(incoming_told(&order)).unwrap();
    let writer = Rc::get_mut(&mut peer).unwrap();
    writer.write_all(b"still there").unwrap();
    writer.shutdown(Shutdown::Both).unwrap();
    event_loop.run().unwrap();
    let mut order = order.so_far();
    order.sort();
    assert_eq!(order, ["closed", "end", "still there"]);
}

#[test]
fn a_socket_that_was_never_connected_says_so_to_who_reads_or_writes() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (socket, _) = super::deaf_socket();
    let stream = Stream::from_descriptor(&event_loop, socket).unwrap();
    stream.read_start(incoming_told(&order)).unwrap();
    stream.write("x", told(&order, "write")).unwrap();
    assert!(matches!(stream.peer_address(), Err(SourceError::NotConnected)));
    assert!(!event_loop.run().unwrap());
    let mut order = order.so_far();
    order.sort();
    assert_eq!(order, ["NotConnected", "write: BrokenPipe"]);
}

#[test]
fn a_pipe_carries_much_one_way_and_its_ends_refuse_the_other() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (reader, writer) = Stream::pipe(&event_loop).unwrap();
    let received = collect(&reader);
    write_much(&writer, told(&order, "much"));
    writer.shutdown(told(&order, "shutdown")).unwrap();
    event_loop.run().unwrap();
    assert_eq!(received.so_far().len(), MUCH);
    assert!(matches!(writer.write("x", |_, _| ()), Err(SourceError::AlreadyShutDown)));
    reader.write("x", told(&order, "wrong end")).unwrap();
    reader.shutdown(told(&order, "wrong end")).unwrap();
    event_loop.run().unwrap();
    let order = order.so_far();
    assert_eq!(order[..2], ["much: done", "shutdown: done"]);
    assert!(order.len() == 4 && !order.contains(&"wrong end: done".to_owned()), "{order:?}");
}

#[test]
fn a_pipe_that_nobody_reads_any_more_fails_the_writes_that_wait() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (reader, writer) = Stream::pipe(&event_loop).unwrap();
    write_much(&writer, told(&order, "much"));
    drop(reader);
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["much: BrokenPipe"]);
}

#[test]
fn closing_the_writing_end_of_a_pipe_is_the_end_for_its_reader() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (input, output) = Stream::pipe(&event_loop).unwrap();
    input.read_start(incoming_told(&order)).unwrap();
    output.close(order.add("closed".to_owned())).unwrap();
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["end", "closed"]);
}

#[test]
fn a_reader_that_is_slow_gets_everything() {
    let mut event_loop = source_loop();
    let (stream, peer) = stream_and_peer(&event_loop);
    let writer = std::thread::spawn(move || (&peer).write_all(&vec![b'm'; MUCH]).map(|()| drop(peer)));
    let (count, inner) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (counted, pauses) = (Rc::clone(&count), Rc::clone(&inner));
    stream
        .read_start(move |_, _, incoming| {
            if let Incoming::Data(bytes) = incoming {
                counted.set(counted.get() + bytes.len());
                if pauses.replace(pauses.get() + 1) % 64 == 0 {
                    compute_for(milliseconds(1));
                }
            }
        })
        .unwrap();
    event_loop.run().unwrap();
    writer.join().unwrap().unwrap();
    assert_eq!(count.get(), MUCH);
}

#[test]
fn two_hundred_clients_that_reset_at_once_leave_a_server_that_serves_the_next() {
    let (mut event_loop, order) = (source_loop(), Order::<String>::new());
    let listener = Listener::tcp(&event_loop, LOCAL).unwrap();
    let address = port_of(&listener);
    let log = order.clone();
    listener
        .accept_start(move |_, _, stream| {
            // A client that is gone before it is accepted is a stream whose reading fails.
            stream.unwrap().read_start(incoming_told(&log)).unwrap();
        })
        .unwrap();
    listener.unref();
    for _ in 0..200 {
        reset(TcpStream::connect(address).unwrap());
        event_loop.run_mode(RunMode::NoWait).unwrap();
    }
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"served").unwrap();
    drop(client);
    listener.ref_();
    while order.so_far().len() < 202 {
        turn(&mut event_loop);
    }
    let mut order = order.so_far();
    order.retain(|what| what != "ConnectionReset");
    assert_eq!(order, ["served", "end"]);
}
