//! S36 to S47: the loop's thread, the threads of the pool, and what a callback may cost.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::hint::black_box;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use offload_event_loop::io_pool::IoPoolConfig;
use offload_event_loop::{Context, Interest, Phase, RunMode};
use offload_supervisor::Job;

use super::props::{
    Blocked, burn, compute_pool, computing_time, in_poll, in_poll_when_readable, io_pool, io_pool_with,
    milliseconds, real_loop, shortest,
};
use crate::stage::{Order, alone, beside_others};

fn this_thread() -> ThreadId {
    std::thread::current().id()
}

#[test]
fn s36_one_loop_and_four_threads_serve_a_thousand_clients() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let pool = io_pool(&mut event_loop, 4);
    let threads = Rc::new(RefCell::new(Vec::new()));
    for _ in 0..1_000 {
        let threads = Rc::clone(&threads);
        pool.submit(this_thread, move |_, thread| threads.borrow_mut().push(thread.unwrap()));
    }
    event_loop.run().unwrap();
    assert_eq!(threads.borrow().len(), 1_000);
    let different: HashSet<_> = threads.take().into_iter().collect();
    assert!(different.len() <= 4 && !different.contains(&this_thread()), "{different:?}");
}

#[test]
fn s37_a_long_callback_keeps_everybody_waiting_and_is_named() {
    let _alone = alone();
    let mut event_loop = real_loop();
    let (start, waited) = (Instant::now(), Rc::new(Cell::new(Duration::ZERO)));
    let seen = Rc::clone(&waited);
    let line = line!() + 1;
    event_loop.set_immediate(|_| burn(milliseconds(50)));
    event_loop.set_immediate(move |_| seen.set(start.elapsed()));
    event_loop.run().unwrap();
    assert!(waited.get() >= milliseconds(50), "the second client waited {:?} only", waited.get());
    let slowest = event_loop.metrics().slowest_callback.unwrap();
    assert_eq!((slowest.site.file(), slowest.site.line()), (file!(), line));
    assert!(slowest.phase == Phase::Check && slowest.duration >= milliseconds(50), "{slowest:?}");
}

#[test]
fn s38_callbacks_and_continuations_register_new_requests_whose_callbacks_come_back_to_the_loop() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let (mut writer, reader) = UnixStream::pair().unwrap();
    let order = Order::new();
    let (handle, continued) = (event_loop.handle(), order.clone());
    event_loop.spawn(async move {
        handle.readable(&reader).await.unwrap();
        continued.push(("continuation", this_thread()));
        let inner = continued.clone();
        in_poll(&handle, move |context| {
            inner.push(("callback of the continuation", this_thread()));
            context.set_immediate(move |_| inner.push(("its own callback", this_thread())));
        });
    });
    event_loop.set_immediate(move |_| writer.write_all(b"x").unwrap());
    event_loop.run().unwrap();
    let names = ["continuation", "callback of the continuation", "its own callback"];
    assert_eq!(order.so_far(), names.map(|name| (name, this_thread())));
}

#[test]
fn s39_a_file_is_read_by_the_pool_and_not_by_the_loop() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let pool = io_pool(&mut event_loop, 1);
    let (say_thread, threads) = std::sync::mpsc::channel();
    let open = move || {
        say_thread.send(this_thread()).expect("the test listens");
        std::fs::File::open(file_of_the_package())
    };
    let order = Order::new();
    let read = order.clone();
    pool.fs_read_with(open, 1 << 20, move |_, contents| read.push((contents.unwrap(), this_thread())));
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), [(std::fs::read(file_of_the_package()).unwrap(), this_thread())]);
    assert_ne!(threads.recv().unwrap(), this_thread());
}

fn file_of_the_package() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")
}

#[test]
fn s39_names_and_random_bytes_wait_for_a_thread_of_the_pool_and_not_for_the_loop() {
    let _beside = beside_others();
    let (mut event_loop, order) = (real_loop(), Order::new());
    let pool = io_pool(&mut event_loop, 1);
    let blocked = Blocked::start(&pool, |_, result| result.unwrap());
    let (looked_up, made) = (order.clone(), order.clone());
    pool.dns_lookup("localhost", 80, move |_, addresses| {
        assert!(addresses.unwrap().iter().all(|address| address.ip().is_loopback()));
        looked_up.push("name");
    });
    pool.random_bytes(16, move |_, bytes| {
        assert_eq!(bytes.unwrap().len(), 16);
        made.push("random bytes");
    });
    event_loop.run_mode(RunMode::NoWait).unwrap();
    assert_eq!(
        (pool.stats().queued, order.so_far().len()),
        (2, 0),
        "the only thread is busy, the loop is not"
    );
    blocked.let_go();
    event_loop.run().unwrap();
    let mut order = order.so_far();
    order.sort_unstable();
    assert_eq!(order, ["name", "random bytes"]);
}

#[test]
fn s40_to_submit_a_task_costs_the_loop_next_to_nothing_beside_the_task() {
    let _alone = alone();
    let mut event_loop = real_loop();
    let pool = io_pool(&mut event_loop, 1);
    let cost = shortest(51, || {
        let start = computing_time();
        pool.submit(|| burn(milliseconds(1)), |_, result| result.unwrap());
        computing_time() - start
    });
    event_loop.run().unwrap();
    assert!(cost < milliseconds(1) / 10, "{cost:?} for a task of 1 ms");
}

#[test]
fn s41_of_many_watched_descriptors_the_ready_ones_become_events_and_callbacks() {
    let (mut event_loop, order) = (real_loop(), Order::new());
    let mut peers = Vec::new();
    for number in 0..100 {
        let (writer, reader) = UnixStream::pair().unwrap();
        let order = order.clone();
        let watched = event_loop.watch(reader, Interest::READ, {
            move |context, readiness| {
                assert!(readiness.is_readable() && !readiness.is_writable());
                order.push(number);
                context.stop();
            }
        });
        watched.unwrap();
        peers.push(writer);
    }
    for ready in [17, 4] {
        peers[ready].write_all(b"x").unwrap();
        event_loop.run().unwrap();
    }
    // The first one is still ready: nobody has read what it has.
    assert_eq!(order.so_far()[0], 17);
    let others: HashSet<_> = order.so_far()[1..].iter().copied().collect();
    assert_eq!(others, HashSet::from([4, 17]));
}

#[test]
fn s42_a_worker_takes_tasks_from_a_queue_in_their_order_and_tells_the_loop_of_each() {
    let _beside = beside_others();
    let (mut event_loop, order) = (real_loop(), Order::new());
    let pool = io_pool(&mut event_loop, 1);
    let blocked = Blocked::start(&pool, |_, result| result.unwrap());
    for number in 0..100 {
        let order = order.clone();
        pool.submit(move || number, move |_, result| order.push(result.unwrap()));
    }
    assert_eq!((pool.stats().busy, pool.stats().queued), (1, 100));
    blocked.let_go();
    event_loop.run().unwrap();
    assert!(order.so_far().into_iter().eq(0..100));
    assert_eq!(pool.stats().queued, 0);
}

/// The three routes of the seed, as the work that one request means.
fn constant_time(_: u64) -> u64 {
    1
}

fn count_to_n(n: u64) -> u64 {
    (0..n).map(black_box).fold(0, |count, _| count + 1)
}

fn count_to_n2(n: u64) -> u64 {
    (0..n).map(black_box).fold(0, |count, _| count + count_to_n(n))
}

/// How long a request of this size keeps the loop, and the next client with it, if nothing else disturbs them.
fn lag_of(route: fn(u64) -> u64, n: u64) -> Duration {
    shortest(7, || {
        let mut event_loop = real_loop();
        event_loop.set_immediate(move |_| {
            black_box(route(n));
        });
        let next_client = Rc::new(Cell::new(Duration::ZERO));
        let (start, served) = (computing_time(), Rc::clone(&next_client));
        event_loop.set_immediate(move |_| served.set(computing_time() - start));
        event_loop.run().unwrap();
        next_client.get()
    })
}

#[test]
fn s44_a_callback_of_constant_time_takes_no_longer_for_a_large_request() {
    let _alone = alone();
    assert!(lag_of(constant_time, 1 << 40) < milliseconds(5));
}

#[test]
fn s45_a_callback_that_counts_to_n_takes_n_times_as_long() {
    let _alone = alone();
    let (short, long) = (lag_of(count_to_n, 300_000), lag_of(count_to_n, 3_000_000));
    assert!(long > 4 * short && long < 25 * short, "{short:?} and ten times of it {long:?}");
}

#[test]
fn s46_a_callback_that_counts_to_n_squared_blocks_the_loop_where_counting_to_n_does_not() {
    let _alone = alone();
    let n = 3_000;
    let (linear, quadratic) = (lag_of(count_to_n, n), lag_of(count_to_n2, n));
    assert!(quadratic > 20 * linear, "{linear:?} and {quadratic:?}");
    let one_more = count_to_n2(n + 1) - count_to_n2(n);
    assert_eq!(
        one_more,
        2 * n + 1,
        "a request that is larger by one costs as much as two of the linear ones"
    );
}

#[test]
fn s47_an_input_over_its_bound_is_refused_with_the_bound() {
    let _beside = beside_others();
    let (mut event_loop, order) = (real_loop(), Order::new());
    let pool = compute_pool(&event_loop, 1);
    for n in ["1000000001", "1000000000000000000"] {
        let order = order.clone();
        pool.submit(Job::new("primes").input(n), move |finished, _| {
            order.push((n, finished.into_output().unwrap_err().contains("at most 1000000000")));
        });
    }
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), [("1000000001", true), ("1000000000000000000", true)]);
}

#[test]
fn s47_a_full_queue_refuses_what_is_too_much() {
    let _beside = beside_others();
    let (mut event_loop, order) = (real_loop(), Order::new());
    let pool =
        io_pool_with(&mut event_loop, IoPoolConfig { threads: 1, queue_max: 2, ..IoPoolConfig::default() });
    let blocked = Blocked::start(&pool, |_, result| result.unwrap());
    for number in 0..4 {
        let order = order.clone();
        pool.submit(|| (), move |_, result: Result<(), _>| order.push((number, result.is_ok())));
    }
    event_loop.set_immediate(|_: &mut Context| blocked.let_go());
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), [(2, false), (3, false), (0, true), (1, true)]);
}

#[test]
fn s72_while_a_callback_blocks_nobody_at_all_is_served() {
    let _beside = beside_others();
    let (mut event_loop, order) = (real_loop(), Order::new());
    let (mut writer, reader) = UnixStream::pair().unwrap();
    in_poll_when_readable(&event_loop, reader, order.add("client"));
    event_loop.set_timeout(Duration::ZERO, order.add("timer"));
    let (say_sent, sent) = std::sync::mpsc::channel();
    let inner = order.clone();
    event_loop.next_tick(move |_| {
        // Blocked until the request of the client has certainly come.
        sent.recv().unwrap();
        inner.push("the callback ends");
    });
    let client = std::thread::spawn(move || {
        writer.write_all(b"x").unwrap();
        say_sent.send(()).unwrap();
        writer
    });
    event_loop.run().unwrap();
    client.join().unwrap();
    let mut order = order.so_far();
    assert_eq!(order.remove(0), "the callback ends");
    order.sort_unstable();
    assert_eq!(order, ["client", "timer"]);
}

#[test]
fn s72_a_thread_of_the_pool_does_one_thing_at_a_time() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let pool = io_pool(&mut event_loop, 1);
    let running = std::sync::Arc::new(std::sync::Mutex::new(()));
    for _ in 0..1_000 {
        let running = std::sync::Arc::clone(&running);
        let task = move || running.try_lock().map(drop).is_ok();
        pool.submit(task, |_, was_alone| assert!(was_alone.unwrap()));
    }
    event_loop.run().unwrap();
}
