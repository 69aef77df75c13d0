//! What comes from the kernel: sockets and children.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, ExitStatus};
use std::rc::Rc;

use offload_event_loop::{
    Address, Child, Context, Incoming, Interest, Listener, LoopHandle, SourceError, Stream,
};

use super::{new_loop, run_and_stop};
use crate::measure::{Counter, Measured, Meter};

pub(crate) fn tcp_pingpong(n: u64) -> Measured {
    let (mut event_loop, counter) = (new_loop(), Counter::new());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = Listener::tcp(&event_loop, address).expect("a free port");
    let Ok(Address::Tcp(address)) = listener.local_address() else { panic!("it is bound") };
    let accepted = |_: &mut Context, listener: &Listener, stream: Result<Stream, SourceError>| {
        let stream = stream.expect("a connection");
        stream.set_nodelay(true).expect("a TCP stream can");
        answer_bytes(&stream, |_, stream| send_byte(stream));
        listener.close(|_| ()).expect("it was open");
    };
    listener.accept_start(accepted).expect("nobody else accepts");
    let connected = move |_: &mut Context, stream: &Stream, result: Result<(), SourceError>| {
        result.expect("it listens");
        stream.set_nodelay(true).expect("a TCP stream can");
        answer_bytes(stream, move |context, stream| match counter.add_one() == n {
            true => context.stop(),
            false => send_byte(stream),
        });
        send_byte(stream);
    };
    let meter = Meter::start();
    Stream::connect_tcp(&event_loop, address, connected);
    run_and_stop(&mut event_loop, &meter, counter, n)
}

fn answer_bytes(stream: &Stream, mut received: impl FnMut(&mut Context, &Stream) + 'static) {
    let read = move |context: &mut Context, stream: &Stream, incoming: Incoming<'_>| match incoming {
        Incoming::Data(bytes) => {
            assert_eq!(bytes.len(), 1, "one byte is under way at a time");
            received(context, stream);
        }
        other => panic!("{other:?}"),
    };
    stream.read_start(read).expect("nobody else reads");
}

fn send_byte(stream: &Stream) {
    assert_eq!(stream.try_write(b"x").expect("an empty socket takes a byte"), 1);
}

pub(crate) fn tcp_pingpong_watch(n: u64) -> Measured {
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

fn next_child(context: &LoopHandle, counter: Counter, n: u64) {
    let child = Child::spawn(context, &mut Command::new("/bin/true")).expect("it is on every system");
    let ended = move |context: &mut Context, status: Result<ExitStatus, SourceError>| {
        assert!(status.expect("it is our child").success());
        if counter.add_one() < n {
            next_child(context, counter, n);
        }
    };
    child.on_exit(ended).expect("nobody else waits");
}
