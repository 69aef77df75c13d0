//! Records of versions (O18): which is good, which is on trial, and which reloads have not been answered; and of what is
//! on disk (O20): whether a worker that was started since the last reload has done a job well.

use super::workers::WorkerBook;
use super::{Failure, Oracle, demand};
use offload_core::action::{Notice, ReloadEnd};
use offload_core::event::Event;
use offload_core::ids::{Mono, ProgramIndex, Version, WorkerId};
use std::collections::BTreeSet;

/// What became of the reloads that were asked for.
#[derive(Debug)]
pub(super) struct ReloadBook {
    good: Version,
    /// The version on trial, while nothing is decided.
    trial: Option<Version>,
    /// Jobs that its workers have done well, in all.
    trial_jobs_ok: u32,
    doubts: Vec<Doubt>,
    /// Those that were not answered yet.
    open: Vec<Version>,
    has_been_asked: bool,
    /// The last one that was asked for has failed.
    is_taken_back: bool,
    /// One was answered before the workers of the other version were gone.
    may_linger: bool,
    /// Tasks of which a job may have ended a worker that had proved itself. The core forgets that when one is done well.
    deadly: BTreeSet<String>,
}

/// What is known of the file on disk from which a program is started.
#[derive(Clone, Copy, Debug)]
pub(super) enum Doubt {
    None,
    /// Since a reload no worker with a higher number than this has proved itself.
    Since(WorkerId),
    /// The trial of another program has failed; what became of that of this one is not known.
    Perhaps,
}

impl ReloadBook {
    pub(super) fn new(programs: usize) -> ReloadBook {
        ReloadBook {
            good: Version::default(),
            trial: None,
            trial_jobs_ok: 0,
            doubts: vec![Doubt::None; programs],
            open: Vec::new(),
            has_been_asked: false,
            is_taken_back: false,
            may_linger: false,
            deadly: BTreeSet::new(),
        }
    }

    pub(super) fn may_be_deadly(&self, task: &str) -> bool {
        self.deadly.contains(task)
    }

    /// A worker has ended in a job of this task, and may have proved itself before.
    pub(super) fn note_deadly(&mut self, task: String) {
        self.deadly.insert(task);
    }

    pub(super) fn asked(&mut self, version: Version) {
        self.has_been_asked = true;
        self.open.push(version);
    }

    pub(super) fn is_on_trial(&self, version: Version) -> bool {
        self.trial == Some(version)
    }

    pub(super) fn has_been_asked(&self) -> bool {
        self.has_been_asked
    }

    pub(super) fn are_answered(&self) -> bool {
        self.open.is_empty()
    }

    /// How many processes there may be beside those of slots and spare.
    pub(super) fn places_for_trials(&self) -> usize {
        if self.open.is_empty() && !self.may_linger { 0 } else { self.doubts.len() }
    }

    /// Whether a program may have been left with empty slots until one of its workers proves itself.
    pub(super) fn is_doubted(&self, program: ProgramIndex) -> bool {
        !matches!(self.doubts[program], Doubt::None)
    }

    /// Whether this worker has to prove itself. One that is on trial has to as well.
    pub(super) fn is_unproven(&self, program: ProgramIndex, worker: WorkerId) -> bool {
        matches!(self.doubts[program], Doubt::Since(since) if worker > since)
    }

    /// The same where that is certain: of several programs, one may have passed before the others.
    pub(super) fn is_surely_unproven(&self, program: ProgramIndex, worker: WorkerId) -> bool {
        let may_have_passed = self.doubts.len() > 1 && self.trial.is_some();
        self.is_unproven(program, worker) && !may_have_passed
    }

    /// A job has ended well on a worker.
    pub(super) fn proved(&mut self, program: ProgramIndex, worker: WorkerId, version: Version) {
        self.trial_jobs_ok += u32::from(self.is_on_trial(version));
        if self.trial.is_none() && self.is_unproven(program, worker) {
            self.doubts[program] = Doubt::None;
        }
    }
}

impl Oracle {
    /// The core has accepted the output of a worker. It does so from one that has lied only after it was told to end, and that
    /// proves as much as any other output.
    pub(super) fn note_proof_of_a_liar(&mut self, worker: WorkerId) {
        if let Some(book) = self.workers.get(&worker).filter(|book| book.is_liar) {
            self.reloads.proved(book.program, worker, book.version);
        }
    }

    /// A reload that is not refused puts its version on trial everywhere.
    pub(super) fn begin_reload(&mut self, event: &Event) {
        let Event::Reload { version } = event else { return };
        let newest = self.reloads.trial.unwrap_or(self.reloads.good);
        if self.is_ending() || *version <= newest {
            return;
        }
        let since = self.starts.newest.unwrap_or(WorkerId(0));
        self.reloads.doubts.fill(Doubt::Since(since));
        (self.reloads.trial, self.reloads.trial_jobs_ok) = (Some(*version), 0);
        self.reloads.is_taken_back = false;
        self.questions.clear();
        self.starts.forget(self.reloads.doubts.len());
    }

    pub(super) fn judge_verdict(
        &mut self,
        now: Mono,
        event: Option<&Event>,
        notice: &Notice,
    ) -> Result<(), Failure> {
        let trial = self.reloads.trial;
        match *notice {
            // All programs pass at once; the first notice says it all.
            Notice::TrialPassed { program: 0 } => {
                self.judge_pass(now)?;
                self.reloads.good = trial.unwrap_or_default();
                self.reloads.trial = None;
                self.reloads.doubts.fill(Doubt::None);
                self.starts.forget(self.reloads.doubts.len());
            }
            Notice::TrialGoesOn { program, job, is_guilty } => {
                self.judge_trial_goes_on(event, program, (job, is_guilty))?;
            }
            Notice::RolledBack { program, .. } => {
                self.judge_taken_back(now, program)?;
                demand(trial.is_some(), "O18", || format!("program {program} has nothing on trial"))?;
                self.reloads.trial = None;
                self.reloads.is_taken_back = true;
                let failed = self.reloads.doubts[program];
                self.reloads.doubts.fill(Doubt::Perhaps);
                self.reloads.doubts[program] = failed;
            }
            _ => {}
        }
        Ok(())
    }

    /// A version has passed, so it has done a job well, or its worker has lived long enough and has no job. Of several
    /// programs one may have passed long ago.
    fn judge_pass(&self, now: Mono) -> Result<(), Failure> {
        let version = self.reloads.trial;
        demand(version.is_some(), "O18", || "nothing is on trial".to_owned())?;
        let lived = |book: &WorkerBook| {
            let since = book.hello_at.filter(|_| book.is_well() && book.given.is_empty());
            since.is_some_and(|since| since + self.config.trial_time <= now)
        };
        let mut tried = self.workers.values().filter(|book| Some(book.version) == version);
        let is_right = self.programs.len() > 1 || self.reloads.trial_jobs_ok > 0 || tried.any(lived);
        demand(is_right, "O18", || format!("a version passes that has shown nothing: {:?}", self.reloads))
    }

    pub(super) fn judge_version(&self, program: ProgramIndex, version: Version) -> Result<(), Failure> {
        let is_tried = self.reloads.is_on_trial(version);
        let mut others = self.workers.values().filter(|book| !book.is_leaving && !book.is_gone);
        let is_tried_already = others.any(|book| book.program == program && book.version == version);
        let is_right = version == self.reloads.good || (is_tried && !is_tried_already);
        demand(is_right, "O18", || format!("version {version} is started: {:?}", self.reloads))?;
        let is_asked = is_tried && self.questions.is_open(program);
        demand(!is_asked, "O27", || format!("version {version} is started, and is in question"))?;
        let is_there =
            |id: &WorkerId, book: &WorkerBook| !(book.is_gone || self.gone.contains(id) || self.is_resized);
        let is_another = |(id, book): (&WorkerId, &WorkerBook)| {
            let is_unproven = self.reloads.is_surely_unproven(program, *id) && book.version == version;
            book.program == program && is_unproven && is_there(id, book)
        };
        let another = self.workers.iter().any(is_another);
        demand(is_tried || !another, "O20", || "a second worker that has to prove itself".to_owned())
    }

    /// Nobody is told to go for a version that has not shown that it works. There is a reason for those that are
    /// accused, which do not come here.
    pub(super) fn judge_farewell(&self, worker: WorkerId, book: &WorkerBook) -> Result<(), Failure> {
        let is_old = book.version == self.reloads.good && book.hello_at.is_some();
        let may_go = match self.reloads.trial {
            Some(_) => false,
            None => match self.reloads.doubts[book.program] {
                Doubt::Since(since) => worker > since,
                Doubt::None | Doubt::Perhaps => true,
            },
        };
        demand(may_go || !is_old || self.is_ending() || self.is_resized, "O20", || {
            format!("{worker} is replaced by what nobody has seen working: {:?}", self.reloads)
        })
    }

    pub(super) fn judge_reloaded(
        &mut self,
        event: Option<&Event>,
        version: Version,
        end: &ReloadEnd,
    ) -> Result<(), Failure> {
        let index = self.reloads.open.iter().position(|open| *open == version);
        let index =
            index.ok_or(Failure { rule: "O18", what: format!("nobody waits for a reload to {version}") })?;
        self.reloads.open.swap_remove(index);
        let is_done = *end == ReloadEnd::Done;
        if self.is_ending() || matches!(event, Some(Event::Reload { .. })) {
            self.reloads.may_linger = true;
            self.reloads.trial = self.reloads.trial.filter(|trial| !self.is_ending() || *trial != version);
            return demand(!is_done, "O18", || format!("the reload to {version} cannot be done"));
        }
        let reloads = &self.reloads;
        let is_right = reloads.trial.is_none()
            && match end {
                ReloadEnd::Done => reloads.good == version,
                // Where no worker can be started any more, the rest of the old ones stays.
                ReloadEnd::SomeStay(_) => {
                    let may_refuse =
                        self.programs.iter().any(|program| program.may_refuse(self.least_restarts));
                    reloads.good == version && may_refuse
                }
                ReloadEnd::TakenBack { .. } => reloads.is_taken_back && reloads.good != version,
                // Only the two events above cut it short.
                ReloadEnd::OldStay(_) => false,
            };
        demand(is_right, "O18", || format!("{:?} {end:?}", self.reloads))?;
        self.reloads.may_linger = matches!(end, ReloadEnd::SomeStay(_));
        if self.reloads.may_linger {
            return Ok(());
        }
        let is_there = |(id, book): &(&_, &WorkerBook)| !book.is_gone && !self.gone.contains(*id);
        let mut workers = self.workers.iter().filter(is_there);
        let is_other = |book: &WorkerBook| match is_done {
            true => book.version != self.reloads.good,
            false => book.version == version,
        };
        let other = workers.find(|(_, book)| is_other(book));
        demand(other.is_none(), "O18", || format!("{other:?} is of another version"))
    }
}
