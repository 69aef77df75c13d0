//! The program, and the two pipes to it. Lines are read and written at the same time, so neither end can wait for the other one for
//! ever; what the program sent before its end is read first.
//!
//! Between two jobs nothing may come but progress of a job that was answered. So before a job begins, the pipe is read to its end, and
//! a line that has begun is awaited: what comes then is of no job, and the job that was to begin is given back. So is a job of which the
//! program reads nothing: it may still do something for the job before, or has closed its end of the pipe.

use super::lines::{self, Answer, beginning};
use crate::behind::Behind;
use crate::foreign::Foreign;
use crate::limits::{FOREIGN_BEGIN_MAX, FOREIGN_GRACE, JSONL_READ_MAX};
use crate::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread};
use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The descriptors of the program, and the variables that name them.
const IN: (i32, &str) = (3, "OFFLOAD_JSONL_IN");
const OUT: (i32, &str) = (4, "OFFLOAD_JSONL_OUT");

/// See the module's documentation.
pub(super) struct Channel {
    program: Foreign,
    /// `None` once there are no more jobs.
    to_program: Option<PipeWriter>,
    from_program: PipeReader,
    received: Vec<u8>,
    /// So many bytes of what was received have no end of a line.
    searched: usize,
    line_max: usize,
    is_at_its_end: bool,
    /// Its end of the pipe is open, as far as is known.
    takes_more: bool,
    /// Why it has to end, found out while no job ran.
    end: Option<End>,
    /// The job that was answered last.
    answered: Option<String>,
}

/// The line of a job, on its way.
pub(super) struct Sending<'a> {
    line: &'a [u8],
    unsent: &'a [u8],
    /// Until when the program has to read something of it. `None` once it has.
    begin_by: Option<Instant>,
}

impl<'a> Sending<'a> {
    /// Nothing is sent.
    pub(super) fn nothing() -> Sending<'a> {
        Sending { line: &[], unsent: &[], begin_by: None }
    }

    /// This is sent, with its end. The job has so much time left, if that is limited. If the program reads nothing of it, that has to
    /// be found before the supervisor finds that the time is over.
    pub(super) fn new(line: &'a [u8], left: Option<Duration>) -> Sending<'a> {
        let longest = left.map_or(FOREIGN_BEGIN_MAX, |left| FOREIGN_BEGIN_MAX.min(left / 2));
        Sending { line, unsent: line, begin_by: Some(Instant::now() + longest) }
    }

    /// Whether all of it was passed on.
    pub(super) fn is_done(&self) -> bool {
        self.unsent.is_empty()
    }

    fn is_over(&self) -> bool {
        self.begin_by.is_some_and(|until| until <= Instant::now())
    }

    /// How long the program may go on that has closed a descriptor.
    fn grace(&self) -> Duration {
        let left = self.begin_by.map(|until| until.saturating_duration_since(Instant::now()));
        left.map_or(FOREIGN_GRACE, |left| left.min(FOREIGN_GRACE))
    }
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
    pub(super) fn open(
        command: &[OsString],
        supervisor: &UnixStream,
        line_max: usize,
    ) -> io::Result<Channel> {
        let (theirs_in, to_program) = io::pipe()?;
        let (from_program, theirs_out) = io::pipe()?;
        rustix::io::ioctl_fionbio(&to_program, true)?;
        rustix::io::ioctl_fionbio(&from_program, true)?;
        let program = Foreign::start(command, supervisor, |command| {
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
            takes_more: true,
            end: None,
            answered: None,
        })
    }

    pub(super) fn program(&self) -> &Foreign {
        &self.program
    }

    /// The next line that is not empty, without its end. Meanwhile sends what the program takes.
    pub(super) fn next_line(&mut self, sending: &mut Sending<'_>) -> Result<Vec<u8>, End> {
        loop {
            match self.take_line() {
                Some(line) if line.iter().all(u8::is_ascii_whitespace) => continue,
                Some(line) if line.len() <= self.line_max => return Ok(line),
                None if self.received.len() <= self.line_max => {}
                Some(line) => return Err(self.too_long(&line)),
                None => return Err(self.too_long(&self.received)),
            }
            if self.is_at_its_end {
                return Err(self.why_at_its_end(sending.grace()));
            }
            if self.will_not_read(sending) {
                if !self.program.ends_within(sending.grace()) {
                    return Err(closed(IN.0));
                }
                self.receive_all()?;
                self.is_at_its_end = true;
                continue;
            }
            if sending.begin_by.is_some() {
                self.check_begun(sending)?;
            }
            self.move_bytes(sending, sending.begin_by)?;
        }
    }

    /// Whether it has not taken one byte of a line.
    pub(super) fn has_not_begun(&self, sending: &Sending<'_>) -> bool {
        let sent = (sending.line.len() - sending.unsent.len()) as u64;
        let untaken = self.to_program.as_ref().and_then(|input| ioctl_fionread(input).ok());
        untaken.is_some_and(|untaken| untaken >= sent)
    }

    /// Whether it has closed its end of the pipe, and not because it has read all.
    fn will_not_read(&self, sending: &Sending<'_>) -> bool {
        !self.takes_more && (!sending.is_done() || self.has_not_begun(sending))
    }

    fn check_begun(&self, sending: &mut Sending<'_>) -> Result<(), End> {
        let has_not_begun = self.has_not_begun(sending);
        self.program.note_not_begun(has_not_begun);
        if has_not_begun && sending.is_over() {
            let longest = FOREIGN_BEGIN_MAX.as_secs();
            return Err(End::Broken(format!(
                "it does not read its next job, for which it has {longest} s, or half of the time that the job has"
            )));
        }
        sending.begin_by = sending.begin_by.filter(|_| has_not_begun);
        Ok(())
    }

    /// This job has its answer.
    pub(super) fn answered(&mut self, job: String) {
        self.program.note_not_begun(false);
        self.answered = Some(job);
    }

    /// Whether a line is about the job that was answered last.
    pub(super) fn is_of_the_last_job(&self, line: &[u8]) -> bool {
        self.answered.is_some() && lines::job_of(line) == self.answered
    }

    /// Takes what has come while no job runs.
    fn take_what_is_of_no_job(&mut self) -> Result<(), End> {
        self.receive_all()?;
        while let Some(line) = self.take_line() {
            let is_blank = line.iter().all(u8::is_ascii_whitespace);
            if !is_blank
                && !matches!(lines::answer(&line, "", &crate::MediaType::JSON), Ok(Answer::OfAnother))
            {
                return Err(End::Broken(format!("while no job ran it sent {}", beginning(&line))));
            }
        }
        if self.received.len() > self.line_max {
            return Err(self.too_long(&self.received));
        }
        match self.is_at_its_end || self.program.ends_within(Duration::ZERO) {
            true => Err(self.why_at_its_end(FOREIGN_GRACE)),
            false => Ok(()),
        }
    }

    /// Takes all that is in the pipe, or more than a line may have.
    fn receive_all(&mut self) -> Result<(), End> {
        loop {
            let before = self.received.len();
            self.receive()?;
            if self.is_at_its_end || self.received.len() == before || before > self.line_max {
                return Ok(());
            }
        }
    }

    /// A program that is stopped begins no job.
    fn wait_while_it_is_stopped(&mut self) -> Result<(), End> {
        let until = Instant::now() + FOREIGN_BEGIN_MAX;
        while self.program.is_stopped() && Instant::now() < until {
            self.move_bytes(&mut Sending::nothing(), Some(until))?;
        }
        Ok(())
    }

    /// As [`Channel::take_what_is_of_no_job`], and the rest of a line that has begun.
    fn take_the_rest(&mut self) -> Result<(), End> {
        let until = Instant::now() + FOREIGN_GRACE;
        self.take_what_is_of_no_job()?;
        while !self.received.is_empty() {
            if Instant::now() >= until {
                return Err(End::Broken(format!(
                    "while no job ran it sent the beginning of a line: {}",
                    beginning(&self.received)
                )));
            }
            self.move_bytes(&mut Sending::nothing(), Some(until))?;
            self.take_what_is_of_no_job()?;
        }
        Ok(())
    }

    fn note_end(&mut self, looked: Result<(), End>) -> bool {
        self.end = looked.err();
        self.end.is_none()
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

    /// A program that a signal ended, or that says by its exit code that it failed, is not blamed for the line that it was about to
    /// write. Nor is one that was asked to end: so this process was as well, and ends now.
    fn why_at_its_end(&self, grace: Duration) -> End {
        if !self.program.ends_within(grace) {
            return closed(OUT.0);
        }
        self.program.heed_signals();
        match self.received.as_slice() {
            rest if !rest.is_empty() && self.program.has_succeeded() => {
                End::Broken(format!("it ended within a line, which begins with {}", beginning(rest)))
            }
            _ => End::Ended,
        }
    }

    /// Waits until something can be read or written, or the program has ended.
    fn move_bytes(&mut self, sending: &mut Sending<'_>, until: Option<Instant>) -> Result<(), End> {
        let (process, signals) = (self.program.process(), self.program.signals());
        let watched = [process, signals, self.from_program.as_fd()];
        let mut polled = watched.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).to_vec();
        // Whether the other end is closed, `poll` says in any case.
        let flags = if sending.is_done() { PollFlags::empty() } else { PollFlags::OUT };
        let input = self.to_program.as_ref().filter(|_| !sending.line.is_empty() && self.takes_more);
        polled.extend(input.map(|input| PollFd::from_borrowed_fd(input.as_fd(), flags)));
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        match poll(&mut polled, left.and_then(|left| Timespec::try_from(left).ok()).as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
        let is_ready: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        if is_ready[1] {
            self.program.heed_signals();
        }
        if is_ready.get(3) == Some(&true) {
            self.send(sending);
        }
        let has_come = self.receive()?;
        // Somebody else may have the other end of the pipe, so its end may never come.
        self.is_at_its_end |= is_ready[0] && !has_come;
        Ok(())
    }

    /// Sends what is left. If nothing is, the program has closed its end.
    fn send(&mut self, sending: &mut Sending<'_>) {
        let Some(to_program) = &mut self.to_program else { return };
        if sending.is_done() {
            self.takes_more = false;
            return;
        }
        match to_program.write(sending.unsent) {
            Ok(count) => sending.unsent = &sending.unsent[count..],
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.takes_more = false,
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

    /// There are no more jobs, or the program has ended or has to.
    pub(super) fn finish(&mut self) {
        if let Some(end) = self.end.take() {
            self.end_as(end);
        }
        self.to_program = None;
        self.program.finish();
    }
}

fn closed(descriptor: i32) -> End {
    End::Broken(format!("it closed descriptor {descriptor} and goes on"))
}

/// The channel, for the session.
pub(super) struct Watched {
    channel: Rc<RefCell<Channel>>,
    watched: Vec<OwnedFd>,
}

impl Watched {
    pub(super) fn new(channel: &Rc<RefCell<Channel>>) -> io::Result<Watched> {
        let mut watched = channel.borrow().program.watched()?;
        watched.push(channel.borrow().from_program.try_clone()?.into());
        Ok(Watched { channel: Rc::clone(channel), watched })
    }
}

impl Behind for Watched {
    fn watched(&self) -> &[OwnedFd] {
        &self.watched
    }

    fn look(&mut self, can_tell: bool) -> bool {
        let mut channel = self.channel.borrow_mut();
        channel.program.may_tell(can_tell);
        channel.program.heed_signals();
        let looked = channel.take_what_is_of_no_job();
        channel.note_end(looked)
    }

    fn get_ready(&mut self, can_tell: bool) -> bool {
        let mut channel = self.channel.borrow_mut();
        channel.program.may_tell(can_tell);
        let looked = channel.wait_while_it_is_stopped().and_then(|()| channel.take_the_rest());
        channel.note_end(looked)
    }
}
