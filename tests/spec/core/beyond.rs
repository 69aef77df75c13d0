//! Of the jobs that a client waits for, one at a time may start beyond its share of what is kept.

use super::promises::{by, detached, pool, state};
use offload_core::event::Event;
use offload_core::ids::JobId;
use offload_core::jobs::JobState;
use offload_core::limits::PROMISE_BYTES;
use offload_protocol::nouns::OutcomeCode;
use std::time::Duration;
use tests::pool_under_test::PoolUnderTest;

const MS: Duration = Duration::from_millis(1);
const KIB: u64 = 1 << 10;

fn run(pool: &mut PoolUnderTest, job: JobId, output_bytes: u64) {
    pool.start(job);
    pool.finish_with(job, MS, output_bytes);
}

fn collect(pool: &mut PoolUnderTest, job: JobId) {
    pool.event(Event::Collected { job });
}

fn is_held(pool: &PoolUnderTest, job: JobId) -> bool {
    state(pool, job) == Some(JobState::Held)
}

/// A client that may keep half of 128 KiB and has 65: a small output, and a large one, which are the first two of these jobs. It waits
/// for the others, each of which would be beyond its share.
fn over_its_share<const COUNT: usize>(tasks: [&str; COUNT]) -> (PoolUnderTest, [JobId; 2], [JobId; COUNT]) {
    over_its_share_with(1, tasks)
}

fn over_its_share_with<const COUNT: usize>(
    workers: usize,
    tasks: [&str; COUNT],
) -> (PoolUnderTest, [JobId; 2], [JobId; COUNT]) {
    let mut pool = pool(|config| (config.max_kept_bytes, config.workers) = (128 * KIB, workers));
    let kept = [0; 2].map(|_| pool.submit_with("charge", detached("me")));
    let others = tasks.map(|task| pool.submit_with(task, detached("me")));
    run(&mut pool, kept[0], 6 * KIB);
    run(&mut pool, kept[1], 57 * KIB);
    others.iter().for_each(|job| pool.event(Event::Awaited { job: *job }));
    (pool, kept, others)
}

/// Whoever waits need not collect: a client could have had all the room by looking at its jobs.
#[test]
fn of_the_jobs_that_a_client_waits_for_one_at_a_time_is_beyond_its_share() {
    let mut pool = pool(|config| config.max_kept_bytes = 64 * KIB);
    let jobs: Vec<JobId> = (0..8).map(|_| pool.submit_with("charge", detached("me"))).collect();
    jobs[..4].iter().for_each(|job| run(&mut pool, *job, 9 * KIB));
    jobs[4..].iter().for_each(|job| pool.event(Event::Awaited { job: *job }));
    let held = |pool: &PoolUnderTest| jobs.iter().filter(|job| is_held(pool, **job)).count();
    run(&mut pool, jobs[4], 9 * KIB);
    assert_eq!(held(&pool), 3, "one was started beyond the share, and nobody has collected it");
    let other = pool.submit_with("charge", detached("other"));
    run(&mut pool, other, 5 * KIB);
    for job in &jobs[..2] {
        pool.event(Event::Collected { job: *job });
    }
    assert_eq!(held(&pool), 3, "36 KiB are kept, 30 of them for this client: no more than 28 are free");
    pool.event(Event::Collected { job: jobs[4] });
    run(&mut pool, jobs[5], 9 * KIB);
    run(&mut pool, jobs[6], 9 * KIB);
    assert_eq!(held(&pool), 1, "the first of these was within its share, the second was not");
    pool.event(Event::Collected { job: jobs[6] });
    run(&mut pool, jobs[7], 9 * KIB);
}

/// It would starve if younger ones took what is collected, again and again.
#[test]
fn a_held_job_that_somebody_waits_for_is_not_passed_by_younger_ones_of_its_client() {
    let (mut pool, [small, _], [beyond, old, later]) = over_its_share_with(2, ["charge"; 3]);
    run(&mut pool, beyond, PROMISE_BYTES + 100);
    collect(&mut pool, small);
    pool.start(old);
    assert!(is_held(&pool, later), "the client is within its share, and over the lower mark: one at a time");
    let young = pool.submit_with("charge", detached("me"));
    assert!(is_held(&pool, young), "it would have been for the idle worker");
    pool.finish_with(old, MS, 0);
    pool.start(later);
}

/// What the first of them waits for, another one need not wait for.
#[test]
fn the_place_beyond_the_share_goes_to_whichever_job_starts_first() {
    let (mut pool, _, [beyond, first, second, third]) = over_its_share(["charge", "charge", "sum", "sum"]);
    run(&mut pool, beyond, 9 * KIB);
    assert!([first, second, third].iter().all(|job| is_held(&pool, *job)));
    let of_another_client = pool.submit_with("charge", by("other"));
    pool.start(of_another_client);
    collect(&mut pool, beyond);
    assert!(![first, second].iter().any(|job| is_held(&pool, *job)), "either may find a worker first");
    pool.event(Event::Cancel { job: first });
    pool.finish_with(of_another_client, MS, 0);
    run(&mut pool, second, 9 * KIB);
    assert!(is_held(&pool, third), "that one has the place now");
}

/// Two of a client's jobs that it waits for would be beyond its share. The first of them has the place and waits for the worker, which
/// has a job of another client.
fn one_is_next() -> (PoolUnderTest, JobId, [JobId; 2]) {
    let (mut pool, _, [beyond, first, second]) = over_its_share(["charge"; 3]);
    run(&mut pool, beyond, 9 * KIB);
    let of_another_client = pool.submit_with("charge", by("other"));
    pool.start(of_another_client);
    collect(&mut pool, beyond);
    assert!(!is_held(&pool, first) && is_held(&pool, second));
    (pool, of_another_client, [first, second])
}

/// It has not started, so nothing of it is ever collected.
#[test]
fn a_job_that_ends_in_its_queue_leaves_the_place_to_another() {
    let (mut pool, of_another_client, [first, second]) = one_is_next();
    pool.event(Event::Cancel { job: first });
    assert!(!is_held(&pool, second), "at once, though all workers are busy");
    pool.finish_with(of_another_client, MS, 0);
    run(&mut pool, second, 9 * KIB);
    assert_eq!(pool.outcome(second), Some(OutcomeCode::Ok));
}

/// While no worker is free, somebody may go away, and another one has to be the next.
#[test]
fn a_job_that_nobody_waits_for_any_more_does_not_keep_the_place_for_itself() {
    let (mut pool, of_another_client, [first, second]) = one_is_next();
    pool.event(Event::Abandoned { job: first });
    pool.finish_with(of_another_client, MS, 0);
    run(&mut pool, second, 9 * KIB);
    assert!(is_held(&pool, first), "the share counts for it");
}

#[test]
fn a_held_job_that_somebody_waits_for_names_the_one_whose_output_has_to_be_collected() {
    let (mut pool, _, [beyond, next, last, of_nobody]) = over_its_share(["charge"; 4]);
    pool.event(Event::Abandoned { job: of_nobody });
    let named = |pool: &PoolUnderTest, job| pool.core.explain(pool.now, job).and_then(|job| job.held?.beyond);
    run(&mut pool, beyond, 9 * KIB);
    assert_eq!([next, last].map(|job| named(&pool, job)), [Some(beyond); 2]);
    assert!(is_held(&pool, of_nobody) && named(&pool, of_nobody).is_none());
    collect(&mut pool, beyond);
    run(&mut pool, next, 9 * KIB);
    assert_eq!(named(&pool, last), Some(next));
}

/// Nobody has a reason to collect what is not there.
#[test]
fn a_job_that_leaves_little_does_not_keep_the_place_beyond_the_share() {
    let (mut pool, _, [cancelled, little, much, last]) = over_its_share(["charge"; 4]);
    pool.start(cancelled);
    pool.event(Event::Cancel { job: cancelled });
    pool.wait(Duration::from_secs(10));
    assert_eq!(pool.outcome(cancelled), Some(OutcomeCode::Cancelled));
    run(&mut pool, little, PROMISE_BYTES);
    run(&mut pool, much, PROMISE_BYTES + 1);
    assert!(is_held(&pool, last));
}

#[test]
fn a_client_within_its_share_again_may_have_another_job_beyond_it() {
    let (mut pool, [_, large], [beyond, next, third, fourth]) = over_its_share(["charge"; 4]);
    run(&mut pool, beyond, 9 * KIB);
    assert!(is_held(&pool, next));
    collect(&mut pool, large);
    run(&mut pool, next, 60 * KIB);
    run(&mut pool, third, 9 * KIB);
    assert!(is_held(&pool, fourth));
}
