//! When the periodic checks are due: stalled workers, memory, and stray processes. What each check does is in
//! `stalls.rs` and `strays.rs`.
//!
//! ```text
//!   looks    Never -- anything happens --> Soon -- a look: something is under way --> Soon
//!              ^                            | ^    only memory has a limit ---------> Late -- anything happens, or a look --.
//!              '------- nothing is ---------' '----------------------------------------------------------------------------'
//!
//!   sweeps   Resting -- asked for --> UnderWay -- done, nothing more is there --> Resting
//!               ^                      |   ^  '-- done, and there is more ------> Paused -- a moment later, or asked for --.
//!               |            asked for v   |                                                                             |
//!               |                  WantedAgain -- done --> as if asked for           UnderWay <----------------------------'
//!            NotOurs: it stays so
//! ```

use offload_core::ids::WorkerId;
use offload_event_loop::{HandleId, LoopHandle, TimerId};
use std::time::Instant;

/// So many workers are measured at each look: it takes some ten microseconds each.
const MEASURED_AT_A_TIME: usize = 32;

/// See the module's documentation.
pub(super) struct Watch {
    next_look: NextLook,
    /// When stalled workers were last looked for.
    looked_at: Instant,
    /// The one that was measured last, if others have still to be.
    last_measured: Option<WorkerId>,
    sweeps: Sweeps,
    child_signals: Option<HandleId>,
}

/// When workers are looked at next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextLook {
    /// When something has happened.
    Never,
    /// While something is under way, which is soon.
    Soon,
    /// Seldom, unless something happens before.
    Late(TimerId),
}

/// One sweep at a time, and one more for all that was asked for meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sweeps {
    /// The children of this process that are no workers need not come from workers.
    NotOurs,
    Resting,
    UnderWay,
    WantedAgain,
    /// There is more to sweep; a timer will ask for it.
    Paused(TimerId),
}

impl Watch {
    /// What workers leave behind is ours to end, or is not.
    pub(super) fn new(sweeps: bool) -> Watch {
        Watch {
            next_look: NextLook::Never,
            looked_at: Instant::now(),
            last_measured: None,
            sweeps: if sweeps { Sweeps::Resting } else { Sweeps::NotOurs },
            child_signals: None,
        }
    }

    pub(super) fn set_child_signals(&mut self, watcher: HandleId) {
        self.child_signals = Some(watcher);
    }

    pub(super) fn take_child_signals(&mut self) -> Option<HandleId> {
        self.child_signals.take()
    }
}

/// Looks.
impl Watch {
    /// Something happened. True if a look is to be had soon, and none is on its way.
    pub(super) fn wake(&mut self, handle: &LoopHandle) -> bool {
        match self.next_look {
            NextLook::Soon => return false,
            NextLook::Late(timer) => drop(handle.clear(timer)),
            NextLook::Never => {}
        }
        self.looked_at = Instant::now();
        self.next_look = NextLook::Soon;
        true
    }

    /// A look begins. What the core is told in it does not bring about another one, or there would be no end to it. Returns
    /// when the one before began.
    pub(super) fn begin_look(&mut self) -> Instant {
        self.next_look = NextLook::Soon;
        std::mem::replace(&mut self.looked_at, Instant::now())
    }

    pub(super) fn end_look(&mut self, next: NextLook) {
        self.next_look = next;
    }

    /// When the last look began.
    pub(super) fn looked_at(&self) -> Instant {
        self.looked_at
    }

    /// Some of all workers, in their order: each in turn.
    pub(super) fn next_to_measure(&mut self, all: impl Iterator<Item = WorkerId>) -> Vec<WorkerId> {
        let after = self.last_measured;
        let some: Vec<WorkerId> =
            all.filter(|worker| Some(*worker) > after).take(MEASURED_AT_A_TIME).collect();
        self.last_measured = some.last().copied().filter(|_| some.len() == MEASURED_AT_A_TIME);
        some
    }

    /// Whether some have still to be measured.
    pub(super) fn is_measuring(&self) -> bool {
        self.last_measured.is_some()
    }
}

/// Sweeps.
impl Watch {
    pub(super) fn is_sweeping_ours_to_do(&self) -> bool {
        self.sweeps != Sweeps::NotOurs
    }

    /// A sweep is asked for. True if it is to be ordered now.
    pub(super) fn begin_sweep(&mut self, handle: &LoopHandle) -> bool {
        match self.sweeps {
            Sweeps::NotOurs => return false,
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

    /// It is done. True if another one was asked for meanwhile.
    pub(super) fn end_sweep(&mut self) -> bool {
        let is_wanted_again = self.sweeps == Sweeps::WantedAgain;
        if self.is_sweeping_ours_to_do() {
            self.sweeps = Sweeps::Resting;
        }
        is_wanted_again
    }

    /// There is more to sweep: this timer will ask for it.
    pub(super) fn pause_sweeps(&mut self, timer: TimerId) {
        self.sweeps = Sweeps::Paused(timer);
    }

    /// That timer has fired.
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
            let mut watch = Watch::new(true);
            assert!(watch.begin_sweep(handle));
            assert!(!watch.begin_sweep(handle) && !watch.begin_sweep(handle));
            assert!(watch.end_sweep(), "one more");
            assert!(watch.begin_sweep(handle) && !watch.end_sweep(), "and that is all");
        });
    }

    #[test]
    fn who_asks_for_a_sweep_in_a_pause_need_not_wait_and_then_nothing_is_asked_for_twice() {
        with_a_loop(|handle, timer| {
            let mut watch = Watch::new(true);
            assert!(watch.begin_sweep(handle) && !watch.end_sweep());
            watch.pause_sweeps(timer);
            assert!(watch.begin_sweep(handle));
            assert!(!handle.clear(timer), "the timer is cleared");
            watch.end_pause();
            assert_eq!(watch.sweeps, Sweeps::UnderWay);
        });
    }

    #[test]
    fn what_is_not_ours_is_never_swept() {
        with_a_loop(|handle, _| {
            let mut watch = Watch::new(false);
            assert!(!watch.begin_sweep(handle) && !watch.end_sweep() && !watch.is_sweeping_ours_to_do());
        });
    }

    #[test]
    fn each_worker_is_measured_in_its_turn() {
        let mut watch = Watch::new(false);
        let mut next = || -> Vec<u64> {
            let workers = (1..=40).map(WorkerId);
            watch.next_to_measure(workers).into_iter().map(|worker| worker.0).collect()
        };
        assert_eq!(next(), (1..=32).collect::<Vec<u64>>());
        assert_eq!(next(), (33..=40).collect::<Vec<u64>>());
        assert_eq!(next().first(), Some(&1));
    }

    #[test]
    fn however_much_happens_there_is_one_look() {
        with_a_loop(|handle, timer| {
            let mut watch = Watch::new(false);
            assert!(watch.wake(handle) && !watch.wake(handle));
            watch.begin_look();
            assert!(!watch.wake(handle), "what a look finds brings about no other one");
            watch.end_look(NextLook::Late(timer));
            assert!(watch.wake(handle) && !handle.clear(timer));
        });
    }
}
