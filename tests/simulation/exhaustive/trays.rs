//! The trays of the small worlds. A worker may take a job out of its tray at any time: if it runs another one, the answer to
//! that is on its way. The shell answers each question once, before the next tick and before the exit of the worker.

use super::{Small, State};
use crate::oracle::Failure;
use offload_core::event::Event;
use offload_core::ids::{JobId, WorkerId};

impl State<'_> {
    /// The shell takes out of the tray of this worker what it was told to, if it was.
    pub(super) fn take_back(&mut self, worker: WorkerId) -> Result<(), Failure> {
        let Some(process) = self.processes.get_mut(&worker) else { return Ok(()) };
        let Some(job) = process.wanted_back.take() else { return Ok(()) };
        match process.tray.take_if(|(in_tray, _)| *in_tray == job) {
            Some(_) => self.tell(Event::TakenBack { worker, job }, true),
            None => self.tell(Event::NotInTray { worker, job }, true),
        }
    }

    /// Before a tick, the shell has done everything that it was told to. An answer may lead to another question.
    pub(super) fn take_all_back(&mut self) -> Result<(), Failure> {
        let has_wish = |(worker, process): (&WorkerId, &Small)| process.wanted_back.map(|_| *worker);
        while let Some(worker) = self.processes.iter().find_map(has_wish) {
            self.take_back(worker)?;
        }
        Ok(())
    }

    /// Before a tick, the answers have come that were on their way when their workers took the next jobs out of their trays.
    pub(super) fn deliver_answers(&mut self) -> Result<(), Failure> {
        let is_due = |(worker, process): (&WorkerId, &Small)| {
            (process.is_answer_on_its_way && !process.is_unheard).then_some(*worker)
        };
        let due: Vec<WorkerId> = self.processes.iter().filter_map(is_due).collect();
        due.into_iter().try_for_each(|worker| self.finishes(worker))
    }

    /// Before the exit of a process is told, its tray is emptied.
    pub(super) fn take_rest_back(&mut self, worker: WorkerId) -> Result<(), Failure> {
        self.take_back(worker)?;
        let left = self.process(worker).and_then(|process| process.tray.take());
        left.map_or(Ok(()), |(job, _)| self.tell(Event::TakenBack { worker, job }, true))
    }
}

impl Small {
    pub(super) fn end_run(&mut self) -> Option<(JobId, u32)> {
        self.is_answer_on_its_way = false;
        self.running.take()
    }

    pub(super) fn take_from_tray(&mut self) {
        self.is_answer_on_its_way |= self.running.is_some();
        self.given.extend(self.tray.take().map(|(job, attempt)| (job, attempt, false)));
    }
}
