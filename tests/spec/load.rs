//! Many jobs, many clients, and workers that are killed all the time: nothing is lost, nothing is doubled.

use bytes::Bytes;
use offload_protocol::messages::{SubmitOptions, ToClient, ToSupervisor};
use offload_protocol::nouns::{ContentType, OutcomeCode};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tests::harness::{Daemon, children_of, signal, until};

/// Submits `count` jobs, as many at a time as the queue takes from one client, and checks every answer. Returns how
/// many attempts they took in all.
fn client(daemon: &Daemon, name: usize, count: u64, in_flight_max: u64) -> u64 {
    let mut client = daemon.client();
    let mut submitted = 0;
    let mut outcomes = BTreeMap::new();
    let mut attempts = 0;
    while (outcomes.len() as u64) < count {
        while submitted < count && submitted - (outcomes.len() as u64) < in_flight_max {
            let options = SubmitOptions { attempts: Some(50), ..SubmitOptions::default() };
            let submit = ToSupervisor::Submit {
                ticket: submitted,
                task: "echo",
                content: ContentType::Text,
                detach: false,
                options,
            };
            client.send(&submit, &Bytes::from(format!("{name}:{submitted}"))).unwrap();
            submitted += 1;
        }
        let (message, payload) = client.receive().unwrap();
        match message {
            ToClient::Accepted { .. } => {}
            ToClient::Finished { ticket, report } => {
                assert_eq!(report.outcome, OutcomeCode::Ok, "{report:?}");
                assert_eq!(payload, format!("{name}:{ticket}"), "somebody else's output");
                assert!(outcomes.insert(ticket, ()).is_none(), "two outcomes for one job");
                attempts += u64::from(report.attempts);
            }
            other => panic!("{other:?}"),
        }
    }
    attempts
}

#[test]
fn a_thousand_jobs_from_eight_clients_at_once_are_all_answered_rightly() {
    let daemon = Daemon::start(&["--workers", "2"]);
    std::thread::scope(|scope| {
        for name in 0..8 {
            let daemon = &daemon;
            scope.spawn(move || client(daemon, name, 125, 125));
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

#[test]
fn nothing_is_lost_or_doubled_while_workers_are_killed_at_random_moments() {
    let mut seed =
        std::env::var("OFFLOAD_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
            u64::from(std::process::id()) << 32
                | u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos())
        });
    println!("OFFLOAD_TEST_SEED={seed}");
    let daemon = Daemon::start(&["--workers", "2", "--quiet"]);
    let is_over = AtomicBool::new(false);
    let (kills, attempts) = std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            let mut kills = 0;
            let end = Instant::now() + Duration::from_secs(10);
            while Instant::now() < end && !is_over.load(Ordering::Relaxed) {
                let workers = children_of(daemon.pid());
                if !workers.is_empty() {
                    signal(workers[next(&mut seed) as usize % workers.len()], Signal::KILL);
                    kills += 1;
                }
                std::thread::park_timeout(Duration::from_micros(next(&mut seed) % 40_000));
            }
            kills
        });
        let clients: Vec<_> = (0..8)
            .map(|name| {
                scope.spawn({
                    let daemon = &daemon;
                    move || client(daemon, name, 2500, 50)
                })
            })
            .collect();
        let attempts: u64 =
            clients.into_iter().map(|client| client.join().expect("a client is served")).sum();
        is_over.store(true, Ordering::Relaxed);
        (killer.join().expect("the killer ends"), attempts)
    });
    println!("{kills} kills, {attempts} attempts at 20000 jobs");
    assert!(kills > 0);
    let status = daemon.status();
    assert_eq!(status["ledger"]["balanced"], true, "{status}");
    assert_eq!(status["jobs"]["accepted"], 20_000);
    assert_eq!(status["jobs"]["ok"], 20_000);
    daemon.wait_until_whole();
    until("no child too many", || (children_of(daemon.pid()).len() == 3).then_some(()));
}
