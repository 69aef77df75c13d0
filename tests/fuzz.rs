//! Bytes that nobody has thought of, for everything that reads bytes of others: frames, messages, and heads and bodies of HTTP. What is
//! sound is taken apart, put together in other ways, damaged, and handed over in portions. Nothing may panic, and nothing may depend
//! on where a portion ends.
//!
//! ```text
//!   OFFLOAD_FUZZ_RUNS=20000000 OFFLOAD_FUZZ_SEED=7 cargo test --release -p tests --test fuzz
//! ```
//!
//! The seed is printed; by default it is another one each day. The state machine of a client's session has a file of its own,
//! `fuzz/sessions.rs`; what workers say in a wrong order is tried by the simulator (`simulation/`).

#[path = "fuzz/sessions.rs"]
mod sessions;

use offload_http::guard::Guard;
use offload_protocol::codec;
use offload_protocol::frame::FrameDecoder;
use offload_protocol::messages::{FromWorker, ToClient, ToSupervisor, ToWorker};
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};
use tests::chaos::seed::Seed;
use tests::harness::workspace;

/// What a frame of these tests may announce as its payload.
const PAYLOAD_MAX: usize = 1 << 20;

fn runs() -> u64 {
    std::env::var("OFFLOAD_FUZZ_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(2_000_000)
}

/// A generator for one target.
fn seed(target: &str) -> Seed {
    let day = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() / 86_400);
    let number =
        std::env::var("OFFLOAD_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(day);
    println!("{target}: seed {number}, {} runs", runs());
    Seed::new(number)
}

/// Frames of the golden vectors, good and bad ones.
fn frames() -> Vec<Vec<u8>> {
    frames_of(|_| true)
}

/// Those that a client sends.
fn to_supervisor() -> Vec<Vec<u8>> {
    frames_of(|vector| vector["direction"] == "to_supervisor")
}

fn frames_of(is_wanted: impl Fn(&Value) -> bool) -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(workspace().join("protocol/vectors.json")).expect("it is there");
    let vectors: Value = serde_json::from_str(&text).expect("it is JSON");
    let all = vectors["vectors"].as_array().expect("a list");
    assert!(all.len() > 50);
    let wanted = all.iter().filter(|vector| is_wanted(vector));
    wanted.map(|vector| bytes(vector["frame"].as_str().expect("a text"))).collect()
}

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2).filter_map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("two digits")).collect()
}

/// Some of the corpus, one after another, with some damage.
fn damaged(corpus: &[Vec<u8>], seed: &mut Seed) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..=seed.below(3) {
        let one = &corpus[seed.below(corpus.len())];
        let end = if seed.below(8) == 0 { seed.below(one.len() + 1) } else { one.len() };
        bytes.extend_from_slice(&one[..end]);
    }
    for _ in 0..seed.below(5) {
        if bytes.is_empty() {
            break;
        }
        let place = seed.below(bytes.len());
        match seed.below(6) {
            0 => bytes[place] = seed.number() as u8,
            1 => bytes[place] ^= 1 << seed.below(8),
            2 => drop(bytes.remove(place)),
            3 => bytes.insert(place, [0, 0xff, b'\r', b'\n', b' ', b':', b',', b'0'][seed.below(8)]),
            4 => {
                let end = place + seed.below(bytes.len() - place + 1);
                let part = bytes[place..end].to_vec();
                bytes.splice(place..place, part);
            }
            _ => bytes.truncate(place),
        }
    }
    bytes
}

/// How many frames there are, and whether what follows is none. Reads in portions.
fn read_frames(bytes: &[u8], seed: &mut Seed) -> (usize, bool) {
    let mut decoder = FrameDecoder::new(PAYLOAD_MAX);
    let (mut rest, mut count) = (bytes, 0);
    loop {
        loop {
            match decoder.next() {
                Ok(Some(_)) => count += 1,
                Ok(None) => break,
                Err(_) => return (count, true),
            }
        }
        if rest.is_empty() {
            return (count, false);
        }
        let space = decoder.space();
        let portion = space.len().min(rest.len()).min(1 + seed.below(300));
        space[..portion].copy_from_slice(&rest[..portion]);
        decoder.filled(portion);
        rest = &rest[portion..];
    }
}

#[test]
fn frames_in_any_portions() {
    let (corpus, mut seed) = (frames(), seed("frames"));
    let (mut sound, mut broken) = (0_u64, 0_u64);
    for run in 0..runs() {
        let bytes = damaged(&corpus, &mut seed);
        let found = read_frames(&bytes, &mut seed);
        assert_eq!(found, read_frames(&bytes, &mut seed), "run {run}: {bytes:?}");
        sound += found.0 as u64;
        broken += u64::from(found.1);
    }
    assert!(sound > runs() / 10 && broken > runs() / 1000, "{sound} frames, {broken} that are none");
}

#[test]
fn headers_of_messages() {
    let mut headers: Vec<Vec<u8>> = Vec::new();
    for frame in frames() {
        if frame.len() > 8 {
            headers.push(frame[8..].to_vec());
        }
    }
    let mut seed = seed("messages");
    let (mut sound, mut broken) = (0_u64, 0_u64);
    for _ in 0..runs() {
        let header = damaged(&headers, &mut seed);
        let is_sound = match seed.below(4) {
            0 => codec::decode::<ToWorker<'_>>(&header).is_ok(),
            1 => codec::decode::<FromWorker<'_>>(&header).is_ok(),
            2 => codec::decode::<ToSupervisor<'_>>(&header).is_ok(),
            _ => codec::decode::<ToClient<'_>>(&header).is_ok(),
        };
        sound += u64::from(is_sound);
        broken += u64::from(!is_sound);
    }
    assert!(sound > runs() / 1000 && broken > runs() / 10, "{sound} messages, {broken} that are none");
}

/// How many bytes are passed on in all, how many requests they are, and whether a violation follows. Reads in portions.
fn pass(bytes: &[u8], seed: &mut Seed) -> (usize, usize, bool) {
    let mut guard = Guard::default();
    let (mut at, mut end, mut requests) = (0, 0, 0);
    while end < bytes.len() {
        end = bytes.len().min(end + 1 + seed.below(400));
        while at < end {
            match guard.admit(&bytes[at..end]) {
                Ok(0) => break,
                Ok(admitted) => at += admitted,
                Err(_) => return (at, requests, true),
            }
            requests += usize::from(guard.awaits_head());
        }
    }
    (at, requests, false)
}

#[test]
fn requests_in_any_portions() {
    let texts = [
        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "POST /v1/tasks/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        "POST /v1/tasks/echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
        "DELETE /v1/jobs/1 HTTP/1.0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET /a?b=c%20d HTTP/1.1\r\nHost: [::1]:80\r\nAccept: */*\r\nX-Tab: a\tb\r\nExpect: 100-continue\r\n\r\n",
        "\r\nOPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Content-Length: 3\r\n",
        "0\r\n\r\n",
    ];
    let corpus: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    let mut seed = seed("requests");
    let (mut sound, mut broken) = (0_u64, 0_u64);
    for run in 0..runs() {
        let bytes = damaged(&corpus, &mut seed);
        let (whole, parts) = (pass(&bytes, &mut seed), pass(&bytes, &mut seed));
        let shown = || String::from_utf8_lossy(&bytes).into_owned();
        assert_eq!((whole.1, whole.2), (parts.1, parts.2), "run {run}: {:?}", shown());
        sound += whole.1 as u64;
        broken += u64::from(whole.2);
    }
    assert!(sound > runs() / 10 && broken > runs() / 10, "{sound} requests, {broken} violations");
}
