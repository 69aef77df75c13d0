//! What the shell does itself, on threads: it takes a while, fails, or takes longer than it may.

use super::{MOMENT, Thing, World};
use crate::oracle::Failure;
use offload_core::event::Event;
use offload_core::here::RanHere;
use offload_core::ids::JobId;
use offload_protocol::nouns::OutcomeCode;
use std::time::Duration;

impl World {
    pub(super) fn run_here(&mut self, job: JobId, within: Duration) {
        self.here.insert(job);
        let bytes = self.out.choices.range(&mut self.tape, 0, self.out.output_max);
        let is_stuck = !self.is_calm && self.out.choices.chance(&mut self.tape, 60);
        let fails = self.out.choices.chance(&mut self.tape, 150);
        let codes = [OutcomeCode::IoError, OutcomeCode::IoPanic, OutcomeCode::AppError];
        let code = self.out.choices.pick(&mut self.tape, &codes);
        let longest = self.out.choices.pick(&mut self.tape, &[MOMENT, 10 * MOMENT, 300 * MOMENT]);
        let takes = self.out.choices.delay(&mut self.tape, longest).min(within);
        let (takes, result) = match (is_stuck, fails) {
            (true, _) => (within, Err((OutcomeCode::Timeout, "stuck".to_owned()))),
            (false, true) => (takes, Err((code, "no such file".to_owned()))),
            (false, false) => (takes, Ok(bytes)),
        };
        self.out.schedule(self.out.now + takes, Thing::RanHere(job, result));
    }

    /// Some can be stopped between two parts; a thread that waits goes on.
    pub(super) fn stop_here(&mut self, job: JobId) {
        if self.out.choices.chance(&mut self.tape, 500) {
            let after = self.out.choices.delay(&mut self.tape, MOMENT);
            let result = Err((OutcomeCode::Cancelled, "stopped".to_owned()));
            self.out.schedule(self.out.now + after, Thing::RanHere(job, result));
        }
    }

    /// The first time counts.
    pub(super) fn ran_here(&mut self, job: JobId, result: RanHere) -> Result<(), Failure> {
        match self.here.remove(&job) {
            true => self.tell(Event::RanHere { job, result }, true),
            false => Ok(()),
        }
    }
}
