//! What a pool promises.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::event_loop::EventLoop;

fn pool_with(config: IoPoolConfig) -> (EventLoop, IoPool) {
    let mut event_loop = EventLoop::new().expect("two descriptors");
    let pool = IoPool::new(&mut event_loop, config).expect("some threads");
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

fn block_a_thread(pool: &IoPool, answers: &Answers<u32>) -> Blocked {
    let (say_begun, begun) = mpsc::channel();
    let (let_go, wait) = mpsc::channel::<()>();
    let task = move || {
        say_begun.send(()).expect("the test listens");
        // An error means that the test is over, which is as good.
        let _ = wait.recv();
        0
    };
    pool.submit(task, collect(answers));
    Blocked { begun, let_go }
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
    assert_eq!(answers.take(), [Err(IoError::Overloaded.to_string()), Ok(0), Ok(1)]);
}

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
    assert_eq!(pool.stuck_sites().len(), 1);
    pool.submit(|| 1, collect(&answers));
    event_loop.run().unwrap();
    assert_eq!(answers.take(), [Err(IoError::TimedOut.to_string()), Ok(1)]);
    blocked.let_go.send(()).unwrap();
}

#[test]
fn threads_stuck_beyond_the_cap_are_not_replaced_and_waiting_tasks_time_out() {
    let deadline = Duration::from_millis(20);
    let (mut event_loop, pool) = pool_with(IoPoolConfig { deadline, threads_max: 1, ..one_thread() });
    let answers = Answers::default();
    let _blocked = block_a_thread(&pool, &answers);
    pool.submit(|| 1, collect(&answers));
    event_loop.run().unwrap();
    assert_eq!(answers.take(), [Err(IoError::TimedOut.to_string()), Err(IoError::TimedOut.to_string())]);
    assert_eq!((pool.stats().threads, pool.stats().stuck), (0, 1));
}

#[test]
fn a_waiting_task_can_be_cancelled_and_a_running_one_says_that_it_runs() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let answers = Answers::default();
    let blocked = block_a_thread(&pool, &answers);
    blocked.begun.recv().unwrap();
    let waiting = pool.submit(|| 1, collect(&answers));
    assert_eq!(pool.cancel(TaskId(0)), CancelOutcome::Running);
    assert_eq!(pool.cancel(waiting), CancelOutcome::Cancelled);
    blocked.let_go.send(()).unwrap();
    event_loop.run().unwrap();
    assert_eq!(pool.cancel(waiting), CancelOutcome::NotFound);
    assert_eq!(answers.borrow().len(), 2);
    assert!(answers.borrow().contains(&Err(IoError::Cancelled.to_string())));
}

#[test]
fn s66_between_two_parts_of_a_task_others_have_their_turn() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let order = Rc::new(RefCell::new(Vec::new()));
    let add = |name: &'static str| {
        let order = Rc::clone(&order);
        move |_: &mut Context, _: Result<(), IoError>| order.borrow_mut().push(name)
    };
    let blocked = block_a_thread(&pool, &Answers::default());
    let mut parts = 0;
    let part = move || {
        parts += 1;
        if parts == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    pool.submit_parts(part, add("long"));
    pool.submit(|| (), add("short"));
    blocked.let_go.send(()).unwrap();
    event_loop.run().unwrap();
    assert_eq!(*order.borrow(), ["short", "long"]);
}

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
    assert_eq!(answers.take(), [Err(IoError::ShutDown.to_string()), Err(IoError::TimedOut.to_string())]);
}

#[test]
fn a_file_is_read_whole_in_parts() {
    let contents: Vec<u8> = (0..3 * READ_PART + 7).map(|index| (index % 251) as u8).collect();
    let file = TemporaryFile::with("whole", &contents);
    let (mut event_loop, pool) = pool_with(one_thread());
    let (whole, refused) = (Answers::default(), Answers::default());
    pool.fs_read(&file.0, contents.len(), collect(&whole));
    pool.fs_read(&file.0, contents.len() - 1, collect(&refused));
    event_loop.run().unwrap();
    assert!(whole.take() == [Ok(contents.clone())], "other bytes came back");
    assert_eq!(refused.take(), [Err(IoError::TooLarge { max_bytes: contents.len() - 1 }.to_string())]);
}

#[test]
fn s64_what_is_no_regular_file_is_refused() {
    let (mut event_loop, pool) = pool_with(one_thread());
    let refused = Rc::new(Cell::new(0));
    let fifo = TemporaryFile::with("fifo", b"");
    std::fs::remove_file(&fifo.0).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo.0, rustix::fs::Mode::RUSR).unwrap();
    for path in ["/dev/zero", "/dev/random", "/", fifo.0.to_str().unwrap()] {
        let path = path.to_owned();
        let refused = Rc::clone(&refused);
        pool.fs_read(path.clone(), 1_000, move |_, result| {
            assert!(matches!(result, Err(IoError::NotRegularFile)), "{path}");
            refused.set(refused.get() + 1);
        });
    }
    event_loop.run().unwrap();
    assert_eq!(refused.get(), 4);
}
