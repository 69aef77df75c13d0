//! What the tests with the real binary do not reach.

use super::*;
use offload_event_loop::{EventLoop, LoopConfig, Time};
use offload_supervisor::pauses::RunningClock;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

#[test]
fn an_answer_to_a_violation_is_not_offered_for_ever_to_a_client_that_reads_nothing() {
    let config = LoopConfig { time: Time::Virtual, ..LoopConfig::default() };
    let mut event_loop = EventLoop::with(config).unwrap();
    let handle = event_loop.handle().clone();
    let (mut client, server) = UnixStream::pair().unwrap();
    let mut full = server.try_clone().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.write(&[0; 4096]).is_ok() {}
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").unwrap();
    let line = Line::new(
        &Timekeeper::new(&handle, &RunningClock::new(&handle)),
        server.into(),
        None,
        &Rc::default(),
    )
    .unwrap();
    let has_ended = Rc::new(Cell::new(false));
    let ended = Rc::clone(&has_ended);
    drop(handle.spawn(async move {
        assert!(line.greet().await.is_none(), "there is nothing to be served");
        line.end().await;
        ended.set(true);
    }));
    event_loop.set_timeout(Duration::from_secs(60), |cx| cx.stop());
    event_loop.run().unwrap();
    assert!(has_ended.get());
    drop(client);
}

/// A client whose first records are there waits for its turn among the handshakes. It has to notice that it gives way to another, and
/// that its time is over, before that turn comes, or places would be held by connections of no use.
#[cfg(feature = "tls")]
#[test]
fn a_connection_that_waits_for_its_handshake_ends_when_it_is_cut_or_late() {
    use crate::turns::{Most, Place, Turns};
    use std::task::Waker;

    const AHEAD: usize = 1000;
    let ends: [fn(&Line); 2] = [Line::cut, |line| line.be_late(Late::Head)];
    for end in ends {
        let mut event_loop = EventLoop::new().unwrap();
        let handle = event_loop.handle().clone();
        // Each turn of the loop calls one of those who wait.
        let turns = Turns::new(&handle, Most { steps: 0, time: Duration::ZERO });
        let ahead: Vec<Rc<Place>> = (0..AHEAD).map(|_| Rc::default()).collect();
        for place in &ahead {
            assert!(turns.poll(place, &Context::from_waker(Waker::noop())).is_pending());
        }
        let (mut client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        client.write_all(&client_hello()).unwrap();
        let keeper = Timekeeper::new(&handle, &RunningClock::new(&handle));
        let session = Session::new(rustls_server(), &turns);
        let line = Line::new(&keeper, server.into(), Some(session), &Rc::default()).unwrap();
        let its_line = Rc::clone(&line);
        drop(handle.spawn(async move {
            assert!(line.greet().await.is_none(), "there was no handshake");
            line.handle.stop();
        }));
        handle.set_immediate(move |_| {
            let handle = its_line.handle.clone();
            handle.set_immediate(move |_| end(&its_line));
        });
        event_loop.run().unwrap();
        let iterations = handle.metrics().iterations;
        assert!(iterations < AHEAD as u64 / 2, "it took {iterations} turns");
        drop((client, ahead));
    }
}

#[cfg(feature = "tls")]
fn rustls_server() -> rustls::ServerConnection {
    use std::sync::Arc;
    let resolver = Arc::new(rustls::server::ResolvesServerCertUsingSni::new());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.unwrap().with_no_client_auth().with_cert_resolver(resolver);
    rustls::ServerConnection::new(Arc::new(config)).unwrap()
}

#[cfg(feature = "tls")]
fn client_hello() -> Vec<u8> {
    use std::sync::Arc;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.unwrap().with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    let mut client =
        rustls::ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}
