//! hyper on tokio, on one thread, saying hello; and an echo through child processes, as one would write it by hand.
//!
//! The echo is the least that such a service can do: a body goes to one of two children in turn, over a socket pair, behind its number
//! and its length, and comes back. Whatever waits for a child is written at once. Nothing is bounded, timed, measured, authorized or
//! started again; a child that dies ends it all.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::error::Error;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Pair;
use std::process::{Command, Stdio};
use std::rc::Rc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream, unix::OwnedReadHalf, unix::OwnedWriteHalf};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Duration, Instant};

const CHILDREN: usize = 2;
/// Number and length, each of 8 bytes.
const HEAD: usize = 16;

type Failure = Box<dyn Error + Send + Sync>;

struct Child {
    next: Cell<u64>,
    waiting: RefCell<HashMap<u64, oneshot::Sender<Bytes>>>,
    unsent: RefCell<Vec<u8>>,
    filled: Notify,
}

impl Child {
    fn start() -> Result<Rc<Child>, Box<dyn Error>> {
        let (ours, theirs) = Pair::pair()?;
        let theirs = OwnedFd::from(theirs);
        Command::new(std::env::current_exe()?).arg("child").stdin(Stdio::from(theirs)).spawn()?;
        ours.set_nonblocking(true)?;
        let (from, to) = UnixStream::from_std(ours)?.into_split();
        let child = Rc::new(Child { next: Cell::new(0), waiting: RefCell::default(), unsent: RefCell::default(), filled: Notify::new() });
        tokio::task::spawn_local(child.clone().write(to));
        tokio::task::spawn_local(child.clone().read(from));
        Ok(child)
    }

    async fn write(self: Rc<Child>, mut to: OwnedWriteHalf) {
        loop {
            self.filled.notified().await;
            let all = self.unsent.take();
            to.write_all(&all).await.expect("the child lives");
        }
    }

    async fn read(self: Rc<Child>, mut from: OwnedReadHalf) {
        let mut came = Vec::with_capacity(1 << 16);
        loop {
            assert!(from.read_buf(&mut came).await.expect("the child lives") > 0, "the child has gone");
            let mut at = 0;
            while let Some((number, body)) = message(&came[at..]) {
                if let Some(asked) = self.waiting.borrow_mut().remove(&number) {
                    let _ = asked.send(Bytes::copy_from_slice(body));
                }
                at += HEAD + body.len();
            }
            came.drain(..at);
        }
    }

    async fn ask(&self, body: &[u8]) -> Result<Bytes, Failure> {
        let number = self.next.replace(self.next.get() + 1);
        let (answered, answer) = oneshot::channel();
        self.waiting.borrow_mut().insert(number, answered);
        {
            let mut unsent = self.unsent.borrow_mut();
            unsent.extend_from_slice(&number.to_le_bytes());
            unsent.extend_from_slice(&(body.len() as u64).to_le_bytes());
            unsent.extend_from_slice(body);
        }
        self.filled.notify_one();
        Ok(answer.await?)
    }
}

/// The first message of what came, if it is whole.
fn message(came: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = came.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let body = rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    Some((u64::from_le_bytes(*number), body))
}

/// The child: whatever comes goes back.
fn child() -> Result<(), Box<dyn Error>> {
    let mut supervisor = Pair::from(std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned()?);
    let mut came = vec![0; 1 << 16];
    loop {
        let length = supervisor.read(&mut came)?;
        if length == 0 {
            return Ok(supervisor.shutdown(Shutdown::Both)?);
        }
        supervisor.write_all(&came[..length])?;
    }
}

struct Service {
    children: Vec<Rc<Child>>,
    turn: Cell<usize>,
    lag: Rc<Lag>,
}

/// How late a timer of 10 ms was, each time since it was last asked, in microseconds.
#[derive(Default)]
struct Lag {
    late: RefCell<Vec<u128>>,
}

impl Lag {
    async fn watch(self: Rc<Lag>) {
        loop {
            let due = Instant::now() + Duration::from_millis(10);
            tokio::time::sleep_until(due).await;
            self.late.borrow_mut().push(due.elapsed().as_micros());
        }
    }

    /// The 99th percentile.
    fn take(&self) -> String {
        let mut late = self.late.take();
        late.sort_unstable();
        late.get((late.len() * 99).div_ceil(100).saturating_sub(1)).unwrap_or(&0).to_string()
    }
}

async fn answer(request: Request<Incoming>, service: Rc<Service>) -> Result<Response<Full<Bytes>>, Failure> {
    match request.uri().path() {
        "/echo" => {}
        "/lag" => return Ok(Response::new(Full::new(service.lag.take().into()))),
        _ => return Ok(Response::new(Full::new(Bytes::from_static(b"ok\n")))),
    }
    let body = request.into_body().collect().await?.to_bytes();
    let child = &service.children[service.turn.replace((service.turn.get() + 1) % CHILDREN)];
    Ok(Response::new(Full::new(child.ask(&body).await?)))
}

fn main() -> Result<(), Box<dyn Error>> {
    let argument = std::env::args().nth(1).ok_or("a port is needed")?;
    if argument == "child" {
        return child();
    }
    let port: u16 = argument.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let children = (0..CHILDREN).map(|_| Child::start()).collect::<Result<Vec<_>, _>>()?;
        let service = Rc::new(Service { children, turn: Cell::new(0), lag: Rc::default() });
        tokio::task::spawn_local(service.lag.clone().watch());
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let service = service.clone();
            let service = service_fn(move |request| answer(request, service.clone()));
            tokio::task::spawn_local(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    })
}
