//! Writes lines to a stream whose reader may stop reading: a terminal after Ctrl-S, or a full pipe. A separate thread
//! writes the lines, so the stream never blocks the event loop.
//!
//! ```text
//!   print ---> at most PRINTER_LINES_MAX lines, PRINTER_BYTES_MAX bytes ---> thread ---> the stream, which may block
//!      '-- no room: the line is counted, and the number reported when there is room again
//!
//!   continue_in ---> from the next lines on, another stream: a log file that was renamed is opened again
//! ```

use crate::limits::{PRINTER_BYTES_MAX, PRINTER_CLOSE_TIMEOUT, PRINTER_LINES_MAX};
use crate::origin::Origin;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr, write};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Makes the line that reports how many lines were lost.
pub type TellLost = Box<dyn Fn(u64) -> String + Send>;

/// A writer of lines with a thread. See the module's documentation.
#[must_use = "dropping it ends the thread that writes"]
pub struct Printer {
    queue: Arc<PrinterQueue>,
}

/// A handle for printing from another place or thread, while the [`Printer`] exists.
#[derive(Clone)]
pub struct PrinterHandle {
    queue: Arc<PrinterQueue>,
}

struct PrinterQueue {
    /// A forked child has no thread that writes, and one of its parent may have had the lock.
    origin: Origin,
    state: Mutex<PrinterState>,
    /// Notified when the thread has something to do.
    filled: Condvar,
    /// Notified when the thread has written everything.
    emptied: Condvar,
}

#[derive(Default)]
struct PrinterState {
    lines: VecDeque<String>,
    /// Bytes of these lines and of those that are being written.
    bytes: usize,
    lost: u64,
    is_writing: bool,
    is_closed: bool,
    /// The stream for the next lines, if it is another.
    next_stream: Option<OwnedFd>,
}

impl Printer {
    /// A printer for standard output. Lines for which there is no room are lost.
    pub fn to_stdout() -> Printer {
        Printer::start("offload-stdout", io::stdout(), None)
    }

    /// A printer for standard error. It reports in a line how many lines were lost.
    pub(crate) fn to_stderr(tell_lost: TellLost) -> Printer {
        Printer::start("offload-log", io::stderr(), Some(tell_lost))
    }

    /// A printer for any stream, such as a file. `tell_lost` makes the line that says how many lines were lost.
    pub fn to(stream: impl AsFd, tell_lost: TellLost) -> Printer {
        Printer::start("offload-printer", stream, Some(tell_lost))
    }

    /// Starts the thread. The descriptor is duplicated, so that a thread that is stuck in a write holds no lock of the
    /// standard library.
    fn start(name: &str, stream: impl AsFd, tell_lost: Option<TellLost>) -> Printer {
        let queue = Arc::new(PrinterQueue::new());
        let of_thread = Arc::clone(&queue);
        let stream = stream.as_fd().try_clone_to_owned();
        let thread = stream.and_then(|stream| {
            let work = move || of_thread.write_all_to(stream, tell_lost.as_ref());
            std::thread::Builder::new().name(name.to_owned()).spawn(work)
        });
        // Without a thread nothing can be printed. That is better than a program that stops because of it.
        queue.state().is_closed = thread.is_err();
        Printer { queue }
    }

    /// Queues a line to be written soon.
    pub fn print(&self, line: String) {
        self.queue.push(line);
    }

    /// A handle for printing from another place or thread.
    pub fn handle(&self) -> PrinterHandle {
        PrinterHandle { queue: Arc::clone(&self.queue) }
    }
}

impl PrinterHandle {
    /// Queues a line to be written soon. Returns false if there is no room, or the printer is gone.
    pub fn print(&self, line: String) -> bool {
        self.queue.push(line)
    }

    /// From now on lines go to this stream; those that are being written go where they went before.
    pub fn continue_in(&self, stream: OwnedFd) {
        let before = self.queue.state().next_stream.replace(stream);
        drop(before);
    }
}

impl fmt::Debug for PrinterHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PrinterHandle").finish_non_exhaustive()
    }
}

impl fmt::Debug for Printer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Printer").finish_non_exhaustive()
    }
}

impl Drop for Printer {
    /// Gives the thread a moment to write the last lines. A reader that has stopped is not waited for, and neither is the thread of
    /// the parent of a forked child.
    fn drop(&mut self) {
        if !self.queue.origin.is_here() {
            return;
        }
        let deadline = Instant::now() + PRINTER_CLOSE_TIMEOUT;
        let mut state = self.queue.state();
        state.is_closed = true;
        self.queue.filled.notify_one();
        while !state.lines.is_empty() || state.is_writing {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.queue.emptied.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl PrinterQueue {
    fn new() -> PrinterQueue {
        PrinterQueue {
            origin: Origin::here(),
            state: Mutex::new(PrinterState::default()),
            filled: Condvar::new(),
            emptied: Condvar::new(),
        }
    }

    /// Locks the state. The lock is held briefly, and never during a write.
    fn state(&self) -> MutexGuard<'_, PrinterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: String) -> bool {
        if !self.origin.is_here() {
            return false;
        }
        let mut state = self.state();
        if state.is_closed
            || state.lines.len() >= PRINTER_LINES_MAX
            || state.bytes + line.len() > PRINTER_BYTES_MAX
        {
            state.lost += u64::from(!state.is_closed);
            return false;
        }
        state.bytes += line.len();
        state.lines.push_back(line);
        self.filled.notify_one();
        true
    }

    fn write_all_to(&self, mut stream: OwnedFd, tell_lost: Option<&TellLost>) {
        while let Some((lines, lost)) = self.next() {
            let next_stream = self.state().next_stream.take();
            stream = next_stream.unwrap_or(stream);
            let mut text = String::new();
            for line in &lines {
                text.push_str(line);
                text.push('\n');
            }
            if let Some(tell_lost) = tell_lost.filter(|_| lost > 0) {
                text.push_str(&tell_lost(lost));
                text.push('\n');
            }
            // An error means that the reader has gone away, which is no reason to stop.
            let _ = write_all(&stream, text.as_bytes());
            let mut state = self.state();
            state.is_writing = false;
            state.bytes -= lines.iter().map(String::len).sum::<usize>();
            self.emptied.notify_all();
        }
    }

    /// Takes all lines that wait, and the number of lines that were lost after them. None if the printer is closed and
    /// nothing is left.
    fn next(&self) -> Option<(Vec<String>, u64)> {
        let mut state = self.state();
        while state.lines.is_empty() && state.lost == 0 {
            if state.is_closed {
                return None;
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_writing = true;
        Some((state.lines.drain(..).collect(), std::mem::take(&mut state.lost)))
    }
}

fn write_all(stream: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match retry_on_intr(|| write(stream, bytes)) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => bytes = &bytes[written..],
            // Another process may have made the shared stream non-blocking.
            Err(Errno::AGAIN) => {
                retry_on_intr(|| poll(&mut [PollFd::new(stream, PollFlags::OUT)], None))?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    fn printer() -> (Printer, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Printer::start("printer", theirs, Some(Box::new(|lost| format!("{lost} lost")))), ours)
    }

    #[test]
    fn lines_are_written_in_their_order_and_the_last_ones_before_it_is_gone() {
        let (printer, mut reader) = printer();
        for line in ["one", "two"] {
            printer.print(line.to_owned());
        }
        drop(printer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one\ntwo\n");
    }

    #[test]
    fn lines_after_the_change_of_the_stream_go_to_the_other() {
        let (printer, mut reader) = printer();
        let (other, mut other_reader) = UnixStream::pair().unwrap();
        printer.print("one".to_owned());
        let mut text = [0; 4];
        reader.read_exact(&mut text).unwrap();
        printer.handle().continue_in(other.into());
        printer.print("two".to_owned());
        drop(printer);
        let (mut rest, mut others) = (String::new(), String::new());
        reader.read_to_string(&mut rest).unwrap();
        other_reader.read_to_string(&mut others).unwrap();
        assert_eq!((&text, rest.as_str(), others.as_str()), (b"one\n", "", "two\n"));
    }

    /// The test has the lock all the time, as the thread of the parent may have it for ever.
    #[test]
    fn a_forked_child_drops_it_without_the_lock_and_waits_for_no_line() {
        let mut queue = PrinterQueue::new();
        queue.origin = Origin::elsewhere();
        queue.state.get_mut().unwrap().lines.push_back("of the parent".to_owned());
        let queue = Arc::new(queue);
        let printer = Printer { queue: Arc::clone(&queue) };
        let locked = queue.state();
        let (say_dropped, dropped) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                printer.print("of the child".to_owned());
                drop(printer);
                say_dropped.send(()).unwrap();
            });
            let is_dropped = dropped.recv_timeout(PRINTER_CLOSE_TIMEOUT / 2);
            assert_eq!(locked.lines, ["of the parent"]);
            drop(locked);
            is_dropped.expect("it waits for nothing");
        });
    }

    #[test]
    fn a_reader_that_has_stopped_stops_nobody_and_is_told_later_what_it_missed() {
        let (printer, mut reader) = printer();
        let line = "x".repeat(64 << 10);
        let lines = printer.handle();
        let mut printed = 0;
        while lines.print(line.clone()) {
            printed += 1;
            assert!(printed < 1000, "memory has no bound");
        }
        assert!(!lines.print(line.clone()));
        let collected = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text
        });
        drop(printer);
        let text = collected.join().unwrap();
        assert_eq!(text.matches(&line).count(), printed);
        assert!(text.ends_with("\n2 lost\n"), "{}", &text[text.len() - 20..]);
        assert!(!lines.print("late".to_owned()));
    }
}
