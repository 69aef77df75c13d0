//! `offload pause` and `offload resume`: whether new jobs of a task start, or any.

use super::client::RequestClient;
use super::failure::{Failure, OK, VerbResult};
use super::flags::{Globals, NAMELESS};
use super::output::print_done;
use super::show::unknown;
use super::text;
use crate::limits::ANSWER_TIMEOUT;
use clap::Args;
use offload_protocol::messages::{Operation, PAUSES, ToSupervisor};
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::views::PausedView;
use serde::Deserialize;

const EXAMPLES: &str = "\
Examples:
  offload pause thumb      start nothing new of one task: its jobs wait, what runs goes on
  offload pause            the same for all tasks
  offload resume thumb     start what waits
  offload resume           end all pauses

Jobs are accepted as before and wait; their deadlines count. A job that its worker was given before may still start. A drain
waits until what is paused is resumed, or until its time is up. Pauses end with the supervisor.";

/// Start nothing new of a task, or of any; what runs goes on, and new jobs wait
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Pause {
    /// The task; all tasks if absent
    task: Option<String>,
}

/// End the pause of a task, or all pauses
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Resume {
    /// The task; everything if absent
    task: Option<String>,
}

impl Pause {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        ask(globals, Operation::Pause { task: self.task.unwrap_or_default() })
    }
}

impl Resume {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        ask(globals, Operation::Resume { task: self.task.unwrap_or_default() })
    }
}

#[derive(Deserialize)]
struct Answer {
    paused: PausedView,
}

fn ask(globals: &Globals, operation: Operation) -> VerbResult {
    let mut client: RequestClient = globals.connect(NAMELESS)?;
    if !client.has(PAUSES) {
        let message = "this supervisor is of a version that cannot pause tasks";
        return Err(Failure::outcome(OutcomeCode::Unsupported, message.to_owned()));
    }
    let document = client.ask(&ToSupervisor::Operate { ticket: 1, operation }, Some(ANSWER_TIMEOUT))?;
    let Answer { paused } = serde_json::from_slice(&document).map_err(unknown)?;
    let effect = describe(&paused);
    match globals.json {
        true => print_done(&effect, &document)?,
        false => print_done(&effect, text::printable(&effect).as_bytes())?,
    }
    Ok(OK)
}

/// What is paused, in words.
pub(crate) fn describe(paused: &PausedView) -> String {
    match (paused.all, paused.tasks.as_slice()) {
        (true, _) => "all tasks are paused".to_owned(),
        (false, []) => "nothing is paused".to_owned(),
        (false, [one]) => format!("the task {one} is paused"),
        (false, tasks) => format!("the tasks {} are paused", tasks.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_paused_is_said_in_words() {
        let paused = |all, tasks: &[&str]| {
            let tasks = tasks.iter().map(|task| (*task).to_owned()).collect();
            describe(&PausedView { all, tasks })
        };
        assert_eq!(paused(false, &[]), "nothing is paused");
        assert_eq!(paused(false, &["echo", "thumb"]), "the tasks echo, thumb are paused");
        assert_eq!(paused(true, &["echo"]), "all tasks are paused");
    }
}
