//! Jobs that the shell does itself, without a worker: how many at a time, how they end, and who else has to wait.

use super::promises::detached;
use offload_core::action::Keep;
use offload_core::config::CoreConfig;
use offload_core::event::{Event, JobRequest};
use offload_core::here::TasksHere;
use offload_core::ids::JobId;
use offload_core::limits::{HERE_TIME_MAX, HERE_TIME_MIN, PROMISE_BYTES};
use offload_protocol::nouns::OutcomeCode::{self, *};
use offload_protocol::nouns::TaskOffer;
use std::time::Duration;
use tests::pool_under_test::{PoolUnderTest, Start};

const MS: Duration = Duration::from_millis(1);

fn config(places: usize) -> CoreConfig {
    let offers = vec![TaskOffer { idempotent: true, ..TaskOffer::new("fetch") }];
    CoreConfig { workers: 1, spares: 0, here: TasksHere { offers, places }, ..CoreConfig::default() }
}

fn pool(places: usize) -> PoolUnderTest {
    PoolUnderTest::with(config(places), Start::Hello)
}

fn end(pool: &mut PoolUnderTest, job: JobId, result: Result<u64, OutcomeCode>) {
    let result = result.map_err(|code| (code, "no such file".to_owned()));
    pool.event(Event::RanHere { job, result });
}

#[test]
fn a_job_that_needs_no_worker_is_done_although_none_is_ready() {
    let mut pool = PoolUnderTest::with(config(1), Start::Wait);
    let job = pool.submit("fetch");
    assert_eq!(pool.here, [(job, Duration::from_secs(30))]);
    pool.wait(5 * MS);
    end(&mut pool, job, Result::Ok(100));
    let ended = &pool.ended[&job];
    assert_eq!((ended.outcome, ended.attempts, ended.place, ended.run), (Ok, 1, None, 5 * MS));
    assert!(pool.core.is_balanced());
}

#[test]
fn no_more_are_done_at_a_time_than_there_are_places_and_clients_take_turns() {
    let mut pool = pool(2);
    let mut submit = |client: &str| pool.submit_with("fetch", |request| request.client = client.into());
    let greedy: Vec<JobId> = (0..5).map(|_| submit("greedy")).collect();
    let modest = submit("modest");
    assert_eq!((pool.here.len(), pool.core.waiting_and_running()), (2, (4, 2)));
    pool.wait(MS);
    end(&mut pool, greedy[0], Result::Ok(1));
    assert!(pool.here.iter().any(|(job, _)| *job == modest), "{:?}", pool.here);
    for job in greedy[1..].iter().chain([&modest]) {
        end(&mut pool, *job, Result::Ok(1));
    }
    assert!(pool.ended.len() == 6 && pool.core.jobs().is_empty());
}

#[test]
fn failures_are_told_as_they_are_and_are_not_tried_again() {
    let mut pool = pool(1);
    for code in [IoError, IoPanic, AppError, Timeout, Cancelled] {
        let job = pool.submit_with("fetch", |request| request.attempts = Some(5));
        end(&mut pool, job, Err(code));
        assert_eq!((pool.outcome(job), pool.ended[&job].attempts), (Some(code), 1));
        assert_eq!(pool.message(job), "no such file");
    }
}

#[test]
fn a_job_ends_when_its_time_is_over_and_its_place_is_free_when_the_thread_is() {
    let mut pool = pool(1);
    let stuck = pool.submit_with("fetch", |request| request.timeout = Some(50 * MS));
    let next = pool.submit("fetch");
    assert_eq!(pool.here, [(stuck, HERE_TIME_MIN)], "a thread has a second, however short the timeout");
    pool.wait(49 * MS);
    assert_eq!(pool.outcome(stuck), None);
    pool.wait(MS);
    assert_eq!(pool.outcome(stuck), Some(Timeout));
    assert!(pool.message(stuck).starts_with("ran longer than 50"), "{}", pool.message(stuck));
    assert_eq!(pool.stopped_here, [stuck]);
    assert_eq!((pool.outcome(next), pool.core.taken_here()), (None, 1), "the thread is still busy");
    end(&mut pool, stuck, Err(Timeout));
    assert_eq!(pool.here.last().map(|(job, _)| *job), Some(next));
    end(&mut pool, next, Result::Ok(3));
    assert_eq!(pool.outcome(next), Some(Ok));
}

#[test]
fn no_job_has_a_place_for_longer_than_half_a_minute() {
    let mut pool = pool(1);
    let job = pool.submit_with("fetch", |request| request.timeout = Some(Duration::from_secs(3600)));
    assert_eq!(pool.here, [(job, HERE_TIME_MAX)]);
    pool.wait(HERE_TIME_MAX);
    assert_eq!(pool.outcome(job), Some(Timeout));
}

#[test]
fn a_job_can_be_cancelled_before_and_while_it_is_done() {
    let mut pool = pool(1);
    let (running, waiting) = (pool.submit("fetch"), pool.submit("fetch"));
    pool.event(Event::Cancel { job: waiting });
    pool.event(Event::Cancel { job: running });
    assert_eq!([running, waiting].map(|job| pool.outcome(job)), [Some(Cancelled); 2]);
    assert_eq!(pool.stopped_here, [running]);
    end(&mut pool, running, Result::Ok(1));
    end(&mut pool, running, Result::Ok(1));
    assert_eq!((pool.ended.len(), pool.core.taken_here()), (2, 0));
}

#[test]
fn a_deadline_ends_it_too() {
    let mut pool = pool(1);
    let job = pool.submit_with("fetch", |request| request.deadline = Some(5 * MS));
    pool.wait(5 * MS);
    assert_eq!((pool.outcome(job), pool.stopped_here.len()), (Some(Timeout), 1));
    assert!(pool.message(job).starts_with("the deadline passed while it ran, 5 ms after it was accepted"));
}

#[test]
fn one_that_nobody_wants_any_more_is_cancelled_while_it_waits_and_left_alone_while_it_is_done() {
    let mut pool = pool(1);
    let (running, waiting) = (pool.submit("fetch"), pool.submit("fetch"));
    pool.event(Event::Abandoned { job: running });
    pool.event(Event::Abandoned { job: waiting });
    assert_eq!([running, waiting].map(|job| pool.outcome(job)), [None, Some(Cancelled)]);
    end(&mut pool, running, Result::Ok(1));
    assert_eq!(pool.outcome(running), Some(Ok));
}

#[test]
fn the_bytes_of_its_output_are_held_for_its_client_and_the_next_waits_for_room() {
    let config = CoreConfig { max_bytes: 1000, max_payload: 1000, ..config(1) };
    let mut pool = PoolUnderTest::with(config, Start::Hello);
    let ann = |request: &mut JobRequest| request.client = "ann".into();
    let [first, second] = [(); 2].map(|()| pool.submit_with("fetch", ann));
    end(&mut pool, first, Result::Ok(900));
    assert_eq!(pool.core.ledger().all().outputs(), 900);
    assert_eq!(pool.here.len(), 1, "its client has not read the first output");
    let client = pool.ended[&first].account.clone();
    let what = offload_core::ledger::Holding::Outgoing;
    pool.event(Event::Released { client, what, bytes: 900 });
    assert_eq!(pool.here.last().map(|(job, _)| *job), Some(second));
}

fn keep(pool: &PoolUnderTest, job: JobId) -> (OutcomeCode, Keep) {
    (pool.ended[&job].outcome, pool.ended[&job].keep)
}

/// All four are begun while nothing is kept. Together they would use up what may be kept, and nobody else could have a result kept
/// until their time is over: an hour. A file that was read is still there.
#[test]
fn what_one_client_reads_at_a_time_does_not_use_up_the_room_of_all_for_what_is_kept() {
    let mut pool = pool(4);
    let large = 60 << 20;
    let jobs = [(); 4].map(|()| pool.submit_with("fetch", detached("greedy")));
    assert_eq!(pool.here.len(), 4);
    jobs.iter().for_each(|job| end(&mut pool, *job, Result::Ok(large)));
    let [kept, failed] = [(Ok, Keep::Promised), (IoError, Keep::Promised)];
    assert_eq!(jobs.map(|job| keep(&pool, job)), [kept, kept, failed, failed], "`ok` says that it is kept");
    let message = pool.message(jobs[2]);
    assert!(message.contains("62914560 bytes, and there is no room to keep it (storage_full)"), "{message}");
    assert!(pool.core.promises().kept().all().bytes < pool.core.config().max_kept_bytes);
    let client = pool.ended[&jobs[0]].account.clone();
    assert_eq!(pool.core.ledger().of(&client).outputs(), 2 * large, "what is not kept takes no memory");
    pool.event(Event::Released { client, what: offload_core::ledger::Holding::Outgoing, bytes: 2 * large });
    // Within the share of its client a result is kept, whatever the others have.
    let modest = pool.submit_with("fetch", detached("modest"));
    end(&mut pool, modest, Result::Ok(1 << 20));
    let small = pool.submit_with("fetch", detached("small"));
    end(&mut pool, small, Result::Ok(PROMISE_BYTES));
    assert_eq!([modest, small].map(|job| keep(&pool, job)), [kept, kept]);
}

/// What was promised to one client is not lost because others had something kept meanwhile.
#[test]
fn no_job_ends_well_whose_output_had_to_be_kept_and_is_lost_whoever_has_the_room() {
    let config = CoreConfig { max_kept_bytes: 20 << 20, ..config(4) };
    let mut pool = PoolUnderTest::with(config, Start::Hello);
    let clients = ["ann", "bob", "cat", "dan"];
    let jobs = clients.map(|client| pool.submit_with("fetch", detached(client)));
    let [awaited, alone] = [jobs[2], jobs[3]];
    pool.event(Event::Awaited { job: awaited });
    jobs.iter().for_each(|job| end(&mut pool, *job, Result::Ok(8 << 20)));
    let kept = (Ok, Keep::Promised);
    let given = (Ok, Keep::WithoutOutput);
    assert_eq!(jobs.map(|job| keep(&pool, job)), [kept, kept, given, (IoError, Keep::Promised)]);
    assert!(pool.message(alone).contains("all clients hold"), "{}", pool.message(alone));
}

/// Whoever waited has left, so nobody is given the output.
#[test]
fn an_output_without_room_for_which_nobody_waits_any_more_is_none_that_went_well() {
    let config = CoreConfig { max_kept_bytes: 20 << 20, ..config(2) };
    let mut pool = PoolUnderTest::with(config, Start::Hello);
    let [first, left] = ["ann", "bob"].map(|client| pool.submit_with("fetch", detached(client)));
    pool.event(Event::Awaited { job: left });
    pool.event(Event::Abandoned { job: left });
    [first, left].iter().for_each(|job| end(&mut pool, *job, Result::Ok(15 << 20)));
    assert_eq!([first, left].map(|job| keep(&pool, job).0), [Ok, IoError]);
}

#[test]
fn a_drain_waits_for_it_and_a_stop_does_not() {
    let mut pool = pool(1);
    let job = pool.submit("fetch");
    pool.event(Event::Drain { limit: None });
    assert!(!pool.is_over);
    end(&mut pool, job, Result::Ok(1));
    assert!(pool.is_over);
    let mut pool = self::pool(1);
    let job = pool.submit("fetch");
    pool.event(Event::Stop);
    assert_eq!((pool.outcome(job), pool.is_over), (Some(Cancelled), true));
    end(&mut pool, job, Result::Ok(1));
}

#[test]
fn no_worker_is_asked_for_a_task_that_is_done_here_whatever_it_offers() {
    let mut pool = PoolUnderTest::with(config(1), Start::Wait);
    let worker = pool.core.slots()[0].worker().unwrap();
    let tasks = vec![TaskOffer::new("fetch"), TaskOffer::new("sum")];
    pool.event(Event::Hello { worker, tasks, takes_files: true });
    let job = pool.submit("fetch");
    assert!(pool.worker_with(job).is_none() && pool.here.len() == 1);
    let file = pool.refusal_with("fetch", |request| request.has_file = true);
    assert_eq!(file.code, Unsupported, "its client sends the bytes");
    pool.event(Event::Reload { version: 1 });
    let next = pool.submit("fetch");
    end(&mut pool, job, Result::Ok(1));
    assert_eq!(pool.here.last().map(|(job, _)| *job), Some(next), "a reload changes nothing for it");
}

#[test]
fn what_is_explained_of_it_is_where_it_is() {
    let mut pool = pool(1);
    let (running, waiting) = (pool.submit("fetch"), pool.submit("fetch"));
    pool.wait(MS);
    let explained = pool.core.explain(pool.now, running).unwrap();
    assert_eq!((explained.here, explained.running), (Some(MS), None));
    let explained = pool.core.explain(pool.now, waiting).unwrap().waiting.unwrap();
    assert_eq!((explained.here, explained.slots), (Some((1, 1)), (0, 0, 0)));
}

#[test]
fn places_are_needed_where_there_are_tasks() {
    assert!(config(0).validate().unwrap_err().contains("no place"));
    assert_eq!(CoreConfig::default().validate(), Result::Ok(()));
}
