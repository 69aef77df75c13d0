//! Tasks that are programs: each job starts a program of its own, which knows nothing of `offload`. Standard input is the
//! input, standard output the output. Only with the feature `exec`.
//!
//! ```text
//!   supervisor ═══ this worker, an adapter, which lives on
//!                    │  starts one fresh process for each job
//!                    ├── input ─────► standard input
//!                    ├── output ◄──── standard output, at most as long as an output may be
//!                    └── log ◄─────── standard error, whose last lines are part of the message if it fails
//! ```
//!
//! If the command has a place for the input (`{}`, `template.rs`), the input is there, and standard input is empty.
//!
//! An adapter has one thread, which waits for all of these at once (`running.rs`), so no program can hold it up: one that
//! reads nothing, one that closes its output and goes on, one that leaves its output open behind itself.
//!
//! | the program | its job |
//! |---|---|
//! | exits with 0, or another code that stands for success | `ok`, with what it printed |
//! | exits with another code | `app_error` with the code and the last lines of standard error |
//! | is ended by a signal | `app_error` with the signal |
//! | prints more than an output may have | is ended, `app_error` |
//! | cannot be started | `app_error` that says why |
//! | runs longer, or uses more memory, than its task allows | is ended, `timeout` or `worker_oom` |
//!
//! **Nothing that a program has started outlives its job** (`worker/src/strays.rs`). An adapter is the reaper of all that descends from
//! it, so it sees also what has left its group, its session or its parent.

mod lines;
mod memory;
mod program;
mod running;
mod template;

pub use program::ExecTask;
pub use template::has_place_for_input;

use crate::strays;
use crate::task::{Output, Task, TaskError};
use crate::usage;
use crate::worker::Worker;
use crate::{Bytes, Input, TaskContext};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use running::{End, Requests, Running};
use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

/// Says why a file was not executed, in words for people.
pub type Explain = fn(&Path, &io::Error) -> String;

/// Serves tasks that are programs to the supervisor that started this process, as [`Worker::serve`] does. `explain` says why a
/// program could not be started.
pub fn serve(tasks: Vec<ExecTask>, explain: Explain) -> ExitCode {
    let requests = match Requests::catch() {
        Ok(requests) => Rc::new(RefCell::new(requests)),
        Err(error) => {
            crate::task::complain(format_args!("cannot prepare for programs: {error}"));
            return ExitCode::from(crate::process::EXIT_BROKEN);
        }
    };
    let task = |spec: ExecTask| task(spec, Rc::clone(&requests), explain);
    tasks.into_iter().map(task).fold(Worker::new(), Worker::with).serve()
}

fn task(spec: ExecTask, requests: Rc<RefCell<Requests>>, explain: Explain) -> Task {
    let offered = spec.clone();
    offered.offered(move |input, context| {
        end_programs_with_the_supervisor()?;
        run(&spec, input, context, &mut requests.borrow_mut(), explain)
    })
}

/// The signal at the end of the supervisor becomes one that can be caught, so that no program outlives this process.
fn end_programs_with_the_supervisor() -> nix::Result<()> {
    prctl::set_child_subreaper(true)?;
    prctl::set_pdeathsig(Signal::SIGTERM)
}

fn run(
    spec: &ExecTask,
    input: Input,
    context: &mut TaskContext<'_>,
    requests: &mut Requests,
    explain: Explain,
) -> Result<Output, TaskError> {
    requests.begin();
    let used_before = usage::of_programs();
    let ended = run_program(spec, input, context, requests, explain);
    context.add_program(used_before);
    requests.end();
    let End { output, failure } = ended?;
    failure.map_or_else(|| Ok(spec.output(output)), Err)
}

fn run_program(
    spec: &ExecTask,
    input: Input,
    context: &mut TaskContext<'_>,
    requests: &Requests,
    explain: Explain,
) -> Result<End, TaskError> {
    let arguments = spec.arguments(&input, context.job()).map_err(TaskError::new)?;
    let stdin = if spec.has_place_for_input() { Bytes::new() } else { input.bytes };
    let child = spec.start(&arguments, !stdin.is_empty()).map_err(|error| {
        let why = explain(&spec.program, &error);
        TaskError::met(format_args!("cannot start `{}`: {why}", spec.program.display()))
    })?;
    let ended = Running::new(spec, child, stdin, context.output_max());
    let ended = ended.and_then(|running| running.finish(context, requests));
    ended.map_err(|error| {
        // The system fails at what is simple. No program may be left.
        strays::end_all();
        TaskError::met(format_args!("cannot watch the program: {error}"))
    })
}
