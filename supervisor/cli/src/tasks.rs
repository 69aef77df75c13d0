//! `offload tasks`: lists the tasks that can be submitted.

use super::failure::VerbResult;
use super::flags::Globals;
use super::show::show;
use super::table::Table;
use clap::Args;
use offload_protocol::messages::View;
use offload_supervisor::views::TaskView;

/// List the available tasks
#[derive(Args, Debug)]
pub(crate) struct Tasks {}

impl Tasks {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        show(globals, View::Tasks, render)
    }
}

fn render(tasks: &Vec<TaskView>) -> String {
    let mut table = Table::new(&["TASK", "LANE", "IDEMPOTENT", "PROGRAM"]);
    for task in tasks {
        let idempotent = if task.idempotent { "yes" } else { "no" };
        table.row([task.task.clone(), task.lane.clone(), idempotent.to_owned(), task.program.clone()]);
    }
    table.render()
}
