//! Starts of processes. They take time, like those of the real launcher.

use super::{Thing, World};
use crate::choices::Tape;
use crate::faults::{Build, Fault};
use crate::oracle::Failure;
use crate::process::FakeProcess;
use crate::script::Guilt;
use offload_core::action::Kill;
use offload_core::event::Event;
use offload_core::ids::{Version, WorkerId};
use std::time::Duration;

/// A process in the making.
pub(super) struct Launch {
    program: usize,
    build: Build,
    /// It cannot be started, perhaps for ever.
    failure: Option<bool>,
    /// It is not wanted any more.
    pub(super) kill: Option<Kill>,
}

impl World {
    /// It takes its time, and what the core wants of the worker meanwhile is remembered.
    pub(super) fn spawn(&mut self, worker: WorkerId, program: usize, version: Version) {
        let mut tape = Tape::new(1 << 40 | worker.0);
        let build = self.build_of(program, version);
        let mut strikes = |fault| self.out.plan.strikes(fault, &mut self.out.choices, &mut tape);
        let is_fatal = strikes(Fault::SpawnFailsForEver);
        let has_failed = is_fatal || strikes(Fault::SpawnFails) || build == Build::DoesNotStart;
        let most = if strikes(Fault::SpawnSlow) { 15_000 } else { 2 };
        let delay = self.out.choices.delay(&mut tape, most * Duration::from_millis(1));
        let failure = has_failed.then_some(is_fatal);
        self.launches.insert(worker, Launch { program, build, failure, kill: None });
        self.out.schedule(self.out.now + delay, Thing::Arrive(worker));
    }

    /// A process that is not wanted any more is not there, or killed, depending on how far it was.
    pub(super) fn arrive(&mut self, worker: WorkerId) -> Result<(), Failure> {
        let Some(Launch { program, build, failure, kill }) = self.launches.remove(&worker) else {
            return Ok(());
        };
        let mut tape = Tape::new(1 << 42 | worker.0);
        let is_revoked = kill.is_some() && self.out.choices.chance(&mut tape, 500);
        if let Some(fatal) = failure.or(is_revoked.then_some(false)) {
            let event = Event::SpawnFailed { worker, fatal, message: "no such file".to_owned() };
            return self.tell(event, true);
        }
        let mut process = FakeProcess::start(worker, program, self.script.config.programs, &mut self.out);
        process.suffer_from(if self.is_calm { Build::Works } else { build }, &mut self.out);
        kill.into_iter().for_each(|how| process.signal(how, &mut self.out));
        self.processes.insert(worker, process);
        if kill.is_none() { self.tell(Event::Launched { worker }, true) } else { Ok(()) }
    }

    /// What a version of a program is like. None is bad any more when all faults are over. In half of the worlds it is
    /// the file that a reload is for: then whatever is started is what is on disk.
    fn build_of(&mut self, program: usize, version: Version) -> Build {
        let is_file = self.out.choices.chance(&mut Tape::new(1 << 43), 500);
        let version = if is_file { self.on_disk } else { version };
        if version == Version::default() || self.is_calm {
            return Build::Works;
        }
        let mut tape = Tape::new(1 << 41 | version << 4 | program as u64);
        let builds = [
            Build::Works,
            Build::Works,
            Build::DoesNotStart,
            Build::DiesAtOnce,
            Build::FailsFirst,
            Build::DiesSoon,
            Build::DiesAtWork(Guilt::Crashes),
            Build::DiesAtWork(Guilt::DiesUnstarted),
            Build::Hangs,
        ];
        self.out.choices.pick(&mut tape, &builds)
    }
}
