//! Children of a process that ignores SIGCHLD: the kernel collects them.

use super::*;

/// Runs `body` in a process of its own, which ignores SIGCHLD, as the test of this name.
fn ignoring_children(name: &str, body: impl FnOnce()) {
    const ALONE: &str = "OFFLOAD_TEST_IGNORES_CHILDREN";
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let mut command = std::process::Command::new("perl");
    command.args(["-e", "$SIG{CHLD} = 'IGNORE'; exec @ARGV or die"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("workers::process::tests::ignored::{name}"), "--nocapture"]);
    let output = command.env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
}

/// On Linux before 6.9 the group of a process that was collected cannot be named any more.
fn groups_of_the_dead_can_be_killed() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(9))
}

#[test]
fn if_this_process_ignores_its_children_only_the_exits_of_workers_are_unknown() {
    ignoring_children("if_this_process_ignores_its_children_only_the_exits_of_workers_are_unknown", || {
        let mut process = shell("sleep 600 & echo ready; head -c 20 >/dev/null; exit 3");
        assert_eq!(lines(&mut process, 1), ["ready"]);
        let (pid, stdout) = (process.pid, process.stdout());
        assert_eq!(process.try_wait().unwrap(), None);
        send_cancel(&mut process);
        assert_eq!(exit_of(&mut process), Exit::Unknown);
        assert_eq!(test_kill_process(pid), Err(Errno::SRCH), "it is no zombie");
        if groups_of_the_dead_can_be_killed() {
            assert!(wait_for(&stdout, PollFlags::IN, DEADLINE), "its child lives on");
        }
        let mut killed = shell("echo ready; exec sleep 600");
        assert_eq!(lines(&mut killed, 1), ["ready"]);
        killed.signal(Signal::STOP).unwrap();
        wait_for_change(&killed, WaitIdOptions::STOPPED);
        assert!(killed.is_stopped());
        killed.signal(Signal::KILL).unwrap();
        assert_eq!(exit_of(&mut killed), Exit::Unknown);
    });
}

/// Whether it is taken over before it ends is chance.
#[test]
fn if_this_process_ignores_its_children_one_that_ends_at_once_is_no_other_process() {
    ignoring_children(
        "if_this_process_ignores_its_children_one_that_ends_at_once_is_no_other_process",
        || {
            for _ in 0..100 {
                match Process::spawn(&command(&["true"]), PAYLOAD_MAX) {
                    Ok(mut process) => assert_eq!(exit_of(&mut process), Exit::Unknown),
                    Err(error) => {
                        assert!(!error.fatal && error.message.contains("it ended at once"), "{error}");
                    }
                }
            }
        },
    );
}
