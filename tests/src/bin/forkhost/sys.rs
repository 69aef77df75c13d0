//! The fork of this program, which has no other use for unsafe code.

use nix::unistd::{ForkResult, fork};

/// Forks. Returns false in the child, and in the parent true once the child has ended well.
///
/// # Errors
/// What the system says.
#[expect(unsafe_code, reason = "a fork of a program with threads has no safe form")]
pub(crate) fn fork_and_wait() -> nix::Result<bool> {
    // SAFETY: the child drops what it has copies of, which takes no lock that another thread may have had, and then exits. The
    // C library sees to the locks of its allocator.
    match unsafe { fork() }? {
        ForkResult::Child => Ok(false),
        ForkResult::Parent { child } => {
            let ended = nix::sys::wait::waitpid(child, None)?;
            assert!(matches!(ended, nix::sys::wait::WaitStatus::Exited(_, 0)), "{ended:?}");
            Ok(true)
        }
    }
}
