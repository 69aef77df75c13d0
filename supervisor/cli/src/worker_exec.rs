//! `offload worker-exec -- CMD ARG...` (hidden): confines this process, then executes a worker program of the user.
//!
//! The program may be written in any language and need not watch its supervisor: the parent-death signal that is set
//! here survives the exec. So does all of the confinement, with one exception: the program is dumpable, so other
//! processes of the same user can read its memory. Signals that the supervisor inherited as ignored or blocked are
//! reset.

use super::failure::VerbResult;
use super::output::say;
use clap::Args;
use offload_supervisor::workers::executable::{is_pointless, why_not_executed};
use offload_worker::confine::{self, Limits};
use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::io::{self, stdin};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The words that are put in front of a command of the user, whose program is named by its whole path.
pub(crate) const SHIM: [&str; 3] = ["/proc/self/exe", "worker-exec", "--"];

/// The exit code that tells a supervisor that starting this worker again is pointless.
pub(crate) const POINTLESS: u8 = 64;
/// The exit code for temporary failures: the file is being written, or memory is short (`EX_TEMPFAIL` of sysexits.h).
pub(crate) const MAY_PASS: u8 = 75;

/// Execute a worker program that ends with its supervisor; started by a supervisor, never by hand
#[derive(Args, Debug)]
#[command(hide = true)]
pub(crate) struct WorkerExec {
    /// The program and its arguments
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

impl WorkerExec {
    /// Executes the program. Returns only if that fails.
    pub(crate) fn run(self) -> VerbResult {
        match self.become_worker() {
            Ok(never) => match never {},
            Err(Refusal { reason, is_pointless }) => {
                say(&reason);
                Ok(if is_pointless { POINTLESS } else { MAY_PASS }.into())
            }
        }
    }

    fn become_worker(&self) -> Result<Infallible, Refusal> {
        // The program must not get descriptors that were left open by whoever started this process.
        confine::close_inherited_descriptors();
        confine::end_with_the_parent(&stdin()).map_err(|error| {
            Refusal::pointless(format!("no worker of a supervisor: {error}; see `offload serve --worker`"))
        })?;
        confine::confine(&Limits::from_environment())
            .map_err(|error| Refusal::pointless(error.to_string()))?;
        confine::heed_all_signals();
        self.execute()
    }

    /// Uses `execv` directly: the call of the standard library passes any file that the kernel cannot execute to
    /// /bin/sh. The path is complete, because whoever started this process has already searched for the program.
    fn execute(&self) -> Result<Infallible, Refusal> {
        let words: Result<Vec<CString>, _> =
            self.command.iter().map(|word| CString::new(word.as_bytes())).collect();
        let words = words.map_err(|error| Refusal::pointless(error.to_string()))?;
        let (program, error) = match words.first() {
            Some(program) => match nix::unistd::execv(program, &words) {
                Ok(never) => match never {},
                Err(errno) => (Path::new(&self.command[0]), io::Error::from(errno)),
            },
            None => return Err(Refusal::pointless("no program to become".to_owned())),
        };
        let reason = format!("cannot start {}: {}", program.display(), why_not_executed(program, &error));
        Err(Refusal { reason, is_pointless: is_pointless(&error) })
    }
}

/// Why this process does not become a worker.
struct Refusal {
    reason: String,
    /// Trying again does not help.
    is_pointless: bool,
}

impl Refusal {
    fn pointless(reason: String) -> Refusal {
        Refusal { reason, is_pointless: true }
    }
}

/// The tests start this test program once more, in the role of `worker-exec`.
#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Output, Stdio};

    /// In the environment of this program when it is started once more: the script that the shim becomes.
    const SCRIPT: &str = "OFFLOAD_TEST_SHIM_SCRIPT";

    /// What the script prints after the shim, with `before` run by a shell in front of it.
    fn run_behind(before: &str, stdin: Stdio, script: &str) -> Output {
        let ourselves = std::env::current_exe().unwrap();
        let this = "worker_exec::tests::a_foreign_program_is_confined_like_any_other";
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{before} exec \"$@\""), "sh"]).arg(ourselves);
        command.args(["--exact", this, "--nocapture"]).env(SCRIPT, script).stdin(stdin);
        command.output().unwrap()
    }

    /// Lines, without those of the test program before the shim's exec.
    fn printed(before: &str, script: &str) -> Vec<String> {
        let (_ours, theirs) = UnixStream::pair().unwrap();
        let script = format!("echo BEGIN; {script}");
        let output = run_behind(before, OwnedFd::from(theirs).into(), &script);
        let text = String::from_utf8(output.stdout).unwrap();
        let (_, text) = text.split_once("BEGIN\n").unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn be_the_shim(script: &std::ffi::OsStr) -> ! {
        let command = match script.as_bytes().starts_with(b"/") {
            true => vec![script.to_owned()],
            false => vec!["/bin/sh".into(), "-c".into(), script.to_owned()],
        };
        let code = WorkerExec { command }.run().unwrap();
        let known = [POINTLESS, MAY_PASS].into_iter().find(|known| code == (*known).into());
        std::process::exit(known.unwrap_or(1).into());
    }

    #[test]
    fn a_foreign_program_is_confined_like_any_other() {
        if let Some(script) = std::env::var_os(SCRIPT) {
            be_the_shim(&script);
        }
        let script = "ulimit -Hn; ulimit -Hc; ulimit -Hs; umask; cat /proc/$$/oom_score_adj; grep NoNewPrivs /proc/$$/status";
        assert_eq!(printed("", script), ["128", "0", "8192", "0077", "900", "NoNewPrivs:\t1"]);
    }

    #[test]
    fn a_foreign_program_is_nicer_than_its_supervisor() {
        let niceness: i32 = printed("", "nice")[0].parse().unwrap();
        let ours = rustix::process::getpriority_process(None).unwrap();
        assert_eq!(niceness, (ours + 5).min(19));
    }

    #[test]
    fn a_foreign_program_gets_three_descriptors() {
        let open = printed("exec 5</dev/null 9>/dev/null;", "ls /proc/$$/fd");
        assert_eq!(open, ["0", "1", "2"]);
    }

    /// The message and the exit code of `worker-exec` for a file with this content. With `keep_open`, the file is still
    /// open for writing.
    fn refusal(content: &[u8], keep_open: bool) -> (String, Option<i32>) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("worker");
        std::fs::write(&file, content).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let writer = keep_open.then(|| std::fs::OpenOptions::new().append(true).open(&file).unwrap());
        let (_ours, theirs) = UnixStream::pair().unwrap();
        let output = run_behind("", OwnedFd::from(theirs).into(), file.to_str().unwrap());
        drop(writer);
        assert!(!String::from_utf8_lossy(&output.stdout).contains("BY A SHELL"), "{output:?}");
        (String::from_utf8(output.stderr).unwrap(), output.status.code())
    }

    #[test]
    fn what_the_kernel_does_not_execute_is_not_given_to_a_shell() {
        let (said, code) = refusal(b"echo BY A SHELL\n", false);
        assert!(said.contains("it is neither a program nor a script"), "{said}");
        assert_eq!(code, Some(POINTLESS.into()));
    }

    #[test]
    fn a_script_without_its_interpreter_names_the_interpreter() {
        let (said, code) = refusal(b"#!/no/such/interpreter\necho BY A SHELL\n", false);
        assert!(said.contains("its interpreter `/no/such/interpreter`"), "{said}");
        assert_eq!(code, Some(POINTLESS.into()));
    }

    #[test]
    fn a_file_that_is_being_written_may_be_tried_again() {
        let (said, code) = refusal(b"#!/bin/sh\necho BY A SHELL\n", true);
        assert!(said.contains("ext file busy"), "{said}");
        assert_eq!(code, Some(MAY_PASS.into()));
    }

    #[test]
    fn a_foreign_program_ignores_and_blocks_no_signal_because_somebody_before_it_did() {
        let perl = "use POSIX; sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGTERM)); \
                    $SIG{$_} = q(IGNORE) for qw(TERM HUP INT); exec @ARGV";
        let before = format!("exec perl -e '{perl}' \"$@\";");
        let seen = printed(&before, "exec grep -E 'Sig(Ign|Blk)' /proc/self/status");
        let standard = |line: &String| {
            u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap() & 0x7fff_ffff
        };
        assert_eq!(seen.iter().map(standard).collect::<Vec<_>>(), [0, 0], "{seen:?}");
    }

    #[test]
    fn without_the_socket_of_a_supervisor_it_becomes_nothing() {
        let output = run_behind("", Stdio::null(), "echo not to be seen");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(POINTLESS.into()));
        assert!(said.contains("no worker of a supervisor: cannot see who made the socket"), "{said}");
        assert!(!String::from_utf8(output.stdout).unwrap().contains("not to be seen"));
    }
}
