//! Worker processes: processes that they leave behind, what they cannot see, how they react to signals, and a program that
//! cannot be loaded because its file system does not answer.

use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::{ComputePool, EventLoop, Job, Level, PoolConfig, Program};
use rustix::process::Signal;
use std::cell::RefCell;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;
use tests::harness::{
    Daemon, PATIENCE, command, copy_for_anybody, offload, private_folder, program, run, signal, until,
    wait_for_end, write_executable,
};

fn faultworker() -> String {
    program("faultworker").display().to_string()
}

/// The process ids that faultworkers of this supervisor have said of what they have started, once there are so many.
fn grandchildren(daemon: &Daemon, count: usize) -> Vec<u32> {
    until("word of a grandchild", || {
        let lines = daemon.stderr.all();
        let words = lines.iter().filter_map(|line| line.split_once("grandchild "));
        let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
        let pids: Vec<u32> = words.filter_map(|(_, pid)| digits(pid).parse().ok()).collect();
        (pids.len() >= count).then_some(pids)
    })
}

fn is_alive(pid: u32) -> bool {
    !wait_for_end(pid, Duration::ZERO)
}

fn pid_of_the_worker_running(daemon: &Daemon, task: &str) -> u32 {
    u32::try_from(daemon.worker_running(task)["pid"].as_u64().unwrap()).unwrap()
}

/// Whatever a test leaves behind ends with it.
struct Ended(Vec<u32>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.iter().for_each(|pid| signal(*pid, Signal::KILL));
    }
}

/// The helper has forked twice, is in a session of its own and has no environment: it has been our child from its
/// beginning, and only its mark tells whose it is.
#[test]
fn a_helper_of_a_running_job_survives_the_crash_of_another_worker_and_ends_with_its_own() {
    let daemon = Daemon::start(&["--workers", "2", "--worker", &faultworker()]);
    let job = daemon.run(&["submit", "--detach", "charge", "run:helper"]).ok().text();
    let helper = grandchildren(&daemon, 1)[0];
    let _ended = Ended(vec![helper]);
    let worker = pid_of_the_worker_running(&daemon, "charge");

    // Other workers crash, one of them with a process that escaped from it: when that is gone, a sweep was made.
    let crash = daemon.submit(&["charge", "run:daemonize"]);
    assert_eq!(crash["outcome"], "worker_crashed");
    let stray = grandchildren(&daemon, 2)[1];
    assert!(wait_for_end(stray, PATIENCE), "process {stray} outlived its worker");
    assert_eq!(daemon.submit(&["charge", "run:segv"])["outcome"], "worker_crashed");
    assert!(is_alive(helper) && is_alive(worker), "the helper of a healthy job was ended");

    daemon.run(&["cancel", job.trim()]).ok();
    assert!(wait_for_end(worker, PATIENCE), "a cancelled job goes on");
    assert!(wait_for_end(helper, PATIENCE), "process {helper} outlived its worker");
}

#[test]
fn a_helper_ends_with_the_supervisor_at_the_latest() {
    let mut daemon = Daemon::start(&["--workers", "1", "--worker", &faultworker()]);
    daemon.run(&["submit", "--detach", "charge", "run:helper"]).ok();
    let helper = grandchildren(&daemon, 1)[0];
    let _ended = Ended(vec![helper]);
    daemon.run(&["stop"]).ok();
    assert_eq!(daemon.wait(), 0);
    assert!(wait_for_end(helper, PATIENCE), "process {helper} outlived the supervisor");
}

/// The first start after the death of a supervisor has the lock in its hand when it finds that it cannot have the
/// socket; the second one can.
#[test]
fn a_start_that_fails_does_not_forget_what_outlived_the_supervisor_before() {
    let mut daemon = Daemon::start(&["--workers", "1", "--worker", &faultworker()]);
    daemon.run(&["submit", "--detach", "charge", "run:helper"]).ok();
    let helper = grandchildren(&daemon, 1)[0];
    let _ended = Ended(vec![helper]);
    daemon.signal(Signal::KILL);
    daemon.wait();
    assert!(is_alive(helper), "nobody was left to end it");

    std::fs::remove_file(&daemon.socket).unwrap();
    std::fs::create_dir(&daemon.socket).unwrap();
    let ran = daemon.run(&["serve", "--workers", "1"]).code(2);
    assert!(ran.stderr.contains("no socket"), "{}", ran.stderr);
    std::fs::remove_dir(&daemon.socket).unwrap();

    let mut next = daemon.command(&["serve", "--workers", "1"]);
    let next = next.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut next = Held(next);
    assert!(wait_for_end(helper, PATIENCE), "process {helper} outlived the next start");
    signal(next.0.id(), Signal::TERM);
    next.0.wait().unwrap();
}

/// A process that changes its user loses the signal that would end it with its supervisor.
#[test]
fn a_worker_that_has_become_another_user_is_ended_by_the_next_supervisor() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can become another user");
    }
    let folder =
        tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let worker = copy_for_anybody(folder.path(), "faultworker").display().to_string();
    let worker = format!("setpriv --reuid 65534 --regid 65534 --clear-groups {worker}");
    let mut daemon = Daemon::start(&["--workers", "1", "--worker", &worker]);
    daemon.run(&["submit", "--detach", "act", "spin"]).ok();
    let worker = pid_of_the_worker_running(&daemon, "act");
    let _ended = Ended(vec![worker]);
    daemon.signal(Signal::KILL);
    daemon.wait();
    assert!(is_alive(worker), "it has ended by itself, so it proves nothing");

    let mut next = daemon.command(&["serve", "--workers", "1"]);
    let next = next.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut next = Held(next);
    assert!(wait_for_end(worker, PATIENCE), "process {worker} outlived the next start");
    let mut said = String::new();
    BufReader::new(next.0.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("that a killed supervisor had left behind"), "{said}");
    signal(next.0.id(), Signal::TERM);
    next.0.wait().unwrap();
}

/// To root nothing is hidden, and this says so.
#[test]
fn a_supervisor_that_runs_as_root_warns_of_what_its_workers_can_do() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: this is not root");
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ours = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim();
    if u64::from_str_radix(ours, 16).unwrap() >> 19 & 1 == 0 {
        return println!("skipped: this root may not trace others");
    }
    let is_warning = |line: &str| line.contains("running as root: workers keep CAP_SYS_PTRACE");
    let daemon = Daemon::start(&["--workers", "2"]);
    daemon.wait_until_whole();
    assert_eq!(daemon.workers()[0]["confinement"]["can_trace"], true);
    assert!(daemon.stderr.find(is_warning, PATIENCE).is_some());
    assert_eq!(daemon.stderr.all().iter().filter(|line| is_warning(line)).count(), 1);
    // Who has given the privilege up is warned of nothing.
    let harmless =
        format!("setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace {} worker", offload().display());
    let mut daemon = Daemon::start(&["--workers", "1", "--worker", &harmless]);
    daemon.wait_until_whole();
    assert_eq!(daemon.workers()[0]["confinement"]["can_trace"], false);
    daemon.run(&["stop"]).ok();
    daemon.wait();
    assert!(!daemon.stderr.all().iter().any(|line| is_warning(line)));
}

/// A child that ends with the test.
struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

/// As an ordinary user: to root nothing is hidden.
#[test]
fn a_worker_cannot_look_into_its_supervisor() {
    let folder =
        tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let worker = copy_for_anybody(folder.path(), "faultworker").display().to_string();
    let arguments = ["--workers", "2", "--worker", "builtin", "--worker", &worker];
    let mut with_a_secret = |mut command: Command| {
        command.env("SECRET", "hidden");
        command
    };
    let daemon = Daemon::launch_unprivileged(&arguments, &mut with_a_secret);
    let peeked = daemon.submit(&["charge", "run:peek"]);
    assert_eq!(peeked["outcome"], "ok", "{peeked}");
    // What needs its own /proc goes on: workers are started, found and replaced, and what escapes is ended.
    assert_eq!(daemon.submit(&["primes", "100"])["output"]["count"], 25);
    assert_eq!(daemon.submit(&["charge", "run:escape3-bare"])["outcome"], "worker_crashed");
    for escaped in grandchildren(&daemon, 3) {
        assert!(wait_for_end(escaped, PATIENCE), "process {escaped} outlived its worker");
    }
    daemon.wait_until_whole();
    assert_eq!(daemon.submit(&["charge", "run:nothing"])["outcome"], "ok");
}

#[test]
fn workers_heed_sigterm_even_if_whoever_started_the_supervisor_ignores_and_blocks_it() {
    let script =
        "use POSIX; sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGTERM)); $SIG{TERM} = q(IGNORE); exec @ARGV";
    let mut behind_perl = |command: Command| {
        let mut perl = Command::new("perl");
        perl.args(["-e", script]).arg(command.get_program()).args(command.get_args());
        perl.env_remove("OFFLOAD_SOCKET");
        perl
    };
    let arguments = ["--workers", "2", "--worker", "builtin", "--worker", &faultworker()];
    let daemon = Daemon::launch_changed(&arguments, &mut behind_perl);
    daemon.wait_until_whole();
    for worker in daemon.workers().iter().filter(|worker| worker["state"] == "idle") {
        let pid = u32::try_from(worker["pid"].as_u64().unwrap()).unwrap();
        signal(pid, Signal::TERM);
        assert!(wait_for_end(pid, PATIENCE), "a {} worker ignores SIGTERM", worker["program"]);
    }
    let is_told =
        |worker: &serde_json::Value| worker["last_exit"].as_str().is_some_and(|exit| exit.contains("15"));
    until("two exits by SIGTERM", || {
        (daemon.workers().iter().filter(|worker| is_told(worker)).count() >= 2).then_some(())
    });
}

/// A file on which another process has a lease: whoever opens it, to execute it for example, waits until that gives it
/// back, for 45 seconds if it never does (fcntl(2), F_SETLEASE).
struct Lease {
    _holder: Held,
    file: PathBuf,
}

impl Lease {
    fn of(folder: &Path) -> Lease {
        let file = folder.join("leased");
        write_executable(&file, &std::fs::read(offload()).unwrap());
        let script = "$SIG{IO} = q(IGNORE); $| = 1; open(F, q(<), $ARGV[0]) or die; fcntl(F, 1024, 1) or die; \
                      print qq(held\\n); sleep 600";
        let mut perl = Command::new("perl");
        perl.args(["-e", script]).arg(&file).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut holder = Held(perl.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(holder.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        Lease { _holder: holder, file }
    }
}

/// What a worker is told in its environment is about this worker, and no setting.
#[test]
fn an_offload_that_a_worker_starts_has_settings_of_its_own() {
    let folder = private_folder();
    let [script, shown] = ["worker.sh", "shown"].map(|name| folder.path().join(name));
    let (offload, output) = (offload(), shown.display());
    let lines = format!("{0} config show > {output} 2>&1\nexec {0} worker\n", offload.display());
    std::fs::write(&script, lines).unwrap();
    let worker = format!("sh {}", script.display());
    let mut echo = command(&["run", "--workers", "1", "--worker", &worker, "echo", "x"]);
    run(echo.env("OFFLOAD_AFFINITY", "true"), b"").ok();
    let shown = std::fs::read_to_string(shown).unwrap();
    for key in ["pool.command", "pool.affinity"] {
        let line = shown.lines().find(|line| line.starts_with(key)).unwrap_or(&shown);
        assert!(line.ends_with("default"), "{line}");
    }
}

/// Two programs, of which one cannot be loaded. Workers of the other crash and are replaced all the same; jobs for
/// which there is nobody are refused; and the pool ends.
#[test]
fn a_program_that_cannot_be_loaded_stops_neither_the_restarts_of_others_nor_the_end() {
    let folder = private_folder();
    let lease = Lease::of(folder.path());
    let words = |file: &Path| {
        vec![file.to_str().unwrap().to_owned(), "worker".to_owned(), "--allow-faults".to_owned()]
    };
    let mut config = PoolConfig {
        programs: vec![Program::command(words(&lease.file)), Program::command(words(&offload()))],
        log: Level::Quiet,
        ..PoolConfig::default()
    };
    config.core.workers = 2;
    config.core.hello_timeout = Duration::from_secs(2);
    config.core.backoff_min = Duration::from_millis(1);
    let mut event_loop = EventLoop::new().unwrap();
    let pool = ComputePool::start(config, &event_loop).unwrap();
    let ended = Rc::new(RefCell::new(Vec::new()));
    let crashes = 6;
    for _ in 0..crashes {
        let ended = Rc::clone(&ended);
        pool.submit(Job::new("fault").input(r#"{"act":"abort"}"#), move |finished, _| {
            ended.borrow_mut().push(finished.report);
        });
    }
    let refused = Rc::clone(&ended);
    pool.submit(Job::new("nobody.knows"), move |finished, _| refused.borrow_mut().push(finished.report));
    assert!(!event_loop.run().unwrap());
    let ended = ended.take();
    let (lost, others): (Vec<_>, Vec<_>) = ended.iter().partition(|report| report.task == "fault");
    assert_eq!(lost.len(), crashes);
    assert!(lost.iter().all(|report| report.outcome == OutcomeCode::Poison), "{lost:?}");
    let error = others[0].error.as_ref().expect("nobody offers it");
    assert_eq!(error.code, OutcomeCode::Unavailable, "{error:?}");
    assert!(error.message.contains("file system"), "{error:?}");
    pool.shutdown(|_| {});
    assert!(!event_loop.run().unwrap());
    drop(pool);
    drop(lease);
}

/// What is said first on standard output by a command in a mount namespace of its own, in which `folder` is a file
/// system that never answers: nobody reads what the kernel asks there.
fn on_a_dead_file_system(folder: &Path, command: &Command) -> Command {
    let script = "exec 3<>/dev/fuse && mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 dead \"$0\" \
                  && exec \"$@\"";
    let mut behind = Command::new("unshare");
    behind.args(["-m", "sh", "-c", script]).arg(folder);
    behind.arg(command.get_program()).args(command.get_args()).env_remove("OFFLOAD_SOCKET");
    behind
}

#[test]
fn a_program_on_a_dead_file_system_stops_neither_the_restarts_of_others_nor_sigterm() {
    let dead = private_folder();
    let probe = on_a_dead_file_system(dead.path(), &Command::new("true")).output();
    if !probe.as_ref().is_ok_and(|probe| probe.status.success()) {
        return println!("skipped: no file system can be mounted here: {probe:?}");
    }
    let worker = dead.path().join("worker").display().to_string();
    let arguments = ["--workers", "2", "--worker", &worker, "--worker", "builtin", "--hello-timeout", "2s"];
    let mut daemon =
        Daemon::launch_changed(&arguments, &mut |command| on_a_dead_file_system(dead.path(), &command));
    for _ in 0..5 {
        let pid = until("a built-in worker", || {
            let workers = daemon.workers();
            let ready =
                workers.iter().find(|worker| worker["program"] == "builtin" && worker["state"] == "idle");
            u32::try_from(ready?["pid"].as_u64()?).ok()
        });
        signal(pid, Signal::KILL);
        assert!(wait_for_end(pid, PATIENCE));
        assert_eq!(daemon.submit(&["primes", "100"])["output"]["count"], 25);
    }
    let ran = daemon.run(&["submit", "nobody.knows", "x"]).code(4);
    assert!(ran.stderr.contains("file system"), "{}", ran.stderr);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_worker_program_that_cannot_be_executed_is_named_with_the_reason_and_never_given_to_a_shell() {
    let folder = private_folder();
    let other = if cfg!(target_arch = "aarch64") { (62_u8, "x86-64") } else { (183, "AArch64") };
    let mut foreign = b"\x7fELF\x02\x01\x01".to_vec();
    foreign.resize(16, 0);
    foreign.extend([2, 0, other.0, 0]);
    foreign.resize(128, 0);
    let proof = folder.path().join("proof");
    let shell = format!("touch {}\n", proof.display());
    for (name, content, reason) in [
        ("foreign", foreign, format!("a program for {}", other.1)),
        ("scriptless", shell.clone().into_bytes(), "neither a program nor a script".to_owned()),
        (
            "orphan",
            format!("#!/no/such/python\n{shell}").into_bytes(),
            "interpreter `/no/such/python`".to_owned(),
        ),
    ] {
        let file = folder.path().join(name);
        write_executable(&file, &content);
        let daemon = Daemon::launch(&["--workers", "1", "--worker", file.to_str().unwrap()]);
        let ran = daemon.run(&["submit", "act", "nothing"]).code(4);
        assert!(ran.stderr.contains("unavailable") && ran.stderr.contains(&reason), "{}", ran.stderr);
        assert!(!proof.exists(), "{name} was given to a shell");
    }
}
