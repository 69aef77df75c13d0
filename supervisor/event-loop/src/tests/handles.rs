//! Descriptors, signals, and what is said about misuse.

use super::*;

#[test]
fn closing_a_handle_of_the_same_batch_silences_it() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let ids = Rc::new(RefCell::new(Vec::new()));
    for name in ["first", "second"] {
        let (writer, reader) = readable_pair();
        let (log, ids) = (log.clone(), Rc::clone(&ids));
        let others = Rc::clone(&ids);
        let id = event_loop.watch(reader, Interest::READ, move |context, _| {
            let _keeps_the_byte_coming = &writer;
            log.add(name);
            others.borrow_mut().drain(..).for_each(|id| context.close(id, |_| ()).unwrap());
        });
        ids.borrow_mut().push(id.unwrap());
    }
    event_loop.run().unwrap();
    assert_eq!(log.0.borrow().len(), 1, "the second was closed by the first");
}

#[test]
fn misuse_is_named() {
    let event_loop = real_loop();
    let hook = event_loop.idle(|_| ());
    assert!(matches!(event_loop.set_interest(hook, Interest::READ), Err(LoopError::NotAWatcher)));
    event_loop.close(hook, |_| ()).unwrap();
    assert!(matches!(event_loop.close(hook, |_| ()), Err(LoopError::AlreadyClosed)));
    assert!(matches!(event_loop.set_interest(hook, Interest::READ), Err(LoopError::AlreadyClosed)));
    let socket = Rc::new(UnixStream::pair().unwrap().0);
    event_loop.watch(Rc::clone(&socket), Interest::READ, |_, _| ()).unwrap();
    let again = event_loop.watch(socket, Interest::WRITE, |_, _| ());
    assert!(matches!(again, Err(LoopError::AlreadyWatched)));
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert!(matches!(event_loop.watch(file, Interest::READ, |_, _| ()), Err(LoopError::NotWatchable)));
    assert!(matches!(event_loop.on_signal(&[9], |_, _| ()), Err(LoopError::UnusableSignal { signal: 9 })));
}

#[test]
fn a_signal_reaches_its_handler() {
    let mut event_loop = real_loop();
    let (log, id) = (Log::default(), Rc::new(Cell::new(None)));
    let (seen, own_id) = (log.clone(), Rc::clone(&id));
    let usr1 = signal_hook::consts::SIGUSR1;
    let handler = event_loop.on_signal(&[usr1, signal_hook::consts::SIGUSR2], move |context, signal| {
        seen.add(format!("signal {signal}"));
        context.close(own_id.get().unwrap(), |_| ()).unwrap();
    });
    id.set(Some(handler.unwrap()));
    signal_hook::low_level::raise(usr1).unwrap();
    event_loop.run().unwrap();
    log.expect(&[&format!("signal {usr1}")]);
}

#[test]
fn a_signal_that_is_named_twice_is_told_once() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let seen = log.clone();
    let handler =
        event_loop.on_signal(&[libc::SIGIO, libc::SIGPOLL], move |_, signal| seen.add(signal.to_string()));
    event_loop.unref(handler.unwrap());
    signal_hook::low_level::raise(libc::SIGIO).unwrap();
    let one = event_loop.hold();
    event_loop.run_mode(RunMode::Once).unwrap();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    drop(one);
    log.expect(&[&libc::SIGIO.to_string()]);
}

/// Whether this process does something of its own about a signal.
fn is_caught(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
}

#[test]
fn signals_that_are_refused_mean_what_they_meant_before() {
    // No other test catches it.
    let signal = libc::SIGPWR;
    let event_loop = real_loop();
    for unusable in [libc::SIGKILL, 0, -1, 32, 1_000] {
        let refused = event_loop.on_signal(&[signal, unusable], |_, _| ());
        let is_named = matches!(refused, Err(LoopError::UnusableSignal { signal }) if signal == unusable);
        assert!(is_named && !is_caught(signal), "{unusable}");
    }
    let gone = real_loop().handle();
    assert!(matches!(gone.on_signal(&[signal], |_, _| ()), Err(LoopError::Gone)));
    assert!(!is_caught(signal), "this process still ends by it");
    assert!(event_loop.handles().is_empty());
    let id = event_loop.on_signal(&[signal], |_, _| ()).unwrap();
    assert!(is_caught(signal));
    event_loop.close(id, |_| ()).unwrap();
}

#[test]
fn a_loop_can_be_driven_by_another_one() {
    let (mut outer, inner, log) = (real_loop(), real_loop(), Log::default());
    inner.set_immediate(log.entry("inner"));
    inner.remote().post(|_| ()).unwrap();
    assert_eq!(inner.backend_timeout(), Some(Duration::ZERO));
    let descriptor = inner.backend_fd().try_clone_to_owned().unwrap();
    let (inner, id) = (RefCell::new(inner), Rc::new(Cell::new(None)));
    let own_id = Rc::clone(&id);
    let watched = outer.watch(descriptor, Interest::READ, move |context, _| {
        inner.borrow_mut().run_mode(RunMode::NoWait).unwrap();
        context.close(own_id.get().unwrap(), |_| ()).unwrap();
    });
    id.set(Some(watched.unwrap()));
    outer.run().unwrap();
    log.expect(&["inner"]);
}

#[test]
fn a_watcher_on_edge_is_told_once_for_each_time_that_something_comes() {
    let mut event_loop = EventLoop::new().unwrap();
    let (watched, mut other) = UnixStream::pair().unwrap();
    watched.set_nonblocking(true).unwrap();
    let heard = Rc::new(Cell::new(0));
    let count = Rc::clone(&heard);
    let interest = (Interest::READ | Interest::WRITE).on_edge();
    let reader = watched.try_clone().unwrap();
    let watcher = event_loop.watch(watched, interest, move |_, _| count.set(count.get() + 1)).unwrap();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(heard.get(), 1, "it is writable from the start");
    for turn in 0..3 {
        event_loop.run_mode(RunMode::NoWait).unwrap();
        assert_eq!(heard.get(), 1, "nothing new in turn {turn}");
    }
    for expected in [2, 3] {
        other.write_all(b"x").unwrap();
        event_loop.run_mode(RunMode::Once).unwrap();
        event_loop.run_mode(RunMode::NoWait).unwrap();
        assert_eq!(heard.get(), expected, "once, though nobody has read");
    }
    let mut bytes = [0; 8];
    assert_eq!((&reader).read(&mut bytes).unwrap(), 2);
    event_loop.close(watcher, |_| ()).unwrap();
    event_loop.run().unwrap();
}
