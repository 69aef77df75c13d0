//! Files for results: the one that the user names (`--output`), and one that saves a result whose destination failed.

use super::failure::Failure;
use super::output::print;
use super::text;
use crate::limits::{FILE_NAME_MAX, FILE_NAMES_MAX};
use offload_protocol::nouns::MediaType;
use offload_supervisor::Finished;
use rustix::fs::{Access, access};
use std::fs::{File, FileType, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file of `--output`. An existing file stays unchanged until there is a result, and is then replaced in one step.
/// Anything but a regular file (a device, a pipe) is opened and written to. `-` and the names of descriptors, such as `/dev/stdout`, mean
/// the stream that is open there, behind what has been written to it, also if that is a file.
#[derive(Debug)]
pub(crate) struct OutputFile {
    /// As the user named it.
    path: PathBuf,
    mode: WriteMode,
}

#[derive(Debug)]
enum WriteMode {
    StandardOutput,
    StandardError,
    /// Open whatever is at the path, and write to it.
    InPlace {
        file: File,
        is_regular: bool,
    },
    /// Write a new file beside the path, then rename it to the path.
    Replace {
        target: PathBuf,
        permissions: Option<Permissions>,
    },
}

impl OutputFile {
    /// Checks that a result could be written there now.
    pub(crate) fn open(path: &Path) -> Result<OutputFile, Failure> {
        let mode = find_mode(path).map_err(|error| Failure::NoPlace(cannot_write(path, &error)))?;
        Ok(OutputFile { path: path.to_owned(), mode })
    }

    /// Writes the whole result.
    pub(crate) fn write(self, bytes: &[u8]) -> Result<(), Failure> {
        let written = match self.mode {
            WriteMode::StandardOutput => return print(bytes),
            WriteMode::StandardError => io::stderr().lock().write_all(bytes),
            WriteMode::InPlace { file, is_regular } => write_in_place(file, is_regular, bytes),
            WriteMode::Replace { target, permissions } => replace(&target, permissions, bytes),
        };
        written.map_err(|error| Failure::Unwritten(cannot_write(&self.path, &error)))
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("cannot write to {}: {error}", text::printable(&path.to_string_lossy()))
}

/// The number of the descriptor that this path names. A link to such a path is one, too.
fn descriptor_at(path: &Path) -> Option<u32> {
    const FOLDERS: [&str; 2] = ["/dev/fd", "/proc/self/fd"];
    let followed = path.read_link().ok().filter(|_| !is_in(path, &FOLDERS));
    let path = followed.as_deref().unwrap_or(path);
    match path.to_str()? {
        "-" | "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        _ if is_in(path, &FOLDERS) => path.file_name()?.to_str()?.parse().ok(),
        _ => None,
    }
}

fn is_in(path: &Path, folders: &[&str]) -> bool {
    path.parent().is_some_and(|parent| folders.iter().any(|folder| parent == Path::new(folder)))
}

fn find_mode(path: &Path) -> io::Result<WriteMode> {
    match descriptor_at(path) {
        Some(1) => return Ok(WriteMode::StandardOutput),
        Some(2) => return Ok(WriteMode::StandardError),
        Some(_) => {
            let file = OpenOptions::new().append(true).open(path)?;
            return Ok(WriteMode::InPlace { file, is_regular: false });
        }
        None => {}
    }
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(metadata) if metadata.is_file() => {
            access(path, Access::WRITE_OK)?;
            // The name may be a link: then its target is replaced.
            let target = path.canonicalize()?;
            let permissions = Some(metadata.permissions());
            match probe(&target) {
                Ok(()) => Ok(WriteMode::Replace { target, permissions }),
                Err(_) => open_in_place(path, metadata.file_type()),
            }
        }
        Ok(metadata) => open_in_place(path, metadata.file_type()),
        // If a link leads nowhere, create its target instead of replacing the link.
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
            Ok(WriteMode::InPlace { file, is_regular: true })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            probe(path)?;
            Ok(WriteMode::Replace { target: path.to_owned(), permissions: None })
        }
        Err(error) => Err(error),
    }
}

fn open_in_place(path: &Path, kind: FileType) -> io::Result<WriteMode> {
    let file = OpenOptions::new().write(true).open(path)?;
    Ok(WriteMode::InPlace { file, is_regular: kind.is_file() })
}

/// Checks that a file can be created beside `target`: creates one and removes it. It is not kept, because it would be
/// left behind if this process is killed while it waits.
fn probe(target: &Path) -> io::Result<()> {
    let temporary = beside(target)?;
    OpenOptions::new().write(true).create_new(true).open(&temporary)?;
    std::fs::remove_file(&temporary)
}

fn beside(target: &Path) -> io::Result<PathBuf> {
    let name = target.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let ending = format!(".offload-{}", std::process::id());
    let mut temporary = std::ffi::OsString::from(".");
    // A name may be so long that no longer one can be.
    if 1 + name.len() + ending.len() <= FILE_NAME_MAX {
        temporary.push(name);
    }
    temporary.push(ending);
    Ok(target.with_file_name(temporary))
}

fn replace(target: &Path, permissions: Option<Permissions>, bytes: &[u8]) -> io::Result<()> {
    let temporary = beside(target)?;
    let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
    let done = permissions
        .map_or(Ok(()), |permissions| file.set_permissions(permissions))
        .and_then(|()| file.write_all(bytes))
        // Some file systems report only here that they are full.
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&temporary, target));
    if done.is_err() {
        let _ = std::fs::remove_file(&temporary); // the first error is the one to tell
    }
    done
}

fn write_in_place(mut file: File, is_regular: bool, bytes: &[u8]) -> io::Result<()> {
    if is_regular {
        file.set_len(0)?;
    }
    file.write_all(bytes)?;
    if is_regular { file.sync_all() } else { Ok(()) }
}

/// Saves an output whose destination failed in a new file: in the current folder, or else in the folder for temporary
/// files. Returns the path, or why it could not be saved.
pub(crate) fn save(finished: &Finished) -> io::Result<PathBuf> {
    let ending = match &finished.report.media_type {
        png if *png == MediaType::PNG => "png",
        json if json.is_json() => "json",
        text if text.is_text() => "txt",
        _ => "bin",
    };
    save_as(&finished.report.job, ending, &finished.output)
}

/// Saves results in a new file, as [`save`] does. The file is named after `job`, the id of a job, if there is one.
pub(crate) fn save_as(job: &str, ending: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let job = if job.is_empty() { "result" } else { job };
    let first = std::iter::once(format!("offload-{job}.{ending}"));
    let others = (2..=FILE_NAMES_MAX).map(|number| format!("offload-{job}-{number}.{ending}"));
    let names: Vec<String> = first.chain(others).collect();
    save_in(Path::new("."), &names, bytes).or_else(|_| save_in(&std::env::temp_dir(), &names, bytes))
}

/// Uses the first free name, so no existing file is overwritten.
fn save_in(folder: &Path, names: &[String], bytes: &[u8]) -> io::Result<PathBuf> {
    let mut saved = Err(io::ErrorKind::AlreadyExists.into());
    for name in names {
        saved = save_at(&folder.join(name), bytes);
        let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
        if !saved.as_ref().is_err_and(is_taken) {
            break;
        }
    }
    saved
}

fn save_at(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    match file.write_all(bytes).and_then(|()| file.sync_all()) {
        Ok(()) => Ok(path.to_owned()),
        Err(error) => {
            let _ = std::fs::remove_file(path); // a part of a result is none
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn entries(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_in_one_step_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        std::fs::write(&path, "before, and longer").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let file = OutputFile::open(&path).unwrap();
        assert_eq!(
            std::fs::read(&path).unwrap(),
            b"before, and longer",
            "not touched before there is a result"
        );
        assert_eq!(entries(folder.path()), ["out"], "nothing is left to find if this process ends now");
        file.write(b"after").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"after");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(entries(folder.path()), ["out"]);
    }

    #[test]
    fn a_file_may_have_the_longest_name_that_there_is() {
        let folder = tempfile::tempdir().unwrap();
        for length in [230, 240, FILE_NAME_MAX] {
            let path = folder.path().join("n".repeat(length));
            for content in ["new", "replaced"] {
                OutputFile::open(&path).unwrap().write(content.as_bytes()).unwrap();
                assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
            }
        }
        assert_eq!(entries(folder.path()).len(), 3);
    }

    #[test]
    fn names_of_descriptors_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        symlink("/dev/stdout", &link).unwrap();
        for (path, expected) in [
            ("-", Some(1)),
            ("/dev/stdout", Some(1)),
            ("/dev/fd/1", Some(1)),
            ("/proc/self/fd/2", Some(2)),
            ("/dev/stderr", Some(2)),
            ("/dev/fd/7", Some(7)),
            (link.to_str().unwrap(), Some(1)),
            ("./-", None),
            ("/dev/null", None),
            ("1", None),
        ] {
            assert_eq!(descriptor_at(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        symlink(&real, &link).unwrap();
        for content in ["first: the link leads nowhere yet", "second"] {
            OutputFile::open(&link).unwrap().write(content.as_bytes()).unwrap();
            assert!(link.is_symlink());
            assert_eq!(std::fs::read_to_string(&real).unwrap(), content);
        }
    }

    #[test]
    fn what_is_no_regular_file_is_written_to_and_not_replaced() {
        OutputFile::open(Path::new("/dev/null")).unwrap().write(b"x").unwrap();
        assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
        let full = OutputFile::open(Path::new("/dev/full")).unwrap().write(b"x");
        assert!(matches!(full, Err(Failure::Unwritten(why)) if why.contains("/dev/full")));
    }

    #[test]
    fn a_path_that_cannot_be_written_is_known_before_there_is_a_result() {
        for path in ["/nonexistent/out", "/", "/proc/version/out", ""] {
            assert!(matches!(OutputFile::open(Path::new(path)), Err(Failure::NoPlace(_))), "{path:?}");
        }
    }
}
