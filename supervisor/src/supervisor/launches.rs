//! Processes in the making: ordered from the launcher, not arrived yet. One that is not wanted any more is not started,
//! or killed when it arrives.

use super::{AFFINITY_VARIABLE, Hub};
use crate::core::action::Kill;
use crate::core::event::Event;
use crate::core::ids::{ProgramIndex, SlotIndex, Version, WorkerId};
use crate::event_loop::{Interest, LoopError};
use crate::workers::{Answer, Process, SpawnError, Wanted};

/// See the module's documentation.
pub(super) struct Launch {
    slot: SlotIndex,
    /// None if it is not wanted any more.
    wanted: Option<Wanted>,
    /// How it is to be ended if it comes all the same.
    kill: Option<Kill>,
}

impl Hub {
    /// A process that is awaited does not keep the loop alive, hence unreferenced: jobs do that, and whoever holds it.
    pub(super) fn listen_to_the_launcher(&mut self) -> Result<(), LoopError> {
        let me = self.me.clone();
        let bell = self.launcher.bell();
        let watcher =
            self.handle.watch(bell, Interest::READ, move |_, _| Hub::with(&me, Hub::hear_the_launcher))?;
        self.handle.unref(watcher);
        self.bell = Some(watcher);
        Ok(())
    }

    pub(super) fn hear_the_launcher(&mut self) {
        for answer in self.launcher.answers() {
            match answer {
                Answer::Launched { key, process } => self.launched(WorkerId(key), process),
                Answer::Swept(swept) => self.swept(swept),
            }
        }
    }

    pub(super) fn spawn(
        &mut self,
        worker: WorkerId,
        program: ProgramIndex,
        version: Version,
        slot: SlotIndex,
    ) {
        let payload_max = usize::try_from(self.core.config().max_payload).unwrap_or(usize::MAX);
        let program =
            self.programs[program].get(&version).expect("a version is kept while it may be started");
        let core = slot.checked_rem(self.cores.len()).and_then(|index| self.cores.get(index));
        let program = match core {
            Some(core) => program.clone().with_variable(AFFINITY_VARIABLE, &core.to_string()),
            None => program.clone(),
        };
        match self.launcher.launch(worker.0, program, payload_max) {
            Ok(wanted) => {
                self.launches.insert(worker, Launch { slot, wanted: Some(wanted), kill: None });
            }
            Err(error) => self.inbox.push_back(failed(worker, error).into()),
        }
    }

    /// A process has arrived, or there will be none.
    fn launched(&mut self, worker: WorkerId, process: Result<Box<Process>, SpawnError>) {
        let Some(Launch { slot, kill, .. }) = self.launches.remove(&worker) else {
            return self.launcher.forget(worker.0);
        };
        match process.and_then(|process| self.enlist(worker, *process)) {
            Ok(pid) => {
                self.log.info(format_args!("slot {slot}: started worker process {pid}"));
                match kill {
                    Some(how) => self.kill(worker, how),
                    None => self.tell(Event::Launched { worker }),
                }
            }
            Err(error) => {
                self.launcher.forget(worker.0);
                self.tell(failed(worker, error));
            }
        }
    }

    /// Ends what has arrived and was not heard of, as the hub itself ends.
    pub(super) fn kill_arrivals(&mut self) {
        for answer in self.launcher.answers() {
            if let Answer::Launched { key, process } = answer {
                // Dropping it kills it.
                drop(process);
                self.launcher.forget(key);
            }
        }
    }

    /// Of a process that has not arrived. Whether it is one.
    pub(super) fn kill_launch(&mut self, worker: WorkerId, how: Kill) -> bool {
        let Some(launch) = self.launches.get_mut(&worker) else { return false };
        launch.wanted = None;
        launch.kill = Some(how);
        true
    }

    /// Whether this worker's process has not arrived.
    pub(super) fn is_launching(&self, worker: WorkerId) -> bool {
        self.launches.contains_key(&worker)
    }
}

fn failed(worker: WorkerId, error: SpawnError) -> Event {
    let SpawnError { fatal, message } = error;
    Event::SpawnFailed { worker, fatal, message }
}
