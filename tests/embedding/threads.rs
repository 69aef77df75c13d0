//! Threads that share one handle, with the guilty among them.

use super::{Running, config, echo, end_of, endless, fault, fault_once, outcome_of};
use offload_supervisor::protocol::nouns::OutcomeCode;
use offload_supervisor::{ComputePool, EventLoop, HandleLimits, Job, PoolHandle, WaitError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use tests::harness::PATIENCE;

/// Runs this on so many threads, each with a handle and a number.
fn on_threads(handle: &PoolHandle, count: usize, work: impl Fn(PoolHandle, usize) + Copy + Send + Sync) {
    std::thread::scope(|scope| {
        for number in 0..count {
            let handle = handle.clone();
            scope.spawn(move || work(handle, number));
        }
    });
}

#[test]
fn many_threads_share_a_pool_and_each_gets_its_own_answers() {
    let running = Running::with_workers(2);
    on_threads(&running.handle, 8, |handle, thread| {
        for number in 0..50 {
            let text = format!("{thread}-{number}");
            assert_eq!(end_of(handle.submit(echo(&text))).output, text.as_bytes());
        }
        // Many at a time, and one that fails among them.
        let wrong = handle.submit(Job::new("primes").input("none"));
        let all: Vec<_> = (0..20).map(|number| handle.submit(echo(&number.to_string()))).collect();
        for (number, job) in all.into_iter().enumerate() {
            assert_eq!(end_of(job).output, number.to_string());
        }
        assert_eq!(outcome_of(wrong), OutcomeCode::AppError);
    });
    running.ends_by_itself();
}

#[test]
fn workers_that_crash_fail_only_the_jobs_that_killed_them() {
    let running = Running::with_workers(2);
    on_threads(&running.handle, 6, |handle, thread| {
        for number in 0..8 {
            match thread {
                0 => assert_eq!(outcome_of(handle.submit(fault("kill"))), OutcomeCode::WorkerCrashed),
                1 => assert_eq!(end_of(handle.submit(fault_once("segv"))).report.attempts, 2),
                2 => drop(handle.submit(endless())),
                _ => assert_eq!(end_of(handle.submit(echo(&number.to_string()))).output, number.to_string()),
            }
        }
    });
    running.ends_by_itself();
}

#[test]
fn a_job_that_nobody_waits_for_any_more_is_cancelled_and_the_loop_lives_as_long_as_jobs_do() {
    let running = Running::with_workers(1);
    let forever = running.handle.submit(endless());
    let behind = running.handle.submit(echo("behind it"));
    let Err(late) = behind.wait(Duration::from_millis(20)) else { panic!("there is one worker") };
    assert!(matches!(late, WaitError::TimedOut(_)), "{late}");
    drop(running.handle);
    drop(forever);
    assert_eq!(end_of(late.into_job()).output, "behind it");
    running.thread.join().expect("nothing is left");
}

#[test]
fn a_thread_that_panics_cancels_its_jobs_and_harms_no_other() {
    let running = Running::with_workers(1);
    let handle = running.handle.clone();
    let guilty = std::thread::spawn(move || {
        let _jobs: Vec<_> = (0..5).map(|_| handle.submit(endless())).collect();
        panic!("as told");
    });
    assert!(guilty.join().is_err());
    assert_eq!(end_of(running.handle.submit(echo("innocent"))).output, "innocent");
    running.ends_by_itself();
}

/// Jobs are dropped wherever they are: with the loop not yet, queued, running, ended. Afterwards all places are free again.
#[test]
fn a_storm_of_cancelled_jobs_leaves_every_place_free_and_every_worker_idle() {
    let running = Running::with_places(2, 16);
    on_threads(&running.handle, 8, |handle, thread| {
        for number in 0..60 {
            let job = if (thread + number) % 3 == 0 { echo("short") } else { endless() };
            let pending = handle.client(&format!("client {}", thread % 3)).submit(job);
            if number % 4 == 0 {
                let waited = pending.wait(Duration::from_millis(1));
                drop(waited);
            }
        }
    });
    let handle = running.handle.clone();
    let reserved = super::runtimes::block_on(async move {
        let mut reserved = Vec::new();
        for _ in 0..16 {
            reserved.push(handle.reserve().await.expect("the pool is there"));
        }
        reserved
    });
    let jobs: Vec<_> = reserved.into_iter().map(|reserved| reserved.submit(echo("idle"))).collect();
    jobs.into_iter().for_each(|job| assert_eq!(end_of(job).output, "idle"));
    running.ends_by_itself();
}

/// Nobody runs the loop here, so nothing is taken.
#[test]
fn a_client_that_takes_all_it_can_leaves_room_for_others_and_each_is_told_why_it_is_refused() {
    let event_loop = EventLoop::new().unwrap();
    let pool = ComputePool::start(config(1), &event_loop).unwrap();
    let handle = pool.handle_with(HandleLimits { jobs: 8, bytes: 1 << 20 });
    drop(pool);
    let [greedy, polite, third] = ["greedy", "polite", "third"].map(|name| handle.client(name));
    let accepted = |handle: &PoolHandle, count: usize| -> Vec<_> {
        (0..count).map(|_| handle.submit(echo("x"))).collect()
    };
    let mut jobs = accepted(&greedy, 4);
    // A refused job has ended, so it can be asked for its end anywhere.
    assert_eq!(outcome_of(greedy.submit(echo("x"))), OutcomeCode::Quota);
    assert_eq!(outcome_of(handle.submit(echo("x").client("greedy"))), OutcomeCode::Quota);
    jobs.extend(accepted(&polite, 2));
    assert_eq!(outcome_of(polite.submit(echo("x"))), OutcomeCode::Quota);
    jobs.extend(accepted(&third, 1));
    jobs.extend(accepted(&handle, 1));
    assert_eq!(outcome_of(handle.client("fifth").submit(echo("x"))), OutcomeCode::Overloaded);
    drop(event_loop);
    for job in jobs {
        assert_eq!(outcome_of(job), OutcomeCode::Unavailable);
    }
}

#[test]
fn an_output_that_nobody_takes_keeps_its_room() {
    let running = Running::with(config(1), Some(HandleLimits { jobs: 100, bytes: 100_000 }));
    let large = || Job::new("echo").input(vec![7; 60_000]);
    let untaken = running.handle.submit(large());
    // There is one worker, so the job before has ended when this one has.
    assert_eq!(end_of(running.handle.client("other").submit(echo("x"))).output, "x");
    assert_eq!(outcome_of(running.handle.submit(large())), OutcomeCode::Quota);
    assert_eq!(end_of(untaken).output.len(), 60_000);
    assert_eq!(end_of(running.handle.submit(large())).output.len(), 60_000);
    running.ends_by_itself();
}

/// Nobody runs the loop here, so nothing is taken. Each had its place before anybody had brought an input.
#[test]
fn whoever_has_reserved_a_place_is_refused_if_there_is_no_room_for_its_input() {
    let event_loop = EventLoop::new().unwrap();
    let pool = ComputePool::start(config(1), &event_loop).unwrap();
    let handle = pool.handle_with(HandleLimits { jobs: 200, bytes: 1 << 20 });
    drop(pool);
    let reserve =
        |handle: &PoolHandle| super::runtimes::block_on(handle.reserve()).expect("the pool is there");
    let places: Vec<_> = (0..50).map(|_| reserve(&handle)).collect();
    let others: Vec<_> = (0..2).map(|_| reserve(&handle.client("other"))).collect();
    let jobs = places.into_iter().map(|place| place.submit(Job::new("echo").input(vec![7; 128 << 10])));
    let (mut accepted, mut refused) = (Vec::new(), Vec::new());
    for job in jobs {
        match job.wait(Duration::ZERO) {
            Ok(finished) => refused.push(finished.report.outcome),
            Err(error) => accepted.push(error.into_job()),
        }
    }
    assert_eq!(accepted.len(), 4, "a client has as many bytes as it leaves free");
    assert!(refused.iter().all(|outcome| *outcome == OutcomeCode::Quota), "{refused:?}");
    // A refused job has left its place, and what others have reserved is still theirs.
    let more: Vec<_> = (0..46).map(|_| reserve(&handle)).collect();
    accepted.extend(others.into_iter().map(|place| place.submit(echo("a little"))));
    drop((event_loop, more));
    for job in accepted {
        assert_eq!(outcome_of(job), OutcomeCode::Unavailable);
    }
}

#[test]
fn a_deadline_counts_from_the_submission_also_while_the_loop_is_busy() {
    let mut event_loop = EventLoop::new().unwrap();
    let pool = ComputePool::start(config(1), &event_loop).unwrap();
    let handle = pool.handle();
    drop(pool);
    let job = handle.submit(echo("too late").deadline(Duration::from_millis(1)));
    let submitted = std::time::Instant::now();
    while submitted.elapsed() <= Duration::from_millis(1) {
        std::hint::spin_loop();
    }
    drop(event_loop.spawn(async move {
        assert_eq!(job.await.report.outcome, OutcomeCode::Timeout);
        drop(handle);
    }));
    event_loop.run().unwrap();
}

#[test]
fn a_wait_on_the_loops_own_thread_is_an_error_and_awaiting_the_job_there_is_not() {
    let mut event_loop = EventLoop::new().unwrap();
    let pool = ComputePool::start(config(1), &event_loop).unwrap();
    let handle = pool.handle();
    drop(pool);
    let loop_handle = (*event_loop).clone();
    event_loop.set_immediate(move |_| {
        let error = handle.submit(echo("x")).wait(PATIENCE).unwrap_err();
        assert!(matches!(error, WaitError::OnLoopThread(_)), "{error}");
        let job = error.into_job();
        drop(loop_handle.spawn(async move { assert_eq!(job.await.output, "x") }));
    });
    event_loop.run().unwrap();
}

#[test]
fn a_job_that_is_awaited_again_after_its_end_is_a_panic_and_no_hang() {
    let running = Running::with_workers(1);
    let mut job = running.handle.submit(echo("once"));
    assert_eq!(super::runtimes::block_on(&mut job).output, "once");
    assert!(catch_unwind(AssertUnwindSafe(|| super::runtimes::block_on(&mut job))).is_err());
    drop(job);
    running.ends_by_itself();
}

#[test]
fn a_wait_after_the_end_was_taken_is_a_panic_and_no_hang() {
    let running = Running::with_workers(1);
    let mut job = running.handle.submit(echo("once"));
    assert_eq!(super::runtimes::block_on(&mut job).output, "once");
    let waited = catch_unwind(AssertUnwindSafe(|| job.wait(Duration::from_millis(10)).is_ok()));
    assert!(waited.is_err(), "{waited:?}");
    running.ends_by_itself();
}
