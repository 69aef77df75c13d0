//! How long things take, learned from how long they took: a mean for estimates and quantiles for decisions, in constant
//! space and time. What is old counts less and less, so that a task which has become slower is soon known to be slow.

use std::time::Duration;

/// One bucket for each power of two of microseconds: the last one holds everything over 36 minutes.
const BUCKETS: usize = 32;

/// When so many are counted, all counts are halved.
const MEMORY: u32 = 512;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct RunTimes {
    counts: [u16; BUCKETS],
    counted: u32,
    mean_ns: u64,
}

impl Default for RunTimes {
    fn default() -> RunTimes {
        RunTimes { counts: [0; BUCKETS], counted: 0, mean_ns: 0 }
    }
}

impl RunTimes {
    /// Takes one more into account.
    pub fn add(&mut self, time: Duration) {
        if self.counted >= MEMORY {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.counted = self.counts.iter().map(|count| u32::from(*count)).sum();
        }
        if let Some(count) = self.counts.get_mut(bucket_of(time)) {
            *count += 1;
        }
        self.counted += 1;
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // The mean of the first ones, then an exponential one: each new one has the weight of an eighth.
        let weight = u64::from(self.counted.min(8));
        self.mean_ns = self.mean_ns - self.mean_ns / weight + nanos / weight;
    }

    /// The recent mean; none if nothing was counted yet.
    pub fn mean(&self) -> Option<Duration> {
        (self.counted > 0).then(|| Duration::from_nanos(self.mean_ns))
    }

    /// A time that `percent` of those counted did not exceed, rounded up to a power of two of microseconds; none if
    /// nothing was counted yet.
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

/// Bucket i holds what is over 2^(i-1) us, up to 2^i us.
fn bucket_of(time: Duration) -> usize {
    let micros = u64::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX);
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
    fn one_in_ten_that_is_slow_is_not_seen_by_the_ninetieth_percentile_but_two_are() {
        let nine_fast = [10, 10, 10, 10, 10, 10, 10, 10, 10, 100_000];
        assert_eq!(of(&nine_fast).quantile(90), Some(Duration::from_micros(16)));
        let eight_fast = [10, 10, 10, 10, 10, 10, 10, 10, 100_000, 100_000];
        assert!(of(&eight_fast).quantile(90) > Some(Duration::from_millis(100)));
    }

    #[test]
    fn what_has_become_slow_is_soon_known_to_be_slow() {
        let mut times = of(&[10; 5000]);
        let runs = (1..).find(|_| {
            times.add(Duration::from_millis(100));
            times.quantile(90) > Some(Duration::from_millis(100))
        });
        assert!(runs < Some(100), "after {runs:?} runs");
        assert!(times.mean() > Some(Duration::from_millis(90)));
    }

    #[test]
    fn no_time_is_too_long() {
        let mut times = of(&[]);
        times.add(Duration::MAX);
        assert_eq!(times.quantile(100), Some(Duration::from_micros(1 << 31)));
    }
}
