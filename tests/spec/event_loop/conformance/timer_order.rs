//! The order in which timers run, and which of them run in the same iteration.

use std::time::{Duration, Instant};

use offload_event_loop::{Context, RunMode};

use super::{compute_for, milliseconds, real_loop, virtual_loop};
use crate::stage::{Order, beside_others};

#[test]
fn timers_run_by_their_due_times_however_they_were_started() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    for delay in [450, 50, 300, 0, 150, 100, 250, 200, 400, 350] {
        event_loop.set_timeout(milliseconds(delay), order.add(delay));
    }
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), [0, 50, 100, 150, 200, 250, 300, 350, 400, 450]);
}

#[test]
fn equal_delays_run_in_the_order_of_their_start() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    for round in 0..2 {
        for name in 0..20 {
            event_loop.set_timeout(milliseconds(7), order.add((round, name)));
        }
        event_loop.run().unwrap();
    }
    let expected: Vec<_> = (0..2).flat_map(|round| (0..20).map(move |name| (round, name))).collect();
    assert_eq!(order.so_far(), expected);
}

/// Node sorts by lists of equal delays; here the due time alone counts.
#[test]
fn equal_due_times_of_different_delays_run_in_the_order_of_their_start() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    // At 65.536 ms, a whole number of ticks, 65.536 ms more make 131.072 ms.
    let tick = Duration::from_nanos(1 << 16);
    event_loop.set_timeout(2_000 * tick, order.add("long, started first"));
    let later = order.clone();
    event_loop.set_timeout(1_000 * tick, move |context| {
        context.set_timeout(1_000 * tick, later.add("short, started second"));
    });
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["long, started first", "short, started second"]);
}

#[test]
fn overdue_timers_run_by_due_time_not_by_start() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let order = Order::new();
    for delay in [300, 100, 200] {
        event_loop.set_timeout(milliseconds(delay), order.add(delay));
    }
    compute_for(milliseconds(400));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), [100, 200, 300]);
}

#[test]
fn a_thousand_scattered_timers_run_once_each_in_order() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let mut expected = Vec::new();
    for start in 0..1_000_u64 {
        // Far enough apart for every level of the wheel: from microseconds to hours, with many equal ones.
        let delay = milliseconds((start * 7_919 % 251).pow(3));
        expected.push((delay, start));
        event_loop.set_timeout(delay, order.add((delay, start)));
    }
    expected.sort();
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), expected);
}

/// A delay of nothing counts as one tick of 66 us, so that what a timer starts always waits an iteration.
#[test]
fn a_timer_of_no_delay_that_starts_another_runs_once_an_iteration() {
    fn start(context: &mut Context, order: Order) {
        let again = order.clone();
        context.set_timeout(Duration::ZERO, move |context| {
            order.push("timer");
            start(context, again);
            compute_for(milliseconds(1));
        });
    }
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let order = Order::new();
    start(&mut event_loop, order.clone());
    event_loop.prepare(order.add("iteration"));
    for _ in 0..3 {
        event_loop.run_mode(RunMode::Once).unwrap();
    }
    assert_eq!(order.so_far(), ["iteration", "timer", "iteration", "timer", "iteration", "timer"]);
}

#[test]
fn a_timer_started_by_a_timer_waits_an_iteration_even_if_it_is_overdue() {
    let _beside = beside_others();
    for delay in [0, 2] {
        let mut event_loop = real_loop();
        let order = Order::new();
        let (inner, outer) = (order.clone(), order.clone());
        event_loop.set_timeout(milliseconds(delay), move |context| {
            context.set_timeout(milliseconds(delay), inner.add("nested"));
            compute_for(milliseconds(2 * delay + 1));
            context.set_immediate(outer.add("immediate"));
        });
        event_loop.run().unwrap();
        assert_eq!(order.so_far(), ["immediate", "nested"], "with a delay of {delay} ms");
    }
}

#[test]
fn chained_timers_keep_their_order_and_each_waits_its_delay() {
    fn chain(context: &mut Context, order: Order<Instant>) {
        order.push(context.now());
        if order.so_far().len() < 30 {
            context.set_timeout(milliseconds(1), move |context| chain(context, order));
        }
    }
    let mut event_loop = virtual_loop();
    let order = Order::new();
    chain(&mut event_loop, order.clone());
    event_loop.run().unwrap();
    let times = order.so_far();
    assert_eq!(times.len(), 30);
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= milliseconds(1)));
}

#[test]
fn a_timer_takes_back_others_that_are_due_with_it() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let victims = Order::new();
    let (first, condemned) = (order.clone(), victims.clone());
    event_loop.set_timeout(milliseconds(1), move |context| {
        first.push("first");
        assert!(condemned.so_far().into_iter().all(|victim| context.clear(victim)));
    });
    victims.push(event_loop.set_timeout(milliseconds(1), order.add("second")));
    victims.push(event_loop.set_interval(milliseconds(1), order.add("third")));
    event_loop.set_timeout(milliseconds(1), order.add("fourth"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["first", "fourth"]);
}

#[test]
fn a_tick_after_a_timer_takes_back_the_timers_behind_it() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let victims = Order::new();
    let (first, condemned) = (order.clone(), victims.clone());
    event_loop.set_timeout(milliseconds(1), move |context| {
        first.push("first");
        context.next_tick(move |context| {
            assert!(condemned.so_far().into_iter().all(|victim| context.clear(victim)));
        });
    });
    victims.push(event_loop.set_timeout(milliseconds(1), order.add("second")));
    victims.push(event_loop.set_interval(milliseconds(1), order.add("third")));
    event_loop.set_timeout(milliseconds(1), order.add("fourth"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["first", "fourth"]);
}

#[test]
fn taking_back_a_timer_that_has_run_leaves_a_younger_one_of_equal_delay_in_peace() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (own, young) = (Order::new(), order.clone());
    let old = own.clone();
    own.push(event_loop.set_timeout(milliseconds(100), move |context| {
        let younger = context.set_timeout(milliseconds(100), young.add("younger"));
        assert!(!context.clear(old.so_far()[0]));
        context.set_timeout(milliseconds(1), move |context| assert!(context.clear(younger)));
        context.set_timeout(milliseconds(100), young.add("youngest"));
    }));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["youngest"]);
}
