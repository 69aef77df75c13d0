//! The one system call that no library wraps safely. This is the only file of the crate that may use `unsafe`.
#![expect(unsafe_code, reason = "see each use")]

use std::io;

/// Has this thread, and those that it starts, scheduled as one that computes and does not mind waiting: it is not
/// preferred over others when it wakes up, and runs longer at a stretch (SCHED_BATCH of sched(7)). Takes no privilege.
///
/// # Errors
/// What the kernel says.
pub(crate) fn schedule_as_batch() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel only reads `parameters`, which is initialized and outlives the call; 0 names this thread.
    let answer = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
    match answer {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    /// On a thread of its own, which ends with what was changed. The policy is the 41st field of proc_pid_stat(5).
    #[test]
    fn a_thread_that_asks_for_it_is_scheduled_as_batch() {
        let thread = std::thread::spawn(|| {
            super::schedule_as_batch().unwrap();
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let (_, after_name) = stat.rsplit_once(')').unwrap();
            after_name.split_whitespace().nth(41 - 3).unwrap().to_owned()
        });
        assert_eq!(thread.join().unwrap(), libc::SCHED_BATCH.to_string());
    }
}
