//! `offload run --stream`: one job, whose output is written as it comes, in a pool that belongs to this process.
//!
//! ```text
//!   next part ---> written on a thread, because standard output may block ---> next part ---> ... the end
//!       |--- a part that cannot be written: the job is cancelled, the workers end, and that is said
//!       '--- Ctrl-C: the job is cancelled, and nothing more is written but how it ended. Standard output may be full, so nobody waits
//!            for the part that is being written; and after another Ctrl-C not for the end of the job either
//! ```

use super::embedded::{job_of, new_event_loop, not_started};
use super::failure::{Failure, VerbResult};
use super::input::{Content, Input, Payload, wants_bytes};
use super::output::{has_room, say};
use super::render::refused;
use super::stream_output::StreamOutput;
use crate::limits::{AS_LONG_AS_IT_TAKES, CANCELLED_JOB_MAX};
use bytes::Bytes;
use offload_event_loop::io_pool::{IoPool, IoPoolConfig};
use offload_event_loop::{EventLoop, Interest, LoopHandle};
use offload_protocol::messages::SubmitOptions;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::signals::EndingSignals;
use offload_supervisor::{ComputePool, Finished, OutputStream, PoolConfig};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The job, as far as it has come.
#[derive(Default)]
struct UnderWay {
    stream: RefCell<Option<OutputStream>>,
    /// How many bytes of its output are written.
    written: Cell<u64>,
    /// This signal ends it.
    interrupted: Cell<Option<i32>>,
    ended: RefCell<Option<Result<Finished, Failure>>>,
}

impl UnderWay {
    fn poll_part(&self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.stream.borrow_mut().as_mut().map_or(Poll::Ready(None), |stream| stream.poll_next(cx))
    }

    /// Not for a job that a signal ends: then the other one who reads is to be woken.
    async fn next_part_to_write(&self) -> Option<Bytes> {
        poll_fn(|cx| if self.interrupted.get().is_some() { Poll::Pending } else { self.poll_part(cx) }).await
    }

    fn end(&self) -> Option<Finished> {
        self.stream.borrow().as_ref().and_then(OutputStream::finished).cloned()
    }
}

/// Runs the job and writes its output.
pub(crate) fn run(
    config: PoolConfig,
    task: &str,
    input: Input,
    options: SubmitOptions,
    output: StreamOutput,
) -> VerbResult {
    let max = config.core.max_payload;
    let payload = match input.open(max) {
        Ok(payload) => payload,
        Err(error) => return output.end(&refused(task, error.code, error.message)),
    };
    let mut event_loop = new_event_loop()?;
    let job = Rc::<UnderWay>::default();
    catch_signals(&event_loop, &job)?;
    let pool = ComputePool::start(config, &event_loop).map_err(not_started)?;
    let threads = IoPoolConfig { threads: 1, deadline: AS_LONG_AS_IT_TAKES, ..IoPoolConfig::default() };
    let threads = IoPool::new(&event_loop, threads)
        .map_err(|error| Failure::internal("cannot start a thread", error))?;
    let (handle, workers) = (event_loop.handle(), pool.clone());
    let streamed = StreamedJob { task: task.to_owned(), options, max, output, job: Rc::clone(&job) };
    event_loop.spawn(async move {
        let result = streamed.run(&workers, &threads, payload).await;
        streamed.job.ended.replace(Some(result));
        workers.shutdown(move |_| handle.stop());
    });
    event_loop.run().map_err(|error| Failure::internal("the event loop failed", error))?;
    let cancelled = job.stream.take().and_then(|stream| stream.finished().cloned());
    // Its workers have ended, or end with it.
    drop(pool);
    if let Some(signal) = job.interrupted.get() {
        return Err(interrupted(task, cancelled, job.written.get(), output, signal));
    }
    let nothing = || Err(Failure::Internal("the event loop ended before the job did".to_owned()));
    output.end(&job.ended.take().unwrap_or_else(nothing)?)
}

/// Says that the job was cancelled, as `run` does without `--stream`. This must not wait for a reader that does not read, so
/// there is no line for the job if standard output is full.
fn interrupted(
    task: &str,
    cancelled: Option<Finished>,
    written: u64,
    output: StreamOutput,
    signal: i32,
) -> Failure {
    let said = refused(task, OutcomeCode::Cancelled, "interrupted, the job is cancelled".to_owned()).report;
    let mut finished = cancelled.unwrap_or_else(|| Finished { report: said.clone(), output: Bytes::new() });
    // It may have ended in another way just before, but not all of its output was written.
    (finished.report.outcome, finished.report.error) = (said.outcome, said.error);
    finished.report.receipt.output_bytes = written;
    finished.output = Bytes::new();
    say(&output.failure(&finished.report));
    // A thread that still writes a part is not stuck then, and comes first.
    if has_room() {
        // The signal is what the caller is to learn.
        let _ = output.end_line(&finished);
    }
    Failure::Interrupted(signal)
}

/// A job whose output is written as it comes.
struct StreamedJob {
    task: String,
    options: SubmitOptions,
    /// Longest input, in bytes.
    max: u64,
    output: StreamOutput,
    job: Rc<UnderWay>,
}

impl StreamedJob {
    /// If the workers do not take a file as the input, the job is run with the bytes of it.
    async fn run(&self, pool: &ComputePool, threads: &IoPool, payload: Payload) -> Result<Finished, Failure> {
        let Payload { content, media_type } = payload.clone();
        let finished = self.run_with(pool, threads, payload).await?;
        let Content::File(file) = &content else { return Ok(finished) };
        if !wants_bytes(&finished.report, &content) {
            return Ok(finished);
        }
        let (file, max) = (Arc::clone(file), self.max);
        let loaded = threads.run(move || file.load(max)).await;
        match loaded.map_err(|error| Failure::internal("a thread failed", error))? {
            Ok(loaded) => self.run_with(pool, threads, Payload { media_type, ..loaded }).await,
            Err(error) => Ok(refused(&self.task, error.code, error.message)),
        }
    }

    async fn run_with(
        &self,
        pool: &ComputePool,
        threads: &IoPool,
        payload: Payload,
    ) -> Result<Finished, Failure> {
        match job_of(&self.task, payload, self.options.clone()) {
            Ok(job) => self.write_all(pool.stream(job), threads).await,
            Err(finished) => Ok(*finished),
        }
    }

    async fn write_all(&self, stream: OutputStream, threads: &IoPool) -> Result<Finished, Failure> {
        let (output, job) = (self.output, &self.job);
        *job.stream.borrow_mut() = Some(stream);
        while let Some(part) = job.next_part_to_write().await {
            let all = job.written.get() + part.len() as u64;
            let written = threads.run(move || output.write(&part)).await;
            written.map_err(|error| Failure::internal("a thread failed", error))??;
            job.written.set(all);
        }
        job.end().ok_or_else(|| Failure::Internal("the stream ended before its job".to_owned()))
    }
}

/// After the first signal the job is cancelled and its end is waited for, in which time no part is written; after the second one the
/// loop ends at once. Then the pool is dropped, and its workers end.
fn catch_signals(event_loop: &EventLoop, job: &Rc<UnderWay>) -> Result<(), Failure> {
    let failed = |error| Failure::internal("cannot catch signals", error);
    let mut signals = EndingSignals::catch().map_err(failed)?;
    let readable = signals.descriptor().map_err(failed)?;
    let (handle, job) = (event_loop.handle(), Rc::clone(job));
    let on_readable = move |_: &mut offload_event_loop::Context, _| {
        for signal in signals.pending() {
            let has_ended = job.ended.borrow().is_some();
            if has_ended || job.interrupted.get().is_some() {
                return handle.stop();
            }
            job.interrupted.set(Some(signal));
            stop_after_the_end(&handle, &job);
        }
    };
    let watched = event_loop.handle().watch(readable, Interest::READ, on_readable);
    watched.map(|_| ()).map_err(|error| Failure::internal("cannot catch signals", error))
}

fn stop_after_the_end(handle: &LoopHandle, job: &Rc<UnderWay>) {
    job.stream.borrow().iter().for_each(OutputStream::cancel);
    let (stop, job) = (handle.clone(), Rc::clone(job));
    handle.spawn(async move {
        while poll_fn(|cx| job.poll_part(cx)).await.is_some() {}
        stop.stop();
    });
    let stop = handle.clone();
    handle.set_timeout(CANCELLED_JOB_MAX, move |_| stop.stop());
}
