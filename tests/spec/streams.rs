//! Outputs in parts, from the outside: as they come, or as one answer.

use bytes::Bytes;
use offload_event_loop::LoopHandle;
use offload_protocol::messages::{ToClient, ToSupervisor, View};
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::client::Client;
use offload_supervisor::limits::MESSAGES_PER_TURN;
use offload_supervisor::{ComputePool, EventLoop, Finished, Job, PoolConfig, Program};
use rustix::process::Signal;
use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tests::harness::{Daemon, command, program, run_offload, signal, until};

const SLOWLY: &str = r#"{"to":3,"every_ms":20}"#;

#[test]
fn a_stream_comes_while_its_task_runs_and_one_answer_has_the_same_bytes() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let mut client = daemon.client();
    let never_done = br#"{"to":2,"every_ms":600000}"#;
    let ticket = client.submit_stream("count", &Bytes::from_static(never_done)).unwrap();
    let (ToClient::Accepted { job, .. }, _) = client.answer_to(ticket).unwrap() else {
        panic!("not accepted")
    };
    assert_eq!(client.answer_to(ticket).unwrap(), (ToClient::Part { ticket }, Bytes::from_static(b"1\n")));
    assert_eq!(daemon.status()["jobs"]["running"], 1);
    daemon.run(&["cancel", &job]).ok();
    let ticket = client.submit_stream("count", &Bytes::from_static(SLOWLY.as_bytes())).unwrap();
    assert!(matches!(client.answer_to(ticket).unwrap(), (ToClient::Accepted { .. }, _)));
    for expected in ["1\n", "2\n", "3\n"] {
        let part = Bytes::from_static(expected.as_bytes());
        assert_eq!(client.answer_to(ticket).unwrap(), (ToClient::Part { ticket }, part));
    }
    let (ToClient::Finished { report, .. }, rest) = client.answer_to(ticket).unwrap() else {
        panic!("the end was to come")
    };
    assert_eq!((report.outcome, report.receipt.output_bytes, rest.len()), (OutcomeCode::Ok, 6, 0));
    assert_eq!(daemon.run(&["submit", "count", SLOWLY]).ok().text(), "1\n2\n3\n");
}

#[test]
fn the_programs_print_a_stream_as_it_comes() {
    let streamed = run_offload(&["run", "count", "30000", "--stream"]).ok();
    assert_eq!(streamed.stdout, run_offload(&["run", "count", "30000"]).ok().stdout);
    let daemon = Daemon::start(&["--workers", "1"]);
    assert_eq!(daemon.run(&["submit", "count", "30000", "--stream"]).ok().stdout, streamed.stdout);
    // A task that sends no parts has one at its end.
    assert_eq!(daemon.run(&["submit", "echo", "whole", "--stream"]).ok().text(), "whole");
    let lines = daemon.run(&["submit", "count", SLOWLY, "--stream", "--json"]).ok().json_lines();
    assert_eq!(lines[0]["part"], "1\n");
    assert_eq!((&lines[3]["outcome"], &lines[3]["receipt"]["output_bytes"]), (&"ok".into(), &6.into()));
    run_offload(&["run", "count", "1", "2", "--stream"]).code(2);
    daemon.run(&["submit", "count", "1", "--stream", "--detach"]).code(2);
}

#[test]
fn a_stream_that_breaks_off_says_so_behind_its_last_part() {
    let worker = program("faultworker").display().to_string();
    let daemon = Daemon::start(&["--workers", "1", "--worker", &worker]);
    let broken = daemon.run(&["submit", "charge", "run:parts-segv=3", "--stream"]).code(125);
    assert!(broken.stdout == [b'p'; 3000], "{} bytes", broken.stdout.len());
    let why = "signal 11 (SIGSEGV) in attempt 1 of 1 (after 2.9 KiB of its output)";
    assert!(broken.stderr.contains(why), "{}", broken.stderr);
}

#[test]
fn a_job_of_which_a_part_was_read_is_not_run_again_although_its_task_is_idempotent() {
    let worker = program("faultworker").display().to_string();
    let daemon = Daemon::start(&["--workers", "1", "--worker", &worker]);
    let mut client = daemon.client();
    let ticket = client.submit_stream("act", &Bytes::from_static(b"run:parts-sleep=1")).unwrap();
    assert!(matches!(client.answer_to(ticket).unwrap(), (ToClient::Accepted { .. }, _)));
    assert!(matches!(client.answer_to(ticket).unwrap(), (ToClient::Part { .. }, _)));
    let pid = daemon.worker_running("act")["pid"].as_u64().unwrap();
    signal(u32::try_from(pid).unwrap(), Signal::KILL);
    let (ToClient::Finished { report, .. }, _) = client.answer_to(ticket).unwrap() else {
        panic!("the end was to come")
    };
    assert_eq!((report.outcome, report.receipt.output_bytes), (OutcomeCode::WorkerCrashed, 1000));
    let why = "signal 9 (SIGKILL) in attempt 1 of 1; it is not run again, because parts of its output were delivered";
    assert_eq!(report.error.unwrap().message, why);
}

#[test]
fn only_its_submitter_reads_a_stream_and_others_wait_for_its_end() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let (mut reader, mut other) = (daemon.client(), daemon.client());
    let ticket =
        reader.submit_stream("count", &Bytes::from_static(br#"{"to":2,"every_ms":600000}"#)).unwrap();
    let (ToClient::Accepted { job, .. }, _) = reader.answer_to(ticket).unwrap() else {
        panic!("not accepted")
    };
    let (own, theirs) = (wait_for(&mut reader, &job), wait_for(&mut other, &job));
    let (answer, _) = other.request(|ticket| ToSupervisor::Cancel { ticket, job: &job }).unwrap();
    assert!(matches!(answer, ToClient::Answer { .. }));
    assert_eq!(end_of_stream(&mut reader, ticket).0, OutcomeCode::Cancelled);
    for (client, ticket) in [(&mut reader, own), (&mut other, theirs)] {
        let (answer, output) = client.answer_to(ticket).unwrap();
        assert!(
            matches!(answer, ToClient::Finished { report, .. } if report.outcome == OutcomeCode::Cancelled)
        );
        assert_eq!(output, "");
    }
}

/// Reads a stream to its end: the outcome, and what came behind all parts.
fn end_of_stream(client: &mut Client, ticket: u64) -> (OutcomeCode, Bytes) {
    loop {
        match client.answer_to(ticket).unwrap() {
            (ToClient::Part { .. }, _) => {}
            (ToClient::Finished { report, .. }, rest) => return (report.outcome, rest),
            other => panic!("{other:?}"),
        }
    }
}

/// What a task returns is the end of the stream, so it goes to the reader alone too.
#[test]
fn whoever_waits_for_a_stream_is_told_its_outcome_and_has_none_of_its_output() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let before = daemon.run(&["submit", "--detach", "sleep", "600000"]).ok().text().trim().to_owned();
    let mut reader = daemon.client();
    let (ticket, job) = submit(&mut reader, "echo", b"whole");
    assert!(daemon.run(&["result", &job]).code(4).stderr.contains("the job has not ended"));
    let mut other = daemon.client();
    let wait = wait_for(&mut other, &job);
    daemon.run(&["cancel", &before]).ok();
    assert_eq!(end_of_stream(&mut reader, ticket), (OutcomeCode::Ok, Bytes::from_static(b"whole")));
    let (answer, output) = other.answer_to(wait).unwrap();
    assert!(matches!(answer, ToClient::Finished { report, .. } if report.receipt.output_bytes == 5));
    assert_eq!(output, "");
}

/// Otherwise its task would wait for ever for somebody who takes its parts.
#[test]
fn a_stream_whose_reader_is_gone_ends_although_another_waits_for_it() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let mut reader = daemon.client();
    let (_, job) = submit(&mut reader, "count", b"3000000");
    daemon.worker_running("count");
    let mut other = daemon.client();
    let wait = wait_for(&mut other, &job);
    drop(reader);
    let (answer, _) = other.answer_to(wait).unwrap();
    assert!(matches!(answer, ToClient::Finished { report, .. } if report.outcome == OutcomeCode::Ok));
}

#[test]
fn whoever_cancels_a_stream_and_leaves_at_once_has_cancelled_it() {
    let daemon = Daemon::start(&["--workers", "2"]);
    for _ in 0..40 {
        let mut reader = daemon.client();
        let (ticket, job) = submit(&mut reader, "count", b"1000000000");
        for _ in 0..8 {
            assert!(matches!(reader.answer_to(ticket).unwrap(), (ToClient::Part { .. }, _)));
        }
        // The supervisor writes the next parts while this client goes, perhaps before it reads what is asked here.
        let ticket = reader.new_ticket();
        reader.send(&ToSupervisor::Cancel { ticket, job: &job }, &Bytes::new()).unwrap();
        drop(reader);
        let ended = daemon.run(&["wait", &job, "--json"]).json();
        assert_eq!(ended["outcome"], "cancelled", "{ended}");
    }
}

#[test]
fn to_wait_for_the_label_of_a_stream_is_to_wait_for_its_end() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let never_done = r#"{"to":2,"every_ms":600000}"#;
    let mut reader = daemon.command(&["submit", "--stream", "--label", "s", "count", never_done]);
    let mut reader = reader.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    daemon.worker_running("count");
    let mut wait = daemon.command(&["wait", "--label", "s"]);
    let wait = wait.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    daemon.run(&["cancel", "--label", "s"]).ok();
    let waited = wait.wait_with_output().unwrap();
    let said = String::from_utf8(waited.stderr).unwrap();
    assert!(waited.status.code() == Some(126) && said.contains("cancelled"), "{said}");
    assert_eq!(reader.wait().unwrap().code(), Some(126));
}

#[test]
fn an_interrupted_stream_says_that_its_job_is_cancelled() {
    for flags in [&[][..], &["--json"]] {
        let words = [&["run", "--stream"], flags, &["count", r#"{"to":2,"every_ms":600000}"#]].concat();
        let mut run = command(&words);
        let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
        lines.next().expect("the first part").unwrap();
        signal(run.id(), Signal::INT);
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        let ended = run.wait_with_output().unwrap();
        assert_eq!(ended.status.signal(), Some(2));
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(said.contains("interrupted, the job is cancelled"), "{said}");
        if flags.is_empty() {
            assert_eq!(rest, Vec::<String>::new());
        } else {
            let job: serde_json::Value = serde_json::from_str(&rest[0]).unwrap();
            assert_eq!((&job["outcome"], &job["attempts"]), (&"cancelled".into(), &1.into()), "{job}");
            assert!(job["job"].as_str().is_some_and(|id| !id.is_empty()), "{job}");
            assert!(rest[1].contains("interrupted by signal 2 (SIGINT)"), "{rest:?}");
        }
    }
}

/// Submits a job whose output this client reads: its ticket and its id.
fn submit(client: &mut Client, task: &str, input: &'static [u8]) -> (u64, String) {
    let ticket = client.submit_stream(task, &Bytes::from_static(input)).unwrap();
    let (ToClient::Accepted { job, .. }, _) = client.answer_to(ticket).unwrap() else {
        panic!("not accepted")
    };
    (ticket, job.into_owned())
}

/// Waits for a job: the ticket. The supervisor has read the request when this returns.
fn wait_for(client: &mut Client, job: &str) -> u64 {
    let wait = client.new_ticket();
    client.send(&ToSupervisor::Wait { ticket: wait, job }, &Bytes::new()).unwrap();
    client.request(|ticket| ToSupervisor::Show { ticket, view: View::Status }).unwrap();
    wait
}

/// What a program reads of one job in its own pool.
fn read(job: Job) -> (Vec<u8>, Finished) {
    let mut event_loop = EventLoop::new().unwrap();
    let worker = Program::command(vec![program("faultworker").display().to_string()]);
    let pool = ComputePool::start(PoolConfig::with(worker), &event_loop).unwrap();
    let result = Rc::new(RefCell::new(None));
    let (read, handle, own) = (Rc::clone(&result), event_loop.handle(), pool.clone());
    event_loop.spawn(async move {
        let mut stream = own.stream(job);
        let mut bytes = Vec::new();
        while let Some(part) = stream.next().await {
            bytes.extend_from_slice(&part);
        }
        read.replace(Some((bytes, stream.finished().unwrap().clone())));
        handle.stop();
    });
    event_loop.run().unwrap();
    drop(pool);
    result.take().unwrap()
}

#[test]
fn a_program_reads_a_stream_of_its_own_pool() {
    let (bytes, finished) = read(Job::new("act").input("run:parts=200"));
    assert_eq!((bytes.len(), finished.report.outcome), (200_001, OutcomeCode::Ok));
    assert_eq!((bytes.last(), finished.report.receipt.output_bytes), (Some(&b'1'), 200_001));
    let (bytes, finished) = read(Job::new("charge").input("run:parts-kill=2"));
    assert_eq!((bytes.len(), finished.report.outcome), (2000, OutcomeCode::WorkerCrashed));
    let (bytes, finished) = read(Job::new("nobody knows this"));
    assert_eq!((bytes.len(), finished.report.outcome), (0, OutcomeCode::UnknownTask));
}

/// Each worker sends thousands of messages as fast as they are taken. What all of them send in one turn of the loop has a bound, so
/// others have their turn in between.
#[test]
fn however_many_workers_send_however_short_parts_the_loop_takes_a_bounded_number_of_them_in_one_turn() {
    const WORKERS: usize = 4;
    let mut event_loop = EventLoop::new().unwrap();
    let worker = Program::command(vec![program("faultworker").display().to_string()]);
    let mut config = PoolConfig::with(worker);
    config.core.workers = WORKERS;
    let pool = ComputePool::start(config, &event_loop).unwrap();
    let (read, done) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    for _ in 0..WORKERS {
        let (own, read, done) = (pool.clone(), Rc::clone(&read), Rc::clone(&done));
        event_loop.spawn(async move {
            let mut stream = own.stream(Job::new("act").input("run:dust=30000"));
            while let Some(part) = stream.next().await {
                read.set(read.get() + part.len());
            }
            assert_eq!(stream.finished().unwrap().report.receipt.output_bytes, 30_001);
            done.set(done.get() + 1);
        });
    }
    let most = Rc::new(Cell::new(0));
    look_each_turn(&event_loop.handle(), Turns { read, done, most: Rc::clone(&most), before: 0 }, WORKERS);
    event_loop.run().unwrap();
    // What is read at the end of a turn is taken in the next one.
    assert!(most.get() <= 2 * MESSAGES_PER_TURN, "{} in one turn", most.get());
}

struct Turns {
    read: Rc<Cell<usize>>,
    done: Rc<Cell<usize>>,
    most: Rc<Cell<usize>>,
    before: usize,
}

/// Notes in each turn of the loop how much was read, until all are done.
fn look_each_turn(handle: &LoopHandle, mut turns: Turns, all: usize) {
    let again = handle.clone();
    handle.set_immediate(move |_| {
        turns.most.set(turns.most.get().max(turns.read.get() - turns.before));
        turns.before = turns.read.get();
        match turns.done.get() == all {
            true => again.stop(),
            false => look_each_turn(&again, turns, all),
        }
    });
}

/// The loop is blocked until the limit of the job has passed. Its answer came in time, behind thousands of messages.
#[test]
fn a_job_that_has_answered_in_time_behind_many_messages_is_ok() {
    let mut event_loop = EventLoop::new().unwrap();
    let worker = Program::command(vec![program("faultworker").display().to_string()]);
    let mut config = PoolConfig::with(worker);
    config.core.workers = 1;
    let pool = ComputePool::start(config, &event_loop).unwrap();
    let ended = Rc::new(Cell::new(None));
    let keep = Rc::clone(&ended);
    // The worker has it for its answer, of which it writes the most when the loop does not look.
    let limit = Duration::from_secs(1);
    event_loop.spawn(async move {
        let mut stream = pool.stream(Job::new("act").input("run:dust=4000").timeout(limit));
        // It has been given to a worker, which writes all that it has to say at once, and then waits.
        assert!(stream.next().await.is_some());
        let began = Instant::now();
        let pid = pool.workers()[0].pid.expect("it runs");
        until("the worker waits for another job, and the limit has passed", || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            (stat.contains(") S ") && began.elapsed() > limit + limit / 2).then_some(())
        });
        while stream.next().await.is_some() {}
        let report = &stream.finished().expect("it has ended").report;
        keep.set(Some((report.outcome, report.receipt.output_bytes)));
    });
    event_loop.run().unwrap();
    assert_eq!(ended.take(), Some((OutcomeCode::Ok, 4001)));
}
