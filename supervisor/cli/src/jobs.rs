//! `offload jobs`: lists recent jobs.

use super::failure::VerbResult;
use super::flags::{Globals, parse_label};
use super::show::show_list;
use super::table::{Table, cell};
use super::text;
use clap::Args;
use offload_protocol::messages::View;
use offload_supervisor::limits::JOBS_SHOWN_MAX;
use offload_supervisor::views::JobView;

/// List recent jobs, the newest first
#[derive(Args, Debug)]
pub(crate) struct Jobs {
    /// Show at most N jobs: first those that have not ended, then the ended ones; each group newest first
    #[arg(long, value_name = "N", default_value_t = JOBS_SHOWN_MAX)]
    limit: usize,

    /// Show only the jobs with this label
    #[arg(long, value_name = "LABEL", value_parser = parse_label)]
    label: Option<String>,
}

impl Jobs {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        let label = self.label.as_deref().unwrap_or("");
        show_list(globals, (View::Jobs, label), self.limit, |job: &JobView| job.job.clone(), render)
    }
}

fn render(jobs: &Vec<JobView>) -> String {
    let mut table = Table::new(&[
        "JOB",
        "TASK",
        "STATE",
        "#ATTEMPTS",
        "#TIME",
        "#SLOT",
        "#INPUT",
        "CLIENT",
        "LABELS",
        "ERROR",
    ]);
    for job in jobs {
        table.row([
            job.job.clone(),
            job.task.clone(),
            job.state.clone(),
            job.attempts.to_string(),
            text::time(job.age_us),
            cell(job.slot),
            text::bytes(job.input_bytes),
            text::client(&job.client).to_owned(),
            job.labels.iter().collect::<Vec<_>>().join(" "),
            cell(job.error.as_ref()),
        ]);
    }
    table.render()
}
