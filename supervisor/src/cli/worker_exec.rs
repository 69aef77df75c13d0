//! `offload worker-exec -- CMD ARG...` (hidden): prepares this process, then becomes a worker program of the user's.
//!
//! Such a program may be written in any language and need not care what becomes of its supervisor. The kernel does:
//! the signal that is asked for here outlives the exec, as does all of the confinement but one thing (it is dumpable,
//! so other processes of the same user can read its memory).

use super::failure::Ended;
use super::output::say;
use clap::Args;
use offload_worker::confine::{self, Limits};
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::stdin;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The exit code that tells a supervisor that starting this worker again is pointless.
const POINTLESS: u8 = 64;

/// Become a worker program that ends with its supervisor; started by a supervisor, never by hand
#[derive(Args, Debug)]
#[command(hide = true)]
pub(crate) struct WorkerExec {
    /// The program and its arguments
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

impl WorkerExec {
    /// Does it. Returns only if it fails.
    pub(crate) fn run(self) -> Ended {
        match self.become_worker() {
            Ok(never) => match never {},
            Err(reason) => {
                say(&reason);
                Ok(POINTLESS.into())
            }
        }
    }

    fn become_worker(&self) -> Result<Infallible, String> {
        // Whatever is left open by those who started this process, the program shall not have it.
        confine::close_inherited_descriptors();
        confine::end_with_the_parent(&stdin())
            .map_err(|error| format!("no worker of a supervisor: {error}; see `offload serve --worker`"))?;
        confine::confine(&Limits::from_environment()).map_err(|error| error.to_string())?;
        let [program, arguments @ ..] = self.command.as_slice() else {
            return Err("no program to become".to_owned());
        };
        let error = Command::new(program).args(arguments).exec();
        Err(format!("cannot start {}: {error}", program.display()))
    }
}

/// The tests start this test program once more as the shim.
#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::process::{Output, Stdio};

    /// In the environment of this program when it is started once more: the script that the shim becomes.
    const SCRIPT: &str = "OFFLOAD_TEST_SHIM_SCRIPT";

    /// What the script prints after the shim, with `before` run by a shell in front of it.
    fn run_behind(before: &str, stdin: Stdio, script: &str) -> Output {
        let ourselves = std::env::current_exe().unwrap();
        let this = "cli::worker_exec::tests::a_foreign_program_is_confined_like_any_other";
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
        let command = ["sh".into(), "-c".into(), script.to_owned()].to_vec();
        let code = WorkerExec { command }.run().unwrap();
        std::process::exit(if code == POINTLESS.into() { POINTLESS.into() } else { 1 });
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

    #[test]
    fn without_the_socket_of_a_supervisor_it_becomes_nothing() {
        let output = run_behind("", Stdio::null(), "echo not to be seen");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(POINTLESS.into()));
        assert!(said.contains("no worker of a supervisor: cannot see who made the socket"), "{said}");
        assert!(!String::from_utf8(output.stdout).unwrap().contains("not to be seen"));
    }
}
