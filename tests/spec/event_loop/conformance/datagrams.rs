//! Datagrams: sending, receiving, and the options of UDP sockets.

use std::io::ErrorKind;
use std::net::SocketAddr;

use offload_event_loop::{EventLoop, SourceError, UdpSocket};

use super::{LOCAL, milliseconds, outcome, source_loop, turn};
use crate::stage::{Order, alone};

fn socket(event_loop: &EventLoop) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(event_loop, LOCAL).unwrap();
    let address = socket.local_address().unwrap();
    (socket, address)
}

/// Writes down every datagram, or the error that came in its place.
fn receive(socket: &UdpSocket, order: &Order<String>) {
    let order = order.clone();
    socket
        .receive_start(move |_, _, datagram| {
            order.push(match datagram {
                Ok((bytes, _)) => String::from_utf8(bytes.to_vec()).unwrap(),
                Err(error) => outcome::<()>(Err(error)),
            });
        })
        .unwrap();
}

fn run_until_there_are<T: Clone + 'static>(event_loop: &mut EventLoop, order: &Order<T>, count: usize) {
    while order.so_far().len() < count {
        turn(event_loop);
    }
}

#[test]
fn an_address_has_one_socket_at_a_time() {
    let _without_forks = alone();
    let event_loop = source_loop();
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let first = UdpSocket::bind(&event_loop, address.parse().unwrap()).unwrap();
        let address = first.local_address().unwrap();
        assert_ne!(address.port(), 0);
        assert_eq!(UdpSocket::bind(&event_loop, address).err().unwrap().kind(), ErrorKind::AddrInUse);
        first.close(|_| ()).unwrap();
        UdpSocket::bind(&event_loop, address).unwrap();
    }
    let foreign = UdpSocket::bind(&event_loop, "192.0.2.1:0".parse().unwrap());
    assert_eq!(foreign.err().unwrap().kind(), ErrorKind::AddrNotAvailable);
}

#[test]
fn datagrams_sent_in_a_row_are_received_one_by_one_with_their_sender_and_empty_ones_too() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let ((sender, from), (receiver, to)) = (socket(&event_loop), socket(&event_loop));
    // Nobody receives yet, so they wait in the kernel, more of them than are taken for one event.
    for number in 0..100_u8 {
        sender.try_send_to(&vec![number; usize::from(number)], to).unwrap();
    }
    let log = order.clone();
    receiver
        .receive_start(move |_, _, datagram| {
            let (bytes, sender) = datagram.unwrap();
            assert!(sender == from && bytes.iter().all(|byte| usize::from(*byte) == bytes.len()));
            log.push(bytes.len());
        })
        .unwrap();
    run_until_there_are(&mut event_loop, &order, 100);
    assert_eq!(order.so_far(), (0..100).collect::<Vec<_>>());
}

#[test]
fn receiving_does_not_keep_others_from_their_turn() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let ((sender, _), (receiver, to)) = (socket(&event_loop), socket(&event_loop));
    sender.try_send_to(b"x", to).unwrap();
    // Each datagram sends the next, so there is always one more.
    receiver.receive_start(move |_, socket, _| socket.try_send_to(b"x", to).unwrap()).unwrap();
    let (log, busy) = (order.clone(), receiver.clone());
    event_loop.set_timeout(milliseconds(1), move |_| {
        log.push("timer");
        busy.close(log.add("closed")).unwrap();
    });
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["timer", "closed"]);
}

#[test]
fn a_datagram_that_is_too_big_is_refused_and_the_next_one_is_sent() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let ((sender, _), (receiver, to)) = (socket(&event_loop), socket(&event_loop));
    receive(&receiver, &order);
    let refused = sender.try_send_to(&[b'x'; 65_536], to);
    assert!(matches!(refused, Err(SourceError::Io(_))), "{refused:?}");
    let largest = "x".repeat(65_507);
    sender.try_send_to(largest.as_bytes(), to).unwrap();
    run_until_there_are(&mut event_loop, &order, 1);
    assert!(order.so_far() == [largest]);
}

#[test]
fn a_buffer_that_is_too_short_gets_the_beginning_and_the_rest_is_gone() {
    let mut event_loop = source_loop();
    let ((sender, from), (receiver, to)) = (socket(&event_loop), socket(&event_loop));
    sender.try_send_to(b"longer", to).unwrap();
    sender.try_send_to(b"next", to).unwrap();
    let received = event_loop.spawn(async move {
        let mut buffer = [0; 4];
        assert_eq!(receiver.receive_from(&mut buffer).await.unwrap(), (4, from));
        let first = buffer;
        receiver.receive_from(&mut buffer).await.unwrap();
        [first, buffer]
    });
    event_loop.run().unwrap();
    assert_eq!(received.take_result().unwrap().unwrap(), [*b"long", *b"next"]);
}

#[test]
fn a_connected_socket_hears_its_peer_only_and_can_be_connected_anew() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let ((own, to), (one, first), (other, second)) =
        (socket(&event_loop), socket(&event_loop), socket(&event_loop));
    assert!(matches!(own.try_send(b"where to?"), Err(SourceError::Io(_))));
    receive(&own, &order);
    own.connect(first).unwrap();
    other.try_send_to(b"stranger", to).unwrap();
    one.try_send_to(b"peer", to).unwrap();
    run_until_there_are(&mut event_loop, &order, 1);
    own.connect(second).unwrap();
    one.try_send_to(b"stranger", to).unwrap();
    other.try_send_to(b"new peer", to).unwrap();
    run_until_there_are(&mut event_loop, &order, 2);
    receive(&other, &order);
    own.try_send(b"answer").unwrap();
    run_until_there_are(&mut event_loop, &order, 3);
    assert_eq!(order.so_far(), ["peer", "new peer", "answer"]);
}

#[test]
fn nobody_at_the_other_end_is_no_error_unless_the_socket_is_connected_to_it() {
    let _without_forks = alone();
    let (mut event_loop, order) = (source_loop(), Order::new());
    let ((own, to), (gone, nowhere)) = (socket(&event_loop), socket(&event_loop));
    gone.close(|_| ()).unwrap();
    receive(&own, &order);
    for _ in 0..10 {
        own.try_send_to(b"hello?", nowhere).unwrap();
    }
    own.try_send_to(b"to myself", to).unwrap();
    run_until_there_are(&mut event_loop, &order, 1);
    own.connect(nowhere).unwrap();
    own.try_send(b"hello?").unwrap();
    run_until_there_are(&mut event_loop, &order, 2);
    assert_eq!(order.so_far(), ["to myself", "ConnectionRefused"]);
    own.close(|_| ()).unwrap();
    assert!(!event_loop.run().unwrap(), "an error is no event that comes again and again");
}

#[test]
fn closing_in_the_callback_leaves_the_datagrams_behind_it_unread() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let ((sender, _), (receiver, to)) = (socket(&event_loop), socket(&event_loop));
    (0..10).for_each(|_| sender.try_send_to(b"x", to).unwrap());
    let log = order.clone();
    receiver
        .receive_start(move |_, socket, _| {
            log.push("received");
            socket.close(log.add("closed")).unwrap();
            assert!(matches!(socket.try_send_to(b"x", to), Err(SourceError::Closed)));
            assert!(matches!(socket.receive_start(|_, _, _| ()), Err(SourceError::Closed)));
        })
        .unwrap();
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["received", "closed"]);
    for refused in [
        receiver.try_send(b"x"),
        receiver.connect(to),
        receiver.local_address().map(drop),
        receiver.close(|_| ()),
    ] {
        assert!(matches!(refused, Err(SourceError::Closed)), "{refused:?}");
    }
}

#[test]
fn receiving_has_one_taker_at_a_time_and_what_comes_meanwhile_waits() {
    let (mut event_loop, order) = (source_loop(), Order::new());
    let ((sender, _), (receiver, to)) = (socket(&event_loop), socket(&event_loop));
    receiver.receive_start(|_, _, _| panic!("it is stopped")).unwrap();
    assert!(matches!(receiver.receive_start(|_, _, _| ()), Err(SourceError::AlreadyReading)));
    receiver.receive_stop();
    receiver.receive_stop();
    sender.try_send_to(b"meanwhile", to).unwrap();
    assert!(!event_loop.run().unwrap(), "nobody receives");
    receive(&receiver, &order);
    receiver.unref();
    assert!(!event_loop.run().unwrap(), "it is unreferenced");
    receiver.ref_();
    run_until_there_are(&mut event_loop, &order, 1);
    assert_eq!(order.so_far(), ["meanwhile"]);
}

#[test]
fn a_socket_for_all_addresses_of_version_6_receives_from_those_of_version_4() {
    let mut event_loop = source_loop();
    let receiver = UdpSocket::bind(&event_loop, "[::]:0".parse().unwrap()).unwrap();
    let port = receiver.local_address().unwrap().port();
    let (sender, from) = socket(&event_loop);
    sender.try_send_to(b"four", SocketAddr::new(LOCAL.ip(), port)).unwrap();
    let received = event_loop.spawn(async move { receiver.receive_from(&mut [0; 16]).await.unwrap() });
    event_loop.run().unwrap();
    let (count, sender) = received.take_result().unwrap().unwrap();
    assert_eq!((count, sender.ip().to_canonical(), sender.port()), (4, from.ip(), from.port()));
}
