//! Outputs in parts, from the outside: as they come, or as one answer.

use bytes::Bytes;
use offload_protocol::messages::{ToClient, ToSupervisor};
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::{ComputePool, EventLoop, Finished, Job, PoolConfig, Program};
use rustix::process::Signal;
use std::cell::RefCell;
use std::rc::Rc;
use tests::harness::{Daemon, program, run_offload, signal};

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
fn only_its_submitter_reads_a_stream() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let (mut reader, mut other) = (daemon.client(), daemon.client());
    let ticket =
        reader.submit_stream("count", &Bytes::from_static(br#"{"to":2,"every_ms":600000}"#)).unwrap();
    let (ToClient::Accepted { job, .. }, _) = reader.answer_to(ticket).unwrap() else {
        panic!("not accepted")
    };
    let (refused, _) = other.request(|ticket| ToSupervisor::Wait { ticket, job: &job }).unwrap();
    assert!(matches!(refused, ToClient::Rejected { code: OutcomeCode::BadRequest, .. }), "{refused:?}");
    let (answer, _) = other.request(|ticket| ToSupervisor::Cancel { ticket, job: &job }).unwrap();
    assert!(matches!(answer, ToClient::Answer { .. }));
    loop {
        match reader.answer_to(ticket).unwrap().0 {
            ToClient::Part { .. } => {}
            ToClient::Finished { report, .. } => break assert_eq!(report.outcome, OutcomeCode::Cancelled),
            other => panic!("{other:?}"),
        }
    }
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
