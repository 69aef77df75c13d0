//! Descriptors of files that are inputs, and of anything else that a client may send.

use super::*;
use crate::front::SubmittedFile;
use crate::wire::send_with;
use offload_protocol::messages::FILES;
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, open};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

const PAYLOAD_MAX: usize = 1 << 20;

fn greeted() -> Pair {
    Pair::greeted_with(FILES, PAYLOAD_MAX)
}

/// A regular file without a name.
fn file(content: &[u8]) -> File {
    let mut file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
    file.write_all(content).unwrap();
    file
}

fn input_file(ticket: u64, bytes: u64) -> Vec<u8> {
    frame(&ToSupervisor::InputFile { ticket, bytes }, b"")
}

impl Pair {
    fn say_with(&mut self, bytes: &[u8], file: impl AsFd) {
        assert_eq!(send_with(&self.peer.socket, bytes, file.as_fd()), Ok(bytes.len()));
    }

    /// Receives until there is nothing more. Returns the violation, if there is one.
    fn receive_all(&mut self) -> Option<String> {
        loop {
            match self.receive() {
                Ok(Received::WouldBlock) => return None,
                Ok(_) => {}
                Err(error) => return Some(error),
            }
        }
    }

    /// The file of the last request, which must be a job.
    fn last_file(&self) -> Option<SubmittedFile> {
        match self.requests.last() {
            Some(Request::Submit { file, .. }) => file.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Waits until all descriptors that came are closed.
    fn expect_all_closed(&self) {
        let deadline = std::time::Instant::now() + PATIENCE;
        while self.places.taken() > 0 {
            assert!(std::time::Instant::now() < deadline, "{} are open", self.places.taken());
            std::thread::yield_now();
        }
    }
}

fn expect_violation(mut pair: Pair, reason: &str) {
    let violation = pair.receive_all();
    assert_eq!(violation.as_deref(), Some(&*format!("protocol violation: {reason}")));
    pair.requests.clear();
    pair.flush();
    pair.expect_all_closed();
    let heard = pair.end();
    assert!(heard.contains("Goodbye") && heard.contains(reason), "{heard}");
}

#[test]
fn a_file_comes_with_its_job_and_is_open_until_the_job_is_dropped() {
    let mut pair = greeted();
    for ticket in 1..=3 {
        let content = file(b"12345");
        pair.peer.say(&frame(&show(9), b""));
        pair.say_with(&input_file(ticket, 5), &content);
        pair.peer.say(&[frame(&submit(ticket), b""), frame(&show(9), b"")].concat());
        assert_eq!(pair.receive_all(), None);
        assert_eq!(pair.requests.pop(), Some(Request::Show { ticket: 9, view: View::Status }));
        let Some(SubmittedFile::Open(input)) = pair.last_file() else { panic!("{:?}", pair.requests) };
        assert_eq!((input.bytes(), pair.places.taken()), (5, 1));
        drop(input);
        pair.requests.clear();
        pair.expect_all_closed();
    }
    pair.peer.say(&frame(&submit(4), b"inline"));
    assert_eq!(pair.receive_all(), None);
    assert_eq!(pair.requests, [submitted(4, b"inline")]);
}

/// A client need not wait for an answer before it sends the next file.
#[test]
fn the_next_file_may_come_together_with_the_job_of_the_one_before() {
    let mut pair = greeted();
    for ticket in 1..=20 {
        pair.say_with(&input_file(ticket, 5), file(b"12345"));
        pair.peer.say(&frame(&submit(ticket), b""));
    }
    assert_eq!(pair.receive_all(), None);
    let files = pair.requests.iter().map(|request| match request {
        Request::Submit { file, .. } => matches!(file, Some(SubmittedFile::Open(_))),
        other => panic!("{other:?}"),
    });
    // There are two places.
    assert_eq!(files.collect::<Vec<_>>(), [&[true; 2][..], &[false; 18]].concat());
    pair.requests.clear();
    pair.expect_all_closed();
}

#[test]
fn what_comes_byte_by_byte_is_the_same() {
    let mut pair = greeted();
    let content = file(b"12345");
    let (first, rest) = input_file(7, 5).split_first().map(|(first, rest)| (*first, rest.to_vec())).unwrap();
    pair.say_with(&[first], &content);
    assert_eq!(pair.receive_all(), None);
    assert!(pair.connection.is_mid_frame());
    for byte in [rest, frame(&submit(7), b"")].concat() {
        pair.peer.say(&[byte]);
        assert_eq!(pair.receive_all(), None);
    }
    assert!(matches!(pair.last_file(), Some(SubmittedFile::Open(_))));
    assert!(!pair.connection.is_mid_frame());
}

#[test]
fn a_file_of_another_length_or_without_a_place_is_not_used_and_the_client_stays() {
    let mut pair = greeted();
    let content = file(b"12345");
    pair.say_with(&input_file(1, 6), &content);
    pair.peer.say(&frame(&submit(1), b""));
    assert_eq!(pair.receive_all(), None);
    assert_eq!(pair.last_file(), Some(SubmittedFile::Unusable));
    pair.requests.clear();
    pair.expect_all_closed();
    for ticket in 2..=5 {
        pair.say_with(&input_file(ticket, 5), &content);
        pair.peer.say(&frame(&submit(ticket), b""));
        assert_eq!(pair.receive_all(), None);
    }
    let is_open =
        |request: &Request| matches!(request, Request::Submit { file: Some(SubmittedFile::Open(_)), .. });
    let open: Vec<bool> = pair.requests.iter().map(is_open).collect();
    assert_eq!(open, [true, true, false, false], "there are two places");
    pair.requests.clear();
    pair.expect_all_closed();
}

#[test]
fn a_file_without_its_job_is_closed_with_the_connection() {
    let mut pair = greeted();
    pair.say_with(&input_file(1, 5), file(b"12345"));
    assert_eq!(pair.receive_all(), None);
    assert!(pair.connection.is_mid_frame(), "the client has to go on");
    assert_eq!((pair.requests.len(), pair.places.taken()), (0, 1));
    pair.connection.close_after_flush();
    pair.expect_all_closed();
}

#[test]
fn what_is_not_the_job_of_the_file_is_a_violation() {
    let not_its_job = "an input file, and then something else than its job without a payload";
    let large = vec![b'x'; PAYLOAD_MAX / 2];
    for next in [
        frame(&submit(2), b""),
        frame(&submit(1), b"payload"),
        frame(&submit(1), &large),
        frame(&show(1), b""),
        input_file(1, 5),
    ] {
        let mut pair = greeted();
        pair.say_with(&input_file(1, 5), file(b"12345"));
        pair.peer.socket.set_nonblocking(true).unwrap();
        let _ = pair.peer.socket.write(&next).unwrap();
        pair.peer.socket.set_nonblocking(false).unwrap();
        let violation = pair.receive_all().unwrap();
        assert!(violation.ends_with(not_its_job), "{violation}");
        pair.expect_all_closed();
    }
    let mut pair = greeted();
    pair.say_with(&input_file(1, 5), file(b"12345"));
    pair.say_with(&frame(&submit(1), b""), file(b"12345"));
    expect_violation(pair, "a descriptor with a message that has none");
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    pair.say_with(&input_file(1, 5), file(b"12345"));
    expect_violation(pair, "an input that is a file, without the capability");
    let mut pair = greeted();
    pair.peer.say(&frame(&ToSupervisor::InputFile { ticket: 1, bytes: 1 }, b"x"));
    expect_violation(pair, "a payload with a message that is not a job");
}

#[test]
fn a_descriptor_that_no_message_announces_is_a_violation() {
    let mut pair = greeted();
    pair.peer.say(&frame(&show(1), b""));
    pair.say_with(&frame(&submit(2), b"x"), file(b"12345"));
    expect_violation(pair, "a descriptor with a message that has none");
}

#[test]
fn only_regular_files_that_can_be_read_are_taken() {
    let folder = private_folder();
    let path = folder.path().join("file");
    std::fs::write(&path, "12345").unwrap();
    let opened = |path: &std::path::Path, flags| open(path, flags, Mode::empty()).unwrap();
    let others: [(OwnedFd, &str); 5] = [
        (opened(folder.path(), OFlags::RDONLY), "an input file: it is no regular file"),
        (UnixStream::pair().unwrap().0.into(), "an input file: it is no regular file"),
        (std::io::pipe().unwrap().0.into(), "an input file: it is no regular file"),
        (opened(&path, OFlags::WRONLY), "an input file: it cannot be read"),
        (opened(&path, OFlags::PATH), "an input file: it cannot be read"),
    ];
    for (other, reason) in others {
        let mut pair = greeted();
        pair.say_with(&input_file(1, 5), other);
        expect_violation(pair, reason);
    }
}

#[test]
fn of_several_descriptors_at_once_none_is_kept() {
    let pair = greeted();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let descriptors: Vec<BorrowedFd<'_>> = vec![writer.as_fd(); 100];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(100))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let bytes = input_file(1, 5);
    sendmsg(&pair.peer.socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::empty()).unwrap();
    drop(writer);
    expect_violation(pair, "several descriptors for one input");
    assert_eq!(reader.read(&mut [0]).unwrap(), 0, "nobody holds the other end of the pipe");
}

#[test]
fn a_client_without_the_capability_keeps_nothing_open_here() {
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    let (mut reader, writer) = std::io::pipe().unwrap();
    pair.say_with(&frame(&submit(1), b"x"), &writer);
    drop(writer);
    assert_eq!(pair.receive_all(), None);
    assert_eq!(pair.requests, [submitted(1, b"x")]);
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
}
