//! S14 and S15: callbacks whose result is known before the poll could tell it.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};

use offload_supervisor::Job;
use offload_supervisor::event_loop::LoopHandle;

use super::props::{CHECK, IDLE, compute_pool, hook_once, in_poll, real_loop, virtual_loop};
use crate::stage::{Order, beside_others};

/// A connect as a layer above the loop writes it: the kernel refuses at once, the caller hears of it later.
fn connect(event_loop: &LoopHandle, port: u16, done: impl FnOnce(std::io::Result<TcpStream>) + 'static) {
    let result = TcpStream::connect(("127.0.0.1", port));
    event_loop.set_pending(move |_| done(result));
}

/// A port that was free a moment ago.
fn port_without_listener() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn s14_a_refused_connection_is_told_in_the_pending_phase_and_never_from_within_the_call() {
    let (mut event_loop, order) = (virtual_loop(), Order::new());
    hook_once(&event_loop, IDLE, order.add("idle"));
    let refused = order.clone();
    connect(&event_loop, port_without_listener(), move |result| {
        assert_eq!(result.map(drop).map_err(|error| error.kind()), Err(ErrorKind::ConnectionRefused));
        refused.push("refused");
    });
    order.push("connect has returned");
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["connect has returned", "refused", "idle"]);
}

#[test]
fn s14_what_a_poll_callback_puts_off_is_told_before_the_check_phase() {
    let (mut event_loop, order) = (virtual_loop(), Order::new());
    let inner = order.clone();
    in_poll(&event_loop, move |context| {
        inner.push("poll");
        context.set_pending(inner.add("pending"));
    });
    in_poll(&event_loop, order.add("poll"));
    hook_once(&event_loop, CHECK, order.add("check"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["poll", "poll", "pending", "check"]);
}

#[test]
fn s14_a_job_that_is_refused_at_once_is_told_later_all_the_same() {
    let _beside = beside_others();
    let (mut event_loop, order) = (real_loop(), Order::new());
    let pool = compute_pool(&event_loop, 1);
    hook_once(&event_loop, IDLE, order.add("idle"));
    let refused = order.clone();
    pool.submit(Job::new("no task has such a name"), move |finished, _| {
        assert!(finished.into_output().is_err());
        refused.push("refused");
    });
    order.push("submit has returned");
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["submit has returned", "refused", "idle"]);
}
