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
use crate::front::{BindError, Listener, SocketState};
use crate::service::ServerEnd;
use offload_event_loop::{HandleId, Interest};
use std::time::Duration;

/// Delay between a change and the check: when a directory is removed, its files go one by one.
const CHECK_DELAY: Duration = Duration::from_millis(100);

/// Interval between checks where the kernel does not report changes. A repair that failed is repeated then too.
const CHECK_INTERVAL: Duration = Duration::from_secs(4);

/// How changes of the socket's file are noticed.
///
/// ```text
///   Off -- watch --> Quiet -- a file was removed or replaced --> CheckDue
///    |                 ^                                           |
///    |                 '------------------------- the check -------'
///    '-- watch, but the kernel reports no changes --> Polled: a check every CHECK_INTERVAL
///
///   any -- unwatch --> Off
/// ```
#[derive(Clone, Copy)]
pub(super) enum AddressWatch {
    Off,
    /// The watcher reports changes in the directory of the socket.
    Quiet(HandleId),
    /// The watcher has reported a change, and the timer of the check is set.
    CheckDue(HandleId),
    /// There is no watcher. The timer of the next check is set.
    Polled,
}

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
                self.address_watch = AddressWatch::Quiet(watcher);
            }
            Some(Err(_)) | None => self.poll_address(),
        }
    }

    fn on_change(&mut self) {
        let has_changed = self.listener.as_ref().is_some_and(|(listener, _)| listener.has_changed());
        if let AddressWatch::Quiet(watcher) = self.address_watch
            && has_changed
        {
            self.address_watch = AddressWatch::CheckDue(watcher);
            self.schedule_address_check(CHECK_DELAY);
        }
    }

    fn poll_address(&mut self) {
        self.address_watch = AddressWatch::Polled;
        self.schedule_address_check(CHECK_INTERVAL);
    }

    fn schedule_address_check(&self, time: Duration) {
        let me = self.me.clone();
        let timer = self.handle.set_timeout(time, move |_| Front::with(&me, Front::on_address_check));
        self.handle.unref(timer);
    }

    fn on_address_check(&mut self) {
        self.address_watch = match self.address_watch {
            AddressWatch::CheckDue(watcher) | AddressWatch::Quiet(watcher) => AddressWatch::Quiet(watcher),
            AddressWatch::Polled | AddressWatch::Off => AddressWatch::Off,
        };
        self.check_address();
        // The check may have begun to watch the directory of a new socket.
        if matches!(self.address_watch, AddressWatch::Off) && self.listener.is_some() {
            self.poll_address();
        }
    }

    fn check_address(&mut self) {
        let Some((listener, _)) = &self.listener else { return };
        let path = listener.path().to_owned();
        let repaired = match listener.state() {
            SocketState::Sound => return,
            SocketState::SocketLost => self.listen_again(),
            SocketState::LockLost => self.bind_again(),
        };
        let place = path.display();
        match repaired {
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
        let repaired = listener.listen_again();
        let _ = self.handle.close(watcher, |_| ());
        self.listen(listener).map_err(|error| BindError::other("watch", &error))?;
        repaired
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
        let watch = std::mem::replace(&mut self.address_watch, AddressWatch::Off);
        if let AddressWatch::Quiet(watcher) | AddressWatch::CheckDue(watcher) = watch {
            let _ = self.handle.close(watcher, |_| ());
        }
    }
}
