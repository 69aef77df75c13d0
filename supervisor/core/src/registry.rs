//! The registry of tasks: which program offers each task, what its workers promise of it, and how long its runs and
//! outputs have been.
//!
//! ```text
//!                       nobody offers it             more than GONE_TASKS_MAX of them: the oldest that nothing refers to
//!   a task on offer -----------------------> gone ---------------------------------------------------------------> forgotten
//!      ^       ^                              |                                                                       |
//!      |       '------------------------------'                                                                       |
//!      |        somebody offers it again: the same task, with what was learned                                        |
//!      '------------------------------------------------ its place, for a task of another name <----------------------'
//! ```
//!
//! A program can offer other names with each of its workers, for as long as the supervisor runs. So what is known of tasks is bounded
//! by what is on offer: a program may offer [`TASKS_OF_PROGRAM_MAX`](crate::limits::TASKS_OF_PROGRAM_MAX) at a time, and of those that
//! are gone, [`GONE_TASKS_MAX`] are remembered, for who still asks for one. Jobs and pauses refer to a task by its index. That
//! could have been a counter in each task, changed wherever a job begins, moves or ends. It is found out by a look at all jobs
//! instead, which only happens when a task is forgotten: tasks that go move all waiting jobs anyway.

use super::ids::{ProgramIndex, TaskIndex};
use super::lookup::Lookup;
use super::run_times::RunTimes;
use super::small_map::SmallMap;
use crate::limits::{GONE_TASKS_MAX, TINY_RUN};
use offload_protocol::limits::INLINE_PAYLOAD_MAX;
use offload_protocol::nouns::{Batching, Lane};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

mod backlog;
mod nearest;
mod offers;

use backlog::Backlog;
pub(super) use backlog::Overdue;
pub use offers::{Offered, Offers};
pub(super) use offers::{OffersOfWorker, merged};

/// One task on offer, with what was learned of it.
#[derive(Clone, Debug)]
pub struct Task {
    /// The name of the task. Empty for the place of a task that was forgotten.
    pub name: Arc<str>,
    /// The program that offers it.
    pub program: ProgramIndex,
    /// What the newest process that offers the task promises of it. An attempt is bound by the promise of the process
    /// that runs it, which may differ.
    pub promise: Promise,
    /// The lane that its offer names.
    pub lane: Lane,
    /// How its offer says that several of its jobs can run together. Only a task that may be run twice does.
    pub batching: Option<Batching>,
    /// How long its runs took, by the size class of the input.
    by_size: SmallMap<u32, RunTimes>,
    /// How long its runs took, over all sizes.
    runs: RunTimes,
    /// Moving average of its run times in nanoseconds; `None` before the first run.
    average_run: Option<u64>,
    /// The last of its jobs on a worker that has proved itself failed, or ran too long.
    pub fails: bool,
    /// The last of its jobs on a worker that has proved itself ended that worker.
    pub ends_workers: bool,
    /// Some program offers it.
    is_on_offer: bool,
    /// The likely length of its next output in bytes, by the size class of the input.
    outputs: SmallMap<u32, u64>,
    /// How many of these are not small.
    large_outputs: usize,
    /// Its jobs that wait.
    backlog: Backlog,
}

/// What one process promises of one of its tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// The task is idempotent: a job whose worker died may be tried again.
    pub idempotent: bool,
    /// The task works in steps. Between two of them its worker starts a job that has come.
    pub is_stepped: bool,
    /// A job of this task can be asked to yield its worker to others.
    pub yields: bool,
    /// The process reads inputs that are files by itself.
    pub takes_files: bool,
    /// The task reports progress at least this often, in milliseconds.
    progress_ms: Option<NonZeroU32>,
}

impl Promise {
    /// The promise in a worker's offer.
    pub fn of(offered: &Offered) -> Promise {
        let Offered { offer, takes_files } = offered;
        Promise {
            takes_files: *takes_files,
            idempotent: offer.idempotent,
            is_stepped: offer.stepped,
            yields: offer.stepped && offer.checkpoints,
            progress_ms: NonZeroU32::new(offer.progress_ms),
        }
    }

    /// The task reports progress at least this often.
    pub fn progress(self) -> Option<Duration> {
        self.progress_ms.map(|millis| Duration::from_millis(millis.get().into()))
    }

    /// Whether other jobs may run between its steps: it has steps, and it may be tried again if one of the others
    /// ends the worker.
    pub fn lets_others_in(self) -> bool {
        self.is_stepped && self.idempotent
    }
}

impl Task {
    fn new(program: ProgramIndex, offered: &Offered) -> Task {
        let mut task = Task { name: Arc::from(&*offered.offer.name), ..Task::nothing() };
        task.take(program, offered);
        task
    }

    /// What is in the place of a task that was forgotten.
    fn nothing() -> Task {
        Task {
            name: Arc::from(""),
            program: 0,
            promise: Promise::default(),
            lane: Lane::default(),
            batching: None,
            by_size: SmallMap::default(),
            runs: RunTimes::default(),
            average_run: None,
            fails: false,
            ends_workers: false,
            is_on_offer: false,
            outputs: SmallMap::default(),
            large_outputs: 0,
            backlog: Backlog::default(),
        }
    }

    /// Takes over the newest offer. What was learned from runs stays.
    fn take(&mut self, program: ProgramIndex, offered: &Offered) {
        self.is_on_offer = true;
        self.program = program;
        self.promise = Promise::of(offered);
        self.lane = offered.offer.lane;
        self.batching = offered.batching();
    }

    /// Whether its runs have been so short, and its outputs so small, that several of its jobs may be given to one
    /// worker at a time.
    pub fn is_tiny(&self) -> bool {
        self.average_run.is_some_and(|nanos| u128::from(nanos) < TINY_RUN.as_nanos())
            && self.has_small_outputs()
    }

    /// Whether its outputs have been so small that jobs of other clients may wait behind one of them.
    pub fn has_small_outputs(&self) -> bool {
        self.large_outputs == 0
    }

    /// The likely length of the output in bytes, for an input of this many bytes; 0 if nothing is known.
    pub fn likely_output(&self, input_bytes: u64) -> u64 {
        self.likely_output_of(size_of(input_bytes))
    }

    /// The likely length of the output in bytes, for an input of this size class; 0 if nothing is known.
    pub fn likely_output_of(&self, size: u32) -> u64 {
        self.outputs.get(&size).copied().unwrap_or(0)
    }

    /// The same; `None` if nothing is known.
    pub fn known_output_of(&self, size: u32) -> Option<u64> {
        self.outputs.get(&size).copied()
    }

    /// Learns from the length of an output.
    pub fn returned(&mut self, input_bytes: u64, output_bytes: u64) {
        let size = size_of(input_bytes);
        let before = self.outputs.get(&size).copied();
        let after = likely_output(before, output_bytes);
        self.large_outputs -= usize::from(before.is_some_and(is_large));
        self.large_outputs += usize::from(is_large(after));
        self.outputs.insert(size, after);
    }

    /// How long a run with an input of this many bytes is expected to take; `None` if nothing like it ever ran.
    pub fn expected_run(&self, input_bytes: u64) -> Option<Duration> {
        self.times_of(size_of(input_bytes)).mean()
    }

    /// Whether runs with an input of this size class are short, if `longer` of them are not over and have run for more than
    /// [`LONG_RUN`](crate::limits::LONG_RUN) already. A task that never ran counts as long.
    pub fn is_short(&self, size: u32, longer: u32) -> bool {
        self.times_of(size).are_short(longer)
    }

    fn times_of(&self, size: u32) -> &RunTimes {
        self.by_size.get(&size).unwrap_or(&self.runs)
    }

    /// Whether anything is known of how long its runs take.
    pub fn has_run(&self) -> bool {
        self.runs.mean().is_some()
    }

    /// Learns from a run. A long run counts in full, so one surprise is enough to stop giving several jobs at a time.
    pub fn ran(&mut self, input_bytes: u64, run: Duration) {
        self.runs.add(run);
        self.by_size.get_or_add(size_of(input_bytes)).add(run);
        self.sum_up();
        let nanos = u64::try_from(run.as_nanos()).unwrap_or(u64::MAX);
        self.average_run = Some(match self.average_run {
            Some(average) if nanos < average => average - (average - nanos) / 8,
            Some(average) if run < TINY_RUN => average + (nanos - average) / 8,
            _ => nanos,
        });
    }
}

fn is_large(output_bytes: u64) -> bool {
    output_bytes > INLINE_PAYLOAD_MAX as u64
}

/// The size class of an input. Inputs within a factor of sixteen are assumed to cost the same, so there are at most
/// 17 classes.
pub(super) fn size_of(input_bytes: u64) -> u32 {
    (u64::BITS - input_bytes.leading_zeros()).div_ceil(4)
}

/// The class of a job, as is known now. Some slots are kept for short jobs, so that these find a slot even while long jobs keep many
/// busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// At least nine in ten similar runs, and at least three of the newest four, took at most
    /// [`LONG_RUN`](crate::limits::LONG_RUN). Runs that have already taken longer count, too.
    Short,
    /// All other jobs.
    Long,
    /// They can run together with others of their task (`batches.rs`). They count as long, because together they may be.
    Together,
}

/// What an offer has changed for tasks that were known before.
#[derive(Debug, Default)]
pub struct Changes {
    /// No program offers these tasks any more.
    pub gone: Vec<TaskIndex>,
    /// Another program is now responsible for some task.
    pub has_moved: bool,
}

/// All tasks. A task keeps its index until it is forgotten.
#[derive(Debug, Default)]
pub struct Registry {
    tasks: Vec<Task>,
    by_name: Lookup<Arc<str>, TaskIndex>,
    /// The tasks that nobody offers any more.
    gone: BTreeMap<Arc<str>, Gone>,
    /// The places of tasks that were forgotten.
    free: Vec<TaskIndex>,
    /// What each program offers.
    offered: BTreeMap<ProgramIndex, Arc<Offers>>,
    /// The program whose tasks are done here, which goes before all others.
    here: Option<ProgramIndex>,
    version: u64,
}

/// A task that nobody offers any more.
#[derive(Clone, Copy, Debug)]
struct Gone {
    index: TaskIndex,
    /// The version of the registry that was the first one without it.
    since: u64,
}

impl Registry {
    /// The index of the task of this name, if it is on offer.
    pub fn find(&self, name: &str) -> Option<TaskIndex> {
        self.by_name.get(name).copied()
    }

    /// Whether some program offers the task at `index`, so that it would be found by its name. Panics if there is none.
    pub(super) fn is_on_offer(&self, index: TaskIndex) -> bool {
        self.tasks[index as usize].is_on_offer
    }

    /// Whether a task of this name is on offer, or was and is remembered.
    pub fn was_on_offer(&self, name: &str) -> bool {
        self.find_known(name).is_some()
    }

    /// Whether there is a task of this index.
    pub fn has(&self, index: TaskIndex) -> bool {
        self.tasks.get(index as usize).is_some_and(|task| !task.name.is_empty())
    }

    /// The index of the task of this name that is on offer, or was and is remembered.
    pub fn find_known(&self, name: &str) -> Option<TaskIndex> {
        self.find(name).or_else(|| self.gone.get(name).map(|gone| gone.index))
    }

    /// The task at `index`. Panics if there is none.
    pub fn task(&self, index: TaskIndex) -> &Task {
        &self.tasks[index as usize]
    }

    /// The task at `index`. Panics if there is none.
    pub fn task_mut(&mut self, index: TaskIndex) -> &mut Task {
        &mut self.tasks[index as usize]
    }

    /// Another number after each change of what is on offer.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// How many tasks are on offer.
    pub fn on_offer_count(&self) -> usize {
        self.by_name.len()
    }

    /// All tasks that are on offer, by name.
    pub fn on_offer(&self) -> impl Iterator<Item = &Task> {
        self.by_name.values().map(|&index| &self.tasks[index as usize])
    }

    /// Takes over what the workers of `program` offer. If two programs offer the same task, the first of them is
    /// responsible for it for as long as it offers it.
    pub fn offer(&mut self, program: ProgramIndex, offers: impl Into<Arc<Offers>>) -> Changes {
        let now: Arc<Offers> = offers.into();
        let old = self.offered.insert(program, Arc::clone(&now)).unwrap_or_default();
        let mut changes = Changes::default();
        if old == now {
            return changes;
        }
        self.version += 1;
        for (name, _) in old.iter().filter(|(name, offered)| now.get(*name) != Some(offered)) {
            self.hand_over(name, &mut changes);
        }
        for name in now.keys().filter(|name| !old.contains_key(*name)) {
            self.hand_over(name, &mut changes);
        }
        changes
    }

    /// How many tasks a program would be known to offer, if these were added.
    pub(super) fn count_with(&self, program: ProgramIndex, more: &Offers) -> usize {
        let Some(known) = self.offered.get(&program) else { return more.len() };
        known.len() + more.keys().filter(|name| !known.contains_key(*name)).count()
    }

    /// Takes over what is done here, before any worker has offered anything.
    pub(super) fn offer_here(&mut self, program: ProgramIndex, offers: Offers) {
        self.here = Some(program);
        self.offer(program, offers);
    }

    /// Makes the first program that offers the task responsible for it, or takes the task off the list.
    fn hand_over(&mut self, name: &Arc<str>, changes: &mut Changes) {
        let own = self.here.and_then(|program| Some((program, self.offered.get(&program)?.get(name)?)));
        let of_workers =
            || self.offered.iter().find_map(|(&program, offers)| Some((program, offers.get(name)?)));
        let owner = own.or_else(of_workers);
        let known = self.by_name.get(&**name).copied();
        match (owner, known) {
            (Some((program, offered)), Some(index)) => {
                let task = &mut self.tasks[index as usize];
                changes.has_moved |= task.program != program;
                task.take(program, offered);
            }
            (Some((program, offered)), None) => {
                let index = match self.gone.remove(name) {
                    Some(gone) => {
                        self.tasks[gone.index as usize].take(program, offered);
                        gone.index
                    }
                    None => {
                        let task = Task::new(program, offered);
                        self.put(task)
                    }
                };
                self.by_name.insert(name.clone(), index);
            }
            (None, Some(index)) => {
                self.by_name.remove(&**name);
                self.tasks[index as usize].is_on_offer = false;
                self.gone.insert(name.clone(), Gone { index, since: self.version });
                changes.gone.push(index);
            }
            (None, None) => {}
        }
    }

    /// Gives a task a place.
    fn put(&mut self, task: Task) -> TaskIndex {
        if let Some(index) = self.free.pop() {
            self.tasks[index as usize] = task;
            return index;
        }
        self.tasks.push(task);
        (self.tasks.len() - 1) as TaskIndex
    }

    /// How many places tasks have, those included that are free.
    pub fn places(&self) -> usize {
        self.tasks.len()
    }

    /// Whether more tasks are gone than are remembered.
    pub(super) fn has_too_many_gone(&self) -> bool {
        self.gone.len() > GONE_TASKS_MAX
    }

    /// Forgets tasks that are gone, but for the last ones and those that are used: something refers to their index.
    pub(super) fn forget_gone(&mut self, is_used: impl Fn(TaskIndex) -> bool) {
        let mut unused: Vec<(u64, Arc<str>)> = self
            .gone
            .iter()
            .filter(|(_, gone)| !is_used(gone.index))
            .map(|(name, gone)| (gone.since, name.clone()))
            .collect();
        unused.sort_unstable();
        unused.truncate(unused.len().saturating_sub(GONE_TASKS_MAX));
        for (_, name) in unused {
            let Some(Gone { index, .. }) = self.gone.remove(&name) else { continue };
            self.tasks[index as usize] = Task::nothing();
            self.free.push(index);
        }
    }
}

/// The likely length of the next output in bytes, after one of `output_bytes`. A longer output counts in full, so one
/// surprise is enough to stop giving several jobs at a time; shorter ones bring the estimate down slowly.
pub(super) fn likely_output(before: Option<u64>, output_bytes: u64) -> u64 {
    let before = before.unwrap_or(output_bytes);
    output_bytes.max(before - before.saturating_sub(output_bytes).div_ceil(8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_protocol::nouns::TaskOffer;

    fn offered(name: &'static str, takes_files: bool) -> Offered {
        Offered { offer: TaskOffer::new(name), takes_files }
    }

    fn offers(names: &[&'static str]) -> Offers {
        names.iter().map(|&name| (Arc::from(name), offered(name, false))).collect()
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
        let version = registry.version();
        let changes = registry.offer(0, offers(&["new", "both"]));
        assert_eq!((changes.gone.len(), registry.on_offer_count()), (1, 2));
        assert_ne!(registry.version(), version);
        let version = registry.version();
        assert!(registry.offer(0, offers(&["new", "both"])).gone.is_empty());
        assert_eq!(registry.version(), version, "nothing has changed");
        assert_eq!(registry.find("old"), None);
        assert!(registry.find("new").is_some());
    }

    #[test]
    fn a_task_that_is_offered_again_is_the_same_one_with_what_was_learned() {
        let mut registry = Registry::default();
        registry.offer(0, offers(&["old"]));
        let index = 0;
        assert_eq!(registry.find("old"), Some(index));
        registry.task_mut(index).ran(1, Duration::from_micros(3));
        registry.offer(0, offers(&["new"]));
        assert_eq!((registry.find("old"), registry.find_known("old")), (None, Some(index)));
        assert!(registry.was_on_offer("old") && !registry.is_on_offer(index));
        registry.offer(0, offers(&["new", "old"]));
        assert_eq!(registry.find("old"), Some(index));
        assert!(registry.task(index).has_run() && registry.is_on_offer(index));
    }

    /// Offers of as many tasks as a worker may offer, of names that no other round has.
    fn others(round: usize) -> Offers {
        let name = |number: usize| format!("task-{round:04}-{number:04}");
        let offer = |name: String| Offered { offer: TaskOffer::new(name), takes_files: false };
        (0..1500).map(|number| (Arc::from(&*name(number)), offer(name(number)))).collect()
    }

    #[test]
    fn other_names_again_and_again_take_the_places_of_those_before() {
        let mut registry = Registry::default();
        registry.offer(0, offers(&["kept"]));
        let kept = registry.find("kept");
        for round in 0..50 {
            registry.offer(0, others(round));
            registry.forget_gone(|index| Some(index) == kept);
        }
        assert!(registry.places() <= 2 * 1500 + GONE_TASKS_MAX + 1, "{}", registry.places());
        assert!(registry.gone.len() == GONE_TASKS_MAX + 1 && !registry.free.is_empty());
        assert!(registry.find_known("kept") == kept, "something refers to it");
        assert!(registry.was_on_offer("task-0048-1499") && !registry.was_on_offer("task-0048-0000"));
        let forgotten = registry.free[0];
        assert!(!registry.has(forgotten) && kept.is_some_and(|kept| registry.has(kept)));
        let places = registry.places();
        registry.offer(1, offers(&["another"]));
        assert_eq!(registry.places(), places);
        let another = registry.find("another").map(|index| &*registry.task(index).name);
        assert_eq!(another, Some("another"));
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
    fn a_task_takes_files_if_all_of_its_processes_do_and_promises_what_the_last_one_says() {
        let name: Arc<str> = Arc::from("x");
        for takes_files in [[true, true], [true, false], [false, true]] {
            let [first, mut last] = takes_files.map(|takes_files| offered("x", takes_files));
            last.offer.idempotent = true;
            let all = merged(&[first, last].map(|offered| Arc::new(Offers::from([(name.clone(), offered)]))));
            let promise = Promise::of(&all[&name]);
            assert_eq!((promise.takes_files, promise.idempotent), (takes_files == [true, true], true));
        }
    }

    #[test]
    fn one_long_run_ends_the_batching_and_short_ones_bring_it_back() {
        let mut task = Task::new(0, &offered("x", false));
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
        let mut task = Task::new(0, &offered("x", false));
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
        let mut task = Task::new(0, &offered("x", false));
        let is_short = |task: &Task, bytes| task.is_short(size_of(bytes), 0);
        assert!(!is_short(&task, 10), "nothing is known yet");
        for _ in 0..10 {
            task.ran(10, Duration::from_millis(1));
            task.ran(1_000_000, Duration::from_secs(1));
        }
        assert!(is_short(&task, 10) && !is_short(&task, 900_000));
        assert!(!is_short(&task, 100_000_000), "nothing of that size ever ran");
        assert!(task.expected_run(900_000) > Some(Duration::from_millis(900)));
    }
}
