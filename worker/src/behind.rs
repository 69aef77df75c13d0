//! What a worker stands in front of, if it is an adapter: a program of its own, without which it is good for nothing.

use std::os::fd::OwnedFd;

/// See the module's documentation. `can_tell` is whether the supervisor understands what becomes of programs. An answer of false
/// means that the worker has to end: no job is begun, and its process ends once all answers were sent.
pub(crate) trait Behind {
    /// Readable when this has to be looked at while no job runs.
    fn watched(&self) -> &[OwnedFd];

    /// Looks at it, while no job runs.
    fn look(&mut self, can_tell: bool) -> bool;

    /// Gets ready for a job, which the supervisor is not yet told to have begun.
    fn get_ready(&mut self, can_tell: bool) -> bool;
}
