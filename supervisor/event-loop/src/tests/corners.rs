//! Corners: drops that panic or come back, times beyond the end, loops that are gone, others that embed this one.

use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, mpsc};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

/// Panics when it is dropped, unless its thread panics already.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "dropped");
    }
}

fn backend_is_ready(event_loop: &EventLoop) -> bool {
    let mut set = [PollFd::from_borrowed_fd(event_loop.backend_fd(), PollFlags::IN)];
    poll(&mut set, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
}

fn handled_panics(event_loop: &mut EventLoop) -> Rc<Cell<u32>> {
    let handled = Rc::new(Cell::new(0));
    let count = Rc::clone(&handled);
    event_loop.set_panic_handler(move |_, _| count.set(count.get() + 1));
    handled
}

#[test]
fn the_panic_of_a_callback_that_is_dropped_is_reported_like_its_own() {
    let mut event_loop = real_loop();
    let handled = handled_panics(&mut event_loop);
    let (id, bomb) = (Rc::new(Cell::new(None)), Bomb);
    let own_id = Rc::clone(&id);
    let hook = event_loop.prepare(move |context| {
        let _ = &bomb;
        context.close(own_id.get().unwrap(), |_| ()).unwrap();
    });
    id.set(Some(hook));
    assert!(!event_loop.run().unwrap());
    assert_eq!(handled.get(), 1);
}

#[test]
fn the_panic_of_an_answer_that_nobody_awaits_is_reported() {
    let mut event_loop = real_loop();
    let handled = handled_panics(&mut event_loop);
    let request = event_loop.request(|_, _: Bomb| ());
    event_loop.withdraw(request.id());
    request.complete(Bomb).unwrap();
    event_loop.run().unwrap();
    assert_eq!(handled.get(), 1);
}

#[test]
fn after_a_panic_left_run_a_stop_is_forgotten_and_ticks_come_first() {
    let mut event_loop = real_loop();
    event_loop.queue_microtask(|context| {
        context.stop();
        panic!("out");
    });
    assert!(catch_unwind(AssertUnwindSafe(|| event_loop.run().map(drop))).is_err());
    let log = Log::default();
    event_loop.queue_microtask(log.entry("microtask"));
    event_loop.next_tick(log.entry("tick"));
    event_loop.set_immediate(log.entry("immediate"));
    event_loop.run().unwrap();
    log.expect(&["tick", "microtask", "immediate"]);
}

#[test]
fn a_loop_that_was_exchanged_for_another_one_by_its_callback_can_be_run_again() {
    let mut event_loop = real_loop();
    let other = Rc::new(RefCell::new(real_loop()));
    let fresh = Rc::clone(&other);
    event_loop.set_immediate(move |context| std::mem::swap(context, &mut *fresh.borrow_mut()));
    event_loop.run().unwrap();
    assert!(other.borrow_mut().run().is_ok() && event_loop.run().is_ok());
}

#[test]
fn a_timer_at_the_end_of_time_lets_the_loop_sleep() {
    for time in [Time::Real, Time::Virtual] {
        let mut event_loop = EventLoop::with(LoopConfig { time, ..LoopConfig::default() }).unwrap();
        event_loop.set_timeout(milliseconds(1), |_| ());
        let timer = event_loop.set_timeout(Duration::MAX, |_| ());
        event_loop.unref(timer);
        event_loop.run().unwrap();
        let _hold = event_loop.hold();
        assert!(event_loop.backend_timeout() > Some(Duration::from_secs(86_400)), "{time:?}");
    }
}

#[test]
fn an_embedding_loop_learns_of_events_that_a_limit_has_left_over() {
    let mut event_loop = EventLoop::with(LoopConfig { events_per_poll: 1, ..LoopConfig::default() }).unwrap();
    let seen = Rc::new(Cell::new(0));
    for (writer, reader) in [readable_pair(), readable_pair()] {
        let (handle, seen) = (event_loop.handle(), Rc::clone(&seen));
        event_loop.spawn(async move {
            handle.readable(&reader).await.unwrap();
            seen.set(seen.get() + 1);
            drop(writer);
        });
    }
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(seen.get(), 1);
    assert!(backend_is_ready(&event_loop) || event_loop.backend_timeout() == Some(Duration::ZERO));
}

/// The other loop has asked how long it may wait, and completes something meanwhile that a future of this loop awaits.
#[test]
fn an_embedding_loop_on_the_same_thread_learns_of_a_future_that_it_has_woken() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let _hold = event_loop.hold();
    let completed = one_shot::OneShot::new();
    let (awaited, seen) = (Rc::clone(&completed), log.clone());
    event_loop.spawn(async move {
        awaited.wait().await;
        seen.add("completed");
    });
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert!(event_loop.backend_timeout().is_none() && !backend_is_ready(&event_loop));
    completed.fill(());
    assert!(backend_is_ready(&event_loop));
    event_loop.run_mode(RunMode::NoWait).unwrap();
    log.expect(&["completed"]);
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert!(event_loop.backend_timeout().is_none() && !backend_is_ready(&event_loop), "it may wait again");
}

#[test]
fn a_stop_from_another_thread_does_not_keep_the_backend_descriptor_ready() {
    let mut event_loop = real_loop();
    let _hold = event_loop.hold();
    event_loop.remote().stop();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert!(!backend_is_ready(&event_loop));
}

#[test]
fn all_ready_descriptors_are_handled_in_one_poll_also_when_the_kernel_hands_them_over_in_two_calls() {
    let mut event_loop = real_loop();
    let seen = Rc::new(Cell::new(0));
    let (_writer, reader) = readable_pair();
    for _ in 0..limits::EVENTS_PER_CALL + 100 {
        let seen = Rc::clone(&seen);
        let same = reader.try_clone().unwrap();
        event_loop.watch(same, Interest::READ, move |_, _| seen.set(seen.get() + 1)).unwrap();
    }
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert!(seen.get() >= limits::EVENTS_PER_CALL + 100, "{} events", seen.get());
}

#[test]
fn posts_and_descriptors_take_turns() {
    let mut event_loop = real_loop();
    let (_writer, reader) = readable_pair();
    let (posts, at) = (Arc::new(Mutex::new(0)), Rc::new(Cell::new(None)));
    for _ in 0..10_000 {
        let posts = Arc::clone(&posts);
        event_loop.remote().post(move |_| *posts.lock().unwrap() += 1).unwrap();
    }
    let (count, turn) = (Arc::clone(&posts), Rc::clone(&at));
    let read = move |context: &mut Context, _| {
        turn.set(turn.get().or(Some(*count.lock().unwrap())));
        context.stop();
    };
    event_loop.watch(reader, Interest::READ, read).unwrap();
    event_loop.run().unwrap();
    assert!(at.get().unwrap() < 10, "the descriptor had its turn after {} posts", at.get().unwrap());
}

#[test]
fn within_a_budget_ticks_and_futures_do_not_starve_each_other() {
    fn tick_for_ever(context: &mut Context) {
        context.next_tick(tick_for_ever);
    }
    let config = LoopConfig {
        on_starvation: OnStarvation::Budget,
        starvation_budget: Duration::from_micros(100),
        ..LoopConfig::default()
    };
    let mut event_loop = EventLoop::with(config.clone()).unwrap();
    event_loop.next_tick(tick_for_ever);
    let handle = event_loop.handle();
    event_loop.spawn(async move { handle.stop() });
    assert!(event_loop.run().unwrap(), "the future had its turn");

    let mut event_loop = EventLoop::with(config).unwrap();
    let handle = event_loop.handle();
    event_loop.spawn(async move {
        loop {
            handle.yield_now().await;
        }
    });
    event_loop.set_immediate(|context| context.next_tick(|context| context.stop()));
    event_loop.run().unwrap();
}

#[test]
fn a_source_may_use_the_loop_when_it_is_asked_for_its_descriptor() {
    struct Asks(UnixStream, LoopHandle);
    impl AsFd for Asks {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.1.why_alive();
            self.0.as_fd()
        }
    }
    let event_loop = real_loop();
    let (_writer, reader) = readable_pair();
    let asks = Asks(reader, event_loop.handle());
    let id = event_loop.watch(asks, Interest::READ, |_, _| ()).unwrap();
    event_loop.set_interest(id, Interest::WRITE).unwrap();
    event_loop.close(id, |_| ()).unwrap();
}

#[test]
fn what_is_registered_with_a_loop_that_is_gone_is_dropped_at_once() {
    let handle = real_loop().handle();
    let witness = Rc::new(());
    let keep = || (Rc::clone(&witness), handle.clone());
    let (timer, tick, immediate, hook, task, request) = (keep(), keep(), keep(), keep(), keep(), keep());
    let timer = handle.set_timeout(Duration::ZERO, move |_| drop(timer));
    handle.next_tick(move |_| drop(tick));
    handle.set_immediate(move |_| drop(immediate));
    handle.idle(move |_| assert_eq!(Rc::strong_count(&hook.0), 0, "it never runs: {:p}", &hook));
    let join = handle.spawn(async move { drop(task) });
    let _request = handle.request(move |_, ()| drop(request));
    assert_eq!(Rc::strong_count(&witness), 1);
    assert_eq!(join.take_result(), Some(Err(JoinError::Cancelled)));
    assert!(!handle.is_alive() && !handle.clear(timer));
    let (_writer, reader) = readable_pair();
    assert!(matches!(handle.watch(reader, Interest::READ, |_, _| ()), Err(LoopError::Gone)));
}

/// Tries to make a source of each kind.
fn expect_no_source(handle: &LoopHandle, folder: &std::path::Path) {
    let (anywhere, path) = ("127.0.0.1:0".parse().unwrap(), folder.join("socket"));
    let bound = || TcpOptions::new().bind(anywhere).unwrap();
    let closed =
        |made: Result<(), SourceError>| assert!(matches!(made, Err(SourceError::Closed)), "{made:?}");
    closed(Listener::tcp(handle, anywhere).map(drop));
    closed(Listener::unix(handle, &path).map(drop));
    closed(bound().listen(handle).map(drop));
    closed(UdpSocket::bind(handle, anywhere).map(drop));
    closed(Stream::pair(handle).map(drop));
    closed(Stream::pipe(handle).map(drop));
    let (descriptor, _other) = UnixStream::pair().unwrap();
    let copy = descriptor.try_clone().unwrap();
    closed(Stream::from_descriptor(handle, descriptor.into()).map(drop));
    assert!(!rustix::fs::fcntl_getfl(&copy).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
    closed(Child::spawn(handle, std::process::Command::new("touch").arg(&path)).map(drop));
    assert!(!path.exists(), "nothing was begun");
}

#[test]
fn no_source_can_be_made_for_a_loop_that_is_gone_and_nothing_waits_there_for_ever() {
    let (listener, address) = tcp_listener(&real_loop());
    assert!(listener.is_closed());
    let handle = real_loop().handle();
    expect_no_source(&handle, tempfile::tempdir().unwrap().path());

    let witness = Rc::new(());
    let owned = || (Rc::clone(&witness), handle.clone());
    let (tcp, unix, from_bound) = (owned(), owned(), owned());
    let bound = TcpOptions::new().bind("127.0.0.1:0".parse().unwrap()).unwrap();
    for stream in [
        Stream::connect_tcp(&handle, address, move |_, _, _| drop(tcp)),
        Stream::connect_unix(&handle, "missing", move |_, _, _| drop(unix)),
        bound.connect(&handle, address, move |_, _, _| drop(from_bound)),
    ] {
        assert!(stream.is_closed());
        let read = owned();
        let refused = stream.read_start(move |_, _, _| drop(read.clone()));
        assert!(matches!(refused, Err(SourceError::Closed)));
        let written = owned();
        assert!(matches!(stream.write("x", move |_, _| drop(written)), Err(SourceError::Closed)));
        let closed = owned();
        assert!(matches!(stream.close(move |_| drop(closed)), Err(SourceError::Closed)));
    }
    assert_eq!(Rc::strong_count(&witness), 1);
    assert!(handle.handles().is_empty());
}

#[test]
fn no_future_can_wait_for_a_loop_that_is_gone() {
    fn poll_once<F: Future>(future: F) -> Option<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::pin!(future).poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }
    let (handle, address) = (real_loop().handle(), "127.0.0.1:1".parse().unwrap());
    let (_writer, reader) = readable_pair();
    assert!(matches!(poll_once(handle.readable(&reader)), Some(Err(LoopError::Gone))));
    assert!(matches!(poll_once(handle.connect_tcp(address)), Some(Err(SourceError::Closed))));
    assert!(matches!(poll_once(handle.connect_unix("missing".as_ref())), Some(Err(SourceError::Closed))));
    let mut turn = std::pin::pin!(handle.next_iteration());
    assert!(poll_once(turn.as_mut()).is_none());
    assert!(handle.why_alive().is_empty(), "{:?}", handle.why_alive());
}

#[test]
fn every_ring_for_a_loop_that_is_gone_says_so() {
    let notifier = real_loop().remote().notifier(|_| ());
    assert_eq!((notifier.notify(), notifier.notify()), (Err(LoopGone), Err(LoopGone)));
}

#[test]
fn a_task_that_is_cancelled_by_somebody_elses_panic_was_cancelled() {
    struct CancelOnDrop(Rc<JoinHandle<()>>);
    impl Drop for CancelOnDrop {
        fn drop(&mut self) {
            self.0.cancel();
        }
    }
    let mut event_loop = real_loop();
    handled_panics(&mut event_loop);
    let task = Rc::new(event_loop.spawn(std::future::pending::<()>()));
    let guard = CancelOnDrop(Rc::clone(&task));
    event_loop.set_immediate(move |_| {
        let _guard = guard;
        panic!("mine");
    });
    event_loop.run().unwrap();
    assert_eq!(task.take_result(), Some(Err(JoinError::Cancelled)));
}

#[test]
fn a_task_whose_loop_is_dropped_by_somebody_elses_panic_was_cancelled() {
    let task = Rc::new(RefCell::new(None));
    let kept = Rc::clone(&task);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let mut event_loop = real_loop();
        kept.replace(Some(event_loop.spawn(std::future::pending::<()>())));
        event_loop.run().unwrap();
        panic!("mine");
    }));
    assert_eq!(panic_message(&*panic.unwrap_err()), "mine");
    assert_eq!(task.take().unwrap().take_result(), Some(Err(JoinError::Cancelled)));
}

#[test]
fn a_task_whose_future_panics_when_it_is_dropped_has_panicked() {
    struct ReadyBomb(Bomb);
    impl Future for ReadyBomb {
        type Output = ();
        fn poll(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Self::Output> {
            let _ = &self.0;
            std::task::Poll::Ready(())
        }
    }
    let mut event_loop = real_loop();
    let handled = handled_panics(&mut event_loop);
    let task = event_loop.spawn(ReadyBomb(Bomb));
    event_loop.run().unwrap();
    assert_eq!((task.take_result(), handled.get()), (Some(Err(JoinError::Panicked)), 1));
}

#[test]
fn a_watchdog_may_be_dropped_by_its_own_report() {
    let mut event_loop = real_loop();
    let place = Arc::new(Mutex::new(None::<Watchdog>));
    let (say_dropped, dropped) = mpsc::channel();
    let own = Arc::clone(&place);
    let report = move |_: &Blocked| {
        drop(own.lock().unwrap().take());
        say_dropped.send(()).unwrap();
    };
    *place.lock().unwrap() = Some(event_loop.watchdog(milliseconds(4), report).unwrap());
    event_loop.set_immediate(move |_| dropped.recv_timeout(Duration::from_secs(30)).unwrap());
    event_loop.run().unwrap();
}

#[test]
fn steps_that_become_slow_all_at_once_are_reported_and_end_their_turn() {
    let mut event_loop = real_loop();
    let step = |count: &mut u32| {
        *count += 1;
        if *count > 10_000 {
            let start = Instant::now();
            while start.elapsed() < Duration::from_micros(20) {}
        }
        if *count < 13_000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    event_loop.partition_within(PARTITION_BUDGET, 0, step, |_, ()| ());
    event_loop.run().unwrap();
    let metrics = event_loop.metrics();
    assert!(metrics.steps_over_budget >= 1);
    assert!(metrics.slowest_step.is_some());
    assert!(metrics.iterations >= 10, "after the first slow steps a turn keeps to its budget");
}
