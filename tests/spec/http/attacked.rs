//! What was broken once, by somebody who tried.

use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use tests::harness::{Daemon, descriptors_of, private_folder, read_once, run_offload, until};
use tests::http::{HttpConnection, HttpDaemon};

#[test]
fn a_file_that_is_no_socket_is_not_replaced_by_one() {
    let folder = private_folder();
    let (precious, link) = (folder.path().join("data.txt"), folder.path().join("link"));
    std::fs::write(&precious, "precious").unwrap();
    std::os::unix::fs::symlink(folder.path().join("nowhere"), &link).unwrap();
    for path in [&precious, &link] {
        let socket = folder.path().join("o.sock");
        let address = format!("unix:{}", path.display());
        let refused = run_offload(&["serve", "--socket", socket.to_str().expect("ours"), "--http", &address]);
        assert_eq!(refused.code, 2, "{refused:?}");
    }
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
    assert!(link.is_symlink());
}

#[test]
fn of_two_supervisors_one_has_the_unix_socket_and_it_is_taken_over_after_a_crash() {
    let folder = private_folder();
    let path = folder.path().join("h.sock");
    let address = format!("unix:{}", path.display());
    let first = Daemon::start(&["--workers", "1", "--http", &address]);
    until("it listens", || path.exists().then_some(()));
    let socket = folder.path().join("other.sock");
    let second = run_offload(&["serve", "--socket", socket.to_str().expect("ours"), "--http", &address]);
    assert_eq!(second.code, 2, "{second:?}");
    tests::harness::signal(first.pid(), rustix::process::Signal::KILL);
    until("it is gone", || std::os::unix::net::UnixStream::connect(&path).err().map(drop));
    drop(first);
    let third = Daemon::start(&["--workers", "1", "--http", &address]);
    until("it listens", || std::os::unix::net::UnixStream::connect(&path).ok().map(drop));
    drop(third);
}

#[test]
fn uploads_that_do_not_all_fit_come_one_after_another() {
    let http = HttpDaemon::start(&["--workers", "1", "--max-bytes", "8MiB", "--max-payload", "4MiB"]);
    let body = vec![b'x'; 3 << 20];
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let sent: Vec<_> = (0..6)
            .map(|number| {
                let (http, body) = (&http, &body);
                let client = format!("client-{number}");
                scope.spawn(move || http.call("sha256", &[("Offload-Client", &client)], body).status)
            })
            .collect();
        sent.into_iter().map(|thread| thread.join().expect("a client")).collect()
    });
    assert_eq!(statuses, [200; 6]);
    assert_eq!(http.daemon.status()["queue"]["bytes"], 0);
}

#[test]
fn an_output_that_its_client_has_waited_for_is_not_kept() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let kept = || http.daemon.status()["kept"]["jobs"].as_u64().expect("a number");
    for (number, length) in [0_usize, 1, 300_000].into_iter().enumerate() {
        let answer = http.call("echo", &[("Prefer", "wait=60")], vec![b'x'; length]);
        assert_eq!((answer.status, answer.body.len()), (200, length));
        until("what was delivered is given up", || (kept() == 0).then_some(()));
        let job = answer.field("offload-job").expect("its id").to_owned();
        assert_eq!(http.ask("GET", &format!("/v1/jobs/{job}"), &[], b"").json()["state"], "ok", "{number}");
    }
    let later = http.call("echo", &[("Prefer", "respond-async")], "x");
    let place = later.field("location").expect("its place").to_owned();
    http.ask("GET", &format!("{place}?wait=60"), &[], b"");
    for _ in 0..3 {
        assert_eq!(
            http.ask("GET", &format!("{place}/output"), &[], b"").text(),
            "x",
            "a GET changes nothing"
        );
    }
    assert_eq!(http.ask("DELETE", &place, &[], b"").status, 200);
    until("what its client does not want any more is given up", || (kept() == 0).then_some(()));
}

#[test]
fn an_output_that_nobody_has_read_stays() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut connection = http.connect();
    let fields = [("Prefer", "wait=60"), ("Idempotency-Key", "once")];
    connection.send("POST", "/v1/tasks/echo", &fields, &vec![b'x'; 30 << 20]);
    assert_eq!(connection.head_of_answer().expect("an answer").0, 200);
    drop(connection);
    let again = http.call("echo", &fields, vec![b'x'; 30 << 20]);
    assert_eq!((again.status, again.body.len()), (200, 30 << 20));
    assert_eq!(http.daemon.status()["jobs"]["ok"], 1, "it was run once");
}

#[test]
fn who_goes_away_is_missed_even_if_it_has_sent_another_request() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut connection = http.connect();
    connection.send("POST", "/v1/tasks/sleep", &[], b"3600000");
    connection.send("GET", "/healthz", &[], b"");
    until("it runs", || (http.daemon.status()["jobs"]["running"] == 1).then_some(()));
    connection.socket().flush().expect("a socket");
    drop(connection);
    until("it is cancelled", || (http.daemon.status()["jobs"]["cancelled"] == 1).then_some(()));
}

#[test]
fn who_goes_away_is_missed_however_much_it_has_sent_ahead() {
    let http = HttpDaemon::start(&["--workers", "2"]);
    let ahead = |connection: &HttpConnection| connection.head("GET", "/healthz", &[]).repeat(1000);
    let mut gone = http.connect();
    gone.send("POST", "/v1/tasks/sleep", &[], b"3600000");
    gone.write(ahead(&gone).as_bytes());
    let mut full = http.connect();
    full.send("POST", "/v1/tasks/sleep", &[], b"3600000");
    until("both run", || (http.daemon.status()["jobs"]["running"] == 2).then_some(()));
    // As much as fits, so that its end does not get through.
    full.socket().set_nonblocking(true).expect("a socket");
    let requests = ahead(&full);
    while full.try_write(requests.as_bytes()).is_ok() {}
    drop((gone, full));
    until("both are cancelled", || (http.daemon.status()["jobs"]["cancelled"] == 2).then_some(()));
}

#[test]
fn who_sends_much_ahead_is_answered_and_who_does_so_for_long_gets_the_answer_under_way() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut quick = http.connect();
    let requests = quick.head("GET", "/healthz", &[]).repeat(1000);
    quick.write(requests.as_bytes());
    for _ in 0..1000 {
        assert_eq!(quick.answer().expect("an answer to each").status, 200);
    }
    let mut slow = http.connect();
    slow.send("POST", "/v1/tasks/sleep", &[], b"15000");
    slow.write(requests.as_bytes());
    assert_eq!(slow.answer().expect("an answer").text(), "null");
    assert_eq!(slow.ends(), b"", "the others are to be sent again");
}

#[test]
fn who_shows_no_token_has_neither_the_keys_nor_the_share_of_those_who_do() {
    let folder = private_folder();
    let file = folder.path().join("offload.toml");
    let route = "[[route]]\nmethod = \"POST\"\npath = \"/open\"\ntask = \"echo\"\nauth = \"none\"\n";
    std::fs::write(&file, route).unwrap();
    let http = HttpDaemon::start(&["--config", file.to_str().expect("ours"), "--workers", "1"]);
    let key = [("Idempotency-Key", "order-17")];
    let squatted = http.ask("POST", "/open", &[key[0], ("Authorization", "none")], b"mine");
    assert_eq!(squatted.status, 200);
    let real = http.call("echo", &key, "theirs");
    assert_eq!((real.status, real.text()), (200, "theirs".to_owned()));
    let same = http.ask("POST", "/open", &[key[0], ("Authorization", "none")], b"theirs");
    assert_ne!(same.field("offload-job"), real.field("offload-job"));
    let listed = http.ask("GET", "/v1/jobs", &[], b"").text();
    assert!(listed.contains("anonymous 127.0.0.1"), "{listed}");
}

#[test]
fn descriptors_that_a_client_sends_along_are_not_kept() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    const MOST: usize = 253;
    let folder = private_folder();
    let file = folder.path().join("http.sock");
    let http = HttpDaemon::start(&["--workers", "1", "--http", &format!("unix:{}", file.display())]);
    http.daemon.wait_until_whole();
    let mut stream = std::os::unix::net::UnixStream::connect(&file).expect("it listens");
    let request = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("it listens");
    let mut answer = [0; 1 << 10];
    assert_ne!(read_once(&mut stream, &mut answer).expect("an answer"), 0);
    let before = descriptors_of(http.daemon.pid());
    let ours = std::fs::File::open("/dev/null").expect("it is there");
    let all = vec![ours.as_fd(); MOST];
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut along = SendAncillaryBuffer::new(&mut space);
    assert!(along.push(SendAncillaryMessage::ScmRights(&all)));
    let bytes = [std::io::IoSlice::new(request.as_bytes())];
    sendmsg(&stream, &bytes, &mut along, SendFlags::empty()).expect("it is sent");
    assert_ne!(read_once(&mut stream, &mut answer).expect("an answer"), 0);
    // Fewer are no matter: one of its own may be gone by now.
    until("they are closed", || (descriptors_of(http.daemon.pid()) <= before).then_some(()));
}

/// It needs no token for that: each chunk is handled by itself, and the loop would do nothing else.
#[test]
fn chunks_of_one_byte_do_not_keep_the_loop() {
    const CHUNKS: usize = 50_000;
    let http = HttpDaemon::start(&["--workers", "1", "--max-payload", "1MiB"]);
    let turns = || http.daemon.status()["event_loop"]["iterations"].as_u64().expect("a number");
    let before = turns();
    let mut connection = http.connect();
    let head = connection.head("POST", "/v1/tasks/sha256", &[("Transfer-Encoding", "chunked")]);
    connection.write((head + &"1\r\nx\r\n".repeat(CHUNKS) + "0\r\n\r\n").as_bytes());
    assert_eq!(connection.answer().map(|answer| answer.status), Some(200));
    let turns = turns() - before;
    assert!(turns >= CHUNKS as u64 / 100, "{CHUNKS} chunks in {turns} turns");
}

/// They hold memory from then on. The first one may be larger than its client's share; it was thought to be the only one each time.
#[test]
fn bodies_that_are_only_announced_leave_room_for_other_clients() {
    let http = HttpDaemon::start(&["--workers", "1", "--max-bytes", "16MiB", "--max-payload", "4MiB"]);
    let length = (4 << 20).to_string();
    let _announced: Vec<HttpConnection> = (0..4)
        .map(|_| {
            let mut connection = http.connect();
            let fields = [("Content-Length", length.as_str()), ("Offload-Client", "greedy")];
            let head = connection.head("POST", "/v1/tasks/echo", &fields);
            connection.write(head.as_bytes());
            connection
        })
        .collect();
    let held = || http.daemon.status()["queue"]["bytes"].as_u64().expect("a number");
    until("two of them are let in", || (held() >= 8 << 20).then_some(()));
    for _ in 0..20 {
        let neighbour = [("Offload-Client", "neighbour")];
        assert_eq!(http.call("sha256", &neighbour, vec![b'x'; 100_000]).status, 200);
    }
    assert!(held() < 9 << 20, "{} bytes are held for a client alone", held());
}
