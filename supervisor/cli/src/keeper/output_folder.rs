//! The folder of `--output-dir`: a file for the output of each job that is ok.
//!
//! A file appears under its name when it is complete and on disk. It is written in the same folder under a name that only a
//! `map` gives ([`super::unfinished`]); what a killed one left of these is removed by the next one. All names are looked up in
//! the open folder, and none has a `/`, so no input leads out of it. What this command itself reads or writes is never
//! replaced ([`ProtectedFiles`]).

use super::protected::{FileIdentity, NotWritten, ProtectedFiles, refusal};
use super::unfinished::{RESERVED, UnfinishedNames, is_unfinished};
use super::{cannot_write, lock};
use crate::batch::Notes;
use crate::failure::Failure;
use crate::input::Unreadable;
use crate::limits::OUTPUT_NAME_MAX;
use offload_protocol::nouns::OutcomeCode;
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, create_dir_all};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

/// See the module's documentation.
pub(crate) struct OutputFolder {
    path: PathBuf,
    folder: File,
    protected: ProtectedFiles,
    unfinished: UnfinishedNames,
}

impl OutputFolder {
    /// Opens the folder, and makes it if it is not there. Until it is dropped, no other `map` writes to it.
    ///
    /// # Errors
    /// [`Failure::Usage`] if another one writes to it, [`Failure::NoPlace`] if it cannot be used.
    pub(crate) fn open(path: &Path) -> Result<OutputFolder, Failure> {
        let unusable = |error: io::Error| Failure::NoPlace(cannot_write(path, &error));
        if path.metadata().is_ok_and(|about| !about.is_dir()) {
            let why =
                format!("cannot write to {}: it is no folder; name one with --output-dir", path.display());
            return Err(Failure::NoPlace(why));
        }
        create_dir_all(path).map_err(unusable)?;
        let folder = File::open(path).map_err(unusable)?;
        if !lock(&folder).map_err(unusable)? {
            let why = format!("another map writes to {}: name another folder, or wait", path.display());
            return Err(Failure::Usage(why));
        }
        Ok(OutputFolder {
            path: path.to_owned(),
            folder,
            protected: ProtectedFiles::default(),
            unfinished: UnfinishedNames::new(),
        })
    }

    /// The same, in which no output takes the place of these files, and without what another `map` has left unfinished. So many
    /// outputs, if they come to that, have their index as name.
    ///
    /// # Errors
    /// [`Failure::Usage`] if one of these files has such a name, [`Failure::NoPlace`] if the folder cannot be used.
    pub(crate) fn protecting(self, protected: ProtectedFiles, indexes: u64) -> Result<OutputFolder, Failure> {
        let opened = OutputFolder { protected, ..self };
        let met = opened
            .remove_unfinished()
            .and_then(|()| opened.own_file_below(indexes))
            .map_err(|error| Failure::NoPlace(cannot_write(&opened.path, &error)))?;
        match met {
            None => Ok(opened),
            Some((name, what)) => Err(Failure::Usage(format!(
                "{} is {what} of this command, and the output of job {} would take its place: name another --output-dir",
                opened.path.join(&name).display(),
                name.display()
            ))),
        }
    }

    /// A file of this command whose name is an index below this one.
    fn own_file_below(&self, indexes: u64) -> io::Result<Option<(OsString, &'static str)>> {
        for entry in self.path.read_dir()? {
            let entry = entry?;
            let name = entry.file_name();
            let may_be_one = self.protected.has_inode(entry.ino()) && is_index_below(&name, indexes);
            if may_be_one && let Some(what) = self.identity(&name)?.and_then(|file| self.protected.own(file))
            {
                return Ok(Some((name, what)));
            }
        }
        Ok(None)
    }

    /// Protects the input of a job before it is read, and looks whether its output can have its place.
    ///
    /// # Errors
    /// Its output would take the place of a file of this command, or of a folder.
    pub(crate) fn admit(&self, notes: &Notes) -> Result<(), Unreadable> {
        let Some(name) = &notes.output_name else { return Ok(()) };
        let input = notes.file.as_ref().and_then(|file| file.metadata().ok());
        // A place that cannot be looked at cannot be written to either: that will be told.
        let target = self.metadata(name).ok().flatten();
        let identity = |metadata: &Metadata| FileIdentity::of(metadata);
        let admitted = self.protected.admit(input.as_ref().map(identity), target.as_ref().map(identity));
        // An input without a name is known by its digest alone, so its job runs before it fails: for `--retry-failed`.
        let is_folder = notes.file.is_some() && target.is_some_and(|target| target.is_dir());
        let free = admitted.and_then(|()| match is_folder {
            true => Err(refusal(&format!("the folder {}", self.path.join(name).display()))),
            false => Ok(()),
        });
        free.map_err(|message| Unreadable { code: OutcomeCode::BadRequest, message })
    }

    /// What has this name now. A link is itself.
    fn identity(&self, name: &OsStr) -> io::Result<Option<FileIdentity>> {
        Ok(self.metadata(name)?.map(|metadata| FileIdentity::of(&metadata)))
    }

    fn metadata(&self, name: &OsStr) -> io::Result<Option<Metadata>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.folder, name, flags, Mode::empty()) {
            Ok(file) => Ok(Some(File::from(file).metadata()?)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// As it was named.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the whole file of this name. When this returns, its content is on disk.
    pub(super) fn write(&self, index: u64, name: &OsStr, output: &[u8]) -> Result<(), NotWritten> {
        let unfinished = self.unfinished.name(index);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let opened = openat(&self.folder, &unfinished, flags, Mode::from_raw_mode(0o666));
        let mut file = File::from(opened.map_err(io::Error::from)?);
        let written = file
            .write_all(output)
            .and_then(|()| file.sync_all())
            .map_err(NotWritten::from)
            .and_then(|()| self.rename(&file, &unfinished, name));
        if written.is_err() {
            let _ = unlinkat(&self.folder, &unfinished, AtFlags::empty()); // the first error is the one to tell
        }
        written
    }

    /// The content is on disk by then, so whatever is wrong now is wrong with the name, unless it is known to concern all names.
    fn rename(&self, file: &File, unfinished: &str, name: &OsStr) -> Result<(), NotWritten> {
        let rename = || renameat(&self.folder, unfinished, &self.folder, name).map_err(io::Error::from);
        let replaced = self.identity(name).map_err(NotWritten::from);
        let renamed = replaced.and_then(|replaced| self.protected.replace(replaced, file, rename));
        renamed.map_err(|why| match why {
            NotWritten::Io(error) if !concerns_all_names(&error) => NotWritten::Name(error),
            other => other,
        })
    }

    /// When this returns, the names of all files are on disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.folder.sync_all()
    }

    fn remove_unfinished(&self) -> io::Result<()> {
        for entry in self.path.read_dir()? {
            let name = entry?.file_name();
            let is_removable =
                |file: Metadata| file.is_file() && self.protected.own(FileIdentity::of(&file)).is_none();
            if is_unfinished(&name) && self.metadata(&name)?.is_some_and(is_removable) {
                unlinkat(&self.folder, &name, AtFlags::empty())?;
            }
        }
        Ok(())
    }
}

/// Gives each job the name of its file: that of its input, without folders, or the number of the job. The second input of a
/// name has its number in front: `17-photo.jpg`. The names depend on the list alone, and not on the order in which jobs end.
#[derive(Debug, Default)]
pub(crate) struct OutputNames {
    /// The first half of the digest of each name. Two names of one digest are told apart like two that are equal.
    taken: HashSet<u64>,
}

impl OutputNames {
    /// The name for the output of this job, whose input is the file at this path, if it is one.
    pub(crate) fn name(&mut self, index: u64, path: Option<&Path>) -> OsString {
        let Some(path) = path else { return index.to_string().into() };
        let mut name =
            path.file_name().filter(|name| is_usable(name)).map_or(index.to_string().into(), OsStr::to_owned);
        while !self.taken.insert(half_digest(&name)) {
            let mut longer = OsString::from(format!("{index}-"));
            longer.push(&name);
            name = longer;
        }
        name
    }
}

/// Whether no other output would have a place either: the folder is gone, its disk is full or broken, or this process has no
/// more room.
fn concerns_all_names(error: &io::Error) -> bool {
    let all = [
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::IO,
        Errno::ROFS,
        Errno::NOENT,
        Errno::STALE,
        Errno::NODEV,
        Errno::NXIO,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
    ];
    Errno::from_io_error(error).is_none_or(|error| all.contains(&error))
}

fn is_index_below(name: &OsStr, indexes: u64) -> bool {
    let index = name.to_str().and_then(|name| name.parse::<u64>().ok());
    index.is_some_and(|index| index < indexes && *index.to_string() == *name)
}

fn is_usable(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    bytes.len() <= OUTPUT_NAME_MAX && !bytes.contains(&0) && !bytes.starts_with(RESERVED.as_bytes())
}

/// The first 64 bits of its SHA-256.
pub(super) fn half_digest(name: &OsStr) -> u64 {
    Sha256::digest(name.as_bytes()).iter().take(8).fold(0, |half, byte| (half << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::super::super::failure::USAGE;
    use super::*;

    fn names(paths: &[&str]) -> Vec<String> {
        let mut names = OutputNames::default();
        let name = |(index, path): (usize, &&str)| {
            names.name(index as u64, Some(Path::new(path))).into_string().unwrap()
        };
        paths.iter().enumerate().map(name).collect()
    }

    #[test]
    fn a_file_has_the_name_of_its_input_and_the_second_one_its_number_before_it() {
        assert_eq!(names(&["a/x", "b/x", "./y", "x"]), ["x", "1-x", "y", "3-x"]);
        assert_eq!(names(&["1-x", "a/x", "b/x"]), ["1-x", "x", "2-x"]);
        assert_eq!(names(&["2-x", "a/x", "b/x"]), ["2-x", "x", "2-2-x"]);
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        let long = "x".repeat(OUTPUT_NAME_MAX + 1);
        let odd = ["..", "/", "", "a/..", "/etc/passwd", "../../up", ".", ".offload-3", &long, "a\0b"];
        assert_eq!(names(&odd), ["0", "1", "2", "3", "passwd", "up", "6", "7", "8", "9"]);
        assert_eq!(OutputNames::default().name(7, None), "7");
    }

    #[test]
    fn a_link_of_that_name_is_replaced_and_not_followed() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let victim = outside.path().join("victim");
        std::fs::write(&victim, "whole").unwrap();
        std::os::unix::fs::symlink(&victim, folder.path().join("x")).unwrap();
        OutputFolder::open(folder.path()).unwrap().write(0, OsStr::new("x"), b"output").unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "whole");
        assert_eq!(std::fs::read_to_string(folder.path().join("x")).unwrap(), "output");
    }

    #[test]
    fn a_name_that_no_file_can_have_is_told_apart_from_a_folder_that_takes_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("out");
        let folder = OutputFolder::open(&path).unwrap();
        std::fs::create_dir(path.join("taken")).unwrap();
        for name in ["taken", &"x".repeat(300)] {
            let written = folder.write(0, OsStr::new(name), b"output");
            assert!(matches!(written, Err(NotWritten::Name(_))), "{name}: {written:?}");
        }
        let left: Vec<_> = path.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["taken"], "nothing is left unfinished");
        std::fs::remove_dir_all(&path).unwrap();
        assert!(matches!(folder.write(0, OsStr::new("fine"), b"output"), Err(NotWritten::Io(_))));
        for error in [Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::ROFS] {
            assert!(concerns_all_names(&error.into()), "{error}");
        }
        for error in [Errno::ISDIR, Errno::NOTDIR, Errno::NAMETOOLONG, Errno::LOOP, Errno::EXIST, Errno::PERM]
        {
            assert!(!concerns_all_names(&error.into()), "{error}");
        }
    }

    #[test]
    fn a_name_is_an_index_only_as_outputs_have_it() {
        for (name, is_one) in [("3", true), ("4", false), ("03", false), ("+3", false), ("3.results", false)]
        {
            assert_eq!(is_index_below(OsStr::new(name), 4), is_one, "{name}");
        }
        assert!(!is_index_below(OsStr::new("0"), 0));
    }

    #[test]
    fn what_was_left_unfinished_is_removed_and_two_do_not_write_to_one_folder() {
        let folder = tempfile::tempdir().unwrap();
        let [torn, log, taken] = [5, 6, 7].map(|index| UnfinishedNames::new().name(index));
        for name in ["other", ".offload-5", ".offload-log", &torn, &log] {
            std::fs::write(folder.path().join(name), "content").unwrap();
        }
        std::fs::create_dir(folder.path().join(&taken)).unwrap();
        let mut own = ProtectedFiles::default();
        own.protect("the job log", folder.path().join(&log).metadata());
        let opened = OutputFolder::open(folder.path()).unwrap().protecting(own, 0).unwrap();
        let entries = folder.path().read_dir().unwrap();
        let mut left: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".offload-5", ".offload-log", &log, &taken, "other"]);
        let second = OutputFolder::open(folder.path()).err().unwrap();
        assert!(second.exit_code() == USAGE && second.message().unwrap().contains("another map writes to"));
        drop(opened);
        OutputFolder::open(folder.path()).unwrap();
    }
}
