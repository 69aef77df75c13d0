//! Trays: one job may lie ready for a worker that is busy. Here is what is known of them; who is put where is in
//! `prefetch.rs`.
//!
//! ```text
//!            prefetched                  the worker has started it
//!   Empty -----------------> In the tray --------------------------------------------------> Empty
//!     ^                          |
//!     |                          | wanted back
//!     |                          v
//!     |<---- TakenBack -------- Asked ---- NotInTray: the worker has it and will start it, ----> Empty
//!     |  it never was there                or it was started meanwhile
//!     '---- TakenBack unasked: the process has ended, or the tray has failed
//! ```
//!
//! A job in a tray is the only waiting one of its worker. The worker may take it at any time between two jobs. The shell
//! answers each question once, before the worker's exit and before the next tick. At an exit it also reports, unasked, the
//! job that is still in the tray.

use super::Core;
use super::clients::ClientId;
use super::ids::{JobId, Mono, SlotIndex};
use super::queue::{Next, Rank};
use super::slots::{Load, Running, SlotState};
use crate::limits::TAKE_BACKS_MAX;
use std::collections::BTreeSet;

/// A job in the tray of its worker, as far as the core knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InTray {
    /// The job. It is the only one of its worker that waits.
    pub job: JobId,
    /// It is wanted back, and the answer is still to come.
    pub is_asked: bool,
    /// Its place in the order of all waiting jobs when it was chosen.
    pub(super) next: Next,
    pub(super) client: ClientId,
}

impl InTray {
    pub(super) fn new(next: Next, client: ClientId) -> InTray {
        InTray { job: next.job(), is_asked: false, next, client }
    }
}

/// In which list of trays a slot is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TrayState {
    /// In none: nothing can be put into its tray, and nothing is in it.
    #[default]
    None,
    /// Its tray is empty, and a job may be put into it behind the one that runs since `since`.
    Open { is_reserved: bool, since: Mono },
    /// A job lies behind the one that runs since `since`.
    Full { next: Next, client: ClientId, since: Mono },
    /// The worker has ended its job and has not said that it started the one in the tray.
    Untaken,
    /// The worker is no longer one that may have a job in its tray.
    Unfit,
    /// The job is wanted back.
    Asked,
}

/// The trays of one program in order.
#[derive(Debug, Default)]
pub(super) struct TrayLists {
    /// Empty ones, those of slots for any job first, then by the start of the job that runs.
    pub(super) open: BTreeSet<(bool, Mono, SlotIndex)>,
    /// Full ones, the most urgent job first.
    pub(super) full: BTreeSet<(Next, SlotIndex)>,
    /// Full ones by client, the most urgent job of each first.
    pub(super) by_client: BTreeSet<(ClientId, Rank, SlotIndex)>,
    /// Full ones by the start of the job that runs.
    pub(super) by_start: BTreeSet<(Mono, SlotIndex)>,
    /// Those whose job is wanted back.
    pub(super) asked: BTreeSet<SlotIndex>,
    /// Those whose workers have ended their job and not started this one.
    pub(super) untaken: BTreeSet<SlotIndex>,
    /// Those whose workers are not fit for one any more. Empty when everything is settled.
    pub(super) unfit: BTreeSet<SlotIndex>,
}

impl TrayLists {
    /// Moves a slot from one list to another.
    pub(super) fn list(&mut self, slot: SlotIndex, old: TrayState, new: TrayState) {
        if old == new {
            return;
        }
        match old {
            TrayState::None => {}
            TrayState::Open { is_reserved, since } => drop(self.open.remove(&(is_reserved, since, slot))),
            TrayState::Full { next, client, since } => {
                self.full.remove(&(next, slot));
                self.by_client.remove(&(client, next.rank(), slot));
                self.by_start.remove(&(since, slot));
            }
            TrayState::Untaken => drop(self.untaken.remove(&slot)),
            TrayState::Unfit => drop(self.unfit.remove(&slot)),
            TrayState::Asked => drop(self.asked.remove(&slot)),
        }
        match new {
            TrayState::None => {}
            TrayState::Open { is_reserved, since } => drop(self.open.insert((is_reserved, since, slot))),
            TrayState::Full { next, client, since } => {
                self.full.insert((next, slot));
                self.by_client.insert((client, next.rank(), slot));
                self.by_start.insert((since, slot));
            }
            TrayState::Untaken => drop(self.untaken.insert(slot)),
            TrayState::Unfit => drop(self.unfit.insert(slot)),
            TrayState::Asked => drop(self.asked.insert(slot)),
        }
    }

    /// How many slots are in one of the lists.
    pub(super) fn len(&self) -> usize {
        let full = self.full.len();
        self.open.len() + full + self.asked.len() + self.untaken.len() + self.unfit.len()
    }
}

impl Load {
    /// A job that was just added lies in the tray. Whether all jobs are tiny is to be found out again.
    pub(super) fn put_into_tray(&mut self, tray: Option<InTray>) {
        if tray.is_some() {
            self.tray = tray;
            self.tiny_as_of.set(0);
        }
    }

    /// The job that lies in the worker's tray, if it is this one.
    pub(super) fn in_tray(&self, job: JobId) -> Option<InTray> {
        self.tray.filter(|tray| tray.job == job)
    }
}

impl Core {
    /// The list of trays in which a slot is to be.
    pub(super) fn tray_state(&self, slot: SlotIndex) -> TrayState {
        let SlotState::Busy { worker, load, .. } = &self.slots[slot].state else { return TrayState::None };
        match (load.tray, load.running) {
            (Some(tray), _) if tray.is_asked => TrayState::Asked,
            (Some(_), _) if !self.is_accepting(slot) => TrayState::Unfit,
            (Some(_), None) => TrayState::Untaken,
            (Some(_), Some(running)) if !self.is_wanted(&running) => TrayState::Unfit,
            (Some(InTray { next, client, .. }), Some(running)) => {
                TrayState::Full { next, client, since: running.started_at }
            }
            (None, Some(running)) if worker.has_tray && self.may_be_followed(slot, &running, load) => {
                let is_reserved = self.slots[slot].is_reserved;
                TrayState::Open { is_reserved, since: running.started_at }
            }
            (None, _) => TrayState::None,
        }
    }

    fn may_be_followed(&self, slot: SlotIndex, running: &Running, load: &Load) -> bool {
        let is_alone = load.len() == 1;
        let may_do_more = || self.slots[slot].left_to_give() > 0;
        let is_fit = || self.is_accepting(slot) && !self.is_unproven(slot) && may_do_more();
        let may_be_followed = running.may_be_followed && running.taken_back < TAKE_BACKS_MAX;
        may_be_followed && is_alone && is_fit() && self.is_wanted(running)
    }

    /// Whether the running job has not been cancelled. The worker of one that has been may soon be ended.
    fn is_wanted(&self, running: &Running) -> bool {
        self.jobs.get(running.job).is_some()
    }

    /// Whether some worker has ended its job without a word of the one in its tray. When everything is read that workers
    /// have sent until now, this is an [`EndOfTurn`](crate::event::Event::EndOfTurn).
    pub fn has_untaken(&self) -> bool {
        self.programs.iter().any(|program| !program.trays.untaken.is_empty())
    }
}
