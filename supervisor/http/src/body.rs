//! The bodies of requests and responses.

use crate::access_log::Logged;
use crate::guard::are_too_many;
use crate::leftover::Arriving;
use crate::limits::PIECE;
use crate::patience::{BodyPace, Document, GivenUp, Patience, RequestMark, Unread};
use crate::server::Hold;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use offload_protocol::nouns::MediaType;
use offload_supervisor::service::Collection;
use send_wrapper::SendWrapper;
use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Why the body of a request did not arrive as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// It did not come in time.
    Late,
    /// The connection was lost, or what came is no sound body.
    Broken,
}

impl fmt::Display for BodyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            BodyError::Late => "the body of the request did not come in time",
            BodyError::Broken => "the body of the request is not sound, or broke off",
        })
    }
}

impl std::error::Error for BodyError {}

/// The body of a request, as it comes in. What nobody takes is not read: the client has to wait.
pub struct RequestBody {
    /// Once it was waited for.
    pace: Option<BodyPace>,
    incoming: Arriving,
    /// What was read of it to see whether it has come as a whole.
    ahead: Option<Result<Bytes, BodyError>>,
    media_type: MediaType,
    mark: Rc<RequestMark>,
    max: Option<u64>,
    is_encoded: bool,
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.incoming.leave(&self.mark);
    }
}

impl RequestBody {
    /// The body behind this head.
    pub(crate) fn new(head: &Parts, incoming: Incoming, mark: Rc<RequestMark>) -> RequestBody {
        let media_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = media_type.and_then(|text| text.parse().ok()).unwrap_or(MediaType::OCTET_STREAM);
        let mut codings = head.headers.get_all(CONTENT_ENCODING).iter();
        let is_plain =
            |coding: &HeaderValue| coding.is_empty() || coding.as_bytes().eq_ignore_ascii_case(b"identity");
        let is_encoded = !codings.all(is_plain);
        let incoming = Arriving::new(incoming, head);
        RequestBody { pace: None, incoming, ahead: None, media_type, mark, max: None, is_encoded }
    }

    /// Whether it has a `Content-Encoding`, such as `gzip`: what comes is not what its media type says. As the input of a job it is
    /// refused.
    pub fn is_encoded(&self) -> bool {
        self.is_encoded
    }

    /// Its length in bytes, if the client has stated it.
    pub fn length(&self) -> Option<u64> {
        let ahead = self.ahead.as_ref().and_then(|ahead| ahead.as_ref().ok()).map_or(0, Bytes::len);
        Some(self.incoming.size_hint().exact()? + ahead as u64)
    }

    /// All of it, if its length was stated and it is here already. If not, nothing of it is lost: the rest is awaited with
    /// [`RequestBody::next`].
    pub(crate) fn whole_now(&mut self, context: &mut Context<'_>) -> Option<Bytes> {
        // Over HTTP/2 there may be fields behind no bytes.
        if self.length()? == 0 && self.incoming.is_end_stream() {
            return Some(Bytes::new());
        }
        let mark = Rc::clone(&self.mark);
        let next = || match self.poll_next(context) {
            Poll::Ready(Some(Ok(bytes))) if self.incoming.is_end_stream() => Some(bytes),
            Poll::Ready(other) => {
                self.ahead = other;
                None
            }
            Poll::Pending => None,
        };
        // Behind the last bytes nothing more of it is read, so nobody has to be woken for that.
        mark.patience().quiet.unheard(next, Option::is_none)
    }

    /// Sets how many bytes it may have when it becomes the input of a job. By default it is as many as the supervisor allows; a
    /// larger number changes nothing.
    pub fn set_max(&mut self, bytes: u64) {
        self.max = Some(bytes);
    }

    /// The request that it is of.
    pub(crate) fn request(&self) -> &Rc<RequestMark> {
        &self.mark
    }

    /// Of its connection.
    pub(crate) fn patience(&self) -> &Rc<Patience> {
        self.mark.patience()
    }

    pub(crate) fn max(&self) -> Option<u64> {
        self.max
    }

    /// What the client says it is; [`MediaType::OCTET_STREAM`] if it says nothing.
    pub fn media_type(&self) -> &MediaType {
        &self.media_type
    }

    /// The next bytes of it, as many as have come; None at its end. A handler that reads a body itself has to limit how many bytes it
    /// keeps: [`RequestBody::set_max`] does not count here, but the time limits do.
    ///
    /// # Errors
    /// A [`BodyError`]; nothing more will come.
    pub async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if let Some(ahead) = self.ahead.take() {
            return Poll::Ready(Some(ahead));
        }
        let patience = self.mark.patience();
        loop {
            if self.pace.as_ref().is_some_and(BodyPace::is_late) {
                return Poll::Ready(Some(Err(BodyError::Late)));
            }
            let Poll::Ready(frame) = self.incoming.poll_frame(context) else {
                self.pace.get_or_insert_with(|| patience.body()).wait(context);
                return Poll::Pending;
            };
            let came = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()).map_or(0, Bytes::len);
            self.pace.iter().for_each(|pace| pace.came(came));
            return Poll::Ready(match frame {
                None => None,
                Some(Err(_)) => Some(Err(BodyError::Broken)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => Some(Ok(bytes)),
                    Err(frame) if frame.trailers_ref().is_some_and(are_too_many) => {
                        Some(Err(BodyError::Broken))
                    }
                    // Fields behind the body say nothing that is used here.
                    Err(_trailers) => continue,
                },
            });
        }
    }
}

/// The body of a response.
#[derive(Default)]
pub struct Body {
    content: Content,
    /// The supervisor has written it for this answer alone, and it is charged to nobody: its connection counts it.
    document: Option<Document>,
    /// There is more of it than the client has asked for.
    unread: Option<Unread>,
    /// The request is under way until this is dropped.
    mark: Option<Rc<RequestMark>>,
    /// Its line in the access log is written when this is dropped.
    logged: Option<Box<Logged>>,
    /// Of a kept output, of which this is the only copy that the client can ask for.
    collection: Option<Collection>,
    /// Of the stream over which it is sent, if that is one of HTTP/2: that takes a piece long before the client does.
    stream: Option<Rc<GivenUp>>,
    /// Of one that may have no end: it is broken off with this.
    hold: Option<Rc<Hold>>,
    /// Of the last piece over HTTP/2.
    last: Option<BodyIsGone>,
}

#[derive(Default)]
enum Content {
    #[default]
    Empty,
    /// Nearly all are one piece.
    Piece(Bytes),
    /// Pieces of known length.
    Pieces { pieces: VecDeque<Bytes>, left: u64 },
    /// What this returns, until it returns None.
    Stream(Box<dyn Produce>),
}

impl Content {
    /// HTTP/2 takes a whole piece when the client has room for one more byte. So the last byte is a piece of its own: it is taken when the
    /// client has made room for everything. Until then the answer is unread, and what is collected with it stays.
    fn set_last_byte_apart(&mut self) {
        match self {
            Content::Empty | Content::Stream(_) => {}
            Content::Piece(piece) => {
                let left = piece.len() as u64;
                let last = piece.split_off(piece.len().saturating_sub(1));
                let pieces = [std::mem::take(piece), last].into_iter().filter(|piece| !piece.is_empty());
                *self = Content::Pieces { pieces: pieces.collect(), left };
            }
            Content::Pieces { pieces, .. } => {
                if let Some(mut piece) = pieces.pop_back() {
                    let last = piece.split_off(piece.len().saturating_sub(1));
                    pieces.extend([piece, last].into_iter().filter(|piece| !piece.is_empty()));
                }
            }
        }
    }
}

/// Why a body ends early: its connection (over HTTP/2, its stream) is broken off, so that nobody takes the part for the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokenOff;

impl fmt::Display for BrokenOff {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the output broke off")
    }
}

impl std::error::Error for BrokenOff {}

/// A source of bytes for a body. It is asked for more when the client has taken most of what came before.
pub trait Produce {
    /// The next bytes; None at the end. If there are none yet, the task is woken when there are. Empty bytes are asked for again in
    /// another turn.
    ///
    /// # Errors
    /// [`BrokenOff`] if the rest will never come.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenOff>>>;
}

impl Body {
    /// No bytes. Whatever becomes [`Bytes`] becomes a body of known length, too: `Body::from("text")`.
    pub fn empty() -> Body {
        Body::default()
    }

    /// These bytes. `held` is dropped when the last of them were handed to the system, or the client is gone.
    pub fn holding(bytes: Bytes, held: impl Any) -> Body {
        Body::from(holding(bytes, Rc::new(held)))
    }

    /// What `produce` returns, of a length that nobody has to know. It is asked only when the client has room, so a client that
    /// reads slowly costs no memory; it is dropped when the client is gone.
    pub fn stream(produce: impl Produce + 'static) -> Body {
        Body { content: Content::Stream(Box::new(produce)), ..Body::default() }
    }

    fn of_pieces(mut bytes: Bytes) -> Body {
        let content = match bytes.len() {
            0 => Content::Empty,
            1..=PIECE => Content::Piece(bytes),
            _ => {
                let left = bytes.len() as u64;
                let mut pieces = VecDeque::with_capacity(bytes.len().div_ceil(PIECE));
                while !bytes.is_empty() {
                    pieces.push_back(bytes.split_to(bytes.len().min(PIECE)));
                }
                Content::Pieces { pieces, left }
            }
        };
        Body { content, ..Body::default() }
    }

    /// It is one of the documents of this connection.
    pub(crate) fn count_document(&mut self, patience: &Rc<Patience>) {
        let bytes = http_body::Body::size_hint(self).exact().unwrap_or(0);
        self.document = Some(patience.document(usize::try_from(bytes).unwrap_or(usize::MAX)));
    }

    /// The answer to a HEAD has none. Returns how long it would be, if that is known. What would be collected with it stays.
    pub(crate) fn leave_out_content(&mut self) -> Option<u64> {
        let length = match self.content {
            Content::Empty => None,
            _ => http_body::Body::size_hint(self).exact(),
        };
        (self.content, self.document, self.collection) = (Content::Empty, None, None);
        length
    }

    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.content, Content::Stream(_))
    }

    pub(crate) fn hold(&mut self, hold: Option<Rc<Hold>>) {
        self.hold = hold;
    }

    pub(crate) fn log(&mut self, logged: Logged) {
        self.logged = Some(Box::new(logged));
    }

    /// When all of it was handed to the system, the kept output is collected. If the client is gone before, it stays.
    pub(crate) fn collects(&mut self, collection: Option<Collection>) {
        match self.content {
            Content::Empty => collection.into_iter().for_each(Collection::complete),
            Content::Piece(_) | Content::Pieces { .. } | Content::Stream(_) => self.collection = collection,
        }
    }

    /// The last piece. When it is dropped, all that came before it is gone, too.
    fn last(&mut self, piece: Bytes) -> Bytes {
        match (self.collection.take(), &self.mark) {
            (Some(collection), Some(mark)) => {
                let patience = Rc::clone(mark.patience());
                let is_taken = Rc::new(Cell::new(self.stream.is_none()));
                self.last = Some(BodyIsGone(Rc::clone(&is_taken)));
                holding(piece, Rc::new(Delivery { collection: Some(collection), patience, is_taken }))
            }
            _ => piece,
        }
    }

    /// It answers this request. `stream` is that of HTTP/2, if there is one.
    pub(crate) fn mark(&mut self, mark: Rc<RequestMark>, stream: Option<Rc<GivenUp>>) {
        if let Some(stream) = &stream {
            self.content.set_last_byte_apart();
            self.hold.iter().for_each(|hold| hold.ends_stream(stream));
        }
        self.stream = stream;
        self.unread = match self.content {
            Content::Empty => None,
            Content::Piece(_) | Content::Pieces { .. } | Content::Stream(_) => {
                Some(mark.patience().has_unread(self.stream.clone()))
            }
        };
        self.mark = Some(mark);
    }

    /// The client has made room for this, or for the end.
    fn was_read(&mut self, next: Option<&Bytes>) {
        match (next, &self.unread, &self.mark) {
            (None, ..) => self.unread = None,
            (Some(piece), Some(unread), _) => unread.was_read(piece.len()),
            (Some(_), None, Some(mark)) => {
                self.unread = Some(mark.patience().has_unread(self.stream.clone()));
            }
            (Some(_), None, None) => {}
        }
    }
}

/// The same bytes, which keep `held` until the last of them were handed to the system.
pub(crate) fn holding(bytes: Bytes, held: Rc<dyn Any>) -> Bytes {
    Bytes::from_owner(HeldPiece { piece: bytes, _held: SendWrapper::new(held) })
}

/// Goes with the last piece of a kept output.
struct Delivery {
    collection: Option<Collection>,
    patience: Rc<Patience>,
    /// Over HTTP/2, hyper asks for a piece before there is room for it, and drops the body when it has handed over the last one
    /// (`PipeToSendStream` of hyper 1.12 drops the piece that it has in hand before the body; a test resets such a stream). If the last
    /// piece is dropped while the body is still there, the stream was reset, and the client does not have the output.
    is_taken: Rc<Cell<bool>>,
}

/// Goes with the body, and says so to its last piece.
struct BodyIsGone(Rc<Cell<bool>>);

impl Drop for BodyIsGone {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

impl Drop for Delivery {
    /// Pieces are dropped when they are written, and when their stream or their connection is at its end.
    fn drop(&mut self) {
        if self.is_taken.get() && !self.patience.is_at_its_end() {
            self.collection.take().into_iter().for_each(Collection::complete);
        }
    }
}

/// A piece of an output with what it is charged to. The loop and everything on it stay on one thread; only the type of
/// [`Bytes`] does not know that.
struct HeldPiece {
    piece: Bytes,
    _held: SendWrapper<Rc<dyn Any>>,
}

impl AsRef<[u8]> for HeldPiece {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Body {
        Body::of_pieces(bytes.into())
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = http_body::Body::size_hint(self).exact();
        formatter.debug_struct("Body").field("length", &length).finish()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let is_over = self.hold.as_ref().is_some_and(|hold| hold.is_over());
        let next = match &mut self.content {
            Content::Empty => None,
            Content::Piece(piece) => {
                let piece = std::mem::take(piece);
                self.content = Content::Empty;
                Some(Ok(self.last(piece)))
            }
            Content::Pieces { pieces, left } => match pieces.pop_front() {
                None => None,
                Some(piece) => {
                    *left -= piece.len() as u64;
                    let is_last = *left == 0;
                    Some(Ok(if is_last { self.last(piece) } else { piece }))
                }
            },
            Content::Stream(_) if is_over => Some(Err(BrokenOff)),
            Content::Stream(produce) => match produce.poll_next(context) {
                Poll::Ready(Some(Ok(piece))) if piece.is_empty() => {
                    // Whoever takes pieces would ask again at once, and never let others have a turn.
                    self.unread = None;
                    match self.mark.as_ref().map(|mark| mark.patience()) {
                        Some(patience) => patience.wake_in_another_turn(context.waker()),
                        None => context.waker().wake_by_ref(),
                    }
                    return Poll::Pending;
                }
                Poll::Ready(next) => next,
                Poll::Pending => {
                    // The client has room, and waits.
                    self.unread = None;
                    self.hold.iter().for_each(|hold| hold.wait(context));
                    return Poll::Pending;
                }
            },
        };
        self.was_read(next.as_ref().and_then(|next| next.as_ref().ok()));
        if let (Some(logged), Some(Ok(piece))) = (&mut self.logged, &next) {
            logged.count(piece.len());
        }
        let unwritten = self.mark.as_ref().filter(|_| self.stream.is_some()).map(|mark| mark.patience());
        let piece = |bytes: Bytes| match unwritten {
            Some(patience) if !bytes.is_empty() => holding(bytes, Rc::new(patience.takes_piece())),
            _ => bytes,
        };
        Poll::Ready(next.map(|next| next.map(|bytes| Frame::data(piece(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Empty => true,
            Content::Piece(_) => false,
            Content::Pieces { left, .. } => *left == 0,
            Content::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Empty => SizeHint::with_exact(0),
            Content::Piece(piece) => SizeHint::with_exact(piece.len() as u64),
            Content::Pieces { left, .. } => SizeHint::with_exact(*left),
            Content::Stream(_) => SizeHint::default(),
        }
    }
}
