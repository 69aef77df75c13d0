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

/// What processes offer together: of each task, what the last of them says, and whether all that offer it take files. Each of the
/// sources is in the order of the names, so each name is only compared with its neighbours.
pub(crate) fn merged(sources: &[Arc<Offers>]) -> Offers {
    let mut all: Vec<(&Arc<str>, &Offered, bool)> = Vec::new();
    for source in sources.iter().rev() {
        let mut later = std::mem::take(&mut all).into_iter().peekable();
        for (name, offered) in &**source {
            all.extend(std::iter::from_fn(|| later.next_if(|(other, ..)| *other < name)));
            let known = later.next_if(|(other, ..)| *other == name);
            let (name, last, takes_files) = known.unwrap_or((name, offered, true));
            all.push((name, last, takes_files && offered.takes_files));
        }
        all.extend(later);
    }
    let offered = |last: &Offered, takes_files| Offered { offer: last.offer.clone(), takes_files };
    all.into_iter().map(|(name, last, takes_files)| (Arc::clone(name), offered(last, takes_files))).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// What several processes offer together, told name by name.
    fn one_after_another(sources: &[Arc<Offers>]) -> Offers {
        let mut all = Offers::new();
        for (name, Offered { offer, takes_files }) in sources.iter().flat_map(|source| source.iter()) {
            let takes_files = *takes_files && all.get(name).is_none_or(|before| before.takes_files);
            all.insert(name.clone(), Offered { offer: offer.clone(), takes_files });
        }
        all
    }

    #[test]
    fn what_processes_offer_together_is_what_is_found_by_going_through_them_one_after_another() {
        let mut random = Rng::new(7);
        let mut offered = |process: u32| {
            let number = random.below(20);
            let offer = TaskOffer { progress_ms: process, ..TaskOffer::new(format!("task-{number}")) };
            (Arc::from(&*offer.name), Offered { offer, takes_files: random.below(8) > 0 })
        };
        for processes in 0..200 {
            let mut source = |process| Arc::new((0..process * 7 % 12).map(|_| offered(process)).collect());
            let sources: Vec<Arc<Offers>> = (0..processes % 9).map(&mut source).collect();
            assert_eq!(merged(&sources), one_after_another(&sources));
        }
    }
}
