//! What processes have sent reaches the core, and their ends do.

use super::{Thing, World};
use crate::oracle::Failure;
use crate::process::{FakeProcess, Given, ToFake};
use crate::unwritten::job_of;
use offload_core::event::Event;
use offload_core::ids::{JobId, WorkerId};
use std::time::Duration;

impl World {
    pub(super) fn deliver(&mut self, worker: WorkerId) -> Result<(), Failure> {
        let Some(process) = self.processes.get_mut(&worker).filter(|process| !process.is_unheard) else {
            return Ok(());
        };
        let Some(said) = process.outbox.pop_front() else { return Ok(()) };
        process.is_unheard = matches!(said.event, Event::Closed { .. } | Event::Garbled { .. });
        let event = match job_of(&said.event).is_some_and(|job| process.has_not_seen(job)) {
            true => Event::Violation { worker, message: "a guess".to_owned() },
            false if self.checks_tray(worker, &said.event)? => {
                Event::Violation { worker, message: "a guess".to_owned() }
            }
            false => said.event,
        };
        self.tell(event, said.is_honest)
    }

    /// Delivers what the process had sent, then reports its exit.
    pub(super) fn bury(&mut self, worker: WorkerId) -> Result<(), Failure> {
        let Some(exit) = self.processes.get(&worker).and_then(FakeProcess::exit) else { return Ok(()) };
        while self.processes.get(&worker).is_some_and(|dead| !dead.outbox.is_empty() && !dead.is_unheard) {
            self.deliver(worker)?;
        }
        self.tell(Event::Closed { worker }, true)?;
        self.take_rest_back(worker)?;
        let Some(mut process) = self.processes.remove(&worker) else { return Ok(()) };
        if let Some(event) = process.ghost(&mut self.out) {
            let delay = self.out.choices.delay(&mut self.tape, Duration::from_millis(50));
            self.out.schedule(self.out.now + delay, Thing::Haunt(event));
        }
        self.tell(Event::Exited { worker, exit, last_lines: Vec::new(), usage: None }, true)
    }

    pub(super) fn given(&self, job: JobId, attempt: u32) -> Given {
        let task = self.task_of.get(&job).copied().unwrap_or(0);
        let guilt = self.guilt_of.get(&job).copied().filter(|_| !self.is_calm);
        let is_stream = self.readers.streams.contains(&job);
        Given { job, attempt, task, guilt, is_stream }
    }

    pub(super) fn send(&mut self, worker: WorkerId, message: ToFake) {
        if let Some(process) = self.processes.get_mut(&worker) {
            process.send(message, &mut self.out);
        }
    }
}
