//! Processes in the making: ordered from the launcher, not arrived yet. What the core wants of one meanwhile is done
//! when it arrives.

use super::{AFFINITY_VARIABLE, Hub};
use crate::core::action::Kill;
use crate::core::event::Event;
use crate::core::ids::{ProgramIndex, SlotIndex, Version, WorkerId};
use crate::event_loop::RequestId;
use crate::workers::{Process, SpawnError};

/// See the module's documentation.
pub(super) struct Launch {
    slot: SlotIndex,
    request: RequestId,
    /// It is not wanted any more.
    kill: Option<Kill>,
}

impl Hub {
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
        let me = self.me.clone();
        let request =
            self.handle.request(move |_, process| Hub::with(&me, |hub| hub.launched(worker, process)));
        self.launches.insert(worker, Launch { slot, request: request.id(), kill: None });
        self.launcher.launch(worker.0, program, payload_max, move |process| {
            // Without a loop the process is dropped, which kills it.
            let _ = request.complete(process);
        });
    }

    /// A process has arrived, or there will be none.
    fn launched(&mut self, worker: WorkerId, process: Result<Process, SpawnError>) {
        let Some(Launch { slot, kill, .. }) = self.launches.remove(&worker) else { return };
        match process.and_then(|process| self.enlist(worker, process)) {
            Ok(pid) => {
                self.log.info(format_args!("slot {slot}: started worker process {pid}"));
                kill.into_iter().for_each(|how| self.kill(worker, how));
            }
            Err(error) => {
                self.launcher.forget(worker.0);
                let SpawnError { fatal, message } = error;
                self.tell(Event::SpawnFailed { worker, fatal, message });
            }
        }
    }

    /// Of a process that has not arrived. Whether it is one.
    pub(super) fn kill_launch(&mut self, worker: WorkerId, how: Kill) -> bool {
        self.launches.get_mut(&worker).map(|launch| launch.kill = Some(how)).is_some()
    }

    /// What still arrives is killed by whoever drops it.
    pub(super) fn give_up_launches(&mut self) {
        for launch in std::mem::take(&mut self.launches).into_values() {
            self.handle.withdraw(launch.request);
        }
    }
}
