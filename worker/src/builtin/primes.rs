//! `primes`: how many primes there are up to n, and the largest of them. A sieve of Eratosthenes over the odd
//! numbers, one segment at a time, so that the segment stays in the processor's first cache whatever n is.
//!
//! Position i stands for the number 2i + 1. The multiples of 3, 5, 7, 11 and 13 repeat after 15015 positions; they are
//! laid down as a pattern instead of being crossed off one by one.

use crate::task::{Task, TaskError};
use serde::Serialize;

/// The largest n.
pub const N_MAX: u64 = 1_000_000_000;

/// Positions in a segment, one byte each.
const SEGMENT: usize = 32 << 10;
const IN_PATTERN: [usize; 5] = [3, 5, 7, 11, 13];
const PATTERN_PERIOD: usize = 3 * 5 * 7 * 11 * 13;

/// What there is to say about the primes up to some number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Primes {
    /// How many there are.
    pub count: u64,
    /// The largest, if there is one.
    pub largest: Option<u64>,
}

pub(super) fn task() -> Task {
    Task::json("primes", |n, _| primes_up_to(n))
}

/// Counts the primes up to `n`, itself included.
///
/// # Errors
/// If `n` is over [`N_MAX`].
pub fn primes_up_to(n: u64) -> Result<Primes, TaskError> {
    match usize::try_from(n) {
        Ok(n) if n as u64 <= N_MAX => Ok(count(n)),
        _ => Err(TaskError::new(format_args!("n is {n}, it must be at most {N_MAX}"))),
    }
}

fn count(n: usize) -> Primes {
    if n < 2 {
        return Primes { count: 0, largest: None };
    }
    let mut primes = Primes { count: 1, largest: Some(2) };
    let positions = n.div_ceil(2);
    let mut sieve = Sieve::new(n);
    let mut segment = vec![0; SEGMENT];
    for start in (0..positions).step_by(SEGMENT) {
        let segment = &mut segment[..SEGMENT.min(positions - start)];
        sieve.fill(segment, start);
        primes.count += segment.iter().map(|&is_prime| u64::from(is_prime)).sum::<u64>();
        if let Some(last) = segment.iter().rposition(|&is_prime| is_prime == 1) {
            primes.largest = Some(2 * (start + last) as u64 + 1);
        }
    }
    primes
}

struct Sieve {
    crossers: Vec<Crosser>,
    /// One segment more than a period, so that a segment's worth can be copied from any place within it.
    pattern: Vec<u8>,
}

/// Crosses off the odd multiples of a prime, which are `prime` positions apart.
struct Crosser {
    prime: usize,
    /// Its next position, counted from the start of the coming segment.
    next: usize,
}

impl Sieve {
    fn new(n: usize) -> Sieve {
        let crossers = odd_primes_up_to(n.isqrt())
            .filter(|prime| !IN_PATTERN.contains(prime))
            // Smaller multiples have a smaller factor.
            .map(|prime| Crosser { prime, next: position(prime * prime) })
            .collect();
        Sieve { crossers, pattern: pattern() }
    }

    /// Sets each position of the segment that begins at position `start` to 1 for a prime and to 0 for the rest.
    /// Segments are to be filled in their order.
    fn fill(&mut self, segment: &mut [u8], start: usize) {
        let phase = start % PATTERN_PERIOD;
        segment.copy_from_slice(&self.pattern[phase..phase + segment.len()]);
        if start == 0 {
            mark_the_first(segment);
        }
        for Crosser { prime, next } in &mut self.crossers {
            let mut at = *next;
            while at < segment.len() {
                segment[at] = 0;
                at += *prime;
            }
            *next = at - segment.len();
        }
    }
}

/// The pattern takes its own primes for multiples, and 1 for a prime.
fn mark_the_first(segment: &mut [u8]) {
    segment[0] = 0;
    for prime in IN_PATTERN {
        if let Some(is_prime) = segment.get_mut(position(prime)) {
            *is_prime = 1;
        }
    }
}

fn pattern() -> Vec<u8> {
    let mut pattern = vec![1; PATTERN_PERIOD + SEGMENT];
    for prime in IN_PATTERN {
        pattern.iter_mut().skip(position(prime)).step_by(prime).for_each(|is_prime| *is_prime = 0);
    }
    pattern
}

/// A plain sieve: good enough up to the square root of the largest n.
fn odd_primes_up_to(n: usize) -> impl Iterator<Item = usize> {
    let mut is_prime = vec![true; n + 1];
    for factor in (3..=n.isqrt()).step_by(2) {
        for multiple in (factor * factor..=n).step_by(2 * factor) {
            is_prime[multiple] = false;
        }
    }
    (3..=n).step_by(2).filter(move |&number| is_prime[number])
}

fn position(odd: usize) -> usize {
    odd / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_supervisor::answer;
    use serde_json::json;

    #[test]
    fn the_counts_are_those_of_the_tables() {
        let tables = [4, 25, 168, 1229, 9592, 78498, 664_579, 5_761_455];
        for (exponent, count) in (1..).zip(tables) {
            assert_eq!(primes_up_to(10_u64.pow(exponent)).unwrap().count, count, "10^{exponent}");
        }
    }

    #[test]
    fn every_small_number_agrees_with_trial_division() {
        let mut expected = Primes { count: 0, largest: None };
        for n in 0..3000 {
            if n >= 2 && (2..n).take_while(|d| d * d <= n).all(|d| n % d != 0) {
                expected = Primes { count: expected.count + 1, largest: Some(n) };
            }
            assert_eq!(primes_up_to(n), Ok(expected), "{n}");
        }
    }

    #[test]
    fn the_edges_of_segments_are_not_missed() {
        let segment = 2 * SEGMENT as u64;
        for edge in [segment, 2 * segment, 15 * segment] {
            let before = primes_up_to(edge - 3).unwrap().count;
            let between =
                (edge - 2..=edge + 2).filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0));
            assert_eq!(primes_up_to(edge + 2).unwrap().count, before + between.count() as u64, "{edge}");
        }
    }

    #[test]
    fn the_task_takes_a_plain_number_and_names_its_bound() {
        assert_eq!(answer("primes", "1000000"), Ok(json!({"count": 78498, "largest": 999_983})));
        assert_eq!(answer("primes", "1"), Ok(json!({"count": 0, "largest": null})));
        assert_eq!(
            answer("primes", "1000000001"),
            Err("n is 1000000001, it must be at most 1000000000".into())
        );
        let error = answer("primes", "-1").unwrap_err();
        assert!(error.contains("integer `-1`") && error.contains("line 1 column 2"), "{error}");
    }
}
