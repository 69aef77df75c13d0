//! Shared by the verbs that ask the supervisor for a document. They print it unchanged (`--json`) or as text for
//! people. A list arrives in pages and is printed as a whole.

use super::client::RequestClient;
use super::failure::{Failure, OK, VerbResult};
use super::flags::{Globals, NAMELESS};
use super::output::{print, print_line};
use crate::limits::ANSWER_TIMEOUT;
use bytes::Bytes;
use offload_protocol::messages::{ToSupervisor, View};
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::views::{JobView, JsonPage, OpenState};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::BTreeSet;

/// Asks the supervisor for `view`, and prints it with `render` as text for people.
pub(crate) fn show<T: DeserializeOwned>(
    globals: &Globals,
    view: View,
    render: impl FnOnce(&T) -> String,
) -> VerbResult {
    show_answer(globals, &ToSupervisor::Show { ticket: 1, view }, render)
}

/// Does the same for any request that is answered at once with a document.
pub(crate) fn show_answer<T: DeserializeOwned>(
    globals: &Globals,
    request: &ToSupervisor<'_>,
    render: impl FnOnce(&T) -> String,
) -> VerbResult {
    answer(&mut globals.connect(NAMELESS)?, globals, request, render)
}

/// The same over a connection that is open already.
pub(crate) fn answer<T: DeserializeOwned>(
    client: &mut RequestClient,
    globals: &Globals,
    request: &ToSupervisor<'_>,
    render: impl FnOnce(&T) -> String,
) -> VerbResult {
    let document = client.ask(request, Some(ANSWER_TIMEOUT))?;
    if globals.json {
        print_line(&document)?;
        return Ok(OK);
    }
    print(render(&serde_json::from_slice(&document).map_err(unknown)?).as_bytes())?;
    Ok(OK)
}

/// Asks the supervisor for the rows of a list, page by page, up to a maximum. `name` identifies a row: a row that moves
/// while the list is read may arrive twice, and is shown once.
pub(crate) fn show_list<T: DeserializeOwned>(
    globals: &Globals,
    (view, label): (View, &str),
    most: usize,
    name: impl Fn(&T) -> String,
    render: impl FnOnce(&Vec<T>) -> String,
) -> VerbResult {
    let list = fetch_list(&mut globals.connect(NAMELESS)?, (view, label), most, name)?;
    print(list.text(globals.json, render).as_bytes())?;
    Ok(OK)
}

/// The rows of a list, as [`show_list`] shows them. If `label` is not empty, of the jobs only those with this label.
pub(crate) fn fetch_list<T: DeserializeOwned>(
    client: &mut RequestClient,
    (view, label): (View, &str),
    most: usize,
    name: impl Fn(&T) -> String,
) -> Result<List<T>, Failure> {
    let page = |client: &mut RequestClient, after: &str, limit| {
        let request = ToSupervisor::Page { ticket: 1, view, after, limit, label };
        client.ask(&request, Some(ANSWER_TIMEOUT))
    };
    fetch_pages(client, page, most, name)
}

/// The rows of a list of which `page` asks for the rows after a place, at most so many.
pub(crate) fn fetch_pages<T: DeserializeOwned>(
    client: &mut RequestClient,
    page: impl Fn(&mut RequestClient, &str, u32) -> Result<Bytes, Failure>,
    most: usize,
    name: impl Fn(&T) -> String,
) -> Result<List<T>, Failure> {
    let mut list = List { rows: Vec::new(), documents: Vec::new(), seen: BTreeSet::new() };
    let mut after = Some(String::new());
    while let Some(place) = after.filter(|_| list.rows.len() < most) {
        let limit = u32::try_from(most - list.rows.len()).unwrap_or(u32::MAX);
        let document = page(client, &place, limit)?;
        let page: JsonPage = serde_json::from_slice(&document).map_err(unknown)?;
        page.rows.into_iter().try_for_each(|row| list.add(row, &name))?;
        after = page.next;
    }
    Ok(list)
}

/// The jobs with a label, in the order in which they were accepted.
///
/// # Errors
/// If the supervisor cannot be asked.
pub(crate) fn labelled_jobs(client: &mut RequestClient, label: &str) -> Result<Vec<JobView>, Failure> {
    let name = |job: &JobView| job.job.clone();
    let mut jobs = fetch_list(client, (View::Jobs, label), usize::MAX, name)?.rows;
    // Ids grow with time. The list has the jobs that have not ended first.
    jobs.sort_by_cached_key(name);
    Ok(jobs)
}

/// The failure if no job has this label, as if an id were unknown: a script with a wrong label is to notice.
pub(crate) fn no_such_label(label: &str) -> Failure {
    Failure::outcome(OutcomeCode::NoSuchJob, format!("no job with the label {label} is known"))
}

/// Whether a job waits or runs.
pub(crate) fn is_open(job: &JobView) -> bool {
    OpenState::of_word(&job.state).is_some()
}

/// The rows of a list.
pub(crate) struct List<T> {
    pub(crate) rows: Vec<T>,
    /// The same rows, unchanged.
    pub(crate) documents: Vec<String>,
    seen: BTreeSet<String>,
}

impl<T: DeserializeOwned> List<T> {
    /// The list as it is printed: as one JSON document in a line, or as `render` makes it.
    pub(crate) fn text(&self, json: bool, render: impl FnOnce(&Vec<T>) -> String) -> String {
        match json {
            true => format!("[{}]\n", self.documents.join(",")),
            false => render(&self.rows),
        }
    }

    fn add(&mut self, document: Box<RawValue>, name: impl Fn(&T) -> String) -> Result<(), Failure> {
        let row = serde_json::from_str(document.get()).map_err(unknown)?;
        if self.seen.insert(name(&row)) {
            self.rows.push(row);
            self.documents.push(String::from(Box::<str>::from(document)));
        }
        Ok(())
    }
}

/// The failure if an answer cannot be read.
pub(crate) fn unknown(error: serde_json::Error) -> Failure {
    Failure::internal("the supervisor's answer is of another form; try --json", error)
}
