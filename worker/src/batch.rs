//! Tasks that take several jobs at once: what their function gets, and whose fault it is if it fails as a whole.
//!
//! ```text
//!   jobs ---> run ---.-- as many results -----------------------> one for each job
//!              ^     |
//!              |     '-- a panic, or another number of results
//!              |              |            |
//!              '-- each half -'            '-- of one job: it is that job's fault
//! ```
//!
//! For a batch of n jobs, `run` is called again at most 2(n - 1) times. If one job is guilty, these are two calls for each halving.

use crate::panics;
use crate::task::{Input, Output, TaskError};
use offload_protocol::nouns::{FailureKind, Metadata};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;

/// The function of a task that takes several jobs at once.
pub(crate) type Batched<'a> = dyn FnMut(&[Member]) -> Vec<Result<Output, TaskError>> + 'a;

/// One job of several that run together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The supervisor's number for the job, the same in each of its attempts.
    pub job: u64,
    /// Which attempt at the job this is, counted from 1.
    pub attempt: u32,
    /// Its input.
    pub input: Input,
    /// What the client attached to it, such as a trace context.
    pub metadata: Metadata,
}

/// How one job of several ended.
pub(crate) type MemberResult = Result<Output, TaskError>;

/// Runs these jobs, which are at least one, and finds out whose fault it is if `run` fails as a whole. One result for each.
pub(crate) fn results(run: &mut Batched<'_>, jobs: &[Member]) -> Vec<MemberResult> {
    let failure = match panics::caught(|| run(jobs)) {
        Ok(results) if results.len() == jobs.len() => return results,
        Ok(results) => {
            TaskError::met(format_args!("the task returned {} results for one job", results.len()))
        }
        Err(message) => TaskError::of_kind(FailureKind::Panic, message),
    };
    if jobs.len() == 1 {
        return vec![Err(failure)];
    }
    let (one, other) = jobs.split_at(jobs.len().div_ceil(2));
    let mut all = results(run, one);
    all.extend(results(run, other));
    all
}

/// Runs a job without others.
pub(crate) fn alone(run: &mut Batched<'_>, job: Member) -> MemberResult {
    results(run, &[job]).pop().unwrap_or_else(|| Err(TaskError::met("the task returned no result")))
}

/// The function of a task from JSON to JSON. Jobs whose input does not fit are answered without it.
pub(crate) fn with_json<I, O, E>(
    mut run: impl FnMut(Vec<I>) -> Vec<Result<O, E>>,
) -> impl FnMut(&[Member]) -> Vec<Result<Output, TaskError>>
where
    I: DeserializeOwned,
    O: Serialize,
    E: fmt::Display + 'static,
{
    move |jobs: &[Member]| {
        let mut values = Vec::with_capacity(jobs.len());
        let errors: Vec<Option<TaskError>> =
            jobs.iter().map(|job| job.input.json().map(|value| values.push(value)).err()).collect();
        let ran = if values.is_empty() { Vec::new() } else { run(values) };
        let mut ran = ran.into_iter();
        let written = |result: Result<O, E>| Output::json(&result.map_err(TaskError::returned)?);
        let own = |error: Option<TaskError>| error.map(Err).or_else(|| ran.next().map(written));
        let mut all: Vec<MemberResult> = errors.into_iter().filter_map(own).collect();
        // If there are more or fewer results than jobs, here too, so that it is found out whose fault that is.
        all.extend(ran.map(written));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_protocol::nouns::MediaType;

    fn members(inputs: &[&'static str]) -> Vec<Member> {
        let member = |(job, input): (u64, &&'static str)| Member {
            job,
            attempt: 1,
            input: Input { bytes: input.as_bytes().into(), media_type: MediaType::JSON },
            metadata: Metadata::default(),
        };
        (1..).zip(inputs).map(member).collect()
    }

    fn text(result: &MemberResult) -> String {
        match result {
            Ok(output) => String::from_utf8(output.bytes.to_vec()).unwrap(),
            Err(error) => format!("{:?}: {error}", error.kind()),
        }
    }

    #[test]
    fn only_the_jobs_that_panic_fail_and_each_is_found_by_halves() {
        let mut calls = Vec::new();
        let mut halve = with_json(|numbers: Vec<u32>| {
            calls.push(numbers.len());
            assert!(!numbers.contains(&13), "unlucky");
            numbers
                .into_iter()
                .map(|number| if number < 100 { Ok(number / 2) } else { Err("large") })
                .collect()
        });
        let found = results(&mut halve, &members(&["2", "4", "13", "x", "8", "100", "12", "14"]));
        let found: Vec<String> = found.iter().map(text).collect();
        assert!(found[2].starts_with("Panic: unlucky at "), "{}", found[2]);
        assert!(found[3].starts_with("Deliberate: the input is not what this task takes"), "{}", found[3]);
        assert_eq!([&found[..2], &found[4..]].concat(), ["1", "2", "4", "Deliberate: large", "6", "7"]);
        drop(halve);
        assert_eq!(calls, [7, 3, 2, 1, 1, 4], "the job that does not fit takes part in none");
    }

    #[test]
    fn who_returns_another_number_of_results_is_found_like_who_panics() {
        let mut only_even = |jobs: &[Member]| {
            let evens = jobs.iter().filter(|job| job.input.bytes.last().is_some_and(|last| last % 2 == 0));
            evens.map(|job| Ok(Output::bytes(job.input.bytes.clone()))).collect()
        };
        let found: Vec<String> =
            results(&mut only_even, &members(&["2", "3", "4"])).iter().map(text).collect();
        assert_eq!(found, ["2", "AppError: the task returned 0 results for one job", "4"]);
        let mut none = with_json(|_: Vec<u32>| Vec::<Result<u32, TaskError>>::new());
        assert_eq!(
            text(&results(&mut none, &members(&["2"]))[0]),
            "AppError: the task returned 0 results for one job"
        );
        let mut twice =
            with_json(|numbers: Vec<u32>| numbers.repeat(2).into_iter().map(Ok::<u32, TaskError>).collect());
        let found: Vec<String> = results(&mut twice, &members(&["2", "x"])).iter().map(text).collect();
        assert_eq!(found[0], "AppError: the task returned 2 results for one job");
        assert!(found[1].starts_with("Deliberate: the input is not what this task takes"), "{}", found[1]);
    }

    #[test]
    fn a_batch_of_which_no_input_fits_does_not_call_the_function() {
        let mut never = with_json(|_: Vec<u32>| -> Vec<Result<u32, TaskError>> { unreachable!() });
        let found = results(&mut never, &members(&["x", "y"]));
        assert!(found.iter().all(|result| text(result).contains("line 1 column 1")), "{found:?}");
    }
}
