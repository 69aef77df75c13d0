//! Long computations beside others: the average of the seed document in steps, and long tasks on the I/O pool.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::{Duration, Instant};

use offload_event_loop::io_pool::{IoPool, IoPoolConfig};
use offload_event_loop::{Context, EventLoop};

use super::{new_loop, run};
use crate::measure::{Measured, Meter};

/// How often direct loop and helper take turns within one process: both are short.
const TURNS: usize = 9;

const BUDGET: Duration = Duration::from_millis(1);

pub(crate) fn budgeted(n: u64) -> Measured {
    compare(n, |event_loop, done| {
        event_loop
            .partition_within(BUDGET, Sum::new(n), Sum::step, move |_, average| done.set(Some(average)));
    })
}

pub(crate) fn one_step_each(n: u64) -> Measured {
    compare(n, |event_loop, done| {
        event_loop.partition(Sum::new(n), Sum::step, move |_, average| done.set(Some(average)));
    })
}

/// The state of an average that is computed number by number.
struct Sum {
    next: u64,
    last: u64,
    sum: u64,
}

impl Sum {
    fn new(last: u64) -> Sum {
        Sum { next: 1, last, sum: 0 }
    }

    #[inline]
    fn step(&mut self) -> ControlFlow<f64> {
        // Without the black box the compiler knows the sum of a row of numbers by heart.
        self.sum += black_box(self.next);
        if self.next == self.last {
            return ControlFlow::Break(self.sum as f64 / self.last as f64);
        }
        self.next += 1;
        ControlFlow::Continue(())
    }
}

/// Counts by hand: an inclusive range carries a flag through the loop, which made the helper look faster than this.
fn direct(n: u64) -> f64 {
    let (mut number, mut sum) = (1, 0);
    while number <= n {
        sum += black_box(number);
        number += 1;
    }
    sum as f64 / n as f64
}

type Answer = Rc<Cell<Option<f64>>>;

fn compare(n: u64, start: impl Fn(&EventLoop, Answer)) -> Measured {
    let meter = Meter::start();
    let (mut directly, mut in_steps) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let begun = Instant::now();
        let expected = black_box(direct(black_box(n)));
        directly.push(begun.elapsed());
        let (mut event_loop, answer) = (new_loop(), Answer::default());
        let begun = Instant::now();
        start(&event_loop, Rc::clone(&answer));
        run(&mut event_loop);
        in_steps.push(begun.elapsed());
        assert_eq!(answer.get(), Some(expected), "the average is the same");
    }
    let (directly, in_steps) = (middle(directly), middle(in_steps));
    let measured = meter.stop().with("direct_ms", milliseconds(directly));
    let ratio = in_steps.as_secs_f64() / directly.as_secs_f64();
    measured.with("in_steps_ms", milliseconds(in_steps)).with("ratio", ratio)
}

fn middle(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

const LONG_TASKS: u64 = 8;
const PAUSE_BETWEEN_STATS: Duration = Duration::from_millis(5);

pub(crate) fn whole(ms: u64) -> Measured {
    long_tasks(ms, 1)
}

pub(crate) fn in_parts(ms: u64) -> Measured {
    long_tasks(ms, 100)
}

/// File stats, one after another with a pause in between, for as long as the long tasks are not done.
struct Trickle {
    pool: IoPool,
    long_left: Cell<u64>,
    latencies: RefCell<Vec<Duration>>,
}

fn long_tasks(ms: u64, parts: u64) -> Measured {
    let rounds = rounds_per_millisecond() * ms / parts;
    let mut event_loop = new_loop();
    let pool = IoPool::new(&event_loop, IoPoolConfig::default()).expect("four threads");
    let latencies = RefCell::default();
    let trickle = Rc::new(Trickle { pool, long_left: Cell::new(LONG_TASKS), latencies });
    let meter = Meter::start();
    (0..LONG_TASKS).for_each(|seed| start_long(&trickle, seed, rounds, parts));
    next_stat(&trickle);
    run(&mut event_loop);
    let measured = meter.stop();
    let mut latencies = trickle.latencies.take();
    latencies.sort_unstable();
    let longest = *latencies.last().expect("the first stat waits behind the long tasks");
    let median = latencies[latencies.len() / 2];
    let measured = measured.with("stats", latencies.len() as f64).with("stat_p50_ms", milliseconds(median));
    measured.with("stat_max_ms", milliseconds(longest))
}

fn start_long(trickle: &Rc<Trickle>, seed: u64, rounds: u64, parts: u64) {
    let (mut value, mut left) = (seed, parts);
    let part = move || {
        value = burn(value, rounds);
        left -= 1;
        if left == 0 { ControlFlow::Break(value) } else { ControlFlow::Continue(()) }
    };
    let trickle_of_it = Rc::clone(trickle);
    trickle.pool.submit_parts(part, move |_, result| {
        black_box(result.expect("it is done long before its deadline"));
        trickle_of_it.long_left.set(trickle_of_it.long_left.get() - 1);
    });
}

fn next_stat(trickle: &Rc<Trickle>) {
    let (next, asked) = (Rc::clone(trickle), Instant::now());
    let done = move |context: &mut Context, result: Result<bool, _>| {
        assert!(matches!(result, Ok(true)), "the working directory is there");
        next.latencies.borrow_mut().push(asked.elapsed());
        if next.long_left.get() > 0 {
            context.set_timeout(PAUSE_BETWEEN_STATS, move |_| next_stat(&next));
        }
    };
    trickle.pool.submit(|| std::fs::metadata(".").is_ok(), done);
}

/// Work that only a processor can do, each round waiting for the one before it, as in a password hash.
fn burn(seed: u64, rounds: u64) -> u64 {
    (0..rounds)
        .fold(seed, |value, _| black_box(value.rotate_left(23).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 1))
}

/// In processor time, so that other load does not make the tasks shorter, and the fastest of three.
fn rounds_per_millisecond() -> u64 {
    const ROUNDS: u64 = 4_000_000;
    let once = |_| {
        let meter = Meter::start();
        black_box(burn(7, ROUNDS));
        meter.stop().processor
    };
    let fastest = (0..3).map(once).min().unwrap_or_default().max(Duration::from_micros(1));
    (ROUNDS as f64 / milliseconds(fastest)) as u64
}
