//! What the loop does without anybody else: iterations, immediates, ticks, microtasks, futures.

use std::os::fd::OwnedFd;

use offload_event_loop::Context;
use offload_event_loop::Interest;
use rustix::pipe::pipe;

use super::{new_loop, run_and_stop};
use crate::measure::{Counter, Measured, Meter};

pub(crate) fn iterations(n: u64) -> Measured {
    let (mut event_loop, counter) = (new_loop(), Counter::new());
    event_loop.idle(move |context| stop_after(n, counter, context));
    run_and_stop(&mut event_loop, &Meter::start(), counter, n)
}

/// A pipe is watched, so that the kernel has a set to look at in each iteration.
pub(crate) fn iterations_polling(n: u64) -> Measured {
    let (mut event_loop, counter) = (new_loop(), Counter::new());
    let (reader, _writer): (OwnedFd, OwnedFd) = pipe().expect("two descriptors");
    event_loop
        .watch(reader, Interest::READ, |_, _| unreachable!("nobody writes"))
        .expect("it can be watched");
    event_loop.idle(|_| ());
    event_loop.check(move |context| stop_after(n, counter, context));
    run_and_stop(&mut event_loop, &Meter::start(), counter, n)
}

fn stop_after(n: u64, counter: Counter, context: &Context) {
    if counter.add_one() == n {
        context.stop();
    }
}

pub(crate) fn immediate_chain(n: u64) -> Measured {
    let (mut event_loop, counter) = (new_loop(), Counter::new());
    let meter = Meter::start();
    next_immediate(&event_loop, counter, n);
    run_and_stop(&mut event_loop, &meter, counter, n)
}

fn next_immediate(context: &Context, counter: Counter, n: u64) {
    context.set_immediate(move |context| {
        if counter.add_one() < n {
            next_immediate(context, counter, n);
        }
    });
}

pub(crate) fn immediate_batch(n: u64) -> Measured {
    let (mut event_loop, counter) = (new_loop(), Counter::new());
    let meter = Meter::start();
    for _ in 0..n {
        event_loop.set_immediate(move |_| {
            counter.add_one();
        });
    }
    run_and_stop(&mut event_loop, &meter, counter, n)
}

pub(crate) fn tick_chain(n: u64) -> Measured {
    let (mut event_loop, counter) = (new_loop(), Counter::new());
    let meter = Meter::start();
    next_tick(&event_loop, counter, n);
    run_and_stop(&mut event_loop, &meter, counter, n)
}

fn next_tick(context: &Context, counter: Counter, n: u64) {
    context.next_tick(move |context| {
        if counter.add_one() < n {
            next_tick(context, counter, n);
        }
    });
}

pub(crate) fn microtask_chain(n: u64) -> Measured {
    let (mut event_loop, counter) = (new_loop(), Counter::new());
    let meter = Meter::start();
    next_microtask(&event_loop, counter, n);
    run_and_stop(&mut event_loop, &meter, counter, n)
}

fn next_microtask(context: &Context, counter: Counter, n: u64) {
    context.queue_microtask(move |context| {
        if counter.add_one() < n {
            next_microtask(context, counter, n);
        }
    });
}

pub(crate) fn tasks(n: u64) -> Measured {
    let (mut event_loop, counter) = (new_loop(), Counter::new());
    let meter = Meter::start();
    for _ in 0..n {
        event_loop.spawn(async move {
            counter.add_one();
        });
    }
    run_and_stop(&mut event_loop, &meter, counter, n)
}

pub(crate) fn yields(n: u64) -> Measured {
    let (mut event_loop, counter) = (new_loop(), Counter::new());
    let handle = event_loop.handle();
    let meter = Meter::start();
    event_loop.spawn(async move {
        for _ in 0..n {
            handle.yield_now().await;
            counter.add_one();
        }
    });
    run_and_stop(&mut event_loop, &meter, counter, n)
}
