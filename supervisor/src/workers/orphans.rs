//! Orphans: processes that a killed supervisor has left behind. Its workers die with it, but descendants of workers
//! may survive: the parent-death signal is cleared at a fork, and no subreaper is left. The next supervisor finds them
//! by the mark that every worker passes on to its descendants, or by the generation in their environment. `marks.rs`
//! says which ones are not found.
//!
//! The user that such a process belongs to does not matter. A worker that changes its user loses its parent-death
//! signal, so it most needs to be found. The kernel refuses the signal where it is not allowed.

use super::marks::{Mark, Marks};
use super::wait::wait_for;
use crate::limits::{ENVIRONMENT_READ_MAX, KILLED_STRAYS_TIMEOUT, STRAYS_KILLS_MAX, STRAYS_ROUNDS_MAX};
use rustix::event::PollFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long the ends of execs are awaited, of all processes together. Only reading a new program from a slow disk takes that long,
/// and nobody can hold up a start by processes that look as if they were in one.
const EXEC_TIMEOUT: Duration = Duration::from_millis(200);
const EXEC_PAUSE: Duration = Duration::from_millis(1);

/// The environment variable by which every worker knows the generation of the supervisor that started it.
pub const GENERATION_VARIABLE: &str = "OFFLOAD_GENERATION";

/// Creates a generation: a name for the workers of this supervisor process that no other supervisor has. It has 32
/// hexadecimal digits. None if the system has no random numbers.
pub fn new_generation() -> Option<String> {
    let mut bytes = [0; 16];
    let length = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).ok()?;
    (length == bytes.len()).then(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The result of killing a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Killed {
    /// Number of killed processes, at most 1024.
    pub count: usize,
    /// Whether no process was left at the end. If false, the search should be repeated at a later start.
    pub is_all: bool,
}

/// Kills all processes of `generation` that this process may kill, of whatever user, except this process itself. Waits
/// until they are gone, for at most 4 seconds. A text that is not the name of a generation matches no process.
///
/// To be called at the start of a supervisor, before it has an event loop: it examines every process of the system and
/// waits.
pub fn kill_generation(generation: &str) -> Killed {
    let mut count = 0;
    let Some(marks) = Marks::of(generation) else { return Killed { count, is_all: true } };
    let entry = format!("{GENERATION_VARIABLE}={generation}");
    let signs = Signs { entry, marks, execs_end_by: Instant::now() + EXEC_TIMEOUT };
    for _ in 0..STRAYS_ROUNDS_MAX {
        let dying = kill_matching(&signs);
        if dying.is_empty() {
            return Killed { count, is_all: true };
        }
        count += dying.len();
        wait_for_all(&dying);
    }
    Killed { count, is_all: false }
}

/// The signs by which processes of a generation are recognized.
struct Signs {
    /// An entry of the environment.
    entry: String,
    marks: Marks,
    /// Until when a process that is becoming another program is waited for.
    execs_end_by: Instant,
}

impl Signs {
    fn match_process(&self, pid: u32) -> bool {
        if Mark::of_process(pid).any(|mark| self.marks.include(mark)) {
            return true;
        }
        let environment = settled_environment_of(pid, self.execs_end_by);
        environment.split(|byte| *byte == 0).any(|entry| entry == self.entry.as_bytes())
    }
}

fn kill_matching(signs: &Signs) -> Vec<OwnedFd> {
    let Ok(listing) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = listing.flatten().filter_map(|item| item.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter_map(|pid| kill_if_matching(pid, signs)).take(STRAYS_KILLS_MAX).collect()
}

/// The pidfd is opened first. If the process ends and its id is reused before the signs are read, the signal goes to
/// the process that has ended, which has no effect.
fn kill_if_matching(pid: u32, signs: &Signs) -> Option<OwnedFd> {
    if pid == std::process::id() {
        return None;
    }
    let pidfd = pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()?;
    // A process that has ended and has not been collected still has its mark, but there is nothing left to kill.
    let has_ended = || wait_for(&pidfd, PollFlags::IN, Duration::ZERO);
    let is_found = signs.match_process(pid) && !has_ended();
    (is_found && pidfd_send_signal(&pidfd, Signal::KILL).is_ok()).then_some(pidfd)
}

/// The environment of a process, also of one that is becoming another program: it has none for a moment.
fn settled_environment_of(pid: u32, deadline: Instant) -> Vec<u8> {
    loop {
        let environment = environment_of(pid).unwrap_or_default();
        if !environment.is_empty() || !is_in_exec(pid) || Instant::now() >= deadline {
            return environment;
        }
        std::thread::sleep(EXEC_PAUSE);
    }
}

/// Whether a process has memory but no command line, not even an empty one: the kernel writes that, like the environment, at the
/// end of an exec. Threads of the kernel have no memory, and neither has a process that has ended.
fn is_in_exec(pid: u32) -> bool {
    let command_line = File::open(format!("/proc/{pid}/cmdline")).and_then(|mut file| file.read(&mut [0]));
    let has_memory =
        || fs::read_to_string(format!("/proc/{pid}/statm")).is_ok_and(|text| !text.starts_with("0 "));
    matches!(command_line, Ok(0)) && has_memory()
}

/// The environment of a process. Empty if the process is ending, or in the middle of an exec.
pub(super) fn environment_of(pid: u32) -> Option<Vec<u8>> {
    let mut environment = Vec::new();
    let file = File::open(format!("/proc/{pid}/environ")).ok()?;
    file.take(ENVIRONMENT_READ_MAX).read_to_end(&mut environment).ok()?;
    Some(environment)
}

fn wait_for_all(dying: &[OwnedFd]) {
    let deadline = Instant::now() + KILLED_STRAYS_TIMEOUT;
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
        // Spawning returns when the first exec has happened. The second one may be under way.
        assert_eq!(kill_generation(&killed), Killed { count: 1, is_all: true });
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
        assert_eq!(kill_generation(&generation).count, 3);
        let mut said = String::new();
        worker.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        assert_eq!(kill_generation(&generation), Killed { count: 0, is_all: true });
    }

    #[test]
    fn the_one_who_asks_is_spared_and_an_empty_name_is_nobodys() {
        const ASKING: &str = "OFFLOAD_TEST_ASKING";
        if std::env::var_os(ASKING).is_some() {
            let ours = std::env::var(GENERATION_VARIABLE).unwrap();
            assert_eq!(kill_generation(&ours).count, 0);
            return;
        }
        let this = "workers::orphans::tests::the_one_who_asks_is_spared_and_an_empty_name_is_nobodys";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", this]).env(ASKING, "1").env(GENERATION_VARIABLE, new_generation().unwrap());
        assert!(command.output().unwrap().status.success());

        let mut nameless = start("", "exec sleep 600");
        assert_eq!(kill_generation("").count, 0);
        assert_eq!(nameless.try_wait().unwrap(), None);
        nameless.kill().unwrap();
        nameless.wait().unwrap();
    }

    /// A program that hides itself, has another environment or writes over it bears the mark still.
    #[test]
    fn who_has_another_environment_is_found_by_the_mark() {
        let generation = new_generation().unwrap();
        let mark = Marks::of(&generation).unwrap().of_worker(3).number();
        let script =
            format!("exec prlimit --locks={mark}:{mark} env -i /bin/sh -c 'echo ready; exec sleep 600'");
        let mut child = start("", &script);
        let mut said = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        assert_eq!(kill_generation(&generation).count, 1);
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }

    /// The kernel takes the parent-death signal from a process that changes its user.
    #[test]
    fn who_has_become_another_user_is_found_too() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can become another user, and kill one");
            return;
        }
        let generation = new_generation().unwrap();
        let mark = Marks::of(&generation).unwrap().of_worker(3).number();
        let script = format!(
            "exec prlimit --locks={mark}:{mark} setpriv --reuid 65534 --regid 65534 --clear-groups \
             env -i /bin/sh -c 'echo ready; exec sleep 600'"
        );
        let mut child = start("", &script);
        let mut said = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        assert_eq!(kill_generation(&generation), Killed { count: 1, is_all: true });
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }

    #[test]
    fn no_two_generations_have_one_name() {
        let [one, other] = [new_generation().unwrap(), new_generation().unwrap()];
        assert_eq!(one.len(), 32);
        assert_ne!(one, other);
    }
}
