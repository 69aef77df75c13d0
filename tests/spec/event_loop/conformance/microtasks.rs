//! Microtasks run after the ticks, and all of them before the next tick.

use std::time::Duration;

use offload_event_loop::Context;

use super::{milliseconds, virtual_loop};
use crate::stage::Order;

#[test]
fn microtasks_run_in_order_after_all_ticks_of_the_same_callback() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    event_loop.queue_microtask(order.add("first microtask"));
    event_loop.next_tick(order.add("first tick"));
    event_loop.queue_microtask(order.add("second microtask"));
    event_loop.next_tick(order.add("second tick"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["first tick", "second tick", "first microtask", "second microtask"]);
}

#[test]
fn a_microtask_of_a_microtask_runs_before_a_tick_of_a_microtask() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let log = order.clone();
    event_loop.queue_microtask(move |context| {
        context.next_tick(log.add("tick"));
        context.queue_microtask(log.add("inner microtask"));
    });
    event_loop.queue_microtask(order.add("second microtask"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["second microtask", "inner microtask", "tick"]);
}

#[test]
fn a_microtask_of_a_tick_waits_for_all_ticks() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let log = order.clone();
    event_loop.next_tick(move |context| {
        context.queue_microtask(log.add("microtask"));
        context.next_tick(log.add("tick of a tick"));
    });
    event_loop.next_tick(order.add("second tick"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["second tick", "tick of a tick", "microtask"]);
}

/// In the entry, in a tick and in a timer alike.
#[test]
fn a_tick_of_a_microtask_runs_before_a_timer_of_the_same_microtask() {
    fn queue(context: &mut Context, order: Order<(&'static str, &'static str)>, place: &'static str) {
        context.queue_microtask(move |context| {
            context.set_timeout(Duration::ZERO, order.add((place, "timer")));
            context.next_tick(order.add((place, "tick")));
        });
    }
    let mut event_loop = virtual_loop();
    let order = Order::new();
    queue(&mut event_loop, order.clone(), "entry");
    let log = order.clone();
    event_loop.set_timeout(milliseconds(1), move |context| {
        context.next_tick(move |context| queue(context, log, "tick of a timer"));
    });
    event_loop.run().unwrap();
    let expected =
        [("entry", "tick"), ("entry", "timer"), ("tick of a timer", "tick"), ("tick of a timer", "timer")];
    assert_eq!(order.so_far(), expected);
}

#[test]
fn microtasks_and_their_ticks_run_between_two_timers() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let log = order.clone();
    event_loop.set_timeout(milliseconds(1), move |context| {
        let tick = log.clone();
        context.queue_microtask(move |context| {
            log.push("microtask");
            context.next_tick(tick.add("tick"));
        });
    });
    event_loop.set_timeout(milliseconds(1), order.add("second timer"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["microtask", "tick", "second timer"]);
}

#[test]
fn microtasks_and_their_ticks_run_between_two_immediates() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let log = order.clone();
    event_loop.set_immediate(move |context| {
        let tick = log.clone();
        context.queue_microtask(move |context| {
            log.push("microtask");
            context.next_tick(tick.add("tick"));
        });
    });
    event_loop.set_immediate(order.add("second immediate"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["microtask", "tick", "second immediate"]);
}

#[test]
fn ticks_and_microtasks_that_call_each_other_take_turns_in_flat_stack() {
    fn turn(context: &mut Context, left: u32, order: Order<u32>) {
        if left == 0 {
            order.push(left);
        } else if left.is_multiple_of(2) {
            context.next_tick(move |context| turn(context, left - 1, order));
        } else {
            context.queue_microtask(move |context| turn(context, left - 1, order));
        }
    }
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let behind = order.clone();
    turn(&mut event_loop, 100_000, order.clone());
    event_loop.set_immediate(behind.add(1));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), [0, 1]);
}
