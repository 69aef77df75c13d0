//! Which job is next, and which slots it may use.

use offload_core::Core;
use offload_core::WhyUnknown;
use offload_core::action::{Action, Actions};
use offload_core::config::CoreConfig;
use offload_core::event::{Event, JobRequest, Key};
use offload_core::ids::{JobId, Mono};
use offload_core::ledger::Holding;
use offload_protocol::nouns::OutcomeCode::*;
use offload_protocol::nouns::Usage;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tests::pool_under_test::{PoolUnderTest, Start};

const MS: Duration = Duration::from_millis(1);

fn slots(workers: usize, change: impl FnOnce(&mut CoreConfig)) -> PoolUnderTest {
    let mut config = CoreConfig { workers, spares: 0, max_jobs: 100_000, ..CoreConfig::default() };
    change(&mut config);
    PoolUnderTest::with(config, Start::Hello)
}

fn submit_as(pool: &mut PoolUnderTest, client: &str, task: &str) -> JobId {
    pool.submit_with(task, |request| request.client = client.into())
}

/// The jobs that workers have, oldest first.
fn given(pool: &PoolUnderTest) -> Vec<JobId> {
    let mut jobs: Vec<JobId> =
        pool.workers.values().flat_map(|worker| worker.given.iter().map(|(job, _)| *job)).collect();
    jobs.sort_unstable();
    jobs
}

/// Runs so many of the jobs that are there, one after another, each as long as `run` says of its client. Returns how
/// much worker time each client had.
fn serve(
    pool: &mut PoolUnderTest,
    owners: &BTreeMap<JobId, String>,
    jobs: usize,
    run: impl Fn(&str) -> Duration,
) -> BTreeMap<String, Duration> {
    let mut used: BTreeMap<String, Duration> = BTreeMap::new();
    for _ in 0..jobs {
        let Some(&job) = given(pool).first() else { break };
        let owner = &owners[&job];
        pool.start(job);
        pool.finish_after(job, run(owner));
        *used.entry(owner.clone()).or_default() += run(owner);
    }
    used
}

/// R. Jain's index: 1 if all have the same, 1/n if one has it all.
fn jain(used: &BTreeMap<String, Duration>) -> f64 {
    let shares: Vec<f64> = used.values().map(Duration::as_secs_f64).collect();
    let sum: f64 = shares.iter().sum();
    sum * sum / (shares.len() as f64 * shares.iter().map(|share| share * share).sum::<f64>())
}

/// One client with two thousand jobs, then nine with a hundred each. All of them wait for as long as is looked.
fn one_greedy_and_nine_polite(pool: &mut PoolUnderTest) -> BTreeMap<JobId, String> {
    let mut owners = BTreeMap::new();
    for _ in 0..2000 {
        owners.insert(submit_as(pool, "greedy", "sum"), "greedy".to_owned());
    }
    for _ in 0..100 {
        for polite in 1..=9 {
            let name = format!("polite {polite}");
            owners.insert(submit_as(pool, &name, "sum"), name);
        }
    }
    owners
}

#[test]
fn one_greedy_client_does_not_starve_nine_polite_ones() {
    let mut pool = slots(2, |config| config.max_jobs_per_client = Some(10_000));
    let owners = one_greedy_and_nine_polite(&mut pool);
    let used = serve(&mut pool, &owners, 900, |_| MS);
    assert_eq!(used.len(), 10);
    let index = jain(&used);
    println!("Jain's index of equal jobs: {index:.4}");
    assert!(index >= 0.95, "{index}: {used:?}");
}

#[test]
fn clients_share_worker_time_and_not_numbers_of_jobs() {
    let mut pool = slots(2, |config| config.max_jobs_per_client = Some(10_000));
    let owners = one_greedy_and_nine_polite(&mut pool);
    let run = |client: &str| if client == "greedy" { 20 * MS } else { 2 * MS };
    let used = serve(&mut pool, &owners, 800, run);
    assert_eq!(used.len(), 10);
    let index = jain(&used);
    println!("Jain's index where the greedy one's jobs are ten times as long: {index:.4}");
    assert!(index >= 0.95, "{index}: {used:?}");
}

#[test]
fn a_client_with_twice_the_weight_has_twice_the_time() {
    let mut pool = slots(1, |config| config.weights = [("heavy".to_owned(), 2)].into());
    let mut owners = BTreeMap::new();
    for _ in 0..300 {
        for client in ["heavy", "light"] {
            owners.insert(submit_as(&mut pool, client, "sum"), client.to_owned());
        }
    }
    let used = serve(&mut pool, &owners, 300, |_| MS);
    let ratio = used["heavy"].as_secs_f64() / used["light"].as_secs_f64();
    assert!((1.9..2.1).contains(&ratio), "{ratio}");
}

#[test]
fn a_client_that_comes_later_does_not_get_all_that_it_missed() {
    let mut pool = slots(1, |_| ());
    let mut owners = BTreeMap::new();
    for _ in 0..300 {
        owners.insert(submit_as(&mut pool, "early", "sum"), "early".to_owned());
    }
    serve(&mut pool, &owners, 100, |_| MS);
    for _ in 0..300 {
        owners.insert(submit_as(&mut pool, "late", "sum"), "late".to_owned());
    }
    let used = serve(&mut pool, &owners, 100, |_| MS);
    assert!(used["early"] >= 45 * MS && used["late"] >= 45 * MS, "{used:?}");
}

#[test]
fn one_client_may_not_fill_the_queue_so_that_there_is_room_for_others() {
    let mut pool = slots(1, |config| config.max_jobs = 10);
    for _ in 0..10 {
        submit_as(&mut pool, "greedy", "sum");
    }
    let refused = pool.refusal_with("sum", |request| request.client = "greedy".into());
    assert_eq!(refused.code, Quota);
    assert!(
        refused.message.contains("9 jobs of this client wait, the limit for one client is 9"),
        "{refused:?}"
    );
    assert!(refused.retry_after_ms.is_some());
    submit_as(&mut pool, "polite", "sum");
}

#[test]
fn a_higher_priority_is_served_first_but_not_before_one_that_has_waited_much_longer() {
    let mut pool = slots(1, |_| ());
    let running = pool.submit("sum");
    let old = pool.submit("sum");
    pool.wait(Duration::from_secs(3));
    let young = pool.submit("sum");
    let urgent = pool.submit_with("sum", |request| request.priority = 2);
    let order: Vec<JobId> = [running, old, urgent, young]
        .into_iter()
        .map(|_| {
            let next = given(&pool)[0];
            pool.run(next);
            next
        })
        .collect();
    assert_eq!(order, [running, old, urgent, young]);
}

#[test]
fn a_priority_out_of_bounds_is_refused() {
    let mut pool = slots(1, |_| ());
    assert_eq!(pool.refusal_with("sum", |request| request.priority = 11).code, BadRequest);
}

fn key(digest: u128) -> Option<Key> {
    Some(Key { name: "mine".to_owned(), digest })
}

#[test]
fn the_same_key_and_input_is_the_same_job_and_another_input_is_a_conflict() {
    let mut pool = slots(1, |_| ());
    let job = pool.submit_with("sum", |request| request.key = key(1));
    let again = pool.submit_with("sum", |request| request.key = key(1));
    assert_eq!(again, job);
    assert_eq!(pool.refusal_with("sum", |request| request.key = key(2)).code, Conflict);
    assert_eq!(pool.refusal_with("charge", |request| request.key = key(1)).code, Conflict);
    pool.run(job);
    assert_eq!(pool.submit_with("sum", |request| request.key = key(1)), job, "it has ended, and is the same");
    assert_eq!(pool.core.tally().accepted(), 1);
}

/// Lets the pool learn how long `sum` and `charge` take.
fn teach(pool: &mut PoolUnderTest, sum: Duration, charge: Duration) {
    for (task, run) in [("sum", sum), ("charge", charge)] {
        for _ in 0..5 {
            let job = pool.submit(task);
            pool.start(job);
            pool.finish_after(job, run);
        }
    }
}

#[test]
fn short_work_finds_a_slot_while_long_work_waits() {
    let mut pool = slots(2, |_| ());
    teach(&mut pool, MS, Duration::from_secs(1));
    pool.submit("sum");
    let long: Vec<JobId> = (0..4).map(|_| pool.submit("charge")).collect();
    let first = given(&pool)[0];
    pool.run(first);
    assert_eq!(given(&pool), long[..1], "the other slot is kept for short jobs");
    let short = pool.submit("sum");
    assert!(given(&pool).contains(&short));
}

#[test]
fn a_slot_that_is_kept_for_short_work_is_lent_when_none_comes() {
    let mut pool = slots(2, |_| ());
    teach(&mut pool, MS, Duration::from_secs(1));
    let short = pool.submit("sum");
    pool.run(short);
    let long: Vec<JobId> = (0..4).map(|_| pool.submit("charge")).collect();
    assert_eq!(given(&pool).len(), 1);
    pool.wait(Duration::from_millis(200));
    assert_eq!(given(&pool), long[..2]);
}

/// A job that has run for so long by now is done.
fn end(pool: &mut PoolUnderTest, job: JobId, run: Duration) {
    let worker = pool.worker_with(job).expect("it has a worker");
    pool.workers.get_mut(&worker).expect("it lives").given.retain(|(given, _)| *given != job);
    let usage = Usage::default();
    pool.event(Event::Finished { worker, job, attempt: 1, run, usage, output_bytes: 1 });
}

/// Long work was there first, and has all slots; then short work comes, each time so long after the last was done.
fn waits_of_short_work_behind_long(pause: Duration) -> Vec<Duration> {
    let mut pool = slots(2, |_| ());
    let long_run = Duration::from_secs(6);
    teach(&mut pool, MS, long_run);
    pool.wait(Duration::from_secs(1));
    let long: Vec<JobId> = (0..20).map(|_| submit_as(&mut pool, "hog", "charge")).collect();
    let mut ends: BTreeMap<JobId, Duration> = BTreeMap::new();
    let mut clock = Duration::ZERO;
    let mut waits = Vec::new();
    for _ in 0..6 {
        let short = submit_as(&mut pool, "polite", "sum");
        let mut waited = Duration::ZERO;
        loop {
            for job in given(&pool).into_iter().filter(|job| long.contains(job)) {
                ends.entry(job).or_insert_with(|| {
                    pool.start(job);
                    clock + long_run
                });
            }
            if given(&pool).contains(&short) {
                break;
            }
            pool.wait(MS * 10);
            (clock, waited) = (clock + MS * 10, waited + MS * 10);
            for job in given(&pool).into_iter().filter(|job| ends.get(job).is_some_and(|end| *end <= clock)) {
                end(&mut pool, job, long_run);
            }
        }
        pool.start(short);
        pool.finish_after(short, Duration::from_micros(100));
        waits.push(waited);
        pool.wait(pause);
        clock += pause;
    }
    waits
}

#[test]
fn short_work_that_comes_after_long_work_waits_once_and_then_finds_a_slot() {
    for pause in [50 * MS, 150 * MS, Duration::from_secs(1), Duration::from_secs(4)] {
        let waits = waits_of_short_work_behind_long(pause);
        let waited = waits.iter().filter(|wait| **wait > MS * 20).count();
        assert!(waited <= 2, "every {pause:?}: {waits:?}");
        assert!(waits[2..].iter().all(Duration::is_zero), "every {pause:?}: {waits:?}");
    }
}

#[test]
fn a_slot_is_kept_no_longer_than_short_work_had_to_wait() {
    let mut pool = slots(2, |_| ());
    teach(&mut pool, MS, Duration::from_secs(6));
    pool.wait(Duration::from_secs(1));
    let long: Vec<JobId> = (0..8).map(|_| submit_as(&mut pool, "hog", "charge")).collect();
    for job in &long[..2] {
        pool.start(*job);
    }
    let short = pool.submit_with("sum", |request| request.client = "polite".into());
    pool.wait(Duration::from_secs(6));
    for job in &long[..2] {
        end(&mut pool, *job, Duration::from_secs(6));
    }
    pool.run(short);
    assert_eq!(given(&pool).len(), 1, "one is kept");
    pool.wait(Duration::from_millis(5900));
    assert_eq!(given(&pool).len(), 1, "one is kept for as long as short work waited");
    pool.wait(Duration::from_millis(200));
    assert_eq!(given(&pool).len(), 2);
}

#[test]
fn with_one_slot_nothing_is_kept_for_anybody() {
    let mut pool = slots(1, |_| ());
    teach(&mut pool, MS, Duration::from_secs(1));
    let short = pool.submit("sum");
    pool.run(short);
    let long = pool.submit("charge");
    assert_eq!(given(&pool), [long]);
}

#[test]
fn a_refusal_says_when_to_come_again_and_that_grows_with_what_waits() {
    let retry_after = |waiting: usize| {
        let mut pool = slots(1, |config| config.max_jobs = waiting);
        teach(&mut pool, Duration::from_secs(1), Duration::from_secs(1));
        for number in 0..=waiting {
            submit_as(&mut pool, &format!("client {number}"), "sum");
        }
        pool.refusal_with("sum", |request| request.client = "another".into()).retry_after_ms.unwrap()
    };
    let (few, many) = (retry_after(10), retry_after(100));
    assert!((900..2000).contains(&few) && (9_000..20_000).contains(&many), "{few} {many}");
    // A place of a short queue is free when one job has ended, and not sooner.
    let (one, two) = (retry_after(1), retry_after(2));
    assert!((1000..2000).contains(&one) && (1000..2000).contains(&two), "{one} {two}");
}

#[test]
fn how_wrong_the_foretold_waits_were_is_known() {
    let mut pool = slots(1, |_| ());
    teach(&mut pool, Duration::from_secs(1), Duration::from_secs(1));
    let jobs: Vec<JobId> = (0..8).map(|_| pool.submit("sum")).collect();
    for job in jobs {
        pool.start(job);
        pool.finish_after(job, Duration::from_secs(1));
    }
    let estimates = pool.core.wait_estimates();
    assert!(estimates.checked >= 8);
    // Waits of up to seven seconds were foretold to within one.
    assert!(estimates.error.quantile(90) <= Some(Duration::from_micros(1 << 20)), "{estimates:?}");
}

#[test]
fn why_a_job_waits_can_be_told() {
    let mut pool = slots(1, |_| ());
    let running = pool.submit("sum");
    pool.start(running);
    submit_as(&mut pool, "me", "sum");
    let mine = submit_as(&mut pool, "me", "sum");
    let waiting = pool.core.explain(pool.now, mine).unwrap().waiting.unwrap();
    assert_eq!((waiting.ahead_of_its_own, waiting.all, waiting.slots), (1, 2, (1, 1, 1)));
    assert!(pool.core.explain(pool.now, running).unwrap().running.is_some());
    pool.event(Event::Cancel { job: mine });
    assert!(pool.core.explain(pool.now, mine).is_none());
}

/// How long the job is said to wait.
fn foretold(pool: &PoolUnderTest, job: JobId) -> Option<Duration> {
    pool.core.explain(pool.now, job).unwrap().waiting.unwrap().expected.ok()
}

#[test]
fn nobody_is_told_when_a_job_starts_while_nothing_is_known_of_what_runs() {
    let mut pool = slots(2, |config| config.spares = 0);
    let running: Vec<_> = (0..2).map(|_| pool.submit("sum")).collect();
    for job in running {
        pool.start(job);
    }
    let (waits, other) = (pool.submit("sum"), pool.submit("charge"));
    let why = |job| pool.core.explain(pool.now, job).unwrap().waiting.unwrap().expected;
    assert_eq!(why(waits), Err(WhyUnknown::Workers), "it is the first of those that wait");
    assert_eq!(why(other), Err(WhyUnknown::JobsBefore));
}

/// Nobody knows when it goes on.
#[test]
fn no_start_is_foreseen_from_a_worker_that_is_stopped() {
    let mut pool = slots(1, |config| config.spares = 0);
    let known = pool.submit("sum");
    pool.start(known);
    pool.finish_after(known, 100 * MS);
    let runs = pool.submit("sum");
    let worker = pool.start(runs);
    let waits = pool.submit("sum");
    assert!(foretold(&pool, waits).is_some());
    pool.event(Event::Stopped { worker });
    let waiting = pool.core.explain(pool.now, waits).unwrap().waiting.unwrap();
    assert_eq!((waiting.slots, waiting.expected), ((1, 0, 1), Err(WhyUnknown::Workers)));
    pool.event(Event::Continued { worker });
    assert!(foretold(&pool, waits).is_some());
}

#[test]
fn an_expected_wait_includes_what_is_left_of_the_running_jobs() {
    let mut pool = slots(1, |config| config.spares = 0);
    for _ in 0..8 {
        let job = pool.submit("sum");
        pool.start(job);
        pool.wait(1000 * MS);
        pool.finish_after(job, 1000 * MS);
    }
    let running = pool.submit("sum");
    pool.start(running);
    let (first, second) = (pool.submit("sum"), pool.submit("sum"));
    let near = |foretold: Option<Duration>, millis: u32| {
        let (least, most) = ((millis - 50) * MS, (millis + 50) * MS);
        foretold.is_some_and(|foretold| (least..=most).contains(&foretold))
    };
    assert!(near(foretold(&pool, first), 1000), "{:?}", foretold(&pool, first));
    pool.wait(600 * MS);
    assert!(near(foretold(&pool, first), 400), "{:?}", foretold(&pool, first));
    assert!(near(foretold(&pool, second), 1400), "{:?}", foretold(&pool, second));
    // It takes longer than any before it: nobody can say that it will be over at once.
    pool.wait(2400 * MS);
    assert!(near(foretold(&pool, first), 3000), "{:?}", foretold(&pool, first));
    let other = pool.submit("charge");
    assert!(foretold(&pool, other).is_some(), "what comes before it is known");
}

/// Thousands of clients may not start their jobs, because another one does not read its outputs. That costs them time, and
/// the supervisor nothing: how often it looks whether one may start does not grow with their number.
#[test]
fn clients_that_may_not_start_their_jobs_are_not_looked_at_one_by_one() {
    const CLIENTS: u64 = 10_000;
    let mut pool = slots(2, |config| (config.max_bytes, config.max_payload) = (8 << 20, 8 << 20));
    let first = pool.submit("sum");
    pool.start(first);
    pool.finish_with(first, MS, 1 << 20);
    let outgoing = |client: &str, bytes| (Arc::from(client), Holding::Outgoing, bytes);
    let (client, what, bytes) = outgoing("hog", 6 << 20);
    pool.event(Event::Held { client, what, bytes });
    let mut actions = Actions::new();
    let mut looks = |pool: &mut PoolUnderTest, tell: &dyn Fn(&mut Core, Mono, &mut Actions)| {
        let before = pool.core.looks();
        tell(&mut pool.core, pool.now, &mut actions);
        let runs = |action: &Action| matches!(action, Action::Run { .. });
        (pool.core.looks() - before, actions.drain(..).filter(runs).count())
    };
    for number in 0..CLIENTS {
        let (client, task) = (format!("client {number}"), "sum".to_owned());
        let request = JobRequest { client: client.into(), task, input_bytes: 10, ..JobRequest::default() };
        let (looks, runs) = looks(&mut pool, &|core, now, actions| {
            core.submit(now, &request, actions).expect("there is room");
        });
        assert!(looks < 10 && runs == 0, "{looks} looks for one more of {number}, {runs} runs");
    }
    assert_eq!(pool.core.waiting_and_running(), (CLIENTS as usize, 0));
    let refused = || Event::Refused { code: TooLarge };
    assert!(looks(&mut pool, &|core, now, actions| core.handle(now, refused(), actions)).0 < 10);
    let (client, what, bytes) = outgoing("hog", 6 << 20);
    let (looks, runs) = looks(&mut pool, &|core, now, actions| {
        core.handle(now, Event::Released { client: client.clone(), what, bytes }, actions);
    });
    assert!(looks < 20 && runs > 0, "{looks} looks when there is room again, {runs} runs");
    assert_eq!(pool.core.check(), Result::Ok(()));
}

/// Its output may be long, and then those behind it would wait for as long as nobody reads it.
#[test]
fn no_job_is_dispatched_behind_the_first_job_of_a_client() {
    let mut pool = PoolUnderTest::slots(1);
    let known = pool.submit("charge");
    pool.start(known);
    pool.finish_after(known, Duration::from_micros(3));
    let new = pool.submit_with("charge", |request| request.client = "new".into());
    let others = [0; 2].map(|_| pool.submit("charge"));
    assert!(pool.worker_with(new).is_some() && pool.worker_with(others[0]).is_none());
    pool.start(new);
    pool.finish_after(new, Duration::from_micros(3));
    let again = pool.submit_with("charge", |request| request.client = "new".into());
    assert!(pool.worker_with(others[1]).is_some() && pool.worker_with(again).is_some(), "now it is known");
}
