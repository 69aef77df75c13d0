//! A process that traces the program that has started it is the only one that the kernel tells how that program ended (ptrace(2)). And
//! a worker may make children of its own parent (clone(2)). Neither keeps a worker from being replaced, or outlives it.

use nix::libc::SYS_ptrace;
use serde_json::{Value, json};
use std::path::PathBuf;
use tempfile::TempDir;
use tests::harness::{
    Daemon, PATIENCE, children_of, private_folder, program, run_offload, until, wait_for_end,
};

/// Every worker of this supervisor is there, and it has no other children, dead or alive.
fn has_only_its_workers(daemon: &Daemon) {
    daemon.wait_until_whole();
    let workers = || daemon.workers().iter().filter(|worker| worker["pid"].is_number()).count();
    until("nothing but workers", || (children_of(daemon.pid()).len() == workers()).then_some(()));
}

fn faultworkers() -> Daemon {
    Daemon::start(&["--workers", "2", "--worker", &program("faultworker").display().to_string()])
}

/// The process that faultworkers have started as the one of this number, from 1 on. None, and why, if it may not trace them.
fn started(daemon: &Daemon, number: usize) -> Option<u32> {
    until("word of a grandchild, or of why there is none", || {
        let lines = daemon.stderr.all();
        if let Some(why) = lines.iter().find(|line| line.contains("untraced")) {
            eprintln!("skipped: no process may trace the one that has started it here: {why}");
            return Some(None);
        }
        let mut pids = lines.iter().filter_map(|line| Some(line.split_once("grandchild ")?.1));
        let digits = pids.nth(number - 1)?.split(|char: char| !char.is_ascii_digit()).next()?;
        Some(Some(digits.parse().ok()?))
    })
}

/// More often than processes may hang in the kernel and still have their places filled again.
const OFTEN: usize = 4;

#[test]
fn a_worker_that_is_traced_by_what_it_has_started_ends_like_any_other_and_so_does_that() {
    let daemon = faultworkers();
    for number in 1..=OFTEN {
        let job = daemon.submit(&["charge", "run:traced"]);
        let Some(tracer) = started(&daemon, number) else { return };
        assert_eq!(job["error"]["message"], "signal 9 (SIGKILL) in attempt 1 of 1", "{job}");
        assert!(wait_for_end(tracer, PATIENCE), "process {tracer} outlived its worker");
        daemon.wait_until_whole();
    }
    has_only_its_workers(&daemon);
}

/// One thread that is traced is enough: the process has not ended for the kernel, and hangs after SIGKILL.
#[test]
fn a_worker_of_which_one_thread_is_traced_ends_when_it_is_killed() {
    let daemon = faultworkers();
    for number in 1..=OFTEN {
        let job = daemon.submit(&["charge", "run:traced-thread"]);
        let Some(tracer) = started(&daemon, number) else { return };
        assert_eq!(job["outcome"], "worker_crashed", "{job}");
        assert!(wait_for_end(tracer, PATIENCE), "process {tracer} outlived its worker");
        daemon.wait_until_whole();
    }
    has_only_its_workers(&daemon);
}

/// Before it ends, it waits for its tracer, even after SIGKILL.
#[test]
fn a_worker_that_is_stopped_at_its_end_by_its_tracer_ends_when_it_is_killed() {
    let daemon = faultworkers();
    for number in 1..=OFTEN {
        let job = daemon.run(&["submit", "--detach", "charge", "run:traced-end"]).ok().text();
        let Some(tracer) = started(&daemon, number) else { return };
        daemon.run(&["cancel", job.trim()]).ok();
        assert!(wait_for_end(tracer, PATIENCE), "process {tracer} outlived its worker");
        daemon.wait_until_whole();
    }
    has_only_its_workers(&daemon);
}

#[test]
fn what_a_worker_has_made_a_child_of_the_supervisor_is_collected_and_ends_with_the_worker() {
    let daemon = faultworkers();
    for number in 1..=OFTEN {
        let job = daemon.submit(&["charge", "run:siblings"]);
        assert_eq!(job["error"]["signal"], 9, "{job}");
        let sibling = started(&daemon, number).expect("it traces nobody");
        assert!(wait_for_end(sibling, PATIENCE), "process {sibling} outlived its worker");
    }
    has_only_its_workers(&daemon);
}

/// A program in Perl that is traced by a process that it has started, and kills itself. `before` runs first, and `unless` if nobody
/// may trace it. Every signal stops who is traced, SIGCHLD too, so before that it has waited for the parent of its tracer: that the
/// tracer has another parent is not enough, because the kernel gives it one before it sends that signal.
struct Traced {
    folder: TempDir,
}

impl Traced {
    fn new(before: &str, unless: &str) -> Traced {
        let folder = private_folder();
        let text = format!(
            "use POSIX; {before}
            pipe(my $from, my $to); my $me = $$;
            if (!(my $child = fork)) {{
                my $parent = $$; exit if fork; POSIX::setsid();
                select(undef, undef, undef, 0.001) while kill 0 => $parent;
                my $refused = syscall(0 + $ARGV[0], 0x4206, $me, 0, 0) != 0;
                syswrite $to, $refused ? 'untraced' : 'traced'; close $to; sleep 60; exit;
            }} else {{ waitpid $child, 0 }}
            close $to; sysread $from, my $said, 10;
            if ($said ne 'traced') {{ {unless} }}
            kill KILL => $$; sleep 60;"
        );
        std::fs::write(folder.path().join("traced.pl"), text).expect("a file");
        Traced { folder }
    }

    fn command(&self) -> String {
        format!("perl {} {SYS_ptrace}", self.path().display())
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("traced.pl")
    }

    /// What became of it, unless nobody may trace it.
    fn job(&self, words: &[&str]) -> Option<Value> {
        let ran = run_offload(&[&["run", "--json", "--workers", "1"], words].concat());
        let is_refused = ran.text().contains("untraced") || ran.stderr.contains("untraced");
        if is_refused {
            eprintln!("skipped: no process may trace the one that has started it here: {ran:?}");
        }
        (!is_refused).then(|| ran.json())
    }
}

#[test]
fn a_program_of_json_lines_that_is_traced_by_what_it_has_started_crashes_by_its_signal() {
    let traced = Traced::new(
        r#"open(my $jobs, '<&=', 3); open(my $answers, '>&=', 4);
        syswrite $answers, qq({"hello":{"tasks":[{"name":"t"}]}}\n); my ($number) = <$jobs> =~ /"job": *"(\d+)"/;"#,
        r#"syswrite $answers, qq({"job":"$number","error":"untraced"}\n); sleep 60"#,
    );
    let Some(job) = traced.job(&["--worker-jsonl", &traced.command(), "--timeout", "30s", "t", "1"]) else {
        return;
    };
    assert_eq!((&job["outcome"], &job["error"]["signal"]), (&json!("worker_crashed"), &json!(9)), "{job}");
}

#[test]
fn a_program_of_exec_that_is_traced_by_what_it_has_started_ends_by_its_signal() {
    let traced = Traced::new("", "print 'untraced'; exit 9");
    let Some(job) = traced.job(&["--timeout", "30s", "--exec", &traced.command()]) else { return };
    let message = job["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("signal 9"), "{job}");
}
