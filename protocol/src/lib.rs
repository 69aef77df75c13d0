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
//! ## Where
//!
//! A worker is a program. It is started with one end of a Unix stream socket as **standard input (descriptor 0)**,
//! which it both reads and writes. Standard output and standard error are captured line by line for the supervisor's
//! log and carry no protocol. When the socket ends (read returns 0), the supervisor is gone: exit. The environment
//! variable `OFFLOAD_PAYLOAD_MAX` holds the longest payload, in bytes, that the supervisor takes.
//!
//! ## Frames
//!
//! ```text
//! offset  size  field
//! 0       4     H, length of the header, little-endian, 1..=4096
//! 4       4     P, length of the payload, little-endian, at most the supervisor's limit (64 MiB unless configured)
//! 8       H     header: one message, see below
//! 8+H     P     payload: raw bytes, never looked at by the supervisor
//! ```
//!
//! ## Headers
//!
//! Fields follow each other without padding. `u16`, `u32`, `u64` are little-endian of that width; `bool` is one
//! byte, 0 or 1; `text` is a `u64` length and that many bytes of UTF-8; a `list` is a `u64` count and its elements;
//! `magic` is 8 raw bytes. A message begins with its number as `u32`. The header must end where the message ends.
//!
//! | to the worker | number | fields | payload |
//! |---|---|---|---|
//! | Run | 0 | job `u64`, attempt `u32`, task `text`, content `u32` | input |
//! | Cancel | 1 | job `u64` | |
//! | Drain | 2 | | |
//! | Resume | 3 | job `u64` | a checkpoint; only to tasks that offered to take them |
//! | Yield | 4 | job `u64` | |
//!
//! | from the worker | number | fields | payload |
//! |---|---|---|---|
//! | Hello | 0 | magic `OFFLOADW`, major `u16` = 2, minor `u16` = 0, tasks `list` of (name `text`, idempotent `bool`, lane `u32` = 0, stepped `bool`, checkpoints `bool`, progress every so many ms `u32`) | |
//! | Started | 1 | job `u64`, attempt `u32` | |
//! | Finished | 2 | job `u64`, attempt `u32`, run time in ns `u64`, content `u32`, usage | output |
//! | Failed | 3 | job `u64`, attempt `u32`, run time in ns `u64`, kind `u32`, message `text` of at most 1024 bytes, usage | |
//! | Skipped | 4 | job `u64` | |
//! | Progress | 5 | job `u64`, attempt `u32`, done `u64`, total `u64` (0: unknown) | |
//! | Checkpoint | 6 | job `u64`, attempt `u32` | state, at most 65,536 bytes |
//! | Yielded | 7 | job `u64`, attempt `u32`, run time in ns `u64`, usage | state, at most 65,536 bytes |
//!
//! `content` is 0 bytes, 1 UTF-8 text, 2 JSON, 3 PNG. `kind` is 0 the task returned an error, 1 it panicked. `usage`
//! is three `u64`: user and system CPU time of the attempt in us, peak resident memory in bytes; 0 where unknown.
//! A task name is 1 to 64 ASCII letters, digits, `.`, `_`, `-`, the first a letter; a worker offers at most 48.
//!
//! ## Order
//!
//! ```text
//! worker                                supervisor
//!   | --- Hello ------------------------->|   within the start-up limit (default 10 s), first and once
//!   |<--------------------------- Run --- |   perhaps several; they are run in this order
//!   | --- Started ----------------------->|   sent (flushed) BEFORE the task runs: if the worker dies later, this job is
//!   |                                     |   blamed. If Started cannot be sent, the task must not run
//!   | --- Finished | Failed ------------->|   exactly one for each Started, with the same job and attempt
//!   |<------------------------ Cancel --- |   a job not started yet: answer Skipped when its turn comes; it may
//!   |                                     |   as well be run, nobody waits for the answer
//!   |<------------------------- Drain --- |   finish what was given, exit with code 0
//! ```
//!
//! That is everything for a task whose offer has neither `stepped` nor `checkpoints` nor a progress time. Other tasks may send
//! more between Started and Finished:
//!
//! ```text
//!   | --- Progress, Checkpoint ---------->|   whenever the job has come that far
//!   | --- Started, Finished ------------->|   of another job that was given, between two steps; once it has ended
//!   |                                     |   the stepped one goes on
//!   |<------------------------- Yield --- |   another job needs the worker: answer Yielded at the end of the step
//!   | --- Yielded ----------------------->|   in place of Finished: another attempt goes on from its payload
//!   |<------------------- Resume, Run --- |   that attempt: the checkpoint comes right before its Run
//! ```
//!
//! Anything else (another order, an unknown number, a job that the worker was not given, a length over its limit) is a
//! violation of the protocol: the worker is killed and its job has the outcome `worker_protocol`. A job that was given but not
//! started goes back to the queue without blame. Exit code 64 before Hello means "starting me again is pointless".
//!
//! ## Clients
//!
//! Clients speak the same frames over the supervisor's local socket, with [`messages::ToSupervisor`] and
//! [`messages::ToClient`]; both begin with a hello. The layout follows from the same rules; an `Option` is one byte,
//! 0 for none or 1 followed by the value.

pub mod codec;
pub mod frame;
pub mod limits;
pub mod messages;
pub mod nouns;
pub mod outbox;
