//! What comes from outside: how the core is configured, and what its clients want of it and when.

use crate::choices::{Choices, Tape};
use offload_protocol::nouns::Lane;
use offload_supervisor::core::config::CoreConfig;
use offload_supervisor::core::event::{JobRequest, Key};
use offload_supervisor::core::ids::Mono;
use std::time::Duration;

/// Everything that is decided before the first event.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// How the core is configured at the start.
    pub(crate) config: CoreConfig,
    /// What comes from outside, in the order of time.
    pub(crate) wishes: Vec<(Mono, Wish)>,
}

/// One thing that comes from outside.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    /// A job.
    Submit(JobRequest),
    /// The end of the job that this wish of the script was for.
    CancelOf(usize),
    /// The end of a job of which nobody has heard.
    CancelUnknown,
    /// The shell refuses a job.
    Refuse,
    /// Other limits.
    Configure(Box<CoreConfig>),
    /// A worker is measured: the one of this number, if it lives.
    Measure(u64),
    /// A tick that nobody needs.
    Tick,
    /// An end in good order.
    Drain,
    /// An end now.
    Stop,
}

const MS: Duration = Duration::from_millis(1);

/// The tasks of the fake workers: name, whether it may be run twice, the longest run of it if all is well.
pub(crate) const TASKS: [(&str, bool, Duration); 5] = [
    ("echo", true, Duration::from_micros(30)),
    ("sum", true, Duration::from_millis(4)),
    ("charge", false, Duration::from_millis(4)),
    ("note", false, Duration::from_micros(30)),
    ("slow", false, Duration::from_millis(800)),
];

/// Which of [`TASKS`] a program offers. One of them is offered by both where there are two.
pub(crate) fn offered_by(program: usize, programs: usize) -> &'static [usize] {
    match (programs, program) {
        (1, _) => &[0, 1, 2, 3, 4],
        (_, 0) => &[0, 1, 2],
        (_, _) => &[0, 3, 4],
    }
}

impl Script {
    /// The script of a seed.
    pub(crate) fn new(choices: &mut Choices, tape: &mut Tape) -> Script {
        let config = knobs(choices, tape);
        let wishes = wishes(choices, tape, &config);
        Script { config, wishes }
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
    let drain_timeout = ms(&[10_000, 0, 5, 50, 500]);
    let mut pick = |from: &[usize]| choices.pick(tape, from);
    let workers = pick(&[2, 1, 1, 3, 4, 8]);
    let max_payload = pick(&[1000, 1, 100, 8 << 20]) as u64;
    CoreConfig {
        workers,
        programs: pick(&[1, 1, 1, 2]).min(workers),
        spares: pick(&[1, 0]),
        max_jobs: pick(&[10_000, 10_000, 1, 2, 8]),
        max_bytes: max_payload * pick(&[1000, 1000, 1, 3]) as u64,
        max_payload,
        run_timeout,
        max_attempts: pick(&[3, 1, 2, 100]) as u32,
        hello_timeout,
        start_timeout,
        kill_grace,
        closed_grace,
        backoff_min,
        backoff_max: backoff_min * pick(&[50, 1, 8]) as u32,
        max_restarts: pick(&[5, 1, 2]) as u32,
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
        ..CoreConfig::default()
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
        wishes.push((now, wish(choices, tape, config, index, is_late)));
    }
    wishes
}

fn wish(choices: &mut Choices, tape: &mut Tape, config: &CoreConfig, index: usize, is_late: bool) -> Wish {
    match choices.range(tape, 0, 99) {
        0..70 => Wish::Submit(request(choices, tape, config)),
        70..86 => Wish::CancelOf(index.saturating_sub(choices.range(tape, 1, 8) as usize)),
        86..87 => Wish::CancelUnknown,
        87..88 => Wish::Measure(choices.range(tape, 1, 20)),
        88..90 => Wish::Refuse,
        90..92 => Wish::Tick,
        92..95 => {
            let fresh = knobs(choices, tape);
            let is_scaled = choices.chance(tape, 300);
            let workers = if is_scaled { fresh.workers } else { config.workers };
            let (programs, spares) = (config.programs, config.spares);
            Wish::Configure(Box::new(CoreConfig { workers, programs, spares, ..fresh }))
        }
        95..98 if is_late => Wish::Drain,
        98..100 if is_late => Wish::Stop,
        _ => Wish::Submit(request(choices, tape, config)),
    }
}

fn request(choices: &mut Choices, tape: &mut Tape, config: &CoreConfig) -> JobRequest {
    let is_odd = choices.chance(tape, 60);
    let names: &[&str] =
        if is_odd { &["unknown", "9bad", ""] } else { &["echo", "sum", "charge", "note", "slow"] };
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
        choices.chance(tape, 250).then(|| choices.pick(tape, &[2, 0, 1, 3, 5, 1000])).map(|n: u32| n);
    let lane = choices.chance(tape, 40).then(|| choices.pick(tape, &[Lane::Cpu, Lane::Io]));
    let client = choices.pick(tape, &["", "ann", "bob"]).to_owned();
    let priority = if choices.chance(tape, 200) { choices.pick(tape, &[5, -10, 10, 11]) } else { 0 };
    let key = choices.chance(tape, 150).then(|| {
        let name = choices.pick(tape, &["a", "b", "c", ""]).to_owned();
        Key { name, digest: choices.pick(tape, &[1, 2]) }
    });
    JobRequest { task, client, priority, key, input_bytes, timeout, deadline, attempts, lane }
}
