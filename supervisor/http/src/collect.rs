//! Reads the body of a request into memory, as fast as there is room for it.
//!
//! ```text
//!   announced --> would the job be accepted? --> is there room? --> its bytes, as they come --> the input of the job
//!                   | no: refused before             | no: the client is not read until there is, for at most ROOM_PATIENCE
//!                     anything of it is read
//! ```

use crate::body::RequestBody;
use crate::ended::Failure;
use crate::offload::RequestContext;
use crate::rooms::{Allowed, check_coding};
use bytes::{Bytes, BytesMut};
use offload_supervisor::Job;
use offload_supervisor::limits::ROOM_PATIENCE;
use offload_supervisor::service::Account;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// How much of a body of unknown length is read before it is asked again whether there is room for more.
const STEP: usize = 64 << 10;

/// How long such a body waits for more room. What it has holds up others meanwhile, perhaps those for which it waits.
const GROWTH_PATIENCE: Duration = Duration::from_secs(1);

/// Reads a body into memory, as fast as there is room for it. It is to be the input of `job`: if that would be refused now, the body
/// is not read. A job with a key is not given here, as the key may be that of a job that was accepted before.
///
/// # Errors
/// The body or the job is refused, or the body does not come.
pub(crate) async fn collect(
    context: &RequestContext,
    account: &Account,
    job: Option<&Job>,
    mut body: RequestBody,
) -> Result<Bytes, Failure> {
    check_coding(&body, &context.service)?;
    let allowed = Allowed::to(&body, &context.service);
    let announced = body.length().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    allowed.check(announced.unwrap_or(0), &context.service)?;
    if let Some(job) = job {
        let length = announced.unwrap_or(0) as u64;
        context
            .service
            .refuse_early(&context.asker, job, length)
            .map_err(|error| Failure::refused(&error))?;
    }
    // All of it at once, or bodies that have come in part would wait for each other.
    room(context, account, announced.unwrap_or(0), ROOM_PATIENCE).await?;
    account.set_arriving(announced.unwrap_or(0) as u64);
    let (mut first, mut all) = (Bytes::new(), BytesMut::new());
    while let Some(bytes) = body.next().await {
        let bytes = bytes?;
        let length = first.len() + all.len() + bytes.len();
        allowed.check(length, &context.service)?;
        account.set_arriving(announced.unwrap_or(length).max(length) as u64);
        match (first.is_empty(), all.is_empty()) {
            // A body that comes in one go is not copied.
            (true, true) => first = bytes,
            (false, true) => {
                all.reserve(announced.unwrap_or(length));
                all.extend_from_slice(&std::mem::take(&mut first));
                all.extend_from_slice(&bytes);
            }
            (_, false) => all.extend_from_slice(&bytes),
        }
        if announced.is_none() {
            room(context, account, STEP.min(allowed.left(length)), GROWTH_PATIENCE).await?;
        }
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

/// Waits until there is room for so many bytes more. Meanwhile the client is not read.
async fn room(
    context: &RequestContext,
    account: &Account,
    bytes: usize,
    longest: Duration,
) -> Result<(), Failure> {
    if account.has_room(bytes as u64) {
        return Ok(());
    }
    let mut patience = pin!(context.clock.sleep(longest));
    loop {
        let mut released = pin!(context.rooms.released(&context.service));
        let is_released = poll_fn(|cx| match released.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => patience.as_mut().poll(cx).map(|()| false),
        });
        if !is_released.await {
            return Err(Failure::unexpected(&context.service.refuse_input(account, bytes)));
        }
        if account.has_room(bytes as u64) {
            return Ok(());
        }
    }
}
