//! `offload logs`: what workers have printed, as far as it is kept, and what they print from now on.
//!
//! ```text
//!   ask for a page ---> print it ---> more? ask at once
//!                                '--> --follow? wait a moment, then ask for what comes after it
//! ```
//!
//! The supervisor keeps the last lines and waits for nobody: who reads slowly finds that some are gone, and is told how many.

use super::client::RequestClient;
use super::failure::{Failure, OK, VerbResult};
use super::flags::{Globals, NAMELESS};
use super::ids::full_id;
use super::output::{print, say, sleep_while_read};
use super::show::unknown;
use super::text;
use crate::limits::{ANSWER_TIMEOUT, FOLLOW_INTERVAL};
use clap::Args;
use offload_protocol::messages::{LOGS, Operation, ToSupervisor};
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::views::{PrintedLine, PrintedPage};

const EXAMPLES: &str = "\
Examples:
  offload logs                  the last lines that workers printed
  offload logs HKDE             what one job printed, by the last characters of its id
  offload logs -f HKDE          the same, and what it prints until it ends
  offload logs -f --slot 0      what the worker of one slot prints, until Ctrl-C
  offload logs --json           with time, slot, process, stream and job of each line

The supervisor keeps the last 256 KiB of each slot, and 4 MiB in all. A line is that of a job if only that job can have printed it; if
several can have, it names them all. If a worker prints more than 100 lines in a second, only the last of the others are kept. What is
gone is counted on standard error, lines of all workers together, because nobody knows any more whose they were.";

/// Show what jobs and workers have printed, and follow what they print
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Logs {
    /// The id of a job, or its first or last characters; all jobs if absent
    job: Option<String>,

    /// Only what the workers of this slot printed
    #[arg(long, value_name = "N")]
    slot: Option<u32>,

    /// Go on with what is printed from now on: until the job has ended, or until Ctrl-C
    #[arg(short, long)]
    follow: bool,
}

impl Logs {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        let mut client = globals.connect(NAMELESS)?;
        if !client.has(LOGS) {
            let message = "this supervisor is of a version that keeps nothing of what workers print";
            return Err(Failure::outcome(OutcomeCode::Unsupported, message.to_owned()));
        }
        let job = match &self.job {
            Some(typed) if typed.is_empty() => {
                return Err(Failure::Usage("the id of the job is empty".to_owned()));
            }
            Some(typed) => full_id(&mut client, typed)?,
            None => String::new(),
        };
        let (mut after, mut had_ended) = (0, false);
        loop {
            let page = self.fetch(&mut client, &job, after)?;
            if page.lost > 0 {
                say(&format!("not kept here: {} of all workers", text::count(page.lost, "line")));
            }
            print(self.render(&page.lines, globals.json).as_bytes())?;
            after = page.next;
            match (page.more, self.follow && !had_ended) {
                (true, _) => {}
                (false, false) => return Ok(OK),
                (false, true) => {
                    // The last lines of a job may be read just after its end.
                    had_ended = page.ended;
                    sleep_while_read(FOLLOW_INTERVAL)?;
                }
            }
        }
    }

    fn fetch(&self, client: &mut RequestClient, job: &str, after: u64) -> Result<PrintedPage, Failure> {
        let operation = Operation::Logs { after, slot: self.slot, job: job.to_owned() };
        let document = client.ask(&ToSupervisor::Operate { ticket: 1, operation }, Some(ANSWER_TIMEOUT))?;
        serde_json::from_slice(&document).map_err(unknown)
    }

    /// Of one job, the lines alone; otherwise each says where it is from.
    fn render(&self, lines: &[PrintedLine], json: bool) -> String {
        let line = |line: &PrintedLine| match (json, &self.job) {
            (true, _) => serde_json::to_string(line).unwrap_or_default(),
            (false, Some(_)) => text::printable(&line.text).into_owned(),
            (false, None) => format!("{} {}", source(line), text::printable(&line.text)),
        };
        lines.iter().map(|printed| line(printed) + "\n").collect()
    }
}

fn source(line: &PrintedLine) -> String {
    let PrintedLine { slot, worker_pid, jobs, .. } = line;
    match jobs.as_slice() {
        [] => format!("[slot {slot} pid {worker_pid}]"),
        jobs => format!("[slot {slot} pid {worker_pid} job {}]", jobs.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(jobs: &[&str]) -> PrintedLine {
        PrintedLine {
            number: 1,
            time_ms: 2,
            slot: 0,
            worker_pid: 42,
            stream: "stderr".to_owned(),
            jobs: jobs.iter().map(|job| (*job).to_owned()).collect(),
            text: "said".to_owned(),
        }
    }

    #[test]
    fn a_line_says_where_it_is_from_unless_one_job_was_asked_for() {
        let all = Logs { job: None, slot: None, follow: false };
        let lines = [line(&[]), line(&["A"]), line(&["A", "B"])];
        let expected = "[slot 0 pid 42] said\n[slot 0 pid 42 job A] said\n[slot 0 pid 42 job A or B] said\n";
        assert_eq!(all.render(&lines, false), expected);
        let one = Logs { job: Some("A".to_owned()), ..all };
        assert_eq!(one.render(&lines[1..2], false), "said\n");
        assert!(one.render(&lines[..1], true).starts_with(r#"{"number":1,"time_ms":2,"slot":0"#));
    }
}
