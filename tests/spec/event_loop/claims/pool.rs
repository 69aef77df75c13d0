//! S61 to S65: tasks that are too long for a pool of threads. A FIFO that nobody writes to stands for /dev/random,
//! which no longer blocks.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;

use offload_event_loop::io_pool::{IoError, IoPool, IoPoolConfig, RANDOM_PART};
use rustix::fs::{CWD, Mode, mkfifoat};
use tempfile::TempDir;
use tests::harness::{PATIENCE, private_folder};

use super::props::{Blocked, burn, computing_time, io_pool, io_pool_with, milliseconds, real_loop};
use crate::stage::{Order, alone, beside_others};

/// A FIFO that can be read as soon as something is written to it, and that never ends.
pub(super) struct Fifo {
    path: PathBuf,
    writer: File,
    _folder: TempDir,
}

impl Fifo {
    pub(super) fn new() -> Fifo {
        let folder = private_folder();
        let path = folder.path().join("fifo");
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        // Opened for reading as well, so that opening waits for nobody.
        let writer = File::options().read(true).write(true).open(&path).unwrap();
        Fifo { path, writer, _folder: folder }
    }

    pub(super) fn write(&self, bytes: &[u8]) {
        (&self.writer).write_all(bytes).unwrap();
    }

    /// What a task needs to read from it.
    pub(super) fn open(&self) -> File {
        File::open(&self.path).unwrap()
    }
}

/// Reads so many bytes, however long they take to come.
pub(super) fn read_bytes(mut file: impl Read, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    file.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn s61_a_thread_ends_its_task_before_it_begins_the_next_whatever_they_cost() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let pool = io_pool(&mut event_loop, 1);
    let seen = Arc::new(Mutex::new(Vec::new()));
    for (task, cost) in [3, 0, 1].into_iter().enumerate() {
        let seen = Arc::clone(&seen);
        let task = move || {
            seen.lock().unwrap().push((task, "begins"));
            burn(milliseconds(cost));
            seen.lock().unwrap().push((task, "ends"));
        };
        pool.submit(task, |_, result| result.unwrap());
    }
    event_loop.run().unwrap();
    let one_by_one = [0, 1, 2].map(|task| [(task, "begins"), (task, "ends")]).concat();
    assert_eq!(*seen.lock().unwrap(), one_by_one);
}

#[test]
fn s62_a_long_task_shrinks_the_pool_by_one_as_long_as_it_runs() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let pool = io_pool(&mut event_loop, 2);
    let blocked = Blocked::start(&pool, |_, result| result.unwrap());
    let threads = Rc::new(RefCell::new(HashSet::new()));
    let (release, left) = (Rc::new(RefCell::new(Some(blocked))), Rc::new(RefCell::new(100)));
    for _ in 0..100 {
        let (threads, release, left) = (Rc::clone(&threads), Rc::clone(&release), Rc::clone(&left));
        pool.submit(
            || std::thread::current().id(),
            move |_, thread| {
                threads.borrow_mut().insert(thread.unwrap());
                *left.borrow_mut() -= 1;
                if *left.borrow() == 0 {
                    release.take().unwrap().let_go();
                }
            },
        );
    }
    event_loop.run().unwrap();
    assert_eq!(threads.borrow().len(), 1, "one thread did all the short tasks beside the long one");
    // Now there are two again: each of these tasks waits for the other.
    let meeting = Arc::new(Barrier::new(2));
    for _ in 0..2 {
        let meeting = Arc::clone(&meeting);
        pool.submit(move || meeting.wait().is_leader(), |_, result| assert!(result.is_ok()));
    }
    event_loop.run().unwrap();
}

#[test]
fn s63_a_file_that_is_read_by_one_task_keeps_its_thread_until_its_last_byte_is_there() {
    let _beside = beside_others();
    let (mut event_loop, order) = (real_loop(), Order::new());
    let (pool, fifo) = (io_pool(&mut event_loop, 1), Fifo::new());
    let (whole, short, file) = (order.clone(), order.clone(), fifo.open());
    let (say_begun, begun) = mpsc::channel();
    let read_whole = move || {
        say_begun.send(()).unwrap();
        read_bytes(file, 4)
    };
    pool.submit(read_whole, move |_, contents| {
        assert_eq!(contents.unwrap(), b"file");
        whole.push("whole file");
    });
    begun.recv().unwrap();
    pool.submit(|| (), move |_, _| short.push("short task"));
    for byte in b"fil" {
        fifo.write(&[*byte]);
        event_loop.run_mode(offload_event_loop::RunMode::NoWait).unwrap();
        assert_eq!((pool.stats().queued, order.so_far().len()), (1, 0), "the short task waits");
    }
    fifo.write(b"e");
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["whole file", "short task"]);
}

/// Tasks that read a byte each, of which there is none; returns when threads are at all of them.
fn read_for_ever(pool: &IoPool, fifo: &Fifo, count: usize, order: &Order<String>) {
    let (say_begun, begun) = mpsc::channel();
    for _ in 0..count {
        let (file, say_begun, order) = (fifo.open(), say_begun.clone(), order.clone());
        let task = move || {
            say_begun.send(()).unwrap();
            read_bytes(file, 1)
        };
        pool.submit(task, move |_, result| match result {
            Ok(_) => order.push("read".to_owned()),
            Err(error) => order.push(error.to_string()),
        });
    }
    (0..count).for_each(|_| begun.recv().unwrap());
}

#[test]
fn s64_four_reads_that_never_end_stop_a_pool_of_four_threads_and_one_that_ends_frees_it() {
    let _beside = beside_others();
    let (mut event_loop, order) = (real_loop(), Order::<String>::new());
    let (pool, fifo) = (io_pool(&mut event_loop, 4), Rc::new(Fifo::new()));
    read_for_ever(&pool, &fifo, 4, &order);
    let (served, rest) = (order.clone(), Rc::clone(&fifo));
    pool.submit(
        || std::fs::metadata("/proc/self/exe").is_ok(),
        move |_, is_there| {
            assert!(is_there.unwrap());
            served.push("stat".to_owned());
            rest.write(b"xyz");
        },
    );
    assert_eq!((pool.stats().busy, pool.stats().queued), (4, 1));
    event_loop.set_immediate(move |_| fifo.write(b"w"));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["read", "stat", "read", "read", "read"]);
}

#[test]
fn s64_threads_in_reads_that_never_end_are_written_off_and_replaced() {
    let _beside = beside_others();
    let (mut event_loop, order) = (real_loop(), Order::<String>::new());
    let limits = IoPoolConfig { threads: 2, deadline: milliseconds(50), ..IoPoolConfig::default() };
    let (pool, fifo) = (io_pool_with(&mut event_loop, limits), Fifo::new());
    read_for_ever(&pool, &fifo, 2, &order);
    assert!(!event_loop.run().unwrap(), "the loop does not wait for them");
    let timed_out = IoError::TimedOut { pool: IoPoolConfig::default().name }.to_string();
    assert_eq!(order.so_far(), [timed_out.clone(), timed_out]);
    assert_eq!((pool.stats().threads, pool.stats().stuck), (2, 2));
    assert!(pool.stuck().iter().all(|task| task.site.file() == file!()), "{:?}", pool.stuck());
    let served = order.clone();
    // A busy machine may take longer than the time that the reads had.
    pool.within(PATIENCE).submit(|| (), move |_, result| served.push(format!("{:?}", result.unwrap())));
    event_loop.run().unwrap();
    assert_eq!(order.so_far()[2], "()");
    fifo.write(b"wx");
}

#[test]
fn s64_to_read_a_file_that_may_never_end_is_refused_before_it_blocks() {
    let _beside = beside_others();
    let (mut event_loop, order) = (real_loop(), Order::new());
    let (pool, fifo) = (io_pool(&mut event_loop, 1), Fifo::new());
    for path in [fifo.path.clone(), PathBuf::from("/dev/random"), PathBuf::from("/dev/zero")] {
        let order = order.clone();
        pool.fs_read(path, 1_000, move |_, contents| {
            order.push(matches!(contents, Err(IoError::NotRegularFile)));
        });
    }
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), [true; 3]);
}

/// How long a task takes that gets so many random bytes in one go, if it is not disturbed.
fn time_for_random_bytes(count: usize) -> Duration {
    let mut event_loop = real_loop();
    let pool = io_pool(&mut event_loop, 1);
    let times = Rc::new(RefCell::new(Vec::new()));
    for _ in 0..5 {
        let times = Rc::clone(&times);
        let task = move || {
            let start = computing_time();
            read_bytes(File::open("/dev/urandom").unwrap(), count);
            computing_time() - start
        };
        pool.submit(task, move |_, time| times.borrow_mut().push(time.unwrap()));
    }
    event_loop.run().unwrap();
    times.take().into_iter().min().unwrap()
}

#[test]
fn s65_a_task_that_gets_random_bytes_in_one_go_takes_the_longer_the_more_it_gets() {
    let _alone = alone();
    let (few, many) = (time_for_random_bytes(1 << 16), time_for_random_bytes(1 << 24));
    assert!(many > 20 * few, "{few:?} for 64 KiB and {many:?} for 16 MiB");
}

#[test]
fn s65_random_bytes_of_the_pool_come_in_parts_and_let_a_short_task_pass() {
    let _beside = beside_others();
    let (mut event_loop, order) = (real_loop(), Order::new());
    let pool = io_pool(&mut event_loop, 1);
    let blocked = Blocked::start(&pool, |_, result| result.unwrap());
    let (many, short) = (order.clone(), order.clone());
    pool.random_bytes(10 * RANDOM_PART, move |_, bytes| {
        assert_eq!(bytes.unwrap().len(), 10 * RANDOM_PART);
        many.push("random bytes");
    });
    pool.submit(|| (), move |_, _| short.push("short task"));
    blocked.let_go();
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["short task", "random bytes"]);
}
