//! S16 to S20: the poll phase.

use std::cell::Cell;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use offload_event_loop::{Context, LoopConfig, RunMode};

use super::props::{
    CHECK, PREPARE, burn, hook_once, in_poll, in_poll_when_readable, loop_with, milliseconds, real_loop,
    virtual_loop,
};
use crate::stage::{Order, alone};

#[test]
fn s16_the_poll_runs_its_queue_and_goes_back_to_timers_whose_time_has_come() {
    let (mut event_loop, order) = (virtual_loop(), Order::new());
    event_loop.set_timeout(milliseconds(100), order.add("timer"));
    hook_once(&event_loop, PREPARE, order.add("before the poll"));
    in_poll(&event_loop, order.add("event"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["before the poll", "event", "timer"]);
}

#[test]
fn s17_poll_callbacks_run_one_after_another_until_none_is_left() {
    let mut event_loop = virtual_loop();
    let (running, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for _ in 0..1_000 {
        let (running, done) = (Arc::clone(&running), Arc::clone(&done));
        let callback = move |_: &mut Context| {
            assert_eq!(running.fetch_add(1, Ordering::Relaxed), 0, "two at a time");
            done.fetch_add(1, Ordering::Relaxed);
            running.fetch_sub(1, Ordering::Relaxed);
        };
        event_loop.remote().post(callback).unwrap();
    }
    let seen = Rc::new(Cell::new(0));
    let seen_by_check = Rc::clone(&seen);
    hook_once(&event_loop, CHECK, move |_| seen_by_check.set(done.load(Ordering::Relaxed)));
    event_loop.run_mode(RunMode::Once).unwrap();
    assert_eq!(seen.get(), 1_000, "all of them before the poll ended");
}

#[test]
fn s18_an_empty_poll_ends_at_once_when_immediates_exist() {
    let (mut event_loop, order) = (real_loop(), Order::new());
    let (_silent, reader) = UnixStream::pair().unwrap();
    in_poll_when_readable(&event_loop, reader, order.add("event"));
    assert_eq!(event_loop.backend_timeout(), None, "the poll would wait for ever");
    event_loop.set_immediate(order.add("immediate"));
    assert_eq!(event_loop.backend_timeout(), Some(Duration::ZERO));
    event_loop.run_mode(RunMode::Once).unwrap();
    assert_eq!(order.so_far(), ["immediate"]);
}

#[test]
fn s19_an_empty_poll_waits_for_an_event_and_runs_its_callback_at_once() {
    let (mut event_loop, order) = (real_loop(), Order::new());
    let (mut writer, reader) = UnixStream::pair().unwrap();
    in_poll_when_readable(&event_loop, reader, order.add("event"));
    hook_once(&event_loop, CHECK, order.add("check"));
    let (let_write, may_write) = mpsc::channel();
    let inner = order.clone();
    event_loop.prepare(move |_| {
        inner.push("before the poll");
        let_write.send(()).unwrap();
    });
    let other = std::thread::spawn(move || {
        may_write.recv().unwrap();
        writer.write_all(b"x").unwrap();
        writer
    });
    event_loop.run_mode(RunMode::Once).unwrap();
    other.join().unwrap();
    assert_eq!(order.so_far(), ["before the poll", "event", "check"]);
}

#[test]
fn s20_the_poll_goes_back_to_timers_that_have_become_due_between_two_events() {
    let _alone = alone();
    // Time enough for both events, if it were not for the timer.
    let limits = LoopConfig { poll_budget: Duration::from_secs(60), ..LoopConfig::default() };
    let (mut event_loop, order) = (loop_with(limits), Order::new());
    for _ in 0..2 {
        let order = order.clone();
        in_poll(&event_loop, move |_| {
            order.push("event");
            burn(milliseconds(80));
        });
    }
    // 50 ms are far more than the loop needs to get to its poll.
    event_loop.set_timeout(milliseconds(50), order.add("timer"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["event", "timer", "event"]);
}

#[test]
fn s20_an_empty_poll_wakes_for_a_timer() {
    let (mut event_loop, order) = (real_loop(), Order::new());
    let (_silent, reader) = UnixStream::pair().unwrap();
    in_poll_when_readable(&event_loop, reader, order.add("event"));
    event_loop.set_timeout(milliseconds(2), order.add("timer"));
    event_loop.run_mode(RunMode::Once).unwrap();
    assert_eq!(order.so_far(), ["timer"]);
}
