//! Which tasks there are, who offers them, and how long they take.

use super::ids::{ProgramIndex, TaskIndex};
use super::jobs::Expected;
use super::run_times::RunTimes;
use crate::limits::{LONG_RUN, TINY_RUN};
use offload_protocol::limits::{INLINE_PAYLOAD_MAX, TASK_NAME_MAX};
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
    /// What is promised of it by the newest process that offers it. For an attempt it counts what the process promises
    /// that makes it: another one may say something else.
    pub promise: Promise,
    /// Where it runs.
    pub lane: Lane,
    /// How long its runs took, by the size of the input.
    by_size: BTreeMap<u32, RunTimes>,
    /// How long its runs took.
    runs: RunTimes,
    /// Moving average of its run times in nanoseconds; nothing is known of it before the first run.
    average_run: Option<u64>,
    /// Length of its recent outputs, by the size of the input.
    outputs: BTreeMap<u32, u64>,
}

/// What one process promises of one of its tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// Whether a job whose worker died may be tried again.
    pub idempotent: bool,
    /// It works in steps, and its worker starts whatever has come between two of them.
    pub is_stepped: bool,
    /// It can be asked to give its place up.
    pub yields: bool,
    /// It says how far it is at least so often.
    pub progress: Option<Duration>,
}

impl Promise {
    /// As a process gave it.
    pub fn of(offer: &TaskOffer<'_>) -> Promise {
        let interval = Duration::from_millis(offer.progress_ms.into());
        Promise {
            idempotent: offer.idempotent,
            is_stepped: offer.stepped,
            yields: offer.stepped && offer.checkpoints,
            progress: (!interval.is_zero()).then_some(interval),
        }
    }

    /// Others may be run between its steps: it has steps, and no harm is done if one of the others ends the worker.
    pub fn lets_others_in(self) -> bool {
        self.is_stepped && self.idempotent
    }
}

impl Task {
    fn new(program: ProgramIndex, offer: &TaskOffer<'_>) -> Task {
        let mut task = Task {
            name: Arc::from(&*offer.name),
            program,
            promise: Promise::default(),
            lane: Lane::default(),
            by_size: BTreeMap::new(),
            runs: RunTimes::default(),
            average_run: None,
            outputs: BTreeMap::new(),
        };
        task.take(program, offer);
        task
    }

    /// What is promised of it now. What was learned stays.
    fn take(&mut self, program: ProgramIndex, offer: &TaskOffer<'_>) {
        self.program = program;
        self.promise = Promise::of(offer);
        self.lane = offer.lane;
    }

    /// Whether its runs have been so short, and its outputs so small, that several may be given to one worker at a time.
    pub fn is_tiny(&self) -> bool {
        self.average_run.is_some_and(|nanos| u128::from(nanos) < TINY_RUN.as_nanos())
            && self.outputs.values().all(|bytes| *bytes <= INLINE_PAYLOAD_MAX as u64)
    }

    /// What a run with an input of so many bytes is likely to return: nothing, if nothing is known.
    pub fn likely_output(&self, input_bytes: u64) -> u64 {
        self.likely_output_of(size_of(input_bytes))
    }

    /// The same, for an input of this size.
    pub fn likely_output_of(&self, size: u32) -> u64 {
        self.outputs.get(&size).copied().unwrap_or(0)
    }

    /// Takes an output into account.
    pub fn returned(&mut self, input_bytes: u64, output_bytes: u64) {
        let size = size_of(input_bytes);
        self.outputs.insert(size, likely_output(self.outputs.get(&size).copied(), output_bytes));
    }

    /// What is to be expected of a run with an input of so many bytes. What never ran counts as long.
    pub fn expected(&self, input_bytes: u64) -> Expected {
        let of_this_size = self.by_size.get(&size_of(input_bytes));
        let times = of_this_size.unwrap_or(&self.runs);
        let is_short = times.quantile(90).is_some_and(|most| most <= LONG_RUN);
        Expected { run: times.mean(), class: if is_short { Class::Short } else { Class::Long } }
    }

    /// Takes a run into account. A long one counts in full, so that one surprise ends the batching.
    pub fn ran(&mut self, input_bytes: u64, run: Duration) {
        self.runs.add(run);
        self.by_size.entry(size_of(input_bytes)).or_default().add(run);
        let nanos = u64::try_from(run.as_nanos()).unwrap_or(u64::MAX);
        self.average_run = Some(match self.average_run {
            Some(average) if nanos < average => average - (average - nanos) / 8,
            Some(average) if run < TINY_RUN => average + (nanos - average) / 8,
            _ => nanos,
        });
    }
}

/// Inputs within a factor of sixteen are taken to cost alike, so there are at most 17 sizes.
pub(super) fn size_of(input_bytes: u64) -> u32 {
    (u64::BITS - input_bytes.leading_zeros()).div_ceil(4)
}

/// A class of jobs: short ones find a slot even while long ones keep many busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Nine of ten runs like it took at most [`LONG_RUN`].
    Short,
    /// All others.
    Long,
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
    /// What each program offers.
    offered: BTreeMap<ProgramIndex, Offers>,
}

/// What is offered, by the names of the tasks.
pub type Offers = BTreeMap<Arc<str>, TaskOffer<'static>>;

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

    /// Takes what a worker of `program` offers. Where two programs offer the same, the first program has it for as long
    /// as it offers it.
    pub fn offer(&mut self, program: ProgramIndex, offers: Offers) -> Changes {
        let now: Vec<Arc<str>> = offers.keys().cloned().collect();
        let old = self.offered.insert(program, offers).unwrap_or_default();
        let mut changes = Changes { gone: Vec::new(), has_moved: false };
        for name in old.into_keys().chain(now) {
            self.hand_over(&name, &mut changes);
        }
        changes
    }

    /// Gives a task to the first program that offers it, or takes it off the list.
    fn hand_over(&mut self, name: &Arc<str>, changes: &mut Changes) {
        let owner = self.offered.iter().find_map(|(&program, offers)| Some((program, offers.get(name)?)));
        let known = self.by_name.get(name).copied();
        match (owner, known) {
            (Some((program, offer)), Some(index)) => {
                let task = &mut self.tasks[index];
                changes.has_moved |= task.program != program;
                task.take(program, offer);
            }
            (Some((program, offer)), None) => {
                let task = Task::new(program, offer);
                self.by_name.insert(task.name.clone(), self.tasks.len());
                self.tasks.push(task);
            }
            (None, Some(index)) => {
                self.by_name.remove(name);
                changes.gone.push(index);
            }
            (None, None) => {}
        }
    }

    /// What to tell somebody who asked for a task that is not there: the known ones, the nearest first.
    pub fn nearest(&self, wanted: &str) -> Vec<Arc<str>> {
        let wanted = cut(wanted, TASK_NAME_MAX);
        let mut names: Vec<_> = self.by_name.keys().cloned().collect();
        names.sort_by_cached_key(|name| (strsim::damerau_levenshtein(wanted, name), name.clone()));
        names
    }
}

/// How long the next output is likely to be, after one of this length. A long one counts in full, so that one surprise ends
/// the batching.
pub(super) fn likely_output(before: Option<u64>, output_bytes: u64) -> u64 {
    let before = before.unwrap_or(output_bytes);
    output_bytes.max(before - before.saturating_sub(output_bytes).div_ceil(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(names: &[&'static str]) -> Offers {
        names.iter().map(|&name| (Arc::from(name), TaskOffer::new(name))).collect()
    }

    #[test]
    fn the_first_program_has_a_task_that_two_offer() {
        let mut registry = Registry::default();
        registry.offer(1, offers(&["sum", "sort"]));
        assert!(registry.offer(0, offers(&["sum"])).has_moved);
        assert!(!registry.offer(1, offers(&["sum", "sort"])).has_moved);
        let programs: Vec<_> = registry.on_offer().map(|task| (&*task.name, task.program)).collect();
        assert_eq!(programs, [("sort", 1), ("sum", 0)]);
    }

    #[test]
    fn a_task_that_is_not_offered_any_more_is_gone() {
        let mut registry = Registry::default();
        registry.offer(0, offers(&["old", "both"]));
        let changes = registry.offer(0, offers(&["new", "both"]));
        assert_eq!(changes.gone.len(), 1);
        assert_eq!(registry.find("old"), None);
        assert!(registry.find("new").is_some());
    }

    #[test]
    fn a_task_that_its_program_gives_up_goes_to_the_next_one_that_offers_it() {
        let mut registry = Registry::default();
        registry.offer(0, offers(&["both"]));
        registry.offer(1, offers(&["both"]));
        let changes = registry.offer(0, offers(&["other"]));
        assert!(changes.has_moved && changes.gone.is_empty());
        assert_eq!(registry.find("both").map(|index| registry.task(index).program), Some(1));
    }

    #[test]
    fn the_nearest_name_comes_first() {
        let mut registry = Registry::default();
        registry.offer(0, offers(&["average", "primes", "echo"]));
        assert_eq!(&*registry.nearest("prime")[0], "primes");
    }

    #[test]
    fn one_long_run_ends_the_batching_and_short_ones_bring_it_back() {
        let mut task = Task::new(0, &TaskOffer::new("x"));
        assert!(!task.is_tiny(), "nothing is known yet");
        task.ran(1, Duration::from_micros(3));
        assert!(task.is_tiny());
        task.ran(1, Duration::from_millis(20));
        assert!(!task.is_tiny());
        for _ in 0..60 {
            task.ran(1, Duration::from_micros(3));
        }
        assert!(task.is_tiny());
    }

    #[test]
    fn one_large_output_ends_the_batching_and_small_ones_bring_it_back() {
        let mut task = Task::new(0, &TaskOffer::new("x"));
        task.ran(1, Duration::from_micros(3));
        task.returned(1, 10);
        assert!(task.is_tiny());
        task.returned(1, 60 << 20);
        assert!(!task.is_tiny());
        assert_eq!((task.likely_output(2), task.likely_output(1 << 20)), (60 << 20, 0));
        for _ in 0..150 {
            task.returned(1, 10);
        }
        assert!(task.is_tiny());
        assert_eq!(task.likely_output(1), 10);
    }

    #[test]
    fn a_large_input_does_not_make_a_small_one_long() {
        let mut task = Task::new(0, &TaskOffer::new("x"));
        assert_eq!(task.expected(10).class, Class::Long, "nothing is known yet");
        for _ in 0..10 {
            task.ran(10, Duration::from_millis(1));
            task.ran(1_000_000, Duration::from_secs(1));
        }
        assert_eq!(task.expected(10).class, Class::Short);
        assert_eq!(task.expected(900_000).class, Class::Long);
        assert_eq!(task.expected(100_000_000).class, Class::Long, "nothing of that size ever ran");
        assert!(task.expected(900_000).run > Some(Duration::from_millis(900)));
    }
}
