//! The life of a worker: one job after another. Each job is announced before it starts, and answered when it has ended.
//!
//! ```text
//!   greeting --- Hello is written ------> idle <------------------------------.
//!                                          |  |                               |
//!            a job, as it comes or waiting |  | Drain and no job waiting,     | the answer waits for the next
//!                                          |  | or the supervisor is gone     | flush: before the next job's
//!                                          v  `---> ended                     | start, or before waiting
//!                                       starting                              |
//!                                          | Started is written               |
//!                                          v                                  |
//!                                       running --- returns, fails, panics ---|
//!                                          | has only begun                   |
//!                                          v                                  |
//!                                       stepping -- breaks, fails, panics, ---'
//!                                                   is cancelled or given back
//! ```
//!
//! Started is written before the task gets its input, and before an input that is a file is read. So if the process ends after that, this job is to blame and no other.
//! The same write carries the answer to the job before. The picture of what happens between two steps is in
//! `session/stepping.rs`: there a second job may go from starting to its answer. Jobs that run together are in
//! `session/batches.rs`.

mod batches;
mod stepping;

use crate::behind::Behind;
use crate::context::{Attempt, TaskContext};
use crate::inbox::{Due, Job};
use crate::link::{Link, Stop};
use crate::parts::Parts;
use crate::progress::Progress;
use crate::session_error::SessionError;
use crate::task::{Given, Output, Ran, Task};
use crate::usage::{Meter, Reading, Spent};
use bytes::Bytes;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use offload_protocol::limits::{MESSAGE_MAX, PAYLOAD_MAX_CEILING};
use offload_protocol::messages::{
    BATCHES, CAPABILITIES, ENDS, FromWorker, PARTS, REASONS, SEGMENTS, VERSION_MAJOR, VERSION_MINOR,
    WORKER_MAGIC,
};
use offload_protocol::nouns::{DescribedTask, FailureKind, cut};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// See the module's documentation.
struct Session {
    tasks: Vec<Task>,
    link: Link,
    output_max: usize,
    reading: Reading,
}

/// How an attempt ended.
enum Ended {
    Returned(Output),
    Failed(FailureKind, String),
    /// The state from which another attempt goes on.
    GivenBack(Bytes),
}

/// Serves the supervisor at the other end of `stream` until it sends Drain or is gone. A job whose output has more than
/// `output_max` bytes is answered with an error.
pub(crate) fn serve(tasks: Vec<Task>, stream: UnixStream, output_max: usize) -> Result<(), SessionError> {
    serve_while(tasks, stream, output_max, None)
}

/// As [`serve`], and not longer than what this worker stands in front of: it ends when that is over while no job runs, and all
/// answers were sent.
pub(crate) fn serve_while(
    tasks: Vec<Task>,
    stream: UnixStream,
    output_max: usize,
    behind: Option<Box<dyn Behind>>,
) -> Result<(), SessionError> {
    let link = Link::new(stream, behind).map_err(SessionError::Io)?;
    let output_max = output_max.min(PAYLOAD_MAX_CEILING);
    let mut session = Session { tasks, link, output_max, reading: Reading::new() };
    match session.run() {
        Ok(()) | Err(Stop::SupervisorGone | Stop::LifeIsOver) => Ok(()),
        Err(Stop::Error(error)) => Err(error),
    }
}

impl Session {
    fn run(&mut self) -> Result<(), Stop> {
        self.greet()?;
        while let Some(due) = self.link.next_jobs()? {
            self.run_due(due)?;
        }
        Ok(())
    }

    fn greet(&mut self) -> Result<(), Stop> {
        let hello = FromWorker::Hello {
            magic: WORKER_MAGIC,
            major: VERSION_MAJOR,
            minor: VERSION_MINOR,
            capabilities: capabilities(),
            sdk: SDK,
        };
        self.link.push(&hello, &Bytes::new());
        // Whether it may be said which tasks take several jobs at once, the supervisor has to say.
        let has_batches = self.tasks.iter().any(|task| task.offer().batching.is_some());
        if has_batches {
            self.link.wait_for_welcome()?;
        }
        let may_batch = self.link.supervisor_can(BATCHES);
        for task in &self.tasks {
            let (message, texts) = offer(task);
            self.link.push(&message, &texts);
            if let Some(batching) = task.offer().batching.filter(|_| may_batch) {
                self.link.push(&FromWorker::OfferBatch { batching }, &Bytes::new());
            }
        }
        self.link.push(&FromWorker::Ready, &Bytes::new());
        self.link.flush()
    }

    /// Runs what is next, wherever that is: after another job or between its steps. Returns the time and CPU time that it used.
    fn run_due(&mut self, due: Due) -> Result<Spent, Stop> {
        match due {
            Due::One(job) => self.run_job(job),
            Due::Together(jobs) => self.run_together(jobs),
        }
    }

    /// Runs a job, from Started to its answer.
    fn run_job(&mut self, job: Job) -> Result<Spent, Stop> {
        let Job { id, attempt: number, task, input, checkpoint, timeout, deadline, metadata } = job;
        let index = self.index_of(&task)?;
        self.link.get_ready()?;
        self.link.push(&FromWorker::Started { job: id, attempt: number }, &Bytes::new());
        self.link.flush()?;

        let now = Instant::now();
        let progress = Progress::new(self.tasks[index].promise(), now);
        let over_at = timeout.and_then(|longest| now.checked_add(longest)).into_iter().chain(deadline).min();
        let (meter, parts) = (Meter::start(&mut self.reading, now), self.parts_of(index));
        let mut attempt = Attempt { job: id, number, over_at, metadata, meter, progress, parts };
        let ended = match input.read() {
            Ok(input) => {
                self.run_task(index, Given { input, checkpoint, may_start_anew: false }, &mut attempt)?
            }
            Err(why) => Ended::Failed(FailureKind::AppError, why),
        };
        let now = Instant::now();
        let spent = attempt.meter.stop(&mut self.reading, now);

        self.answer((id, number), ended, spent);
        self.link.ended(now, spent.run);
        Ok(spent)
    }

    fn index_of(&self, task: &str) -> Result<usize, Stop> {
        let index = self.tasks.iter().position(|offered| offered.name() == task);
        index.ok_or_else(|| Stop::Error(SessionError::UnknownTask(task.to_owned())))
    }

    /// Where the parts of this task's output go.
    fn parts_of(&self, index: usize) -> Parts {
        if self.tasks[index].offer().stepped {
            Parts::None
        } else if self.link.supervisor_can(PARTS) {
            Parts::Sent
        } else {
            Parts::Kept(Vec::new())
        }
    }

    fn run_task(&mut self, index: usize, given: Given, attempt: &mut Attempt) -> Result<Ended, Stop> {
        let task = &mut self.tasks[index];
        let mut context = TaskContext::new(attempt, &mut self.link);
        match task.run(given, &mut context) {
            Ok(Ran::Output(output)) => Ok(Ended::Returned(attempt.parts.complete(output))),
            Ok(Ran::Steps(steps)) => self.run_steps(steps, attempt),
            Err(error) => Ok(Ended::Failed(error.kind(), error.to_string())),
        }
    }

    fn answer(&mut self, (job, attempt): (u64, u32), ended: Ended, spent: Spent) {
        let Spent { run, usage } = spent;
        let run_ns = u64::try_from(run.as_nanos()).unwrap_or(u64::MAX);
        let (message, payload) = match bounded(ended, self.link.payload_max().unwrap_or(self.output_max)) {
            Ended::Returned(Output { bytes, media_type }) => {
                (FromWorker::Finished { job, attempt, run_ns, media_type, usage }, bytes)
            }
            Ended::GivenBack(state) => (FromWorker::Yielded { job, attempt, run_ns, usage }, state),
            Ended::Failed(kind, message) => {
                let message = cut(&message, MESSAGE_MAX).to_owned().into();
                let kind = understood(kind, |capability| self.link.supervisor_can(capability));
                (FromWorker::Failed { job, attempt, run_ns, kind, message, usage }, Bytes::new())
            }
        };
        self.link.answer(job, &message, payload);
    }
}

/// What this worker can do. Where the address space is limited, no segments: they would take it from the tasks.
pub(crate) fn capabilities() -> u64 {
    match getrlimit(Resource::RLIMIT_AS) {
        Ok((RLIM_INFINITY, _)) => CAPABILITIES,
        _ => CAPABILITIES & !SEGMENTS,
    }
}

/// The name of this library, for people.
const SDK: &str = concat!("offload-worker ", env!("CARGO_PKG_VERSION"));

/// The offer of a task, and its payload.
fn offer(task: &Task) -> (FromWorker<'_>, Bytes) {
    let DescribedTask { about, example, schema } = task.described();
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("checked when the task was registered");
    let message = FromWorker::Offer {
        task: task.offer(),
        about: about.clone(),
        example_length: length(example),
        schema_length: length(schema.as_bytes()),
    };
    (message, [example, schema.as_bytes()].concat().into())
}

/// The kind, if the supervisor understands it, and otherwise that the task returned an error.
fn understood(kind: FailureKind, supervisor_can: impl Fn(u64) -> bool) -> FailureKind {
    let is_understood = match kind {
        FailureKind::AppError | FailureKind::Panic => true,
        FailureKind::Exited { .. }
        | FailureKind::Signalled { .. }
        | FailureKind::TimedOut
        | FailureKind::OutOfMemory => supervisor_can(ENDS),
        FailureKind::Deliberate => supervisor_can(REASONS),
    };
    if is_understood { kind } else { FailureKind::AppError }
}

/// Turns an output that cannot be sent into a failure.
fn bounded(ended: Ended, output_max: usize) -> Ended {
    match ended {
        Ended::Returned(output) if output.bytes.len() > output_max => {
            let length = output.bytes.len();
            let message = format!("the output has {length} bytes, at most {output_max} can be sent");
            Ended::Failed(FailureKind::AppError, message)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::TaskError;
    use crate::test_supervisor::{Said, Serving, TestSupervisor};
    use crate::worker::Worker;
    use offload_protocol::messages::ToWorker;
    use offload_protocol::nouns::{Lane, MediaType, Metadata, TaskDescription, TaskOffer, Usage};
    use std::os::fd::OwnedFd;
    use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};

    fn started(job: u64) -> Said {
        Said::Started { job, attempt: 1 }
    }

    fn finished(job: u64, output: &str) -> Said {
        Said::Finished { job, attempt: 1, media_type: MediaType::JSON, output: output.into() }
    }

    fn failed(job: u64, message: &str) -> Said {
        Said::Failed { job, attempt: 1, kind: FailureKind::AppError, message: message.into() }
    }

    /// A worker with a task `add`, and one `wait` that returns when the test lets it, with whether it was cancelled.
    fn adder_and_waiter() -> (TestSupervisor, Serving, Sender<()>) {
        let (release, released): (Sender<()>, Receiver<()>) = mpsc::channel();
        let (supervisor, serving) = TestSupervisor::of(move || {
            let add = |(a, b): (i64, i64), _: &mut TaskContext| a.checked_add(b).ok_or("too big");
            let wait = move |(): (), context: &mut TaskContext| {
                released.recv().map(|()| context.is_cancelled()).map_err(|_| "the test is over")
            };
            Worker::new().json("add", add).json("wait", wait)
        });
        (supervisor, serving, release)
    }

    #[test]
    fn hello_offers_the_tasks_with_what_they_promise() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let unit = |name| Task::json(name, |(): (), _| Ok::<_, TaskError>(()));
        let worker = Worker::new().with(unit("a").idempotent().lane(Lane::Io)).with(unit("b"));
        let mut supervisor = TestSupervisor::new(ours);
        supervisor.add(&ToWorker::Drain, "").send();
        worker.serve_on(theirs).unwrap();
        let offers = supervisor.hear_offers();
        let promises: Vec<_> = offers.iter().map(|(offer, _)| offer.clone()).collect();
        let idempotent = TaskOffer { idempotent: true, lane: Lane::Io, ..TaskOffer::new("a") };
        assert_eq!(promises, [idempotent, TaskOffer::new("b")]);
        let json = TaskDescription {
            accepts: vec![MediaType::JSON],
            produces: MediaType::JSON,
            ..TaskDescription::default()
        };
        assert_eq!(offers[1].1, DescribedTask { about: json, ..DescribedTask::default() });
        assert_eq!(supervisor.hear(), Said::Nothing);
    }

    #[test]
    fn a_task_says_of_itself_what_people_need_to_know() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let task = Task::raw("thumbnail", |_, _| Ok(Output::bytes("")))
            .description("makes a picture small")
            .accepts(["image/*".parse().unwrap()])
            .produces(MediaType::PNG)
            .example("an image")
            .schema("{}")
            .needs_memory(1 << 30)
            .exclusive();
        let mut supervisor = TestSupervisor::new(ours);
        supervisor.add(&ToWorker::Drain, "").send();
        Worker::new().with(task).serve_on(theirs).unwrap();
        let [(offer, described)] = supervisor.hear_offers().try_into().unwrap();
        assert_eq!(offer, TaskOffer::new("thumbnail"));
        let DescribedTask { about, example, schema } = described;
        assert_eq!((&*example, &*schema), (&b"an image"[..], "{}"));
        let expected = TaskDescription {
            description: "makes a picture small".to_owned(),
            accepts: vec!["image/*".parse().unwrap()],
            produces: MediaType::PNG,
            streams: false,
            memory_bytes: 1 << 30,
            exclusive: true,
        };
        assert_eq!(about, expected);
    }

    #[test]
    fn a_task_sees_its_metadata_and_how_much_time_is_left() {
        let (mut supervisor, serving) = TestSupervisor::of(|| {
            Worker::new().json("ask", |(): (), context: &mut TaskContext| {
                let left = context.remaining().map(|left| left.as_millis());
                let tenant = context.metadata().get("tenant").map(str::to_owned);
                Ok::<_, TaskError>((left.is_some_and(|left| left > 1000 && left <= 1_800_000), tenant))
            })
        });
        let metadata = Metadata::new(&[("tenant", "blue")]).unwrap();
        let limited = ToWorker::Run {
            job: 1,
            attempt: 1,
            task: "ask",
            media_type: MediaType::JSON,
            timeout_ms: 3_600_000,
            deadline_ms: 1_800_000,
            metadata,
        };
        supervisor.add(&limited, "null").add_run(2, "ask", "null").send();
        assert_eq!(supervisor.hear(), started(1));
        assert_eq!(supervisor.hear(), finished(1, r#"[true,"blue"]"#));
        assert_eq!(supervisor.hear(), started(2));
        assert_eq!(supervisor.hear(), finished(2, "[false,null]"));
        drop(supervisor);
        serving.end().unwrap();
    }

    #[test]
    fn the_supervisor_says_how_long_an_output_may_be_and_another_version_ends_the_session() {
        let welcome = |major| ToWorker::Welcome { major, minor: 0, capabilities: u64::MAX, payload_max: 3 };
        let worker = || Worker::new().raw("echo", |input, _| Ok(Output::bytes(input.bytes)));
        let (mut supervisor, serving) = TestSupervisor::of(worker);
        supervisor.add(&welcome(VERSION_MAJOR), "").add_run(1, "echo", "long").send();
        assert_eq!(supervisor.hear(), started(1));
        assert_eq!(supervisor.hear(), failed(1, "the output has 4 bytes, at most 3 can be sent"));
        drop(supervisor);
        serving.end().unwrap();
        let (mut supervisor, serving) = TestSupervisor::of(worker);
        supervisor.add(&welcome(VERSION_MAJOR + 1), "").send();
        let error = serving.end().unwrap_err().to_string();
        assert!(error.contains("the supervisor speaks protocol 4.0, this worker 3.0"), "{error}");
    }

    #[test]
    fn a_batch_is_run_in_its_order_and_an_error_does_not_stop_it() {
        let (mut supervisor, serving, _release) = adder_and_waiter();
        supervisor
            .add_run(1, "add", "[1, 2]")
            .add_run(2, "add", "[1, \"2\"]")
            .add_run(3, "add", "[3, 4]")
            .send();
        assert_eq!(supervisor.hear(), started(1));
        assert_eq!(supervisor.hear(), finished(1, "3"));
        assert_eq!(supervisor.hear(), started(2));
        let message = "the input is not what this task takes: invalid type: string \"2\", expected i64 \
                       at line 1 column 7";
        assert_eq!(supervisor.hear(), failed(2, message));
        assert_eq!(supervisor.hear(), started(3));
        assert_eq!(supervisor.hear(), finished(3, "7"));
        drop(supervisor);
        serving.end().unwrap();
    }

    #[test]
    fn a_job_is_told_to_have_started_before_its_task_returns_and_the_one_before_is_answered() {
        let (mut supervisor, _serving, release) = adder_and_waiter();
        supervisor.add_run(1, "add", "[1, 2]").add_run(2, "wait", "null").send();
        assert_eq!(supervisor.hear(), started(1));
        assert_eq!(supervisor.hear(), finished(1, "3"));
        assert_eq!(supervisor.hear(), started(2));
        release.send(()).unwrap();
        assert_eq!(supervisor.hear(), finished(2, "false"));
    }

    /// Its first job begins at once, and each further one when the test says so.
    struct SlowToGetReady(Receiver<()>);

    impl Behind for SlowToGetReady {
        fn watched(&self) -> &[OwnedFd] {
            &[]
        }

        fn look(&mut self, _: bool) -> bool {
            true
        }

        fn get_ready(&mut self, _: bool) -> bool {
            self.0.recv().is_ok()
        }
    }

    #[test]
    fn a_job_is_answered_while_what_the_worker_stands_in_front_of_gets_ready_for_the_next_one() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (get_ready, may_get_ready) = mpsc::channel();
        let serving = std::thread::spawn(move || {
            let same = Task::json("same", |n: u32, _| Ok::<_, TaskError>(n));
            serve_while(vec![same], theirs, 100, Some(Box::new(SlowToGetReady(may_get_ready))))
        });
        let mut supervisor = TestSupervisor::new(ours);
        supervisor.hear_offers();
        get_ready.send(()).unwrap();
        supervisor.add_run(1, "same", "1").add_run(2, "same", "2").add(&ToWorker::Drain, "").send();
        assert_eq!(supervisor.hear(), started(1));
        assert_eq!(supervisor.hear(), finished(1, "1"));
        get_ready.send(()).unwrap();
        assert_eq!(supervisor.hear(), started(2));
        assert_eq!(supervisor.hear(), finished(2, "2"));
        serving.join().unwrap().unwrap();
    }

    #[test]
    fn a_panic_fails_its_job_with_the_place_and_the_worker_goes_on() {
        fn halve(n: u32, _: &mut TaskContext) -> Result<u32, TaskError> {
            assert!(n.is_multiple_of(2), "{n} is odd");
            Ok(n / 2)
        }
        let line = line!() - 3;
        let (mut supervisor, serving) = TestSupervisor::of(|| Worker::new().json("halve", halve));
        supervisor.add_run(1, "halve", "7").add_run(2, "halve", "8").send();
        assert_eq!(supervisor.hear(), started(1));
        let message = format!("7 is odd at {}:{line}", file!());
        assert_eq!(supervisor.hear(), Said::Failed { job: 1, attempt: 1, kind: FailureKind::Panic, message });
        assert_eq!(supervisor.hear(), started(2));
        assert_eq!(supervisor.hear(), finished(2, "4"));
        drop(supervisor);
        serving.end().unwrap();
    }

    #[test]
    fn a_job_that_is_cancelled_while_it_waits_is_skipped_when_its_turn_comes() {
        let (mut supervisor, serving, release) = adder_and_waiter();
        supervisor.add_run(1, "wait", "null").add_run(2, "add", "[1, 2]").add_run(3, "add", "[3, 4]").send();
        assert_eq!(supervisor.hear(), started(1));
        supervisor.add(&ToWorker::Cancel { job: 2 }, "").add(&ToWorker::Drain, "").send();
        release.send(()).unwrap();
        assert_eq!(supervisor.hear(), finished(1, "false"));
        assert_eq!(supervisor.hear(), Said::Skipped { job: 2 });
        assert_eq!(supervisor.hear(), started(3));
        assert_eq!(supervisor.hear(), finished(3, "7"));
        assert_eq!(supervisor.hear(), Said::Nothing);
        serving.end().unwrap();
    }

    #[test]
    fn a_running_task_can_see_that_its_job_is_cancelled() {
        let (mut supervisor, _serving, release) = adder_and_waiter();
        supervisor.add_run(1, "wait", "null").send();
        assert_eq!(supervisor.hear(), started(1));
        supervisor.add(&ToWorker::Cancel { job: 1 }, "").add_run(2, "wait", "null").send();
        release.send(()).unwrap();
        assert_eq!(supervisor.hear(), finished(1, "true"));
        assert_eq!(supervisor.hear(), started(2));
        release.send(()).unwrap();
        assert_eq!(supervisor.hear(), finished(2, "false"));
    }

    #[test]
    fn a_running_task_can_see_that_the_supervisor_is_gone() {
        let (mut supervisor, serving, release) = adder_and_waiter();
        supervisor.add_run(1, "wait", "null").add_run(2, "wait", "null").send();
        assert_eq!(supervisor.hear(), started(1));
        supervisor.say_no_more();
        release.send(()).unwrap();
        assert_eq!(supervisor.hear(), Said::Nothing);
        serving.end().unwrap();
    }

    #[test]
    fn drain_lets_the_jobs_that_were_given_finish() {
        let (mut supervisor, serving, _release) = adder_and_waiter();
        supervisor.add_run(1, "add", "[1, 2]").add_run(2, "add", "[3, 4]").add(&ToWorker::Drain, "").send();
        for said in [started(1), finished(1, "3"), started(2), finished(2, "7"), Said::Nothing] {
            assert_eq!(supervisor.hear(), said);
        }
        serving.end().unwrap();
    }

    #[test]
    fn the_end_of_the_stream_is_the_end_of_the_session_even_within_a_frame() {
        let (mut supervisor, serving, _release) = adder_and_waiter();
        supervisor.send_raw(&[30, 0, 0, 0, 0]);
        drop(supervisor);
        serving.end().unwrap();
    }

    #[test]
    fn a_task_that_was_not_offered_ends_the_session() {
        let (mut supervisor, serving, _release) = adder_and_waiter();
        supervisor.add_run(1, "subtract", "[1, 2]").send();
        let error = serving.end().unwrap_err();
        assert_eq!(
            error.to_string(),
            "offload worker: the supervisor asked for task \"subtract\", which is not offered"
        );
        assert_eq!(supervisor.hear(), Said::Nothing);
    }

    #[test]
    fn bytes_that_are_no_message_end_the_session() {
        for garbage in [&[0xff; 8][..], b"\x04\0\0\0\0\0\0\0\x09\0\0\0"] {
            let (mut supervisor, serving, _release) = adder_and_waiter();
            supervisor.send_raw(garbage);
            let error = serving.end().unwrap_err();
            assert!(error.to_string().contains("broke the protocol"), "{error}");
        }
    }

    #[test]
    fn a_large_input_is_handed_over_and_a_large_output_comes_back() {
        let (mut supervisor, serving) = TestSupervisor::of(|| {
            Worker::new().raw("flip", |input, _| {
                let mut bytes =
                    input.bytes.try_into_mut().map_err(|_| TaskError::new("somebody else holds it"))?;
                bytes.reverse();
                Ok(Output::bytes(bytes))
            })
        });
        let large: Vec<u8> = (0..10_000_000_u32).map(|i| i as u8).collect();
        supervisor.add_run(1, "flip", large.clone()).send();
        assert_eq!(supervisor.hear(), started(1));
        let output = large.into_iter().rev().collect();
        let media_type = MediaType::OCTET_STREAM;
        assert_eq!(supervisor.hear(), Said::Finished { job: 1, attempt: 1, media_type, output });
        drop(supervisor);
        serving.end().unwrap();
    }

    #[test]
    fn an_output_over_the_limit_is_an_error_of_its_job() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut supervisor = TestSupervisor::new(ours);
        supervisor.add_run(1, "zeroes", "3").add_run(2, "zeroes", "4").add(&ToWorker::Drain, "").send();
        let zeroes = Task::raw("zeroes", |input, _| Ok(Output::bytes(vec![b'0'; input.json()?])));
        serve(vec![zeroes], theirs, 3).unwrap();
        supervisor.hear_offers();
        assert_eq!(supervisor.hear(), started(1));
        let media_type = MediaType::OCTET_STREAM;
        assert_eq!(
            supervisor.hear(),
            Said::Finished { job: 1, attempt: 1, media_type, output: b"000".to_vec() }
        );
        assert_eq!(supervisor.hear(), started(2));
        assert_eq!(supervisor.hear(), failed(2, "the output has 4 bytes, at most 3 can be sent"));
    }

    #[test]
    fn a_result_that_json_does_not_have_is_an_error_of_its_job() {
        let (mut supervisor, _serving) = TestSupervisor::of(|| {
            let divide = |(a, b): (f64, f64), _: &mut TaskContext| Ok::<_, TaskError>([a / b]);
            Worker::new().json("divide", divide)
        });
        supervisor.add_run(1, "divide", "[1, 0]").add_run(2, "divide", "[1, 2]").send();
        assert_eq!(supervisor.hear(), started(1));
        assert_eq!(
            supervisor.hear(),
            failed(1, "the result is not JSON: JSON cannot represent NaN or an infinity")
        );
        assert_eq!(supervisor.hear(), started(2));
        assert_eq!(supervisor.hear(), finished(2, "[0.5]"));
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let (mut supervisor, _serving) = TestSupervisor::of(|| {
            Worker::new().raw("moan", |_, _| Err(TaskError::new("x".to_owned() + &"ä".repeat(MESSAGE_MAX))))
        });
        supervisor.add_run(1, "moan", "").send();
        assert_eq!(supervisor.hear(), started(1));
        assert_eq!(supervisor.hear(), failed(1, &("x".to_owned() + &"ä".repeat(MESSAGE_MAX / 2 - 1))));
    }

    #[test]
    fn a_task_of_one_piece_can_say_how_far_it_is() {
        let (release, released): (Sender<()>, Receiver<()>) = mpsc::channel();
        let (mut supervisor, _serving) = TestSupervisor::of(move || {
            Worker::new().json("tell", move |(): (), context| {
                while released.try_recv() == Err(TryRecvError::Empty) {
                    context.progress(1, 2);
                }
                Ok::<_, TaskError>(())
            })
        });
        supervisor.add_run(1, "tell", "null").send();
        assert_eq!(supervisor.hear(), started(1));
        assert_eq!(supervisor.hear(), Said::Progress { job: 1, done: 1, total: 2 });
        release.send(()).unwrap();
        assert_eq!(supervisor.hear(), finished(1, "null"));
    }

    #[test]
    fn the_answer_says_what_the_job_has_used() {
        let (mut supervisor, _serving) = TestSupervisor::of_builtin();
        supervisor.add_run(1, "spin", "20").add_run(2, "spin", "wrong").add(&ToWorker::Drain, "").send();
        assert_eq!(supervisor.hear(), started(1));
        assert!(matches!(supervisor.hear(), Said::Finished { .. }));
        let Usage { cpu_user_us, cpu_system_us, peak_rss_bytes } = supervisor.usage;
        assert!(cpu_user_us + cpu_system_us >= 20_000, "{cpu_user_us} us and {cpu_system_us} us");
        assert!(peak_rss_bytes >= 1 << 20, "{peak_rss_bytes} bytes");
        supervisor.usage = Usage::default();
        assert_eq!(supervisor.hear(), started(2));
        assert!(matches!(supervisor.hear(), Said::Failed { .. }));
        assert!(supervisor.usage.peak_rss_bytes >= peak_rss_bytes, "a failure has its price too");
    }

    #[test]
    fn a_socket_that_was_made_non_blocking_serves_as_well() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let serving = std::thread::spawn(|| Worker::new().serve_on(theirs));
        let mut supervisor = TestSupervisor::new(ours);
        supervisor.hear_offers();
        supervisor.add(&ToWorker::Drain, "").send();
        assert_eq!(supervisor.hear(), Said::Nothing);
        serving.join().unwrap().unwrap();
    }
}
