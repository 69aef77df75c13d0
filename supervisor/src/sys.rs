//! The system calls that no library wraps safely. This is the only file of the crate that may use `unsafe`.
#![expect(unsafe_code, reason = "see each use")]

use rustix::process::Pid;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// CPU time, separately for user mode and kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

impl CpuTime {
    pub(crate) fn total(self) -> Duration {
        self.user.saturating_add(self.system)
    }
}

/// What the kernel reports about a child that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collected {
    pub(crate) status: ExitStatus,
    /// CPU time of the child and of those of its children that it has waited for, to the microsecond.
    pub(crate) cpu_time: CpuTime,
    /// The highest resident memory of the child and of each of those children, in bytes. It is at least what this
    /// process itself had when it started the child, because the two share their memory until the exec.
    pub(crate) peak_rss: u64,
}

/// Collects a child that has ended. None if there is no such child, or it has not ended. Does not wait (wait4(2)).
///
/// # Errors
/// What the kernel reports.
pub(crate) fn collect(pid: Pid) -> io::Result<Option<Collected>> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes an int to `status` and a struct rusage to `usage`, which both outlive the call.
    let collected =
        unsafe { libc::wait4(pid.as_raw_pid(), &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    // SAFETY: a rusage consists of integers, for which all bytes zero (the initial value) is valid.
    let usage = unsafe { usage.assume_init() };
    match collected {
        0 => Ok(None),
        -1 => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
            error => Err(error),
        },
        _ => {
            let cpu_time = CpuTime { user: duration(usage.ru_utime), system: duration(usage.ru_stime) };
            let peak_rss = u64::try_from(usage.ru_maxrss).unwrap_or(0).saturating_mul(1024);
            Ok(Some(Collected { status: ExitStatus::from_raw(status), cpu_time, peak_rss }))
        }
    }
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, WaitId, WaitIdOptions, kill_process, waitid};
    use std::process::{Child, Command};

    fn start(script: &str) -> (Child, Pid) {
        let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let pid = Pid::from_child(&child);
        (child, pid)
    }

    fn collect_when_ended(pid: Pid) -> Collected {
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        collect(pid).unwrap().unwrap()
    }

    #[test]
    fn a_child_is_collected_once_it_has_ended_and_only_once() {
        let (_child, pid) = start("exec sleep 600");
        assert!(collect(pid).unwrap().is_none());
        kill_process(pid, Signal::KILL).unwrap();
        assert_eq!(collect_when_ended(pid).status.signal(), Some(9));
        assert!(collect(pid).unwrap().is_none());
    }

    /// Each of two children is charged with its own usage only.
    #[test]
    fn its_time_comes_with_it() {
        let (_lazy_child, lazy) = start("exit 3");
        let (_busy_child, busy) = start("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done");
        let [busy, lazy] = [busy, lazy].map(collect_when_ended);
        assert_eq!((busy.status.code(), lazy.status.code()), (Some(0), Some(3)));
        assert!(busy.cpu_time.total() > 2 * lazy.cpu_time.total(), "{busy:?} {lazy:?}");
        assert!(lazy.peak_rss > 0);
    }
}
