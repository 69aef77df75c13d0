//! Inputs that keep the loop busy: a long JSON document, and a text that a regular expression chokes on.

use super::super::super::failure::Failure;
use super::super::super::text;
use super::rig::Rig;
use super::{Extent, Figure, Found, Verdict};
use bytes::Bytes;
use offload_protocol::nouns::{MediaType, OutcomeCode};
use offload_supervisor::views::Percentiles;
use offload_supervisor::{ComputePool, Job};
use offload_worker::builtin::in_one_piece;
use offload_worker::builtin::json::measure;
use offload_worker::{Input, TaskError};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::json;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How much longer others wait at most if a worker does it, as a share of their wait on the loop.
const MUCH_LESS: f64 = 0.2;

/// The guide's document: an object that holds the one before twice, so often.
struct Doubled(u32);

impl Serialize for Doubled {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self.0.checked_sub(1) {
            None => map.serialize_entry("a", &1)?,
            Some(less) => {
                map.serialize_entry("obj1", &Doubled(less))?;
                map.serialize_entry("obj2", &Doubled(less))?;
            }
        }
        map.end()
    }
}

/// A document is written, searched and parsed; then it is parsed on the loop and in a worker, while others wait for the loop.
pub(super) fn json_dos(extent: &Extent) -> Result<Found, Failure> {
    let (written, document) = timed(|| serde_json::to_string(&Doubled(extent.choose(20, 12))));
    let document = document.map_err(|error| Failure::internal("the document cannot be written", error))?;
    let (searched, _) = timed(|| document.find("nomatch"));
    let (parsed, _) = timed(|| measure(document.as_bytes()));
    let document = Bytes::from(document);
    let time = parsed * 2 + Duration::from_millis(50);
    let on_loop = wait_on_loop(&document, time)?;
    let in_worker = wait_beside_worker(extent, &document, time)?;
    let others_wait_for_it = on_loop.max as f64 >= parsed.as_micros() as f64 * 0.5;
    let worker_helps = (in_worker.max as f64) < on_loop.max as f64 * MUCH_LESS;
    let sentence = format!(
        "{} of JSON: {} to write, {} to search, {} to parse; others wait up to {} for the loop that parses it, and {} beside a worker \
         that does",
        text::bytes(document.len() as u64),
        shown(written),
        shown(searched),
        shown(parsed),
        text::time(on_loop.max),
        text::time(in_worker.max),
    );
    let figures = vec![
        Figure { name: "write", value: milliseconds(written), unit: "ms" },
        Figure { name: "search", value: milliseconds(searched), unit: "ms" },
        Figure { name: "parse", value: milliseconds(parsed), unit: "ms" },
        Figure { name: "longest_wait_for_the_loop", value: on_loop.max as f64 / 1e3, unit: "ms" },
        Figure { name: "longest_wait_beside_a_worker", value: in_worker.max as f64 / 1e3, unit: "ms" },
    ];
    Ok(Found { figures, verdict: Verdict::of(others_wait_for_it && worker_helps), sentence })
}

fn wait_on_loop(document: &Bytes, time: Duration) -> Result<Percentiles, Failure> {
    let document = document.clone();
    Rig::new()?.waits_beside(time, |handle, done| {
        handle.set_immediate(move |_cx| {
            done.set(measure(&document).is_ok());
        });
    })
}

fn wait_beside_worker(extent: &Extent, document: &Bytes, time: Duration) -> Result<Percentiles, Failure> {
    let mut rig = Rig::new()?;
    let mut config = extent.workers(1);
    config.core.max_bytes = config.core.max_bytes.max(document.len() as u64 * 2);
    let pool = rig.workers(config)?;
    let job = Job::new("json").input(document.clone()).media_type(MediaType::JSON);
    let failure = Rc::new(Cell::new(None));
    let told = Rc::clone(&failure);
    let waits = rig.waits_beside(time, |_handle, done| {
        pool.submit(job, move |finished, _cx| {
            told.set(finished.into_output().err());
            done.set(true);
        });
    })?;
    rig.end(&pool)?;
    failure.take().map_or(Ok(waits), |message| Err(Failure::Internal(message)))
}

/// A text of slashes is searched by an engine that goes back and by one that does not; then a worker gets the hopeless one,
/// with a time limit.
pub(super) fn redos(extent: &Extent) -> Result<Found, Failure> {
    let growth = Growth::measure(extent.choose(Duration::from_millis(200), Duration::from_millis(10)))?;
    let (linear, _) = timed(|| search(HOPELESS, "linear"));
    let limit = extent.choose(Duration::from_millis(500), Duration::from_millis(100));
    let stopped = stopped_by_limit(extent, limit)?;
    let sentence = format!(
        "each slash makes it {:.1} times longer, so {HOPELESS} would take 10^{:.0} years, and a linear engine takes {}; in a worker, a \
         limit of {} ends it after {}, the next job is answered {} later, and others wait up to {} for the loop",
        growth.factor,
        growth.years_of(HOPELESS).log10(),
        shown(linear),
        shown(limit),
        shown(stopped.after),
        shown(stopped.next.saturating_sub(stopped.after)),
        text::time(stopped.waits.max),
    );
    let figures = vec![
        Figure { name: "longer_with_each_slash", value: growth.factor, unit: "ratio" },
        Figure { name: "linear_engine", value: milliseconds(linear), unit: "ms" },
        Figure { name: "stopped_after", value: milliseconds(stopped.after), unit: "ms" },
        Figure { name: "next_job_answered_after", value: milliseconds(stopped.next), unit: "ms" },
        Figure { name: "longest_wait_for_the_loop", value: stopped.waits.max as f64 / 1e3, unit: "ms" },
    ];
    let holds = growth.factor > 1.3 && linear < growth.longest;
    Ok(Found { figures, verdict: Verdict::of(holds), sentence })
}

/// Slashes that no backtracking engine gets through.
const HOPELESS: u32 = 100;

/// How the time of a search grows with the slashes in its text.
struct Growth {
    factor: f64,
    slashes: u32,
    longest: Duration,
}

impl Growth {
    /// Adds slashes until a search takes so long.
    fn measure(enough: Duration) -> Result<Growth, Failure> {
        const APART: u32 = 6;
        let mut times = Vec::new();
        for slashes in 8..HOPELESS {
            let (time, found) = timed(|| search(slashes, "backtracking"));
            found?;
            times.push(time);
            let before = times.len().checked_sub(1 + APART as usize).map(|at| times[at]);
            if let (Some(before), true) = (before, time >= enough) {
                let factor =
                    (time.as_secs_f64() / before.as_secs_f64().max(1e-9)).powf(1.0 / f64::from(APART));
                return Ok(Growth { factor, slashes, longest: time });
            }
        }
        Ok(Growth { factor: 1.0, slashes: HOPELESS, longest: times.last().copied().unwrap_or_default() })
    }

    fn years_of(&self, slashes: u32) -> f64 {
        const YEAR: f64 = 365.25 * 86_400.0;
        self.longest.as_secs_f64() * self.factor.powi(slashes.saturating_sub(self.slashes) as i32) / YEAR
    }
}

fn query(slashes: u32, engine: &str) -> String {
    let text = format!("{}\n", "/".repeat(slashes as usize));
    json!({"pattern": r"(\/.+)+$", "text": text, "engine": engine}).to_string()
}

fn search(slashes: u32, engine: &str) -> Result<(), Failure> {
    let input = Input { bytes: query(slashes, engine).into(), media_type: MediaType::JSON };
    let found =
        in_one_piece("regex", &input).unwrap_or_else(|| Err(TaskError::new("there is no task `regex`")));
    found.map(drop).map_err(|error| Failure::internal("the search failed", error))
}

/// What became of the hopeless search in a worker.
struct Stopped {
    after: Duration,
    /// When the job behind it was answered.
    next: Duration,
    waits: Percentiles,
}

fn stopped_by_limit(extent: &Extent, limit: Duration) -> Result<Stopped, Failure> {
    let mut rig = Rig::new()?;
    let pool = rig.workers(extent.workers(1))?;
    let begun = Instant::now();
    let (after, next) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(None)));
    let (told, told_next) = (Rc::clone(&after), Rc::clone(&next));
    let waits = rig.waits_beside(limit * 2, |_handle, done| {
        let job = Job::new("regex").input(query(HOPELESS, "backtracking")).timeout(limit).attempts(1);
        pool.submit(job, move |finished, _cx| {
            told.set((finished.report.outcome == OutcomeCode::Timeout).then(|| begun.elapsed()));
        });
        then_echo(&pool, move || {
            told_next.set(Some(begun.elapsed()));
            done.set(true);
        });
    })?;
    rig.end(&pool)?;
    match (after.get(), next.get()) {
        (Some(after), Some(next)) => Ok(Stopped { after, next, waits }),
        _ => Err(Failure::Internal("the search was not stopped by its time limit".to_owned())),
    }
}

fn then_echo(pool: &ComputePool, done: impl FnOnce() + 'static) {
    pool.submit(Job::new("echo").input("next"), move |_finished, _cx| done());
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let begun = Instant::now();
    let done = std::hint::black_box(work());
    (begun.elapsed(), done)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn shown(time: Duration) -> String {
    text::time(super::rig::micros(time))
}
