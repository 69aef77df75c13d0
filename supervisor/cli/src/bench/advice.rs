//! From what size on offloading wins: a pure model of samples, which are taken elsewhere.
//!
//! ```text
//!   sweep      sizes four times as large each, until it is clear who wins; then closer ones around where that changes
//!   crossing   the difference of two times grows about evenly with the size: near the change a line goes through it,
//!              and the crossing is where the line is zero
//!   interval   the same with rounds drawn at random from those that were measured, again and again
//! ```

use super::statistics::{Ratio, Spread, Verdict};
use serde::Serialize;

/// What was measured of one size: an entry for each round, in microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Point {
    pub(super) size: u64,
    /// A job on the loop: in steps if it has any.
    pub(super) on_loop_us: Vec<f64>,
    /// A job, when workers do as many as they can.
    pub(super) offloaded_us: Vec<f64>,
    /// How late the loop was when whole jobs were done on it.
    pub(super) lag_us: Vec<f64>,
}

/// From which size on something is so.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "found")]
pub(super) enum Crossing {
    /// From this size on, which lies between the two with 95 % certainty.
    At { size: u64, low: u64, high: u64 },
    /// From the smallest size that was measured.
    FromTheSmallest { size: u64 },
    /// Not up to the largest.
    Never { size: u64 },
}

impl Crossing {
    /// The size, if there is one.
    pub(super) fn size(self) -> Option<u64> {
        match self {
            Crossing::At { size, .. } | Crossing::FromTheSmallest { size } => Some(size),
            Crossing::Never { .. } => None,
        }
    }
}

/// How often each size is measured at first, and around a crossing.
const ROUNDS: [u32; 2] = [4, 10];

/// Most steps of four times the size, and the sizes that are measured around a crossing, as multiples of it.
const SIZES_MAX: usize = 12;
const CLOSER: [f64; 5] = [0.5, 0.7, 1.0, 1.4, 2.0];

/// Points whose size is at most so many times larger or smaller than a crossing decide where it is.
const NEAR: f64 = 6.0;

/// How often rounds are drawn at random.
const DRAWS: usize = 400;

/// Measures sizes from `first` to `last` until `is_enough`, and then those around the crossing of throughput. `measure` says None
/// once there is no time left.
pub(super) fn sweep<E>(
    (first, last): (u64, u64),
    is_enough: impl Fn(&Point) -> bool,
    mut measure: impl FnMut(u64, u32) -> Result<Option<Point>, E>,
) -> Result<Vec<Point>, E> {
    let mut points = Vec::new();
    let sizes = std::iter::successors(Some(first), |size| size.checked_mul(4));
    for size in sizes.take_while(|size| *size <= last).take(SIZES_MAX) {
        let Some(point) = measure(size, ROUNDS[0])? else { break };
        let is_last = is_enough(&point);
        points.push(point);
        if is_last {
            break;
        }
    }
    if let Crossing::At { size, .. } = throughput(&points) {
        for factor in CLOSER {
            let closer = ((size as f64 * factor) as u64).clamp(first, last);
            points.extend(measure(closer, ROUNDS[1])?);
        }
    }
    points.sort_by_key(|point| point.size);
    Ok(points)
}

/// From which size on workers do more jobs than the loop.
pub(super) fn throughput(points: &[Point]) -> Crossing {
    crossing(points, |point, draw| {
        let (on_loop, offloaded) = (draw(&point.on_loop_us), draw(&point.offloaded_us));
        (on_loop - offloaded, on_loop.max(offloaded))
    })
}

/// From which size on a whole job makes the loop later than this.
pub(super) fn lateness(points: &[Point], limit_us: f64) -> Crossing {
    crossing(points, |point, draw| {
        let lag = draw(&point.lag_us);
        (lag - limit_us, lag.max(limit_us))
    })
}

/// How many workers are worth having, of the rates of one, of two and so on in each round: more of them count only if they
/// surely do more.
pub(super) fn workers_that_pay(rates: &[Vec<f64>]) -> usize {
    let does_more = |more: &[f64], few: &[f64]| {
        let pairs = more.iter().copied().zip(few.iter().copied());
        Ratio::of(pairs).is_some_and(|ratio| ratio.verdict() == Verdict::More)
    };
    (1..rates.len()).fold(0, |best, more| if does_more(&rates[more], &rates[best]) { more } else { best }) + 1
}

/// Of the values of a point that belong to one figure, the one in the middle.
pub(super) fn median(values: &[f64]) -> f64 {
    Spread::of(values.to_vec()).map_or(0.0, |spread| spread.median)
}

/// A difference, and the larger of what differs. It may draw its values from those of the rounds.
type Difference = (f64, f64);

fn crossing(
    points: &[Point],
    difference: impl Fn(&Point, &mut dyn FnMut(&[f64]) -> f64) -> Difference,
) -> Crossing {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Crossing::Never { size: 0 };
    };
    let estimate = |draw: &mut dyn FnMut(&[f64]) -> f64| {
        let line: Vec<_> = points.iter().map(|point| (point.size as f64, difference(point, draw))).collect();
        zero(&line)
    };
    let size = match estimate(&mut |values| median(values)) {
        Zero::At(size) => size,
        Zero::Before => return Crossing::FromTheSmallest { size: first.size },
        Zero::Behind => return Crossing::Never { size: last.size },
    };
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let drawn = (0..DRAWS).map(|_| match estimate(&mut |values| median(&random.drawn_from(values))) {
        Zero::At(size) => size,
        Zero::Before => first.size as f64,
        Zero::Behind => last.size as f64,
    });
    let mut drawn: Vec<f64> = drawn.collect();
    drawn.sort_unstable_by(f64::total_cmp);
    let (low, high) = (drawn[DRAWS / 40], drawn[DRAWS - 1 - DRAWS / 40]);
    let whole = |size: f64| size.round() as u64;
    Crossing::At { size: whole(size), low: whole(low.min(size)), high: whole(high.max(size)) }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Zero {
    At(f64),
    Before,
    Behind,
}

/// Where differences that begin below zero are above it from then on.
fn zero(line: &[(f64, Difference)]) -> Zero {
    let share = |(_, (difference, scale)): &(f64, Difference)| difference / scale.max(f64::MIN_POSITIVE);
    // If it changes before this one, those before it should be negative, and the others positive: so much is wrong then.
    let wrong = |change: usize| -> f64 {
        let before: f64 = line[..change].iter().map(|point| share(point).max(0.0)).sum();
        let behind: f64 = line[change..].iter().map(|point| (-share(point)).max(0.0)).sum();
        before + behind
    };
    let change = (0..=line.len()).min_by(|one, other| wrong(*one).total_cmp(&wrong(*other))).unwrap_or(0);
    if change == 0 {
        return Zero::Before;
    }
    if change == line.len() {
        return Zero::Behind;
    }
    let (below, above) = (line[change - 1].0, line[change].0);
    let middle = (below * above).sqrt();
    let near: Vec<_> =
        line.iter().filter(|(size, _)| (middle / NEAR..=middle * NEAR).contains(size)).collect();
    let (least, most) =
        near.iter().fold((below, above), |(least, most), (size, _)| (least.min(*size), most.max(*size)));
    Zero::At(zero_of_line(&near).unwrap_or(middle).clamp(least, most))
}

/// Where the line of least squares is zero. What is larger may be wrong by more. None if it does not rise.
fn zero_of_line(points: &[&(f64, Difference)]) -> Option<f64> {
    let mut sums = [0.0; 5];
    for (size, (difference, scale)) in points {
        let weight = scale.max(f64::MIN_POSITIVE).powi(-2);
        let terms = [1.0, *size, *difference, size * size, size * difference];
        sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += weight * term);
    }
    let [weight, x, y, xx, xy] = sums;
    let slope = (weight * xy - x * y) / (weight * xx - x * x);
    let zero = (slope * x - y) / (slope * weight);
    (slope > 0.0 && zero.is_finite()).then_some(zero)
}

/// Xorshift: the same advice for the same samples.
struct Random(u64);

impl Random {
    fn drawn_from(&mut self, values: &[f64]) -> Vec<f64> {
        let count = values.len() as u64;
        values.iter().map(|_| values[usize::try_from(self.next() % count).unwrap_or(0)]).collect()
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::statistics::tests::Machine;
    use super::*;
    use std::convert::Infallible;

    /// What a job costs, in microseconds: a fixed part, and one for each unit of its size.
    #[derive(Clone, Copy)]
    struct Cost(f64, f64);

    /// The points of a task with such costs on a machine with noise.
    fn swept(seed: u64, on_loop: Cost, offloaded: Cost) -> Vec<Point> {
        let mut machine = Machine(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1);
        let measure = |size: u64, rounds: u32| {
            let mut times = |Cost(fixed, each): Cost| -> Vec<f64> {
                let time = fixed + each * size as f64;
                (0..rounds).map(|_| 1e6 / machine.sample(1e6 / time)).collect()
            };
            let (on_loop_us, offloaded_us, lag_us) = (times(on_loop), times(offloaded), times(on_loop));
            Ok::<_, Infallible>(Some(Point { size, on_loop_us, offloaded_us, lag_us }))
        };
        let Ok(points) = sweep((1000, 100_000_000), |point| median(&point.lag_us) > 20_000.0, measure);
        points
    }

    fn size_of(crossing: Crossing) -> (f64, u64, u64) {
        match crossing {
            Crossing::At { size, low, high } => (size as f64, low, high),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_crossover_that_is_known_is_found_within_a_fifth_in_ten_of_ten_runs() {
        let mut held = 0;
        for seed in 1..=10 {
            for (on_loop, offloaded) in [
                (Cost(1.0, 0.01), Cost(40.0, 0.0055)),
                (Cost(0.0, 0.003), Cost(90.0, 0.001)),
                (Cost(2.0, 0.02), Cost(60.0, 0.015)),
            ] {
                let truth = (offloaded.0 - on_loop.0) / (on_loop.1 - offloaded.1);
                let (size, low, high) = size_of(throughput(&swept(seed, on_loop, offloaded)));
                assert!((0.8..1.2).contains(&(size / truth)), "seed {seed}: {size} and not {truth}");
                assert!((low..=high).contains(&(size as u64)));
                held += u32::from((low as f64..=high as f64).contains(&truth));
            }
        }
        assert!(held >= 24, "the interval holds the truth {held} of 30 times");
    }

    #[test]
    fn where_the_loop_is_too_late_is_found_too() {
        for seed in 1..=10 {
            let points = swept(seed, Cost(1.0, 0.01), Cost(40.0, 0.0055));
            let (size, ..) = size_of(lateness(&points, 5000.0));
            assert!((0.8..1.2).contains(&(size / 499_900.0)), "{size}");
        }
    }

    #[test]
    fn who_wins_everywhere_has_no_crossover() {
        let always = throughput(&swept(1, Cost(50.0, 0.01), Cost(1.0, 0.005)));
        assert_eq!(always, Crossing::FromTheSmallest { size: 1000 });
        let never = throughput(&swept(1, Cost(1.0, 0.01), Cost(40.0, 0.012)));
        assert!(matches!(never, Crossing::Never { .. }), "{never:?}");
        assert_eq!(throughput(&[]), Crossing::Never { size: 0 });
    }

    #[test]
    fn a_sweep_without_time_left_ends_with_what_it_has() {
        let mut left = 3;
        let points = sweep(
            (1, u64::MAX),
            |_| false,
            |size, _| {
                left -= 1;
                let point = Point { size, on_loop_us: vec![1.0], offloaded_us: vec![2.0], lag_us: vec![1.0] };
                Ok::<_, Infallible>((left >= 0).then_some(point))
            },
        );
        assert_eq!(points.unwrap().iter().map(|point| point.size).collect::<Vec<_>>(), [1, 4, 16]);
    }

    #[test]
    fn a_worker_too_many_does_not_pay() {
        let mut machine = Machine(7);
        let mut rates = |rate: f64| (0..10).map(|_| machine.sample(rate)).collect::<Vec<_>>();
        let of_cores = [100.0, 195.0, 196.0, 190.0].map(&mut rates);
        assert_eq!(workers_that_pay(&of_cores), 2);
        assert_eq!((workers_that_pay(&of_cores[..1]), workers_that_pay(&[])), (1, 1));
    }
}
