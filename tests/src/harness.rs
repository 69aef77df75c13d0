//! The real binary in a temporary folder: started, waited for, spoken to, and killed and reaped whatever happens.
//!
//! Nothing in here sleeps to let something happen: it waits for the event, and gives up loudly at a deadline.

mod files;
mod gate;
mod lines;
mod pipes;
mod programs;
mod terminal;

use offload_supervisor::client::Client;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub use files::{copy_for_anybody, private_folder, write_executable};
pub use gate::Gate;
pub use lines::Lines;
pub use pipes::leave;
pub use programs::{offload, program};
pub use terminal::Terminal;

/// How long anything may take before a test gives up. Far more than it takes on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The root of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are in a folder of the workspace")
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ran {
    /// Its exit code, or 128 and the signal that ended it.
    pub code: i32,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it said.
    pub stderr: String,
    /// How long it took.
    pub took: Duration,
}

impl Ran {
    /// What it printed, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// What it printed, as one JSON document.
    ///
    /// # Panics
    /// If it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// What it printed, as JSON Lines.
    ///
    /// # Panics
    /// If it is not that.
    pub fn json_lines(&self) -> Vec<Value> {
        let line = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.text().lines().map(line).collect()
    }

    /// The same, if the command ended well.
    ///
    /// # Panics
    /// If it did not.
    #[track_caller]
    pub fn ok(self) -> Ran {
        self.code(0)
    }

    /// The same, if the command ended with this code.
    ///
    /// # Panics
    /// If it did not.
    #[track_caller]
    pub fn code(self, code: i32) -> Ran {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }
}

/// Runs a command to its end with this on its standard input. Its environment says nothing of a supervisor unless
/// the command was told.
///
/// # Panics
/// If it cannot be started or does not end in time.
pub fn run(command: &mut Command, stdin: &[u8]) -> Ran {
    run_within(PATIENCE, command, stdin)
}

/// The same for a command that has more to do.
fn run_within(limit: Duration, command: &mut Command, stdin: &[u8]) -> Ran {
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut to_child = child.stdin.take().expect("piped");
    let mut from_child = child.stdout.take().expect("piped");
    let mut said_by_child = child.stderr.take().expect("piped");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = to_child.write_all(stdin); // a command need not read what it does not want
        });
        let stdout = scope.spawn(move || read_all(&mut from_child));
        let stderr = scope.spawn(move || read_all(&mut said_by_child));
        let ended = wait_for_end(child.id(), limit);
        if !ended {
            let _ = child.kill();
        }
        let status = child.wait().expect("our own child");
        let (stdout, stderr) = (stdout.join().expect("reads"), stderr.join().expect("reads"));
        let ran = Ran {
            code: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            stdout,
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
            took: started.elapsed(),
        };
        assert!(ended, "{command:?} did not end in time: {ran:#?}");
        ran
    })
}

/// Reads once. The system does not take up a read with a time limit again after a signal, such as that of the end of a child of
/// this process; here that is done.
///
/// # Errors
/// Those of the read.
pub fn read_once(source: &mut impl Read, space: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(space) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

fn read_all(source: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    source.read_to_end(&mut bytes).expect("a pipe can be read");
    bytes
}

/// What is ignored here, because the tests run behind a terminal's back (`nohup`, `&` in a script), would be ignored by all
/// that is started here. What is caught, to no effect, is not.
fn pass_on_default_signals() {
    static IS_DONE: OnceLock<()> = OnceLock::new();
    IS_DONE.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:"))
            .map_or(0, |digits| u64::from_str_radix(digits.trim(), 16).expect("the kernel writes it so"));
        for signal in [Signal::HUP, Signal::INT, Signal::QUIT].map(Signal::as_raw) {
            if ignored >> (signal - 1) & 1 == 1 {
                signal_hook::flag::register(signal, Arc::default()).expect("it can be caught");
            }
        }
    });
}

/// A path that stands for no configuration file: that of whoever runs the tests is none of theirs.
const NO_FILE: (&str, &str) = ("OFFLOAD_CONFIG", "/dev/null");

/// An `offload` command without a supervisor and without a configuration.
pub fn command(arguments: &[&str]) -> Command {
    pass_on_default_signals();
    let mut command = Command::new(offload());
    command.args(arguments).env_remove("OFFLOAD_SOCKET").env("NO_COLOR", "1").env(NO_FILE.0, NO_FILE.1);
    command
}

/// Runs `offload` without a supervisor.
pub fn run_offload(arguments: &[&str]) -> Ran {
    run(&mut command(arguments), b"")
}

/// Puts the questions of `offload worker check` to a worker: some twenty processes one after another, and a long input.
pub fn check_worker(words: &[&str]) -> Ran {
    let verb = ["worker", "check", "--json", "--timeout", "60s"];
    run_within(5 * PATIENCE, &mut command(&[&verb, words].concat()), b"")
}

/// Waits until a process (any, not only a child) has ended. False if it has not in time.
pub fn wait_for_end(pid: u32, limit: Duration) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return true };
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return true };
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).expect("a sane limit");
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)) {
            // A test may catch signals.
            Err(Errno::INTR) if !left.is_zero() => {}
            ended => return ended == Ok(1),
        }
    }
}

/// Asks again and again until there is an answer.
///
/// # Panics
/// If there is none in time.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Sends a signal to a process that a test started.
pub fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    let _ = kill_process(pid, signal); // it may have ended by itself
}

/// The processes whose parent this is.
pub fn children_of(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

/// Open descriptors of a process. Since Linux 6.2 the size of the folder is their number, which everybody may know:
/// a supervisor does not let its own user look into it.
pub fn descriptors_of(pid: u32) -> usize {
    let folder = format!("/proc/{pid}/fd");
    match std::fs::metadata(&folder).map_or(0, |folder| folder.len()) {
        0 => std::fs::read_dir(folder).map_or(0, Iterator::count),
        count => usize::try_from(count).expect("a number of descriptors"),
    }
}

/// The processes that have this text among the words of their command, in the order of their numbers.
pub fn processes_with(text: &str) -> Vec<u32> {
    let is_one = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(text)
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_one).collect();
    found.sort_unstable();
    found
}

/// A supervisor with a socket in a folder of its own. Dropping it kills and reaps it, and waits for its workers.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    /// Where it listens.
    pub socket: PathBuf,
    /// What it prints.
    pub stdout: Lines,
    /// What it says.
    pub stderr: Lines,
    folder: TempDir,
    user: Option<u32>,
}

/// A user that is not root, and owns nothing.
const NOBODY: u32 = 65534;

impl Daemon {
    /// Starts `offload serve` with these arguments and waits until it is ready.
    ///
    /// # Panics
    /// If it does not become ready in time.
    #[track_caller]
    pub fn start(arguments: &[&str]) -> Daemon {
        let daemon = Daemon::launch(arguments);
        let is_ready = |line: &str| line.contains("\"ready\"");
        assert!(daemon.stdout.find(is_ready, PATIENCE).is_some(), "not ready: {:#?}", daemon.stderr.all());
        daemon
    }

    /// Starts `offload serve` with these arguments and waits until its socket is there: its workers may not be.
    ///
    /// # Panics
    /// If the socket does not come in time.
    #[track_caller]
    pub fn launch(arguments: &[&str]) -> Daemon {
        Daemon::launch_as(None, arguments, &mut |command| command)
    }

    /// Starts `offload serve` with these arguments by a shell that says `first` before, such as `ulimit -n 256`, and waits
    /// until it is ready.
    ///
    /// # Panics
    /// If it does not become ready in time.
    #[track_caller]
    pub fn start_after(first: &str, arguments: &[&str]) -> Daemon {
        let daemon = Daemon::launch_changed(arguments, &mut |command| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("{first} && exec \"$0\" \"$@\"")]);
            shell.arg(command.get_program()).args(command.get_args());
            shell.env_remove("OFFLOAD_SOCKET").env("NO_COLOR", "1").env(NO_FILE.0, NO_FILE.1);
            shell
        });
        let is_ready = |line: &str| line.contains("\"ready\"");
        assert!(daemon.stdout.find(is_ready, PATIENCE).is_some(), "not ready: {:#?}", daemon.stderr.all());
        daemon
    }

    /// As [`Daemon::launch`], but the command may be changed, or put behind another one, before it is started.
    ///
    /// # Panics
    /// If the socket does not come in time.
    #[track_caller]
    pub fn launch_changed(arguments: &[&str], change: &mut dyn FnMut(Command) -> Command) -> Daemon {
        Daemon::launch_as(None, arguments, change)
    }

    /// As [`Daemon::launch`] by a user without privileges, who is another one if we are root. Programs of ours that it
    /// is to start are to be copied by [`copy_for_anybody`].
    ///
    /// # Panics
    /// If the socket does not come in time.
    #[track_caller]
    pub fn launch_unprivileged(arguments: &[&str], change: &mut dyn FnMut(Command) -> Command) -> Daemon {
        let user = rustix::process::geteuid().is_root().then_some(NOBODY);
        Daemon::launch_as(user, arguments, change)
    }

    #[track_caller]
    fn launch_as(
        user: Option<u32>,
        arguments: &[&str],
        change: &mut dyn FnMut(Command) -> Command,
    ) -> Daemon {
        let folder = private_folder();
        let socket = folder.path().join("o.sock");
        let mut command = command(&["serve", "--json", "--socket"]);
        if let Some(user) = user {
            std::os::unix::fs::chown(folder.path(), Some(user), Some(user)).expect("root may do that");
            let copy = copy_for_anybody(folder.path(), "offload");
            command = Command::new(copy);
            command.args(["serve", "--json", "--socket"]).env_remove("OFFLOAD_SOCKET").uid(user).gid(user);
            command.env(NO_FILE.0, NO_FILE.1);
        }
        command.arg(&socket).args(arguments);
        let mut command = change(command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("offload can be started");
        let stdout = Lines::collect(child.stdout.take().expect("piped"));
        let stderr = Lines::collect(child.stderr.take().expect("piped"));
        let mut daemon = Daemon { child, socket, stdout, stderr, folder, user };
        until("the socket", || {
            let ended = daemon.child.try_wait().expect("our own child");
            assert!(ended.is_none(), "it ended with {ended:?}: {:#?}", daemon.stderr.all());
            daemon.socket.exists().then_some(())
        });
        daemon
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A folder for the test's own files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A command that talks to it.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        if let Some(user) = self.user {
            command = Command::new(self.folder().join("offload"));
            command.args(arguments).env("NO_COLOR", "1").env(NO_FILE.0, NO_FILE.1).uid(user).gid(user);
        }
        command.env("OFFLOAD_SOCKET", &self.socket);
        command
    }

    /// Runs `offload` against it.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        run(&mut self.command(arguments), b"")
    }

    /// Submits a job and returns its finished document.
    pub fn submit(&self, arguments: &[&str]) -> Value {
        let mut words = vec!["submit", "--json"];
        words.extend(arguments);
        self.run(&words).json()
    }

    /// A client of the library.
    ///
    /// # Panics
    /// If it does not get in.
    pub fn client(&self) -> Client {
        Client::connect(&self.socket, "test").expect("the supervisor listens")
    }

    /// `offload status --json`.
    pub fn status(&self) -> Value {
        self.run(&["status", "--json"]).ok().json()
    }

    /// `offload workers --json`.
    pub fn workers(&self) -> Vec<Value> {
        self.run(&["workers", "--json"]).ok().json().as_array().expect("an array").clone()
    }

    /// The worker that runs this task, once one does.
    pub fn worker_running(&self, task: &str) -> Value {
        until("a worker with the task", || self.workers().into_iter().find(|worker| worker["task"] == task))
    }

    /// Waits until all slots are ready and the spare, if there is one, stands by.
    pub fn wait_until_whole(&self) {
        until("all workers", || {
            let workers = self.status()["workers"].clone();
            let slots = self.workers().len() as u64;
            let whole = workers["ready"] == workers["configured"]
                && workers["configured"].as_u64()? + workers["spares"].as_u64()? == slots;
            whole.then_some(())
        });
    }

    /// Sends it a signal.
    pub fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }

    /// Waits until it has ended by itself.
    ///
    /// # Panics
    /// If it does not in time.
    #[track_caller]
    pub fn wait(&mut self) -> i32 {
        assert!(wait_for_end(self.pid(), PATIENCE), "it did not end: {:#?}", self.stderr.all());
        let status = self.child.wait().expect("our own child");
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let workers = children_of(self.pid());
        let _ = self.child.kill();
        let _ = self.child.wait();
        for worker in workers {
            if !wait_for_end(worker, Duration::from_secs(5)) {
                eprintln!("worker process {worker} outlived its supervisor");
                signal(worker, Signal::KILL);
            }
        }
        if std::thread::panicking() {
            eprintln!("--- the supervisor said:\n{}", self.stderr.all().join("\n"));
        }
    }
}
