//! Whose fault it was that a worker on trial has ended in a job (O27): the version is not taken back before the job has shown what it
//! does to a worker that has proved itself, and is then taken back or not, as that says.

use super::{Failure, Oracle, demand};
use offload_core::action::{Action, Notice};
use offload_core::event::Event;
use offload_core::ids::{JobId, Mono, ProgramIndex, WorkerId};
use offload_core::limits::{TRIAL_QUESTION_TIME, TRIAL_WORKERS_MAX};
use offload_protocol::nouns::OutcomeCode;
use std::collections::BTreeMap;

const RULE: &str = "O27";

/// The versions in question.
#[derive(Debug, Default)]
pub(super) struct QuestionBook {
    open: BTreeMap<ProgramIndex, Question>,
    /// How many of its workers have ended in a job that ended another one, too.
    acquitted: BTreeMap<ProgramIndex, u32>,
}

/// The worker on trial has ended in a job.
#[derive(Clone, Copy, Debug)]
struct Question {
    job: Option<JobId>,
    since: Mono,
    is_certain: bool,
}

/// The end of a worker, as far as it concerns a version on trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndOfWorker {
    pub(super) program: ProgramIndex,
    /// The job that ran, if one did.
    pub(super) job: Option<JobId>,
    /// Nothing is in doubt of what the worker said.
    pub(super) is_certain: bool,
}

impl QuestionBook {
    /// Another trial begins, or none goes on.
    pub(super) fn clear(&mut self) {
        *self = QuestionBook::default();
    }

    pub(super) fn is_open(&self, program: ProgramIndex) -> bool {
        self.open.get(&program).is_some_and(|question| question.is_certain)
    }
}

impl Oracle {
    /// What this worker leaves, which ends by itself.
    pub(super) fn end_of(&self, worker: WorkerId) -> Option<EndOfWorker> {
        let book = self.workers.get(&worker)?;
        let job = book.started.last().copied().filter(|job| book.given.contains(job));
        let is_plain = |job: &JobId| {
            let job = self.jobs.get(job);
            job.is_some_and(|job| !job.is_doubtful && !job.is_bystander && job.suspended_since.is_none())
        };
        let is_alone = book.given.len() <= 1 && book.started.len() <= 1;
        let is_certain =
            !book.is_liar && !book.has_broken_program && is_alone && job.is_none_or(|job| is_plain(&job));
        Some(EndOfWorker { program: book.program, job, is_certain })
    }

    /// The worker on trial has ended by itself.
    pub(super) fn judge_end_on_trial(&self, end: EndOfWorker, actions: &[Action]) -> Result<(), Failure> {
        let is_back = is_taken_back(end.program, actions);
        let acquitted = self.questions.acquitted.get(&end.program).copied().unwrap_or(0);
        let lives = |job: JobId| self.live.contains(&job);
        let is_over = !end.job.is_some_and(lives);
        if is_over && end.job.is_some_and(|job| shows_nothing(job, actions)) {
            return demand(is_back || goes_on(end.program, actions), "O18", || {
                "the trial is forgotten".to_owned()
            });
        }
        let has_to_go = is_over || acquitted + 1 == TRIAL_WORKERS_MAX;
        let may_go = has_to_go || !end.is_certain || !self.has_proven_ones(end.program);
        demand(is_back || !has_to_go, "O18", || format!("the trial of program {} goes on", end.program))?;
        demand(!is_back || may_go, RULE, || {
            format!("the version is taken back before {:?} has shown whose fault it was", end.job)
        })
    }

    /// After an event: what is in question from now on.
    pub(super) fn note_question(&mut self, now: Mono, end: EndOfWorker, actions: &[Action]) {
        let is_back = actions.iter().any(|action| matches!(action, Action::Log(Notice::RolledBack { .. })));
        // Of one that has lied nobody knows what it ran.
        let is_certain = end.is_certain && end.job.is_some_and(|job| self.live.contains(&job));
        if !is_back && (is_certain || !end.is_certain) {
            let question = Question { job: end.job, since: now, is_certain };
            self.questions.open.insert(end.program, question);
        }
    }

    /// A job of the task that a version waits for was to blame for the end of a worker that had proved itself.
    pub(super) fn judge_answer(&self, end: EndOfWorker, actions: &[Action]) -> Result<(), Failure> {
        let is_asked = |it: &Question| it.is_certain && self.are_of_one_task(end.job, it.job);
        let asked = self.questions.open.iter().find(|(program, it)| **program == end.program && is_asked(it));
        let Some((program, _)) = asked.filter(|_| end.is_certain) else { return Ok(()) };
        demand(goes_on(*program, actions), RULE, || format!("{:?} is to blame, and not the version", end.job))
    }

    pub(super) fn judge_trial_goes_on(
        &mut self,
        event: Option<&Event>,
        program: ProgramIndex,
        (id, is_guilty): (JobId, bool),
    ) -> Result<(), Failure> {
        *self.questions.acquitted.entry(program).or_default() += 1;
        // It may be asked and answered at once: the job of the worker that has just ended is over.
        let is_at_once = !is_guilty && matches!(event, Some(Event::Exited { .. }));
        let Some(asked) = self.questions.open.remove(&program) else {
            return demand(is_at_once, RULE, || format!("program {program} has asked nothing"));
        };
        if !is_guilty {
            let is_over = !self.live.contains(&id);
            return demand(is_over, RULE, || format!("{id} may still show whose fault it was"));
        }
        if !asked.is_certain {
            return Ok(());
        }
        let ended = match event {
            Some(Event::Exited { worker, .. }) => self.workers.get(worker).map(|book| (*worker, book)),
            // One that hangs in the kernel is given up at a tick.
            _ => {
                let is_right = self.are_of_one_task(asked.job, Some(id));
                return demand(is_right, RULE, || format!("nobody asked for {id}"));
            }
        };
        let is_right = ended.is_some_and(|(worker, book)| {
            let had_it = book.started.contains(&id) || book.is_liar;
            had_it && !self.reloads.is_surely_unproven(book.program, worker)
        });
        demand(self.are_of_one_task(asked.job, Some(id)) && is_right, RULE, || {
            format!("{id} acquits program {program}, which asked for {asked:?}: {ended:?}")
        })
    }

    fn are_of_one_task(&self, one: Option<JobId>, other: Option<JobId>) -> bool {
        let task = |job: Option<JobId>| self.jobs.get(&job?).map(|job| &job.task);
        task(one).is_some() && task(one) == task(other)
    }

    /// Whether a worker lives that was there before the reload, and could show what a job does to it.
    fn has_proven_ones(&self, program: ProgramIndex) -> bool {
        let mut others = self.workers.iter().filter(|(id, book)| {
            let is_there = !book.is_gone && !self.gone.contains(*id);
            book.program == program && is_there && !self.reloads.is_unproven(program, **id)
        });
        others.next().is_some()
    }

    /// A version is taken back, for a reason that is none of its workers' ends of now.
    pub(super) fn judge_taken_back(&mut self, now: Mono, program: ProgramIndex) -> Result<(), Failure> {
        let open = std::mem::take(&mut self.questions).open;
        let Some(Question { job, since, .. }) = open.get(&program).filter(|it| it.is_certain) else {
            return Ok(());
        };
        let is_right = !job.is_some_and(|job| self.live.contains(&job))
            || *since + TRIAL_QUESTION_TIME <= now
            || !self.has_proven_ones(program);
        demand(is_right, RULE, || {
            format!("the version of {program} is taken back, and {job:?} has not shown anything")
        })
    }
}

/// Whether the job has ended without an outcome that says anything of a worker.
fn shows_nothing(job: JobId, actions: &[Action]) -> bool {
    use OutcomeCode::{AppError, Confinement, Ok, Panic, Poison, WorkerCrashed, WorkerOom, WorkerProtocol};
    let shown = [Ok, AppError, Panic, WorkerOom, WorkerCrashed, WorkerProtocol, Confinement, Poison];
    let is_it = |action: &Action| matches!(action, Action::Finish(ended) if ended.job == job && !shown.contains(&ended.outcome));
    actions.iter().any(is_it)
}

fn is_taken_back(of: ProgramIndex, actions: &[Action]) -> bool {
    let is_it =
        |action: &Action| matches!(action, Action::Log(Notice::RolledBack { program, .. }) if *program == of);
    actions.iter().any(is_it)
}

fn goes_on(of: ProgramIndex, actions: &[Action]) -> bool {
    let is_it = |action: &Action| matches!(action, Action::Log(Notice::TrialGoesOn { program, .. }) if *program == of);
    actions.iter().any(is_it)
}
