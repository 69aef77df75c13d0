//! How much memory a program and all that it has started use. It is looked at every few milliseconds, so a program may use more than
//! its limit for a moment. Limits of the kernel for one process would not do: they count addresses, of which some runtimes
//! reserve many and use few, and a program that is refused memory fails in a way of its own, which says nothing.

use crate::limits::EXEC_PROCESSES_MAX;
use crate::strays::children_of;
use rustix::process::Pid;
use std::fs;

/// The memory in bytes that the descendants of this process have to themselves. Of more than [`EXEC_PROCESSES_MAX`] processes,
/// that of the first ones.
pub(super) fn of_descendants() -> u64 {
    let (mut pages, mut looked_at, mut to_look_at) = (0_u64, 0, children_of("self"));
    while let Some(pid) = to_look_at.pop()
        && looked_at < EXEC_PROCESSES_MAX
    {
        pages = pages.saturating_add(pages_of(pid).unwrap_or(0));
        to_look_at.extend(children_of(&pid.as_raw_nonzero().to_string()));
        looked_at += 1;
    }
    pages.saturating_mul(rustix::param::page_size() as u64)
}

/// Pages that are in memory and no part of a file, of proc_pid_statm(5). `None` if the process has ended.
fn pages_of(pid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{}/statm", pid.as_raw_nonzero())).ok()?;
    let mut fields = text.split(' ').skip(1).map_while(|field| field.parse::<u64>().ok());
    let (resident, of_files) = (fields.next()?, fields.next()?);
    Some(resident.saturating_sub(of_files))
}
