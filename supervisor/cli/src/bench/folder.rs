//! A folder for what a measurement needs, among the files that are temporary.

use super::super::failure::Failure;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Folders that an earlier process of the same number may have left.
const FOLDERS_MAX: u32 = 100;

/// A folder that is removed with everything in it.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// A new one, for the owner only.
    ///
    /// # Errors
    /// There is no place for it.
    pub(super) fn new() -> Result<Folder, Failure> {
        let (folder, process) = (std::env::temp_dir(), std::process::id());
        let paths = (0..FOLDERS_MAX).map(|number| folder.join(format!("offload-bench-{process}-{number}")));
        let mut failure = None;
        for path in paths {
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Folder(path)),
                Err(error) => failure = Some(error),
            }
        }
        let error = failure.unwrap_or_else(|| io::ErrorKind::AlreadyExists.into());
        Err(Failure::writing(&folder.display().to_string(), &error))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If it cannot be removed, it is in the folder for what may be.
        let _ = fs::remove_dir_all(&self.0);
    }
}
