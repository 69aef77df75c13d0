//! What a supervisor left behind that was killed. Its workers die with it, but their children need not: they have
//! lost the parent-death signal at their fork, and there is no subreaper any more. The next supervisor finds them by
//! the name of the generation that every worker has in its environment and passes on without knowing it.
//!
//! Not found are those that were started with another environment, have written over it, or cannot be read: a child
//! that a worker forked without exec is hidden, as the worker is, unless we are root.

use super::wait::wait_for;
use rustix::event::PollFlags;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// The environment variable of every worker that says which supervisor process started it.
pub const GENERATION_VARIABLE: &str = "OFFLOAD_GENERATION";

/// How often all processes are looked at: those that were found may have forked meanwhile.
const ROUNDS_MAX: usize = 8;
/// How many are killed in one round; each takes a descriptor until it is gone.
const KILLS_IN_A_ROUND_MAX: usize = 128;
/// How much is read of an environment.
const ENVIRONMENT_READ_MAX: u64 = 256 * 1024;
/// How long all those that were killed in one round may take to be gone.
const BURIAL_MAX: Duration = Duration::from_millis(500);

/// A name for the workers of this supervisor process, which no other has: 32 hexadecimal digits. None if the system
/// has no random numbers.
pub fn new_generation() -> Option<String> {
    let mut bytes = [0; 16];
    let length = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).ok()?;
    (length == bytes.len()).then(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Kills all processes of this user that have `generation` in their environment, but not this one, and waits until
/// they are gone, for at most 4 seconds. Returns how many were killed: at most 1024, and none for an empty name.
///
/// For the start of a supervisor, before it has a loop: it looks at every process of the system and waits.
pub fn kill_generation(generation: &str) -> usize {
    if generation.is_empty() {
        return 0;
    }
    let entry = format!("{GENERATION_VARIABLE}={generation}");
    let mut killed = 0;
    for _ in 0..ROUNDS_MAX {
        let dying = kill_all_with(entry.as_bytes());
        if dying.is_empty() {
            break;
        }
        killed += dying.len();
        wait_for_all(&dying);
    }
    killed
}

fn kill_all_with(entry: &[u8]) -> Vec<OwnedFd> {
    let Ok(listing) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = listing.flatten().filter_map(|item| item.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter_map(|number| kill_if_with(number, entry)).take(KILLS_IN_A_ROUND_MAX).collect()
}

/// The descriptor comes first: if the process ends and the number goes to another one before its environment is
/// read, the signal goes to the one that has ended, and nowhere.
fn kill_if_with(number: i32, entry: &[u8]) -> Option<OwnedFd> {
    let is_us = u32::try_from(number) == Ok(std::process::id());
    if is_us || !belongs_to_us(number) {
        return None;
    }
    let pidfd = pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()?;
    let environment = environment_of(number)?;
    let has_entry = environment.split(|byte| *byte == 0).any(|other| other == entry);
    (has_entry && pidfd_send_signal(&pidfd, Signal::KILL).is_ok()).then_some(pidfd)
}

fn belongs_to_us(number: i32) -> bool {
    fs::metadata(format!("/proc/{number}")).is_ok_and(|process| process.uid() == geteuid().as_raw())
}

/// Empty for a process that is ending.
fn environment_of(number: i32) -> Option<Vec<u8>> {
    let mut environment = Vec::new();
    let file = File::open(format!("/proc/{number}/environ")).ok()?;
    file.take(ENVIRONMENT_READ_MAX).read_to_end(&mut environment).ok()?;
    Some(environment)
}

fn wait_for_all(dying: &[OwnedFd]) {
    let deadline = Instant::now() + BURIAL_MAX;
    for pidfd in dying {
        wait_for(pidfd, PollFlags::IN, deadline.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command, Stdio};

    fn start(generation: &str, script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env(GENERATION_VARIABLE, generation).stdout(Stdio::piped());
        command.spawn().unwrap()
    }

    #[test]
    fn a_generation_is_killed_and_others_live() {
        let [killed, spared] = [new_generation().unwrap(), new_generation().unwrap()];
        let mut of_it = start(&killed, "exec sleep 600");
        let mut of_another = start(&spared, "exec sleep 600");
        let mut of_a_longer_one = start(&format!("{killed}0"), "exec sleep 600");
        // Spawning returns when the exec has happened, so the environments are what they will be.
        assert_eq!(kill_generation(&killed), 1);
        assert_eq!(of_it.wait().unwrap().signal(), Some(9));
        for other in [&mut of_another, &mut of_a_longer_one] {
            assert_eq!(other.try_wait().unwrap(), None);
            other.kill().unwrap();
            other.wait().unwrap();
        }
    }

    /// The pipe ends when the last process that holds it is gone.
    #[test]
    fn grandchildren_in_sessions_of_their_own_belong_to_the_generation() {
        let generation = new_generation().unwrap();
        let mut worker = start(&generation, "for i in 1 2 3; do setsid -f sleep 600; done; echo ready");
        worker.wait().unwrap();
        // A sleep may not have become one yet, but has the environment of who forked it.
        assert_eq!(kill_generation(&generation), 3);
        let mut said = String::new();
        worker.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        assert_eq!(kill_generation(&generation), 0);
    }

    #[test]
    fn the_one_who_asks_is_spared_and_an_empty_name_is_nobodys() {
        const ASKING: &str = "OFFLOAD_TEST_ASKING";
        if std::env::var_os(ASKING).is_some() {
            let ours = std::env::var(GENERATION_VARIABLE).unwrap();
            assert_eq!(kill_generation(&ours), 0);
            return;
        }
        let this = "workers::orphans::tests::the_one_who_asks_is_spared_and_an_empty_name_is_nobodys";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", this]).env(ASKING, "1").env(GENERATION_VARIABLE, new_generation().unwrap());
        assert!(command.output().unwrap().status.success());

        let mut nameless = start("", "exec sleep 600");
        assert_eq!(kill_generation(""), 0);
        assert_eq!(nameless.try_wait().unwrap(), None);
        nameless.kill().unwrap();
        nameless.wait().unwrap();
    }

    #[test]
    fn no_two_generations_have_one_name() {
        let [one, other] = [new_generation().unwrap(), new_generation().unwrap()];
        assert_eq!(one.len(), 32);
        assert_ne!(one, other);
    }
}
