//! `offload dead`: lists, shows, retries and drops dead letters. A dead letter is a job that ended its worker in every
//! allowed attempt.

use super::attempts;
use super::failure::VerbResult;
use super::flags::{Globals, NAMELESS};
use super::ids::full_id;
use super::output::failure_after;
use super::retry::Retry;
use super::show::{answer, show_list};
use super::table::Table;
use super::text;
use clap::{Args, Subcommand};
use offload_protocol::messages::{DeadLetterAction, ToSupervisor, View};
use offload_supervisor::views::DeadView;
use serde::de::DeserializeOwned;
use serde_json::Value;

const EXAMPLES: &str = "\
Examples:
  offload dead list                              which jobs died, and why
  offload dead show 01JQ4W3M8Z5X9T2C7VB6NHKDEF   every attempt, with the last output of its worker
  offload wait $(offload dead retry 01JQ4W3M8Z5X9T2C7VB6NHKDEF)   the same as `offload retry`
  offload dead drop HKDEF                        forget it; here named by the last characters of its id

A dead letter has the input of its job, so the job can be retried once the program is fixed. It is kept for three days
unless `keep_dead_letters` says otherwise, or until it is retried or deleted; other jobs never displace it. There is room for
1,000 dead letters with 64 MiB in all. One client may have as many as it leaves free: half of all, if it is the only one. If
there is room only for a dead letter without the input, or for none, the error of the job says so.";

/// List, show, retry or drop dead letters: jobs that crashed their worker in each of several attempts
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Dead {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List dead letters, the newest first
    List {
        /// Show at most this many [default: all]
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Show a dead letter: exit status, last output, CPU time and memory of each attempt
    Show {
        /// The job's id, or its first or last characters
        job: String,
    },
    Retry(Retry),
    /// Delete a dead letter with its input
    Drop {
        /// The job's id, or its first or last characters
        job: String,
    },
}

impl Dead {
    /// Whether the verb changes a dead letter.
    pub(crate) fn has_an_effect(&self) -> bool {
        matches!(self.verb, Verb::Retry(_) | Verb::Drop { .. })
    }

    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        match &self.verb {
            Verb::List { limit } => {
                let most = limit.unwrap_or(usize::MAX);
                show_list(globals, (View::Dead, ""), most, |letter: &DeadView| letter.job.clone(), list)
            }
            Verb::Show { job } => of_one(globals, DeadLetterAction::Show, job, |_, letter| forensics(letter)),
            Verb::Retry(retry) => retry.run(globals),
            Verb::Drop { job } => {
                of_one(globals, DeadLetterAction::Drop, job, |job, _: &Value| format!("{job}: dropped\n"))
                    .map_err(|failure| failure_after(failure, "the dead letter is dropped"))
            }
        }
    }
}

/// Does something with the dead letter of a job, which is named as any other, and prints the answer.
fn of_one<T: DeserializeOwned>(
    globals: &Globals,
    action: DeadLetterAction,
    typed: &str,
    render: impl FnOnce(&str, &T) -> String,
) -> VerbResult {
    let mut client = globals.connect(NAMELESS)?;
    let job = &full_id(&mut client, typed)?;
    answer(&mut client, globals, &ToSupervisor::Dead { ticket: 1, action, job }, |it| render(job, it))
}

fn list(letters: &Vec<DeadView>) -> String {
    let mut table = Table::new(&["JOB", "TASK", "#ATTEMPTS", "#DEAD FOR", "#INPUT", "CLIENT", "ERROR"]);
    for letter in letters {
        table.row([
            letter.job.clone(),
            letter.task.clone(),
            letter.attempts.len().to_string(),
            text::time(letter.dead_for_us),
            text::bytes(letter.input_bytes),
            text::client(&letter.client).to_owned(),
            letter.error.clone(),
        ]);
    }
    table.render()
}

fn forensics(letter: &DeadView) -> String {
    let DeadView { job, task, client, dead_for_us, input_bytes, has_input, kept_for_us, error, attempts } =
        letter;
    let [dead_for, kept_for] = [dead_for_us, kept_for_us].map(|time| text::time(*time));
    let input = text::bytes(*input_bytes);
    let kept = match has_input {
        true => format!("- kept for another {kept_for}"),
        false => format!("- kept for another {kept_for}, without its input: it cannot be retried"),
    };
    let client = text::client(client);
    let head = [
        format!("{job}: poison; task {task}, input {input}, client {client}, dead for {dead_for}"),
        format!("- {error}"),
        kept,
    ];
    let head = head.iter().map(|line| format!("{}\n", text::printable(line)));
    head.chain(attempts.iter().map(attempts::render)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::attempts::tests::an_attempt;
    use super::*;

    fn letter() -> DeadView {
        DeadView {
            job: "01J".to_owned(),
            task: "act".to_owned(),
            client: "cli".to_owned(),
            dead_for_us: 5_000_000,
            input_bytes: 5,
            has_input: true,
            kept_for_us: 7_000_000,
            error: "worker_crashed: signal 11".to_owned(),
            attempts: vec![an_attempt(), an_attempt()],
        }
    }

    #[test]
    fn the_list_has_a_line_for_each() {
        let expected = "\
JOB  TASK  ATTEMPTS  DEAD FOR  INPUT  CLIENT  ERROR
01J  act          2     5.0 s    5 B  cli     worker_crashed: signal 11
";
        assert_eq!(list(&vec![letter()]), expected);
    }

    #[test]
    fn one_is_shown_with_all_its_attempts() {
        let text = forensics(&letter());
        assert!(text.starts_with("01J: poison; task act, input 5 B, client cli, dead for 5.0 s\n- worker_"));
        assert_eq!(text.matches("signal 11 (SIGSEGV)").count(), 2, "{text}");
        assert_eq!(text.matches("    | about to").count(), 2, "{text}");
    }
}
