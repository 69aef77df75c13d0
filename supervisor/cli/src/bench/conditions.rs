//! Under which conditions was measured: what held the cores back, or kept them busy. All of it comes from the kernel, and a virtual
//! machine hardly knows any of it; what is unknown is not told.

use super::super::doctor::cgroup;
use super::machine::{cores, load};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// Above this load per core before the run the machine is busy with something else.
const LOAD_PER_CORE_MAX: f64 = 0.25;

/// Cores that run below this share of their highest frequency are slowed down by something.
const FREQUENCY_MIN: f64 = 0.8;

/// A control group that held us back for this share of the time is part of the result.
const THROTTLED_MAX: f64 = 0.01;

const CORES: &str = "/sys/devices/system/cpu";

/// See the module's documentation. Its field names are a contract with users.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Conditions {
    /// The load of the machine before the run, of one minute.
    pub(super) load: f64,
    /// Cores that we may use.
    pub(super) cores: usize,
    /// For how long the control group kept us from running meanwhile, as a share of the time; none if it has no quota.
    pub(super) throttled: Option<f64>,
    /// How often a core was slowed down meanwhile because of its heat; none if nobody counts that.
    pub(super) overheated: Option<u64>,
    /// The frequency of the slowest core at the end of the run, as a share of its highest one; none if unknown.
    pub(super) frequency: Option<f64>,
}

impl Conditions {
    /// What makes the figures worth less, in sentences.
    pub(super) fn warnings(&self) -> Vec<String> {
        let Conditions { load, cores, .. } = *self;
        let busy = (load > LOAD_PER_CORE_MAX * cores as f64).then(|| {
            format!("the machine was busy before the run (load {load} on {cores} cores): compare figures of this run only")
        });
        let throttled = self.throttled.filter(|share| *share > THROTTLED_MAX).map(|share| {
            format!("the control group held the cores back for {:.0} % of the time: its quota is part of the result", share * 100.0)
        });
        let overheated = self.overheated.filter(|count| *count > 0).map(|count| {
            format!("the cores were slowed down {count} times because of their heat: let the machine cool down, and measure again")
        });
        let slow = self.frequency.filter(|share| *share < FREQUENCY_MIN).map(|share| {
            format!(
                "a core ran at {:.0} % of its highest frequency: look for a power-saving mode",
                share * 100.0
            )
        });
        [busy, throttled, overheated, slow].into_iter().flatten().collect()
    }
}

/// The counters at the beginning of a run.
pub(super) struct ConditionsMeter {
    load: f64,
    throttled: Option<Duration>,
    overheated: Option<u64>,
}

impl ConditionsMeter {
    /// Begins.
    pub(super) fn start() -> ConditionsMeter {
        let throttled = cgroup::throttled_of_this_process();
        ConditionsMeter { load: load(), throttled, overheated: overheated(Path::new(CORES), &cores()) }
    }

    /// Ends, after so long.
    pub(super) fn stop(&self, time: Duration) -> Conditions {
        let (cores, folder) = (cores(), Path::new(CORES));
        let seconds = time.as_secs_f64().max(f64::MIN_POSITIVE);
        let since = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64() / seconds;
        let throttled = cgroup::throttled_of_this_process().zip(self.throttled);
        let counts = overheated(folder, &cores).zip(self.overheated);
        Conditions {
            load: self.load,
            cores: cores.len(),
            throttled: throttled.map(|(now, before)| since(now, before)),
            overheated: counts.map(|(now, before)| now.saturating_sub(before)),
            frequency: frequency(folder, &cores),
        }
    }
}

fn number(folder: &Path, core: usize, file: &str) -> Option<u64> {
    std::fs::read_to_string(folder.join(format!("cpu{core}")).join(file)).ok()?.trim().parse().ok()
}

fn overheated(folder: &Path, cores: &[usize]) -> Option<u64> {
    let counts =
        cores.iter().filter_map(|core| number(folder, *core, "thermal_throttle/core_throttle_count"));
    counts.reduce(u64::saturating_add)
}

fn frequency(folder: &Path, cores: &[usize]) -> Option<f64> {
    let share = |core: &usize| {
        let now = number(folder, *core, "cpufreq/scaling_cur_freq")?;
        let most = number(folder, *core, "cpufreq/cpuinfo_max_freq")?;
        (most > 0).then(|| now as f64 / most as f64)
    };
    cores.iter().filter_map(share).reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_machine_that_is_held_back_is_warned_of_in_every_way() {
        let calm = Conditions {
            load: 0.4,
            cores: 2,
            throttled: Some(0.001),
            overheated: Some(0),
            frequency: Some(0.95),
        };
        assert_eq!(calm.warnings(), Vec::<String>::new());
        assert_eq!(Conditions { cores: 1, ..Conditions::default() }.warnings(), Vec::<String>::new());
        let held = Conditions {
            load: 3.5,
            cores: 2,
            throttled: Some(0.2),
            overheated: Some(4),
            frequency: Some(0.5),
        };
        let warnings = held.warnings();
        for (warning, expected) in
            warnings.iter().zip(["load 3.5", "20 % of the time", "4 times", "50 % of its highest"])
        {
            assert!(warning.contains(expected), "{warning}");
        }
        assert_eq!(warnings.len(), 4);
    }

    #[test]
    fn the_slowest_core_and_the_heat_of_all_are_read() {
        let folder = tempfile::tempdir().unwrap();
        for (core, now, count) in [(0, "3000000\n", "2\n"), (1, "1500000\n", "5\n")] {
            let core = folder.path().join(format!("cpu{core}"));
            for (file, text) in [
                ("cpufreq/scaling_cur_freq", now),
                ("cpufreq/cpuinfo_max_freq", "3000000\n"),
                ("thermal_throttle/core_throttle_count", count),
            ] {
                let file = core.join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
        }
        assert_eq!(
            (frequency(folder.path(), &[0, 1]), overheated(folder.path(), &[0, 1])),
            (Some(0.5), Some(7))
        );
        assert_eq!((frequency(folder.path(), &[0]), overheated(folder.path(), &[9])), (Some(1.0), None));
    }
}
