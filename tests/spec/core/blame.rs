//! Which job is blamed for the end of a worker; and that a process's own promises count for the jobs that it ran.

use offload_core::WhyUnknown;
use offload_core::clients::VirtualTime;
use offload_core::config::CoreConfig;
use offload_core::event::Event;
use offload_core::exit::Exit;
use offload_core::ids::{JobId, WorkerId};
use offload_core::limits::WORKER_COST_MIN;
use offload_protocol::nouns::{OutcomeCode::*, TaskOffer};
use std::time::Duration;
use tests::pool_under_test::{PoolUnderTest, Start};

const MS: Duration = Duration::from_millis(1);

/// `charge` and `sum` are known to be tiny: several of them are given to one worker at a time.
fn tiny(workers: usize) -> PoolUnderTest {
    let mut pool = PoolUnderTest::slots(workers);
    for task in ["charge", "sum"] {
        let job = pool.submit(task);
        pool.start(job);
        pool.finish_after(job, Duration::from_micros(3));
    }
    pool
}

/// The only worker does the job that is its next one, and says which that was.
fn run_next(pool: &mut PoolUnderTest) -> JobId {
    let worker = pool.workers.keys().next_back().expect("there is one");
    let next = pool.workers[worker].given.front().expect("it has a job").0;
    pool.run(next);
    next
}

/// The worker that has the job, or is given it when the pause is over.
fn worker_with(pool: &mut PoolUnderTest, job: JobId) -> WorkerId {
    loop {
        match pool.worker_with(job) {
            Some(worker) => return worker,
            None => pool.wait(100 * MS),
        }
    }
}

/// Worker after worker ends before it has started it. What it is said to wait for is its probation.
#[test]
fn a_job_on_probation_is_explained_by_its_probation() {
    let mut pool = tiny(1);
    let job = pool.submit("charge");
    let expected = |pool: &PoolUnderTest| {
        pool.core.explain(pool.now, job).and_then(|job| job.waiting).map(|waiting| waiting.expected)
    };
    for _ in 0..3 {
        let worker = worker_with(&mut pool, job);
        pool.exit(worker, Exit::Signal(11));
    }
    let told = expected(&pool);
    let Some(Err(WhyUnknown::OnProbation(Some(pause)))) = told else { panic!("{told:?}") };
    assert!(pause > Duration::ZERO && pool.worker_with(job).is_none());
    pool.wait(pause);
    worker_with(&mut pool, job);
    assert_eq!(expected(&pool), None);
}

fn of_client(pool: &mut PoolUnderTest, client: &str) -> JobId {
    pool.submit_with("charge", |request| request.client = client.into())
}

#[test]
fn a_job_is_given_back_although_worker_after_worker_ends_before_it_has_started_it() {
    let mut pool = tiny(1);
    let job = pool.submit("charge");
    for _ in 0..18 {
        let worker = worker_with(&mut pool, job);
        pool.exit(worker, Exit::Signal(11));
        assert_eq!(pool.outcome(job), None);
    }
    worker_with(&mut pool, job);
    pool.run(job);
    assert_eq!((pool.outcome(job), pool.ended[&job].attempts), (Some(Ok), 1));
    assert!(pool.ended[&job].lost.iter().all(|lost| !lost.is_blamed));
}

/// Of a program that has never done a job, such deaths are failed starts, and five of them are the limit. Of one that has, they are
/// excused until the job is on probation, and so are its tests: twelve of them at the longest pause are the limit. The worker that
/// had done other jobs is not held against it.
#[test]
fn a_job_that_no_worker_lives_to_start_is_given_up_earlier_if_its_program_has_never_done_a_job() {
    for (mut pool, most) in [(PoolUnderTest::slots(1), 5), (tiny(1), 1 + 1 + 6 + 12)] {
        let job = pool.submit("charge");
        let mut deaths = 0;
        while pool.outcome(job).is_none() {
            let worker = worker_with(&mut pool, job);
            pool.exit(worker, Exit::Signal(11));
            deaths += 1;
        }
        assert_eq!((pool.outcome(job), deaths), (Some(Unavailable), most), "{}", pool.message(job));
    }
}

#[test]
fn a_job_that_no_worker_lives_to_start_is_tried_ever_more_slowly_and_keeps_no_other_waiting() {
    let mut pool = tiny(1);
    let deadly = pool.submit("charge");
    let mut spawned = pool.spawned_at.len();
    for _ in 0..20 {
        if let Some(worker) = pool.worker_with(deadly) {
            pool.exit(worker, Exit::Signal(11));
        }
        let other = pool.submit("charge");
        while pool.worker_with(deadly).is_none() && pool.outcome(other).is_none() {
            run_next(&mut pool);
        }
        pool.wait(100 * MS);
    }
    spawned = pool.spawned_at.len() - spawned;
    assert!(spawned < 9, "{spawned} workers in two seconds");
    assert_eq!(pool.outcome(deadly), None);
}

#[test]
fn after_a_death_the_jobs_of_that_window_run_one_by_one() {
    let mut pool = tiny(2);
    let window = [0; 6].map(|_| pool.submit("charge"));
    let first = pool.worker_with(window[0]).expect("it is given out");
    let with_it: Vec<JobId> = pool.workers[&first].given.iter().map(|(job, _)| *job).collect();
    assert!(with_it.len() > 1, "they share a worker");
    pool.crash_the_worker_running(window[0]);
    assert_eq!(pool.outcome(window[0]), Some(WorkerCrashed));
    // The window of the other worker has to be done first.
    for job in window.iter().filter(|job| !with_it.contains(job)) {
        pool.run(*job);
    }
    for _ in &with_it[1..] {
        let given: Vec<usize> = pool.workers.values().map(|fake| fake.given.len()).collect();
        assert!(given.iter().all(|given| *given <= 1), "{given:?}");
        let next = with_it.iter().find(|job| pool.worker_with(**job).is_some()).expect("one is given out");
        pool.run(*next);
        assert_eq!(pool.outcome(*next), Some(Ok));
    }
}

/// Otherwise a stream of tiny jobs, which join what is there, would keep it waiting for ever.
#[test]
fn a_job_that_must_be_alone_has_its_turn_although_others_could_share_the_worker() {
    let mut pool = tiny(1);
    let [guilty, innocent] = [0; 2].map(|_| pool.submit("charge"));
    let mut stream: Vec<JobId> = (0..40).map(|_| pool.submit("charge")).collect();
    pool.crash_the_worker_running(guilty);
    let mut done = 0;
    while pool.outcome(innocent).is_none() {
        run_next(&mut pool);
        stream.push(pool.submit("charge"));
        done += 1;
        assert!(done < 40, "the others are always before it");
    }
}

#[test]
fn a_job_that_is_blamed_names_the_attempt_in_which_it_ran() {
    let mut pool = tiny(1);
    let slow = pool.submit_with("charge", |request| request.timeout = Some(MS));
    let other = pool.submit("charge");
    pool.start(slow);
    pool.wait(2 * MS);
    assert_eq!(pool.outcome(slow), Some(Timeout));
    let lost = &pool.ended[&slow].lost;
    assert_eq!((lost.len(), lost[0].attempt, lost[0].is_blamed, lost[0].code), (1, 1, true, Timeout));
    assert_eq!(lost[0].place, pool.ended[&slow].place);
    pool.wait(pool.core.config().cancel_grace);
    pool.run(other);
    assert_eq!((pool.outcome(other), pool.ended[&other].attempts), (Some(Ok), 1));
}

fn used(pool: &PoolUnderTest, client: &str) -> VirtualTime {
    pool.core.clients().find(client).map_or(0, |account| account.used)
}

#[test]
fn a_client_pays_for_the_workers_that_its_jobs_end_and_nobody_for_those_of_others() {
    let mut pool = tiny(1);
    let guilty = of_client(&mut pool, "guilty");
    let innocent = of_client(&mut pool, "innocent");
    // As long as they have jobs, their accounts are there.
    for client in ["guilty", "innocent"] {
        of_client(&mut pool, client);
    }
    let before = [used(&pool, "guilty"), used(&pool, "innocent")];
    pool.crash_the_worker_running(guilty);
    let cost = WORKER_COST_MIN.as_nanos() as VirtualTime;
    assert!(used(&pool, "guilty") - before[0] >= cost - MS.as_nanos() as VirtualTime);
    while pool.outcome(innocent).is_none() {
        run_next(&mut pool);
    }
    assert!(used(&pool, "innocent") - before[1] < cost);
}

#[test]
fn a_cancelled_job_that_ends_by_itself_costs_no_worker() {
    let mut pool = tiny(2);
    let [runs_on, ends] = [0; 2].map(|_| of_client(&mut pool, "canceller"));
    let keeps_account = of_client(&mut pool, "canceller");
    pool.start(ends);
    let before = used(&pool, "canceller");
    pool.event(Event::Cancel { job: ends });
    assert!(used(&pool, "canceller") > before);
    pool.finish(ends);
    let cost = WORKER_COST_MIN.as_nanos() as VirtualTime;
    assert!(used(&pool, "canceller") - before < cost);
    assert!([runs_on, keeps_account].iter().all(|job| pool.outcome(*job).is_none()));
}

fn offer(name: &'static str, idempotent: bool) -> TaskOffer<'static> {
    TaskOffer { idempotent, ..TaskOffer::new(name) }
}

/// Workers that say hello when the test wants it, with what it wants.
fn pool_of_script(workers: usize) -> PoolUnderTest {
    let config = CoreConfig { workers, spares: 0, ..CoreConfig::default() };
    PoolUnderTest::with(config, Start::Wait)
}

fn hello(pool: &mut PoolUnderTest, worker: u64, idempotent: bool) -> WorkerId {
    let worker = WorkerId(worker);
    pool.event(Event::Hello { worker, tasks: vec![offer("pay", idempotent)], takes_files: true });
    worker
}

#[test]
fn a_job_that_a_process_ran_once_is_not_run_again_because_a_later_one_would_allow_it() {
    let mut pool = pool_of_script(2);
    let job = pool.submit("pay");
    hello(&mut pool, 1, false);
    let worker = pool.start(job);
    hello(&mut pool, 2, true);
    pool.exit(worker, Exit::Signal(11));
    assert_eq!((pool.outcome(job), pool.ended[&job].attempts), (Some(WorkerCrashed), 1));
}

#[test]
fn a_job_that_may_be_run_again_is_run_by_a_process_that_does_not_allow_that_and_then_never_again() {
    let mut pool = pool_of_script(2);
    let job = pool.submit("pay");
    hello(&mut pool, 1, true);
    pool.crash_the_worker_running(job);
    hello(&mut pool, 2, false);
    pool.crash_the_worker_running(job);
    hello(&mut pool, 3, true);
    assert_eq!((pool.outcome(job), pool.ended[&job].attempts), (Some(WorkerCrashed), 2));
}

#[test]
fn a_job_gets_the_attempts_that_it_asks_for_whatever_its_task_promises() {
    let mut pool = pool_of_script(1);
    let job = pool.submit_with("pay", |request| request.attempts = Some(2));
    hello(&mut pool, 1, false);
    pool.crash_the_worker_running(job);
    hello(&mut pool, 2, false);
    pool.run(job);
    assert_eq!((pool.outcome(job), pool.ended[&job].attempts), (Some(Ok), 2));
}

/// The registry says what the newest process says, which has no steps; this one has, and would start what is behind it.
#[test]
fn nothing_is_put_behind_a_job_that_its_very_worker_does_in_steps() {
    let mut pool = pool_of_script(2);
    hello(&mut pool, 1, false);
    hello(&mut pool, 2, false);
    let job = pool.submit("pay");
    let worker = pool.start(job);
    pool.finish_after(job, Duration::from_micros(3));
    pool.exit(worker, Exit::Code(0));
    let stepped = TaskOffer { stepped: true, ..offer("pay", false) };
    pool.event(Event::Hello { worker: WorkerId(3), tasks: vec![stepped], takes_files: true });
    let jobs = [0; 5].map(|_| pool.submit("pay"));
    assert_eq!(pool.workers[&WorkerId(3)].given.len(), 1);
    let with_other = pool.workers[&WorkerId(2)].given.len();
    assert_eq!(with_other, 4, "{jobs:?}");
}

#[test]
fn a_job_is_given_only_to_a_process_that_offers_its_task_itself() {
    let mut pool = pool_of_script(2);
    hello(&mut pool, 1, false);
    let others = vec![offer("other", true)];
    pool.event(Event::Hello { worker: WorkerId(2), tasks: others, takes_files: true });
    let [first, second] = [0; 2].map(|_| pool.submit("pay"));
    assert_eq!(pool.worker_with(first), Some(WorkerId(1)));
    assert_eq!(pool.worker_with(second), None, "the idle one says that it cannot do it");
    pool.run(first);
    pool.run(second);
    assert_eq!(pool.outcome(second), Some(Ok));
}

#[test]
fn a_job_that_only_the_spare_can_do_brings_it_in() {
    let config = CoreConfig { workers: 1, spares: 1, ..CoreConfig::default() };
    let mut pool = PoolUnderTest::with(config, Start::Wait);
    pool.event(Event::Hello { worker: WorkerId(1), tasks: vec![offer("other", true)], takes_files: true });
    hello(&mut pool, 2, false);
    let [first, other, last] = ["pay", "other", "pay"].map(|task| pool.submit(task));
    for (job, worker) in [(first, 2), (other, 1), (last, 2)] {
        assert_eq!(pool.worker_with(job), Some(WorkerId(worker)));
        pool.run(job);
        assert_eq!(pool.outcome(job), Some(Ok));
    }
}

#[test]
fn a_forbidden_system_call_has_an_outcome_of_its_own() {
    let mut pool = PoolUnderTest::slots(1);
    let job = pool.submit("charge");
    let worker = pool.start(job);
    pool.exit(worker, Exit::Signal(31));
    assert_eq!(pool.outcome(job), Some(Confinement));
    assert_eq!(pool.message(job), "signal 31 (SIGSYS) for a forbidden system call in attempt 1 of 1");
    let job = pool.submit_with("sum", |request| request.attempts = Some(2));
    for _ in 0..2 {
        while pool.worker_with(job).is_none() {
            pool.wait(10 * MS);
        }
        let worker = pool.start(job);
        pool.exit(worker, Exit::Signal(31));
    }
    assert_eq!(pool.outcome(job), Some(Poison));
    assert_eq!(pool.ended[&job].error.as_ref().map(|error| error.code), Some(Confinement));
}
