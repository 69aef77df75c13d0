//! Worlds of jobs that run together: small ones, in which nearly all jobs are of a task in batches, some of them end their worker
//! or never return, and clients cancel them, leave, or have tight limits. In quiet worlds nothing else goes wrong, so every
//! innocent job has to end well. In the others workers also die, stop and lie by themselves.
//!
//! What must hold is in `oracle/batches.rs`, which keeps its own books.

use crate::choices::{Choices, Tape};
use crate::oracle::{BatchBooks, Failure};
use offload_core::Core;
use offload_core::action::{Action, Actions, Kill};
use offload_core::batches::BatchLimits;
use offload_core::config::CoreConfig;
use offload_core::event::{Event, JobRequest};
use offload_core::exit::Exit;
use offload_core::ids::{JobId, Mono, WorkerId};
use offload_protocol::nouns::{Batching, FailureKind, TaskOffer, Usage};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// The streams of choices of these worlds begin here.
const TAPE: u64 = 1 << 40;

/// Most steps until everything has ended.
const STEPS_MAX: usize = 4000;

/// What a job does to the batch that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// It returns.
    Good,
    /// It ends its worker.
    Crashes,
    /// It never returns.
    Hangs,
}

/// A worker and what it was given.
#[derive(Debug, Default)]
struct Fake {
    given: Vec<(JobId, u32)>,
    /// How many of these go together.
    batch: u32,
    /// Those that have begun.
    begun: BTreeSet<JobId>,
    is_stopped: bool,
}

/// See the module's documentation.
struct World {
    choices: Choices,
    tape: Tape,
    /// Whether the core settles later is drawn from here.
    turns: Tape,
    core: Core,
    now: Mono,
    books: BatchBooks,
    deeds: BTreeMap<JobId, Deed>,
    workers: BTreeMap<WorkerId, Fake>,
    soon: VecDeque<Event>,
    is_quiet: bool,
    trace: Vec<String>,
}

/// Runs the world of a seed.
///
/// # Errors
/// The rule that was broken, with the last events.
pub(crate) fn run(seed: u64) -> Result<(), Failure> {
    let mut choices = Choices::new(seed, BTreeSet::new());
    let mut tape = Tape::new(TAPE);
    let (offered, config) = knobs(&mut choices, &mut tape);
    let is_quiet = choices.chance(&mut tape, 600);
    let books = BatchBooks::new(&config, offered, is_quiet);
    let core = Core::new(config).expect("the knobs are turned to valid places");
    let mut world = World {
        choices,
        tape,
        turns: Tape::new(TAPE + 1),
        core,
        now: Mono::default(),
        books,
        deeds: BTreeMap::new(),
        workers: BTreeMap::new(),
        soon: VecDeque::new(),
        is_quiet,
        trace: Vec::new(),
    };
    world.live().map_err(|failure| Failure {
        what: format!("{}\n{}", failure.what, world.trace.join("\n")),
        ..failure
    })
}

fn knobs(choices: &mut Choices, tape: &mut Tape) -> (Batching, CoreConfig) {
    let offered =
        Batching { max: choices.pick(tape, &[8, 2, 3, 32]), wait_us: choices.pick(tape, &[2000, 0, 20_000]) };
    let limits = BatchLimits {
        max: choices.chance(tape, 200).then(|| choices.pick(tape, &[2, 5])),
        wait: choices.chance(tape, 200).then_some(MS),
    };
    let config = CoreConfig {
        workers: choices.pick(tape, &[1, 2, 3]),
        spares: choices.pick(tape, &[0, 1]),
        short_slots: Some(0),
        max_attempts: choices.pick(tape, &[3, 1, 2]),
        run_timeout: choices.pick(tape, &[1000, 50]) * MS,
        batches: [("tile".to_owned(), limits)].into(),
        ..CoreConfig::default()
    };
    (offered, config)
}

impl World {
    fn live(&mut self) -> Result<(), Failure> {
        self.tell(Event::Tick)?;
        for _ in 0..self.choices.range(&mut self.tape, 20, 150) {
            self.step()?;
        }
        // From now on only the guilty jobs do wrong.
        let stopped: Vec<WorkerId> = self.workers.keys().copied().collect();
        for worker in stopped {
            self.workers.entry(worker).and_modify(|fake| fake.is_stopped = false);
            self.tell(Event::Continued { worker })?;
        }
        if self.choices.chance(&mut self.tape, 300) {
            self.settle()?;
            self.books.drained();
            self.tell(Event::Drain { limit: None })?;
        }
        let mut steps = 0;
        while !self.core.jobs().is_empty() {
            steps += 1;
            if steps > STEPS_MAX {
                let what = format!("jobs are left after {STEPS_MAX} steps: {:?}", self.core.jobs());
                return Err(Failure { rule: "B8", what });
            }
            match self.busy().is_empty() || self.choices.chance(&mut self.tape, 100) {
                true => self.pass_time()?,
                false => self.work(false)?,
            }
        }
        self.books.at_the_end(&self.deeds)
    }

    fn step(&mut self) -> Result<(), Failure> {
        if !self.core.is_settled() && self.choices.chance(&mut self.turns, 300) {
            self.settle()?;
        }
        match self.choices.range(&mut self.tape, 0, 99) {
            0..40 => self.submit(),
            40..48 => self.leave(),
            48..65 => self.pass_time(),
            65..67 if !self.is_quiet => self.mishap(),
            _ => self.work(true),
        }
    }

    fn submit(&mut self) -> Result<(), Failure> {
        let (choices, tape) = (&mut self.choices, &mut self.tape);
        let is_tile = !choices.chance(tape, 120);
        let request = JobRequest {
            task: if is_tile { "tile" } else { "sum" }.to_owned(),
            client: choices.pick(tape, &["ann", "bob", "cy"]).into(),
            input_bytes: if choices.chance(tape, 40) { 1 << 20 } else { 10 },
            has_file: choices.chance(tape, 30),
            stream: choices.chance(tape, 30),
            priority: if choices.chance(tape, 100) { choices.pick(tape, &[3, -3]) } else { 0 },
            timeout: choices.chance(tape, 120).then_some(30 * MS),
            deadline: choices.chance(tape, 60).then(|| choices.pick(tape, &[40, 3, 400]) * MS),
            attempts: choices.chance(tape, 250).then(|| choices.pick(tape, &[1, 2])),
            ..JobRequest::default()
        };
        let deed = match choices.range(tape, 0, 99) {
            0..6 => Deed::Crashes,
            6..9 => Deed::Hangs,
            _ => Deed::Good,
        };
        let mut actions = Actions::new();
        let verdict = match self.is_put_off() {
            true => self.core.submit_unsettled(self.now, &request, &mut actions),
            false => self.core.submit(self.now, &request, &mut actions),
        };
        let Ok(accepted) = verdict else { return self.apply(None, actions) };
        self.trace.push(format!("{:?} {} is {deed:?}: {request:?}", self.now, accepted.job));
        self.deeds.insert(accepted.job, deed);
        self.books.accepted(self.now, accepted.job, &request, deed);
        self.apply(None, actions)?;
        self.tell_what_follows()
    }

    /// A client cancels one of its jobs, or is gone.
    fn leave(&mut self) -> Result<(), Failure> {
        let live: Vec<JobId> = self.core.jobs().iter().map(|(id, _)| id).collect();
        if live.is_empty() {
            return Ok(());
        }
        let job = self.choices.pick(&mut self.tape, &live);
        self.books.unwanted(job);
        match self.choices.chance(&mut self.tape, 300) {
            true => self.tell(Event::Abandoned { job }),
            false => self.tell(Event::Cancel { job }),
        }
    }

    /// Until the next thing is due, or for a short while.
    fn pass_time(&mut self) -> Result<(), Failure> {
        self.settle()?;
        let pause = self.choices.pick(&mut self.tape, &[MS / 2, 5 * MS, MS / 100, 40 * MS]);
        let end = self.now + pause;
        match self.core.next_deadline().filter(|due| *due <= end || self.busy().is_empty()) {
            Some(due) => {
                self.now = self.now.max(due);
                self.tell(Event::Tick)
            }
            None => {
                self.now = end;
                Ok(())
            }
        }
    }

    fn busy(&self) -> Vec<WorkerId> {
        let is_busy = |fake: &Fake| {
            let can_go_on = |(job, _): &(JobId, u32)| self.deeds[job] != Deed::Hangs;
            let hangs = fake.begun.iter().any(|job| self.deeds[job] == Deed::Hangs);
            !fake.is_stopped && fake.given.iter().any(can_go_on) && !hangs
                || (!fake.is_stopped && fake.begun.is_empty() && !fake.given.is_empty())
        };
        self.workers.iter().filter(|(_, fake)| is_busy(fake)).map(|(worker, _)| *worker).collect()
    }

    /// A worker begins what it was given, answers a job, or dies of one.
    fn work(&mut self, may_answer_first: bool) -> Result<(), Failure> {
        let busy = self.busy();
        if busy.is_empty() {
            return self.pass_time();
        }
        let worker = self.choices.pick(&mut self.tape, &busy);
        let fake = self.workers.get_mut(&worker).expect("it lives");
        if fake.begun.is_empty() {
            let count = if fake.batch > 0 { fake.given.len() } else { 1 };
            let begun = fake.given.iter().take(count).map(|(job, _)| *job);
            fake.begun = begun.collect();
            let (job, attempt) = fake.given[0];
            return self.tell(Event::Started { worker, job, attempt });
        }
        self.now = self.now + self.choices.delay(&mut self.tape, 2 * MS);
        let crashes = self.workers[&worker].begun.iter().any(|job| self.deeds[job] == Deed::Crashes);
        let answers_first = may_answer_first && self.choices.chance(&mut self.tape, 300);
        let good: Vec<JobId> =
            self.workers[&worker].begun.iter().copied().filter(|job| self.deeds[job] == Deed::Good).collect();
        if crashes && (!answers_first || good.is_empty()) {
            self.books.died_of_a_job();
            return self.die(worker, Exit::Signal(11));
        }
        let job = self.choices.pick(&mut self.tape, &good);
        self.answer(worker, job)
    }

    fn answer(&mut self, worker: WorkerId, job: JobId) -> Result<(), Failure> {
        let fake = self.workers.get_mut(&worker).expect("it lives");
        let place = fake.given.iter().position(|(given, _)| *given == job).expect("it has begun");
        let (_, attempt) = fake.given.remove(place);
        fake.begun.remove(&job);
        if fake.given.is_empty() {
            fake.batch = 0;
        }
        let (run, usage) = (MS / 10, Usage::default());
        self.books.answered(job);
        match self.choices.chance(&mut self.tape, 100) {
            true => {
                let (kind, message) = (FailureKind::AppError, "oh".to_owned());
                self.tell(Event::Failed { worker, job, attempt, run, kind, message, usage })
            }
            false => self.tell(Event::Finished { worker, job, attempt, run, usage, output_bytes: 10 }),
        }
    }

    /// Something that no job is at fault for.
    fn mishap(&mut self) -> Result<(), Failure> {
        let workers: Vec<WorkerId> = self.workers.keys().copied().collect();
        if workers.is_empty() {
            return Ok(());
        }
        let worker = self.choices.pick(&mut self.tape, &workers);
        self.books.mishap(worker);
        let of_batch = |fake: &Fake| fake.given.first().copied().filter(|_| fake.batch > 0);
        match self.choices.range(&mut self.tape, 0, 4) {
            0 => self.die(worker, Exit::Signal(9)),
            1 => {
                self.workers.entry(worker).and_modify(|fake| fake.is_stopped = true);
                self.tell(Event::Stopped { worker })
            }
            2 => self.tell(Event::Garbled { worker, message: "garbage".to_owned() }),
            3 if let Some((job, attempt)) = of_batch(&self.workers[&worker]) => {
                self.tell(Event::NotBegun { worker, job, attempt })
            }
            _ => {
                let job = JobId(self.choices.range(&mut self.tape, 1, 20));
                let (run, usage) = (MS, Usage::default());
                self.tell(Event::Finished { worker, job, attempt: 77, run, usage, output_bytes: 1 })
            }
        }
    }

    fn die(&mut self, worker: WorkerId, exit: Exit) -> Result<(), Failure> {
        if self.workers.remove(&worker).is_none() {
            return Ok(());
        }
        self.soon.push_back(Event::Closed { worker });
        self.soon.push_back(Event::Exited { worker, exit, last_lines: Vec::new(), usage: None });
        self.tell_what_follows()
    }

    fn tell(&mut self, event: Event) -> Result<(), Failure> {
        self.soon.push_back(event);
        self.tell_what_follows()
    }

    fn tell_what_follows(&mut self) -> Result<(), Failure> {
        while let Some(event) = self.soon.pop_front() {
            let mut actions = Actions::new();
            if !event.may_be_settled_later() {
                self.settle()?;
            }
            self.trace.push(format!("{:?} {event:?}", self.now));
            match self.is_put_off() {
                true => self.core.handle_unsettled(self.now, event.clone(), &mut actions),
                false => self.core.handle(self.now, event.clone(), &mut actions),
            }
            self.apply(Some(&event), actions)?;
        }
        Ok(())
    }

    /// Whether the core is not to settle yet.
    fn is_put_off(&mut self) -> bool {
        !self.core.is_settled() || self.choices.chance(&mut self.turns, 500)
    }

    fn settle(&mut self) -> Result<(), Failure> {
        if self.core.is_settled() {
            return Ok(());
        }
        let mut actions = Actions::new();
        self.trace.push(format!("{:?} settled", self.now));
        self.core.settle(self.now, &mut actions);
        self.apply(None, actions)
    }

    fn apply(&mut self, event: Option<&Event>, actions: Actions) -> Result<(), Failure> {
        self.trace.extend(actions.iter().map(|action| format!("    {action:?}")));
        self.books.see(self.now, event, &actions)?;
        self.core.check().map_err(|what| Failure { rule: "check", what })?;
        for action in actions {
            match action {
                Action::Spawn { worker, .. } => {
                    self.workers.insert(worker, Fake::default());
                    let tasks = self.books.offers();
                    self.soon.push_back(Event::Hello { worker, tasks, takes_files: true });
                }
                Action::Batch { worker, jobs } => {
                    self.workers.entry(worker).and_modify(|fake| fake.batch = jobs);
                }
                Action::Run { worker, job, attempt, .. } => {
                    self.workers.entry(worker).and_modify(|fake| fake.given.push((job, attempt)));
                }
                Action::Kill { worker, how: Kill::Kill } => self.die_soon(worker, Exit::Signal(9)),
                Action::Kill { worker, how: Kill::Term } => self.die_soon(worker, Exit::Signal(15)),
                Action::Dismiss { worker } => self.die_soon(worker, Exit::Code(0)),
                _ => {}
            }
        }
        match self.core.is_settled() {
            true => self.books.judge_idleness(self.now, &self.core),
            false => Ok(()),
        }
    }

    fn die_soon(&mut self, worker: WorkerId, exit: Exit) {
        if self.workers.remove(&worker).is_some() {
            self.soon.push_back(Event::Exited { worker, exit, last_lines: Vec::new(), usage: None });
        }
    }
}

/// What the workers of these worlds offer.
pub(crate) fn offers(batching: Batching) -> Vec<TaskOffer<'static>> {
    let tile = TaskOffer { idempotent: true, batching: Some(batching), ..TaskOffer::new("tile") };
    vec![tile, TaskOffer { idempotent: true, ..TaskOffer::new("sum") }]
}
