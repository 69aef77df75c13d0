//! Real launches, some of them of a file that cannot be loaded. Each test waits for what it expects, with a deadline.

use super::super::orphans::new_generation;
use super::super::sweep::tests::{self as sweeping, alone_as, sleeps, until};
use super::super::wait::wait_for;
use super::*;
use offload_core::exit::Exit;
use offload_protocol::limits::{NICENESS_ADDED, NICENESS_HIGHEST};
use rustix::event::PollFlags;
use rustix::process::getpriority_process;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

const DEADLINE: Duration = Duration::from_secs(20);
const PAYLOAD_MAX: usize = 1 << 20;
const PROGRAM: ProgramVersion = (0, 0);

fn start() -> Launcher {
    Launcher::start(new_generation()).unwrap()
}

fn shell(script: &str) -> Program {
    Program::command(["sh", "-c", script].map(str::to_owned).to_vec())
}

/// Waits for as many events as were requested, and returns them in the order in which they arrive.
fn events<const COUNT: usize>(launcher: &Launcher) -> [LauncherEvent; COUNT] {
    let mut events = Vec::new();
    while events.len() < COUNT {
        assert!(wait_for(&launcher.bell(), PollFlags::IN, DEADLINE), "no more than {} come", events.len());
        events.extend(launcher.take_events());
    }
    <[LauncherEvent; COUNT]>::try_from(events).expect("no more than were requested")
}

fn next_event(launcher: &Launcher) -> LauncherEvent {
    let [event] = events(launcher);
    event
}

fn launch(launcher: &mut Launcher, program: Program) -> Result<Process, SpawnError> {
    let _guard = launcher.launch(1, PROGRAM, program, PAYLOAD_MAX).unwrap();
    match next_event(launcher) {
        LauncherEvent::Launched { key: 1, process } => process.map(|process| *process),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_launched_process_is_the_callers() {
    let mut launcher = start();
    let mut process = launch(&mut launcher, shell("exit 3")).unwrap();
    assert!(wait_for(&process.pidfd(), PollFlags::IN, DEADLINE));
    assert_eq!(process.try_wait().unwrap(), Some(Exit::Code(3)));
}

#[test]
fn a_process_is_nicer_from_its_first_moment_on() {
    let mut launcher = start();
    let process = launch(&mut launcher, shell("exec sleep 600")).unwrap();
    let ours = getpriority_process(None).unwrap();
    assert_eq!(process.confinement().unwrap().nice, (ours + NICENESS_ADDED).min(NICENESS_HIGHEST));
}

#[test]
fn what_cannot_be_started_is_told() {
    let mut launcher = start();
    let missing = Program::command(vec!["no-such-program".to_owned()]);
    assert!(launch(&mut launcher, missing).unwrap_err().fatal);
}

/// The file that a process would make is not there when another one, which was requested later, is done.
#[test]
fn a_launch_that_is_not_guard_any_more_is_not_carried_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("started");
    let mut launcher = start();
    let lease = Lease::of(folder.path());
    let _first = launcher.launch(1, PROGRAM, lease.program(), PAYLOAD_MAX).unwrap();
    let program = shell(&format!("echo yes >{}", file.display()));
    let second = launcher.launch(2, PROGRAM, program, PAYLOAD_MAX).unwrap();
    launcher.give_up(2, second);
    lease.end();
    let [first, second] = events(&launcher);
    assert!(matches!(first, LauncherEvent::Launched { key: 1, process: Ok(_) }));
    let LauncherEvent::Launched { key: 2, process: Err(error) } = second else { panic!("it was started") };
    assert!(error.message.ends_with("its turn did not come in time") && !error.fatal, "{error}");
    assert!(!file.exists());
}

/// A program that cannot be loaded, because another process has a lease on its file: whoever opens it waits until
/// that gives it back, for 45 seconds if it never does (fcntl(2), F_SETLEASE).
struct Lease {
    holder: Child,
    _pipe: BufReader<ChildStdout>,
    file: std::path::PathBuf,
}

impl Lease {
    fn of(folder: &std::path::Path) -> Lease {
        let file = folder.join("leased");
        std::fs::copy("/bin/true", &file).unwrap();
        let script = "$SIG{IO} = q(IGNORE); $| = 1; open(F, q(<), $ARGV[0]) or die; \
                      fcntl(F, 1024, 1) or die; print qq(held\\n); sleep 600";
        let mut perl = Command::new("perl");
        let mut holder = perl
            .args(["-e", script])
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut pipe = BufReader::new(holder.stdout.take().unwrap());
        let mut line = String::new();
        pipe.read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        Lease { holder, _pipe: pipe, file }
    }

    fn program(&self) -> Program {
        Program::command(vec![self.file.to_str().unwrap().to_owned()])
    }

    fn end(self) {}
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.holder.kill().unwrap();
        self.holder.wait().unwrap();
    }
}

fn wait_until_it_is_being_made(launcher: &Launcher) {
    let deadline = Instant::now() + DEADLINE;
    while !launcher.launch_threads[&PROGRAM].is_launching() {
        assert!(Instant::now() < deadline, "it is not begun");
        thread::yield_now();
    }
}

/// Waits until a launch that was given up counts as hanging, so that the next one is refused.
fn refusal(launcher: &mut Launcher, lease: &Lease) -> SpawnError {
    let deadline = Instant::now() + DEADLINE;
    while launcher.launch_threads[&PROGRAM].hanging_for().is_none() {
        assert!(Instant::now() < deadline, "it does not count as hanging");
        thread::park_timeout(Duration::from_millis(1));
    }
    launcher.launch(99, PROGRAM, lease.program(), PAYLOAD_MAX).expect_err("it would wait behind what hangs")
}

#[test]
fn a_launch_that_hangs_keeps_no_other_program_waiting_and_others_of_its_own_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let lease = Lease::of(folder.path());
    let mut launcher = start();
    let hanging = launcher.launch(1, PROGRAM, lease.program(), PAYLOAD_MAX).unwrap();
    for key in 2..10 {
        let _guard = launcher.launch(key, (1, 0), shell("exit 3"), PAYLOAD_MAX).unwrap();
        let LauncherEvent::Launched { process, .. } = next_event(&launcher) else { panic!("no launch") };
        let mut process = process.unwrap();
        assert!(wait_for(&process.pidfd(), PollFlags::IN, DEADLINE));
        assert_eq!(process.try_wait().unwrap(), Some(Exit::Code(3)));
    }
    wait_until_it_is_being_made(&launcher);
    drop(hanging);
    let error = refusal(&mut launcher, &lease);
    assert!(error.message.contains("hanging for") && !error.fatal, "{error}");
    lease.end();
}

/// A process that hangs while it is being loaded can be killed. Then the thread is free again.
#[test]
fn a_launch_that_hangs_and_is_given_up_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let lease = Lease::of(folder.path());
    let mut launcher = start();
    let hanging = launcher.launch(1, PROGRAM, lease.program(), PAYLOAD_MAX).unwrap();
    let _next = launcher.launch(2, PROGRAM, shell("exec sleep 600"), PAYLOAD_MAX).unwrap();
    wait_until_it_is_being_made(&launcher);
    drop(hanging);
    refusal(&mut launcher, &lease);
    let [first, second] = events(&launcher);
    assert!(matches!(first, LauncherEvent::Launched { key: 1, process: Err(_) }));
    let LauncherEvent::Launched { key: 2, process } = second else { panic!("another order") };
    assert_eq!(process.unwrap().try_wait().unwrap(), None, "what waited behind it is not killed");
    lease.end();
}

#[test]
fn a_launcher_with_a_launch_that_hangs_can_be_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let lease = Lease::of(folder.path());
    let mut launcher = start();
    let hanging = launcher.launch(1, PROGRAM, lease.program(), PAYLOAD_MAX).unwrap();
    wait_until_it_is_being_made(&launcher);
    launcher.give_up(1, hanging);
    drop(launcher);
    // The lease is held to the end: who waits for the file waits in vain.
    lease.end();
}

#[test]
fn a_lane_ends_with_its_last_worker_and_not_before() {
    let mut launcher = start();
    let mut processes = Vec::new();
    for key in [1, 2] {
        let _guard = launcher.launch(key, PROGRAM, shell("exec sleep 600"), PAYLOAD_MAX).unwrap();
        let LauncherEvent::Launched { process, .. } = next_event(&launcher) else { panic!("no launch") };
        processes.push(process.unwrap());
    }
    drop(processes.pop());
    launcher.forget(2);
    assert_eq!(launcher.launch_threads.len(), 1);
    assert_eq!(processes[0].try_wait().unwrap(), None, "it has lost its parent");
    drop(processes);
    launcher.forget(1);
    assert!(launcher.launch_threads.is_empty() && launcher.worker_versions.is_empty());
}

/// A pipe that the process would hold for ten minutes ends: whether it was started or not, it is gone.
#[test]
fn what_nobody_wants_is_gone_with_the_launcher() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let keeper = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let mut launcher = start();
    let program = shell(&format!("exec sleep 600 >{}", pipe.display()));
    let guards: Vec<LaunchGuard> =
        (0..8).map(|key| launcher.launch(key, PROGRAM, program.clone(), PAYLOAD_MAX).unwrap()).collect();
    drop((guards, launcher));
    let mut reader = std::fs::File::open(&pipe).unwrap();
    drop(keeper);
    assert_eq!(std::io::Read::read(&mut reader, &mut [0; 1]).unwrap(), 0);
}

fn sweep(launcher: &Launcher) -> SweepResult {
    launcher.sweep();
    match next_event(launcher) {
        LauncherEvent::Swept(swept) => swept,
        other => panic!("{other:?}"),
    }
}

/// A worker with a helper that has left it, and the pipe that ends when both are gone.
fn worker_with_a_helper(launcher: &mut Launcher, key: u64, then: &str) -> (Box<Process>, std::fs::File) {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let script = format!("exec >{0}; setsid -f sh -c 'echo $$; exec sleep 600'; {then}", pipe.display());
    let _guard = launcher.launch(key, PROGRAM, shell(&script), PAYLOAD_MAX).unwrap();
    let reader = std::fs::File::open(&pipe).unwrap();
    let mut helper = String::new();
    BufReader::new(&reader).read_line(&mut helper).unwrap();
    let helper = helper.trim_end().parse().unwrap();
    until(|| sleeps(helper) && sweeping::children().contains(&helper));
    match next_event(launcher) {
        LauncherEvent::Launched { process, .. } => (process.unwrap(), reader),
        other => panic!("{other:?}"),
    }
}

fn is_open(pipe: &std::fs::File) -> bool {
    !wait_for(pipe, PollFlags::IN, Duration::ZERO)
}

#[test]
fn what_a_worker_left_behind_is_swept_when_it_is_forgotten_and_what_others_did_is_not() {
    let test = "workers::launcher::tests::\
                what_a_worker_left_behind_is_swept_when_it_is_forgotten_and_what_others_did_is_not";
    alone_as(test, || {
        let mut launcher = start();
        let (mut living, pipe_of_the_living) = worker_with_a_helper(&mut launcher, 1, "exec sleep 600");
        let (mut dead, pipe_of_the_dead) = worker_with_a_helper(&mut launcher, 2, "exit 3");
        assert!(wait_for(&dead.pidfd(), PollFlags::IN, DEADLINE));
        assert_eq!(sweep(&launcher), SweepResult::default());
        assert_eq!(dead.try_wait().unwrap(), Some(Exit::Code(3)));
        assert!(is_open(&pipe_of_the_dead), "it is not known yet that its worker has ended");
        launcher.forget(2);
        let swept = sweep(&launcher);
        assert!(swept.killed == 1 || swept.more, "{swept:?}");
        assert!(wait_for(&pipe_of_the_dead, PollFlags::IN, DEADLINE), "it lives on");
        while sweep(&launcher).more {}
        assert!(is_open(&pipe_of_the_living) && living.try_wait().unwrap().is_none());
        drop(living);
        launcher.forget(1);
        while sweep(&launcher).more {}
        assert!(!is_open(&pipe_of_the_living));
    });
}

/// What has no mark may be of either.
#[test]
fn the_last_sweep_of_a_launcher_leaves_the_workers_and_the_strays_of_another_alone() {
    let test = "workers::launcher::tests::the_last_sweep_of_a_launcher_leaves_the_workers_and_the_strays_of_another_alone";
    alone_as(test, || {
        let (mut ending, mut other) = (start(), start());
        let (mut living, pipe) = worker_with_a_helper(&mut other, 1, "exec sleep 600");
        let (own_worker, own_pipe) = worker_with_a_helper(&mut ending, 1, "exec sleep 600");
        let (mut stray_pipe, writer) = std::io::pipe().unwrap();
        let mut unmarked = Command::new("setsid");
        unmarked.args(["-f", "sh", "-c", "echo ready; exec sleep 600"]).stdout(writer);
        unmarked.spawn().unwrap().wait().unwrap();
        drop(unmarked);
        std::io::Read::read_exact(&mut stray_pipe, &mut [0; 6]).unwrap();
        drop(own_worker);
        ending.forget(1);
        ending.sweep_at_the_end();
        drop(ending);
        assert!(!is_open(&own_pipe), "its own stray lives on");
        assert!(is_open(&pipe) && living.try_wait().unwrap().is_none());
        let is_left = !wait_for(&stray_pipe, PollFlags::IN, Duration::ZERO);
        assert!(is_left, "it may be of the other one");
        drop(living);
        other.forget(1);
        other.sweep_at_the_end();
        drop(other);
        assert!(!is_open(&pipe));
        assert_eq!(
            std::io::Read::read(&mut stray_pipe, &mut [0; 1]).unwrap(),
            0,
            "nobody else has a launcher"
        );
    });
}

/// Each has a child of its own, which is set free only when it is dead.
#[test]
fn the_last_sweep_gets_what_others_set_free() {
    alone_as("workers::launcher::tests::the_last_sweep_gets_what_others_set_free", || {
        let script = "setsid -f sh -c 'setsid sh -c \"setsid sleep 600 & echo deep; wait\" & wait'";
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut worker = std::process::Command::new("sh");
        worker.args(["-c", script]).stdout(writer).spawn().unwrap().wait().unwrap();
        drop(worker);
        let mut said = [0; 5];
        std::io::Read::read_exact(&mut reader, &mut said).unwrap();
        let mut launcher = start();
        launcher.sweep_at_the_end();
        drop(launcher);
        assert_eq!(std::io::Read::read(&mut reader, &mut said).unwrap(), 0, "somebody holds the pipe");
    });
}

/// A worker that has made four children of its own parent, of which three have ended, and the pipe that ends when the worker
/// and the fourth one are gone.
fn worker_with_siblings(launcher: &mut Launcher, key: u64, then: &str) -> (Box<Process>, std::fs::File) {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let script =
        "use POSIX; my ($pipe, $clone) = ($ARGV[0], 0 + $ARGV[1]); my $parent_and_sigchld = 0x8000 | 17;
        open(STDOUT, '>', $pipe) or die; $| = 1;
        for my $ends (1, 1, 1, 0) {
            next if syscall($clone, $parent_and_sigchld, 0, 0, 0, 0);
            POSIX::setsid(); sleep 600 if !$ends; POSIX::_exit(0);
        }
        print qq(ready\\n);";
    let script = format!("{script} {then}");
    let (pipe_name, clone) = (pipe.to_str().unwrap().to_owned(), libc::SYS_clone.to_string());
    let program = Program::command(vec!["perl".to_owned(), "-e".to_owned(), script, pipe_name, clone]);
    let _guard = launcher.launch(key, PROGRAM, program, PAYLOAD_MAX).unwrap();
    let mut reader = std::fs::File::open(&pipe).unwrap();
    std::io::Read::read_exact(&mut reader, &mut [0; 6]).unwrap();
    match next_event(launcher) {
        LauncherEvent::Launched { process, .. } => (process.unwrap(), reader),
        other => panic!("{other:?}"),
    }
}

/// The children of this process that have not been collected.
fn children() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let lists = threads.map(|thread| std::fs::read_to_string(thread.path().join("children")).unwrap());
    lists.map(|list| list.split_whitespace().count()).sum()
}

#[test]
fn what_a_worker_has_made_a_child_of_its_parent_is_swept_like_all_else() {
    let test =
        "workers::launcher::tests::what_a_worker_has_made_a_child_of_its_parent_is_swept_like_all_else";
    alone_as(test, || {
        let mut launcher = start();
        let (mut living, pipe_of_the_living) = worker_with_siblings(&mut launcher, 1, "sleep 600");
        let (mut dead, pipe_of_the_dead) = worker_with_siblings(&mut launcher, 2, "POSIX::_exit(3)");
        assert!(wait_for(&dead.pidfd(), PollFlags::IN, DEADLINE));
        let deadline = Instant::now() + DEADLINE;
        while children() > 4 {
            assert_eq!(sweep(&launcher).killed, 0);
            assert!(Instant::now() < deadline, "those that have ended are not collected");
        }
        assert_eq!(dead.try_wait().unwrap(), Some(Exit::Code(3)), "its end is left to its owner");
        assert!(is_open(&pipe_of_the_dead), "it is not known yet that its worker has ended");
        launcher.forget(2);
        launcher.kill_and_reap(dead);
        while sweep(&launcher).more {}
        assert!(!is_open(&pipe_of_the_dead));
        assert!(is_open(&pipe_of_the_living) && living.try_wait().unwrap().is_none());
        assert_eq!(children(), 2);
        launcher.forget(1);
        launcher.kill_and_reap(living);
        while sweep(&launcher).more {}
        assert!(!is_open(&pipe_of_the_living));
        assert_eq!(children(), 0);
    });
}

/// A worker may end before its launch is over, and so may a child that could not become its program.
#[test]
fn a_sweep_takes_no_worker_that_is_being_started() {
    alone_as("workers::launcher::tests::a_sweep_takes_no_worker_that_is_being_started", || {
        let mut launcher = start();
        let missing = Program::command(vec!["/no/such/program".to_owned()]);
        let guards: Vec<LaunchGuard> = (0..200)
            .map(|key| {
                let program = if key % 2 == 0 { shell("exit 3") } else { missing.clone() };
                launcher.launch(key, PROGRAM, program, PAYLOAD_MAX).unwrap()
            })
            .collect();
        let mut processes = Vec::new();
        let mut launched = 0;
        launcher.sweep();
        while launched < guards.len() {
            assert!(wait_for(&launcher.bell(), PollFlags::IN, DEADLINE));
            for event in launcher.take_events() {
                match event {
                    LauncherEvent::Swept(_) => launcher.sweep(),
                    LauncherEvent::Launched { key, process } => {
                        launched += 1;
                        assert_eq!(process.is_ok(), key % 2 == 0, "{process:?}");
                        processes.extend(process.ok());
                    }
                }
            }
        }
        for mut process in processes {
            assert!(wait_for(&process.pidfd(), PollFlags::IN, DEADLINE));
            assert_eq!(process.try_wait().unwrap(), Some(Exit::Code(3)));
        }
    });
}
