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
use crate::keeper::Printed;
use crate::limits::WRITTEN_AT_ONCE_BYTES;
use bytes::Bytes;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::Finished;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::sync::Arc;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct Sink {
    form: Form,
    /// What is printed of the jobs whose results the job log has.
    kept: Option<Arc<File>>,
    /// The last message. If many jobs of a list fail for the same reason, it is printed only once.
    said: String,
    /// How many later inputs failed with the same message.
    repeats: u64,
    /// A binary output was written, so no line may be put between the outputs.
    is_binary: bool,
}

/// The form in which results are written.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Form {
    /// One JSON document per line, failures included.
    JsonLines,
    /// Outputs on standard output, with the line ends that text lacks, and failures on standard error. Where there are
    /// several, a failed job leaves an empty line, so that the lines of the others are where they are looked for.
    Outputs {
        /// There is only one input, so messages need no input number.
        is_only_one: bool,
    },
    /// Outputs one after another, as they are, and failures on standard error.
    Raw,
}

impl Form {
    /// All that is printed on standard output of a job that is ok.
    pub(crate) fn rendered(self, result: &NumberedResult) -> Bytes {
        match self {
            Form::JsonLines => format!("{}\n", render::numbered_json(result)).into(),
            Form::Outputs { .. } => render::plain(&result.finished),
            Form::Raw => result.finished.output.clone(),
        }
    }
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
    /// A sink that writes results in this form.
    pub(crate) fn new(form: Form) -> Sink {
        Sink { form, kept: None, said: String::new(), repeats: 0, is_binary: false }
    }

    /// The same, with the results of the job log.
    pub(crate) fn with_kept(self, results: File) -> Sink {
        Sink { kept: Some(Arc::new(results)), ..self }
    }

    /// Whether each job has a line, however it ended.
    pub(crate) fn has_a_line_for_each_job(&self) -> bool {
        self.form == Form::JsonLines
    }

    /// Writes all results; blocks as long as it takes.
    pub(crate) fn write(&mut self, results: &[NumberedResult]) -> Result<(), Unwritten> {
        match self.form {
            Form::JsonLines => self.write_lines(results),
            Form::Outputs { .. } | Form::Raw => self.write_outputs(results),
        }
    }

    /// Saves results that could not be written in files, and returns the failure to report. Where there is one file for
    /// each result, `tell` gets a message about each. What the job log has is safe.
    pub(crate) fn save_what_is_left(
        &mut self,
        Unwritten { failure, left }: Unwritten,
        tell: &mut dyn FnMut(&str),
    ) -> Failure {
        let why = match why_unwritten(failure) {
            Ok(why) => why,
            Err(other) => return other,
        };
        let (kept, left): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|result| result.notes.printed.is_some());
        if !kept.is_empty() {
            let results = text::count(kept.len() as u64, "result");
            tell(&format!(
                "{results} that could not be written: the same with --resume prints what the job log has"
            ));
        }
        let saved = match self.form {
            Form::JsonLines => self.save_lines(&left),
            Form::Outputs { .. } | Form::Raw => {
                left.iter().for_each(|result| self.save_output(result, tell));
                self.finish(tell);
                None
            }
        };
        Failure::Unwritten(saved.map_or(why.clone(), |saved| format!("{why}; {saved}")))
    }

    fn save_output(&mut self, result: &NumberedResult, tell: &mut dyn FnMut(&str)) {
        let NumberedResult { index, finished, .. } = result;
        if finished.report.outcome != OutcomeCode::Ok {
            return self.say_failure(result, tell);
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

    fn write_outputs(&mut self, results: &[NumberedResult]) -> Result<(), Unwritten> {
        for (written, result) in results.iter().enumerate() {
            self.write_output(result)
                .map_err(|failure| Unwritten { failure, left: results[written..].to_vec() })?;
        }
        Ok(())
    }

    fn write_output(&mut self, result: &NumberedResult) -> Result<(), Failure> {
        let finished = &result.finished;
        if finished.report.outcome != OutcomeCode::Ok {
            self.say_failure(result, &mut say);
            return if self.leaves_a_line() { print(b"\n") } else { Ok(()) };
        }
        let finished = &self.with_output(result)?;
        self.is_binary |= render::is_binary(&finished.report.media_type);
        if spoils_a_terminal(finished) {
            say(&format!("{}{}", self.name_of(result), save_unprintable(finished)?));
            return Ok(());
        }
        match self.form {
            Form::Raw => print(&finished.output),
            Form::Outputs { .. } | Form::JsonLines => print(&render::plain(finished)),
        }
    }

    /// The result with its output, wherever that is.
    fn with_output(&self, result: &NumberedResult) -> Result<Finished, Failure> {
        let mut finished = result.finished.clone();
        if let Some(printed) = result.notes.printed {
            finished.output = self.read_kept(printed)?;
        }
        Ok(finished)
    }

    fn read_kept(&self, printed: Printed) -> Result<Bytes, Failure> {
        let unreadable =
            |error: io::Error| Failure::Unwritten(format!("cannot read the results of the job log: {error}"));
        let results = self.kept.as_ref().ok_or_else(|| unreadable(io::ErrorKind::NotFound.into()))?;
        Ok(printed.read(results).map_err(unreadable)?.into())
    }

    /// Whether a failed job leaves an empty line in the place of its output.
    fn leaves_a_line(&self) -> bool {
        self.form == Form::Outputs { is_only_one: false } && !self.is_binary
    }

    fn say_failure(&mut self, result: &NumberedResult, tell: &mut dyn FnMut(&str)) {
        let line = failure_line(&result.finished);
        if self.form == Form::Raw && self.said == line {
            self.repeats += 1;
            return;
        }
        self.finish(tell);
        tell(&format!("{}{line}", self.name_of(result)));
        self.said = line;
    }

    fn name_of(&self, NumberedResult { index, notes, .. }: &NumberedResult) -> String {
        match &notes.file {
            _ if self.form == (Form::Outputs { is_only_one: true }) => String::new(),
            None => format!("input {}: ", index + 1),
            Some(file) => format!("input {} ({}): ", index + 1, file.display()),
        }
    }
}

fn failure_line(finished: &Finished) -> String {
    format!("{}: {}", finished.report.outcome, render::message(&finished.report))
}

impl Sink {
    fn write_lines(&self, results: &[NumberedResult]) -> Result<(), Unwritten> {
        let mut written = 0;
        while written < results.len() {
            let rest = &results[written..];
            let (lines, ends) = self
                .lines_of(rest, WRITTEN_AT_ONCE_BYTES)
                .map_err(|failure| Unwritten { failure, left: rest.to_vec() })?;
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
    fn lines_of(
        &self,
        results: &[NumberedResult],
        bytes_max: usize,
    ) -> Result<(Vec<u8>, Vec<usize>), Failure> {
        let (mut lines, mut ends) = (Vec::new(), Vec::new());
        for result in results {
            if lines.len() >= bytes_max {
                break;
            }
            match result.notes.printed {
                Some(printed) => lines.extend_from_slice(&self.read_kept(printed)?),
                None => lines.extend_from_slice(&self.form.rendered(result)),
            }
            ends.push(lines.len());
        }
        Ok((lines, ends))
    }

    /// Saves all of them in one file. Returns the message about it, or nothing if there are no results.
    fn save_lines(&self, left: &[NumberedResult]) -> Option<String> {
        let first = left.first()?;
        let results = format!("{}, from index {} on,", text::count(left.len() as u64, "result"), first.index);
        let verb = if left.len() == 1 { "is" } else { "are" };
        let saved = self
            .lines_of(left, usize::MAX)
            .map_err(|failure| failure.message().unwrap_or_default())
            .and_then(|(lines, _)| {
                save_as(&first.finished.report.job, "jsonl", &lines).map_err(|error| error.to_string())
            });
        Some(match saved {
            Ok(path) => format!("{results} {verb} in {}", path.display()),
            Err(error) => format!("{results} {verb} lost ({error})"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::Notes;
    use super::super::render::refused;
    use super::*;

    fn results(count: u64) -> Vec<NumberedResult> {
        let result = |index| NumberedResult {
            index,
            finished: refused("echo", OutcomeCode::AppError, format!("failure {index}")),
            notes: Notes::default(),
        };
        (0..count).map(result).collect()
    }

    #[test]
    fn lines_are_put_together_up_to_a_number_of_bytes_and_it_is_known_where_each_ends() {
        let results = results(3);
        let sink = Sink::new(Form::JsonLines);
        let (all, ends) = sink.lines_of(&results, usize::MAX).unwrap();
        assert_eq!(ends.len(), 3);
        for (result, end) in results.iter().zip(&ends) {
            let line = all[..*end].strip_suffix(b"\n").unwrap().rsplit(|byte| *byte == b'\n').next().unwrap();
            assert_eq!(line, render::numbered_json(result).as_bytes());
        }
        let (two, two_ends) = sink.lines_of(&results, ends[0] + 1).unwrap();
        assert_eq!((two.len(), two_ends.len()), (ends[1], 2));
    }

    #[test]
    fn a_reader_that_has_gone_is_told_with_the_place_of_the_results() {
        let unwritten = Unwritten { failure: Failure::ReaderGone, left: Vec::new() };
        let failure = Sink::new(Form::JsonLines).save_what_is_left(unwritten, &mut |_| ());
        assert_eq!(failure.message().unwrap(), "nobody reads standard output any more");
    }
}
