//! Handles and notifiers that are stopped and started again.

use super::*;

const USR1: i32 = signal_hook::consts::SIGUSR1;

/// Goes around once without waiting.
fn go_around(event_loop: &mut EventLoop) {
    event_loop.run_mode(RunMode::NoWait).unwrap();
}

#[test]
fn hooks_that_are_paused_and_resumed_keep_their_callback_and_their_name() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let add = |what: &'static str| {
        let log = log.clone();
        move |_: &mut Context| log.add(what)
    };
    let hooks =
        [event_loop.idle(add("idle")), event_loop.prepare(add("prepare")), event_loop.check(add("check"))];
    go_around(&mut event_loop);
    hooks.iter().for_each(|&hook| event_loop.pause(hook).unwrap());
    assert!(!event_loop.is_alive(), "paused hooks keep nobody alive");
    let _hold = event_loop.hold();
    go_around(&mut event_loop);
    log.expect(&["idle", "prepare", "check"]);
    hooks.iter().for_each(|&hook| event_loop.resume(hook).unwrap());
    go_around(&mut event_loop);
    log.expect(&["idle", "prepare", "check", "idle", "prepare", "check"]);
}

#[test]
fn pausing_and_resuming_twice_count_as_once_and_a_closed_handle_refuses_both() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let seen = log.clone();
    let hook = event_loop.check(move |_| seen.add("check"));
    event_loop.resume(hook).unwrap();
    (0..2).for_each(|_| event_loop.pause(hook).unwrap());
    (0..2).for_each(|_| event_loop.resume(hook).unwrap());
    go_around(&mut event_loop);
    log.expect(&["check"]);
    event_loop.pause(hook).unwrap();
    event_loop.close(hook, log.entry("closed")).unwrap();
    event_loop.run().unwrap();
    log.expect(&["check", "closed"]);
    assert!(matches!(event_loop.pause(hook), Err(LoopError::AlreadyClosed)));
    assert!(matches!(event_loop.resume(hook), Err(LoopError::AlreadyClosed)));
}

#[test]
fn a_hook_paused_by_one_before_it_is_not_called_and_one_resumed_waits_for_the_next_iteration() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let second = Rc::new(Cell::new(None));
    let (seen, other) = (log.clone(), Rc::clone(&second));
    event_loop.prepare(move |context| {
        seen.add("first");
        context.pause(other.get().unwrap()).unwrap();
        if seen.0.borrow().len() > 1 {
            context.resume(other.get().unwrap()).unwrap();
        }
    });
    let seen = log.clone();
    second.set(Some(event_loop.prepare(move |_| seen.add("second"))));
    go_around(&mut event_loop);
    log.expect(&["first"]);
    go_around(&mut event_loop);
    log.expect(&["first", "first"]);
}

#[test]
fn a_hook_paused_and_resumed_while_its_phase_runs_waits_for_the_next_iteration() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let second = Rc::new(Cell::new(None));
    let (seen, other) = (log.clone(), Rc::clone(&second));
    event_loop.prepare(move |context| {
        seen.add("first");
        if let Some(other) = other.take() {
            context.pause(other).unwrap();
            context.resume(other).unwrap();
        }
    });
    let seen = log.clone();
    second.set(Some(event_loop.prepare(move |_| seen.add("second"))));
    go_around(&mut event_loop);
    log.expect(&["first"]);
    go_around(&mut event_loop);
    log.expect(&["first", "first", "second"]);
}

#[test]
fn a_hook_that_pauses_itself_can_be_resumed_later() {
    let (mut event_loop, log) = (virtual_loop(), Log::default());
    let seen = log.clone();
    let hook = event_loop.idle(move |context| {
        seen.add("idle");
        let Some(CallbackId::Handle(own)) = context.current().id else { panic!("it has a name") };
        context.pause(own).unwrap();
    });
    event_loop.set_timeout(milliseconds(5), move |context| context.resume(hook).unwrap());
    event_loop.run().unwrap();
    log.expect(&["idle", "idle"]);
}

#[test]
fn a_paused_watcher_is_told_of_what_is_still_ready_when_it_is_resumed() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (_writer, reader) = readable_pair();
    let reader = Rc::new(reader);
    let seen = log.clone();
    let id = event_loop.watch(Rc::clone(&reader), Interest::READ, move |context, _| {
        seen.add("readable");
        let Some(CallbackId::Handle(own)) = context.current().id else { panic!("it has a name") };
        context.pause(own).unwrap();
    });
    let id = id.unwrap();
    assert!(!event_loop.run().unwrap(), "it has paused itself");
    let other = event_loop.watch(Rc::clone(&reader), Interest::WRITE, |_, _| ()).unwrap();
    assert!(matches!(event_loop.resume(id), Err(LoopError::AlreadyWatched)));
    event_loop.close(other, |_| ()).unwrap();
    event_loop.run().unwrap();
    event_loop.set_interest(id, Interest::NONE).unwrap();
    event_loop.resume(id).unwrap();
    assert!(!event_loop.is_alive(), "it was put to rest while it was paused");
    event_loop.set_interest(id, Interest::READ).unwrap();
    event_loop.run().unwrap();
    log.expect(&["readable", "readable"]);
}

#[test]
fn closing_a_paused_watcher_leaves_another_watcher_of_the_descriptor_in_peace() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (_writer, reader) = readable_pair();
    let reader = Rc::new(reader);
    let paused = event_loop.watch(Rc::clone(&reader), Interest::READ, |_, _| ()).unwrap();
    event_loop.pause(paused).unwrap();
    let seen = log.clone();
    let watched = event_loop.watch(reader, Interest::READ, move |context, _| {
        seen.add("readable");
        let Some(CallbackId::Handle(own)) = context.current().id else { panic!("it has a name") };
        context.close(own, |_| ()).unwrap();
    });
    watched.unwrap();
    event_loop.close(paused, |_| ()).unwrap();
    let deadline = event_loop.set_timeout(Duration::from_secs(60), |_| panic!("the event was lost"));
    event_loop.unref(deadline);
    event_loop.run().unwrap();
    log.expect(&["readable"]);
}

#[test]
fn a_paused_handler_of_signals_does_not_hear_what_came_meanwhile() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let seen = log.clone();
    let handler = event_loop.on_signal(&[USR1], move |context, _| {
        seen.add("signal");
        let Some(CallbackId::Handle(own)) = context.current().id else { panic!("it has a name") };
        context.pause(own).unwrap();
    });
    let handler = handler.unwrap();
    signal_hook::low_level::raise(USR1).unwrap();
    assert!(!event_loop.run().unwrap(), "a paused handler keeps nobody alive");
    signal_hook::low_level::raise(USR1).unwrap();
    event_loop.resume(handler).unwrap();
    go_around(&mut event_loop);
    log.expect(&["signal"]);
    signal_hook::low_level::raise(USR1).unwrap();
    event_loop.run().unwrap();
    log.expect(&["signal", "signal"]);
}

#[test]
fn a_paused_notifier_remembers_its_notifications_as_one() {
    let mut event_loop = real_loop();
    let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&count);
    let calls = move || count.load(std::sync::atomic::Ordering::SeqCst);
    let notifier = event_loop.remote().notifier(move |_| {
        counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    });
    let _hold = event_loop.hold();
    notifier.notify().unwrap();
    notifier.pause();
    assert!(notifier.is_paused());
    go_around(&mut event_loop);
    assert_eq!(calls(), 0, "it was on its way when the notifier was paused");
    (0..3).for_each(|_| notifier.notify().unwrap());
    go_around(&mut event_loop);
    assert_eq!(calls(), 0);
    notifier.resume().unwrap();
    assert!(!notifier.is_paused());
    go_around(&mut event_loop);
    assert_eq!(calls(), 1);
    notifier.pause();
    notifier.resume().unwrap();
    go_around(&mut event_loop);
    assert_eq!(calls(), 1, "nobody has notified it in between");
    notifier.notify().unwrap();
    go_around(&mut event_loop);
    assert_eq!(calls(), 2);
}

#[test]
fn no_notification_is_lost_between_pauses_of_another_thread() {
    let mut event_loop = real_loop();
    let calls = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&calls);
    let notifier = event_loop.remote().notifier(move |_| {
        counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    });
    let request = event_loop.request(|_, ()| ());
    let (paused, notified) = (notifier.clone(), notifier.clone());
    let pauses = std::thread::spawn(move || {
        for _ in 0..2_000 {
            paused.pause();
            paused.resume().unwrap();
        }
    });
    let notifies = std::thread::spawn(move || {
        for _ in 0..2_000 {
            notified.notify().unwrap();
        }
        pauses.join().unwrap();
        let before = calls.load(std::sync::atomic::Ordering::SeqCst);
        notified.notify().unwrap();
        request.complete(()).unwrap();
        (before, calls)
    });
    event_loop.run().unwrap();
    let (before, calls) = notifies.join().unwrap();
    assert!(calls.load(std::sync::atomic::Ordering::SeqCst) > before, "the last one was heard");
}
