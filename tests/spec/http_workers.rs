//! HTTP applications as workers (`--worker-http`): they need no code of the protocol, and whatever they do, each job has an outcome
//! of its own. Applications of others are in tests/http_apps.

mod between;
mod lives;

use serde_json::{Value, json};
use std::path::PathBuf;
use tempfile::TempDir;
use tests::harness::{Daemon, Ran, check_worker, command, private_folder, run, run_offload};

/// A server on bare sockets in Python: `task` is what it does with a request on `connection`. It answers the question of the start.
struct Application {
    folder: TempDir,
}

const PREFACE: &str = r#"
import json, os, signal, socket, subprocess, sys, time
place = sys.argv[1]
if place.isdigit():
    listener = socket.create_server(("127.0.0.1", int(place)))
else:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen(100)
def send(text):
    connection.sendall(text.encode("latin1"))
def answer(body="", status="200 OK", media_type="application/json"):
    send(f"HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {len(body)}\r\n\r\n{body}")
def whole():
    global body
    while len(body) < int(fields.get("content-length", 0)):
        body += connection.recv(1 << 16)
    return body
while True:
    connection, _ = listener.accept()
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(1)
    lines = received.decode("latin1").strip().split("\r\n")
    fields, body = dict(line.split(": ", 1) for line in lines[1:]), b""
    method, path, _ = lines[0].split(" ")
    if method == "OPTIONS":
        answer(status="404 Not Found")
        connection.close()
        continue
"#;

impl Application {
    fn new(task: &str) -> Application {
        Application::of(&format!("{PREFACE}    {}\n    connection.close()\n", task.replace('\n', "\n    ")))
    }

    fn of(text: &str) -> Application {
        let folder = private_folder();
        std::fs::write(folder.path().join("application.py"), text).expect("a file");
        Application { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("application.py")
    }

    fn at(&self, place: &str) -> String {
        format!("python3 {} {place}", self.path().display())
    }

    /// It runs these jobs, one after another, with the tasks `t` and `again`, which is idempotent.
    fn run(&self, words: &[&str]) -> Ran {
        self.run_at("{socket}", words)
    }

    fn run_at(&self, place: &str, words: &[&str]) -> Ran {
        let (application, fixed) = (self.at(place), ["run", "--json", "--workers", "1", "--tasks", TASKS]);
        let words = [&fixed[..], &["--worker-http", &application], words].concat();
        // An interpreter takes long to start on a busy machine.
        run(command(&words).env("OFFLOAD_HELLO_TIMEOUT", "60s"), b"")
    }

    fn serve(&self, words: &[&str]) -> Daemon {
        Daemon::start(&[&["--worker-http", &self.at("{socket}"), "--tasks", TASKS], words].concat())
    }
}

const TASKS: &str = "t,again:idempotent";

fn message(job: &Value) -> &str {
    job["error"]["message"].as_str().unwrap_or_default()
}

#[test]
fn a_job_is_one_request_which_says_all_there_is_to_know_of_it() {
    let application =
        Application::new("answer(json.dumps([method, path, fields, whole().decode(), time.time()]))");
    for place in ["{socket}", "{port}"] {
        let words = ["--meta", "traceparent=00-ab-cd-01", "--meta", "album=x y", "--timeout", "1h"];
        let ran = application.run_at(place, &[&words, &["t", "[1, 2]"][..]].concat()).ok().json();
        let output = &ran["output"];
        assert_eq!((&output[0], &output[1], &output[3]), (&json!("POST"), &json!("/t"), &json!("[1, 2]")));
        let fields = &output[2];
        for (name, expected) in [
            ("content-type", "application/json"),
            ("content-length", "6"),
            ("connection", "close"),
            ("accept-encoding", "identity"),
            ("offload-attempt", "1"),
            ("traceparent", "00-ab-cd-01"),
            ("offload-meta-album", "x y"),
        ] {
            assert_eq!(fields[name], expected, "{fields:#}");
        }
        let left: u64 = fields["offload-remaining-ms"].as_str().unwrap().parse().unwrap();
        assert!((1..=3_600_000).contains(&left) && fields["offload-job"].is_string(), "{fields:#}");
    }
}

#[test]
fn the_media_type_is_the_one_that_the_client_states() {
    let application = Application::new("answer(fields['content-type'], media_type='text/x; a=b')");
    let run = |words: &[&str]| application.run(words).ok().json();
    let stated = run(&["t", "--content-type", "image/png", "1"]);
    assert_eq!((&stated["output"], &stated["content_type"]), (&json!("image/png"), &json!("text/x; a=b")));
    assert_eq!(run(&["t", "plain words"])["output"], "text/plain; charset=utf-8");
    assert_eq!(run(&["t", "{\"a\": 1}"])["output"], "application/json");
}

#[test]
fn statuses_become_outcomes() {
    let application = Application::new(
        "status, text = json.loads(whole())\n\
         answer(text, status)",
    );
    let of = |status: &str, text: &str| application.run(&["t", &json!([status, text]).to_string()]).json();
    assert_eq!(of("200 OK", "[7]")["output"], json!([7]));
    assert_eq!(of("201 Created", "[7]")["output"], json!([7]));
    assert_eq!(of("204 No Content", "")["outcome"], "ok");
    for (status, text, expected) in [
        ("422 Unprocessable Content", "no such page", "no such page"),
        ("404 Not Found", "", "404 Not Found"),
        ("500 Internal Server Error", "oh", "500 Internal Server Error: oh"),
        ("303 See Other", "", "303 See Other: it sends on to"),
        ("599 Own", "", "status 599"),
    ] {
        let application = Application::new(&format!(
            "send('HTTP/1.1 {status}\\r\\nLocation: /there\\r\\nContent-Length: {}\\r\\n\\r\\n{text}')",
            text.len()
        ));
        let ran = application.run(&["t", "1"]).code(1).json();
        assert_eq!(ran["outcome"], "app_error", "{ran}");
        assert!(message(&ran).starts_with(expected), "{expected}: {ran}");
    }
    let long = Application::new("answer('x' * 3000000, '500 Internal Server Error')");
    let ran = long.run(&["t", "1"]).code(1).json();
    assert!((500..=1100).contains(&message(&ran).len()), "{} bytes", message(&ran).len());
}

#[test]
fn an_answer_may_come_in_any_form_that_http_knows() {
    for (task, expected) in [
        ("send('HTTP/1.1 200 OK\\r\\n\\r\\n[1]')", "[1]"),
        ("send('HTTP/1.0 200 OK\\r\\nContent-Type: application/json\\r\\n\\r\\n[1]')", "[1]"),
        (
            "for piece in ['HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n', '1\\r\\na\\r\\n', '2;x=y\\r\\nbc\\r\\n', '0\\r\\n\\r\\n']: send(piece)",
            "abc",
        ),
        (
            "send('HTTP/1.1 100 Continue\\r\\n\\r\\nHTTP/1.1 103 Early Hints\\r\\nLink: </a>\\r\\n\\r\\n'); answer('[1]')",
            "[1]",
        ),
        ("for letter in 'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nab': send(letter)", "ab"),
    ] {
        let application = Application::new(&format!("whole()\n{task}"));
        for place in ["{socket}", "{port}"] {
            let command = application.at(place);
            let words = ["run", "--workers", "1", "--worker-http", &command, "--tasks", "t", "t", "1", "2"];
            let said = run_offload(&words).ok().text();
            assert_eq!(said.replace('\n', ""), expected.repeat(2), "{task}");
        }
    }
}

/// The second answer would be that to the next job, were they on one connection.
#[test]
fn whoever_answers_twice_or_late_answers_no_other_job() {
    let application = Application::new(
        "x = json.loads(whole())\n\
         answer(json.dumps(x)); time.sleep(0.002)\n\
         try: answer(json.dumps('wrong')); send('x' * 100000)\n\
         except OSError: pass",
    );
    let inputs: Vec<String> = (0..30).map(|number| number.to_string()).collect();
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    for place in ["{socket}", "{port}"] {
        let jobs = application.run_at(place, &[&["t"], &inputs[..]].concat()).ok().json_lines();
        for (number, job) in jobs.iter().enumerate() {
            assert_eq!(job["output"], number, "{job}");
        }
    }
}

#[test]
fn an_answer_that_comes_before_the_request_was_read_counts() {
    let application = Application::new(
        "if int(fields['content-length']) > 1000: answer('too long', '413 Content Too Large')\n\
         else: answer(whole().decode())",
    );
    expect_too_long(&application);
}

/// The end of the connection, which is the end of such a body, is a reset then.
#[test]
fn an_answer_without_a_length_that_comes_before_the_request_was_read_counts() {
    let application = Application::new(
        "if int(fields['content-length']) > 1000: send('HTTP/1.0 413 Content Too Large\\r\\n\\r\\ntoo long')\n\
         else: answer(whole().decode())",
    );
    expect_too_long(&application);
}

/// The second of three jobs, a long one, is refused before its input was read.
fn expect_too_long(application: &Application) {
    let large = application.folder.path().join("large");
    std::fs::write(&large, vec![b'x'; 20_000_000]).unwrap();
    let large = format!("@{}", large.display());
    for place in ["{socket}", "{port}"] {
        let jobs = application.run_at(place, &["t", "1", &large, "2"]).code(1).json_lines();
        assert_eq!((&jobs[0]["output"], &jobs[2]["output"]), (&json!(1), &json!(2)), "{jobs:?}");
        assert_eq!((&jobs[1]["outcome"], message(&jobs[1])), (&json!("app_error"), "too long"), "{jobs:?}");
    }
}

#[test]
fn what_is_no_answer_fails_its_job_and_says_what_it_was() {
    let application = Application::new(
        "x = json.loads(whole())\n\
         try:\n\
         \x20   if x == 'head': send('HTTP/1.1 200 OK\\r\\nX: ' + 'x' * (1 << 20) + '\\r\\n\\r\\n')\n\
         \x20   elif x == 'fields': send('HTTP/1.1 200 OK\\r\\n' + 'X: y\\r\\n' * 1000 + '\\r\\n')\n\
         \x20   elif x == 'other': send('220 mail.example ESMTP\\r\\n')\n\
         \x20   elif x == 'packed': send('HTTP/1.1 200 OK\\r\\nContent-Encoding: gzip\\r\\nContent-Length: 3\\r\\n\\r\\nabc')\n\
         \x20   elif x == 'chunk': send('HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\nhello\\r\\n')\n\
         \x20   else: answer(json.dumps(x))\n\
         except OSError: pass",
    );
    let inputs = ["1", "\"head\"", "\"fields\"", "\"other\"", "\"chunk\"", "\"packed\"", "2"];
    let jobs = application.run(&[&["t"], &inputs[..]].concat()).code(1).json_lines();
    assert_eq!((&jobs[0]["output"], &jobs[6]["output"]), (&json!(1), &json!(2)));
    let expected = [
        "a head of more than 65536 bytes",
        "no answer in HTTP/1.1",
        "no answer in HTTP/1.1",
        "body that is none",
        "Content-Encoding: gzip",
    ];
    for (job, expected) in jobs[1..6].iter().zip(expected) {
        assert!(job["outcome"] == "app_error" && message(job).contains(expected), "{expected}: {job}");
        assert_eq!(
            job["receipt"]["worker_pid"], jobs[0]["receipt"]["worker_pid"],
            "the same process goes on"
        );
    }
}

#[test]
fn long_answers_are_passed_on_as_they_come() {
    let application = Application::new(
        "gate, count = json.loads(whole())\n\
         send('HTTP/1.1 200 OK\\r\\nContent-Type: text/plain\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n')\n\
         send('6\\r\\nfirst \\r\\n')\n\
         while not os.path.exists(gate): time.sleep(0.01)\n\
         for _ in range(count): send('10000\\r\\n' + 'x' * 65536 + '\\r\\n')\n\
         send('5\\r\\n last\\r\\n0\\r\\n\\r\\n')",
    );
    let daemon = application.serve(&["--workers", "1"]);
    let gate = application.folder.path().join("gate");
    let input = json!([gate.display().to_string(), 40]).to_string();
    let mut streamed = daemon
        .command(&["submit", "--stream", "t", &input])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = streamed.stdout.take().unwrap();
    let mut first = [0; 6];
    std::io::Read::read_exact(&mut output, &mut first).unwrap();
    assert_eq!(&first, b"first ");
    std::fs::write(&gate, "").unwrap();
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut output, &mut rest).unwrap();
    assert!(streamed.wait().unwrap().success() && rest.ends_with(b" last"));
    assert_eq!(rest.len(), 40 * 65536 + 5);
    let whole = daemon.run(&["submit", "t", &input]).ok();
    assert!(whole.stdout.starts_with(b"first xxx") && whole.stdout.len() >= 40 * 65536 + 11);
}

#[test]
fn an_answer_longer_than_the_longest_output_fails_its_job_alone() {
    let application = Application::new(
        "length = json.loads(whole())\n\
         try: answer(json.dumps('7' * length))\n\
         except OSError: pass",
    );
    let words = ["--max-payload", "2MiB", "t", "10", "3000000", "2000000"];
    let jobs = application.run(&words).code(1).json_lines();
    assert_eq!((&jobs[0]["outcome"], &jobs[2]["outcome"]), (&json!("ok"), &json!("ok")));
    assert!(jobs[1]["outcome"] != "ok" && message(&jobs[1]).contains("2097152"), "{}", jobs[1]);
}

#[test]
fn what_cannot_succeed_is_told_before_anything_runs() {
    for (words, expected) in [
        (
            &["--worker-http", "python3 x.py {socket}"][..],
            "each HTTP application needs the names of its tasks",
        ),
        (&["--tasks", "t"], "each HTTP application needs the names of its tasks"),
        (&["--worker-http", "python3 x.py", "--tasks", "t"], "does not say where to listen"),
        (&["--worker-http", "python3 {socket} {port}", "--tasks", "t"], "not at both"),
        (&["--worker-http", "python3 {socket}", "--tasks", "t,t"], "two tasks have the same name"),
        (&["--worker-http", "python3 {socket}", "--tasks", "/t"], "cannot name a task"),
        (&["--worker-http", "python3 {socket}", "--tasks", "t:often"], "says nothing of task"),
    ] {
        let ran = run_offload(&[&["run"], words, &["t", "1"]].concat()).code(2);
        assert!(ran.stderr.contains(expected), "{words:?}: {ran:?}");
    }
    let missing =
        run_offload(&["run", "--worker-http", "no-such-program {socket}", "--tasks", "t", "t", "1"]);
    assert!(missing.code != 0 && missing.stderr.contains("no `no-such-program` in PATH"), "{missing:?}");
}

#[test]
fn applications_of_a_file_have_tasks_of_their_own() {
    let [one, other] = ["one", "other"].map(|name| Application::new(&format!("answer('\"{name}\" ')")));
    let folder = private_folder();
    let file = folder.path().join("offload.toml");
    let pool = |application: &Application, tasks: &str| {
        format!("[[pool]]\nhttp = {:?}\ntasks = {tasks}\nworkers = 1\n", application.at("{port}"))
    };
    let text = [pool(&one, "[\"a\", \"b:idempotent\"]"), pool(&other, "\"c\"")].concat();
    std::fs::write(&file, &text).unwrap();
    let config = file.display().to_string();
    for (task, expected) in [("a", "one"), ("b", "one"), ("c", "other")] {
        assert_eq!(
            run_offload(&["--config", &config, "--json", "run", task, "1"]).ok().json()["output"],
            expected
        );
    }
    std::fs::write(&file, text.replace("tasks = \"c\"\n", "")).unwrap();
    let ran = run_offload(&["--config", &config, "run", "a", "1"]).code(2);
    assert!(ran.stderr.contains("offload.toml:5: an HTTP application and its tasks"), "{ran:?}");
    std::fs::write(&file, pool(&one, "\"a\"").replace("{port}", "80")).unwrap();
    let ran = run_offload(&["config", "check", &config]).code(2);
    assert!(ran.stderr.contains("offload.toml:2: pool.http: it does not say where to listen"), "{ran:?}");
}

#[test]
fn an_application_offers_its_tasks_and_keeps_the_protocol() {
    let application = Application::new("answer(whole().decode('latin1'), media_type='text/plain')");
    let command = application.at("{socket}");
    let words =
        ["tasks", "--json", "--worker-http", &command, "--tasks", "t:produces=image/png,again:idempotent"];
    let tasks = run_offload(&words).ok().json();
    assert_eq!((&tasks[0]["task"], &tasks[1]["idempotent"]), (&json!("again"), &json!(false)), "{tasks:#}");
    let report = check_worker(&["--http", &command, "--tasks", TASKS]).code(0).json();
    assert_eq!(report["ok"], true, "{report:#}");
    let ran = run_offload(&["worker", "check", "--http", "python3 x.py", "--tasks", "t"]).code(2);
    assert!(ran.stderr.contains("does not say where to listen"), "{ran:?}");
}

/// An application without a word of its own: all it knows is files.
#[test]
fn the_server_of_pythons_library_is_an_application() {
    let served = ["run", "--json", "--workers", "2", "--tasks", "t", "--worker-http"];
    let ran =
        run_offload(&[&served[..], &["python3 -m http.server --bind 127.0.0.1 {port}", "t", "1"]].concat());
    let job = ran.code(1).json();
    assert!(job["outcome"] == "app_error" && message(&job).starts_with("501 "), "{job}");
}
