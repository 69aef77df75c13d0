//! Whose fault it was that the worker of a version on trial has ended: its version's, or that of the job that it ran.

use offload_core::action::{Notice, ReloadEnd};
use offload_core::config::CoreConfig;
use offload_core::event::Event;
use offload_core::exit::Exit;
use offload_core::ids::{JobId, WorkerId};
use offload_core::limits::{TRIAL_QUESTION_TIME, TRIAL_WORKERS_MAX};
use offload_protocol::nouns::{FailureKind, OutcomeCode::*, Usage};
use std::collections::BTreeSet;
use std::time::Duration;
use tests::pool_under_test::{PoolUnderTest, Start};

const MS: Duration = Duration::from_millis(1);

/// A pool that is trying version 1.
fn on_trial(workers: usize, spares: usize) -> PoolUnderTest {
    let config = CoreConfig { workers, spares, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Hello);
    pool.event(Event::Reload { version: 1 });
    pool
}

fn of_version(pool: &PoolUnderTest, version: u64) -> BTreeSet<WorkerId> {
    let its = pool.workers.iter().filter(|(_, worker)| worker.version == version);
    its.map(|(worker, _)| *worker).collect()
}

/// The worker of the new version ends in a job that may be run again, and the job waits for another.
fn in_question(pool: &mut PoolUnderTest) -> JobId {
    let job = pool.submit("sum");
    let tried = pool.start(job);
    assert_eq!(pool.workers[&tried].version, 1);
    pool.exit(tried, Exit::Signal(11));
    assert_eq!((pool.outcome(job), of_version(pool, 1)), (None, BTreeSet::new()));
    assert!(pool.reloads.is_empty(), "nobody knows yet whose fault it was: {:?}", pool.reloads);
    job
}

/// Some workers are kept for short jobs for a while.
fn wait_for_a_worker(pool: &mut PoolUnderTest, job: JobId) {
    for _ in 0..1000 {
        if pool.worker_with(job).is_none() {
            pool.wait(MS);
        }
    }
}

fn given_to_any(pool: &PoolUnderTest) -> Option<JobId> {
    pool.workers.values().find_map(|worker| Some(worker.given.front()?.0))
}

fn is_told_of(pool: &PoolUnderTest, guilty: JobId) -> bool {
    pool.notices.iter().any(|notice| matches!(notice, Notice::TrialGoesOn { job, .. } if *job == guilty))
}

/// Why the old workers stayed, if they did.
fn why_old_stay(pool: &PoolUnderTest) -> &str {
    match &pool.reloads[..] {
        [ReloadEnd::TakenBack { why, .. } | ReloadEnd::OldStay(why)] => why,
        others => panic!("{others:?}"),
    }
}

#[test]
fn a_job_that_ends_every_worker_fails_no_reload() {
    for (workers, spares) in [(1, 0), (1, 1), (3, 0), (3, 1)] {
        let mut pool = on_trial(workers, spares);
        let guilty = in_question(&mut pool);
        // Whatever else is done meanwhile is done by old workers.
        let innocent = pool.submit("charge");
        pool.wait(10 * MS);
        if pool.worker_with(innocent).is_some() {
            pool.run(innocent);
        }
        assert_eq!(of_version(&pool, 1), BTreeSet::new(), "no other is at risk before it is known");
        pool.wait(Duration::from_secs(5));
        pool.crash_the_worker_running(guilty);
        let tried = of_version(&pool, 1);
        assert!(is_told_of(&pool, guilty) && tried.len() == 1 && pool.reloads.is_empty());
        // It is not given the one that has ended two others.
        pool.wait(MS);
        assert!(pool.worker_with(guilty).is_none_or(|worker| !tried.contains(&worker)));
        pool.event(Event::Cancel { job: guilty });
        for _ in 0..3 {
            pool.submit("charge");
        }
        while let Some(job) = given_to_any(&pool) {
            pool.run(job);
        }
        pool.wait(Duration::from_secs(60));
        assert_eq!(pool.reloads, [ReloadEnd::Done], "{workers} workers, {spares} spares");
        assert_eq!(of_version(&pool, 0), BTreeSet::new());
    }
}

#[test]
fn a_version_that_ends_in_a_job_that_another_worker_does_is_taken_back_with_the_reason() {
    for failure in [false, true] {
        let mut pool = on_trial(2, 0);
        let job = in_question(&mut pool);
        pool.wait(Duration::from_secs(1));
        assert!(of_version(&pool, 1).is_empty() && pool.reloads.is_empty());
        match failure {
            false => pool.run(job),
            true => fail(&mut pool, job),
        }
        let why = "its worker ended with signal 11 (SIGSEGV) after 0 jobs, in a job of `sum` that another worker has done since";
        assert_eq!(why_old_stay(&pool), why);
        assert_eq!(pool.outcome(job), Some(if failure { AppError } else { Ok }));
    }
}

fn fail(pool: &mut PoolUnderTest, job: JobId) {
    let worker = pool.start(job);
    let (_, attempt) = pool.workers.get_mut(&worker).unwrap().given.pop_front().unwrap();
    let (run, usage, message) = (MS, Usage::default(), "no".to_owned());
    let kind = FailureKind::AppError;
    pool.event(Event::Failed { worker, job, attempt, run, kind, message, usage });
}

/// Only what it does to another worker could say whose fault it was, and there is none.
#[test]
fn a_version_that_ends_in_a_job_that_is_not_run_again_is_taken_back_at_once() {
    let mut pool = on_trial(2, 0);
    let job = pool.submit("charge");
    let tried = pool.start(job);
    pool.exit(tried, Exit::Code(3));
    assert_eq!(pool.outcome(job), Some(WorkerCrashed));
    assert_eq!(
        why_old_stay(&pool),
        "its worker ended with exit code 3 after 0 jobs, in a job of `charge` that is not run again"
    );
}

/// Who submits such jobs may be out of patience, too.
#[test]
fn a_job_that_is_cancelled_before_it_has_shown_anything_makes_no_version_fail() {
    let (mut pool, job) = nobody_is_free();
    pool.event(Event::Cancel { job });
    pool.wait(MS);
    assert!(pool.reloads.is_empty() && of_version(&pool, 1).len() == 1, "{:?}", pool.reloads);
    let told = Notice::TrialGoesOn { program: 0, job, is_guilty: false };
    assert!(pool.notices.contains(&told), "{:?}", pool.notices);
    pool.wait(Duration::from_secs(3));
    assert_eq!(of_version(&pool, 0).len(), 1, "the old worker still has its job");
}

/// It is enough to know that such jobs end workers that work.
#[test]
fn another_job_of_the_same_task_that_ends_an_old_worker_answers_the_question_too() {
    let mut pool = on_trial(3, 0);
    let guilty = in_question(&mut pool);
    let other = pool.submit("sum");
    wait_for_a_worker(&mut pool, other);
    pool.crash_the_worker_running(other);
    assert!(is_told_of(&pool, other) && pool.reloads.is_empty(), "{:?}", pool.reloads);
    let tried = of_version(&pool, 1);
    assert_eq!(tried.len(), 1);
    pool.wait(MS);
    let given = [guilty, other].map(|job| pool.worker_with(job));
    assert!(given.iter().flatten().all(|worker| !tried.contains(worker)), "{given:?}");
    pool.wait(Duration::from_secs(3));
    assert_eq!(pool.reloads.len(), 0, "the others have their jobs");
    [guilty, other].into_iter().for_each(|job| pool.event(Event::Cancel { job }));
    pool.wait(Duration::from_secs(60));
    assert_eq!(pool.reloads, [ReloadEnd::Done], "it has lived long enough without such a job");
}

/// Until it is done no worker that ends is replaced.
#[test]
fn a_job_in_question_does_not_wait_for_a_worker_that_is_kept_for_short_jobs() {
    let mut pool = PoolUnderTest::slots(2);
    for (task, run) in [("sum", Duration::from_secs(1)), ("charge", MS)] {
        for _ in 0..5 {
            let job = pool.submit(task);
            pool.start(job);
            pool.finish_after(job, run);
        }
    }
    pool.event(Event::Reload { version: 1 });
    let guilty = pool.submit("sum");
    let tried = pool.start(guilty);
    assert_eq!(pool.workers[&tried].version, 1);
    let other = pool.submit("sum");
    assert!(pool.worker_with(other).is_some());
    let short = pool.submit("charge");
    pool.run(short);
    let waiting = pool.submit("sum");
    assert_eq!(pool.worker_with(waiting), None, "the other worker is kept for short jobs");
    pool.exit(tried, Exit::Signal(11));
    assert!(pool.worker_with(guilty).is_some(), "it is given a worker at once");
}

/// One client whose jobs end every worker had kept everybody else out after a reload.
#[test]
fn a_task_that_ends_old_workers_counts_nothing_against_those_that_were_started_since() {
    let mut pool = on_trial(2, 0);
    let tried = pool.workers.iter().find(|(_, worker)| worker.version == 1).map(|(tried, _)| *tried);
    pool.exit(tried.expect("one is on trial"), Exit::Code(7));
    let crash = |pool: &mut PoolUnderTest| {
        let guilty = pool.submit_with("sum", |request| request.attempts = Some(1));
        wait_for_a_worker(pool, guilty);
        pool.crash_the_worker_running(guilty);
        assert_eq!(pool.outcome(guilty), Some(WorkerCrashed));
    };
    for number in 0..12 {
        crash(&mut pool);
        assert!(!pool.core.refuses(0) && pool.core.failed_starts(0) == 0, "after {number}");
    }
    let innocent = pool.submit("charge");
    wait_for_a_worker(&mut pool, innocent);
    pool.run(innocent);
    pool.wait(MS);
    assert_eq!(pool.workers.len(), 2, "one has proved itself, so the other slot is filled");
}

#[test]
fn a_version_whose_workers_all_end_is_taken_back_though_the_jobs_end_others_too() {
    let workers = TRIAL_WORKERS_MAX as usize + 1;
    let config =
        CoreConfig { workers, spares: 0, trial_time: Duration::from_secs(3600), ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Hello);
    pool.event(Event::Reload { version: 1 });
    for tried in 1..=TRIAL_WORKERS_MAX {
        assert_eq!((pool.reloads.len(), of_version(&pool, 1).len()), (0, 1), "worker {tried} of the version");
        let guilty = pool.submit_with("sum", |request| request.attempts = Some(2));
        assert_eq!(pool.worker_with(guilty), of_version(&pool, 1).first().copied());
        pool.crash_the_worker_running(guilty);
        if tried < TRIAL_WORKERS_MAX {
            wait_for_a_worker(&mut pool, guilty);
            pool.crash_the_worker_running(guilty);
            assert!(is_told_of(&pool, guilty));
            // Until an old worker has done such a job, none is given to the one on trial.
            let well = pool.submit("sum");
            wait_for_a_worker(&mut pool, well);
            assert_eq!(pool.workers[&pool.worker_with(well).expect("an old one")].version, 0);
            pool.run(well);
        }
    }
    pool.wait(MS);
    let why = why_old_stay(&pool);
    assert!(
        why.starts_with("5 of its workers have ended, the last time: its worker ended with signal 11"),
        "{why}"
    );
}

#[test]
fn a_reload_that_waits_for_a_job_ends_with_the_next_reload_and_with_the_supervisor() {
    let mut pool = on_trial(1, 0);
    let job = in_question(&mut pool);
    pool.event(Event::Reload { version: 2 });
    assert_eq!(why_old_stay(&pool), "another reload came before it was done");
    assert_eq!(of_version(&pool, 2).len(), 1);
    // What it does now says nothing of the other version.
    pool.crash_the_worker_running(job);
    assert!(!is_told_of(&pool, job) && of_version(&pool, 2).len() == 1);

    let mut pool = on_trial(1, 0);
    let job = in_question(&mut pool);
    pool.event(Event::Drain { limit: None });
    assert_eq!(why_old_stay(&pool), "the supervisor is ending");
    pool.run(job);
    assert!(pool.is_over && pool.outcome(job) == Some(Ok));
}

#[test]
fn a_version_of_several_programs_waits_for_the_one_in_question() {
    let config = CoreConfig { workers: 2, programs: 2, spares: 0, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Hello);
    pool.event(Event::Reload { version: 1 });
    let guilty = pool.submit("sum");
    let tried = pool.start(guilty);
    pool.exit(tried, Exit::Signal(11));
    let old = pool.start(guilty);
    pool.wait(Duration::from_secs(10));
    assert!(pool.reloads.is_empty(), "{:?}", pool.reloads);
    assert_eq!(of_version(&pool, 1).len(), 1, "that of the other program, which has lived long enough");
    pool.exit(old, Exit::Signal(11));
    pool.event(Event::Cancel { job: guilty });
    pool.wait(Duration::from_secs(60));
    assert_eq!(pool.reloads, [ReloadEnd::Done]);
}

/// The only old worker has a job for a long time, and the version is in question because of another, which waits for that worker.
fn nobody_is_free() -> (PoolUnderTest, JobId) {
    let mut pool = on_trial(1, 0);
    let job = pool.submit("sum");
    let tried = pool.start(job);
    let long = pool.submit_with("charge", |request| request.timeout = Some(Duration::from_secs(100)));
    let old = pool.start(long);
    assert_eq!([tried, old].map(|worker| pool.workers[&worker].version), [1, 0]);
    pool.exit(tried, Exit::Signal(11));
    (pool, job)
}

#[test]
fn a_version_is_taken_back_when_no_other_worker_is_free_for_the_job() {
    let (mut pool, job) = nobody_is_free();
    pool.wait(TRIAL_QUESTION_TIME - MS);
    assert!(pool.reloads.is_empty());
    pool.wait(2 * MS);
    let why = why_old_stay(&pool);
    assert!(why.ends_with("in a job of `sum` that no other worker has done within 30 s"), "{why}");
    assert_eq!(pool.outcome(job), None, "it waits for the old worker");
}

#[test]
fn the_place_of_a_version_in_question_is_none_that_a_job_waits_for() {
    let (mut pool, suspect) = nobody_is_free();
    for job in [suspect, pool.submit("charge")] {
        let waiting = pool.core.explain(pool.now, job).unwrap().waiting.unwrap();
        assert_eq!(waiting.slots, (1, 1, 1));
    }
}

/// It may be of the very version that is in question.
#[test]
fn the_end_of_a_worker_that_was_started_since_the_reload_acquits_no_version() {
    let mut pool = on_trial(1, 0);
    let old = of_version(&pool, 0);
    let job = in_question(&mut pool);
    // Somebody kills the old worker, which has not begun the job.
    assert_eq!(pool.worker_with(job), old.first().copied());
    old.iter().for_each(|old| pool.exit(*old, Exit::Signal(9)));
    assert!(why_old_stay(&pool).ends_with("in a job of `sum` that no other worker is left to do"));
    wait_for_a_worker(&mut pool, job);
    pool.crash_the_worker_running(job);
    assert!(!is_told_of(&pool, job));
}

/// The job that runs on the worker on trial is cancelled, or its time is up, and the worker has to end for that.
fn end_early(pool: &mut PoolUnderTest, cancel: bool) {
    let job = pool.submit_with("charge", |request| request.timeout = (!cancel).then_some(MS));
    let worker = pool.start(job);
    pool.wait(2 * MS);
    if cancel {
        pool.event(Event::Cancel { job });
    }
    pool.wait(pool.core.config().cancel_grace + 2 * MS);
    assert!(!pool.workers.contains_key(&worker), "it was ended with its job");
}

#[test]
fn a_client_that_cancels_all_of_its_jobs_does_not_keep_a_reload_from_its_end() {
    for spares in [0, 1] {
        let mut pool = on_trial(2, spares);
        let begun = pool.now;
        while pool.reloads.is_empty() && pool.now < begun + Duration::from_secs(30) {
            let job = pool.submit("charge");
            if pool.worker_with(job).is_some() {
                pool.start(job);
                pool.wait(300 * MS);
            }
            pool.event(Event::Cancel { job });
            pool.wait(200 * MS);
        }
        assert_eq!(pool.reloads, [ReloadEnd::Done], "after {:?}", pool.now - begun);
    }
}

/// Clients that are out of patience with a version that hangs must not make it pass.
#[test]
fn a_version_whose_jobs_are_cancelled_when_they_have_run_longer_than_usual_is_taken_back() {
    let config = CoreConfig { workers: 2, spares: 0, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Hello);
    let known = pool.submit("charge");
    pool.start(known);
    pool.finish_after(known, MS);
    pool.event(Event::Reload { version: 1 });
    for _ in 0..3 {
        assert!(pool.reloads.is_empty());
        end_early(&mut pool, true);
    }
    assert_eq!(why_old_stay(&pool), "its first 3 jobs all failed");
}

#[test]
fn jobs_that_fail_on_the_old_workers_too_show_nothing_of_a_version() {
    for failure in ["answer", "time"] {
        let config = CoreConfig { workers: 2, spares: 0, ..CoreConfig::default() };
        let mut pool = PoolUnderTest::with(config, Start::Hello);
        let once = |pool: &mut PoolUnderTest| match failure {
            "answer" => {
                let job = pool.submit("charge");
                fail(pool, job);
            }
            _ => end_early(pool, false),
        };
        once(&mut pool);
        pool.wait(Duration::from_secs(1));
        pool.event(Event::Reload { version: 1 });
        for _ in 0..20 {
            once(&mut pool);
            pool.wait(400 * MS);
        }
        assert_eq!(pool.reloads, [ReloadEnd::Done], "{failure}");
    }
}

/// It would have been taken over already if there were no other program.
#[test]
fn a_version_that_has_passed_and_waits_for_other_programs_is_not_judged_by_jobs_any_more() {
    let config = CoreConfig { workers: 2, programs: 2, spares: 0, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Hello);
    pool.event(Event::Reload { version: 1 });
    for _ in 0..3 {
        let job = pool.submit("sum");
        pool.run(job);
    }
    let guilty = pool.submit("charge");
    let tried = pool.start(guilty);
    assert_eq!(pool.workers[&tried].version, 1);
    pool.exit(tried, Exit::Code(3));
    assert_eq!((pool.outcome(guilty), pool.reloads.len()), (Some(WorkerCrashed), 0));
    pool.wait(Duration::from_secs(60));
    assert_eq!(pool.reloads, [ReloadEnd::Done]);
}

#[test]
fn a_worker_on_trial_that_the_supervisor_has_ended_is_not_said_to_have_crashed() {
    let mut pool = on_trial(1, 0);
    let tried = *of_version(&pool, 1).first().unwrap();
    pool.event(Event::Violation { worker: tried, message: "it sang".into() });
    pool.wait(MS);
    let why = why_old_stay(&pool);
    assert_eq!(why, "its worker was ended (it broke the protocol: it sang) after 0 jobs");
}
