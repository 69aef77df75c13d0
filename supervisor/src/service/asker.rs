//! Whoever asks for jobs: a name, or else a process. For a front that answers each request with the end of one job there is
//! [`Service::run`], which needs no session.
//!
//! ```text
//!   Asker ---> Service::account: the body of the request, as it comes ---> Service::run ---> RunningJob ---> the callback: a Report
//!                                                                                               '--- dropped before: cancelled
//! ```

use super::{Account, Reply, Report, Service};
use crate::hub::Subscriber;
use crate::job::{Job, Recognized, account_name};
use crate::peer::{Peer, anonymous, is_client_name};
use offload_core::ids::JobId;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use std::net::IpAddr;
use std::sync::Arc;

/// Whom jobs and bytes are charged to. Cheap to clone, and worth keeping for the next request.
#[derive(Clone, Debug)]
pub struct Asker {
    /// Empty if it has no name.
    name: Arc<str>,
    /// The name, or how its process is shown.
    account: Arc<str>,
    peer: Peer,
    recognized: Recognized,
}

impl Asker {
    /// A name that [`is_client_name`] does not accept counts as none, and so does one under which processes are shown.
    pub(super) fn new(name: &str, peer: Peer) -> Asker {
        let is_usable = is_client_name(name) && !Peer::may_be_called(name);
        let name = Arc::from(if is_usable { name } else { "" });
        Asker { account: account_name(&name, Some(peer)), name, peer, recognized: Recognized::ByName }
    }

    /// The name that it has stated; empty if it has none.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name that is charged: its own, or that of its process or connection.
    pub fn account(&self) -> &Arc<str> {
        &self.account
    }

    /// The job as this one asks for it. `is_let_in`: there was room for its input.
    pub(super) fn asks(&self, job: Job, is_let_in: bool) -> Job {
        Job {
            client: Arc::clone(&self.name),
            peer: Some(self.peer),
            has_room: is_let_in,
            recognized: self.recognized,
            ..job
        }
    }
}

/// A job that was submitted with [`Service::run`] and has not ended. Dropping it cancels the job, even if it runs.
#[must_use = "dropping it cancels the job"]
#[derive(Debug)]
pub struct RunningJob {
    service: Service,
    job: JobId,
    is_over: bool,
}

impl RunningJob {
    /// Notes that the report has come: there is nothing to cancel any more.
    pub fn ended(&mut self) {
        self.is_over = true;
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        if !self.is_over {
            self.service.hub().borrow_mut().client_is_gone(self.job);
        }
    }
}

impl Service {
    /// The one who asks under this name. `process` is its process, if the kernel can tell: whoever states no name shares the limits
    /// of its process.
    pub fn asker(&self, process: Option<u32>, name: &str) -> Asker {
        Asker::new(name, self.peer(process))
    }

    /// One that has shown a token of a front and stated no name: it is charged under its address, or its process. Its idempotency keys
    /// are those of all such clients, because it may come from another address the next time.
    pub fn asker_with_token(&self, process: Option<u32>, address: Option<IpAddr>) -> Asker {
        let name = address.map_or(String::new(), |address| address.to_string());
        Asker { recognized: Recognized::ByToken, ..self.asker(process, &name) }
    }

    /// One that has shown nothing but its address, or its process. No other client may have its name, or its idempotency keys.
    pub fn anonymous(&self, process: Option<u32>, address: Option<IpAddr>) -> Asker {
        let peer = self.peer(process);
        let name: Arc<str> = address.map_or_else(|| anonymous(peer), anonymous).into();
        Asker { account: Arc::clone(&name), name, peer, recognized: Recognized::NotAtAll }
    }

    fn peer(&self, process: Option<u32>) -> Peer {
        process.map_or_else(|| Peer::Connection(self.0.sessions.borrow_mut().next_number()), Peer::Process)
    }

    /// An account of the bytes that are held for one request of this asker.
    pub fn account(&self, asker: &Asker) -> Account {
        let account = Account::new(self.hub().clone());
        account.open(asker);
        account
    }

    /// Counts a job as refused because there is no room for its body of `length` bytes on this account, and returns the answer.
    pub fn refuse_input(&self, account: &Account, length: usize) -> Reply {
        let why = account.why_no_room(length as u64);
        self.count_refused(why.code);
        Reply::Refusal(why)
    }

    /// Refuses a job whose input of `input_bytes` is still to come, if it would be refused now: nobody should send an input for
    /// nothing. If it is not refused, nothing is promised. An idempotency key and room for the input are not looked at.
    ///
    /// # Errors
    /// Why the job is refused. It counts like a refusal by [`Service::run`].
    pub fn refuse_early(&self, asker: &Asker, job: &Job, input_bytes: u64) -> Result<(), ErrorDetail> {
        self.hub().borrow_mut().refuse_early(asker.asks(job.clone(), true), input_bytes)
    }

    /// Submits a job, and calls `on_end` from the event loop when it has ended, also if it ends because the [`RunningJob`] was dropped.
    /// Its output is wanted as a whole, and is not kept. A job with an idempotency key needs a [session](Service::open).
    /// `is_let_in` is that of a [`Submission`](super::Submission).
    ///
    /// # Errors
    /// Why the job was refused, such as for an idempotency key.
    #[track_caller]
    pub fn run(
        &self,
        asker: &Asker,
        job: Job,
        is_let_in: bool,
        on_end: impl FnOnce(Report) + 'static,
    ) -> Result<RunningJob, ErrorDetail> {
        if job.has_key() {
            self.count_refused(OutcomeCode::Unsupported);
            let message = "a job with an idempotency key needs a session";
            return Err(ErrorDetail::new(OutcomeCode::Unsupported, message));
        }
        let subscriber = Subscriber::holding(move |finished, held, _| {
            on_end(Report { finished, collection: None, _held: held });
        });
        let submitted = self.hub().borrow_mut().submit(asker.asks(job, is_let_in), false, Some(subscriber));
        match submitted {
            Ok(accepted) => Ok(RunningJob { service: self.clone(), job: accepted.job, is_over: false }),
            Err(refused) => Err(refused.error),
        }
    }
}
