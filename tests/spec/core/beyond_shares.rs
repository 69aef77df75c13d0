//! What clients have kept beyond their shares, because the length of an output is known only at its end.

use super::promises::{again_in, detached, pool, run_one, state};
use offload_core::action::Keep;
use offload_core::event::Event;
use offload_core::ids::JobId;
use offload_core::jobs::JobState;
use offload_protocol::nouns::OutcomeCode::*;
use std::time::Duration;
use tests::pool_under_test::PoolUnderTest;

const MS: Duration = Duration::from_millis(1);

/// How long an output is, is known only at its end: a client may have two outputs of which each takes all that may be kept.
fn with_long_outputs(pool: &mut PoolUnderTest, client: &str) -> [Keep; 2] {
    let jobs = [0; 2].map(|_| pool.submit_with("charge", detached(client)));
    jobs.iter().for_each(|job| {
        pool.start(*job);
    });
    jobs.iter().for_each(|job| pool.finish_with(*job, MS, 1 << 20));
    jobs.map(|job| pool.ended[&job].keep)
}

#[test]
fn what_one_client_has_beyond_its_share_takes_no_room_from_the_others() {
    let mut pool =
        pool(|config| (config.workers, config.max_kept_bytes, config.max_payload) = (2, 1 << 20, 1 << 20));
    assert_eq!(with_long_outputs(&mut pool, "me"), [Keep::Promised; 2]);
    assert!(pool.core.promises().kept().all().bytes > 2 << 20);
    assert_eq!(pool.refusal_with("charge", detached("me")).code, Quota);
    for _ in 0..7 {
        let job = run_one(&mut pool, detached("other"), 32 << 10);
        assert_eq!(pool.ended[&job].keep, Keep::Promised);
    }
}

#[test]
fn while_clients_have_as_much_beyond_their_shares_as_all_workers_return_no_other_begins() {
    let mut pool = pool(|config| {
        (config.workers, config.max_kept_bytes, config.max_payload) = (2, 1 << 20, 1 << 20);
    });
    for client in ["one", "two"] {
        assert_eq!(with_long_outputs(&mut pool, client), [Keep::Promised; 2]);
    }
    assert!(pool.core.promises().kept().all().bytes > 4 << 20);
    let held = pool.submit_with("charge", detached("other"));
    assert_eq!(state(&pool, held), Some(JobState::Held));
    let told = pool.core.explain(pool.now, held).and_then(|job| job.held).unwrap();
    assert!(told.of_all.is_some_and(|(all, limit)| all > 4 << 20 && limit == 3 << 20), "{told:?}");
    let kept: Vec<JobId> = pool.ended.keys().copied().collect();
    kept[..2].iter().for_each(|job| pool.event(Event::Collected { job: *job }));
    pool.run(held);
}

/// Who may never collect it could have had all the room with two jobs.
#[test]
fn an_output_of_a_stranger_beyond_its_share_is_not_kept() {
    let mut pool = pool(|config| {
        (config.workers, config.max_kept_bytes, config.max_payload) = (2, 1 << 20, 1 << 20);
    });
    let jobs = [0; 2].map(|_| {
        pool.submit_with("charge", |request| {
            detached("stranger")(request);
            request.is_of_stranger = true;
        })
    });
    jobs.iter().for_each(|job| {
        pool.start(*job);
    });
    for (job, bytes) in jobs.into_iter().zip([500 << 10, 500 << 10]) {
        pool.finish_with(job, MS, bytes);
    }
    assert_eq!(
        jobs.map(|job| (pool.outcome(job), pool.ended[&job].keep)),
        [(Some(Ok), Keep::Promised), (Some(Ok), Keep::WithoutOutput),]
    );
}

/// Four full shares are fifteen sixteenths of the limit.
#[test]
fn a_held_job_goes_on_when_its_client_collects_however_full_the_shares_of_others_are() {
    let mut pool = pool(|config| (config.max_kept_bytes, config.max_payload) = (1 << 20, 1 << 20));
    for (client, kib) in [("one", 600), ("two", 300), ("three", 150), ("four", 80)] {
        let job = run_one(&mut pool, detached(client), kib << 10);
        assert_eq!(pool.ended[&job].keep, Keep::Promised);
    }
    let [kept, held] = [0; 2].map(|_| pool.submit_with("charge", detached("five")));
    pool.start(kept);
    pool.finish_with(kept, MS, 48 << 10);
    assert_eq!(state(&pool, held), Some(JobState::Held));
    pool.event(Event::Collected { job: kept });
    pool.run(held);
    let newcomer = pool.submit_with("charge", detached("six"));
    pool.run(newcomer);
}

#[test]
fn who_is_beyond_its_share_is_told_when_as_much_has_gone_as_it_must_collect() {
    let mut pool = pool(|config| (config.workers, config.max_kept_bytes) = (4, 1 << 20));
    let jobs: Vec<JobId> = (0..4).map(|_| pool.submit_with("charge", detached("me"))).collect();
    jobs.iter().for_each(|job| {
        pool.start(*job);
    });
    for job in &jobs {
        pool.wait(1000 * MS);
        pool.finish_with(*job, MS, 256 << 10);
    }
    let again = again_in(&pool.refusal_with("charge", detached("me")));
    pool.wait(again - 2 * MS);
    assert_eq!(pool.refusal_with("charge", detached("me")).code, Quota);
    pool.wait(3 * MS);
    assert!(pool.accepts("charge", detached("me")));
}
