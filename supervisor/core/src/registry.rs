//! The registry of tasks: which program offers each task, what its workers promise of it, and how long its runs and
//! outputs have been.

use super::ids::{ProgramIndex, TaskIndex};
use super::jobs::Expected;
use super::lookup::Lookup;
use super::run_times::RunTimes;
use super::small_map::SmallMap;
use crate::limits::{LONG_RUN, TINY_RUN};
use offload_protocol::limits::{INLINE_PAYLOAD_MAX, TASK_NAME_MAX};
use offload_protocol::nouns::{Batching, Lane, TaskOffer, cut};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// One task on offer, with what was learned of it.
#[derive(Clone, Debug)]
pub struct Task {
    /// The name of the task.
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
        let mut task = Task {
            name: Arc::from(&*offered.offer.name),
            program,
            promise: Promise::default(),
            lane: Lane::default(),
            batching: None,
            by_size: SmallMap::default(),
            runs: RunTimes::default(),
            average_run: None,
            fails: false,
            ends_workers: false,
            is_on_offer: true,
            outputs: SmallMap::default(),
            large_outputs: 0,
        };
        task.take(program, offered);
        task
    }

    /// Takes over the newest offer. What was learned from runs stays.
    fn take(&mut self, program: ProgramIndex, offered: &Offered) {
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

    /// Learns from the length of an output.
    pub fn returned(&mut self, input_bytes: u64, output_bytes: u64) {
        let size = size_of(input_bytes);
        let before = self.outputs.get(&size).copied();
        let after = likely_output(before, output_bytes);
        self.large_outputs -= usize::from(before.is_some_and(is_large));
        self.large_outputs += usize::from(is_large(after));
        self.outputs.insert(size, after);
    }

    /// The expected run time and class of a run with an input of this many bytes. A task that never ran counts as
    /// long.
    pub fn expected(&self, input_bytes: u64) -> Expected {
        let of_this_size = self.by_size.get(&size_of(input_bytes));
        let times = of_this_size.unwrap_or(&self.runs);
        let is_short = times.quantile(90).is_some_and(|most| most <= LONG_RUN);
        Expected { run: times.mean(), class: if is_short { Class::Short } else { Class::Long } }
    }

    /// Whether anything is known of how long its runs take.
    pub fn has_run(&self) -> bool {
        self.runs.mean().is_some()
    }

    /// Learns from a run. A long run counts in full, so one surprise is enough to stop giving several jobs at a time.
    pub fn ran(&mut self, input_bytes: u64, run: Duration) {
        self.runs.add(run);
        self.by_size.get_or_add(size_of(input_bytes)).add(run);
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

/// The class of a job. Some slots are kept for short jobs, so short jobs find a slot even while long jobs keep many
/// busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Nine of ten similar runs took at most [`LONG_RUN`].
    Short,
    /// All other jobs.
    Long,
    /// They can run together with others of their task (`batches.rs`). They count as long, because together they may be.
    Together,
}

/// What an offer has changed for tasks that were known before.
#[derive(Debug)]
pub struct Changes {
    /// No program offers these tasks any more.
    pub gone: Vec<TaskIndex>,
    /// Another program is now responsible for some task.
    pub has_moved: bool,
}

/// All tasks. A task keeps its index for as long as the supervisor runs.
#[derive(Debug, Default)]
pub struct Registry {
    tasks: Vec<Task>,
    by_name: Lookup<Arc<str>, TaskIndex>,
    /// What each program offers.
    offered: BTreeMap<ProgramIndex, Offers>,
    /// The program whose tasks are done here, which goes before all others.
    here: Option<ProgramIndex>,
    version: u64,
}

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
    pub(super) fn batching(&self) -> Option<Batching> {
        self.offer.check_batching().ok().and(self.offer.batching)
    }
}

/// Offers by the name of the task.
pub type Offers = BTreeMap<Arc<str>, Offered>;

/// What processes offer together: of each task, what the last of them says, and whether all that offer it take files.
pub(super) fn merged<'a>(each: impl Iterator<Item = (&'a Arc<str>, &'a Offered)>) -> Offers {
    let mut all = Offers::new();
    for (name, Offered { offer, takes_files }) in each {
        let takes_files = *takes_files && all.get(name).is_none_or(|before| before.takes_files);
        all.insert(name.clone(), Offered { offer: offer.clone(), takes_files });
    }
    all
}

/// What one process offers.
#[derive(Debug)]
pub(super) struct OffersOfWorker {
    all: Arc<Offers>,
    /// What it promises of each task, by the task's index. A task keeps its name, so this never changes, and comparing
    /// names for each job is not necessary.
    by_task: Vec<Option<Promise>>,
}

impl OffersOfWorker {
    pub(super) fn new(all: Arc<Offers>) -> OffersOfWorker {
        OffersOfWorker { all, by_task: Vec::new() }
    }

    /// Looks up the promises of the tasks that the registry has learned of.
    pub(super) fn learn_names(&mut self, registry: &Registry) {
        let new = registry.tasks.iter().skip(self.by_task.len());
        self.by_task.extend(new.map(|task| self.all.get(&task.name).map(Promise::of)));
    }

    pub(super) fn all(&self) -> &Arc<Offers> {
        &self.all
    }

    /// What it promises of the task; `None` if it does not offer the task.
    pub(super) fn promise(&self, task: TaskIndex) -> Option<Promise> {
        self.by_task.get(task as usize).copied().flatten()
    }

    /// The same by the task's name.
    pub(super) fn promise_of(&self, task: &str) -> Option<Promise> {
        self.all.get(task).map(Promise::of)
    }

    /// How it says that several jobs of a task can run together, if they can.
    pub(super) fn batching_of(&self, task: &str) -> Option<Batching> {
        self.all.get(task).and_then(Offered::batching)
    }
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

    /// Whether a task of this name is on offer, or was. The time for this grows with the number of tasks.
    pub fn was_on_offer(&self, name: &str) -> bool {
        self.tasks.iter().any(|task| *task.name == *name)
    }

    /// Whether there is a task of this index.
    pub fn has(&self, index: TaskIndex) -> bool {
        (index as usize) < self.tasks.len()
    }

    /// The index of the task of this name that is on offer, or was. The time for this grows with the number of tasks.
    pub fn find_known(&self, name: &str) -> Option<TaskIndex> {
        let was = || self.tasks.iter().position(|task| *task.name == *name);
        self.find(name).or_else(|| was().and_then(|index| TaskIndex::try_from(index).ok()))
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
    pub fn offer(&mut self, program: ProgramIndex, offers: Offers) -> Changes {
        self.version += u64::from(self.offered.get(&program) != Some(&offers));
        let now: Vec<Arc<str>> = offers.keys().cloned().collect();
        let old = self.offered.insert(program, offers).unwrap_or_default();
        let mut changes = Changes { gone: Vec::new(), has_moved: false };
        for name in old.into_keys().chain(now) {
            self.hand_over(&name, &mut changes);
        }
        changes
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
                let task = Task::new(program, offered);
                self.by_name.insert(task.name.clone(), self.tasks.len() as TaskIndex);
                self.tasks.push(task);
            }
            (None, Some(index)) => {
                self.by_name.remove(&**name);
                self.tasks[index as usize].is_on_offer = false;
                changes.gone.push(index);
            }
            (None, None) => {}
        }
    }

    /// The known tasks for somebody who asked for one that is not there: similar names first, the most similar at the front, and
    /// then all others in the order of the alphabet.
    pub fn nearest(&self, wanted: &str) -> Vec<Arc<str>> {
        let wanted = cut(wanted, TASK_NAME_MAX);
        let mut names: Vec<_> = self.by_name.iter().map(|(name, _)| name.clone()).collect();
        names.sort_by_cached_key(|name| {
            let distance = strsim::damerau_levenshtein(wanted, name);
            // Only a third of the letters are other ones: that may be a slip.
            let is_similar = distance * 3 <= wanted.chars().count();
            (if is_similar { distance } else { usize::MAX }, name.clone())
        });
        names
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
    fn a_task_takes_files_if_all_of_its_processes_do_and_promises_what_the_last_one_says() {
        let name: Arc<str> = Arc::from("x");
        for takes_files in [[true, true], [true, false], [false, true]] {
            let [first, mut last] = takes_files.map(|takes_files| offered("x", takes_files));
            last.offer.idempotent = true;
            let all = merged([(&name, &first), (&name, &last)].into_iter());
            let promise = Promise::of(&all[&name]);
            assert_eq!((promise.takes_files, promise.idempotent), (takes_files == [true, true], true));
        }
    }

    #[test]
    fn the_nearest_name_comes_first() {
        let mut registry = Registry::default();
        registry.offer(0, offers(&["average", "primes", "echo"]));
        assert_eq!(&*registry.nearest("prime")[0], "primes");
        let names = registry.nearest("nosuch").iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names, ["average", "echo", "primes"], "none of them is near, so they are in order");
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
