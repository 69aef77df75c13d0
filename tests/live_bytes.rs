//! Very many jobs leave not a single byte behind. This process is the supervisor, and all its allocations are counted.
//!
//! A pool does `OFFLOAD_SOAK_JOBS` jobs (100,000 by default). Meanwhile it remembers 10,000 ended jobs in a tree whose nodes
//! are more or less full. So the memory changes a little from round to round, but in the second half it is hardly larger than
//! in the first. When the pool is dropped, exactly as much memory is allocated as before it was started. Each round ends with streams,
//! some of which are left midway, with payloads that go through shared memory, and with as many jobs again that are taken back.

use bytes::Bytes;
use offload_protocol::nouns::MediaType;
use offload_supervisor::{ComputePool, Context, EventLoop, Job, Level, PoolConfig, Program};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tests::chaos::jobs::KnownJob;
use tests::chaos::seed::Seed;
use tests::harness::{program, until};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Jobs of a round: as many as are remembered.
const ROUND: u64 = 10_000;
/// Bytes of a large payload.
const LARGE: usize = 300_000;
/// Jobs under way.
const IN_FLIGHT: u64 = 128;
/// Jobs of each further kind in a round: streams, and payloads that go through shared memory.
const OTHERS: u64 = 20;
/// So many jobs are taken back at a time: most of them wait, a few have been given to a worker.
const TAKEN_BACK: u64 = 100;
/// So much more may be there in one round than in another, in bytes.
const BREATH: usize = 128 << 10;

/// Bytes that are allocated now.
fn live_bytes() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Somebody who always has some jobs under way.
struct Client {
    pool: ComputePool,
    seed: RefCell<Seed>,
    left: Cell<u64>,
    right: Cell<u64>,
}

impl Client {
    /// Returns when a round of jobs is done, the same ones each time.
    fn run(self: &Rc<Self>, event_loop: &mut EventLoop) {
        self.seed.replace(Seed::new(1));
        self.left.set(ROUND);
        (0..IN_FLIGHT).for_each(|_| self.submit());
        event_loop.run().unwrap();
    }

    fn submit(self: &Rc<Self>) {
        let Some(left) = self.left.get().checked_sub(1) else { return };
        self.left.set(left);
        let job = KnownJob::some(&mut self.seed.borrow_mut());
        let me = Rc::clone(self);
        let call = Job::new(job.task).input(job.input.clone());
        self.pool.submit(call, move |finished, _: &mut Context| {
            assert!(job.is_answered_by(&finished.into_output().unwrap()));
            me.right.set(me.right.get() + 1);
            me.submit();
        });
    }
}

/// Streams, every second of which is left midway, and large payloads.
fn run_others(pool: &ComputePool, event_loop: &mut EventLoop) {
    let (pool, handle) = (pool.clone(), event_loop.handle());
    event_loop.spawn(async move {
        for number in 0..OTHERS {
            let mut stream = pool.stream(Job::new("count").input("100").media_type(MediaType::JSON));
            let mut bytes = stream.next().await.unwrap().len();
            while number % 2 == 0
                && let Some(part) = stream.next().await
            {
                bytes += part.len();
            }
            assert!(number % 2 == 1 || bytes == 9 * 2 + 90 * 3 + 4, "{bytes}");
            drop(stream);
            let large = Bytes::from(vec![number as u8; LARGE]);
            let finished = pool.call(Job::new("echo").input(large.clone())).await;
            assert!(finished.into_output().unwrap() == large);
        }
        handle.stop();
    });
    event_loop.run().unwrap();
}

/// Submits jobs and takes them back, over and over.
fn take_back(pool: &ComputePool, event_loop: &mut EventLoop) {
    let (pool, handle) = (pool.clone(), event_loop.handle());
    event_loop.spawn(async move {
        for _ in 0..ROUND / TAKEN_BACK {
            let mut calls: Vec<_> =
                (0..TAKEN_BACK).map(|_| pool.call(Job::new("sleep").input("3600000"))).collect();
            poll_fn(|context| {
                assert!(calls.iter_mut().all(|call| Pin::new(call).poll(context).is_pending()));
                Poll::Ready(())
            })
            .await;
            handle.sleep(Duration::ZERO).await;
            drop(calls);
        }
        // It has been heard of all of them.
        assert!(pool.call(Job::new("echo").input("x")).await.into_output().is_ok());
        handle.stop();
    });
    event_loop.run().unwrap();
}

/// A pool does so many rounds and is dropped. What was allocated after each.
///
/// It lives on a thread of its own: a thread that has to wait for another one keeps a little for the next time it has to, and
/// whether it ever has to is chance.
fn live(rounds: u64) -> Vec<usize> {
    std::thread::spawn(move || live_here(rounds)).join().unwrap()
}

fn live_here(rounds: u64) -> Vec<usize> {
    let mut event_loop = EventLoop::new().unwrap();
    let words = vec![program("offload").display().to_string(), "worker".to_owned()];
    let mut config = PoolConfig { log: Level::Quiet, ..PoolConfig::with(Program::command(words)) };
    config.core.workers = 2;
    let pool = ComputePool::start(config, &event_loop).unwrap();
    let seed = RefCell::new(Seed::new(1));
    let client = Rc::new(Client { pool, seed, left: Cell::new(0), right: Cell::new(0) });
    let mut after_each = Vec::with_capacity(rounds as usize);
    for _ in 0..rounds {
        client.run(&mut event_loop);
        run_others(&client.pool, &mut event_loop);
        take_back(&client.pool, &mut event_loop);
        after_each.push(live_bytes());
    }
    assert_eq!(client.right.get(), rounds * ROUND);
    after_each
}

/// How many threads this process has now. A thread is counted until it has run its last instruction, and then all that it
/// frees is freed.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Bytes that are allocated when the pool that was dropped has left nothing running: its threads end by themselves.
fn live_bytes_beside(own_threads: usize) -> usize {
    until("the threads of the pool have ended", || (threads() == own_threads).then(live_bytes))
}

#[test]
fn very_many_jobs_leave_not_one_byte_behind() {
    let jobs = std::env::var("OFFLOAD_SOAK_JOBS").map_or(100_000, |jobs| jobs.parse::<u64>().unwrap());
    let own_threads = threads();
    // What a process allocates once and keeps is there after this.
    live(1);
    let before = live_bytes_beside(own_threads);
    let after_each = live(jobs.div_ceil(ROUND).max(4));
    let (first, second) = after_each.split_at(after_each.len() / 2);
    let [first, second] = [first, second].map(|half| half.iter().max().copied().unwrap());
    drop(after_each);
    // Nothing is printed before this: what a test prints is kept in memory.
    let after = live_bytes_beside(own_threads);
    println!(
        "{jobs} jobs: {before} bytes, at most {first} in the first half and {second} in the second, {after}"
    );
    assert_eq!(after, before);
    assert!(second <= first + BREATH, "it grows");
}
