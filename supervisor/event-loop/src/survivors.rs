//! What may outlive the loop and keeps callbacks for it in a place of its own, such as a pool of threads.
//!
//! Nobody calls those callbacks once the loop is dropped, so they are dropped with it. They may own what keeps them, and the two
//! would own each other for ever.

use std::rc::{Rc, Weak};

use super::LoopHandle;
use super::slab::{Slab, SlabKey};
use super::state::Shared;

/// It is told when the loop is dropped.
pub(crate) trait Survivor {
    /// No callback that waits here will ever be called, and none that comes from here on.
    fn on_loop_gone(&self);
}

pub(super) type Survivors = Slab<Weak<dyn Survivor>>;

/// The entry of a survivor in the loop's list. Dropping it takes the survivor off.
pub(crate) struct SurvivorEntry {
    shared: Rc<Shared>,
    key: SlabKey,
}

impl LoopHandle {
    /// If the loop is gone already, the survivor has to ask for that itself.
    pub(crate) fn tell_when_gone(&self, survivor: Weak<dyn Survivor>) -> SurvivorEntry {
        let key = self.shared.survivors.borrow_mut().insert(survivor);
        SurvivorEntry { shared: Rc::clone(&self.shared), key }
    }
}

impl Drop for SurvivorEntry {
    fn drop(&mut self) {
        self.shared.survivors.borrow_mut().remove(self.key);
    }
}

impl Shared {
    pub(super) fn tell_survivors(&self) {
        // What they drop may make or drop another one.
        let survivors: Vec<_> = self.survivors.borrow().iter().filter_map(Weak::upgrade).collect();
        survivors.iter().for_each(|survivor| survivor.on_loop_gone());
    }
}
