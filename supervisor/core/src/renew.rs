//! Replaces healthy workers: worn ones, those of another version of their program, and those that are too many. Jobs
//! are not affected: a worker goes only when it has no job and, if there is a spare, only when the spare is ready to
//! take its place. None goes while it is not known whether what would be started instead works (`trial.rs`).
//!
//! One that has done as many jobs as it may does not wait for a replacement: it was given no more jobs than these, those in its
//! tray, between its steps and in batches included, so it has none and goes at once. It stays, and is given jobs, only
//! while it is not known whether what would be started instead works, or the last start has failed.
//!
//! ```text
//!   the tenure of one worker:
//!
//!             it is to be replaced              a replacement is ready
//!     Stays ----------------------> Retiring ---------------------------> Closing --- it has no job ---> dismissed
//!                                  given jobs <------------------------- given none
//!                                              the replacement is lost   (asked to yield)
//!
//!   a reload:
//!
//!     OnTrial: beside the other workers, one of the new version for each program
//!       |--- all of these prove themselves --------> Following: they take over one slot each, the others follow
//!       '--- one of them fails --------------------> TakenBack: they go, all others stay
//! ```

use super::action::{Action, Kill, Notice, ReloadEnd};
use super::ids::{ProgramIndex, SlotIndex, Version};
use super::slots::{Cause, Retire, Role, Slot, SlotState, Tenure, Worker};
use super::trial::Trust;
use super::turn::Turn;
use super::{Core, Phase};

/// The version, the reload that is under way, and whether anything is to be replaced.
#[derive(Debug)]
pub(super) struct Renewal {
    /// The version that has shown that it works. It is that of all programs: a reload is decided for all at once.
    pub(super) good: Version,
    pub(super) reload: Option<Reload>,
    /// For each program, what is known of the file on disk.
    pub(super) programs: Vec<Trust>,
    /// Something is to be replaced, so [`Core::renew`] has work to do after every event.
    is_active: bool,
}

/// A reload that is not answered yet.
#[derive(Debug)]
pub(super) struct Reload {
    pub(super) version: Version,
    pub(super) stage: Stage,
}

/// How far a reload is: the states in the picture above.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// No worker was replaced yet.
    OnTrial,
    /// The version is good, and the others follow.
    Following,
    /// The version of this program failed, for this reason.
    TakenBack(ProgramIndex, String),
}

impl Renewal {
    pub(super) fn new(programs: usize) -> Renewal {
        Renewal {
            good: Version::default(),
            reload: None,
            programs: (0..programs).map(|_| Trust::default()).collect(),
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
        let newest = self.tried_version().unwrap_or(self.renewal.good);
        if self.phase != Phase::Running || version <= newest {
            let why = "there is a newer version, or the supervisor is ending".to_owned();
            return turn.push(Action::Reloaded { version, end: ReloadEnd::OldStay(why) });
        }
        self.cut_reload_short(turn, "another reload came before it was done");
        self.begin_trials(version);
    }

    /// The version of the next process in this place.
    pub(super) fn version_to_start(&self, slot: SlotIndex) -> Version {
        let tried = self.tried_version().filter(|_| self.slots[slot].role == Role::Trial);
        tried.unwrap_or(self.renewal.good)
    }

    /// Answers a reload that is not done.
    fn cut_reload_short(&mut self, turn: &mut Turn<'_>, why: &str) {
        let Some(Reload { version, stage }) = self.renewal.reload.take() else { return };
        let end = match stage {
            Stage::OnTrial => ReloadEnd::OldStay(why.to_owned()),
            Stage::Following => ReloadEnd::SomeStay(why.to_owned()),
            Stage::TakenBack(program, why) => ReloadEnd::TakenBack { program, why },
        };
        turn.push(Action::Reloaded { version, end });
    }

    /// Answers the reload once only workers of the good version are left, or nothing more will be replaced.
    fn conclude_reload(&mut self, turn: &mut Turn<'_>) {
        let Some(reload) = &self.renewal.reload else { return };
        if self.phase != Phase::Running {
            self.end_trials();
            self.cut_reload_short(turn, "the supervisor is ending");
        } else {
            let is_other = |slot: &Slot| slot.version().is_some_and(|version| version != self.renewal.good);
            let has_other = self.slots.iter().any(is_other);
            let is_left = |slot: &Slot| slot.role == Role::Surplus && is_other(slot);
            let stuck = self.programs.iter().find(|program| program.restarts.is_refusing());
            let end = match &reload.stage {
                Stage::OnTrial => return,
                Stage::Following if !has_other => ReloadEnd::Done,
                Stage::Following => match stuck {
                    Some(program) => {
                        ReloadEnd::SomeStay(format!("no worker can be started: {}", program.restarts.why()))
                    }
                    None => return,
                },
                Stage::TakenBack(..) if self.slots.iter().any(is_left) => return,
                Stage::TakenBack(program, why) => {
                    ReloadEnd::TakenBack { program: *program, why: why.clone() }
                }
            };
            let version = reload.version;
            self.renewal.reload = None;
            turn.push(Action::Reloaded { version, end });
        }
        // Tasks that only the other version offered are no longer offered.
        self.programs_of_workers().for_each(|program| self.settle_offers(program));
        self.place_parked(turn);
    }
}

/// Read access for the shell.
impl Core {
    /// Whether a process of this version may still be started.
    pub fn may_start_version(&self, version: Version) -> bool {
        self.renewal.good == version || self.tried_version() == Some(version)
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
        for program in self.programs_of_workers() {
            if self.phase == Phase::Running && self.is_trusted(program) {
                self.follow_version(turn, program);
            }
        }
        for slot in 0..self.slots.len() {
            let is_trusted = self.is_trusted(self.slots[slot].program);
            match (self.slots[slot].role, self.slots[slot].tenure) {
                (Role::Surplus, _) => self.send_away(turn, slot),
                (Role::Trial, _) if self.slots[slot].version() != self.tried_version() => {
                    self.send_away(turn, slot);
                }
                (Role::Work, Tenure::Closing(why)) if !is_trusted => {
                    self.set_tenure(slot, Tenure::Retiring(why));
                }
                (Role::Work, Tenure::Retiring(why) | Tenure::Closing(why)) if is_trusted => {
                    let is_worn_out = self.slots[slot].ready_worker().is_some_and(Worker::is_worn_out);
                    self.replace(turn, slot, if is_worn_out { Retire::Jobs } else { why });
                }
                (Role::Spare, Tenure::Retiring(_) | Tenure::Closing(_)) if is_trusted => {
                    self.send_away(turn, slot);
                }
                (Role::Work | Role::Spare | Role::Trial, _) => {}
            }
        }
        self.conclude_reload(turn);
        let is_busy = |slot: &Slot| slot.tenure != Tenure::Stays || slot.is_leftover();
        self.renewal.is_active = self.renewal.reload.is_some() || self.slots.iter().any(is_busy);
    }

    /// Marks workers that have another version than the good one. A spare is sent away at once.
    fn follow_version(&mut self, turn: &mut Turn<'_>, program: ProgramIndex) {
        let good = self.renewal.good;
        for slot in 0..self.slots.len() {
            let place = &self.slots[slot];
            let is_old = place.program == program && place.version().is_some_and(|version| version != good);
            match place.role {
                Role::Spare if is_old => self.send_away(turn, slot),
                Role::Work if is_old && place.tenure == Tenure::Stays => self.retire(slot, Retire::Reload),
                _ => {}
            }
        }
    }

    /// Replaces one worker: it is given jobs until its replacement is ready, unless it has done all that it may, then no more
    /// jobs, and goes when it has none.
    fn replace(&mut self, turn: &mut Turn<'_>, slot: SlotIndex, why: Retire) {
        let program = self.slots[slot].program;
        let spare = self.spare().filter(|&spare| self.slots[spare].program == program);
        let ready_spare = spare.and_then(|_| self.ready_spare());
        let is_replaceable = match spare {
            Some(_) => ready_spare.is_some_and(|spare| self.is_right_spare(why, spare)),
            None => self.slots_of(program).all(|other| other == slot || self.is_served(other)),
        };
        // Only one worker of a program is replaced at a time.
        let is_another =
            self.slots_of(program).any(|other| other != slot && self.slots[other].tenure.is_closing());
        let is_worn_out = why == Retire::Jobs && self.programs[program].restarts.failures() == 0;
        let is_closing = is_worn_out || (is_replaceable && !is_another);
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
                self.exchange_with(slot, spare);
                self.dismiss(turn, spare);
            }
            None => self.dismiss(turn, slot),
        }
    }

    /// Whether the spare is of use as a replacement: in a reload only if it has the wanted version.
    fn is_right_spare(&self, why: Retire, spare: SlotIndex) -> bool {
        why != Retire::Reload || self.slots[spare].version() == Some(self.renewal.good)
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
            (_, Some(Retire::Jobs)) => "it has done as many jobs as it may",
            (_, Some(Retire::Age)) => "it is as old as it may get",
            (_, Some(Retire::Memory)) => "it uses more memory than it may",
            (Role::Surplus, None) => "there are more workers than configured",
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
