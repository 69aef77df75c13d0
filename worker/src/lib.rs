//! The SDK for writing workers for `offload` in Rust. With the feature `builtin` it also has the tasks that come with
//! `offload`.
//!
//! A worker is a program that runs one job after another. The supervisor starts as many processes of it as it has slots. The
//! program registers its tasks by name and then serves:
//!
//! ```no_run
//! use offload_worker::{Output, Task, TaskContext, TaskError, Worker};
//! use std::process::ExitCode;
//!
//! #[derive(serde::Deserialize)]
//! struct Charge {
//!     cents: u64,
//! }
//!
//! fn charge(charge: Charge, context: &mut TaskContext) -> Result<String, TaskError> {
//!     Ok(format!("{} cents, job {}", charge.cents, context.job()))
//! }
//!
//! fn main() -> ExitCode {
//!     Worker::new()
//!         .raw("reverse", |input, _context| Ok(Output::bytes(input.bytes.iter().rev().copied().collect::<Vec<u8>>())))
//!         .with(Task::json("add", |(a, b): (i64, i64), _context| a.checked_add(b).ok_or("too big")).idempotent())
//!         .with(Task::json("charge", charge).not_idempotent())
//!         .serve()
//! }
//! ```
//!
//! Start it with `offload serve --worker ./my-worker`. A task that returns an error or panics fails its job; the
//! worker goes on. If a task ends the process, its job is retried if that is allowed, and fails otherwise; the supervisor
//! starts another worker.
//!
//! A task that may take long is better written as small steps: see [`Stepped`]. Its worker then runs short jobs between the
//! steps. The supervisor can show how far the job is, give its worker to another job, and go on in another worker after a
//! crash.
//!
//! # Code map
//!
//! | file | is |
//! |---|---|
//! | `task.rs` | what an author sees: [`Task`], [`Input`], [`Output`], [`TaskError`] |
//! | `batch.rs` | tasks that take several jobs at once: [`Member`] |
//! | `stepped.rs` | tasks that are done in steps: [`Stepped`] |
//! | `context.rs` | what a running task can ask about its job, and how it reports progress: [`TaskContext`] |
//! | `worker.rs` | the builder, and the names it takes: [`Worker`] |
//! | `session.rs` | **start here**: one job after another, from Hello to the end |
//! | `session/stepping.rs` | what happens between two steps of a job |
//! | `session_error.rs` | why a session ended early: [`SessionError`] |
//! | `link.rs` | the socket to the supervisor: jobs in, answers out |
//! | `parts.rs` | outputs that are sent before the task returns: [`TaskContext::send_part`] |
//! | `progress.rs` | when a job says how far it is |
//! | `json.rs` | values as JSON: a NaN or an infinity is an error |
//! | `usage.rs` | how much CPU time and memory an attempt used |
//! | `limits.rs` | every bound |
//! | `panics.rs` | a panic becomes a message with its place |
//! | `process.rs` | how the process prepares itself before Hello |
//! | `confine.rs` | the limits and privileges that it gives up then; shims use it too: [`confine`] |
//! | `exec.rs`, `exec/` | tasks that are programs of their own; only with the feature `exec` |
//! | `jsonl.rs`, `jsonl/` | tasks of a program that reads and writes JSON Lines; only with the feature `jsonl` |
//! | `http_app.rs`, `http_app/` | tasks of an HTTP application; only with the feature `http-app` |
//! | `foreign.rs` | the process of either, which ends with its adapter |
//! | `builtin/` | the built-in tasks, one family a file; only with the feature `builtin` |

#![warn(missing_debug_implementations)]

mod batch;
mod behind;
#[cfg(feature = "builtin")]
pub mod builtin;
pub mod confine;
mod context;
#[cfg(feature = "exec")]
pub mod exec;
mod file;
#[cfg(any(feature = "http-app", feature = "jsonl"))]
mod foreign;
#[cfg(feature = "http-app")]
pub mod http_app;
mod inbox;
mod json;
#[cfg(feature = "jsonl")]
pub mod jsonl;
pub mod limits;
mod linger;
mod link;
mod panics;
mod parts;
mod process;
mod progress;
mod segments;
mod session;
mod session_error;
mod stepped;
#[cfg(any(feature = "exec", feature = "http-app", feature = "jsonl"))]
mod strays;
mod sys;
mod task;
mod task_error;
#[cfg(test)]
mod test_supervisor;
mod tray;
mod usage;
mod worker;

pub use batch::Member;
pub use bytes::Bytes;
pub use context::TaskContext;
pub use offload_protocol::nouns::{Lane, MediaType, Metadata};
pub use parts::PartError;
pub use session_error::SessionError;
pub use stepped::Stepped;
pub use task::{Input, Output, Task, TaskError};
pub use worker::Worker;
