//! Which jobs are rejected, and that accepted jobs = queued + running + outcomes whatever happens.

use offload_core::config::CoreConfig;
use offload_core::event::{Event, JobRequest, Key};
use offload_core::exit::Exit;
use offload_core::ids::{JobId, WorkerId};
use offload_core::ledger::Holding;
use offload_core::limits::PROMISE_BYTES;
use offload_protocol::nouns::{FailureKind, OutcomeCode::*, Usage};
use proptest::prelude::*;
use std::time::Duration;
use tests::pool_under_test::{PoolUnderTest, Start, offers};

fn small() -> PoolUnderTest {
    let config = CoreConfig {
        workers: 1,
        spares: 0,
        max_jobs: 2,
        max_bytes: 100,
        max_payload: 60,
        ..CoreConfig::default()
    };
    PoolUnderTest::with(config, Start::Hello)
}

fn of_size(input_bytes: u64) -> JobRequest {
    JobRequest { task: "sum".to_owned(), input_bytes, ..JobRequest::default() }
}

#[test]
fn a_full_queue_refuses_and_says_how_full_it_is() {
    let mut pool = small();
    for _ in 0..3 {
        pool.submit("sum");
    }
    let error = pool.refusal("sum");
    assert_eq!(error.code, Overloaded);
    assert_eq!(error.message, "the queue is full: 2 jobs wait, the limit is 2; try again in about 100 ms");
    assert_eq!(error.retry_after_ms, Some(100));
}

#[test]
fn an_input_over_the_limit_is_refused_and_the_limit_is_said() {
    let mut pool = small();
    assert_eq!(pool.try_submit(&of_size(61)), None);
    let error = pool.rejected.last().unwrap();
    assert_eq!(
        (error.code, error.message.as_str()),
        (TooLarge, "input of 61 bytes, the limit is 60 bytes (max_payload)")
    );
}

#[test]
fn metadata_and_labels_count_as_long_as_anything_of_the_job_is_there() {
    let mut pool = small();
    let tagged = JobRequest { tag_bytes: 41, keeps_output: true, ..of_size(20) };
    let job = pool.try_submit(&tagged).unwrap();
    assert_eq!(pool.core.ledger().all().total(), 61);
    assert_eq!(pool.try_submit(&of_size(40)), None, "61 of 100 are taken");
    assert_eq!(pool.core.promises().kept().all().bytes, PROMISE_BYTES + 41);
    pool.start(job);
    pool.finish_with(job, Duration::ZERO, 5);
    assert_eq!(pool.core.ledger().all().of(Holding::Inputs), 0);
    assert_eq!(pool.core.promises().kept().all().bytes, PROMISE_BYTES + 41 + 5);
    assert_eq!(pool.ended[&job].text_bytes(), 41, "by which the shell bounds what it remembers");
}

#[test]
fn bytes_are_held_until_the_job_ends_and_not_longer() {
    let mut pool = small();
    let job = pool.try_submit(&of_size(60)).unwrap();
    assert_eq!(pool.try_submit(&of_size(41)), None);
    assert_eq!(pool.rejected.last().unwrap().code, Overloaded);
    pool.run(job);
    assert!(pool.try_submit(&of_size(60)).is_some());
}

#[test]
fn an_unknown_task_is_refused_with_the_known_ones_the_nearest_first() {
    let mut pool = small();
    let error = pool.refusal("summ");
    assert_eq!(error.code, UnknownTask);
    assert_eq!(error.message, "no worker offers 'summ'; there are: sum, charge, climb, tile");
}

/// Else it would come back in a report that is longer than any header.
#[test]
fn a_name_that_no_task_can_have_is_refused_even_before_it_is_known_which_tasks_there_are() {
    let config = CoreConfig { workers: 1, spares: 0, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Wait);
    for name in ["", "a b", "x".repeat(65).as_str(), "x".repeat(4000).as_str(), "\u{1b}[31m"] {
        let error = pool.refusal(name);
        assert_eq!(error.code, UnknownTask);
        assert!(error.message.len() < 1024 && !error.message.contains('\u{1b}'), "{error:?}");
    }
}

#[test]
fn a_timeout_of_nothing_makes_no_sense_and_a_deadline_of_nothing_has_passed() {
    let mut pool = small();
    let no_time = JobRequest { timeout: Some(Duration::ZERO), ..of_size(1) };
    assert_eq!(pool.try_submit(&no_time), None);
    assert_eq!(pool.rejected.last().unwrap().code, BadRequest);
    let job = pool.submit_with("sum", |request| request.deadline = Some(Duration::ZERO));
    assert_eq!(pool.outcome(job), Some(Timeout));
    assert_eq!(pool.ended[&job].attempts, 0);
    assert_eq!(
        pool.message(job),
        "the deadline had passed before it was accepted",
        "how long it waited is not known"
    );
}

#[test]
fn a_deadline_of_centuries_is_as_good_as_none() {
    let mut pool = small();
    let job = pool.submit_with("sum", |request| {
        request.deadline = Some(Duration::MAX);
        request.timeout = Some(Duration::MAX);
    });
    pool.start(job);
    pool.wait(Duration::from_secs(1 << 30));
    assert_eq!(pool.outcome(job), None);
}

fn small_config() -> CoreConfig {
    CoreConfig {
        max_jobs: 6,
        max_bytes: 100,
        max_payload: 100,
        max_rss: Some(1 << 30),
        max_kept_bytes: 8 << 10,
        keep_results: Duration::from_millis(500),
        ..CoreConfig::default()
    }
}

fn held(is_held: bool, what: u8, bytes: u64) -> Event {
    let client = if bytes.is_multiple_of(3) { "" } else { "ann" }.into();
    let what = match what {
        0 => Holding::Arriving,
        1 => Holding::Inputs,
        2 => Holding::Expected,
        _ => Holding::Outgoing,
    };
    match is_held {
        true => Event::Held { client, what, bytes },
        false => Event::Released { client, what, bytes },
    }
}

/// What the core may be told.
#[derive(Clone, Debug)]
enum Told {
    Request(JobRequest),
    Event(Event),
}

fn any_request() -> impl Strategy<Value = JobRequest> {
    let parts = (0usize..3, 0u64..30, proptest::option::of(0u64..200), 0u128..6);
    parts.prop_map(|(task, input_bytes, deadline, promise)| {
        let task = ["sum", "charge", "tile"][task].to_owned();
        let deadline = deadline.map(Duration::from_millis);
        let key = (promise > 3).then(|| Key { name: "mine".to_owned(), digest: promise });
        let keeps_output = promise > 1;
        JobRequest { task, input_bytes, deadline, key, keeps_output, ..JobRequest::default() }
    })
}

/// Anything at all, in any order, from workers and clients that may or may not exist.
fn anything() -> impl Strategy<Value = Told> {
    prop_oneof![4 => any_request().prop_map(Told::Request), 46 => any_event().prop_map(Told::Event)]
}

fn any_event() -> impl Strategy<Value = Event> {
    let worker = || (1u64..12).prop_map(WorkerId);
    let job = || (1u64..16).prop_map(JobId);
    let run = Duration::from_micros(10);
    let usage = Usage::default();
    prop_oneof![
        1 => job().prop_map(|job| Event::Awaited { job }),
        1 => proptest::option::of(0..4u32).prop_map(|task| Event::Pause { task }),
        2 => proptest::option::of(0..4u32).prop_map(|task| Event::Resume { task }),
        1 => job().prop_map(|job| Event::Collected { job }),
        1 => job().prop_map(|job| Event::LetterDropped { job }),
        1 => job().prop_map(|job| Event::Cancel { job }),
        1 => (worker(), any::<bool>()).prop_map(|(worker, fatal)| Event::SpawnFailed { worker, fatal, message: String::new() }),
        3 => worker().prop_map(|worker| Event::Hello { worker, tasks: offers(), takes_files: true }),
        1 => worker().prop_map(|worker| Event::Unfit { worker, message: String::new() }),
        6 => (worker(), job(), 1u32..3).prop_map(|(worker, job, attempt)| Event::Started { worker, job, attempt }),
        6 => (worker(), job(), 1u32..3).prop_map(move |(worker, job, attempt)| Event::Finished { worker, job, attempt, run, usage, output_bytes: 2000 }),
        1 => (worker(), job(), 1u32..3).prop_map(move |(worker, job, attempt)| {
            Event::Failed { worker, job, attempt, run, kind: FailureKind::Panic, message: String::new(), usage }
        }),
        1 => (worker(), job()).prop_map(|(worker, job)| Event::Skipped { worker, job }),
        1 => (worker(), job(), 1u32..3).prop_map(|(worker, job, attempt)| Event::NotBegun { worker, job, attempt }),
        1 => (worker(), any::<bool>()).prop_map(|(worker, of_another)| {
            Event::BrokeRules { worker, of_another, how: "it did".to_owned() }
        }),
        1 => worker().prop_map(|worker| Event::Violation { worker, message: String::new() }),
        1 => worker().prop_map(|worker| Event::Closed { worker }),
        2 => (worker(), 0i32..70).prop_map(|(worker, code)| Event::Exited { worker, exit: Exit::Code(code), last_lines: Vec::new(), usage: None }),
        2 => (any::<bool>(), 0..4u8, 0u64..200).prop_map(|(is_held, what, bytes)| held(is_held, what, bytes)),
        2 => Just(Event::Tick),
        1 => worker().prop_map(|worker| Event::Stopped { worker }),
        1 => worker().prop_map(|worker| Event::Continued { worker }),
        1 => worker().prop_map(|worker| Event::Measured { worker, resident_bytes: 1 << 40 }),
        1 => (1u64..9).prop_map(|version| Event::Reload { version }),
        1 => (worker(), job(), 1u32..3).prop_map(|(worker, job, attempt)| {
            Event::Progress { worker, job, attempt, done: 1, total: 2 }
        }),
        1 => (worker(), job(), 1u32..3, 0u64..99_999).prop_map(|(worker, job, attempt, bytes)| {
            Event::Checkpoint { worker, job, attempt, bytes }
        }),
        1 => (worker(), job(), 1u32..3).prop_map(move |(worker, job, attempt)| {
            Event::Yielded { worker, job, attempt, run, bytes: 5 }
        }),
        1 => (1usize..5, 0usize..2).prop_map(|(workers, spares)| {
            Event::Configure(Box::new(CoreConfig { workers, spares, ..small_config() }))
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// `PoolUnderTest` checks all invariants after every event and that no job ends twice.
    #[test]
    fn any_event_is_legal_in_any_state_and_every_accepted_job_ends_exactly_once(
        workers in 1usize..4,
        spares in 0usize..2,
        start in prop_oneof![Just(Start::Hello), Just(Start::Wait)],
        events in proptest::collection::vec((anything(), 0u64..300), 1..60),
    ) {
        let config = CoreConfig { workers, spares, ..small_config() };
        let mut pool = PoolUnderTest::with(config, start);
        for (told, millis) in events {
            match told {
                Told::Request(request) => drop(pool.try_submit(&request)),
                Told::Event(event) => pool.event(event),
            }
            pool.wait(Duration::from_millis(millis));
        }
        pool.event(Event::Stop);
        pool.wait(Duration::from_secs(60));
        prop_assert!(pool.core.jobs().is_empty());
        prop_assert_eq!(pool.ended.len() as u64, pool.core.tally().accepted());
        prop_assert!(pool.most_processes <= 4 + 1 + 1, "slots, a spare, and one on trial");
    }
}

/// The shell was stopped and goes on: the answers that came meanwhile are told one after another, and then the tick.
#[test]
fn a_deadline_does_not_overtake_answers_that_came_in_time() {
    let mut pool = PoolUnderTest::slots(2);
    let jobs =
        [0, 1].map(|_| pool.submit_with("sum", |request| request.deadline = Some(Duration::from_millis(10))));
    for job in jobs {
        pool.start(job);
    }
    pool.now = pool.now + Duration::from_secs(5);
    for job in jobs {
        pool.finish(job);
    }
    pool.event(Event::Tick);
    assert_eq!(jobs.map(|job| pool.outcome(job)), [Some(Ok); 2]);
}

#[test]
fn a_client_that_waits_for_room_is_told_when_the_limit_is_raised() {
    let mut pool = PoolUnderTest::slots(1);
    let larger = 2 * pool.core.config().max_bytes;
    for (max_bytes, is_told) in [(larger, true), (larger, false)] {
        let before = pool.core.ledger().releases();
        let config = CoreConfig { max_bytes, ..pool.core.config().clone() };
        pool.event(Event::Configure(Box::new(config)));
        assert_eq!(pool.core.ledger().releases() != before, is_told);
    }
}
