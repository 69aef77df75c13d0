//! When the periodic checks are due: stalled workers, memory, and stray processes. What each check does is in
//! `stalls.rs` and `strays.rs`.
//!
//! ```text
//!   checks   Never -- anything happens --> Soon -- a check: something is in progress --> Soon
//!              ^                            |  ^ '-- a check: only memory is limited ---> Late -- anything happens --.
//!              '--- a check: neither -------'  |                                               or a check            |
//!                                              '---------------------------------------------------------------------'
//!   sweeps   Resting -- requested --> UnderWay -- done, nothing is left --> Resting
//!              ^                      |   ^   '-- done, more is left ---> Paused -- a pause, or requested --> UnderWay
//!              |            requested v   |
//!              |                  WantedAgain -- done --> as if requested
//!             Off: it stays so
//! ```

use crate::limits::MEASURED_AT_A_TIME;
use offload_core::ids::WorkerId;
use offload_event_loop::{LoopHandle, TimerId};
use std::time::Instant;

/// When the periodic checks are due. See the module's documentation.
pub(super) struct CheckSchedule {
    next_check: NextCheck,
    /// When the last check began, or when checks began after none was scheduled.
    last_check_at: Instant,
    /// The worker that was measured last. None if all workers have been measured.
    last_measured: Option<WorkerId>,
    sweeps: Sweeps,
    /// Checks have begun again after they had rested, and nobody has taken note.
    has_woken: bool,
}

/// When the next check of the workers takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextCheck {
    /// Not scheduled: it will be when something happens.
    Never,
    /// Soon, because something is in progress.
    Soon,
    /// After a longer interval, or soon after something happens.
    Late(TimerId),
}

/// Whether a sweep is under way. There is one at a time, and one more for all requests that come meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sweeps {
    /// Sweeps are off: a child of this process that is not a worker need not come from a worker.
    Off,
    Resting,
    UnderWay,
    WantedAgain,
    /// Something is left to sweep; when the timer fires it requests a sweep.
    Paused(TimerId),
}

impl CheckSchedule {
    /// `sweeps` says whether this process may kill what workers leave behind.
    pub(super) fn new(sweeps: bool) -> CheckSchedule {
        CheckSchedule {
            next_check: NextCheck::Never,
            last_check_at: Instant::now(),
            last_measured: None,
            sweeps: if sweeps { Sweeps::Resting } else { Sweeps::Off },
            has_woken: false,
        }
    }
}

/// Periodic checks of workers.
impl CheckSchedule {
    /// Something happened. Returns true if the caller has to schedule a check soon.
    pub(super) fn wake(&mut self, handle: &LoopHandle) -> bool {
        match self.next_check {
            NextCheck::Soon => return false,
            NextCheck::Late(timer) => drop(handle.clear(timer)),
            NextCheck::Never => {}
        }
        self.last_check_at = Instant::now();
        self.next_check = NextCheck::Soon;
        self.has_woken = true;
        true
    }

    /// Whether checks have begun again, after they had rested, since this was asked last.
    pub(super) fn take_woken(&mut self) -> bool {
        std::mem::take(&mut self.has_woken)
    }

    /// A check begins. Events that the check itself causes do not schedule another one, or checks would never end.
    /// Returns when the previous check began.
    pub(super) fn begin_check(&mut self) -> Instant {
        self.next_check = NextCheck::Soon;
        std::mem::replace(&mut self.last_check_at, Instant::now())
    }

    pub(super) fn end_check(&mut self, next: NextCheck) {
        self.next_check = next;
    }

    /// When the last check began.
    pub(super) fn last_check_at(&self) -> Instant {
        self.last_check_at
    }

    /// The next workers to measure, in the order of their ids, so that all take turns.
    pub(super) fn next_to_measure(&mut self, all: impl Iterator<Item = WorkerId>) -> Vec<WorkerId> {
        let after = self.last_measured;
        let some: Vec<WorkerId> =
            all.filter(|worker| Some(*worker) > after).take(MEASURED_AT_A_TIME).collect();
        self.last_measured = some.last().copied().filter(|_| some.len() == MEASURED_AT_A_TIME);
        some
    }

    /// Whether some workers have yet to be measured in this round.
    pub(super) fn is_measuring(&self) -> bool {
        self.last_measured.is_some()
    }
}

/// Sweeps of stray processes.
impl CheckSchedule {
    pub(super) fn may_sweep(&self) -> bool {
        self.sweeps != Sweeps::Off
    }

    /// Requests a sweep. Returns true if the caller has to order it now.
    pub(super) fn begin_sweep(&mut self, handle: &LoopHandle) -> bool {
        match self.sweeps {
            Sweeps::Off => return false,
            Sweeps::UnderWay | Sweeps::WantedAgain => {
                self.sweeps = Sweeps::WantedAgain;
                return false;
            }
            Sweeps::Paused(timer) => drop(handle.clear(timer)),
            Sweeps::Resting => {}
        }
        self.sweeps = Sweeps::UnderWay;
        true
    }

    /// A sweep is done. Returns true if another one was requested meanwhile.
    pub(super) fn end_sweep(&mut self) -> bool {
        let is_wanted_again = self.sweeps == Sweeps::WantedAgain;
        if self.may_sweep() {
            self.sweeps = Sweeps::Resting;
        }
        is_wanted_again
    }

    /// Something is left to sweep: this timer will request the next sweep.
    pub(super) fn pause_sweeps(&mut self, timer: TimerId) {
        self.sweeps = Sweeps::Paused(timer);
    }

    /// The timer of the pause has fired.
    pub(super) fn end_pause(&mut self) {
        if matches!(self.sweeps, Sweeps::Paused(_)) {
            self.sweeps = Sweeps::Resting;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_event_loop::EventLoop;
    use std::time::Duration;

    fn with_a_loop(test: impl FnOnce(&LoopHandle, TimerId)) {
        let event_loop = EventLoop::new().unwrap();
        let handle = event_loop.handle();
        let timer = handle.set_timeout(Duration::from_secs(3600), |_| ());
        test(&handle, timer);
    }

    #[test]
    fn all_that_is_asked_for_during_a_sweep_is_one_more() {
        with_a_loop(|handle, _| {
            let mut schedule = CheckSchedule::new(true);
            assert!(schedule.begin_sweep(handle));
            assert!(!schedule.begin_sweep(handle) && !schedule.begin_sweep(handle));
            assert!(schedule.end_sweep(), "one more");
            assert!(schedule.begin_sweep(handle) && !schedule.end_sweep(), "and that is all");
        });
    }

    #[test]
    fn who_asks_for_a_sweep_in_a_pause_need_not_wait_and_then_nothing_is_asked_for_twice() {
        with_a_loop(|handle, timer| {
            let mut schedule = CheckSchedule::new(true);
            assert!(schedule.begin_sweep(handle) && !schedule.end_sweep());
            schedule.pause_sweeps(timer);
            assert!(schedule.begin_sweep(handle));
            assert!(!handle.clear(timer), "the timer is cleared");
            schedule.end_pause();
            assert_eq!(schedule.sweeps, Sweeps::UnderWay);
        });
    }

    #[test]
    fn what_is_not_ours_is_never_swept() {
        with_a_loop(|handle, _| {
            let mut schedule = CheckSchedule::new(false);
            assert!(!schedule.begin_sweep(handle) && !schedule.end_sweep() && !schedule.may_sweep());
        });
    }

    #[test]
    fn each_worker_is_measured_in_its_turn() {
        let mut schedule = CheckSchedule::new(false);
        let mut next = || -> Vec<u64> {
            let workers = (1..=40).map(WorkerId);
            schedule.next_to_measure(workers).into_iter().map(|worker| worker.0).collect()
        };
        assert_eq!(next(), (1..=32).collect::<Vec<u64>>());
        assert_eq!(next(), (33..=40).collect::<Vec<u64>>());
        assert_eq!(next().first(), Some(&1));
    }

    #[test]
    fn however_much_happens_there_is_one_look() {
        with_a_loop(|handle, timer| {
            let mut schedule = CheckSchedule::new(false);
            assert!(schedule.wake(handle) && !schedule.wake(handle));
            schedule.begin_check();
            assert!(!schedule.wake(handle), "what a look finds brings about no other one");
            schedule.end_check(NextCheck::Late(timer));
            assert!(schedule.wake(handle) && !handle.clear(timer));
        });
    }
}
