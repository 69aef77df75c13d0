//! Listening and connecting: addresses, backlogs, refusals, and what happens to connections that are given up.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use offload_event_loop::{Address, EventLoop, Incoming, Listener, LoopHandle, RunMode, SourceError, Stream};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

use super::{
    LOCAL, connect_told, deaf_socket, incoming_told, milliseconds, outcome, port_of, source_loop, told, turn,
};
use crate::stage::{Order, alone};

/// Writes down the first byte of each connection.
fn accept_first_bytes(listener: &Listener, order: &Order<char>) {
    let order = order.clone();
    listener
        .accept_start(move |_, _, stream| {
            let order = order.clone();
            let first_byte = move |_: &mut _, stream: &Stream, incoming: Incoming<'_>| {
                let Incoming::Data(bytes) = incoming else { panic!("{incoming:?}") };
                order.push(char::from(bytes[0]));
                stream.read_stop();
            };
            stream.unwrap().read_start(first_byte).unwrap();
        })
        .unwrap();
}

fn client(address: SocketAddr, byte: u8) -> TcpStream {
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(&[byte]).unwrap();
    client
}

#[test]
fn connections_that_come_before_anybody_accepts_wait_and_are_accepted_in_their_order() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let listener = Listener::tcp(&event_loop, LOCAL).unwrap();
    let clients: Vec<_> = (b'a'..=b'e').map(|byte| client(port_of(&listener), byte)).collect();
    let (later, log) = (listener.clone(), order.clone());
    event_loop.set_timeout(milliseconds(1), move |_| accept_first_bytes(&later, &log));
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert!(order.so_far().is_empty(), "nobody accepts yet");
    while order.so_far().len() < clients.len() {
        turn(&mut event_loop);
    }
    assert_eq!(order.so_far(), ['a', 'b', 'c', 'd', 'e']);
}

#[test]
fn accepting_can_be_stopped_and_started_and_has_one_taker_at_a_time() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let listener = Listener::tcp(&event_loop, LOCAL).unwrap();
    listener.accept_start(|_, _, _| panic!("it is stopped")).unwrap();
    assert!(matches!(listener.accept_start(|_, _, _| ()), Err(SourceError::AlreadyReading)));
    listener.accept_stop();
    listener.accept_stop();
    let _client = client(port_of(&listener), b'a');
    assert!(!event_loop.run().unwrap());
    accept_first_bytes(&listener, &order);
    while order.so_far().is_empty() {
        turn(&mut event_loop);
    }
}

#[test]
fn two_listeners_of_a_loop_have_connections_of_their_own() {
    let mut event_loop = source_loop();
    let listeners = [(), ()].map(|()| Listener::tcp(&event_loop, LOCAL).unwrap());
    let orders = [Order::new(), Order::new()];
    let mut clients = Vec::new();
    for (number, (listener, order)) in listeners.iter().zip(&orders).enumerate() {
        accept_first_bytes(listener, order);
        clients.push(client(port_of(listener), b'0' + number as u8));
    }
    while orders.iter().any(|order| order.so_far().is_empty()) {
        turn(&mut event_loop);
    }
    assert_eq!(orders.map(|order| order.so_far()), [['0'], ['1']]);
}

#[test]
fn an_address_in_use_or_of_another_machine_is_refused_at_once() {
    let mut event_loop = source_loop();
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = Listener::tcp(&event_loop, address.parse().unwrap()).unwrap();
        let second = Listener::tcp(&event_loop, port_of(&listener));
        assert_eq!(second.err().unwrap().kind(), ErrorKind::AddrInUse);
        assert!(client_is_served(&mut event_loop, &listener), "the first goes on");
    }
    for foreign in ["192.0.2.1:0", "[2001:db8::1]:0"] {
        let refused = Listener::tcp(&event_loop, foreign.parse().unwrap());
        assert_eq!(refused.err().unwrap().kind(), ErrorKind::AddrNotAvailable);
    }
}

fn client_is_served(event_loop: &mut offload_event_loop::EventLoop, listener: &Listener) -> bool {
    let (order, _client) = (Order::new(), client(port_of(listener), b'x'));
    accept_first_bytes(listener, &order);
    while order.so_far().is_empty() {
        turn(event_loop);
    }
    order.so_far() == ['x']
}

#[test]
fn a_closed_listener_refuses_everything_and_its_address_is_free() {
    let _without_forks = alone();
    let (mut event_loop, order) = (source_loop(), Order::new());
    let listener = Listener::tcp(&event_loop, LOCAL).unwrap();
    let address = port_of(&listener);
    listener.accept_start(|_, _, _| ()).unwrap();
    listener.close(order.add("closed")).unwrap();
    assert!(matches!(listener.accept_start(|_, _, _| ()), Err(SourceError::Closed)));
    assert!(matches!(listener.local_address(), Err(SourceError::Closed)));
    assert!(matches!(listener.close(|_| ()), Err(SourceError::Closed)));
    let next = Listener::tcp(&event_loop, address).unwrap();
    assert_eq!(port_of(&next), address);
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["closed"]);
}

#[test]
fn connections_that_nobody_accepted_are_reset_when_their_listener_is_closed() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let listener = Listener::tcp(&event_loop, LOCAL).unwrap();
    let mut clients: Vec<_> = (0..5).map(|_| TcpStream::connect(port_of(&listener)).unwrap()).collect();
    let log = order.clone();
    listener
        .accept_start(move |_, listener, stream| {
            log.push("accepted");
            stream.unwrap().write("hello", |_, written| written.unwrap()).unwrap();
            listener.close(log.add("closed")).unwrap();
        })
        .unwrap();
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["accepted", "closed"]);
    let mut hello = String::new();
    clients.remove(0).read_to_string(&mut hello).unwrap();
    assert_eq!(hello, "hello");
    for mut client in clients {
        assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

#[test]
fn a_stream_that_was_refused_is_closed_by_its_owner_and_not_before() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (_deaf, address) = deaf_socket();
    let stream = Stream::connect_tcp(&event_loop, address, connect_told(&order, "connect"));
    stream.write("early", told(&order, "write")).unwrap();
    stream.shutdown(told(&order, "shutdown")).unwrap();
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["connect: ConnectionRefused", "write: Cancelled", "shutdown: Cancelled"]);
    assert!(!stream.is_closed());
    for refused in [
        stream.write("late", |_, _| ()),
        stream.try_write(b"late").map(drop),
        stream.shutdown(|_, _| ()),
        stream.read_start(|_, _, _| ()),
        stream.peer_address().map(drop),
    ] {
        assert!(matches!(refused, Err(SourceError::NotConnected)), "{refused:?}");
    }
    stream.close(order.add("closed".to_owned())).unwrap();
    event_loop.run().unwrap();
    assert_eq!(order.so_far().last().unwrap(), "closed");
}

#[test]
fn a_stream_can_be_read_and_has_an_address_while_it_connects() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let server = TcpListener::bind(LOCAL).unwrap();
    let stream =
        Stream::connect_tcp(&event_loop, server.local_addr().unwrap(), connect_told(&order, "connect"));
    stream.read_start(incoming_told(&order)).unwrap();
    assert!(matches!(stream.read_start(|_, _, _| ()), Err(SourceError::AlreadyReading)));
    stream.set_nodelay(true).unwrap();
    let Address::Tcp(own) = stream.local_address().unwrap() else { panic!("it connects over TCP") };
    assert!(matches!(stream.peer_address(), Err(SourceError::NotConnected)));
    assert!(matches!(stream.try_write(b"x"), Err(SourceError::WouldBlock)));
    let (mut peer, seen) = server.accept().unwrap();
    assert_eq!(seen, own);
    peer.write_all(b"hello").unwrap();
    drop(peer);
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["connect: done", "hello", "end"]);
}

type Connect<'a> = &'a dyn Fn(&EventLoop, &Order<String>) -> Stream;

#[test]
fn a_reader_that_waits_for_a_refused_connection_is_told_after_the_writes() {
    let (_deaf, address) = deaf_socket();
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let kinds: [(&str, Connect<'_>); 2] = [
        ("ConnectionRefused", &|event_loop, order| {
            Stream::connect_tcp(event_loop, address, connect_told(order, "connect"))
        }),
        ("NotFound", &|event_loop, order| {
            Stream::connect_unix(event_loop, &missing, connect_told(order, "connect"))
        }),
    ];
    for (kind, connect) in kinds {
        let (mut event_loop, order) = (source_loop(), Order::new());
        let stream = connect(&event_loop, &order);
        stream.read_start(incoming_told(&order)).unwrap();
        stream.write("early", told(&order, "write")).unwrap();
        assert!(!event_loop.run().unwrap(), "a reader that was told waits no more");
        assert_eq!(order.so_far(), [&format!("connect: {kind}"), "write: Cancelled", "NotConnected"]);
        assert!(matches!(stream.local_address(), Err(SourceError::NotConnected)));

        // Who stops reading is not told.
        let (mut event_loop, order) = (source_loop(), Order::new());
        let stream = connect(&event_loop, &order);
        stream.read_start(incoming_told(&order)).unwrap();
        stream.read_stop();
        assert!(!event_loop.run().unwrap());
        assert_eq!(order.so_far(), [format!("connect: {kind}")]);
    }
}

#[test]
fn a_future_that_reads_while_its_stream_connects_waits_for_how_that_ends() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let server = TcpListener::bind(LOCAL).unwrap();
    let (_deaf, refused) = deaf_socket();
    let ends = [server.local_addr().unwrap(), refused].map(|address| {
        let stream = Stream::connect_tcp(&event_loop, address, connect_told(&order, "connect"));
        event_loop.spawn(async move { outcome(stream.read(&mut [0; 16]).await) })
    });
    let (mut peer, _) = server.accept().unwrap();
    peer.write_all(b"hello").unwrap();
    event_loop.run().unwrap();
    let ends = ends.map(|end| end.take_result().unwrap().unwrap());
    assert_eq!(ends, ["done", "NotConnected"]);
}

#[test]
fn addresses_that_nobody_can_have_are_refused_later_and_never_from_within_the_call() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let addresses = ["255.255.255.255:9", "[fe80::1]:9", "[ff02::1]:9"];
    for address in addresses {
        Stream::connect_tcp(&event_loop, address.parse().unwrap(), connect_told(&order, "connect"));
    }
    assert!(order.so_far().is_empty());
    event_loop.run().unwrap();
    assert_eq!(order.so_far().len(), addresses.len());
    assert!(!order.so_far().contains(&"connect: done".to_owned()), "{order:?}");
}

#[test]
fn connecting_to_the_unspecified_address_reaches_this_machine() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let listener = Listener::tcp(&event_loop, LOCAL).unwrap();
    let unspecified = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port_of(&listener).port());
    let stream = Stream::connect_tcp(&event_loop, unspecified, connect_told(&order, "connect"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["connect: done"]);
    assert_eq!(stream.peer_address().unwrap(), Address::Tcp(port_of(&listener)));
    let accepted = event_loop.spawn(async move { listener.accept().await.unwrap() });
    event_loop.run().unwrap();
    let accepted = accepted.take_result().unwrap().unwrap();
    assert_eq!(accepted.peer_address().unwrap(), stream.local_address().unwrap());
    assert_eq!(accepted.local_address().unwrap(), stream.peer_address().unwrap());
}

#[test]
fn closing_while_it_connects_answers_everything_with_cancelled_before_it_says_closed() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let listener = Listener::tcp(&event_loop, LOCAL).unwrap();
    let stream = Stream::connect_tcp(&event_loop, port_of(&listener), connect_told(&order, "connect"));
    stream.write("x", told(&order, "write")).unwrap();
    stream.shutdown(told(&order, "shutdown")).unwrap();
    stream.close(order.add("closed".to_owned())).unwrap();
    assert!(order.so_far().is_empty());
    assert!(!event_loop.run().unwrap());
    let expected = ["connect: Cancelled", "write: Cancelled", "shutdown: Cancelled", "closed"];
    assert_eq!(order.so_far(), expected);
}

/// A socket that listens and whose kernel keeps as few connections for it as it can.
fn smallest_backlog(socket: &OwnedFd) {
    rustix::net::listen(socket, 0).unwrap();
}

#[test]
fn a_connect_that_is_never_answered_goes_on_until_a_timer_closes_it() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (listener, address) = deaf_socket();
    smallest_backlog(&listener);
    let _first = TcpStream::connect(address).unwrap();
    // The backlog is full, so the kernel answers nothing.
    let stream = Stream::connect_tcp(&event_loop, address, connect_told(&order, "connect"));
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert!(event_loop.is_alive() && order.so_far().is_empty());
    let (log, waiting) = (order.clone(), stream.clone());
    event_loop.set_timeout(milliseconds(20), move |_| {
        log.push("timeout".to_owned());
        waiting.close(log.add("closed".to_owned())).unwrap();
    });
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["timeout", "connect: Cancelled", "closed"]);
}

#[test]
fn a_unix_socket_whose_backlog_is_full_says_so_later() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    smallest_backlog(&socket);
    let _first = UnixStream::connect(&path).unwrap();
    Stream::connect_unix(&event_loop, &path, connect_told(&order, "connect"));
    assert!(order.so_far().is_empty());
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["connect: WouldBlock"]);
}

fn connect_to(event_loop: &LoopHandle, path: &Path, order: &Order<String>) {
    Stream::connect_unix(event_loop, path, connect_told(order, "connect"));
}

#[test]
fn paths_that_are_no_sockets_are_refused_by_what_they_are_also_to_a_prepare_hook() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "no socket").unwrap();
    let paths = [
        folder.path().join("missing"),
        file,
        folder.path().to_owned(),
        folder.path().join("x".repeat(200)),
        "".into(),
        "\0abstract".into(),
    ];
    let (own_name, name) = super::own_name();
    let log = order.clone();
    let hook = event_loop.prepare(move |context| {
        paths.iter().for_each(|path| connect_to(context, path, &log));
        log.push("prepare".to_owned());
        context.close(own_name.get().unwrap(), |_| ()).unwrap();
    });
    name.set(Some(hook));
    assert!(!event_loop.run().unwrap());
    let kinds = [
        "NotFound",
        "ConnectionRefused",
        "ConnectionRefused",
        "InvalidFilename",
        "UnusablePath",
        "UnusablePath",
    ];
    let mut expected = vec!["prepare".to_owned()];
    expected.extend(kinds.map(|kind| format!("connect: {kind}")));
    assert_eq!(order.so_far(), expected);
}

#[test]
fn a_path_that_exists_is_too_long_or_in_no_folder_cannot_be_listened_at() {
    let event_loop = source_loop();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let _first = Listener::unix(&event_loop, &path).unwrap();
    for (path, expected) in [
        (path, ErrorKind::AddrInUse),
        (folder.path().join("no folder/socket"), ErrorKind::NotFound),
        (folder.path().join("x".repeat(200)), ErrorKind::InvalidFilename),
    ] {
        assert_eq!(Listener::unix(&event_loop, path).err().unwrap().kind(), expected);
    }
}

/// Without a path the kernel would choose a name that is no file, and names that begin with a zero byte are none either:
/// anybody may connect to them.
#[test]
fn there_are_no_unix_sockets_without_a_file() {
    let event_loop = source_loop();
    for path in ["", "\0", "\0abstract", "a zero byte\0in between"] {
        let refused = Listener::unix(&event_loop, path).err().unwrap();
        assert!(matches!(refused, SourceError::UnusablePath), "{path:?}: {refused:?}");
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
    assert!(!event_loop.is_alive());
}

#[test]
fn several_connects_to_one_unix_socket_all_succeed_or_are_cancelled_together() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = Listener::unix(&event_loop, &path).unwrap();
    let log = order.clone();
    listener
        .accept_start(move |_, _, stream| {
            stream.unwrap().read_start(incoming_told(&log)).unwrap();
        })
        .unwrap();
    listener.unref();
    let kept: Vec<_> =
        (0..3).map(|_| Stream::connect_unix(&event_loop, &path, connect_told(&order, "kept"))).collect();
    for _ in 0..3 {
        let given_up = Stream::connect_unix(&event_loop, &path, connect_told(&order, "given up"));
        given_up.close(|_| ()).unwrap();
    }
    let connects = order.clone();
    event_loop.set_immediate(move |_| {
        assert_eq!(connects.so_far()[..3], ["kept: done"; 3]);
        kept.iter().for_each(|stream| stream.close(|_| ()).unwrap());
    });
    while order.so_far().len() < 12 {
        turn(&mut event_loop);
    }
    let mut rest = order.so_far().split_off(3);
    rest.sort();
    assert_eq!(rest, [["end"; 6].as_slice(), &["given up: Cancelled"; 3]].concat());
}

#[test]
fn a_listener_and_a_stream_without_a_reader_do_not_keep_the_loop_alive() {
    let mut event_loop = source_loop();
    let listener = Listener::tcp(&event_loop, LOCAL).unwrap();
    let _client = TcpStream::connect(port_of(&listener)).unwrap();
    assert!(!event_loop.run().unwrap(), "nobody accepts");
    let accepted = event_loop.spawn({
        let listener = listener.clone();
        async move { listener.accept().await.unwrap() }
    });
    assert!(!event_loop.run().unwrap(), "nobody reads");
    listener.accept_start(|_, _, _| ()).unwrap();
    listener.unref();
    let stream = accepted.take_result().unwrap().unwrap();
    stream.read_start(|_, _, _| ()).unwrap();
    stream.unref();
    stream.unref();
    assert!(!event_loop.run().unwrap(), "both are unreferenced");
    stream.ref_();
    assert!(event_loop.is_alive());
}
