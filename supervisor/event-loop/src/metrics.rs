//! What the loop measures: how long callbacks run and wait, in which phase, and where the slowest was registered.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::callback::{Phase, Site};
use super::clock::Nanos;

/// Longer times than this count as this: a minute.
const TIME_MAX_US: u64 = 60_000_000;

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

/// A distribution of times in microseconds, exact to 1 %. Without any times it is all zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Half of them were shorter.
    pub p50_us: u64,
    /// 99 of 100 were shorter.
    pub p99_us: u64,
    /// The longest one.
    pub max_us: u64,
}

/// The bounds of [`Spread::up_to`].
pub const SPREAD_BOUNDS: [Duration; 12] = [
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_secs(1),
];

/// A distribution of times that can be subtracted from a later one, so that what lies between is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// How many times there are.
    pub count: u64,
    /// Their sum.
    pub total: Duration,
    /// How many were at most as long as each of [`SPREAD_BOUNDS`], exact to 1 % of the bound.
    pub up_to: [u64; SPREAD_BOUNDS.len()],
}

/// How long the callbacks of one phase took in an iteration; what ran after each of them counts as
/// [`Phase::Microtasks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseTime {
    /// Which one.
    pub phase: Phase,
    /// In how many iterations it had anything to run.
    pub iterations: u64,
    /// How long it took in these.
    pub time: Lag,
    /// How long it took in all of them together.
    pub total: Duration,
}

/// How long callbacks had to wait for their turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Timers, from their due time.
    pub timers: Lag,
    /// Callbacks of the poll phase, from the moment in which the kernel handed their events over.
    pub poll: Lag,
}

/// How often the rest of the loop had to wait longer than
/// [`starvation_budget`](super::LoopConfig::starvation_budget).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Starvation {
    /// ... because of the ticks after one callback.
    pub ticks: u64,
    /// ... because of the microtasks and futures after one callback.
    pub microtasks: u64,
    /// ... because of the idle hooks of one iteration.
    pub idle: u64,
}

/// What came of looking for events before going to sleep: see [`Lingerer`](super::Lingerer).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lingering {
    /// How often the loop looked for a while.
    pub looks: u64,
    /// How often it found something, and did not have to sleep.
    pub found: u64,
}

/// What a loop has measured since it was made, or since its metrics were reset.
#[derive(Clone, Debug)]
pub struct LoopMetrics {
    /// How often the loop went around.
    pub iterations: u64,
    /// How long the loop was busy between two polls, or from a poll to the end of `run`. An event that arrived right after
    /// the poll would have waited that long.
    pub lag: Lag,
    /// The same times as counts.
    pub lag_spread: Spread,
    /// The phases that had anything to run.
    pub phases: Vec<PhaseTime>,
    /// How long callbacks waited for their turn.
    pub lateness: Lateness,
    /// The slowest callback, once one has run.
    pub slowest_callback: Option<SlowCallback>,
    /// How often ticks, microtasks or idle hooks kept the rest of the loop waiting.
    pub starvation: Starvation,
    /// What came of looking for events before going to sleep.
    pub lingering: Lingering,
    /// How often a [watchdog](super::Watchdog) found the loop blocked.
    pub blocked: u64,
    /// How many single steps of a [partitioned](super::LoopHandle::partition) computation took longer than the
    /// whole budget of its turn.
    pub steps_over_budget: u64,
    /// The slowest of these, with the place that started the computation.
    pub slowest_step: Option<SlowCallback>,
}

impl LoopMetrics {
    /// How long one phase took, if it had anything to run.
    pub fn phase(&self, phase: Phase) -> Option<PhaseTime> {
        self.phases.iter().copied().find(|time| time.phase == phase)
    }
}

/// Which callbacks starve the others.
#[derive(Clone, Copy, Debug)]
pub(super) enum Starving {
    Ticks,
    Microtasks,
    Idle,
}

/// How long the callbacks of each phase took in one iteration.
#[derive(Default)]
pub(super) struct PhaseTimes {
    times: [Nanos; Phase::ALL.len()],
    /// A bit for each phase that had anything to run.
    ran: u16,
}

impl PhaseTimes {
    #[inline]
    pub(super) fn add(&mut self, phase: Phase, time: Nanos) {
        self.times[phase as usize] += time;
        self.ran |= 1 << phase as usize;
    }

    fn drain(&mut self, mut see: impl FnMut(usize, Nanos)) {
        while self.ran != 0 {
            let phase = self.ran.trailing_zeros() as usize;
            self.ran &= self.ran - 1;
            see(phase, std::mem::take(&mut self.times[phase]));
        }
    }
}

/// A distribution of times.
struct Times {
    histogram: Histogram<u64>,
    /// Times below a microsecond are by far the most; counting them is all that there is to do.
    short: u64,
    /// The sum of all.
    total: Nanos,
}

impl Times {
    fn new() -> Times {
        let histogram = Histogram::new_with_bounds(1, TIME_MAX_US, 2);
        Times {
            histogram: histogram.expect("the bounds are constants that fit together"),
            short: 0,
            total: 0,
        }
    }

    #[inline]
    fn record(&mut self, time: Nanos) {
        self.total = self.total.saturating_add(time);
        if time < 1_000 {
            self.short += 1;
        } else {
            self.histogram.saturating_record(time / 1_000);
        }
    }

    fn count(&self) -> u64 {
        self.short + self.histogram.len()
    }

    fn picture(&self) -> Lag {
        let mut times = self.histogram.clone();
        // Zero is within the bounds, so recording it cannot fail.
        let _ = times.record_n(0, self.short);
        Lag {
            p50_us: times.value_at_quantile(0.5),
            p99_us: times.value_at_quantile(0.99),
            max_us: times.max(),
        }
    }

    fn total(&self) -> Duration {
        Duration::from_nanos(self.total)
    }

    fn spread(&self) -> Spread {
        let up_to = |bound: Duration| {
            let micros = u64::try_from(bound.as_micros()).unwrap_or(TIME_MAX_US);
            self.short + self.histogram.count_between(1, micros)
        };
        Spread { count: self.count(), total: self.total(), up_to: SPREAD_BOUNDS.map(up_to) }
    }
}

pub(super) struct Metrics {
    iterations: u64,
    lag: Times,
    phases: [Times; Phase::ALL.len()],
    timers_late: Times,
    poll_late: Times,
    slowest: Option<SlowCallback>,
    starvation: Starvation,
    lingering: Lingering,
    steps_over_budget: u64,
    slowest_step: Option<SlowCallback>,
}

impl Metrics {
    pub(super) fn new() -> Metrics {
        Metrics {
            iterations: 0,
            lag: Times::new(),
            phases: Phase::ALL.map(|_| Times::new()),
            timers_late: Times::new(),
            poll_late: Times::new(),
            slowest: None,
            starvation: Starvation::default(),
            lingering: Lingering::default(),
            steps_over_budget: 0,
            slowest_step: None,
        }
    }

    pub(super) fn turn(&mut self, iterations: u64, busy: Nanos, phase_times: &mut PhaseTimes) {
        self.iterations += iterations;
        self.lag.record(busy);
        phase_times.drain(|phase, time| self.phases[phase].record(time));
    }

    pub(super) fn timer_was_late(&mut self, by: Nanos) {
        self.timers_late.record(by);
    }

    pub(super) fn event_was_late(&mut self, by: Nanos) {
        self.poll_late.record(by);
    }

    pub(super) fn starved_by(&mut self, who: Starving) {
        match who {
            Starving::Ticks => self.starvation.ticks += 1,
            Starving::Microtasks => self.starvation.microtasks += 1,
            Starving::Idle => self.starvation.idle += 1,
        }
    }

    pub(super) fn looked(&mut self, has_found: bool) {
        self.lingering.looks += 1;
        self.lingering.found += u64::from(has_found);
    }

    /// Only called for a callback slower than all before.
    pub(super) fn slowest(&mut self, site: Site, phase: Phase, duration: Nanos) {
        self.slowest = Some(SlowCallback { site, phase, duration: Duration::from_nanos(duration) });
    }

    pub(super) fn step_over_budget(&mut self, site: Site, duration: Nanos) {
        self.steps_over_budget += 1;
        let step = SlowCallback { site, phase: Phase::Check, duration: Duration::from_nanos(duration) };
        if self.slowest_step.is_none_or(|slowest| slowest.duration < step.duration) {
            self.slowest_step = Some(step);
        }
    }

    pub(super) fn picture(&self, blocked: u64) -> LoopMetrics {
        let times = Phase::ALL.into_iter().zip(&self.phases).filter(|(_, times)| times.count() > 0);
        LoopMetrics {
            iterations: self.iterations,
            lag: self.lag.picture(),
            lag_spread: self.lag.spread(),
            phases: times
                .map(|(phase, times)| PhaseTime {
                    phase,
                    iterations: times.count(),
                    time: times.picture(),
                    total: times.total(),
                })
                .collect(),
            lateness: Lateness { timers: self.timers_late.picture(), poll: self.poll_late.picture() },
            slowest_callback: self.slowest,
            starvation: self.starvation,
            lingering: self.lingering,
            blocked,
            steps_over_budget: self.steps_over_budget,
            slowest_step: self.slowest_step,
        }
    }
}
