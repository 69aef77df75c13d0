//! Files with a secret, which nobody but this user can have read or written.

use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::process::geteuid;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

/// Whether the last part of a path may be a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// It may: what counts is the file that it leads to. Programs that renew certificates exchange links.
    Followed,
    /// It may not.
    Refused,
}

/// Opens a file without waiting for anything, such as a pipe that nobody writes to.
///
/// # Errors
/// A sentence: what the system says, or it is no regular file.
pub(super) fn open_regular(path: &Path, links: Links) -> Result<File, String> {
    let no_links = if links == Links::Refused { OFlags::NOFOLLOW } else { OFlags::empty() };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | no_links;
    let file =
        File::from(open(path, flags, Mode::empty()).map_err(|error| io::Error::from(error).to_string())?);
    match file.metadata() {
        Ok(about) if about.is_file() => Ok(file),
        _ => Err("it is no regular file".to_owned()),
    }
}

/// Reads at most `most` bytes of a file that belongs to this user alone.
///
/// # Errors
/// A sentence: it cannot be read, it is longer, or others have access to it.
pub(super) fn read_private(path: &Path, most: u64, links: Links) -> Result<Vec<u8>, String> {
    let file = open_regular(path, links)?;
    let about = fstat(file.as_fd()).map_err(|error| io::Error::from(error).to_string())?;
    if about.st_mode & 0o077 != 0 || about.st_uid != geteuid().as_raw() {
        return Err("it must be yours alone: `chmod 600` it".to_owned());
    }
    read_at_most(file, most)
}

/// # Errors
/// A sentence: it cannot be read, or it is longer.
pub(super) fn read_at_most(file: File, most: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    match bytes.len() as u64 > most {
        true => Err(format!("it is longer than {most} bytes")),
        false => Ok(bytes),
    }
}
