//! A fake worker process: it gets messages and signals, runs jobs, answers, misbehaves and dies.
//!
//! ```text
//!              Boot               next job                  RunEnds
//!   Booting ----------> Waiting ------------> Running --------------------> Waiting
//!      |                   |  ^                  |
//!      | (silent)          |  '--- (stuck) ---.  | (hangs: no RunEnds is on the agenda)
//!      v                   '------------------'  v
//!   die(), in any state ---> Dead: what it had sent is still on its way ---> Bury ---> Exited is reported
//! ```
//!
//! The messages of one process arrive in the order in which they were sent, in both directions, and all of them arrive before
//! its exit is reported. The shell guarantees this (`supervisor/src/hub/links.rs`), and nothing else.

use crate::faults::{Build, Fault};
use crate::running::Run;
use crate::script::{Guilt, TASKS, offered_by};
use crate::world::{Outside, Thing};
use offload_core::action::Kill;
use offload_core::event::Event;
use offload_core::exit::Exit;
use offload_core::ids::{JobId, Mono, ProgramIndex, WorkerId};
use offload_protocol::nouns::TaskOffer;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

mod misfortunes;

const MS: Duration = Duration::from_millis(1);

/// An event on its way to the core, and whether an honest worker would have caused it.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    /// The event for the core.
    pub(crate) event: Event,
    /// Whether it breaks no rule.
    pub(crate) is_honest: bool,
}

/// A job that was given to a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    /// The job.
    pub(crate) job: JobId,
    /// The number of the attempt.
    pub(crate) attempt: u32,
    /// Index of its task in [`TASKS`].
    pub(crate) task: usize,
    /// What it does to its worker.
    pub(crate) guilt: Option<Guilt>,
    /// Its output is read in parts.
    pub(crate) is_stream: bool,
}

/// What the supervisor sends to a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ToFake {
    /// A job.
    Run(Given),
    /// A job was cancelled.
    Cancel(JobId),
    /// A job is to be given back, if possible.
    Yield(JobId),
    /// So many more bytes of the parts of a job may be sent.
    Credit(JobId, u64),
    /// End when no job is left.
    Drain,
}

/// What happens to a process at a moment that is on the agenda.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// It says hello.
    Boot,
    /// The next message of the supervisor is written.
    Write,
    /// The next message of the supervisor arrives.
    Arrive,
    /// The run of this number, or a step of it, ends.
    RunEnds(u64),
    /// A signal arrives.
    Signal(Kill),
    /// It continues after it was stopped.
    Continue,
    /// A fault strikes.
    Misfortune(Misfortune),
}

/// Faults that strike some time after they were chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Misfortune {
    /// It dies, whatever it does.
    Dies(Exit),
    /// It dies, if it has nothing to do.
    DiesIdle,
    /// It dies, if the run of this number has not ended.
    DiesRunning(u64),
    /// It closes its channel.
    ClosesChannel,
    /// It sends bytes that are no message.
    SendsGarbage,
    /// It is stopped, by SIGSTOP for example.
    Stops,
    /// The program behind it breaks its rules, whatever it does, or if the run of this number has not ended.
    BreaksRules(Option<u64>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Booting,
    Waiting,
    Stuck,
    Running(Run),
    Dead(Exit),
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct FakeProcess {
    pub(crate) id: WorkerId,
    offers: &'static [usize],
    pub(crate) tape: crate::choices::Tape,
    /// Choices about parts.
    pub(crate) parts_tape: crate::choices::Tape,
    pub(crate) stage: Stage,
    /// The suspended stepped run, which goes on when the present one has ended.
    pub(crate) suspended: Option<Run>,
    /// How many of its next jobs fail.
    pub(crate) failing: u32,
    /// What each job does to it.
    pub(crate) bane: Option<Guilt>,
    ignores_term: bool,
    /// Messages that the shell has not written yet.
    pub(crate) unwritten: VecDeque<ToFake>,
    last_write: Mono,
    arriving: VecDeque<ToFake>,
    last_arrival: Mono,
    pub(crate) jobs: VecDeque<Given>,
    /// It looks for jobs in a tray.
    pub(crate) has_tray: bool,
    pub(crate) tray: Option<Given>,
    /// Tasks for which it promises the opposite of what other workers promise.
    contrary: BTreeSet<usize>,
    pub(crate) withdrawn: BTreeSet<JobId>,
    is_told_to_drain: bool,
    has_closed_channel: bool,
    /// What it sent and the core has not been told yet.
    pub(crate) outbox: VecDeque<Said>,
    last_delivery: Mono,
    /// The shell no longer reads its channel.
    pub(crate) is_unheard: bool,
    pub(crate) runs: u64,
    /// It has sent something that no honest worker sends.
    pub(crate) has_lied: bool,
    is_stopped: bool,
    /// SIGTERM came while it was stopped.
    has_term_pending: bool,
    pub(crate) is_calm: bool,
}

impl FakeProcess {
    /// A process that was started now.
    pub(crate) fn start(
        id: WorkerId,
        program: ProgramIndex,
        programs: usize,
        out: &mut Outside,
    ) -> FakeProcess {
        let mut process = FakeProcess {
            id,
            offers: offered_by(program, programs),
            tape: crate::choices::Tape::new(1000 + id.0),
            parts_tape: crate::choices::Tape::new((1 << 32) + id.0),
            stage: Stage::Booting,
            suspended: None,
            failing: 0,
            bane: None,
            ignores_term: false,
            unwritten: VecDeque::new(),
            last_write: out.now,
            arriving: VecDeque::new(),
            last_arrival: out.now,
            jobs: VecDeque::new(),
            has_tray: false,
            tray: None,
            contrary: BTreeSet::new(),
            withdrawn: BTreeSet::new(),
            is_told_to_drain: false,
            has_closed_channel: false,
            outbox: VecDeque::new(),
            last_delivery: out.now,
            is_unheard: false,
            runs: 0,
            has_lied: false,
            is_stopped: false,
            has_term_pending: false,
            is_calm: false,
        };
        process.begin(out);
        process
    }

    /// Puts on the agenda what is wrong with this version of its program.
    pub(crate) fn suffer_from(&mut self, build: Build, out: &mut Outside) {
        let dies = Act::Misfortune(Misfortune::Dies(Exit::Code(1)));
        match build {
            Build::Works | Build::DoesNotStart => {}
            Build::DiesAtOnce => self.later(MS / 4, dies, out),
            Build::DiesSoon => {
                let delay = self.delay(100 * MS, out);
                self.later(delay, dies, out);
            }
            Build::FailsFirst => self.failing = 4,
            Build::DiesAtWork(how) => self.bane = Some(how),
            Build::Hangs => self.bane = Some(Guilt::Hangs),
        }
    }

    pub(crate) fn strikes(&mut self, fault: Fault, out: &mut Outside) -> bool {
        out.plan.strikes(fault, &mut out.choices, &mut self.tape)
    }

    pub(crate) fn delay(&mut self, most: Duration, out: &mut Outside) -> Duration {
        out.choices.delay(&mut self.tape, most)
    }

    pub(crate) fn later(&self, delay: Duration, act: Act, out: &mut Outside) {
        out.schedule(out.now + delay, Thing::Act(self.id, act));
    }

    fn later_by_misfortune(
        &mut self,
        fault: Fault,
        most: Duration,
        misfortune: Misfortune,
        out: &mut Outside,
    ) {
        if self.strikes(fault, out) {
            let delay = self.delay(most, out);
            self.later(delay, Act::Misfortune(misfortune), out);
        }
    }

    fn begin(&mut self, out: &mut Outside) {
        self.has_tray = out.choices.chance(&mut self.tape, 700);
        self.ignores_term = self.strikes(Fault::IgnoresTerm, out);
        let killed = Misfortune::Dies(Exit::Signal(9));
        self.later_by_misfortune(Fault::KilledFromOutside, 2000 * MS, killed, out);
        let slow = if self.strikes(Fault::BootSlow, out) { 3000 } else { 20 };
        let boot_time = MS / 2 + self.delay(slow * MS, out);
        if self.strikes(Fault::BootGivesUp, out) {
            self.later(boot_time, Act::Misfortune(Misfortune::Dies(Exit::Code(64))), out);
        } else if self.strikes(Fault::BootCrash, out) {
            let exit = out.choices.pick(&mut self.tape, &[Exit::Code(1), Exit::Signal(11), Exit::Unknown]);
            self.later(boot_time, Act::Misfortune(Misfortune::Dies(exit)), out);
        } else if !self.strikes(Fault::BootSilent, out) {
            self.later(boot_time, Act::Boot, out);
        }
    }

    /// Something on the agenda happens to it.
    pub(crate) fn act(&mut self, act: Act, out: &mut Outside) {
        match (self.stage, act) {
            (Stage::Dead(_), _) => {}
            (Stage::Booting, Act::Boot) => self.boot(out),
            (_, Act::Boot) => {}
            (_, Act::Write) => self.write(out),
            (_, Act::Arrive) => self.arrive(out),
            (_, Act::RunEnds(run)) if run == self.runs => self.end_stretch(out),
            (_, Act::RunEnds(_)) => {}
            (_, Act::Signal(Kill::Kill)) => self.die(Exit::Signal(9), out),
            (_, Act::Continue) => self.go_on(out),
            (_, Act::Signal(Kill::Term)) if self.ignores_term => {}
            (_, Act::Signal(Kill::Term)) if self.is_stopped => self.has_term_pending = true,
            (_, Act::Signal(Kill::Term)) => self.die(Exit::Signal(15), out),
            (_, Act::Misfortune(_)) if self.is_calm => {}
            (_, Act::Misfortune(misfortune)) => self.suffer(misfortune, out),
        }
    }

    fn boot(&mut self, out: &mut Outside) {
        let worker = self.id;
        let mut tasks: Vec<TaskOffer<'static>> = Vec::new();
        for &task in self.offers {
            if self.strikes(Fault::BootPromisesOther, out) {
                self.contrary.insert(task);
            }
            tasks.push(TaskOffer { idempotent: self.promises(task), ..TASKS[task].offer() });
        }
        if self.strikes(Fault::BootOffersLess, out) {
            tasks.remove(out.choices.range(&mut self.tape, 0, tasks.len() as u64 - 1) as usize);
        }
        if self.strikes(Fault::BootUnfit, out) {
            self.say(false, Event::Unfit { worker, message: "another version".into() }, out);
        }
        let has_bad_name = self.strikes(Fault::BootBadName, out);
        if has_bad_name {
            tasks.push(TaskOffer::new("no name!"));
        }
        let takes_files = !self.is_without_files(out);
        self.say(!has_bad_name, Event::Hello { worker, tasks: tasks.clone(), takes_files }, out);
        if self.strikes(Fault::HelloTwice, out) {
            self.say(false, Event::Hello { worker, tasks, takes_files }, out);
        }
        self.later_by_misfortune(Fault::CrashIdle, 500 * MS, Misfortune::DiesIdle, out);
        self.later_by_misfortune(Fault::ClosesChannel, 500 * MS, Misfortune::ClosesChannel, out);
        self.later_by_misfortune(Fault::Stops, 500 * MS, Misfortune::Stops, out);
        self.later_by_misfortune(Fault::Garbage, 500 * MS, Misfortune::SendsGarbage, out);
        self.later_by_misfortune(Fault::BreaksRules, 500 * MS, Misfortune::BreaksRules(None), out);
        self.stage = Stage::Waiting;
        self.take_next(out);
    }

    /// Whether it says that jobs of this task may be run twice.
    pub(crate) fn promises(&self, task: usize) -> bool {
        TASKS[task].is_idempotent != self.contrary.contains(&task)
    }

    /// The supervisor has sent something; it arrives later.
    pub(crate) fn send(&mut self, message: ToFake, out: &mut Outside) {
        let is_blocked = self.strikes(Fault::WriteBlocked, out);
        if !is_blocked && self.unwritten.is_empty() {
            return self.put_on_its_way(message, out);
        }
        self.unwritten.push_back(message);
        let delay = self.delay(50 * MS, out);
        self.last_write = self.last_write.max(out.now + delay);
        out.schedule(self.last_write, Thing::Act(self.id, Act::Write));
    }

    pub(crate) fn put_on_its_way(&mut self, message: ToFake, out: &mut Outside) {
        self.arriving.push_back(message);
        let delay = self.channel_delay(out);
        self.last_arrival = self.last_arrival.max(out.now + delay);
        out.schedule(self.last_arrival, Thing::Act(self.id, Act::Arrive));
    }

    fn channel_delay(&mut self, out: &mut Outside) -> Duration {
        let most = if self.strikes(Fault::SlowChannel, out) { 100 * MS } else { MS / 10 };
        self.delay(most, out)
    }

    /// The supervisor has sent a signal; it arrives later.
    pub(crate) fn signal(&mut self, how: Kill, out: &mut Outside) {
        let delay = self.delay(MS / 5, out);
        self.later(delay, Act::Signal(how), out);
    }

    fn arrive(&mut self, out: &mut Outside) {
        match self.arriving.pop_front() {
            Some(ToFake::Run(given)) => {
                self.jobs.push_back(Given { guilt: given.guilt.or(self.bane), ..given });
            }
            Some(ToFake::Cancel(job)) => {
                if self.jobs.iter().any(|waiting| waiting.job == job) {
                    self.withdrawn.insert(job);
                }
                let runs_it = matches!(self.stage, Stage::Running(run) if run.job == job);
                if let Some(outer) = self.suspended.as_mut().filter(|outer| outer.job == job) {
                    outer.steps = 1;
                }
                if runs_it && !self.is_stopped && out.choices.chance(&mut self.tape, 500) {
                    self.end_run(out);
                }
            }
            Some(ToFake::Yield(job)) => self.hear_yield(job),
            Some(ToFake::Credit(job, bytes)) => self.hear_credit(job, bytes, out),
            Some(ToFake::Drain) => self.is_told_to_drain = true,
            None => {}
        }
        if self.stage == Stage::Waiting && !self.is_stopped {
            self.take_next(out);
        }
    }

    pub(crate) fn take_next(&mut self, out: &mut Outside) {
        let worker = self.id;
        while let Some(given) = self.next_given(out) {
            let job = given.job;
            let is_deadly = given.guilt == Some(Guilt::DiesUnstarted) && !self.is_calm;
            if self.withdrawn.remove(&job) {
                self.jobs.pop_front();
                self.say(true, Event::Skipped { worker, job }, out);
            } else if self.strikes(Fault::SkipsUnasked, out) {
                self.jobs.pop_front();
                self.say(false, Event::Skipped { worker, job }, out);
            } else if is_deadly || self.strikes(Fault::CrashBeforeStart, out) {
                return self.crash(out);
            } else if self.strikes(Fault::Stuck, out) {
                self.stage = Stage::Stuck;
                return;
            } else {
                self.jobs.pop_front();
                return self.start_run(given, out);
            }
        }
        if self.is_told_to_drain {
            self.die(Exit::Code(0), out);
        }
    }

    pub(crate) fn say(&mut self, is_honest: bool, event: Event, out: &mut Outside) {
        if self.has_closed_channel {
            return;
        }
        self.has_lied |= !is_honest;
        self.outbox.push_back(Said { event, is_honest });
        let delay = self.channel_delay(out);
        self.last_delivery = self.last_delivery.max(out.now + delay);
        out.schedule(self.last_delivery, Thing::Deliver(self.id));
    }

    pub(crate) fn crash(&mut self, out: &mut Outside) {
        let ways = [Exit::Signal(11), Exit::Code(1), Exit::Code(0), Exit::Signal(9), Exit::Unknown];
        let exit = out.choices.pick(&mut self.tape, &ways);
        self.die(exit, out);
    }

    fn die(&mut self, exit: Exit, out: &mut Outside) {
        self.stage = Stage::Dead(exit);
        if !self.strikes(Fault::ChannelHeld, out) {
            self.say(true, Event::Closed { worker: self.id }, out);
        }
        let most = if self.strikes(Fault::ExitLate, out) { 20_000 } else { 1 };
        let delay = self.delay(most * MS, out);
        out.schedule(out.now + delay, Thing::Bury(self.id));
    }

    /// How it died, if it did.
    pub(crate) fn exit(&self) -> Option<Exit> {
        match self.stage {
            Stage::Dead(exit) => Some(exit),
            _ => None,
        }
    }

    /// No more faults strike, and those that lasted end.
    pub(crate) fn calm_down(&mut self, out: &mut Outside) {
        self.is_calm = true;
        (self.failing, self.bane) = (0, None);
        self.calm_runs();
        match self.stage {
            Stage::Waiting | Stage::Running(_) if self.is_stopped => self.later(MS, Act::Continue, out),
            Stage::Booting => self.later(MS, Act::Boot, out),
            Stage::Running(_) => self.later(MS, Act::RunEnds(self.runs), out),
            Stage::Dead(_) => out.schedule(out.now + MS, Thing::Bury(self.id)),
            Stage::Stuck if !self.has_closed_channel => {
                self.stage = Stage::Waiting;
                self.take_next(out);
            }
            Stage::Waiting | Stage::Stuck => {}
        }
    }
}
