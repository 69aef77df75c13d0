//! Runs one job after another until the time is up. Each answer is checked, because a fast wrong strategy is useless.
//!
//! ```text
//!   going --end()--> over
//!     |  |             ^
//!     |  '--end(), and too few jobs are done--> late --enough of them are--'
//!     '--a wrong answer, a failed job--> failed
//! ```
//!
//! Answers that arrive after that do not count: these jobs ended outside of the measured time.

use super::super::failure::Failure;
use super::super::render;
use super::workload::Workload;
use bytes::Bytes;
use offload_protocol::nouns::{OutcomeCode, Receipt};
use offload_supervisor::{Context, Finished};
use offload_worker::TaskError;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// A workload with the answers to it.
pub(super) struct Exercise<W: Workload> {
    /// The workload.
    pub(super) workload: Arc<W>,
    /// One for each of its inputs.
    answers: Vec<W::Answer>,
    /// What a worker gives for each of them.
    outputs: Vec<Bytes>,
    /// Whether another answer is a mistake. Nobody knows that of somebody's own work, so there it is counted.
    is_strict: bool,
}

impl<W: Workload> Exercise<W> {
    /// Computes the answer, to a workload with one input.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn new(workload: W) -> Result<Exercise<W>, Failure> {
        let answer =
            workload.in_one_go().map_err(|error| Failure::internal("the workload has no answer", error))?;
        let outputs = vec![W::output(&answer)];
        Ok(Exercise { workload: Arc::new(workload), answers: vec![answer], outputs, is_strict: true })
    }

    /// With answers that were seen before, one for each input. Others are no mistakes, but counted.
    pub(super) fn with_answers(workload: W, answers: Vec<W::Answer>) -> Exercise<W> {
        let outputs = answers.iter().map(W::output).collect();
        Exercise { workload: Arc::new(workload), answers, outputs, is_strict: false }
    }

    /// The output that is expected for the first input.
    pub(super) fn output(&self) -> &Bytes {
        &self.outputs[0]
    }
}

/// What went to workers and back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// Bytes of inputs and outputs.
    pub(super) bytes: u64,
    /// Microseconds in which the workers computed.
    pub(super) run_us: u64,
    /// Microseconds from the submission of each job to its answer.
    pub(super) all_us: u64,
}

/// The work that was done in the measured time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WorkDone {
    /// Jobs that ended with the right answer, or with one that may be right.
    pub(super) jobs: u64,
    /// Those of them with another answer than that which was seen first.
    pub(super) differing: u64,
    /// What of them went to another process and back.
    pub(super) sent: Sent,
    /// When the last of them ended.
    pub(super) last_end: Option<Instant>,
}

/// The jobs of one strategy.
pub(super) struct StrategyJobs<W: Workload> {
    exercise: Rc<Exercise<W>>,
    started: Cell<usize>,
    state: RefCell<JobsState>,
}

enum JobsState {
    Going(WorkDone),
    /// The time is up, and it goes on until so many jobs are done: a rate needs some.
    Late(WorkDone, u64),
    Over(WorkDone),
    Failed(Failure),
}

impl<W: Workload> StrategyJobs<W> {
    /// None is done yet.
    pub(super) fn new(exercise: &Rc<Exercise<W>>) -> Rc<StrategyJobs<W>> {
        let state = RefCell::new(JobsState::Going(WorkDone::default()));
        Rc::new(StrategyJobs { exercise: Rc::clone(exercise), started: Cell::new(0), state })
    }

    /// What each of them is to do.
    pub(super) fn workload(&self) -> &W {
        &self.exercise.workload
    }

    /// The same, for another thread.
    pub(super) fn shared_workload(&self) -> Arc<W> {
        Arc::clone(&self.exercise.workload)
    }

    /// The number of the input of the next job.
    pub(super) fn next_input(&self) -> usize {
        let started = self.started.get();
        self.started.set(started.wrapping_add(1));
        started % self.exercise.answers.len()
    }

    /// Whether another one is to be started.
    pub(super) fn are_going_on(&self) -> bool {
        matches!(*self.state.borrow(), JobsState::Going(_) | JobsState::Late(..))
    }

    /// A job was done on the loop.
    pub(super) fn on_answer(&self, answer: Result<W::Answer, TaskError>, cx: &mut Context) {
        match answer {
            Ok(answer) if answer == self.exercise.answers[0] => self.count(true, Sent::default(), cx),
            Ok(_) => self.fail(wrong(self.workload().task()), cx),
            Err(error) => self.fail(Failure::internal(self.workload().task(), error), cx),
        }
    }

    /// A job was done wherever a policy has put it; so many bytes went to a worker and back.
    pub(super) fn on_output(&self, output: Result<Bytes, String>, bytes: u64, cx: &mut Context) {
        match output {
            Ok(output) if output == *self.exercise.output() => {
                self.count(true, Sent { bytes, ..Sent::default() }, cx);
            }
            Ok(_) => self.fail(wrong(self.workload().task()), cx),
            Err(error) => self.fail(Failure::internal(self.workload().task(), error), cx),
        }
    }

    /// A worker has finished a job with this input, or failed.
    pub(super) fn on_finished(
        &self,
        finished: &Finished,
        input: usize,
        submitted: Instant,
        cx: &mut Context,
    ) {
        let report = &finished.report;
        let is_expected = self.exercise.outputs[input] == finished.output;
        if report.outcome != OutcomeCode::Ok {
            let failure = Failure::outcome(report.outcome, render::message(report));
            self.fail(failure, cx);
        } else if self.exercise.is_strict && !is_expected {
            self.fail(wrong(self.workload().task()), cx);
        } else {
            let Receipt { input_bytes, output_bytes, run_us, .. } = report.receipt;
            let all_us = u64::try_from(submitted.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.count(is_expected, Sent { bytes: input_bytes + output_bytes, run_us, all_us }, cx);
        }
    }

    fn count(&self, is_expected: bool, sent: Sent, cx: &mut Context) {
        let mut state = self.state.borrow_mut();
        let (JobsState::Going(done) | JobsState::Late(done, _)) = &mut *state else { return };
        done.jobs += 1;
        done.differing += u64::from(!is_expected);
        done.sent.bytes += sent.bytes;
        done.sent.run_us += sent.run_us;
        done.sent.all_us += sent.all_us;
        done.last_end = Some(Instant::now());
        if let JobsState::Late(done, least) = *state
            && done.jobs >= least
        {
            *state = JobsState::Over(done);
            cx.stop();
        }
    }

    fn fail(&self, failure: Failure, cx: &mut Context) {
        if self.are_going_on() {
            self.state.replace(JobsState::Failed(failure));
            cx.stop();
        }
    }

    /// The time is up, or it is when at least so many jobs are done.
    pub(super) fn end(&self, least: u64, cx: &mut Context) {
        let mut state = self.state.borrow_mut();
        match *state {
            JobsState::Going(done) if done.jobs < least => *state = JobsState::Late(done, least),
            JobsState::Going(done) => {
                *state = JobsState::Over(done);
                cx.stop();
            }
            JobsState::Late(..) | JobsState::Over(_) | JobsState::Failed(_) => {}
        }
    }

    /// Jobs that were done so far.
    #[cfg(test)]
    pub(super) fn done(&self) -> u64 {
        match *self.state.borrow() {
            JobsState::Going(done) | JobsState::Late(done, _) | JobsState::Over(done) => done.jobs,
            JobsState::Failed(_) => 0,
        }
    }

    /// The result of the measurement.
    ///
    /// # Errors
    /// The failure that ended the measurement early.
    pub(super) fn finish(&self) -> Result<WorkDone, Failure> {
        match self.state.replace(JobsState::Over(WorkDone::default())) {
            JobsState::Going(done) | JobsState::Late(done, _) | JobsState::Over(done) => Ok(done),
            JobsState::Failed(failure) => Err(failure),
        }
    }
}

fn wrong(task: &str) -> Failure {
    Failure::Internal(format!("a job came to a wrong answer: {task} is broken"))
}

#[cfg(test)]
mod tests {
    use super::super::workload::Numbers;
    use super::*;
    use offload_protocol::nouns::{ErrorDetail, MediaType, Report};
    use offload_supervisor::EventLoop;

    fn exercise() -> Exercise<Numbers> {
        Exercise::new(Numbers::new(3).unwrap()).unwrap()
    }

    fn jobs() -> Rc<StrategyJobs<Numbers>> {
        StrategyJobs::new(&Rc::new(exercise()))
    }

    fn finished(outcome: OutcomeCode, output: &'static str) -> Finished {
        let receipt = Receipt { input_bytes: 1, output_bytes: output.len() as u64, ..Receipt::default() };
        let error = (outcome != OutcomeCode::Ok).then(|| ErrorDetail::new(outcome, "no"));
        let report = Report {
            job: String::new(),
            task: "average".to_owned(),
            outcome,
            error,
            attempts: 1,
            receipt,
            media_type: MediaType::JSON,
            metadata: Default::default(),
            labels: Default::default(),
        };
        Finished { report, output: output.into() }
    }

    #[test]
    fn right_answers_are_counted_until_the_time_is_up() {
        let (mut event_loop, jobs) = (EventLoop::new().unwrap(), jobs());
        jobs.on_answer(Ok(2.0), &mut event_loop);
        jobs.on_finished(&finished(OutcomeCode::Ok, "2.0"), 0, Instant::now(), &mut event_loop);
        jobs.end(1, &mut event_loop);
        jobs.on_answer(Ok(2.0), &mut event_loop);
        jobs.on_finished(&finished(OutcomeCode::Cancelled, ""), 0, Instant::now(), &mut event_loop);
        assert!(!jobs.are_going_on());
        let tally = jobs.finish().unwrap();
        assert_eq!((tally.jobs, tally.sent.bytes), (2, 4));
    }

    #[test]
    fn what_nobody_knows_the_answer_to_may_differ_and_is_counted() {
        let (mut event_loop, mut exercise) = (EventLoop::new().unwrap(), exercise());
        exercise.is_strict = false;
        let jobs = StrategyJobs::new(&Rc::new(exercise));
        for output in ["2.0", "2.5", "2.0"] {
            jobs.on_finished(&finished(OutcomeCode::Ok, output), 0, Instant::now(), &mut event_loop);
        }
        let done = jobs.finish().unwrap();
        assert_eq!((done.jobs, done.differing), (3, 1));
    }

    #[test]
    fn when_too_few_are_done_it_goes_on_until_there_are_enough() {
        let (mut event_loop, jobs) = (EventLoop::new().unwrap(), jobs());
        jobs.on_answer(Ok(2.0), &mut event_loop);
        jobs.end(3, &mut event_loop);
        for is_going_on in [true, false, false] {
            jobs.on_answer(Ok(2.0), &mut event_loop);
            assert_eq!(jobs.are_going_on(), is_going_on);
        }
        assert_eq!(jobs.finish().unwrap().jobs, 3);
    }

    #[test]
    fn a_wrong_answer_ends_it_as_an_internal_error() {
        let mut event_loop = EventLoop::new().unwrap();
        let (on_the_loop, in_a_worker) = (jobs(), jobs());
        on_the_loop.on_answer(Ok(2.5), &mut event_loop);
        in_a_worker.on_finished(&finished(OutcomeCode::Ok, "2.5"), 0, Instant::now(), &mut event_loop);
        for jobs in [on_the_loop, in_a_worker] {
            jobs.on_answer(Ok(2.0), &mut event_loop);
            assert_eq!(jobs.finish().unwrap_err().exit_code(), 70);
        }
    }

    #[test]
    fn a_job_that_fails_ends_it_with_its_own_exit_code() {
        let (mut event_loop, jobs) = (EventLoop::new().unwrap(), jobs());
        jobs.on_finished(&finished(OutcomeCode::WorkerCrashed, ""), 0, Instant::now(), &mut event_loop);
        assert_eq!(jobs.finish().unwrap_err().exit_code(), 125);
    }
}
