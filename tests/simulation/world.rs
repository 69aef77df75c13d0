//! The simulated world around the core: a clock that jumps from event to event, an agenda of what will happen, and the fake
//! processes. It also does what the shell would do.

use crate::choices::{Choice, Choices, Tape, mix};
use crate::coverage::Coverage;
use crate::faults::{Fault, FaultPlan};
use crate::oracle::{Failure, Oracle, Ran};
use crate::process::{Act, FakeProcess, Said, ToFake};
use crate::script::{FIRST_GOOD, Guilt, Script};
use launches::Launch;
use offload_core::action::Action;
use offload_core::event::Event;
use offload_core::here::RanHere;
use offload_core::ids::{JobId, Mono, Version, WorkerId};
use offload_core::ledger::Holding;
use offload_core::{Core, Phase};
use parts::Readers;
use settling::Turns;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

mod deliveries;
mod drains;
mod here;
mod launches;
mod parts;
mod settling;
mod stops;
mod trace;
mod trays;
mod wishes;

/// After the last fault, everything has to work again within this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Most events at one moment. Otherwise a loop of events that take no time would go on for ever.
const EVENTS_OF_A_MOMENT_MAX: u32 = 5000;

/// A short while.
const MOMENT: Duration = Duration::from_millis(1);

/// Most events of one run.
const EVENTS_MAX: u64 = 200_000;

/// Something on the agenda.
#[derive(Clone, Debug)]
pub(crate) enum Thing {
    /// The request of the wish of this number arrives.
    Wish(usize),
    /// Something happens to a process.
    Act(WorkerId, Act),
    /// The next message of a process reaches the core.
    Deliver(WorkerId),
    /// A process that has ended is reaped.
    Bury(WorkerId),
    /// A process has started, or could not be.
    Arrive(WorkerId),
    /// The shell takes a job out of a tray.
    TakeBack(WorkerId, JobId),
    /// The shell has read everything that workers have sent until now.
    EndOfTurn,
    /// The core is told of a process that is gone.
    Haunt(Event),
    /// A client has read an output, or is disconnected: the shell releases the bytes.
    OutputRead(Arc<str>, u64),
    /// The shell has done a job itself.
    RanHere(JobId, RanHere),
    /// The reader of a stream takes the next part.
    ReadPart(JobId),
    /// An input of a client has arrived completely, or is given up.
    ArrivalEnds(Arc<str>, u64),
}

struct Entry {
    at: Mono,
    tie: u64,
    thing: Thing,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        (self.at, self.tie) == (other.at, other.tie)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.at, self.tie).cmp(&(other.at, other.tie))
    }
}

/// The part of the world that processes use.
pub(crate) struct Outside {
    /// The time.
    pub(crate) now: Mono,
    /// The random choices.
    pub(crate) choices: Choices,
    /// Which faults happen, and how often.
    pub(crate) plan: FaultPlan,
    /// The oracle.
    pub(crate) oracle: Oracle,
    /// The longest output, in bytes.
    pub(crate) output_max: u64,
    agenda: BinaryHeap<Reverse<Entry>>,
    scheduled: u64,
    seed: u64,
    /// A rule that was broken by something other than an event. It is reported at the next event.
    complaint: Option<Failure>,
}

impl Outside {
    /// Puts something on the agenda. Things at the same moment happen in random order.
    pub(crate) fn schedule(&mut self, at: Mono, thing: Thing) {
        self.scheduled += 1;
        let tie = mix(self.seed ^ self.scheduled);
        self.agenda.push(Reverse(Entry { at, tie, thing }));
    }

    /// A worker has really begun a job.
    pub(crate) fn started(&mut self, job: JobId, is_idempotent: bool) {
        let complaint = self.oracle.really_started(job, is_idempotent).err();
        self.complaint = self.complaint.take().or(complaint);
    }

    /// A worker has really done a job.
    pub(crate) fn ended(&mut self, worker: WorkerId, job: JobId, attempt: u32, how: Ran) {
        self.oracle.really_ended(worker, job, attempt, how);
    }
}

/// How a run is made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// The seed of everything.
    pub(crate) seed: u64,
    /// Choices that are replaced by the harmless ones.
    pub(crate) harmless: BTreeSet<Choice>,
    /// Wishes that are left out.
    pub(crate) left_out: BTreeSet<usize>,
    /// Whether each event is written down.
    pub(crate) with_trace: bool,
    /// Whether a digest of all events and actions is taken.
    pub(crate) with_digest: bool,
}

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// The rule that was broken, if one was.
    pub(crate) failure: Option<Failure>,
    /// Number of events that the core was told.
    pub(crate) events: u64,
    /// Virtual time.
    pub(crate) time: Mono,
    /// A digest of all events and actions.
    pub(crate) digest: u64,
    /// A digest of the core at the end, if digests are taken.
    pub(crate) core_digest: u64,
    /// Which states, answers and outcomes were seen.
    pub(crate) coverage: Coverage,
    /// One line for each event.
    pub(crate) trace: Vec<String>,
    /// The choices that were not harmless.
    pub(crate) bold: Vec<Choice>,
    /// How many wishes the script has.
    pub(crate) wishes: usize,
}

impl Verdict {
    /// A result of which only the broken rule is known.
    pub(crate) fn of_panic(failure: Failure) -> Verdict {
        Verdict { failure: Some(failure), ..Verdict::default() }
    }
}

/// See the module's documentation.
pub(crate) struct World {
    out: Outside,
    core: Core,
    /// Processes that are being started.
    launches: BTreeMap<WorkerId, Launch>,
    processes: BTreeMap<WorkerId, FakeProcess>,
    script: Script,
    /// The job of each wish that is one.
    job_of: BTreeMap<usize, JobId>,
    task_of: BTreeMap<JobId, usize>,
    guilt_of: BTreeMap<JobId, Guilt>,
    client_of: BTreeMap<JobId, Arc<str>>,
    readers: Readers,
    /// Jobs that the shell does itself.
    here: BTreeSet<JobId>,
    soon: VecDeque<Said>,
    /// What the shell was told to take out of trays and has not.
    wanted_back: Vec<(WorkerId, JobId)>,
    is_turn_ending: bool,
    /// The newest version of the programs.
    on_disk: Version,
    /// When the core wants a tick and when it gets it.
    wake: Option<(Mono, Mono)>,
    /// Until when the shell is stopped, or was.
    stopped_until: Mono,
    tape: Tape,
    turns: Turns,
    moment: (Mono, u32),
    is_calm: bool,
    verdict: Verdict,
    plan: Plan,
}

impl World {
    /// Runs a world from the beginning to the end.
    pub(crate) fn run(plan: Plan) -> Verdict {
        let mut world = World::new(plan);
        world.verdict.failure = world.live().err();
        world.verdict.time = world.out.now;
        world.verdict.bold = std::mem::take(&mut world.out.choices.bold);
        if world.plan.with_digest {
            world.verdict.core_digest = world.core.digest();
        }
        world.verdict
    }

    fn new(plan: Plan) -> World {
        let mut choices = Choices::new(plan.seed, plan.harmless.clone());
        let script = Script::new(&mut choices, &mut Tape::new(1));
        let faults = match script.contention {
            Some(_) => FaultPlan::none(),
            None if script.is_mixed => FaultPlan::of_others(&mut choices, &mut Tape::new(2)),
            None if script.is_crowded => FaultPlan::swarm(&mut choices, &mut Tape::new(2)).with_good_starts(),
            None => FaultPlan::swarm(&mut choices, &mut Tape::new(2)),
        };
        let mut oracle = Oracle::new(&script.config);
        script.contention.into_iter().for_each(|head_start| oracle.watch_shares(head_start));
        if script.contention.is_some() && !script.guilt.is_empty() {
            oracle.bob_is_guilty();
        }
        // The first jobs show that the program works. Without them, the program might be at fault.
        let is_whole = plan.left_out.range(..FIRST_GOOD).next().is_none();
        if script.is_mixed && faults.is_none() && is_whole {
            oracle.watch_innocents(script.innocents());
        }
        let turns = Turns::new(&mut choices);
        let core = Core::new(script.config.clone()).expect("the knobs are turned to valid places");
        let out = Outside {
            now: Mono::default(),
            choices,
            plan: faults,
            oracle,
            output_max: script.output_max(),
            agenda: BinaryHeap::new(),
            scheduled: 0,
            seed: plan.seed,
            complaint: None,
        };
        let verdict = Verdict { wishes: script.wishes.len(), ..Verdict::default() };
        World {
            out,
            core,
            launches: BTreeMap::new(),
            processes: BTreeMap::new(),
            script,
            job_of: BTreeMap::new(),
            task_of: BTreeMap::new(),
            guilt_of: BTreeMap::new(),
            client_of: BTreeMap::new(),
            readers: Readers::new(),
            here: BTreeSet::new(),
            soon: VecDeque::new(),
            wanted_back: Vec::new(),
            is_turn_ending: false,
            on_disk: Version::default(),
            wake: None,
            stopped_until: Mono::default(),
            tape: Tape::new(3),
            turns,
            moment: (Mono::default(), 0),
            is_calm: false,
            verdict,
            plan,
        }
    }

    fn live(&mut self) -> Result<(), Failure> {
        for (index, (at, _)) in self.script.wishes.iter().enumerate() {
            if !self.plan.left_out.contains(&index) {
                self.out.schedule(*at, Thing::Wish(index));
            }
        }
        self.tell(Event::Tick, true)?;
        let last_wish = self.script.wishes.iter().map(|(at, _)| *at).max().unwrap_or_default();
        let seconds = self.out.choices.pick(&mut self.tape, &[0, 1, 4, 15]);
        self.go_on_until(last_wish + Duration::from_secs(seconds), |_| false)?;
        self.drain_the_guilty()?;
        self.calm_down();
        self.end_pauses()?;
        self.converge(World::is_well, "not all is well again")?;
        if self.core.phase() == Phase::Running {
            self.drain_at_the_end()?;
        }
        self.converge(|world| world.core.phase() == Phase::Over, "it does not end")?;
        self.go_on_until(self.out.now + PATIENCE, |_| false)?;
        self.out.oracle.nothing_is_left(&self.core)
    }

    fn calm_down(&mut self) {
        self.is_calm = true;
        self.out.plan = FaultPlan::none();
        for process in self.processes.values_mut() {
            process.calm_down(&mut self.out);
        }
    }

    fn is_well(&self) -> bool {
        self.core.phase() == Phase::Over
            || (self.core.phase() == Phase::Running
                && self.out.oracle.all_is_well(&self.core, self.out.now).is_ok()
                && self.out.oracle.is_pool_full(&self.core))
    }

    fn converge(&mut self, is_there: impl Fn(&World) -> bool, complaint: &str) -> Result<(), Failure> {
        let end = self.out.now + PATIENCE;
        self.go_on_until(end, &is_there)?;
        match is_there(self) {
            true => Ok(()),
            false => Err(Failure {
                rule: "liveness",
                what: format!("{complaint} {PATIENCE:?} after the last fault; {:#?}", self.core),
            }),
        }
    }

    /// Runs until that time, or until `is_enough` returns true.
    fn go_on_until(&mut self, end: Mono, is_enough: impl Fn(&World) -> bool) -> Result<(), Failure> {
        while !(self.core.is_settled() && is_enough(self)) && self.step(end)? {}
        Ok(())
    }

    /// Lets one thing happen. Returns false if nothing happens until `end`; then the time is `end`.
    fn step(&mut self, end: Mono) -> Result<bool, Failure> {
        if self.go_on_with_the_turn()? {
            return Ok(true);
        }
        let tick_at = self.tick_at().map(|at| at.max(self.stopped_until));
        let next = self.out.agenda.peek().map(|Reverse(entry)| entry.at);
        let at = [tick_at, next].into_iter().flatten().min().filter(|at| *at <= end);
        let Some(at) = at else {
            self.out.now = self.out.now.max(end);
            return Ok(false);
        };
        self.out.now = self.out.now.max(at);
        // The core is told what came while the shell was stopped before it gets the tick.
        let is_tick =
            tick_at.is_some_and(|tick| tick <= at) && !(at == self.stopped_until && next == Some(at));
        if is_tick {
            self.wake = None;
            self.tell(Event::Tick, true)?;
        } else if let Some(Reverse(entry)) = self.out.agenda.pop() {
            self.happen_or_wait(entry.thing)?;
        }
        Ok(true)
    }

    /// When the next tick comes: when it is due, or a little later.
    fn tick_at(&mut self) -> Option<Mono> {
        let due = self.core.next_deadline()?;
        if let Some((_, at)) = self.wake.filter(|(wanted, _)| *wanted == due) {
            return Some(at);
        }
        let is_late = self.out.plan.strikes(Fault::LateTick, &mut self.out.choices, &mut self.tape);
        let most = if is_late { Duration::from_millis(20) } else { Duration::ZERO };
        let at = due.max(self.out.now) + self.out.choices.delay(&mut self.tape, most);
        self.wake = Some((due, at));
        Some(at)
    }

    fn happen(&mut self, thing: Thing) -> Result<(), Failure> {
        match thing {
            Thing::Wish(index) => self.wish(index),
            Thing::Deliver(worker) => self.deliver(worker),
            Thing::Bury(worker) => self.bury(worker),
            Thing::Arrive(worker) => self.arrive(worker),
            Thing::TakeBack(worker, job) => self.take_back(worker, job),
            Thing::EndOfTurn => self.end_turn(),
            Thing::Haunt(event) => self.tell(event, false),
            Thing::OutputRead(client, bytes) => {
                self.tell(Event::Released { client, what: Holding::Outgoing, bytes }, true)
            }
            Thing::ReadPart(job) => self.read_part(job),
            Thing::RanHere(job, result) => self.ran_here(job, result),
            Thing::ArrivalEnds(client, bytes) => {
                self.tell(Event::Released { client, what: Holding::Arriving, bytes }, true)
            }
            Thing::Act(worker, act) => {
                if let Some(process) = self.processes.get_mut(&worker) {
                    process.act(act, &mut self.out);
                }
                self.out.complaint.take().map_or(Ok(()), Err)
            }
        }
    }

    fn count(&mut self, now: Mono) -> Result<(), Failure> {
        self.verdict.events += 1;
        let (moment, events) = self.moment;
        self.moment = if moment == now { (now, events + 1) } else { (now, 1) };
        if self.moment.1 > EVENTS_OF_A_MOMENT_MAX || self.verdict.events > EVENTS_MAX {
            return Err(Failure { rule: "O11", what: "it goes round and round".to_owned() });
        }
        Ok(())
    }

    /// Executes an action as the shell would.
    fn apply(&mut self, action: &Action) {
        match *action {
            Action::Spawn { worker, program, version, .. } => self.spawn(worker, program, version),
            Action::Run { worker, job, attempt, .. } => {
                let given = self.given(job, attempt);
                self.send(worker, ToFake::Run(given));
            }
            Action::Prefetch { worker, job, attempt } => {
                let given = self.given(job, attempt);
                self.put_into_tray(worker, given);
            }
            Action::TakeBack { worker, job } => self.want_back(worker, job),
            Action::RunHere { job, within } => self.run_here(job, within),
            Action::StopHere { job } => self.stop_here(job),
            Action::Ready { worker, .. } => self.make_tray(worker),
            Action::CancelRun { worker, job } => self.send(worker, ToFake::Cancel(job)),
            Action::Yield { worker, job } => self.send(worker, ToFake::Yield(job)),
            Action::Credit { worker, job, bytes } => self.send_credit(worker, job, bytes),
            Action::Dismiss { worker } => self.send(worker, ToFake::Drain),
            Action::Kill { worker, how } => {
                if let Some(launch) = self.launches.get_mut(&worker) {
                    launch.kill = Some(how);
                }
                if let Some(process) = self.processes.get_mut(&worker) {
                    process.signal(how, &mut self.out);
                    self.soon.extend(process.condemn());
                }
            }
            Action::Finish(_)
            | Action::Batch { .. }
            | Action::Log(_)
            | Action::Keep { .. }
            | Action::Collect { .. }
            | Action::PassOn { .. }
            | Action::DropParts { .. }
            | Action::Release { .. }
            | Action::ForgetLetter { .. }
            | Action::Reloaded { .. }
            | Action::Over => {}
        }
    }
}
