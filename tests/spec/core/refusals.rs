//! Which clients' jobs are rejected when no worker can be had, and which are not.

use offload_core::config::CoreConfig;
use offload_core::event::{Event, JobRequest};
use offload_core::exit::Exit;
use offload_core::ids::{JobId, WorkerId};
use offload_protocol::nouns::OutcomeCode::*;
use offload_protocol::nouns::TaskOffer;
use std::time::Duration;
use tests::pool_under_test::{PoolUnderTest, Start, offers};

const MS: Duration = Duration::from_millis(1);

fn by(client: &'static str) -> impl Fn(&mut JobRequest) {
    move |request| request.client = client.into()
}

/// Ends each worker that has a job of `guilty` before it starts it, for so long.
fn let_workers_die_with(pool: &mut PoolUnderTest, guilty: &[JobId], times: usize) {
    for _ in 0..times {
        let with = guilty.iter().find_map(|job| pool.worker_with(*job));
        if let Some(worker) = with {
            pool.exit(worker, Exit::Code(1));
        }
        pool.wait(100 * MS);
    }
}

/// No job has been done yet, so the program may be broken. A client whose job could show that it works must not be rejected.
#[test]
fn the_jobs_of_one_client_that_no_worker_lives_to_start_do_not_shut_out_those_of_another() {
    let mut pool = PoolUnderTest::slots(2);
    let guilty: Vec<JobId> = (0..32).map(|_| pool.submit_with("sum", by("guilty"))).collect();
    let_workers_die_with(&mut pool, &guilty, 100);
    assert!(
        guilty.iter().all(|job| pool.outcome(*job) == Some(Unavailable)),
        "nothing shows that it may be done"
    );
    let innocent = [0; 3].map(|_| pool.submit_with("sum", by("innocent")));
    pool.wait(10_000 * MS);
    for job in innocent {
        pool.run(job);
        assert_eq!(pool.outcome(job), Some(Ok));
    }
    let again = pool.submit_with("sum", by("guilty"));
    assert_eq!(pool.outcome(again), None, "the program is good, so its jobs are tried again");
}

#[test]
fn cancelling_the_jobs_that_end_workers_does_not_blame_the_program() {
    let mut pool = PoolUnderTest::slots(1);
    for _ in 0..20 {
        let guilty = pool.submit_with("sum", by("guilty"));
        if let Some(worker) = pool.worker_with(guilty) {
            pool.event(Event::Cancel { job: guilty });
            pool.exit(worker, Exit::Code(1));
        }
        pool.wait(1000 * MS);
    }
    let innocent = pool.submit_with("sum", by("innocent"));
    pool.wait(10_000 * MS);
    pool.run(innocent);
    assert_eq!(pool.outcome(innocent), Some(Ok));
}

#[test]
fn workers_that_die_right_after_their_hello_are_started_ever_more_slowly_without_a_window_too() {
    let config = CoreConfig { workers: 1, spares: 0, window: Duration::ZERO, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Hello);
    for _ in 0..20 {
        if let Some(worker) = pool.workers.keys().next().copied() {
            pool.exit(worker, Exit::Code(1));
        }
        pool.wait(Duration::from_millis(50));
    }
    assert!(pool.spawned_at.len() <= 5, "{:?}", pool.spawned_at);
}

/// Of two workers one lacks a task, the other one ends, and no more can be started: who asks for that task is told so, as those
/// are who asked before.
#[test]
fn a_job_that_only_a_worker_could_do_which_cannot_be_started_is_refused() {
    let config = CoreConfig { workers: 2, spares: 0, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Wait);
    let [lacking, full] = [WorkerId(1), WorkerId(2)];
    pool.event(Event::Hello { worker: lacking, tasks: vec![TaskOffer::new("other")], takes_files: true });
    pool.event(Event::Hello { worker: full, tasks: offers(), takes_files: true });
    pool.exit(full, Exit::Code(1));
    pool.wait(Duration::from_secs(10));
    pool.exit(WorkerId(3), Exit::Code(64));
    assert_eq!(pool.refusal("sum").code, Unavailable);
    let other = pool.submit("other");
    assert_eq!(pool.worker_with(other), Some(lacking));
}

/// However many come, each of them takes less than there is left.
#[test]
fn the_last_places_of_the_queue_are_for_those_who_have_few_jobs() {
    let config = CoreConfig { workers: 1, spares: 0, max_jobs: 1000, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Hello);
    let mut fill = |client: &'static str| {
        let mut taken = 0;
        while pool.accepts("sum", by(client)) {
            taken += 1;
        }
        taken
    };
    assert_eq!(["first", "second", "third", "fourth"].map(&mut fill), [901, 50, 25, 13]);
    assert_eq!(["a", "b", "c", "d", "e"].map(&mut fill), [6, 3, 2, 1, 0]);
}
