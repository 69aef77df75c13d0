//! Real children. Each test waits for what it expects, with a deadline, and never for time to pass.

mod ignored;

use super::super::capture::CaptureState;
use super::super::{Allowance, Buffers, LinkError, Received, Segment, SegmentBytes};
use super::*;
use offload_protocol::messages::FromWorker;
use offload_protocol::nouns::{MediaType, Metadata};
use rustix::process::test_kill_process;
use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;

const DEADLINE: Duration = Duration::from_secs(20);
const PAYLOAD_MAX: usize = 1 << 20;
/// Length of a `Cancel` on the wire: what a script waits for that is to go on when told.
const CANCEL_BYTES: usize = 20;

fn command(words: &[&str]) -> Program {
    Program::command(words.iter().map(|word| (*word).to_owned()).collect())
}

fn shell(script: &str) -> Process {
    Process::spawn(&command(&["sh", "-c", script]), PAYLOAD_MAX).unwrap()
}

fn exit_of(process: &mut Process) -> Exit {
    assert!(wait_for(&process.pidfd(), PollFlags::IN, DEADLINE), "it does not end");
    process.try_wait().unwrap().expect("the pidfd is readable")
}

/// Lines of stdout until `enough` of them or the end.
fn lines(process: &mut Process, enough: usize) -> Vec<String> {
    let stdout = process.stdout();
    let mut lines = Vec::new();
    while lines.len() < enough {
        assert!(wait_for(&stdout, PollFlags::IN, DEADLINE), "neither a line nor the end after {lines:?}");
        let captured = process.capture(OutputStream::Stdout, Instant::now());
        lines.extend(captured.lines);
        if captured.state == CaptureState::Ended {
            break;
        }
    }
    lines
}

fn all_lines(process: &mut Process) -> Vec<String> {
    lines(process, usize::MAX)
}

/// The next thing that comes over the socket, and the jobs that were named.
fn receive(process: &mut Process) -> (Result<Received, LinkError>, Vec<u64>) {
    assert!(wait_for(&process.socket(), PollFlags::IN, DEADLINE), "nothing comes");
    let mut jobs = Vec::new();
    let received = process.receive(&mut Allowance::of_a_turn(), &mut |message, _| match message {
        FromWorker::Started { job, .. } => jobs.push(job),
        other => panic!("{other:?}"),
    });
    (received, jobs)
}

fn send_cancel(process: &mut Process) {
    process.send(&ToWorker::Cancel { job: 258 }, &Bytes::new()).unwrap();
    assert_eq!(process.unsent(), CANCEL_BYTES);
    assert_eq!(process.flush().unwrap(), Flushed::Done);
}

#[test]
fn an_exit_code_and_a_signal_are_told_and_stay_told() {
    let mut exited = shell("exit 3");
    assert_eq!(exit_of(&mut exited), Exit::Code(3));
    assert_eq!(exited.try_wait().unwrap(), Some(Exit::Code(3)));
    let mut killed = shell("ulimit -c 0; kill -SEGV $$");
    assert_eq!(exit_of(&mut killed), Exit::Signal(11));
}

#[test]
fn a_forked_child_neither_kills_nor_waits_for_the_processes_of_its_parent() {
    let mut all = [shell("sleep 1000"), shell("sleep 1000")];
    let pidfds = all.each_ref().map(Process::pidfd);
    all.iter_mut().for_each(|process| process.origin = Origin::elsewhere());
    let [one, other] = all;
    drop(one);
    Process::kill_and_reap_all(vec![other]);
    for pidfd in pidfds {
        assert!(!wait_for(&pidfd, PollFlags::IN, Duration::ZERO), "it has ended");
        pidfd_send_signal(&pidfd, Signal::KILL).unwrap();
        assert!(wait_for(&pidfd, PollFlags::IN, DEADLINE), "it does not end");
        waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED).unwrap();
    }
}

/// To take it out of /proc may take the kernel long: whoever asks how it ended need not wait for that.
#[test]
fn an_ended_process_is_a_zombie_until_it_is_dropped() {
    let mut process = shell("exit 3");
    let pid = process.pid;
    assert_eq!(exit_of(&mut process), Exit::Code(3));
    assert!(test_kill_process(pid).is_ok(), "its number is not free yet");
    drop(process);
    assert_eq!(test_kill_process(pid), Err(Errno::SRCH));
}

#[test]
fn a_living_process_is_not_reaped() {
    let mut process = shell("echo ready; head -c 20 >/dev/null");
    assert_eq!(lines(&mut process, 1), ["ready"]);
    assert_eq!(process.try_wait().unwrap(), None);
    send_cancel(&mut process);
    assert_eq!(exit_of(&mut process), Exit::Code(0));
}

/// Beyond 0, 1 and 2 there may be what the process that runs the tests was itself given to pass on.
#[test]
fn of_what_is_open_here_a_child_gets_three_descriptors() {
    let target = |descriptor: &dyn AsRawFd| {
        std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd())).unwrap().display().to_string()
    };
    let other = shell("cat");
    let mut process = shell("ls -l /proc/$$/fd; true");
    let mut opened_here = BTreeSet::new();
    for worker in [&other, &process] {
        opened_here.extend([target(&worker.socket()), target(&worker.stdout()), target(&worker.stderr())]);
        opened_here.insert(target(&worker.pidfd()));
    }

    let listing = all_lines(&mut process);
    let entries = listing.iter().filter_map(|line| line.split_once(" -> "));
    let opened_there: Vec<(&str, &str)> =
        entries.map(|(left, to)| (left.rsplit(' ').next().unwrap(), to)).collect();
    for (number, to) in &opened_there {
        assert!(["0", "1", "2"].contains(number) || !opened_here.contains(*to), "{number} is {to}");
    }
    assert!(opened_there.len() >= 3, "{listing:?}");
}

#[test]
fn a_child_leads_a_group_of_its_own() {
    let process = shell("cat");
    assert_eq!(getpgid(Some(process.pid)).unwrap(), process.pid);
}

#[test]
fn a_child_sees_only_the_environment_that_it_is_meant_to() {
    let ours: BTreeSet<String> = std::env::vars().map(|(name, _)| name).collect();
    let always = ["LANG", "TZ", "PATH", "HOME"];
    let extra = ours.iter().find(|name| !always.contains(&name.as_str())).cloned();
    let names_in_child = |program: &Program| -> BTreeSet<String> {
        let lines = all_lines(&mut Process::spawn(program, PAYLOAD_MAX).unwrap());
        lines.iter().filter_map(|line| line.split_once('=')).map(|(name, _)| name.to_owned()).collect()
    };

    let mut expected: BTreeSet<String> =
        ["LANG", "TZ", "PATH", "OFFLOAD_PAYLOAD_MAX"].map(str::to_owned).into();
    expected.extend(ours.get("HOME").cloned());
    assert_eq!(names_in_child(&command(&["env"])), expected);

    let passed = extra.into_iter().chain(["NO_SUCH_VARIABLE_HERE".to_owned()]).collect::<Vec<_>>();
    expected.extend(passed.iter().filter(|name| ours.contains(*name)).cloned());
    assert_eq!(names_in_child(&command(&["env"]).with_environment(passed)), expected);
}

#[test]
fn a_shim_becomes_the_program() {
    let shim = ["sh", "-c", r#"echo shim; exec "$@""#, "shim"].map(str::to_owned).to_vec();
    let program = command(&["sh", "-c", "echo program; exit 4"]).with_shim(shim);
    let mut process = Process::spawn(&program, PAYLOAD_MAX).unwrap();
    assert_eq!(all_lines(&mut process), ["shim", "program"]);
    assert_eq!(exit_of(&mut process), Exit::Code(4));
}

#[test]
fn messages_go_both_ways_over_descriptor_0() {
    let started = r"\020\0\0\0\0\0\0\0\003\0\0\0\007\0\0\0\0\0\0\0\001\0\0\0";
    let mut process = shell(&format!("printf '{started}' >&0; od -An -v -tx1 -w20 -N {CANCEL_BYTES}"));
    assert_eq!(receive(&mut process).1, [7]);
    send_cancel(&mut process);
    assert_eq!(all_lines(&mut process), [" 0c 00 00 00 00 00 00 00 02 00 00 00 02 01 00 00 00 00 00 00"]);
}

#[test]
fn what_is_printed_by_mistake_does_not_reach_the_protocol_and_garbage_on_it_is_an_error() {
    let mut process = shell("echo lost; echo lost >&2; echo garbage garbage >&0; cat");
    assert_eq!(lines(&mut process, 1), ["lost"]);
    assert!(matches!(receive(&mut process).0, Err(LinkError::Frame(_))));
}

#[test]
fn a_large_job_reaches_its_worker_in_pieces() {
    let mut process = shell("wc -c");
    let input = Bytes::from(vec![0; 4 << 20]);
    process.send(&ToWorker::Cancel { job: 1 }, &input).unwrap();
    while process.flush().unwrap() != Flushed::Done {
        assert!(
            wait_for(&process.socket(), PollFlags::OUT, DEADLINE),
            "{} bytes are stuck",
            process.unsent()
        );
    }
    process.close_link();
    assert_eq!(all_lines(&mut process), [(CANCEL_BYTES + input.len()).to_string()]);
}

#[test]
fn the_last_words_of_a_worker_can_be_read_after_its_end() {
    let mut process = shell("echo fine; printf 'panicked at \\033[1mhome' >&2; exit 101");
    assert_eq!(exit_of(&mut process), Exit::Code(101));
    let now = Instant::now();
    assert_eq!(process.capture_rest(OutputStream::Stdout, now).lines, ["fine"]);
    assert_eq!(process.capture_rest(OutputStream::Stderr, now).lines, [r"panicked at \u{1b}[1mhome"]);
    assert_eq!(process.last_lines(), ["fine", r"panicked at \u{1b}[1mhome"]);
}

/// The pipe ends when the last process that can write to it has ended, and so tells when the grandchild is gone.
#[test]
fn a_signal_reaches_grandchildren() {
    let mut process = shell("sleep 600 & echo ready; wait");
    assert_eq!(lines(&mut process, 1), ["ready"]);
    process.signal(Signal::KILL).unwrap();
    assert!(all_lines(&mut process).is_empty());
    assert_eq!(exit_of(&mut process), Exit::Signal(9));
}

#[test]
fn grandchildren_do_not_outlive_a_worker_that_ends_by_itself() {
    let mut process = shell("sleep 600 & exit 5");
    assert_eq!(exit_of(&mut process), Exit::Code(5));
    assert!(all_lines(&mut process).is_empty());
}

#[test]
fn a_grandchild_that_keeps_the_socket_open_cannot_withhold_the_exit() {
    let mut process = shell("setsid -f sh -c 'echo $$; exec sleep 600'; head -c 20 >/dev/null; exit 3");
    let escaped: i32 = lines(&mut process, 1)[0].parse().unwrap();
    send_cancel(&mut process);
    assert_eq!(exit_of(&mut process), Exit::Code(3));
    let received = process.receive(&mut Allowance::of_a_turn(), &mut |_, _| {});
    kill_process_group(Pid::from_raw(escaped).unwrap(), Signal::KILL).unwrap();
    assert!(matches!(received, Ok(Received::WouldBlock)), "the grandchild holds the socket: {received:?}");
}

#[test]
fn a_worker_may_handle_a_signal_and_finish_in_order() {
    let script = "$SIG{TERM} = sub { print qq(term\n) }; $| = 1; print qq(ready\n);
        for (;;) { my $count = sysread STDIN, my $byte, 1; last if defined $count }; print qq(end\n)";
    let mut process = Process::spawn(&command(&["perl", "-e", script]), PAYLOAD_MAX).unwrap();
    assert_eq!(lines(&mut process, 1), ["ready"]);
    process.signal(Signal::TERM).unwrap();
    assert_eq!(lines(&mut process, 1), ["term"]);
    process.close_link();
    assert_eq!(all_lines(&mut process), ["end"]);
}

#[test]
fn a_process_that_moved_to_another_group_is_reached_all_the_same() {
    let script = "setpgrp(0, getpgrp(getppid())) or die; $| = 1; print qq(moved\n); sleep 600";
    let mut process = Process::spawn(&command(&["perl", "-e", script]), PAYLOAD_MAX).unwrap();
    assert_eq!(lines(&mut process, 1), ["moved"]);
    process.signal(Signal::TERM).unwrap();
    assert_eq!(exit_of(&mut process), Exit::Signal(15));
}

#[test]
fn a_process_that_somebody_else_collected_has_an_unknown_exit_and_gets_no_more_signals() {
    let mut process = shell("exit 3");
    assert!(wait_for(&process.pidfd(), PollFlags::IN, DEADLINE));
    waitid(WaitId::PidFd(process.pidfd().as_fd()), WaitIdOptions::EXITED).unwrap();
    assert_eq!(process.try_wait().unwrap(), Some(Exit::Unknown));
    process.signal(Signal::KILL).unwrap();
    assert_eq!(process.cpu_time(), None);
}

#[test]
fn what_a_worker_used_is_known_while_it_lives_and_its_time_afterwards() {
    let busy = "i=0; while [ $i -lt 500000 ]; do i=$((i+1)); done; echo done; head -c 20 >/dev/null";
    let mut process = shell(busy);
    assert_eq!(lines(&mut process, 1), ["done"]);
    let so_far = process.cpu_time().unwrap();
    assert!(so_far > Duration::ZERO && process.resident_bytes().unwrap() > 0);
    send_cancel(&mut process);
    exit_of(&mut process);
    assert!(process.cpu_time().unwrap() >= so_far);
    assert_eq!(process.resident_bytes(), None);
}

#[test]
fn what_a_worker_used_is_told_apart_and_its_peak_of_memory_is_remembered() {
    let script = "{ my $much = 'x' x (32 << 20) } $| = 1; my $i = 0; $i += $_ for 1..3000000;
        print qq(done\n); sysread STDIN, my $byte, 1";
    let mut process = Process::spawn(&command(&["perl", "-e", script]), PAYLOAD_MAX).unwrap();
    assert_eq!(lines(&mut process, 1), ["done"]);
    let seen = process.usage().unwrap();
    assert!(seen.peak_rss.unwrap() > 32 << 20, "{seen:?}");
    send_cancel(&mut process);
    exit_of(&mut process);
    let in_all = process.usage().unwrap();
    assert!(in_all.peak_rss >= seen.peak_rss);
    assert!(in_all.cpu_user > Duration::ZERO && in_all.cpu_user >= seen.cpu_user, "{seen:?}, {in_all:?}");
    assert_eq!(process.cpu_time(), Some(in_all.cpu_user + in_all.cpu_system));
}

#[test]
fn the_memory_of_a_worker_is_looked_at_before_it_is_killed() {
    let mut process = shell("echo ready; exec cat");
    assert_eq!(lines(&mut process, 1), ["ready"]);
    process.signal(Signal::KILL).unwrap();
    exit_of(&mut process);
    assert!(process.usage().unwrap().peak_rss.unwrap() > 0);
}

#[test]
fn of_a_worker_that_had_much_memory_the_peak_is_known_though_nobody_looked() {
    let much = usage::own_peak_rss() + (64 << 20);
    let script = format!("my $much = 'x' x {much}; kill 'KILL', $$");
    let mut process = Process::spawn(&command(&["perl", "-e", &script]), PAYLOAD_MAX).unwrap();
    assert_eq!(exit_of(&mut process), Exit::Signal(9));
    assert!(process.usage().unwrap().peak_rss.unwrap() >= much);
}

#[test]
fn of_a_worker_that_nobody_looked_at_no_peak_of_memory_is_known() {
    let mut process = shell("exit 0");
    exit_of(&mut process);
    assert_eq!(process.usage().unwrap().peak_rss, None);
}

/// Leaves the change there.
fn wait_for_change(process: &Process, change: WaitIdOptions) {
    let deadline = Instant::now() + DEADLINE;
    while look(WaitId::PidFd(process.pidfd().as_fd()), change).unwrap().is_none() {
        assert!(Instant::now() < deadline, "it does not change");
        std::thread::yield_now();
    }
}

#[test]
fn a_process_is_stopped_until_it_goes_on_however_often_one_looks() {
    let mut process = shell("exec sleep 600");
    assert!(!process.is_stopped());
    process.signal(Signal::STOP).unwrap();
    wait_for_change(&process, WaitIdOptions::STOPPED);
    assert!(process.is_stopped() && process.is_stopped());
    assert_eq!(process.try_wait().unwrap(), None);
    process.signal(Signal::CONT).unwrap();
    wait_for_change(&process, WaitIdOptions::CONTINUED);
    assert!(!process.is_stopped());
}

#[test]
fn the_end_of_a_process_is_no_stop_and_is_left_to_be_reaped() {
    let mut process = shell("exit 3");
    assert!(wait_for(&process.pidfd(), PollFlags::IN, DEADLINE));
    assert!(!process.is_stopped());
    assert_eq!(exit_of(&mut process), Exit::Code(3));
    assert!(!process.is_stopped());
}

#[test]
fn a_stopped_process_is_killed_all_the_same() {
    let mut process = shell("exec sleep 600");
    process.signal(Signal::STOP).unwrap();
    wait_for_change(&process, WaitIdOptions::STOPPED);
    process.signal(Signal::KILL).unwrap();
    assert_eq!(exit_of(&mut process), Exit::Signal(9));
}

#[test]
fn confinement_and_descriptors_are_told_of_the_living() {
    let mut process = shell("ulimit -c 0; ulimit -n 100; exec 8</dev/null; echo ready; exec cat");
    assert_eq!(lines(&mut process, 1), ["ready"]);
    let confinement = process.confinement().unwrap();
    assert_eq!((confinement.core_limit, confinement.open_files_limit), (Some(0), Some(100)));
    assert!(process.open_descriptors().unwrap() >= 4);
    process.signal(Signal::KILL).unwrap();
    exit_of(&mut process);
    assert_eq!((process.confinement(), process.open_descriptors()), (None, None));
}

#[test]
fn a_variable_of_the_program_reaches_the_child() {
    let program =
        command(&["sh", "-c", "echo $OFFLOAD_GENERATION"]).with_variable("OFFLOAD_GENERATION", "first");
    let mut process = Process::spawn(&program, PAYLOAD_MAX).unwrap();
    assert_eq!(all_lines(&mut process), ["first"]);
}

#[test]
fn a_dropped_process_is_gone_with_its_group_and_leaves_no_zombie() {
    let mut process = shell("trap '' TERM; sleep 600 & echo ready; wait");
    assert_eq!(lines(&mut process, 1), ["ready"]);
    let (pid, stdout) = (process.pid, process.stdout());
    drop(process);
    assert_eq!(test_kill_process(pid), Err(Errno::SRCH));
    assert!(wait_for(&stdout, PollFlags::IN, DEADLINE));
    assert_eq!(rustix::io::read(&stdout, &mut [0; 1]), Ok(0), "the grandchild is gone too");
}

#[test]
fn a_program_that_is_not_there_or_not_executable_is_a_fatal_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("worker");
    std::fs::write(&file, "not executable").unwrap();
    let missing = Process::spawn(&command(&["no-such-program", "-x"]), PAYLOAD_MAX).unwrap_err();
    assert!(missing.fatal);
    assert!(missing.message.starts_with("cannot start `no-such-program -x`: no `no-such-program` in PATH ("));
    let refused = Process::spawn(&command(&[file.to_str().unwrap()]), PAYLOAD_MAX).unwrap_err();
    assert!(refused.fatal && refused.message.contains("ermission denied"), "{refused}");
    assert!(Process::spawn(&command(&["sh", "a\0b"]), PAYLOAD_MAX).unwrap_err().fatal);
}

#[test]
fn a_program_that_is_being_written_is_an_error_that_may_pass() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("worker");
    std::fs::write(&file, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let _writer = std::fs::OpenOptions::new().append(true).open(&file).unwrap();
    let error = Process::spawn(&command(&[file.to_str().unwrap()]), PAYLOAD_MAX).unwrap_err();
    assert!(!error.fatal, "{error}");
}

#[test]
fn want_of_resources_may_pass_and_a_broken_file_does_not() {
    for (errno, fatal) in [
        (Errno::AGAIN, false),
        (Errno::NOMEM, false),
        (Errno::MFILE, false),
        (Errno::TXTBSY, false),
        (Errno::NOENT, true),
        (Errno::ACCESS, true),
        (Errno::NOEXEC, true),
        (Errno::LOOP, true),
        (Errno::TOOBIG, true),
    ] {
        assert_eq!(is_pointless(&errno.into()), fatal, "{errno}");
    }
}

#[test]
fn a_segment_that_the_worker_does_not_access_is_not_taken_off_its_memory() {
    let bytes = 4 * RSS_NOISE;
    let mut process = shell(&format!(
        "x=$(head -c {bytes} /dev/zero | tr '\\0' x); echo ready; head -c 1 >/dev/null; kill -STOP $$"
    ));
    assert_eq!(lines(&mut process, 1), ["ready"]);
    process.allow_segments(Buffers::new(0));
    let input = Bytes::from(vec![1; PAYLOAD_MAX]);
    for job in [1, 2] {
        let run = ToWorker::Run {
            job,
            attempt: 1,
            task: "any",
            media_type: MediaType::OCTET_STREAM,
            timeout_ms: 0,
            deadline_ms: 0,
            metadata: Metadata::default(),
        };
        process.send(&run, &input).unwrap();
    }
    let (holds, _) = process.take_segment_news().unwrap().wanted[0];
    let segment = Segment::new(1, 64 << 20, &SegmentBytes::default(), u64::MAX).unwrap().unwrap();
    process.offer_segment(holds, segment).unwrap();
    let counted = process.resident_bytes().unwrap();
    assert!(counted > bytes - RSS_NOISE, "{counted}");
}
