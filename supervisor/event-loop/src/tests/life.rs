//! When the loop ends, what panics do to it, and what is left when it is dropped.

use super::*;

#[test]
fn s7_a_loop_without_anything_to_wait_for_ends_at_once() {
    assert!(!virtual_loop().run().unwrap());
}

#[test]
fn a_loop_cannot_be_run_inside_itself() {
    let mut event_loop = virtual_loop();
    event_loop.set_immediate(|context| assert!(matches!(context.run(), Err(LoopError::NestedRun))));
    event_loop.run().unwrap();
}

#[test]
fn what_owns_callbacks_shows_what_it_is() {
    /// A program's own struct.
    #[derive(Debug)]
    struct Server {
        event_loop: LoopHandle,
        listener: Listener,
        _hold: Hold,
    }
    let event_loop = real_loop();
    let (listener, _) = tcp_listener(&event_loop);
    let server = Server { event_loop: event_loop.handle(), listener, _hold: event_loop.hold() };
    drop(event_loop);
    let shown = format!("{server:?}");
    assert!(shown.contains("LoopHandle { number: ") && shown.contains("is_gone: true, .. }"), "{shown}");
    assert!(shown.contains("is_closed: true, .. }") && shown.contains("_hold: Hold { .. }"), "{shown}");
    assert!(server.event_loop.is_gone() && server.listener.is_closed());
}

#[test]
fn unreferenced_timers_and_handles_do_not_keep_the_loop_alive() {
    let mut event_loop = virtual_loop();
    let timer = event_loop.set_interval(milliseconds(1), |_| ());
    let hook = event_loop.check(|_| ());
    assert!(event_loop.is_alive());
    for _ in 0..2 {
        event_loop.unref(timer);
        event_loop.unref(hook);
    }
    assert!(!event_loop.run().unwrap());
    event_loop.ref_(timer);
    assert!(event_loop.is_alive());
}

#[test]
fn a_panic_is_reported_and_the_rest_of_the_batch_still_runs() {
    let (mut event_loop, log) = (virtual_loop(), Log::default());
    let reports = log.clone();
    event_loop.set_panic_handler(move |_, panic| reports.add(panic.message()));
    event_loop.set_immediate(|_| panic!("ouch"));
    event_loop.set_immediate(log.entry("next"));
    event_loop.next_tick(|_| panic!("tick"));
    event_loop.next_tick(log.entry("next tick"));
    event_loop.run().unwrap();
    log.expect(&["tick", "next tick", "ouch", "next"]);
}

#[test]
fn a_panic_without_a_handler_leaves_run_and_the_loop_goes_on_afterwards() {
    let (mut event_loop, log) = (virtual_loop(), Log::default());
    event_loop.set_immediate(|_| panic!("ouch"));
    event_loop.set_immediate(log.entry("next"));
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| event_loop.run()));
    assert!(panic.is_err());
    event_loop.run().unwrap();
    log.expect(&["next"]);
}

#[test]
fn after_the_panic_of_a_late_timer_no_other_callback_is_late() {
    let mut event_loop = virtual_loop();
    event_loop.set_timeout(milliseconds(1), |context| context.shared.clock.skip(1_000_000_000));
    event_loop.set_timeout(milliseconds(2), |context| {
        assert!(context.lateness() > milliseconds(900));
        panic!("ouch");
    });
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| event_loop.run()));
    assert_eq!(panic_message(&*panic.unwrap_err()), "ouch");
    assert_eq!(event_loop.lateness(), Duration::ZERO);
    event_loop.set_immediate(|context| assert_eq!(context.lateness(), Duration::ZERO));
    event_loop.run().unwrap();
}

#[test]
fn the_metrics_name_the_slowest_callback() {
    let mut event_loop = real_loop();
    let line = line!() + 1;
    event_loop.set_immediate(|_| {
        let start = Instant::now();
        while start.elapsed() < milliseconds(5) {}
    });
    event_loop.set_immediate(|_| ());
    event_loop.run().unwrap();
    let metrics = event_loop.metrics();
    let slowest = metrics.slowest_callback.unwrap();
    assert_eq!((slowest.site.line(), slowest.phase), (line, Phase::Check));
    assert!(slowest.duration >= milliseconds(5));
    assert!(metrics.iterations >= 1);
}

#[test]
fn dropping_the_loop_drops_what_was_registered_even_when_that_owns_the_loop() {
    let event_loop = virtual_loop();
    let witness = Rc::new(());
    let keep = || (event_loop.handle(), Rc::clone(&witness));
    let kept = [keep(), keep(), keep(), keep(), keep()];
    let [tick, immediate, timer, hook, task] = kept.map(|owned| move || drop(owned.clone()));
    event_loop.next_tick(move |_| tick());
    event_loop.set_immediate(move |_| immediate());
    event_loop.set_timeout(Duration::ZERO, move |_| timer());
    event_loop.idle(move |_| hook());
    event_loop.spawn(async move { task() });
    let _request = event_loop.request({
        let owned = keep();
        move |_, ()| drop(owned)
    });
    drop(event_loop);
    assert_eq!(Rc::strong_count(&witness), 1);
}

#[test]
fn what_is_dropped_with_a_callback_may_use_the_loop() {
    struct ClearsOnDrop(LoopHandle, TimerId);
    impl Drop for ClearsOnDrop {
        fn drop(&mut self) {
            assert!(self.0.clear(self.1));
            self.0.set_immediate(|_| ());
        }
    }
    let mut event_loop = virtual_loop();
    let victim = |event_loop: &EventLoop| {
        let timer = event_loop.set_timeout(milliseconds(1_000), |_| ());
        ClearsOnDrop(event_loop.handle(), timer)
    };
    let owned = victim(&event_loop);
    let timer = event_loop.set_timeout(milliseconds(1), move |_| drop(owned));
    event_loop.clear(timer);
    let owned = victim(&event_loop);
    let hook = event_loop.idle(move |_| assert!(owned.0.is_alive()));
    event_loop.close(hook, |_| ()).unwrap();
    let owned = victim(&event_loop);
    event_loop.spawn(async move { drop(owned) }).cancel();
    assert!(!event_loop.run().unwrap());
}

/// Panics when it is dropped.
struct Bomb(&'static str);

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("{}", self.0);
    }
}

#[test]
fn what_panics_when_the_loop_drops_it_keeps_nothing_else_from_being_dropped() {
    let (event_loop, log, witness) = (virtual_loop(), Log::default(), Rc::new(()));
    let handle = event_loop.handle();
    let owned = || (Rc::clone(&witness), event_loop.handle());
    let (post, ticks, timer, task, stream) =
        (Bomb("the post"), [Bomb("a tick"), Bomb("the next tick")], owned(), owned(), owned());
    event_loop.remote().post(move |_| drop(post)).unwrap();
    for tick in ticks {
        event_loop.next_tick(move |_| drop(tick));
    }
    event_loop.set_timeout(milliseconds(1), move |_| drop(timer));
    event_loop.spawn(async move { drop(task) });
    let (reader, _writer) = Stream::pair(&event_loop).unwrap();
    reader.read_start(move |_, _, _| drop(stream.clone())).unwrap();
    let called = log.clone();
    let _guard = event_loop.on_gone(move || called.add("gone"));
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(event_loop)));
    assert_eq!(panic_message(&*panic.unwrap_err()), "the post");
    log.expect(&["gone"]);
    assert!(reader.is_closed());
    assert_eq!(Rc::strong_count(&witness), 1, "everything was dropped");
    let late = Rc::clone(&witness);
    handle.set_immediate(move |_| drop(late));
    assert_eq!(Rc::strong_count(&witness), 1, "and so is what comes later");
}
