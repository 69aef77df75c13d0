//! What some jobs are beside their task: streams, with files as inputs, or for the shell itself.

use super::HERE;
use crate::choices::{Choices, Tape};
use offload_core::config::CoreConfig;
use offload_core::event::JobRequest;

/// Some outputs are read in parts. Of these few have a key or are to be kept, which is refused.
pub(super) fn ask_for_a_stream(choices: &mut Choices, index: usize, request: &mut JobRequest) {
    let tape = &mut Tape::new((1 << 33) + index as u64);
    request.stream = choices.chance(tape, 300);
    if request.stream && !choices.chance(tape, 50) {
        (request.key, request.keeps_output) = (None, false);
    }
}

/// Some inputs are files. Of these few have a key, which is refused.
pub(super) fn give_a_file(choices: &mut Choices, index: usize, request: &mut JobRequest) {
    let tape = &mut Tape::new((1 << 35) + index as u64);
    request.has_file = choices.chance(tape, 150);
    if request.has_file && !choices.chance(tape, 100) {
        request.key = None;
    }
}

/// Some jobs are for the shell itself.
pub(super) fn ask_the_shell(
    choices: &mut Choices,
    config: &CoreConfig,
    index: usize,
    request: &mut JobRequest,
) {
    let tape = &mut Tape::new((1 << 38) + index as u64);
    if config.here.places > 0 && choices.chance(tape, 200) {
        request.task = HERE.to_owned();
    }
}
