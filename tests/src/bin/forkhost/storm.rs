//! Forks while other threads use a handle, so one of them may have its lock. Nobody in the child will ever free that.

use crate::sys;
use offload_supervisor::{ComputePool, EventLoop, HandleLimits, PoolHandle, Reservation};
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

const FORKS: usize = 100;
const THREADS: usize = 3;
/// Of each thread. Whoever leaves is looked for among all that wait, so the lock is seldom free.
const CLIENTS: usize = 100;

/// Must not be woken in another process: its true owner is in this one.
struct OnlyHere(u32);

impl Wake for OnlyHere {
    fn wake(self: Arc<Self>) {
        if std::process::id() != self.0 {
            eprintln!("the child has woken somebody of its parent");
            std::process::exit(3);
        }
    }
}

fn waits(handle: &PoolHandle, waker: &Waker) -> Reservation {
    let mut reservation = handle.reserve();
    let polled = Pin::new(&mut reservation).poll(&mut Context::from_waker(waker));
    assert!(polled.is_pending(), "all places are taken");
    reservation
}

/// Clients that wait for a place, and one that keeps coming and going.
fn storm(handle: &PoolHandle, thread: usize, is_over: &AtomicBool) {
    let waker = Waker::from(Arc::new(OnlyHere(std::process::id())));
    let client = |number: usize| handle.client(&format!("client {number} of thread {thread}"));
    let waiting: Vec<_> = (0..CLIENTS).map(|number| waits(&client(number), &waker)).collect();
    let restless = client(CLIENTS);
    while !is_over.load(Ordering::Relaxed) {
        drop(waits(&restless, &waker));
    }
    drop(waiting);
}

/// Each child ends in time, and the parent has its pool.
pub(crate) fn fork_in_a_storm(pool: ComputePool, mut event_loop: EventLoop) -> Result<(), Box<dyn Error>> {
    let handle = pool.handle_with(HandleLimits { jobs: 2, bytes: 1000 });
    // Not polled by name: a reservation that lives on has a handle, which keeps the loop alive.
    let place = Box::pin(handle.reserve()).as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let other = handle.client("other").submit(offload_supervisor::Job::new("echo").input("hello"));
    let is_over = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (handle, is_over) = (handle.clone(), Arc::clone(&is_over));
            std::thread::spawn(move || storm(&handle, thread, &is_over))
        })
        .collect();
    for _ in 0..FORKS {
        if !sys::fork_and_wait()? {
            drop((pool, event_loop));
            // A handle and its jobs may be dropped here, too.
            drop((place, other, handle));
            std::process::exit(0);
        }
    }
    is_over.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().expect("it is told that it is over"));
    drop((place, pool, handle));
    let told = event_loop.spawn(other);
    event_loop.run()?;
    let output = told.take_result().expect("it has ended")?.into_output()?;
    println!("{FORKS} children, and the parent has its answer: {}", String::from_utf8_lossy(&output));
    Ok(())
}
