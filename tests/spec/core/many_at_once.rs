//! However many jobs are moved or end for one reason, few of them do so in one event, and the rest follows at once, in further
//! events. Meanwhile the loop serves everybody else.

use offload_core::Core;
use offload_core::action::Actions;
use offload_core::config::CoreConfig;
use offload_core::event::Event;
use offload_core::exit::Exit;
use offload_core::ids::{JobId, WorkerId};
use offload_core::limits::{MOVED_MAX, UNKNOWN_ENDED_MAX};
use offload_protocol::nouns::OutcomeCode::{self, *};
use std::time::Duration;
use tests::pool_under_test::{PoolUnderTest, Start, offers};

const MANY: usize = 3 * MOVED_MAX;

const SECOND: Duration = Duration::from_secs(1);

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

#[test]
fn jobs_for_which_no_worker_can_be_had_end_some_at_a_time_and_for_the_same_reason() {
    let mut pool = one_worker(Start::Hello);
    let jobs = submit_many(&mut pool, "sum");
    pool.workers_start_with(Start::Wait);
    let first = worker(&pool);
    pool.exit(first, Exit::Code(0));
    pool.wait(10 * SECOND);
    let unfit = Event::Unfit { worker: worker(&pool), message: "it is another program".to_owned() };
    let killed =
        Event::Exited { worker: worker(&pool), exit: Exit::Signal(9), last_lines: vec![], usage: None };
    let mut falls = [falls(&mut pool, unfit, live), falls(&mut pool, killed, live)].concat();
    falls.retain(|fall| *fall > 0);
    assert_few_at_a_time(&falls, MANY, MOVED_MAX);
    assert_eq!(outcomes(&pool, &jobs), [Some(Unavailable)]);
    let (first, last) = (pool.message(jobs[0]), pool.message(jobs[MANY - 1]));
    assert!(first == last && first.contains("it is another program"), "{first} {last}");
}

#[test]
fn late_jobs_end_some_at_a_time_and_none_of_them_is_started_meanwhile() {
    let mut pool = one_worker(Start::Hello);
    let first = pool.submit("sum");
    pool.start(first);
    let late = |pool: &mut PoolUnderTest| pool.submit_with("sum", |job| job.deadline = Some(SECOND));
    let jobs: Vec<_> = (0..MANY).map(|_| late(&mut pool)).collect();
    let last = pool.submit("sum");
    // The answer is told before the tick, so there is an idle worker while all these jobs wait.
    pool.now = pool.now + 2 * SECOND;
    let before = live(&pool.core);
    pool.finish_after(first, Duration::ZERO);
    assert_eq!(before - live(&pool.core), 1 + MOVED_MAX);
    assert_eq!((pool.worker_with(last), pool.outcome(last)), (None, None), "others are late and still wait");
    let falls = falls(&mut pool, Event::Tick, live);
    assert_few_at_a_time(&falls, MANY - MOVED_MAX, 2 * MOVED_MAX);
    assert_eq!(outcomes(&pool, &jobs), [Some(Timeout)]);
    assert!(jobs.iter().all(|job| pool.ended[job].attempts == 0));
    pool.run(last);
}

/// A worker that has many late jobs keeps them until a tick. They are passed over once in an event, and not once for each that ends.
#[test]
fn late_jobs_of_a_worker_stay_until_a_tick_while_those_that_wait_end() {
    let mut pool = one_worker(Start::Hello);
    let with_deadline = |pool: &mut PoolUnderTest| {
        pool.submit_with("sum", |job| (job.deadline, job.timeout) = (Some(SECOND), None))
    };
    let running = with_deadline(&mut pool);
    pool.start(running);
    let jobs: Vec<_> = (0..MANY).map(|_| with_deadline(&mut pool)).collect();
    pool.now = pool.now + 2 * SECOND;
    let mut actions = Actions::new();
    for _ in 0..3 {
        pool.core.handle(pool.now, Event::Refused { code: TooLarge }, &mut actions);
    }
    assert_eq!((actions.len(), live(&pool.core)), (MANY, 1));
    assert!(pool.core.jobs().get(running).is_some() && pool.core.jobs().get(jobs[0]).is_none());
}
