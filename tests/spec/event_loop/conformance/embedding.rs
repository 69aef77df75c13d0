//! A loop that is driven by another loop, or by another poll.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use offload_event_loop::{EventLoop, Interest, LoopHandle, RunMode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{connection, milliseconds, real_loop, send_a_byte};
use crate::stage::Order;

fn watched_copy_of(event_loop: &EventLoop) -> OwnedFd {
    event_loop.backend_fd().try_clone_to_owned().unwrap()
}

/// How many descriptors were ready. Without a timeout it waits for ever.
fn wait_as_a_stranger(descriptor: impl AsFd, timeout: Option<Duration>) -> usize {
    let timeout = timeout.map(|timeout| Timespec::try_from(timeout).unwrap());
    let mut set = [PollFd::new(&descriptor, PollFlags::IN)];
    poll(&mut set, timeout.as_ref()).unwrap()
}

#[test]
fn a_loop_is_driven_by_a_poll_of_its_descriptor_with_its_timeout() {
    let mut event_loop = real_loop();
    let order = Order::new();
    let (hold, remote) = (event_loop.hold(), event_loop.remote());
    let timer = order.clone();
    event_loop.set_timeout(milliseconds(3), move |context| {
        timer.push("timer");
        let request = context.request(move |_, said: &'static str| {
            timer.push(said);
            drop(hold);
        });
        std::thread::spawn(move || {
            remote.post(|_| {}).unwrap();
            request.complete("post").unwrap();
        });
    });
    while event_loop.is_alive() {
        wait_as_a_stranger(event_loop.backend_fd(), event_loop.backend_timeout());
        event_loop.run_mode(RunMode::NoWait).unwrap();
    }
    assert_eq!(order.so_far(), ["timer", "post"]);
}

#[test]
fn the_descriptor_of_a_loop_is_readable_only_while_an_event_waits() {
    let mut event_loop = real_loop();
    let (peer, stream) = connection();
    let source = Rc::clone(&stream);
    event_loop
        .watch(source, Interest::READ, move |_, _| {
            super::receive(&stream);
        })
        .unwrap();
    assert_eq!(wait_as_a_stranger(event_loop.backend_fd(), Some(Duration::ZERO)), 0);
    send_a_byte(&peer);
    assert_eq!(wait_as_a_stranger(event_loop.backend_fd(), Some(Duration::ZERO)), 1);
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(wait_as_a_stranger(event_loop.backend_fd(), Some(Duration::ZERO)), 0);
    event_loop.remote().post(|_| {}).unwrap();
    assert_eq!(wait_as_a_stranger(event_loop.backend_fd(), Some(Duration::ZERO)), 1);
}

/// The guest's descriptor tells the host of input; for the guest's timers the host sets one of its own.
#[test]
fn a_loop_lives_in_another_one_with_its_input_and_its_timers() {
    fn serve(guest: &Rc<RefCell<EventLoop>>, host: &LoopHandle) {
        let is_alive = guest.borrow_mut().run_mode(RunMode::NoWait).unwrap();
        let wait = guest.borrow().backend_timeout();
        if let (true, Some(wait)) = (is_alive, wait) {
            let (guest, handle) = (Rc::clone(guest), host.clone());
            host.set_timeout(wait, move |_| serve(&guest, &handle));
        }
    }
    let (mut host, guest) = (real_loop(), Rc::new(RefCell::new(real_loop())));
    let order = Order::new();
    let (peer, stream) = connection();
    let (log, source) = (order.clone(), Rc::clone(&stream));
    guest
        .borrow()
        .watch(source, Interest::READ, move |context, _| {
            super::receive(&stream);
            log.push("input of the guest");
            context.stop();
        })
        .unwrap();
    guest.borrow().set_timeout(milliseconds(2), move |_| send_a_byte(&peer));
    let (visitor, log) = (Rc::clone(&guest), order.clone());
    let watch = host.watch(watched_copy_of(&guest.borrow()), Interest::READ, move |context, _| {
        log.push("event of the host");
        serve(&visitor, &context.handle());
        context.stop();
    });
    serve(&guest, &host.handle());
    assert!(host.run().unwrap());
    assert_eq!(order.so_far(), ["event of the host", "input of the guest"]);
    host.close(watch.unwrap(), |_| {}).unwrap();
}

#[test]
fn a_callback_may_run_a_loop_of_its_own_to_the_end() {
    let mut event_loop = real_loop();
    let order = Order::new();
    let log = order.clone();
    event_loop.next_tick(order.add("outer tick"));
    event_loop.set_immediate(move |context| {
        let mut inner = real_loop();
        inner.next_tick(log.add("inner tick"));
        inner.set_timeout(milliseconds(1), log.add("inner timer"));
        context.next_tick(log.add("outer tick of the callback"));
        assert!(!inner.run().unwrap());
        log.push("end of the callback");
    });
    event_loop.run().unwrap();
    let expected =
        ["outer tick", "inner tick", "inner timer", "end of the callback", "outer tick of the callback"];
    assert_eq!(order.so_far(), expected);
}
