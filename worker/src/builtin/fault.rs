//! `fault` misbehaves on request, to show how the supervisor reacts: `{"act": "segv", "on_attempt": 1}`. With `on_attempt`
//! it does so only in that attempt, and otherwise returns `ok`.

use super::whole::{whole, whole_or_null};
use crate::context::TaskContext;
use crate::task::{Output, Task, TaskError};
use nix::sys::signal::{Signal, raise};
use serde::Deserialize;
use std::hint::black_box;
use std::process;
use std::time::Duration;

/// What one `leak` keeps, in bytes.
const LEAK: usize = 16 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Fault {
    act: Act,
    #[serde(default, deserialize_with = "whole_or_null")]
    on_attempt: Option<u32>,
    /// The exit code of `exit`; 0 unless said.
    #[serde(default, deserialize_with = "whole")]
    code: u8,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Act {
    /// Panics: the worker survives.
    Panic,
    /// Aborts: SIGABRT.
    Abort,
    /// Dies as from a bad pointer: SIGSEGV.
    Segv,
    /// Exits as if all were well.
    Exit,
    /// Dies at once: SIGKILL.
    Kill,
    /// Never returns.
    Hang,
    /// Returns, and keeps 16 MiB more each time.
    Leak,
    /// Calls itself until the stack is used up: SIGABRT, by the runtime's guard.
    Stack,
    /// Sends bytes that are no frame, then never returns.
    Garbage,
    /// Closes the socket, then never returns.
    Close,
}

pub(super) fn task() -> Task {
    let mut leaked = Vec::new();
    Task::raw("fault", move |input, context| {
        let fault: Fault = input.json()?;
        if fault.on_attempt.is_none_or(|attempt| attempt == context.attempt()) {
            misbehave(&fault, &mut leaked, context)?;
        }
        Ok(Output::text("ok"))
    })
}

fn misbehave(
    fault: &Fault,
    leaked: &mut Vec<Vec<u8>>,
    context: &mut TaskContext<'_>,
) -> Result<(), TaskError> {
    match fault.act {
        Act::Panic => panic!("as told"),
        Act::Abort => process::abort(),
        Act::Segv => die_of(Signal::SIGSEGV),
        Act::Exit => process::exit(fault.code.into()),
        Act::Kill => die_of(Signal::SIGKILL),
        Act::Hang => hang(),
        // Not zeroes: those would take no memory until they are touched.
        Act::Leak => leaked.push(vec![1; LEAK]),
        Act::Stack => _ = use_up_the_stack(0),
        Act::Garbage => {
            context.send_garbage(&[0xff; 64])?;
            hang();
        }
        Act::Close => {
            context.close_link()?;
            hang();
        }
    }
    Ok(())
}

/// Once is not enough for SIGSEGV: the runtime's handler, which looks for stack overflows, takes the first, finds that
/// it is none, and puts the default action back for the next.
fn die_of(signal: Signal) -> ! {
    loop {
        let _ = raise(signal);
    }
}

fn hang() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

#[expect(unconditional_recursion, reason = "that is the fault")]
fn use_up_the_stack(depth: u64) -> u64 {
    // Something to do after the call and something on the stack, or the compiler makes a loop of it.
    let frame = black_box([depth; 64]);
    use_up_the_stack(depth + 1) + black_box(frame)[0]
}

/// What ends the process or the session is tested where there is a process: in `process.rs`.
#[cfg(test)]
mod tests {
    use crate::builtin;
    use crate::test_supervisor::{Said, TestSupervisor, answer, answer_text};
    use crate::worker::Worker;
    use offload_protocol::messages::ToWorker;
    use offload_protocol::nouns::{FailureKind, MediaType, Metadata};

    #[test]
    fn a_fault_for_another_attempt_is_not_committed() {
        assert_eq!(answer_text("fault", r#"{"act":"kill","on_attempt":2}"#).as_deref(), Ok("ok"));
    }

    #[test]
    fn a_fault_for_this_attempt_is_committed() {
        let (mut supervisor, _serving) = TestSupervisor::of(|| Worker::new().with(super::task()));
        let run = ToWorker::Run {
            job: 1,
            attempt: 2,
            task: "fault",
            media_type: MediaType::JSON,
            timeout_ms: 0,
            deadline_ms: 0,
            metadata: Metadata::default(),
        };
        supervisor.add(&run, r#"{"act":"panic","on_attempt":2}"#).send();
        assert_eq!(supervisor.hear(), Said::Started { job: 1, attempt: 2 });
        let Said::Failed { kind: FailureKind::Panic, message, .. } = supervisor.hear() else {
            panic!("no panic")
        };
        assert!(message.starts_with("as told at "), "{message}");
    }

    #[test]
    fn a_leak_answers() {
        assert_eq!(answer_text("fault", r#"{"act":"leak"}"#).as_deref(), Ok("ok"));
    }

    #[test]
    fn an_unknown_act_is_answered_with_the_known_ones() {
        let error = answer("fault", r#"{"act":"sulk"}"#).unwrap_err();
        assert!(error.contains("unknown variant `sulk`") && error.contains("`garbage`"), "{error}");
    }

    #[test]
    fn faults_are_offered_only_where_they_are_allowed() {
        let names =
            |faults| builtin::tasks(faults).iter().map(|task| task.name().to_owned()).collect::<Vec<_>>();
        assert!(!names(false).contains(&"fault".to_owned()));
        assert!(names(true).contains(&"fault".to_owned()));
    }
}
