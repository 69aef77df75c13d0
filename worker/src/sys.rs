//! The few calls that no library wraps safely. This is the only file of the crate that may use `unsafe`.
#![expect(unsafe_code, reason = "see each use")]

use libc::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// Gives every signal that is ignored its default effect again, but for those in `spared`. A signal that is handled
/// stays as it is.
pub(crate) fn heed_signals(spared: &[c_int]) {
    for signal in (1..=libc::SIGRTMAX()).filter(|signal| !spared.contains(signal)) {
        if is_ignored(signal) {
            // SAFETY: the default effect runs no code of this program, so nothing has to be fit for a handler.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

/// Whether this process ignores `signal`; of what is no signal, and of those that the C library keeps for itself, false.
fn is_ignored(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action the call changes nothing, and writes a sigaction to `action`, which outlives it.
    let answer = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: a sigaction consists of integers and an optional function, for which all bytes zero, as it was made, is
    // a value.
    let action = unsafe { action.assume_init() };
    answer == 0 && action.sa_sigaction == libc::SIG_IGN
}

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
    use super::*;
    use nix::sys::signal::{Signal, raise};

    /// Signals are the whole process's: these two mean nothing to the other tests.
    #[test]
    fn a_signal_that_was_ignored_has_its_default_effect_again_unless_it_is_spared() {
        let [ignored, spared] = [libc::SIGWINCH, libc::SIGURG];
        for signal in [ignored, spared] {
            // SAFETY: to ignore a signal runs no code of this program.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
            assert!(is_ignored(signal));
        }
        heed_signals(&[spared, libc::SIGPIPE]);
        assert!(!is_ignored(ignored) && is_ignored(spared));
        raise(Signal::SIGWINCH).unwrap();
        heed_signals(&[libc::SIGPIPE]);
        assert!(!is_ignored(spared));
        assert!(is_ignored(libc::SIGPIPE), "as Rust programs begin");
    }

    #[test]
    fn a_number_that_is_no_signal_is_not_ignored() {
        for number in [0, -1, 32, 1000, libc::SIGKILL] {
            assert!(!is_ignored(number), "{number}");
        }
    }

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
