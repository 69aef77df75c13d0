//! Signals as callbacks. They belong to the whole process, so these tests run one at a time, and use signals that
//! nothing else uses and that a process without a handler ignores.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use offload_event_loop::{LoopError, RunMode};
use signal_hook::consts::{SIGURG, SIGWINCH};
use signal_hook::low_level::raise;

use super::{milliseconds, real_loop};
use crate::stage::Order;

static SIGNALS: Mutex<()> = Mutex::new(());

fn take_turns() -> MutexGuard<'static, ()> {
    SIGNALS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_signal_calls_its_handler_with_its_number() {
    let _turn = take_turns();
    let mut event_loop = real_loop();
    let order = Order::new();
    let log = order.clone();
    event_loop.on_signal(&[SIGURG], move |_, signal| log.push(signal)).unwrap();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert!(order.so_far().is_empty());
    raise(SIGURG).unwrap();
    assert!(event_loop.run_mode(RunMode::Once).unwrap());
    assert_eq!(order.so_far(), [SIGURG]);
}

#[test]
fn signals_that_come_one_by_one_are_counted_one_by_one() {
    let _turn = take_turns();
    let mut event_loop = real_loop();
    let order = Order::new();
    let (own, log, raised) = (Rc::new(Cell::new(None)), order.clone(), Rc::new(Cell::new(0)));
    let handler = event_loop.on_signal(&[SIGURG], move |_, signal| log.push(signal)).unwrap();
    let id = Rc::clone(&own);
    own.set(Some(event_loop.set_interval(milliseconds(1), move |context| {
        if raised.replace(raised.get() + 1) < 10 {
            return raise(SIGURG).unwrap();
        }
        context.clear(id.get().unwrap());
        context.close(handler, |_| {}).unwrap();
    })));
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), [SIGURG; 10]);
}

/// Libuv makes a call of each; the kernel itself does not tell how often a signal came, and neither does this loop.
#[test]
fn equal_signals_that_come_together_are_one_call() {
    let _turn = take_turns();
    let mut event_loop = real_loop();
    let order = Order::new();
    let log = order.clone();
    event_loop.on_signal(&[SIGURG], move |_, signal| log.push(signal)).unwrap();
    (0..5).for_each(|_| raise(SIGURG).unwrap());
    for _ in 0..3 {
        event_loop.run_mode(RunMode::NoWait).unwrap();
    }
    assert_eq!(order.so_far(), [SIGURG]);
}

#[test]
fn one_handler_for_several_signals_is_called_once_for_each() {
    let _turn = take_turns();
    let mut event_loop = real_loop();
    let order = Order::new();
    let log = order.clone();
    event_loop.on_signal(&[SIGURG, SIGWINCH], move |_, signal| log.push(signal)).unwrap();
    raise(SIGWINCH).unwrap();
    raise(SIGURG).unwrap();
    event_loop.run_mode(RunMode::Once).unwrap();
    let mut signals = order.so_far();
    signals.sort();
    assert_eq!(signals, [SIGURG, SIGWINCH]);
}

#[test]
fn every_handler_of_a_signal_hears_it_and_only_of_its_own() {
    let _turn = take_turns();
    let mut event_loop = real_loop();
    let order = Order::new();
    for (name, signal) in [("first", SIGURG), ("second", SIGURG), ("other", SIGWINCH)] {
        let log = order.clone();
        event_loop.on_signal(&[signal], move |_, _| log.push(name)).unwrap();
    }
    raise(SIGURG).unwrap();
    event_loop.run_mode(RunMode::Once).unwrap();
    let mut called = order.so_far();
    called.sort();
    assert_eq!(called, ["first", "second"]);
}

#[test]
fn every_loop_hears_a_signal() {
    let _turn = take_turns();
    let order = Order::new();
    let mut loops = [real_loop(), real_loop(), real_loop()];
    for (number, event_loop) in loops.iter().enumerate() {
        let log = order.clone();
        event_loop.on_signal(&[SIGWINCH], move |_, _| log.push(number)).unwrap();
    }
    raise(SIGWINCH).unwrap();
    for event_loop in &mut loops {
        event_loop.run_mode(RunMode::Once).unwrap();
    }
    assert_eq!(order.so_far(), [0, 1, 2]);
}

#[test]
fn a_handler_that_closes_itself_hears_one_signal_and_leaves_the_others_theirs() {
    let _turn = take_turns();
    let mut event_loop = real_loop();
    let order = Order::new();
    let (log, own) = (order.clone(), Rc::new(Cell::new(None)));
    let id = Rc::clone(&own);
    let once = event_loop.on_signal(&[SIGURG], move |context, _| {
        log.push("once");
        context.close(id.get().unwrap(), |_| {}).unwrap();
    });
    own.set(Some(once.unwrap()));
    raise(SIGURG).unwrap();
    event_loop.run().unwrap();
    let log = order.clone();
    event_loop.on_signal(&[SIGURG], move |_, _| log.push("another")).unwrap();
    raise(SIGURG).unwrap();
    event_loop.run_mode(RunMode::Once).unwrap();
    assert_eq!(order.so_far(), ["once", "another"]);
}

#[test]
fn a_handler_that_is_closed_while_its_signal_waits_does_not_hear_it() {
    let _turn = take_turns();
    let mut event_loop = real_loop();
    let order = Order::new();
    let log = order.clone();
    let handler = event_loop.on_signal(&[SIGURG], move |_, _| log.push("heard")).unwrap();
    raise(SIGURG).unwrap();
    event_loop.close(handler, order.add("closed")).unwrap();
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["closed"]);
}

#[test]
fn an_unreferenced_handler_hears_signals_and_its_closing_keeps_the_loop() {
    let _turn = take_turns();
    let mut event_loop = real_loop();
    let order = Order::new();
    let log = order.clone();
    let handler = event_loop.on_signal(&[SIGURG], move |_, _| log.push("heard")).unwrap();
    event_loop.unref(handler);
    raise(SIGURG).unwrap();
    event_loop.set_immediate(|_| {});
    assert!(!event_loop.run().unwrap());
    event_loop.close(handler, order.add("closed")).unwrap();
    assert!(event_loop.is_alive());
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["heard", "closed"]);
}

#[test]
fn a_signal_wakes_a_loop_that_waits() {
    let _turn = take_turns();
    let mut event_loop = real_loop();
    event_loop.on_signal(&[SIGURG], |context, _| context.stop()).unwrap();
    let (is_about_to_wait, wait) = std::sync::mpsc::channel();
    event_loop.prepare(move |_| is_about_to_wait.send(()).unwrap());
    let sender = std::thread::spawn(move || {
        wait.recv().unwrap();
        raise(SIGURG).unwrap();
    });
    assert!(event_loop.run().unwrap());
    sender.join().unwrap();
}

#[test]
fn signals_that_do_not_exist_or_cannot_be_caught_are_refused_by_number() {
    let event_loop = real_loop();
    for unusable in [-1, 0, 4_096, signal_hook::consts::SIGKILL, signal_hook::consts::SIGSTOP] {
        let refused = event_loop.on_signal(&[unusable], |_, _| {}).unwrap_err();
        assert!(matches!(refused, LoopError::UnusableSignal { signal } if signal == unusable), "{refused:?}");
        assert!(refused.to_string().contains(&unusable.to_string()));
    }
    assert!(!event_loop.is_alive());
}
