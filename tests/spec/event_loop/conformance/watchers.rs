//! Watchers: callbacks for descriptors that are ready.

use std::cell::Cell;
use std::fs::File;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use offload_event_loop::{EventLoop, HandleId, Interest, LoopConfig, RunMode};

use super::{
    connection, connection_with_a_byte, milliseconds, real_loop, receive, send_a_byte, virtual_loop,
};
use crate::stage::Order;

type Name = Rc<Cell<Option<HandleId>>>;

#[test]
fn a_watcher_is_called_in_every_iteration_until_everything_is_read() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (_peer, stream) = connection_with_a_byte();
    let (log, source) = (order.clone(), Rc::clone(&stream));
    event_loop.watch(source, Interest::READ, move |_, _| log.push("called")).unwrap();
    for calls in 1..=3 {
        event_loop.run_mode(RunMode::NoWait).unwrap();
        assert_eq!(order.so_far().len(), calls);
    }
    receive(&stream);
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far().len(), 3);
}

#[test]
fn one_watcher_sees_both_directions_in_one_call() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (_peer, stream) = connection_with_a_byte();
    let log = order.clone();
    let both = Interest::READ | Interest::WRITE;
    let watch = event_loop.watch(stream, both, move |_, ready| {
        log.push((ready.is_readable(), ready.is_writable(), ready.is_hang_up(), ready.is_error()));
    });
    watch.unwrap();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far(), [(true, true, false, false)]);
}

#[test]
fn a_watcher_is_told_only_of_the_direction_that_it_asked_for() {
    for (interest, expected) in [(Interest::READ, (true, false)), (Interest::WRITE, (false, true))] {
        let mut event_loop = virtual_loop();
        let order = Order::new();
        let (_peer, stream) = connection_with_a_byte();
        let log = order.clone();
        let watch = event_loop.watch(stream, interest, move |_, ready| {
            log.push((ready.is_readable(), ready.is_writable()));
        });
        event_loop.run_mode(RunMode::NoWait).unwrap();
        assert_eq!(order.so_far(), [expected]);
        event_loop.set_interest(watch.unwrap(), Interest::NONE).unwrap();
        event_loop.run_mode(RunMode::NoWait).unwrap();
        assert_eq!(order.so_far(), [expected]);
    }
}

#[test]
fn a_watcher_that_rests_is_not_called_and_keeps_nobody_alive_until_it_looks_again() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (_peer, stream) = connection_with_a_byte();
    let log = order.clone();
    let watch = event_loop.watch(stream, Interest::NONE, move |context, _| {
        log.push("called");
        context.stop();
    });
    let watch = watch.unwrap();
    assert!(!event_loop.is_alive());
    event_loop.set_timeout(milliseconds(1), order.add("timer"));
    assert!(!event_loop.run().unwrap());
    event_loop.set_interest(watch, Interest::READ).unwrap();
    assert!(event_loop.is_alive());
    assert!(event_loop.run().unwrap());
    event_loop.set_interest(watch, Interest::NONE).unwrap();
    assert!(!event_loop.is_alive());
    assert_eq!(order.so_far(), ["timer", "called"]);
}

/// Two watchers that are ready together; the one that is called first does `act` to the other, which is called only
/// if that says so.
#[track_caller]
fn expect_after_the_first(act: fn(&mut offload_event_loop::Context, HandleId), calls: &[usize]) {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let names: [Name; 2] = [Name::default(), Name::default()];
    let mut peers = Vec::new();
    for own in 0..2 {
        let (peer, stream) = connection_with_a_byte();
        peers.push(peer);
        let (log, other) = (order.clone(), Rc::clone(&names[1 - own]));
        let watch = event_loop.watch(stream, Interest::READ, move |context, _| {
            log.push(log.so_far().len());
            if log.so_far().len() == 1 {
                act(context, other.get().unwrap());
            }
        });
        names[own].set(Some(watch.unwrap()));
    }
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far(), calls);
}

#[test]
fn watchers_that_are_ready_together_are_called_in_the_same_poll() {
    expect_after_the_first(|_, _| {}, &[0, 1]);
}

#[test]
fn a_watcher_closed_by_another_one_of_its_batch_is_not_called() {
    expect_after_the_first(|context, other| context.close(other, |_| {}).unwrap(), &[0]);
}

#[test]
fn a_watcher_put_to_rest_by_another_one_of_its_batch_is_not_called() {
    expect_after_the_first(|context, other| context.set_interest(other, Interest::NONE).unwrap(), &[0]);
}

#[test]
fn a_watcher_whose_interest_another_one_of_its_batch_changes_is_not_called_for_the_old_one() {
    expect_after_the_first(|context, other| context.set_interest(other, Interest::WRITE).unwrap(), &[0]);
}

/// The kernel gives the lowest free number to the next descriptor, so the new one may well have that of the old.
#[test]
fn a_new_watcher_does_not_inherit_the_events_of_a_closed_one() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let names: [Name; 2] = [Name::default(), Name::default()];
    let mut peers = Vec::new();
    for own in 0..2 {
        let (peer, stream) = connection_with_a_byte();
        peers.push(peer);
        let (log, other) = (order.clone(), Rc::clone(&names[1 - own]));
        let watch = event_loop.watch(Rc::into_inner(stream).unwrap(), Interest::READ, move |context, _| {
            log.push("old");
            context.close(other.get().unwrap(), |_| {}).unwrap();
            let (quiet_peer, stream) = connection();
            let new = log.clone();
            let watch = context.watch(stream, Interest::READ, move |_, _| {
                // Owned here, so that it hangs up no sooner than its watcher is gone.
                let _ = &quiet_peer;
                new.push("new");
            });
            watch.unwrap();
        });
        names[own].set(Some(watch.unwrap()));
    }
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far(), ["old"]);
}

#[test]
fn after_its_watcher_is_closed_a_descriptor_can_be_watched_anew() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (_peer, stream) = connection_with_a_byte();
    let first = event_loop.watch(Rc::clone(&stream), Interest::READ, |_, _| panic!("closed")).unwrap();
    event_loop.close(first, order.add("closed")).unwrap();
    let log = order.clone();
    let second = event_loop.watch(stream, Interest::READ, move |_, _| log.push("second")).unwrap();
    event_loop.unref(second);
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["second", "closed"]);
    event_loop.ref_(second);
    event_loop.close(second, order.add("second closed")).unwrap();
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far().last(), Some(&"second closed"));
}

#[test]
fn a_copy_of_a_descriptor_has_a_watcher_of_its_own() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (_peer, stream) = connection_with_a_byte();
    let copy: OwnedFd = stream.try_clone().unwrap().into();
    let (one, other) = (order.clone(), order.clone());
    let first = event_loop.watch(stream, Interest::READ, move |_, _| one.push("original")).unwrap();
    event_loop.watch(copy, Interest::READ, move |_, _| other.push("copy")).unwrap();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    let mut called = order.so_far();
    called.sort();
    assert_eq!(called, ["copy", "original"]);
    // The kernel keeps a watch for as long as any copy is open, so this has to be said to it, not left to the drop.
    event_loop.close(first, |_| {}).unwrap();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far()[2..], ["copy"]);
}

#[test]
fn the_end_of_the_peer_is_a_hang_up_and_something_to_read() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (peer, stream) = connection();
    let log = order.clone();
    let watch = event_loop.watch(stream, Interest::READ, move |_, ready| {
        log.push((ready.is_readable(), ready.is_hang_up()));
    });
    watch.unwrap();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert!(order.so_far().is_empty());
    peer.shutdown(Shutdown::Write).unwrap();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far(), [(true, true)]);
}

/// The write then tells what is wrong.
#[test]
fn a_pipe_without_a_reader_is_an_error_that_makes_it_writable() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (reader, writer) = std::io::pipe().unwrap();
    let log = order.clone();
    let watch = event_loop.watch(writer, Interest::WRITE, move |_, ready| {
        log.push((ready.is_writable(), ready.is_error()));
    });
    watch.unwrap();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    drop(reader);
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far(), [(true, false), (true, true)]);
}

#[test]
fn a_full_socket_is_not_writable_until_its_peer_has_read() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (peer, stream) = connection();
    while (&*stream).write(&[0; 4_096]).is_ok() {}
    let log = order.clone();
    event_loop.watch(stream, Interest::WRITE, move |_, _| log.push("writable")).unwrap();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert!(order.so_far().is_empty());
    let mut sink = [0; 4_096];
    while std::io::Read::read(&mut &*peer, &mut sink).is_ok() {}
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far(), ["writable"]);
}

/// Both ends speak to each other until each has sent and received everything.
#[test]
fn two_ends_exchange_much_in_small_parts_and_see_each_others_end() {
    const BYTES: usize = 1 << 16;
    struct End {
        stream: Rc<UnixStream>,
        sent: usize,
        received: usize,
    }
    let mut event_loop = real_loop();
    let order = Order::new();
    let (one, other) = connection();
    for (name, stream) in [("one", one), ("other", other)] {
        let (mut end, own) = (End { stream: Rc::clone(&stream), sent: 0, received: 0 }, Name::default());
        let (log, id) = (order.clone(), Rc::clone(&own));
        let watch = event_loop.watch(stream, Interest::READ | Interest::WRITE, move |context, ready| {
            let id = id.get().unwrap();
            if ready.is_writable() && end.sent < BYTES {
                end.sent += (&*end.stream).write(&[1; 1_234][..1_234.min(BYTES - end.sent)]).unwrap_or(0);
                if end.sent == BYTES {
                    end.stream.shutdown(Shutdown::Write).unwrap();
                    context.set_interest(id, Interest::READ).unwrap();
                }
            }
            if ready.is_readable() {
                match std::io::Read::read(&mut &*end.stream, &mut [0; 931]) {
                    Ok(0) if end.sent == BYTES => context.close(id, log.add((name, end.received))).unwrap(),
                    Ok(count) => end.received += count,
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
                }
            }
        });
        own.set(Some(watch.unwrap()));
    }
    assert!(!event_loop.run().unwrap());
    let mut ends = order.so_far();
    ends.sort();
    assert_eq!(ends, [("one", BYTES), ("other", BYTES)]);
}

#[test]
fn what_a_cap_leaves_of_a_batch_is_handled_in_the_next_poll() {
    let config = LoopConfig { events_per_poll: 1, ..LoopConfig::default() };
    let mut event_loop = EventLoop::with(config).unwrap();
    let order = Order::new();
    let mut peers = Vec::new();
    for name in ["one", "two", "three"] {
        let (peer, stream) = connection_with_a_byte();
        peers.push(peer);
        let (log, source) = (order.clone(), Rc::clone(&stream));
        let watch = event_loop.watch(source, Interest::READ, move |context, _| {
            receive(&stream);
            log.push(name);
            context.set_immediate(log.add("iteration"));
        });
        watch.unwrap();
    }
    for _ in 0..3 {
        event_loop.run_mode(RunMode::NoWait).unwrap();
    }
    let order = order.so_far();
    assert_eq!(order.len(), 6);
    assert!(order.chunks(2).all(|pair| pair[0] != "iteration" && pair[1] == "iteration"), "{order:?}");
}

#[test]
fn a_descriptor_of_a_loop_can_be_watched_in_itself_and_never_fires_alone() {
    let mut event_loop = real_loop();
    let inner = real_loop();
    let copy = inner.backend_fd().try_clone_to_owned().unwrap();
    event_loop.watch(copy, Interest::READ, |_, _| panic!("nothing happens in the inner loop")).unwrap();
    assert!(event_loop.run_mode(RunMode::NoWait).unwrap());
}

#[test]
fn a_character_device_can_be_watched() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (log, zero) = (order.clone(), File::open("/dev/random").unwrap());
    event_loop.watch(zero, Interest::READ, move |_, _| log.push("readable")).unwrap();
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(order.so_far(), ["readable"]);
}

#[test]
fn a_byte_that_comes_while_the_loop_waits_wakes_it() {
    let mut event_loop = real_loop();
    let (writer, reader) = UnixStream::pair().unwrap();
    let (is_about_to_wait, wait) = std::sync::mpsc::channel();
    event_loop.prepare(move |_| is_about_to_wait.send(()).unwrap());
    event_loop.watch(reader, Interest::READ, |context, _| context.stop()).unwrap();
    let sender = std::thread::spawn(move || {
        wait.recv().unwrap();
        send_a_byte(&writer);
        writer
    });
    assert!(event_loop.run().unwrap());
    drop(sender.join().unwrap());
}
