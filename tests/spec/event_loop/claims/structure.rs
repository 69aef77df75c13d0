//! S1 to S8: the loop and its phases.

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use offload_event_loop::{Context, Interest, LoopConfig, LoopHandle, RunMode, Time};

use super::props::{
    CHECK, IDLE, PREPARE, burn, hook_once, in_poll, in_poll_when_readable, io_pool, loop_with, milliseconds,
    real_loop, virtual_loop,
};
use crate::stage::{Order, alone, beside_others};

#[test]
fn s01_the_entry_script_runs_to_its_end_before_any_callback() {
    let (mut event_loop, order) = (virtual_loop(), Order::new());
    event_loop.set_timeout(Duration::ZERO, order.add("timer"));
    event_loop.set_immediate(order.add("immediate"));
    event_loop.queue_microtask(order.add("microtask"));
    event_loop.next_tick(order.add("tick"));
    in_poll(&event_loop, order.add("poll"));
    order.push("end of the script");
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["end of the script", "tick", "microtask", "poll", "immediate", "timer"]);
}

/// Registers something for every phase, in an order that is not theirs.
fn one_of_each(event_loop: &LoopHandle, order: &Order) {
    event_loop.set_timeout(Duration::ZERO, order.add("timers"));
    event_loop.set_immediate(order.add("check: immediate"));
    let closed = event_loop.prepare(|_| ());
    event_loop.close(closed, order.add("closing")).unwrap();
    hook_once(event_loop, CHECK, order.add("check: hook"));
    in_poll(event_loop, order.add("poll"));
    hook_once(event_loop, PREPARE, order.add("prepare"));
    hook_once(event_loop, IDLE, order.add("idle"));
    event_loop.set_pending(order.add("pending"));
}

#[test]
fn s02_an_iteration_goes_through_its_phases_in_their_order_and_begins_again_with_timers() {
    let (mut event_loop, order) = (virtual_loop(), Order::new());
    let inner = order.clone();
    event_loop.set_timeout(milliseconds(1), move |context| {
        inner.push("timers");
        one_of_each(context, &inner);
    });
    event_loop.run().unwrap();
    let iteration = ["timers", "pending", "idle", "prepare", "poll", "check: hook", "check: immediate"];
    assert_eq!(order.so_far()[..7], iteration);
    assert_eq!(order.so_far()[7..], ["closing", "timers"]);
}

#[test]
fn s03_a_phase_runs_its_callbacks_in_the_order_of_their_registration() {
    let (mut event_loop, order) = (virtual_loop(), Order::new());
    for name in ["first", "second", "third"] {
        event_loop.set_timeout(milliseconds(1), order.add(("timers", name)));
        event_loop.set_pending(order.add(("pending", name)));
        hook_once(&event_loop, IDLE, order.add(("idle", name)));
        hook_once(&event_loop, PREPARE, order.add(("prepare", name)));
        event_loop.set_immediate(order.add(("check", name)));
        let closed = event_loop.check(|_| ());
        event_loop.close(closed, order.add(("closing", name))).unwrap();
        in_poll(&event_loop, order.add(("poll", name)));
    }
    event_loop.run().unwrap();
    for phase in ["timers", "pending", "idle", "prepare", "poll", "check", "closing"] {
        let of_phase = order.so_far().into_iter().filter(|(place, _)| *place == phase);
        let names: Vec<_> = of_phase.map(|(_, name)| name).collect();
        assert_eq!(names, ["first", "second", "third"], "{phase}");
    }
}

#[test]
fn s04_a_phase_ends_when_its_queue_is_empty_or_its_maximum_is_reached() {
    let limits = LoopConfig { callbacks_per_phase: 2, time: Time::Virtual, ..LoopConfig::default() };
    let (mut event_loop, order) = (loop_with(limits), Order::new());
    for number in 0..3 {
        event_loop.set_pending(order.add(("pending", number)));
        event_loop.set_immediate(order.add(("check", number)));
        let closed = event_loop.check(|_| ());
        event_loop.close(closed, order.add(("closing", number))).unwrap();
    }
    event_loop.run_mode(RunMode::NoWait).unwrap();
    // The pending phase comes twice in an iteration, so all three are through when the poll is.
    let first = [("pending", 0), ("pending", 1), ("pending", 2), ("check", 0), ("check", 1)];
    assert_eq!(order.so_far()[..5], first);
    assert_eq!(order.so_far()[5..], [("closing", 0), ("closing", 1)]);
    event_loop.set_immediate(order.add(("check", 3)));
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far()[7..], [("check", 2), ("check", 3), ("closing", 2)], "what was left is first");
}

#[test]
fn s04_timers_that_are_due_have_the_maximum_too() {
    let limits = LoopConfig { callbacks_per_phase: 2, time: Time::Virtual, ..LoopConfig::default() };
    let (mut event_loop, order) = (loop_with(limits), Order::new());
    let inner = order.clone();
    event_loop.set_timeout(milliseconds(1), move |context| {
        context.set_immediate(inner.add("immediate"));
    });
    for _ in 0..3 {
        event_loop.set_timeout(milliseconds(1), order.add("timer"));
    }
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["timer", "immediate", "timer", "timer"]);
}

#[test]
fn s05_a_callback_of_any_phase_may_schedule_work_for_all_of_them() {
    let (mut event_loop, order) = (virtual_loop(), Order::new());
    let again = |order: &Order| {
        let order = order.clone();
        move |context: &mut Context| one_of_each(context, &order)
    };
    event_loop.set_timeout(Duration::ZERO, again(&order));
    event_loop.set_pending(again(&order));
    hook_once(&event_loop, IDLE, again(&order));
    hook_once(&event_loop, PREPARE, again(&order));
    in_poll(&event_loop, again(&order));
    hook_once(&event_loop, CHECK, again(&order));
    event_loop.set_immediate(again(&order));
    let closed = event_loop.check(|_| ());
    event_loop.close(closed, again(&order)).unwrap();
    assert!(!event_loop.run().unwrap());
    for place in
        ["timers", "pending", "idle", "prepare", "poll", "check: hook", "check: immediate", "closing"]
    {
        let count = order.so_far().iter().filter(|entry| **entry == place).count();
        assert_eq!(count, 8, "{place}");
    }
}

#[test]
fn s05_an_event_that_a_poll_callback_causes_is_handled_and_a_long_poll_makes_timers_late() {
    let _alone = alone();
    let (mut event_loop, order) = (real_loop(), Order::new());
    let (mut writer, reader) = UnixStream::pair().unwrap();
    let (caused, long) = (order.clone(), order.clone());
    in_poll(&event_loop, move |_| {
        long.push("long poll");
        burn(milliseconds(80));
        writer.write_all(b"x").unwrap();
    });
    in_poll_when_readable(&event_loop, reader, move |_| caused.push("caused event"));
    let late = Rc::new(Cell::new(Duration::ZERO));
    let lateness = Rc::clone(&late);
    // 50 ms are far more than the loop needs to get to its poll.
    event_loop.set_timeout(milliseconds(50), move |context| lateness.set(context.lateness()));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["long poll", "caused event"]);
    assert!(late.get() >= milliseconds(20), "the timer was late by {:?} only", late.get());
}

#[test]
fn s06_idle_and_prepare_hooks_run_once_an_iteration_until_they_are_closed() {
    let (mut event_loop, order) = (virtual_loop(), Order::new());
    let prepare = event_loop.prepare(order.add("prepare"));
    let idle = event_loop.idle(order.add("idle"));
    event_loop.run_mode(RunMode::Once).unwrap();
    event_loop.run_mode(RunMode::Once).unwrap();
    assert_eq!(order.so_far(), ["idle", "prepare", "idle", "prepare"]);
    event_loop.close(prepare, |_| ()).unwrap();
    event_loop.close(idle, |_| ()).unwrap();
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far().len(), 4);
}

#[test]
fn s07_the_loop_ends_as_soon_as_no_timer_and_no_input_or_output_is_awaited() {
    let mut event_loop = virtual_loop();
    assert!(!event_loop.run().unwrap(), "nothing was ever awaited");

    event_loop.set_timeout(milliseconds(5), |_| ());
    assert!(event_loop.is_alive());
    assert!(!event_loop.run().unwrap(), "the timer has run");

    let (_writer, reader) = UnixStream::pair().unwrap();
    let watcher = event_loop.watch(reader, Interest::READ, |_, _| ()).unwrap();
    event_loop.set_timeout(milliseconds(5), |context| context.stop());
    assert!(event_loop.run().unwrap(), "input is still awaited");
    event_loop.close(watcher, |_| ()).unwrap();
    assert!(!event_loop.run().unwrap(), "none is awaited any more");
}

#[test]
fn s08_every_callback_runs_on_the_loops_thread() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let pool = io_pool(&mut event_loop, 2);
    let threads = Rc::new(RefCell::new(Vec::new()));
    let note = || {
        let threads = Rc::clone(&threads);
        move |_: &mut Context| threads.borrow_mut().push(std::thread::current().id())
    };
    event_loop.set_timeout(milliseconds(1), note());
    event_loop.set_immediate(note());
    event_loop.next_tick(note());
    in_poll(&event_loop, note());
    let seen_by_done = note();
    pool.submit(
        || std::thread::current().id(),
        move |context, worker| {
            assert_ne!(worker.unwrap(), std::thread::current().id(), "the task itself runs elsewhere");
            seen_by_done(context);
        },
    );
    event_loop.run().unwrap();
    assert_eq!(*threads.borrow(), [std::thread::current().id(); 5]);
}

#[test]
fn s08_waiting_is_left_to_the_kernel() {
    let mut event_loop = real_loop();
    let (mut writer, reader) = UnixStream::pair().unwrap();
    in_poll_when_readable(&event_loop, reader, |_| ());
    let other = std::thread::spawn(move || {
        std::thread::park_timeout(milliseconds(50));
        writer.write_all(b"x").unwrap();
        writer
    });
    event_loop.run().unwrap();
    other.join().unwrap();
    let metrics = event_loop.metrics();
    assert!(metrics.iterations <= 3, "the loop went around {} times for one event", metrics.iterations);
}
