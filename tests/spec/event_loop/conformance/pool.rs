//! Work on the threads of a pool, as the loop sees it.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use offload_event_loop::io_pool::{CancelOutcome, IoError, IoPool, IoPoolConfig};
use offload_event_loop::{Context, EventLoop, RunMode};

use super::{milliseconds, real_loop};
use crate::stage::Order;

fn pool_of(threads: usize, event_loop: &mut EventLoop) -> IoPool {
    IoPool::new(event_loop, IoPoolConfig { threads, ..IoPoolConfig::default() }).unwrap()
}

/// A task that a thread is at until the sender is dropped.
fn occupy_a_thread(pool: &IoPool) -> (offload_event_loop::io_pool::TaskId, Sender<()>) {
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

#[test]
fn names_are_looked_up_side_by_side_and_answered_later() {
    let mut event_loop = real_loop();
    let order = Order::new();
    let pool = pool_of(4, &mut event_loop);
    for port in 1..=10 {
        let log = order.clone();
        pool.dns_lookup("localhost", port, move |_, addresses| {
            let addresses = addresses.unwrap();
            assert!(!addresses.is_empty());
            assert!(addresses.iter().all(|address| address.ip().is_loopback() && address.port() == port));
            log.push(port);
        });
    }
    assert!(order.so_far().is_empty());
    assert!(!event_loop.run().unwrap());
    let mut answered = order.so_far();
    answered.sort();
    assert_eq!(answered, (1..=10).collect::<Vec<_>>());
}

#[test]
fn a_name_that_is_none_or_too_long_is_an_error_and_an_address_in_digits_is_itself() {
    let mut event_loop = real_loop();
    let order = Order::new();
    let pool = pool_of(1, &mut event_loop);
    // None of these is asked of a server.
    for name in ["", &"x".repeat(64), &"x".repeat(10_000), "null\0byte"] {
        let log = order.clone();
        pool.dns_lookup(name, 1, move |_, addresses| {
            log.push(matches!(addresses, Err(IoError::Io(_))));
        });
    }
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), [true; 4]);
    for digits in ["127.0.0.1", "::1"] {
        pool.dns_lookup(digits, 80, move |_, addresses| {
            assert_eq!(addresses.unwrap(), [(digits.parse::<std::net::IpAddr>().unwrap(), 80).into()]);
        });
    }
    event_loop.run().unwrap();
}

fn cancelled<T>(order: &Order) -> impl FnOnce(&mut Context, Result<T, IoError>) + use<T> {
    let order = order.clone();
    move |_, result| {
        assert!(matches!(result, Err(IoError::Cancelled)));
        order.push("cancelled");
    }
}

#[test]
fn look_ups_random_bytes_and_files_that_wait_are_cancelled_like_any_work() {
    let mut event_loop = real_loop();
    let order = Order::new();
    let pool = pool_of(1, &mut event_loop);
    let (_, release) = occupy_a_thread(&pool);
    let tasks = [
        pool.dns_lookup("localhost", 1, cancelled(&order)),
        pool.random_bytes(1_000, cancelled(&order)),
        pool.fs_stat("/", cancelled(&order)),
        pool.fs_read("/proc/self/status", 1_000, cancelled(&order)),
    ];
    assert!(tasks.into_iter().all(|task| pool.cancel(task) == CancelOutcome::Cancelled));
    assert!(order.so_far().is_empty());
    drop(release);
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["cancelled"; 4]);
}

#[test]
fn random_bytes_are_as_many_as_asked_for_none_included() {
    let mut event_loop = real_loop();
    let order = Order::new();
    let pool = pool_of(1, &mut event_loop);
    for count in [0, 1, 256, 1_000_000] {
        let log = order.clone();
        pool.random_bytes(count, move |_, bytes| {
            let bytes = bytes.unwrap();
            let distinct: std::collections::HashSet<_> = bytes.iter().collect();
            log.push((bytes.len(), distinct.len() > 100));
        });
    }
    assert!(order.so_far().is_empty(), "also no bytes are told later");
    event_loop.run().unwrap();
    let mut order = order.so_far();
    order.sort();
    assert_eq!(order, [(0, false), (1, false), (256, true), (1_000_000, true)]);
}

#[test]
fn files_and_folders_are_told_apart_and_what_is_not_there_is_an_error() {
    let mut event_loop = real_loop();
    let order = Order::new();
    let pool = pool_of(1, &mut event_loop);
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    std::fs::write(&file, "12345").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let missing = file.join("below a file");
    for path in [folder.path().to_owned(), file, link, missing, folder.path().join("missing")] {
        let log = order.clone();
        pool.fs_stat(path, move |_, metadata| {
            log.push(match metadata {
                Ok(metadata) if metadata.is_dir() => "folder".to_owned(),
                Ok(metadata) => format!("{} bytes", metadata.len()),
                Err(IoError::Io(error)) => format!("{:?}", error.kind()),
                Err(error) => error.to_string(),
            });
        });
    }
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["folder", "5 bytes", "5 bytes", "NotADirectory", "NotFound"]);
}

#[test]
fn a_file_is_read_whole_or_not_at_all() {
    let mut event_loop = real_loop();
    let order = Order::new();
    let pool = pool_of(1, &mut event_loop);
    let folder = tempfile::tempdir().unwrap();
    let (empty, full) = (folder.path().join("empty"), folder.path().join("full"));
    std::fs::write(&empty, "").unwrap();
    std::fs::write(&full, "12345").unwrap();
    let missing = folder.path().join("missing");
    for (path, most) in [(&empty, 0), (&full, 5), (&full, 4), (&missing, 5), (&folder.path().to_owned(), 5)] {
        let log = order.clone();
        pool.fs_read(path, most, move |_, contents| {
            log.push(match contents {
                Ok(contents) => String::from_utf8(contents).unwrap(),
                Err(IoError::Io(error)) => format!("{:?}", error.kind()),
                Err(IoError::TooLarge { max_bytes }) => format!("more than {max_bytes}"),
                Err(IoError::NotRegularFile) => "no file".to_owned(),
                Err(error) => error.to_string(),
            });
        });
    }
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["", "12345", "more than 4", "NotFound", "no file"]);
}
