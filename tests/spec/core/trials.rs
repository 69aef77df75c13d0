//! A new version on trial beside the old workers, and what is started after it was taken back.

use offload_core::WhyUnknown;
use offload_core::action::{Notice, ReloadEnd};
use offload_core::config::CoreConfig;
use offload_core::event::Event;
use offload_core::exit::Exit;
use offload_core::ids::{JobId, WorkerId};
use offload_core::slots::Slot;
use offload_protocol::nouns::{FailureKind, OutcomeCode::*, TaskOffer, Usage};
use std::collections::BTreeSet;
use std::time::Duration;
use tests::pool_under_test::{PoolUnderTest, Start, offers};

const MS: Duration = Duration::from_millis(1);

fn pool(workers: usize, spares: usize) -> PoolUnderTest {
    with(CoreConfig { workers, spares, ..CoreConfig::default() })
}

fn with(config: CoreConfig) -> PoolUnderTest {
    PoolUnderTest::with(config, Start::Hello)
}

fn pids(pool: &PoolUnderTest) -> BTreeSet<WorkerId> {
    pool.workers.keys().copied().collect()
}

fn reload(pool: &mut PoolUnderTest, version: u64) {
    pool.event(Event::Reload { version });
}

fn is_old(end: &ReloadEnd) -> bool {
    matches!(end, ReloadEnd::TakenBack { .. } | ReloadEnd::OldStay(_))
}

/// The worker of the new version.
fn tried(pool: &PoolUnderTest) -> WorkerId {
    *pool.workers.iter().find(|(_, worker)| worker.version == 1).expect("one is on trial").0
}

fn fail(pool: &mut PoolUnderTest, job: JobId) {
    let worker = pool.start(job);
    pool.workers.get_mut(&worker).unwrap().given.clear();
    let (run, usage, message) = (MS, Usage::default(), "no".to_owned());
    let kind = FailureKind::AppError;
    pool.event(Event::Failed { worker, job, attempt: 1, run, kind, message, usage });
}

#[test]
fn a_version_that_does_not_start_costs_no_worker_with_and_without_a_spare() {
    for (workers, spares) in [(1, 0), (2, 0), (1, 1), (3, 1)] {
        let mut pool = pool(workers, spares);
        let (before, started) = (pids(&pool), pool.spawned_at.len());
        pool.workers_start_with(Start::Die);
        reload(&mut pool, 1);
        pool.wait(Duration::from_secs(60));
        assert!(pool.reloads.iter().all(is_old) && pool.reloads.len() == 1, "{:?}", pool.reloads);
        assert_eq!(pids(&pool), before, "the same workers serve");
        assert_eq!(pool.spawned_at.len(), started + 1, "nothing but the one on trial was started");
        let job = pool.submit("charge");
        pool.run(job);
        assert_eq!(pool.outcome(job), Some(Ok));
    }
}

#[test]
fn a_version_that_ends_with_its_first_job_costs_that_job_and_no_worker() {
    for (workers, spares) in [(1, 0), (1, 1), (3, 1)] {
        let mut pool = pool(workers, spares);
        let (before, started) = (pids(&pool), pool.spawned_at.len());
        reload(&mut pool, 1);
        let jobs: Vec<_> = (0..10).map(|_| pool.submit("charge")).collect();
        let tried = tried(&pool);
        pool.exit(tried, Exit::Code(7));
        pool.wait(MS);
        while let Some(job) = jobs.iter().copied().find(|job| pool.worker_with(*job).is_some()) {
            pool.run(job);
        }
        assert!(pool.reloads.iter().all(is_old) && pool.reloads.len() == 1, "{:?}", pool.reloads);
        assert_eq!((pids(&pool), pool.spawned_at.len()), (before, started + 1));
        assert!(jobs.iter().all(|job| pool.outcome(*job) == Some(Ok)), "it was not even started");
        assert!(pool.core.trouble(0).is_none() && pool.core.failed_starts(0) == 0);
    }
}

/// It would be judged by the job.
#[test]
fn a_job_whose_worker_has_ended_is_not_given_to_a_version_on_trial() {
    for (workers, spares) in [(1, 0), (1, 1), (3, 1)] {
        let mut pool = pool(workers, spares);
        let guilty = pool.submit("sum");
        let old = pool.start(guilty);
        reload(&mut pool, 1);
        let tried = tried(&pool);
        pool.exit(old, Exit::Signal(9));
        for _ in 0..1000 {
            if pool.worker_with(guilty).is_none() {
                pool.wait(MS);
            }
        }
        assert_ne!(pool.worker_with(guilty), Some(tried), "{workers} workers, {spares} spares");
        pool.crash_the_worker_running(guilty);
        assert!(pool.workers.contains_key(&tried) && !pool.reloads.iter().any(is_old));
    }
}

#[test]
fn a_version_on_trial_is_not_among_the_workers_that_a_job_whose_worker_has_ended_waits_for() {
    let mut pool = pool(1, 0);
    for task in ["charge", "sum"] {
        let job = pool.submit(task);
        pool.start(job);
        pool.finish_after(job, 100 * MS);
    }
    let suspect = pool.submit("sum");
    let old = pool.start(suspect);
    reload(&mut pool, 1);
    let tried = tried(&pool);
    pool.workers_start_with(Start::Wait);
    pool.exit(old, Exit::Signal(9));
    let [runs, waits] = [0; 2].map(|_| pool.submit("charge"));
    assert_eq!(pool.start(runs), tried);
    let waiting = |job| pool.core.explain(pool.now, job).unwrap().waiting.unwrap();
    let (of_suspect, of_other) = (waiting(suspect), waiting(waits));
    assert_eq!((of_suspect.slots, of_suspect.expected), ((1, 0, 0), Err(WhyUnknown::Workers)));
    assert!(of_other.slots == (2, 1, 1) && of_other.expected.is_ok(), "{of_other:?}");
}

#[test]
fn a_worker_on_trial_gets_the_next_job_and_one_at_a_time() {
    let mut pool = pool(2, 0);
    for _ in 0..3 {
        let job = pool.submit("charge");
        pool.start(job);
        pool.finish_after(job, Duration::from_micros(3));
    }
    reload(&mut pool, 1);
    let tried = tried(&pool);
    let jobs: Vec<_> = (0..12).map(|_| pool.submit("charge")).collect();
    assert_eq!(pool.worker_with(jobs[0]), Some(tried));
    assert_eq!(pool.workers[&tried].given.len(), 1, "the others are given several tiny jobs");
}

#[test]
fn a_version_does_not_pass_while_its_first_job_runs() {
    let mut pool = pool(1, 0);
    reload(&mut pool, 1);
    let job = pool.submit_with("charge", |request| request.timeout = Some(Duration::from_secs(20)));
    let (old, new) = (pool.core.slots()[0].worker(), pool.start(job));
    assert_eq!(pool.workers[&new].version, 1);
    pool.wait(Duration::from_secs(19));
    assert!(pool.reloads.is_empty(), "it may hang");
    pool.wait(Duration::from_secs(2));
    assert_eq!(pool.outcome(job), Some(Timeout));
    assert_eq!(pool.core.slots()[0].worker(), old);
}

#[test]
fn a_version_whose_first_jobs_all_hang_is_taken_back() {
    let mut pool = pool(1, 0);
    let before = pids(&pool);
    reload(&mut pool, 1);
    for _ in 0..3 {
        let job = pool.submit_with("charge", |request| request.timeout = Some(MS));
        assert!(!before.contains(&pool.start(job)));
        pool.wait(2 * MS);
        pool.wait(pool.core.config().cancel_grace);
    }
    pool.wait(MS);
    assert_eq!(
        pool.reloads,
        [ReloadEnd::TakenBack { program: 0, why: "its first 3 jobs all failed".to_owned() }]
    );
    assert_eq!(pids(&pool), before);
}

#[test]
fn worn_workers_stay_until_the_trial_is_decided() {
    for spares in [0, 1] {
        let config = CoreConfig { workers: 2, spares, max_rss: Some(1000), ..CoreConfig::default() };
        let mut pool = with(config);
        let before = pids(&pool);
        reload(&mut pool, 1);
        for &worker in &before {
            pool.event(Event::Measured { worker, resident_bytes: 1001 });
        }
        pool.wait(Duration::from_secs(1));
        assert!(before.is_subset(&pids(&pool)));
        let tried = tried(&pool);
        pool.exit(tried, Exit::Code(1));
        pool.wait(Duration::from_secs(60));
        assert_eq!(pids(&pool), before, "what would be started instead has failed");
    }
}

#[test]
fn an_old_worker_that_ends_during_the_trial_is_replaced_by_the_spare_and_nothing_else_goes() {
    let mut pool = pool(2, 1);
    let before = pids(&pool);
    reload(&mut pool, 1);
    let lost = pool.core.slots()[0].worker().unwrap();
    pool.exit(lost, Exit::Signal(11));
    assert_eq!(pool.core.slots()[..2].iter().filter(|slot| Slot::is_ready(slot)).count(), 2);
    let tried = tried(&pool);
    pool.exit(tried, Exit::Code(1));
    pool.wait(MS);
    assert!(pids(&pool).is_superset(&(&before - &BTreeSet::from([lost]))));
}

#[test]
fn a_reload_is_decided_for_all_programs_at_once() {
    let config = CoreConfig { workers: 2, programs: 2, spares: 0, ..CoreConfig::default() };
    let mut pool = with(config);
    let before = pids(&pool);
    reload(&mut pool, 1);
    for _ in 0..3 {
        let job = pool.submit("sum");
        pool.run(job);
    }
    let of_second = |pool: &PoolUnderTest| {
        let mut tried = pool.workers.iter().filter(|(_, worker)| worker.version == 1);
        tried.find(|(_, worker)| worker.program == 1).map(|(worker, _)| *worker).unwrap()
    };
    let second = of_second(&pool);
    assert!(before.is_subset(&pids(&pool)), "the first program has passed, the second has not");
    pool.exit(second, Exit::Code(1));
    pool.wait(MS);
    assert!(pool.reloads.iter().all(is_old) && pool.reloads.len() == 1, "{:?}", pool.reloads);
    assert_eq!(pids(&pool), before);
}

#[test]
fn a_drain_and_a_second_reload_during_the_trial_keep_the_old_workers() {
    let mut pool = pool(2, 0);
    let before = pids(&pool);
    reload(&mut pool, 1);
    reload(&mut pool, 2);
    assert!(before.is_subset(&pids(&pool)));
    let job = pool.submit("charge");
    let jobs = [job, pool.submit("charge"), pool.submit("charge")];
    pool.event(Event::Drain { limit: None });
    assert!(pool.reloads.iter().all(is_old) && pool.reloads.len() == 2, "{:?}", pool.reloads);
    assert!(before.is_subset(&pids(&pool)));
    jobs.into_iter().for_each(|job| pool.run(job));
    assert!(pool.is_over && jobs.iter().all(|job| pool.outcome(*job) == Some(Ok)));
}

/// A pool whose new version was taken back, and whose old workers have all ended since.
fn only_unproven(workers: usize) -> PoolUnderTest {
    let mut pool = pool(workers, 0);
    let old = pids(&pool);
    reload(&mut pool, 1);
    let tried = tried(&pool);
    pool.exit(tried, Exit::Code(7));
    for worker in old {
        pool.exit(worker, Exit::Signal(9));
    }
    pool
}

#[test]
fn a_version_that_was_taken_back_proves_itself_in_one_slot_before_the_others_are_filled() {
    let mut pool = only_unproven(3);
    pool.wait(Duration::from_secs(60));
    assert_eq!(pool.workers.len(), 1);
    let jobs: Vec<_> = (0..4).map(|_| pool.submit("charge")).collect();
    assert_eq!(pool.workers.values().map(|worker| worker.given.len()).sum::<usize>(), 1);
    pool.run(jobs[0]);
    assert_eq!(pool.workers.len(), 3, "it has done a job");
    jobs[1..].iter().for_each(|job| pool.run(*job));
}

#[test]
fn a_version_that_was_taken_back_and_ends_with_each_job_costs_few_jobs_and_does_not_go_unnoticed() {
    let mut pool = only_unproven(3);
    let mut lost = 0;
    let end = pool.now + Duration::from_secs(4);
    while pool.now < end {
        if pool.accepts("charge", |_| ()) {
            let busy = pool.workers.iter().find(|(_, worker)| !worker.given.is_empty());
            if let Some((&worker, fake)) = busy {
                let job = fake.given[0].0;
                pool.start(job);
                pool.exit(worker, Exit::Code(7));
                lost += 1;
                assert_eq!(pool.outcome(job), Some(WorkerCrashed));
            }
        }
        pool.wait(10 * MS);
    }
    assert!(lost <= 5, "{lost} jobs were lost");
    assert!(pool.core.refuses(0) && pool.core.failed_starts(0) == 5);
    assert!(
        pool.core.trouble(0).is_some_and(|why| why.contains("exit code 7")),
        "{:?}",
        pool.core.trouble(0)
    );
    assert_eq!(pool.refusal("charge").code, Unavailable);
    assert!(pool.notices.iter().any(|notice| matches!(notice, Notice::Degraded { .. })));
}

#[test]
fn a_version_that_was_taken_back_and_fails_all_its_jobs_is_a_failed_start_as_well() {
    let mut pool = only_unproven(1);
    for failures in 1..=2 {
        for _ in 0..3 {
            let job = pool.submit("sum");
            fail(&mut pool, job);
        }
        assert_eq!((pool.core.failed_starts(0), pool.workers.len()), (failures, 0));
        pool.wait(Duration::from_secs(1));
        assert!(pool.core.trouble(0).is_some(), "one that has not proved itself is no comfort");
    }
    let job = pool.submit("sum");
    pool.run(job);
    assert_eq!((pool.core.failed_starts(0), pool.core.trouble(0)), (0, None));
}

#[test]
fn an_unproven_worker_gets_no_job_that_an_old_one_could_begin() {
    let mut pool = pool(2, 0);
    let first = pool.core.slots()[0].worker().unwrap();
    reload(&mut pool, 1);
    let tried = tried(&pool);
    pool.exit(tried, Exit::Code(7));
    pool.exit(first, Exit::Signal(11));
    pool.wait(Duration::from_secs(1));
    let unproven = pool.core.slots()[0].worker().unwrap();
    let (one, two) = (pool.submit("charge"), pool.submit("charge"));
    assert_ne!(pool.worker_with(one), Some(unproven));
    assert_eq!(pool.worker_with(two), Some(unproven));
}

#[test]
fn a_job_whose_task_the_new_version_lacks_ends_as_unavailable() {
    let mut pool = pool(1, 0);
    let running = pool.submit("sum");
    pool.start(running);
    let waiting = pool.submit("charge");
    pool.workers_start_with(Start::Wait);
    reload(&mut pool, 1);
    let tried = tried(&pool);
    let sum: Vec<TaskOffer<'static>> = offers().into_iter().filter(|offer| offer.name == "sum").collect();
    pool.event(Event::Hello { worker: tried, tasks: sum, takes_files: true });
    pool.wait(Duration::from_secs(3));
    assert_eq!(pool.outcome(waiting), None, "an old worker still offers its task");
    pool.finish(running);
    if pool.outcome(waiting).is_none() {
        // The old worker goes when it has no job, and takes no more.
        pool.wait(MS);
    }
    assert_eq!(pool.outcome(waiting), Some(Unavailable));
    assert_eq!(pool.reloads, [ReloadEnd::Done]);
}
