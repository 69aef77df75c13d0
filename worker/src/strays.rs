//! Ends everything that a program has left behind: processes that it did not wait for, or that hide from it in a group or session
//! of their own. This process is their reaper, so each becomes its child as soon as its parent has ended.
//!
//! Only children are killed, which keep their process ids until they are collected here: so no other process is hit. The
//! children of those become children of this process and are found in the next round.
//!
//! One of them may trace the program (ptrace(2)). Then its tracer alone is told how the program ended, and this process only when the
//! tracer is gone.

use crate::limits::{STRAYS_PAUSE, STRAYS_TIME};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, waitid, waitpid};
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Instant;

/// Kills and collects all children of this process, and theirs. False if some are left after [`STRAYS_TIME`]: they hang in
/// the kernel, or fork faster than they are killed.
pub(crate) fn end_all() -> bool {
    let end = Instant::now() + STRAYS_TIME;
    loop {
        match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            Err(Errno::CHILD) => return true,
            Ok(Some(_)) | Err(Errno::INTR) => continue,
            Ok(None) | Err(_) => {}
        }
        if Instant::now() >= end {
            return false;
        }
        for child in children_of("self") {
            let _ = kill_process(child, Signal::KILL);
        }
        std::thread::sleep(STRAYS_PAUSE);
    }
}

/// How a child has ended of which the pidfd says that it has. Collects it, unless it is traced by a process that is no descendant
/// of this one. All other children are killed if that is necessary to find out.
pub(crate) fn collect(child: Pid) -> io::Result<ExitStatus> {
    if let Some(status) = look_at_end(child)? {
        return Ok(status);
    }
    end_others(child);
    look_at_end(child)?.map_or_else(|| end_of_zombie(child), Ok)
}

fn look_at_end(child: Pid) -> io::Result<Option<ExitStatus>> {
    let ended = waitpid(Some(child), WaitOptions::NOHANG)?;
    Ok(ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw())))
}

/// The last field of proc_pid_stat(5).
fn end_of_zombie(pid: Pid) -> io::Result<ExitStatus> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))?;
    let status = stat.split_whitespace().next_back().and_then(|status| status.parse().ok());
    // Who may not know it reads a 0, which is no proof of success.
    let status = status.filter(|status| *status != 0);
    status
        .map(ExitStatus::from_raw)
        .ok_or_else(|| io::Error::other("its end was told to whoever traced it alone"))
}

/// Kills and collects all children of this process but one, and theirs, for at most [`STRAYS_TIME`].
pub(crate) fn end_others(spared: Pid) {
    let end = Instant::now() + STRAYS_TIME;
    loop {
        let mut others = children_of("self");
        others.retain(|child| *child != spared);
        if others.is_empty() || Instant::now() >= end {
            return;
        }
        for child in others {
            let _ = kill_process(child, Signal::KILL);
            let _ = waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
        std::thread::sleep(STRAYS_PAUSE);
    }
}

/// The children of all threads of a process, which is named as in /proc.
pub(crate) fn children_of(process: &str) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let pids = |list: String| {
        let pids = list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
        pids.collect::<Vec<_>>()
    };
    lists.flat_map(pids).collect()
}
