//! A job from its acceptance to its end: its input, its options, and the subscribers that are called when it ends. The
//! core knows the job by its number only.

use super::finished::{EndedJobDetails, Remembered, tags};
use super::holding::OutputCharge;
use super::parts::LiveParts;
use super::{Hub, Payload};
use crate::job::{Finished, Input, Job};
use bytes::Bytes;
use offload_core::action::{Ended, Released};
use offload_core::ids::{JobId, Mono};
use offload_core::limits::PROMISE_BYTES;
use offload_event_loop::Context;
use offload_protocol::limits::NAME_MAX;
use offload_protocol::messages::SubmitOptions;
use offload_protocol::nouns::{
    ErrorDetail, Labels, MediaType, Metadata, OutcomeCode, Receipt, Report, Usage, cut,
};
use std::num::NonZeroU64;
use std::panic::Location;
use std::rc::Rc;
use std::time::Duration;

/// A job that has been accepted and has not ended. There may be a million of them, so what few jobs have is in a box, and
/// the names of its task and its client are only in the core.
pub(crate) struct LiveJob {
    pub(super) media_type: MediaType,
    pub(super) input: Input,
    /// The client has a name, which is then the name of the account.
    has_client: bool,
    /// The options as they were submitted, for a retry; `None` if they are the default.
    options: Option<Box<SubmitOptions>>,
    pub(super) subscribers: Subscribers,
    /// What its worker has sent before the end.
    pub(super) early: Option<Box<Early>>,
}

/// What a worker sends before its job has ended.
#[derive(Default)]
pub(super) struct Early {
    /// The state from which the next attempt resumes.
    pub(super) checkpoint: Option<Bytes>,
    /// The parts of its output that have come.
    pub(super) parts: Option<LiveParts>,
}

/// Who is told when a job ends.
pub(super) enum Subscribers {
    /// Nearly all jobs have one subscriber, and never another.
    One(Subscriber),
    /// None, or several. In a box, so that nearly all jobs take less memory.
    Others(Option<Box<Many>>),
}

/// Several subscribers.
pub(super) struct Many(Vec<Subscriber>);

impl Subscribers {
    pub(super) fn len(&self) -> usize {
        self.all().len()
    }

    pub(super) fn all(&self) -> &[Subscriber] {
        match self {
            Subscribers::One(subscriber) => std::slice::from_ref(subscriber),
            Subscribers::Others(others) => others.as_deref().map_or(&[], |many| &many.0),
        }
    }

    pub(super) fn push(&mut self, subscriber: Subscriber) {
        *self = match std::mem::replace(self, Subscribers::Others(None)) {
            Subscribers::Others(None) => Subscribers::One(subscriber),
            Subscribers::One(first) => Subscribers::Others(Some(Box::new(Many(vec![first, subscriber])))),
            Subscribers::Others(Some(mut many)) => {
                many.0.push(subscriber);
                Subscribers::Others(Some(many))
            }
        };
    }

    /// Removes those of a client connection. Whatever they own is dropped with them, so the hub must not be borrowed then.
    #[must_use]
    pub(super) fn leave(&mut self, connection: u64) -> Vec<Subscriber> {
        let stays = |subscriber: &Subscriber| subscriber.connection() != Some(connection);
        match std::mem::replace(self, Subscribers::Others(None)) {
            Subscribers::One(subscriber) if !stays(&subscriber) => vec![subscriber],
            Subscribers::Others(Some(mut many)) => {
                let (stay, left) = std::mem::take(&mut many.0).into_iter().partition(stays);
                many.0 = stay;
                *self = Subscribers::Others(Some(many));
                left
            }
            unchanged => {
                *self = unchanged;
                Vec::new()
            }
        }
    }
}

/// The function that a subscriber calls when its job has ended.
type OnFinished = Box<dyn FnOnce(Box<Finished>, OutputCharge, &mut Context)>;

/// A callback that is told how a job ended.
pub(crate) struct Subscriber {
    /// The place in the source where the subscriber was registered, by which a slow one can be named.
    site: &'static Location<'static>,
    /// The number of the client connection that the subscriber reports to, plus one. None if the subscriber is part of this
    /// program, unless it is a caller of a pool that may leave a job of others: then it is the number of the caller.
    connection: Option<NonZeroU64>,
    call: OnFinished,
}

impl Subscriber {
    /// A subscriber that is part of this program. The output is not charged to anybody once the subscriber has it.
    #[track_caller]
    pub(crate) fn new(call: impl FnOnce(Finished, &mut Context) + 'static) -> Subscriber {
        let call = move |finished: Box<Finished>, held, cx: &mut Context| {
            drop(held);
            call(*finished, cx);
        };
        Subscriber { site: Location::caller(), connection: None, call: Box::new(call) }
    }

    /// A subscriber that is part of this program, and also gets the charge for the output.
    #[track_caller]
    pub(crate) fn holding(
        call: impl FnOnce(Box<Finished>, OutputCharge, &mut Context) + 'static,
    ) -> Subscriber {
        Subscriber { site: Location::caller(), connection: None, call: Box::new(call) }
    }

    /// A subscriber that reports to a client connection. It also gets the charge for the output: the output stays on
    /// the account of the job's client until that is dropped.
    #[track_caller]
    pub(crate) fn of_connection(
        id: u64,
        call: impl FnOnce(Box<Finished>, OutputCharge, &mut Context) + 'static,
    ) -> Subscriber {
        Subscriber::holding(call).reporting_to(id)
    }

    /// The same, for this connection or caller.
    pub(crate) fn reporting_to(self, id: u64) -> Subscriber {
        Subscriber { connection: NonZeroU64::new(id.saturating_add(1)), ..self }
    }

    /// The client connection that the subscriber reports to, if there is one.
    pub(super) fn connection(&self) -> Option<u64> {
        self.connection.map(|connection| connection.get() - 1)
    }

    /// Calls the subscriber. Only the event loop does this, never the hub, because the subscriber may call the hub to
    /// submit more jobs.
    pub(crate) fn call(self, finished: Box<Finished>, held: OutputCharge, cx: &mut Context) {
        (self.call)(finished, held, cx);
    }

    /// The place in the source where the subscriber was registered.
    pub(crate) fn site(&self) -> &'static Location<'static> {
        self.site
    }
}

impl LiveJob {
    /// What is to be known of a job.
    pub(super) fn new(job: Job, subscriber: Option<Subscriber>) -> LiveJob {
        LiveJob {
            media_type: job.media_type,
            input: job.input,
            has_client: !cut(&job.client, NAME_MAX).is_empty(),
            options: (job.options != SubmitOptions::default()).then(|| Box::new(job.options)),
            early: None,
            subscribers: subscriber.map_or(Subscribers::Others(None), Subscribers::One),
        }
    }

    /// The name of the job's client; empty if it has none. `account` is the name of its account.
    pub(super) fn client<'a>(&self, account: &'a str) -> &'a str {
        if self.has_client { account } else { "" }
    }

    /// The state from which the next attempt resumes.
    pub(super) fn checkpoint(&self) -> Option<&Bytes> {
        self.early.as_ref()?.checkpoint.as_ref()
    }

    /// The parts of its output that have come.
    pub(super) fn parts_mut(&mut self) -> Option<&mut LiveParts> {
        self.early.as_mut()?.parts.as_mut()
    }

    /// Whether this client connection reads the output in parts.
    pub(super) fn is_read_by(&self, client: u64) -> bool {
        let parts = self.early.as_ref().and_then(|early| early.parts.as_ref());
        matches!(parts, Some(LiveParts::Stream { connection, .. }) if *connection == Some(client))
    }

    /// Whether this connection has asked to be told of the end. To read the output does not count.
    pub(super) fn is_awaited_by(&self, client: u64) -> bool {
        let all = self.subscribers.all().iter();
        let own = all.filter(|subscriber| subscriber.connection() == Some(client)).count();
        own > usize::from(self.is_read_by(client))
    }

    /// What is sent before the job has ended is kept here.
    pub(super) fn early_mut(&mut self) -> &mut Early {
        self.early.get_or_insert_default()
    }

    /// What the client attached to it.
    pub(super) fn metadata(&self) -> Metadata {
        self.options.as_deref().map(|options| options.metadata.clone()).unwrap_or_default()
    }

    /// The words by which it can be found.
    pub(super) fn labels(&self) -> Labels {
        self.options.as_deref().map(|options| options.labels.clone()).unwrap_or_default()
    }

    /// The options as they were submitted.
    pub(super) fn options(&self) -> SubmitOptions {
        self.options.as_deref().cloned().unwrap_or_default()
    }
}

impl Hub {
    /// A job has ended with this output: stores what is to be remembered, and has the subscribers called.
    pub(super) fn finish(&mut self, ended: &Ended, mut output: Payload) {
        let Some(mut live_job) = self.records.close(ended.job) else { return };
        let output_bytes = self.whole_output(ended, &mut live_job, &mut output);
        self.measure(ended, (live_job.input.length(), output_bytes));
        let Payload { media_type, bytes: output } = output;
        let usage = self.used(ended);
        let remembered = self.remembered(ended, usage, &live_job, (media_type, output_bytes));
        let held = self.records.charge_output(&ended.account, output.len() as u64);
        let finished = Box::new(Finished { report: remembered.report(), output });
        let age = ended.queued + ended.run + ended.returned;
        if let Some(letter) = ended.letter {
            self.add_dead_letter(ended, letter, &live_job, &finished.report);
        }
        let lost = self.attempt_views(&ended.lost);
        let bytes = PROMISE_BYTES + ended.text_bytes();
        let details = EndedJobDetails {
            client: ended.account.clone(),
            accepted_at: Mono::from_nanos(self.time.last_told().as_nanos().saturating_sub(nanos(age))),
            age_us: micros(age),
            together: ended.together,
            lost,
            bytes,
        };
        self.records.finished_mut().remember(ended.job, remembered, &finished.output, (ended.keep, details));
        self.make_room_for_promises();
        self.tell(live_job.subscribers, finished, held);
    }

    /// Has the subscribers of a job called.
    fn tell(&self, subscribers: Subscribers, finished: Box<Finished>, mut held: OutputCharge) {
        match subscribers {
            Subscribers::Others(None) => {}
            Subscribers::One(subscriber) => {
                let site = subscriber.site();
                self.handle.set_pending_at(site, move |cx| subscriber.call(finished, held, cx));
            }
            // There may be a thousand of them. They share the report and the output until each is called.
            Subscribers::Others(Some(many)) => {
                let finished = Rc::new(*finished);
                for subscriber in many.0 {
                    let (finished, held) = (Rc::clone(&finished), held.share());
                    self.handle.set_pending_at(subscriber.site(), move |cx| {
                        subscriber.call(Box::new(Rc::unwrap_or_clone(finished)), held, cx);
                    });
                }
            }
        }
    }

    /// What was promised for a job is over.
    pub(super) fn end_promise(&mut self, job: JobId, why: Released) {
        self.records.finished_mut().release(job, why);
        self.make_room_for_promises();
    }

    /// Somebody has said that the output of an ended job is of no use any more.
    pub(crate) fn give_up_output(&mut self, job: JobId) {
        self.collected(job);
        self.records.finished_mut().give_up(job);
    }

    /// Forgets the collected outputs that have been here as long as was promised.
    pub(crate) fn forget_old_outputs(&mut self) {
        let now = self.now();
        self.records.finished_mut().forget_collected_until(now);
    }

    /// Forgets collected outputs that no longer fit into the room that promises leave, or are old.
    fn make_room_for_promises(&mut self) {
        self.forget_old_outputs();
        let limit = self.core.config().max_kept_bytes;
        let most = limit.saturating_sub(self.core.promises().kept().within_shares(limit));
        self.records.finished_mut().forget_collected_over(most);
    }

    /// Ends all jobs, because nobody will run them any more. Their subscribers are called.
    pub(super) fn cancel_live_jobs(&mut self) {
        for (job, live_job) in self.records.close_all() {
            let message = "the pool was dropped".to_owned();
            let code = OutcomeCode::Cancelled;
            let task = self.core.jobs().get(job).map_or("", |job| self.core.task_name(job));
            let mut finished = refusal(task, ErrorDetail::new(code, message));
            finished.report.job = self.name(job);
            self.tell(live_job.subscribers, Box::new(finished), OutputCharge::none());
        }
    }

    fn remembered(
        &self,
        ended: &Ended,
        usage: Usage,
        live_job: &LiveJob,
        (media_type, output_bytes): (MediaType, u64),
    ) -> Remembered {
        let place = ended.place;
        Remembered {
            job: self.records.public_id(ended.job),
            task: ended.task.clone(),
            outcome: ended.outcome,
            error: ended.error.clone().map(Box::new),
            attempts: ended.attempts,
            receipt: Receipt {
                queued_us: micros(ended.queued),
                run_us: micros(ended.run),
                returned_us: micros(ended.returned),
                worker_pid: place.and_then(|place| self.processes.pid(place.worker)).unwrap_or(0),
                slot: place.and_then(|place| u32::try_from(place.slot).ok()).unwrap_or(0),
                incarnation: place.map_or(0, |place| place.incarnation),
                input_bytes: live_job.input.length(),
                output_bytes,
                usage,
            },
            media_type,
            tags: tags(live_job.metadata(), live_job.labels()),
        }
    }
}

/// The report for a job that was refused. Such a job has no id.
pub(super) fn refusal(task: &str, error: ErrorDetail) -> Finished {
    let report = Report {
        job: String::new(),
        task: task.to_owned(),
        outcome: error.code,
        error: Some(error),
        attempts: 0,
        receipt: Receipt::default(),
        media_type: MediaType::default(),
        metadata: Metadata::default(),
        labels: Labels::default(),
    };
    Finished { report, output: Bytes::new() }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million jobs may wait. What only few of them have is in boxes.
    #[test]
    fn a_live_job_takes_no_more_than_it_must() {
        assert_eq!((size_of::<LiveJob>(), size_of::<Option<LiveJob>>()), (104, 104));
    }
}
