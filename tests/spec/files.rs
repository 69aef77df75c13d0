//! Inputs that are files: their descriptors go to the workers, and whatever happens to the files or to those who sent them,
//! one job ends as it should and nothing stays open.

use bytes::Bytes;
use offload_protocol::codec;
use offload_protocol::messages::{
    CAPABILITIES, CLIENT_MAGIC, SubmitOptions, ToClient, ToSupervisor, VERSION_MAJOR, VERSION_MINOR,
};
use offload_protocol::nouns::{MediaType, OutcomeCode, Report};
use offload_supervisor::client::Client;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tests::harness::{Daemon, Ran, descriptors_of, read_once, run_offload, until};

const LENGTH: usize = 1 << 20;

fn content() -> Vec<u8> {
    (0..LENGTH).map(|index| b'a' + (index % 23) as u8).collect()
}

/// A file with this content.
fn file_with(content: &[u8]) -> (TempDir, PathBuf, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("input");
    std::fs::write(&path, content).unwrap();
    let typed = format!("@{}", path.display());
    (folder, path, typed)
}

/// An input for the task `fault`, so long that it is passed as a file.
fn fault(json: &str) -> Vec<u8> {
    [json.as_bytes(), &vec![b' '; LENGTH - json.len()]].concat()
}

/// The output of a job. Behind a text there may be the end of a line.
fn printed(ran: &Ran) -> &[u8] {
    ran.stdout.strip_suffix(b"\n").unwrap_or(&ran.stdout)
}

fn submit_file(client: &mut Client, task: &str, path: &Path) -> u64 {
    let ticket = client.new_ticket();
    let (media_type, options) = (MediaType::JSON, SubmitOptions::default());
    let submit = ToSupervisor::Submit { ticket, task, media_type, detach: false, options };
    let file = File::open(path).unwrap();
    let bytes = file.metadata().unwrap().len();
    assert!(client.takes_files());
    client.queue_with_file(&submit, (&file, bytes)).unwrap();
    ticket
}

fn accepted(client: &mut Client, ticket: u64) -> String {
    match client.answer_to(ticket).unwrap().0 {
        ToClient::Accepted { job, .. } => job.into_owned(),
        other => panic!("{other:?}"),
    }
}

fn finished(client: &mut Client, ticket: u64) -> (Report, Bytes) {
    match client.answer_to(ticket).unwrap() {
        (ToClient::Finished { report, .. }, output) => (report, output),
        (other, _) => panic!("{other:?}"),
    }
}

fn error_of(report: &Report) -> &str {
    report.error.as_ref().map_or("", |error| &error.message)
}

fn files(daemon: &Daemon) -> u64 {
    daemon.status()["queue"]["files"].as_u64().unwrap()
}

#[test]
fn a_large_file_is_the_input_wherever_it_is_read() {
    let (_folder, _path, typed) = file_with(&content());
    let daemon = Daemon::start(&["--workers", "1"]);
    for arguments in [
        &["submit", "echo"][..],
        &["submit", "--stream", "echo"],
        &["submit", "--idempotency-key", "k", "echo"],
    ] {
        let ran = daemon.run(&[arguments, &[typed.as_str()]].concat()).ok();
        assert!(printed(&ran) == content(), "{arguments:?}");
    }
    for arguments in [&["run", "--workers", "1", "echo"][..], &["run", "--stream", "--workers", "1", "echo"]]
    {
        let ran = run_offload(&[arguments, &[typed.as_str()]].concat()).ok();
        assert!(printed(&ran) == content(), "{arguments:?}");
    }
    let report = daemon.submit(&["echo", &typed]);
    assert_eq!(
        (&report["receipt"]["input_bytes"], &report["content_type"]),
        (&LENGTH.into(), &"text/plain; charset=utf-8".into())
    );
    assert_eq!(files(&daemon), 0);
}

#[test]
fn many_files_are_run_and_mapped_with_the_bytes_of_those_for_which_there_is_no_room() {
    let (folder, path, typed) = file_with(&content());
    let typed: Vec<&str> = vec![&typed; 300];
    let ran = run_offload(&[&["run", "--workers", "1", "sha256"], &*typed].concat()).ok();
    let sums = ran.text();
    let sums: Vec<&str> = sums.lines().collect();
    assert!(sums.len() == 300 && sums.iter().all(|sum| *sum == sums[0]), "{sums:?}");
    let list = folder.path().join("list");
    std::fs::write(&list, format!("{}\n", path.display()).repeat(5)).unwrap();
    let mapped =
        run_offload(&["map", "--workers", "1", "--files", "sha256", &list.display().to_string()]).ok();
    assert!(mapped.json_lines().iter().all(|line| line["output"] == sums[0]));
}

/// Of each file, only the descriptor goes through the supervisor.
#[test]
fn map_passes_its_files_to_a_supervisor() {
    let (folder, path, _) = file_with(&content());
    let daemon = Daemon::start(&["--workers", "1"]);
    let list = folder.path().join("list");
    std::fs::write(&list, format!("{}\n", path.display()).repeat(100)).unwrap();
    let before = daemon.submit(&["--detach", "sleep", "600000"]);
    let mut map = daemon.command(&["map", "--files", "sha256", &list.display().to_string()]);
    let mut map = map.stdout(std::process::Stdio::piped()).spawn().unwrap();
    // Nothing is known of the lengths of outputs yet: one for each worker.
    until("a file of map", || (files(&daemon) > 0).then_some(()));
    daemon.run(&["cancel", before["job"].as_str().unwrap()]).ok();
    let mut printed = String::new();
    map.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert!(map.wait().unwrap().success());
    assert_eq!(printed.matches("\"outcome\":\"ok\"").count(), 100, "{printed}");
    assert_eq!(files(&daemon), 0);
}

#[test]
fn workers_that_take_no_files_get_the_bytes() {
    let (_folder, _path, typed) = file_with(&content());
    let worker = format!("python3 {}", tests::harness::workspace().join("examples/worker.py").display());
    let turned: Vec<u8> = content().into_iter().rev().collect();
    let daemon = Daemon::start(&["--workers", "1", "--worker", &worker]);
    for arguments in [&["submit", "reverse"][..], &["submit", "--stream", "reverse"]] {
        let ran = daemon.run(&[arguments, &[typed.as_str()]].concat()).ok();
        assert!(printed(&ran) == turned, "{arguments:?}");
    }
    for arguments in [&["run", "--workers", "1"][..], &["run", "--stream", "--workers", "1"]] {
        let ran = run_offload(&[arguments, &["--worker", &worker, "reverse", &typed]].concat()).ok();
        assert!(printed(&ran) == turned, "{arguments:?}");
    }
    assert_eq!(daemon.status()["jobs"]["rejected"], 0);
}

#[test]
fn a_job_whose_worker_dies_gets_the_same_file_again_and_its_dead_letter_does_not_keep_it() {
    let daemon = Daemon::start(&["--workers", "1", "--allow-faults"]);
    let (_folder, path, _) = file_with(&fault(r#"{"act":"kill","on_attempt":1}"#));
    let mut client = daemon.client();
    let ticket = submit_file(&mut client, "fault", &path);
    accepted(&mut client, ticket);
    let (report, _) = finished(&mut client, ticket);
    assert_eq!((report.outcome, report.attempts), (OutcomeCode::Ok, 2), "{}", error_of(&report));
    std::fs::write(&path, fault(r#"{"act":"kill"}"#)).unwrap();
    let ticket = submit_file(&mut client, "fault", &path);
    let job = accepted(&mut client, ticket);
    assert_eq!(finished(&mut client, ticket).0.outcome, OutcomeCode::Poison);
    let shown = daemon.run(&["dead", "show", &job, "--json"]).ok().json();
    assert_eq!((&shown["has_input"], &shown["input_bytes"]), (&false.into(), &LENGTH.into()));
    let refused = daemon.run(&["dead", "retry", &job]);
    let expected = format!("its input was a file of {LENGTH} bytes, which is not kept; submit the job anew");
    assert!(refused.stderr.contains(&expected), "{}", refused.stderr);
    assert_eq!(files(&daemon), 0);
}

#[test]
fn what_a_file_has_when_its_job_runs_is_the_input_and_another_length_is_an_error_of_the_job() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let mut client = daemon.client();
    let sleep = client.submit("sleep", &Bytes::from_static(b"60000")).unwrap();
    let holder = accepted(&mut client, sleep);
    let (folder, replaced, _) = file_with(&content());
    let shrunk = folder.path().join("shrunk");
    std::fs::write(&shrunk, content()).unwrap();
    let tickets = [&replaced, &shrunk].map(|path| {
        let ticket = submit_file(&mut client, "echo", path);
        accepted(&mut client, ticket);
        ticket
    });
    assert_eq!(files(&daemon), 2);
    // Another file has its name now; the job has the one that was opened, which has no name any more.
    let other = folder.path().join("other");
    std::fs::write(&other, "other").unwrap();
    std::fs::rename(&other, &replaced).unwrap();
    File::options().write(true).open(&shrunk).unwrap().set_len(1000).unwrap();
    daemon.run(&["cancel", &holder]).ok();
    let (report, output) = finished(&mut client, tickets[0]);
    assert!(report.outcome == OutcomeCode::Ok && output == content(), "{}", error_of(&report));
    let (report, _) = finished(&mut client, tickets[1]);
    assert_eq!(report.outcome, OutcomeCode::AppError);
    let changed = format!(
        "the input file has changed: it had {LENGTH} bytes when the job was submitted, and has 1000 now"
    );
    assert_eq!(error_of(&report), changed);
    let done = client.submit("echo", &Bytes::from_static(b"well")).unwrap();
    accepted(&mut client, done);
    assert_eq!(finished(&mut client, done).1, "well", "the worker lives on");
}

/// A client that sends frames with descriptors, and nothing that would follow.
struct RawSender(UnixStream);

impl RawSender {
    fn greeted(daemon: &Daemon) -> RawSender {
        let socket = UnixStream::connect(&daemon.socket).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut sender = RawSender(socket);
        sender.send(
            &ToSupervisor::Hello {
                magic: CLIENT_MAGIC,
                major: VERSION_MAJOR,
                minor: VERSION_MINOR,
                capabilities: CAPABILITIES,
                client: "",
            },
            None,
        );
        // A capability may be used once it was welcomed.
        assert!(read_once(&mut sender.0, &mut [0; 1000]).unwrap() > 0);
        sender
    }

    /// False if the supervisor has hung up.
    fn send(&self, message: &ToSupervisor<'_>, file: Option<&File>) -> bool {
        let mut bytes = Vec::new();
        codec::encode(message, 0, &mut bytes).unwrap();
        let descriptors: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(descriptors.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL).is_ok()
    }

    /// All that the supervisor says until it hangs up.
    fn hear_out(mut self) -> String {
        let mut heard = Vec::new();
        // An end with unread bytes of ours is a reset.
        let _ = self.0.read_to_end(&mut heard);
        String::from_utf8_lossy(&heard).into_owned()
    }
}

#[test]
fn clients_that_send_files_without_jobs_are_disconnected_and_nothing_stays_open() {
    let (_folder, path, _) = file_with(&content());
    let daemon = Daemon::start(&["--workers", "1"]);
    daemon.submit(&["echo", "warm"]);
    // The spare has descriptors, too.
    daemon.wait_until_whole();
    let open = descriptors_of(daemon.pid());
    let file = File::open(&path).unwrap();
    let input_file = ToSupervisor::InputFile { ticket: 1, bytes: LENGTH as u64 };
    let sender = RawSender::greeted(&daemon);
    let sent = (0..300).take_while(|_| sender.send(&input_file, Some(&file))).count();
    assert!(sent > 0);
    let heard = sender.hear_out();
    assert!(
        heard.contains("an input file, and then something else than its job")
            || heard.contains("several descriptors"),
        "{heard}"
    );
    let leaving: Vec<RawSender> = (0..30).map(|_| RawSender::greeted(&daemon)).collect();
    for sender in &leaving {
        assert!(sender.send(&input_file, Some(&file)));
    }
    daemon.submit(&["echo", "others are served"]);
    drop(leaving);
    let pipe = std::io::pipe().unwrap().0;
    let sender = RawSender::greeted(&daemon);
    assert!(sender.send(&input_file, Some(&File::from(std::os::fd::OwnedFd::from(pipe)))));
    let heard = sender.hear_out();
    assert!(heard.contains("it is no regular file"), "{heard}");
    // The connection that last asked whether it is whole may have been among them.
    until("all descriptors are closed", || (descriptors_of(daemon.pid()) <= open).then_some(()));
    assert_eq!(files(&daemon), 0);
}
