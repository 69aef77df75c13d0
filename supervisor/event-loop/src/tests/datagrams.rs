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
            server.send_to(bytes, sender).unwrap();
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
        client.send(text.as_bytes()).unwrap();
    }
    assert!(!event_loop.run().unwrap());
    log.expect(&["one", "", "two", "closed"]);
    assert!(matches!(client.send(b"x"), Err(SourceError::Closed)));
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
    client.send(b"is anybody there").unwrap();
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
        client.send_to(b"more than four", server_address).unwrap();
    });
    event_loop.run().unwrap();
    assert_eq!(received.take_result(), Some(Ok((b"more".to_vec(), client_address))));
}
