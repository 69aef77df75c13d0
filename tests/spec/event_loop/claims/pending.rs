//! S14 and S15: callbacks whose result is known before the poll could report it.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use offload_event_loop::{Context, EventLoop, SourceError, Stream};
use offload_supervisor::Job;
use rustix::net::{AddressFamily, SocketType};

use super::props::{CHECK, IDLE, compute_pool, hook_once, in_poll, real_loop, virtual_loop};
use crate::stage::{Order, beside_others};

/// A socket that has a port and does not listen, so that connections to it are refused.
fn deaf_socket() -> (OwnedFd, SocketAddr) {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = rustix::net::getsockname(&socket).unwrap();
    (socket, address.try_into().unwrap())
}

/// Reports the phase in which callbacks panic.
fn tell_phases(event_loop: &mut EventLoop, order: &Order<String>) {
    let order = order.clone();
    event_loop.set_panic_handler(move |_, panic| order.push(format!("{:?}", panic.phase)));
}

/// Writes down why a connection failed, and panics, so that the phase is told.
fn failure_told(
    order: &Order<String>,
) -> impl FnOnce(&mut Context, &Stream, Result<(), SourceError>) + 'static {
    let order = order.clone();
    move |_, _, connected| {
        order.push(format!("{:?}", connected.unwrap_err().kind()));
        panic!("to learn the phase");
    }
}

#[test]
fn s14_a_refused_connection_is_told_in_the_pending_phase_and_never_from_within_the_call() {
    let (mut event_loop, order) = (real_loop(), Order::new());
    tell_phases(&mut event_loop, &order);
    let (_deaf, address) = deaf_socket();
    Stream::connect_tcp(&event_loop, address, failure_told(&order));
    order.push("connect has returned".to_owned());
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["connect has returned", "ConnectionRefused", "Pending"]);
}

#[test]
fn s14_a_unix_socket_that_is_not_there_is_told_in_the_pending_phase_though_it_is_known_at_once() {
    let (mut event_loop, order) = (real_loop(), Order::new());
    tell_phases(&mut event_loop, &order);
    hook_once(&event_loop, IDLE, order.add("idle".to_owned()));
    Stream::connect_unix(&event_loop, "/no/such/socket", failure_told(&order));
    order.push("connect has returned".to_owned());
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["connect has returned", "NotFound", "Pending", "idle"]);
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
