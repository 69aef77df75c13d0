//! One supervisor for each socket: the process that holds the lock on `<socket>.lock` owns the socket beside it.
//!
//! The lock is a `flock` lock. It ends with its holder, however the holder dies, and programs that the holder starts
//! do not inherit it, because the descriptor is closed on exec. The file itself is never removed. If it were, one
//! supervisor could lock the removed file and another supervisor a new one, and both would own the socket. If somebody
//! else removes the file, this supervisor [notices](super::socket_state).
//!
//! The file has lines of fixed lengths:
//!
//! ```text
//!   4711                                   the holder's process id, padded with blanks to ten characters
//!   6b1f...                                a generation: 32 digits by which processes are found that outlived a holder
//!   ...                                    up to GENERATIONS_KEPT generations, the oldest first
//! ```
//!
//! A start that fails or is killed at any point never loses the generations of earlier holders: the whole content, old
//! and new, is written in one call from the beginning of the file, and an excess at the end is cut off afterwards.
//! Until then the old lines are where they were.

use super::directory::PrivateDirectory;
use super::socket_state::{Identity, identity_of};
use crate::limits::GENERATIONS_KEPT;
use rustix::fs::{FlockOperation, flock, fstat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Characters for a process id. The largest process id has seven digits.
const PID_PLACES: usize = 10;
/// Digits of a generation.
const GENERATION_DIGITS: usize = 32;
/// The longest content of a lock file that is read, in bytes.
const CONTENT_MAX: usize = PID_PLACES + 1 + 2 * GENERATIONS_KEPT * (GENERATION_DIGITS + 1);

/// A lock that is held. Dropping it releases the lock.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    /// Generations of which processes may be alive, the oldest first.
    generations: Vec<String>,
}

/// The answer to a request for the lock.
#[derive(Debug)]
pub(super) enum LockAnswer {
    Got(Lock),
    /// Another process holds the lock. Its process id is missing if it has not written it yet.
    Taken {
        pid: Option<u32>,
    },
}

impl Lock {
    /// Requests the lock on the file `name`. If the lock is free, writes our process id into the file.
    pub(super) fn try_take(directory: &PrivateDirectory, name: &Path) -> io::Result<LockAnswer> {
        let file = directory.open_file(name)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let generations = generations_in(&content_of(&file));
                let lock = Lock { file, generations };
                lock.write()?;
                Ok(LockAnswer::Got(lock))
            }
            Err(Errno::WOULDBLOCK) => Ok(LockAnswer::Taken { pid: pid_in(&file) }),
            Err(error) => Err(error.into()),
        }
    }

    /// Generations of holders that may have left processes behind.
    pub(super) fn generations(&self) -> &[String] {
        &self.generations
    }

    /// Replaces the generations: adds a new one, or removes those of which no process is left.
    pub(super) fn set_generations(&mut self, generations: Vec<String>) -> io::Result<()> {
        let too_many = generations.len().saturating_sub(GENERATIONS_KEPT);
        self.generations = generations.into_iter().skip(too_many).collect();
        self.write()
    }

    fn write(&self) -> io::Result<()> {
        let mut content = format!("{:<PID_PLACES$}\n", std::process::id());
        for generation in &self.generations {
            content.push_str(generation);
            content.push('\n');
        }
        self.file.write_all_at(content.as_bytes(), 0)?;
        self.file.set_len(content.len() as u64)
    }

    /// The device and inode of the lock file, by which it can be recognized.
    pub(super) fn identity(&self) -> io::Result<Identity> {
        Ok(identity_of(&fstat(&self.file)?))
    }

    /// The inode of the lock file. No other file of this directory has it while the lock is held.
    pub(super) fn inode(&self) -> io::Result<u64> {
        Ok(fstat(&self.file)?.st_ino)
    }
}

fn pid_in(file: &File) -> Option<u32> {
    content_of(file).lines().next()?.trim_end().parse().ok()
}

/// The generations in the file, each once. A line that is not the name of a generation was not written by this program
/// and is skipped.
fn generations_in(content: &str) -> Vec<String> {
    let is_one =
        |line: &&str| line.len() == GENERATION_DIGITS && line.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut generations: Vec<String> = Vec::new();
    for line in content.lines().skip(1).filter(is_one) {
        if !generations.iter().any(|known| known == line) {
            generations.push(line.to_owned());
        }
    }
    generations
}

/// The content of the file. Empty if it cannot be read: then nothing is known of the holder.
fn content_of(file: &File) -> String {
    let mut content = vec![0; CONTENT_MAX];
    let length = file.read_at(&mut content, 0).unwrap_or(0);
    content.truncate(length);
    String::from_utf8(content).unwrap_or_default()
}
