//! What passes the guard, and what does not: in one go, and in portions that end anywhere.

use super::*;
use proptest::prelude::*;

/// What comes of these bytes: how many requests are passed on as a whole, and then the violation, if there is one.
fn verdict(bytes: &[u8]) -> (usize, Option<u16>) {
    let mut guard = Guard::default();
    let (mut at, mut requests) = (0, 0);
    while at < bytes.len() {
        match guard.admit(&bytes[at..]) {
            Ok(0) => break,
            Ok(admitted) => at += admitted,
            Err(violation) => return (requests, Some(violation.status)),
        }
        requests += usize::from(guard.awaits_head());
    }
    (requests, None)
}

fn request(fields: &str, body: &str) -> Vec<u8> {
    format!("POST /v1/tasks/echo HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n{body}").into_bytes()
}

#[test]
fn sound_requests_pass() {
    let sound: [(&str, &str); 9] = [
        ("", ""),
        ("Content-Length: 0\r\n", ""),
        ("Content-Length: 5\r\n", "hello"),
        ("content-LENGTH:5\r\n", "hello"),
        ("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"),
        ("transfer-encoding: Chunked\r\n", "5;name=value\r\nhello\r\na\r\n0123456789\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n", "000\r\nExpires: never\r\nX-Y:\r\n\r\n"),
        ("X-Empty:\r\nX-Tab: a\tb\r\nX-Bytes: \u{e9}\r\n", ""),
        ("Expect: 100-continue\r\nContent-Length: 1\r\n", "x"),
    ];
    for (fields, body) in sound {
        let one = request(fields, body);
        assert_eq!(verdict(&one), (1, None), "{fields:?} {body:?}");
        let mut two = one.clone();
        two.extend_from_slice(&one);
        assert_eq!(verdict(&two), (2, None), "two of {fields:?} {body:?}");
    }
    assert_eq!(verdict(b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), (1, None), "one empty line before it");
    assert_eq!(verdict(b"GET / HTTP/1.0\r\n\r\n"), (1, None), "an old client need not name a host");
    assert_eq!(verdict(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"), (1, None));
}

/// However small they are: each of them is handled by itself.
#[test]
fn only_a_few_chunks_are_passed_on_together() {
    let body = "1\r\nx\r\n".repeat(100) + "2;x=y\r\nab\r\n0\r\n\r\n";
    let bytes = request("Transfer-Encoding: chunked\r\n", &body);
    let (mut guard, mut at, mut chunks) = (Guard::default(), 0, Vec::new());
    while at < bytes.len() {
        at += guard.admit(&bytes[at..]).unwrap();
        assert_eq!(guard.is_in_chunks(), at < bytes.len());
        chunks.push(guard.take_chunks());
    }
    assert_eq!(chunks, [0, CHUNKS_AT_ONCE, CHUNKS_AT_ONCE, CHUNKS_AT_ONCE, 102 - 3 * CHUNKS_AT_ONCE]);
}

/// One sentence for each way in which two programs have read the same bytes as different requests.
#[test]
fn nothing_ambiguous_passes() {
    let long = |length: usize| "x".repeat(length);
    let with_fields = [
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length: 5.0\r\n",
        "Content-Length: five\r\n",
        "Content-Length:\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Content-Length : 5\r\n",
        "Content-Length\t: 5\r\n",
        " Content-Length: 5\r\n",
        "X: y\r\n Content-Length: 5\r\n",
        "X: y\r\n\tfolded\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: chunked;q=1\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding:\u{b}chunked\r\n",
        "Transfer-Encoding: chunked\r\n\r\nTransfer-Encoding: identity\u{0}\r\n",
        "X: a\0b\r\n",
        "X: a\rb\r\n",
        "X: a\nb\r\n",
        "X: a\nContent-Length: 5\r\n",
        "X: a\r\r\n",
        "X\r\n",
        ": x\r\n",
        "X Y: z\r\n",
        "X\u{7f}: z\r\n",
        "X(: z\r\n",
        "Host: other\r\n",
    ];
    for fields in with_fields {
        let (_, violation) = verdict(&request(fields, "hello"));
        assert_eq!(violation, Some(400), "{fields:?}");
    }
    let chunked = |body: &str| request("Transfer-Encoding: chunked\r\n", body);
    let bodies = [
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhelloX\r\n",
        "\r\nhello",
        "g\r\n",
        "+5\r\nhello\r\n",
        "-5\r\nhello\r\n",
        "0x5\r\nhello\r\n",
        " 5\r\nhello\r\n",
        "5 \r\nhello\r\n",
        "5\t\r\nhello\r\n",
        "fffffffffffffffff\r\n",
        "0000000000000000005\r\nhello\r\n",
        ";x\r\n",
        "5;a\nb\r\nhello\r\n",
        "5;\0\r\nhello\r\n",
        "0\r\nX: y\n\r\n",
        "0\r\n X: y\r\n\r\n",
        "0\r\nX : y\r\n\r\n",
        "0\r\n: y\r\n\r\n",
        "0\r\nX\r\n\r\n",
        "0\r\n\rX",
        "0\r\n\n",
    ];
    for body in bodies {
        let (_, violation) = verdict(&chunked(body));
        assert_eq!(violation, Some(400), "{body:?}");
    }
    let heads: [(&[u8], u16); 19] = [
        (b"GET / HTTP/1.1\n\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505),
        (b"GET / http/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET //a HTTP/1.1\r\n\r\n", 400),
        (b"GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /#x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        (b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        (b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    ];
    for (head, status) in heads {
        assert_eq!(verdict(head), (0, Some(status)), "{:?}", String::from_utf8_lossy(head));
    }
    let target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", long(TARGET_MAX));
    assert_eq!(verdict(target.as_bytes()), (0, Some(414)));
    assert_eq!(verdict(&request(&format!("X: {}\r\n", long(HEAD_MAX)), "")), (0, Some(431)));
    assert_eq!(verdict(&vec![b'x'; HEAD_MAX]), (0, Some(431)), "a head that never ends");
    assert_eq!(verdict(&request(&"X: y\r\n".repeat(FIELDS_MAX), "")), (0, Some(431)));
    assert_eq!(verdict(&request(&"X: y\r\n".repeat(FIELDS_MAX - 1), "")), (1, None));
    let extension = |length: usize| verdict(&chunked(&format!("1;{}\r\nx\r\n0\r\n\r\n", long(length))));
    assert_eq!(extension(CHUNK_EXTENSION_MAX), (1, None));
    assert_eq!(extension(CHUNK_EXTENSION_MAX + 1).1, Some(400));
    let trailers = |fields: usize| verdict(&chunked(&format!("0\r\n{}\r\n", "X: y\r\n".repeat(fields))));
    assert_eq!(trailers(TRAILERS_MAX), (1, None));
    assert_eq!(trailers(TRAILERS_MAX + 1).1, Some(400));
    let (_, status) = verdict(&chunked(&format!("0\r\nX: {}\r\n\r\n", long(TRAILER_BYTES_MAX))));
    assert_eq!(status, Some(431));
}

#[test]
fn a_violation_takes_back_nothing_that_was_passed_before() {
    let mut two = request("Content-Length: 5\r\n", "hello");
    two.extend_from_slice(b"GET / HTTP/1.1\nHost: a\r\n\r\n");
    assert_eq!(verdict(&two), (1, Some(400)));
}

/// The same, but the bytes come in portions that end at these places.
fn verdict_in_portions(bytes: &[u8], ends: &[usize]) -> (usize, Option<u16>) {
    let mut guard = Guard::default();
    let (mut at, mut requests) = (0, 0);
    for end in ends.iter().map(|end| end % (bytes.len() + 1)).chain([bytes.len()]) {
        while at < end {
            match guard.admit(&bytes[at..end]) {
                Ok(0) => break,
                Ok(admitted) => at += admitted,
                Err(violation) => return (requests, Some(violation.status)),
            }
            requests += usize::from(guard.awaits_head());
        }
    }
    (requests, None)
}

proptest! {
    #[test]
    fn portions_make_no_difference(
        which in 0_usize..6,
        ends in proptest::collection::vec(0_usize..400, 0..12),
        noise in proptest::collection::vec((0_usize..300, any::<u8>()), 0..3),
    ) {
        let one = match which {
            0 => request("Content-Length: 5\r\n", "hello"),
            1 => request("Transfer-Encoding: chunked\r\n", "5;a\r\nhello\r\n0\r\nX: y\r\n\r\n"),
            2 => request("X: y\r\n", ""),
            3 => b"GET / HTTP/1.0\r\n\r\n".to_vec(),
            4 => request("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", ""),
            _ => b"\r\nGET /a?b HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        };
        let mut bytes = [one.clone(), one].concat();
        for (place, byte) in noise {
            let place = place % bytes.len();
            bytes[place] = byte;
        }
        let mut ends = ends;
        ends.sort_unstable();
        prop_assert_eq!(verdict_in_portions(&bytes, &ends).0, verdict(&bytes).0);
        let (whole, parts) = (verdict(&bytes).1, verdict_in_portions(&bytes, &ends).1);
        prop_assert_eq!(whole.is_some(), parts.is_some());
    }

    #[test]
    fn the_first_control_character_is_the_one_that_a_look_at_each_byte_finds(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let one_by_one = bytes.iter().position(|byte| matches!(byte, 0..=8 | 10..=31 | 127));
        prop_assert_eq!(first_control(&bytes), one_by_one);
    }

    #[test]
    fn any_bytes_are_legal_input(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        verdict(&bytes);
    }
}

#[test]
fn every_byte_is_told_from_every_other_wherever_it_is() {
    for byte in 0..=u8::MAX {
        let is_control = (byte < b' ' && byte != b'\t') || byte == 0x7f;
        for place in 0..20 {
            for others in [b'a', b'\t', b' ', b'~', 0x80, 0xff] {
                let mut bytes = [others; 20];
                bytes[place] = byte;
                assert_eq!(first_control(&bytes), is_control.then_some(place), "{bytes:?}");
            }
        }
    }
}

proptest! {
    /// What is taken without the parser of the HTTP library is what it would take.
    #[test]
    fn plain_targets_are_targets(path in "/[a-zA-Z0-9/._~-]{0,200}") {
        prop_assert!(path.bytes().all(is_plain) && http::Uri::try_from(&*path).is_ok());
        prop_assert_eq!(check_target("GET", &path), Ok(()));
    }
}
