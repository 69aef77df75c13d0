//! The bounds that PROTOCOL states for what clients send: at the bound it is taken, one above it is refused. Where bytes break
//! a bound of a field the connection ends, and where a value makes no sense the job is rejected. (The bounds of what
//! workers send are tested where they are read: `hub/introductions.rs`, `hub/links.rs`, and `core/parts.rs`.)

use super::connections::{Raw, frame, submit};
use offload_protocol::messages::{IdempotencyKey, SubmitOptions, ToClient, ToSupervisor};
use tests::harness::Daemon;

/// The options of a job with these labels.
fn labelled(labels: &[String]) -> Vec<u8> {
    // What the library refuses to send: a list of more labels than are allowed.
    let header = frame(&submit(1, "echo"), b"")[8..].to_vec();
    let (before, stream) = header.split_at(header.len() - 1);
    let before = &before[..before.len() - 8];
    let mut all = (labels.len() as u64).to_le_bytes().to_vec();
    for label in labels {
        all.extend((label.len() as u64).to_le_bytes());
        all.extend(label.as_bytes());
    }
    let header = [before, &all[..], stream].concat();
    [&(header.len() as u32).to_le_bytes()[..], &[0; 4], &header[..]].concat()
}

/// What becomes of a job with these bytes: none if the connection is closed.
fn is_taken(daemon: &Daemon, bytes: &[u8]) -> bool {
    let mut client = Raw::greeted(daemon);
    client.say(bytes);
    matches!(client.hear(), Some((ToClient::Accepted { .. }, _)))
}

#[test]
fn what_a_client_states_is_taken_up_to_its_bound_and_refused_above() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let is_submit_taken = |change: &dyn Fn(&mut SubmitOptions)| {
        let ToSupervisor::Submit { ticket, task, media_type, detach, mut options } = submit(1, "echo") else {
            unreachable!()
        };
        change(&mut options);
        let message = ToSupervisor::Submit { ticket, task, media_type, detach, options };
        is_taken(&daemon, &frame(&message, b"x"))
    };
    let key = |length: usize| {
        let key = "k".repeat(length);
        is_submit_taken(&|options| {
            options.idempotency = Some(IdempotencyKey { key: key.clone(), digest: 0 });
        })
    };
    assert!(key(1) && key(64) && !key(0) && !key(65));
    let priority = |priority| is_submit_taken(&|options| options.priority = priority);
    assert!(priority(10) && priority(-10) && !priority(11) && !priority(-11));
    let attempts = |attempts| is_submit_taken(&|options| options.attempts = Some(attempts));
    assert!(attempts(1) && attempts(100) && !attempts(0) && !attempts(101));
    let timeout = |timeout| is_submit_taken(&|options| options.timeout_ms = Some(timeout));
    assert!(timeout(1) && !timeout(0));
    let task = |length: usize| is_taken(&daemon, &frame(&submit(1, &"t".repeat(length)), b""));
    assert!(!task(64) && !task(65), "no worker offers it");
    let labels = |count: usize, label: &str| is_taken(&daemon, &labelled(&vec![label.to_owned(); count]));
    assert!(labels(8, "same") && !labels(9, "same"), "equal ones count each");
    assert!(labels(1, &"x".repeat(64)) && !labels(1, &"x".repeat(65)) && !labels(1, "") && !labels(1, "a b"));
}
