//! The trays, as the kernel and the shell treat them: the shell puts one packet in, and takes it out again if the worker has
//! not done so before. It answers the core when it gets round to it: before the next tick, and before the worker's exit.

use super::{MOMENT, Thing, World};
use crate::faults::Fault;
use crate::oracle::Failure;
use crate::process::{FakeProcess, Given, Said};
use offload_core::event::Event;
use offload_core::ids::{JobId, WorkerId};

impl World {
    pub(super) fn make_tray(&mut self, worker: WorkerId) {
        if self.processes.get(&worker).is_some_and(|process| process.has_tray) {
            self.soon.push_back(Said { event: Event::TrayMade { worker }, is_honest: true });
        }
    }

    pub(super) fn put_into_tray(&mut self, worker: WorkerId, given: Given) {
        let Some(process) = self.processes.get_mut(&worker) else { return };
        let has_failed = process.strikes(Fault::TrayFails, &mut self.out);
        if has_failed || process.tray.is_some() {
            let event = Event::TakenBack { worker, job: given.job };
            self.soon.push_back(Said { event: Event::TrayFailed { worker }, is_honest: true });
            self.soon.push_back(Said { event, is_honest: true });
            return;
        }
        process.tray = Some(given);
        if process.strikes(Fault::TakesEarly, &mut self.out) {
            process.take_from_tray();
        }
    }

    /// The shell takes a job out of a tray, now or a little later.
    pub(super) fn want_back(&mut self, worker: WorkerId, job: JobId) {
        self.wanted_back.push((worker, job));
        let delay = self.out.choices.delay(&mut self.tape, MOMENT);
        self.out.schedule(self.out.now + delay, Thing::TakeBack(worker, job));
    }

    /// It has been taken back, unless that was done before.
    pub(super) fn take_back(&mut self, worker: WorkerId, job: JobId) -> Result<(), Failure> {
        let asked = self.wanted_back.iter().position(|asked| *asked == (worker, job));
        let Some(asked) = asked else { return Ok(()) };
        self.wanted_back.remove(asked);
        let event = match self.remove_from_tray(worker, Some(job)) {
            Some(_) => Event::TakenBack { worker, job },
            None => Event::NotInTray { worker, job },
        };
        self.tell(event, true)
    }

    /// Before a tick, the shell has done everything that it was told to.
    pub(super) fn take_all_back(&mut self) -> Result<(), Failure> {
        while let Some(&(worker, job)) = self.wanted_back.first() {
            self.take_back(worker, job)?;
        }
        Ok(())
    }

    /// Before the exit of a process is told, its tray is emptied.
    pub(super) fn take_rest_back(&mut self, worker: WorkerId) -> Result<(), Failure> {
        let asked = self.wanted_back.iter().find(|(of, _)| *of == worker).copied();
        if let Some((_, job)) = asked {
            self.take_back(worker, job)?;
        }
        match self.remove_from_tray(worker, None) {
            Some(job) => self.tell(Event::TakenBack { worker, job }, true),
            None => Ok(()),
        }
    }

    /// A worker says that it has started a job. If that lies in its tray still, the shell takes it back, and the message is a
    /// lie.
    pub(super) fn checks_tray(&mut self, worker: WorkerId, event: &Event) -> Result<bool, Failure> {
        let Event::Started { job, .. } = event else { return Ok(false) };
        let Some(job) = self.remove_from_tray(worker, Some(*job)) else { return Ok(false) };
        self.wanted_back.retain(|asked| *asked != (worker, job));
        self.tell(Event::TakenBack { worker, job }, true)?;
        Ok(true)
    }

    fn remove_from_tray(&mut self, worker: WorkerId, wanted: Option<JobId>) -> Option<JobId> {
        let process = self.processes.get_mut(&worker)?;
        let is_wanted = |given: &mut Given| wanted.is_none_or(|wanted| given.job == wanted);
        process.tray.take_if(is_wanted).map(|given| given.job)
    }

    /// Soon everything is read that workers have sent until now.
    pub(super) fn expect_end_of_turn(&mut self) {
        if self.core.has_untaken() && !std::mem::replace(&mut self.is_turn_ending, true) {
            let delay = self.out.choices.delay(&mut self.tape, MOMENT / 5);
            self.out.schedule(self.out.now + delay, Thing::EndOfTurn);
        }
    }

    pub(super) fn end_turn(&mut self) -> Result<(), Failure> {
        self.is_turn_ending = false;
        if self.core.has_untaken() { self.tell(Event::EndOfTurn, true) } else { Ok(()) }
    }
}

impl FakeProcess {
    /// The job that is next: of those that were sent, or else the one in the tray.
    pub(crate) fn next_given(&mut self, out: &mut crate::world::Outside) -> Option<Given> {
        if self.jobs.is_empty() && self.tray.is_some() && !self.strikes(Fault::IgnoresTray, out) {
            self.take_from_tray();
        }
        self.jobs.front().copied()
    }

    pub(crate) fn take_from_tray(&mut self) {
        let given = self.tray.take();
        self.jobs.extend(given.map(|given| Given { guilt: given.guilt.or(self.bane), ..given }));
    }
}
