//! Jobs that run together: who goes with whom, who waits for how long, and that only the guilty one is blamed.

use offload_core::action::{Kill, Notice};
use offload_core::batches::BatchLimits;
use offload_core::config::CoreConfig;
use offload_core::event::{Event, JobRequest};
use offload_core::exit::Exit;
use offload_core::ids::{JobId, WorkerId};
use offload_protocol::nouns::{OutcomeCode::*, Usage};
use std::time::Duration;
use tests::pool_under_test::{PoolUnderTest, Start};

pub(super) const MS: Duration = Duration::from_millis(1);

/// So many workers, and a core that knows that outputs of `tile` are small, also those of the clients `a` and `b`.
pub(super) fn pool(workers: usize) -> PoolUnderTest {
    with(CoreConfig { workers, spares: 0, short_slots: Some(0), ..CoreConfig::default() })
}

pub(super) fn with(config: CoreConfig) -> PoolUnderTest {
    let mut pool = PoolUnderTest::with(config, Start::Hello);
    for client in ["", "a", "b"] {
        let job = of_client(&mut pool, client);
        pool.wait(2 * MS);
        pool.run(job);
    }
    pool
}

pub(super) fn of_client(pool: &mut PoolUnderTest, client: &str) -> JobId {
    pool.submit_with("tile", |request| request.client = client.into())
}

pub(super) fn tiles(pool: &mut PoolUnderTest, count: usize) -> Vec<JobId> {
    (0..count).map(|_| pool.submit("tile")).collect()
}

/// The jobs that a worker has, in the order in which it was given them.
pub(super) fn given(pool: &PoolUnderTest, worker: WorkerId) -> Vec<JobId> {
    pool.workers[&worker].given.iter().map(|(job, _)| *job).collect()
}

/// The only worker, which has these jobs.
pub(super) fn the_worker(pool: &PoolUnderTest) -> WorkerId {
    *pool.workers.keys().next_back().expect("there is one")
}

/// Workers do what they are given, and die of the guilty jobs. Returns how many died.
pub(super) fn work_off(pool: &mut PoolUnderTest, guilty: &[JobId]) -> usize {
    let mut deaths = 0;
    loop {
        let busy = pool.workers.iter().find(|(_, worker)| !worker.given.is_empty());
        let Some((&worker, _)) = busy else { return deaths };
        let jobs = given(pool, worker);
        pool.start(jobs[0]);
        if jobs.iter().any(|job| guilty.contains(job)) {
            deaths += 1;
            pool.exit(worker, Exit::Signal(11));
        } else {
            jobs.into_iter().for_each(|job| pool.finish(job));
        }
        pool.wait(10 * MS);
    }
}

#[test]
fn the_first_job_waits_for_others_no_longer_than_it_must() {
    let mut pool = pool(1);
    let first = pool.submit("tile");
    pool.wait(MS);
    let second = pool.submit("tile");
    assert_eq!(pool.worker_with(first), None);
    pool.wait(MS);
    assert_eq!(given(&pool, the_worker(&pool)), [first, second]);
    assert_eq!(pool.batches.last().map(|(_, jobs)| *jobs), Some(2));
    pool.start(first);
    pool.finish(first);
    pool.finish(second);
    assert_eq!([first, second].map(|job| pool.ended[&job].together), [2, 2]);
}

#[test]
fn as_many_as_go_together_go_at_once_and_the_rest_waits_anew_for_company() {
    let mut pool = pool(2);
    let jobs = tiles(&mut pool, 10);
    let worker = pool.worker_with(jobs[0]).expect("eight are enough");
    assert_eq!(given(&pool, worker), jobs[..8]);
    assert_eq!(pool.worker_with(jobs[8]), None);
    pool.wait(2 * MS);
    let other = pool.worker_with(jobs[8]).expect("they have waited");
    assert_eq!(given(&pool, other), jobs[8..]);
}

#[test]
fn while_all_workers_are_busy_jobs_gather_and_go_as_soon_as_one_is_free() {
    let mut pool = pool(1);
    let busy = pool.submit("charge");
    pool.start(busy);
    let jobs = tiles(&mut pool, 3);
    pool.wait(50 * MS);
    pool.finish(busy);
    assert_eq!(given(&pool, the_worker(&pool)), jobs);
}

#[test]
fn jobs_of_other_tasks_do_not_wait_behind_those_that_gather() {
    let mut pool = pool(1);
    let gathering = pool.submit("tile");
    let other = pool.submit("charge");
    assert!(pool.worker_with(other).is_some() && pool.worker_with(gathering).is_none());
}

#[test]
fn clients_take_turns_within_a_batch_and_priorities_count() {
    let mut pool = pool(1);
    let busy = pool.submit("charge");
    pool.start(busy);
    let of_a: Vec<JobId> = (0..6).map(|_| of_client(&mut pool, "a")).collect();
    let of_b: Vec<JobId> = (0..3).map(|_| of_client(&mut pool, "b")).collect();
    let urgent = pool.submit_with("tile", |request| {
        (request.client, request.priority) = ("a".into(), 5);
    });
    pool.finish(busy);
    let batch = given(&pool, the_worker(&pool));
    assert_eq!((batch.len(), batch[0]), (8, urgent));
    assert_eq!(of_b.iter().filter(|job| batch.contains(job)).count(), 3, "{batch:?} of {of_a:?}");
    assert!(batch.iter().position(|job| *job == of_b[2]) < Some(7), "they took turns: {batch:?}");
}

#[test]
fn jobs_with_different_time_limits_or_of_clients_that_are_not_known_do_not_go_together() {
    let mut pool = pool(1);
    let busy = pool.submit("charge");
    pool.start(busy);
    let first = tiles(&mut pool, 2);
    let tight = pool.submit_with("tile", |request| request.timeout = Some(10 * MS));
    pool.wait(2 * MS);
    pool.finish(busy);
    assert_eq!(given(&pool, the_worker(&pool)), first);
    pool.start(first[0]);
    first.iter().for_each(|job| pool.finish(*job));
    assert_eq!(given(&pool, the_worker(&pool)), [tight]);
    let stranger = of_client(&mut pool, "nobody knows");
    let known = of_client(&mut pool, "a");
    pool.wait(2 * MS);
    pool.run(tight);
    assert_eq!(given(&pool, the_worker(&pool)).len(), 1, "{stranger} and {known}");
}

#[test]
fn what_has_a_file_is_read_in_parts_or_is_large_runs_alone() {
    let mut pool = pool(1);
    let before = pool.batches.len();
    let changes: [fn(&mut JobRequest); 3] = [
        |request| request.has_file = true,
        |request| request.stream = true,
        |request| request.input_bytes = 1 << 20,
    ];
    for change in changes {
        let jobs: Vec<JobId> = (0..2).map(|_| pool.submit_with("tile", change)).collect();
        jobs.into_iter().for_each(|job| pool.run(job));
    }
    assert_eq!(pool.batches.len(), before);
}

#[test]
fn after_a_crash_halves_are_tried_until_the_guilty_job_is_alone_and_only_it_is_blamed() {
    let mut pool = pool(2);
    let one_attempt = |pool: &mut PoolUnderTest| pool.submit_with("tile", |job| job.attempts = Some(1));
    let jobs: Vec<JobId> = (0..8).map(|_| one_attempt(&mut pool)).collect();
    let deaths = work_off(&mut pool, &[jobs[5]]);
    assert_eq!(deaths, 4, "log2(8) halvings, and one alone");
    for job in &jobs {
        let is_guilty = *job == jobs[5];
        assert_eq!(pool.outcome(*job), Some(if is_guilty { WorkerCrashed } else { Ok }), "{job}");
        let blamed = pool.ended[job].lost.iter().filter(|lost| lost.is_blamed).count();
        assert_eq!(blamed, usize::from(is_guilty), "{job}");
    }
    assert_eq!(pool.core.tally().halved(), 3);
    let is_pause = |notice: &Notice| matches!(notice, Notice::StartFailed { .. } | Notice::Degraded { .. });
    assert!(!pool.notices.iter().any(is_pause), "the program is not at fault: {:?}", pool.notices);
}

#[test]
fn a_job_that_may_be_tried_three_times_has_all_of_these_alone_and_the_innocent_lose_no_attempt() {
    let mut pool = pool(1);
    let jobs = tiles(&mut pool, 8);
    let guilty = [jobs[0], jobs[1], jobs[6]];
    let deaths = work_off(&mut pool, &guilty);
    assert!(deaths <= guilty.len() * (3 + 3), "{deaths}");
    for job in &jobs {
        let expected = if guilty.contains(job) { (Poison, 3) } else { (Ok, 1) };
        let ended = &pool.ended[job];
        assert_eq!((ended.outcome, ended.attempts), expected, "{job}");
        let told = ended.error.as_ref().map(|error| error.message.contains("in attempt 3 of 3"));
        assert!(told.is_none_or(|told| told), "{ended:?}");
    }
}

#[test]
fn the_end_of_a_worker_before_the_batch_began_blames_nobody_either() {
    let mut pool = pool(1);
    let jobs = tiles(&mut pool, 8);
    pool.exit(the_worker(&pool), Exit::Signal(11));
    pool.wait(200 * MS);
    assert_eq!(given(&pool, the_worker(&pool)), jobs[..4]);
    work_off(&mut pool, &[]);
    assert!(jobs.iter().all(|job| pool.outcome(*job) == Some(Ok) && pool.ended[job].attempts == 1));
}

#[test]
fn what_was_answered_before_the_crash_stays_answered() {
    let mut pool = pool(1);
    let jobs = tiles(&mut pool, 8);
    let worker = pool.start(jobs[0]);
    for job in [jobs[6], jobs[0], jobs[3]] {
        pool.finish(job);
    }
    pool.exit(worker, Exit::Signal(11));
    assert_eq!([6, 0, 3].map(|job| pool.outcome(jobs[job])), [Some(Ok); 3]);
    assert_eq!(
        given(&pool, the_worker(&pool)),
        [jobs[1], jobs[2], jobs[4]],
        "half of the five that are left"
    );
    work_off(&mut pool, &[]);
    assert!(jobs.iter().all(|job| pool.outcome(*job) == Some(Ok)));
}

#[test]
fn who_leaves_a_batch_hurts_nobody_wherever_it_is() {
    let mut pool = pool(1);
    let gathering = pool.submit("tile");
    pool.event(Event::Cancel { job: gathering });
    let jobs = tiles(&mut pool, 8);
    let worker = the_worker(&pool);
    pool.event(Event::Cancel { job: jobs[0] });
    assert_eq!(pool.cancelled, [(worker, jobs[0])]);
    pool.start(jobs[0]);
    pool.event(Event::Cancel { job: jobs[4] });
    pool.wait(99 * MS);
    [jobs[4], jobs[0]].into_iter().for_each(|job| pool.finish(job));
    pool.wait(Duration::from_secs(1));
    [1, 2, 3, 5, 6, 7].map(|job| jobs[job]).iter().for_each(|job| pool.finish(*job));
    let cancelled = jobs.iter().filter(|job| pool.outcome(**job) == Some(Cancelled)).count();
    let done = jobs.iter().filter(|job| pool.outcome(**job) == Some(Ok)).count();
    assert_eq!((cancelled, done, pool.outcome(gathering)), (2, 6, Some(Cancelled)));
    assert!(pool.workers[&worker].signals.is_empty());
}

#[test]
fn a_batch_that_nobody_wants_any_more_is_ended_like_any_other_job() {
    let mut pool = pool(1);
    let jobs = tiles(&mut pool, 3);
    pool.wait(2 * MS);
    let worker = pool.start(jobs[0]);
    pool.workers_ignore_term();
    jobs.iter().for_each(|job| pool.event(Event::Cancel { job: *job }));
    pool.wait(99 * MS);
    assert!(pool.workers[&worker].signals.is_empty(), "it was asked first");
    pool.wait(MS);
    assert_eq!(pool.workers[&worker].signals, [Kill::Term]);
}

#[test]
fn a_deadline_ends_one_job_of_a_batch_and_not_the_others() {
    let mut pool = pool(1);
    let hasty = pool.submit_with("tile", |request| request.deadline = Some(30 * MS));
    let other = pool.submit("tile");
    pool.wait(2 * MS);
    let worker = pool.start(hasty);
    pool.wait(30 * MS);
    assert_eq!((pool.outcome(hasty), pool.outcome(other)), (Some(Timeout), None));
    pool.finish(hasty);
    pool.finish(other);
    assert_eq!((pool.outcome(hasty), pool.outcome(other)), (Some(Timeout), Some(Ok)));
    assert!(pool.workers.contains_key(&worker), "it was not ended");
    assert_eq!(pool.ended[&hasty].lost.len(), 1, "it names its attempt");
}

#[test]
fn nobody_waits_for_company_beyond_half_of_what_its_deadline_leaves() {
    let limits = BatchLimits { max: None, wait: Some(Duration::from_secs(1)) };
    let batches = [("tile".to_owned(), limits)].into();
    let mut pool = with(CoreConfig { workers: 1, spares: 0, batches, ..CoreConfig::default() });
    let patient = pool.submit("tile");
    pool.wait(MS);
    assert_eq!(pool.worker_with(patient), None, "it can wait for long");
    let hasty = pool.submit_with("tile", |request| request.deadline = Some(MS));
    pool.wait(MS / 2);
    assert_eq!(given(&pool, the_worker(&pool)), [patient, hasty], "they go with who has to go");
    pool.start(patient);
    [patient, hasty].into_iter().for_each(|job| pool.finish(job));
    assert_eq!(pool.outcome(hasty), Some(Ok));
    let patient = pool.submit("tile");
    pool.wait(MS);
    assert_eq!(pool.worker_with(patient), None, "who has gone hurries nobody");
}

#[test]
fn a_batch_that_takes_too_long_runs_in_halves_and_only_a_job_that_is_too_slow_alone_times_out() {
    let mut pool = pool(1);
    let limited = |pool: &mut PoolUnderTest| pool.submit_with("tile", |job| job.timeout = Some(50 * MS));
    let jobs: Vec<JobId> = (0..4).map(|_| limited(&mut pool)).collect();
    pool.wait(2 * MS);
    let slow = jobs[2];
    while pool.outcome(slow).is_none() || pool.workers.values().any(|worker| !worker.given.is_empty()) {
        let worker = the_worker(&pool);
        let batch = given(&pool, worker);
        pool.start(batch[0]);
        match batch.contains(&slow) {
            true => pool.wait(60 * MS),
            false => batch.into_iter().for_each(|job| pool.finish(job)),
        }
    }
    let outcomes: Vec<_> = jobs.iter().map(|job| pool.outcome(*job).unwrap()).collect();
    assert_eq!(outcomes, [Ok, Ok, Timeout, Ok]);
    assert!(jobs.iter().all(|job| pool.ended[job].attempts == 1), "to run together costs no attempt");
}

#[test]
fn a_worker_that_lies_about_a_batch_is_killed_and_none_of_its_jobs_is_blamed() {
    type Lie = fn(&mut PoolUnderTest, WorkerId, &[JobId]);
    fn answer(pool: &mut PoolUnderTest, worker: WorkerId, job: JobId, attempt: u32) {
        let (run, usage, output_bytes) = (MS, Usage::default(), 1);
        pool.event(Event::Finished { worker, job, attempt, run, usage, output_bytes });
    }
    let lies: [Lie; 5] = [
        |pool, worker, _| answer(pool, worker, JobId(999), 1),
        |pool, worker, jobs| answer(pool, worker, jobs[1], 2),
        |pool, worker, jobs| {
            answer(pool, worker, jobs[1], 1);
            answer(pool, worker, jobs[1], 1);
        },
        |pool, worker, jobs| pool.event(Event::Started { worker, job: jobs[1], attempt: 1 }),
        |pool, worker, jobs| {
            pool.event(Event::Yielded { worker, job: jobs[1], attempt: 1, run: MS, bytes: 1 });
        },
    ];
    for lie in lies {
        let mut pool = pool(1);
        let jobs = tiles(&mut pool, 3);
        pool.wait(2 * MS);
        let worker = pool.start(jobs[0]);
        lie(&mut pool, worker, &jobs);
        assert!(!pool.workers.contains_key(&worker));
        work_off(&mut pool, &[]);
        assert!(jobs.iter().all(|job| pool.outcome(*job) == Some(Ok)));
    }
    let mut pool = pool(1);
    let jobs = tiles(&mut pool, 3);
    pool.wait(2 * MS);
    let worker = the_worker(&pool);
    pool.event(Event::Started { worker, job: jobs[1], attempt: 1 });
    assert!(!pool.workers.contains_key(&worker), "the first one stands for all");
    work_off(&mut pool, &[]);
    assert!(jobs.iter().all(|job| pool.outcome(*job) == Some(Ok)));
}

#[test]
fn a_batch_whose_worker_is_stopped_runs_elsewhere_in_halves() {
    let mut pool = pool(1);
    let jobs = tiles(&mut pool, 4);
    pool.wait(2 * MS);
    let worker = pool.start(jobs[0]);
    pool.event(Event::Stopped { worker });
    pool.wait(Duration::from_millis(1100));
    assert_eq!(given(&pool, the_worker(&pool)), jobs[..2]);
    work_off(&mut pool, &[]);
    assert!(jobs.iter().all(|job| pool.outcome(*job) == Some(Ok)));
}

#[test]
fn a_drain_does_not_wait_for_company() {
    let mut pool = pool(1);
    let jobs = tiles(&mut pool, 2);
    pool.event(Event::Drain { limit: None });
    assert_eq!(given(&pool, the_worker(&pool)), jobs);
}

#[test]
fn the_configuration_lowers_what_workers_offer_and_can_end_it() {
    let limits = |max, wait| CoreConfig {
        workers: 1,
        spares: 0,
        batches: [("tile".to_owned(), BatchLimits { max, wait })].into(),
        ..CoreConfig::default()
    };
    let mut pool = with(limits(Some(2), Some(Duration::from_secs(1))));
    let jobs = tiles(&mut pool, 3);
    assert_eq!(given(&pool, the_worker(&pool)), jobs[..2]);
    work_off(&mut pool, &[]);
    pool.event(Event::Configure(Box::new(limits(Some(1), None))));
    let before = pool.batches.len();
    let jobs = tiles(&mut pool, 2);
    assert!(pool.worker_with(jobs[0]).is_some());
    work_off(&mut pool, &[]);
    assert_eq!(pool.batches.len(), before);
    let mut pool = with(limits(None, Some(Duration::ZERO)));
    let job = pool.submit("tile");
    assert!(pool.worker_with(job).is_some(), "nobody waits");
}

#[test]
fn an_offer_that_could_not_be_kept_makes_no_batches() {
    let mut pool =
        PoolUnderTest::with(CoreConfig { workers: 1, spares: 0, ..CoreConfig::default() }, Start::Wait);
    let worker = the_worker(&pool);
    let mut tasks = tests::pool_under_test::offers();
    tasks.iter_mut().for_each(|task| task.idempotent = false);
    pool.event(Event::Hello { worker, tasks, takes_files: true });
    let jobs = tiles(&mut pool, 8);
    assert_eq!(given(&pool, worker), [jobs[0]]);
    assert!(pool.batches.is_empty());
}

#[test]
fn who_runs_together_pays_for_its_part_of_the_time_that_has_passed() {
    let mut pool = pool(1);
    let used = |pool: &PoolUnderTest| pool.core.clients().find("a").map(|account| account.used).unwrap();
    let before = used(&pool);
    let jobs: Vec<JobId> = (0..4).map(|_| of_client(&mut pool, "a")).collect();
    pool.wait(2 * MS);
    let worker = pool.start(jobs[0]);
    pool.now = pool.now + 8 * MS;
    for job in jobs {
        let (run, usage, output_bytes) = (3 * MS, Usage::default(), 1);
        pool.event(Event::Finished { worker, job, attempt: 1, run, usage, output_bytes });
    }
    assert_eq!(used(&pool) - before, 8_000_000, "it says twelve, and eight have passed");
}
