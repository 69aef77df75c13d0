//! The shell itself is stopped for a while, as by SIGSTOP. Processes go on; what they say, and what clients want, is told
//! when the shell goes on, and the tick comes after all that.

use super::{Thing, World};
use crate::faults::Fault;
use crate::oracle::Failure;
use std::time::Duration;

/// Longest time for which the shell is stopped.
const LONGEST_STOP: Duration = Duration::from_secs(20);

impl World {
    /// What the shell would have to tell waits while that is stopped; processes go on.
    pub(super) fn happen_or_wait(&mut self, thing: Thing) -> Result<(), Failure> {
        if matches!(thing, Thing::Act(..)) {
            return self.happen(thing);
        }
        let stops = self.out.now > self.stopped_until
            && self.out.plan.strikes(Fault::ShellStops, &mut self.out.choices, &mut self.tape);
        if stops {
            self.stopped_until = self.out.now + self.out.choices.delay(&mut self.tape, LONGEST_STOP);
        }
        if self.out.now < self.stopped_until {
            self.out.schedule(self.stopped_until, thing);
            return Ok(());
        }
        self.happen(thing)
    }
}
