//! The error of a task. It knows whether its message was written for callers.

use offload_protocol::nouns::FailureKind;
use std::any::Any;
use std::borrow::Cow;
use std::fmt;

/// Why a task failed. The job ends with the outcome `app_error` and this message.
///
/// [`TaskError::new`] takes anything that can be printed: the message is meant for whoever called the task, and everybody is told it.
/// Every [`std::error::Error`] converts into it, too, so `?` works. What such an error says nobody has written for callers, and it may
/// name a path: callers over a route that needs no token are told only that the task has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskError {
    message: String,
    kind: FailureKind,
}

impl TaskError {
    /// An error with this message, for whoever called the task. It is cut to [`offload_protocol::limits::MESSAGE_MAX`] bytes when it is
    /// sent.
    pub fn new(message: impl fmt::Display) -> TaskError {
        TaskError { message: message.to_string(), kind: FailureKind::Deliberate }
    }

    /// An error of another kind than that the task says so itself.
    pub(crate) fn of_kind(kind: FailureKind, message: impl fmt::Display) -> TaskError {
        TaskError { message: message.to_string(), kind }
    }

    /// An error that was met, and that nobody wrote for callers.
    pub(crate) fn met(message: impl fmt::Display) -> TaskError {
        TaskError::of_kind(FailureKind::AppError, message)
    }

    /// What a function returned whose errors may be anything that can be printed. A text was written for callers; of another type nobody
    /// knows that, as for a conversion by `?`.
    pub(crate) fn returned<E: fmt::Display + 'static>(error: E) -> TaskError {
        let any: &dyn Any = &error;
        match any.downcast_ref::<TaskError>() {
            Some(own) => own.clone(),
            None if any.is::<String>() || any.is::<&'static str>() || any.is::<Cow<'static, str>>() => {
                TaskError::new(error)
            }
            None => TaskError::met(error),
        }
    }

    /// How the task failed.
    pub(crate) fn kind(&self) -> FailureKind {
        self.kind
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

// `TaskError` itself is no `std::error::Error`: that is what makes this conversion possible.
impl<E: std::error::Error> From<E> for TaskError {
    fn from(error: E) -> TaskError {
        TaskError::met(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_text_or_an_error_of_ones_own_is_for_callers_and_what_was_met_is_not() {
        fn fails() -> Result<(), TaskError> {
            Err(io::Error::other("no /srv/private"))?;
            Ok(())
        }
        let kind = |error: TaskError| error.kind();
        assert_eq!(kind(TaskError::new("no such album")), FailureKind::Deliberate);
        assert_eq!(kind(fails().unwrap_err()), FailureKind::AppError);

        assert_eq!(kind(TaskError::returned("a text")), FailureKind::Deliberate);
        assert_eq!(kind(TaskError::returned("a text".to_owned())), FailureKind::Deliberate);
        assert_eq!(kind(TaskError::returned(Cow::Borrowed("a text"))), FailureKind::Deliberate);
        assert_eq!(TaskError::returned(TaskError::new("own")), TaskError::new("own"));
        assert_eq!(kind(TaskError::returned(fails().unwrap_err())), FailureKind::AppError);
        assert_eq!(TaskError::returned(io::Error::other("oh")), TaskError::met("oh"));
    }
}
