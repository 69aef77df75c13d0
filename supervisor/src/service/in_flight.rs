//! Requests that a front has begun to answer. Whoever was let in before a drain is to get his answer, and it may take a job, or two.
//!
//! ```text
//!   begin_request --> InFlight ------ the request is answered, or its client is gone: dropped. The last one of those that were
//!                         |           begun before a drain lets that go on
//!                         '-- pass --> Pass: with it, a job of the request is accepted while the drain waits for requests
//! ```

use super::Service;
use crate::job::Job;
use std::cell::Cell;

/// How many requests are in flight.
#[derive(Debug, Default)]
pub(super) struct Requests {
    under_way: Cell<usize>,
    /// The end has begun: what comes from now on is not waited for.
    is_ending: Cell<bool>,
}

impl Requests {
    /// The end begins. True if there are requests to wait for.
    pub(super) fn end_begins(&self) -> bool {
        self.is_ending.set(true);
        self.under_way.get() > 0
    }

    /// How many requests that were begun before the end are not answered yet.
    pub(super) fn under_way(&self) -> usize {
        self.under_way.get()
    }
}

/// A request that is being answered, until this is dropped. The default is one that nothing waits for.
#[derive(Debug, Default)]
#[must_use = "dropping it says that the request is answered"]
pub struct InFlight {
    /// None if the end had begun before it.
    service: Option<Service>,
}

/// Says of a job that it belongs to a request that was let in: see [`Job::within`]. The default is no such request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass(bool);

impl Service {
    /// Begins a request. A drain that begins before the [`InFlight`] is dropped waits for that, but not longer than its limit.
    pub fn begin_request(&self) -> InFlight {
        let requests = &self.0.requests;
        if requests.is_ending.get() {
            return InFlight { service: None };
        }
        requests.under_way.set(requests.under_way.get() + 1);
        InFlight { service: Some(self.clone()) }
    }
}

impl InFlight {
    /// For the jobs of this request.
    pub fn pass(&self) -> Pass {
        Pass(self.service.is_some())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Some(service) = self.service.take() else { return };
        let requests = &service.0.requests;
        requests.under_way.set(requests.under_way.get() - 1);
        if requests.under_way.get() == 0 && requests.is_ending.get() {
            let me = service.weak();
            // Whoever drops it may be in the middle of something.
            service.0.handle.set_pending(move |_| Service::with(&me, Service::requests_are_answered));
        }
    }
}

impl Job {
    /// Says that it is the job of a request that was let in: while a drain waits for that request, the job is accepted.
    #[must_use]
    pub fn within(self, pass: Pass) -> Job {
        Job { of_request: pass.0, ..self }
    }
}
