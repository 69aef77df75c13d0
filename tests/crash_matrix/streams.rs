//! Readers of streams that do not do as they should, beside others that do: a reader that stops, one that leaves midway, and
//! a worker that sends more than its credit while nobody reads.

use crate::stage::Stage;
use crate::{QUICK, alone, case};
use bytes::Bytes;
use offload_protocol::messages::{SubmitOptions, ToClient, ToSupervisor};
use offload_protocol::nouns::{MediaType, OutcomeCode};
use offload_supervisor::client::Client;
use serde_json::Value;
use tests::harness::until;

/// A client that has asked for a stream and reads nothing but that it was accepted.
fn silent_reader(stage: &Stage, fault: &str) -> (Client, u64) {
    let mut client = stage.daemon.client();
    let ticket = client.new_ticket();
    let (task, media_type) = ("charge", MediaType::TEXT);
    // Longer than any other part of the case takes, so that nothing but the reader ends the job.
    let options = SubmitOptions { stream: true, timeout_ms: Some(600_000), ..SubmitOptions::default() };
    let submit = ToSupervisor::Submit { ticket, task, media_type, detach: false, options };
    client.send(&submit, &Bytes::from(fault.to_owned())).unwrap();
    match client.answer_to(ticket).unwrap().0 {
        ToClient::Accepted { .. } => (client, ticket),
        other => panic!("{other:?}"),
    }
}

/// The outputs that are held for clients do not change any more: the task waits.
fn wait_until_it_stops(stage: &mut Stage) -> u64 {
    let mut before = (0, 0);
    until("the task waits for its reader", || {
        let held = stage.held();
        before = if before.0 == held { (held, before.1 + 1) } else { (held, 0) };
        (held > 0 && before.1 >= 50).then_some(held)
    })
}

fn play_beside(stage: &mut Stage) {
    let played = stage.play_beside_a_reader(&case::crashes("run:parts-kill=3", "signal 9").stream(3000));
    played.unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn a_reader_that_stops_stops_its_task_and_nothing_else() {
    let _alone = alone();
    let mut stage = Stage::ready(QUICK);
    let (mut reader, ticket) = silent_reader(&stage, "run:endless");
    let held = wait_until_it_stops(&mut stage);
    assert!(held <= 1 << 20, "{held} bytes are held for one stream");
    // When it is read, it goes on where it was.
    for _ in 0..100 {
        let (message, part) = reader.answer_to(ticket).unwrap();
        assert!(matches!(message, ToClient::Part { .. }) && part.iter().all(|byte| *byte == b'p'));
    }
    wait_until_it_stops(&mut stage);
    play_beside(&mut stage);
    drop(reader);
    stage.cancel_all("charge");
    stage.nothing_is_held().unwrap();
    stage.end().unwrap();
}

#[test]
fn a_reader_that_leaves_midway_leaves_nothing_behind() {
    let _alone = alone();
    let mut stage = Stage::ready(QUICK);
    let (mut reader, ticket) = silent_reader(&stage, "run:endless");
    let (message, _) = reader.answer_to(ticket).unwrap();
    assert!(matches!(message, ToClient::Part { .. }));
    drop(reader);
    // What comes from now on is thrown away, and only the input is held.
    stage.no_more_is_held_than("run:endless".len() as u64).unwrap();
    play_beside(&mut stage);
    stage.cancel_all("charge");
    stage.nothing_is_held().unwrap();
    stage.end().unwrap();
}

#[test]
fn a_worker_that_sends_more_than_its_credit_is_ended_and_its_reader_gets_what_was_within_it() {
    let _alone = alone();
    let mut stage = Stage::ready(QUICK);
    let (mut reader, ticket) = silent_reader(&stage, "run:overdrawn");
    until("the worker is found out", || {
        let jobs: Value = stage.status()["jobs"].clone();
        (jobs["worker_protocol"] == 1).then_some(())
    });
    let mut parts = 0;
    let report = loop {
        match reader.answer_to(ticket).unwrap() {
            (ToClient::Part { .. }, part) => parts += part.len() as u64,
            (ToClient::Finished { report, .. }, _) => break report,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((report.outcome, report.receipt.output_bytes), (OutcomeCode::WorkerProtocol, parts));
    assert!(report.error.unwrap().message.contains("more of an output than it had credit for"));
    drop(reader);
    stage.nothing_is_held().unwrap();
    stage.end().unwrap();
}
