//! Where the results of a batch go: made into lines and written on a thread, because whoever reads them may stop.

use super::batch::Numbered;
use super::failure::Failure;
use super::output::{print, say, spoils_a_terminal, unprintable};
use super::render;
use offload_protocol::nouns::OutcomeCode;

/// Lines are collected up to this many bytes before they are written.
const LINES_BYTES: usize = 256 << 10;

/// In which form results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sink {
    /// A JSON document a line, failures included.
    JsonLines,
    /// The outputs as they are on standard output, failures on standard error.
    Outputs {
        /// There is one input only, so no number need be named.
        is_only_one: bool,
    },
}

/// What writing brought to light.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// An output was kept back because it would have spoiled the terminal.
    pub(crate) kept_back: bool,
}

impl Sink {
    /// Writes them all, waiting as long as it takes.
    pub(crate) fn write(self, results: Vec<Numbered>) -> Result<Written, Failure> {
        match self {
            Sink::JsonLines => write_lines(&results),
            Sink::Outputs { is_only_one } => write_outputs(results, is_only_one),
        }
    }
}

fn write_lines(results: &[Numbered]) -> Result<Written, Failure> {
    let mut lines = Vec::new();
    for Numbered { index, finished } in results {
        lines.extend_from_slice(render::json(finished, Some(*index)).as_bytes());
        lines.push(b'\n');
        if lines.len() >= LINES_BYTES {
            print(&lines)?;
            lines.clear();
        }
    }
    print(&lines)?;
    Ok(Written::default())
}

fn write_outputs(results: Vec<Numbered>, is_only_one: bool) -> Result<Written, Failure> {
    let mut written = Written::default();
    for Numbered { index, finished } in results {
        let name = if is_only_one { String::new() } else { format!("input {}: ", index + 1) };
        if finished.report.outcome != OutcomeCode::Ok {
            say(&format!("{name}{}: {}", finished.report.outcome, render::message(&finished.report)));
        } else if spoils_a_terminal(&finished) {
            say(&format!("{name}{}; redirect it with > FILE", unprintable(&finished)));
            written.kept_back = true;
        } else {
            print(&render::plain(&finished))?;
        }
    }
    Ok(written)
}
