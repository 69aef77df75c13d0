//! Wrong calls: each gets an error that names the mistake, and the loop goes on.

use std::cell::Cell;
use std::fs::File;
use std::process::Command;
use std::rc::Rc;

use offload_event_loop::{Context, EventLoop, HandleId, Interest, LoopError, LoopHandle, RunMode};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGCONT;

use super::{connection, connection_with_a_byte, milliseconds, real_loop, virtual_loop};
use crate::stage::{Order, beside_others};

#[test]
fn closing_twice_is_refused_and_the_second_callback_does_not_run() {
    let kinds: [fn(&LoopHandle) -> HandleId; 3] = [
        |handle| handle.idle(|_| {}),
        |handle| handle.watch(connection().0, Interest::READ, |_, _| {}).unwrap(),
        |handle| handle.on_signal(&[SIGCONT], |_, _| {}).unwrap(),
    ];
    for start in kinds {
        let mut event_loop = real_loop();
        let order = Order::new();
        let handle = start(&event_loop);
        event_loop.close(handle, order.add("closed")).unwrap();
        let refused = event_loop.close(handle, order.add("closed twice")).unwrap_err();
        assert!(matches!(refused, LoopError::AlreadyClosed));
        assert!(refused.to_string().contains("closed before"));
        event_loop.run().unwrap();
        assert!(event_loop.close(handle, order.add("closed late")).is_err());
        assert!(!event_loop.run().unwrap());
        assert_eq!(order.so_far(), ["closed"]);
    }
}

#[test]
fn a_closed_watcher_cannot_be_started_again() {
    let mut event_loop = real_loop();
    let (_peer, stream) = connection_with_a_byte();
    let watch = event_loop.watch(stream, Interest::NONE, |_, _| panic!("it is closed")).unwrap();
    event_loop.close(watch, |_| {}).unwrap();
    for _ in 0..2 {
        let refused = event_loop.set_interest(watch, Interest::READ).unwrap_err();
        assert!(matches!(refused, LoopError::AlreadyClosed));
        event_loop.run().unwrap();
    }
}

#[test]
fn the_name_of_a_closed_handle_does_not_reach_the_one_in_its_place() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let old = event_loop.check(|_| {});
    event_loop.close(old, |_| {}).unwrap();
    event_loop.run().unwrap();
    let new = event_loop.check(order.add("new"));
    assert_ne!(old, new);
    assert!(event_loop.close(old, |_| {}).is_err());
    event_loop.unref(old);
    assert!(event_loop.is_alive());
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far(), ["new"]);
}

#[test]
fn what_watches_nothing_has_no_interest_to_set() {
    let event_loop = real_loop();
    let signals = event_loop.on_signal(&[SIGCONT], |_, _| {}).unwrap();
    for handle in [event_loop.idle(|_| {}), signals] {
        let refused = event_loop.set_interest(handle, Interest::READ).unwrap_err();
        assert!(matches!(refused, LoopError::NotAWatcher));
        assert!(refused.to_string().contains("watches no descriptor"));
    }
}

#[test]
fn a_second_watcher_of_a_descriptor_is_refused_and_the_first_goes_on() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (_peer, stream) = connection_with_a_byte();
    let log = order.clone();
    event_loop.watch(Rc::clone(&stream), Interest::READ, move |_, _| log.push("first")).unwrap();
    let refused = event_loop.watch(stream, Interest::WRITE, |_, _| panic!("refused")).unwrap_err();
    assert!(matches!(refused, LoopError::AlreadyWatched));
    assert!(refused.to_string().contains("watched already"));
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far(), ["first"]);
}

/// A watcher that rests has not yet told the kernel, so the mistake shows when it wants to look.
#[test]
fn a_second_watcher_of_a_descriptor_may_rest_but_not_look() {
    let mut event_loop = virtual_loop();
    let (_peer, stream) = connection();
    let first = event_loop.watch(Rc::clone(&stream), Interest::READ, |_, _| {}).unwrap();
    let second = event_loop.watch(stream, Interest::NONE, |_, _| {}).unwrap();
    let refused = event_loop.set_interest(second, Interest::READ).unwrap_err();
    assert!(matches!(refused, LoopError::AlreadyWatched));
    event_loop.set_interest(first, Interest::NONE).unwrap();
    assert!(!event_loop.is_alive(), "the refused interest was not taken on");
    event_loop.set_interest(second, Interest::READ).unwrap();
    assert!(event_loop.is_alive());
    event_loop.close(second, |_| {}).unwrap();
    event_loop.run().unwrap();
}

#[test]
fn a_regular_file_and_a_directory_cannot_be_watched() {
    let mut event_loop = real_loop();
    let folder = tempfile::tempdir().unwrap();
    let file = File::create(folder.path().join("file")).unwrap();
    for source in [file, File::open(folder.path()).unwrap()] {
        let refused = event_loop.watch(source, Interest::READ, |_, _| {}).unwrap_err();
        assert!(matches!(refused, LoopError::NotWatchable));
        assert!(refused.to_string().contains("regular file"));
    }
    assert!(!event_loop.run().unwrap());
}

#[test]
fn a_run_within_a_run_is_refused_whatever_callback_asks_for_it() {
    fn expect_refusal(context: &mut Context, order: &Order<bool>) {
        for mode in [RunMode::Default, RunMode::Once, RunMode::NoWait] {
            let refused = context.run_mode(mode).unwrap_err();
            assert!(refused.to_string().contains("running already"));
            order.push(matches!(refused, LoopError::NestedRun));
        }
    }
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let callback = || {
        let order = order.clone();
        move |context: &mut Context| expect_refusal(context, &order)
    };
    event_loop.next_tick(callback());
    event_loop.set_immediate(callback());
    event_loop.set_timeout(milliseconds(1), callback());
    let hook = event_loop.idle(|_| {});
    event_loop.close(hook, callback()).unwrap();
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), [true; 12]);
}

#[test]
fn a_run_within_a_run_that_was_refused_leaves_the_rest_of_the_run_in_peace() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let ran = Rc::new(Cell::new(false));
    let tried = Rc::clone(&ran);
    event_loop.set_immediate(move |context| {
        context.set_immediate(|_| {});
        tried.set(context.run().is_err());
    });
    event_loop.set_immediate(order.add("second immediate"));
    event_loop.set_timeout(milliseconds(1), order.add("timer"));
    assert!(!event_loop.run().unwrap());
    assert!(ran.get());
    assert_eq!(order.so_far(), ["second immediate", "timer"]);
}

const CHILD: &str = "OFFLOAD_TEST_WITHOUT_DESCRIPTORS";

/// In a process of its own: the others need their descriptors.
#[test]
fn being_out_of_descriptors_is_an_error_by_name_and_the_loop_goes_on() {
    if std::env::var_os(CHILD).is_some() {
        return run_out_of_descriptors();
    }
    let _beside = beside_others();
    let own_name = "conformance::misuse::being_out_of_descriptors_is_an_error_by_name_and_the_loop_goes_on";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", own_name, "--nocapture"])
        .env(CHILD, "yes")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn run_out_of_descriptors() {
    let mut event_loop = real_loop();
    let order = Order::new();
    let before = getrlimit(Resource::Nofile);
    // Not 0: the kernel's poll takes no more descriptors than the limit says, and the loop gives it one.
    setrlimit(Resource::Nofile, Rlimit { current: Some(1), maximum: before.maximum }).unwrap();
    let refusals =
        [EventLoop::new().err().unwrap(), event_loop.on_signal(&[SIGCONT], |_, _| {}).unwrap_err()];
    for refused in refusals {
        assert!(matches!(refused, LoopError::OutOfDescriptors), "{refused:?}");
        assert!(refused.to_string().contains("out of file descriptors"));
    }
    event_loop.set_timeout(milliseconds(1), order.add("timer"));
    assert!(!event_loop.run().unwrap());
    setrlimit(Resource::Nofile, before).unwrap();
    EventLoop::new().unwrap().run().unwrap();
    assert_eq!(order.so_far(), ["timer"]);
}
