//! What is kept after the end of a job, for how long, and what happens when there is no room for it.

use offload_core::Held;
use offload_core::action::{Keep, LetterKept, Notice, Released};
use offload_core::config::CoreConfig;
use offload_core::event::{Event, JobRequest, Key};
use offload_core::ids::JobId;
use offload_core::jobs::JobState;
use offload_core::kept::Owner;
use offload_core::limits::PROMISE_BYTES;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode::*};
use std::time::Duration;
use tests::pool_under_test::{PoolUnderTest, Start};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

pub(super) fn pool(change: impl FnOnce(&mut CoreConfig)) -> PoolUnderTest {
    let mut config = CoreConfig { workers: 1, spares: 0, ..CoreConfig::default() };
    change(&mut config);
    PoolUnderTest::with(config, Start::Hello)
}

pub(super) fn by(client: &str) -> impl Fn(&mut JobRequest) {
    move |request| {
        request.client = client.into();
        request.owner = Owner::of(client);
    }
}

fn keyed(client: &str, key: &str) -> impl Fn(&mut JobRequest) {
    let (by, key) = (by(client), Key { name: key.to_owned(), digest: 1 });
    move |request| {
        by(request);
        request.key = Some(key.clone());
    }
}

pub(super) fn detached(client: &str) -> impl Fn(&mut JobRequest) {
    let by = by(client);
    move |request| {
        by(request);
        request.keeps_output = true;
    }
}

pub(super) fn run_one(
    pool: &mut PoolUnderTest,
    change: impl Fn(&mut JobRequest),
    output_bytes: u64,
) -> JobId {
    let job = pool.submit_with("charge", change);
    pool.start(job);
    pool.finish_with(job, MS, output_bytes);
    job
}

pub(super) fn again_in(error: &ErrorDetail) -> Duration {
    Duration::from_millis(error.retry_after_ms.expect("a time at which there is room"))
}

#[test]
fn ten_thousand_jobs_of_another_client_make_nobody_forget_a_key_or_a_result() {
    let mut pool = pool(|_| ());
    let key = run_one(&mut pool, keyed("me", "bill"), 10);
    let result = run_one(&mut pool, detached("me"), 10);
    for _ in 0..10_100 {
        run_one(&mut pool, by("other"), 10);
    }
    assert_eq!(pool.submit_with("charge", keyed("me", "bill")), key);
    assert!(pool.core.promises().kept_until(result).is_some());
    assert!(pool.released.is_empty(), "{:?}", pool.released);
}

#[test]
fn a_key_is_known_for_its_time_and_then_it_is_said_that_it_was_used_before() {
    let mut pool = pool(|config| config.keep_keys = 2 * HOUR);
    let first = run_one(&mut pool, keyed("me", "bill"), 10);
    pool.wait(2 * HOUR - MS);
    assert_eq!(pool.submit_with("charge", keyed("me", "bill")), first);
    pool.wait(MS);
    assert_eq!(pool.released.get(&first), Some(&Released::TimeIsOver));
    let second = pool.submit_with("charge", keyed("me", "bill"));
    assert_ne!(second, first);
    assert!(pool.notices.contains(&Notice::KeyUsedAgain { job: second, before: first }));
    assert_eq!(pool.core.explain(pool.now, second).unwrap().key_before, Some(first));
    assert_eq!(pool.submit_with("charge", keyed("me", "bill")), second, "it is the same while it lives");
}

#[test]
fn a_key_belongs_to_its_client_whatever_the_two_are_called() {
    let mut pool = pool(|_| ());
    let one = pool.submit_with("charge", keyed("team", "bill/17"));
    let other = pool.submit_with("charge", keyed("team/bill", "17"));
    let nobody = pool.submit_with("charge", keyed("", "team/bill/17"));
    assert!(one != other && other != nobody && nobody != one);
    assert_eq!(pool.submit_with("charge", keyed("", "team/bill/17")), nobody);
}

#[test]
fn a_result_is_there_until_its_time_is_over_or_it_is_collected() {
    let mut pool = pool(|config| config.keep_results = HOUR);
    let [lost, taken] = [1, 2].map(|_| run_one(&mut pool, detached("me"), 1000));
    let until = pool.core.promises().kept_until(taken).expect("it is promised");
    pool.event(Event::Collected { job: taken });
    assert_eq!(pool.released.get(&taken), Some(&Released::Collected { until }));
    pool.wait(HOUR - 10 * MS);
    assert_eq!(pool.released.get(&lost), None);
    assert_eq!(pool.core.promises().kept().all().bytes, PROMISE_BYTES + 1000);
    pool.wait(10 * MS);
    assert_eq!(pool.released.get(&lost), Some(&Released::TimeIsOver));
    assert_eq!(pool.core.promises().kept().all().bytes, 0);
}

#[test]
fn the_result_of_a_key_is_kept_for_the_next_one_who_asks_with_it() {
    let mut pool = pool(|_| ());
    let job = run_one(&mut pool, keyed("me", "bill"), 10);
    pool.event(Event::Collected { job });
    assert_eq!(pool.released.get(&job), None);
    assert_eq!(pool.ended[&job].keep, Keep::Promised);
}

#[test]
fn of_a_job_that_asked_for_nothing_nothing_is_promised() {
    let mut pool = pool(|_| ());
    let job = run_one(&mut pool, by("me"), 10);
    assert_eq!(pool.ended[&job].keep, Keep::AsCourtesy);
    assert_eq!(pool.core.promises().kept().all().count, 0);
}

#[test]
fn a_client_whose_share_of_promises_is_used_up_is_refused_until_the_first_of_them_ends() {
    let mut pool = pool(|config| config.max_kept_bytes = 8 * PROMISE_BYTES);
    run_one(&mut pool, detached("me"), 0);
    pool.wait(Duration::from_secs(60));
    for _ in 0..3 {
        run_one(&mut pool, detached("me"), 0);
    }
    let error = pool.refusal_with("charge", detached("me"));
    assert_eq!(error.code, Quota);
    assert!(
        error.message.contains("kept for client me hold 4096 bytes, 4096 of 8192 are left for others"),
        "{error:?}"
    );
    assert_eq!(pool.refusal_with("charge", keyed("me", "bill")).code, Quota);

    run_one(&mut pool, detached("other"), 0);
    run_one(&mut pool, by("me"), 0);
    let again_in = again_in(&pool.refusal_with("charge", detached("me")));
    pool.wait(again_in - MS);
    pool.refusal_with("charge", detached("me"));
    pool.wait(MS);
    pool.submit_with("charge", detached("me"));
}

/// When one of these jobs ends, nobody knows.
#[test]
fn where_all_is_promised_to_jobs_that_have_not_ended_no_time_is_named() {
    let mut pool = pool(|config| config.max_kept_bytes = 8 * PROMISE_BYTES);
    for _ in 0..4 {
        pool.submit_with("charge", detached("me"));
    }
    let error = pool.refusal_with("charge", detached("me"));
    assert_eq!((error.code, error.retry_after_ms), (Quota, None));
    assert!(!error.message.contains("try again"), "{error:?}");
}

#[test]
fn when_all_that_may_be_promised_is_promised_the_next_one_is_refused_and_nobody_loses_anything() {
    let mut pool = pool(|config| config.max_kept_bytes = 8 * PROMISE_BYTES);
    for client in ["a", "a", "b", "b", "c", "c", "d"] {
        run_one(&mut pool, detached(client), 0);
    }
    let error = pool.refusal_with("charge", detached("e"));
    assert_eq!(error.code, Overloaded);
    assert!(error.message.contains("kept for all clients"), "{error:?}");
    assert!(pool.released.is_empty());
    pool.wait(again_in(&error));
    pool.submit_with("charge", detached("e"));
}

/// Room for two results of a thousand bytes, and jobs that return as much.
fn hoarding() -> (PoolUnderTest, Vec<JobId>) {
    let mut pool = pool(|config| config.max_kept_bytes = 16 << 10);
    let jobs: Vec<JobId> = (0..4).map(|_| pool.submit_with("charge", detached("me"))).collect();
    pool.start(jobs[0]);
    pool.finish_with(jobs[0], MS, 9 << 10);
    (pool, jobs)
}

pub(super) fn state(pool: &PoolUnderTest, job: JobId) -> Option<JobState> {
    pool.core.jobs().get(job).map(|job| job.state)
}

#[test]
fn a_job_for_whose_output_there_is_no_room_waits_until_one_is_collected() {
    let (mut pool, jobs) = hoarding();
    assert_eq!(state(&pool, jobs[1]), Some(JobState::Held));
    let held = pool.core.explain(pool.now, jobs[1]).unwrap().held;
    // More than its share of 8 KiB is kept for it, which leaves no less to the others.
    let (kept_bytes, free_bytes) = (10 << 10, 8 << 10);
    let expected =
        Held { account: "me".into(), kept_bytes, free_bytes, of_all: None, has_key: false, beyond: None };
    assert_eq!(held, Some(expected));
    let other = pool.submit_with("charge", by("me"));
    pool.run(other);
    pool.event(Event::Collected { job: jobs[0] });
    pool.run(jobs[1]);
    assert_eq!(pool.outcome(jobs[1]), Some(Ok));
}

#[test]
fn a_job_that_is_held_back_goes_on_when_the_time_of_what_is_kept_is_over() {
    let (mut pool, jobs) = hoarding();
    pool.wait(HOUR);
    jobs[1..].iter().for_each(|job| pool.run(*job));
}

#[test]
fn a_job_that_somebody_waits_for_is_not_held_back() {
    let (mut pool, jobs) = hoarding();
    pool.event(Event::Awaited { job: jobs[3] });
    pool.run(jobs[3]);
    assert_eq!(state(&pool, jobs[1]), Some(JobState::Held));
}

#[test]
fn a_client_that_waits_for_anothers_result_and_disconnects_does_not_use_up_the_result() {
    let (mut pool, jobs) = hoarding();
    pool.event(Event::Awaited { job: jobs[3] });
    pool.start(jobs[3]);
    pool.event(Event::Abandoned { job: jobs[3] });
    pool.finish_with(jobs[3], MS, 9 << 10);
    assert_eq!(pool.ended[&jobs[3]].keep, Keep::Promised);
    assert!(pool.core.promises().kept_until(jobs[3]).is_some());
}

/// Else whoever waits and goes away, again and again, could have any amount kept.
#[test]
fn when_all_is_full_a_job_is_held_back_whoever_waits_for_it() {
    let (mut pool, jobs) = hoarding();
    pool.event(Event::Awaited { job: jobs[3] });
    pool.start(jobs[3]);
    pool.finish_with(jobs[3], MS, 9 << 10);
    pool.event(Event::Awaited { job: jobs[2] });
    assert_eq!(state(&pool, jobs[2]), Some(JobState::Held), "20 of 16 KiB are kept");
    pool.event(Event::Collected { job: jobs[3] });
    pool.run(jobs[2]);
    assert_eq!(state(&pool, jobs[1]), Some(JobState::Held), "nobody waits for this one");
}

#[test]
fn a_waiter_that_left_before_the_jobs_turn_does_not_bring_the_job_forward() {
    let (mut pool, jobs) = hoarding();
    let other = pool.submit_with("charge", by("other"));
    pool.event(Event::Awaited { job: jobs[3] });
    pool.event(Event::Abandoned { job: jobs[3] });
    pool.run(other);
    assert_eq!(state(&pool, jobs[3]), Some(JobState::Held));
}

/// Between the mark at which jobs are held back and the one at which they go on there is room for more of them, which
/// younger ones took.
#[test]
fn a_job_that_is_held_back_is_not_passed_by_younger_ones_of_its_client() {
    let mut pool = pool(|config| config.max_kept_bytes = 128 << 10);
    let [small, large, old] = [0; 3].map(|_| pool.submit_with("charge", detached("me")));
    for (job, output) in [(small, 4 << 10), (large, 60 << 10)] {
        pool.start(job);
        pool.finish_with(job, MS, output);
    }
    assert_eq!(state(&pool, old), Some(JobState::Held));
    pool.event(Event::Collected { job: small });
    let young = pool.submit_with("charge", detached("me"));
    assert_eq!([old, young].map(|job| state(&pool, job)), [Some(JobState::Held); 2]);
    let other = pool.submit_with("charge", detached("other"));
    pool.run(other);
    pool.event(Event::Collected { job: large });
    pool.run(old);
    pool.run(young);
}

fn nameless(connection: u64, key: Option<&str>) -> impl Fn(&mut JobRequest) {
    let key = key.map(|name| Key { name: name.to_owned(), digest: 1 });
    move |request| {
        (request.client, request.owner) = (format!("connection {connection}").into(), Owner::Nameless);
        (request.keeps_output, request.key) = (key.is_none(), key.clone());
    }
}

#[test]
fn clients_without_a_name_share_their_keys_and_not_what_may_be_kept_for_one() {
    let mut pool = pool(|config| config.max_kept_bytes = 64 << 10);
    let first = run_one(&mut pool, nameless(1, Some("first")), 31 << 10);
    assert_eq!(pool.refusal_with("charge", nameless(1, Some("more"))).code, Quota);
    assert_eq!(pool.submit_with("charge", nameless(2, Some("first"))), first);
    run_one(&mut pool, nameless(2, Some("second")), 5 << 10);
    run_one(&mut pool, nameless(2, None), 5 << 10);
    run_one(&mut pool, nameless(3, None), 5 << 10);
    assert_eq!(pool.refusal_with("charge", nameless(1, None)).code, Quota);
}

#[test]
fn a_result_that_is_kept_without_its_output_counts_the_bytes_of_its_texts() {
    let (mut pool, jobs) = hoarding();
    let before = pool.core.promises().kept().all().bytes;
    pool.event(Event::Drain { limit: None });
    pool.crash_the_worker_running(jobs[1]);
    assert_eq!(pool.ended[&jobs[1]].keep, Keep::WithoutOutput);
    let texts = pool.ended[&jobs[1]].text_bytes();
    assert_eq!(pool.core.promises().kept().all().bytes, before + texts);
    assert!(texts > 256, "an attempt was lost");
}

#[test]
fn jobs_that_are_held_back_can_be_cancelled_and_are_let_go_on_by_a_drain() {
    let (mut pool, jobs) = hoarding();
    pool.event(Event::Cancel { job: jobs[1] });
    assert_eq!(pool.outcome(jobs[1]), Some(Cancelled));
    pool.event(Event::Drain { limit: None });
    pool.start(jobs[2]);
    pool.finish_with(jobs[2], MS, 9 << 10);
    assert_eq!((pool.outcome(jobs[2]), pool.ended[&jobs[2]].keep), (Some(Ok), Keep::WithoutOutput));
    pool.run(jobs[3]);
    assert!(pool.is_over);
}

/// However many they are, no event moves more than some of them: the others follow in ticks that are due at once.
#[test]
fn thousands_of_jobs_are_held_back_and_let_go_on_a_few_at_a_time() {
    let mut pool = pool(|config| config.max_kept_bytes = 4 << 20);
    let first = pool.submit_with("charge", detached("me"));
    let jobs: Vec<JobId> = (0..500).map(|_| pool.submit_with("charge", detached("me"))).collect();
    let held = |pool: &PoolUnderTest| pool.core.promises().held_count();
    pool.start(first);
    pool.finish_with(first, MS, 3 << 20);
    assert!((1..=64).contains(&held(&pool)), "{} are held back at once", held(&pool));
    let move_all = |pool: &mut PoolUnderTest, all: usize| {
        for _ in 0..8 {
            let before = held(pool);
            pool.event(Event::Tick);
            assert!(held(pool).abs_diff(before) <= 64, "{} after {before}", held(pool));
        }
        assert_eq!(held(pool), all);
        assert!(pool.core.next_deadline().is_none_or(|due| due > pool.now));
    };
    move_all(&mut pool, 500);
    pool.event(Event::Collected { job: first });
    assert!(held(&pool) >= 500 - 64);
    move_all(&mut pool, 0);
    pool.run(jobs[0]);
    assert_eq!(pool.outcome(jobs[0]), Some(Ok));
}

#[test]
fn lower_limits_break_no_promise_that_was_made() {
    let mut pool = pool(|_| ());
    let kept: Vec<JobId> = (0..5).map(|_| run_one(&mut pool, detached("me"), 5000)).collect();
    let living = pool.submit_with("charge", detached("me"));
    let config =
        CoreConfig { max_kept_bytes: 2 * PROMISE_BYTES, keep_results: MS, ..pool.core.config().clone() };
    pool.event(Event::Configure(Box::new(config)));
    pool.wait(100 * MS);
    assert!(pool.released.is_empty());
    assert!(kept.iter().all(|job| pool.core.promises().kept_until(*job).is_some()));
    pool.run(living);
    pool.wait(HOUR);
    assert_eq!(pool.released.len(), 6);
}

fn die(pool: &mut PoolUnderTest, client: &str, input_bytes: u64) -> JobId {
    let by = by(client);
    let job = pool.submit_with("sum", |request| {
        by(request);
        request.attempts = Some(2);
        request.input_bytes = input_bytes;
    });
    (0..2).for_each(|_| pool.crash_the_worker_running(job));
    assert_eq!(pool.outcome(job), Some(Poison));
    job
}

fn mortal(change: impl FnOnce(&mut CoreConfig)) -> PoolUnderTest {
    pool(|config| {
        (config.max_dead_letters, config.max_restarts, config.backoff_max) =
            (8, 1000, Duration::from_millis(100));
        change(config);
    })
}

#[test]
fn the_dead_of_one_client_displace_no_letter_and_the_one_that_finds_no_room_says_so() {
    let mut pool = mortal(|_| ());
    let mine = die(&mut pool, "me", 1);
    let others: Vec<JobId> = (0..4).map(|_| die(&mut pool, "other", 1)).collect();
    let letters = others.iter().filter_map(|job| pool.ended[job].letter);
    let whole = LetterKept::Whole;
    assert_eq!(letters.collect::<Vec<_>>(), [whole, whole, whole, LetterKept::Not]);
    assert!(
        pool.message(others[3])
            .contains("it is not kept as a dead letter: there are 3 letters of client other")
    );
    assert_eq!(pool.core.letters().not_kept(), 1);
    assert!(pool.core.letters().kept_until(mine).is_some() && pool.forgotten_letters.is_empty());

    pool.event(Event::LetterDropped { job: others[0] });
    let next = die(&mut pool, "other", 1);
    assert_eq!(pool.ended[&next].letter, Some(LetterKept::Whole));
}

#[test]
fn a_letter_whose_input_finds_no_room_is_kept_without_it() {
    let mut pool = mortal(|config| config.max_dead_bytes = 64 << 10);
    die(&mut pool, "other", 1);
    let job = die(&mut pool, "me", 40 << 10);
    assert_eq!(pool.ended[&job].letter, Some(LetterKept::WithoutInput));
    assert!(pool.message(job).contains("its dead letter is kept without the input"));
    assert!(pool.core.letters().kept().all().bytes < 6 << 10);
}

#[test]
fn a_dead_letter_is_forgotten_when_its_time_is_over() {
    let mut pool = mortal(|config| config.keep_dead_letters = 72 * HOUR);
    let job = die(&mut pool, "me", 1);
    pool.wait(72 * HOUR - MS);
    assert!(pool.forgotten_letters.is_empty());
    pool.wait(MS);
    assert_eq!(pool.forgotten_letters, [job]);
    assert_eq!(pool.core.letters().kept().all().count, 0);
}
