//! How a pool ends.

use super::*;
use crate::RunMode;

#[test]
fn dropping_the_pool_answers_those_that_wait_and_does_not_wait_for_a_stuck_thread() {
    let (mut event_loop, pool) =
        pool_with(IoPoolConfig { deadline: Duration::from_millis(20), ..one_thread() });
    let answers = Answers::default();
    let blocked = block_a_thread(&pool, &answers);
    blocked.begun.recv().unwrap();
    pool.submit(|| 1, collect(&answers));
    drop(pool);
    event_loop.run().unwrap();
    assert_eq!(
        answers.take(),
        [
            Err(IoError::ShutDown { pool: "offload-io" }.to_string()),
            Err(IoError::TimedOut { pool: "offload-io" }.to_string())
        ]
    );
}

#[test]
fn a_shutdown_lets_what_was_submitted_finish_and_takes_no_more() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let answers = Answers::default();
    let blocked = block_a_thread(&pool, &answers);
    pool.submit(|| 1, collect(&answers));
    pool.submit_parts(|| ControlFlow::Break(2), collect(&answers));
    let at_the_end = Rc::clone(&answers);
    pool.shutdown(move |_| at_the_end.borrow_mut().push(Ok(100)));
    pool.submit(|| 3, collect(&answers));
    event_loop.set_immediate(move |_| drop(blocked.let_go));
    event_loop.run().unwrap();
    let refused = Err(IoError::ShutDown { pool: "offload-io" }.to_string());
    assert_eq!(answers.take(), [refused, Ok(0), Ok(1), Ok(2), Ok(100)]);
    wait_until("the threads go", || pool.stats().threads == 0);
}

#[test]
fn a_shutdown_does_not_wait_for_a_stuck_thread() {
    let deadline = Duration::from_millis(20);
    let (mut event_loop, pool) = pool_with(IoPoolConfig { deadline, threads_max: 1, ..one_thread() });
    let answers = Answers::default();
    let blocked = block_a_thread(&pool, &answers);
    blocked.begun.recv().unwrap();
    pool.submit(|| 1, collect(&answers));
    let at_the_end = Rc::clone(&answers);
    pool.shutdown(move |_| at_the_end.borrow_mut().push(Ok(100)));
    event_loop.run().unwrap();
    let late = Err(IoError::TimedOut { pool: "offload-io" }.to_string());
    assert_eq!(answers.take(), [late.clone(), late, Ok(100)]);
}

#[test]
fn the_shutdown_of_an_idle_pool_calls_back_and_never_from_within() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let order = Order::default();
    for _ in 0..2 {
        let end = note::<()>(&order, "end");
        pool.shutdown(move |context| end(context, Ok(())));
    }
    assert!(order.borrow().is_empty());
    event_loop.run().unwrap();
    assert_eq!(order.take(), ["end", "end"]);
}

#[test]
fn a_loop_that_is_dropped_drops_the_callbacks_that_wait_in_its_pool() {
    for is_pool_dropped_first in [true, false] {
        let (event_loop, pool) = pool_with(one_thread());
        let blocked = block_a_thread(&pool, &Answers::default());
        blocked.begun.recv().unwrap();
        let witness = Rc::new(());
        let owned = (Rc::clone(&witness), pool.handle());
        pool.shutdown(move |_| drop(owned));
        let owned = (Rc::clone(&witness), pool.handle());
        pool.set_on_stuck(move |_, _| drop(owned.clone()));
        let handle = pool.handle();
        if is_pool_dropped_first {
            drop(pool);
            drop(event_loop);
        } else {
            drop(event_loop);
            assert_eq!(Rc::strong_count(&witness), 1, "with the pool still there");
            drop(pool);
        }
        let owned = (Rc::clone(&witness), handle.clone());
        handle.shutdown(move |_| drop(owned));
        let owned = (Rc::clone(&witness), handle.clone());
        handle.set_on_stuck(move |_, _| drop(owned.clone()));
        assert_eq!(Rc::strong_count(&witness), 1);
    }
}

#[test]
fn a_pool_of_a_loop_that_is_gone_keeps_no_callback() {
    let pool = IoPool::new(&EventLoop::new().unwrap().handle(), one_thread()).unwrap();
    let witness = Rc::new(());
    let owned = || (Rc::clone(&witness), pool.handle());
    let (stuck, done, end) = (owned(), owned(), owned());
    pool.set_on_stuck(move |_, _| drop(stuck.clone()));
    pool.submit(|| (), move |_, _| drop(done));
    pool.shutdown(move |_| drop(end));
    assert_eq!(Rc::strong_count(&witness), 1);
}

#[test]
fn dropping_the_pool_while_it_shuts_down_gives_up_what_waits() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let answers = Answers::default();
    let blocked = block_a_thread(&pool, &answers);
    blocked.begun.recv().unwrap();
    pool.submit(|| 1, collect(&answers));
    let at_the_end = Rc::clone(&answers);
    pool.shutdown(move |_| at_the_end.borrow_mut().push(Ok(100)));
    drop(pool);
    event_loop.set_immediate(move |_| drop(blocked));
    event_loop.run().unwrap();
    let refused = Err(IoError::ShutDown { pool: "offload-io" }.to_string());
    assert_eq!(answers.take(), [refused, Ok(0), Ok(100)]);
}

#[test]
fn a_handle_that_outlives_its_pool_is_answered_that_it_is_shut_down() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let answers = Answers::default();
    let handle = pool.handle();
    drop(pool);
    handle.submit(|| 1, collect(&answers));
    event_loop.run().unwrap();
    assert_eq!(answers.take(), [Err(IoError::ShutDown { pool: "offload-io" }.to_string())]);
}

/// A sequence of numbers that looks random and is always the same.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

#[test]
fn every_task_is_answered_exactly_once_whatever_happens_to_it() {
    for seed in 0..20 {
        let mut number = numbers(seed);
        let config = IoPoolConfig { threads: 3, queue_max: 50, ..IoPoolConfig::default() };
        let (mut event_loop, pool) = pool_with(config);
        let answers = Rc::new(RefCell::new(vec![0; 300]));
        let mut tasks = Vec::new();
        for index in 0..300 {
            let lane = if number(3) == 0 { Lane::Slow } else { Lane::Fast };
            let handle = pool.on_lane(lane).within(Duration::from_micros(number(20_000)));
            let counting = Rc::clone(&answers);
            let done = move |_: &mut Context, _: Result<(), IoError>| counting.borrow_mut()[index] += 1;
            tasks.push(match number(4) {
                0 => handle.submit(|| panic!("a task panics"), done),
                // Some work that takes longer than the deadlines of many.
                1 => handle.submit(|| std::thread::sleep(Duration::from_micros(500)), done),
                _ => handle.submit_parts(parts(1 + number(10) as u32), done),
            });
            if number(4) == 0 {
                pool.cancel(tasks[number(tasks.len() as u64) as usize]);
            }
            if number(10) == 0 {
                event_loop.run_mode(RunMode::NoWait).unwrap();
            }
        }
        let how_it_ends = number(3);
        if how_it_ends == 1 {
            pool.shutdown(|_| ());
        }
        let pool = (how_it_ends > 0).then_some(pool);
        event_loop.run().unwrap();
        drop(pool);
        assert_eq!(*answers.borrow(), [1; 300], "seed {seed}");
    }
}
