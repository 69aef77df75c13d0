//! Exhaustive search of small scopes: one slot or two, a spare or none, three jobs, and every event that can happen next, up
//! to a fixed depth. The search is breadth first, so the failure that it finds is as short as possible. In some of these
//! scopes workers have trays: a job is put there, taken by its worker, or wanted back, in every order.
//!
//! Which states are the same is decided in `exhaustive/digest.rs`.
//!
//! A core cannot be copied. So a state is stored as the events that lead to it, and is reached again by replaying them.

mod digest;
mod search;
mod trays;

use crate::oracle::{Failure, Oracle, Ran, Submission};
use digest::digest_of;
use offload_core::action::{Action, Actions};
use offload_core::config::CoreConfig;
use offload_core::event::{Event, JobRequest};
use offload_core::exit::Exit;
use offload_core::ids::{JobId, Mono, WorkerId};
use offload_core::slots::SlotState;
use offload_core::{Core, Phase};
use offload_protocol::nouns::{TaskOffer, Usage};
use search::search;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// The tasks that all workers offer. Only the first one may be run twice.
const TASKS: [&str; 3] = ["echo", "charge", "note"];

/// A job that comes.
#[derive(Debug)]
struct SmallJob {
    task: &'static str,
    deadline: Option<Duration>,
    priority: i8,
}

const fn job(task: &'static str) -> SmallJob {
    SmallJob { task, deadline: None, priority: 0 }
}

/// Repeatable, not repeatable, with a deadline.
const JOBS: [SmallJob; 3] = [job("echo"), job("charge"), SmallJob { deadline: Some(MS), ..job("note") }];

/// The first two show that their tasks are short, so that the others can be put into trays. The last one is more urgent.
const JOBS_FOR_TRAYS: [SmallJob; 5] =
    [job("echo"), job("charge"), job("echo"), job("charge"), SmallJob { priority: 1, ..job("echo") }];

/// What is searched.
#[derive(Debug)]
struct Scope {
    config: CoreConfig,
    jobs: &'static [SmallJob],
    /// How long each job runs. What runs for almost no time is never followed by a job in a tray.
    run: Duration,
    has_trays: bool,
    /// Whether the core settles only when it has to: before anything but a request, a start or an end.
    is_put_off: bool,
}

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
    /// The worker takes the job out of its tray. It does so between two jobs; if one runs, the answer to that is on its way.
    TakesFromTray(WorkerId),
    /// The shell takes the job that is wanted back out of the tray, or finds that the worker has it.
    TakeBack(WorkerId),
    EndOfTurn,
    Settle,
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
    tray: Option<(JobId, u32)>,
    /// What the shell was told to take out of the tray and has not.
    wanted_back: Option<JobId>,
    /// It has taken a job out of its tray, and its answer to the one before has not come.
    is_answer_on_its_way: bool,
    running: Option<(JobId, u32)>,
}

/// One state of the small world.
struct State<'a> {
    scope: &'a Scope,
    now: Mono,
    core: Core,
    oracle: Oracle,
    processes: BTreeMap<WorkerId, Small>,
    submitted: usize,
}

impl State<'_> {
    fn new(scope: &Scope) -> State<'_> {
        State {
            scope,
            now: Mono::default(),
            core: Core::new(scope.config.clone()).expect("a valid configuration"),
            oracle: Oracle::new(&scope.config),
            processes: BTreeMap::new(),
            submitted: 0,
        }
    }

    /// The state at the end of this way.
    fn at<'a>(scope: &'a Scope, way: &[Next]) -> Result<State<'a>, Failure> {
        let mut state = State::new(scope);
        state.tell(Event::Tick, true)?;
        way.iter().try_for_each(|next| state.go(*next))?;
        Ok(state)
    }

    /// Everything that can happen next.
    fn choices(&self) -> Vec<Next> {
        let mut choices = Vec::new();
        choices.extend((self.submitted < self.scope.jobs.len()).then_some(Next::Submit));
        choices.extend(self.core.jobs().iter().map(|(job, _)| Next::Cancel(job)));
        choices.extend(self.core.next_deadline().map(|_| Next::Tick));
        choices.extend((!self.core.is_settled()).then_some(Next::Settle));
        if self.core.phase() == Phase::Running {
            choices.extend([Next::Drain, Next::Stop]);
        }
        choices.extend(self.core.has_untaken().then_some(Next::EndOfTurn));
        for (&worker, process) in &self.processes {
            choices.push(Next::Exits(worker));
            choices.extend(process.wanted_back.map(|_| Next::TakeBack(worker)));
            choices.extend(process.tray.map(|_| Next::TakesFromTray(worker)));
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
                // The rule of the oracle that a job runs only once does not know workers that begin one after they were given up.
                let is_known = self.core.slot_of(worker).is_some() || !self.scope.is_put_off;
                choices.extend(is_known.then_some(Next::Starts(worker)));
                choices.extend(is_withdrawn.then_some(Next::Skips(worker)));
            }
        }
        let may_be_unsettled = |next: &Next| {
            use Next::{Closes, Exits, Finishes, Settle, Starts, Submit};
            matches!(next, Settle | Submit | Starts(_) | Finishes(_) | Closes(_) | Exits(_))
        };
        choices.retain(|next| self.core.is_settled() || may_be_unsettled(next));
        choices
    }

    fn go(&mut self, next: Next) -> Result<(), Failure> {
        match next {
            Next::Submit => self.submit(),
            Next::Cancel(job) => self.tell(Event::Cancel { job }, true),
            Next::Tick => {
                self.take_all_back()?;
                self.deliver_answers()?;
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
                self.tell(Event::Closed { worker }, true)?;
                self.take_rest_back(worker)?;
                self.processes.remove(&worker);
                self.tell(
                    Event::Exited { worker, exit: Exit::Signal(11), last_lines: Vec::new(), usage: None },
                    true,
                )
            }
            Next::Hello(worker) => self.hello(worker),
            Next::Starts(worker) => self.starts(worker),
            Next::Finishes(worker) => self.finishes(worker),
            Next::TakesFromTray(worker) => {
                let process = self.process(worker);
                process.into_iter().for_each(Small::take_from_tray);
                Ok(())
            }
            Next::TakeBack(worker) => self.take_back(worker),
            Next::EndOfTurn => self.tell(Event::EndOfTurn, true),
            Next::Settle => self.settle(),
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
        let &SmallJob { task, deadline, priority } = &self.scope.jobs[self.submitted];
        self.submitted += 1;
        let task = task.to_owned();
        let request = JobRequest { task, input_bytes: 1, deadline, priority, ..JobRequest::default() };
        let mut actions = Actions::new();
        let (was_settled, is_settled) = (self.core.is_settled(), !self.scope.is_put_off);
        let verdict = match is_settled {
            true => self.core.submit(self.now, &request, &mut actions),
            false => self.core.submit_unsettled(self.now, &request, &mut actions),
        };
        let submission = Submission { wish: self.submitted, request, verdict, was_settled, is_settled };
        self.oracle.see_submission(self.now, &submission, &actions, &self.core)?;
        self.check_and_apply(&actions)
    }

    fn hello(&mut self, worker: WorkerId) -> Result<(), Failure> {
        self.process(worker).into_iter().for_each(|process| process.has_said_hello = true);
        let offer = |name| TaskOffer { idempotent: name == "echo", ..TaskOffer::new(name) };
        self.tell(Event::Hello { worker, tasks: TASKS.map(offer).to_vec(), takes_files: true }, true)?;
        if self.scope.has_trays { self.tell(Event::TrayMade { worker }, true) } else { Ok(()) }
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
        let running = self.process(worker).and_then(Small::end_run);
        let Some((job, attempt)) = running else { return Ok(()) };
        self.oracle.really_ended(worker, job, attempt, Ran::Well);
        if self.scope.has_trays {
            // The core believes no run that took longer than it was there.
            self.now = self.now + self.scope.run;
        }
        self.tell(
            Event::Finished {
                worker,
                job,
                attempt,
                run: self.scope.run,
                usage: Usage::default(),
                output_bytes: 0,
            },
            true,
        )
    }

    fn settle(&mut self) -> Result<(), Failure> {
        let mut actions = Actions::new();
        self.core.settle(self.now, &mut actions);
        self.oracle.see_settled(self.now, &actions, &self.core)?;
        self.check_and_apply(&actions)
    }

    fn tell(&mut self, event: Event, is_honest: bool) -> Result<(), Failure> {
        if !self.core.is_settled() && !event.may_be_settled_later() {
            self.settle()?;
        }
        let mut actions = Actions::new();
        let told = event.clone();
        match self.scope.is_put_off {
            true => self.core.handle_unsettled(self.now, event, &mut actions),
            false => self.core.handle(self.now, event, &mut actions),
        }
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
            Action::Prefetch { worker, job, attempt } => {
                if let Some(process) = self.processes.get_mut(worker) {
                    process.tray = Some((*job, *attempt));
                }
            }
            Action::TakeBack { worker, job } => {
                if let Some(process) = self.processes.get_mut(worker) {
                    process.wanted_back = Some(*job);
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
        digest_of(self.now, &format_args!("{:?}{:?}{}", self.core, self.processes, self.submitted))
    }
}

fn small(workers: usize, spares: usize) -> CoreConfig {
    CoreConfig {
        workers,
        spares,
        max_attempts: 2,
        max_restarts: 2,
        window: Duration::ZERO,
        ..CoreConfig::default()
    }
}

fn without_trays(spares: usize) -> Scope {
    Scope {
        config: small(2, spares),
        jobs: &JOBS,
        run: Duration::from_micros(1),
        has_trays: false,
        is_put_off: false,
    }
}

fn with_trays(workers: usize) -> Scope {
    // No slot is reserved.
    let config = CoreConfig { short_slots: Some(0), ..small(workers, 0) };
    Scope { config, jobs: &JOBS_FOR_TRAYS, run: MS, has_trays: true, is_put_off: false }
}

fn hellos(scope: &Scope) -> impl Iterator<Item = Next> + use<> {
    let workers = scope.config.workers + scope.config.spares;
    (1..=workers as u64).map(|worker| Next::Hello(WorkerId(worker)))
}

/// All workers are ready and all jobs have come.
fn warm(scope: &Scope) -> Vec<Next> {
    hellos(scope).chain([Next::Submit; JOBS.len()]).collect()
}

/// All workers are ready, both tasks are known to be short, and one job runs. If there is one worker, another job lies in its tray.
fn warm_with_trays(scope: &Scope) -> Vec<Next> {
    let first = WorkerId(1);
    let learn = [Next::Submit, Next::Starts(first), Next::Finishes(first)];
    let both = [Next::Submit, Next::Starts(first), Next::Submit];
    hellos(scope).chain(learn).chain(learn).chain(both).collect()
}

fn search_and_tell(scope: &Scope, root: &[Next], depth: usize) {
    let deeper = std::env::var("OFFLOAD_SIM_DEEPER").map_or(0, |text| text.parse().expect("a number"));
    let began = Instant::now();
    let found = search(scope, root, depth + deeper);
    println!(
        "{} slots, {} spare, {} jobs{}, after {} events: {} states, {} steps, {} deep{}, in {:.1} s",
        scope.config.workers,
        scope.config.spares,
        scope.jobs.len(),
        match (scope.has_trays, scope.is_put_off) {
            (true, true) => ", trays, settling put off",
            (true, false) => ", trays",
            (false, true) => ", settling put off",
            (false, false) => "",
        },
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

#[test]
fn exhaustive() {
    for (spares, depth) in [(0, 5), (1, 4)] {
        let scope = without_trays(spares);
        search_and_tell(&scope, &[], 6);
        search_and_tell(&scope, &warm(&scope), depth);
    }
}

#[test]
fn exhaustive_when_settling_is_put_off() {
    let scope = Scope { is_put_off: true, ..without_trays(0) };
    let mut ready = hellos(&scope).collect::<Vec<_>>();
    ready.extend([Next::Submit, Next::Submit, Next::Settle]);
    search_and_tell(&scope, &ready, 5);
    let scope = Scope { is_put_off: true, ..with_trays(1) };
    let first = WorkerId(1);
    let learn = [Next::Submit, Next::Settle, Next::Starts(first), Next::Finishes(first), Next::Settle];
    let both = [Next::Submit, Next::Settle, Next::Starts(first), Next::Submit, Next::Settle];
    let ready: Vec<_> = hellos(&scope).chain(learn).chain(learn).chain(both).collect();
    search_and_tell(&scope, &ready, 5);
}

#[test]
fn exhaustive_with_trays() {
    for (workers, depth) in [(1, 5), (2, 4)] {
        let scope = with_trays(workers);
        search_and_tell(&scope, &warm_with_trays(&scope), depth);
    }
}

/// A search of trays that never sees one proves nothing.
#[test]
fn the_small_worlds_with_trays_put_jobs_there_and_want_them_back() {
    let scope = with_trays(1);
    let mut way = warm_with_trays(&scope);
    let is_in_tray = |state: &State<'_>| state.processes.values().any(|process| process.tray.is_some());
    assert!(is_in_tray(&State::at(&scope, &way).expect("no rule is broken")));
    way.push(Next::Cancel(JobId(4)));
    let state = State::at(&scope, &way).expect("no rule is broken");
    assert!(state.processes.values().any(|process| process.wanted_back == Some(JobId(4))));
    way.push(Next::TakeBack(WorkerId(1)));
    assert!(!is_in_tray(&State::at(&scope, &way).expect("no rule is broken")));
}
