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
use std::collections::VecDeque;
use std::io::{IsTerminal, stderr, stdout};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The template while the number of jobs is not known yet.
const COUNTER: &str = "{spinner} {msg}  {elapsed}";

/// The template once all jobs are known.
const BAR: &str = "{wide_bar} {percent:>3} %  {msg}  {elapsed}";

/// How often the bar is drawn: changes in between are drawn together, and the elapsed time advances between two jobs.
const DRAWN_EVERY: Duration = Duration::from_millis(100);

/// See the module's documentation.
pub(crate) struct ProgressDisplay {
    shared: Arc<SharedDisplay>,
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
    lines: VecDeque<String>,
    is_closed: bool,
    is_cleared: bool,
}

impl ProgressDisplay {
    /// Counts ended jobs. As soon as the last input line has been read, it shows a bar of ended jobs against all. It
    /// draws only if standard error is a terminal and the results go somewhere else.
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
        let thread = std::thread::Builder::new()
            .name("offload-talk".to_owned())
            .spawn(move || of_thread.write(bar.as_ref()));
        // If no thread can be started, nothing is printed; that is better than blocking the event loop.
        shared.pending().is_cleared = thread.is_err();
        ProgressDisplay { shared }
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
        loop {
            let (progress, lines, is_closed) = self.next(bar.is_some());
            if let (Some(bar), Some(progress)) = (bar, progress) {
                draw(bar, progress);
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
        (pending.progress, std::mem::take(&mut pending.lines), pending.is_closed)
    }
}

/// Sets the template first, because each later change may be drawn at once.
fn draw(bar: &ProgressBar, progress: BatchProgress) {
    if progress.is_all_read && bar.length().is_none() {
        bar.set_style(style(BAR));
        bar.set_length(progress.read);
    }
    bar.set_position(progress.ended);
    bar.set_message(line(progress));
    bar.tick();
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is ours")
}

/// `3 of 40 done, 1 failed` or, while lines are still being read, `3 done, 1 failed, 1024 lines read so far`.
fn line(progress: BatchProgress) -> String {
    let BatchProgress { read, is_all_read, ended, failed, .. } = progress;
    match is_all_read {
        true => format!("{ended} of {read} done, {failed} failed"),
        false => format!("{ended} done, {failed} failed, {} read so far", text::count(read, "line")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_full_when_all_jobs_have_ended_and_not_when_all_lines_are_read() {
        let bar = ProgressBar::hidden();
        bar.unset_length();
        draw(&bar, BatchProgress { read: 40, is_all_read: false, ended: 4, failed: 1, done_before: 0 });
        assert_eq!(bar.length(), None);
        assert_eq!(bar.message(), "4 done, 1 failed, 40 lines read so far");
        draw(&bar, BatchProgress { read: 40, is_all_read: true, ended: 4, failed: 1, done_before: 0 });
        assert_eq!((bar.position(), bar.length()), (4, Some(40)));
        assert_eq!(bar.message(), "4 of 40 done, 1 failed");
    }

    #[test]
    fn closing_takes_the_bar_away_and_whatever_is_said_after_it_stops_nobody() {
        let bar = ProgressBar::hidden();
        let progress = ProgressDisplay::start(Some(bar.clone()));
        progress.show(BatchProgress { read: 40, is_all_read: true, ended: 4, failed: 1, done_before: 0 });
        progress.close();
        assert!(bar.is_finished(), "the last progress was drawn and the bar cleared");
        for _ in 0..10 * PROGRESS_LINES_MAX {
            progress.say("nobody writes this any more".to_owned());
        }
        assert_eq!(progress.shared.pending().lines.len(), PROGRESS_LINES_MAX);
        progress.close();
    }
}
