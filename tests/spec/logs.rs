//! What workers printed: kept for a while, shown by job and by slot, and followed.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use tests::harness::{Daemon, Lines, PATIENCE, private_folder, program, until};

/// A task that prints its input to standard error.
const TELL: &str = "tell -- sh -c 'cat >&2'";

/// A program whose task `act` prints a line when it is told `print`.
fn faulty() -> String {
    format!("{} boot:nothing", program("faultworker").display())
}

fn detach(daemon: &Daemon, arguments: &[&str]) -> String {
    daemon.run(&[&["submit", "--detach"], arguments].concat()).ok().text().trim().to_owned()
}

/// The lines of a job, once there are so many.
fn lines_of(daemon: &Daemon, job: &str, count: usize) -> Vec<String> {
    until("the lines of the job", || {
        let lines: Vec<String> = daemon.run(&["logs", job]).ok().text().lines().map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    })
}

/// Starts a verb that goes on; its output and its messages are piped.
fn begin(daemon: &Daemon, arguments: &[&str]) -> Child {
    let mut command = daemon.command(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// How many lines are said to be missing, all in all.
fn said_to_be_lost(messages: &str) -> u64 {
    let count =
        |line: &str| line.strip_prefix("offload: not kept here: ")?.split(' ').next()?.parse::<u64>().ok();
    messages.lines().filter_map(count).sum()
}

fn numbers(lines: &[Value]) -> Vec<u64> {
    lines.iter().map(|line| line["number"].as_u64().unwrap()).collect()
}

/// Programs of three kinds print at the same time: each line is that of its job, and what a worker prints without a job is nobody's.
#[test]
fn each_job_has_the_lines_that_it_printed_whatever_its_worker_is() {
    let folder = private_folder();
    let lines_worker = folder.path().join("lines.py");
    std::fs::write(
        &lines_worker,
        "import json, sys\njobs, answers = open(3), open(4, 'w', buffering=1)\n\
         print('no job yet', file=sys.stderr, flush=True)\n\
         answers.write(json.dumps({'hello': {'tasks': [{'name': 'twice'}]}}) + '\\n')\n\
         for line in jobs:\n    job = json.loads(line)\n    print(job['input'], flush=True)\n    \
         print(job['input'], file=sys.stderr, flush=True)\n    \
         answers.write(json.dumps({'job': job['job'], 'output': 'x'}) + '\\n')\n",
    )
    .unwrap();
    let python = format!("python3 {}", lines_worker.display());
    let daemon = Daemon::start(&[
        "--workers",
        "4",
        "--exec-task",
        TELL,
        "--worker",
        &faulty(),
        "--worker-jsonl",
        &python,
    ]);
    let told: Vec<_> = (0..5).map(|n| detach(&daemon, &["tell", &format!("told {n}\nand {n}\n")])).collect();
    let twice: Vec<_> = (0..5).map(|n| detach(&daemon, &["twice", &format!("\"line {n}\"")])).collect();
    let acted: Vec<_> = (0..5).map(|_| detach(&daemon, &["act", "print"])).collect();
    for n in 0..5 {
        assert_eq!(lines_of(&daemon, &told[n], 2), [format!("told {n}"), format!("and {n}")]);
        // By the end of its id. Lines of a job may be said to be the next job's too, as the next one's may be said to be its.
        until("both lines of the job", || {
            let lines = lines_of(&daemon, &twice[n][20..], 2);
            (lines.iter().filter(|line| **line == format!("line {n}")).count() == 2).then_some(())
        });
        assert!(!lines_of(&daemon, &acted[n], 1).is_empty());
    }
    let is_acted = |line: &&Value| {
        let jobs = line["jobs"].as_array().unwrap();
        acted.iter().any(|job| jobs.contains(&job.as_str().into()))
    };
    let all = until("one line of each job, whosever it may be", || {
        let all = daemon.run(&["logs", "--json"]).ok().json_lines();
        (all.iter().filter(is_acted).count() == acted.len()).then_some(all)
    });
    let streams = |job: &str, text: &str| {
        let mut its: Vec<&str> = all
            .iter()
            .filter(|line| line["jobs"].as_array().unwrap().contains(&job.into()) && line["text"] == text)
            .map(|line| line["stream"].as_str().unwrap())
            .collect();
        its.sort_unstable();
        its
    };
    assert_eq!(streams(&twice[0], "line 0"), ["stderr", "stdout"]);
    assert_eq!(streams(&told[0], "told 0"), ["stderr"]);
    for (n, job) in twice.iter().enumerate() {
        let its = all.iter().filter(|line| line["jobs"] == serde_json::json!([job]));
        let its: Vec<&Value> = its.map(|line| &line["text"]).collect();
        assert!(its.iter().all(|text| **text == format!("line {n}")), "what is one job's alone: {its:?}");
    }
    let without_job: Vec<_> = all.iter().filter(|line| line["jobs"] == serde_json::json!([])).collect();
    assert!(without_job.iter().any(|line| line["text"] == "no job yet"), "{without_job:?}");
    assert!(all.iter().filter(|line| line["text"] == "no job yet").all(|line| without_job.contains(&line)));
}

#[test]
fn a_slot_has_its_own_lines_and_one_that_does_not_exist_is_told() {
    let daemon = Daemon::start(&["--workers", "2", "--exec-task", TELL]);
    let job = detach(&daemon, &["tell", "here\n"]);
    lines_of(&daemon, &job, 1);
    let line = &daemon.run(&["logs", "--json", &job]).ok().json_lines()[0];
    let slot = line["slot"].as_u64().unwrap();
    let (its, other) = (slot.to_string(), (1 - slot).to_string());
    let shown = daemon.run(&["logs", "--slot", &its]).ok().text();
    assert_eq!(shown, format!("[slot {slot} pid {} job {job}] here\n", line["worker_pid"]));
    assert_eq!(daemon.run(&["logs", "--slot", &other]).ok().text(), "");
    assert!(daemon.run(&["logs", "-f", "--slot", "77"]).code(4).stderr.contains("there is no slot 77"));
    daemon.run(&["logs", "nothing"]).code(5);
}

#[test]
fn control_characters_reach_no_terminal() {
    let daemon = Daemon::start(&["--workers", "2", "--exec-task", TELL, "--worker", &faulty()]);
    let ways = [
        "\u{1b}]0;title\u{7}",
        "\u{9b}31mred",
        "a\rb",
        "\u{202e}txt.exe",
        "\u{2028}2026 warn x",
        "\u{8}\u{7f}",
    ];
    let jobs: Vec<_> = ways.iter().map(|text| detach(&daemon, &["tell", text])).collect();
    jobs.iter().for_each(|job| drop(lines_of(&daemon, job, 1)));
    lines_of(&daemon, &detach(&daemon, &["act", "ansi"]), 1);
    for words in [&["logs"][..], &["logs", "--json"], &["logs", &jobs[0]], &["logs", "-f", &jobs[1]]] {
        let shown = daemon.run(words).ok().text();
        let is_obeyed =
            |letter: char| letter != '\n' && (letter.is_control() || "\u{2028}\u{202e}".contains(letter));
        assert!(!shown.is_empty() && !shown.contains(is_obeyed), "{words:?}: {shown:?}");
    }
}

/// It prints faster than lines are kept, and is killed: its last lines are there nevertheless, and innocent neighbours have theirs.
#[test]
fn the_last_lines_of_a_worker_that_was_killed_are_there() {
    let folder = private_folder();
    let script = folder.path().join("dies.py");
    std::fs::write(
        &script,
        "import json, os, signal, sys\njobs, answers = open(3), open(4, 'w', buffering=1)\n\
         answers.write(json.dumps({'hello': {'tasks': [{'name': 'dies'}]}}) + '\\n')\n\
         for line in jobs:\n    for n in range(1000): print('line', n)\n    \
         print('last words', flush=True)\n    os.kill(os.getpid(), signal.SIGKILL)\n",
    )
    .unwrap();
    let python = format!("python3 {}", script.display());
    let daemon = Daemon::start(&["--workers", "3", "--exec-task", TELL, "--worker-jsonl", &python]);
    let guilty = detach(&daemon, &["dies", "1"]);
    let innocent: Vec<_> = (0..5).map(|n| detach(&daemon, &["tell", &format!("neighbour {n}")])).collect();
    daemon.run(&["wait", &guilty]).code(125);
    let shown = daemon.run(&["logs", &guilty]).ok();
    let lines: Vec<&str> = std::str::from_utf8(&shown.stdout).unwrap().lines().collect();
    assert_eq!((lines.first(), lines.last()), (Some(&"line 0"), Some(&"last words")), "{lines:?}");
    assert!(
        lines.len() < 1000 && said_to_be_lost(&shown.stderr) == 1001 - lines.len() as u64,
        "{}",
        shown.stderr
    );
    for (n, job) in innocent.iter().enumerate() {
        let lines = until("the line of the job", || {
            Some(lines_of(&daemon, job, 1)).filter(|lines| lines.contains(&format!("neighbour {n}")))
        });
        // A line that two jobs of one worker may have printed, one right after the other, is of both.
        assert!(
            lines.iter().all(|line| line.starts_with("neighbour")),
            "nothing of the guilty one: {lines:?}"
        );
    }
}

#[test]
fn a_job_is_followed_to_its_end_by_many_while_another_one_prints() {
    let script = "for n in 1 2 3; do echo line $n >&2; read go < FIFO; done";
    let folder = private_folder();
    let gate = folder.path().join("gate");
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let script = script.replace("FIFO", gate.to_str().unwrap());
    let daemon = Daemon::start(&[
        "--workers",
        "2",
        "--exec-task",
        &format!("steps -- sh -c '{script}'"),
        "--worker",
        &faulty(),
    ]);
    let job = detach(&daemon, &["steps"]);
    let followers: Vec<_> = (0..8)
        .map(|_| {
            let mut child = begin(&daemon, &["logs", "-f", &job]);
            let lines = Lines::collect(child.stdout.take().unwrap());
            (child, lines)
        })
        .collect();
    for step in 1..=3 {
        let expected = format!("line {step}");
        for (_, lines) in &followers {
            assert!(lines.find(|line| line == expected, PATIENCE).is_some(), "{expected}: {:?}", lines.all());
        }
        daemon.run(&["submit", "act", "print"]).ok();
        std::fs::write(&gate, "go\n").unwrap();
    }
    for (mut child, lines) in followers {
        assert!(child.wait().unwrap().success());
        assert_eq!(lines.all(), ["line 1", "line 2", "line 3"]);
    }
    // Whoever comes later sees the same, and a job that has ended is followed no longer.
    assert_eq!(daemon.run(&["logs", "-f", &job]).ok().text(), "line 1\nline 2\nline 3\n");
}

/// A worker that floods, a follower that does not read, and clients who want their jobs done: the flood takes its part of the memory
/// and no more, and the follower is told exactly how many lines it has missed.
#[test]
fn a_follower_that_reads_late_learns_how_many_lines_are_gone_and_has_held_nobody_up() {
    let flood = "flood -- sh -c 'seq -f %01000.0f 1 100000 >&2'";
    let daemon = Daemon::start(&[
        "--workers",
        "3",
        "--worker",
        "builtin",
        "--worker",
        &faulty(),
        "--exec-task",
        flood,
    ]);
    let mut late = begin(&daemon, &["logs", "-f", "--json"]);
    let first = detach(&daemon, &["act", "print"]);
    let line = lines_of(&daemon, &first, 1);
    detach(&daemon, &["flood"]);
    // More has been kept and dropped than its slot may have.
    let last = until("the flood has filled its part", || {
        daemon.run(&["submit", "sha256", "x"]).ok();
        let seen = numbers(&daemon.run(&["logs", "--json"]).ok().json_lines());
        (*seen.last()? > 600 && seen.len() > 100).then_some(*seen.last()?)
    });
    // The flood goes on while the pages of this list are read. Only what had come before was kept at one time.
    let kept = numbers(&daemon.run(&["logs", "--json"]).ok().json_lines());
    let lines = kept.iter().filter(|number| **number <= last).count();
    assert!(lines * 1000 <= 256 << 10, "{lines} lines of the flood, of 1,000 bytes");
    assert_eq!(lines_of(&daemon, &first, 1), line, "another slot's flood does not push it out");

    let mut seen = Vec::new();
    for line in BufReader::new(late.stdout.take().unwrap()).lines() {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        seen.push(line);
        if *numbers(&seen).last().unwrap() > last {
            break;
        }
    }
    late.kill().unwrap();
    late.wait().unwrap();
    let mut messages = String::new();
    late.stderr.take().unwrap().read_to_string(&mut messages).unwrap();
    let seen = numbers(&seen);
    assert!(seen.is_sorted_by(|one, next| one < next), "{seen:?}");
    let missed = seen.last().unwrap() - seen.len() as u64;
    assert!(missed > 0 && said_to_be_lost(&messages) >= missed, "{missed} missed: {messages}");
}
