//! Many jobs, many clients, and workers that are killed all the time: no job is lost or answered twice.

use bytes::Bytes;
use offload_protocol::messages::{SubmitOptions, ToClient, ToSupervisor};
use offload_protocol::nouns::{MediaType, OutcomeCode};
use offload_supervisor::client::Client;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::sync::mpsc::{self, Receiver, Sender};
use tests::harness::{Daemon, children_of, signal, until};

/// Submits so many jobs, at most `in_flight_max` at a time, checks every answer and tells of each. Returns how many attempts
/// they took in all.
fn client(daemon: &Daemon, name: usize, jobs: u64, in_flight_max: u64, told: &Sender<()>) -> u64 {
    let mut client = daemon.client();
    let mut submitted = 0;
    let mut answered = BTreeSet::new();
    let mut attempts = 0;
    loop {
        let in_flight = submitted - answered.len() as u64;
        if submitted == jobs && in_flight == 0 {
            return attempts;
        }
        if submitted < jobs && in_flight < in_flight_max {
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
                // Perhaps nobody listens.
                let _ = told.send(());
            }
            (other, _) => panic!("{other:?}"),
        }
    }
}

fn submit(client: &mut Client, ticket: u64, input: String) {
    let options = SubmitOptions { attempts: Some(50), ..SubmitOptions::default() };
    let message =
        ToSupervisor::Submit { ticket, task: "echo", media_type: MediaType::TEXT, detach: false, options };
    client.send(&message, &Bytes::from(input)).unwrap();
}

#[test]
fn a_thousand_jobs_from_eight_clients_at_once_are_all_answered_rightly() {
    let daemon = Daemon::start(&["--workers", "2"]);
    std::thread::scope(|scope| {
        for name in 0..8 {
            let daemon = &daemon;
            scope.spawn(move || client(daemon, name, 125, 125, &mpsc::channel().0));
        }
    });
    let status = daemon.status();
    assert_eq!(status["ledger"]["balanced"], true);
    assert_eq!(
        (status["jobs"]["accepted"].as_u64(), status["jobs"]["ok"].as_u64()),
        (Some(1000), Some(1000))
    );
}

const CLIENTS: u64 = 8;
const JOBS_PER_CLIENT: u64 = 2_500;
/// On average.
const ANSWERS_PER_KILL: u64 = 100;

/// A small generator of our own: the order of events is the kernel's in any case, only the moments are chosen here.
fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Kills workers at random moments, counted in answers: on a busy machine workers that were killed by the clock would die
/// faster than they start. Goes on until nobody answers any more, and returns how many were killed.
fn kill_at_random(daemon: &Daemon, seed: &mut u64, answers: &Receiver<()>) -> u64 {
    let mut kills = 0;
    loop {
        for _ in 0..next(seed) % (2 * ANSWERS_PER_KILL) {
            if answers.recv().is_err() {
                return kills;
            }
        }
        let workers = children_of(daemon.pid());
        if !workers.is_empty() {
            signal(workers[next(seed) as usize % workers.len()], Signal::KILL);
            kills += 1;
        }
    }
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
    let jobs = CLIENTS * JOBS_PER_CLIENT;
    let (told, answers) = mpsc::channel();
    let (kills, attempts) = std::thread::scope(|scope| {
        let daemon = &daemon;
        let killer = scope.spawn(move || kill_at_random(daemon, &mut seed, &answers));
        let clients = (0..CLIENTS as usize).map(|name| {
            let told = told.clone();
            scope.spawn(move || client(daemon, name, JOBS_PER_CLIENT, 50, &told))
        });
        let clients: Vec<_> = clients.collect();
        drop(told);
        let attempts =
            clients.into_iter().map(|client| client.join().expect("a client is served")).sum::<u64>();
        (killer.join().expect("the killer ends"), attempts)
    });
    println!("{kills} kills, {attempts} attempts at {jobs} jobs");
    assert!(kills > jobs / ANSWERS_PER_KILL / 2);
    let status = daemon.status();
    assert_eq!(status["ledger"]["balanced"], true, "{status}");
    assert_eq!(
        (status["jobs"]["accepted"].as_u64(), status["jobs"]["ok"].as_u64()),
        (Some(jobs), Some(jobs))
    );
    daemon.wait_until_whole();
    until("no child too many", || (children_of(daemon.pid()).len() == 3).then_some(()));
}
