//! `offload explain`: says why jobs wait, are retried, or died.

use super::attempts;
use super::failure::VerbResult;
use super::flags::{Globals, NAMELESS};
use super::ids::{in_full, with_each};
use super::output::{print, print_line};
use super::show::unknown;
use super::text;
use crate::limits::ANSWER_TIMEOUT;
use clap::Args;
use offload_protocol::messages::ToSupervisor;
use offload_supervisor::views::ExplanationView;

const EXAMPLES: &str = "\
Examples:
  offload explain $(offload submit primes 1000000000 --detach)     where the job is, and what it waits for
  offload explain 01JQ4W3M8Z5X9T2C7VB6NHKDEF --json                the same with all numbers
  offload explain HKDE HKDF                                        two jobs, by the last characters of their ids

Finished jobs can be explained too, as long as the supervisor remembers them.";

/// Explain jobs: what they wait for, where they run, how they ended, which attempts were lost
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Explain {
    /// The ids of the jobs, or their first or last characters
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<String>,
}

impl Explain {
    /// Runs the verb.
    pub(crate) fn run(self, globals: &Globals) -> VerbResult {
        let mut client = globals.connect(NAMELESS)?;
        let jobs = in_full(&mut client, &self.jobs)?;
        with_each(&jobs, globals.json, |job| {
            let document = client.ask(&ToSupervisor::Explain { ticket: 1, job }, Some(ANSWER_TIMEOUT))?;
            match globals.json {
                true => print_line(&document)?,
                false => print(render(&serde_json::from_slice(&document).map_err(unknown)?).as_bytes())?,
            }
            Ok(0)
        })
    }
}

fn render(job: &ExplanationView) -> String {
    let reasons = job.reasons.iter().map(|reason| format!("- {}\n", text::printable(reason)));
    let lost = job.lost.iter().map(attempts::render);
    let labels: Vec<&str> = job.labels.iter().collect();
    let labels = (!labels.is_empty()).then(|| format!("- labels: {}\n", text::printable(&labels.join(" "))));
    std::iter::once(state_line(job)).chain(labels).chain(reasons).chain(lost).collect()
}

/// The same, line by line.
#[cfg(feature = "top")]
pub(crate) fn story(job: &ExplanationView) -> Vec<String> {
    render(job).lines().map(str::to_owned).collect()
}

fn state_line(job: &ExplanationView) -> String {
    let attempts = match (job.attempts, job.attempts_allowed) {
        (0, _) => "not started yet".to_owned(),
        (number, Some(allowed)) if number <= allowed => format!("attempt {number} of {allowed}"),
        // Attempts that ended for a reason outside of the job do not count.
        (number, Some(allowed)) => format!("started {number} times, {allowed} attempts count"),
        (number, None) => text::count(number.into(), "attempt"),
    };
    let line =
        format!("{}: {}; task {}, {attempts}, {}", job.job, job.state, job.task, text::time(job.age_us));
    format!("{}\n", text::printable(&line))
}

#[cfg(test)]
mod tests {
    use super::super::attempts::tests::an_attempt;
    use super::*;

    fn explanation() -> ExplanationView {
        ExplanationView {
            job: "01J".to_owned(),
            task: "primes".to_owned(),
            client: "cli".to_owned(),
            state: "running".to_owned(),
            labels: Default::default(),
            reasons: vec!["worker 7 (slot 0) has run it for 2 s".to_owned(), "a\u{1b}b".to_owned()],
            age_us: 2_100_000,
            attempts: 2,
            attempts_allowed: Some(3),
            expected_wait_us: None,
            ahead: None,
            class: None,
            slot: Some(0),
            worker_pid: Some(7),
            progress: None,
            checkpoint_bytes: 0,
            lost: vec![an_attempt()],
        }
    }

    #[test]
    fn the_state_comes_first_then_the_reasons_then_what_was_lost() {
        let text = render(&explanation());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "01J: running; task primes, attempt 2 of 3, 2.1 s");
        assert_eq!(lines[1], "- worker 7 (slot 0) has run it for 2 s");
        assert_eq!(lines[2], r"- a\u{1b}b");
        assert!(lines[3].starts_with("attempt 1: "), "{text}");
    }

    #[test]
    fn a_job_that_was_never_started_says_so() {
        let waiting = ExplanationView { attempts: 0, ..explanation() };
        assert!(state_line(&waiting).contains("not started yet"));
    }
}
