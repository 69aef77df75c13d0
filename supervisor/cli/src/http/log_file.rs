//! The file of the access log. It is opened before it is known whether all else is right, and what was made for nothing is removed again:
//!
//! ```text
//!   open ---> it was there ---------------------> it stays, whatever comes of it
//!        '--> it was made ----> it is used -----> it stays
//!                         '---> it is not used, because the start or the reload was refused: it is removed, if it is still empty
//! ```

use rustix::fs::{Mode, OFlags, open};
use std::fs::{Metadata, remove_file};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A log file that was opened.
pub(super) struct LogFile {
    pub(super) file: OwnedFd,
    /// Present if it was not there before.
    pub(super) made: Option<MadeFile>,
}

/// A file that was made, and is removed again unless it is used. See the module's documentation.
pub(super) struct MadeFile {
    path: PathBuf,
    made: Metadata,
    is_used: bool,
}

impl LogFile {
    /// Opens a log file for its owner alone, to be continued. Anything that would have to be waited for, such as a pipe that nobody
    /// reads, is refused.
    pub(super) fn open(path: &Path) -> Result<LogFile, String> {
        let was_there = path.exists();
        let file = open_with(path, OFlags::CREATE)?;
        let made = if was_there { None } else { MadeFile::at(path) };
        Ok(LogFile { file, made })
    }

    /// Whether a file that is there could be continued as a log.
    pub(super) fn try_open(path: &Path) -> Result<(), String> {
        open_with(path, OFlags::empty()).map(drop)
    }
}

fn open_with(path: &Path, more: OFlags) -> Result<OwnedFd, String> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | more;
    let told = |error| format!("cannot open the access log {}: {}", path.display(), io::Error::from(error));
    open(path, flags, Mode::RUSR | Mode::WUSR).map_err(told)
}

impl MadeFile {
    /// None if it is gone already.
    fn at(path: &Path) -> Option<MadeFile> {
        // Not a link that has led to it.
        let path = path.canonicalize().ok()?;
        let made = path.symlink_metadata().ok()?;
        Some(MadeFile { path, made, is_used: false })
    }

    /// From now on it stays.
    pub(super) fn stays(mut self) {
        self.is_used = true;
    }

    fn is_still_empty(&self) -> bool {
        let is_it =
            |now: Metadata| (now.dev(), now.ino(), now.len()) == (self.made.dev(), self.made.ino(), 0);
        self.path.symlink_metadata().is_ok_and(is_it)
    }
}

impl Drop for MadeFile {
    fn drop(&mut self) {
        if !self.is_used && self.is_still_empty() {
            // Nobody misses it if somebody else was faster.
            let _ = remove_file(&self.path);
        }
    }
}
