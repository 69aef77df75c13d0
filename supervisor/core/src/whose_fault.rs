//! Whose fault it was that the worker on trial has ended: that of its version, or that of the job that it ran.
//!
//! Otherwise one job that ends every worker would make each reload fail, and whoever submits such jobs would keep all others from
//! a new version. So if the job may be run again, what it does to a worker that has proved itself decides. Meanwhile no
//! other worker of the version is started, so a version that is to blame costs no more jobs than it did.
//!
//! ```text
//!   the worker on trial has ended
//!      |
//!      |-- with no job, with one that is not run again, or for the fifth time --------------------------.
//!      |   (after it has passed: with no job)                                                           |
//!      v                                                                                                v
//!   InQuestion --- a proven worker does the job; it is not run again; 30 s are over ---------------> TakenBack
//!      |
//!      '---------- the job, or one of its task, ends a proven worker as well;
//!                  or it is cancelled or late ---> OnTrial, with another worker of the version
//! ```
//!
//! A task whose last job on a proven worker ended that worker is *deadly*. The worker on trial gets none of its jobs, and if an unproven
//! one ends with such a job, that is no failed start, as it would be none of a proven one: otherwise a client whose jobs end every worker
//! would make each reload fail, and after that keep the program from being started for as long as the breaker is open.
//!
//! A job that is cancelled before it has shown anything does not make the version fail: whoever submits such jobs may be out of
//! patience, too. As nobody wants it any more, it is no loss either.

use super::Core;
use super::action::{Action, Notice};
use super::ids::{JobId, Mono, ProgramIndex, SlotIndex};
use super::lose::End;
use super::outcome::human;
use super::trial::Trust;
use super::turn::Turn;
use crate::limits::{TRIAL_QUESTION_TIME, TRIAL_WORKERS_MAX};
use offload_protocol::nouns::OutcomeCode;

/// A version whose worker has ended while it ran a job.
#[derive(Debug)]
pub(super) struct Question {
    /// The job.
    job: JobId,
    /// What happened, as a part of a sentence for people.
    what: String,
    /// What the worker printed last, as another part.
    words: String,
    /// When the version is taken back if nothing has been found out.
    until: Mono,
}

impl Core {
    /// The worker on trial has ended. `job` is the one that it ran, if that may have been to blame.
    pub(super) fn ask_whose_fault(
        &mut self,
        turn: &mut Turn<'_>,
        program: ProgramIndex,
        job: Option<JobId>,
        (what, words): (&str, &str),
    ) {
        // It has proved itself and waits for other programs. Without them it would have been taken over by now.
        if job.is_some() && matches!(self.renewal.programs[program], Trust::Passed(_)) {
            return;
        }
        let asked = job.and_then(|job| Some((job, self.jobs.get(job)?)));
        let Some((job, asked)) = asked else {
            return self.take_back(turn, program, &format!("{what}{words}"));
        };
        let task = self.task_name(asked);
        let what = format!("{what}, in a job of `{task}`");
        let trust = &mut self.renewal.programs[program];
        let Trust::OnTrial(record) = *trust else { return };
        let ended = record.acquitted + 1;
        if ended == TRIAL_WORKERS_MAX {
            let why = format!("{ended} of its workers have ended, the last time: {what}{words}");
            return self.take_back(turn, program, &why);
        }
        let until = turn.now + TRIAL_QUESTION_TIME;
        *trust = Trust::InQuestion(record, Box::new(Question { job, what, words: words.to_owned(), until }));
        self.trust_changed();
    }

    /// Whether the worker on trial has ended, and it is not known yet whose fault that was.
    pub(super) fn is_in_question(&self, program: ProgramIndex) -> bool {
        matches!(self.renewal.programs[program], Trust::InQuestion(..))
    }

    /// The program whose version waits for what this job does.
    pub(super) fn in_question_by(&self, id: JobId) -> Option<ProgramIndex> {
        // Asked of every job.
        self.renewal.reload.as_ref()?;
        let is_it = |trust: &Trust| matches!(trust, Trust::InQuestion(_, question) if question.job == id);
        self.renewal.programs.iter().position(is_it)
    }

    /// This job is to blame for the end of a worker. If that one had proved itself, a version that is in question because of this job,
    /// or of another one of its task, is not to blame.
    pub(super) fn note_blame(&mut self, turn: &mut Turn<'_>, id: JobId, end: &End) {
        let (Some(task), Some(place)) = (self.jobs.get(id).and_then(|job| job.task), end.place) else {
            return;
        };
        let program = self.program_of(task);
        let trust = &self.renewal.programs[program];
        if trust.record().is_some_and(|record| place.worker > record.since) {
            return;
        }
        let is_of_the_task = |job: JobId| self.jobs.get(job).is_some_and(|job| job.task == Some(task));
        let is_answer = matches!(trust, Trust::InQuestion(_, question) if is_of_the_task(question.job));
        self.registry.task_mut(task).ends_workers = true;
        if is_answer {
            self.try_another(turn, program, id, true);
        }
    }

    /// Whether the last job of the same task on a worker that has proved itself ended that worker.
    pub(super) fn is_of_a_deadly_task(&self, id: JobId) -> bool {
        let task = self.jobs.get(id).and_then(|job| job.task);
        task.is_some_and(|task| self.registry.task(task).ends_workers)
    }

    /// The version is tried with another worker.
    fn try_another(&mut self, turn: &mut Turn<'_>, program: ProgramIndex, job: JobId, is_guilty: bool) {
        let Trust::InQuestion(record, _) = &self.renewal.programs[program] else { return };
        let mut record = *record;
        record.acquitted += 1;
        self.renewal.programs[program] = Trust::OnTrial(record);
        self.trust_changed();
        turn.push(Action::Log(Notice::TrialGoesOn { program, job, is_guilty }));
    }

    /// A job has ended. If a version waited for what it does, that is known now, or never will be.
    pub(super) fn note_end(&mut self, turn: &mut Turn<'_>, id: JobId, outcome: OutcomeCode) {
        let Some(program) = self.in_question_by(id) else { return };
        let why = match outcome {
            OutcomeCode::Ok | OutcomeCode::AppError | OutcomeCode::Panic | OutcomeCode::WorkerOom => {
                "that another worker has done since"
            }
            OutcomeCode::WorkerCrashed
            | OutcomeCode::WorkerProtocol
            | OutcomeCode::Confinement
            | OutcomeCode::Poison => "that is not run again",
            // It was cancelled, or its time was up.
            _ => return self.try_another(turn, program, id, false),
        };
        self.answer(turn, program, why);
    }

    /// An idle worker for a job that decides whether a new version is to blame: also one that is kept for short jobs, because until then
    /// no worker that ends is replaced.
    pub(super) fn slot_to_find_out(&self, program: ProgramIndex, job: JobId) -> Option<SlotIndex> {
        self.in_question_by(job)?;
        let slots = &self.programs[program];
        let idle = slots.open.iter().chain(slots.open_reserved.iter()).filter(|(load, _)| *load == 0);
        idle.map(|(_, slot)| *slot).find(|slot| self.promise_to(*slot, job).is_some())
    }

    /// When the first question is given up.
    pub(super) fn questions_end_at(&self) -> Option<Mono> {
        let until = |trust: &Trust| match trust {
            Trust::InQuestion(_, question) => Some(question.until),
            _ => None,
        };
        self.renewal.programs.iter().filter_map(until).min()
    }

    pub(super) fn end_questions_in_time(&mut self, turn: &mut Turn<'_>) {
        let is_over =
            |trust: &Trust| matches!(trust, Trust::InQuestion(_, question) if question.until <= turn.now);
        if let Some(program) = self.renewal.programs.iter().position(is_over) {
            let why = format!("that no other worker has done within {}", human(TRIAL_QUESTION_TIME));
            self.answer(turn, program, &why);
        }
    }

    /// Nobody is left who could answer: each worker that had proved itself has ended.
    pub(super) fn end_questions_without_workers(&mut self, turn: &mut Turn<'_>) {
        if self.renewal.reload.is_none() {
            return;
        }
        for program in self.programs_of_workers() {
            let is_proven = |&slot: &SlotIndex| {
                let place = &self.slots[slot];
                place.program == program && place.worker().is_some() && !self.is_unproven(slot)
            };
            if self.is_in_question(program) && (0..self.slots.len()).find(is_proven).is_none() {
                self.answer(turn, program, "that no other worker is left to do");
            }
        }
    }

    /// The version is to blame, or may be.
    fn answer(&mut self, turn: &mut Turn<'_>, program: ProgramIndex, why: &str) {
        let Trust::InQuestion(_, question) = &self.renewal.programs[program] else { return };
        let why = format!("{} {why}{}", question.what, question.words);
        self.take_back(turn, program, &why);
    }
}
