//! What is measured, and how it is printed: as by the benchmarks themselves.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};

/// Runs from its start to [`Meter::report`].
pub(crate) struct Meter {
    started: Instant,
    processor: Duration,
}

impl Meter {
    pub(crate) fn start() -> Meter {
        Meter { started: Instant::now(), processor: processor_time() }
    }

    /// Prints one line of JSON.
    pub(crate) fn report(self, bench: &str, n: u64) {
        let wall = self.started.elapsed().as_secs_f64();
        let processor = (processor_time() - self.processor).as_secs_f64().max(1e-6);
        let count = n as f64;
        println!(
            "{{\"engine\":\"rust\",\"bench\":\"{bench}\",\"n\":{n},\"wall_s\":{wall:.6},\"cpu_s\":{processor:.6},\
             \"per_s\":{:.0},\"per_cpu_s\":{:.0}}}",
            count / wall,
            count / processor
        );
    }
}

fn processor_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process may ask about itself");
    let of = |seconds: i64, microseconds: i64| {
        Duration::from_secs(seconds.unsigned_abs()) + Duration::from_micros(microseconds.unsigned_abs())
    };
    let (user, system) = (usage.user_time(), usage.system_time());
    of(user.tv_sec(), user.tv_usec()) + of(system.tv_sec(), system.tv_usec())
}

/// The delay of a timer when they are spread over a second.
pub(crate) fn spread(number: u64) -> Duration {
    Duration::from_millis(1 + number * 7_919 % 1_000)
}

/// The delay of a timer when all have the same.
pub(crate) fn same(_: u64) -> Duration {
    Duration::from_millis(1)
}
