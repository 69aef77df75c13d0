//! The callback for stuck threads. While it runs or is dropped, it may call any method of the pool.
//!
//! ```text
//!   Nobody --set--> Waiting --take--> Running --put_back--> Waiting
//!                      ^                 |
//!                      +-------set-------+       close() leads from everywhere to Closed, and nothing from there
//! ```
//!
//! A callback that is replaced or refused is handed back, and dropped when no borrow is held.

use super::StuckTask;
use crate::Context;

pub(super) type StuckCallback = Box<dyn FnMut(&mut Context, StuckTask)>;

#[derive(Default)]
pub(super) enum OnStuck {
    #[default]
    Nobody,
    Waiting(StuckCallback),
    /// It is running, and will be put back unless another one was set meanwhile.
    Running,
    /// The pool or its loop was dropped. No callback is kept: it may own a handle to the pool, and the two would own each other
    /// for ever.
    Closed,
}

impl OnStuck {
    pub(super) fn is_set(&self) -> bool {
        matches!(self, OnStuck::Waiting(_) | OnStuck::Running)
    }

    #[must_use]
    pub(super) fn set(&mut self, callback: StuckCallback) -> Option<StuckCallback> {
        if matches!(self, OnStuck::Closed) {
            return Some(callback);
        }
        std::mem::replace(self, OnStuck::Waiting(callback)).into_callback()
    }

    pub(super) fn take(&mut self) -> Option<StuckCallback> {
        if !matches!(self, OnStuck::Waiting(_)) {
            return None;
        }
        std::mem::replace(self, OnStuck::Running).into_callback()
    }

    #[must_use]
    pub(super) fn put_back(&mut self, callback: StuckCallback) -> Option<StuckCallback> {
        if !matches!(self, OnStuck::Running) {
            return Some(callback);
        }
        *self = OnStuck::Waiting(callback);
        None
    }

    #[must_use]
    pub(super) fn close(&mut self) -> Option<StuckCallback> {
        std::mem::replace(self, OnStuck::Closed).into_callback()
    }

    fn into_callback(self) -> Option<StuckCallback> {
        match self {
            OnStuck::Waiting(callback) => Some(callback),
            OnStuck::Nobody | OnStuck::Running | OnStuck::Closed => None,
        }
    }
}
