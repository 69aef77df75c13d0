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

use super::batch::{Batch, Limits, Numbered, Step, Tally};
use super::end_by;
use super::failure::Failure;
use super::input::{Input, Payload, Unreadable};
use super::progress::Progress;
use super::sink::{Sink, Unwritten};
use super::source::{Source, Taken};
use crate::limits::{AS_LONG_AS_IT_TAKES, BATCH_IO_THREADS};
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
pub(crate) struct Work {
    /// The task of all its jobs.
    pub(crate) task: String,
    /// Its limits.
    pub(crate) limits: Limits,
    /// The source of its inputs.
    pub(crate) source: Source,
    /// The destination of its results.
    pub(crate) sink: Sink,
    /// The display of its progress.
    pub(crate) progress: Progress,
}

/// The result of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// The results.
    pub(crate) tally: Tally,
    /// From the start to the last result written.
    pub(crate) took: Duration,
}

/// Runs the batch and returns when all results are written. Signals are caught before the target is made, because from
/// then on only this process can end what the target starts.
pub(crate) fn convey<T: Target + 'static>(
    event_loop: &mut EventLoop,
    work: Work,
    make_target: impl FnOnce(&mut EventLoop) -> Result<Rc<T>, Failure>,
) -> Result<Done, Failure> {
    let started = Instant::now();
    let interruptible = Rc::new(OnceCell::<Rc<Conveyor>>::new());
    let interrupted = Rc::clone(&interruptible);
    let on_signal = move |signal| {
        interrupted.get().into_iter().for_each(|conveyor| conveyor.on_interrupt(signal));
    };
    watch_signals(event_loop, on_signal).map_err(|error| Failure::internal("cannot catch signals", error))?;
    let target = make_target(event_loop)?;
    let conveyor = Conveyor::start(event_loop, work, target)?;
    let conveyor = interruptible.get_or_init(|| conveyor);
    event_loop.run().map_err(|error| Failure::internal("the event loop failed", error))?;
    conveyor.progress.close();
    match conveyor.end.borrow_mut().take() {
        Some(End { failure: None, at }) => {
            let tally = conveyor.batch.borrow().tally();
            conveyor.sink.borrow_mut().iter_mut().for_each(Sink::finish);
            Ok(Done { tally, took: at - started })
        }
        Some(End { failure: Some(failure), .. }) => Err(conveyor.conclude(failure)),
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

struct Conveyor {
    handle: LoopHandle,
    io_pool: IoPool,
    batch: RefCell<Batch>,
    /// Absent while a thread reads from it.
    source: RefCell<Option<Source>>,
    /// Absent while a thread writes to it.
    sink: RefCell<Option<Sink>>,
    target: Rc<dyn Target>,
    progress: Progress,
    /// For how long the target has had no room for any of our jobs. None once the user has been told.
    without_room: Cell<Option<Duration>>,
    is_turning: Cell<bool>,
    /// The terminal was closed. Several signals report this, and they count as one.
    is_hung_up: Cell<bool>,
    /// The results of a write that failed.
    unwritten: RefCell<Vec<Numbered>>,
    /// Set when the batch is to end.
    end: RefCell<Option<End>>,
}

struct End {
    failure: Option<Failure>,
    at: Instant,
}

impl Conveyor {
    fn start(cx: &mut Context, work: Work, target: Rc<dyn Target>) -> Result<Rc<Conveyor>, Failure> {
        let Work { task, limits, source, sink, progress } = work;
        let threads = IoPoolConfig {
            threads: BATCH_IO_THREADS,
            deadline: AS_LONG_AS_IT_TAKES,
            ..IoPoolConfig::default()
        };
        let conveyor = Rc::new(Conveyor {
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
        let first = Rc::clone(&conveyor);
        cx.set_immediate(move |_| first.turn());
        Ok(conveyor)
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

    fn perform(self: &Rc<Self>, step: Step) {
        match step {
            Step::Read { most } => self.read(most),
            Step::Load { index, input } => self.load(index, input),
            Step::Submit { index, payload } => self.submit(index, payload),
            Step::Write(results) => self.write(results),
            Step::Pause { at_least, number, why } => self.pause(at_least, number, &why),
        }
    }

    fn read(self: &Rc<Self>, most: u64) {
        let source = self.source.borrow_mut().take();
        match source {
            Some(Source::List(mut list)) => {
                let inputs: Vec<_> =
                    list.by_ref().take(usize::try_from(most).unwrap_or(usize::MAX)).collect();
                let taken = Taken { inputs, is_last: list.len() == 0 };
                self.on_read(Source::List(list), taken);
            }
            Some(Source::Lines(mut lines)) => self.on_thread(
                move || lines.take(most).map(|taken| (lines, taken)),
                |conveyor, read| match read {
                    Ok((lines, taken)) => conveyor.on_read(Source::Lines(lines), taken),
                    Err(error) => conveyor.end(Some(Failure::outcome(
                        OutcomeCode::IoError,
                        format!("cannot read the list: {error}"),
                    ))),
                },
            ),
            None => {}
        }
    }

    fn on_read(self: &Rc<Self>, source: Source, taken: Taken) {
        let Taken { inputs, is_last } = taken;
        self.source.replace(Some(source));
        self.batch.borrow_mut().on_read(inputs, is_last);
        self.show_progress();
    }

    fn show_progress(&self) {
        if self.end.borrow().is_none() {
            self.progress.show(self.batch.borrow().standing());
        }
    }

    fn load(self: &Rc<Self>, index: u64, input: Input) {
        let max = self.batch.borrow().payload_max();
        self.on_thread(
            move || input.load(max),
            move |conveyor, loaded: Result<Payload, Unreadable>| {
                conveyor.batch.borrow_mut().on_loaded(index, loaded);
            },
        );
    }

    fn submit(self: &Rc<Self>, index: u64, payload: Payload) {
        let conveyor = Rc::clone(self);
        let done = move |finished: Finished, _: &mut Context| {
            let is_given_up = conveyor.end.borrow().is_some();
            if is_given_up && finished.report.outcome == OutcomeCode::Cancelled {
                return;
            }
            conveyor.batch.borrow_mut().on_finished(index, finished);
            conveyor.show_progress();
            if conveyor.target.is_lost().is_some() {
                conveyor.batch.borrow_mut().stop_reading();
            }
            conveyor.turn();
        };
        self.target.submit(payload, Box::new(done));
    }

    fn write(self: &Rc<Self>, results: Vec<Numbered>) {
        let Some(mut sink) = self.sink.borrow_mut().take() else { return };
        self.on_thread(
            move || {
                let written = sink.write(results);
                (sink, written)
            },
            |conveyor, (sink, written)| {
                conveyor.sink.replace(Some(sink));
                match written {
                    Ok(()) => conveyor.batch.borrow_mut().on_written(),
                    Err(Unwritten { failure, left }) => {
                        conveyor.unwritten.replace(left);
                        conveyor.end(Some(failure));
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
        let conveyor = Rc::clone(self);
        self.handle.set_timeout(at_least + by_chance, move |_| {
            conveyor.batch.borrow_mut().on_resumed(number);
            conveyor.turn();
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
        settle: impl FnOnce(&Rc<Conveyor>, T) + 'static,
    ) {
        let conveyor = Rc::clone(self);
        self.io_pool.submit(task, move |_, result| {
            match result {
                Ok(value) => settle(&conveyor, value),
                Err(error) => conveyor.end(Some(Failure::internal("a thread failed", error))),
            }
            conveyor.turn();
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
        self.end.replace(Some(End { failure, at: Instant::now() }));
        self.target.shut_down(Box::new(|cx| cx.stop()));
    }
}
