//! What verbs that ask for a document have in common: it is printed as it came, or as text for people.

use super::client::ANSWER_TIMEOUT;
use super::failure::{Ended, Failure, OK};
use super::flags::{Globals, NAMELESS};
use super::output::{print, print_line};
use offload_protocol::messages::{ToSupervisor, View};
use serde::de::DeserializeOwned;

/// Asks the supervisor for `view`; `render` makes the text for people from it.
pub(crate) fn show<T: DeserializeOwned>(
    globals: &Globals,
    view: View,
    render: impl FnOnce(&T) -> String,
) -> Ended {
    show_answer(globals, &ToSupervisor::Show { ticket: 1, view }, render)
}

/// The same for any request that is answered at once with a document.
pub(crate) fn show_answer<T: DeserializeOwned>(
    globals: &Globals,
    request: &ToSupervisor<'_>,
    render: impl FnOnce(&T) -> String,
) -> Ended {
    let document = globals.connect(NAMELESS)?.ask(request, Some(ANSWER_TIMEOUT))?;
    if globals.json {
        print_line(&document)?;
        return Ok(OK);
    }
    let unknown = |error| Failure::internal("the supervisor's answer is of another form; try --json", error);
    print(render(&serde_json::from_slice(&document).map_err(unknown)?).as_bytes())?;
    Ok(OK)
}
