//! `offload run --stream`: one job, whose output is written as it comes, in a pool that belongs to this process.
//!
//! ```text
//!   next part ---> written on a thread, because standard output may block ---> next part ---> ... the end
//!       '--- Ctrl-C, or a part that cannot be written: the job is cancelled, the workers end, and that is said
//! ```

use super::embedded::{job_of, new_event_loop, not_started};
use super::failure::{Failure, VerbResult};
use super::input::{Content, Input, Payload, wants_bytes};
use super::output::{has_room, say};
use super::render::refused;
use super::stream_output::StreamOutput;
use crate::limits::AS_LONG_AS_IT_TAKES;
use offload_event_loop::io_pool::{IoPool, IoPoolConfig};
use offload_event_loop::{EventLoop, Interest};
use offload_protocol::messages::SubmitOptions;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::signals::EndingSignals;
use offload_supervisor::{ComputePool, Finished, OutputStream, PoolConfig};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// How the stream ended: with its job, or early.
type Ended = Rc<RefCell<Option<Result<Finished, Failure>>>>;

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
    let ended = Ended::default();
    catch_signals(&event_loop, &ended)?;
    let pool = ComputePool::start(config, &event_loop).map_err(not_started)?;
    let threads = IoPoolConfig { threads: 1, deadline: AS_LONG_AS_IT_TAKES, ..IoPoolConfig::default() };
    let threads = IoPool::new(&event_loop, threads)
        .map_err(|error| Failure::internal("cannot start a thread", error))?;
    let (handle, end, workers) = (event_loop.handle(), Rc::clone(&ended), pool.clone());
    let written = Rc::new(Cell::new(Written::default()));
    let job = StreamedJob { task: task.to_owned(), options, max, output, written: Rc::clone(&written) };
    event_loop.spawn(async move {
        let result = job.run(&workers, &threads, payload).await;
        end.borrow_mut().get_or_insert(result);
        workers.shutdown(move |_| handle.stop());
    });
    event_loop.run().map_err(|error| Failure::internal("the event loop failed", error))?;
    // Its workers have ended, or end with it.
    drop(pool);
    let ended = ended.borrow_mut().take();
    let nothing = || Err(Failure::Internal("the event loop ended before the job did".to_owned()));
    match ended.unwrap_or_else(nothing) {
        Err(Failure::Interrupted(signal)) => Err(interrupted(task, written.get(), output, signal)),
        ended => output.end(&ended?),
    }
}

/// How much of the output has been written.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    bytes: u64,
}

/// Says that the job was cancelled, as `run` does without `--stream`. This must not wait for a reader that does not read, so
/// there is no line for the job if standard output is full.
fn interrupted(task: &str, written: Written, output: StreamOutput, signal: i32) -> Failure {
    let message = "interrupted, the job is cancelled".to_owned();
    let mut finished = refused(task, OutcomeCode::Cancelled, message);
    finished.report.receipt.output_bytes = written.bytes;
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
    written: Rc<Cell<Written>>,
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

    async fn write_all(&self, mut stream: OutputStream, threads: &IoPool) -> Result<Finished, Failure> {
        let output = self.output;
        while let Some(part) = stream.next().await {
            let Written { bytes } = self.written.get();
            let all = bytes + part.len() as u64;
            let written = threads.run(move || output.write(&part)).await;
            written.map_err(|error| Failure::internal("a thread failed", error))??;
            self.written.set(Written { bytes: all });
        }
        // There is no next part, so the job has ended.
        Ok(stream.collect().await)
    }
}

/// A signal ends the loop; the pool is dropped then, and its workers end.
fn catch_signals(event_loop: &EventLoop, ended: &Ended) -> Result<(), Failure> {
    let failed = |error| Failure::internal("cannot catch signals", error);
    let mut signals = EndingSignals::catch().map_err(failed)?;
    let readable = signals.descriptor().map_err(failed)?;
    let (handle, ended) = (event_loop.handle(), Rc::clone(ended));
    let on_readable = move |_: &mut offload_event_loop::Context, _| {
        for signal in signals.pending() {
            ended.borrow_mut().get_or_insert(Err(Failure::Interrupted(signal)));
            handle.stop();
        }
    };
    let watched = event_loop.handle().watch(readable, Interest::READ, on_readable);
    watched.map(|_| ()).map_err(|error| Failure::internal("cannot catch signals", error))
}
