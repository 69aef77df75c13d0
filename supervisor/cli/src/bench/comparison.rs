//! Takes the samples of all strategies, round by round, and puts them together.
//!
//! ```text
//!   warm-up   one short sample of each, which does not count
//!   round 1   nothing  inline  partitioned ... offloaded
//!   round 2   nothing  partitioned ... offloaded  inline      each begins with another one, so that none is always first
//!   ...
//!   the end   of each figure the median; of jobs/s the ratio to the first strategy in each round (bench/statistics.rs)
//! ```

use super::super::failure::Failure;
use super::conditions::{Conditions, ConditionsMeter};
use super::jobs::Exercise;
use super::lag::TimerLag;
use super::machine::{Noise, NoiseMeter};
use super::peers::Peer;
use super::prober::Waits;
use super::statistics::{Ratio, Spread};
use super::strategy::{Sample, Setup, Strategy, measure, measure_nothing};
use super::workload::Workload;
use crate::limits::BENCH_WARM_UP;
use offload_supervisor::views::Percentiles;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What is compared, and how.
pub(super) struct Plan {
    /// The first is the one that the others are compared with. One may be there several times.
    pub(super) strategies: Vec<Strategy>,
    pub(super) rounds: u32,
    pub(super) setup: Setup,
    /// How much longer the last strategy takes for each job, as a share of it.
    pub(super) handicap: f64,
}

/// What was found.
pub(super) struct Comparison {
    pub(super) rows: Vec<Summary>,
    /// The prober on a loop that has nothing else to do.
    pub(super) prober: ProberAlone,
    /// What else used the machine.
    pub(super) noise: Noise,
    /// What held its cores back.
    pub(super) conditions: Conditions,
}

/// What the measurement itself costs.
pub(super) struct ProberAlone {
    pub(super) probed: Waits,
    /// Share of a core.
    pub(super) cpu: f64,
}

/// One strategy over all rounds.
pub(super) struct Summary {
    pub(super) strategy: &'static str,
    /// In all rounds together.
    pub(super) jobs: u64,
    pub(super) jobs_per_s: Spread,
    /// With 95 % certainty the rate lies between these two; none if there are too few rounds.
    pub(super) interval: Option<(f64, f64)>,
    /// In each round.
    pub(super) rates: Vec<f64>,
    /// Jobs per second beside the first strategy; of the first, none.
    pub(super) beside_first: Option<Ratio>,
    /// In all rounds together.
    pub(super) probed: Waits,
    pub(super) loop_lag_us: Option<Percentiles>,
    pub(super) timer_lag_us: Percentiles,
    /// See [`TimerLag::over_time`].
    pub(super) timer_lag_over_time_us: Vec<u64>,
    /// In all rounds together.
    pub(super) cpu_s: f64,
    pub(super) bytes: u64,
    /// Jobs with another answer than that which was seen first.
    pub(super) differing: u64,
    /// The share of the time from submission to answer in which no worker computed: for what went to workers.
    pub(super) on_the_way: Option<f64>,
}

/// Compares the strategies, and behind them those of other runtimes; `tell` hears of each round.
///
/// # Errors
/// A job failed, an answer was wrong, or the system ran out of some resource.
pub(super) fn compare<W: Workload>(
    plan: &Plan,
    exercise: &Rc<Exercise<W>>,
    mut peers: Vec<Peer>,
    tell: impl Fn(u32),
) -> Result<Comparison, Failure> {
    let (conditions, begun) = (ConditionsMeter::start(), Instant::now());
    let ours = plan.strategies.len();
    let names = plan.strategies.iter().map(|strategy| strategy.name());
    let names: Vec<&str> = names.chain(peers.iter().map(Peer::name)).collect();
    let mut sample = |at: usize, window: Duration| match at.checked_sub(ours) {
        Some(peer) => peers[peer].measure(window),
        None => {
            let mut setup = plan.setup.within(window);
            setup.handicap = if at + 1 == ours { plan.handicap } else { 0.0 };
            measure(plan.strategies[at], exercise, &setup)
        }
    };
    let (noise, window) = (NoiseMeter::start(), plan.setup.window);
    for at in 0..names.len() {
        sample(at, BENCH_WARM_UP.min(window))?;
    }
    let mut samples: Vec<Vec<Sample>> = names.iter().map(|_| Vec::new()).collect();
    let mut alone = Vec::new();
    for round in 0..plan.rounds {
        tell(round + 1);
        alone.push(measure_nothing(window)?);
        for at in (0..names.len()).map(|at| (at + round as usize) % names.len()) {
            samples[at].push(sample(at, window)?);
        }
    }
    // Only when they have ended, the kernel counts them as ours.
    drop(peers);
    let first: Vec<f64> = samples.first().into_iter().flatten().map(|sample| sample.jobs_per_s).collect();
    let rows = names.iter().zip(&samples).enumerate().filter_map(|(at, (name, samples))| {
        let mut summary = summary(name, samples)?;
        let pairs = samples.iter().map(|sample| sample.jobs_per_s).zip(first.iter().copied());
        summary.beside_first = if at == 0 { None } else { Ratio::of(pairs) };
        Some(summary)
    });
    Ok(Comparison {
        rows: rows.collect(),
        prober: prober_alone(&alone),
        noise: noise.stop(),
        conditions: conditions.stop(begun.elapsed()),
    })
}

fn summary(strategy: &'static str, samples: &[Sample]) -> Option<Summary> {
    let lags: Vec<&TimerLag> = samples.iter().map(|sample| &sample.timer_lag).collect();
    let rates: Vec<f64> = samples.iter().map(|sample| sample.jobs_per_s).collect();
    let (run, all) = samples
        .iter()
        .fold((0, 0), |(run, all), sample| (run + sample.sent.run_us, all + sample.sent.all_us));
    Some(Summary {
        strategy,
        jobs: samples.iter().map(|sample| sample.jobs).sum(),
        jobs_per_s: Spread::of(rates.clone())?,
        interval: Ratio::of(rates.iter().map(|rate| (*rate, 1.0))).and_then(|rate| rate.interval),
        rates,
        beside_first: None,
        probed: Waits::together(samples.iter().map(|sample| &sample.probed)),
        loop_lag_us: middle_lag(samples),
        timer_lag_us: TimerLag::latency_us(&lags),
        timer_lag_over_time_us: TimerLag::over_time(&lags).0,
        cpu_s: samples.iter().map(|sample| sample.cpu_s).sum(),
        bytes: samples.iter().map(|sample| sample.sent.bytes).sum(),
        differing: samples.iter().map(|sample| sample.differing).sum(),
        on_the_way: (all > 0).then(|| (1.0 - run as f64 / all as f64).max(0.0)),
    })
}

fn prober_alone(samples: &[Sample]) -> ProberAlone {
    let (cpu, time) =
        samples.iter().fold((0.0, 0.0), |(cpu, time), sample| (cpu + sample.cpu_s, time + sample.seconds));
    let probed = Waits::together(samples.iter().map(|sample| &sample.probed));
    ProberAlone { probed, cpu: if time > 0.0 { cpu / time } else { 0.0 } }
}

/// How busy the loop was: the medians of the samples, and the largest of the worst.
fn middle_lag(samples: &[Sample]) -> Option<Percentiles> {
    let all = || samples.iter().filter_map(|sample| sample.loop_lag_us.as_ref());
    let median = |of: fn(&Percentiles) -> u64| {
        Spread::of(all().map(|one| of(one) as f64).collect()).map_or(0, |spread| spread.median as u64)
    };
    let max = all().map(|one| one.max).max()?;
    Some(Percentiles { p50: median(|one| one.p50), p99: median(|one| one.p99), max })
}
