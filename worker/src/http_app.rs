//! Tasks of an HTTP application, which needs no code of the protocol. Only with the feature `http-app`.
//!
//! ```text
//!   supervisor ═══ this worker, an adapter      a job ──► POST /TASK, the only request at this time ──► application
//!                    │ starts it once, and      an answer ◄── status, media type, body as it comes ◄──┘
//!                    │ ends as it ends
//! ```
//!
//! The command of the application has `{socket}`, which becomes the path of a Unix socket, or `{port}`, a free port of 127.0.0.1. The
//! adapter says Hello once something answers there, whatever its status.
//!
//! | a request has | which is |
//! |---|---|
//! | `POST /TASK` | the name of the task |
//! | `Content-Type` | what the client said of its input; an input of which it said nothing, and that is JSON, is `application/json` |
//! | `Offload-Job`, `Offload-Attempt` | the supervisor's number for the job, and which attempt this is |
//! | `Offload-Remaining-Ms` | the time that is left, if it is limited |
//! | `traceparent`, `tracestate` | as in the metadata of the job; other keys are in `Offload-Meta-KEY` |
//!
//! | the application | its job |
//! |---|---|
//! | answers 2xx | `ok`, with the body and its media type |
//! | answers 4xx | `app_error` with the body as message |
//! | answers 5xx or 3xx | `app_error` with the status and the body, or the place to which it is sent |
//! | sends what is no answer, or a head of more than [`HTTP_APP_HEAD_MAX`](crate::limits::HTTP_APP_HEAD_MAX) bytes | `app_error` that says so |
//! | takes no connection for the job, or ends before it has accepted that | is killed; the job has not begun |
//! | ends, or closes the connection, before it has answered a byte or read the whole request | is killed; nobody knows whether the job has begun, so nobody is blamed |
//! | ends otherwise before its answer is complete | the adapter ends as it did, so `worker_crashed` |
//! | closes the connection otherwise before its answer is complete, and goes on | is killed, and the adapter ends: `worker_crashed` |
//!
//! **Nothing is sent before the connection is accepted**: so a job that waits in the backlog of an application, while that ends because
//! of the job before, was not begun.
//!
//! **Each request has a connection of its own.** So an application that answers twice, or late, cannot give its answer to another
//! job, and it never happens that a request has to be sent again because a connection was closed meanwhile.
//!
//! An answer that says that it is short is passed on as a whole, any other in parts, as they come. Standard output and standard error
//! of the application are the log of the worker. When there are no more jobs, it is asked to end (SIGTERM). If the adapter is killed,
//! the kernel kills the application.

mod answer;
mod application;
mod backlog;
mod exchange;
mod folder;
mod outcome;
mod place;
mod request;
mod task;

pub use crate::foreign::Refuse;
pub use place::check_command;
pub use task::{HttpTask, check_tasks};

use crate::process;
use crate::task::Task;
use crate::worker::{self, Worker};
use application::{Application, Watched};
use std::cell::RefCell;
use std::ffi::OsString;
use std::process::ExitCode;
use std::rc::Rc;

/// Serves the tasks of this application to the supervisor that started this process, as [`Worker::serve`] does. The first word of
/// `command` is the path of the program. `refuse` says why it could not be started.
///
/// # Panics
/// If [`check_tasks`] finds something wrong with the tasks.
pub fn serve(command: &[OsString], tasks: Vec<HttpTask>, refuse: Refuse) -> ExitCode {
    let stream = match process::enter() {
        Ok(stream) => stream,
        Err(error) => return worker::complain(&error, error.exit_code()),
    };
    let mut application = match Application::start(command, &stream) {
        Ok(application) => application,
        Err(error) => return refuse(command, &error),
    };
    application.wait_until_it_answers();
    let application = Rc::new(RefCell::new(application));
    let watched = match Watched::new(&application) {
        Ok(watched) => watched,
        Err(error) => return refuse(command, &error),
    };
    let worker = tasks
        .into_iter()
        .map(|task| offered(task, Rc::clone(&application)))
        .fold(Worker::new(), Worker::with);
    let served = worker.serve_while(stream, Some(Box::new(watched)));
    application.borrow_mut().finish();
    served
}

fn offered(task: HttpTask, application: Rc<RefCell<Application>>) -> Task {
    let name = task.name().to_owned();
    task.offered(move |input, context| outcome::run(&mut application.borrow_mut(), &name, &input, context))
}
