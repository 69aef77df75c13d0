//! How late a timer of the loop is while jobs run: an interval of 1 ms, as any program could have one.
//!
//! ```text
//!   tick      tick      (blocked)         tick      tick
//!   |-- 1 ms --|-------- 6 ms -------------|-- 1 ms --|        lateness of the third: 5 ms, in all stretches that it spans
//! ```
//!
//! The time of a sample is divided into stretches, each with the largest lateness in it: so a report can show *when* the loop was
//! late, in bounded memory.

use super::prober::{PERIOD, Waits};
use offload_event_loop::{Context, EventLoop, TimerId};
use offload_supervisor::views::Percentiles;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Stretches into which the time of a sample is divided.
const STRETCHES: usize = 10;

/// Most stretches of a report: of a strategy with more, some become one.
pub(super) const STRETCHES_SHOWN: usize = 200;

/// A timer that notes how late it is.
pub(super) struct LagTimer {
    timer: TimerId,
    seen: Rc<RefCell<Seen>>,
}

/// What the timer has noted.
#[derive(Clone, Debug)]
pub(super) struct TimerLag {
    pub(super) waits: Waits,
    /// The largest lateness of each stretch of the sample, in microseconds.
    pub(super) stretches_us: Vec<u64>,
}

impl TimerLag {
    /// Nothing yet.
    pub(super) fn new() -> TimerLag {
        TimerLag { waits: Waits::new(), stretches_us: vec![0; STRETCHES] }
    }

    /// What another runtime has noted: how often each lateness came, and the largest of each stretch.
    pub(super) fn noted(waits: Waits, mut stretches_us: Vec<u64>) -> TimerLag {
        stretches_us.resize(STRETCHES, 0);
        TimerLag { waits, stretches_us }
    }

    /// The lateness of all samples together.
    pub(super) fn latency_us(samples: &[&TimerLag]) -> Percentiles {
        Waits::together(samples.iter().map(|sample| &sample.waits)).latency_us()
    }

    /// The stretches of all samples, one after another; at most [`STRETCHES_SHOWN`]. The second value says how many became one.
    pub(super) fn over_time(samples: &[&TimerLag]) -> (Vec<u64>, usize) {
        let all: Vec<u64> = samples.iter().flat_map(|sample| sample.stretches_us.iter().copied()).collect();
        let together = all.len().div_ceil(STRETCHES_SHOWN).max(1);
        (all.chunks(together).map(|some| some.iter().copied().max().unwrap_or(0)).collect(), together)
    }

    /// A lateness that was noticed at `end` and had begun at `begin`, both since the start of a sample of this length.
    fn note(&mut self, begin: Duration, end: Duration, window: Duration) {
        let late = end.saturating_sub(begin).saturating_sub(PERIOD);
        self.waits.note(late);
        let stretch = |time: Duration| {
            let share = time.as_secs_f64() / window.as_secs_f64().max(f64::MIN_POSITIVE);
            ((share * STRETCHES as f64) as usize).min(STRETCHES - 1)
        };
        let late_us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        for worst in &mut self.stretches_us[stretch(begin)..=stretch(end)] {
            *worst = late_us.max(*worst);
        }
    }
}

struct Seen {
    lag: TimerLag,
    start: Instant,
    last: Instant,
    window: Duration,
}

impl LagTimer {
    /// Begins to note; the sample will take this long.
    pub(super) fn start(event_loop: &EventLoop, window: Duration) -> LagTimer {
        let start = Instant::now();
        let seen = Rc::new(RefCell::new(Seen { lag: TimerLag::new(), start, last: start, window }));
        let noted = Rc::clone(&seen);
        let timer = event_loop.set_interval(PERIOD, move |_cx: &mut Context| {
            noted.borrow_mut().tick(Instant::now());
        });
        LagTimer { timer, seen }
    }

    /// Ends it.
    pub(super) fn stop(&self, event_loop: &EventLoop) -> TimerLag {
        event_loop.clear(self.timer);
        self.seen.borrow().lag.clone()
    }
}

impl Seen {
    fn tick(&mut self, now: Instant) {
        self.lag.note(self.last - self.start, now - self.start, self.window);
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_block_is_seen_in_every_stretch_that_it_spans() {
        let mut lag = TimerLag::new();
        lag.note(Duration::ZERO, MS, MS * 100);
        lag.note(MS * 15, MS * 36, MS * 100);
        lag.note(MS * 99, MS * 102, MS * 100);
        assert_eq!(lag.stretches_us, [0, 20_000, 20_000, 20_000, 0, 0, 0, 0, 0, 2000]);
        assert_eq!((lag.waits.count(), lag.waits.latency_us().max), (3, 20_015));
    }

    #[test]
    fn many_samples_are_shown_in_a_bounded_number_of_stretches() {
        let mut late = TimerLag::new();
        late.stretches_us[3] = 7;
        let calm = TimerLag::new();
        let samples: Vec<&TimerLag> = (0..50).map(|at| if at == 49 { &late } else { &calm }).collect();
        let (shown, together) = TimerLag::over_time(&samples);
        assert_eq!((shown.len(), together), (167, 3));
        assert_eq!(shown.iter().rposition(|worst| *worst == 7), Some(164));
        assert_eq!(TimerLag::over_time(&samples[..1]), (vec![0; 10], 1));
    }
}
