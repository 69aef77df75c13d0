//! Hides this process from other processes of the same user. Workers run as the user of their supervisor, and by
//! default the kernel lets each process of a user read the environment, the memory and the descriptors of every other.

use nix::sys::prctl;
use std::io;

/// Hides this process from all others of its user, workers among them: none of them can read its environment or memory,
/// trace it or take descriptors from it, and no core file is made of it. They can send signals still, and see what is
/// in `/proc/PID/stat` and the like.
///
/// For a supervisor, as early as can be. Its own `/proc/self` belongs to root from then on: it can read there, but not
/// write. A program that embeds a pool decides for itself. Workers that are started afterwards are not hidden by this;
/// those of the SDK hide themselves.
///
/// # Errors
/// What the kernel reports, which for this it never does.
pub fn hide_this_process() -> io::Result<()> {
    prctl::set_dumpable(false).map_err(io::Error::from)
}
