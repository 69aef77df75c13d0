//! How the notifications of one notifier become calls of its callback: several become one, and while the notifier is paused
//! they are remembered as one.
//!
//! ```text
//!               pause()                 notify(), or one arrives
//!   Open ----------------------> Paused -------------------------> PausedAndNotified
//!    ^                             |                                      |
//!    +--------- resume() ----------+----------- resume(), which notifies -+
//! ```
//!
//! Beside this state there is a flag, raised while a notification is on its way to the loop. A notification that meets a
//! pause lowers the flag in the same critical section in which it is remembered. Otherwise another thread could resume
//! between the two, find the flag still raised, leave the notification to whoever raised it, and it would be lost.
//!
//! `tests/interleavings.rs` goes through all orders of the threads that notify, pause and resume, and of the loop.

use super::mailbox::WakeFlag;
use super::sync::{Mutex, MutexGuard, PoisonError};

/// Whether the callback of a notifier is called.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeliveryState {
    Open,
    Paused,
    /// It was notified while it was paused, and will be called when it is resumed.
    PausedAndNotified,
}

/// See the module's documentation.
pub(super) struct Delivery {
    is_on_its_way: WakeFlag,
    state: Mutex<DeliveryState>,
}

impl Delivery {
    pub(super) fn new() -> Delivery {
        Delivery { is_on_its_way: WakeFlag::new(false), state: Mutex::new(DeliveryState::Open) }
    }

    /// True if the caller has to send a notification to the loop. It then tells what became of it: [`Delivery::arrive`] or
    /// [`Delivery::get_lost`].
    #[must_use]
    pub(super) fn notify(&self) -> bool {
        self.is_on_its_way.raise() && self.is_open_or_remembers()
    }

    /// The notification has reached the loop. True if the callback is to be called now.
    #[must_use]
    pub(super) fn arrive(&self) -> bool {
        let is_open = self.is_open_or_remembers();
        if is_open {
            // Before the callback runs: a notification that comes meanwhile is news to it.
            self.is_on_its_way.lower();
        }
        is_open
    }

    /// The notification will not reach the loop.
    pub(super) fn get_lost(&self) {
        self.is_on_its_way.lower();
    }

    pub(super) fn pause(&self) {
        let mut state = self.lock();
        if *state == DeliveryState::Open {
            *state = DeliveryState::Paused;
        }
    }

    /// True if it was notified meanwhile: then the caller has to [notify](Delivery::notify) again.
    #[must_use]
    pub(super) fn resume(&self) -> bool {
        std::mem::replace(&mut *self.lock(), DeliveryState::Open) == DeliveryState::PausedAndNotified
    }

    pub(super) fn is_paused(&self) -> bool {
        *self.lock() != DeliveryState::Open
    }

    /// False if it is paused. Then the notification is remembered, and the next one may be on its way.
    fn is_open_or_remembers(&self) -> bool {
        let mut state = self.lock();
        if *state == DeliveryState::Open {
            return true;
        }
        *state = DeliveryState::PausedAndNotified;
        self.is_on_its_way.lower();
        false
    }

    /// Held for a few instructions only. No code of others runs under it, so a poisoned one guards nothing broken.
    fn lock(&self) -> MutexGuard<'_, DeliveryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
