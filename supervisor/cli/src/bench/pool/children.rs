//! Children without a pool: a process at the other end of a socket pair, and nothing else. The limits are measured with
//! them, because no pool of processes can be faster than that.
//!
//! Each child is this executable as `bench-helper`, with its end of the pair as descriptor 0. It ends when the pair is
//! closed.

use super::super::super::failure::{Failure, OK, VerbResult};
use super::super::machine::bind_to;
use super::burn;
use super::helper::{OWN_EXECUTABLE, VERB};
use clap::ValueEnum;
use rustix::stdio::stdin;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How the child `echo` reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum EchoMode {
    /// Whole messages
    Whole,
    /// Whatever has come, as soon as it has come
    Stream,
    /// Whatever has come, in pieces, each sent by itself
    Pieces,
    /// Whole messages, asking again and again instead of sleeping
    Polling,
}

/// Pieces of one buffer, for [`EchoMode::Pieces`].
pub(super) const PIECES: usize = 64;

/// A child, and our end of the pair. Dropping it closes the pair and waits for the child to end.
pub(super) struct Child {
    /// Our end.
    pub(super) socket: UnixStream,
    process: std::process::Child,
}

impl Child {
    /// Starts a child in this role of [`super::helper`].
    ///
    /// # Errors
    /// If the system has no process or no socket left.
    pub(super) fn start(role: &[&str]) -> Result<Child, Failure> {
        let failed = |error: io::Error| Failure::internal("cannot start a child to measure with", error);
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(OWN_EXECUTABLE);
        command.arg(VERB).args(role).stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
        Ok(Child { socket: ours, process: command.spawn().map_err(failed)? })
    }

    /// Starts one that sends back messages of this size.
    ///
    /// # Errors
    /// As [`Child::start`].
    pub(super) fn echo(size: usize, mode: EchoMode, core: Option<usize>) -> Result<Child, Failure> {
        let size = size.to_string();
        let mode = match mode {
            EchoMode::Whole => "whole",
            EchoMode::Stream => "stream",
            EchoMode::Pieces => "pieces",
            EchoMode::Polling => "polling",
        };
        let core = core.map(|core| format!("--core={core}"));
        let words: Vec<&str> = ["echo", &size, mode].into_iter().chain(core.as_deref()).collect();
        Child::start(&words)
    }

    /// The process id.
    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits until it says that it is there.
    ///
    /// # Errors
    /// If it ended instead.
    pub(super) fn wait_for_a_byte(&mut self) -> Result<(), Failure> {
        self.socket.read_exact(&mut [0]).map_err(lost)
    }

    /// Tells a child `burn` to do so many jobs of so many rounds.
    ///
    /// # Errors
    /// If it has ended.
    pub(super) fn order(&mut self, rounds: u64, jobs: u64) -> Result<(), Failure> {
        self.socket.write_all(&[rounds.to_le_bytes(), jobs.to_le_bytes()].concat()).map_err(lost)
    }

    /// Waits until it has done what was ordered. Returns the time of its fastest job.
    ///
    /// # Errors
    /// If it has ended.
    pub(super) fn wait_for_work(&mut self) -> Result<Duration, Failure> {
        let mut nanoseconds = [0; 8];
        self.socket.read_exact(&mut nanoseconds).map_err(lost)?;
        Ok(Duration::from_nanos(u64::from_le_bytes(nanoseconds)))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // If it is closed already, so is the child's end.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let _ = self.process.wait();
    }
}

/// The failure for a child that is gone.
pub(super) fn lost(error: io::Error) -> Failure {
    Failure::internal("a child to measure with is gone", error)
}

/// From starting a child to its first byte.
///
/// # Errors
/// As [`Child::start`].
pub(super) fn time_to_start() -> Result<Duration, Failure> {
    let start = Instant::now();
    let mut child = Child::start(&["start"])?;
    child.wait_for_a_byte()?;
    Ok(start.elapsed())
}

/// A buffer that begins 64 bytes past the beginning of a page. How a buffer lies decides how fast it is copied: just
/// past the source modulo the page size it is many times slower, and large allocations begin exactly there.
pub(super) struct Buffer {
    memory: Vec<u8>,
    begin: usize,
    length: usize,
}

impl Buffer {
    /// A buffer of this length, with memory that was written to.
    pub(super) fn new(length: usize) -> Buffer {
        const PAGE: usize = 4096;
        let memory = vec![7; length + 2 * PAGE];
        let begin = memory.as_ptr().align_offset(PAGE) + 64;
        Buffer { memory, begin, length }
    }

    /// The bytes.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.begin..self.begin + self.length]
    }
}

/// Reads until the buffer is full, asking again and again if the socket does not block.
///
/// # Errors
/// If the other end is closed.
pub(super) fn read_whole(socket: &mut UnixStream, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        match socket.read(&mut buffer[filled..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The end of the pair that this child was started with.
fn our_end() -> Result<UnixStream, Failure> {
    let socket = stdin().try_clone_to_owned();
    socket.map(UnixStream::from).map_err(|error| Failure::internal("descriptor 0 is no socket", error))
}

/// The role `echo`: sends back what comes until the other end is closed.
pub(super) fn echo(size: usize, mode: EchoMode, core: Option<usize>) -> VerbResult {
    core.map_or(Ok(()), bind_to)?;
    let mut socket = our_end()?;
    socket.set_nonblocking(mode == EchoMode::Polling).map_err(lost)?;
    let mut buffer = Buffer::new(size);
    let buffer = buffer.bytes();
    // That the other end is closed is how this ends.
    while let Ok(length) = receive(&mut socket, buffer, mode) {
        let piece = if mode == EchoMode::Pieces { size.div_ceil(PIECES).max(1) } else { usize::MAX };
        let sent = buffer[..length].chunks(piece).try_for_each(|piece| socket.write_all(piece));
        if length == 0 || sent.is_err() {
            break;
        }
    }
    Ok(OK)
}

fn receive(socket: &mut UnixStream, buffer: &mut [u8], mode: EchoMode) -> io::Result<usize> {
    match mode {
        EchoMode::Stream | EchoMode::Pieces => socket.read(buffer),
        EchoMode::Whole | EchoMode::Polling => read_whole(socket, buffer).map(|()| buffer.len()),
    }
}

/// The role `burn`: computes as ordered, and answers with the time of the fastest job.
pub(super) fn burn() -> VerbResult {
    let mut socket = our_end()?;
    let mut order = [[0; 8]; 2];
    while socket.read_exact(order.as_flattened_mut()).is_ok() {
        let [rounds, jobs] = order.map(u64::from_le_bytes);
        let fastest = (0..jobs).map(|_| burn::fastest(rounds, 1)).min().unwrap_or_default();
        let nanoseconds = u64::try_from(fastest.as_nanos()).unwrap_or(u64::MAX);
        socket.write_all(&nanoseconds.to_le_bytes()).map_err(lost)?;
    }
    Ok(OK)
}

/// The role `start`: says that it has started.
pub(super) fn say_started() -> VerbResult {
    our_end()?.write_all(b"!").map_err(lost)?;
    Ok(OK)
}

/// The end of the pair for the role `clients`: says that it is ready, and waits until the other end is closed.
///
/// # Errors
/// If there is no such end.
pub(super) fn say_ready_and_wait() -> Result<(), Failure> {
    let mut socket = our_end()?;
    socket.write_all(b"!").map_err(lost)?;
    // Nothing is ever sent: this returns when the other end is closed.
    let _ = socket.read(&mut [0]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_lies_sixty_four_bytes_past_a_page() {
        for length in [0, 1, 64, 100_000] {
            let mut buffer = Buffer::new(length);
            assert_eq!(buffer.bytes().len(), length);
            assert_eq!(buffer.bytes().as_ptr().addr() % 4096, 64);
        }
    }

    #[test]
    fn a_message_is_read_whole_although_it_comes_in_parts_and_the_end_is_an_error() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let writer = std::thread::spawn(move || {
            theirs.write_all(b"he").unwrap();
            theirs.write_all(b"llo").unwrap();
        });
        let mut buffer = [0; 5];
        read_whole(&mut ours, &mut buffer).unwrap();
        assert_eq!(&buffer, b"hello");
        writer.join().unwrap();
        assert_eq!(read_whole(&mut ours, &mut buffer).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
