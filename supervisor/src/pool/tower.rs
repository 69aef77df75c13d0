//! A pool as a [`tower_service::Service`], for whoever composes services.

use super::handle::{PendingJob, PoolEnded, PoolHandle, Reservation, Reserved};
use crate::job::{Finished, Job};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower_service::Service;

/// A [`PoolHandle`] as a service of tower: [`PoolHandle::service`] makes one.
///
/// It is ready when its client has a [place](PoolHandle::reserve) for a job, which the next call then takes. So whoever is not
/// ready waits until other jobs of the handle have ended. The input of the call is not known before, so a call for whose bytes there
/// is no room is [refused](Reserved::submit), as `overloaded` or `quota`: a web service has 503 for that. A call that was not ready
/// before is a [`submit`](PoolHandle::submit), which may be refused for want of a place, too.
#[derive(Debug)]
pub struct PoolService {
    handle: PoolHandle,
    room: Room,
}

#[derive(Debug)]
enum Room {
    NotAsked,
    Awaited(Reservation),
    Reserved(Reserved),
}

impl PoolHandle {
    /// This handle as a service.
    pub fn service(&self) -> PoolService {
        PoolService { handle: self.clone(), room: Room::NotAsked }
    }
}

impl Clone for PoolService {
    /// The clone has to become ready itself.
    fn clone(&self) -> PoolService {
        self.handle.service()
    }
}

impl Service<Job> for PoolService {
    type Response = Finished;
    type Error = ServiceError;
    type Future = ServiceCall;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ServiceError>> {
        loop {
            self.room = match &mut self.room {
                Room::Reserved(_) => return Poll::Ready(Ok(())),
                Room::NotAsked => Room::Awaited(self.handle.reserve()),
                Room::Awaited(reservation) => Room::Reserved(ready!(Pin::new(reservation).poll(context))?),
            };
        }
    }

    fn call(&mut self, job: Job) -> ServiceCall {
        ServiceCall(match std::mem::replace(&mut self.room, Room::NotAsked) {
            Room::Reserved(reserved) => reserved.submit(job),
            Room::NotAsked | Room::Awaited(_) => self.handle.submit(job),
        })
    }
}

/// A call of a [`PoolService`]. Dropping it cancels the job, unless the job has an [idempotency key](Job::idempotency_key).
///
/// # Panics
/// When it is awaited again after its end.
#[must_use = "dropping it cancels the job"]
#[derive(Debug)]
pub struct ServiceCall(PendingJob);

impl Future for ServiceCall {
    type Output = Result<Finished, ServiceError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|finished| match finished.report.error {
            None => Ok(finished),
            Some(_) => Err(ServiceError::Job(Box::new(finished))),
        })
    }
}

/// Why a [`PoolService`] has no output.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServiceError {
    /// The job did not end well, or was refused: its report says why.
    Job(Box<Finished>),
    /// There is no pool any more, so the service will never be ready.
    PoolEnded,
}

impl From<PoolEnded> for ServiceError {
    fn from(_: PoolEnded) -> ServiceError {
        ServiceError::PoolEnded
    }
}

impl fmt::Display for ServiceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServiceError::PoolEnded => PoolEnded.fmt(formatter),
            ServiceError::Job(finished) => match &finished.report.error {
                Some(error) => error.fmt(formatter),
                None => formatter.write_str("the job has failed"),
            },
        }
    }
}

/// It has no source, whose line would be the same.
impl std::error::Error for ServiceError {}
