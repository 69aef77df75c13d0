//! What is said of the tasks of an application, which says nothing of itself.

use crate::task::{Output, Task, TaskError};
use crate::{Input, MediaType, TaskContext};
use offload_protocol::limits::TASKS_OFFERED_MAX;
use offload_protocol::nouns::{TASK_NAMES, is_task_name};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

const IDEMPOTENT: &str = "idempotent";
const PRODUCES: &str = "produces";

/// One task, written `NAME`, `NAME:idempotent` or `NAME:produces=TYPE`, or with both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTask {
    name: String,
    idempotent: bool,
    /// What its outputs are, which readers of a stream want to know before the first one comes.
    produces: Option<MediaType>,
}

impl HttpTask {
    /// Its name, which is also the path of its requests.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The task that the worker offers.
    pub(super) fn offered<F>(self, run: F) -> Task
    where
        F: FnMut(Input, &mut TaskContext<'_>) -> Result<Output, TaskError> + 'static,
    {
        let about = format!("POST /{}", self.name);
        let mut task = Task::raw(self.name, run).description(about);
        if self.idempotent {
            task = task.idempotent();
        }
        match self.produces {
            Some(media_type) => task.produces(media_type),
            None => task,
        }
    }
}

impl FromStr for HttpTask {
    type Err = String;

    fn from_str(text: &str) -> Result<HttpTask, String> {
        let mut words = text.split(':');
        let name = words.next().unwrap_or_default().to_owned();
        if !is_task_name(&name) {
            return Err(format!("{name:?} cannot name a task: {TASK_NAMES}"));
        }
        let mut task = HttpTask { name, idempotent: false, produces: None };
        for word in words {
            match word.split_once('=') {
                None if word == IDEMPOTENT => task.idempotent = true,
                Some((PRODUCES, media_type)) => {
                    let parsed = media_type.parse().map_err(|error| format!("{media_type:?}: {error}"))?;
                    task.produces = Some(parsed);
                }
                _ => {
                    return Err(format!(
                        "{word:?} says nothing of task {:?}: `{IDEMPOTENT}` or `{PRODUCES}=TYPE` may stand there",
                        task.name
                    ));
                }
            }
        }
        Ok(task)
    }
}

impl fmt::Display for HttpTask {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)?;
        if self.idempotent {
            write!(formatter, ":{IDEMPOTENT}")?;
        }
        match &self.produces {
            Some(media_type) => write!(formatter, ":{PRODUCES}={media_type}"),
            None => Ok(()),
        }
    }
}

/// Whether one application can have these tasks.
///
/// # Errors
/// A sentence for the person who named them: there are none, too many, or two of one name.
pub fn check_tasks(tasks: &[HttpTask]) -> Result<(), String> {
    let names: BTreeSet<&str> = tasks.iter().map(HttpTask::name).collect();
    match tasks.len() {
        0 => Err("an application needs at least one task".to_owned()),
        count if count > TASKS_OFFERED_MAX => {
            Err(format!("{count} tasks, an application may have {TASKS_OFFERED_MAX}"))
        }
        count if count > names.len() => Err("two tasks have the same name".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_written_as_it_is_read() {
        for text in ["a", "a.b:idempotent", "a:produces=text/event-stream", "a:idempotent:produces=image/png"]
        {
            assert_eq!(text.parse::<HttpTask>().unwrap().to_string(), text);
        }
        for (text, wrong) in
            [("", "cannot name"), ("/a", "cannot name"), ("a:often", "often"), ("a:produces=", "\"\"")]
        {
            assert!(text.parse::<HttpTask>().unwrap_err().contains(wrong), "{text}");
        }
    }

    #[test]
    fn an_application_has_tasks_of_different_names() {
        let checked = |texts: &[&str]| {
            check_tasks(&texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<HttpTask>>())
        };
        assert_eq!(checked(&["a", "b"]), Ok(()));
        assert!(checked(&[]).is_err() && checked(&["a", "a:idempotent"]).is_err());
    }
}
