//! Child processes: their start, their output, and their end.
//!
//! A child has copies of all descriptors of this process from its fork until its program is executed. So these tests do not
//! run at the same time as those that rely on a descriptor being gone as soon as it is closed.

use std::cell::Cell;
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::rc::Rc;

use offload_event_loop::{Child, EventLoop, Incoming, SourceError, Stream};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::{collect, incoming_told, milliseconds, source_loop, told, turn};
use crate::stage::{Order, beside_others};

const KILL: i32 = Signal::KILL.as_raw();
const TERM: i32 = Signal::TERM.as_raw();

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::null());
    command
}

/// A child that lives until it is killed, or until nobody holds the other end of its input.
fn patient_child(event_loop: &EventLoop) -> Child {
    Child::spawn(event_loop, Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null())).unwrap()
}

/// Writes down how the child ended.
fn exit_told(child: &Child, order: &Order<String>) {
    let order = order.clone();
    child.on_exit(move |_, status| order.push(end_of(status.unwrap()))).unwrap();
}

fn end_of(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        other => panic!("{other:?}"),
    }
}

fn text(bytes: &Order<u8>) -> String {
    String::from_utf8(bytes.so_far()).unwrap()
}

/// What a process does about signals, as the kernel tells it: the blocked, the ignored and the caught ones. Signals 32 and
/// 33 are the C library's own, which lets nobody else touch them.
fn signal_masks(status: &str) -> Vec<u64> {
    const OF_THE_C_LIBRARY: u64 = 0b11 << 31;
    let lines = status.lines().filter_map(|line| line.split_once(':'));
    let of_signals = lines.filter(|(name, _)| ["SigIgn", "SigBlk", "SigCgt"].contains(name));
    of_signals.map(|(_, mask)| u64::from_str_radix(mask.trim(), 16).unwrap() & !OF_THE_C_LIBRARY).collect()
}

/// This program is started once more by somebody who ignores one signal and blocks another, and which catches a third.
#[test]
fn a_child_starts_with_every_signal_at_its_default_and_none_blocked() {
    const INNER: &str = "OFFLOAD_TEST_SIGNALS";
    const NAME: &str =
        "conformance::children::a_child_starts_with_every_signal_at_its_default_and_none_blocked";
    let _beside = beside_others();
    if std::env::var_os(INNER).is_none() {
        let inner = Command::new("env")
            .args(["--ignore-signal=TERM,USR2", "--block-signal=USR1,INT"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(INNER, "1")
            .output()
            .unwrap();
        let said = [inner.stdout, inner.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
        assert!(inner.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let mut event_loop = source_loop();
    let handler = event_loop.on_signal(&[signal_hook::consts::SIGHUP], |_, _| ()).unwrap();
    let own = signal_masks(&std::fs::read_to_string("/proc/thread-self/status").unwrap());
    assert!(own.len() == 3 && own.iter().all(|mask| *mask != 0), "{own:?}");
    let mut command = Command::new("cat");
    command.arg("/proc/self/status").stdin(Stdio::null()).stdout(Stdio::piped());
    // Also when one command is started more than once.
    for _ in 0..3 {
        let child = Child::spawn(&event_loop, &mut command).unwrap();
        let order = Order::new();
        exit_told(&child, &order);
        let said = collect(&child.take_stdout().unwrap());
        while said.so_far().is_empty() || order.so_far().is_empty() {
            turn(&mut event_loop);
        }
        assert_eq!(order.so_far(), ["code 0"]);
        assert_eq!(signal_masks(&text(&said)), [0, 0, 0]);
    }
    let still = signal_masks(&std::fs::read_to_string("/proc/thread-self/status").unwrap());
    assert_eq!(still, own, "starting a child changes nothing here");
    event_loop.close(handler, |_| ()).unwrap();
    event_loop.run().unwrap();
}

#[test]
fn what_cannot_be_started_is_an_error_at_once_that_says_why() {
    let _beside = beside_others();
    let event_loop = source_loop();
    let folder = tempfile::tempdir().unwrap();
    let (no_program, no_permission) = (folder.path().join("text"), folder.path().join("script"));
    std::fs::write(&no_program, "neither a program nor a script").unwrap();
    std::fs::set_permissions(&no_program, PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::write(&no_permission, "#!/bin/sh\n").unwrap();
    let spawn = |command: &mut Command| Child::spawn(&event_loop, command).err().unwrap();
    for (program, expected) in [
        (folder.path().join("missing"), ErrorKind::NotFound),
        (folder.path().to_owned(), ErrorKind::PermissionDenied),
        (no_permission, ErrorKind::PermissionDenied),
        (no_program.join("below a file"), ErrorKind::NotADirectory),
    ] {
        assert_eq!(spawn(&mut Command::new(program)).kind(), expected);
    }
    assert!(matches!(spawn(&mut Command::new(no_program)), SourceError::Io(_)));
    let in_no_folder = spawn(Command::new("true").current_dir(folder.path().join("missing")));
    assert_eq!(in_no_folder.kind(), ErrorKind::NotFound);
    assert!(!event_loop.is_alive(), "nothing has begun");
}

#[test]
fn an_exit_is_told_with_its_code() {
    let _beside = beside_others();
    let (mut event_loop, order) = (source_loop(), Order::new());
    for code in [0, 1, 255] {
        exit_told(&Child::spawn(&event_loop, &mut shell(&format!("exit {code}"))).unwrap(), &order);
        assert!(!event_loop.run().unwrap());
    }
    assert_eq!(order.so_far(), ["code 0", "code 1", "code 255"]);
}

#[test]
fn a_child_that_is_killed_by_whomever_ends_with_the_signal() {
    let _beside = beside_others();
    let (mut event_loop, order) = (source_loop(), Order::new());
    let own = patient_child(&event_loop);
    exit_told(&own, &order);
    own.kill(TERM).unwrap();
    event_loop.run().unwrap();
    let by_others = patient_child(&event_loop);
    exit_told(&by_others, &order);
    kill_process(Pid::from_raw(by_others.id() as i32).unwrap(), Signal::KILL).unwrap();
    event_loop.run().unwrap();
    let by_itself = Child::spawn(&event_loop, &mut shell("kill -USR1 $$")).unwrap();
    exit_told(&by_itself, &order);
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["signal 15", "signal 9", &format!("signal {}", Signal::USR1.as_raw())]);
}

#[test]
fn signals_that_do_not_exist_and_children_that_do_not_any_more_are_refused_by_name() {
    let _beside = beside_others();
    let mut event_loop = source_loop();
    let child = patient_child(&event_loop);
    for signal in [0, -1, 64, 1_000] {
        let refused = child.kill(signal);
        assert!(matches!(refused, Err(SourceError::UnusableSignal { signal: named }) if named == signal));
    }
    child.kill(KILL).unwrap();
    event_loop.run().unwrap();
    assert!(matches!(child.kill(KILL), Err(SourceError::AlreadyExited)));
    child.close(|_| ()).unwrap();
    assert!(matches!(child.kill(KILL), Err(SourceError::Closed)));
    assert!(matches!(child.on_exit(|_, _| ()), Err(SourceError::Closed)));
    assert!(matches!(child.close(|_| ()), Err(SourceError::Closed)));
}

#[test]
fn a_child_that_is_stopped_and_continued_has_not_exited() {
    let _beside = beside_others();
    let (mut event_loop, order) = (source_loop(), Order::new());
    let child = patient_child(&event_loop);
    exit_told(&child, &order);
    child.kill(Signal::STOP.as_raw()).unwrap();
    let (stopped, log) = (child.clone(), order.clone());
    event_loop.set_timeout(milliseconds(5), move |_| {
        log.push("continued".to_owned());
        stopped.kill(Signal::CONT.as_raw()).unwrap();
        stopped.kill(TERM).unwrap();
    });
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["continued", "signal 15"]);
}

#[test]
fn what_a_child_says_on_both_outputs_is_read_to_the_end_also_after_its_exit() {
    let _beside = beside_others();
    let (mut event_loop, order) = (source_loop(), Order::new());
    let script = "echo out; echo err >&2; exit 3";
    let mut command = shell(script);
    let child = Child::spawn(&event_loop, command.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap();
    assert!(child.take_stdin().is_none(), "it was not piped");
    exit_told(&child, &order);
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["code 3"]);
    let streams = [child.take_stdout().unwrap(), child.take_stderr().unwrap()];
    assert!(child.take_stdout().is_none(), "it was taken");
    let said = streams.each_ref().map(collect);
    assert!(!event_loop.run().unwrap());
    assert_eq!(said.each_ref().map(text), ["out\n", "err\n"]);
}

#[test]
fn much_goes_through_a_child_and_back() {
    let _beside = beside_others();
    const MUCH: usize = 4 * 1_024 * 1_024;
    let (mut event_loop, order) = (source_loop(), Order::new());
    let child =
        Child::spawn(&event_loop, Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
    exit_told(&child, &order);
    let (input, output) = (child.take_stdin().unwrap(), child.take_stdout().unwrap());
    let count = Rc::new(Cell::new(0));
    let counted = Rc::clone(&count);
    output
        .read_start(move |_, _, incoming| match incoming {
            Incoming::Data(bytes) => counted.set(counted.get() + bytes.len()),
            Incoming::End => {}
            Incoming::Failed(error) => panic!("{error}"),
        })
        .unwrap();
    input.set_write_limit(MUCH);
    input.write(vec![b'm'; MUCH], told(&order, "much")).unwrap();
    input.shutdown(told(&order, "shutdown")).unwrap();
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["much: done", "shutdown: done", "code 0"]);
    assert_eq!(count.get(), MUCH);
}

#[test]
fn a_child_that_closes_its_output_lives_on() {
    let _beside = beside_others();
    let (mut event_loop, order) = (source_loop(), Order::new());
    let mut command = shell("exec >&-; exec cat >/dev/null");
    let child = Child::spawn(&event_loop, command.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
    exit_told(&child, &order);
    child.take_stdout().unwrap().read_start(incoming_told(&order)).unwrap();
    while order.so_far().is_empty() {
        turn(&mut event_loop);
    }
    assert_eq!(order.so_far(), ["end"]);
    assert!(event_loop.is_alive(), "the child lives");
    drop(child.take_stdin());
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["end", "code 0"]);
}

#[test]
fn a_child_that_exits_before_it_has_read_everything_breaks_the_writes_to_it() {
    let _beside = beside_others();
    let (mut event_loop, order) = (source_loop(), Order::new());
    let mut command = shell("read line");
    let child = Child::spawn(&event_loop, command.stdin(Stdio::piped())).unwrap();
    let input = child.take_stdin().unwrap();
    input.write(vec![b'\n'; 1_000_000], told(&order, "write")).unwrap();
    input.shutdown(told(&order, "shutdown")).unwrap();
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["write: BrokenPipe", "shutdown: BrokenPipe"]);
}

#[test]
fn a_grandchild_holds_the_output_open_after_the_childs_exit() {
    let _beside = beside_others();
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "exec 3<&0; cat <&3 & exit 7"]).stdin(reader).stdout(Stdio::piped());
    let child = Child::spawn(&event_loop, &mut command).unwrap();
    drop(command);
    exit_told(&child, &order);
    let output = child.take_stdout().unwrap();
    output.read_start(incoming_told(&order)).unwrap();
    while order.so_far().is_empty() {
        turn(&mut event_loop);
    }
    assert!(event_loop.is_alive(), "the output is not at its end");
    drop(writer);
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["code 7", "end"]);
}

#[test]
fn a_child_may_have_one_file_for_both_outputs_and_ends_of_streams_of_ours() {
    let _beside = beside_others();
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = shell("echo one; echo two >&2; echo three");
    command.stdout(writer.try_clone().unwrap()).stderr(writer);
    let child = Child::spawn(&event_loop, &mut command).unwrap();
    // It holds copies of the writing end, so the end would not come.
    drop(command);
    exit_told(&child, &order);
    assert!(child.take_stdout().is_none() && child.take_stderr().is_none());
    let said = collect(&Stream::from_descriptor(&event_loop, OwnedFd::from(reader)).unwrap());
    event_loop.run().unwrap();
    assert_eq!(text(&said), "one\ntwo\nthree\n");
    assert_eq!(order.so_far(), ["code 0"]);
}

#[test]
fn a_child_has_the_environment_and_the_folder_that_it_was_given() {
    let _beside = beside_others();
    let mut event_loop = source_loop();
    let folder = tempfile::tempdir().unwrap();
    let said = |event_loop: &mut EventLoop, command: &mut Command| {
        let child = Child::spawn(event_loop, command.stdout(Stdio::piped())).unwrap();
        let said = collect(&child.take_stdout().unwrap());
        event_loop.run().unwrap();
        text(&said)
    };
    let env = "/usr/bin/env";
    assert_eq!(said(&mut event_loop, Command::new(env).env_clear()), "");
    assert_eq!(said(&mut event_loop, Command::new(env).env_clear().env("ONE", "1")), "ONE=1\n");
    assert!(
        said(&mut event_loop, Command::new(env).env("ONE", "1")).contains("PATH="),
        "the rest is inherited"
    );
    let path = folder.path().canonicalize().unwrap();
    assert_eq!(said(&mut event_loop, shell("pwd -P").current_dir(&path)), format!("{}\n", path.display()));
}

#[test]
fn a_script_is_found_by_a_path_of_odd_characters_and_by_the_path_of_the_environment() {
    let _beside = beside_others();
    let (mut event_loop, order) = (source_loop(), Order::new());
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("a name; with $odd 'characters");
    std::os::unix::fs::symlink("/bin/true", &odd).unwrap();
    exit_told(&Child::spawn(&event_loop, &mut Command::new(&odd)).unwrap(), &order);
    event_loop.run().unwrap();
    let found = Child::spawn(&event_loop, Command::new(odd.file_name().unwrap()).env("PATH", folder.path()));
    exit_told(&found.unwrap(), &order);
    event_loop.run().unwrap();
    assert_eq!(order.so_far(), ["code 0", "code 0"]);
}

#[test]
fn fifty_children_that_exit_together_are_told_once_each() {
    let _beside = beside_others();
    let (mut event_loop, order) = (source_loop(), Order::new());
    let children: Vec<_> = (0..50).map(|_| patient_child(&event_loop)).collect();
    children.iter().for_each(|child| exit_told(child, &order));
    // All are dead before the loop looks for the first time.
    children.iter().for_each(|child| child.kill(KILL).unwrap());
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), vec!["signal 9"; 50]);
    let running = children.iter().filter(|child| child.kill(TERM).is_ok());
    assert_eq!(running.count(), 0);
}

#[test]
fn an_exit_callback_may_start_the_next_child() {
    let _beside = beside_others();
    fn generation(event_loop: &offload_event_loop::LoopHandle, left: u32, order: &Order<String>) {
        let child = Child::spawn(event_loop, &mut shell(&format!("exit {left}"))).unwrap();
        let order = order.clone();
        let next = move |context: &mut offload_event_loop::Context, status: Result<ExitStatus, _>| {
            order.push(end_of(status.unwrap()));
            if left > 0 {
                generation(context, left - 1, &order);
            }
        };
        child.on_exit(next).unwrap();
    }
    let (mut event_loop, order) = (source_loop(), Order::new());
    generation(&event_loop, 3, &order);
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["code 3", "code 2", "code 1", "code 0"]);
}

#[test]
fn a_child_that_is_unreferenced_or_closed_lives_on_without_the_loop() {
    let _beside = beside_others();
    let (mut event_loop, order) = (source_loop(), Order::new());
    let child = patient_child(&event_loop);
    let input = child.take_stdin().unwrap();
    child.on_exit(|_, _| panic!("it was closed before")).unwrap();
    assert!(event_loop.is_alive());
    child.unref();
    assert!(!event_loop.run().unwrap());
    let process = Pid::from_raw(child.id() as i32).unwrap();
    child.close(order.add("closed")).unwrap();
    assert!(!event_loop.run().unwrap());
    assert_eq!(order.so_far(), ["closed"]);
    test_kill_process(process).expect("it runs still");
    drop(input);
}

#[test]
fn a_child_with_a_socket_for_its_input_and_output_talks_to_the_loop() {
    let _beside = beside_others();
    let (mut event_loop, order) = (source_loop(), Order::new());
    let (ours, theirs) = super::connection();
    let (ours, theirs) = (Rc::into_inner(ours).unwrap(), Rc::into_inner(theirs).unwrap());
    theirs.set_nonblocking(false).unwrap();
    let theirs = OwnedFd::from(theirs);
    let mut command = Command::new("cat");
    command.stdin(theirs.try_clone().unwrap()).stdout(theirs);
    exit_told(&Child::spawn(&event_loop, &mut command).unwrap(), &order);
    drop(command);
    (&ours).write_all(b"echo").unwrap();
    let stream = Stream::from_descriptor(&event_loop, ours.into()).unwrap();
    stream.shutdown(|_, shut| shut.unwrap()).unwrap();
    let said = collect(&stream);
    event_loop.run().unwrap();
    assert_eq!((text(&said).as_str(), order.so_far()), ("echo", vec!["code 0".to_owned()]));
}
