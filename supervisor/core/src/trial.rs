//! The trial of a new version, and what follows from it for trust in what is on disk.
//!
//! A reload puts one more worker beside the others, for each program, in a place of its own. The others stay as they
//! are until the trial is decided: none is replaced, not even a worn one. A reload is decided for all programs at once.
//! So "the old workers stay" is true of all of them, or of none.
//!
//! ```text
//!   what is on disk, for one program:
//!
//!                     reload                 its first jobs, or a while without a job
//!        Trusted -----------------> OnTrial ------------------------------------------> Passed
//!          ^ ^                      ^ | |                                            |
//!          | | it ends in a job     | | | it does not start, ends without            | every program has passed:
//!          | | that is run again    | v | a job, or fails all of its first           | the others follow (renew.rs)
//!          | |              InQuestion  |                                            |
//!          | |       (whose_fault.rs) | |                                            |
//!          | |                        v v                                            |
//!          | '-- one job done ---- TakenBack                                         |
//!          '-------------------------------------------------------------------------'
//! ```
//!
//! If the trial fails, its worker goes and nothing else happens. But the file on disk may be the one that failed, and an
//! old worker that ends later can only be started from it. So until a worker that was started since the reload has done
//! a job well, such workers are *unproven*: there is at most one of them, it has one job at a time, gets none that a
//! proven worker could begin, and if it ends, or fails all of its first jobs, that counts as a failed start. The pauses
//! and the circuit breaker of `restarts.rs` do the rest. Otherwise a version that ends with its first job would take
//! one job with it after the other, as fast as processes can be started.

use super::action::{Action, Notice};
use super::ids::{JobId, Mono, ProgramIndex, SlotIndex, TaskIndex, Version, WorkerId};
use super::jobs::JobState;
use super::renew::{Reload, Stage};
use super::restarts::Suspects;
use super::slots::{Retire, Role, Slot, SlotState, Tenure, Worker};
use super::starts::{FailedStart, Outlook};
use super::turn::Turn;
use super::whose_fault::Question;
use super::{Core, Ending};
use std::collections::BTreeSet;

/// What is known of the file from which a program is started: the states in the picture above.
#[derive(Debug, Default)]
pub(super) enum Trust {
    /// Nothing speaks against it.
    #[default]
    Trusted,
    /// A worker of it is on trial.
    OnTrial(Record),
    /// Its worker has ended in a job, and it is not known yet whose fault that was.
    InQuestion(Record, Box<Question>),
    /// Its worker has proved itself, those of other programs have not yet. Until all have, nothing changes.
    Passed(Record),
    /// The trial failed, and no worker that was started since has done a job well.
    TakenBack(Record),
}

/// What unproven workers of one program have done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// Workers with a higher number were started since the reload: they are unproven.
    pub(super) since: WorkerId,
    jobs_ok: u32,
    jobs_failed: u32,
    /// How many jobs have ended in a way that shows nothing.
    nothing_shown: u32,
    /// How many of its workers have ended in a job that was to blame for that.
    pub(super) acquitted: u32,
}

impl Record {
    fn new(since: WorkerId) -> Record {
        Record { since, jobs_ok: 0, jobs_failed: 0, nothing_shown: 0, acquitted: 0 }
    }

    fn count(&mut self, shown: Shown) {
        match shown {
            Shown::Well => self.jobs_ok += 1,
            Shown::Failed => self.jobs_failed += 1,
            Shown::Nothing => self.nothing_shown += 1,
        }
    }
}

/// What the end of a job shows of the worker that ran it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// It works.
    Well,
    /// It may not work.
    Failed,
    /// Nothing: the job was cut short, or such jobs fail on other workers, too.
    Nothing,
}

impl Trust {
    pub(super) fn record(&self) -> Option<&Record> {
        match self {
            Trust::OnTrial(record)
            | Trust::InQuestion(record, _)
            | Trust::Passed(record)
            | Trust::TakenBack(record) => Some(record),
            Trust::Trusted => None,
        }
    }
}

/// What is known of workers.
impl Core {
    /// Whether workers of this program may be replaced: what is started instead is known to work as well.
    pub(super) fn is_trusted(&self, program: ProgramIndex) -> bool {
        matches!(self.renewal.programs[program], Trust::Trusted)
    }

    /// Whether the process in this place was started from what nobody has seen working.
    pub(super) fn is_unproven(&self, slot: SlotIndex) -> bool {
        let place = &self.slots[slot];
        let is_since = |record: &Record| place.worker().is_some_and(|worker| worker > record.since);
        self.renewal.programs[place.program].record().is_some_and(is_since)
    }

    /// Whether a process may be started in this place, for all that is known of what is on disk: of unproven ones there
    /// is one at a time, beside the one on trial.
    pub(super) fn may_add_unproven(&self, slot: SlotIndex) -> bool {
        let program = self.slots[slot].program;
        let is_one = |other: SlotIndex| {
            let place = &self.slots[other];
            place.program == program
                && matches!(place.role, Role::Work | Role::Spare)
                && self.is_unproven(other)
        };
        let is_known = self.renewal.programs[program].record().is_none();
        is_known || self.slots[slot].role == Role::Trial || !(0..self.slots.len()).any(is_one)
    }

    /// An idle worker on trial, for a job. It comes before all others, so that it can prove itself.
    pub(super) fn slot_on_trial(&self, program: ProgramIndex, job: JobId) -> Option<SlotIndex> {
        self.unproven_slot(program, job).filter(|&slot| self.slots[slot].role == Role::Trial)
    }

    /// An idle unproven worker that offers the task of this job. Of several, the one on trial, unless a worker has ended that had
    /// this job: then the version is not judged by it, and the job waits for another worker, or for the end of the trial.
    pub(super) fn unproven_slot(&self, program: ProgramIndex, job: JobId) -> Option<SlotIndex> {
        let open = self.programs[program].open_unproven.iter().map(|&(_, slot)| slot);
        let judging = open.filter(|&slot| self.may_ever_take(slot, job));
        let offering = judging.filter(|&slot| self.promise_to(slot, job).is_some());
        offering.min_by_key(|&slot| (self.slots[slot].role != Role::Trial, slot))
    }

    /// Whether the one on trial is given jobs now. Not while its version is in question: there is none then. And not after several
    /// jobs that have shown nothing: then it has to live. Otherwise whoever cancels all jobs would keep the trial from its end,
    /// because each time the worker ends with the job.
    fn is_tried_by_jobs(&self, program: ProgramIndex) -> bool {
        match &self.renewal.programs[program] {
            Trust::InQuestion(..) => false,
            trust => trust.record().is_none_or(|record| record.nothing_shown < self.config.trial_jobs),
        }
    }

    /// Whether the worker in this place may be given this job at all. The one on trial is given no suspects, no job of a task that has
    /// just ended a proven worker, and no job at all if it is not tried by jobs; what a job does to an unproven worker does not answer the question that waits for it.
    pub(super) fn may_ever_take(&self, slot: SlotIndex, id: JobId) -> bool {
        let place = &self.slots[slot];
        let is_suspect = || self.jobs.get(id).is_none_or(|job| job.is_suspect);
        let is_refused = match place.role {
            Role::Trial => {
                is_suspect() || self.is_of_a_deadly_task(id) || !self.is_tried_by_jobs(place.program)
            }
            _ => self.in_question_by(id).is_some() && self.is_unproven(slot),
        };
        !is_refused
    }

    /// The version on trial.
    pub(super) fn tried_version(&self) -> Option<Version> {
        self.renewal
            .reload
            .as_ref()
            .filter(|reload| reload.stage == Stage::OnTrial)
            .map(|reload| reload.version)
    }

    pub(super) fn trust_changed(&mut self) {
        self.unlisted.extend(0..self.slots.len());
        self.places_changed = true;
        self.renewal.look_again();
    }
}

/// From the reload to the verdict.
impl Core {
    /// Puts a version of every program on trial.
    pub(super) fn begin_trials(&mut self, version: Version) {
        let newest = WorkerId(self.last_worker);
        for trust in &mut self.renewal.programs {
            *trust = Trust::OnTrial(Record::new(newest));
        }
        self.renewal.reload = Some(Reload { version, stage: Stage::OnTrial });
        for program in self.programs_of_workers() {
            self.programs[program].restarts.forget();
            self.make_trial_place(program);
        }
        self.trust_changed();
    }

    /// Makes a place for a trial, unless there is one. If what an older reload has left is still there, the trial
    /// begins in its place, when it has gone.
    fn make_trial_place(&mut self, program: ProgramIndex) {
        let is_one = |slot: &Slot| slot.program == program && slot.role == Role::Trial;
        let good = self.renewal.good;
        let is_of_another = |slot: &Slot| slot.version().is_some_and(|version| version != good);
        let is_left = |slot: &Slot| slot.program == program && slot.is_leftover() && is_of_another(slot);
        if self.slots.iter().any(is_one) {
            return;
        }
        match self.slots.iter().position(is_left) {
            Some(slot) => self.slot_mut(slot).role = Role::Trial,
            None => self.add_place(program, Role::Trial),
        }
    }

    /// A job of this task has failed. That says little of its worker if the last one on a worker that has proved itself failed, too.
    pub(super) fn failure_shows(&self, task: Option<TaskIndex>) -> Shown {
        let fails = task.is_some_and(|task| self.registry.task(task).fails);
        if fails { Shown::Nothing } else { Shown::Failed }
    }

    /// A job that runs is ended before its time. That shows nothing of its worker, unless it ran longer than such jobs do: it may
    /// have hung.
    pub(super) fn end_early(&mut self, turn: &mut Turn<'_>, id: JobId, ending: Ending) {
        let runs = self.jobs.get(id).and_then(|job| match job.state {
            JobState::Running { worker, .. } => Some((self.slot_of(worker)?, job)),
            _ => None,
        });
        let shown = runs.map(|(slot, job)| {
            let usual = job.task.and_then(|task| self.registry.task(task).expected_run(job.input_bytes));
            let is_late = usual.is_some_and(|usual| self.ran_so_far(turn.now, id, job) > usual);
            (slot, if is_late { self.failure_shows(job.task) } else { Shown::Nothing })
        });
        self.end_gently(turn, id, ending);
        if let Some((slot, shown)) = shown {
            self.note_proof(turn, slot, shown);
        }
    }

    /// A job has ended. What it shows counts for an unproven worker, and for the one on trial.
    pub(super) fn note_proof(&mut self, turn: &mut Turn<'_>, slot: SlotIndex, shown: Shown) {
        if !self.is_unproven(slot) {
            return;
        }
        let (program, wanted) = (self.slots[slot].program, self.config.trial_jobs);
        let is_tried = self.slots[slot].version() == self.tried_version();
        let is_time_up =
            self.slots[slot].ready_worker().is_some_and(|worker| self.passes_at(*worker) <= turn.now);
        match &mut self.renewal.programs[program] {
            Trust::OnTrial(record) if is_tried => {
                record.count(shown);
                let is_enough = record.jobs_ok + record.jobs_failed >= wanted;
                match record.jobs_ok > 0 {
                    true if is_enough || is_time_up => self.pass_trial(turn, program),
                    false if is_enough => {
                        let why = format!("its first {wanted} jobs all failed");
                        self.take_back(turn, program, &why);
                    }
                    // It may be given no more jobs.
                    _ if shown == Shown::Nothing => self.trust_changed(),
                    _ => {}
                }
            }
            Trust::TakenBack(_) if shown == Shown::Well => {
                self.renewal.programs[program] = Trust::Trusted;
                self.trust_changed();
            }
            Trust::TakenBack(record) => {
                record.count(shown);
                if record.jobs_failed >= wanted {
                    self.give_up_unproven(turn, slot);
                }
            }
            Trust::OnTrial(_) | Trust::InQuestion(..) | Trust::Trusted | Trust::Passed(_) => {}
        }
    }

    /// An unproven worker has failed all of its first jobs: it goes, and that was a failed start.
    fn give_up_unproven(&mut self, turn: &mut Turn<'_>, slot: SlotIndex) {
        let (program, wanted) = (self.slots[slot].program, self.config.trial_jobs);
        let (Some(worker), Some(version)) = (self.slots[slot].worker(), self.slots[slot].version()) else {
            return;
        };
        if let Trust::TakenBack(record) = &mut self.renewal.programs[program] {
            *record = Record::new(record.since);
        }
        self.dismiss(turn, slot);
        let start = FailedStart { worker, program, version };
        let why = format!("a worker of a version that was taken back failed its first {wanted} jobs");
        self.start_failed(turn, start, Outlook::Fair, &Suspects::Program, &why);
    }

    /// A worker that had said hello has ended by itself. `ended` says how, `words` what it printed, and `job` what it ran. If it was on
    /// trial, its version is taken back, unless that may have been the job's doing. If it was unproven, that was a failed start: there is
    /// no excuse for what nobody has seen working, unless proven workers end with such jobs as well. True if it was one of these.
    pub(super) fn note_unproven_death(
        &mut self,
        turn: &mut Turn<'_>,
        program: ProgramIndex,
        worker: Worker,
        (ended, words, job): (&str, &str, Option<JobId>),
    ) -> bool {
        let jobs = match worker.jobs_done {
            1 => "1 job".to_owned(),
            jobs => format!("{jobs} jobs"),
        };
        if self.tried_version() == Some(worker.version) {
            self.ask_whose_fault(turn, program, job, (&format!("its worker {ended} after {jobs}"), words));
            return true;
        }
        let is_unproven =
            self.renewal.programs[program].record().is_some_and(|record| worker.id > record.since);
        let deadly = job.filter(|job| self.is_of_a_deadly_task(*job)).and_then(|job| self.jobs.get(job));
        let suspects = deadly.map_or(Suspects::Program, |job| {
            Suspects::Clients(BTreeSet::from([self.account_of(job).clone()]))
        });
        if is_unproven && (deadly.is_none() || !self.programs[program].restarts.excuses_death()) {
            let start = FailedStart { worker: worker.id, program, version: worker.version };
            let why = format!("a worker of a version that was taken back {ended} after {jobs}{words}");
            self.start_failed(turn, start, Outlook::Fair, &suspects, &why);
        }
        is_unproven
    }

    /// When a worker on trial has lived long enough, if it has no job then.
    fn passes_at(&self, worker: Worker) -> Mono {
        worker.ready_at + self.config.trial_time
    }

    /// When the worker in this place passes by living. Not while it has a job: it may hang.
    fn outlives_trial_at(&self, slot: &Slot) -> Option<Mono> {
        let is_open = matches!(self.renewal.programs[slot.program], Trust::OnTrial(_));
        match slot.state {
            SlotState::Idle { worker }
                if is_open && slot.is_ready() && slot.version() == self.tried_version() =>
            {
                Some(self.passes_at(worker))
            }
            _ => None,
        }
    }

    /// When the first trial ends because its worker has lived long enough, or because nobody has found out whose fault its end was.
    pub(super) fn trial_ends_at(&self) -> Option<Mono> {
        self.tried_version()?;
        let tried = self.slots.iter().filter(|slot| slot.role == Role::Trial);
        tried.filter_map(|slot| self.outlives_trial_at(slot)).chain(self.questions_end_at()).min()
    }

    pub(super) fn end_trials_in_time(&mut self, turn: &mut Turn<'_>) {
        self.end_questions_in_time(turn);
        let tried = (0..self.slots.len()).filter(|&slot| self.slots[slot].role == Role::Trial);
        for slot in tried.collect::<Vec<_>>() {
            if self.outlives_trial_at(&self.slots[slot]).is_some_and(|at| at <= turn.now) {
                self.pass_trial(turn, self.slots[slot].program);
            }
        }
    }

    /// One program has passed. If all have, the version is good, and the others follow.
    fn pass_trial(&mut self, turn: &mut Turn<'_>, program: ProgramIndex) {
        let Trust::OnTrial(record) = self.renewal.programs[program] else { return };
        self.renewal.programs[program] = Trust::Passed(record);
        self.trust_changed();
        let have_all_passed = self.renewal.programs.iter().all(|trust| matches!(trust, Trust::Passed(_)));
        let Some(reload) = self.renewal.reload.as_mut().filter(|_| have_all_passed) else { return };
        reload.stage = Stage::Following;
        self.renewal.good = reload.version;
        for program in self.programs_of_workers() {
            self.renewal.programs[program] = Trust::Trusted;
            self.programs[program].restarts.passed_trial();
            turn.push(Action::Log(Notice::TrialPassed { program }));
        }
        for slot in 0..self.slots.len() {
            if self.slots[slot].role == Role::Trial {
                self.adopt(slot);
            }
        }
    }

    /// The worker that was on trial takes over a slot; what was there goes when it has no job.
    fn adopt(&mut self, tried: SlotIndex) {
        let slot = self.most_dispensable(self.slots[tried].program);
        if let Some(slot) = slot.filter(|_| self.slots[tried].is_ready()) {
            self.exchange_with(slot, tried);
        }
        self.close_trial_place(tried);
    }

    /// What is in a place for a trial goes, and nothing follows it.
    fn close_trial_place(&mut self, slot: SlotIndex) {
        let place = self.slot_mut(slot);
        (place.role, place.tenure) = (Role::Surplus, Tenure::Stays);
        if place.worker().is_some() {
            self.retire(slot, Retire::Reload);
        }
    }

    /// Ends all trials without a verdict, or with a bad one: their workers go, and all others stay.
    pub(super) fn end_trials(&mut self) {
        for trust in &mut self.renewal.programs {
            *trust = match std::mem::take(trust) {
                Trust::OnTrial(Record { since, .. }) | Trust::InQuestion(Record { since, .. }, _) => {
                    Trust::TakenBack(Record::new(since))
                }
                Trust::Passed(_) | Trust::Trusted => Trust::Trusted,
                taken_back @ Trust::TakenBack(_) => taken_back,
            };
        }
        for slot in 0..self.slots.len() {
            if self.slots[slot].role == Role::Trial {
                self.close_trial_place(slot);
            }
        }
        self.trust_changed();
    }

    /// The trial of this program has failed: all programs keep their old version.
    pub(super) fn take_back(&mut self, turn: &mut Turn<'_>, program: ProgramIndex, why: &str) {
        let Some(reload) = &mut self.renewal.reload else { return };
        reload.stage = Stage::TakenBack(program, why.to_owned());
        // Whatever it has done before: this end speaks against it.
        if let Trust::Passed(record) = self.renewal.programs[program] {
            self.renewal.programs[program] = Trust::OnTrial(record);
        }
        self.end_trials();
        turn.push(Action::Log(Notice::RolledBack { program, why: why.to_owned() }));
    }
}
