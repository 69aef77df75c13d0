//! For tests: a fake supervisor that gives scripted answers, on its own thread and socket.

use bytes::Bytes;
use offload_protocol::codec;
use offload_protocol::frame::FrameDecoder;
use offload_protocol::limits::PAYLOAD_MAX_DEFAULT;
use offload_protocol::messages::{CLIENT_MAGIC, ToClient, ToSupervisor, VERSION_MAJOR, VERSION_MINOR};
use offload_protocol::nouns::{OutcomeCode, Report};
use offload_protocol::outbox::Outbox;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// The longest payload that it takes.
pub(super) const PAYLOAD_MAX: u64 = 1000;

/// What it does with a message: `Break` closes the connection.
type Behaviour = dyn FnMut(&ToSupervisor<'_>, &mut Outbox) -> ControlFlow<()> + Send;

/// A socket that answers as long as this value lives.
pub(super) struct FakeSupervisor {
    folder: TempDir,
}

impl FakeSupervisor {
    /// Serves one client: greets it, then does with every message what `behaviour` says.
    pub(super) fn start(
        behaviour: impl FnMut(&ToSupervisor<'_>, &mut Outbox) -> ControlFlow<()> + Send + 'static,
    ) -> FakeSupervisor {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        std::thread::spawn(move || serve(&listener, Box::new(behaviour)));
        FakeSupervisor { folder }
    }

    /// Where it is.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }
}

/// A job that ended ok.
pub(super) fn finished_ok(ticket: u64) -> ToClient<'static> {
    let report: Report = super::render::refused("task", OutcomeCode::Ok, String::new()).report;
    ToClient::Finished { ticket, report: Report { error: None, ..report } }
}

fn serve(listener: &UnixListener, mut behaviour: Box<Behaviour>) {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut decoder = FrameDecoder::new(PAYLOAD_MAX_DEFAULT);
    loop {
        match stream.read(decoder.space()) {
            Ok(0) | Err(_) => return,
            Ok(count) => decoder.filled(count),
        }
        if answer_all(&mut decoder, &mut behaviour, &mut stream).is_break() {
            return;
        }
    }
}

fn answer_all(
    decoder: &mut FrameDecoder,
    behaviour: &mut Behaviour,
    stream: &mut UnixStream,
) -> ControlFlow<()> {
    while let Some(frame) = decoder.next().unwrap() {
        let mut outbox = Outbox::new();
        let message: ToSupervisor = codec::decode(&frame.header).unwrap();
        let flow = match message {
            ToSupervisor::Hello { .. } => greet(&mut outbox),
            other => behaviour(&other, &mut outbox),
        };
        while !outbox.is_empty() {
            let Ok(count) = stream.write(outbox.front()) else { return ControlFlow::Break(()) };
            outbox.written(count);
        }
        flow?;
    }
    ControlFlow::Continue(())
}

fn greet(outbox: &mut Outbox) -> ControlFlow<()> {
    let (magic, major, minor) = (CLIENT_MAGIC, VERSION_MAJOR, VERSION_MINOR);
    outbox
        .push(
            &ToClient::Welcome { magic, major, minor, capabilities: 0, payload_max: PAYLOAD_MAX },
            &Bytes::new(),
        )
        .unwrap();
    ControlFlow::Continue(())
}
