//! HTTP/2, frame by frame: what RFC 9113 wants done about frames that are wrong, in the order of its sections. The frames are written
//! here, because no library would send them.

mod conformance;
mod many;
pub(super) mod peer;

use peer::*;
use std::io::{Read, Write};
use std::time::{Duration, Instant};
use tests::harness::until;
use tests::http::HttpDaemon;

/// What is wrong, the frames, and the codes of which one has to be told: for the connection, or for its one stream.
type Case = (&'static str, Box<dyn Fn(&Peer) -> Vec<u8>>, Vec<u32>);

fn case(what: &'static str, codes: &[u32], frames: impl Fn(&Peer) -> Vec<u8> + 'static) -> Case {
    (what, Box::new(frames), codes.to_vec())
}

fn open(peer: &Peer, flags: u8, more: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, flags, 1, &peer.request("POST", "/v1/tasks/echo", more))
}

fn cases() -> Vec<Case> {
    let only = |pairs: &'static [(&'static str, &'static str)]| {
        move |peer: &Peer| {
            let mut block = fields(&[(":authority", &peer.host)]);
            block.extend(fields(pairs));
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)
        }
    };
    vec![
        case("4.2: a frame over the size", &[FRAME_SIZE_ERROR], |_| frame(DATA, 0, 1, &vec![0; 20_000])),
        case("4.3: an index that is none", &[COMPRESSION_ERROR], |_| {
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0xff, 0xff, 0xff, 0x7f])
        }),
        case("4.3: fields that break off", &[COMPRESSION_ERROR, PROTOCOL_ERROR], |_| {
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0, 10, b'a'])
        }),
        case("5.1: DATA for a stream that is idle", &[PROTOCOL_ERROR, STREAM_CLOSED], |_| {
            frame(DATA, 0, 5, b"x")
        }),
        case("5.1: RST_STREAM for a stream that is idle", &[PROTOCOL_ERROR], |_| {
            frame(RST_STREAM, 0, 5, &[0; 4])
        }),
        case("5.1: WINDOW_UPDATE for a stream that is idle", &[PROTOCOL_ERROR], |_| {
            frame(WINDOW_UPDATE, 0, 5, &1_u32.to_be_bytes())
        }),
        case("5.1.1: a stream of the server's", &[PROTOCOL_ERROR], |peer| {
            frame(HEADERS, END_HEADERS | END_STREAM, 2, &peer.request("GET", "/healthz", &[]))
        }),
        case("5.1.1: a number that goes back", &[PROTOCOL_ERROR, STREAM_CLOSED], |peer| {
            let one =
                |stream| frame(HEADERS, END_HEADERS, stream, &peer.request("POST", "/v1/tasks/echo", &[]));
            [one(7), one(3)].concat()
        }),
        case("6.1: DATA for the connection", &[PROTOCOL_ERROR], |_| frame(DATA, 0, 0, b"x")),
        case("6.1: padding beyond the frame", &[PROTOCOL_ERROR], |peer| {
            [open(peer, END_HEADERS, &[]), frame(DATA, 8, 1, &[200, b'x'])].concat()
        }),
        case("6.2: HEADERS for the connection", &[PROTOCOL_ERROR], |peer| {
            frame(HEADERS, END_HEADERS, 0, &peer.request("GET", "/healthz", &[]))
        }),
        case("6.2: another frame between the parts of a head", &[PROTOCOL_ERROR], |peer| {
            [open(peer, 0, &[]), frame(PING, 0, 0, &[0; 8])].concat()
        }),
        case("6.3: PRIORITY for the connection", &[PROTOCOL_ERROR], |_| frame(PRIORITY, 0, 0, &[0; 5])),
        case("6.3: PRIORITY of a wrong size", &[FRAME_SIZE_ERROR], |_| frame(PRIORITY, 0, 1, &[0; 4])),
        case("6.4: RST_STREAM for the connection", &[PROTOCOL_ERROR], |_| frame(RST_STREAM, 0, 0, &[0; 4])),
        case("6.4: RST_STREAM of a wrong size", &[FRAME_SIZE_ERROR], |peer| {
            [open(peer, END_HEADERS, &[]), frame(RST_STREAM, 0, 1, &[0; 3])].concat()
        }),
        case("6.5: SETTINGS that acknowledge and say something", &[FRAME_SIZE_ERROR], |_| {
            frame(SETTINGS, ACK, 0, &[0; 6])
        }),
        case("6.5: SETTINGS for a stream", &[PROTOCOL_ERROR], |_| frame(SETTINGS, 0, 1, &[])),
        case("6.5: SETTINGS of a wrong size", &[FRAME_SIZE_ERROR], |_| frame(SETTINGS, 0, 0, &[0; 5])),
        case("6.5.2: ENABLE_PUSH that is neither", &[PROTOCOL_ERROR], |_| setting(2, 2)),
        case("6.5.2: a window over the largest", &[FLOW_CONTROL_ERROR], |_| setting(4, 1 << 31)),
        case("6.5.2: frames below the smallest", &[PROTOCOL_ERROR], |_| setting(5, 16_383)),
        case("6.5.2: frames over the largest", &[PROTOCOL_ERROR], |_| setting(5, 1 << 24)),
        case("6.6: a promise of a client", &[PROTOCOL_ERROR], |peer| {
            [open(peer, END_HEADERS, &[]), frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2])].concat()
        }),
        case("6.7: PING for a stream", &[PROTOCOL_ERROR], |_| frame(PING, 0, 1, &[0; 8])),
        case("6.7: PING of a wrong size", &[FRAME_SIZE_ERROR], |_| frame(PING, 0, 0, &[0; 6])),
        case("6.8: GOAWAY for a stream", &[PROTOCOL_ERROR], |_| frame(GOAWAY, 0, 1, &[0; 8])),
        case("6.9: a window that grows by nothing", &[PROTOCOL_ERROR], |_| {
            frame(WINDOW_UPDATE, 0, 0, &[0; 4])
        }),
        case("6.9: WINDOW_UPDATE of a wrong size", &[FRAME_SIZE_ERROR], |_| {
            frame(WINDOW_UPDATE, 0, 0, &[0; 3])
        }),
        case("6.9.1: a window over the largest", &[FLOW_CONTROL_ERROR], |_| {
            frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes())
        }),
        case("6.10: CONTINUATION of nothing", &[PROTOCOL_ERROR], |_| {
            frame(CONTINUATION, END_HEADERS, 1, &[])
        }),
        case("6.10: CONTINUATION of another stream", &[PROTOCOL_ERROR], |peer| {
            [open(peer, 0, &[]), frame(CONTINUATION, END_HEADERS, 3, &[])].concat()
        }),
        case("8.1.1: a body that is longer than was said", &[PROTOCOL_ERROR], |peer| {
            [open(peer, END_HEADERS, &[("content-length", "1")]), frame(DATA, END_STREAM, 1, b"two")].concat()
        }),
        case("8.1.1: a body that is shorter than was said", &[PROTOCOL_ERROR], |peer| {
            [open(peer, END_HEADERS, &[("content-length", "9")]), frame(DATA, END_STREAM, 1, b"two")].concat()
        }),
        case("8.2.1: a name with a capital letter", &[PROTOCOL_ERROR], |peer| {
            open(peer, END_HEADERS | END_STREAM, &[("X-Capital", "y")])
        }),
        case("8.2.2: a field of the connection", &[PROTOCOL_ERROR], |peer| {
            open(peer, END_HEADERS | END_STREAM, &[("connection", "keep-alive")])
        }),
        case("8.2.2: a transfer coding", &[PROTOCOL_ERROR], |peer| {
            open(peer, END_HEADERS | END_STREAM, &[("transfer-encoding", "chunked")])
        }),
        case("8.2.2: te with more than trailers", &[PROTOCOL_ERROR], |peer| {
            open(peer, END_HEADERS | END_STREAM, &[("te", "gzip")])
        }),
        case("8.3: a pseudo field behind others", &[PROTOCOL_ERROR], |peer| {
            open(peer, END_HEADERS | END_STREAM, &[(":path", "/")])
        }),
        case(
            "8.3: a pseudo field of responses",
            &[PROTOCOL_ERROR],
            only(&[(":method", "GET"), (":scheme", "http"), (":path", "/healthz"), (":status", "200")]),
        ),
        case("8.3.1: no method", &[PROTOCOL_ERROR], only(&[(":scheme", "http"), (":path", "/healthz")])),
        case("8.3.1: no path", &[PROTOCOL_ERROR], only(&[(":method", "GET"), (":scheme", "http")])),
        case(
            "8.3.1: two methods",
            &[PROTOCOL_ERROR],
            only(&[(":method", "GET"), (":method", "GET"), (":scheme", "http"), (":path", "/healthz")]),
        ),
    ]
}

#[test]
fn a_frame_that_is_wrong_ends_its_stream_or_its_connection_with_the_code_for_it() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut wrong = Vec::new();
    for (what, frames, codes) in cases() {
        let mut peer = Peer::greeted(&http);
        let frames = frames(&peer);
        peer.write(&frames);
        let heard = peer.hear();
        let is_told = match &heard {
            // Where a frame cannot be read at all, h2 says that the protocol was broken, and not which size or value was wrong.
            Heard::GoAway(code) => codes.contains(code) || *code == PROTOCOL_ERROR,
            Heard::Reset(_, code) => codes.contains(code),
            // A request that is refused is refused as well by an answer that says so, or by an end without a word.
            Heard::Response(_) => what.starts_with("8."),
            Heard::End => true,
            Heard::PingAck => false,
        };
        if !is_told {
            wrong.push(format!("{what}: {heard:?}, not one of {codes:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(http.call("echo", &[], "x").status, 200, "others are served");
    let jobs = http.daemon.status()["jobs"].clone();
    assert!(jobs["running"] == 0 && jobs["queued"] == 0, "{jobs}");
}

#[test]
fn what_is_unknown_is_passed_over_and_a_ping_is_answered() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut peer = Peer::greeted(&http);
    peer.write(&frame(0xcc, 0xff, 0, b"whatever"));
    peer.write(&setting(0xff, 7));
    peer.write(&frame(PING, 0, 0, b"12345678"));
    assert_eq!(peer.hear(), Heard::PingAck);
    let request = peer.request("GET", "/healthz", &[]);
    let (first, rest) = request.split_at(10);
    peer.write(&frame(HEADERS, END_STREAM, 1, first));
    peer.write(&frame(CONTINUATION, END_HEADERS, 1, rest));
    assert_eq!(peer.hear(), Heard::Response(1));
}

#[test]
fn a_flood_of_requests_that_are_taken_back_ends_the_connection_and_costs_no_job() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut peer = Peer::greeted(&http);
    let block = peer.request("POST", "/v1/tasks/sleep", &[]);
    for stream in (1..20_000).step_by(2) {
        let begun = frame(HEADERS, END_HEADERS, stream, &block);
        if peer
            .stream
            .write_all(&[begun, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat())
            .is_err()
        {
            break;
        }
    }
    let heard = loop {
        match peer.hear() {
            Heard::GoAway(code) => break Heard::GoAway(code),
            Heard::End => break Heard::End,
            _ => {}
        }
    };
    assert!(matches!(heard, Heard::GoAway(ENHANCE_YOUR_CALM) | Heard::End), "{heard:?}");
    until("nothing is left of it", || (http.daemon.status()["jobs"]["running"] == 0).then_some(()));
    assert_eq!(http.call("echo", &[], "x").status, 200);
}

#[test]
fn a_head_without_end_ends_the_connection() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut peer = Peer::greeted(&http);
    peer.write(&open(&peer, 0, &[]));
    for _ in 0..10_000 {
        if peer.stream.write_all(&frame(CONTINUATION, 0, 1, &fields(&[("x", &"y".repeat(100))]))).is_err() {
            break;
        }
    }
    let heard = peer.hear();
    assert!(
        matches!(heard, Heard::GoAway(_) | Heard::Reset(..) | Heard::Response(_) | Heard::End),
        "{heard:?}"
    );
    assert_eq!(http.call("echo", &[], "x").status, 200);
}

#[test]
fn half_a_head_has_as_little_time_as_over_http1() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let began = Instant::now();
    let mut no_settings = Peer::silent(&http);
    no_settings.write(PREFACE);
    let mut no_request = Peer::greeted(&http);
    no_request.write(&frame(PING, 0, 0, &[0; 8]));
    assert_eq!(no_request.hear(), Heard::PingAck);
    let mut half_a_frame = Peer::greeted(&http);
    let healthy = half_a_frame.request("GET", "/healthz", &[]);
    half_a_frame.write(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &healthy));
    assert_eq!(half_a_frame.hear(), Heard::Response(1));
    half_a_frame.write(&frame(PING, 0, 0, &[0; 8])[..12]);
    let mut no_end = Peer::greeted(&http);
    no_end.write(&open(&no_end, 0, &[]));
    let mut beside_another = Peer::greeted(&http);
    let request = beside_another.request("POST", "/v1/tasks/sleep", &[]);
    beside_another.write(&frame(HEADERS, END_HEADERS, 1, &request));
    beside_another.write(&frame(DATA, END_STREAM, 1, b"15000"));
    beside_another.write(&frame(HEADERS, 0, 3, &request));
    for peer in [&mut no_settings, &mut no_request, &mut half_a_frame, &mut no_end] {
        assert_eq!(peer.hear(), Heard::GoAway(ENHANCE_YOUR_CALM));
        assert_eq!(peer.hear(), Heard::End);
    }
    // Those that wait for another request have a minute.
    assert!(began.elapsed().as_secs() < 50, "{:?}", began.elapsed());
    assert_eq!(beside_another.hear(), Heard::Response(1), "what came before is answered");
    assert_eq!(beside_another.hear(), Heard::GoAway(ENHANCE_YOUR_CALM));
}

#[test]
fn a_body_that_stops_is_given_up_whatever_else_comes() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let stopped = || {
        let mut peer = Peer::greeted(&http);
        let block = peer.request("POST", "/v1/tasks/echo", &[("content-length", "1000000")]);
        peer.write(&frame(HEADERS, END_HEADERS, 1, &block));
        peer.write(&frame(DATA, 0, 1, b"0123456789"));
        peer
    };
    let (mut alone, mut beside_others) = (stopped(), stopped());
    let reserved = || http.daemon.status()["queue"]["bytes"].as_u64().expect("a number");
    until("there is room for them", || (reserved() >= 2_000_000).then_some(()));
    alone.write(&frame(SETTINGS, ACK, 0, &[]));
    for stream in [3, 5, 7] {
        let block = beside_others.request("POST", "/v1/tasks/echo", &[]);
        beside_others.write(&frame(HEADERS, END_HEADERS, stream, &block));
        beside_others.write(&frame(DATA, END_STREAM, stream, b"x"));
        assert_eq!(beside_others.hear(), Heard::Response(stream));
    }
    // A request that takes longer than the one beside it may.
    call(&mut beside_others, 9, "sleep", "15000");
    for peer in [&mut alone, &mut beside_others] {
        assert_eq!(peer.hear(), Heard::Response(1), "408, for itself");
    }
    let heard = std::iter::repeat_with(|| beside_others.hear()).find(|it| !matches!(it, Heard::Reset(1, _)));
    assert_eq!(heard, Some(Heard::Response(9)), "the others go on");
    assert!(http.ask("GET", "/metrics", &[], b"").text().contains("{status=\"408\"} 2\n"));
    until("nothing is reserved any more", || (reserved() == 0).then_some(()));
}

#[test]
fn a_preface_that_is_none_is_no_request_either() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut peer = Peer::silent(&http);
    peer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX");
    let mut answer = String::new();
    peer.stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 505") || answer.starts_with("HTTP/1.1 400"), "{answer:?}");
}

/// Calls a task in this stream.
fn call(peer: &mut Peer, stream: u32, task: &str, input: &str) {
    let block = peer.request("POST", &format!("/v1/tasks/{task}"), &[]);
    peer.write(&frame(HEADERS, END_HEADERS, stream, &block));
    peer.write(&frame(DATA, END_STREAM, stream, input.as_bytes()));
}

#[test]
fn an_answer_for_which_no_room_is_made_is_given_up_with_all_that_is_held_for_it_and_no_other() {
    let http = HttpDaemon::start(&["--workers", "2"]);
    // The window of each stream: none, and one in which hyper takes the whole of a short answer.
    let mut peers = [0, 1].map(|window| {
        let mut peer = Peer::silent(&http);
        peer.write(PREFACE);
        peer.write(&setting(4, window));
        call(&mut peer, 1, "echo", "short");
        call(&mut peer, 3, "count", "100000");
        let mut answered = [peer.hear(), peer.hear()];
        answered.sort_by_key(|heard| *heard == Heard::Response(3));
        assert_eq!(answered, [Heard::Response(1), Heard::Response(3)]);
        peer
    });
    assert_ne!(http.daemon.status()["queue"]["bytes"], 0, "the outputs are held for them");
    peers.iter_mut().for_each(|peer| call(peer, 5, "sleep", "15000"));
    for peer in &mut peers {
        let mut heard = Vec::new();
        while heard.last() != Some(&Heard::Response(5)) {
            heard.push(peer.hear());
            assert_ne!(heard.last(), Some(&Heard::End), "{heard:?}");
        }
        let is_reset = [1, 3].map(|stream| heard.contains(&Heard::Reset(stream, CANCEL)));
        assert_eq!(is_reset, [true; 2], "{heard:?}");
    }
    // Those of the other requests are `null`, and nobody makes room for them either.
    let left = peers.len() * "null".len();
    until("nothing else is held", || (http.daemon.status()["queue"]["bytes"] == left).then_some(()));
}

/// hyper has the whole answer as soon as there is room for one byte of it.
#[test]
fn an_answer_that_its_client_takes_back_has_not_been_collected() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut peer = Peer::silent(&http);
    peer.write(PREFACE);
    peer.write(&setting(4, 1));
    let block = peer.request("POST", "/v1/tasks/echo", &[("prefer", "wait=60")]);
    peer.write(&frame(HEADERS, END_HEADERS, 1, &block));
    peer.write(&frame(DATA, END_STREAM, 1, b"kept for another time"));
    assert_eq!(peer.hear(), Heard::Response(1));
    while peer.next_frame().expect("a byte of the answer").0 != DATA {}
    peer.write(&frame(RST_STREAM, 0, 1, &CANCEL.to_be_bytes()));
    peer.write(&frame(PING, 0, 0, &[0; 8]));
    assert_eq!(peer.hear(), Heard::PingAck);
    assert_eq!(http.daemon.status()["kept"]["jobs"], 1);
}

/// It is up to a client when an HTTP/2 connection ends, but not what it learns until then.
#[test]
fn behind_ten_wrong_tokens_the_right_one_is_not_looked_at() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut peer = Peer::greeted(&http);
    let host = peer.host.clone();
    let guess = fields(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/v1/status"),
        (":authority", &host),
        ("authorization", "Bearer 0123456789abcdef0123456789abcdef"),
    ]);
    let right = peer.request("GET", "/v1/status", &[]);
    let blocks = (0..10).map(|_| &guess).chain([&right]);
    let frames: Vec<u8> = (0..)
        .zip(blocks)
        .flat_map(|(number, block)| frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, block))
        .collect();
    peer.write(&frames);
    let mut answered = 0;
    loop {
        match peer.hear() {
            Heard::Response(_) => {
                answered += 1;
                assert_ne!(peer.block, OK, "after {answered} answers");
            }
            Heard::End => break,
            _ => {}
        }
        if answered == 11 {
            break;
        }
    }
    assert!(answered >= 10, "{answered} answers");
}

#[test]
fn a_head_has_the_same_bounds_in_both_versions() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let many: Vec<(&str, &str)> = (0..100).map(|_| ("x-many", "1")).collect();
    let mut curl = std::process::Command::new("curl");
    curl.args(["-sS", "--http2-prior-knowledge", "-o", "/dev/null", "-w", "%{http_code}"]);
    curl.args(["-H", &format!("Authorization: Bearer {}", http.token)]);
    let mut long = std::process::Command::new("curl");
    long.args(curl.get_args()).arg(format!("http://{}/{}", http.address, "x".repeat(3000)));
    assert_eq!(tests::harness::run(&mut long, b"").ok().text(), "414");
    for (name, value) in many {
        curl.args(["-H", &format!("{name}: {value}")]);
    }
    curl.arg(format!("http://{}/healthz", http.address));
    assert_eq!(tests::harness::run(&mut curl, b"").ok().text(), "431");
    let mut trace = std::process::Command::new("curl");
    trace.args(["-sS", "--http2-prior-knowledge", "-X", "TRACE", "-o", "/dev/null", "-w", "%{http_code}"]);
    trace.arg(format!("http://{}/healthz", http.address));
    assert_eq!(tests::harness::run(&mut trace, b"").ok().text(), "501");
}

/// A client that has sent a part of a body to a path that is not there, and got its answer.
fn answered(http: &HttpDaemon) -> Peer {
    let mut peer = Peer::greeted(http);
    let request = peer.request("POST", "/nowhere", &[]);
    peer.write(&frame(HEADERS, END_HEADERS, 1, &request));
    peer.write(&frame(DATA, 0, 1, b"half of it"));
    assert_eq!(peer.hear(), Heard::Response(1));
    peer
}

#[test]
fn a_body_that_comes_to_its_end_behind_its_answer_resets_nothing() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut peer = answered(&http);
    peer.write(&frame(DATA, END_STREAM, 1, b" and the rest"));
    peer.write(&frame(PING, 0, 0, &[0; 8]));
    assert_eq!(peer.hear(), Heard::PingAck);
}

/// Sends a body without end to a path that is not there, as fast as it may, until its stream is reset. Returns the length of what it has
/// sent, and the code.
fn send_without_end(peer: &mut Peer) -> (usize, u32) {
    const PIECE: usize = 16_384;
    let request = peer.request("POST", "/nowhere", &[]);
    peer.write(&frame(HEADERS, END_HEADERS, 1, &request));
    let (mut sent, mut has_answer, mut room) = (0, false, [65_535; 2]);
    loop {
        while room.iter().all(|room| *room >= PIECE) {
            peer.write(&frame(DATA, 0, 1, &[b'x'; PIECE]));
            room = room.map(|room| room - PIECE);
            sent += PIECE;
        }
        let (kind, _, stream, payload) = peer.next_frame().expect("the connection goes on");
        let number = || u32::from_be_bytes(payload[..4].try_into().unwrap());
        match kind {
            // Of the connection, and of its one stream.
            WINDOW_UPDATE => room[stream as usize] += number() as usize,
            HEADERS => has_answer = true,
            RST_STREAM => {
                assert!(has_answer, "the answer comes first");
                return (sent, number());
            }
            _ => {}
        }
    }
}

#[test]
fn a_body_that_goes_on_or_stands_still_behind_its_answer_is_given_up() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let began = Instant::now();
    let mut silent = answered(&http);
    assert_eq!(silent.hear(), Heard::Reset(1, NO_ERROR));
    assert!(began.elapsed() > Duration::from_secs(1), "the client has time to read its answer");
    let mut endless = Peer::greeted(&http);
    let (sent, code) = send_without_end(&mut endless);
    assert_eq!(code, NO_ERROR);
    assert!((256 << 10..1 << 20).contains(&sent), "{sent} bytes were sent");
    for mut peer in [silent, endless] {
        let request = peer.request("GET", "/healthz", &[]);
        peer.write(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &request));
        assert_eq!(peer.hear(), Heard::Response(3), "the connection goes on");
    }
}
