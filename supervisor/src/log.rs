//! The log: lines for the operator, on standard error. The event loop never writes them itself: they go through a
//! [`Printer`](crate::printer). Every line has a time and a level, and the number of lines of each kind is
//! [limited](rate). In a program that embeds the supervisor they can be events of the crate `tracing` instead.
//!
//! ```text
//!   2026-11-22T10:22:00.123Z warn slot 0: worker process 4242 ended with signal 11 (SIGSEGV) while it ran job 01M7...
//!   {"time":"2026-11-22T10:22:00.123Z","level":"warn","message":"..."}                          (--log-format json)
//! ```

mod rate;

use crate::calendar::utc;
use crate::limits::LOG_LINE_MAX;
use crate::printer::{Printer, PrinterHandle};
use offload_protocol::nouns::cut;
pub(crate) use rate::LineKind;
use rate::{Rates, Verdict};
use std::cell::RefCell;
use std::fmt;
use std::panic::Location;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// How much is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Only what needs attention now.
    Quiet,
    /// Also what goes wrong, and what workers print.
    #[default]
    Normal,
    /// Also ordinary events.
    Verbose,
}

impl Level {
    /// The level that is written in a line that is logged from this level on.
    fn word(self) -> &'static str {
        match self {
            Level::Quiet => "error",
            Level::Normal => "warn",
            Level::Verbose => "info",
        }
    }
}

/// From which level on a line is logged, and which level it states. These differ for good news that is important.
#[derive(Clone, Copy, Debug)]
struct Weight {
    said_from: Level,
    word: &'static str,
}

impl Weight {
    /// An ordinary event that is important enough to be logged at the normal level.
    const NEWS: Weight = Weight { said_from: Level::Normal, word: "info" };
}

impl From<Level> for Weight {
    fn from(level: Level) -> Weight {
        Weight { said_from: level, word: level.word() }
    }
}

/// How a line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people: time, level and message.
    #[default]
    Text,
    /// For programs: one JSON document per line.
    Json,
    /// Events of the crate `tracing` with the target `offload`, in place of lines on standard error. Needs the feature `tracing`.
    /// Most of them come from the thread of the event loop, which waits for the subscriber: it should not block.
    #[cfg(feature = "tracing")]
    Tracing,
}

impl LogFormat {
    fn line(self, level: &'static str, message: &str) -> String {
        let time = utc(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let message = one_line(message);
        match self {
            LogFormat::Text => format!("{time} {level} {message}"),
            LogFormat::Json => {
                serde_json::json!({ "time": time, "level": level, "message": message }).to_string()
            }
            #[cfg(feature = "tracing")]
            LogFormat::Tracing => message,
        }
    }
}

/// Where lines go.
#[derive(Debug)]
enum Outlet<Lines> {
    Stream(Lines, LogFormat),
    #[cfg(feature = "tracing")]
    Tracing,
}

impl<Lines> Outlet<Lines> {
    fn put(&self, line: &Line, print: impl FnOnce(&Lines, String)) {
        match self {
            Outlet::Stream(lines, format) => print(lines, format.line(line.level, &line.message)),
            #[cfg(feature = "tracing")]
            Outlet::Tracing => line.become_an_event(),
        }
    }
}

/// A line that is to be written.
#[derive(Debug)]
struct Line {
    level: &'static str,
    message: String,
}

#[cfg(feature = "tracing")]
impl Line {
    fn become_an_event(&self) {
        let message = one_line(&self.message);
        match self.level {
            "error" => tracing::error!(target: "offload", "{message}"),
            "warn" => tracing::warn!(target: "offload", "{message}"),
            _ => tracing::info!(target: "offload", "{message}"),
        }
    }
}

/// Makes the lines of one thread, and limits how many of each kind there are.
#[derive(Debug)]
struct LineMaker {
    level: Level,
    rates: Rates,
    since: Instant,
}

impl LineMaker {
    fn new(level: Level) -> LineMaker {
        LineMaker { level, rates: Rates::default(), since: Instant::now() }
    }

    /// The line that is to be written, or None if it is not logged at this level or exceeds the limit of its kind.
    fn line(&mut self, kind: LineKind, weight: Weight, text: fmt::Arguments<'_>) -> Option<Line> {
        if weight.said_from > self.level {
            return None;
        }
        let text = text.to_string();
        let message = match self.rates.judge(kind, text.len(), self.since.elapsed()) {
            Verdict::LeaveOut => return None,
            Verdict::Write { left_out: 0 } => text,
            Verdict::Write { left_out } => format!("{text} (and {left_out} more like this)"),
        };
        Some(Line { level: weight.word, message })
    }

    /// Lines that report how many lines were left out.
    fn owed(&mut self, is_end: bool) -> Vec<Line> {
        let owed = self.rates.settle(self.since.elapsed(), is_end).into_iter();
        let line = |(kind, left_out): (LineKind, u64)| {
            let message = match kind {
                LineKind::Output => format!("{left_out} lines that workers printed are left out"),
                LineKind::Named(name) => format!("{name}: {left_out} more like this"),
                LineKind::Place(place) => format!("{left_out} more lines are left out, said at {place}"),
            };
            Line { level: Level::Normal.word(), message }
        };
        owed.map(line).collect()
    }
}

/// The log of a supervisor: lines on standard error with a time and a level, of which each kind is limited. Logging never
/// waits for the reader.
#[derive(Debug)]
pub struct Log {
    line_maker: RefCell<LineMaker>,
    outlet: Outlet<Printer>,
}

impl Log {
    /// A log on standard error, unless the format is another place.
    pub(crate) fn new(level: Level, format: LogFormat) -> Log {
        let tell_lost = move |lost| {
            format.line(Level::Normal.word(), &format!("{lost} lines were lost here: nobody read them"))
        };
        let outlet = match format {
            LogFormat::Text | LogFormat::Json => {
                Outlet::Stream(Printer::to_stderr(Box::new(tell_lost)), format)
            }
            #[cfg(feature = "tracing")]
            LogFormat::Tracing => Outlet::Tracing,
        };
        Log { line_maker: RefCell::new(LineMaker::new(level)), outlet }
    }

    /// Logs something that needs attention.
    #[track_caller]
    pub fn error(&self, line: fmt::Arguments<'_>) {
        self.say(LineKind::Place(Location::caller()), Level::Quiet, line);
    }

    /// Logs something that went wrong.
    #[track_caller]
    pub fn warn(&self, line: fmt::Arguments<'_>) {
        self.say(LineKind::Place(Location::caller()), Level::Normal, line);
    }

    /// Logs an ordinary event that is shown at the normal level.
    #[track_caller]
    pub fn tell(&self, line: fmt::Arguments<'_>) {
        self.speak(LineKind::Place(Location::caller()), Weight::NEWS, line);
    }

    /// Logs an ordinary event.
    #[track_caller]
    pub fn info(&self, line: fmt::Arguments<'_>) {
        self.say(LineKind::Place(Location::caller()), Level::Verbose, line);
    }

    /// Logs a line of this kind. `level` is the lowest level at which it is shown.
    pub(crate) fn say(&self, kind: LineKind, level: Level, line: fmt::Arguments<'_>) {
        self.speak(kind, level.into(), line);
    }

    /// Like [`Log::tell`], for a line of this kind.
    pub(crate) fn tell_kind(&self, kind: LineKind, line: fmt::Arguments<'_>) {
        self.speak(kind, Weight::NEWS, line);
    }

    fn speak(&self, kind: LineKind, weight: Weight, line: fmt::Arguments<'_>) {
        let line = self.line_maker.borrow_mut().line(kind, weight, line);
        line.iter().for_each(|line| self.put(line));
    }

    fn put(&self, line: &Line) {
        self.outlet.put(line, |printer, line| printer.print(line));
    }

    /// Logs how many lines were left out.
    fn put_owed(&self, is_end: bool) {
        let owed = self.line_maker.borrow_mut().owed(is_end);
        owed.iter().for_each(|line| self.put(line));
    }

    /// Returns a function by which another thread can log warnings while the log exists.
    #[track_caller]
    pub(crate) fn warner(&self) -> impl FnMut(fmt::Arguments<'_>) + Send + 'static + use<> {
        let kind = LineKind::Place(Location::caller());
        let mut line_maker = LineMaker::new(self.line_maker.borrow().level);
        let outlet: Outlet<PrinterHandle> = match &self.outlet {
            Outlet::Stream(printer, format) => Outlet::Stream(printer.handle(), *format),
            #[cfg(feature = "tracing")]
            Outlet::Tracing => Outlet::Tracing,
        };
        move |line| {
            if let Some(line) = line_maker.line(kind, Level::Normal.into(), line) {
                outlet.put(&line, |lines, line| {
                    let _ = lines.print(line); // without room it is lost
                });
            }
        }
    }

    /// Counts lines of this kind that the caller has left out already.
    pub(crate) fn leave_out(&self, kind: LineKind, lines: usize) {
        self.line_maker.borrow_mut().rates.leave_out(kind, lines as u64);
    }

    /// Whether lines were left out and the number has not been logged yet.
    pub(crate) fn owes(&self) -> bool {
        self.line_maker.borrow().rates.owe()
    }

    /// Logs how many lines were left out, for the kinds of which a line may be written again.
    pub(crate) fn catch_up(&self) {
        self.put_owed(false);
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.put_owed(true);
    }
}

/// Makes a text one line of limited length. Control characters in foreign text are escaped already, so the only line
/// breaks are our own.
fn one_line(text: &str) -> String {
    let kept = cut(text, LOG_LINE_MAX);
    let end = if kept.len() < text.len() { "..." } else { "" };
    kept.replace('\n', " | ") + end
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_line_is_one_line_with_a_time_and_a_level_in_both_formats() {
        let line = LogFormat::Text.line("warn", "a\nb");
        assert!(line.ends_with("Z warn a | b"), "{line}");
        let document: serde_json::Value =
            serde_json::from_str(&LogFormat::Json.line("error", "a\nb \"c\"")).unwrap();
        assert_eq!((&document["level"], &document["message"]), (&"error".into(), &"a | b \"c\"".into()));
        assert!(document["time"].as_str().unwrap().ends_with('Z'));
        let long = LogFormat::Text.line("warn", &"x".repeat(2 * LOG_LINE_MAX));
        assert!(long.len() < LOG_LINE_MAX + 64 && long.ends_with("x..."));
    }

    #[test]
    fn what_was_left_out_is_told_with_the_next_line_of_its_kind() {
        let mut line_maker = LineMaker::new(Level::Normal);
        let mut say = || line_maker.line(LineKind::Named("x"), Level::Normal.into(), format_args!("line"));
        let written = (0..1000).filter(|_| say().is_some()).count() as u64;
        line_maker.since -= Duration::from_secs(5);
        let line = line_maker.line(LineKind::Named("x"), Level::Normal.into(), format_args!("line")).unwrap();
        assert_eq!(line.message, format!("line (and {} more like this)", 1000 - written));
        assert!(!line_maker.rates.owe());
    }
}
