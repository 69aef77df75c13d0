//! One connection with TLS. It reads records only when no plain text is left, and takes plain text only when no records are left to be
//! written. So what rustls holds for it is bounded: a handshake of at most [`HANDSHAKE_MAX`] bytes, or one record in each direction
//! and what was read together with it.
//!
//! ```text
//!   handshake --- complete ---> records --- close_notify, or the end of the socket ---> end
//!      |                           |
//!      |                           '--- one that is not sound: an alert ---> error
//!      '--- not sound, or too long: an alert ------------------------------> error
//!      '--- not TLS at all: whoever asks in plain text is answered in plain text
//! ```
//!
//! Renegotiation is refused, and rustls itself ends a connection that asks for new keys over and over or sends alerts that mean
//! nothing. A client may continue an earlier session (the last [`TLS_SESSIONS`] ones), which saves the expensive part of the handshake; it may
//! not send a request with the first packet (0-RTT), because that could be sent again by anybody.

use super::{BadTls, Tls, TlsVersion};
use crate::limits::{HANDSHAKE_MAX, HANDSHAKE_STEPS, HANDSHAKE_TIME, HEAD_COST, TLS_SESSIONS, TLS_WRITE};
use crate::line::Protocol;
use crate::socket::Socket;
use crate::turns::{Most, Place, Turns};
use offload_event_loop::LoopHandle;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ServerSessionMemoryCache;
use rustls::{Error, ProtocolVersion, ServerConfig, ServerConnection};
use std::cell::{Cell, RefCell};
use std::io::{self, BufRead, ErrorKind, IoSlice, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

const HTTP2: &[u8] = b"h2";

/// What may be spoken over it, the best first.
const PROTOCOLS: [&[u8]; 2] = [HTTP2, b"http/1.1"];

/// A certificate and a key that belong together.
#[derive(Clone)]
pub(super) struct Keys(Arc<ServerConfig>);

fn bad(text: impl Into<String>) -> BadTls {
    BadTls(text.into())
}

impl Keys {
    pub(super) fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Keys, BadTls> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
        let chain = chain.map_err(|_| bad("the file with the certificate is no sound PEM"))?;
        if chain.is_empty() {
            return Err(bad("there is no certificate in the file"));
        }
        // What is wrong with a key is not told in detail, because that could tell some of the key.
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
            pem::Error::NoItemsFound => bad("there is no private key in the file, or it has a passphrase"),
            _ => bad("the file with the key is no sound PEM"),
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| unusable(&error))?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        config.session_storage = ServerSessionMemoryCache::new(TLS_SESSIONS);
        Ok(Keys(Arc::new(config)))
    }
}

fn unusable(error: &Error) -> BadTls {
    match error {
        Error::InconsistentKeys(_) => bad("the certificate and the key do not belong together"),
        Error::InvalidCertificate(_) => bad(format!("the certificate cannot be used: {error}")),
        _ => bad(
            "the key is of a kind that is not supported: use ECDSA (P-256, P-384), Ed25519, or RSA of 2048 to 8192 bits",
        ),
    }
}

const HANDSHAKES: Most = Most { steps: HANDSHAKE_STEPS, time: HANDSHAKE_TIME };

/// Makes sessions, for the connections of one server.
pub(crate) struct Acceptor {
    tls: Tls,
    turns: Rc<Turns>,
}

impl Acceptor {
    pub(crate) fn new(tls: &Tls, handle: &LoopHandle) -> Acceptor {
        Acceptor { tls: tls.clone(), turns: Turns::new(handle, HANDSHAKES) }
    }

    /// The server's side of a new connection.
    ///
    /// # Errors
    /// rustls refuses to begin.
    pub(crate) fn accept(&self) -> Result<Session, BadTls> {
        let connection = ServerConnection::new(self.tls.keys().0);
        let mut connection = connection.map_err(|error| bad(error.to_string()))?;
        connection.set_buffer_limit(Some(TLS_WRITE));
        Ok(Session::new(connection, &self.turns))
    }
}

/// See the module's documentation.
pub(crate) struct Session {
    connection: RefCell<ServerConnection>,
    turns: Rc<Turns>,
    /// Among the connections whose handshake waits for its turn.
    place: Rc<Place>,
    /// Records were read that nobody has looked at.
    has_records: Cell<bool>,
    /// So many were read while the handshake was not complete.
    handshake_bytes: Cell<usize>,
    /// What the client has begun with, if that is no TLS.
    text_without_tls: RefCell<Option<Vec<u8>>>,
}

impl Session {
    /// The steps of its handshake are among these `turns`.
    pub(crate) fn new(connection: ServerConnection, turns: &Rc<Turns>) -> Session {
        Session {
            connection: RefCell::new(connection),
            turns: Rc::clone(turns),
            place: Place::of(&Arc::default()),
            has_records: Cell::new(false),
            handshake_bytes: Cell::new(0),
            text_without_tls: RefCell::default(),
        }
    }

    /// None before the handshake is complete.
    pub(crate) fn version(&self) -> Option<TlsVersion> {
        let connection = self.connection.borrow();
        match connection.protocol_version().filter(|_| !connection.is_handshaking())? {
            ProtocolVersion::TLSv1_3 => Some(TlsVersion::Tls13),
            _ => Some(TlsVersion::Tls12),
        }
    }

    /// What is spoken over it, if the client has named what it can speak (ALPN).
    pub(crate) fn agreed(&self) -> Option<Protocol> {
        match self.connection.borrow().alpn_protocol()? {
            HTTP2 => Some(Protocol::Http2),
            _ => Some(Protocol::Http1),
        }
    }

    /// The client speaks another protocol, in plain text.
    pub(crate) fn is_other_protocol(&self) -> bool {
        self.text_without_tls.borrow().is_some()
    }

    /// What it has begun with then.
    pub(crate) fn text_without_tls(&self) -> Option<Vec<u8>> {
        self.text_without_tls.borrow().clone()
    }

    /// Hands over at most `room` bytes of plain text, and says how many; 0 is the end.
    pub(crate) fn poll_read(
        &self,
        socket: &Socket,
        context: &Context<'_>,
        room: usize,
        take: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<usize>> {
        loop {
            // Records that were read before would otherwise be looked at, and so a handshake computed for nobody.
            if socket.is_cut() {
                return Poll::Ready(Err(ErrorKind::ConnectionAborted.into()));
            }
            if self.has_text()? {
                return Poll::Ready(self.hand_over(room, take));
            }
            ready!(self.poll_records(socket, context))?;
            ready!(self.poll_process(socket, context))?;
            // A client that sends records with nothing in them costs as much as one that sends requests.
            ready!(socket.poll_turn(context, HEAD_COST));
        }
    }

    /// Whether there is something to hand over; the end is.
    fn has_text(&self) -> io::Result<bool> {
        match self.connection.borrow_mut().reader().fill_buf() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            // Whoever ends without a close_notify may have been cut off; HTTP says itself where a request ends.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn hand_over(&self, room: usize, take: impl FnOnce(&[u8])) -> io::Result<usize> {
        let mut connection = self.connection.borrow_mut();
        let mut reader = connection.reader();
        let text = reader.fill_buf().unwrap_or_default();
        let count = text.len().min(room);
        take(&text[..count]);
        reader.consume(count);
        Ok(count)
    }

    /// Reads records, unless there are some.
    fn poll_records(&self, socket: &Socket, context: &Context<'_>) -> Poll<io::Result<()>> {
        if self.has_records.get() {
            return Poll::Ready(Ok(()));
        }
        let mut connection = self.connection.borrow_mut();
        let is_first = connection.is_handshaking() && self.handshake_bytes.get() == 0;
        let mut records = Records { socket, context, text: is_first.then(Vec::new) };
        match connection.read_tls(&mut records) {
            Ok(count) => {
                self.has_records.set(count > 0);
                Poll::Ready(self.check_handshake(&connection, count, records.text))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Whether what has come may be the handshake, or a part of it.
    fn check_handshake(
        &self,
        connection: &ServerConnection,
        count: usize,
        text: Option<Vec<u8>>,
    ) -> io::Result<()> {
        if !connection.is_handshaking() {
            return Ok(());
        }
        let before = self.handshake_bytes.get();
        self.handshake_bytes.set(before + count);
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.text_without_tls.replace(Some(text));
            return Err(io::Error::new(ErrorKind::InvalidData, "the client does not speak TLS"));
        }
        match before + count > HANDSHAKE_MAX {
            true => Err(io::Error::new(ErrorKind::InvalidData, "the handshake is too long")),
            false => Ok(()),
        }
    }

    /// Looks at the records that were read. A step of a handshake waits for its turn.
    fn poll_process(&self, socket: &Socket, context: &Context<'_>) -> Poll<io::Result<()>> {
        if !self.has_records.get() {
            return Poll::Ready(Ok(()));
        }
        let is_handshaking = self.connection.borrow().is_handshaking();
        if is_handshaking && self.turns.poll(&self.place, context).is_pending() {
            // Meanwhile its time may be over, or it may have to give way.
            socket.wait_to_read(context);
            return Poll::Pending;
        }
        let since = Instant::now();
        let processed = self.connection.borrow_mut().process_new_packets();
        self.has_records.set(false);
        if is_handshaking {
            self.turns.spend(since.elapsed());
        }
        // Its own part of the handshake, an alert, new keys. If the socket takes no more now, the task is woken when it does.
        let flushed = self.poll_flush(socket, context);
        match (processed, flushed) {
            (Err(error), _) => Poll::Ready(Err(io::Error::new(ErrorKind::InvalidData, error))),
            (Ok(_), Poll::Ready(Err(error))) => Poll::Ready(Err(error)),
            (Ok(_), _) => Poll::Ready(Ok(())),
        }
    }

    /// Takes as much of the pieces as there is room for, when everything before is written.
    pub(crate) fn poll_write(
        &self,
        socket: &Socket,
        context: &Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(socket, context))?;
        let count = self.connection.borrow_mut().writer().write_vectored(pieces)?;
        match self.poll_flush(socket, context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(count)),
        }
    }

    /// Writes what waits to be written.
    pub(crate) fn poll_flush(&self, socket: &Socket, context: &Context<'_>) -> Poll<io::Result<()>> {
        let mut connection = self.connection.borrow_mut();
        while connection.wants_write() {
            match connection.write_tls(&mut Records { socket, context, text: None }) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Tells the client that nothing more comes (close_notify); to be flushed. Nothing is told after an alert that ends all.
    pub(crate) fn close(&self) {
        self.connection.borrow_mut().send_close_notify();
    }
}

/// The socket as rustls reads and writes it.
struct Records<'a, 'b> {
    socket: &'a Socket,
    context: &'a Context<'b>,
    /// For what is read first, if that begins like a text.
    text: Option<Vec<u8>>,
}

fn or_would_block(polled: Poll<io::Result<usize>>) -> io::Result<usize> {
    match polled {
        Poll::Ready(result) => result,
        Poll::Pending => Err(ErrorKind::WouldBlock.into()),
    }
}

impl io::Read for Records<'_, '_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let length = room.len();
        let polled =
            self.socket.poll_read(self.context, length, |socket| rustix::io::read(socket, &mut *room));
        let count = or_would_block(polled)?;
        if let (Some(text), Some(b'A'..=b'Z' | b'a'..=b'z')) = (&mut self.text, room[..count].first()) {
            text.extend_from_slice(&room[..count]);
        }
        Ok(count)
    }
}

impl Write for Records<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        or_would_block(self.socket.poll_write(self.context, pieces))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
