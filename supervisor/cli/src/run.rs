//! `offload run`: runs jobs without a running supervisor. It starts its own workers and leaves nothing behind.

use super::batch::{BatchLimits, Kept, jobs_at_once};
use super::batch_runner::{BatchResult, BatchWork, Keeping};
use super::embedded::work;
use super::exec::{ExecFlags, adapter};
use super::failure::{Failure, OK, VerbResult};
use super::flags::{Globals, JobFlags, PoolFlags, task_name};
use super::input::Input;
use super::output::{expect_a_reader, refuse_binary_on_a_terminal};
use super::progress::ProgressDisplay;
use super::retry_flags::RetryFlags;
use super::run_stream;
use super::sink::{Form, Sink};
use super::source::{InputSource, KnownInputs};
use super::stream_output::StreamOutput;
use crate::limits::BATCH_JOBS_MAX;
use clap::Args;
use offload_worker::exec::{ExecTask, has_place_for_input};
use std::ffi::OsString;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  offload run primes 1000000 2000000 3000000       three jobs, as many at a time as there are cores
  offload run wordcount @book.txt                  the input is the content of the file
  offload run count 1000000000 --stream | head     print the output as it comes
  curl -s example.org | offload run sha256 -       the input is standard input
  offload run --worker 'python3 worker.py' py.sum '[1, 2]'
  offload run --exec 'gzip -c' @book.txt > book.gz any program, with the input as its standard input

Ctrl-C, or another signal, cancels what is not done; outputs that there are by then are still printed.
The exit code is that of the first failed job in input order (2 if its input cannot be read).
To pass an input that begins with @, pipe it in (-).";

/// Run jobs without a supervisor: one job for each INPUT; print results in input order
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Run {
    /// The task to run, such as primes, sha256 or wordcount; not with --exec
    #[arg(required_unless_present = "exec", allow_negative_numbers = true)]
    task: Option<OsString>,

    /// The inputs: a text, @FILE for the content of a file, - for standard input. Without any, what is piped in is the
    /// input; if nothing is, the input is empty
    #[arg(value_name = "INPUT", value_parser = Input::parser(), allow_negative_numbers = true)]
    inputs: Vec<Input>,

    #[command(flatten)]
    exec: ExecFlags,

    /// Print the output of one job as it comes, instead of all of it at the end
    #[arg(long)]
    stream: bool,

    #[command(flatten)]
    retry: RetryFlags,

    #[command(flatten)]
    job: JobFlags,

    #[command(flatten)]
    pool: PoolFlags,
}

impl Run {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        let exec = self.exec.task()?;
        let (task, inputs) = task_and_inputs(exec.as_ref(), self.task, self.inputs)?;
        if inputs.iter().filter(|input| **input == Input::Stdin).count() > 1 {
            return Err(Failure::Usage("standard input (-) can be the input of one job only".to_owned()));
        }
        if self.stream && self.retry.retries().most > 0 {
            let why = "--stream prints an output as it comes, which cannot be taken back: leave out --retry";
            return Err(Failure::Usage(why.to_owned()));
        }
        if self.stream && inputs.len() != 1 {
            return Err(Failure::Usage("--stream prints the output of one job: name one input".to_owned()));
        }
        expect_a_reader("nothing was run")?;
        refuse_binary_on_a_terminal(&task, globals)?;
        let settings = globals.settings(self.pool.layer())?;
        let mut config = self.pool.embedded(&settings, globals)?;
        if let Some(exec) = exec {
            config.programs = vec![adapter(&[exec])];
        }
        let core = &mut config.core;
        core.workers = core.workers.min(inputs.len().max(config.programs.len()));
        // Of fewer workers, fewer can be kept for short work.
        core.short_slots = core.short_slots.map(|slots| slots.min(core.workers.saturating_sub(1)));
        if self.stream {
            let output = StreamOutput::open(&task, false, globals)?;
            return inputs
                .into_iter()
                .next()
                .map_or(Ok(OK), |input| run_stream::run(config, &task, input, self.job.options()?, output));
        }
        let limits = BatchLimits {
            jobs: BATCH_JOBS_MAX.min(config.core.max_jobs as u64),
            at_once: jobs_at_once(None, config.core.workers),
            at_first: config.core.workers as u64,
            bytes: config.core.max_bytes,
            payload: config.core.max_payload,
            payload_setting: settings.payload_setting(),
            failures: None,
            kept: Kept::default(),
            retries: self.retry.retries(),
            halt: None,
        };
        let form = match globals.json {
            true => Form::JsonLines,
            false => Form::Outputs { is_only_one: inputs.len() == 1 },
        };
        let source = InputSource::Known(KnownInputs::list(inputs));
        let (media_type, progress) = (self.job.content_type().cloned(), ProgressDisplay::hidden());
        let keeping = Keeping::default();
        let batch = BatchWork { task, limits, source, media_type, keeping, sink: Sink::new(form), progress };
        let summary = work(config, self.job.options()?, batch)?;
        if !globals.quiet {
            summary.say();
        }
        Ok(exit_code(summary.done))
    }
}

/// With `--exec`, the first word that is no flag is an input like the others.
fn task_and_inputs(
    exec: Option<&ExecTask>,
    first: Option<OsString>,
    mut inputs: Vec<Input>,
) -> Result<(String, Vec<Input>), Failure> {
    let task = match (exec, first) {
        (Some(exec), first) => {
            inputs.splice(..0, first.map(Input::from));
            if has_place_for_input(&exec.words) {
                inputs = inputs.into_iter().map(Input::named).collect();
            }
            exec.name.clone()
        }
        (None, first) => task_name(first.unwrap_or_default())?,
    };
    if inputs.is_empty() {
        inputs.push(Input::unnamed());
    }
    Ok((task, inputs))
}

fn exit_code(done: BatchResult) -> ExitCode {
    done.tally.first_failure.map_or(OK, ExitCode::from)
}
