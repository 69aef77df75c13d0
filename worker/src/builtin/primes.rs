//! `primes`: how many primes there are up to n, and the largest of them. A sieve of Eratosthenes over the odd
//! numbers, one segment at a time, so that the segment stays in the processor's first cache whatever n is.
//!
//! Position i stands for the number 2i + 1. The multiples of 3, 5, 7, 11 and 13 repeat after 15015 positions; they are
//! laid down as a pattern instead of being crossed off one by one.
//!
//! A segment is a step. What is kept of a count is only how far it is and what it has found: the sieve follows from
//! that.

use super::whole::Whole;
use crate::limits::PRIMES_N_MAX;
use crate::stepped::Stepped;
use crate::task::{Task, TaskError};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::ops::ControlFlow::{self, Break, Continue};

/// Positions in a segment, one byte each.
const SEGMENT: usize = 32 << 10;
const IN_PATTERN: [usize; 5] = [3, 5, 7, 11, 13];
const PATTERN_PERIOD: usize = 3 * 5 * 7 * 11 * 13;

/// What there is to say about the primes up to some number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Primes {
    /// How many there are.
    pub count: u64,
    /// The largest, if there is one.
    pub largest: Option<u64>,
}

pub(super) fn task() -> Task {
    Task::checkpointed("primes", |Whole(n), _| Count::new(n))
}

/// Counts the primes up to `n`, itself included.
///
/// # Errors
/// If `n` is over [`PRIMES_N_MAX`].
pub fn primes_up_to(n: u64) -> Result<Primes, TaskError> {
    let mut count = Count::new(n)?;
    loop {
        if let Break(primes) = Count::step(&mut count) {
            return Ok(primes);
        }
    }
}

/// The same for several numbers by one sieve, up to the largest of them. The numbers are bounded by the caller.
pub(super) fn primes_up_to_each(numbers: &[u64]) -> Vec<Primes> {
    let mut all = vec![Primes { count: 0, largest: None }; numbers.len()];
    let mut open: Vec<usize> = (0..numbers.len()).filter(|&index| numbers[index] >= 2).collect();
    open.sort_unstable_by_key(|&index| std::cmp::Reverse(numbers[index]));
    let Some(&most) = open.first() else { return all };
    let Ok(mut count) = Count::new(numbers[most]) else { return all };
    while !open.is_empty() {
        let (start, before) = (count.start, count.primes);
        count.count_a_segment();
        while let Some(index) = open.pop_if(|index| positions(numbers[*index]) <= count.start) {
            all[index] = count.within(positions(numbers[index]) - start, start, before);
        }
    }
    all
}

/// A count in the making.
#[derive(Deserialize)]
#[serde(try_from = "Kept")]
pub struct Count {
    n: u64,
    /// Where the next segment begins.
    start: usize,
    /// Those before `start`, and 2.
    primes: Primes,
    sieve: Sieve,
    segment: Vec<u8>,
}

impl fmt::Debug for Count {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Count")
            .field("n", &self.n)
            .field("start", &self.start)
            .finish_non_exhaustive()
    }
}

impl Count {
    /// Begins the count of the primes up to `n`, itself included.
    ///
    /// # Errors
    /// If `n` is over [`PRIMES_N_MAX`].
    pub fn new(n: u64) -> Result<Count, TaskError> {
        if n > PRIMES_N_MAX {
            return Err(TaskError::new(format_args!("n is {n}, it must be at most {PRIMES_N_MAX}")));
        }
        let two =
            if n < 2 { Primes { count: 0, largest: None } } else { Primes { count: 1, largest: Some(2) } };
        Ok(Count::at(0, two, n))
    }

    fn at(start: usize, primes: Primes, n: u64) -> Count {
        Count { n, start, primes, sieve: Sieve::new(n as usize, start), segment: vec![0; SEGMENT] }
    }

    /// Looks at 65,536 numbers, or at those that are left: constant cost. Breaks with the result once all are done, also when asked
    /// again.
    pub fn step(&mut self) -> ControlFlow<Primes> {
        if self.start < positions(self.n) {
            self.count_a_segment();
        }
        if self.start < positions(self.n) { Continue(()) } else { Break(self.primes) }
    }

    fn count_a_segment(&mut self) {
        let length = SEGMENT.min(positions(self.n) - self.start);
        self.sieve.fill(&mut self.segment[..length], self.start);
        self.primes = self.within(length, self.start, self.primes);
        self.start += length;
    }

    /// The primes up to the first `length` positions of the segment that begins at `start`, before which there were `before`.
    fn within(&self, length: usize, start: usize, before: Primes) -> Primes {
        let part = &self.segment[..length];
        let last = part.iter().rposition(|&is_prime| is_prime == 1);
        Primes {
            count: before.count + part.iter().map(|&is_prime| u64::from(is_prime)).sum::<u64>(),
            largest: last.map(|last| 2 * (start + last) as u64 + 1).or(before.largest),
        }
    }
}

impl Stepped for Count {
    type Output = Primes;

    fn step(&mut self) -> ControlFlow<Result<Primes, TaskError>> {
        Count::step(self).map_break(Ok)
    }

    fn progress(&self) -> (u64, u64) {
        ((2 * self.start as u64).min(self.n), self.n)
    }
}

/// How many odd numbers are to be looked at: 1 is no prime, so it does not need a look of its own.
fn positions(n: u64) -> usize {
    if n < 2 { 0 } else { n.div_ceil(2) as usize }
}

/// A count as a checkpoint has it.
#[derive(Serialize, Deserialize)]
struct Kept {
    n: u64,
    start: usize,
    primes: Primes,
}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Count { n, start, primes, .. } = *self;
        Kept { n, start, primes }.serialize(serializer)
    }
}

impl TryFrom<Kept> for Count {
    type Error = &'static str;

    fn try_from(Kept { n, start, primes }: Kept) -> Result<Count, &'static str> {
        if n > PRIMES_N_MAX || start >= positions(n) || !start.is_multiple_of(SEGMENT) || primes.count > n {
            return Err("this is no count in the making");
        }
        Ok(Count::at(start, primes, n))
    }
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

impl Crosser {
    fn new(prime: usize, start: usize) -> Crosser {
        // Smaller multiples have a smaller factor.
        let first = position(prime * prime);
        let behind = start.saturating_sub(first).next_multiple_of(prime);
        Crosser { prime, next: first + behind - start }
    }
}

impl Sieve {
    /// One for the segments from position `start` on.
    fn new(n: usize, start: usize) -> Sieve {
        let crossers = odd_primes_up_to(n.isqrt())
            .filter(|prime| !IN_PATTERN.contains(prime))
            .map(|prime| Crosser::new(prime, start))
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
    fn a_count_goes_on_from_what_was_kept_of_any_step() {
        let n = 20 * SEGMENT as u64 - 7;
        let expected = primes_up_to(n).unwrap();
        let mut count = Count::new(n).unwrap();
        while count.step().is_continue() {
            let kept = serde_json::to_vec(&count).unwrap();
            assert!(kept.len() < 200, "{} bytes", kept.len());
            let mut again: Count = serde_json::from_slice(&kept).unwrap();
            assert_eq!(again.progress(), count.progress());
            let primes = loop {
                if let Break(primes) = again.step() {
                    break primes;
                }
            };
            assert_eq!(primes, expected);
        }
        assert_eq!(count.progress(), (n, n));
    }

    #[test]
    fn primes_refuses_a_checkpoint_that_it_cannot_have_made() {
        let kept = |n: u64, start: usize, count: u64| {
            let kept = json!({"n": n, "start": start, "primes": {"count": count, "largest": null}});
            serde_json::from_value::<Count>(kept)
        };
        assert!(kept(1_000_000, SEGMENT, 6542).is_ok());
        assert!(kept(PRIMES_N_MAX + 1, SEGMENT, 6542).is_err());
        assert!(kept(1_000_000, SEGMENT + 1, 6542).is_err());
        assert!(kept(1_000_000, 16 * SEGMENT, 6542).is_err());
        assert!(kept(1_000_000, SEGMENT, 1_000_001).is_err());
        assert!(kept(1, 0, 0).is_err());
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
