//! UDP.

use super::*;

fn udp_socket(event_loop: &LoopHandle) -> (UdpSocket, std::net::SocketAddr) {
    let socket = UdpSocket::bind(event_loop, "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_address().unwrap();
    (socket, address)
}

#[test]
fn datagrams_come_back_from_an_echo_one_by_one() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let ((server, server_address), (client, client_address)) =
        (udp_socket(&event_loop), udp_socket(&event_loop));
    server
        .receive_start(move |_, server, datagram| {
            let (bytes, sender) = datagram.unwrap();
            assert_eq!(sender, client_address);
            server.try_send_to(bytes, sender).unwrap();
        })
        .unwrap();
    client.connect(server_address).unwrap();
    let (heard, echo) = (log.clone(), server.clone());
    client
        .receive_start(move |_, client, datagram| {
            let (bytes, sender) = datagram.unwrap();
            assert_eq!(sender, server_address);
            heard.add(String::from_utf8_lossy(bytes));
            if bytes == b"two" {
                client.close(heard.entry("closed")).unwrap();
                echo.close(|_| ()).unwrap();
            }
        })
        .unwrap();
    for text in ["one", "", "two"] {
        client.try_send(text.as_bytes()).unwrap();
    }
    assert!(!event_loop.run().unwrap());
    log.expect(&["one", "", "two", "closed"]);
    assert!(matches!(client.try_send(b"x"), Err(SourceError::Closed)));
    assert!(matches!(client.close(|_| ()), Err(SourceError::Closed)));
}

#[test]
fn a_peer_that_refuses_datagrams_is_an_error_after_which_others_are_received() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (client, client_address) = udp_socket(&event_loop);
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let peer_address = peer.local_addr().unwrap();
    drop(peer);
    client.connect(peer_address).unwrap();
    client.try_send(b"is anybody there").unwrap();
    let heard = log.clone();
    client
        .receive_start(move |_, client, datagram| match datagram {
            Ok((bytes, _)) => {
                heard.add(String::from_utf8_lossy(bytes));
                client.close(|_| ()).unwrap();
            }
            Err(error) => {
                heard.add(format!("{:?}", error.kind()));
                let peer = std::net::UdpSocket::bind(peer_address).unwrap();
                peer.send_to(b"now", client_address).unwrap();
            }
        })
        .unwrap();
    event_loop.run().unwrap();
    log.expect(&["ConnectionRefused", "now"]);
}

#[test]
fn futures_send_and_receive_datagrams() {
    let mut event_loop = real_loop();
    let ((server, server_address), (client, _)) = (udp_socket(&event_loop), udp_socket(&event_loop));
    assert!(!event_loop.is_alive(), "nobody waits for anything yet");
    let received = event_loop.spawn(async move {
        let mut buffer = [0; 4];
        let (count, sender) = server.receive_from(&mut buffer).await.unwrap();
        assert!(matches!(server.receive_start(|_, _, _| ()), Ok(())));
        assert!(matches!(server.receive_from(&mut []).await, Err(SourceError::AlreadyReading)));
        server.close(|_| ()).unwrap();
        (buffer[..count].to_vec(), sender)
    });
    let client_address = client.local_address().unwrap();
    event_loop.spawn(async move {
        client.writable().await.unwrap();
        client.try_send_to(b"more than four", server_address).unwrap();
    });
    event_loop.run().unwrap();
    assert_eq!(received.take_result(), Some(Ok((b"more".to_vec(), client_address))));
}

#[test]
fn a_send_is_answered_in_order_and_never_at_once_and_keeps_the_loop_alive_until_then() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let ((sender, _), (receiver, to)) = (udp_socket(&event_loop), udp_socket(&event_loop));
    sender.connect(to).unwrap();
    let told = |what: &'static str| {
        let log = log.clone();
        move |_: &mut Context, result: Result<(), SourceError>| log.add(format!("{what} {}", result.is_ok()))
    };
    sender.send_to(b"one", to, told("one")).unwrap();
    sender.send(vec![b'x'; 65_536], told("too long")).unwrap();
    sender.send("two", told("two")).unwrap();
    assert_eq!(
        (sender.send_queue_len(), sender.send_queue_bytes()),
        (3, 0),
        "the kernel has had its say on all"
    );
    log.expect(&[]);
    assert!(!event_loop.run().unwrap());
    log.expect(&["one true", "too long false", "two true"]);
    assert_eq!(sender.send_queue_len(), 0);
    drop(receiver);
}

#[test]
fn a_send_beyond_the_bound_is_refused_with_an_error_that_says_so_until_an_earlier_one_is_answered() {
    let mut event_loop = real_loop();
    let ((sender, _), (_receiver, to)) = (udp_socket(&event_loop), udp_socket(&event_loop));
    let answered = Rc::new(Cell::new(0));
    let send = |sender: &UdpSocket| {
        let answered = Rc::clone(&answered);
        sender.send_to(b"x", to, move |_, result| {
            result.unwrap();
            answered.set(answered.get() + 1);
        })
    };
    for _ in 0..SEND_QUEUE_LEN_MAX {
        send(&sender).unwrap();
    }
    let refused = send(&sender).unwrap_err();
    assert!(matches!(refused, SourceError::SendQueueFull { datagrams: SEND_QUEUE_LEN_MAX, bytes: 0 }));
    assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
    assert!(refused.to_string().contains("1024 of 1024 datagrams"), "{refused}");
    event_loop.run().unwrap();
    assert_eq!(answered.get(), SEND_QUEUE_LEN_MAX);
    send(&sender).unwrap();
    event_loop.run().unwrap();
}

#[test]
fn closing_a_socket_answers_its_sends_before_it_says_closed() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let ((sender, _), (_receiver, to)) = (udp_socket(&event_loop), udp_socket(&event_loop));
    let told = log.clone();
    sender.send_to(b"x", to, move |_, result| told.add(format!("sent {}", result.is_ok()))).unwrap();
    sender.close(log.entry("closed")).unwrap();
    assert!(matches!(sender.send_to(b"x", to, |_, _| ()), Err(SourceError::Closed)));
    event_loop.run().unwrap();
    log.expect(&["sent true", "closed"]);
}

#[test]
fn several_sockets_share_a_port_if_all_of_them_ask_for_it() {
    let event_loop = real_loop();
    for options in [UdpOptions::new().reuse_port(true), UdpOptions::new().reuse_address(true)] {
        let first = options.bind(&event_loop, "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = first.local_address().unwrap();
        options.bind(&event_loop, address).unwrap();
        let alone = UdpSocket::bind(&event_loop, address).err().unwrap();
        assert_eq!(alone.kind(), std::io::ErrorKind::AddrInUse);
    }
}

#[test]
fn the_options_of_a_udp_socket_are_set_and_its_descriptor_shows_them() {
    let event_loop = real_loop();
    let options =
        UdpOptions::new().broadcast(true).time_to_live(7).multicast_time_to_live(3).multicast_loop(false);
    let socket = options.bind(&event_loop, "127.0.0.1:0".parse().unwrap()).unwrap();
    let descriptor = socket.descriptor().unwrap();
    assert!(rustix::net::sockopt::socket_broadcast(&descriptor).unwrap());
    assert_eq!(rustix::net::sockopt::ip_ttl(&descriptor).unwrap(), 7);
    assert_eq!(rustix::net::sockopt::ip_multicast_ttl(&descriptor).unwrap(), 3);
    assert!(!rustix::net::sockopt::ip_multicast_loop(&descriptor).unwrap());
    let v6 = "[::1]:0".parse().unwrap();
    let socket = options.only_v6(true).bind(&event_loop, v6).unwrap();
    assert!(rustix::net::sockopt::ipv6_v6only(socket.descriptor().unwrap()).unwrap());
    let socket = UdpSocket::bind(&event_loop, "[::]:0".parse().unwrap()).unwrap();
    assert!(!rustix::net::sockopt::ipv6_v6only(socket.descriptor().unwrap()).unwrap());
    let v4_for_v6_only = UdpOptions::new().only_v6(true).bind(&event_loop, "127.0.0.1:0".parse().unwrap());
    assert_eq!(v4_for_v6_only.err().unwrap().kind(), std::io::ErrorKind::InvalidInput);
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let without_hops = UdpOptions::new().time_to_live(0).bind(&event_loop, address.parse().unwrap());
        assert_eq!(without_hops.err().unwrap().kind(), std::io::ErrorKind::InvalidInput);
    }
}

#[test]
fn a_socket_that_joined_a_group_receives_what_is_sent_to_it() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let receiver = UdpSocket::bind(&event_loop, "0.0.0.0:0".parse().unwrap()).unwrap();
    let port = receiver.local_address().unwrap().port();
    let (group, interface) = ("239.255.77.1".parse().unwrap(), "127.0.0.1".parse().unwrap());
    let group_of_v4 = MulticastGroup::V4 { group, interface };
    receiver.join_multicast(group_of_v4).unwrap();
    assert!(receiver.join_multicast(group_of_v4).is_err(), "it has joined before");
    let heard = log.clone();
    receiver
        .receive_start(move |_, socket, datagram| {
            heard.add(String::from_utf8_lossy(datagram.unwrap().0));
            socket.leave_multicast(group_of_v4).unwrap();
            assert!(socket.leave_multicast(group_of_v4).is_err(), "it has left before");
            socket.close(|_| ()).unwrap();
        })
        .unwrap();
    let (sender, _) = udp_socket(&event_loop);
    rustix::net::sockopt::set_ip_multicast_if(sender.descriptor().unwrap(), &interface).unwrap();
    sender.send_to(b"to all", SocketAddr::from((group, port)), |_, sent| sent.unwrap()).unwrap();
    event_loop.run().unwrap();
    log.expect(&["to all"]);
}
