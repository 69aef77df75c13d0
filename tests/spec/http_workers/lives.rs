//! How applications start and end, and who is told of it.

use super::{Application, PREFACE, message};
use serde_json::{Value, json};
use std::path::Path;
use tests::harness::{children_of, command, processes_with, run, signal, until};

#[test]
fn a_connection_that_is_broken_is_a_crash_of_its_worker_and_of_nobody_else() {
    for broken in [
        "if x == 'die': connection.close(); continue",
        "if x == 'die': send('HTTP/1.1 200 OK\\r\\n'); connection.close(); continue",
        "if x == 'die': send('HTTP/1.1 200 OK\\r\\nContent-Length: 9\\r\\n\\r\\nab'); connection.close(); continue",
        "if x == 'die': send('HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n1\\r\\na\\r\\n'); connection.close(); continue",
    ] {
        let application =
            Application::new(&format!("x = json.loads(whole())\n{broken}\nanswer(json.dumps(x))"));
        for place in ["{socket}", "{port}"] {
            let ran = application.run_at(place, &["t", "1", "\"die\"", "2"]).code(125);
            let jobs = ran.json_lines();
            assert_eq!((&jobs[0]["output"], &jobs[2]["output"]), (&json!(1), &json!(2)), "{ran:?}");
            assert_eq!(jobs[1]["outcome"], "worker_crashed", "{ran:?}");
            assert!(ran.stderr.contains("the connection before its answer was complete"), "{ran:?}");
            assert_eq!(jobs[1]["error"]["exit_code"], 76, "{ran:?}");
            let told =
                "exit code 76 in attempt 1 of 1; its worker printed: the program broke its promises: it ";
            assert!(message(&jobs[1]).starts_with(told), "{ran:?}");
            assert!(message(&jobs[1]).contains("the connection before its answer was complete"), "{ran:?}");
        }
    }
}

#[test]
fn the_end_of_the_application_is_what_is_reported() {
    let application = Application::new(
        "x = json.loads(whole())\n\
         if x == 'segv': os.kill(os.getpid(), signal.SIGSEGV)\n\
         if x == 'kill': os.kill(os.getpid(), signal.SIGKILL)\n\
         if x == 'abort': send('HTTP/1.1 200 OK\\r\\n'); os.abort()\n\
         if x == 'exit': print('my last words', flush=True); os._exit(7)\n\
         if x == 'last': answer('9'); os._exit(3)\n\
         answer(json.dumps(x))",
    );
    let inputs =
        [r#""fine""#, r#""segv""#, r#""kill""#, r#""abort""#, r#""exit""#, r#""fine too""#, r#""last""#];
    let ran = application.run(&[&["t"], &inputs[..]].concat()).code(125);
    let jobs = ran.json_lines();
    let outcomes: Vec<&Value> = jobs.iter().map(|job| &job["outcome"]).collect();
    assert_eq!(
        outcomes,
        ["ok", "worker_crashed", "worker_crashed", "worker_crashed", "worker_crashed", "ok", "ok"]
    );
    for (job, expected) in jobs[1..].iter().zip(["signal 11", "signal 9", "signal 6", "exit code 7"]) {
        assert!(job["error"].to_string().contains(expected), "{expected}: {job}");
    }
    assert!(ran.stderr.contains("my last words"), "{}", ran.stderr);
}

/// The end of the connection is the end of such a body, so only the end of the application tells whether it is complete.
#[test]
fn an_answer_without_a_length_is_complete_unless_its_application_fails_at_its_end() {
    let application = Application::new(
        "x = json.loads(whole())\n\
         send('HTTP/1.0 ' + ('500 No' if x == 'error' else '200 OK') + '\\r\\nContent-Type: text/plain\\r\\n\\r\\n')\n\
         if x != 'empty': send('a'); send('b')\n\
         if x in ['segv', 'error', 'empty']: os.kill(os.getpid(), signal.SIGSEGV)\n\
         if x == 'kill': os.kill(os.getpid(), signal.SIGKILL)\n\
         if x == 'exit': os._exit(3)\n\
         if x == 'done': os._exit(0)",
    );
    let inputs =
        ["on", "segv", "kill", "exit", "error", "empty", "done", "on"].map(|word| format!("{word:?}"));
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let ends = ["signal 11", "signal 9", "exit code 3", "signal 11", "signal 11"];
    for place in ["{socket}", "{port}"] {
        let ran = application.run_at(place, &[&["t"], &inputs[..]].concat()).code(125);
        let jobs = ran.json_lines();
        for complete in [&jobs[0], &jobs[6], &jobs[7]] {
            assert_eq!((&complete["outcome"], &complete["output"]), (&json!("ok"), &json!("ab")), "{ran:?}");
        }
        for (job, end) in jobs[1..6].iter().zip(ends) {
            assert!(job["outcome"] == "worker_crashed" && message(job).contains(end), "{end}: {ran:?}");
        }
    }
}

#[test]
fn an_idempotent_task_is_tried_again_after_a_crash() {
    let application = Application::new(
        "whole()\n\
         if fields['offload-attempt'] == '1': os.abort()\n\
         answer(fields['offload-attempt'])",
    );
    let jobs = application.run(&["again", "1", "2"]).ok().json_lines();
    for job in &jobs {
        assert_eq!((&job["output"], &job["attempts"]), (&json!(2), &json!(2)), "{job}");
    }
    assert_eq!(application.run(&["t", "1"]).code(125).json()["outcome"], "worker_crashed");
}

#[test]
fn an_application_that_dies_between_two_jobs_costs_no_job() {
    let application = Application::new("answer(json.dumps(os.getpid()))");
    let daemon = application.serve(&["--workers", "1"]);
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
fn a_time_limit_ends_the_application_and_what_it_has_started() {
    let application = Application::new(
        "word = json.loads(whole())\n\
         if word: subprocess.Popen(['python3', '-c', 'import time; time.sleep(600)', word])\n\
         while word: time.sleep(1)\n\
         answer('\"fine\"')",
    );
    let word = application.path().display().to_string();
    let daemon = application.serve(&["--workers", "1", "--spares", "0"]);
    let input = json!(word).to_string();
    assert_eq!(daemon.submit(&["--timeout", "300ms", "t", &input])["outcome"], "timeout");
    assert_eq!(daemon.submit(&["t", "null"])["output"], "fine");
    let worker = daemon.workers()[0]["pid"].as_u64().expect("a worker") as u32;
    until("only one application is left", || (applications(&word).len() == 1).then_some(()));
    assert_eq!(children_of(worker), applications(&word));
}

/// Processes of this application, without their adapters.
fn applications(word: &str) -> Vec<u32> {
    let is_ours = |pid: &u32| {
        let file =
            std::fs::read_link(Path::new("/proc").join(pid.to_string()).join("exe")).unwrap_or_default();
        file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("offload"))
    };
    processes_with(word).into_iter().filter(|pid| !is_ours(pid)).collect()
}

#[test]
fn a_killed_adapter_takes_its_application_with_it_and_leaves_no_socket_behind() {
    let application = Application::new(
        "x = json.loads(whole())\n\
         if x: open(x, 'w').close()\n\
         while x: time.sleep(1)\n\
         answer(json.dumps(place))",
    );
    let word = application.path().display().to_string();
    let daemon = application.serve(&["--workers", "2"]);
    let begun = application.folder.path().join("begun");
    let input = json!(begun.display().to_string()).to_string();
    let job = daemon.run(&["submit", "--detach", "t", &input]).ok().text();
    until("the job has begun", || begun.exists().then_some(()));
    let pid = daemon.worker_running("t")["pid"].as_u64().expect("a process") as u32;
    let theirs = children_of(pid);
    assert_eq!(theirs.len(), 1);
    signal(pid, rustix::process::Signal::KILL);
    let ran = daemon.run(&["wait", "--json", job.trim()]);
    assert_eq!(ran.json()["outcome"], "worker_crashed", "{ran:?}");
    until("its application is gone", || (!applications(&word).contains(&theirs[0])).then_some(()));
    let socket = daemon.submit(&["t", "null"])["output"].as_str().expect("a path").to_owned();
    assert!(socket.ends_with("/socket") && !Path::new(&socket).parent().unwrap().exists(), "{socket}");
}

#[test]
fn a_job_waits_until_a_slow_application_answers() {
    let slow = format!("import time; time.sleep(1)\n{PREFACE}    answer('1')\n    connection.close()\n");
    for place in ["{socket}", "{port}"] {
        assert_eq!(Application::of(&slow).run_at(place, &["t", "1"]).ok().json()["output"], 1);
    }
    // It listens at once, and answers later.
    let late = PREFACE.replacen("\nwhile True:", "\ntime.sleep(1)\nwhile True:", 1);
    let late = Application::of(&format!("{late}    answer('1')\n    connection.close()\n"));
    assert_eq!(late.run(&["t", "1"]).ok().json()["output"], 1);
}

#[test]
fn an_application_that_does_not_start_is_told_so() {
    for (text, expected) in [
        ("raise SystemExit(5)", "exit code 5"),
        ("print('hello')", "exit code 0"),
        ("import os; os.abort()", "signal 6"),
        (
            "import socket, sys; l = socket.socket(socket.AF_UNIX); l.bind(sys.argv[1]); l.listen()\n\
             c, _ = l.accept(); c.sendall(b'220 mail.example ESMTP\\r\\n'); c.recv(1000); c.recv(1000)",
            "no answer in HTTP/1.1",
        ),
    ] {
        let ran = Application::of(text).run(&["t", "1"]);
        assert!(ran.code != 0 && format!("{ran:?}").contains(expected), "{text}: {ran:?}");
    }
    let silent = Application::of("import time; time.sleep(600)");
    let words = ["run", "--worker-http", &silent.at("{socket}"), "--tasks", "t", "t", "1"];
    let ran = run(command(&words).env("OFFLOAD_HELLO_TIMEOUT", "3s"), b"");
    assert!(ran.code != 0 && ran.stderr.contains("did not say hello within 3 s"), "{ran:?}");
    assert!(ran.stderr.contains("the application does not answer yet: it takes no connection"), "{ran:?}");
}

#[test]
fn beside_other_programs_each_job_goes_to_its_own_and_crashes_stay_where_they_are() {
    let application = Application::new(
        "x = json.loads(whole())\n\
         if x == 'die': os.abort()\n\
         answer(json.dumps(x * 2))",
    );
    let inputs: Vec<String> = (0..200)
        .map(|number| if number % 20 == 7 { "\"die\"".to_owned() } else { number.to_string() })
        .collect();
    let server = application.at("{port}");
    let words = [
        "map",
        "--json",
        "--workers",
        "3",
        "--worker-http",
        &server,
        "--tasks",
        "t",
        "--worker",
        "builtin",
        "t",
    ];
    let ran = run(&mut command(&words), inputs.join("\n").as_bytes()).code(1);
    let jobs = ran.json_lines();
    assert_eq!(jobs.len(), 200);
    for (number, job) in jobs.iter().enumerate() {
        match number % 20 {
            7 => assert!(job["outcome"] == "worker_crashed" && job.to_string().contains("signal 6"), "{job}"),
            _ => assert_eq!(job["output"], json!(number * 2), "{job}"),
        }
    }
}
