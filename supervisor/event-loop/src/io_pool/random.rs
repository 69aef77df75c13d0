//! Random bytes, made in parts so that a large number of them does not keep a thread from other tasks.

use std::io;
use std::ops::ControlFlow;

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::{IoError, IoFuture, IoHandle, TaskId};
use crate::Context;
use crate::limits::RANDOM_PART;
use crate::one_shot::OneShot;

impl IoHandle {
    /// Makes `count` random bytes, good enough for keys, in parts of [`RANDOM_PART`].
    ///
    /// `done` gets [`IoError::Io`] if there is not enough memory.
    #[track_caller]
    pub fn random_bytes(
        &self,
        count: usize,
        done: impl FnOnce(&mut Context, Result<Vec<u8>, IoError>) + 'static,
    ) -> TaskId {
        let mut bytes = Vec::new();
        self.submit_parts(
            move || match add_random_part(&mut bytes, count) {
                Ok(()) if bytes.len() < count => ControlFlow::Continue(()),
                Ok(()) => ControlFlow::Break(Ok(std::mem::take(&mut bytes))),
                Err(error) => ControlFlow::Break(Err(IoError::Io(error))),
            },
            |context, result| done(context, result.flatten()),
        )
    }

    /// As [`IoHandle::random_bytes`], with the bytes as a future.
    #[track_caller]
    pub fn random_bytes_async(&self, count: usize) -> IoFuture<Vec<u8>> {
        let one_shot = OneShot::new();
        IoFuture::new(self, self.random_bytes(count, one_shot.filling()), one_shot)
    }
}

fn add_random_part(bytes: &mut Vec<u8>, count: usize) -> io::Result<()> {
    bytes.try_reserve_exact(count - bytes.len())?;
    let mut filled = bytes.len();
    bytes.resize(count.min(filled + RANDOM_PART), 0);
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(made) => filled += made,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
