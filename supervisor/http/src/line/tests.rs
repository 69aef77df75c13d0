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
        line.end(line.farewell().map(|(farewell, _)| farewell)).await;
        ended.set(true);
    }));
    event_loop.set_timeout(Duration::from_secs(60), |cx| cx.stop());
    event_loop.run().unwrap();
    assert!(has_ended.get());
    drop(client);
}

/// What was read of a client over HTTP/2 that sends one of these each second, beginning at once with its request.
/// The last number says in how many turns of the loop.
fn read_over_http2(portions: Vec<Vec<u8>>, for_seconds: u64) -> (usize, Option<Violation>, u64) {
    let config = LoopConfig { time: Time::Virtual, ..LoopConfig::default() };
    let mut event_loop = EventLoop::with(config).unwrap();
    let (mut client, server) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    let keeper = Timekeeper::new(&event_loop, &RunningClock::new(&event_loop));
    let line = Line::new(&keeper, server.into(), None, &Rc::default()).unwrap();
    let headers = [0, 0, 1, 1, 4, 0, 0, 0, 1, 0x83];
    client.write_all(&[PREFACE, &headers].concat()).unwrap();
    let mut portions = portions.into_iter();
    event_loop.set_interval(Duration::from_secs(1), move |_| {
        portions.next().into_iter().for_each(|portion| client.write_all(&portion).unwrap());
    });
    let (its_line, count) = (Rc::clone(&line), Rc::new(Cell::new(0)));
    let counted = Rc::clone(&count);
    drop(event_loop.spawn(async move {
        assert_eq!(its_line.greet().await, Some(Protocol::Http2));
        let mut wire = Wire(its_line);
        loop {
            let mut bytes = [0; 4096];
            let mut buffer = hyper::rt::ReadBuf::new(&mut bytes);
            poll_fn(|context| Pin::new(&mut wire).poll_read(context, buffer.unfilled())).await.unwrap();
            if buffer.filled().is_empty() {
                break;
            }
            counted.set(counted.get() + buffer.filled().len());
        }
    }));
    event_loop.set_timeout(Duration::from_secs(for_seconds), |cx| cx.stop());
    event_loop.run().unwrap();
    (count.get() - PREFACE.len() - headers.len(), line.violation(), event_loop.metrics().iterations)
}

/// A frame of a body.
fn data(payload: &[u8]) -> Vec<u8> {
    [&[0, 0, u8::try_from(payload.len()).unwrap(), 0, 0, 0, 0, 0, 1], payload].concat()
}

/// However the system splits what a client sends: what has ended has no time any more.
#[test]
fn a_body_over_http2_is_not_taken_for_a_head_that_does_not_come() {
    let frames: Vec<u8> = (0..20).flat_map(|_| data(b"slow")).collect();
    let in_the_middle_of_each_head: Vec<Vec<u8>> = {
        let (first, rest) = frames.split_at(5);
        std::iter::once(first).chain(rest.chunks(13)).map(<[u8]>::to_vec).collect()
    };
    let (read, violation, _) = read_over_http2(in_the_middle_of_each_head, 30);
    assert_eq!((read, violation), (frames.len(), None));
    // One head in two portions, and then for a long time nothing but the rest of its frame.
    let whole = data(b"slowly");
    let portions = [&whole[..3], &whole[3..10]].into_iter().chain(whole[10..].chunks(1));
    let portions: Vec<Vec<u8>> = portions.map(<[u8]>::to_vec).collect();
    let (read, violation, _) = read_over_http2(portions, 12);
    assert_eq!((read, violation), (whole.len(), None));
    // But half a head has five seconds.
    let (read, violation, _) = read_over_http2(vec![whole[..5].to_vec()], 8);
    assert_eq!((read, violation.map(|violation| violation.status)), (5, Some(408)));
}

/// Each costs the loop more than the reading of its bytes.
#[test]
fn others_have_their_turn_between_frames_without_bytes() {
    let few_frames = [[0, 0xff, 0xff, 0, 0, 0, 0, 0, 1].to_vec(), vec![0; 0xffff]].concat();
    let many_frames = data(b"").repeat(few_frames.len() / 9);
    let turns = |frames: Vec<u8>| read_over_http2(vec![frames], 3).2;
    let (few, many) = (turns(few_frames), turns(many_frames));
    assert!(many >= few + 15, "{many} turns, and {few} for as many bytes");
}

/// A client whose first records are there waits for its turn among the handshakes. It has to notice that it gives way to another, and
/// that its time is over, before that turn comes, or places would be held by connections of no use.
#[cfg(feature = "tls")]
#[test]
fn a_connection_that_waits_for_its_handshake_ends_when_it_is_cut_or_late() {
    use crate::turns::{Most, Place, Turns};
    use std::sync::Arc;
    use std::task::Waker;

    const AHEAD: usize = 1000;
    let ends: [fn(&Line); 2] = [Line::cut, |line| line.be_late(Late::Head)];
    for end in ends {
        let mut event_loop = EventLoop::new().unwrap();
        let handle = event_loop.handle().clone();
        // Each turn of the loop calls one of those who wait.
        let turns = Turns::new(&handle, Most { steps: 0, time: Duration::ZERO });
        let ahead: Vec<Rc<Place>> = (0..AHEAD).map(|_| Place::of(&Arc::default())).collect();
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
