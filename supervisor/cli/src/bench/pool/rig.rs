//! A pool with its event loop, used as any program would use it: jobs are submitted, callbacks get their results.
//!
//! Every result is looked at. A figure exists only if all jobs were done and all answers are right; otherwise the sample
//! fails and says why.

use super::super::super::embedded::{new_event_loop, not_started};
use super::super::super::failure::Failure;
use super::super::super::render;
use super::super::strategy::{await_workers, broken};
use super::burn;
use super::helper::{OWN_EXECUTABLE, VERB};
use super::sample::Times;
use bytes::Bytes;
use offload_core::config::CoreConfig;
use offload_event_loop::{Context, EventLoop};
use offload_protocol::nouns::{MediaType, OutcomeCode};
use offload_supervisor::{ComputePool, Finished, Job, Level, PoolConfig, Program};
use serde::de::DeserializeOwned;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Jobs that are done before anything is measured, so that all memory and all estimates are there.
const WARM_UP_JOBS: u64 = 64;

/// See the module's documentation.
pub(super) struct Rig {
    /// The loop.
    pub(super) event_loop: EventLoop,
    /// The pool on it.
    pub(super) pool: ComputePool,
}

/// The worker that offers the tasks of [`burn::tasks`].
pub(super) fn burning() -> Program {
    Program::command([OWN_EXECUTABLE, VERB, "worker"].map(str::to_owned).to_vec())
}

/// The default configuration of a pool with so many workers, which logs nothing but errors.
pub(super) fn config(program: Program, workers: usize) -> PoolConfig {
    let mut config = PoolConfig { log: Level::Quiet, ..PoolConfig::with(program) };
    config.core.workers = workers;
    config
}

/// Whether the answer is right.
pub(super) type Check = fn(&Finished) -> bool;

/// Any answer will do.
pub(super) fn any(_: &Finished) -> bool {
    true
}

/// An echo of 64 bytes.
pub(super) fn is_64_bytes(finished: &Finished) -> bool {
    finished.output.len() == 64
}

/// A job that sends 64 bytes of its own back.
pub(super) fn echo_64() -> Job {
    Job::new("echo").input(Bytes::from(vec![b'x'; 64]))
}

impl Rig {
    /// A pool of built-in workers that are ready and warm.
    ///
    /// # Errors
    /// If it does not start.
    pub(super) fn echo(workers: usize, change: impl FnOnce(&mut CoreConfig)) -> Result<Rig, Failure> {
        let mut rig = Rig::start(Program::builtin(false), workers, change)?;
        rig.burst(WARM_UP_JOBS, |_| echo_64(), is_64_bytes)?;
        Ok(rig)
    }

    /// A pool of workers that are ready for [`burn::tasks`].
    ///
    /// # Errors
    /// If it does not start.
    pub(super) fn burning(workers: usize) -> Result<Rig, Failure> {
        Rig::start(burning(), workers, |_| {})
    }

    /// A pool of workers of this program.
    ///
    /// # Errors
    /// If it does not start.
    pub(super) fn with(program: Program, workers: usize) -> Result<Rig, Failure> {
        Rig::start(program, workers, |_| {})
    }

    fn start(program: Program, workers: usize, change: impl FnOnce(&mut CoreConfig)) -> Result<Rig, Failure> {
        let mut event_loop = new_event_loop()?;
        let mut config = config(program, workers);
        // There is no other client to leave room for.
        config.core.max_jobs_per_client = Some(config.core.max_jobs);
        change(&mut config.core);
        let pool = ComputePool::start(config, &event_loop).map_err(not_started)?;
        await_workers(&pool, &mut event_loop)?;
        Ok(Rig { event_loop, pool })
    }

    /// Submits jobs without letting the loop run.
    pub(super) fn submit(&self, jobs: u64, job: impl Fn(u64) -> Job, check: Check) -> Rc<Batch> {
        let batch = Batch::new(jobs, check);
        for number in 0..jobs {
            let batch = Rc::clone(&batch);
            self.pool.submit(job(number), move |finished, cx| batch.note(&finished, cx));
        }
        batch
    }

    /// Runs the loop until all jobs of the batch have ended. Returns the time since they began to be submitted.
    ///
    /// # Errors
    /// If one of them was not done, or its answer was wrong.
    pub(super) fn finish(&mut self, batch: &Batch) -> Result<Duration, Failure> {
        while batch.left.get() > 0 {
            self.event_loop.run().map_err(broken)?;
        }
        match batch.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(batch.end.get().duration_since(batch.start)),
        }
    }

    /// Submits jobs at once and waits for all of them.
    ///
    /// # Errors
    /// As [`Rig::finish`].
    pub(super) fn burst(
        &mut self,
        jobs: u64,
        job: impl Fn(u64) -> Job,
        check: Check,
    ) -> Result<Duration, Failure> {
        let batch = self.submit(jobs, job, check);
        self.finish(&batch)
    }

    /// Echoes so many times, each time when the echo before it has come. Returns the time that each took.
    ///
    /// # Errors
    /// As [`Rig::finish`].
    pub(super) fn one_after_another(&mut self, times: u64, input: &Bytes) -> Result<Times, Failure> {
        let (pool, input) = (self.pool.clone(), input.clone());
        let chain = Rc::new(Chain { pool, input, left: Cell::new(times), ended: RefCell::default() });
        chain.next();
        self.event_loop.run().map_err(broken)?;
        let ended = chain.ended.take();
        ended.into_iter().collect::<Result<Vec<Duration>, Failure>>().map(Times::of)
    }

    /// Runs one job, and reads its answer.
    ///
    /// # Errors
    /// As [`Rig::finish`].
    pub(super) fn ask<T: DeserializeOwned>(&mut self, task: &str, input: String) -> Result<T, Failure> {
        let answer = Rc::new(RefCell::new(None));
        let keep = Rc::clone(&answer);
        self.pool.submit(json_job(task, input), move |finished, _cx| {
            keep.replace(Some(finished));
        });
        self.event_loop.run().map_err(broken)?;
        let finished = answer.take().ok_or_else(|| Failure::Internal(format!("{task} has no end")))?;
        expect_ok(&finished)?;
        serde_json::from_slice(&finished.output)
            .map_err(|error| Failure::internal("a worker of the benchmark answers nonsense", error))
    }

    /// Finds in a worker how to compute for so many microseconds, and what that costs.
    ///
    /// # Errors
    /// As [`Rig::finish`].
    pub(super) fn calibrate(&mut self, microseconds: u64) -> Result<Exercise, Failure> {
        let rounds: u64 = self.ask("rounds", microseconds.to_string())?;
        let tries = burn::tries_for(microseconds);
        let nanoseconds: u64 = self.ask("cost", format!("[{rounds},{tries}]"))?;
        Ok(Exercise { rounds, cost: Duration::from_nanos(nanoseconds) })
    }
}

/// A job with a JSON input.
pub(super) fn json_job(task: &str, input: String) -> Job {
    Job::new(task).input(input).media_type(MediaType::JSON)
}

/// A computation, and what it costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exercise {
    /// Rounds of [`burn::spin`].
    pub(super) rounds: u64,
    /// The time that they take if nothing disturbs them.
    pub(super) cost: Duration,
}

impl Exercise {
    /// A job that does it.
    pub(super) fn job(self) -> Job {
        json_job("burn", self.rounds.to_string())
    }
}

/// A failure unless the outcome is `ok`.
///
/// # Errors
/// The outcome as a failure.
pub(super) fn expect_ok(finished: &Finished) -> Result<(), Failure> {
    match finished.report.outcome {
        OutcomeCode::Ok => Ok(()),
        outcome => Err(Failure::outcome(outcome, render::message(&finished.report))),
    }
}

/// Jobs that were submitted together.
pub(super) struct Batch {
    start: Instant,
    end: Cell<Instant>,
    left: Cell<u64>,
    check: Check,
    failure: RefCell<Option<Failure>>,
}

impl Batch {
    fn new(jobs: u64, check: Check) -> Rc<Batch> {
        let start = Instant::now();
        Rc::new(Batch {
            start,
            end: Cell::new(start),
            left: Cell::new(jobs),
            check,
            failure: RefCell::default(),
        })
    }

    fn note(&self, finished: &Finished, cx: &mut Context) {
        if let Err(failure) = self.look_at(finished) {
            self.failure.borrow_mut().get_or_insert(failure);
        }
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0 {
            self.end.set(Instant::now());
            // An interval would keep the loop going.
            cx.stop();
        }
    }

    fn look_at(&self, finished: &Finished) -> Result<(), Failure> {
        expect_ok(finished)?;
        match (self.check)(finished) {
            true => Ok(()),
            false => Err(Failure::Internal(format!("a wrong answer of {}", finished.report.task))),
        }
    }
}

/// Echoes that follow each other.
struct Chain {
    pool: ComputePool,
    input: Bytes,
    left: Cell<u64>,
    ended: RefCell<Vec<Result<Duration, Failure>>>,
}

impl Chain {
    /// Submits the next job, unless the one before it was the last or failed.
    fn next(self: &Rc<Chain>) {
        if self.left.get() == 0 {
            return;
        }
        self.left.set(self.left.get() - 1);
        let chain = Rc::clone(self);
        let job = Job::new("echo").input(self.input.clone());
        let start = Instant::now();
        self.pool.submit(job, move |finished, _cx| {
            let ended = chain.look_at(&finished, start.elapsed());
            let goes_on = ended.is_ok();
            chain.ended.borrow_mut().push(ended);
            if goes_on {
                chain.next();
            }
        });
    }

    /// The ends are enough: to compare megabytes would take longer than to send them.
    fn look_at(&self, finished: &Finished, took: Duration) -> Result<Duration, Failure> {
        expect_ok(finished)?;
        let (input, output) = (&self.input, &finished.output);
        let is_whole =
            input.len() == output.len() && input.first() == output.first() && input.last() == output.last();
        match is_whole {
            true => Ok(took),
            false => Err(Failure::Internal("an echo is not the input".to_owned())),
        }
    }
}
