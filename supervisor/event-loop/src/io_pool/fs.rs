//! Reads files and their metadata. Files are read in parts, so that other tasks can run between two parts of a long one.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::{FsWord, OFlags, PROC_SUPER_MAGIC, fstatfs};

use super::{IoError, IoFuture, IoHandle, TaskId};
use crate::Context;
use crate::one_shot::OneShot;

/// Reading.
impl IoHandle {
    /// Reads a whole regular file of at most `max_bytes`, in parts of
    /// [`part_bytes`](super::IoPoolConfig::part_bytes).
    ///
    /// `done` gets [`IoError::NotRegularFile`] for any other kind of file, and [`IoError::TooLarge`] for a longer one.
    /// Of a file that changes meanwhile it gets at most as many bytes as the file had when it was opened: what is appended later
    /// is not read, and a file that is cut ends where it ends then. The parts may be of different moments. A file of a file system
    /// that knows no lengths, such as /proc, says that it is empty, and is read to its end.
    /// To open the file in another way, for instance confined to a directory, use [`IoHandle::fs_read_with`].
    #[track_caller]
    pub fn fs_read(
        &self,
        path: impl Into<PathBuf>,
        max_bytes: usize,
        done: impl FnOnce(&mut Context, Result<Vec<u8>, IoError>) + 'static,
    ) -> TaskId {
        let path = path.into();
        self.fs_read_with(move || open_without_blocking(path), max_bytes, done)
    }

    /// As [`IoHandle::fs_read`], with a file that `open` opens on the pool's thread.
    #[track_caller]
    pub fn fs_read_with(
        &self,
        open: impl FnOnce() -> io::Result<File> + Send + 'static,
        max_bytes: usize,
        done: impl FnOnce(&mut Context, Result<Vec<u8>, IoError>) + 'static,
    ) -> TaskId {
        let limits = ReadLimits { max_bytes, part_bytes: self.part_bytes };
        let mut reading = FileReading::NotOpened(Some(open));
        self.submit_parts(
            move || reading.read_part(limits),
            |context, result| done(context, result.flatten()),
        )
    }

    /// As [`IoHandle::fs_read`], with the contents as a future.
    #[track_caller]
    pub fn fs_read_async(&self, path: impl Into<PathBuf>, max_bytes: usize) -> IoFuture<Vec<u8>> {
        let one_shot = OneShot::new();
        IoFuture::new(self, self.fs_read(path, max_bytes, one_shot.filling()), one_shot)
    }

    /// As [`IoHandle::fs_read_with`], with the contents as a future.
    #[track_caller]
    pub fn fs_read_with_async(
        &self,
        open: impl FnOnce() -> io::Result<File> + Send + 'static,
        max_bytes: usize,
    ) -> IoFuture<Vec<u8>> {
        let one_shot = OneShot::new();
        IoFuture::new(self, self.fs_read_with(open, max_bytes, one_shot.filling()), one_shot)
    }
}

/// Metadata.
impl IoHandle {
    /// What the system knows about a file. Symbolic links are followed, and the file is not opened.
    #[track_caller]
    pub fn fs_stat(
        &self,
        path: impl Into<PathBuf>,
        done: impl FnOnce(&mut Context, Result<Metadata, IoError>) + 'static,
    ) -> TaskId {
        let path = path.into();
        self.submit(
            move || std::fs::metadata(path).map_err(IoError::Io),
            |context, result| done(context, result.flatten()),
        )
    }

    /// As [`IoHandle::fs_stat`], with the answer as a future.
    #[track_caller]
    pub fn fs_stat_async(&self, path: impl Into<PathBuf>) -> IoFuture<Metadata> {
        let one_shot = OneShot::new();
        IoFuture::new(self, self.fs_stat(path, one_shot.filling()), one_shot)
    }
}

/// Opening a FIFO would wait for its writer.
fn open_without_blocking(path: PathBuf) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

#[derive(Clone, Copy)]
struct ReadLimits {
    max_bytes: usize,
    part_bytes: usize,
}

enum FileReading<Open> {
    NotOpened(Option<Open>),
    /// `left` bytes are still to be read, if there are as many.
    Opened {
        file: File,
        left: u64,
        contents: Vec<u8>,
    },
}

impl<Open: FnOnce() -> io::Result<File>> FileReading<Open> {
    fn read_part(&mut self, limits: ReadLimits) -> ControlFlow<Result<Vec<u8>, IoError>> {
        match self.try_read_part(limits) {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(contents)) => ControlFlow::Break(Ok(contents)),
            Err(error) => ControlFlow::Break(Err(error)),
        }
    }

    /// The contents, once they are complete.
    fn try_read_part(&mut self, limits: ReadLimits) -> Result<Option<Vec<u8>>, IoError> {
        let ReadLimits { max_bytes, part_bytes } = limits;
        if let FileReading::NotOpened(open) = self {
            let Some(open) = open.take() else { return Ok(None) };
            let file = open().map_err(IoError::Io)?;
            let (size, contents) = room_for(&file, max_bytes)?;
            let left = most_to_read(&file, size).map_err(IoError::Io)?;
            *self = FileReading::Opened { file, left, contents };
        }
        let FileReading::Opened { file, left, contents } = self else { return Ok(None) };
        let part = (part_bytes as u64).min(*left);
        let count = file.take(part).read_to_end(contents).map_err(IoError::Io)? as u64;
        // One whose file system knows no lengths may have any.
        if contents.len() > max_bytes {
            return Err(IoError::TooLarge { max_bytes });
        }
        *left -= count;
        Ok((count < part || *left == 0).then(|| std::mem::take(contents)))
    }
}

/// File systems whose files have no length before they are read: /proc, cgroups of version 1 and 2, debugfs, tracefs, securityfs, and
/// whatever a program provides (FUSE).
const WITHOUT_LENGTHS: [FsWord; 7] =
    [PROC_SUPER_MAGIC, 0x0027_e0eb, 0x6367_7270, 0x6462_6720, 0x7472_6163, 0x7363_6673, 0x6573_5546];

/// The most bytes that are read of a file of this size. A file that is empty now may be written to at any moment; only where the file
/// system knows no lengths is it read to its end.
pub(super) fn most_to_read(file: &File, size: usize) -> io::Result<u64> {
    let has_no_length = size == 0 && WITHOUT_LENGTHS.contains(&fstatfs(file)?.f_type);
    Ok(if has_no_length { u64::MAX } else { size as u64 })
}

/// The size of a file that may be read, and memory for the whole of it.
fn room_for(file: &File, max_bytes: usize) -> Result<(usize, Vec<u8>), IoError> {
    let metadata = file.metadata().map_err(IoError::Io)?;
    if !metadata.is_file() {
        return Err(IoError::NotRegularFile);
    }
    let size = usize::try_from(metadata.len()).ok().filter(|&size| size <= max_bytes);
    let size = size.ok_or(IoError::TooLarge { max_bytes })?;
    let mut contents = Vec::new();
    contents.try_reserve_exact(size).map_err(|error| IoError::Io(error.into()))?;
    Ok((size, contents))
}
