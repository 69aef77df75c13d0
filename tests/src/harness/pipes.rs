//! Pipes whose reader leaves.

use super::PATIENCE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};

/// Drops the reading end of a pipe, and waits until nobody has it any more. Until then a write would succeed, and be lost: a process
/// that another thread starts has a copy until it has executed its program.
///
/// # Panics
/// If somebody keeps it.
#[track_caller]
pub fn leave(reader: impl AsFd) {
    let number = reader.as_fd().as_raw_fd();
    let writer = File::options().write(true).open(format!("/proc/self/fd/{number}")).expect("a pipe");
    drop(reader);
    let limit = Timespec::try_from(PATIENCE).expect("a sane limit");
    let mut watched = [PollFd::new(&writer, PollFlags::empty())];
    retry_on_intr(|| poll(&mut watched, Some(&limit))).expect("a pipe can be polled");
    assert!(watched[0].revents().contains(PollFlags::ERR), "somebody still has the reading end");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn nobody_reads_what_is_written_after_the_reader_has_left() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"read or not").unwrap();
        leave(reader);
        assert_eq!(writer.write(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    }
}
