//! Programs as tasks (`--exec`): one fresh process for each job, which knows nothing of offload, and which cannot hold up or
//! outlive anything whatever it does.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tests::harness::{
    PATIENCE, Ran, command, offload, private_folder, processes_with, run, run_offload, signal, until,
    wait_for_end, workspace, write_executable,
};

/// Runs this line by a shell, as the program of one job with this input.
fn run_line(line: &str, flags: &[&str], input: &[u8]) -> Ran {
    let shell = format!("sh -c '{line}'");
    let words: Vec<&str> = ["run", "--json", "--exec", &shell].iter().chain(flags).copied().collect();
    run(command(&words).arg("-"), input)
}

/// A word that only the processes of one test have in their command.
fn word() -> String {
    let folder = private_folder();
    folder.path().file_name().expect("it has a name").to_string_lossy().into_owned()
}

fn nobody_has(word: &str) {
    until("the processes of the job are gone", || processes_with(word).is_empty().then_some(()));
}

fn message(job: &Value) -> &str {
    job["error"]["message"].as_str().unwrap_or_else(|| panic!("{job}"))
}

#[test]
fn the_input_is_standard_input_and_the_output_is_standard_output() {
    let folder = private_folder();
    let file = folder.path().join("input");
    let content: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    std::fs::write(&file, &content).unwrap();
    let at_file = format!("@{}", file.display());
    let ran = run_offload(&["run", "--exec", "gzip -c", &at_file]).ok();
    let unpacked = run(Command::new("gunzip").arg("-c"), &ran.stdout).ok();
    assert!(unpacked.stdout == content, "{} bytes of {}", unpacked.stdout.len(), content.len());
    assert_eq!(run_offload(&["run", "--exec", "cat", "a", "-5", ""]).ok().text(), "a\n-5\n\n");
    assert_eq!(run_offload(&["run", "--exec", "echo \"two words\""]).ok().text(), "two words\n");
}

#[test]
fn what_is_text_is_said_to_be_text_and_other_bytes_are_bytes() {
    let text = run_line("printf h\\\\303\\\\244", &[], b"").ok().json();
    assert_eq!(
        (&text["output"], &text["content_type"]),
        (&"h\u{e4}".into(), &"text/plain; charset=utf-8".into())
    );
    let bytes = run_line("printf \\\\377", &[], b"").ok().json();
    assert_eq!((&bytes["output_base64"], &bytes["task"]), (&"/w==".into(), &"exec".into()));
}

#[test]
fn a_program_over_files_says_what_it_says_without_offload() {
    let folder = workspace().join("worker/src");
    let files = run(Command::new("find").arg(&folder).args(["-name", "*.rs"]), b"").ok();
    let direct = run(Command::new("xargs").arg("sha256sum"), &files.stdout).ok().text();
    let mapped = run(&mut command(&["map", "--exec", "sha256sum", "--files"]), &files.stdout).ok();
    let digest = |line: &str| line.split_whitespace().next().unwrap().to_owned();
    let mapped: Vec<_> =
        mapped.json_lines().iter().map(|job| digest(job["output"].as_str().unwrap())).collect();
    assert_eq!(mapped, direct.lines().map(digest).collect::<Vec<_>>());
    assert!(mapped.len() > 20, "{mapped:?}");
}

#[test]
fn a_failure_has_the_last_lines_of_standard_error_and_the_log_has_all() {
    let ran = run_line("echo first >&2; seq 2 9 >&2; printf last >&2; exit 3", &[], b"").code(1);
    let job = ran.json();
    assert_eq!(job["outcome"], "app_error");
    assert_eq!(message(&job), "exit code 3: 6; 7; 8; 9; last");
    assert_eq!((&job["error"]["exit_code"], &job["error"]["signal"]), (&3.into(), &Value::Null));
    for line in ["first", "5", "last"] {
        assert!(
            ran.stderr.lines().any(|said| said.ends_with(&format!("] {line}"))),
            "{line}: {}",
            ran.stderr
        );
    }
}

#[test]
fn a_signal_is_named_and_the_next_job_runs_in_the_same_worker() {
    let script = "sh -c 'read word; [ $word = good ] || kill -SEGV $$; echo $word'";
    let ran =
        run_offload(&["run", "--json", "--workers", "1", "--exec", script, "good\n", "bad\n", "good\n"])
            .code(1);
    let jobs = ran.json_lines();
    assert_eq!(message(&jobs[1]), "signal 11 (SIGSEGV)");
    assert_eq!((&jobs[1]["error"]["signal"], &jobs[1]["error"]["exit_code"]), (&11.into(), &Value::Null));
    let worker = |job: &Value| job["receipt"]["worker_pid"].clone();
    assert_eq!((&jobs[2]["output"], worker(&jobs[0])), (&"good\n".into(), worker(&jobs[2])));
}

#[test]
fn a_program_that_reads_nothing_or_closes_its_output_holds_nobody_up() {
    let large = vec![b'x'; 5_000_000];
    assert_eq!(run_line("echo unread", &[], &large).ok().json()["output"], "unread\n");
    // It writes before it reads: whoever writes all of the input first would wait for ever.
    let ran = run_line("head -c 3000000 /dev/zero | tr \\\\0 y; cat", &[], &large).ok().json();
    assert_eq!(ran["receipt"]["output_bytes"], 8_000_000);
    let ran = run_line("echo before; exec >&- 2>&-; sleep 0.2; exit 4", &[], b"").code(1).json();
    assert_eq!(message(&ran), "exit code 4");
}

#[test]
fn an_output_that_is_too_long_ends_the_program_and_the_next_job_runs() {
    let script = "sh -c 'read word; [ $word = good ] || exec yes; echo $word'";
    let words = [
        "run",
        "--json",
        "--workers",
        "1",
        "--max-payload",
        "1MiB",
        "--exec",
        script,
        "good\n",
        "bad\n",
        "good\n",
    ];
    let jobs = run_offload(&words).code(1).json_lines();
    assert_eq!(message(&jobs[1]), "it printed more than 1048576 bytes, the most that an output may have");
    assert_eq!(jobs[2]["output"], "good\n");
}

#[test]
fn what_a_program_leaves_behind_ends_with_its_job() {
    let word = word();
    // In the group, in a session of its own, twice forked; with its output open and closed.
    let line = format!(
        "sleep 1000 {word} & setsid sleep 1000 {word} & (setsid sh -c \"sleep 1000 {word}; :\" >/dev/null 2>&1 &) ; echo done"
    );
    // The words of `sleep` would be times: a link has the word in its name.
    let folder = private_folder();
    std::os::unix::fs::symlink(sleep(), folder.path().join(&word)).unwrap();
    let line =
        line.replace(&format!("sleep 1000 {word}"), &format!("{}/{word} 1000", folder.path().display()));
    let job = run_line(&line, &[], b"").ok().json();
    assert_eq!(job["output"], "done\n");
    nobody_has(&word);
}

fn sleep() -> PathBuf {
    let found = run(Command::new("sh").args(["-c", "command -v sleep"]), b"").ok().text();
    Path::new(found.trim()).to_owned()
}

/// A shell that refuses to end when asked, with a child that does not know of it.
fn stubborn(folder: &Path, word: &str) -> String {
    let file = folder.join(word);
    write_executable(&file, b"#!/bin/sh\ntrap '' TERM\nsetsid sleep 1000 &\nwhile :; do sleep 1000; done\n");
    file.to_str().expect("a path is text").to_owned()
}

#[test]
fn a_program_that_ignores_its_time_limit_ends_all_the_same() {
    let (folder, word) = (private_folder(), word());
    let program = stubborn(folder.path(), &word);
    let job = run_offload(&["run", "--json", "--timeout", "300ms", "--exec", &program]).code(124).json();
    assert_eq!((&job["outcome"], message(&job)), (&"timeout".into(), "ran longer than 300 ms"));
    nobody_has(&word);
}

#[test]
fn nothing_outlives_a_command_that_is_killed() {
    let (folder, word) = (private_folder(), word());
    let program = stubborn(folder.path(), &word);
    let mut child = Command::new(offload());
    child.args(["run", "--exec", &program]).env_remove("OFFLOAD_SOCKET");
    let mut child = child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // The command itself has the word, and so has the program.
    until("the program runs", || (processes_with(&word).len() > 1).then_some(()));
    signal(child.id(), rustix::process::Signal::KILL);
    assert!(wait_for_end(child.id(), PATIENCE));
    child.wait().unwrap();
    nobody_has(&word);
}

#[test]
fn what_cannot_be_started_is_refused_before_anything_runs() {
    let folder = private_folder();
    let file = |name: &str, content: &[u8]| {
        let file = folder.path().join(name);
        write_executable(&file, content);
        file.to_str().unwrap().to_owned()
    };
    let script = file("script", b"#!/no/such/python\n");
    let text = file("text", b"no program");
    for (program, why) in [
        ("no-such-program", "no `no-such-program` in PATH"),
        ("/etc/passwd", "ermission denied"),
        (&script, "its interpreter `/no/such/python`, which its first line names, does not exist"),
        ("", "an empty command"),
        ("'", "a quote is not closed"),
        (&text, "it is neither a program nor a script"),
    ] {
        let ran = run_offload(&["run", "--exec", program]).code(2);
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    }
    let ran = run_offload(&["run", "--exec", "cat", "--worker", "builtin"]).code(2);
    assert!(ran.stderr.contains("cannot be used with"), "{}", ran.stderr);
    let ran = run_offload(&["--socket", "/tmp/none", "map", "--exec", "cat"]).code(2);
    assert!(ran.stderr.contains("--exec says how workers are started"), "{}", ran.stderr);
}

/// A program has the clean environment of workers, and none of its adapter's own variables, descriptors or signals.
#[test]
fn a_program_finds_an_ordinary_environment() {
    let mut command =
        command(&["run", "--exec", "sh -c 'env; ls /proc/self/fd | wc -l; grep Sig /proc/self/status'"]);
    let said = run(command.env("SECRET", "1"), b"").ok().text();
    let has = |start: &str| said.lines().any(|line| line.starts_with(start));
    assert!(has("PATH=") && has("LANG=C.UTF-8") && !has("SECRET") && !has("OFFLOAD_"), "{said}");
    assert!(has("4"), "standard input, output and error, and the folder that is listed: {said}");
    // Two signals are the C library's own.
    for set in ["SigBlk:", "SigIgn:"] {
        let line = said.lines().find_map(|line| line.strip_prefix(set)).unwrap();
        assert_eq!(u64::from_str_radix(line.trim(), 16).unwrap() & 0x7fff_ffff, 0, "{said}");
    }
}

#[test]
fn what_a_program_uses_is_in_the_report_of_its_job() {
    let job = run_line("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done", &[], b"").ok().json();
    let usage = &job["receipt"]["usage"];
    assert!(usage["cpu_user_us"].as_u64().unwrap() > 5_000, "{usage}");
}

/// Guilty and innocent side by side: each job says its own end.
#[test]
fn many_programs_at_once_end_each_in_its_own_way() {
    let script = "sh -c 'read kind number; case $kind in exit) exit $number;; kill) kill -$number $$;; \
                  flood) yes $number;; fork) sleep 100 & setsid sleep 100 & echo $number;; *) echo $number;; esac'";
    let kinds = ["good 1", "exit 3", "kill 9", "flood 1", "fork 7", "good 2", "kill 15", "exit 1"];
    let list: Vec<&str> = kinds.iter().copied().cycle().take(96).collect();
    let list = list.join("\n");
    let words = ["map", "--workers", "3", "--max-payload", "256KiB", "--exec", script];
    let jobs = run(&mut command(&words), list.as_bytes()).code(1).json_lines();
    assert_eq!(jobs.len(), 96);
    for (job, kind) in jobs.iter().zip(kinds.iter().cycle()) {
        let said = job["output"].as_str().or_else(|| job["error"]["message"].as_str()).unwrap().to_owned();
        let expected = match *kind {
            "good 1" => "1\n",
            "good 2" => "2\n",
            "fork 7" => "7\n",
            "exit 3" => "exit code 3",
            "exit 1" => "exit code 1",
            "kill 9" => "signal 9 (SIGKILL)",
            "kill 15" => "signal 15 (SIGTERM)",
            _ => "it printed more than 262144 bytes, the most that an output may have",
        };
        assert_eq!(said, expected, "{kind}: {job}");
    }
}

/// With many bytes on standard error, the log is slower than the program: it waits, and can still be ended.
#[test]
fn a_program_that_fills_the_log_is_slowed_down_and_can_be_ended() {
    let ran = run_line("yes log >&2", &["--timeout", "500ms"], b"").code(124);
    assert_eq!(ran.json()["outcome"], "timeout");
    assert!(ran.took < Duration::from_secs(60), "{:?}", ran.took);
}
