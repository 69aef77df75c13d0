//! What workers offer, when each of them offers something else: what is known of tasks has a bound.

use offload_core::action::Notice;
use offload_core::config::CoreConfig;
use offload_core::event::Event;
use offload_core::exit::Exit;
use offload_core::ids::WorkerId;
use offload_core::limits::{GONE_TASKS_MAX, TASKS_OF_PROGRAM_MAX};
use offload_protocol::limits::TASKS_OFFERED_MAX;
use offload_protocol::nouns::OutcomeCode;
use offload_protocol::nouns::TaskOffer;
use std::time::Duration;
use tests::pool_under_test::{PoolUnderTest, Start};

/// More than are remembered when they are gone.
const MANY: usize = GONE_TASKS_MAX + 500;

fn named(round: usize, number: usize) -> String {
    format!("task-{round:04}-{number:04}")
}

/// The worker offers `own`, and so many tasks of names that no other round has.
fn hello(pool: &mut PoolUnderTest, worker: WorkerId, own: &str, (round, count): (usize, usize)) {
    let others =
        (0..count).map(|number| TaskOffer { idempotent: true, ..TaskOffer::new(named(round, number)) });
    let tasks = others.chain([TaskOffer::new(own.to_owned())]).collect();
    pool.event(Event::Hello { worker, tasks, takes_files: true });
}

/// The only worker ends, and another one offers other tasks.
fn replace(pool: &mut PoolUnderTest, own: &str, others: (usize, usize)) {
    let old = *pool.workers.keys().next().unwrap();
    pool.exit(old, Exit::Signal(9));
    pool.wait(Duration::from_secs(1));
    let new = *pool.workers.keys().next().unwrap();
    hello(pool, new, own, others);
}

fn waiting_pool(workers: usize) -> PoolUnderTest {
    let config = CoreConfig { workers, spares: 0, ..CoreConfig::default() };
    PoolUnderTest::with(config, Start::Wait)
}

#[test]
fn workers_that_offer_other_tasks_again_and_again_leave_nothing_behind() {
    let mut pool = waiting_pool(1);
    let worker = *pool.workers.keys().next().unwrap();
    hello(&mut pool, worker, "sum", (0, MANY));
    for round in 1..8 {
        replace(&mut pool, "sum", (round, MANY));
        let places = pool.core.registry().places();
        assert!(places <= 2 * MANY + GONE_TASKS_MAX + 1, "{places} after {round}");
    }
    let job = pool.submit("sum");
    pool.run(job);
    let last = pool.submit(&named(7, 0));
    pool.run(last);
    assert_eq!([job, last].map(|job| pool.outcome(job)), [Some(OutcomeCode::Ok); 2]);
}

#[test]
fn a_job_whose_task_goes_with_many_others_is_told_so_and_not_that_there_never_was_one() {
    let mut pool = waiting_pool(1);
    let worker = *pool.workers.keys().next().unwrap();
    hello(&mut pool, worker, "sum", (0, MANY));
    let running = pool.submit(&named(0, 0));
    let waiting = pool.submit(&named(0, 1));
    pool.start(running);
    replace(&mut pool, "sum", (1, MANY));
    for job in [running, waiting] {
        assert_eq!(pool.outcome(job), Some(OutcomeCode::Unavailable));
        assert!(pool.message(job).contains("any more"), "{}", pool.message(job));
    }
    replace(&mut pool, "sum", (2, MANY));
    assert!(!pool.core.registry().was_on_offer(&named(0, 1)), "nothing refers to it any more");
    assert!(pool.core.registry().was_on_offer(&named(1, MANY - 1)), "it is one of the last");
}

#[test]
fn a_task_that_is_paused_is_not_forgotten_and_its_place_is_nobody_elses() {
    let mut pool = waiting_pool(1);
    let worker = *pool.workers.keys().next().unwrap();
    hello(&mut pool, worker, "paused", (0, MANY));
    let task = pool.core.registry().find("paused");
    pool.event(Event::Pause { task });
    for round in 1..4 {
        replace(&mut pool, "sum", (round, MANY));
        let job = pool.submit(&named(round, 0));
        pool.run(job);
    }
    assert_eq!(pool.core.registry().find_known("paused"), task);
    replace(&mut pool, "paused", (4, MANY));
    let job = pool.submit("paused");
    assert_eq!(pool.worker_with(job), None);
    pool.event(Event::Resume { task });
    pool.run(job);
    assert_eq!(pool.outcome(job), Some(OutcomeCode::Ok));
}

#[test]
fn a_worker_with_more_tasks_than_its_program_may_have_is_unfit_and_the_others_work_on() {
    const FULL: usize = TASKS_OFFERED_MAX - 1;
    let mut pool = waiting_pool(6);
    let workers: Vec<WorkerId> = pool.workers.keys().copied().collect();
    for (round, worker) in workers[..4].iter().enumerate() {
        hello(&mut pool, *worker, "sum", (round, FULL));
    }
    assert_eq!(pool.core.registry().on_offer_count(), TASKS_OF_PROGRAM_MAX - 3);
    hello(&mut pool, workers[4], "sum", (0, FULL));
    hello(&mut pool, workers[5], "sum", (5, FULL));
    let killed = |notice: &Notice| match notice {
        Notice::WorkerKilled { worker, why, .. } => Some((*worker, why.clone())),
        _ => None,
    };
    let killed: Vec<_> = pool.notices.iter().filter_map(killed).collect();
    assert!(
        matches!(&killed[..], [(worker, why)] if *worker == workers[5] && why.contains("16384 is the limit")),
        "{killed:?}"
    );
    assert_eq!(pool.core.registry().on_offer_count(), TASKS_OF_PROGRAM_MAX - 3);
    let jobs: Vec<_> = (0..5).map(|_| pool.submit("sum")).collect();
    jobs.iter().for_each(|job| pool.run(*job));
    assert!(jobs.iter().all(|job| pool.outcome(*job) == Some(OutcomeCode::Ok)));
}
