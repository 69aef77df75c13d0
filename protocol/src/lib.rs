//! The messages that the `offload` supervisor exchanges with its workers and its clients, and their encoding. This crate does
//! no I/O: bytes go in and messages come out, or the other way round.
//!
//! | module | has |
//! |---|---|
//! | [`messages`] | every message, by direction |
//! | [`frame`] | how a stream of bytes is cut into messages with their payloads |
//! | [`codec`] | how the header of a message is encoded |
//! | [`outbox`] | messages that wait to be written |
//! | [`nouns`] | the types that messages consist of: outcomes, reports, offers of tasks |
//! | [`limits`] | every bound |
//!
//! # PROTOCOL
//!
//! This section is all that is needed to write a worker in another language. `examples/worker.py` is one in plain Python.
//!
//! ## How a worker is started
//!
//! A worker is a program. Its **standard input (descriptor 0)** is one end of a Unix stream socket, which it both reads and
//! writes. Standard output and standard error carry no protocol: the supervisor writes their lines into its log. When a
//! read returns 0 bytes, the supervisor is gone, and the worker has to exit.
//!
//! The environment variable `OFFLOAD_PAYLOAD_MAX` has the length of the longest payload that the supervisor accepts, in
//! bytes, as a decimal number.
//!
//! ## Frames
//!
//! Both sides send frames, one after another. A frame is one message with its payload:
//!
//! ```text
//! offset  size  field
//! 0       4     H, length of the header in bytes, 1 to 4096
//! 4       4     P, length of the payload in bytes, at most OFFLOAD_PAYLOAD_MAX (64 MiB unless configured)
//! 8       H     header: the message, see below
//! 8+H     P     payload: raw bytes that the supervisor never looks at
//! ```
//!
//! ## Headers
//!
//! A header is the number of the message as `u32`, then its fields in the order of the tables below, without padding. It
//! ends where the last field ends. All integers, also H and P, are unsigned and little-endian.
//!
//! | type | bytes |
//! |---|---|
//! | `u16`, `u32`, `u64` | 2, 4, 8 |
//! | `bool` | 1: 0 or 1 |
//! | `text` | its length in bytes as `u64`, then that many bytes of UTF-8 |
//! | `list` | the number of its elements as `u64`, then the elements |
//! | `magic` | 8: ASCII characters |
//! | `usage` | three `u64`: the attempt's user CPU time in us, its system CPU time in us, the process's peak resident memory in bytes; 0 if unknown |
//!
//! Messages without an entry in the last column have no payload (P = 0).
//!
//! | to the worker | number | fields | payload |
//! |---|---|---|---|
//! | Run | 0 | job `u64`, attempt `u32`, task `text`, media type `text` | the input |
//! | Cancel | 1 | job `u64` | |
//! | Drain | 2 | | |
//! | Resume | 3 | job `u64` | a checkpoint; only for a task that offered `checkpoints` |
//! | Yield | 4 | job `u64` | |
//!
//! | from the worker | number | fields | payload |
//! |---|---|---|---|
//! | Hello | 0 | magic `OFFLOADW`, major `u16` = 2, minor `u16` = 0, tasks `list` of offers | |
//! | Started | 1 | job `u64`, attempt `u32` | |
//! | Finished | 2 | job `u64`, attempt `u32`, run time in ns `u64`, media type `text`, `usage` | the output |
//! | Failed | 3 | job `u64`, attempt `u32`, run time in ns `u64`, kind `u32`, message `text` of at most 1024 bytes, `usage` | |
//! | Skipped | 4 | job `u64` | |
//! | Progress | 5 | job `u64`, attempt `u32`, done `u64`, total `u64` (0: unknown) | |
//! | Checkpoint | 6 | job `u64`, attempt `u32` | a state, at most 65,536 bytes |
//! | Yielded | 7 | job `u64`, attempt `u32`, run time in ns `u64`, `usage` | a state, at most 65,536 bytes |
//!
//! - An **offer** is: name `text`, idempotent `bool`, lane `u32` = 0, stepped `bool`, checkpoints `bool`, the longest time
//!   between two Progress messages in ms `u32` (0: no promise). A worker offers at most 48 tasks. A name is 1 to 64 ASCII
//!   letters, digits, `.`, `_` or `-`, and begins with a letter.
//! - A **media type** says what a payload is, as in HTTP: 1 to 127 bytes of ASCII, `type/subtype` and perhaps parameters, such as
//!   `image/png`. Text is `text/plain; charset=utf-8`, and bytes of no stated kind are `application/octet-stream`.
//! - `kind` says how a task failed: 0 it returned an error, 1 it panicked.
//!
//! For example, Started for job 7, attempt 1, is these 24 bytes:
//!
//! ```text
//! 10 00 00 00   00 00 00 00   01 00 00 00   07 00 00 00 00 00 00 00   01 00 00 00
//! H = 16        P = 0         Started       job                       attempt
//! ```
//!
//! ## Order
//!
//! ```text
//! worker                                supervisor
//!   | --- Hello ------------------------->|   once, as the first message, within the start-up limit (default 10 s)
//!   |<--------------------------- Run --- |   one or several; run them one after another, in this order
//!   | --- Started ----------------------->|   must be written to the socket BEFORE the task runs: if the process ends
//!   |                                     |   later, this job is blamed. If it cannot be written, do not run the task
//!   | --- Finished or Failed ------------>|   exactly one for each Started, with the same job and attempt
//!   |<------------------------ Cancel --- |   nobody wants the answer. If the job has not started, either send Skipped
//!   |                                     |   when its turn comes, or run it. If it runs, go on: a worker that takes
//!   |                                     |   too long is killed
//!   |<------------------------- Drain --- |   finish all jobs that were given, then exit with code 0
//! ```
//!
//! That is everything for a task whose offer has neither `stepped` nor `checkpoints` nor a time for Progress. Other tasks
//! may send more between Started and Finished:
//!
//! ```text
//!   | --- Progress ---------------------->|   how far the job is; at least as often as offered, or the worker counts
//!   |                                     |   as hanging and is killed
//!   | --- Checkpoint -------------------->|   `checkpoints`: a state from which another attempt can go on
//!   | --- Started, Finished or Failed --->|   `stepped`: another job that was given may run between two steps. It ends
//!   |                                     |   before the next step of the first one
//!   |<------------------------- Yield --- |   another job needs the worker: send Yielded when the step ends. A worker
//!   |                                     |   that cannot do that ignores it
//!   | --- Yielded ----------------------->|   in place of Finished: another attempt goes on from its payload
//!   |<------------------- Resume, Run --- |   that attempt: Resume, with the state, comes right before its Run
//! ```
//!
//! Everything else is a violation of the protocol: another order, an unknown number, a job that the worker was not given, a
//! length over its limit. The worker is killed with SIGKILL, and the job that ran ends as `worker_protocol` or is retried. A
//! job that was given but not started goes back to the queue without blame.
//!
//! Exit code 64 before Hello means that it is pointless to start this program again.
//!
//! ## Clients
//!
//! Clients speak the same frames over the supervisor's local socket, with the messages [`messages::ToSupervisor`] and
//! [`messages::ToClient`]. A client begins with Hello, and the supervisor answers with Welcome. The number of a message is
//! its position in the enum, counted from 0, and its fields have the order and the types that are written there. A
//! value of another enum is its position as `u32`. An `Option` is one byte: 0 for none, or 1 followed by the value. `u128` has
//! 16 bytes, `i8` one.

pub mod codec;
pub mod frame;
pub mod limits;
pub mod messages;
pub mod nouns;
pub mod outbox;
