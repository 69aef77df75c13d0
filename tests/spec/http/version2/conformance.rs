//! What h2spec asks a server, in its order: its general part, RFC 9113, and RFC 7541. What the tests beside this have is left out. A
//! question is one line of a table: what is sent, and what has to be told.

use super::peer::*;
use tests::http::HttpDaemon;

/// What has to come of it.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// The request on this stream is answered with 200.
    Answer(u32),
    /// Nothing happens: the connection is as it was.
    Nothing,
    /// The connection ends, with one of these codes.
    Connection(&'static [u32]),
    /// The stream or the connection ends, with one of these codes.
    Stream(&'static [u32]),
    /// The connection ends, with the first code, or the second: h2 does what the RFC wants, and says in general terms why.
    InOtherWords(u32, u32),
    /// The RFC wants the stream to end with this code, and h2 lets it pass.
    Passed(u32),
}

use Expected::{Answer, Connection, InOtherWords, Nothing, Passed, Stream};

type Question = (&'static str, Expected, fn(&mut Peer));

const PADDED: u8 = 8;
const PRIORITISED: u8 = 32;
const WHOLE: u8 = END_HEADERS | END_STREAM;

fn get(peer: &Peer, stream: u32, flags: u8) -> Vec<u8> {
    frame(HEADERS, flags, stream, &peer.request("GET", "/healthz", &[]))
}

fn post(peer: &Peer, stream: u32, more: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &peer.request("POST", "/v1/tasks/echo", more))
}

/// A POST that is complete but for its body, and this.
fn behind_post(peer: &mut Peer, more: &[u8]) {
    let request = post(peer, 1, &[]);
    peer.write(&[&request, more].concat());
}

/// A GET that is complete, and this.
fn behind_get(peer: &mut Peer, more: &[u8]) {
    let request = get(peer, 1, WHOLE);
    peer.write(&[&request, more].concat());
}

/// This, when a GET was answered.
fn after_get(peer: &mut Peer, more: &[u8]) {
    behind_get(peer, &[]);
    assert_eq!(peer.hear(), Heard::Response(1));
    peer.write(more);
}

/// This, when a request was taken back.
fn after_reset(peer: &mut Peer, more: &[u8]) {
    behind_post(peer, &[&frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes()), more].concat());
}

/// A GET whose fields are these and this block behind them.
fn block(peer: &mut Peer, more: &[u8]) {
    let fields = [&peer.request("GET", "/healthz", &[]), more].concat();
    peer.write(&frame(HEADERS, WHOLE, 1, &fields));
}

/// A GET with exactly these fields, and `:authority`.
fn only(peer: &mut Peer, pairs: &[(&str, &str)]) {
    let fields = [fields(pairs), fields(&[(":authority", &peer.host)])].concat();
    peer.write(&frame(HEADERS, WHOLE, 1, &fields));
}

fn window(stream: u32, more: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes())
}

/// Depends on this stream.
fn priority(stream: u32, on: u32, weight: u8) -> Vec<u8> {
    frame(PRIORITY, 0, stream, &[&on.to_be_bytes()[..], &[weight]].concat())
}

const CLOSED: &[u32] = &[STREAM_CLOSED];
const PROTOCOL: &[u32] = &[PROTOCOL_ERROR];
const SIZE: &[u32] = &[FRAME_SIZE_ERROR];
const FLOW: &[u32] = &[FLOW_CONTROL_ERROR];
/// Of fields that cannot be decoded.
const UNDECODED: Expected = InOtherWords(COMPRESSION_ERROR, PROTOCOL_ERROR);
/// Of frames for a stream on which no more may come.
const OVER: Expected = InOtherWords(STREAM_CLOSED, PROTOCOL_ERROR);

fn sound() -> Vec<Question> {
    vec![
        ("generic 2: PRIORITY of an idle stream", Answer(1), |peer| {
            peer.write(&priority(1, 0, 255));
            behind_get(peer, &[]);
        }),
        ("generic 2: WINDOW_UPDATE when all was sent", Answer(1), |peer| behind_get(peer, &window(1, 100))),
        ("generic 2: PRIORITY when all was sent", Answer(1), |peer| behind_get(peer, &priority(1, 0, 255))),
        ("generic 2: RST_STREAM when all was sent", Nothing, |peer| {
            behind_get(peer, &frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes()));
        }),
        ("generic 2: PRIORITY of a closed stream", Nothing, |peer| after_get(peer, &priority(1, 0, 255))),
        ("generic 3.1: several DATA", Answer(1), |peer| {
            let data = [frame(DATA, 0, 1, b"one"), frame(DATA, END_STREAM, 1, b"two")].concat();
            behind_post(peer, &data);
        }),
        ("generic 3.1: DATA with padding", Answer(1), |peer| {
            behind_post(peer, &frame(DATA, END_STREAM | PADDED, 1, b"\x04text\0\0\0\0"));
        }),
        ("generic 3.2: HEADERS with padding", Answer(1), |peer| {
            let fields = [&[4], &*peer.request("GET", "/healthz", &[]), &[0; 4]].concat();
            peer.write(&frame(HEADERS, WHOLE | PADDED, 1, &fields));
        }),
        ("generic 3.2: HEADERS with a priority", Answer(1), |peer| {
            let fields = [&[0, 0, 0, 0, 255], &*peer.request("GET", "/healthz", &[])].concat();
            peer.write(&frame(HEADERS, WHOLE | PRIORITISED, 1, &fields));
        }),
        ("generic 3.3: PRIORITY of the least weight, exclusively, on another", Answer(1), |peer| {
            peer.write(&[priority(3, 0, 0), priority(5, 3 | 1 << 31, 255)].concat());
            behind_get(peer, &[]);
        }),
        ("generic 3.8: GOAWAY", Nothing, |peer| {
            peer.write(&frame(GOAWAY, 0, 0, &[0; 8]));
        }),
        ("generic 3.9: WINDOW_UPDATE", Answer(1), |peer| {
            peer.write(&window(0, 100));
            behind_post(peer, &[window(1, 100), frame(DATA, END_STREAM, 1, b"x")].concat());
        }),
        ("generic 3.10: several CONTINUATION", Answer(1), |peer| {
            let fields = peer.request("GET", "/healthz", &[]);
            let (first, rest) = fields.split_at(7);
            let (second, third) = rest.split_at(9);
            peer.write(&frame(HEADERS, END_STREAM, 1, first));
            peer.write(
                &[frame(CONTINUATION, 0, 1, second), frame(CONTINUATION, END_HEADERS, 1, third)].concat(),
            );
        }),
        ("generic 4: HEAD", Answer(1), |peer| {
            peer.write(&frame(HEADERS, WHOLE, 1, &peer.request("HEAD", "/healthz", &[])));
        }),
        ("generic 4: POST with fields behind its body", Answer(1), |peer| {
            let trailers = frame(HEADERS, WHOLE, 1, &fields(&[("x-sum", "1")]));
            behind_post(peer, &[frame(DATA, 0, 1, b"text"), trailers].concat());
        }),
        ("4.1: flags that are not defined", Answer(1), |peer| {
            peer.write(&frame(PING, 0xf0, 0, &[0; 8]));
            behind_get(peer, &[]);
        }),
        ("4.1: the reserved bit", Answer(1), |peer| {
            let mut request = get(peer, 1, WHOLE);
            request[5] |= 0x80;
            peer.write(&request);
        }),
        ("4.2: DATA of the largest size", Answer(1), |peer| {
            behind_post(peer, &frame(DATA, END_STREAM, 1, &[b'x'; 1 << 14]));
        }),
        ("5.5: a frame of an unknown kind", Answer(1), |peer| {
            peer.write(&frame(0x16, 0, 0, &[0; 8]));
            behind_get(peer, &[]);
        }),
        ("6.5.3: of several values the last one", Answer(1), |peer| {
            let two =
                [&4_u16.to_be_bytes()[..], &0_u32.to_be_bytes(), &4_u16.to_be_bytes(), &99_u32.to_be_bytes()];
            peer.write(&frame(SETTINGS, 0, 0, &two.concat()));
            behind_get(peer, &[]);
        }),
        ("6.7: PING that acknowledges", Nothing, |peer| peer.write(&frame(PING, ACK, 0, b"whatever"))),
        ("7: GOAWAY with an unknown code", Nothing, |peer| {
            peer.write(&frame(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 0xff]));
        }),
        ("7: RST_STREAM with an unknown code", Nothing, |peer| {
            behind_post(peer, &frame(RST_STREAM, 0, 1, &0xff_u32.to_be_bytes()));
        }),
        ("hpack: an indexed field, and literals of every kind", Answer(1), |peer| {
            // :method GET and :scheme http by their index, then names of the table and new ones: indexed, not indexed, never indexed.
            let mut fields = vec![0x82, 0x86, 0x44, 8];
            fields.extend(b"/healthz");
            fields.extend([0x01, u8::try_from(peer.host.len()).unwrap()]);
            fields.extend(peer.host.as_bytes());
            for first in [0x40, 0x00, 0x10] {
                fields.extend([first, 1, b'x', 1, b'y']);
            }
            peer.write(&frame(HEADERS, WHOLE, 1, &fields));
        }),
        ("hpack: Huffman code", Answer(1), |peer| {
            // user-agent: "www.example.com", as RFC 7541 C.4.1 has it.
            block(peer, b"\x0f\x2b\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff");
        }),
        ("hpack: a size of the table", Answer(1), |peer| {
            let fields = [&[0x20], &*peer.request("GET", "/healthz", &[])].concat();
            peer.write(&frame(HEADERS, WHOLE, 1, &fields));
        }),
    ]
}

fn wrong_frames() -> Vec<Question> {
    vec![
        ("4.2: HEADERS over the size", Connection(SIZE), |peer| {
            peer.write(&frame(HEADERS, WHOLE, 1, &[0; (1 << 14) + 1]));
        }),
        ("4.3: PRIORITY in the middle of a head", Connection(PROTOCOL), |peer| {
            peer.write(&[get(peer, 1, END_STREAM), priority(1, 0, 255)].concat());
        }),
        ("4.3: HEADERS of another stream in the middle of a head", Connection(PROTOCOL), |peer| {
            peer.write(&[get(peer, 1, END_STREAM), get(peer, 3, WHOLE)].concat());
        }),
        ("5.1: DATA when all was sent", OVER, |peer| behind_get(peer, &frame(DATA, END_STREAM, 1, b"x"))),
        ("5.1: HEADERS when all was sent", OVER, |peer| {
            let again = get(peer, 1, WHOLE);
            behind_get(peer, &again);
        }),
        ("5.1: CONTINUATION when all was sent", Connection(&[STREAM_CLOSED, PROTOCOL_ERROR]), |peer| {
            behind_get(peer, &frame(CONTINUATION, END_HEADERS, 1, &fields(&[("x", "y")])));
        }),
        ("5.1: DATA behind RST_STREAM", Stream(CLOSED), |peer| {
            after_reset(peer, &frame(DATA, END_STREAM, 1, b"x"));
        }),
        ("5.1: HEADERS behind RST_STREAM", OVER, |peer| {
            let again = get(peer, 1, WHOLE);
            after_reset(peer, &again);
        }),
        ("5.1: CONTINUATION behind RST_STREAM", Connection(&[STREAM_CLOSED, PROTOCOL_ERROR]), |peer| {
            after_reset(peer, &frame(CONTINUATION, END_HEADERS, 1, &fields(&[("x", "y")])));
        }),
        ("5.1: DATA on a closed stream", Stream(CLOSED), |peer| {
            after_get(peer, &frame(DATA, END_STREAM, 1, b"x"));
        }),
        ("5.1: HEADERS on a closed stream", Connection(&[STREAM_CLOSED, PROTOCOL_ERROR]), |peer| {
            let again = get(peer, 1, WHOLE);
            after_get(peer, &again);
        }),
        ("5.1: CONTINUATION on a closed stream", Connection(&[STREAM_CLOSED, PROTOCOL_ERROR]), |peer| {
            after_get(peer, &frame(CONTINUATION, END_HEADERS, 1, &fields(&[("x", "y")])));
        }),
        ("5.1.2: more streams than there may be", Stream(&[PROTOCOL_ERROR, REFUSED_STREAM]), |peer| {
            let open: Vec<Vec<u8>> = (0..65).map(|number| post(peer, 2 * number + 1, &[])).collect();
            peer.write(&open.concat());
        }),
        ("5.3.1: HEADERS that depend on themselves", Stream(PROTOCOL), |peer| {
            let fields = [&[0, 0, 0, 1, 255], &*peer.request("GET", "/healthz", &[])].concat();
            peer.write(&frame(HEADERS, WHOLE | PRIORITISED, 1, &fields));
        }),
        ("5.5: an unknown frame in the middle of a head", Connection(PROTOCOL), |peer| {
            peer.write(&[get(peer, 1, END_STREAM), frame(0x16, 0, 1, &[0; 8])].concat());
        }),
        ("6.2: padding beyond the head", Connection(PROTOCOL), |peer| {
            let fields = [&[255], &*peer.request("GET", "/healthz", &[])].concat();
            peer.write(&frame(HEADERS, WHOLE | PADDED, 1, &fields[..100]));
        }),
        ("6.9: the window of a stream grows by nothing", Stream(PROTOCOL), |peer| {
            behind_post(peer, &window(1, 0));
        }),
        ("6.9.1: the window of a stream over the largest", Stream(FLOW), |peer| {
            behind_post(peer, &[window(1, 0x7fff_ffff), window(1, 0x7fff_ffff)].concat());
        }),
        ("6.10: CONTINUATION for the connection", Connection(PROTOCOL), |peer| {
            peer.write(&[get(peer, 1, END_STREAM), frame(CONTINUATION, END_HEADERS, 0, &[])].concat());
        }),
        ("6.10: CONTINUATION of a head that is complete", Connection(PROTOCOL), |peer| {
            behind_post(peer, &frame(CONTINUATION, END_HEADERS, 1, &fields(&[("x", "y")])));
        }),
        ("6.10: CONTINUATION behind the last one", Connection(PROTOCOL), |peer| {
            let last = frame(CONTINUATION, END_HEADERS, 1, &fields(&[("x", "y")]));
            peer.write(&[get(peer, 1, END_STREAM), last.clone(), last].concat());
        }),
        ("6.10: CONTINUATION behind DATA", Connection(PROTOCOL), |peer| {
            let continuation = frame(CONTINUATION, END_HEADERS, 1, &fields(&[("x", "y")]));
            behind_post(peer, &[frame(DATA, 0, 1, b"x"), continuation].concat());
        }),
    ]
}

fn wrong_messages() -> Vec<Question> {
    vec![
        ("8.1: fields behind a body, and no end", Stream(PROTOCOL), |peer| {
            let trailers = frame(HEADERS, END_HEADERS, 1, &fields(&[("x-sum", "1")]));
            behind_post(peer, &[frame(DATA, 0, 1, b"text"), trailers].concat());
        }),
        ("8.3: an unknown pseudo field", Stream(PROTOCOL), |peer| {
            only(peer, &[(":method", "GET"), (":scheme", "http"), (":path", "/healthz"), (":test", "x")]);
        }),
        ("8.3: a pseudo field behind the body", Passed(PROTOCOL_ERROR), |peer| {
            let trailers = frame(HEADERS, WHOLE, 1, &fields(&[(":method", "POST")]));
            behind_post(peer, &[frame(DATA, 0, 1, b"text"), trailers].concat());
        }),
        ("8.3.1: an empty path", Stream(PROTOCOL), |peer| {
            only(peer, &[(":method", "GET"), (":scheme", "http"), (":path", "")]);
        }),
        ("8.3.1: no scheme", Stream(PROTOCOL), |peer| {
            only(peer, &[(":method", "GET"), (":path", "/healthz")]);
        }),
        ("8.3.1: two schemes", Stream(PROTOCOL), |peer| {
            let twice = [(":method", "GET"), (":scheme", "http"), (":scheme", "http"), (":path", "/healthz")];
            only(peer, &twice);
        }),
        ("8.3.1: two paths", Stream(PROTOCOL), |peer| {
            let twice =
                [(":method", "GET"), (":scheme", "http"), (":path", "/healthz"), (":path", "/healthz")];
            only(peer, &twice);
        }),
        ("8.1.1: bodies of several frames that are shorter than was said", Stream(PROTOCOL), |peer| {
            let request = post(peer, 1, &[("content-length", "9")]);
            peer.write(&[request, frame(DATA, 0, 1, b"one"), frame(DATA, END_STREAM, 1, b"two")].concat());
        }),
        ("hpack 2.3.3: a field of an index that is none", UNDECODED, |peer| block(peer, &[0xbe])),
        ("hpack 2.3.3: a name of an index that is none", UNDECODED, |peer| {
            block(peer, &[0x7e, 1, b'x']);
        }),
        ("hpack 4.2: a size of the table at the end", UNDECODED, |peer| block(peer, &[0x20])),
        ("hpack 5.2: Huffman padding of eight bits", UNDECODED, |peer| {
            block(peer, b"\x00\x01x\x83\x1f\xff\xff");
        }),
        ("hpack 5.2: Huffman padding with zeros", UNDECODED, |peer| block(peer, b"\x00\x01x\x81\x18")),
        ("hpack 5.2: the end of Huffman code as a character", UNDECODED, |peer| {
            block(peer, b"\x00\x01x\x84\xff\xff\xff\xff");
        }),
        ("hpack 6.1: index 0", UNDECODED, |peer| block(peer, &[0x80])),
        ("hpack 6.3: a size of the table over the largest", UNDECODED, |peer| {
            let fields = [&[0x3f, 0xe2, 0x1f], &*peer.request("GET", "/healthz", &[])].concat();
            peer.write(&frame(HEADERS, WHOLE, 1, &fields));
        }),
    ]
}

/// What is told about all of it. If the connection is as it was, a PING behind it is answered, and another one behind that: h2 answers
/// them before it says anything about streams.
fn told(peer: &mut Peer, wanted: Option<u32>) -> Vec<Heard> {
    let (mut told, mut pings) = (Vec::new(), 0);
    peer.write(&frame(PING, 0, 0, b"the last"));
    loop {
        let heard = peer.hear();
        if heard == Heard::PingAck {
            pings += 1;
            peer.write(&frame(PING, 0, 0, b"the last"));
        }
        told.push(heard);
        let is_answered = wanted.is_none_or(|stream| told.contains(&Heard::Response(stream)));
        if told.contains(&Heard::End) || (pings >= 2 && is_answered) {
            return told;
        }
    }
}

fn is_as_expected(expected: Expected, told: &[Heard], block: u8) -> bool {
    let connection =
        |codes: &[u32]| told.iter().any(|it| matches!(it, Heard::GoAway(code) if codes.contains(code)));
    let stream =
        |codes: &[u32]| told.iter().any(|it| matches!(it, Heard::Reset(_, code) if codes.contains(code)));
    let is_unharmed = !told.iter().any(|it| matches!(it, Heard::GoAway(1..) | Heard::Reset(..)));
    match expected {
        Answer(number) => is_unharmed && told.contains(&Heard::Response(number)) && block == OK,
        Nothing => is_unharmed,
        Connection(codes) => connection(codes),
        Stream(codes) => connection(codes) || stream(codes),
        InOtherWords(code, other) => connection(&[code, other]),
        Passed(code) => is_unharmed || stream(&[code]),
    }
}

/// `:status: 200` in the static table.

#[test]
fn what_h2spec_asks_is_answered_as_the_rfcs_say() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut wrong = Vec::new();
    for (what, expected, ask) in sound().into_iter().chain(wrong_frames()).chain(wrong_messages()) {
        let mut peer = Peer::greeted(&http);
        ask(&mut peer);
        let wanted = if let Answer(stream) = expected { Some(stream) } else { None };
        let told = told(&mut peer, wanted);
        if !is_as_expected(expected, &told, peer.block) {
            wrong.push(format!("{what}: {told:?} (block {:#x}), not {expected:?}", peer.block));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(http.call("echo", &[], "x").status, 200, "others are served");
}

/// The next piece of a body.
fn data(peer: &mut Peer) -> Vec<u8> {
    loop {
        if let (DATA, _, 1, piece) = peer.next_frame().expect("the connection stays") {
            return piece;
        }
    }
}

/// Whether a PING behind what was sent is answered, and another one behind that, and no piece of a body comes before.
fn nothing_comes(peer: &mut Peer) -> bool {
    (0..2).all(|_| {
        peer.write(&frame(PING, 0, 0, b"the last"));
        loop {
            match peer.next_frame().expect("the connection stays") {
                (DATA, ..) => return false,
                (PING, flags, ..) if flags & ACK != 0 => return true,
                _ => {}
            }
        }
    })
}

#[test]
fn the_window_of_a_client_is_kept_to_when_it_changes_and_is_below_nothing() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut peer = Peer::greeted(&http);
    peer.write(&setting(4, 3));
    behind_post(&mut peer, &frame(DATA, END_STREAM, 1, b"0123456789"));
    assert_eq!(data(&mut peer), b"012", "6.9.1: not more than there is room for");
    assert!(nothing_comes(&mut peer), "6.9.1: there is no room");
    // 6.9.2: three bytes of a window of one were used, so there is room for two less than none.
    peer.write(&[setting(4, 1), window(1, 2)].concat());
    assert!(nothing_comes(&mut peer), "6.9.2: there is room for none");
    peer.write(&window(1, 4));
    assert_eq!(data(&mut peer), b"3456");
    assert!(nothing_comes(&mut peer));
    peer.write(&setting(4, 100));
    let rest = [data(&mut peer), data(&mut peer)].concat();
    assert_eq!(rest, b"789", "6.9.2: a larger one opens the streams that are there");
}

#[test]
fn settings_are_acknowledged_and_a_connect_is_refused() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut peer = Peer::silent(&http);
    peer.write(PREFACE);
    peer.write(&setting(4, 100));
    while !matches!(peer.next_frame().expect("it is acknowledged"), (SETTINGS, ACK, 0, _)) {}
    let authorization = format!("Bearer {}", http.token);
    let connect = [(":method", "CONNECT"), (":authority", &*http.address), ("authorization", &authorization)];
    peer.write(&frame(HEADERS, WHOLE, 1, &fields(&connect)));
    let (.., block) = std::iter::repeat_with(|| peer.next_frame().expect("an answer"))
        .find(|(kind, ..)| *kind == HEADERS)
        .expect("an answer");
    let said = String::from_utf8_lossy(&block).into_owned();
    assert!(block.starts_with(b"\x48\x03501") || block.starts_with(b"\x48\x82"), "{said:?}");
}
