//! A job from its acceptance to its end: its input, its options, and the listeners that are called when it ends. The
//! core knows the job by its number only.

use super::finished::Ending;
use super::holding::Undelivered;
use super::{Hub, Payload};
use crate::job::{Finished, Job};
use bytes::Bytes;
use offload_core::action::{Ended, Released};
use offload_core::ids::JobId;
use offload_core::limits::PROMISE_BYTES;
use offload_event_loop::{Context, Hold};
use offload_protocol::limits::LABEL_MAX;
use offload_protocol::messages::SubmitOptions;
use offload_protocol::nouns::{ContentType, ErrorDetail, OutcomeCode, Receipt, Report, cut};
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A job that has been accepted and has not ended.
pub(crate) struct Order {
    pub(super) task: String,
    pub(super) content: ContentType,
    pub(super) input: Bytes,
    /// The name of its client, if it has one.
    pub(super) client: String,
    /// On whose account its bytes are: the client as it is shown.
    pub(super) account: Arc<str>,
    /// As it was submitted, for whoever wants it done again.
    pub(super) options: SubmitOptions,
    /// The state that the next attempt goes on from.
    pub(super) checkpoint: Option<Bytes>,
    pub(super) listeners: Vec<Listener>,
    /// The loop goes on while a job is awaited.
    _hold: Hold,
}

/// What is done when a job has ended.
type Call = Box<dyn FnOnce(Finished, Undelivered, &mut Context)>;

/// Who is told how a job ended.
pub(crate) struct Listener {
    /// Where it was registered, so that a slow one can be named.
    site: &'static Location<'static>,
    /// Over which connection it tells somebody; none if it is part of this program.
    connection: Option<u64>,
    call: Call,
}

impl Listener {
    /// One that is part of this program: what it does with the output is its own affair.
    #[track_caller]
    pub(crate) fn new(call: impl FnOnce(Finished, &mut Context) + 'static) -> Listener {
        let call = move |finished, held, cx: &mut Context| {
            drop(held);
            call(finished, cx);
        };
        Listener { site: Location::caller(), connection: None, call: Box::new(call) }
    }

    /// One that tells somebody over this connection. It holds the output: that is on the account of the job's client
    /// until the other is dropped.
    #[track_caller]
    pub(crate) fn of_connection(
        id: u64,
        call: impl FnOnce(Finished, Undelivered, &mut Context) + 'static,
    ) -> Listener {
        Listener { site: Location::caller(), connection: Some(id), call: Box::new(call) }
    }

    /// Over which connection it tells somebody.
    pub(super) fn connection(&self) -> Option<u64> {
        self.connection
    }

    /// Tells it. Only the loop does this, never the hub: it may come back and submit more.
    pub(crate) fn call(self, finished: Finished, held: Undelivered, cx: &mut Context) {
        (self.call)(finished, held, cx);
    }

    /// Where it was registered.
    pub(crate) fn site(&self) -> &'static Location<'static> {
        self.site
    }
}

impl Order {
    pub(super) fn new(job: Job, account: &str, listener: Option<Listener>, hold: Hold) -> Order {
        Order {
            account: Arc::from(account),
            task: job.task,
            content: job.content,
            input: job.input,
            client: cut(&job.client, LABEL_MAX).to_owned(),
            options: job.options,
            checkpoint: None,
            listeners: listener.into_iter().collect(),
            _hold: hold,
        }
    }
}

impl Hub {
    /// A job has ended, and this is what it returned: remember it, and have its listeners called.
    pub(super) fn finish(&mut self, ended: &Ended, output: Payload) {
        let Some(order) = self.records.close(ended.job) else { return };
        let Payload { content, bytes: output } = output;
        let report = self.report(ended, &order, content, output.len());
        let held = self.records.undelivered(&order.account, output.len() as u64);
        let finished = Finished { report, output };
        let age = ended.queued + ended.run + ended.returned;
        if let Some(letter) = ended.letter {
            self.add_dead_letter(ended, letter, &order, &finished.report);
        }
        let lost = self.attempt_views(&ended.lost);
        let bytes = PROMISE_BYTES + ended.text_bytes();
        let record = Ending { client: order.account.to_string(), age, lost, bytes };
        self.records.finished_mut().remember(ended.job, &finished, ended.keep, record);
        self.make_room_for_promises();
        // There may be a thousand of them: they share it until it is their turn.
        let finished = Rc::new(finished);
        for listener in order.listeners {
            let (finished, held) = (Rc::clone(&finished), held.clone());
            self.handle.set_pending_at(listener.site(), move |cx| {
                listener.call(Rc::unwrap_or_clone(finished), held, cx);
            });
        }
    }

    /// What was promised of a job is over.
    pub(super) fn end_promise(&mut self, job: JobId, why: Released) {
        self.records.finished_mut().release(job, why);
        self.make_room_for_promises();
    }

    /// What is remembered as a courtesy takes the room that promises leave.
    fn make_room_for_promises(&mut self) {
        let promised = self.core.promises().kept().all().bytes;
        let most = self.core.config().max_kept_bytes.saturating_sub(promised);
        self.records.finished_mut().forget_collected_over(most);
    }

    /// Nobody will do what was ordered.
    pub(super) fn give_up_orders(&mut self) {
        for (job, order) in self.records.close_all() {
            let message = "the pool was dropped".to_owned();
            let code = OutcomeCode::Cancelled;
            let mut finished = refusal(&order.task, ErrorDetail::new(code, message));
            finished.report.job = self.name(job);
            for listener in order.listeners {
                let (finished, held) = (finished.clone(), Undelivered::nothing());
                self.handle.set_pending_at(listener.site(), move |cx| listener.call(finished, held, cx));
            }
        }
    }

    fn report(&self, ended: &Ended, order: &Order, content: ContentType, output_bytes: usize) -> Report {
        let place = ended.place;
        Report {
            job: self.name(ended.job),
            task: order.task.clone(),
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
                input_bytes: order.input.len() as u64,
                output_bytes: output_bytes as u64,
                usage: ended.usage,
            },
            content,
        }
    }
}

/// What is said of a job that was refused: it never got an id.
pub(super) fn refusal(task: &str, error: ErrorDetail) -> Finished {
    let report = Report {
        job: String::new(),
        task: task.to_owned(),
        outcome: error.code,
        error: Some(error),
        attempts: 0,
        receipt: Receipt::default(),
        content: ContentType::default(),
    };
    Finished { report, output: Bytes::new() }
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
