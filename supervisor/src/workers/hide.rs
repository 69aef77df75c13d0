//! Hides this process from other processes of the same user. Workers run as the user of their supervisor, and by
//! default the kernel lets each process of a user read the environment, the memory and the descriptors of every other.

use nix::sys::prctl;
use std::io;

/// Hides this process from all other processes of its user, workers included: none of them can read its environment or
/// memory, trace it or take descriptors from it, and no core file of it is written. They can still send signals, and
/// read `/proc/PID/stat` and similar files.
///
/// A supervisor should call this as early as possible. From then on its own `/proc/self` belongs to root: the process
/// can read there, but not write. A program that embeds a pool decides for itself. Workers that are started afterwards
/// are not hidden by this; those of the SDK hide themselves.
///
/// # Errors
/// What the kernel reports. This call never fails.
pub fn hide_this_process() -> io::Result<()> {
    prctl::set_dumpable(false).map_err(io::Error::from)
}
