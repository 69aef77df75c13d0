//! A supervisor with three workers, 64 canaries beside every victim, and somebody who asks it something all the time.

use crate::case::{self, Case};
use bytes::Bytes;
use offload_protocol::messages::{SubmitOptions, ToClient, ToSupervisor, View};
use offload_protocol::nouns::{MediaType, OutcomeCode, Report};
use offload_supervisor::client::Client;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tests::canary;
use tests::chaos::prober::Prober;
use tests::harness::{Daemon, children_of, descriptors_of, private_folder, processes_with, program, signal};

/// Canaries of one case: as many of a short task, which workers are given in batches, as of a slow one.
const CANARIES: u64 = 64;
/// Tickets of victims begin here.
const VICTIMS: u64 = 1000;
/// Tickets of those that can go together with them begin here.
const COMPANY: u64 = 2000;
/// The most starts of a job that goes together with seven others of which one is guilty: among 8, 4, 2, and alone.
const COMPANY_STARTS_MAX: u32 = 4;
/// How long the pool may take to be whole again. The contract says 1 s for a machine that does nothing else.
const WHOLE_WITHIN: Duration = Duration::from_secs(10);
/// The longest that the loop may have kept the prober waiting, on a machine that does other things as well.
const LAG_MAX: Duration = Duration::from_secs(5);
/// How often the prober asks.
const PROBE_EVERY: Duration = Duration::from_millis(2);
/// Slots, the spare not counted.
pub(crate) const WORKERS: usize = 3;

/// See the module's documentation.
pub(crate) struct Stage {
    pub(crate) daemon: Daemon,
    marks: TempDir,
    client: Client,
    watcher: Client,
    prober: Option<Prober>,
    round: u64,
    baseline: Option<Baseline>,
}

/// What must be as it was when all is over.
#[derive(Debug, PartialEq)]
struct Baseline {
    descriptors: usize,
    children: usize,
    files: usize,
}

/// What was measured of a case that ended as it should.
#[derive(Debug)]
pub(crate) struct Measured {
    /// From submission to the outcome of the last victim; without victims, of the last canary.
    pub(crate) outcome: Duration,
    /// From then until all slots and the spare were ready, and all canaries answered.
    pub(crate) whole: Duration,
    /// The longest that the prober had to wait.
    pub(crate) lag: Duration,
}

/// One job that has ended.
struct Ended {
    report: Report,
    output: Bytes,
    /// Bytes of its parts.
    parts: usize,
    after: Duration,
}

impl Stage {
    /// With `worker` as further words of its command, and further flags.
    pub(crate) fn launch(worker: &str, flags: &[&str]) -> Stage {
        let marks = private_folder();
        let command =
            format!("{} marks:{} {worker}", program("faultworker").display(), marks.path().display());
        let workers = WORKERS.to_string();
        let mut arguments = vec!["--quiet", "--workers", &workers, "--worker", command.trim_end()];
        arguments.extend(flags);
        let daemon = Daemon::launch(&arguments);
        let prober = Some(Prober::start(&daemon.socket, PROBE_EVERY));
        let (client, watcher) = (daemon.client(), daemon.client());
        Stage { daemon, marks, client, watcher, prober, round: 0, baseline: None }
    }

    /// One whose workers are all ready, which is what it comes back to.
    pub(crate) fn ready(flags: &[&str]) -> Stage {
        Stage::ready_with("", flags)
    }

    /// The same, with `worker` as further words of its command.
    pub(crate) fn ready_with(worker: &str, flags: &[&str]) -> Stage {
        let mut stage = Stage::launch(worker, flags);
        stage.wait_until_whole(0, WHOLE_WITHIN).expect("good workers start");
        stage.is_as_it_should_be();
        stage
    }

    /// What there is now is what there has to be in the end.
    pub(crate) fn is_as_it_should_be(&mut self) {
        self.baseline = Some(self.look(0));
    }

    /// At least so many descriptors are counted: one that was open for a moment in the beginning is no loss.
    fn look(&self, least: usize) -> Baseline {
        let pid = self.daemon.pid();
        let files = std::fs::read_dir(self.daemon.folder()).map_or(0, Iterator::count);
        Baseline { descriptors: descriptors_of(pid).max(least), children: children_of(pid).len(), files }
    }

    pub(crate) fn status(&mut self) -> Value {
        let answer = self.watcher.request(|ticket| ToSupervisor::Show { ticket, view: View::Status });
        let (_, document) = answer.expect("the supervisor lives");
        serde_json::from_slice(&document).expect("a document")
    }

    /// How many jobs were put into trays, and how many were taken back.
    pub(crate) fn trays(&mut self) -> [u64; 2] {
        let workers = self.status()["workers"].clone();
        ["prefetched", "taken_back"].map(|name| workers[name].as_u64().unwrap_or(0))
    }

    /// How many batches there were, and how many of them were lost.
    pub(crate) fn batches(&mut self) -> [u64; 2] {
        let workers = self.status()["workers"].clone();
        ["batches", "halved_batches"].map(|name| workers[name].as_u64().unwrap_or(0))
    }

    fn restarts(&mut self) -> u64 {
        self.status()["workers"]["restarts"].as_u64().unwrap_or(0)
    }

    /// All processes but the supervisor's own that are there because of it.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mut processes = processes_with(&self.marks.path().display().to_string());
        processes.retain(|pid| *pid != self.daemon.pid());
        processes
    }

    /// Whether all slots and the spare are ready and nothing else is left, not even a grandchild.
    fn is_whole(&mut self, restarts: u64) -> bool {
        let workers = self.status()["workers"].clone();
        workers["ready"] == WORKERS as u64
            && workers["spares"] == 1
            && workers["restarts"].as_u64() >= Some(restarts)
            && children_of(self.daemon.pid()).len() == WORKERS + 1
            && self.processes().len() == WORKERS + 1
    }

    /// How long it took, or what is still missing.
    pub(crate) fn wait_until_whole(&mut self, restarts: u64, limit: Duration) -> Result<Duration, String> {
        let began = Instant::now();
        while !self.is_whole(restarts) {
            if began.elapsed() > limit {
                let children = self.processes();
                return Err(format!(
                    "P3: not whole after {limit:?}: {} {children:?}",
                    self.status()["workers"]
                ));
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Ok(began.elapsed())
    }

    /// Plays one case and judges it.
    ///
    /// # Errors
    /// What was not as it should be.
    pub(crate) fn play(&mut self, case: &Case) -> Result<Measured, String> {
        let restarts = self.restarts() + u64::from(case.ends_a_worker);
        self.play_until(case, restarts)
    }

    /// As [`Stage::play`]; in the end so many workers have to have been replaced since the supervisor started.
    ///
    /// # Errors
    /// As [`Stage::play`].
    pub(crate) fn play_until(&mut self, case: &Case, restarts: u64) -> Result<Measured, String> {
        self.round += 1;
        let began = Instant::now();
        self.submit_all(case);
        let mut ended = self.collect(case, began)?;
        let mut outcome = Duration::ZERO;
        for victim in 0..case.victims as u64 {
            let victim = ended.remove(&(VICTIMS + victim)).expect("collected");
            judge(case, &victim)?;
            outcome = outcome.max(victim.after);
        }
        for company in ended.split_off(&COMPANY).values() {
            judge_company(company)?;
        }
        for (number, ended) in ended {
            self.judge_canary(case, number, &ended)?;
            if case.victims == 0 {
                outcome = outcome.max(ended.after);
            }
        }
        self.nothing_has_begun_twice()?;
        self.wait_until_whole(restarts, WHOLE_WITHIN.max(case.bound))?;
        self.nothing_is_held()?;
        let whole = began.elapsed().saturating_sub(outcome);
        self.nothing_more_comes()?;
        Ok(Measured { outcome, whole, lag: self.lag_since(began)? })
    }

    /// As [`Stage::play`], while a stream of another client goes on: the pool does not become whole meanwhile.
    ///
    /// # Errors
    /// As [`Stage::play`].
    pub(crate) fn play_beside_a_reader(&mut self, case: &Case) -> Result<(), String> {
        self.round += 1;
        let began = Instant::now();
        self.submit_all(case);
        let mut ended = self.collect(case, began)?;
        for victim in 0..case.victims as u64 {
            judge(case, &ended.remove(&(VICTIMS + victim)).expect("collected"))?;
        }
        ended.iter().try_for_each(|(number, ended)| self.judge_canary(case, *number, ended))
    }

    /// Cancels all jobs of a task, and waits until their workers are replaced.
    pub(crate) fn cancel_all(&mut self, task: &str) {
        let jobs = self.daemon.run(&["jobs", "--json"]).ok().json();
        for job in jobs.as_array().into_iter().flatten().filter(|job| job["task"] == task) {
            self.daemon.run(&["cancel", job["job"].as_str().expect("an id")]);
        }
        self.wait_until_whole(0, WHOLE_WITHIN).expect("nobody else is harmed");
    }

    /// The longest that the prober had to wait since then.
    ///
    /// # Errors
    /// That it was too long.
    pub(crate) fn lag_since(&self, moment: Instant) -> Result<Duration, String> {
        let samples = self.prober.iter().flat_map(|prober| prober.since(moment));
        let lag = samples.max().unwrap_or_default();
        if lag > LAG_MAX {
            return Err(format!("P4: the loop was away for {lag:?}"));
        }
        Ok(lag)
    }

    /// Half of the canaries before the victims, half after them: some will be in the same batch.
    fn submit_all(&mut self, case: &Case) {
        for number in 0..CANARIES {
            if number == CANARIES / 2 {
                self.submit_company(case, 0..case.company / 2);
                (0..case.victims as u64).for_each(|victim| self.submit_victim(case, VICTIMS + victim));
                self.submit_company(case, case.company / 2..case.company);
            }
            let task = if number.is_multiple_of(2) { "canary" } else { "canary.slow" };
            let input = canary::input(self.round, number);
            self.submit(number, task, SubmitOptions::default(), input);
        }
    }

    fn submit_company(&mut self, case: &Case, numbers: Range<usize>) {
        for number in numbers {
            let options =
                SubmitOptions { timeout_ms: milliseconds(case.timeout), ..SubmitOptions::default() };
            self.submit(COMPANY + number as u64, case.task, options, b"run:nothing".to_vec());
        }
    }

    fn submit_victim(&mut self, case: &Case, ticket: u64) {
        let mut input = case.fault.as_bytes().to_vec();
        input.resize(input.len() + case.padding, b' ');
        let (timeout_ms, deadline_ms) = (milliseconds(case.timeout), milliseconds(case.deadline));
        let stream = case.stream.is_some();
        let options = SubmitOptions { timeout_ms, deadline_ms, stream, ..SubmitOptions::default() };
        match case.is_file {
            true => self.submit_file(ticket, case.task, options, &input),
            false => self.submit(ticket, case.task, options, input),
        }
    }

    /// The file has no name any more when the job runs.
    fn submit_file(&mut self, ticket: u64, task: &str, options: SubmitOptions, input: &[u8]) {
        let file = tempfile::tempfile().expect("a file without a name");
        std::os::unix::fs::FileExt::write_all_at(&file, input, 0).expect("it can be written");
        let media_type = MediaType::OCTET_STREAM;
        let message = ToSupervisor::Submit { ticket, task, media_type, detach: false, options };
        let sent = self.client.queue_with_file(&message, (&file, input.len() as u64));
        sent.expect("the supervisor lives");
    }

    fn submit(&mut self, ticket: u64, task: &str, options: SubmitOptions, input: Vec<u8>) {
        let media_type = MediaType::OCTET_STREAM;
        let message = ToSupervisor::Submit { ticket, task, media_type, detach: false, options };
        self.client.send(&message, &Bytes::from(input)).expect("the supervisor lives");
    }

    /// Everybody's outcome, once each.
    fn collect(&mut self, case: &Case, began: Instant) -> Result<BTreeMap<u64, Ended>, String> {
        let mut ended = BTreeMap::new();
        let mut parts: BTreeMap<u64, usize> = BTreeMap::new();
        let deadline = began + case.bound.max(Duration::from_secs(30));
        let jobs = CANARIES as usize + case.victims + case.company;
        while ended.len() < jobs {
            let answer = self.client.receive_until(deadline).map_err(|error| error.to_string())?;
            match answer {
                None => {
                    let missing = jobs - ended.len();
                    return Err(format!("P1: {missing} jobs without an outcome: {}", self.status()["jobs"]));
                }
                Some((ToClient::Accepted { .. }, _)) => {}
                Some((ToClient::Part { ticket }, part)) => *parts.entry(ticket).or_default() += part.len(),
                Some((ToClient::Finished { ticket, report }, output)) => {
                    let parts = parts.remove(&ticket).unwrap_or(0);
                    let end = Ended { report, output, parts, after: began.elapsed() };
                    let first = ended.insert(ticket, end);
                    if first.is_some() {
                        return Err(format!("P1: two outcomes for {ticket}"));
                    }
                }
                Some((other, _)) => return Err(format!("unexpected: {other:?}")),
            }
        }
        Ok(ended)
    }

    /// Submits the canaries of a case, all of which have to be refused with this reason. How long that took.
    ///
    /// # Errors
    /// What was not so.
    pub(crate) fn submit_canaries_to_nobody(
        &mut self,
        code: OutcomeCode,
        reason: &str,
    ) -> Result<Duration, String> {
        let began = Instant::now();
        let case = case::all_well("");
        self.submit_all(&case);
        let mut refused = BTreeMap::new();
        while refused.len() < CANARIES as usize {
            let answer = self.client.receive_until(began + case.bound).map_err(|error| error.to_string())?;
            let (ticket, refusal) = match answer.ok_or("P1: jobs hang that nobody can run")?.0 {
                ToClient::Accepted { .. } => continue,
                ToClient::Rejected { ticket, code, message, .. } => (ticket, (code, message.into_owned())),
                ToClient::Finished { ticket, report } => {
                    (ticket, (report.outcome, report.error.map_or(String::new(), |error| error.message)))
                }
                other => return Err(format!("unexpected: {other:?}")),
            };
            if refusal.0 != code || !refusal.1.contains(reason) {
                return Err(format!("P1: {refusal:?}"));
            }
            if refused.insert(ticket, refusal).is_some() {
                return Err(format!("P1: {ticket} is refused twice"));
            }
        }
        Ok(began.elapsed())
    }

    /// It is right, at the first attempt; unless it began on a worker that had to end because of the victim.
    fn judge_canary(&self, case: &Case, number: u64, ended: &Ended) -> Result<(), String> {
        let Report { outcome, attempts, task, error, .. } = &ended.report;
        let is_right = ended.output == canary::answer(&canary::input(self.round, number));
        let message = error.as_ref().map_or("", |error| error.message.as_str());
        let is_fine = match outcome {
            OutcomeCode::Ok => is_right && (*attempts == 1 || (case.goes_on() && task == "canary")),
            OutcomeCode::Indeterminate => {
                case.goes_on() && task == "canary.slow" && message.contains("must not be run twice")
            }
            _ => false,
        };
        if is_fine { Ok(()) } else { Err(format!("P2: canary {number}: {:?}", ended.report)) }
    }

    /// What must not be run twice was not even begun twice.
    fn nothing_has_begun_twice(&self) -> Result<(), String> {
        let marks = std::fs::read_dir(self.marks.path()).map_err(|error| error.to_string())?;
        let names = marks.filter_map(|mark| mark.ok()?.file_name().into_string().ok());
        match names.into_iter().find(|name| name.starts_with(canary::BEGUN_TWICE)) {
            Some(name) => Err(format!("P1: a job that must not be run twice was begun {name}")),
            None => Ok(()),
        }
    }

    /// Bytes that are held for clients.
    pub(crate) fn held(&mut self) -> u64 {
        self.status()["queue"]["bytes"].as_u64().expect("a number")
    }

    /// Files that jobs hold open.
    fn files(&mut self) -> u64 {
        self.status()["queue"]["files"].as_u64().expect("a number")
    }

    /// Not one byte is held for a client, and no file is open.
    ///
    /// # Errors
    /// How many are.
    pub(crate) fn nothing_is_held(&mut self) -> Result<(), String> {
        self.no_more_is_held_than(0)
    }

    /// In the end, so many bytes are held for clients.
    ///
    /// # Errors
    /// How many there are.
    pub(crate) fn no_more_is_held_than(&mut self, most: u64) -> Result<(), String> {
        let began = Instant::now();
        loop {
            match self.held() {
                held if held <= most && self.files() == 0 => return Ok(()),
                held if began.elapsed() > WHOLE_WITHIN => return Err(format!("P5: {held} bytes are held")),
                _ => std::thread::park_timeout(Duration::from_millis(1)),
            }
        }
    }

    /// An outcome that came twice would have come by now: the status was answered after it.
    fn nothing_more_comes(&mut self) -> Result<(), String> {
        match self.client.receive_until(Instant::now()).map_err(|error| error.to_string())? {
            None => Ok(()),
            Some((message, _)) => Err(format!("P1: one message too many: {message:?}")),
        }
    }

    /// Everything is as it was in the beginning, and the books balance.
    ///
    /// # Errors
    /// What is not.
    pub(crate) fn end(mut self) -> Result<(), String> {
        let status = self.status();
        if status["ledger"]["balanced"] != true {
            return Err(format!("the books do not balance: {}", status["jobs"]));
        }
        println!(
            "  loop: lag {} us, slowest callback {}",
            status["event_loop"]["lag_us"], status["event_loop"]["slowest_callback"]
        );
        self.come_back_to_the_baseline()?;
        self.prober.take().map_or(Ok(()), |prober| prober.finish().map(drop))
    }
}

impl Stage {
    fn come_back_to_the_baseline(&self) -> Result<(), String> {
        let began = Instant::now();
        while self.baseline.as_ref().is_some_and(|was| self.look(was.descriptors) != *was) {
            if began.elapsed() > WHOLE_WITHIN {
                return Err(format!("P5: {:?}, and in the beginning {:?}", self.look(0), self.baseline));
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for Stage {
    /// What a supervisor has overlooked is not left to the machine.
    fn drop(&mut self) {
        for pid in self.processes() {
            if !children_of(self.daemon.pid()).contains(&pid) {
                signal(pid, Signal::KILL);
            }
        }
    }
}

fn milliseconds(time: Option<Duration>) -> Option<u64> {
    time.map(|time| time.as_millis() as u64)
}

/// It is right, though it was lost with others: that costs it no attempt. Its output is the number of the start.
fn judge_company(ended: &Ended) -> Result<(), String> {
    let report = &ended.report;
    let is_right = report.outcome == OutcomeCode::Ok && report.attempts == 1;
    let is_fine = is_right && (1..=COMPANY_STARTS_MAX).any(|start| ended.output == start.to_string());
    if is_fine { Ok(()) } else { Err(format!("P2: an innocent job of the batch: {report:?}")) }
}

fn judge(case: &Case, victim: &Ended) -> Result<(), String> {
    let report = &victim.report;
    let message = report.error.as_ref().map_or("", |error| error.message.as_str());
    let is_right = report.outcome == case.outcome
        && message.contains(case.cause)
        && (case.timeout.is_some() || report.attempts == case.attempts);
    if !is_right {
        return Err(format!("P1: {report:?}"));
    }
    if report.outcome != OutcomeCode::Ok && !victim.output.is_empty() {
        return Err(format!("P1: {} bytes of output of a job that failed", victim.output.len()));
    }
    let told = report.receipt.output_bytes;
    let came = victim.parts + victim.output.len();
    if case.stream.is_some_and(|least| victim.parts < least) || (came as u64) != told {
        return Err(format!("P1: {came} bytes of output came, {told} are told: {report:?}"));
    }
    if victim.after > case.bound {
        return Err(format!("P1: told after {:?}, at most {:?}", victim.after, case.bound));
    }
    Ok(())
}
