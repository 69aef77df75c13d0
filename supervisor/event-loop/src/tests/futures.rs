//! Futures on the loop.

use std::pin::Pin;

use super::*;

#[test]
fn a_future_sleeps_yields_and_is_joined() {
    let (mut event_loop, log) = (virtual_loop(), Log::default());
    let (handle, inner) = (event_loop.handle(), log.clone());
    let child = event_loop.spawn(async move {
        handle.sleep(milliseconds(10)).await;
        inner.add("slept");
        handle.yield_now().await;
        handle.next_iteration().await;
        inner.add("turned");
        42
    });
    let inner = log.clone();
    event_loop.spawn(async move { inner.add(format!("{:?}", child.await)) });
    event_loop.run().unwrap();
    log.expect(&["slept", "turned", "Ok(42)"]);
}

#[test]
fn a_future_reads_when_its_descriptor_is_readable() {
    let mut event_loop = real_loop();
    let (mut writer, mut reader) = UnixStream::pair().unwrap();
    let handle = event_loop.handle();
    let reading = event_loop.spawn(async move {
        handle.readable(&reader).await.unwrap();
        let mut byte = [0];
        reader.read_exact(&mut byte).unwrap();
        byte[0]
    });
    event_loop.set_timeout(milliseconds(1), move |_| writer.write_all(b"y").unwrap());
    event_loop.run().unwrap();
    assert_eq!(reading.take_result(), Some(Ok(b'y')));
}

/// Fills the buffers between two sockets, so that the first one is not writable.
fn fill(socket: &UnixStream) {
    while { socket }.write(&[0; 65_536]).is_ok() {}
}

/// How often `task` is polled in 100 iterations of its loop.
fn polls_of(event_loop: &mut EventLoop, task: impl Future<Output = ()> + 'static) -> u32 {
    let polls = Rc::new(Cell::new(0));
    let (count, mut task) = (Rc::clone(&polls), Box::pin(task));
    let counted = std::future::poll_fn(move |context| {
        count.set(count.get() + 1);
        task.as_mut().poll(context)
    });
    let join = event_loop.spawn(counted);
    for _ in 0..100 {
        event_loop.run_mode(RunMode::NoWait).unwrap();
    }
    join.cancel();
    polls.get()
}

#[test]
fn a_future_that_is_ready_and_not_polled_does_not_keep_its_neighbour_busy() {
    let mut event_loop = real_loop();
    let (_peer, socket) = readable_pair();
    fill(&socket);
    let (handle, socket) = (event_loop.handle(), Rc::new(socket));
    let polls = polls_of(&mut event_loop, async move {
        let mut put_aside = handle.readable(&*socket);
        std::future::poll_fn(|context| {
            assert!(Pin::new(&mut put_aside).poll(context).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        handle.writable(&*socket).await.unwrap();
        panic!("nobody has read what fills the buffers");
    });
    assert!(polls <= 3, "polled {polls} times");
}

#[test]
fn a_future_that_was_closed_and_not_polled_does_not_keep_its_neighbour_busy() {
    let mut event_loop = real_loop();
    let (mut peer, socket) = UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    fill(&socket);
    let (handle, socket) = (event_loop.handle(), Rc::new(socket));
    let mut closed = handle.readable(&*socket);
    let mut nobody = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(Pin::new(&mut closed).poll(&mut nobody).is_pending());
    event_loop.close(event_loop.handles()[0].id, |_| ()).unwrap();
    peer.write_all(b"x").unwrap();
    let same = Rc::clone(&socket);
    let polls = polls_of(&mut event_loop, async move { handle.writable(&*same).await.unwrap() });
    assert!(polls <= 2, "polled {polls} times");
}

#[test]
fn reading_and_writing_futures_share_a_descriptor() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (mut writer, reader) = UnixStream::pair().unwrap();
    let reader = Rc::new(reader);
    for name in ["readable", "writable"] {
        let (handle, log, socket) = (event_loop.handle(), log.clone(), Rc::clone(&reader));
        event_loop.spawn(async move {
            match name {
                "readable" => handle.readable(&*socket).await.unwrap(),
                _ => handle.writable(&*socket).await.unwrap(),
            }
            log.add(name);
        });
    }
    event_loop.set_timeout(milliseconds(1), move |_| writer.write_all(b"y").unwrap());
    event_loop.run().unwrap();
    log.0.borrow_mut().sort_unstable();
    log.expect(&["readable", "writable"]);
    assert!(!event_loop.is_alive());
}

#[test]
fn a_cancelled_future_is_dropped_and_its_timer_with_it() {
    let mut event_loop = virtual_loop();
    let handle = event_loop.handle();
    let task = event_loop.spawn(async move { handle.sleep(milliseconds(10)).await });
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert!(event_loop.is_alive());
    task.cancel();
    assert!(!event_loop.is_alive());
    assert_eq!(task.take_result(), Some(Err(JoinError::Cancelled)));
}

#[test]
fn a_future_is_woken_from_another_thread() {
    let mut event_loop = real_loop();
    let (waker_sender, wakers) = std::sync::mpsc::channel::<std::task::Waker>();
    let thread = std::thread::spawn(move || wakers.recv().unwrap().wake());
    let hold = event_loop.hold();
    let mut polls = 0;
    let task = event_loop.spawn(std::future::poll_fn(move |context| {
        let _held = &hold;
        polls += 1;
        waker_sender.send(context.waker().clone()).ok();
        if polls == 2 { std::task::Poll::Ready(polls) } else { std::task::Poll::Pending }
    }));
    assert!(!event_loop.run().unwrap());
    thread.join().unwrap();
    assert_eq!(task.take_result(), Some(Ok(2)));
}

#[test]
fn a_future_that_panics_leaves_none_of_its_neighbours_unwoken() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (_writer, reader) = readable_pair();
    let (handle, second) = (event_loop.handle(), log.clone());
    let reader = Rc::new(reader);
    let shared = Rc::clone(&reader);
    event_loop.spawn(async move {
        handle.readable(shared).await.unwrap();
        panic!("the first");
    });
    let handle = event_loop.handle();
    event_loop.spawn(async move {
        handle.readable(reader).await.unwrap();
        second.add("the second");
    });
    let left = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| event_loop.run()));
    assert_eq!(panic_message(&*left.unwrap_err()), "the first");
    let too_late = event_loop.set_timeout(Duration::from_secs(10), |context| context.stop());
    event_loop.unref(too_late);
    assert!(!event_loop.run().unwrap(), "{:?}", event_loop.why_alive());
    log.expect(&["the second"]);
}
