//! What only a whole hub with a worker process shows. Its worker is the example in Python.

use super::{Hub, HubRef, PoolConfig, Subscriber};
use crate::job::{Finished, Job};
use crate::limits::LAST_TURNS;
use crate::log::{Level, Log};
use crate::workers::refusals::{refuse_writes, refused_writes_left};
use crate::workers::{Program, Tracer, find_executable};
use offload_event_loop::EventLoop;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::cell::RefCell;
use std::os::unix::fs::symlink;
use std::rc::Rc;
use std::time::Duration;

/// A hub with one worker and no spare, on an event loop that runs while a job is awaited.
pub(super) struct Scene {
    event_loop: EventLoop,
    pub(super) hub: HubRef,
}

impl Scene {
    pub(super) fn new() -> Scene {
        Scene::of("python3")
    }

    /// With this Python.
    fn of(python: &str) -> Scene {
        let worker = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/worker.py");
        let program = Program::command(vec![python.to_owned(), worker.to_owned()]);
        let mut config = PoolConfig { log: Level::Quiet, linger: false, ..PoolConfig::with(program) };
        (config.core.workers, config.core.spares) = (1, 0);
        let event_loop = EventLoop::new().unwrap();
        let log = Rc::new(Log::new(config.log, config.log_format));
        let core = config.core();
        let hub = Hub::start(
            core,
            config.into_hub(None, || unreachable!("nothing is done here")).unwrap(),
            log,
            event_loop.handle(),
        )
        .unwrap();
        Scene { event_loop, hub }
    }

    /// Has the worker turn some bytes around.
    pub(super) fn run_a_job(&mut self) -> Finished {
        let finished = Rc::new(RefCell::new(None));
        let told = Rc::clone(&finished);
        let subscriber = Subscriber::new(move |end, _| drop(told.replace(Some(end))));
        let job = Job::new("reverse").input("abc");
        let submitted = self.hub.borrow_mut().submit(job, false, Some(subscriber));
        assert!(submitted.is_ok(), "the job is refused");
        self.event_loop.run().unwrap();
        finished.take().expect("the loop runs until the job has ended")
    }
}

#[test]
fn a_message_that_the_kernel_refuses_is_written_a_little_later_although_nothing_else_happens() {
    let mut scene = Scene::new();
    let before = scene.run_a_job();
    refuse_writes(3);
    let after = scene.run_a_job();
    assert_eq!(refused_writes_left(), 0);
    assert_eq!(after.output, "cba");
    let pids = [before, after].map(|finished| finished.report.receipt.worker_pid);
    assert_eq!(pids[0], pids[1], "the worker was not replaced because it did not start the job");
}

/// There always is more to read if a process that has inherited the worker's socket writes faster than it is read.
#[test]
fn the_last_messages_of_a_worker_are_read_in_so_many_turns_and_no_more() {
    let mut scene = Scene::new();
    scene.run_a_job();
    let mut hub = scene.hub.borrow_mut();
    let worker = hub.processes.ids().next().expect("the worker lives");
    let turns = (0..2 * LAST_TURNS).take_while(|_| hub.processes.may_read_on(worker)).count();
    assert_eq!(turns, LAST_TURNS as usize - 1, "and one before it is asked for the first time");
}

/// The worker is told to run the job, and then to forget it: its message still names the task of a job that has ended since.
#[test]
fn what_was_decided_for_a_job_is_carried_out_before_it_is_cancelled() {
    let mut scene = Scene::new();
    scene.run_a_job();
    let sent = [true, false].map(|is_settled_first| {
        let mut hub = scene.hub.borrow_mut();
        let worker = hub.processes.ids().next().expect("the worker lives");
        let accepted = hub.submit(Job::new("reverse").input("abc"), false, None);
        let job = accepted.unwrap_or_else(|_| panic!("the job is refused")).job;
        if is_settled_first {
            hub.settle();
        }
        hub.cancel(job);
        let sent = hub.processes.unsent(worker);
        drop(hub);
        scene.event_loop.run().unwrap();
        assert_eq!(scene.run_a_job().output, "cba");
        sent
    });
    assert!(sent[0] > 0, "nothing was sent");
    assert_eq!(sent[0], sent[1]);
}

/// As when it is replaced by a new version.
#[test]
fn a_program_that_has_worked_is_started_again_when_its_file_was_away_for_a_moment() {
    let folder = tempfile::tempdir().unwrap();
    let (file, python) = (folder.path().join("python3"), find_executable("python3").unwrap());
    symlink(&python, &file).unwrap();
    let mut scene = Scene::of(file.to_str().unwrap());
    let pid = scene.run_a_job().report.receipt.worker_pid;
    std::fs::remove_file(&file).unwrap();
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
    let hub = Rc::clone(&scene.hub);
    let looking = scene.event_loop.set_interval(Duration::from_millis(1), move |cx| {
        if hub.borrow().core.failed_starts(0) > 0 {
            cx.stop();
        }
    });
    scene.event_loop.run().unwrap();
    scene.event_loop.clear(looking);
    symlink(&python, &file).unwrap();
    assert_eq!(scene.run_a_job().output, "cba");
}

/// What is dropped in a forked child are copies: whoever waits for the job waits in the parent.
#[test]
fn a_forked_child_gives_up_no_job_of_its_parent() {
    let mut scene = Scene::new();
    scene.run_a_job();
    let mut hub = scene.hub.borrow_mut();
    let accepted = hub.submit(Job::new("reverse").input("abc"), false, None);
    let job = accepted.unwrap_or_else(|_| panic!("the job is refused")).job;
    hub.launches.seem_forked(true);
    hub.client_is_gone(job);
    hub.launches.seem_forked(false);
    drop(hub);
    scene.run_a_job();
    let hub = scene.hub.borrow();
    let record = hub.records.finished().record(job).expect("it has ended before the next one");
    assert_eq!(record.report.outcome.as_str(), "ok");
}

/// A job that comes in the same turn as the end of an idle worker has nothing to do with that end.
#[test]
fn a_worker_that_has_ended_is_given_nothing_and_blames_nobody() {
    let mut scene = Scene::new();
    let pid = scene.run_a_job().report.receipt.worker_pid;
    let mut hub = scene.hub.borrow_mut();
    let worker = hub.processes.ids().next().expect("the worker lives");
    let accepted = hub.submit(Job::new("reverse").input("abc"), false, None);
    let job = accepted.unwrap_or_else(|_| panic!("the job is refused")).job;
    let process = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a process");
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    let has_ended = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
    rustix::process::waitid(rustix::process::WaitId::Pid(process), has_ended).unwrap();
    hub.on_process_end(worker);
    drop(hub);
    assert_eq!(scene.run_a_job().output, "cba", "another worker has come");
    let hub = scene.hub.borrow();
    let record = hub.records.finished().record(job).expect("it has ended before the next one");
    assert_eq!((record.report.outcome.as_str(), &record.lost[..]), ("ok", &[][..]));
}

/// Strays are not swept here, so the tracer stays until the end: the kernel tells nobody else how the worker has ended.
#[test]
fn a_worker_that_is_traced_when_it_ends_is_replaced_at_once_and_the_loop_does_not_wake_for_it_again() {
    let mut scene = Scene::new();
    let pid = scene.run_a_job().report.receipt.worker_pid;
    let Some(_tracer) = Tracer::of(pid) else { return };
    let worker = Pid::from_raw(pid.cast_signed()).unwrap();
    let pidfd = pidfd_open(worker, PidfdFlags::empty()).unwrap();
    kill_process(worker, Signal::KILL).unwrap();
    poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).unwrap();
    let before = scene.event_loop.handle().metrics().iterations;
    let finished = scene.run_a_job();
    let iterations = scene.event_loop.handle().metrics().iterations - before;
    assert_eq!(finished.output, "cba");
    assert_ne!(finished.report.receipt.worker_pid, pid);
    assert!(iterations < 500, "{iterations}");
}
