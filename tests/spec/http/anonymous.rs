//! What somebody who has shown no token is told of a job that failed.

use offload_protocol::nouns::OutcomeCode;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use tests::harness::{Daemon, private_folder, signal, until, workspace};
use tests::http::{Answer, HttpDaemon};

const ANONYMOUS: (&str, &str) = ("Authorization", "");

const SAID: &str = "KEY=hunter2";

fn daemon() -> HttpDaemon {
    HttpDaemon::start(&[
        "--workers",
        "3",
        "--allow-faults",
        "--worker",
        "builtin",
        "--worker-jsonl",
        "sh -c 'echo KEY=hunter2 >&2; exit 1'",
        "--exec-task",
        "boom -- sh -c 'echo KEY=hunter2 >&2; exit 3'",
        "--http-route",
        "POST /boom boom auth=none",
        "--http-route",
        "POST /boom-with-token boom",
        "--http-route",
        "POST /json json auth=none",
        "--http-route",
        "POST /fault fault auth=none",
        "--http-route",
        "POST /not-started other auth=none",
        "--http-route",
        "POST /not-started-with-token other",
    ])
}

fn detail(answer: &Answer) -> String {
    answer.json()["detail"].as_str().expect("a sentence").to_owned()
}

#[test]
fn what_a_program_wrote_is_told_to_those_who_have_shown_the_token() {
    let http = daemon();
    let told = http.ask("POST", "/boom-with-token", &[], b"");
    assert!(told.status == 422 && detail(&told).contains(SAID), "{told:?}");
    for fields in [&[ANONYMOUS][..], &[]] {
        let hidden = http.ask("POST", "/boom", fields, b"");
        assert_eq!(hidden.problem(), (422, "app_error".to_owned()));
        assert_eq!(detail(&hidden), "the program of the task has failed", "nobody looks at a token there");
        assert_eq!(hidden.json()["exit_code"], 3);
        let job = hidden.json()["job"].as_str().expect("its id").to_owned();
        let document = http.ask("GET", &format!("/v1/jobs/{job}"), &[], b"").text();
        assert!(document.contains(SAID), "{document}");
    }
    let events = http.ask("POST", "/boom", &[ANONYMOUS, ("Accept", "text/event-stream")], b"");
    assert!(events.text().contains("app_error") && !events.text().contains(SAID), "{}", events.text());
    let events = http.ask("POST", "/boom-with-token", &[("Accept", "text/event-stream")], b"");
    assert!(events.text().contains(SAID), "{}", events.text());
}

#[test]
fn why_a_worker_does_not_start_is_told_to_those_who_have_shown_the_token() {
    let http = daemon();
    let told = until("it is given up", || {
        let answer = http.ask("POST", "/not-started-with-token", &[], b"");
        (answer.status == 503).then_some(answer)
    });
    assert!(detail(&told).contains(SAID), "{told:?}");
    let hidden = http.ask("POST", "/not-started", &[ANONYMOUS], b"");
    assert_eq!(hidden.problem(), (503, "unavailable".to_owned()));
    assert_eq!(detail(&hidden), "the task cannot be run at the moment");
    assert_eq!(hidden.field("retry-after"), told.field("retry-after"));
}

#[test]
fn the_error_that_a_task_returns_is_its_answer_and_a_panic_is_not() {
    let http = daemon();
    let returned = http.ask("POST", "/json", &[ANONYMOUS], b"{");
    assert_eq!(returned.problem(), (422, "app_error".to_owned()));
    assert!(detail(&returned).contains("line 1"), "{returned:?}");
    let panicked = http.ask("POST", "/fault", &[ANONYMOUS], br#"{"act":"panic"}"#);
    assert_eq!(panicked.problem(), (500, "panic".to_owned()));
    assert_eq!(detail(&panicked), "the worker of the task has failed");
}

/// What is left of a program's standard error may be in each of these messages, and so may the path of the program.
#[test]
fn however_a_program_ends_only_what_kind_of_failure_it_was_is_told() {
    let folder = private_folder();
    let program = folder.path().join(SAID);
    std::fs::write(&program, "#!/bin/sh\n").expect("a file");
    let mut command = std::process::Command::new("chmod");
    command.arg("700").arg(&program).status().expect("it runs");
    let script = |name: &str, says: &str| format!("{name} -- sh -c 'echo {SAID} >&2; {says}'");
    let cases = [
        (script("late timeout=200ms", "exec sleep 600"), 504, "the job took longer than it may"),
        (script("long", "yes"), 422, "the task has failed"),
        (script("killed", "kill -9 $$"), 422, "the program of the task has failed"),
        (script("exits", "exit 3"), 422, "the program of the task has failed"),
        (
            script("hungry memory=16MiB", "x=y; while :; do x=$x$x; done"),
            502,
            "the worker of the task has failed",
        ),
        (script("ended", "kill -TERM $PPID; exec sleep 600"), 502, "the worker of the task has failed"),
        (format!("gone -- {}", program.display()), 422, "the task has failed"),
    ];
    let mut words =
        vec!["--workers".to_owned(), "2".to_owned(), "--max-payload".to_owned(), "1MiB".to_owned()];
    let name = |line: &str| line.split(' ').next().expect("a name").to_owned();
    for (line, ..) in &cases {
        let task = name(line);
        words.extend(["--exec-task".to_owned(), line.clone()]);
        words.extend(["--http-route".to_owned(), format!("POST /{task} {task} auth=none")]);
    }
    let http = HttpDaemon::start(&words.iter().map(String::as_str).collect::<Vec<_>>());
    std::fs::remove_file(&program).expect("it is there");
    for (line, status, said) in cases {
        let (path, at_once) = (format!("/{}", name(&line)), [ANONYMOUS]);
        let told = http.ask("POST", &path, &at_once, b"");
        assert_eq!((told.status, &*detail(&told)), (status, said), "{line}");
        let job = told.json()["job"].as_str().expect("its id").to_owned();
        let document = http.ask("GET", &format!("/v1/jobs/{job}"), &[], b"").text();
        let is_known = document.contains(SAID) || line.starts_with("ended");
        assert!(is_known, "with the token: {document}");
    }
}

#[test]
fn an_exception_that_a_task_meets_is_not_told_and_one_that_it_raises_for_its_callers_is() {
    let folder = private_folder();
    let (worker, application) = (folder.path().join("worker.py"), folder.path().join("application.py"));
    std::fs::write(
        &worker,
        WORKER.replace("PACKAGE", &workspace().join("worker/python").display().to_string()),
    )
    .expect("a file");
    std::fs::write(&application, APPLICATION).expect("a file");
    let http = HttpDaemon::start(&[
        "--workers",
        "2",
        "--hello-timeout",
        "60s",
        "--worker",
        &format!("python3 -B {}", worker.display()),
        "--worker-http",
        &format!("python3 -B {} {{port}}", application.display()),
        "--tasks",
        "web",
        "--http-route",
        "POST /met met auth=none",
        "--http-route",
        "POST /raised raised auth=none",
        "--http-route",
        "POST /raised-of-a-program raised_of_a_program auth=none",
        "--http-route",
        "POST /web web auth=none",
    ]);
    let cases = [
        ("/met", "the task has failed"),
        ("/raised", "there is no album 3"),
        ("/raised-of-a-program", "the program of the task has failed"),
    ];
    for (path, said) in cases {
        let told = http.ask("POST", path, &[ANONYMOUS, ("Content-Type", "application/json")], b"3");
        assert_eq!((told.problem(), &*detail(&told)), ((422, "app_error".to_owned()), said));
    }
    let bad = http.ask("POST", "/raised", &[ANONYMOUS, ("Content-Type", "application/json")], b"{");
    assert!(detail(&bad).starts_with("the input is not JSON"), "{bad:?}");
    for (status, said) in
        [("500", "the task has failed"), ("302", "the task has failed"), ("404", "Traceback")]
    {
        let told = http.ask("POST", "/web", &[ANONYMOUS], status.as_bytes());
        assert!(told.status == 422 && detail(&told).starts_with(said), "{status}: {told:?}");
    }
}

const WORKER: &str = r#"
import sys
sys.path.insert(0, "PACKAGE")
from offload import TaskError, serve, task
@task
def met(_): open("/srv/private/KEY=hunter2")
@task
def raised(number): raise TaskError(f"there is no album {number}")
@task
def raised_of_a_program(_): raise TaskError("it said KEY=hunter2", exit_code=3)
serve()
"#;

/// It answers with the status that the body names, and a text of which only its author knows what it is.
const APPLICATION: &str = r#"
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        status = int(self.rfile.read(int(self.headers["Content-Length"])))
        text = b"Traceback: no /srv/private/KEY=hunter2"
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Location", "/srv/KEY=hunter2")
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

#[test]
fn which_tasks_there_are_is_told_to_those_who_have_shown_the_token() {
    let http = HttpDaemon::start(&["--workers", "1", "--http-route", "POST /none none auth=none"]);
    let told = http.call("none", &[], b"");
    assert!(told.status == 404 && detail(&told).contains("primes"), "{told:?}");
    let hidden = http.ask("POST", "/none", &[ANONYMOUS], b"");
    assert_eq!(hidden.problem(), (404, "unknown_task".to_owned()));
    assert_eq!(detail(&hidden), "the task cannot be run at the moment");
}

#[test]
fn what_the_supervisor_says_of_its_limits_and_of_itself_is_told_to_everybody() {
    let mut http = HttpDaemon::start(&[
        "--workers",
        "1",
        "--max-payload",
        "1KiB",
        "--http-route",
        "POST /sleep sleep auth=none timeout=1ms",
        "--http-route",
        "POST /echo echo auth=none",
    ]);
    let late = http.ask("POST", "/sleep", &[ANONYMOUS], b"600000");
    assert_eq!((late.status, &*detail(&late)), (504, "ran longer than 1 ms"));
    let large = http.ask("POST", "/echo", &[ANONYMOUS], &[b'x'; 2000]);
    assert!(large.status == 413 && detail(&large).contains("the limit is 1024 bytes"), "{large:?}");

    let mut held = http.connect();
    held.send("POST", "/v1/tasks/sleep", &[], b"600000");
    http.daemon.worker_running("sleep");
    signal(http.daemon.pid(), rustix::process::Signal::TERM);
    until("it drains", || (http.daemon.status()["state"] == "draining").then_some(()));
    let ending = http.ask("POST", "/echo", &[ANONYMOUS], b"");
    assert_eq!(ending.status, 503, "{ending:?}");
    assert!(detail(&ending).starts_with("the supervisor is ending"), "{ending:?}");
    signal(http.daemon.pid(), rustix::process::Signal::TERM);
    http.daemon.wait();
}

/// Behind a process of the same user there may be a proxy, whose clients are anybody.
#[test]
fn over_a_unix_socket_too_nobody_is_recognized_on_a_route_that_needs_no_token() {
    let folder = private_folder();
    let socket = folder.path().join("http.sock");
    let daemon = Daemon::start(&[
        "--workers",
        "2",
        "--exec-task",
        "boom -- sh -c 'echo KEY=hunter2 >&2; exit 3'",
        "--http-route",
        "POST /boom boom auth=none",
        "--http",
        &format!("unix:{}", socket.display()),
    ]);
    let ask = |path: &str| {
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    let hidden = ask("/boom");
    assert!(hidden.contains("the program of the task has failed") && !hidden.contains(SAID), "{hidden}");
    assert!(ask("/v1/tasks/boom").contains(SAID), "that is for the owner of the socket");
    drop(daemon);
}

/// Who has shown no token can never collect it.
#[test]
fn what_is_kept_for_somebody_without_a_token_leaves_room_for_all_others() {
    let http = HttpDaemon::start(&[
        "--workers",
        "2",
        "--max-kept-bytes",
        "8MiB",
        "--http-route",
        "POST /echo echo auth=none mode=async",
    ]);
    http.daemon.run(&["pause", "echo"]).ok();
    let body = vec![b'x'; 3 << 20];
    let jobs = [0; 2].map(|_| {
        let accepted = http.ask("POST", "/echo", &[ANONYMOUS], &body);
        assert_eq!(accepted.status, 202, "{accepted:?}");
        accepted.json()["job"].as_str().expect("its id").to_owned()
    });
    http.daemon.run(&["resume", "echo"]).ok();
    until("both to end", || (http.daemon.status()["jobs"]["ok"] == 2).then_some(()));
    let ended = jobs.map(|job| http.daemon.run(&["result", &job]).code);
    assert!(ended.iter().filter(|code| **code != 0).count() == 1, "{ended:?}");
    let kept = http.daemon.status()["kept"]["bytes"].as_u64().expect("a number");
    assert!(kept < 4 << 20, "{kept}");
    assert_eq!(http.call("echo", &[("Prefer", "respond-async")], "hello").status, 202);
}

#[test]
fn what_is_told_beside_the_detail_is_words_of_a_list_and_numbers() {
    let http = daemon();
    let crash = http.ask("POST", "/fault", &[ANONYMOUS], br#"{"act":"segv"}"#);
    let boom = http.ask("POST", "/boom", &[ANONYMOUS], b"");
    for (answer, number) in [(crash, "signal"), (boom, "exit_code")] {
        let problem = answer.json();
        let members = problem.as_object().expect("a document");
        assert!(members[number].is_i64(), "{problem}");
        for (name, value) in members {
            let is_told = match name.as_str() {
                "title" | "detail" | "job" => value.is_string(),
                "code" | "cause" => OutcomeCode::ALL.iter().any(|code| code.as_str() == value),
                "status" | "attempts" | "signal" | "exit_code" | "retry_after_ms" => value.is_i64(),
                _ => false,
            };
            assert!(is_told, "{name}: {problem}");
        }
    }
}
