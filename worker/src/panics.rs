//! Turns a panic of a task into a message that names its place. Only the panic hook knows the place. So the hook stores it
//! for the thread that panics.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static PLACE: Cell<Option<String>> = const { Cell::new(None) };
}

/// Runs `task`; if it panics, returns `message at file:line`.
///
/// State that `task` was changing may be left half changed. The caller makes sure that this is only the task's own state.
pub(crate) fn caught<T>(task: impl FnOnce() -> T) -> Result<T, String> {
    note_places();
    PLACE.take();
    panic::catch_unwind(AssertUnwindSafe(task)).map_err(|payload| {
        let message = message_of(payload.as_ref());
        let told = match PLACE.take() {
            Some(place) => format!("{message} at {place}"),
            None => message.to_owned(),
        };
        // What the task has thrown may panic once more when it is dropped.
        if let Err(another) = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(another);
        }
        told
    })
}

/// The hook that was set before still runs, so the usual report appears on standard error as well.
fn note_places() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |report| {
            PLACE.set(report.location().map(|place| format!("{}:{}", place.file(), place.line())));
            previous(report);
        }));
    });
}

fn message_of(payload: &(dyn Any + Send)) -> &str {
    if let Some(message) = payload.downcast_ref::<&str>() {
        return message;
    }
    payload.downcast_ref::<String>().map_or("a panic without a message", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_with_its_place() {
        let line = line!() + 1;
        let told = caught(|| panic!("number {}", 7)).unwrap_err();
        assert_eq!(told, format!("number 7 at {}:{line}", file!()));
    }

    #[test]
    fn a_panic_without_a_message_is_told_all_the_same() {
        let told = caught(|| panic::panic_any(7)).unwrap_err();
        assert!(told.starts_with("a panic without a message at "), "{told}");
    }

    #[test]
    fn what_was_thrown_may_panic_when_it_is_dropped() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("once more");
            }
        }
        let told = caught(|| panic::panic_any(Bomb)).unwrap_err();
        assert!(told.starts_with("a panic without a message at "), "{told}");
    }

    #[test]
    fn the_result_of_a_task_that_does_not_panic_is_passed_through() {
        assert_eq!(caught(|| 7), Ok(7));
    }
}
