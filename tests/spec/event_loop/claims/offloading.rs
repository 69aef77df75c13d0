//! S48 to S59: which work should be offloaded to another process, and what that costs.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use offload_event_loop::EventLoop;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::{ComputePool, Finished, Job, PoolConfig, default_workers};
use offload_worker::builtin::average::Average;

use super::props::{compute_pool, computing_time, io_pool, milliseconds, real_loop};
use crate::stage::{Order, alone, beside_others};

/// Runs jobs to their end on `pool`, all of them submitted at once; the results in the order of the jobs.
fn finish_all(event_loop: &mut EventLoop, pool: &ComputePool, jobs: Vec<Job>) -> Vec<Finished> {
    let results = Rc::new(RefCell::new(vec![None; jobs.len()]));
    for (place, job) in jobs.into_iter().enumerate() {
        let results = Rc::clone(&results);
        pool.submit(job, move |finished, _| results.borrow_mut()[place] = Some(finished));
    }
    event_loop.run().unwrap();
    results.take().into_iter().map(|finished| finished.expect("every job ends")).collect()
}

/// The search of the seed that never ends, if the engine goes back.
fn redos(engine: &str) -> Job {
    let text = format!("{}\n", "/".repeat(100));
    let input = serde_json::json!({"pattern": r"(\/.+)+$", "text": text, "engine": engine});
    Job::new("regex").input(input.to_string())
}

#[test]
fn s48_the_search_that_never_ends_is_answered_by_the_linear_engine_and_cut_in_the_other() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let pool = compute_pool(&event_loop, 2);
    let turns = Rc::new(Cell::new(0));
    let turning = Rc::clone(&turns);
    let beat = event_loop.set_interval(milliseconds(1), move |_| turning.set(turning.get() + 1));
    event_loop.unref(beat);
    let jobs = vec![redos("linear"), redos("backtracking").timeout(milliseconds(300))];
    let finished = finish_all(&mut event_loop, &pool, jobs);
    assert_eq!(finished[0].output, r#"{"matched":false}"#, "{:?}", finished[0].report);
    let computed = finished[0].report.receipt.usage;
    assert!(computed.cpu_user_us + computed.cpu_system_us < 100_000, "{:?}", finished[0].report);
    assert_eq!(finished[1].report.outcome, OutcomeCode::Timeout);
    assert!(turns.get() >= 3, "the loop had only {} turns meanwhile", turns.get());
}

/// The document of the seed, which doubles its object again and again: `{"a":1}`, then `{"obj1":...,"obj2":...}`.
fn doubled_document(times: u32) -> String {
    (0..times).fold(r#"{"a":1}"#.to_owned(), |inner, _| format!(r#"{{"obj1":{inner},"obj2":{inner}}}"#))
}

/// The most that one iteration of the loop computes, from here on.
fn longest_iteration(event_loop: &EventLoop) -> Rc<Cell<Duration>> {
    let longest = Rc::new(Cell::new(Duration::ZERO));
    let (seen, mut before) = (Rc::clone(&longest), computing_time());
    let hook = event_loop.prepare(move |_| {
        let now = computing_time();
        seen.set(seen.get().max(now - before));
        before = now;
    });
    event_loop.unref(hook);
    longest
}

#[test]
fn s50_a_json_document_of_50_megabytes_is_parsed_and_the_loop_does_not_notice() {
    let _alone = alone();
    let mut event_loop = real_loop();
    let pool = compute_pool(&event_loop, 1);
    let document = doubled_document(21);
    let bytes = document.len();
    assert!(bytes > 50_000_000);
    // The document is the client's work; everything from its submission on is the loop's.
    let job = Job::new("json").input(document);
    let output = Rc::new(RefCell::new(None));
    let (workers, result) = (pool.clone(), Rc::clone(&output));
    event_loop.set_immediate(move |_| {
        workers.submit(job, move |finished, _| *result.borrow_mut() = Some(finished.into_output()));
    });
    let longest = longest_iteration(&event_loop);
    event_loop.run().unwrap();
    let output = output.take().expect("the job has ended").unwrap();
    let measures: serde_json::Value = serde_json::from_slice(&output).unwrap();
    assert_eq!((&measures["bytes"], &measures["minified_bytes"]), (&bytes.into(), &bytes.into()));
    // 2^21 numbers, an object around each, and those that join two.
    assert_eq!((&measures["values"], &measures["depth"]), (&(3 * (1 << 21) - 1).into(), &22.into()));
    assert!(longest.get() < Duration::from_millis(20), "{longest:?}");
}

fn average_job(n: u64) -> Job {
    Job::new("average").input(n.to_string())
}

#[test]
fn s51_partitioned_and_offloaded_an_average_is_the_same_as_in_one_go() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let pool = compute_pool(&event_loop, 1);
    let (n, partitioned) = (100_000, Rc::new(Cell::new(None)));
    let result = Rc::clone(&partitioned);
    let average = || Average::new(n).unwrap();
    event_loop.partition(average(), Average::step, move |_, average| result.set(Some(average)));
    let offloaded = finish_all(&mut event_loop, &pool, vec![average_job(n)]).remove(0);
    assert_eq!(partitioned.get(), Some(average().finish()));
    assert_eq!(offloaded.into_output().unwrap(), average().finish().to_string());
}

#[test]
fn s54_partitioning_stays_on_the_loops_core_and_offloading_uses_others_at_the_same_time() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let pool = compute_pool(&event_loop, 2);
    let loop_thread = std::thread::current().id();
    let step = move |average: &mut Average| {
        assert_eq!(std::thread::current().id(), loop_thread);
        average.step()
    };
    event_loop.partition(Average::new(10_000).unwrap(), step, |_, average| assert_eq!(average, 5_000.5));
    // Each of them alone keeps a worker until it is cut, so they need two.
    let endless = || redos("backtracking").timeout(milliseconds(200));
    let finished = finish_all(&mut event_loop, &pool, vec![endless(), endless()]);
    let workers: HashSet<_> = finished.iter().map(|finished| finished.report.receipt.worker_pid).collect();
    assert_eq!(workers.len(), 2, "{finished:?}");
    assert!(!workers.contains(&std::process::id()) && !workers.contains(&0), "{workers:?}");
}

#[test]
fn s55_two_workers_do_the_jobs_of_a_hundred_clients() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let pool = compute_pool(&event_loop, 2);
    let jobs = (1..=100).map(|client| average_job(client).client(format!("client {client}"))).collect();
    let finished = finish_all(&mut event_loop, &pool, jobs);
    assert!(finished.iter().all(|finished| finished.report.outcome == OutcomeCode::Ok));
    let workers: HashSet<_> = finished.iter().map(|finished| finished.report.receipt.worker_pid).collect();
    assert!(workers.len() <= 2, "{workers:?}");
}

#[test]
fn s56_input_and_output_of_a_job_are_copied_to_another_process_and_back() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let pool = compute_pool(&event_loop, 1);
    let input: Vec<u8> = (0..1_000_000).map(|index| (index % 251) as u8).collect();
    let finished = finish_all(&mut event_loop, &pool, vec![Job::new("echo").input(input.clone())]).remove(0);
    let receipt = &finished.report.receipt;
    assert_eq!((receipt.input_bytes, receipt.output_bytes), (1_000_000, 1_000_000));
    assert_ne!(receipt.worker_pid, std::process::id());
    assert!(finished.output == input, "other bytes came back");
}

#[test]
fn s57_there_are_as_many_workers_as_logical_cores_unless_told_otherwise() {
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(default_workers(), cores);
    assert_eq!(PoolConfig::default().core.workers, cores);
}

#[test]
fn s58_tasks_that_wait_make_progress_on_more_threads_than_there_are_cores() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let count = 4 * default_workers();
    let pool = io_pool(&mut event_loop, count);
    // It opens when all of them have come: each has begun to wait while no other was done.
    let meeting = Arc::new(Barrier::new(count));
    let done = Rc::new(Cell::new(0));
    for _ in 0..count {
        let (meeting, done) = (Arc::clone(&meeting), Rc::clone(&done));
        pool.submit(
            move || meeting.wait(),
            move |_, result| {
                result.unwrap();
                done.set(done.get() + 1);
            },
        );
    }
    event_loop.run().unwrap();
    assert_eq!(done.get(), count);
}

#[test]
fn s59_computations_that_fill_their_own_pool_do_not_keep_a_file_from_being_read() {
    let _beside = beside_others();
    let (mut event_loop, order) = (real_loop(), Order::new());
    let computations = compute_pool(&event_loop, 1);
    let files = Rc::new(io_pool(&mut event_loop, 1));
    let ended = order.clone();
    let hour = Duration::from_secs(3_600);
    let job = Job::new("spin").input(hour.as_millis().to_string()).timeout(hour);
    computations.submit(job, move |finished, _| ended.push(finished.report.outcome.as_str()));
    let (pool, reading, read) = (computations.clone(), Rc::clone(&files), order.clone());
    computations.when_ready(move |_| {
        reading.fs_read(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), 1 << 20, move |_, contents| {
            assert!(contents.unwrap().starts_with(b"[package]"));
            read.push("file");
            pool.shutdown(|_| ());
        });
    });
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["file", "cancelled"]);
}
