//! Which tasks there are, who offers them, and how long they take.

use super::ids::{ProgramIndex, TaskIndex};
use crate::limits::SHORT_RUN;
use offload_protocol::limits::TASK_NAME_MAX;
use offload_protocol::nouns::{Lane, TaskOffer, cut};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// One task on offer.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its name.
    pub name: Arc<str>,
    /// The program that offers it.
    pub program: ProgramIndex,
    /// Whether a job whose worker died may be tried again.
    pub idempotent: bool,
    /// Where it runs.
    pub lane: Lane,
    /// Moving average of its run times in nanoseconds; nothing is known of it before the first run.
    average_run: Option<u64>,
}

impl Task {
    /// Whether its runs have been so short that several may be given to one worker at a time.
    pub fn is_short(&self) -> bool {
        self.average_run.is_some_and(|nanos| u128::from(nanos) < SHORT_RUN.as_nanos())
    }

    /// Takes a run into account. A long one counts in full, so that one surprise ends the batching.
    pub fn ran(&mut self, run: Duration) {
        let nanos = u64::try_from(run.as_nanos()).unwrap_or(u64::MAX);
        self.average_run = Some(match self.average_run {
            Some(average) if nanos < average => average - (average - nanos) / 8,
            Some(average) if run < SHORT_RUN => average + (nanos - average) / 8,
            _ => nanos,
        });
    }
}

/// What an offer has changed for tasks that were known before.
#[derive(Debug)]
pub struct Changes {
    /// The program has ceased to offer these.
    pub gone: Vec<TaskIndex>,
    /// A task that another program had is now this one's.
    pub has_moved: bool,
}

/// All tasks. A task keeps its index for as long as the supervisor runs.
#[derive(Debug, Default)]
pub struct Registry {
    tasks: Vec<Task>,
    by_name: BTreeMap<Arc<str>, TaskIndex>,
}

impl Registry {
    /// The index of the task of this name.
    pub fn find(&self, name: &str) -> Option<TaskIndex> {
        self.by_name.get(name).copied()
    }

    /// The task at `index`.
    pub fn task(&self, index: TaskIndex) -> &Task {
        &self.tasks[index]
    }

    /// The task at `index`.
    pub fn task_mut(&mut self, index: TaskIndex) -> &mut Task {
        &mut self.tasks[index]
    }

    /// All tasks that are on offer, by name.
    pub fn on_offer(&self) -> impl Iterator<Item = &Task> {
        self.by_name.values().map(|&index| &self.tasks[index])
    }

    /// Takes what a worker of `program` offers. Where two programs offer the same, the first program has it.
    pub fn offer(&mut self, program: ProgramIndex, offers: &[TaskOffer<'static>]) -> Changes {
        let mut has_moved = false;
        for offer in offers {
            match self.find(&offer.name) {
                Some(index) if self.tasks[index].program < program => {}
                Some(index) => {
                    let task = &mut self.tasks[index];
                    has_moved |= task.program != program;
                    task.program = program;
                    task.idempotent = offer.idempotent;
                    task.lane = offer.lane;
                }
                None => self.add(program, offer),
            }
        }
        let tasks = &self.tasks;
        let is_gone = |index: TaskIndex| {
            let task = &tasks[index];
            task.program == program && !offers.iter().any(|offer| *offer.name == *task.name)
        };
        let gone: Vec<TaskIndex> = self.by_name.values().copied().filter(|&index| is_gone(index)).collect();
        self.by_name.retain(|_, index| !gone.contains(index));
        Changes { gone, has_moved }
    }

    fn add(&mut self, program: ProgramIndex, offer: &TaskOffer<'static>) {
        let name: Arc<str> = Arc::from(&*offer.name);
        self.by_name.insert(name.clone(), self.tasks.len());
        self.tasks.push(Task {
            name,
            program,
            idempotent: offer.idempotent,
            lane: offer.lane,
            average_run: None,
        });
    }

    /// What to tell somebody who asked for a task that is not there: the known ones, the nearest first.
    pub fn nearest(&self, wanted: &str) -> Vec<Arc<str>> {
        let wanted = cut(wanted, TASK_NAME_MAX);
        let mut names: Vec<_> = self.by_name.keys().cloned().collect();
        names.sort_by_cached_key(|name| (strsim::damerau_levenshtein(wanted, name), name.clone()));
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(names: &[&'static str]) -> Vec<TaskOffer<'static>> {
        names.iter().map(|&name| TaskOffer { idempotent: true, ..TaskOffer::new(name) }).collect()
    }

    #[test]
    fn the_first_program_has_a_task_that_two_offer() {
        let mut registry = Registry::default();
        registry.offer(1, &offers(&["sum", "sort"]));
        assert!(registry.offer(0, &offers(&["sum"])).has_moved);
        assert!(!registry.offer(1, &offers(&["sum", "sort"])).has_moved);
        let programs: Vec<_> = registry.on_offer().map(|task| (&*task.name, task.program)).collect();
        assert_eq!(programs, [("sort", 1), ("sum", 0)]);
    }

    #[test]
    fn a_task_that_is_not_offered_any_more_is_gone() {
        let mut registry = Registry::default();
        registry.offer(0, &offers(&["old", "both"]));
        let changes = registry.offer(0, &offers(&["new", "both"]));
        assert_eq!(changes.gone.len(), 1);
        assert_eq!(registry.find("old"), None);
        assert!(registry.find("new").is_some());
    }

    #[test]
    fn the_nearest_name_comes_first() {
        let mut registry = Registry::default();
        registry.offer(0, &offers(&["average", "primes", "echo"]));
        assert_eq!(&*registry.nearest("prime")[0], "primes");
    }

    #[test]
    fn one_long_run_ends_the_batching_and_short_ones_bring_it_back() {
        let mut task =
            Task { name: "x".into(), program: 0, idempotent: true, lane: Lane::Cpu, average_run: None };
        assert!(!task.is_short(), "nothing is known yet");
        task.ran(Duration::from_micros(3));
        assert!(task.is_short());
        task.ran(Duration::from_millis(20));
        assert!(!task.is_short());
        for _ in 0..60 {
            task.ran(Duration::from_micros(3));
        }
        assert!(task.is_short());
    }
}
