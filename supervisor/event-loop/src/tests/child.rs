//! Child processes: how their ends are told, and that nothing is left of them.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use super::*;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// A child that ends when its standard input does.
fn patient_child(event_loop: &EventLoop) -> (Child, Stream) {
    let child = Child::spawn(event_loop, Command::new("cat").stdin(Stdio::piped())).unwrap();
    let input = child.take_stdin().unwrap();
    (child, input)
}

/// The number is free only when the process was waited for: a zombie has it still.
#[track_caller]
fn expect_no_zombie(process_id: u32) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while std::fs::exists(format!("/proc/{process_id}")).unwrap() {
        assert!(Instant::now() < deadline, "process {process_id} is still there");
        std::thread::yield_now();
    }
}

#[test]
fn the_exit_of_a_child_is_told_in_the_poll_phase() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let reports = log.clone();
    event_loop
        .set_panic_handler(move |_, panic| reports.add(format!("{:?}: {}", panic.phase, panic.message())));
    let child = Child::spawn(&event_loop, &mut shell("exit 7")).unwrap();
    child.on_exit(|_, status| panic!("{:?}", status.unwrap().code())).unwrap();
    assert!(matches!(child.on_exit(|_, _| ()), Err(SourceError::AlreadyReading)));
    drop(child);
    assert!(!event_loop.run().unwrap());
    log.expect(&["Poll: Some(7)"]);
}

#[test]
fn a_child_is_killed_by_the_signal_that_it_was_sent_and_only_once() {
    let mut event_loop = real_loop();
    let (child, _input) = patient_child(&event_loop);
    assert!(matches!(child.kill(0), Err(SourceError::UnusableSignal { signal: 0 })));
    let exit = event_loop.spawn({
        let child = child.clone();
        async move { child.exited().await.unwrap().signal() }
    });
    child.kill(15).unwrap();
    event_loop.run().unwrap();
    assert_eq!(exit.take_result(), Some(Ok(Some(15))));
    assert!(matches!(child.kill(15), Err(SourceError::AlreadyExited)));
    expect_no_zombie(child.id());
    child.close(|_| ()).unwrap();
    assert!(matches!(child.close(|_| ()), Err(SourceError::Closed)));
    assert!(matches!(child.kill(15), Err(SourceError::Closed)));
    assert!(matches!(child.on_exit(|_, _| ()), Err(SourceError::Closed)));
}

#[test]
fn the_standard_streams_of_a_child_are_streams_of_the_loop() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let mut command = shell("cat; echo done >&2; exit 3");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = Child::spawn(&event_loop, &mut command).unwrap();
    let input = child.take_stdin().unwrap();
    assert!(child.take_stdin().is_none());
    input.write(vec![b'x'; 300_000], |_, written| written.unwrap()).unwrap();
    input.shutdown(|_, shut| shut.unwrap()).unwrap();
    for (name, stream) in [("out", child.take_stdout().unwrap()), ("err", child.take_stderr().unwrap())] {
        let (log, mut count) = (log.clone(), 0);
        stream
            .read_start(move |_, _, incoming| match incoming {
                Incoming::Data(bytes) => count += bytes.len(),
                incoming => log.add(format!("{name} {count} {incoming:?}")),
            })
            .unwrap();
    }
    let exits = log.clone();
    child.on_exit(move |_, status| exits.add(format!("exit {:?}", status.unwrap().code()))).unwrap();
    event_loop.run().unwrap();
    log.0.borrow_mut().sort_unstable();
    log.expect(&["err 5 End", "exit Some(3)", "out 300000 End"]);
}

#[test]
fn a_program_that_does_not_exist_is_an_error_at_once() {
    let event_loop = real_loop();
    let failed = Child::spawn(&event_loop, &mut Command::new("/does/not/exist"));
    assert_eq!(failed.err().unwrap().kind(), std::io::ErrorKind::NotFound);
    assert!(!event_loop.is_alive());
}

#[test]
fn a_child_keeps_the_loop_alive_unless_it_is_unreferenced() {
    let mut event_loop = real_loop();
    let (child, input) = patient_child(&event_loop);
    assert!(event_loop.is_alive());
    child.unref();
    assert!(!event_loop.run().unwrap());
    child.ref_();
    event_loop.set_immediate(move |_| drop(input));
    assert!(!event_loop.run().unwrap());
    expect_no_zombie(child.id());
}

#[test]
fn a_child_that_was_closed_before_its_exit_leaves_no_zombie_and_tells_nothing() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let (child, input) = patient_child(&event_loop);
    let told = log.clone();
    child.on_exit(move |_, _| told.add("exit")).unwrap();
    let waiting = event_loop.spawn({
        let child = child.clone();
        async move { matches!(child.exited().await, Err(SourceError::Closed)) }
    });
    event_loop.run_mode(RunMode::NoWait).unwrap();
    child.close(log.entry("closed")).unwrap();
    assert!(!event_loop.run().unwrap());
    drop(input);
    expect_no_zombie(child.id());
    assert_eq!(waiting.take_result(), Some(Ok(true)));
    log.expect(&["closed"]);
}

#[test]
fn a_child_without_a_handle_or_a_loop_leaves_no_zombie() {
    let event_loop = real_loop();
    let (forgotten, forgotten_input) = patient_child(&event_loop);
    let forgotten_id = forgotten.id();
    drop((forgotten, forgotten_input));
    expect_no_zombie(forgotten_id);
    let (waited_for, held) = (patient_child(&event_loop), patient_child(&event_loop));
    let (waited_for_id, held_id) = (waited_for.0.id(), held.0.id());
    waited_for.0.on_exit(|_, _| ()).unwrap();
    drop(waited_for.0);
    drop(event_loop);
    assert!(matches!(held.0.kill(15), Err(SourceError::Closed)));
    drop((waited_for.1, held.1));
    expect_no_zombie(waited_for_id);
    expect_no_zombie(held_id);
}

#[test]
fn an_exit_that_is_asked_for_late_is_reported() {
    let (mut event_loop, log) = (real_loop(), Log::default());
    let child = Child::spawn(&event_loop, &mut shell("exit 4")).unwrap();
    event_loop.run().unwrap();
    let told = log.clone();
    child.on_exit(move |_, status| told.add(format!("{:?}", status.unwrap().code()))).unwrap();
    log.add("returned");
    let asked = child.clone();
    let exit = event_loop.spawn(async move { asked.exited().await.unwrap().code() });
    event_loop.run().unwrap();
    log.expect(&["returned", "Some(4)"]);
    assert_eq!(exit.take_result(), Some(Ok(Some(4))));
}

#[test]
fn a_waker_that_panics_keeps_the_exit_of_a_child_from_nobody() {
    struct Bomb;
    impl std::task::Wake for Bomb {
        fn wake(self: std::sync::Arc<Self>) {
            panic!("woken");
        }
    }
    let (mut event_loop, log) = (real_loop(), Log::default());
    let handled = log.clone();
    event_loop.set_panic_handler(move |_, panic| handled.add(panic.message()));
    let child = Child::spawn(&event_loop, &mut Command::new("true")).unwrap();
    let bomb = std::task::Waker::from(std::sync::Arc::new(Bomb));
    let mut awaited = std::pin::pin!(child.exited());
    assert!(awaited.as_mut().poll(&mut std::task::Context::from_waker(&bomb)).is_pending());
    let (own, told) = (child.clone(), log.clone());
    event_loop.spawn(async move { told.add(format!("future {}", own.exited().await.unwrap().success())) });
    let told = log.clone();
    child.on_exit(move |_, status| told.add(format!("callback {}", status.unwrap().success()))).unwrap();
    event_loop.run().unwrap();
    log.expect(&["callback true", "woken", "future true"]);
}
