//! Random numbers, for jitter only. They come from a seed, so the same seed gives the same decisions. The generator
//! is SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number generators", 2014).

use std::time::Duration;

/// The generator.
#[derive(Clone, Debug)]
pub(super) struct Rng {
    state: u64,
}

impl Rng {
    pub(super) fn new(seed: u64) -> Rng {
        Rng { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// `value`, or up to a quarter more.
    pub(super) fn stretched(&mut self, value: u64) -> u64 {
        value.saturating_add(self.below(value / 4 + 1))
    }

    /// `duration`, or up to a quarter more.
    pub(super) fn stretched_time(&mut self, duration: Duration) -> Duration {
        Duration::from_nanos(self.stretched(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_one_others() {
        let numbers = |seed| {
            let mut rng = Rng::new(seed);
            [rng.below(1000), rng.below(1000), rng.below(1000)]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
    }

    #[test]
    fn stretching_never_shortens_and_adds_at_most_a_quarter() {
        let mut rng = Rng::new(1);
        for _ in 0..1000 {
            assert!((1000..=1250).contains(&rng.stretched(1000)));
        }
        assert_eq!(rng.stretched(0), 0);
        assert_eq!(rng.stretched(u64::MAX), u64::MAX);
    }
}
