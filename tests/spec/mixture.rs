//! Everything at once: jobs that end their workers and jobs that do no harm, short ones in trays, large ones in segments, files
//! and streams, while workers are killed, stopped for good and held up. Whoever did no harm has the right output, once.

use bytes::Bytes;
use offload_protocol::messages::{SubmitOptions, ToClient, ToSupervisor};
use offload_protocol::nouns::{MediaType, OutcomeCode};
use offload_supervisor::client::Client;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tests::chaos::client::{self, Work};
use tests::chaos::killer::{Habits, Killer};
use tests::chaos::seed::Seed;
use tests::harness::{Daemon, until};

/// Known jobs in all, of which so many of a thousand crash, run out of time or are cancelled.
const JOBS: u64 = 15_000;
const GUILTY_PER_MILLE: usize = 5;
/// More than one part, and more than one packet.
const COUNT: &[u8] = b"30000";
/// An input that goes through a segment, or as a file.
const LARGE: usize = 300_000;
/// So often may an innocent job lose its worker.
const ATTEMPTS: Option<u32> = Some(100);

fn submit(client: &mut Client, task: &str, input: &Bytes, stream: bool) -> u64 {
    let options = SubmitOptions { attempts: ATTEMPTS, stream, ..SubmitOptions::default() };
    let ticket = client.new_ticket();
    let media_type = MediaType::OCTET_STREAM;
    client.send(&ToSupervisor::Submit { ticket, task, media_type, detach: false, options }, input).unwrap();
    ticket
}

fn submit_file(client: &mut Client, file: &Path) -> u64 {
    let options = SubmitOptions { attempts: ATTEMPTS, ..SubmitOptions::default() };
    let ticket = client.new_ticket();
    let media_type = MediaType::OCTET_STREAM;
    let submit = ToSupervisor::Submit { ticket, task: "echo", media_type, detach: false, options };
    client.queue_with_file(&submit, (&File::open(file).unwrap(), LARGE as u64)).unwrap();
    ticket
}

/// How a job ended, and all parts of its output.
fn end_of(client: &mut Client, ticket: u64) -> (OutcomeCode, Vec<u8>, String) {
    let mut output = Vec::new();
    loop {
        let (message, bytes) = client.answer_to(ticket).unwrap();
        output.extend_from_slice(&bytes);
        match message {
            ToClient::Finished { report, .. } => return (report.outcome, output, format!("{report:?}")),
            ToClient::Accepted { .. } | ToClient::Part { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Large inputs, some of them as files, until it is over. Returns how many.
fn send_large_ones(daemon: &Daemon, seed: u64, is_over: &AtomicBool) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("input");
    let content = Bytes::from((0..LARGE).map(|index| (index % 251) as u8).collect::<Vec<u8>>());
    std::fs::write(&path, &content).unwrap();
    let mut client = Client::connect(&daemon.socket, "large").unwrap();
    let (mut seed, mut right) = (Seed::new(seed), 0);
    while !is_over.load(Ordering::Relaxed) {
        let ticket = match seed.below(2) {
            0 => submit_file(&mut client, &path),
            _ => submit(&mut client, "echo", &content, false),
        };
        let (outcome, output, report) = end_of(&mut client, ticket);
        assert_eq!(outcome, OutcomeCode::Ok, "{report}");
        assert!(output == content, "{report}");
        right += 1;
    }
    right
}

/// Reads streams until it is over. One of which parts were delivered is not run again when its worker is killed; what came is
/// right all the same. Returns how many were complete, and how many broke off.
fn read_streams(daemon: &Daemon, whole: &[u8], is_over: &AtomicBool) -> (u64, u64) {
    let mut client = Client::connect(&daemon.socket, "streams").unwrap();
    let (mut complete, mut broken) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        let ticket = submit(&mut client, "count", &Bytes::from_static(COUNT), true);
        let (outcome, output, report) = end_of(&mut client, ticket);
        match outcome {
            OutcomeCode::Ok => assert!(output == whole, "{report}"),
            _ => assert!(!output.is_empty() && whole.starts_with(&output), "{report}"),
        }
        *(if outcome == OutcomeCode::Ok { &mut complete } else { &mut broken }) += 1;
    }
    (complete, broken)
}

#[test]
fn whoever_does_no_harm_has_the_right_output_once_whatever_happens_around_it() {
    let seed: u64 = std::env::var("OFFLOAD_MIXTURE_SEED").map_or(1, |text| text.parse().expect("a number"));
    println!("seed {seed}: OFFLOAD_MIXTURE_SEED");
    let flags = ["--max-restarts", "1000000", "--backoff-min", "10ms", "--hang-timeout", "1s"];
    let daemon = Daemon::start(&[&["--quiet", "--allow-faults", "--workers", "2"], &flags[..]].concat());
    daemon.wait_until_whole();
    let mut quiet = daemon.client();
    let ticket = submit(&mut quiet, "count", &Bytes::from_static(COUNT), false);
    let whole = end_of(&mut quiet, ticket).1;
    let habits = Habits { every: Duration::from_millis(100), stops: 3, pauses: 40 };
    let mut killer = Killer::new(daemon.pid(), Seed::new(seed), habits);
    let work = Work { guilty_per_mille: GUILTY_PER_MILLE, ..Work::of(JOBS) };
    let is_over = AtomicBool::new(false);
    let (ledger, large, streams) = std::thread::scope(|scope| {
        let is_over = &is_over;
        let killing = scope.spawn(|| killer.kill_until(is_over));
        let large = scope.spawn(|| send_large_ones(&daemon, seed, is_over));
        let streams = scope.spawn(|| read_streams(&daemon, &whole, is_over));
        let ledger = client::serve_all(&daemon.socket, seed, 3, 16, &work);
        is_over.store(true, Ordering::Relaxed);
        killing.join().expect("the killer does not panic");
        (ledger, large.join().expect("all is right"), streams.join().expect("all is right"))
    });
    println!("{ledger:?}, {large} large ones, streams {streams:?}, {:?}", killer.deeds());
    assert!(ledger.is_clean(), "{ledger:?}");
    assert!(large > 0 && streams.0 > 0 && killer.deeds().kills > 0, "too little happened");
    let status = until("nothing is held", || {
        let status = daemon.status();
        let held = ["jobs", "bytes", "files", "segment_bytes"];
        held.iter().all(|what| status["queue"][what] == 0).then_some(status)
    });
    assert_eq!(status["ledger"]["balanced"], true, "{status}");
    daemon.wait_until_whole();
}
