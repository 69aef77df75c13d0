//! How a pool ends.

use super::*;

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
