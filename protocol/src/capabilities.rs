//! What may be added to the protocol within one major version: each capability is a bit that a hello states, and that is used
//! only if both ends have it. A bit never gets another meaning.

#[cfg(doc)]
use crate::messages::{FromWorker, SubmitOptions, ToClient, ToSupervisor, ToWorker};

/// The capability of outputs in parts: [`FromWorker::Part`] and [`ToWorker::Credit`] between supervisor and worker,
/// [`SubmitOptions::stream`] and [`ToClient::Part`] between client and supervisor.
pub const PARTS: u64 = 1;
/// The capability of workers that look for their next job in a tray: a socket of which they are given one end together with
/// the first byte of [`ToWorker::Welcome`]. A welcome that states it brings exactly one descriptor.
pub const PREFETCH: u64 = 1 << 1;
/// The capability of large payloads in memory that both ends have mapped: [`ToWorker::Segment`] and what follows from it.
pub const SEGMENTS: u64 = 1 << 2;
/// The capability of inputs that are files: the descriptor is passed on instead of the bytes. [`ToSupervisor::InputFile`] and
/// [`ToClient::SendInput`] between client and supervisor, [`ToWorker::InputFile`] between supervisor and worker.
pub const FILES: u64 = 1 << 3;
/// The capability of workers that look for their next job for a short while before they go to sleep
/// ([`LINGER`](crate::limits::LINGER)). A supervisor states it where there are cores for that.
pub const LINGERING: u64 = 1 << 4;
/// The capability of tasks that take several jobs at once: [`FromWorker::OfferBatch`] and [`ToWorker::Batch`].
pub const BATCHES: u64 = 1 << 5;
/// The capability of workers that run programs: a failure says how the program ended
/// ([`FailureKind::Exited`](crate::nouns::FailureKind::Exited) and those behind it).
pub const ENDS: u64 = 1 << 6;
/// The capability of shortened ids: [`Operation::Find`](crate::messages::Operation::Find) between client and supervisor.
pub const FIND: u64 = 1 << 7;
/// The capability of lists of jobs with filters: [`Operation::Jobs`](crate::messages::Operation::Jobs) between client and
/// supervisor.
pub const FILTERS: u64 = 1 << 8;
/// The capability of lines that workers printed: [`Operation::Logs`](crate::messages::Operation::Logs) between client and supervisor.
pub const LOGS: u64 = 1 << 9;
/// The capability of pauses: [`Operation::Pause`](crate::messages::Operation::Pause) and `Resume` between client and supervisor.
pub const PAUSES: u64 = 1 << 10;
/// The capability of workers in front of a program that lives as long as they do: what becomes of it
/// ([`FromWorker::Program`]).
pub const PROGRAMS: u64 = 1 << 11;
/// The capability of errors that are meant for callers: a failure says that the task wrote its message for whoever called it
/// ([`FailureKind::Deliberate`](crate::nouns::FailureKind::Deliberate)).
pub const REASONS: u64 = 1 << 12;
/// The capabilities that this version has, one bit each. A hello states those of its sender, and the welcome those that both
/// ends have. What a capability adds to the protocol may be used only then.
pub const CAPABILITIES: u64 = PARTS
    | PREFETCH
    | SEGMENTS
    | FILES
    | LINGERING
    | BATCHES
    | ENDS
    | FIND
    | FILTERS
    | LOGS
    | PAUSES
    | PROGRAMS
    | REASONS;

/// Those of them that mean something between client and supervisor.
pub const CLIENT_CAPABILITIES: u64 = PARTS | FILES | FIND | FILTERS | LOGS | PAUSES;

/// What both ends have, given the capabilities in the other end's hello. Bits that this version does not know are ignored.
pub const fn shared_capabilities(theirs: u64) -> u64 {
    theirs & CAPABILITIES
}
