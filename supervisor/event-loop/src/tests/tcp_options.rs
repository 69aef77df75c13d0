//! TCP sockets before they listen or connect, and the options and descriptors of sources.

use rustix::net::sockopt;

use super::*;

const LOCAL: &str = "127.0.0.1:0";

fn local() -> SocketAddr {
    LOCAL.parse().unwrap()
}

fn tcp(address: Result<Address, SourceError>) -> SocketAddr {
    match address {
        Ok(Address::Tcp(address)) => address,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_bound_socket_has_its_address_before_it_listens_and_takes_connections_after_it() {
    let mut event_loop = real_loop();
    let bound = TcpOptions::new().bind(local()).unwrap();
    let address = tcp(bound.local_address());
    assert_ne!(address.port(), 0);
    let refused = std::net::TcpStream::connect(address);
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    let listener = bound.listen(&event_loop).unwrap();
    assert_eq!(tcp(listener.local_address()), address);
    let _client = std::net::TcpStream::connect(address).unwrap();
    let accepted = event_loop.spawn(async move { listener.accept().await.is_ok() });
    event_loop.run().unwrap();
    assert_eq!(accepted.take_result(), Some(Ok(true)));
}

#[test]
fn a_bound_socket_connects_from_its_own_address() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (listener, address) = tcp_listener(&event_loop);
    let bound = TcpOptions::new().bind(local()).unwrap();
    let own = tcp(bound.local_address());
    let seen = log.clone();
    bound.connect(&event_loop, address, move |_, stream, connected| {
        connected.unwrap();
        assert_eq!(tcp(stream.local_address()), own);
        seen.add("connected");
    });
    let accepted = event_loop.spawn(async move { listener.accept().await.unwrap().peer_address().unwrap() });
    event_loop.run().unwrap();
    log.expect(&["connected"]);
    assert_eq!(accepted.take_result(), Some(Ok(Address::Tcp(own))));
}

#[test]
fn an_address_in_use_is_refused_by_bind_or_by_listen_and_shared_if_all_ask_for_it() {
    let event_loop = real_loop();
    let sharing = TcpOptions::new().reuse_port(true);
    let first = sharing.listen(&event_loop, local()).unwrap();
    let address = tcp(first.local_address());
    let _second = sharing.listen(&event_loop, address).unwrap();
    let alone = TcpOptions::new().listen(&event_loop, address).err().unwrap();
    assert_eq!(alone.kind(), std::io::ErrorKind::AddrInUse);
    let exclusive = TcpOptions::new().reuse_address(false);
    let bound = exclusive.bind(local()).unwrap();
    let taken = exclusive.bind(tcp(bound.local_address())).unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
}

#[test]
fn two_sockets_bound_to_one_address_cannot_both_listen() {
    let event_loop = real_loop();
    let first = TcpOptions::new().bind(local()).unwrap();
    let second = TcpOptions::new().bind(tcp(first.local_address())).unwrap();
    let _listener = first.listen(&event_loop).unwrap();
    assert_eq!(second.listen(&event_loop).err().unwrap().kind(), std::io::ErrorKind::AddrInUse);
}

#[test]
fn a_socket_for_version_6_alone_leaves_version_4_to_another_one() {
    let event_loop = real_loop();
    let any: SocketAddr = "[::]:0".parse().unwrap();
    let listener = TcpOptions::new().only_v6(true).listen(&event_loop, any).unwrap();
    let port = tcp(listener.local_address()).port();
    assert!(sockopt::ipv6_v6only(listener.descriptor().unwrap()).unwrap());
    Listener::tcp(&event_loop, SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    let both = Listener::tcp(&event_loop, any).unwrap();
    assert!(!sockopt::ipv6_v6only(both.descriptor().unwrap()).unwrap());
    let refused = TcpOptions::new().only_v6(true).listen(&event_loop, local()).err().unwrap();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn streams_have_the_options_that_they_connect_with_and_accepted_ones_those_of_their_listener() {
    let mut event_loop = real_loop();
    let options = TcpOptions::new().no_delay(true).keep_alive(Some(milliseconds(1_500)));
    let listener = options.listen(&event_loop, local()).unwrap();
    let address = tcp(listener.local_address());
    let check = |descriptor: Descriptor| {
        assert!(
            sockopt::tcp_nodelay(&descriptor).unwrap() && sockopt::socket_keepalive(&descriptor).unwrap()
        );
        let delay = sockopt::tcp_keepidle(&descriptor).unwrap();
        assert_eq!(delay, Duration::from_secs(2), "a second and a half, rounded up");
        assert_eq!(sockopt::tcp_keepintvl(&descriptor).unwrap(), Duration::from_secs(1));
        assert_eq!(sockopt::tcp_keepcnt(&descriptor).unwrap(), 10);
    };
    options.connect(&event_loop, address, move |_, stream, connected| {
        connected.unwrap();
        check(stream.descriptor().unwrap());
        stream.set_keep_alive(None).unwrap();
        assert!(!sockopt::socket_keepalive(stream.descriptor().unwrap()).unwrap());
        let too_short = stream.set_keep_alive(Some(milliseconds(999))).unwrap_err();
        assert_eq!(too_short.kind(), std::io::ErrorKind::InvalidInput);
    });
    event_loop.spawn(async move { check(listener.accept().await.unwrap().descriptor().unwrap()) });
    event_loop.run().unwrap();
}

#[test]
fn a_future_connects_with_options_too() {
    let mut event_loop = real_loop();
    let (_listener, address) = tcp_listener(&event_loop);
    let connecting = event_loop.connect_tcp_with(address, TcpOptions::new().no_delay(true));
    let connected = event_loop.spawn(async move {
        let stream = connecting.await.unwrap();
        sockopt::tcp_nodelay(stream.descriptor().unwrap()).unwrap()
    });
    event_loop.run().unwrap();
    assert_eq!(connected.take_result(), Some(Ok(true)));
}

#[test]
fn an_option_that_is_refused_is_told_to_who_connects_in_the_pending_phase() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let seen = log.clone();
    let options = TcpOptions::new().keep_alive(Some(Duration::ZERO));
    options.connect(&event_loop, local(), move |context, _, connected| {
        assert_eq!(context.current().phase, Phase::Pending);
        seen.add(format!("{:?}", connected.unwrap_err().kind()));
    });
    assert!(options.listen(&event_loop, local()).is_err());
    event_loop.run().unwrap();
    log.expect(&["InvalidInput"]);
}

#[test]
fn a_descriptor_keeps_its_file_open_and_a_closed_source_has_none() {
    let mut event_loop = real_loop();
    let (stream, peer) = Stream::pair(&event_loop).unwrap();
    let descriptor = stream.descriptor().unwrap();
    stream.close(|_| ()).unwrap();
    assert!(matches!(stream.descriptor(), Err(SourceError::Closed)));
    event_loop.run().unwrap();
    rustix::io::write(&descriptor, b"still open").unwrap();
    drop(descriptor);
    let read = event_loop.spawn(async move {
        let mut buffer = [0; 32];
        let count = peer.read(&mut buffer).await.unwrap();
        assert_eq!(peer.read(&mut [0]).await.unwrap(), 0, "nobody has the other end any more");
        buffer[..count].to_vec()
    });
    event_loop.run().unwrap();
    assert_eq!(read.take_result(), Some(Ok(b"still open".to_vec())));
    let (listener, _) = tcp_listener(&event_loop);
    listener.close(|_| ()).unwrap();
    assert!(matches!(listener.descriptor(), Err(SourceError::Closed)));
}

#[test]
fn pipes_have_descriptors_until_they_are_shut_down() {
    let mut event_loop = real_loop();
    let (reader, writer) = Stream::pipe(&event_loop).unwrap();
    rustix::io::write(writer.descriptor().unwrap(), b"x").unwrap();
    writer.shutdown(|_, shut| shut.unwrap()).unwrap();
    assert!(matches!(writer.descriptor(), Err(SourceError::AlreadyShutDown)));
    let mut buffer = [0; 2];
    assert_eq!(rustix::io::read(reader.descriptor().unwrap(), &mut buffer).unwrap(), 1);
    event_loop.run().unwrap();
}
