//! Tests of the pool: limits, deadlines, lanes, ends.

mod ends;
mod files;
mod forks;
mod futures;
mod lanes;
mod parts;
mod stuck;

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::*;
use crate::EventLoop;

fn pool_with(config: IoPoolConfig) -> (EventLoop, IoPool) {
    let event_loop = EventLoop::new().expect("two descriptors");
    let pool = IoPool::new(&event_loop, config).expect("some threads");
    (event_loop, pool)
}

fn one_thread() -> IoPoolConfig {
    IoPoolConfig { threads: 1, ..IoPoolConfig::default() }
}

type Answers<T> = Rc<RefCell<Vec<Result<T, String>>>>;

/// Answers, in the order of their coming.
fn collect<T: 'static>(answers: &Answers<T>) -> impl FnOnce(&mut Context, Result<T, IoError>) + 'static {
    let answers = Rc::clone(answers);
    move |_, result| answers.borrow_mut().push(result.map_err(|error| error.to_string()))
}

/// A task that blocks its thread until it is let go, and says when it has begun.
struct Blocked {
    begun: mpsc::Receiver<()>,
    let_go: mpsc::Sender<()>,
}

fn block_a_thread(pool: &IoHandle, answers: &Answers<u32>) -> Blocked {
    let (say_begun, begun) = mpsc::channel();
    let (let_go, wait) = mpsc::channel::<()>();
    let task = move || {
        // An error means that the test has let go of both ends, which is as good.
        let _ = say_begun.send(());
        let _ = wait.recv();
        0
    };
    pool.submit(task, collect(answers));
    Blocked { begun, let_go }
}

type Order = Rc<RefCell<Vec<&'static str>>>;

/// Writes down in which order tasks are answered, and that they have succeeded.
fn note<T: 'static>(
    order: &Order,
    name: &'static str,
) -> impl FnOnce(&mut Context, Result<T, IoError>) + use<T> {
    let order = Rc::clone(order);
    move |_, result| {
        assert!(result.is_ok(), "{name} failed");
        order.borrow_mut().push(name);
    }
}

/// A task of so many parts that does nothing.
fn parts(count: u32) -> impl FnMut() -> ControlFlow<()> + Send {
    let mut left = count;
    move || {
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Waits for what other threads do without telling the loop.
fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain: {what}");
        std::thread::yield_now();
    }
}

/// A file of the test's own, gone with it.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn with(name: &str, contents: &[u8]) -> TemporaryFile {
        let path = std::env::temp_dir().join(format!("io-pool-{}-{name}", std::process::id()));
        std::fs::write(&path, contents).expect("a writable temporary folder");
        TemporaryFile(path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn results_come_back_to_the_loop_which_waits_for_them() {
    let (mut event_loop, pool) = pool_with(IoPoolConfig::default());
    let answers = Answers::default();
    for number in 0..1_000_u32 {
        pool.submit(move || number, collect(&answers));
    }
    assert!(!event_loop.run().unwrap());
    let mut results: Vec<u32> = answers.take().into_iter().map(Result::unwrap).collect();
    results.sort_unstable();
    assert!(results.into_iter().eq(0..1_000));
}

#[test]
fn threads_are_named_after_the_pool() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let answers = Answers::default();
    pool.submit(|| std::thread::current().name().map(str::to_owned), collect(&answers));
    event_loop.run().unwrap();
    assert_eq!(answers.take(), [Ok(Some("offload-io-0".to_owned()))]);
}

#[test]
fn a_panic_in_a_task_is_its_answer_and_the_thread_lives() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let answers = Answers::default();
    pool.submit(|| panic!("ouch"), collect::<u32>(&answers));
    pool.submit(|| 1, collect(&answers));
    event_loop.run().unwrap();
    assert_eq!(answers.take(), [Err("the I/O task panicked: ouch".to_owned()), Ok(1)]);
    assert_eq!(pool.stats().threads, 1);
}

#[test]
fn a_full_queue_is_an_answer_and_never_a_call_from_within_submit() {
    let (mut event_loop, pool) = pool_with(IoPoolConfig { queue_max: 1, ..one_thread() });
    let answers = Answers::default();
    let blocked = block_a_thread(&pool, &answers);
    blocked.begun.recv().unwrap();
    pool.submit(|| 1, collect(&answers));
    pool.submit(|| 2, collect(&answers));
    assert_eq!((pool.stats().busy, pool.stats().queued), (1, 1));
    assert!(answers.borrow().is_empty());
    let let_go = blocked.let_go;
    event_loop.set_immediate(move |_| let_go.send(()).unwrap());
    event_loop.run().unwrap();
    assert_eq!(
        answers.take(),
        [Err("too many tasks wait for a thread of the pool offload-io".to_owned()), Ok(0), Ok(1)]
    );
}

#[test]
fn s70_a_pool_per_class_of_task_keeps_the_slow_class_from_delaying_the_quick_one() {
    let mut event_loop = EventLoop::new().unwrap();
    let config = |name| IoPoolConfig { name, threads: 2, ..IoPoolConfig::default() };
    let sorts = IoPool::new(&event_loop, config("sorts")).unwrap();
    let sums = IoPool::new(&event_loop, config("sums")).unwrap();
    let (long, quick) = (Answers::default(), Answers::default());
    let blocked = [block_a_thread(&sorts, &long), block_a_thread(&sorts, &long)];
    for task in &blocked {
        task.begun.recv().unwrap();
    }
    sorts.submit(|| 1, collect(&long));
    let all = Rc::clone(&quick);
    sums.submit(
        || std::thread::current().name().map(str::to_owned),
        move |context, result| {
            all.borrow_mut().push(result.map_err(|error| error.to_string()));
            context.stop();
        },
    );
    event_loop.run().unwrap();
    assert!(matches!(&quick.take()[..], [Ok(Some(name))] if name.starts_with("sums-")));
    assert!(long.borrow().is_empty());
    assert_eq!((sorts.stats().name, sorts.stats().busy, sorts.stats().queued), ("sorts", 2, 1));
    assert_eq!((sums.stats().name, sums.stats().busy, sums.stats().queued), ("sums", 0, 0));
    drop(sorts);
    drop(blocked);
    event_loop.run().unwrap();
    let shut = Err("the pool sorts was shut down".to_owned());
    assert_eq!(long.take(), [shut, Ok(0), Ok(0)]);
}

#[test]
fn a_task_is_unknown_to_another_pool() {
    let (event_loop, pool) = pool_with(one_thread());
    let other = IoPool::new(&event_loop, one_thread()).unwrap();
    let blocked = block_a_thread(&pool, &Answers::default());
    blocked.begun.recv().unwrap();
    let task = pool.submit(|| 1, |_, _| ());
    assert_eq!(other.cancel(task), CancelOutcome::NotFound);
    assert_eq!(pool.cancel(task), CancelOutcome::Cancelled);
}

#[test]
fn a_panic_in_done_harms_no_other_task() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let answers = Answers::default();
    let panics = Rc::new(RefCell::new(Vec::new()));
    let reported = Rc::clone(&panics);
    event_loop.set_panic_handler(move |_, panic| reported.borrow_mut().push(panic.message().to_owned()));
    pool.submit(|| (), |_, _| panic!("in done"));
    pool.submit(|| 1, collect(&answers));
    event_loop.run().unwrap();
    assert_eq!((panics.take(), answers.take()), (vec!["in done".to_owned()], vec![Ok(1)]));
}

/// Its drop is a mistake of its owner.
struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn a_panic_while_a_task_is_dropped_costs_no_thread_and_no_answer() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let answers = Answers::default();
    let mut mistake = Some(PanicsWhenDropped);
    let part = move || {
        let _is_captured = &mut mistake;
        ControlFlow::Break(1)
    };
    pool.submit_parts(part, collect(&answers));
    pool.submit(|| 2, collect(&answers));
    event_loop.run().unwrap();
    assert_eq!(answers.take(), [Ok(1), Ok(2)]);
}

#[test]
fn a_panic_with_a_value_that_panics_when_dropped_costs_no_thread_and_no_answer() {
    let deadline = Duration::from_secs(5);
    let (mut event_loop, pool) = pool_with(IoPoolConfig { deadline, ..one_thread() });
    let answers = Answers::default();
    pool.submit(|| std::panic::panic_any(PanicsWhenDropped), collect::<u32>(&answers));
    pool.submit(|| 1, collect(&answers));
    event_loop.run().unwrap();
    assert_eq!(answers.take(), [Err("the I/O task panicked: a panic without a message".to_owned()), Ok(1)]);
}

/// Its drop panics with a value that does so, too.
struct PanicsTwiceWhenDropped;

impl Drop for PanicsTwiceWhenDropped {
    fn drop(&mut self) {
        std::panic::panic_any(PanicsWhenDropped);
    }
}

#[test]
fn a_panic_while_a_task_that_is_late_is_dropped_keeps_no_answer_from_the_others() {
    let deadline = Duration::from_millis(20);
    let (mut event_loop, pool) = pool_with(IoPoolConfig { deadline, ..one_thread() });
    let answers = Answers::default();
    let blocked = block_a_thread(&pool.within(Duration::from_secs(20)), &Answers::default());
    blocked.begun.recv().unwrap();
    for is_last in [false, true] {
        let (mistake, answered) = (PanicsTwiceWhenDropped, collect(&answers));
        let task = move || {
            let _is_captured = &mistake;
            1
        };
        pool.submit(task, move |context, result| {
            answered(context, result);
            if is_last {
                context.stop();
            }
        });
    }
    event_loop.run().unwrap();
    let late = Err(IoError::TimedOut { pool: "offload-io" }.to_string());
    assert_eq!(answers.take(), [late.clone(), late]);
}
