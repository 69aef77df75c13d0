//! A thread that only sleeps, beside everything else: how late it wakes up is how late this machine makes anybody, and
//! what a loop's lag is to be compared with.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// See the module's documentation.
#[derive(Debug)]
pub struct Sleeper {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Duration>>,
}

impl Sleeper {
    /// Wants to wake up every `period` from now on.
    pub fn start(period: Duration) -> Sleeper {
        let is_over: Arc<AtomicBool> = Arc::default();
        let ends = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let (mut due, mut lateness) = (Instant::now(), Vec::new());
            while !ends.load(Ordering::Relaxed) {
                due += period;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                lateness.push(due.elapsed());
            }
            lateness
        });
        Sleeper { is_over, thread }
    }

    /// How late it was each time, in no order.
    ///
    /// # Panics
    /// Never: its thread does not.
    pub fn finish(self) -> Vec<Duration> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("a thread that sleeps does not panic")
    }
}
