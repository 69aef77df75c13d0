//! The loop of one experiment, and what others wait on it and beside it meanwhile.

use super::super::super::embedded::{new_event_loop, not_started};
use super::super::super::failure::Failure;
use super::super::prober::{PERIOD, Prober};
use super::super::strategy::{await_workers, broken};
use crate::limits::BENCH_SCENARIO_MAX;
use offload_event_loop::io_pool::{IoHandle, IoPool, IoPoolConfig};
use offload_event_loop::{Context, EventLoop, LoopHandle, RunMode};
use offload_supervisor::views::Percentiles;
use offload_supervisor::{ComputePool, Finished, Job, PoolConfig};
use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time between two looks at a file by [`Rig::look_at_files`].
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The loop of one experiment.
pub(super) struct Rig(EventLoop);

impl Deref for Rig {
    type Target = LoopHandle;

    fn deref(&self) -> &LoopHandle {
        &self.0
    }
}

impl Rig {
    pub(super) fn new() -> Result<Rig, Failure> {
        new_event_loop().map(Rig)
    }

    /// Runs the loop until `is_over`, which is asked at least every millisecond.
    ///
    /// # Errors
    /// It takes longer than [`BENCH_SCENARIO_MAX`], or the loop is broken.
    pub(super) fn run_until(&mut self, is_over: impl Fn() -> bool) -> Result<(), Failure> {
        let give_up_at = Instant::now() + BENCH_SCENARIO_MAX;
        let look_again = self.0.set_interval(PERIOD, |_cx| {});
        while !is_over() {
            if Instant::now() >= give_up_at {
                let limit = BENCH_SCENARIO_MAX.as_secs();
                return Err(Failure::Internal(format!("the scenario has not ended after {limit} s")));
            }
            self.0.run_mode(RunMode::Once).map_err(broken)?;
        }
        self.0.clear(look_again);
        Ok(())
    }

    /// Runs the loop for this long.
    pub(super) fn run_for(&mut self, time: Duration) -> Result<(), Failure> {
        let end = Instant::now() + time;
        self.run_until(|| Instant::now() >= end)
    }

    /// A pool of worker processes, all of them ready.
    pub(super) fn workers(&mut self, config: PoolConfig) -> Result<ComputePool, Failure> {
        let pool = ComputePool::start(config, &self.0).map_err(not_started)?;
        await_workers(&pool, &mut self.0)?;
        Ok(pool)
    }

    /// Ends a pool at once.
    pub(super) fn end(&mut self, pool: &ComputePool) -> Result<(), Failure> {
        let (is_over, over) = flag();
        pool.shutdown(move |_cx| over.set(true));
        self.run_until(|| is_over.get())
    }

    /// A pool of threads.
    pub(super) fn threads(&self, config: IoPoolConfig) -> Result<IoPool, Failure> {
        IoPool::new(&self.0, config).map_err(|error| Failure::internal("cannot start the threads", error))
    }

    /// How long users of the loop wait for an answer, one in each millisecond of `time`, while `work` goes on. Returns when the
    /// time is up and the work is done, which `work` says by the flag that it is given.
    pub(super) fn waits_beside(
        &mut self,
        time: Duration,
        work: impl FnOnce(&LoopHandle, Rc<Cell<bool>>),
    ) -> Result<Percentiles, Failure> {
        let probes = u32::try_from(time.as_millis() / PERIOD.as_millis()).unwrap_or(u32::MAX);
        let (are_answered, answered) = flag();
        let prober = Prober::start(&self.0, probes, move |_cx| answered.set(true))
            .map_err(|error| Failure::internal("cannot start the prober", error))?;
        let (is_done, done) = flag();
        work(&self.0, done);
        self.run_until(|| are_answered.get() && is_done.get())?;
        Ok(prober.finish().latency_us())
    }

    /// Looks at a file through this pool at once, and again and again while `is_over` is not set.
    pub(super) fn look_at_files(&self, pool: &IoHandle, is_over: &Rc<Cell<bool>>) -> Looks {
        let looks = Looks::default();
        looks.begin(pool);
        let (mine, pool, is_over) = (looks.clone(), pool.clone(), Rc::clone(is_over));
        let timer = Rc::new(Cell::new(None));
        let own = Rc::clone(&timer);
        timer.set(Some(self.0.set_interval(LOOK_EVERY, move |cx| {
            if is_over.get() {
                if let Some(timer) = own.take() {
                    cx.clear(timer);
                }
                return;
            }
            mine.begin(&pool);
        })));
        looks
    }
}

/// Looks at a file, and how long each took.
#[derive(Clone, Default)]
pub(super) struct Looks {
    times_us: Rc<RefCell<Vec<u64>>>,
    under_way: Rc<Cell<u64>>,
}

impl Looks {
    /// Looks at a file through this pool.
    pub(super) fn begin(&self, pool: &IoHandle) {
        let (looks, begun) = (self.clone(), Instant::now());
        self.under_way.set(self.under_way.get() + 1);
        pool.fs_stat(PathBuf::from("/"), move |_cx, found| {
            looks.under_way.set(looks.under_way.get() - 1);
            if found.is_ok() {
                looks.times_us.borrow_mut().push(micros(begun.elapsed()));
            }
        });
    }

    pub(super) fn are_done(&self) -> bool {
        self.under_way.get() == 0
    }

    /// How long they took. Without any, all is 0.
    pub(super) fn times_us(&self) -> Percentiles {
        percentiles(&mut self.times_us.borrow().clone())
    }
}

/// Two ends of a flag.
pub(super) fn flag() -> (Rc<Cell<bool>>, Rc<Cell<bool>>) {
    let flag = Rc::new(Cell::new(false));
    (Rc::clone(&flag), flag)
}

/// Runs `task` on `input` again and again, so many at a time, until `is_over` is set. Counts those that ended well, and keeps how long
/// each took from its submission.
#[derive(Clone)]
pub(super) struct Supply {
    pub(super) pool: ComputePool,
    pub(super) task: &'static str,
    pub(super) input: String,
    pub(super) is_over: Rc<Cell<bool>>,
    pub(super) times_us: Rc<RefCell<Vec<u64>>>,
}

impl Supply {
    pub(super) fn new(
        pool: &ComputePool,
        task: &'static str,
        input: String,
        is_over: &Rc<Cell<bool>>,
    ) -> Supply {
        Supply { pool: pool.clone(), task, input, is_over: Rc::clone(is_over), times_us: Rc::default() }
    }

    /// Begins one, after which another one follows.
    pub(super) fn go_on(self) {
        let next = self.clone();
        self.submit(move |_cx| {
            if !next.is_over.get() {
                next.go_on();
            }
        });
    }

    /// One job.
    pub(super) fn submit(&self, then: impl FnOnce(&mut Context) + 'static) {
        let (times, begun) = (Rc::clone(&self.times_us), Instant::now());
        let done = move |finished: Finished, cx: &mut Context| {
            if finished.into_output().is_ok() {
                times.borrow_mut().push(micros(begun.elapsed()));
            }
            then(cx);
        };
        self.pool.submit(Job::new(self.task).input(self.input.clone()), done);
    }

    pub(super) fn count(&self) -> usize {
        self.times_us.borrow().len()
    }

    pub(super) fn times_us(&self) -> Percentiles {
        percentiles(&mut self.times_us.borrow().clone())
    }
}

fn percentiles(times: &mut [u64]) -> Percentiles {
    times.sort_unstable();
    let at = |quantile: f64| {
        let last = times.len().saturating_sub(1);
        times.get((last as f64 * quantile) as usize).copied().unwrap_or(0)
    };
    Percentiles { p50: at(0.5), p99: at(0.99), max: at(1.0) }
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let mut times: Vec<u64> = (1..=101).rev().collect();
        assert_eq!(percentiles(&mut times), Percentiles { p50: 51, p99: 100, max: 101 });
        assert_eq!(percentiles(&mut []), Percentiles { p50: 0, p99: 0, max: 0 });
    }

    #[test]
    fn looks_at_files_stop_when_they_are_told() {
        let mut rig = Rig::new().unwrap();
        let pool = rig.threads(IoPoolConfig::default()).unwrap();
        let (is_over, over) = flag();
        let looks = rig.look_at_files(&pool, &over);
        rig.run_until(|| looks.times_us.borrow().len() >= 3).unwrap();
        is_over.set(true);
        // With its interval and all looks at an end, nothing keeps the loop alive.
        rig.0.run().unwrap();
        assert!(looks.are_done() && looks.times_us().max > 0);
    }

    /// Whenever the first of them asks, one asks at the beginning of a time in which the loop is blocked.
    #[test]
    fn who_asks_a_loop_that_is_blocked_waits() {
        let mut rig = Rig::new().unwrap();
        let blocked = Duration::from_millis(30);
        let waits = rig.waits_beside(Duration::from_millis(70), |handle, done| {
            handle.set_interval(PERIOD, move |_cx| {
                let end = Instant::now() + blocked;
                while Instant::now() < end {}
            });
            done.set(true);
        });
        assert!(waits.unwrap().max >= 20_000);
    }
}
