//! Many jobs, many clients, and workers that are killed all the time: nothing is lost, nothing is doubled.

use bytes::Bytes;
use offload_protocol::messages::{SubmitOptions, ToClient, ToSupervisor};
use offload_protocol::nouns::{ContentType, OutcomeCode};
use offload_supervisor::client::Client;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tests::harness::{Daemon, children_of, signal, until};

/// Submits jobs, at most so many at a time, until `is_enough` says so of their number, and checks every answer. Returns
/// how many jobs that were and how many attempts they took in all.
fn client(daemon: &Daemon, name: usize, in_flight_max: u64, is_enough: impl Fn(u64) -> bool) -> (u64, u64) {
    let mut client = daemon.client();
    let mut submitted = 0;
    let mut answered = BTreeSet::new();
    let mut attempts = 0;
    loop {
        let in_flight = submitted - answered.len() as u64;
        let is_last_round = is_enough(submitted);
        if is_last_round && in_flight == 0 {
            return (submitted, attempts);
        }
        if !is_last_round && in_flight < in_flight_max {
            submit(&mut client, submitted, format!("{name}:{submitted}"));
            submitted += 1;
            continue;
        }
        match client.receive().unwrap() {
            (ToClient::Accepted { .. }, _) => {}
            (ToClient::Finished { ticket, report }, payload) => {
                assert_eq!(report.outcome, OutcomeCode::Ok, "{report:?}");
                assert_eq!(payload, format!("{name}:{ticket}"), "somebody else's output");
                assert!(answered.insert(ticket), "two outcomes for one job");
                attempts += u64::from(report.attempts);
            }
            (other, _) => panic!("{other:?}"),
        }
    }
}

fn submit(client: &mut Client, ticket: u64, input: String) {
    let options = SubmitOptions { attempts: Some(50), ..SubmitOptions::default() };
    let message =
        ToSupervisor::Submit { ticket, task: "echo", content: ContentType::Text, detach: false, options };
    client.send(&message, &Bytes::from(input)).unwrap();
}

#[test]
fn a_thousand_jobs_from_eight_clients_at_once_are_all_answered_rightly() {
    let daemon = Daemon::start(&["--workers", "2"]);
    std::thread::scope(|scope| {
        for name in 0..8 {
            let daemon = &daemon;
            scope.spawn(move || client(daemon, name, 125, |count| count >= 125));
        }
    });
    let status = daemon.status();
    assert_eq!(status["ledger"]["balanced"], true);
    assert_eq!(
        (status["jobs"]["accepted"].as_u64(), status["jobs"]["ok"].as_u64()),
        (Some(1000), Some(1000))
    );
}

/// A small generator of our own: the order of events is the kernel's in any case, only the moments are chosen here.
fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Kills workers at random moments, every 20 ms on average. Returns how many.
fn kill_at_random(daemon: &Daemon, seed: &mut u64, is_over: &AtomicBool) -> u64 {
    let mut kills = 0;
    while !is_over.load(Ordering::Relaxed) {
        let workers = children_of(daemon.pid());
        if !workers.is_empty() {
            signal(workers[next(seed) as usize % workers.len()], Signal::KILL);
            kills += 1;
        }
        std::thread::park_timeout(Duration::from_micros(next(seed) % 40_000));
    }
    kills
}

#[test]
fn nothing_is_lost_or_doubled_while_workers_are_killed_at_random_moments() {
    let mut seed =
        std::env::var("OFFLOAD_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
            u64::from(std::process::id()) << 32
                | u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos())
        });
    println!("OFFLOAD_TEST_SEED={seed}");
    let daemon = Daemon::start(&["--workers", "2", "--quiet"]);
    let end = Instant::now() + Duration::from_secs(10);
    let is_enough = |count| count >= 2500 && Instant::now() >= end;
    let is_over = AtomicBool::new(false);
    let (kills, jobs, attempts) = std::thread::scope(|scope| {
        let killer = scope.spawn(|| kill_at_random(&daemon, &mut seed, &is_over));
        let clients: Vec<_> = (0..8)
            .map(|name| {
                let daemon = &daemon;
                scope.spawn(move || client(daemon, name, 50, is_enough))
            })
            .collect();
        let counts: Vec<_> =
            clients.into_iter().map(|client| client.join().expect("a client is served")).collect();
        is_over.store(true, Ordering::Relaxed);
        let (jobs, attempts) = counts.iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
        (killer.join().expect("the killer ends"), jobs, attempts)
    });
    println!("{kills} kills in 10 s, {attempts} attempts at {jobs} jobs");
    assert!(kills > 0);
    let status = daemon.status();
    assert_eq!(status["ledger"]["balanced"], true, "{status}");
    assert!(jobs >= 20_000);
    assert_eq!(
        (status["jobs"]["accepted"].as_u64(), status["jobs"]["ok"].as_u64()),
        (Some(jobs), Some(jobs))
    );
    daemon.wait_until_whole();
    until("no child too many", || (children_of(daemon.pid()).len() == 3).then_some(()));
}
