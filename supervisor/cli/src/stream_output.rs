//! Writes the output of one job in parts, as they come: as they are, or with `--json` one document a line for each part and
//! one for the end.
//!
//! Nothing of a stream is kept, so parts that cannot be written are lost, and so is the job: it is cancelled.

use super::failure::{Failure, OK, VerbResult};
use super::output::{expect_a_reader, print, refuse_binary_on_a_terminal, say};
use super::{render, text};
use crate::sys;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use offload_protocol::nouns::{OutcomeCode, Report};
use offload_supervisor::Finished;
use std::io::{self, IsTerminal};

/// Standard output, for the parts of one job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamOutput {
    json: bool,
    receipt: bool,
    is_terminal: bool,
}

impl StreamOutput {
    /// Checks, before the job runs, that somebody can read its output.
    pub(crate) fn open(
        task: &str,
        receipt: bool,
        globals: &super::flags::Globals,
    ) -> Result<StreamOutput, Failure> {
        expect_a_reader("nothing was submitted")?;
        refuse_binary_on_a_terminal(task, globals)?;
        let is_terminal = io::stdout().is_terminal() && !sys::stdout_was_closed();
        Ok(StreamOutput { json: globals.json, receipt, is_terminal })
    }

    /// Writes one part. Blocks as long as it takes: meanwhile the task waits too.
    pub(crate) fn write(self, part: &[u8]) -> Result<(), Failure> {
        if self.json {
            return print(format!("{}\n", json_part(part)).as_bytes());
        }
        if self.is_terminal && part.iter().any(|byte| is_obeyed(*byte)) {
            let why =
                "the output is binary, which is not printed to a terminal; send it to a file with > FILE";
            return Err(Failure::Unwritten(why.to_owned()));
        }
        print(part)
    }

    /// Writes the end of the stream: what the task returned behind all parts, and how the job ended.
    pub(crate) fn end(self, finished: &Finished) -> VerbResult {
        let report = &finished.report;
        if self.receipt {
            say(&render::receipt(report));
        }
        if self.json {
            self.end_line(finished)?;
            return Ok(Failure::code_of(report).into());
        }
        if report.outcome == OutcomeCode::Ok {
            self.write(&finished.output)?;
            return Ok(OK);
        }
        Err(Failure::of(report, self.failure(report)))
    }

    /// With `--json`, writes the line for the job.
    pub(crate) fn end_line(self, finished: &Finished) -> Result<(), Failure> {
        match self.json {
            true => print(format!("{}\n", render::json(finished)).as_bytes()),
            false => Ok(()),
        }
    }

    /// Why the job failed, and how much of its output came before.
    pub(crate) fn failure(self, report: &Report) -> String {
        match report.receipt.output_bytes {
            0 => render::message(report),
            sent => format!("{} (after {} of its output)", render::message(report), text::bytes(sent)),
        }
    }
}

/// A part as a JSON document: text if it is text, and otherwise base64.
fn json_part(part: &[u8]) -> serde_json::Value {
    match std::str::from_utf8(part) {
        Ok(text) => serde_json::json!({ "part": text }),
        Err(_) => serde_json::json!({ "part_base64": STANDARD.encode(part) }),
    }
}

/// Whether a terminal would obey this byte instead of showing it. A part may end in the middle of a character, so other
/// bytes are not looked at.
fn is_obeyed(byte: u8) -> bool {
    byte.is_ascii_control() && !matches!(byte, b'\n' | b'\t' | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_text_in_json_if_it_is_text() {
        assert_eq!(json_part("ä\n".as_bytes()).to_string(), r#"{"part":"ä\n"}"#);
        assert_eq!(json_part(b"\xff").to_string(), r#"{"part_base64":"/w=="}"#);
    }

    #[test]
    fn a_terminal_is_not_sent_what_it_would_obey() {
        assert!(is_obeyed(0x1b) && is_obeyed(0) && !is_obeyed(b'\n') && !is_obeyed(0xc3));
    }
}
