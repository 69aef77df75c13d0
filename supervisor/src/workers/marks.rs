//! Tells which worker a process descends from. Each worker process has a mark: a number that no other worker has,
//! of this supervisor or of any other.
//!
//! ```text
//!   1 | 39 bits of the generation, which is a supervisor's own | 23 bits of the worker's number
//! ```
//!
//! The mark is in two places. Descendants inherit both without knowing it.
//!
//! * The limit of file locks, which has no effect otherwise. The SDK and `worker-exec` set it before any code of the
//!   program runs. It can be read of every process. A process loses it by setting this very limit.
//! * The variable `OFFLOAD_MARK`. The process that starts the worker sets it. It can be read of processes of the same
//!   user that are not hidden. A process loses it by another environment, by a title written over it, or as the fork
//!   of a hidden process.
//!
//! A process in which the two differ has set this limit to the mark of somebody else, or is a worker of a supervisor
//! that is itself within a worker. Both marks count: it ends with the first of these workers that ends.
//!
//! So a process that wants to get rid of its mark can, by both at once. It is then known only as a descendant of some worker of this
//! supervisor, and ends with the supervisor at the latest.

use super::confinement::hard_limit;
use super::orphans::environment_of;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use offload_protocol::limits::MARK_VARIABLE;
use std::fs;
use std::io::stdin;

const WORKER_BITS: u32 = 23;
const WORKERS_TOLD_APART: u64 = 1 << WORKER_BITS;
/// All marks are at least this large. Nobody sets such a limit for its own sake.
const LOWEST: u64 = 1 << 62;

/// The mark of a worker and of its descendants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

impl Mark {
    /// The mark as a number, as it is stored.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The marks of any process: that of its limit, if it has one, and that of its environment. The process id must not be
    /// reused meanwhile; that of an unreaped child is not.
    pub fn of_process(pid: u32) -> impl Iterator<Item = Mark> {
        [Mark::in_limits_of(pid), Mark::in_environment_of(pid)].into_iter().flatten()
    }

    /// The mark in the limit of a process; as for [`Mark::of_process`].
    pub(super) fn in_limits_of(pid: u32) -> Option<Mark> {
        parse_limits(&fs::read_to_string(format!("/proc/{pid}/limits")).ok()?)
    }

    /// The mark in the environment of a process; as for [`Mark::of_process`]. None in the middle of an exec.
    pub(super) fn in_environment_of(pid: u32) -> Option<Mark> {
        parse_environment(&environment_of(pid)?)
    }
}

/// The marks of all workers of one supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// The first bits of all these marks.
    generation: u64,
}

impl Marks {
    /// The marks of a generation. None if `generation` is not the name of one: 32 hexadecimal digits.
    pub fn of(generation: &str) -> Option<Marks> {
        let digits = generation.get(..16).filter(|_| generation.len() == 32)?;
        let number = u64::from_str_radix(digits, 16).ok()?;
        let room_for_workers = !(WORKERS_TOLD_APART - 1);
        Some(Marks { generation: (number >> 2) & room_for_workers | LOWEST })
    }

    /// The mark of the worker with this number. Numbers repeat after 2^23 workers; by then the earlier worker with the
    /// same mark is long dead.
    pub fn of_worker(self, number: u64) -> Mark {
        Mark(self.generation | (number % WORKERS_TOLD_APART))
    }

    /// Whether this is the mark of a worker of this supervisor.
    pub fn include(self, mark: Mark) -> bool {
        mark.0 - mark.0 % WORKERS_TOLD_APART == self.generation
    }
}

/// Whether a supervisor has started this very process as a worker, and nobody has begun to serve it.
///
/// Descriptor 0 of such a process is its channel, which a process without its mark has made. Whatever a worker starts has the mark
/// of the worker, as the worker itself has. The SDK takes the channel from descriptor 0.
pub(crate) fn is_unserved_worker() -> bool {
    let variable = std::env::var(MARK_VARIABLE).unwrap_or_default();
    let Some(mark) = parse_number(&variable) else { return false };
    let maker = getsockopt(&stdin(), PeerCredentials).map_or(0, |peer| peer.pid());
    let Some(maker) = u32::try_from(maker).ok().filter(|maker| *maker != 0) else { return false };
    // A supervisor that is itself within a worker of another one has the mark of that in its limits.
    ![Mark::in_limits_of(maker), Mark::in_environment_of(maker)].contains(&Some(mark))
}

fn parse_limits(limits: &str) -> Option<Mark> {
    hard_limit(limits, "Max file locks")?.filter(|limit| (LOWEST..2 * LOWEST).contains(limit)).map(Mark)
}

fn parse_environment(environment: &[u8]) -> Option<Mark> {
    let mut entries = environment.split(|byte| *byte == 0);
    let value = entries.find_map(|entry| entry.strip_prefix(MARK_VARIABLE.as_bytes())?.strip_prefix(b"="))?;
    parse_number(std::str::from_utf8(value).ok()?)
}

fn parse_number(text: &str) -> Option<Mark> {
    let number = text.parse().ok()?;
    (LOWEST..2 * LOWEST).contains(&number).then_some(Mark(number))
}

#[cfg(test)]
mod tests {
    use super::super::orphans::new_generation;
    use super::*;
    use std::process::{Child, Command};

    fn marks() -> Marks {
        Marks::of(&new_generation().unwrap()).unwrap()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn marks_tell_workers_and_supervisors_apart() {
        let (ours, others) = (marks(), marks());
        assert_ne!(ours.of_worker(1), ours.of_worker(2));
        assert_eq!(ours.of_worker(7), ours.of_worker(7 + (1 << 23)));
        assert!(ours.include(ours.of_worker(u64::MAX)) && ours.include(ours.of_worker(0)));
        assert!(!others.include(ours.of_worker(1)));
    }

    #[test]
    fn only_the_name_of_a_generation_has_marks() {
        for name in ["", "abc", &"g".repeat(32), &"0".repeat(31), "4194304"] {
            assert_eq!(Marks::of(name), None, "{name}");
        }
        for name in ["0".repeat(32), "f".repeat(32)] {
            let mark = Marks::of(&name).unwrap().of_worker(5).number();
            assert!((LOWEST..2 * LOWEST).contains(&mark), "{mark:x}");
        }
    }

    fn in_time(condition: impl Fn() -> bool) -> bool {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !condition() {
            if std::time::Instant::now() > deadline {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    fn seen_in_time(pid: u32) -> Option<Mark> {
        in_time(|| Mark::of_process(pid).next().is_some());
        Mark::of_process(pid).next()
    }

    #[test]
    fn the_mark_is_seen_in_the_environment_and_stays_in_the_limit_when_that_is_gone() {
        let mark = marks().of_worker(12);
        let variable =
            |command: &mut Command| command.env(MARK_VARIABLE, mark.number().to_string()).spawn().unwrap();
        let by_environment = variable(Command::new("sleep").arg("600"));
        // A process that was started now is itself before the kernel shows its environment.
        assert_eq!(seen_in_time(by_environment.id()), Some(mark));
        let limit = format!("--locks={0}:{0}", mark.number());
        let mut command = Command::new("prlimit");
        command.args([&limit, "env", "-i", "/bin/sleep", "600"]).stdout(std::process::Stdio::piped());
        let by_limit = command.spawn().unwrap();
        let is_sleep = || fs::read_to_string(format!("/proc/{}/comm", by_limit.id())).unwrap() == "sleep\n";
        assert!(in_time(is_sleep), "it does not become what it is to be");
        assert_eq!(seen_in_time(by_limit.id()), Some(mark));
        [by_environment, by_limit].into_iter().for_each(end);
    }

    #[test]
    fn who_sets_the_limit_to_another_mark_keeps_its_own_in_the_environment() {
        let marks = marks();
        let [own, forged] = [12, 7].map(|worker| marks.of_worker(worker));
        let limit = format!("--locks={0}:{0}", forged.number());
        let mut command = Command::new("prlimit");
        command.args([&limit, "sleep", "600"]).env(MARK_VARIABLE, own.number().to_string());
        let child = command.spawn().unwrap();
        let seen = || Mark::of_process(child.id()).collect::<Vec<_>>();
        assert!(in_time(|| seen() == [forged, own]), "{:?}", seen());
        end(child);
    }

    #[test]
    fn who_has_no_mark_has_none_and_other_limits_are_none() {
        assert_eq!(Mark::of_process(u32::MAX).next(), None);
        let line = |hard: &str| {
            parse_limits(&format!("Max file locks            7                    {hard}  locks\n"))
        };
        for hard in ["unlimited", "0", "4711", "4611686018427387903", "9223372036854775808", "x", ""] {
            assert_eq!(line(hard), None, "{hard}");
        }
        assert_eq!(line("4611686018427387904"), Some(Mark(LOWEST)));
        for environment in ["", "OFFLOAD_MARK=", "OFFLOAD_MARK=1", "XOFFLOAD_MARK=4611686018427387904"] {
            assert_eq!(parse_environment(environment.as_bytes()), None, "{environment}");
        }
    }
}
