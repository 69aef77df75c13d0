//! How workers introduce themselves: hello, one offer per task, ready. The core is told of a worker when it is ready, with
//! what its tasks promise. What they take, give and need stays here, for whoever asks; nothing is decided by it.
//!
//! ```text
//!   Hello ---> Offering --- Ready ---> Complete: the core is told --- the core has it ready ---> its program's
//!              |      ^                                                                          descriptions
//!              '-Offer' bounded in number and bytes
//! ```
//!
//! The processes of a program usually describe the same, so one set of descriptions is kept for each program: that of
//! the process which became ready last.

use super::{Hub, PendingEvent};
use bytes::Bytes;
use offload_core::event::Event;
use offload_core::ids::{ProgramIndex, WorkerId};
use offload_protocol::greeting::Greeting;
use offload_protocol::limits::{OFFERS_BYTES_MAX, SDK_NAME_MAX, TASKS_OFFERED_MAX};
use offload_protocol::messages::{
    BATCHES, FILES, FromWorker, LINGERING, PARTS, PREFETCH, PROGRAMS, ToWorker, VERSION_MAJOR, VERSION_MINOR,
    WORKER_MAGIC, shared_capabilities,
};
use offload_protocol::nouns::{Batching, DescribedTask, TaskOffer, cut};
use std::collections::BTreeMap;

/// What tasks say of themselves, by name.
pub(super) type Descriptions = BTreeMap<String, DescribedTask>;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Introductions {
    workers: BTreeMap<WorkerId, Stage>,
    /// The workers that have said hello and were not answered, and the capabilities that they share with this supervisor.
    greeted: Vec<(WorkerId, u64)>,
    programs: BTreeMap<ProgramIndex, Descriptions>,
    /// How often these have changed.
    changes: u64,
}

/// How far a worker is.
enum Stage {
    Offering(Offering),
    Complete {
        sdk: String,
        capabilities: u64,
        /// Until they are those of the program.
        descriptions: Option<Descriptions>,
    },
}

#[derive(Default)]
struct Offering {
    sdk: String,
    capabilities: u64,
    tasks: Vec<TaskOffer<'static>>,
    descriptions: Descriptions,
    bytes: usize,
}

impl Introductions {
    /// A worker has sent its hello, with its capabilities and the library that it is written with.
    pub(super) fn hello(
        &mut self,
        worker: WorkerId,
        greeting: Greeting,
        (capabilities, sdk): (u64, &str),
    ) -> Option<Event> {
        if greeting.magic != WORKER_MAGIC {
            return Some(unfit(worker, "its hello has the wrong magic".to_owned()));
        }
        if greeting.is_foreign() {
            return Some(unfit(worker, greeting.foreign_worker()));
        }
        match self.workers.get(&worker) {
            None if sdk.len() > SDK_NAME_MAX => {
                let length = sdk.len();
                let message =
                    format!("the name of its library has {length} bytes, {SDK_NAME_MAX} are allowed");
                Some(unfit(worker, message))
            }
            None => {
                let sdk = sdk.to_owned();
                let capabilities = shared_capabilities(capabilities);
                let offering = Offering { sdk, capabilities, ..Offering::default() };
                self.workers.insert(worker, Stage::Offering(offering));
                self.greeted.push((worker, capabilities));
                None
            }
            // The core knows what to do with a worker that says hello again.
            Some(Stage::Complete { .. }) => {
                Some(Event::Hello { worker, tasks: Vec::new(), takes_files: false })
            }
            Some(Stage::Offering(_)) => Some(violation(worker, "said hello again")),
        }
    }

    /// A worker has offered a task.
    pub(super) fn offer(
        &mut self,
        worker: WorkerId,
        task: TaskOffer<'_>,
        described: Result<DescribedTask, String>,
    ) -> Option<Event> {
        let Some(Stage::Offering(offering)) = self.workers.get_mut(&worker) else {
            return Some(violation(worker, "it offers a task where it may not"));
        };
        let described = match described {
            Ok(described) => described,
            Err(why) => {
                let name = cut(&task.name, offload_protocol::limits::TASK_NAME_MAX);
                return Some(unfit(worker, format!("its offer of the task {name:?} is not valid: {why}")));
            }
        };
        offering.bytes += size(&task, &described);
        if offering.tasks.len() >= TASKS_OFFERED_MAX || offering.bytes > OFFERS_BYTES_MAX {
            self.workers.insert(worker, Stage::Offering(Offering::default()));
            let message = format!(
                "it offers more than {TASKS_OFFERED_MAX} tasks, or they take more than {OFFERS_BYTES_MAX} bytes"
            );
            return Some(unfit(worker, message));
        }
        offering.descriptions.insert(task.name.to_string(), described);
        offering.tasks.push(task.into_owned());
        None
    }

    /// The task that a worker offered last takes several jobs at once.
    fn offer_batch(&mut self, worker: WorkerId, batching: Batching) -> Option<Event> {
        let offering = match self.workers.get_mut(&worker) {
            Some(Stage::Offering(offering)) if offering.capabilities & BATCHES != 0 => offering,
            _ => return Some(violation(worker, "it speaks of batches where it may not")),
        };
        let Some(task) = offering.tasks.last_mut().filter(|task| task.batching.is_none()) else {
            return Some(violation(worker, "it speaks of batches of no task, or twice of the same"));
        };
        task.batching = Some(batching);
        let why = task.check_batching().err()?;
        Some(unfit(worker, format!("its offer of the task {:?} is not valid: {why}", task.name)))
    }

    /// A worker has said that it is ready for jobs.
    pub(super) fn ready(&mut self, worker: WorkerId) -> Option<Event> {
        let Some(Stage::Offering(offering)) = self.workers.get_mut(&worker) else {
            return Some(violation(worker, "it says that it is ready where it may not"));
        };
        let Offering { sdk, capabilities, tasks, descriptions, .. } = std::mem::take(offering);
        let descriptions = Some(descriptions);
        self.workers.insert(worker, Stage::Complete { sdk, capabilities, descriptions });
        Some(Event::Hello { worker, tasks, takes_files: capabilities & FILES != 0 })
    }

    /// The core has this worker of this program ready: what it describes now counts. Returns the library that it is
    /// written with.
    pub(super) fn settle(&mut self, worker: WorkerId, program: ProgramIndex) -> &str {
        let Some(Stage::Complete { sdk, descriptions, .. }) = self.workers.get_mut(&worker) else {
            return "";
        };
        if let Some(descriptions) = descriptions.take().filter(|new| self.programs.get(&program) != Some(new))
        {
            self.programs.insert(program, descriptions);
            self.changes += 1;
        }
        sdk
    }

    /// The tasks of a program say this of themselves.
    pub(super) fn describe(&mut self, program: ProgramIndex, descriptions: Descriptions) {
        self.programs.insert(program, descriptions);
        self.changes += 1;
    }

    /// How often something has changed that [`described`](Introductions::described) says.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// What a task of a program says of itself.
    pub(super) fn described(&self, program: ProgramIndex, task: &str) -> Option<&DescribedTask> {
        self.programs.get(&program)?.get(task)
    }

    /// Whether a worker has stated this capability, and so has this supervisor.
    pub(super) fn can(&self, worker: WorkerId, capability: u64) -> bool {
        let shared = match self.workers.get(&worker) {
            Some(Stage::Complete { capabilities, .. }) => *capabilities,
            Some(Stage::Offering(_)) | None => 0,
        };
        shared & capability != 0
    }

    /// Whether a worker has said hello.
    pub(super) fn has_begun(&self, worker: WorkerId) -> bool {
        self.workers.contains_key(&worker)
    }

    /// A worker is gone.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.workers.remove(&worker);
    }
}

impl Hub {
    /// Answers the workers that have just said hello.
    pub(super) fn welcome_workers(&mut self) {
        while let Some((worker, shared)) = self.introductions.greeted.pop() {
            let shared = self.agree_on_segments(worker, shared);
            let shared = if self.linger_cores > 1 { shared } else { shared & !LINGERING };
            let tray = if shared & PREFETCH == 0 { None } else { self.trays.make(worker) };
            let welcome = ToWorker::Welcome {
                major: VERSION_MAJOR,
                minor: VERSION_MINOR,
                capabilities: if tray.is_some() { shared } else { shared & !PREFETCH },
                payload_max: self.core.config().max_payload,
            };
            match tray {
                Some(end) => self.processes.send_with(worker, &welcome, end),
                None => self.send(worker, &welcome),
            }
        }
    }
}

/// What became of a message.
pub(super) enum AfterIntroduction<'a> {
    /// It was part of an introduction. An event may follow from it.
    Event(Option<PendingEvent>),
    /// It is another message.
    Other(FromWorker<'a>),
}

/// The event of a message by which a worker introduces itself, if one follows from it; or the message, if it is another.
pub(super) fn take_introduction<'a>(
    introductions: &mut Introductions,
    worker: WorkerId,
    message: FromWorker<'a>,
    payload: &Bytes,
) -> AfterIntroduction<'a> {
    let event = match message {
        FromWorker::Hello { magic, major, minor, capabilities, sdk } if payload.is_empty() => {
            introductions.hello(worker, Greeting { magic, major, minor }, (capabilities, sdk))
        }
        FromWorker::Offer { task, about, example_length, schema_length } => {
            let described = DescribedTask::new(about, payload, example_length, schema_length);
            introductions.offer(worker, task, described)
        }
        FromWorker::OfferBatch { batching } if payload.is_empty() => {
            introductions.offer_batch(worker, batching)
        }
        FromWorker::Ready if payload.is_empty() => introductions.ready(worker),
        FromWorker::Part { .. } if !introductions.can(worker, PARTS) => {
            Some(violation(worker, "it sends an output in parts and has not stated that capability"))
        }
        FromWorker::Program { .. } if !introductions.can(worker, PROGRAMS) => {
            Some(violation(worker, "it speaks of a program and has not stated that capability"))
        }
        other => return AfterIntroduction::Other(other),
    };
    AfterIntroduction::Event(event.map(PendingEvent::from))
}

/// The bytes that an offer takes, about.
fn size(task: &TaskOffer<'_>, described: &DescribedTask) -> usize {
    let types: usize = described.about.accepts.iter().map(|media_type| media_type.as_str().len()).sum();
    let texts = described.about.description.len() + described.about.produces.as_str().len() + types;
    size_of::<DescribedTask>() + task.name.len() + texts + described.example.len() + described.schema.len()
}

fn unfit(worker: WorkerId, message: String) -> Event {
    Event::Unfit { worker, message }
}

fn violation(worker: WorkerId, message: &str) -> Event {
    Event::Violation { worker, message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_protocol::messages::CAPABILITIES;

    const GOOD: Greeting = Greeting { magic: WORKER_MAGIC, major: VERSION_MAJOR, minor: VERSION_MINOR };
    const WORKER: WorkerId = WorkerId(7);

    fn greeted() -> Introductions {
        let mut introductions = Introductions::default();
        assert!(introductions.hello(WORKER, GOOD, (0, "python")).is_none());
        introductions
    }

    fn named(name: &str, schema: &str) -> (TaskOffer<'static>, Result<DescribedTask, String>) {
        let described = DescribedTask { schema: schema.into(), ..DescribedTask::default() };
        (TaskOffer::new(name.to_owned()), Ok(described))
    }

    fn offer(introductions: &mut Introductions, name: &str, schema: &str) -> Option<Event> {
        let (task, described) = named(name, schema);
        introductions.offer(WORKER, task, described)
    }

    #[test]
    fn the_core_hears_of_a_worker_when_it_is_ready_and_its_descriptions_stay_here() {
        let mut introductions = greeted();
        assert!(offer(&mut introductions, "sum", "{}").is_none());
        let event = introductions.ready(WORKER);
        assert!(matches!(event, Some(Event::Hello { tasks, .. }) if tasks == [TaskOffer::new("sum")]));
        assert!(introductions.described(0, "sum").is_none(), "the core has not taken it yet");
        assert_eq!(introductions.settle(WORKER, 0), "python");
        introductions.forget(WORKER);
        assert_eq!(introductions.described(0, "sum").map(|described| &*described.schema), Some("{}"));
    }

    #[test]
    fn batches_are_offered_once_by_who_has_that_capability_and_of_tasks_that_may_have_them() {
        let mut introductions = Introductions::default();
        assert!(introductions.hello(WORKER, GOOD, (BATCHES, "")).is_none());
        let batching = Batching { max: 8, wait_us: 2000 };
        let is_violation = |event: Option<Event>| matches!(event, Some(Event::Violation { .. }));
        assert!(is_violation(introductions.offer_batch(WORKER, batching)), "there is no task");
        let described = || Ok(DescribedTask::default());
        let sum = TaskOffer { idempotent: true, ..TaskOffer::new("sum") };
        assert!(introductions.offer(WORKER, sum.clone(), described()).is_none());
        assert!(introductions.offer_batch(WORKER, batching).is_none());
        assert!(is_violation(introductions.offer_batch(WORKER, batching)));
        let event = introductions.ready(WORKER);
        let batched = TaskOffer { batching: Some(batching), ..sum.clone() };
        assert!(matches!(event, Some(Event::Hello { tasks, .. }) if tasks == [batched]));
        assert!(is_violation(introductions.offer_batch(WORKER, batching)), "it is ready");
        let mut introductions = Introductions::default();
        introductions.hello(WORKER, GOOD, (BATCHES, ""));
        assert!(introductions.offer(WORKER, TaskOffer::new("pay"), described()).is_none());
        is_unfit(
            &introductions.offer_batch(WORKER, batching),
            "\"pay\" is not valid: it takes several jobs at once",
        );
        let mut without = greeted();
        assert!(without.offer(WORKER, sum, described()).is_none());
        assert!(is_violation(without.offer_batch(WORKER, batching)));
    }

    #[test]
    fn a_capability_that_only_the_worker_has_is_not_shared() {
        let mut introductions = Introductions::default();
        let newer = Greeting { minor: VERSION_MINOR + 1, ..GOOD };
        assert!(introductions.hello(WORKER, newer, (u64::MAX, "")).is_none());
        assert_eq!(introductions.greeted, [(WORKER, CAPABILITIES)]);
    }

    #[test]
    fn the_name_of_the_library_has_a_bound() {
        let hello = |length| Introductions::default().hello(WORKER, GOOD, (0, &"x".repeat(length)));
        assert!(hello(SDK_NAME_MAX).is_none());
        is_unfit(&hello(SDK_NAME_MAX + 1), "its library has 65 bytes, 64 are allowed");
    }

    #[test]
    fn another_order_breaks_the_protocol() {
        let is_violation = |event: Option<Event>| matches!(event, Some(Event::Violation { .. }));
        let mut silent = Introductions::default();
        assert!(is_violation(silent.ready(WORKER)) && is_violation(offer(&mut silent, "sum", "")));
        let mut introductions = greeted();
        assert!(is_violation(introductions.hello(WORKER, GOOD, (0, ""))));
        assert!(introductions.ready(WORKER).is_some());
        assert!(
            is_violation(introductions.ready(WORKER)) && is_violation(offer(&mut introductions, "sum", ""))
        );
        assert!(matches!(introductions.hello(WORKER, GOOD, (0, "")), Some(Event::Hello { .. })));
    }

    #[track_caller]
    fn is_unfit(event: &Option<Event>, part: &str) {
        assert!(matches!(event, Some(Event::Unfit { message, .. }) if message.contains(part)), "{event:?}");
    }

    #[test]
    fn who_offers_too_much_or_speaks_another_version_is_told_so() {
        let mut introductions = greeted();
        for number in 0..TASKS_OFFERED_MAX {
            assert!(offer(&mut introductions, &format!("t{number}"), "").is_none());
        }
        is_unfit(&offer(&mut introductions, "last", ""), "more than 4096 tasks");
        let mut introductions = greeted();
        let long = "x".repeat(60_000);
        for number in 0..OFFERS_BYTES_MAX / 61_000 {
            assert!(offer(&mut introductions, &format!("t{number}"), &long).is_none());
        }
        is_unfit(&offer(&mut introductions, "last", &long), "more than 1048576 bytes");
        let bad = introductions.offer(WORKER, TaskOffer::new("sum"), Err("it is odd".to_owned()));
        is_unfit(&bad, "its offer of the task \"sum\" is not valid: it is odd");
        let mut introductions = Introductions::default();
        is_unfit(&introductions.hello(WORKER, Greeting { major: 2, ..GOOD }, (0, "")), "rebuild the worker");
        is_unfit(
            &introductions.hello(WORKER, Greeting { magic: *b"OFFLOADC", ..GOOD }, (0, "")),
            "wrong magic",
        );
    }
}
