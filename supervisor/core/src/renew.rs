//! Replaces healthy workers: worn ones, those of another version of their program, and those that are too many. Jobs
//! are not affected: a worker goes only when it has no job and, if there is a spare, only when the spare is ready to
//! take its place.
//!
//! ```text
//!   the tenure of one worker:
//!
//!             it is to be replaced              a replacement is ready
//!     Stays ----------------------> Retiring ---------------------------> Closing --- it has no job ---> dismissed
//!                                  given jobs <------------------------- given none
//!                                              the replacement is lost   (asked to yield)
//!
//!   a reload, for one program:
//!
//!     OnTrial: one worker of the new version
//!       |--- it has done its first jobs, or lived a while ------------> the new version is good: the others follow
//!       '--- it does not start, ends, or fails all of its first jobs ---> taken back: the old version stays
//! ```

use super::action::{Action, Kill, Notice};
use super::ids::{Mono, ProgramIndex, SlotIndex, Version};
use super::slots::{Cause, Retire, Role, Slot, SlotState, Tenure, Worker};
use super::turn::Turn;
use super::{Core, Phase};

/// The versions of each program, the reload that is under way, and whether anything is to be replaced.
#[derive(Debug)]
pub(super) struct Renewal {
    programs: Vec<Versions>,
    reload: Option<Reload>,
    /// Something is to be replaced, so [`Core::renew`] has work to do after every event.
    is_active: bool,
}

/// The versions of one program.
#[derive(Debug, Default)]
struct Versions {
    /// The version that has shown that it works.
    good: Version,
    newer: Newer,
}

/// What became of the newest version of a program.
#[derive(Debug, Default)]
enum Newer {
    /// It is the good one, or it was taken back.
    #[default]
    None,
    OnTrial(Trial),
    /// No worker can be started, so the reload does not wait until the old workers are replaced.
    GivenUp,
}

#[derive(Debug)]
struct Trial {
    version: Version,
    /// When the first worker of this version said hello.
    ready_at: Option<Mono>,
    jobs_ok: u32,
    jobs_failed: u32,
}

#[derive(Debug)]
struct Reload {
    version: Version,
    rolled_back: Option<String>,
}

impl Renewal {
    pub(super) fn new(programs: usize) -> Renewal {
        Renewal {
            programs: (0..programs).map(|_| Versions::default()).collect(),
            reload: None,
            is_active: false,
        }
    }

    /// There may be something to replace.
    pub(super) fn look_again(&mut self) {
        self.is_active = true;
    }
}

/// Reloads.
impl Core {
    pub(super) fn on_reload(&mut self, turn: &mut Turn<'_>, version: Version) {
        let newest = self.renewal.programs.iter().map(Versions::newest).max().unwrap_or_default();
        if self.phase != Phase::Running || version <= newest {
            let why = "there is a newer version, or the supervisor is ending".to_owned();
            return turn.push(Action::Reloaded { version, rolled_back: Some(why) });
        }
        if let Some(older) = self.renewal.reload.take() {
            let why = "another reload came before it was done".to_owned();
            turn.push(Action::Reloaded { version: older.version, rolled_back: Some(why) });
        }
        self.renewal.reload = Some(Reload { version, rolled_back: None });
        self.renewal.look_again();
        for (versions, program) in self.renewal.programs.iter_mut().zip(&mut self.programs) {
            versions.newer = Newer::OnTrial(Trial { version, ready_at: None, jobs_ok: 0, jobs_failed: 0 });
            program.restarts.forget();
        }
    }

    /// The version of the next process of a program. A version on trial gets one process; all others run the good
    /// version.
    pub(super) fn version_to_start(&self, program: ProgramIndex) -> Version {
        let Some(versions) = self.renewal.programs.get(program) else { return Version::default() };
        match versions.trial() {
            Some(trial) if !self.has_process_of(program, trial.version) => trial.version,
            _ => versions.good,
        }
    }

    fn has_process_of(&self, program: ProgramIndex, version: Version) -> bool {
        let is_alive = |slot: &Slot| !matches!(slot.state, SlotState::Vacant | SlotState::Leaving { .. });
        self.slots
            .iter()
            .any(|slot| slot.program == program && is_alive(slot) && slot.version() == Some(version))
    }

    fn trial_of(&mut self, program: ProgramIndex, version: Version) -> Option<&mut Trial> {
        let trial = self.renewal.programs.get_mut(program)?.trial_mut()?;
        (trial.version == version).then_some(trial)
    }

    pub(super) fn note_trial_hello(&mut self, now: Mono, slot: SlotIndex) {
        let (program, version) = (self.slots[slot].program, self.slots[slot].version());
        if let Some(trial) = version.and_then(|version| self.trial_of(program, version)) {
            trial.ready_at.get_or_insert(now);
        }
    }

    pub(super) fn note_trial_job(&mut self, turn: &mut Turn<'_>, slot: SlotIndex, has_failed: bool) {
        let wanted = self.config.trial_jobs;
        let (program, version) = (self.slots[slot].program, self.slots[slot].version());
        let Some(trial) = version.and_then(|version| self.trial_of(program, version)) else { return };
        match has_failed {
            true => trial.jobs_failed += 1,
            false => trial.jobs_ok += 1,
        }
        if trial.jobs_ok + trial.jobs_failed < wanted {
            return;
        }
        let (has_done_one, version) = (trial.jobs_ok > 0, trial.version);
        match has_done_one {
            true => self.pass_trial(turn, program),
            false => {
                let why = format!("its first {wanted} jobs all failed");
                self.take_back_trial(turn, program, version, &why);
            }
        }
    }

    pub(super) fn note_trial_death(
        &mut self,
        turn: &mut Turn<'_>,
        program: ProgramIndex,
        worker: Worker,
        what: &str,
    ) {
        let why = format!("its worker ended with {what} after {} jobs", worker.jobs_done);
        self.take_back_trial(turn, program, worker.version, &why);
    }

    /// When the first trial ends because its version has lived long enough.
    pub(super) fn trial_ends_at(&self) -> Option<Mono> {
        let trials = self.renewal.programs.iter().filter_map(Versions::trial);
        trials.filter_map(|trial| Some(trial.ready_at? + self.config.trial_time)).min()
    }

    pub(super) fn end_trial_in_time(&mut self, turn: &mut Turn<'_>) {
        for program in 0..self.programs.len() {
            let ready_at = self.renewal.programs[program].trial().and_then(|trial| trial.ready_at);
            if ready_at.is_some_and(|ready_at| ready_at + self.config.trial_time <= turn.now) {
                self.pass_trial(turn, program);
            }
        }
    }

    fn pass_trial(&mut self, turn: &mut Turn<'_>, program: ProgramIndex) {
        let versions = &mut self.renewal.programs[program];
        if let Newer::OnTrial(trial) = &versions.newer {
            versions.good = trial.version;
            versions.newer = Newer::None;
            turn.push(Action::Log(Notice::TrialPassed { program }));
        }
    }

    /// Whether a version of this program is on trial.
    pub(super) fn has_trial(&self, program: ProgramIndex) -> bool {
        self.renewal.programs.get(program).is_some_and(|versions| versions.trial().is_some())
    }

    /// Takes a version back if it is on trial: the old one stays. True if it was.
    pub(super) fn take_back_trial(
        &mut self,
        turn: &mut Turn<'_>,
        program: ProgramIndex,
        version: Version,
        why: &str,
    ) -> bool {
        if self.trial_of(program, version).is_none() {
            return false;
        }
        self.renewal.programs[program].newer = Newer::None;
        if let Some(reload) = &mut self.renewal.reload {
            reload.rolled_back.get_or_insert_with(|| why.to_owned());
        }
        turn.push(Action::Log(Notice::RolledBack { program, why: why.to_owned() }));
        true
    }

    /// Ends a reload for a program whose workers cannot be started any more: the old workers stay.
    fn give_up_reload_if_stuck(&mut self) {
        let Some(reload) = &mut self.renewal.reload else { return };
        for (versions, program) in self.renewal.programs.iter_mut().zip(&self.programs) {
            if versions.trial().is_none() && program.restarts.is_refusing() {
                let why = || format!("no worker can be started: {}", program.restarts.why());
                reload.rolled_back.get_or_insert_with(why);
                versions.newer = Newer::GivenUp;
            }
        }
    }

    /// Answers the reload once only workers of the good version are left, or nothing more will be replaced.
    fn conclude_reload(&mut self, turn: &mut Turn<'_>) {
        self.give_up_reload_if_stuck();
        let is_done = |(program, versions): (ProgramIndex, &Versions)| {
            let is_old = |slot: &Slot| slot.version().is_some_and(|version| version != versions.good);
            let has_old = || self.slots.iter().any(|slot| slot.program == program && is_old(slot));
            match versions.newer {
                Newer::None => !has_old(),
                Newer::OnTrial(_) => false,
                Newer::GivenUp => true,
            }
        };
        let is_ending = self.phase != Phase::Running;
        if !is_ending && !self.renewal.programs.iter().enumerate().all(is_done) {
            return;
        }
        if let Some(Reload { version, rolled_back }) = self.renewal.reload.take() {
            let why = || is_ending.then(|| "the supervisor is ending".to_owned());
            turn.push(Action::Reloaded { version, rolled_back: rolled_back.or_else(why) });
            // Tasks that only the other version offered are no longer offered.
            (0..self.programs.len()).for_each(|program| self.settle_offers(program));
            self.place_parked(turn);
        }
    }
}

/// Read access for the shell.
impl Core {
    /// Whether a process of this version may still be started.
    pub fn may_start_version(&self, program: ProgramIndex, version: Version) -> bool {
        let versions = self.renewal.programs.get(program);
        versions.is_some_and(|versions| versions.good == version || versions.newest() == version)
    }
}

impl Versions {
    fn trial(&self) -> Option<&Trial> {
        match &self.newer {
            Newer::OnTrial(trial) => Some(trial),
            Newer::None | Newer::GivenUp => None,
        }
    }

    fn trial_mut(&mut self) -> Option<&mut Trial> {
        match &mut self.newer {
            Newer::OnTrial(trial) => Some(trial),
            Newer::None | Newer::GivenUp => None,
        }
    }

    fn newest(&self) -> Version {
        self.trial().map_or(self.good, |trial| trial.version)
    }
}

/// Replacing workers.
impl Core {
    /// Marks the worker in this place as to be replaced.
    pub(super) fn retire(&mut self, slot: SlotIndex, why: Retire) {
        let place = self.slot_mut(slot);
        if place.tenure == Tenure::Stays {
            place.tenure = Tenure::Retiring(why);
        }
        self.renewal.look_again();
    }

    /// Replaces what is to be replaced, one step further.
    pub(super) fn renew(&mut self, turn: &mut Turn<'_>) {
        if !self.renewal.is_active {
            return;
        }
        if self.phase == Phase::Running {
            (0..self.programs.len()).for_each(|program| self.follow_version(turn, program));
        }
        for slot in 0..self.slots.len() {
            match (self.slots[slot].role, self.slots[slot].tenure) {
                (Role::Surplus, _) => self.send_away(turn, slot),
                (Role::Work, Tenure::Retiring(why) | Tenure::Closing(why)) => self.replace(turn, slot, why),
                (Role::Spare, Tenure::Retiring(_) | Tenure::Closing(_)) => self.send_away(turn, slot),
                (Role::Work | Role::Spare, Tenure::Stays) => {}
            }
        }
        self.conclude_reload(turn);
        let is_busy = |slot: &Slot| slot.tenure != Tenure::Stays || slot.is_leftover();
        self.renewal.is_active = self.renewal.reload.is_some() || self.slots.iter().any(is_busy);
    }

    /// Marks workers that have another version than the wanted one: one worker while the new version is on trial, all
    /// of them afterwards. A spare is sent away at once.
    fn follow_version(&mut self, turn: &mut Turn<'_>, program: ProgramIndex) {
        let versions = &self.renewal.programs[program];
        let (wanted, is_trial) = (versions.newest(), versions.trial().is_some());
        let in_slot = self.slots_of(program).any(|slot| self.slots[slot].version() == Some(wanted));
        let has_one = self.has_process_of(program, wanted);
        for slot in 0..self.slots.len() {
            let place = &self.slots[slot];
            let is_old = place.program == program && place.version().is_some_and(|version| version != wanted);
            match place.role {
                Role::Spare if is_old && !(is_trial && has_one) => self.send_away(turn, slot),
                Role::Work if is_old && !is_trial && place.tenure == Tenure::Stays => {
                    self.retire(slot, Retire::Reload);
                }
                _ => {}
            }
        }
        if is_trial && !in_slot {
            self.make_room_for_trial(program, wanted);
        }
    }

    /// The first worker of a new version has to do jobs, so one old worker is replaced by it.
    fn make_room_for_trial(&mut self, program: ProgramIndex, wanted: Version) {
        let spare = self.spare().filter(|&spare| self.slots[spare].program == program);
        let spare_is_it = spare.is_none_or(|spare| self.slots[spare].version() == Some(wanted));
        let has_vacancy = self.slots_of(program).any(|slot| self.vacant.contains(&slot));
        let is_chosen = self.slots_of(program).any(|slot| self.slots[slot].tenure != Tenure::Stays);
        if !spare_is_it || has_vacancy || is_chosen {
            return;
        }
        let ready = |slot: &SlotIndex| self.slots[*slot].is_ready() && self.slots[*slot].role == Role::Work;
        let idle = |slot: &SlotIndex| matches!(self.slots[*slot].state, SlotState::Idle { .. });
        let first = self.slots_of(program).filter(ready).min_by_key(|slot| (!idle(slot), *slot));
        if let Some(slot) = first {
            self.retire(slot, Retire::Reload);
        }
    }

    /// Replaces one worker: it is given jobs until its replacement is ready, then no more jobs, and goes when it has
    /// none.
    fn replace(&mut self, turn: &mut Turn<'_>, slot: SlotIndex, why: Retire) {
        let program = self.slots[slot].program;
        let spare = self.spare().filter(|&spare| self.slots[spare].program == program);
        let ready_spare = spare.and_then(|_| self.ready_spare());
        let is_replaceable = match spare {
            Some(_) => ready_spare.is_some_and(|spare| self.is_right_spare(program, why, spare)),
            None => self.slots_of(program).all(|other| other == slot || self.is_served(other)),
        };
        // Only one worker of a program is replaced at a time.
        let is_another =
            self.slots_of(program).any(|other| other != slot && self.slots[other].tenure.is_closing());
        let is_closing = is_replaceable && !is_another;
        self.set_tenure(slot, if is_closing { Tenure::Closing(why) } else { Tenure::Retiring(why) });
        if !is_closing {
            return;
        }
        if !matches!(self.slots[slot].state, SlotState::Idle { .. }) {
            return self.ask_to_yield(turn, slot);
        }
        self.note_retirement(turn, slot);
        match ready_spare {
            Some(spare) => {
                self.exchange_with_spare(slot, spare);
                self.dismiss(turn, spare);
            }
            None => self.dismiss(turn, slot),
        }
    }

    /// Whether the spare is of use as a replacement: in a reload only if it has the wanted version.
    fn is_right_spare(&self, program: ProgramIndex, why: Retire, spare: SlotIndex) -> bool {
        let wanted = self.renewal.programs[program].newest();
        why != Retire::Reload || self.slots[spare].version() == Some(wanted)
    }

    fn is_served(&self, slot: SlotIndex) -> bool {
        self.slots[slot].is_ready() || self.slots[slot].role == Role::Surplus
    }

    /// Lets a worker go that nothing follows, as soon as it has no jobs.
    fn send_away(&mut self, turn: &mut Turn<'_>, slot: SlotIndex) {
        match self.slots[slot].state {
            SlotState::Idle { .. } => {
                self.note_retirement(turn, slot);
                self.dismiss(turn, slot);
            }
            SlotState::Starting { .. } => self.leave(turn, slot, Cause::Dismissed, Some(Kill::Term)),
            SlotState::Busy { .. } => self.ask_to_yield(turn, slot),
            SlotState::Vacant | SlotState::Leaving { .. } => self.slot_mut(slot).tenure = Tenure::Stays,
        }
    }

    fn note_retirement(&mut self, turn: &mut Turn<'_>, slot: SlotIndex) {
        let Some(worker) = self.slots[slot].worker() else { return };
        let why = match (self.slots[slot].role, self.slots[slot].tenure.retire()) {
            (Role::Surplus, _) => "there are more workers than configured",
            (_, Some(Retire::Jobs)) => "it has done as many jobs as it may",
            (_, Some(Retire::Age)) => "it is as old as it may get",
            (_, Some(Retire::Memory)) => "it uses more memory than it may",
            (_, Some(Retire::Reload) | None) => "another version of its program replaces it",
        };
        turn.push(Action::Log(Notice::WorkerRetires { worker, slot, why: why.to_owned() }));
    }

    fn set_tenure(&mut self, slot: SlotIndex, tenure: Tenure) {
        if self.slots[slot].tenure != tenure {
            self.slot_mut(slot).tenure = tenure;
        }
    }

    /// Asks the running job to yield, if it can go on in another worker.
    fn ask_to_yield(&mut self, turn: &mut Turn<'_>, slot: SlotIndex) {
        let Some(worker) = self.slots[slot].worker() else { return };
        let Some(running) = self.slots[slot].load().and_then(|load| load.running) else { return };
        let is_wanted = self.jobs.get(running.job).is_some();
        if !is_wanted || !running.yields || running.asked_to_yield {
            return;
        }
        if let Some(running) = self.slot_mut(slot).load_mut().and_then(|load| load.running.as_mut()) {
            running.asked_to_yield = true;
            turn.push(Action::Yield { worker, job: running.job });
        }
    }
}
