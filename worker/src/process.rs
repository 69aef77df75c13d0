//! How a worker process prepares itself before it sends Hello. It must end with its supervisor, its tasks must not be able
//! to read from or write to the protocol's socket by mistake, and its crashes must not fill a disk.

use crate::confine::{self, ConfineError, Limits};
use nix::unistd::dup2_stdin;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// The exit code that tells the supervisor not to start this program again (`EX_USAGE` of sysexits.h).
const EXIT_NOT_A_WORKER: u8 = 64;
/// The exit code if the supervisor broke the protocol, or a system call failed (`EX_SOFTWARE` of sysexits.h).
pub(crate) const EXIT_BROKEN: u8 = 70;

/// Why this process cannot serve.
#[derive(Debug)]
pub(crate) enum EnterError {
    NotASocket,
    Unconfined(ConfineError),
}

impl EnterError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            EnterError::NotASocket | EnterError::Unconfined(ConfineError::NotTheParent { .. }) => {
                EXIT_NOT_A_WORKER
            }
            EnterError::Unconfined(_) => EXIT_BROKEN,
        }
    }
}

impl fmt::Display for EnterError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EnterError::NotASocket => formatter.write_str(
                "this program is a worker of offload: start it with `offload serve --worker 'COMMAND ARGUMENT...'`",
            ),
            EnterError::Unconfined(error) => write!(formatter, "offload worker: {error}"),
        }
    }
}

impl From<ConfineError> for EnterError {
    fn from(error: ConfineError) -> EnterError {
        EnterError::Unconfined(error)
    }
}

/// Takes the supervisor's socket from descriptor 0 and confines this process. Inherited descriptors are closed first, so
/// that the socket becomes descriptor 3, the highest one.
pub(crate) fn enter() -> Result<UnixStream, EnterError> {
    confine::heed_signals();
    confine::close_inherited_descriptors();
    let stream = take_descriptor_zero()?;
    confine::end_with_the_parent(&stream)?;
    confine::confine(&Limits::from_environment())?;
    confine::hide();
    Ok(stream)
}

/// Programs that a task starts do not inherit the copy. Descriptor 0 becomes a file that is always empty.
fn take_descriptor_zero() -> Result<UnixStream, EnterError> {
    let stdin = io::stdin();
    let stream = stdin.as_fd().try_clone_to_owned().map_err(cannot("copy descriptor 0"))?;
    let stream = UnixStream::from(stream);
    if stream.local_addr().is_err() {
        return Err(EnterError::NotASocket);
    }
    let empty = File::open("/dev/null").map_err(cannot("open /dev/null"))?;
    dup2_stdin(empty).map_err(cannot("empty descriptor 0"))?;
    Ok(stream)
}

fn cannot<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> EnterError {
    move |error| ConfineError::System { what, error: error.into() }.into()
}

/// The tests start this test program once more as a worker.
#[cfg(test)]
mod tests {
    use crate::builtin;
    use crate::confine::{FILE_SIZE_VARIABLE, MEMORY_VARIABLE, OPEN_FILES_VARIABLE};
    use crate::task::{Output, Task, TaskError};
    use crate::test_supervisor::{Said, TestSupervisor};
    use crate::worker::Worker;
    use nix::sys::prctl;
    use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
    use nix::sys::signal::Signal;
    use nix::sys::stat::{Mode, umask};
    use offload_protocol::limits::CORE_VARIABLE;
    use offload_protocol::limits::{MARK_VARIABLE, PAYLOAD_MAX_VARIABLE};
    use offload_protocol::messages::ToWorker;
    use rustix::process::getpriority_process;
    use rustix::thread::{CpuSet, sched_getaffinity};
    use serde_json::json;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::ExitStatusExt;
    use std::path::PathBuf;
    use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};

    /// In the environment of this program when it is started once more, as a worker.
    const AS_A_WORKER: &str = "OFFLOAD_TEST_AS_A_WORKER";

    /// What a task finds. The thread is looked at where things are a thread's own: the test harness has several.
    fn look_inside() -> Result<serde_json::Value, TaskError> {
        let mut stdin = String::new();
        std::io::stdin().read_to_string(&mut stdin)?;
        Ok(json!({
            "stdin": stdin,
            "descriptors": descriptors()?,
            "signal at the parent's end": prctl::get_pdeathsig()?.map(Signal::as_str),
            "no new privileges": prctl::get_no_new_privs()?,
            "is dumpable": prctl::get_dumpable()?,
            "core": getrlimit(Resource::RLIMIT_CORE)?,
            "open files": getrlimit(Resource::RLIMIT_NOFILE)?,
            "stack": getrlimit(Resource::RLIMIT_STACK)?,
            "file size": getrlimit(Resource::RLIMIT_FSIZE)?,
            "memory": getrlimit(Resource::RLIMIT_AS)?,
            "niceness": getpriority_process(None)?,
            "oom_score_adj": std::fs::read_to_string("/proc/self/oom_score_adj")?.trim(),
            "mask": umask(Mode::empty()).bits(),
            "cores": our_cores(),
            "ignored signals": signals("SigIgn")?,
            "blocked signals": signals("SigBlk")?,
            "limits of a child without an environment": limits_of_a_child()?,
        }))
    }

    /// A line of this thread's status: bit n - 1 is signal n, of those that are no matter of the C library alone.
    fn signals(name: &str) -> std::io::Result<u64> {
        let status = std::fs::read_to_string("/proc/thread-self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let signals = u64::from_str_radix(line.unwrap_or_default().trim(), 16);
        Ok(signals.map_err(std::io::Error::other)? & 0x7fff_ffff)
    }

    fn limits_of_a_child() -> std::io::Result<String> {
        let output = Command::new("cat").arg("/proc/self/limits").env_clear().output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn nicer_than_us() -> i32 {
        (getpriority_process(None).unwrap() + 5).min(19)
    }

    fn our_cores() -> Vec<usize> {
        let cores = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|core| cores.is_set(*core)).collect()
    }

    /// Without that of the listing itself, which is closed again by then.
    fn descriptors() -> std::io::Result<Vec<i32>> {
        let listing = std::fs::read_dir("/proc/self/fd")?.map(|entry| Ok(entry?.path()));
        let paths: Vec<PathBuf> = listing.collect::<std::io::Result<_>>()?;
        let open = paths.iter().filter(|path| path.read_link().is_ok());
        let mut numbers: Vec<i32> =
            open.filter_map(|path| path.file_name()?.to_str()?.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Ends as `Worker::serve` says.
    fn be_a_worker() -> ! {
        let inside = Task::raw("inside", |_, _| Output::json(&look_inside()?));
        let open_many = Task::raw("open_many", |_, _| {
            let files: Vec<File> = (0..1000).map(|_| File::open("/dev/null")).collect::<Result<_, _>>()?;
            Ok(Output::text(files.len().to_string()))
        });
        // One that takes several jobs at once would have to be welcomed first.
        let plain = builtin::tasks(true).into_iter().filter(|task| task.offer().batching.is_none());
        let tasks = plain.chain([inside, open_many]);
        let worker = tasks.fold(Worker::new(), Worker::with);
        let code = worker.serve();
        // The test harness would make 0 or 101 of it, and there is no other way to look inside.
        let number = (0..=u8::MAX).find(|number| code == ExitCode::from(*number)).unwrap();
        std::process::exit(number.into());
    }

    fn worker_with(stdin: impl Into<Stdio>) -> Command {
        worker_behind(None, stdin)
    }

    /// If there is a `script`, a shell runs it first; with `exec "$@"` it becomes the worker.
    fn worker_behind(script: Option<&str>, stdin: impl Into<Stdio>) -> Command {
        let ourselves = std::env::current_exe().unwrap();
        let mut command = match script {
            None => Command::new(ourselves),
            Some(script) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", script, "sh"]).arg(ourselves);
                shell
            }
        };
        command.args([
            "--exact",
            "process::tests::a_program_without_a_socket_says_what_it_is_and_exits_with_64",
            "--nocapture",
        ]);
        command.env(AS_A_WORKER, "1");
        command.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn start() -> (TestSupervisor, Child) {
        start_with(|_| {})
    }

    fn start_with(prepare: impl FnOnce(&mut Command)) -> (TestSupervisor, Child) {
        start_behind(None, prepare)
    }

    /// A worker process that has said Hello.
    fn start_behind(script: Option<&str>, prepare: impl FnOnce(&mut Command)) -> (TestSupervisor, Child) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut command = worker_behind(script, OwnedFd::from(theirs));
        prepare(&mut command);
        let child = command.spawn().unwrap();
        let mut supervisor = TestSupervisor::new(ours);
        supervisor.hear_offers();
        (supervisor, child)
    }

    /// How a worker ends that is told to misbehave.
    fn end_of(fault: &str) -> ExitStatus {
        let (mut supervisor, mut child) = start();
        supervisor.add_run(1, "fault", fault.to_owned()).send();
        assert_eq!(supervisor.hear(), Said::Started { job: 1, attempt: 1 });
        assert_eq!(supervisor.hear(), Said::Nothing);
        child.wait().unwrap()
    }

    /// What a task in a worker finds that was started like this.
    fn seen_inside(script: Option<&str>, prepare: impl FnOnce(&mut Command)) -> serde_json::Value {
        let (mut supervisor, mut child) = start_behind(script, prepare);
        supervisor.add_run(1, "inside", "").add(&ToWorker::Drain, "").send();
        assert_eq!(supervisor.hear(), Said::Started { job: 1, attempt: 1 });
        let Said::Finished { output, .. } = supervisor.hear() else { panic!("not finished") };
        assert!(child.wait().unwrap().success());
        serde_json::from_slice(&output).unwrap()
    }

    #[test]
    fn a_worker_cannot_reach_the_protocol_by_stdin_and_is_confined() {
        let seen = seen_inside(None, |_| {});
        assert_eq!(seen["stdin"], "");
        assert_eq!(seen["descriptors"], json!([0, 1, 2, 3]));
        assert_eq!(seen["signal at the parent's end"], "SIGKILL");
        assert_eq!(seen["no new privileges"], true);
        assert_eq!(seen["is dumpable"], false);
        assert_eq!(seen["core"], json!([0, 0]));
        assert_eq!(seen["open files"], json!([128, 128]));
        let (soft, hard) = getrlimit(Resource::RLIMIT_STACK).unwrap();
        assert_eq!(seen["stack"], json!([soft.min(8 << 20), hard.min(8 << 20)]));
        assert_eq!(seen["niceness"], nicer_than_us());
        assert!(seen["oom_score_adj"].as_str().unwrap().parse::<i32>().unwrap() >= 900);
        assert_eq!(seen["mask"], 0o077);
        let ours = |resource| json!(getrlimit(resource).unwrap());
        assert_eq!(seen["file size"], ours(Resource::RLIMIT_FSIZE));
        assert_eq!(seen["memory"], ours(Resource::RLIMIT_AS));
    }

    #[test]
    fn inherited_descriptors_other_than_the_protocols_are_closed() {
        let seen = seen_inside(Some(r#"exec 3</dev/null 7>/dev/null; exec "$@""#), |_| {});
        assert_eq!(seen["descriptors"], json!([0, 1, 2, 3]));
    }

    #[test]
    fn confining_twice_changes_nothing_and_raises_no_limit() {
        let script = r#"ulimit -n 64; echo 950 >/proc/$$/oom_score_adj; exec nice -n 5 "$@""#;
        let seen = seen_inside(Some(script), |_| {});
        assert_eq!(seen["open files"], json!([64, 64]));
        assert_eq!(seen["niceness"], nicer_than_us());
        assert_eq!(seen["oom_score_adj"], "950");
    }

    #[test]
    fn the_environment_says_how_much_a_worker_may_have() {
        let core = our_cores().pop().unwrap();
        let seen = seen_inside(None, |command| {
            command.env(OPEN_FILES_VARIABLE, "200").env(FILE_SIZE_VARIABLE, "1000000");
            command.env(MEMORY_VARIABLE, "4000000000").env(CORE_VARIABLE, core.to_string());
        });
        assert_eq!(seen["open files"], json!([200, 200]));
        assert_eq!(seen["file size"], json!([1_000_000, 1_000_000]));
        assert_eq!(seen["memory"], json!([4_000_000_000_u64, 4_000_000_000_u64]));
        assert_eq!(seen["cores"], json!([core]));
    }

    /// Whoever started the supervisor ignored and blocked what a worker is to heed.
    #[test]
    fn a_worker_ignores_and_blocks_no_signal_because_somebody_before_it_did() {
        let script = r#"use POSIX; sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGTERM, SIGINT, SIGCHLD));
            $SIG{$_} = "IGNORE" for qw(TERM HUP INT USR1); exec @ARGV"#;
        let shell = format!("exec perl -e '{script}' \"$@\"");
        let seen = seen_inside(Some(&shell), |_| {});
        // As in every Rust program.
        assert_eq!(seen["ignored signals"], 1_u64 << (libc::SIGPIPE - 1));
        assert_eq!(seen["blocked signals"], 0);
    }

    #[test]
    fn a_mark_is_passed_on_to_whatever_a_worker_starts_with_whatever_environment() {
        let mark = (1_u64 << 62) + 4711;
        let seen = seen_inside(None, |command| {
            command.env(MARK_VARIABLE, mark.to_string());
        });
        let limits = seen["limits of a child without an environment"].as_str().unwrap();
        let locks = limits.lines().find(|line| line.starts_with("Max file locks")).unwrap();
        assert_eq!(locks.matches(&mark.to_string()).count(), 2, "{locks}");
    }

    #[test]
    fn the_mark_of_a_supervisor_around_this_one_stays() {
        if getrlimit(Resource::RLIMIT_LOCKS).unwrap().1 != RLIM_INFINITY {
            return println!("skipped: this test itself is limited, so there is nothing to take away");
        }
        let seen = seen_inside(Some(r#"exec prlimit --locks=4711:4711 "$@""#), |command| {
            command.env(MARK_VARIABLE, ((1_u64 << 62) + 1).to_string());
        });
        let limits = seen["limits of a child without an environment"].as_str().unwrap();
        let locks = limits.lines().find(|line| line.starts_with("Max file locks")).unwrap();
        assert_eq!(locks.matches("4711 ").count(), 2, "{locks}");
    }

    #[test]
    fn a_worker_that_takes_more_memory_than_it_may_aborts() {
        let (mut supervisor, mut child) = start_with(|command| {
            command.env(MEMORY_VARIABLE, (256 << 20).to_string());
        });
        let leaks = (1..=17).take_while(|job| {
            supervisor.add_run(*job, "fault", r#"{"act":"leak"}"#).send();
            assert_eq!(supervisor.hear(), Said::Started { job: *job, attempt: 1 });
            matches!(supervisor.hear(), Said::Finished { .. })
        });
        assert!(leaks.count() < 17, "it has 17 times 16 MiB");
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGABRT as i32));
    }

    #[test]
    fn a_worker_that_leaks_descriptors_runs_out_of_them_and_says_so() {
        let (mut supervisor, mut child) = start();
        supervisor.add_run(1, "open_many", "").add(&ToWorker::Drain, "").send();
        assert_eq!(supervisor.hear(), Said::Started { job: 1, attempt: 1 });
        let Said::Failed { message, .. } = supervisor.hear() else { panic!("not failed") };
        assert!(message.contains("Too many open files"), "{message}");
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn a_worker_ends_well_when_the_supervisor_closes_the_socket() {
        let (supervisor, mut child) = start();
        drop(supervisor);
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn a_worker_whose_supervisor_breaks_the_protocol_exits_with_70() {
        let (mut supervisor, mut child) = start();
        supervisor.send_raw(&[0xff; 8]);
        assert_eq!(child.wait().unwrap().code(), Some(70));
    }

    #[test]
    fn the_environment_says_how_long_an_output_may_be() {
        let (mut supervisor, mut child) = start_with(|command| {
            command.env(PAYLOAD_MAX_VARIABLE, "3");
        });
        supervisor.add_run(1, "echo", "abcd").add(&ToWorker::Drain, "").send();
        assert_eq!(supervisor.hear(), Said::Started { job: 1, attempt: 1 });
        let Said::Failed { message, .. } = supervisor.hear() else { panic!("not failed") };
        assert_eq!(message, "the output has 4 bytes, at most 3 can be sent");
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn a_program_without_a_socket_says_what_it_is_and_exits_with_64() {
        if std::env::var_os(AS_A_WORKER).is_some() {
            be_a_worker();
        }
        let output = worker_with(Stdio::null()).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.contains("this program is a worker of offload: start it with `offload serve --worker"),
            "{said}"
        );
        assert_eq!(output.status.code(), Some(64));
    }

    #[test]
    fn a_worker_that_another_process_started_says_so_and_exits_with_64() {
        let (_ours, theirs) = UnixStream::pair().unwrap();
        // A second command keeps the shell from giving its own process to the first.
        let mut command = worker_behind(Some(r#""$@"; exit $?"#), OwnedFd::from(theirs));
        let output = command.stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("did not start this process itself"), "{said}");
        assert_eq!(output.status.code(), Some(64));
    }

    #[test]
    fn each_deadly_fault_ends_the_process_in_its_own_way() {
        for (act, signal) in [
            ("abort", Signal::SIGABRT),
            ("segv", Signal::SIGSEGV),
            ("kill", Signal::SIGKILL),
            ("stack", Signal::SIGABRT),
        ] {
            assert_eq!(end_of(&format!(r#"{{"act":"{act}"}}"#)).signal(), Some(signal as i32), "{act}");
        }
        assert_eq!(end_of(r#"{"act":"exit"}"#).code(), Some(0));
        assert_eq!(end_of(r#"{"act":"exit","code":3}"#).code(), Some(3));
    }

    /// What a worker says that is told to misbehave and does not die of it.
    fn said_after(fault: &'static str) -> Said {
        let (mut supervisor, mut child) = start();
        supervisor.add_run(1, "fault", fault).send();
        assert_eq!(supervisor.hear(), Said::Started { job: 1, attempt: 1 });
        let said = supervisor.hear();
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        child.wait().unwrap();
        said
    }

    #[test]
    fn close_and_garbage_end_the_conversation_while_the_process_lives_on() {
        assert_eq!(said_after(r#"{"act":"close"}"#), Said::Nothing);
        assert_eq!(said_after(r#"{"act":"garbage"}"#), Said::Garbage);
    }
}
