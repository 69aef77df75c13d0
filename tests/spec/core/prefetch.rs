//! Jobs that lie in the trays of busy workers: which ones, where, and when they are taken back.

use offload_core::config::CoreConfig;
use offload_core::event::Event;
use offload_core::exit::Exit;
use offload_core::ids::{JobId, WorkerId};
use offload_core::jobs::JobState;
use offload_core::limits::{PREFETCH_RUN_MAX, TAKE_BACKS_MAX};
use offload_core::queue::AGEING;
use offload_protocol::nouns::OutcomeCode::*;
use std::time::Duration;
use tests::pool_under_test::{PoolUnderTest, Start};

const MS: Duration = Duration::from_millis(1);

/// Workers with trays; `sum` is known to take a millisecond, of `charge` nothing is known. No slot is reserved.
fn trays(workers: usize) -> PoolUnderTest {
    trays_with(workers, |config| config.short_slots = Some(0))
}

fn trays_with(workers: usize, change: impl FnOnce(&mut CoreConfig)) -> PoolUnderTest {
    let mut config = CoreConfig { workers, spares: 0, max_jobs: 100_000, ..CoreConfig::default() };
    change(&mut config);
    let mut pool = PoolUnderTest::with(config, Start::Hello);
    pool.workers_have_trays();
    for client in ["", "ann", "bob"] {
        let job = submit_as(&mut pool, client, "sum");
        pool.run(job);
    }
    pool
}

fn submit_as(pool: &mut PoolUnderTest, client: &str, task: &str) -> JobId {
    pool.submit_with(task, |request| request.client = client.into())
}

/// One worker, which runs the first job and has the second one in its tray.
fn one_behind_another() -> (PoolUnderTest, JobId, JobId, WorkerId) {
    let mut pool = trays(1);
    let (first, second) = (pool.submit("sum"), pool.submit("sum"));
    let worker = pool.start(first);
    assert_eq!(pool.tray_with(second), Some(worker));
    (pool, first, second, worker)
}

fn is_waiting(pool: &PoolUnderTest, job: JobId) -> bool {
    pool.core.jobs().get(job).is_some_and(|job| job.state == JobState::Queued)
}

fn taken_back(pool: &PoolUnderTest) -> u64 {
    pool.core.tally().taken_back()
}

#[test]
fn the_next_job_lies_ready_while_a_short_one_runs_and_is_started_without_being_sent() {
    let (mut pool, first, second, worker) = one_behind_another();
    let third = pool.submit("sum");
    assert_eq!(pool.tray_with(third), None, "there is room for one");
    assert_eq!(pool.core.explain(pool.now, second).unwrap().behind, Some(first));
    pool.finish(first);
    assert_eq!(pool.take(second), worker);
    pool.start(second);
    pool.end_turn();
    assert_eq!(pool.tray_with(third), Some(worker));
    pool.finish(second);
    pool.take(third);
    pool.run(third);
    assert_eq!((pool.outcome(second), pool.outcome(third)), (Some(Ok), Some(Ok)));
    assert_eq!((taken_back(&pool), pool.core.tally().prefetched()), (0, 2));
}

#[test]
fn a_worker_without_a_tray_gets_its_jobs_when_it_is_idle() {
    let mut pool = PoolUnderTest::slots(1);
    let learned = pool.submit("sum");
    pool.run(learned);
    let (first, second) = (pool.submit("sum"), pool.submit("sum"));
    pool.start(first);
    assert!(is_waiting(&pool, second));
    pool.finish(first);
    assert!(pool.worker_with(second).is_some());
}

#[test]
fn nothing_lies_behind_what_may_take_long_or_is_not_known() {
    let mut pool = trays(1);
    let unknown = pool.submit("charge");
    let next = pool.submit("sum");
    pool.start(unknown);
    assert!(is_waiting(&pool, next));
    pool.finish_after(unknown, 50 * MS);
    pool.start(next);
    let long = pool.submit("charge");
    assert!(is_waiting(&pool, long), "it takes 50 ms itself");
    pool.finish(next);
    pool.start(long);
    let behind = pool.submit("sum");
    assert!(is_waiting(&pool, behind));
}

#[test]
fn a_run_that_takes_longer_than_it_should_gives_the_job_behind_it_up() {
    let mut pool = trays(2);
    let slow = pool.submit("sum");
    pool.start(slow);
    let other = pool.submit("sum");
    pool.start(other);
    let (behind, next) = (pool.submit("sum"), pool.submit("sum"));
    assert!(pool.tray_with(behind).is_some() && pool.tray_with(next).is_some());
    pool.now = pool.now + PREFETCH_RUN_MAX + MS;
    pool.finish_after(other, Duration::ZERO);
    pool.end_turn();
    assert!(pool.worker_with(behind).is_some(), "it runs elsewhere");
    assert!(is_waiting(&pool, next), "behind whom it does not lie again");
}

#[test]
fn a_job_behind_a_run_that_takes_too_long_is_taken_back_although_nothing_else_happens() {
    let (mut pool, first, second, worker) = one_behind_another();
    pool.wait(PREFETCH_RUN_MAX + MS);
    assert!(is_waiting(&pool, second), "what its packet says of its deadline would be wrong by then");
    pool.finish(first);
    assert_eq!(pool.worker_with(second), Some(worker));
}

#[test]
fn among_the_jobs_of_one_client_an_old_one_comes_before_a_new_one_of_a_higher_priority() {
    let mut pool = trays(1);
    let long = pool.submit("charge");
    pool.start(long);
    let (first, second) = (pool.submit("sum"), pool.submit("sum"));
    pool.now = pool.now + AGEING * 11;
    let urgent = pool.submit_with("sum", |request| request.priority = 10);
    pool.finish(long);
    let worker = pool.start(first);
    assert_eq!(
        (pool.tray_with(second), taken_back(&pool)),
        (Some(worker), 0),
        "it would go to and fro for ever"
    );
    pool.finish(first);
    pool.take(second);
    pool.start(second);
    assert_eq!(pool.tray_with(urgent), Some(worker));
}

#[test]
fn after_some_jobs_were_taken_back_the_tray_stays_empty_until_the_run_has_ended() {
    let (mut pool, first, second, worker) = one_behind_another();
    for client in 0..TAKE_BACKS_MAX {
        assert!(pool.tray_with(second).is_some() || client > 0);
        pool.submit_with("sum", |request| {
            (request.client, request.priority) = (format!("urgent {client}").into(), (client + 1) as i8);
        });
    }
    assert_eq!(taken_back(&pool), u64::from(TAKE_BACKS_MAX));
    assert!(pool.workers[&worker].tray.is_none());
    pool.finish(first);
    assert!(is_waiting(&pool, second));
}

#[test]
fn a_worker_that_has_taken_its_next_job_and_never_answers_the_one_before_is_ended() {
    let (mut pool, first, second, worker) = one_behind_another();
    pool.take(second);
    pool.wait(PREFETCH_RUN_MAX + MS);
    assert_eq!(pool.worker_with(second), Some(worker), "it has the job, so its answer is on the way");
    pool.wait(pool.core.config().start_timeout);
    assert_ne!(pool.worker_with(second), Some(worker));
    let of = |job| &pool.core.jobs().get(job).unwrap().past.lost[0];
    assert!(of(first).is_blamed && !of(second).is_blamed, "{:?} {:?}", of(first), of(second));
}

#[test]
fn a_worker_that_has_taken_its_next_job_and_answers_has_all_the_time_for_it() {
    let (mut pool, first, second, worker) = one_behind_another();
    pool.take(second);
    pool.wait(PREFETCH_RUN_MAX + MS);
    pool.finish(first);
    assert_eq!(pool.start(second), worker);
    pool.wait(pool.core.config().start_timeout + MS);
    pool.finish(second);
    assert_eq!((pool.outcome(first), pool.outcome(second)), (Some(Ok), Some(Ok)));
}

#[test]
fn a_worker_that_becomes_idle_gets_the_job_that_lies_behind_another() {
    let mut pool = trays(2);
    let (one, two) = (pool.submit("sum"), pool.submit("sum"));
    pool.start(one);
    let other = pool.start(two);
    let three = pool.submit("sum");
    assert!(pool.tray_with(three).is_some_and(|worker| worker != other), "behind the one that began first");
    pool.finish(two);
    assert_eq!(pool.worker_with(three), Some(other));
    assert_eq!(taken_back(&pool), 1);
}

#[test]
fn the_order_is_kept_when_two_lie_in_trays_and_one_worker_becomes_idle() {
    let mut pool = trays(3);
    let running: Vec<JobId> = (0..3).map(|_| pool.submit("sum")).collect();
    for job in &running {
        pool.start(*job);
    }
    let waiting: Vec<JobId> = (0..2).map(|_| pool.submit("sum")).collect();
    pool.finish(running[2]);
    assert!(pool.worker_with(waiting[0]).is_some(), "the older one goes first");
    assert!(pool.tray_with(waiting[1]).is_some());
}

#[test]
fn a_more_urgent_job_takes_the_place_in_the_tray() {
    let (mut pool, _, second, worker) = one_behind_another();
    let urgent = pool.submit_with("sum", |request| request.priority = 1);
    assert_eq!(pool.tray_with(urgent), Some(worker));
    assert!(is_waiting(&pool, second));
    assert_eq!(taken_back(&pool), 1);
    let another = pool.submit_with("sum", |request| request.priority = 1);
    assert!(is_waiting(&pool, another) && taken_back(&pool) == 1, "it is not more urgent than the first one");
}

#[test]
fn a_long_job_that_is_more_urgent_clears_the_tray_and_gets_the_worker() {
    let (mut pool, first, second, worker) = one_behind_another();
    let urgent = pool.submit_with("climb", |request| request.priority = 5);
    assert!(is_waiting(&pool, urgent) && is_waiting(&pool, second));
    pool.finish(first);
    assert_eq!(pool.worker_with(urgent), Some(worker));
}

#[test]
fn two_clients_share_workers_and_nothing_is_taken_back() {
    let mut pool = trays(2);
    let mut used = [Duration::ZERO; 2];
    let mut running: Vec<(JobId, usize)> = Vec::new();
    let mut waiting: Vec<(JobId, usize)> = Vec::new();
    for index in 0..8 {
        waiting.push((submit_as(&mut pool, ["ann", "bob"][index % 2], "sum"), index % 2));
    }
    for round in 0..400 {
        waiting.retain(|&(job, client)| {
            let is_given = pool.worker_with(job).is_some();
            if is_given {
                pool.start(job);
                running.push((job, client));
            }
            !is_given
        });
        let (job, client) = running.remove(0);
        let worker = pool.worker_with(job).unwrap();
        // Runs differ, and one client's are twice as long.
        let run = MS * (1 + client as u32) / 4 * (1 + round % 3);
        pool.finish_after(job, run);
        used[client] += run;
        if let Some((next, _)) = pool.workers[&worker].tray {
            pool.take(next);
        }
        waiting.push((submit_as(&mut pool, ["ann", "bob"][client], "sum"), client));
    }
    assert_eq!(taken_back(&pool), 0);
    assert!(pool.core.tally().prefetched() > 300, "{:?}", pool.core.tally());
    let [ann, bob] = used.map(|used| used.as_secs_f64());
    assert!((ann / bob - 1.0).abs() < 0.05, "each has half of the worker time: {used:?}");
}

#[test]
fn a_job_that_was_not_started_after_the_one_before_it_is_sent_at_the_end_of_the_turn() {
    let (mut pool, first, second, worker) = one_behind_another();
    pool.finish(first);
    assert_eq!(pool.tray_with(second), Some(worker), "the message that it has started may be on its way");
    pool.end_turn();
    assert_eq!(pool.worker_with(second), Some(worker));
    pool.run(second);
    assert_eq!(pool.outcome(second), Some(Ok));
}

#[test]
fn whoever_was_only_in_a_tray_was_never_near_a_worker_that_died() {
    let (mut pool, first, second, worker) = one_behind_another();
    pool.exit(worker, Exit::Signal(11));
    assert_eq!(pool.outcome(first), None, "it is tried again");
    let job = pool.core.jobs().get(second).unwrap();
    assert!(!job.is_suspect && job.past.lost.is_empty() && job.past.unstarted == 0 && job.attempts == 0);
    assert!(pool.core.jobs().get(first).unwrap().is_suspect);
}

#[test]
fn whoever_was_taken_and_not_started_is_given_back_without_blame() {
    let (mut pool, first, second, worker) = one_behind_another();
    pool.take(second);
    pool.exit(worker, Exit::Signal(11));
    let job = pool.core.jobs().get(second).unwrap();
    assert!(job.is_suspect && job.past.lost.len() == 1 && !job.past.lost[0].is_blamed);
    assert_eq!(job.past.crashes, 0);
    assert_eq!(pool.core.jobs().get(first).unwrap().past.crashes, 1);
}

#[test]
fn a_worker_that_takes_a_job_and_never_starts_it_is_replaced() {
    let (mut pool, first, second, worker) = one_behind_another();
    pool.take(second);
    pool.finish(first);
    pool.end_turn();
    assert_eq!((pool.worker_with(second), taken_back(&pool)), (Some(worker), 0));
    let patience = pool.core.config().start_timeout;
    pool.wait(patience + MS);
    assert!(!pool.workers.contains_key(&worker));
    let next = pool.worker_with(second).unwrap();
    assert_ne!(next, worker);
    pool.run(second);
    assert_eq!(pool.outcome(second), Some(Ok));
}

#[test]
fn a_stopped_worker_gives_up_its_tray_at_once() {
    let mut pool = trays(2);
    let (one, two) = (pool.submit("sum"), pool.submit("sum"));
    let stopped = pool.start(one);
    pool.start(two);
    let three = pool.submit("sum");
    assert_eq!(pool.tray_with(three), Some(stopped));
    pool.event(Event::Stopped { worker: stopped });
    assert!(pool.tray_with(three).is_some_and(|worker| worker != stopped));
}

#[test]
fn a_tray_that_fails_costs_its_job_nothing() {
    let (mut pool, first, second, worker) = one_behind_another();
    pool.workers.get_mut(&worker).unwrap().tray = None;
    pool.event(Event::TrayFailed { worker });
    pool.event(Event::TakenBack { worker, job: second });
    assert!(is_waiting(&pool, second));
    pool.finish(first);
    assert_eq!(pool.worker_with(second), Some(worker));
    let third = pool.submit("sum");
    pool.start(second);
    assert!(is_waiting(&pool, third), "its tray is not used again");
}

#[test]
fn a_cancelled_job_ends_at_once_and_its_worker_is_told_only_if_it_has_it() {
    for is_taken in [false, true] {
        let (mut pool, _, second, worker) = one_behind_another();
        if is_taken {
            pool.take(second);
        }
        pool.event(Event::Cancel { job: second });
        assert_eq!(pool.outcome(second), Some(Cancelled));
        assert_eq!(pool.cancelled, if is_taken { vec![(worker, second)] } else { Vec::new() });
        assert_eq!(pool.tray_with(second), None);
    }
}

#[test]
fn a_deadline_counts_in_a_tray_too() {
    let mut pool = trays(1);
    let first = pool.submit("sum");
    let worker = pool.start(first);
    let second = pool.submit_with("sum", |request| request.deadline = Some(5 * MS));
    assert_eq!(pool.tray_with(second), Some(worker));
    pool.wait(6 * MS);
    assert_eq!(pool.outcome(second), Some(Timeout));
    assert_eq!(pool.tray_with(second), None);
}

#[test]
fn a_stop_empties_the_trays_and_leaves_nothing() {
    let (mut pool, _, second, _) = one_behind_another();
    pool.event(Event::Stop);
    assert_eq!(pool.outcome(second), Some(Cancelled));
    assert!(pool.is_over);
}

#[test]
fn a_late_answer_holds_for_the_job_that_was_asked_for() {
    let (mut pool, first, second, worker) = one_behind_another();
    pool.answers_come_late();
    let urgent = pool.submit_with("sum", |request| request.priority = 1);
    pool.finish(first);
    pool.take(second);
    pool.start(second);
    assert_eq!(pool.tray_with(urgent), Some(worker), "the tray is empty: the second job has been started");
    pool.answer();
    assert_eq!(pool.tray_with(urgent), Some(worker));
    pool.end_turn();
    assert_eq!(pool.wanted_back, 1, "it is asked for once");
}

#[test]
fn a_large_input_and_a_suspect_are_not_put_into_trays() {
    let mut pool = trays(1);
    let first = pool.submit("sum");
    pool.start(first);
    let large = pool.submit_with("sum", |request| request.input_bytes = 40_000);
    assert!(is_waiting(&pool, large));
    let small = pool.submit("sum");
    assert!(is_waiting(&pool, small), "the large one is first for this worker");
    let mut pool = trays(1);
    let bad = pool.submit_with("sum", |request| request.attempts = Some(5));
    pool.crash_the_worker_running(bad);
    let good = pool.submit("sum");
    pool.start(bad);
    assert!(is_waiting(&pool, good), "a suspect has no company");
}

#[test]
fn a_reserved_slot_has_only_short_jobs_in_its_tray() {
    let mut pool = trays_with(2, |config| config.short_slots = Some(1));
    let (one, two) = (pool.submit("sum"), pool.submit("sum"));
    let workers = [pool.start(one), pool.start(two)];
    let long = pool.submit("charge");
    let short = pool.submit("sum");
    let place = |worker: &WorkerId| pool.core.slots()[pool.core.slot_of(*worker).unwrap()].is_reserved;
    let reserved = workers.into_iter().find(place);
    assert_eq!(pool.tray_with(short), reserved, "the other slot is the long one's");
    assert!(is_waiting(&pool, long));
}

#[test]
fn nothing_waits_in_the_tray_of_a_worker_that_is_to_be_replaced() {
    let (mut pool, _, second, worker) = one_behind_another();
    pool.event(Event::Closed { worker });
    assert_eq!(pool.tray_with(second), None);
    assert!(!pool.core.jobs().get(second).unwrap().is_suspect);
}
