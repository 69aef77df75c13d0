//! The one place with `unsafe`: reading from a socket into memory of hyper's that has no values yet.
#![allow(unsafe_code)]

use hyper::rt::ReadBufCursor;
use std::os::fd::BorrowedFd;

/// Reads once, at most `most` bytes and what the cursor has room for, shows them to `seen`, and says how many came. 0 is the end, or
/// there was no room.
///
/// # Errors
/// What the system says; `EAGAIN` if nothing has come.
pub(crate) fn read(
    socket: BorrowedFd<'_>,
    cursor: &mut ReadBufCursor<'_>,
    most: usize,
    seen: impl FnOnce(&[u8]),
) -> Result<usize, rustix::io::Errno> {
    // SAFETY: the memory is only handed to `read`, which writes to it and takes no value away.
    let room = unsafe { cursor.as_mut() };
    let length = room.len().min(most);
    let (read, _) = rustix::io::read(socket, &mut room[..length])?;
    let count = read.len();
    seen(read);
    // SAFETY: `read` has filled the first `count` bytes.
    unsafe { cursor.advance(count) };
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::rt::ReadBuf;
    use std::io::Write;
    use std::mem::MaybeUninit;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn no_more_is_read_than_was_asked_for_and_there_is_room_for() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"hello").unwrap();
        let mut memory = [MaybeUninit::uninit(); 4];
        let mut buffer = ReadBuf::uninit(&mut memory);
        assert_eq!(read(ours.as_fd(), &mut buffer.unfilled(), 3, |_| ()), Ok(3));
        assert_eq!(
            read(ours.as_fd(), &mut buffer.unfilled(), 3, |_| ()),
            Ok(1),
            "there is room for one more"
        );
        assert_eq!(read(ours.as_fd(), &mut buffer.unfilled(), 3, |_| ()), Ok(0), "there is no room");
        assert_eq!(buffer.filled(), b"hell");
    }

    #[test]
    fn the_end_and_nothing_are_told_apart() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut memory = [MaybeUninit::uninit(); 4];
        let mut buffer = ReadBuf::uninit(&mut memory);
        assert_eq!(read(ours.as_fd(), &mut buffer.unfilled(), 4, |_| ()), Err(rustix::io::Errno::AGAIN));
        drop(theirs);
        assert_eq!(read(ours.as_fd(), &mut buffer.unfilled(), 4, |_| ()), Ok(0));
    }
}
