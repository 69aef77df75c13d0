//! Executes a batch on an event loop: [`super::batch`] decides, and this module does what it says.
//!
//! ```text
//!              threads                        event loop                        workers
//!   stdin, files --- read, load --->  Batch <--- finished --- Target --- submit ---> ...
//!   stdout <---------- write ------     |
//!                                       `--- complete, failed, Ctrl-C ---> Target::shut_down ---> the loop stops
//! ```
//!
//! Ctrl-C stands for every signal that would end this process. A second Ctrl-C ends the process at once; its workers
//! see that their sockets are closed, and end too.
//!
//! If a write fails, the results that are not written yet are saved after the loop has stopped.
//!
//! The loop never waits for a terminal, a pipe or a disk: calls that may block run on a thread of the I/O pool.

use super::batch::{Batch, BatchLimits, BatchStep, BatchTally, NumberedResult};
use super::end_by;
use super::failure::Failure;
use super::input::{Input, Payload, Unreadable};
use super::progress::ProgressDisplay;
use super::sink::{Sink, Unwritten};
use super::source::{InputSource, TakenInputs};
use crate::limits::AS_LONG_AS_IT_TAKES;
use crate::limits::BATCH_IO_THREADS;
use offload_event_loop::io_pool::{IoPool, IoPoolConfig};
use offload_event_loop::{Context, EventLoop, Interest, LoopError, LoopHandle};
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::Finished;
use offload_supervisor::signals::EndingSignals;
use signal_hook::consts::SIGHUP;
use std::cell::{Cell, OnceCell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// If the supervisor has had no room for this long, and none of our jobs is running, a message tells the user.
const PAUSES_TOLD_AFTER: Duration = Duration::from_secs(2);

/// What to do with a finished job.
pub(crate) type JobDone = Box<dyn FnOnce(Finished, &mut Context)>;

/// Who runs the jobs.
pub(crate) trait Target {
    /// Runs a job; `done` is called later, on the loop, exactly once.
    fn submit(&self, payload: Payload, done: JobDone);
    /// Why no more jobs can run, if so. Jobs that were already submitted are still answered.
    fn is_lost(&self) -> Option<String> {
        None
    }

    /// Gives up all jobs that have not ended, then calls `done`.
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
    /// The destination of its results.
    pub(crate) sink: Sink,
    /// The display of its progress.
    pub(crate) progress: ProgressDisplay,
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
    runner.progress.close();
    match runner.end.borrow_mut().take() {
        Some(BatchEnd { failure: None, at }) => {
            let tally = runner.batch.borrow().tally();
            runner.sink.borrow_mut().iter_mut().for_each(Sink::finish);
            Ok(BatchResult { tally, took: at - started })
        }
        Some(BatchEnd { failure: Some(failure), .. }) => Err(runner.conclude(failure)),
        None => Err(Failure::Internal("the event loop ended before the work did".to_owned())),
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
    /// Absent while a thread writes to it.
    sink: RefCell<Option<Sink>>,
    target: Rc<dyn Target>,
    progress: ProgressDisplay,
    /// For how long the target has had no room for any of our jobs. None once the user has been told.
    without_room: Cell<Option<Duration>>,
    is_turning: Cell<bool>,
    /// The terminal was closed. Several signals report this, and they count as one.
    is_hung_up: Cell<bool>,
    /// The results of a write that failed.
    unwritten: RefCell<Vec<NumberedResult>>,
    /// Set when the batch is to end.
    end: RefCell<Option<BatchEnd>>,
}

struct BatchEnd {
    failure: Option<Failure>,
    at: Instant,
}

impl BatchRunner {
    fn start(cx: &mut Context, work: BatchWork, target: Rc<dyn Target>) -> Result<Rc<BatchRunner>, Failure> {
        let BatchWork { task, limits, source, sink, progress } = work;
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
            sink: RefCell::new(Some(sink)),
            target,
            progress,
            without_room: Cell::new(Some(Duration::ZERO)),
            is_turning: Cell::new(false),
            is_hung_up: Cell::new(false),
            unwritten: RefCell::new(Vec::new()),
            end: RefCell::new(None),
        });
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
        while self.end.borrow().is_none() {
            let step = self.batch.borrow_mut().next_step();
            let Some(step) = step else { break };
            self.perform(step);
        }
        self.is_turning.set(false);
        if self.batch.borrow().is_complete() {
            self.end(None);
        }
    }

    fn perform(self: &Rc<Self>, step: BatchStep) {
        match step {
            BatchStep::Read { most } => self.read(most),
            BatchStep::Load { index, input } => self.load(index, input),
            BatchStep::Submit { index, payload } => self.submit(index, payload),
            BatchStep::Write(results) => self.write(results),
            BatchStep::Pause { at_least, number, why } => self.pause(at_least, number, &why),
        }
    }

    fn read(self: &Rc<Self>, most: u64) {
        let source = self.source.borrow_mut().take();
        match source {
            Some(InputSource::List(mut list)) => {
                let inputs: Vec<_> =
                    list.by_ref().take(usize::try_from(most).unwrap_or(usize::MAX)).collect();
                let taken = TakenInputs { inputs, is_last: list.len() == 0 };
                self.on_read(InputSource::List(list), taken);
            }
            Some(InputSource::Lines(mut lines)) => self.on_thread(
                move || lines.take(most).map(|taken| (lines, taken)),
                |runner, read| match read {
                    Ok((lines, taken)) => runner.on_read(InputSource::Lines(lines), taken),
                    Err(error) => runner.end(Some(Failure::outcome(
                        OutcomeCode::IoError,
                        format!("cannot read the list: {error}"),
                    ))),
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

    fn load(self: &Rc<Self>, index: u64, input: Input) {
        let max = self.batch.borrow().payload_max();
        self.on_thread(
            move || input.load(max),
            move |runner, loaded: Result<Payload, Unreadable>| {
                runner.batch.borrow_mut().on_loaded(index, loaded);
            },
        );
    }

    fn submit(self: &Rc<Self>, index: u64, payload: Payload) {
        let runner = Rc::clone(self);
        let done = move |finished: Finished, _: &mut Context| {
            let is_given_up = runner.end.borrow().is_some();
            if is_given_up && finished.report.outcome == OutcomeCode::Cancelled {
                return;
            }
            runner.batch.borrow_mut().on_finished(index, finished);
            runner.show_progress();
            if runner.target.is_lost().is_some() {
                runner.batch.borrow_mut().stop_reading();
            }
            runner.turn();
        };
        self.target.submit(payload, Box::new(done));
    }

    fn write(self: &Rc<Self>, results: Vec<NumberedResult>) {
        let Some(mut sink) = self.sink.borrow_mut().take() else { return };
        self.on_thread(
            move || {
                let written = sink.write(results);
                (sink, written)
            },
            |runner, (sink, written)| {
                runner.sink.replace(Some(sink));
                match written {
                    Ok(()) => runner.batch.borrow_mut().on_written(),
                    Err(Unwritten { failure, left }) => {
                        runner.unwritten.replace(left);
                        runner.end(Some(failure));
                    }
                }
            },
        );
    }

    /// The failure to report, after everything that was possible has been done.
    fn conclude(&self, failure: Failure) -> Failure {
        if !matches!(failure, Failure::Unwritten(_) | Failure::ReaderGone) {
            return failure;
        }
        let mut left = self.unwritten.take();
        left.extend(self.batch.borrow_mut().take_results());
        match &mut *self.sink.borrow_mut() {
            Some(sink) => sink.save_what_is_left(Unwritten { failure, left }),
            None => failure,
        }
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
                Err(error) => runner.end(Some(Failure::internal("a thread failed", error))),
            }
            runner.turn();
        });
    }

    fn on_interrupt(self: &Rc<Self>, signal: i32) {
        let is_hangup = signal == SIGHUP;
        if self.end.borrow().is_some() {
            match is_hangup || self.is_hung_up.take() {
                true => return,
                false => end_by(signal),
            }
        }
        self.is_hung_up.set(is_hangup);
        self.progress.say("interrupted: what is not done is cancelled".to_owned());
        self.end(Some(Failure::Interrupted(signal)));
    }

    /// The first call decides how the batch has ended.
    fn end(&self, failure: Option<Failure>) {
        if self.end.borrow().is_some() {
            return;
        }
        self.end.replace(Some(BatchEnd { failure, at: Instant::now() }));
        self.target.shut_down(Box::new(|cx| cx.stop()));
    }
}
