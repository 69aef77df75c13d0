//! Processes in states in which they do nothing, and processes that nobody owns: on every SIGCHLD the workers are asked
//! whether they were stopped, and what those that have ended left behind is swept.

use super::Hub;
use crate::workers::StopState;
use crate::workers::sweep::{SWEEP_PAUSE, Swept};
use offload_core::event::Event;
use offload_core::ids::WorkerId;
use rustix::process::Signal;

impl Hub {
    /// One signal may stand for many children.
    pub(super) fn watch_for_stops(&mut self) {
        let me = self.me.clone();
        let signal = Signal::CHILD.as_raw();
        let watched = self.handle.on_signal(&[signal], move |_, _| Hub::with(&me, Hub::on_child_signal));
        match watched {
            Ok(watcher) => {
                self.handle.unref(watcher);
                self.child_signals = Some(watcher);
            }
            Err(error) => self.log.warn(format_args!("stopped workers are not noticed: {error}")),
        }
    }

    fn on_child_signal(&mut self) {
        self.look_for_stops();
        self.sweep();
    }

    pub(super) fn look_for_stops(&mut self) {
        let states: Vec<(WorkerId, StopState)> = self
            .crew
            .iter()
            .filter_map(|(worker, member)| Some((worker, member.process.stop_state()?)))
            .collect();
        for (worker, state) in states {
            self.tell(match state {
                StopState::Stopped(_) => Event::Stopped { worker },
                StopState::Continued => Event::Continued { worker },
            });
        }
    }

    /// Has ended what workers that are gone left behind, as far as that goes now; goes on a moment later if there is more.
    pub(super) fn sweep(&mut self) {
        if self.sweeps.begin() {
            self.launcher.sweep();
        }
    }

    pub(super) fn swept(&mut self, swept: Swept) {
        if swept.killed > 0 {
            self.log.warn(format_args!("ended {}", left_behind(swept.killed)));
        }
        let is_wanted_again = self.sweeps.end();
        if is_wanted_again {
            self.sweep();
        } else if swept.more && self.sweeps.pause() {
            let me = self.me.clone();
            let again = move |hub: &mut Hub| {
                hub.sweeps.is_paused = false;
                hub.sweep();
            };
            let timer = self.handle.set_timeout(SWEEP_PAUSE, move |_| Hub::with(&me, again));
            self.handle.unref(timer);
        }
    }

    /// What escaped from the last workers. The launcher does it before it ends.
    pub(super) fn sweep_at_the_end(&mut self) {
        if self.sweeps.is_ours_to_do {
            self.launcher.sweep_at_the_end();
        }
    }
}

fn left_behind(processes: usize) -> String {
    match processes {
        1 => "1 process that a dead worker had left behind".to_owned(),
        more => format!("{more} processes that dead workers had left behind"),
    }
}

/// One sweep at a time, and one more for all that was asked for meanwhile.
pub(super) struct Sweeps {
    /// The children of this process that are no workers come from workers, and are ours to end with these.
    is_ours_to_do: bool,
    is_under_way: bool,
    is_wanted_again: bool,
    /// A timer will ask for the next one.
    is_paused: bool,
}

impl Sweeps {
    pub(super) fn new(is_ours_to_do: bool) -> Sweeps {
        Sweeps { is_ours_to_do, is_under_way: false, is_wanted_again: false, is_paused: false }
    }

    /// True if a sweep is to be ordered now.
    fn begin(&mut self) -> bool {
        if !self.is_ours_to_do {
            return false;
        }
        self.is_wanted_again = self.is_under_way;
        !std::mem::replace(&mut self.is_under_way, true)
    }

    /// True if another one was asked for meanwhile.
    fn end(&mut self) -> bool {
        self.is_under_way = false;
        std::mem::take(&mut self.is_wanted_again)
    }

    /// True if a timer is to be set.
    fn pause(&mut self) -> bool {
        !std::mem::replace(&mut self.is_paused, true)
    }
}
