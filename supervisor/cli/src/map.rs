//! `offload map`: runs one job per input line and prints JSON Lines in the same order. The list may be of any length.

mod keep_flags;

use super::batch::{BatchLimits, Halt, jobs_at_once};
use super::batch_runner::{BatchWork, run_batch};
use super::daemon::SupervisorTarget;
use super::embedded::{Summary, new_event_loop, work};
use super::exec::{ExecFlags, adapter};
use super::failure::{Failure, OK, VerbResult};
use super::flags::{Globals, JobFlags, NAMELESS, PoolFlags, parse_client_name, task_name};
use super::input::{LIMIT_OF_SUPERVISOR, stdin};
use super::keeper::{LoggedWork, ProtectedFiles, metadata_of};
use super::output::expect_a_reader;
use super::progress::ProgressDisplay;
use super::retry_flags::RetryFlags;
use super::show::unknown;
use super::sink::Form;
use super::source::{InputLines, InputSource, KnownInputs, LineMeaning, Range, parse_range};
use crate::configuration::Settings;
use crate::limits::{ANSWER_TIMEOUT, BATCH_BYTES_MAX, BATCH_JOBS_MAX};
use clap::Args;
use keep_flags::KeepFlags;
use offload_protocol::messages::{ToSupervisor, View};
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::views::Status;
use offload_worker::exec::{ExecTask, has_place_for_input};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

const EXAMPLES: &str = "\
Examples:
  seq 1 100000 | offload map primes > primes.jsonl      one job per line of standard input
  find . -type f | offload map sha256 --files           each line is the path of an input
  offload map --range 1-100 --exec 'factor {}' --raw    the inputs are numbers; print the outputs alone
  find . -print0 | offload map --exec 'wc -c' --files -0    names with any character
  offload map regex cases.jsonl --max-failures 1        stop at the first failure
  find . -type f | offload map --exec 'wc -l' --files   any program, once for each file
  ls *.jpg | offload map --exec 'convert {} {.}.png' --files    the name of each file is where {} stands
  offload map --exec 'gzip -c {}' --files list --output-dir zipped      a file for each output
  offload map --exec ./slow.sh list --joblog log --resume > out         after any end, go on where it was
  offload map --exec ./upload.sh list --retry 3 --backoff 1s --halt soon,fail=10
  offload --socket ~/.offload/me.sock map primes n.txt  run the jobs in that supervisor

Each output line is one finished job, with its \"index\" (counted from 0), its outcome, and with --files
the name of its \"file\" (\"file_base64\" if that is not UTF-8).
Without --socket and OFFLOAD_SOCKET, map starts workers of its own. With one of them, that supervisor
runs the jobs on its workers; while it has no room, map waits.
A job log (--joblog) has a line of JSON for each job that has ended. With --resume, what it has as ok is not
run again, and what is printed is what an undisturbed run prints; a changed input is done again.
Ctrl-C, or another signal, cancels what is not done. Results that there are by then are still printed, and
so is a line for each job that was submitted; a second signal ends map at once.
If the results cannot be written, those that there are are saved in one file.
Exit codes: 0 all jobs were ok, 1 some failed, 2 the list cannot be read, 74 the results could not
be written, 125 the connection to the supervisor was lost.";

/// Run one job for each line of FILE or standard input; print results as JSON Lines in input order
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Map {
    /// The task to run, such as primes, sha256 or wordcount; not with --exec
    #[arg(required_unless_present = "exec")]
    task: Option<OsString>,

    /// The list: a file, or - for standard input [default: -]
    file: Option<PathBuf>,

    #[command(flatten)]
    exec: ExecFlags,

    #[command(flatten)]
    list: ListFlags,

    /// Print the outputs one after another, as they are, in the order of the inputs; what failed is on standard error
    #[arg(long, conflicts_with = "json")]
    raw: bool,

    #[command(flatten)]
    keep: KeepFlags,

    /// After N failed jobs, in whatever order they end: begin no more (soon), or also cancel those that are running (now);
    /// what has ended is printed
    #[arg(long, value_name = "soon|now,fail=N", value_parser = parse_halt)]
    halt: Option<Halt>,

    #[command(flatten)]
    retry: RetryFlags,

    /// Stop after N failed results: what is not done is cancelled, and no more results are printed [default: never]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_failures: Option<u64>,

    /// Client name for fair scheduling and quotas: processes with the same name count as one client [default: none, so
    /// each process is a client of its own]
    #[arg(long, value_name = "NAME", value_parser = parse_client_name)]
    client: Option<String>,

    #[command(flatten)]
    job: JobFlags,

    #[command(flatten)]
    pool: PoolFlags,
}

impl Map {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        expect_a_reader("nothing was run")?;
        let exec = self.exec.task()?;
        let asked = Asked::of(exec.as_ref(), self.task.clone(), self.file.clone())?;
        let settings = globals.settings(self.pool.layer())?;
        match settings.socket_is_named() {
            true => self.through_daemon(&asked, &settings, globals),
            false => self.embedded(exec, &asked, &settings, globals),
        }
    }

    fn embedded(
        &self,
        exec: Option<ExecTask>,
        asked: &Asked,
        settings: &Settings,
        globals: &Globals,
    ) -> VerbResult {
        let mut config = self.pool.embedded(settings, globals)?;
        if let Some(exec) = exec {
            config.programs = vec![adapter(&[exec])];
        }
        let limits = BatchLimits {
            jobs: BATCH_JOBS_MAX.min(config.core.max_jobs as u64),
            at_once: jobs_at_once(self.halt, config.core.workers),
            at_first: config.core.workers as u64,
            bytes: config.core.max_bytes,
            payload: config.core.max_payload,
            payload_setting: settings.payload_setting(),
            failures: self.max_failures,
            kept: self.keep.kept(),
            retries: self.retry.retries(),
            halt: self.halt,
        };
        let summary = work(config, self.job.options()?, self.work(asked, limits, globals)?)?;
        Ok(exit_code(&summary, globals))
    }

    fn through_daemon(&self, asked: &Asked, settings: &Settings, globals: &Globals) -> VerbResult {
        if let Some(flag) = self.exec.given().or_else(|| self.pool.first_given()) {
            return Err(Failure::Usage(format!(
                "{flag} says how workers are started, but the supervisor at {} has its own; leave out {flag}, or --socket \
                 and OFFLOAD_SOCKET",
                settings.socket()?.display()
            )));
        }
        let mut event_loop = new_event_loop()?;
        let workers = workers_there(globals)?;
        let name = self.client.as_deref().unwrap_or(NAMELESS);
        let handle = event_loop.handle();
        let daemon =
            SupervisorTarget::connect(settings.socket()?, name, &handle, &asked.task, self.job.options()?)?;
        let limits = BatchLimits {
            jobs: BATCH_JOBS_MAX,
            at_once: match self.halt {
                Some(Halt { is_now: false, .. }) => jobs_at_once(self.halt, workers),
                _ => BATCH_JOBS_MAX,
            },
            at_first: workers as u64,
            bytes: BATCH_BYTES_MAX,
            payload: daemon.payload_max(),
            payload_setting: LIMIT_OF_SUPERVISOR,
            failures: self.max_failures,
            kept: self.keep.kept(),
            retries: self.retry.retries(),
            halt: self.halt,
        };
        let done =
            run_batch(&mut event_loop, self.work(asked, limits, globals)?, |_| Ok(Rc::clone(&daemon)))?;
        let code = exit_code(&Summary { done, workers: None }, globals);
        match daemon.is_lost() {
            None => Ok(code),
            Some(reason) => Err(Failure::outcome(
                OutcomeCode::Indeterminate,
                format!("{reason}; what was not answered by then has failed, and no more lines were read"),
            )),
        }
    }

    fn work(&self, asked: &Asked, limits: BatchLimits, globals: &Globals) -> Result<BatchWork, Failure> {
        let form = if self.raw { Form::Raw } else { Form::JsonLines };
        let progress = ProgressDisplay::new(globals.quiet);
        let mut own = ProtectedFiles::of_this_process();
        if let Some(file) = globals.config_file()? {
            own.protect("the configuration file", file.path().metadata());
        }
        let source = self.list.source(asked, limits.payload, &progress, &mut own)?;
        let logged = LoggedWork {
            task: asked.task.clone(),
            form,
            command: asked.command.clone(),
            output_dir: self.keep.output_dir(),
        };
        let (keeping, sink) = self.keep.open(logged, own, self.list.indexed_outputs(&source))?;
        Ok(BatchWork {
            task: asked.task.clone(),
            source,
            limits,
            media_type: self.job.content_type().cloned(),
            keeping,
            sink,
            progress,
        })
    }
}

/// What the inputs are.
#[derive(Args, Debug)]
#[command(next_help_heading = "Inputs")]
struct ListFlags {
    /// Treat each line as the path of a regular file that holds the input; each result has its name ("file")
    #[arg(long)]
    files: bool,

    /// The lines of the list end with a zero byte, as `find -print0` writes them
    #[arg(short = '0', long)]
    null: bool,

    /// The inputs are the numbers from A to B; there is no list
    #[arg(long, value_name = "A-B", value_parser = parse_range, conflicts_with_all = ["files", "null"])]
    range: Option<Range>,
}

impl ListFlags {
    fn source(
        &self,
        asked: &Asked,
        line_max: u64,
        progress: &ProgressDisplay,
        own: &mut ProtectedFiles,
    ) -> Result<InputSource, Failure> {
        let path = match (self.range, &asked.list) {
            (Some(range), None) => {
                let numbers = KnownInputs::range(range);
                progress.expect(numbers.left());
                return Ok(InputSource::Known(numbers));
            }
            (Some(_), Some(list)) => {
                return Err(Failure::Usage(format!(
                    "with --range there is no list: leave out {:?} or --range",
                    list.as_os_str()
                )));
            }
            (None, list) => list.as_deref().filter(|path| path.as_os_str() != "-"),
        };
        let line = match self.files {
            true if asked.is_command => LineMeaning::Name,
            true => LineMeaning::Path,
            false => LineMeaning::Input,
        };
        let end = if self.null { 0 } else { b'\n' };
        let lines = match path {
            None => {
                let stdin = stdin().map_err(|error| unreadable("standard input", &error))?;
                own.protect_distinct("the list", "standard input", metadata_of(&stdin))?;
                // If there are too few descriptors, nobody counts.
                let counted = stdin.as_fd().try_clone_to_owned();
                counted.into_iter().for_each(|stdin| progress.expect_lines_of(stdin.into(), end));
                InputLines::new(stdin, line, line_max)
            }
            Some(path) => {
                let list = open(path)?;
                own.protect_distinct("the list", &path.display().to_string(), list.metadata())?;
                list.try_clone().into_iter().for_each(|list| progress.expect_lines_of(list, end));
                InputLines::new(list, line, line_max)
            }
        };
        Ok(InputSource::Lines(Box::new(lines.ending_with(end))))
    }

    /// How many outputs have their index as name. The number of lines is not known before they are read.
    fn indexed_outputs(&self, source: &InputSource) -> u64 {
        match source {
            _ if self.files => 0,
            InputSource::Known(known) => known.left(),
            InputSource::Lines(_) => u64::MAX,
        }
    }
}

/// What was named on the command line.
struct Asked {
    task: String,
    /// The list of inputs; `-` is standard input, and so is nothing.
    list: Option<PathBuf>,
    /// The inputs have their place in a command.
    is_command: bool,
    /// The words of `--exec`.
    command: Option<Vec<String>>,
}

impl Asked {
    /// With `--exec` no task is named, so the first name is that of the list.
    fn of(
        exec: Option<&ExecTask>,
        first: Option<OsString>,
        second: Option<PathBuf>,
    ) -> Result<Asked, Failure> {
        match (exec, second) {
            (Some(_), Some(second)) => Err(Failure::Usage(format!(
                "with --exec there is no task to name: leave out {:?} or {:?}",
                first.unwrap_or_default(),
                second.as_os_str()
            ))),
            (Some(exec), None) => Ok(Asked {
                task: exec.name.clone(),
                list: first.map(PathBuf::from),
                is_command: has_place_for_input(&exec.words),
                command: Some(exec.words.clone()),
            }),
            (None, second) => Ok(Asked {
                task: task_name(first.unwrap_or_default())?,
                list: second,
                is_command: false,
                command: None,
            }),
        }
    }
}

/// How many workers the supervisor has.
fn workers_there(globals: &Globals) -> Result<usize, Failure> {
    let request = ToSupervisor::Show { ticket: 1, view: View::Status };
    let document = globals.connect(NAMELESS)?.ask(&request, Some(ANSWER_TIMEOUT))?;
    let status: Status = serde_json::from_slice(&document).map_err(unknown)?;
    Ok(status.workers.configured.max(1))
}

/// For clap: `soon,fail=1`, `now,fail=3`.
fn parse_halt(text: &str) -> Result<Halt, String> {
    let form = || "it is soon,fail=N or now,fail=N, with N at least 1, such as now,fail=1".to_owned();
    let (when, failures) = text.split_once(",fail=").ok_or_else(form)?;
    let failures = failures.parse().ok().filter(|failures| *failures > 0).ok_or_else(form)?;
    match when {
        "soon" => Ok(Halt { failures, is_now: false }),
        "now" => Ok(Halt { failures, is_now: true }),
        _ => Err(form()),
    }
}

fn exit_code(summary: &Summary, globals: &Globals) -> ExitCode {
    if !globals.quiet {
        summary.say();
    }
    if summary.done.tally.failed == 0 { OK } else { 1.into() }
}

fn open(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|error| unreadable(&path.display().to_string(), &error))
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    Failure::Unreadable(format!("cannot read {name}: {error}"))
}
