//! Closing by the names of the list.

use super::*;

fn close_everything(event_loop: &LoopHandle, log: &Log) {
    for handle in event_loop.handles() {
        let log = log.clone();
        event_loop.close(handle.id, move |_| log.add(handle.what.to_string())).unwrap();
    }
}

#[test]
fn everything_in_the_list_can_be_closed_by_its_name() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    event_loop.set_interval(milliseconds(1_000), |_| ());
    event_loop.idle(|_| ());
    let (_writer, reader) = UnixStream::pair().unwrap();
    event_loop.watch(reader, Interest::READ, |_, _| ()).unwrap();
    event_loop.on_signal(&[signal_hook::consts::SIGWINCH], |_, _| ()).unwrap();
    let (listener, _) = tcp_listener(&event_loop);
    listener.accept_start(|_, _, _| ()).unwrap();
    let socket = UdpSocket::bind(&event_loop, "127.0.0.1:0".parse().unwrap()).unwrap();
    socket.receive_start(|_, _, _| ()).unwrap();
    let (stream, _peer) = Stream::pair(&event_loop).unwrap();
    stream.read_start(|_, _, _| ()).unwrap();
    let child = Child::spawn(&event_loop, std::process::Command::new("sleep").arg("1000")).unwrap();
    child.on_exit(|_, _| panic!("it was closed")).unwrap();
    child.kill(signal_hook::consts::SIGKILL).unwrap();
    close_everything(&event_loop, &log);
    assert!(event_loop.handles().is_empty(), "what is closed is not listed");
    assert!(listener.is_closed() && socket.is_closed() && stream.is_closed() && child.is_closed());
    event_loop.run().unwrap();
    let expected = [
        "timer",
        "hook",
        "watcher",
        "signal handler",
        "listener",
        "UDP socket",
        "stream",
        "stream",
        "child process",
    ];
    log.expect(&expected);
}

#[test]
fn a_handle_in_the_list_is_recognised_by_its_name() {
    let event_loop = real_loop();
    let timer = event_loop.set_timeout(milliseconds(1), |_| ());
    let hook = event_loop.idle(|_| ());
    let (stream, _peer) = Stream::pair(&event_loop).unwrap();
    let ids: Vec<_> = event_loop.handles().into_iter().map(|handle| handle.id).collect();
    assert_eq!(ids[..3], [timer.into(), hook.into(), stream.handle_id().into()]);
    assert_eq!(stream.clone().handle_id(), stream.handle_id(), "all clones are one handle");
}

#[test]
fn everything_in_the_list_can_be_unreferenced_by_its_name() {
    let mut event_loop = real_loop();
    event_loop.set_interval(milliseconds(1_000), |_| ());
    event_loop.prepare(|_| ());
    let (stream, _peer) = Stream::pair(&event_loop).unwrap();
    stream.read_start(|_, _, _| ()).unwrap();
    event_loop.handles().into_iter().for_each(|handle| event_loop.unref(handle.id));
    assert!(!stream.is_referenced());
    assert!(!event_loop.run().unwrap(), "nothing keeps the loop alive");
    event_loop.handles().into_iter().for_each(|handle| event_loop.ref_(handle.id));
    assert!(stream.is_referenced() && event_loop.is_alive());
}

#[test]
fn a_source_closed_by_its_name_answers_what_was_under_way() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (stream, _peer) = Stream::pair(&event_loop).unwrap();
    stream.set_write_limit(64 << 20);
    let seen = log.clone();
    stream.write(vec![0; 32 << 20], move |_, written| seen.add(format!("{written:?}"))).unwrap();
    event_loop.close(stream.handle_id(), log.entry("closed")).unwrap();
    assert!(matches!(stream.close(|_| ()), Err(SourceError::Closed)));
    assert!(matches!(event_loop.close(stream.handle_id(), |_| ()), Err(LoopError::AlreadyClosed)));
    event_loop.run().unwrap();
    log.expect(&["Err(Cancelled)", "closed"]);
}

#[test]
fn futures_that_wait_for_a_descriptor_are_told_that_it_was_closed() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (_writer, reader) = UnixStream::pair().unwrap();
    let (reader, handle) = (Rc::new(reader), event_loop.handle());
    let waiting = ["one", "other"].map(|_| {
        let (handle, reader) = (handle.clone(), Rc::clone(&reader));
        event_loop.spawn(async move { handle.readable(&*reader).await })
    });
    event_loop.run_mode(RunMode::NoWait).unwrap();
    let [listed] = event_loop.handles()[..] else { panic!("they have one entry") };
    assert_eq!(listed.what, AliveKind::WaitingFuture);
    event_loop.close(listed.id, log.entry("closed")).unwrap();
    assert!(event_loop.handles().is_empty());
    assert!(matches!(event_loop.close(listed.id, |_| ()), Err(LoopError::AlreadyClosed)));
    event_loop.run().unwrap();
    for future in waiting {
        assert!(matches!(future.take_result(), Some(Ok(Err(LoopError::Cancelled)))));
    }
    log.expect(&["closed"]);
    // Nothing of them is left: the descriptor can be watched again.
    event_loop.watch(reader, Interest::READ, |_, _| ()).unwrap();
}

#[test]
fn a_future_that_begins_to_wait_after_the_closing_waits_for_its_own_event() {
    let mut event_loop = real_loop();
    let (mut writer, reader) = UnixStream::pair().unwrap();
    let (reader, handle) = (Rc::new(reader), event_loop.handle());
    let wait = || {
        let (event_loop, handle, reader) = (handle.clone(), handle.clone(), Rc::clone(&reader));
        event_loop.spawn(async move { handle.readable(&*reader).await.is_ok() })
    };
    let first = wait();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    event_loop.close(event_loop.handles()[0].id, |_| ()).unwrap();
    let second = wait();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(event_loop.handles().len(), 1, "the second one waits");
    writer.write_all(b"x").unwrap();
    event_loop.run().unwrap();
    assert_eq!(first.take_result(), Some(Ok(false)));
    assert_eq!(second.take_result(), Some(Ok(true)));
}

#[test]
fn a_timer_that_is_closed_never_runs_and_what_has_run_cannot_be_closed() {
    let (mut event_loop, log) = (virtual_loop(), Log::default());
    let closed = event_loop.set_timeout(milliseconds(1), log.entry("timer"));
    let immediate = event_loop.set_immediate(log.entry("immediate"));
    event_loop.close(closed, log.entry("closed")).unwrap();
    event_loop.close(immediate, log.entry("closed, too")).unwrap();
    let own = Rc::new(Cell::new(None));
    let name = Rc::clone(&own);
    own.set(Some(event_loop.set_interval(milliseconds(1), move |context| {
        context.close(name.get().unwrap(), |_| ()).unwrap();
    })));
    event_loop.run().unwrap();
    log.expect(&["closed", "closed, too"]);
    assert!(matches!(event_loop.close(own.get().unwrap(), |_| ()), Err(LoopError::AlreadyClosed)));
}

#[test]
fn neither_a_source_nor_a_future_can_be_paused_by_its_name() {
    let mut event_loop = real_loop();
    let (stream, _peer) = Stream::pair(&event_loop).unwrap();
    assert!(matches!(event_loop.pause(stream.handle_id()), Err(LoopError::NotPausable)));
    assert!(matches!(
        event_loop.set_interest(stream.handle_id(), Interest::READ),
        Err(LoopError::NotAWatcher)
    ));
    stream.close(|_| ()).unwrap();
    assert!(matches!(event_loop.pause(stream.handle_id()), Err(LoopError::AlreadyClosed)));
    event_loop.run().unwrap();
}

#[test]
fn the_descriptor_of_a_child_is_its_pidfd_until_it_has_exited() {
    let mut event_loop = real_loop();
    let child = Child::spawn(&event_loop, &mut std::process::Command::new("true")).unwrap();
    let descriptor = child.descriptor().unwrap();
    child.on_exit(|_, status| assert!(status.unwrap().success())).unwrap();
    event_loop.run().unwrap();
    assert!(matches!(child.descriptor(), Err(SourceError::AlreadyExited)));
    let mut ready = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
    let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(
        rustix::event::poll(&mut ready, Some(&none)).unwrap(),
        1,
        "a pidfd is readable after the exit"
    );
}
