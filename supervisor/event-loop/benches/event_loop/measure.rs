//! What is measured: the time on the wall and on the processor between two moments of one process.

use std::cell::Cell;
use std::fmt::Write;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};

/// Runs from its start to [`Meter::stop`].
pub(crate) struct Meter {
    started: Instant,
    processor: Duration,
}

impl Meter {
    pub(crate) fn start() -> Meter {
        Meter { started: Instant::now(), processor: processor_time() }
    }

    pub(crate) fn stop(&self) -> Measured {
        let wall = self.started.elapsed();
        Measured { wall, processor: processor_time() - self.processor, extras: Vec::new() }
    }
}

/// What this process has used so far on all processors, in itself and in the kernel for it.
fn processor_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process may ask about itself");
    let of = |seconds: i64, microseconds: i64| {
        Duration::from_secs(seconds.unsigned_abs()) + Duration::from_micros(microseconds.unsigned_abs())
    };
    let (user, system) = (usage.user_time(), usage.system_time());
    of(user.tv_sec(), user.tv_usec()) + of(system.tv_sec(), system.tv_usec())
}

/// The result of one shape.
pub(crate) struct Measured {
    pub(crate) wall: Duration,
    pub(crate) processor: Duration,
    extras: Vec<(&'static str, f64)>,
}

impl Measured {
    /// Adds a figure of the shape's own.
    pub(crate) fn with(mut self, name: &'static str, value: f64) -> Measured {
        self.extras.push((name, value));
        self
    }

    /// One line in the format of all programs that are compared.
    pub(crate) fn to_json(&self, bench: &str, n: u64) -> String {
        let (wall, processor) = (self.wall.as_secs_f64(), self.processor.as_secs_f64().max(1e-6));
        let count = n as f64;
        let mut line = format!(
            "{{\"engine\":\"offload\",\"bench\":\"{bench}\",\"n\":{n},\"wall_s\":{wall:.6},\"cpu_s\":{processor:.6},\
             \"per_s\":{:.0},\"per_cpu_s\":{:.0}",
            count / wall,
            count / processor
        );
        for (name, value) in &self.extras {
            let _ = write!(line, ",\"{name}\":{value:.4}");
        }
        line + "}"
    }
}

/// Counts what really ran, so that no figure stands for work that was not done. It is never freed: a copy of it in
/// each of a million callbacks then costs eight bytes and no counting of references.
#[derive(Clone, Copy)]
pub(crate) struct Counter(&'static Cell<u64>);

impl Counter {
    pub(crate) fn new() -> Counter {
        Counter(Box::leak(Box::new(Cell::new(0))))
    }

    /// Counts one more, and says how many there are now.
    pub(crate) fn add_one(self) -> u64 {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }

    /// # Panics
    /// If not exactly `n` were counted.
    pub(crate) fn expect(self, n: u64) {
        assert_eq!(self.0.get(), n, "every callback ran, and once");
    }
}
