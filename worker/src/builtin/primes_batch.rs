//! `primes.batch`: the same as `primes`, for several numbers at once. One sieve up to the largest of them answers all, so a batch
//! costs as much as its largest job, and not as much as all of them.

use super::primes::{Primes, primes_up_to_each};
use super::whole::Whole;
use crate::limits::PRIMES_BATCH_N_MAX;
use crate::task::Task;
use offload_protocol::limits::BATCH_JOBS_MAX;
use std::time::Duration;

/// How long the first job waits for others. A large one takes longer than that.
const WAIT: Duration = Duration::from_millis(2);

pub(super) fn task() -> Task {
    Task::json_batch("primes.batch", BATCH_JOBS_MAX, WAIT, |numbers: Vec<Whole>| {
        let numbers: Vec<u64> = numbers.into_iter().map(|Whole(n)| n).collect();
        count(&numbers)
    })
}

/// One result for each number.
fn count(numbers: &[u64]) -> Vec<Result<Primes, String>> {
    let check = |n: u64| match n <= PRIMES_BATCH_N_MAX {
        true => Ok(n),
        false => Err(format!("n is {n}, it must be at most {PRIMES_BATCH_N_MAX}")),
    };
    let checked: Vec<Result<u64, String>> = numbers.iter().map(|n| check(*n)).collect();
    let good: Vec<u64> = checked.iter().filter_map(|n| n.as_ref().ok().copied()).collect();
    let mut counted = primes_up_to_each(&good).into_iter();
    let mut primes = || counted.next().ok_or_else(|| "no result".to_owned());
    checked.into_iter().map(|n| n.and_then(|_| primes())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::primes::primes_up_to;

    #[test]
    fn several_numbers_get_what_each_gets_alone_in_any_order_and_a_wrong_one_fails_alone() {
        let segment = 2 * (32 << 10);
        let edges = [segment - 2, segment - 1, segment, segment + 1, segment + 2, 3 * segment + 7];
        let numbers: Vec<u64> = (0..40).chain(edges).chain([100_000, 7, 7, 3]).rev().collect();
        for numbers in numbers.chunks(7).chain([&numbers[..]]) {
            let alone: Vec<_> = numbers.iter().map(|n| Ok(primes_up_to(*n).unwrap())).collect();
            assert_eq!(count(numbers), alone, "{numbers:?}");
        }
        let mixed = count(&[10, PRIMES_BATCH_N_MAX + 1, 100]);
        assert_eq!(
            mixed.iter().map(|one| one.as_ref().ok().map(|primes| primes.count)).collect::<Vec<_>>(),
            [Some(4), None, Some(25)]
        );
        assert!(count(&[]).is_empty());
    }
}
