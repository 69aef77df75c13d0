//! The program, and the two pipes to it. Lines are read and written at the same time, so neither end can wait for the other one for
//! ever; what the program sent before its end is read first.

use super::lines::beginning;
use crate::foreign::Foreign;
use crate::limits::{FOREIGN_GRACE, JSONL_READ_MAX};
use crate::sys;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;

/// The descriptors of the program, and the variables that name them.
const IN: (i32, &str) = (3, "OFFLOAD_JSONL_IN");
const OUT: (i32, &str) = (4, "OFFLOAD_JSONL_OUT");

/// See the module's documentation.
pub(super) struct Channel {
    program: Foreign,
    /// `None` once the program takes no more.
    to_program: Option<PipeWriter>,
    from_program: PipeReader,
    received: Vec<u8>,
    /// So many bytes of what was received have no end of a line.
    searched: usize,
    line_max: usize,
    is_at_its_end: bool,
}

/// Why there is no next line.
pub(super) enum End {
    /// The program has ended, or is about to.
    Ended,
    /// It has broken its promises.
    Broken(String),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        End::Broken(format!("its pipes failed: {error}"))
    }
}

impl From<Errno> for End {
    fn from(errno: Errno) -> End {
        io::Error::from(errno).into()
    }
}

impl Channel {
    /// Starts the program.
    ///
    /// # Errors
    /// It could not be started.
    pub(super) fn open(command: &[OsString], line_max: usize) -> io::Result<Channel> {
        let (theirs_in, to_program) = io::pipe()?;
        let (from_program, theirs_out) = io::pipe()?;
        rustix::io::ioctl_fionbio(&to_program, true)?;
        rustix::io::ioctl_fionbio(&from_program, true)?;
        let program = Foreign::start(command, |command| {
            command.env(IN.1, IN.0.to_string()).env(OUT.1, OUT.0.to_string());
            sys::with_descriptors(command, [(theirs_in.into(), IN.0), (theirs_out.into(), OUT.0)])
        })?;
        Ok(Channel {
            program,
            to_program: Some(to_program),
            from_program,
            received: Vec::new(),
            searched: 0,
            line_max,
            is_at_its_end: false,
        })
    }

    pub(super) fn program(&self) -> &Foreign {
        &self.program
    }

    /// The next line that is not empty, without its end. Meanwhile sends of `unsent` what the program takes.
    pub(super) fn next_line(&mut self, unsent: &mut &[u8]) -> Result<Vec<u8>, End> {
        loop {
            match self.take_line() {
                Some(line) if line.iter().all(u8::is_ascii_whitespace) => continue,
                Some(line) if line.len() <= self.line_max => return Ok(line),
                None if self.received.len() <= self.line_max => {}
                Some(line) => return Err(self.too_long(&line)),
                None => return Err(self.too_long(&self.received)),
            }
            if self.is_at_its_end {
                return Err(self.why_at_its_end());
            }
            self.move_bytes(unsent)?;
        }
    }

    fn take_line(&mut self) -> Option<Vec<u8>> {
        let Some(end) = self.received[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.received.len();
            return None;
        };
        let rest = self.received.split_off(self.searched + end + 1);
        let mut line = std::mem::replace(&mut self.received, rest);
        self.searched = 0;
        line.pop();
        Some(line)
    }

    fn too_long(&self, line: &[u8]) -> End {
        End::Broken(format!(
            "a line has more than {} bytes; it begins with {}",
            self.line_max,
            beginning(line)
        ))
    }

    fn why_at_its_end(&self) -> End {
        if !self.program.ends_within(FOREIGN_GRACE) {
            return End::Broken(format!("it closed descriptor {} and goes on", OUT.0));
        }
        match self.received.as_slice() {
            [] => End::Ended,
            rest => End::Broken(format!("it ended within a line, which begins with {}", beginning(rest))),
        }
    }

    /// Waits until something can be read or written, or the program has ended.
    fn move_bytes(&mut self, unsent: &mut &[u8]) -> Result<(), End> {
        let (process, output) = (self.program.process(), &self.from_program);
        let mut polled =
            vec![PollFd::from_borrowed_fd(process, PollFlags::IN), PollFd::new(output, PollFlags::IN)];
        let input = self.to_program.as_ref().filter(|_| !unsent.is_empty());
        polled.extend(input.map(|input| PollFd::from_borrowed_fd(input.as_fd(), PollFlags::OUT)));
        match poll(&mut polled, None) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
        let is_ready: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        if is_ready.get(2) == Some(&true) {
            self.send(unsent);
        }
        let has_come = self.receive()?;
        // Somebody else may have the other end of the pipe, so its end may never come.
        self.is_at_its_end |= is_ready[0] && !has_come;
        Ok(())
    }

    /// A program that has closed its end is about to end, or answers nevertheless.
    fn send(&mut self, unsent: &mut &[u8]) {
        let Some(to_program) = &mut self.to_program else { return };
        match to_program.write(unsent) {
            Ok(count) => *unsent = &unsent[count..],
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.to_program = None,
        }
    }

    /// Takes what is in the pipe. False if nothing is.
    fn receive(&mut self) -> Result<bool, End> {
        match (&self.from_program).take(JSONL_READ_MAX).read_to_end(&mut self.received) {
            Ok(count) if count as u64 == JSONL_READ_MAX => Ok(true),
            Ok(count) => {
                self.is_at_its_end = true;
                Ok(count > 0)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Ok(self.searched < self.received.len())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Ends this process, for this reason.
    pub(super) fn end_as(&mut self, end: End) -> ! {
        match end {
            End::Ended => self.program.end_as_it_did(),
            End::Broken(why) => self.program.end_broken(&why),
        }
    }

    /// Ends this process, because the program has broken its promises.
    pub(super) fn end_broken(&mut self, why: &str) -> ! {
        self.program.end_broken(why)
    }

    /// There are no more jobs, or the program has ended.
    pub(super) fn finish(&mut self) {
        self.to_program = None;
        self.program.finish();
    }
}
