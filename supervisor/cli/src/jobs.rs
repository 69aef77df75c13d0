//! `offload jobs`: lists recent jobs, those that pass a filter, once or again and again.

use super::client::RequestClient;
use super::failure::{Failure, OK, VerbResult};
use super::flags::{Globals, NAMELESS, parse_client_name, parse_label};
use super::output::{print, sleep_while_read};
use super::show::{List, fetch_list, fetch_pages};
use super::table::{Table, cell};
use super::text;
use crate::limits::{ANSWER_TIMEOUT, WATCH_INTERVAL};
use clap::Args;
use offload_protocol::messages::{FILTERS, JobFilter, Operation, ToSupervisor, View};
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::limits::JOBS_SHOWN_MAX;
use offload_supervisor::units::parse_duration;
use offload_supervisor::views::{JobView, OpenState};
use std::io::{IsTerminal, stdout};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  offload jobs                                        the last jobs, first those that have not ended
  offload jobs --outcome worker_crashed --since 1h    what crashed within the last hour
  offload jobs --outcome running --watch              what runs, shown again whenever it changes
  offload jobs --task thumb --client web --json       for a script
  offload jobs --label batch=7                        jobs that were submitted with --label batch=7";

/// What a terminal does before it shows a list again: it goes to the upper left corner and clears everything.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// List recent jobs, the newest first
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Jobs {
    /// Show at most N jobs: first those that have not ended, then the ended ones; each group newest first
    #[arg(long, value_name = "N", default_value_t = JOBS_SHOWN_MAX)]
    limit: usize,

    /// Show only the jobs with this label
    #[arg(long, value_name = "LABEL", value_parser = parse_label)]
    label: Option<String>,

    /// Show only the jobs that ended with this outcome, or that are `queued`, `paused`, `held` or `running`
    #[arg(long, value_name = "OUTCOME", value_parser = parse_state)]
    outcome: Option<String>,

    /// Show only the jobs of this task
    #[arg(long, value_name = "TASK")]
    task: Option<String>,

    /// Show only the jobs of this client, as the column CLIENT shows it
    #[arg(long, value_name = "NAME", value_parser = parse_client_name)]
    client: Option<String>,

    /// Show only the jobs that were accepted within this time, such as 10m; time in which the supervisor was suspended does not
    /// count
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    since: Option<Duration>,

    /// Show the list again whenever it has changed, until Ctrl-C or until nobody reads it; looks once a second. On a terminal the list takes the place of
    /// the one before, elsewhere it follows that
    #[arg(long)]
    watch: bool,
}

impl Jobs {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        let mut client = globals.connect(NAMELESS)?;
        let mut shown = self.fetch(&mut client)?;
        self.print(&shown, globals)?;
        if !self.watch {
            return Ok(OK);
        }
        loop {
            sleep_while_read(WATCH_INTERVAL)?;
            let now = self.fetch(&mut client)?;
            if has_changed(&shown, &now) {
                self.print(&now, globals)?;
                shown = now;
            }
        }
    }

    fn print(&self, list: &List<JobView>, globals: &Globals) -> Result<(), Failure> {
        let clear = if self.watch && !globals.json && stdout().is_terminal() { CLEAR } else { "" };
        print(format!("{clear}{}", list.text(globals.json, render)).as_bytes())
    }

    fn fetch(&self, client: &mut RequestClient) -> Result<List<JobView>, Failure> {
        let name = |job: &JobView| job.job.clone();
        let filter = self.filter();
        if is_only_a_label(&filter) {
            return fetch_list(client, (View::Jobs, &filter.label), self.limit, name);
        }
        if !client.has(FILTERS) {
            let message = "this supervisor is of a version that knows no filter but --label";
            return Err(Failure::outcome(OutcomeCode::Unsupported, message.to_owned()));
        }
        let page = |client: &mut RequestClient, after: &str, limit| {
            let operation = Operation::Jobs { after: after.to_owned(), limit, filter: filter.clone() };
            client.ask(&ToSupervisor::Operate { ticket: 1, operation }, Some(ANSWER_TIMEOUT))
        };
        fetch_pages(client, page, self.limit, name)
    }

    fn filter(&self) -> JobFilter {
        JobFilter {
            state: self.outcome.clone().unwrap_or_default(),
            task: self.task.clone().unwrap_or_default(),
            client: self.client.clone(),
            label: self.label.clone().unwrap_or_default(),
            since_ms: self.since.map(|since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

fn is_only_a_label(filter: &JobFilter) -> bool {
    *filter == JobFilter { label: filter.label.clone(), ..JobFilter::default() }
}

/// Whether more has changed than how old the jobs are.
fn has_changed(before: &List<JobView>, now: &List<JobView>) -> bool {
    let is_same =
        |(before, now): (&JobView, &JobView)| JobView { age_us: before.age_us, ..now.clone() } == *before;
    before.rows.len() != now.rows.len() || !before.rows.iter().zip(&now.rows).all(is_same)
}

/// For clap: a state in which a job can be.
fn parse_state(text: &str) -> Result<String, String> {
    let outcomes = || OutcomeCode::ALL.iter().map(|code| code.as_str());
    let listed = OpenState::ALL.into_iter().filter(|state| state.in_lists() == *state);
    let listed: Vec<&str> = listed.map(OpenState::as_str).collect();
    let words = || listed.iter().copied().chain(outcomes());
    match words().any(|word| word == text) {
        true => Ok(text.to_owned()),
        false => {
            let nearest = words().min_by_key(|word| strsim::damerau_levenshtein(word, text)).unwrap_or("ok");
            Err(format!("no job ends like that, and none is in such a state; did you mean {nearest}?"))
        }
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
