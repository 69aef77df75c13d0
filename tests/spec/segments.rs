//! Large payloads in shared memory: they arrive unchanged, and a worker that misuses the memory harms only itself.

use bytes::Bytes;
use offload_protocol::messages::ToClient;
use offload_protocol::nouns::{OutcomeCode, Report};
use offload_supervisor::client::Client;
use offload_supervisor::{ComputePool, EventLoop, Job, Level, PoolConfig, Program};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tests::canary::turned;
use tests::harness::{Daemon, program, until};

const MIB: usize = 1 << 20;

/// The memory of one segment in these tests.
const SEGMENT: u64 = 2 * MIB as u64;

/// Workers of the test program, which can use segments, and a client.
struct Scene {
    daemon: Daemon,
    client: Client,
}

/// What came of a job.
struct Ended {
    report: Report,
    output: Bytes,
}

impl Ended {
    fn cause(&self) -> &str {
        self.report.error.as_ref().map_or("", |error| &error.message)
    }
}

fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|index| ((index * 7 + index / 251 + seed) % 256) as u8).collect()
}

fn input(act: &str, seed: usize) -> Bytes {
    [act.as_bytes(), b" ", &pattern(seed, SEGMENT as usize - 100)].concat().into()
}

fn right_answer(seed: usize) -> Vec<u8> {
    turned(&pattern(seed, SEGMENT as usize - 100))
}

impl Scene {
    fn new(workers: usize) -> Scene {
        let command = format!("{} segments", program("faultworker").display());
        let workers = workers.to_string();
        let daemon = Daemon::start(&["--workers", &workers, "--backoff-min", "10ms", "--worker", &command]);
        let client = daemon.client();
        Scene { daemon, client }
    }

    fn submit(&mut self, act: &str, seed: usize) -> u64 {
        self.client.submit("shared", &input(act, seed)).unwrap()
    }

    fn end_of(&mut self, ticket: u64) -> Ended {
        loop {
            let (message, output) = self.client.answer_to(ticket).unwrap();
            if let ToClient::Finished { report, .. } = message {
                return Ended { report, output };
            }
        }
    }

    fn run(&mut self, act: &str, seed: usize) -> Ended {
        let ticket = self.submit(act, seed);
        self.end_of(ticket)
    }

    fn segment_bytes(&self) -> u64 {
        self.daemon.status()["queue"]["segment_bytes"].as_u64().unwrap()
    }

    /// Gives the workers jobs until there are so many segments.
    fn warm_up(&mut self, segments: u64) {
        until("all segments are there", || {
            let tickets: Vec<u64> = (0..segments as usize).map(|seed| self.submit("turn", seed)).collect();
            for (seed, ticket) in tickets.into_iter().enumerate() {
                assert!(self.end_of(ticket).output == right_answer(seed));
            }
            (self.segment_bytes() == segments * SEGMENT).then_some(())
        });
        // The worker has said that it has mapped the last one when it answers the next job.
        self.run("turn", 0);
    }

    /// A worker with both segments is given a job with this act; afterwards all is well.
    fn victim(act: &str) -> Ended {
        let mut scene = Scene::new(1);
        scene.warm_up(2);
        let ended = scene.run(act, 1);
        // Its worker ends. Until that is known, the next job may go to the same one, and may have begun there.
        until("the worker is replaced", || {
            (scene.daemon.status()["workers"]["restarts"].as_u64() >= Some(1)).then_some(())
        });
        for seed in 2..5 {
            assert!(scene.run("turn", seed).output == right_answer(seed), "{act}");
        }
        scene.warm_up(2);
        ended
    }
}

#[test]
fn large_payloads_go_through_segments_and_arrive_unchanged() {
    let mut scene = Scene::new(2);
    scene.warm_up(4);
    for seed in 0..10 {
        let (turn, slice) = (scene.submit("turn", seed), scene.submit("slice", seed + 100));
        assert!(scene.end_of(turn).output == right_answer(seed));
        assert!(scene.end_of(slice).output == pattern(seed + 100, SEGMENT as usize - 100));
    }
}

#[test]
fn segments_that_nobody_uses_are_returned() {
    let mut scene = Scene::new(1);
    scene.warm_up(2);
    until("they are returned", || (scene.segment_bytes() == 0).then_some(()));
    assert!(scene.run("turn", 1).output == right_answer(1));
}

#[test]
fn a_worker_that_names_a_wrong_place_or_breaks_the_order_is_found_out() {
    for (act, cause) in [
        ("outside", "of segment"),
        ("unknown", "where it cannot be"),
        ("unfinished", "no Finished after it"),
        ("keeptwice", "which it does not have"),
        ("keepunknown", "which it does not have"),
    ] {
        let ended = Scene::victim(act);
        assert_eq!(ended.report.outcome, OutcomeCode::WorkerProtocol, "{act}");
        assert!(ended.cause().contains(cause), "{act}: {}", ended.cause());
    }
}

#[test]
fn a_worker_that_dies_with_its_segments_costs_the_job_that_ran() {
    let ended = Scene::victim("die");
    assert_eq!(ended.report.outcome, OutcomeCode::WorkerCrashed, "{}", ended.cause());
}

#[test]
fn an_output_that_was_given_in_a_segment_counts_although_its_worker_is_dead() {
    let ended = Scene::victim("dielater");
    assert_eq!(ended.report.outcome, OutcomeCode::Ok, "{}", ended.cause());
    assert!(ended.output == right_answer(1));
}

#[test]
fn a_second_output_before_the_first_one_was_read_ends_the_worker_and_not_the_job() {
    let ended = Scene::victim("again");
    assert_eq!(ended.report.outcome, OutcomeCode::Ok);
    assert!(ended.output == right_answer(1));
}

#[test]
fn a_worker_that_keeps_its_inputs_gets_four_segments_and_no_more() {
    let mut scene = Scene::new(1);
    scene.warm_up(2);
    for kept in 1..=4 {
        let ended = scene.run("keep", kept);
        assert_eq!(ended.report.outcome, OutcomeCode::Ok, "{kept}: {}", ended.cause());
        assert!(ended.output == right_answer(kept));
        // What it keeps, and two others: one for outputs, and one for inputs unless it has kept four.
        let all = if kept < 4 { kept as u64 + 2 } else { 5 };
        until("there are as many as there may be", || {
            assert!(scene.run("turn", kept).output == right_answer(kept));
            (scene.segment_bytes() == all * SEGMENT).then_some(())
        });
        // The worker has said that it has mapped the last one when it answers the next job.
        scene.run("turn", 0);
    }
    for seed in 0..4 {
        assert!(scene.run("turn", seed).output == right_answer(seed));
        assert_eq!(scene.segment_bytes(), 5 * SEGMENT, "it gets no more");
    }
    let ended = scene.run("keep", 1);
    assert!(ended.cause().contains("which it does not have"), "{}", ended.cause());
    scene.warm_up(2);
}

#[test]
fn a_worker_that_does_not_leave_its_segments_is_ended_and_their_memory_returned() {
    let mut scene = Scene::new(1);
    scene.warm_up(2);
    assert!(scene.run("mute", 1).output == right_answer(1));
    until("the memory is returned", || (scene.segment_bytes() == 0).then_some(()));
    assert!(scene.run("turn", 1).output == right_answer(1));
}

#[test]
fn what_a_worker_writes_after_its_answer_or_punches_out_reaches_nobody_else() {
    for act in ["late", "truncate"] {
        let mut scene = Scene::new(2);
        scene.warm_up(4);
        let ended = scene.run(act, 1);
        assert_eq!(ended.report.outcome, OutcomeCode::Ok, "{act}: {}", ended.cause());
        assert_eq!(ended.output.len(), right_answer(1).len());
        let bad = ended.report.receipt.worker_pid;
        let mut good = 0;
        for seed in 0..20 {
            let tickets = [scene.submit("turn", seed), scene.submit("turn", seed + 100)];
            for (ticket, seed) in tickets.into_iter().zip([seed, seed + 100]) {
                let ended = scene.end_of(ticket);
                let is_right = ended.output == right_answer(seed);
                assert!(
                    is_right || (act == "late" && ended.report.receipt.worker_pid == bad),
                    "{act} {seed}"
                );
                good += usize::from(ended.report.receipt.worker_pid != bad);
            }
        }
        assert!(good > 0, "the other worker had jobs too");
    }
}

/// A time limit that an output of [`LONG`] meets while it is copied: one piece in each turn of the event loop, of which each
/// takes [`SLOW_TURN`].
const COPY_LIMIT: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(3);
/// Less than what counts as a moment in which the supervisor did not run.
const SLOW_TURN: Duration = Duration::from_millis(80);
const LONG: usize = 48 * MIB;

#[test]
fn an_output_that_has_arrived_counts_although_a_time_limit_passes_while_it_is_copied() {
    let words = vec![program("faultworker").display().to_string(), "segments".to_owned()];
    let mut config =
        PoolConfig { log: Level::Quiet, linger: false, ..PoolConfig::with(Program::command(words)) };
    (config.core.workers, config.core.spares, config.core.max_bytes) = (1, 0, 1 << 30);
    let mut event_loop = EventLoop::new().unwrap();
    let handle = event_loop.handle();
    let pool = ComputePool::start(config, &event_loop).unwrap();
    let input = Bytes::from([b"slice ", &*pattern(0, LONG)].concat());
    let job = || Job::new("shared").input(input.clone());
    let mut run = |job| {
        let ended = Rc::new(RefCell::new(None));
        let told = Rc::clone(&ended);
        pool.submit(job, move |finished, _| drop(told.replace(Some(finished))));
        event_loop.run().unwrap();
        ended.take().expect("it has ended")
    };
    until("there is a segment for inputs", || {
        assert_eq!(run(job()).report.outcome, OutcomeCode::Ok);
        (pool.status().queue.segment_bytes > LONG as u64).then_some(())
    });
    // The worker has said that it has mapped the segment when it answers the next job.
    run(job());
    let watched = pool.clone();
    let slow_turns = handle.check(move |_| {
        let is_running = watched.workers().iter().any(|worker| worker.running_us.is_some());
        // How long a turn takes is chosen, so this wait is the deed itself and waits for nothing.
        if is_running {
            std::thread::sleep(SLOW_TURN);
        }
    });
    handle.unref(slow_turns);
    for limited in [job().timeout(COPY_LIMIT), job().deadline(DEADLINE)] {
        let finished = run(limited);
        assert_eq!(finished.report.outcome, OutcomeCode::Ok, "{:?}", finished.report.error);
        assert!(finished.output == input.slice("slice ".len()..));
    }
}
