//! Timers and handles that do not keep a loop alive.

use std::cell::Cell;
use std::rc::Rc;

use offload_event_loop::{AliveKind, EventLoop, HandleId, Interest, LoopHandle, Phase, RunMode, TimerId};

use super::{
    compute_for, connection, connection_with_a_byte, milliseconds, real_loop, receive, virtual_loop,
};
use crate::stage::{Order, beside_others};

type Start = fn(&LoopHandle) -> HandleId;

/// Every kind of handle, by name.
fn kinds_of_handles() -> [(&'static str, Start); 5] {
    [
        ("idle", |handle| handle.idle(|_| {})),
        ("prepare", |handle| handle.prepare(|_| {})),
        ("check", |handle| handle.check(|_| {})),
        ("watch", |handle| handle.watch(connection().1, Interest::WRITE, |_, _| {}).unwrap()),
        ("signal", |handle| handle.on_signal(&[signal_hook::consts::SIGCONT], |_, _| {}).unwrap()),
    ]
}

#[test]
fn an_unreferenced_handle_of_any_kind_lets_the_loop_end() {
    for (name, start) in kinds_of_handles() {
        let mut event_loop = real_loop();
        let handle = start(&event_loop);
        assert!(event_loop.is_alive(), "{name}");
        event_loop.unref(handle);
        assert!(!event_loop.is_alive(), "{name}");
        assert!(!event_loop.run().unwrap(), "{name}");
        event_loop.ref_(handle);
        assert!(event_loop.is_alive(), "{name}");
    }
}

#[test]
fn referencing_and_unreferencing_twice_count_as_once() {
    for (name, start) in kinds_of_handles() {
        let event_loop = real_loop();
        let handle = start(&event_loop);
        event_loop.ref_(handle);
        event_loop.unref(handle);
        assert!(!event_loop.is_alive(), "{name}");
        event_loop.unref(handle);
        event_loop.ref_(handle);
        assert!(event_loop.is_alive(), "{name}");
    }
    let kinds_of_timers: [fn(&LoopHandle) -> TimerId; 2] = [
        |handle| handle.set_timeout(milliseconds(1), |_| {}),
        |handle| handle.set_interval(milliseconds(1), |_| {}),
    ];
    for start in kinds_of_timers {
        let event_loop = real_loop();
        let timer = start(&event_loop);
        event_loop.ref_(timer);
        event_loop.unref(timer);
        event_loop.unref(timer);
        assert!(!event_loop.is_alive());
        event_loop.ref_(timer);
        assert!(event_loop.is_alive());
        assert!(event_loop.clear(timer));
        assert!(!event_loop.is_alive());
    }
}

#[test]
fn unreferencing_what_is_gone_changes_nothing() {
    let mut event_loop = virtual_loop();
    let (timer, hook) = (event_loop.set_timeout(milliseconds(1), |_| {}), event_loop.idle(|_| {}));
    event_loop.close(hook, |_| {}).unwrap();
    event_loop.run().unwrap();
    let kept = event_loop.set_timeout(milliseconds(1), |_| {});
    event_loop.unref(timer);
    event_loop.unref(hook);
    assert!(event_loop.is_alive());
    event_loop.unref(kept);
    event_loop.ref_(timer);
    event_loop.ref_(hook);
    assert!(!event_loop.is_alive());
}

#[test]
fn an_unreferenced_timer_runs_if_something_else_keeps_the_loop_long_enough() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    for (delay, name) in [(10, "short timeout"), (10_000, "long timeout")] {
        let timer = event_loop.set_timeout(milliseconds(delay), order.add(name));
        event_loop.unref(timer);
    }
    let interval = event_loop.set_interval(milliseconds(20), order.add("interval"));
    event_loop.unref(interval);
    event_loop.set_timeout(milliseconds(50), order.add("referenced"));
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["short timeout", "interval", "interval", "referenced"]);
}

#[test]
fn an_unreferenced_timer_alone_does_not_run_even_if_it_is_due() {
    let _beside = beside_others();
    for mode in [RunMode::Default, RunMode::Once, RunMode::NoWait] {
        let mut event_loop = real_loop();
        let timer = event_loop.set_timeout(milliseconds(1), |_| panic!("nothing keeps the loop alive"));
        event_loop.unref(timer);
        compute_for(milliseconds(2));
        assert!(!event_loop.run_mode(mode).unwrap());
    }
}

#[test]
fn an_interval_that_unreferences_itself_beats_once() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (log, own) = (order.clone(), Rc::new(Cell::new(None)));
    let id = Rc::clone(&own);
    own.set(Some(event_loop.set_interval(milliseconds(100), move |context| {
        log.push("beat");
        context.unref(id.get().unwrap());
    })));
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["beat"]);
}

#[test]
fn an_interval_that_references_itself_again_keeps_the_loop_from_then_on() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (log, own) = (order.clone(), Rc::new(Cell::new(None)));
    let id = Rc::clone(&own);
    own.set(Some(event_loop.set_interval(milliseconds(10), move |context| {
        log.push("beat");
        match log.so_far().len() {
            1 => context.ref_(id.get().unwrap()),
            3 => assert!(context.clear(id.get().unwrap())),
            _ => {}
        }
    })));
    event_loop.unref(own.get().unwrap());
    event_loop.set_timeout(milliseconds(10), |_| {});
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["beat", "beat", "beat"]);
}

#[test]
fn a_timeout_that_unreferences_itself_while_it_runs_does_no_harm() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let own = Rc::new(Cell::new(None));
    let id = Rc::clone(&own);
    own.set(Some(event_loop.set_timeout(milliseconds(1), move |context| {
        context.unref(id.get().unwrap());
        context.ref_(id.get().unwrap());
    })));
    event_loop.set_timeout(milliseconds(2), order.add("another"));
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["another"]);
}

#[test]
fn clearing_one_of_two_unreferenced_timers_leaves_the_other() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let timers = ["first", "second"].map(|name| event_loop.set_timeout(milliseconds(1), order.add(name)));
    timers.into_iter().for_each(|timer| event_loop.unref(timer));
    assert!(event_loop.clear(timers[0]));
    event_loop.set_timeout(milliseconds(5), order.add("referenced"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["second", "referenced"]);
}

#[test]
fn an_unreferenced_watcher_is_called_as_long_as_the_loop_runs() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (_peer, stream) = connection_with_a_byte();
    let (log, source) = (order.clone(), Rc::clone(&stream));
    let watch = event_loop.watch(source, Interest::READ, move |_, _| {
        receive(&stream);
        log.push("input");
    });
    event_loop.unref(watch.unwrap());
    event_loop.set_timeout(milliseconds(1), order.add("timer"));
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["input", "timer"]);
}

#[test]
fn the_places_that_keep_a_loop_alive_are_those_of_its_referenced_handles_and_timers() {
    let event_loop = virtual_loop();
    let first_line = line!() + 1;
    let timer = event_loop.set_timeout(milliseconds(1), |_| {});
    let hook = event_loop.prepare(|_| {});
    let other = event_loop.check(|_| {});
    let why = |event_loop: &EventLoop| -> Vec<(AliveKind, u32)> {
        let reasons = event_loop.why_alive();
        assert!(reasons.iter().all(|alive| alive.site.file().ends_with("references.rs") && alive.count == 1));
        reasons.iter().map(|alive| (alive.what, alive.site.line() - first_line)).collect()
    };
    assert_eq!(why(&event_loop), [(AliveKind::Timer, 0), (AliveKind::Hook, 1), (AliveKind::Hook, 2)]);
    event_loop.unref(hook);
    assert!(event_loop.clear(timer));
    assert_eq!(why(&event_loop), [(AliveKind::Hook, 2)]);
    let line_of_close = line!() + 1 - first_line;
    event_loop.close(other, |_| {}).unwrap();
    assert_eq!(why(&event_loop), [(AliveKind::Callback(Phase::Closing), line_of_close)]);
}
