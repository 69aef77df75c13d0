//! What keeps a loop alive, its clock, and its end.

use std::rc::Rc;
use std::time::Duration;

use offload_event_loop::{Interest, LoopGone, LoopHandle, RunMode};

use super::{compute_for, connection, milliseconds, real_loop, virtual_loop};
use crate::stage::{Order, beside_others};

#[test]
fn a_loop_is_alive_from_the_start_of_a_timer_to_its_end() {
    let mut event_loop = virtual_loop();
    assert!(!event_loop.is_alive());
    event_loop.set_timeout(milliseconds(100), |_| {});
    assert!(event_loop.is_alive());
    assert!(!event_loop.run().unwrap());
    assert!(!event_loop.is_alive());
}

#[test]
fn every_kind_of_waiting_callback_keeps_a_loop_alive_until_it_has_run() {
    type Start = fn(&LoopHandle);
    let kinds: [(&str, Start); 6] = [
        ("tick", |handle| handle.next_tick(|_| {})),
        ("microtask", |handle| handle.queue_microtask(|_| {})),
        ("immediate", |handle| {
            handle.set_immediate(|_| {});
        }),
        ("result", |handle| handle.set_pending(|_| {})),
        ("post", |handle| handle.remote().post(|_| {}).unwrap()),
        ("request", |handle| handle.request(|_, ()| {}).complete(()).unwrap()),
    ];
    for (name, start) in kinds {
        let mut event_loop = virtual_loop();
        start(&event_loop);
        assert!(event_loop.is_alive(), "{name}");
        assert!(!event_loop.run().unwrap(), "{name}");
        assert!(!event_loop.is_alive(), "{name}");
    }
}

#[test]
fn the_time_to_wait_follows_from_what_is_there() {
    let mut event_loop = virtual_loop();
    assert_eq!(event_loop.backend_timeout(), Some(Duration::ZERO), "a loop of nothing does not wait");
    let (_silent, stream) = connection();
    let watch = event_loop.watch(stream, Interest::READ, |_, _| {}).unwrap();
    assert_eq!(event_loop.backend_timeout(), None, "a descriptor is waited for without an end");
    let timer = event_loop.set_timeout(Duration::from_secs(1), |_| {});
    let wait = event_loop.backend_timeout().unwrap();
    let a_tick = Duration::from_micros(66);
    assert!(wait >= Duration::from_secs(1) && wait < Duration::from_secs(1) + a_tick, "{wait:?}");
    let idle = event_loop.idle(|_| {});
    assert_eq!(event_loop.backend_timeout(), Some(Duration::ZERO), "idle hooks run without a wait");
    event_loop.close(idle, |_| {}).unwrap();
    assert_eq!(event_loop.backend_timeout(), Some(Duration::ZERO), "a close callback waits");
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert!(event_loop.clear(timer));
    event_loop.stop();
    assert_eq!(event_loop.backend_timeout(), Some(Duration::ZERO), "a stopped loop does not wait");
    event_loop.run().unwrap();
    event_loop.close(watch, |_| {}).unwrap();
    event_loop.run().unwrap();
    assert_eq!(event_loop.backend_timeout(), Some(Duration::ZERO), "there is nothing left to wait for");
}

#[test]
fn the_time_of_the_loop_stands_still_in_a_callback_until_it_is_updated() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let order = Order::new();
    let log = order.clone();
    event_loop.set_immediate(move |context| {
        let before = context.now();
        compute_for(milliseconds(2));
        log.push(context.now() - before);
        context.update_time();
        log.push(context.now() - before);
    });
    event_loop.run().unwrap();
    assert_eq!(order.so_far()[0], Duration::ZERO);
    assert!(order.so_far()[1] >= milliseconds(2));
}

/// Libuv refuses to close a loop with open handles; here the end of a loop is the end of what it owns.
#[test]
fn a_dropped_loop_drops_its_callbacks_unrun_and_its_sources() {
    let event_loop = real_loop();
    let order = Order::<&str>::new();
    let owned = Rc::new(());
    let (_peer, stream) = connection();
    let witness = || Rc::clone(&owned);
    let (tick, timer, immediate, watch, idle) = (witness(), witness(), witness(), witness(), witness());
    let log = order.clone();
    event_loop.next_tick(move |_| drop(tick));
    event_loop.set_timeout(Duration::ZERO, move |_| drop(timer));
    event_loop.set_immediate(move |_| drop(immediate));
    event_loop.idle(move |_| log.push(if Rc::strong_count(&idle) > 0 { "run" } else { "" }));
    event_loop
        .watch(Rc::clone(&stream), Interest::READ, move |_, _| assert!(Rc::strong_count(&watch) > 0))
        .unwrap();
    assert_eq!((Rc::strong_count(&owned), Rc::strong_count(&stream)), (6, 2));
    let (handle, remote) = (event_loop.handle(), event_loop.remote());
    drop(event_loop);
    assert_eq!((Rc::strong_count(&owned), Rc::strong_count(&stream)), (1, 1));
    assert_eq!(order.so_far(), [""; 0]);
    assert_eq!(remote.post(|_| {}), Err(LoopGone));
    assert!(!handle.is_alive());
}

#[test]
fn two_loops_of_one_thread_know_nothing_of_each_other() {
    let (mut one, mut other) = (virtual_loop(), virtual_loop());
    let order = Order::new();
    one.set_timeout(milliseconds(1), order.add("one"));
    one.next_tick(order.add("tick of one"));
    other.set_timeout(milliseconds(1), order.add("other"));
    other.next_tick(order.add("tick of other"));
    other.stop();
    one.run().unwrap();
    assert_eq!(order.so_far(), ["tick of one", "one"]);
    assert!(other.run().unwrap());
    other.run().unwrap();
    assert_eq!(order.so_far(), ["tick of one", "one", "tick of other", "other"]);
}

#[test]
fn a_hold_keeps_a_loop_alive_as_long_as_any_of_its_clones() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let hold = event_loop.hold();
    let second = hold.clone();
    let timer = event_loop.set_timeout(milliseconds(5), move |_| drop(second));
    event_loop.unref(timer);
    event_loop.set_timeout(milliseconds(1), move |_| drop(hold));
    let late = event_loop.set_timeout(milliseconds(9), order.add("nobody waits for it"));
    event_loop.unref(late);
    assert!(!event_loop.run().unwrap());
    assert!(event_loop.clear(late) && !event_loop.clear(timer));
}
