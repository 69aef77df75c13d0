//! The machine: which cores there are, and what else they do while we measure. Both come from the kernel.
//!
//! `/proc/stat` counts what all processes together have used, in ticks of usually 10 ms. What our own processes have
//! used is taken off, so samples much shorter than 100 ms say little about the noise around them.

use super::super::failure::Failure;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Above this load per core before the run the machine is busy with something else.
const LOAD_PER_CORE_MAX: f64 = 0.25;

/// Above this share of the machine, other processes (or other machines on the same host) disturb the figures.
const SHARE_MAX: f64 = 0.1;

/// The cores that this process may use, by their numbers. At least one.
pub(super) fn cores() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let cores: Vec<usize> = (0..CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false)).collect();
    if cores.is_empty() { vec![0] } else { cores }
}

/// Binds the calling thread, and the threads and processes that it starts from now on, to one core.
///
/// # Errors
/// If the kernel does not have it.
pub(super) fn bind_to(core: usize) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    set.set(core)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .map_err(|error| Failure::internal("cannot bind to a core", error))
}

/// What somebody who reads the figures has to know of the machine.
pub(super) struct Machine {
    cores: usize,
    model: String,
    kernel: String,
    load: f64,
}

impl Machine {
    /// The machine now.
    pub(super) fn describe() -> Machine {
        Machine {
            cores: cores().len(),
            model: model(),
            kernel: first_line("/proc/sys/kernel/osrelease"),
            load: load(),
        }
    }

    /// What does not change from run to run.
    pub(super) fn id() -> MachineId {
        MachineId { model: model(), cores: cores().len() }
    }

    /// In one line.
    pub(super) fn line(&self) -> String {
        let Machine { cores, model, kernel, load } = self;
        let cores = super::super::text::count(*cores as u64, "core");
        format!("{cores} of {model}, Linux {kernel}; load before the run {load}")
    }

    /// What speaks against measuring here and now.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.load > LOAD_PER_CORE_MAX * self.cores as f64 {
            let (load, cores) = (self.load, self.cores);
            warnings.push(format!(
                "the machine is busy (load {load} on {cores} cores): compare figures of this run only"
            ));
        }
        if self.cores == 1 {
            warnings.push(
                "this machine gives us one core: limits of p1 to p3 are those of two processes on it, and the \
                 efficiency of p4 is that of one core"
                    .to_owned(),
            );
        }
        warnings
    }
}

/// By which two machines are told apart: figures of one say nothing about the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MachineId {
    /// That of its cores.
    pub(super) model: String,
    /// How many of them we may use.
    pub(super) cores: usize,
}

/// The load of the machine, of one minute.
pub(super) fn load() -> f64 {
    first_line("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

fn model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    line.map_or("an unknown model", |line| line.trim_start_matches([' ', '\t', ':'])).to_owned()
}

fn first_line(file: &str) -> String {
    std::fs::read_to_string(file).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// What used the machine beside us during some samples, in seconds of its cores. The kernel counts in ticks, so only
/// sums over many samples mean anything.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Noise {
    foreign: f64,
    stolen: f64,
    capacity: f64,
}

impl Noise {
    /// During all of these samples.
    pub(super) fn total(all: impl Iterator<Item = Noise>) -> Noise {
        all.fold(Noise::default(), |total, next| Noise {
            foreign: total.foreign + next.foreign,
            stolen: total.stolen + next.stolen,
            capacity: total.capacity + next.capacity,
        })
    }

    /// The share of the machine that other processes had.
    pub(super) fn foreign(self) -> f64 {
        self.share(self.foreign)
    }

    /// The share that other machines on the same host had, as far as the host says.
    pub(super) fn stolen(self) -> f64 {
        self.share(self.stolen)
    }

    fn share(self, part: f64) -> f64 {
        if self.capacity > 0.0 { (part / self.capacity).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// The warning to print, if it was too much.
    pub(super) fn warning(self) -> Option<String> {
        let (foreign, stolen) = (self.foreign(), self.stolen());
        (foreign + stolen > SHARE_MAX).then(|| {
            format!(
                "the machine was busy: others used {:.0} % of it meanwhile, and the host gave {:.0} % to others",
                foreign * 100.0,
                stolen * 100.0
            )
        })
    }
}

/// Counters of the kernel at the beginning of a sample.
pub(super) struct NoiseMeter {
    ticks: Ticks,
    own: Duration,
    start: Instant,
}

impl NoiseMeter {
    /// Begins.
    pub(super) fn start() -> NoiseMeter {
        NoiseMeter { ticks: Ticks::now(), own: own_cpu_time(), start: Instant::now() }
    }

    /// Ends. Children must have been waited for: the kernel adds their time to ours only then.
    pub(super) fn stop(&self) -> Noise {
        let ticks = Ticks::now().since(self.ticks);
        let cores = std::thread::available_parallelism().map_or(1.0, |cores| usize::from(cores) as f64);
        let capacity = self.start.elapsed().as_secs_f64() * cores;
        let own = own_cpu_time().saturating_sub(self.own).as_secs_f64();
        let foreign = ticks.share(ticks.busy) * capacity - own;
        Noise { foreign, stolen: ticks.share(ticks.stolen) * capacity, capacity }
    }
}

#[derive(Clone, Copy)]
struct Ticks {
    all: u64,
    busy: u64,
    stolen: u64,
}

impl Ticks {
    fn now() -> Ticks {
        Ticks::parse(&first_line("/proc/stat"))
    }

    /// From the first line of `/proc/stat`: user nice system idle iowait irq softirq steal.
    fn parse(line: &str) -> Ticks {
        let fields: Vec<u64> =
            line.split_whitespace().skip(1).take(8).filter_map(|field| field.parse().ok()).collect();
        let sum = |positions: &[usize]| positions.iter().filter_map(|position| fields.get(*position)).sum();
        Ticks { all: fields.iter().sum(), busy: sum(&[0, 1, 2, 5, 6]), stolen: sum(&[7]) }
    }

    fn since(self, earlier: Ticks) -> Ticks {
        Ticks {
            all: self.all.saturating_sub(earlier.all),
            busy: self.busy.saturating_sub(earlier.busy),
            stolen: self.stolen.saturating_sub(earlier.stolen),
        }
    }

    fn share(self, part: u64) -> f64 {
        if self.all == 0 { 0.0 } else { part as f64 / self.all as f64 }
    }
}

/// CPU time of this process, and of its children that have ended.
pub(super) fn own_cpu_time() -> Duration {
    [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN].into_iter().map(cpu_time_of).sum()
}

/// CPU time of this process or of its children; zero if the kernel does not say.
pub(super) fn cpu_time_of(who: UsageWho) -> Duration {
    let Ok(usage) = getrusage(who) else { return Duration::ZERO };
    let microseconds = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(u64::try_from(microseconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_core_and_one_can_be_bound_to_it() {
        // On a thread of its own: the binding is that of the thread.
        let bound = std::thread::spawn(|| bind_to(cores()[0]).map(|()| cores().len()));
        assert_eq!(bound.join().unwrap().unwrap(), 1);
    }

    #[test]
    fn ticks_are_told_apart_by_who_had_them() {
        let (before, after) =
            (Ticks::parse("cpu  10 0 10 80 0 0 0 0 0 0"), Ticks::parse("cpu  30 5 15 130 10 5 5 10 7 7"));
        let ticks = after.since(before);
        assert_eq!((ticks.all, ticks.busy, ticks.stolen), (110, 40, 10));
        assert_eq!(Ticks::parse("").share(0), 0.0);
    }

    #[test]
    fn a_busy_machine_and_a_single_core_are_warned_of() {
        let machine = |cores, load| Machine { cores, model: String::new(), kernel: String::new(), load };
        assert!(machine(2, 0.1).warnings().is_empty());
        assert!(machine(2, 1.5).warnings()[0].contains("load 1.5"));
        assert!(machine(1, 0.0).warnings()[0].contains("one core"));
    }

    #[test]
    fn noise_is_summed_up_before_anybody_is_warned() {
        let noise = |foreign, capacity| Noise { foreign, stolen: 0.0, capacity };
        // A tick too much in a short sample is made good by the long one.
        let total = Noise::total([noise(0.02, 0.02), noise(-0.01, 1.98)].into_iter());
        assert_eq!((total.warning(), total.stolen()), (None, 0.0));
        assert!(noise(0.6, 2.0).warning().unwrap().contains("30 %"));
        assert_eq!(Noise::default().warning(), None);
    }
}
