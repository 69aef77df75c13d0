//! The one binary, `offload`: supervisor, client and built-in worker. Each verb is one file. This file only parses the
//! command line into a struct; the verb gives it a meaning.
//!
//! Results go to standard output, messages to standard error. A verb returns an exit code or a [`failure::Failure`].
//! One place, [`main`], prints failures.
//!
//! | verbs | work with |
//! |---|---|
//! | `run`, `map` | a pool of their own, on an event loop in this process (`map` can also use a supervisor) |
//! | `tasks` | the supervisor, or with `--worker` a pool of its own ([`introduced`]) |
//! | `bench` | event loops and a pool of its own |
//! | `serve` | nobody: it is the supervisor |
//! | `submit`, `wait`, `result`, `cancel`, `explain`, `logs`, `pause`, `resume`, `retry`, `dead`, `status`, `workers`, `jobs`, `top`, `reload`, `drain`, `stop` | the supervisor at the socket, through [`client`] |
//! | `config`, `doctor`, `completions`, `man` | nobody |
//! | `worker check` | a worker, as whose supervisor it acts ([`check`]) |
//! | `worker`, `worker-exec`, `exec-worker`, `jsonl-worker`, `http-worker` (hidden) | the supervisor that started them |
//! | `bench-helper` (hidden) | the `bench pool` that started it |
//!
//! `run` and `map` share their parts: a [`source`] delivers inputs, a [`batch`] decides what to do next, a
//! [`batch_runner`] does it on the event loop, [`embedded`] or [`daemon`] runs the jobs, a [`keeper`] keeps on disk what is
//! to be kept, and a [`sink`] writes the results.

mod attempts;
mod batch;
mod batch_runner;
mod client;
mod daemon;
mod digest;
mod embedded;
mod examples;
mod exec;
mod failure;
#[cfg(test)]
mod fake_supervisor;
mod flags;
mod ids;
mod input;
mod keeper;
mod limits;
mod output;
mod output_file;
mod progress;
mod render;
mod retry;
mod retry_flags;
mod show;
mod sink;
mod source;
mod startable;
mod sys;
mod table;
mod text;

mod bench;
mod cancel;
mod candidates;
mod check;
mod completions;
mod config;
mod configuration;
mod dead;
mod doctor;
mod drain;
mod exec_worker;
mod explain;
mod http;
mod http_worker;
mod introduced;
mod jobs;
mod jsonl_worker;
mod logs;
mod man;
mod map;
mod pause;
mod reload;
mod result;
mod run;
mod run_stream;
mod serve;
mod status;
mod stop;
mod stream_output;
mod submit;
mod tasks;
#[cfg(feature = "top")]
mod top;
mod wait;
mod worker;
mod worker_exec;
mod workers;

use clap::error::ErrorKind;
use clap::{FromArgMatches, Parser, Subcommand};
use failure::{Failure, OK, VerbResult};
use flags::Globals;
use offload_supervisor::workers::hide_this_process;
use std::ffi::OsString;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  offload run primes 1000000 2000000     run two jobs, no supervisor needed
  offload serve                          start a supervisor in the foreground
  offload submit wordcount @book.txt     submit a job and print the result
  offload status                         show the status of the supervisor
  offload run count 1000000 --stream     print the output as it comes, instead of all of it at the end
  offload explain JOB                    say why a job waits, or how it ended

Exit codes: 0 ok, 1 the task failed, 2 usage, 3 no supervisor, 4 rejected or unavailable, 5 no such job,
70 internal error, 74 the output could not be written, 75 another supervisor owns the socket,
124 timed out, 125 the worker crashed or the outcome is unknown, 126 cancelled, 130 interrupted (the process ends by the signal).";

/// What is said to somebody who says nothing.
const NO_VERB: &str =
    "what is to be done? Try `offload run primes 1000000`, or `offload --help` for all verbs";

/// Runs CPU-heavy jobs on a bounded set of worker processes that are restarted when they crash.
#[derive(Debug, Parser)]
#[command(name = "offload", version, after_help = EXAMPLES, max_term_width = 110, disable_help_subcommand = true)]
struct CommandLine {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(run::Run),
    Map(map::Map),
    Serve(serve::Serve),
    Submit(submit::Submit),
    Status(status::Status),
    Workers(workers::Workers),
    Jobs(jobs::Jobs),
    Tasks(tasks::Tasks),
    #[cfg(feature = "top")]
    Top(top::Top),
    Wait(wait::Wait),
    Result(result::Result),
    Cancel(cancel::Cancel),
    Explain(explain::Explain),
    Logs(logs::Logs),
    Pause(pause::Pause),
    Resume(pause::Resume),
    Retry(retry::Retry),
    Dead(dead::Dead),
    Reload(reload::Reload),
    Drain(drain::Drain),
    Stop(stop::Stop),
    Bench(bench::Bench),
    Config(config::Config),
    Doctor(doctor::Doctor),
    Completions(completions::Completions),
    Man(man::Man),
    Worker(worker::Worker),
    WorkerExec(worker_exec::WorkerExec),
    ExecWorker(exec_worker::ExecWorker),
    JsonlWorker(jsonl_worker::JsonlWorker),
    HttpWorker(http_worker::HttpWorker),
    BenchHelper(bench::pool::helper::BenchHelper),
}

/// Runs the verb of the command line, and reports on standard error what went wrong.
fn main() -> ExitCode {
    if let Some(answered) = completions::answer() {
        return answered;
    }
    let (ended, json) = match parse() {
        Ok(CommandLine { globals, verb }) => {
            // A worker hides itself when it has said how little it wants: that is written to its own /proc.
            if !verb.is_a_worker() {
                // The kernel does not refuse it.
                let _ = hide_this_process();
                output::outlive_file_size_limit();
            }
            (run(verb, &globals), globals.json)
        }
        Err(error) => (report_command_line(&error), is_json_asked_for(std::env::args_os())),
    };
    ended.unwrap_or_else(|failure| {
        if json && let Some(document) = failure.document() {
            // If nobody reads the document, the exit code still says it.
            let _ = output::print_line(document);
        }
        if let Some(message) = failure.message() {
            output::say(&message);
        }
        match failure {
            Failure::Interrupted(signal) => end_by(signal),
            other => other.exit_code().into(),
        }
    })
}

/// The command line of this process.
fn parse() -> Result<CommandLine, clap::Error> {
    let mut offload = examples::command_line();
    let typed = offload.try_get_matches_from_mut(std::env::args_os())?;
    CommandLine::from_arg_matches(&typed).map_err(|error| error.format(&mut offload))
}

/// Whether a command line that cannot be parsed contains `--json`.
fn is_json_asked_for(words: impl Iterator<Item = OsString>) -> bool {
    words.skip(1).take_while(|word| word != "--").any(|word| word == "--json")
}

/// Prints what is wrong with the command line, or the help or version that was asked for.
fn report_command_line(error: &clap::Error) -> VerbResult {
    let has_no_verb = matches!(
        error.kind(),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    if has_no_verb && std::env::args_os().len() == 1 {
        // The parser would print all of its help, or list all verbs, also those that are hidden.
        return Err(Failure::Usage(NO_VERB.to_owned()));
    }
    if error.use_stderr() {
        let _ = error.print();
        return Err(Failure::CommandLine(error.to_string()));
    }
    output::check_stdout()?;
    error.print().map_err(|error| Failure::writing("standard output", &error))?;
    output::print(b"")?;
    Ok(OK)
}

/// Ends this process by a signal that it caught before, after it has cleaned up. A shell leaves its loop only if its
/// child was ended by the signal of Ctrl-C. An exit code, even 130, does not show that: the child may have chosen it.
pub(crate) fn end_by(signal: i32) -> ! {
    // The kernel does not apply default actions of signals to the first process of a container.
    if std::process::id() != 1 {
        // If that fails, the exit code below reports the signal.
        sys::end_by_default_action(signal);
    }
    std::process::exit(Failure::Interrupted(signal).exit_code().into())
}

impl Verb {
    /// Whether this process was started by a supervisor, or to measure one.
    fn is_a_worker(&self) -> bool {
        match self {
            Verb::Worker(worker) => worker.is_at_work(),
            Verb::WorkerExec(_) | Verb::ExecWorker(_) | Verb::JsonlWorker(_) | Verb::HttpWorker(_) => true,
            Verb::BenchHelper(_) => true,
            _ => false,
        }
    }

    /// Whether the verb is useless without a standard output. All other verbs need no output, check it themselves, or
    /// have an effect. A verb with an effect runs in any case; if it cannot report the effect, it exits with 74.
    fn is_for_its_output(&self) -> bool {
        match self {
            Verb::Serve(_) => false,
            // It looks for a terminal itself.
            #[cfg(feature = "top")]
            Verb::Top(_) => false,
            _ if self.is_a_worker() => false,
            Verb::Submit(_) | Verb::Wait(_) | Verb::Result(_) => false,
            Verb::Cancel(_)
            | Verb::Pause(_)
            | Verb::Resume(_)
            | Verb::Retry(_)
            | Verb::Reload(_)
            | Verb::Drain(_)
            | Verb::Stop(_) => false,
            Verb::Dead(dead) => !dead.has_an_effect(),
            _ => true,
        }
    }
}

fn run(verb: Verb, globals: &Globals) -> VerbResult {
    if verb.is_for_its_output() {
        output::check_stdout()?;
    }
    match verb {
        Verb::Run(run) => run.run(globals),
        Verb::Map(map) => map.run(globals),
        Verb::Serve(serve) => serve.run(globals),
        Verb::Submit(submit) => submit.run(globals),
        Verb::Status(status) => status.run(globals),
        Verb::Workers(workers) => workers.run(globals),
        Verb::Jobs(jobs) => jobs.run(globals),
        Verb::Tasks(tasks) => tasks.run(globals),
        #[cfg(feature = "top")]
        Verb::Top(top) => top.run(globals),
        Verb::Wait(wait) => wait.run(globals),
        Verb::Result(result) => result.run(globals),
        Verb::Cancel(cancel) => cancel.run(globals),
        Verb::Explain(explain) => explain.run(globals),
        Verb::Logs(logs) => logs.run(globals),
        Verb::Pause(pause) => pause.run(globals),
        Verb::Resume(resume) => resume.run(globals),
        Verb::Retry(retry) => retry.run(globals),
        Verb::Dead(dead) => dead.run(globals),
        Verb::Reload(reload) => reload.run(globals),
        Verb::Drain(drain) => drain.run(globals),
        Verb::Stop(stop) => stop.run(globals),
        Verb::Bench(bench) => bench.run(globals),
        Verb::Config(config) => config.run(globals),
        Verb::Doctor(doctor) => doctor.run(globals),
        Verb::Completions(completions) => completions.run(),
        Verb::Man(man) => man.run(),
        Verb::Worker(worker) => worker.run(globals),
        Verb::WorkerExec(worker_exec) => worker_exec.run(),
        Verb::ExecWorker(exec_worker) => exec_worker.run(),
        Verb::JsonlWorker(jsonl_worker) => jsonl_worker.run(),
        Verb::HttpWorker(http_worker) => http_worker.run(),
        Verb::BenchHelper(helper) => helper.run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_of_the_command_line_holds_together() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn every_flag_and_verb_is_explained() {
        for verb in CommandLine::command().get_subcommands() {
            assert!(verb.get_about().is_some(), "{} has no help", verb.get_name());
            for argument in verb.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{} of {} has no help",
                    argument.get_id(),
                    verb.get_name()
                );
            }
        }
    }

    #[test]
    fn serve_has_a_flag_for_each_setting_and_config_show_has_the_same() {
        let mut offload = CommandLine::command();
        offload.build();
        let config = offload.find_subcommand("config").unwrap();
        for verb in [offload.find_subcommand("serve").unwrap(), config.find_subcommand("show").unwrap()] {
            for key in configuration::table::TABLE {
                let has_it = verb.get_arguments().any(|argument| argument.get_long() == Some(key.flag));
                assert!(has_it, "{} has no --{}", verb.get_name(), key.flag);
            }
        }
    }

    #[test]
    fn global_flags_may_stand_behind_the_verb() {
        let typed =
            CommandLine::try_parse_from(["offload", "status", "--json", "--socket", "/run/x"]).unwrap();
        assert!(typed.globals.json && typed.globals.keys.first_given().as_deref() == Some("--socket"));
    }

    #[test]
    fn a_job_or_a_label_is_named_and_not_both() {
        for verb in ["wait", "cancel"] {
            let missing = CommandLine::try_parse_from(["offload", verb]).unwrap_err().to_string();
            assert!(missing.contains("--label") && missing.contains("JOB"), "{missing}");
            assert!(
                missing.contains("<--label <LABEL>|JOB>") || missing.contains("<JOB|--label <LABEL>>"),
                "{missing}"
            );
            assert!(CommandLine::try_parse_from(["offload", verb, "--label", "x"]).is_ok());
            assert!(CommandLine::try_parse_from(["offload", verb, "x", "y"]).is_ok());
            assert!(CommandLine::try_parse_from(["offload", verb, "--label", "x", "y"]).is_err());
        }
    }

    #[test]
    fn an_unknown_flag_is_answered_with_the_nearest() {
        let error = CommandLine::try_parse_from(["offload", "submit", "--timeot", "1s", "echo"]).unwrap_err();
        assert!(error.to_string().contains("--timeout"), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
}
