//! How far a batch is, drawn on standard error while somebody looks.

use super::batch::Standing;
use super::text;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr, stdout};
use std::time::Duration;

/// While it is not known how many jobs there will be.
const COUNTER: &str = "{spinner} {msg}  {elapsed}";

/// From when all are known.
const BAR: &str = "{wide_bar} {percent:>3} %  {msg}  {elapsed}";

const DRAWN_EVERY: Duration = Duration::from_millis(100);

/// See the module's documentation.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Counts jobs that have ended: of all, in a bar, as soon as the last line has been read. Nothing is drawn unless
    /// standard error is a terminal, and nothing if the results themselves appear there.
    pub(crate) fn new(quiet: bool) -> Progress {
        if quiet || !stderr().is_terminal() || stdout().is_terminal() {
            return Progress::hidden();
        }
        let bar =
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style(COUNTER));
        // What changes faster than it is drawn is drawn then at the latest, and the time goes on between two jobs.
        bar.enable_steady_tick(DRAWN_EVERY);
        Progress { bar: Some(bar) }
    }

    /// One that draws nothing.
    pub(crate) fn hidden() -> Progress {
        Progress { bar: None }
    }

    /// Shows how far it is.
    pub(crate) fn show(&self, standing: Standing) {
        let Some(bar) = &self.bar else { return };
        bar.set_position(standing.ended);
        bar.set_message(line(standing));
        if standing.is_all_read && bar.length().is_none() {
            bar.set_length(standing.read);
            bar.set_style(style(BAR));
        }
    }

    /// Lets `say` write its line above the bar.
    pub(crate) fn suspend(&self, say: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(say),
            None => say(),
        }
    }

    /// Takes the bar away again.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is ours")
}

/// `3 of 40 done, 1 failed` or, while lines are still being read, `3 done, 1 failed, 1024 lines read so far`.
fn line(standing: Standing) -> String {
    let Standing { read, is_all_read, ended, failed } = standing;
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
        let bar = Progress { bar: Some(ProgressBar::hidden()) };
        bar.bar.as_ref().unwrap().unset_length();
        bar.show(Standing { read: 40, is_all_read: false, ended: 4, failed: 1 });
        assert_eq!(bar.bar.as_ref().unwrap().length(), None);
        assert_eq!(bar.bar.as_ref().unwrap().message(), "4 done, 1 failed, 40 lines read so far");
        bar.show(Standing { read: 40, is_all_read: true, ended: 4, failed: 1 });
        let drawn = bar.bar.as_ref().unwrap();
        assert_eq!((drawn.position(), drawn.length()), (4, Some(40)));
        assert_eq!(drawn.message(), "4 of 40 done, 1 failed");
    }
}
