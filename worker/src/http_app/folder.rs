//! The folder of a socket, in the folder for temporary files. It is removed with its [`Folder`]. A process that is killed cannot
//! remove its own, so the next one that makes a folder does it.
//!
//! ```text
//!   made ---> locked ---- dropped ------------------------------> removed
//!               '-- its process is killed: not locked ---> the next process locks it, and removes it
//! ```
//!
//! Whose process lives is told by the lock, and not by the number in the name: where containers share the folder for temporary
//! files, each has numbers of its own.

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, flock, fstat, open, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::{self, DirBuilder, DirEntry};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const PREFIX: &str = "offload-app-";

/// The name of the socket in its folder.
const SOCKET: &str = "socket";

/// How many names are tried.
const TRIED_MAX: u32 = 100;

/// So many entries of the folder for temporary files are looked at.
const SEEN_MAX: usize = 10_000;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// None where the file system has no locks. Nobody takes such a folder for one that was left behind.
    _lock: Option<OwnedFd>,
}

impl Folder {
    /// A new folder, for this user only.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn new() -> io::Result<Folder> {
        Folder::within(&std::env::temp_dir())
    }

    fn within(all: &Path) -> io::Result<Folder> {
        remove_left_behind(all);
        let process = std::process::id();
        for number in 0..TRIED_MAX {
            let path = all.join(format!("{PREFIX}{process}-{number}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            }
            match lock(&path) {
                Ok(lock) => return Ok(Folder { path, _lock: Some(lock) }),
                // Another process has taken it for one that was left behind, before it was locked.
                Err(Errno::WOULDBLOCK | Errno::NOENT) => {}
                Err(_) => return Ok(Folder { path, _lock: None }),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed harms nobody.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// # Errors
/// `WOULDBLOCK` if another process has it, `NOENT` if it is gone.
fn lock(folder: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = open(folder, flags, Mode::empty())?;
    flock(&opened, FlockOperation::NonBlockingLockExclusive)?;
    if fstat(&opened)?.st_nlink == 0 { Err(Errno::NOENT) } else { Ok(opened) }
}

fn remove_left_behind(all: &Path) {
    let entries = fs::read_dir(all).into_iter().flatten().take(SEEN_MAX).flatten();
    for folder in entries.filter(has_our_name).map(|entry| entry.path()) {
        let Ok(locked) = lock(&folder) else { continue };
        // Another user could put a link in the place of a folder of his, and have something removed behind it.
        if !fstat(&locked).is_ok_and(|found| found.st_uid == geteuid().as_raw()) {
            continue;
        }
        let found = statat(&locked, SOCKET, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Socket) {
            let _ = unlinkat(&locked, SOCKET, AtFlags::empty());
        }
        // It stays if there is something else in it: then it is none of ours.
        let _ = fs::remove_dir(folder);
    }
}

fn has_our_name(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let numbers = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(process, number)| is_number(process) && is_number(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_killed_processes_have_left_is_removed_and_nothing_else() {
        let all = std::env::temp_dir().join(format!("offload-folders-{}", std::process::id()));
        fs::create_dir(&all).unwrap();
        let made = |name: &str| {
            let path = all.join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let living = Folder::within(&all).unwrap();
        let (left, with_socket) = (made("offload-app-1-0"), made("offload-app-1-1"));
        drop(UnixListener::bind(with_socket.join(SOCKET)).unwrap());
        let others = ["offload-app-1-2", "offload-app-x-1", "offload-1-1"].map(made);
        fs::write(others[0].join(SOCKET), "a file").unwrap();

        let of_another = made("offload-app-1-3");
        let is_given = std::os::unix::fs::chown(&of_another, Some(1), None).is_ok();
        if !is_given {
            eprintln!("not root, so nothing is seen of the folders of other users");
        }

        let next = Folder::within(&all).unwrap();
        assert!(!is_given || of_another.exists());
        assert!(!left.exists() && !with_socket.exists());
        assert!(others.iter().all(|path| path.exists()) && others[0].join(SOCKET).exists());
        assert!(living.path.exists() && next.path.exists() && living.path != next.path);
        let (first, second) = (living.path.clone(), next.path.clone());
        drop((living, next));
        assert!(!first.exists() && !second.exists());
        fs::remove_dir_all(all).unwrap();
    }
}
