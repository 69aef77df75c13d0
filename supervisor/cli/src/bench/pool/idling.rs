//! P13: how often an idle supervisor wakes, alone and with idle clients.
//!
//! A thread that sleeps has given up its core of its own accord, and the kernel counts that: the sum of
//! `voluntary_ctxt_switches` over all threads of `offload serve`, now and some seconds later. The workers are counted
//! apart (`workers_per_s`).
//!
//! A supervisor lets no process take all of its connections, so the clients belong to many processes of
//! [`CLIENTS_OF_ONE`] each. The limit is a process that is blocked in a read for as long.

use super::super::super::failure::{Failure, OK, VerbResult};
use super::children::{Child, say_ready_and_wait};
use super::helper::OWN_EXECUTABLE;
use super::sample::{Sample, SamplePlan};
use offload_supervisor::client::Client;
use std::fs::DirBuilder;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Idle clients that one process has. With more of them the last of a thousand would be refused.
const CLIENTS_OF_ONE: u64 = 20;

/// After this time nothing is left of what the start and the clients' hellos have caused.
const SETTLE: Duration = Duration::from_millis(1500);

/// P13, limit.
pub(super) fn sleeper_limit(plan: &SamplePlan) -> Result<Sample, Failure> {
    let child = Child::start(&["burn"])?;
    std::thread::sleep(plan.pick(Duration::from_millis(100), Duration::from_millis(500)));
    let window = plan.pick(Duration::from_millis(300), Duration::from_secs(1));
    let (before, start) = (sleeps(child.pid())?, Instant::now());
    std::thread::sleep(window);
    let woken = sleeps(child.pid())?.saturating_sub(before);
    Ok(Sample::of(woken as f64 / start.elapsed().as_secs_f64()))
}

/// P13, ours.
pub(super) fn supervisor(plan: &SamplePlan) -> Result<Sample, Failure> {
    let seconds = Duration::from_secs;
    let window = plan.share_of_round(seconds(1), seconds(9), seconds(60));
    let supervisor = Supervisor::start(plan.workers)?;
    let clients = start_clients(&supervisor.socket(), plan.size)?;
    std::thread::sleep(SETTLE);
    let (before, workers_before) = (sleeps(supervisor.pid())?, supervisor.sleeps_of_workers()?);
    let start = Instant::now();
    std::thread::sleep(window);
    let took = start.elapsed().as_secs_f64();
    let woken = sleeps(supervisor.pid())?.saturating_sub(before);
    let workers_woken = supervisor.sleeps_of_workers()?.saturating_sub(workers_before);
    drop(clients);
    Ok(Sample::of(woken as f64 / took)
        .with("workers_per_s", workers_woken as f64 / took)
        .with("threads", threads(supervisor.pid()).count() as f64)
        .with("seconds", took))
}

/// The folders of all threads of a process.
fn threads(process: u32) -> impl Iterator<Item = PathBuf> {
    let folder = std::fs::read_dir(format!("/proc/{process}/task"));
    folder.into_iter().flatten().flatten().map(|entry| entry.path())
}

/// How often all threads of a process have gone to sleep so far.
///
/// # Errors
/// If the kernel does not say: zero would look like a perfect result.
fn sleeps(process: u32) -> Result<u64, Failure> {
    let of_thread = |folder: PathBuf| {
        let status = std::fs::read_to_string(folder.join("status")).ok()?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?
            .trim()
            .parse::<u64>()
            .ok()
    };
    let counts: Vec<u64> = threads(process).filter_map(of_thread).collect();
    match counts.is_empty() {
        true => Err(Failure::Internal(format!("cannot read how often process {process} has slept"))),
        false => Ok(counts.into_iter().sum()),
    }
}

fn children_of(process: u32) -> Vec<u32> {
    let lists = threads(process).filter_map(|folder| std::fs::read_to_string(folder.join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

/// `offload serve` with a socket in a folder of its own. Dropping it kills it and removes the folder.
struct Supervisor {
    process: std::process::Child,
    folder: PathBuf,
}

impl Supervisor {
    /// Starts it and waits until it is ready. It knows nothing of the settings of whoever runs the benchmark.
    fn start(workers: usize) -> Result<Supervisor, Failure> {
        let failed = |error: std::io::Error| Failure::internal("cannot start a supervisor to measure", error);
        let folder = std::env::temp_dir().join(format!("offload-bench-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&folder).map_err(failed)?;
        let mut command = Command::new(OWN_EXECUTABLE);
        command.args(["serve", "--json", "--quiet", "--workers", &workers.to_string(), "--socket"]);
        command.arg(socket_in(&folder)).stdin(Stdio::null()).stdout(Stdio::piped());
        let settings = std::env::vars_os().map(|(name, _)| name);
        settings.filter(|name| name.to_string_lossy().starts_with("OFFLOAD_")).for_each(|name| {
            command.env_remove(name);
        });
        let process = command.spawn().map_err(failed)?;
        let mut supervisor = Supervisor { process, folder };
        supervisor.wait_until_ready()?;
        Ok(supervisor)
    }

    fn wait_until_ready(&mut self) -> Result<(), Failure> {
        let mut line = String::new();
        let stdout = self.process.stdout.take();
        let read = stdout.map_or(Ok(0), |stdout| BufReader::new(stdout).read_line(&mut line));
        match read.is_ok() && line.contains("\"ready\"") {
            true => Ok(()),
            false => Err(Failure::Internal(format!("a supervisor to measure did not start: {line}"))),
        }
    }

    fn socket(&self) -> PathBuf {
        socket_in(&self.folder)
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }

    fn sleeps_of_workers(&self) -> Result<u64, Failure> {
        children_of(self.pid()).into_iter().map(sleeps).sum()
    }
}

fn socket_in(folder: &Path) -> PathBuf {
    folder.join("o.sock")
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // It may be gone already; its workers end with it.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Connects so many clients, which then ask for nothing.
fn start_clients(socket: &Path, count: u64) -> Result<Vec<Child>, Failure> {
    let socket = socket.to_string_lossy();
    let full = count / CLIENTS_OF_ONE;
    let counts =
        (0..full).map(|_| CLIENTS_OF_ONE).chain(Some(count % CLIENTS_OF_ONE)).filter(|count| *count > 0);
    let start = |count: u64| {
        let mut child = Child::start(&["clients", &socket, &count.to_string()])?;
        child.wait_for_a_byte()?;
        Ok(child)
    };
    counts.map(start).collect()
}

/// The role `clients`: connects, and is idle until the other end of descriptor 0 is closed.
pub(super) fn be_clients(socket: &Path, count: u32) -> VerbResult {
    let clients: Result<Vec<Client>, _> = (0..count).map(|_| Client::connect(socket, "")).collect();
    let clients = clients.map_err(|error| Failure::NoSupervisor(error.to_string()))?;
    say_ready_and_wait()?;
    drop(clients);
    Ok(OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_sleeps_has_slept_and_has_threads() {
        let process = std::process::id();
        assert!(threads(process).count() >= 1);
        // The scope ends when its thread has: until then this one sleeps.
        std::thread::scope(|scope| {
            scope.spawn(|| std::thread::park_timeout(Duration::from_millis(1)));
        });
        assert!(sleeps(process).unwrap() >= 1);
        // There is no process with this number.
        assert!(sleeps(0).is_err());
    }
}
