//! Programs behind adapters (`--worker-jsonl`, `--worker-http`) are workers like any other: whoever is blamed ran, what stands still is
//! noticed, what uses memory is seen, and nothing is left behind.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tests::harness::{Daemon, command, private_folder, processes_with, run_offload, signal, until};

/// A file with a program in Python.
struct Script {
    folder: TempDir,
}

impl Script {
    /// A JSON Lines program: `task` is what it does with `job`, and `before` what it does first.
    fn jsonl(before: &str, task: &str) -> Script {
        Script::of(&format!(
            "import json, os, signal, subprocess, sys, threading, time\n\
             jobs = open(3)\n\
             def raw(text): os.write(4, text.encode())\n\
             def line(value): return json.dumps(value) + '\\n'\n\
             {before}\n\
             raw(line({{'hello': {{'tasks': [{{'name': 't'}}, {{'name': 'again', 'idempotent': True}}]}}}}))\n\
             for text in jobs:\n    job = json.loads(text); number, x = job['job'], job['input']\n    {}\n",
            task.replace('\n', "\n    ")
        ))
    }

    /// An HTTP application on a Unix socket: `task` is what it does with a `connection` on which it has read a request.
    fn http(task: &str) -> Script {
        Script::of(&format!(
            "import os, signal, socket, sys, time\n\
             listener = socket.socket(socket.AF_UNIX)\n\
             listener.bind(sys.argv[1]); listener.listen(100)\n\
             def answer(body, status='200 OK'):\n    connection.sendall(f'HTTP/1.1 {{status}}\\r\\nContent-Length: {{len(body)}}\\r\\n\\r\\n{{body}}'.encode())\n\
             while True:\n    connection, _ = listener.accept()\n    received = b''\n    while b'\\r\\n\\r\\n' not in received: received += connection.recv(65536)\n    if received.startswith(b'OPTIONS'): answer(''); connection.close(); continue\n    {}\n    connection.close()\n",
            task.replace('\n', "\n    ")
        ))
    }

    fn of(text: &str) -> Script {
        let folder = private_folder();
        std::fs::write(folder.path().join("program.py"), text).expect("a file");
        Script { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("program.py")
    }

    fn word(&self) -> String {
        self.path().display().to_string()
    }

    fn place(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn serve(&self, kind: Kind, words: &[&str]) -> Daemon {
        let flags = self.flags(kind);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Daemon::start(&[&["--workers", "1", "--spares", "0"], &flags[..], words].concat())
    }

    fn flags(&self, kind: Kind) -> Vec<String> {
        let flags: &[&str] = match kind {
            Kind::Jsonl => &["--worker-jsonl", &format!("python3 {}", self.word())],
            Kind::Http => &[
                "--tasks",
                "t,again:idempotent",
                "--worker-http",
                &format!("python3 {} {{socket}}", self.word()),
            ],
        };
        flags.iter().map(|flag| (*flag).to_owned()).collect()
    }

    /// Its processes, without those of offload that name it.
    fn processes(&self) -> Vec<u32> {
        processes_with(&self.word()).into_iter().filter(|pid| !is_offload(*pid)).collect()
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Jsonl,
    Http,
}

fn is_offload(pid: u32) -> bool {
    let file = std::fs::read_link(Path::new("/proc").join(pid.to_string()).join("exe")).unwrap_or_default();
    file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("offload"))
}

fn message(job: &Value) -> String {
    job["error"]["message"].as_str().unwrap_or_default().to_owned()
}

/// A program that answers twice, and only in its first life.
fn answers_twice(how: &str) -> Script {
    Script::jsonl(
        "mark = sys.argv[0] + '.was-evil'",
        &format!(
            "one = line({{'job': number, 'output': x}})\n\
             if x == 'evil' and not os.path.exists(mark): open(mark, 'w').close(); {how}\n\
             else: raw(one)"
        ),
    )
}

#[test]
fn a_program_that_answers_twice_costs_no_other_job() {
    for how in ["raw(one + one)", "raw(one + one[:20]); time.sleep(0.2); raw(one[20:])", "raw(one); raw(one)"]
    {
        let script = answers_twice(how);
        let daemon = script.serve(Kind::Jsonl, &[]);
        assert_eq!(daemon.submit(&["t", "\"evil\""])["outcome"], "ok", "{how}");
        // It may have begun when the second answer came: then nobody knows, and nobody is blamed.
        let innocent = daemon.submit(&["t", "--client", "alice", "\"fine\""]);
        let is_fine = innocent["outcome"] == "ok" && innocent["attempts"] == 1;
        assert!(is_fine || innocent["outcome"] == "indeterminate", "{how}: {innocent}");
        let again = daemon.submit(&["again", "--client", "alice", "\"fine\""]);
        assert_eq!(again["outcome"], "ok", "{how}: {again}");
    }
}

#[test]
fn what_came_before_a_job_was_passed_on_costs_it_nothing() {
    let script = answers_twice("raw(one + one)");
    let daemon = script.serve(Kind::Jsonl, &[]);
    assert_eq!(daemon.submit(&["t", "\"evil\""])["outcome"], "ok");
    let innocent = daemon.submit(&["t", "--client", "alice", "\"fine\""]);
    assert_eq!((&innocent["outcome"], &innocent["attempts"]), (&json!("ok"), &json!(1)), "{innocent}");
}

/// Its second life is well, and it never reads the job of its first one.
#[test]
fn a_job_of_which_the_program_has_taken_nothing_is_given_back_without_an_attempt() {
    for (what, then) in [
        ("it answers", "raw(line({'job': '1', 'output': 1})); time.sleep(600)"),
        ("it crashes", "os.abort()"),
        ("it closes descriptor 4", "os.close(4); time.sleep(600)"),
    ] {
        let folder = private_folder();
        let place = |name: &str| folder.path().join(name).display().to_string();
        let (mark, gate) = (place("mark"), place("gate"));
        let script = Script::jsonl(
            &format!(
                "def bad():\n    while not os.path.exists('{gate}'): time.sleep(0.005)\n    {then}\n\
                 first = not os.path.exists('{mark}'); open('{mark}', 'w').close()"
            ),
            "raw(line({'job': number, 'output': x}))",
        );
        let text = std::fs::read_to_string(script.path()).unwrap();
        std::fs::write(script.path(), text.replace("for text in jobs", "if first: bad()\nfor text in jobs"))
            .unwrap();
        let daemon = script.serve(Kind::Jsonl, &[]);
        let job = daemon.run(&["submit", "--detach", "t", "5"]).ok().text();
        until("the job was passed on", || (daemon.worker_running("t")["pid"].is_u64()).then_some(()));
        std::fs::write(&gate, "").unwrap();
        let ended = daemon.run(&["wait", "--json", job.trim()]).ok().json();
        assert_eq!((&ended["outcome"], &ended["attempts"]), (&json!("ok"), &json!(1)), "{what}: {ended}");
    }
}

#[test]
fn a_job_whose_connection_is_refused_is_given_back_without_an_attempt() {
    let script = Script::http("answer('1')\nlistener.close(); connection.close(); time.sleep(600)");
    let daemon = script.serve(Kind::Http, &[]);
    for _ in 0..3 {
        let job = daemon.submit(&["t", "1"]);
        assert_eq!((&job["outcome"], &job["attempts"]), (&json!("ok"), &json!(1)), "{job}");
    }
}

#[test]
fn who_breaks_the_rules_while_a_job_runs_is_told_to_its_client() {
    let jsonl = Script::jsonl("", "raw('what is this?\\n'); time.sleep(600)");
    let http = Script::http("connection.close(); time.sleep(600)");
    for (script, kind, outcome, why) in [
        (jsonl, Kind::Jsonl, "worker_protocol", "what is this?"),
        (http, Kind::Http, "worker_crashed", "exit code 76"),
    ] {
        let daemon = script.serve(kind, &[]);
        let job = daemon.submit(&["t", "1"]);
        assert_eq!(job["outcome"], outcome, "{job}");
        assert!(message(&job).contains(why) && message(&job).contains("in attempt 1 of 1"), "{job}");
        let again = daemon.submit(&["again", "1"]);
        assert_eq!((&again["outcome"], &again["attempts"]), (&json!("poison"), &json!(3)), "{again}");
        assert!(message(&again).contains(why), "{again}");
    }
}

#[test]
fn a_program_that_is_stopped_is_killed_and_one_that_goes_on_is_not() {
    let jsonl = Script::jsonl(
        "",
        "if x: open(x, 'w').close(); os.kill(os.getpid(), signal.SIGSTOP)\nraw(line({'job': number, 'output': 'fine'}))",
    );
    let http = Script::http(
        "x = received.split(b'\\r\\n\\r\\n')[1]\n\
         if x != b'null': open(eval(x), 'w').close(); os.kill(os.getpid(), signal.SIGSTOP)\nanswer('\"fine\"')",
    );
    for (script, kind) in [(jsonl, Kind::Jsonl), (http, Kind::Http)] {
        let daemon = script.serve(kind, &["--hang-timeout", "300ms"]);
        let job = daemon.submit(&["t", &json!(script.place("begun")).to_string()]);
        assert_eq!(job["outcome"], "timeout", "{kind:?}: {job}");
        assert!(message(&job).contains("was stopped"), "{kind:?}: {job}");
        assert_eq!(daemon.submit(&["t", "null"])["outcome"], "ok", "{kind:?}");

        let patient = script.serve(kind, &["--hang-timeout", "10m"]);
        let begun = script.place("begun again");
        let job = patient.run(&["submit", "--detach", "t", &json!(begun).to_string()]).ok().text();
        let stopped = until("it is stopped", || {
            let all = script.processes();
            all.into_iter().find(|pid| Path::new(&begun).exists() && is_stopped(*pid))
        });
        signal(stopped, rustix::process::Signal::CONT);
        let job = patient.run(&["wait", "--json", job.trim()]).ok().json();
        assert_eq!(job["outcome"], "ok", "{kind:?}: {job}");
        assert_eq!(patient.submit(&["t", "null"])["outcome"], "ok", "a worker that goes on is given jobs");
    }
}

fn is_stopped(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.contains("\nState:\tT")
}

#[test]
fn an_idle_program_that_is_stopped_is_replaced() {
    let script = Script::jsonl("", "raw(line({'job': number, 'output': os.getpid()}))");
    let daemon = script.serve(Kind::Jsonl, &["--hang-timeout", "300ms"]);
    let pid = daemon.submit(&["t", "0"])["output"].as_u64().expect("a process");
    signal(pid as u32, rustix::process::Signal::STOP);
    until("it is gone", || (!script.processes().contains(&(pid as u32))).then_some(()));
    let job = daemon.submit(&["t", "0"]);
    assert!(job["outcome"] == "ok" && job["output"] != pid && job["attempts"] == 1, "{job}");
}

#[test]
fn a_program_that_closes_its_output_is_ended_at_once() {
    let script =
        Script::jsonl("", "if x: os.close(4); time.sleep(600)\nraw(line({'job': number, 'output': x}))");
    let daemon = script.serve(Kind::Jsonl, &[]);
    let job = daemon.submit(&["t", "1"]);
    assert_eq!(job["outcome"], "worker_protocol", "{job}");
    assert!(message(&job).contains("closed descriptor 4"), "{job}");
}

#[test]
fn the_memory_of_the_program_is_that_of_its_worker() {
    let script = Script::jsonl(
        "kept = []",
        "kept.append(b'x' * (x << 20))\nraw(line({'job': number, 'output': os.getpid()}))",
    );
    let daemon = script.serve(Kind::Jsonl, &["--max-rss", "200MiB"]);
    let first = daemon.submit(&["t", "100"])["output"].clone();
    until("its memory is shown", || {
        let bytes = daemon.workers()[0]["rss_bytes"].as_u64().unwrap_or(0);
        (bytes > 100 << 20).then_some(())
    });
    assert_eq!(daemon.submit(&["t", "150"])["output"], first);
    until("it is replaced", || (!script.processes().contains(&(first.as_u64()? as u32))).then_some(()));
    assert_ne!(daemon.submit(&["t", "1"])["output"], first);
}

#[test]
fn nothing_is_left_when_the_supervisor_is_killed() {
    let starts = "for new in (False, True): subprocess.Popen(['sleep', '581'], start_new_session=new, \
                  env={**os.environ, 'LEFT_BY': sys.argv[0]})\n";
    let jsonl = Script::jsonl("", &format!("{starts}open(x, 'w').close(); time.sleep(600)"));
    let http = Script::http(&format!(
        "import subprocess\n{starts}open(eval(received.split(b'\\r\\n\\r\\n')[1]), 'w').close(); time.sleep(600)"
    ));
    for (script, kind) in [(jsonl, Kind::Jsonl), (http, Kind::Http)] {
        let begun = script.place("begun");
        let flags = script.flags(kind);
        let mut run = command(&["run", "--workers", "1"]);
        let mut child = run.args(flags).args(["t", &json!(begun).to_string()]).spawn().expect("a process");
        until("it runs", || Path::new(&begun).exists().then_some(()));
        // An environment is empty for a moment when `exec` has already been reported to who started the process.
        until("its two children are seen", || (left_by(&script).len() == 2).then_some(()));
        child.kill().unwrap();
        child.wait().unwrap();
        until("nothing is left", || {
            (script.processes().is_empty() && left_by(&script).is_empty()).then_some(())
        });
    }
}

/// The processes whose environment names this program as the one that has started them.
fn left_by(script: &Script) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mark = format!("LEFT_BY={}", script.word());
    let is_marked = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|pair| pair == mark.as_bytes())
    };
    pids.filter(is_marked).collect()
}

#[test]
fn a_program_that_is_no_such_worker_is_told_what_one_does() {
    for (flag, program, expected) in [
        ("--worker-jsonl", "echo hi", "descriptor 4 first"),
        ("--worker-jsonl", "sh -c 'echo no >&4'", "descriptor 4 first"),
        ("--worker-http", "false {socket}", "listens at the {socket}"),
    ] {
        let tasks: &[&str] = if flag == "--worker-http" { &["--tasks", "t"] } else { &[] };
        let ran = run_offload(&[&["run", "--json", flag, program], tasks, &["t", "1"]].concat());
        let said = format!("{}{}", ran.text(), ran.stderr);
        assert!(ran.code != 0 && !said.contains("takes a program that speaks the protocol"), "{said}");
        assert!(said.contains(expected), "{program}: {said}");
    }
}

/// Whatever the program does after its answer, the next job, of which it reads nothing, has no part in it. If it is stopped before the next job
/// comes, it is ended because it is stopped.
#[test]
fn a_job_that_the_program_never_reads_is_given_back_whatever_its_time_limit() {
    std::thread::scope(|scope| {
        let (closed, unread) = ("it closed descriptor 3 and goes on", "it does not read its next job");
        for (limit, task, why) in [
            ("5s", "if x == 0: jobs.close(); time.sleep(0.1)\nraw(one)\nif x == 0: time.sleep(600)", closed),
            ("4s", "raw(one)\nif x == 0: jobs.close(); time.sleep(600)", closed),
            ("4s", "raw(one)\nif x == 0: os.close(4); time.sleep(600)", "it closed descriptor 4 and goes on"),
            ("4s", "raw(one)\nif x == 0: time.sleep(600)", unread),
            ("5m", "raw(one)\nif x == 0: time.sleep(600)", unread),
            ("4s", "raw(one)\nif x == 0: os.kill(os.getpid(), signal.SIGSTOP)", ""),
        ] {
            scope.spawn(move || {
                let script =
                    Script::jsonl("", &format!("one = line({{'job': number, 'output': x}})\n{task}"));
                let flags = script.flags(Kind::Jsonl);
                let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
                let words = ["run", "--json", "--workers", "1", "--timeout", limit];
                let ran = run_offload(&[&words, &flags[..], &["t", "0", "1"]].concat());
                for (number, job) in ran.json_lines().iter().enumerate() {
                    let its = (&job["output"], &job["attempts"]);
                    assert_eq!(its, (&json!(number), &json!(1)), "{limit}, {task}: {job}\n{}", ran.stderr);
                }
                assert!(ran.code == 0 && ran.stderr.contains(why), "{limit}, {task}: {ran:?}");
            });
        }
    });
}

/// It reads the job as a whole, closes descriptor 3, and answers: that is no reason to end it.
#[test]
fn a_program_that_has_read_its_last_job_may_close_descriptor_3() {
    let script = Script::jsonl(
        "",
        "jobs.close(); time.sleep(0.2); raw(line({'job': number, 'output': x})); sys.exit(0)",
    );
    let daemon = script.serve(Kind::Jsonl, &[]);
    for number in 0..2 {
        let job = daemon.submit(&["t", &number.to_string()]);
        assert_eq!((&job["output"], &job["attempts"]), (&json!(number), &json!(1)), "{job}");
    }
}
