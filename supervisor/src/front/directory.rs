//! The directory of the socket, which no other user can enter. The directory keeps other users out; the mode of the
//! socket itself is the second line of defence.

use super::listener::BindError;
use rustix::fs::{self, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::{DirBuilder, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

const WRITABLE_BY_OTHERS: u32 = 0o022;
const OPEN_TO_OTHERS: u32 = 0o077;
const STICKY: u32 = 0o1000;

/// An open directory that belongs to us alone. Files are named relative to its descriptor, so the directory that was
/// checked is the one that is used, even if it is moved.
#[derive(Debug)]
pub(super) struct PrivateDirectory {
    descriptor: OwnedFd,
}

impl PrivateDirectory {
    /// Opens the directory at `path`. If it or a directory above it is missing, it is created with mode 0700.
    pub(super) fn open_or_create(path: &Path) -> Result<PrivateDirectory, BindError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|error| BindError::io("create the directory", path, error))?;
        PrivateDirectory::open(path)
    }

    /// Opens the directory at `path`.
    fn open(path: &Path) -> Result<PrivateDirectory, BindError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = match fs::open(path, flags, Mode::empty()) {
            Ok(descriptor) => descriptor,
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(BindError::unsuitable(path, "it is a symbolic link, not a directory"));
            }
            Err(error) => return Err(BindError::io("open the directory", path, error)),
        };
        check_owner_and_mode(path, &descriptor)?;
        check_ancestors(path)?;
        Ok(PrivateDirectory { descriptor })
    }

    /// Opens a file of this directory for reading and writing. If it is missing, it is created with mode 0600.
    pub(super) fn open_file(&self, name: &Path) -> Result<File, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(&self.descriptor, name, flags, Mode::from_raw_mode(0o600)).map(File::from)
    }

    /// The metadata of `name`. `None` if there is no such file.
    pub(super) fn look_up(&self, name: &Path) -> Result<Option<Stat>, Errno> {
        match fs::statat(&self.descriptor, name, fs::AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Renames `from` to `to`, replacing what had that name.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> Result<(), Errno> {
        fs::renameat(&self.descriptor, from, &self.descriptor, to)
    }

    /// Removes `name` if it exists.
    pub(super) fn remove(&self, name: &Path) -> Result<(), Errno> {
        match fs::unlinkat(&self.descriptor, name, fs::AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            result => result,
        }
    }

    /// Allows only the owner to read and write `name`.
    pub(super) fn make_private(&self, name: &Path) -> Result<(), Errno> {
        fs::chmodat(&self.descriptor, name, Mode::from_raw_mode(0o600), fs::AtFlags::empty())
    }

    /// A path to `name` for calls that take no directory, such as `bind`. It is short, however deep the directory
    /// lies.
    pub(super) fn short_path(&self, name: &Path) -> PathBuf {
        Path::new("/proc/self/fd").join(self.descriptor.as_raw_fd().to_string()).join(name)
    }
}

impl AsFd for PrivateDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Checks whether the directory at `path` can be that of a socket, or could be created, and changes nothing.
///
/// # Errors
/// [`BindError`], as the start of a supervisor would have it.
pub fn check_folder(path: &Path) -> Result<(), BindError> {
    if path.symlink_metadata().is_ok() {
        return PrivateDirectory::open(path).map(drop);
    }
    let create = |error: Errno| BindError::io("create the directory", path, error);
    let there = path.ancestors().find(|ancestor| ancestor.symlink_metadata().is_ok());
    let there = there.unwrap_or(Path::new("."));
    if !there.is_dir() {
        return Err(create(Errno::NOTDIR));
    }
    fs::access(there, fs::Access::WRITE_OK | fs::Access::EXEC_OK).map_err(create)
}

/// Whether `stat` is that of a socket.
pub(super) fn is_socket(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Socket
}

fn check_owner_and_mode(path: &Path, descriptor: &OwnedFd) -> Result<(), BindError> {
    let stat = fs::fstat(descriptor).map_err(|error| BindError::io("look at the directory", path, error))?;
    if stat.st_uid != geteuid().as_raw() {
        let reason = format!("it belongs to user {}, not to user {}", stat.st_uid, geteuid().as_raw());
        return Err(BindError::unsuitable(path, reason));
    }
    if stat.st_mode & OPEN_TO_OTHERS != 0 {
        let mode = stat.st_mode & 0o7777;
        let reason = format!("its mode is {mode:04o}, which lets other users in; it must be 0700");
        return Err(BindError::unsuitable(path, reason));
    }
    Ok(())
}

/// Refuses directories above ours that other users may write to: they could put another directory in the place of
/// ours.
fn check_ancestors(path: &Path) -> Result<(), BindError> {
    let path = path.canonicalize().map_err(|error| BindError::io("look at the directory", path, error))?;
    for ancestor in path.ancestors().skip(1) {
        let metadata = ancestor.metadata().map_err(|error| BindError::io("look at", ancestor, error))?;
        if metadata.mode() & WRITABLE_BY_OTHERS != 0 && metadata.mode() & STICKY == 0 {
            let mode = metadata.mode() & 0o7777;
            let reason = format!("its mode is {mode:04o}: other users may replace what is in it");
            return Err(BindError::unsuitable(ancestor, reason));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::tests::private_folder;
    use std::fs::{Permissions, create_dir, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    fn refusal(path: &Path) -> String {
        match PrivateDirectory::open_or_create(path) {
            Err(error @ BindError::Unsuitable { .. }) => error.to_string(),
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    #[test]
    fn a_check_says_what_a_start_would_say_and_creates_nothing() {
        let folder = private_folder();
        let missing = folder.path().join("a/b");
        assert!(check_folder(&missing).is_ok() && !missing.exists());
        assert!(check_folder(folder.path()).is_ok());
        let open = folder.path().join("open");
        create_dir(&open).unwrap();
        set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
        assert!(check_folder(&open).unwrap_err().to_string().contains("must be 0700"));
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(check_folder(&file.join("a/b")).unwrap_err().to_string().contains("Not a directory"));
    }

    #[test]
    fn what_is_missing_is_created_for_the_owner_alone() {
        let folder = private_folder();
        let path = folder.path().join("outer/inner");
        PrivateDirectory::open_or_create(&path).unwrap();
        for created in [path.as_path(), path.parent().unwrap()] {
            assert_eq!(created.metadata().unwrap().mode() & 0o7777, 0o700);
        }
    }

    #[test]
    fn a_directory_that_others_can_enter_is_refused_and_left_as_it_is() {
        let folder = private_folder();
        for mode in [0o755, 0o750, 0o701, 0o1777] {
            set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
            assert!(refusal(folder.path()).contains(&format!("mode is {mode:04o}")));
            assert_eq!(folder.path().metadata().unwrap().mode() & 0o7777, mode);
        }
    }

    #[test]
    fn a_directory_under_one_that_others_can_write_is_refused_unless_that_is_sticky() {
        let folder = private_folder();
        let path = folder.path().join("private");
        PrivateDirectory::open_or_create(&path).unwrap();
        set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(refusal(&path).contains("other users may replace"));
        set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
        PrivateDirectory::open_or_create(&path).unwrap();
    }

    #[test]
    fn a_symbolic_link_is_not_followed() {
        let folder = private_folder();
        create_dir(folder.path().join("real")).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("real"), &link).unwrap();
        assert!(refusal(&link).contains("symbolic link"));
    }
}
