//! S21 to S23: immediates, and what follows a closed handle.

use std::os::unix::net::UnixStream;

use offload_event_loop::{Interest, LoopError};

use super::props::{PREPARE, hook_once, in_poll, milliseconds, virtual_loop};
use crate::stage::Order;

#[test]
fn s21_immediates_run_right_after_the_poll() {
    let (mut event_loop, order) = (virtual_loop(), Order::new());
    let inner = order.clone();
    hook_once(&event_loop, PREPARE, order.add("before the poll"));
    in_poll(&event_loop, move |context| {
        inner.push("event");
        context.set_immediate(inner.add("immediate"));
        let closed = context.check(|_| ());
        context.close(closed, inner.add("closing")).unwrap();
    });
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["before the poll", "event", "immediate", "closing"]);
}

#[test]
fn s22_an_immediate_is_a_timer_without_a_time() {
    let (mut event_loop, order) = (virtual_loop(), Order::new());
    let start = event_loop.now();
    let cleared = event_loop.set_immediate(order.add("cleared"));
    let inner = order.clone();
    event_loop.set_immediate(move |context| {
        assert_eq!(context.now(), start, "no time had to pass");
        inner.push("immediate");
        context.set_immediate(inner.add("immediate of the immediate"));
    });
    assert!(event_loop.clear(cleared), "it can be taken back like any timer");
    event_loop.set_timeout(milliseconds(1), order.add("timer"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["immediate", "immediate of the immediate", "timer"]);
}

#[test]
fn s23_a_closed_handle_says_so_in_the_closing_phase_and_nothing_else_any_more() {
    let (mut event_loop, order) = (virtual_loop(), Order::new());
    let (peer, socket) = UnixStream::pair().unwrap();
    let watcher = event_loop.watch(socket, Interest::READ, |_, _| unreachable!("it is closed")).unwrap();
    let inner = order.clone();
    in_poll(&event_loop, move |context| {
        context.close(watcher, inner.add("close")).unwrap();
        assert!(matches!(context.close(watcher, |_| ()), Err(LoopError::AlreadyClosed)));
        drop(peer);
        context.next_tick(inner.add("tick"));
        context.set_immediate(inner.add("immediate"));
        inner.push("end of the callback");
    });
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["end of the callback", "tick", "immediate", "close"]);
}

#[test]
fn s23_an_owner_that_ends_in_peace_says_so_by_a_tick_before_the_closing_phase() {
    let (mut event_loop, order) = (virtual_loop(), Order::new());
    let inner = order.clone();
    event_loop.set_immediate(move |context| {
        let closed = context.check(|_| ());
        context.close(closed, inner.add("abrupt close")).unwrap();
        context.next_tick(inner.add("close by a tick"));
    });
    event_loop.set_immediate(order.add("immediate"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["close by a tick", "immediate", "abrupt close"]);
}
