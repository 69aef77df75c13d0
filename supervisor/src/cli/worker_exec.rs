//! `offload worker-exec -- CMD ARG...` (hidden): prepares this process, then becomes a worker program of the user's.
//!
//! Such a program may be written in any language and need not care what becomes of its supervisor. The kernel does:
//! the signal that is asked for here outlives the exec.

use super::failure::Ended;
use super::output::say;
use clap::Args;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
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
        set_pdeathsig(Signal::SIGKILL)
            .map_err(|error| format!("no signal at the parent's death: {error}"))?;
        check_parent()?;
        setrlimit(Resource::RLIMIT_CORE, 0, 0)
            .map_err(|error| format!("cannot forbid core dumps: {error}"))?;
        let [program, arguments @ ..] = self.command.as_slice() else {
            return Err("no program to become".to_owned());
        };
        let error = Command::new(program).args(arguments).exec();
        Err(format!("cannot start {}: {error}", program.display()))
    }
}

/// The parent may have died before the signal was asked for. Then somebody else is our parent now, not the process
/// that made the socket. A supervisor in another pid namespace is seen as pid 0; nothing can be checked then.
fn check_parent() -> Result<(), String> {
    let maker = getsockopt(&stdin(), PeerCredentials).map_err(|error| {
        format!("standard input is not the socket of a supervisor ({error}); see `offload serve --worker`")
    })?;
    let parent = nix::unistd::getppid().as_raw();
    match maker.pid() {
        0 => Ok(()),
        pid if pid == parent => Ok(()),
        pid => Err(format!("supervisor {pid} is gone")),
    }
}
