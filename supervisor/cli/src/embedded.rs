//! Runs the jobs of a batch in a pool of workers that belongs to this process. `run` always does this, and `map` unless
//! a socket is named.

use super::batch_runner::{BatchResult, BatchWork, JobDone, Target, run_batch};
use super::exec::EXEC;
use super::failure::Failure;
use super::http_worker::ADAPTER as HTTP_ADAPTER;
use super::input::{Content, Payload};
use super::jsonl_worker::ADAPTER as JSONL_ADAPTER;
use super::output::say;
use super::render::refused;
use super::text;
use crate::configuration::table::BUILTIN;
use offload_event_loop::{Context, EventLoop, LoopHandle};
use offload_protocol::messages::SubmitOptions;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::workers::sweep::become_subreaper;
use offload_supervisor::{ComputePool, Finished, Job, PoolConfig, Program, StartError};
use std::fmt::Write;
use std::rc::Rc;
use std::time::Duration;

/// What became of a batch, and what it took.
pub(crate) struct Summary {
    /// The batch.
    pub(crate) done: BatchResult,
    /// The workers, if they belonged to this process.
    pub(crate) workers: Option<UsedWorkers>,
}

/// The workers that were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsedWorkers {
    /// How many.
    pub(crate) count: usize,
    /// The CPU time of them all; zero if it was too short to be measured.
    pub(crate) cpu_time: Duration,
}

/// Does the work with a pool that lives as long as it takes.
pub(crate) fn work(config: PoolConfig, options: SubmitOptions, work: BatchWork) -> Result<Summary, Failure> {
    let mut event_loop = new_event_loop()?;
    let task = work.task.clone();
    let advice = advice_for(&config.programs);
    let mut used = None;
    let done = run_batch(&mut event_loop, work, |event_loop| {
        let pool = ComputePool::start(config, event_loop).map_err(not_started)?;
        let pool = used.insert(pool).clone();
        Ok(Rc::new(PoolTarget { pool, handle: event_loop.handle(), advice, task, options }))
    })?;
    let workers = used.map(|pool| UsedWorkers { count: pool.worker_count(), cpu_time: pool.cpu_time() });
    Ok(Summary { done, workers })
}

/// Makes an event loop; a failure is an internal error.
pub(crate) fn new_event_loop() -> Result<EventLoop, Failure> {
    EventLoop::new().map_err(|error| Failure::internal("cannot make an event loop", error))
}

/// The failure of a verb whose pool did not start.
pub(crate) fn not_started(error: StartError) -> Failure {
    match error {
        StartError::Config(sentence) | StartError::IsWorker(sentence) => Failure::Usage(sentence),
        other => Failure::internal("cannot start", other),
    }
}

impl Summary {
    /// Prints the summary in one line on standard error.
    pub(crate) fn say(&self) {
        say(&self.line());
    }

    /// Only measured figures are printed. The speed-up compares with the same tasks one after another, without
    /// overhead.
    fn line(&self) -> String {
        let BatchResult { tally, took, .. } = self.done;
        let all = tally.ok + tally.failed;
        let seconds = took.as_secs_f64();
        let mut line = match tally.failed {
            0 => format!("{} ok in {seconds:.3} s", text::count(all, "job")),
            failed => {
                format!("{} of {} ok, {failed} failed, in {seconds:.3} s", tally.ok, text::count(all, "job"))
            }
        };
        if let Some(UsedWorkers { count, cpu_time }) = self.workers {
            let _ = write!(line, " on {}", text::count(count as u64, "worker"));
            if !cpu_time.is_zero() && !took.is_zero() {
                let one_after_another = Duration::from_micros(tally.run_us).as_secs_f64();
                let cpu_seconds = cpu_time.as_secs_f64();
                let _ = write!(line, ", CPU {cpu_seconds:.3} s, speed-up {:.1}", one_after_another / seconds);
            }
        }
        line
    }
}

/// Makes this process the parent of all processes that escape from its workers. It has no other children. True if that
/// worked.
pub(crate) fn become_sweeper() -> bool {
    become_subreaper().is_ok()
}

/// Which kind of program each flag takes.
pub(crate) const WHICH_FLAG: &str = "; --worker takes a program that speaks the protocol of workers, such as examples/worker.py; for one that \
    reads standard input and prints its result there is --exec, for one with JSON Lines --worker-jsonl, and \
    for an HTTP application --worker-http";

/// What a program for JSON Lines has to do.
pub(crate) const HOW_JSONL: &str = "; a program for --worker-jsonl writes a line such as {\"hello\":{\"tasks\":[{\"name\":\"t\"}]}} to \
    descriptor 4 first, flushes that, and then reads its jobs from descriptor 3 until that ends, as those in examples/jsonl do";

/// What an HTTP application has to do.
pub(crate) const HOW_HTTP: &str = "; an application for --worker-http listens at the {socket} or {port} of its command, answers HTTP there within \
    the time for its start, and goes on until SIGTERM, as those in examples/http do";

/// What the user's programs have to do, if there are any.
pub(crate) fn advice_for(programs: &[Program]) -> Option<&'static str> {
    let mut own = programs.iter().filter(|program| ![BUILTIN, EXEC].contains(&program.name())).map(advice);
    let first = own.next()?;
    Some(if own.all(|other| other == first) { first } else { WHICH_FLAG })
}

fn advice(program: &Program) -> &'static str {
    match program.shim().get(1).map(String::as_str) {
        Some(word) if word == JSONL_ADAPTER[1] => HOW_JSONL,
        Some(word) if word == HTTP_ADAPTER => HOW_HTTP,
        _ => WHICH_FLAG,
    }
}

/// If no worker of the user's program could be started, the message says what such a program has to do.
pub(crate) fn explained(mut finished: Finished, advice: Option<&str>) -> Finished {
    if let Some(error) = &mut finished.report.error
        && error.code == OutcomeCode::Unavailable
        && let Some(advice) = advice
    {
        error.message.push_str(advice);
    }
    finished
}

/// The job with this input. The file of an input stays open here too, until the job has ended.
///
/// # Errors
/// The end of a job whose file cannot be passed on: its bytes can be.
pub(crate) fn job_of(task: &str, payload: Payload, options: SubmitOptions) -> Result<Job, Box<Finished>> {
    let job = Job::new(task).media_type(payload.media_type).options(options);
    match payload.content {
        Content::Bytes(bytes) => Ok(job.input(bytes)),
        Content::File(file) => {
            let job = file.file.try_clone().and_then(|file| job.file(file));
            job.map_err(|error| Box::new(refused(task, OutcomeCode::Unsupported, error.to_string())))
        }
    }
}

struct PoolTarget {
    pool: ComputePool,
    handle: LoopHandle,
    /// What a program has to do that is not the built-in one.
    advice: Option<&'static str>,
    task: String,
    options: SubmitOptions,
}

impl Target for PoolTarget {
    fn submit(&self, payload: Payload, done: JobDone) {
        let advice = self.advice;
        match job_of(&self.task, payload, self.options.clone()) {
            Ok(job) => self.pool.submit(job, move |finished, cx| done(explained(finished, advice), cx)),
            Err(finished) => {
                self.handle.set_immediate(move |cx| done(*finished, cx));
            }
        }
    }

    fn takes_files(&self) -> bool {
        true
    }

    fn shut_down(&self, done: Box<dyn FnOnce(&mut Context)>) {
        self.pool.shutdown(done);
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::BatchTally;
    use super::*;

    fn line(ok: u64, failed: u64, workers: Option<UsedWorkers>) -> String {
        let tally = BatchTally { ok, failed, first_failure: None, run_us: 20_400 };
        let done = BatchResult { tally, took: Duration::from_millis(12) };
        Summary { done, workers }.line()
    }

    #[test]
    fn the_summary_tells_what_was_measured_and_no_more() {
        let busy = UsedWorkers { count: 2, cpu_time: Duration::from_millis(20) };
        let idle = UsedWorkers { count: 1, cpu_time: Duration::ZERO };
        assert_eq!(line(3, 0, Some(busy)), "3 jobs ok in 0.012 s on 2 workers, CPU 0.020 s, speed-up 1.7");
        assert_eq!(line(1, 0, Some(idle)), "1 job ok in 0.012 s on 1 worker");
        assert_eq!(line(2, 1, None), "2 of 3 jobs ok, 1 failed, in 0.012 s");
    }
}
