//! Streams and listeners in the hands of futures.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context as TaskContext, Wake, Waker};

use super::*;

const FULL: usize = 1_024 * 1_024;

/// A pair whose second end has more to write than the kernel takes, while nobody reads the first.
fn pair_with_full_queue(event_loop: &LoopHandle) -> (Stream, Stream) {
    let (reader, writer) = Stream::pair(event_loop).unwrap();
    writer.write(vec![7; FULL], |_, _| ()).unwrap();
    assert!(writer.queued_bytes() > 0);
    (reader, writer)
}

#[test]
fn futures_connect_accept_read_and_write() {
    let mut event_loop = real_loop();
    let (listener, address) = tcp_listener(&event_loop);
    event_loop.spawn(async move {
        let stream = listener.accept().await.unwrap();
        let mut buffer = [0; 3];
        loop {
            match stream.read(&mut buffer).await.unwrap() {
                0 => return stream.shut_down().await.unwrap(),
                count => stream.write_all(&buffer[..count]).await.unwrap(),
            }
        }
    });
    let connecting = event_loop.connect_tcp(address);
    let answer = event_loop.spawn(async move {
        let stream = connecting.await.unwrap();
        stream.write_all("hello").await.unwrap();
        stream.shut_down().await.unwrap();
        assert!(matches!(stream.write_all("more").await, Err(SourceError::AlreadyShutDown)));
        let (mut answer, mut buffer) = (Vec::new(), [0; 16]);
        loop {
            match stream.read(&mut buffer).await.unwrap() {
                0 => break,
                count => answer.extend_from_slice(&buffer[..count]),
            }
        }
        stream.closed().await.unwrap();
        assert!(matches!(stream.closed().await, Err(SourceError::Closed)));
        answer
    });
    assert!(!event_loop.run().unwrap());
    assert_eq!(answer.take_result(), Some(Ok(b"hello".to_vec())));
}

#[test]
fn a_refused_connection_is_the_result_of_its_future() {
    let mut event_loop = real_loop();
    let folder = tempfile::tempdir().unwrap();
    let connecting = event_loop.connect_unix(&folder.path().join("missing"));
    let kind = event_loop.spawn(async move { connecting.await.err().unwrap().kind() });
    event_loop.run().unwrap();
    assert_eq!(kind.take_result(), Some(Ok(std::io::ErrorKind::NotFound)));
}

#[test]
fn a_future_that_is_dropped_takes_nothing_and_keeps_nothing_alive() {
    let mut event_loop = real_loop();
    let (reader, writer) = Stream::pair(&event_loop).unwrap();
    let (listener, _) = tcp_listener(&event_loop);
    let reading = event_loop.spawn({
        let reader = reader.clone();
        async move { reader.read(&mut [0; 8]).await.map(|_| ()) }
    });
    let accepting = event_loop.spawn({
        let listener = listener.clone();
        async move { listener.accept().await.map(|_| ()) }
    });
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert!(event_loop.is_alive());
    assert!(matches!(reader.read_start(|_, _, _| ()), Err(SourceError::AlreadyReading)));
    assert!(matches!(listener.accept_start(|_, _, _| ()), Err(SourceError::AlreadyReading)));
    reading.cancel();
    accepting.cancel();
    assert!(!event_loop.run().unwrap());
    writer.try_write(b"kept").unwrap();
    let second = event_loop.spawn(async move {
        let mut buffer = [0; 8];
        let count = reader.read(&mut buffer).await.unwrap();
        buffer[..count].to_vec()
    });
    event_loop.run().unwrap();
    assert_eq!(second.take_result(), Some(Ok(b"kept".to_vec())));
}

#[test]
fn a_connection_that_is_given_up_is_closed_and_keeps_nothing_alive() {
    let mut event_loop = real_loop();
    let (listener, address) = tcp_listener(&event_loop);
    let connecting = event_loop.connect_tcp(address);
    let task = event_loop.spawn(async move { connecting.await.map(|_| ()) });
    // The first poll of the future is a microtask, which runs before the poll phase can see the connection.
    event_loop.next_tick(move |_| ());
    event_loop.queue_microtask(move |_| task.cancel());
    assert!(!event_loop.run().unwrap());
    let accepted = event_loop.spawn(async move {
        let stream = listener.accept().await.unwrap();
        stream.read(&mut [0; 8]).await.map_err(|error| error.kind())
    });
    event_loop.run().unwrap();
    assert_eq!(accepted.take_result(), Some(Ok(Ok(0))));
}

#[test]
fn a_writing_future_waits_for_room_and_sends_more_than_the_queue_holds() {
    const TOTAL: usize = 5_000_000;
    let mut event_loop = real_loop();
    let (reader, writer) = Stream::pair(&event_loop).unwrap();
    writer.set_write_limit(1_000);
    let sender = writer.clone();
    event_loop.spawn(async move {
        sender.write_all(vec![7; TOTAL]).await.unwrap();
        assert_eq!(sender.queued_bytes(), 0);
        for _ in 0..1_000 {
            sender.write_all([8; 999]).await.unwrap();
        }
        sender.closed().await.unwrap();
    });
    let received = event_loop.spawn(async move {
        let (mut counts, mut buffer) = ([0; 9], vec![0; 50_000]);
        loop {
            match reader.read(&mut buffer).await.unwrap() {
                0 => return (counts[7], counts[8]),
                count => buffer[..count].iter().for_each(|&byte| counts[usize::from(byte)] += 1),
            }
        }
    });
    event_loop.run().unwrap();
    assert_eq!(received.take_result(), Some(Ok((TOTAL, 999_000))));
}

#[test]
fn futures_that_wait_are_told_when_their_stream_is_closed() {
    let mut event_loop = real_loop();
    let (stream, _other) = Stream::pair(&event_loop).unwrap();
    let reading = event_loop.spawn({
        let stream = stream.clone();
        async move { format!("{:?}", stream.read(&mut [0; 8]).await) }
    });
    stream.set_write_limit(500_000);
    stream.write(vec![0; 500_000], |_, _| ()).unwrap();
    let waiting_for_room = event_loop.spawn({
        let stream = stream.clone();
        async move { format!("{:?}", stream.write_all(vec![0; 490_000]).await) }
    });
    event_loop.set_immediate(move |_| stream.close(|_| ()).unwrap());
    assert!(!event_loop.run().unwrap());
    assert_eq!(reading.take_result(), Some(Ok("Err(Closed)".to_owned())));
    assert_eq!(waiting_for_room.take_result(), Some(Ok("Err(Closed)".to_owned())));
}

#[test]
fn a_future_that_never_has_to_wait_lets_others_have_their_turn() {
    let (mut event_loop, reads) = (real_loop(), Rc::new(Cell::new(0)));
    let (reader, feeder) = Stream::pair(&event_loop).unwrap();
    feeder.try_write(&[7; 1_000]).unwrap();
    let count = Rc::clone(&reads);
    let busy = event_loop.spawn(async move {
        let mut buffer = [0; 10];
        while count.get() < 100_000 {
            let read = reader.read(&mut buffer).await.unwrap();
            feeder.write_all(&buffer[..read]).await.unwrap();
            count.set(count.get() + 1);
        }
    });
    event_loop.set_immediate(move |_| busy.cancel());
    event_loop.run().unwrap();
    assert!((1..=64).contains(&reads.get()), "{} reads before the immediate", reads.get());
}

#[test]
fn a_future_that_waits_for_room_goes_on_when_short_writes_are_answered() {
    let mut event_loop = real_loop();
    let (_reader, writer) = Stream::pair(&event_loop).unwrap();
    while writer.write("", |_, written| written.unwrap()).is_ok() {}
    let waiting = event_loop.spawn(async move { writer.write_all("more").await });
    event_loop.run().unwrap();
    assert!(matches!(waiting.take_result(), Some(Ok(Ok(())))));
}

#[test]
fn a_future_that_waits_for_room_is_told_with_the_connect_callback_that_connecting_has_failed() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (_deaf, address) = deaf_socket();
    let (connected, written, told) = (log.clone(), log.clone(), log.clone());
    let stream = Stream::connect_tcp(&event_loop, address, move |_, _, result| {
        connected.add(format!("connected {}", result.is_ok()));
    });
    stream.write(vec![7; FULL], move |_, result| written.add(format!("written {}", result.is_ok()))).unwrap();
    event_loop.spawn(async move { told.add(format!("{:?}", stream.write_all("more").await)) });
    event_loop.run().unwrap();
    log.expect(&["connected false", "Err(NotConnected)", "written false"]);
}

#[test]
fn futures_that_wait_for_room_write_in_the_order_in_which_they_came() {
    let mut event_loop = real_loop();
    let (reader, writer) = pair_with_full_queue(&event_loop);
    for (byte, length) in [(8, FULL), (9, 1)] {
        let sender = writer.clone();
        event_loop.spawn(async move { sender.write_all(vec![byte; length]).await.unwrap() });
    }
    drop(writer);
    let order = Rc::new(RefCell::new(Vec::<u8>::new()));
    let seen = Rc::clone(&order);
    let read = move |_: &mut Context, _: &Stream, incoming: Incoming<'_>| {
        if let Incoming::Data(bytes) = incoming {
            seen.borrow_mut().extend(bytes);
            seen.borrow_mut().dedup();
        }
    };
    reader.read_start(read).unwrap();
    event_loop.run().unwrap();
    assert_eq!(*order.borrow(), [7, 8, 9]);
}

#[test]
fn short_writes_that_never_end_do_not_starve_a_long_one() {
    let mut event_loop = real_loop();
    let (reader, writer) = pair_with_full_queue(&event_loop);
    let is_written = Rc::new(Cell::new(false));
    for _ in 0..2 {
        let (sender, is_written) = (writer.clone(), Rc::clone(&is_written));
        event_loop.spawn(async move {
            for count in 0.. {
                assert!(count < 10_000, "the long one is still waiting");
                sender.write_all(vec![9; FULL / 3]).await.unwrap();
                if is_written.get() {
                    break;
                }
            }
        });
    }
    event_loop.spawn(async move {
        writer.write_all(vec![8; FULL]).await.unwrap();
        is_written.set(true);
    });
    reader.read_start(|_, _, _| ()).unwrap();
    event_loop.run().unwrap();
}

#[test]
fn a_future_that_waits_behind_another_one_goes_on_when_that_is_dropped() {
    let mut event_loop = real_loop();
    let (_reader, writer) = pair_with_full_queue(&event_loop);
    let (long, short) = (writer.clone(), writer.clone());
    let first = event_loop.spawn(async move { long.write_all(vec![8; FULL]).await });
    event_loop.spawn(async move { short.write_all("x").await });
    event_loop.run_mode(RunMode::NoWait).unwrap();
    let queued = writer.queued_bytes();
    first.cancel();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(writer.queued_bytes(), queued + 1);
}

#[test]
fn a_future_that_waits_for_room_goes_on_when_the_limit_is_raised() {
    let mut event_loop = real_loop();
    let (_reader, writer) = pair_with_full_queue(&event_loop);
    let sender = writer.clone();
    event_loop.spawn(async move { sender.write_all(vec![8; FULL]).await });
    event_loop.run_mode(RunMode::NoWait).unwrap();
    let queued = writer.queued_bytes();
    writer.set_write_limit(usize::MAX);
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(writer.queued_bytes(), queued + FULL);
}

#[test]
fn a_future_that_waits_for_room_is_told_at_once_that_the_stream_is_shut_down() {
    let mut event_loop = real_loop();
    let (_reader, writer) = pair_with_full_queue(&event_loop);
    let sender = writer.clone();
    let waiting = event_loop.spawn(async move { sender.write_all(vec![8; FULL]).await });
    event_loop.run_mode(RunMode::NoWait).unwrap();
    writer.shutdown(|_, _| ()).unwrap();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert!(matches!(waiting.take_result(), Some(Ok(Err(SourceError::AlreadyShutDown)))));
}

#[test]
fn a_future_that_waits_for_room_keeps_one_waker_and_none_when_it_is_dropped() {
    struct WakesNobody;
    impl Wake for WakesNobody {
        fn wake(self: Arc<Self>) {}
    }
    let event_loop = real_loop();
    let (_reader, writer) = pair_with_full_queue(&event_loop);
    let wakers = [Arc::new(WakesNobody), Arc::new(WakesNobody)];
    let mut waiting = Box::pin(writer.write_all(vec![8; FULL]));
    for waker in &wakers {
        let waker = Waker::from(Arc::clone(waker));
        assert!(waiting.as_mut().poll(&mut TaskContext::from_waker(&waker)).is_pending());
    }
    assert_eq!(wakers.each_ref().map(Arc::strong_count), [1, 2], "the second waker has replaced the first");
    drop(waiting);
    assert_eq!(wakers.each_ref().map(Arc::strong_count), [1, 1]);
}
