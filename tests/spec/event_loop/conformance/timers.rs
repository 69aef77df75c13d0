//! When timers run, how often, and what happens to those that are stopped.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use offload_event_loop::{CallbackId, Catchup, Context, RunMode};

use super::{compute_for, milliseconds, real_loop, virtual_loop};
use crate::stage::{Order, beside_others};

#[test]
fn an_interval_beats_beside_other_timers_until_it_is_taken_back() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (start, beats, own) = (event_loop.now(), order.clone(), Rc::new(Cell::new(None)));
    let id = Rc::clone(&own);
    own.set(Some(event_loop.set_interval(milliseconds(100), move |context| {
        beats.push("beat");
        if beats.so_far().iter().filter(|what| **what == "beat").count() == 5 {
            assert!(context.clear(id.get().unwrap()));
        }
    })));
    event_loop.set_timeout(milliseconds(150), order.add("once"));
    let never = event_loop.set_interval(milliseconds(100), order.add("never"));
    assert!(event_loop.clear(never));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["beat", "once", "beat", "beat", "beat", "beat"]);
    assert!(event_loop.now() - start >= milliseconds(500));
}

#[test]
fn a_timer_that_is_taken_back_and_started_anew_runs_once_at_its_new_time() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let start = event_loop.now();
    let first = event_loop.set_timeout(Duration::from_secs(86_400), order.add("first"));
    assert!(event_loop.clear(first));
    event_loop.set_timeout(milliseconds(10), order.add("second"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["second"]);
    assert!(event_loop.now() - start < milliseconds(11));
}

#[test]
fn a_timer_can_be_taken_back_once_and_not_after_it_has_run() {
    let mut event_loop = virtual_loop();
    let waiting = event_loop.set_timeout(milliseconds(1), |_| {});
    assert!(event_loop.clear(waiting));
    assert!(!event_loop.clear(waiting));
    let running = event_loop.set_timeout(milliseconds(1), |_| {});
    event_loop.run().unwrap();
    assert!(!event_loop.clear(running));
}

#[test]
fn a_name_of_a_timer_is_not_given_to_another_one() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let old = event_loop.set_timeout(milliseconds(1), |_| {});
    assert!(event_loop.clear(old));
    for _ in 0..10 {
        let new = event_loop.set_timeout(milliseconds(1), order.add("new"));
        assert_ne!(old, new);
    }
    assert!(!event_loop.clear(old));
    event_loop.run().unwrap();
    assert_eq!(order.so_far().len(), 10);
}

#[test]
fn a_delay_beyond_all_time_is_accepted_and_holds_up_nobody() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let huge = [Duration::MAX, Duration::from_nanos(u64::MAX), Duration::from_millis(0xffff_ffff_ffff)]
        .map(|delay| event_loop.set_timeout(delay, order.add("huge")));
    let tiny = order.clone();
    event_loop.set_timeout(milliseconds(1), move |context| {
        tiny.push("tiny");
        assert!(huge.into_iter().all(|timer| context.clear(timer)));
    });
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["tiny"]);
}

#[test]
fn timers_at_the_end_of_time_run_in_their_order_and_the_loop_ends() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let log = order.clone();
    event_loop.set_timeout(Duration::MAX, move |context| {
        log.push("first");
        context.set_timeout(Duration::MAX, log.add("set at the end, huge"));
        context.set_timeout(Duration::ZERO, log.add("set at the end, none"));
        context.set_immediate(log.add("immediate"));
    });
    event_loop.set_timeout(Duration::from_nanos(u64::MAX - 1), order.add("second"));
    event_loop.set_timeout(Duration::from_secs(3_600), order.add("an hour"));
    assert!(!event_loop.run().unwrap());
    let expected =
        ["an hour", "first", "second", "immediate", "set at the end, huge", "set at the end, none"];
    assert_eq!(order.so_far(), expected);
}

/// Time goes no further, so there is no next period to wait for.
#[test]
fn an_interval_at_the_end_of_time_beats_once_an_iteration() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    for catchup in [Catchup::Drift, Catchup::FixedRate] {
        let log = order.clone();
        let mut beats = 0;
        event_loop.set_interval_with(Duration::MAX, catchup, move |context| {
            beats += 1;
            log.push(format!("{catchup:?} {beats}"));
            if let (3, Some(CallbackId::Timer(own))) = (beats, context.current().id) {
                context.clear(own);
            }
        });
    }
    assert!(!event_loop.run().unwrap());
    let expected = [1, 2, 3].map(|beat| [format!("Drift {beat}"), format!("FixedRate {beat}")]);
    assert_eq!(order.so_far(), expected.concat());
}

#[test]
fn an_interval_of_a_huge_period_waits_behind_a_short_one() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let beats = order.clone();
    let huge = event_loop.set_interval(Duration::MAX, order.add("huge"));
    let short = Rc::new(Cell::new(None));
    let own = Rc::clone(&short);
    short.set(Some(event_loop.set_interval(milliseconds(2), move |context| {
        beats.push("short");
        if beats.so_far().len() == 9 {
            assert!(context.clear(huge) && context.clear(own.get().unwrap()));
        }
    })));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["short"; 9]);
}

#[test]
fn an_interval_that_missed_beats_is_called_once_not_once_for_each() {
    let _beside = beside_others();
    for (mode, catchup) in [
        (RunMode::Once, Catchup::Drift),
        (RunMode::NoWait, Catchup::Drift),
        (RunMode::Once, Catchup::FixedRate),
        (RunMode::NoWait, Catchup::FixedRate),
    ] {
        let mut event_loop = real_loop();
        let order = Order::new();
        event_loop.set_interval_with(milliseconds(50), catchup, order.add("beat"));
        compute_for(milliseconds(101));
        assert!(event_loop.run_mode(mode).unwrap());
        assert_eq!(order.so_far(), ["beat"], "{mode:?}, {catchup:?}");
    }
}

/// Libuv counts from the loop's time, which is old after a long callback, so its timers may come too early.
#[test]
fn a_delay_counts_from_the_call_not_from_the_beginning_of_the_callback_that_makes_it() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let order = Order::new();
    let delay = milliseconds(3);
    for old_timer in [false, true] {
        let log = order.clone();
        let callback = move |context: &mut Context| {
            compute_for(milliseconds(6));
            let before = Instant::now();
            let due = Rc::new(Cell::new(None));
            let told = Rc::clone(&due);
            context.set_timeout(delay, move |context| {
                let (before, after): (Instant, Instant) = told.get().unwrap();
                let due = context.now() - context.lateness();
                // To within a tick of the loop's time.
                let tick = Duration::from_micros(66);
                log.push(before + delay <= due + tick && due <= after + delay + tick);
            });
            due.set(Some((before, Instant::now())));
        };
        if old_timer {
            event_loop.set_timeout(delay, callback);
        } else {
            event_loop.set_immediate(callback);
        }
        event_loop.run().unwrap();
    }
    assert_eq!(order.so_far(), [true, true]);
}

#[test]
fn delays_below_a_millisecond_are_kept_to_within_a_tick() {
    let mut event_loop = virtual_loop();
    let (start, order) = (event_loop.now(), Order::new());
    for micros in [1_u64, 100, 500, 999, 1_500] {
        let (delay, log) = (Duration::from_micros(micros), order.clone());
        event_loop.set_timeout(delay, move |context| log.push((delay, context.now() - start)));
    }
    event_loop.run().unwrap();
    assert_eq!(order.so_far().len(), 5);
    for (delay, waited) in order.so_far() {
        assert!(waited >= delay && waited < delay + Duration::from_micros(66), "{waited:?} for {delay:?}");
    }
}

#[test]
fn an_interval_without_a_period_lets_the_loop_go_around() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (beats, own) = (order.clone(), Rc::new(Cell::new(None)));
    let id = Rc::clone(&own);
    own.set(Some(event_loop.set_interval(Duration::ZERO, move |context| {
        beats.push("beat");
        context.set_immediate(beats.add("immediate"));
        if beats.so_far().len() > 4 {
            context.clear(id.get().unwrap());
        }
    })));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["beat", "immediate", "beat", "immediate", "beat", "immediate"]);
}

#[test]
fn an_interval_that_is_taken_back_by_a_tick_of_its_own_callback_does_not_beat_again() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (beats, own) = (order.clone(), Rc::new(Cell::new(None)));
    let id = Rc::clone(&own);
    own.set(Some(event_loop.set_interval(milliseconds(1), move |context| {
        beats.push("beat");
        let id = Rc::clone(&id);
        context.next_tick(move |context| assert!(context.clear(id.get().unwrap())));
    })));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["beat"]);
}

/// As in Node. Libuv counts from the beginning of the timers phase.
#[test]
fn an_interval_counts_from_the_beginning_of_its_callback() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let (beats, own) = (Order::new(), Rc::new(Cell::new(None)));
    let (log, id, period) = (beats.clone(), Rc::clone(&own), milliseconds(5));
    own.set(Some(event_loop.set_interval(period, move |context| {
        log.push((context.now(), context.now() - context.lateness()));
        compute_for(milliseconds(3));
        if log.so_far().len() == 3 {
            context.clear(id.get().unwrap());
        }
    })));
    event_loop.run().unwrap();
    for pair in beats.so_far().windows(2) {
        let ((begun, _), (_, next_due)) = (pair[0], pair[1]);
        assert_eq!(next_due - begun, period);
    }
    assert_eq!(beats.so_far().len(), 3);
}

#[test]
fn an_interval_of_fixed_rate_stays_on_its_grid_and_leaves_out_what_it_missed() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let (due_times, own) = (Order::new(), Rc::new(Cell::new(None)));
    let (dues, id) = (due_times.clone(), Rc::clone(&own));
    let period = milliseconds(4);
    own.set(Some(event_loop.set_interval_with(period, Catchup::FixedRate, move |context| {
        dues.push(context.now() - context.lateness());
        compute_for(milliseconds(10));
        if dues.so_far().len() == 3 {
            context.clear(id.get().unwrap());
        }
    })));
    event_loop.run().unwrap();
    for pair in due_times.so_far().windows(2) {
        let gap = pair[1] - pair[0];
        assert!(gap > 2 * period, "10 ms of computing miss two beats, but the gap was {gap:?}");
        assert_eq!(gap.as_nanos() % period.as_nanos(), 0, "{gap:?} is off the grid");
    }
}

/// The check hook starts the timer after the poll, so it needs another poll, before which prepare runs.
#[test]
fn a_timer_started_again_after_the_poll_runs_after_the_next_one() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let never = event_loop.set_timeout(milliseconds(50), order.add("never"));
    let (log, own) = (order.clone(), Rc::new(Cell::new(None)));
    let id = Rc::clone(&own);
    let stop_waiting = event_loop.set_immediate(|_| {});
    own.set(Some(event_loop.check(move |context| {
        log.push("check");
        context.clear(never);
        context.set_timeout(milliseconds(50), log.add("timer"));
        context.close(id.get().unwrap(), |_| {}).unwrap();
        let (log, prepare) = (log.clone(), Rc::new(Cell::new(None)));
        let own = Rc::clone(&prepare);
        prepare.set(Some(context.prepare(move |context| {
            log.push("prepare");
            context.close(own.get().unwrap(), |_| {}).unwrap();
        })));
    })));
    event_loop.run().unwrap();
    assert!(!event_loop.clear(stop_waiting));
    assert_eq!(order.so_far(), ["check", "prepare", "timer"]);
}

/// The time that the poll would wait says when the loop gets up.
#[test]
fn a_timer_of_a_long_delay_may_wait_for_its_neighbour_and_never_longer_than_its_slack() {
    let tick = Duration::from_micros(66);
    for (delay, slack) in [
        (milliseconds(4), Duration::ZERO),
        (milliseconds(50), milliseconds(50) / 64),
        (Duration::from_secs(10), milliseconds(1)),
        (Duration::from_secs(86_400), milliseconds(1)),
    ] {
        let event_loop = real_loop();
        let before = Instant::now();
        event_loop.set_timeout(delay, |_| {});
        let wait = event_loop.backend_timeout().unwrap();
        let passed = before.elapsed();
        assert!(
            wait + passed >= delay && wait <= delay + slack + tick,
            "{delay:?}: {wait:?} after {passed:?}"
        );
    }
    let event_loop = virtual_loop();
    event_loop.set_timeout(Duration::from_secs(10), |_| {});
    assert!(event_loop.backend_timeout().unwrap() < Duration::from_secs(10) + tick);
}
