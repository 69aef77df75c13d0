//! S51 to S53, S60 and S71: long computations on the loop itself, in one go and in steps.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use offload_event_loop::{Context, LoopHandle};
use offload_worker::builtin::average::Average;

use super::props::{burn, in_poll, milliseconds, real_loop, shortest, virtual_loop};
use crate::stage::{Order, alone, beside_others};

/// The seed's asyncAvg, line by line: one number per immediate, and what is known so far in the closure.
fn async_avg(event_loop: &LoopHandle, n: u64, callback: impl FnOnce(f64) + 'static) {
    help(event_loop, n, 1, 1, move |sum| callback(sum as f64 / n as f64));
}

fn help(event_loop: &LoopHandle, n: u64, i: u64, sum: u64, callback: impl FnOnce(u64) + 'static) {
    if i == n {
        return callback(sum);
    }
    event_loop.set_immediate(move |context| help(context, n, i + 1, sum + i + 1, callback));
}

/// An immediate that sets itself again, as a client does who always wants something, and counts its turns.
fn busy_client(event_loop: &LoopHandle, turns: Rc<Cell<u64>>, is_over: Rc<Cell<bool>>) {
    event_loop.set_immediate(move |context| {
        turns.set(turns.get() + 1);
        if !is_over.get() {
            busy_client(context, turns, is_over);
        }
    });
}

/// The average that `compute` finds, and how many turns another client had meanwhile.
fn average_beside_a_client(
    compute: impl FnOnce(&LoopHandle, Box<dyn FnOnce(f64)>) + 'static,
) -> (Option<f64>, u64) {
    let mut event_loop = real_loop();
    let (turns, is_over) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let (average, turns_until_then) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(0)));
    busy_client(&event_loop, Rc::clone(&turns), Rc::clone(&is_over));
    let (result, seen) = (Rc::clone(&average), Rc::clone(&turns_until_then));
    let done = Box::new(move |average| {
        result.set(Some(average));
        seen.set(turns.get());
        is_over.set(true);
    });
    compute(&event_loop.handle(), done);
    event_loop.run().unwrap();
    (average.get(), turns_until_then.get())
}

fn average_of(n: u64) -> Average {
    Average::new(n).expect("within its bound")
}

#[test]
fn s52_an_average_in_one_go_lets_nobody_have_a_turn() {
    let (average, turns) = average_beside_a_client(|event_loop, done| {
        event_loop.set_immediate(|_| done(average_of(1_000_000).finish()));
    });
    assert_eq!((average, turns), (Some(500_000.5), 1), "the one turn is that before it");
}

#[test]
fn s53_async_avg_takes_one_step_an_immediate_and_others_are_served_after_each() {
    let (average, turns) = average_beside_a_client(|event_loop, done| async_avg(event_loop, 1_000, done));
    assert_eq!(average, Some(500.5));
    assert_eq!(turns, 999, "one turn beside each immediate, of which the last number needs none");
}

#[test]
fn s53_partition_does_the_same_with_one_step_an_iteration() {
    let (average, turns) = average_beside_a_client(|event_loop, done| {
        event_loop.partition(average_of(1_000), Average::step, |_, average| done(average));
    });
    assert_eq!((average, turns), (Some(500.5), 1_000));
}

#[test]
fn s53_a_budgeted_partition_takes_many_steps_an_iteration_and_others_are_still_served() {
    let _beside = beside_others();
    let n = 10_000_000;
    let (average, turns) = average_beside_a_client(move |event_loop, done| {
        let budget = milliseconds(1);
        event_loop.partition_within(budget, average_of(n), Average::step, |_, average| done(average));
    });
    assert_eq!(average, Some((n + 1) as f64 / 2.0));
    assert!(turns >= 2 && turns < n / 1_000, "{turns} turns for {n} steps");
}

#[test]
fn s53_timers_and_events_are_served_between_two_steps() {
    let (mut event_loop, order) = (real_loop(), Order::new());
    let timer_has_run = Rc::new(Cell::new(false));
    let (runs, inner) = (Rc::clone(&timer_has_run), order.clone());
    event_loop.set_timeout(milliseconds(2), move |_| {
        inner.push("timer");
        runs.set(true);
    });
    in_poll(&event_loop, order.add("event"));
    // A computation that would never end if the timer did not run in between.
    let step = |has_run: &mut Rc<Cell<bool>>| match has_run.get() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let last = order.clone();
    event_loop.partition(timer_has_run, step, move |_, ()| last.push("computed"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["event", "timer", "computed"]);
}

/// The longest step of an asyncAvg that adds a half of the numbers per step: how many numbers that are.
fn longest_step_by_halves(n: u64) -> u64 {
    let mut event_loop = virtual_loop();
    let longest = Rc::new(Cell::new(0));
    let seen = Rc::clone(&longest);
    let half = move |average: &mut Average| {
        for added in 1..=n / 2 {
            seen.set(added.max(seen.get()));
            if let ControlFlow::Break(average) = average.step() {
                return ControlFlow::Break(average);
            }
        }
        ControlFlow::Continue(())
    };
    event_loop.partition(average_of(n), half, move |_, average| assert_eq!(average, (n + 1) as f64 / 2.0));
    event_loop.run().unwrap();
    longest.get()
}

#[test]
fn s71_a_step_that_adds_a_half_of_the_numbers_is_as_unbounded_as_the_whole() {
    assert_eq!(longest_step_by_halves(1_000), 500);
    assert_eq!(longest_step_by_halves(2_000), 1_000);
    assert_eq!(longest_step_by_halves(1_000_000), 500_000);
}

/// How long the longest callback was when the first and the second half are a step each, and where it was registered.
fn longest_callback_by_halves(n: u64) -> (Duration, u32) {
    let mut event_loop = real_loop();
    let half = move |average: &mut Average| (0..n / 2).try_for_each(|_| average.step());
    event_loop.partition(average_of(n), half, |_: &mut Context, _: f64| ());
    event_loop.run().unwrap();
    let slowest = event_loop.metrics().slowest_callback.expect("some have run");
    (slowest.duration, slowest.site.line())
}

#[test]
fn s71_a_step_that_grows_with_its_input_is_seen_in_the_metrics_with_its_site() {
    let _alone = alone();
    let longest = |n| shortest(5, || longest_callback_by_halves(n));
    let ((small, line), (large, same_line)) = (longest(1_000_000), longest(10_000_000));
    assert!(large > 4 * small, "{small:?} for a million and {large:?} for ten");
    assert_eq!(line, same_line, "the place that started the computation");
}

#[test]
fn s71_a_step_over_its_budget_is_counted_with_the_place_that_started_it() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let long_step = |steps: &mut u32| {
        burn(milliseconds(5));
        *steps += 1;
        if *steps < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let line = line!() + 1;
    event_loop.partition(0, long_step, |_, ()| ());
    event_loop.run().unwrap();
    let metrics = event_loop.metrics();
    let slowest = metrics.slowest_step.expect("all steps were over their budget");
    assert_eq!((metrics.steps_over_budget, slowest.site.file(), slowest.site.line()), (3, file!(), line));
    assert!(slowest.duration >= milliseconds(5), "{slowest:?}");
}
