//! What a process offers, and what several offer together.

use super::{Promise, Registry};
use crate::ids::TaskIndex;
use crate::small_map::SmallMap;
use offload_protocol::nouns::{Batching, TaskOffer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One task that a process offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// What it says of the task.
    pub offer: TaskOffer<'static>,
    /// Whether the process reads inputs that are files by itself. Of several processes: whether all of them do.
    pub takes_files: bool,
}

impl Offered {
    /// How several jobs of it can run together, if they can.
    pub(crate) fn batching(&self) -> Option<Batching> {
        self.offer.check_batching().ok().and(self.offer.batching)
    }
}

/// Offers by the name of the task.
pub type Offers = BTreeMap<Arc<str>, Offered>;

/// What processes offer together: of each task, what the last of them says, and whether all that offer it take files.
pub(crate) fn merged<'a>(each: impl Iterator<Item = (&'a Arc<str>, &'a Offered)>) -> Offers {
    let mut all = Offers::new();
    for (name, Offered { offer, takes_files }) in each {
        let takes_files = *takes_files && all.get(name).is_none_or(|before| before.takes_files);
        all.insert(name.clone(), Offered { offer: offer.clone(), takes_files });
    }
    all
}

/// What one process offers.
#[derive(Debug)]
pub(crate) struct OffersOfWorker {
    all: Arc<Offers>,
    /// What it promises of each task that it offers, by the task's index: comparing names for each job is not necessary. A task on
    /// offer keeps its index, and this one is on offer for as long as the process lives.
    by_task: SmallMap<TaskIndex, Promise>,
}

impl OffersOfWorker {
    pub(crate) fn new(all: Arc<Offers>) -> OffersOfWorker {
        OffersOfWorker { all, by_task: SmallMap::default() }
    }

    /// Looks up its tasks in the registry, which has been told of them, unless that is done.
    pub(crate) fn learn_indexes(&mut self, registry: &Registry) {
        if self.by_task.len() != self.all.len() {
            let promise =
                |(name, offered): (&Arc<str>, _)| Some((registry.find(name)?, Promise::of(offered)));
            self.by_task = self.all.iter().filter_map(promise).collect();
        }
    }

    /// Whether these are the indexes of its tasks.
    pub(crate) fn check_indexes(&self, registry: &Registry) -> bool {
        let is_right = |name: &Arc<str>| {
            let index = registry.find(name);
            index
                .is_some_and(|index| self.by_task.get(&index).is_some() && registry.task(index).name == *name)
        };
        self.by_task.len() == self.all.len() && self.all.keys().all(is_right)
    }

    pub(crate) fn all(&self) -> &Arc<Offers> {
        &self.all
    }

    /// What it promises of the task; `None` if it does not offer the task.
    pub(crate) fn promise(&self, task: TaskIndex) -> Option<Promise> {
        self.by_task.get(&task).copied()
    }

    /// The same by the task's name.
    pub(crate) fn promise_of(&self, task: &str) -> Option<Promise> {
        self.all.get(task).map(Promise::of)
    }

    /// How it says that several jobs of a task can run together, if they can.
    pub(crate) fn batching_of(&self, task: &str) -> Option<Batching> {
        self.all.get(task).and_then(Offered::batching)
    }
}
