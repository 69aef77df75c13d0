//! Lines for the people who run this. The loop never writes them itself: a reader of standard error that stops must
//! not stop the loop. They go through a bounded channel to a thread of their own; what does not fit is counted and
//! reported when there is room again.

use std::cell::Cell;
use std::fmt;
use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Lines that wait to be written.
const LINES_MAX: usize = 1024;

/// How long dropping the log waits for its last lines to be written.
const LAST_LINES_MAX: Duration = Duration::from_millis(500);

/// How much is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Only what needs somebody's attention now.
    Quiet,
    /// Also what goes wrong, and what workers print.
    #[default]
    Normal,
    /// Also what happens in the ordinary course of things.
    Verbose,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Log {
    level: Level,
    lines: Option<SyncSender<String>>,
    lost: Cell<u64>,
    written: Option<Receiver<()>>,
}

impl Log {
    /// A log on standard error.
    pub(crate) fn to_stderr(level: Level) -> Log {
        let (lines, waiting) = sync_channel::<String>(LINES_MAX);
        let (done, written) = sync_channel::<()>(0);
        let thread = std::thread::Builder::new().name("offload-log".to_owned()).spawn(move || {
            for line in waiting {
                let _ = writeln!(std::io::stderr().lock(), "{line}");
            }
            drop(done);
        });
        Log { level, lines: thread.is_ok().then_some(lines), lost: Cell::new(0), written: Some(written) }
    }

    /// Says something that needs attention.
    pub(crate) fn error(&self, line: fmt::Arguments<'_>) {
        self.say(Level::Quiet, line);
    }

    /// Says something that went wrong.
    pub(crate) fn warn(&self, line: fmt::Arguments<'_>) {
        self.say(Level::Normal, line);
    }

    /// A way to say that something went wrong from another thread. The log waits for its end when it is dropped.
    pub(crate) fn warner(&self) -> impl Fn(fmt::Arguments<'_>) + Send + 'static {
        let lines = self.lines.clone().filter(|_| Level::Normal <= self.level);
        move |line| {
            if let Some(lines) = &lines {
                // Without room it is lost; the next one will come.
                let _ = lines.try_send(format!("offload: {line}"));
            }
        }
    }

    /// Says something ordinary.
    pub(crate) fn info(&self, line: fmt::Arguments<'_>) {
        self.say(Level::Verbose, line);
    }

    fn say(&self, level: Level, line: fmt::Arguments<'_>) {
        let Some(lines) = self.lines.as_ref().filter(|_| level <= self.level) else { return };
        let lost = self.lost.get();
        let text = match lost {
            0 => format!("offload: {line}"),
            _ => format!("offload: {lost} lines were lost here\noffload: {line}"),
        };
        match lines.try_send(text) {
            Ok(()) => self.lost.set(0),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.lost.set(lost + 1),
        }
    }
}

impl Drop for Log {
    /// Gives the thread a moment to write what is there; a reader that has stopped is not waited for.
    fn drop(&mut self) {
        self.lines = None;
        if let Some(written) = self.written.take() {
            let _ = written.recv_timeout(LAST_LINES_MAX);
        }
    }
}
