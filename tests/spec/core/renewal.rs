//! Replacement of healthy workers, reloads, a changed number of workers, and processes that do not end.

use offload_core::action::{Notice, ReloadEnd};
use offload_core::config::CoreConfig;
use offload_core::event::Event;
use offload_core::exit::Exit;
use offload_core::ids::WorkerId;
use offload_core::slots::Slot;
use offload_protocol::nouns::{FailureKind, OutcomeCode::*, Usage};
use std::collections::BTreeMap;
use std::time::Duration;
use tests::pool_under_test::{PoolUnderTest, Start, offers};

const MS: Duration = Duration::from_millis(1);

fn pool(workers: usize, spares: usize, change: impl FnOnce(&mut CoreConfig)) -> PoolUnderTest {
    let mut config = CoreConfig { workers, spares, ..CoreConfig::default() };
    change(&mut config);
    PoolUnderTest::with(config, Start::Hello)
}

fn ready(pool: &PoolUnderTest) -> usize {
    pool.core.slots().iter().filter(|slot| slot.is_ready()).count()
}

fn versions(pool: &PoolUnderTest) -> Vec<u64> {
    pool.workers.values().map(|worker| worker.version).collect()
}

fn taken_back(why: &str) -> [ReloadEnd; 1] {
    [ReloadEnd::TakenBack { program: 0, why: why.to_owned() }]
}

fn configure(pool: &mut PoolUnderTest, change: impl FnOnce(&mut CoreConfig)) {
    let mut config = pool.core.config().clone();
    change(&mut config);
    pool.event(Event::Configure(Box::new(config)));
}

#[test]
fn a_worker_that_has_done_its_jobs_is_replaced_by_the_spare_and_no_job_notices() {
    let mut pool = pool(1, 1, |config| config.max_jobs_per_worker = Some(10));
    let first = *pool.workers.keys().next().unwrap();
    for _ in 0..13 {
        let job = pool.submit("sum");
        pool.run(job);
        assert_eq!(pool.outcome(job), Some(Ok));
        assert_eq!(ready(&pool), 2, "a slot and the spare");
    }
    assert!(!pool.workers.contains_key(&first), "ten jobs and at most a quarter more");
    assert!(pool.notices.iter().any(|notice| matches!(notice, Notice::WorkerRetires { .. })));
}

/// Submits so many jobs, lets the workers do all of them, and returns the most that one worker did.
fn most_jobs_of_one(pool: &mut PoolUnderTest, task: &str, jobs: usize, run: Duration) -> usize {
    let jobs: Vec<_> = (0..jobs).map(|_| pool.submit(task)).collect();
    let mut done: BTreeMap<WorkerId, usize> = BTreeMap::new();
    loop {
        pool.end_turn();
        if let Some(job) = pool.workers.values().find_map(|fake| fake.tray.filter(|_| fake.given.is_empty()))
        {
            pool.take(job.0);
        }
        let busy = pool.workers.iter().find(|(_, fake)| !fake.given.is_empty());
        let Some((&worker, fake)) = busy else { break };
        let together: Vec<_> = fake.given.iter().map(|(job, _)| *job).collect();
        pool.start(together[0]);
        pool.finish_after(together[0], run);
        *done.entry(worker).or_default() += 1;
    }
    assert!(jobs.iter().all(|job| pool.outcome(*job) == Some(Ok)));
    done.into_values().max().unwrap_or(0)
}

#[test]
fn a_worker_is_given_no_more_jobs_than_it_may_do_however_short_they_are() {
    for (workers, spares, most) in [(2, 1, 1), (2, 1, 8), (1, 0, 8), (4, 1, 20)] {
        for (trays, run) in [(false, Duration::from_micros(1)), (false, 3 * MS), (true, 3 * MS)] {
            let mut pool = pool(workers, spares, |config| config.max_jobs_per_worker = Some(most));
            if trays {
                pool.workers_have_trays();
            }
            let did = most_jobs_of_one(&mut pool, "sum", 300, run);
            assert!(did as u64 <= most + most / 4, "{did} jobs of {most}; {run:?}");
        }
    }
}

#[test]
fn a_batch_is_no_larger_than_what_its_worker_may_still_do() {
    let mut pool = pool(1, 0, |config| config.max_jobs_per_worker = Some(3));
    (0..40).for_each(|_| {
        pool.submit("tile");
    });
    pool.wait(2 * MS);
    let sizes: Vec<u32> = pool.batches.iter().map(|(_, jobs)| *jobs).collect();
    assert_eq!(sizes, [3]);
}

#[test]
fn a_worker_that_has_done_its_jobs_gets_none_although_no_other_is_ready() {
    let mut pool = pool(1, 1, |config| config.max_jobs_per_worker = Some(1));
    pool.workers_start_with(Start::Wait);
    for _ in 0..2 {
        let job = pool.submit("sum");
        pool.run(job);
    }
    let job = pool.submit("sum");
    assert_eq!((pool.worker_with(job), ready(&pool)), (None, 0));
    let next = *pool.workers.keys().next().unwrap();
    pool.event(Event::Hello { worker: next, tasks: offers(), takes_files: true });
    assert_eq!(pool.worker_with(job), Some(next));
}

/// Otherwise a program that has disappeared from the disk would end the pool as soon as all workers have done their jobs.
#[test]
fn a_worker_that_has_done_its_jobs_goes_on_while_no_other_can_be_started() {
    let mut pool = pool(1, 1, |config| config.max_jobs_per_worker = Some(1));
    pool.workers_start_with(Start::Die);
    for _ in 0..5 {
        let job = pool.submit("sum");
        pool.run(job);
        assert_eq!(pool.outcome(job), Some(Ok));
    }
    pool.workers_start_with(Start::Hello);
    pool.wait(Duration::from_secs(30));
    let workers: Vec<WorkerId> = pool.workers.keys().copied().collect();
    let job = pool.submit("sum");
    pool.run(job);
    assert_ne!(pool.workers.keys().copied().collect::<Vec<_>>(), workers, "now there is one to replace it");
}

#[test]
fn a_worker_that_is_old_enough_is_replaced_when_it_is_idle() {
    let mut pool = pool(1, 1, |config| config.max_age = Some(Duration::from_secs(100)));
    let first = pool.core.slots()[0].worker().unwrap();
    let job = pool.submit_with("sum", |request| request.timeout = Some(Duration::from_secs(1000)));
    pool.start(job);
    pool.wait(Duration::from_secs(126));
    assert!(pool.workers.contains_key(&first), "it has a job");
    pool.finish(job);
    assert!(!pool.workers.contains_key(&first));
    assert_eq!(pool.outcome(job), Some(Ok));
}

#[test]
fn workers_that_started_together_are_not_replaced_together() {
    let mut pool = pool(8, 0, |config| config.max_age = Some(Duration::from_secs(100)));
    let born = pool.spawned_at.len();
    pool.wait(Duration::from_secs(130));
    let replaced: std::collections::BTreeSet<_> = pool.spawned_at[born..].iter().collect();
    assert!(replaced.len() >= 6, "{replaced:?}");
}

#[test]
fn without_a_spare_a_worn_worker_goes_when_it_is_idle() {
    let mut pool = pool(2, 0, |config| config.max_rss = Some(1000));
    let worker = pool.core.slots()[0].worker().unwrap();
    pool.event(Event::Measured { worker, resident_bytes: 1001 });
    assert!(!pool.workers.contains_key(&worker));
    assert_eq!(ready(&pool), 2);
}

#[test]
fn a_reload_replaces_every_worker_once_the_first_new_one_has_done_its_jobs() {
    let mut pool = pool(3, 1, |_| ());
    pool.event(Event::Reload { version: 1 });
    assert_eq!(versions(&pool).iter().filter(|version| **version == 1).count(), 1, "one is on trial");
    for _ in 0..6 {
        let jobs: Vec<_> = (0..3).map(|_| pool.submit("sum")).collect();
        jobs.into_iter().for_each(|job| pool.run(job));
    }
    pool.wait(MS);
    assert_eq!(versions(&pool), [1; 4]);
    assert_eq!(pool.reloads, [ReloadEnd::Done]);
    assert!(pool.ended.values().all(|ended| ended.outcome == Ok));
}

#[test]
fn a_new_version_that_gets_no_jobs_passes_by_living() {
    for spares in [0, 1] {
        let mut pool = pool(2, spares, |_| ());
        pool.event(Event::Reload { version: 1 });
        pool.wait(Duration::from_secs(1));
        assert!(pool.reloads.is_empty());
        pool.wait(Duration::from_secs(2));
        assert_eq!(versions(&pool), vec![1; 2 + spares]);
        assert_eq!(pool.reloads, [ReloadEnd::Done]);
    }
}

/// Runs jobs until one is on a worker of the new version, and returns that worker.
fn job_on_trial(pool: &mut PoolUnderTest) -> (WorkerId, offload_core::ids::JobId) {
    for _ in 0..20 {
        let job = pool.submit("sum");
        let worker = pool.start(job);
        if pool.workers[&worker].version == 1 {
            return (worker, job);
        }
    }
    panic!("no job on a new worker");
}

#[test]
fn a_new_version_whose_worker_ends_is_taken_back_with_the_reason() {
    let mut pool = pool(2, 1, |_| ());
    pool.event(Event::Reload { version: 1 });
    let (worker, job) = job_on_trial(&mut pool);
    pool.exit(worker, Exit::Signal(11));
    pool.wait(MS);
    assert!(versions(&pool).iter().all(|version| *version == 0), "{:?}", versions(&pool));
    pool.run(job);
    let why = "its worker ended with signal 11 (SIGSEGV) after 0 jobs, in a job of `sum` that another worker has done since";
    assert_eq!(pool.reloads, taken_back(why));
    assert_eq!(pool.outcome(job), Some(Ok));
}

#[test]
fn a_new_version_that_fails_all_of_its_first_jobs_is_taken_back() {
    let mut pool = pool(1, 1, |_| ());
    pool.event(Event::Reload { version: 1 });
    for _ in 0..3 {
        let (worker, job) = job_on_trial(&mut pool);
        let (run, usage, message) = (MS, Usage::default(), "no".to_owned());
        pool.workers.get_mut(&worker).unwrap().given.clear();
        let kind = FailureKind::AppError;
        pool.event(Event::Failed { worker, job, attempt: 1, run, kind, message, usage });
    }
    pool.wait(Duration::from_secs(1));
    assert_eq!(pool.reloads, taken_back("its first 3 jobs all failed"));
    assert!(versions(&pool).iter().all(|version| *version == 0));
}

#[test]
fn a_new_version_that_does_not_start_is_taken_back_and_counts_as_no_failure() {
    let mut pool = pool(2, 1, |_| ());
    pool.workers_start_with(Start::Die);
    pool.event(Event::Reload { version: 1 });
    assert_eq!(pool.reloads.len(), 1);
    pool.workers_start_with(Start::Hello);
    pool.wait(Duration::from_secs(10));
    assert_eq!(versions(&pool), [0; 3]);
    assert!(!pool.core.refuses(0));
}

#[test]
fn a_reload_tries_the_new_version_even_if_the_old_one_cannot_be_started() {
    let config = CoreConfig { workers: 1, spares: 0, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Wait);
    let old = *pool.workers.keys().next().unwrap();
    pool.workers_start_with(Start::Hello);
    pool.event(Event::Reload { version: 1 });
    pool.exit(old, Exit::Code(64));
    pool.wait(Duration::from_secs(10));
    assert_eq!(versions(&pool), [1]);
    assert_eq!(pool.reloads, [ReloadEnd::Done]);
}

#[test]
fn an_older_version_is_not_loaded() {
    let mut pool = pool(1, 0, |_| ());
    pool.event(Event::Reload { version: 0 });
    assert_eq!(
        pool.reloads,
        [ReloadEnd::OldStay("there is a newer version, or the supervisor is ending".to_owned())]
    );
}

#[test]
fn more_workers_are_started_and_fewer_never_cost_a_job() {
    let mut pool = pool(2, 1, |_| ());
    configure(&mut pool, |config| config.workers = 4);
    assert_eq!(ready(&pool), 5);
    let busy = pool.submit("charge");
    let worker = pool.start(busy);
    configure(&mut pool, |config| config.workers = 1);
    pool.wait(MS);
    assert!(pool.workers.contains_key(&worker), "it is busy");
    pool.finish(busy);
    assert_eq!(pool.outcome(busy), Some(Ok));
    assert_eq!(ready(&pool), 2);
    assert_eq!(pool.core.slots().iter().filter(|slot| Slot::is_there(slot)).count(), 2);
}

#[test]
fn all_busy_workers_that_are_too_many_finish_first() {
    let mut pool = pool(3, 0, |_| ());
    let jobs: Vec<_> = (0..3).map(|_| pool.submit("charge")).collect();
    for job in &jobs {
        pool.start(*job);
    }
    configure(&mut pool, |config| config.workers = 1);
    pool.wait(Duration::from_secs(5));
    assert_eq!(pool.workers.len(), 3);
    jobs.iter().for_each(|job| pool.finish(*job));
    assert_eq!(pool.workers.len(), 1);
    assert!(jobs.iter().all(|job| pool.outcome(*job) == Some(Ok)));
}

#[test]
fn a_stopped_worker_gets_no_jobs_and_is_killed_after_a_second_unless_it_goes_on() {
    let mut pool = pool(1, 0, |_| ());
    let worker = pool.core.slots()[0].worker().unwrap();
    pool.event(Event::Stopped { worker });
    let job = pool.submit("sum");
    assert_eq!(pool.worker_with(job), None);
    pool.wait(999 * MS);
    pool.event(Event::Continued { worker });
    assert_eq!(pool.worker_with(job), Some(worker));
    pool.start(job);
    pool.event(Event::Stopped { worker });
    pool.wait(1000 * MS);
    assert!(!pool.workers.contains_key(&worker));
    pool.run(job);
    assert_eq!(pool.outcome(job), Some(Ok));
    assert_eq!(pool.ended[&job].lost[0].what, "was stopped for 1 s and was ended");
}

#[test]
fn a_process_that_survives_sigkill_loses_its_place_and_only_two_may() {
    let mut pool = pool(4, 0, |_| ());
    pool.workers_survive_sigkill();
    let jobs: Vec<_> =
        (0..4).map(|_| pool.submit_with("sum", |request| request.timeout = Some(MS))).collect();
    for job in &jobs {
        pool.start(*job);
    }
    pool.workers_ignore_term();
    pool.wait(2 * MS);
    assert!(jobs.iter().all(|job| pool.outcome(*job) == Some(Timeout)));
    pool.wait(Duration::from_secs(3));
    assert_eq!(ready(&pool), 2, "two places are filled again, the others wait for their dead");
    assert_eq!(pool.core.process_count(), 6);
    let hanging: Vec<WorkerId> = pool.workers.keys().copied().take(4).collect();
    hanging.into_iter().for_each(|worker| pool.exit(worker, Exit::Signal(9)));
    pool.wait(MS);
    assert_eq!((ready(&pool), pool.core.process_count()), (4, 4));
}

#[test]
fn a_closing_place_that_is_not_needed_any_more_does_not_hold_the_others_up() {
    let mut pool = pool(2, 0, |config| config.max_rss = Some(1000));
    let jobs = [pool.submit("sum"), pool.submit("sum")];
    let workers = jobs.map(|job| pool.start(job));
    pool.event(Event::Measured { worker: workers[1], resident_bytes: 1001 });
    assert!(pool.core.slots().iter().any(|slot| slot.tenure.is_closing()));
    configure(&mut pool, |config| config.workers = 1);
    assert!(!pool.core.slots().iter().any(|slot| slot.tenure.is_closing()), "nothing follows it");
    jobs.into_iter().for_each(|job| pool.finish(job));
    pool.event(Event::Reload { version: 1 });
    pool.wait(Duration::from_secs(5));
    assert_eq!(versions(&pool), [1]);
}
