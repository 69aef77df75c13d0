//! Futures: they become ready in the microtask queue, as promises do in Node.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::time::Duration;

use offload_event_loop::{JoinError, JoinHandle, LoopError, LoopHandle};

use super::{connection, milliseconds, real_loop, receive, send_a_byte, virtual_loop};
use crate::stage::Order;

/// Pending until it is woken by somebody else; counts its polls.
fn pending(polls: &Order<()>) -> impl Future<Output = ()> + use<> {
    let polls = polls.clone();
    poll_fn(move |_| {
        polls.push(());
        Poll::Pending
    })
}

#[test]
fn futures_are_polled_as_microtasks_in_the_order_of_their_spawning() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    for name in ["first future", "second future"] {
        let log = order.clone();
        event_loop.spawn(async move { log.push(name) });
    }
    event_loop.queue_microtask(order.add("microtask"));
    event_loop.next_tick(order.add("tick"));
    assert!(order.so_far().is_empty(), "never from within the call");
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["tick", "first future", "second future", "microtask"]);
}

#[test]
fn what_follows_an_await_runs_before_the_next_timer() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (log, handle) = (order.clone(), event_loop.handle());
    let sleep = event_loop.sleep(milliseconds(1));
    event_loop.spawn(async move {
        sleep.await;
        log.push("after the sleep");
        handle.yield_now().await;
        log.push("after the yield");
    });
    // Its timer starts when it is first polled, which is before this tick's: so this one is the later.
    let timer = order.clone();
    event_loop.queue_microtask(move |context| {
        context.set_timeout(milliseconds(1), timer.add("timer"));
    });
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["after the sleep", "after the yield", "timer"]);
}

#[test]
fn sleeps_end_by_their_length_and_never_early() {
    let mut event_loop = virtual_loop();
    let (order, start) = (Order::new(), event_loop.now());
    for length in [30, 10, 20] {
        let (log, handle) = (order.clone(), event_loop.handle());
        event_loop.spawn(async move {
            handle.sleep(milliseconds(length)).await;
            assert!(handle.now() - start >= milliseconds(length));
            log.push(length);
        });
    }
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), [10, 20, 30]);
}

#[test]
fn the_next_iteration_comes_in_the_check_phase_in_line_with_the_immediates() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    event_loop.set_immediate(order.add("first immediate"));
    let (log, next) = (order.clone(), event_loop.next_iteration());
    event_loop.spawn(async move {
        next.await;
        log.push("future");
    });
    let last = order.clone();
    event_loop.queue_microtask(move |context| {
        context.set_immediate(last.add("last immediate"));
    });
    event_loop.prepare(order.add("prepare"));
    event_loop.run_mode(offload_event_loop::RunMode::NoWait).unwrap();
    assert_eq!(order.so_far(), ["prepare", "first immediate", "future", "last immediate"]);
}

#[test]
fn futures_that_yield_take_turns_without_letting_the_loop_go_on() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    event_loop.set_immediate(order.add(("immediate", 0)));
    for name in ["one", "other"] {
        let (log, handle) = (order.clone(), event_loop.handle());
        event_loop.spawn(async move {
            for round in 0..2 {
                log.push((name, round));
                handle.yield_now().await;
            }
        });
    }
    event_loop.run().unwrap();
    let expected = [("one", 0), ("other", 0), ("one", 1), ("other", 1), ("immediate", 0)];
    assert_eq!(order.so_far(), expected);
}

#[test]
fn a_future_that_waits_for_nothing_does_not_keep_the_loop_alive() {
    let mut event_loop = virtual_loop();
    let polls = Order::new();
    let task = event_loop.spawn(pending(&polls));
    assert!(event_loop.is_alive(), "it waits to be polled");
    assert!(!event_loop.run().unwrap());
    assert_eq!(polls.so_far().len(), 1);
    assert!(!task.is_finished());
}

#[test]
fn a_result_is_joined_whether_it_is_awaited_before_or_after_it_is_there() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (slow, fast) = (event_loop.sleep(milliseconds(9)), event_loop.sleep(milliseconds(1)));
    let slow = event_loop.spawn(async move {
        slow.await;
        "slow"
    });
    let fast = event_loop.spawn(async move {
        fast.await;
        "fast"
    });
    let log = order.clone();
    event_loop.spawn(async move {
        log.push(slow.await);
        assert!(fast.is_finished());
        log.push(fast.await);
    });
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), [Ok("slow"), Ok("fast")]);
}

#[test]
fn a_future_woken_many_times_is_polled_once_for_them_all() {
    let mut event_loop = virtual_loop();
    let polls = Order::new();
    let waker = Rc::new(Cell::new(None::<Waker>));
    let (log, slot) = (polls.clone(), Rc::clone(&waker));
    event_loop.spawn(poll_fn(move |context| {
        log.push(());
        slot.set(Some(context.waker().clone()));
        Poll::<()>::Pending
    }));
    event_loop.run().unwrap();
    let wake = waker.take().unwrap();
    (0..10).for_each(|_| wake.wake_by_ref());
    event_loop.run().unwrap();
    assert_eq!(polls.so_far().len(), 2);
}

#[test]
fn a_waker_that_outlives_its_future_wakes_nobody() {
    let mut event_loop = virtual_loop();
    let waker = Rc::new(Cell::new(None::<Waker>));
    let slot = Rc::clone(&waker);
    let task = event_loop.spawn(poll_fn(move |context| {
        slot.set(Some(context.waker().clone()));
        Poll::<()>::Pending
    }));
    event_loop.run().unwrap();
    task.cancel();
    let polls = Order::new();
    // It may well live in the place of the other one, but it is not that one.
    event_loop.spawn(pending(&polls));
    event_loop.run().unwrap();
    waker.take().unwrap().wake();
    event_loop.run().unwrap();
    assert_eq!(polls.so_far().len(), 1);
}

#[test]
fn cancelling_drops_a_future_with_its_timer_and_tells_who_waits() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (start, sleep) = (event_loop.now(), event_loop.sleep(Duration::from_secs(3_600)));
    let task = Rc::new(event_loop.spawn(sleep));
    let victim = Rc::clone(&task);
    event_loop.set_timeout(milliseconds(1), move |_| victim.cancel());
    assert!(!event_loop.run().unwrap());
    assert!(event_loop.now() - start < milliseconds(2), "its timer went with it");
    let log = order.clone();
    event_loop.spawn(async move { log.push(Rc::into_inner(task).unwrap().await) });
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), [Err(JoinError::Cancelled)]);
}

#[test]
fn a_handle_that_cancels_on_drop_ends_its_future_and_a_plain_one_does_not() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    for (name, cancels) in [("cancelled", true), ("detached", false)] {
        let (log, handle) = (order.clone(), event_loop.handle());
        let task = event_loop.spawn(async move {
            handle.sleep(milliseconds(1)).await;
            log.push(name);
        });
        if cancels {
            drop(task.cancel_on_drop());
        }
    }
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["detached"]);
}

#[test]
fn a_future_may_cancel_itself_while_it_runs() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let own = Rc::new(Cell::new(None::<offload_event_loop::JoinHandle<()>>));
    let (task, log, handle) = (Rc::clone(&own), order.clone(), event_loop.handle());
    own.set(Some(event_loop.spawn(async move {
        task.take().unwrap().cancel();
        log.push("until it waits");
        handle.sleep(milliseconds(1)).await;
        log.push("never");
    })));
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["until it waits"]);
}

#[test]
fn reading_waits_for_input_and_keeps_the_loop_alive_until_then() {
    let mut event_loop = real_loop();
    let order = Order::new();
    let (peer, stream) = connection();
    let (log, handle) = (order.clone(), event_loop.handle());
    event_loop.spawn(async move {
        handle.readable(&*stream).await.unwrap();
        log.push(receive(&stream));
    });
    event_loop.set_timeout(milliseconds(1), move |_| send_a_byte(&peer));
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), [1]);
}

#[test]
fn a_future_cannot_wait_for_a_descriptor_that_a_watcher_has() {
    let mut event_loop = virtual_loop();
    let order = Order::new();
    let (_peer, stream) = connection();
    let interest = offload_event_loop::Interest::READ;
    let watch = event_loop.watch(Rc::clone(&stream), interest, |_, _| {}).unwrap();
    event_loop.unref(watch);
    let (log, handle) = (order.clone(), event_loop.handle());
    event_loop.spawn(async move {
        let refused = handle.readable(&*stream).await;
        log.push(matches!(refused, Err(LoopError::AlreadyWatched)));
    });
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), [true]);
}

#[test]
fn a_future_is_woken_by_another_thread() {
    let mut event_loop = real_loop();
    let order = Order::new();
    let (sender, wakers) = mpsc::channel::<Waker>();
    let waking = std::thread::spawn(move || wakers.recv().unwrap().wake());
    let (hold, log, mut polls) = (event_loop.hold(), order.clone(), 0);
    event_loop.spawn(poll_fn(move |context| {
        polls += 1;
        let _ = &hold;
        if polls == 1 {
            sender.send(context.waker().clone()).unwrap();
            return Poll::Pending;
        }
        log.push("woken");
        Poll::Ready(())
    }));
    assert!(!event_loop.run().unwrap());
    waking.join().unwrap();
    assert_eq!(order.so_far(), ["woken"]);
}

/// Says when it is dropped, how often that has happened.
struct Counted(Rc<Cell<usize>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// Far more than a stack has room for, if each was dropped from within the one before.
const LONG_CHAIN: usize = 50_000;

/// Tasks of which each owns the next one. The first one and the count of those that were dropped.
fn chain_of_tasks(event_loop: &LoopHandle) -> (JoinHandle<()>, Rc<Cell<usize>>) {
    let dropped = Rc::new(Cell::new(0));
    let mut next = None;
    for _ in 0..LONG_CHAIN {
        let (owned, counted) = (next.take(), Counted(Rc::clone(&dropped)));
        let task = event_loop.spawn(async move {
            let _owned = (owned, counted);
            std::future::pending::<()>().await;
        });
        next = Some(task.cancel_on_drop());
    }
    (next.unwrap(), dropped)
}

/// Runs a test with as much stack as a thread gets where it gets little.
fn in_a_small_stack(test: fn()) {
    std::thread::Builder::new().stack_size(128 * 1_024).spawn(test).unwrap().join().unwrap();
}

#[test]
fn cancelling_the_head_of_a_long_chain_of_tasks_drops_them_all_before_it_returns() {
    in_a_small_stack(|| {
        for is_polled in [false, true] {
            let mut event_loop = virtual_loop();
            let (head, dropped) = chain_of_tasks(&event_loop);
            if is_polled {
                event_loop.run().unwrap();
            }
            head.cancel();
            assert_eq!(dropped.get(), LONG_CHAIN);
            assert_eq!(head.take_result(), Some(Err(JoinError::Cancelled)));
        }
    });
}

#[test]
fn a_long_chain_of_tasks_ends_with_its_handle_its_loop_or_the_task_that_owns_it() {
    in_a_small_stack(|| {
        let mut event_loop = virtual_loop();
        let (head, dropped) = chain_of_tasks(&event_loop);
        drop(head);
        assert_eq!(dropped.get(), LONG_CHAIN);

        let (head, dropped) = chain_of_tasks(&event_loop);
        event_loop.spawn(async move { drop(head) });
        event_loop.run().unwrap();
        assert_eq!(dropped.get(), LONG_CHAIN);

        let (head, dropped) = chain_of_tasks(&event_loop);
        event_loop.set_immediate(move |_| {
            let _owned = head;
        });
        event_loop.run().unwrap();
        assert_eq!(dropped.get(), LONG_CHAIN);

        let (_head, dropped) = chain_of_tasks(&event_loop);
        drop(event_loop);
        assert_eq!(dropped.get(), LONG_CHAIN);
    });
}

#[test]
fn a_chain_of_tasks_of_two_loops_is_as_long_as_it_likes() {
    in_a_small_stack(|| {
        let loops = [virtual_loop(), virtual_loop()];
        let dropped = Rc::new(Cell::new(0));
        let mut next = None;
        for number in 0..LONG_CHAIN {
            let owned = (next.take(), Counted(Rc::clone(&dropped)));
            let task = loops[number % 2].spawn(async move {
                let _owned = owned;
                std::future::pending::<()>().await;
            });
            next = Some(task.cancel_on_drop());
        }
        drop(next);
        assert_eq!(dropped.get(), LONG_CHAIN);
    });
}

#[test]
fn a_panic_while_a_chain_of_tasks_is_dropped_comes_out_after_all_are_dropped() {
    struct Panicking;
    impl Drop for Panicking {
        fn drop(&mut self) {
            panic!("in a drop");
        }
    }
    let mut event_loop = virtual_loop();
    let (chain, dropped) = chain_of_tasks(&event_loop);
    let head = event_loop.spawn(async move {
        let _owned = (chain, Panicking);
        std::future::pending::<()>().await;
    });
    let order = Order::new();
    let log = order.clone();
    event_loop.set_panic_handler(move |_, panic| log.push(panic.message().to_owned()));
    let count = Rc::clone(&dropped);
    event_loop.set_immediate(move |_| {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| head.cancel()));
        assert_eq!(count.get(), LONG_CHAIN);
        std::panic::resume_unwind(caught.unwrap_err());
    });
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["in a drop"]);
    // Cancelling goes on as before.
    let (head, dropped) = chain_of_tasks(&event_loop);
    drop(head);
    assert_eq!(dropped.get(), LONG_CHAIN);
}
