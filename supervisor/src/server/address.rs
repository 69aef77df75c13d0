//! Watches the socket's file. If the file is removed, no client can connect any more, and another supervisor could
//! take over unnoticed. So the file is restored.
//!
//! ```text
//!   a file was removed ------> a moment later: --- all is there ------------------> nothing
//!   or replaced                                |-- the socket is not ours --------> a new socket at the same path
//!                                              '-- the lock is not ours either ---> a new lock and a new socket
//!                                                    '-- another supervisor was faster: drain, it is the owner now
//! ```

use super::Front;
use crate::front::{BindError, Listener, Standing};
use crate::service::ServerEnd;
use offload_event_loop::Interest;
use std::time::Duration;

/// Delay between a change and the check: when a directory is removed, its files go one by one.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// Interval between checks where the kernel does not report changes. A repair that failed is repeated then too.
const LOOK_EVERY: Duration = Duration::from_secs(4);

impl Front {
    pub(super) fn watch_address(&mut self) {
        let Some((listener, _)) = &self.listener else { return };
        let me = self.me.clone();
        let watcher = listener.changes().map(|changes| {
            self.handle.watch(changes, Interest::READ, move |_, _| Front::with(&me, Front::on_change))
        });
        match watcher {
            Some(Ok(watcher)) => {
                self.handle.unref(watcher);
                self.address_watcher = Some(watcher);
            }
            Some(Err(_)) | None => self.look_at_address_in(LOOK_EVERY),
        }
    }

    fn on_change(&mut self) {
        if self.listener.as_ref().is_some_and(|(listener, _)| listener.has_changed()) {
            self.look_at_address_in(LOOK_AFTER);
        }
    }

    /// Sets a timer for the check, unless one is set already.
    fn look_at_address_in(&mut self, time: Duration) {
        if std::mem::replace(&mut self.will_look_at_address, true) {
            return;
        }
        let me = self.me.clone();
        let timer = self.handle.set_timeout(time, move |_| {
            Front::with(&me, |front| {
                front.will_look_at_address = false;
                front.look_at_address();
                if front.address_watcher.is_none() && front.listener.is_some() {
                    front.look_at_address_in(LOOK_EVERY);
                }
            });
        });
        self.handle.unref(timer);
    }

    fn look_at_address(&mut self) {
        let Some((listener, _)) = &self.listener else { return };
        let path = listener.path().to_owned();
        let mended = match listener.standing() {
            Standing::Sound => return,
            Standing::SocketLost => self.listen_again(),
            Standing::LockLost => self.bind_again(),
        };
        let place = path.display();
        match mended {
            Ok(()) => {
                self.service.log().warn(format_args!("{place} was removed or replaced: it is there again"));
            }
            Err(BindError::AlreadyRunning { pid, .. }) => {
                let owner = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
                let reason =
                    format!("{place} and its lock were removed, and another supervisor{owner} owns them now");
                self.service.log().error(format_args!("{reason}: draining"));
                self.service.drain_because(ServerEnd::Replaced { reason });
            }
            Err(error) => {
                self.service
                    .log()
                    .error(format_args!("{place} was removed or replaced, and nobody can connect: {error}"));
            }
        }
    }

    /// Listens on a new socket. The lock is still ours.
    fn listen_again(&mut self) -> Result<(), BindError> {
        // Clients that connected before the change are accepted first.
        self.accept();
        let Some((mut listener, watcher)) = self.listener.take() else { return Ok(()) };
        let mended = listener.listen_again();
        let _ = self.handle.close(watcher, |_| ());
        self.listen(listener).map_err(|error| BindError::other("watch", &error))?;
        mended
    }

    fn bind_again(&mut self) -> Result<(), BindError> {
        let Some((old, _)) = &self.listener else { return Ok(()) };
        let generations = old.generations().to_vec();
        let mut listener = Listener::bind(old.path())?;
        // If this fails, the next supervisor does not find stray processes after a crash. All else works.
        let _ = listener.set_generations(generations);
        self.accept();
        self.unwatch_address();
        if let Some((_, watcher)) = self.listener.take() {
            let _ = self.handle.close(watcher, |_| ());
        }
        self.listen(listener).map_err(|error| BindError::other("watch", &error))?;
        self.watch_address();
        Ok(())
    }

    pub(super) fn unwatch_address(&mut self) {
        if let Some(watcher) = self.address_watcher.take() {
            let _ = self.handle.close(watcher, |_| ());
        }
    }
}
