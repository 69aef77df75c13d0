//! Who wants what comes in from a source: nobody, a callback that stays, or one future.

use std::task::Waker;

use super::SourceError;
use crate::callback::Site;

pub(super) enum Demand<C> {
    Nobody,
    Callback {
        site: Site,
        callback: C,
    },
    /// The callback is out of here, because it runs.
    Running,
    Future {
        ticket: u64,
        waker: Waker,
    },
}

/// What is to be done about what comes in.
pub(super) enum Next {
    /// The callback that waits is to be called with it.
    Call,
    /// The future that waits is to be woken: it takes it itself.
    Wake,
    /// It stays where it is.
    Nobody,
}

/// What an event leads to.
pub(super) enum Wanted<C> {
    Nobody,
    Callback(Site, C),
    Future(Waker),
}

impl<C> Demand<C> {
    pub(super) fn is_there(&self) -> bool {
        !matches!(self, Demand::Nobody)
    }

    /// The source has to live on for it.
    pub(super) fn is_callback(&self) -> bool {
        matches!(self, Demand::Callback { .. } | Demand::Running)
    }

    pub(super) fn next(&self) -> Next {
        match self {
            Demand::Callback { .. } => Next::Call,
            Demand::Future { .. } => Next::Wake,
            Demand::Nobody | Demand::Running => Next::Nobody,
        }
    }

    /// The callback is given back in the error, because it is dropped by who holds no borrow.
    pub(super) fn start(&mut self, site: Site, callback: C) -> Result<(), C> {
        if self.is_there() {
            return Err(callback);
        }
        *self = Demand::Callback { site, callback };
        Ok(())
    }

    #[must_use]
    pub(super) fn stop(&mut self) -> Demand<C> {
        std::mem::replace(self, Demand::Nobody)
    }

    /// Takes the callback out to be called. A future is woken once and then has to ask again.
    pub(super) fn take(&mut self) -> Wanted<C> {
        match std::mem::replace(self, Demand::Nobody) {
            Demand::Callback { site, callback } => {
                *self = Demand::Running;
                Wanted::Callback(site, callback)
            }
            Demand::Future { waker, .. } => Wanted::Future(waker),
            Demand::Nobody | Demand::Running => Wanted::Nobody,
        }
    }

    /// Gives the callback back after it ran. Returns it if it was stopped meanwhile.
    #[must_use]
    pub(super) fn restore(&mut self, site: Site, callback: C) -> Option<C> {
        if !matches!(self, Demand::Running) {
            return Some(callback);
        }
        *self = Demand::Callback { site, callback };
        None
    }

    /// Whether the future with this ticket may ask.
    pub(super) fn admit(&self, own: u64) -> Result<(), SourceError> {
        match self {
            Demand::Nobody => Ok(()),
            Demand::Future { ticket, .. } if *ticket == own => Ok(()),
            _ => Err(SourceError::AlreadyReading),
        }
    }

    /// Lets the future with this ticket wait. What is returned is dropped by who holds no borrow.
    #[must_use]
    pub(super) fn wait(&mut self, ticket: u64, waker: Waker) -> Demand<C> {
        std::mem::replace(self, Demand::Future { ticket, waker })
    }

    /// The future with this ticket waits no more.
    #[must_use]
    pub(super) fn leave(&mut self, own: u64) -> Option<Demand<C>> {
        match self {
            Demand::Future { ticket, .. } if *ticket == own => Some(self.stop()),
            _ => None,
        }
    }
}
