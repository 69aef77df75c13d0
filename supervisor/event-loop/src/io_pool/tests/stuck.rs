//! Deadlines, and threads that are stuck in a task.

use std::path::Path;

use super::*;
use crate::io_pool::deadlines::Deadlines;

#[test]
fn a_stuck_thread_is_written_off_and_replaced() {
    let deadline = Duration::from_millis(20);
    let (mut event_loop, pool) = pool_with(IoPoolConfig { deadline, ..one_thread() });
    let answers = Answers::default();
    let blocked = block_a_thread(&pool, &answers);
    blocked.begun.recv().unwrap();
    assert!(!event_loop.run().unwrap(), "the loop does not wait for the stuck thread");
    let stats = pool.stats();
    assert_eq!((stats.threads, stats.busy, stats.stuck), (1, 0, 1));
    assert_eq!(pool.stuck().len(), 1);
    pool.within(Duration::from_secs(20)).submit(|| 1, collect(&answers));
    event_loop.run().unwrap();
    assert_eq!(answers.take(), [Err(IoError::TimedOut { pool: "offload-io" }.to_string()), Ok(1)]);
    blocked.let_go.send(()).unwrap();
}

#[test]
fn threads_stuck_beyond_the_cap_are_not_replaced_and_waiting_tasks_time_out() {
    let deadline = Duration::from_millis(20);
    let (mut event_loop, pool) = pool_with(IoPoolConfig { deadline, threads_max: 1, ..one_thread() });
    let answers = Answers::default();
    let blocked = block_a_thread(&pool, &answers);
    blocked.begun.recv().unwrap();
    pool.submit(|| 1, collect(&answers));
    event_loop.run().unwrap();
    assert_eq!(
        answers.take(),
        [
            Err(IoError::TimedOut { pool: "offload-io" }.to_string()),
            Err(IoError::TimedOut { pool: "offload-io" }.to_string())
        ]
    );
    assert_eq!((pool.stats().threads, pool.stats().stuck), (0, 1));
}

/// A FIFO that nobody writes: opening it for reading blocks, as reading /dev/random once did.
fn unwritten_fifo(name: &str) -> TemporaryFile {
    let fifo = TemporaryFile::with(name, b"");
    std::fs::remove_file(&fifo.0).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo.0, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    fifo
}

fn open_and_forget(path: &Path) -> impl FnOnce() -> u32 + Send + 'static {
    let path = path.to_owned();
    move || std::fs::File::open(path).map_or(1, |_| 0)
}

#[test]
fn s64_tasks_that_block_for_ever_stop_the_pool_only_until_their_deadline() {
    let threads = 3;
    let (mut event_loop, pool) =
        pool_with(IoPoolConfig { name: "files", threads, ..IoPoolConfig::default() });
    let fifo = unwritten_fifo("for-ever");
    let (endless, stat) = (Answers::default(), Answers::default());
    let soon = Duration::from_millis(30);
    let before = event_loop.now();
    for _ in 0..threads {
        pool.within(soon).submit(open_and_forget(&fifo.0), collect(&endless));
    }
    wait_until("every thread is in the FIFO", || pool.stats().busy == threads);
    let all_are_stuck = Rc::new(RefCell::new(Vec::new()));
    let (seen, later) = (Rc::clone(&all_are_stuck), pool.handle());
    let done = collect(&stat);
    pool.fs_stat(fifo.0.clone(), move |context, result| {
        seen.replace(later.stuck());
        done(context, result.map(|metadata| metadata.len()));
    });
    event_loop.run().unwrap();
    assert_eq!(endless.take(), vec![Err(IoError::TimedOut { pool: "files" }.to_string()); threads]);
    assert_eq!(stat.take(), [Ok(0)]);
    let stuck = all_are_stuck.take();
    assert!(!stuck.is_empty(), "a thread became free by itself");
    for task in stuck {
        assert_eq!((task.pool, task.lane, task.site.file()), ("files", Lane::Fast, file!()));
        assert!(task.submitted >= before && task.since >= task.submitted + soon);
    }
    assert_eq!((pool.stats().threads, pool.stats().stuck), (threads, threads));
    // With a writer the FIFO opens, and the surplus threads go.
    let _writer = std::fs::File::options().write(true).open(&fifo.0).unwrap();
    wait_until("the stuck threads return", || pool.stats().stuck == 0);
    assert_eq!(pool.stats().threads, threads);
}

#[test]
fn a_task_may_have_a_deadline_of_its_own() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let (answers, order) = (Answers::default(), Order::default());
    let blocked = block_a_thread(&pool, &answers);
    blocked.begun.recv().unwrap();
    pool.submit(|| 1, collect(&answers));
    let mut blocked = Some(blocked);
    for (name, milliseconds) in [("last", 600), ("first", 200), ("second", 400)] {
        let noted = note(&order, name);
        let let_go = (name == "last").then(|| blocked.take());
        pool.within(Duration::from_millis(milliseconds)).submit(
            || (),
            move |context, result| {
                assert!(matches!(result, Err(IoError::TimedOut { .. })));
                noted(context, Ok::<_, IoError>(()));
                drop(let_go);
            },
        );
    }
    event_loop.run().unwrap();
    assert_eq!(order.take(), ["first", "second", "last"]);
    assert_eq!(answers.take(), [Ok(0), Ok(1)]);
}

#[test]
fn the_callback_for_stuck_threads_is_called_for_each_of_them() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let told = Rc::new(RefCell::new(Vec::new()));
    let telling = Rc::clone(&told);
    pool.set_on_stuck(move |_, task| telling.borrow_mut().push(task));
    let slow = pool.on_lane(Lane::Slow).within(Duration::from_millis(20));
    let blocked = block_a_thread(&slow, &Answers::default());
    blocked.begun.recv().unwrap();
    event_loop.run().unwrap();
    assert_eq!(*told.borrow(), pool.stuck());
    assert_eq!((told.borrow()[0].lane, told.borrow()[0].thread), (Lane::Slow, 0));
}

/// A pool of two threads, each of which is stuck in a task as soon as the loop runs.
fn soon_stuck() -> (EventLoop, IoPool, [Blocked; 2]) {
    let deadline = Duration::from_millis(20);
    let (event_loop, pool) = pool_with(IoPoolConfig { threads: 2, deadline, ..IoPoolConfig::default() });
    let blocked = [0, 1].map(|_| block_a_thread(&pool, &Answers::default()));
    for task in &blocked {
        task.begun.recv().unwrap();
    }
    (event_loop, pool, blocked)
}

/// Its drop says so, and sets another callback.
struct SetsAnother {
    pool: IoHandle,
    told: Order,
}

impl Drop for SetsAnother {
    fn drop(&mut self) {
        self.told.borrow_mut().push("dropped");
        let told = Rc::clone(&self.told);
        self.pool.set_on_stuck(move |_, _| told.borrow_mut().push("set by the drop"));
    }
}

#[test]
fn a_callback_about_stuck_threads_may_set_another_one_while_it_runs_and_when_it_is_dropped() {
    let (mut event_loop, pool, _blocked) = soon_stuck();
    let told = Order::default();
    let own = SetsAnother { pool: pool.handle(), told: Rc::clone(&told) };
    pool.set_on_stuck(move |_, _| {
        own.told.borrow_mut().push("first");
        own.pool.set_on_stuck(|_, _| unreachable!("the drop of the first one has set another one"));
    });
    event_loop.run().unwrap();
    assert_eq!(told.take(), ["first", "dropped", "set by the drop"]);
}

#[test]
fn a_callback_about_stuck_threads_that_panics_is_reported_and_called_again() {
    let (mut event_loop, pool, _blocked) = soon_stuck();
    let panics = Rc::new(RefCell::new(Vec::new()));
    let reported = Rc::clone(&panics);
    event_loop.set_panic_handler(move |_, panic| reported.borrow_mut().push(panic.message().to_owned()));
    pool.set_on_stuck(|_, _| panic!("told"));
    event_loop.run().unwrap();
    assert_eq!(panics.take(), ["told", "told"]);
}

#[test]
fn a_callback_about_stuck_threads_that_drops_the_pool_goes_with_it() {
    let (mut event_loop, pool, _blocked) = soon_stuck();
    let (told, handle) = (Order::default(), pool.handle());
    let (telling, mut pool) = (Rc::clone(&told), Some(pool));
    let own = handle.clone();
    handle.set_on_stuck(move |_, _| {
        telling.borrow_mut().push("told");
        pool.take();
        let late = (own.clone(), Rc::clone(&telling));
        own.set_on_stuck(move |_, _| late.1.borrow_mut().push("told too late"));
    });
    event_loop.run().unwrap();
    drop(handle);
    assert_eq!(*told.borrow(), ["told"]);
    assert_eq!(Rc::strong_count(&told), 1, "a callback of a pool that is gone is kept");
}

#[test]
fn a_thread_that_is_stuck_in_a_slow_task_counts_no_longer_against_the_slow_lane() {
    let (mut event_loop, pool) = pool_with(IoPoolConfig { threads: 2, ..IoPoolConfig::default() });
    let slow = pool.on_lane(Lane::Slow);
    let answers = Answers::default();
    let blocked = block_a_thread(&slow.within(Duration::from_millis(20)), &answers);
    blocked.begun.recv().unwrap();
    slow.submit(|| 1, collect(&answers));
    event_loop.run().unwrap();
    assert_eq!(answers.take(), [Err(IoError::TimedOut { pool: "offload-io" }.to_string()), Ok(1)]);
    drop(blocked);
    wait_until("the stuck thread returns", || pool.stats().stuck == 0);
    assert_eq!(pool.stats().busy_slow, 0);
}

#[test]
fn an_idle_thread_takes_the_slow_task_that_waited_for_a_thread_now_stuck_and_not_replaced() {
    let config = IoPoolConfig { threads: 2, threads_max: 2, ..IoPoolConfig::default() };
    let (mut event_loop, pool) = pool_with(config);
    let slow = pool.on_lane(Lane::Slow);
    let answers = Answers::default();
    let blocked = block_a_thread(&slow.within(Duration::from_millis(50)), &answers);
    blocked.begun.recv().unwrap();
    slow.within(Duration::from_secs(10)).submit(|| 1, collect(&answers));
    event_loop.run().unwrap();
    assert_eq!(answers.take(), [Err(IoError::TimedOut { pool: "offload-io" }.to_string()), Ok(1)]);
    assert_eq!((pool.stats().threads, pool.stats().stuck), (1, 1));
    drop(blocked);
}

#[test]
fn a_stuck_thread_that_returns_serves_again_if_it_was_not_replaced() {
    let deadline = Duration::from_millis(20);
    let (mut event_loop, pool) = pool_with(IoPoolConfig { deadline, threads_max: 1, ..one_thread() });
    let answers = Answers::default();
    let blocked = block_a_thread(&pool, &answers);
    blocked.begun.recv().unwrap();
    event_loop.run().unwrap();
    drop(blocked.let_go);
    pool.within(Duration::from_secs(20)).submit(|| 1, collect(&answers));
    event_loop.run().unwrap();
    assert_eq!(answers.take(), [Err(IoError::TimedOut { pool: "offload-io" }.to_string()), Ok(1)]);
}

#[test]
fn the_deadlines_of_tasks_that_are_done_are_forgotten_long_before_they_are_due() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let awaited = pool.submit(|| (), |_, _| ());
    let done = pool.submit(|| (), |_, _| ());
    event_loop.run().unwrap();
    let (now, mut deadlines) = (event_loop.now(), Deadlines::default());
    deadlines.push(now, awaited);
    for _ in 0..100_000 {
        deadlines.push(now, done);
        if deadlines.need_sweep(1) {
            deadlines.sweep(|task| task == awaited);
        }
    }
    let left = deadlines.take_due(now);
    assert!(left.contains(&awaited) && left.len() < 1_000, "{} are left", left.len());
}
