//! The memory of the whole supervisor stays within its bound under six attacks, one by one and all at once: slow readers,
//! slow payloads, views, dead letters, the log, and many clients. Meanwhile a polite client is served.
//!
//! The bound is [`limits::Memory`]. It is compared with the peak of the supervisor's resident memory, as reported by the
//! kernel.

use bytes::Bytes;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use offload_core::limits::{DEAD_LETTERS_MAX, JOBS_QUEUED_MAX_DEFAULT};
use offload_protocol::codec;
use offload_protocol::frame::FrameDecoder;
use offload_protocol::limits::PAYLOAD_MAX_CEILING;
use offload_protocol::messages::{
    CLIENT_MAGIC, SubmitOptions, ToClient, ToSupervisor, VERSION_MAJOR, VERSION_MINOR, View,
};
use offload_protocol::nouns::{MediaType, OutcomeCode};
use offload_supervisor::client::Client;
use offload_supervisor::limits::Memory;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tests::canary;
use tests::harness::{Daemon, PATIENCE, program, until, workspace};

const MIB: u64 = 1 << 20;
const MAX_BYTES: u64 = 64 * MIB;
const MAX_PAYLOAD: u64 = 16 * MIB;
const WORKERS: u64 = 2;

/// One at a time: each of them has the machine for itself, as far as we are concerned.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A supervisor with tight limits, and what was done to it.
struct Siege {
    daemon: Daemon,
    connections: AtomicU64,
    jobs: AtomicU64,
    is_over: AtomicBool,
}

impl Siege {
    fn new() -> Siege {
        let worker = program("faultworker").display().to_string();
        let config = "[supervisor]\nmax_bytes = \"64MiB\"\nmax_payload = \"16MiB\"\nmax_jobs = 2000\n";
        let folder = tests::harness::private_folder();
        let file = folder.path().join("offload.toml");
        std::fs::write(&file, config).expect("a file of our own");
        let file = file.display().to_string();
        let arguments = ["--config", &file, "--workers", "2", "--worker", &worker];
        let daemon = Daemon::start(&arguments);
        let (connections, jobs) = (AtomicU64::new(0), AtomicU64::new(0));
        Siege { daemon, connections, jobs, is_over: AtomicBool::new(false) }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn bound(&self) -> u64 {
        let (connections, jobs) =
            (self.connections.load(Ordering::Relaxed), self.jobs.load(Ordering::Relaxed));
        let defaults = Memory::of_defaults(WORKERS + 1, connections, jobs);
        Memory { max_bytes: MAX_BYTES, max_payload: MAX_PAYLOAD, ..defaults }.most()
    }

    /// The most resident memory that the supervisor ever had, in bytes.
    fn peak(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.daemon.pid())).expect("it lives");
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("the kernel says so");
        let kib: u64 = line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number");
        kib << 10
    }

    fn connect(&self, name: &str) -> Rude {
        self.connections.fetch_add(1, Ordering::Relaxed);
        let socket = UnixStream::connect(&self.daemon.socket).expect("it listens");
        socket.set_nonblocking(true).expect("a socket");
        let mut rude = Rude {
            socket,
            decoder: FrameDecoder::new(PAYLOAD_MAX_CEILING),
            unsent: Vec::new(),
            is_closed: false,
        };
        let hello = ToSupervisor::Hello {
            magic: CLIENT_MAGIC,
            major: VERSION_MAJOR,
            minor: VERSION_MINOR,
            capabilities: 0,
            client: name,
        };
        rude.say(&hello, 0, b"");
        rude
    }

    /// Attacks from these sides until the polite client has had so many answers, and then until nothing is held any
    /// more. The memory stays below the bound.
    fn stand(&self, sides: &[fn(&Siege)]) {
        std::thread::scope(|scope| {
            let attacks: Vec<_> = sides.iter().map(|side| scope.spawn(move || side(self))).collect();
            let _over = Over(self);
            let end = Instant::now() + Duration::from_secs(25);
            let mut polite = self.daemon.client();
            let (mut served, mut longest) = (0, Duration::ZERO);
            while Instant::now() < end || served < 50 {
                let asked_at = Instant::now();
                be_polite(&mut polite, served);
                longest = longest.max(asked_at.elapsed());
                served += 1;
                let (peak, bound) = (self.peak(), self.bound());
                assert!(peak <= bound, "{} MiB of memory, the bound is {}", peak / MIB, bound / MIB);
            }
            self.is_over.store(true, Ordering::Relaxed);
            attacks.into_iter().for_each(|attack| attack.join().expect("an attacker comes home"));
            println!(
                "{served} polite jobs, the longest {:.1} s, peak {} MiB, bound {} MiB",
                longest.as_secs_f64(),
                self.peak() / MIB,
                self.bound() / MIB
            );
        });
        until("that nothing is held", || (self.daemon.status()["queue"]["bytes"] == 0).then_some(()));
        assert!(self.peak() <= self.bound());
    }
}

/// Calls the attackers home, also when the test has failed; then the end of what the supervisor said is printed.
struct Over<'a>(&'a Siege);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
        if std::thread::panicking() {
            let said = self.0.daemon.stderr.all();
            let said: Vec<_> = said.iter().filter(|line| !line.contains("[slot")).collect();
            println!("the supervisor said: {:#?}", &said[said.len().saturating_sub(40)..]);
        }
    }
}

/// A small job that must be done, and rightly. It is given out again for as often as workers die beside it.
fn be_polite(client: &mut Client, number: u64) {
    let input = canary::input(1, number);
    let options = SubmitOptions { attempts: Some(100), ..SubmitOptions::default() };
    let (task, media_type) = ("canary", MediaType::TEXT);
    let submit =
        |ticket| ToSupervisor::Submit { ticket, task, media_type, detach: false, options: options.clone() };
    let ticket = client.new_ticket();
    client.send(&submit(ticket), &Bytes::from(input.clone())).expect("the supervisor is there");
    loop {
        let deadline = Instant::now() + PATIENCE;
        match client.receive_until(deadline).expect("the supervisor is there") {
            Some((ToClient::Accepted { .. }, _)) => {}
            Some((ToClient::Finished { report, .. }, output)) => {
                assert_eq!(report.outcome, OutcomeCode::Ok, "{report:?}");
                assert_eq!(output, canary::answer(&input));
                return;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A client without manners: it writes what the socket takes and reads when it likes.
struct Rude {
    socket: UnixStream,
    decoder: FrameDecoder,
    unsent: Vec<u8>,
    is_closed: bool,
}

impl Rude {
    /// Says a message; of its payload, which is as long as that, perhaps only the beginning.
    fn say(&mut self, message: &ToSupervisor<'_>, length: usize, payload: &[u8]) {
        codec::encode(message, length, &mut self.unsent).expect("it fits");
        self.unsent.extend_from_slice(payload);
        self.push();
    }

    fn submit(&mut self, siege: &Siege, ticket: u64, task: &str, input: &[u8], attempts: Option<u32>) {
        siege.jobs.fetch_add(1, Ordering::Relaxed);
        let options = SubmitOptions { attempts, ..SubmitOptions::default() };
        let media_type = MediaType::TEXT;
        let submit = ToSupervisor::Submit { ticket, task, media_type, detach: false, options };
        self.say(&submit, input.len(), input);
    }

    /// Writes what the socket takes now.
    fn push(&mut self) {
        while !self.unsent.is_empty() && !self.is_closed {
            match self.socket.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.is_closed = true,
            }
        }
    }

    /// Whether the supervisor has left, which is seen before all that it said is read.
    fn is_left(&self) -> bool {
        let mut looked_at = [PollFd::new(self.socket.as_fd(), PollFlags::empty())];
        poll(&mut looked_at, PollTimeout::ZERO).expect("a socket");
        looked_at[0].revents().is_some_and(|seen| seen.contains(PollFlags::POLLHUP))
    }

    /// Reads at most so many bytes. Returns what was said in words.
    fn hear(&mut self, most: usize) -> Vec<String> {
        let mut heard = Vec::new();
        let mut left = most;
        while left > 0 && !self.is_closed {
            let space = self.decoder.space();
            let length = space.len().min(left);
            match self.socket.read(&mut space[..length]) {
                Ok(0) => self.is_closed = true,
                Ok(count) => {
                    left -= count;
                    self.decoder.filled(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.is_closed = true,
            }
            loop {
                while let Some(frame) = self.decoder.next().expect("frames") {
                    let message: ToClient = codec::decode(&frame.header).expect("a message");
                    heard.push(format!("{message:?}"));
                }
                if self.decoder.announced().is_none() {
                    break;
                }
            }
        }
        heard
    }
}

/// So long an attacker rests between two moves: this is its speed, and nothing waits for it.
fn pace(millis: u64) {
    std::thread::park_timeout(Duration::from_millis(millis));
}

/// 200 jobs of a few bytes whose outputs are as long as they may be, and nothing is read; 50 more whose outputs are
/// read at 70 kB in 2 s. Both are disconnected, also if their jobs get their turn only when the siege is over.
fn slow_readers(siege: &Siege) {
    let mut silent = siege.connect("silent");
    let mut drip = siege.connect("drip");
    for ticket in 0..200 {
        silent.submit(siege, ticket, "blow", MAX_PAYLOAD.to_string().as_bytes(), None);
    }
    for ticket in 0..50 {
        drip.submit(siege, ticket, "blow", (10 * MIB).to_string().as_bytes(), None);
    }
    let go_on = |silent: &mut Rude, drip: &mut Rude| {
        silent.push();
        drip.push();
        let _ = drip.hear(3500);
        pace(100);
    };
    while !siege.is_over() {
        go_on(&mut silent, &mut drip);
    }
    until("that both are disconnected", || {
        go_on(&mut silent, &mut drip);
        (silent.is_left() && drip.is_left()).then_some(())
    });
}

/// Outputs have been small for a while, so that jobs are given to workers by the dozen; then all of them are large.
fn surprises(siege: &Siege) {
    let mut trained = siege.connect("trained");
    let mut finished = 0;
    for ticket in 0..100 {
        trained.submit(siege, ticket, "blow", b"1", None);
    }
    until("that small ones are done", || {
        trained.push();
        finished += trained.hear(1 << 16).iter().filter(|said| said.starts_with("Finished")).count();
        (finished == 100).then_some(())
    });
    for ticket in 100..200 {
        trained.submit(siege, ticket, "blow", MAX_PAYLOAD.to_string().as_bytes(), None);
    }
    while !siege.is_over() {
        trained.push();
        pace(100);
    }
}

/// Bodies that are announced at full length and come at a byte in 100 ms, from as many as would fill all there is.
fn slow_bodies(siege: &Siege) {
    let options = SubmitOptions::default;
    let (task, media_type) = ("canary", MediaType::TEXT);
    let mut bodies: Vec<Rude> = (0..8).map(|number| siege.connect(&format!("body {number}"))).collect();
    for (ticket, body) in (0..).zip(&mut bodies) {
        let submit = ToSupervisor::Submit {
            ticket,
            task,
            media_type: media_type.clone(),
            detach: false,
            options: options(),
        };
        // Every second one sends most of it at once.
        let part = if ticket % 2 == 0 { 1 } else { MAX_PAYLOAD as usize - 1000 };
        body.say(&submit, MAX_PAYLOAD as usize, &vec![b'x'; part]);
    }
    while !siege.is_over() {
        for body in &mut bodies {
            if body.unsent.is_empty() {
                body.unsent.push(b'x');
            }
            body.push();
            let _ = body.hear(1000);
        }
        pace(100);
    }
}

/// Views by the hundred that nobody reads.
fn views(siege: &Siege) {
    let mut watchers: Vec<Rude> = (0..8).map(|number| siege.connect(&format!("view {number}"))).collect();
    for ticket in 0..500 {
        for watcher in &mut watchers {
            let view = if ticket % 2 == 0 { View::Dead } else { View::Jobs };
            watcher.say(&ToSupervisor::Show { ticket, view }, 0, b"");
        }
    }
    while !siege.is_over() {
        watchers.iter_mut().for_each(Rude::push);
        pace(100);
    }
}

/// Jobs with long inputs that kill their workers.
fn dead_letters(siege: &Siege) {
    let mut killer = siege.connect("killer");
    let mut input = b"run:kill=".to_vec();
    input.resize(8 * MIB as usize, b'x');
    for ticket in 0..12 {
        killer.submit(siege, ticket, "act", &input, Some(2));
    }
    while !siege.is_over() {
        killer.push();
        let _ = killer.hear(1 << 16);
        pace(20);
    }
}

/// Workers that print a hundred thousand lines a job.
fn log(siege: &Siege) {
    let mut talker = siege.connect("talker");
    for ticket in 0..6 {
        talker.submit(siege, ticket, "act", b"run:flood", None);
    }
    while !siege.is_over() {
        talker.push();
        let _ = talker.hear(1 << 16);
        pace(20);
    }
}

/// A hundred clients, each with outputs that it does not read.
fn many_clients(siege: &Siege) {
    let mut crowd: Vec<Rude> =
        (0..100).map(|number| siege.connect(&format!("one of many {number}"))).collect();
    for ticket in 0..3 {
        for one in &mut crowd {
            one.submit(siege, ticket, "blow", (2 * MIB).to_string().as_bytes(), None);
        }
    }
    while !siege.is_over() {
        crowd.iter_mut().for_each(Rude::push);
        pace(100);
    }
}

#[test]
fn slow_readers_are_disconnected_and_hold_no_more_than_their_share() {
    let _alone = alone();
    Siege::new().stand(&[slow_readers]);
}

#[test]
fn outputs_that_are_large_for_the_first_time_are_left_with_their_workers() {
    let _alone = alone();
    Siege::new().stand(&[surprises]);
}

#[test]
fn slow_bodies_hold_only_what_has_come_of_them() {
    let _alone = alone();
    Siege::new().stand(&[slow_bodies]);
}

#[test]
fn views_that_nobody_reads_are_bounded() {
    let _alone = alone();
    Siege::new().stand(&[views]);
}

#[test]
fn dead_letters_are_bounded() {
    let _alone = alone();
    Siege::new().stand(&[dead_letters]);
}

#[test]
fn a_flood_of_lines_is_bounded() {
    let _alone = alone();
    Siege::new().stand(&[log]);
}

#[test]
fn many_clients_together_hold_no_more_than_there_is() {
    let _alone = alone();
    Siege::new().stand(&[many_clients]);
}

#[test]
fn all_six_sides_at_once() {
    let _alone = alone();
    Siege::new().stand(&[slow_readers, surprises, slow_bodies, views, dead_letters, log, many_clients]);
}

/// The figure that people are told for the defaults and two workers, with a hundred clients and a full queue.
#[test]
fn the_bound_of_the_defaults_is_the_one_in_the_readme() {
    let jobs = JOBS_QUEUED_MAX_DEFAULT + DEAD_LETTERS_MAX;
    let told = format!("{} MiB", Memory::of_defaults(3, 100, jobs as u64).most() / MIB);
    let readme = std::fs::read_to_string(workspace().join("README.md")).expect("the project has one");
    assert!(readme.contains(&told), "the README does not say {told}");
}
