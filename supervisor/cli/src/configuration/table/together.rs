//! Which values go together: what gives way to what somebody chose, and which two choices contradict each other.

use super::Values;
use offload_core::limits::WORKERS_MAX;
use offload_supervisor::units::{show_duration, show_size};

/// Each program needs a worker, even on a machine with one core.
pub(super) fn workers_for_each_program(values: &mut Values) {
    let programs = number_of_programs(values);
    let workers = &mut values.pool.core.workers;
    *workers = (*workers).max(programs).min(WORKERS_MAX);
}

/// All adapters are one program. Without commands, the built-in worker is another one.
fn number_of_programs(values: &Values) -> usize {
    let Values { commands, jsonl_commands, http_commands, programs, .. } = values;
    (commands.len() + jsonl_commands.len() + http_commands.len()).max(1) + usize::from(!programs.is_empty())
}

pub(super) fn each_program_has_a_worker(values: &Values) -> Result<(), String> {
    let (programs, workers) = (number_of_programs(values), values.pool.core.workers);
    goes(programs <= workers, || {
        let exec = if values.programs.is_empty() { "" } else { ", and those of exec tasks are one of them" };
        format!("{workers} is too few for {programs} worker programs: each needs a worker{exec}")
    })
}

pub(super) fn bytes_for_the_largest_payload(values: &mut Values) {
    let core = &mut values.pool.core;
    core.max_bytes = core.max_bytes.max(core.max_payload);
}

pub(super) fn payload_within_bytes(values: &mut Values) {
    let core = &mut values.pool.core;
    core.max_payload = core.max_payload.min(core.max_bytes);
}

pub(super) fn the_largest_payload_can_be_queued(values: &Values) -> Result<(), String> {
    let [payload, bytes] = [values.pool.core.max_payload, values.pool.core.max_bytes];
    goes(payload <= bytes, || {
        let [payload, bytes] = [payload, bytes].map(show_size);
        format!("{payload} is over max_bytes, {bytes}: the largest job could never be queued")
    })
}

pub(super) fn backoff_min_within_max(values: &mut Values) {
    let core = &mut values.pool.core;
    core.backoff_min = core.backoff_min.min(core.backoff_max);
}

pub(super) fn backoff_max_over_min(values: &mut Values) {
    let core = &mut values.pool.core;
    core.backoff_max = core.backoff_max.max(core.backoff_min);
}

pub(super) fn backoff_min_is_within_max(values: &Values) -> Result<(), String> {
    let [min, max] = [values.pool.core.backoff_min, values.pool.core.backoff_max];
    goes(min <= max, || {
        let [min, max] = [min, max].map(show_duration);
        format!("{min} is over backoff_max, {max}")
    })
}

pub(super) fn long_jobs_have_a_slot(values: &Values) -> Result<(), String> {
    let (slots, workers) = (values.pool.core.short_slots.unwrap_or(0), values.pool.core.workers);
    goes(slots < workers, || format!("{slots} of {workers} workers: none would be left for long jobs"))
}

fn goes(holds: bool, sentence: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(sentence()) }
}
