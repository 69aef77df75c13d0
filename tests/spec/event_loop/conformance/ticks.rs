//! Ticks: all of them run after every single callback, before the loop goes on.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use offload_event_loop::{Context, RunMode};

use super::{connection_with_a_byte, milliseconds, real_loop, receive, virtual_loop};
use crate::stage::{Order, beside_others};
use offload_event_loop::Interest;

#[test]
fn ticks_run_in_the_order_of_their_queueing() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    for number in 0..100 {
        event_loop.next_tick(order.add(number));
    }
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), (0..100).collect::<Vec<_>>());
}

#[test]
fn ticks_queued_by_a_tick_run_behind_those_that_wait_but_before_any_timer() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let log = order.clone();
    event_loop.set_timeout(Duration::ZERO, order.add("older timer"));
    event_loop.next_tick(move |context| {
        context.set_timeout(Duration::ZERO, log.add("timer"));
        context.next_tick(log.add("tick of a tick"));
    });
    event_loop.next_tick(order.add("second tick"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["second tick", "tick of a tick", "older timer", "timer"]);
}

#[test]
fn a_tick_alone_is_run_and_does_not_keep_the_loop() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    event_loop.next_tick(order.add("tick"));
    assert!(event_loop.is_alive());
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["tick"]);
    assert!(!event_loop.is_alive());
}

/// What `queue` makes twice must run as: callback, its tick, callback, its tick.
#[track_caller]
fn expect_a_tick_after_each(queue: impl Fn(&mut Context, Box<dyn FnOnce(&mut Context)>)) {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    for name in ["first", "second"] {
        let log = order.clone();
        let callback = move |context: &mut Context| {
            log.push((name, "callback"));
            context.next_tick(log.add((name, "tick")));
        };
        queue(&mut event_loop, Box::new(callback));
    }
    event_loop.run().unwrap();
    let expected = [("first", "callback"), ("first", "tick"), ("second", "callback"), ("second", "tick")];
    assert_eq!(order.so_far(), expected);
}

#[test]
fn ticks_run_between_two_timers_of_the_same_time() {
    expect_a_tick_after_each(|context, callback| {
        context.set_timeout(milliseconds(1), callback);
    });
}

#[test]
fn ticks_run_between_two_immediates() {
    expect_a_tick_after_each(|context, callback| {
        context.set_immediate(callback);
    });
}

#[test]
fn ticks_run_between_two_results_that_were_put_off() {
    expect_a_tick_after_each(|context, callback| context.set_pending(callback));
}

#[test]
fn ticks_run_between_two_close_callbacks() {
    expect_a_tick_after_each(|context, callback| {
        let handle = context.idle(|_| {});
        context.close(handle, callback).unwrap();
    });
}

#[test]
fn ticks_run_between_two_hooks_of_each_phase() {
    type AddHook = fn(&mut Context, Box<dyn FnMut(&mut Context)>) -> offload_event_loop::HandleId;
    let kinds: [AddHook; 3] = [
        |context, hook| context.idle(hook),
        |context, hook| context.prepare(hook),
        |context, hook| context.check(hook),
    ];
    for add in kinds {
        expect_a_tick_after_each(|context, callback| {
            let (mut callback, own) = (Some(callback), Rc::new(Cell::new(None)));
            let id = Rc::clone(&own);
            own.set(Some(add(
                context,
                Box::new(move |context| {
                    callback.take().unwrap()(context);
                    context.close(id.get().unwrap(), |_| {}).unwrap();
                }),
            )));
            // So that an iteration does not wait for ever, as it does with nothing but a prepare hook.
            context.set_immediate(|_| {});
        });
    }
}

#[test]
fn ticks_run_between_two_watchers_that_are_ready_together() {
    let mut peers = Vec::new();
    let mut event_loop = virtual_loop();
    let order = Order::new();
    for name in ["one", "other"] {
        let (peer, stream) = connection_with_a_byte();
        peers.push(peer);
        let (log, own) = (order.clone(), Rc::new(Cell::new(None)));
        let (id, source) = (Rc::clone(&own), Rc::clone(&stream));
        let watch = event_loop.watch(source, Interest::READ, move |context, _| {
            receive(&stream);
            log.push((name, "callback"));
            context.next_tick(log.add((name, "tick")));
            context.close(id.get().unwrap(), |_| {}).unwrap();
        });
        own.set(Some(watch.unwrap()));
    }
    event_loop.run().unwrap();
    let order = order.so_far();
    assert_eq!(order.len(), 4);
    for pair in order.chunks(2) {
        assert_eq!((pair[0].1, pair[1].1, pair[0].0), ("callback", "tick", pair[1].0), "{order:?}");
    }
}

#[test]
fn ticks_run_between_two_posts() {
    let mut event_loop = virtual_loop();
    let (sender, receiver) = std::sync::mpsc::channel();
    for name in ["first", "second"] {
        let sender = sender.clone();
        let post = move |context: &mut Context| {
            sender.send((name, "callback")).unwrap();
            context.next_tick(move |_| sender.send((name, "tick")).unwrap());
        };
        event_loop.remote().post(post).unwrap();
    }
    event_loop.run().unwrap();
    let expected = [("first", "callback"), ("first", "tick"), ("second", "callback"), ("second", "tick")];
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn chained_ticks_come_before_a_timer_that_is_long_due() {
    let _beside = beside_others();
    fn spin(context: &mut Context, until: Instant, order: Order) {
        match Instant::now() < until {
            true => context.next_tick(move |context| spin(context, until, order)),
            false => order.push("the last tick"),
        }
    }
    let mut event_loop = real_loop();
    let order = Order::new();
    event_loop.set_timeout(milliseconds(1), order.add("timer"));
    let (until, log) = (Instant::now() + milliseconds(20), order.clone());
    event_loop.next_tick(move |context| spin(context, until, log));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["the last tick", "timer"]);
}

/// A queue that grows in blocks may lose its way exactly where a block ends.
#[test]
fn ticks_queued_in_large_numbers_by_a_microtask_all_run_before_the_loop_goes_on() {
    for count in [2_047, 2_048, 2_049] {
        let mut event_loop = virtual_loop();
        let ran = Rc::new(Cell::new(0));
        let counter = Rc::clone(&ran);
        event_loop.next_tick(move |context| {
            context.queue_microtask(move |context| {
                for _ in 0..count {
                    let counter = Rc::clone(&counter);
                    context.next_tick(move |_| counter.set(counter.get() + 1));
                }
                let immediate = context.set_immediate(|_| panic!("a tick has taken it back"));
                context.next_tick(move |context| assert!(context.clear(immediate)));
            });
        });
        event_loop.run().unwrap();
        assert_eq!(ran.get(), count);
    }
}

#[test]
fn a_tick_of_the_last_callback_may_keep_the_loop_going() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let log = order.clone();
    event_loop.set_timeout(milliseconds(1), move |context| {
        context.next_tick(move |context| {
            context.set_timeout(milliseconds(1), log.add("timer of a tick"));
        });
    });
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["timer of a tick"]);
}

#[test]
fn ticks_of_the_entry_run_in_every_mode_even_when_the_loop_was_told_to_stop() {
    for mode in [RunMode::Default, RunMode::Once, RunMode::NoWait] {
        let mut event_loop = virtual_loop();
        let order = Order::new();
        event_loop.next_tick(order.add("tick"));
        event_loop.set_immediate(order.add("immediate"));
        event_loop.stop();
        event_loop.run_mode(mode).unwrap();
        assert_eq!(order.so_far(), ["tick"], "{mode:?}");
    }
}
