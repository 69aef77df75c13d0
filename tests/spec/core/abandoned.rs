//! Jobs that nobody waits for any more, and jobs that no worker lives to start: both end.

use offload_core::event::{Event, Key};
use offload_core::exit::Exit;
use offload_core::ids::{JobId, WorkerId};
use offload_core::kept::Owner;
use offload_protocol::nouns::OutcomeCode::*;
use std::time::Duration;
use tests::pool_under_test::PoolUnderTest;

/// So many jobs have shown that the program works.
fn proven(workers: usize) -> PoolUnderTest {
    let mut pool = PoolUnderTest::slots(workers);
    let job = pool.submit("sum");
    pool.run(job);
    pool
}

fn abandon(pool: &mut PoolUnderTest, job: JobId) {
    pool.event(Event::Abandoned { job });
}

/// The worker that has it, or is given it after a pause.
fn worker_with(pool: &mut PoolUnderTest, job: JobId) -> WorkerId {
    loop {
        match pool.worker_with(job) {
            Some(worker) => return worker,
            None => pool.wait(Duration::from_millis(100)),
        }
    }
}

/// That worker ends without having started it.
fn lose_unstarted(pool: &mut PoolUnderTest, job: JobId) {
    let worker = worker_with(pool, job);
    pool.exit(worker, Exit::Signal(11));
}

#[test]
fn an_abandoned_job_that_waits_is_cancelled_and_one_that_runs_may_end() {
    let mut pool = proven(1);
    let [runs, waits] = [0; 2].map(|_| pool.submit("sum"));
    pool.start(runs);
    for job in [runs, waits] {
        abandon(&mut pool, job);
    }
    assert_eq!((pool.outcome(runs), pool.outcome(waits)), (None, Some(Cancelled)));
    pool.finish(runs);
    assert_eq!(pool.outcome(runs), Some(Ok));
}

#[test]
fn an_abandoned_job_that_its_worker_had_not_started_is_cancelled_when_it_comes_back() {
    let mut pool = proven(2);
    let job = pool.submit("charge");
    let worker = pool.worker_with(job).expect("it is sent");
    abandon(&mut pool, job);
    assert_eq!(pool.outcome(job), None, "it may have been started by now");
    pool.exit(worker, Exit::Signal(11));
    assert_eq!((pool.outcome(job), pool.ended[&job].attempts), (Some(Cancelled), 0));
}

#[test]
fn an_abandoned_job_that_runs_is_not_retried() {
    let mut pool = proven(2);
    let job = pool.submit("sum");
    pool.start(job);
    abandon(&mut pool, job);
    pool.crash_the_worker_running(job);
    assert_eq!((pool.outcome(job), pool.ended[&job].attempts), (Some(Cancelled), 1));
    assert_eq!(pool.ended[&job].lost.len(), 1, "what became of it is told");
}

#[test]
fn an_abandoned_job_that_no_worker_lives_to_start_is_cancelled() {
    let mut pool = proven(2);
    let job = pool.submit("charge");
    for _ in 0..5 {
        lose_unstarted(&mut pool, job);
    }
    worker_with(&mut pool, job);
    abandon(&mut pool, job);
    assert_eq!(pool.outcome(job), None);
    lose_unstarted(&mut pool, job);
    assert_eq!(pool.outcome(job), Some(Cancelled));
}

#[test]
fn an_abandoned_job_for_which_a_client_waits_again_is_retried() {
    let mut pool = proven(2);
    let job = pool.submit("sum");
    pool.start(job);
    abandon(&mut pool, job);
    pool.event(Event::Awaited { job });
    pool.crash_the_worker_running(job);
    pool.run(job);
    assert_eq!((pool.outcome(job), pool.ended[&job].attempts), (Some(Ok), 2));
}

#[test]
fn a_detached_job_or_one_with_a_key_is_not_abandoned_when_nobody_waits() {
    let mut pool = proven(1);
    let busy = pool.submit("sum");
    let detached = pool.submit_with("sum", |request| request.keeps_output = true);
    let keyed = pool.submit_with("sum", |request| {
        request.key = Some(Key { name: "a".to_owned(), digest: 1 });
        request.owner = Owner::of("ann");
    });
    for job in [detached, keyed] {
        abandon(&mut pool, job);
    }
    for job in [busy, detached, keyed] {
        pool.run(job);
        assert_eq!(pool.outcome(job), Some(Ok));
    }
}

#[test]
fn a_job_that_no_worker_lives_to_start_is_unavailable_in_the_end_and_nobody_is_blamed() {
    let mut pool = proven(2);
    let job = pool.submit("charge");
    let mut tries = 0;
    while pool.outcome(job).is_none() {
        lose_unstarted(&mut pool, job);
        tries += 1;
    }
    // One that had done another job and does not count, two before it is suspected, six until the pause between them is as long as
    // it gets, and those after that.
    assert_eq!((pool.outcome(job), tries), (Some(Unavailable), 20));
    let ended = &pool.ended[&job];
    assert!(ended.attempts == 0 && ended.lost.iter().all(|lost| !lost.is_blamed));
    let message = &ended.error.as_ref().expect("it has a reason").message;
    assert!(message.starts_with("19 workers in a row ended before they had started it"), "{message}");
    let next = pool.submit("charge");
    pool.run(next);
    assert_eq!(pool.outcome(next), Some(Ok), "the program is as good as it was");
}

#[test]
fn a_drain_without_a_limit_ends_although_no_worker_lives_to_start_a_job() {
    let mut pool = proven(2);
    let jobs = [0; 3].map(|_| pool.submit_with("charge", |request| request.keeps_output = true));
    pool.event(Event::Drain { limit: None });
    let began = pool.now;
    while !pool.is_over {
        for job in jobs {
            if let Some(worker) = pool.worker_with(job) {
                pool.exit(worker, Exit::Signal(11));
            }
        }
        pool.wait(Duration::from_millis(100));
        assert!(pool.now - began < Duration::from_secs(60), "{:?}", pool.core);
    }
    assert!(jobs.iter().all(|job| pool.outcome(*job) == Some(Unavailable)));
}
