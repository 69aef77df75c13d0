//! Measures what an attempt uses: time, CPU time, memory.
//!
//! CPU time is exact to a tenth of a millisecond ([`READING_MAX`]).
//!
//! The CPU time is that of the whole process, so the threads that a task starts are included. A worker has no other threads.
//! If a thread of an earlier job still runs, its CPU time is counted for the job that runs meanwhile. Programs that a task
//! starts are not included, unless a program is the task: then it is added when it has ended.
//!
//! The peak of memory is `ru_maxrss`, which is that of the process, not of the attempt. Linux includes what the process used
//! before it became this program. So a worker never shows less than its supervisor used when it started the worker.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use offload_protocol::nouns::Usage;
use std::time::{Duration, Instant};

/// How old a reading of the process's counters may be. The system call for one takes 0.3 us, longer than a tiny job runs.
const READING_MAX: Duration = Duration::from_micros(100);

/// What the process had used when its counters were last read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    at: Instant,
    usage: Usage,
}

impl Reading {
    pub(crate) fn new() -> Reading {
        Reading { at: Instant::now(), usage: of_this_process() }
    }

    fn is_old(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) > READING_MAX
    }

    fn renew(&mut self, now: Instant) {
        *self = Reading { at: now, usage: of_this_process() };
    }
}

/// Measures one attempt. It reads the counters of the process when the attempt starts and when it ends, each time only if the
/// last reading is older than [`READING_MAX`]. If both used the same reading, the attempt ran for less than that, and its
/// CPU time is taken to be its run time.
#[derive(Debug)]
pub(crate) struct Meter {
    started: Instant,
    before: Reading,
    others: Spent,
    /// What a program used that was the task.
    #[cfg(feature = "exec")]
    program: Usage,
}

/// The time and CPU time that an attempt used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) run: Duration,
    pub(crate) usage: Usage,
}

impl Meter {
    /// An attempt starts at `now`.
    pub(crate) fn start(reading: &mut Reading, now: Instant) -> Meter {
        if reading.is_old(now) {
            reading.renew(now);
        }
        Meter::since(*reading, now)
    }

    fn since(before: Reading, started: Instant) -> Meter {
        Meter {
            before,
            started,
            others: Spent::default(),
            #[cfg(feature = "exec")]
            program: Usage::default(),
        }
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

    /// The attempt has ended at `now`.
    pub(crate) fn stop(&self, reading: &mut Reading, now: Instant) -> Spent {
        let run = self.run_time(now);
        if reading.is_old(now) {
            reading.renew(now);
        }
        let usage = match reading.at == self.before.at {
            true => Usage { cpu_user_us: micros(run), cpu_system_us: 0, ..reading.usage },
            false => self.usage(reading.usage),
        };
        #[cfg(feature = "exec")]
        let usage = Usage {
            cpu_user_us: usage.cpu_user_us + self.program.cpu_user_us,
            cpu_system_us: usage.cpu_system_us + self.program.cpu_system_us,
            peak_rss_bytes: usage.peak_rss_bytes.max(self.program.peak_rss_bytes),
        };
        Spent { run, usage }
    }

    /// The task was a program, which has ended. `before` is what all programs before it had used.
    #[cfg(feature = "exec")]
    pub(crate) fn add_program(&mut self, before: Usage) {
        let after = of_programs();
        self.program = Usage {
            cpu_user_us: after.cpu_user_us.saturating_sub(before.cpu_user_us),
            cpu_system_us: after.cpu_system_us.saturating_sub(before.cpu_system_us),
            peak_rss_bytes: after.peak_rss_bytes,
        };
    }

    fn usage(&self, after: Usage) -> Usage {
        let own = |after: u64, before: u64, others: u64| after.saturating_sub(before).saturating_sub(others);
        let (before, others) = (&self.before.usage, &self.others.usage);
        Usage {
            cpu_user_us: own(after.cpu_user_us, before.cpu_user_us, others.cpu_user_us),
            cpu_system_us: own(after.cpu_system_us, before.cpu_system_us, others.cpu_system_us),
            peak_rss_bytes: after.peak_rss_bytes,
        }
    }
}

/// The usage since the process began; 0 if the system cannot tell.
fn of_this_process() -> Usage {
    usage_of(UsageWho::RUSAGE_SELF)
}

/// What the programs have used that this process has started and that have ended. Their peak is that of the largest one so far.
#[cfg(feature = "exec")]
pub(crate) fn of_programs() -> Usage {
    usage_of(UsageWho::RUSAGE_CHILDREN)
}

fn usage_of(whom: UsageWho) -> Usage {
    let Ok(usage) = getrusage(whom) else { return Usage::default() };
    Usage {
        cpu_user_us: microseconds(usage.user_time()),
        cpu_system_us: microseconds(usage.system_time()),
        peak_rss_bytes: u64::try_from(usage.max_rss()).unwrap_or(0).saturating_mul(1024),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
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
        let before = Reading { at: Instant::now(), usage: cpu(1000, 100) };
        let mut meter = Meter::since(before, before.at);
        meter.exclude(Spent { run: Duration::from_secs(2), usage: cpu(30, 4) });
        meter.exclude(Spent { run: Duration::from_secs(1), usage: cpu(20, 3) });
        let after = Usage { peak_rss_bytes: 4096, ..cpu(1500, 200) };
        assert_eq!(meter.usage(after), Usage { peak_rss_bytes: 4096, ..cpu(450, 93) });
        assert_eq!(meter.run_time(meter.started + Duration::from_secs(10)), Duration::from_secs(7));
    }

    #[test]
    fn a_tiny_attempt_reads_no_counters_and_its_cpu_time_is_its_run_time() {
        let at = Instant::now();
        let mut reading = Reading { at, usage: Usage { peak_rss_bytes: 4096, ..cpu(1000, 100) } };
        let meter = Meter::start(&mut reading, at + READING_MAX / 4);
        let spent = meter.stop(&mut reading, at + READING_MAX / 2);
        assert_eq!(spent.usage, Usage { peak_rss_bytes: 4096, ..cpu(25, 0) });
        meter.stop(&mut reading, at + 2 * READING_MAX);
        assert_eq!(reading.at, at + 2 * READING_MAX, "an old reading is renewed");
    }

    #[test]
    fn the_cpu_time_of_other_threads_counts() {
        let mut reading = Reading::new();
        let meter = Meter::start(&mut reading, Instant::now());
        std::thread::spawn(|| burn(Duration::from_millis(20))).join().unwrap();
        let usage = meter.stop(&mut reading, Instant::now()).usage;
        assert!(usage.cpu_user_us + usage.cpu_system_us >= 20_000, "{usage:?}");
        assert!(usage.peak_rss_bytes >= 1 << 20, "{usage:?}");
    }
}
