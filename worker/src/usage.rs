//! Measures what an attempt uses: time, CPU time, memory.
//!
//! The CPU time is that of the whole process, so the threads that a task starts are included. A worker has no other threads.
//! If a thread of an earlier job still runs, its CPU time is counted for the job that runs meanwhile. Programs that a task
//! starts are not included.
//!
//! The peak of memory is `ru_maxrss`, which is that of the process, not of the attempt. Linux includes what the process used
//! before it became this program. So a worker never shows less than its supervisor used when it started the worker.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use offload_protocol::nouns::Usage;
use std::time::{Duration, Instant};

/// Measures one attempt, by one system call when it starts and one when it ends.
#[derive(Debug)]
pub(crate) struct Meter {
    started: Instant,
    before: Usage,
    others: Spent,
}

/// The time and CPU time that an attempt used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) run: Duration,
    pub(crate) usage: Usage,
}

impl Meter {
    pub(crate) fn start() -> Meter {
        Meter { before: of_this_process(), started: Instant::now(), others: Spent::default() }
    }

    /// Another job ran meanwhile. What it used is not counted for this one.
    pub(crate) fn exclude(&mut self, other: Spent) {
        self.others.run += other.run;
        self.others.usage.cpu_user_us += other.usage.cpu_user_us;
        self.others.usage.cpu_system_us += other.usage.cpu_system_us;
    }

    /// How long the attempt itself has been running at `now`.
    pub(crate) fn run_time(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started).saturating_sub(self.others.run)
    }

    pub(crate) fn stop(&self) -> Spent {
        let run = self.run_time(Instant::now());
        Spent { run, usage: self.usage(of_this_process()) }
    }

    fn usage(&self, after: Usage) -> Usage {
        let own = |after: u64, before: u64, others: u64| after.saturating_sub(before).saturating_sub(others);
        let (before, others) = (&self.before, &self.others.usage);
        Usage {
            cpu_user_us: own(after.cpu_user_us, before.cpu_user_us, others.cpu_user_us),
            cpu_system_us: own(after.cpu_system_us, before.cpu_system_us, others.cpu_system_us),
            peak_rss_bytes: after.peak_rss_bytes,
        }
    }
}

/// The usage since the process began; 0 if the system cannot tell.
fn of_this_process() -> Usage {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Usage::default() };
    Usage {
        cpu_user_us: microseconds(usage.user_time()),
        cpu_system_us: microseconds(usage.system_time()),
        peak_rss_bytes: u64::try_from(usage.max_rss()).unwrap_or(0).saturating_mul(1024),
    }
}

fn microseconds(time: TimeVal) -> u64 {
    u64::try_from(time.num_microseconds()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::time::{ClockId, clock_gettime};

    fn cpu(cpu_user_us: u64, cpu_system_us: u64) -> Usage {
        Usage { cpu_user_us, cpu_system_us, peak_rss_bytes: 0 }
    }

    fn burn(duration: Duration) {
        let used = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
        while used() < duration {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn an_attempt_pays_for_what_was_used_since_it_started_without_the_jobs_in_between() {
        let mut meter = Meter { started: Instant::now(), before: cpu(1000, 100), others: Spent::default() };
        meter.exclude(Spent { run: Duration::from_secs(2), usage: cpu(30, 4) });
        meter.exclude(Spent { run: Duration::from_secs(1), usage: cpu(20, 3) });
        let after = Usage { peak_rss_bytes: 4096, ..cpu(1500, 200) };
        assert_eq!(meter.usage(after), Usage { peak_rss_bytes: 4096, ..cpu(450, 93) });
        assert_eq!(meter.run_time(meter.started + Duration::from_secs(10)), Duration::from_secs(7));
    }

    #[test]
    fn the_cpu_time_of_other_threads_counts() {
        let meter = Meter::start();
        std::thread::spawn(|| burn(Duration::from_millis(20))).join().unwrap();
        let usage = meter.stop().usage;
        assert!(usage.cpu_user_us + usage.cpu_system_us >= 20_000, "{usage:?}");
        assert!(usage.peak_rss_bytes >= 1 << 20, "{usage:?}");
    }
}
