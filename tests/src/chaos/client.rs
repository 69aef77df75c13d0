//! One client with its ledger: every job that it submitted, with the answer that it has to get, exactly once.

use super::jobs::{Fate, KnownJob};
use super::process::Holdings;
use super::seed::Seed;
use crate::harness::{Daemon, until};
use bytes::Bytes;
use offload_protocol::messages::{ToClient, ToSupervisor};
use offload_protocol::nouns::{MediaType, OutcomeCode, Report};
use offload_supervisor::client::{Client, ClientError};
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the answers to what was submitted may take once no more is submitted.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a client waits for answers before it looks whether it is over.
const GLANCE: Duration = Duration::from_millis(50);
/// Twice as many as a supervisor remembers.
const WARM_UP_JOBS: u64 = 20_000;
/// How long a job that is to be cancelled has been accepted by then: usually it runs.
const CANCELLED_AFTER: Duration = Duration::from_millis(30);
/// Complaints that are kept word for word.
const COMPLAINTS_MAX: usize = 5;

/// What all clients of a run share.
#[derive(Debug, Default)]
pub struct Work {
    /// No more jobs.
    pub is_over: AtomicBool,
    /// No more than so many jobs in all; no limit if 0.
    pub jobs_max: u64,
    /// So many of a thousand jobs do wrong: they end their workers, run out of time or are cancelled.
    pub guilty_per_mille: usize,
    /// Submitted so far.
    pub submitted: AtomicU64,
    /// Answered so far.
    pub answered: AtomicU64,
}

impl Work {
    /// Without end until somebody says so, with so many jobs of a thousand that do wrong.
    pub fn endless(guilty_per_mille: usize) -> Work {
        Work { guilty_per_mille, ..Work::default() }
    }

    /// So many jobs.
    pub fn of(jobs: u64) -> Work {
        Work { jobs_max: jobs, ..Work::default() }
    }

    /// Whether there is one more job to be submitted, which is then the caller's.
    fn take(&self) -> bool {
        if self.is_over.load(Ordering::Relaxed) {
            return false;
        }
        let number = self.submitted.fetch_add(1, Ordering::Relaxed);
        let is_there = self.jobs_max == 0 || number < self.jobs_max;
        if !is_there {
            self.submitted.fetch_sub(1, Ordering::Relaxed);
        }
        is_there
    }
}

/// What one client knows in the end. All sums can be added up over clients.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Jobs submitted.
    pub submitted: u64,
    /// Jobs with the outcome `ok` and the right output.
    pub right: u64,
    /// Jobs with the outcome `ok` and another output.
    pub wrong: u64,
    /// Jobs that did wrong and ended as they should.
    pub guilty: u64,
    /// Jobs that are blamed for something and have not run.
    pub blamed_unstarted: u64,
    /// Jobs that were refused, or did no wrong and ended otherwise than `ok`.
    pub lost: u64,
    /// Outcomes of jobs that had one already.
    pub doubled: u64,
    /// Jobs without an outcome.
    pub stuck: u64,
    /// Executions that began.
    pub attempts: u64,
    /// Time that the tasks took by their workers' clocks, in microseconds.
    pub run_us: u64,
    /// The longest from submission to outcome.
    pub longest: Duration,
    /// The first few things that were not right.
    pub complaints: Vec<String>,
}

impl Ledger {
    /// Both together.
    #[must_use]
    pub fn and(mut self, other: Ledger) -> Ledger {
        self.submitted += other.submitted;
        self.right += other.right;
        self.wrong += other.wrong;
        self.guilty += other.guilty;
        self.blamed_unstarted += other.blamed_unstarted;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.stuck += other.stuck;
        self.attempts += other.attempts;
        self.run_us += other.run_us;
        self.longest = self.longest.max(other.longest);
        self.complaints.extend(other.complaints);
        self.complaints.truncate(COMPLAINTS_MAX);
        self
    }

    /// Whether every job had its right output, or the end that it deserved, once.
    pub fn is_clean(&self) -> bool {
        let bad = self.wrong + self.lost + self.doubled + self.stuck + self.blamed_unstarted;
        self.right + self.guilty == self.submitted && bad == 0
    }

    fn complain(&mut self, complaint: String) {
        if self.complaints.len() < COMPLAINTS_MAX {
            self.complaints.push(complaint);
        }
    }
}

/// So many clients do the work, each with `in_flight` jobs under way.
///
/// # Panics
/// Never: clients do not.
pub fn serve_all(socket: &Path, seed: u64, clients: usize, in_flight: usize, work: &Work) -> Ledger {
    std::thread::scope(|scope| {
        let seeds = (0..clients as u64).map(|number| Seed::new(seed.wrapping_add(number)));
        let clients: Vec<_> =
            seeds.map(|seed| scope.spawn(move || serve(socket, seed, in_flight, work))).collect();
        let ledgers = clients.into_iter().map(|client| client.join().expect("a client does not panic"));
        ledgers.fold(Ledger::default(), Ledger::and)
    })
}

/// Lets a supervisor that has just started fill what it keeps: buffers, and what it remembers of the last jobs. Then
/// it holds what it will hold.
pub fn warm_up(daemon: &Daemon, seed: u64, clients: usize, in_flight: usize) -> (Ledger, Holdings) {
    let cold = settled(daemon);
    let ledger = serve_all(&daemon.socket, seed, clients, in_flight, &Work::of(WARM_UP_JOBS));
    let is_alone = || Some(settled(daemon)).filter(|now| now.has_no_more_than(&cold));
    (ledger, until("the connections to be closed", is_alone))
}

/// What a supervisor holds when it has noticed who has hung up: that comes before an answer to somebody who asks later.
pub fn settled(daemon: &Daemon) -> Holdings {
    let mut witness = daemon.client();
    let question = |ticket| ToSupervisor::Result { ticket, job: "none" };
    witness.request(question).expect("the supervisor answers");
    let now = Holdings::of(daemon.pid());
    // The witness itself does not count.
    Holdings { descriptors: now.descriptors - 1, ..now }
}

/// Submits jobs, at most `in_flight` at a time, until there is no more work, and waits for what is due.
pub fn serve(socket: &Path, mut seed: Seed, in_flight: usize, work: &Work) -> Ledger {
    let mut ledger = Ledger::default();
    let mut waiting = HashMap::new();
    let ended = match Client::connect(socket, "chaos") {
        Ok(client) => Serving {
            client,
            ledger: &mut ledger,
            waiting: &mut waiting,
            to_cancel: VecDeque::new(),
            is_refused: false,
        }
        .run(&mut seed, in_flight, work),
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = ended {
        ledger.complain(error);
        ledger.lost += 1;
    }
    ledger.stuck += waiting.len() as u64;
    ledger
}

/// A job that has no outcome yet.
struct Waiting {
    job: KnownJob,
    since: Instant,
}

struct Serving<'a> {
    client: Client,
    ledger: &'a mut Ledger,
    waiting: &'a mut HashMap<u64, Waiting>,
    /// Jobs that are to be cancelled, with the time when they were accepted.
    to_cancel: VecDeque<(Instant, String)>,
    /// Since the last look: to submit more at once would only be refused, too.
    is_refused: bool,
}

impl Serving<'_> {
    fn run(&mut self, seed: &mut Seed, in_flight: usize, work: &Work) -> Result<(), String> {
        let say = |error: ClientError| error.to_string();
        let mut is_over = false;
        let mut give_up_at = None;
        loop {
            while !is_over && self.waiting.len() < in_flight {
                match work.take() {
                    true => {
                        let job = KnownJob::some_or_guilty(seed, work.guilty_per_mille);
                        self.submit(job).map_err(say)?;
                    }
                    false => is_over = true,
                }
            }
            if is_over && self.waiting.is_empty() {
                return Ok(());
            }
            let now = Instant::now();
            if is_over && *give_up_at.get_or_insert(now + PATIENCE) <= now {
                return Err(format!(
                    "{} jobs without an outcome {PATIENCE:?} after the end",
                    self.waiting.len()
                ));
            }
            if std::mem::take(&mut self.is_refused) {
                std::thread::park_timeout(GLANCE);
            }
            self.cancel_due(now).map_err(say)?;
            let glance = if self.to_cancel.is_empty() { GLANCE } else { CANCELLED_AFTER };
            self.hear(now + glance, work).map_err(say)?;
        }
    }

    fn submit(&mut self, job: KnownJob) -> Result<(), ClientError> {
        let ticket = self.client.new_ticket();
        let options = job.fate.options();
        let media_type = if job.task == "fault" { MediaType::JSON } else { MediaType::OCTET_STREAM };
        let submit = ToSupervisor::Submit { ticket, task: job.task, media_type, detach: false, options };
        self.client.queue(&submit, &job.input)?;
        self.ledger.submitted += 1;
        self.waiting.insert(ticket, Waiting { job, since: Instant::now() });
        Ok(())
    }

    fn cancel_due(&mut self, now: Instant) -> Result<(), ClientError> {
        while let Some((_, job)) = self.to_cancel.pop_front_if(|(since, _)| *since + CANCELLED_AFTER <= now) {
            let ticket = self.client.new_ticket();
            self.client.send(&ToSupervisor::Cancel { ticket, job: &job }, &Bytes::new())?;
        }
        Ok(())
    }

    /// Waits for one answer, then takes those that are there.
    fn hear(&mut self, deadline: Instant, work: &Work) -> Result<(), ClientError> {
        let mut next = self.client.receive_until(deadline)?;
        while let Some((message, output)) = next {
            self.note(message, &output, work);
            next = self.client.receive_until(Instant::now())?;
        }
        Ok(())
    }

    fn note(&mut self, message: ToClient<'_>, output: &Bytes, work: &Work) {
        match message {
            ToClient::Finished { ticket, report } => {
                work.answered.fetch_add(1, Ordering::Relaxed);
                match self.waiting.remove(&ticket) {
                    Some(waiting) => self.judge(&waiting, &report, output),
                    None => self.ledger.doubled += 1,
                }
            }
            ToClient::Accepted { ticket, job, .. } => {
                let fate = self.waiting.get(&ticket).map(|waiting| waiting.job.fate);
                if fate == Some(Fate::IsCancelled) {
                    self.to_cancel.push_back((Instant::now(), job.into_owned()));
                }
            }
            // What is to be cancelled may have ended: then it is that request which is refused.
            ToClient::Rejected { ticket, .. } if !self.waiting.contains_key(&ticket) => {}
            ToClient::Rejected { ticket, code, message, .. } => {
                self.waiting.remove(&ticket);
                self.is_refused = true;
                self.ledger.lost += 1;
                self.ledger.complain(format!("refused: {code} {message}"));
            }
            _ => {}
        }
    }

    fn judge(&mut self, waiting: &Waiting, report: &Report, output: &[u8]) {
        self.ledger.attempts += u64::from(report.attempts);
        self.ledger.run_us += report.receipt.run_us;
        self.ledger.longest = self.ledger.longest.max(waiting.since.elapsed());
        let why = report.error.as_ref().map_or("", |error| error.message.as_str());
        if is_blamed(report.outcome) && report.attempts == 0 {
            self.ledger.blamed_unstarted += 1;
            self.ledger.complain(format!("{} {}: blamed without having run: {why}", report.task, report.job));
        }
        if !waiting.job.fate.allows(report.outcome) {
            self.ledger.lost += 1;
            self.ledger.complain(format!("{} {}: {} {why}", report.task, report.job, report.outcome));
        } else if waiting.job.fate != Fate::IsAnswered {
            self.ledger.guilty += 1;
        } else if waiting.job.is_answered_by(output) {
            self.ledger.right += 1;
        } else {
            self.ledger.wrong += 1;
            self.ledger.complain(format!(
                "{} of {} bytes: wrong output",
                report.task,
                waiting.job.input.len()
            ));
        }
    }
}

/// Whether an outcome says that the job ended its worker or used too much time. Here no job has a deadline, which may pass
/// before a job has run.
fn is_blamed(outcome: OutcomeCode) -> bool {
    use OutcomeCode::{Confinement, Poison, Timeout, WorkerCrashed, WorkerOom, WorkerProtocol};
    matches!(outcome, WorkerCrashed | WorkerOom | WorkerProtocol | Confinement | Poison | Timeout)
}
