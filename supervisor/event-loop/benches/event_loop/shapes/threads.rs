//! What comes from other threads: posts, notifications, answers of the I/O pool.

use std::cell::Cell;
use std::fs::Metadata;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use offload_event_loop::Context;
use offload_event_loop::io_pool::{IoPool, IoPoolConfig};
use offload_event_loop::{LoopGone, Notifier, Remote};

use super::{new_loop, run, run_and_stop};
use crate::measure::{Counter, Measured, Meter};

thread_local! {
    /// For callbacks that capture nothing, not even a counter.
    static RAN: Cell<u64> = const { Cell::new(0) };
}

fn count_here() -> u64 {
    RAN.set(RAN.get() + 1);
    RAN.get()
}

pub(crate) fn posts_empty(n: u64) -> Measured {
    flood(n, |remote, _| {
        remote.post(|_| {
            count_here();
        })
    })
}

pub(crate) fn posts_capturing(n: u64) -> Measured {
    flood(n, |remote, number| {
        let (number, twice) = (number, 2 * number);
        remote.post(move |_| {
            assert_eq!(number * 2, twice, "the capture arrives");
            count_here();
        })
    })
}

/// Another thread posts `n` times and then the end.
fn flood(n: u64, post: impl Fn(&Remote, u64) -> Result<(), LoopGone> + Send + 'static) -> Measured {
    let mut event_loop = new_loop();
    let (remote, _hold) = (event_loop.remote(), event_loop.hold());
    let meter = Meter::start();
    let poster = thread::spawn(move || {
        (0..n).for_each(|number| post(&remote, number).expect("the loop is here"));
        remote.post(|context| context.stop()).expect("the loop is here");
    });
    run(&mut event_loop);
    let measured = meter.stop();
    poster.join().expect("it does not panic");
    assert_eq!(RAN.get(), n, "every post ran, and once");
    measured.with("iterations", event_loop.metrics().iterations as f64)
}

pub(crate) fn posts_pingpong(n: u64) -> Measured {
    let mut near = new_loop();
    let (near_remote, _hold) = (near.remote(), near.hold());
    let far_remote = Arc::new(OnceLock::new());
    let tell = Arc::clone(&far_remote);
    let far = thread::spawn(move || {
        let mut far = new_loop();
        let _hold = far.hold();
        let _ = tell.set(far.remote());
        run(&mut far);
    });
    let far_remote = far_remote.wait().clone();
    let meter = Meter::start();
    serve(&near_remote, &far_remote, n);
    run(&mut near);
    let measured = meter.stop();
    assert_eq!(RAN.get(), n, "every ball came back, and once");
    far_remote.stop();
    far.join().expect("it does not panic");
    measured
}

/// A post to the far loop, which posts back.
fn serve(near: &Remote, far: &Remote, n: u64) {
    let (back, next) = (near.clone(), far.clone());
    let ball = move |_: &mut Context| {
        let home = back.clone();
        let returned = move |context: &mut Context| match count_here() == n {
            true => context.stop(),
            false => serve(&home, &next, n),
        };
        back.post(returned).expect("the near loop waits for it");
    };
    far.post(ball).expect("the far loop is stopped last");
}

pub(crate) fn notify_self(n: u64) -> Measured {
    let mut event_loop = new_loop();
    let hold = event_loop.hold();
    let bell: Arc<OnceLock<Notifier>> = Arc::default();
    let rings = Arc::clone(&bell);
    let notifier = event_loop.remote().notifier(move |context| match count_here() == n {
        true => context.stop(),
        false => rings.wait().notify().expect("the loop is here"),
    });
    let notifier = bell.get_or_init(|| notifier);
    let meter = Meter::start();
    notifier.notify().expect("the loop is here");
    run(&mut event_loop);
    let measured = meter.stop();
    drop(hold);
    assert_eq!(RAN.get(), n, "every ring was answered, and once");
    measured
}

pub(crate) fn notify_flood(n: u64) -> Measured {
    let mut event_loop = new_loop();
    let (remote, _hold) = (event_loop.remote(), event_loop.hold());
    let rung = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&rung);
    let notifier = remote.notifier(move |context| {
        count_here();
        if seen.load(Ordering::Acquire) == n {
            context.stop();
        }
    });
    let meter = Meter::start();
    let ringer = thread::spawn(move || {
        for number in 1..=n {
            rung.store(number, Ordering::Release);
            notifier.notify().expect("the loop is here");
        }
    });
    run(&mut event_loop);
    let measured = meter.stop();
    ringer.join().expect("it does not panic");
    assert!((1..=n).contains(&RAN.get()), "no ring is lost and none is answered twice");
    measured.with("callbacks", RAN.get() as f64)
}

pub(crate) fn pool_stat_64(n: u64) -> Measured {
    pool_stat(n, 64)
}

pub(crate) fn pool_stat_1(n: u64) -> Measured {
    pool_stat(n, 1)
}

struct Stats {
    pool: IoPool,
    left: Cell<u64>,
    counter: Counter,
}

fn pool_stat(n: u64, in_flight: u64) -> Measured {
    let (mut event_loop, counter) = (new_loop(), Counter::new());
    let pool = IoPool::new(&event_loop, IoPoolConfig::default()).expect("four threads");
    let stats = Rc::new(Stats { pool, left: Cell::new(n), counter });
    let meter = Meter::start();
    (0..in_flight).for_each(|_| next_stat(&stats));
    run_and_stop(&mut event_loop, &meter, counter, n)
}

fn next_stat(stats: &Rc<Stats>) {
    let Some(left) = stats.left.get().checked_sub(1) else { return };
    stats.left.set(left);
    let next = Rc::clone(stats);
    let done = move |_: &mut Context, result: Result<Metadata, _>| {
        assert!(result.is_ok(), "the working directory is there");
        next.counter.add_one();
        next_stat(&next);
    };
    stats.pool.fs_stat(".", done);
}
