//! Requests of any length, with a length or chunked, in any portions, several ahead of their answers, by several clients at once: each
//! comes back as it was. A lost wake-up shows as an answer that never comes.

use std::io::Write;
use tests::chaos::seed::Seed;
use tests::http::{HttpConnection, HttpDaemon};

const CLIENTS: u64 = 6;
const CONNECTIONS: usize = 12;

/// Some bodies that are sent in a row: few and of any length, or many and short.
fn bodies(seed: &mut Seed) -> Vec<Vec<u8>> {
    const LENGTHS: [usize; 8] = [0, 1, 64, 64, 3_000, 9_000, 70_000, 200_000];
    let count = 1 + seed.below(5);
    let choices = if count < 4 { LENGTHS.len() } else { LENGTHS.len() - 3 };
    let mut body = || {
        let length = LENGTHS[seed.below(choices)];
        (0..length).map(|_| seed.below(256) as u8).collect()
    };
    (0..count).map(|_| body()).collect()
}

fn request(connection: &HttpConnection, body: &[u8], seed: &mut Seed) -> Vec<u8> {
    let length = body.len().to_string();
    let is_chunked = seed.below(3) == 0;
    let mut fields = match is_chunked {
        true => vec![("Transfer-Encoding", "chunked")],
        false => vec![("Content-Length", length.as_str())],
    };
    if seed.below(8) == 0 {
        fields.push(("Expect", "100-continue"));
    }
    let mut request = connection.head("POST", "/v1/tasks/echo", &fields).into_bytes();
    if !is_chunked {
        request.extend_from_slice(body);
        return request;
    }
    let mut rest = body;
    while !rest.is_empty() {
        let (chunk, behind) = rest.split_at(rest.len().min(1 + seed.below(20_000)));
        request.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        request.extend_from_slice(&[chunk, b"\r\n"].concat());
        rest = behind;
    }
    request.extend_from_slice(b"0\r\n\r\n");
    request
}

/// Sends all of it, in portions that end anywhere.
fn send(mut to: impl Write, mut bytes: &[u8], seed: &mut Seed) {
    const LONGEST: [usize; 4] = [8, 200, 5_000, 100_000];
    while !bytes.is_empty() {
        let longest = LONGEST[seed.below(LONGEST.len())].max(bytes.len() / 50);
        let (portion, behind) = bytes.split_at(bytes.len().min(1 + seed.below(longest)));
        to.write_all(portion).expect("the connection is there");
        bytes = behind;
    }
}

/// What one client sends over its connections.
fn be_a_client(http: &HttpDaemon, number: u64) {
    let mut seed = Seed::new(number);
    for _ in 0..CONNECTIONS {
        let mut connection = http.connect();
        for _ in 0..1 + seed.below(6) {
            let bodies = bodies(&mut seed);
            let requests: Vec<u8> =
                bodies.iter().flat_map(|body| request(&connection, body, &mut seed)).collect();
            let socket = connection.socket().try_clone().expect("a socket");
            std::thread::scope(|scope| {
                scope.spawn(|| send(socket, &requests, &mut seed));
                for body in &bodies {
                    let answer = connection.answer().expect("an answer");
                    assert!(answer.status == 200 && answer.body == *body, "seed {number}: {}", answer.status);
                }
            });
        }
    }
}

#[test]
fn each_comes_back_as_it_was() {
    let http = HttpDaemon::start(&["--workers", "2"]);
    std::thread::scope(|scope| {
        for number in 1..=CLIENTS {
            let http = &http;
            scope.spawn(move || be_a_client(http, number));
        }
    });
    let status = http.daemon.status();
    assert_eq!(status["ledger"]["balanced"], true);
    assert_eq!(status["jobs"]["ok"], status["jobs"]["accepted"]);
}
