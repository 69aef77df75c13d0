//! The script of a run: how the core is configured, and what its clients ask for and when.

use crate::choices::{Choices, Tape};
use crowds::{crowd, crowd_guilt, few_workers, hoard, watch};
use offload_core::config::CoreConfig;
use offload_core::event::{JobRequest, Key};
use offload_core::here::TasksHere;
use offload_core::ids::{Mono, Version};
use offload_core::kept::Owner;
use offload_core::queue::HEAD_START;
use offload_protocol::nouns::{Lane, TaskOffer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use variety::{ask_for_a_stream, ask_the_shell, give_a_file};

mod crowds;
mod pauses;
mod variety;

/// Everything that is decided before the first event.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// How the core is configured at the start.
    pub(crate) config: CoreConfig,
    /// What comes from outside, in the order of time.
    pub(crate) wishes: Vec<(Mono, Wish)>,
    /// Two clients contend, all is well, and each must get its share: but for so much that priorities are worth.
    pub(crate) contention: Option<Duration>,
    /// Workers start without trouble, so that there is much to do for them.
    pub(crate) is_crowded: bool,
    /// How long clients take to read an output, at most, by their names.
    pub(crate) readers: BTreeMap<&'static str, Duration>,
    /// Good jobs and bad ones are in the same windows.
    pub(crate) is_mixed: bool,
    /// The jobs that do something to their workers, by the numbers of their wishes.
    pub(crate) guilt: BTreeMap<usize, Guilt>,
}

/// What a job does to its worker, each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guilt {
    /// It ends it while it runs.
    Crashes,
    /// It ends it before it is started.
    DiesUnstarted,
    /// It never ends.
    Hangs,
}

/// Outputs are so short that jobs of one task may still be given to a worker together.
const OUTPUT_MAX: u64 = 20_000;

/// The clients, by their accounts. One of them has no name.
const CLIENTS: [&str; 4] = ["", "ann", "bob", "connection 1"];

/// A client that takes nothing at all is disconnected after this time.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// One thing that comes from outside.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    /// A job.
    Submit(JobRequest),
    /// The end of the job that this wish of the script was for.
    CancelOf(usize),
    /// A client waits for the job of this wish.
    AwaitOf(usize),
    /// The last client that waited for the job of this wish is gone.
    AbandonOf(usize),
    /// A client collects the output of the job of this wish.
    CollectOf(usize),
    /// A client drops the dead letter of the job of this wish.
    DropLetterOf(usize),
    /// A cancellation of a job that does not exist.
    CancelUnknown,
    /// The shell refuses a job.
    Refuse,
    /// Other limits.
    Configure(Box<CoreConfig>),
    /// A worker is measured: the one of this number, if it lives.
    Measure(u64),
    /// Another version of the programs.
    Reload(Version),
    /// A tick that the core did not ask for.
    Tick,
    /// Part of an input comes in for a client, or goes.
    Arrival { client: &'static str, bytes: u64, is_over: bool },
    /// Nothing new of this task starts, or of any.
    Pause(Option<&'static str>),
    /// The end of that.
    Resume(Option<&'static str>),
    /// An end in good order, for so long at the most.
    Drain(Option<Duration>),
    /// An end now.
    Stop,
}

const MS: Duration = Duration::from_millis(1);

/// Where some jobs do wrong, the first ones do not: they show that the program works, and that they are tiny.
pub(crate) const FIRST_GOOD: usize = 8;

/// One task of the fake workers.
pub(crate) struct FakeTask {
    /// Its name.
    pub(crate) name: &'static str,
    /// It may be run twice.
    pub(crate) is_idempotent: bool,
    /// It is done in steps.
    pub(crate) is_stepped: bool,
    /// It gives checkpoints.
    pub(crate) checkpoints: bool,
    /// It says how far it is at least so often, unless this is zero.
    pub(crate) promise: Duration,
    /// The longest run of it if all is well.
    pub(crate) run: Duration,
}

impl FakeTask {
    const fn at_a_stretch(name: &'static str, is_idempotent: bool, run: Duration) -> FakeTask {
        let (is_stepped, checkpoints, promise) = (false, false, Duration::ZERO);
        FakeTask { name, is_idempotent, is_stepped, checkpoints, promise, run }
    }

    const fn in_steps(name: &'static str, is_idempotent: bool, promise: Duration, run: Duration) -> FakeTask {
        FakeTask { name, is_idempotent, is_stepped: true, checkpoints: true, promise, run }
    }

    /// As a worker offers it.
    pub(crate) fn offer(&self) -> TaskOffer<'static> {
        TaskOffer {
            idempotent: self.is_idempotent,
            stepped: self.is_stepped,
            checkpoints: self.checkpoints,
            progress_ms: self.promise.as_millis() as u32,
            ..TaskOffer::new(self.name)
        }
    }

    /// The task of this name.
    pub(crate) fn find(name: &str) -> Option<&'static FakeTask> {
        TASKS.iter().find(|task| task.name == name)
    }
}

/// The tasks of the fake workers. A run of `climb` may be so short that it counts as tiny.
pub(crate) const TASKS: &[FakeTask] = &[
    FakeTask::at_a_stretch("echo", true, Duration::from_micros(30)),
    FakeTask::at_a_stretch("sum", true, Duration::from_millis(4)),
    FakeTask::at_a_stretch("charge", false, Duration::from_millis(4)),
    FakeTask::at_a_stretch("note", false, Duration::from_micros(30)),
    FakeTask::at_a_stretch("slow", false, Duration::from_millis(800)),
    FakeTask::in_steps("climb", true, Duration::ZERO, Duration::from_millis(200)),
    FakeTask::in_steps("stroll", true, Duration::from_millis(5), Duration::from_millis(40)),
    FakeTask::in_steps("dig", false, Duration::from_millis(20), Duration::from_millis(100)),
    FakeTask::in_steps("hop", false, Duration::ZERO, Duration::from_micros(60)),
];

/// The task that the shell does itself, where it does any.
pub(crate) const HERE: &str = "fetch";

/// What the shell does itself, if anything, and how much of it at a time.
fn tasks_here(choices: &mut Choices) -> TasksHere {
    let places = choices.pick(&mut Tape::new(1 << 37), &[0, 1, 2, 3]);
    let offer = TaskOffer { idempotent: true, ..TaskOffer::new(HERE) };
    TasksHere { offers: Vec::from_iter((places > 0).then_some(offer)), places }
}

/// Which of [`TASKS`] a program offers. One of them is offered by both where there are two.
pub(crate) fn offered_by(program: usize, programs: usize) -> &'static [usize] {
    match (programs, program) {
        (1, _) => &[0, 1, 2, 3, 4, 5, 6, 7, 8],
        (_, 0) => &[0, 1, 2, 5, 8],
        (_, _) => &[0, 3, 4, 6, 7],
    }
}

impl Script {
    /// Outputs are not longer than this.
    pub(crate) fn output_max(&self) -> u64 {
        let is_about_time = self.contention.is_some() || self.is_mixed;
        if is_about_time { 0 } else { self.config.max_payload.min(OUTPUT_MAX) }
    }

    /// The script of a seed.
    pub(crate) fn new(choices: &mut Choices, tape: &mut Tape) -> Script {
        let max_files = choices.pick(&mut Tape::new(1 << 36), &[256, 0, 1, 2, 5]);
        let here = tasks_here(choices);
        let config = CoreConfig { max_files, here, ..knobs(choices, tape) };
        if choices.chance(tape, 60) {
            return Script::contended(choices, tape, config);
        }
        if choices.chance(tape, 120) {
            return Script::mixed(choices, tape, config);
        }
        let is_crowded = choices.chance(tape, 250);
        let mut config = if is_crowded { few_workers(choices, tape, config) } else { config };
        let mut wishes = wishes(choices, tape, &config);
        let mut guilt = BTreeMap::new();
        if is_crowded {
            crowd(choices, tape, &mut wishes);
            guilt = crowd_guilt(choices, &wishes);
        }
        if choices.chance(tape, 80) {
            hoard(choices, tape, &mut config, &mut wishes);
            watch(choices, &mut config, &mut wishes);
        }
        pauses::add(choices, &mut wishes);
        let speeds = [MS, MS, 50 * MS, Duration::from_secs(2), SILENCE_MAX];
        let readers = CLIENTS.map(|client| (client, choices.pick(tape, &speeds))).into();
        Script { config, wishes, contention: None, is_crowded, readers, is_mixed: false, guilt }
    }

    /// Many jobs of one kind, from two clients, all at once.
    fn contended(choices: &mut Choices, tape: &mut Tape, drawn: CoreConfig) -> Script {
        let large = CoreConfig::default();
        let config = CoreConfig {
            programs: 1,
            max_jobs: large.max_jobs,
            max_bytes: large.max_bytes,
            max_payload: large.max_payload,
            max_jobs_per_client: None,
            run_timeout: large.run_timeout,
            hello_timeout: large.hello_timeout,
            start_timeout: large.start_timeout,
            window_max: 1,
            short_slots: Some(0),
            here: TasksHere { places: drawn.here.places.min(drawn.workers), ..drawn.here.clone() },
            ..drawn
        };
        let task = choices.pick(tape, &["sum", "charge", "slow"]);
        let is_for_the_shell = drawn.here.places > 0 && choices.chance(&mut Tape::new(1 << 39), 300);
        let task = if is_for_the_shell { HERE } else { task };
        let is_bob_guilty = choices.chance(tape, 400);
        let levels = choices.pick(tape, &[0, 0, 1]);
        let number = choices.pick(tape, &[40, 100, 200]);
        let wish = |index| {
            let priority = choices.range(tape, 0, levels) as i8;
            let client = if index % 2 == 0 { "ann" } else { "bob" }.into();
            let request = JobRequest { task: task.to_owned(), client, priority, ..JobRequest::default() };
            (Mono::default(), Wish::Submit(request))
        };
        let wishes = (0..number).map(wish).collect();
        let guilt =
            (0..number).filter(|index| is_bob_guilty && index % 2 == 1).map(|index| (index, Guilt::Crashes));
        Script {
            config,
            wishes,
            contention: Some(levels as u32 * HEAD_START),
            is_crowded: false,
            readers: BTreeMap::new(),
            is_mixed: false,
            guilt: guilt.collect(),
        }
    }

    /// Many tiny jobs at a time, of which some crash, hang or are cancelled.
    fn mixed(choices: &mut Choices, tape: &mut Tape, drawn: CoreConfig) -> Script {
        let window_max = choices.pick(tape, &[32, 8, 3]);
        let max_restarts = CoreConfig::default().max_restarts;
        let cancel_grace = choices.pick(tape, &[0, 1, 100]) * MS;
        let config =
            CoreConfig { window_max, max_restarts, cancel_grace, ..few_workers(choices, tape, drawn) };
        let share = choices.pick(tape, &[50, 20, 100, 300]);
        let tasks = choices.pick(tape, &[&["echo", "echo", "note", "echo", "sum"][..], &["note"]]);
        let all = [Guilt::Crashes, Guilt::Hangs, Guilt::DiesUnstarted];
        let deadly = choices.pick(tape, &[&all[..], &all[..1], &all[1..2], &all[2..]]);
        let (mut wishes, mut guilt, mut now) = (Vec::new(), BTreeMap::new(), Mono::default());
        for index in 0..choices.pick(tape, &[60, 120, 200]) {
            let is_first = index < FIRST_GOOD;
            if is_first || choices.chance(tape, 30) {
                now = now + 5 * MS + choices.delay(tape, 50 * MS);
            }
            let task = choices.pick(tape, tasks);
            let client = choices.pick(tape, &["ann", "bob", ""]).into();
            let mut request = JobRequest { task: task.to_owned(), client, ..JobRequest::default() };
            if !is_first && choices.chance(tape, share) {
                let what = choices.pick(tape, deadly);
                guilt.insert(index, what);
                request.timeout = (what == Guilt::Hangs).then_some(choices.pick(tape, &[3, 20]) * MS);
                request.attempts = choices.chance(tape, 200).then_some(2);
            }
            wishes.push((now, Wish::Submit(request)));
        }
        for &index in guilt.keys() {
            if choices.chance(tape, 300) {
                let at = wishes[index].0 + choices.delay(tape, 20 * MS);
                let is_abandoned = choices.chance(tape, 500);
                let wish = if is_abandoned { Wish::AbandonOf(index) } else { Wish::CancelOf(index) };
                wishes.push((at, wish));
            }
        }
        let readers = BTreeMap::new();
        Script { config, wishes, contention: None, is_crowded: false, readers, is_mixed: true, guilt }
    }

    /// The jobs that do nothing wrong.
    pub(crate) fn innocents(&self) -> BTreeSet<usize> {
        let wishes = self.wishes.iter().enumerate();
        let good = wishes
            .filter(|(index, (_, wish))| matches!(wish, Wish::Submit(_)) && !self.guilt.contains_key(index));
        good.map(|(index, _)| index).collect()
    }
}

/// A valid configuration in which every limit is near.
fn knobs(choices: &mut Choices, tape: &mut Tape) -> CoreConfig {
    let mut ms = |from: &[u32]| choices.pick(tape, from) * MS;
    let run_timeout = ms(&[1000, 1, 5, 50, 5000]);
    let hello_timeout = ms(&[1000, 20, 200, 10_000]);
    let start_timeout = ms(&[1000, 1, 5, 100, 10_000]);
    let kill_grace = ms(&[500, 1, 20]);
    let closed_grace = ms(&[50, 1, 5]);
    let backoff_min = ms(&[100, 1, 10]);
    let window = ms(&[1000, 0, 10_000]);
    let keep_results = ms(&[200, 0, 1, 20]);
    let keep_keys = ms(&[200, 1, 20, 300]);
    let keep_dead_letters = ms(&[20_000, 1, 50]);
    let drain_timeout = ms(&[10_000, 0, 5, 50, 500]);
    let mut pick = |from: &[usize]| choices.pick(tape, from);
    let workers = pick(&[2, 1, 1, 3, 4, 8]);
    let max_payload = pick(&[1000, 1, 100, 8 << 20]) as u64;
    CoreConfig {
        workers,
        programs: pick(&[1, 1, 1, 2]).min(workers),
        spares: pick(&[1, 0]),
        max_jobs: pick(&[10_000, 10_000, 1, 2, 8]),
        max_bytes: max_payload * pick(&[1000, 1000, 1, 3, 20]) as u64,
        max_payload,
        keep_results,
        keep_keys,
        max_kept_bytes: pick(&[1 << 20, 2 << 10, 4 << 10, 10 << 10]) as u64,
        keep_dead_letters,
        max_dead_letters: pick(&[1000, 0, 1, 3, 8]),
        max_dead_bytes: pick(&[1 << 20, 4 << 10, 20 << 10]) as u64,
        run_timeout,
        max_attempts: pick(&[3, 1, 2, 100]) as u32,
        hello_timeout,
        start_timeout,
        kill_grace,
        closed_grace,
        backoff_min,
        backoff_max: backoff_min * pick(&[50, 1, 8]) as u32,
        max_restarts: pick(&[5, 1, 2]) as u32,
        max_silent_starts: pick(&[5, 1]) as u32,
        window,
        drain_timeout,
        window_max: pick(&[32, 1, 2, 4]),
        cancel_grace: pick(&[100, 0, 1, 10]) as u32 * MS,
        hang_timeout: pick(&[1000, 5, 100]) as u32 * MS,
        // Longer than any message is under way: what was said before a process hangs is heard.
        reap_timeout: pick(&[2000, 200, 500]) as u32 * MS,
        max_jobs_per_client: pick(&[0, 0, 1, 5]).checked_sub(1).map(|less| less + 1),
        max_jobs_per_worker: pick(&[0, 0, 0, 1, 5]).checked_sub(1).map(|less| less as u64 + 1),
        max_age: pick(&[0, 0, 0, 50, 1000]).checked_sub(1).map(|less| (less as u32 + 1) * MS),
        max_rss: pick(&[0, 1]).checked_sub(1).map(|_| 1000),
        seed: pick(&[0, 1, 2]) as u64,
        weights: [
            ("ann".to_owned(), pick(&[1, 1, 2, 5]) as u32),
            ("bob".to_owned(), pick(&[1, 1, 3]) as u32),
        ]
        .into(),
        short_slots: pick(&[0, 0, 1, 2]).checked_sub(1).filter(|slots| *slots < workers),
        trial_jobs: pick(&[3, 1, 2]) as u32,
        trial_time: pick(&[2000, 50, 300]) as u32 * MS,
        max_resting: pick(&[1024, 0, 1, 2]),
        max_files: CoreConfig::default().max_files,
        here: TasksHere::default(),
        batches: BTreeMap::new(),
    }
}

fn wishes(choices: &mut Choices, tape: &mut Tape, config: &CoreConfig) -> Vec<(Mono, Wish)> {
    let number = choices.pick(tape, &[5, 10, 20, 40, 80, 160]);
    let pause = choices.pick(tape, &[0, 20, 1000, 20_000, 300_000]) * Duration::from_micros(1);
    let with_end = choices.chance(tape, 600);
    let mut now = Mono::default();
    let mut wishes = Vec::new();
    for index in 0..number {
        if !choices.chance(tape, 200) {
            now = now + choices.delay(tape, pause * 2);
        }
        let is_late = with_end && index * 4 > number * 3;
        let mut wish = wish(choices, tape, config, index, is_late);
        if let Wish::Submit(request) = &mut wish {
            ask_for_a_stream(choices, index, request);
            give_a_file(choices, index, request);
            ask_the_shell(choices, config, index, request);
        }
        wishes.push((now, wish));
    }
    wishes
}

fn wish(choices: &mut Choices, tape: &mut Tape, config: &CoreConfig, index: usize, is_late: bool) -> Wish {
    match choices.range(tape, 0, 115) {
        0..68 => Wish::Submit(request(choices, tape, config)),
        68..82 => Wish::CancelOf(index.saturating_sub(choices.range(tape, 1, 8) as usize)),
        82..83 => Wish::CancelUnknown,
        83 => {
            let bytes = choices.pick(tape, &[config.max_payload, 1, config.max_payload / 3]);
            Wish::Arrival { client: choices.pick(tape, &CLIENTS), bytes, is_over: choices.chance(tape, 500) }
        }
        84..85 => Wish::Measure(choices.range(tape, 1, 20)),
        100..106 => Wish::CollectOf(index.saturating_sub(choices.range(tape, 1, 12) as usize)),
        106..109 => Wish::AwaitOf(index.saturating_sub(choices.range(tape, 1, 8) as usize)),
        109..111 => Wish::AbandonOf(index.saturating_sub(choices.range(tape, 1, 8) as usize)),
        111..113 => Wish::DropLetterOf(index.saturating_sub(choices.range(tape, 1, 12) as usize)),
        85..88 => {
            let rising = index as u64 + 1;
            Wish::Reload(choices.pick(tape, &[rising, rising, rising, 0]))
        }
        88..90 => Wish::Refuse,
        90..92 => Wish::Tick,
        92..95 => {
            let fresh = knobs(choices, tape);
            let is_scaled = choices.chance(tape, 400);
            let (workers, spares) =
                if is_scaled { (fresh.workers, fresh.spares) } else { (config.workers, config.spares) };
            let short_slots = fresh.short_slots.filter(|slots| *slots < workers);
            let programs = config.programs;
            Wish::Configure(Box::new(CoreConfig { workers, programs, spares, short_slots, ..fresh }))
        }
        95..98 if is_late => {
            let limits = [Some(config.drain_timeout), Some(200 * MS), Some(5 * MS), None];
            Wish::Drain(limits[choices.pick(tape, &[0, 1, 2, 3])])
        }
        98..100 if is_late => Wish::Stop,
        _ => Wish::Submit(request(choices, tape, config)),
    }
}

/// Those with steps come twice as often.
const NAMES: &[&str] = &[
    "echo", "sum", "charge", "note", "slow", "climb", "stroll", "dig", "hop", "sum", "climb", "stroll",
    "climb",
];

fn request(choices: &mut Choices, tape: &mut Tape, config: &CoreConfig) -> JobRequest {
    let is_odd = choices.chance(tape, 60);
    let names: &[&str] = if is_odd { &["unknown", "9bad", ""] } else { NAMES };
    let task = choices.pick(tape, names).to_owned();
    let most = config.max_payload;
    let is_large = choices.chance(tape, 150);
    let input_bytes =
        if is_large { choices.pick(tape, &[most, most + 1]) } else { choices.pick(tape, &[1, 0, most / 2]) };
    let huge = Duration::from_secs(u64::MAX);
    let mut sometimes =
        |per_mille, from: &[Duration]| choices.chance(tape, per_mille).then(|| choices.pick(tape, from));
    let timeout = sometimes(250, &[100 * MS, MS, 3 * MS, Duration::from_micros(10), Duration::ZERO, huge]);
    let deadline = sometimes(250, &[100 * MS, MS, 5 * MS, Duration::from_micros(10), Duration::ZERO, huge]);
    let attempts =
        choices.chance(tape, 250).then(|| choices.pick(tape, &[2, 0, 1, 3, 5, 100])).map(|n: u32| n);
    let lane = choices.chance(tape, 40).then(|| choices.pick(tape, &[Lane::Cpu, Lane::Io]));
    let client: Arc<str> = choices.pick(tape, &CLIENTS).into();
    let priority = if choices.chance(tape, 200) { choices.pick(tape, &[5, -10, 10, 11]) } else { 0 };
    let key = choices.chance(tape, 150).then(|| {
        let name = choices.pick(tape, &["a", "b", "c", ""]).to_owned();
        Key { name, digest: choices.pick(tape, &[1, 2]) }
    });
    let is_nameless = client.starts_with("connection");
    let owner = if is_nameless { Owner::Nameless } else { Owner::of(&client) };
    let keeps_output = choices.chance(tape, 400);
    let is_of_stranger = &*client == "bob";
    JobRequest {
        task,
        client,
        owner,
        is_of_stranger,
        keeps_output,
        priority,
        key,
        input_bytes,
        tag_bytes: choices.pick(tape, &[0, 0, 0, 300]),
        has_room: false,
        timeout,
        deadline,
        attempts,
        lane,
        of_request: false,
        stream: false,
        has_file: false,
    }
}
