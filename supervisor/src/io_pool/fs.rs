//! Reading files in parts, so that a long one does not keep a thread from the short ones.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::OFlags;

use super::{IoError, IoPool, TaskId};
use crate::event_loop::Context;

/// How many bytes one part reads at most: 512 KiB.
pub const READ_PART: usize = 512 * 1_024;

impl IoPool {
    /// Reads a whole regular file of at most `max_bytes`.
    ///
    /// `done` gets [`IoError::NotRegularFile`] for anything that could go on for ever, and [`IoError::TooLarge`].
    /// Who must confine a path to a directory opens the file in an own way: [`IoPool::fs_read_with`].
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

    /// As [`IoPool::fs_read`], with a file that `open` opens on the pool's thread.
    #[track_caller]
    pub fn fs_read_with(
        &self,
        open: impl FnOnce() -> std::io::Result<File> + Send + 'static,
        max_bytes: usize,
        done: impl FnOnce(&mut Context, Result<Vec<u8>, IoError>) + 'static,
    ) -> TaskId {
        let mut reading = Reading::NotOpened(Some(open));
        self.submit_parts(
            move || reading.read_part(max_bytes),
            |context, result| done(context, result.and_then(|contents| contents)),
        )
    }
}

/// Opening a FIFO would wait for its writer.
fn open_without_blocking(path: PathBuf) -> std::io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

enum Reading<Open> {
    NotOpened(Option<Open>),
    Opened { file: File, contents: Vec<u8> },
}

impl<Open: FnOnce() -> std::io::Result<File>> Reading<Open> {
    fn read_part(&mut self, max_bytes: usize) -> ControlFlow<Result<Vec<u8>, IoError>> {
        match self.try_read_part(max_bytes) {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(contents)) => ControlFlow::Break(Ok(contents)),
            Err(error) => ControlFlow::Break(Err(error)),
        }
    }

    /// The contents, once they are complete.
    fn try_read_part(&mut self, max_bytes: usize) -> Result<Option<Vec<u8>>, IoError> {
        if let Reading::NotOpened(open) = self {
            let Some(open) = open.take() else { return Ok(None) };
            let file = open().map_err(IoError::Io)?;
            let contents = Vec::with_capacity(checked_size(&file, max_bytes)?);
            *self = Reading::Opened { file, contents };
        }
        let Reading::Opened { file, contents } = self else { return Ok(None) };
        let count = file.take(READ_PART as u64).read_to_end(contents).map_err(IoError::Io)?;
        // The file may have grown since its size was asked for.
        if contents.len() > max_bytes {
            return Err(IoError::TooLarge { max_bytes });
        }
        Ok((count < READ_PART).then(|| std::mem::take(contents)))
    }
}

fn checked_size(file: &File, max_bytes: usize) -> Result<usize, IoError> {
    let metadata = file.metadata().map_err(IoError::Io)?;
    if !metadata.is_file() {
        return Err(IoError::NotRegularFile);
    }
    let size = usize::try_from(metadata.len()).ok().filter(|&size| size <= max_bytes);
    size.ok_or(IoError::TooLarge { max_bytes })
}
