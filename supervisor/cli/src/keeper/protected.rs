//! The files that this command itself reads and writes: no output takes the place of one of them, and none is two of them.
//!
//! ```text
//!   known from the start    list, job log, its results, standard output and error, configuration file
//!   met on the way          each input, before it is read
//!   replacements            outputs that took the place of a file which was there: a later input must not be one
//! ```
//!
//! A file is known by its device and inode. So it does not matter by which name an output would meet it.

use crate::failure::Failure;
use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file, whatever its names are.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    pub(super) fn of(metadata: &Metadata) -> FileIdentity {
        FileIdentity { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct ProtectedFiles {
    /// With what they are for people.
    own: Vec<(FileIdentity, &'static str)>,
    met: Mutex<MetFiles>,
}

#[derive(Debug, Default)]
struct MetFiles {
    inputs: HashSet<FileIdentity>,
    replacements: HashSet<FileIdentity>,
}

/// Why an output has no file.
#[derive(Debug)]
pub(super) enum NotWritten {
    /// There is a file of this command in its place: this one.
    Protected(&'static str),
    /// No file can have this name, such as that of a folder.
    Name(io::Error),
    /// The folder or its disk takes nothing.
    Io(io::Error),
}

impl From<io::Error> for NotWritten {
    fn from(error: io::Error) -> NotWritten {
        NotWritten::Io(error)
    }
}

impl ProtectedFiles {
    /// What this process writes to from its start.
    pub(crate) fn of_this_process() -> ProtectedFiles {
        let mut own = ProtectedFiles::default();
        own.protect("standard output", metadata_of(&io::stdout()));
        own.protect("standard error", metadata_of(&io::stderr()));
        own
    }

    /// Adds a file. One that cannot be looked at is none.
    pub(crate) fn protect(&mut self, what: &'static str, metadata: io::Result<Metadata>) {
        self.own.extend(metadata.ok().map(|metadata| (FileIdentity::of(&metadata), what)));
    }

    /// The same for a file that is written besides these, or read while they are written: it has to be another one.
    ///
    /// # Errors
    /// [`Failure::Usage`] if it is one of them.
    pub(crate) fn protect_distinct(
        &mut self,
        what: &'static str,
        name: &str,
        metadata: io::Result<Metadata>,
    ) -> Result<(), Failure> {
        self.expect_distinct(what, name, &metadata)?;
        self.protect(what, metadata);
        Ok(())
    }

    /// Looks whether this is one of these files. Devices and pipes may have several uses.
    ///
    /// # Errors
    /// [`Failure::Usage`] if so.
    pub(super) fn expect_distinct(
        &self,
        what: &'static str,
        name: &str,
        metadata: &io::Result<Metadata>,
    ) -> Result<(), Failure> {
        let file = metadata.as_ref().ok().filter(|metadata| metadata.is_file()).map(FileIdentity::of);
        match file.and_then(|file| self.own(file)) {
            None => Ok(()),
            Some(own) => Err(Failure::Usage(format!(
                "{name} is {own} of this command, and cannot be {what} as well: name another file"
            ))),
        }
    }

    /// Which of the files that are known from the start this is.
    pub(super) fn own(&self, file: FileIdentity) -> Option<&'static str> {
        self.own.iter().find(|(own, _)| *own == file).map(|(_, what)| *what)
    }

    /// Whether one of these files may have this inode.
    pub(super) fn has_inode(&self, inode: u64) -> bool {
        self.own.iter().any(|(own, _)| own.inode == inode)
    }

    /// Protects an input from now on. `target` is what is in the place of its output.
    ///
    /// # Errors
    /// A sentence, if that is a file of this command, or if the input is no longer what was listed.
    pub(super) fn admit(
        &self,
        input: Option<FileIdentity>,
        target: Option<FileIdentity>,
    ) -> Result<(), String> {
        let mut met = self.met();
        if input.is_some_and(|input| met.replacements.contains(&input)) {
            return Err(
                "the output of an earlier input has taken its place: name another --output-dir".to_owned()
            );
        }
        met.inputs.extend(input);
        match target.and_then(|target| self.what_is(target, &met)) {
            Some(_) if target == input => Err(refusal("the file itself")),
            Some(what) => Err(refusal(what)),
            None => Ok(()),
        }
    }

    /// Renames an output to its name, where `replaced` is now, if anything is there.
    pub(super) fn replace(
        &self,
        replaced: Option<FileIdentity>,
        output: &File,
        rename: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), NotWritten> {
        // No input is met between the look and the rename.
        let mut met = self.met();
        if let Some(replaced) = replaced {
            if let Some(what) = self.what_is(replaced, &met) {
                return Err(NotWritten::Protected(what));
            }
            met.replacements.insert(FileIdentity::of(&output.metadata()?));
        }
        Ok(rename()?)
    }

    fn what_is(&self, file: FileIdentity, met: &MetFiles) -> Option<&'static str> {
        self.own(file).or_else(|| met.inputs.contains(&file).then_some("an input"))
    }

    fn met(&self) -> MutexGuard<'_, MetFiles> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why the job of an output has failed.
pub(super) fn refusal(what: &str) -> String {
    format!("its output would take the place of {what}: name another --output-dir")
}

/// What is known of an open file.
pub(crate) fn metadata_of(open: &impl AsFd) -> io::Result<Metadata> {
    File::from(open.as_fd().try_clone_to_owned()?).metadata()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{hard_link, write};

    fn identity(path: &std::path::Path) -> FileIdentity {
        FileIdentity::of(&path.metadata().unwrap())
    }

    #[test]
    fn a_file_is_protected_under_each_of_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let [log, link, other] = ["log", "link", "other"].map(|name| folder.path().join(name));
        write(&log, "").unwrap();
        write(&other, "").unwrap();
        hard_link(&log, &link).unwrap();
        let mut files = ProtectedFiles::default();
        files.protect("the job log", log.metadata());
        files.protect("nothing", folder.path().join("missing").metadata());
        assert_eq!(files.own(identity(&link)), Some("the job log"));
        assert_eq!(files.own(identity(&other)), None);
        let refused = files.admit(None, Some(identity(&link))).unwrap_err();
        assert_eq!(refused, refusal("the job log"));
        let output = File::open(&other).unwrap();
        let replaced = files.replace(Some(identity(&link)), &output, || panic!("it is renamed"));
        assert!(matches!(replaced, Err(NotWritten::Protected("the job log"))));
    }

    #[test]
    fn an_input_that_was_met_is_not_replaced_and_one_that_was_replaced_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second, old] = ["first", "second", "old"].map(|name| folder.path().join(name));
        [&first, &second, &old].into_iter().for_each(|path| write(path, "").unwrap());
        let files = ProtectedFiles::default();
        files.admit(Some(identity(&first)), None).unwrap();
        let refused = files.admit(Some(identity(&second)), Some(identity(&first))).unwrap_err();
        assert_eq!(refused, refusal("an input"));
        let itself = files.admit(Some(identity(&second)), Some(identity(&second))).unwrap_err();
        assert_eq!(itself, refusal("the file itself"));
        let output = File::create(folder.path().join("output")).unwrap();
        files.replace(Some(identity(&old)), &output, || Ok(())).unwrap();
        let taken = FileIdentity::of(&output.metadata().unwrap());
        assert!(files.admit(Some(taken), None).unwrap_err().contains("has taken its place"));
    }
}
