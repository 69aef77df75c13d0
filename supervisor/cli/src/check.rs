//! `offload worker check`: plays the supervisor to somebody's worker, and says what it does wrong.
//!
//! ```text
//!   start it: Hello, offers, Ready? --no--> that is the answer
//!      | yes                                                        kept  | not asked, and why | FAILS, and how
//!      '--> each question: a fresh process, what a supervisor would say, what the worker answers ---'
//! ```

mod candidate;
mod offered;
mod questions;
mod said;

use super::embedded::{HOW_HTTP, HOW_JSONL, WHICH_FLAG};
use super::failure::{Failure, OK, VerbResult};
use super::flags::Globals;
use super::http_worker::adapter;
use super::jsonl_worker::ADAPTER;
use super::output::{print, print_line};
use super::worker_exec::SHIM;
use crate::configuration::split_words;
use candidate::Subject;
use clap::Args;
use offered::Offered;
use offload_supervisor::units::parse_time_limit;
use questions::{Kept, QUESTIONS};
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;

/// The question that is asked first.
const STARTS: &str = "it starts, says Hello, offers its tasks and is ready in time";

const EXAMPLES: &str = "\
Examples:
  offload worker check 'python3 my_worker.py'
  offload worker check 'python3 my_worker.py' --only Drain --timeout 2s
  offload worker check --jsonl 'node my_worker.js'
  offload worker check --http 'uvicorn app:app --uds {socket}' --tasks extract,thumb

Each question is put to a process of its own, with the examples that the tasks have in their offers: give each task one.
Exit code 0 if nothing is wrong, otherwise 1. What a worker has to do is in the section PROTOCOL of protocol/src/lib.rs.";

/// Check that a program keeps the protocol for workers, and say what it does wrong
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Check {
    /// The worker: its program and arguments, in one word for the shell
    #[arg(value_name = "CMD", value_parser = |text: &str| split_words(text).map(Words))]
    command: Words,

    /// The program reads and writes JSON Lines, as those of `--worker-jsonl`
    #[arg(long)]
    jsonl: bool,

    /// The program is an HTTP application, as those of `--worker-http`
    #[arg(long, conflicts_with = "jsonl", requires = "tasks")]
    http: bool,

    /// The tasks of the HTTP application
    #[arg(long, value_name = "TASK,...", value_delimiter = ',', requires = "http")]
    tasks: Vec<String>,

    /// How long each of its answers may take; to the longest input, so long for each MiB of 8
    #[arg(long, value_name = "D", default_value = "10s", value_parser = parse_time_limit)]
    timeout: Duration,

    /// Ask only the questions that have this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// Words of a command.
#[derive(Clone, Debug)]
struct Words(Vec<String>);

/// What is printed as JSON.
#[derive(Serialize)]
struct Report<'a> {
    worker: &'a [String],
    ok: bool,
    questions: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    question: &'static str,
    /// `kept`, `fails` or `not_asked`.
    verdict: &'static str,
    /// How it fails, or why it was not asked.
    detail: String,
}

impl Check {
    /// What prepares the process. Each of these confines the worker like any other, and ends it with this process.
    fn front(&self) -> Result<Vec<String>, Failure> {
        match (self.jsonl, self.http) {
            (true, _) => Ok(ADAPTER.map(str::to_owned).to_vec()),
            (_, true) => adapter(&self.command.0, &self.tasks).map_err(Failure::Usage),
            _ => Ok(SHIM.map(str::to_owned).to_vec()),
        }
    }

    /// What such a program has to do first.
    fn advice(&self) -> &'static str {
        match (self.jsonl, self.http) {
            (true, _) => HOW_JSONL,
            (_, true) => HOW_HTTP,
            _ => WHICH_FLAG,
        }
    }

    /// Runs the verb. Exit code 0 if the worker keeps the protocol, otherwise 1.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        let subject = Subject { front: self.front()?, words: self.command.0.clone(), patience: self.timeout };
        let mut rows = Vec::new();
        let mut tell = |row: Row| {
            let told = if globals.json { Ok(()) } else { print(line(&row).as_bytes()) };
            rows.push(row);
            told
        };
        let advised = |wrong| format!("{wrong}{}", self.advice());
        match subject.spawn().and_then(|candidate| candidate.greeted(0).map_err(advised)) {
            Err(wrong) => tell(Row { question: STARTS, verdict: "fails", detail: wrong })?,
            Ok(candidate) => {
                let offered = easiest(&candidate.offers).clone();
                drop(candidate);
                tell(Row { question: STARTS, verdict: "kept", detail: String::new() })?;
                let is_asked =
                    |name: &str| self.only.as_ref().is_none_or(|text| name.contains(text.as_str()));
                for question in QUESTIONS.iter().filter(|question| is_asked(question.name)) {
                    tell(row(question.name, (question.ask)(&subject, &offered)))?;
                }
            }
        }
        let failed = rows.iter().filter(|row| row.verdict == "fails").count();
        if globals.json {
            let report = Report { worker: &subject.words, ok: failed == 0, questions: rows };
            print_line(serde_json::to_string(&report).expect("texts are JSON"))?;
        } else {
            print(summary(&rows, failed).as_bytes())?;
        }
        Ok(if failed == 0 { OK } else { ExitCode::FAILURE })
    }
}

/// The task for most questions: one that says what it can be tried with, does not work in steps, and answers by itself.
fn easiest(offers: &[Offered]) -> &Offered {
    let hard = |offered: &Offered| {
        let task = &offered.task;
        (
            offered.described.example.is_empty(),
            task.stepped,
            task.progress_ms > 0,
            offered.described.about.streams,
        )
    };
    offers.iter().min_by_key(|offered| hard(offered)).expect("a worker that is ready has offered a task")
}

fn row(question: &'static str, answer: Result<Kept, String>) -> Row {
    match answer {
        Ok(Kept::Yes) => Row { question, verdict: "kept", detail: String::new() },
        Ok(Kept::NotAsked(why)) => Row { question, verdict: "not_asked", detail: why.to_owned() },
        Err(wrong) => Row { question, verdict: "fails", detail: wrong },
    }
}

fn line(row: &Row) -> String {
    match row.verdict {
        "kept" => format!("ok     {}\n", row.question),
        "fails" => format!("FAILS  {}: {}\n", row.question, row.detail),
        _ => format!("-      {} (not asked: {})\n", row.question, row.detail),
    }
}

fn summary(rows: &[Row], failed: usize) -> String {
    let asked = rows.iter().filter(|row| row.verdict != "not_asked").count();
    match failed {
        0 => format!("it keeps the protocol: {asked} of {asked} questions\n"),
        failed => format!("it fails {failed} of {asked} questions\n"),
    }
}
