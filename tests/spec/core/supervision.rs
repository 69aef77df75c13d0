//! Workers start and end, and no job is lost.

use offload_core::action::Notice;
use offload_core::config::CoreConfig;
use offload_core::event::Event;
use offload_core::exit::Exit;
use offload_core::ids::Mono;
use offload_protocol::nouns::OutcomeCode::{self, *};
use offload_protocol::nouns::Usage;
use std::time::Duration;
use tests::pool_under_test::{PoolUnderTest, Start, offers};

const MS: Duration = Duration::from_millis(1);

#[test]
fn an_idempotent_job_is_tried_again_when_its_worker_dies() {
    let mut pool = PoolUnderTest::slots(1);
    let job = pool.submit("sum");
    pool.crash_the_worker_running(job);
    assert_eq!(pool.outcome(job), None);
    pool.run(job);
    assert_eq!(pool.outcome(job), Some(Ok));
    assert_eq!(pool.ended[&job].attempts, 2);
}

#[test]
fn a_job_that_kills_every_worker_it_is_given_is_poison() {
    let mut pool = PoolUnderTest::slots(2);
    let job = pool.submit("sum");
    for _ in 0..3 {
        pool.crash_the_worker_running(job);
    }
    assert_eq!(pool.outcome(job), Some(Poison));
    let error = pool.ended[&job].error.clone().unwrap();
    assert_eq!((error.code, error.signal), (WorkerCrashed, Some(11)));
    assert_eq!(error.message, "signal 11 (SIGSEGV) in attempt 3 of 3");
}

#[test]
fn a_job_that_must_not_run_twice_is_not_run_twice() {
    let mut pool = PoolUnderTest::slots(1);
    let job = pool.submit("charge");
    pool.crash_the_worker_running(job);
    assert_eq!(pool.outcome(job), Some(WorkerCrashed));
    assert_eq!(pool.message(job), "signal 11 (SIGSEGV) in attempt 1 of 1");
}

#[test]
fn a_job_that_never_started_is_given_to_another_worker_whatever_it_is() {
    let mut pool = PoolUnderTest::slots(1);
    let done = pool.submit("charge");
    pool.run(done);
    let job = pool.submit("charge");
    let worker = pool.worker_with(job).unwrap();
    pool.exit(worker, Exit::Signal(9));
    pool.run(job);
    assert_eq!(pool.outcome(job), Some(Ok));
    assert_eq!(pool.ended[&job].attempts, 1);
}

#[test]
fn a_submitter_may_allow_or_forbid_another_attempt() {
    let mut pool = PoolUnderTest::slots(1);
    let never_again = pool.submit_with("sum", |request| request.attempts = Some(1));
    pool.crash_the_worker_running(never_again);
    assert_eq!(pool.outcome(never_again), Some(WorkerCrashed));
    let again = pool.submit_with("charge", |request| request.attempts = Some(2));
    pool.crash_the_worker_running(again);
    pool.run(again);
    assert_eq!(pool.outcome(again), Some(Ok));
}

#[test]
fn the_oldest_job_comes_first_even_if_it_had_to_come_back() {
    let mut pool = PoolUnderTest::slots(1);
    let first = pool.submit("sum");
    let second = pool.submit("sum");
    pool.crash_the_worker_running(first);
    assert!(pool.worker_with(first).is_some() && pool.worker_with(second).is_none());
}

#[test]
fn a_crash_costs_no_waiting_where_a_spare_stands_ready() {
    let mut pool = PoolUnderTest::slots_and_spare(1);
    pool.workers_start_with(Start::Wait);
    let job = pool.submit("sum");
    pool.crash_the_worker_running(job);
    assert!(pool.worker_with(job).is_some(), "the spare has it already");
}

#[test]
fn a_killed_worker_that_is_slow_to_die_does_not_hold_the_queue_up_where_a_spare_stands_ready() {
    let mut pool = PoolUnderTest::slots_and_spare(1);
    pool.workers_ignore_term();
    let slow = pool.submit_with("sum", |request| request.timeout = Some(10 * MS));
    let next = pool.submit("sum");
    pool.start(slow);
    pool.wait(10 * MS);
    assert_eq!(pool.outcome(slow), Some(Timeout));
    pool.wait(pool.core.config().cancel_grace);
    pool.run(next);
    assert_eq!(pool.outcome(next), Some(Ok));
    assert_eq!(pool.most_processes, 2);
}

#[test]
fn there_are_never_more_processes_than_slots_and_spare() {
    let mut pool = PoolUnderTest::slots_and_spare(3);
    pool.workers_ignore_term();
    for _ in 0..20 {
        let job = pool.submit_with("sum", |request| request.timeout = Some(MS));
        if pool.worker_with(job).is_some() {
            pool.start(job);
        }
        pool.wait(100 * MS);
    }
    assert_eq!(pool.most_processes, 4);
}

#[test]
fn cancelling_ends_jobs_at_once_and_a_worker_that_runs_on_is_ended_a_moment_later() {
    let mut pool = PoolUnderTest::slots(1);
    let running = pool.submit("sum");
    let waiting = pool.submit("sum");
    let worker = pool.start(running);
    for job in [waiting, running] {
        pool.event(Event::Cancel { job });
        assert_eq!(pool.outcome(job), Some(Cancelled));
    }
    assert!(pool.workers.contains_key(&worker), "it may end the job by itself");
    pool.wait(pool.core.config().cancel_grace);
    assert!(!pool.workers.contains_key(&worker));
    let next = pool.submit("sum");
    pool.run(next);
    assert_eq!(pool.outcome(next), Some(Ok));
}

#[test]
fn a_worker_that_ends_a_cancelled_job_by_itself_lives_on() {
    let mut pool = PoolUnderTest::slots(1);
    let job = pool.submit("sum");
    let worker = pool.start(job);
    pool.event(Event::Cancel { job });
    let usage = Usage::default();
    pool.event(Event::Finished { worker, job, attempt: 1, run: MS, usage, output_bytes: 0 });
    pool.wait(Duration::from_secs(1));
    let next = pool.submit("sum");
    assert_eq!(pool.worker_with(next), Some(worker));
}

#[test]
fn a_job_cancelled_on_its_way_to_the_worker_may_be_skipped_or_run_for_nobody() {
    for is_skipped in [true, false] {
        let mut pool = PoolUnderTest::slots(1);
        let job = pool.submit("sum");
        let worker = pool.worker_with(job).unwrap();
        pool.event(Event::Cancel { job });
        assert_eq!(pool.outcome(job), Some(Cancelled));
        if is_skipped {
            pool.workers.get_mut(&worker).unwrap().given.clear();
            pool.event(Event::Skipped { worker, job });
        } else {
            pool.run(job);
        }
        let next = pool.submit("sum");
        assert_eq!(pool.worker_with(next), Some(worker), "the worker lives and is free");
    }
}

#[test]
fn a_worker_that_speaks_out_of_turn_is_killed_and_its_job_is_not_answered_by_it() {
    let mut pool = PoolUnderTest::slots(1);
    let job = pool.submit_with("sum", |request| request.attempts = Some(1));
    let worker = pool.start(job);
    pool.event(Event::Violation { worker, message: "malformed header".to_owned() });
    assert_eq!(pool.outcome(job), Some(WorkerProtocol));
    assert_eq!(pool.message(job), "broke the protocol (malformed header) in attempt 1 of 1");
    assert!(!pool.workers.contains_key(&worker));
}

#[test]
fn a_result_nobody_asked_for_is_a_violation_and_hurts_nobody_else() {
    let mut pool = PoolUnderTest::slots(2);
    let (mine, other) = (pool.submit("charge"), pool.submit("charge"));
    let liar = pool.start(mine);
    pool.start(other);
    pool.event(Event::Finished {
        worker: liar,
        job: other,
        attempt: 1,
        run: MS,
        usage: Usage::default(),
        output_bytes: 0,
    });
    assert_eq!(pool.outcome(mine), Some(WorkerProtocol));
    assert_eq!(pool.outcome(other), None);
    pool.finish(other);
    assert_eq!(pool.outcome(other), Some(Ok));
}

#[test]
fn a_worker_that_closes_its_channel_and_lives_on_is_killed() {
    let mut pool = PoolUnderTest::slots(1);
    let job = pool.submit_with("sum", |request| request.attempts = Some(1));
    let worker = pool.start(job);
    pool.event(Event::Closed { worker });
    assert_eq!(pool.outcome(job), None, "how it ended is not known yet");
    pool.wait(pool.core.config().closed_grace);
    assert_eq!(pool.outcome(job), Some(WorkerCrashed));
    assert!(pool.message(job).starts_with("closed its channel"));
}

#[test]
fn a_worker_that_takes_a_job_and_does_not_start_it_is_replaced() {
    let mut pool = PoolUnderTest::slots(1);
    let job = pool.submit("charge");
    let worker = pool.worker_with(job).unwrap();
    pool.wait(pool.core.config().start_timeout);
    assert!(!pool.workers.contains_key(&worker));
    pool.run(job);
    assert_eq!(pool.outcome(job), Some(Ok));
}

#[test]
fn a_job_before_which_workers_die_is_not_given_out_for_ever() {
    let mut pool = PoolUnderTest::slots(1);
    let job = pool.submit("charge");
    let mut deaths = 0;
    while let Some(worker) = pool.worker_with(job) {
        pool.exit(worker, Exit::Signal(11));
        pool.wait(Duration::from_secs(6));
        deaths += 1;
        assert!(deaths <= 20, "it goes on for ever");
    }
    assert!(matches!(pool.outcome(job), Some(WorkerCrashed | Unavailable)));
}

#[test]
fn short_jobs_are_given_out_in_batches_and_those_not_started_survive_a_crash() {
    let mut pool = PoolUnderTest::slots(1);
    let first = pool.submit("charge");
    pool.start(first);
    pool.finish_after(first, Duration::from_micros(3));
    let jobs: Vec<_> = (0..10).map(|_| pool.submit("charge")).collect();
    let worker = pool.worker_with(jobs[9]).expect("all ten were given to the one worker");
    pool.start(jobs[0]);
    pool.exit(worker, Exit::Signal(11));
    assert_eq!(pool.outcome(jobs[0]), Some(WorkerCrashed));
    for &job in &jobs[1..] {
        pool.run(job);
        assert_eq!(pool.outcome(job), Some(Ok));
    }
}

#[test]
fn a_long_job_is_never_queued_behind_another_on_a_busy_worker() {
    let mut pool = PoolUnderTest::slots(2);
    let jobs: Vec<_> = (0..3).map(|_| pool.submit("sum")).collect();
    assert_eq!(pool.worker_with(jobs[2]), None);
    pool.run(jobs[1]);
    assert!(pool.worker_with(jobs[2]).is_some(), "it went to the worker that was free first");
}

#[test]
fn the_order_of_a_workers_exit_and_the_end_of_its_channel_changes_nothing() {
    for exits_first in [true, false] {
        let mut pool = PoolUnderTest::slots(1);
        if exits_first {
            pool.exits_are_known_first();
        }
        let job = pool.submit_with("sum", |request| request.attempts = Some(1));
        let worker = pool.start(job);
        pool.exit(worker, Exit::Signal(9));
        assert_eq!(pool.outcome(job), Some(WorkerCrashed));
        assert_eq!(pool.message(job), "signal 9 (SIGKILL) in attempt 1 of 1");
        for _ in 0..5 {
            pool.workers_start_with(Start::Die);
            let idle = pool.workers.keys().next().copied();
            idle.into_iter().for_each(|worker| pool.exit(worker, Exit::Code(1)));
            pool.wait(Duration::from_secs(6));
        }
        assert_eq!(pool.refusal("sum").code, Unavailable, "the failed starts were counted");
    }
}

#[test]
fn garbage_instead_of_a_hello_counts_as_a_failed_start() {
    let config = CoreConfig { workers: 1, spares: 0, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Wait);
    for _ in 0..5 {
        let worker = *pool.workers.keys().next().unwrap();
        pool.event(Event::Violation { worker, message: "not a frame".to_owned() });
        pool.wait(Duration::from_secs(6));
    }
    let error = pool.refusal("sum");
    assert_eq!(error.message, "a worker broke the protocol at start-up: not a frame");
}

fn starting_badly() -> PoolUnderTest {
    PoolUnderTest::with(CoreConfig { workers: 2, spares: 1, ..CoreConfig::default() }, Start::Die)
}

#[test]
fn a_program_that_dies_at_start_up_is_tried_again_ever_more_slowly() {
    let mut pool = starting_badly();
    pool.wait(Duration::from_secs(10));
    let first_ten_seconds = pool.spawned_at.len();
    assert!(first_ten_seconds <= 2 + 5, "{first_ten_seconds} starts");
    pool.wait(Duration::from_secs(50));
    let later = pool.spawned_at.len() - first_ten_seconds;
    assert!((9..=11).contains(&later), "{later} starts in 50 s");
}

#[test]
fn jobs_are_refused_with_the_reason_while_no_worker_can_be_had() {
    let mut pool = starting_badly();
    let waiting = pool.submit("sum");
    pool.wait(Duration::from_secs(10));
    assert_eq!(pool.outcome(waiting), Some(Unavailable));
    let error = pool.refusal("sum");
    assert_eq!(error.code, Unavailable);
    assert_eq!(
        error.message,
        "a worker ended at start-up with exit code 1; it printed last: no such file: model.bin"
    );
}

#[test]
fn a_worker_that_says_hello_ends_the_refusal_of_jobs() {
    let mut pool = starting_badly();
    pool.wait(Duration::from_secs(10));
    pool.workers_start_with(Start::Hello);
    pool.wait(Duration::from_secs(5));
    let job = pool.submit("sum");
    pool.run(job);
    assert_eq!(pool.outcome(job), Some(Ok));
    assert!(pool.notices.contains(&Notice::Recovered { program: 0 }));
    let ready = pool.core.slots().iter().filter(|slot| slot.is_ready()).count();
    assert_eq!(ready, 3, "slots and spare are back");
}

#[test]
fn exit_code_64_says_that_starting_it_again_is_pointless() {
    let mut pool =
        PoolUnderTest::with(CoreConfig { workers: 2, spares: 0, ..CoreConfig::default() }, Start::Wait);
    for worker in pool.workers.keys().copied().collect::<Vec<_>>() {
        pool.exit(worker, Exit::Code(64));
    }
    pool.wait(Duration::from_secs(100));
    assert_eq!(pool.spawned_at.len(), 2);
    assert_eq!(pool.refusal("sum").code, Unavailable);
}

#[test]
fn a_silent_worker_is_killed_when_its_time_is_up() {
    let mut pool =
        PoolUnderTest::with(CoreConfig { workers: 1, spares: 0, ..CoreConfig::default() }, Start::Wait);
    let worker = *pool.workers.keys().next().unwrap();
    pool.wait(pool.core.config().hello_timeout);
    assert!(!pool.workers.contains_key(&worker));
}

#[test]
fn a_worker_of_another_version_is_not_started_again() {
    let mut pool =
        PoolUnderTest::with(CoreConfig { workers: 1, spares: 0, ..CoreConfig::default() }, Start::Wait);
    let worker = *pool.workers.keys().next().unwrap();
    pool.event(Event::Unfit { worker, message: "it speaks version 9".to_owned() });
    pool.wait(Duration::from_secs(100));
    assert_eq!(pool.spawned_at.len(), 1);
    assert_eq!(pool.refusal("sum").message, "not a worker for this supervisor: it speaks version 9");
}

#[test]
fn events_about_a_worker_that_is_gone_change_nothing() {
    let mut pool = PoolUnderTest::slots(1);
    let job = pool.submit("sum");
    let gone = pool.start(job);
    pool.exit(gone, Exit::Signal(9));
    let digest = pool.core.digest();
    pool.event(Event::Finished {
        worker: gone,
        job,
        attempt: 1,
        run: MS,
        usage: Usage::default(),
        output_bytes: 0,
    });
    pool.event(Event::Violation { worker: gone, message: String::new() });
    pool.event(Event::Exited { worker: gone, exit: Exit::Unknown, last_lines: Vec::new(), usage: None });
    pool.event(Event::Hello { worker: gone, tasks: offers(), takes_files: true });
    assert_eq!(pool.core.digest(), digest);
}

#[test]
fn draining_finishes_what_is_there_and_takes_nothing_new() {
    let mut pool = PoolUnderTest::slots_and_spare(2);
    let jobs: Vec<_> = (0..4).map(|_| pool.submit("sum")).collect();
    pool.event(Event::Drain { limit: None });
    assert_eq!(pool.refusal("sum").code, Unavailable);
    for &job in &jobs {
        assert!(!pool.is_over);
        pool.run(job);
    }
    assert!(pool.is_over && pool.workers.is_empty());
    assert!(jobs.iter().all(|job| pool.outcome(*job) == Some(Ok)));
}

#[test]
fn stopping_cancels_everything_and_leaves_no_process() {
    let mut pool = PoolUnderTest::slots_and_spare(2);
    let jobs: Vec<_> = (0..4).map(|_| pool.submit("sum")).collect();
    pool.start(jobs[0]);
    pool.event(Event::Stop);
    assert!(jobs.iter().all(|job| pool.outcome(*job) == Some(Cancelled)));
    assert!(pool.is_over && pool.workers.is_empty());
    assert_eq!(pool.core.process_count(), 0);
}

#[test]
fn time_never_runs_in_circles_while_a_start_is_awaited() {
    let mut pool = starting_badly();
    pool.workers_start_with(Start::Wait);
    pool.wait(Duration::from_secs(5));
    assert!(pool.core.next_deadline().is_none_or(|deadline| deadline > pool.now));
    assert!(pool.now > Mono::default());
}

#[test]
fn two_programs_share_the_slots_and_each_gets_its_own_jobs() {
    let config = CoreConfig { workers: 2, programs: 2, spares: 0, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Wait);
    let early = pool.submit("other");
    let workers: Vec<_> = pool.workers.keys().copied().collect();
    pool.event(Event::Hello { worker: workers[0], tasks: offers(), takes_files: true });
    assert_eq!(pool.outcome(early), None, "the second program has not said what it offers");
    let mut tasks = offers();
    tasks[0].name = "other".into();
    pool.event(Event::Hello { worker: workers[1], tasks, takes_files: true });
    assert_eq!(pool.worker_with(early), Some(workers[1]));
    let nobody: OutcomeCode = pool.refusal("nothing").code;
    assert_eq!(nobody, UnknownTask);
}
