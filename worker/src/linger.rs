//! Whether a worker looks for its next job for a short while before it goes to sleep, so that a job that comes soon does not
//! have to wait for the wake-up.
//!
//! It looks only after a job that came alone: jobs that come together are better fetched together, and while they wait the worker
//! may as well sleep. If looking finds nothing, it may even be what keeps the job from coming, because the supervisor waits for
//! this core. Then the worker sleeps without looking, and longer each time in a row. The event loop does the same.
//!
//! ```text
//!            .-- a job came -------------------------------.
//!            v                                             |
//!        Looking: before each sleep, for LINGER at most ---'
//!            ^        | nothing came
//!            |        v
//!            '---- Sleeping: 1 sleep without looking; 3, 7 ... up to 4,095, if the looks in between find nothing
//! ```

use crate::limits::SLEEPS_BETWEEN_LOOKS_MAX;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Linger {
    /// The last job came alone.
    was_alone: bool,
    /// So often the worker sleeps without looking.
    sleeps: u32,
    /// The same for the next time that looking finds nothing.
    next: u32,
}

impl Linger {
    /// A wait begins. Whether to look first.
    pub(crate) fn begins(&mut self) -> bool {
        let may_look = self.was_alone && self.sleeps == 0;
        self.sleeps -= u32::from(self.was_alone && !may_look);
        may_look
    }

    /// What came of looking.
    pub(crate) fn looked(&mut self, has_found: bool) {
        self.next = if has_found { 0 } else { (2 * self.next + 1).min(SLEEPS_BETWEEN_LOOKS_MAX) };
        self.sleeps = self.next;
    }

    /// The wait has brought so many jobs.
    pub(crate) fn came(&mut self, jobs: usize) {
        self.was_alone = jobs == 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `waits` waits, each of which brings so many jobs, begin with a look.
    fn looks(linger: &mut Linger, waits: usize, has_found: bool, jobs: usize) -> usize {
        let mut looks = 0;
        for _ in 0..waits {
            if linger.begins() {
                looks += 1;
                linger.looked(has_found);
            }
            linger.came(jobs);
        }
        looks
    }

    #[test]
    fn a_worker_looks_after_jobs_that_come_alone_as_long_as_it_finds_others() {
        let mut linger = Linger::default();
        assert_eq!(looks(&mut linger, 101, true, 1), 100);
        assert_eq!(looks(&mut linger, 1 + 100, true, 2), 1);
        assert_eq!(looks(&mut linger, 100, true, 0), 0);
    }

    #[test]
    fn a_worker_that_finds_nothing_looks_ever_more_seldom() {
        let mut linger = Linger { was_alone: true, ..Linger::default() };
        assert_eq!(looks(&mut linger, 1 + (1 + 1) + (3 + 1) + 7, false, 1), 3);
        assert_eq!(looks(&mut linger, 1, true, 1), 1);
        assert_eq!(looks(&mut linger, 1 + 1 + 1, false, 1), 2);
        looks(&mut linger, 100_000, false, 1);
        assert_eq!(looks(&mut linger, 2 * (SLEEPS_BETWEEN_LOOKS_MAX as usize + 1), false, 1), 2);
    }
}
