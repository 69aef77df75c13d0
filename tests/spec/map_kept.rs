//! What `map` keeps of its results: a file for each output, and a job log from which it goes on after any end.

use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tests::harness::{
    Daemon, PATIENCE, children_of, command, leave, private_folder, run, signal, until, wait_for_end,
};

/// The name and the content of each file in a folder.
pub(super) fn files_in(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), read(&path).unwrap()))
        .collect()
}

/// The whole lines of a job log.
pub(super) fn log_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// How often each job ran, as the jobs themselves have written down.
fn runs(path: &Path) -> BTreeMap<u64, u64> {
    let mut runs = BTreeMap::new();
    for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
        *runs.entry(line.parse().unwrap()).or_insert(0) += 1;
    }
    runs
}

fn kill_with_all_below(process: &mut Child) {
    fn below(pid: u32) -> Vec<u32> {
        children_of(pid).into_iter().flat_map(|child| [vec![child], below(child)].concat()).collect()
    }
    let others = below(process.id());
    process.kill().unwrap();
    for pid in others {
        // It may have ended with its parent.
        let _ =
            rustix::process::kill_process(rustix::process::Pid::from_raw(pid as i32).unwrap(), Signal::KILL);
        assert!(wait_for_end(pid, PATIENCE));
    }
    process.wait().unwrap();
}

#[test]
fn each_output_has_a_file_with_the_name_of_its_input_or_its_index() {
    let folder = private_folder();
    let inside = |name: &str| folder.path().join(name);
    for (name, content) in [("a/x", "first"), ("b/x", "second"), ("y", "\u{0}third")] {
        std::fs::create_dir_all(inside(name).parent().unwrap()).unwrap();
        std::fs::write(inside(name), content).unwrap();
    }
    let list = b"a/x\nb/x\nmissing\na/../y\n../../../../etc/passwd\n/\n";
    let mut map = command(&["map", "echo", "--files", "--output-dir", "out"]);
    let ran = run(map.current_dir(folder.path()), list).code(1);
    let lines = ran.json_lines();
    assert_eq!((&lines[1]["output_file"], &lines[1]["output"]), (&"out/1-x".into(), &Value::Null));
    assert_eq!((&lines[2]["output_file"], &lines[2]["outcome"]), (&Value::Null, &"io_error".into()));
    let expected = [("x", "first"), ("1-x", "second"), ("y", "\u{0}third")];
    let mut expected: BTreeMap<_, _> =
        expected.into_iter().map(|(name, content)| (name.to_owned(), content.as_bytes().to_vec())).collect();
    if let Ok(passwd) = read("/etc/passwd") {
        expected.insert("passwd".to_owned(), passwd);
    }
    assert_eq!(files_in(&inside("out")), expected);

    let mut map = command(&["map", "--exec", "printf %s {}", "--range", "7-9", "--output-dir", "numbers"]);
    run(map.current_dir(folder.path()), b"").ok();
    let numbers = [("0", b"7"), ("1", b"8"), ("2", b"9")];
    let numbers = numbers.into_iter().map(|(name, content)| (name.to_owned(), content.to_vec())).collect();
    assert_eq!(files_in(&inside("numbers")), numbers);
}

#[test]
fn a_folder_or_a_log_that_cannot_be_used_is_told_before_anything_runs() {
    let folder = private_folder();
    std::fs::write(folder.path().join("file"), "x").unwrap();
    for (words, code, said) in [
        (
            &["--output-dir", "file"][..],
            74,
            "cannot write to file: it is no folder; name one with --output-dir",
        ),
        (&["--joblog", "."], 74, "cannot write to .: it is a folder; name a file with --joblog"),
        (&["--output-dir", "/proc/none"], 74, "cannot write to /proc/none"),
        (&["--joblog", "no/such/log"], 74, "cannot write to no/such/log"),
        (&["--joblog", "file"], 2, "file is there already: --resume"),
        (&["--resume"], 2, "--joblog"),
        (&["--retry-failed", "--resume", "--joblog", "log"], 2, "cannot be used with"),
        (&["--raw", "--output-dir", "out"], 2, "cannot be used with"),
    ] {
        let words = [&["map", "--exec", "sh -c 'echo >> ran'"], words].concat();
        let ran = run(command(&words).current_dir(folder.path()), b"a\n").code(code);
        assert!(ran.stderr.contains(said), "{words:?}: {}", ran.stderr);
    }
    assert!(!folder.path().join("ran").exists());
}

#[test]
fn a_disk_that_is_full_costs_no_result() {
    let daemon = Daemon::start(&["--workers", "1"]);
    let mut shell = Command::new("sh");
    let limited = "ulimit -f 8; exec \"$0\" map echo list --output-dir out --joblog log";
    shell.args(["-c", limited]).arg(tests::harness::offload()).env("OFFLOAD_SOCKET", &daemon.socket);
    std::fs::write(daemon.folder().join("list"), format!("a\n{}\nb\n", "x".repeat(20_000))).unwrap();
    let ran = run(shell.current_dir(daemon.folder()), b"").code(74);
    assert!(ran.stderr.contains("cannot write to out/1: File too large"), "{}", ran.stderr);
    let out = files_in(&daemon.folder().join("out"));
    assert!(out.keys().all(|name| ["0", "2"].contains(&name.as_str())), "nothing is half written: {out:?}");
}

#[test]
fn the_log_has_a_line_for_each_job_and_only_what_is_ok_is_not_run_again() {
    let folder = private_folder();
    let script = "sh -c 'echo {} >> runs; printf %s {}; test {} != \"$(cat bad)\"'";
    let map = |words: &[&str], list: &[u8]| {
        let words = [&["map", "--exec", script, "--joblog", "log"], words].concat();
        run(command(&words).current_dir(folder.path()), list)
    };
    std::fs::write(folder.path().join("bad"), "2").unwrap();
    let first = map(&[], b"1\n2\n3\n").code(1);
    let lines = log_lines(&folder.path().join("log"));
    let mut outcomes: Vec<_> =
        lines.iter().map(|line| (line["index"].as_u64(), line["outcome"].as_str())).collect();
    outcomes.sort_unstable();
    assert_eq!(outcomes, [(Some(0), Some("ok")), (Some(1), Some("app_error")), (Some(2), Some("ok"))]);
    // The digest of `1`, as sha256sum prints it.
    let digest = "sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";
    let line = lines.iter().find(|line| line["index"] == 0).unwrap();
    assert_eq!((&line["input_digest"], &line["attempts"]), (&digest.into(), &1.into()));
    assert!(line["start"].as_f64() > Some(1.7e9) && line["seconds"].is_f64(), "{line}");

    std::fs::write(folder.path().join("bad"), "none").unwrap();
    let retried = map(&["--retry-failed"], b"1\n2\n3\n4\n").ok();
    assert!(retried.stderr.contains("1 job is not in the job log and was left out"), "{}", retried.stderr);
    assert_eq!(runs(&folder.path().join("runs")), [(1, 1), (2, 2), (3, 1)].into());
    let resumed = map(&["--resume"], b"1\n2\n5\n4\n").ok();
    assert_eq!(runs(&folder.path().join("runs")), [(1, 1), (2, 2), (3, 1), (4, 1), (5, 1)].into());
    let outputs: Vec<_> = resumed.json_lines().iter().map(|line| line["output"].clone()).collect();
    assert_eq!(outputs, ["1", "2", "5", "4"], "the third input was another one");
    let all_lines = |ran: &tests::harness::Ran| ran.text().lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(all_lines(&first)[0], all_lines(&resumed)[0], "it is printed as it was printed before");
    let refused = map(&["--resume", "--raw"], b"1\n").code(2);
    assert!(refused.stderr.contains("it was written without --raw"), "{}", refused.stderr);
}

#[test]
fn what_the_log_has_as_ok_is_not_run_again_because_the_list_has_shifted() {
    let folder = private_folder();
    let script = "sh -c 'echo {} >> runs; printf %s {}; test {} -ne 3'";
    let map = |words: &[&str], list: &[u8]| {
        let words = [&["map", "--exec", script, "--joblog", "log", "--raw"], words].concat();
        run(command(&words).current_dir(folder.path()), list)
    };
    map(&[], b"1\n2\n3\n4\n5\n").code(1);
    let once: BTreeMap<u64, u64> = (1..=5).map(|number| (number, 1)).collect();
    assert_eq!(runs(&folder.path().join("runs")), once);

    let shifted = map(&["--retry-failed"], b"7\n1\n2\n3\n4\n5\n").ok();
    assert_eq!(runs(&folder.path().join("runs")), once, "nothing has run");
    assert_eq!(shifted.text(), "");
    assert!(shifted.stderr.contains("5 jobs have another input than the job log has"), "{}", shifted.stderr);
    assert!(shifted.stderr.contains("1 job is not in the job log and was left out"), "{}", shifted.stderr);

    let retried = map(&["--retry-failed"], b"1\n8\n3\n4\n5\n").code(1);
    assert_eq!(retried.text(), "145", "what is ok is printed from the log");
    assert_eq!(runs(&folder.path().join("runs"))[&3], 2);
    assert!(!runs(&folder.path().join("runs")).contains_key(&8));
}

/// A number that looks random, and is the same for the same seed.
fn next_number(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

const JOBS: u64 = 60;

/// Kills the map, its supervisor and its workers again and again, until a run gets to its end.
fn killed_until_done(form: &[&str], seed: u64) {
    let (folder, calm) = (private_folder(), private_folder());
    let script = "sh -c 'echo {} >> runs; seq {}; sleep 0.01'";
    let range = format!("1-{JOBS}");
    let words = [&["map", "--exec", script, "--range", &range, "--joblog", "log", "--resume"], form].concat();
    let undisturbed = run(command(&words).current_dir(calm.path()), b"").ok();
    let (log, written) = (folder.path().join("log"), folder.path().join("runs"));
    let (mut seed, mut kills) = (seed, 0);
    loop {
        let counted = log_lines(&log);
        let before = runs(&written);
        let mut map = command(&words);
        let output = std::fs::File::create(folder.path().join("output")).unwrap();
        map.current_dir(folder.path()).stdin(Stdio::null()).stdout(output).stderr(Stdio::null());
        let mut map = map.spawn().unwrap();
        let more = 1 + next_number(&mut seed) % 12;
        let all_before: u64 = before.values().sum();
        let status = until("some jobs to run, or all to be done", || {
            let status = map.try_wait().unwrap();
            let began = runs(&written).values().sum::<u64>() - all_before;
            (status.is_some() || began >= more).then_some(status)
        });
        if status.is_none() {
            kill_with_all_below(&mut map);
            kills += 1;
        }
        let after = runs(&written);
        for line in &counted {
            assert_eq!(line["outcome"], "ok");
            let number = line["index"].as_u64().unwrap() + 1;
            assert_eq!(after[&number], before[&number], "{number} counted, and ran again");
        }
        if let Some(status) = status {
            assert!(status.success(), "{status:?}");
            break;
        }
    }
    assert!(kills >= 4, "it was put to the test: {kills}");
    if form.contains(&"--raw") {
        assert!(read(folder.path().join("output")).unwrap() == undisturbed.stdout);
    } else {
        assert_eq!(files_in(&folder.path().join("out")), files_in(&calm.path().join("out")));
        assert_eq!(files_in(&folder.path().join("out")).len() as u64, JOBS);
    }
}

#[test]
fn a_map_that_is_killed_again_and_again_prints_in_the_end_what_an_undisturbed_one_prints() {
    killed_until_done(&["--raw", "--workers", "3"], 1);
}

#[test]
fn a_map_that_is_killed_again_and_again_has_in_the_end_the_files_of_an_undisturbed_one() {
    killed_until_done(&["--output-dir", "out", "--workers", "3"], 2);
}

#[test]
fn an_interrupted_map_goes_on_in_a_supervisor_where_it_was() {
    let daemon = Daemon::start(&["--workers", "2"]);
    let words = ["map", "sleep", "list", "--joblog", "log", "--resume"];
    std::fs::write(daemon.folder().join("list"), "1\n3600000\n2\n3\n").unwrap();
    let mut map = daemon.command(&words);
    map.current_dir(daemon.folder()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let map = map.spawn().unwrap();
    until("three lines to count", || (log_lines(&daemon.folder().join("log")).len() == 3).then_some(()));
    signal(map.id(), Signal::INT);
    let interrupted = map.wait_with_output().unwrap().stdout;
    assert_eq!(String::from_utf8(interrupted).unwrap().lines().count(), 4, "one of them is cancelled");
    assert_eq!(log_lines(&daemon.folder().join("log")).len(), 3, "a cancelled job has no line");
    std::fs::write(daemon.folder().join("list"), "1\n4\n2\n3\n").unwrap();
    let accepted = |status: Value| status["jobs"]["accepted"].as_u64().unwrap();
    let before = accepted(daemon.status());
    let resumed = run(daemon.command(&words).current_dir(daemon.folder()), b"").ok();
    assert_eq!(accepted(daemon.status()), before + 1, "only the input that is another one");
    assert!(resumed.json_lines().iter().all(|line| line["outcome"] == "ok"));
    assert!(resumed.json_lines().iter().enumerate().all(|(index, line)| line["index"] == index));
}

#[test]
fn results_behind_a_slow_job_are_kept_and_a_reader_that_leaves_costs_none() {
    let daemon = Daemon::start(&["--workers", "2"]);
    let words = ["map", "sleep", "list", "--joblog", "log"];
    std::fs::write(daemon.folder().join("list"), "3600000\n1\n2\n").unwrap();
    let mut map = daemon.command(&words);
    map.current_dir(daemon.folder()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut map = map.spawn().unwrap();
    until("two lines to count", || (log_lines(&daemon.folder().join("log")).len() == 2).then_some(()));
    leave(map.stdout.take().unwrap());
    let job = daemon.worker_running("sleep")["job"].as_str().unwrap().to_owned();
    daemon.run(&["cancel", &job]).ok();
    let ended = map.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(74), "{said}");
    assert!(said.contains("2 results that could not be written: the same with --resume prints"), "{said}");
}

#[test]
fn an_output_never_takes_the_place_of_its_own_input() {
    let folder = private_folder();
    for name in ["one", "two"] {
        std::fs::write(folder.path().join(name), name).unwrap();
    }
    let mut map = command(&["map", "sha256", "--files", "--output-dir", "."]);
    let ran = run(map.current_dir(folder.path()), b"one\ntwo\n").code(1);
    for line in ran.json_lines() {
        assert_eq!(line["outcome"], "bad_request", "{line}");
        assert!(line["error"]["message"].as_str().unwrap().contains("--output-dir"), "{line}");
    }
    assert_eq!(read(folder.path().join("one")).unwrap(), b"one");
    // Beside them is a place like any other.
    std::fs::create_dir(folder.path().join("out")).unwrap();
    let mut map = command(&["map", "sha256", "--files", "--output-dir", "out"]);
    run(map.current_dir(folder.path()), b"one\ntwo\n").ok();
}

/// With `{}` a program is given only the name, and reads the file by itself.
#[test]
fn an_output_takes_the_place_of_no_input_that_the_program_reads_itself() {
    let folder = private_folder();
    let inside = |name: &str| folder.path().join(name);
    let map = |words: &[&str], list: &[u8]| {
        let words = [&["map", "--exec", "wc -c {}", "--files", "--output-dir"], words].concat();
        run(command(&words).current_dir(folder.path()), list)
    };
    for name in ["pics/1.jpg", "pics/2.jpg", "v/a/x", "v/b/x"] {
        std::fs::create_dir_all(inside(name).parent().unwrap()).unwrap();
        std::fs::write(inside(name), name).unwrap();
    }
    for more in [&[][..], &["--joblog", "log"]] {
        let ran = map(&[&["pics"], more].concat(), b"pics/1.jpg\npics/2.jpg\n").code(1);
        for line in ran.json_lines() {
            assert_eq!(line["outcome"], "bad_request", "{line}");
            assert!(line["error"]["message"].as_str().unwrap().contains("the file itself"), "{line}");
        }
        assert_eq!(read(inside("pics/1.jpg")).unwrap(), b"pics/1.jpg");
        assert_eq!(read(inside("pics/2.jpg")).unwrap(), b"pics/2.jpg");
    }
    // The output of the second input would have the name of the first one, which is met before it.
    let ran = map(&["v/b", "--workers", "1"], b"v/b/x\nv/a/x\n").code(1);
    assert_eq!(ran.json_lines()[0]["outcome"], "bad_request");
    assert_eq!(read(inside("v/b/x")).unwrap(), b"v/b/x");
    // Here the first output may come before the second input is met. Then that input is refused, and not read as if it were it.
    let ran = map(&["v/b", "--workers", "1"], b"v/a/x\nv/b/x\n").code(1);
    let lines = ran.json_lines();
    let refused = lines.iter().filter(|line| line["outcome"] == "bad_request").count();
    assert!(refused >= 1, "{lines:?}");
    assert!(lines[1]["outcome"] == "bad_request" || read(inside("v/b/x")).unwrap() == b"v/b/x", "{lines:?}");
}

/// Where the names of the outputs are numbers, it is known before anything runs.
#[test]
fn an_output_that_is_called_by_its_index_replaces_no_file_of_its_own_command() {
    let list: String = (0..8).map(|number| format!("{number}\n")).collect();
    for (words, what) in [
        ("map echo ../list --output-dir . --joblog 3", "the job log"),
        ("map echo ../list --output-dir . --joblog ./log", "the results of the job log"),
        ("map echo 3 --output-dir .", "the list"),
        ("map echo --output-dir . < 3", "the list"),
        ("map echo ../list --output-dir . > 3", "standard output"),
        ("map echo ../list --output-dir . 2> 3", "standard error"),
        ("map echo ../list --output-dir . --config 3", "the configuration file"),
        ("map echo --range 1-4 --output-dir . --joblog 3", "the job log"),
    ] {
        let folder = private_folder();
        let out = folder.path().join("out");
        std::fs::create_dir(&out).unwrap();
        std::fs::write(folder.path().join("list"), &list).unwrap();
        if what == "the list" {
            std::fs::write(out.join("3"), &list).unwrap();
        }
        if what == "the configuration file" {
            std::fs::write(out.join("3"), "").unwrap();
        }
        if what == "the results of the job log" {
            std::fs::write(out.join("log.results"), "").unwrap();
            std::fs::hard_link(out.join("log.results"), out.join("3")).unwrap();
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("\"$0\" {words}")]).arg(tests::harness::offload()).current_dir(&out);
        let ran = run(&mut shell, b"").code(2);
        let said = ran.stderr + &String::from_utf8(read(out.join("3")).unwrap()).unwrap();
        assert!(said.contains(&format!("3 is {what} of this command")), "{words}: {said}");
        assert!(!out.join("0").exists(), "{words}: nothing has run");
        if what == "the list" {
            assert_eq!(read(out.join("3")).unwrap(), list.as_bytes(), "{words}");
        }
    }
    // A number that is no index of this list is a name like any other.
    let folder = private_folder();
    let mut map = command(&["map", "echo", "--range", "1-3", "--output-dir", ".", "--joblog", "3"]);
    run(map.current_dir(folder.path()), b"").ok();
    assert_eq!(log_lines(&folder.path().join("3")).len(), 3);
}

#[test]
fn an_output_that_is_called_like_its_input_replaces_no_file_of_its_own_command() {
    let folder = private_folder();
    let inside = |name: &str| folder.path().join(name);
    std::fs::create_dir(inside("in")).unwrap();
    for name in ["in/log", "in/log.results", "in/list", "in/printed", "in/fine"] {
        std::fs::write(inside(name), name).unwrap();
    }
    let list = "in/log\nin/log.results\nin/list\nin/printed\nin/fine\n";
    std::fs::write(inside("list"), list).unwrap();
    let script = "\"$0\" map sha256 list --files --output-dir . --joblog log > printed";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(tests::harness::offload()).current_dir(folder.path());
    run(&mut shell, b"").code(1);
    let printed = std::fs::read_to_string(inside("printed")).unwrap();
    let lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let taken = ["the job log", "the results of the job log", "the list", "standard output"];
    for (line, what) in lines.iter().zip(taken) {
        assert_eq!(line["outcome"], "bad_request", "{line}");
        let message = line["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("take the place of {what}: name another --output-dir")), "{line}");
    }
    assert_eq!(lines[4]["output_file"], "./fine");
    assert_eq!(log_lines(&inside("log")).len(), 5);
    assert_eq!(std::fs::read_to_string(inside("list")).unwrap(), list);
}

#[test]
fn an_output_never_takes_the_place_of_another_input() {
    let folder = private_folder();
    std::fs::create_dir(folder.path().join("in")).unwrap();
    std::fs::write(folder.path().join("in/x"), "first").unwrap();
    std::fs::write(folder.path().join("x"), "second").unwrap();
    let mut map = command(&["map", "echo", "--files", "--output-dir", "."]);
    let ran = run(map.current_dir(folder.path()), b"x\nin/x\n").code(1);
    let lines = ran.json_lines();
    assert!(lines[0]["error"]["message"].as_str().unwrap().contains("the file itself"), "{}", lines[0]);
    assert_eq!(lines[1]["output_file"], "./1-x", "{}", lines[1]);
    // By a link the name of an output can be that of an earlier input.
    std::fs::write(folder.path().join("y"), "third").unwrap();
    std::os::unix::fs::symlink("../y", folder.path().join("in/link")).unwrap();
    std::fs::write(folder.path().join("in/y"), "fourth").unwrap();
    let mut map = command(&["map", "echo", "--files", "--output-dir", ".", "--workers", "1"]);
    let ran = run(map.current_dir(folder.path()), b"in/link\nin/y\n").code(1);
    let line = &ran.json_lines()[1];
    assert!(line["error"]["message"].as_str().unwrap().contains("the place of an input"), "{line}");
    assert_eq!(read(folder.path().join("y")).unwrap(), b"third");
}

#[test]
fn a_log_of_another_command_is_not_gone_on_with() {
    let folder = private_folder();
    let map = |words: &str| {
        let mut map =
            command(&["map", "--exec", words, "--range", "1-2", "--raw", "--joblog", "log", "--resume"]);
        run(map.current_dir(folder.path()), b"")
    };
    assert_eq!(map("echo {}").ok().text(), "1\n2\n");
    let refused = map("echo changed {}").code(2);
    assert!(refused.stderr.contains("another command"), "{}", refused.stderr);
    assert_eq!(map("echo {}").ok().text(), "1\n2\n");
}
