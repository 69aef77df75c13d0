//! Where the results of a batch go: made into lines and written on a thread, because whoever reads them may stop.

use super::batch::Numbered;
use super::failure::Failure;
use super::output::{print, save_unprintable, say, spoils_a_terminal};
use super::output_file::save;
use super::{render, text};
use offload_protocol::nouns::OutcomeCode;

/// Lines are collected up to this many bytes before they are written.
const LINES_BYTES: usize = 256 << 10;

/// See the module's documentation. It remembers what it said last, so that many jobs that fail for one reason, such as
/// a program that cannot be started, do not say it many times.
#[derive(Debug)]
pub(crate) struct Sink {
    form: Form,
    said: String,
    /// Inputs after the one of which that was said, of which the same would have to be said.
    repeats: u64,
}

/// In which form results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A JSON document a line, failures included.
    JsonLines,
    /// The outputs as they are on standard output, failures on standard error.
    Outputs {
        /// There is one input only, so no number need be named.
        is_only_one: bool,
    },
}

impl Sink {
    /// A JSON document a line, failures included.
    pub(crate) fn json_lines() -> Sink {
        Sink::new(Form::JsonLines)
    }

    /// The outputs as they are on standard output, failures on standard error.
    pub(crate) fn outputs(is_only_one: bool) -> Sink {
        Sink::new(Form::Outputs { is_only_one })
    }

    fn new(form: Form) -> Sink {
        Sink { form, said: String::new(), repeats: 0 }
    }

    /// Writes them all, waiting as long as it takes.
    pub(crate) fn write(&mut self, results: Vec<Numbered>) -> Result<(), Failure> {
        match self.form {
            Form::JsonLines => write_lines(&results),
            Form::Outputs { is_only_one } => self.write_outputs(results, is_only_one),
        }
    }

    /// Says what was put off.
    pub(crate) fn finish(&mut self) {
        if self.repeats > 0 {
            say(&format!("the same for {}", text::count(self.repeats, "more input")));
            self.repeats = 0;
        }
    }

    fn write_outputs(&mut self, results: Vec<Numbered>, is_only_one: bool) -> Result<(), Failure> {
        let mut results = results.into_iter();
        while let Some(result) = results.next() {
            let Numbered { index, finished } = &result;
            let name = if is_only_one { String::new() } else { format!("input {}: ", index + 1) };
            if finished.report.outcome != OutcomeCode::Ok {
                let line = format!("{}: {}", finished.report.outcome, render::message(&finished.report));
                self.say_failure(&name, line);
            } else if spoils_a_terminal(finished) {
                say(&format!("{name}{}", save_unprintable(finished)?));
            } else if let Err(failure) = print(&render::plain(finished)) {
                return Err(keep_what_is_left(failure, std::iter::once(result).chain(results)));
            }
        }
        Ok(())
    }

    fn say_failure(&mut self, name: &str, line: String) {
        if self.said == line {
            self.repeats += 1;
            return;
        }
        self.finish();
        say(&format!("{name}{line}"));
        self.said = line;
    }
}

fn write_lines(results: &[Numbered]) -> Result<(), Failure> {
    let mut lines = Vec::new();
    let mut first_in_lines = results.first().map_or(0, |first| first.index);
    for Numbered { index, finished } in results {
        lines.extend_from_slice(render::json(finished, Some(*index)).as_bytes());
        lines.push(b'\n');
        if lines.len() >= LINES_BYTES {
            print(&lines).map_err(|failure| lost_from(first_in_lines, failure))?;
            lines.clear();
            first_in_lines = index + 1;
        }
    }
    print(&lines).map_err(|failure| lost_from(first_in_lines, failure))
}

fn lost_from(index: u64, failure: Failure) -> Failure {
    let rest =
        format!("results from index {index} on are not all written, and what is not done is cancelled");
    match failure {
        Failure::ReaderGone => Failure::Unwritten(format!("nobody reads standard output any more: {rest}")),
        Failure::Unwritten(why) => Failure::Unwritten(format!("{why}: {rest}")),
        other => other,
    }
}

/// Outputs that are there and cannot be written are saved in files, unless their reader chose to leave.
fn keep_what_is_left(failure: Failure, results: impl Iterator<Item = Numbered>) -> Failure {
    let mut left = results.filter(|result| result.finished.report.outcome == OutcomeCode::Ok).peekable();
    let from = left.peek().map_or(0, |first| first.index + 1);
    let why = match failure {
        Failure::ReaderGone => {
            let lost = format!("the output of input {from} and what follows is lost");
            return Failure::Unwritten(format!("nobody reads standard output any more: {lost}"));
        }
        Failure::Unwritten(why) => why,
        other => return other,
    };
    for Numbered { index, finished } in left {
        let job = &finished.report.job;
        say(&match save(&finished) {
            Ok(path) => format!("input {}: the output of job {job} is in {}", index + 1, path.display()),
            Err(error) => format!("input {}: the output of job {job} is lost: {error}", index + 1),
        });
    }
    Failure::Unwritten(format!("{why}; what is not done is cancelled"))
}
