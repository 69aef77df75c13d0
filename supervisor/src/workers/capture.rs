//! The standard output and standard error of a worker, as lines for the log. They are pipes separate from the
//! protocol's socket, so a stray print cannot disturb the protocol, and a flood of output delays only the worker that
//! prints it.
//!
//! There are three limits. A line is cut to [`WORKER_LINE_MAX`] bytes. In one second at most
//! [`WORKER_LINES_PER_SECOND`] lines are returned, and the others are counted. After [`WORKER_BYTES_PER_SECOND`] bytes
//! the pipe is not read until the second is over, so that it fills up and the worker has to wait. The last lines are
//! always kept: they show what a worker printed before it died.

use super::escape::escape_line;
use crate::limits::{
    CAPTURE_CHUNK, TAIL_LINES, WORKER_BYTES_PER_SECOND, WORKER_LINE_MAX, WORKER_LINES_PER_SECOND,
};
use rustix::io::{Errno, ioctl_fionbio, retry_on_intr};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One byte more than a line may have. The escaped form is at least as long as the raw one, so the kept part of a
/// longer line is still recognized as too long.
const RAW_LINE_MAX: usize = WORKER_LINE_MAX + 1;

/// This many reads empty a pipe of the usual size (64 KiB) that nobody fills any more.
const READS_OF_THE_REST: usize = 5;

const SECOND: Duration = Duration::from_secs(1);

/// One of a worker's two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputStream {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

/// The result of reading from a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Complete lines, escaped, at most [`WORKER_LINE_MAX`] bytes each, without newline.
    pub lines: Vec<String>,
    /// Number of lines that were over the limit for one second and are not in `lines`.
    pub dropped: usize,
    /// The last ones of these, at most [`TAIL_LINES`], escaped: whoever looks for what a worker printed before it died needs them.
    pub last_dropped: Vec<String>,
    /// Everything that the stream had was read.
    pub is_all: bool,
    /// A line has begun and not ended.
    pub has_begun: bool,
    /// Whether and when to read again.
    pub state: CaptureState,
}

impl Captured {
    fn nothing(state: CaptureState) -> Captured {
        Captured {
            lines: Vec::new(),
            dropped: 0,
            last_dropped: Vec::new(),
            is_all: true,
            has_begun: false,
            state,
        }
    }
}

/// Whether and when a stream is to be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureState {
    /// There may be more to read.
    Open,
    /// There is nothing to read now.
    Empty,
    /// The worker prints too much: do not read before this moment. (A read is not refused.)
    Throttled {
        /// When the next second begins.
        until: Instant,
    },
    /// The stream has ended: do not read again.
    Ended,
}

/// The output of one worker: both streams.
#[derive(Debug)]
pub(super) struct Capture {
    stdout: Pipe,
    stderr: Pipe,
    recorder: LineRecorder,
}

impl Capture {
    /// Takes over the reading ends of the pipes and makes them non-blocking.
    pub(super) fn new(stdout: OwnedFd, stderr: OwnedFd) -> io::Result<Capture> {
        Ok(Capture {
            stdout: Pipe::new(stdout)?,
            stderr: Pipe::new(stderr)?,
            recorder: LineRecorder::default(),
        })
    }

    pub(super) fn source(&self, stream: OutputStream) -> Arc<OwnedFd> {
        match stream {
            OutputStream::Stdout => Arc::clone(&self.stdout.source),
            OutputStream::Stderr => Arc::clone(&self.stderr.source),
        }
    }

    /// Reads once, at most [`CAPTURE_CHUNK`] bytes.
    pub(super) fn read(&mut self, stream: OutputStream, now: Instant) -> Captured {
        self.recorder.rate.renew(now);
        let mut captured = Captured::nothing(CaptureState::Open);
        captured.state = self.read_into(stream, &mut captured);
        self.complete(stream, captured)
    }

    /// Reads the rest when the worker has ended, regardless of its rate. An unfinished line counts as a line now.
    /// Another process that inherited the pipe may still write to it, so this is bounded too.
    pub(super) fn read_rest(&mut self, stream: OutputStream, now: Instant) -> Captured {
        let mut all = self.read(stream, now);
        for _ in 1..READS_OF_THE_REST {
            if matches!(all.state, CaptureState::Empty | CaptureState::Ended) {
                break;
            }
            all.state = self.read_into(stream, &mut all);
        }
        let (pipe, recorder) = self.pipe_and_recorder(stream);
        pipe.finish(&mut |line| recorder.complete(line, &mut all));
        self.complete(stream, all)
    }

    /// Adds what is known after the read.
    fn complete(&mut self, stream: OutputStream, captured: Captured) -> Captured {
        let (pipe, recorder) = self.pipe_and_recorder(stream);
        let last_dropped = recorder.tail.last(captured.dropped);
        Captured { last_dropped, is_all: pipe.is_emptied, has_begun: !pipe.line.is_empty(), ..captured }
    }

    /// The last lines, the oldest first, and then the unfinished line of each stream.
    pub(super) fn last_lines(&self) -> Vec<String> {
        let begun = [&self.stdout.line, &self.stderr.line].into_iter().filter(|line| !line.is_empty());
        self.recorder.tail.lines.iter().chain(begun).map(|line| escape_line(line)).collect()
    }

    /// The first byte of standard output, once there is one.
    pub(super) fn first_printed(&self) -> Option<u8> {
        self.stdout.first
    }

    fn read_into(&mut self, stream: OutputStream, captured: &mut Captured) -> CaptureState {
        let (pipe, recorder) = self.pipe_and_recorder(stream);
        let mut chunk = [0; CAPTURE_CHUNK];
        let read = retry_on_intr(|| rustix::io::read(&pipe.source, &mut chunk));
        pipe.is_emptied = read.is_err() || read.is_ok_and(|count| count < chunk.len());
        match read {
            Err(Errno::WOULDBLOCK) => CaptureState::Empty,
            // Reading a pipe does not fail. If it does, nothing more will come out of the pipe.
            Ok(0) | Err(_) => {
                pipe.finish(&mut |line| recorder.complete(line, captured));
                CaptureState::Ended
            }
            Ok(count) => {
                pipe.split(&chunk[..count], &mut |line| recorder.complete(line, captured));
                match recorder.rate.take_bytes(count) {
                    Some(until) => CaptureState::Throttled { until },
                    None => CaptureState::Open,
                }
            }
        }
    }

    fn pipe_and_recorder(&mut self, stream: OutputStream) -> (&mut Pipe, &mut LineRecorder) {
        match stream {
            OutputStream::Stdout => (&mut self.stdout, &mut self.recorder),
            OutputStream::Stderr => (&mut self.stderr, &mut self.recorder),
        }
    }
}

/// Counts and keeps the lines of both streams.
#[derive(Debug, Default)]
struct LineRecorder {
    rate: OutputRate,
    tail: Tail,
}

impl LineRecorder {
    /// Takes a complete line and leaves an empty one in its place.
    fn complete(&mut self, line: &mut Vec<u8>, captured: &mut Captured) {
        if self.rate.take_line() {
            captured.lines.push(escape_line(line));
        } else {
            captured.dropped += 1;
        }
        self.tail.keep(line);
    }
}

/// One stream, with its unfinished line.
#[derive(Debug)]
struct Pipe {
    source: Arc<OwnedFd>,
    /// At most [`RAW_LINE_MAX`] bytes. The rest of a longer line is dropped.
    line: Vec<u8>,
    /// The last read took all that there was.
    is_emptied: bool,
    /// The first byte that was read.
    first: Option<u8>,
}

impl Pipe {
    fn new(source: OwnedFd) -> io::Result<Pipe> {
        ioctl_fionbio(&source, true)?;
        Ok(Pipe { source: Arc::new(source), line: Vec::new(), is_emptied: true, first: None })
    }

    /// Splits bytes into lines. `on_line` takes each complete line and leaves an empty one in its place.
    fn split(&mut self, bytes: &[u8], on_line: &mut dyn FnMut(&mut Vec<u8>)) {
        self.first = self.first.or_else(|| bytes.first().copied());
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, complete) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            let room = RAW_LINE_MAX - self.line.len();
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            if complete {
                on_line(&mut self.line);
            }
        }
    }

    /// The stream has ended. A last line without a newline counts as a line.
    fn finish(&mut self, on_line: &mut dyn FnMut(&mut Vec<u8>)) {
        if !self.line.is_empty() {
            on_line(&mut self.line);
        }
    }
}

/// What was printed in the current second, against its limits.
#[derive(Debug, Default)]
struct OutputRate {
    /// When the current second began. It begins with the first output.
    since: Option<Instant>,
    lines: usize,
    bytes: usize,
}

impl OutputRate {
    fn renew(&mut self, now: Instant) {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= SECOND) {
            *self = OutputRate { since: Some(now), lines: 0, bytes: 0 };
        }
    }

    fn take_line(&mut self) -> bool {
        self.lines += 1;
        self.lines <= WORKER_LINES_PER_SECOND
    }

    /// Counts bytes. Returns when to go on, if the limit is reached.
    fn take_bytes(&mut self, count: usize) -> Option<Instant> {
        self.bytes += count;
        let used_up = self.bytes >= WORKER_BYTES_PER_SECOND;
        self.since.filter(|_| used_up).map(|since| since + SECOND)
    }
}

/// The last lines as they were printed. They are escaped only when they are asked for.
#[derive(Debug, Default)]
struct Tail {
    lines: VecDeque<Vec<u8>>,
}

impl Tail {
    /// Stores `line` and leaves an empty one in its place. Buffers are reused, so a flood of lines allocates nothing.
    fn keep(&mut self, line: &mut Vec<u8>) {
        let full = self.lines.len() == TAIL_LINES;
        let mut empty = if full { self.lines.pop_front() } else { None }.unwrap_or_default();
        empty.clear();
        self.lines.push_back(std::mem::replace(line, empty));
    }

    /// The last lines, escaped: as many as this, or as there are.
    fn last(&self, count: usize) -> Vec<String> {
        let skipped = self.lines.len().saturating_sub(count);
        self.lines.iter().skip(skipped).map(|line| escape_line(line)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::wait::wait_for;
    use super::*;
    use rustix::event::PollFlags;
    use std::io::{PipeWriter, Write, pipe};

    fn pipes() -> (Capture, PipeWriter, PipeWriter) {
        let (stdout, print) = pipe().unwrap();
        let (stderr, complain) = pipe().unwrap();
        (Capture::new(stdout.into(), stderr.into()).unwrap(), print, complain)
    }

    /// A child that another test is starting may hold the pipe for a moment after we have let go of it.
    fn wait_for_the_end(capture: &Capture, stream: OutputStream) {
        assert!(wait_for(&capture.source(stream), PollFlags::IN, Duration::from_secs(10)));
    }

    fn numbered(numbers: std::ops::Range<usize>) -> String {
        numbers.map(|number| format!("line {number}\n")).collect()
    }

    #[test]
    fn a_line_is_handed_over_when_it_is_complete() {
        let (mut capture, mut print, _complain) = pipes();
        let now = Instant::now();
        assert_eq!(capture.read(OutputStream::Stdout, now), Captured::nothing(CaptureState::Empty));
        print.write_all(b"one\ntw").unwrap();
        let one = capture.read(OutputStream::Stdout, now);
        assert_eq!((one.lines, one.is_all, one.has_begun), (vec!["one".to_owned()], true, true));
        print.write_all(b"o\n\nend").unwrap();
        assert_eq!(capture.read(OutputStream::Stdout, now).lines, ["two", ""]);
        drop(print);
        wait_for_the_end(&capture, OutputStream::Stdout);
        let end = capture.read(OutputStream::Stdout, now);
        assert_eq!(end, Captured { lines: vec!["end".into()], ..Captured::nothing(CaptureState::Ended) });
    }

    #[test]
    fn the_two_streams_do_not_mix() {
        let (mut capture, mut print, mut complain) = pipes();
        let now = Instant::now();
        print.write_all(b"to ").unwrap();
        complain.write_all(b"stderr\n").unwrap();
        assert!(capture.read(OutputStream::Stdout, now).lines.is_empty());
        assert_eq!(capture.read(OutputStream::Stderr, now).lines, ["stderr"]);
        print.write_all(b"stdout\n").unwrap();
        assert_eq!(capture.read(OutputStream::Stdout, now).lines, ["to stdout"]);
    }

    #[test]
    fn an_endless_line_is_one_line_and_takes_no_memory() {
        let (mut capture, mut print, _complain) = pipes();
        let now = Instant::now();
        for _ in 0..20 {
            print.write_all(&[b'x'; 10_000]).unwrap();
            assert!(capture.read(OutputStream::Stdout, now).lines.is_empty());
        }
        print.write_all(b"\nnext\n").unwrap();
        assert_eq!(
            capture.read(OutputStream::Stdout, now).lines,
            ["x".repeat(WORKER_LINE_MAX - 3) + "…", "next".into()]
        );
        assert!(capture.recorder.tail.lines.iter().all(|line| line.len() <= RAW_LINE_MAX));
    }

    #[test]
    fn lines_over_the_rate_are_counted_and_the_last_ones_are_kept_all_the_same() {
        let (mut capture, mut print, mut complain) = pipes();
        let now = Instant::now();
        print.write_all(numbered(0..WORKER_LINES_PER_SECOND + 20).as_bytes()).unwrap();
        let printed = capture.read(OutputStream::Stdout, now);
        assert_eq!((printed.lines.len(), printed.dropped), (WORKER_LINES_PER_SECOND, 20));
        assert_eq!(printed.last_dropped, capture.last_lines());
        assert_eq!(capture.last_lines()[TAIL_LINES - 1], format!("line {}", WORKER_LINES_PER_SECOND + 19));
        assert_eq!(capture.last_lines().len(), TAIL_LINES);

        complain.write_all(b"panic\n").unwrap();
        let complained = capture.read(OutputStream::Stderr, now + SECOND / 2);
        assert_eq!((complained.lines.len(), complained.dropped), (0, 1));
        assert_eq!(complained.last_dropped, ["panic"], "only what was dropped now");
        assert_eq!(capture.last_lines()[TAIL_LINES - 1], "panic");

        print.write_all(b"later\n").unwrap();
        assert_eq!(capture.read(OutputStream::Stdout, now + SECOND).lines, ["later"]);
    }

    #[test]
    fn a_flood_is_left_alone_until_the_next_second() {
        let (mut capture, mut print, _complain) = pipes();
        let now = Instant::now();
        for _ in 1..WORKER_BYTES_PER_SECOND / CAPTURE_CHUNK {
            print.write_all(&[b'x'; CAPTURE_CHUNK]).unwrap();
            assert_eq!(capture.read(OutputStream::Stdout, now).state, CaptureState::Open);
            assert!(!capture.stdout.is_emptied, "there may be more");
        }
        print.write_all(&[b'x'; CAPTURE_CHUNK]).unwrap();
        let until = now + SECOND;
        assert_eq!(
            capture.read(OutputStream::Stdout, now + SECOND / 2).state,
            CaptureState::Throttled { until }
        );
        print.write_all(b"x").unwrap();
        assert_eq!(capture.read(OutputStream::Stdout, until).state, CaptureState::Open);
    }

    #[test]
    fn the_rest_is_all_there_is_and_counts_as_complete() {
        let (mut capture, mut print, complain) = pipes();
        let now = Instant::now();
        print.write_all(&[b'x'; 60_000]).unwrap();
        print.write_all(b"\nlast words").unwrap();
        let rest = capture.read_rest(OutputStream::Stdout, now);
        assert_eq!((rest.lines.len(), rest.lines[1].as_str()), (2, "last words"));
        assert_eq!(rest.state, CaptureState::Empty, "somebody holds the pipe");
        drop(complain);
        wait_for_the_end(&capture, OutputStream::Stderr);
        assert_eq!(capture.read_rest(OutputStream::Stderr, now).state, CaptureState::Ended);
    }

    #[test]
    fn what_was_begun_is_among_the_last_lines() {
        let (mut capture, mut print, mut complain) = pipes();
        print.write_all(b"one\ntw").unwrap();
        complain.write_all(b"pani").unwrap();
        capture.read(OutputStream::Stdout, Instant::now());
        capture.read(OutputStream::Stderr, Instant::now());
        assert_eq!(capture.last_lines(), ["one", "tw", "pani"]);
    }
}
