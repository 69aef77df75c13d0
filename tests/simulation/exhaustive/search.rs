//! Searches all states that can be reached from one, in parallel, level by level.

use super::{Next, Scope, State};
use crate::oracle::Failure;
use std::collections::BTreeSet;

/// What a search has found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) states: usize,
    pub(super) steps: usize,
    pub(super) depth: usize,
    /// Whether there was nothing new to be found any deeper.
    pub(super) is_complete: bool,
    pub(super) failure: Option<(Vec<Next>, Failure)>,
}

pub(super) fn search(scope: &Scope, root: &[Next], depth: usize) -> Found {
    let mut seen = BTreeSet::new();
    let mut frontier = vec![root.to_vec()];
    let mut found = Found::default();
    while found.depth < depth && !frontier.is_empty() {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let size = frontier.len().div_ceil(threads);
        let parts = std::thread::scope(|threads| {
            let spawn = |part| threads.spawn(move || expand(scope, part));
            let running: Vec<_> = frontier.chunks(size).map(spawn).collect();
            running.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        let mut deeper = Vec::new();
        for (digest, way, failure) in parts.into_iter().flatten() {
            found.steps += 1;
            if let Some(failure) = failure {
                found.failure = Some((way, failure));
                return found;
            }
            if seen.insert(digest) {
                deeper.push(way);
            }
        }
        frontier = deeper;
        found.depth += 1;
    }
    found.states = seen.len();
    found.is_complete = frontier.is_empty();
    found
}

type Step = (u64, Vec<Next>, Option<Failure>);

fn expand(scope: &Scope, frontier: &[Vec<Next>]) -> Vec<Step> {
    let mut steps = Vec::new();
    for way in frontier {
        let Ok(state) = State::at(scope, way) else { continue };
        for next in state.choices() {
            let way: Vec<Next> = way.iter().copied().chain([next]).collect();
            steps.push(match State::at(scope, &way) {
                Ok(state) => (state.digest(), way, None),
                Err(failure) => (0, way, Some(failure)),
            });
        }
    }
    steps
}
