//! Executes a batch on an event loop: [`super::batch`] decides, and this module does what it says.
//!
//! ```text
//!              threads                        event loop                        workers
//!   stdin, files --- read, load --->  Batch <--- finished --- Target --- submit ---> ...
//!   stdout <---------- write ------     |
//!                                       `--- complete, failed, Ctrl-C ---> Target::shut_down: every job ends
//!                                                                              ---> the last results are written
//!                                                                              ---> the loop stops
//! ```
//!
//! Ctrl-C stands for every signal that would end this process. What has ended by then is written like any other result,
//! and so are the jobs that are cancelled ([`super::batch`], *early end*). A second Ctrl-C ends the process at once; its
//! workers see that their sockets are closed, and end too.
//!
//! If a write fails, or after Ctrl-C takes longer than [`LAST_WRITE_TIMEOUT`](crate::limits::LAST_WRITE_TIMEOUT), the
//! results that are not written yet are saved in a file after the loop has stopped.
//!
//! The loop never waits for a terminal, a pipe or a disk: calls that may block run on a thread of the I/O pool.

mod ending;

use super::batch::{Batch, BatchLimits, BatchStep, BatchTally, Loaded, Notes, NumberedResult};
use super::failure::Failure;
use super::input::{Input, Payload, Unreadable};
use super::keeper::{DoneJobs, Keeper, OutputFolder, Verdict};
use super::progress::ProgressDisplay;
use super::sink::{Sink, Unwritten};
use super::source::{InputSource, TakenInputs};
use crate::limits::{AS_LONG_AS_IT_TAKES, BATCH_IO_THREADS};
use ending::{BatchEnd, EndReason};
use offload_event_loop::io_pool::{IoPool, IoPoolConfig};
use offload_event_loop::{Context, EventLoop, Interest, LoopError, LoopHandle};
use offload_protocol::nouns::MediaType;
use offload_supervisor::Finished;
use offload_supervisor::signals::EndingSignals;
use std::cell::{Cell, OnceCell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// If the supervisor has had no room for this long, and none of our jobs is running, a message tells the user.
const PAUSES_TOLD_AFTER: Duration = Duration::from_secs(2);

/// What to do with a finished job.
pub(crate) type JobDone = Box<dyn FnOnce(Finished, &mut Context)>;

/// What to do when no more jobs can run.
pub(crate) type WhenLost = Box<dyn FnOnce(&mut Context)>;

/// Who runs the jobs.
pub(crate) trait Target {
    /// Runs a job; `done` is called later, on the loop, exactly once.
    fn submit(&self, payload: Payload, done: JobDone);
    /// Whether a job may be submitted whose input is a file.
    fn takes_files(&self) -> bool {
        false
    }

    /// Calls this once no more jobs can run, if it comes to that, and before the jobs are answered that were already submitted.
    fn when_lost(&self, _: WhenLost) {}

    /// Cancels all jobs that have not ended, and calls `done` when each of them has been answered. A job whose end
    /// cannot be learned in time is answered with `indeterminate`.
    fn shut_down(&self, done: Box<dyn FnOnce(&mut Context)>);
}

/// A batch to be done.
pub(crate) struct BatchWork {
    /// The task of all its jobs.
    pub(crate) task: String,
    /// Its limits.
    pub(crate) limits: BatchLimits,
    /// The source of its inputs.
    pub(crate) source: InputSource,
    /// The media type of all its inputs, if one was stated.
    pub(crate) media_type: Option<MediaType>,
    /// What is kept on disk of its results.
    pub(crate) keeping: Keeping,
    /// The destination of its results.
    pub(crate) sink: Sink,
    /// The display of its progress.
    pub(crate) progress: ProgressDisplay,
}

/// What is kept on disk of the results of a batch, and what was kept before.
#[derive(Default)]
pub(crate) struct Keeping {
    /// Keeps the results, if something is to be kept.
    pub(crate) keeper: Option<Keeper>,
    /// The jobs that are done already, where there is a job log.
    pub(crate) done_jobs: Option<Arc<DoneJobs>>,
    /// The folder for the outputs.
    pub(crate) folder: Option<Arc<OutputFolder>>,
}

/// The result of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchResult {
    /// The results.
    pub(crate) tally: BatchTally,
    /// From the start to the last result written.
    pub(crate) took: Duration,
}

/// Runs the batch and returns when all results are written. Signals are caught before the target is made, because from
/// then on only this process can end what the target starts.
pub(crate) fn run_batch<T: Target + 'static>(
    event_loop: &mut EventLoop,
    work: BatchWork,
    make_target: impl FnOnce(&mut EventLoop) -> Result<Rc<T>, Failure>,
) -> Result<BatchResult, Failure> {
    let started = Instant::now();
    let interruptible = Rc::new(OnceCell::<Rc<BatchRunner>>::new());
    let interrupted = Rc::clone(&interruptible);
    let on_signal = move |signal| {
        interrupted.get().into_iter().for_each(|runner| runner.on_interrupt(signal));
    };
    watch_signals(event_loop, on_signal).map_err(|error| Failure::internal("cannot catch signals", error))?;
    let target = make_target(event_loop)?;
    let runner = BatchRunner::start(event_loop, work, target)?;
    let runner = interruptible.get_or_init(|| runner);
    event_loop.run().map_err(|error| Failure::internal("the event loop failed", error))?;
    let end = runner.end.borrow_mut().take();
    let Some(BatchEnd { reason, at }) = end else {
        return Err(Failure::Internal("the event loop ended before the work did".to_owned()));
    };
    match runner.conclude(reason) {
        None => Ok(BatchResult { tally: runner.batch.borrow().tally(), took: at - started }),
        Some(failure) => Err(failure),
    }
}

fn watch_signals(event_loop: &EventLoop, on_signal: impl Fn(i32) + 'static) -> Result<(), LoopError> {
    let mut signals = EndingSignals::catch()?;
    let readable = signals.descriptor()?;
    let on_readable = move |_: &mut Context, _| signals.pending().into_iter().for_each(&on_signal);
    event_loop.handle().watch(readable, Interest::READ, on_readable)?;
    Ok(())
}

struct BatchRunner {
    handle: LoopHandle,
    io_pool: IoPool,
    batch: RefCell<Batch>,
    /// Absent while a thread reads from it.
    source: RefCell<Option<InputSource>>,
    /// Absent while a thread keeps results with it, or if there is none.
    keeper: RefCell<Option<Keeper>>,
    done_jobs: Option<Arc<DoneJobs>>,
    folder: Option<Arc<OutputFolder>>,
    /// Absent while a thread writes to it.
    sink: RefCell<Option<Sink>>,
    media_type: Option<MediaType>,
    target: Rc<dyn Target>,
    progress: ProgressDisplay,
    /// For how long the target has had no room for any of our jobs. None once the user has been told.
    without_room: Cell<Option<Duration>>,
    is_turning: Cell<bool>,
    /// The terminal was closed. Several signals report this, and they count as one.
    is_hung_up: Cell<bool>,
    /// The results of the write under way, or of the last one.
    writing: RefCell<Arc<Vec<NumberedResult>>>,
    /// Does what the sink does while a thread has that.
    spare_sink: RefCell<Sink>,
    /// The results of a write that failed. After it there is no other.
    unwritten: RefCell<Option<Unwritten>>,
    /// A thread that writes is not waited for any more.
    is_stuck: Cell<bool>,
    /// Set when the batch is to end.
    end: RefCell<Option<BatchEnd>>,
    /// Whether every job has ended after that.
    is_shut_down: Cell<bool>,
}

impl BatchRunner {
    fn start(cx: &mut Context, work: BatchWork, target: Rc<dyn Target>) -> Result<Rc<BatchRunner>, Failure> {
        let BatchWork { task, limits, source, media_type, keeping, sink, progress } = work;
        let threads = IoPoolConfig {
            threads: BATCH_IO_THREADS,
            deadline: AS_LONG_AS_IT_TAKES,
            ..IoPoolConfig::default()
        };
        let runner = Rc::new(BatchRunner {
            handle: cx.handle(),
            io_pool: IoPool::new(cx, threads)
                .map_err(|error| Failure::internal("cannot start threads", error))?,
            batch: RefCell::new(Batch::new(&task, limits)),
            source: RefCell::new(Some(source)),
            keeper: RefCell::new(keeping.keeper),
            done_jobs: keeping.done_jobs,
            folder: keeping.folder,
            spare_sink: RefCell::new(sink.clone()),
            sink: RefCell::new(Some(sink)),
            media_type,
            target,
            progress,
            without_room: Cell::new(Some(Duration::ZERO)),
            is_turning: Cell::new(false),
            is_hung_up: Cell::new(false),
            writing: RefCell::default(),
            unwritten: RefCell::new(None),
            is_stuck: Cell::new(false),
            end: RefCell::new(None),
            is_shut_down: Cell::new(false),
        });
        let told = Rc::downgrade(&runner);
        runner.target.when_lost(Box::new(move |_| {
            if let Some(runner) = told.upgrade() {
                runner.batch.borrow_mut().on_lost();
                runner.turn();
            }
        }));
        let first = Rc::clone(&runner);
        cx.set_immediate(move |_| first.turn());
        Ok(runner)
    }

    /// Does all steps that can be done now. A step may finish at once and call this again; then the outer call
    /// continues.
    fn turn(self: &Rc<Self>) {
        if self.is_turning.replace(true) {
            return;
        }
        while let Some(step) = self.next_step() {
            self.perform(step);
        }
        self.is_turning.set(false);
        let is_complete = self.batch.borrow().is_complete();
        if is_complete {
            self.end(EndReason::Complete);
        }
        let is_given_up =
            self.unwritten.borrow().is_some() && (self.is_stuck.get() || self.batch.borrow().is_at_rest());
        if self.is_shut_down.get() && (is_complete || is_given_up) {
            self.handle.stop();
        }
    }

    fn next_step(&self) -> Option<BatchStep> {
        match &*self.unwritten.borrow() {
            None => self.batch.borrow_mut().next_step(),
            Some(_) => None,
        }
    }

    fn perform(self: &Rc<Self>, step: BatchStep) {
        match step {
            BatchStep::Read { most } => self.read(most),
            BatchStep::Load { index, input, notes } => self.load(index, input, notes),
            BatchStep::Submit { index, payload } => self.submit(index, payload),
            BatchStep::Rest { index, pause } => self.rest(index, pause),
            BatchStep::Halt { is_now } => self.halt(is_now),
            BatchStep::Keep(results) => self.keep(results),
            BatchStep::Write(results) => self.write(results),
            BatchStep::Pause { at_least, number, why } => self.pause(at_least, number, &why),
        }
    }

    fn read(self: &Rc<Self>, most: u64) {
        let source = self.source.borrow_mut().take();
        match source {
            Some(InputSource::Known(mut known)) => {
                let taken = known.take(most);
                self.on_read(InputSource::Known(known), taken);
            }
            Some(InputSource::Lines(mut lines)) => self.on_thread(
                move || lines.take(most).map(|taken| (lines, taken)),
                |runner, read| match read {
                    Ok((lines, taken)) => runner.on_read(InputSource::Lines(lines), taken),
                    Err(error) => runner.end(EndReason::Failed(Failure::Unreadable(format!(
                        "cannot read the list: {error}"
                    )))),
                },
            ),
            None => {}
        }
    }

    fn on_read(self: &Rc<Self>, source: InputSource, taken: TakenInputs) {
        let TakenInputs { inputs, is_last } = taken;
        self.source.replace(Some(source));
        self.batch.borrow_mut().on_read(inputs, is_last);
        self.show_progress();
    }

    fn show_progress(&self) {
        if self.end.borrow().is_none() {
            self.progress.show(self.batch.borrow().progress());
        }
    }

    fn load(self: &Rc<Self>, index: u64, input: Input, notes: Notes) {
        let (max, takes_files) = (self.batch.borrow().payload_max(), self.target.takes_files());
        let (done_jobs, folder) = (self.done_jobs.clone(), self.folder.clone());
        self.on_thread(
            move || {
                let admitted = folder.map_or(Ok(()), |folder| folder.admit(&notes));
                let payload =
                    admitted.and_then(|()| if takes_files { input.open(max) } else { input.load(max) });
                match done_jobs {
                    Some(done_jobs) => look_up(&done_jobs, index, payload, notes),
                    None => payload.map(Loaded::from),
                }
            },
            move |runner, loaded: Result<Loaded, Unreadable>| {
                runner.batch.borrow_mut().on_loaded(index, loaded);
                runner.show_progress();
            },
        );
    }

    fn submit(self: &Rc<Self>, index: u64, payload: Payload) {
        let runner = Rc::clone(self);
        let done = move |finished: Finished, _: &mut Context| {
            runner.batch.borrow_mut().on_finished(index, finished);
            runner.show_progress();
            runner.turn();
        };
        self.batch.borrow_mut().on_submitted(index, SystemTime::now());
        self.target.submit(payload.of_type(self.media_type.as_ref()), Box::new(done));
    }

    fn keep(self: &Rc<Self>, results: Vec<NumberedResult>) {
        let Some(mut keeper) = self.keeper.borrow_mut().take() else { return };
        self.on_thread(
            move || {
                let kept = keeper.keep(results);
                (keeper, kept)
            },
            |runner, (keeper, kept)| {
                runner.keeper.replace(Some(keeper));
                match kept {
                    Ok(kept) => runner.batch.borrow_mut().on_kept(kept),
                    Err(unwritten) => {
                        runner.batch.borrow_mut().on_kept(Vec::new());
                        runner.on_unwritten(unwritten);
                    }
                }
            },
        );
    }

    fn write(self: &Rc<Self>, results: Vec<NumberedResult>) {
        let Some(mut sink) = self.sink.borrow_mut().take() else { return };
        let results = Arc::new(results);
        self.writing.replace(Arc::clone(&results));
        self.on_thread(
            move || {
                let written = sink.write(&results);
                (sink, written)
            },
            |runner, (sink, written)| {
                runner.sink.replace(Some(sink));
                runner.batch.borrow_mut().on_written();
                if let Err(unwritten) = written {
                    runner.on_unwritten(unwritten);
                }
            },
        );
    }

    fn pause(self: &Rc<Self>, at_least: Duration, number: u64, why: &str) {
        // Clients that were rejected together must not all retry at the same moment.
        let by_chance = at_least / 256 * (RandomState::new().hash_one(number) % 64) as u32;
        self.tell_of_pauses(at_least + by_chance, why);
        let runner = Rc::clone(self);
        self.handle.set_timeout(at_least + by_chance, move |_| {
            runner.batch.borrow_mut().on_resumed(number);
            runner.turn();
        });
    }

    fn rest(self: &Rc<Self>, index: u64, pause: Duration) {
        let runner = Rc::clone(self);
        self.handle.set_timeout(pause, move |_| {
            runner.batch.borrow_mut().on_rested(index);
            runner.turn();
        });
    }

    /// Tells the user once why nothing happens.
    fn tell_of_pauses(&self, pause: Duration, why: &str) {
        if self.batch.borrow().has_running() {
            return self.without_room.set(self.without_room.get().map(|_| Duration::ZERO));
        }
        let Some(so_far) = self.without_room.get() else { return };
        if so_far >= PAUSES_TOLD_AFTER {
            self.progress.say(format!("waiting for room: {why} (Ctrl-C gives up)"));
        }
        self.without_room.set((so_far < PAUSES_TOLD_AFTER).then_some(so_far + pause));
    }

    /// Runs `task` on a thread, then `settle` with its result on the loop, then takes a turn.
    fn on_thread<T: Send + 'static>(
        self: &Rc<Self>,
        task: impl FnOnce() -> T + Send + 'static,
        settle: impl FnOnce(&Rc<BatchRunner>, T) + 'static,
    ) {
        let runner = Rc::clone(self);
        self.io_pool.submit(task, move |_, result| {
            match result {
                Ok(value) => settle(&runner, value),
                Err(error) => runner.on_thread_failure(Failure::internal("a thread failed", error)),
            }
            runner.turn();
        });
    }
}

/// Whether the job of this input is to be run, as the job log says. Also an input that cannot be read may be one to leave out.
fn look_up(
    done_jobs: &DoneJobs,
    index: u64,
    payload: Result<Payload, Unreadable>,
    notes: Notes,
) -> Result<Loaded, Unreadable> {
    let read = payload.and_then(|payload| payload.digest().map(|digest| (payload, digest)));
    let input_digest = read.as_ref().ok().map(|(_, digest)| digest.clone());
    match done_jobs.verdict(index, &Notes { input_digest, ..notes }) {
        Verdict::Run => read.map(|(payload, digest)| Loaded::Job { payload, digest: Some(digest) }),
        Verdict::Done(printed) => Ok(Loaded::Done(printed)),
        Verdict::LeftOut => Ok(Loaded::LeftOut),
    }
}
