//! Documents, events and endings over HTTP/2, where one connection can ask for many at once.

use super::peer::*;
use offload_http::limits::STREAMS_MAX;
use offload_supervisor::limits::SUBSCRIBERS_MAX;
use rustix::process::Signal;
use tests::chaos::process::resident_bytes;
use tests::harness::{PATIENCE, until};
use tests::http::HttpDaemon;

/// Lists and figures are charged to nobody, so one connection may not have as many as it likes.
#[test]
fn documents_are_written_as_the_client_reads_them() {
    const REQUESTS: u32 = 60;
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut peer = Peer::silent(&http);
    peer.write(PREFACE);
    let no_window = [&4_u16.to_be_bytes()[..], &0_u32.to_be_bytes()].concat();
    peer.write(&frame(SETTINGS, 0, 0, &no_window));
    let streams = || (0..REQUESTS).map(|number| 2 * number + 1);
    let request = peer.request("GET", "/metrics", &[]);
    streams().for_each(|stream| peer.write(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &request)));
    let (mut answered, mut looks_without) = (0, 0);
    while looks_without < 100 {
        peer.write(&frame(PING, 0, 0, &[0; 8]));
        looks_without += 1;
        loop {
            match peer.hear() {
                Heard::PingAck => break,
                Heard::Response(_) => {
                    assert_eq!(peer.block, OK);
                    (answered, looks_without) = (answered + 1, 0);
                }
                other => panic!("{other:?} after {answered} answers"),
            }
        }
    }
    assert!((1..50).contains(&answered), "{answered} of {REQUESTS}");
    let window = &(1_u32 << 20).to_be_bytes();
    peer.write(&frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 28).to_be_bytes()));
    streams().for_each(|stream| peer.write(&frame(WINDOW_UPDATE, 0, stream, window)));
    while answered < REQUESTS {
        match peer.hear() {
            Heard::Response(_) => answered += 1,
            other => panic!("{other:?} after {answered} answers"),
        }
        assert_eq!(peer.block, OK);
    }
}

/// An event has all that is known of a job, its output included.
#[test]
fn events_of_jobs_are_written_as_the_client_reads_them() {
    const CONNECTIONS: usize = 8;
    const STREAMS: u32 = 60;
    const OUTPUT: usize = 60_000;
    let http = HttpDaemon::start(&["--workers", "1"]);
    let output = vec![b'x'; OUTPUT];
    let submitted = http.call("echo", &[("prefer", "respond-async")], output).json();
    let job = submitted["job"].as_str().expect("a job");
    assert_eq!(http.ask("GET", &format!("/v1/jobs/{job}?wait=60"), &[], b"").status, 200);
    let memory = || resident_bytes(http.daemon.pid());
    let before = memory();
    let streams = || (0..STREAMS).map(|number| 2 * number + 1);
    let mut peers: Vec<Peer> = (0..CONNECTIONS)
        .map(|_| {
            let mut peer = Peer::silent(&http);
            peer.write(PREFACE);
            peer.write(&setting(4, 0));
            let request = peer.request("GET", &format!("/v1/jobs/{job}/events"), &[]);
            streams().for_each(|it| peer.write(&frame(HEADERS, END_HEADERS | END_STREAM, it, &request)));
            peer
        })
        .collect();
    for peer in &mut peers {
        streams().for_each(|_| assert!(matches!(peer.hear(), Heard::Response(_))));
        for _ in 0..100 {
            peer.write(&frame(PING, 0, 0, &[0; 8]));
            assert_eq!(peer.hear(), Heard::PingAck);
        }
    }
    let grown = memory().saturating_sub(before);
    assert!(grown < (CONNECTIONS * STREAMS as usize * OUTPUT / 3) as u64, "{grown} bytes more");
    // Who reads, gets them all.
    let peer = &mut peers[0];
    peer.write(&frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 28).to_be_bytes()));
    streams().for_each(|it| peer.write(&frame(WINDOW_UPDATE, 0, it, &(1_u32 << 20).to_be_bytes())));
    let mut ended = 0;
    while ended < STREAMS {
        let (kind, flags, ..) = peer.next_frame().expect("the connection is open");
        assert!(matches!(kind, DATA | WINDOW_UPDATE | SETTINGS), "{kind}");
        ended += u32::from(kind == DATA && flags & END_STREAM != 0);
    }
}

#[test]
fn a_client_that_takes_no_note_of_the_end_does_not_hold_it_up() {
    let http = HttpDaemon::start(&["--workers", "1", "--drain-timeout", "1h"]);
    let mut silent = Peer::greeted(&http);
    let mut restless = Peer::greeted(&http);
    let mut waiting = Peer::greeted(&http);
    for peer in [&mut silent, &mut restless] {
        let request = peer.request("GET", "/healthz", &[]);
        peer.write(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &request));
        assert_eq!(peer.hear(), Heard::Response(1));
    }
    let request = waiting.request("POST", "/v1/tasks/sleep", &[]);
    waiting.write(&frame(HEADERS, END_HEADERS, 1, &request));
    waiting.write(&frame(DATA, END_STREAM, 1, b"3000"));
    http.daemon.worker_running("sleep");
    http.daemon.signal(Signal::TERM);
    // None of them answers the PING that comes with the GOAWAY.
    assert_eq!(silent.hear(), Heard::GoAway(NO_ERROR));
    // What it sends gives it no more time.
    let mut heard = Heard::PingAck;
    while heard != Heard::End {
        restless.write(&frame(PING, 0, 0, &[0; 8]));
        heard = restless.hear();
    }
    let heard = std::iter::repeat_with(|| waiting.hear()).find(|it| !matches!(it, Heard::GoAway(_)));
    assert_eq!(heard, Some(Heard::Response(1)), "what is under way is waited for");
    assert!(tests::harness::wait_for_end(http.daemon.pid(), PATIENCE), "it has not ended");
}

/// HTTP/2 has taken the whole answer, and the client has not made room for all of it.
#[test]
fn an_answer_that_is_not_read_yet_is_not_cut_off_by_the_end() {
    let http = HttpDaemon::start(&["--workers", "1", "--drain-timeout", "1h"]);
    let mut reading = Peer::silent(&http);
    reading.write(PREFACE);
    reading.write(&setting(4, 1));
    let mut silent = Peer::greeted(&http);
    let request = reading.request("POST", "/v1/tasks/echo", &[]);
    reading.write(&frame(HEADERS, END_HEADERS, 1, &request));
    reading.write(&frame(DATA, END_STREAM, 1, b"hello"));
    assert_eq!(reading.hear(), Heard::Response(1));
    let (kind, _, _, begin) = reading.next_frame().expect("one byte of the answer");
    assert_eq!((kind, &*begin), (DATA, &b"h"[..]));
    http.daemon.signal(Signal::TERM);
    // Meanwhile a client whom nothing holds has had its time.
    while silent.hear() != Heard::End {}
    reading.write(&frame(WINDOW_UPDATE, 0, 1, &100_u32.to_be_bytes()));
    let mut rest = Vec::new();
    while rest != b"ello" {
        let (kind, _, _, bytes) = reading.next_frame().expect("the rest of the answer");
        if kind == DATA {
            rest.extend(bytes);
        }
    }
    assert!(tests::harness::wait_for_end(http.daemon.pid(), PATIENCE), "it has not ended");
}

/// It was accepted, so it is told where it is, even if its client waits for it too often already. Others wait all the same.
#[test]
fn whoever_may_not_wait_for_a_job_is_told_where_it_is() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let submit =
        |prefer: &str| http.call("sleep", &[("idempotency-key", "k"), ("prefer", prefer)], "3600000");
    let of_another = |path: &str| http.ask("GET", path, &[("offload-client", "another")], b"").status;
    assert_eq!(submit("respond-async").status, 202);
    let jobs = http.ask("GET", "/v1/jobs", &[], b"").json();
    let path = format!("/v1/jobs/{}?wait=60", jobs["rows"][0]["job"].as_str().expect("its id"));
    // One more connection than may wait.
    let waiting: Vec<Peer> = (0..=SUBSCRIBERS_MAX / STREAMS_MAX as usize)
        .map(|_| {
            let mut peer = Peer::greeted(&http);
            let request = peer.request("GET", &path, &[]);
            let streams = (0..STREAMS_MAX).map(|number| 2 * number + 1);
            streams.for_each(|it| peer.write(&frame(HEADERS, END_HEADERS | END_STREAM, it, &request)));
            peer
        })
        .collect();
    // One client may wait as often as it leaves to others.
    let refused = waiting.len() * STREAMS_MAX as usize - SUBSCRIBERS_MAX / 2;
    let refused = format!("offload_http_requests_total{{status=\"503\"}} {refused}\n");
    until("as many wait as may, and the others are refused", || {
        http.ask("GET", "/metrics", &[], b"").text().contains(&refused).then_some(())
    });
    let told = submit("wait=60");
    assert_eq!(
        (told.status, told.field("preference-applied")),
        (202, Some("respond-async")),
        "nobody has waited"
    );
    assert_eq!(of_another(&path.replace("wait=60", "wait=1")), 200);
    drop(waiting);
}

/// A page of a thousand jobs takes some milliseconds, and all that came at once were written in one turn.
#[test]
fn between_long_documents_the_loop_does_other_things() {
    const REQUESTS: u32 = 60;
    let http = HttpDaemon::start(&["--workers", "1"]);
    let jobs = http.daemon.run(&["map", "echo", "--range", "1-1000"]);
    assert_eq!(jobs.ok().text().lines().count(), 1000);
    let turns = || http.daemon.status()["event_loop"]["iterations"].as_u64().expect("a number");
    let mut peer = Peer::greeted(&http);
    // It reads as fast as they come.
    peer.write(&setting(4, 1 << 24));
    peer.write(&frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 28).to_be_bytes()));
    let request = peer.request("GET", "/v1/jobs", &[]);
    let streams = (0..REQUESTS).map(|number| 2 * number + 1);
    let all: Vec<u8> =
        streams.flat_map(|stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &request)).collect();
    let before = turns();
    peer.write(&all);
    for _ in 0..REQUESTS {
        assert!(matches!(peer.hear(), Heard::Response(_)));
    }
    let turns = turns() - before;
    assert!(turns >= u64::from(REQUESTS) / 2, "{REQUESTS} documents in {turns} turns");
}

/// Over HTTP/1 more is refused, too.
#[test]
fn fields_behind_a_body_have_their_bounds() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let many = |count: usize| fields(&vec![("x-sum", "1"); count]);
    // A name of one byte, and a value of 600.
    let long = |count: usize| [&[0, 1, b'x', 0x7f, 0xd9, 0x03][..], &[b'y'; 600]].concat().repeat(count);
    for (trailers, is_taken) in [(many(8), true), (many(9), false), (long(6), true), (long(7), false)] {
        for body in [&frame(DATA, 0, 1, b"text")[..], &[]] {
            for length in [None, Some(if body.is_empty() { "0" } else { "4" })] {
                let before = http.daemon.status()["jobs"]["accepted"].clone();
                let mut peer = Peer::greeted(&http);
                let length: Vec<_> = length.map(|length| ("content-length", length)).into_iter().collect();
                let head = frame(HEADERS, END_HEADERS, 1, &peer.request("POST", "/v1/tasks/echo", &length));
                let trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, &trailers);
                peer.write(&[&head, body, &trailers].concat());
                let what = format!("{} {length:?} {}", body.len(), trailers.len());
                assert_eq!(peer.hear(), Heard::Response(1), "{what}");
                assert_eq!(peer.block == OK, is_taken, "{what}");
                let is_accepted = http.daemon.status()["jobs"]["accepted"] != before;
                assert_eq!(is_accepted, is_taken, "{what}");
            }
        }
    }
}
