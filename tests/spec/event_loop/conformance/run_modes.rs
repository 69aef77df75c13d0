//! The modes of running a loop, and stopping it.

use offload_event_loop::{Interest, RunMode};

use super::{compute_for, connection, connection_with_a_byte, milliseconds, real_loop, virtual_loop};
use crate::stage::{Order, beside_others};

#[test]
fn once_goes_around_once_and_says_whether_the_loop_is_still_alive() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (idle, log) = (Order::new(), order.clone());
    let own = idle.clone();
    idle.push(event_loop.idle(move |context| {
        log.push("idle");
        if log.so_far().len() == 64 {
            context.close(own.so_far()[0], |_| {}).unwrap();
        }
    }));
    let mut rounds = 1;
    while event_loop.run_mode(RunMode::Once).unwrap() {
        rounds += 1;
    }
    assert_eq!((rounds, order.so_far().len()), (64, 64));
}

#[test]
fn once_waits_for_the_next_timer_and_runs_it() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    for delay in [0, 10, 20] {
        event_loop.set_timeout(milliseconds(delay), order.add(delay));
    }
    assert!(event_loop.run_mode(RunMode::Once).unwrap());
    assert_eq!(order.so_far(), [0]);
    assert!(event_loop.run_mode(RunMode::Once).unwrap());
    assert_eq!(order.so_far(), [0, 10]);
    assert!(!event_loop.run_mode(RunMode::Once).unwrap());
    assert_eq!(order.so_far(), [0, 10, 20]);
}

#[test]
fn no_wait_returns_without_a_timer_that_is_not_yet_due() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let start = event_loop.now();
    event_loop.set_interval(milliseconds(100), order.add("beat"));
    assert!(event_loop.run_mode(RunMode::NoWait).unwrap());
    assert!(order.so_far().is_empty());
    assert_eq!(event_loop.now(), start);
}

#[test]
fn no_wait_runs_what_is_ready_and_what_is_due() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let order = Order::new();
    let (_peer, stream) = connection_with_a_byte();
    let log = order.clone();
    event_loop.watch(stream, Interest::READ, move |_, _| log.push("input")).unwrap();
    event_loop.set_timeout(milliseconds(1), order.add("timer"));
    event_loop.set_immediate(order.add("immediate"));
    compute_for(milliseconds(2));
    assert!(event_loop.run_mode(RunMode::NoWait).unwrap());
    assert_eq!(order.so_far(), ["input", "immediate", "timer"]);
}

#[test]
fn a_loop_of_nothing_returns_at_once_in_every_mode() {
    for mode in [RunMode::Default, RunMode::Once, RunMode::NoWait] {
        assert!(!real_loop().run_mode(mode).unwrap(), "{mode:?}");
    }
}

#[test]
fn stop_lets_the_iteration_end_and_the_next_run_go_on() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let log = order.clone();
    event_loop.set_immediate(move |context| {
        log.push("first immediate");
        context.stop();
        context.next_tick(log.add("tick"));
    });
    event_loop.set_immediate(order.add("second immediate"));
    let hook = event_loop.idle(|_| {});
    event_loop.close(hook, order.add("closed")).unwrap();
    event_loop.set_timeout(milliseconds(1), order.add("timer"));
    assert!(event_loop.run().unwrap(), "it was stopped while the timer waited");
    assert_eq!(order.so_far(), ["first immediate", "tick", "second immediate", "closed"]);
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far().last(), Some(&"timer"));
}

#[test]
fn a_loop_that_is_stopped_by_a_timer_runs_on_three_times() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (timer, log) = (Order::new(), order.clone());
    let own = timer.clone();
    timer.push(event_loop.set_interval(milliseconds(100), move |context| {
        log.push("beat");
        match log.so_far().len() {
            1 => context.stop(),
            10 => assert!(context.clear(own.so_far()[0])),
            _ => {}
        }
    }));
    assert!(event_loop.run().unwrap());
    assert_eq!(order.so_far().len(), 1);
    assert!(event_loop.run_mode(RunMode::NoWait).unwrap());
    assert_eq!(order.so_far().len(), 1);
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far().len(), 10);
}

#[test]
fn stop_before_run_makes_it_return_at_once_and_counts_for_one_run() {
    for mode in [RunMode::Default, RunMode::Once, RunMode::NoWait] {
        let mut event_loop = virtual_loop();
        let order = Order::new();
        event_loop.set_immediate(order.add("immediate"));
        event_loop.stop();
        assert!(event_loop.run_mode(mode).unwrap());
        assert!(order.so_far().is_empty(), "{mode:?}");
        assert!(!event_loop.run().unwrap());
        assert_eq!(order.so_far(), ["immediate"]);
    }
}

#[test]
fn stop_in_a_hook_before_the_poll_keeps_it_from_waiting() {
    let mut event_loop = real_loop();
    let (_silent, stream) = connection();
    event_loop.watch(stream, Interest::READ, |_, _| panic!("nobody sends")).unwrap();
    event_loop.prepare(|context| context.stop());
    // If poll waited here, it would wait for ever.
    assert!(event_loop.run().unwrap());
}

#[test]
fn stop_of_another_thread_wakes_a_loop_that_waits() {
    let mut event_loop = real_loop();
    let (_silent, stream) = connection();
    event_loop.watch(stream, Interest::READ, |_, _| panic!("nobody sends")).unwrap();
    let remote = event_loop.remote();
    let (is_about_to_wait, wait) = std::sync::mpsc::channel();
    event_loop.prepare(move |_| is_about_to_wait.send(()).unwrap());
    let stopper = std::thread::spawn(move || {
        wait.recv().unwrap();
        remote.stop();
    });
    assert!(event_loop.run().unwrap());
    stopper.join().unwrap();
    event_loop.stop();
    assert!(event_loop.run().unwrap(), "the loop can be run, and stopped, again");
}

#[test]
fn iterations_are_counted() {
    let mut event_loop = virtual_loop();
    event_loop.idle(|_| {});
    let before = event_loop.metrics().iterations;
    for _ in 0..5 {
        event_loop.run_mode(RunMode::NoWait).unwrap();
    }
    assert_eq!(event_loop.metrics().iterations - before, 5);
}
