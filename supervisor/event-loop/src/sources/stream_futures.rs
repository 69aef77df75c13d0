//! The futures of streams.
//!
//! Dropping a future cancels it: a connect is given up, and a read loses no bytes. Only a write that has begun goes on, so that
//! no message is cut off in the middle.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::panic::Location;
use std::path::Path;
use std::rc::Rc;

use super::SourceError;
use super::base::Source;
use super::reader::Readable;
use super::stream::Stream;
use super::stream_inner::{ConnectCallback, StreamInner};
use super::stream_io::WriteProgress;
use super::tcp::TcpOptions;
use super::transport;
use super::waiting::WaitingPlace;
use crate::one_shot::OneShot;
use crate::{Context, LoopHandle};

/// Gives up connecting unless somebody takes the stream.
struct GivenUpOnDrop(Option<Stream>);

impl Drop for GivenUpOnDrop {
    fn drop(&mut self) {
        if let Some(stream) = &self.0 {
            stream.inner.abandon();
        }
    }
}

async fn connected(start: impl FnOnce(ConnectCallback) -> Stream) -> Result<Stream, SourceError> {
    let answer = OneShot::new();
    let filled = Rc::clone(&answer);
    let done = move |_: &mut Context, _: &Stream, result| filled.fill(result);
    let stream = start(Box::new(done));
    if stream.is_closed() {
        // The loop is gone, and nobody answers.
        return Err(SourceError::Closed);
    }
    let mut stream = GivenUpOnDrop(Some(stream));
    answer.wait().await?;
    stream.0.take().ok_or(SourceError::Closed)
}

impl LoopHandle {
    /// Connects to `address` when it is first polled. Dropping the future gives it up.
    ///
    /// # Errors
    /// The errors that the callback of [`Stream::connect_tcp`] gets.
    #[track_caller]
    pub fn connect_tcp(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = Result<Stream, SourceError>> + use<> {
        self.connect_tcp_with(address, TcpOptions::new())
    }

    /// As [`LoopHandle::connect_tcp`], with these options.
    ///
    /// # Errors
    /// The errors that the callback of [`TcpOptions::connect`] gets.
    #[track_caller]
    pub fn connect_tcp_with(
        &self,
        address: SocketAddr,
        options: TcpOptions,
    ) -> impl Future<Output = Result<Stream, SourceError>> + use<> {
        let (event_loop, site) = (self.clone(), Location::caller());
        connected(move |done| {
            Stream::connecting(&event_loop, site, || options.start_connecting(address), done)
        })
    }

    /// Connects to the Unix socket at `path` when it is first polled. Dropping the future gives it up.
    ///
    /// # Errors
    /// The errors that the callback of [`Stream::connect_unix`] gets.
    #[track_caller]
    pub fn connect_unix(&self, path: &Path) -> impl Future<Output = Result<Stream, SourceError>> + use<> {
        let (event_loop, site, path) = (self.clone(), Location::caller(), path.to_owned());
        connected(move |done| Stream::connecting(&event_loop, site, || transport::connect_unix(&path), done))
    }
}

impl Stream {
    /// Waits until there is something to read, reads it into `buffer`, and returns how many bytes; 0 is the end of the stream.
    /// After 32 reads without waiting it lets other sources go first.
    ///
    /// # Errors
    /// As [`Stream::read_start`], and what the system says.
    pub async fn read(&self, buffer: &mut [u8]) -> Result<usize, SourceError> {
        let place = WaitingPlace::new(&*self.inner, StreamInner::leave_reading);
        poll_fn(|context| self.inner.poll_read(place.ticket, context.waker(), buffer)).await
    }

    /// Writes all of `bytes`, after what was given before: waits for room in the queue, then until the kernel has
    /// them. More than the [limit](Stream::set_write_limit) waits until the queue is empty. Of several futures that wait for room,
    /// the first to come has it first, however much it writes.
    ///
    /// Dropping the future while it waits for room writes nothing; later the bytes are written all the same.
    ///
    /// # Errors
    /// As [`Stream::write`], but for a full queue; [`SourceError::Cancelled`] if the stream is closed meanwhile;
    /// what the system says.
    pub async fn write_all(&self, bytes: impl AsRef<[u8]> + Into<Vec<u8>>) -> Result<(), SourceError> {
        self.wait_for_room(bytes.as_ref().len()).await?;
        self.begin_write(bytes).await
    }

    async fn wait_for_room(&self, length: usize) -> Result<(), SourceError> {
        let place = WaitingPlace::new(&*self.inner, StreamInner::leave_room);
        poll_fn(|context| self.inner.poll_room(place.ticket, length, context.waker())).await
    }

    async fn begin_write(&self, bytes: impl AsRef<[u8]> + Into<Vec<u8>>) -> Result<(), SourceError> {
        let answer = OneShot::new();
        let filled = Rc::clone(&answer);
        let done = Box::new(move |_: &mut Context, result| filled.fill(result));
        match self.inner.write_for_future(bytes, done) {
            WriteProgress::Through(_, result) => result,
            WriteProgress::Queued => answer.wait().await,
        }
    }

    /// Ends the writing side when everything is written. See [`Stream::shutdown`].
    ///
    /// # Errors
    /// As [`Stream::shutdown`], and what the system says.
    pub async fn shut_down(&self) -> Result<(), SourceError> {
        let answer = OneShot::new();
        let filled = Rc::clone(&answer);
        let site = self.inner.base.site();
        self.inner.shut_down(site, Box::new(move |_: &mut Context, result| filled.fill(result)))?;
        answer.wait().await
    }

    /// Closes the stream and resolves in the closing phase.
    ///
    /// # Errors
    /// As [`Stream::close`].
    pub async fn closed(&self) -> Result<(), SourceError> {
        let answer = OneShot::new();
        let filled = Rc::clone(&answer);
        self.inner.close(self.inner.base.site(), move |_| filled.fill(()))?;
        answer.wait().await;
        Ok(())
    }
}
