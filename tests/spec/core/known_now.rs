//! Whether jobs are short, and how long they wait, is what is known now, and not what was known when they were accepted.

use offload_core::config::CoreConfig;
use offload_core::event::Event;
use offload_core::ids::JobId;
use offload_core::registry::Class;
use offload_core::{Explanation, WhyUnknown};
use offload_protocol::nouns::{TaskOffer, Usage};
use std::collections::BTreeMap;
use std::time::Duration;
use tests::pool_under_test::{PoolUnderTest, Start, offers};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

fn teach(pool: &mut PoolUnderTest, task: &str, run: Duration, times: usize) {
    for _ in 0..times {
        let job = pool.submit(task);
        pool.start(job);
        pool.finish_after(job, run);
    }
}

fn of_client(pool: &mut PoolUnderTest, client: &str, task: &str) -> JobId {
    pool.submit_with(task, |request| request.client = client.into())
}

fn is_given(pool: &PoolUnderTest, job: JobId) -> bool {
    pool.workers.values().any(|worker| worker.given.iter().any(|(given, _)| *given == job))
}

fn told(pool: &PoolUnderTest, job: JobId) -> Explanation {
    pool.core.explain(pool.now, job).unwrap()
}

fn expected_wait(pool: &PoolUnderTest, job: JobId) -> Result<Duration, WhyUnknown> {
    told(pool, job).waiting.unwrap().expected
}

/// A job that has run for so long by now is done.
fn end(pool: &mut PoolUnderTest, job: JobId, run: Duration) {
    let worker = pool.worker_with(job).unwrap();
    pool.workers.get_mut(&worker).unwrap().given.retain(|(given, _)| *given != job);
    let usage = Usage::default();
    pool.event(Event::Finished { worker, job, attempt: 1, run, usage, output_bytes: 1 });
}

/// `charge` is known as short. Then a client has many jobs of it that take 2 s each. How long the short jobs of another client wait,
/// which come one after the other all the time.
fn waits_beside_a_backlog(slots: usize, known: usize) -> Vec<Duration> {
    const RUN: Duration = Duration::from_secs(2);
    let mut pool = PoolUnderTest::slots(slots);
    teach(&mut pool, "sum", MS, 20);
    teach(&mut pool, "charge", MS, known);
    let long: Vec<JobId> = (0..40).map(|_| of_client(&mut pool, "hog", "charge")).collect();
    let mut ends = BTreeMap::new();
    let (mut waits, mut waiting) = (Vec::new(), None);
    let began = pool.now;
    while pool.now < began + 12 * S {
        for job in long.iter().filter(|job| is_given(&pool, **job)).copied().collect::<Vec<_>>() {
            let is_new = !ends.contains_key(&job);
            ends.entry(job).or_insert(pool.now + RUN);
            if is_new {
                pool.start(job);
            }
        }
        let (short, since) = *waiting.get_or_insert_with(|| {
            let now = pool.now;
            (of_client(&mut pool, "polite", "sum"), now)
        });
        if is_given(&pool, short) {
            waits.push(pool.now - since);
            pool.start(short);
            pool.finish_after(short, MS);
            waiting = None;
        }
        pool.wait(5 * MS);
        for job in long.iter().filter(|job| is_given(&pool, **job)).copied().collect::<Vec<_>>() {
            if ends.get(&job).is_some_and(|end| *end <= pool.now) {
                end(&mut pool, job, RUN);
            }
        }
    }
    assert!(ends.len() >= 3 * (slots - 1), "the others go on meanwhile: {}", ends.len());
    waits
}

#[test]
fn a_backlog_that_turns_out_to_be_long_leaves_a_slot_for_short_jobs() {
    for (slots, known) in [(2, 30), (2, 400), (4, 30), (4, 400), (8, 100)] {
        let waits = waits_beside_a_backlog(slots, known);
        let waited = waits.iter().filter(|wait| **wait > 20 * MS).count();
        assert!(waited <= 1 && waits.len() > 1000, "{slots} slots, {known} runs known: {waited} waited");
    }
}

#[test]
fn a_job_that_waits_is_of_the_class_that_is_known_now() {
    let mut pool = PoolUnderTest::slots(1);
    teach(&mut pool, "charge", MS, 10);
    let first = pool.submit("charge");
    let waits = pool.submit("charge");
    assert_eq!(told(&pool, waits).class, Class::Short);
    pool.start(first);
    pool.finish_after(first, S);
    assert!(is_given(&pool, waits));
    let last = pool.submit("charge");
    pool.start(waits);
    pool.finish_after(waits, S);
    assert_eq!(told(&pool, last).class, Class::Long);
}

/// One of the short jobs takes long, in the slot that is kept for them.
#[test]
fn another_slot_is_kept_while_a_long_job_is_in_the_one_that_was() {
    let mut pool = PoolUnderTest::slots(4);
    teach(&mut pool, "sum", MS, 40);
    teach(&mut pool, "charge", S, 4);
    let overrun = pool.submit("sum");
    pool.start(overrun);
    pool.wait(S);
    let short = pool.submit("sum");
    pool.start(short);
    pool.finish_after(short, MS);
    let long: Vec<JobId> = (0..4).map(|_| pool.submit("charge")).collect();
    let given = |pool: &PoolUnderTest| long.iter().filter(|job| is_given(pool, **job)).count();
    assert_eq!(given(&pool), 2, "with the one that has turned out to be long, these are three of four");
    let short = pool.submit("sum");
    assert!(is_given(&pool, short));
    pool.run(short);
    pool.wait(S);
    assert_eq!(given(&pool), 3, "it is lent as ever");
}

#[test]
fn of_those_that_were_accepted_before_anything_was_known_the_short_ones_do_not_wait_behind_long_ones() {
    let mut pool = PoolUnderTest::slots(2);
    let first = [of_client(&mut pool, "hog", "charge"), of_client(&mut pool, "polite", "sum")];
    let long = [0; 4].map(|_| of_client(&mut pool, "hog", "charge"));
    let short = [0; 4].map(|_| of_client(&mut pool, "polite", "sum"));
    for job in first {
        pool.start(job);
    }
    pool.wait(MS);
    end(&mut pool, first[1], MS);
    for job in short {
        assert!(is_given(&pool, job));
        pool.run(job);
    }
    assert!(!is_given(&pool, long[0]), "a slot is kept for short jobs, which are known now");
}

#[test]
fn what_is_foretold_of_a_burst_follows_what_is_learned_from_it() {
    let mut pool = PoolUnderTest::slots(1);
    let jobs: Vec<JobId> = (0..200).map(|_| pool.submit("charge")).collect();
    for job in &jobs[..2] {
        pool.start(*job);
        pool.wait(S / 2);
        end(&mut pool, *job, S / 2);
    }
    let near = |wait: Duration, secs: u32| (secs - 1) * S <= wait && wait <= (secs + 1) * S;
    assert!(near(pool.core.longest_wait(pool.now), 99), "{:?}", pool.core.longest_wait(pool.now));
    // The next one is with the worker.
    assert!(near(expected_wait(&pool, jobs[199]).unwrap(), 98), "{:?}", expected_wait(&pool, jobs[199]));
}

#[test]
fn while_nothing_has_ended_the_age_of_what_runs_says_how_long_such_jobs_take_at_least() {
    let mut pool = PoolUnderTest::slots(1);
    let jobs = [0; 5].map(|_| pool.submit("charge"));
    pool.start(jobs[0]);
    pool.wait(5 * S);
    let wait = pool.core.longest_wait(pool.now);
    assert!(wait >= 25 * S && wait <= 26 * S, "{wait:?}");
    assert_eq!(expected_wait(&pool, jobs[4]), Err(WhyUnknown::JobsBefore), "no end has been seen");
}

#[test]
fn a_job_that_has_run_for_longer_than_expected_counts_with_what_it_has_run() {
    let mut pool = PoolUnderTest::slots(1);
    teach(&mut pool, "charge", MS, 100);
    teach(&mut pool, "sum", MS, 100);
    let runs = pool.submit("charge");
    pool.start(runs);
    pool.submit("sum");
    pool.wait(20 * S);
    let wait = pool.core.longest_wait(pool.now);
    assert!(wait >= 20 * S && wait <= 21 * S, "{wait:?}");
}

/// The client asks again exactly when it is told to.
#[test]
fn who_is_refused_again_and_again_is_told_ever_longer_times() {
    let mut pool = PoolUnderTest::with(
        CoreConfig { workers: 1, spares: 0, max_jobs: 5, ..CoreConfig::default() },
        Start::Hello,
    );
    let first = pool.submit("charge");
    pool.start(first);
    for number in 0..5 {
        of_client(&mut pool, &format!("client {number}"), "charge");
    }
    let began = pool.now;
    let mut asked = Vec::new();
    while pool.now < began + 5 * S {
        let refusal = pool.refusal_with("sum", |request| request.client = "another".into());
        let after = Duration::from_millis(refusal.retry_after_ms.unwrap());
        asked.push(after);
        pool.wait(after);
    }
    assert!(asked.len() <= 10, "{asked:?}");
    assert!(asked.last() > Some(&S) && asked.is_sorted() && asked.last() < Some(&(10 * S)), "{asked:?}");
}

#[test]
fn what_runs_counts_for_the_program_that_runs_it_also_if_its_task_has_moved() {
    let config = CoreConfig { workers: 2, programs: 2, spares: 0, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Wait);
    let worker_of = |pool: &PoolUnderTest, program: usize| {
        *pool.workers.iter().find(|(_, worker)| worker.program == program).unwrap().0
    };
    let (first, second) = (worker_of(&pool, 0), worker_of(&pool, 1));
    let mut tasks = offers();
    tasks.push(TaskOffer::new("other"));
    pool.event(Event::Hello { worker: second, tasks, takes_files: true });
    teach(&mut pool, "charge", 10 * S, 1);
    teach(&mut pool, "other", S, 1);
    let moves = pool.submit("charge");
    pool.start(moves);
    pool.event(Event::Hello { worker: first, tasks: offers(), takes_files: true });
    assert!(pool.core.longest_wait(pool.now) >= 5 * S, "half of what it takes is still to come");
    pool.finish_after(moves, 10 * S);
    let stays = pool.submit("other");
    pool.start(stays);
    assert!(pool.core.longest_wait(pool.now) <= S, "{:?}", pool.core.longest_wait(pool.now));
}
