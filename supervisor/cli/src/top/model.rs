//! What is known and chosen. It has no clock, no terminal and no connection.

use super::keys::Key;
use offload_supervisor::views::{JobView, OpenState, Status, WorkerView};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What the supervisor said at one moment.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// Since the first question.
    pub(super) at: Duration,
    pub(super) status: Status,
    pub(super) workers: Vec<WorkerView>,
    /// Jobs that have not ended, as far as they were asked for.
    pub(super) jobs: Vec<JobView>,
    /// There are more jobs than `jobs` has.
    pub(super) has_more_jobs: bool,
    /// Worker processes that cannot be killed from here.
    pub(super) out_of_reach: BTreeSet<u32>,
}

/// What the watcher has to tell.
#[derive(Clone, Debug)]
pub(super) enum News {
    Snapshot(Box<Snapshot>),
    /// The supervisor has not told how it is, and why.
    Silence(String),
    /// The story of a job: lines of text.
    Story(Vec<String>),
    /// What became of an order, in one line.
    Done(String),
}

/// What the watcher is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Tell { job: String },
    Cancel { job: String },
    Kill { slot: usize, pid: u32 },
}

/// What follows from a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Stay,
    Order(Order),
    Quit,
}

/// By what the slots are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Slot,
    Running,
    Memory,
    Done,
}

impl Sort {
    fn next(self) -> Sort {
        match self {
            Sort::Slot => Sort::Running,
            Sort::Running => Sort::Memory,
            Sort::Memory => Sort::Done,
            Sort::Done => Sort::Slot,
        }
    }

    /// The word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Sort::Slot => "slot",
            Sort::Running => "run time",
            Sort::Memory => "memory",
            Sort::Done => "jobs done",
        }
    }
}

/// What lies over the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Open {
    #[default]
    Nothing,
    Help,
    Story {
        lines: Vec<String>,
        first: usize,
    },
    Question(Order),
    /// There is nothing more to watch, and why.
    End(String),
}

/// Jobs that ended in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) ok: f64,
    pub(super) failed: f64,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// None until the supervisor has answered.
    snapshot: Option<Box<Snapshot>>,
    pub(super) rates: Rates,
    pub(super) sort: Sort,
    /// The number of the chosen slot; it stays chosen wherever it is sorted.
    chosen: usize,
    pub(super) open: Open,
    /// What happened last.
    pub(super) message: String,
    /// Why the snapshot is an old one; empty if it is not.
    pub(super) silence: String,
}

/// Counters that are no outcomes.
const NOT_OUTCOMES: [&str; 4] = ["accepted", "rejected", "queued", "running"];

impl Model {
    /// Takes what the watcher tells.
    pub(super) fn take(&mut self, news: News) {
        match news {
            News::Snapshot(snapshot) => {
                self.rates =
                    self.snapshot.as_ref().map_or_else(Rates::default, |before| rates(before, &snapshot));
                self.snapshot = Some(snapshot);
                self.silence.clear();
            }
            News::Silence(why) => self.silence = why,
            News::Story(lines) => {
                self.message.clear();
                self.open = Open::Story { lines, first: 0 };
            }
            News::Done(line) => self.message = line,
        }
    }

    /// A key was pressed.
    pub(super) fn press(&mut self, key: Key) -> Step {
        match (std::mem::take(&mut self.open), key) {
            (_, Key::Quit) => return Step::Quit,
            (Open::Question(order), Key::Yes) => return self.give(order),
            (Open::End(_), _) => return Step::Quit,
            (Open::Question(_), _) => "not done".clone_into(&mut self.message),
            (Open::Story { lines, first }, Key::Up | Key::Down | Key::Top | Key::Bottom) => {
                let last = lines.len().saturating_sub(1);
                self.open = Open::Story { first: moved(first, last, key), lines };
            }
            (Open::Help | Open::Story { .. }, _) => {}
            (Open::Nothing, key) => return self.press_on_tables(key),
        }
        Step::Stay
    }

    fn press_on_tables(&mut self, key: Key) -> Step {
        self.message.clear();
        match key {
            Key::Up | Key::Down | Key::Top | Key::Bottom => self.choose(key),
            Key::Sort => self.sort = self.sort.next(),
            Key::Help => self.open = Open::Help,
            Key::Inspect => return self.about_job(|job| Order::Tell { job }),
            Key::Cancel => return self.about_job(|job| Order::Cancel { job }),
            Key::Kill => self.ask_before_kill(),
            Key::Yes | Key::Back | Key::Quit => {}
        }
        Step::Stay
    }

    fn choose(&mut self, key: Key) {
        let slots: Vec<usize> = self.workers().iter().map(|worker| worker.slot).collect();
        let here = self.chosen_row();
        if let Some(slot) = slots.get(moved(here, slots.len().saturating_sub(1), key)) {
            self.chosen = *slot;
        }
    }

    fn about_job(&mut self, order: impl FnOnce(String) -> Order) -> Step {
        match self.chosen_worker().and_then(|worker| worker.job.clone()) {
            Some(job) => self.give(order(job)),
            None => {
                "this slot runs no job now".clone_into(&mut self.message);
                Step::Stay
            }
        }
    }

    /// An order takes its time, so it is told at once that it was given.
    fn give(&mut self, order: Order) -> Step {
        self.message = match &order {
            Order::Tell { job } => format!("asking about job {job} ..."),
            Order::Cancel { job } => format!("cancelling job {job} ..."),
            Order::Kill { pid, .. } => format!("killing worker process {pid} ..."),
        };
        Step::Order(order)
    }

    fn ask_before_kill(&mut self) {
        match self.chosen_worker().and_then(|worker| Some((worker.slot, worker.pid?))) {
            Some((_, pid)) if self.is_out_of_reach(pid) => {
                let why = "it is in another container, or another user's";
                self.message = format!("worker process {pid} cannot be killed from here: {why}");
            }
            Some((slot, pid)) => self.open = Open::Question(Order::Kill { slot, pid }),
            None => "this slot has no process now".clone_into(&mut self.message),
        }
    }

    fn is_out_of_reach(&self, pid: u32) -> bool {
        self.snapshot.as_ref().is_some_and(|snapshot| snapshot.out_of_reach.contains(&pid))
    }

    /// The state of the whole supervisor.
    pub(super) fn status(&self) -> Option<&Status> {
        self.snapshot.as_ref().map(|snapshot| &snapshot.status)
    }

    /// The slots in the order in which they are shown.
    pub(super) fn workers(&self) -> Vec<&WorkerView> {
        let mut workers: Vec<&WorkerView> =
            self.snapshot.iter().flat_map(|snapshot| &snapshot.workers).collect();
        match self.sort {
            Sort::Slot => workers.sort_by_key(|worker| worker.slot),
            Sort::Running => workers.sort_by_key(|worker| (Reverse(worker.running_us), worker.slot)),
            Sort::Memory => workers.sort_by_key(|worker| (Reverse(worker.rss_bytes), worker.slot)),
            Sort::Done => workers.sort_by_key(|worker| (Reverse(worker.jobs_done), worker.slot)),
        }
        workers
    }

    /// The row of the chosen slot among [`Model::workers`].
    pub(super) fn chosen_row(&self) -> usize {
        self.workers().iter().position(|worker| worker.slot == self.chosen).unwrap_or(0)
    }

    fn chosen_worker(&self) -> Option<&WorkerView> {
        self.workers().get(self.chosen_row()).copied()
    }

    /// Jobs that wait, for whatever it is, by task, the most first; and whether there are more jobs than were counted.
    pub(super) fn waiting_by_task(&self) -> (Vec<(String, usize)>, bool) {
        let mut counts = BTreeMap::<&str, usize>::new();
        let jobs = self.snapshot.iter().flat_map(|snapshot| &snapshot.jobs);
        for job in jobs.filter(|job| OpenState::of_word(&job.state).is_some_and(OpenState::waits)) {
            *counts.entry(&job.task).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().map(|(task, count)| (task.to_owned(), count)).collect();
        counts.sort_by(|(task, count), (other, than)| (Reverse(count), task).cmp(&(Reverse(than), other)));
        (counts, self.snapshot.as_ref().is_some_and(|snapshot| snapshot.has_more_jobs))
    }
}

/// The place after a key that moves, from 0 to `last`.
fn moved(here: usize, last: usize, key: Key) -> usize {
    match key {
        Key::Up => here.saturating_sub(1),
        Key::Down => (here + 1).min(last),
        Key::Top => 0,
        Key::Bottom => last,
        _ => here.min(last),
    }
}

fn rates(before: &Snapshot, now: &Snapshot) -> Rates {
    let seconds = now.at.saturating_sub(before.at).as_secs_f64();
    if seconds <= 0.0 || before.status.pid != now.status.pid {
        return Rates::default();
    }
    let ended = |snapshot: &Snapshot, is_ok: bool| {
        let outcomes = snapshot.status.jobs.iter().filter(|(name, _)| !NOT_OUTCOMES.contains(&name.as_str()));
        outcomes.filter(|(name, _)| (*name == "ok") == is_ok).map(|(_, count)| *count).sum::<u64>()
    };
    let rate = |is_ok| ended(now, is_ok).saturating_sub(ended(before, is_ok)) as f64 / seconds;
    Rates { ok: rate(true), failed: rate(false) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A snapshot with a worker for each of these: run time in microseconds, memory, jobs done.
    pub(crate) fn snapshot(workers: &[(Option<u64>, u64, u64)]) -> Snapshot {
        let worker = |(slot, (running, memory, done)): (usize, &(Option<u64>, u64, u64))| WorkerView {
            slot,
            program: "builtin".to_owned(),
            pid: Some(100 + slot as u32),
            state: if running.is_some() { "busy" } else { "idle" }.to_owned(),
            job: running.map(|_| format!("01JOB{slot}")),
            task: running.map(|_| "primes".to_owned()),
            running_us: *running,
            rss_bytes: Some(*memory),
            jobs_done: *done,
            ..WorkerView::default()
        };
        Snapshot { workers: workers.iter().enumerate().map(worker).collect(), ..nothing() }
    }

    /// A supervisor without workers and jobs.
    pub(crate) fn nothing() -> Snapshot {
        let document = r#"{"version":"0.6.0","pid":4242,"uptime_s":3723.0,"state":"running",
            "workers":{"configured":4,"ready":4,"busy":2,"spares":1,"restarts":3},
            "queue":{"jobs":12,"bytes":1048576,"max_jobs":10000,"max_bytes":268435456,"segment_bytes":0,"files":0},
            "jobs":{"accepted":30,"rejected":0,"queued":12,"running":2,"ok":15,"app_error":1},
            "ledger":{"balanced":true},
            "event_loop":{"iterations":1234,"lag_us":{"p50":20,"p99":180,"max":900},"slowest_callback":null},
            "io_pool":{"threads":4,"busy":0,"queued":0,"stuck":0}}"#;
        let status = serde_json::from_str(document).unwrap();
        let (at, out_of_reach) = (Duration::ZERO, BTreeSet::new());
        Snapshot { at, status, workers: Vec::new(), jobs: Vec::new(), has_more_jobs: false, out_of_reach }
    }

    fn model(workers: &[(Option<u64>, u64, u64)]) -> Model {
        let mut model = Model::default();
        model.take(News::Snapshot(Box::new(snapshot(workers))));
        model
    }

    fn order_of_slots(model: &Model) -> Vec<usize> {
        model.workers().iter().map(|worker| worker.slot).collect()
    }

    #[test]
    fn the_chosen_slot_stays_chosen_however_it_is_sorted() {
        let mut model = model(&[(None, 3, 1), (Some(5), 1, 2), (Some(9), 2, 3)]);
        model.press(Key::Down);
        assert_eq!((model.chosen_row(), order_of_slots(&model)), (1, vec![0, 1, 2]));
        for (sorted, row) in [([2, 1, 0], 1), ([0, 2, 1], 2), ([2, 1, 0], 1), ([0, 1, 2], 1)] {
            model.press(Key::Sort);
            assert_eq!((model.chosen_row(), order_of_slots(&model)), (row, sorted.to_vec()));
        }
        model.press(Key::Bottom);
        model.press(Key::Down);
        assert_eq!(model.chosen_row(), 2);
        model.press(Key::Top);
        model.press(Key::Up);
        assert_eq!(model.chosen_row(), 0);
    }

    #[test]
    fn a_slot_without_a_job_or_a_process_says_so_and_orders_nothing() {
        let mut model = model(&[(None, 0, 0)]);
        for key in [Key::Inspect, Key::Cancel] {
            assert_eq!((model.press(key), model.message.as_str()), (Step::Stay, "this slot runs no job now"));
        }
        let mut empty = Model::default();
        for key in [Key::Up, Key::Down, Key::Inspect, Key::Cancel, Key::Kill, Key::Sort, Key::Bottom] {
            assert_eq!(empty.press(key), Step::Stay);
        }
    }

    #[test]
    fn a_worker_is_killed_only_after_a_yes() {
        let mut model = model(&[(Some(1), 0, 0)]);
        let kill = Order::Kill { slot: 0, pid: 100 };
        for key in [Key::Back, Key::Kill, Key::Down, Key::Help] {
            assert_eq!(model.press(Key::Kill), Step::Stay);
            assert_eq!(model.open, Open::Question(kill.clone()));
            assert_eq!((model.press(key), model.message.as_str()), (Step::Stay, "not done"));
            assert_eq!(model.open, Open::Nothing);
        }
        model.press(Key::Kill);
        assert_eq!(model.press(Key::Yes), Step::Order(kill));
        assert_eq!(model.press(Key::Yes), Step::Stay, "once");
    }

    #[test]
    fn whoever_may_not_kill_a_worker_is_not_asked_whether_to() {
        let mut shown = snapshot(&[(None, 0, 0), (None, 0, 0)]);
        shown.out_of_reach = BTreeSet::from([100]);
        let mut model = Model::default();
        model.take(News::Snapshot(Box::new(shown)));
        model.press(Key::Kill);
        assert_eq!(model.open, Open::Nothing);
        assert!(
            model.message.starts_with("worker process 100 cannot be killed from here"),
            "{}",
            model.message
        );
        model.press(Key::Down);
        model.press(Key::Kill);
        assert_eq!(model.open, Open::Question(Order::Kill { slot: 1, pid: 101 }));
    }

    #[test]
    fn a_job_is_inspected_and_cancelled_and_its_story_can_be_scrolled_and_left() {
        let mut model = model(&[(Some(1), 0, 0)]);
        assert_eq!(model.press(Key::Inspect), Step::Order(Order::Tell { job: "01JOB0".to_owned() }));
        model.take(News::Story(vec!["a".to_owned(), "b".to_owned()]));
        model.press(Key::Down);
        model.press(Key::Down);
        assert!(matches!(&model.open, Open::Story { first: 1, .. }), "{:?}", model.open);
        model.press(Key::Back);
        assert_eq!(model.open, Open::Nothing);
        assert_eq!(model.press(Key::Cancel), Step::Order(Order::Cancel { job: "01JOB0".to_owned() }));
        model.press(Key::Help);
        assert_eq!((model.press(Key::Help), &model.open), (Step::Stay, &Open::Nothing));
        assert_eq!(model.press(Key::Quit), Step::Quit);
    }

    #[test]
    fn rates_are_what_ended_between_two_snapshots_of_the_same_supervisor() {
        let at = |seconds, pid, ok, failed| {
            let jobs = [("accepted", 99), ("ok", ok), ("timeout", failed)];
            let jobs = jobs.map(|(name, count)| (name.to_owned(), count)).into();
            let status = Status { pid, jobs, ..nothing().status };
            Snapshot { at: Duration::from_secs(seconds), status, ..nothing() }
        };
        assert_eq!(rates(&at(1, 7, 10, 1), &at(3, 7, 14, 4)), Rates { ok: 2.0, failed: 1.5 });
        assert_eq!(rates(&at(1, 7, 10, 1), &at(3, 8, 14, 4)), Rates::default(), "another supervisor");
        assert_eq!(rates(&at(1, 7, 10, 1), &at(1, 7, 14, 4)), Rates::default(), "no time has passed");
        assert_eq!(rates(&at(1, 7, 10, 1), &at(2, 7, 0, 0)), Rates::default(), "counters do not go back");
    }

    #[test]
    fn jobs_that_wait_for_whatever_it_is_are_counted_by_task_the_most_first() {
        let job =
            |task: &str, state: &str| JobView { task: task.to_owned(), state: state.to_owned(), ..a_job() };
        let jobs =
            [("b", "queued"), ("a", "held"), ("c", "running"), ("b", "paused"), ("d", "queued"), ("c", "ok")];
        let mut model = Model::default();
        let jobs = jobs.map(|(task, state)| job(task, state)).to_vec();
        model.take(News::Snapshot(Box::new(Snapshot { jobs, has_more_jobs: true, ..nothing() })));
        let counted = [("b", 2), ("a", 1), ("d", 1)].map(|(task, count)| (task.to_owned(), count)).to_vec();
        assert_eq!(model.waiting_by_task(), (counted, true));
    }

    pub(crate) fn a_job() -> JobView {
        let document = r#"{"job":"01J","task":"t","client":"c","state":"queued","attempts":0,"age_us":1,"slot":null,
            "input_bytes":0,"error":null}"#;
        serde_json::from_str(document).unwrap()
    }
}
