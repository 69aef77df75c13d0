//! No result is lost silently: if a result could not be written, the verb says so and does not exit with 0.

use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use tests::harness::{
    Daemon, PATIENCE, Ran, Terminal, command, leave, offload, private_folder, run, run_offload, until,
    wait_for_end,
};

/// The exit code for results that could not be written.
const UNWRITTEN: i32 = 74;

/// A standard output that takes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sink {
    /// `>&-`
    Closed,
    /// `>/dev/full`
    Full,
    /// `| true`
    NobodyReads,
}

const SINKS: [Sink; 3] = [Sink::Closed, Sink::Full, Sink::NobodyReads];

impl Sink {
    /// Runs `offload` with this as its standard output, in `folder`.
    fn take(self, arguments: &[&str], socket: Option<&Path>, folder: &Path) -> Ran {
        let script = if self == Sink::Closed { "exec \"$@\" >&-" } else { "exec \"$@\"" };
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(offload()).args(arguments).current_dir(folder);
        match socket {
            Some(socket) => shell.env("OFFLOAD_SOCKET", socket),
            None => shell.env_remove("OFFLOAD_SOCKET"),
        };
        shell.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(self.open());
        let started = Instant::now();
        let mut child = shell.spawn().expect("a shell");
        let said = child.stderr.take().expect("piped");
        let stderr = std::thread::spawn(move || std::io::read_to_string(said).expect("a pipe can be read"));
        let is_over = wait_for_end(child.id(), PATIENCE);
        let _ = child.kill(); // it may have ended
        let status = child.wait().expect("our own child");
        let stderr = stderr.join().expect("reads");
        assert!(is_over, "{self:?} {arguments:?} goes on: {stderr}");
        Ran { code: status.code().unwrap_or(-1), stdout: Vec::new(), stderr, took: started.elapsed() }
    }

    fn open(self) -> Stdio {
        match self {
            Sink::Closed => Stdio::null(),
            Sink::Full => std::fs::File::options().write(true).open("/dev/full").expect("a device").into(),
            Sink::NobodyReads => {
                let (reader, writer) = std::io::pipe().expect("a pipe");
                leave(reader);
                writer.into()
            }
        }
    }
}

/// Each verb with words that make it succeed where its output is read; JOB is one that has ended, and LETTER one
/// that is a dead letter. What each is for: the result of a job, or something that can be asked for again.
const VERBS: [(&str, &[&str], For); 37] = [
    ("run", &["run", "echo", "x"], For::Job),
    ("run", &["run", "--json", "echo", "x"], For::Job),
    ("map", &["map", "echo", "list"], For::Job),
    ("submit", &["submit", "echo", "x"], For::Job),
    ("submit", &["submit", "--json", "echo", "x"], For::Job),
    ("submit", &["submit", "--detach", "echo", "x"], For::Job),
    ("wait", &["wait", "JOB"], For::Job),
    ("wait", &["wait", "--json", "JOB"], For::Job),
    ("result", &["result", "JOB"], For::Job),
    ("status", &["status"], For::View),
    ("status", &["status", "--json"], For::View),
    ("workers", &["workers"], For::View),
    ("jobs", &["jobs"], For::View),
    ("tasks", &["tasks"], For::View),
    ("cancel", &["cancel", "JOB"], For::View),
    ("explain", &["explain", "JOB"], For::View),
    ("logs", &["logs"], For::View),
    ("logs", &["logs", "-f", "--json"], For::View),
    ("pause", &["pause", "echo"], For::View),
    ("resume", &["resume"], For::View),
    ("retry", &["retry", "LETTER"], For::View),
    ("dead", &["dead", "list"], For::View),
    ("reload", &["reload"], For::View),
    // It is no worker, which is said on standard output.
    ("worker", &["worker", "check", "true"], For::View),
    ("bench", &["bench", "compare", "--seconds", "10ms"], For::View),
    ("bench", &["bench", "advise", "--seconds", "10ms"], For::View),
    ("config", &["config", "init", "-"], For::View),
    ("config", &["config", "show"], For::View),
    ("config", &["config", "check", "list"], For::View),
    ("doctor", &["doctor"], For::View),
    ("completions", &["completions", "bash"], For::View),
    ("man", &["man"], For::View),
    ("man", &["--help"], For::View),
    ("man", &["submit", "--help"], For::View),
    ("man", &["--version"], For::View),
    ("drain", &["drain", "--json"], For::View),
    ("stop", &["stop", "--json"], For::End),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    Job,
    View,
    /// It ends the supervisor, which is ended already by `drain`.
    End,
}

/// A job that has killed a worker in each of its attempts.
fn dead_letter(daemon: &Daemon) -> String {
    let died =
        daemon.run(&["submit", "--json", "--attempts", "2", "fault", r#"{"act":"kill"}"#]).code(125).json();
    died["job"].as_str().unwrap().to_owned()
}

#[test]
fn no_verb_loses_its_output_and_exits_with_0() {
    for sink in SINKS {
        let tell = ["--exec-task", "tell -- sh -c 'cat >&2'"];
        let daemon = Daemon::start(&[&["--workers", "2", "--allow-faults"], &tell[..]].concat());
        std::fs::write(daemon.folder().join("list"), "# also a configuration\n").unwrap();
        daemon.run(&["submit", "tell", "there are logs\n"]).ok();
        let job = daemon.run(&["submit", "--detach", "echo", "x"]).ok().text().trim().to_owned();
        daemon.run(&["wait", &job]).ok();
        let letter = dead_letter(&daemon);
        for (_, words, kind) in VERBS.iter().filter(|(_, _, kind)| *kind != For::End) {
            let named = |word| match word {
                "JOB" => &job,
                "LETTER" => &letter,
                _ => word,
            };
            let words: Vec<&str> = words.iter().map(|word| named(word)).collect();
            let ran = sink.take(&words, Some(&daemon.socket), daemon.folder());
            assert_eq!(ran.code, UNWRITTEN, "{sink:?} {words:?}: {}", ran.stderr);
            // Who reads the first lines of a table only, and goes, has what he wants.
            let may_be_silent = sink == Sink::NobodyReads && *kind == For::View;
            assert!(
                may_be_silent || ran.stderr.contains("standard output"),
                "{sink:?} {words:?}: {}",
                ran.stderr
            );
        }
        let daemon = Daemon::start(&["--workers", "1"]);
        sink.take(&["stop", "--json"], Some(&daemon.socket), daemon.folder()).code(UNWRITTEN);
    }
}

/// A verb that is new has to say where it belongs.
#[test]
fn every_verb_of_the_help_is_in_the_table() {
    let help = run_offload(&["--help"]).ok().text();
    let commands = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).expect(&help);
    let is_verb = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    let verbs: BTreeSet<&str> =
        commands.lines().filter(is_verb).filter_map(|line| line.split_whitespace().next()).collect();
    // It has no results. Who does not read that it is ready can ask `status`.
    let without_results = BTreeSet::from(["serve", "top"]);
    let known: BTreeSet<&str> = VERBS.iter().map(|(verb, ..)| *verb).chain(without_results).collect();
    assert_eq!(verbs, known);
}

#[test]
fn a_job_whose_result_could_not_be_written_is_not_even_run() {
    let daemon = Daemon::start(&["--workers", "1"]);
    std::fs::write(daemon.folder().join("list"), "a\nb\n").unwrap();
    for sink in [Sink::Closed, Sink::NobodyReads] {
        for words in
            [&["submit", "echo", "x"][..], &["submit", "--detach", "echo", "x"], &["map", "echo", "list"]]
        {
            sink.take(words, Some(&daemon.socket), daemon.folder()).code(UNWRITTEN);
        }
    }
    assert_eq!(daemon.status()["jobs"]["accepted"], 0);
    // Where the output goes elsewhere, standard output is not missed.
    let words = ["submit", "echo", "x", "--output", "out"];
    Sink::Closed.take(&words, Some(&daemon.socket), daemon.folder()).ok();
    assert_eq!(std::fs::read(daemon.folder().join("out")).unwrap(), b"x\n");
}

/// The path that a message ends with or names before `; `.
fn saved_at(said: &str) -> &str {
    let place = said.split_once(" is in ").or_else(|| said.split_once(" are in "));
    let (_, path) = place.unwrap_or_else(|| panic!("nothing was saved: {said}"));
    path.split([';', '\n']).next().expect("a part")
}

#[test]
fn a_result_for_which_the_disk_has_no_room_is_saved_where_there_is_some() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let job = daemon.run(&["submit", "--detach", "echo", "kept"]).ok().text().trim().to_owned();
    daemon.run(&["wait", &job]).ok();
    let embedded = private_folder();
    for (words, folder, socket) in [
        (&["submit", "echo", "kept"][..], daemon.folder(), Some(&*daemon.socket)),
        (&["wait", &job], daemon.folder(), Some(&*daemon.socket)),
        (&["run", "echo", "kept"], embedded.path(), None),
        (&["submit", "echo", "kept", "--output", "/dev/full"], embedded.path(), Some(&*daemon.socket)),
    ] {
        let ran = Sink::Full.take(words, socket, folder).code(UNWRITTEN);
        let saved = folder.join(saved_at(&ran.stderr));
        assert_eq!(std::fs::read(&saved).expect(&ran.stderr), b"kept", "{words:?}");
    }
}

/// Also those behind the one whose write failed, and those that came out of turn.
#[test]
fn results_in_json_for_which_there_is_no_room_are_saved_in_one_file() {
    let daemon = Daemon::start(&["--workers", "2"]);
    let folder = daemon.folder();
    std::fs::write(folder.join("list"), "a\nb\nc\n").unwrap();
    for (words, socket) in [
        (&["run", "--json", "echo", "a", "b", "c"][..], None),
        (&["map", "echo", "list"], None),
        (&["map", "echo", "list"], Some(&*daemon.socket)),
    ] {
        let ran = Sink::Full.take(words, socket, folder).code(UNWRITTEN);
        let saved = std::fs::read_to_string(folder.join(saved_at(&ran.stderr))).expect(&ran.stderr);
        let results: Vec<Value> = saved.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&results[0]["index"], &results[0]["output"]), (&0.into(), &"a".into()), "{words:?}");
        let many = format!("{} result", results.len());
        assert!(ran.stderr.contains(&many), "{}", ran.stderr);
    }
}

/// The disk is full, or the size of files is limited: what is written and what is saved are all results, each once.
#[test]
fn a_file_that_has_reached_its_limit_and_the_saved_rest_have_every_result_that_there_was() {
    let folder = private_folder();
    std::fs::write(folder.path().join("list"), "x\n".repeat(20)).unwrap();
    let script = "exec prlimit --fsize=4096 \"$0\" map --workers 1 echo list > written";
    let mut map = Command::new("sh");
    map.args(["-c", script]).arg(offload()).current_dir(folder.path()).env_remove("OFFLOAD_SOCKET");
    let ran = run(&mut map, b"").code(UNWRITTEN);
    assert!(ran.stderr.contains("File too large"), "{}", ran.stderr);
    let written = std::fs::read_to_string(folder.path().join("written")).unwrap();
    let saved = std::fs::read_to_string(folder.path().join(saved_at(&ran.stderr))).expect(&ran.stderr);
    let complete = written.rsplit_once('\n').map_or("", |(lines, _)| lines);
    let index = |line: &str| serde_json::from_str::<Value>(line).unwrap()["index"].as_u64().unwrap();
    let indices: Vec<u64> = complete.lines().chain(saved.lines()).map(index).collect();
    assert!(complete.lines().count() > 1 && saved.lines().count() > 0);
    assert_eq!(indices, (0..indices.len() as u64).collect::<Vec<_>>());
}

#[test]
fn a_result_that_reaches_the_limit_of_file_sizes_is_an_error_that_is_told() {
    let folder = private_folder();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 0; exec \"$0\" run echo x > out"]).arg(offload()).current_dir(folder.path());
    let ran = run(shell.env_remove("OFFLOAD_SOCKET"), b"").code(UNWRITTEN);
    assert!(ran.stderr.contains("cannot write to standard output: File too large"), "{}", ran.stderr);
    // The lock of a supervisor is a file with its process id.
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 0; exec \"$0\" serve --socket \"$1\""]).arg(offload());
    let ran = run(shell.arg(folder.path().join("o.sock")), b"");
    assert!(ran.code == 70 && ran.stderr.contains("File too large"), "{ran:?}");
}

/// They are typed for what they do.
#[test]
fn verbs_with_an_effect_have_it_though_nobody_can_be_told() {
    for sink in [Sink::Closed, Sink::Full] {
        let mut daemon = Daemon::start(&["--workers", "1", "--allow-faults"]);
        let pid_of_worker = |daemon: &Daemon| daemon.workers()[0]["pid"].as_u64();
        let job = daemon.run(&["submit", "--detach", "sleep", "3600000"]).ok().text().trim().to_owned();
        let act = |words: &[&str]| sink.take(words, Some(&daemon.socket), daemon.folder());
        let ran = act(&["cancel", &job]).code(UNWRITTEN);
        assert!(ran.stderr.contains("standard output") && ran.stderr.contains("cancelled"), "{}", ran.stderr);
        daemon.run(&["wait", &job]).code(126);
        let letter = dead_letter(&daemon);
        let ran = act(&["retry", &letter]).code(UNWRITTEN);
        assert!(ran.stderr.contains("submitted again"), "{}", ran.stderr);
        assert_eq!(
            daemon.run(&["jobs", "--json", "--task", "fault"]).ok().json().as_array().unwrap().len(),
            2
        );
        // No worker dies any more, so none of a reload's does.
        until("the job has killed its workers again", || {
            let letters = daemon.run(&["dead", "list", "--json"]).ok().json();
            (!letters[0]["job"].is_null() && letters[0]["job"] != letter.as_str()).then_some(())
        });
        daemon.wait_until_whole();
        let before = pid_of_worker(&daemon);
        let ran = act(&["reload"]).code(UNWRITTEN);
        assert!(ran.stderr.contains("reloaded"), "{}", ran.stderr);
        assert_ne!(pid_of_worker(&daemon), before);
        let words = if sink == Sink::Closed { ["stop", "--json"] } else { ["drain", "--json"] };
        act(&words).code(UNWRITTEN);
        assert_eq!(daemon.wait(), 0);
    }
}

#[test]
fn the_id_of_a_job_that_was_detached_is_said_where_it_cannot_be_printed() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let words = ["submit", "--detach", "echo", "x"];
    let ran = Sink::Full.take(&words, Some(&daemon.socket), daemon.folder()).code(UNWRITTEN);
    let id = ran.stderr.split_whitespace().last().expect("a word").to_owned();
    assert_eq!(daemon.run(&["wait", &id]).ok().text(), "x\n");
}

#[test]
fn a_map_whose_reader_leaves_ends_and_saves_the_results_that_there_are_in_one_file() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let mut map = daemon.command(&["map", "echo"]);
    map.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir(daemon.folder());
    let mut map = map.spawn().unwrap();
    let mut list = map.stdin.take().unwrap();
    list.write_all(b"first\n").unwrap();
    let mut results = BufReader::new(map.stdout.take().unwrap());
    let mut line = String::new();
    results.read_line(&mut line).unwrap();
    assert!(line.contains("\"first\""), "{line}");
    leave(results.into_inner());
    list.write_all(b"second\nthird\n").unwrap();
    assert!(wait_for_end(map.id(), PATIENCE), "it goes on for nobody");
    let mut said = String::new();
    map.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(map.wait().unwrap().code(), Some(UNWRITTEN), "{said}");
    assert!(
        said.contains("nobody reads standard output any more") && said.contains("from index 1 on"),
        "{said}"
    );
    let saved = std::fs::read_to_string(daemon.folder().join(saved_at(&said))).expect(&said);
    assert!(saved.lines().next().is_some_and(|line| line.contains("\"second\"")), "{saved}");
    assert!(saved.lines().all(|line| line.contains("\"ok\"")), "only what had ended: {saved}");
    assert_eq!(files_saved_in(daemon.folder()), 1);
}

fn files_saved_in(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    entries.filter(|name| name.to_string_lossy().starts_with("offload-")).count()
}

/// Whether `offload` has a socket. Before it has become that, it may have copies of ours.
fn has_a_socket(process: u32) -> bool {
    let has_begun = std::fs::read(format!("/proc/{process}/comm")).is_ok_and(|name| name == b"offload\n");
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let mut targets = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    has_begun && targets.any(|target| target.to_string_lossy().starts_with("socket:"))
}

/// Whether the job is new or known to the supervisor: who has fetched a result is the only one who surely has it.
#[test]
fn a_result_whose_reader_has_left_is_saved() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let detach =
        |words: &[&str]| daemon.run(&[&["submit", "--detach"], words].concat()).ok().text().trim().to_owned();
    for verb in ["submit", "wait"] {
        let before = files_saved_in(daemon.folder());
        let blocker = detach(&["sleep", "3600000"]);
        daemon.worker_running("sleep");
        let accepted = daemon.status()["jobs"]["accepted"].as_u64();
        let words: Vec<String> = match verb {
            "submit" => ["submit", "echo", "kept"].map(str::to_owned).to_vec(),
            _ => vec!["wait".to_owned(), detach(&["echo", "kept"])],
        };
        let mut command = daemon.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.current_dir(daemon.folder()).spawn().unwrap();
        until("the verb to be connected", || match verb {
            "submit" => (daemon.status()["jobs"]["accepted"].as_u64() > accepted).then_some(()),
            _ => has_a_socket(child.id()).then_some(()),
        });
        leave(child.stdout.take().unwrap());
        daemon.run(&["cancel", &blocker]).ok();
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(UNWRITTEN), "{said}");
        assert!(said.contains("nobody reads standard output any more; the output of job "), "{said}");
        assert_eq!(std::fs::read(daemon.folder().join(saved_at(&said))).expect(&said), b"kept");
        assert_eq!(files_saved_in(daemon.folder()), before + 1);
    }
}

#[test]
fn a_result_that_nobody_would_read_stays_with_the_supervisor() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let job = daemon.run(&["submit", "--detach", "echo", "kept"]).ok().text().trim().to_owned();
    let words = ["wait", &job];
    let ran = Sink::NobodyReads.take(&words, Some(&daemon.socket), daemon.folder()).code(UNWRITTEN);
    assert!(ran.stderr.contains("the result was not fetched"), "{}", ran.stderr);
    assert_eq!(daemon.run(&words).ok().text(), "kept\n");
}

#[test]
fn a_file_for_the_output_is_looked_at_before_the_job_and_replaced_after_it() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let folder = daemon.folder();
    for path in ["no/such/folder/out", "."] {
        let ran =
            daemon.command(&["submit", "echo", "x", "--output", path]).current_dir(folder).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(UNWRITTEN), "{said}");
        assert!(said.contains("cannot write to ") && said.contains(path), "{said}");
    }
    assert_eq!(daemon.status()["jobs"]["accepted"], 0, "nothing was run for it");

    let out = folder.join("out");
    std::fs::write(&out, "from before").unwrap();
    let out = out.to_str().unwrap();
    daemon.run(&["submit", "primes", "no number", "--output", out]).code(1);
    assert_eq!(std::fs::read(out).unwrap(), b"from before", "a job that fails destroys nothing");
    daemon.run(&["submit", "echo", "new", "--output", out]).ok();
    assert_eq!(std::fs::read(out).unwrap(), b"new\n");
}

/// Runs it with a terminal as its standard output. Returns it with what the terminal shows, and what it said.
fn on_a_terminal(mut command: Command, input: &[u8], folder: &Path) -> (i32, Vec<String>, String) {
    let terminal = Terminal::open();
    command.current_dir(folder).stdin(Stdio::piped()).stdout(terminal.side()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(command);
    let shown = terminal.lines();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(wait_for_end(child.id(), PATIENCE));
    let code = child.wait().unwrap().code().unwrap();
    (code, shown.whole(), said)
}

#[test]
fn binary_output_is_kept_from_a_terminal_and_not_lost() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let embedded = private_folder();
    let bytes = [0u8, 255, 27, b'c'];
    for (words, folder) in
        [(["submit", "echo", "-"], daemon.folder()), (["run", "echo", "-"], embedded.path())]
    {
        let command = if words[0] == "run" { command(&words) } else { daemon.command(&words) };
        let (code, shown, said) = on_a_terminal(command, &bytes, folder);
        assert_eq!((code, shown.concat().as_str()), (0, ""), "{said}");
        assert!(said.contains("not printed to a terminal"), "{said}");
        assert_eq!(std::fs::read(folder.join(saved_at(&said))).unwrap(), bytes);
    }
    let accepted = daemon.status()["jobs"]["accepted"].clone();
    for words in [["submit", "gzip", "x"], ["run", "gzip", "x"]] {
        let command = if words[0] == "run" { command(&words) } else { daemon.command(&words) };
        let (code, _, said) = on_a_terminal(command, b"", daemon.folder());
        assert_eq!(code, 2, "it is known before: {said}");
    }
    assert_eq!(daemon.status()["jobs"]["accepted"], accepted);
}

#[test]
fn text_is_shown_on_a_terminal_whatever_its_task_calls_it() {
    let folder = private_folder();
    let packed = run(Command::new("gzip").arg("-c"), b"plain text\n").ok().stdout;
    let terminal = Terminal::open();
    let mut command = command(&["run", "gunzip", "-"]);
    command.current_dir(folder.path()).stdin(Stdio::piped()).stdout(terminal.side()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    drop(command);
    child.stdin.take().unwrap().write_all(&packed).unwrap();
    let shown = terminal.lines();
    assert!(shown.find(|line| line == "plain text", PATIENCE).is_some(), "{:?}", shown.all());
    assert!(child.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn each_job_of_run_has_a_line_and_a_failed_one_an_empty_line_and_its_reason() {
    let ran = run_offload(&["run", "primes", "10", "x", "20", "y"]).code(1);
    let expected = "{\"count\":4,\"largest\":7}\n\n{\"count\":8,\"largest\":19}\n\n";
    assert_eq!(ran.text(), expected);
    assert!(ran.stderr.contains("input 2: app_error: ") && ran.stderr.contains("input 4: app_error: "));
    let ran = run_offload(&["run", "no.such.task", "a", "b", "c"]).code(4);
    assert_eq!(ran.stderr.matches("unknown_task").count(), 3, "{}", ran.stderr);
    assert_eq!(run_offload(&["run", "primes", "x"]).code(1).text(), "", "nothing is to be kept apart");
    let documents = run_offload(&["run", "--json", "no.such.task", "a", "b", "c"]).code(4).json_lines();
    assert!(documents.len() == 3 && documents.iter().all(|one: &Value| one["outcome"] == "unknown_task"));
}

#[test]
fn nothing_is_put_between_binary_outputs() {
    let ran = run_offload(&["run", "--exec", "sh -c 'printf \"\\377\"; exit {}'", "0", "1", "0"]).code(1);
    assert_eq!(ran.stdout, b"\xff\xff");
}

#[test]
fn a_process_that_waits_for_its_result_leaves_no_file_behind_when_it_is_killed() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let words = ["submit", "sleep", "3600000", "--output", "out"];
    let mut submit = daemon.command(&words).current_dir(daemon.folder()).spawn().unwrap();
    daemon.worker_running("sleep");
    submit.kill().unwrap();
    submit.wait().unwrap();
    let left = || std::fs::read_dir(daemon.folder()).unwrap().map(|entry| entry.unwrap().file_name());
    let ours = left().filter(|name| name.to_string_lossy().contains("out"));
    assert_eq!(ours.count(), 0, "{:?}", left().collect::<Vec<_>>());
}
