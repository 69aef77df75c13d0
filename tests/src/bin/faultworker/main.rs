//! A worker whose every misbehaviour is chosen: at start-up by its arguments, in a job by the job's input.
//!
//! ```text
//!   boot ---> hello ---> recv ---> run ---> reply ---> after ---.
//!                          ^        |                           |---> stop
//!                          |        '---> term (at SIGTERM)     |
//!                          '------------------------------------'
//! ```
//!
//! A worker with an argument `tray:ACT` has a tray and looks into it: `tray:look` does no more than that, `tray:ignore` does
//! not look, `tray:shut` shuts it down, `tray:peek` leaves there what it then runs, `tray:keep` never starts the first
//! job that it takes, and any other act is committed when it has taken one.
//!
//! `faultworker [segments] [batches] [counted:FILE] [marks:FOLDER] [PHASE:ACT]...`: with `segments` it can use shared memory, and
//! what its task `shared` does with that is said in [`shared`]; with `batches` it takes several jobs of its task `member` at
//! once, see [`batches`]; `counted` appends a line to FILE at every start; `marks` is where one process leaves word for the next,
//! which ` once` needs. Arguments choose acts of the phases `boot` and `hello`; the others are the input of the tasks `act` and
//! `member` (idempotent) and `charge` (not): `PHASE:ACT[=N][@ATTEMPT][ once]`,
//! see [`fault::Fault`]. What the acts are called is said in [`acts`], [`wrong`] and [`Worker::speak_wrongly`].
//!
//! It speaks the protocol by hand, because the library for workers would not let it misbehave.

mod acts;
mod batches;
mod fault;
mod parts;
mod peek;
mod shared;
mod tracing;
mod wire;
mod wrong;

use acts::sleep_for_ever;
use batches::MEMBER;
use fault::{Fault, Phase};
use offload_protocol::messages::{BATCHES, FILES, PARTS, PREFETCH, SEGMENTS};
use offload_protocol::nouns::{FailureKind, MediaType};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tests::canary::{self, BEGUN, BEGUN_TWICE};
use wire::{Job, Told, Wire};

/// What it offers: name, and whether it is idempotent.
const TASKS: &[(&str, bool)] = &[
    ("act", true),
    ("charge", false),
    ("pid", true),
    ("deaf", true),
    ("canary", true),
    ("canary.slow", false),
    ("blow", true),
    ("shared", false),
    (MEMBER, true),
];

/// The most that a job of `blow` returns (64 MiB).
const BLOWN_UP_MAX: usize = 64 << 20;

/// How long a slow canary takes.
const SLOW: Duration = Duration::from_millis(1);

fn main() -> ExitCode {
    let mut worker = Worker {
        wire: Wire::new(),
        marks: None,
        at_the_end: None,
        has_segments: false,
        has_batches: false,
        tray: None,
    };
    let mut starts = Vec::new();
    for argument in std::env::args().skip(1) {
        if let Some(file) = argument.strip_prefix("counted:") {
            count_start(file);
        } else if let Some(folder) = argument.strip_prefix("marks:") {
            worker.marks = Some(folder.into());
        } else if argument == "segments" {
            worker.has_segments = true;
        } else if argument == "batches" {
            worker.has_batches = true;
        } else if matches!(argument.as_str(), "grandchild" | "escape") {
            acts::be_a_grandchild(&argument);
            return ExitCode::SUCCESS;
        } else {
            // An argument has no spaces of its own.
            starts.extend(Fault::parse(&argument.replace("+once", " once")));
        }
    }
    worker.tray = starts.iter().find(|fault| fault.phase == Phase::Tray).cloned();
    starts.retain(|fault| fault.phase != Phase::Tray);
    let mark = worker.mark("start");
    starts.retain(|fault| fault.is_due(1, mark.as_deref()));
    worker.greet(&starts);
    worker.serve()
}

fn count_start(file: &str) {
    let line = format!("{}\n", std::process::id());
    let opened = std::fs::File::options().create(true).append(true).open(file);
    opened
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .expect("the test gives a path that can be written");
}

/// How a job is answered.
enum Answer {
    Output(MediaType, Vec<u8>),
    Failed(FailureKind, String),
}

/// What is left to do after a wrong was done.
#[derive(PartialEq)]
enum Then {
    /// To go on as if nothing had happened.
    GoOn,
    /// It took the place of what would have been said.
    SayNothing,
}

struct Worker {
    wire: Wire,
    marks: Option<PathBuf>,
    /// What to do when the supervisor says Drain.
    at_the_end: Option<Fault>,
    has_segments: bool,
    has_batches: bool,
    /// What to do with its tray, if it has one.
    tray: Option<Fault>,
}

impl Worker {
    fn mark(&self, name: &str) -> Option<PathBuf> {
        self.marks.as_ref().map(|folder| folder.join(name))
    }

    /// Everything until the hello is said.
    fn greet(&mut self, faults: &[Fault]) {
        let capabilities =
            [(self.tray.is_some(), PREFETCH), (self.has_segments, SEGMENTS), (self.has_batches, BATCHES)];
        let capabilities =
            capabilities.iter().filter(|(has_it, _)| *has_it).fold(PARTS | FILES, |all, (_, bit)| all | bit);
        let hello = wire::introduction(TASKS, capabilities);
        if self.tray.is_some() {
            wire::be_slow();
        }
        if let Some(boot) = faults.iter().find(|fault| fault.phase == Phase::Boot) {
            eprintln!("faultworker: boot:{}", boot.act);
            self.misspeak_at_the_start(boot, &hello);
        }
        let at_hello = faults.iter().find(|fault| fault.phase == Phase::Hello);
        let then = at_hello.map(|fault| self.misspeak_at_the_start(fault, &hello));
        if then != Some(Then::SayNothing) {
            wire::send(&hello);
        }
        if at_hello.is_some_and(|fault| fault.act == "noread") {
            sleep_for_ever();
        }
    }

    fn misspeak_at_the_start(&mut self, fault: &Fault, hello: &[u8]) -> Then {
        if let Some(bytes) = wrong::hello(&fault.act) {
            wire::send(&bytes);
            sleep_for_ever();
        }
        match fault.act.as_str() {
            "noread" => Then::GoOn,
            _ => self.commit(fault, &Job::none(), hello).1,
        }
    }

    fn serve(&mut self) -> ExitCode {
        loop {
            let mark = self.mark("deaf");
            match self.wire.next(|task| {
                if task == "deaf" {
                    be_deaf(mark.as_deref());
                }
            }) {
                Told::Run(job) if job.task == "shared" => self.wire.given.shared.run(&job),
                Told::Batch(count) => self.run_batch(count),
                Told::Run(job) => {
                    self.run(&job);
                    while let Some(job) = self.next_from_tray() {
                        self.run(&job);
                    }
                }
                // It is for a job that has ended.
                Told::Credit(_) => {}
                Told::Drain => {
                    self.end();
                    return ExitCode::SUCCESS;
                }
                Told::Gone => return ExitCode::SUCCESS,
            }
        }
    }

    /// The job in the tray, as it was ordered to treat it.
    fn next_from_tray(&mut self) -> Option<Job> {
        let fault = self.tray.as_ref().filter(|_| !self.wire.has_more())?;
        match fault.act.as_str() {
            "ignore" => return None,
            "shut" => {
                let _ = rustix::net::shutdown(self.wire.given.tray.as_ref()?, rustix::net::Shutdown::Both);
                return None;
            }
            _ => {}
        }
        let job = self.wire.take_from_tray(fault.act == "peek")?;
        let is_due = fault.is_due(job.attempt, self.mark("tray").as_deref());
        match fault.act.as_str() {
            "look" => {}
            // Another look would find the same job again.
            "peek" => self.tray = None,
            "keep" if is_due => sleep_for_ever(),
            act if is_due => _ = acts::commit(act),
            _ => {}
        }
        Some(job)
    }

    fn end(&mut self) {
        let Some(fault) = self.at_the_end.take() else { return };
        let _ = self.commit(&fault, &Job::none(), b"");
        if fault.act == "linger" {
            sleep_for_ever();
        }
    }

    fn run(&mut self, job: &Job) {
        let fault = self.fault_of(job);
        let at = |phase| fault.as_ref().filter(|fault| fault.phase == phase);
        let started = wire::started(job.id, job.attempt);
        let lie = at(Phase::Recv).and_then(|fault| wrong::bytes(&fault.act, fault.number, job));
        if let Some(fault) = at(Phase::Recv).filter(|_| lie.is_none()) {
            let _ = self.commit(fault, job, &started);
        }
        // The lie and Started go out in one write: between two writes this process could be killed for the lie.
        let words = [lie.unwrap_or_default(), started].concat();
        let answer = self.start(job, &words, at(Phase::Run), at(Phase::Term));
        let whole = framed(job, &answer);
        self.reply(job, &whole, at(Phase::Reply));
        if let Some(fault) = at(Phase::After) {
            let _ = self.commit(fault, job, &whole);
        }
        if let Some(fault) = at(Phase::Stop) {
            self.at_the_end = Some(fault.clone());
        }
    }

    /// Says, in these words, that the job runs, and runs it.
    fn start(&mut self, job: &Job, words: &[u8], run: Option<&Fault>, term: Option<&Fault>) -> Answer {
        // Before the word is out: SIGTERM may come right after it.
        let terminated = term.map(|_| acts::terminated());
        wire::send(words);
        self.leave_word_of(job);
        let answer = ordinary_answer(job);
        if let Some(flag) = terminated {
            acts::wait_for_term(&flag);
        }
        let Some(fault) = run.or(term) else { return answer };
        let whole = framed(job, &answer);
        self.commit_and_survive(fault, job, &whole).unwrap_or(answer)
    }

    /// What must not be run twice leaves word that it has begun, and again if it was before.
    fn leave_word_of(&self, job: &Job) {
        let is_of_this_name = |(name, is_idempotent): &&(&str, bool)| *name == job.task && !is_idempotent;
        if !TASKS.iter().any(|task| is_of_this_name(&task)) {
            return;
        }
        let [begun, twice] = [BEGUN, BEGUN_TWICE].map(|name| self.mark(&format!("{name}-{}", job.id)));
        if let (Some(begun), Some(twice)) = (begun, twice)
            && !fault::is_first_at(&begun)
        {
            // Whether a third one was before us does not matter.
            let _ = fault::is_first_at(&twice);
        }
    }

    /// Sends the answer, or whatever was ordered instead.
    fn reply(&mut self, job: &Job, whole: &[u8], fault: Option<&Fault>) {
        match fault.map(|fault| self.commit(fault, job, whole)) {
            Some((Some(failure), _)) => wire::send(&framed(job, &failure)),
            Some((None, Then::SayNothing)) => {}
            Some((None, Then::GoOn)) | None => wire::send(whole),
        }
    }

    fn fault_of(&self, job: &Job) -> Option<Fault> {
        if !matches!(job.task.as_str(), "act" | "charge" | MEMBER) {
            return None;
        }
        let mark = self.mark(&format!("job-{}", job.id));
        let fault = Fault::parse(std::str::from_utf8(&job.input).ok()?.trim_end())?;
        fault.is_due(job.attempt, mark.as_deref()).then_some(fault)
    }

    /// A panic is answered, as by the library for workers.
    fn commit_and_survive(&mut self, fault: &Fault, job: &Job, whole: &[u8]) -> Option<Answer> {
        match catch_unwind(AssertUnwindSafe(|| self.commit(fault, job, whole))) {
            Ok((failure, _)) => failure,
            Err(panic) => {
                let message = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
                Some(Answer::Failed(FailureKind::Panic, message.unwrap_or_default()))
            }
        }
    }

    /// Does what was ordered. `whole` are the bytes that would be sent otherwise.
    fn commit(&mut self, fault: &Fault, job: &Job, whole: &[u8]) -> (Option<Answer>, Then) {
        if let Some(bytes) = wrong::bytes(&fault.act, fault.number, job) {
            wire::send(&bytes);
            let then = if fault.act == "double" { Then::GoOn } else { Then::SayNothing };
            return (None, then);
        }
        if let Some(then) = parts::send(&mut self.wire, fault, job) {
            return match fault.act.strip_prefix("parts-") {
                Some(act) => self.commit(&fault.with_act(act), job, whole),
                None => (None, then),
            };
        }
        if let Some(then) = Worker::speak_wrongly(fault, whole) {
            return (None, then);
        }
        match acts::commit(&fault.act) {
            Some(Ok(())) if matches!(fault.act.as_str(), "close" | "closefds" | "closewrite") => {
                sleep_for_ever()
            }
            Some(Ok(())) => (None, Then::GoOn),
            Some(Err(message)) => (Some(Answer::Failed(FailureKind::AppError, message)), Then::GoOn),
            None => panic!("no such act: {}", fault.act),
        }
    }

    /// The right bytes in a wrong way. `partial-ACT=N` sends the first N of them, then does ACT.
    fn speak_wrongly(fault: &Fault, whole: &[u8]) -> Option<Then> {
        let start = &whole[..fault.number.unwrap_or(12).min(whole.len())];
        match fault.act.as_str() {
            "drip" => wire::drip(whole),
            "fds" => wire::send_with_descriptors(whole),
            "linger" => return Some(Then::GoOn),
            "noreply" => sleep_for_ever(),
            "late" => {
                let terminated = acts::terminated();
                acts::wait_for_term(&terminated);
                wire::send(whole);
            }
            "partial" => {
                wire::send(start);
                sleep_for_ever();
            }
            act => {
                let act = act.strip_prefix("partial-")?;
                wire::send(start);
                let _ = acts::commit(act);
                sleep_for_ever();
            }
        }
        Some(Then::SayNothing)
    }
}

/// Does not return, once: the input of the job is not read.
fn be_deaf(mark: Option<&std::path::Path>) {
    let once = Fault::parse("recv:sleep once").expect("that is one");
    if once.is_due(1, mark) {
        sleep_for_ever();
    }
}

fn ordinary_answer(job: &Job) -> Answer {
    match job.task.as_str() {
        "pid" => Answer::Output(MediaType::JSON, std::process::id().to_string().into_bytes()),
        "deaf" => Answer::Output(MediaType::TEXT, canary::answer(&job.input)),
        "canary" => Answer::Output(MediaType::TEXT, canary::answer(&job.input)),
        "canary.slow" => {
            std::thread::sleep(SLOW);
            Answer::Output(MediaType::TEXT, canary::answer(&job.input))
        }
        // As many bytes as the input says.
        "blow" => {
            let length = std::str::from_utf8(&job.input).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
            Answer::Output(MediaType::OCTET_STREAM, vec![b'x'; BLOWN_UP_MAX.min(length)])
        }
        _ => Answer::Output(MediaType::JSON, job.attempt.to_string().into_bytes()),
    }
}

fn framed(job: &Job, answer: &Answer) -> Vec<u8> {
    match answer {
        Answer::Output(media_type, output) => wire::finished(job.id, job.attempt, media_type.clone(), output),
        Answer::Failed(kind, message) => wire::failed(job, *kind, message),
    }
}
