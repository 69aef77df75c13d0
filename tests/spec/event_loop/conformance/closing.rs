//! Closing handles, and the callbacks that follow it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use offload_event_loop::{Context, Interest, RunMode};

use super::{connection, connection_with_a_byte, milliseconds, real_loop, send_a_byte, virtual_loop};
use crate::stage::Order;

#[test]
fn close_callbacks_run_at_the_end_of_the_iteration_never_at_once() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (log, own) = (order.clone(), Rc::new(Cell::new(None)));
    let id = Rc::clone(&own);
    own.set(Some(event_loop.prepare(move |context| {
        context.close(id.get().unwrap(), log.add("closed")).unwrap();
        log.push("prepare");
    })));
    event_loop.set_immediate(order.add("immediate"));
    event_loop.set_timeout(milliseconds(1), order.add("timer"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["prepare", "immediate", "closed", "timer"]);
}

/// Libuv calls them in the reverse order.
#[test]
fn close_callbacks_run_in_the_order_of_closing() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let hooks: Vec<_> = (0..10).map(|_| event_loop.idle(|_| {})).collect();
    for (number, hook) in hooks.into_iter().enumerate() {
        event_loop.close(hook, order.add(number)).unwrap();
    }
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), (0..10).collect::<Vec<_>>());
}

#[test]
fn what_a_timer_closes_is_followed_up_in_the_iteration_after_it() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (check, log, prepare) = (Rc::new(Cell::new(None)), order.clone(), event_loop.prepare(|_| {}));
    let own = Rc::clone(&check);
    check.set(Some(event_loop.check(move |context| {
        log.push("check");
        if log.so_far().len() > 1 {
            context.close(own.get().unwrap(), log.add("check closed")).unwrap();
        }
    })));
    let log = order.clone();
    event_loop.set_timeout(milliseconds(1), move |context| {
        log.push("timer");
        context.close(prepare, log.add("prepare closed")).unwrap();
    });
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["check", "timer", "check", "prepare closed", "check closed"]);
}

#[test]
fn a_handle_closed_by_a_close_callback_is_followed_up_in_the_next_iteration() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (first, second) = (event_loop.idle(|_| {}), event_loop.prepare(|_| {}));
    let log = order.clone();
    let close_second = move |context: &mut Context| {
        log.push("first closed");
        context.close(second, log.add("second closed")).unwrap();
        context.set_immediate(log.add("immediate"));
    };
    event_loop.close(first, close_second).unwrap();
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["first closed", "immediate", "second closed"]);
}

#[test]
fn a_closing_handle_keeps_the_loop_alive_even_if_it_was_unreferenced() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let hook = event_loop.prepare(|_| {});
    event_loop.unref(hook);
    assert!(!event_loop.is_alive());
    event_loop.close(hook, order.add("closed")).unwrap();
    assert!(event_loop.is_alive());
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["closed"]);
}

#[test]
fn one_iteration_is_enough_for_all_close_callbacks() {
    for mode in [RunMode::Once, RunMode::NoWait] {
        let mut event_loop = virtual_loop();
        let order = Order::new();
        for _ in 0..64 {
            let (_peer, stream) = connection();
            let watch = event_loop.watch(stream, Interest::READ | Interest::WRITE, |_, _| panic!("closed"));
            event_loop.close(watch.unwrap(), order.add("closed")).unwrap();
        }
        assert!(!event_loop.run_mode(mode).unwrap());
        assert_eq!(order.so_far().len(), 64);
    }
}

/// No callback is ever called from within a call of the loop's own functions.
#[test]
fn callbacks_start_from_a_fresh_stack() {
    let mut event_loop = real_loop();
    let (depth, order) = (Rc::new(Cell::new(0)), Order::new());
    let enter = Rc::clone(&depth);
    let (log, at) = (order.clone(), move |what: &'static str| {
        let (depth, log) = (Rc::clone(&depth), order.clone());
        move |_: &mut Context| log.push((what, depth.get()))
    });
    let (_peer, stream) = connection_with_a_byte();
    let own = Rc::new(Cell::new(None));
    let id = Rc::clone(&own);
    let watch = event_loop.watch(stream, Interest::READ, move |context, _| {
        enter.set(enter.get() + 1);
        context.close(id.get().unwrap(), at("closed")).unwrap();
        context.next_tick(at("tick"));
        context.queue_microtask(at("microtask"));
        context.set_immediate(at("immediate"));
        context.set_timeout(Duration::ZERO, at("timer"));
        context.set_pending(at("result"));
        context.stop();
        enter.set(enter.get() - 1);
    });
    own.set(Some(watch.unwrap()));
    event_loop.run().unwrap();
    event_loop.run().unwrap();
    let ran = log.so_far();
    let names: Vec<_> = ran.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["tick", "microtask", "result", "immediate", "closed", "timer"]);
    assert!(ran.iter().all(|(_, depth)| *depth == 0), "{ran:?}");
}

#[test]
fn a_watcher_that_closes_itself_is_not_called_again_and_gives_up_its_source() {
    let mut event_loop = real_loop();
    let order = Order::new();
    let (peer, stream) = connection_with_a_byte();
    let (log, own, source) = (order.clone(), Rc::new(Cell::new(None)), Rc::clone(&stream));
    let id = Rc::clone(&own);
    let watch = event_loop.watch(source, Interest::READ, move |context, _| {
        log.push("called");
        context.close(id.get().unwrap(), log.add("closed")).unwrap();
    });
    own.set(Some(watch.unwrap()));
    event_loop.run().unwrap();
    send_a_byte(&peer);
    assert!(!event_loop.run_mode(RunMode::NoWait).unwrap());
    assert_eq!(order.so_far(), ["called", "closed"]);
    assert_eq!(Rc::strong_count(&stream), 1);
}
