//! Processes in the making: ordered from the launcher, not arrived yet.
//!
//! ```text
//!   ordered ---> arrived: a process, or why there is none ---> the core is told
//!      |
//!      '------> given up: the core is told at once that there is none; whatever still comes is killed by the launcher
//! ```
//!
//! A launch may hang, on a file system that does not answer. Nobody waits for it longer than for a worker's hello.

use super::Hub;
use crate::workers::{Answer, Process, SpawnError, Wanted};
use offload_core::event::Event;
use offload_core::ids::{ProgramIndex, SlotIndex, Version, WorkerId};
use offload_event_loop::{Interest, LoopError};
use offload_protocol::limits::CORE_VARIABLE;
use std::time::Instant;

/// See the module's documentation.
pub(super) struct Launch {
    slot: SlotIndex,
    wanted: Wanted,
    ordered_at: Instant,
    /// What is to be started.
    name: String,
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
        let lane = (program, version);
        let program = &self.programs[program];
        let program = program.get(&version).expect("a version is kept while it may be started");
        let core = slot.checked_rem(self.cores.len()).and_then(|index| self.cores.get(index));
        let program = match core {
            Some(core) => program.clone().with_variable(CORE_VARIABLE, &core.to_string()),
            None => program.clone(),
        };
        let name = program.name().to_owned();
        match self.launcher.launch(worker.0, lane, program, payload_max) {
            Ok(wanted) => {
                let launch = Launch { slot, wanted, ordered_at: Instant::now(), name };
                self.launches.insert(worker, launch);
            }
            Err(error) => self.inbox.push_back(failed(worker, error).into()),
        }
    }

    /// A process has arrived, or there will be none.
    fn launched(&mut self, worker: WorkerId, process: Result<Box<Process>, SpawnError>) {
        let Some(Launch { slot, .. }) = self.launches.remove(&worker) else {
            process.into_iter().for_each(|process| self.launcher.bury(process));
            return self.launcher.forget(worker.0);
        };
        match process.and_then(|process| self.enlist(worker, process)) {
            Ok(pid) => {
                self.log.info(format_args!("slot {slot}: started worker process {pid}"));
                self.tell(Event::Launched { worker });
            }
            Err(error) => {
                self.launcher.forget(worker.0);
                self.tell(failed(worker, error));
            }
        }
    }

    /// The processes that have arrived and were not heard of, as the hub itself ends.
    pub(super) fn arrivals(&mut self) -> Vec<Process> {
        let processes = self.launcher.answers().into_iter().filter_map(|answer| match answer {
            Answer::Launched { process, .. } => process.ok(),
            Answer::Swept(_) => None,
        });
        processes.map(|process| *process).collect()
    }

    /// Of a process that has not arrived. Whether it is one.
    pub(super) fn give_up_launch(&mut self, worker: WorkerId) -> bool {
        let Some(Launch { wanted, ordered_at, name, .. }) = self.launches.remove(&worker) else {
            return false;
        };
        self.launcher.give_up(worker.0, wanted);
        let seconds = ordered_at.elapsed().as_secs();
        let message =
            format!("cannot start `{name}`: not loaded after {seconds} s; does its file system answer?");
        self.inbox.push_back(failed(worker, SpawnError { fatal: false, message }).into());
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
