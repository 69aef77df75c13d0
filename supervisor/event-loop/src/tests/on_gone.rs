//! What is called when the loop is dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::forks::{expect_an_end, loop_of_the_parent};
use super::*;

#[test]
fn what_waits_for_the_drop_of_the_loop_is_called_once_in_the_order_of_its_registration() {
    let (mut event_loop, log) = (virtual_loop(), Log::default());
    let [first, second] = ["first", "second"].map(|name| {
        let log = log.clone();
        event_loop.on_gone(move || log.add(name))
    });
    assert!(!event_loop.run().unwrap(), "it keeps no loop alive");
    log.expect(&[]);
    let handle = event_loop.handle();
    drop(event_loop);
    log.expect(&["first", "second"]);
    drop((handle, second, first));
    log.expect(&["first", "second"]);
}

#[test]
fn a_callback_whose_guard_is_dropped_first_is_dropped_uncalled() {
    let (event_loop, witness) = (virtual_loop(), Rc::new(()));
    let owned = Rc::clone(&witness);
    let taken_back = event_loop.on_gone(move || panic!("{owned:?}"));
    drop(taken_back);
    assert_eq!(Rc::strong_count(&witness), 1);
    // One of them may own the guard of another, and its own.
    let (guards, log) = (Rc::new(RefCell::new(Vec::new())), Log::default());
    let (owned, seen) = (Rc::clone(&guards), log.clone());
    let first = event_loop.on_gone(move || {
        seen.add("first");
        drop(owned.take());
    });
    let second = event_loop.on_gone(|| panic!("its guard was dropped before"));
    guards.borrow_mut().extend([first, second]);
    drop(event_loop);
    log.expect(&["first"]);
}

#[test]
fn on_a_loop_that_is_gone_it_is_called_at_once() {
    let (event_loop, log) = (virtual_loop(), Log::default());
    let handle = event_loop.handle();
    drop(event_loop);
    let called = log.clone();
    let guard = handle.on_gone(move || called.add("called"));
    log.expect(&["called"]);
    drop(guard);
    log.expect(&["called"]);
}

#[test]
fn a_callback_may_register_another_which_is_called_at_once() {
    let (event_loop, log) = (virtual_loop(), Log::default());
    let (handle, called) = (event_loop.handle(), log.clone());
    let _first = event_loop.on_gone(move || {
        called.add("first begins");
        let inner = called.clone();
        drop(handle.on_gone(move || inner.add("inner")));
        called.add("first ends");
    });
    let called = log.clone();
    let _second = event_loop.on_gone(move || called.add("second"));
    drop(event_loop);
    log.expect(&["first begins", "inner", "first ends", "second"]);
}

#[test]
fn what_is_still_registered_is_dropped_behind_the_callbacks_and_what_they_register_is_dropped_too() {
    /// Says that it was dropped.
    struct Dropped(Log, &'static str);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.add(self.1);
        }
    }
    let (event_loop, log) = (virtual_loop(), Log::default());
    let timer = Dropped(log.clone(), "the timer is dropped");
    event_loop.set_timeout(milliseconds(1), move |_| drop(timer));
    let (handle, called) = (event_loop.handle(), log.clone());
    let guard = event_loop.on_gone(move || {
        assert!(handle.is_gone() && !handle.is_alive());
        assert!(handle.remote().post(|_| ()).is_err());
        let (socket, _) = readable_pair();
        assert!(matches!(handle.watch(socket, Interest::READ, |_, _| ()), Err(LoopError::Gone)));
        let registered = Dropped(called.clone(), "its task is dropped");
        let _task = handle.spawn(async move { drop(registered) });
        called.add("called");
    });
    drop(event_loop);
    log.expect(&["called", "the timer is dropped", "its task is dropped"]);
    drop(guard);
}

#[test]
fn a_callback_that_panics_holds_up_no_other_and_its_panic_leaves_the_drop() {
    let (event_loop, log, witness) = (virtual_loop(), Log::default(), Rc::new(()));
    let owned = Rc::clone(&witness);
    event_loop.set_immediate(move |_| drop(owned));
    let _first = event_loop.on_gone(|| panic!("the first"));
    let called = log.clone();
    let _second = event_loop.on_gone(move || called.add("second"));
    let _third = event_loop.on_gone(|| panic!("the third"));
    let panic = catch_unwind(AssertUnwindSafe(|| drop(event_loop))).unwrap_err();
    assert_eq!(panic_message(&*panic), "the first");
    log.expect(&["second"]);
    assert_eq!(Rc::strong_count(&witness), 1, "everything was dropped");
}

#[test]
fn a_callback_that_panics_does_not_abort_a_thread_that_panics_already() {
    let panic = catch_unwind(|| {
        let event_loop = virtual_loop();
        let _guard = event_loop.on_gone(|| panic!("the callback"));
        let _dropped_first = event_loop;
        panic!("the thread");
    });
    assert_eq!(panic_message(&*panic.unwrap_err()), "the thread");
}

#[test]
fn a_child_that_drops_its_copy_of_the_loop_calls_them_and_locks_nothing() {
    expect_an_end("callbacks that register something", || {
        let (event_loop, log) = (loop_of_the_parent(), Log::default());
        let (handle, called) = (event_loop.handle(), log.clone());
        let _guard = event_loop.on_gone(move || {
            handle.set_timeout(Duration::ZERO, |_| ());
            drop(handle.spawn(std::future::pending::<()>()));
            called.add("called");
        });
        drop(event_loop);
        log.expect(&["called"]);
    });
}
