//! Each line of the cookbook in the README does what it says.

use rustix::process::Signal;
use std::path::Path;
use std::process::{Command, Stdio};
use tests::harness::{Daemon, Lines, PATIENCE, children_of, offload, private_folder, run, until, workspace};

/// The lines of the cookbook: what to type, and what it is for.
fn recipes() -> Vec<(String, String)> {
    let readme = std::fs::read_to_string(workspace().join("README.md")).unwrap();
    let block = readme.split("### Cookbook").nth(1).unwrap().split("```").nth(1).unwrap();
    let recipe = |line: &str| {
        let (typed, what) = line.rsplit_once("  # ").unwrap_or_else(|| panic!("{line}: what is it for?"));
        (typed.trim().to_owned(), what.trim().to_owned())
    };
    block.lines().skip(1).filter(|line| !line.is_empty()).map(recipe).collect()
}

/// What the line is for says so.
fn needs_supervisor(what: &str) -> bool {
    what.starts_with("with `serve`")
}

fn prepare(folder: &Path) {
    for (name, content) in [
        ("words.txt", "b\na\nb\nc\nd\n"),
        ("a.jpg", "first"),
        ("b.jpg", "second"),
        ("data.json", "[1, 2]"),
        ("model.py", "import sys; print(len(sys.stdin.read()))"),
        ("upload.sh", "test -e tried.$1 || { touch tried.$1; exit 1; }; echo uploaded $1"),
        ("slow.sh", "echo $1 >> ran; sleep 0.05; echo slow $1"),
        ("repair.sh", "id=$(offload submit --detach gzip x); offload explain $id; echo $id > waited"),
        ("list", "1\n2\n3\n4\n5\n6\n7\n8\n"),
    ] {
        std::fs::write(folder.join(name), content).unwrap();
    }
}

fn shell(line: &str, folder: &Path) -> Command {
    let mut shell = Command::new("sh");
    let path = format!("{}:{}", offload().parent().unwrap().display(), std::env::var("PATH").unwrap());
    shell.args(["-c", line]).current_dir(folder).env("PATH", path).env_remove("OFFLOAD_SOCKET");
    shell
}

/// Ends the shell and all that it has started, as if the machine had.
fn kill_all(shell: u32) {
    let below = children_of(shell);
    let _ =
        rustix::process::kill_process(rustix::process::Pid::from_raw(shell as i32).unwrap(), Signal::KILL);
    below.into_iter().for_each(kill_all);
}

#[test]
fn each_line_of_the_cookbook_does_what_it_says() {
    let recipes = recipes();
    assert!(recipes.len() >= 8, "{recipes:?}");
    for (typed, what) in recipes.into_iter().filter(|(_, what)| !needs_supervisor(what)) {
        let folder = private_folder();
        prepare(folder.path());
        if typed.contains("--resume") {
            let mut killed =
                shell(&typed, folder.path()).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let log = folder.path().join("log");
            until("a job to count", || std::fs::metadata(&log).ok().filter(|log| log.len() > 0));
            kill_all(killed.id());
            killed.wait().unwrap();
        }
        let ran = run(&mut shell(&typed, folder.path()), b"");
        assert_eq!(ran.code, 0, "{what}: {typed}: {}", ran.stderr);
        if typed.ends_with("> out") {
            let expected: String = (1..=8).map(|number| format!("slow {number}\n")).collect();
            assert_eq!(std::fs::read_to_string(folder.path().join("out")).unwrap(), expected, "{what}");
        } else {
            assert!(!ran.stdout.is_empty(), "{what}: {typed}");
        }
        let has_files = folder.path().join("zipped/a.jpg").exists();
        assert_eq!(has_files, typed.contains("--output-dir"), "{what}: {typed}");
    }
}

#[test]
fn each_line_of_the_cookbook_for_a_supervisor_does_what_it_says() {
    let tell = ["--worker", "builtin", "--exec-task", "tell -- sh -c 'cat >&2'"];
    let daemon = Daemon::start(&[&["--workers", "2"], &tell[..]].concat());
    let recipes: Vec<(String, String)> =
        recipes().into_iter().filter(|(_, what)| needs_supervisor(what)).collect();
    assert_eq!(recipes.len(), 3, "{recipes:?}");
    // A task that no worker has offered yet cannot be paused.
    until("a worker offers gzip", || daemon.run(&["tasks"]).ok().text().contains("gzip").then_some(()));
    for (typed, what) in recipes {
        let folder = private_folder();
        prepare(folder.path());
        let mut shell = shell(&typed, folder.path());
        shell.env("OFFLOAD_SOCKET", &daemon.socket);
        match typed.as_str() {
            "offload logs -f" => follow(shell, &daemon),
            pause if pause.contains("offload pause") => {
                let ran = run(&mut shell, b"").ok();
                paused_meanwhile(&daemon, &ran.text(), folder.path(), &what);
            }
            _ => assert_eq!(run(&mut shell, b"").ok().text(), "1\n2\n3\n", "{what}"),
        }
    }
}

/// The line goes on for ever, and prints what jobs print while it runs.
fn follow(mut following: Command, daemon: &Daemon) {
    let mut child = following.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = Lines::collect(child.stdout.take().unwrap());
    for printed in ["first", "second"] {
        daemon.run(&["submit", "tell", printed]).ok();
        let found = lines.find(|line| line.ends_with(printed), PATIENCE);
        assert!(found.is_some(), "{printed}: {:?}", lines.all());
    }
    kill_all(child.id());
    child.wait().unwrap();
}

/// A job that was submitted in the meantime waited, and is done afterwards.
fn paused_meanwhile(daemon: &Daemon, printed: &str, folder: &Path, what: &str) {
    let at = |text| printed.find(text).unwrap_or_else(|| panic!("{what}: {text}: {printed}"));
    let places = ["the task gzip is paused", "it is paused", "nothing is paused"].map(at);
    assert!(places.is_sorted(), "{what}: {printed}");
    let job = std::fs::read_to_string(folder.join("waited")).unwrap();
    daemon.run(&["wait", job.trim()]).ok();
}
