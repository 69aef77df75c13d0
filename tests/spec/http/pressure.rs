//! Too many, too much, too slow.

use std::io::Write;
use std::time::{Duration, Instant};
use tests::harness::until;
use tests::http::{Answer, HttpConnection, HttpDaemon};

#[test]
fn two_thousand_slow_heads_keep_nobody_from_being_answered() {
    let http = HttpDaemon::start(&["--workers", "1", "--http-connections", "200"]);
    let mut slow: Vec<HttpConnection> = Vec::new();
    for number in 0..2000 {
        let mut connection = http.connect();
        let _ = connection.try_write(b"POST /v1/tasks/echo HTTP/1.1\r\nHost: localhost\r\nX-Slow: ");
        slow.push(connection);
        if number % 50 == 0 {
            let answer = http.call("echo", &[], number.to_string());
            assert_eq!((answer.status, answer.text()), (200, number.to_string()), "with {number} slow ones");
        }
    }
    let open = tests::harness::descriptors_of(http.daemon.pid());
    assert!(open < 300, "{open} descriptors for at most 200 connections");
    drop(slow);
    assert_eq!(http.call("echo", &[], "after").status, 200);
}

#[test]
fn when_every_connection_is_at_work_another_one_is_told_so() {
    let http = HttpDaemon::start(&["--workers", "1", "--http-connections", "4"]);
    let mut busy: Vec<HttpConnection> = (0..4).map(|_| http.connect()).collect();
    busy.iter_mut().for_each(|connection| connection.send("POST", "/v1/tasks/sleep", &[], b"3600000"));
    until("all are accepted", || (http.daemon.status()["jobs"]["accepted"] == 4).then_some(()));
    let answer = http.connect().answer().expect("an answer without a question");
    assert_eq!(answer.problem(), (503, "overloaded".to_owned()));
    busy.pop();
    until("there is room again", || {
        let mut connection = http.connect();
        let request = connection.head("GET", "/healthz", &[]);
        connection.try_write(request.as_bytes()).ok()?;
        connection.answer().filter(|answer| answer.status == 200).map(drop)
    });
}

/// With an open route not even a token is needed for that.
#[test]
fn a_client_that_keeps_its_connections_at_work_does_not_take_the_last_ones() {
    let route = ["--http-route", "POST /open sleep auth=none"];
    let http = HttpDaemon::start(&[&["--workers", "1", "--http-connections", "16"][..], &route].concat());
    let mut busy: Vec<HttpConnection> = (0..14).map(|_| http.connect()).collect();
    busy.iter_mut().for_each(|connection| connection.send("POST", "/open", &[], b"3600000"));
    until("all are accepted", || (http.daemon.status()["jobs"]["accepted"] == 14).then_some(()));
    let refused = http.connect().answer().expect("an answer without a question");
    assert_eq!(refused.problem(), (503, "overloaded".to_owned()));
    for _ in 0..3 {
        let mut other = http.connect_from([127, 0, 0, 2]);
        other.send("GET", "/readyz", &[], b"");
        assert_eq!(other.answer().map(|answer| answer.status), Some(200));
    }
    busy.pop();
    until("it has fewer, and gets another one", || {
        let mut connection = http.connect();
        let request = connection.head("GET", "/healthz", &[]);
        connection.try_write(request.as_bytes()).ok()?;
        connection.answer().filter(|answer| answer.status == 200).map(drop)
    });
}

#[test]
fn a_body_for_which_there_is_no_room_is_not_read_and_is_refused_in_the_end() {
    let http = HttpDaemon::start(&["--workers", "1", "--max-bytes", "8MiB", "--max-payload", "4MiB"]);
    let mut holding = http.connect();
    holding.send("POST", "/v1/tasks/sleep", &[], b"3600000");
    until("the worker is busy", || (http.daemon.status()["jobs"]["running"] == 1).then_some(()));
    let body = vec![b' '; 4 << 20];
    let mut senders: Vec<_> = (0..6).map(|_| http.connect()).collect();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let (body, all) = (&body, senders.iter_mut());
        let asked: Vec<_> = all
            .map(|connection| {
                scope.spawn(move || {
                    let length = body.len().to_string();
                    let fields = [("Content-Length", length.as_str()), ("Offload-Deadline", "20s")];
                    let head = connection.head("POST", "/v1/tasks/echo", &fields);
                    connection.write(head.as_bytes());
                    let _ = connection.try_write(body);
                    connection.answer().map_or(0, |answer| answer.status)
                })
            })
            .collect();
        until("memory is bounded meanwhile", || {
            let bytes = http.daemon.status()["queue"]["bytes"].as_u64().unwrap_or(0);
            assert!(bytes <= (8 << 20) + (1 << 20), "{bytes} bytes are held");
            asked.iter().all(|thread| thread.is_finished()).then_some(())
        });
        asked.into_iter().map(|thread| thread.join().expect("a client")).collect()
    });
    assert!(statuses.iter().any(|status| [429, 503].contains(status)), "{statuses:?}");
    assert!(statuses.iter().all(|status| [0, 429, 503, 504].contains(status)), "{statuses:?}");
}

#[test]
fn an_answer_that_nobody_reads_is_held_for_a_while_and_then_given_up() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut connection = http.connect();
    // Before its answer can begin to wait, so what passes from here is at least the time that it is held.
    let asked = Instant::now();
    connection.send("POST", "/v1/tasks/echo", &[], &vec![b'x'; 30 << 20]);
    until("it is answered", || (http.daemon.status()["jobs"]["ok"] == 1).then_some(()));
    until("what is held for it is released", || {
        (http.daemon.status()["queue"]["bytes"].as_u64() == Some(0)).then_some(())
    });
    let held = asked.elapsed();
    assert!(held >= Duration::from_secs(9), "a client that is slow for {held:?} is not given up");
    let rest = connection.ends();
    assert!(rest.len() < 30 << 20, "it was cut off, and {} bytes came", rest.len());
    assert_eq!(http.call("echo", &[], "x").status, 200);
}

#[test]
fn a_streamed_output_counts_until_its_client_has_read_it() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let held = || http.daemon.status()["queue"]["bytes"].as_u64().expect("a number");
    for form in [("Offload-Stream", "true"), ("Accept", "text/event-stream")] {
        let mut connection = http.connect();
        connection.send("POST", "/v1/tasks/echo", &[form], &vec![b'x'; 30 << 20]);
        assert_eq!(connection.head_of_answer().expect("an answer").0, 200);
        until("the job has ended", || (http.daemon.status()["jobs"]["running"] == 0).then_some(()));
        assert_ne!(held(), 0, "{form:?}: what the sockets cannot hold is still here");
        drop(connection);
        until("what is held for it is released", || (held() == 0).then_some(()));
    }
}

#[test]
fn a_body_that_trickles_is_given_up() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut connection = http.connect();
    let head = connection.head("POST", "/v1/tasks/echo", &[("Content-Length", "1000000")]);
    connection.write(head.as_bytes());
    connection.write(b"x");
    let answer = connection.answer().expect("an answer");
    assert_eq!((answer.status, answer.field("connection")), (408, Some("close")), "{answer:?}");
    assert_eq!(connection.ends(), b"");
    assert_eq!(http.daemon.status()["queue"]["bytes"], 0);
}

#[test]
fn a_client_that_sends_thousands_of_requests_at_once_does_not_keep_the_loop() {
    const REQUESTS: usize = 20_000;
    let http = HttpDaemon::start(&["--workers", "1"]);
    let iterations = || http.daemon.status()["event_loop"]["iterations"].as_u64().expect("a count");
    let mut connection = http.connect();
    let request = connection.head("GET", "/healthz", &[]);
    let mut reader = connection.socket().try_clone().expect("a descriptor");
    let before = iterations();
    let came = std::thread::scope(|scope| {
        let last = connection.head("GET", "/healthz", &[("Connection", "close")]);
        let all = scope.spawn(move || {
            let mut answers = Vec::new();
            std::io::Read::read_to_end(&mut reader, &mut answers).map(|_| answers)
        });
        connection.write(&[request.repeat(REQUESTS - 1).into_bytes(), last.into_bytes()].concat());
        all.join().expect("a reader").expect("all answers, and the end")
    });
    let answers = came.windows(4).filter(|four| four == b"\nok\n").count();
    assert_eq!(answers, REQUESTS);
    let turns = iterations() - before;
    assert!(turns > REQUESTS as u64 / 64, "{REQUESTS} requests were handled in {turns} turns of the loop");
}

#[test]
fn a_body_beyond_all_bounds_is_refused_before_it_comes_or_when_it_is_too_much() {
    let http = HttpDaemon::start(&["--workers", "1", "--max-payload", "1MiB"]);
    let mut announced = http.connect();
    let head = announced.head("POST", "/v1/tasks/echo", &[("Content-Length", "10737418240")]);
    announced.write(head.as_bytes());
    let answer = announced.answer().expect("an answer");
    assert_eq!(answer.problem(), (413, "too_large".to_owned()));
    assert_eq!(answer.field("connection"), Some("close"), "so much is not read");
    assert_eq!(announced.ends(), b"");
    let mut endless = http.connect();
    let head = endless.head("POST", "/v1/tasks/echo", &[("Transfer-Encoding", "chunked")]);
    endless.write(head.as_bytes());
    let chunk = ["10000\r\n".as_bytes(), &[b'x'; 1 << 16], b"\r\n"].concat();
    // What comes behind the answer is thrown away for a while, so that the client can read that.
    let sent = std::iter::repeat_with(|| endless.try_write(&chunk)).take(48).take_while(Result::is_ok);
    assert!(sent.count() > 16, "as much as may be is read");
    let answer = endless.answer();
    let is_told = |answer: Answer| answer.status == 413 && answer.field("connection") == Some("close");
    assert!(answer.is_none_or(is_told));
    until("both are refused, and nothing is held", || {
        let status = http.daemon.status();
        (status["jobs"]["rejected"] == 2 && status["queue"]["bytes"] == 0).then_some(())
    });
}

/// Over loopback all have the same address. By not reading, 50 connections of somebody without a token had kept everybody else out.
#[test]
fn who_has_shown_no_token_and_reads_no_answers_gives_way_to_those_who_have() {
    const ATTACKERS: usize = 6;
    // The last one of eight places is not for an address that has seven: each newcomer needs one that gives way.
    let most = (ATTACKERS + 2).to_string();
    let http = HttpDaemon::start(&["--workers", "1", "--http-connections", &most]);
    let mut kept = http.connect();
    let ask = |connection: &mut HttpConnection| {
        connection.send("POST", "/v1/tasks/echo", &[], b"hello");
        connection.answer().map(|answer| answer.status)
    };
    assert_eq!(ask(&mut kept), Some(200));
    let preflight = "OPTIONS /v1/tasks/echo HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\
                     Access-Control-Request-Method: POST\r\n\r\n";
    // What is answered to everybody.
    let requests = ["GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", preflight].concat().repeat(1000);
    let attackers: Vec<HttpConnection> = (0..ATTACKERS).map(|_| http.connect()).collect();
    attackers.iter().for_each(|attacker| attacker.socket().set_nonblocking(true).unwrap());
    let (mut sent, mut looks_without_room) = ([0; ATTACKERS], 0);
    until("their answers wait to be read", || {
        looks_without_room += 1;
        for (attacker, sent) in attackers.iter().zip(&mut sent) {
            let mut socket = attacker.socket();
            if let Ok(count) = socket.write(&requests.as_bytes()[*sent..]) {
                (*sent, looks_without_room) = ((*sent + count) % requests.len(), 0);
            }
        }
        (looks_without_room > 500).then_some(())
    });
    for _ in 0..3 {
        assert_eq!(ask(&mut http.connect()), Some(200));
    }
    assert_eq!(ask(&mut kept), Some(200), "it is not the one that gives way");
}

/// All of its jobs start before anybody knows how long their outputs are, so that it holds more than all clients together may.
#[test]
fn small_jobs_are_done_while_a_client_does_not_read_outputs_that_fill_the_memory() {
    let http = HttpDaemon::start(&["--workers", "6", "--max-bytes", "32MiB", "--max-payload", "8MiB"]);
    let mut plain: Vec<u8> =
        (0..40_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    plain.resize(8_000_000, 0);
    let packed = http.call("gzip", &[("offload-client", "rude")], plain).body;
    let mut rude: Vec<HttpConnection> = (0..8).map(|_| http.connect()).collect();
    for connection in &mut rude {
        connection.send("POST", "/v1/tasks/gunzip", &[("offload-client", "rude")], &packed);
    }
    let is_full = || http.daemon.status()["queue"]["bytes"].as_u64() > Some(32 << 20);
    until("memory is full", || is_full().then_some(()));
    for _ in 0..3 {
        let answer = http.call("wordcount", &[("offload-client", "innocent")], "three small words");
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(is_full(), "it was done because there was room again");
    }
}
