//! Learns how long things take: a mean for estimates and quantiles for decisions, in constant space and time. Old
//! runs count less and less, so a task that has become slower is soon known to be slow.

use crate::limits::LONG_RUN;
use std::time::Duration;

/// One bucket for each power of two of microseconds. The last one holds all times over 2^30 us (about 18 minutes).
const BUCKETS: usize = 32;

/// When this many runs are counted, all counts are halved.
const MEMORY: u32 = 512;

/// The buckets of times that are at most [`LONG_RUN`] come first; there are so many of them.
const SHORT_BUCKETS: usize = 1 + LONG_RUN.as_micros().ilog2() as usize;

/// So many of the newest times are looked at one by one: when something has become slower, the many before it hide that.
const NEWEST: usize = 4;

/// The run times that were learned.
#[derive(Clone, Debug)]
pub struct RunTimes {
    counts: [u16; BUCKETS],
    counted: u32,
    /// How many of them are in the first [`SHORT_BUCKETS`]. It is asked for several times a job.
    short: u32,
    mean_ns: u64,
    /// The buckets of the newest times, the last one first.
    newest: [u8; NEWEST],
}

impl Default for RunTimes {
    fn default() -> RunTimes {
        RunTimes { counts: [0; BUCKETS], counted: 0, short: 0, mean_ns: 0, newest: [0; NEWEST] }
    }
}

impl RunTimes {
    /// Learns one more time.
    pub fn add(&mut self, time: Duration) {
        if self.counted >= MEMORY {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            let sum = |counts: &[u16]| counts.iter().map(|count| u32::from(*count)).sum();
            (self.counted, self.short) = (sum(&self.counts), sum(&self.counts[..SHORT_BUCKETS]));
        }
        let bucket = bucket_of(time);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.short += u32::from(bucket < SHORT_BUCKETS);
        self.newest.rotate_right(1);
        self.newest[0] = bucket as u8;
        self.counted += 1;
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // The plain mean of the first eight; after that an exponential one in which each new time has the weight 1/8.
        let weight = u64::from(self.counted.min(8));
        self.mean_ns = self.mean_ns - self.mean_ns / weight + nanos / weight;
    }

    /// The recent mean; `None` if nothing was counted yet.
    pub fn mean(&self) -> Option<Duration> {
        (self.counted > 0).then(|| Duration::from_nanos(self.mean_ns))
    }

    /// Whether such times are at most [`LONG_RUN`], as a rule: nine of ten were, and at least three of the newest four. `longer` of the
    /// newest are not over and have taken longer already.
    pub fn are_short(&self, longer: u32) -> bool {
        let wanted = ((self.counted + longer) * 90).div_ceil(100).max(1);
        let ended = self.newest.iter().take(NEWEST.saturating_sub(longer as usize));
        let too_long = ended.filter(|bucket| usize::from(**bucket) >= SHORT_BUCKETS).count() as u32 + longer;
        self.short >= wanted && too_long < 2
    }

    /// A time that `percent` of the counted runs did not exceed, rounded up to a power of two of microseconds; `None`
    /// if nothing was counted yet.
    pub fn quantile(&self, percent: u32) -> Option<Duration> {
        let wanted = (self.counted * percent.min(100)).div_ceil(100).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u32::from(*count);
            if seen >= wanted {
                return Some(Duration::from_micros(1 << bucket));
            }
        }
        None
    }
}

/// Bucket i holds times over 2^(i-1) us, up to 2^i us; the last bucket holds everything above.
fn bucket_of(time: Duration) -> usize {
    // A division of 128 bits would take longer than all the rest.
    let micros = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).div_ceil(1000);
    let bits = u64::BITS - micros.saturating_sub(1).leading_zeros();
    (bits as usize).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(micros: &[u64]) -> RunTimes {
        let mut times = RunTimes::default();
        micros.iter().for_each(|micros| times.add(Duration::from_micros(*micros)));
        times
    }

    #[test]
    fn nothing_is_known_of_what_never_ran() {
        assert_eq!((of(&[]).mean(), of(&[]).quantile(90)), (None, None));
    }

    #[test]
    fn a_quantile_is_rounded_up_to_a_power_of_two() {
        assert_eq!(of(&[1]).quantile(50), Some(Duration::from_micros(1)));
        assert_eq!(of(&[1000]).quantile(50), Some(Duration::from_micros(1024)));
        assert_eq!(of(&[1024]).quantile(50), Some(Duration::from_micros(1024)));
        assert_eq!(of(&[1025]).quantile(50), Some(Duration::from_micros(2048)));
    }

    #[test]
    fn the_ninetieth_percentile_ignores_one_slow_run_in_ten_but_not_two() {
        let nine_fast = [10, 10, 10, 10, 10, 10, 10, 10, 10, 100_000];
        assert_eq!(of(&nine_fast).quantile(90), Some(Duration::from_micros(16)));
        let eight_fast = [10, 10, 10, 10, 10, 10, 10, 10, 100_000, 100_000];
        assert!(of(&eight_fast).quantile(90) > Some(Duration::from_millis(100)));
    }

    #[test]
    fn a_task_that_becomes_slower_is_soon_known_to_be_slow() {
        let mut times = of(&[10; 5000]);
        let runs = (1..).find(|_| {
            times.add(Duration::from_millis(100));
            times.quantile(90) > Some(Duration::from_millis(100))
        });
        assert!(runs < Some(100), "after {runs:?} runs");
        assert!(times.mean() > Some(Duration::from_millis(90)));
    }

    #[test]
    fn one_slow_time_in_ten_is_no_rule_and_two_of_the_newest_four_are() {
        let mut times = of(&[10; 400]);
        assert!(times.are_short(0) && times.are_short(1) && !times.are_short(2));
        times.add(Duration::from_secs(2));
        assert!(times.are_short(0));
        assert!(!times.are_short(1), "one has ended, another has run for too long already");
        times.add(Duration::from_secs(2));
        assert!(!times.are_short(0), "however many there were before");
        (0..3).for_each(|_| times.add(Duration::from_micros(10)));
        assert!(times.are_short(0));
        assert!(!of(&[]).are_short(0) && !of(&[10; 8]).are_short(1));
    }

    #[test]
    fn no_time_is_too_long() {
        let mut times = of(&[]);
        times.add(Duration::MAX);
        assert_eq!(times.quantile(100), Some(Duration::from_micros(1 << 31)));
    }
}
