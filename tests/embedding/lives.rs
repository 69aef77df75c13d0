//! How long a pool lives: through a drain although nobody has it any more, and never longer than its loop because of callbacks.

use super::{config, endless};
use offload_supervisor::event_loop::LoopHandle;
use offload_supervisor::protocol::nouns::OutcomeCode;
use offload_supervisor::{ComputePool, EventLoop, Job, PoolConfig, Program};
use std::cell::RefCell;
use std::rc::Rc;
use tests::harness::{PATIENCE, wait_for_end};

type Told = Rc<RefCell<Vec<&'static str>>>;

fn tell(told: &Told, what: &'static str) {
    told.borrow_mut().push(what);
}

/// A pool with one worker and a job, which tells of its end.
fn with_a_job(event_loop: &mut EventLoop, told: &Told, job: Job) -> ComputePool {
    let pool = ComputePool::start(config(1), event_loop).unwrap();
    let told = Rc::clone(told);
    pool.submit(job, move |finished, _| match finished.report.outcome {
        OutcomeCode::Ok => tell(&told, "ok"),
        OutcomeCode::Cancelled => tell(&told, "cancelled"),
        other => panic!("{other}"),
    });
    pool
}

#[test]
fn a_drain_goes_on_without_the_pool_and_says_when_it_is_done() {
    let mut event_loop = EventLoop::new().unwrap();
    let told = Told::default();
    let pool = with_a_job(&mut event_loop, &told, Job::new("sleep").input("20"));
    let done = Rc::clone(&told);
    pool.drain(move |_| tell(&done, "drained"));
    drop(pool);
    event_loop.run().unwrap();
    assert_eq!(*told.borrow(), ["ok", "drained"]);
}

#[test]
fn a_shutdown_by_a_callback_that_owns_the_last_clone_says_when_it_is_done() {
    let mut event_loop = EventLoop::new().unwrap();
    let told = Told::default();
    let pool = with_a_job(&mut event_loop, &told, endless());
    let workers = run_until_running(&mut event_loop, &pool);
    let done = Rc::clone(&told);
    event_loop.set_immediate(move |_| pool.shutdown(move |_| tell(&done, "ended")));
    event_loop.run().unwrap();
    assert_eq!(*told.borrow(), ["cancelled", "ended"]);
    all_end(workers);
}

async fn until_running(pool: &ComputePool, event_loop: &LoopHandle) -> Vec<u32> {
    while pool.status().jobs["running"] == 0 {
        event_loop.next_iteration().await;
    }
    pool.workers().into_iter().filter_map(|worker| worker.pid).collect()
}

/// Runs the loop until the job runs. Returns the processes of the workers.
fn run_until_running(event_loop: &mut EventLoop, pool: &ComputePool) -> Vec<u32> {
    let (pool, handle) = (pool.clone(), (**event_loop).clone());
    let workers = event_loop.spawn(async move {
        let workers = until_running(&pool, &handle).await;
        handle.stop();
        workers
    });
    event_loop.run().unwrap();
    let workers = workers.take_result().expect("it has ended").expect("it did not panic");
    assert_eq!(workers.len(), 1);
    workers
}

fn all_end(workers: Vec<u32>) {
    for worker in workers {
        assert!(wait_for_end(worker, PATIENCE), "worker process {worker} lives on");
    }
}

/// Says when it is dropped.
struct Dropped(Told);

impl Drop for Dropped {
    fn drop(&mut self) {
        tell(&self.0, "dropped");
    }
}

/// Each job has a callback with a clone of the pool, to submit the next one.
#[test]
fn a_callback_that_waits_in_the_pool_keeps_it_no_longer_than_the_loop() {
    let mut event_loop = EventLoop::new().unwrap();
    let pool = ComputePool::start(config(1), &event_loop).unwrap();
    let (told, next) = (Told::default(), pool.clone());
    let dropped = Dropped(Rc::clone(&told));
    pool.submit(endless(), move |_, _| {
        next.submit(endless(), move |_, _| drop(dropped));
    });
    let workers = run_until_running(&mut event_loop, &pool);
    drop(event_loop);
    assert_eq!(*told.borrow(), ["dropped"], "nobody will call it");
    drop(pool);
    all_end(workers);
}

/// A drain has the pool, and its callback has what comes back to the pool when it is dropped.
#[test]
fn a_drain_that_is_under_way_ends_with_the_loop() {
    let mut event_loop = EventLoop::new().unwrap();
    let told = Told::default();
    let pool = with_a_job(&mut event_loop, &told, endless());
    let workers = run_until_running(&mut event_loop, &pool);
    let (call, dropped) = (pool.call(endless()), Dropped(Rc::clone(&told)));
    pool.drain(move |_| drop((call, dropped)));
    drop(pool);
    assert!(told.borrow().is_empty());
    drop(event_loop);
    assert_eq!(*told.borrow(), ["dropped"]);
    all_end(workers);
}

#[test]
fn what_waits_for_a_worker_is_dropped_with_the_loop() {
    let event_loop = EventLoop::new().unwrap();
    let program = Program::command(vec!["/nonexistent/worker".to_owned()]);
    let pool = ComputePool::start(PoolConfig { programs: vec![program], ..config(1) }, &event_loop).unwrap();
    let (told, other) = (Told::default(), pool.clone());
    let dropped = Dropped(Rc::clone(&told));
    pool.when_ready(move |_| drop((other, dropped)));
    drop(event_loop);
    assert_eq!(*told.borrow(), ["dropped"]);
}

#[test]
fn without_a_loop_every_callback_is_dropped_at_once() {
    let event_loop = EventLoop::new().unwrap();
    let pool = ComputePool::start(config(1), &event_loop).unwrap();
    drop(event_loop);
    let told = Told::default();
    let owned = || (pool.clone(), pool.call(endless()), Dropped(Rc::clone(&told)));
    let (submitted, ready, drained, ended) = (owned(), owned(), owned(), owned());
    pool.submit(endless(), move |_, _| drop(submitted));
    pool.when_ready(move |_| drop(ready));
    pool.drain(move |_| drop(drained));
    pool.shutdown(move |_| drop(ended));
    assert_eq!(told.borrow().len(), 4);
}
