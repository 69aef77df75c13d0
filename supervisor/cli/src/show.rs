//! Shared by the verbs that ask the supervisor for a document. They print it unchanged (`--json`) or as text for
//! people. A list arrives in pages and is printed as a whole.

use super::failure::{Failure, OK, VerbResult};
use super::flags::{Globals, NAMELESS};
use super::output::{print, print_line};
use crate::limits::ANSWER_TIMEOUT;
use offload_protocol::messages::{ToSupervisor, View};
use offload_supervisor::views::JsonPage;
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
    let document = globals.connect(NAMELESS)?.ask(request, Some(ANSWER_TIMEOUT))?;
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
    view: View,
    most: usize,
    name: impl Fn(&T) -> String,
    render: impl FnOnce(&Vec<T>) -> String,
) -> VerbResult {
    let mut client = globals.connect(NAMELESS)?;
    let mut list = List { rows: Vec::new(), documents: Vec::new(), seen: BTreeSet::new() };
    let mut after = Some(String::new());
    while let Some(place) = after.filter(|_| list.rows.len() < most) {
        let limit = u32::try_from(most - list.rows.len()).unwrap_or(u32::MAX);
        let request = ToSupervisor::Page { ticket: 1, view, after: &place, limit };
        let document = client.ask(&request, Some(ANSWER_TIMEOUT))?;
        let page: JsonPage = serde_json::from_slice(&document).map_err(unknown)?;
        page.rows.into_iter().try_for_each(|row| list.add(row, &name))?;
        after = page.next;
    }
    if globals.json {
        print_line(format!("[{}]", list.documents.join(",")))?;
        return Ok(OK);
    }
    print(render(&list.rows).as_bytes())?;
    Ok(OK)
}

struct List<T> {
    rows: Vec<T>,
    /// The same rows, unchanged.
    documents: Vec<String>,
    seen: BTreeSet<String>,
}

impl<T: DeserializeOwned> List<T> {
    fn add(&mut self, document: Box<RawValue>, name: impl Fn(&T) -> String) -> Result<(), Failure> {
        let row = serde_json::from_str(document.get()).map_err(unknown)?;
        if self.seen.insert(name(&row)) {
            self.rows.push(row);
            self.documents.push(String::from(Box::<str>::from(document)));
        }
        Ok(())
    }
}

fn unknown(error: serde_json::Error) -> Failure {
    Failure::internal("the supervisor's answer is of another form; try --json", error)
}
