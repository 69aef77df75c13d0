//! Processes in states in which they do nothing, and processes that nobody owns: on every SIGCHLD the workers are asked
//! whether they were stopped, and what escaped from them is swept.

use super::Hub;
use crate::core::event::Event;
use crate::core::ids::WorkerId;
use crate::workers::StopState;
use crate::workers::sweep::SWEEP_PAUSE;
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
        self.sweep();
    }

    /// Ends what escaped from workers, as far as that goes now; goes on a moment later if there is more.
    pub(super) fn sweep(&mut self) {
        let Some(sweeper) = &mut self.sweeper else { return };
        let crew = &self.crew;
        let swept = sweeper.sweep(&|pid| crew.has_process(pid));
        if swept.killed > 0 {
            self.log.warn(format_args!("{} processes that escaped from workers are ended", swept.killed));
        }
        if swept.more && !std::mem::replace(&mut self.is_sweeping, true) {
            let me = self.me.clone();
            let again = move |hub: &mut Hub| {
                hub.is_sweeping = false;
                hub.sweep();
            };
            let timer = self.handle.set_timeout(SWEEP_PAUSE, move |_| Hub::with(&me, again));
            self.handle.unref(timer);
        }
    }
}
