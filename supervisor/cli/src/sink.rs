//! The destination of a batch's results. They are formatted and written on a thread, because a write blocks if its
//! reader stops.
//!
//! When a write fails, whatever the reason, the results that are not written yet are saved: JSON Lines in one file, outputs
//! in one file each ([`Sink::save_what_is_left`]).

use super::batch::NumberedResult;
use super::failure::Failure;
use super::output::{print, print_counted, save_unprintable, say, spoils_a_terminal, why_unwritten};
use super::output_file::{save, save_as};
use super::{render, text};
use crate::limits::WRITTEN_AT_ONCE_BYTES;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::Finished;

/// See the module's documentation. It remembers its last message. If many jobs fail for the same reason, such as a
/// program that cannot be started, the message is printed only once.
#[derive(Clone, Debug)]
pub(crate) struct Sink {
    form: Form,
    said: String,
    /// How many later inputs failed with the same message.
    repeats: u64,
}

/// The form in which results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// One JSON document per line, failures included.
    JsonLines,
    /// Outputs unchanged on standard output, failures on standard error.
    Outputs {
        /// There is only one input, so messages need no input number.
        is_only_one: bool,
    },
}

/// A failed write, and the results that were not written, in their order.
#[derive(Debug)]
pub(crate) struct Unwritten {
    /// Why.
    pub(crate) failure: Failure,
    /// A part of the first one may have been written.
    pub(crate) left: Vec<NumberedResult>,
}

impl Sink {
    /// A sink that writes one JSON document per line, failures included.
    pub(crate) fn json_lines() -> Sink {
        Sink::new(Form::JsonLines)
    }

    /// A sink that writes outputs unchanged to standard output, and failures to standard error.
    pub(crate) fn outputs(is_only_one: bool) -> Sink {
        Sink::new(Form::Outputs { is_only_one })
    }

    fn new(form: Form) -> Sink {
        Sink { form, said: String::new(), repeats: 0 }
    }

    /// Whether each job has a line, however it ended.
    pub(crate) fn has_a_line_for_each_job(&self) -> bool {
        self.form == Form::JsonLines
    }

    /// Writes all results; blocks as long as it takes.
    pub(crate) fn write(&mut self, results: &[NumberedResult]) -> Result<(), Unwritten> {
        match self.form {
            Form::JsonLines => write_lines(results),
            Form::Outputs { is_only_one } => self.write_outputs(results, is_only_one),
        }
    }

    /// Saves results that could not be written in files, and returns the failure to report. Where there is one file for
    /// each result, `tell` gets a message about each.
    pub(crate) fn save_what_is_left(
        &mut self,
        Unwritten { failure, left }: Unwritten,
        tell: &mut dyn FnMut(&str),
    ) -> Failure {
        let why = match why_unwritten(failure) {
            Ok(why) => why,
            Err(other) => return other,
        };
        let saved = match self.form {
            Form::JsonLines => save_lines(&left),
            Form::Outputs { is_only_one } => {
                left.iter().for_each(|result| self.save_output(result, is_only_one, tell));
                self.finish(tell);
                None
            }
        };
        Failure::Unwritten(saved.map_or(why.clone(), |saved| format!("{why}; {saved}")))
    }

    fn save_output(&mut self, result: &NumberedResult, is_only_one: bool, tell: &mut dyn FnMut(&str)) {
        let NumberedResult { index, finished } = result;
        if finished.report.outcome != OutcomeCode::Ok {
            return self.say_failure(&name_of(*index, is_only_one), failure_line(finished), tell);
        }
        let job = &finished.report.job;
        tell(&match save(finished) {
            Ok(path) => format!("input {}: the output of job {job} is in {}", index + 1, path.display()),
            Err(error) => format!("input {}: the output of job {job} is lost: {error}", index + 1),
        });
    }

    /// Prints the message that was held back: for how many more inputs the last message was the same.
    pub(crate) fn finish(&mut self, tell: &mut dyn FnMut(&str)) {
        if self.repeats > 0 {
            tell(&format!("the same for {}", text::count(self.repeats, "more input")));
            self.repeats = 0;
        }
    }

    fn write_outputs(&mut self, results: &[NumberedResult], is_only_one: bool) -> Result<(), Unwritten> {
        for (written, result) in results.iter().enumerate() {
            self.write_output(result, is_only_one)
                .map_err(|failure| Unwritten { failure, left: results[written..].to_vec() })?;
        }
        Ok(())
    }

    fn write_output(&mut self, result: &NumberedResult, is_only_one: bool) -> Result<(), Failure> {
        let NumberedResult { index, finished } = result;
        let name = name_of(*index, is_only_one);
        if finished.report.outcome != OutcomeCode::Ok {
            self.say_failure(&name, failure_line(finished), &mut say);
        } else if spoils_a_terminal(finished) {
            say(&format!("{name}{}", save_unprintable(finished)?));
        } else {
            print(&render::plain(finished))?;
        }
        Ok(())
    }

    fn say_failure(&mut self, name: &str, line: String, tell: &mut dyn FnMut(&str)) {
        if self.said == line {
            self.repeats += 1;
            return;
        }
        self.finish(tell);
        tell(&format!("{name}{line}"));
        self.said = line;
    }
}

fn name_of(index: u64, is_only_one: bool) -> String {
    if is_only_one { String::new() } else { format!("input {}: ", index + 1) }
}

fn failure_line(finished: &Finished) -> String {
    format!("{}: {}", finished.report.outcome, render::message(&finished.report))
}

fn write_lines(results: &[NumberedResult]) -> Result<(), Unwritten> {
    let mut written = 0;
    while written < results.len() {
        let (lines, ends) = lines_of(&results[written..], WRITTEN_AT_ONCE_BYTES);
        if let Err((bytes, failure)) = print_counted(&lines) {
            // The line in which the write broke off is saved as a whole, although a part of it was written.
            written += ends.partition_point(|end| *end <= bytes);
            return Err(Unwritten { failure, left: results[written..].to_vec() });
        }
        written += ends.len();
    }
    Ok(())
}

/// The lines of the first results, up to about `bytes_max` bytes, and where each line ends.
fn lines_of(results: &[NumberedResult], bytes_max: usize) -> (Vec<u8>, Vec<usize>) {
    let (mut lines, mut ends) = (Vec::new(), Vec::new());
    for NumberedResult { index, finished } in results {
        if lines.len() >= bytes_max {
            break;
        }
        lines.extend_from_slice(render::json(finished, Some(*index)).as_bytes());
        lines.push(b'\n');
        ends.push(lines.len());
    }
    (lines, ends)
}

/// Saves all of them in one file. Returns the message about it, or nothing if there are no results.
fn save_lines(left: &[NumberedResult]) -> Option<String> {
    let first = left.first()?;
    let (lines, _) = lines_of(left, usize::MAX);
    let results = format!("{}, from index {} on,", text::count(left.len() as u64, "result"), first.index);
    let verb = if left.len() == 1 { "is" } else { "are" };
    Some(match save_as(&first.finished.report.job, "jsonl", &lines) {
        Ok(path) => format!("{results} {verb} in {}", path.display()),
        Err(error) => format!("{results} {verb} lost ({error})"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::render::refused;
    use super::*;

    fn results(count: u64) -> Vec<NumberedResult> {
        let result = |index| NumberedResult {
            index,
            finished: refused("echo", OutcomeCode::AppError, format!("failure {index}")),
        };
        (0..count).map(result).collect()
    }

    #[test]
    fn lines_are_put_together_up_to_a_number_of_bytes_and_it_is_known_where_each_ends() {
        let results = results(3);
        let (all, ends) = lines_of(&results, usize::MAX);
        assert_eq!(ends.len(), 3);
        for (result, end) in results.iter().zip(&ends) {
            let line = all[..*end].strip_suffix(b"\n").unwrap().rsplit(|byte| *byte == b'\n').next().unwrap();
            assert_eq!(line, render::json(&result.finished, Some(result.index)).as_bytes());
        }
        let (two, two_ends) = lines_of(&results, ends[0] + 1);
        assert_eq!((two.len(), two_ends.len()), (ends[1], 2));
    }

    #[test]
    fn a_reader_that_has_gone_is_told_with_the_place_of_the_results() {
        let unwritten = Unwritten { failure: Failure::ReaderGone, left: Vec::new() };
        let failure = Sink::json_lines().save_what_is_left(unwritten, &mut |_| ());
        assert_eq!(failure.message().unwrap(), "nobody reads standard output any more");
    }
}
