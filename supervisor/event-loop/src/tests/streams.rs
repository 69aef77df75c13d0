//! Streams and listeners: bytes, backpressure, half ends, closing.

use super::*;

/// Connects two streams with each other over TCP. The first was accepted.
fn tcp_pair(event_loop: &mut EventLoop) -> (Stream, Stream) {
    let (listener, address) = tcp_listener(event_loop);
    let accepted = event_loop.spawn(async move { listener.accept().await.unwrap() });
    let connecting = event_loop.connect_tcp(address);
    let connected = event_loop.spawn(async move { connecting.await.unwrap() });
    event_loop.run().unwrap();
    (accepted.take_result().unwrap().unwrap(), connected.take_result().unwrap().unwrap())
}

/// Answers everything that comes in with itself, and the end with its own end.
fn echo(_: &mut Context, stream: &Stream, incoming: Incoming<'_>) {
    match incoming {
        Incoming::Data(bytes) => stream.write(bytes, |_, written| written.unwrap()).unwrap(),
        Incoming::End => stream.shutdown(|_, shut| shut.unwrap()).unwrap(),
        Incoming::Failed(error) => panic!("{error}"),
    }
}

/// Sends "hello" in two writes, then its end, and collects what comes back until the end.
fn say_hello(stream: &Stream, log: &Log) {
    for part in ["hel", "lo"] {
        stream.write(part, |_, written| written.unwrap()).unwrap();
    }
    stream.shutdown(|_, shut| shut.unwrap()).unwrap();
    let (log, mut answer) = (log.clone(), Vec::new());
    stream
        .read_start(move |_, stream, incoming| match incoming {
            Incoming::Data(bytes) => answer.extend_from_slice(bytes),
            Incoming::End => {
                log.add(String::from_utf8(std::mem::take(&mut answer)).unwrap());
                stream.close(log.entry("closed")).unwrap();
            }
            Incoming::Failed(error) => panic!("{error}"),
        })
        .unwrap();
}

fn serve_one(listener: &Listener) {
    listener
        .accept_start(|_, listener, stream| {
            stream.unwrap().read_start(echo).unwrap();
            listener.close(|_| ()).unwrap();
        })
        .unwrap();
}

#[test]
fn an_echo_comes_back_over_tcp() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (listener, address) = tcp_listener(&event_loop);
    serve_one(&listener);
    let inner = log.clone();
    let connecting = Stream::connect_tcp(&event_loop, address, move |_, stream, connected| {
        connected.unwrap();
        stream.set_nodelay(true).unwrap();
        assert_eq!(stream.peer_address().unwrap(), Address::Tcp(address));
        say_hello(stream, &inner);
    });
    drop(connecting);
    assert!(!event_loop.run().unwrap());
    log.expect(&["hello", "closed"]);
}

#[test]
fn an_echo_comes_back_over_a_unix_socket_whose_file_stays() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = Listener::unix(&event_loop, &path).unwrap();
    assert_eq!(listener.local_address().unwrap(), Address::Unix(Some(path.clone())));
    serve_one(&listener);
    let inner = log.clone();
    let expected = Address::Unix(Some(path.clone()));
    Stream::connect_unix(&event_loop, &path, move |_, stream, connected| {
        connected.unwrap();
        assert_eq!(stream.peer_address().unwrap(), expected);
        say_hello(stream, &inner);
    });
    assert!(!event_loop.run().unwrap());
    log.expect(&["hello", "closed"]);
    let stale = Listener::unix(&event_loop, &path).expect_err("the file is not removed silently");
    assert_eq!(stale.kind(), std::io::ErrorKind::AddrInUse);
}

#[test]
fn what_is_written_before_the_connection_stands_is_sent_after_it() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (listener, address) = tcp_listener(&event_loop);
    serve_one(&listener);
    let inner = log.clone();
    let stream = Stream::connect_tcp(&event_loop, address, move |_, _, connected| {
        connected.unwrap();
        inner.add("connected");
    });
    assert!(matches!(stream.try_write(b"x"), Err(SourceError::WouldBlock)));
    let inner = log.clone();
    stream.write("early", move |_, written| inner.add(format!("{written:?}"))).unwrap();
    let handle = event_loop.handle();
    let reader = event_loop.spawn(async move {
        while stream.queued_bytes() > 0 {
            handle.next_iteration().await;
        }
        let mut buffer = [0; 16];
        let count = stream.read(&mut buffer).await.unwrap();
        stream.shut_down().await.unwrap();
        buffer[..count].to_vec()
    });
    event_loop.run().unwrap();
    assert_eq!(reader.take_result(), Some(Ok(b"early".to_vec())));
    log.expect(&["connected", "Ok(())"]);
}

#[test]
fn a_large_transfer_goes_through_a_small_queue_complete_and_in_order() {
    const TOTAL: usize = 32 * 1_024 * 1_024;
    const CHUNK: usize = 65_536;
    let pattern = |position: usize| (position / 7 % 251) as u8;
    let mut event_loop = real_loop();
    let (receiver, sender) = tcp_pair(&mut event_loop);
    sender.set_write_limit(4 * CHUNK);
    let full_count = Rc::new(Cell::new(0));

    /// Writes until the queue is full. Every answer goes on with it.
    fn send(
        sender: &Stream,
        sent: &Rc<Cell<usize>>,
        full_count: &Rc<Cell<u32>>,
        pattern: impl Fn(usize) -> u8 + Copy + 'static,
    ) {
        while sent.get() < TOTAL {
            let chunk: Vec<u8> = (sent.get()..sent.get() + CHUNK).map(pattern).collect();
            let go_on = (sender.clone(), Rc::clone(sent), Rc::clone(full_count));
            let answer = move |_: &mut Context, written: Result<(), SourceError>| {
                written.unwrap();
                let (sender, sent, full_count) = go_on;
                send(&sender, &sent, &full_count, pattern);
            };
            match sender.write(chunk, answer) {
                Ok(()) => sent.set(sent.get() + CHUNK),
                Err(SourceError::QueueFull { queued, limit }) => {
                    assert!(queued + CHUNK > limit && queued <= limit + 64);
                    return full_count.set(full_count.get() + 1);
                }
                Err(error) => panic!("{error}"),
            }
            if sent.get() == TOTAL {
                sender.shutdown(|_, shut| shut.unwrap()).unwrap();
            }
        }
    }
    let sent = Rc::new(Cell::new(0));
    send(&sender, &sent, &full_count, pattern);
    assert!(full_count.get() > 0, "nobody reads yet, so the queue must have become full");
    let received = Rc::new(Cell::new(0));
    let count = Rc::clone(&received);
    receiver
        .read_start(move |_, _, incoming| {
            if let Incoming::Data(bytes) = incoming {
                let start = count.get();
                let fits = |(offset, &byte): (usize, &u8)| byte == pattern(start + offset);
                assert!(bytes.iter().enumerate().all(fits));
                count.set(start + bytes.len());
            }
        })
        .unwrap();
    event_loop.run().unwrap();
    assert_eq!(received.get(), TOTAL);
}

#[test]
fn writes_are_answered_in_order_and_never_at_once() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (receiver, sender) = Stream::pair(&event_loop).unwrap();
    for name in ["one", "two", "three"] {
        let answers = log.clone();
        sender.write(name, move |_, _| answers.add(name)).unwrap();
    }
    let answers = log.clone();
    sender.shutdown(move |_, _| answers.add("shut down")).unwrap();
    log.add("returned");
    receiver.read_start(|_, _, _| ()).unwrap();
    event_loop.set_immediate(log.entry("immediate"));
    event_loop.run().unwrap();
    log.expect(&["returned", "one", "two", "three", "shut down", "immediate"]);
}

#[test]
fn after_one_end_has_said_everything_the_other_may_still_answer() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (server, client) = tcp_pair(&mut event_loop);
    let heard = log.clone();
    server
        .read_start(move |context, server, incoming| match incoming {
            Incoming::Data(bytes) => heard.add(String::from_utf8_lossy(bytes)),
            Incoming::End => {
                heard.add("end of the client");
                let server = server.clone();
                context.set_immediate(move |_| server.write("answer", |_, _| ()).unwrap());
            }
            Incoming::Failed(error) => panic!("{error}"),
        })
        .unwrap();
    let heard = log.clone();
    client
        .read_start(move |_, client, incoming| {
            heard.add(format!("{incoming:?}"));
            client.close(|_| ()).unwrap();
        })
        .unwrap();
    client.write("question", |_, _| ()).unwrap();
    client.shutdown(|_, _| ()).unwrap();
    assert!(matches!(client.write("more", |_, _| ()), Err(SourceError::AlreadyShutDown)));
    assert!(matches!(client.shutdown(|_, _| ()), Err(SourceError::AlreadyShutDown)));
    event_loop.run().unwrap();
    let answer = format!("{:?}", Incoming::Data(b"answer"));
    log.expect(&["question", "end of the client", &answer]);
}

#[test]
fn closing_answers_what_is_under_way_before_it_says_closed() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (receiver, sender) = Stream::pair(&event_loop).unwrap();
    let answer = |name: &'static str| {
        let log = log.clone();
        move |_: &mut Context, result: Result<(), SourceError>| log.add(format!("{name} {result:?}"))
    };
    sender.write("small", answer("small")).unwrap();
    sender.write(vec![0; 1_000_000], answer("large")).unwrap();
    sender.shutdown(answer("shutdown")).unwrap();
    sender.close(log.entry("closed")).unwrap();
    let address = "127.0.0.1:1".parse().unwrap();
    let refused = log.clone();
    let connecting = Stream::connect_tcp(&event_loop, address, move |_, stream, result| {
        refused.add(format!("connect {result:?} {}", stream.is_closed()));
    });
    connecting.close(log.entry("closed, too")).unwrap();
    drop(receiver);
    event_loop.run().unwrap();
    log.expect(&[
        "small Ok(())",
        "large Err(Cancelled)",
        "shutdown Err(Cancelled)",
        "closed",
        "connect Err(Cancelled) true",
        "closed, too",
    ]);
}

#[test]
fn a_stream_may_close_itself_while_it_is_read() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (reader, writer) = Stream::pair(&event_loop).unwrap();
    writer.write(vec![7; 150_000], |_, _| ()).unwrap();
    let inner = log.clone();
    reader
        .read_start(move |_, stream, _| {
            inner.add("read");
            stream.close(inner.entry("closed")).unwrap();
            assert!(matches!(stream.close(|_| ()), Err(SourceError::Closed)));
            assert!(matches!(stream.write("x", |_, _| ()), Err(SourceError::Closed)));
            assert!(matches!(stream.read_start(|_, _, _| ()), Err(SourceError::Closed)));
        })
        .unwrap();
    event_loop.run().unwrap();
    log.expect(&["read", "closed"]);
}

#[test]
fn of_two_streams_that_close_each_other_in_one_batch_only_one_is_read() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let pairs: Vec<_> = (0..2).map(|_| Stream::pair(&event_loop).unwrap()).collect();
    for (own, other) in [(0, 1), (1, 0)] {
        let (reader, writer) = &pairs[own];
        let (victim, log) = (pairs[other].0.clone(), log.clone());
        writer.try_write(b"x").unwrap();
        reader
            .read_start(move |_, stream, _| {
                log.add("read");
                victim.close(|_| ()).unwrap();
                stream.close(|_| ()).unwrap();
            })
            .unwrap();
    }
    event_loop.run().unwrap();
    log.expect(&["read"]);
}

#[test]
fn reading_can_be_stopped_and_started_from_its_own_callback() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (reader, writer) = Stream::pair(&event_loop).unwrap();
    writer.write(vec![7; 65_536 + 10], |_, _| ()).unwrap();
    let inner = log.clone();
    reader
        .read_start(move |_, stream, _| {
            assert!(matches!(stream.read_start(|_, _, _| ()), Err(SourceError::AlreadyReading)));
            stream.read_stop();
            let second = inner.clone();
            inner.add("first");
            stream
                .read_start(move |_, stream, _| {
                    second.add("second");
                    stream.read_stop();
                })
                .unwrap();
        })
        .unwrap();
    event_loop.run().unwrap();
    log.expect(&["first", "second"]);
}

#[test]
fn a_panic_in_a_read_callback_leaves_the_stream_as_it_was() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (reader, writer) = Stream::pair(&event_loop).unwrap();
    let inner = log.clone();
    reader
        .read_start(move |_, _, incoming| match incoming {
            Incoming::Data(b"bad") => panic!("ouch"),
            incoming => inner.add(format!("{incoming:?}")),
        })
        .unwrap();
    writer.try_write(b"bad").unwrap();
    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| event_loop.run()));
    assert!(run.is_err());
    drop(writer);
    event_loop.run().unwrap();
    log.expect(&["End"]);
}

#[test]
fn a_panic_between_two_answers_loses_neither_of_the_others() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (reader, writer) = Stream::pair(&event_loop).unwrap();
    writer.write(vec![0; 500_000], |_, _| ()).unwrap();
    writer.write("a", |_, _| panic!("ouch")).unwrap();
    let inner = log.clone();
    writer.write("b", move |_, _| inner.add("b")).unwrap();
    let mut missing = 500_002;
    reader
        .read_start(move |_, reader, incoming| {
            let Incoming::Data(bytes) = incoming else { panic!("{incoming:?}") };
            missing -= bytes.len();
            if missing == 0 {
                reader.close(|_| ()).unwrap();
            }
        })
        .unwrap();
    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| event_loop.run()));
    assert!(run.is_err());
    assert!(!event_loop.run().unwrap());
    log.expect(&["b"]);
}

#[test]
fn ticks_run_between_two_callbacks_of_one_event() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (reader, writer) = Stream::pair(&event_loop).unwrap();
    writer.try_write(&vec![7; 65_536 + 10]).unwrap();
    let inner = log.clone();
    reader
        .read_start(move |context, _, incoming| {
            if let Incoming::Data(bytes) = incoming {
                inner.add(format!("read {}", bytes.len()));
                context.next_tick(inner.entry("tick"));
            }
        })
        .unwrap();
    event_loop.run_mode(RunMode::Once).unwrap();
    log.expect(&["read 65536", "tick", "read 10", "tick"]);
}

#[test]
fn writes_without_bytes_are_bounded_by_the_limit_too() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (_reader, writer) = Stream::pair(&event_loop).unwrap();
    let count = Rc::new(Cell::new(0));
    loop {
        let counted = Rc::clone(&count);
        let answer = move |_: &mut Context, written: Result<(), SourceError>| {
            written.unwrap();
            counted.set(counted.get() - 1);
        };
        match writer.write("", answer) {
            Ok(()) => count.set(count.get() + 1),
            Err(SourceError::QueueFull { queued, limit }) => {
                assert!(queued > limit);
                break;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(count.get() <= 1_024 * 1_024 / 64 + 1);
    }
    let inner = log.clone();
    writer.shutdown(move |_, shut| inner.add(format!("{shut:?}"))).expect("a full queue can be ended");
    event_loop.run().unwrap();
    assert_eq!(count.get(), 0, "each of them is answered");
    log.expect(&["Ok(())"]);
}

#[test]
fn a_full_queue_can_be_shut_down_after_its_limit_was_lowered() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (reader, writer) = Stream::pair(&event_loop).unwrap();
    writer.set_write_limit(4_000_000);
    writer.write(vec![7; 4_000_000], |_, written| written.unwrap()).unwrap();
    writer.set_write_limit(10);
    let inner = log.clone();
    writer.shutdown(move |_, shut| inner.add(format!("{shut:?}"))).unwrap();
    reader.read_start(|_, _, _| ()).unwrap();
    event_loop.run().unwrap();
    log.expect(&["Ok(())"]);
}
