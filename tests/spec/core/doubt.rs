//! What happens to a job that a worker was given and had not started, for each way in which a worker ends: the job goes back
//! to the queue only if it cannot have begun, or may run twice.

use offload_core::action::Kill;
use offload_core::event::Event;
use offload_core::exit::Exit;
use offload_core::ids::{JobId, WorkerId};
use offload_protocol::nouns::OutcomeCode::{self, *};
use offload_protocol::nouns::Usage;
use std::time::Duration;
use tests::pool_under_test::PoolUnderTest;

const MS: Duration = Duration::from_millis(1);

/// How a worker leaves that was given `guilty`, then `next` and `last`, and has said nothing of these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    DiesRunning,
    DiesIdle,
    AnswersTwice,
    AnswersAJobThatItWasNotGiven,
    StartsAJobThatItWasNotGiven,
    SendsNonsense,
    BecomesUnfit,
    SkipsUnasked,
    StartsOutOfTurn,
    SendsGarbage,
    BreaksARuleAndSendsGarbage,
    ClosesAndDies,
    ClosesAndLivesOn,
    RunsTooLong,
    IsCancelled,
    StartsNothing,
    IsStopped,
    AnswersTwiceAndHangsInTheKernel,
}

/// What is known of a job of that worker that it did not start before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// It is not said: it never began. If it is said that it was started, it may have.
    ByItsWord,
    /// Nothing, whatever is said.
    Nothing,
    /// It never began: nothing more can be said.
    NeverBegan,
}

const WAYS: [(Way, Known); 18] = [
    (Way::DiesRunning, Known::NeverBegan),
    (Way::DiesIdle, Known::NeverBegan),
    (Way::AnswersTwice, Known::Nothing),
    (Way::AnswersAJobThatItWasNotGiven, Known::Nothing),
    (Way::StartsAJobThatItWasNotGiven, Known::Nothing),
    (Way::SendsNonsense, Known::ByItsWord),
    (Way::BecomesUnfit, Known::ByItsWord),
    (Way::SkipsUnasked, Known::ByItsWord),
    (Way::StartsOutOfTurn, Known::Nothing),
    (Way::SendsGarbage, Known::Nothing),
    (Way::BreaksARuleAndSendsGarbage, Known::Nothing),
    (Way::ClosesAndDies, Known::NeverBegan),
    (Way::ClosesAndLivesOn, Known::NeverBegan),
    (Way::RunsTooLong, Known::ByItsWord),
    (Way::IsCancelled, Known::ByItsWord),
    (Way::StartsNothing, Known::ByItsWord),
    (Way::IsStopped, Known::ByItsWord),
    (Way::AnswersTwiceAndHangsInTheKernel, Known::Nothing),
];

struct Scene {
    pool: PoolUnderTest,
    worker: WorkerId,
    guilty: JobId,
    next: JobId,
    last: JobId,
}

/// One worker with three jobs of this task, which is known to be tiny.
fn scene(task: &str) -> Scene {
    let mut pool = PoolUnderTest::slots(1);
    let taught = pool.submit(task);
    pool.start(taught);
    pool.finish_after(taught, Duration::from_micros(3));
    pool.workers_survive_sigkill();
    pool.workers_ignore_term();
    let mut submit = || pool.submit_with(task, |request| request.timeout = Some(Duration::from_secs(5)));
    let [guilty, next, last] = [submit(), submit(), submit()];
    let worker = pool.worker_with(guilty).expect("it is given out");
    assert_eq!(pool.workers[&worker].given.len(), 3, "they share a worker");
    Scene { pool, worker, guilty, next, last }
}

impl Scene {
    fn answer(&mut self, job: JobId) {
        let (worker, run, usage) = (self.worker, MS, Usage::default());
        self.pool.event(Event::Finished { worker, job, attempt: 1, run, usage, output_bytes: 1 });
    }

    fn garbage(&mut self) {
        self.pool.event(Event::Garbled { worker: self.worker, message: "not a frame".to_owned() });
    }

    fn leave(&mut self, way: Way) {
        let worker = self.worker;
        if way != Way::StartsNothing {
            self.pool.start(self.guilty);
        }
        let goes_on =
            [Way::DiesRunning, Way::RunsTooLong, Way::IsCancelled, Way::StartsNothing, Way::IsStopped];
        if !goes_on.contains(&way) {
            self.answer(self.guilty);
        }
        match way {
            Way::DiesRunning | Way::DiesIdle => {}
            Way::AnswersTwice | Way::AnswersTwiceAndHangsInTheKernel => self.answer(self.guilty),
            Way::AnswersAJobThatItWasNotGiven => self.answer(JobId(1_000_000)),
            Way::StartsAJobThatItWasNotGiven => {
                self.pool.event(Event::Started { worker, job: JobId(1_000_000), attempt: 1 });
            }
            Way::SendsNonsense => self.pool.event(Event::Violation { worker, message: String::new() }),
            Way::BecomesUnfit => self.pool.event(Event::Unfit { worker, message: String::new() }),
            Way::SkipsUnasked => self.pool.event(Event::Skipped { worker, job: self.next }),
            Way::StartsOutOfTurn => self.pool.event(Event::Started { worker, job: self.last, attempt: 1 }),
            Way::SendsGarbage => self.garbage(),
            Way::BreaksARuleAndSendsGarbage => {
                self.answer(self.guilty);
                self.garbage();
            }
            Way::ClosesAndDies => self.pool.event(Event::Closed { worker }),
            Way::ClosesAndLivesOn => {
                self.pool.event(Event::Closed { worker });
                self.pool.wait(self.pool.core.config().closed_grace);
            }
            Way::RunsTooLong => self.pool.wait(Duration::from_secs(5)),
            Way::IsCancelled => {
                self.pool.event(Event::Cancel { job: self.guilty });
                self.pool.wait(self.pool.core.config().cancel_grace);
            }
            Way::StartsNothing => self.pool.wait(self.pool.core.config().start_timeout),
            Way::IsStopped => {
                self.pool.event(Event::Stopped { worker });
                self.pool.wait(self.pool.core.config().hang_timeout);
                self.answer(self.guilty);
            }
        }
    }

    fn end(&mut self, way: Way) {
        match way {
            Way::AnswersTwiceAndHangsInTheKernel => self.pool.wait(self.pool.core.config().reap_timeout),
            _ => self.pool.exit(self.worker, Exit::Signal(9)),
        }
    }
}

/// What became of `next` and `last`.
fn outcomes(task: &str, way: Way, says_so: bool) -> [Option<OutcomeCode>; 2] {
    let mut scene = scene(task);
    scene.leave(way);
    if says_so {
        let first = if way == Way::StartsNothing { scene.guilty } else { scene.next };
        scene.pool.event(Event::Started { worker: scene.worker, job: first, attempt: 1 });
        if way == Way::StartsNothing {
            scene.answer(first);
            scene.pool.event(Event::Started { worker: scene.worker, job: scene.next, attempt: 1 });
        }
    }
    scene.end(way);
    for job in [scene.next, scene.last] {
        let lost = match scene.pool.ended.get(&job) {
            Some(ended) => &ended.lost,
            None => &scene.pool.core.jobs().get(job).expect("it waits").past.lost,
        };
        assert!(lost.iter().all(|lost| !lost.is_blamed), "{way:?}: {lost:?}");
    }
    [scene.next, scene.last].map(|job| scene.pool.outcome(job))
}

#[test]
fn a_job_that_may_have_begun_and_must_not_run_twice_never_goes_back_to_the_queue() {
    for (way, known) in WAYS {
        let unsaid = outcomes("charge", way, false);
        let lost = Some(Indeterminate);
        let is_right = if known == Known::Nothing { [lost, lost] } else { [None, None] };
        assert_eq!(unsaid, is_right, "{way:?}");
        if known == Known::ByItsWord {
            assert_eq!(outcomes("charge", way, true), [lost, None], "{way:?}");
        }
    }
}

#[test]
fn a_job_that_may_run_twice_goes_back_to_the_queue_however_its_worker_ends() {
    for (way, known) in WAYS {
        assert_eq!(outcomes("sum", way, false), [None, None], "{way:?}");
        if known == Known::ByItsWord {
            assert_eq!(outcomes("sum", way, true), [None, None], "{way:?}");
        }
    }
}

#[test]
fn a_job_that_was_never_written_to_its_worker_goes_back_at_once_whatever_the_worker_sends() {
    for says_so in [false, true] {
        let mut scene = scene("charge");
        scene.leave(Way::SendsGarbage);
        if says_so {
            scene.pool.event(Event::Started { worker: scene.worker, job: scene.last, attempt: 1 });
        }
        scene.pool.event(Event::Unsent { worker: scene.worker, jobs: vec![scene.last] });
        let last = scene.pool.core.jobs().get(scene.last).expect("it waits");
        assert!(last.past.lost.is_empty() && !last.is_suspect && !last.state.is_dispatched());
        scene.end(Way::SendsGarbage);
        assert_eq!(scene.pool.outcome(scene.next), Some(Indeterminate));
        scene.pool.run(scene.last);
        assert_eq!((scene.pool.outcome(scene.last), scene.pool.ended[&scene.last].attempts), (Some(Ok), 1));
    }
}

#[test]
fn a_job_that_may_have_begun_is_not_blamed_and_its_client_pays_nothing() {
    let mut scene = scene("charge");
    scene.leave(Way::SendsGarbage);
    scene.end(Way::SendsGarbage);
    let ended = &scene.pool.ended[&scene.next];
    assert_eq!((ended.attempts, ended.run), (0, Duration::ZERO));
    assert!(scene.pool.message(scene.next).starts_with("its worker may have begun it"));
}

#[test]
fn an_answer_to_a_job_that_was_not_started_blames_nobody() {
    for (task, outcome) in [("charge", Some(Indeterminate)), ("sum", None)] {
        let mut scene = scene(task);
        scene.pool.start(scene.guilty);
        scene.pool.finish(scene.guilty);
        // What ran there before may have sent this.
        scene.answer(scene.next);
        scene.end(Way::AnswersTwice);
        assert_eq!([scene.next, scene.last].map(|job| scene.pool.outcome(job)), [outcome, None], "{task}");
        let lost = match scene.pool.ended.get(&scene.next) {
            Some(ended) => ended.lost.clone(),
            None => scene.pool.core.jobs().get(scene.next).expect("it waits").past.lost.clone(),
        };
        assert!(lost.iter().all(|lost| !lost.is_blamed && lost.attempt == 0), "{lost:?}");
    }
}

#[test]
fn a_job_that_is_answered_and_never_started_does_not_go_on_for_ever() {
    let mut pool = PoolUnderTest::slots(1);
    let job = pool.submit("sum");
    for _ in 0..1000 {
        if pool.outcome(job).is_some() {
            break;
        }
        if let Some(worker) = pool.worker_with(job) {
            let (run, usage) = (MS, Usage::default());
            pool.event(Event::Finished { worker, job, attempt: 1, run, usage, output_bytes: 1 });
        }
        pool.wait(Duration::from_secs(1));
    }
    assert_eq!((pool.outcome(job), pool.ended[&job].attempts), (Some(Unavailable), 0));
}

/// A worker that answers the job that runs under another number has begun no other one.
#[test]
fn a_wrong_number_while_a_job_runs_puts_no_other_job_in_doubt() {
    let mut scene = scene("charge");
    scene.pool.start(scene.guilty);
    scene.answer(JobId(1_000_000));
    scene.end(Way::AnswersTwice);
    assert_eq!(scene.pool.outcome(scene.guilty), Some(WorkerProtocol));
    assert_eq!([scene.next, scene.last].map(|job| scene.pool.outcome(job)), [None, None]);
}

#[test]
fn the_late_answer_of_a_job_for_which_its_worker_is_ended_puts_no_other_in_doubt() {
    let mut pool = PoolUnderTest::slots(1);
    pool.workers_ignore_term();
    let learned = pool.submit("charge");
    pool.start(learned);
    pool.finish_after(learned, Duration::from_micros(1));
    let (first, second) = (pool.submit("charge"), pool.submit("charge"));
    let worker = pool.start(first);
    assert_eq!(pool.worker_with(second), Some(worker), "tiny jobs are given together");
    pool.event(Event::Cancel { job: first });
    pool.wait(pool.core.config().cancel_grace + Duration::from_millis(1));
    assert_eq!(pool.workers[&worker].signals, [Kill::Term]);
    let (run, usage) = (Duration::from_micros(1), Usage::default());
    pool.event(Event::Finished { worker, job: first, attempt: 1, run, usage, output_bytes: 0 });
    pool.exit(worker, Exit::Signal(15));
    assert_eq!(pool.outcome(second), None, "it was not begun, and waits again");
}
