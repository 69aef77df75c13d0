//! Graceful shutdown (drain, with or without a time limit) and immediate shutdown (stop).

use super::{Hub, Then};
use offload_core::Phase;
use offload_core::event::Event;
use offload_core::ids::JobId;
use offload_protocol::nouns::OutcomeCode;
use std::time::Duration;

impl Hub {
    /// Finishes the jobs that are there, then ends the workers; `then` is called after that. What is not done when the
    /// time is up is cancelled.
    pub(crate) fn drain(&mut self, limit: Option<Duration>, then: Then) {
        self.end(Event::Drain { limit }, then);
    }

    /// A drain that is under way ends within this time.
    pub(crate) fn limit_drain(&mut self, limit: Duration) {
        self.tell(Event::Drain { limit: Some(limit) });
    }

    /// Jobs that were cancelled because they were not done when all ended.
    pub(crate) fn cut_short(&self) -> u64 {
        self.core.cut_short()
    }

    /// Kept results that nobody has collected, but for those of jobs that were cancelled, which have none. They are lost
    /// when this process ends.
    pub(crate) fn uncollected(&self) -> usize {
        let has_result = |job: &JobId| {
            self.records
                .finished()
                .record(*job)
                .is_some_and(|record| record.report.outcome != OutcomeCode::Cancelled)
        };
        self.core.promises().uncollected().filter(has_result).count()
    }

    /// Cancels the jobs that are there and ends the workers; `then` is called after that.
    pub(crate) fn stop(&mut self, then: Then) {
        self.end(Event::Stop, then);
    }

    fn end(&mut self, event: Event, then: Then) {
        if self.core.phase() == Phase::Over {
            return self.handle.set_pending(then);
        }
        let hold = self.handle.hold();
        self.callbacks.on_over(Box::new(move |cx| {
            drop(hold);
            then(cx);
        }));
        self.tell(event);
    }
}
