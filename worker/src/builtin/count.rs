//! `count` sends the numbers from 1 to n in parts, a line each: for trying out what it is to read a stream.

use super::whole::Whole;
use crate::context::TaskContext;
use crate::limits::{COUNT_TO_MAX, TIME_MS_MAX};
use crate::task::{Output, Task, TaskError};
use serde::Deserialize;
use std::fmt::Write;
use std::time::Duration;

/// Lines are sent when there are so many bytes of them, unless each is to be waited for.
const LINES_AT_ONCE: usize = 32 << 10;

pub(super) fn task() -> Task {
    Task::raw("count", |input, context| count(input.json()?, context)).streams()
}

#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Request {
    To(Whole),
    Slowly { to: Whole, every_ms: Whole },
}

fn count(request: Request, context: &mut TaskContext<'_>) -> Result<Output, TaskError> {
    let (to, every_ms) = match request {
        Request::To(Whole(to)) => (to, 0),
        Request::Slowly { to: Whole(to), every_ms: Whole(every_ms) } => (to, every_ms),
    };
    if to > COUNT_TO_MAX {
        return Err(TaskError::new(format_args!("{to} is too large, the largest is {COUNT_TO_MAX}")));
    }
    if every_ms > TIME_MS_MAX {
        return Err(TaskError::new(format_args!(
            "{every_ms} ms is too long, at most {TIME_MS_MAX} are taken"
        )));
    }
    let mut lines = String::new();
    for number in 1..=to {
        writeln!(lines, "{number}")?;
        if every_ms > 0 || lines.len() >= LINES_AT_ONCE {
            context.send_part(std::mem::take(&mut lines))?;
            std::thread::sleep(Duration::from_millis(every_ms));
        }
    }
    Ok(Output::text(lines))
}

#[cfg(test)]
mod tests {
    use crate::test_supervisor::answer_text;

    #[test]
    fn the_lines_are_whole_whether_they_come_in_parts_or_not() {
        assert_eq!(answer_text("count", "3"), Ok("1\n2\n3\n".to_owned()));
        assert_eq!(answer_text("count", r#"{"to":2,"every_ms":1}"#), Ok("1\n2\n".to_owned()));
        let many = answer_text("count", "20000").unwrap();
        assert!(many.lines().map(|line| line.parse::<u32>().unwrap()).eq(1..=20000));
    }

    #[test]
    fn what_would_take_too_long_is_refused() {
        assert!(answer_text("count", "10000000001").unwrap_err().contains("the largest is 10000000000"));
        assert!(answer_text("count", r#"{"to":1,"every_ms":3600001}"#).unwrap_err().contains("too long"));
    }
}
