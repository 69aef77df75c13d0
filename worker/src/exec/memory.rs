//! How much memory a program and all that it has started use. It is looked at every few milliseconds, so a program may use more than
//! its limit for a moment. Limits of the kernel for one process would not do: they count addresses, of which some runtimes
//! reserve many and use few, and a program that is refused memory fails in a way of its own, which says nothing.
//!
//! What counts is anonymous memory and shared memory (tmpfs), in as far as a process has it mapped, and each page once for all
//! processes. To know that, the kernel has to walk through all of their pages, some 50 ms for each GiB. So it is asked for that only
//! while the sizes of the processes, in which a page counts for each of them and files count, too, are together more than the limit;
//! and a thread waits for the answer.
//!
//! One thing still counts twice: a child of vfork(2), until it becomes another program, is shown with all the memory of its parent.

use crate::limits::{
    EXEC_MEMORY_COUNT_MAX, EXEC_MEMORY_LOOK, EXEC_MEMORY_REST, EXEC_MEMORY_WAIT, EXEC_PROCESSES_MAX,
};
use crate::strays::children_of;
use rustix::process::Pid;
use std::fs;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Instant;

/// The limit of one program, and what is known of its memory.
#[derive(Debug)]
pub(super) struct Memory {
    most: u64,
    next_look: Instant,
    count: Option<Count>,
}

/// A count that has not ended.
#[derive(Debug)]
struct Count {
    began: Instant,
    processes: Vec<Pid>,
    result: Receiver<u64>,
}

impl Memory {
    /// A program that was started at this moment may use so many bytes.
    pub(super) fn at_most(most: u64, now: Instant) -> Memory {
        Memory { most, next_look: now, count: None }
    }

    /// When to look next.
    pub(super) fn next_look(&self) -> Instant {
        self.next_look
    }

    /// Whether the descendants of this process use more, as far as is known. If it takes long to know, the next look tells.
    pub(super) fn is_exceeded(&mut self) -> bool {
        self.is_exceeded_by_descendants_of("self")
    }

    fn is_exceeded_by_descendants_of(&mut self, process: &str) -> bool {
        let count = match self.count.take() {
            Some(count) => count,
            None => {
                let processes = descendants(process);
                if most_of(&processes) <= self.most {
                    self.next_look = Instant::now() + EXEC_MEMORY_LOOK;
                    return false;
                }
                Count::begin(processes)
            }
        };
        let wait = EXEC_MEMORY_WAIT.saturating_sub(count.began.elapsed());
        let bytes = match count.result.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) if count.began.elapsed() < EXEC_MEMORY_COUNT_MAX => {
                self.next_look = Instant::now() + EXEC_MEMORY_LOOK;
                self.count = Some(count);
                return false;
            }
            Ok(bytes) => bytes,
            // There is no thread, or it waits for a process that hangs in the kernel.
            Err(_) => count.processes.iter().filter_map(|pid| own_of(*pid)).fold(0, u64::saturating_add),
        };
        let rest = count.began.elapsed() * EXEC_MEMORY_REST;
        self.next_look = Instant::now() + rest.max(EXEC_MEMORY_LOOK);
        bytes > self.most
    }
}

impl Count {
    fn begin(processes: Vec<Pid>) -> Count {
        let (sender, result) = channel();
        let to_count = processes.clone();
        // Without a thread the other end of the channel is gone, which tells.
        let _ = thread::Builder::new().spawn(move || {
            let uses = |pid: &Pid| share_of(*pid).or_else(|| own_of(*pid));
            let _ = sender.send(to_count.iter().filter_map(uses).fold(0, u64::saturating_add));
        });
        Count { began: Instant::now(), processes, result }
    }
}

/// Of more than [`EXEC_PROCESSES_MAX`] processes, the first ones.
fn descendants(process: &str) -> Vec<Pid> {
    let (mut found, mut to_look_at) = (Vec::new(), children_of(process));
    while let Some(pid) = to_look_at.pop()
        && found.len() < EXEC_PROCESSES_MAX
    {
        to_look_at.extend(children_of(&pid.as_raw_nonzero().to_string()));
        found.push(pid);
    }
    found
}

/// What these processes use at most, in bytes.
fn most_of(pids: &[Pid]) -> u64 {
    let sizes = pids.iter().filter_map(|pid| sizes_of(*pid));
    sizes.map(|(resident, _)| resident).fold(0, u64::saturating_add)
}

/// What a process uses, in bytes, with its share of what several processes have. `None` if it has ended, the kernel does not know
/// (before Linux 5.4), or it may not be read.
fn share_of(pid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", pid.as_raw_nonzero())).ok()?;
    Some(
        kibibytes_of(&text, "Pss_Anon:")?
            .saturating_add(kibibytes_of(&text, "Pss_Shmem:")?)
            .saturating_mul(1024),
    )
}

fn kibibytes_of(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// The memory of a process in bytes without what it may share.
fn own_of(pid: Pid) -> Option<u64> {
    sizes_of(pid).map(|(resident, shared)| resident.saturating_sub(shared))
}

/// The bytes of a process that are in memory, and how many of them are part of a file or shared, of proc_pid_statm(5). `None` if it
/// has ended.
fn sizes_of(pid: Pid) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{}/statm", pid.as_raw_nonzero())).ok()?;
    let page = rustix::param::page_size() as u64;
    let mut fields = text.split(' ').skip(1).map_while(|field| field.parse::<u64>().ok());
    Some((fields.next()?.saturating_mul(page), fields.next()?.saturating_mul(page)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    const MIB: u64 = 1 << 20;

    /// A process that has done this, and waits then with all that it has started.
    struct Program(Child);

    impl Program {
        fn that(does: &str) -> Program {
            // Its children are grandchildren here, and it is the only child of the shell.
            let script = format!(
                "import mmap, os, sys\n{does}\nprint('done', flush=True)\nsys.stdin.read()\nos.killpg(0, 9)"
            );
            let mut command = Command::new("sh");
            command.args(["-c", r#"python3 -c "$1"; :"#, "sh", &script]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child =
                std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "done\n");
            Program(child)
        }

        /// Whether it uses more, found out in as many looks as that takes.
        fn uses_more_than(&self, most: u64) -> bool {
            let mut memory = Memory::at_most(most, Instant::now());
            loop {
                let is_exceeded = memory.is_exceeded_by_descendants_of(&self.0.id().to_string());
                if memory.count.is_none() {
                    return is_exceeded;
                }
                thread::yield_now();
            }
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            drop(self.0.stdin.take());
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn a_page_that_several_processes_have_counts_once() {
        let program = Program::that(
            "table = bytearray(b'x') * (60 << 20)\nfor _ in range(4):\n    if os.fork() == 0: os.read(0, 1); os._exit(0)",
        );
        assert!(!program.uses_more_than(200 * MIB), "they would use 300 MiB without sharing");
        assert!(program.uses_more_than(50 * MIB));
    }

    #[test]
    fn shared_memory_counts_and_files_do_not() {
        let shared = Program::that(
            "shared = mmap.mmap(-1, 80 << 20)\nfor _ in range(80): shared.write(bytes(1 << 20))",
        );
        assert!(shared.uses_more_than(70 * MIB) && !shared.uses_more_than(160 * MIB));
        let file = "shared = mmap.mmap(os.open(sys.executable, os.O_RDONLY), 0, prot=mmap.PROT_READ); sum(shared[::4096])";
        let of_file = Program::that(file);
        let resident = most_of(&descendants(&of_file.0.id().to_string()));
        assert!(!of_file.uses_more_than(resident - 2 * MIB), "{resident} bytes with files");
    }

    #[test]
    fn a_process_that_cannot_be_read_uses_nothing() {
        let gone = Pid::from_raw(i32::MAX).unwrap();
        assert_eq!((share_of(gone), own_of(gone), most_of(&[gone])), (None, None, 0));
        let ours = rustix::process::getpid();
        assert!(share_of(ours).is_some_and(|bytes| bytes > 0) && own_of(ours) <= Some(most_of(&[ours])));
    }
}
