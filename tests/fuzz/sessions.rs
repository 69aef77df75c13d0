//! Messages of a client in any order, sound and damaged, on a real socket: what a session makes of them. The session may refuse, but
//! it may neither panic nor act before it was greeted, and what it understands may not depend on where a portion ends.
//!
//! A session ends with the first message that breaks the protocol, and nothing behind that is looked at. So most clients say hello
//! with all capabilities, and most messages are sound; the test fails if less than half of them become requests.

use super::{damaged, runs, seed, to_supervisor};
use bytes::Bytes;
use offload_protocol::codec;
use offload_protocol::messages::{
    CLIENT_CAPABILITIES, CLIENT_MAGIC, ToClient, ToSupervisor, VERSION_MAJOR, VERSION_MINOR,
};
use offload_supervisor::front::{
    Connection, ConnectionError, FilePlaces, Flushed, Listener, Received, Request, Room,
};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use tests::chaos::seed::Seed;
use tests::harness::private_folder;

/// Longest payload of these sessions, in bytes. What is longer is refused and skipped.
const PAYLOAD_MAX: usize = 64 << 10;

/// So many kinds of requests there are.
const KINDS: usize = 14;

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

/// What the clients of this test send.
struct Corpus {
    /// One hello that has all capabilities, and one that has none.
    able: Vec<u8>,
    plain: Vec<u8>,
    /// What may be sent at any time after that: a message, or two that belong together.
    sound: Vec<Vec<u8>>,
    /// Those of them that may have a payload.
    jobs: Vec<Vec<u8>>,
    /// Everything, also what may come once or never.
    all: Vec<Vec<u8>>,
}

impl Corpus {
    fn new() -> Corpus {
        let all = to_supervisor();
        let hello = |capabilities| {
            let (magic, major, minor) = (CLIENT_MAGIC, VERSION_MAJOR, VERSION_MINOR);
            let mut frame = Vec::new();
            let hello = ToSupervisor::Hello { magic, major, minor, capabilities, client: "me" };
            codec::encode(&hello, 0, &mut frame).expect("it is short");
            frame
        };
        let (mut sound, mut jobs, mut files) = (Vec::new(), Vec::new(), Vec::new());
        for frame in &all {
            match codec::decode(header(frame)) {
                Err(_) | Ok(ToSupervisor::Hello { .. }) => continue,
                Ok(ToSupervisor::InputFile { .. }) => files.push(frame.clone()),
                Ok(ToSupervisor::Submit { .. }) => jobs.push(frame.clone()),
                Ok(_) => {}
            }
            if !files.contains(frame) {
                sound.push(frame.clone());
            }
        }
        // A file comes right before its job, which then has no payload.
        let pairs = files.iter().zip(&jobs).map(|(file, job)| [&file[..], &with_payload(job, 0)].concat());
        sound.extend(pairs);
        Corpus { able: hello(CLIENT_CAPABILITIES), plain: hello(0), sound, jobs, all }
    }

    /// The messages of one client, and how many they are.
    fn messages(&self, seed: &mut Seed) -> (Vec<u8>, u64) {
        let mut bytes = match seed.below(16) {
            0 => Vec::new(),
            1 => self.plain.clone(),
            _ => self.able.clone(),
        };
        let count = 1 + seed.below(40);
        for _ in 0..count {
            bytes.extend(self.message(seed));
        }
        (bytes, count as u64)
    }

    /// Mostly a sound one.
    fn message(&self, seed: &mut Seed) -> Vec<u8> {
        match seed.below(200) {
            0 => damaged(&self.all, seed),
            1 => with_payload(one_of(&self.all, seed), seed.below(2 * PAYLOAD_MAX)),
            2 => one_of(&self.all, seed).clone(),
            3..8 => with_payload(one_of(&self.jobs, seed), seed.below(2 * PAYLOAD_MAX)),
            _ => one_of(&self.sound, seed).clone(),
        }
    }
}

fn one_of<'a>(frames: &'a [Vec<u8>], seed: &mut Seed) -> &'a Vec<u8> {
    &frames[seed.below(frames.len())]
}

fn header(frame: &[u8]) -> &[u8] {
    let length = u32::from_le_bytes(frame[..4].try_into().expect("four bytes")) as usize;
    &frame[8..8 + length]
}

/// The same message with a payload of this length.
fn with_payload(frame: &[u8], length: usize) -> Vec<u8> {
    let mut changed = frame[..8 + header(frame).len()].to_vec();
    changed[4..8].copy_from_slice(&u32::try_from(length).expect("it is short").to_le_bytes());
    changed.resize(changed.len() + length, b'7');
    changed
}

#[test]
fn messages_of_a_client_in_any_order_and_in_any_portions() {
    let (folder, mut seed, corpus) = (private_folder(), seed("sessions"), Corpus::new());
    let listener = Listener::bind(&folder.path().join("s.sock")).expect("it can listen");
    let (mut clients, mut sent, mut requests, mut refused) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut kinds = HashSet::new();
    while sent < runs() {
        let (bytes, count) = corpus.messages(&mut seed);
        let (once, again) = (talk(&listener, &bytes, &mut seed), talk(&listener, &bytes, &mut seed));
        assert_eq!(once, again, "{bytes:?}");
        (clients, sent) = (clients + 1, sent + count);
        requests += once.requests.len() as u64;
        refused += u64::from(once.end.is_some());
        kinds.extend(once.requests.iter().map(std::mem::discriminant));
    }
    let counted = format!("{clients} clients, {sent} messages, {requests} requests, {refused} ends");
    println!("sessions: {counted}");
    assert!(requests > sent / 2, "too few are understood: {counted}");
    assert!(refused > clients / 10, "too few clients break the protocol: {counted}");
    assert_eq!(kinds.len(), KINDS, "each kind of request is among them");
}
