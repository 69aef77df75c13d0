//! The socket to the supervisor: jobs in, answers out.
//!
//! [`Link::next_jobs`] sends what is waiting to be sent, and waits for a job. [`Link::look`] takes what has arrived, without
//! waiting, so that a Cancel is seen between two jobs (of a row of tiny ones, every [`LOOK_EVERY`]) and, if the task asks for
//! it, during a job. For a stepped task the
//! session looks between steps; then [`Link::due_between`] returns the job that can run before the next step. Waiting has
//! no deadline: a worker without jobs has nothing else to do, and it ends with its supervisor. Before it waits, it looks
//! into its tray (`tray.rs`), so that the answer to one job and the start of the next one are sent together.

use crate::behind::Behind;
use crate::inbox::{Due, Inbox, Turn};
use crate::limits::{DESCRIPTORS_MAX, RUNNING_MAX, TRAY_RUN_MIN};
use crate::linger::Linger;
use crate::parts::PartError;
use crate::session_error::SessionError;
use crate::tray::{Tray, receive_with_descriptor};
use bytes::Bytes;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv};
use offload_protocol::codec::DecodeError;
use offload_protocol::frame::{FrameDecoder, FrameError};
use offload_protocol::limits::{INLINE_PAYLOAD_MAX, LINGER, PART_MAX, PAYLOAD_MAX_CEILING};
use offload_protocol::messages::{FILES, FromWorker, LINGERING, PROGRAMS, SEGMENTS};
use offload_protocol::outbox::Outbox;
use rustix::net::RecvFlags;
use std::io::{self, ErrorKind, Write};
use std::net::Shutdown;
#[cfg(feature = "exec")]
use std::os::fd::BorrowedFd;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// While jobs wait here, the socket is looked at after a job only if the last look is older than this. A look is a system
/// call, and without this bound every tiny job would make one: it saved 0.5 us of 1.8 us a job.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// Why there is no next job.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The supervisor is gone, or has no more jobs for this worker.
    SupervisorGone,
    /// What this worker stands in front of has ended, or has to.
    LifeIsOver,
    Error(SessionError),
}

impl From<FrameError> for Stop {
    fn from(error: FrameError) -> Stop {
        Stop::Error(SessionError::Frame(error))
    }
}

impl From<DecodeError> for Stop {
    fn from(error: DecodeError) -> Stop {
        Stop::Error(SessionError::Decode(error))
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Stop::SupervisorGone,
            _ => Stop::Error(SessionError::Io(error)),
        }
    }
}

/// See the module's documentation.
pub(crate) struct Link {
    stream: UnixStream,
    decoder: FrameDecoder,
    outbox: Outbox,
    inbox: Inbox,
    tray: Option<Tray>,
    /// A job has ended that was long enough for another one to lie behind it.
    is_tray_worth_a_look: bool,
    /// When the last job ended.
    ended_at: Instant,
    /// When a job had ended after which the socket was last looked at.
    looked_at: Instant,
    /// Whether to look for the next job before going to sleep.
    linger: Linger,
    /// What this worker stands in front of.
    behind: Option<Box<dyn Behind>>,
    /// An error that occurred while a task was looking. It is kept until the session asks for the next job.
    stop: Option<Stop>,
}

impl Link {
    pub(crate) fn new(stream: UnixStream, behind: Option<Box<dyn Behind>>) -> io::Result<Link> {
        // The supervisor may have made both ends of the pair non-blocking. This end has to block.
        stream.set_nonblocking(false)?;
        // The supervisor has checked the lengths of inputs.
        let decoder = FrameDecoder::new(PAYLOAD_MAX_CEILING);
        let (outbox, inbox, now) = (Outbox::new(), Inbox::default(), Instant::now());
        Ok(Link {
            stream,
            decoder,
            outbox,
            inbox,
            tray: None,
            is_tray_worth_a_look: false,
            ended_at: now,
            looked_at: now,
            linger: Linger::default(),
            behind,
            stop: None,
        })
    }

    /// Adds a message to those that are sent next.
    ///
    /// # Panics
    /// If it is too long for the wire. Names, messages and outputs are bounded before they get here.
    pub(crate) fn push(&mut self, message: &FromWorker<'_>, payload: &Bytes) {
        self.outbox.push(message, payload).expect("every message of a worker fits into a frame");
    }

    /// Sends everything. Blocks until the supervisor has read enough.
    pub(crate) fn flush(&mut self) -> Result<(), Stop> {
        while !self.outbox.is_empty() {
            match self.stream.write(self.outbox.front()) {
                Ok(count) => self.outbox.written(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// As [`Link::flush`], for a task: an error is kept until the task has returned.
    pub(crate) fn try_flush(&mut self) {
        if let Err(stop) = self.flush() {
            self.stop.get_or_insert(stop);
        }
    }

    /// Sends what is waiting to be sent, and waits until the supervisor has said what it can.
    pub(crate) fn wait_for_welcome(&mut self) -> Result<(), Stop> {
        self.flush()?;
        while self.inbox.capabilities.is_none() && self.inbox.turns.is_empty() && !self.inbox.draining {
            self.receive(MsgFlags::empty())?;
        }
        Ok(())
    }

    /// The next job, or the next jobs that run together; `None` if the supervisor has no more for this worker.
    pub(crate) fn next_jobs(&mut self) -> Result<Option<Due>, Stop> {
        if !self.inbox.turns.is_empty() && self.ended_at - self.looked_at >= LOOK_EVERY {
            self.looked_at = self.ended_at;
            self.look();
        }
        loop {
            if let Some(stop) = self.stop.take() {
                return Err(stop);
            }
            match self.inbox.next_turn() {
                Some(Turn::Run(due)) => return Ok(Some(due)),
                Some(Turn::Skip { id }) => self.skip(id),
                None => {
                    if self.outbox.held() > INLINE_PAYLOAD_MAX {
                        // The supervisor may have no room for this answer. It must not hold up a job from the tray.
                        self.flush()?;
                    }
                    if self.look_into_tray()? {
                        continue;
                    }
                    self.flush()?;
                    if self.inbox.draining {
                        return Ok(None);
                    }
                    self.wait_for_jobs()?;
                }
            }
        }
    }

    /// Waits until something has arrived. If the last job had come alone, looks for the next one for a while before it sleeps.
    fn wait_for_jobs(&mut self) -> Result<(), Stop> {
        let may_linger = self.supervisor_can(LINGERING);
        if !(may_linger && self.linger.begins() && self.look_for_a_while()?) {
            self.wait_for_news()?;
            self.receive(MsgFlags::empty())?;
        }
        self.linger.came(self.inbox.turns.len());
        Ok(())
    }

    /// Waits until something has come from the supervisor, unless what this worker stands in front of is over before that.
    ///
    /// A worker that slept in `recv` would be woken whenever the supervisor has read one of its answers, because the system wakes
    /// whoever sleeps on a Unix socket when there is more room in it. `poll` sleeps until there is something to read.
    fn wait_for_news(&mut self) -> Result<(), Stop> {
        while self.behind.is_none() {
            match poll(&mut [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
        while let Some(behind) = &self.behind {
            let watched = behind.watched().iter().map(AsFd::as_fd);
            let all = watched.chain([self.stream.as_fd()]).map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            let mut polled: Vec<PollFd<'_>> = all.collect();
            match poll(&mut polled, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
            let has_news = |polled: &PollFd<'_>| polled.any() == Some(true);
            let (is_behind, is_here) = match polled.split_last() {
                Some((here, behind)) => (behind.iter().any(has_news), has_news(here)),
                None => return Ok(()),
            };
            if is_behind {
                self.ask_behind(|behind, can_tell| behind.look(can_tell))?;
            } else if is_here {
                return Ok(());
            }
        }
        Ok(())
    }

    /// A job is about to begin, for which what this worker stands in front of has to be ready. That may take a while, for which the
    /// answer to the job before must not wait: its time would go on.
    pub(crate) fn get_ready(&mut self) -> Result<(), Stop> {
        if self.behind.is_some() {
            self.flush()?;
        }
        self.ask_behind(|behind, can_tell| behind.get_ready(can_tell))
    }

    /// If the answer is no, this session is over, once all answers are sent.
    fn ask_behind(&mut self, question: impl FnOnce(&mut dyn Behind, bool) -> bool) -> Result<(), Stop> {
        let can_tell = self.supervisor_can(PROGRAMS);
        match self.behind.as_deref_mut().is_none_or(|behind| question(behind, can_tell)) {
            true => Ok(()),
            false => {
                self.flush()?;
                Err(Stop::LifeIsOver)
            }
        }
    }

    fn look_for_a_while(&mut self) -> Result<bool, Stop> {
        let end = Instant::now() + LINGER;
        let mut has_found = false;
        while !has_found && Instant::now() < end {
            std::hint::spin_loop();
            has_found = matches!(self.receive(MsgFlags::MSG_DONTWAIT)?, Received::Something);
        }
        self.linger.looked(has_found);
        Ok(has_found)
    }

    fn skip(&mut self, job: u64) {
        self.answer(job, &FromWorker::Skipped { job }, Bytes::new());
    }

    /// Takes the job that lies in the tray. False if there is none.
    fn look_into_tray(&mut self) -> Result<bool, Stop> {
        let is_worth_it = std::mem::take(&mut self.is_tray_worth_a_look);
        match self.tray.as_mut().filter(|_| is_worth_it).and_then(Tray::take) {
            Some(decoder) => self.inbox.take_all(decoder).map(|()| true),
            None => Ok(false),
        }
    }

    /// What has arrived while a job runs, to be run before the next step of that one. `None` also if the running job itself
    /// runs between the steps of another. Jobs that run together, and all behind them, wait for its end.
    pub(crate) fn due_between(&mut self) -> Result<Option<Due>, Stop> {
        while self.inbox.running.len() < RUNNING_MAX && !self.inbox.is_batch_next() {
            match self.inbox.next_turn() {
                Some(Turn::Run(due)) => return Ok(Some(due)),
                Some(Turn::Skip { id }) => self.skip(id),
                None => break,
            }
        }
        self.flush()?;
        Ok(None)
    }

    /// Adds the answer to a job. A large output is put into a segment if there is one for it.
    ///
    /// # Panics
    /// As [`Link::push`].
    pub(crate) fn answer(&mut self, job: u64, message: &FromWorker<'_>, payload: Bytes) {
        let mut before = Vec::new();
        let payload = match message {
            FromWorker::Finished { .. } => self.inbox.segments.end(job, payload, &mut before),
            _ => {
                self.inbox.segments.end(job, Bytes::new(), &mut before);
                payload
            }
        };
        before.iter().for_each(|message| self.push(message, &Bytes::new()));
        self.push(message, &payload);
    }

    /// The job that was given last has been answered. Its task returned at `now` and ran so long.
    pub(crate) fn ended(&mut self, now: Instant, ran: Duration) {
        self.ended_at = now;
        self.inbox.running.pop();
        self.is_tray_worth_a_look = ran >= TRAY_RUN_MIN;
    }

    /// As [`Link::look`], between two steps: an error is returned at once, because no task is running.
    pub(crate) fn look_between(&mut self) -> Result<(), Stop> {
        self.look();
        self.stop.take().map_or(Ok(()), Err)
    }

    /// The socket, which is readable when [`Link::look`] has something to take. `None` while it takes no more.
    #[cfg(feature = "exec")]
    pub(crate) fn news(&self) -> Option<BorrowedFd<'_>> {
        (self.stop.is_none() && self.inbox.has_room()).then(|| self.stream.as_fd())
    }

    /// Takes what has arrived, without waiting.
    pub(crate) fn look(&mut self) {
        while self.stop.is_none() && self.inbox.has_room() {
            match self.receive(MsgFlags::MSG_DONTWAIT) {
                Ok(Received::Something) => {}
                Ok(Received::Nothing) => return,
                Err(stop) => self.stop = Some(stop),
            }
        }
    }

    /// Sends a part of the output of the running job, in pieces, as far as there is credit. Waits for more credit.
    pub(crate) fn send_part(&mut self, job: u64, attempt: u32, mut part: Bytes) -> Result<(), PartError> {
        self.look();
        while !part.is_empty() {
            let credit = usize::try_from(self.wait_for_credit()?).unwrap_or(usize::MAX);
            let piece = part.split_to(part.len().min(PART_MAX).min(credit));
            self.inbox.spend_credit(piece.len() as u64);
            self.push(&FromWorker::Part { job, attempt }, &piece);
            self.try_flush();
        }
        if self.is_running_cancelled() { Err(PartError::Cancelled) } else { Ok(()) }
    }

    /// The credit of the running job, which is at least one byte.
    fn wait_for_credit(&mut self) -> Result<u64, PartError> {
        loop {
            if self.is_running_cancelled() {
                return Err(PartError::Cancelled);
            }
            match self.inbox.credit() {
                0 => {}
                credit => return Ok(credit),
            }
            if let Err(stop) = self.receive(MsgFlags::empty()) {
                self.stop = Some(stop);
            }
        }
    }

    /// Whether the supervisor has stated this capability.
    pub(crate) fn supervisor_can(&self, capability: u64) -> bool {
        self.inbox.capabilities.is_some_and(|both| both & capability != 0)
    }

    /// Whether the running job was cancelled, or the supervisor is gone.
    pub(crate) fn is_running_cancelled(&self) -> bool {
        let cancelled = self.inbox.running.last().is_some_and(|running| running.cancelled);
        cancelled || self.stop.is_some()
    }

    /// Whether the supervisor has asked for the running job back. True only once: a job that cannot be given back is not
    /// asked again.
    pub(crate) fn is_running_wanted_back(&mut self) -> bool {
        self.inbox.running.last_mut().is_some_and(|running| std::mem::take(&mut running.wanted_back))
    }

    /// The longest payload that the supervisor takes, in bytes, if it has said so.
    pub(crate) fn payload_max(&self) -> Option<usize> {
        self.inbox.payload_max
    }

    pub(crate) fn send_garbage(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub(crate) fn close(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Both)
    }

    fn receive(&mut self, flags: MsgFlags) -> Result<Received, Stop> {
        let received = match self.inbox.capabilities {
            Some(capabilities) if capabilities & (SEGMENTS | FILES) == 0 => {
                recv(self.stream.as_raw_fd(), self.decoder.space(), flags)
            }
            _ => self.receive_with_descriptor(flags),
        };
        match received {
            Ok(0) => return Err(Stop::SupervisorGone),
            Ok(count) => self.decoder.filled(count),
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(Received::Nothing),
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
        self.inbox.take_all(&mut self.decoder)?;
        if let Some(end) = self.inbox.tray_end.take() {
            self.tray = Some(Tray::new(end));
        }
        let mut answers = std::mem::take(&mut self.inbox.answers);
        answers.drain(..).for_each(|answer| self.push(&answer, &Bytes::new()));
        self.inbox.answers = answers;
        Ok(Received::Something)
    }

    /// A descriptor may come with the welcome, with each segment and with each input that is a file.
    fn receive_with_descriptor(&mut self, flags: MsgFlags) -> nix::Result<usize> {
        let flags = RecvFlags::from_bits_retain(flags.bits().cast_unsigned());
        let received = receive_with_descriptor(&self.stream, self.decoder.space(), flags);
        let (count, descriptor) = received.map_err(|errno| Errno::from_raw(errno.raw_os_error()))?;
        self.inbox.descriptors.extend(descriptor);
        // Each belongs to a message that is in the decoder, and at most two messages with one are there.
        self.inbox.descriptors.truncate(DESCRIPTORS_MAX);
        Ok(count)
    }
}

enum Received {
    Something,
    Nothing,
}
