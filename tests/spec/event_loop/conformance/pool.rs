//! Work on the threads of a pool, as the loop sees it.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use offload_supervisor::event_loop::{EventLoop, RunMode};
use offload_supervisor::io_pool::{CancelOutcome, IoError, IoPool, IoPoolConfig};

use super::{milliseconds, real_loop};
use crate::stage::Order;

fn pool_of(threads: usize, event_loop: &mut EventLoop) -> IoPool {
    IoPool::new(event_loop, IoPoolConfig { threads, ..IoPoolConfig::default() }).unwrap()
}

/// A task that a thread is at until the sender is dropped.
fn occupy_a_thread(pool: &IoPool) -> (offload_supervisor::io_pool::TaskId, Sender<()>) {
    let (begun, has_begun) = mpsc::channel();
    let (release, released): (Sender<()>, Receiver<()>) = mpsc::channel();
    let task = move || {
        begun.send(()).unwrap();
        // It ends with an error when the other end is dropped, and that is what it waits for.
        let _ = released.recv();
    };
    let task = pool.submit(task, |_, result| assert!(result.is_ok()));
    has_begun.recv().unwrap();
    (task, release)
}

#[test]
fn work_runs_on_another_thread_and_its_answer_on_the_loops() {
    let mut event_loop = real_loop();
    let order = Order::new();
    let pool = pool_of(1, &mut event_loop);
    assert!(!event_loop.is_alive(), "a pool without work is no reason to live");
    let log = order.clone();
    pool.submit(
        || thread::current().id(),
        move |_, worker| log.push((worker.unwrap(), thread::current().id())),
    );
    assert!(event_loop.is_alive());
    assert!(!event_loop.run().unwrap());
    let here = thread::current().id();
    let (worker, answered) = order.so_far()[0];
    assert!(worker != here && answered == here);
    assert!(!event_loop.is_alive());
}

#[test]
fn answers_come_in_the_poll_phase_never_from_within_submit() {
    let mut event_loop = real_loop();
    let order = Order::new();
    let pool = pool_of(1, &mut event_loop);
    let (done, is_done) = mpsc::channel();
    let log = order.clone();
    pool.submit(move || done.send(()).unwrap(), move |_, _| log.push("answer"));
    is_done.recv().unwrap();
    assert!(order.so_far().is_empty());
    let timer = event_loop.set_interval(milliseconds(1), order.add("timer"));
    event_loop.prepare(order.add("prepare"));
    event_loop.check(order.add("check"));
    while !order.so_far().contains(&"answer") {
        event_loop.run_mode(RunMode::Once).unwrap();
    }
    assert!(event_loop.clear(timer));
    let order = order.so_far();
    let place = order.iter().position(|what| *what == "answer").unwrap();
    assert_eq!((order[place - 1], order[place + 1]), ("prepare", "check"), "{order:?}");
}

#[test]
fn ticks_run_between_two_answers() {
    let mut event_loop = real_loop();
    let order = Order::new();
    let pool = pool_of(1, &mut event_loop);
    for name in ["first", "second"] {
        let log = order.clone();
        pool.submit(
            || {},
            move |context, _| {
                log.push((name, "answer"));
                context.next_tick(log.add((name, "tick")));
            },
        );
    }
    event_loop.run().unwrap();
    let expected = [("first", "answer"), ("first", "tick"), ("second", "answer"), ("second", "tick")];
    assert_eq!(order.so_far(), expected);
}

#[test]
fn loops_on_several_threads_have_their_pools_side_by_side() {
    let loops: Vec<_> = (0..4)
        .map(|number| {
            thread::spawn(move || {
                let mut event_loop = real_loop();
                let order = Order::new();
                let pool = pool_of(2, &mut event_loop);
                for task in 0..50 {
                    let log = order.clone();
                    pool.submit(move || (number, task), move |_, result| log.push(result.unwrap()));
                }
                assert!(!event_loop.run().unwrap());
                let mut answers = order.so_far();
                answers.sort();
                assert_eq!(answers, (0..50).map(|task| (number, task)).collect::<Vec<_>>());
            })
        })
        .collect();
    loops.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn work_that_waits_is_cancelled_and_answered_later_and_once() {
    let mut event_loop = real_loop();
    let order = Order::new();
    let pool = pool_of(1, &mut event_loop);
    let (_, release) = occupy_a_thread(&pool);
    let log = order.clone();
    let task = pool.submit(
        || panic!("a cancelled task runs"),
        move |_, result: Result<(), IoError>| log.push(result.unwrap_err().to_string()),
    );
    assert_eq!(pool.cancel(task), CancelOutcome::Cancelled);
    assert_eq!(pool.cancel(task), CancelOutcome::NotFound, "it was cancelled before");
    assert!(order.so_far().is_empty(), "the answer comes from the loop");
    drop(release);
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), [IoError::Cancelled.to_string()]);
}

#[test]
fn a_timer_cancels_all_work_that_waits_and_none_of_it_runs() {
    let mut event_loop = real_loop();
    let order = Order::new();
    let pool = pool_of(2, &mut event_loop);
    let blockers = [occupy_a_thread(&pool), occupy_a_thread(&pool)];
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let log = order.clone();
            pool.submit(
                || panic!("a cancelled task runs"),
                move |_, result: Result<(), IoError>| {
                    assert!(matches!(result, Err(IoError::Cancelled)));
                    log.push(number);
                },
            )
        })
        .collect();
    event_loop.set_timeout(milliseconds(1), move |_| {
        assert!(tasks.into_iter().all(|task| pool.cancel(task) == CancelOutcome::Cancelled));
        drop(blockers);
    });
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), (0..20).collect::<Vec<_>>());
}

#[test]
fn work_that_runs_cannot_be_cancelled_and_says_so() {
    let mut event_loop = real_loop();
    let pool = pool_of(1, &mut event_loop);
    let (task, release) = occupy_a_thread(&pool);
    assert_eq!(pool.cancel(task), CancelOutcome::Running);
    drop(release);
    assert!(!event_loop.run().unwrap());
    assert_eq!(pool.cancel(task), CancelOutcome::NotFound);
}

#[test]
fn a_loop_may_be_dropped_while_work_is_under_way() {
    let mut event_loop = real_loop();
    let pool = pool_of(1, &mut event_loop);
    let (_, release) = occupy_a_thread(&pool);
    pool.submit(|| {}, |_, _| panic!("the loop is gone"));
    drop(event_loop);
    drop(pool);
    drop(release);
}
