//! Worker processes that are being started, and the programs that they run. The launcher starts them on other threads,
//! because a start can hang on a file system that does not answer.
//!
//! ```text
//!   requested ---> launched: a process, or why there is none ---> the core is told
//!      |
//!      '------> given up: the core is told at once that there is none; if a process still comes, the launcher kills it
//! ```
//!
//! A start is given up when it takes longer than a worker may take to say hello.

use super::here::SUPERVISOR;
use super::{Hub, OnReloaded};
use crate::workers::{LaunchGuard, Launcher, LauncherEvent, Process, Program, SpawnError};
use offload_core::action::ReloadEnd;
use offload_core::event::Event;
use offload_core::ids::{ProgramIndex, SlotIndex, Version, WorkerId};
use offload_event_loop::{HandleId, Interest, LoopError};
use offload_protocol::limits::CORE_VARIABLE;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// The starts that are under way. See the module's documentation.
pub(super) struct Launches {
    launcher: Launcher,
    /// Becomes readable when the launcher has an event.
    bell: Option<HandleId>,
    under_way: BTreeMap<WorkerId, Launch>,
    programs: Programs,
    /// The CPU cores that workers are bound to. Empty if workers are not bound.
    cores: Vec<usize>,
}

/// The programs that may be started.
struct Programs {
    /// For each program the versions that may still be started.
    each: Vec<BTreeMap<Version, Program>>,
    last_version: Version,
}

struct Launch {
    slot: SlotIndex,
    guard: LaunchGuard,
    requested_at: Instant,
    /// The name of the program.
    name: String,
}

/// A worker process that the core wants started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) worker: WorkerId,
    pub(super) program: ProgramIndex,
    pub(super) version: Version,
    pub(super) slot: SlotIndex,
}

impl Launches {
    pub(super) fn new(launcher: Launcher, programs: Vec<Program>, affinity: bool) -> Launches {
        let cores = if affinity { usable_cores() } else { Vec::new() };
        Launches {
            launcher,
            bell: None,
            under_way: BTreeMap::new(),
            programs: Programs::new(programs),
            cores,
        }
    }

    /// Requests a process from the launcher.
    fn request(&mut self, start: Start, payload_max: usize) -> Result<(), SpawnError> {
        let Start { worker, program, version, slot } = start;
        let program_version = (program, version);
        let program = self.programs.get(program, version);
        let core = slot.checked_rem(self.cores.len()).and_then(|index| self.cores.get(index));
        let program = match core {
            Some(core) => program.clone().with_variable(CORE_VARIABLE, &core.to_string()),
            None => program.clone(),
        };
        let name = program.name().to_owned();
        let guard = self.launcher.launch(worker.0, program_version, program, payload_max)?;
        self.under_way.insert(worker, Launch { slot, guard, requested_at: Instant::now(), name });
        Ok(())
    }

    /// The launch of this worker is over. Returns the slot that the process was requested for. None if the launch has
    /// been given up.
    fn complete(&mut self, worker: WorkerId) -> Option<SlotIndex> {
        self.under_way.remove(&worker).map(|launch| launch.slot)
    }

    /// Gives up a start that is not over yet. Returns the error for the core. None if no start of this worker is under
    /// way.
    pub(super) fn give_up(&mut self, worker: WorkerId) -> Option<SpawnError> {
        let Launch { guard, requested_at, name, .. } = self.under_way.remove(&worker)?;
        self.launcher.give_up(worker.0, guard);
        let seconds = requested_at.elapsed().as_secs();
        let message =
            format!("cannot start `{name}`: not loaded after {seconds} s; does its file system answer?");
        Some(SpawnError { fatal: false, message })
    }

    /// Gives up all starts that are under way.
    pub(super) fn give_up_all(&mut self) {
        self.under_way.clear();
    }

    /// Whether the start of this worker is under way.
    pub(super) fn is_launching(&self, worker: WorkerId) -> bool {
        self.under_way.contains_key(&worker)
    }

    /// Whether any start is under way.
    pub(super) fn is_any_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Adds a new version of each program. There must be as many programs as before. Returns the version.
    pub(super) fn add_version(&mut self, programs: Vec<Program>) -> Version {
        self.programs.add_version(programs)
    }

    /// Forgets the versions that may not be started any more.
    pub(super) fn retain_versions(&mut self, may_start: impl Fn(Version) -> bool) {
        self.programs.retain(may_start);
    }

    /// The name of the newest version of a program.
    pub(super) fn program_name(&self, program: ProgramIndex) -> &str {
        self.programs.name(program)
    }

    pub(super) fn program_count(&self) -> usize {
        self.programs.each.len()
    }

    /// The processes that the launcher has started and that the hub has not taken. Called when the hub itself ends.
    pub(super) fn take_started_processes(&mut self) -> Vec<Process> {
        let processes = self.launcher.take_events().into_iter().filter_map(|event| match event {
            LauncherEvent::Launched { process, .. } => process.ok(),
            LauncherEvent::Swept(_) => None,
        });
        processes.map(|process| *process).collect()
    }
}

/// The launcher's other work.
impl Launches {
    fn bell(&self) -> Arc<OwnedFd> {
        self.launcher.bell()
    }

    /// Whether this process was forked from the one that has started the workers.
    pub(super) fn are_of_parent(&self) -> bool {
        self.launcher.is_of_parent()
    }

    #[cfg(test)]
    pub(super) fn seem_forked(&mut self, is_forked: bool) {
        self.launcher.seem_forked(is_forked);
    }

    pub(super) fn take_bell(&mut self) -> Option<HandleId> {
        self.bell.take()
    }

    /// The process of this worker was reaped, or never came.
    fn forget(&mut self, worker: WorkerId) {
        self.launcher.forget(worker.0);
    }

    /// Kills a process that nobody needs.
    pub(super) fn kill_and_reap(&self, process: Box<Process>) {
        self.launcher.kill_and_reap(process);
    }

    pub(super) fn sweep(&self) {
        self.launcher.sweep();
    }

    /// Has the launcher kill what escaped from the last workers, before the launcher ends.
    pub(super) fn sweep_at_the_end(&mut self) {
        self.launcher.sweep_at_the_end();
    }
}

impl Programs {
    fn new(programs: Vec<Program>) -> Programs {
        let each = programs.into_iter().map(|program| BTreeMap::from([(0, program)])).collect();
        Programs { each, last_version: 0 }
    }

    fn get(&self, program: ProgramIndex, version: Version) -> &Program {
        self.each[program].get(&version).expect("a version is kept while it may be started")
    }

    fn name(&self, program: ProgramIndex) -> &str {
        let Some(versions) = self.each.get(program) else { return SUPERVISOR };
        versions.last_key_value().map_or("", |(_, program)| program.name())
    }

    fn add_version(&mut self, programs: Vec<Program>) -> Version {
        self.last_version += 1;
        for (versions, program) in self.each.iter_mut().zip(programs) {
            versions.insert(self.last_version, program);
        }
        self.last_version
    }

    fn retain(&mut self, may_start: impl Fn(Version) -> bool) {
        for versions in &mut self.each {
            versions.retain(|&version, _| may_start(version));
        }
    }
}

impl Hub {
    /// Watches the bell of the launcher. The watcher is unreferenced, because a start that is under way must not keep
    /// the event loop alive: only jobs and explicit holds do.
    pub(super) fn watch_launcher(&mut self) -> Result<(), LoopError> {
        let me = self.me.clone();
        let bell = self.launches.bell();
        let watcher = self.handle.watch(bell, Interest::READ, move |_, _| {
            Hub::with(&me, Hub::take_launcher_events);
        })?;
        self.handle.unref(watcher);
        self.launches.bell = Some(watcher);
        Ok(())
    }

    pub(super) fn take_launcher_events(&mut self) {
        for event in self.launches.launcher.take_events() {
            match event {
                LauncherEvent::Launched { key, process } => self.launched(WorkerId(key), process),
                LauncherEvent::Swept(swept) => self.swept(swept),
            }
        }
    }

    pub(super) fn spawn(&mut self, start: Start) {
        let payload_max = usize::try_from(self.core.config().max_payload).unwrap_or(usize::MAX);
        if let Err(error) = self.launches.request(start, payload_max) {
            self.inbox.push_back(failed(start.worker, error).into());
        }
    }

    fn launched(&mut self, worker: WorkerId, process: Result<Box<Process>, SpawnError>) {
        let Some(slot) = self.launches.complete(worker) else {
            process.into_iter().for_each(|process| self.launches.kill_and_reap(process));
            return self.forget_launch(worker);
        };
        match process.and_then(|process| self.add_process(worker, process)) {
            Ok(pid) => {
                self.log.info(format_args!("slot {slot}: started worker process {pid}"));
                self.handle_event(Event::Launched { worker });
                // While it was started, sweeps have left out what other workers had made children of the same thread.
                self.sweep();
            }
            Err(error) => {
                self.forget_launch(worker);
                self.handle_event(failed(worker, error));
            }
        }
    }

    /// The process of this worker was reaped or is about to be killed, or never came. What it has left behind is swept then.
    pub(super) fn forget_launch(&mut self, worker: WorkerId) {
        self.launches.forget(worker);
        self.sweep();
    }

    /// The process of this worker was sent SIGKILL. What it has left behind ends with it, and may be what keeps it from ending.
    pub(super) fn condemn(&mut self, worker: WorkerId) {
        self.launches.launcher.condemn(worker.0);
        self.sweep();
    }

    /// Gives up the start of this worker and tells the core. Returns false if no start of this worker is under way.
    pub(super) fn give_up_launch(&mut self, worker: WorkerId) -> bool {
        let given_up = self.launches.give_up(worker).map(|error| failed(worker, error).into());
        let is_one = given_up.is_some();
        self.inbox.extend(given_up);
        is_one
    }
}

fn failed(worker: WorkerId, error: SpawnError) -> Event {
    let SpawnError { fatal, message } = error;
    Event::SpawnFailed { worker, fatal, message }
}

/// The numbers of the CPU cores that this process may run on.
fn usable_cores() -> Vec<usize> {
    let may_use = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0));
    let is_usable = |core: &usize| may_use.as_ref().is_ok_and(|cores| cores.is_set(*core).unwrap_or(false));
    (0..nix::sched::CpuSet::count()).filter(is_usable).collect()
}

/// Reloads.
impl Hub {
    /// Replaces the workers one by one by workers of these programs. There must be as many programs as before. `then`
    /// is called when all are replaced, or with the reason why some or all of the old ones stay.
    pub(crate) fn reload(&mut self, programs: Vec<Program>, then: OnReloaded) {
        let version = self.launches.add_version(programs);
        self.callbacks.on_reloaded(version, then);
        self.handle_event(Event::Reload { version });
    }

    pub(super) fn reloaded(&mut self, version: Version, end: ReloadEnd) {
        if let Some(then) = self.callbacks.take_reloaded(version) {
            let end = match end {
                ReloadEnd::Done => Ok(()),
                ReloadEnd::TakenBack { program, why } => {
                    let name = self.launches.program_name(program);
                    Err(format!(
                        "the old workers stay, because the new version of `{name}` does not work: {why}"
                    ))
                }
                ReloadEnd::OldStay(why) => Err(format!("the old workers stay: {why}")),
                ReloadEnd::SomeStay(why) => Err(format!("some of the old workers stay: {why}")),
            };
            self.handle.set_pending(move |cx| then(end, cx));
        }
        let core = &self.core;
        self.launches.retain_versions(|version| core.may_start_version(version));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(name: &str) -> Program {
        Program::command(vec![name.to_owned()])
    }

    #[test]
    fn a_program_is_named_by_its_newest_version_and_older_ones_are_there_while_they_may_be_started() {
        let mut programs = Programs::new(vec![command("old"), command("other")]);
        let version = programs.add_version(vec![command("new"), command("other")]);
        assert_eq!((version, programs.name(0), programs.name(1)), (1, "new", "other"));
        assert_eq!(programs.get(0, 0).name(), "old");
        programs.retain(|version| version != 1);
        assert_eq!(programs.name(0), "old", "the new one is taken back");
        assert_eq!(programs.add_version(vec![command("newer")]), 2, "a number is never used twice");
    }
}
