//! What jobs in flight are expected to return counts where jobs join others at a worker, if their outputs are to be kept.

use super::promises::{by, detached, pool, state};
use offload_core::event::Event;
use offload_core::ids::JobId;
use offload_core::jobs::JobState;
use offload_core::ledger::Holding;
use offload_protocol::nouns::OutcomeCode::Ok;
use std::time::Duration;
use tests::pool_under_test::PoolUnderTest;

const MS: Duration = Duration::from_millis(1);

fn run_tiny(pool: &mut PoolUnderTest, job: JobId, output_bytes: u64) {
    pool.start(job);
    pool.finish_with(job, Duration::from_micros(1), output_bytes);
}

fn is_out(pool: &PoolUnderTest, job: JobId) -> bool {
    state(pool, job).is_some_and(JobState::is_dispatched)
}

/// One worker, room for 64 KiB, and jobs that are known to be tiny and to return 4 KiB.
fn tiny() -> PoolUnderTest {
    let mut pool = pool(|config| config.max_kept_bytes = 64 << 10);
    for client in ["me", "other"] {
        for _ in 0..8 {
            let job = pool.submit_with("charge", by(client));
            run_tiny(&mut pool, job, 4 << 10);
        }
    }
    pool
}

/// A worker has up to thirty tiny jobs at a time. All of them would start into the last bit of room.
#[test]
fn tiny_jobs_join_others_only_where_there_is_room_for_what_all_of_them_return() {
    let mut pool = tiny();
    let forgotten: Vec<JobId> = (0..30).map(|_| pool.submit_with("charge", by("me"))).collect();
    let out = forgotten.iter().filter(|job| is_out(&pool, **job)).count();
    assert!(out > 20, "{out} tiny jobs of which nothing is kept are at the worker");
    forgotten.into_iter().for_each(|job| run_tiny(&mut pool, job, 4 << 10));

    let mut jobs: Vec<JobId> = (0..30).map(|_| pool.submit_with("charge", detached("me"))).collect();
    let (mut most, mut most_at_once) = (0, 0);
    while let Some(first) = jobs.iter().position(|job| is_out(&pool, *job)) {
        most_at_once = most_at_once.max(jobs.iter().filter(|job| is_out(&pool, **job)).count());
        let job = jobs.remove(first);
        run_tiny(&mut pool, job, 4 << 10);
        most = most.max(pool.core.promises().kept_of_ended().all().bytes);
    }
    assert_eq!(most_at_once, 6, "six times 5 KiB with its report are within half of 64 KiB");
    assert_eq!(most, 35 << 10, "one more went to the idle worker, which is one too many");
    assert!(jobs.iter().all(|job| state(&pool, *job) == Some(JobState::Held)));
    let other = pool.submit_with("charge", detached("other"));
    run_tiny(&mut pool, other, 4 << 10);
    assert_eq!(pool.outcome(other), Some(Ok), "there is room for others");
}

/// What they return may exceed the limit, but no worker is left idle for what may be.
#[test]
fn an_idle_worker_gets_a_job_whatever_those_in_flight_are_expected_to_return() {
    let mut pool = pool(|config| (config.workers, config.max_kept_bytes) = (4, 64 << 10));
    let first = pool.submit_with("charge", by("me"));
    pool.start(first);
    pool.finish_with(first, MS, 60 << 10);
    let mine: Vec<JobId> = (0..3).map(|_| pool.submit_with("charge", detached("me"))).collect();
    let other = pool.submit_with("sum", detached("other"));
    for job in mine.into_iter().chain([other]) {
        assert!(is_out(&pool, job), "{job} waits");
    }
}

/// A job that does not fit beside the others gets the worker when that is idle, and others do not join it until then.
#[test]
fn a_job_that_does_not_fit_beside_others_is_not_passed_by_those_that_would() {
    let mut pool = tiny();
    let mine: Vec<JobId> = (0..7).map(|_| pool.submit_with("charge", detached("me"))).collect();
    assert!(is_out(&pool, mine[5]) && !is_out(&pool, mine[6]));
    let others: Vec<JobId> = (0..40).map(|_| pool.submit_with("charge", by("me"))).collect();
    assert!(!is_out(&pool, others[0]), "it is younger");
    for job in &mine[..5] {
        run_tiny(&mut pool, *job, 0);
        assert!(!is_out(&pool, others[0]) || is_out(&pool, mine[6]));
    }
    run_tiny(&mut pool, mine[5], 0);
    assert!(is_out(&pool, mine[6]));
    run_tiny(&mut pool, mine[6], 0);
    others.into_iter().for_each(|job| run_tiny(&mut pool, job, 0));
}

/// However a job stops being in flight, nothing is expected of it any more.
#[test]
fn nothing_is_expected_of_a_job_that_is_not_in_flight() {
    for end in ["returns", "is cancelled", "loses its worker"] {
        let mut pool = tiny();
        let job = pool.submit_with("charge", detached("me"));
        assert_eq!(pool.core.promises().expected_of(job), Some(5 << 10));
        match end {
            "returns" => run_tiny(&mut pool, job, 0),
            "is cancelled" => pool.event(Event::Cancel { job }),
            _ => pool.crash_the_worker_running(job),
        }
        assert_eq!(pool.core.promises().expected_of(job), None, "{end}");
    }
}

/// A client takes an output of so many bytes.
fn take(pool: &mut PoolUnderTest, client: &str, bytes: u64) {
    pool.event(Event::Released { client: client.into(), what: Holding::Outgoing, bytes });
}

/// When its jobs begin, nobody knows how long their outputs are, so it has more than its share and leaves nothing to others.
#[test]
fn small_jobs_of_others_go_on_while_a_client_does_not_read_large_outputs() {
    let limit = 32 << 20;
    let mut pool = pool(|config| {
        (config.workers, config.max_bytes, config.max_payload) = (6, limit, 8 << 20);
    });
    for client in ["innocent", "another"] {
        let job = pool.submit_with("sum", by(client));
        pool.start(job);
        pool.finish_with(job, MS, 10);
        take(&mut pool, client, 10);
    }
    pool.wait(1000 * MS);
    let rude: Vec<JobId> = (0..6).map(|_| pool.submit_with("charge", by("rude"))).collect();
    let more = pool.submit_with("charge", by("rude"));
    rude.iter().for_each(|job| {
        pool.start(*job);
    });
    for job in rude {
        pool.finish_with(job, MS, 8 << 20);
    }
    assert!(pool.core.ledger().all().total() > limit);
    let small: Vec<JobId> =
        ["innocent", "innocent", "another"].map(|client| pool.submit_with("sum", by(client))).into();
    assert_eq!(
        [more, small[0], small[1], small[2]].map(|job| is_out(&pool, job)),
        [false, true, false, true]
    );
    for (job, client) in small.into_iter().zip(["innocent", "innocent", "another"]) {
        pool.run(job);
        assert_eq!(pool.outcome(job), Some(Ok), "one after another");
        take(&mut pool, client, 10);
    }
    let large = pool.submit_with("charge", by("innocent"));
    assert!(!is_out(&pool, large) && !is_out(&pool, more), "such outputs are known to be long by now");
}
