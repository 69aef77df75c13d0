//! `offload map`: one job a line, JSON Lines out, in the same order. The list may be of any length.

use super::batch::Limits;
use super::conveyor::{Target, Work, convey};
use super::daemon::Daemon;
use super::embedded::{Summary, new_event_loop, work};
use super::failure::{Ended, Failure, OK};
use super::flags::{CLIENT_NAME, Globals, JobFlags, PoolFlags, WINDOW, parse_client_name};
use super::progress::Progress;
use super::sink::Sink;
use super::source::{Line, Lines, Source};
use clap::Args;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::config::Settings;
use std::fs::File;
use std::io::stdin;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

const EXAMPLES: &str = "\
Examples:
  seq 1 100000 | offload map primes > primes.jsonl      one job a line of standard input
  find . -type f | offload map sha256 --files           the lines are paths of the inputs
  offload map regex cases.jsonl --max-failures 1        stop at the first failure
  offload --socket /run/me.sock map primes n.txt        let a running supervisor do the work

Each line of the output is one finished job with its \"index\", counted from 0, and its outcome.
With --socket or OFFLOAD_SOCKET that supervisor does the work, and flags about workers have no effect.
Exit codes: 0 all jobs were ok, 1 some failed, 125 the supervisor was lost on the way.";

/// Bytes of inputs and outputs held for a supervisor that runs elsewhere and has limits of its own.
const DAEMON_BYTES: u64 = 64 << 20;

/// Run one job for each line of FILE or standard input; results as JSON Lines in input order
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Map {
    /// The task to run
    task: String,

    /// The list: a file, or - for standard input
    #[arg(default_value = "-", hide_default_value = true)]
    file: PathBuf,

    /// The lines are paths of files, and what the files hold are the inputs
    #[arg(long)]
    files: bool,

    /// Stop when N results have been failures [default: never]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_failures: Option<u64>,

    /// Name that the supervisor shows for the submitter [default: cli]
    #[arg(long, value_name = "NAME", value_parser = parse_client_name)]
    client: Option<String>,

    #[command(flatten)]
    job: JobFlags,

    #[command(flatten)]
    pool: PoolFlags,
}

impl Map {
    /// Does it.
    pub(crate) fn run(self, globals: &Globals) -> Ended {
        let settings = globals.settings(self.pool.layer())?;
        match settings.socket_is_named() {
            true => self.through_daemon(&settings, globals),
            false => self.embedded(&settings, globals),
        }
    }

    fn embedded(&self, settings: &Settings, globals: &Globals) -> Ended {
        let config = self.pool.embedded(settings, globals);
        let limits = Limits {
            jobs: WINDOW.min(config.max_jobs as u64),
            bytes: config.max_bytes,
            payload: config.max_payload as u64,
            failures: self.max_failures,
        };
        let summary = work(config, self.job.options(), self.work(limits, globals)?)?;
        Ok(exit_code(&summary, globals))
    }

    fn through_daemon(&self, settings: &Settings, globals: &Globals) -> Ended {
        let mut event_loop = new_event_loop()?;
        let name = self.client.as_deref().unwrap_or(CLIENT_NAME);
        let handle = event_loop.handle();
        let daemon = Daemon::connect(settings.socket()?, name, &handle, &self.task, self.job.options())?;
        let limits = Limits {
            jobs: WINDOW,
            bytes: DAEMON_BYTES,
            payload: daemon.payload_max(),
            failures: self.max_failures,
        };
        let done = convey(&mut event_loop, self.work(limits, globals)?, |_| Ok(Rc::clone(&daemon)))?;
        let code = exit_code(&Summary { done, workers: None }, globals);
        match daemon.is_lost() {
            None => Ok(code),
            Some(reason) => Err(Failure::outcome(
                OutcomeCode::Indeterminate,
                format!("{reason}; the rest of the list was not read"),
            )),
        }
    }

    fn work(&self, limits: Limits, globals: &Globals) -> Result<Work, Failure> {
        let line = if self.files { Line::Path } else { Line::Input };
        let (lines, total) = if self.file.as_os_str() == "-" {
            (Lines::new(stdin(), line, limits.payload), None)
        } else {
            let (file, length) = open(&self.file)?;
            (Lines::new(file, line, limits.payload), length)
        };
        let (source, progress) = (Source::Lines(Box::new(lines)), Progress::new(total, globals.quiet));
        Ok(Work { task: self.task.clone(), limits, source, sink: Sink::JsonLines, progress })
    }
}

fn exit_code(summary: &Summary, globals: &Globals) -> ExitCode {
    if !globals.quiet {
        summary.say();
    }
    if summary.done.tally.failed == 0 { OK } else { 1.into() }
}

/// The file, and its length if it has one.
fn open(path: &PathBuf) -> Result<(File, Option<u64>), Failure> {
    let unreadable = |error| Failure::Usage(format!("cannot read {}: {error}", path.display()));
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    Ok((file, metadata.is_file().then_some(metadata.len())))
}
