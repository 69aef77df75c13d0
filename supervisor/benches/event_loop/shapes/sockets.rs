//! What comes from the kernel: sockets and children.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::rc::Rc;

use offload_supervisor::Context;
use offload_supervisor::event_loop::{HandleId, Interest};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{new_loop, run_and_stop};
use crate::measure::{Counter, Measured, Meter};

pub(crate) fn tcp_pingpong(n: u64) -> Measured {
    let (mut event_loop, counter) = (new_loop(), Counter::new());
    let (client, server) = connected();
    echo(&event_loop, server);
    let mut first = &*client;
    on_byte(&event_loop, client.clone(), move |context, socket| {
        if counter.add_one() == n {
            context.stop();
        } else {
            send(socket, b"x");
        }
    });
    let meter = Meter::start();
    first.write_all(b"x").expect("an empty socket takes a byte");
    run_and_stop(&mut event_loop, &meter, counter, n)
}

fn connected() -> (Rc<TcpStream>, Rc<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let client = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let (server, _) = listener.accept().expect("it connects");
    for socket in [&client, &server] {
        socket.set_nonblocking(true).expect("a socket can");
        socket.set_nodelay(true).expect("a TCP socket can");
    }
    (Rc::new(client), Rc::new(server))
}

fn echo(context: &Context, socket: Rc<TcpStream>) {
    on_byte(context, socket, |_, socket| send(socket, b"x"));
}

fn on_byte(
    context: &Context,
    socket: Rc<TcpStream>,
    mut received: impl FnMut(&mut Context, &TcpStream) + 'static,
) {
    let reader = Rc::clone(&socket);
    let ready = move |context: &mut Context, _| {
        let count = (&*reader).read(&mut [0; 64]).expect("it is readable");
        assert_eq!(count, 1, "one byte is under way at a time");
        received(context, &reader);
    };
    context.watch(socket, Interest::READ, ready).expect("a socket can be watched");
}

fn send(mut socket: &TcpStream, bytes: &[u8]) {
    socket.write_all(bytes).expect("an empty socket takes a byte");
}

pub(crate) fn spawn_true(n: u64) -> Measured {
    let (mut event_loop, counter) = (new_loop(), Counter::new());
    let meter = Meter::start();
    next_child(&event_loop, counter, n);
    run_and_stop(&mut event_loop, &meter, counter, n)
}

/// A child's descriptor is readable when the child has ended.
fn next_child(context: &Context, counter: Counter, n: u64) {
    let child = Command::new("/bin/true").spawn().expect("it is on every system");
    let descriptor: OwnedFd =
        pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("it was not awaited yet");
    let watched: Rc<RefCell<Option<(HandleId, Child)>>> = Rc::default();
    let waiting = Rc::clone(&watched);
    let ended = move |context: &mut Context, _| {
        let Some((id, mut child)) = waiting.take() else { return };
        assert!(child.wait().expect("it has ended").success());
        context.close(id, |_| ()).expect("it was open");
        if counter.add_one() < n {
            next_child(context, counter, n);
        }
    };
    let id = context.watch(descriptor, Interest::READ, ended).expect("it can be watched");
    watched.replace(Some((id, child)));
}
