//! How a fake worker runs a job: in one go, or in steps with other jobs between them.
//!
//! ```text
//!   Run ---> steps ---- the last step is done ---------------------------------------> answered
//!              ^  '---- the core asked for it back, and it gives checkpoints --------> given back
//!              |  '---- another job has come, and this one itself runs not between --> suspended
//!              |        the steps of another                                               |
//!              '------------------------ the other job has ended --------------------------'
//! ```

use crate::faults::Fault;
use crate::oracle::Ran;
use crate::parts::Parts;
use crate::process::{Act, FakeProcess, Given, Misfortune, Stage};
use crate::script::{Guilt, TASKS};
use crate::world::Outside;
use offload_core::event::Event;
use offload_core::ids::{JobId, Mono};
use offload_protocol::nouns::{FailureKind, Usage};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// One attempt that has started and not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) job: JobId,
    pub(crate) attempt: u32,
    task: usize,
    began: Mono,
    /// Number of steps that are left; 0 if the job is done in one go.
    pub(crate) steps: u64,
    step: Duration,
    /// Since when another job runs between its steps.
    suspended_at: Option<Mono>,
    stood_still: Duration,
    is_wanted_back: bool,
    /// It has stopped reporting its progress.
    is_quiet: bool,
    is_hanging: bool,
    pub(crate) parts: Parts,
}

impl FakeProcess {
    pub(crate) fn start_run(&mut self, given: Given, out: &mut Outside) {
        let Given { job, attempt, task, guilt, is_stream } = given;
        let guilt = guilt.filter(|_| !self.is_calm);
        let worker = self.id;
        self.runs += 1;
        if self.strikes(Fault::StartUnsaid, out) {
            out.started(job, self.promises(task));
            let (run, usage, output_bytes) = (Duration::ZERO, Usage::default(), 0);
            self.say(false, Event::Finished { worker, job, attempt, run, usage, output_bytes }, out);
            return self.take_up_again(out);
        }
        if self.starts_in_vain(given, out) {
            return;
        }
        let started = Event::Started { worker, job, attempt };
        if self.strikes(Fault::WrongJob, out) {
            let other = JobId(out.choices.range(&mut self.tape, 1, 2 * job.0));
            self.say(false, Event::Started { worker, job: other, attempt: attempt + 1 }, out);
            out.started(job, self.promises(task));
        } else {
            let wrong_by = u32::from(self.strikes(Fault::WrongAttempt, out));
            self.say(wrong_by == 0, Event::Started { worker, job, attempt: attempt + wrong_by }, out);
            out.started(job, self.promises(task));
        }
        if self.strikes(Fault::StartsTwice, out) {
            self.say(false, started, out);
        }
        let mut run = self.plan_run(job, attempt, task, out);
        run.is_hanging |= guilt == Some(Guilt::Hangs);
        run.parts = self.plan_parts(task, is_stream, out);
        self.stage = Stage::Running(run);
        self.send_parts(out);
        self.send_a_wrong_part(run, out);
        self.take_back_wrongly(run, out);
        if self.strikes(Fault::SaysMore, out) {
            self.say(true, Event::Progress { worker, job, attempt, done: 1, total: 2 }, out);
            self.give_checkpoint(run, out);
        }
        // If it may have been asked meanwhile, giving the job back is no lie.
        if !TASKS[task].checkpoints && self.strikes(Fault::YieldsUnasked, out) {
            self.say(false, Event::Yielded { worker, job, attempt, run: MS, bytes: 1 }, out);
        }
        if guilt == Some(Guilt::Crashes) || (run.steps == 0 && self.strikes(Fault::CrashRunning, out)) {
            self.later(run.step, Act::Misfortune(Misfortune::DiesRunning(self.runs)), out);
        } else if self.strikes(Fault::BreaksRules, out) {
            self.later(run.step, Act::Misfortune(Misfortune::BreaksRules(Some(self.runs))), out);
        } else {
            self.go_on_running(out);
        }
    }

    fn plan_run(&mut self, job: JobId, attempt: u32, task: usize, out: &mut Outside) -> Run {
        let fake = &TASKS[task];
        let slow = if self.strikes(Fault::SlowRun, out) { 40 } else { 1 };
        let micros = u64::try_from(fake.run.as_micros()).unwrap_or(u64::MAX);
        let time = match fake.is_stepped {
            // Long enough for other jobs to come.
            true => Duration::from_micros(out.choices.range(&mut self.tape, 1, micros)),
            false => Duration::from_micros(1) + self.delay(fake.run, out),
        };
        let promised =
            if fake.promise.is_zero() { 1 } else { time.div_duration_f64(fake.promise).ceil() as u64 };
        let steps = match fake.is_stepped {
            true => out.choices.range(&mut self.tape, 1, 6).max(promised),
            false => 0,
        };
        let is_hanging = self.strikes(Fault::Hang, out);
        Run {
            job,
            attempt,
            task,
            began: out.now,
            steps,
            step: time * slow / u32::try_from(steps.max(1)).unwrap_or(1),
            suspended_at: None,
            stood_still: Duration::ZERO,
            is_wanted_back: false,
            is_quiet: false,
            is_hanging,
            parts: Parts::NONE,
        }
    }

    fn go_on_running(&mut self, out: &mut Outside) {
        if let Stage::Running(run) = self.stage
            && !run.is_hanging
        {
            self.later(run.step, Act::RunEnds(self.runs), out);
        }
    }

    /// The running job has ended, or one of its steps has.
    pub(crate) fn end_stretch(&mut self, out: &mut Outside) {
        let Stage::Running(mut run) = self.stage else { return };
        if run.steps <= 1 {
            return self.end_run(out);
        }
        self.runs += 1;
        run.steps -= 1;
        if self.strikes(Fault::CrashRunning, out) {
            return self.crash(out);
        }
        if run.is_wanted_back && TASKS[run.task].checkpoints && !self.strikes(Fault::IgnoresYield, out) {
            return self.give_back(run, out);
        }
        run.is_quiet |= self.strikes(Fault::GoesQuiet, out);
        let promises = !TASKS[run.task].promise.is_zero();
        if !run.is_quiet && (promises || out.choices.chance(&mut self.tape, 300)) {
            let (worker, job, attempt) = (self.id, run.job, run.attempt);
            self.say(true, Event::Progress { worker, job, attempt, done: 1, total: run.steps }, out);
        }
        if TASKS[run.task].checkpoints && out.choices.chance(&mut self.tape, 300) {
            self.give_checkpoint(run, out);
        }
        self.stage = Stage::Running(run);
        if self.suspended.is_some() || !self.start_between(run, out) {
            self.go_on_running(out);
        }
    }

    fn give_checkpoint(&mut self, run: Run, out: &mut Outside) {
        let bytes = out.choices.range(&mut self.tape, 0, 100);
        let (worker, job, attempt) = (self.id, run.job, run.attempt);
        self.say(true, Event::Checkpoint { worker, job, attempt, bytes }, out);
    }

    /// Runs a job that has come, if there is one, before the next step.
    fn start_between(&mut self, outer: Run, out: &mut Outside) -> bool {
        let worker = self.id;
        while let Some(given) = self.jobs.pop_front() {
            let job = given.job;
            if !self.withdrawn.remove(&job) {
                self.suspended = Some(Run { suspended_at: Some(out.now), ..outer });
                self.start_run(given, out);
                return true;
            }
            self.say(true, Event::Skipped { worker, job }, out);
        }
        false
    }

    fn all_runs(&mut self) -> impl Iterator<Item = &mut Run> {
        let running = match &mut self.stage {
            Stage::Running(run) => Some(run),
            _ => None,
        };
        running.into_iter().chain(&mut self.suspended)
    }

    pub(crate) fn hear_yield(&mut self, wanted: JobId) {
        self.all_runs().for_each(|run| run.is_wanted_back |= run.job == wanted);
    }

    /// From now on no run hangs.
    pub(crate) fn calm_runs(&mut self) {
        self.all_runs().for_each(|run| (run.is_hanging, run.is_quiet) = (false, false));
    }

    fn give_back(&mut self, run: Run, out: &mut Outside) {
        let bytes = out.choices.range(&mut self.tape, 1, 100);
        let (worker, job, attempt) = (self.id, run.job, run.attempt);
        let time = (out.now - run.began).saturating_sub(run.stood_still);
        self.say(true, Event::Yielded { worker, job, attempt, run: time, bytes }, out);
        self.take_up_again(out);
    }

    /// The suspended run, if there is one; otherwise the next job.
    fn take_up_again(&mut self, out: &mut Outside) {
        let Some(mut outer) = self.suspended.take() else {
            self.stage = Stage::Waiting;
            return self.take_next(out);
        };
        outer.stood_still += outer.suspended_at.take().map_or(Duration::ZERO, |since| out.now - since);
        self.runs += 1;
        self.stage = Stage::Running(outer);
        self.go_on_running(out);
    }

    pub(crate) fn end_run(&mut self, out: &mut Outside) {
        let Stage::Running(Run { job, attempt, began, stood_still, .. }) = self.stage else { return };
        let (worker, run) = (self.id, (out.now - began).saturating_sub(stood_still));
        self.runs += 1;
        let is_failing = self.failing > 0;
        self.failing = self.failing.saturating_sub(1);
        let how = if is_failing || self.strikes(Fault::AppError, out) {
            Ran::Failed(FailureKind::AppError)
        } else if self.strikes(Fault::Panic, out) {
            Ran::Failed(FailureKind::Panic)
        } else {
            Ran::Well
        };
        out.ended(worker, job, attempt, how);
        let most = out.output_max;
        let output_bytes = out.choices.pick(&mut self.tape, &[0, 0, 10, 500, most / 2, most]);
        let said = |job, attempt| match how {
            Ran::Well => {
                let usage = Usage::default();
                Event::Finished { worker, job, attempt, run, usage, output_bytes }
            }
            Ran::Failed(kind) => {
                let usage = Usage::default();
                Event::Failed { worker, job, attempt, run, kind, message: "oh".into(), usage }
            }
        };
        if self.strikes(Fault::WrongJob, out) {
            let other = JobId(out.choices.range(&mut self.tape, 1, 2 * job.0));
            self.say(false, said(other, attempt + u32::from(other == job)), out);
        } else if self.strikes(Fault::WrongAttempt, out) {
            self.say(false, said(job, attempt + 1), out);
        } else {
            self.say(true, said(job, attempt), out);
        }
        if self.strikes(Fault::EndsTwice, out) {
            self.say(false, said(job, attempt), out);
        }
        if self.strikes(Fault::Guesses, out) {
            let next = JobId(job.0 + out.choices.range(&mut self.tape, 1, 3));
            // Even if it knows of the job by then, this does not count as an attempt: a lucky guess could not be told from
            // the truth.
            self.say(false, Event::Started { worker, job: next, attempt: u32::MAX }, out);
        }
        match self.strikes(Fault::CrashAfterReply, out) {
            true => self.crash(out),
            false => self.take_up_again(out),
        }
    }
}
