//! What a worker process does to itself before it says Hello. A worker must never outlive its supervisor, its tasks
//! must not be able to eat the protocol, and its crashes must not fill a disk.

use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{dup2_stdin, getppid};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Starting this program again the same way is pointless (`EX_USAGE` of sysexits.h); supervisors know this code.
const EXIT_NOT_A_WORKER: u8 = 64;
/// The supervisor broke the protocol, or the system refused something ordinary (`EX_SOFTWARE` of sysexits.h).
pub(crate) const EXIT_BROKEN: u8 = 70;

/// Why this process cannot serve.
#[derive(Debug)]
pub(crate) enum EnterError {
    NotASocket,
    NotTheParent { parent: i32, other_end: i32 },
    System { what: &'static str, error: io::Error },
}

impl EnterError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            EnterError::NotASocket | EnterError::NotTheParent { .. } => EXIT_NOT_A_WORKER,
            EnterError::System { .. } => EXIT_BROKEN,
        }
    }
}

impl fmt::Display for EnterError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EnterError::NotASocket => formatter.write_str(
                "this program is a worker of offload: start it with `offload serve --worker 'COMMAND ARGUMENT...'`",
            ),
            EnterError::NotTheParent { parent, other_end } => write!(
                formatter,
                "offload worker: the supervisor (process {other_end}) is gone, or did not start this process itself \
                 (process {parent} did); a wrapper must `exec` the worker"
            ),
            EnterError::System { what, error } => write!(formatter, "offload worker: cannot {what}: {error}"),
        }
    }
}

/// Takes the supervisor's socket from descriptor 0 and confines this process.
pub(crate) fn enter() -> Result<UnixStream, EnterError> {
    let stream = take_descriptor_zero()?;
    end_with_the_parent(&stream)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(cannot("switch core files off"))?;
    Ok(stream)
}

/// The copy is not inherited by the programs that a task starts, and what is left on 0 is always empty.
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

/// Asks the kernel to kill this process when its parent dies, then looks whether that came too late: whoever made
/// the socket pair must still be the parent. A process that this one cannot see has the number 0.
fn end_with_the_parent(stream: &UnixStream) -> Result<(), EnterError> {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(cannot("ask to end with the supervisor"))?;
    let other_end = getsockopt(stream, PeerCredentials).map_err(cannot("see who made the socket"))?.pid();
    let parent = getppid().as_raw();
    if other_end != 0 && other_end != parent {
        return Err(EnterError::NotTheParent { parent, other_end });
    }
    Ok(())
}

fn cannot<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> EnterError {
    move |error| EnterError::System { what, error: error.into() }
}

/// The tests start this test program once more as a worker.
#[cfg(test)]
mod tests {
    use crate::builtin;
    use crate::task::{Output, Task};
    use crate::test_supervisor::{Said, TestSupervisor};
    use crate::worker::Worker;
    use nix::sys::resource::{Resource, getrlimit};
    use nix::sys::signal::Signal;
    use offload_protocol::limits::PAYLOAD_MAX_VARIABLE;
    use offload_protocol::messages::ToWorker;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};

    /// In the environment of this program when it is started once more, as a worker.
    const AS_A_WORKER: &str = "OFFLOAD_TEST_AS_A_WORKER";

    /// Ends as `Worker::serve` says.
    fn be_a_worker() -> ! {
        let inside = Task::raw("inside", |_, _| {
            let mut stdin = String::new();
            std::io::stdin().read_to_string(&mut stdin)?;
            let (core, _) = getrlimit(Resource::RLIMIT_CORE)?;
            let parent_death = nix::sys::prctl::get_pdeathsig()?;
            Output::json(&(stdin, core, parent_death.map(Signal::as_str)))
        });
        let worker = builtin::tasks(true).into_iter().fold(Worker::new(), Worker::with).with(inside);
        let code = worker.serve();
        // The test harness would make 0 or 101 of it, and there is no other way to look inside.
        let number = (0..=u8::MAX).find(|number| code == ExitCode::from(*number)).unwrap();
        std::process::exit(number.into());
    }

    fn worker_with(stdin: impl Into<Stdio>) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
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

    /// A worker process that has said Hello.
    fn start_with(prepare: impl FnOnce(&mut Command)) -> (TestSupervisor, Child) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut command = worker_with(OwnedFd::from(theirs));
        prepare(&mut command);
        let child = command.spawn().unwrap();
        let mut supervisor = TestSupervisor::new(ours);
        assert!(matches!(supervisor.hear(), Said::Hello(_)));
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

    #[test]
    fn a_worker_cannot_reach_the_protocol_by_stdin_dumps_no_core_and_dies_with_its_parent() {
        let (mut supervisor, mut child) = start();
        supervisor.add_run(1, "inside", "").add(&ToWorker::Drain, "").send();
        assert_eq!(supervisor.hear(), Said::Started { job: 1, attempt: 1 });
        let Said::Finished { output, .. } = supervisor.hear() else { panic!("not finished") };
        assert_eq!(String::from_utf8(output).unwrap(), r#"["",0,"SIGKILL"]"#);
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
        let direct = worker_with(Stdio::null());
        let mut command = Command::new("sh");
        // A second command keeps the shell from giving its own process to the first.
        command.args(["-c", "\"$@\"; exit $?", "sh"]).arg(direct.get_program()).args(direct.get_args());
        command.env(AS_A_WORKER, "1");
        let output = command.stdin(OwnedFd::from(theirs)).output().unwrap();
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
