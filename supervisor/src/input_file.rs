//! A file that is the input of a job. It is open from the moment when a program or a client gives it until the job has ended.
//! Nobody here reads it: its descriptor is passed on to the worker.
//!
//! ```text
//!   program ---- Job::file ---------.                           .--> worker: reads it
//!                                   |--> InputFile, with its job -'
//!   client --- a place is free -----'        '--- dropped ---> the closing thread: close, and the place is free again
//!        '---- none is: the kernel discards the descriptor
//! ```
//!
//! The file system of such a file may not answer. So what is asked of it is only what the kernel knows by itself, and files are
//! closed on a thread of their own: closing makes some file systems ask their server. While that thread hangs, the descriptors
//! that it should close keep their places, so there are never more than [`FilePlaces`] allow.

use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags, fcntl_getfl, statx};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};

/// See the module's documentation.
#[derive(Debug)]
pub struct InputFile {
    /// Present until it is dropped.
    file: Option<OwnedFd>,
    bytes: u64,
    place: Option<FilePlace>,
}

/// How many files of clients may be open at a time, over all connections. Clones count together.
#[derive(Clone, Debug)]
pub struct FilePlaces {
    most: usize,
    taken: Arc<AtomicUsize>,
}

/// The place of one file.
#[derive(Debug)]
pub(crate) struct FilePlace(Arc<AtomicUsize>);

impl FilePlaces {
    /// So many places.
    pub fn new(most: usize) -> FilePlaces {
        FilePlaces { most, taken: Arc::default() }
    }

    /// How many files have a place now.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
    }

    /// Takes a place. `None` if none is free. Only the event loop takes places, so none is lost between the two steps.
    pub(crate) fn take(&self) -> Option<FilePlace> {
        if self.taken() >= self.most {
            return None;
        }
        self.taken.fetch_add(1, Ordering::AcqRel);
        Some(FilePlace(Arc::clone(&self.taken)))
    }
}

impl Drop for FilePlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl InputFile {
    /// A file of this program.
    ///
    /// # Errors
    /// It is not a regular file that can be read.
    pub(crate) fn new(file: File) -> io::Result<InputFile> {
        InputFile::of(file.into(), None)
    }

    /// A descriptor that a client has sent, and its place.
    ///
    /// # Errors
    /// As for [`InputFile::new`].
    pub(crate) fn of(file: OwnedFd, place: impl Into<Option<FilePlace>>) -> io::Result<InputFile> {
        // From here on it is closed on the thread, also if it is of no use.
        let mut input = InputFile { file: Some(file), bytes: 0, place: place.into() };
        input.bytes = readable_length(input.as_fd())?;
        Ok(input)
    }

    /// Its length when it was given, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The length of a regular file that can be read, as the kernel knows it without asking anybody.
fn readable_length(file: BorrowedFd<'_>) -> io::Result<u64> {
    let flags = fcntl_getfl(file)?;
    let access = flags & OFlags::RWMODE;
    if flags.contains(OFlags::PATH) || (access != OFlags::RDONLY && access != OFlags::RDWR) {
        return Err(io::Error::other("it cannot be read"));
    }
    let about =
        statx(file, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE | StatxFlags::SIZE)?;
    match FileType::from_raw_mode(about.stx_mode.into()) {
        FileType::RegularFile => Ok(about.stx_size),
        _ => Err(io::Error::other("it is no regular file")),
    }
}

impl AsFd for InputFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_ref().expect("it is there until it is dropped").as_fd()
    }
}

/// Two of them are the same if they are one.
impl PartialEq for InputFile {
    fn eq(&self, other: &InputFile) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for InputFile {}

impl Drop for InputFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            close(ToClose { file, _place: self.place.take() });
        }
    }
}

/// A descriptor to close, and the place that is free afterwards: fields are dropped in their order.
struct ToClose {
    file: OwnedFd,
    _place: Option<FilePlace>,
}

impl fmt::Debug for ToClose {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("ToClose").field(&self.file).finish()
    }
}

/// Has the closing thread close a file. If there can be no such thread, it is closed here. The queue of the thread is as long
/// as there are places and jobs with files.
fn close(file: ToClose) {
    static CLOSER: OnceLock<Option<Sender<ToClose>>> = OnceLock::new();
    if let Some(closer) = CLOSER.get_or_init(start_closer) {
        // The thread never ends. Should it, what is sent comes back and is closed here.
        let _ = closer.send(file);
    }
}

fn start_closer() -> Option<Sender<ToClose>> {
    let (closer, files) = mpsc::channel();
    let run = move || files.into_iter().for_each(drop::<ToClose>);
    std::thread::Builder::new().name("offload-close".to_owned()).spawn(run).ok()?;
    Some(closer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, open};
    use std::time::{Duration, Instant};

    #[test]
    fn only_a_regular_file_that_can_be_read_is_an_input() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        let opened = |path: &std::path::Path, flags| open(path, flags, Mode::empty()).unwrap();
        let input = InputFile::of(opened(&path, OFlags::RDONLY), None).unwrap();
        assert_eq!((input.bytes(), input == input), (5, true));
        assert_eq!(InputFile::of(opened(&path, OFlags::RDWR), None).unwrap().bytes(), 5);
        for (file, why) in [
            (opened(&path, OFlags::WRONLY), "it cannot be read"),
            (opened(&path, OFlags::PATH), "it cannot be read"),
            (opened(folder.path(), OFlags::RDONLY), "it is no regular file"),
            (opened("/dev/null".as_ref(), OFlags::RDONLY), "it is no regular file"),
            (std::io::pipe().unwrap().0.into(), "it is no regular file"),
        ] {
            assert_eq!(InputFile::of(file, None).unwrap_err().to_string(), why);
        }
    }

    #[test]
    fn a_place_is_free_again_when_the_file_is_closed_and_no_sooner() {
        let places = FilePlaces::new(1);
        let (mut reader, writer) = std::io::pipe().unwrap();
        let place = places.take().unwrap();
        assert!(places.take().is_none());
        assert!(InputFile::of(writer.into(), place).is_err(), "also one that is of no use has its place");
        assert_eq!(std::io::Read::read(&mut reader, &mut [0]).unwrap(), 0, "it is closed");
        let deadline = Instant::now() + Duration::from_secs(10);
        while places.taken() > 0 {
            assert!(Instant::now() < deadline, "the place is not free");
            std::thread::yield_now();
        }
        assert!(places.take().is_some());
    }
}
