//! Looking for events for a short while before the loop goes to sleep.
//!
//! To be woken takes long: a core that has gone to sleep needs 20 to 60 us on a virtual machine, which is more than many
//! answers take to come. So a loop that is told to linger looks for events until about the time has passed that a wake-up
//! costs. It then loses at most as much as it could have won (the rule for renting or buying skis). Should looking find
//! nothing, it may even be what keeps the answer from coming, because whoever has it waits for this core. So the loop then
//! sleeps without looking, and longer each time in a row, as Linux does with the polling of idle virtual processors.
//!
//! ```text
//!            .-- an event came ----------------------------------.
//!            v                                                   |
//!        Looking: before each sleep, for as long as told to -----'
//!            ^        | nothing came
//!            |        v
//!            '---- Sleeping: 1 sleep without looking; 3, 7 ... up to 4,095, if the looks in between find nothing
//! ```

use super::clock::Nanos;
use super::limits::SLEEPS_BETWEEN_LOOKS_MAX;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Linger {
    /// So often the loop sleeps without looking.
    sleeps: u32,
    /// The same for the next time that looking finds nothing.
    next: u32,
}

impl Linger {
    /// For how long to look before a sleep of `timeout`. 0: not at all. `told` is what the loop was told.
    pub(super) fn time(&mut self, told: Nanos, timeout: Option<Nanos>) -> Nanos {
        if told == 0 || timeout.is_some_and(|timeout| timeout <= told) {
            return 0;
        }
        match self.sleeps.checked_sub(1) {
            Some(left) => {
                self.sleeps = left;
                0
            }
            None => told,
        }
    }

    /// What came of it.
    pub(super) fn looked(&mut self, has_found: bool) {
        if has_found {
            self.next = 0;
        } else {
            self.next = (2 * self.next + 1).min(SLEEPS_BETWEEN_LOOKS_MAX);
            self.sleeps = self.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `sleeps` sleeps begin with a look.
    fn looks(linger: &mut Linger, sleeps: usize, has_found: bool) -> usize {
        let mut looks = 0;
        for _ in 0..sleeps {
            if linger.time(50, None) > 0 {
                looks += 1;
                linger.looked(has_found);
            }
        }
        looks
    }

    #[test]
    fn who_finds_something_goes_on_looking() {
        let mut linger = Linger::default();
        assert_eq!(looks(&mut linger, 100, true), 100);
    }

    #[test]
    fn who_finds_nothing_looks_ever_more_seldom_until_it_finds_something() {
        let mut linger = Linger::default();
        // Before the first sleep, and after 1, 3, 7 and so on.
        assert_eq!(looks(&mut linger, 1 + (1 + 1) + (3 + 1), false), 3);
        assert_eq!(looks(&mut linger, 7, false), 0);
        assert_eq!(looks(&mut linger, 1, true), 1);
        assert_eq!(looks(&mut linger, 1 + 1 + 1, false), 2);
        let mut linger = Linger::default();
        looks(&mut linger, 100_000, false);
        assert_eq!(looks(&mut linger, 2 * (SLEEPS_BETWEEN_LOOKS_MAX as usize + 1), false), 2);
    }

    #[test]
    fn a_loop_looks_only_if_it_is_told_to_and_sleeps_for_longer_than_that() {
        let mut linger = Linger::default();
        assert_eq!((linger.time(0, None), linger.time(50, Some(50))), (0, 0));
        assert_eq!((linger.time(50, Some(51)), linger.time(50, None)), (50, 50));
    }
}
