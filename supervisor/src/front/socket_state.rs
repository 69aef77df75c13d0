//! Checks whether the socket and the lock are still those of this supervisor, and who owns them otherwise.

use super::directory::PrivateDirectory;
use crate::limits::CHANGE_READS_MAX;
use rustix::fs::{self, Stat, inotify};
use rustix::io::{Errno, read};
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The state of a listener's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketState {
    /// Clients find the socket, and the lock is held.
    Sound,
    /// The socket was removed, or its name belongs to another file. The lock is still ours.
    SocketLost,
    /// The lock file was removed or replaced, so another supervisor may take the lock.
    LockLost,
}

/// Device and inode, by which a file is recognized.
pub(super) type Identity = (u64, u64);

/// The path of the lock file of this socket.
pub(super) fn lock_path(socket: &Path) -> PathBuf {
    let mut path = OsString::from(socket);
    path.push(".lock");
    PathBuf::from(path)
}

/// Whether the file with this identity is at this path. If that cannot be determined, the answer is yes.
pub(super) fn is_at(path: &Path, identity: Identity) -> bool {
    match fs::lstat(path) {
        Ok(stat) => identity_of(&stat) == identity,
        Err(error) => !matches!(error, Errno::NOENT | Errno::NOTDIR),
    }
}

pub(super) fn identity_of(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

/// A descriptor that is readable when a file of the directory is removed or renamed, or the directory itself is. None
/// if the kernel provides no more of these descriptors.
pub(super) fn watch_changes(directory: &PrivateDirectory) -> Option<OwnedFd> {
    use inotify::{CreateFlags, WatchFlags};
    let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
    let path = format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd());
    let removed = WatchFlags::DELETE | WatchFlags::DELETE_SELF;
    let moved = WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO | WatchFlags::MOVE_SELF;
    inotify::add_watch(&changes, path, removed | moved).ok()?;
    Some(changes)
}

/// Whether anything has changed since the last call.
pub(super) fn has_changed(changes: &OwnedFd) -> bool {
    let mut buffer = [0; 4096];
    (0..CHANGE_READS_MAX).take_while(|_| read(changes, &mut buffer).is_ok_and(|length| length > 0)).count()
        > 0
}

/// The process that holds the lock of this socket, if there is one. It need not be listening. The holder is looked up
/// and the lock is not tried, because trying would hold the lock for a moment and could make a starting supervisor
/// fail.
pub fn owner_of(socket: &Path) -> Option<u32> {
    let lock = std::fs::metadata(lock_path(socket)).ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| holder_in(line, lock.dev(), lock.ino()))
}

/// The holder of the lock, from a line such as `1: FLOCK  ADVISORY  WRITE 4242 08:01:1234 0 EOF`, with the device in
/// hexadecimal.
fn holder_in(line: &str, device: u64, inode: u64) -> Option<u32> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let &[_, "FLOCK", _, "WRITE", pid, file, ..] = words.as_slice() else { return None };
    let mut parts = file.split(':');
    let (major, minor) = (fs::major(device), fs::minor(device));
    let is_device = [major, minor].iter().all(|number| {
        parts.next().is_some_and(|part| u32::from_str_radix(part, 16).is_ok_and(|part| part == *number))
    });
    let is_file = is_device && parts.next()?.parse() == Ok(inode);
    if is_file { pid.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_told_by_the_device_and_the_inode_of_its_file() {
        let line = "3: FLOCK  ADVISORY  WRITE 4242 fe:01:1234 0 EOF";
        let device = fs::makedev(0xfe, 1);
        assert_eq!(holder_in(line, device, 1234), Some(4242));
        assert_eq!(holder_in(line, device, 1235), None);
        assert_eq!(holder_in(line, fs::makedev(0xfe, 2), 1234), None);
        assert_eq!(holder_in("3: POSIX  ADVISORY  WRITE 4242 fe:01:1234 0 EOF", device, 1234), None);
        assert_eq!(holder_in("3: -> FLOCK ADVISORY WRITE 1 fe:01:1234 0 EOF", device, 1234), None);
    }
}
