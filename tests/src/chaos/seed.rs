//! Numbers that look random and are the same for the same seed.

use std::time::Duration;

/// A generator after G. Marsaglia (xorshift): good enough to choose victims and moments, nothing else.
#[derive(Clone, Debug)]
pub struct Seed(u64);

impl Seed {
    /// Neighbouring numbers give streams that have nothing to do with each other.
    pub fn new(number: u64) -> Seed {
        let mut seed = Seed(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..8).for_each(|_| _ = seed.number());
        seed
    }

    /// The next one.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// One below `end`; 0 if that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % (end as u64).max(1)) as usize
    }

    /// The time to the next of events that happen independently of each other, every `mean` on average.
    pub fn pause(&mut self, mean: Duration) -> Duration {
        let share = (self.number() >> 11) as f64 / (1_u64 << 53) as f64;
        mean.mul_f64(-(1.0 - share).ln())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_have_the_mean_that_was_asked_for() {
        let mut seed = Seed::new(7);
        let sum: Duration = (0..10_000).map(|_| seed.pause(Duration::from_millis(50))).sum();
        let mean = sum / 10_000;
        assert!((48..=52).contains(&mean.as_millis()), "{mean:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_does_not() {
        let numbers = |seed| {
            let mut seed = Seed::new(seed);
            [seed.number(), seed.number(), seed.number()]
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
    }
}
