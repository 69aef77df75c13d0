//! S66 to S70: how tasks are cut, counted and routed, so that a pool does not block.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use offload_event_loop::io_pool::IoPool;
use offload_worker::builtin::average::Average;

use super::pool::{Fifo, read_bytes};
use super::props::{Blocked, io_pool, real_loop};
use crate::stage::{Order, beside_others};

#[test]
fn s66_a_file_that_is_read_in_parts_lets_others_have_the_thread_while_its_rest_is_not_there() {
    let _beside = beside_others();
    let (mut event_loop, order) = (real_loop(), Order::new());
    let (pool, fifo) = (io_pool(&mut event_loop, 1), Rc::new(Fifo::new()));
    let blocked = Blocked::start(&pool, |_, result| result.unwrap());
    let (file, mut contents) = (fifo.open(), Vec::new());
    let part = move || {
        contents.extend(read_bytes(&file, 1));
        if contents.len() < 4 { ControlFlow::Continue(()) } else { ControlFlow::Break(contents.clone()) }
    };
    let (whole, short, rest) = (order.clone(), order.clone(), Rc::clone(&fifo));
    pool.submit_parts(part, move |_, contents| {
        assert_eq!(contents.unwrap(), b"file");
        whole.push("whole file");
    });
    pool.submit(
        || (),
        move |_, _| {
            short.push("short task");
            // The second part needs this. It waits for it, unless the short task had its turn before.
            rest.write(b"ile");
        },
    );
    fifo.write(b"f");
    blocked.let_go();
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["short task", "whole file"]);
}

/// The average of 1 to n, a hundred numbers a part; every part that a thread runs is counted.
fn average_in_parts(pool: &IoPool, n: u64, parts: &Arc<AtomicU64>, done: impl FnOnce(f64) + 'static) {
    let (mut average, parts) = (Average::new(n).unwrap(), Arc::clone(parts));
    let part = move || {
        parts.fetch_add(1, Ordering::Relaxed);
        (0..100).try_for_each(|_| average.step())
    };
    pool.submit_parts(part, move |_, average| done(average.unwrap()));
}

#[test]
fn s67_an_average_is_computed_on_the_pool_in_parts_with_others_in_between() {
    let _beside = beside_others();
    let (mut event_loop, order) = (real_loop(), Order::new());
    let pool = io_pool(&mut event_loop, 1);
    let blocked = Blocked::start(&pool, |_, result| result.unwrap());
    let (long, parts) = (order.clone(), Arc::default());
    average_in_parts(&pool, 1_000, &parts, move |average| {
        assert_eq!(average, 500.5);
        long.push("average");
    });
    let short = order.clone();
    pool.submit(|| (), move |_, _| short.push("short task"));
    blocked.let_go();
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["short task", "average"]);
}

#[test]
fn s68_a_short_task_is_one_part_and_a_long_one_many() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let pool = io_pool(&mut event_loop, 1);
    for (n, expected) in [(1, 1), (100, 1), (1_000, 10), (10_000, 100)] {
        let parts = Arc::default();
        average_in_parts(&pool, n, &parts, move |average| assert_eq!(average, (n + 1) as f64 / 2.0));
        event_loop.run().unwrap();
        assert_eq!(parts.load(Ordering::Relaxed), expected, "the average of {n} numbers");
    }
}

#[test]
fn s69_a_task_counts_once_however_many_parts_it_has() {
    let _beside = beside_others();
    let mut event_loop = real_loop();
    let pool = io_pool(&mut event_loop, 2);
    let (parts, done) = (Arc::default(), Rc::new(Cell::new(0)));
    let blocked = [(); 2].map(|()| Blocked::start(&pool, |_, result| result.unwrap()));
    for _ in 0..3 {
        let done = Rc::clone(&done);
        average_in_parts(&pool, 1_000, &parts, move |_| done.set(done.get() + 1));
    }
    assert_eq!(pool.stats().queued, 3, "three tasks wait, not thirty parts");
    blocked.into_iter().for_each(Blocked::let_go);
    event_loop.run().unwrap();
    assert_eq!((parts.load(Ordering::Relaxed), done.get()), (30, 3));
}

/// Sends short sums after a sort that does not end before all of them are done; in which order they end.
fn sums_beside_a_sort(pool_for_sorts: &IoPool, pool_for_sums: &IoPool, order: &Order) {
    let sorted = order.clone();
    let sort = Blocked::start(pool_for_sorts, move |_, result| {
        result.unwrap();
        sorted.push("sort");
    });
    let (sort, left) = (Rc::new(RefCell::new(Some(sort))), Rc::new(Cell::new(3)));
    for _ in 0..3 {
        let (order, sort, left) = (order.clone(), Rc::clone(&sort), Rc::clone(&left));
        pool_for_sums.submit(
            || (1..=100).sum::<u64>(),
            move |_, sum| {
                assert_eq!(sum.unwrap(), 5_050);
                order.push("sum");
                left.set(left.get() - 1);
                if left.get() == 0 {
                    sort.take().unwrap().let_go();
                }
            },
        );
    }
}

#[test]
fn s70_with_a_pool_for_each_class_of_tasks_sums_do_not_wait_for_a_sort() {
    let _beside = beside_others();
    let (mut event_loop, order) = (real_loop(), Order::new());
    let (sorts, sums) = (io_pool(&mut event_loop, 1), io_pool(&mut event_loop, 1));
    sums_beside_a_sort(&sorts, &sums, &order);
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["sum", "sum", "sum", "sort"]);
}

#[test]
fn s70_in_one_pool_for_both_classes_the_sums_wait_for_the_sort() {
    let _beside = beside_others();
    let (mut event_loop, order) = (real_loop(), Order::new());
    let both = io_pool(&mut event_loop, 1);
    let sorted = order.clone();
    let sort = Blocked::start(&both, move |_, _| sorted.push("sort"));
    for _ in 0..3 {
        let order = order.clone();
        both.submit(|| (1..=100).sum::<u64>(), move |_, _| order.push("sum"));
    }
    assert_eq!((both.stats().busy, both.stats().queued), (1, 3));
    sort.let_go();
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["sort", "sum", "sum", "sum"]);
}
