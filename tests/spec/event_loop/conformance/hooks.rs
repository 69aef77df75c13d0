//! Idle, prepare and check hooks.

use std::time::Duration;

use offload_event_loop::RunMode;

use super::{milliseconds, own_name, real_loop, virtual_loop};
use crate::stage::{Order, beside_others};

/// Libuv runs the hooks of a phase in the reverse order of their start.
#[test]
fn hooks_of_a_phase_run_in_the_order_of_their_start() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    for number in 1..=3 {
        event_loop.check(order.add(("check", number)));
        event_loop.prepare(order.add(("prepare", number)));
        event_loop.idle(order.add(("idle", number)));
    }
    event_loop.run_mode(RunMode::NoWait).unwrap();
    let expected: Vec<_> =
        ["idle", "prepare", "check"].into_iter().flat_map(|name| (1..=3).map(move |n| (name, n))).collect();
    assert_eq!(order.so_far(), expected);
}

#[test]
fn a_hook_started_by_a_hook_of_its_phase_waits_for_the_next_iteration() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (log, mut started) = (order.clone(), false);
    event_loop.idle(move |context| {
        log.push("first");
        if !std::mem::replace(&mut started, true) {
            context.idle(log.add("second"));
        }
    });
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far(), ["first"]);
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far(), ["first", "first", "second"]);
}

#[test]
fn a_hook_started_by_a_hook_of_an_earlier_phase_runs_in_the_same_iteration() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (log, mut started) = (order.clone(), false);
    event_loop.idle(move |context| {
        if !std::mem::replace(&mut started, true) {
            context.check(log.add("check"));
            context.prepare(log.add("prepare"));
        }
    });
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far(), ["prepare", "check"]);
}

#[test]
fn a_hook_that_closes_the_next_one_keeps_it_from_running() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (second, name) = own_name();
    event_loop.prepare(move |context| {
        if let Some(victim) = name.take() {
            context.close(victim, |_| {}).unwrap();
        }
    });
    second.set(Some(event_loop.prepare(order.add("second"))));
    event_loop.prepare(order.add("third"));
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far(), ["third"]);
}

#[test]
fn an_idle_hook_keeps_the_poll_from_waiting_and_starves_no_timer() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let order = Order::new();
    let (idle, check) = (event_loop.idle(|_| {}), event_loop.check(order.add("check")));
    let log = order.clone();
    event_loop.set_timeout(milliseconds(5), move |context| {
        log.push("timer");
        for hook in [idle, check] {
            context.close(hook, log.add("closed")).unwrap();
        }
    });
    event_loop.run().unwrap();
    let order = order.so_far();
    assert!(order.iter().filter(|what| **what == "check").count() > 1, "the poll has waited");
    assert_eq!(order[order.len() - 3..], ["timer", "closed", "closed"]);
}

#[test]
fn without_an_idle_hook_the_poll_waits_and_the_other_hooks_run_once_a_wait() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let hooks = [event_loop.prepare(order.add("prepare")), event_loop.check(order.add("check"))];
    let log = order.clone();
    event_loop.set_timeout(Duration::from_secs(1), move |context| {
        log.push("timer");
        hooks.into_iter().for_each(|hook| context.close(hook, |_| {}).unwrap());
    });
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["prepare", "check", "timer"]);
}

#[test]
fn check_hooks_run_after_a_poll_that_had_nothing_to_do() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (idle, name) = own_name();
    let check = event_loop.check(order.add("check"));
    idle.set(Some(event_loop.idle(move |context| context.close(name.get().unwrap(), |_| {}).unwrap())));
    assert!(event_loop.run_mode(RunMode::Once).unwrap());
    assert_eq!(order.so_far(), ["check"]);
    event_loop.close(check, order.add("closed")).unwrap();
    assert!(!event_loop.run_mode(RunMode::Once).unwrap());
    assert_eq!(order.so_far(), ["check", "closed"]);
}

#[test]
fn check_hooks_run_before_the_immediates() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    event_loop.set_immediate(order.add("immediate"));
    event_loop.check(order.add("check"));
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far(), ["check", "immediate"]);
}

#[test]
fn results_that_were_put_off_are_told_before_the_idle_hooks_and_again_after_the_poll() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let log = order.clone();
    event_loop.set_pending(order.add("put off by the entry"));
    event_loop.idle(order.add("idle"));
    event_loop.prepare(move |context| {
        log.push("prepare");
        context.set_pending(log.add("put off by prepare"));
    });
    event_loop.check(order.add("check"));
    event_loop.run_mode(RunMode::NoWait).unwrap();
    let expected = ["put off by the entry", "idle", "prepare", "put off by prepare", "check"];
    assert_eq!(order.so_far(), expected);
}

#[test]
fn a_result_put_off_by_another_one_waits_for_the_next_pending_phase() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let log = order.clone();
    event_loop.set_pending(move |context| {
        log.push("first");
        context.set_pending(log.add("second"));
    });
    event_loop.idle(order.add("idle"));
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far(), ["first", "idle", "second"]);
}

#[test]
fn a_prepare_hook_that_unreferences_itself_lets_the_loop_end() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (prepare, name) = own_name();
    let log = order.clone();
    prepare.set(Some(event_loop.prepare(move |context| {
        log.push("prepare");
        context.unref(name.get().unwrap());
    })));
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["prepare"]);
}

/// One hook lives through all rounds; in each, others are started and closed by hooks of other phases.
#[test]
fn hooks_that_start_and_close_each_other_for_many_iterations_all_end() {
    const ROUNDS: usize = 21;
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (main, name) = own_name();
    let (log, idles) = (order.clone(), Order::new());
    main.set(Some(event_loop.prepare(move |context| {
        log.push("prepare");
        let round = log.so_far().iter().filter(|what| **what == "prepare").count();
        let (check, own) = own_name();
        let (log, started) = (log.clone(), idles.clone());
        let end = (round == ROUNDS).then(|| name.get().unwrap());
        check.set(Some(context.check(move |context| {
            log.push("check");
            (0..round % 7).for_each(|_| started.push(context.idle(log.add("idle"))));
            let done = own.get().into_iter().chain(end);
            let done = done.chain(if end.is_some() { started.so_far() } else { Vec::new() });
            done.for_each(|hook| context.close(hook, log.add("closed")).unwrap());
        })));
        context.set_immediate(|_| {});
    })));
    assert!(!event_loop.run().unwrap());
    let count = |what| order.so_far().into_iter().filter(|other| *other == what).count();
    let started: usize = (1..=ROUNDS).map(|round| round % 7).sum();
    assert_eq!((count("prepare"), count("check")), (ROUNDS, ROUNDS));
    assert_eq!(count("closed"), ROUNDS + 1 + started);
    // Each idle hook runs in all rounds that follow the one of its start.
    let runs: usize = (1..=ROUNDS).map(|round| (round % 7) * (ROUNDS - round)).sum();
    assert_eq!(count("idle"), runs);
}
