//! Connections of clients: those that send much, nothing or half a message, those beyond the limit, and those of a supervisor
//! that was stopped. None of them keeps other clients from their answers or the supervisor from its workers.

use bytes::Bytes;
use offload_protocol::codec;
use offload_protocol::frame::FrameDecoder;
use offload_protocol::limits::PAYLOAD_MAX_CEILING;
use offload_protocol::messages::{
    CLIENT_MAGIC, SubmitOptions, ToClient, ToSupervisor, VERSION_MAJOR, VERSION_MINOR, View,
};
use offload_protocol::nouns::{MediaType, OutcomeCode};
use offload_supervisor::client::Client;
use offload_supervisor::limits::PAGE_BYTES_MAX;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::Value;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tests::harness::{
    Daemon, PATIENCE, command, offload, private_folder, read_once, run, run_offload, until,
};

/// A client that says what it likes, when it likes.
pub(crate) struct Raw {
    pub(crate) socket: UnixStream,
    decoder: FrameDecoder,
}

impl Raw {
    pub(crate) fn connect(daemon: &Daemon) -> Raw {
        let socket = UnixStream::connect(&daemon.socket).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Raw { socket, decoder: FrameDecoder::new(PAYLOAD_MAX_CEILING) }
    }

    pub(crate) fn greeted(daemon: &Daemon) -> Raw {
        let mut raw = Raw::connect(daemon);
        raw.say(&frame(&hello(), b""));
        assert!(matches!(raw.hear(), Some((ToClient::Welcome { .. }, _))));
        raw
    }

    pub(crate) fn say(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// The next message and its payload; none at the end.
    pub(crate) fn hear(&mut self) -> Option<(ToClient<'static>, Bytes)> {
        loop {
            if let Some(frame) = self.decoder.next().unwrap() {
                let message: ToClient<'_> = codec::decode(&frame.header).unwrap();
                let payload = Bytes::copy_from_slice(&frame.payload);
                return Some((without_text(&message), payload));
            }
            if self.decoder.announced().is_some() {
                continue;
            }
            let count = match read_once(&mut self.socket, self.decoder.space()) {
                Ok(0) => return None,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                read => read.expect("something comes in time"),
            };
            self.decoder.filled(count);
        }
    }

    /// What comes until the connection ends.
    fn hear_out(mut self) -> Vec<ToClient<'static>> {
        std::iter::from_fn(|| self.hear()).map(|(message, _)| message).collect()
    }
}

/// The message, independent of the buffer in which it came; its texts are of no interest here.
fn without_text(message: &ToClient<'_>) -> ToClient<'static> {
    match message {
        ToClient::Welcome { magic, major, minor, capabilities, payload_max } => ToClient::Welcome {
            magic: *magic,
            major: *major,
            minor: *minor,
            capabilities: *capabilities,
            payload_max: *payload_max,
        },
        ToClient::Accepted { ticket, .. } => ToClient::Accepted { ticket: *ticket, job: "".into() },
        ToClient::Rejected { ticket, code, retry_after_ms, .. } => ToClient::Rejected {
            ticket: *ticket,
            code: *code,
            message: "".into(),
            retry_after_ms: *retry_after_ms,
        },
        ToClient::Finished { ticket, report } => {
            ToClient::Finished { ticket: *ticket, report: report.clone() }
        }
        ToClient::Answer { ticket } => ToClient::Answer { ticket: *ticket },
        ToClient::Part { ticket } => ToClient::Part { ticket: *ticket },
        ToClient::SendInput { ticket } => ToClient::SendInput { ticket: *ticket },
        ToClient::Goodbye { .. } => ToClient::Goodbye { reason: "".into() },
    }
}

pub(crate) fn hello() -> ToSupervisor<'static> {
    ToSupervisor::Hello {
        magic: CLIENT_MAGIC,
        major: VERSION_MAJOR,
        minor: VERSION_MINOR,
        capabilities: 0,
        client: "raw",
    }
}

pub(crate) fn submit(ticket: u64, task: &str) -> ToSupervisor<'_> {
    let options = SubmitOptions::default();
    ToSupervisor::Submit { ticket, task, media_type: MediaType::JSON, detach: false, options }
}

pub(crate) fn frame(message: &ToSupervisor<'_>, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::encode(message, payload.len(), &mut bytes).unwrap();
    bytes.extend_from_slice(payload);
    bytes
}

pub(crate) fn show(ticket: u64, view: View) -> Vec<u8> {
    frame(&ToSupervisor::Show { ticket, view }, b"")
}

/// Runs so many jobs that end at once.
pub(crate) fn run_jobs(daemon: &Daemon, count: u64) {
    let mut client = daemon.client();
    let tickets: Vec<u64> = (0..count).map(|_| client.submit("echo", &Bytes::new()).unwrap()).collect();
    for ticket in tickets {
        assert!(matches!(client.answer_to(ticket).unwrap().0, ToClient::Accepted { .. }));
        assert!(matches!(client.answer_to(ticket).unwrap().0, ToClient::Finished { .. }));
    }
}

fn status_of(client: &mut Client) -> Value {
    shown(client, View::Status)
}

fn shown(client: &mut Client, view: View) -> Value {
    let (answer, document) = client.request(|ticket| ToSupervisor::Show { ticket, view }).unwrap();
    assert!(matches!(answer, ToClient::Answer { .. }), "{answer:?}");
    serde_json::from_slice(&document).unwrap()
}

/// The most memory that a process has had, in bytes.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// More descriptors for this test than most shells give.
pub(crate) fn raise_own_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap())
}

#[test]
fn a_client_that_asks_for_much_and_reads_nothing_costs_little_and_holds_up_nobody() {
    let daemon = Daemon::start(&["--workers", "1"]);
    run_jobs(&daemon, 2000);
    let mut greedy: Vec<Raw> = (0..4).map(|_| Raw::greeted(&daemon)).collect();
    let mut polite = daemon.client();
    status_of(&mut polite);
    let before = peak_memory(daemon.pid());
    let questions: Vec<u8> = (0..200).flat_map(|ticket| show(ticket, View::Jobs)).collect();
    greedy.iter_mut().for_each(|raw| raw.say(&questions));
    // Each of the greedy ones has more than 50 MB to come. All the same the answer to who asks later comes first.
    for _ in 0..50 {
        assert_eq!(status_of(&mut polite)["state"], "running");
    }
    let grown = peak_memory(daemon.pid()).saturating_sub(before);
    assert!(grown < 8 << 20, "the supervisor has grown by {grown} bytes");
    // Whoever reads gets all that it asked for, in order, each answer no longer than a page.
    let mut reader = greedy.pop().unwrap();
    for expected in 0..200 {
        let (answer, document) = reader.hear().unwrap();
        assert_eq!(answer, ToClient::Answer { ticket: expected });
        assert!(document.len() <= PAGE_BYTES_MAX + 1, "{} bytes", document.len());
    }
}

#[test]
fn while_one_client_reads_long_answers_others_get_theirs_in_between() {
    let daemon = Daemon::start(&["--workers", "1"]);
    run_jobs(&daemon, 2000);
    let mut greedy = Raw::greeted(&daemon);
    let mut polite = Raw::greeted(&daemon);
    greedy.say(&(0..500).flat_map(|ticket| show(ticket, View::Jobs)).collect::<Vec<u8>>());
    assert!(greedy.hear().is_some());
    let heard = std::thread::scope(|scope| {
        let reading = scope.spawn(|| (1..500).filter(|_| greedy.hear().is_some()).count());
        let mut answered = 0;
        // As long as the greedy one is served the polite one is, too: each question of the one is answered before the
        // supervisor has answered all of the other.
        while !reading.is_finished() {
            polite.say(&show(answered, View::Status));
            assert_eq!(polite.hear().unwrap().0, ToClient::Answer { ticket: answered });
            answered += 1;
        }
        assert!(answered > 1, "the polite client was answered {answered} times");
        reading.join().unwrap()
    });
    assert_eq!(heard, 499);
}

#[test]
fn lists_come_whole_in_pages_whatever_their_length() {
    let daemon = Daemon::start(&["--workers", "1"]);
    run_jobs(&daemon, 1200);
    let names = |arguments: &[&str]| -> Vec<String> {
        let jobs = daemon.run(arguments).ok().json();
        jobs.as_array().unwrap().iter().map(|job| job["job"].as_str().unwrap().to_owned()).collect()
    };
    let all = names(&["jobs", "--json", "--limit", "5000"]);
    assert_eq!(all.len(), 1200);
    assert!(all.is_sorted_by(|one, next| one > next), "the newest first, each once");
    assert_eq!(names(&["jobs", "--json"]), all[..1000]);
    assert_eq!(names(&["jobs", "--json", "--limit", "3"]), all[..3]);
    let table = daemon.run(&["jobs"]).ok().text();
    assert_eq!(table.lines().count(), 1001);
    let mut client = daemon.client();
    for (view, after) in [(View::Jobs, "nonsense"), (View::Status, ""), (View::Dead, "live/x")] {
        let answer = client
            .request(|ticket| ToSupervisor::Page { ticket, view, after, limit: 1, label: "" })
            .unwrap()
            .0;
        assert!(matches!(answer, ToClient::Rejected { .. }), "{answer:?}");
    }
}

/// Stops the supervisor while a job of a second with a limit of 2.5 s runs, for so long.
fn outcome_beside_a_stop_of(pause: Duration) -> OutcomeCode {
    let daemon = Daemon::start(&["--workers", "1"]);
    daemon.wait_until_whole();
    let mut client = daemon.client();
    let ticket = client.new_ticket();
    let options = SubmitOptions { timeout_ms: Some(2500), ..SubmitOptions::default() };
    let media_type = MediaType::JSON;
    let request = ToSupervisor::Submit { ticket, task: "sleep", media_type, detach: false, options };
    client.send(&request, &Bytes::from_static(b"1000")).unwrap();
    assert!(matches!(client.answer_to(ticket).unwrap().0, ToClient::Accepted { .. }));
    // On the same connection, which takes no time to speak of.
    let worker = until("it runs", || {
        let workers = shown(&mut client, View::Workers);
        workers.as_array().unwrap().iter().find(|worker| worker["task"] == "sleep")?["pid"].as_u64()
    });
    daemon.signal(Signal::STOP);
    let stopped = Instant::now();
    // The worker is done when it sleeps in its read again; that it wrote its answer is not to be seen from here.
    until("the end of the pause", || (stopped.elapsed() >= pause).then_some(()));
    assert!(std::fs::exists(format!("/proc/{worker}")).unwrap());
    daemon.signal(Signal::CONT);
    match client.answer_to(ticket).unwrap().0 {
        ToClient::Finished { report, .. } => report.outcome,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_job_that_ended_in_time_while_the_supervisor_was_stopped_is_ok() {
    std::thread::scope(|scope| {
        for millis in [500, 2700, 5000] {
            scope.spawn(move || {
                let outcome = outcome_beside_a_stop_of(Duration::from_millis(millis));
                assert_eq!(outcome, OutcomeCode::Ok, "after {millis} ms");
            });
        }
    });
}

#[test]
fn a_client_in_the_middle_of_a_message_does_not_pay_for_a_stopped_supervisor() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let mut client = Raw::greeted(&daemon);
    let mut late = Raw::connect(&daemon);
    let bytes = frame(&submit(1, "echo"), &[b' '; 1000]);
    client.say(&bytes[..bytes.len() / 2]);
    // It is in the middle of a message as the supervisor knows.
    status_of(&mut daemon.client());
    daemon.signal(Signal::STOP);
    let stopped = Instant::now();
    until("longer than any limit", || (stopped.elapsed() >= Duration::from_millis(11_500)).then_some(()));
    daemon.signal(Signal::CONT);
    // It runs again, and looks after those that took too long before it does anything else.
    status_of(&mut daemon.client());
    client.say(&bytes[bytes.len() / 2..]);
    late.say(&frame(&hello(), b""));
    assert_eq!(client.hear().unwrap().0, ToClient::Accepted { ticket: 1, job: "".into() });
    assert!(matches!(client.hear(), Some((ToClient::Finished { ticket: 1, .. }, _))));
    assert!(matches!(late.hear(), Some((ToClient::Welcome { .. }, _))));
}

#[test]
fn a_client_that_asks_for_more_and_does_not_take_its_answers_is_disconnected() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let mut client = Raw::greeted(&daemon);
    // More than a socket takes, and too little for `pace.rs` to look at.
    client.say(&frame(&submit(1, "echo"), &[b' '; 900 << 10]));
    let question = frame(&ToSupervisor::Cancel { ticket: 2, job: "nobody's" }, b"");
    let mut asked = Instant::now();
    until("the end of the connection", || {
        if asked.elapsed() < Duration::from_millis(50) {
            return None;
        }
        asked = Instant::now();
        client.socket.write_all(&question).is_err().then_some(())
    });
    let is_why = |line: &str| line.contains("is disconnected: it did not read for 10 s, and ");
    assert!(daemon.stderr.find(is_why, PATIENCE).is_some(), "{:#?}", daemon.stderr.all());
}

/// A socket is writable again only when most of what is in it was read, which takes this client half a minute.
#[test]
fn a_client_that_reads_slowly_and_steadily_is_not_disconnected() {
    const OUTPUT: usize = 900 << 10;
    let daemon = Daemon::start(&["--workers", "1"]);
    let mut client = Raw::greeted(&daemon);
    client.say(&frame(&submit(1, "echo"), &[b' '; OUTPUT]));
    let (began, mut came) = (Instant::now(), 0);
    until("15 s of reading", || {
        if came < began.elapsed().as_millis() as usize * 8 {
            let count = client.socket.read(&mut [0; 2 << 10]).expect("something comes in time");
            assert!(
                count > 0,
                "the connection ended after {:?}: {:#?}",
                began.elapsed(),
                daemon.stderr.all()
            );
            came += count;
        }
        (began.elapsed() > Duration::from_secs(15)).then_some(())
    });
    while came < OUTPUT {
        let count = client.socket.read(&mut [0; 64 << 10]).expect("something comes in time");
        assert!(count > 0, "the connection ended after {came} bytes");
        came += count;
    }
}

#[test]
fn clients_leave_the_descriptors_that_workers_need() {
    let daemon = Daemon::start_after("ulimit -n 288", &["--workers", "2", "--allow-faults"]);
    daemon.wait_until_whole();
    let mut clients: Vec<UnixStream> = Vec::new();
    let mut refused = 0;
    while refused < 20 && clients.len() < 400 {
        let mut raw = Raw::connect(&daemon);
        // One that is refused may be closed before it has said anything; the goodbye is still there to be heard.
        let _ = raw.socket.write_all(&frame(&hello(), b""));
        match raw.hear() {
            Some((ToClient::Welcome { .. }, _)) => clients.push(raw.socket),
            _ => refused += 1,
        }
    }
    assert!(clients.len() >= 100, "only {} clients got in", clients.len());
    for _ in 0..3 {
        let crashed = daemon.run(&["submit", "--json", "--attempts", "1", "fault", r#"{"act":"kill"}"#]);
        // Idle clients give way to the one that wants something, after a while.
        if crashed.code == 4 {
            continue;
        }
        assert_eq!(crashed.json()["outcome"], "worker_crashed", "{crashed:?}");
    }
    until("a job is done", || (daemon.run(&["submit", "echo", "x"]).code == 0).then_some(()));
    daemon.wait_until_whole();
    let said = daemon.stderr.all().join("\n");
    assert!(!said.contains("no descriptor") && !said.contains("cannot start"), "{said}");
    assert!(said.contains("descriptors are scarce"), "{said}");
}

/// Either it serves, or it says at once what it lacks: never a supervisor that is ready and lets nobody in.
#[test]
fn where_descriptors_are_too_few_for_a_client_the_supervisor_does_not_start() {
    let folder = private_folder();
    let (mut served, mut refused) = (0, 0);
    for limit in [48, 64, 96, 100, 104, 108, 112, 116, 120, 128] {
        let socket = folder.path().join(format!("{limit}.sock"));
        let script = format!("ulimit -n {limit}; exec \"$@\"");
        let mut serve = Command::new("sh");
        serve
            .args(["-c", &script, "sh"])
            .arg(offload())
            .args(["serve", "--workers", "1", "--socket"])
            .arg(&socket);
        serve.env_remove("OFFLOAD_SOCKET").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut serve = serve.spawn().unwrap();
        let mut first = String::new();
        let mut said = BufReader::new(serve.stdout.take().unwrap());
        said.read_line(&mut first).unwrap();
        if first.starts_with("ready") {
            served += 1;
            let run = |words: &[&str]| run(command(words).env("OFFLOAD_SOCKET", &socket), b"");
            run(&["submit", "echo", "x"]).ok();
            run(&["stop"]).ok();
            serve.wait().unwrap();
        } else {
            refused += 1;
            let ended = serve.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert_eq!(ended.status.code(), Some(70), "{said}");
            assert!(said.contains(&format!("is {limit} and")) && said.contains("ulimit -n"), "{said}");
        }
    }
    assert!(served >= 1 && refused >= 2, "{served} served, {refused} refused");
}

#[test]
fn the_soft_limit_of_descriptors_is_raised_for_the_supervisor_and_not_for_workers() {
    let daemon = Daemon::start_after("ulimit -S -n 200", &["--workers", "1"]);
    daemon.wait_until_whole();
    let limits = |pid: u64| {
        let all = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let line = all.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap().to_owned();
        line.split_whitespace().take(2).map(str::to_owned).collect::<Vec<String>>()
    };
    let ours = limits(daemon.pid().into());
    assert_eq!(ours[0], ours[1], "soft and hard");
    let workers = limits(daemon.workers()[0]["pid"].as_u64().unwrap());
    assert_eq!(workers, ["128", "128"]);
}

#[test]
fn a_client_that_sends_no_more_has_its_answers_and_is_let_go() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let silent = Raw::greeted(&daemon);
    silent.socket.shutdown(Shutdown::Write).unwrap();
    assert_eq!(silent.hear_out(), [], "nothing was asked, nothing is said");
    let mut asked = Raw::greeted(&daemon);
    // All at once: the job takes its time only after the question was read.
    let job = frame(&submit(1, "sleep"), b"200");
    asked.say(&[&job[..], &show(2, View::Jobs), &frame(&submit(3, "echo"), b"3")[..9]].concat());
    asked.socket.shutdown(Shutdown::Write).unwrap();
    let heard = asked.hear_out();
    assert_eq!(
        heard[..2],
        [ToClient::Accepted { ticket: 1, job: "".into() }, ToClient::Answer { ticket: 2 }]
    );
    assert!(matches!(heard[2], ToClient::Finished { ticket: 1, .. }), "{heard:?}");
    assert_eq!(heard.len(), 3);
}

#[test]
fn a_client_that_waits_may_wait_and_one_that_waits_for_nothing_is_let_go() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let mut waits = Raw::greeted(&daemon);
    waits.say(&frame(&submit(1, "sleep"), b"600000"));
    assert!(matches!(waits.hear(), Some((ToClient::Accepted { .. }, _))));
    let idle = Raw::greeted(&daemon);
    idle.socket.set_read_timeout(Some(Duration::from_secs(180))).unwrap();
    let began = Instant::now();
    assert_eq!(idle.hear_out(), [ToClient::Goodbye { reason: "".into() }]);
    assert!(began.elapsed() >= Duration::from_secs(55), "{:?}", began.elapsed());
    waits.say(&show(2, View::Status));
    assert!(matches!(waits.hear(), Some((ToClient::Answer { ticket: 2 }, _))), "who waits is still there");
}

#[test]
fn a_stopped_supervisor_is_busy_and_none_is_none() {
    let daemon = Daemon::start(&["--workers", "1"]);
    daemon.signal(Signal::STOP);
    let ran = daemon.run(&["status", "--json"]).code(4);
    assert_eq!(ran.json()["error"]["code"], "overloaded", "{ran:?}");
    // Its queue is full as well: connecting itself has to be given up.
    let mut waiting = Vec::new();
    loop {
        let socket = rustix::net::socket_with(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let address = rustix::net::SocketAddrUnix::new(&daemon.socket).unwrap();
        match rustix::net::connect(&socket, &address) {
            Ok(()) => waiting.push(socket),
            Err(rustix::io::Errno::AGAIN) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let ran = daemon.run(&["stop", "--json"]).code(4);
    assert!(ran.json()["error"]["message"].as_str().unwrap().contains("busy"), "{ran:?}");
    drop(waiting);
    daemon.signal(Signal::CONT);
    daemon.run(&["status"]).ok();
    let nowhere = daemon.folder().join("nobody.sock");
    run_offload(&["--socket", nowhere.to_str().unwrap(), "status"]).code(3);
    let mut dead = command(&["status"]);
    let left_behind = daemon.folder().join("dead.sock");
    drop(std::os::unix::net::UnixListener::bind(&left_behind).unwrap());
    run(dead.env("OFFLOAD_SOCKET", &left_behind), b"").code(3);
}
