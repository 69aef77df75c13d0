//! Outputs in parts: a task may answer before it returns. Whoever asked for a stream reads the parts as they come; everybody
//! else gets one answer, of all parts and what the task returns behind them.
//!
//! ```text
//!   send_part ---> no credit left? wait for some, or for a Cancel ---> Part, at most PART_MAX bytes ---> more of it?
//!       '--------> the supervisor takes no parts: they are kept here, and the answer begins with them
//! ```

use crate::task::Output;
use bytes::Bytes;
use std::fmt;

/// Why a part was not sent. A task usually returns it as its own error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartError {
    /// Nobody wants the output any more: the job was cancelled, or the supervisor is gone.
    Cancelled,
    /// A task that works in steps sends no parts.
    InSteps,
    /// This supervisor takes an output only as a whole, and with this part it would be longer than this many bytes, which is
    /// the most that the supervisor takes.
    TooLong {
        /// The longest output, in bytes.
        max: usize,
    },
}

impl fmt::Display for PartError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartError::Cancelled => formatter.write_str("cancelled"),
            PartError::InSteps => formatter.write_str("a task in steps cannot send its output in parts"),
            PartError::TooLong { max } => {
                write!(formatter, "the output has more than {max} bytes, which is the most that can be sent")
            }
        }
    }
}

impl std::error::Error for PartError {}

/// Where the parts of one attempt go.
#[derive(Debug)]
pub(crate) enum Parts {
    /// To the supervisor, at once.
    Sent,
    /// Here: the supervisor takes the output as a whole only.
    Kept(Vec<u8>),
    /// The task works in steps and has none.
    None,
}

impl Parts {
    /// Keeps a part, if the output stays within `max` bytes.
    pub(crate) fn keep(kept: &mut Vec<u8>, part: &[u8], max: usize) -> Result<(), PartError> {
        if kept.len() + part.len() > max {
            return Err(PartError::TooLong { max });
        }
        kept.extend_from_slice(part);
        Ok(())
    }

    /// The output behind the parts that were kept here.
    pub(crate) fn complete(&mut self, output: Output) -> Output {
        match self {
            Parts::Kept(kept) if !kept.is_empty() => {
                let mut whole = std::mem::take(kept);
                whole.extend_from_slice(&output.bytes);
                Output { bytes: Bytes::from(whole), ..output }
            }
            _ => output,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::TaskContext;
    use crate::stepped::Stepped;
    use crate::task::{Task, TaskError};
    use crate::test_supervisor::{Said, Serving, TestSupervisor};
    use crate::worker::Worker;
    use offload_protocol::limits::{PART_MAX, PARTS_CREDIT};
    use offload_protocol::messages::{PARTS, ToWorker, VERSION_MAJOR};
    use offload_protocol::nouns::FailureKind;
    use std::ops::ControlFlow;

    struct Still;

    impl Stepped for Still {
        type Output = ();

        fn step(&mut self) -> ControlFlow<Result<(), TaskError>> {
            ControlFlow::Break(Ok(()))
        }
    }

    /// A supervisor with these capabilities, and a worker whose task `send` sends as many bytes as its input says, as one part,
    /// and then returns `end`.
    fn sender(capabilities: u64) -> (TestSupervisor, Serving) {
        let (mut supervisor, serving) = TestSupervisor::of(|| {
            let send = |length: usize, context: &mut TaskContext<'_>| {
                context.send_part(vec![b'p'; length])?;
                Ok::<_, PartError>("end")
            };
            let step = |(): (), context: &mut TaskContext<'_>| context.send_part("x").map(|()| Still);
            Worker::new().json("send", send).with(Task::stepped("step", step))
        });
        let welcome =
            ToWorker::Welcome { major: VERSION_MAJOR, minor: 0, capabilities, payload_max: 1 << 20 };
        supervisor.add(&welcome, "");
        (supervisor, serving)
    }

    fn hear_part(supervisor: &mut TestSupervisor) -> usize {
        match supervisor.hear() {
            Said::Part { job: 1, part } => part.len(),
            other => panic!("not a part: {other:?}"),
        }
    }

    #[test]
    fn a_long_part_is_sent_in_pieces_as_far_as_there_is_credit() {
        let (mut supervisor, serving) = sender(PARTS);
        let length = PARTS_CREDIT as usize + PART_MAX + 10;
        supervisor.add_run(1, "send", length.to_string()).send();
        assert_eq!(supervisor.hear(), Said::Started { job: 1, attempt: 1 });
        for _ in 0..PARTS_CREDIT as usize / PART_MAX {
            assert_eq!(hear_part(&mut supervisor), PART_MAX);
        }
        supervisor
            .add(&ToWorker::Credit { job: 2, bytes: 99 }, "")
            .add(&ToWorker::Credit { job: 1, bytes: 5 }, "");
        supervisor.send();
        assert_eq!(hear_part(&mut supervisor), 5);
        supervisor.add(&ToWorker::Credit { job: 1, bytes: 1 << 40 }, "").send();
        assert_eq!((hear_part(&mut supervisor), hear_part(&mut supervisor)), (PART_MAX, 5));
        assert!(matches!(supervisor.hear(), Said::Finished { output, .. } if output == b"\"end\""));
        drop(supervisor);
        serving.end().unwrap();
    }

    #[test]
    fn a_cancel_or_the_end_of_the_supervisor_ends_the_wait_for_credit() {
        let (mut supervisor, serving) = sender(PARTS);
        supervisor.add_run(1, "send", "1000000").send();
        assert_eq!(supervisor.hear(), Said::Started { job: 1, attempt: 1 });
        (0..4).for_each(|_| assert_eq!(hear_part(&mut supervisor), PART_MAX));
        supervisor.add(&ToWorker::Cancel { job: 1 }, "").send();
        let cancelled =
            Said::Failed { job: 1, attempt: 1, kind: FailureKind::AppError, message: "cancelled".to_owned() };
        assert_eq!(supervisor.hear(), cancelled);
        supervisor.add_run(1, "send", "1000000").send();
        assert_eq!(supervisor.hear(), Said::Started { job: 1, attempt: 1 });
        (0..4).for_each(|_| assert_eq!(hear_part(&mut supervisor), PART_MAX));
        drop(supervisor);
        serving.end().unwrap();
    }

    #[test]
    fn a_supervisor_without_that_capability_gets_one_answer() {
        let (mut supervisor, serving) = sender(0);
        supervisor.add_run(1, "send", "3").add_run(2, "send", "1048577").send();
        assert_eq!(supervisor.hear(), Said::Started { job: 1, attempt: 1 });
        assert!(matches!(supervisor.hear(), Said::Finished { output, .. } if output == b"ppp\"end\""));
        assert_eq!(supervisor.hear(), Said::Started { job: 2, attempt: 1 });
        assert!(
            matches!(supervisor.hear(), Said::Failed { message, .. } if message.contains("1048576 bytes"))
        );
        drop(supervisor);
        serving.end().unwrap();
    }

    #[test]
    fn a_task_in_steps_sends_no_parts() {
        let (mut supervisor, serving) = sender(PARTS);
        supervisor.add_run(1, "step", "null").send();
        assert_eq!(supervisor.hear(), Said::Started { job: 1, attempt: 1 });
        assert!(matches!(supervisor.hear(), Said::Failed { message, .. } if message.contains("in steps")));
        drop(supervisor);
        serving.end().unwrap();
    }
}
