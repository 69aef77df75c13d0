//! What the loop knows about itself: how long it keeps others waiting, and whose callback it was.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::callback::{Phase, Site};
use super::clock::Nanos;

/// Lags above this count as this: a minute.
const LAG_MAX_US: u64 = 60_000_000;

/// The callback that ran longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowCallback {
    /// Where it was registered. For ticks and microtasks, which are measured in batches, the first of the batch.
    pub site: Site,
    /// The phase in which it ran.
    pub phase: Phase,
    /// How long it ran.
    pub duration: Duration,
}

/// How long the loop was busy between two polls, in microseconds: what an event would have had to wait that
/// arrived right after the poll. Exact to 1 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Half of the iterations were shorter.
    pub p50_us: u64,
    /// 99 of 100 iterations were shorter.
    pub p99_us: u64,
    /// The longest iteration.
    pub max_us: u64,
}

/// A picture of the loop's figures since it was made, or since they were reset.
#[derive(Clone, Debug)]
pub struct LoopMetrics {
    /// How often the loop went around.
    pub iterations: u64,
    /// How long it kept events waiting.
    pub lag: Lag,
    /// The slowest callback, once one has run.
    pub slowest_callback: Option<SlowCallback>,
}

pub(super) struct Metrics {
    iterations: u64,
    lag: Histogram<u64>,
    slowest: Option<SlowCallback>,
}

impl Metrics {
    pub(super) fn new() -> Metrics {
        let lag =
            Histogram::new_with_bounds(1, LAG_MAX_US, 2).expect("the bounds are constants that fit together");
        Metrics { iterations: 0, lag, slowest: None }
    }

    pub(super) fn iteration(&mut self, busy: Nanos) {
        self.iterations += 1;
        self.lag.saturating_record(busy / 1_000);
    }

    /// Only called for a callback slower than all before.
    pub(super) fn slowest(&mut self, site: Site, phase: Phase, duration: Nanos) {
        self.slowest = Some(SlowCallback { site, phase, duration: Duration::from_nanos(duration) });
    }

    pub(super) fn picture(&self) -> LoopMetrics {
        let lag = Lag {
            p50_us: self.lag.value_at_quantile(0.5),
            p99_us: self.lag.value_at_quantile(0.99),
            max_us: self.lag.max(),
        };
        LoopMetrics { iterations: self.iterations, lag, slowest_callback: self.slowest }
    }
}
