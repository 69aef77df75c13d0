//! Immediates: once each, in the check phase right after the poll.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use offload_event_loop::{Context, Interest, RunMode};

use super::{
    compute_for, connection, connection_with_a_byte, milliseconds, real_loop, receive, virtual_loop,
};
use crate::stage::{Order, beside_others};

#[test]
fn immediates_of_immediates_wait_until_the_timers_had_their_turn() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let order = Order::new();
    for number in 0..10 {
        let log = order.clone();
        event_loop.set_immediate(move |context| {
            log.push(("outer", number));
            context.set_immediate(log.add(("inner", number)));
        });
    }
    let log = order.clone();
    event_loop.set_immediate(move |context| {
        context.set_timeout(milliseconds(1), log.add(("timer", 0)));
        compute_for(milliseconds(2));
    });
    event_loop.run().unwrap();
    let numbered = |name| (0..10).map(move |number| (name, number));
    let expected: Vec<_> = numbered("outer").chain([("timer", 0)]).chain(numbered("inner")).collect();
    assert_eq!(order.so_far(), expected);
}

#[test]
fn an_endless_chain_of_immediates_starves_no_timer() {
    let _beside = beside_others();
    fn chain(context: &mut Context, done: Rc<Cell<bool>>, give_up: Instant) {
        assert!(Instant::now() < give_up, "the timer never came");
        if !done.get() {
            context.set_immediate(move |context| chain(context, done, give_up));
        }
    }
    let mut event_loop = real_loop();
    let done = Rc::new(Cell::new(false));
    let ended = Rc::clone(&done);
    event_loop.set_timeout(milliseconds(2), move |_| ended.set(true));
    chain(&mut event_loop, Rc::clone(&done), Instant::now() + Duration::from_secs(20));
    event_loop.run().unwrap();
    assert!(done.get());
}

#[test]
fn an_immediate_takes_back_all_behind_it_and_the_loop_ends() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let victims = Order::new();
    let (log, condemned) = (order.clone(), victims.clone());
    event_loop.set_immediate(move |context| {
        log.push("first");
        assert!(condemned.so_far().into_iter().all(|victim| context.clear(victim)));
    });
    victims.push(event_loop.set_immediate(order.add("second")));
    victims.push(event_loop.set_immediate(order.add("third")));
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["first"]);
}

#[test]
fn a_tick_between_two_immediates_takes_back_the_later_ones() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let victims = Order::new();
    let condemned = victims.clone();
    event_loop.set_immediate(move |context| {
        context.next_tick(move |context| {
            assert!(condemned.so_far().into_iter().all(|victim| context.clear(victim)));
        });
    });
    victims.push(event_loop.set_immediate(order.add("second")));
    victims.push(event_loop.set_immediate(order.add("third")));
    event_loop.set_immediate(order.add("fourth"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["fourth"]);
}

#[test]
fn an_immediate_can_be_taken_back_once_and_not_while_or_after_it_runs() {
    let mut event_loop = virtual_loop();
    let waiting = event_loop.set_immediate(|_| panic!("it was taken back"));
    assert!(event_loop.clear(waiting));
    assert!(!event_loop.clear(waiting));
    let own = Rc::new(Cell::new(None));
    let id = Rc::clone(&own);
    own.set(Some(event_loop.set_immediate(move |context| assert!(!context.clear(id.get().unwrap())))));
    event_loop.run().unwrap();
    assert!(!event_loop.clear(own.get().unwrap()));
}

#[test]
fn an_immediate_that_is_taken_back_does_not_keep_the_loop_alive() {
    let mut event_loop = virtual_loop();
    let immediate = event_loop.set_immediate(|_| {});
    assert!(event_loop.is_alive());
    assert!(event_loop.clear(immediate));
    assert!(!event_loop.is_alive());
    assert!(!event_loop.run().unwrap());
}

#[test]
fn poll_does_not_wait_while_an_immediate_exists() {
    let mut event_loop = real_loop();
    let (_silent, stream) = connection();
    let watch = event_loop.watch(stream, Interest::READ, |_, _| panic!("nobody sends"));
    let watch = watch.unwrap();
    // If poll waited here, it would wait for ever.
    event_loop.set_immediate(move |context| context.close(watch, |_| {}).unwrap());
    assert!(!event_loop.run().unwrap());
}

#[test]
fn an_immediate_of_an_input_callback_runs_in_the_same_iteration_and_before_any_timer() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let order = Order::new();
    let (_peer, stream) = connection_with_a_byte();
    let (log, source) = (order.clone(), Rc::clone(&stream));
    let watch = event_loop.watch(source, Interest::READ, move |context, _| {
        receive(&stream);
        context.set_timeout(milliseconds(1), log.add("timer"));
        compute_for(milliseconds(2));
        context.set_immediate(log.add("immediate"));
    });
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far(), ["immediate", "timer"]);
    event_loop.close(watch.unwrap(), |_| {}).unwrap();
}

#[test]
fn an_immediate_of_a_close_callback_runs_in_the_next_iteration() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let order = Order::new();
    let (hook, log) = (event_loop.idle(|_| {}), order.clone());
    let close = move |context: &mut Context| {
        log.push("closed");
        context.set_immediate(log.add("immediate"));
        context.set_timeout(milliseconds(1), log.add("timer"));
        compute_for(milliseconds(2));
    };
    event_loop.close(hook, close).unwrap();
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["closed", "timer", "immediate"]);
}

#[test]
fn an_unreferenced_immediate_alone_does_not_run_and_one_that_is_referenced_again_does() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let immediate = event_loop.set_immediate(order.add("immediate"));
    event_loop.unref(immediate);
    event_loop.unref(immediate);
    assert!(!event_loop.is_alive() && event_loop.why_alive().is_empty());
    assert!(!event_loop.run().unwrap());
    assert!(order.so_far().is_empty());
    event_loop.ref_(immediate);
    assert!(event_loop.is_alive());
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["immediate"]);
    // Its name is over.
    event_loop.ref_(immediate);
    assert!(!event_loop.is_alive());
}

#[test]
fn an_unreferenced_immediate_runs_if_something_else_keeps_the_loop_and_lets_the_poll_wait_for_that() {
    let mut event_loop = real_loop();
    let order = Order::new();
    let (peer, stream) = connection();
    let (log, source) = (order.clone(), Rc::clone(&stream));
    let watch = event_loop.watch(source, Interest::READ, move |_, _| {
        receive(&stream);
        log.push("input");
    });
    let unreferenced = event_loop.set_immediate(order.add("unreferenced"));
    event_loop.unref(unreferenced);
    assert_eq!(event_loop.backend_timeout(), None, "the poll would wait for ever");
    let cleared = event_loop.set_immediate(order.add("cleared"));
    event_loop.unref(cleared);
    assert!(event_loop.clear(cleared));
    super::send_a_byte(&peer);
    event_loop.run_mode(RunMode::Once).unwrap();
    assert_eq!(order.so_far(), ["input", "unreferenced"]);
    event_loop.close(watch.unwrap(), |_| {}).unwrap();
}

#[test]
fn an_unreferenced_immediate_keeps_its_place_in_the_line() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    event_loop.set_immediate(order.add("first"));
    let second = event_loop.set_immediate(order.add("second"));
    event_loop.set_immediate(order.add("third"));
    event_loop.unref(second);
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["first", "second", "third"]);
}
