//! Looks at this machine and measures. What cannot be read counts as usual: a container hides some of it.

use super::cgroup::Limits;
use super::finding::Finding;
use super::judge;
use crate::configuration::Settings;
use crate::limits::DOCTOR_SLEEPS;
use offload_core::limits::DEAD_LETTERS_MAX;
use offload_supervisor::Program;
use offload_supervisor::front::check_folder;
use offload_supervisor::limits::{CONNECTIONS_MAX, Memory};
use offload_supervisor::service::{Prerequisites, ServiceConfig};
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, ResolveFlags, inotify, memfd_create, openat2, statfs};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Resource, getpid, getrlimit, getuid, pidfd_open};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often the time is read, to see what that takes.
const CLOCK_READINGS: u32 = 1000;

/// What is found on this machine, for a supervisor with these settings.
pub(super) fn findings(settings: &Settings) -> Vec<Finding> {
    let limits = Limits::of_this_process();
    let workers = settings.values.pool.core.workers;
    let hard = |resource| getrlimit(resource).maximum;
    vec![
        judge::kernel(&release(), &missing_calls()),
        judge::cores(usable_cores(), limits, workers),
        judge::memory(total_memory(), limits, most_memory(settings)),
        judge::overcommit(&line_of("/proc/sys/vm/overcommit_memory")),
        judge::processes(hard(Resource::Nproc), limits, workers),
        judge::descriptors(hard(Resource::Nofile), too_few_descriptors(settings)),
        clock(),
        judge::suspended(suspended()),
        judge::core_dumps(&line_of("/proc/sys/kernel/core_pattern")),
        judge::strays(Path::new(&format!("/proc/self/task/{}/children", getpid().as_raw_nonzero())).exists()),
        judge::user(getuid().as_raw()),
        socket(settings),
    ]
}

fn line_of(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The system calls that are needed and do not work here, with the error.
fn missing_calls() -> Vec<String> {
    let beneath =
        || openat2(CWD, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::BENEATH);
    let calls: [(&str, Result<(), Errno>); 4] = [
        ("pidfd_open", pidfd_open(getpid(), PidfdFlags::empty()).map(drop)),
        ("openat2", beneath().map(drop)),
        ("memfd_create", memfd_create("offload", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map(drop)),
        ("inotify_init1", inotify::init(inotify::CreateFlags::CLOEXEC).map(drop)),
    ];
    let refused = calls.into_iter().filter_map(|(name, result)| Some((name, result.err()?)));
    // This process may not be allowed to read the folder that it is in.
    let refused = refused.filter(|(_, error)| *error != Errno::ACCESS);
    refused.map(|(name, error)| format!("{name} ({})", std::io::Error::from(error))).collect()
}

fn usable_cores() -> usize {
    nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).map_or(1, |cores| {
        (0..nix::sched::CpuSet::count()).filter(|core| cores.is_set(*core).unwrap_or(false)).count()
    })
}

/// The memory of the machine, in bytes.
fn total_memory() -> u64 {
    let text = line_of("/proc/meminfo");
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib.saturating_mul(1024))
}

/// The memory that the supervisor takes at most, with a hundred clients and a full queue.
fn most_memory(settings: &Settings) -> u64 {
    const CLIENTS: u64 = 100;
    let core = &settings.values.pool.core;
    let workers = (core.workers + core.spares) as u64;
    let jobs = core.max_jobs as u64 + workers + DEAD_LETTERS_MAX as u64;
    let (max_bytes, max_payload, max_kept_bytes) = (core.max_bytes, core.max_payload, core.max_kept_bytes);
    let connections = CLIENTS.min(CONNECTIONS_MAX as u64);
    Memory { max_bytes, max_payload, max_kept_bytes, ..Memory::of_defaults(workers, connections, jobs) }
        .most()
}

/// What a start would say of the limit of open files.
fn too_few_descriptors(settings: &Settings) -> Option<String> {
    let pool = settings.pool_config(vec![Program::builtin(false)]);
    let config = ServiceConfig { io_threads: settings.values.io_threads, ..ServiceConfig::with(pool) };
    Prerequisites::prepare(config).err().map(|error| error.to_string())
}

fn clock() -> Finding {
    let source = line_of("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let started = Instant::now();
    for _ in 0..CLOCK_READINGS {
        black_box(Instant::now());
    }
    let reading = started.elapsed() / CLOCK_READINGS;
    let nap = Duration::from_millis(1);
    let nap = || {
        let started = Instant::now();
        std::thread::sleep(nap);
        started.elapsed().saturating_sub(nap)
    };
    judge::clock(&source, reading, (0..DOCTOR_SLEEPS).map(|_| nap()).max().unwrap_or_default())
}

/// The time that one clock counts and the other leaves out.
fn suspended() -> Duration {
    let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    let running = read(ClockId::Monotonic);
    read(ClockId::Boottime).saturating_sub(running)
}

fn socket(settings: &Settings) -> Finding {
    let path = match settings.socket() {
        Ok(path) => path,
        Err(error) => return judge::socket("", Some(error.to_string()), 0),
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let unsuitable = check_folder(folder).err().map(|error| error.to_string());
    let there = folder.ancestors().find(|ancestor| ancestor.is_dir()).unwrap_or(Path::new("/"));
    let kind = statfs(there).map_or(0, |about| about.f_type as u64);
    judge::socket(&path.display().to_string(), unsuitable, kind & u64::from(u32::MAX))
}
