//! What several samples of a figure say: the one in the middle, and whether one strategy differs from another.
//!
//! Samples of two strategies are taken in turn, in rounds, so the two of one round met the same machine. What is judged is
//! their ratio in each round. The interval around the ratio in the middle comes from Wilcoxon's signed ranks: it needs no
//! bell curve, and one round in which the machine was busy does not move it.

/// The interval is wrong at most this often, on either side.
const ERROR_MAX: f64 = 0.025;

/// A ratio this close to 1 is no difference, however sure it is: more than that comes from where the linker put things.
const LEAST_DIFFERENCE: f64 = 0.02;

/// A figure over all rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    /// The one in the middle.
    pub(super) median: f64,
    /// The smallest.
    pub(super) low: f64,
    /// The largest.
    pub(super) high: f64,
}

impl Spread {
    /// Of these values; none if there is no value.
    pub(super) fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_unstable_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        Some(Spread { median: middle(&values), low, high })
    }

    /// How far the values lie apart, as a share of the median.
    pub(super) fn width(self) -> f64 {
        if self.high == self.low { 0.0 } else { (self.high - self.low) / self.median.abs() }
    }
}

/// Of sorted values, at least one.
fn middle(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// One strategy beside another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    /// The ratio in the middle.
    pub(super) ratio: f64,
    /// With 95 % certainty it is not less than this and not more than that. None if there are too few rounds to say.
    pub(super) interval: Option<(f64, f64)>,
}

/// What a ratio means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    More,
    Less,
    NoDifference,
    /// The interval is so wide that either could be.
    Unclear,
    /// Fewer rounds than an interval needs.
    TooFewRounds,
}

impl Ratio {
    /// Of the samples of two strategies, a pair for each round. None if there is no pair with a ratio.
    pub(super) fn of(pairs: impl Iterator<Item = (f64, f64)>) -> Option<Ratio> {
        let logs: Vec<f64> = pairs
            .filter(|(one, other)| *one > 0.0 && *other > 0.0)
            .map(|(one, other)| (one / other).ln())
            .collect();
        let means = means_of_pairs(&logs);
        let cut = ranks_cut_off(logs.len());
        let at = |position: usize| means.get(position).map(|mean| mean.exp());
        let interval = cut.and_then(|cut| Some((at(cut)?, at(means.len() - 1 - cut)?)));
        (!means.is_empty()).then(|| Ratio { ratio: middle(&means).exp(), interval })
    }

    /// Of two runs, whose rounds are no pairs: the ratio in the middle of those of any round now to any round before. The
    /// interval comes from the test of Mann and Whitney. None if there is no ratio.
    pub(super) fn of_runs(now: &[f64], before: &[f64]) -> Option<Ratio> {
        let logs = |rates: &[f64]| -> Vec<f64> {
            rates.iter().filter(|rate| **rate > 0.0).map(|rate| rate.ln()).collect()
        };
        let (now, before) = (logs(now), logs(before));
        let mut differences: Vec<f64> =
            now.iter().flat_map(|now| before.iter().map(move |before| now - before)).collect();
        differences.sort_unstable_by(f64::total_cmp);
        let at = |position: usize| differences.get(position).map(|difference| difference.exp());
        let cut = pairs_cut_off(now.len(), before.len());
        let interval = cut.and_then(|cut| Some((at(cut)?, at(differences.len() - 1 - cut)?)));
        (!differences.is_empty()).then(|| Ratio { ratio: middle(&differences).exp(), interval })
    }

    /// See [`Verdict`].
    pub(super) fn verdict(self) -> Verdict {
        self.verdict_beyond(LEAST_DIFFERENCE)
    }

    /// The verdict if a ratio this close to 1 is no difference.
    pub(super) fn verdict_beyond(self, difference: f64) -> Verdict {
        let (least, most) = (1.0 - difference, 1.0 + difference);
        match self.interval {
            None => Verdict::TooFewRounds,
            Some((low, _)) if low > most => Verdict::More,
            Some((_, high)) if high < least => Verdict::Less,
            Some((low, high)) if hides_nothing(low, high, difference) => Verdict::NoDifference,
            Some(_) => Verdict::Unclear,
        }
    }
}

/// Whether a difference of a tenth is out of the question, or of what counts as none if that is more, on either side.
fn hides_nothing(low: f64, high: f64, difference: f64) -> bool {
    let least = 1.0 - difference.max(HIDDEN);
    low > least && high < 1.0 / least
}

/// A difference that an interval must not hide.
const HIDDEN: f64 = 0.1;

/// The means of all pairs, each with itself too, in order.
fn means_of_pairs(values: &[f64]) -> Vec<f64> {
    let pairs =
        values.iter().enumerate().flat_map(|(at, one)| values[at..].iter().map(move |other| (one, other)));
    let mut means: Vec<f64> = pairs.map(|(one, other)| f64::midpoint(*one, *other)).collect();
    means.sort_unstable_by(f64::total_cmp);
    means
}

/// How many of the means at either end lie outside the interval; none if even with none it would be wrong too often.
///
/// A sum of signed ranks of at most k comes about as often as so many subsets of the ranks 1 to n have at most this sum.
fn ranks_cut_off(count: usize) -> Option<usize> {
    let most = count * (count + 1) / 2;
    let mut subsets = vec![0.0; most + 1];
    subsets[0] = 1.0;
    for rank in 1..=count {
        for sum in (rank..=most).rev() {
            subsets[sum] += subsets[sum - rank];
        }
    }
    let all = 2_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut share = 0.0;
    let sure = subsets.iter().take_while(|subsets| {
        share += **subsets / all;
        share <= ERROR_MAX
    });
    sure.count().checked_sub(1)
}

/// The same for the differences between each of some values and each of others. The number of pairs in which one is the
/// smaller is at most k about as often as so many ways to mix them have at most this number.
fn pairs_cut_off(some: usize, others: usize) -> Option<usize> {
    if some + others > EXACT_MAX {
        let (some, others) = (some as f64, others as f64);
        let deviation = (some * others * (some + others + 1.0) / 12.0).sqrt();
        let cut = (some * others / 2.0 - QUANTILE * deviation - 0.5).floor();
        return (cut >= 0.0).then_some(cut as usize);
    }
    let ways = ways_to_mix(some, others);
    let all: f64 = ways.iter().sum();
    let mut share = 0.0;
    let sure = ways.iter().take_while(|ways| {
        share += **ways / all;
        share <= ERROR_MAX
    });
    sure.count().checked_sub(1)
}

/// With up to so many values together the ways to mix them are counted; beyond, their distribution is a bell curve.
const EXACT_MAX: usize = 40;

/// Of the bell curve, this many deviations below the middle lies a share of [`ERROR_MAX`].
const QUANTILE: f64 = 1.959_964;

/// In how many ways some values can be mixed with others, by the number of pairs in which one of the others is smaller: the
/// coefficients of the product of (1 - q^(others + i)) / (1 - q^i) for each i up to `some`.
fn ways_to_mix(some: usize, others: usize) -> Vec<f64> {
    let most = some * others;
    let mut ways = vec![0.0; most + 1];
    ways[0] = 1.0;
    for i in 1..=some {
        for pairs in (others + i..=most).rev() {
            ways[pairs] -= ways[pairs - others - i];
        }
        for pairs in i..=most {
            ways[pairs] += ways[pairs - i];
        }
    }
    ways
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Noise as machines have it: most samples lie close together, and some rounds are slow for whoever has them.
    pub(in super::super) struct Machine(pub(in super::super) u64);

    impl Machine {
        fn even(&mut self) -> f64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as f64 / (1_u64 << 53) as f64
        }

        pub(in super::super) fn sample(&mut self, rate: f64) -> f64 {
            let bell: f64 = (0..12).map(|_| self.even()).sum::<f64>() - 6.0;
            let hiccup = if self.even() < 0.1 { 0.6 } else { 1.0 };
            rate * (1.0 + 0.03 * bell) * hiccup
        }

        /// The verdict on so many rounds of one strategy beside another.
        fn verdict(&mut self, rounds: usize, one: f64, other: f64) -> Verdict {
            let pairs: Vec<_> = (0..rounds).map(|_| (self.sample(one), self.sample(other))).collect();
            Ratio::of(pairs.into_iter()).unwrap().verdict()
        }

        fn count(&mut self, rounds: usize, one: f64, other: f64, wanted: Verdict) -> usize {
            (0..1000).filter(|_| self.verdict(rounds, one, other) == wanted).count()
        }
    }

    #[test]
    fn the_same_beside_itself_differs_in_less_than_one_of_twenty() {
        let mut machine = Machine(0x2545_f491_4f6c_dd1d);
        for rounds in [6, 10, 20] {
            let wrong = machine.count(rounds, 100.0, 100.0, Verdict::More)
                + machine.count(rounds, 100.0, 100.0, Verdict::Less);
            assert!(wrong < 100, "{wrong} of 2000 with {rounds} rounds");
        }
    }

    #[test]
    fn a_tenth_less_is_found_though_a_round_in_ten_was_disturbed() {
        let mut machine = Machine(0x9e37_79b9_7f4a_7c15);
        assert!(machine.count(20, 90.0, 100.0, Verdict::Less) > 700);
        assert!(machine.count(30, 90.0, 100.0, Verdict::Less) > 900);
        assert!(machine.count(30, 100.0, 90.0, Verdict::More) > 900);
        assert_eq!(machine.count(20, 90.0, 100.0, Verdict::More), 0);
    }

    #[test]
    fn what_may_hide_a_tenth_is_not_called_the_same() {
        let verdict =
            |low, high| Ratio { ratio: f64::midpoint(low, high), interval: Some((low, high)) }.verdict();
        assert_eq!(verdict(0.83, 0.985), Verdict::Unclear, "a tenth less is likely");
        assert_eq!(verdict(0.85, 1.01), Verdict::Unclear);
        assert_eq!(verdict(0.99, 1.15), Verdict::Unclear);
        assert_eq!(verdict(0.94, 1.05), Verdict::NoDifference);
        assert_eq!(verdict(0.85, 0.97), Verdict::Less);
    }

    #[test]
    fn the_ratio_is_the_one_in_the_middle_whatever_one_round_had() {
        let pairs = [(2.0, 1.0), (2.0, 1.0), (2.0, 1.0), (2.0, 1.0), (2.0, 1.0), (2.0, 1.0), (0.001, 1.0)];
        let ratio = Ratio::of(pairs.into_iter()).unwrap();
        assert!((ratio.ratio - 2.0).abs() < 1e-9, "{ratio:?}");
    }

    #[test]
    fn without_enough_rounds_nothing_is_sure() {
        let of = |rounds: usize| Ratio::of(std::iter::repeat_n((3.0, 1.0), rounds)).map(Ratio::verdict);
        assert_eq!(
            [0, 1, 5, 6].map(of),
            [None, Some(Verdict::TooFewRounds), Some(Verdict::TooFewRounds), Some(Verdict::More)]
        );
        assert_eq!(Ratio::of([(0.0, 1.0)].into_iter()), None, "nothing was finished");
    }

    #[test]
    fn the_ranks_that_are_cut_off_are_those_of_the_tables() {
        assert_eq!([5, 6, 8, 10, 20].map(ranks_cut_off), [None, Some(0), Some(3), Some(8), Some(52)]);
    }

    #[test]
    fn the_pairs_that_are_cut_off_are_those_of_the_tables() {
        // Critical values of U, two-sided, 5 %: one less than the number of differences outside of the interval.
        for (some, others, cut) in [(4, 4, 0), (5, 5, 2), (8, 8, 13), (10, 20, 55), (20, 20, 127)] {
            assert_eq!(pairs_cut_off(some, others), Some(cut), "{some} and {others}");
        }
        assert_eq!(pairs_cut_off(3, 3), None);
        // Where counting ends and the bell curve begins, both say about the same.
        let (counted, curve) = (pairs_cut_off(20, 20).unwrap(), pairs_cut_off(20, 21).unwrap());
        assert!((127..=136).contains(&curve) && curve > counted, "{curve}");
        assert_eq!(ways_to_mix(2, 2), [1.0, 1.0, 2.0, 1.0, 1.0]);
    }

    #[test]
    fn of_two_runs_a_tenth_less_is_found_and_the_same_is_hardly_ever_told_apart() {
        let mut machine = Machine(0x0123_4567_89ab_cdef);
        let mut less = |rate: f64| {
            let runs = (0..1000).filter(|_| {
                let mut run = |rate| (0..20).map(|_| machine.sample(rate)).collect::<Vec<_>>();
                let ratio = Ratio::of_runs(&run(rate), &run(100.0)).unwrap();
                ratio.verdict_beyond(0.05) == Verdict::Less
            });
            runs.count()
        };
        assert!(less(100.0) < 25);
        assert!(less(90.0) > 700);
        assert!(less(80.0) > 990);
        assert_eq!(Ratio::of_runs(&[0.0], &[1.0]), None);
        assert_eq!(Ratio::of_runs(&[2.0], &[1.0]).map(Ratio::verdict), Some(Verdict::TooFewRounds));
    }

    #[test]
    fn a_spread_has_the_middle_of_its_values() {
        assert_eq!(Spread::of(vec![]), None);
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Some(Spread { median: 2.0, low: 1.0, high: 3.0 }));
        assert_eq!(Spread::of(vec![1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of(vec![30.0, 10.0, 20.0]).unwrap().width(), 1.0);
        assert_eq!(Spread::of(vec![0.0, 0.0]).unwrap().width(), 0.0);
    }
}
