//! A client of which many jobs end their worker, each in a way of its own, among jobs that do no harm.

use super::jobs::KnownJob;
use super::seed::Seed;
use crate::raw_client::{Heard, RawClient, Said};
use bytes::Bytes;
use offload_protocol::messages::{SubmitOptions, ToSupervisor};
use offload_protocol::nouns::{OutcomeCode, Report};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Jobs under way.
const IN_FLIGHT: usize = 12;
/// Of a hundred jobs, so many do harm.
const GUILTY_OF_100: usize = 20;
/// From one submission to the next, on average: a death costs a worker, and the innocent have to get on.
const PACE: Duration = Duration::from_millis(10);
/// How long the last answers may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// A limit for a run that never ends.
const SHORT: Duration = Duration::from_millis(40);
/// Unjust outcomes that are kept word for word.
const COMPLAINTS_MAX: usize = 5;

/// What a guilty job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crime {
    Abort,
    Segv,
    Exit,
    Kill,
    Panic,
    Garbage,
    /// Runs on, and has a limit.
    Hang,
    /// Runs on, and is cancelled.
    HangAndCancel,
    /// Kills every worker that it is given to, and may be tried three times.
    Poison,
}

const CRIMES: [Crime; 9] = [
    Crime::Abort,
    Crime::Segv,
    Crime::Exit,
    Crime::Kill,
    Crime::Panic,
    Crime::Garbage,
    Crime::Hang,
    Crime::HangAndCancel,
    Crime::Poison,
];

impl Crime {
    fn act(self) -> &'static str {
        match self {
            Crime::Abort | Crime::Poison => "abort",
            Crime::Segv => "segv",
            Crime::Exit => "exit",
            Crime::Kill => "kill",
            Crime::Panic => "panic",
            Crime::Garbage => "garbage",
            Crime::Hang | Crime::HangAndCancel => "hang",
        }
    }

    fn options(self) -> SubmitOptions {
        let attempts = Some(if self == Crime::Poison { 3 } else { 1 });
        let limit = u64::try_from(SHORT.as_millis()).ok().filter(|_| self == Crime::Hang);
        SubmitOptions { attempts, timeout_ms: limit, ..SubmitOptions::default() }
    }

    /// Whether this is what has to become of it, or may: the worker may have sent garbage for another job while it had this
    /// one, and then nobody knows whether this one began.
    fn is_served_by(self, report: &Report) -> bool {
        let may_run_twice = self == Crime::Poison;
        if report.outcome == OutcomeCode::Indeterminate && report.attempts == 0 && !may_run_twice {
            let message = report.error.as_ref().map_or("", |error| error.message.as_str());
            return message.contains("not because of this job") && message.contains("broke the protocol");
        }
        let signal = report.error.as_ref().and_then(|error| error.signal);
        let expected = match self {
            Crime::Abort => (OutcomeCode::WorkerCrashed, Some(6)),
            Crime::Segv => (OutcomeCode::WorkerCrashed, Some(11)),
            Crime::Kill => (OutcomeCode::WorkerCrashed, Some(9)),
            Crime::Exit => (OutcomeCode::WorkerCrashed, None),
            Crime::Panic => (OutcomeCode::Panic, None),
            Crime::Garbage => (OutcomeCode::WorkerProtocol, signal),
            Crime::Hang => (OutcomeCode::Timeout, None),
            Crime::HangAndCancel => (OutcomeCode::Cancelled, None),
            Crime::Poison => (OutcomeCode::Poison, Some(6)),
        };
        let attempts = match self {
            Crime::Poison => report.attempts == 3,
            // It may be cancelled before it is started.
            Crime::HangAndCancel => report.attempts <= 1,
            _ => report.attempts == 1,
        };
        attempts && (report.outcome, signal) == expected
    }
}

/// Whether everybody got what was due.
#[derive(Clone, Debug, Default)]
pub struct Judgement {
    /// Jobs that were to do harm.
    pub asked: u64,
    /// Those of them that ended as they had to.
    pub just: u64,
    /// Those that ended otherwise.
    pub unjust: u64,
    /// The same client's jobs that did no harm.
    pub innocent: u64,
    /// Those of them that did not end `ok`, at their first attempt, with the right output.
    pub blamed: u64,
    /// Jobs that were refused, or of which no end was heard.
    pub unanswered: u64,
    /// The first few things that were not right.
    pub complaints: Vec<String>,
}

impl Judgement {
    /// Both together.
    #[must_use]
    pub fn and(mut self, other: Judgement) -> Judgement {
        self.asked += other.asked;
        self.just += other.just;
        self.unjust += other.unjust;
        self.innocent += other.innocent;
        self.blamed += other.blamed;
        self.unanswered += other.unanswered;
        self.complaints.extend(other.complaints);
        self.complaints.truncate(COMPLAINTS_MAX);
        self
    }

    /// Whether every job had the outcome that it had to have.
    pub fn is_just(&self) -> bool {
        self.just == self.asked && self.unjust + self.blamed + self.unanswered == 0
    }

    fn complain(&mut self, complaint: String) {
        if self.complaints.len() < COMPLAINTS_MAX {
            self.complaints.push(complaint);
        }
    }
}

enum Waiting {
    Guilty(Crime),
    Innocent(KnownJob),
}

/// Submits jobs of both kinds until it is over, then waits for what is due.
pub fn serve(socket: &Path, number: u64, seed: u64, is_over: &AtomicBool) -> Judgement {
    let mut guilty = match RawClient::connect(socket) {
        Ok(client) => Guilty {
            client,
            seed: Seed::new(seed ^ number),
            waiting: HashMap::new(),
            tickets: 0,
            judgement: Judgement::default(),
        },
        Err(error) => {
            return Judgement { unanswered: 1, complaints: vec![error.to_string()], ..Judgement::default() };
        }
    };
    guilty.client.greet(&format!("guilty {number}"));
    if let Err(error) = guilty.run(is_over) {
        guilty.judgement.complain(error);
    }
    guilty.judgement.unanswered += guilty.waiting.len() as u64;
    guilty.judgement
}

struct Guilty {
    client: RawClient,
    seed: Seed,
    waiting: HashMap<u64, Waiting>,
    tickets: u64,
    judgement: Judgement,
}

impl Guilty {
    fn run(&mut self, is_over: &AtomicBool) -> Result<(), String> {
        let mut next = Instant::now();
        while !is_over.load(Ordering::Relaxed) {
            if self.waiting.len() < IN_FLIGHT && next <= Instant::now() {
                self.submit();
                next += self.seed.pause(PACE);
            }
            self.go_on(next.min(Instant::now() + PACE))?;
        }
        let deadline = Instant::now() + PATIENCE;
        while !self.waiting.is_empty() {
            if deadline <= Instant::now() {
                return Err(format!(
                    "{} jobs without an outcome {PATIENCE:?} after the end",
                    self.waiting.len()
                ));
            }
            self.go_on(Instant::now() + PACE)?;
        }
        Ok(())
    }

    fn submit(&mut self) {
        self.tickets += 1;
        let ticket = self.tickets;
        if self.seed.below(100) < GUILTY_OF_100 {
            let crime = CRIMES[self.seed.below(CRIMES.len())];
            let input: Bytes = format!("{{\"act\":\"{}\"}}", crime.act()).into();
            self.client.submit(ticket, "fault", &input, crime.options());
            self.waiting.insert(ticket, Waiting::Guilty(crime));
            self.judgement.asked += 1;
        } else {
            let job = KnownJob::some(&mut self.seed);
            self.client.submit(ticket, job.task, &job.input, SubmitOptions::default());
            self.waiting.insert(ticket, Waiting::Innocent(job));
            self.judgement.innocent += 1;
        }
    }

    fn go_on(&mut self, until: Instant) -> Result<(), String> {
        self.client.write(usize::MAX).map_err(|error| error.to_string())?;
        match self.client.read(until) {
            Heard::Closed => Err("the supervisor closed the connection".to_owned()),
            Heard::Nothing => Ok(()),
            Heard::Messages(messages) => messages.into_iter().try_for_each(|said| self.note(said)),
        }
    }

    fn note(&mut self, said: Said) -> Result<(), String> {
        match said {
            Said::Accepted { ticket, job } => {
                if matches!(self.waiting.get(&ticket), Some(Waiting::Guilty(Crime::HangAndCancel))) {
                    self.tickets += 1;
                    let cancel = ToSupervisor::Cancel { ticket: self.tickets, job: &job };
                    self.client.queue(&cancel, &Bytes::new());
                }
            }
            Said::Rejected { ticket, code, message } => {
                self.waiting.remove(&ticket);
                self.judgement.unanswered += 1;
                self.judgement.complain(format!("refused: {code} {message}"));
            }
            Said::Finished { ticket, report, output } => self.judge(ticket, &report, &output),
            Said::Goodbye(reason) => return Err(format!("the supervisor said goodbye: {reason}")),
            Said::Other => {}
        }
        Ok(())
    }

    fn judge(&mut self, ticket: u64, report: &Report, output: &[u8]) {
        let judgement = &mut self.judgement;
        let told = |what: &dyn std::fmt::Debug| {
            let Report { task, outcome, error, attempts, .. } = report;
            format!("{what:?}: {task} ended {outcome} after {attempts} attempts: {error:?}")
        };
        match self.waiting.remove(&ticket) {
            Some(Waiting::Guilty(crime)) if crime.is_served_by(report) => judgement.just += 1,
            Some(Waiting::Guilty(crime)) => {
                judgement.unjust += 1;
                judgement.complain(told(&crime));
            }
            Some(Waiting::Innocent(job)) => {
                let is_right = report.outcome == OutcomeCode::Ok && job.is_answered_by(output);
                // One that works in steps lets others in between them, and may be lost with one of these.
                let is_lost_with_others = job.task == "average";
                if !is_right || (report.attempts != 1 && !is_lost_with_others) {
                    judgement.blamed += 1;
                    judgement.complain(told(&"an innocent job"));
                }
            }
            None => judgement.complain(told(&"an outcome of no job")),
        }
    }
}
