//! What happens in pools of processes: one worker too many, and short jobs behind long ones.

use super::super::super::failure::Failure;
use super::super::super::text;
use super::super::jobs::Exercise;
use super::super::statistics::{Ratio, Verdict as Difference};
use super::super::strategy::{Setup, Strategy, measure};
use super::super::workload::Numbers;
use super::rig::{Rig, Supply, flag};
use super::{Extent, Figure, Found, Verdict};
use offload_supervisor::views::Percentiles;
use std::rc::Rc;
use std::time::Duration;

/// Jobs of a few milliseconds each in as many workers as there are cores, and in one more, in turn.
pub(super) fn one_worker_more(extent: &Extent) -> Result<Found, Failure> {
    let exercise = Rc::new(Exercise::new(Numbers::new(extent.choose(5_000_000, 10_000))?)?);
    let window = extent.choose(Duration::from_millis(400), Duration::from_millis(20));
    let cores = extent.cores();
    let rate = |workers: usize| {
        let setup = Setup::new(window, extent.workers(workers));
        measure(Strategy::Offloaded, &exercise, &setup).map(|sample| sample.jobs_per_s)
    };
    let mut pairs = Vec::new();
    for round in 0..extent.choose(12, 2) {
        // None is always the first.
        pairs.push(match round % 2 {
            0 => (rate(cores + 1)?, rate(cores)?),
            _ => {
                let exact = rate(cores)?;
                (rate(cores + 1)?, exact)
            }
        });
    }
    let Some(ratio) = Ratio::of(pairs.into_iter()) else {
        return Err(Failure::Internal("no job ended in the measured time".to_owned()));
    };
    let sure = ratio.interval.map_or_else(
        || "nobody knows how sure that is".to_owned(),
        |(low, high)| format!("{low:.2} to {high:.2} with 95 % certainty"),
    );
    let sentence = format!(
        "{} do {:.2} times as many jobs as {cores} ({sure})",
        text::count(cores as u64 + 1, "worker"),
        ratio.ratio
    );
    let figures = vec![Figure { name: "jobs_beside_one_worker_less", value: ratio.ratio, unit: "ratio" }];
    let verdict = match ratio.verdict() {
        Difference::Less | Difference::NoDifference => Verdict::Holds,
        Difference::More => Verdict::DoesNotHold,
        Difference::Unclear | Difference::TooFewRounds => Verdict::Unclear,
    };
    Ok(Found { figures, verdict, sentence })
}

/// What short jobs wait beside long ones, and how many of the long ones are done meanwhile.
struct Lanes {
    short_us: Percentiles,
    long: usize,
}

/// A job of 1 ms every now and then, while there are always more long ones than workers: in one pool, and in pools of their own.
pub(super) fn short_and_long(extent: &Extent) -> Result<Found, Failure> {
    let time = extent.choose(Duration::from_secs(3), Duration::from_millis(200));
    let together = lanes(extent, time, false)?;
    let apart = lanes(extent, time, true)?;
    let sentence = format!(
        "a job of 1 ms takes {} (at most {}) in one queue with jobs of {LONG_MS} ms, and {} (at most {}) in a pool of its own, beside which \
         {} instead of {} of the long ones are done",
        text::time(together.short_us.p50),
        text::time(together.short_us.max),
        text::time(apart.short_us.p50),
        text::time(apart.short_us.max),
        apart.long,
        together.long,
    );
    let figures = vec![
        Figure { name: "short_p50_in_one_pool", value: together.short_us.p50 as f64 / 1e3, unit: "ms" },
        Figure { name: "short_max_in_one_pool", value: together.short_us.max as f64 / 1e3, unit: "ms" },
        Figure { name: "short_p50_apart", value: apart.short_us.p50 as f64 / 1e3, unit: "ms" },
        Figure { name: "short_max_apart", value: apart.short_us.max as f64 / 1e3, unit: "ms" },
        Figure { name: "long_jobs_in_one_pool", value: together.long as f64, unit: "jobs" },
        Figure { name: "long_jobs_apart", value: apart.long as f64, unit: "jobs" },
    ];
    Ok(Found { figures, verdict: Verdict::of(together.short_us.p50 > apart.short_us.p50 * 3), sentence })
}

const LONG_MS: u64 = 50;

/// Time between two short jobs.
const SHORT_EVERY: Duration = Duration::from_millis(20);

fn lanes(extent: &Extent, time: Duration, are_apart: bool) -> Result<Lanes, Failure> {
    let mut rig = Rig::new()?;
    let shared = rig.workers(extent.workers(extent.cores()))?;
    let own = if are_apart { Some(rig.workers(extent.workers(1))?) } else { None };
    let (is_over, over) = flag();
    let long = Supply::new(&shared, "spin", LONG_MS.to_string(), &over);
    (0..extent.cores() * 2).for_each(|_| long.clone().go_on());
    let short = Supply::new(own.as_ref().unwrap_or(&shared), "spin", "1".to_owned(), &over);
    let each = short.clone();
    let timer = rig.set_interval(SHORT_EVERY, move |_cx| each.submit(|_cx| {}));
    rig.run_for(time)?;
    // On a machine that has much else to do, nothing may have ended in this time.
    rig.run_until(|| short.count() > 0 && long.count() > 0)?;
    let long_jobs = long.count();
    is_over.set(true);
    rig.clear(timer);
    rig.end(&shared)?;
    own.map_or(Ok(()), |own| rig.end(&own))?;
    Ok(Lanes { short_us: short.times_us(), long: long_jobs })
}
