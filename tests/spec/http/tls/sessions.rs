//! What clients do when their handshake is complete.

use super::Secure;
use super::client::SecureClient;
use tests::harness::until;

fn client(server: &Secure) -> SecureClient {
    SecureClient::connect(&server.http.address, &server.path("first.pem"))
}

#[test]
fn the_guard_is_in_front_of_hyper_and_its_answer_and_the_end_are_encrypted() {
    let server = Secure::start(&[]);
    let mut rude = client(&server);
    rude.send(b"POST /v1/tasks/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    assert_eq!(rude.answer().0, 400);
    assert_eq!(rude.rest(), (Vec::new(), true), "it ends with a close_notify");
    server.is_served();
}

#[test]
fn a_client_that_goes_away_cancels_its_job_whether_or_not_it_says_so() {
    let server = Secure::start(&["--workers", "1"]);
    for says_so in [true, false] {
        let mut waiting = client(&server);
        waiting.request("POST", "/v1/tasks/sleep", &server.http.token, 6);
        waiting.send(b"600000").unwrap();
        server.http.daemon.worker_running("sleep");
        let before = server.http.daemon.status()["jobs"]["cancelled"].as_u64().unwrap();
        match says_so {
            true => {
                waiting.tls().send_close_notify();
                waiting.flush().unwrap();
            }
            false => waiting.socket().shutdown(std::net::Shutdown::Both).unwrap(),
        }
        until("its job is cancelled", || {
            (server.http.daemon.status()["jobs"]["cancelled"].as_u64()? == before + 1).then_some(())
        });
    }
    server.is_served();
}

#[test]
fn a_client_that_does_not_read_is_disconnected_and_holds_nobody_up() {
    let server = Secure::start(&["--workers", "2"]);
    let body = vec![b'x'; 24 << 20];
    let mut slow: Vec<_> = (0..2).map(|_| client(&server)).collect();
    for slow in &mut slow {
        slow.request("POST", "/v1/tasks/echo", &server.http.token, body.len());
        slow.send(&body).expect("it reads the body");
    }
    (0..4).for_each(|_| server.is_served());
    until("all are disconnected", || (server.measure("offload_http_connections") == 1).then_some(()));
    for slow in &mut slow {
        let (came, is_whole) = slow.rest();
        assert!(came.len() < body.len() && !is_whole, "{} bytes, whole: {is_whole}", came.len());
    }
    until("nothing is held", || (server.http.daemon.status()["queue"]["bytes"] == 0).then_some(()));
}

#[test]
fn new_keys_are_taken_now_and_then_and_a_flood_of_them_ends_the_connection() {
    let server = Secure::start(&[]);
    let mut careful = client(&server);
    for _ in 0..50 {
        careful.tls().refresh_traffic_keys().unwrap();
        assert_eq!(careful.ask("/healthz"), 200);
    }
    let mut flooding = client(&server);
    let mut flood = |_| {
        flooding.tls().refresh_traffic_keys()?;
        flooding.flush().map_err(|_| rustls::Error::General("it has ended".to_owned()))
    };
    let _ = (0..100).try_for_each(&mut flood);
    // While the connection lives, a request has an answer.
    let _ = flooding.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(flooding.rest().0, b"", "it has ended");
    assert_eq!(careful.ask("/healthz"), 200);
    server.is_served();
}

/// The same bytes in each run.
fn random_bytes(seed: u64) -> impl Iterator<Item = u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::from_fn(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Some((state >> 32) as u8)
    })
}

/// A record of a kind of TLS with random content; one in four states a wrong length.
fn random_record(seed: u64) -> Vec<u8> {
    let mut random = random_bytes(seed);
    let kind = 20 + random.next().unwrap() % 6;
    let length = usize::from(random.next().unwrap()) + 1;
    let stated = if seed.is_multiple_of(4) { length * 97 } else { length };
    let head = [kind, 3, 3, (stated >> 8) as u8, stated as u8];
    head.into_iter().chain(random.take(length)).collect()
}

#[test]
fn random_records_before_within_and_after_a_handshake_end_their_own_connection_and_nothing_else() {
    use std::io::Write;
    let server = Secure::start(&["--workers", "1"]);
    let mut polite = client(&server);
    let hello = super::client::hello(&server.path("first.pem"));
    for seed in 0..150 {
        let record = random_record(seed);
        let mut stream = server.connect();
        // It may end after the first bytes.
        if seed.is_multiple_of(2) {
            let _ = stream.write_all(&hello);
        }
        let _ = stream.write_all(&record).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
        super::rest(&stream);
        assert_eq!(polite.ask("/healthz"), 200);
    }
    for seed in 0..30 {
        let mut client = client(&server);
        client.request("POST", "/v1/tasks/echo", &server.http.token, 100);
        let _ = client.socket().write_all(&random_record(seed * 4 + 1));
        client.socket().shutdown(std::net::Shutdown::Write).unwrap();
        let (came, _) = client.rest();
        assert!(came.is_empty(), "nothing is answered: {}", String::from_utf8_lossy(&came));
    }
    assert_eq!(polite.ask("/healthz"), 200);
    assert_eq!(server.http.daemon.status()["ledger"]["balanced"], true);
    server.is_served();
}

#[test]
fn many_clients_at_once_are_all_answered_and_an_earlier_session_may_be_continued() {
    let server = Secure::start(&["--workers", "2"]);
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                let mut client = client(&server);
                for number in 1..20 {
                    let input = format!("{number}");
                    client.request("POST", "/v1/tasks/echo", &server.http.token, input.len());
                    client.send(input.as_bytes()).unwrap();
                    assert_eq!(client.answer(), (200, input.into_bytes()));
                }
            });
        }
    });
    let mut openssl = std::process::Command::new("openssl");
    openssl.args(["s_client", "-reconnect", "-tls1_2", "-connect", &server.http.address]);
    let said = tests::harness::run(&mut openssl, b"").ok().text();
    assert!(said.contains("Reused, TLSv1.2"), "{said}");
}

/// Otherwise something between here and there could be led to believe that this is another request than it is.
#[test]
fn what_was_agreed_on_is_what_is_spoken() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    let server = Secure::start(&[]);
    let text = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.http.address);
    let said = |offered: &[&str], bytes: &[u8]| {
        let mut client =
            SecureClient::connect_offering(offered, &server.http.address, &server.path("first.pem"));
        client.send(bytes).expect("the connection is there");
        client.rest()
    };
    for offered in [&["http/1.1"][..], &[]] {
        let (answer, is_whole) = said(offered, text.as_bytes());
        assert!(answer.starts_with(b"HTTP/1.1 200 ") && is_whole, "{offered:?}: {answer:?}");
    }
    let (answer, is_whole) = said(&["http/1.1"], PREFACE);
    assert!(answer.starts_with(b"HTTP/1.1 505 ") && is_whole, "{answer:?}");
    // A GOAWAY of the connection as a whole, with PROTOCOL_ERROR.
    let (answer, is_whole) = said(&["h2", "http/1.1"], text.as_bytes());
    let goaway = answer.strip_prefix(SETTINGS).expect("what a server says first");
    assert_eq!((&goaway[3..5], &goaway[9..17], is_whole), (&[7, 0][..], &[0, 0, 0, 0, 0, 0, 0, 1][..], true));
    assert!(String::from_utf8_lossy(goaway).contains("ALPN"), "{goaway:?}");
    // What does not tell is waited for.
    for offered in [&["h2"][..], &[]] {
        let mut client =
            SecureClient::connect_offering(offered, &server.http.address, &server.path("first.pem"));
        client.send(&PREFACE[..10]).expect("the connection is there");
        client.flush().expect("the connection is there");
        client.send(&PREFACE[10..]).expect("the connection is there");
        assert_eq!(client.frame_kind(), 4, "{offered:?}: settings");
    }
}
