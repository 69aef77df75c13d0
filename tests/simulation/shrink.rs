//! Makes a failing run small: wishes are left out and choices are made harmless, half of them at a time, then a quarter
//! and so on, for as long as the same rule is broken (delta debugging, A. Zeller).

use crate::world::{Plan, Verdict};
use std::time::{Duration, Instant};

/// Shrinking is for people who wait.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The smallest plan that was found to break the same rule, with its verdict.
pub(crate) fn shrink(seed: u64, run: &dyn Fn(Plan) -> Verdict) -> (Plan, Verdict) {
    let give_up_at = Instant::now() + TIME_LIMIT;
    let mut plan = Plan { seed, with_trace: true, ..Plan::default() };
    let mut best = run(plan.clone());
    let Some(rule) = best.failure.as_ref().map(|failure| failure.rule) else { return (plan, best) };
    loop {
        let events = best.events;
        let wishes: Vec<usize> = (0..best.wishes).filter(|wish| !plan.left_out.contains(wish)).collect();
        drop_parts(&wishes, give_up_at, &mut |part| {
            let mut candidate = plan.clone();
            candidate.left_out.extend(part);
            accept(candidate, rule, run, &mut plan, &mut best)
        });
        let bold = best.bold.clone();
        drop_parts(&bold, give_up_at, &mut |part| {
            let mut candidate = plan.clone();
            candidate.harmless.extend(part);
            accept(candidate, rule, run, &mut plan, &mut best)
        });
        if best.events >= events || Instant::now() > give_up_at {
            return (plan, best);
        }
    }
}

/// Takes the candidate if it breaks the same rule. It may be larger in events for the moment.
fn accept(
    candidate: Plan,
    rule: &str,
    run: &dyn Fn(Plan) -> Verdict,
    plan: &mut Plan,
    best: &mut Verdict,
) -> bool {
    let verdict = run(candidate.clone());
    let is_same = verdict.failure.as_ref().is_some_and(|failure| failure.rule == rule);
    if is_same {
        *plan = candidate;
        *best = verdict;
    }
    is_same
}

/// Offers ever smaller parts of `all` to be dropped.
fn drop_parts<T: Copy>(all: &[T], give_up_at: Instant, is_dropped: &mut dyn FnMut(&[T]) -> bool) {
    let mut left = all.to_vec();
    let mut size = left.len().div_ceil(2);
    while size > 0 && Instant::now() < give_up_at {
        let mut kept = Vec::new();
        for part in left.chunks(size) {
            if Instant::now() > give_up_at || !is_dropped(part) {
                kept.extend_from_slice(part);
            }
        }
        left = kept;
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
}
