//! Rare orders of events that the core once handled wrongly.

use offload_core::config::CoreConfig;
use offload_core::event::{Event, JobRequest};
use offload_core::exit::Exit;
use offload_core::ids::WorkerId;
use offload_protocol::nouns::{FailureKind, Lane, OutcomeCode::*, TaskOffer, Usage};
use std::time::Duration;
use tests::pool_under_test::{PoolUnderTest, Start, offers};

const MS: Duration = Duration::from_millis(1);

fn waiting(workers: usize, programs: usize) -> PoolUnderTest {
    let config = CoreConfig { workers, programs, spares: 0, ..CoreConfig::default() };
    PoolUnderTest::with(config, Start::Wait)
}

fn worker_of(pool: &PoolUnderTest, program: usize) -> WorkerId {
    *pool.workers.iter().find(|(_, worker)| worker.program == program).expect("it lives").0
}

#[test]
fn jobs_follow_their_task_when_an_earlier_program_takes_it_over() {
    let mut pool = waiting(2, 2);
    let (first, second) = (worker_of(&pool, 0), worker_of(&pool, 1));
    pool.event(Event::Hello { worker: second, tasks: offers(), takes_files: true });
    let running = pool.submit("sum");
    let queued = pool.submit("sum");
    pool.event(Event::Hello { worker: first, tasks: offers(), takes_files: true });
    assert_eq!(pool.worker_with(queued), Some(first));
    pool.event(Event::Unfit { worker: second, message: "broken".to_owned() });
    pool.run(queued);
    assert_eq!((pool.outcome(queued), pool.outcome(running)), (Some(Ok), None));
}

#[test]
fn a_job_whose_task_is_not_offered_any_more_is_not_sent_to_a_worker_that_lacks_it() {
    let mut pool = waiting(1, 1);
    let worker = worker_of(&pool, 0);
    pool.event(Event::Hello { worker, tasks: offers(), takes_files: true });
    let job = pool.submit("sum");
    pool.crash_the_worker_running(job);
    let worker = worker_of(&pool, 0);
    let other = TaskOffer { idempotent: true, ..TaskOffer::new("other") };
    pool.event(Event::Hello { worker, tasks: vec![other], takes_files: true });
    assert_eq!(pool.outcome(job), Some(Unavailable));
    assert_eq!(pool.message(job), "no worker offers 'sum' any more");
    assert_eq!(pool.refusal("sum").code, UnknownTask);
}

/// A pool of one worker that has shown that `charge` is tiny, so that it is given several, and that goes only if it is killed.
fn one_worker_with_tiny_work() -> PoolUnderTest {
    let mut pool = PoolUnderTest::slots(1);
    pool.workers_ignore_term();
    for client in ["", "innocent"] {
        let warm_up = pool.submit_with("charge", |request| request.client = client.into());
        pool.start(warm_up);
        pool.finish_after(warm_up, Duration::from_micros(3));
    }
    pool
}

/// A worker has three jobs; the second is cancelled, then the first takes too long. What it says on its way out still counts,
/// or the third would be given to another worker although it was started.
#[test]
fn a_job_that_was_started_by_a_worker_on_its_way_out_is_not_started_again() {
    let mut pool = one_worker_with_tiny_work();
    let first = pool.submit_with("charge", |request| request.timeout = Some(Duration::from_millis(1)));
    let [second, third] = [0; 2].map(|_| pool.submit("charge"));
    let worker = pool.start(first);
    pool.event(Event::Cancel { job: second });
    pool.wait(Duration::from_millis(2));
    assert_eq!(pool.outcome(first), Some(Timeout));
    pool.wait(pool.core.config().cancel_grace);
    pool.event(Event::Skipped { worker, job: second });
    pool.start(third);
    pool.exit(worker, Exit::Signal(9));
    assert_eq!(pool.outcome(third), Some(Indeterminate), "it ran, and has done nothing wrong");
    assert!(pool.ended[&third].lost.iter().all(|lost| !lost.is_blamed));
}

#[test]
fn a_client_does_not_pay_for_a_run_that_was_lost_because_of_another_job_even_if_it_ends_the_job() {
    let mut pool = one_worker_with_tiny_work();
    let first = pool.submit_with("charge", |request| request.timeout = Some(Duration::from_millis(1)));
    let by = |request: &mut JobRequest| request.client = "innocent".into();
    let [second, _] = [0; 2].map(|_| pool.submit_with("charge", by));
    let used = |pool: &PoolUnderTest| pool.core.clients().find("innocent").map(|account| account.used);
    let before = used(&pool).unwrap();
    let worker = pool.start(first);
    pool.wait(Duration::from_millis(2));
    pool.start(second);
    pool.wait(Duration::from_millis(100));
    pool.exit(worker, Exit::Signal(9));
    assert_eq!(pool.outcome(second), Some(Indeterminate));
    let paid = Duration::from_nanos((used(&pool).unwrap() - before).max(0) as u64);
    assert!(paid < Duration::from_millis(50), "{paid:?}");
}

#[test]
fn a_start_that_fails_while_it_is_being_given_up_does_not_hold_up_the_end() {
    let mut pool = waiting(1, 1);
    let worker = worker_of(&pool, 0);
    pool.workers_ignore_term();
    pool.event(Event::Drain { limit: None });
    pool.event(Event::SpawnFailed { worker, fatal: false, message: "no more processes".to_owned() });
    assert!(pool.is_over);
}

#[test]
fn one_healthy_worker_does_not_excuse_the_failed_starts_of_another() {
    let mut pool = PoolUnderTest::slots(2);
    pool.workers_start_with(Start::Die);
    let dies = *pool.workers.keys().next_back().expect("two live");
    pool.exit(dies, Exit::Code(1));
    let before = pool.spawned_at.len();
    for _ in 0..200 {
        let job = pool.submit("sum");
        pool.run(job);
        pool.wait(5 * MS);
    }
    let starts = pool.spawned_at.len() - before;
    assert!(starts <= 5, "{starts} starts in about a second");
}

#[test]
fn nothing_spins_while_a_drain_waits_for_a_slow_worker() {
    let mut pool = PoolUnderTest::slots(2);
    pool.workers_ignore_term();
    pool.workers_start_with(Start::Die);
    let slow = pool.submit_with("sum", |request| request.timeout = Some(MS));
    let busy = pool.start(slow);
    let idle = *pool.workers.keys().find(|worker| **worker != busy).expect("two live");
    pool.exit(idle, Exit::Code(1));
    pool.wait(MS);
    pool.event(Event::Drain { limit: None });
    assert!(pool.core.next_deadline().is_none_or(|due| due > pool.now));
    pool.wait(pool.core.config().kill_grace);
    assert!(pool.is_over);
}

#[test]
fn a_spare_that_could_not_be_started_is_tried_again_in_time() {
    let mut pool = PoolUnderTest::slots_and_spare(1);
    pool.workers_start_with(Start::Wait);
    let in_slot = pool.core.slots()[0].worker().expect("a worker");
    pool.exit(in_slot, Exit::Code(1));
    assert_eq!(pool.workers.len(), 1, "the spare has the slot, and its own place is empty");
    pool.wait(125 * MS);
    assert_eq!(pool.workers.len(), 2);
}

#[test]
fn many_workers_that_die_at_one_moment_are_one_failure() {
    let mut pool = PoolUnderTest::slots(8);
    for worker in pool.workers.keys().copied().collect::<Vec<_>>() {
        pool.exit(worker, Exit::Signal(11));
    }
    let job = pool.submit("sum");
    pool.wait(200 * MS);
    pool.run(job);
    assert_eq!(pool.outcome(job), Some(Ok));
}

#[test]
fn the_lane_counts_for_a_job_that_came_before_its_task_was_known() {
    let mut pool = waiting(1, 1);
    let job = pool.submit_with("sum", |request| request.lane = Some(Lane::Io));
    let worker = worker_of(&pool, 0);
    pool.event(Event::Hello { worker, tasks: offers(), takes_files: true });
    assert_eq!(pool.outcome(job), Some(BadRequest));
}

#[test]
fn a_crash_is_reported_with_the_place_where_it_happened() {
    let mut pool = PoolUnderTest::slots_and_spare(2);
    let job = pool.submit("charge");
    pool.crash_the_worker_running(job);
    let place = pool.ended[&job].place.expect("it ran somewhere");
    assert_eq!((place.slot, place.incarnation), (0, 1));
}

/// As when somebody, or the kernel for want of memory, kills workers all the time.
#[test]
fn workers_that_are_killed_from_outside_while_they_are_idle_are_replaced_at_once() {
    let mut pool = PoolUnderTest::slots_and_spare(2);
    for _ in 0..5 {
        for _ in 0..20 {
            let idle = *pool.workers.keys().next_back().expect("one lives");
            pool.exit(idle, Exit::Signal(9));
            assert_eq!(pool.workers.len(), 3);
        }
        let job = pool.submit("sum");
        pool.run(job);
    }
}

#[test]
fn workers_that_are_killed_and_never_do_a_job_in_between_are_given_a_pause_in_the_end() {
    let mut pool = PoolUnderTest::slots(2);
    for _ in 0..21 {
        let idle = *pool.workers.keys().next_back().expect("one lives");
        pool.exit(idle, Exit::Signal(9));
    }
    assert_eq!(pool.workers.len(), 1);
    assert!(!pool.core.refuses(0));
    pool.wait(Duration::from_secs(1));
    assert_eq!(pool.workers.len(), 2);
}

#[test]
fn draining_waits_as_long_as_the_jobs_take_unless_it_is_told_otherwise_and_then_the_earliest_end_counts() {
    let mut pool = PoolUnderTest::slots(1);
    let job = pool.submit_with("sum", |request| request.timeout = Some(Duration::from_secs(7 * 86_400)));
    pool.start(job);
    pool.event(Event::Drain { limit: None });
    pool.wait(Duration::from_secs(6 * 86_400));
    assert_eq!(pool.outcome(job), None);
    for seconds in [10, 60, 5, 60] {
        pool.event(Event::Drain { limit: Some(Duration::from_secs(seconds)) });
    }
    pool.event(Event::Drain { limit: None });
    pool.wait(Duration::from_secs(4));
    assert_eq!((pool.outcome(job), pool.core.cut_short()), (None, 0));
    pool.wait(Duration::from_secs(1));
    assert_eq!((pool.outcome(job), pool.core.cut_short()), (Some(Cancelled), 1));
}

#[test]
fn draining_has_an_end_even_if_a_job_has_none() {
    let mut pool = PoolUnderTest::slots(1);
    pool.workers_ignore_term();
    let job = pool.submit("sum");
    pool.start(job);
    let limit = Duration::from_secs(10);
    pool.event(Event::Drain { limit: Some(limit) });
    pool.wait(limit);
    assert_eq!(pool.outcome(job), Some(Cancelled));
    assert_eq!(pool.core.cut_short(), 1);
    pool.wait(pool.core.config().kill_grace);
    assert!(pool.is_over);
}

/// `team` is given back what it had paid for a worker that lives on, and is charged anew.
#[test]
fn a_client_with_jobs_is_never_forgotten_whatever_others_come_and_go() {
    let config = CoreConfig { workers: 1, spares: 0, max_resting: 4, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Hello);
    let by = |client: &str, request: &mut JobRequest| request.client = client.into();
    let first = pool.submit_with("charge", |request| by("team", request));
    let worker = pool.start(first);
    pool.event(Event::Cancel { job: first });
    pool.wait(Duration::from_millis(20));
    pool.event(Event::Failed {
        worker,
        job: first,
        attempt: 1,
        run: Duration::from_millis(20),
        kind: FailureKind::AppError,
        message: "cancelled".to_owned(),
        usage: Usage::default(),
    });
    pool.workers.get_mut(&worker).unwrap().given.clear();
    let second = pool.submit_with("charge", |request| by("team", request));
    pool.start(second);
    for number in 0..20 {
        let once = pool.submit_with("charge", |request| by(&format!("once {number}"), request));
        pool.event(Event::Cancel { job: once });
    }
    pool.finish(second);
    assert_eq!(pool.core.ledger().of("").total(), 0);
    assert_eq!(pool.core.ledger().of("team").total(), 10, "the output, until it is taken");
}

/// The end of a short job is often read together with its start.
#[test]
fn a_run_that_is_heard_of_at_its_end_counts_as_long_as_its_worker_says_and_no_longer_than_it_can_have_been() {
    let us = Duration::from_micros(1);
    for (said, counted) in [(40 * us, 40 * us), (500 * us, 100 * us)] {
        let mut pool = PoolUnderTest::slots(1);
        let job = pool.submit("sum");
        pool.wait(100 * us);
        let worker = pool.start(job);
        pool.workers.get_mut(&worker).unwrap().given.clear();
        let usage = Usage::default();
        pool.event(Event::Finished { worker, job, attempt: 1, run: said, usage, output_bytes: 1 });
        let ended = &pool.ended[&job];
        assert_eq!((ended.run, ended.queued, ended.returned), (counted, 100 * us - counted, Duration::ZERO));
    }
}

#[test]
fn only_an_attempt_that_has_started_and_had_its_worker_for_itself_is_told_as_alone() {
    let config = CoreConfig { workers: 1, spares: 0, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Hello);
    let [given, runs] = [(); 2].map(|()| pool.submit("sum"));
    for (job, is_started) in [(given, false), (runs, true)] {
        pool.crash_the_worker_running(job);
        pool.wait(Duration::from_secs(1));
        assert!(pool.worker_with(job).is_some());
        if is_started {
            pool.start(job);
        }
        pool.event(Event::Cancel { job });
        let ended = &pool.ended[&job];
        assert_eq!((ended.outcome, ended.attempts), (Cancelled, 1 + u32::from(is_started)));
        assert_eq!(ended.alone, is_started.then_some(2));
        pool.wait(Duration::from_secs(10));
    }
}
