//! Jobs as people name them: ids in full, or their first or last characters. All of them are looked up before anything is done
//! with one, so a verb with several jobs does nothing if one is ambiguous.

use super::client::RequestClient;
use super::failure::{Failure, VerbResult};
use super::output::{print_line, say};
use super::show::unknown;
use crate::limits::ANSWER_TIMEOUT;
use offload_protocol::messages::{FIND, Operation, ToSupervisor};
use offload_supervisor::views::{Candidates, JobView};

/// Characters of an id.
const ID_LENGTH: usize = 26;

/// The ids of these jobs in full, each once. A text that stands for no job stays as it is: the supervisor says what it thinks
/// of it.
///
/// # Errors
/// [`Failure::Usage`] if a text can stand for several jobs. The message names them.
pub(crate) fn in_full(client: &mut RequestClient, typed: &[String]) -> Result<Vec<String>, Failure> {
    let mut ids = Vec::with_capacity(typed.len());
    for text in typed {
        let id = full_id(client, text)?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

/// The same for one job.
pub(crate) fn full_id(client: &mut RequestClient, typed: &str) -> Result<String, Failure> {
    if typed.len() >= ID_LENGTH || !client.has(FIND) {
        return Ok(typed.to_owned());
    }
    let operation = Operation::Find { text: typed.to_owned() };
    let answer = client.ask(&ToSupervisor::Operate { ticket: 1, operation }, Some(ANSWER_TIMEOUT))?;
    let found: Candidates = serde_json::from_slice(&answer).map_err(unknown)?;
    match found.jobs.as_slice() {
        [] => Ok(typed.to_owned()),
        [only] => Ok(only.job.clone()),
        several => Err(ambiguous(typed, several, found.more)),
    }
}

fn ambiguous(typed: &str, candidates: &[JobView], more: bool) -> Failure {
    let name = |job: &JobView| format!("{} ({}, {})", job.job, job.task, job.state);
    let mut names: Vec<String> = candidates.iter().map(name).collect();
    names.extend(more.then(|| "and others".to_owned()));
    Failure::Usage(format!(
        "'{typed}' can be any of these jobs, so nothing was done; type more of the id, or its last characters: {}",
        names.join(", ")
    ))
}

/// Does something with each of these jobs, whatever becomes of the others; `act` returns the exit code. The exit code of the
/// verb is the highest of them.
///
/// # Errors
/// If there is one job, its failure. Otherwise only what concerns all of them, such as a supervisor that is gone.
pub(crate) fn with_each(
    jobs: &[String],
    json: bool,
    mut act: impl FnMut(&str) -> Result<u8, Failure>,
) -> VerbResult {
    if let [only] = jobs {
        return act(only).map(Into::into);
    }
    let mut highest = 0;
    for job in jobs {
        let code = match act(job) {
            Err(failure @ Failure::Outcome { .. }) => report(job, &failure, json)?,
            other => other?,
        };
        highest = highest.max(code);
    }
    Ok(highest.into())
}

/// Says what went wrong with one of several jobs. Returns its exit code.
fn report(job: &str, failure: &Failure, json: bool) -> Result<u8, Failure> {
    if json && let Some(document) = failure.document_of(job) {
        print_line(document)?;
    }
    say(&format!("{job}: {}", failure.message().unwrap_or_default()));
    Ok(failure.exit_code())
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_protocol::nouns::OutcomeCode;
    use std::process::ExitCode;

    fn candidate(job: &str) -> JobView {
        serde_json::from_value(serde_json::json!({
            "job": job, "task": "primes", "client": "", "state": "queued", "attempts": 0, "age_us": 1, "slot": null,
            "input_bytes": 1, "error": null,
        }))
        .unwrap()
    }

    #[test]
    fn an_ambiguous_id_is_a_mistake_of_whoever_typed_it_and_names_the_jobs() {
        let failure = ambiguous("01", &[candidate("01B"), candidate("01A")], true);
        assert_eq!(failure.exit_code(), 2);
        let message = failure.message().unwrap();
        assert!(message.contains("01B (primes, queued), 01A (primes, queued), and others"), "{message}");
    }

    #[test]
    fn of_several_jobs_each_is_dealt_with_and_the_highest_exit_code_counts() {
        let jobs = ["a", "b", "c"].map(str::to_owned);
        let mut seen = Vec::new();
        let ended = with_each(&jobs, false, |job| {
            seen.push(job.to_owned());
            match job {
                "a" => Err(Failure::outcome(OutcomeCode::NoSuchJob, "gone".to_owned())),
                "b" => Ok(1),
                _ => Ok(0),
            }
        });
        assert_eq!((ended.unwrap(), seen), (ExitCode::from(5), jobs.to_vec()));
    }

    #[test]
    fn what_concerns_all_jobs_ends_the_verb() {
        let jobs = ["a", "b"].map(str::to_owned);
        let mut count = 0;
        let ended = with_each(&jobs, false, |_| {
            count += 1;
            Err(Failure::NoSupervisor("gone".to_owned()))
        });
        assert_eq!((ended.unwrap_err().exit_code(), count), (3, 1));
    }
}
