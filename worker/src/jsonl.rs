//! Tasks of a program that reads and writes JSON Lines: it needs no code of the protocol, in any language. Only with the
//! feature `jsonl`.
//!
//! ```text
//!   supervisor ═══ this worker, an adapter      a job ──► descriptor 3 ═╗
//!                    │ starts it once, and                              program: one line in, one line out
//!                    │ ends as it ends          an answer ◄── descriptor 4 ═╝
//! ```
//!
//! | line | from | says |
//! |---|---|---|
//! | `{"hello":{"tasks":[{"name":"t","idempotent":true}]}}` | program | once: its tasks. Also `description`, `accepts` (a list), `produces`, `example`, `schema` |
//! | `{"job":"1","attempt":1,"task":"t","content_type":"application/json","input":...}` | adapter | a job; the next one comes after its answer |
//! | `{"job":"1","progress":[3,10]}` | program | 3 of 10 are done; any number of times, of which one in 100 ms is passed on |
//! | `{"job":"1","output":...}` | program | the result |
//! | `{"job":"1","error":"..."}` | program | it failed |
//!
//! **JSON is the rule.** A task takes and returns JSON unless it says otherwise, and an input of a task that takes JSON is read as JSON
//! whatever its client called it. With a `content_type`, `output` is a text of that type, or `output_base64` are its bytes. Other
//! inputs come as text in `input`, or as `input_base64` if they are no text.
//!
//! The variables `OFFLOAD_JSONL_IN` and `OFFLOAD_JSONL_OUT` name the descriptors. Standard output and standard error are the log of the
//! worker; standard input is empty. When there are no more jobs, descriptor 3 ends, and so should the program.
//!
//! **The adapter ends as its program did**, by the same signal or exit code, after all answers have been sent: so the supervisor reports
//! the program's crash as that of the worker. A program that breaks these rules is killed; the supervisor is told what it did, and the last
//! line of the log says it. If the adapter is killed, the kernel kills the program.

mod channel;
mod lines;
mod readable;

use crate::MediaType;
use crate::limits::JSONL_OVERHEAD_MAX;
use crate::process;
use crate::task::{Task, TaskError};
use crate::worker::{self, Worker};
use channel::{Channel, End, Sending, Watched};
use lines::{Answer, OfferedTask};
use std::cell::RefCell;
use std::ffi::OsString;
use std::process::ExitCode;
use std::rc::Rc;

pub use crate::foreign::Refuse;

/// Serves the tasks of this program to the supervisor that started this process, as [`Worker::serve`] does. The first word of
/// `command` is the path of the program. `refuse` says why it could not be started.
pub fn serve(command: &[OsString], refuse: Refuse) -> ExitCode {
    let stream = match process::enter() {
        Ok(stream) => stream,
        Err(error) => return worker::complain(&error, error.exit_code()),
    };
    let mut channel = match Channel::open(command, &stream, line_max()) {
        Ok(channel) => channel,
        Err(error) => return refuse(command, &error),
    };
    let tasks = match channel.next_line(&mut Sending::nothing()).map(|line| lines::hello(&line)) {
        Ok(Ok(tasks)) => tasks,
        Ok(Err(wrong)) => channel.end_broken(&wrong),
        Err(end) => channel.end_as(end),
    };
    let channel = Rc::new(RefCell::new(channel));
    let watched = match Watched::new(&channel) {
        Ok(watched) => watched,
        Err(error) => return refuse(command, &error),
    };
    let worker =
        tasks.iter().map(|task| offered(task, Rc::clone(&channel))).fold(Worker::new(), Worker::with);
    let served = worker.serve_while(stream, Some(Box::new(watched)));
    channel.borrow_mut().finish();
    served
}

/// The longest line: the largest payload as base64, or as text in which not too much has to be escaped.
fn line_max() -> usize {
    2 * worker::output_max() + JSONL_OVERHEAD_MAX
}

fn offered(offer: &OfferedTask, channel: Rc<RefCell<Channel>>) -> Task {
    let OfferedTask { name, accepts, produces, .. } = offer.clone();
    offer.task(move |input, context| {
        let (job, attempt) = (context.job().to_string(), context.attempt());
        let line = lines::job(&job, attempt, &name, input, &accepts).map_err(TaskError::new)?;
        let mut channel = channel.borrow_mut();
        let mut sending = Sending::new(&line, context.remaining());
        let outcome = loop {
            match next_answer(&mut channel, &job, &mut sending, &produces) {
                Ok(Answer::Progress(done, total)) => context.progress(done, total),
                Ok(Answer::OfAnother) => {}
                Ok(Answer::Finished(output)) => break Ok(output),
                Ok(Answer::Failed(why)) => break Err(TaskError::new(why)),
                Ok(Answer::Unreadable(why)) => break Err(TaskError::met(why)),
                Err((end, of_another)) => {
                    match &end {
                        _ if channel.has_not_begun(&sending) => {
                            channel.program().tell_not_begun((context.job(), attempt));
                        }
                        End::Broken(how) => channel.program().tell_broken(how, of_another),
                        End::Ended => {}
                    }
                    channel.end_as(end)
                }
            }
        };
        channel.answered(job);
        outcome
    })
}

/// The next line about this job. If there is none, why, and whether another job is the reason.
fn next_answer(
    channel: &mut Channel,
    job: &str,
    sending: &mut Sending<'_>,
    produces: &MediaType,
) -> Result<Answer, (End, bool)> {
    let line = channel.next_line(sending).map_err(|end| (end, false))?;
    match lines::answer(&line, job, produces) {
        Ok(Answer::Finished(_) | Answer::Failed(_) | Answer::Unreadable(_)) if !sending.is_done() => {
            Err((End::Broken("it answered a job before it had read it".to_owned()), false))
        }
        Ok(answer) => Ok(answer),
        Err(wrong) => Err((End::Broken(wrong), channel.is_of_the_last_job(&line))),
    }
}
