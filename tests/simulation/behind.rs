//! Fake workers that stand in front of a program, and say that it has not taken a job which they have started. An honest one
//! has said nothing of the job since, runs no other one, and ends.

use crate::faults::Fault;
use crate::process::{FakeProcess, Given};
use crate::running::Run;
use crate::world::Outside;
use offload_core::event::Event;
use offload_core::ids::JobId;
use offload_protocol::nouns::Usage;
use std::time::Duration;

impl FakeProcess {
    /// Starts a job, takes that back and ends. False if it starts the job like others.
    pub(crate) fn starts_in_vain(&mut self, given: Given, out: &mut Outside) -> bool {
        if self.suspended.is_some() || !self.strikes(Fault::TakesBackStart, out) {
            return false;
        }
        let (worker, Given { job, attempt, task, .. }) = (self.id, given);
        self.say(true, Event::Started { worker, job, attempt }, out);
        self.say(true, Event::NotBegun { worker, job, attempt }, out);
        if self.strikes(Fault::TakesBackWrongly, out) {
            let (run, usage, output_bytes) = (Duration::ZERO, Usage::default(), 1);
            let lies = [
                Event::NotBegun { worker, job, attempt },
                Event::Started { worker, job, attempt },
                Event::Part { worker, job, attempt, bytes: 1 },
                Event::Finished { worker, job, attempt, run, usage, output_bytes },
            ];
            let lie = out.choices.pick(&mut self.tape, &lies);
            if !matches!(lie, Event::NotBegun { .. }) {
                out.started(job, self.promises(task));
            }
            self.say(false, lie, out);
        }
        self.crash(out);
        true
    }

    /// Takes back the start of a job that runs: of one that was heard of since, of one with another between its steps, of that
    /// one, or of one that it was not given. That it takes back one of which nothing was heard could not be told from the truth.
    pub(crate) fn take_back_wrongly(&mut self, run: Run, out: &mut Outside) {
        if !self.strikes(Fault::TakesBackWrongly, out) {
            return;
        }
        let (worker, Run { job, attempt, .. }) = (self.id, run);
        let mut wrong = vec![(job, attempt), (JobId(job.0 + 1), attempt), (job, attempt + 1)];
        wrong.extend(self.suspended.map(|outer| (outer.job, outer.attempt)));
        let (job, attempt) = out.choices.pick(&mut self.tape, &wrong);
        if job == run.job && self.suspended.is_none() {
            let attempt = run.attempt;
            self.say(true, Event::Progress { worker, job, attempt, done: 1, total: 2 }, out);
        }
        self.say(false, Event::NotBegun { worker, job, attempt }, out);
    }
}
