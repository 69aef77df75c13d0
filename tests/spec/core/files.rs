//! Jobs whose inputs are files: how many there may be, which workers get them, and what happens if none takes them.

use offload_core::config::CoreConfig;
use offload_core::event::{Event, JobRequest, Key};
use offload_core::ids::{JobId, WorkerId};
use offload_core::kept::Owner;
use offload_protocol::nouns::OutcomeCode::*;
use tests::pool_under_test::{PoolUnderTest, Start, offers};

const MIB: u64 = 1 << 20;

fn pool(workers: usize, change: impl FnOnce(&mut CoreConfig)) -> PoolUnderTest {
    let mut config = CoreConfig { workers, spares: 0, short_slots: Some(0), ..CoreConfig::default() };
    change(&mut config);
    PoolUnderTest::with(config, Start::Hello)
}

fn with_file(client: &str) -> impl FnOnce(&mut JobRequest) {
    move |request| {
        (request.has_file, request.input_bytes) = (true, 60 * MIB);
        request.client = client.into();
    }
}

fn submit(pool: &mut PoolUnderTest, client: &str) -> JobId {
    pool.submit_with("sum", with_file(client))
}

fn say_hello(pool: &mut PoolUnderTest, worker: WorkerId, takes_files: bool) {
    pool.event(Event::Hello { worker, tasks: offers(), takes_files });
}

#[test]
fn a_file_takes_no_memory_and_is_open_until_its_job_has_ended() {
    let mut pool = pool(1, |config| config.max_bytes = 64 * MIB);
    let jobs: Vec<JobId> = (0..4).map(|_| submit(&mut pool, "ann")).collect();
    assert_eq!((pool.core.ledger().all().total(), pool.core.files().open_of("ann")), (0, 4));
    for (done, job) in jobs.into_iter().enumerate() {
        assert_eq!(pool.core.files().open(), 4 - done);
        pool.run(job);
    }
    assert_eq!((pool.core.files().open(), pool.core.files().open_of("ann")), (0, 0));
    let too_long = pool.refusal_with("sum", |request| {
        with_file("ann")(request);
        request.input_bytes = 64 * MIB + 1;
    });
    assert_eq!(too_long.code, TooLarge);
}

#[test]
fn a_job_that_is_lost_keeps_its_file_for_the_next_attempt() {
    let mut pool = pool(1, |_| ());
    let job = submit(&mut pool, "ann");
    pool.start(job);
    pool.crash_the_worker_running(job);
    assert_eq!(pool.core.files().open(), 1);
    pool.run(job);
    assert_eq!((pool.outcome(job), pool.core.files().open()), (Some(Ok), 0));
}

#[test]
fn a_client_may_have_as_many_files_as_it_leaves_free() {
    let mut pool = pool(1, |config| config.max_files = 8);
    let mut accepted = |client: &str| (0..).take_while(|_| pool.accepts("sum", with_file(client))).count();
    assert_eq!([accepted("ann"), accepted("bob"), accepted("cat")], [4, 2, 1]);
    let refused = pool.rejected[0].clone();
    assert_eq!(refused.code, Unsupported);
    assert!(
        refused.message.contains("4 files are open for this client")
            && refused.message.contains("send its bytes")
    );
    assert_eq!(pool.core.tally().rejected(), 0, "the client sends the bytes now");
    assert!(pool.accepts("sum", |request| request.client = "ann".into()));
}

#[test]
fn the_bytes_are_asked_for_where_a_file_is_of_no_use() {
    let mut pool = PoolUnderTest::with(CoreConfig::default(), Start::Wait);
    let detached = pool.refusal_with("sum", |request| {
        with_file("ann")(request);
        request.keeps_output = true;
    });
    assert!(detached.message.contains("not known yet"), "{}", detached.message);
    let worker = pool.core.slots()[0].worker().unwrap();
    say_hello(&mut pool, worker, true);
    let keyed = pool.refusal_with("sum", |request| {
        with_file("ann")(request);
        request.owner = Owner::of("ann");
        request.key = Some(Key { name: "k".to_owned(), digest: 1 });
    });
    assert!(keyed.message.contains("idempotency key"), "{}", keyed.message);
    assert!([detached.code, keyed.code] == [Unsupported; 2]);
    assert!(pool.accepts("sum", |request| {
        with_file("ann")(request);
        request.keeps_output = true;
    }));
}

#[test]
fn a_job_that_waits_for_the_first_worker_ends_unrun_if_that_takes_no_files() {
    for takes_files in [true, false] {
        let mut pool = PoolUnderTest::with(CoreConfig::default(), Start::Wait);
        let job = submit(&mut pool, "ann");
        let worker = pool.core.slots()[0].worker().unwrap();
        say_hello(&mut pool, worker, takes_files);
        match takes_files {
            true => pool.run(job),
            false => assert!(pool.message(job).contains("not all workers of this task take a file")),
        }
        let expected = if takes_files { Ok } else { Unsupported };
        assert_eq!((pool.outcome(job), pool.core.files().open()), (Some(expected), 0));
    }
}

#[test]
fn as_soon_as_a_worker_comes_that_takes_no_files_waiting_jobs_with_files_end_and_block_nobody() {
    let config = CoreConfig { workers: 2, spares: 0, short_slots: Some(0), ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Wait);
    let workers: Vec<WorkerId> = pool.core.slots().iter().filter_map(|slot| slot.worker()).collect();
    say_hello(&mut pool, workers[1], true);
    let (first, second) = (submit(&mut pool, "ann"), submit(&mut pool, "ann"));
    let inline = pool.submit_with("sum", |request| request.client = "ann".into());
    assert_eq!(pool.start(first), workers[1]);
    say_hello(&mut pool, workers[0], false);
    assert_eq!((pool.outcome(second), pool.outcome(first)), (Some(Unsupported), None));
    assert_eq!(pool.start(inline), workers[0]);
    assert_eq!(pool.refusal_with("sum", with_file("ann")).code, Unsupported);
    pool.finish(first);
    assert_eq!((pool.outcome(first), pool.core.files().open()), (Some(Ok), 0));
}

#[test]
fn a_job_with_a_file_that_is_lost_ends_if_a_worker_has_come_that_takes_none() {
    let config = CoreConfig { workers: 2, spares: 0, short_slots: Some(0), ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Wait);
    let workers: Vec<WorkerId> = pool.core.slots().iter().filter_map(|slot| slot.worker()).collect();
    say_hello(&mut pool, workers[1], true);
    let job = submit(&mut pool, "ann");
    pool.start(job);
    say_hello(&mut pool, workers[0], false);
    pool.crash_the_worker_running(job);
    assert_eq!((pool.outcome(job), pool.core.files().open()), (Some(Unsupported), 0));
}

#[test]
fn a_job_with_a_file_lies_in_no_tray_and_shares_no_worker_with_tiny_jobs() {
    let mut pool = pool(1, |_| ());
    pool.workers_have_trays();
    for _ in 0..3 {
        let job = pool.submit("sum");
        pool.run(job);
    }
    let first = pool.submit("sum");
    pool.start(first);
    let small_file = |request: &mut JobRequest| request.has_file = true;
    let second = pool.submit_with("sum", small_file);
    assert_eq!((pool.tray_with(second), pool.worker_with(second)), (None, None));
    pool.finish(first);
    let worker = pool.start(second);
    pool.finish_after(second, std::time::Duration::from_micros(1));
    for _ in 0..60 {
        let job = pool.submit("sum");
        pool.start(job);
        pool.finish_after(job, std::time::Duration::from_micros(1));
    }
    let tiny: Vec<JobId> = (0..3).map(|_| pool.submit("sum")).collect();
    assert!(tiny.iter().all(|job| pool.worker_with(*job) == Some(worker)), "a window of tiny jobs");
    let with_file = pool.submit_with("sum", small_file);
    assert_eq!(pool.worker_with(with_file), None, "it is in no window");
}
