//! Graceful shutdown (drain, with or without a time limit) and immediate shutdown (stop).

use super::{Hub, Then};
use offload_core::Phase;
use offload_core::event::Event;
use offload_core::ids::JobId;
use offload_protocol::nouns::OutcomeCode;
use std::time::Duration;

impl Hub {
    /// Finishes the accepted jobs, then ends the workers and calls `then`. Jobs that have not ended within the limit
    /// are cancelled.
    pub(crate) fn drain(&mut self, limit: Option<Duration>, then: Then) {
        self.end(Event::Drain { limit }, then);
    }

    /// Says whether requests that were let in are being answered: a drain waits for them and lets their jobs in.
    pub(crate) fn set_requests_in_flight(&mut self, some: bool) {
        self.handle_event(Event::RequestsInFlight { some });
    }

    /// Limits the time of a drain that is under way.
    pub(crate) fn limit_drain(&mut self, limit: Duration) {
        self.handle_event(Event::Drain { limit: Some(limit) });
    }

    /// Number of jobs that were cancelled because they had not ended when the hub was drained or stopped.
    pub(crate) fn cut_short(&self) -> u64 {
        self.core.cut_short()
    }

    /// Number of kept results that nobody has collected. They are lost when this process ends. Cancelled jobs do not
    /// count, because they have no result.
    pub(crate) fn uncollected(&self) -> usize {
        let has_result = |job: &JobId| {
            self.records
                .finished()
                .record(*job)
                .is_some_and(|record| record.report.outcome != OutcomeCode::Cancelled)
        };
        self.core.promises().uncollected().filter(has_result).count()
    }

    /// Cancels all jobs, ends the workers, and then calls `then`.
    pub(crate) fn stop(&mut self, then: Then) {
        self.end(Event::Stop, then);
    }

    fn end(&mut self, event: Event, then: Then) {
        if self.is_over() {
            return self.handle.set_pending(then);
        }
        let hold = self.handle.hold();
        self.when_over(Box::new(move |cx| {
            drop(hold);
            then(cx);
        }));
        self.handle_event(event);
    }

    /// Whether the hub was drained or stopped, and no job and no worker is left.
    pub(crate) fn is_over(&self) -> bool {
        self.core.phase() == Phase::Over
    }

    /// Calls `then` when the hub was drained or stopped, and no job and no worker is left. This wait does not keep the event
    /// loop alive.
    pub(crate) fn when_over(&mut self, then: Then) {
        self.callbacks.on_ended(then);
    }
}
