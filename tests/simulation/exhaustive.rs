//! Exhaustive search of a small scope: two slots, a spare or none, three jobs, and every event that can happen next, up
//! to a fixed depth. The search is breadth first, so the failure that it finds is as short as possible.
//!
//! Two states are the same if the core prints the same, apart from what only counts (the tally, numbers of processes)
//! and apart from time: a moment in the future is its distance from now, a moment in the past is the past. So the
//! search is complete except for decisions that depend on how long ago something was.
//!
//! A core cannot be copied. So a state is stored as the events that lead to it, and is reached again by replaying them.

use crate::choices::mix;
use crate::oracle::{Failure, Oracle, Ran, Submission};
use offload_core::action::{Action, Actions};
use offload_core::config::CoreConfig;
use offload_core::event::{Event, JobRequest};
use offload_core::exit::Exit;
use offload_core::ids::{JobId, Mono, WorkerId};
use offload_core::slots::SlotState;
use offload_core::{Core, Phase};
use offload_protocol::nouns::{TaskOffer, Usage};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// The jobs, in the order in which they come: short and repeatable, not repeatable, with a deadline.
const JOBS: [(&str, Option<Duration>); 3] = [("echo", None), ("charge", None), ("note", Some(MS))];

/// One thing that can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Submit,
    Cancel(JobId),
    Tick,
    Drain,
    Stop,
    SpawnFails(WorkerId),
    Hello(WorkerId),
    Starts(WorkerId),
    Finishes(WorkerId),
    Skips(WorkerId),
    Garbage(WorkerId),
    Closes(WorkerId),
    Exits(WorkerId),
}

/// What a process of the small world can still do.
#[derive(Clone, Debug, Default)]
struct Small {
    has_said_hello: bool,
    is_unheard: bool,
    given: VecDeque<(JobId, u32, bool)>,
    running: Option<(JobId, u32)>,
}

/// One state of the small world.
struct State {
    now: Mono,
    core: Core,
    oracle: Oracle,
    processes: BTreeMap<WorkerId, Small>,
    submitted: usize,
}

impl State {
    fn new(config: &CoreConfig) -> State {
        State {
            now: Mono::default(),
            core: Core::new(config.clone()).expect("a valid configuration"),
            oracle: Oracle::new(config),
            processes: BTreeMap::new(),
            submitted: 0,
        }
    }

    /// The state at the end of this way.
    fn at(config: &CoreConfig, way: &[Next]) -> Result<State, Failure> {
        let mut state = State::new(config);
        state.tell(Event::Tick, true)?;
        way.iter().try_for_each(|next| state.go(*next))?;
        Ok(state)
    }

    /// Everything that can happen next.
    fn choices(&self) -> Vec<Next> {
        let mut choices = Vec::new();
        choices.extend((self.submitted < JOBS.len()).then_some(Next::Submit));
        choices.extend(self.core.jobs().iter().map(|(job, _)| Next::Cancel(job)));
        choices.extend(self.core.next_deadline().map(|_| Next::Tick));
        if self.core.phase() == Phase::Running {
            choices.extend([Next::Drain, Next::Stop]);
        }
        for (&worker, process) in &self.processes {
            choices.push(Next::Exits(worker));
            if process.is_unheard {
                continue;
            }
            choices.extend([Next::Closes(worker), Next::Garbage(worker)]);
            if !process.has_said_hello {
                let slot = self.core.slot_of(worker).map(|slot| &self.core.slots()[slot].state);
                let is_starting = matches!(slot, Some(SlotState::Starting { .. }));
                choices.push(Next::Hello(worker));
                choices.extend(is_starting.then_some(Next::SpawnFails(worker)));
            } else if process.running.is_some() {
                choices.push(Next::Finishes(worker));
            } else if let Some((_, _, is_withdrawn)) = process.given.front() {
                choices.push(Next::Starts(worker));
                choices.extend(is_withdrawn.then_some(Next::Skips(worker)));
            }
        }
        choices
    }

    fn go(&mut self, next: Next) -> Result<(), Failure> {
        match next {
            Next::Submit => self.submit(),
            Next::Cancel(job) => self.tell(Event::Cancel { job }, true),
            Next::Tick => {
                self.now = self.core.next_deadline().map_or(self.now, |due| due.max(self.now));
                self.tell(Event::Tick, true)
            }
            Next::Drain => self.tell(Event::Drain { limit: Some(self.core.config().drain_timeout) }, true),
            Next::Stop => self.tell(Event::Stop, true),
            Next::SpawnFails(worker) => {
                self.processes.remove(&worker);
                self.tell(Event::SpawnFailed { worker, fatal: false, message: String::new() }, true)
            }
            Next::Exits(worker) => {
                self.processes.remove(&worker);
                self.tell(
                    Event::Exited { worker, exit: Exit::Signal(11), last_lines: Vec::new(), usage: None },
                    true,
                )
            }
            Next::Hello(worker) => self.hello(worker),
            Next::Starts(worker) => self.starts(worker),
            Next::Finishes(worker) => self.finishes(worker),
            Next::Skips(worker) => {
                let skipped = self.process(worker).and_then(|process| process.given.pop_front());
                skipped.map_or(Ok(()), |(job, ..)| self.tell(Event::Skipped { worker, job }, true))
            }
            Next::Closes(worker) => {
                self.process(worker).into_iter().for_each(|process| process.is_unheard = true);
                self.tell(Event::Closed { worker }, true)
            }
            Next::Garbage(worker) => {
                self.process(worker).into_iter().for_each(|process| process.is_unheard = true);
                self.tell(Event::Garbled { worker, message: String::new() }, false)
            }
        }
    }

    fn process(&mut self, worker: WorkerId) -> Option<&mut Small> {
        self.processes.get_mut(&worker)
    }

    fn submit(&mut self) -> Result<(), Failure> {
        let (task, deadline) = JOBS[self.submitted];
        self.submitted += 1;
        let request = JobRequest { task: task.to_owned(), input_bytes: 1, deadline, ..JobRequest::default() };
        let mut actions = Actions::new();
        let verdict = self.core.submit(self.now, &request, &mut actions);
        let submission = Submission { wish: self.submitted, request, verdict };
        self.oracle.see_submission(self.now, &submission, &actions, &self.core)?;
        self.check_and_apply(&actions)
    }

    fn hello(&mut self, worker: WorkerId) -> Result<(), Failure> {
        self.process(worker).into_iter().for_each(|process| process.has_said_hello = true);
        let offer = |(name, _)| TaskOffer { idempotent: name == "echo", ..TaskOffer::new(name) };
        self.tell(Event::Hello { worker, tasks: JOBS.map(offer).to_vec(), takes_files: true }, true)
    }

    fn starts(&mut self, worker: WorkerId) -> Result<(), Failure> {
        let Some(process) = self.processes.get_mut(&worker) else { return Ok(()) };
        let Some((job, attempt, _)) = process.given.pop_front() else { return Ok(()) };
        process.running = Some((job, attempt));
        let is_idempotent =
            self.core.jobs().get(job).is_some_and(|job| &**self.core.task_name(job) == "echo");
        self.oracle.really_started(job, is_idempotent)?;
        self.tell(Event::Started { worker, job, attempt }, true)
    }

    fn finishes(&mut self, worker: WorkerId) -> Result<(), Failure> {
        let running = self.process(worker).and_then(|process| process.running.take());
        let Some((job, attempt)) = running else { return Ok(()) };
        self.oracle.really_ended(worker, job, attempt, Ran::Well);
        self.tell(
            Event::Finished {
                worker,
                job,
                attempt,
                run: Duration::from_micros(1),
                usage: Usage::default(),
                output_bytes: 0,
            },
            true,
        )
    }

    fn tell(&mut self, event: Event, is_honest: bool) -> Result<(), Failure> {
        let mut actions = Actions::new();
        let told = event.clone();
        self.core.handle(self.now, event, &mut actions);
        self.oracle.see(self.now, &told, is_honest, &actions, &self.core)?;
        self.check_and_apply(&actions)
    }

    fn check_and_apply(&mut self, actions: &[Action]) -> Result<(), Failure> {
        self.core.check().map_err(|what| Failure { rule: "check", what })?;
        actions.iter().for_each(|action| self.apply(action));
        Ok(())
    }

    fn apply(&mut self, action: &Action) {
        match action {
            Action::Spawn { worker, .. } => {
                self.processes.insert(*worker, Small::default());
            }
            Action::Run { worker, job, attempt, .. } => {
                if let Some(process) = self.processes.get_mut(worker) {
                    process.given.push_back((*job, *attempt, false));
                }
            }
            Action::CancelRun { worker, job } => {
                let process = self.processes.get_mut(worker);
                let given = process.into_iter().flat_map(|process| process.given.iter_mut());
                given.filter(|(id, ..)| id == job).for_each(|(.., is_withdrawn)| *is_withdrawn = true);
            }
            _ => {}
        }
    }

    /// The same number for states between which no difference can be seen from now on.
    fn digest(&self) -> u64 {
        let mut normal = Normal { now: self.now.as_nanos(), hash: 0, word: "", names: Vec::new() };
        let written = write!(normal, "{:?}{:?}{}", self.core, self.processes, self.submitted);
        written.expect("a hash has no end");
        mix(normal.hash)
    }
}

/// Takes in what is printed of a state, without what only counts, with times that are relative and with processes that
/// are named in the order in which they appear.
struct Normal {
    now: u64,
    hash: u64,
    /// The word before the number that comes, if there is one.
    word: &'static str,
    names: Vec<u64>,
}

impl Write for Normal {
    fn write_str(&mut self, piece: &str) -> std::fmt::Result {
        match piece.as_bytes().first() {
            Some(b'0'..=b'9') => {
                self.number(piece.bytes().fold(0, |number: u64, digit| {
                    number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'))
                }));
            }
            Some(b'(' | b'[' | b',' | b' ' | b':') | None => {}
            Some(_) => self.text(piece),
        }
        Ok(())
    }
}

impl Normal {
    fn number(&mut self, number: u64) {
        match self.word {
            "Mono" => self.take(number.saturating_sub(self.now)),
            "WorkerId" => {
                let known = self.names.iter().position(|name| *name == number);
                self.take(known.unwrap_or(self.names.len()) as u64);
                self.names.extend(known.is_none().then_some(number));
            }
            "" => self.take(number),
            _ => {}
        }
    }

    fn text(&mut self, piece: &str) {
        self.word = match piece {
            "Mono" => "Mono",
            "WorkerId" => "WorkerId",
            "last_worker" | "incarnation" | "jobs_done" | "ended" | "accepted" | "starts" | "restarts" => {
                "count"
            }
            _ => "",
        };
        for chunk in piece.as_bytes().chunks(8) {
            self.take(chunk.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
        }
    }

    fn take(&mut self, number: u64) {
        self.hash = (self.hash.rotate_left(7) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// What a search has found.
#[derive(Debug, Default)]
struct Found {
    states: usize,
    steps: usize,
    depth: usize,
    /// Whether there was nothing new to be found any deeper.
    is_complete: bool,
    failure: Option<(Vec<Next>, Failure)>,
}

fn search(config: &CoreConfig, root: &[Next], depth: usize) -> Found {
    let mut seen = BTreeSet::new();
    let mut frontier = vec![root.to_vec()];
    let mut found = Found::default();
    while found.depth < depth && !frontier.is_empty() {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let size = frontier.len().div_ceil(threads);
        let parts = std::thread::scope(|scope| {
            let spawn = |part| scope.spawn(move || expand(config, part));
            let running: Vec<_> = frontier.chunks(size).map(spawn).collect();
            running.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        let mut deeper = Vec::new();
        for (digest, way, failure) in parts.into_iter().flatten() {
            found.steps += 1;
            if let Some(failure) = failure {
                found.failure = Some((way, failure));
                return found;
            }
            if seen.insert(digest) {
                deeper.push(way);
            }
        }
        frontier = deeper;
        found.depth += 1;
    }
    found.states = seen.len();
    found.is_complete = frontier.is_empty();
    found
}

type Step = (u64, Vec<Next>, Option<Failure>);

fn expand(config: &CoreConfig, frontier: &[Vec<Next>]) -> Vec<Step> {
    let mut steps = Vec::new();
    for way in frontier {
        let Ok(state) = State::at(config, way) else { continue };
        for next in state.choices() {
            let way: Vec<Next> = way.iter().copied().chain([next]).collect();
            steps.push(match State::at(config, &way) {
                Ok(state) => (state.digest(), way, None),
                Err(failure) => (0, way, Some(failure)),
            });
        }
    }
    steps
}

fn small(spares: usize) -> CoreConfig {
    CoreConfig {
        workers: 2,
        spares,
        max_attempts: 2,
        max_restarts: 2,
        window: Duration::ZERO,
        ..CoreConfig::default()
    }
}

/// All workers are ready and all jobs have come.
fn warm(spares: usize) -> Vec<Next> {
    let hellos = (1..=2 + spares as u64).map(|worker| Next::Hello(WorkerId(worker)));
    hellos.chain([Next::Submit; JOBS.len()]).collect()
}

#[test]
fn exhaustive() {
    let deeper = std::env::var("OFFLOAD_SIM_DEEPER").map_or(0, |text| text.parse().expect("a number"));
    for (spares, root, depth) in [(0, vec![], 6), (1, vec![], 6), (0, warm(0), 6), (1, warm(1), 4)] {
        let began = Instant::now();
        let found = search(&small(spares), &root, depth + deeper);
        println!(
            "two slots, {spares} spare, {} jobs, after {} events: {} states, {} steps, {} deep{}, in {:.1} s",
            JOBS.len(),
            root.len(),
            found.states,
            found.steps,
            found.depth,
            if found.is_complete { " (all there are)" } else { "" },
            began.elapsed().as_secs_f64()
        );
        if let Some((way, failure)) = found.failure {
            panic!("{} is broken: {} by\n{way:#?}", failure.rule, failure.what);
        }
        assert!(found.states > 1000, "hardly anything was searched");
    }
}
