//! Many timers at once: started, fired, cleared.

use std::time::{Duration, Instant};

use offload_event_loop::TimerId;

use super::{new_loop, run_and_stop};
use crate::measure::{Counter, Measured, Meter};

/// Numbers from 0 to `below` - 1 in no order, the same in all programs that are compared: 7919 is prime.
fn scatter(number: u64, below: u64) -> u64 {
    number * 7_919 % below
}

pub(crate) fn same(n: u64) -> Measured {
    fire(n, |_| Duration::from_millis(1))
}

pub(crate) fn spread(n: u64) -> Measured {
    fire(n, |number| Duration::from_millis(1 + scatter(number, 1_000)))
}

fn fire(n: u64, delay: impl Fn(u64) -> Duration) -> Measured {
    let (mut event_loop, counter) = (new_loop(), Counter::new());
    let (meter, begun) = (Meter::start(), Instant::now());
    for number in 0..n {
        event_loop.set_timeout(delay(number), move |_| {
            counter.add_one();
        });
    }
    let created = begun.elapsed();
    let measured = run_and_stop(&mut event_loop, &meter, counter, n).with("create_s", created.as_secs_f64());
    measured.with("iterations", event_loop.metrics().iterations as f64)
}

fn long_delay(number: u64) -> Duration {
    Duration::from_millis(1_000 + scatter(number, 60_000))
}

pub(crate) fn cancel(n: u64) -> Measured {
    let (mut event_loop, counter) = (new_loop(), Counter::new());
    let capacity = usize::try_from(n).expect("a size that fits into memory");
    let mut ids: Vec<TimerId> = Vec::with_capacity(capacity);
    let meter = Meter::start();
    let start = |number| {
        event_loop.set_timeout(long_delay(number), move |_| {
            counter.add_one();
        })
    };
    ids.extend((0..n).map(start));
    for id in ids {
        assert!(event_loop.clear(id), "it waits for a second at least");
    }
    run_and_stop(&mut event_loop, &meter, counter, 0)
}

pub(crate) fn cancel_each(n: u64) -> Measured {
    let (mut event_loop, counter) = (new_loop(), Counter::new());
    let meter = Meter::start();
    for number in 0..n {
        let id = event_loop.set_timeout(long_delay(number), move |_| {
            counter.add_one();
        });
        assert!(event_loop.clear(id), "it waits for a second at least");
    }
    run_and_stop(&mut event_loop, &meter, counter, 0)
}
