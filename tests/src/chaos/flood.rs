//! One process with many connections that asks and asks, and takes its answers: all that it says is refused at once, which
//! costs it nothing. It is a process of its own, because it is by processes that clients are told apart.

use crate::harness::program;
use crate::raw_client::{Heard, RawClient, Said};
use bytes::Bytes;
use offload_protocol::messages::{SubmitOptions, ToSupervisor};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Requests that each connection has under way.
const PIPELINED: u64 = 500;

/// The process, as seen by whoever started it.
#[derive(Debug)]
pub struct Flood {
    process: Child,
    said: BufReader<ChildStdout>,
}

impl Flood {
    /// Starts it, and waits until it has all the connections that it gets. With a job they wait for that, and do nothing
    /// else.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(socket: &Path, connections: usize, job: Option<&str>) -> Flood {
        let mut command = Command::new(program("chaos"));
        command.arg("--flood").arg(socket).arg("--connections").arg(connections.to_string());
        if let Some(job) = job {
            command.arg("--wait").arg(job);
        }
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("chaos can be started");
        let mut said = BufReader::new(process.stdout.take().expect("it was asked for"));
        let mut line = String::new();
        said.read_line(&mut line).expect("it says that it is ready");
        assert!(line.starts_with("connected"), "{line}");
        Flood { process, said }
    }

    /// Ends it; returns how many of its requests were refused.
    ///
    /// # Panics
    /// If it does not say so.
    pub fn end(mut self) -> u64 {
        drop(self.process.stdin.take());
        let mut line = String::new();
        self.said.read_line(&mut line).expect("it says what came of it");
        line.trim().strip_prefix("refused ").and_then(|count| count.parse().ok()).expect("a number")
    }
}

impl Drop for Flood {
    /// It ends by itself when nobody holds the other end of its standard input.
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// What that process does, until its standard input ends.
pub fn flood(socket: &Path, connections: usize, job: Option<&str>) {
    let mut clients: Vec<(RawClient, u64)> =
        (0..connections).filter_map(|_| Some((connect(socket, job)?, 0))).collect();
    println!("connected {}", clients.len());
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        over.store(true, Ordering::Relaxed);
    });
    let mut refused = 0;
    while !is_over.load(Ordering::Relaxed) {
        let before = refused;
        clients.retain_mut(|(client, under_way)| go_on(client, under_way, job.is_none(), &mut refused));
        if before == refused {
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
    // What has come and was not looked at yet counts, too: the end may come in the first round.
    clients.retain_mut(|(client, under_way)| go_on(client, under_way, false, &mut refused));
    println!("refused {refused}");
    let _ = std::io::stdout().flush();
}

/// None if it is not let in.
fn connect(socket: &Path, job: Option<&str>) -> Option<RawClient> {
    let mut client = RawClient::connect(socket).ok()?;
    client.greet("");
    if let Some(job) = job {
        client.queue(&ToSupervisor::Wait { ticket: 1, job }, &Bytes::new());
    }
    client.write(usize::MAX).ok()?;
    match client.read(Instant::now() + Duration::from_secs(60)) {
        Heard::Messages(said) if !said.iter().any(|said| matches!(said, Said::Goodbye(_))) => Some(client),
        _ => None,
    }
}

/// Asks what there is room for and takes what has come. False at the end of the connection.
fn go_on(client: &mut RawClient, under_way: &mut u64, asks: bool, refused: &mut u64) -> bool {
    while asks && *under_way < PIPELINED {
        client.submit(*under_way, "nosuch", &Bytes::from_static(b"x"), SubmitOptions::default());
        *under_way += 1;
    }
    // What came before the other end closed can be read behind that.
    let is_open = client.write(usize::MAX).is_ok();
    match client.read(Instant::now()) {
        Heard::Messages(said) => {
            let count = said.iter().filter(|said| matches!(said, Said::Rejected { .. })).count() as u64;
            *under_way = under_way.saturating_sub(count);
            *refused += count;
            is_open
        }
        Heard::Nothing => is_open,
        Heard::Closed => false,
    }
}
