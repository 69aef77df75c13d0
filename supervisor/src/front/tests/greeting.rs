//! Clients of other versions, newer and older ones.

use super::*;
use offload_protocol::messages::{CLIENT_CAPABILITIES, Operation, PARTS};

const PAYLOAD_MAX: usize = 1 << 20;

#[test]
fn a_capability_that_only_the_client_has_is_ignored_and_the_welcome_does_not_have_it() {
    let mut pair = Pair::new(PAYLOAD_MAX);
    let newer = ToSupervisor::Hello {
        magic: CLIENT_MAGIC,
        major: VERSION_MAJOR,
        minor: VERSION_MINOR + 1,
        capabilities: u64::MAX,
        client: "newer",
    };
    pair.peer.say(&[frame(&newer, b""), frame(&submit(1), b"x")].concat());
    assert_eq!(pair.receive(), Ok(Received::Messages));
    assert_eq!(pair.requests, [submitted(1, b"x")]);
    pair.flush();
    let (welcome, _) = pair.peer.hear().unwrap();
    assert!(welcome.contains(&format!("capabilities: {CLIENT_CAPABILITIES},")), "{welcome}");
}

#[test]
fn a_client_of_another_version_is_told_so() {
    let mut pair = Pair::new(PAYLOAD_MAX);
    pair.peer.say(&hello(VERSION_MAJOR + 1, "newer"));
    assert!(pair.receive().unwrap_err().contains(&format!("protocol 4.{VERSION_MINOR}")));
    pair.flush();
    let (goodbye, why) = pair.peer.hear().unwrap();
    assert!(goodbye.starts_with("Goodbye"), "{goodbye}");
    assert!(goodbye.contains(&format!("this supervisor 3.{VERSION_MINOR}")), "{goodbye}");
    assert_eq!(why, "unsupported".len());
    assert_eq!(pair.end(), "");
}

#[test]
fn a_shortened_id_needs_its_capability() {
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    let operation = Operation::Find { text: "01J".to_owned() };
    pair.peer.say(&frame(&ToSupervisor::Operate { ticket: 1, operation }, b""));
    let refused = pair.receive().unwrap_err();
    assert!(refused.contains("a shortened id without the capability"), "{refused}");
    assert_eq!(pair.requests, []);
}

#[test]
fn a_stream_needs_its_capability() {
    for (capabilities, is_fine) in [(0, false), (PARTS, true)] {
        let mut pair = Pair::new(PAYLOAD_MAX);
        let hello = ToSupervisor::Hello {
            magic: CLIENT_MAGIC,
            major: VERSION_MAJOR,
            minor: 0,
            capabilities,
            client: "",
        };
        let options = SubmitOptions { stream: true, ..SubmitOptions::default() };
        let media_type = MediaType::TEXT;
        let stream = ToSupervisor::Submit { ticket: 1, task: "count", media_type, detach: false, options };
        pair.peer.say(&[frame(&hello, b""), frame(&stream, b"3")].concat());
        assert_eq!(pair.receive().is_ok(), is_fine);
        assert_eq!(pair.requests.len(), usize::from(is_fine));
    }
}
