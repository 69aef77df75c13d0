//! How long a connection may stay without a request. While one is under way nobody asks.

use crate::limits::IDLE_TIME;
use std::cell::Cell;
use std::time::Instant;

/// See the module's documentation.
pub(super) struct Idle {
    since: Cell<Instant>,
}

impl Idle {
    pub(super) fn since_now(now: Instant) -> Idle {
        Idle { since: Cell::new(now) }
    }

    /// Something of a request has begun or ended: the time begins again.
    pub(super) fn begins_again(&self, now: Instant) {
        self.since.set(now);
    }

    pub(super) fn since(&self) -> Instant {
        self.since.get()
    }

    pub(super) fn limit(&self) -> Instant {
        self.since.get() + IDLE_TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::tests::seconds;

    #[test]
    fn the_time_without_a_request_begins_again_with_each() {
        let now = Instant::now();
        let idle = Idle::since_now(now);
        assert_eq!(idle.limit(), now + IDLE_TIME);
        idle.begins_again(now + seconds(50));
        assert_eq!((idle.since(), idle.limit()), (now + seconds(50), now + seconds(50) + IDLE_TIME));
    }
}
