//! Tasks as futures.

use super::*;

/// What a future on the loop comes to.
fn block_on<T: 'static>(event_loop: &mut EventLoop, future: impl Future<Output = T> + 'static) -> T {
    let task = event_loop.spawn(future);
    event_loop.run().unwrap();
    task.take_result().expect("the future has ended").expect("the future was not cancelled")
}

#[test]
fn a_task_can_be_awaited() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let all = block_on(&mut event_loop, async move {
        let sum = pool.run(|| 1 + 1).await.unwrap();
        let mut count = 0;
        let part = move || {
            count += 1;
            if count == 3 { ControlFlow::Break(count) } else { ControlFlow::Continue(()) }
        };
        let last_part = pool.run_parts(part).await.unwrap();
        let panic = pool.run(|| panic!("ouch")).await;
        (sum, last_part, panic.map_err(|error| error.to_string()))
    });
    assert_eq!(all, (2, 3, Err::<(), _>("the I/O task panicked: ouch".to_owned())));
}

#[test]
fn every_ready_made_task_has_a_form_to_await() {
    let file = TemporaryFile::with("awaited", b"twelve bytes");
    let path = file.0.clone();
    let (mut event_loop, pool) = pool_with(one_thread());
    let (contents, same_contents, length, addresses, random) = block_on(&mut event_loop, async move {
        let contents = pool.fs_read_async(&path, 100).await.unwrap();
        let opened_by_hand = path.clone();
        let same = pool.fs_read_with_async(move || std::fs::File::open(opened_by_hand), 100).await.unwrap();
        let length = pool.fs_stat_async(path).await.unwrap().len();
        let addresses = pool.dns_lookup_async("127.0.0.1", 80).await.unwrap();
        (contents, same, length, addresses, pool.random_bytes_async(20).await.unwrap())
    });
    assert_eq!((&*contents, &*same_contents), (&b"twelve bytes"[..], &b"twelve bytes"[..]));
    assert_eq!((length, random.len()), (12, 20));
    assert_eq!(addresses, ["127.0.0.1:80".parse().unwrap()]);
}

#[test]
fn dropping_the_future_of_a_waiting_task_cancels_it() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let blocked = block_a_thread(&pool, &Answers::default());
    blocked.begun.recv().unwrap();
    let (say_run, has_run) = mpsc::channel();
    let future = pool.run(move || say_run.send(()));
    assert_eq!(pool.stats().queued, 1);
    drop(future);
    assert_eq!(pool.stats().queued, 0);
    drop(blocked);
    event_loop.run().unwrap();
    assert!(has_run.recv().is_err(), "the task has run");
}

#[test]
fn dropping_the_future_of_a_running_task_drops_its_result() {
    struct TellsItsDrop(mpsc::Sender<()>);
    impl Drop for TellsItsDrop {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let (mut event_loop, pool) = pool_with(one_thread());
    let (say_dropped, dropped) = mpsc::channel();
    let (say_begun, begun) = mpsc::channel();
    let future = pool.run(move || {
        say_begun.send(()).unwrap();
        TellsItsDrop(say_dropped)
    });
    begun.recv().unwrap();
    drop(future);
    event_loop.run().unwrap();
    dropped.try_recv().expect("nobody keeps the result");
    assert_eq!(pool.stats().busy, 0);
}

#[test]
fn a_cancelled_future_says_so() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let blocked = block_a_thread(&pool, &Answers::default());
    blocked.begun.recv().unwrap();
    let future = pool.run(|| 1);
    assert_eq!(pool.cancel(future.task()), CancelOutcome::Cancelled);
    drop(blocked);
    assert!(matches!(block_on(&mut event_loop, future), Err(IoError::Cancelled)));
}

#[test]
fn the_end_of_a_pool_can_be_awaited() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let order = Order::default();
    pool.submit_parts(parts(10), note(&order, "task"));
    let noted = Rc::clone(&order);
    block_on(&mut event_loop, async move {
        pool.shutdown_async().await;
        noted.borrow_mut().push("end");
    });
    assert_eq!(order.take(), ["task", "end"]);
}
