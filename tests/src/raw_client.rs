//! A client that keeps no manners: it writes what it likes, reads when it likes and as little as it likes, and hangs up
//! in the middle. [`Client`](offload_supervisor::client::Client) is too polite for that: it reads while it writes.

use bytes::Bytes;
use offload_protocol::codec;
use offload_protocol::frame::FrameDecoder;
use offload_protocol::limits::PAYLOAD_MAX_CEILING;
use offload_protocol::messages::{
    CLIENT_MAGIC, SubmitOptions, ToClient, ToSupervisor, VERSION_MAJOR, VERSION_MINOR,
};
use offload_protocol::nouns::{MediaType, OutcomeCode, Report};
use offload_protocol::outbox::Outbox;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// A message of the supervisor, as far as it matters here.
#[derive(Debug)]
pub enum Said {
    /// A job was taken.
    Accepted {
        /// Of the submission.
        ticket: u64,
        /// Its public id.
        job: String,
    },
    /// A request was refused.
    Rejected {
        /// Of the request.
        ticket: u64,
        /// Why, for programs.
        code: OutcomeCode,
        /// Why, for people.
        message: String,
    },
    /// A job has ended.
    Finished {
        /// Of the submission.
        ticket: u64,
        /// How.
        report: Box<Report>,
        /// Its output.
        output: Bytes,
    },
    /// The connection is about to be closed, for this reason.
    Goodbye(String),
    /// The welcome, the answer to a question, or a part of an output.
    Other,
}

/// What one read came to.
#[derive(Debug)]
pub enum Heard {
    /// Messages, perhaps none that is complete.
    Messages(Vec<Said>),
    /// Nothing came in time.
    Nothing,
    /// The supervisor closed the connection, or it broke.
    Closed,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct RawClient {
    socket: UnixStream,
    decoder: FrameDecoder,
    outbox: Outbox,
}

impl RawClient {
    /// Connects, and says nothing.
    ///
    /// # Errors
    /// Nobody listens, or not now.
    pub fn connect(socket: &Path) -> io::Result<RawClient> {
        let socket = UnixStream::connect(socket)?;
        socket.set_nonblocking(true)?;
        Ok(RawClient { socket, decoder: FrameDecoder::new(PAYLOAD_MAX_CEILING), outbox: Outbox::new() })
    }

    /// Queues the first message that a client has to send.
    pub fn greet(&mut self, name: &str) {
        let hello = ToSupervisor::Hello {
            magic: CLIENT_MAGIC,
            major: VERSION_MAJOR,
            minor: VERSION_MINOR,
            capabilities: 0,
            client: name,
        };
        self.queue(&hello, &Bytes::new());
    }

    /// Queues a job.
    pub fn submit(&mut self, ticket: u64, task: &str, input: &Bytes, options: SubmitOptions) {
        let media_type = MediaType::OCTET_STREAM;
        self.queue(&ToSupervisor::Submit { ticket, task, media_type, detach: false, options }, input);
    }

    /// Queues any message.
    ///
    /// # Panics
    /// If it does not fit on the wire.
    pub fn queue(&mut self, message: &ToSupervisor<'_>, payload: &Bytes) {
        self.outbox.push(message, payload).expect("the message fits");
    }

    /// Bytes queued and not written.
    pub fn unsent(&self) -> usize {
        self.outbox.len()
    }

    /// Writes at most `most` bytes of what is queued, as far as the socket takes them; returns how many.
    ///
    /// # Errors
    /// The connection broke.
    pub fn write(&mut self, most: usize) -> io::Result<usize> {
        let mut written = 0;
        while written < most && !self.outbox.is_empty() {
            let front = self.outbox.front();
            match self.socket.write(&front[..front.len().min(most - written)]) {
                Ok(count) => {
                    self.outbox.written(count);
                    written += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// Writes these bytes, whatever they are, and waits at most `limit` for that.
    ///
    /// # Errors
    /// The connection broke, or does not take them.
    pub fn write_bytes(&mut self, bytes: &[u8], limit: Duration) -> io::Result<()> {
        self.socket.set_nonblocking(false)?;
        self.socket.set_write_timeout(Some(limit))?;
        let written = self.socket.write_all(bytes);
        self.socket.set_nonblocking(true)?;
        written
    }

    /// Reads once, what the socket has, up to the decoder's space (at most 64 KiB), and waits at most until `deadline`.
    pub fn read(&mut self, deadline: Instant) -> Heard {
        let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        else {
            return self.read_now();
        };
        let set = self.socket.set_nonblocking(false).and_then(|()| self.socket.set_read_timeout(Some(left)));
        let heard = self.read_now();
        let _ = set.and_then(|()| self.socket.set_nonblocking(true));
        heard
    }

    fn read_now(&mut self) -> Heard {
        match self.socket.read(self.decoder.space()) {
            Ok(0) => Heard::Closed,
            Ok(count) => {
                self.decoder.filled(count);
                Heard::Messages(self.messages())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Heard::Nothing
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Heard::Nothing,
            Err(_) => Heard::Closed,
        }
    }

    fn messages(&mut self) -> Vec<Said> {
        let mut messages = Vec::new();
        loop {
            while let Some(frame) = self.decoder.next().expect("the supervisor keeps the protocol") {
                let message = codec::decode(&frame.header).expect("the supervisor keeps the protocol");
                messages.push(said(message, frame.payload.into_owned().into()));
            }
            // A large payload is announced first; asking for the next frame again takes it.
            if self.decoder.announced().is_none() {
                return messages;
            }
        }
    }

    /// Sends no more, and still listens.
    ///
    /// # Errors
    /// It is not connected any more.
    pub fn half_close(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }
}

fn said(message: ToClient<'_>, output: Bytes) -> Said {
    match message {
        ToClient::Accepted { ticket, job } => Said::Accepted { ticket, job: job.into_owned() },
        ToClient::Rejected { ticket, code, message, .. } => {
            Said::Rejected { ticket, code, message: message.into_owned() }
        }
        ToClient::Finished { ticket, report } => Said::Finished { ticket, report: Box::new(report), output },
        ToClient::Goodbye { reason } => Said::Goodbye(reason.into_owned()),
        ToClient::Welcome { .. }
        | ToClient::Answer { .. }
        | ToClient::Part { .. }
        | ToClient::SendInput { .. } => Said::Other,
    }
}
