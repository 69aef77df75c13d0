//! However many jobs are moved or end for one reason, few of them do so in one event, and the rest follows at once, in further
//! events. Meanwhile the loop serves everybody else.

use offload_core::Core;
use offload_core::config::CoreConfig;
use offload_core::event::Event;
use offload_core::ids::{JobId, WorkerId};
use offload_core::limits::{MOVED_MAX, UNKNOWN_ENDED_MAX};
use offload_protocol::nouns::OutcomeCode::{self, *};
use tests::pool_under_test::{PoolUnderTest, Start, offers};

const MANY: usize = 3 * MOVED_MAX;

fn one_worker(start: Start) -> PoolUnderTest {
    PoolUnderTest::with(CoreConfig { workers: 1, spares: 0, ..CoreConfig::default() }, start)
}

fn worker(pool: &PoolUnderTest) -> WorkerId {
    *pool.workers.keys().next().expect("a worker")
}

fn submit_many(pool: &mut PoolUnderTest, task: &str) -> Vec<JobId> {
    (0..MANY).map(|_| pool.submit(task)).collect()
}

/// Tells of the event, and then of ticks as long as one is due. Returns by how much the count fell in each of them.
fn falls(pool: &mut PoolUnderTest, event: Event, count: fn(&Core) -> usize) -> Vec<usize> {
    let mut event = Some(event);
    let mut falls = Vec::new();
    while let Some(next) = event.take() {
        let before = count(&pool.core);
        pool.event(next);
        falls.push(before - count(&pool.core));
        event = pool.core.next_deadline().filter(|due| *due <= pool.now).map(|_| Event::Tick);
    }
    falls
}

fn live(core: &Core) -> usize {
    core.jobs().len()
}

fn assert_few_at_a_time(falls: &[usize], all: usize, most: usize) {
    assert_eq!(falls.iter().sum::<usize>(), all, "{falls:?}");
    assert!(falls.iter().all(|fall| *fall <= most), "{falls:?}");
}

fn outcomes(pool: &PoolUnderTest, jobs: &[JobId]) -> Vec<Option<OutcomeCode>> {
    let mut outcomes: Vec<_> = jobs.iter().map(|job| pool.outcome(*job)).collect();
    outcomes.dedup();
    outcomes
}

#[test]
fn jobs_that_waited_for_the_first_hello_get_into_their_queue_some_at_a_time() {
    let mut pool = one_worker(Start::Wait);
    let jobs = submit_many(&mut pool, "sum");
    let hello = Event::Hello { worker: worker(&pool), tasks: offers(), takes_files: true };
    let falls = falls(&mut pool, hello, |core| core.jobs().parked_count());
    assert_few_at_a_time(&falls, MANY, MOVED_MAX);
    jobs.into_iter().for_each(|job| pool.run(job));
}

/// Whoever sends thousands of them, each with another name, while the first worker starts could keep the loop busy for seconds.
#[test]
fn all_jobs_whose_task_nobody_offers_are_told_which_tasks_there_are_and_few_at_a_time() {
    let mut pool = one_worker(Start::Wait);
    let jobs: Vec<_> = (0..MANY).map(|number| pool.submit(&format!("sum-{number}"))).collect();
    let hello = Event::Hello { worker: worker(&pool), tasks: offers(), takes_files: true };
    let falls = falls(&mut pool, hello, live);
    assert_few_at_a_time(&falls, MANY, UNKNOWN_ENDED_MAX);
    assert_eq!(outcomes(&pool, &jobs), [Some(UnknownTask)]);
    for (number, job) in jobs.into_iter().enumerate() {
        let expected = format!("no worker offers 'sum-{number}'; there are: ");
        assert!(pool.message(job).starts_with(&expected), "{}", pool.message(job));
    }
}
