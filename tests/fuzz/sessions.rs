//! Messages of a client in any order, sound and damaged, on a real socket: what a session makes of them. The session may refuse, but
//! it may neither panic nor act before it was greeted, and what it understands may not depend on where a portion ends.

use super::{damaged, runs, seed, to_supervisor};
use bytes::Bytes;
use offload_protocol::messages::ToClient;
use offload_supervisor::front::{
    Connection, ConnectionError, FilePlaces, Flushed, Listener, Received, Request, Room,
};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use tests::chaos::seed::Seed;
use tests::harness::private_folder;

/// Longest payload of these sessions, in bytes. What is longer is refused and skipped.
const PAYLOAD_MAX: usize = 64 << 10;

/// What came of one session.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    requests: Vec<Request>,
    /// Why it ended, if that was the client's doing.
    end: Option<String>,
}

/// A session as the fuzzer drives it.
struct Session {
    connection: Connection,
    heard: Heard,
}

impl Session {
    /// Everything that can be understood of what has come.
    fn receive(&mut self) {
        while self.heard.end.is_none() {
            let was_greeted = self.connection.is_greeted();
            let before = self.heard.requests.len();
            // What is decided depends on the payload alone, so that each portioning leads to the same.
            let mut room =
                |_: &str, length: usize| if length.is_multiple_of(3) { Room::Refuse } else { Room::Take };
            let requests = &mut self.heard.requests;
            let received = self.connection.receive(&mut room, &mut |request| requests.push(request));
            assert!(
                was_greeted || self.connection.is_greeted() || self.heard.requests.len() == before,
                "a request of nobody"
            );
            match received {
                Ok(Received::WouldBlock | Received::Ended) => return,
                Ok(Received::Messages | Received::More) => {}
                Ok(Received::NoRoom) => panic!("nothing is to wait"),
                Err(ConnectionError::Io(error)) => panic!("the socket failed: {error}"),
                Err(error) => self.heard.end = Some(error.to_string()),
            }
        }
    }

    /// A session that has ended reads nothing more, queues nothing more, and is finished when its last words are written.
    fn check_end(&mut self, client: &mut UnixStream) {
        let nothing = &mut |request: Request| panic!("after the end: {request:?}");
        let received = self.connection.receive(&mut |_, _| panic!("no payload is asked about"), nothing);
        assert!(matches!(received, Ok(Received::Ended)), "{received:?}");
        let unsent = self.connection.unsent();
        self.connection
            .send(&ToClient::Goodbye { reason: "late".into() }, &Bytes::new())
            .expect("it is short");
        assert_eq!(self.connection.unsent(), unsent);
        assert!(matches!(self.connection.flush(), Ok(Flushed::Done)));
        assert!(self.connection.is_finished());
        let mut said = Vec::new();
        let mut space = [0; 4096];
        while let Ok(count @ 1..) = client.read(&mut space) {
            said.extend_from_slice(&space[..count]);
        }
        assert!(self.heard.requests.is_empty() || !said.is_empty(), "who asked was at least welcomed");
    }
}

fn talk(listener: &Listener, bytes: &[u8], seed: &mut Seed) -> Heard {
    let mut client = UnixStream::connect(listener.path()).expect("it listens");
    client.set_nonblocking(true).expect("a socket");
    let connection =
        listener.accept(PAYLOAD_MAX, &FilePlaces::new(1)).expect("one waits").expect("one waits");
    let mut session = Session { connection, heard: Heard::default() };
    let mut rest = bytes;
    while !rest.is_empty() && session.heard.end.is_none() {
        let longest = if seed.below(2) == 0 { 40 } else { 20_000 };
        let portion = rest.len().min(1 + seed.below(longest));
        let written = client.write(&rest[..portion]).expect("the session reads");
        rest = &rest[written..];
        session.receive();
    }
    if session.heard.end.is_some() {
        session.check_end(&mut client);
    }
    session.heard
}

/// The messages of one client: mostly a hello first, then whatever.
fn messages(hellos: &[Vec<u8>], corpus: &[Vec<u8>], seed: &mut Seed) -> (Vec<u8>, u64) {
    let mut bytes = Vec::new();
    let count = 1 + seed.below(40);
    if seed.below(8) > 0 {
        bytes.extend_from_slice(&hellos[seed.below(hellos.len())]);
    }
    for _ in 0..count {
        match seed.below(40) {
            0 => bytes.extend(damaged(corpus, seed)),
            1 => bytes.extend(with_payload(&corpus[seed.below(corpus.len())], seed.below(2 * PAYLOAD_MAX))),
            _ => bytes.extend_from_slice(&corpus[seed.below(corpus.len())]),
        }
    }
    (bytes, count as u64)
}

/// The same message with a payload of this length.
fn with_payload(frame: &[u8], length: usize) -> Vec<u8> {
    let header = u32::from_le_bytes(frame[..4].try_into().expect("four bytes")) as usize;
    let mut changed = frame[..8 + header].to_vec();
    changed[4..8].copy_from_slice(&u32::try_from(length).expect("it is short").to_le_bytes());
    changed.resize(changed.len() + length, b'7');
    changed
}

#[test]
fn messages_of_a_client_in_any_order_and_in_any_portions() {
    let corpus = to_supervisor();
    let is_hello = |frame: &&Vec<u8>| frame.len() > 12 && frame[8..12] == [0; 4];
    let hellos: Vec<Vec<u8>> = corpus.iter().filter(is_hello).cloned().collect();
    assert!(!hellos.is_empty() && hellos.len() < corpus.len());
    let (folder, mut seed) = (private_folder(), seed("sessions"));
    let listener = Listener::bind(&folder.path().join("s.sock")).expect("it can listen");
    let (mut sent, mut requests, mut refused) = (0_u64, 0_u64, 0_u64);
    while sent < runs() {
        let (bytes, count) = messages(&hellos, &corpus, &mut seed);
        sent += count;
        let (once, again) = (talk(&listener, &bytes, &mut seed), talk(&listener, &bytes, &mut seed));
        assert_eq!(once, again, "{bytes:?}");
        requests += once.requests.len() as u64;
        refused += u64::from(once.end.is_some());
    }
    // Most clients end early, because they send what they have not agreed on or what is damaged; many have to be understood before.
    assert!(
        requests > sent / 40 && refused > sent / 1000,
        "{sent} messages, {requests} requests, {refused} ends"
    );
}
