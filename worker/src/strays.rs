//! Ends everything that a program has left behind: processes that it did not wait for, or that hide from it in a group or session
//! of their own. This process is their reaper, so each becomes its child as soon as its parent has ended.
//!
//! Only children are killed, which keep their process ids until they are collected here: so no other process is hit. The
//! children of those become children of this process and are found in the next round.

use crate::limits::{STRAYS_PAUSE, STRAYS_TIME};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fs;
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
