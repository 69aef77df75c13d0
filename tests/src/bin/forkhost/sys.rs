//! The fork of this program, which has no other use for unsafe code.

use nix::unistd::{ForkResult, alarm, fork};

/// A child that has not ended after so many seconds hangs, and is killed.
const CHILD_SECONDS_MAX: u32 = 20;

/// Forks. Returns false in the child, and in the parent true once the child has ended well.
///
/// # Errors
/// What the system says.
#[expect(unsafe_code, reason = "a fork of a program with threads has no safe form")]
pub(crate) fn fork_and_wait() -> nix::Result<bool> {
    // SAFETY: the child only drops what it has, and exits. For the allocator the C library sees to that, and it is the promise
    // under test that dropping a pool and a loop needs no lock that another thread may have had.
    match unsafe { fork() }? {
        ForkResult::Child => {
            alarm::set(CHILD_SECONDS_MAX);
            Ok(false)
        }
        ForkResult::Parent { child } => {
            let ended = nix::sys::wait::waitpid(child, None)?;
            assert!(matches!(ended, nix::sys::wait::WaitStatus::Exited(_, 0)), "{ended:?}");
            Ok(true)
        }
    }
}
