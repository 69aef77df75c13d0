//! `offload workers`: what each slot does.

use super::failure::Ended;
use super::flags::Globals;
use super::show::show;
use super::table::{Table, cell};
use super::text;
use clap::Args;
use offload_protocol::messages::View;
use offload_supervisor::views::WorkerView;

/// List the workers with the jobs that they run
#[derive(Args, Debug)]
pub(crate) struct Workers {}

impl Workers {
    /// Does it.
    pub(crate) fn run(self, globals: &Globals) -> Ended {
        show(globals, View::Workers, render)
    }
}

fn render(workers: &Vec<WorkerView>) -> String {
    let mut table = Table::new(&[
        "#SLOT",
        "STATE",
        "#PID",
        "PROGRAM",
        "TASK",
        "JOB",
        "#RUNNING",
        "#DONE",
        "#MEMORY",
        "#RESTARTS",
        "LAST EXIT",
    ]);
    for worker in workers {
        table.row([
            worker.slot.to_string(),
            worker.state.clone(),
            cell(worker.pid),
            worker.program.clone(),
            cell(worker.task.as_ref()),
            cell(worker.job.as_ref()),
            cell(worker.running_us.map(text::time)),
            worker.jobs_done.to_string(),
            cell(worker.rss_bytes.map(text::bytes)),
            worker.restarts.to_string(),
            cell(worker.last_exit.as_ref()),
        ]);
    }
    table.render()
}
