//! The configuration file: where it is found, who may have written it, how one begins, and what is checked of it.

use rustix::process::geteuid;
use std::fs::{Permissions, create_dir_all, read_to_string, set_permissions, write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use tests::harness::{
    Ran, command, copy_for_anybody, private_folder, run, run_offload, signal, until, write_executable,
};

/// The user `nobody` of most systems. Root finds only the file of the machine, which is no test's to write.
const NOBODY: u32 = 65534;

/// A user without privileges, with a home of its own and no other configuration.
struct User {
    home: TempDir,
    program: PathBuf,
}

impl User {
    fn new() -> User {
        let home = private_folder();
        let program = copy_for_anybody(home.path(), "offload");
        let user = User { home, program };
        user.own(user.home.path());
        user
    }

    fn own(&self, path: &Path) {
        if geteuid().is_root() {
            chown(path, Some(NOBODY), Some(NOBODY)).expect("root may do that");
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).env_clear().env("HOME", self.home.path()).env("PATH", "/usr/bin:/bin");
        if geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    fn run(&self, words: &[&str]) -> Ran {
        run(&mut self.command(words), b"")
    }

    fn file(&self) -> PathBuf {
        self.home.path().join(".config/offload/config.toml")
    }

    fn write(&self, text: &str) {
        let file = self.file();
        create_dir_all(file.parent().unwrap()).unwrap();
        write(&file, text).unwrap();
        set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        self.own(&file);
    }
}

#[test]
fn a_file_in_the_home_is_read_and_a_named_one_in_its_place() {
    let user = User::new();
    assert!(user.run(&["config", "show"]).ok().text().starts_with("configuration file: none\n"));
    user.write("[[pool]]\nworkers = 3\n");
    let shown = user.run(&["config", "show"]).ok().text();
    let file = user.file().display().to_string();
    assert!(shown.starts_with(&format!("configuration file: {file}\n")), "{shown}");
    let keys = user.run(&["config", "show", "--json"]).ok().json();
    let workers = keys.as_array().unwrap().iter().find(|key| key["key"] == "pool.workers").unwrap();
    assert_eq!((&workers["value"], &workers["where"]), (&"3".into(), &format!("{file}:2").into()));
    assert!(user.run(&["config", "check"]).ok().text().ends_with("config.toml: ok, sets 1 key\n"));

    let other = user.home.path().join("other.toml");
    write(&other, "").unwrap();
    for (named, expected) in [(other.to_str().unwrap(), "other.toml"), ("/dev/null", "none")] {
        let shown = user.run(&["config", "show", "--config", named]).ok().text();
        assert!(shown.lines().next().unwrap().ends_with(expected), "{shown}");
        assert!(!shown.contains(&file), "{shown}");
    }
    // The file in the home is not checked in place of none.
    user.write("no text of a configuration");
    for words in [&["config", "check", "/dev/null"][..], &["config", "check", "--config", "/dev/null"]] {
        assert_eq!(user.run(words).ok().text(), "/dev/null: ok, sets 0 keys\n");
    }
    let mut check = user.command(&["config", "check"]);
    run(check.env("OFFLOAD_CONFIG", "/dev/null"), b"").ok();
}

#[test]
fn the_folder_for_configurations_may_be_elsewhere() {
    let user = User::new();
    user.write("[supervisor]\nmax_jobs = 7\n");
    let folder = user.file().parent().unwrap().parent().unwrap().to_owned();
    let elsewhere = user.home.path().join("elsewhere");
    std::fs::rename(folder, &elsewhere).unwrap();
    let shown = run(user.command(&["config", "show"]).env("XDG_CONFIG_HOME", &elsewhere), b"").ok().text();
    assert!(shown.contains("elsewhere/offload/config.toml:2"), "{shown}");
}

#[test]
fn a_mistake_in_a_file_that_was_found_names_the_file_and_runs_nothing() {
    let user = User::new();
    user.write("[supervisor]\nmax_job = 7\n");
    for words in [&["run", "echo", "x"][..], &["serve"], &["config", "check"], &["config", "show"]] {
        let ran = user.run(words).code(2);
        let expected = "config.toml:2: unknown key \"max_job\" in [supervisor]; did you mean \"max_jobs\"?";
        assert!(ran.stderr.contains(expected) && ran.text().is_empty(), "{words:?}: {ran:?}");
    }
    user.run(&["run", "--config", "/dev/null", "echo", "x"]).ok();
}

#[test]
fn a_file_that_others_can_write_is_read_only_by_name() {
    let user = User::new();
    user.write("[[pool]]\nworkers = 1\n");
    set_permissions(user.file(), Permissions::from_mode(0o666)).unwrap();
    let ran = user.run(&["run", "echo", "x"]).code(2);
    assert!(ran.stderr.contains("others may write to it (mode 666): say chmod go-w"), "{}", ran.stderr);
    user.run(&["run", "--config", user.file().to_str().unwrap(), "echo", "x"]).ok();
}

#[test]
fn a_supervisor_says_which_file_it_has_read_and_does_not_start_over_without_it() {
    let user = User::new();
    user.write("[[pool]]\nworkers = 1\n");
    let socket = user.home.path().join("run/o.sock");
    let socket = socket.to_str().unwrap();
    let mut serve = user.command(&["serve", "--socket", socket, "--json"]);
    let mut serve = serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = tests::harness::Lines::collect(serve.stdout.take().unwrap());
    let ready = lines.find(|line| line.contains("\"ready\""), tests::harness::PATIENCE).expect("a line");
    assert!(ready.contains(&format!("\"config\":\"{}\"", user.file().display())), "{ready}");
    std::fs::remove_file(user.file()).unwrap();
    let ran = user.run(&["reload", "--socket", socket]);
    assert!(ran.code != 0 && ran.stderr.contains("config.toml: No such file"), "{ran:?}");
    signal(serve.id(), rustix::process::Signal::TERM);
    until("its end", || serve.try_wait().unwrap());
}

#[test]
fn init_writes_a_file_that_is_found_sets_nothing_and_is_not_overwritten() {
    let user = User::new();
    let file = user.file().display().to_string();
    assert_eq!(user.run(&["config", "init"]).ok().text(), format!("{file}\n"));
    assert_eq!(user.run(&["config", "check"]).ok().text(), format!("{file}: ok, sets 0 keys\n"));
    let again = user.run(&["config", "init"]).code(2);
    assert!(again.stderr.contains("is there already: name another file"), "{}", again.stderr);
    let text = read_to_string(user.file()).unwrap();
    assert_eq!(user.run(&["config", "init", "-"]).ok().text(), text);
    let ran = user.run(&["config", "init", "/proc/x/y"]).code(74);
    assert!(ran.stderr.contains("cannot write /proc/x/y"), "{}", ran.stderr);
}

/// A line of the template with its `#` taken away, if that makes it say something.
fn said(line: &str) -> Option<&str> {
    let said = line.strip_prefix('#')?.trim_start();
    let begins_a_table = said.starts_with("[[") || said.starts_with("[task.");
    let (name, _) = said.split_once(" = ").unwrap_or(("no name", ""));
    let sets_a_key = name.chars().all(|character| character.is_alphanumeric() || character == '_');
    (begins_a_table || sets_a_key).then_some(said)
}

#[test]
fn every_line_that_init_writes_is_a_setting_once_its_sign_is_taken_away() {
    let folder = private_folder();
    let file = folder.path().join("all.toml");
    let text = run_offload(&["config", "init", "-"]).ok().text();
    let all: Vec<&str> = text.lines().map(|line| said(line).unwrap_or(line)).collect();
    write(&file, all.join("\n")).unwrap();
    let keys = run_offload(&["config", "show", "--json", "--config", file.to_str().unwrap()]).ok().json();
    for key in keys.as_array().unwrap() {
        assert_eq!(key["origin"], "file", "{key}");
        let line = key["where"].as_str().unwrap().rsplit(':').next().unwrap().parse::<usize>().unwrap();
        assert!((1..=all.len()).contains(&line), "{key}");
    }
}

#[test]
fn a_program_that_is_not_there_is_told_with_the_line_that_names_it() {
    let folder = private_folder();
    let file = folder.path().join("offload.toml");
    let path = file.to_str().unwrap();
    for (text, expected) in [
        (
            "[[pool]]\nworkers = 1\ncommand = \"no-such-worker -x\"\n",
            ":3: pool.command: cannot start `no-such-worker`: no `no-such-worker` in PATH",
        ),
        (
            "[[pool]]\njsonl = [\"/no/such/worker\"]\n",
            ":2: pool.jsonl: cannot start `/no/such/worker`: No such file",
        ),
        (
            "[task.fine]\nexec = \"true\"\n\n[task.thumb]\nexec = \"/etc/passwd\"\n",
            ":4: task.thumb: cannot start `/etc/passwd`: permission denied: it may not be executed",
        ),
        ("[task.echo]\nexec = \"true\"\n", ":1: task.echo: there is a built-in task of this name"),
        (
            "[http]\nlisten = \"127.0.0.1:0\"\ntls = { certificate = \"a\" }\n",
            ":3: http.tls.certificate: a certificate for TLS needs its key",
        ),
        (
            "[http]\ntls = { certificate = \"/no/such.pem\", key = \"/no/such.key\" }\n",
            ":2: http.tls.certificate: the certificate for TLS, /no/such.pem: No such file",
        ),
        ("[io]\n\nroot = \"/no/such/folder\"\n", ":3: io.root: the folder /no/such/folder is not there"),
        (
            "[http]\nlisten = \"unix:/no/such/http.sock\"\n",
            ":2: http.listen: the folder /no/such is not there",
        ),
    ] {
        write(&file, text).unwrap();
        let ran = run_offload(&["config", "check", path]).code(2);
        assert!(ran.stderr.contains(&format!("{path}{expected}")), "{}", ran.stderr);
    }
    write(&file, "[[pool]]\ncommand = \"python3 x.py\"\n[[pool]]\ncommand = \"builtin\"\n").unwrap();
    run(&mut command(&["config", "check", path]), b"").ok();
}

/// A worker in bash, which answers with what it was given by its pool.
const TELLS_ITS_SURROUNDINGS: &str = r#"#!/bin/bash
printf '{"hello":{"tasks":[{"name":"%s"}]}}\n' "$TASK" >&4
while read -r line <&3; do
  job=$(sed 's/.*"job":"\([0-9]*\)".*/\1/' <<<"$line")
  printf '{"job":"%s","output":"%s %s %s"}\n' "$job" "$COLOUR" "${PWD##*/}" "$(ulimit -n)" >&4
done
"#;

#[test]
fn each_pool_has_an_environment_a_folder_and_open_files_of_its_own() {
    let folder = private_folder();
    for name in ["one", "two"] {
        create_dir_all(folder.path().join(name)).unwrap();
        write_executable(&folder.path().join(name).join("worker.sh"), TELLS_ITS_SURROUNDINGS.as_bytes());
    }
    let dir = |name: &str| folder.path().join(name);
    let file = folder.path().join("offload.toml");
    let text = format!(
        "[[pool]]\njsonl = './worker.sh'\nenv = {{ TASK = 'first', COLOUR = 'dark red' }}\ndir = {:?}\n\
         [[pool]]\njsonl = 'bash worker.sh'\nenv = {{ TASK = 'second' }}\ndir = {:?}\nopen_files = 64\n",
        dir("one"),
        dir("two")
    );
    write(&file, text).unwrap();
    let config = ["--config", file.to_str().unwrap()];
    let said = |task: &str| run_offload(&[&["run"], &config[..], &[task, "1"]].concat()).ok().text();
    assert_eq!(said("first"), "\"dark red one 128\"\n");
    assert_eq!(said("second"), "\" two 64\"\n");
    run_offload(&[&["config", "check"], &config[1..]].concat()).ok();
    // A flag says the same.
    let flag = format!("env=TASK=third env=COLOUR=blue dir={} -- ./worker.sh", dir("one").display());
    assert_eq!(
        run_offload(&["run", "--worker-jsonl", &flag, "third", "1"]).ok().text(),
        "\"blue one 128\"\n"
    );
}

#[test]
fn what_a_pool_says_of_its_program_is_checked_with_the_line() {
    let folder = private_folder();
    let file = folder.path().join("offload.toml");
    for (text, expected) in [
        ("env = 'A=b'\njsonl = 'sh x'", "offload.toml:2: pool.env: a table of texts is expected"),
        ("env = { A = 1 }\njsonl = 'sh x'", "offload.toml:2: pool.env: a table of texts is expected"),
        ("dir = '/no/such/folder'\njsonl = 'sh x'", "the folder /no/such/folder is not there"),
        ("open_files = 5\njsonl = 'sh x'", "from 16 to 4096 are possible"),
        ("dir = '/'", "this [[pool]] has no program for its env, dir, open_files"),
        ("dir = '/'\ncommand = 'builtin'", "the built-in worker takes none of env, dir, open_files"),
        ("foldr = '/'\njsonl = 'sh x'", "unknown key \"foldr\""),
    ] {
        write(&file, format!("[[pool]]\n{text}\n")).unwrap();
        let ran = run_offload(&["config", "check", file.to_str().unwrap()]).code(2);
        assert!(ran.stderr.contains(expected), "{text}: {}", ran.stderr);
    }
}
