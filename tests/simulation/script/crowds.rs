//! Turns a random script into one with more jobs than workers, or with more to keep than there is room for.

use super::{FIRST_GOOD, FakeTask, Guilt, MS, Wish};
use crate::choices::{Choices, Tape};
use offload_core::config::CoreConfig;
use offload_core::ids::Mono;
use offload_core::kept::Owner;
use std::collections::BTreeMap;
use std::time::Duration;

/// So few workers that short jobs have to be run between the steps of long ones.
pub(super) fn few_workers(choices: &mut Choices, tape: &mut Tape, drawn: CoreConfig) -> CoreConfig {
    let CoreConfig { max_jobs, max_bytes, max_payload, run_timeout, hello_timeout, start_timeout, .. } =
        CoreConfig::default();
    let CoreConfig { max_attempts, max_jobs_per_client, backoff_min, max_age, .. } = CoreConfig::default();
    let (workers, programs, short_slots) = (choices.pick(tape, &[1, 2]), 1, Some(0));
    CoreConfig {
        workers,
        programs,
        short_slots,
        max_jobs,
        max_bytes,
        max_payload,
        run_timeout,
        hello_timeout,
        start_timeout,
        max_attempts,
        max_jobs_per_client,
        backoff_min: backoff_min.min(drawn.backoff_max),
        max_age,
        ..drawn
    }
}

/// Jobs with steps, and short ones that come while they run. The first ones show that they are short.
pub(super) fn crowd(choices: &mut Choices, tape: &mut Tape, wishes: &mut [(Mono, Wish)]) {
    for (index, (at, wish)) in wishes.iter_mut().enumerate() {
        let Wish::Submit(request) = wish else { continue };
        let task = match index {
            0..6 => "sum",
            _ => choices.pick(tape, &["climb", "sum", "sum", "stroll", "echo", "charge"]),
        };
        request.task = task.to_owned();
        (request.deadline, request.lane) = (None, None);
        request.timeout = request.timeout.filter(|_| index % 3 == 0);
        *at = *at + Duration::from_millis(5 * index as u64);
    }
}

/// Most jobs leave results behind, and there is room for a few of them.
pub(super) fn hoard(
    choices: &mut Choices,
    tape: &mut Tape,
    config: &mut CoreConfig,
    wishes: &mut [(Mono, Wish)],
) {
    *config = few_workers(choices, tape, config.clone());
    config.keep_results = choices.pick(tape, &[150, 2000]) * MS;
    config.keep_keys = choices.pick(tape, &[100, 200]) * MS;
    config.max_kept_bytes = choices.pick(tape, &[40 << 10, 20 << 10, 100 << 10, 400 << 10]);
    for (index, (at, wish)) in wishes.iter_mut().enumerate() {
        *at = *at + MS * index as u32;
        match wish {
            Wish::Submit(request) => {
                request.keeps_output = choices.chance(tape, 900);
                request.task = choices.pick(tape, &["sum", "sum", "echo", "charge"]).to_owned();
            }
            Wish::CancelOf(of) if choices.chance(tape, 500) => *wish = Wish::AwaitOf(*of),
            Wish::CancelOf(of) if choices.chance(tape, 300) => *wish = Wish::AbandonOf(*of),
            Wish::Configure(fresh) => fresh.max_kept_bytes = fresh.max_kept_bytes.max(40 << 10),
            _ => {}
        }
    }
}

/// Somebody waits for many of the jobs whose results are kept, and few of these are collected. In half of these scripts the jobs come
/// before there is any result, most of them from one client, and results are kept for long: then there are many that wait for room.
/// All of it is drawn from a tape of its own, so that nothing else of a script changes with it.
pub(super) fn watch(choices: &mut Choices, config: &mut CoreConfig, wishes: &mut Vec<(Mono, Wish)>) {
    let mut tape = Tape::new(5);
    if !choices.chance(&mut tape, 600) {
        return;
    }
    let is_burst = choices.chance(&mut tape, 500);
    if is_burst {
        config.keep_results = 1000 * MS;
        config.max_kept_bytes = choices.pick(&mut tape, &[40 << 10, 80 << 10, 160 << 10]);
    }
    let mut submitted = Vec::new();
    for (index, (at, wish)) in wishes.iter_mut().enumerate() {
        let Wish::Submit(request) = wish else { continue };
        if is_burst {
            *at = Mono::default() + Duration::from_micros(10) * index as u32;
            (request.key, request.deadline) = (None, None);
            if choices.chance(&mut tape, 800) {
                (request.client, request.owner) = ("ann".into(), Owner::of("ann"));
            }
        }
        submitted.push((index, *at));
    }
    for (index, at) in submitted {
        if choices.chance(&mut tape, 600) {
            let from = at + choices.delay(&mut tape, 20 * MS);
            wishes.push((from, Wish::AwaitOf(index)));
            if choices.chance(&mut tape, 150) {
                wishes.push((from + choices.delay(&mut tape, 50 * MS), Wish::AbandonOf(index)));
            }
        }
        if choices.chance(&mut tape, 300) {
            wishes.push((at + choices.delay(&mut tape, 300 * MS), Wish::CollectOf(index)));
        }
    }
}

/// In half of the crowds some short jobs end their workers, and do so also between the steps of a job that does nothing
/// wrong: few other things end a worker just then. They are drawn from a tape of their own, so that nothing else of a
/// script changes with them.
pub(super) fn crowd_guilt(choices: &mut Choices, wishes: &[(Mono, Wish)]) -> BTreeMap<usize, Guilt> {
    let mut tape = Tape::new(4);
    let share = choices.pick(&mut tape, &[0, 0, 100, 400]);
    let mut guilt = BTreeMap::new();
    for (index, (_, wish)) in wishes.iter().enumerate().skip(FIRST_GOOD) {
        let Wish::Submit(request) = wish else { continue };
        let is_short = FakeTask::find(&request.task).is_some_and(|task| !task.is_stepped);
        if is_short && choices.chance(&mut tape, share) {
            guilt.insert(index, Guilt::Crashes);
        }
    }
    guilt
}
