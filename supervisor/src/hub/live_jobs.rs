//! A job from its acceptance to its end: its input, its options, and the subscribers that are called when it ends. The
//! core knows the job by its number only.

use super::finished::EndedJobDetails;
use super::holding::OutputCharge;
use super::parts::LiveParts;
use super::{Hub, Payload};
use crate::job::{Finished, Job};
use bytes::Bytes;
use offload_core::action::{Ended, Released};
use offload_core::ids::JobId;
use offload_core::limits::PROMISE_BYTES;
use offload_event_loop::{Context, Hold};
use offload_protocol::limits::NAME_MAX;
use offload_protocol::messages::SubmitOptions;
use offload_protocol::nouns::{ErrorDetail, Labels, MediaType, Metadata, OutcomeCode, Receipt, Report, cut};
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A job that has been accepted and has not ended.
pub(crate) struct LiveJob {
    pub(super) task: String,
    pub(super) media_type: MediaType,
    pub(super) input: Bytes,
    /// The name of the job's client; empty if it has none.
    pub(super) client: String,
    /// The account that the job's bytes are charged to: the client's name as it is shown.
    pub(super) account: Arc<str>,
    /// The options as they were submitted, for a retry.
    pub(super) options: SubmitOptions,
    /// The state from which the next attempt resumes.
    pub(super) checkpoint: Option<Bytes>,
    pub(super) subscribers: Vec<Subscriber>,
    /// The parts of its output that have come.
    pub(super) parts: Option<Box<LiveParts>>,
    /// Keeps the event loop alive until the job ends.
    _hold: Hold,
}

/// The function that a subscriber calls when its job has ended.
type OnFinished = Box<dyn FnOnce(Finished, OutputCharge, &mut Context)>;

/// A callback that is told how a job ended.
pub(crate) struct Subscriber {
    /// The place in the source where the subscriber was registered, by which a slow one can be named.
    site: &'static Location<'static>,
    /// The client connection that the subscriber reports to. None if the subscriber is part of this program.
    connection: Option<u64>,
    call: OnFinished,
}

impl Subscriber {
    /// A subscriber that is part of this program. The output is not charged to anybody once the subscriber has it.
    #[track_caller]
    pub(crate) fn new(call: impl FnOnce(Finished, &mut Context) + 'static) -> Subscriber {
        let call = move |finished, held, cx: &mut Context| {
            drop(held);
            call(finished, cx);
        };
        Subscriber { site: Location::caller(), connection: None, call: Box::new(call) }
    }

    /// A subscriber that is part of this program, and also gets the charge for the output.
    #[track_caller]
    pub(crate) fn holding(call: impl FnOnce(Finished, OutputCharge, &mut Context) + 'static) -> Subscriber {
        Subscriber { site: Location::caller(), connection: None, call: Box::new(call) }
    }

    /// A subscriber that reports to a client connection. It also gets the charge for the output: the output stays on
    /// the account of the job's client until that is dropped.
    #[track_caller]
    pub(crate) fn of_connection(
        id: u64,
        call: impl FnOnce(Finished, OutputCharge, &mut Context) + 'static,
    ) -> Subscriber {
        Subscriber { site: Location::caller(), connection: Some(id), call: Box::new(call) }
    }

    /// The client connection that the subscriber reports to, if there is one.
    pub(super) fn connection(&self) -> Option<u64> {
        self.connection
    }

    /// Calls the subscriber. Only the event loop does this, never the hub, because the subscriber may call the hub to
    /// submit more jobs.
    pub(crate) fn call(self, finished: Finished, held: OutputCharge, cx: &mut Context) {
        (self.call)(finished, held, cx);
    }

    /// The place in the source where the subscriber was registered.
    pub(crate) fn site(&self) -> &'static Location<'static> {
        self.site
    }
}

impl LiveJob {
    pub(super) fn new(job: Job, account: Arc<str>, subscriber: Option<Subscriber>, hold: Hold) -> LiveJob {
        LiveJob {
            account,
            task: job.task,
            media_type: job.media_type,
            input: job.input,
            client: cut(&job.client, NAME_MAX).to_owned(),
            options: job.options,
            checkpoint: None,
            // Nearly all jobs have one subscriber, and never another: room for one.
            subscribers: subscriber.map_or_else(Vec::new, |subscriber| vec![subscriber]),
            parts: None,
            _hold: hold,
        }
    }
}

impl Hub {
    /// A job has ended with this output: stores what is to be remembered, and has the subscribers called.
    pub(super) fn finish(&mut self, ended: &Ended, mut output: Payload) {
        let Some(mut live_job) = self.records.close(ended.job) else { return };
        let output_bytes = self.whole_output(ended, &mut live_job, &mut output);
        let Payload { media_type, bytes: output } = output;
        let report = self.report(ended, &live_job, media_type, output_bytes);
        let held = self.records.charge_output(&live_job.account, output.len() as u64);
        let finished = Finished { report, output };
        let age = ended.queued + ended.run + ended.returned;
        if let Some(letter) = ended.letter {
            self.add_dead_letter(ended, letter, &live_job, &finished.report);
        }
        let lost = self.attempt_views(&ended.lost);
        let bytes = PROMISE_BYTES + ended.text_bytes();
        let details = EndedJobDetails { client: live_job.account.to_string(), age, lost, bytes };
        self.records.finished_mut().remember(ended.job, &finished, ended.keep, details);
        self.make_room_for_promises();
        // A job may have a thousand subscribers. They share the report and the output until each is called.
        let finished = Rc::new(finished);
        for subscriber in live_job.subscribers {
            let (finished, held) = (Rc::clone(&finished), held.clone());
            self.handle.set_pending_at(subscriber.site(), move |cx| {
                subscriber.call(Rc::unwrap_or_clone(finished), held, cx);
            });
        }
    }

    /// What was promised for a job is over.
    pub(super) fn end_promise(&mut self, job: JobId, why: Released) {
        self.records.finished_mut().release(job, why);
        self.make_room_for_promises();
    }

    /// Forgets collected outputs that no longer fit into the room that promises leave.
    fn make_room_for_promises(&mut self) {
        let promised = self.core.promises().kept().all().bytes;
        let most = self.core.config().max_kept_bytes.saturating_sub(promised);
        self.records.finished_mut().forget_collected_over(most);
    }

    /// Ends all jobs, because nobody will run them any more. Their subscribers are called.
    pub(super) fn cancel_live_jobs(&mut self) {
        for (job, live_job) in self.records.close_all() {
            let message = "the pool was dropped".to_owned();
            let code = OutcomeCode::Cancelled;
            let mut finished = refusal(&live_job.task, ErrorDetail::new(code, message));
            finished.report.job = self.name(job);
            for subscriber in live_job.subscribers {
                let (finished, held) = (finished.clone(), OutputCharge::none());
                self.handle.set_pending_at(subscriber.site(), move |cx| subscriber.call(finished, held, cx));
            }
        }
    }

    fn report(&self, ended: &Ended, live_job: &LiveJob, media_type: MediaType, output_bytes: u64) -> Report {
        let place = ended.place;
        Report {
            job: self.name(ended.job),
            task: live_job.task.clone(),
            outcome: ended.outcome,
            error: ended.error.clone(),
            attempts: ended.attempts,
            receipt: Receipt {
                queued_us: micros(ended.queued),
                run_us: micros(ended.run),
                returned_us: micros(ended.returned),
                worker_pid: place.and_then(|place| self.processes.pid(place.worker)).unwrap_or(0),
                slot: place.and_then(|place| u32::try_from(place.slot).ok()).unwrap_or(0),
                incarnation: place.map_or(0, |place| place.incarnation),
                input_bytes: live_job.input.len() as u64,
                output_bytes,
                usage: ended.usage,
            },
            media_type,
            metadata: live_job.options.metadata.clone(),
            labels: live_job.options.labels.clone(),
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

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
