//! Records of versions (O18): which there are, which are on trial, and which reloads have not been answered.

use super::{Failure, Oracle, demand};
use offload_core::event::Event;
use offload_core::ids::{ProgramIndex, Version};

/// What became of the reloads that were asked for.
#[derive(Debug)]
pub(super) struct ReloadBook {
    programs: Vec<Versions>,
    /// Those that were not answered yet.
    open: Vec<Version>,
    has_been_asked: bool,
    /// A program has kept its old version since the last one was asked for.
    is_taken_back: bool,
}

#[derive(Clone, Debug, Default)]
struct Versions {
    good: Version,
    trial: Option<Version>,
}

impl ReloadBook {
    pub(super) fn new(programs: usize) -> ReloadBook {
        ReloadBook {
            programs: vec![Versions::default(); programs],
            open: Vec::new(),
            has_been_asked: false,
            is_taken_back: false,
        }
    }

    fn newest(&self) -> Version {
        self.programs.iter().map(|program| program.trial.unwrap_or(program.good)).max().unwrap_or_default()
    }

    pub(super) fn asked(&mut self, version: Version) {
        self.has_been_asked = true;
        self.open.push(version);
    }

    pub(super) fn is_on_trial(&self, program: ProgramIndex, version: Version) -> bool {
        self.programs[program].trial == Some(version)
    }

    pub(super) fn has_been_asked(&self) -> bool {
        self.has_been_asked
    }

    pub(super) fn are_answered(&self) -> bool {
        self.open.is_empty()
    }
}

impl Oracle {
    /// A reload that is not refused puts its version on trial everywhere.
    pub(super) fn begin_reload(&mut self, event: &Event) {
        let Event::Reload { version } = event else { return };
        if !self.is_ending() && *version > self.reloads.newest() {
            self.reloads.programs.iter_mut().for_each(|program| program.trial = Some(*version));
            self.reloads.is_taken_back = false;
            self.starts.forget(self.reloads.programs.len());
        }
    }

    pub(super) fn judge_trial(&mut self, program: ProgramIndex, has_passed: bool) -> Result<(), Failure> {
        let versions = &mut self.reloads.programs[program];
        let trial = versions.trial.take();
        if let (Some(version), true) = (trial, has_passed) {
            versions.good = version;
        }
        self.reloads.is_taken_back |= !has_passed;
        demand(trial.is_some(), "O18", || format!("program {program} has nothing on trial"))
    }

    pub(super) fn judge_version(&self, program: ProgramIndex, version: Version) -> Result<(), Failure> {
        let versions = &self.reloads.programs[program];
        let is_tried = versions.trial == Some(version);
        let others = || self.workers.values().filter(|book| !book.is_leaving && !book.is_gone);
        let is_tried_already = others().any(|book| book.program == program && book.version == version);
        let is_right = version == versions.good || (is_tried && !is_tried_already);
        demand(is_right, "O18", || format!("version {version} is started: {versions:?}"))
    }

    pub(super) fn judge_reloaded(
        &mut self,
        event: Option<&Event>,
        version: Version,
        is_done: bool,
    ) -> Result<(), Failure> {
        let index = self.reloads.open.iter().position(|open| *open == version);
        let index =
            index.ok_or(Failure { rule: "O18", what: format!("nobody waits for a reload to {version}") })?;
        self.reloads.open.swap_remove(index);
        if self.is_ending() || matches!(event, Some(Event::Reload { .. })) {
            return demand(!is_done, "O18", || format!("the reload to {version} cannot be done"));
        }
        // Where no worker can be started any more, the rest of the old ones stays.
        let may_be_given_up = self.programs.iter().any(|program| program.may_refuse(self.least_restarts));
        if !is_done && may_be_given_up {
            return Ok(());
        }
        demand(is_done != self.reloads.is_taken_back, "O18", || format!("{:?}: {is_done}", self.reloads))?;
        let good = |program: ProgramIndex| &self.reloads.programs[program];
        let is_there = |(id, book): &(&_, &super::WorkerBook)| !book.is_gone && !self.gone.contains(*id);
        let mut workers = self.workers.iter().filter(is_there);
        let other = workers.find(|(_, book)| book.version != good(book.program).good);
        demand(other.is_none(), "O18", || format!("{other:?} is of another version"))?;
        let is_new = |versions: &Versions| versions.trial.is_none() && (!is_done || versions.good == version);
        demand(self.reloads.programs.iter().all(is_new), "O18", || format!("{:?}", self.reloads))
    }
}
