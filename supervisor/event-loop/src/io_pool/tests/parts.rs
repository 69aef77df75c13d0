//! Tasks in parts, and the cancelling of tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

#[test]
fn s66_between_two_parts_of_a_task_others_have_their_turn() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let order = Order::default();
    let blocked = block_a_thread(&pool, &Answers::default());
    pool.submit_parts(parts(3), note(&order, "long"));
    pool.submit(|| (), note(&order, "short"));
    drop(blocked);
    event_loop.run().unwrap();
    assert_eq!(*order.borrow(), ["short", "long"]);
}

#[test]
fn s65_random_bytes_let_short_tasks_pass() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let order = Order::default();
    let blocked = block_a_thread(&pool, &Answers::default());
    pool.random_bytes(RANDOM_PART + 1, note(&order, "two parts"));
    pool.random_bytes(RANDOM_PART, note(&order, "one part"));
    pool.submit(|| (), note(&order, "short"));
    drop(blocked);
    event_loop.run().unwrap();
    assert_eq!(*order.borrow(), ["one part", "short", "two parts"]);
}

#[test]
fn s67_an_average_is_computed_on_the_pool_in_parts() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let answers = Answers::default();
    let (count, numbers_a_part) = (100_000_u64, 1_000);
    let (mut sum, mut next) = (0, 1);
    let part = move || {
        let end = count.min(next + numbers_a_part - 1);
        sum += (next..=end).sum::<u64>();
        next = end + 1;
        if end == count { ControlFlow::Break(sum / count) } else { ControlFlow::Continue(()) }
    };
    pool.submit_parts(part, collect(&answers));
    event_loop.run().unwrap();
    assert_eq!(answers.take(), [Ok(50_000)]);
}

#[test]
fn s68_tasks_of_few_parts_are_done_before_those_of_many() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let order = Order::default();
    let blocked = block_a_thread(&pool, &Answers::default());
    pool.submit_parts(parts(100), note(&order, "hundred"));
    pool.submit_parts(parts(10), note(&order, "ten"));
    pool.submit_parts(parts(1), note(&order, "one"));
    drop(blocked);
    event_loop.run().unwrap();
    assert_eq!(*order.borrow(), ["one", "ten", "hundred"]);
}

#[test]
fn s69_tasks_are_counted_and_not_their_parts() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let order = Order::default();
    pool.submit_parts(parts(100), note(&order, "long"));
    pool.submit_parts(parts(1), note(&order, "short"));
    pool.submit(|| panic!("ouch"), |_, _: Result<(), IoError>| ());
    let cancelled = pool.submit(|| (), |_, _| ());
    let was_cancelled = pool.cancel(cancelled) == CancelOutcome::Cancelled;
    event_loop.run().unwrap();
    assert_eq!(pool.stats().finished, if was_cancelled { 3 } else { 4 });
}

fn block_by_a_known_task(pool: &IoHandle, answers: &Answers<u32>) -> (Blocked, TaskId) {
    let (say_begun, begun) = mpsc::channel();
    let (let_go, wait) = mpsc::channel::<()>();
    let task = move || {
        say_begun.send(()).expect("the test listens");
        let _ = wait.recv();
        0
    };
    let task = pool.submit(task, collect(answers));
    begun.recv().unwrap();
    (Blocked { begun, let_go }, task)
}

#[test]
fn a_waiting_task_can_be_cancelled_and_a_running_one_says_that_it_runs() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let answers = Answers::default();
    let (blocked, running) = block_by_a_known_task(&pool, &answers);
    let waiting = pool.submit(|| 1, collect(&answers));
    assert_eq!(pool.cancel(running), CancelOutcome::Running);
    assert_eq!(pool.cancel(waiting), CancelOutcome::Cancelled);
    blocked.let_go.send(()).unwrap();
    event_loop.run().unwrap();
    assert_eq!(pool.cancel(waiting), CancelOutcome::NotFound);
    assert_eq!(pool.cancel(running), CancelOutcome::NotFound);
    assert_eq!(answers.borrow().len(), 2);
    assert!(answers.borrow().contains(&Err(IoError::Cancelled.to_string())));
}

#[test]
fn a_task_that_waits_between_two_parts_can_be_cancelled() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let answers = Answers::default();
    let begun = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&begun);
    let part = move || {
        counter.fetch_add(1, Ordering::Relaxed);
        ControlFlow::<u32>::Continue(())
    };
    let blocked = block_a_thread(&pool, &Answers::default());
    blocked.begun.recv().unwrap();
    let endless = pool.submit_parts(part, collect(&answers));
    let second = block_a_thread(&pool, &Answers::default());
    drop(blocked);
    second.begun.recv().unwrap();
    assert_eq!(pool.cancel(endless), CancelOutcome::Cancelled);
    drop(second);
    event_loop.run().unwrap();
    assert_eq!(begun.load(Ordering::Relaxed), 1);
    assert_eq!(answers.take(), [Err(IoError::Cancelled.to_string())]);
}

/// A task whose first part waits to be let go, and which then goes on if `goes_on`.
fn blocked_part(pool: &IoHandle, answers: &Answers<u32>, goes_on: bool) -> (Blocked, TaskId) {
    let (say_begun, begun) = mpsc::channel();
    let (let_go, wait) = mpsc::channel::<()>();
    let part = move || {
        say_begun.send(()).expect("the test listens");
        let _ = wait.recv();
        if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(7) }
    };
    let task = pool.submit_parts(part, collect(answers));
    begun.recv().unwrap();
    (Blocked { begun, let_go }, task)
}

#[test]
fn a_task_that_is_cancelled_while_a_part_runs_ends_after_this_part() {
    for (goes_on, answer) in [(true, Err(IoError::Cancelled.to_string())), (false, Ok(7))] {
        let (mut event_loop, pool) = pool_with(one_thread());
        let answers = Answers::default();
        let (Blocked { begun, let_go }, task) = blocked_part(&pool, &answers, goes_on);
        assert_eq!(pool.cancel(task), CancelOutcome::AfterThisPart);
        drop(let_go);
        event_loop.run().unwrap();
        assert_eq!(answers.take(), [answer]);
        assert!(begun.try_recv().is_err(), "another part has begun");
    }
}

#[test]
fn a_task_whose_part_runs_when_the_pool_is_dropped_is_answered() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let answers = Answers::default();
    let (blocked, _) = blocked_part(&pool, &answers, true);
    drop(pool);
    drop(blocked.let_go);
    event_loop.run().unwrap();
    assert_eq!(answers.take(), [Err("the pool offload-io was shut down".to_owned())]);
}
