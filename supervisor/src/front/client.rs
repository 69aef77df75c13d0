//! The client's end of the local socket. It blocks, so it is meant for the command line and for programs without an
//! event loop.
//!
//! Many requests may be in flight at once. Each has a ticket, and its answers repeat the ticket:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use offload_protocol::messages::{ToClient, View};
//! use offload_supervisor::client::Client;
//!
//! let mut client = Client::connect("/run/user/1000/offload/offload.sock".as_ref(), "my program")?;
//! let tickets = ["1000", "2000"].map(|input| client.submit("primes", &input.into()));
//! for ticket in tickets {
//!     let ticket = ticket?;
//!     let (accepted, _) = client.answer_to(ticket)?;
//!     if let ToClient::Accepted { .. } = accepted {
//!         let (_finished, output) = client.answer_to(ticket)?;
//!         println!("{}", String::from_utf8_lossy(&output));
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! While a request waits to be written, answers to earlier requests are read and kept. Otherwise a client that sends
//! much before it reads would wait for a supervisor that waits for the client. The answers that are kept are bounded
//! by what the program has requested and not taken yet.

mod agreed;
mod error;

use super::peer::{is_same_user, process_of};
use crate::limits::GREETING_TIMEOUT;
use crate::wire::send_with;
use bytes::Bytes;
use offload_protocol::codec;
use offload_protocol::frame::{FrameDecoder, owned_payload};
use offload_protocol::greeting::Greeting;
use offload_protocol::limits::{NAME_MAX, PAYLOAD_MAX_CEILING};
use offload_protocol::messages::{
    CLIENT_CAPABILITIES, CLIENT_MAGIC, SubmitOptions, ToClient, ToSupervisor, VERSION_MAJOR, VERSION_MINOR,
    shared_capabilities,
};
use offload_protocol::nouns::{ErrorDetail, MediaType, OutcomeCode, cut};
use offload_protocol::outbox::Outbox;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

pub use error::{ClientError, ConnectError};

/// A message from the supervisor and its payload.
pub type Answer = (ToClient<'static>, Bytes);

/// A connection to a supervisor; see the module's documentation.
#[derive(Debug)]
pub struct Client {
    socket: UnixStream,
    decoder: FrameDecoder,
    outbox: Outbox,
    /// Messages that were read and have not been taken, in the order in which they arrived.
    inbox: VecDeque<Answer>,
    /// The reason that the supervisor gave before it closed the connection.
    goodbye: Option<ErrorDetail>,
    payload_max: usize,
    /// What both ends have.
    capabilities: u64,
    tickets: u64,
}

impl Client {
    /// Connects to the socket at `path` as `name`, of which at most [`NAME_MAX`] bytes are used. Waits while the
    /// supervisor is too busy to accept, and then for its welcome, each for at most [`GREETING_TIMEOUT`].
    ///
    /// The supervisor disconnects a client that has asked for nothing and waited for nothing for a minute.
    ///
    /// # Errors
    /// See [`ConnectError`]. Nothing is sent to a supervisor of another user.
    pub fn connect(path: &Path, name: &str) -> Result<Client, ConnectError> {
        let socket = open(path).map_err(|error| ConnectError::of(path, error))?;
        let mut client = Client {
            socket,
            decoder: FrameDecoder::new(PAYLOAD_MAX_CEILING),
            outbox: Outbox::new(),
            inbox: VecDeque::new(),
            goodbye: None,
            payload_max: 0,
            capabilities: 0,
            tickets: 0,
        };
        match client.greet(name) {
            Ok(()) => Ok(client),
            Err(ClientError::Closed { reason: Some(reason) }) => Err(ConnectError::Refused(reason)),
            Err(ClientError::Io(error)) => Err(ConnectError::of(path, error)),
            Err(ClientError::Closed { reason: None }) => {
                Err(ConnectError::Busy { socket: path.to_owned(), what: "it closed the connection" })
            }
            Err(error) => Err(ConnectError::of(path, io::Error::other(error))),
        }
    }

    /// The longest payload that the supervisor accepts, in bytes.
    pub fn payload_max(&self) -> usize {
        self.payload_max
    }

    /// The process id of the supervisor as this process sees it; none if it is in another pid namespace, as in a container.
    pub fn supervisor_process(&self) -> Option<u32> {
        process_of(&self.socket)
    }

    /// A ticket that no request of this client has had.
    pub fn new_ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// Sends a request. Returns when it is written.
    ///
    /// # Errors
    /// See [`ClientError`]. After `TooLarge` and `Encode` the connection can still be used.
    pub fn send(&mut self, request: &ToSupervisor<'_>, payload: &Bytes) -> Result<(), ClientError> {
        self.queue(request, payload)?;
        self.write()?;
        while !self.outbox.is_empty() {
            self.wait_and_go_on(None)?;
        }
        Ok(())
    }

    /// Like [`Client::send`], but only queues the request: for a program that waits for several things at once. Such a
    /// program watches the descriptor for input, and also for output while [`Client::has_unsent`]. When the descriptor
    /// is ready, the program calls [`Client::receive_until`] with a deadline of now, which reads and also writes.
    ///
    /// # Errors
    /// [`ClientError::TooLarge`] and [`ClientError::Encode`]. The connection can still be used.
    pub fn queue(&mut self, request: &ToSupervisor<'_>, payload: &Bytes) -> Result<(), ClientError> {
        if payload.len() > self.payload_max {
            return Err(ClientError::TooLarge { length: payload.len(), max: self.payload_max });
        }
        self.outbox.push(request, payload).map_err(ClientError::Encode)
    }

    /// Queues a `Submit` whose input is a file of `bytes` bytes: regular, open for reading, and within
    /// [`Client::payload_max`]. The descriptor is sent at once, which waits until everything before is written. Only if
    /// [`Client::takes_files`].
    ///
    /// The file is read by the worker, from its start and when it has started the job. Keep it open until the first answer. If
    /// that is [`ToClient::SendInput`], the supervisor cannot use the file now: send the request again, with its bytes as
    /// the payload. A job that is accepted may still end as `unsupported`, if not all workers take files.
    ///
    /// # Errors
    /// See [`ClientError`]. After `TooLarge` and `Encode` the connection can still be used.
    ///
    /// # Panics
    /// If the request is not a `Submit`.
    pub fn queue_with_file(
        &mut self,
        request: &ToSupervisor<'_>,
        (file, bytes): (&File, u64),
    ) -> Result<(), ClientError> {
        let &ToSupervisor::Submit { ticket, .. } = request else { panic!("only a Submit has an input") };
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        if length > self.payload_max {
            return Err(ClientError::TooLarge { length, max: self.payload_max });
        }
        let (mut announcement, mut submit) = (Vec::new(), Vec::new());
        codec::encode(&ToSupervisor::InputFile { ticket, bytes }, 0, &mut announcement)
            .map_err(ClientError::Encode)?;
        // Nothing is sent if the request does not fit into a header.
        codec::encode(request, 0, &mut submit).map_err(ClientError::Encode)?;
        while !self.outbox.is_empty() {
            self.wait_and_go_on(None)?;
        }
        self.send_descriptor(&announcement, file)?;
        self.outbox.push(request, &Bytes::new()).map_err(ClientError::Encode)
    }

    /// Sends a short message together with a descriptor. Waits until the socket takes all of it.
    fn send_descriptor(&mut self, message: &[u8], file: &File) -> Result<(), ClientError> {
        loop {
            match send_with(&self.socket, message, file.as_fd()) {
                // The kernel takes so short a message as a whole or not at all.
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN) => self.wait_for_room()?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.write_error(error)),
            }
        }
    }

    /// Waits until the socket takes more, and reads meanwhile.
    fn wait_for_room(&mut self) -> Result<(), ClientError> {
        let mut watched = [PollFd::new(&self.socket, PollFlags::IN | PollFlags::OUT)];
        match poll(&mut watched, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(ClientError::Io(error.into())),
        }
        let is_readable = watched[0].revents().intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR);
        if is_readable { self.read().map(|_| ()) } else { Ok(()) }
    }

    /// Whether a queued request has not been written completely.
    pub fn has_unsent(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// The next message, whatever request it answers. Waits without a limit, because a job may take long.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn receive(&mut self) -> Result<Answer, ClientError> {
        loop {
            if let Some(answer) = self.inbox.pop_front() {
                return Ok(answer);
            }
            self.wait_and_go_on(None)?;
        }
    }

    /// Like [`Client::receive`], but returns `None` if no message arrives before `deadline`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn receive_until(&mut self, deadline: Instant) -> Result<Option<Answer>, ClientError> {
        loop {
            if let Some(answer) = self.inbox.pop_front() {
                return Ok(Some(answer));
            }
            if !self.wait_and_go_on(Some(deadline))? {
                return Ok(None);
            }
        }
    }

    /// The next message that answers `ticket`. Other messages are kept for later. Waits without a limit.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn answer_to(&mut self, ticket: u64) -> Result<Answer, ClientError> {
        let mut seen = 0;
        loop {
            let found =
                self.inbox.iter().skip(seen).position(|(message, _)| message.ticket() == Some(ticket));
            if let Some(answer) = found.and_then(|at| self.inbox.remove(seen + at)) {
                return Ok(answer);
            }
            seen = self.inbox.len();
            self.wait_and_go_on(None)?;
        }
    }

    /// Sends the request that `build` makes from a new ticket, and waits for its first answer.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn request<'a>(
        &mut self,
        build: impl FnOnce(u64) -> ToSupervisor<'a>,
    ) -> Result<Answer, ClientError> {
        let ticket = self.new_ticket();
        self.send(&build(ticket), &Bytes::new())?;
        self.answer_to(ticket)
    }

    /// Submits a job with an input of raw bytes and default options. Returns its ticket. The ticket has two answers,
    /// `Accepted` and `Finished`, or only `Rejected`.
    ///
    /// # Errors
    /// See [`Client::send`].
    pub fn submit(&mut self, task: &str, payload: &Bytes) -> Result<u64, ClientError> {
        self.submit_with(task, payload, SubmitOptions::default())
    }

    /// As [`Client::submit`], for a job whose output is read in parts. The ticket has these answers: `Accepted`, then any
    /// number of `Part`, then `Finished` with the rest of the output; or only `Rejected`.
    ///
    /// Read them with [`Client::answer_to`] or [`Client::receive`], which read no more than is asked for: whoever reads
    /// slowly stops the task. While the program waits for the answer to another ticket, parts are kept here.
    ///
    /// # Errors
    /// See [`Client::send`].
    pub fn submit_stream(&mut self, task: &str, payload: &Bytes) -> Result<u64, ClientError> {
        let options = SubmitOptions { stream: true, ..SubmitOptions::default() };
        self.submit_with(task, payload, options)
    }

    fn submit_with(
        &mut self,
        task: &str,
        payload: &Bytes,
        options: SubmitOptions,
    ) -> Result<u64, ClientError> {
        let ticket = self.new_ticket();
        let media_type = MediaType::OCTET_STREAM;
        let submit = ToSupervisor::Submit { ticket, task, media_type, detach: false, options };
        self.send(&submit, payload)?;
        Ok(ticket)
    }

    fn greet(&mut self, name: &str) -> Result<(), ClientError> {
        let hello = ToSupervisor::Hello {
            magic: CLIENT_MAGIC,
            major: VERSION_MAJOR,
            minor: VERSION_MINOR,
            capabilities: CLIENT_CAPABILITIES,
            client: cut(name, NAME_MAX),
        };
        self.send(&hello, &Bytes::new())?;
        match self.receive_until(Instant::now() + GREETING_TIMEOUT)? {
            Some((welcome, _)) => {
                let ToClient::Welcome {
                    magic: CLIENT_MAGIC,
                    major: VERSION_MAJOR,
                    capabilities,
                    payload_max,
                    ..
                } = welcome
                else {
                    return Err(ClientError::Protocol("the first message is not a welcome".to_owned()));
                };
                self.capabilities = shared_capabilities(capabilities);
                self.payload_max = usize::try_from(payload_max).unwrap_or(usize::MAX);
                Ok(())
            }
            None => Err(ClientError::Io(io::Error::new(io::ErrorKind::TimedOut, "no welcome in time"))),
        }
    }

    /// Waits until the socket is ready, then reads once and writes as much as the socket takes. Returns whether the
    /// socket became ready before `deadline`.
    fn wait_and_go_on(&mut self, deadline: Option<Instant>) -> Result<bool, ClientError> {
        let ready = match self.poll(deadline) {
            Ok(ready) => ready,
            Err(Errno::INTR) => return Ok(true),
            Err(error) => return Err(ClientError::Io(error.into())),
        };
        if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            self.read()?;
        }
        if ready.contains(PollFlags::OUT) {
            self.write()?;
        }
        Ok(!ready.is_empty())
    }

    fn poll(&self, deadline: Option<Instant>) -> Result<PollFlags, Errno> {
        let interest = if self.outbox.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let mut descriptors = [PollFd::new(&self.socket, interest)];
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec::try_from(left).unwrap_or(LONGEST_WAIT));
        poll(&mut descriptors, left.as_ref())?;
        Ok(descriptors[0].revents())
    }

    /// Reads once. Returns whether there may be more.
    fn read(&mut self) -> Result<bool, ClientError> {
        match (&self.socket).read(self.decoder.space()) {
            Ok(0) => Err(self.closed()),
            Ok(count) => {
                self.decoder.filled(count);
                self.take_messages()?;
                Ok(true)
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(false),
                io::ErrorKind::ConnectionReset => Err(self.closed()),
                _ => Err(ClientError::Io(error)),
            },
        }
    }

    fn take_messages(&mut self) -> Result<(), ClientError> {
        loop {
            while let Some(frame) = self.decoder.next().map_err(ClientError::protocol)? {
                // The rest of such a welcome may be of another form.
                if let Some(greeting) = Greeting::of(&frame.header).filter(Greeting::is_foreign) {
                    return Err(ClientError::of_another_version(greeting));
                }
                let message: ToClient = codec::decode(&frame.header).map_err(ClientError::protocol)?;
                match message {
                    ToClient::Goodbye { reason } => {
                        let code = OutcomeCode::of_word(&frame.payload).unwrap_or(OutcomeCode::Overloaded);
                        self.goodbye = Some(ErrorDetail::new(code, reason));
                    }
                    other => self.inbox.push_back((into_owned(other), owned_payload(frame.payload))),
                }
            }
            // A large payload is announced first. Asking for the next frame again accepts it.
            if self.decoder.announced().is_none() {
                return Ok(());
            }
        }
    }

    /// Writes as much as the socket takes now.
    fn write(&mut self) -> Result<(), ClientError> {
        while !self.outbox.is_empty() {
            match send(&self.socket, self.outbox.front(), SendFlags::NOSIGNAL) {
                Ok(count) => self.outbox.written(count),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.write_error(error)),
            }
        }
        Ok(())
    }

    /// Why writing failed. If the other end does not read any more, what it sent before, perhaps a Goodbye, can still be read.
    fn write_error(&mut self, error: Errno) -> ClientError {
        match error {
            Errno::PIPE | Errno::CONNRESET => loop {
                match self.read() {
                    Ok(true) => {}
                    Ok(false) => return self.closed(),
                    Err(error) => return error,
                }
            },
            error => ClientError::Io(error.into()),
        }
    }

    fn closed(&self) -> ClientError {
        ClientError::Closed { reason: self.goodbye.clone() }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The longest wait that can be expressed. No deadline is further away.
const LONGEST_WAIT: Timespec = Timespec { tv_sec: i64::MAX, tv_nsec: 0 };

/// Connects. Waits its turn if many clients connect, but not forever: a supervisor that is stopped (as by SIGSTOP)
/// accepts nobody.
fn open(path: &Path) -> io::Result<UnixStream> {
    // Such a path would name an abstract socket, which has no file whose permissions restrict who may listen.
    if path.as_os_str().is_empty() || path.as_os_str().as_bytes().contains(&0) {
        let reason = "the path of a socket must not be empty and must not have a zero byte";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // On Linux this is also the longest time that `connect` waits for room in the listener's queue. Then it fails with
    // AGAIN.
    set_socket_timeout(&socket, Timeout::Send, Some(GREETING_TIMEOUT))?;
    retry_on_intr(|| connect(&socket, &address))?;
    let socket = UnixStream::from(socket);
    if !is_same_user(&socket) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user listens there"));
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The same message, independent of the buffer from which it was decoded.
fn into_owned(message: ToClient<'_>) -> ToClient<'static> {
    match message {
        ToClient::Welcome { magic, major, minor, capabilities, payload_max } => {
            ToClient::Welcome { magic, major, minor, capabilities, payload_max }
        }
        ToClient::Accepted { ticket, job } => ToClient::Accepted { ticket, job: job.into_owned().into() },
        ToClient::Rejected { ticket, code, message, retry_after_ms } => {
            ToClient::Rejected { ticket, code, message: message.into_owned().into(), retry_after_ms }
        }
        ToClient::Finished { ticket, report } => ToClient::Finished { ticket, report },
        ToClient::Answer { ticket } => ToClient::Answer { ticket },
        ToClient::Part { ticket } => ToClient::Part { ticket },
        ToClient::SendInput { ticket } => ToClient::SendInput { ticket },
        ToClient::Goodbye { reason } => ToClient::Goodbye { reason: reason.into_owned().into() },
    }
}
