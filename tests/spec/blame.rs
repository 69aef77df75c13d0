//! Blame: jobs that end their workers, exceed their time limit or are cancelled share windows with good jobs. All good jobs
//! end `ok`, and only jobs that ran are blamed.

use bytes::Bytes;
use offload_protocol::messages::{SubmitOptions, ToClient, ToSupervisor};
use offload_protocol::nouns::{MediaType, OutcomeCode, Report};
use offload_supervisor::client::Client;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use tests::harness::{Daemon, PATIENCE, program, run};

/// Without an event for so long, the next job that waits to be cancelled is.
const QUIET: Duration = Duration::from_millis(20);

fn daemon() -> Daemon {
    Daemon::start(&["--quiet", "--workers", "2", "--worker", &program("faultworker").display().to_string()])
}

/// What becomes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Good,
    Crashes,
    TimesOut,
    IsCancelled,
}

impl Fate {
    fn input(self) -> &'static str {
        match self {
            Fate::Good => "run:nothing",
            Fate::Crashes => "run:exit7",
            Fate::TimesOut | Fate::IsCancelled => "run:sleep",
        }
    }

    fn options(self) -> SubmitOptions {
        let timeout_ms = (self == Fate::TimesOut).then_some(100);
        SubmitOptions { timeout_ms, ..SubmitOptions::default() }
    }

    /// The outcome, and whether that needs a start.
    fn outcome(self, is_idempotent: bool) -> (OutcomeCode, bool) {
        match self {
            Fate::Good => (OutcomeCode::Ok, true),
            Fate::Crashes if is_idempotent => (OutcomeCode::Poison, true),
            Fate::Crashes => (OutcomeCode::WorkerCrashed, true),
            Fate::TimesOut => (OutcomeCode::Timeout, true),
            Fate::IsCancelled => (OutcomeCode::Cancelled, false),
        }
    }
}

/// One client and the jobs that it waits for.
struct Submitter {
    client: Client,
    fates: BTreeMap<u64, Fate>,
    to_cancel: VecDeque<String>,
    ended: BTreeMap<u64, Report>,
}

impl Submitter {
    /// Submits all jobs and waits for all of them.
    fn run(daemon: &Daemon, name: &str, task: &str, fates: &[Fate]) -> Submitter {
        let client = Client::connect(&daemon.socket, name).expect("the supervisor listens");
        let (fates, to_cancel, ended) = (tickets(fates), VecDeque::new(), BTreeMap::new());
        let mut submitter = Submitter { client, fates, to_cancel, ended };
        submitter.submit_all(task);
        let deadline = Instant::now() + PATIENCE;
        while submitter.ended.len() < submitter.fates.len() {
            assert!(Instant::now() < deadline, "{name}: {} jobs hang", submitter.open());
            submitter.hear();
        }
        submitter
    }

    fn open(&self) -> usize {
        self.fates.len() - self.ended.len()
    }

    fn submit_all(&mut self, task: &str) {
        for (&ticket, fate) in &self.fates {
            let (media_type, options) = (MediaType::TEXT, fate.options());
            let message = ToSupervisor::Submit { ticket, task, media_type, detach: false, options };
            self.client.queue(&message, &Bytes::from(fate.input())).expect("the supervisor lives");
        }
    }

    fn hear(&mut self) {
        let answer = self.client.receive_until(Instant::now() + QUIET).expect("the supervisor lives");
        match answer.map(|(message, _)| message) {
            Some(ToClient::Accepted { ticket, job, .. }) => {
                let is_to_cancel = self.fates.get(&ticket) == Some(&Fate::IsCancelled);
                self.to_cancel.extend(is_to_cancel.then(|| job.into_owned()));
            }
            Some(ToClient::Finished { ticket, report }) => {
                assert!(self.ended.insert(ticket, report).is_none(), "two outcomes for one job");
            }
            Some(ToClient::Answer { .. }) => {}
            Some(other) => panic!("{other:?}"),
            None => self.cancel_next(),
        }
    }

    fn cancel_next(&mut self) {
        let Some(job) = self.to_cancel.pop_front() else { return };
        let ticket = u64::MAX - self.to_cancel.len() as u64;
        let message = ToSupervisor::Cancel { ticket, job: &job };
        self.client.send(&message, &Bytes::new()).expect("the supervisor lives");
    }

    fn judge(&self, is_idempotent: bool) {
        for (ticket, fate) in &self.fates {
            let report = &self.ended[ticket];
            let (outcome, has_run) = fate.outcome(is_idempotent);
            assert_eq!(report.outcome, outcome, "{fate:?}: {report:?}");
            assert!(report.attempts >= u32::from(has_run), "{report:?}");
        }
    }
}

fn tickets(fates: &[Fate]) -> BTreeMap<u64, Fate> {
    (1..).zip(fates.iter().copied()).collect()
}

/// So many jobs, each `every`th of which has that fate.
fn mixed(number: usize, every: usize, bad: &[Fate]) -> Vec<Fate> {
    let fate = |index: usize| match index % every {
        3 => bad[index / every % bad.len()],
        _ => Fate::Good,
    };
    (0..number).map(fate).collect()
}

fn map_with_crashing_lines(task: &str, outcome: &str, attempts: u64) {
    let daemon = daemon();
    let is_bad = |index: usize| index % 20 == 7;
    let line = |index| if is_bad(index) { "run:exit7\n" } else { "run:nothing\n" };
    let lines: String = (0..2000).map(line).collect();
    let ran = run(&mut daemon.command(&["map", task]), lines.as_bytes()).code(1);
    let results = ran.json_lines();
    assert_eq!(results.len(), 2000);
    let wrong: Vec<&Value> = results
        .iter()
        .enumerate()
        .filter(|(index, result)| {
            let expected = if is_bad(*index) { (outcome, attempts) } else { ("ok", 1) };
            (result["outcome"].as_str(), result["attempts"].as_u64()) != (Some(expected.0), Some(expected.1))
        })
        .map(|(_, result)| result)
        .collect();
    assert!(wrong.is_empty(), "{} of 2000 ended wrongly, such as {}", wrong.len(), wrong[0]);
    assert_eq!(daemon.status()["ledger"]["balanced"], true);
}

#[test]
fn five_crashing_inputs_in_a_hundred_cost_the_others_nothing() {
    map_with_crashing_lines("charge", "worker_crashed", 1);
}

#[test]
fn five_poisonous_inputs_in_a_hundred_cost_the_others_nothing() {
    map_with_crashing_lines("act", "poison", 3);
}

/// Twelve clients, each with one bad input among some good ones, beside one that has only good ones.
fn twelve_bad_neighbours(bad: Fate) {
    let daemon = daemon();
    let polite = vec![Fate::Good; 2000];
    let neighbour = mixed(60, 60, &[bad]);
    std::thread::scope(|scope| {
        let daemon = &daemon;
        let polite = scope.spawn(move || Submitter::run(daemon, "polite", "charge", &polite));
        let names = (0..12).map(|number| format!("neighbour {number}"));
        let neighbour = &neighbour;
        let neighbours: Vec<_> = names
            .map(|name| scope.spawn(move || Submitter::run(daemon, &name, "charge", neighbour)))
            .collect();
        for client in neighbours.into_iter().chain([polite]) {
            client.join().expect("a client is served").judge(false);
        }
    });
    assert_eq!(daemon.status()["ledger"]["balanced"], true);
}

#[test]
fn a_polite_client_loses_nothing_to_twelve_neighbours_with_an_input_that_crashes() {
    twelve_bad_neighbours(Fate::Crashes);
}

#[test]
fn a_polite_client_loses_nothing_to_twelve_neighbours_whose_jobs_time_out() {
    twelve_bad_neighbours(Fate::TimesOut);
}

#[test]
fn a_polite_client_loses_nothing_to_twelve_neighbours_who_cancel_what_runs() {
    twelve_bad_neighbours(Fate::IsCancelled);
}

#[test]
fn crashes_timeouts_and_cancels_together_end_only_the_jobs_that_they_are_of() {
    let daemon = daemon();
    let fates = mixed(1000, 20, &[Fate::Crashes, Fate::TimesOut, Fate::IsCancelled]);
    for (task, is_idempotent) in [("charge", false), ("act", true)] {
        Submitter::run(&daemon, "mixed", task, &fates).judge(is_idempotent);
    }
}
