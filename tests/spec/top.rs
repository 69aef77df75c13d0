//! `offload top` on a real terminal: what is drawn, what keys do, and that the terminal is as before however it ends.

use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;
use tests::harness::{
    Daemon, Lines, PATIENCE, Terminal, children_of, offload, run_offload, signal, until, wait_for_end,
};
use vt100::Parser;

/// What leaves the other screen.
const LEAVE: &str = "\u{1b}[?1049l";

/// A shell that runs `top` and says how it ended, and how the terminal is then. The end of a shell itself would reset it.
const SHELL: &str = "\"$0\" \"$@\"; echo \"code=$?.\"; stty -a; echo; echo THE END";

/// What came from a process, as bytes and as the screen that they make.
struct Shown {
    bytes: Vec<u8>,
    screen: Parser,
}

impl Shown {
    fn text(&self) -> String {
        self.screen.screen().contents()
    }

    fn bytes(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// `top` on a terminal of its own, which is its controlling one.
struct Watched {
    shell: Child,
    terminal: Terminal,
    keyboard: File,
    shown: Arc<(Mutex<Shown>, Condvar)>,
    stderr: Lines,
}

impl Watched {
    fn start(daemon: &Daemon, (columns, rows): (u16, u16)) -> Watched {
        let terminal = Terminal::open();
        terminal.resize((columns, rows));
        let mut shell = start_on(&terminal, SHELL, daemon);
        let shown = Shown { bytes: Vec::new(), screen: Parser::new(rows, columns, 0) };
        let shown = Arc::new((Mutex::new(shown), Condvar::new()));
        collect(terminal.keyboard(), Arc::clone(&shown));
        let stderr = Lines::collect(shell.stderr.take().expect("piped"));
        Watched { shell, keyboard: terminal.keyboard(), terminal, shown, stderr }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.0.lock().expect("no panic under this lock")
    }

    /// Waits until the screen is so.
    #[track_caller]
    fn until(&self, what: &str, is_so: impl Fn(&Shown) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut shown = self.shown();
        while !is_so(&shown) {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                let (screen, bytes) = (shown.text(), shown.bytes());
                drop(shown);
                panic!("never {what:?}: {screen}\n{bytes:?}; {:?}", self.stderr.all());
            };
            shown = self.shown.1.wait_timeout(shown, left).expect("no panic under this lock").0;
        }
    }

    /// Waits until all of this is on the other screen, at the same time.
    #[track_caller]
    fn sees(&self, texts: &[&str]) {
        self.until(&format!("{texts:?}"), |shown| {
            let screen = shown.text();
            shown.screen.screen().alternate_screen() && texts.iter().all(|text| screen.contains(text))
        });
    }

    #[track_caller]
    fn no_longer_sees(&self, text: &str) {
        self.until(&format!("without {text:?}"), |shown| !shown.text().contains(text));
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("a terminal takes keys");
    }

    fn resize(&self, (columns, rows): (u16, u16)) {
        self.shown().screen.screen_mut().set_size(rows, columns);
        self.terminal.resize((columns, rows));
    }

    /// The process id of `top`.
    fn pid(&self) -> u32 {
        children_of(self.shell.id())[0]
    }

    /// Waits for its end, after which the terminal is as before. The exit code, 128 and more for a signal; standard error.
    #[track_caller]
    fn ended(mut self) -> (i32, Vec<String>) {
        self.until("the end", |shown| shown.bytes().contains("THE END"));
        assert!(wait_for_end(self.shell.id(), PATIENCE) && self.shell.wait().is_ok());
        let shown = self.shown().bytes();
        let (screen, after) = shown.split_once("code=").expect("the shell says it");
        assert_eq!(screen.matches(LEAVE).count(), 1, "{screen:?}");
        let words: Vec<&str> = after.split_whitespace().collect();
        for mode in ["echo", "icanon", "isig", "icrnl", "opost"] {
            assert!(words.contains(&mode), "the terminal is as before: {after}");
        }
        assert!(!self.shown().screen.screen().hide_cursor(), "{screen:?}");
        let code = after.split('.').next().and_then(|code| code.parse().ok()).expect("a number");
        (code, self.stderr.whole())
    }
}

/// A shell, whose controlling terminal this is, with a script that runs `top`.
fn start_on(terminal: &Terminal, script: &str, daemon: &Daemon) -> Child {
    let mut shell = Command::new("setsid");
    shell.args(["-c", "sh", "-c", script]).arg(offload()).args(["top", "--every", "50ms"]);
    shell.env("OFFLOAD_SOCKET", &daemon.socket).env("TERM", "xterm-256color");
    shell.stdin(terminal.side()).stdout(terminal.side()).stderr(Stdio::piped());
    shell.spawn().expect("setsid is there")
}

/// The sockets that a process has, by their numbers in the system.
fn sockets(pid: u32) -> BTreeSet<PathBuf> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten();
    let targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).collect()
}

fn collect(mut terminal: File, shown: Arc<(Mutex<Shown>, Condvar)>) {
    std::thread::spawn(move || {
        let mut space = [0; 4096];
        while let Ok(count @ 1..) = terminal.read(&mut space) {
            let mut shown_now = shown.0.lock().expect("no panic under this lock");
            shown_now.bytes.extend_from_slice(&space[..count]);
            shown_now.screen.process(&space[..count]);
            shown.1.notify_all();
        }
    });
}

#[test]
fn it_draws_obeys_keys_follows_the_size_and_gives_the_terminal_back() {
    let daemon = Daemon::start(&["--workers", "1", "--spares", "0"]);
    let job = daemon.run(&["submit", "--detach", "sleep", "600000"]).ok().text().trim().to_owned();
    let worker = daemon.worker_running("sleep")["pid"].to_string();
    let mut watched = Watched::start(&daemon, (120, 30));
    watched.sees(&["sorted by slot", "busy", &job, &worker, "QUEUED TASK"]);
    assert!(!watched.terminal.echoes());
    watched.press("s");
    watched.sees(&["sorted by run time"]);

    watched.resize((40, 10));
    watched.sees(&["s sort  Enter story  c c", "SLOT STATE"]);
    watched.no_longer_sees("QUEUED TASK");
    watched.press("i");
    watched.sees(&["story: up, down, Esc", &job]);
    watched.press("\u{1b}");
    watched.no_longer_sees("story: up");
    watched.resize((100, 30));
    watched.sees(&["QUEUED TASK"]);

    watched.press("x");
    watched.sees(&[&format!("kill worker process {worker} of slot 0?")]);
    watched.press("y");
    watched.sees(&[&format!("worker process {worker} is killed")]);
    until("the worker is another one", || {
        (daemon.worker_running("sleep")["pid"].as_u64() != worker.parse().ok()).then_some(())
    });
    assert_eq!(daemon.workers()[0]["job"], job.as_str(), "it runs again");
    watched.press("q");
    assert_eq!(watched.ended(), (0, Vec::new()));
}

#[test]
fn the_job_of_the_chosen_slot_is_cancelled_and_no_other() {
    let daemon = Daemon::start(&["--workers", "2", "--spares", "0"]);
    let submit = || daemon.run(&["submit", "--detach", "sleep", "600000"]).ok().text().trim().to_owned();
    let jobs = [submit(), submit()];
    until("both run", || daemon.workers().iter().all(|worker| !worker["job"].is_null()).then_some(()));
    let chosen = daemon.workers()[1]["job"].as_str().expect("it runs one").to_owned();
    let other = jobs.iter().find(|job| **job != chosen).expect("two jobs");
    let mut watched = Watched::start(&daemon, (100, 24));
    watched.sees(&[&chosen, other]);
    watched.press("jc");
    watched.sees(&[&format!("job {chosen}: cancelled")]);
    let ended = daemon.run(&["wait", &chosen]);
    assert!(ended.code != 0 && ended.stderr.contains("cancelled"), "{}", ended.stderr);
    assert_eq!(daemon.workers().iter().filter(|worker| worker["job"] == other.as_str()).count(), 1);

    until("the slot has no job", || {
        daemon.workers().iter().any(|worker| worker["job"].is_null()).then_some(())
    });
    watched.press("h");
    watched.sees(&["cancel the job that the slot runs"]);
    watched.press("h");
    watched.sees(&["idle", "c cancel"]);
    watched.press("c");
    watched.sees(&["this slot runs no job now"]);
    watched.press("q");
    assert_eq!(watched.ended(), (0, Vec::new()));
}

#[test]
fn the_end_of_the_supervisor_is_told_on_the_screen_and_on_standard_error() {
    let mut daemon = Daemon::start(&["--workers", "1"]);
    let mut watched = Watched::start(&daemon, (80, 24));
    watched.sees(&["sorted by slot", "idle"]);
    daemon.run(&["stop"]).ok();
    daemon.wait();
    watched.sees(&["the supervisor has ended", "any key: leave", "sorted by slot"]);
    watched.press(" ");
    let (code, said) = watched.ended();
    assert!(code == 3 && said.len() == 1 && said[0].contains("the supervisor has ended"), "{code} {said:?}");
}

#[test]
fn when_the_supervisor_is_killed_and_nobody_presses_a_key_it_leaves_all_the_same() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let watched = Watched::start(&daemon, (80, 24));
    watched.sees(&["sorted by slot"]);
    signal(daemon.pid(), Signal::KILL);
    let (code, said) = watched.ended();
    assert!(code == 3 && said.len() == 1 && said[0].contains("the supervisor has ended"), "{code} {said:?}");
}

#[test]
fn a_supervisor_that_stands_still_is_waited_for_on_the_same_connection() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let mut watched = Watched::start(&daemon, (80, 24));
    watched.sees(&["sorted by slot", "idle"]);
    let connections = sockets(watched.pid());
    signal(daemon.pid(), Signal::STOP);
    watched.sees(&["no answer from the supervisor", "sorted by slot"]);
    watched.press("s");
    watched.sees(&["sorted by run time"]);
    signal(daemon.pid(), Signal::CONT);
    watched.no_longer_sees("no answer from the supervisor");
    assert!(!connections.is_empty() && connections == sockets(watched.pid()), "{connections:?}");
    watched.press("q");
    assert_eq!(watched.ended(), (0, Vec::new()));
}

#[test]
fn a_signal_ends_it_and_the_terminal_is_as_before() {
    for (ending, code) in [(Signal::TERM, 128 + 15), (Signal::HUP, 128 + 1)] {
        let daemon = Daemon::start(&["--workers", "1"]);
        let watched = Watched::start(&daemon, (80, 24));
        watched.sees(&["sorted by slot"]);
        signal(watched.pid(), ending);
        assert_eq!(watched.ended().0, code);
    }
}

/// Without the signal of a terminal that is gone, too, and when standard error is gone with it.
#[test]
fn a_terminal_that_is_gone_ends_it_by_its_signal_and_nothing_is_said() {
    let itself = "exec \"$0\" \"$@\"";
    for script in [
        itself.to_owned(),
        format!("trap '' HUP; {itself}"),
        format!("{itself} 2>&1"),
        format!("trap '' HUP; {itself} 2>&1"),
    ] {
        let daemon = Daemon::start(&["--workers", "1"]);
        let terminal = Terminal::open_with(80);
        let mut top = start_on(&terminal, &script, &daemon);
        let stderr = Lines::collect(top.stderr.take().expect("piped"));
        read_until("sorted", terminal.keyboard());
        drop(terminal);
        assert!(wait_for_end(top.id(), PATIENCE), "it goes on: {script}");
        let ended = top.wait().expect("our own child");
        assert_eq!(ended.signal(), Some(Signal::HUP.as_raw()), "{script}: {ended} {:?}", stderr.all());
        assert_eq!(stderr.whole(), [""; 0], "{script}");
    }
}

/// Reads until this word is shown (blanks are not drawn), and then has the terminal no longer.
#[track_caller]
fn read_until(word: &'static str, mut terminal: File) {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let (mut space, mut shown) = ([0; 4096], String::new());
        while !shown.contains(word)
            && let Ok(count @ 1..) = terminal.read(&mut space)
        {
            shown.push_str(&String::from_utf8_lossy(&space[..count]));
        }
        drop(terminal);
        let _ = tell.send(shown);
    });
    let shown = told.recv_timeout(PATIENCE).expect("it is shown in time");
    assert!(shown.contains(word), "{shown}");
}

#[test]
fn control_and_c_quits() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let mut watched = Watched::start(&daemon, (80, 24));
    watched.sees(&["sorted by slot"]);
    watched.press("\u{3}");
    assert_eq!(watched.ended(), (0, Vec::new()));
}

#[test]
fn without_a_terminal_or_a_supervisor_it_says_what_to_do() {
    let ran = run_offload(&["top"]).code(2);
    assert!(
        ran.stderr.contains("draws on a terminal") && ran.stderr.contains("status --json"),
        "{}",
        ran.stderr
    );
    for interval in ["0s", "1ms", "1h"] {
        assert!(run_offload(&["top", "--every", interval]).code(2).stderr.contains("--every"));
    }
}
