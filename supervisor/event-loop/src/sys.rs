//! The system calls that no library wraps safely. This is the only file of the crate that may use `unsafe`.
#![expect(unsafe_code, reason = "see each use")]

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Starts `command` with the default action for every signal and none blocked, as libuv does. What this process ignores
/// or blocks would go on to the child otherwise: one that is started while SIGTERM is ignored would survive SIGTERM.
///
/// # Errors
/// As [`Command::spawn`].
pub(crate) fn spawn_with_default_signals(command: &mut Command) -> io::Result<Child> {
    // SAFETY: what runs between fork and exec makes system calls only. It takes no lock and allocates nothing.
    unsafe { command.pre_exec(default_all_signals) };
    // Until the child has done so, no handler of this process may run in it: it would write to pipes that both share.
    let blocked = AllSignalsBlocked::begin();
    let child = command.spawn();
    drop(blocked);
    child
}

/// Runs in the child.
fn default_all_signals() -> io::Result<()> {
    /// Set in the memory of the child only. A command that is started again has this function once for each start.
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if IS_DONE.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: no function of ours is installed. What cannot be changed is refused: SIGKILL, SIGSTOP, and
        // the C library's own.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is written before it is read, and outlives both calls.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
    Ok(())
}

/// As long as it exists, this thread takes no signals. Those of the process go to its other threads, or wait.
struct AllSignalsBlocked {
    before: libc::sigset_t,
}

impl AllSignalsBlocked {
    fn begin() -> AllSignalsBlocked {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the first set is written before it is read. The second one is written by the call, which cannot fail with
        // these arguments, and is a value, the empty set, even if it did.
        let before = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        AllSignalsBlocked { before }
    }
}

impl Drop for AllSignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set is one that the kernel has given.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut()) };
    }
}
