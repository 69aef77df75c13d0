//! One supervisor for each socket: who holds the lock on `<socket>.lock` owns the socket beside it.
//!
//! The lock is one of `flock`: it ends with its holder, however that dies, and programs that the holder starts do
//! not inherit it because the descriptor is closed when they begin. The file itself stays for ever. Were it removed,
//! one supervisor could lock the removed file and another a new one, and both would own the socket.

use super::directory::PrivateDirectory;
use rustix::fs::{FlockOperation, flock, fstat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;

/// Longest content of a lock file that is looked at, in bytes: a process id and a generation, a line each.
const CONTENT_MAX: u64 = 128;

/// Held as long as it exists.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    /// Of the holder before.
    previous_generation: Option<String>,
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
        let mut file = directory.open_file(name)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let previous_generation = content_of(&file).lines().nth(1).map(str::to_owned);
                file.set_len(0)?;
                file.rewind()?;
                writeln!(file, "{}", std::process::id())?;
                Ok(Asked::Got(Lock { file, previous_generation }))
            }
            Err(Errno::WOULDBLOCK) => Ok(Asked::Taken { pid: pid_in(&file) }),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes down by what name the processes of this holder can be found if it dies, and returns that of the holder
    /// before.
    pub(super) fn set_generation(&mut self, generation: &str) -> io::Result<Option<String>> {
        writeln!(self.file, "{generation}")?;
        Ok(self.previous_generation.take())
    }

    /// A number that no other file of this directory has while the lock is held.
    pub(super) fn inode(&self) -> io::Result<u64> {
        Ok(fstat(&self.file)?.st_ino)
    }
}

fn pid_in(file: &File) -> Option<u32> {
    content_of(file).lines().next()?.trim_end().parse().ok()
}

/// Empty if it cannot be read: then nothing is known of the holder.
fn content_of(file: &File) -> String {
    let mut content = String::new();
    match file.take(CONTENT_MAX).read_to_string(&mut content) {
        Ok(_) => content,
        Err(_) => String::new(),
    }
}
