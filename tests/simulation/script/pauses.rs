//! Pauses of tasks, in some worlds.

use super::{FakeTask, HERE, TASKS, Wish};
use crate::choices::{Choices, Tape};
use offload_core::ids::Mono;
use std::time::Duration;

/// Adds pauses, most of which end again, while jobs come or a while later.
pub(super) fn add(choices: &mut Choices, wishes: &mut Vec<(Mono, Wish)>) {
    let tape = &mut Tape::new(1 << 41);
    if !choices.chance(tape, 250) {
        return;
    }
    let end = wishes.iter().map(|(at, _)| *at).max().unwrap_or_default() - Mono::default();
    let names: Vec<&'static str> = TASKS.iter().map(|FakeTask { name, .. }| *name).chain([HERE]).collect();
    for _ in 0..choices.pick(tape, &[1, 2, 3, 8]) {
        let task = (!choices.chance(tape, 250)).then(|| choices.pick(tape, &names));
        let begin = Mono::default() + choices.delay(tape, end + Duration::from_millis(5));
        wishes.push((begin, Wish::Pause(task)));
        if choices.chance(tape, 800) {
            let time = choices.delay(tape, end + Duration::from_millis(50));
            let resumed = if choices.chance(tape, 200) { None } else { task };
            wishes.push((begin + time, Wish::Resume(resumed)));
        }
    }
}
