//! A web service of axum whose handlers have their work done by worker processes.

use super::runtimes::tokio_threads;
use super::{Running, end_of};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use offload_supervisor::protocol::nouns::OutcomeCode;
use offload_supervisor::{Job, PoolHandle};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use tests::harness::PATIENCE;

/// What handlers share: the pool, and how a test learns that a job was submitted.
#[derive(Clone)]
struct Shared {
    pool: PoolHandle,
    submitted: mpsc::Sender<()>,
}

type Answer = Result<Bytes, (StatusCode, String)>;

/// Waits for room, as long as its client does.
async fn when_there_is_room(
    State(shared): State<Shared>,
    Path((client, task)): Path<(String, String)>,
    body: Bytes,
) -> Answer {
    let place = shared.pool.client(&client).reserve().await;
    let place = place.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
    let job = place.submit(Job::new(task).input(body));
    let _ = shared.submitted.send(());
    answer(job.await)
}

/// Says at once if there is no room.
async fn at_once(State(shared): State<Shared>, Path(task): Path<String>, body: Bytes) -> Answer {
    answer(shared.pool.submit(Job::new(task).input(body)).await)
}

fn answer(finished: offload_supervisor::Finished) -> Answer {
    let status = match finished.report.outcome {
        OutcomeCode::Overloaded | OutcomeCode::Quota => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_GATEWAY,
    };
    finished.into_output().map_err(|error| (status, error))
}

struct WebService {
    running: Running,
    runtime: tokio::runtime::Runtime,
    address: SocketAddr,
    submitted: mpsc::Receiver<()>,
}

impl WebService {
    fn new(running: Running) -> WebService {
        let (send, submitted) = mpsc::channel();
        let runtime = tokio_threads();
        let app = Router::new()
            .route("/wait/{client}/{task}", post(when_there_is_room))
            .route("/now/{task}", post(at_once))
            .with_state(Shared { pool: running.handle.clone(), submitted: send });
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move { axum::serve(listener, app).await });
        WebService { running, runtime, address, submitted }
    }

    fn is_submitted(&self) {
        self.submitted.recv_timeout(PATIENCE).expect("the handler has submitted it");
    }

    /// The service had the last handles beside ours.
    fn ends(self) {
        self.runtime.shutdown_timeout(PATIENCE);
        self.running.ends_by_itself();
    }
}

fn send(address: SocketAddr, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let fields = format!("Host: x\r\nContent-Length: {length}\r\nConnection: close");
    write!(stream, "POST {path} HTTP/1.1\r\n{fields}\r\n\r\n{body}").unwrap();
    stream
}

fn read(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The status and the body of the answer.
fn ask(address: SocketAddr, path: &str, body: &str) -> (u16, String) {
    let answer = read(send(address, path, body));
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

const HASH_OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

#[test]
fn workers_are_killed_and_only_the_requests_that_killed_them_fail() {
    let service = WebService::new(Running::with_workers(2));
    std::thread::scope(|scope| {
        for client in 0..8 {
            let address = service.address;
            scope.spawn(move || {
                for _ in 0..5 {
                    let (task, body) =
                        if client < 2 { ("fault", r#"{"act":"kill"}"#) } else { ("sha256", "abc") };
                    match ask(address, &format!("/now/{task}"), body) {
                        (200, hash) => assert_eq!((task, hash.as_str()), ("sha256", HASH_OF_ABC)),
                        (502, reason) => {
                            assert_eq!(task, "fault");
                            assert!(reason.starts_with("worker_crashed: signal 9"), "{reason}");
                        }
                        other => panic!("{task}: {other:?}"),
                    }
                }
            });
        }
    });
    service.ends();
}

#[test]
fn requests_beyond_the_limits_wait_or_are_refused_as_their_handlers_want() {
    let service = WebService::new(Running::with_places(1, 1));
    let busy = service.running.handle.submit(super::endless());
    let (status, reason) = ask(service.address, "/now/sha256", "abc");
    assert!((status, reason.split(':').next()) == (503, Some("quota")), "{status} {reason}");
    let paths = (0..8).map(|number| format!("/wait/{number}/sha256"));
    let waiting: Vec<_> = paths.map(|path| send(service.address, &path, "abc")).collect();
    drop(busy);
    for answer in waiting.into_iter().map(read) {
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(HASH_OF_ABC), "{answer}");
    }
    service.ends();
}

#[test]
fn a_client_that_goes_cancels_its_job_and_gives_its_place_to_others() {
    let service = WebService::new(Running::with_places(1, 1));
    for _ in 0..3 {
        let gone = send(service.address, "/wait/impatient/sleep", "3600000");
        service.is_submitted();
        // There is one place for this client, and one worker.
        let behind = send(service.address, "/wait/impatient/sha256", "abc");
        drop(gone);
        service.is_submitted();
        let answer = read(behind);
        assert!(answer.ends_with(HASH_OF_ABC), "{answer}");
    }
    assert_eq!(end_of(service.running.handle.submit(super::echo("all is well"))).output, "all is well");
    service.ends();
}
