//! The same jobs in other runtimes: Node.js and Python, as anybody would do them there.
//!
//! ```text
//!   we                                 a process of the runtime, one for each strategy, in a group of its own
//!   its script and the input (files) -->  reads them, does a job once: "ready", with the answer
//!   {"window_ms": 200}               -->  jobs and a prober on its own loop, for so long
//!                                    <--  one line: jobs, waits, lateness of a timer, CPU time
//!   the end of its input             -->  ends, with everything that it has started; what is left is killed
//! ```
//!
//! A sample is taken when its turn comes in the rounds of the comparison, so all met the same machine. The answer must be ours. Every
//! line is bounded, and so is the time until it comes.

use super::super::failure::Failure;
use super::super::text::printable;
use super::folder::Folder;
use super::jobs::Sent;
use super::lag::TimerLag;
use super::prober::Waits;
use super::report::Missing;
use super::strategy::Sample;
use crate::limits::{BENCH_PEER_END_TIMEOUT, BENCH_PEER_LINE_MAX, BENCH_PEER_TIMEOUT, BENCH_PEER_WORDS_MAX};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use offload_protocol::nouns::OutcomeCode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

const NODE: &str = include_str!("peers/node.js");
const PYTHON: &str = include_str!("peers/python.py");

/// A program that runs scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runtime {
    Node,
    Python,
}

/// What is asked of the runtimes.
pub(super) struct Work<'a> {
    pub(super) task: &'a str,
    pub(super) input: &'a [u8],
    /// What the input must give.
    pub(super) output: &'a [u8],
    /// As many threads of piscina, or processes of a `ProcessPoolExecutor`.
    pub(super) workers: usize,
}

/// A strategy: its name in reports, and in the script.
type Named = (&'static str, &'static str);

impl Runtime {
    fn flag(self) -> &'static str {
        match self {
            Runtime::Node => "--with-node",
            Runtime::Python => "--with-python",
        }
    }

    fn program(self) -> &'static str {
        match self {
            Runtime::Node => "node",
            Runtime::Python => "python3",
        }
    }

    /// The name of the file for the script, and the script.
    fn script(self) -> (&'static str, &'static str) {
        match self {
            Runtime::Node => ("node.js", NODE),
            Runtime::Python => ("python.py", PYTHON),
        }
    }

    fn strategies(self, task: &str) -> Vec<Named> {
        let node =
            [("node_inline", "inline"), ("node_partitioned", "partitioned"), ("node_piscina", "piscina")];
        match self {
            Runtime::Node => {
                node.into_iter().filter(|(_, own)| *own != "partitioned" || task != "pbkdf2").collect()
            }
            Runtime::Python => vec![("python_inline", "inline"), ("python_processes", "processes")],
        }
    }

    /// # Errors
    /// A usage error that says why a comparison would be none.
    pub(super) fn check(self, task: &str) -> Result<(), Failure> {
        let why = match task {
            "average" | "json" | "primes" | "pbkdf2" => return Ok(()),
            "regex" => {
                "engines for regular expressions go back in different ways, so that they do not do the same work"
            }
            "thumbnail" => "neither Node.js nor Python has what reads and writes pictures without a package",
            _ => "it has no script for that",
        };
        let flag = self.flag();
        Err(Failure::Usage(format!(
            "{flag}: not for --task {task}: {why}; it is for average, json, primes and pbkdf2"
        )))
    }
}

/// Starts a process for each strategy of this runtime that there is. The others are told, with what to do about it.
///
/// # Errors
/// A usage error if there is no such program; otherwise it says what is wrong with it.
pub(super) fn start(runtime: Runtime, work: &Work) -> Result<(Vec<Peer>, Vec<Missing>), Failure> {
    let folder = Rc::new(Folder::new()?);
    let (name, script) = runtime.script();
    let files = [(name, script.as_bytes()), ("input", work.input)];
    for (name, content) in files {
        let file = folder.path().join(name);
        std::fs::write(&file, content)
            .map_err(|error| Failure::writing(&file.display().to_string(), &error))?;
    }
    let (mut peers, mut missing) = (Vec::new(), Vec::new());
    for strategy in runtime.strategies(work.task) {
        let mut peer = Peer::start(runtime, strategy, work, &folder)?;
        match peer.wait_until_ready(work)? {
            None => peers.push(peer),
            Some(because) => missing.push(Missing { strategy: strategy.0, because }),
        }
    }
    Ok((peers, missing))
}

/// A process that measures one strategy. Dropping it ends it, and whatever it has started.
pub(super) struct Peer {
    name: &'static str,
    process: Child,
    /// None once it is closed, so that the process ends.
    orders: Option<ChildStdin>,
    lines: Receiver<Result<String, String>>,
    words: Receiver<String>,
    bytes_of_a_job: u64,
    /// The script, of which its threads are made.
    _folder: Rc<Folder>,
}

#[derive(Deserialize)]
struct Greeting {
    #[serde(default)]
    missing: Option<String>,
    #[serde(default)]
    bytes_of_a_job: u64,
    #[serde(default)]
    answer: Value,
}

/// A sample as scripts tell it.
#[derive(Deserialize)]
struct Taken {
    jobs: u64,
    seconds: f64,
    seconds_to_last: f64,
    waits_us: Vec<(u64, u64)>,
    timer_us: Vec<(u64, u64)>,
    stretches_us: Vec<u64>,
    cpu_s: f64,
}

impl Peer {
    fn start(
        runtime: Runtime,
        (name, own): Named,
        work: &Work,
        folder: &Rc<Folder>,
    ) -> Result<Peer, Failure> {
        let (program, width) = (runtime.program(), work.workers.to_string());
        let mut command = Command::new(program);
        command
            .arg(folder.path().join(runtime.script().0))
            .args([own, work.task, &width])
            .arg(folder.path().join("input"));
        // Whatever Ctrl-C does, it is done to us; the process ends with its input.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut process = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::Usage(format!(
                "{}: there is no program `{program}` in PATH: install it, or leave the flag out",
                runtime.flag()
            )),
            _ => Failure::Usage(format!("{}: `{program}` cannot be started: {error}", runtime.flag())),
        })?;
        let orders = process.stdin.take();
        let (lines, words) = (lines_of(process.stdout.take())?, words_of(process.stderr.take())?);
        Ok(Peer { name, process, orders, lines, words, bytes_of_a_job: 0, _folder: Rc::clone(folder) })
    }

    /// Its name in the report.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Why it cannot be measured, if that is no mistake.
    fn wait_until_ready(&mut self, work: &Work) -> Result<Option<String>, Failure> {
        let greeting: Greeting = self.line(BENCH_PEER_TIMEOUT)?;
        if let Some(package) = greeting.missing {
            return Ok(Some(format!(
                "{package} is not installed: `npm install {package}` in this folder, or name its folder in NODE_PATH"
            )));
        }
        if !is_same(&greeting.answer, work.output) {
            let (ours, theirs) = (String::from_utf8_lossy(work.output), greeting.answer.to_string());
            return Err(self.failed(&format!("its answer is {theirs}, and ours {ours}")));
        }
        self.bytes_of_a_job = greeting.bytes_of_a_job;
        Ok(None)
    }

    /// Takes a sample.
    ///
    /// # Errors
    /// It has ended, failed, or takes too long.
    pub(super) fn measure(&mut self, window: Duration) -> Result<Sample, Failure> {
        let order = format!("{}\n", json!({"window_ms": window.as_millis() as u64}));
        let written = self.orders.as_mut().map(|orders| orders.write_all(order.as_bytes()));
        // If it is gone, it has perhaps said why.
        drop(written);
        let taken: Taken = self.line(window + BENCH_PEER_TIMEOUT)?;
        Ok(sample(taken, self.bytes_of_a_job))
    }

    fn line<Said: for<'a> Deserialize<'a>>(&mut self, patience: Duration) -> Result<Said, Failure> {
        let line = match self.lines.recv_timeout(patience) {
            Ok(Ok(line)) => line,
            Ok(Err(why)) => return Err(self.failed(&why)),
            Err(RecvTimeoutError::Disconnected) => return Err(self.failed("it has ended")),
            Err(RecvTimeoutError::Timeout) => {
                let seconds = patience.as_secs();
                let message =
                    format!("{}: no answer within {seconds} s; a smaller --size has shorter jobs", self.name);
                return Err(Failure::outcome(OutcomeCode::Timeout, message));
            }
        };
        match serde_json::from_str::<Value>(&line) {
            Ok(Value::Object(said)) if said.contains_key("error") => {
                Err(self.failed(said["error"].as_str().unwrap_or("it failed")))
            }
            Ok(said) => serde_json::from_value(said).map_err(|error| self.failed(&error.to_string())),
            Err(error) => Err(self.failed(&format!("{error}: {line}"))),
        }
    }

    fn failed(&self, why: &str) -> Failure {
        let said = self.words.recv_timeout(BENCH_PEER_END_TIMEOUT).unwrap_or_default();
        let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
        let told = lines().find(|line| line.contains("Error")).or_else(|| lines().next_back());
        let said = told.map(|line| format!(" ({line})"));
        let message = format!("{}: {why}{}", self.name, said.unwrap_or_default());
        Failure::Internal(printable(&message).into_owned())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.orders.take());
        // Everything that it has started holds its output, too: when that has an end, all of it has ended.
        while let Ok(_line) = self.lines.recv_timeout(BENCH_PEER_END_TIMEOUT) {}
        // It has not been waited for, so its number is still its own.
        let _ = killpg(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGKILL);
        let _ = self.process.wait();
    }
}

fn sample(taken: Taken, bytes_of_a_job: u64) -> Sample {
    let waits = |counts: &[(u64, u64)]| {
        let mut waits = Waits::new();
        counts.iter().for_each(|(wait_us, count)| waits.note_many(*wait_us, *count));
        waits
    };
    let Taken { jobs, seconds, seconds_to_last, cpu_s, .. } = taken;
    Sample {
        jobs,
        jobs_per_s: if seconds_to_last > 0.0 { jobs as f64 / seconds_to_last } else { 0.0 },
        probed: waits(&taken.waits_us),
        loop_lag_us: None,
        timer_lag: TimerLag::noted(waits(&taken.timer_us), taken.stretches_us),
        cpu_s,
        seconds,
        sent: Sent { bytes: jobs.saturating_mul(bytes_of_a_job), ..Sent::default() },
        differing: 0,
    }
}

/// Whether an answer is what we have found, too: of an object, all that it says.
fn is_same(answer: &Value, output: &[u8]) -> bool {
    match (answer, serde_json::from_slice::<Value>(output)) {
        (Value::String(text), _) => text.as_bytes() == output,
        (Value::Object(answer), Ok(Value::Object(ours))) => {
            !answer.is_empty() && answer.iter().all(|(name, value)| ours.get(name) == Some(value))
        }
        (answer, Ok(ours)) => {
            let (Some(answer), Some(ours)) = (answer.as_f64(), ours.as_f64()) else { return false };
            // They add up in floats, whose last digit may be another one.
            (answer - ours).abs() <= ours.abs() * 1e-9
        }
        _ => false,
    }
}

/// Its lines as they come, until one is too long.
fn lines_of(output: Option<impl Read + Send + 'static>) -> Result<Receiver<Result<String, String>>, Failure> {
    let (sender, receiver) = sync_channel(4);
    read_on_a_thread(output, move |output| {
        let mut output = BufReader::new(output);
        loop {
            let mut line = String::new();
            let read = output.by_ref().take(BENCH_PEER_LINE_MAX).read_line(&mut line);
            let line = match read {
                Ok(0) => return,
                Ok(_) if line.ends_with('\n') => Ok(line),
                Ok(_) => Err("it has said more than anybody reads".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            let is_last = line.is_err();
            if sender.send(line).is_err() || is_last {
                return;
            }
        }
    })?;
    Ok(receiver)
}

/// The beginning of what it says to people, once it has ended. The rest is read, so that it does not wait, and dropped.
fn words_of(output: Option<impl Read + Send + 'static>) -> Result<Receiver<String>, Failure> {
    let (sender, receiver) = sync_channel(1);
    read_on_a_thread(output, move |mut output| {
        let mut words = Vec::new();
        let _ = output.by_ref().take(BENCH_PEER_WORDS_MAX).read_to_end(&mut words);
        let _ = std::io::copy(&mut output, &mut std::io::sink());
        let _ = sender.send(String::from_utf8_lossy(&words).into_owned());
    })?;
    Ok(receiver)
}

fn read_on_a_thread<Output: Read + Send + 'static>(
    output: Option<Output>,
    read: impl FnOnce(Output) + Send + 'static,
) -> Result<(), Failure> {
    let Some(output) = output else { return Ok(()) };
    let thread = thread::Builder::new().name("offload-peer".to_owned()).spawn(move || read(output));
    thread.map(drop).map_err(|error| Failure::internal("cannot start a thread", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_ours_if_it_says_nothing_else() {
        for (answer, output) in [
            (json!(2), "2.0"),
            (json!(500_000.5), "500000.5"),
            (json!({"count": 4, "largest": 7}), r#"{"count":4,"largest":7}"#),
            (json!({"values": 9}), r#"{"values":9,"bytes":100}"#),
            (json!("12ab"), "12ab"),
            (json!("1234"), "1234"),
        ] {
            assert!(is_same(&answer, output.as_bytes()), "{answer} and {output}");
        }
        for (answer, output) in [
            (json!(2.1), "2.0"),
            (json!({"values": 8}), r#"{"values":9}"#),
            (json!({}), r#"{"values":9}"#),
            (json!({"other": 9}), r#"{"values":9}"#),
            (json!("12ac"), "12ab"),
            (json!(null), "2.0"),
            (json!(2), "two"),
        ] {
            assert!(!is_same(&answer, output.as_bytes()), "{answer} and {output}");
        }
    }

    #[test]
    fn a_sample_of_a_script_becomes_one_of_ours() {
        let said = r#"{"jobs": 4, "seconds": 2.5, "seconds_to_last": 2, "waits_us": [[10, 3], [900, 1]], "timer_us": [[5, 9]],
            "stretches_us": [7, 8], "cpu_s": 1.5}"#;
        let sample = sample(serde_json::from_str(said).unwrap(), 100);
        assert_eq!((sample.jobs, sample.jobs_per_s, sample.sent.bytes), (4, 2.0, 400));
        assert_eq!((sample.probed.count(), sample.probed.latency_us().max), (4, 900));
        assert_eq!(sample.timer_lag.stretches_us[..3], [7, 8, 0]);
    }

    #[test]
    fn a_line_without_end_is_refused_and_words_are_cut_short() {
        let endless = || Some(std::io::repeat(b'x').take(BENCH_PEER_LINE_MAX * 3));
        let lines = lines_of(endless()).unwrap();
        assert!(lines.recv().unwrap().unwrap_err().contains("more than anybody reads"));
        assert!(lines.recv().is_err());
        assert_eq!(words_of(endless()).unwrap().recv().unwrap().len() as u64, BENCH_PEER_WORDS_MAX);
    }

    #[test]
    fn tasks_that_other_runtimes_do_differently_are_refused() {
        assert!(Runtime::Node.check("primes").is_ok());
        let refused = Runtime::Python.check("thumbnail").unwrap_err();
        assert!(
            refused.exit_code() == 2
                && refused.message().unwrap().starts_with("--with-python: not for --task thumbnail")
        );
    }
}
