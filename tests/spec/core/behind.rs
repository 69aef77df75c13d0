//! Workers that stand in front of a program and say what became of it: what they can take back, and what they cannot get away with.

use offload_core::clients::VirtualTime;
use offload_core::event::Event;
use offload_core::exit::Exit;
use offload_core::ids::{JobId, WorkerId};
use offload_core::limits::BYSTANDER_MAX;
use offload_protocol::nouns::OutcomeCode::*;
use std::time::Duration;
use tests::pool_under_test::PoolUnderTest;

const MS: Duration = Duration::from_millis(1);

/// The worker that runs a job takes back that it started it.
fn take_back(pool: &mut PoolUnderTest, worker: WorkerId, job: JobId) {
    pool.event(Event::NotBegun { worker, job, attempt: 1 });
}

/// A worker starts the job, takes that back and ends.
fn start_in_vain(pool: &mut PoolUnderTest, job: JobId) {
    let worker = pool.start(job);
    take_back(pool, worker, job);
    pool.exit(worker, Exit::Code(1));
}

fn broke_rules(pool: &mut PoolUnderTest, worker: WorkerId, of_another: bool) {
    pool.event(Event::BrokeRules { worker, of_another, how: "it answered twice".into() });
    pool.exit(worker, Exit::Code(1));
}

/// Waits until a worker has the job, or it has ended.
fn until_given(pool: &mut PoolUnderTest, job: JobId) -> bool {
    while pool.worker_with(job).is_none() && pool.outcome(job).is_none() {
        pool.wait(10 * MS);
    }
    pool.outcome(job).is_none()
}

fn used(pool: &PoolUnderTest, client: &str) -> VirtualTime {
    pool.core.clients().find(client).map_or(0, |account| account.used)
}

#[test]
fn a_job_whose_start_was_taken_back_costs_nothing_and_is_done_by_another_worker() {
    let mut pool = PoolUnderTest::slots(1);
    // Its account stays as long as it has a job.
    let [job, _] = [0; 2].map(|_| pool.submit_with("charge", |request| request.client = "ann".into()));
    let before = used(&pool, "ann");
    start_in_vain(&mut pool, job);
    assert_eq!(
        (pool.outcome(job), pool.core.explain(pool.now, job).map(|job| job.attempts)),
        (None, Some(0))
    );
    assert!(until_given(&mut pool, job));
    assert_eq!(
        used(&pool, "ann"),
        before,
        "it is charged again what it was charged when it was given the first time"
    );
    pool.run(job);
    assert_eq!((pool.outcome(job), pool.ended[&job].attempts), (Some(Ok), 1));
    assert!(pool.ended[&job].lost.iter().all(|lost| !lost.is_blamed && lost.attempt == 0));
}

/// What the first worker promised of the task does not count: it has not run the job.
#[test]
fn a_job_whose_start_was_taken_back_has_run_under_no_promise() {
    let mut pool = PoolUnderTest::slots(1);
    let job = pool.submit("charge");
    start_in_vain(&mut pool, job);
    assert_eq!(pool.core.jobs().get(job).map(|job| job.ran_under), Some(Default::default()));
}

#[test]
fn a_job_of_which_its_worker_has_spoken_has_begun() {
    for word in ["part", "progress", "checkpoint"] {
        let mut pool = PoolUnderTest::slots(1);
        let job = pool.submit("charge");
        let (worker, attempt) = (pool.start(job), 1);
        pool.event(match word {
            "part" => Event::Part { worker, job, attempt, bytes: 1 },
            "progress" => Event::Progress { worker, job, attempt, done: 1, total: 2 },
            _ => Event::Checkpoint { worker, job, attempt, bytes: 1 },
        });
        take_back(&mut pool, worker, job);
        assert_eq!(pool.outcome(job), Some(WorkerProtocol), "{word}");
    }
}

/// A stream must not be run again when a part of it was delivered.
#[test]
fn what_is_said_of_a_job_after_its_start_was_taken_back_puts_it_in_doubt() {
    for word in ["start", "part", "end", "take back"] {
        let mut pool = PoolUnderTest::slots(1);
        let job = pool.submit_with("charge", |request| request.stream = true);
        let (worker, attempt) = (pool.start(job), 1);
        take_back(&mut pool, worker, job);
        match word {
            "start" => drop(pool.start(job)),
            "part" => pool.part(job, 1),
            "end" => pool.finish(job),
            _ => take_back(&mut pool, worker, job),
        }
        pool.event(Event::Delivered { job, bytes: 1 });
        assert_eq!((pool.outcome(job), pool.parts.len()), (None, 0), "{word} of attempt {attempt}");
        pool.exit(worker, Exit::Code(1));
        assert_eq!((pool.outcome(job), pool.ended[&job].attempts), (Some(Indeterminate), 0), "{word}");
    }
}

#[test]
fn nothing_is_started_behind_a_job_whose_start_was_taken_back() {
    let mut pool = PoolUnderTest::slots(1);
    pool.workers_have_trays();
    for _ in 0..2 {
        let job = pool.submit("sum");
        pool.run(job);
    }
    let [job, behind] = [0; 2].map(|_| pool.submit("sum"));
    let worker = pool.start(job);
    assert_eq!(pool.take(behind), worker);
    take_back(&mut pool, worker, job);
    pool.event(Event::Started { worker, job: behind, attempt: 1 });
    pool.exit(worker, Exit::Code(1));
    for job in [job, behind] {
        assert!(until_given(&mut pool, job));
        pool.run(job);
        assert_eq!((pool.outcome(job), pool.ended[&job].attempts), (Some(Ok), 1));
    }
}

#[test]
fn a_job_that_has_others_with_it_or_between_its_steps_is_not_taken_back() {
    let mut pool = PoolUnderTest::slots(1);
    let [tile, other] = [0; 2].map(|_| pool.submit("tile"));
    pool.wait(2 * MS);
    let worker = pool.start(tile);
    take_back(&mut pool, worker, tile);
    let killed = |pool: &PoolUnderTest| !pool.workers.contains_key(&worker);
    assert!(killed(&pool), "of two tiles nobody can take back one");
    for job in [tile, other] {
        assert!(until_given(&mut pool, job));
        pool.run(job);
    }

    let mut pool = PoolUnderTest::slots(1);
    let first = pool.submit("sum");
    pool.run(first);
    let climb = pool.submit("climb");
    let worker = pool.start(climb);
    let sum = pool.submit("sum");
    assert_eq!(pool.start(sum), worker, "between the steps");
    take_back(&mut pool, worker, climb);
    assert!(!pool.workers.contains_key(&worker), "the suspended one has begun");
}

/// A program whose workers take back each start is as slow as one whose workers end before it.
#[test]
fn a_job_whose_start_is_taken_back_again_and_again_is_tried_ever_more_slowly_and_given_up() {
    let mut pool = PoolUnderTest::slots(1);
    let first = pool.submit("charge");
    pool.run(first);
    let job = pool.submit("charge");
    let began = pool.now;
    let mut starts = 0;
    while until_given(&mut pool, job) {
        start_in_vain(&mut pool, job);
        starts += 1;
        assert!(starts < 50, "for ever");
    }
    assert_eq!((pool.outcome(job), pool.ended[&job].attempts), (Some(Unavailable), 0));
    assert!(pool.now - began > 60_000 * MS, "{starts} starts in {:?}", pool.now - began);
}

/// Otherwise a program that takes back every start would be started over and over without a pause.
#[test]
fn a_program_that_never_does_a_job_is_a_program_that_fails() {
    let mut pool = PoolUnderTest::slots(1);
    let job = pool.submit("charge");
    for _ in 0..pool.core.config().max_restarts {
        if until_given(&mut pool, job) {
            start_in_vain(&mut pool, job);
        }
    }
    assert_eq!(pool.outcome(job), Some(Unavailable));
}

#[test]
fn who_is_cancelled_or_late_when_the_start_is_taken_back_pays_for_no_worker() {
    for is_cancelled_first in [true, false] {
        let mut pool = PoolUnderTest::slots(1);
        let [job, _] = [0; 2].map(|_| pool.submit_with("charge", |request| request.client = "ann".into()));
        let worker = pool.start(job);
        if is_cancelled_first {
            pool.event(Event::Cancel { job });
        }
        take_back(&mut pool, worker, job);
        if !is_cancelled_first {
            pool.event(Event::Cancel { job });
        }
        pool.exit(worker, Exit::Code(1));
        assert_eq!((pool.outcome(job), used(&pool, "ann")), (Some(Cancelled), 0), "{is_cancelled_first}");
    }
    let mut pool = PoolUnderTest::slots(1);
    let job = pool.submit_with("charge", |request| request.deadline = Some(5 * MS));
    let worker = pool.start(job);
    take_back(&mut pool, worker, job);
    pool.wait(5 * MS);
    assert_eq!(
        (pool.outcome(job), pool.ended[&job].attempts, pool.ended[&job].lost.len()),
        (Some(Timeout), 0, 0)
    );
}

#[test]
fn a_job_whose_program_breaks_the_rules_is_blamed_unless_that_has_to_do_with_another() {
    let mut pool = PoolUnderTest::slots(1);
    let job = pool.submit("charge");
    let worker = pool.start(job);
    broke_rules(&mut pool, worker, false);
    assert_eq!(pool.outcome(job), Some(WorkerProtocol));
    let bystander = pool.submit("sum");
    until_given(&mut pool, bystander);
    let worker = pool.start(bystander);
    broke_rules(&mut pool, worker, true);
    assert!(until_given(&mut pool, bystander));
    pool.run(bystander);
    assert_eq!(pool.outcome(bystander), Some(Ok));
    assert!(pool.ended[&bystander].lost.iter().all(|lost| !lost.is_blamed));
}

/// The program may have said what the job told it to say.
/// Its worker ends because of another job, and until it has ended the job's own time can be up.
#[test]
fn a_bystander_that_is_late_before_its_worker_has_ended_is_blamed_for_no_attempt() {
    for of_another in [true, false] {
        let mut pool = PoolUnderTest::slots(1);
        pool.workers_survive_sigkill();
        let job = pool.submit_with("sum", |request| request.deadline = Some(Duration::from_millis(5)));
        let worker = pool.start(job);
        pool.event(Event::BrokeRules { worker, of_another, how: "it answered twice".into() });
        pool.wait(Duration::from_millis(6));
        assert_eq!(pool.outcome(job), Some(Timeout));
        let blamed: Vec<bool> = pool.ended[&job].lost.iter().map(|lost| lost.is_blamed).collect();
        assert_eq!(blamed, [!of_another]);
    }
}

#[test]
fn a_job_is_not_a_bystander_for_ever() {
    let mut pool = PoolUnderTest::slots(1);
    let guilty = pool.submit("sum");
    let mut attempts = 0;
    while until_given(&mut pool, guilty) {
        let worker = pool.start(guilty);
        broke_rules(&mut pool, worker, true);
        attempts += 1;
        assert!(attempts < 20, "for ever");
    }
    assert_eq!(pool.outcome(guilty), Some(Poison));
    assert_eq!(attempts, BYSTANDER_MAX + pool.core.config().max_attempts);
}
