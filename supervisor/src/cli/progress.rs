//! How far a batch is, drawn on standard error while somebody looks.

use super::batch::Tally;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr, stdout};

/// See the module's documentation.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// A bar that is full after `total` bytes of inputs, or a counter if the total is not known. Nothing is drawn
    /// unless standard error is a terminal, and nothing if the results themselves appear there.
    pub(crate) fn new(total: Option<u64>, quiet: bool) -> Progress {
        if quiet || !stderr().is_terminal() || stdout().is_terminal() {
            return Progress::hidden();
        }
        let (bar, template) = match total {
            Some(total) => (ProgressBar::new(total), "{wide_bar} {percent:>3} %  {msg}  {elapsed}"),
            None => (ProgressBar::no_length(), "{spinner} {msg}  {elapsed}"),
        };
        bar.set_draw_target(ProgressDrawTarget::stderr());
        Progress {
            bar: Some(bar.with_style(ProgressStyle::with_template(template).expect("the template is ours"))),
        }
    }

    /// One that draws nothing.
    pub(crate) fn hidden() -> Progress {
        Progress { bar: None }
    }

    /// So many more bytes of inputs were taken.
    pub(crate) fn on_read(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
    }

    /// So much has been written.
    pub(crate) fn on_written(&self, tally: Tally) {
        if let Some(bar) = &self.bar {
            let Tally { ok, failed, .. } = tally;
            bar.set_message(format!("{ok} done, {failed} failed"));
        }
    }

    /// Takes the bar away again.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
