//! A job that is done in steps, and what a worker does between two of them.
//!
//! ```text
//!            .---> steps, for about a millisecond --- the last one is done, one panics ----> answered
//!            |               |
//!            |               v
//!            |     a look at the socket ------------- the socket has ended -----------------> the session ends
//!            |               |                        Cancel -------------------------------> answered
//!            |               |                        Yield or Drain, and a checkpoint ------> answered: given back
//!            |               v
//!            |     Progress, Checkpoint, if it is time
//!            |               |
//!            |               v
//!            `---- another job, if one has come and this one does not itself run between the steps of another
//! ```
//!
//! A step may take only nanoseconds. So the clock is read only after many steps, and the socket only after a millisecond. A
//! job that is done sooner is never interrupted.

use super::{Ended, Session};
use crate::context::Attempt;
use crate::limits::STEPS_AT_ONCE_MAX;
use crate::link::{Link, Stop};
use crate::panics;
use crate::stepped::Steps;
use crate::task::{Output, TaskError, complain};
use bytes::Bytes;
use offload_protocol::messages::FromWorker;
use offload_protocol::nouns::FailureKind;
use std::ops::ControlFlow::{self, Break, Continue};
use std::time::{Duration, Instant};

/// Time between two looks at the socket, unless a step takes longer.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Time between two readings of the clock, unless a step takes longer. Reading it takes some 50 ns.
const CLOCK_EVERY: Duration = Duration::from_micros(20);

/// Run time between two checkpoints. A job whose worker ends loses little more than this. A shorter job gives none.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(500);

impl Session {
    pub(super) fn run_steps(&mut self, steps: Box<dyn Steps>, attempt: &mut Attempt) -> Result<Ended, Stop> {
        let mut stepping = Stepping::new(steps, attempt);
        let ended = self.step_to_the_end(&mut stepping);
        // If the task panics while it is dropped, that is its failure too.
        match panics::caught(|| drop(stepping)) {
            Ok(()) => ended,
            Err(message) => ended.map(|_| Ended::Failed(FailureKind::Panic, message)),
        }
    }

    fn step_to_the_end(&mut self, stepping: &mut Stepping<'_>) -> Result<Ended, Stop> {
        let mut share = LOOK_EVERY;
        loop {
            let round = panics::caught(|| stepping.round(share, &mut self.link));
            match round.unwrap_or_else(|message| Ok(Break(Ended::Failed(FailureKind::Panic, message))))? {
                Break(ended) => return Ok(ended),
                Continue(()) => share = self.run_one_between(stepping.attempt)?,
            }
        }
    }

    /// Runs one job that has arrived, if there is one. Returns how long the steps may then run before the next such job: as
    /// long as that job took, so that a stream of short jobs gets half of the worker, but at most [`LOOK_EVERY`].
    fn run_one_between(&mut self, outer: &mut Attempt) -> Result<Duration, Stop> {
        let Some(due) = self.link.due_between()? else { return Ok(LOOK_EVERY) };
        let start = Instant::now();
        let mut spent = self.run_due(due)?;
        self.link.flush()?;
        spent.run = start.elapsed();
        outer.meter.exclude(spent);
        Ok(spent.run.min(LOOK_EVERY))
    }
}

/// A job between its first step and its last.
struct Stepping<'a> {
    steps: Box<dyn Steps>,
    attempt: &'a mut Attempt,
    pace: Pace,
    /// When the next checkpoint is due, in run time of the attempt.
    checkpoint_at: Duration,
    has_complained: bool,
}

impl<'a> Stepping<'a> {
    fn new(steps: Box<dyn Steps>, attempt: &'a mut Attempt) -> Stepping<'a> {
        let checkpoint_at = CHECKPOINT_EVERY;
        Stepping { steps, attempt, pace: Pace::new(), checkpoint_at, has_complained: false }
    }

    /// Takes steps for the time `share`, at least one step, and then handles what has arrived meanwhile, except other jobs.
    fn round(&mut self, share: Duration, link: &mut Link) -> Result<ControlFlow<Ended>, Stop> {
        if let Break(result) = self.step_for(share) {
            return Ok(Break(match result {
                Ok(output) => Ended::Returned(output),
                Err(error) => Ended::Failed(error.kind(), error.to_string()),
            }));
        }
        link.look_between()?;
        if link.is_running_cancelled() {
            return Ok(Break(Ended::Failed(FailureKind::AppError, "cancelled".to_owned())));
        }
        if link.is_running_wanted_back()
            && let Some(state) = self.state()
        {
            return Ok(Break(Ended::GivenBack(state)));
        }
        self.tell(link)?;
        Ok(Continue(()))
    }

    fn step_for(&mut self, share: Duration) -> ControlFlow<Result<Output, TaskError>> {
        let start = Instant::now();
        let mut before = start;
        loop {
            self.steps.take(self.pace.steps)?;
            let now = Instant::now();
            self.pace.adapt(now.saturating_duration_since(before));
            if now.saturating_duration_since(start) >= share {
                return Continue(());
            }
            before = now;
        }
    }

    /// Sends progress and a checkpoint, each if it is due.
    fn tell(&mut self, link: &mut Link) -> Result<(), Stop> {
        let now = Instant::now();
        let Attempt { job, number: attempt, .. } = *self.attempt;
        if self.attempt.progress.is_due(now) {
            let (done, total) = self.steps.progress();
            if self.attempt.progress.is_news(done, total, now) {
                link.push(&FromWorker::Progress { job, attempt, done, total }, &Bytes::new());
            }
        }
        let run_time = self.attempt.meter.run_time(now);
        if run_time >= self.checkpoint_at {
            self.checkpoint_at = run_time + CHECKPOINT_EVERY;
            if let Some(state) = self.state() {
                link.push(&FromWorker::Checkpoint { job, attempt }, &state);
            }
        }
        link.flush()
    }

    /// A checkpoint, if the task gives one and it can be sent. If it cannot be sent, one line says why.
    fn state(&mut self) -> Option<Bytes> {
        match self.steps.checkpoint()? {
            Ok(state) => Some(state),
            Err(error) => {
                if !self.has_complained {
                    complain(format_args!("job {} gives no checkpoint: {error}", self.attempt.job));
                }
                self.has_complained = true;
                None
            }
        }
    }
}

/// How many steps to take at once.
struct Pace {
    steps: u32,
}

impl Pace {
    fn new() -> Pace {
        Pace { steps: 1 }
    }

    /// The last steps took `elapsed`. If steps become slower, their number is reduced at once; if they become faster, it at
    /// most doubles.
    fn adapt(&mut self, elapsed: Duration) {
        let elapsed_ns = elapsed.as_nanos().max(1);
        let fitting = u128::from(self.steps) * CLOCK_EVERY.as_nanos() / elapsed_ns;
        let most = (2 * self.steps).min(STEPS_AT_ONCE_MAX);
        self.steps = u32::try_from(fitting).unwrap_or(most).clamp(1, most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stepped::Stepped;
    use crate::task::Task;
    use crate::test_supervisor::{Said, Serving, TestSupervisor};
    use crate::worker::Worker;
    use offload_protocol::limits::CHECKPOINT_MAX;
    use offload_protocol::messages::{BATCHES, ToWorker};
    use offload_protocol::nouns::{MediaType, TaskOffer};
    use serde::{Deserialize, Serialize};
    use std::cell::RefCell;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

    /// What a test and the climbers of its worker share.
    #[derive(Default)]
    struct Mountain {
        /// The climbers may go past their half.
        open: AtomicBool,
        /// Steps taken, those in place included.
        steps: AtomicU64,
        /// Steps that got higher.
        climbed: AtomicU64,
    }

    thread_local! {
        /// A climber that comes from a checkpoint has to find it too.
        static MOUNTAIN: RefCell<Arc<Mountain>> = RefCell::default();
    }

    /// Climbs to `top`; half way it steps in place until the mountain is open.
    #[derive(Serialize, Deserialize)]
    struct Climber {
        top: u64,
        at: u64,
        luggage: String,
    }

    impl Climber {
        fn new(top: u64) -> Result<Climber, TaskError> {
            Ok(Climber { top, at: 0, luggage: String::new() })
        }

        fn with_too_much(top: u64) -> Result<Climber, TaskError> {
            Ok(Climber { luggage: "x".repeat(CHECKPOINT_MAX), ..Climber::new(top)? })
        }
    }

    impl Stepped for Climber {
        type Output = u64;

        fn step(&mut self) -> ControlFlow<Result<u64, TaskError>> {
            let mountain = MOUNTAIN.with_borrow(Arc::clone);
            mountain.steps.fetch_add(1, SeqCst);
            if self.at < self.top / 2 || mountain.open.load(SeqCst) {
                mountain.climbed.fetch_add(1, SeqCst);
                self.at += 1;
            }
            if self.at < self.top { Continue(()) } else { Break(Ok(self.at)) }
        }

        fn progress(&self) -> (u64, u64) {
            (self.at, self.top)
        }
    }

    /// Panics in its third step, or after the last one, when it is dropped.
    struct Clumsy {
        steps: u32,
        in_a_step: bool,
    }

    impl Stepped for Clumsy {
        type Output = u32;

        fn step(&mut self) -> ControlFlow<Result<u32, TaskError>> {
            self.steps += 1;
            assert!(!self.in_a_step || self.steps < 3, "stumbled in step {}", self.steps);
            if self.steps < 9 { Continue(()) } else { Break(Ok(self.steps)) }
        }
    }

    impl Drop for Clumsy {
        fn drop(&mut self) {
            assert!(self.steps < 9, "stumbled at the end");
        }
    }

    const PROMISE: Duration = Duration::from_millis(20);

    fn worker(mountain: Arc<Mountain>) -> Worker {
        MOUNTAIN.set(Arc::clone(&mountain));
        let steps =
            move |(): (), _: &mut crate::TaskContext<'_>| Ok::<_, TaskError>(mountain.steps.load(SeqCst));
        Worker::new()
            .json("steps", steps)
            .json("panic", |(): (), _| -> Result<(), TaskError> { panic!("nested") })
            .stepped("stroll", |top, _| Climber::new(top))
            .stepped("clumsy", |in_a_step, _| Ok::<_, TaskError>(Clumsy { steps: 0, in_a_step }))
            .with(Task::stepped("tell", |top, _| Climber::new(top)).progress_every(PROMISE))
            .with(Task::checkpointed("climb", |top, _| Climber::new(top)).idempotent())
            .with(Task::checkpointed("carry", |top, _| Climber::with_too_much(top)))
    }

    /// A supervisor, its worker, and the mountain that its jobs climb.
    struct Scene {
        supervisor: TestSupervisor,
        serving: Serving,
        mountain: Arc<Mountain>,
    }

    impl Scene {
        fn new() -> Scene {
            let mountain = Arc::new(Mountain::default());
            let theirs = Arc::clone(&mountain);
            let (supervisor, serving) = TestSupervisor::of(move || worker(theirs));
            Scene { supervisor, serving, mountain }
        }

        /// With another task, `sums`, that takes several jobs at once.
        fn with_batches() -> Scene {
            let mountain = Arc::new(Mountain::default());
            let theirs = Arc::clone(&mountain);
            let (supervisor, serving) = TestSupervisor::welcoming(BATCHES, move || {
                let sums = |pairs: Vec<(u32, u32)>| {
                    pairs.into_iter().map(|(a, b)| a.checked_add(b).ok_or("too big")).collect()
                };
                worker(theirs).with(Task::json_batch("sums", 4, Duration::ZERO, sums))
            });
            Scene { supervisor, serving, mountain }
        }

        /// With a job 1 that climbs to 1000 and is waiting half way.
        fn with_a_climber(task: &str) -> Scene {
            Scene::new().and_a_climber(task)
        }

        fn and_a_climber(mut self, task: &str) -> Scene {
            let scene = &mut self;
            scene.supervisor.add_run(1, task, "1000").send();
            scene.hears(&started(1));
            while scene.mountain.climbed.load(SeqCst) < 500 {
                std::thread::yield_now();
            }
            self
        }

        fn open(&self) {
            self.mountain.open.store(true, SeqCst);
        }

        #[track_caller]
        fn hears(&mut self, said: &Said) {
            assert_eq!(self.supervisor.hear_more_than_progress(), *said);
        }

        #[track_caller]
        fn hears_a_number(&mut self, job: u64) -> u64 {
            match self.supervisor.hear_more_than_progress() {
                Said::Finished { job: finished, output, .. } if finished == job => {
                    serde_json::from_slice(&output).unwrap()
                }
                other => panic!("job {job} was to finish: {other:?}"),
            }
        }

        /// How far job `job` is, and of how much.
        #[track_caller]
        fn hears_progress(&mut self, job: u64) -> (u64, u64) {
            match self.supervisor.hear() {
                Said::Progress { job: told, done, total } if told == job => (done, total),
                other => panic!("job {job} was to say how far it is: {other:?}"),
            }
        }

        #[track_caller]
        fn ends(self) {
            drop(self.supervisor);
            self.serving.end().unwrap();
        }
    }

    fn started(job: u64) -> Said {
        Said::Started { job, attempt: 1 }
    }

    fn finished(job: u64, output: &str) -> Said {
        Said::Finished { job, attempt: 1, media_type: MediaType::JSON, output: output.into() }
    }

    fn failed(job: u64, kind: FailureKind, message: &str) -> Said {
        Said::Failed { job, attempt: 1, kind, message: message.into() }
    }

    fn given_back(job: u64, at: u64) -> Said {
        let state = format!(r#"{{"top":1000,"at":{at},"luggage":""}}"#).into();
        Said::Yielded { job, state }
    }

    #[test]
    fn hello_offers_what_stepped_tasks_promise() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut supervisor = TestSupervisor::new(ours);
        supervisor.add(&ToWorker::Drain, "").send();
        worker(Arc::default()).serve_on(theirs).unwrap();
        let offers = supervisor.hear_offers();
        let offer = |name: &str| {
            offers.iter().map(|(offer, _)| offer).find(|offer| offer.name == name).unwrap().clone()
        };
        assert_eq!(offer("steps"), TaskOffer::new("steps"));
        assert_eq!(offer("stroll"), TaskOffer { stepped: true, ..TaskOffer::new("stroll") });
        assert_eq!(offer("tell"), TaskOffer { stepped: true, progress_ms: 20, ..TaskOffer::new("tell") });
        let (stepped, checkpoints, idempotent) = (true, true, true);
        assert_eq!(offer("climb"), TaskOffer { stepped, checkpoints, idempotent, ..TaskOffer::new("climb") });
    }

    #[test]
    fn a_job_that_comes_is_run_and_answered_between_two_steps() {
        let mut scene = Scene::with_a_climber("stroll");
        scene.supervisor.add_run(2, "steps", "null").send();
        scene.hears(&started(2));
        assert!(scene.hears_a_number(2) >= 500);
        scene.open();
        scene.hears(&finished(1, "1000"));
        scene.ends();
    }

    #[test]
    fn a_lone_job_of_a_task_in_batches_is_run_between_two_steps() {
        let mut scene = Scene::with_batches().and_a_climber("stroll");
        scene.supervisor.add_run(2, "sums", "[1, 2]").add_run(3, "sums", "[4294967295, 1]").send();
        scene.hears(&started(2));
        scene.hears(&finished(2, "3"));
        scene.hears(&started(3));
        scene.hears(&failed(3, FailureKind::AppError, "too big"));
        scene.open();
        scene.hears(&finished(1, "1000"));
        scene.ends();
    }

    #[test]
    fn jobs_that_run_together_wait_for_the_end_of_a_long_one_also_behind_a_cancelled_one() {
        let mut scene = Scene::with_batches().and_a_climber("stroll");
        scene.supervisor.add_run(2, "steps", "null").add(&ToWorker::Cancel { job: 2 }, "");
        scene.supervisor.add(&ToWorker::Batch { jobs: 2 }, "").add_run(3, "sums", "[1, 2]");
        scene.supervisor.add_run(4, "sums", "[3, 4]").send();
        scene.hears(&Said::Skipped { job: 2 });
        scene.open();
        scene.hears(&finished(1, "1000"));
        scene.hears(&started(3));
        scene.hears(&finished(3, "3"));
        scene.hears(&finished(4, "7"));
        scene.ends();
    }

    #[test]
    fn between_two_such_jobs_there_is_a_step() {
        let mut scene = Scene::with_a_climber("stroll");
        scene.supervisor.add_run(2, "steps", "null").add_run(3, "steps", "null").send();
        scene.hears(&started(2));
        let before = scene.hears_a_number(2);
        scene.hears(&started(3));
        assert!(scene.hears_a_number(3) > before);
        scene.ends();
    }

    #[test]
    fn a_stepped_job_in_between_is_not_interrupted_itself() {
        let mut scene = Scene::with_a_climber("stroll");
        scene.supervisor.add_run(2, "tell", "1000").send();
        scene.hears(&started(2));
        scene.supervisor.add_run(3, "steps", "null").send();
        let steps = scene.mountain.steps.load(SeqCst);
        // It has looked at the socket after these steps, and it goes on all the same.
        while scene.mountain.steps.load(SeqCst) < steps + 2 * u64::from(STEPS_AT_ONCE_MAX) {
            scene.hears_progress(2);
        }
        scene.hears_progress(2);
        scene.open();
        scene.hears(&finished(2, "1000"));
        scene.ends();
    }

    #[test]
    fn a_job_that_is_cancelled_while_it_waits_for_a_step_to_end_is_skipped() {
        let mut scene = Scene::with_a_climber("stroll");
        scene.supervisor.add_run(2, "steps", "null").add(&ToWorker::Cancel { job: 2 }, "").send();
        scene.hears(&Said::Skipped { job: 2 });
        scene.ends();
    }

    #[test]
    fn a_panic_in_between_is_not_the_long_jobs_failure() {
        let mut scene = Scene::with_a_climber("climb");
        scene.supervisor.add_run(2, "panic", "null").send();
        scene.hears(&started(2));
        let heard = scene.supervisor.hear_more_than_progress();
        assert!(matches!(heard, Said::Failed { job: 2, kind: FailureKind::Panic, .. }), "{heard:?}");
        scene.open();
        scene.hears(&finished(1, "1000"));
        scene.ends();
    }

    #[test]
    fn a_panic_in_a_step_or_at_the_end_fails_the_job_and_the_worker_goes_on() {
        let mut scene = Scene::new();
        scene
            .supervisor
            .add_run(1, "clumsy", "true")
            .add_run(2, "clumsy", "false")
            .add_run(3, "steps", "null")
            .send();
        for (job, expected) in [(1, "stumbled in step 3 at "), (2, "stumbled at the end at ")] {
            scene.hears(&started(job));
            match scene.supervisor.hear() {
                Said::Failed { kind: FailureKind::Panic, message, .. } => {
                    assert!(message.starts_with(expected), "{message}");
                }
                other => panic!("a panic was to be told: {other:?}"),
            }
        }
        scene.hears(&started(3));
        scene.hears(&finished(3, "0"));
        scene.ends();
    }

    #[test]
    fn a_job_that_is_wanted_back_is_given_back_and_goes_on_elsewhere_from_there() {
        let mut scene = Scene::with_a_climber("climb");
        scene.supervisor.add(&ToWorker::Yield { job: 1 }, "").send();
        scene.hears(&given_back(1, 500));
        let mountain = Arc::clone(&scene.mountain);
        scene.ends();

        mountain.open.store(true, SeqCst);
        let theirs = Arc::clone(&mountain);
        let (mut supervisor, _serving) = TestSupervisor::of(move || worker(theirs));
        let Said::Yielded { state, .. } = given_back(1, 500) else { unreachable!() };
        supervisor.add(&ToWorker::Resume { job: 1 }, state).add_run(1, "climb", "1000").send();
        assert_eq!(supervisor.hear(), started(1));
        assert_eq!(supervisor.hear_more_than_progress(), finished(1, "1000"));
        assert_eq!(mountain.climbed.load(SeqCst), 1000, "no step is done twice");
    }

    #[test]
    fn a_checkpoint_of_another_program_or_another_job_starts_the_job_from_its_input() {
        for (job, state) in
            [(1, r#"{"top":1000,"where":500}"#), (1, "\u{1}"), (7, r#"{"top":9,"at":8,"luggage":""}"#)]
        {
            let mut scene = Scene::new();
            scene.open();
            scene.supervisor.add(&ToWorker::Resume { job }, state).add_run(1, "climb", "1000").send();
            scene.hears(&started(1));
            scene.hears(&finished(1, "1000"));
            assert_eq!(scene.mountain.climbed.load(SeqCst), 1000);
            scene.ends();
        }
    }

    #[test]
    fn a_long_job_gives_checkpoints_from_which_it_goes_on() {
        let mut scene = Scene::with_a_climber("climb");
        let Said::Checkpoint { job: 1, state } = scene.supervisor.hear_more_than_progress() else {
            panic!("a checkpoint was to come")
        };
        let Said::Yielded { state: expected, .. } = given_back(1, 500) else { unreachable!() };
        assert_eq!(state, expected);
        scene.ends();
    }

    #[test]
    fn a_job_without_checkpoints_is_not_given_back() {
        for task in ["stroll", "carry"] {
            let mut scene = Scene::with_a_climber(task);
            scene.supervisor.add(&ToWorker::Yield { job: 1 }, "").add_run(2, "steps", "null").send();
            scene.hears(&started(2));
            scene.hears_a_number(2);
            scene.open();
            scene.hears(&finished(1, "1000"));
            scene.ends();
        }
    }

    #[test]
    fn drain_gives_a_long_job_back_and_runs_those_that_wait() {
        let mut scene = Scene::with_a_climber("climb");
        scene.supervisor.add_run(2, "steps", "null").add(&ToWorker::Drain, "").send();
        scene.hears(&given_back(1, 500));
        scene.hears(&started(2));
        scene.hears_a_number(2);
        scene.hears(&Said::Nothing);
        scene.ends();
    }

    #[test]
    fn drain_waits_for_a_long_job_that_cannot_be_kept() {
        let mut scene = Scene::with_a_climber("stroll");
        scene.supervisor.add(&ToWorker::Drain, "").add_run(2, "steps", "null").send();
        scene.hears(&started(2));
        scene.hears_a_number(2);
        scene.open();
        scene.hears(&finished(1, "1000"));
        scene.hears(&Said::Nothing);
        scene.ends();
    }

    #[test]
    fn a_job_that_is_cancelled_takes_no_further_step() {
        let mut scene = Scene::with_a_climber("climb");
        scene.supervisor.add(&ToWorker::Cancel { job: 1 }, "").add_run(2, "steps", "null").send();
        scene.hears(&failed(1, FailureKind::AppError, "cancelled"));
        scene.hears(&started(2));
        let steps = scene.hears_a_number(2);
        assert_eq!(scene.mountain.steps.load(SeqCst), steps);
        scene.ends();
    }

    #[test]
    fn the_end_of_the_socket_ends_the_steps() {
        let Scene { supervisor, serving, .. } = Scene::with_a_climber("climb");
        supervisor.say_no_more();
        serving.end().unwrap();
    }

    #[test]
    fn a_message_that_breaks_the_protocol_between_two_steps_ends_the_session() {
        let mut scene = Scene::with_a_climber("climb");
        scene.supervisor.send_raw(&[0xff; 8]);
        let error = scene.serving.end().unwrap_err();
        assert!(error.to_string().contains("broke the protocol"), "{error}");
    }

    #[test]
    fn a_long_job_says_how_far_it_is_and_one_that_promised_to_even_if_it_does_not_move() {
        let mut scene = Scene::with_a_climber("stroll");
        assert_eq!(scene.hears_progress(1), (500, 1000));
        scene.open();
        assert_eq!(scene.supervisor.hear(), finished(1, "1000"));
        scene.ends();

        let mut scene = Scene::with_a_climber("tell");
        for _ in 0..3 {
            assert_eq!(scene.hears_progress(1), (500, 1000));
        }
        scene.ends();
    }

    #[test]
    fn the_pace_follows_the_cost_of_the_steps() {
        let mut pace = Pace { steps: 1 };
        let mut go = |step: Duration, rounds: u32| {
            for _ in 0..rounds {
                pace.adapt(step * pace.steps);
            }
            pace.steps
        };
        assert_eq!(go(Duration::from_nanos(1), 12), STEPS_AT_ONCE_MAX);
        assert_eq!(go(Duration::from_nanos(1), 1), STEPS_AT_ONCE_MAX);
        assert_eq!(go(Duration::from_millis(1), 1), 1);
        assert_eq!(go(Duration::from_micros(2), 4), 10);
        assert_eq!(go(Duration::ZERO, 1), 20);
    }
}
