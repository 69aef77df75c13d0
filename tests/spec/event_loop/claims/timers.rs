//! S10 to S13: timers, and the poll that lets them run.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use offload_event_loop::{Interest, LoopConfig, Time};

use super::props::{burn, in_poll, io_pool, loop_with, milliseconds, readable_pair, real_loop, virtual_loop};
use crate::stage::{Order, alone};

#[test]
fn s10_the_delay_of_a_timer_is_a_minimum() {
    let _alone = alone();
    let mut event_loop = real_loop();
    let early = Order::<Duration>::new();
    for micros in (0..20_000).step_by(100) {
        let (delay, start, early) = (Duration::from_micros(micros), Instant::now(), early.clone());
        event_loop.set_timeout(delay, move |_| match start.elapsed() {
            elapsed if elapsed < delay => early.push(delay - elapsed),
            _ => {}
        });
    }
    event_loop.run().unwrap();
    assert_eq!(early.so_far(), [Duration::ZERO; 0]);
}

#[test]
fn s10_a_timer_runs_as_early_as_the_callback_before_it_lets_it() {
    let _alone = alone();
    let mut event_loop = real_loop();
    let elapsed = Rc::new(Cell::new(Duration::ZERO));
    let (start, seen) = (Instant::now(), Rc::clone(&elapsed));
    event_loop.set_timeout(milliseconds(5), move |_| seen.set(start.elapsed()));
    event_loop.set_immediate(|_| burn(milliseconds(30)));
    event_loop.run().unwrap();
    assert!(elapsed.get() >= milliseconds(30), "it ran after {:?}, beside the callback", elapsed.get());
}

#[test]
fn s11_the_poll_waits_as_long_as_the_next_timer_lets_it() {
    let (mut event_loop, order) = (virtual_loop(), Order::new());
    let (_writer, reader) = std::os::unix::net::UnixStream::pair().unwrap();
    let watcher = event_loop.watch(reader, Interest::READ, |_, _| ()).unwrap();
    assert_eq!(event_loop.backend_timeout(), None, "without a timer the poll may wait for ever");
    for delay in [300, 100, 200] {
        let (start, order) = (event_loop.now(), order.clone());
        event_loop.set_timeout(milliseconds(delay), move |context| {
            order.push((delay, context.now().duration_since(start).as_millis()));
        });
    }
    let timeout = event_loop.backend_timeout().unwrap();
    assert!(timeout >= milliseconds(100) && timeout < milliseconds(101), "{timeout:?}");
    event_loop.unref(watcher);
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), [(100, 100), (200, 200), (300, 300)]);
}

/// One run of the program of the seed: an input that takes 95 ms, whose callback takes 10 ms, and a timer of 100 ms.
/// When all of that was, counted from the start of the timer.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    callback_began: Duration,
    callback_ended: Duration,
    timer_fired: Duration,
    /// Of the timer, in the loop's own words.
    lateness: Duration,
}

impl Run {
    fn of_the_program() -> Run {
        let mut event_loop = real_loop();
        let pool = io_pool(&mut event_loop, 1);
        let (start, run) = (Instant::now(), Rc::new(Cell::new(Run::default())));
        let seen = Rc::clone(&run);
        event_loop.set_timeout(milliseconds(100), move |context| {
            seen.set(Run { timer_fired: start.elapsed(), lateness: context.lateness(), ..seen.get() });
        });
        let reading = move || std::thread::sleep(milliseconds(95).saturating_sub(start.elapsed()));
        let seen = Rc::clone(&run);
        pool.submit(reading, move |_, _| {
            let callback_began = start.elapsed();
            burn(milliseconds(10));
            seen.set(Run { callback_began, callback_ended: start.elapsed(), ..seen.get() });
        });
        event_loop.run().unwrap();
        run.get()
    }

    /// Other programs may make the input so late that the timer comes before it. Then it is not the run of the seed.
    fn is_of_the_seed(&self) -> bool {
        self.callback_began < milliseconds(100)
    }
}

#[test]
fn s12_a_timer_waits_for_the_callback_before_it() {
    let _alone = alone();
    let runs = std::iter::repeat_with(Run::of_the_program).take(100);
    let runs: Vec<_> = runs.filter(Run::is_of_the_seed).take(5).collect();
    assert!(!runs.is_empty(), "the input came after the timer each time");
    for run in runs {
        assert!(run.callback_ended >= milliseconds(105), "95 ms of input and 10 ms of callback: {run:?}");
        assert!(run.timer_fired >= run.callback_ended, "it did not wait: {run:?}");
        assert!(run.lateness > Duration::ZERO, "it does not know that it had to wait: {run:?}");
        assert!(run.lateness <= run.timer_fired - milliseconds(100), "it was due at 100 ms: {run:?}");
    }
}

#[test]
fn s13_a_poll_ends_after_its_maximum_of_events() {
    let limits = LoopConfig { events_per_poll: 2, time: Time::Virtual, ..LoopConfig::default() };
    let (mut event_loop, order) = (loop_with(limits), Order::new());
    let inner = order.clone();
    in_poll(&event_loop, move |context| {
        inner.push("event");
        context.set_immediate(inner.add("immediate"));
    });
    for _ in 0..3 {
        in_poll(&event_loop, order.add("event"));
    }
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["event", "event", "immediate", "event", "event"]);
}

#[test]
fn s13_a_poll_ends_when_its_time_is_up() {
    let limits = LoopConfig { poll_budget: Duration::ZERO, ..LoopConfig::default() };
    let (mut event_loop, order) = (loop_with(limits), Order::new());
    for _ in 0..2 {
        let order = order.clone();
        in_poll(&event_loop, move |context| {
            order.push("event");
            context.set_immediate(order.add("immediate"));
        });
    }
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["event", "immediate", "event", "immediate"]);
}

#[test]
fn s13_a_descriptor_that_is_always_ready_does_not_starve_the_rest() {
    let (mut event_loop, order) = (real_loop(), Order::new());
    let (writer, reader) = readable_pair();
    let watcher = event_loop.watch(reader, Interest::READ, |_, _| ()).unwrap();
    event_loop.set_immediate(order.add("immediate"));
    let last = order.clone();
    event_loop.set_timeout(milliseconds(5), move |context| {
        last.push("timer");
        drop(writer);
        context.close(watcher, last.add("closed")).unwrap();
    });
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["immediate", "timer", "closed"]);
}
