//! The messages of a batch while it runs: a progress bar (if standard error is a terminal) and lines for people. Both
//! go to standard error, which may block if its reader stops. So a separate thread writes them, never the event loop.
//!
//! ```text
//!   show ---> the latest progress -----------.
//!   say  ---> at most PROGRESS_LINES_MAX ----+---> thread ---> standard error, which may block
//!   close --> removes the bar ---------------'
//! ```

use super::batch::BatchProgress;
use super::output::say;
use super::text;
use crate::limits::{PROGRESS_CLOSE_TIMEOUT, PROGRESS_LINES_MAX};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::fs::tell;
use rustix::termios::tcgetwinsize;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IsTerminal, stderr, stdout};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The template while the number of jobs is not known yet, and where a bar would leave no room for its message.
const COUNTER: &str = "{wide_msg}";

/// The template once all jobs are known. It has no colours.
const BAR: &str = "{wide_bar} {percent:>3} %  {msg}";

/// A terminal of fewer columns gets no bar.
const BAR_COLUMNS_MIN: u16 = 60;

/// The columns of a terminal that does not say how many it has.
const COLUMNS: u16 = 80;

/// How often the bar is drawn: changes in between are drawn together, and the elapsed time advances between two jobs.
const DRAWN_EVERY: Duration = Duration::from_millis(100);

/// See the module's documentation.
pub(crate) struct ProgressDisplay {
    shared: Arc<SharedDisplay>,
    is_drawing: bool,
}

/// The state that the loop and the thread share.
struct SharedDisplay {
    pending: Mutex<Pending>,
    /// Notified when the thread has something to do.
    filled: Condvar,
    /// Notified when the thread has ended.
    cleared: Condvar,
}

#[derive(Default)]
struct Pending {
    progress: Option<BatchProgress>,
    /// How many jobs there are, if that is known before all inputs are read.
    total: Option<u64>,
    lines: VecDeque<String>,
    is_closed: bool,
    is_cleared: bool,
}

impl ProgressDisplay {
    /// Counts ended jobs. As soon as it is known how many there are, it shows a bar of ended jobs against all. It draws only if standard error is a terminal and the results go somewhere else.
    pub(crate) fn new(quiet: bool) -> ProgressDisplay {
        if quiet || !stderr().is_terminal() || stdout().is_terminal() {
            return ProgressDisplay::hidden();
        }
        let bar =
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style(COUNTER));
        ProgressDisplay::start(Some(bar))
    }

    /// One that draws nothing.
    pub(crate) fn hidden() -> ProgressDisplay {
        ProgressDisplay::start(None)
    }

    fn start(bar: Option<ProgressBar>) -> ProgressDisplay {
        let shared = Arc::new(SharedDisplay {
            pending: Mutex::default(),
            filled: Condvar::new(),
            cleared: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let is_drawing = bar.is_some();
        let thread = std::thread::Builder::new()
            .name("offload-talk".to_owned())
            .spawn(move || of_thread.write(bar.as_ref()));
        // If no thread can be started, nothing is printed; that is better than blocking the event loop.
        shared.pending().is_cleared = thread.is_err();
        ProgressDisplay { shared, is_drawing }
    }

    /// The number of jobs is this.
    pub(crate) fn expect(&self, total: u64) {
        self.shared.pending().total = Some(total);
    }

    /// The number of jobs is that of the lines of this file from its offset on, if it is a regular one. A thread counts them.
    pub(crate) fn expect_lines_of(&self, file: File, end: u8) {
        if !self.is_drawing || !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        // If there is no thread, the number is known when all lines have been read.
        let _ = std::thread::Builder::new().name("offload-count".to_owned()).spawn(move || {
            if let Ok(total) = count_lines(&file, end) {
                shared.pending().total = Some(total);
            }
        });
    }

    /// Shows how far the batch is.
    pub(crate) fn show(&self, progress: BatchProgress) {
        self.shared.pending().progress = Some(progress);
    }

    /// Prints a line, above the bar if there is one.
    pub(crate) fn say(&self, line: String) {
        let mut pending = self.shared.pending();
        if pending.lines.len() < PROGRESS_LINES_MAX {
            pending.lines.push_back(line);
            self.shared.filled.notify_one();
        }
    }

    /// Removes the bar. Returns when all lines are written, or after [`PROGRESS_CLOSE_TIMEOUT`].
    pub(crate) fn close(&self) {
        let deadline = Instant::now() + PROGRESS_CLOSE_TIMEOUT;
        let mut pending = self.shared.pending();
        pending.is_closed = true;
        self.shared.filled.notify_one();
        while !pending.is_cleared {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            pending =
                self.shared.cleared.wait_timeout(pending, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl SharedDisplay {
    /// The lock is held for a moment only, and never during a write.
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The main function of the thread.
    fn write(&self, bar: Option<&ProgressBar>) {
        let began = Instant::now();
        loop {
            let (progress, lines, is_closed) = self.next(bar.is_some());
            if let (Some(bar), Some(progress)) = (bar, progress) {
                draw(bar, &Drawn { progress, elapsed: began.elapsed(), columns: columns() });
            }
            if let Some(bar) = bar.filter(|_| is_closed) {
                bar.finish_and_clear();
            }
            for line in lines {
                match bar.filter(|_| !is_closed) {
                    Some(bar) => bar.suspend(|| say(&line)),
                    None => say(&line),
                }
            }
            if is_closed {
                self.pending().is_cleared = true;
                return self.cleared.notify_all();
            }
        }
    }

    /// What to write next: lines at once; for a bar also the latest progress, when it is time to draw.
    fn next(&self, is_drawing: bool) -> (Option<BatchProgress>, VecDeque<String>, bool) {
        let mut pending = self.pending();
        while pending.lines.is_empty() && !pending.is_closed {
            if !is_drawing {
                pending = self.filled.wait(pending).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (woken, timeout) =
                self.filled.wait_timeout(pending, DRAWN_EVERY).unwrap_or_else(PoisonError::into_inner);
            pending = woken;
            if timeout.timed_out() {
                break;
            }
        }
        let known = pending.total;
        let progress =
            pending.progress.map(|progress| BatchProgress { total: progress.total.or(known), ..progress });
        (progress, std::mem::take(&mut pending.lines), pending.is_closed)
    }
}

/// What is drawn.
struct Drawn {
    progress: BatchProgress,
    elapsed: Duration,
    columns: u16,
}

/// Sets the template first, because each later change may be drawn at once.
fn draw(bar: &ProgressBar, drawn: &Drawn) {
    let total = drawn.progress.total;
    let has_bar = total.is_some() && drawn.columns >= BAR_COLUMNS_MIN;
    bar.set_style(style(if has_bar { BAR } else { COUNTER }));
    total.into_iter().for_each(|total| bar.set_length(total));
    bar.set_position(drawn.progress.ended);
    bar.set_message(line(drawn));
    bar.tick();
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is ours")
}

fn columns() -> u16 {
    tcgetwinsize(stderr()).ok().map(|size| size.ws_col).filter(|columns| *columns > 0).unwrap_or(COLUMNS)
}

/// `3 of 40 done, 1 failed, 2.5/s, 15 s left` or, while nobody knows how many there are, `3 done, 1 failed, 2.5/s, 1024 lines
/// read so far`. The rate is that of the jobs that were run now.
fn line(Drawn { progress, elapsed, .. }: &Drawn) -> String {
    let BatchProgress { read, total, ended, failed, done_before } = *progress;
    let rate = (ended - done_before) as f64 / elapsed.as_secs_f64().max(1e-3);
    let speed = if rate < 10.0 { format!("{rate:.1}/s") } else { format!("{rate:.0}/s") };
    match total {
        None => format!("{ended} done, {failed} failed, {speed}, {} read so far", text::count(read, "line")),
        Some(total) => {
            let left = (rate > 0.0).then(|| total.saturating_sub(ended) as f64 / rate);
            let left = left.map_or_else(String::new, |seconds| format!(", {} left", time_left(seconds)));
            format!("{ended} of {total} done, {failed} failed, {speed}{left}")
        }
    }
}

/// In whole seconds: more would not be true.
fn time_left(seconds: f64) -> String {
    match seconds.ceil() as u64 {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => text::time(seconds.saturating_mul(1_000_000)),
    }
}

/// How many lines there are from the offset of this file on, which stays where it is. The last one may lack its end.
fn count_lines(file: &File, end: u8) -> io::Result<u64> {
    let mut at = tell(file)?;
    let (mut lines, mut last, mut piece) = (0, end, vec![0; 64 << 10]);
    loop {
        let read = file.read_at(&mut piece, at)?;
        let Some(of_piece) = piece[..read].last() else { break };
        last = *of_piece;
        lines += piece[..read].iter().filter(|byte| **byte == end).count() as u64;
        at += read as u64;
    }
    Ok(lines + u64::from(last != end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const FIVE_SECONDS: Duration = Duration::from_secs(5);

    fn progress(total: Option<u64>, ended: u64) -> BatchProgress {
        BatchProgress { read: 40, total, ended, failed: 1, done_before: 0 }
    }

    #[test]
    fn it_is_full_when_all_jobs_have_ended_and_not_when_all_lines_are_read() {
        let bar = ProgressBar::hidden();
        bar.unset_length();
        draw(&bar, &Drawn { progress: progress(None, 4), elapsed: FIVE_SECONDS, columns: 80 });
        assert_eq!(bar.length(), None);
        assert_eq!(bar.message(), "4 done, 1 failed, 0.8/s, 40 lines read so far");
        draw(&bar, &Drawn { progress: progress(Some(40), 4), elapsed: FIVE_SECONDS, columns: 80 });
        assert_eq!((bar.position(), bar.length()), (4, Some(40)));
        assert_eq!(bar.message(), "4 of 40 done, 1 failed, 0.8/s, 45 s left");
    }

    #[test]
    fn the_rate_leaves_out_what_was_done_before() {
        let line_of = |progress| line(&Drawn { progress, elapsed: FIVE_SECONDS, columns: 80 });
        let resumed = BatchProgress { done_before: 900, ..progress(Some(1_000_000), 1000) };
        assert_eq!(line_of(resumed), "1000 of 1000000 done, 1 failed, 20/s, 13 h 52 min left");
        assert_eq!(line_of(progress(Some(40), 0)), "0 of 40 done, 1 failed, 0.0/s");
    }

    #[test]
    fn lines_are_counted_from_where_the_file_is() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"a\nb\nc").unwrap();
        assert_eq!(count_lines(&file, b'\n').unwrap(), 0, "it is at its end");
        for (from, lines) in [(0, 3), (2, 2), (4, 1)] {
            io::Seek::seek(&mut file, io::SeekFrom::Start(from)).unwrap();
            assert_eq!(count_lines(&file, b'\n').unwrap(), lines);
        }
        file.write_all(b"\n").unwrap();
        io::Seek::rewind(&mut file).unwrap();
        assert_eq!((count_lines(&file, b'\n').unwrap(), count_lines(&file, 0).unwrap()), (3, 1));
    }

    #[test]
    fn closing_takes_the_bar_away_and_whatever_is_said_after_it_stops_nobody() {
        let bar = ProgressBar::hidden();
        let display = ProgressDisplay::start(Some(bar.clone()));
        display.show(progress(Some(40), 4));
        display.close();
        assert!(bar.is_finished(), "the last progress was drawn and the bar cleared");
        for _ in 0..10 * PROGRESS_LINES_MAX {
            display.say("nobody writes this any more".to_owned());
        }
        assert_eq!(display.shared.pending().lines.len(), PROGRESS_LINES_MAX);
        display.close();
    }
}
