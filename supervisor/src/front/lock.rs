//! One supervisor for each socket: who holds the lock on `<socket>.lock` owns the socket beside it.
//!
//! The lock is one of `flock`: it ends with its holder, however that dies, and programs that the holder starts do
//! not inherit it because the descriptor is closed when they begin. The file itself stays for ever. Were it removed,
//! one supervisor could lock the removed file and another a new one, and both would own the socket; where somebody else
//! removes it, that is [noticed](super::standing).
//!
//! In the file, each line of a fixed length:
//!
//! ```text
//!   4711                                   the holder's process id, with blanks up to ten places
//!   6b1f...                                a generation: 32 digits by which processes are found that outlived a holder
//!   ...                                    up to GENERATIONS_KEPT of them, the oldest first
//! ```
//!
//! What is known of those before is never lost by a start that fails, or is killed, at whatever point. It is written
//! again together with whatever is added, in one piece and from the beginning; what is longer is cut afterwards, and
//! until then its lines stand where they did.

use super::directory::PrivateDirectory;
use super::standing::{Identity, identity_of};
use crate::limits::GENERATIONS_KEPT;
use rustix::fs::{FlockOperation, flock, fstat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Places of a process id, of which the largest has seven digits.
const PID_PLACES: usize = 10;
/// Digits of a generation.
const GENERATION_DIGITS: usize = 32;
/// Longest content of a lock file that is looked at, in bytes.
const CONTENT_MAX: usize = PID_PLACES + 1 + 2 * GENERATIONS_KEPT * (GENERATION_DIGITS + 1);

/// Held as long as it exists.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    /// Those whose processes may live, the oldest first.
    generations: Vec<String>,
}

/// What came of asking for the lock.
#[derive(Debug)]
pub(super) enum Asked {
    Got(Lock),
    /// Another process has it; its id, unless it has not written it yet.
    Taken {
        pid: Option<u32>,
    },
}

impl Lock {
    /// Asks for the lock on the file `name`, and writes our process id into it.
    pub(super) fn ask(directory: &PrivateDirectory, name: &Path) -> io::Result<Asked> {
        let file = directory.open_file(name)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let generations = generations_in(&content_of(&file));
                let lock = Lock { file, generations };
                lock.write()?;
                Ok(Asked::Got(lock))
            }
            Err(Errno::WOULDBLOCK) => Ok(Asked::Taken { pid: pid_in(&file) }),
            Err(error) => Err(error.into()),
        }
    }

    /// By what names the processes of those holders can be found that have left some behind.
    pub(super) fn generations(&self) -> &[String] {
        &self.generations
    }

    /// Adds a name, or lets those go of which nothing is left.
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

    /// By what the file of the lock is known again.
    pub(super) fn identity(&self) -> io::Result<Identity> {
        Ok(identity_of(&fstat(&self.file)?))
    }

    /// A number that no other file of this directory has while the lock is held.
    pub(super) fn inode(&self) -> io::Result<u64> {
        Ok(fstat(&self.file)?.st_ino)
    }
}

fn pid_in(file: &File) -> Option<u32> {
    content_of(file).lines().next()?.trim_end().parse().ok()
}

/// Each once. What is no name of a generation was not written by this program.
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

/// Empty if it cannot be read: then nothing is known of the holder.
fn content_of(file: &File) -> String {
    let mut content = vec![0; CONTENT_MAX];
    let length = file.read_at(&mut content, 0).unwrap_or(0);
    content.truncate(length);
    String::from_utf8(content).unwrap_or_default()
}
