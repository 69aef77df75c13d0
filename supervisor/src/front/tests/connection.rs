//! One connection over a socket pair: greeting, requests, refusals, garbage.

use super::*;
use crate::front::{FLUSH_MAX, Flushed, Peer};
use crate::limits::REQUESTS_PER_CALL_MAX;
use offload_protocol::limits::{HEADER_MAX, INLINE_PAYLOAD_MAX, MESSAGE_MAX, NAME_MAX};
use offload_protocol::messages::{FIND, Operation};
use offload_protocol::nouns::OutcomeCode;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::IoSlice;
use std::mem::MaybeUninit;

const PAYLOAD_MAX: usize = 1 << 20;

fn tickets(requests: &[Request]) -> Vec<u64> {
    let ticket = |request: &Request| match request {
        Request::Submit { ticket, .. } | Request::Show { ticket, .. } => *ticket,
        other => panic!("{other:?}"),
    };
    requests.iter().map(ticket).collect()
}

#[test]
fn a_client_that_says_hello_is_welcomed_and_told_the_limit() {
    let mut pair = Pair::new(12345);
    assert!(!pair.connection.is_greeted());
    assert_eq!(pair.receive(), Ok(Received::WouldBlock));
    pair.peer.say(&hello(VERSION_MAJOR, "tester"));
    assert_eq!(pair.receive(), Ok(Received::Messages));
    assert!(pair.connection.is_greeted());
    assert_eq!(pair.connection.client(), "tester");
    pair.flush();
    let (welcome, _) = pair.peer.hear().unwrap();
    assert!(welcome.starts_with("Welcome") && welcome.contains("payload_max: 12345"), "{welcome}");
    assert_eq!(pair.requests, []);
}

#[test]
fn every_request_comes_out_as_it_went_in() {
    let mut pair = Pair::greeted_with(FIND, PAYLOAD_MAX);
    pair.peer.say(&frame(&submit(1), b"input"));
    pair.peer.say(&frame(&ToSupervisor::Wait { ticket: 2, job: "a" }, b""));
    pair.peer.say(&frame(&ToSupervisor::Result { ticket: 3, job: "b" }, b""));
    pair.peer.say(&frame(&ToSupervisor::Cancel { ticket: 4, job: "c" }, b""));
    pair.peer.say(&frame(&show(5), b""));
    pair.peer.say(&frame(&ToSupervisor::Drain { ticket: 6 }, b""));
    pair.peer.say(&frame(&ToSupervisor::Stop { ticket: 7 }, b""));
    let operation = Operation::Find { text: "01J".to_owned() };
    pair.peer.say(&frame(&ToSupervisor::Operate { ticket: 8, operation: operation.clone() }, b""));
    while pair.receive() == Ok(Received::More) {}
    let expected = [
        submitted(1, b"input"),
        Request::Wait { ticket: 2, job: "a".to_owned() },
        Request::Result { ticket: 3, job: "b".to_owned() },
        Request::Cancel { ticket: 4, job: "c".to_owned() },
        Request::Show { ticket: 5, view: View::Status },
        Request::Drain { ticket: 6, limit: None },
        Request::Stop { ticket: 7 },
        Request::Operate { ticket: 8, operation },
    ];
    assert_eq!(pair.requests, expected);
}

#[test]
fn a_request_may_come_in_the_same_bytes_as_the_hello() {
    let mut pair = Pair::new(PAYLOAD_MAX);
    let mut bytes = hello(VERSION_MAJOR, "");
    bytes.extend(frame(&submit(1), b"x"));
    pair.peer.say(&bytes);
    assert_eq!(pair.receive(), Ok(Received::Messages));
    assert_eq!(pair.requests, [submitted(1, b"x")]);
}

#[test]
fn bytes_may_come_one_at_a_time() {
    let mut pair = Pair::new(PAYLOAD_MAX);
    let mut bytes = hello(VERSION_MAJOR, "slow");
    bytes.extend(frame(&submit(1), b"drip"));
    for byte in bytes {
        pair.peer.say(&[byte]);
        assert_eq!(pair.receive(), Ok(Received::Messages));
    }
    assert_eq!(pair.requests, [submitted(1, b"drip")]);
    assert!(!pair.connection.is_mid_frame());
}

#[test]
fn http_is_recognized_and_gets_no_answer() {
    for request in ["GET / HTTP/1.1\r\n", "POST /v1/tasks HTTP/1.1\r\n", "OPTIONS * HTTP/1.1\r\n"] {
        let mut pair = Pair::new(PAYLOAD_MAX);
        pair.peer.say(request.as_bytes());
        assert_eq!(pair.receive(), Err("the peer speaks HTTP".to_owned()), "{request}");
        assert_eq!(pair.end(), "");
    }
}

#[test]
fn whoever_begins_with_anything_but_our_hello_gets_no_answer() {
    let strange_magic =
        ToSupervisor::Hello { magic: *b"OFFLOADW", major: 1, minor: 0, capabilities: 0, client: "" };
    let beginnings = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03".to_vec(),
        vec![0; 64],
        vec![0xff; 64],
        frame(&strange_magic, b""),
        frame(&submit(1), b""),
        frame(&show(1), b""),
        // A payload so long that it would be announced first.
        frame(&submit(1), &vec![0; INLINE_PAYLOAD_MAX + 1]),
        b"\x04\0\0\0\0\0\0\0\xff\xff\xff\xff".to_vec(),
    ];
    for beginning in beginnings {
        let mut pair = Pair::new(PAYLOAD_MAX);
        pair.peer.say(&beginning);
        assert_eq!(pair.receive(), Err("the peer is no client".to_owned()), "{:?}", &beginning[..8]);
        assert!(pair.requests.is_empty() && pair.asked.is_empty());
        assert_eq!(pair.end(), "");
    }
}

#[test]
fn a_name_that_could_forge_a_line_or_is_too_long_is_refused() {
    for name in ["a\nb", "\u{1b}[31m", "a\u{2028}b", &"x".repeat(NAME_MAX + 1)] {
        let mut pair = Pair::new(PAYLOAD_MAX);
        pair.peer.say(&hello(VERSION_MAJOR, name));
        assert!(pair.receive().unwrap_err().contains("name"));
        assert!(pair.end().starts_with("Goodbye"));
    }
    let mut pair = Pair::new(PAYLOAD_MAX);
    pair.peer.say(&hello(VERSION_MAJOR, &"x".repeat(NAME_MAX)));
    assert_eq!(pair.receive(), Ok(Received::Messages));
}

#[test]
fn nobody_may_call_itself_what_a_client_without_a_name_is_called() {
    for peer in [Peer::Process(4242), Peer::Connection(7)] {
        let mut pair = Pair::new(PAYLOAD_MAX);
        pair.peer.say(&hello(VERSION_MAJOR, &peer.to_string()));
        assert!(pair.receive().unwrap_err().contains("without a name"));
        assert!(pair.end().starts_with("Goodbye"));
    }
    for name in ["process", "process x", "the process 7", "connection-7", "Process 7"] {
        assert!(!Peer::may_be_called(name), "{name}");
    }
}

#[test]
fn the_process_at_the_other_end_is_known() {
    assert_eq!(Pair::new(PAYLOAD_MAX).connection.process(), Some(std::process::id()));
}

#[test]
fn half_a_hello_is_told_from_silence_and_from_a_greeting() {
    let mut pair = Pair::new(PAYLOAD_MAX);
    pair.peer.say(&hello(VERSION_MAJOR, "cut off")[..20]);
    assert_eq!(pair.receive(), Ok(Received::Messages));
    assert!(pair.connection.is_mid_frame() && !pair.connection.is_greeted());
    pair.peer.socket.shutdown(std::net::Shutdown::Both).unwrap();
    let result = pair.connection.receive(&mut |_, _| Room::Take, &mut |_| panic!("no request"));
    assert_eq!(result.unwrap(), Received::Ended);
    assert!(pair.connection.is_mid_frame() && !pair.connection.is_greeted());
}

#[test]
fn whoever_breaks_the_protocol_is_told_how_and_nothing_more_is_read() {
    let breaches: [(&str, Vec<u8>); 6] = [
        ("second hello", hello(VERSION_MAJOR, "again")),
        ("payload with a message", frame(&show(1), b"surprise")),
        ("payload with a message", frame(&show(1), &vec![0; INLINE_PAYLOAD_MAX + 1])),
        ("malformed header", b"\x04\0\0\0\0\0\0\0\xff\xff\xff\xff".to_vec()),
        ("header of 65535 bytes", b"\xff\xff\0\0\0\0\0\0".to_vec()),
        ("header of 0 bytes", vec![0; 8]),
    ];
    for (how, breach) in breaches {
        let mut pair = Pair::greeted(PAYLOAD_MAX);
        pair.peer.say(&frame(&submit(1), b"before"));
        pair.peer.say(&breach);
        let error = pair.receive().unwrap_err();
        assert!(error.contains("protocol violation") && error.contains(how), "{error}");
        assert_eq!(pair.requests, [submitted(1, b"before")]);
        assert_eq!(pair.connection.client(), "tester", "what came before is handled as that client's");
        pair.peer.say(&frame(&submit(2), b"after"));
        assert_eq!(pair.receive(), Ok(Received::Ended));
        assert_eq!(pair.requests.len(), 1);
        let heard = pair.end();
        assert!(heard.starts_with("Goodbye") && heard.contains(how), "{heard}");
    }
}

#[test]
fn a_large_payload_is_granted_before_it_is_read() {
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    let payload = vec![7; 500_000];
    let bytes = frame(&submit(1), &payload);
    pair.peer.say(&bytes[..1000]);
    assert_eq!(pair.receive(), Ok(Received::Messages));
    assert_eq!((pair.asked.as_slice(), pair.connection.coming()), ([500_000].as_slice(), Some(500_000)));
    assert!(pair.connection.arrived() > 900 && pair.connection.arrived() < 1000);
    assert!(pair.requests.is_empty() && pair.connection.is_mid_frame());
    pair.pump(&bytes[1000..]);
    assert_eq!(pair.requests, [submitted(1, &payload)]);
    assert_eq!((pair.asked.len(), pair.connection.coming(), pair.connection.arrived()), (1, None, 0));
}

#[test]
fn a_large_payload_that_is_there_at_once_is_asked_about_all_the_same() {
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    let payload = vec![7; INLINE_PAYLOAD_MAX + 1];
    pair.peer.say(&frame(&submit(1), &payload));
    assert_eq!(pair.receive(), Ok(Received::Messages));
    assert_eq!(pair.requests, [submitted(1, &payload)]);
    assert_eq!((pair.asked.as_slice(), pair.connection.coming()), ([payload.len()].as_slice(), None));
}

#[test]
fn a_small_payload_needs_no_grant() {
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    pair.room = 0;
    pair.peer.say(&frame(&submit(1), &[7; INLINE_PAYLOAD_MAX]));
    assert_eq!(pair.receive(), Ok(Received::Messages));
    assert_eq!(pair.requests, [submitted(1, &[7; INLINE_PAYLOAD_MAX])]);
    assert!(pair.asked.is_empty());
}

#[test]
fn a_payload_without_room_is_skipped_and_the_next_request_is_whole() {
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    pair.room = 100_000;
    let mut bytes = frame(&submit(1), &vec![1; 900_000]);
    bytes.extend(frame(&submit(2), &vec![2; 90_000]));
    bytes.extend(frame(&submit(3), b"small"));
    pair.pump(&bytes);
    let expected =
        [Request::NoRoom { ticket: 1, length: 900_000 }, submitted(2, &[2; 90_000]), submitted(3, b"small")];
    assert_eq!(pair.requests, expected);
    assert_eq!((pair.asked.as_slice(), pair.connection.coming()), ([900_000, 90_000].as_slice(), None));
}

#[test]
fn a_payload_that_room_may_come_for_is_left_in_the_socket_until_then() {
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    (pair.room, pair.otherwise) = (0, Room::Wait);
    let payload = vec![1; 500_000];
    let bytes = [frame(&submit(1), &payload), frame(&submit(2), b"small")].concat();
    pair.peer.say(&bytes[..100_000]);
    for _ in 0..3 {
        assert_eq!(pair.receive(), Ok(Received::NoRoom));
        assert!(pair.connection.waits_for_room() && pair.connection.arrived() == 0);
    }
    assert_eq!((pair.asked.as_slice(), pair.requests.len()), ([500_000; 3].as_slice(), 0));
    pair.room = usize::MAX;
    pair.pump(&bytes[100_000..]);
    assert!(!pair.connection.waits_for_room());
    assert_eq!(pair.requests, [submitted(1, &payload), submitted(2, b"small")]);
}

#[test]
fn a_payload_that_waits_for_room_can_be_refused_later() {
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    (pair.room, pair.otherwise) = (0, Room::Wait);
    let bytes = [frame(&submit(1), &vec![1; 500_000]), frame(&submit(2), b"small")].concat();
    pair.peer.say(&bytes[..100_000]);
    assert_eq!(pair.receive(), Ok(Received::NoRoom));
    pair.otherwise = Room::Refuse;
    pair.pump(&bytes[100_000..]);
    assert_eq!(pair.requests, [Request::NoRoom { ticket: 1, length: 500_000 }, submitted(2, b"small")]);
}

#[test]
fn a_payload_that_is_given_up_in_the_middle_is_let_go_and_its_rest_skipped() {
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    let bytes = [frame(&submit(1), &vec![1; 500_000]), frame(&submit(2), b"small")].concat();
    pair.peer.say(&bytes[..100_000]);
    while pair.receive() == Ok(Received::Messages) {}
    assert!(pair.connection.arrived() > 99_000);
    let refused = pair.connection.give_up_payload();
    assert_eq!(refused, Some(Request::NoRoom { ticket: 1, length: 500_000 }));
    assert_eq!((pair.connection.arrived(), pair.connection.give_up_payload()), (0, None));
    pair.pump(&bytes[100_000..]);
    assert_eq!(pair.requests, [submitted(2, b"small")]);
}

#[test]
fn who_is_cut_off_hears_the_end_of_what_is_under_way_and_why() {
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    let answer = |ticket| ToClient::Answer { ticket };
    for ticket in 1..=3 {
        pair.connection.send(&answer(ticket), &Bytes::from(vec![7; 1_000_000])).unwrap();
    }
    assert_eq!(pair.connection.flush().unwrap(), Flushed::Blocked);
    pair.connection.cut_off("too slow");
    assert!(pair.connection.held() < 1_001_000);
    let heard = std::thread::scope(|scope| {
        let Pair { connection, peer, .. } = &mut pair;
        let reader =
            scope.spawn(|| [peer.hear(), peer.hear(), peer.hear()].map(|heard| heard.map(|it| it.0)));
        while !connection.is_finished() {
            let _ = connection.flush().unwrap();
        }
        let _ = connection.socket().shutdown(std::net::Shutdown::Write);
        reader.join().unwrap()
    });
    let [first, second, third] = heard;
    assert!(first.unwrap().starts_with("Answer { ticket: 1"));
    assert!(second.unwrap().contains("too slow"));
    assert_eq!(third, None);
}

#[test]
fn a_payload_over_the_limit_is_refused_when_it_is_announced_and_skipped() {
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    let mut bytes = frame(&submit(1), &vec![1; PAYLOAD_MAX + 1]);
    bytes.extend(frame(&submit(2), b"small"));
    pair.peer.say(&bytes[..100]);
    assert_eq!(pair.receive(), Ok(Received::Messages));
    assert_eq!(pair.requests, [Request::TooLarge { ticket: 1, length: PAYLOAD_MAX + 1 }]);
    pair.pump(&bytes[100..]);
    assert_eq!(pair.requests[1..], [submitted(2, b"small")]);
    assert!(pair.asked.is_empty());
}

#[test]
fn the_longest_payload_that_can_be_claimed_is_refused_like_any_other() {
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    let mut bytes = frame(&submit(1), b"");
    bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    pair.peer.say(&bytes);
    assert_eq!(pair.receive(), Ok(Received::Messages));
    assert_eq!(pair.requests, [Request::TooLarge { ticket: 1, length: u32::MAX as usize }]);
    assert!(pair.connection.is_mid_frame());
}

#[test]
fn a_limit_below_the_size_of_small_payloads_holds_too() {
    let mut pair = Pair::greeted(10);
    pair.peer.say(&frame(&submit(1), &[1; 11]));
    pair.peer.say(&frame(&submit(2), &[2; 10]));
    assert_eq!(pair.receive(), Ok(Received::Messages));
    assert_eq!(pair.requests, [Request::TooLarge { ticket: 1, length: 11 }, submitted(2, &[2; 10])]);
}

#[test]
fn a_thousand_pipelined_requests_come_in_order_and_few_at_a_time() {
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    let bytes: Vec<u8> = (0..1000).flat_map(|ticket| frame(&submit(ticket), b"")).collect();
    pair.peer.say(&bytes);
    loop {
        let before = pair.requests.len();
        let received = pair.receive().unwrap();
        let count = pair.requests.len() - before;
        assert!(count <= REQUESTS_PER_CALL_MAX);
        match received {
            Received::More => assert_eq!(count, REQUESTS_PER_CALL_MAX),
            Received::Messages => {}
            Received::WouldBlock | Received::Ended | Received::NoRoom => break,
        }
    }
    assert_eq!(tickets(&pair.requests), (0..1000).collect::<Vec<_>>());
}

#[test]
fn requests_with_long_answers_come_one_at_a_time_and_hold_up_what_follows() {
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    let requests = [submit(1), show(2), show(3), submit(4), submit(5)];
    pair.peer.say(&requests.iter().flat_map(|request| frame(request, b"")).collect::<Vec<u8>>());
    let counts = [(); 3].map(|()| {
        assert!(pair.receive().is_ok());
        std::mem::take(&mut pair.requests).len()
    });
    assert_eq!(counts, [2, 1, 2]);
}

#[test]
fn a_client_that_is_done_asking_still_gets_its_answers() {
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    pair.peer.say(&frame(&show(1), b""));
    pair.peer.socket.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(pair.receive(), Ok(Received::More));
    assert_eq!(pair.receive(), Ok(Received::Ended));
    pair.connection.send(&ToClient::Answer { ticket: 1 }, &Bytes::from_static(b"{}")).unwrap();
    pair.connection.close_after_flush();
    assert!(!pair.connection.is_finished());
    assert_eq!(pair.end(), "Answer { ticket: 1 }");
}

#[test]
fn what_a_client_does_not_read_is_counted_until_it_reads() {
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    let output = Bytes::from(vec![3; 600_000]);
    for ticket in 0..4 {
        pair.connection.send(&ToClient::Answer { ticket }, &output).unwrap();
    }
    assert_eq!(pair.connection.flush().unwrap(), Flushed::Blocked);
    let unsent = pair.connection.unsent();
    assert!(unsent > 2_000_000, "the socket cannot hold that much: {unsent}");
    let Pair { connection, peer, .. } = &mut pair;
    let heard = std::thread::scope(|scope| {
        let hearing = scope.spawn(|| [(); 4].map(|()| peer.hear().unwrap()));
        while connection.flush().unwrap() != Flushed::Done {
            wait(connection.socket(), PollFlags::OUT);
        }
        hearing.join().unwrap()
    });
    for (ticket, answer) in heard.into_iter().enumerate() {
        assert_eq!(answer, (format!("Answer {{ ticket: {ticket} }}"), output.len()));
    }
    assert_eq!(pair.connection.unsent(), 0);
}

#[test]
fn one_flush_writes_no_more_than_its_share() {
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    let Pair { connection, peer, .. } = &mut pair;
    rustix::net::sockopt::set_socket_send_buffer_size(connection.socket(), 8 << 20).unwrap();
    connection.send(&ToClient::Answer { ticket: 1 }, &Bytes::from(vec![3; 3 * FLUSH_MAX])).unwrap();
    std::thread::scope(|scope| {
        let hearing = scope.spawn(|| peer.hear());
        loop {
            let before = connection.unsent();
            let flushed = connection.flush().unwrap();
            assert!(before - connection.unsent() <= FLUSH_MAX);
            match flushed {
                Flushed::Done => break,
                Flushed::More | Flushed::Refused => {}
                Flushed::Blocked => wait(connection.socket(), PollFlags::OUT),
                Flushed::Closed => panic!("somebody reads"),
            }
        }
        assert!(hearing.join().unwrap().is_some());
    });
}

#[test]
fn what_a_client_asked_before_it_went_away_is_received_though_it_cannot_be_answered() {
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    for ticket in 1..=3 {
        pair.peer.say(&frame(&ToSupervisor::Cancel { ticket, job: "j" }, b""));
    }
    // As if it was closed, whoever else has a copy of the descriptor.
    pair.peer.socket.shutdown(std::net::Shutdown::Both).unwrap();
    pair.connection.send(&ToClient::Answer { ticket: 9 }, &Bytes::new()).unwrap();
    assert_eq!(pair.connection.flush().unwrap(), Flushed::Closed);
    assert_eq!(pair.connection.unsent(), 0);
    assert!(!pair.connection.is_finished(), "the requests are still in the socket");
    let mut asked = 0;
    let received = |connection: &mut Connection, asked: &mut usize| {
        connection.receive(&mut |_, _| Room::Take, &mut |_| *asked += 1).unwrap()
    };
    while received(&mut pair.connection, &mut asked) == Received::More {
        pair.connection.send(&ToClient::Answer { ticket: 9 }, &Bytes::new()).unwrap();
        assert_eq!(pair.connection.unsent(), 0, "nobody would read it");
    }
    assert_eq!(asked, 3);
    assert!(pair.connection.is_finished());
}

#[test]
fn descriptors_that_a_client_sends_along_are_closed_by_the_kernel() {
    let mut pair = Pair::new(PAYLOAD_MAX);
    let (mut kept, sent) = UnixStream::pair().unwrap();
    let descriptors = [sent.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let bytes = hello(VERSION_MAJOR, "generous");
    sendmsg(&pair.peer.socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::empty()).unwrap();
    drop(sent);
    assert_eq!(pair.receive(), Ok(Received::Messages));
    assert!(pair.connection.is_greeted());
    // The end of this stream comes when nobody holds the other end any more.
    kept.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(kept.read(&mut [0]).unwrap(), 0);
}

#[test]
fn nothing_follows_a_goodbye() {
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    pair.connection.goodbye(OutcomeCode::Overloaded, &"ä".repeat(MESSAGE_MAX));
    pair.connection.goodbye(OutcomeCode::Overloaded, "again");
    pair.connection.send(&ToClient::Answer { ticket: 1 }, &Bytes::new()).unwrap();
    let heard = pair.end();
    assert_eq!(heard.matches("Goodbye").count(), 1);
    assert!(!heard.contains("Answer"));
}

#[test]
fn an_answer_that_cannot_travel_leaves_the_connection_as_it_was() {
    let mut pair = Pair::greeted(PAYLOAD_MAX);
    let message = "x".repeat(HEADER_MAX).into();
    let rejected =
        ToClient::Rejected { ticket: 1, code: OutcomeCode::BadRequest, message, retry_after_ms: None };
    assert!(pair.connection.send(&rejected, &Bytes::new()).is_err());
    pair.connection.send(&ToClient::Answer { ticket: 2 }, &Bytes::new()).unwrap();
    pair.flush();
    assert_eq!(pair.peer.hear(), Some(("Answer { ticket: 2 }".to_owned(), 0)));
}
