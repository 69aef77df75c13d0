//! One process of the worker that is checked, and the socket between it and this process, which plays the supervisor.
//!
//! Whatever the worker does wrong becomes a sentence for its author, so all errors here are sentences. Whatever is waited for has
//! its time.

use super::offered::Offered;
use super::said::{End, Said, said};
use bytes::Bytes;
use offload_core::exit::Exit;
use offload_protocol::codec;
use offload_protocol::frame::FrameDecoder;
use offload_protocol::limits::{OFFERS_BYTES_MAX, PARTS_CREDIT, PAYLOAD_MAX_VARIABLE, TASKS_OFFERED_MAX};
use offload_protocol::messages::{BATCHES, ENDS, PARTS, REASONS, ToWorker, VERSION_MAJOR, VERSION_MINOR};
use offload_protocol::nouns::Metadata;
use offload_protocol::outbox::Outbox;
use offload_supervisor::workers::find_executable;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The longest payload, as the worker is told. Small enough to be sent in no time.
pub(super) const PAYLOAD_MAX: usize = 8 << 20;

/// How much of what the worker prints is remembered.
const PRINTED_MAX: usize = 2048;

/// How many lines of that are shown.
const PRINTED_LINES: usize = 3;

/// How long the last words of a process that has ended are waited for.
const REST: Duration = Duration::from_secs(1);

/// How often it is looked whether a process has ended.
const LOOK: Duration = Duration::from_millis(5);

/// The variables that a worker has in its environment, as PROTOCOL says.
const ENVIRONMENT: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

/// What is checked, and how.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    /// What prepares the process of the worker, as a supervisor does.
    pub(super) front: Vec<String>,
    pub(super) words: Vec<String>,
    /// How long each answer may take.
    pub(super) patience: Duration,
}

/// See the module's documentation.
pub(super) struct Candidate {
    child: Child,
    stream: UnixStream,
    decoder: FrameDecoder,
    outbox: Outbox,
    patience: Duration,
    printed: Arc<Mutex<Vec<u8>>>,
    readers: Vec<JoinHandle<()>>,
    pub(super) offers: Vec<Offered>,
    /// The capabilities that it states, and those of them that it was granted.
    pub(super) capabilities: u64,
    granted: u64,
}

impl Subject {
    /// A process that is ready for jobs. It was granted those of its capabilities that are among these.
    pub(super) fn start(&self, granted: u64) -> Result<Candidate, String> {
        self.spawn()?.greeted(granted)
    }

    /// A process of which nothing has been heard.
    pub(super) fn spawn(&self) -> Result<Candidate, String> {
        let (ours, theirs) = UnixStream::pair().map_err(|error| format!("no sockets: {error}"))?;
        ours.set_write_timeout(Some(self.patience)).map_err(|error| error.to_string())?;
        let (word, arguments) = self.words.split_first().ok_or("no program")?;
        let cannot = |error: io::Error| format!("`{word}` cannot be started: {error}");
        let program = find_executable(word).map_err(cannot)?;
        let kept = ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        let mut child = Command::new(&self.front[0])
            .args(&self.front[1..])
            .arg(program)
            .args(arguments)
            .env_clear()
            .envs(kept)
            .env(PAYLOAD_MAX_VARIABLE, PAYLOAD_MAX.to_string())
            .process_group(0)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(cannot)?;
        let printed = Arc::default();
        let readers = [remember(child.stdout.take(), &printed), remember(child.stderr.take(), &printed)];
        Ok(Candidate {
            child,
            stream: ours,
            decoder: FrameDecoder::new(PAYLOAD_MAX),
            outbox: Outbox::new(),
            patience: self.patience,
            printed,
            readers: readers.into_iter().flatten().collect(),
            offers: Vec::new(),
            capabilities: 0,
            granted: 0,
        })
    }
}

/// Reads what the worker prints, on a thread of its own, and remembers the end of it.
fn remember(
    stream: Option<impl Read + Send + 'static>,
    printed: &Arc<Mutex<Vec<u8>>>,
) -> Option<JoinHandle<()>> {
    let (mut stream, printed) = (stream?, Arc::clone(printed));
    Some(thread::spawn(move || {
        let mut some = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut some) {
            let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
            printed.extend_from_slice(&some[..count]);
            let surplus = printed.len().saturating_sub(PRINTED_MAX);
            printed.drain(..surplus);
        }
    }))
}

impl Candidate {
    /// The same one after Hello, the offers and Ready, all within the start-up limit. Welcome is sent behind Hello.
    pub(super) fn greeted(mut self, granted: u64) -> Result<Candidate, String> {
        let until = Instant::now() + self.patience;
        match self.hear_until(until)? {
            Said::Hello { major, capabilities } if major == VERSION_MAJOR => {
                (self.capabilities, self.granted) = (capabilities, granted & capabilities);
            }
            Said::Hello { major, .. } => {
                return Err(format!(
                    "it speaks version {major} of the protocol, and this is version {VERSION_MAJOR}"
                ));
            }
            other => return Err(format!("its first message is {other}, and has to be Hello")),
        }
        self.send(&self.welcome(), &Bytes::new())?;
        let mut bytes = 0;
        loop {
            match self.hear_until(until)? {
                Said::Offer(task, described) => {
                    bytes += described.example.len() + described.schema.len() + task.name.len();
                    self.offers.push(Offered { task: *task, described: *described });
                }
                Said::OfferBatch(batching) => match self.offers.last_mut() {
                    Some(offered) if self.granted & BATCHES > 0 => {
                        offered.task.batching = Some(batching);
                        offered.task.check_batching().map_err(|problem| problem.to_string())?;
                    }
                    _ => {
                        return Err(
                            "it sent OfferBatch without the capability, or before any Offer".to_owned()
                        );
                    }
                },
                Said::Ready => break,
                other => return Err(format!("before Ready it sent {other}")),
            }
            if self.offers.len() > TASKS_OFFERED_MAX || bytes > OFFERS_BYTES_MAX {
                return Err("it offers more than 4,096 tasks, or more than 1 MiB of them".to_owned());
            }
        }
        let names = self.offers.iter().map(|offered| &*offered.task.name);
        match names.collect::<BTreeSet<&str>>().len() {
            0 => Err("it offers no task".to_owned()),
            different if different < self.offers.len() => Err("it offers a task twice".to_owned()),
            _ => Ok(self),
        }
    }

    fn welcome(&self) -> ToWorker<'static> {
        ToWorker::Welcome {
            major: VERSION_MAJOR,
            // A later supervisor of the same major version is one that says less to it than it knows.
            minor: VERSION_MINOR + 7,
            capabilities: self.granted,
            payload_max: PAYLOAD_MAX as u64,
        }
    }

    /// Adds a message to those that [`Candidate::flush`] sends in one go.
    pub(super) fn add(&mut self, message: &ToWorker<'_>, payload: &Bytes) -> Result<(), String> {
        self.outbox.push(message, payload).map_err(|error| error.to_string())
    }

    pub(super) fn flush(&mut self) -> Result<(), String> {
        while !self.outbox.is_empty() {
            let count = self.stream.write(self.outbox.front()).map_err(|error| self.unread(&error))?;
            self.outbox.written(count);
        }
        Ok(())
    }

    pub(super) fn send(&mut self, message: &ToWorker<'_>, payload: &Bytes) -> Result<(), String> {
        self.add(message, payload)?;
        self.flush()
    }

    fn unread(&self, error: &io::Error) -> String {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("it did not read what it was sent for {:?}{}", self.patience, self.what_it_printed())
            }
            _ => format!("it closed its socket{}", self.what_it_printed()),
        }
    }

    /// Sends a message a byte at a time.
    pub(super) fn send_in_bytes(&mut self, message: &ToWorker<'_>, payload: &[u8]) -> Result<(), String> {
        let mut bytes = Vec::new();
        codec::encode(message, payload.len(), &mut bytes).map_err(|error| error.to_string())?;
        bytes.extend_from_slice(payload);
        for byte in bytes {
            self.stream.write_all(&[byte]).map_err(|error| self.unread(&error))?;
            thread::yield_now();
        }
        Ok(())
    }

    /// Whether nothing comes in this time.
    pub(super) fn is_silent_for(&self, time: Duration) -> bool {
        let time = Timespec::try_from(time).ok();
        let mut watched = [PollFd::new(&self.stream, PollFlags::IN)];
        !self.decoder.is_mid_frame() && poll(&mut watched, time.as_ref()) == Ok(0)
    }

    /// A second handle to the socket, to write while this one is not read.
    pub(super) fn writer(&self) -> Result<UnixStream, String> {
        self.stream.try_clone().map_err(|error| error.to_string())
    }

    pub(super) fn run(job: u64, attempt: u32, offered: &Offered) -> ToWorker<'_> {
        ToWorker::Run {
            job,
            attempt,
            task: &offered.task.name,
            media_type: offered.media_type(),
            timeout_ms: 0,
            deadline_ms: 0,
            metadata: Metadata::default(),
        }
    }

    /// The next message.
    pub(super) fn hear(&mut self) -> Result<Said, String> {
        self.hear_until(Instant::now() + self.patience)
    }

    pub(super) fn hear_until(&mut self, until: Instant) -> Result<Said, String> {
        loop {
            match self.decoder.next() {
                Ok(Some(frame)) => {
                    return match codec::decode(&frame.header) {
                        Ok(message) => said(message, &frame.payload),
                        Err(error) => Err(format!("it sent a message that cannot be read: {error}")),
                    };
                }
                Ok(None) => {}
                Err(error) => {
                    return Err(format!("it sent what is no message: {error}{}", self.what_it_printed()));
                }
            }
            if self.decoder.announced().is_some() {
                continue;
            }
            self.read_some(until)?;
        }
    }

    fn read_some(&mut self, until: Instant) -> Result<(), String> {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
        match self.stream.read(self.decoder.space()) {
            Ok(0) => Err(self.how_it_ended()),
            Ok(count) => {
                self.decoder.filled(count);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(format!("it said nothing for {:?}{}", self.patience, self.what_it_printed()))
            }
            Err(_) => Err(self.how_it_ended()),
        }
    }

    fn how_it_ended(&mut self) -> String {
        match self.exit_within(self.patience) {
            Some(exit) => format!("it ended with {exit}{}", self.last_words()),
            None => format!("it closed its socket and goes on{}", self.what_it_printed()),
        }
    }

    /// What a process printed that has ended. Its streams are at their end soon, unless somebody else has them.
    fn last_words(&self) -> String {
        let until = Instant::now() + REST;
        while Instant::now() < until && !self.readers.iter().all(JoinHandle::is_finished) {
            thread::sleep(LOOK);
        }
        self.what_it_printed()
    }

    fn what_it_printed(&self) -> String {
        let printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&printed);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        match &lines[lines.len().saturating_sub(PRINTED_LINES)..] {
            [] => String::new(),
            last => format!("; it printed {:?}", last.join(" | ")),
        }
    }

    /// How the process ended, if it does so in this time.
    pub(super) fn exit_within(&mut self, time: Duration) -> Option<Exit> {
        let until = Instant::now() + time;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    let exit = status.code().map(Exit::Code).or(status.signal().map(Exit::Signal));
                    return Some(exit.unwrap_or(Exit::Unknown));
                }
                Ok(None) if Instant::now() < until => thread::sleep(LOOK),
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// From now on the worker finds that the supervisor is gone.
    pub(super) fn hang_up(&self) {
        // If it is gone already, it has nothing to find out.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Ends the process itself and nothing else, as a crash would.
    pub(super) fn kill(&mut self) -> Result<(), String> {
        self.child.kill().map_err(|error| error.to_string())?;
        self.child.wait().map(drop).map_err(|error| error.to_string())
    }

    /// The whole answer to a job that was sent: Started, and the end.
    pub(super) fn answer(&mut self, job: u64, attempt: u32, offered: &Offered) -> Result<End, String> {
        self.started(job, attempt)?;
        self.end(job, attempt, offered)
    }

    /// The beginning of a job that was sent.
    pub(super) fn started(&mut self, job: u64, attempt: u32) -> Result<(), String> {
        match self.hear()? {
            Said::Started { job: its, attempt: which } if (its, which) == (job, attempt) => Ok(()),
            other => Err(format!("to job {job}, attempt {attempt}, it answered {other} in place of Started")),
        }
    }

    /// The end of a job that has started, with what may come before it.
    pub(super) fn end(&mut self, job: u64, attempt: u32, offered: &Offered) -> Result<End, String> {
        let (mut credit, mut streamed) = (PARTS_CREDIT, 0);
        loop {
            let said = self.hear()?;
            if said.about().is_some_and(|about| about != (job, attempt)) {
                return Err(format!("while job {job}, attempt {attempt}, ran it sent {said}"));
            }
            match said {
                Said::Ended(end) if end.bytes + streamed > PAYLOAD_MAX => {
                    return Err(format!(
                        "its output is longer than {PAYLOAD_MAX} bytes, the longest payload"
                    ));
                }
                Said::Ended(End { takes: ENDS, .. }) if self.granted & ENDS == 0 => {
                    return Err("it said how a program ended, for which it has no capability".to_owned());
                }
                Said::Ended(End { takes: REASONS, .. }) if self.granted & REASONS == 0 => {
                    return Err("it said that an error is meant for callers, for which it has no capability"
                        .to_owned());
                }
                Said::Ended(end) => return Ok(end),
                Said::Progress { .. } => {}
                Said::Checkpoint { .. } if offered.task.checkpoints => {}
                Said::Part { bytes, .. } if self.granted & PARTS > 0 => {
                    credit = credit
                        .checked_sub(bytes as u64)
                        .ok_or("it sent more parts than it had credit for")?;
                    streamed += bytes;
                    self.add(&ToWorker::Credit { job, bytes: bytes as u64 }, &Bytes::new())?;
                    // A worker that has sent all and was told to finish may have closed its socket by now. If it has not sent
                    // all, that is seen when it is read from.
                    let _ = self.flush();
                    credit += bytes as u64;
                }
                other => {
                    return Err(format!(
                        "while job {job} ran it sent {other}, which its offer does not have"
                    ));
                }
            }
        }
    }

    /// The worker is told to finish, and exits with 0, without another word.
    pub(super) fn drain(&mut self) -> Result<(), String> {
        self.send(&ToWorker::Drain, &Bytes::new())?;
        self.ends_well()
    }

    pub(super) fn ends_well(&mut self) -> Result<(), String> {
        let until = Instant::now() + self.patience;
        loop {
            match self.decoder.next() {
                Ok(Some(frame)) => {
                    let message = codec::decode(&frame.header).map_err(|error| error.to_string())?;
                    return Err(format!("after its last answer it sent {}", said(message, &frame.payload)?));
                }
                Ok(None) => {}
                Err(error) => {
                    return Err(format!("after its last answer it sent what is no message: {error}"));
                }
            }
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            self.stream.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
            match self.stream.read(self.decoder.space()) {
                Ok(0) => break,
                Ok(count) => self.decoder.filled(count),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(_) => {
                    return Err(format!(
                        "it had not ended {:?} after Drain{}",
                        self.patience,
                        self.what_it_printed()
                    ));
                }
            }
        }
        match self.exit_within(self.patience) {
            Some(Exit::Code(0)) => Ok(()),
            Some(exit) => Err(format!(
                "after Drain it ended with {exit}, and has to with exit code 0{}",
                self.last_words()
            )),
            None => Err("after Drain it closed its socket and went on".to_owned()),
        }
    }

    /// The socket is closed at the other end, by all that had it.
    pub(super) fn is_closed_within(&mut self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut some = [0; 4096];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.stream.set_read_timeout(Some(left)).is_err() {
                return false;
            }
            match self.stream.read(&mut some) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return true,
                Err(_) => return false,
            }
        }
    }
}

impl Drop for Candidate {
    /// Nothing that was started outlives the check.
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // If nobody is left, nobody needs to be ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
