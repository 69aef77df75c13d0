//! Callbacks that panic: who is told, and what happens to the other callbacks.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use offload_event_loop::{Context, EventLoop, Interest, JoinError, Phase, RunMode};

use super::{connection_with_a_byte, milliseconds, receive, virtual_loop};
use crate::stage::Order;

/// A loop that writes down what its callbacks' panics said.
fn reporting_loop(order: &Order<String>) -> EventLoop {
    let mut event_loop = virtual_loop();
    let log = order.clone();
    event_loop.set_panic_handler(move |_, panic| log.push(format!("reported {}", panic.message())));
    event_loop
}

fn panicking(message: &'static str) -> impl FnMut(&mut Context) + 'static {
    move |_| panic!("{message}")
}

fn add(order: &Order<String>, what: &str) -> impl FnMut(&mut Context) + 'static {
    order.add(what.to_owned())
}

/// What a run of the loop let out.
#[track_caller]
fn expect_a_panic(event_loop: &mut EventLoop, message: &str) {
    let panic = catch_unwind(AssertUnwindSafe(|| event_loop.run())).unwrap_err();
    assert_eq!(panic.downcast_ref::<String>().unwrap(), message);
}

#[test]
fn a_tick_that_panics_is_reported_once_before_the_tick_behind_it_runs() {
    let order = Order::new();
    let mut event_loop = reporting_loop(&order);
    event_loop.next_tick(panicking("the tick"));
    event_loop.next_tick(add(&order, "second tick"));
    event_loop.queue_microtask(panicking("the microtask"));
    event_loop.queue_microtask(add(&order, "second microtask"));
    event_loop.run().unwrap();
    let expected = ["reported the tick", "second tick", "reported the microtask", "second microtask"];
    assert_eq!(order.so_far(), expected);
}

#[test]
fn a_timer_that_panics_leaves_the_timers_behind_it_theirs() {
    let order = Order::new();
    let mut event_loop = reporting_loop(&order);
    event_loop.set_timeout(milliseconds(1), panicking("the timer"));
    event_loop.set_timeout(milliseconds(1), add(&order, "second timer"));
    let unreferenced = Rc::new(Cell::new(None));
    let own = Rc::clone(&unreferenced);
    unreferenced.set(Some(event_loop.set_timeout(milliseconds(1), move |context| {
        context.ref_(own.get().unwrap());
        panic!("the one that referenced itself");
    })));
    event_loop.unref(unreferenced.get().unwrap());
    event_loop.set_timeout(milliseconds(1), add(&order, "fourth timer"));
    assert!(!event_loop.run().unwrap());
    let expected =
        ["reported the timer", "second timer", "reported the one that referenced itself", "fourth timer"];
    assert_eq!(order.so_far(), expected);
}

#[test]
fn an_interval_that_panics_beats_on() {
    let order = Order::new();
    let mut event_loop = reporting_loop(&order);
    let own = Rc::new(Cell::new(None));
    let (id, log) = (Rc::clone(&own), order.clone());
    own.set(Some(event_loop.set_interval(milliseconds(1), move |context| {
        if log.so_far().len() == 2 {
            context.clear(id.get().unwrap());
        }
        panic!("the beat");
    })));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["reported the beat"; 3]);
}

/// Those that were set meanwhile wait their iteration, and the ticks of the one that panicked come first.
#[test]
fn an_immediate_that_panics_leaves_the_rest_of_its_batch_and_only_that() {
    let order = Order::new();
    let mut event_loop = reporting_loop(&order);
    let log = order.clone();
    event_loop.set_immediate(move |context| {
        context.set_immediate(add(&log, "immediate of an immediate"));
        context.next_tick(add(&log, "tick"));
        panic!("the immediate");
    });
    event_loop.set_immediate(add(&order, "second immediate"));
    event_loop.set_immediate(add(&order, "third immediate"));
    let hook = event_loop.prepare(|_| {});
    event_loop.close(hook, add(&order, "closed")).unwrap();
    event_loop.run().unwrap();
    let expected = [
        "reported the immediate",
        "tick",
        "second immediate",
        "third immediate",
        "closed",
        "immediate of an immediate",
    ];
    assert_eq!(order.so_far(), expected);
}

#[test]
fn a_hook_that_panics_stays_and_the_hooks_behind_it_run() {
    let order = Order::new();
    let mut event_loop = reporting_loop(&order);
    event_loop.idle(panicking("the hook"));
    event_loop.idle(add(&order, "second hook"));
    event_loop.run_mode(RunMode::NoWait).unwrap();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far(), ["reported the hook", "second hook", "reported the hook", "second hook"]);
}

#[test]
fn a_watcher_that_panics_stays_and_is_called_again() {
    let order = Order::new();
    let mut event_loop = reporting_loop(&order);
    let (_peer, stream) = connection_with_a_byte();
    let (log, source) = (order.clone(), Rc::clone(&stream));
    let watch = event_loop.watch(source, Interest::READ, move |_, _| match log.so_far().len() {
        0 => panic!("the watcher"),
        _ => {
            receive(&stream);
            log.push("received".to_owned());
        }
    });
    watch.unwrap();
    for _ in 0..3 {
        event_loop.run_mode(RunMode::NoWait).unwrap();
    }
    assert_eq!(order.so_far(), ["reported the watcher", "received"]);
}

#[test]
fn the_report_names_the_phase_and_the_place_of_registration() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let log = order.clone();
    event_loop.set_panic_handler(move |_, panic| log.push((panic.phase, panic.site.line())));
    let line = line!();
    event_loop.next_tick(panicking("tick"));
    event_loop.set_pending(panicking("result"));
    event_loop.set_immediate(panicking("immediate"));
    event_loop.set_timeout(milliseconds(1), panicking("timer"));
    event_loop.run().unwrap();
    let phases = [Phase::Microtasks, Phase::Pending, Phase::Check, Phase::Timers];
    let expected: Vec<_> = phases.into_iter().zip(line + 1..).collect();
    assert_eq!(order.so_far(), expected);
}

#[test]
fn without_a_handler_a_panic_leaves_run_and_the_next_run_goes_on_behind_it() {
    let mut event_loop = virtual_loop();
    let order = Order::<String>::new();
    event_loop.next_tick(add(&order, "first tick"));
    event_loop.next_tick(panicking("the tick"));
    event_loop.next_tick(add(&order, "third tick"));
    event_loop.set_immediate(panicking("the immediate"));
    event_loop.set_immediate(add(&order, "second immediate"));
    event_loop.set_timeout(milliseconds(1), panicking("the timer"));
    event_loop.set_timeout(milliseconds(1), add(&order, "second timer"));
    expect_a_panic(&mut event_loop, "the tick");
    assert_eq!(order.so_far(), ["first tick"]);
    expect_a_panic(&mut event_loop, "the immediate");
    assert_eq!(order.so_far(), ["first tick", "third tick"]);
    expect_a_panic(&mut event_loop, "the timer");
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["first tick", "third tick", "second immediate", "second timer"]);
}

#[test]
fn without_a_handler_an_interval_and_a_hook_survive_their_own_panic() {
    let mut event_loop = virtual_loop();
    let interval = event_loop.set_interval(milliseconds(1), panicking("the beat"));
    expect_a_panic(&mut event_loop, "the beat");
    expect_a_panic(&mut event_loop, "the beat");
    assert!(event_loop.clear(interval));
    let hook = event_loop.idle(panicking("the hook"));
    expect_a_panic(&mut event_loop, "the hook");
    expect_a_panic(&mut event_loop, "the hook");
    event_loop.close(hook, |_| {}).unwrap();
    assert!(!event_loop.run().unwrap());
}

#[test]
fn without_a_handler_close_callbacks_behind_a_panic_run_in_the_next_run() {
    let mut event_loop = virtual_loop();
    let order = Order::<String>::new();
    let hooks = [event_loop.idle(|_| {}), event_loop.idle(|_| {})];
    event_loop.close(hooks[0], panicking("the close callback")).unwrap();
    event_loop.close(hooks[1], add(&order, "second closed")).unwrap();
    expect_a_panic(&mut event_loop, "the close callback");
    assert!(event_loop.is_alive());
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["second closed"]);
}

#[test]
fn a_panic_of_the_handler_itself_leaves_run() {
    let mut event_loop = virtual_loop();
    let order = Order::<String>::new();
    let log = order.clone();
    event_loop.set_panic_handler(move |_, panic| {
        log.push(panic.message().to_owned());
        panic!("{} was too much", panic.message());
    });
    event_loop.set_immediate(panicking("first"));
    event_loop.set_immediate(panicking("second"));
    expect_a_panic(&mut event_loop, "first was too much");
    expect_a_panic(&mut event_loop, "second was too much");
    assert_eq!(order.so_far(), ["first", "second"], "the handler stays");
}

#[test]
fn a_handler_may_use_the_loop_and_put_another_one_in_its_place() {
    let mut event_loop = virtual_loop();
    let order = Order::<String>::new();
    let log = order.clone();
    event_loop.set_panic_handler(move |context, panic| {
        log.push(format!("first handler: {}", panic.message()));
        context.next_tick(add(&log, "tick of the handler"));
        let log = log.clone();
        context.set_panic_handler(move |_, panic| log.push(format!("second handler: {}", panic.message())));
    });
    event_loop.set_immediate(panicking("one"));
    event_loop.set_immediate(panicking("two"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["first handler: one", "tick of the handler", "second handler: two"]);
}

#[test]
fn a_future_that_panics_is_reported_and_its_waiter_is_told() {
    let order = Order::new();
    let mut event_loop = reporting_loop(&order);
    let handle = event_loop.handle();
    let task = event_loop.spawn(async move {
        handle.sleep(milliseconds(1)).await;
        panic!("the future");
    });
    let log = order.clone();
    event_loop.spawn(async move {
        let result: Result<(), JoinError> = task.await;
        log.push(format!("joined {result:?}"));
    });
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["reported the future", "joined Err(Panicked)"]);
}
