//! Jobs that end when a test says so, however slow the machine is.

use super::private_folder;
use std::fs::File;
use std::path::PathBuf;
use tempfile::TempDir;

/// The task `gate`. Its jobs wait before the gate, which is closed at first, and return their input.
#[derive(Debug)]
pub struct Gate {
    folder: TempDir,
    lock: File,
}

impl Gate {
    /// A closed one.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn closed() -> Gate {
        let folder = private_folder();
        let lock = File::create(folder.path().join("lock")).expect("our own folder");
        lock.lock().expect("nobody else has it");
        Gate { folder, lock }
    }

    /// A file, of which whoever wants to pass takes a shared lock.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("lock")
    }

    /// The task as `--exec-task` takes it. It may be run again.
    pub fn task(&self) -> String {
        format!("gate idempotent=true -- flock --shared --no-fork {} cat", self.path().display())
    }

    /// Lets all jobs through, those that wait and those that come.
    ///
    /// # Panics
    /// If the system refuses that.
    pub fn open(&self) {
        self.lock.unlock().expect("we have the lock");
    }
}
