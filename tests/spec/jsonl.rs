//! Programs that read and write JSON Lines (`--worker-jsonl`): they need no code of the protocol, and whatever they do, the report says
//! it of the program and not of what stands between.

use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;
use tests::harness::{
    Daemon, Ran, check_worker, children_of, command, private_folder, processes_with, run, run_offload,
    signal, until, workspace,
};

const EXAMPLES: [&str; 4] = ["python3 {}.py", "node {}.js", "perl {}.pl", "bash {}.sh"];

fn examples() -> impl Iterator<Item = String> {
    let stem = workspace().join("examples/jsonl/worker").display().to_string();
    EXAMPLES.iter().map(move |command| command.replace("{}", &stem))
}

/// A program in Python, one file: `task` is what it does with `job`, an answer without its number.
struct Program {
    folder: TempDir,
}

impl Program {
    fn new(task: &str) -> Program {
        Program::with_offer(
            r#"[{"name": "t"}, {"name": "again", "idempotent": True}, {"name": "any", "accepts": ["*/*"]}]"#,
            task,
        )
    }

    fn with_offer(offer: &str, task: &str) -> Program {
        let text = format!(
            "import json, os, signal, sys, time, subprocess\n\
             jobs, answers = open(3), open(4, 'w', buffering=1)\n\
             def send(line): answers.write(json.dumps(line) + '\\n')\n\
             send({{'hello': {{'tasks': {offer}}}}})\n\
             for line in jobs:\n    job = json.loads(line); number, x = job['job'], job.get('input')\n    {}\n",
            task.replace('\n', "\n    ")
        );
        Program::of(&text)
    }

    fn of(text: &str) -> Program {
        let folder = private_folder();
        std::fs::write(folder.path().join("program.py"), text).expect("a file");
        Program { folder }
    }

    fn command(&self) -> String {
        format!("python3 {}", self.path().display())
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("program.py")
    }

    fn run(&self, words: &[&str]) -> Ran {
        run_offload(
            &[&["run", "--json", "--workers", "1", "--worker-jsonl", &self.command()], words].concat(),
        )
    }
}

/// What one parser reads another one refuses: two thousand brackets were three dead processes, and a dead letter.
#[test]
fn json_that_many_parsers_refuse_does_not_reach_the_program() {
    let program = Program::new("send({'job': number, 'output': x})");
    let deep = ["[".repeat(1100), "]".repeat(1100)].concat();
    let long = "7".repeat(5000);
    for (input, why) in [(&deep, "is nested deeper than 126"), (&long, "more than 4300 digits")] {
        let ran = program.run(&["t", input, "--content-type", "application/json"]).code(1);
        let job = ran.json();
        assert_eq!((&job["outcome"], &job["attempts"]), (&json!("app_error"), &json!(1)), "{job}");
        assert!(job["error"]["message"].to_string().contains(why), "{job}");
    }
    for (output, why) in [
        ("'[' * 999 + ']' * 999", "its output is nested deeper than 126"),
        ("json.dumps(chr(0xd800))", "its output has half of a surrogate pair"),
    ] {
        let task = format!("answers.write('{{\"job\":\"%s\",\"output\":%s}}\\n' % (number, {output}))");
        let job = Program::new(&task).run(&["t", "1"]).code(1).json();
        assert_eq!(job["outcome"], "app_error", "{job}");
        assert!(job["error"]["message"].to_string().contains(why), "{job}");
    }
}

/// How the jobs of an example end that are given these inputs, some of which are wrong.
fn averages(example: &str, inputs: &[&str]) -> Vec<Value> {
    let words = ["run", "--json", "--workers", "1", "--worker-jsonl", example, "average"];
    run_offload(&[&words, inputs].concat()).code(1).json_lines()
}

#[test]
fn each_example_does_its_task_and_says_what_is_wrong_with_an_input() {
    for example in examples() {
        let jobs = averages(&example, &["[1, 2,\n 6]", "\"no\""]);
        assert_eq!(
            (jobs[0]["output"].as_f64(), &jobs[0]["content_type"]),
            (Some(3.0), &json!("application/json")),
            "{example}"
        );
        assert_eq!(jobs[1]["outcome"], "app_error", "{example}: {}", jobs[1]);
    }
}

/// A sum that is infinite, and texts that look like numbers: an answer in JSON has no word for what comes of them.
#[test]
fn no_input_makes_an_example_answer_with_what_is_no_number() {
    for example in examples() {
        let inputs = [
            "[1e308, 1e308]",
            "[-1e308, -1e308]",
            "[\"a\"]",
            "[\"Infinity\"]",
            "[\"nan\"]",
            "[null]",
            "[[1], [2]]",
            "[]",
        ];
        for job in averages(&example, &inputs) {
            let is_a_number = job["outcome"] == "ok" && job["output"].is_number();
            assert!(is_a_number || job["outcome"] == "app_error", "{example}: {job}");
        }
    }
}

#[test]
fn each_example_keeps_the_protocol() {
    for example in examples() {
        let ran = check_worker(&["--jsonl", &example]).code(0);
        assert_eq!(ran.json()["ok"], true, "{example}: {:#}", ran.json());
    }
}

/// None of these has an example, so they are asked with `null`.
#[test]
fn what_a_program_does_wrong_after_its_first_job_is_found() {
    let cases = [
        ("send({'job': number, 'output': 1}); break", "several jobs that come at once", "it ended with"),
        (
            "send({'job': number, 'output': 1}); jobs = None; time.sleep(600)",
            "several jobs",
            "it ended with exit code 76",
        ),
        ("send({'job': '1', 'output': 1})", "several jobs that come at once", "it ended with exit code 76"),
    ];
    std::thread::scope(|scope| {
        for (task, only, expected) in cases {
            scope.spawn(move || {
                let program = Program::with_offer(r#"[{"name": "t"}]"#, task);
                expect_failure(&program, only, expected);
            });
        }
        scope.spawn(|| {
            let text = "import os, time\nos.write(4, b'{\"hello\":{\"tasks\":[{\"name\":\"t\"}]}}\\n'); time.sleep(600)";
            expect_failure(&Program::of(text), "it exits with 0 on Drain", "the program goes on although there are no more jobs");
        });
    });
}

fn expect_failure(program: &Program, only: &str, expected: &str) {
    let ran = check_worker(&["--jsonl", &program.command(), "--only", only]).code(1);
    let report = ran.json();
    let rows = report["questions"].as_array().expect("rows");
    let detail = rows.iter().find(|row| row["verdict"] == "fails").map(|row| row["detail"].to_string());
    assert!(detail.unwrap_or_default().contains(expected), "{report:#}");
}

/// It is killed, and nobody is blamed for that.
#[test]
fn a_program_that_goes_on_after_its_last_job_is_no_fault_of_a_run() {
    let text = "import json, os, time\nos.write(4, b'{\"hello\":{\"tasks\":[{\"name\":\"t\"}]}}\\n')\n\
        for line in open(3): os.write(4, json.dumps({'job': json.loads(line)['job'], 'output': 1}).encode() + b'\\n')\n\
        time.sleep(600)";
    let ran = Program::of(text).run(&["t", "1", "2"]).ok();
    assert!(ran.json_lines().iter().all(|job| job["outcome"] == "ok"), "{ran:?}");
    assert!(
        !["exit code 76", "broke its promises"].iter().any(|blame| ran.stderr.contains(blame)),
        "{ran:?}"
    );
}

/// A variable is as good as its flag. Where no supervisor runs, the configuration file says what one would offer.
#[test]
fn the_tasks_of_a_program_are_listed_whoever_names_it() {
    let program = Program::with_offer(r#"[{"name": "mine"}]"#, "pass");
    let configuration = program.folder.path().join("offload.toml");
    std::fs::write(&configuration, format!("[[pool]]\njsonl = \"{}\"\n", program.command())).expect("a file");
    let of_file = configuration.display().to_string();
    let (socket, command_line) =
        (program.folder.path().join("none.sock").display().to_string(), program.command());
    for (words, variables) in [
        (vec!["--worker-jsonl", &*command_line], vec![]),
        (vec![], vec![("OFFLOAD_WORKER_JSONL", &*command_line)]),
        (vec!["--config", &*of_file], vec![]),
        (vec![], vec![("OFFLOAD_CONFIG", &*of_file)]),
        (vec![], vec![("OFFLOAD_EXEC_TASK", "mine -- cat"), ("OFFLOAD_WORKER", "builtin")]),
    ] {
        let all = [&["--socket", &*socket, "tasks", "--json"], &words[..]].concat();
        let ran = run(command(&all).envs(variables.iter().copied()), b"").ok();
        let tasks = ran.json();
        let names = tasks.as_array().expect("tasks").iter().filter(|task| task["task"] == "mine").count();
        assert_eq!(names, 1, "{words:?}, {variables:?}: {tasks}");
    }
}

#[test]
fn tasks_say_of_themselves_what_they_like() {
    let offer = r#"[{"name": "t", "idempotent": True, "description": "does", "accepts": ["text/plain"], "produces": "image/png",
        "example": "abc", "schema": {"type": "string"}}]"#;
    let program = Program::with_offer(offer, "pass");
    let tasks = run_offload(&["tasks", "--json", "--worker-jsonl", &program.command()]).ok().json();
    let task = &tasks[0];
    assert_eq!((&task["name"], &task["description"]), (&json!("t"), &json!("does")), "{tasks}");
    assert_eq!((&task["idempotent"], &task["produces"]), (&json!(true), &json!("image/png")), "{tasks}");
    assert_eq!((&task["accepts"], &task["example"]), (&json!(["text/plain"]), &json!("abc")), "{tasks}");
}

#[test]
fn one_media_type_needs_no_list_and_a_list_may_have_one() {
    let offer = r#"[{"name": "t", "accepts": "text/plain", "produces": ["image/png"]}]"#;
    let program = Program::with_offer(offer, "send({'job': number, 'output': x})");
    let tasks = run_offload(&["tasks", "--json", "--worker-jsonl", &program.command()]).ok().json();
    assert_eq!((&tasks[0]["accepts"], &tasks[0]["produces"]), (&json!(["text/plain"]), &json!("image/png")));
}

#[test]
fn inputs_and_outputs_are_json_text_or_bytes() {
    let program = Program::new(
        "say = {'output': [job['content_type'], x, job.get('input_base64'), job['attempt'], job['task']]}\n\
         if x == 'png': say = {'output_base64': 'iVBORw==', 'content_type': 'image/png'}\n\
         if x == 'text': say = {'output': 'h\\u00e4\\nb', 'content_type': 'text/plain'}\n\
         if x == 'null': say = {'output': None}\n\
         send({'job': number, **say})",
    );
    let output = |words: &[&str]| program.run(words).ok().json()["output"].clone();
    assert_eq!(output(&["t", r#"{"a":  1.10}"#]), json!(["application/json", {"a": 1.10}, null, 1, "t"]));
    assert_eq!(output(&["any", "a b"]), json!(["text/plain; charset=utf-8", "a b", null, 1, "any"]));
    let bytes = output(&["any", "--content-type", "image/png", "a b"]);
    assert_eq!(bytes, json!(["image/png", null, "YSBi", 1, "any"]));
    let picture = program.run(&["any", "png"]).ok().json();
    assert_eq!(
        (&picture["output_base64"], &picture["content_type"]),
        (&json!("iVBORw=="), &json!("image/png"))
    );
    assert_eq!(output(&["any", "text"]), json!("h\u{e4}\nb"));
    assert_eq!(program.run(&["any", "null"]).ok().json()["output"], Value::Null);
    let broken = program.run(&["t", "{"]).code(1).json();
    assert!(broken["error"]["message"].as_str().unwrap().contains("not JSON"), "{broken}");
}

#[test]
fn large_inputs_and_outputs_pass_both_ways_at_once() {
    let program = Program::new("send({'job': number, 'output': x + x})");
    let text = "x".repeat(3_000_000);
    let folder = private_folder();
    std::fs::write(folder.path().join("in"), format!("\"{text}\"")).unwrap();
    let ran = program.run(&["t", &format!("@{}", folder.path().join("in").display())]).ok();
    assert!(ran.json()["output"] == json!(text.repeat(2)), "{} bytes", ran.stdout.len());
}

#[test]
fn progress_is_passed_on_and_late_progress_of_another_job_is_no_violation() {
    let program = Program::new(
        "while x and not os.path.exists(x): time.sleep(0.01); send({'job': number, 'progress': [3, 10]})\n\
         send({'job': number, 'output': 1}); send({'job': number, 'progress': [9, 10]})",
    );
    let daemon = Daemon::start(&["--workers", "1", "--worker-jsonl", &program.command()]);
    let gate = program.folder.path().join("gate").display().to_string();
    let job = daemon.run(&["submit", "--detach", "t", &json!(gate).to_string()]).ok().text();
    until("progress", || {
        let now = daemon.run(&["explain", "--json", job.trim()]).ok().json();
        (now["progress"] == json!([3, 10])).then_some(())
    });
    std::fs::write(&gate, "").unwrap();
    daemon.run(&["wait", job.trim()]).ok();
    for _ in 0..3 {
        assert_eq!(daemon.submit(&["t", "null"])["output"], 1);
    }
}

#[test]
fn the_end_of_the_program_is_what_is_reported() {
    let program = Program::new(
        "if x == 'segv': os.kill(os.getpid(), signal.SIGSEGV)\n\
         if x == 'kill': os.kill(os.getpid(), signal.SIGKILL)\n\
         if x == 'abort': os.abort()\n\
         if x == 'exit': print('my last words', flush=True); os._exit(7)\n\
         send({'job': number, 'output': x})",
    );
    let inputs = [r#""fine""#, r#""segv""#, r#""kill""#, r#""abort""#, r#""exit""#, r#""fine too""#];
    let ran = program.run(&[&["t"], &inputs[..]].concat()).code(125);
    let jobs = ran.json_lines();
    let outcomes: Vec<&Value> = jobs.iter().map(|job| &job["outcome"]).collect();
    assert_eq!(
        outcomes,
        ["ok", "worker_crashed", "worker_crashed", "worker_crashed", "worker_crashed", "ok"]
    );
    for (job, expected) in jobs[1..].iter().zip(["signal 11", "signal 9", "signal 6", "exit code 7"]) {
        assert!(job["error"].to_string().contains(expected), "{expected}: {job}");
    }
    assert!(ran.stderr.contains("my last words"), "{}", ran.stderr);
}

/// What it has written of a line by then is no lesser end.
#[test]
fn a_program_that_ends_within_a_line_has_ended_as_it_did() {
    let program = Program::new(
        "answers.write('{\"job\":\"' + number + '\",\"output\":'); answers.flush()\n\
         if x == 'exit': os._exit(7)\n\
         os.kill(os.getpid(), signal.SIGKILL if x == 'kill' else signal.SIGSEGV)",
    );
    let ran = program.run(&["t", "\"segv\"", "\"kill\"", "\"exit\""]).code(125);
    for (job, end) in ran.json_lines().iter().zip(["signal 11", "signal 9", "exit code 7"]) {
        let told = job["error"]["message"].as_str().unwrap_or_default();
        assert!(job["outcome"] == "worker_crashed" && told.contains(end), "{end}: {ran:?}");
    }
    assert!(!ran.stderr.contains("broke its promises"), "{ran:?}");
}

#[test]
fn a_time_limit_within_a_line_is_no_fault_of_the_program() {
    let program = Program::new("answers.write('{'); answers.flush(); time.sleep(1000)");
    let ran = program.run(&["--timeout", "300ms", "t", "1"]).code(124);
    assert_eq!(ran.json()["outcome"], "timeout", "{ran:?}");
    assert!(!ran.stderr.contains("broke its promises"), "{ran:?}");
}

#[test]
fn an_answer_counts_although_its_program_ends_right_after_it() {
    let program = Program::new("send({'job': number, 'output': x}); os._exit(9)");
    for number in 0..5 {
        assert_eq!(program.run(&["t", &number.to_string()]).ok().json()["output"], number);
    }
}

#[test]
fn a_program_that_dies_between_two_jobs_costs_no_job() {
    let program = Program::new("send({'job': number, 'output': os.getpid()})");
    let daemon = Daemon::start(&["--workers", "1", "--worker-jsonl", &program.command()]);
    for _ in 0..3 {
        let pid = daemon.submit(&["t", "0"])["output"].as_u64().expect("a process");
        let before = daemon.workers()[0]["pid"].clone();
        signal(pid as u32, rustix::process::Signal::SEGV);
        until("another worker", || {
            daemon
                .workers()
                .first()
                .is_some_and(|worker| worker["pid"] != before && worker["state"] == "idle")
                .then_some(())
        });
    }
}

#[test]
fn whoever_breaks_the_rules_is_named_with_the_line() {
    for (task, expected) in [
        ("answers.write('what is this?\\n')", "what is this?"),
        ("send({'job': '999', 'output': 1})", "999"),
        ("send({'job': number, 'output': 1, 'error': 'x'})", "one of output"),
        ("send({'job': number})", "one of output"),
        ("send({'job': number, 'output_base64': '!'})", "not base64"),
        ("send(['x' * 500])", "xxx\"..."),
        ("answers.write('\\xff'); answers.close(); os._exit(0)", "within a line"),
    ] {
        let program = Program::new(task);
        let ran = program.run(&["t", "1"]).code(125);
        assert_eq!(ran.json()["outcome"], "worker_protocol", "{task}: {ran:?}");
        assert!(
            ran.stderr.contains("broke its promises") && ran.stderr.contains(expected),
            "{task}: {ran:?}"
        );
    }
}

#[test]
fn a_line_without_an_end_is_bounded() {
    let program = Program::new("while True: answers.write('x' * 100000)");
    let words = [
        "run",
        "--json",
        "--workers",
        "1",
        "--max-payload",
        "1MiB",
        "--worker-jsonl",
        &program.command(),
        "t",
        "1",
    ];
    let ran = run_offload(&words).code(125);
    assert!(ran.stderr.contains("a line has more than"), "{ran:?}");
}

#[test]
fn a_program_that_offers_nothing_right_is_told_so_at_its_start() {
    for (text, expected) in [
        ("print('hello')", "exit code 0"),
        ("import os; os.write(4, b'hello\\n')", "its first line has to be"),
        ("import os; os.write(4, b'{\"hello\":{\"tasks\":[]}}\\n')", "no task"),
        ("import os; os.write(4, b'{\"hello\":{\"tasks\":[{\"name\":\"2x\"}]}}\\n')", "cannot name a task"),
        (
            "import os; os.write(4, b'{\"hello\":{\"tasks\":[{\"name\":\"x\"},{\"name\":\"x\"}]}}\\n')",
            "two tasks",
        ),
        ("raise SystemExit(5)", "exit code 5"),
    ] {
        let ran = Program::of(text).run(&["t", "1"]);
        assert!(ran.code != 0 && format!("{ran:?}").contains(expected), "{text}: {ran:?}");
    }
    let missing = run_offload(&["run", "--worker-jsonl", "no-such-program x", "t"]);
    assert!(missing.code != 0 && missing.stderr.contains("no `no-such-program` in PATH"), "{missing:?}");
}

#[test]
fn a_time_limit_ends_the_program_and_its_children() {
    let program = Program::new(
        "if x: subprocess.Popen(['python3', '-c', 'import time; time.sleep(600)', x])\n\
         while x: time.sleep(1)\n\
         send({'job': number, 'output': 'fine'})",
    );
    let word = program.path().display().to_string();
    let daemon = Daemon::start(&["--workers", "1", "--spares", "0", "--worker-jsonl", &program.command()]);
    let input = json!(word).to_string();
    assert_eq!(daemon.submit(&["--timeout", "300ms", "t", &input])["outcome"], "timeout");
    assert_eq!(daemon.submit(&["t", "null"])["output"], "fine");
    let worker = daemon.workers()[0]["pid"].as_u64().expect("a worker") as u32;
    until("only one program is left", || (of_program(&word).len() == 1).then_some(()));
    assert_eq!(children_of(worker), of_program(&word));
}

fn of_program(word: &str) -> Vec<u32> {
    let found = processes_with(word);
    found.into_iter().filter(|pid| !is_part_of_offload(*pid)).collect()
}

fn is_part_of_offload(pid: u32) -> bool {
    let file = std::fs::read_link(Path::new("/proc").join(pid.to_string()).join("exe")).unwrap_or_default();
    file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("offload"))
}

#[test]
fn a_killed_adapter_takes_its_program_with_it_and_costs_its_job_alone() {
    let program = Program::new(
        "if x: open(x, 'w').close()\n\
         while x: time.sleep(1)\n\
         send({'job': number, 'output': 'fine'})",
    );
    let word = program.path().display().to_string();
    let daemon = Daemon::start(&["--workers", "2", "--worker-jsonl", &program.command()]);
    let begun = program.folder.path().join("begun");
    let job =
        daemon.run(&["submit", "--detach", "t", &json!(begun.display().to_string()).to_string()]).ok().text();
    until("the job has begun", || begun.exists().then_some(()));
    let worker = daemon.worker_running("t");
    let pid = worker["pid"].as_u64().expect("a process") as u32;
    let theirs = children_of(pid);
    assert_eq!(theirs.len(), 1, "{worker}");
    signal(pid, rustix::process::Signal::KILL);
    let ran = daemon.run(&["wait", "--json", job.trim()]);
    assert_eq!(ran.json()["outcome"], "worker_crashed", "{ran:?}");
    until("its program is gone", || (!of_program(&word).contains(&theirs[0])).then_some(()));
    assert_eq!(daemon.submit(&["t", "null"])["output"], "fine");
}

#[test]
fn beside_other_programs_each_job_goes_to_its_own_and_crashes_stay_where_they_are() {
    let program = Program::new(
        "if x == 'die': os.abort()\n\
         send({'job': number, 'output': x * 2})",
    );
    let inputs: Vec<String> = (0..200)
        .map(|number| if number % 20 == 7 { "\"die\"".to_owned() } else { number.to_string() })
        .collect();
    let mut mapped = command(&[
        "map",
        "--json",
        "--workers",
        "3",
        "--worker-jsonl",
        &program.command(),
        "--worker",
        "builtin",
        "t",
    ]);
    let ran = run(&mut mapped, inputs.join("\n").as_bytes()).code(1);
    let jobs = ran.json_lines();
    assert_eq!(jobs.len(), 200);
    for (number, job) in jobs.iter().enumerate() {
        match number % 20 {
            7 => assert!(job["outcome"] == "worker_crashed" && job.to_string().contains("signal 6"), "{job}"),
            _ => assert_eq!(job["output"], json!(number * 2), "{job}"),
        }
    }
}
